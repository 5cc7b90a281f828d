"""What the protocol of a subprocess is told, and in which order, is what asyncio's loop tells it."""

import asyncio
import sys
import threading

import pytest

import tornado.stm
from interpreters import needs_engine
from tornado.stm import core
from tornado.stm.core import trusted

needs_engine()

PATIENCE = 0.3  # seconds: so long others may overtake

COMMAND = "import os, sys; os.write(1, sys.stdin.buffer.read()); os.write(2, b'bad'); os.close(1); os.close(2)"


class Protocol(asyncio.SubprocessProtocol):
    """It stands still in each of its callbacks until another one is told of the end, or nobody is."""

    def __init__(self, stands_still=False):
        self.told, self.end, self.stands_still = [], asyncio.get_running_loop().create_future(), stands_still
        self.overtaken = threading.Event()

    @trusted
    def _let_others_go_first(self):
        if self.stands_still:
            self.overtaken.wait(PATIENCE)

    @trusted
    def _overtakes(self):
        self.overtaken.set()

    def connection_made(self, transport):
        self._let_others_go_first()
        self.told.append("made")

    def pipe_data_received(self, fd, data):
        self._overtakes()
        self.told.append((fd, data))

    def pipe_connection_lost(self, fd, exc):
        self._let_others_go_first()
        self.told.append((fd, "lost"))

    def process_exited(self):
        self._let_others_go_first()
        self.told.append("exited")

    def connection_lost(self, exc):
        self._overtakes()
        self.told.append("lost")
        self.end.set_result(None)


async def run_one(text=b"", **how):
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(lambda: Protocol(**how), sys.executable, "-I", "-S", "-c", COMMAND)
    assert "made" in protocol.told or how
    pipe = transport.get_pipe_transport(0)
    pipe.write(text)
    pipe.close()
    await protocol.end
    assert transport.get_returncode() == 0
    return protocol.told


def check(told, text):
    assert told[0] == "made" and told[-1] == "lost", told
    assert sorted(map(str, told[1:-1])) == sorted(
        map(str, [(0, "lost"), (1, "lost"), (2, "lost"), "exited", (2, b"bad"), *([(1, text)] if text else [])])
    )
    for fd in (1, 2):
        about = [each[1] for each in told if each[0] == fd]
        assert about.index("lost") == len(about) - 1, told


def test_none_of_its_events_overtakes_another():
    check(tornado.stm.run(run_one(stands_still=True), threads=3), b"")


@pytest.mark.parametrize(("threads", "rate"), [(1, 0), (4, 0), (3, 0.01)])
def test_many_at_once(threads, rate):
    async def main():
        texts = [b"%d" % number for number in range(8)]
        for told, text in zip(await asyncio.gather(*map(run_one, texts)), texts):
            check(told, text)

    core.inject_aborts(rate, 7)
    try:
        tornado.stm.run(main(), threads=threads)
    finally:
        core.inject_aborts(0, 0)


def test_an_error_of_the_protocol_is_told_of_by_its_name():
    class Fails(asyncio.SubprocessProtocol):
        def process_exited(self):
            raise ValueError("a test")

    async def main():
        loop, contexts = asyncio.get_running_loop(), []
        told = loop.create_future()

        def handle(_, context):
            contexts.append(context)
            told.set_result(None)

        loop.set_exception_handler(handle)
        await loop.subprocess_exec(Fails, sys.executable, "-I", "-S", "-c", "")
        await told
        return contexts

    (context,) = tornado.stm.run(main(), threads=2)
    assert "Fails.process_exited" in context["message"] and str(context["exception"]) == "a test"
