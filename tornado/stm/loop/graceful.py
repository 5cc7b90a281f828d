"""A graceful end on SIGTERM: accept nothing new, answer what has begun, then cancel all tasks; in any case, an end.

Also in spite of threads that do not end, for which a program waits at its exit, and of `tornado.autoreload`, which would go on
to wait for changed files: without this handler SIGTERM would have ended them at once.
"""

import _signal  # the functions of `signal` make enum members each time
import _thread
import asyncio
import contextlib
import faulthandler
import functools
import os
import signal
import socket
import sys
import threading
import time
import weakref

from .. import core
from ..core import trusted
from ..patches import table
from . import signals, yielded

#: seconds that a program has, after SIGTERM, to finish what it has begun
GRACE = 0.6

#: seconds that a callback may take longer than that, before it is taken to run for ever; or a thread that is waited for
PATIENCE = 2.0

#: what stands above the dump of where each thread is, of a program that is killed then; None: nothing (``-q``)
WHY_KILLED = "tornado.stm: SIGTERM has come, and what runs does not end: it is killed, here:\n"

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
            TransactionError: inside a transaction or an atomic block.
        """
        self._check_outside()
        self._awaited = True
        try:
            return super().run_until_complete(future)
        except BaseException as e:
            if self.terminated and isinstance(e, asyncio.CancelledError):
                raise SystemExit(0) from None
            without_our_frames(e)
            raise
        finally:
            self._awaited = False

    def _check_outside(self):
        """Where nothing else runs meanwhile, the transactions of a loop cannot.  (In a loop's own asyncio says that it runs already.)"""
        if core.in_transaction() and asyncio._get_running_loop() is None:
            raise core.TransactionError("an event loop cannot run inside a transaction or an atomic block")

    def shutdown_default_executor(self, timeout=None):
        """Wait for the threads of the executor; no longer than threads have to end, once SIGTERM has come."""
        executor = self._default_executor
        if self.terminated and executor is not None:
            return self._shut_down_while_ending(executor)
        # What it warns of is said of who awaits it.  Before 3.12 there is no timeout.
        return super().shutdown_default_executor(*(() if timeout is None else (timeout,)))

    async def _shut_down_while_ending(self, executor):
        self._executor_shutdown_called = True
        waiting = threading.Thread(target=executor.shutdown, daemon=True)
        waiting.start()
        while waiting.is_alive() and guard.time_for_threads() > 0:
            await asyncio.sleep(STEP)

    @contextlib.contextmanager
    def _sigterm_drains(self):
        """While the loop runs: SIGTERM drains it, unless the program has a handler of its own.

        Raises:
            SystemExit: SIGTERM has ended the program (status 0), which knows nothing of it yet, runs the loop for ever once more, or is
                about to wait for changes (autoreload).
        """
        yielded.accept()
        for_ever = not self._awaited and not _is_beneath("tornado.ioloop", "run_sync")
        if guard.is_ending() and (
            guard.owes_an_end(self) or (self._cancelled and for_ever) or _is_beneath("tornado.autoreload", "wait")
        ):
            raise SystemExit(0)
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        ):
            yield
            return
        guard.begin(self)
        was_cancelled = self._cancelled
        try:
            yield
        finally:
            guard.end()
        if self._cancelled and not (was_cancelled or self._awaited or for_ever):
            raise SystemExit(0)  # instead of the RuntimeError with which Tornado meets a loop that was stopped

    def _drain_once(self):
        if not self.terminated:
            self.terminated = True
            guard.note_end()
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

    There is one, whose thread waits for the next loop when one has ended: `_loop` is None then.
    """

    def __init__(self):
        self._loop = None
        self._ended = None  # the last one that has ended: a weak reference, as what follows, or it would live until the next one ends
        self._thread = None  # its number, in the process `_process`
        self._process = None
        self._ending = None  # the process that has been told to end
        self._owing = None  # the loop that has ended by itself then, if the program knows nothing of it yet
        self._threads_until = None  # when nobody waits for its threads any more
        self._told_at = None  # when all tasks were cancelled for that
        self._at_exit = None  # what `_thread` calls at the exit, when no thread can be started any more

    @trusted
    def begin(self, loop):
        """This loop runs from here on."""
        table.apply("guard")
        if self._process != os.getpid():
            self._process = os.getpid()
            with signals.all_blocked():
                self._thread = _thread.start_new_thread(self._watch, ())
        self._loop = loop
        # Not the loop's `add_signal_handler`, which would be called beside a handler that the program sets by `signal.signal`.
        signal.signal(signal.SIGTERM, core.to_guard)
        core.forward_signal(signal.SIGTERM, self._thread)

    @trusted
    def end(self):
        """It runs no more: what comes now is the program's own affair."""
        if self._is_in_force():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        loop = self._loop
        self._ended = weakref.ref(loop)
        self._loop = None
        if loop.terminated and not loop._cancelled:
            self._owing = self._ended

    @trusted
    def note_end(self):
        """SIGTERM has come, and a loop begins to end."""
        self._ending = os.getpid()

    @trusted
    def is_ending(self):
        """Has this process been told to end?"""
        return self._ending == os.getpid()

    @trusted
    def owes_an_end(self, loop):
        """Has the loop before ended by itself, after SIGTERM, and shall this other one run now?  The program is told once."""
        if self._owing is None or self._owing() is loop:
            return False
        self._owing = None
        return True

    @trusted
    def time_for_threads(self):
        """Seconds that threads have left: `PATIENCE` from when somebody first waits for them."""
        if self._threads_until is None:
            self._threads_until = time.monotonic() + PATIENCE
        return max(0.0, self._threads_until - time.monotonic())

    @trusted
    def _is_in_force(self):
        return _signal.getsignal(signal.SIGTERM) == core.to_guard

    @trusted
    def _watch(self):
        while self._at_exit is None:
            self._came(core.await_signal(signal.SIGTERM, GRACE + 2 * PATIENCE))
            core.stand_down()
        self._at_exit()

    @trusted
    def _came(self, told):
        """The signal has come, or so it seems: `told` as of `core.await_signal`.  Whoever waits for the next one keeps no loop."""
        loop = self._loop
        came_to = weakref.ref(loop) if loop is not None else self._ended if told else None
        time.sleep(STEP)
        loop = self._loop
        if self._told_at is not None and time.monotonic() > self._told_at + PATIENCE and self._at_exit is None:
            os._exit(128 + signal.SIGTERM)  # the program has been told, and goes on: it does not want to clean up any more
        if loop is not None and self._is_in_force():
            self._see_to_it(loop)
            while _signal.sigtimedwait({signal.SIGTERM}, 0):
                pass  # it has come once more meanwhile
        elif came_to is not None and not self.is_ending() and _signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._told_at = self._told_at or time.monotonic()
            self._await_end_after(came_to)
        elif self._at_exit is None and not (told and self.is_ending()):
            # The program has a handler of its own by now, or runs no loop any more.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)

    @trusted
    def wait_for_threads(self, wait):
        """At the exit of a program that has been told to end: call this, which waits for its threads, but not for ever."""
        ended = _thread.allocate_lock()
        ended.acquire()

        def wait_for_all():
            try:
                wait()
            finally:
                ended.release()

        # Before 3.13 the interpreter waits for the main thread, too, unless that is the one that waits.
        threading.__dict__.get("_shutdown_locks", set()).discard(getattr(threading.main_thread(), "_tstate_lock", None))
        self._at_exit = wait_for_all
        signal.pthread_kill(self._thread, signal.SIGTERM)
        ended.acquire(timeout=self.time_for_threads())

    @trusted
    def _see_to_it(self, loop):
        if not loop.terminated:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(loop._drain_once)
        end = time.monotonic() + GRACE
        # Shows where it is; `await_signal` sees to the rest if C code that does not return has brought the interpreter
        # to a halt by then.
        faulthandler.dump_traceback_later(GRACE + PATIENCE, exit=True, file=STDERR)
        why = WHY_KILLED
        while self._loop is loop and not loop._cancelled:
            time.sleep(STEP)
            if time.monotonic() > end:
                core.set_allowance(STEP)
            if why is not None and time.monotonic() > end + PATIENCE - 10 * STEP:  # a busy machine may not let this thread run for a while
                os.write(STDERR, why.encode())
                why = None
        faulthandler.cancel_dump_traceback_later()
        self._told_at = self._told_at or time.monotonic()
        self._await_end_after(weakref.ref(loop))

    @trusted
    def _await_end_after(self, ended):
        """The loop, to which the signal has come, has ended or been told: if it knew nothing of it, the program is to end by itself."""
        loop = ended()
        if loop is None or not loop.terminated:
            self.note_end()
            self._owing = ended
        del loop
        while self._owing is ended and self._at_exit is None and time.monotonic() < self._told_at + PATIENCE:
            time.sleep(STEP)
        if self._owing is ended and self._loop is None and self._at_exit is None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # it runs no loop that could tell it


guard = Guard()


@trusted
def limited_wait(wait):
    """What waits at the interpreter's exit for threads, but only so long if SIGTERM has ended the program."""

    @functools.wraps(wait)
    def _shutdown():
        if guard.is_ending():
            guard.wait_for_threads(wait)
        else:
            wait()

    return _shutdown


def without_our_frames(exception):
    """In a handler that then raises it once more: its traceback begins with whoever this package has called."""
    traceback = exception.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(core.FOLDER):
        traceback = traceback.tb_next
    exception.__traceback__ = traceback


@trusted
def _is_beneath(module, name):
    """Is that function amid this call?  Known by its file: run as a program, autoreload has two modules."""
    module = sys.modules.get(module)
    frame = sys._getframe()
    while module is not None and frame is not None:
        if frame.f_code.co_name == name and frame.f_code.co_filename == module.__file__:
            return True
        frame = frame.f_back
    return False


@trusted
def is_listening(fd):
    """Is this the descriptor of a socket that accepts connections?"""
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
