"""Queues of functions that run as transactions, and how many threads run them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from .. import activation, core, processors
from ..core import TransactionError, trusted
from ..patches import finalizers
from .interrupts import Guards, is_on_main

if core.PARALLEL:
    from ..patches.threads import Worker

P = ParamSpec("P")

_threads: int | None = None


def _default_threads() -> int:
    return min(processors.usable(), core.MOST_THREADS)


def set_threads(threads: int | None) -> None:
    """Set how many threads `run` uses, 127 at most; None: as many as this process may use processors.

    Raises:
        ValueError: not such a number.
    """
    global _threads
    valid = isinstance(threads, int) and not isinstance(threads, bool) and 1 <= threads <= core.MOST_THREADS
    if threads is not None and not valid:
        raise ValueError(f"the number of threads must be a positive integer, {core.MOST_THREADS} at most, not {threads!r}")
    _threads = threads


#: its older name
set_num_threads = set_threads


def getsegmentlimit() -> int:
    """The most threads that run transactions in parallel: 1 where the engine is serial."""
    if not core.PARALLEL:
        return 1
    return _threads or _default_threads()


class TransactionQueue(core.Queue):
    """Functions to run as transactions: in parallel, in any order, as if one after the other.

    ``add(f, *args, **kwds)`` adds ``f(*args, **kwds)`` as one transaction.  From inside a transaction it counts from that
    one's commit.  It runs in a copy of the context (`contextvars`) in which it is added, as with asyncio's ``call_soon``.
    """

    def __init__(self) -> None:
        activation.activate()
        super().__init__()
        self._helpers: list[Any] = []

    def add_generator(self, generator: Iterator[object]) -> None:
        """Add what a generator does until each ``yield``, and after the last, as transactions one after the other.

        What it yields is ignored.  Nobody else may use it from here on.
        """
        self.add(self._go_on, generator)

    def _go_on(self, generator: Iterator[object]) -> None:
        for _ in generator:
            self.add(self._go_on, generator)
            return

    def number_of_transactions_executed(self) -> int:
        """How many have run so far, those that raised an exception among them.

        Raises:
            TransactionError: the queue is running.
        """
        if self._workers:
            raise TransactionError("the queue is running")
        return self._executed

    @trusted
    def _hire(self) -> None:
        """Start one more thread; called by any of those that work."""
        helper = Worker(functools.partial(self._work, self._hire), "transactions")
        helper.start()
        self._helpers.append(helper)

    @trusted
    def _dismiss(self) -> None:
        """Wait until the threads that have been hired, and have left, have ended."""
        try:
            while True:
                self._helpers.pop().join()
        except IndexError:
            pass

    @trusted
    def run(self, nb_segments: int = 0) -> None:
        """Run everything added so far, and what it adds, until nothing is left.

        The first transaction that raises an exception is the last one: its effects stay, the others that have not
        committed before it are rolled back and dropped, and the exception comes out of here.  (Of several threads that
        run the same queue one gets it; for all of them the run is over.)

        Args:
            nb_segments: the number of threads to use; 0 or less means `getsegmentlimit`.

        Raises:
            TransactionError: inside a transaction or an atomic block.
        """
        if core.in_transaction():
            raise TransactionError("a queue cannot run inside a transaction")
        limit = getsegmentlimit()
        guards = Guards() if is_on_main() else None
        try:
            activation.begin_run()
            finalizers.keep_hook_quiet()
            try:
                waiting = guards.waiting if guards is not None else None
                failure = self._run(min(nb_segments, limit) if nb_segments > 0 else limit, self._hire, waiting)
            finally:
                activation.end_run()
            self._dismiss()
            core.settle()
            if failure is not None:
                raise failure
        finally:
            if guards is not None:
                guards.let_in()


_queue: TransactionQueue | None = None


def add(f: Callable[P, object], /, *args: P.args, **kwds: P.kwargs) -> None:
    """Add ``f(*args, **kwds)`` to the module's own queue (the form that the loop of 2014 used)."""
    global _queue
    if _queue is None:
        _queue = TransactionQueue()
    _queue.add(f, *args, **kwds)


def run() -> None:
    """Run the module's own queue until it is empty.  See `TransactionQueue.run`."""
    if _queue is not None:
        _queue.run()
