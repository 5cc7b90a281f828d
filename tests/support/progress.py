"""Runs transactions on many threads and judges what the engine decided meanwhile, by its own record (``history.c``).

What every history must satisfy, whatever the transactions do:

* each transaction commits once; no attempt ends twice;
* who dooms another is older, or inevitable, or has found it overdue; a doomed attempt is aborted, and nobody is aborted by
  doom who was not doomed.  So without these two, the oldest of all active transactions is never aborted;
* an attempt that aborts itself because of an exclusive one has had to wait for it: never more than one a transaction
  that asks to be exclusive itself;
* the token of inevitability goes round in the order of asking;
* nobody begins, commits or aborts while another one is exclusive;
* whoever begins by waiting to be exclusive (atomic blocks outside transactions, and transactions that have been aborted
  when they wanted to be) waits for those before it in that queue, each with one commit of each thread in between;
* whoever waits at the gate waits for two exclusive ones at most: the one that is, and one that it came too late for;
* a transaction is aborted `MAX_ABORTS` times at most, then it is exclusive.
"""

import collections
import threading
from collections import Counter, deque

from tornado.stm import activation, core
from tornado.stm.core import trusted

#: MAX_ATTEMPTS of transaction.c
MAX_ABORTS = 30

#: PATIENT of contention.c
PATIENT = 16

#: why attempts are aborted
DOOMED, EXCLUDED, INJECTED, DROPPED, RAISED, WAITED = (
    core.CAUSES[name] for name in ("DOOMED", "EXCLUSIVE", "INJECTED", "DROPPED", "RAISED", "MUTEX")
)

#: what a transaction waits for
FOR_LOCKS = tuple(core.WAITS[name] for name in ("OWNER", "READER", "RESERVATION", "BIASED"))
FOR_ORDER, FOR_GATE = core.WAITS["ORDER"], core.WAITS["GATE"]

EXCLUSIVE_GRADE = core.GRADES["EXCLUSIVE"]

#: the age of what drops the references of a transaction that has ended
NO_AGE = (1 << 64) - 1

TIMEOUT = 60

Event = collections.namedtuple("Event", "number slot age what other detail")


class Latch:
    """What a transaction can wait for without the engine's knowledge."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lock.acquire()
        self._open = False

    @trusted
    def open(self):
        """Let those who wait go on; a second time, by the same thread, it does nothing."""
        if not self._open:
            self._open = True
            self._lock.release()

    @trusted
    def wait(self):
        """Raises Stuck if it stays shut."""
        if not self._lock.acquire(timeout=TIMEOUT / 2):
            raise Stuck
        self._lock.release()


class Stuck(Exception):
    """Threads that should have ended long ago have not."""


class History:
    """What the engine recorded; `check` raises AssertionError where a promise is broken."""

    def __init__(self, events):
        self.events = events = [Event(*event) for event in events if event[2] != NO_AGE or event[3] in ("ask", "leave", "turn")]
        self.commits = [e for e in events if e.what == "commit"]
        self.aborts = [e for e in events if e.what == "abort"]
        self.by_age = collections.defaultdict(list)
        for event in events:
            if event.age != NO_AGE:
                self.by_age[event.age].append(event)

    def check(self):
        """All promises.  No finalizer may have run: one that goes exclusive is not part of any transaction."""
        self.check_attempts()
        self.check_dooms()
        self.check_token()
        self.check_exclusive()
        self.check_gate()
        self.check_fairness()

    def check_attempts(self):
        for age, events in self.by_age.items():
            ends = [e.what for e in events if e.what in ("begin", "commit", "abort")]
            aborts = ends.count("abort")
            assert ends == ["begin", "abort"] * aborts + ["begin", "commit"], f"transaction {age}: {ends}"
            assert aborts <= MAX_ABORTS, f"transaction {age} was aborted {aborts} times"
            asked = [i for i, e in enumerate(events) if e.what == "want" and e.detail == EXCLUSIVE_GRADE]
            if asked:
                after = [e for e in events[asked[0] :] if e.what == "abort"]
                assert len(after) <= 1, f"transaction {age} was aborted {len(after)} times since it wanted to be exclusive"

    def check_dooms(self):
        doomed = Counter()
        for event in self.events:
            if event.what == "doom":
                assert event.age < event.other or event.detail, f"{event.age} doomed the older {event.other}"
                doomed[event.other] += 1
        aborted = Counter(e.age for e in self.aborts if e.detail == DOOMED)
        assert doomed == aborted

    def check_token(self):
        queue, leaving = set(), set()
        for event in self.events:
            if event.what == "ask":
                queue.add(event.other)
            elif event.what == "leave":
                leaving.add(event.other)
            elif event.what == "turn":
                assert event.other == min(queue - leaving | {event.other}), f"turn {event.other} was not the first of {queue}"
                queue.remove(event.other)
        assert not queue - leaving

    def check_exclusive(self):
        alone = None
        self.exclusive_ends = set()
        for event in self.events:
            if alone is not None and event.slot != alone:
                assert event.what not in ("begin", "commit", "abort", "get"), f"{event} while another one was exclusive"
            if event.what == "get" and event.detail == EXCLUSIVE_GRADE:
                alone = event.slot
            elif event.what == "commit" and event.slot == alone:
                alone = None
                self.exclusive_ends.add(event.number)

    def check_gate(self):
        waiting = {}  # slot -> how many have become exclusive meanwhile
        for event in self.events:
            if event.what == "wait" and event.detail == FOR_GATE:
                waiting[event.slot] = 0
            elif event.what == "go":
                waiting.pop(event.slot, None)
            elif event.what == "get" and event.detail == EXCLUSIVE_GRADE:
                for slot in waiting:
                    waiting[slot] += 1
                    assert waiting[slot] <= 2, f"the thread {slot} waited while three others were exclusive"

    def check_fairness(self):
        """Whoever begins by waiting to be exclusive waits for those before it in the queue, and for one commit a thread each."""
        active = set()  # slots
        asked = {}  # turn -> (slot, number of the event), of those that hold nothing
        next_one = None  # (slot, since when nobody can begin)
        last_end = last_turn = 0
        committed = []  # since the last exclusive one
        for event in self.events:
            if event.what == "begin":
                active.add(event.slot)
            elif event.what == "abort":
                active.discard(event.slot)
            elif event.what == "ask" and event.slot not in active and event.age != NO_AGE:
                asked[event.other] = event.slot, event.number
            elif event.what == "turn":
                if event.other in asked:
                    slot, when = asked.pop(event.other)
                    # From one exclusive one to the next, the gate opens for those that wait there, and only for them.
                    next_one = slot, last_end if max(when, last_turn) < last_end else event.number
                last_turn = event.number
            elif event.what == "get" and next_one and next_one[0] == event.slot:
                times = Counter(e.slot for e in committed if e.number > next_one[1])
                assert all(n == 1 for n in times.values()), f"{event} had to wait for {times}"
                next_one = None
            elif event.what == "commit":
                active.discard(event.slot)
                committed.append(event)
                if event.number in self.exclusive_ends:
                    last_end = event.number
                    committed.clear()

    def bypasses(self):
        """For each transaction that waited in its last attempt: how many younger ones committed since then before it."""
        waiting = {}
        done = {}
        for event in self.events:
            if event.what == "wait" and event.detail in FOR_LOCKS:
                waiting.setdefault(event.age, 0)
            elif event.what == "abort":
                waiting.pop(event.age, None)
            elif event.what == "commit":
                for age in waiting:
                    if age < event.age:
                        waiting[age] += 1
                if event.age in waiting:
                    done[event.age] = waiting.pop(event.age)
        return done


def recorded(run):
    """Call the function; return the history of what it set off.  It must leave no transaction behind."""
    activation.activate()
    core.record_history(True)
    try:
        run()
    finally:
        core.record_history(False)
    return History(core.recorded_history())


@trusted
def in_threads(functions):
    """Call each on a thread of its own.

    Raises:
        Stuck: not all have returned after a minute.
        BaseException: the first that one of them raised.
    """
    failures = []

    def call(function):
        try:
            function()
        except BaseException as e:
            failures.append(e)

    trusted(call)
    threads = [threading.Thread(target=call, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    if any(thread.is_alive() for thread in threads):
        raise Stuck(f"{sum(thread.is_alive() for thread in threads)} of {len(threads)} threads have not ended")
    if failures:
        raise failures[0]


@trusted
def run_transactions(transactions, threads):
    """Run `core.Transaction` objects, oldest first, on so many threads."""
    queue = deque(transactions)

    @trusted
    def work():
        while True:
            try:
                transaction = queue.popleft()
            except IndexError:
                return
            transaction.run()

    in_threads([work] * threads)
