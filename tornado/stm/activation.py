"""The engine is made ready: its tables are filled, and what is changed in libraries is changed."""

import functools
import os
import threading

from . import conflictlog, core
from .core import once

if core.COMPILED:
    from . import _engine, effects, finalizers, rebound, sockets, threads, twins


@once
def activate():
    """Make the engine ready, and have Python code run on its loop.  Called before transactions run."""
    if core.COMPILED:
        finalizers.install()
        sockets.install()
        if twins.tls is not None:
            twins.tls.install()
        threads.install()
        effects.register(twins.TWINS | threads.TWINS, twins.INSTANCE_TWINS)
        _engine.configure(rebound.see_globals, core.PerThread, threading.main_thread().ident)
        _engine.hide_frames(os.path.join(os.path.dirname(__file__), ""), "")
        _engine.holds(functools.partial, "func")
        _engine.begin_loop()
    conflictlog.begin()
