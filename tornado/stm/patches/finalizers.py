"""What is said of objects that die: nothing of those that an aborted attempt has made, since they never were.

And a finalizer that has nothing to do as a rule.
"""

import gzip
import sys

from .. import core
from ..core import trusted


def quiet_gzip_file(finalizer):
    """``GzipFile.__del__``, but for one that is closed: nothing is left to do, and the finalizer would do that alone.

    One that is read is closed as by Python code.
    """

    def finalizer_of_readers(dying):
        if type(dying) is not gzip.GzipFile or dying.mode != gzip.READ:
            finalizer(dying)
            return
        try:
            dying.close()
        except BaseException:
            if sys.flags.dev_mode:
                raise

    return _unless_none("fileobj", finalizer_of_readers)


def quiet_transport(finalizer):
    """Likewise ``__del__`` of asyncio's transports over sockets."""
    return _unless_none("_sock", finalizer)


def _unless_none(attribute, finalizer):
    """The finalizer, for objects whose attribute is not None: nobody else can see what dies, so it is asked without a barrier."""

    @trusted
    def quiet_finalizer(dying):
        if getattr(dying, attribute, dying) is not None:
            finalizer(dying)

    return quiet_finalizer


def quiet_unawaited(warn):
    """What warns of coroutines that nobody has awaited, but for those of an aborted attempt."""
    return core.quiet_unawaited(trusted(warn))


def quiet_hook(previous):
    """``sys.unraisablehook``, but for finalizers that an abort has stopped at a barrier."""
    abort = core.Abort  # found now: the hook may outlive this module

    @trusted
    def hook(unraisable):
        if unraisable.exc_type is not abort:
            previous(unraisable)

    hook.is_quiet = True
    return hook


@trusted
def keep_hook_quiet():
    """The same of one that the program has set since, as error trackers and test runners do: transactions are about to run."""
    if core.PARALLEL and not hasattr(sys.unraisablehook, "is_quiet"):
        sys.unraisablehook = quiet_hook(sys.unraisablehook)
