"""What the transport of a subprocess tells its protocol comes in the order in which asyncio's loop has it come.

Its pipes and the end of the process are descriptors of their own, so what their events schedule would be in no order.  But the
transport relies on one: when it finds that all of them have come to their end, that is about to be told, and then that the
connection is lost is the last to be told.  So what is to be told waits in a line, of each transport, and each callback
tells the first that waits there.
"""

import asyncio
from collections import deque


class Line:
    """What a transport is about to tell: handles.

    Invariant: so many of its callbacks have been scheduled, or have come too early, as handles wait.
    """

    def __init__(self, loop):
        self.loop, self.waiting = loop, deque()
        self.begun = False  # has been told what asyncio's transport itself schedules, beginning with connection_made()
        self.early = 0  # callbacks that have come before that

    def add(self, callback, arguments):
        self.waiting.append(asyncio.Handle(callback, arguments, self.loop))
        self.loop.call_soon(self.tell)

    def tell(self):
        if self.begun:
            self.waiting.popleft()._run()
        else:
            self.early += 1

    def begin(self):
        self.begun = True
        for _ in range(self.early):
            self.loop.call_soon(self.tell)


def connecting(original):
    """Makes `BaseSubprocessTransport._connect_pipes`: it schedules what is pending at its end, of which the beginning of the line is the last."""

    async def _connect_pipes(self, waiter):
        self._line = Line(self._loop)
        self._pending_calls.append((self._line.begin, ()))
        await original(self, waiter)

    return _connect_pipes


def telling(original):
    """Makes `BaseSubprocessTransport._call`."""

    def _call(self, callback, *arguments):
        line, pending = getattr(self, "_line", None), self._pending_calls
        if line is None:
            original(self, callback, *arguments)
        elif pending is None:
            line.add(callback, arguments)
        else:
            pending.insert(len(pending) - 1, (callback, arguments))

    return _call
