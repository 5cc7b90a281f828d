"""Loops in several threads: while one waits, the others go on, and nothing of its own does."""

import asyncio
import concurrent.futures
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from interpreters import needs_engine

needs_engine()

import tornado.stm
from progress import TIMEOUT
from tornado.stm import core
from tornado.stm.loop.eventloop import TransactionalEventLoop


@pytest.fixture
def other():
    """A loop that runs in another thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        loop = TransactionalEventLoop(2)
        ran = executor.submit(loop.run_forever)
        yield loop
        loop.call_soon_threadsafe(loop.stop)
        ran.result(TIMEOUT)
        loop.close()


async def after(seconds, result):
    await asyncio.sleep(seconds)
    return result


def by_future(other):
    return asyncio.run_coroutine_threadsafe(after(0.01, "done"), other).result(TIMEOUT)


def by_event(other):
    event = threading.Event()
    other.call_soon_threadsafe(event.set)
    return event.wait(TIMEOUT) and "done"


def by_lock(other):
    lock = threading.Lock()
    lock.acquire()
    other.call_soon_threadsafe(lock.release)
    return lock.acquire(timeout=TIMEOUT) and "done"


def by_bare_lock(other):
    lock = threading.Lock()
    lock.acquire()
    other.call_soon_threadsafe(lock.release)
    with lock:
        return "done"


def by_condition(other):
    condition, seen = threading.Condition(threading.RLock()), []

    def tell():
        with condition:
            seen.append("done")
            condition.notify()

    with condition:
        other.call_soon_threadsafe(tell)
        assert condition.wait_for(lambda: seen, TIMEOUT)
    return seen[0]


def by_simple_queue(other):
    results = queue.SimpleQueue()
    other.call_soon_threadsafe(results.put, "done")
    return results.get(timeout=TIMEOUT)


def by_queue(other):
    results = queue.Queue()
    other.call_soon_threadsafe(results.put, "done")
    return results.get(timeout=TIMEOUT)


def by_sleeping(other):
    seen, give_up = [], time.monotonic() + TIMEOUT
    other.call_soon_threadsafe(seen.append, "done")
    while not seen and time.monotonic() < give_up:
        time.sleep(0.001)
    return seen[0]


def by_thread(other):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(tornado.stm.run(after(0.01, "done"), threads=1)))
    thread.start()
    thread.join(TIMEOUT)
    return seen[0]


def by_executor(other):
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: tornado.stm.run(after(0.01, "done"), threads=1)).result(TIMEOUT)


def by_socket(other):
    async def answer(reader, writer):
        writer.write((await reader.readexactly(2)) + b"ne")
        await writer.drain()
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()

    server, address = asyncio.run_coroutine_threadsafe(serve(), other).result(TIMEOUT)
    with socket.create_connection(address, TIMEOUT) as client:
        client.sendall(b"do")
        received = b""
        while data := client.recv(100):
            received += data
    other.call_soon_threadsafe(server.close)
    return received.decode()


def by_asking(other):
    """Calls that do not wait, again and again."""
    lock = threading.Lock()
    lock.acquire()
    other.call_soon_threadsafe(lock.release)
    give_up = time.monotonic() + TIMEOUT
    while not lock.acquire(timeout=0):
        assert time.monotonic() < give_up
    return "done"


def by_select(other):
    ours, theirs = socket.socketpair()
    other.call_soon_threadsafe(theirs.send, b"done")
    with ours, theirs:
        ready = select.select([theirs, ours], [], [], TIMEOUT)
        assert ready == ([ours], [], [])
        return ours.recv(10).decode()


def by_pipe(other):
    reader, writer = os.pipe()
    other.call_soon_threadsafe(os.write, writer, b"done\n")
    with open(reader) as file, open(writer, "wb"):
        return file.readline().strip()


def by_program(other):
    """What it prints, the other loop serves."""
    async def answer(reader, writer):
        writer.write(b"done")
        writer.close()

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()

    server, address = asyncio.run_coroutine_threadsafe(serve(), other).result(TIMEOUT)
    client = f"import socket; print(socket.create_connection({address}, {TIMEOUT}).recv(10).decode(), end='')"
    answered = subprocess.check_output([sys.executable, "-S", "-c", client], text=True)
    other.call_soon_threadsafe(server.close)
    return answered


WAYS = [
    by_future, by_event, by_lock, by_bare_lock, by_condition, by_simple_queue, by_queue, by_sleeping, by_thread, by_executor, by_socket,
    by_asking, by_select, by_pipe, by_program,
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_what_one_waits_for_another_does(way, first, threads, other):
    """In the first step, which runs alone from its beginning, and in one that runs among others."""
    told = []

    async def main():
        if not first:
            for _ in range(20):
                await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(told.append, "a callback of its own")
        told.append(way(other))
        told.append("the end of the step")
        await asyncio.sleep(0.01)

    tornado.stm.run(main(), threads=threads)
    assert told == ["done", "the end of the step", "a callback of its own"]


lock, taken, items, ended = threading.Lock(), threading.Lock(), queue.SimpleQueue(), threading.Thread(target=int)
taken.acquire()
ended.start()
ended.join()


def take_and_give_back(**how):
    assert lock.acquire(**how)
    lock.release()


def get_one():
    items.put(1)
    return items.get(timeout=TIMEOUT)


def get_none():
    with pytest.raises(queue.Empty):
        items.get(False)


def start_a_thread():
    threading.Thread(target=int).start()


class SlowlySet(threading.Event):
    """The thread has its lock when the one that starts it looks, if it can have got as far as that in a moment."""

    def __init__(self):
        super().__init__()
        self.inside, self.looks = threading.Lock(), threading.Lock()
        self.inside.acquire()
        self.looks.acquire()

    def set(self):
        with self._cond:
            self.inside.release()
            self.looks.acquire()
            time.sleep(0.02)
            self._flag = True
            self._cond.notify_all()

    def wait(self, timeout=None):
        core.await_lock(self.inside, 0.02)
        self.looks.release()
        return super().wait(timeout)


def start_a_thread_that_begins_slowly():
    thread = threading.Thread(target=int)
    thread._started = SlowlySet()
    thread.start()


def submit_to_a_new_executor():
    concurrent.futures.ThreadPoolExecutor(1).submit(int)


class Asks:
    """Tells its descriptor, and what it does meanwhile is part of the step."""

    def __init__(self, sock, function):
        self.sock, self.function = sock, function

    def fileno(self):
        self.function()
        return self.sock.fileno()


NO_WAITS = {
    "free": lambda: take_and_give_back(), "free for a time": lambda: take_and_give_back(timeout=TIMEOUT),
    "not blocking": lambda: taken.acquire(blocking=False), "no time": lambda: taken.acquire(timeout=0), "an item": get_one, "no item": get_none,
    "ended thread": lambda: ended.join(), "select": lambda: select.select([], [], [], 0), "poll": lambda: select.poll().poll(0),
    "a thread's start": start_a_thread, "an executor's first": submit_to_a_new_executor,
}  # fmt: skip


def count_beside_another(step, other, n=100):
    """Two loops add to a counter, which one of them reads and writes in the same step, around that; returns what is missing at the end."""
    counter = {"n": 0}

    async def add():
        for _ in range(n):
            core.exclusive("to be stood in for")
            before = counter["n"]
            step()
            counter["n"] = before + 1
            await asyncio.sleep(0)

    async def main():
        added = asyncio.run_coroutine_threadsafe(add(), other)
        await add()
        await asyncio.wrap_future(added)

    tornado.stm.run(main(), threads=2)
    return 2 * n - counter["n"]


@pytest.mark.parametrize("call", NO_WAITS)
def test_what_does_not_wait_keeps_the_step_whole(call, other):
    assert count_beside_another(NO_WAITS[call], other) == 0


def test_a_thread_that_begins_slowly_keeps_the_step_whole(other):
    assert count_beside_another(start_a_thread_that_begins_slowly, other, 5) == 0


def test_what_is_asked_of_the_program_is_part_of_the_step(other):
    ours, theirs = socket.socketpair()
    theirs.send(b"ready")
    inside = []

    def ask():
        inside.append(core.in_transaction())

    with ours, theirs:
        assert count_beside_another(lambda: select.select([Asks(ours, ask)], [], [], TIMEOUT), other) == 0
    assert set(inside) == {True}


@pytest.mark.parametrize("threads", [1, 2])
def test_finalizers_wait_for_other_loops(threads):
    """As that of a portal does, which stops its loop and joins its thread."""
    joined = []

    class Portal:
        def __init__(self):
            self.loop = TransactionalEventLoop(2)
            self.thread = threading.Thread(target=self.loop.run_forever)
            self.thread.start()

        def __del__(self):
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(TIMEOUT)
            joined.append(not self.thread.is_alive())
            self.loop.close()

    async def main():
        for _ in range(10):
            portal = Portal()
            assert asyncio.run_coroutine_threadsafe(after(0, "done"), portal.loop).result(TIMEOUT) == "done"
            del portal
            await asyncio.sleep(0.001)

    tornado.stm.run(main(), threads=threads)
    core.settle()
    assert joined == [True] * 10


@pytest.mark.parametrize("threads", [1, 2])
def test_one_ends_while_another_waits_for_that(threads):
    async def main():
        for _ in range(20):
            loop = TransactionalEventLoop(2)
            thread = threading.Thread(target=loop.run_forever)
            thread.start()
            assert asyncio.run_coroutine_threadsafe(after(0, "done"), loop).result(TIMEOUT) == "done"
            loop.call_soon_threadsafe(loop.stop)
            thread.join(TIMEOUT)
            assert not thread.is_alive()
            loop.close()
            await asyncio.sleep(0)

    tornado.stm.run(main(), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_both_wait_for_each_other_in_turns(threads, other):
    """A step of the one waits for a step of the other one, many times, and both change the same objects meanwhile."""
    shared, n = {"steps": 0}, 50

    async def step(expected):
        shared["steps"] += 1
        return shared["steps"] == expected

    async def main():
        right = []
        for i in range(n):
            right.append(asyncio.run_coroutine_threadsafe(step(2 * i + 1), other).result(TIMEOUT))
            shared["steps"] += 1
            await asyncio.sleep(0)
        return right

    assert tornado.stm.run(main(), threads=threads) == [True] * n
    assert shared == {"steps": 2 * n}


def test_each_of_many_waits_for_the_other_loop(other):
    """Tasks on several threads; a step is whole to the other tasks of its loop though it waits in its midst."""
    inside, worst = [], []

    async def task(i):
        for k in range(5):
            inside.append(i)
            worst.append(len(inside))
            assert asyncio.run_coroutine_threadsafe(after(0, (i, k)), other).result(TIMEOUT) == (i, k)
            inside.remove(i)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*(task(i) for i in range(8)))

    tornado.stm.run(main(), threads=3)
    assert (inside, worst) == ([], [1] * 40)


def test_several_of_them_run_alone_and_wait(other):
    """What waits and runs alone keeps nobody of another loop from running alone, or from waiting."""

    async def busy(i):
        core.exclusive("to see whether it can")
        time.sleep(0.001)
        return i

    async def main():
        return [asyncio.run_coroutine_threadsafe(busy(i), other).result(TIMEOUT) for i in range(20)]

    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert list(executor.map(lambda _: tornado.stm.run(main(), threads=2), range(2))) == [list(range(20))] * 2


@pytest.mark.parametrize("threads", [1, 2])
def test_an_rlock_that_a_coroutine_gives_back_whole_while_it_waits(threads):
    """As aiologic's conditions do: whichever thread it goes on on."""
    lock = threading.RLock()

    async def main():
        loop, items, waiters = asyncio.get_running_loop(), [], []

        def put():
            for n in range(5):
                with lock:
                    items.append(n)
                    if waiters:
                        loop.call_soon_threadsafe(waiters.pop().set_result, None)

        async def get():
            with lock:
                while not items:
                    waiter = loop.create_future()
                    waiters.append(waiter)
                    state = lock._release_save()  # from here on it may be taken out
                    try:
                        await waiter
                    finally:
                        lock._acquire_restore(state)
                return items.pop(0)

        async def get_all():
            return [await get() for _ in range(5)]

        return [(await asyncio.gather(loop.run_in_executor(None, put), get_all()))[1] for _ in range(20)]

    assert tornado.stm.run(main(), threads=threads) == [list(range(5))] * 20


def test_in_debug_mode_one_that_is_called_from_another_says_so(other):
    assert asyncio.run_coroutine_threadsafe(after(0, "runs"), other).result(TIMEOUT) == "runs"  # else it is nobody's thread's yet
    other.set_debug(True)

    async def main():
        asyncio.get_running_loop().set_debug(True)
        asyncio.get_running_loop().call_soon(int)
        for call in other.call_soon, lambda function: other.call_later(0, function):
            with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
                call(int)
        other.call_soon_threadsafe(int)

    tornado.stm.run(main(), threads=2)


def test_one_whose_sockets_have_been_finalized_is_closed():
    loop = TransactionalEventLoop(1)
    loop._ssock.close()
    loop.close()
    assert loop.is_closed()


@pytest.mark.parametrize("make", ["asyncio.new_event_loop()", "asyncio.SelectorEventLoop()"])
def test_what_is_running_is_a_loop_of_the_class_that_programs_name(make):
    program = f"""
import asyncio, sys, tornado.stm
tornado.stm.install(2)
async def main():
    return isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
with asyncio.Runner(loop_factory=lambda: {make}) as runner:
    print(runner.run(main()), asyncio.run(main()))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT)
    assert (result.stdout, result.stderr) == ("True True\n", "")


def raise_it():
    signal.raise_signal(signal.SIGUSR1)


#: {what a step of a loop in another thread does: what comes of it, as on upstream}
WITH_SIGNALS = {
    "kill": (lambda: os.kill(os.getpid(), signal.SIGUSR1), None),
    "raise": (raise_it, None),
    "pthread_kill": (lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1), None),
    "signal": (lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL), ValueError),
    "wakeup": (lambda: signal.set_wakeup_fd(-1), ValueError),
    "handler": (lambda: asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print), RuntimeError),
}


@pytest.mark.parametrize("name", WITH_SIGNALS)
def test_a_loop_beside_the_main_thread_sends_signals_and_handles_none(name, other):
    do, error = WITH_SIGNALS[name]
    handled = threading.Event()

    async def step():
        try:
            do()
        except Exception as e:
            return type(e)

    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    try:
        told = [asyncio.run_coroutine_threadsafe(step(), other).result(TIMEOUT) for _ in range(3)]
        assert told == [error] * 3
        assert handled.wait(0 if error else TIMEOUT) is (error is None)
    finally:
        signal.signal(signal.SIGUSR1, before)
