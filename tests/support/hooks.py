"""Hooks of the garbage collector that test tools have (hypothesis), for which it would run alone: out of the way."""

import contextlib
import gc

from tornado.stm import core


@contextlib.contextmanager
def no_hooks_of_tools():
    """Only the engine's own hook is in gc.callbacks meanwhile."""
    kept = list(gc.callbacks)
    gc.callbacks[:] = [hook for hook in kept if core.COMPILED and hook is core._engine.tell_collection]
    try:
        yield
    finally:
        gc.callbacks[:] = kept
