"""Starting and ending programs on the transactional loop."""

import asyncio
import functools
from typing import Any

from .. import conflictlog, core
from ..loop.serial_loop import SerialEventLoop
from ..patches import table
from . import uvloops
from .parallelism import note_loop, usable_threads
from .python_parts import prefer_python

if core.PARALLEL:
    from ..loop.eventloop import TransactionalEventLoop
    from ..loop.futures import use_engine_futures


def new_loop(threads=None):
    """A loop for this interpreter: the transactional one, or the serial one where transactions run one at a time."""
    count = prepare(threads)
    return TransactionalEventLoop(count) if core.PARALLEL else SerialEventLoop()


def prepare(threads):
    """What comes before each new loop; returns the number of its threads."""
    count = usable_threads(threads)
    conflictlog.begin()
    if core.PARALLEL:
        note_loop()
    return count


@functools.cache
def selector_event_loop(threads):
    """What stands for ``asyncio.SelectorEventLoop``: programs that name this class get the loop that others get."""
    if not core.PARALLEL:
        return SerialEventLoop

    class SelectorEventLoop(TransactionalEventLoop):
        """The loop polls by itself: a selector is only closed with it."""

        def __init__(self, selector=None):
            super().__init__(prepare(threads), selector)

    # It is shown as what it is.
    SelectorEventLoop.__name__ = SelectorEventLoop.__qualname__ = TransactionalEventLoop.__name__
    SelectorEventLoop.__module__ = TransactionalEventLoop.__module__
    return SelectorEventLoop


def run(main, threads, debug) -> Any:
    """See `tornado.stm.run`."""
    if asyncio._get_running_loop() is not None:
        return asyncio.run(main)  # which says that this cannot be
    loop = None
    try:
        with asyncio.Runner(debug=debug, loop_factory=lambda: new_loop(threads)) as runner:
            loop = runner.get_loop()
            return runner.run(main)
    except SystemExit:
        if loop is not None and loop.terminated:
            return None
        raise
    finally:
        if asyncio.iscoroutine(main):
            main.close()


def install(threads):
    """See `tornado.stm.install`."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("tornado.stm.install() cannot be called from a running event loop")
    usable_threads(threads)
    conflictlog.begin()
    if core.PARALLEL:
        prefer_python()
        # Before the program derives classes of its own from them.
        use_engine_futures()
    table.apply("install", threads)
    uvloops.stand_in(selector_event_loop(threads))


def named_loop(_, threads):
    """In the place of ``asyncio.SelectorEventLoop`` and ``EventLoop``."""
    return selector_event_loop(threads)


def loop_factory(_, threads):
    """In the place of what makes the loops of the default policy, which is asked where the program has chosen no other.

    They are of the class that the program finds as ``asyncio.SelectorEventLoop``, as upstream's are.
    """
    return staticmethod(lambda: selector_event_loop(threads)())
