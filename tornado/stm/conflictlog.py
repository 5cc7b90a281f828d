"""The conflict log that the environment variable PYPYSTM asks for, in whatever program runs transactions."""

import atexit
import os
import sys

from . import core
from .core import once, trusted


@trusted
@once
def begin():
    """Begin the log, before the first transaction; without the variable, do nothing.

    Raises:
        SystemExit: it cannot be written (status 2).
    """
    path = os.environ.get("PYPYSTM")
    if not path:
        return
    try:
        core.log_open(path)
    except OSError as e:
        print(f"tornado.stm: cannot write the conflict log {path}: {e.strerror}", file=sys.stderr)
        sys.exit(2)
    if not core.PARALLEL:
        print("tornado.stm: PYPYSTM: there is nothing to log where transactions run one at a time", file=sys.stderr)
    atexit.register(core.log_close)
