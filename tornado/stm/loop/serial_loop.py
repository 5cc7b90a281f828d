"""The event loop for interpreters with a GIL, where transactions run one at a time."""

import asyncio
import contextlib
import selectors
import signal
import threading

from .. import core
from ..patches import table
from .graceful import GRACE, STEP, EndsGracefully, is_listening, without_our_frames


def keep_none_alive(*request):
    """``HTTP1Connection._can_keep_alive`` of a program that ends.

    Tornado reads the next request of a connection without waiting for an event: let there be one at most.
    """
    return False


_run, _call_soon = asyncio.Handle._run, asyncio.SelectorEventLoop._call_soon


class Handle(asyncio.Handle):
    """Its callback is a transaction."""

    __slots__ = ()

    def _run(self):
        core.run_callback(_run, self)


class TimerHandle(asyncio.TimerHandle):
    """Likewise."""

    __slots__ = ()

    def _run(self):
        core.run_callback(_run, self)


class SerialEventLoop(EndsGracefully, asyncio.SelectorEventLoop):
    """Asyncio's own event loop, for interpreters with a GIL; SIGTERM ends it as gracefully as the transactional one."""

    _quiet = 0

    def _call_soon(self, callback, args, context):
        handle = _call_soon(self, callback, args, context)
        handle.__class__ = Handle
        return handle

    def call_at(self, *args, **options):
        timer = super().call_at(*args, **options)
        timer.__class__ = TimerHandle
        return timer

    def _add_callback(self, handle):
        if handle.__class__ is asyncio.Handle:  # of a descriptor, or a signal
            handle.__class__ = Handle
        super()._add_callback(handle)

    def run_forever(self):
        """Run until `stop` is called, or SIGTERM ends the program gracefully (if it has no handler of its own).

        Raises:
            TransactionError: inside a transaction or an atomic block.
        """
        self._check_outside()
        self._check_running()
        try:
            with self._woken_by_signals(), self._sigterm_drains():
                super().run_forever()
        except BaseException as e:
            without_our_frames(e)
            raise

    @contextlib.contextmanager
    def _woken_by_signals(self):
        """While the loop runs on the main thread: a signal ends its wait for events, also one that comes right before that, or to
        another thread, and so does not interrupt it.  Asyncio does that for the handlers that a loop knows of."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ours = self._csock.fileno()
        before = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if before not in (-1, ours):
            signal.set_wakeup_fd(before)  # the program has its own way
        try:
            yield
        finally:
            now = signal.set_wakeup_fd(-1)
            if now != ours or self._signal_handlers:
                signal.set_wakeup_fd(now)

    def _drain(self):
        table.apply("drain")
        for key in list(self._selector.get_map().values()):
            if is_listening(key.fd):
                self._remove_reader(key.fd)
        self._look_whether_drained(self.time() + GRACE)

    def _look_whether_drained(self, until):
        idle = not self._ready and not any(
            key.events & selectors.EVENT_WRITE for key in self._selector.get_map().values()
        )
        self._quiet = self._quiet + 1 if idle and not self._handles_requests() else 0
        timers = any(timer.when() < until and not timer.cancelled() for timer in self._scheduled)
        if (self._quiet > 2 and not timers) or self.time() >= until:
            self._cancel_all()
        else:
            self.call_later(STEP, self._look_whether_drained, until)
