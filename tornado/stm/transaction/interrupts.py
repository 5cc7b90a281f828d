"""Signals that arrive while the main thread runs a queue of transactions.

The interpreter runs signal handlers written in Python on the main thread, between any two instructions: also where an attempt
may be rolled back, or where the engine commits one and has nobody to give an exception to.  So while a queue runs, each
handler is called by a *guard*:

* in a transaction's own code it makes the transaction exclusive, and calls the handler then: what that does, and the
  exception that it may raise, are the transaction's;
* everywhere else the call waits until the main thread is between two transactions, and is a transaction of the queue then,
  which is exclusive too.  So its exception ends the run as any other does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.signal makes an enum member of every handler and number
import contextlib
import signal
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from .. import core
from ..core import is_trusted, trusted

#: calls that wait: (function, arguments)
Calls = list[tuple[Callable[..., object], tuple[Any, ...]]]

_SIGNALS = tuple(map(int, signal.valid_signals()))


@contextlib.contextmanager
@trusted
def guarded_signals() -> Iterator[Calls | None]:
    """Guard the handlers that there are.

    Gives the list of the calls that wait, as (function, arguments); None on other threads than the main one, which no signal
    reaches.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    waiting: Calls = []
    guards: dict[int, Any] = {}
    try:
        for signum in _SIGNALS:
            handler = _signal.getsignal(signum)
            if callable(handler):
                guards[signum] = guard = _guard(handler, waiting)
                _signal.signal(signum, guard)
        yield waiting
    finally:
        for signum, guard in guards.items():
            if _signal.getsignal(signum) is guard:  # else the program has set another one meanwhile
                _signal.signal(signum, guard.handler)
        for function, args in waiting:
            function(*args)


@trusted
def _guard(handler: Callable[[int, types.FrameType | None], object], waiting: Calls) -> Any:
    def guard(signum: int, frame: types.FrameType | None) -> None:
        if not _is_in_own_code(frame):
            waiting.append((_handle, (handler, signum)))
            return
        try:
            core.exclusive("a signal handler")
        except core.Abort:
            waiting.append((_handle, (handler, signum)))
            raise
        handler(signum, frame)

    guard.handler = handler  # type: ignore[attr-defined]
    return guard


@trusted
def _handle(handler: Callable[[int, types.FrameType | None], object], signum: int) -> None:
    core.exclusive("a signal handler")
    handler(signum, None)


@trusted
def _is_in_own_code(frame: types.FrameType | None) -> bool:
    """Has the signal interrupted code of the transaction itself, and not the project's, which may hold locks?"""
    if core.current() is None or not core.in_transaction():
        return False
    if frame is None or frame.f_globals.get("__name__") == "tornado.stm.serial":
        return False
    return core.is_exclusive() or not is_trusted(frame.f_code)
