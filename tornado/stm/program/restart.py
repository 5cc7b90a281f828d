"""``tornado.autoreload`` under ``python -m tornado.stm``: the program starts again as it was started, on this loop."""

import os
import signal
import sys

import tornado.autoreload


def install():
    """Have the last of the reload hooks do what upstream does by a command line without ``-m tornado.stm``."""
    # The hooks are called by a loop over their list, so one that is added meanwhile is the last.
    tornado.autoreload.add_reload_hook(lambda: tornado.autoreload.add_reload_hook(again))


def again():
    """Replace this process by one with the same command line."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
