"""``tornado.autoreload`` under ``python -m tornado.stm``: the program starts again as it was started, on this loop."""

import importlib.util
import os
import signal
import sys

import tornado.autoreload

#: of the module that runs and watches another program
NAME = tornado.autoreload.__name__


def install(module=tornado.autoreload):
    """Have the last of the reload hooks do what upstream does by a command line without ``-m tornado.stm``."""
    # The hooks are called by a loop over their list, so one that is added meanwhile is the last.
    module.add_reload_hook(lambda: module.add_reload_hook(again))


def again():
    """Replace this process by one with the same command line."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run_autoreload():
    """Do what ``python -m tornado.autoreload`` does: the module is there twice, and each has hooks of its own."""
    spec = tornado.autoreload.__spec__
    main_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main_module)
    install(main_module)
    main_module.__name__ = "__main__"
    sys.modules["__main__"] = main_module
    sys.argv[0] = spec.origin
    main_module.main()
