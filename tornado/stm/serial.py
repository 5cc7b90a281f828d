"""The serial engine: the same names as the compiled one, for interpreters whose threads take turns.

Transactions run one at a time, so there is nothing to lock, to undo or to retry: what is left is the order of commits,
the deferred actions and the promise that nothing else runs meanwhile.
"""

import collections
import contextlib
import contextvars
import functools
import gc
import itertools
import os
import signal
import threading
import types
from _thread import get_ident as thread_ident

from . import forks

#: as many as the compiled engine takes, so that programs are the same
MOST_THREADS = 127


class _Thread:
    """Of a thread."""

    __slots__ = ("transaction", "deferred", "depth", "in_callback", "callbacks")

    def __init__(self, callbacks):
        self.transaction = None  # what `current` tells
        self.deferred = ()  # until its commit
        self.depth = 0  # so many times has it the turn
        self.in_callback = False  # of a loop
        self.callbacks = callbacks  # so many have been


class _This(threading.local):
    def __init__(self):
        number = thread_ident()
        before = _threads.get(number)  # one that has ended
        self.thread = _threads[number] = _Thread(0 if before is None else before.callbacks)


#: by its number
_threads = {}
_this = _This()


class _Turn:
    """Who may run: the transactions and atomic blocks of one thread, or callbacks of loops.

    Callbacks of several loops run beside each other, as on asyncio's own: one of them may wait for another.  So whoever wants the turn
    waits until there is a moment at which none runs.  Callbacks that wait for it then come before the next who wants it: neither has
    to wait for ever.  Where nobody wants it, a callback only notes that it runs, and then looks whether somebody does; who wants it says
    so, and then looks whether one runs.

    A signal handler may ask for it in the midst of this: what a thread has is noted in the same moment as that it has it.
    """

    def __init__(self):
        self._lock = threading.RLock()  # of who has the turn, or waits for callbacks
        forks.free(self._lock)
        self._begin(False)
        forks.begin_by(self._begin_anew)

    def _begin(self, taken):
        self._changed = threading.Condition()
        self._taken = taken
        self.wanted = int(taken)  # or taken; more than once by a thread whose signal handler has interrupted this
        self._waiting = 0  # so many callbacks wait,
        self._next = 0  # and so many of those come before who wants the turn

    def _begin_anew(self):
        """In the child of a fork: what others had, and waited for, is over."""
        for thread in _threads.values():
            thread.in_callback = thread is _this.thread and thread.in_callback
        self._begin(self._taken and _this.thread.depth > 0 and not _this.thread.in_callback)

    def _is_free(self):
        return not (self._taken or self._next) and not _callback_runs()

    def __enter__(self):
        thread = _this.thread
        if thread.depth or thread.in_callback:
            thread.depth += 1
            return
        self._lock.acquire()
        with self._changed:
            self.wanted += 1
            try:
                self._changed.wait_for(self._is_free)
                thread.depth = 1
                self._taken = True
            except BaseException:  # a signal handler's
                self.wanted -= 1
                self._changed.notify_all()
                self._lock.release()
                raise

    def __exit__(self, *exc):
        thread = _this.thread
        if thread.depth > 1 or thread.in_callback:
            thread.depth -= 1
            return
        with self._changed:
            thread.depth = 0
            self._taken = False
            self.wanted -= 1
            self._next = self._waiting
            self._changed.notify_all()
        self._lock.release()

    def _is_open(self):
        """To callbacks?"""
        return not self._taken and (self._next or not self.wanted or _callback_runs())

    def wait_in_callback(self):
        """Somebody wants the turn: it is his, unless a callback runs beside this one, for which he waits anyway."""
        thread = _this.thread
        with self._changed:
            thread.in_callback = False
            if self._is_open() and not self._next:
                thread.in_callback = True
                return
            self._waiting += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(self._is_open)
                thread.in_callback = True
            finally:
                self._waiting -= 1
                self._next = min(self._next, self._waiting)
                self._changed.notify_all()

    def tell(self):
        """A callback is over."""
        with self._changed:
            self._changed.notify_all()


def _callback_runs():
    return any(thread.in_callback for thread in list(_threads.values()))


_turn = _Turn()
#: what `current` tells in an atomic block, and in a callback
ATOMIC, CALLBACK = "atomic", "callback"
_guard = types.SimpleNamespace(thread=None, told=False)
_ages = itertools.count(1)
_counts = {
    "commits": 0, "aborts": 0, "exclusives": 0, "sequentials": 0, "strays": 0, "seconds_alone": 0.0, "seconds_lost": 0.0,
    "seconds_running": 0.0, "exclusive_reasons": {}, "exclusive_seconds": {},
}  # fmt: skip


class Abort(BaseException):
    """Never raised: no attempt is ever rolled back."""


class PerThread:
    """What each thread has for itself; ``make()`` returns it when the thread first asks."""

    def __init__(self, make, /):
        self._make = make
        self._by_thread = {}
        forks.begin_by(self.begin_anew)

    def mine(self):
        """This thread's."""
        thread = thread_ident()
        found = self._by_thread.get(thread)
        if found is None:
            found = self._by_thread[thread] = self._make()
        return found

    def begin_anew(self):
        """In the child of a fork."""
        thread = thread_ident()
        self._by_thread = {mine: what for mine, what in self._by_thread.items() if mine == thread}


class Transaction:
    """``function(*args)`` as one transaction; it commits after its predecessor."""

    __slots__ = ("function", "args", "age", "commit_number", "done")

    def __init__(self, function, args, predecessor=None):
        self.function = function
        self.args = args
        self.age = next(_ages)
        self.commit_number = 0
        self.done = False

    def run(self, alone=False):
        """Run to the commit, alone as always; return or raise what the function did."""
        if in_transaction():
            raise RuntimeError("a transaction cannot run inside another one")
        if self.done:
            raise RuntimeError("this transaction has been committed")
        with _turn:
            thread = _this.thread
            thread.transaction = self
            thread.deferred = []
            try:
                return self.function(*self.args)
            finally:
                _commit(thread)
                self.done = True
                _counts["commits"] += 1
                self.commit_number = _counts["commits"]


class Queue:
    """Transactions that wait to be run, one after the other."""

    def __init__(self):
        self._ready = collections.deque()
        self._ended = 0  # so many times has a transaction raised
        self._workers = 0
        self._executed = 0

    def add(self, f, /, *args, **kwds):
        """Add ``f(*args, **kwds)`` as one transaction.  From inside a transaction it counts from that one's commit."""
        parent = current()
        call = functools.partial(contextvars.copy_context().run, f, *args, **kwds)
        if getattr(parent, "queue", None) is self:
            parent.added.append(call)
        else:
            defer(self._put, call)

    def _put(self, call):
        self._ready.append(_Item(self, call))

    def _run(self, limit, start, waiting):
        """Run transactions until none is left, or one has raised; return its exception, or None.

        Args:
            waiting: calls (function, arguments) to be made between them, as transactions too; or None.
        """
        self._workers += 1
        ended = self._ended
        try:
            while True:
                # Other threads may run the same queue: which is next, and whether it is the last, is part of its turn.
                with _turn:
                    if self._ended != ended:
                        return None
                    if waiting:
                        function, args = waiting.pop(0)
                        item = _Item(self, functools.partial(function, *args))
                    elif self._ready:
                        item = self._ready.popleft()
                        self._executed += 1
                    else:
                        return None
                    try:
                        item.run()
                    except BaseException as e:
                        self._ended += 1
                        self._ready.clear()
                        return e
                    for call in item.added:
                        self._put(call)
        finally:
            self._workers -= 1


class _Item(Transaction):
    __slots__ = ("queue", "added")

    def __init__(self, queue, call):
        super().__init__(call, ())
        self.queue = queue
        self.added = []


def current():
    """The Transaction of this thread, or None."""
    return _this.thread.transaction


def in_transaction():
    """Is this thread in a transaction?"""
    return current() is not None


def defer(action, *args):
    """Call at commit, in order; at once outside a transaction."""
    if in_transaction():
        _this.thread.deferred.append((action, args))
    else:
        action(*args)


def on_abort(action, *args):
    """No attempt is rolled back here."""


def exclusive(why, usual=True):
    """Every transaction runs alone here."""


irrevocable = exclusive_anew = exclusive


def own(obj):
    """Nobody else runs: nothing to lock."""


share = open_all = open_items = change = own


def add_to(obj, number):
    """Likewise."""


look_into = add_to


def ask_main(request):
    """Any thread may do anything while the others wait for their turn, but for what only the main thread may do."""
    request()


def serve():
    """Nothing is ever asked of a thread."""


def handlers():
    """Those of signals that are in Python, by number."""
    found = {signum: signal.getsignal(signum) for signum in signal.valid_signals()}
    return {int(signum): handler for signum, handler in found.items() if callable(handler)}


def exchange_handlers(exchanges):
    """Where a signal has one handler it has another from here on: number -> (this, that).  One after the other."""
    for signum, (this, that) in exchanges.items():
        if signal.getsignal(signum) is this:
            signal.signal(signum, that)


def has_lent():
    """Nobody else runs while a transaction waits."""
    return False


in_turn = None  # so there is nothing to take back


def forward_signal(signum, thread):
    """From here on `to_guard` hands the signal to that thread."""
    _guard.thread = thread


def to_guard(signum, frame):
    """A handler of signals: another thread sees to it."""
    _guard.told = True
    signal.pthread_kill(_guard.thread, signum)


def await_signal(signum, seconds):
    """Wait for the signal; was it the main thread that had taken it?

    Nobody comes back here while C code keeps the GIL, so what is to happen `seconds` later is the caller's affair.
    """
    signal.sigwait({signum})
    told, _guard.told = _guard.told, False
    return told


def stand_down():
    """Nobody is waiting to kill this process."""


def receive(put_back, key, function, *args):
    """A call that nothing will take back."""
    return function(*args)


def guarded(function):
    """No C code can see what another transaction changes meanwhile; return the function."""
    return function


def fresh(obj):
    """Nothing to declare; return the object."""
    return obj


def is_fresh(obj):
    """Nobody else can be using it."""
    return True


def is_exclusive():
    """Does this thread run alone?"""
    return in_transaction()


def keeps_others_waiting():
    """There are no others."""
    return False


def is_only_thread():
    """They run one at a time."""
    return True


def puts_off():
    """Nothing waits for a commit."""
    return False


def is_hidden(code):
    """No Python code stands in for C functions."""
    return False


def is_unwinding():
    """Nothing is ever rolled back."""
    return False


def after_release(function, *args):
    """What a transaction has held dies where nobody refers to it any more."""
    return False


def atomic_enter():
    """Exclude all transactions; False if this thread is in one already."""
    if in_transaction():
        return False
    _turn.__enter__()
    thread = _this.thread
    thread.transaction = ATOMIC
    thread.deferred = []
    return True


def atomic_exit():
    """Let transactions run again."""
    try:
        _commit(_this.thread)
    finally:
        _turn.__exit__()


def run_callback(function, *args):
    """Call it as a transaction of a loop's: no atomic block and no transaction of a queue's runs meanwhile, but callbacks of other loops."""
    thread = _this.thread
    if thread.transaction is not None:
        function(*args)  # the loop runs in a transaction
        return
    try:
        thread.in_callback = True
        if _turn.wanted:
            _turn.wait_in_callback()
        thread.transaction = CALLBACK
        thread.deferred = []
        function(*args)
    finally:
        _commit(thread)
        thread.callbacks += 1
        thread.in_callback = False
        if _turn.wanted:
            _turn.tell()


def _commit(thread):
    thread.transaction = None
    deferred, thread.deferred = thread.deferred, ()
    for action, args in deferred:
        action(*args)


def settle():
    """Finalizers run where they begin."""


def begin_collecting():
    """The interpreter goes on collecting garbage."""


def end_collecting():
    """It did."""


def collect_garbage():
    """Beside others there is nobody."""
    gc.collect()


def set_allowance(seconds):
    """Nobody is rolled back."""


def set_sequential(threads):
    """They always are."""
    return 1


def stats():
    """Counts since the start: commits; the others stay 0."""
    return _counts | {"commits": _counts["commits"] + sum(thread.callbacks for thread in list(_threads.values()))}


def running():
    """Nobody else can ask while one runs."""
    return []


def inject_aborts(rate, seed):
    """There is nothing to abort."""
    if not 0 <= rate < 1:
        raise ValueError("the rate of injected aborts must be in [0, 1)")


def bias(obj):
    """Nothing is locked."""
    return False


def step_in():
    """Nothing is shared by threads that anything would have to be done for."""
    return False


def step_back(stood_by):
    """See `step_in`."""


def record_history(on):
    """Nothing is decided: one after the other."""


def recorded_history():
    """Nothing was decided."""
    return []


def inject_delays(rate, seconds):
    """Nobody can come in between."""
    if not (0 <= rate < 1 and 0 <= seconds < 1):
        raise ValueError("the rate and the seconds of injected delays must be in [0, 1)")


def rehearse():
    """No attempt will be rolled back."""
    return False


def switch_barriers(on):
    """There are no barriers."""


def log_open(path, limit=0):
    """A log without conflicts: the header of the C7 format."""
    header = b"STMGC-C7-PROF01\n"
    with open(path, "wb") as file:
        file.write(header)
    with contextlib.suppress(OSError), open(f"{path}.1", "rb") as older:
        if older.read(len(header)) == header:
            os.unlink(older.name)  # of an earlier log


def log_losses():
    """There are no conflicts."""
    return []


def log_close():
    """Nothing is open."""
