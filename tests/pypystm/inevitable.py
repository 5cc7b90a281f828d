"""A watcher for the emulated module: what would make the transactions of request handlers inevitable on PyPy-STM.

One that cannot be undone waits for the others that cannot, so a handler must compute before it comes to that.
"""

from __future__ import absolute_import, division, print_function

import select
import socket
import sys
import threading
import time

import transaction

from tornado import web

MODULES = {"posix", "time", "fcntl", "signal", "select", "_socket", "_ssl"}
OWNERS = (type(socket.socket()._sock), type(select.epoll()), file)  # noqa: F821: Python 2 has `file`
HARMLESS = {"fileno", "family", "getpeername"}
# What sends an answer and ends a request, at the end of the handler's transaction.
ANSWERING = {"send", "setsockopt", "modify", "register", "unregister", "close"}

STARTS = web.RequestHandler.__init__.__func__.__code__
EMULATION = transaction.__file__.replace(".pyc", ".py")


class HandlersComputeFirst(object):
    """Collects what handlers' transactions do that cannot be undone, but for sending the answer.

    `before`: before the handler starts; `within`: from then on; `handlers`: how many have started.
    """

    def __init__(self):
        self.before = []
        self.within = []
        self.handlers = 0
        self._here = threading.local()

    def forget(self):
        """Returns what was collected, and begins anew."""
        collected = self.handlers, self.before, self.within
        self.handlers, self.before, self.within = 0, [], []
        return collected

    def begin(self):
        self._here.calls = []  # of functions that cannot be undone
        self._here.handlers = 0
        self._here.before = 0  # how many of the calls came before the first handler
        sys.setprofile(self._profile)

    def end(self):
        sys.setprofile(None)
        if self._here.handlers:
            self.handlers += self._here.handlers
            calls = self._here.calls
            self.before += ["%s before the handler" % name for name in calls[:self._here.before]]
            self.within += ["%s in the handler" % name for name in calls[self._here.before:] if name not in ANSWERING]

    def _profile(self, frame, event, function):
        if event == "call" and frame.f_code is STARTS:
            if not self._here.handlers:
                self._here.before = len(self._here.calls)
            self._here.handlers += 1
        elif event == "c_call" and frame.f_code.co_filename != EMULATION and cannot_be_undone(function):
            self._here.calls.append(function.__name__)


def cannot_be_undone(function):
    if function.__name__ in HARMLESS or function in (time.mktime,):
        return False
    return function.__module__ in MODULES or isinstance(getattr(function, "__self__", None), OWNERS)
