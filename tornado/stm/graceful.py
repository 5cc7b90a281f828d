"""A graceful end on SIGTERM: accept nothing new, answer what has begun, then cancel all tasks; in any case, an end."""

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import threading
import time

from . import core
from .core import trusted

#: seconds that a program has, after SIGTERM, to finish what it has begun
GRACE = 0.6

#: seconds that a callback may take longer than that, before it is taken to run for ever
PATIENCE = 2.0

#: exit status of a program that had to be killed
KILLED = 1

STDERR = 2

#: seconds between two looks whether nothing is left to do
STEP = 0.02


class EndsGracefully:
    """What event loops share; a subclass says in `_drain` how it stops accepting and when `_cancel_all` is due."""

    #: has SIGTERM come?
    terminated = False
    #: and have all tasks been cancelled?
    _cancelled = False
    _awaited = False

    @trusted
    def run_until_complete(self, future):
        """Run until the future is done; return its result or raise its exception.

        Raises:
            SystemExit: SIGTERM has ended the program (status 0).
        """
        self._awaited = True
        try:
            return super().run_until_complete(future)
        except asyncio.CancelledError:
            if self.terminated:
                raise SystemExit(0) from None
            raise
        finally:
            self._awaited = False

    @contextlib.contextmanager
    def _sigterm_drains(self):
        """While the loop runs: SIGTERM drains it, unless the program has a handler of its own."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            yield
            return
        guard = Guard(self)
        try:
            yield
        finally:
            guard.end()

    def _drain_once(self):
        if not self.terminated:
            self.terminated = True
            self._drain()

    def _handles_requests(self):
        """Is a Tornado handler at work, or waiting for something?  (Idle connections have tasks too.)"""
        coroutines = [task.get_coro() for task in asyncio.all_tasks(self)]
        return any(getattr(coroutine, "__qualname__", "") == "RequestHandler._execute" for coroutine in coroutines)

    def _cancel_all(self):
        for task in asyncio.all_tasks(self):
            task.cancel()
        self._cancelled = True
        if not self._awaited:
            self.stop()


class Guard:
    """While a loop runs on the main thread: SIGTERM ends the program, also one whose callbacks do not return.

    A thread of its own takes the signal while the main thread has it blocked, in a transaction, and tells the loop to drain.
    After `GRACE`, what runs and runs is rolled back for others.  If `PATIENCE` later callbacks still keep tasks from being
    cancelled, the program is killed, as SIGTERM would have done without this handler.  How long it cleans up after that is
    its own affair.
    """

    def __init__(self, loop):
        self._loop = loop
        self._over = False
        self._ended = threading.Event()
        self._handler = self._on_main
        self._thread = threading.Thread(target=self._watch, name="tornado-stm-sigterm", daemon=True)
        self._thread.start()
        loop.add_signal_handler(signal.SIGTERM, loop._drain_once)
        signal.signal(signal.SIGTERM, self._handler)  # in the place of asyncio's, which does nothing

    @trusted
    def end(self):
        """The loop runs no more: what comes now is the program's own affair."""
        if signal.getsignal(signal.SIGTERM) == self._handler and not self._loop.is_closed():
            self._loop.remove_signal_handler(signal.SIGTERM)
        self._over = True
        self._alert()
        self._ended.set()
        self._thread.join()

    @trusted
    def _on_main(self, number, frame):
        self._alert()

    @trusted
    def _alert(self):
        # It lives until `_ended` is set.
        signal.pthread_kill(self._thread.ident, signal.SIGTERM)

    @trusted
    def _watch(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.sigwait({signal.SIGTERM})
        while not self._over and signal.getsignal(signal.SIGTERM) != self._handler:
            # The program has a handler of its own by now.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            signal.sigwait({signal.SIGTERM})
        if not self._over:
            self._see_to_it()
        self._ended.wait()

    @trusted
    def _see_to_it(self):
        if not self._ended.wait(STEP) and not self._loop.terminated:
            self._loop.call_soon_threadsafe(self._loop._drain_once)
        end = time.monotonic() + GRACE
        # Its thread needs no interpreter, which C code that does not return may have brought to a halt.
        faulthandler.dump_traceback_later(GRACE + PATIENCE, exit=True, file=STDERR)
        while not self._loop._cancelled and not self._ended.wait(STEP):
            if time.monotonic() > end:
                core.set_allowance(STEP)
        faulthandler.cancel_dump_traceback_later()


@trusted
def is_listening(fd):
    """Is this the descriptor of a socket that accepts connections?"""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
