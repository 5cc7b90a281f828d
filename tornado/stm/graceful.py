"""A graceful end on SIGTERM: accept nothing new, answer what has begun, then cancel all tasks."""

import asyncio
import contextlib
import os
import signal
import socket
import threading

from .core import trusted

#: seconds that a program has, after SIGTERM, to finish what it has begun
GRACE = 0.6

#: seconds between two looks whether nothing is left to do
STEP = 0.02


class EndsGracefully:
    """What event loops share; a subclass says in `_drain` how it stops accepting and when `_cancel_all` is due."""

    #: has SIGTERM come?
    terminated = False
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
        ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if ours:
            self.add_signal_handler(signal.SIGTERM, self._drain_once)
        try:
            yield
        finally:
            if ours and not self.is_closed():
                self.remove_signal_handler(signal.SIGTERM)

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
        if not self._awaited:
            self.stop()


@trusted
def is_listening(fd):
    """Is this the descriptor of a socket that accepts connections?"""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
