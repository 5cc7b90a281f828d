"""Which transaction runs next, on which thread, and who polls meanwhile.

Any thread with nothing to run polls; the kernel gives an event to one of those that do (descriptors are armed for one
event at a time).  It runs the first transaction itself and wakes others only for the rest, so a lightly loaded server
hands nothing over, and when one thread is busy for long, the next event finds another.  While there is always something
to run, each round of the queue ends with a look at what else has become ready; and there is such a look before each
transaction that is expected to take long (see ``../engine/dispatch/ready.h``).

All of it is trusted code, called between transactions or as deferred actions of one that commits.
"""

import _asyncio
import _signal
import _thread
import asyncio
import errno
import gc
import heapq
import os
import select
import signal
import sys
import threading
import time
from asyncio import base_events, constants

from .. import core
from ..core import trusted
from ..input_output import sockets
from ..patches.threads import CpuTime
from . import signals
from .graceful import GRACE, STEP, is_listening

READ_EVENTS = ~select.EPOLLOUT
WRITE_EVENTS = ~select.EPOLLIN


class Watch:
    """What the loop waits for on one file descriptor.

    `reader` and `writer` (asyncio handles or None) belong to transactions.  The rest belongs to the scheduler, under its
    lock: `busy` while an event of this descriptor is queued or being handled (the kernel then reports no other, so events
    of one connection never overtake each other), `flushing` an Outbox to empty, `armed` the events last asked for.
    """

    __slots__ = ("fd", "reader", "writer", "busy", "flushing", "armed")

    def __init__(self, fd):
        self.fd = fd
        self.reader = self.writer = None
        self.busy = False
        self.flushing = None
        self.armed = None


class Early:
    """The timers that are due before the transaction that sets them is over: it may set others that come before them."""

    __slots__ = ("timers", "over")

    def __init__(self):
        self.timers = []
        self.over = False


class Order:
    """What one transaction has scheduled, in the order in which it commits: `last` is the Entry of the last that has become ready.

    `parent` is that transaction, or None for what a thread schedules outside of transactions.  Under the scheduler's lock.
    `early` is None for what does not run on the scheduler's threads.
    """

    __slots__ = ("parent", "last", "early")

    def __init__(self, parent, early):
        self.parent = parent
        self.last = None
        self.early = early


class Scheduling:
    """What a thread is about: the `Order` of what it schedules; the `Early` of what it runs."""

    __slots__ = ("order", "early")

    def __init__(self):
        self.order = self.early = None


@trusted
def locals_of_this_thread():
    """What finds the attributes of each ``threading.local`` that this thread has."""
    threading.local()  # from now on there is such a thing
    own = core.exchange_locals(None)
    core.exchange_locals(own)
    return own


class Scheduler:
    """The ready queue, the timers, the poller and the worker threads of one event loop."""

    def __init__(self, loop, threads):
        self.loop = loop
        self.threads = threads
        # Re-entrant: whatever is allocated under it may set off a finalizer that schedules something.
        self._lock = threading.RLock()
        self._ready = core.ReadyQueue()
        self.estimates = self._ready.estimates
        self._timers = []
        self._timer_order = 0
        self._cancelled_timers = 0
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._special = {}
        self._watches = {}
        self._polling = 0  # threads in the kernel
        self._poll_until = None  # when the first of them comes back for a timer; None: not for one
        self._round = 0  # transactions to run before the next look at what has become ready
        self._running = 0
        self._draining = None  # (when to stop waiting, is there work that does not show here?, what to call then)
        self._quiet = 0
        self._stop_at = None  # run what is older than this, then stop
        self._failure = None
        self._collecting = False
        self._scheduling = core.PerThread(Scheduling)

    # -- Enqueue -------------------------------------------------------------------------------------------------------

    def submit(self, handle):
        """Make a ready callback a transaction.  Those that one transaction schedules commit in that order."""
        with self._lock:
            order = self._order()
            # Only then is it the last: a finalizer may interrupt this thread anywhere and schedule something, and the queue must
            # never have a transaction before its predecessor.
            order.last = self._ready.put(run_handle, (handle,), core.site_of(handle), order.last)
            self._wake_for(1)

    def _order(self):
        """Under the lock: that of this very transaction (or thread, outside transactions)."""
        mine, current = self._scheduling.mine(), core.current()
        if mine.order is None or mine.order.parent is not current:
            mine.order = Order(current, mine.early if current is not None else None)
        return mine.order

    def _wake_for(self, count):
        """Under the lock: so many threads that poll must look at the queue."""
        count = min(count, self._polling)
        if count > 0:
            try:
                os.eventfd_write(self._wake_fd, count)
            except BlockingIOError:
                pass  # more wake-ups are on their way than anybody could need

    def _leave_poll(self, woken):
        """Under the lock: this thread waits in the kernel no more.  It takes a wake-up along if it has seen one.

        In one step, so that there are never fewer wake-ups than threads that `stop` has woken and that still wait.
        """
        self._polling -= 1
        if woken:
            try:
                os.eventfd_read(self._wake_fd)
            except BlockingIOError:
                pass

    def on_main(self, function, args):
        """From an exclusive transaction: call this on the main thread; return or raise what it does."""
        outcome = []
        answered = _thread.allocate_lock()
        answered.acquire()

        def request():
            try:
                outcome.append((function(*args), None))
            except BaseException as e:
                outcome.append((None, e))
            answered.release()

        core.ask_main(request)
        self._wake_asked()
        while not answered.acquire(timeout=0.01):
            self._wake_asked()  # another one may have woken in its place
        result, exception = outcome.pop()
        if exception is not None:
            raise exception
        return result

    def _wake_asked(self):
        """A thread that polls is asked for something (`core.serve`)."""
        with self._lock:
            self._wake_for(self.threads)

    # -- Timers --------------------------------------------------------------------------------------------------------

    def arm(self, timer):
        """At commit: start a timer.  However soon, it comes after the callbacks that its transaction has scheduled."""
        with self._lock:
            self._timer_order += 1
            heapq.heappush(self._timers, (timer._when, self._timer_order, timer, self._order()))
            if self._poll_until is None or timer._when < self._poll_until:
                self._wake_for(1)

    def timer_cancelled(self):
        """At commit: one more timer is only waiting to be forgotten."""
        with self._lock:
            self._cancelled_timers += 1
            if self._cancelled_timers > 100 and 2 * self._cancelled_timers > len(self._timers):
                self._timers = [entry for entry in self._timers if entry[2] is None or not entry[2]._cancelled]
                heapq.heapify(self._timers)
                self._cancelled_timers = 0

    def _due_timers(self):
        """Under the lock: timers whose time has come become ready."""
        timers = self._timers
        if timers:
            now = self.loop.time() + self.loop._clock_resolution
            while timers and timers[0][0] < now:
                _, _, timer, order = entry = heapq.heappop(timers)
                if order is not None and order.early is not None and not order.early.over:
                    order.early.timers.append(entry)
                elif timer is None:
                    self._ready.put(look_whether_drained, (self, self._draining[1]))
                elif not timer._cancelled:
                    # Those of one transaction in the order of their deadlines.
                    order.last = self._ready.put(run_timer, (timer,), core.site_of(timer), order.last)

    # -- File descriptors ----------------------------------------------------------------------------------------------

    def watch(self, watch):
        """At commit: its reader or writer has changed."""
        with self._lock:
            before = self._watches.get(watch.fd)
            if before is not watch:
                # Until now there was an outbox to empty at most.
                if before is not None:
                    watch.flushing = before.flushing
                self._watches[watch.fd] = watch
            if not watch.busy:
                self._arm(watch)

    def watch_again(self, watch):
        """On abort: an event may have been told by a reader or writer that the attempt had written.

        One that the attempt has made never was: the kernel must not be asked for it.
        """
        with self._lock:
            if self._watches.get(watch.fd) is watch and not watch.busy:
                self._arm(watch)

    def rearm(self, watch):
        """At commit of the transaction that handled its event."""
        with self._lock:
            watch.busy = False
            self._arm(watch)

    def flush_later(self, outbox):
        """Send the rest of the outbox when the kernel takes more; False if the loop is closed."""
        with self._lock:
            if self._epoll.closed:
                return False
            watch = self._watches.get(outbox.fd)
            if watch is None:
                watch = self._watches[outbox.fd] = Watch(outbox.fd)
            watch.flushing = outbox
            if not watch.busy:
                self._arm(watch)
            return True

    def _arm(self, watch):
        """Under the lock: ask the kernel for the next event."""
        events = 0
        if watch.reader is not None and not self._leaves_unread(watch.fd):
            if sockets.has_input(watch.fd):
                self._event(watch, select.EPOLLIN)
                self._wake_for(1)
                return
            events |= select.EPOLLIN
        if watch.writer is not None or watch.flushing is not None:
            events |= select.EPOLLOUT
        if not events:
            if watch.armed is not None:
                watch.armed = None
                try:
                    self._epoll.unregister(watch.fd)
                except OSError:
                    pass  # closed: the kernel has forgotten it
            return
        mask = events | select.EPOLLONESHOT
        try:
            self._epoll.modify(watch.fd, mask)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.EBADF):
                raise
            try:
                self._epoll.register(watch.fd, mask)
            except OSError as e:
                if e.errno == errno.EPERM:
                    # A regular file: always ready.
                    self._event(watch, events)
                    self._wake_for(1)
                elif e.errno != errno.EBADF:
                    raise
        watch.armed = events

    def _event(self, watch, events):
        """Under the lock: the kernel has reported events; it reports no others until the descriptor is armed again."""
        outbox = watch.flushing
        if outbox is not None and events & WRITE_EVENTS:
            if outbox.flush():
                watch.flushing = None
        wanted = (watch.reader is not None and events & READ_EVENTS) or (
            watch.writer is not None and events & WRITE_EVENTS and watch.flushing is None
        )
        if wanted:
            watch.busy = True
            handle = watch.reader if events & READ_EVENTS else watch.writer
            site = core.site_of(handle) if handle is not None else None
            self._ready.put(handle_event, (self, watch, events), site)
        else:
            self._arm(watch)

    def add_special(self, fd, action):
        """Call this outside transactions whenever the descriptor is readable (the wake-up pipe of signals)."""
        self._special[fd] = action
        self._epoll.register(fd, select.EPOLLIN)

    def remove_special(self, fd):
        """Undo `add_special`."""
        if self._special.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # -- Drain -------------------------------------------------------------------------------------------------------

    def drain(self, grace, busy, then):
        """Accept no more connections, and read no more from those accepted: what has not been read has not begun.

        When nothing is left to do and `busy()`, called in a transaction, is false, or after `grace` seconds, call `then`
        as a transaction, before everything that is still in the queue.
        """
        sockets.read_no_more()
        with self._lock:
            self._draining = (time.monotonic() + grace, busy, then)
            for watch in list(self._watches.values()):
                if not watch.busy:
                    self._arm(watch)
        self.look_whether_drained(True)

    def _leaves_unread(self, fd):
        """Under the lock: is the program ending, and this an accepted connection, or one that listens?

        Also for those that a transaction which runs while `drain` is called watches when it commits: the kernel would
        report again and again what nobody reads.
        """
        return self._draining is not None and (fd in sockets.accepted or is_listening(fd))

    def look_whether_drained(self, busy):
        """Between transactions, now and then: is it time for what `drain` was given?"""
        with self._lock:
            until, _, then = self._draining
            # The one that looks is running too.
            idle = not busy and not self._ready and self._running <= 1 and not any(
                watch.busy or watch.flushing for watch in self._watches.values()
            )
            self._quiet = self._quiet + 1 if idle else 0
            timers = any(entry[0] < until and entry[2] is not None for entry in self._timers)
            if (self._quiet > 2 and not timers) or time.monotonic() >= until:
                self._ready.put_first(then, ())
                self._wake_for(1)
                return
            self._timer_order += 1
            heapq.heappush(self._timers, (time.monotonic() + STEP, self._timer_order, None, None))
            self._wake_for(1)

    # -- Run -----------------------------------------------------------------------------------------------------------

    def stop(self):
        """At commit: run what is ready now, then return from `run`."""
        with self._lock:
            self._stop_at = core.Transaction(stop_marker, ()).age
            self._wake_for(self.threads)

    def run(self):
        """Run transactions on all threads until `stop`.  Raises what a callback raised to end the loop."""
        self._locals = locals_of_this_thread()
        self.cpu = CpuTime()
        self._polling = 0  # a signal handler may have ended the last run just before the main thread polled
        helpers = [
            threading.Thread(target=self._helper, name=f"tornado-stm-{i}", daemon=True) for i in range(1, self.threads)
        ]
        for helper in helpers:
            helper.start()
        collecting = gc.isenabled()
        gc.disable()
        self._collecting = collecting
        _asyncio._set_running_loop(self.loop)
        main = threading.current_thread() is threading.main_thread()
        mask = signals.learn_mask() if main else None
        try:
            self._work(main)
        finally:
            _asyncio._set_running_loop(None)
            if collecting:
                gc.enable()
            with self._lock:
                if self._stop_at is None:
                    self._stop_at = 0
                self._wake_for(self.threads)
            for helper in helpers:
                while helper.is_alive():
                    core.serve()  # what it still runs may ask for something
                    helper.join(0.01)
            with self._lock:
                self._stop_at = None
            if main:
                _signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a handler may have raised before the mask was put back
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _helper(self):
        loop = self.loop
        signals.block_all()  # they are the main thread's business
        asyncio._set_running_loop(loop)
        _asyncio._set_running_loop(loop)  # the C code that keeps the current task asks for it
        sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
        own = core.exchange_locals(self._locals)
        core.set_anchor(loop._thread_id, self._wake_asked)
        self.cpu.begins()
        try:
            self._work(False)
        finally:
            self.cpu.ends()
            core.set_anchor(0, None)
            core.exchange_locals(own)
            _asyncio._set_running_loop(None)
            asyncio._set_running_loop(None)

    def _work(self, main):
        looked = False  # what has become ready, since the last transaction?
        while True:
            core.settle()
            core.serve()
            if main:
                # A signal handler of the program's must not run inside a transaction that may be rolled back; and what it
                # raises must not keep this thread from running what it has taken, for others may wait for that.
                blocked = _signal.pthread_sigmask(signal.SIG_BLOCK, signals.handled)
            try:
                with self._lock:
                    entry, timeout = self._next(looked)
                if entry is not None:
                    self._run_one(entry)
                elif timeout is STOPPED:
                    return
            finally:
                if main:
                    _signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            looked = entry is None
            if looked:
                self._poll(timeout)
            elif self._collecting and gc.get_count()[0] > GARBAGE:
                self._collect()

    def _next(self, looked):
        """Under the lock: what this thread does now, and its part is counted from here on.

        Returns the entry to run and None; or None and what to poll with: as `_poll` takes it, or STOPPED.
        """
        if self._timers and self._timers[0][0] <= self.loop.time():
            self._due_timers()
        ready = self._ready
        if not looked and ready and (self._round <= 0 or ready.only_long()):
            self._round = len(ready)
            return None, None
        entry = ready.take(self._stop_at)
        if entry is not None:
            self._running += 1
            self._round -= 1
            return entry, None
        if self._stop_at is not None:
            return None, STOPPED
        self._polling += 1
        return None, 0.0 if core.is_asked() else self._timeout()

    def _timeout(self):
        """Under the lock: how long polling may take, in seconds; -1 for ever."""
        if not self._timers:
            self._poll_until = None
            return -1
        self._poll_until = self._timers[0][0]
        return max(0.0, self._poll_until - self.loop.time())

    def _poll(self, timeout):
        """Ask the kernel for events, and wait for them so many seconds (-1: for ever); with None, only look."""
        waits = timeout is not None
        events = ()
        try:
            events = self._epoll.poll(timeout if waits else 0, EVENTS_AT_ONCE)
        finally:
            actions = []
            with self._lock:
                if waits:
                    self._leave_poll(any(fd == self._wake_fd for fd, _ in events))
                before = len(self._ready)
                for fd, mask in events:
                    action = self._special.get(fd)
                    if action is not None:
                        actions.append(action)
                        continue
                    watch = self._watches.get(fd)
                    if watch is not None and not watch.busy:
                        self._event(watch, mask)
                self._due_timers()
                if not self._polling:
                    self._poll_until = None
                # This thread takes the first itself.
                more = len(self._ready) - before - 1
                if more > 0:
                    self._wake_for(more)
            for action in actions:
                action()

    def _run_one(self, entry):
        mine = self._scheduling.mine()
        early = mine.early = Early()
        began = clock()
        try:
            entry.transaction.run()
        except BaseException as e:
            with self._lock:
                self._failure = self._failure or e
                self._stop_at = 0
                self._wake_for(self.threads)
        finally:
            mine.early = None
            with self._lock:
                self._running -= 1
                self._ready.ran(entry, clock() - began)
                early.over = True
                while early.timers:
                    heapq.heappush(self._timers, early.timers.pop())

    def _collect(self):
        # Not within a transaction, which would take the finalizers of others' garbage along if it is rolled back, and
        # not while a lock of this scheduler is held, which they may need.
        if core.atomic_enter():
            try:
                if gc.get_count()[0] > GARBAGE:
                    gc.collect()
            finally:
                core.atomic_exit()

    def close(self):
        """Forget everything; the loop is closed.  The kernel takes first what has been sent, unless that takes longer than GRACE."""
        self._flush()
        self._ready.clear()
        self._timers.clear()
        self._scheduling = core.PerThread(Scheduling)
        self._watches.clear()
        self._epoll.close()
        os.close(self._wake_fd)

    def _flush(self):
        until = time.monotonic() + GRACE
        waiting = [watch.flushing for watch in self._watches.values() if watch.flushing]
        while (waiting := [box for box in waiting if not box.flush()]) and (left := until - time.monotonic()) > 0:
            poller = select.poll()
            for box in waiting:
                poller.register(box.sock, select.POLLOUT)
            poller.poll(1000 * left)


#: the clock of transactions: seconds of processor time of this thread
clock = time.thread_time

#: what a thread polls with when the loop has been stopped: it does not
STOPPED = object()

#: objects that have come, and not gone by themselves, since the last collection of cycles
GARBAGE = 20000

#: at most so many events are taken from the kernel at once
EVENTS_AT_ONCE = 256

core.holds(Watch, "reader")
core.holds(Watch, "writer")

for _class in Scheduler, Scheduling, Watch, Order, Early:
    for _member in list(vars(_class).values()):
        if hasattr(_member, "__code__"):
            trusted(_member)


@trusted
def stop_marker():
    """What a transaction runs that only marks a point in the order of ages."""


# ---- What the transactions run: ordinary code, with barriers --------------------------------------------------------


@trusted
def track_origins():
    """Let coroutines that this thread makes know where; `BaseEventLoop.set_debug` does that for one thread only."""
    if not sys.get_coroutine_origin_tracking_depth():
        sys.set_coroutine_origin_tracking_depth(constants.DEBUG_STACK_DEPTH)


def run(handle):
    """Call back; in debug mode, tell if that takes long.  What is measured is the attempt that commits."""
    loop = handle._loop
    if not loop._debug:
        handle._run()
        return
    track_origins()
    loop._current_handle = handle
    try:
        start = loop.time()
        handle._run()
        took = loop.time() - start
        if took >= loop.slow_callback_duration:
            base_events.logger.warning("Executing %s took %.3f seconds", base_events._format_handle(handle), took)
    finally:
        loop._current_handle = None


def run_chain(scheduler, handle):
    """Call back, and then what is to follow in the same transaction (``../engine/dispatch/chain.h``)."""
    core.begin_chain()
    try:
        while handle is not None:
            if not handle._cancelled:
                run(handle)
            handle = core.follower(scheduler.estimates)
    finally:
        core.end_chain(scheduler.submit)


def run_handle(handle):
    """A callback."""
    run_chain(handle._loop._scheduler, handle)


def run_timer(timer):
    """A timer that is due."""
    timer._scheduled = False
    run_chain(timer._loop._scheduler, timer)


def look_whether_drained(scheduler, busy):
    """Has an ending program anything left to do?"""
    core.defer(scheduler.look_whether_drained, busy())


def handle_event(scheduler, watch, events):
    """An event of a file descriptor: its reader, then its writer."""
    try:
        reader = watch.reader
        if reader is not None and events & READ_EVENTS:
            run_chain(scheduler, reader)
        writer = watch.writer
        if writer is not None and events & WRITE_EVENTS:
            run_chain(scheduler, writer)
    finally:
        # The last of its effects: the next event comes after whatever this one has scheduled, and after a stop.  And in the
        # end: what is deferred takes place at once where the transaction goes exclusive, and the kernel would report what
        # has not been read yet a second time.
        core.defer(scheduler.rearm, watch)
