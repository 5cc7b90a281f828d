"""The order in which the loop's scheduler runs what it is given.  In a process of its own, which may hang."""

import asyncio
import subprocess
import sys

import pytest

import tornado.stm
from tornado.stm import core
from tornado.stm.core import trusted

if not core.PARALLEL:
    pytest.skip("the engine is absent: asyncio's own loop runs", allow_module_level=True)


def test_a_finalizer_that_schedules_while_something_is_scheduled():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


async def interrupt_the_scheduler():
    """A finalizer may run anywhere: when the interpreter lets go of an object that another thread has dropped."""
    ran, interrupted = [], []
    loop = asyncio.get_running_loop()
    push = loop._scheduler._push

    @trusted
    def interrupted_push(*pushed):
        if len(interrupted) < 8:
            interrupted.append(True)
            if len(interrupted) % 2:
                loop._scheduler.submit(asyncio.Handle(ran.append, ("finalizer",), loop))
        push(*pushed)

    loop._scheduler._push = interrupted_push
    for n in range(4):
        loop.call_soon(ran.append, n)
    while len(ran) < 8:
        await asyncio.sleep(0)
    assert [n for n in ran if n != "finalizer"] == [0, 1, 2, 3]


if __name__ == "__main__":
    tornado.stm.run(interrupt_the_scheduler(), threads=1)
