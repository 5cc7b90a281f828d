"""Callbacks that descend from one event run in asyncio's order, however many threads run them."""

import asyncio
import os
import socket
import threading
import time
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tornado.stm
from tornado.stm import core
from tornado.stm.core import trusted
from tornado.stm.program import runner

pytestmark = pytest.mark.usefixtures("whole_module_short")  # what is not leaves its strand

# What a callback does: (how it is scheduled, how long it computes, what it schedules in its turn).
ways, lengths = st.sampled_from(["call_soon", "future", "task"]), st.sampled_from([0, 0, 0, 3_000])
callbacks = st.recursive(
    st.tuples(ways, lengths, st.just(())), lambda child: st.tuples(ways, lengths, st.lists(child, max_size=4)), max_leaves=12
)


def compute(n):
    for _ in range(n):
        pass


def schedule(child, name, log):
    """Let it run soon; in all three ways that is a callback in the line of those that are ready, or in that of a future."""
    loop, (how, n, children) = asyncio.get_running_loop(), child

    def run():
        compute(n)
        log.append(name)
        for i, each in enumerate(children):
            schedule(each, (*name, i), log)

    async def run_task():
        run()
        await asyncio.sleep(0)
        log.append((*name, "again"))

    if how == "call_soon":
        loop.call_soon(run)
    elif how == "future":
        future = loop.create_future()
        future.add_done_callback(lambda _: run())
        future.set_result(None)
    else:
        tasks.add(task := loop.create_task(run_task()))
        task.add_done_callback(tasks.discard)


tasks = set()


def length(children):
    return sum(1 + (how == "task") + length(below) for how, _, below in children)


def log_of(children, run):
    log = []

    async def main():
        asyncio.get_running_loop().call_soon(lambda: [schedule(child, (i,), log) for i, child in enumerate(children)])
        while len(log) < length(children):
            await asyncio.sleep(0.001)

    run(main())
    return log


@settings(deadline=None)
@given(st.lists(callbacks, max_size=4))
def test_what_descends_from_one_event_runs_in_asyncios_order(children):
    assert log_of(children, lambda main: tornado.stm.run(main, threads=3)) == log_of(children, asyncio.run)


@pytest.mark.parametrize("heavy", ["a", "b", "c", "ab"])
def test_chains_of_callbacks_advance_in_step(heavy):
    log = []

    def step(name, i):
        compute(5_000 if name in heavy else 0)
        log.append((i, name))
        if i < 20:
            asyncio.get_running_loop().call_soon(step, name, i + 1)

    async def main():
        asyncio.get_running_loop().call_soon(lambda: [asyncio.get_running_loop().call_soon(step, name, 0) for name in "abc"])
        while len(log) < 63:
            await asyncio.sleep(0.001)

    tornado.stm.run(main(), threads=2)
    assert log == [(i, name) for i in range(21) for name in "abc"]


def log_of_two_runs(children, steps, loop_factory):
    log = []

    async def first():
        for i, child in enumerate(children):
            schedule(child, (i,), log)
        for _ in range(steps):
            await asyncio.sleep(0)

    async def second():
        while len(log) < length(children) + 1:
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop_factory) as running:
        running.run(first())
        log.append("first is over")
        running.run(second())
    return log


@settings(deadline=None)
@given(st.lists(callbacks, max_size=4), st.integers(0, 4))
def test_what_a_loop_leaves_over_when_it_stops_is_what_asyncios_leaves(children, steps):
    """And comes first when it runs again."""
    assert log_of_two_runs(children, steps, lambda: runner.new_loop(3)) == log_of_two_runs(children, steps, None)


def test_what_is_scheduled_before_the_loop_runs_is_in_one_order():
    for _ in range(10):
        log, loop = [], runner.new_loop(3)
        loop.call_soon(log.append, "first")
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(lambda: (compute(200_000), log.append("of a thread")),))
        thread.start()
        thread.join()
        loop.call_at(loop.time() - 1, log.append, "a timer")
        loop.call_later(0.02, loop.stop)
        loop.run_forever()
        loop.close()
        assert log == ["first", "of a thread", "a timer"]


class Slow:
    def __init__(self, n):
        self.n = n

    def __del__(self):
        compute(self.n)


def test_many_wait_for_one_whose_thread_is_not_through():
    """Each of them for the one before it: in a row that is longer than a stack is deep."""
    many, held = 150_000, types.SimpleNamespace()

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(3):
            log = []
            held.slow = Slow(20_000_000)

            def first():
                held.slow = None  # it goes when the transaction is over, before what that schedules is ready
                loop.call_soon(log.append, -1)

            def second():
                for i in range(many):
                    loop.call_soon(log.append, i)

            def both():
                loop.call_soon(first)
                loop.call_soon(second)

            loop.call_later(0.01, both)
            while len(log) < many + 1:
                await asyncio.sleep(0.01)
            assert [number for number in log if number >= 0] == list(range(many)) and -1 in log

    tornado.stm.run(main(), threads=2)


@pytest.mark.parametrize("exception", [SystemExit(3), KeyboardInterrupt()], ids=["SystemExit", "KeyboardInterrupt"])
def test_what_ends_the_loop_by_an_exception_is_the_last_that_runs(exception):
    """Nothing commits after it, though other events run beside it; all of that runs when the loop runs again."""
    for repetition in range(20):
        loop, ended = runner.new_loop(3), types.SimpleNamespace(by=None)
        seen = [[] for _ in range(40)]

        def compute_and_look(i):
            compute(3_000 + 700 * (i % 7))
            seen[i].append(ended.by)

        def end():
            compute(2_000 * (repetition % 5))
            ended.by = exception
            raise exception

        for i in range(40):
            loop.call_later(0.01 + i * 1e-6, compute_and_look, i)
        loop.call_later(0.01 + 20.5e-6, end)
        with pytest.raises(type(exception)):
            loop.run_forever()
        assert [found for found in seen if exception in found] == []
        ended.by = None
        loop.call_later(0.05, loop.stop)
        loop.run_forever()
        loop.close()
        assert seen == [[None]] * 40


def test_what_a_future_wakes_comes_after_what_was_scheduled_before():
    """Also where the one that has scheduled that runs beside the one that sets the future."""
    log, loop = [], runner.new_loop(4)

    def compute_after_scheduling():
        log.append("p")
        loop.call_soon(log.append, "x")
        compute(8_000)

    async def wait(future):
        await future
        log.append("w")

    async def main():
        for _ in range(1_500):
            future = loop.create_future()
            task = loop.create_task(wait(future))
            await asyncio.sleep(0)
            loop.call_soon(lambda: [loop.call_soon(compute_after_scheduling), loop.call_soon(future.set_result, None)])
            await task
            await asyncio.sleep(0)

    loop.run_until_complete(main())
    loop.close()
    assert log == ["p", "x", "w"] * 1_500


@pytest.fixture(params=["same", "other"])
def connections(request):
    """The two ends of what is asked by, and those of what is answered by: the same connection, or another."""
    asking, asked = socket.socketpair()
    told, telling = socket.socketpair() if request.param == "other" else (asking, asked)
    for one in asking, told:
        one.setblocking(False)
    yield asking, asked, told, telling
    for one in asking, asked, told, telling:
        one.close()


@pytest.mark.usefixtures("answers_wait")
@pytest.mark.parametrize("tell", [socket.socket.send, socket.socket.sendall])
@pytest.mark.parametrize("sequential", [0, core.MOST_THREADS])
def test_an_answer_comes_after_what_was_scheduled_with_the_question(sequential, connections, tell):
    """By whatever connection it comes, and however soon."""
    log, held, repetitions = [], types.SimpleNamespace(), 30
    asking, asked, told, telling = connections

    def answer():
        while data := asked.recv(1):
            telling.send(data)

    async def main():
        loop = asyncio.get_running_loop()

        def ask():
            tell(asking, b"?")
            held.slow = None  # it goes when the transaction is over, before what that schedules is ready
            loop.call_soon(log.append, "scheduled")

        def hear():
            told.recv(1)
            log.append("answered")

        loop.add_reader(told, hear)
        for repetition in range(1, repetitions + 1):
            held.slow = Slow(400_000)
            loop.call_later(0.001, ask)
            while len(log) < 2 * repetition:
                await asyncio.sleep(0.001)
        loop.remove_reader(told)

    answers, before = threading.Thread(target=answer), core.set_sequential(sequential)
    answers.start()
    try:
        tornado.stm.run(main(), threads=3)
    finally:
        core.set_sequential(before)
        asking.close()
        answers.join()
    assert log == ["scheduled", "answered"] * repetitions


def test_what_a_reader_wakes_comes_after_the_writer_that_is_called_with_it():
    log, repetitions = [], 30

    async def main():
        loop = asyncio.get_running_loop()

        async def wait(future):
            await future
            log.append("woken")

        def hear(ours, future):
            log.append("reads")
            loop.remove_reader(ours)
            future.set_result(None)

        def write(ours):
            log.append("writes")
            loop.remove_writer(ours)

        for _ in range(repetitions):
            future, ours = loop.create_future(), socket_end()
            task = loop.create_task(wait(future))
            await asyncio.sleep(0)
            with ours:
                loop.add_reader(ours, hear, ours, future)
                loop.add_writer(ours, write, ours)
                await task

    tornado.stm.run(main(), threads=2)
    assert log == ["reads", "writes", "woken"] * repetitions


@pytest.mark.usefixtures("answers_wait")
@pytest.mark.parametrize("sequential", [0, core.MOST_THREADS])
def test_a_new_reader_or_writer_is_called_after_what_was_scheduled_with_it(sequential):
    log, held, repetitions = [], types.SimpleNamespace(), 30
    ours, theirs = socket.socketpair()
    theirs.send(b"is there")

    async def main():
        loop = asyncio.get_running_loop()

        def ask(add, remove):
            def hear():
                log.append("told")
                remove(ours)

            add(ours, hear)
            held.slow = None  # as above
            loop.call_soon(log.append, "scheduled")

        for repetition in range(1, repetitions + 1):
            for i, (add, remove) in enumerate([(loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer)]):
                held.slow = Slow(400_000)
                loop.call_later(0.001, ask, add, remove)
                while len(log) < 4 * (repetition - 1) + 2 * (i + 1):
                    await asyncio.sleep(0.001)

    before = core.set_sequential(sequential)
    try:
        tornado.stm.run(main(), threads=3)
    finally:
        core.set_sequential(before)
        ours.close(), theirs.close()
    assert log == ["scheduled", "told"] * 2 * repetitions


def heard_or_a_minute_later():
    """An event, and what a callback can ask that computes until it is set, or for too long."""
    heard, until = threading.Event(), time.monotonic() + 60
    return heard, trusted(lambda: heard.is_set() or time.monotonic() > until)


def test_what_does_not_return_keeps_no_answer_waiting(connections):
    """Though it was scheduled with the question, and expected to be short."""
    log = []
    asking, asked, told, telling = connections
    heard, is_heard = heard_or_a_minute_later()

    async def main():
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def ask():
            asking.send(b"?")
            loop.call_soon(compute)

        def compute():
            while not is_heard():
                pass
            log.append("computed")
            over.set()

        def hear():
            told.recv(1)
            log.append("answered")
            core.defer(heard.set)

        loop.add_reader(told, hear)
        loop.call_soon(ask)
        await over.wait()
        loop.remove_reader(told)

    answers = threading.Thread(target=lambda: telling.send(asked.recv(1)))
    answers.start()
    tornado.stm.run(main(), threads=3)
    answers.join()
    assert log == ["answered", "computed"]


def pipe_end():
    reading, writing = os.pipe()
    os.write(writing, b"data")
    os.close(writing)
    return open(reading, "rb", 0)


def socket_end():
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(b"data")
    return ours


class Told(asyncio.Protocol):
    """What it is told before and after the coroutine that has made it has gone on."""

    def __init__(self):
        self.log, self.over = [], asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        compute(40_000)

    def data_received(self, data):
        self.log.append(data)

    def connection_lost(self, exception):
        self.over.set_result(None)


async def connect_pipe(loop):
    return await loop.connect_read_pipe(Told, pipe_end())


async def connect_socket(loop):
    return await loop.create_connection(Told, sock=socket_end())


async def keep_busy():
    while True:
        compute(6_000)
        await asyncio.sleep(0)


@pytest.mark.parametrize("connect", [connect_pipe, connect_socket])
def test_who_waits_for_a_connection_goes_on_before_its_data_come(connect):
    """On asyncio's loop it is ready before the kernel is asked, however much is there already."""
    logs = []

    async def main():
        loop = asyncio.get_running_loop()
        others = [asyncio.create_task(keep_busy()) for _ in range(2)]
        for _ in range(150):
            transport, protocol = await connect(loop)
            protocol.log.append("goes on")
            await protocol.over
            transport.close()
            logs.append(protocol.log)
        for other in others:
            other.cancel()

    tornado.stm.run(main(), threads=3)
    assert logs == [["goes on", b"data"]] * 150


def test_what_does_not_return_keeps_nobody_from_what_he_begins_to_read():
    """Though it was scheduled beside that, and expected to be short."""
    log, reading = [], socket_end()
    heard, is_heard = heard_or_a_minute_later()

    async def main():
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def compute_long():
            while not is_heard():
                pass
            log.append("computed")
            over.set()

        def hear():
            loop.remove_reader(reading)
            log.append("heard")
            core.defer(heard.set)

        loop.call_soon(lambda: [loop.call_soon(loop.add_reader, reading, hear), loop.call_soon(compute_long)])
        await over.wait()

    with reading:
        tornado.stm.run(main(), threads=3)
    assert log == ["heard", "computed"]
