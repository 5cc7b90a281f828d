"""The IOLoop of Tornado 4 on PyPy-STM: its callbacks, timers and file descriptor events are transactions.

    IOLoop.configure("tornado.platform.pypystm.STMIOLoop", threads=4)

For Python 2.7 and Tornado 4.x.  PyPy-STM's module `transaction` runs transactions in parallel on several threads; what
they do is what they would have done one after the other.

The loop is upstream's, but that where upstream polls, a *round* runs:

1. the callbacks scheduled so far and the timers that are due, as transactions;
2. a poll;
3. the events that it found, as transactions.

The transactions of a step are in *strands*: those of one strand run one after the other in upstream's order, those of
different strands in any order and in parallel.  Every event begins a strand, and so does what is given to
`STMIOLoop.add_transaction`; what a transaction schedules belongs to its own strand.  All that is scheduled from outside
of transactions (before the loop starts, by other threads, by signal handlers) is in one.  Code relies on that order: the
chunks of a stream arrive in it, coroutines that `yield gen.moment` take turns in it.

What a transaction schedules it keeps to itself; the loop's thread collects it when the step is over.  So no two
transactions write to the same queue, heap or counter.

Below the loop, "Contention in Tornado": what of Tornado itself would make its transactions wait for each other.
"""

from __future__ import absolute_import, division, print_function

import collections
import datetime
import email.utils
import errno
import functools
import heapq
import itertools
import numbers
import signal
import sys
import thread
import threading
import time
import types

from tornado import httpclient, httputil, stack_context, web
from tornado.concurrent import Future, chain_future
from tornado.http1connection import HTTP1Connection
from tornado.ioloop import IOLoop
from tornado.log import app_log
from tornado.platform.epoll import EPollIOLoop
from tornado.util import errno_from_exception

try:
    import transaction
    transaction.is_atomic
except (ImportError, AttributeError):  # the latter with another module of that name
    raise ImportError("tornado.platform.pypystm needs the module 'transaction' of PyPy-STM")

__all__ = ["STMIOLoop"]

_LONGEST_POLL = 3600.0  # seconds
_MANY_CANCELLED = 512  # timers: from here on the heap is cleaned when they are more than half of it

# The strand of what is scheduled from outside of transactions.  Every other strand is such an object too.
_OUTSIDE = object()

# `_here.transaction`: the innermost _Transaction that this thread runs.
_here = getattr(transaction, "local", threading.local)()

# How many threads can run in parallel.  Interpreters that do not say it have four segments.
_most_threads = getattr(transaction, "getsegmentlimit", lambda: 4)

# The time without becoming inevitable, where the interpreter has it.
_now = getattr(transaction, "time", time.time)


class _Transaction(object):
    """A callback, a timer or an event of a loop, and what it has scheduled."""
    __slots__ = ["loop", "function", "strand", "started", "scheduled", "timers", "cancelled", "log_lines"]

    def __init__(self, loop, function, strand):
        self.loop = loop
        self.function = function
        self.strand = strand
        self.started = False
        self.scheduled = []  # of _Transaction
        self.timers = []  # of _Timer
        self.cancelled = 0  # timers
        self.log_lines = []  # functions that write one

    def run(self):
        # The module `transaction` of some interpreters runs again what an exception left in its queue.
        if self.started:
            return
        self.started = True
        outer = getattr(_here, "transaction", None)
        outer_loop = getattr(IOLoop._current, "instance", None)
        _here.transaction = self
        IOLoop._current.instance = self.loop
        try:
            self.function()
        finally:
            _here.transaction = outer
            IOLoop._current.instance = outer_loop


class _Timer(object):
    """What `call_at` returns.  Without a callback it has been cancelled, or has fired."""
    __slots__ = ["deadline", "callback", "strand"]

    def __init__(self, deadline, callback, strand):
        self.deadline = deadline
        self.callback = callback
        self.strand = strand


class _RoundPoller(object):
    """The epoll object that upstream's loop sees: a poll runs a round."""

    def __init__(self, epoll, run_round):
        self.register = epoll.register
        self.modify = epoll.modify
        self.unregister = epoll.unregister
        self.fileno = epoll.fileno
        self.close = epoll.close
        self.poll = run_round


class STMIOLoop(EPollIOLoop):
    """An epoll loop whose callbacks, timers and events are transactions.

    `threads`: how many run in parallel; by default, as many as the interpreter can.
    `decontend`: whether requests avoid the contention that is in Tornado itself.  Clients see no difference.

    Inside a transaction another loop may be run, by a blocking HTTP client for example: it is part of that transaction.
    """

    def initialize(self, threads=None, decontend=True, **kwargs):
        if threads is None:
            threads = _most_threads()
        if not isinstance(threads, (int, long)) or threads < 1:  # noqa: F821: Python 2 has `long`
            raise ValueError("threads must be a positive integer, not %r" % (threads,))
        if decontend and kwargs.get("time_func") is None:
            kwargs["time_func"] = _now
        super(STMIOLoop, self).initialize(**kwargs)
        self.decontend = decontend
        self._threads = threads
        self._epoll = self._impl
        self._impl = _RoundPoller(self._epoll, self._round)
        # Only the loop's thread takes from these, between transactions.  Other threads and signal handlers append to
        # the first.
        self._ready = collections.deque()  # of _Transaction
        self._timers = []  # a heap of (deadline, number, _Timer)
        self._timer_numbers = itertools.count()
        self._cancelled = 0  # about how many of `_timers`
        self._log_lines = collections.deque()

    def start(self):
        try:
            super(STMIOLoop, self).start()
        finally:
            self._write_log_lines()

    def stop(self):
        if self._running_here() is None:
            super(STMIOLoop, self).stop()
        else:  # the loop is not polling: nobody to wake
            self._running = False
            self._stopped = True

    def close(self, all_fds=False):
        super(STMIOLoop, self).close(all_fds)
        self._ready.clear()
        self._timers = []

    def add_callback(self, callback, *args, **kwargs):
        self._schedule(callback, args, kwargs)

    def add_callback_from_signal(self, callback, *args, **kwargs):
        with stack_context.NullContext():
            self._schedule(callback, args, kwargs)

    def add_transaction(self, callback, *args, **kwargs):
        """Calls the callback in the next round like `add_callback`, but in a strand of its own: perhaps in parallel."""
        self._schedule(callback, args, kwargs, strand=object())

    def call_at(self, deadline, callback, *args, **kwargs):
        if not isinstance(deadline, numbers.Real):
            raise TypeError("Unsupported deadline %r" % (deadline,))
        callback = functools.partial(stack_context.wrap(callback), *args, **kwargs)
        running = self._running_here()
        if running is not None:
            timer = _Timer(deadline, callback, running.strand)
            running.timers.append(timer)
        else:
            timer = _Timer(deadline, callback, _OUTSIDE)
            self._arm(timer)
        return timer

    def remove_timeout(self, timeout):
        if timeout.callback is None:
            return
        timeout.callback = None
        running = self._running_here()
        if running is not None:
            running.cancelled += 1
        else:
            self._cancelled += 1

    def _running_here(self):
        """The transaction of this loop that this thread runs, or None."""
        running = getattr(_here, "transaction", None)
        return running if running is not None and running.loop is self else None

    def _schedule(self, callback, args, kwargs, strand=None):
        """Without a strand, in that of the running transaction."""
        if self._closing:
            return
        callback = functools.partial(stack_context.wrap(callback), *args, **kwargs)
        function = functools.partial(self._run_callback, callback)
        running = self._running_here()
        if running is not None:
            running.scheduled.append(_Transaction(self, function, strand or running.strand))
        else:
            self._ready.append(_Transaction(self, function, strand or _OUTSIDE))
            if thread.get_ident() != self._thread_ident:
                try:
                    self._waker.wake()
                except ValueError:  # closed meanwhile; wakers of Tornado 4.0 say so
                    if not self._closing:
                        raise

    def _arm(self, timer):
        heapq.heappush(self._timers, (timer.deadline, next(self._timer_numbers), timer))

    # The round

    def _round(self, timeout):
        """What upstream's loop calls to poll, with a timeout that knows nothing of our queues.  It gets no events."""
        self._watch_blocking(True)
        self._run_ready()
        if self._running:
            self._watch_blocking(False)
            events = self._epoll.poll(self._poll_timeout())
            self._watch_blocking(True)
            self._run_events(events)
            if not self._running:  # upstream, too, runs what the last events scheduled
                self._run_ready()
        return ()

    def _watch_blocking(self, on):
        """Starts or stops the clock of `set_blocking_signal_threshold`."""
        if self._blocking_signal_threshold is not None:
            signal.setitimer(signal.ITIMER_REAL, self._blocking_signal_threshold if on else 0, 0)

    def _run_ready(self):
        callbacks = [self._ready.popleft() for _ in range(len(self._ready))]
        timers = [_Transaction(self, functools.partial(self._fire, timer), timer.strand) for timer in self._take_due()]
        ready = callbacks + timers
        lines = [_Transaction(self, self._write_log_lines, object())] if self._log_lines else []
        try:
            self._run(ready + lines)
        finally:  # after an exception that ends the loop, the others run when it is started again
            self._ready.extendleft(each for each in reversed(ready) if not each.started)

    def _take_due(self):
        """The timers whose time has come, in the order of their deadlines, taken off the heap."""
        due = []
        if self._cancelled > _MANY_CANCELLED and self._cancelled > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0
        if self._timers:
            now = self.time()
            while self._timers and (self._timers[0][0] <= now or self._timers[0][2].callback is None):
                timer = heapq.heappop(self._timers)[2]
                if timer.callback is not None:
                    due.append(timer)
                else:
                    self._cancelled = max(0, self._cancelled - 1)
        return due

    def _fire(self, timer):
        callback = timer.callback
        if callback is not None:  # nobody has cancelled it in this round
            timer.callback = None
            self._run_callback(callback)

    def _poll_timeout(self):
        """In seconds."""
        if self._ready or self._log_lines:
            return 0.0
        if self._timers:
            return max(0.0, min(self._timers[0][0] - self.time(), _LONGEST_POLL))
        return _LONGEST_POLL

    def _run_events(self, events):
        transactions = []
        for fd, mask in events:
            handler = self._handlers.get(fd)
            if handler is not None:
                function = functools.partial(self._handle_event, fd, mask, handler)
                transactions.append(_Transaction(self, function, object()))
        self._run(transactions)  # after an exception that ends the loop, the next poll finds the others again

    def _handle_event(self, fd, mask, handler):
        if self._handlers.get(fd) is not handler:  # removed in this round, and the number perhaps given to another file
            return
        try:
            handler[1](handler[0], mask)
        except (OSError, IOError) as error:
            if errno_from_exception(error) != errno.EPIPE:  # which says that the client has gone
                self.handle_callback_exception(handler)
        except Exception:
            self.handle_callback_exception(handler)

    def _write_log_lines(self):
        while self._log_lines:
            line = self._log_lines.popleft()
            try:
                line()
            except Exception:
                self.handle_callback_exception(line)

    def _run(self, transactions):
        """Runs them, in parallel but for those of one strand, and collects what they have scheduled.

        An exception that is raised here (KeyboardInterrupt, SystemExit) leaves some of them not started.
        """
        try:
            if transaction.is_atomic():  # this loop was started in a transaction
                for each in transactions:
                    each.run()
            elif transactions:
                _run_in_parallel(_split_into_strands(transactions), self._threads)
        finally:
            for each in transactions:
                self._ready.extend(each.scheduled)
                for timer in each.timers:
                    self._arm(timer)
                self._cancelled += each.cancelled
                self._log_lines.extend(each.log_lines)


def _split_into_strands(transactions):
    """Lists of transactions, in the order in which the strands begin."""
    strands = collections.OrderedDict()
    for each in transactions:
        strands.setdefault(each.strand, []).append(each)
    return list(strands.values())


def _run_in_parallel(strands, threads):
    if hasattr(transaction, "TransactionQueue"):
        queue = transaction.TransactionQueue()
        add = queue.add
        run = functools.partial(queue.run, min(threads, len(strands)))  # it starts threads anew: no more than needed
    else:
        add, run = transaction.add, transaction.run
        if hasattr(transaction, "set_num_threads"):
            transaction.set_num_threads(threads)
    for strand in strands:
        add(_run_strand, strand, 0, add)
    run()


def _run_strand(strand, position, add):
    """Runs one of its transactions and adds the next, which so runs after it."""
    strand[position].run()
    position += 1
    if position < len(strand):
        add(_run_strand, strand, position, add)


# Contention in Tornado
#
# A transaction becomes inevitable, that is, waits for all others that are, and cannot be aborted, when it does anything
# that the interpreter cannot undo.  Each function below avoids one such thing in the transactions of requests, and is
# named for what it replaces.


def _replaces(owner, name):
    """Makes the decorated function stand in for `owner.name` in transactions of loops that decontend.

    It gets the running transaction and the original before the arguments.  Everywhere else the original is called.
    """
    def decorate(replacement):
        original = getattr(owner, name)

        @functools.wraps(original)
        def choose(*args, **kwargs):
            running = getattr(_here, "transaction", None)
            if running is None or not running.loop.decontend:
                return original(*args, **kwargs)
            return replacement(running, original, *args, **kwargs)

        setattr(owner, name, choose)
        return replacement
    return decorate


@_replaces(getattr(web, "_HandlerDelegate", None) or web._RequestDispatcher, "execute")
def _execute(running, original, dispatcher):
    """The request handler starts in a transaction of its own: the one that has read the request is inevitable."""
    connection = dispatcher.request.connection
    if not isinstance(connection, HTTP1Connection):  # WSGI wants the answer at once
        return original(dispatcher)
    prepared = Future() if dispatcher.stream_request_body else None

    def execute():
        try:
            handler_prepared = original(dispatcher)
        except Exception:
            if prepared is not None:
                prepared.set_exc_info(sys.exc_info())
            else:  # as the connection does when it calls `execute` itself
                app_log.error("Uncaught exception", exc_info=True)
                connection.close()
        else:
            if prepared is not None:
                chain_future(handler_prepared, prepared)
            if connection.stream is None and not connection._finish_future.done():
                # A websocket has taken the stream over.  In Tornado 4.0 that happens while the connection still reads
                # the request, so it tells nobody; here the connection already waits for the answer.
                connection._finish_future.set_result(None)

    running.loop.add_transaction(execute)
    return prepared


_EPOCH = datetime.date(1970, 1, 1).toordinal()
_WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@_replaces(email.utils, "formatdate")
def _formatdate(running, original, timeval=None, localtime=False, usegmt=False):
    """The Date header and others, by arithmetic: `time.gmtime` is inevitable."""
    if timeval is None or localtime or not usegmt:
        return original(timeval, localtime, usegmt)
    days, seconds = divmod(int(timeval), 86400)
    day = datetime.date.fromordinal(_EPOCH + days)
    return "%s, %02d %s %04d %02d:%02d:%02d GMT" % (
        _WEEKDAYS[day.weekday()], day.day, _MONTHS[day.month - 1], day.year,
        seconds // 3600, seconds // 60 % 60, seconds % 60)


def _clock():
    """A module `time` for Tornado's modules to see, whose `time.time` is not inevitable."""
    module = types.ModuleType("time", time.__doc__)
    vars(module).update(vars(time))

    @_replaces(module, "time")
    def _time(running, original):
        return _now()

    return module


web.time = httputil.time = httpclient.time = _clock()


@_replaces(web.RequestHandler, "_log")
def _log(running, original, handler):
    """The access log line is written in another transaction: logging is inevitable.  Its figures are known already."""
    running.log_lines.append(functools.partial(stack_context.wrap(original), handler))
