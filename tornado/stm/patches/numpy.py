"""numpy: what it calls, and whose random numbers are drawn."""

import functools
import types

from .. import core
from ..core import trusted

if core.COMPILED:
    from .. import _engine


class _Writes:
    """Something that errors are written to, with a method in Python."""

    def __init__(self, log):
        self._log = log

    def write(self, text):
        return self._log.write(text)


def calls_python(make_extobj):
    """``_make_extobj``, which keeps what is called on errors in computations: C code calls it where no barrier is, unless it is in Python."""

    @functools.wraps(make_extobj)
    def method(*arguments, **named):
        call = named.get("call")
        if call is not None and not is_python(call, "__call__" if callable(call) else "write"):
            named["call"] = (lambda *what: call(*what)) if callable(call) else _Writes(call)
        return make_extobj(*arguments, **named)

    return method


def is_python(called, method):
    if isinstance(called, types.MethodType):
        called = called.__func__
    return isinstance(called, types.FunctionType) or isinstance(getattr(type(called), method, None), types.FunctionType)


def made_anew(default_rng):
    """``default_rng``: from a number, or nothing, it makes a generator, which is the transaction's own; else it may share one."""
    if core.COMPILED:
        _engine.register_effect(default_rng, _engine.EFFECTS["CREATES"])

    @functools.wraps(default_rng)
    def method(seed=None):
        if seed is not None and type(seed) is not int:
            return draw_from(default_rng, seed)
        return default_rng(seed)

    return method


@trusted
def draw_from(default_rng, seed):
    core.exclusive("random numbers from what others may have")
    return default_rng(seed)
