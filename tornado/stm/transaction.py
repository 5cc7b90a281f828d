"""PyPy-STM's ``transaction`` module on this engine: run functions in parallel as if one after the other.

    from tornado.stm import transaction

    queue = transaction.TransactionQueue()
    for item in items:
        queue.add(process, item)
    queue.run()
"""

import os
import threading
from collections import deque

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


class _Item:
    """A function to call; what it adds to the queue before it raises is dropped."""

    def __init__(self, f, args, kwds):
        self.f = f
        self.args = args
        self.kwds = kwds
        self.failed = False

    def run(self):
        try:
            self.f(*self.args, **self.kwds)
        except BaseException:
            self.failed = True
            raise


trusted(_Item.__init__)


class TransactionQueue:
    """Functions to run as transactions: in parallel, in any order, as if one after the other."""

    def __init__(self):
        core.activate()
        self._lock = threading.Condition(threading.Lock())
        self._ready = deque()
        self._running = 0
        self._failure = None
        self._local = threading.local()  # per thread: the item that it runs

    @trusted
    def add(self, f, /, *args, **kwds):
        """Add ``f(*args, **kwds)`` as one transaction.  From inside a transaction it counts from that one's commit."""
        item = getattr(self._local, "item", None) if core.in_transaction() else None
        core.defer(self._enqueue, item, _Item(f, args, kwds))

    @trusted
    def _enqueue(self, parent, item):
        if parent is not None and parent.failed:
            return
        item.transaction = core.Transaction(item.run, ())
        with self._lock:
            self._ready.append(item)
            self._lock.notify()

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
        self._failure = None
        helpers = [
            threading.Thread(target=self._work, daemon=True, name=f"transactions-{i}")
            for i in range(1, min(nb_segments or getsegmentlimit(), getsegmentlimit()))
        ]
        for helper in helpers:
            helper.start()
        self._work()
        for helper in helpers:
            helper.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @trusted
    def _work(self):
        lock = self._lock
        while True:
            with lock:
                while not self._ready:
                    if not self._running:
                        lock.notify_all()
                        return
                    lock.wait()
                item = self._ready.popleft()
                self._running += 1
            failure = None
            self._local.item = item
            try:
                item.transaction.run()
            except BaseException as e:
                failure = e
            with lock:
                self._running -= 1
                if failure is not None:
                    self._failure = self._failure or failure
                    self._ready.clear()
                if not self._running and not self._ready:
                    lock.notify_all()


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
