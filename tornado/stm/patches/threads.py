"""Whichever thread runs them, the transactions of a loop are on the loop's thread, as callbacks are elsewhere.

What Python and C code tie to a thread, and what becomes of that here:

==========================================  ==========================  =====================================================
what                                        tied by                     here
==========================================  ==========================  =====================================================
sqlite3 connections, cursors                the thread that made them   used on any of the loop's (databases.py, connection.c)
SQLAlchemy's asyncio engines                the stack of the thread     irrevocable, on the loop's thread (fibers.py, fiber.c)
other greenlets                             the stack of the thread     runs alone, on the loop's thread (anchor.c)
tkinter, curses, blobs of sqlite3           the thread that made them   the same
C code of other projects (curl, Qt, ...)    nobody knows                the same, also by ``ctypes``
``threading.local``                         a key of the thread         all threads of a loop have one (local.c)
``threading.get_ident``, ``get_native_id``  the thread                  those of the loop's thread, in transactions
``time.thread_time``                        the CPU time of the thread  that of all the loop's threads, in transactions
running loop, current task                  the state of the thread     set on each (scheduler.py)
hooks of asynchronous generators            the state of the thread     the loop's, on each; the program sets them for one
origins of coroutines                       the state of the thread     in debug mode, on each (scheduler.py)
contextvars, decimal contexts               the state of the thread     those of the callback, on any thread
handled exception                           the state of the thread     the transaction's: it ends with that
recursion limit                             the interpreter             as ever
signal handlers, ``set_wakeup_fd``          the main thread only        set there (signals.py, `loop.on_main`)
``sys.settrace``, debuggers                 the thread                  the thread that has stopped; what it runs, runs alone
TLS objects                                 one thread at a time        owned by the transaction (tls.py)
threads that a transaction starts           nothing                     begin when it commits (`Gate`)
locale, warnings, umask, directory, GC      the process                 as ever
``RUSAGE_THREAD``, CPU affinity             the thread                  those of whichever thread runs
==========================================  ==========================  =====================================================

A thread that is none of the loop (an executor's) is told what it is told elsewhere.
"""

import _thread
import asyncio
import bdb  # noqa: F401, what it has is changed
import contextlib
import functools
import sys
import threading
import time
import types

from .. import core, forks
from ..core import trusted
from .libraries import with_globals

_thread_time_ns = time.thread_time_ns
_clock_gettime_ns = time.clock_gettime_ns


@trusted
def _loop():
    """The loop whose transaction this is, or one of whose threads does what was put off to a commit (it starts threads of a pool); or None."""
    loop = asyncio._get_running_loop() if core.in_transaction() or _thread.get_ident() in _workers else None
    return loop if getattr(loop, "_thread_id", None) is not None else None


@trusted
def get_ident():
    """In the place of ``threading.get_ident``, which `threading.current_thread` asks too."""
    loop = _loop()
    return _thread.get_ident() if loop is None else loop._thread_id


@trusted
def get_native_id():
    """In the place of ``threading.get_native_id``."""
    loop = _loop()
    return _thread.get_native_id() if loop is None else loop._scheduler.cpu.native_id


class Worker:
    """A thread that runs transactions: to the program it is none.

    `threading` does not list it.  Whoever walks down the frames below a callback finds the main module there, as on the main thread: some
    libraries look for the first module, or for names of others.

    Args:
        function: what it calls.
        name: as the system shows it.
    """

    def __init__(self, function, name):
        self._function, self.name = function, name
        self._handle = _thread._ThreadHandle()

    @trusted
    def start(self):
        """Raises RuntimeError if the system has no more threads."""
        code = _call.__code__.replace(co_name="<module>", co_qualname="<module>")
        bottom = types.FunctionType(code, vars(sys.modules["__main__"]))
        _thread.start_joinable_thread(functools.partial(bottom, self._run), handle=self._handle, daemon=True)

    @trusted
    def is_alive(self):
        return not self._handle.is_done()

    @trusted
    def join(self, timeout=-1):
        """Wait for its end, so many seconds at most."""
        self._handle.join(timeout)

    @property
    def ident(self):
        """As of a ``threading.Thread``."""
        return self._handle.ident

    @trusted
    def _run(self):
        _workers[_thread.get_ident()] = self
        if hasattr(_thread, "set_name"):
            _thread.set_name(self.name)
        if threading._trace_hook:
            sys.settrace(threading._trace_hook)
        if threading._profile_hook:
            sys.setprofile(threading._profile_hook)
        try:
            self._function()
            core.settle()  # no code of the program follows, where finalizers that have been put off would run
        except BaseException as e:
            threading.excepthook(threading.ExceptHookArgs((type(e), e, e.__traceback__, None)))
        finally:
            del _workers[_thread.get_ident()]


#: those that run, by their numbers: debuggers ask for one that they can tell from others
_workers = {}


@trusted
def _call(function):
    function()


#: of all loops
_cpu_time_lock = _thread.allocate_lock()
forks.free(_cpu_time_lock)


class CpuTime:
    """The CPU time that the threads of a loop use.  `native_id` is that of the loop's own."""

    def __init__(self):
        self.native_id = _thread.get_native_id()
        self._clocks = [time.pthread_getcpuclockid(_thread.get_ident())]
        self._ended = 0

    @trusted
    def begins(self):
        """This thread begins to run transactions of the loop."""
        with _cpu_time_lock:
            self._clocks.append(time.pthread_getcpuclockid(_thread.get_ident()))

    @trusted
    def ends(self):
        """It does so no more."""
        with _cpu_time_lock:
            self._clocks.remove(time.pthread_getcpuclockid(_thread.get_ident()))
            self._ended += _thread_time_ns()

    @trusted
    def total(self):
        """In nanoseconds."""
        with _cpu_time_lock:
            return self._ended + sum(map(_clock_gettime_ns, self._clocks))


@trusted
def thread_time_ns():
    """Twin of ``time.thread_time_ns``."""
    loop = _loop()
    return _thread_time_ns() if loop is None else loop._scheduler.cpu.total()


@trusted
def thread_time():
    """Twin of ``time.thread_time``."""
    return thread_time_ns() / 10**9


def for_threads_to_see(change):
    """In the place of a method of ``threading.Event`` that changes its flag, which threads look at without a lock.

    They must not see what an attempt has set that is rolled back: so it is irrevocable from there on.
    """

    @functools.wraps(change)
    def method(self):
        core.irrevocable("a change of an Event, which threads look at without a lock")
        change(self)

    return method


def starting(start):
    """In the place of ``threading.Thread.start``: what a transaction has started exists at once, and begins at the commit.

    So nobody sees what an attempt has started that is rolled back, and the transaction need not run alone.  Whoever waits for the
    thread runs alone, and has it begin by that.  One that runs alone already has it begin at once, and does not lend its turn for that,
    as it would if the library's own function waited for the thread's beginning (waiting.c).
    """
    if start.__module__ != "threading" or start.__closure__:
        return start  # somebody else's, which calls this one's original
    # The library's own, but for how the thread is started, and for a lock that `Starting` does without: threads that end wait for
    # it, and transactions that start others would wait for those.
    start_transactionally = with_globals(
        start, _active_limbo_lock=contextlib.nullcontext(), _start_joinable_thread=start_at_commit
    )

    @functools.wraps(start)
    def method(self):
        if not core.in_transaction():
            start(self)
            return
        try:
            start_transactionally(self)
        finally:
            # Not before: that looks at the flag, whose lock the thread has while it sets it.
            gate = vars(self).pop("_gate", None)
            if gate is not None:
                core.defer(gate.open)

    return method


def start_at_commit(bootstrap, handle, daemon):
    """In the place of ``_thread.start_joinable_thread``, for the method `bootstrap` of a thread."""
    thread = bootstrap.__self__
    handle = _thread._ThreadHandle()  # that of an attempt before has been used
    thread._os_thread_handle = handle
    gate = Gate(bootstrap)
    gate.start(handle, daemon)
    thread._gate = gate
    # What the thread itself sets first of all.  Of the flag, only those know who have the object.
    thread._ident, thread._native_id, thread._started._flag = handle.ident, gate.native_id, True


class Gate:
    """Where a thread waits for the transaction that has started it."""

    @trusted
    def __init__(self, bootstrap):
        self.bootstrap, self.native_id = bootstrap, None
        self.reached, self.opened = _thread.allocate_lock(), _thread.allocate_lock()
        self.reached.acquire()
        self.opened.acquire()

    @trusted
    def start(self, handle, daemon):
        """Start the thread, which comes as far as here until it is let through.  Raises what starting it raises."""
        _thread.start_joinable_thread(self.pass_through, handle=handle, daemon=daemon)
        core.await_lock(self.reached)
        core.on_abort(self.close)

    @trusted
    def pass_through(self):
        """What the thread runs."""
        self.native_id = _thread.get_native_id()
        self.reached.release()
        self.opened.acquire()
        bootstrap, self.bootstrap = self.bootstrap, None
        if bootstrap is not None:
            functools.partial(bootstrap)()  # by C code, where it is seen that a thread begins to run the program's (bystanders.c)

    @trusted
    def open(self):
        """The transaction commits, or runs alone from here on."""
        core.leave_mutexes()  # that of `threading`, which this thread needs, is one of them
        self.opened.release()

    @trusted
    def close(self):
        """The attempt is rolled back: what it has made ends with it, not on the other thread."""
        self.bootstrap = None
        self.opened.release()


class Starting:
    """In the place of the dict of threads that have been started and do not run yet, in `threading`.

    Starting one conflicts with nothing.  A transaction that looks at all of them does so exclusively.
    """

    def __init__(self, threads):
        self._threads = threads

    @trusted
    def __setitem__(self, thread, value):
        self._threads[thread] = value
        core.on_abort(self._threads.pop, thread, None)

    @trusted
    def __delitem__(self, thread):
        del self._threads[thread]

    @trusted
    def __contains__(self, thread):
        core.exclusive("a look at all threads")
        return thread in self._threads

    @trusted
    def __iter__(self):
        core.exclusive("a look at all threads")
        return iter(list(self._threads))

    @trusted
    def __len__(self):
        core.exclusive("a look at all threads")
        return len(self._threads)

    @trusted
    def values(self):
        """Those threads."""
        core.exclusive("a look at all threads")
        return list(self._threads.values())

    @trusted
    def clear(self):
        """In the child of a fork."""
        self._threads.clear()


class Numbering:
    """In the place of a counter from which threads or executors get their names: it conflicts with nothing.

    The numbers have gaps where attempts were rolled back.
    """

    def __init__(self, count):
        functools.update_wrapper(self, count)
        self.__module__ = getattr(count, "__module__", "")
        self._count = count

    @trusted
    def __call__(self):
        return self._count()


class Job(functools.partial):
    """A `function` on its way to a pool of threads, and in `told` who is to be called with the pool's future when that is done.

    Where the pool makes no work item of it (somebody's ``submit`` has wrapped it), it is called itself, in C: no traceback shows it.
    """

    def __init__(self, function):
        self.function, self.told = function, None


def awaited(make):
    """In the place of the constructor of a pool's work items: who waits for a `Job` does so before a thread of the pool can have it.

    So it is the thread that has done it which tells, in the order in which it does what it is given.  Who asked for that only when it has been
    done would be told on a thread of the loop, and could be told of the next one first.
    """

    @functools.wraps(make)
    def __init__(self, future, task):
        job = task[0] if type(task) is tuple and task else None
        if type(job) is Job:
            future.add_done_callback(job.told)
            job.told = None
            task = (job.function, *task[1:])
        make(self, future, task)

    return __init__


class ForDebuggers:
    """In the place of the module `threading` in `bdb`, which follows one thread: the one that stopped, not the loop's."""

    @staticmethod
    @trusted
    def current_thread():
        ident = _thread.get_ident()
        return threading._active.get(ident) or _workers.get(ident)


TWINS = {
    time.thread_time: thread_time,
    time.thread_time_ns: thread_time_ns,
}
