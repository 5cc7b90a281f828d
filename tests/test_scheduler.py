"""The order in which the loop's scheduler runs what it is given.  In a process of its own, which may hang."""

import asyncio
import socket
import subprocess
import sys

import pytest

import tornado.stm
from tornado.stm import core
from tornado.stm.core import trusted

if not core.PARALLEL:
    pytest.skip("the engine is absent: asyncio's own loop runs", allow_module_level=True)

from tornado.stm.loop.eventloop import TransactionalEventLoop


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False), theirs.setblocking(False)
        yield ours, theirs


def test_a_finalizer_that_schedules_while_something_is_scheduled():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


TAKEN_AND_LEFT = """
import asyncio, os, signal, sys, threading
import tornado.stm
from tornado.stm.core import trusted
from tornado.stm.loop.scheduler import Scheduler

def own_handler(number, frame):
    sys.exit(7)

@trusted
def choose(scheduler, *args):
    entry, timeout = original(scheduler, *args)
    if entry is not None and threading.current_thread() is threading.main_thread():
        taken.append(entry.transaction)
        if len(taken) == 20:
            os.kill(os.getpid(), signal.SIGTERM)
    return entry, timeout

async def main():
    while True:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(5)))

taken, original = [], Scheduler._next
Scheduler._next = choose
signal.signal(signal.SIGTERM, own_handler)
try:
    tornado.stm.run(main(), threads=2)
finally:
    print([transaction.done for transaction in taken].count(False))
"""


def test_what_the_main_thread_has_taken_runs_though_a_signal_handler_raises():
    """Others may wait for its commit: then the program would not end."""
    done = subprocess.run([sys.executable, "-c", TAKEN_AND_LEFT], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (7, "0\n", "")


@pytest.mark.parametrize("direction", ("reader", "writer"))
def test_nothing_is_told_to_what_an_aborted_attempt_wanted_to_hear(pair, direction):
    ours, theirs = pair
    theirs.send(b"x")
    heard, attempts = [], []

    @trusted
    def begin(loop):
        attempts.append(not core.is_exclusive())
        loop._scheduler._poll(None)

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
        for descriptor in range(1000, 1100):  # until what is made is known to be the attempt's own
            add(descriptor, print)
            remove(descriptor)
        loop.call_soon(listen, loop)
        while not heard:
            await asyncio.sleep(0)
        remove(ours)

    tornado.stm.run(main(), threads=1)
    assert attempts == [True, True]
    assert set(heard) == {2}


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
    assert len(loop._scheduler._ready) == 100_000
    loop.close()
    assert len(loop._scheduler._ready) == 0


async def interrupt_the_scheduler():
    """A finalizer may run anywhere: when the interpreter lets go of an object that another thread has dropped."""
    ran, interrupted = [], []
    loop = asyncio.get_running_loop()
    site_of = core.site_of

    @trusted
    def interrupted_site_of(handle):
        if len(interrupted) < 8:
            interrupted.append(True)
            if len(interrupted) % 2:
                loop._scheduler.submit(asyncio.Handle(ran.append, ("finalizer",), loop))
        return site_of(handle)

    core.site_of = interrupted_site_of
    for n in range(4):
        loop.call_soon(ran.append, n)
    while len(ran) < 8:
        await asyncio.sleep(0)
    assert [n for n in ran if n != "finalizer"] == [0, 1, 2, 3]


if __name__ == "__main__":
    tornado.stm.run(interrupt_the_scheduler(), threads=1)
