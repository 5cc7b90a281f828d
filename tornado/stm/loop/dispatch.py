"""The dispatch order: what is expected to be over soon runs before what is expected to compute for long.

Transactions wait in two queues, both first come, first served.  What waits in the *prompt* queue runs first; a transaction goes
to the *long* queue if those like it have lately taken at least `LONG` seconds of processor time.  So a trivial request
waits until one of the threads ends what it is at, not for all the computing that others have asked for before.

What is guaranteed:

* No long transaction starves.  While some wait, their queue is owed as much time as the threads spend on prompt ones; what it is
  owed goes before the prompt queue.  So they get at least half of all time, in the order in which they came.
* A transaction is never dispatched before its predecessor, which it would wait for with a thread in its hands.
* The guess decides on the order only.  A wrong one costs time: a long transaction that was expected to be prompt delays what
  waits behind it once, and so does the other way round the transaction itself.

What a transaction is expected to take is told by its *site*: which callback it runs, of what, and for the step of a task which
coroutine, with which plain arguments.  The last two runs of a site decide together (one alone may have been the first, or
unlucky); an unknown site is expected to do what its kind does: the same function on the same class.  Compare
"multilevel feedback queue" (Corbato, Daggett & Daley, "An experimental time-sharing system", 1962), which learns of a
process what this learns of a site.
"""

import time
from asyncio import tasks
from collections import OrderedDict, deque
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType

from .. import core
from ..core import trusted

#: seconds of processor time from which on a transaction is long
LONG = 0.005

#: so many sites and kinds are remembered; the one not seen for longest is forgotten
SITES = 4096

#: a kind is expected to be long if at least this share of its runs, the latest counting most, was
LONG_KIND = 0.8
#: how much of that share the latest run makes up
WEIGHT = 0.1


class Estimates:
    """What transactions have taken lately, by site and by kind of site."""

    def __init__(self):
        self._sites = OrderedDict()  # site -> (the shorter of the last two runs, the last run), in seconds
        self._kinds = OrderedDict()  # kind -> share of long runs

    def expected(self, site):
        """Seconds that a transaction of this site is expected to take."""
        if site is None:
            return 0.0
        known = self._sites.get(site)
        if known is not None:
            return known[0]
        return LONG if self._kinds.get(site[0], 0.0) >= LONG_KIND else 0.0

    def learn(self, site, seconds):
        """A transaction of this site has taken so long."""
        if site is None:
            return
        known = self._sites.get(site)
        _remember(self._sites, site, (seconds if known is None else min(seconds, known[1]), seconds))
        long = 1.0 if seconds >= LONG else 0.0
        share = self._kinds.get(site[0])
        if share is None:
            # Not yet: the first run of a kind is not like those that follow.
            _remember(self._kinds, site[0], 0.0)
        else:
            _remember(self._kinds, site[0], share + WEIGHT * (long - share))


def _remember(table, key, value):
    table[key] = value
    table.move_to_end(key)
    if len(table) > SITES:
        table.popitem(last=False)


class Entry:
    """A transaction that waits: with its predecessor (or None) and its site."""

    __slots__ = ("transaction", "before", "site", "expected")

    def __init__(self, transaction, before, site, expected):
        self.transaction = transaction
        self.before = before
        self.site = site
        self.expected = expected


class ReadyQueue:
    """The transactions that wait for a thread.  Every method is called under the scheduler's lock.

    Invariants: `_waiting` has the transactions of both queues, each with its queue; a transaction in the prompt queue
    whose predecessor waits comes after it in that queue; a transaction in the long queue may be dispatched unless its
    predecessor waits in the prompt queue, or further ahead in its own.
    """

    def __init__(self):
        self._prompt = deque()
        self._long = deque()
        self._waiting = {}
        self._owed = 0.0  # seconds that the threads have given to prompt ones while long ones waited
        self._estimates = Estimates()

    def __len__(self):
        return len(self._waiting)

    def put(self, transaction, site=None, before=None):
        """Let a transaction wait.  `before` is its predecessor, a transaction or None."""
        expected = self._estimates.expected(site)
        queue = self._long if expected >= LONG or self._waiting.get(before) is self._long else self._prompt
        queue.append(Entry(transaction, before, site, expected))
        self._waiting[transaction] = queue

    def put_first(self, transaction):
        """Let a transaction wait before all others."""
        self._prompt.appendleft(Entry(transaction, None, None, 0.0))
        self._waiting[transaction] = self._prompt

    def only_long(self):
        """Do none but long ones wait?"""
        return not self._prompt and bool(self._long)

    def take(self, until=None):
        """Remove the next and return its Entry, or None if none may be dispatched.

        Args:
            until: take none of this age or younger.
        """
        prompt, long = self._prompt, self._long
        for queue in (long, prompt) if long and self._owed >= max(long[0].expected, LONG) else (prompt, long):
            if not queue:
                continue
            entry = queue[0]
            if (until is not None and entry.transaction.age >= until) or entry.before in self._waiting:
                continue
            queue.popleft()
            del self._waiting[entry.transaction]
            if queue is long:
                self._owed = max(0.0, self._owed - max(entry.expected, LONG)) if long else 0.0
            return entry
        return None

    def ran(self, entry, seconds):
        """The transaction of this entry has taken so many seconds of processor time."""
        if self._long and entry.expected < LONG:
            self._owed += seconds
        self._estimates.learn(entry.site, seconds)

    def clear(self):
        """Forget all that wait."""
        self._prompt.clear()
        self._long.clear()
        self._waiting.clear()


def site_of(handle):
    """The site of a callback: (its kind, what else tells it from others of that kind); None for one of no known kind."""
    callback = handle._callback
    while type(callback) is partial:
        callback = callback.func
    if type(callback) is FunctionType:
        return (callback.__code__,), None
    if type(callback) is not MethodType:
        return ((type(callback), callback.__name__), None) if type(callback) is BuiltinMethodType else None
    owner, function = callback.__self__, callback.__func__
    if isinstance(owner, tasks._PyTask):
        call = core.suspended_call(owner._coro)
        if call is not None:
            # Which of its steps a coroutine that has begun does next, nobody knows; a connection's will do what its last did.
            return call[:3], (call[3:], id(owner) if call[1] else None)
    return (function.__code__ if type(function) is FunctionType else type(function), type(owner)), id(owner)


#: the clock of transactions: seconds of processor time of this thread
clock = time.thread_time

for _class in (Estimates, Entry, ReadyQueue):
    for _member in list(vars(_class).values()):
        if hasattr(_member, "__code__"):
            trusted(_member)
for _function in (_remember, site_of):
    trusted(_function)
