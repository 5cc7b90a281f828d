"""PyPy-STM's ``transaction`` module on this engine: run functions in parallel as if one after the other.

    from tornado.stm import transaction

    queue = transaction.TransactionQueue()
    for item in items:
        queue.add(process, item)
    queue.run()
"""

import os
import threading

from . import core
from .core import stats, trusted

__all__ = [
    "TransactionError", "TransactionQueue", "add", "atomic", "getsegmentlimit", "is_atomic", "run", "set_threads", "stats",
]


class TransactionError(Exception):
    """Misuse of transactions, such as running a queue inside a transaction."""


_threads = None


def _default_threads():
    count = getattr(os, "process_cpu_count", None)
    return (count() if count else len(os.sched_getaffinity(0))) or 1


def set_threads(threads):
    """Set how many threads `run` uses; None: as many as this process may use CPUs.

    Raises:
        ValueError: not a positive number.
    """
    global _threads
    if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or threads < 1):
        raise ValueError(f"the number of threads must be a positive integer, not {threads!r}")
    _threads = threads


def getsegmentlimit():
    """The most threads that run transactions in parallel: 1 where the engine is serial."""
    if not core.PARALLEL:
        return 1
    return _threads or _default_threads()


class TransactionQueue(core.Queue):
    """Functions to run as transactions: in parallel, in any order, as if one after the other.

    ``add(f, *args, **kwds)`` adds ``f(*args, **kwds)`` as one transaction.  From inside a transaction it counts from that
    one's commit.  It runs in a copy of the context (`contextvars`) in which it is added, as with asyncio's ``call_soon``.
    """

    def __init__(self):
        core.activate()
        super().__init__()
        self._helpers = []

    @trusted
    def _hire(self):
        """Start one more thread; called by any of those that work."""
        helper = threading.Thread(target=self._work, args=(self._hire,), daemon=True, name="transactions")
        helper.start()
        self._helpers.append(helper)

    @trusted
    def run(self, nb_segments=0):
        """Run everything added so far, and what it adds, until nothing is left.

        An exception of a transaction drops those that have not begun; its own effects stay.  If several raise, one of
        the exceptions comes out of here.

        Args:
            nb_segments: the number of threads to use; 0 means `getsegmentlimit`.

        Raises:
            TransactionError: inside a transaction or an atomic block.
        """
        if core.in_transaction():
            raise TransactionError("a queue cannot run inside a transaction")
        limit = getsegmentlimit()
        self._begin(min(nb_segments or limit, limit))
        self._work(self._hire)
        # A helper may have hired others, until the last transaction was over.
        while self._helpers:
            self._helpers.pop().join()
        failure = self._failure()
        if failure is not None:
            raise failure


_queue = None


def add(f, /, *args, **kwds):
    """Add ``f(*args, **kwds)`` to the module's own queue (the form that the loop of 2014 used)."""
    global _queue
    if _queue is None:
        _queue = TransactionQueue()
    _queue.add(f, *args, **kwds)


def run():
    """Run the module's own queue until it is empty.  See `TransactionQueue.run`."""
    if _queue is not None:
        _queue.run()


class _Atomic:
    """``with atomic:`` nothing else runs in between: in a transaction nothing does, elsewhere transactions wait."""

    def __init__(self):
        self._local = threading.local()

    @trusted
    def __enter__(self):
        core.activate()
        entered = getattr(self._local, "entered", None)
        if entered is None:
            entered = self._local.entered = []
        entered.append(core.atomic_enter())

    @trusted
    def __exit__(self, *exc):
        if self._local.entered.pop():
            core.atomic_exit()


atomic = _Atomic()


def is_atomic():
    """Does nothing else run in between here?"""
    return core.in_transaction()
