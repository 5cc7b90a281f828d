"""One transaction of a thread that runs no others."""

from .. import core
from ..core import trusted
from .interrupts import Guards, is_on_main


@trusted
def in_transaction(function, *args):
    """What the call returns or raises: in the transaction of this thread, or in one of its own.

    That one is none of a loop's or a queue's, so one of theirs that waits for this thread, alone, lets it in.  Handlers of signals wait for
    its end.
    """
    if core.in_transaction():
        return function(*args)
    queue, told = core.Queue(), []
    queue.add(lambda: told.append(function(*args)))
    guards = Guards(postpone=True) if is_on_main() else None
    try:
        failure = queue._run(1, lambda: None, None)
    finally:
        if guards is not None:
            guards.let_in()
    if failure is not None:
        raise failure
    return told.pop()
