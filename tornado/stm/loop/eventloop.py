"""The asyncio event loop whose callbacks, timers and file descriptor events are transactions.

A subclass of asyncio's own selector loop.  Its transports, servers, streams and ``sock_*`` methods are asyncio's, and have
barriers like a user's code; what is replaced here is where work is queued and what waits for it.  Methods without
``@trusted`` are ordinary code too: their state (the readers and writers of a descriptor, a handle's flags) is locked and
undone like any other, and what leaves the process's memory is deferred to the commit.
"""

import _thread
import asyncio
import contextlib
import contextvars
import functools
import selectors
import socket
import threading
import weakref
from asyncio import events, futures
from concurrent.futures import Executor, ThreadPoolExecutor

from .. import activation, core
from ..core import trusted
from ..patches import table
from ..patches.threads import Job
from ..transaction.apart import in_transaction
from . import signals, subprocesses  # noqa: F401, the latter is what patches name
from .futures import use_engine_futures
from .graceful import GRACE, EndsGracefully, without_our_frames
from .scheduler import Scheduler, Watch


class _ThreadSafeHandle(getattr(events, "_ThreadSafeHandle", events.Handle)):
    """What `call_soon_threadsafe` returns.  A thread that runs no transactions may cancel it as well.

    It does so in a transaction, as all that touches a handle: who comes first, it or the callback, or another one that cancels it, is
    decided as between any others, and it waits while the callback runs.
    """

    __slots__ = ("_running",)

    def __init__(self, callback, args, loop, context=None):
        events.Handle.__init__(self, callback, args, loop, context)
        self._running = _thread.allocate_lock()  # by an attempt to run it, which gives it back however it ends
        if self._source_traceback:
            del self._source_traceback[-1]

    def cancel(self):
        """Do not call back; has no effect once that has begun."""
        self._wait()
        in_transaction(events.Handle.cancel, self)

    def cancelled(self):
        """Has it been cancelled?"""
        self._wait()
        return in_transaction(events.Handle.cancelled, self)

    @trusted
    def _wait(self):
        """In a thread: until the callback has run, also where that sleeps and lets others go on."""
        if not core.in_transaction():
            self._running.acquire()
            self._running.release()

    @trusted
    def _begin(self):
        if core.in_transaction() and self._running.acquire(blocking=False):
            core.defer(self._running.release)
            core.on_abort(self._running.release)

    def _run(self):
        self._begin()
        events.Handle._run(self)


class _Transports:
    """Which transport has a descriptor, as asyncio asks for it.  References are weak, and call nothing back when one dies."""

    def __init__(self):
        self._references = {}

    def __setitem__(self, descriptor, transport):
        self._references[descriptor] = weakref.ref(transport)

    def __delitem__(self, descriptor):
        del self._references[descriptor]

    def get(self, descriptor):
        reference = self._references.get(descriptor)
        return None if reference is None else reference()


@trusted
def _polls_by_itself(timeout=None):
    """In the place of the selector's ``select``: whoever runs a loop's rounds in its place would wait here for what it is never told."""
    raise RuntimeError(
        "the rounds of a tornado.stm loop cannot be run from outside, as nest_asyncio does to run a loop that is running: "
        "do without nest_asyncio, await instead"
    )


class TransactionalEventLoop(EndsGracefully, asyncio.SelectorEventLoop):
    """An event loop that runs its callbacks on several threads, as if one after the other.

    Args:
        threads: how many threads run transactions, the caller of ``run_forever`` among them.
        selector: not used, but closed with the loop.
    """

    def __init__(self, threads, selector=None):
        activation.activate()
        use_engine_futures()
        signals.learn_handlers()
        table.apply("loop")  # it finds `signals`
        self._scheduler = Scheduler(self, threads)
        self._dispatcher = self._scheduler.dispatcher
        self._watches = {}
        super().__init__(selector)
        with contextlib.suppress(AttributeError):  # one of the program's may have no room for it
            self._selector.select = _polls_by_itself
            self._selector.get_key = self._selector_key
        self._transports = _Transports()

    # -- Callbacks and timers ------------------------------------------------------------------------------------------

    def _call_soon(self, callback, args, context):
        if not self._debug:
            return core.call_soon(self._dispatcher, self, callback, args, context)
        handle = events.Handle(callback, args, self, context)
        if handle._source_traceback:
            del handle._source_traceback[-1]
        core.submit_soon(self._dispatcher, handle)
        return handle

    def call_soon_threadsafe(self, callback, *args, context=None):
        """Like `call_soon`; for threads that run no transactions too."""
        self._check_closed()
        if self._debug:
            self._check_callback(callback, "call_soon_threadsafe")
        handle = _ThreadSafeHandle(callback, args, self, context)
        if events._get_running_loop() is self:
            core.submit_soon(self._dispatcher, handle)  # in its turn among those of call_soon
        else:
            core.defer(self._dispatcher.submit, handle)
        return handle

    def call_at(self, when, callback, *args, context=None):
        """Like `call_later`, with an absolute time of the loop's clock in seconds."""
        if when is None:
            raise TypeError("when cannot be None")
        self._check_closed()
        if self._debug:
            self._check_thread()
            self._check_callback(callback, "call_at")
            timer = events.TimerHandle(when, callback, args, self, context)
            timer._scheduled = True
        else:
            timer = core.new_handle(self, callback, args, context, when)
        core.defer(self._dispatcher.arm, timer)
        return timer

    def _handle(self, callback, args):
        if self._debug:
            return events.Handle(callback, args, self, None)
        return core.new_handle(self, callback, args, None)

    def set_debug(self, enabled):
        """See asyncio.  The engine has to know."""
        core.exclusive("debug mode")
        super().set_debug(enabled)
        self._dispatcher.debug = bool(enabled)

    def _set_coroutine_origin_tracking(self, enabled):
        """Does nothing: a callback in debug mode has what it makes know where, on its own thread (`futures.run_slowly`)."""

    def _timer_handle_cancelled(self, handle):
        if handle._scheduled:
            core.defer(self._dispatcher.timer_cancelled, handle)

    @property
    def _scheduled(self):
        """The timers that wait: asyncio keeps them under this name, and tools look into it which let time go by in a test."""
        core.exclusive("looking at all timers of a loop")
        return self._dispatcher.timers()

    @_scheduled.setter
    def _scheduled(self, timers):
        """Asyncio's loop is being made, which begins with none."""

    def _check_thread(self):
        # Its transactions are on the loop's thread, whichever that is, and so are those of a queue that it waits for; not another loop's.
        if self._thread_id is None or (core.in_transaction() and events._get_running_loop() in (None, self)):
            return
        super()._check_thread()

    # -- File descriptors ----------------------------------------------------------------------------------------------
    # What the kernel is asked for follows the readers and writers at commit.  An event may meanwhile have been told by
    # what an attempt had written: so it is looked at again after an abort.

    @staticmethod
    def _number(of):
        fd = of
        if not isinstance(fd, int):
            try:
                fd = int(of.fileno())
            except (AttributeError, TypeError, ValueError):
                raise ValueError(f"Invalid file object: {of!r}") from None
        if fd < 0:
            raise ValueError(f"Invalid file descriptor: {fd}")
        return fd

    def _watch(self, of):
        """That of the descriptor, which is about to have a reader or writer."""
        fd = self._number(of)
        watch = self._watches.get(fd)
        if watch is None:
            watch = self._watches[fd] = Watch(fd)
        if watch.reader is watch.writer is None:
            core.check_pollable(fd)
            watch.of = of
        return watch

    def _watch_of(self, of):
        """The same, or None; also of an object that has been closed meanwhile, as upstream's selector knows it."""
        try:
            return self._watches.get(self._number(of))
        except ValueError:
            for watch in self._watches.values():
                if watch.of is of:
                    return watch
            raise

    def _selector_key(self, of):
        """In the place of the selector's ``get_key``, by which transports say in their text whether they wait."""
        watch = self._watch_of(of)
        waits = 0 if watch is None else (watch.reader and selectors.EVENT_READ or 0) | (watch.writer and selectors.EVENT_WRITE or 0)
        if not waits:
            raise KeyError(f"{of!r} is not registered")
        return selectors.SelectorKey(watch.of, watch.fd, waits, (watch.reader, watch.writer))

    @trusted
    def look_again(self, fd):
        """What has been received from this descriptor is there again, after an abort: its reader is told."""
        watch = self._watches.get(fd)
        if watch is not None:
            self._dispatcher.watch_again(watch)

    def _add_reader(self, fd, callback, *args):
        self._check_closed()
        handle = self._handle(callback, args)
        watch = self._watch(fd)
        replaced = watch.reader
        core.on_abort(self._dispatcher.watch_again, watch)
        watch.reader = handle
        core.defer(self._dispatcher.watch, watch)
        if replaced is not None:
            replaced.cancel()
        return handle

    def _remove_reader(self, fd):
        if self.is_closed():
            return False
        watch = self._watch_of(fd)
        if watch is None or watch.reader is None:
            return False
        handle = watch.reader
        core.on_abort(self._dispatcher.watch_again, watch)
        watch.reader = None
        watch.of = watch.of if watch.writer else None
        core.defer(self._dispatcher.watch, watch)
        handle.cancel()
        return True

    def _add_writer(self, fd, callback, *args):
        self._check_closed()
        handle = self._handle(callback, args)
        watch = self._watch(fd)
        replaced = watch.writer
        core.on_abort(self._dispatcher.watch_again, watch)
        watch.writer = handle
        core.defer(self._dispatcher.watch, watch)
        if replaced is not None:
            replaced.cancel()
        return handle

    def _remove_writer(self, fd):
        if self.is_closed():
            return False
        watch = self._watch_of(fd)
        if watch is None or watch.writer is None:
            return False
        handle = watch.writer
        core.on_abort(self._dispatcher.watch_again, watch)
        watch.writer = None
        watch.of = watch.of if watch.reader else None
        core.defer(self._dispatcher.watch, watch)
        handle.cancel()
        return True

    # -- Signals -------------------------------------------------------------------------------------------------------
    # The interpreter writes signal numbers to the self-pipe; the scheduler reads them between transactions.

    def _make_self_pipe(self):
        self._ssock, self._csock = socket.socketpair()
        self._ssock.setblocking(False)
        self._csock.setblocking(False)
        self._internal_fds += 1
        self._dispatcher.add_special(self._ssock.fileno(), self._read_from_self)

    def _close_self_pipe(self):
        if self._ssock.fileno() >= 0:  # it may have been finalized before a loop that nobody has closed
            self._dispatcher.remove_special(self._ssock.fileno())
        self._ssock.close()
        self._csock.close()
        self._ssock = self._csock = None
        self._internal_fds -= 1

    @trusted
    def _add_callback_signalsafe(self, handle):
        self._dispatcher.submit(handle)

    # Only the main thread may change handlers.

    @trusted
    def add_signal_handler(self, sig, callback, *args):
        """Call back when the signal arrives.  Raises ValueError or RuntimeError for a signal that cannot be handled."""
        self.on_main(super().add_signal_handler, sig, callback, *args)

    @trusted
    def remove_signal_handler(self, sig):
        """Forget the handler; True if there was one."""
        return self.on_main(super().remove_signal_handler, sig)

    @trusted
    def on_main(self, function, *args):
        """Call this on the main thread, which is between two transactions; return or raise what it does.

        Of a loop on another thread it is called here, and changes nothing of signals, as it may not on upstream either.
        """
        core.exclusive("a change of signal handlers")
        main = threading.main_thread().ident
        if not core.in_transaction() or _thread.get_ident() == main or self._thread_id != main:
            return function(*args)
        return self._scheduler.on_main(function, args)

    # -- Threads -------------------------------------------------------------------------------------------------------

    def run_in_executor(self, executor, func, *args):
        """Run the function on a thread of the executor, which gets it when the transaction commits."""
        if not core.in_transaction():
            return super().run_in_executor(executor, func, *args)
        self._check_closed()
        if self._debug:
            self._check_callback(func, "run_in_executor")
        if executor is None:
            executor = self._get_default_executor()
        if not _is_pool(executor):
            return super().run_in_executor(executor, func, *args)  # Tornado's dummy one calls the function at once
        future = self.create_future()
        if type(executor) is ThreadPoolExecutor:
            if executor._shutdown:
                raise RuntimeError("cannot schedule new futures after shutdown")
            work = Work(self, func, args, future)
            future.add_done_callback(work.cancel)
            core.defer(work.start, executor)
        else:
            core.defer(self._submit_to_executor, executor, func, args, future, contextvars.copy_context())
        return future

    def _get_default_executor(self):
        executor = self._default_executor
        self._check_default_executor()
        if executor is None:
            executor = self._default_executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
        return executor

    @trusted
    def _submit_to_executor(self, executor, func, args, future, context):
        self._dispatcher.submit(events.Handle(_hand_over, (self, executor, func, args, future), self, context))

    # -- Run and stop --------------------------------------------------------------------------------------------------

    def run_forever(self):
        """Run until `stop` is called, or SIGTERM ends the program gracefully (if it has no handler of its own).

        Raises:
            TransactionError: inside a transaction or an atomic block.
        """
        self._check_outside()
        self._run_forever_setup()
        try:
            with self._sigterm_drains():
                self._scheduler.run()
        except BaseException as e:
            without_our_frames(e)
            raise
        finally:
            self._run_forever_cleanup()

    def _drain(self):
        core.defer(self._scheduler.drain, GRACE, self._handles_requests, self._cancel_all)

    def stop(self):
        """Run what is ready at the commit of this transaction, then return from `run_forever`; of a loop that does not run yet: when that is
        called.
        """
        core.end_chain(self._dispatcher)  # what has been scheduled before runs, what is scheduled from here on does not
        core.defer(self._dispatcher.stop)

    def close(self):
        """Release the descriptors of the loop.  Raises RuntimeError while it runs."""
        if self.is_closed():
            return
        super().close()
        self._scheduler.close()


class Work:
    """A function on its way to a pool of threads, and its result on the way back to the future of a transaction.

    The pool's threads are no transactions, so no transaction touches what they do: it hands over, or cancels, when it commits.
    A thread that the pool starts for it inherits the context of the transaction, as of whoever calls `submit`.
    """

    def __init__(self, loop, func, args, future):
        self.loop, self.func, self.args, self.future = loop, func, args, future
        self.context, self.submitted = contextvars.copy_context(), None

    @trusted
    def start(self, executor):
        """At commit: hand it over.  Pools have locks, which the program may have taken as well."""
        core.leave_mutexes()
        job, args = Job(self.func), self.args
        self.func = self.args = None
        tell = job.told = functools.partial(_tell, self.loop, self.future)
        try:
            self.submitted = self.context.run(executor.submit, job, *args)
        except BaseException as e:
            self.loop._dispatcher.submit(events.Handle(_fail, (self.future, e), self.loop, None))
            return
        if job.told is not None:
            self.submitted.add_done_callback(tell)

    def cancel(self, future):
        """The future is done: was it cancelled?"""
        if future.cancelled():
            core.defer(self._cancel)

    @trusted
    def _cancel(self):
        if self.submitted is not None:
            self.submitted.cancel()


@trusted
def _tell(loop, future, submitted):
    """On the thread of the pool that has done it, or on that which cancels it: what has come of it is for the transaction's future.

    The pool's future keeps its callbacks when it is done: so none of them refers to it, and what it has dies with the last that asks.
    """
    if not loop.is_closed():
        loop.call_soon_threadsafe(_take_over, submitted, future)


# A pool that has no thread for what it has been given raises that, and may come to it later.


def _fail(future, exception):
    if not future.done():
        future.set_exception(exception)


def _take_over(submitted, future):
    if not future.done():
        futures._copy_future_state(submitted, future)


def _is_pool(executor):
    """Is it the standard library's, or derived from one of those?  They hand functions to their threads or processes."""
    return any(base.__module__.startswith("concurrent.futures.") and base is not Executor for base in type(executor).__mro__)


def _hand_over(loop, executor, func, args, future):
    """A transaction of its own, exclusive: nobody knows what this executor does."""
    core.exclusive("handing a function to an executor")
    if future.cancelled():
        return
    try:
        submitted = super(TransactionalEventLoop, loop).run_in_executor(executor, func, *args)
    except BaseException as e:
        future.set_exception(e)
        return
    futures._chain_future(submitted, future)


for _method in ("run_forever", "stop", "close", "_make_self_pipe", "_close_self_pipe"):
    trusted(getattr(TransactionalEventLoop, _method))
for _method in (
    "_process_self_data", "_handle_signal", "_write_to_self", "_read_from_self", "_run_forever_setup",
    "_run_forever_cleanup",
):
    trusted(getattr(TransactionalEventLoop, _method))
