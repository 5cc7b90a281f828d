"""Run a Tornado or asyncio program's one event loop on every core, with serial semantics::

    import tornado.stm

    tornado.stm.run(main(), threads=4)      # instead of asyncio.run(main())

or `install`, for every loop that is created from there on.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from .c_functions import seeds as _seeds  # noqa: F401, it takes note of what a program begins with

__all__ = ["install", "run"]

T = TypeVar("T")

#: what ``asyncio.run`` takes
if sys.version_info >= (3, 14):
    Main = Awaitable[T]
else:
    Main = Coroutine[Any, Any, T]


def run(main: Main[T], *, threads: int | None = None, debug: bool | None = None) -> T:
    """Like ``asyncio.run``, on the transactional loop.

    SIGTERM ends it gracefully: no new connections, what has begun is answered, then ``main`` is cancelled.

    Args:
        main: a coroutine, or what else ``asyncio.run`` takes.
        threads: how many threads run transactions, at most 127; by default as many as this process may use processors: of those that
            it may run on no more than the limits of its control groups, such as a container's, allow.
        debug: asyncio's debug mode.

    Returns:
        What the coroutine returns.

    Raises:
        ValueError: ``threads`` is no such number.
        Exception: what ``asyncio.run`` raises for anything else than a coroutine, and where a loop is running.
        BaseException: whatever the coroutine raises.
    """
    from .program import runner

    return runner.run(main, threads, debug)


def install(threads: int | None = None) -> None:
    """Make the transactional loop the one that ``asyncio.run``, ``asyncio.new_event_loop`` and Tornado create.

    In this process, and in those that ``os.fork`` and ``multiprocessing`` start from here on.

    Args:
        threads: as for `run`.

    Raises:
        ValueError: ``threads`` is no such number.
        RuntimeError: a loop is running.
    """
    from .program import processes

    processes.install(threads)
