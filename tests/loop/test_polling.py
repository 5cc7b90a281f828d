"""What the kernel is asked for."""

import asyncio
import os
import select
import socket
import time

import pytest

import tornado.stm
from interpreters import needs_engine
from tornado.stm import core
from tornado.stm.core import trusted

needs_engine()


@trusted
def asked_for():
    """What the process's epolls report, if it happens: {descriptor: events}."""
    asked = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") != "anon_inode:[eventpoll]":
                continue
            with open(f"/proc/self/fdinfo/{number}") as lines:
                asked |= {int(words[1]): int(words[3], 16) for words in map(str.split, lines) if words[0] == "tfd:"}
        except FileNotFoundError:
            pass  # that of the listing
    return asked


def test_the_kernel_is_asked_once_for_all_messages_of_a_connection():
    """As by asyncio's loop; and not for one event after the other, each by a call of the system."""
    asked = []

    async def main():
        loop, (end, peer), over = asyncio.get_running_loop(), socket.socketpair(), asyncio.Event()
        end.setblocking(False)

        def read():
            asked.append(asked_for().get(end.fileno()))
            end.recv(1)
            peer.send(b"-") if len(asked) < 20 else over.set()

        with end, peer:
            loop.add_reader(end, read)
            peer.send(b"-")
            await over.wait()
            loop.remove_reader(end)

    tornado.stm.run(main(), threads=1)
    assert len(asked) == 20 and all(events & select.EPOLLIN and not events & select.EPOLLONESHOT for events in asked)


def test_what_an_aborted_attempt_has_left_is_not_reported_while_the_next_one_takes_it():
    """The rest of it would be, over and over, to a thread that has nothing to do; and once more when all had been taken."""
    asked = []

    @trusted
    def roll_back():
        raise core.Abort

    @trusted
    def is_asked_no_more(number):
        until = time.monotonic() + 20
        while (asks := bool(asked_for()[number] & select.EPOLLIN)) and time.monotonic() < until:
            time.sleep(0.001)
        return not asks

    async def main():
        loop, (end, peer), over = asyncio.get_running_loop(), socket.socketpair(), asyncio.Event()
        end.setblocking(False)

        def read():
            rehearsal = core.rehearse()
            got = end.recv(2)
            if rehearsal:
                roll_back()
            if got == b"he":
                asked.append(is_asked_no_more(end.fileno()))
            if got == b"o":
                over.set()

        with end, peer:
            loop.add_reader(end, read)
            peer.send(b"hello")
            await over.wait()
            loop.remove_reader(end)

    tornado.stm.run(main(), threads=2)
    assert asked == [True]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_kernel_is_asked_no_more_before_a_descriptor_is_closed(threads):
    """Of a file that lives on elsewhere, such as in a child process, it would go on to report what nobody can stop any more."""
    seen = []

    async def main():
        loop, (end, peer), over = asyncio.get_running_loop(), socket.socketpair(), asyncio.Event()
        end.setblocking(False)
        number = end.fileno()

        def read():
            seen.append(os.dup(number))
            loop.remove_reader(end)
            end.close()
            over.set()

        loop.add_reader(end, read)
        peer.send(b"-")
        await over.wait()
        await asyncio.sleep(0.01)
        seen.append(number in asked_for())
        peer.close()

    tornado.stm.run(main(), threads=threads)
    os.close(seen[0])
    assert seen[1:] == [False]


def test_who_would_run_the_rounds_of_a_loop_is_told_that_this_cannot_be():
    """nest_asyncio does, to run a loop that is running: it would wait for ever."""

    async def main():
        with pytest.raises(RuntimeError, match="nest_asyncio"):
            asyncio.get_running_loop()._selector.select(0)

    tornado.stm.run(main(), threads=2)
