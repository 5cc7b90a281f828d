"""What begins anew in the child of a fork, where the other threads are gone in the midst of what they did.

The engine's own state in C is reset by ``pthread_atfork`` handlers (``in_child()`` in ``engine/core/transaction.c`` and
``engine/thread.c``); what is in Python comes here as it is made.
"""

import functools
import os


def begin_by(function, *args):
    """In a child call it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=functools.partial(function, *args))


def free(*locks):
    """In a child nobody has these locks but the thread that has forked, which may have an ``RLock``."""
    begin_by(_free, locks)


def _free(locks):
    for lock in locks:
        if not (hasattr(lock, "_is_owned") and lock._is_owned()):
            lock._at_fork_reinit()
