"""Signals wait for the end of a transaction, and what a program starts does not inherit that.

The interpreter runs signal handlers written in Python on the main thread, between any two instructions.  That must not be
in a transaction, which may be rolled back, nor where a lock or an event would be lost if the handler raises.  So the main thread
blocks the signals that have such a handler while it works for a loop, but for one point between transactions and while it waits
for events (``../engine/dispatch/poller.h``); and the other threads that run transactions block from their start whatever a program
may handle.  What the kernel then gives to any other thread, that hands over to the main thread (``../engine/signals.c``).  Signals that no
Python code handles go their way at once: they end the program, or make `faulthandler` print where its threads are.

A child process inherits the mask of the thread that starts it, and so does the program that takes the place of this one.
They begin with the mask that this program has outside of transactions.
"""

import _posixsubprocess  # noqa: F401, what it has is changed, as in posix and subprocess
import _signal  # signal.pthread_sigmask makes an enum member of every signal each time
import _thread
import asyncio
import contextlib
import functools
import os
import posix  # noqa: F401
import signal
import subprocess  # noqa: F401
import threading

from .. import core, forks
from ..core import once, trusted

#: faults are those of the very thread, and of whatever it runs
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}

#: the signals that a program may handle
MASKABLE = signal.valid_signals() - FAULTS - {signal.SIGKILL, signal.SIGSTOP}

#: the signals that Python code handles; replaced whenever that changes
handled = frozenset()

_programs_mask = frozenset()

#: does the main thread work for a loop?
_held = False


@trusted
def learn_mask():
    """The main thread, outside of transactions, begins to work for a loop: returns the mask that the program has."""
    global _programs_mask
    _programs_mask = frozenset(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    return _programs_mask


@trusted
def hold():
    """From here on, until `let_go`, the handlers of signals run where the dispatcher lets them in."""
    global _held
    _held = True
    _main_takes(handled, True)
    _set_mask()


@trusted
def let_go():
    """The main thread has the mask that the program has.  Raises what a handler raises."""
    global _held
    _held = False
    _main_takes(handled, False)
    _set_mask()


@trusted
def _main_takes(signals, takes):
    for signum in signals - _programs_mask:  # those the program wants on other threads
        core.main_takes(signum, takes)


@trusted
def _set_mask():
    _signal.pthread_sigmask(signal.SIG_SETMASK, _programs_mask | handled if _held else _programs_mask)


@contextlib.contextmanager
@trusted
def all_blocked():
    """A thread that is started in here never lets in a signal that a program may handle, and nor does this one meanwhile.

    One that blocked them itself could have been given some before.
    """
    mask = _signal.pthread_sigmask(signal.SIG_BLOCK, MASKABLE)
    try:
        yield
    finally:
        _signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@trusted
def _note(signum):
    global handled
    if callable(_signal.getsignal(signum)):
        handled |= {signum}
    else:
        handled -= {signum}


@trusted
def _in_child():
    """Of a fork: its threads are gone, and what is left of the loop lets no signals in."""
    global _held
    _held = False


@trusted
@once
def learn_handlers():
    """Which signals does Python code handle already?"""
    forks.begin_by(_in_child)
    for signum in MASKABLE:
        _note(signum)


@trusted
def _is_held():
    """Does this thread let in no signals that Python code handles?"""
    return _held and _thread.get_ident() == threading.main_thread().ident


@trusted
def _on_main(function, *args):
    """All of a loop is on the main thread, if the loop is: also what another thread runs of it."""
    loop = asyncio._get_running_loop()
    return loop.on_main(function, *args) if hasattr(loop, "on_main") else function(*args)


def noting(set_handler):
    """``_signal.signal``, called on the main thread of the loop; which signals Python code handles is noted."""

    @trusted
    def let_in_pending(signum):
        if signum in _signal.sigpending():
            _signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})  # it is for the handler that has been there
        _signal.pthread_sigmask(signal.SIG_BLOCK, {signum})

    @trusted
    def change(signum, handler):
        held = _is_held()
        if held and signum in MASKABLE:
            let_in_pending(signum)
        try:
            previous = set_handler(signum, handler)
            if held and callable(previous) and signum in _signal.sigpending():  # another thread has handed it over only now
                set_handler(signum, previous)
                let_in_pending(signum)
                set_handler(signum, handler)
            _note(signum)
            return previous
        finally:
            if held:
                _main_takes(handled & {signum}, True)
                _set_mask()

    @trusted
    @functools.wraps(set_handler)
    def set_and_note(signum, handler):
        core.exclusive("a change of signal handlers")
        return _on_main(change, signum, handler)

    return set_and_note


@trusted
def _let_in(send, *args):
    """On the main thread the handlers have run when it returns; of a loop on another thread, the main thread is told."""
    signals = handled.intersection(args[-1:]) if _is_held() or _is_helper() else frozenset()
    mask = _signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        return send(*args)
    finally:
        if _is_held():
            _set_mask()
        elif signals:
            _signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@trusted
def _is_helper():
    """Is this one of the threads that a loop has started, which let in no signal?"""
    loop = asyncio._get_running_loop()
    return getattr(loop, "_thread_id", None) not in (None, _thread.get_ident())


def raising(send):
    """``signal.raise_signal`` or ``pthread_kill``: the handler has run when it returns, and what that raises comes out of it."""

    @trusted
    @functools.wraps(send)
    def send_and_let_in(*args):
        core.exclusive("raising a signal")
        return _on_main(_let_in, send, *args)

    return send_and_let_in


def sending(kill):
    """``os.kill``: as `raising`, if this process is sent the signal, alone or with its group.

    Of all threads that do not block it the kernel gives it to the main thread first, as on upstream.
    """
    send_and_let_in = raising(kill)

    @trusted
    @functools.wraps(kill)
    def send(pid, signum, /):
        if 0 < pid != os.getpid():
            core.exclusive("sending a signal")
            return kill(pid, signum)
        return send_and_let_in(pid, signum)

    return send


def waking(set_wakeup):
    """``signal.set_wakeup_fd``, called on the main thread of the loop."""

    @trusted
    @functools.wraps(set_wakeup)
    def set_on_main(*args, **kwargs):
        core.exclusive("a change of what signals wake")
        return _on_main(functools.partial(set_wakeup, **kwargs), *args)

    return set_on_main


def starting(function):
    """A function that forks or starts a program: whatever comes of it begins with the mask that this program has."""

    @trusted
    @functools.wraps(function)
    def start(*args, **kwargs):
        core.exclusive("starting a process")
        process = os.getpid()
        mask = _signal.pthread_sigmask(signal.SIG_UNBLOCK, MASKABLE - _programs_mask)
        try:
            return function(*args, **kwargs)
        finally:
            if os.getpid() == process:  # and not the child of a fork
                _signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return start


def with_execve(functions):
    """``os.supports_fd``, with ``os.execve`` as it is now."""
    return functions | {os.execve}
