"""Warnings in transactions: those that C code gives, and those of ``warnings.warn``, which is such code.

C code has the warning shown by a function in Python, and holds the lock of all warnings meanwhile.  Were that function to wait for another
transaction, which is about to give a warning, both would wait for ever.  So what is to be printed or logged is put off to the commit, and
what the program sees of a warning by other ways it sees in an attempt that runs alone.  What an attempt has warned of that ends before, Python
does not take for shown.  A file that was left open is closed, and warned of, where what its transaction has held is dropped: that is shown
afterwards.
"""

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
        core.on_abort(functools.partial(forget, message, registry_of(message, sys._getframe(1))))
        if is_put_out():
            core.defer(show, message)
        else:
            core.exclusive_anew("a warning of C code, which the program has a look at")
            show(message)  # of one that is irrevocable, and needs nobody's lock as a rule

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
def forget(message, registry):
    for key in keys(message):
        if registry is not None:
            registry.pop(key, None)
    warnings.onceregistry.pop(keys(message)[0][:2], None)


@trusted
def is_put_out():
    """Is the warning printed or logged, and does nobody else get it?"""
    if warnings.showwarning is getattr(sys.modules.get("logging"), "_showwarning", None):
        return True
    return (
        (warnings.showwarning, warnings._showwarnmsg_impl) == _printed
        and warnings._get_context().log is None and sys.stderr is sys.__stderr__
    )  # fmt: skip
