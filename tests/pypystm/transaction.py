"""PyPy-STM's module `transaction`, emulated on CPython 2.7 for the tests of tornado.platform.pypystm.

Nothing runs in parallel.  What a program must not rely on is made to differ: transactions run in a random order, one at
a time, either all on the thread that calls `run`, or on new threads, which the interpreter's own module starts for every
`run` as well.  By environment variables:

    PYPYSTM_TEST_SEED=n       the seed
    PYPYSTM_TEST_THREADS=n    on up to n new threads; 0, the default: on the calling thread
    PYPYSTM_TEST_OLD=1        the module-level `add` and `run`, in the place of `TransactionQueue` and what came with it

`watch`, which the interpreter's module does not have, calls a function around every transaction.
"""

from __future__ import absolute_import, division, print_function

import functools
import itertools
import os
import Queue
import random
import sys
import threading
import time as _time

_random = random.Random(int(os.environ.get("PYPYSTM_TEST_SEED", "1")))
_threads = int(os.environ.get("PYPYSTM_TEST_THREADS", "0"))
_watchers = []

_lock = threading.RLock()  # who has it runs a transaction
_state = threading.local()  # .depth: of nested atomic blocks; .added: by the transaction


class TransactionError(Exception):
    pass


class _Atomic(object):
    def __enter__(self):
        _lock.acquire()
        _state.depth = getattr(_state, "depth", 0) + 1

    def __exit__(self, *exc_info):
        _state.depth -= 1
        _lock.release()


class _ExclusiveAtomic(_Atomic):
    def __enter__(self):
        if is_atomic():
            raise TransactionError("exclusive_atomic inside an atomic block")
        _Atomic.__enter__(self)


class _SignalsEnabled(object):
    def __enter__(self):
        pass

    def __exit__(self, *exc_info):
        pass


atomic = _Atomic()
exclusive_atomic = _ExclusiveAtomic()
signals_enabled = _SignalsEnabled()


def is_atomic():
    return getattr(_state, "depth", 0) > 0


def hint_commit_soon():
    pass


def getsegmentlimit():
    return 4


class TransactionQueue(object):
    def __init__(self):
        self._waiting = []
        self._active = 0
        self._error = None
        self._changed = threading.Condition(threading.Lock())

    def add(self, f, *args, **kwds):
        added = getattr(_state, "added", None)
        transaction = functools.partial(f, *args, **kwds)
        if added is not None and added[0] is self:
            added[1].append(transaction)  # it runs after the one that adds it
        else:
            self._waiting.append(transaction)

    def run(self, nb_segments=0):
        if is_atomic():
            raise TransactionError("run() inside an atomic block")
        threads = min(_threads, nb_segments) if nb_segments > 0 else _threads
        if threads == 0:
            self._work()
        else:
            workers = [threading.Thread(target=self._work) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        if self._error is not None:
            error, self._error = self._error, None
            self._waiting = []
            raise error[0], error[1], error[2]

    def _work(self):
        """Runs transactions until none is left, or one has raised."""
        while True:
            with self._changed:
                while not self._waiting and self._active:
                    self._changed.wait(60)
                if not self._waiting or self._error is not None:
                    return
                transaction = self._waiting.pop(_random.randrange(len(self._waiting)))
                self._active += 1
            added = []
            try:
                with atomic:
                    if self._error is None:
                        _state.added = self, added
                        self._run_one(transaction)
            except:  # noqa: E722: KeyboardInterrupt and SystemExit too
                self._error = sys.exc_info()
            finally:
                _state.added = None
                with self._changed:
                    self._waiting.extend(added)
                    self._active -= 1
                    self._changed.notify_all()

    def _run_one(self, transaction):
        for watcher in _watchers:
            watcher.begin()
        try:
            transaction()
        finally:
            for watcher in _watchers:
                watcher.end()


def watch(watcher):
    """`watcher.begin()` and `watcher.end()` are called on the thread of every transaction, in it."""
    _watchers.append(watcher)


def time():
    return _real_time()


def clock():
    return _time.clock()


_real_time = _time.time
_counter = itertools.count(1)


def count():
    return next(_counter)


class stmdict(dict):
    pass


class stmset(set):
    pass


local = threading.local
queue = Queue.Queue
Empty = Queue.Empty

if os.environ.get("PYPYSTM_TEST_OLD") == "1":
    _default = TransactionQueue()
    _number = 4
    add = _default.add

    def run():
        _default.run(_number)

    def set_num_threads(number):
        global _number
        _number = number

    del TransactionQueue, exclusive_atomic, stmdict, stmset, local, queue, Empty, time, clock, count, getsegmentlimit
