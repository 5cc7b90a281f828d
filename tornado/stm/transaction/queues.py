"""PyPy-STM's queue between transactions and threads.

The items lie in a dict, each under a number of its own.  Transactions lock it key by key, as any dict: that decides who
gets what, and is undone with them.  Which number to try is no part of that: those of committed items are in a deque that
transactions take them from without a lock, and give them back when they are rolled back.  So two of them meet only

* where nothing is left there.  Then the dict as a whole says whether the queue is empty, which waits for all who have put
  something in or taken it out and not committed yet;
* when the dict makes room.

A thread that is no transaction has one for each item that it puts or gets, and waits between them.  For that it leaves a lock of its own,
which whoever changes something takes out and opens: so nobody keeps a lock that others need, should a thread fork meanwhile, or what the
handler of a signal raises come up on the main thread.
"""

from __future__ import annotations

import _thread
import collections
from collections.abc import Callable
from queue import Empty
from time import monotonic
from typing import Any, Generic, TypeVar

from .. import activation, core
from ..core import TransactionError, trusted
from .apart import in_transaction
from .counting import count

__all__ = ["Empty", "queue"]

T = TypeVar("T")

_nothing: Any = object()


class queue(Generic[T]):
    """Items on their way from some transactions or threads to others, oldest first where nobody else is about to take them.

    What a transaction puts is there from its commit on, for the others.
    """

    def __init__(self) -> None:
        activation.activate()
        self._items: dict[int, T] = {}
        self._known: collections.deque[int] = collections.deque()  # numbers of committed items that nobody is taking; some may be gone
        self._open: collections.deque[None] = collections.deque()  # one for each committed item that is not done
        self._overdone: collections.deque[None] = collections.deque()  # one for each time that `task_done` has found none there
        self._waiting: dict[_thread.LockType, None] = {}  # locks of threads that wait for a change of these

    def put(self, item: T) -> None:
        """Put an item into the queue, which has room for any number of them."""
        in_transaction(self._put, item)

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Remove an item from the queue and return it.

        Args:
            block: wait until there is one.
            timeout: seconds to wait at most; None for ever.

        Raises:
            Empty: there is none, and it does not wait, or not any longer.
            ValueError: a negative timeout.
            TransactionError: it would wait, in a transaction or an atomic block.
        """
        if not block:
            timeout = 0
        elif timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if not core.in_transaction():
            return self._wait_for_one(timeout)
        if timeout != 0:
            raise TransactionError("queue.get() cannot wait inside a transaction or an atomic block: use block=False")
        return self._get()

    def task_done(self) -> None:
        """Say that what had to be done about one item, got earlier, has been done."""
        core.defer(self._done)

    @trusted
    def join(self) -> None:
        """Wait until `task_done` has been called for every item that has been put.

        Raises:
            ValueError: it has been called more often than that.
            TransactionError: inside a transaction or an atomic block.
        """
        if core.in_transaction():
            raise TransactionError("queue.join() cannot wait inside a transaction or an atomic block")
        unfinished = 1
        while unfinished > 0:
            self._wait(lambda: len(self._open) <= len(self._overdone), None)
            # A transaction that is about to commit may have counted only some of what it did.
            unfinished = in_transaction(self._count_unfinished)
        if unfinished < 0:
            raise ValueError(f"task_done() has been called {-unfinished} times more often than items were put")

    # -- In a transaction ------------------------------------------------------------------------------------------------

    def _put(self, item: T) -> None:
        number = count()
        self._items[number] = item
        core.defer(self._arrived, number)

    def _get(self) -> T:
        item = self._get_known()
        if item is not _nothing:
            return item
        for number in self._items:
            return self._items.pop(number)
        raise Empty

    def _get_known(self) -> T:
        while (number := self._take_number()) is not None:
            item = self._items.pop(number, _nothing)
            if item is not _nothing:
                return item
        return _nothing

    @trusted
    def _count_unfinished(self) -> int:
        core.exclusive("a look at how many items of a queue are not done")
        return len(self._open) - len(self._overdone)

    @trusted
    def _take_number(self) -> int | None:
        try:
            return core.receive(queue._put_back, self, self._known.popleft)
        except IndexError:
            return None

    # -- At its commit, or when it is rolled back ------------------------------------------------------------------------

    @trusted
    def _arrived(self, number: int) -> None:
        self._known.append(number)
        self._open.append(None)
        self._tell()

    @trusted
    def _put_back(self, number: int) -> None:
        self._known.appendleft(number)
        self._tell()

    @trusted
    def _done(self) -> None:
        try:
            self._open.pop()
        except IndexError:
            self._overdone.append(None)
        self._tell()

    @trusted
    def _tell(self) -> None:
        """Something has changed: have all look who wait."""
        try:
            while self._waiting:
                self._waiting.popitem()[0].release()
        except KeyError:
            pass

    # -- Outside of transactions -----------------------------------------------------------------------------------------

    @trusted
    def _wait_for_one(self, timeout: float | None) -> T:
        deadline = None if timeout is None else monotonic() + timeout
        while self._wait(lambda: bool(self._known), deadline):
            item = in_transaction(self._get_known)
            if item is not _nothing:
                return item
        return in_transaction(self._get)

    @trusted
    def _wait(self, is_over: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until that is so, or until then.  Is it?"""
        while not is_over():
            left = -1 if deadline is None else min(deadline - monotonic(), _thread.TIMEOUT_MAX)
            if deadline is not None and left <= 0:
                return False
            lock = _thread.allocate_lock()
            lock.acquire()
            try:
                self._waiting[lock] = None
                if not is_over():  # from here on it is told of what changes
                    lock.acquire(timeout=left)
            finally:
                self._waiting.pop(lock, None)
        return True
