"""Warnings in transactions: those that C code gives, and those of ``warnings.warn``, which is such code.

C code has the warning shown by a function in Python, and holds the lock of all warnings meanwhile.  Were that function to wait for another
transaction, which is about to give a warning, both would wait for ever.  So what is to be printed or logged is put off to the commit, and
what the program sees of a warning by other ways it sees in an attempt that runs alone.  What an attempt has warned of that ends before, Python
does not take for shown.  A file that was left open is closed, and warned of, where what its transaction has held is dropped: that is shown
afterwards.
"""

import _warnings
import functools
import sys
import warnings

from .. import core
from ..core import trusted

_printed = warnings.showwarning, warnings._showwarnmsg_impl


def shown_without_waiting(show):
    """``warnings._showwarnmsg``, which C code calls."""
    trusted(warnings.WarningMessage.__init__)  # which it calls before

    @functools.wraps(show)
    @trusted
    def _showwarnmsg(message):
        if core.after_release(show, message):
            return
        if not core.in_transaction() or core.is_exclusive():
            show(message)
            return
        taken = marks(message, registry_of(message, sys._getframe(1)))
        forget(taken)  # nobody takes it for shown that is not
        if not (core.COMPILED and core.after_warning(show_once, show, message, taken)):
            put_out(show, message, taken)

    return _showwarnmsg


@trusted
def keys(message):
    """Under which Python remembers that it has been shown: for its place, or for all of the module."""
    text = str(message.message)
    return (text, message.category, message.lineno), (text, message.category, 0)


@trusted
def registry_of(message, frame):
    """Where Python remembers that, or None."""
    while frame is not None:
        registry = frame.f_globals.get("__warningregistry__")
        if registry and any(key in registry for key in keys(message)):
            return registry
        frame = frame.f_back
    return None


@trusted
def marks(message, registry):
    """By what Python knows that it has been shown: pairs of a dict and a key of it."""
    of_place, of_all = keys(message)
    places = (registry, of_place), (registry, of_all), (warnings.onceregistry, of_place[:2])
    return [(where, key) for where, key in places if where is not None and key in where]


@trusted
def forget(taken):
    for where, key in taken:
        where.pop(key, None)


@trusted
def show_once(show, message, taken):
    """What ``warnings.warn`` shows, after it has let go of its lock: unless another transaction has come first."""
    core.own(_warnings.warn)
    if not any(key in where for where, key in taken):
        put_out(show, message, taken)


@trusted
def put_out(show, message, taken):
    core.on_abort(forget, taken)
    for where, key in taken:
        where[key] = True
    if is_printed():
        core.defer(show, message)
    else:
        core.exclusive_anew("a warning of C code, which the program has a look at")
        show(message)  # of one that is irrevocable, and needs nobody's lock as a rule


@trusted
def is_printed():
    """Is the warning printed or logged, and does nobody else get it?"""
    if warnings.showwarning is getattr(sys.modules.get("logging"), "_showwarning", None):
        return True
    return (
        (warnings.showwarning, warnings._showwarnmsg_impl) == _printed
        and warnings._get_context().log is None and sys.stderr is sys.__stderr__
    )  # fmt: skip
