"""Signals that arrive while the main thread runs a queue of transactions.

The interpreter runs signal handlers written in Python on the main thread, between any two instructions: also where an attempt
may be rolled back, or where the engine commits one and has nobody to give an exception to.  So while a queue runs, each
handler is called by a *guard*:

* in a transaction's own code it makes the transaction exclusive, and calls the handler then: what that does, and the
  exception that it may raise, are the transaction's;
* likewise where a transaction that runs alone waits, for a lock or for time to pass: so that is broken off;
* everywhere else the call waits until the main thread is between two transactions, and is a transaction of the queue then,
  which is exclusive too.  So its exception ends the run as any other does.  A transaction that runs alone meanwhile, and is about to wait,
  makes it before.

Where a thread outside of transactions has one of its own, as to put an item into a `queue`, calls wait for its end.
"""

from __future__ import annotations

import _thread
import collections
import signal
import threading
import types
from collections.abc import Callable
from typing import Any

from .. import core
from ..core import is_trusted, trusted

Handler = Callable[[int, types.FrameType | None], object]


class Guards:
    """In the place of the handlers that there are, from here on until `let_in`.  Made on the main thread.

    Args:
        postpone: whatever arrives waits for `let_in`.
    """

    @trusted
    def __init__(self, postpone: bool = False) -> None:
        self.waiting: list[tuple[Callable[..., object], tuple[Any, ...]]] = []  # calls to be made between two transactions
        self._arrived: collections.deque[tuple[Handler, int]] = collections.deque()  # for which each of them looks
        self._postpone, self._over = postpone, False
        guards = {signum: (handler, self._guard(handler)) for signum, handler in core.handlers().items()}
        self._back = {signum: (guard, handler) for signum, (handler, guard) in guards.items()}
        core.exchange_handlers(guards)

    @trusted
    def let_in(self) -> None:
        """The handlers are what they were, and are called for what has arrived and not been handled.  Raises what they raise."""
        self._over = True
        core.exchange_handlers(self._back)  # where the program has set no other one meanwhile
        self._call_all()

    @trusted
    def _call_all(self) -> None:
        try:
            while self._arrived:
                self._call_next()
        finally:
            if self._arrived:
                self._call_all()

    @trusted
    def _call_next(self) -> None:
        handler, signum = self._arrived.popleft()
        handler(signum, None)

    @trusted
    def _guard(self, handler: Handler) -> Handler:
        def guard(signum: int, frame: types.FrameType | None) -> None:
            if self._over:  # the program has kept it
                handler(signum, frame)
            elif self._postpone:
                self._arrived.append((handler, signum))
            elif core.has_lent():
                core.in_turn(handler, signum, frame)
            elif _is_in_own_code(frame):
                try:
                    core.exclusive("a signal handler")
                except core.Abort:
                    self._wait(handler, signum)
                    raise
                handler(signum, frame)
            else:
                self._wait(handler, signum)

        return guard

    @trusted
    def _wait(self, handler: Handler, signum: int) -> None:
        self._arrived.append((handler, signum))
        self.waiting.append((self._handle, ()))

    @trusted
    def _handle(self) -> None:
        """In a transaction: call the handler, unless another one has done so."""
        if self._arrived and self._arrived[0][0] is signal.default_int_handler:
            core.irrevocable("a signal handler")  # which only raises: nobody need have ended
        else:
            core.exclusive("a signal handler")
        if self._arrived:
            self._call_next()


def is_on_main() -> bool:
    """Is this the main thread, which signals reach?"""
    return _thread.get_ident() == threading.main_thread().ident


@trusted
def _is_in_own_code(frame: types.FrameType | None) -> bool:
    """Has the signal interrupted code of the transaction itself, and not the project's, which may hold locks?"""
    if core.current() is None or not core.in_transaction():
        return False
    if frame is None or frame.f_globals.get("__name__") == "tornado.stm.serial":
        return False
    return core.is_exclusive() or not is_trusted(frame.f_code)
