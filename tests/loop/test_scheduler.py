"""The threads of a loop, and what becomes of what they are given."""

import _thread
import asyncio
import contextlib
import inspect
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tornado.stm
from interpreters import needs_engine
from tornado.stm import core
from tornado.stm.core import trusted

needs_engine()

from tornado.stm.loop.eventloop import TransactionalEventLoop
from tornado.stm.program import runner


@pytest.fixture
def transactional():
    """Transactions can be rolled back though nobody else has anything to do."""
    before = core.set_sequential(0)
    yield
    core.set_sequential(before)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False), theirs.setblocking(False)
        yield ours, theirs


INTERRUPTED = """
import asyncio, random, signal, socket, sys
import tornado.stm
from tornado.stm.program.runner import new_loop

class Interrupted(Exception):
    pass

def interrupt(number, frame):
    raise Interrupted

def read(end):
    counts[end] += 1
    end.send(end.recv(10))

async def go_on():
    while True:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        counts[go_on] += 1
        await asyncio.sleep(0.0001)

async def count_on():
    before = dict(counts)
    while any(counts[who] < before[who] + 20 for who in counts):
        await asyncio.sleep(0.001)

signal.signal(signal.SIGALRM, interrupt)
chance = random.Random(int(sys.argv[1]))
loop, ends = new_loop(2), socket.socketpair()
counts = {who: 0 for who in (go_on, *ends)}
for end in ends:
    end.setblocking(False)
    loop.add_reader(end, read, end)
ends[0].send(b"x")
going = loop.create_task(go_on())
interrupted = 0
for _ in range(1500):
    loop.call_soon(signal.setitimer, signal.ITIMER_REAL, chance.uniform(1e-5, 2e-3))
    try:
        loop.run_forever()
    except Interrupted:
        interrupted += 1
loop.run_until_complete(count_on())
going.cancel()
loop.run_until_complete(asyncio.gather(going, return_exceptions=True))
print(interrupted)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_signal_handler_may_raise_at_any_moment(seed):
    """The loop ends each time, and has lost no event, callback or timer when it runs again."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, str(seed)], capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1500\n", "")


BESIDE = """
import asyncio, os, random, signal, sys, threading, time
import tornado.stm
from tornado.stm import core
from tornado.stm.core import trusted

chance, asked = random.Random(int(sys.argv[1])), threading.Semaphore(0)
in_transactions = 0

def beside():
    while asked.acquire():
        time.sleep(chance.uniform(0, 1e-3))
        os.kill(os.getpid(), signal.SIGUSR1)

@trusted  # what it counts in a transaction is not rolled back with that
def count():
    global in_transactions
    in_transactions += core.in_transaction()

async def main():
    def handler(number, frame):
        count()
        loop.call_soon_threadsafe(came.set)

    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGUSR1, handler)
    for _ in range(500):
        came = asyncio.Event()
        asked.release()
        await asyncio.sleep(0)  # nothing is computed before what is beside the loop has been told
        end = time.perf_counter() + chance.uniform(0, 1e-3)
        while time.perf_counter() < end:
            pass
        await came.wait()

threading.Thread(target=beside, daemon=True).start()  # it blocks no signals
tornado.stm.run(main(), threads=2)
print("in transactions:", in_transactions)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_signal_that_another_thread_gets_is_handled_between_transactions(seed):
    """All come: also those while the main thread is about to wait for events."""
    done = subprocess.run([sys.executable, "-c", BESIDE, str(seed)], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "in transactions: 0\n", "")


FORKS = """
import asyncio, os, signal, time
import tornado.stm

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        os.write(writes, b"x")
        while True:  # one that comes just before a sleep is heard after it, as in plain Python
            time.sleep(0.1)
    os.read(reads, 1)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print("status", tornado.stm.run(main(), threads=1))
"""


def test_the_child_of_a_fork_hears_the_signals_that_it_handles():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=100)
    assert done.stdout == "status 7\n", (done.stdout, done.stderr)


def test_what_empties_an_outbox_may_schedule_something(pair):
    """That is code of Python, which runs while the dispatcher is at work; so is any finalizer that runs in there."""
    ran = []

    class Outbox:
        def __init__(self, loop, fd):
            self.loop, self.fd, self.left = loop, fd, 3

        def flush(self):
            self.left -= 1
            self.loop._dispatcher.submit(asyncio.Handle(ran.append, (self.left,), self.loop))
            return not self.left

    for member in vars(Outbox).values():
        if hasattr(member, "__code__"):
            trusted(member)

    async def main():
        loop = asyncio.get_running_loop()
        core.exclusive("a test")
        assert loop._dispatcher.flush_later(Outbox(loop, pair[0].fileno()))
        while len(ran) < 3:
            await asyncio.sleep(0)

    tornado.stm.run(asyncio.wait_for(main(), 100), threads=2)
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.parametrize("direction", ("reader", "writer"))
def test_nothing_is_told_to_what_an_aborted_attempt_wanted_to_hear(transactional, pair, direction):
    ours, theirs = pair
    theirs.send(b"x")
    heard, attempts = [], []

    @trusted
    def begin(loop):
        attempts.append(not core.is_exclusive())
        loop._dispatcher.look()

    @trusted
    def abort_the_first():
        if len(attempts) == 1:
            raise core.Abort

    def listen(loop):
        begin(loop)
        getattr(loop, f"add_{direction}")(ours, heard.append, len(attempts))
        abort_the_first()

    async def main():
        loop = asyncio.get_running_loop()
        add, remove = getattr(loop, f"add_{direction}"), getattr(loop, f"remove_{direction}")
        for _ in range(100):  # until what is made is known to be the attempt's own
            descriptor = os.dup(theirs.fileno())
            add(descriptor, print)
            remove(descriptor)
            os.close(descriptor)
        loop.call_soon(listen, loop)
        while not heard:
            await asyncio.sleep(0)
        remove(ours)

    tornado.stm.run(main(), threads=1)
    assert attempts == [True, True]
    assert set(heard) == {2}


def by_call_soon(loop, callbacks):
    for callback in callbacks:
        loop.call_soon(callback)


def by_future(loop, callbacks):
    future = loop.create_future()
    for callback in callbacks:
        future.add_done_callback(lambda _, callback=callback: callback())
    future.set_result(None)


def by_timers(loop, callbacks):
    """Of one moment."""
    when = loop.time() + 0.01
    for callback in callbacks:
        loop.call_at(when, callback)


@pytest.mark.parametrize("early", [False, True], ids=["while it runs", "before"])
@pytest.mark.parametrize("schedule", [by_call_soon, by_future, by_timers])
def test_what_a_callback_schedules_comes_after_what_was_scheduled_beside_it(transactional, schedule, early):
    """asyncio: callbacks are called in the order in which they are registered."""
    order, child_ran = [], threading.Event()

    @trusted
    def note(name):
        core.defer(order.append, name)

    @trusted
    def wait_for_the_child():
        child_ran.wait(0.1)  # only where that comes too early

    def child():
        note("child")
        core.defer(child_ran.set)

    def first():
        note("first")
        asyncio.get_running_loop().call_soon(child)

    def second():
        wait_for_the_child()
        note("second")

    def third():
        note("third")

    async def main():
        if not early:
            schedule(asyncio.get_running_loop(), [first, second, third])
        while len(order) < 4:
            await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=lambda: runner.new_loop(3)) as running:
        if early:
            schedule(running.get_loop(), [first, second, third])
        running.run(asyncio.wait_for(main(), TIMEOUT))
    assert order == ["first", "second", "third", "child"]


@pytest.mark.parametrize("threads", [1, 2])
def test_timeouts_of_one_moment_have_all_expired(threads):
    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(50):
            moment = loop.time() + 0.001
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(moment) as outer, asyncio.timeout_at(moment) as inner:
                    await asyncio.sleep(10)
            assert outer.expired() and inner.expired()

    tornado.stm.run(main(), threads=threads)


def test_what_the_kernel_has_told_is_not_for_the_reader_that_comes_next(pair):
    """There may be nothing left, or it may be another socket of that number."""
    ours, theirs = pair
    called = []

    @trusted
    def tell(loop):
        os.write(theirs.fileno(), b"x")
        loop._dispatcher.look()

    async def main():
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, called.append, "first")
        await asyncio.sleep(0)
        tell(loop)
        loop.remove_reader(ours)
        assert ours.recv(10) == b"x"
        loop.add_reader(ours, called.append, "second")
        for _ in range(10):
            await asyncio.sleep(0)
        assert called == []
        theirs.send(b"y")
        while not called:
            await asyncio.sleep(0)
        loop.remove_reader(ours)

    tornado.stm.run(asyncio.wait_for(main(), TIMEOUT), threads=1)
    assert set(called) == {"second"}


def test_what_waits_to_be_sent_is_sent_when_the_socket_gets_its_first_reader(pair):
    ours, theirs = pair
    data = bytes(5_000_000)

    async def main():
        loop = asyncio.get_running_loop()
        sent = 0
        while sent < len(data):  # until neither the kernel nor the loop takes more
            try:
                sent += ours.send(data[sent:])
            except BlockingIOError:
                break
            await asyncio.sleep(0)
        answer = asyncio.ensure_future(loop.sock_recv(ours, 100))
        await asyncio.sleep(0)
        received = 0
        while received < sent:
            received += len(await loop.sock_recv(theirs, 100_000))
        await loop.sock_sendall(theirs, b"answer")
        assert await answer == b"answer"

    tornado.stm.run(asyncio.wait_for(main(), 100), threads=1)


def test_a_loop_is_closed_with_a_long_row_of_callbacks_that_never_ran():
    """Each is the predecessor of the next, and they must not drop each other one inside the other."""
    loop = TransactionalEventLoop(2)

    def schedule():
        loop.stop()
        for _ in range(100_000):
            loop.call_soon(len, ())

    loop.call_soon(schedule)
    loop.run_forever()
    assert len(loop._dispatcher) == 100_000
    loop.close()
    assert len(loop._dispatcher) == 0


# ---- Who polls, and who is called -------------------------------------------------------------------------------------


class Echo:
    """Sends back what it reads from one end of each pair; `note` is told when a transaction that has done so commits."""

    def __init__(self, ends, note):
        self.note = note
        self.loop = asyncio.get_running_loop()
        for end in ends:
            end.setblocking(False)
            self.loop.add_reader(end, self.read, end)

    def read(self, end):
        data = end.recv(100)
        core.defer(self.note, data)
        if data == b"wait":
            wait_for_another()
        end.send(data)


served = _thread.allocate_lock()  # given back when the other connection has been served


@trusted
def wait_for_another():
    assert served.acquire(timeout=60), "nobody served the other connection meanwhile"


def with_client(client, pairs, note, threads):
    """Run client(*ends) on a thread beside a loop that echoes at the other ends."""
    async def main():
        echo = Echo([ours for ours, _ in pairs], note)
        await asyncio.to_thread(client, *(theirs for _, theirs in pairs))
        for ours, _ in pairs:
            echo.loop.remove_reader(ours)

    tornado.stm.run(main(), threads=threads)


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(2)]
    yield made
    for each in itertools.chain(*made):
        each.close()


def exchange(end, data):
    end.sendall(data)
    assert end.recv(100) == data


def test_what_was_short_may_take_long_and_others_are_served_meanwhile(transactional, pairs):
    served.acquire()
    order = []

    @trusted
    def note(data):
        order.append(data)
        if data == b"after":
            served.release()

    def client(first, second):
        for i in range(300):
            exchange(first, b"%d" % i)
        first.sendall(b"wait")
        exchange(second, b"after")
        assert first.recv(100) == b"wait"

    with_client(client, pairs, note, threads=2)
    assert order[-2:] == [b"after", b"wait"]
    served.release()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_thread_that_polls_ends_another_one_polls(none_short, pairs):
    """An error of the system's ends a helper's round; it may be the one that polls, while the others rest.

    Were anything short, one thread might do all of it, and poll.  So might the main thread: a step keeps it, whichever of three that is.
    """
    pairs += [socket.socketpair() for _ in range(2)]
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    kept, ended = threading.Event(), threading.Event()

    @trusted
    def fail():
        with contextlib.suppress(BlockingIOError):  # the main thread has looked at the same time
            os.read(reads, 1)
        if _thread.get_ident() != threading.main_thread().ident:
            raise OSError("a test")

    @trusted
    def keep_the_main_thread(data):
        """And the helpers, until it has been its turn."""
        if data == b"keep":
            if _thread.get_ident() == threading.main_thread().ident:
                kept.set()
                ended.wait(60)
            else:
                kept.wait(60)

    def is_helper(comm):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
            return comm.read_text().startswith("tornado-stm-")

    def helpers():
        return [each for each in Path("/proc/self/task").glob("*/comm") if is_helper(each)]

    def client(*ends):
        *three, last = ends
        for end in ends:
            end.settimeout(60)
        try:
            for end in three:
                end.sendall(b"keep")
            assert kept.wait(60), "the main thread has read nothing"
            os.write(writes, b"x")
            until = time.monotonic() + 60
            while len(helpers()) == 2:
                assert time.monotonic() < until, "none has polled"
                time.sleep(0.001)
            for _ in range(3):
                exchange(last, b"and again")
        finally:
            ended.set()
        for end in three:
            assert end.recv(100) == b"keep"

    async def main():
        dispatcher = asyncio.get_running_loop()._dispatcher
        echo = Echo([ours for ours, _ in pairs], keep_the_main_thread)
        dispatcher.add_special(reads, fail)
        await asyncio.to_thread(client, *(theirs for _, theirs in pairs))
        dispatcher.remove_special(reads)
        for ours, _ in pairs:
            echo.loop.remove_reader(ours)

    try:
        tornado.stm.run(main(), threads=3)
    finally:
        os.close(reads)
        os.close(writes)


TIMEOUT = 60  # seconds


def cancelled_by_an_aborted_attempt(delay, meanwhile):
    """Does a timer come that only an attempt has cancelled which is rolled back, after ``meanwhile(loop, timers, done)`` has called done()?"""
    attempts, fired, seen = [], [], []

    def cancel_first(timer):
        if begins():
            timer.cancel()
            fall()

    @trusted
    def begins():
        attempts.append(not core.is_exclusive())
        return len(attempts) == 1

    @trusted
    def fall():
        end = time.monotonic() + TIMEOUT
        while not (seen or core.is_unwinding()) and time.monotonic() < end:
            time.sleep(0.001)
        raise core.Abort

    async def main():
        loop = asyncio.get_running_loop()
        others = [loop.call_later(1000, print) for _ in range(300)]
        timer = loop.call_later(delay, fired.append, True)
        threading.Thread(target=loop.call_soon_threadsafe, args=(cancel_first, timer)).start()  # so main() need not come after it
        while not begun():
            await asyncio.sleep(0.001)
        meanwhile(loop, others, trusted(lambda: core.defer(seen.append, True)))
        end = loop.time() + TIMEOUT
        while not fired and loop.time() < end:
            await asyncio.sleep(0.01)
        for other in others:
            other.cancel()

    @trusted
    def begun():
        return attempts

    tornado.stm.run(main(), threads=4)
    assert attempts == [True, True]
    return fired == [True]


def test_a_timer_is_due_that_only_an_aborted_attempt_has_cancelled(transactional):
    def let_a_later_one_come(loop, others, done):
        loop.call_later(0.05, done)

    assert cancelled_by_an_aborted_attempt(0.02, let_a_later_one_come)


def test_a_timer_is_not_forgotten_that_only_an_aborted_attempt_has_cancelled(transactional):
    def cancel_most(loop, others, done):
        for other in others[:250]:
            other.cancel()
        done()

    assert cancelled_by_an_aborted_attempt(0.3, cancel_most)


def test_methods_take_the_arguments_that_asyncios_take():
    differ = {}
    for name in dir(asyncio.SelectorEventLoop):
        ours, theirs = (getattr(loop, name) for loop in (TransactionalEventLoop, asyncio.SelectorEventLoop))
        if callable(ours) and ours is not theirs and inspect.signature(ours) != inspect.signature(theirs):
            differ[name] = str(inspect.signature(ours))
    assert set(differ) == {"__init__"}, differ


def test_threads_of_the_executor_are_waited_for_so_long():
    """A warning says so, and where the program waits."""
    ended = threading.Event()

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(int)
        await loop.shutdown_default_executor(timeout=TIMEOUT)
        loop._default_executor, loop._executor_shutdown_called = None, False
        waiting = loop.run_in_executor(None, ended.wait, TIMEOUT)
        with pytest.warns(RuntimeWarning, match="within 0.01 seconds") as warned:
            await loop.shutdown_default_executor(0.01)
        ended.set()
        await waiting
        return [warning.filename for warning in warned]

    assert tornado.stm.run(main(), threads=2) == [__file__]


@trusted
def wait_for(condition, seconds=TIMEOUT):
    """In the midst of an attempt, too."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)


def test_a_thread_may_ask_for_a_callback_that_was_cancelled_in_the_midst_of_its_first_attempt():
    begun, attempts, handles, ran, told = [], [], [], [], []

    def cancel():
        wait_for(trusted(lambda: begun.append(True) or (attempts and handles)))
        handles[0].cancel()

    def call_back():
        wait_for(trusted(lambda: attempts.append(True) or core.is_unwinding()))
        ran.append(True)

    async def main():
        loop = asyncio.get_running_loop()
        older = threading.Thread(target=core.Transaction(cancel, ()).run)
        older.start()
        while not begun:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(lambda: handles.append(loop.call_soon_threadsafe(call_back)))
        await asyncio.to_thread(older.join)
        asking = threading.Thread(target=lambda: told.append(handles[0].cancelled()), daemon=True)
        asking.start()
        await asyncio.to_thread(asking.join, TIMEOUT)

    tornado.stm.run(main(), threads=4)
    assert attempts
    assert told == [not ran]


def test_what_a_thread_has_cancelled_stays_so_though_an_attempt_that_had_cancelled_it_is_rolled_back():
    loop = TransactionalEventLoop(2)
    attempts, ran, cancelled = [], [], []
    handle = loop.call_soon_threadsafe(ran.append, True)

    def cancel_then():
        wait_for(lambda: attempts)
        handle.cancel()
        cancelled.append(True)

    def cancel_first():
        if begins():
            handle.cancel()
            fall()

    @trusted
    def begins():
        return not attempts

    @trusted
    def fall():
        attempts.append("is to be rolled back")
        wait_for(lambda: cancelled, 0.2)  # it may have to wait for this attempt
        raise core.Abort

    thread = threading.Thread(target=cancel_then)
    thread.start()
    core.Transaction(cancel_first, ()).run()
    thread.join()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert attempts and cancelled and ran == []


def test_a_thread_for_which_a_handler_waits_may_cancel_a_callback():
    ran, told = [], []

    async def main():
        loop = asyncio.get_running_loop()

        def cancel():
            handle = loop.call_soon_threadsafe(ran.append, True)
            handle.cancel()
            told.append(handle.cancelled())

        thread = threading.Thread(target=cancel, daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        told.append(thread.is_alive())
        await asyncio.sleep(0)

    tornado.stm.run(main(), threads=2)
    assert told == [True, False] and ran == []
