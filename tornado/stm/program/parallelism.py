"""How many threads can run transactions; and where it is one, who says so, and why."""

import importlib.machinery  # noqa: F401, what it has is changed
import sys

from .. import core, transaction
from ..patches import table

#: sysconfig knows, too, but would load all that the interpreter was built with, at each start
FREE_THREADED = "t" in sys.abiflags


def usable_threads(threads):
    """Check a thread count and say, once, why there is only one.

    Raises:
        ValueError: not a possible number of threads.
    """
    transaction.set_threads(threads)
    if not core.PARALLEL:
        _say_why_serial()
        return 1
    if core.gil_is_enabled():
        _warn_of_gil()
        return 1
    return transaction.getsegmentlimit()


def why_serial():
    """Why transactions run one at a time; None if they run in parallel."""
    if core.PARALLEL:
        return None
    if not FREE_THREADED:
        return "Python {}.{}.{} has a GIL".format(*sys.version_info)
    return core.MISSING


_said = False


def say_no_more():
    """Somebody else has said why there is only one thread."""
    global _said
    _said = True


def _say_why_serial():
    global _said
    if not _said:
        _said = True
        core.say(f"tornado.stm: {why_serial()}: transactions run on one thread")


def _warn_of_gil():
    core.say(f"tornado.stm: warning: {_culprit} has switched the GIL on: transactions run on one thread")


#: what has switched it on, as far as is known
_culprit = "an imported extension"
_loops = 0


def watched(load):
    """A method that loads an extension module: learns which of them switches the GIL on, by looking before and after."""

    def load_and_look(loader, subject):
        global _culprit
        before = core.gil_is_enabled()
        result = load(loader, subject)
        if not before and core.gil_is_enabled():
            _culprit = f"the extension module {loader.name}"
            if _loops:
                _warn_of_gil()
        return result

    return load_and_look


def note_loop():
    """A loop is made that runs transactions in parallel: if the GIL is switched on from here on, it is to be said at once."""
    global _loops
    _loops += 1


if FREE_THREADED:
    table.apply("extensions")
