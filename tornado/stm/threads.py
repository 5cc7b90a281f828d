"""Whichever thread runs them, the transactions of a loop are on the loop's thread, as callbacks are elsewhere."""

import _thread
import asyncio
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


def install():
    """From here on `threading` sees it so.  Who asks ``_thread`` means it: imports have locks by thread."""
    threading.get_ident = get_ident
