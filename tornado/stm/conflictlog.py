"""The conflict log of a run: asked for by ``--log`` or the environment variable PYPYSTM, or switched on and off meanwhile.

``python -m tornado.stm.log FILE`` says what it tells.  A program that has children, by ``os.fork`` or ``multiprocessing``, has a log of each,
``FILE.fork<pid>``.
"""

from __future__ import annotations

import atexit
import os
import sys

from . import core
from .core import once, trusted

#: bytes of a log, the older half of which is in FILE.1
LIMIT = 1 << 30

#: what `begin` begins, if not what the environment says: the log, and its limit
_wanted: tuple[str, int] | None = None

#: of the log that is open: its path, its limit, and the process that has begun it
_open: tuple[str, int, int] | None = None


def want(path: str, limit: int = LIMIT) -> None:
    """Let this be the log that begins before the first transaction, whatever the environment says; none, if `path` is empty."""
    global _wanted
    _wanted = path, limit


@trusted
def start(path: str | os.PathLike[str], limit: int = LIMIT) -> None:
    """Begin a log; one that is open ends.

    Transactions that have begun before are in it from what they do next.  What is told is written every 20 ms by a thread of its own.

    Args:
        path: of the file, which is overwritten.
        limit: bytes: a file that has half of them becomes ``path.1`` and a new one begins; 0: no limit.

    Raises:
        OSError: it cannot be written.
        ValueError: the limit is negative, or no file can be as long.
    """
    if limit < 0:
        raise ValueError(f"the limit of a log must not be negative: {limit}")
    if limit >= 2**63:
        raise ValueError(f"the limit of a log must be less than 2**63: {limit}")
    global _open
    path = os.path.abspath(path)  # the program may go to another folder
    core.log_open(path, limit)
    _open = path, limit, os.getpid()


@trusted
def stop() -> None:
    """End the log, if one is open, when all that has been told is written."""
    global _open
    core.log_close()
    _open = None


def path() -> str | None:
    """Of the log that is open, absolute, or None."""
    if _open is None:
        return None
    path, _, process = _open
    return path if process == os.getpid() else f"{path}.fork{os.getpid()}"


#: the path of the log of the process that has started this one, or the one that has started that; None if nobody has
_of_first: str | None = None


def of_children() -> tuple[str, int]:
    """What processes that this one starts anew are to give `want_as_child`."""
    return (_of_first or _open[0], _open[1]) if _open and core.PARALLEL else ("", LIMIT)


def want_as_child(of_first: str, limit: int) -> None:
    """`want` a log beside that of the first process, named as that of one that has been forked; none, if that has none."""
    global _of_first
    _of_first = of_first
    want(of_first and f"{of_first}.fork{os.getpid()}", limit)


@trusted
@once
def begin() -> None:
    """Begin the log that is asked for, before the first transaction.

    Raises:
        SystemExit: it cannot be written (status 2).
    """
    path, limit = _wanted or (os.environ.get("PYPYSTM", ""), LIMIT)
    if not path:
        return
    try:
        start(path, limit)
    except OSError as e:
        core.say(f"tornado.stm: cannot write the conflict log {path}: {e.strerror}")
        if _of_first is None:
            sys.exit(2)
        return
    if not core.PARALLEL:
        core.say("tornado.stm: there is nothing to log where transactions run one at a time")
    atexit.register(stop)
