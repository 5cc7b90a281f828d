"""The threads of a loop, and what they run: transactions that call back.

Which transaction runs next, on which thread, and who polls meanwhile is the dispatcher's affair (``../engine/dispatch/``).
"""

import _asyncio
import _thread
import asyncio
import select
import sys
import threading
import time
from asyncio import base_events

from .. import activation, core
from ..core import trusted
from ..input_output import sockets
from ..patches import finalizers
from ..patches.threads import CpuTime, Worker
from . import signals
from .graceful import PATIENCE, STEP, is_listening


class Watch:
    """What the transactions of a loop wait for on one file descriptor: `reader` and `writer`, asyncio handles or None.

    `of` is what it was asked for by, while there is one of them: it is known by that, too, once it has been closed.
    """

    __slots__ = ("fd", "of", "reader", "writer")

    def __init__(self, fd):
        self.fd = fd
        self.of = self.reader = self.writer = None


core.holds(Watch, "of")
core.holds(Watch, "reader")
core.holds(Watch, "writer")


@trusted
def locals_of_this_thread():
    """What finds the attributes of each ``threading.local`` that this thread has."""
    threading.local()  # from now on there is such a thing
    own = core.exchange_locals(None)
    core.exchange_locals(own)
    return own


class Scheduler:
    """The worker threads of one event loop."""

    def __init__(self, loop, threads):
        self.loop = loop
        self.threads = threads
        self.dispatcher = core.Dispatcher(loop, core.run_handle, core.run_timer, core.handle_event, sockets.inboxes)
        self._quiet = 0

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
        self.dispatcher.wake_all()
        while not core.await_lock(answered, 0.01):
            self.dispatcher.wake_all()  # another one may have woken in its place
        result, exception = outcome.pop()
        if exception is not None:
            raise exception
        return result

    # -- Drain -------------------------------------------------------------------------------------------------------

    def drain(self, grace, busy, then):
        """Accept no more connections, and read no more from those accepted: what has not been read has not begun.

        When nothing is left to do and `busy()`, called in a transaction, is false, or after `grace` seconds, call `then`
        as a transaction, before everything that is still in the queue.
        """
        sockets.read_no_more()
        # Also from those that a transaction which runs meanwhile watches when it commits: the kernel would report again and
        # again what nobody reads.
        self.dispatcher.leave_unread(lambda fd: sockets.is_accepted(fd) or is_listening(fd))
        self._look_whether_drained(True, time.monotonic() + grace, busy, then)

    def _look_whether_drained(self, is_busy, until, busy, then):
        """Between transactions, now and then: is it time for what `drain` was given?"""
        now = time.monotonic()
        self._quiet = self._quiet + 1 if not is_busy and self.dispatcher.is_idle(until) else 0
        if self._quiet > 2 or now >= until:
            self.dispatcher.put_first(then, ())
        else:
            look = self._look_whether_drained, until, busy, then
            self.dispatcher.call_at(now + STEP, look_whether_drained, look)

    # -- Run -----------------------------------------------------------------------------------------------------------

    def run(self):
        """Run transactions on all threads until the dispatcher stops.  Raises what a callback raised to end the loop.

        Where there is no room for this very thread it waits; for others, does without.
        """
        self._take_place()
        if threading.current_thread() is not threading.main_thread():
            self._run(None)
            return
        mask = signals.learn_mask()
        try:
            signals.hold()
            self._run(mask)
        finally:
            signals.let_go()

    def _take_place(self):
        if core.take_place():
            return
        core.say(
            f"tornado.stm: {core.MOST_THREADS} threads run transactions or have used a queue, and no more can:"
            " a loop waits until one of them ends"
        )
        while not core.take_place():
            time.sleep(STEP)

    def _run(self, mask):
        loop, dispatcher = self.loop, self.dispatcher
        self._locals = locals_of_this_thread()
        self.origins = sys.get_coroutine_origin_tracking_depth()
        self.cpu = CpuTime()
        plain_time = getattr(loop.time, "__func__", None) is base_events.BaseEventLoop.time
        dispatcher.begin(self.threads, not plain_time, loop._clock_resolution)
        helpers = [Worker(self._helper, f"tornado-stm-{i}") for i in range(1, self.threads)]
        activation.begin_run()
        finalizers.keep_hook_quiet()
        try:
            with signals.all_blocked():  # they are the main thread's business
                for helper in helpers:
                    helper.start()
            _asyncio._set_running_loop(loop)
            dispatcher.work(mask)
        finally:
            _asyncio._set_running_loop(None)
            dispatcher.end()
            try:
                for helper in helpers:
                    while helper.is_alive():
                        core.serve()  # what it still runs may ask for something
                        if mask is not None:
                            dispatcher.let_signals_in(mask)
                        helper.join(0.01)
                failure = dispatcher.ended()
            finally:
                activation.end_run()
            core.settle()
        if failure is not None:
            raise failure

    def _helper(self):
        if not core.take_place():
            return
        loop = self.loop
        asyncio._set_running_loop(loop)
        _asyncio._set_running_loop(loop)  # the C code that keeps the current task asks for it
        sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
        sys.set_coroutine_origin_tracking_depth(self.origins)
        own = core.exchange_locals(self._locals)
        core.set_anchor(loop._thread_id, self.dispatcher.wake_all)
        self.cpu.begins()
        try:
            self.dispatcher.work(None)
        finally:
            self.cpu.ends()
            core.set_anchor(0, None)
            core.exchange_locals(own)
            _asyncio._set_running_loop(None)
            asyncio._set_running_loop(None)

    def close(self):
        """Forget everything; the loop is closed.  The kernel takes first what has been sent, unless it takes nothing for `PATIENCE`."""
        waiting, size, until = self.dispatcher.outboxes(), 0, 0
        while waiting := [box for box in waiting if not box.flush()]:
            before, size = size, sum(box.size for box in waiting)
            if size != before:
                until = time.monotonic() + PATIENCE
            left = until - time.monotonic()
            if left <= 0:
                break
            poller = select.poll()
            for box in waiting:
                poller.register(box.fd, select.POLLOUT)
            poller.poll(1000 * left)
        self.dispatcher.close()


for _member in list(vars(Scheduler).values()):
    if hasattr(_member, "__code__"):
        trusted(_member)


# ---- What a transaction runs: ordinary code, with barriers ----------------------------------------------------------


def look_whether_drained(look, until, busy, then):
    """Has an ending program anything left to do?"""
    core.defer(look, busy(), until, busy, then)
