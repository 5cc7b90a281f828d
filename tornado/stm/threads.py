"""Whichever thread runs them, the transactions of a loop are on the loop's thread, as callbacks are elsewhere."""

import _thread
import asyncio
import functools
import threading

from . import core
from .core import trusted


@trusted
def get_ident():
    """In the place of ``threading.get_ident``, which `threading.current_thread` asks too."""
    if core.in_transaction():
        thread = getattr(asyncio._get_running_loop(), "_thread_id", None)
        if thread is not None:
            return thread
    return _thread.get_ident()


def _for_threads_to_see(change):
    """In the place of a method of ``threading.Event`` that changes its flag, which threads look at without a lock.

    They must not see what an attempt has set that is rolled back: so it is irrevocable from there on.
    """

    @functools.wraps(change)
    def method(self):
        core.irrevocable("a change of an Event, which threads look at without a lock")
        change(self)

    return method


def install():
    """From here on `threading` sees it so.  Who asks ``_thread`` means it: imports have locks by thread."""
    threading.get_ident = get_ident
    threading.Event.set = _for_threads_to_see(threading.Event.set)
    threading.Event.clear = _for_threads_to_see(threading.Event.clear)
    if core.COMPILED:
        core.set_program_thread(get_ident)
