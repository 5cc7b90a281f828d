#!/usr/bin/env python3
"""Say what a conflict log tells: where the time of a run went, and which conflicts took it.

    python -m tornado.stm --log stm.log app.py
    python -m tornado.stm.log stm.log
    python -m tornado.stm.log stm.log --html report.html

The file needs nothing but Python 3.8, and may be copied to where the logs are; it also reads those of PyPy-STM.

The log
    A log is a header of 16 bytes that names its format, C7 or C8, and a stream of records in the order of time: when,
    which thread, what happened, and the place in the program, if it has one.  The tables below are the formats.

    A thread's records tell its life as a sequence of transactions: START, then COMMIT or ABORT.  A thread that was
    inside a transaction when the log was opened has no START for it; that transaction counts from the thread's first
    record.  Between WAIT_* and WAIT_DONE the thread is paused.  Between DETACH and REATTACH (C8) it is outside of
    Python, in a blocking call for example.  Records of garbage collection may be anywhere.

    A program that bounds its log has put the older half into FILE.1, which is read before FILE.  The events 15 to 18 of
    C7 are tornado-stm's: 15 to 17 come before a conflict and tell more of it (the lines of the program itself that have
    called the two places, the functions that these belong to, the object); 18 is BECOME_INEVITABLE as in C8, with the
    grade as its second place: an irrevocable transaction goes on beside others, an exclusive one alone; one is sequential
    that runs alone because nobody else has anything to do.

Where the time went
    real time    from the first record to the last.
    CPU time     of a transaction is the time from its START to its COMMIT (committed) or ABORT (aborted), less what
                 it was paused and detached.  Several threads together may have more CPU time than there is real time.
    paused       all WAIT_* to WAIT_DONE, inside of transactions and between them.
    in GC        collections, less the pauses in them.  It is a part of the CPU time, not beside it.
    inevitable   CPU time of committed transactions from their BECOME_INEVITABLE on.  It is a part of the CPU time.
    A transaction, a wait or a collection that has not ended when the log does is in none of them.

Whom a conflict is charged to
    Conflicts are summed by kind, places in this thread and in the other thread, and object.  Each has a number of
    times, the CPU time lost in transactions aborted for it, and the time threads were paused for it.  The handler that
    has lost that time is the one of the thread that was paused or aborted.

    C7  Every CONTENTION_* record is one conflict of its thread.  What that thread logs next is how it was decided:
          WAIT_CONTENTION           it waits: the pause is charged to the conflict.  A thread that becomes inevitable
                                    also waits for all others, so WAIT_SYNC_PAUSE after CONTENTION_INEVITABLE counts
                                    too, unless that has been waited for as a contention; after any other conflict it
                                    is a wait for something else.
          ABORTING_OTHER_CONTENTION the other thread's current transaction will abort: the CPU time of that one, all of
                                    it, is charged to the conflict.  The other may have noticed, and logged its ABORT,
                                    before this record was written: then that abort is meant and not the next.
          TRANSACTION_ABORT         it aborts itself: its CPU time, all of it, is charged to the conflict.  So is an
                                    abort after it has waited, unless another thread has asked for that abort.
    C8  BECOME_INEVITABLE is no conflict yet, but each WAIT_OTHER_INEVITABLE that follows in that transaction is one,
        and its pause is charged to it.
        CONTENTION_WRITE_READ is one, and the transaction aborts next.  It is charged the transaction's CPU time up to
        this record (what follows is the undoing, which only the total of aborted time has), and all of its pauses: it
        has waited in vain.  So a pause may show under two conflicts, the one it was for and the one that wasted it.

    The wait before a START (WAIT_FREE_SEGMENT), pauses for other threads' collections and the wait for an earlier
    transaction's commit are nobody's conflict: they are only in the total of paused time, which is listed by kind of
    wait.  tornado-stm tells of a wait to begin, while another thread is inevitable, as of a conflict with that one.
"""

from __future__ import annotations

import argparse
import base64
import errno
import json
import math
import os
import re
import signal
import stat
import struct
import sys
from contextlib import ExitStack
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO, Callable, Iterator, Sequence, TextIO

# The formats

C7_EVENTS = {  # number: name, the method of C7Accounts that it is for
    0: ("TRANSACTION_START", "start"),
    1: ("TRANSACTION_COMMIT", "commit"),
    2: ("TRANSACTION_ABORT", "abort"),
    3: ("CONTENTION_WRITE_WRITE", "contention"),
    4: ("CONTENTION_WRITE_READ", "contention"),
    5: ("CONTENTION_INEVITABLE", "contention"),
    6: ("ABORTING_OTHER_CONTENTION", "aborting_other"),
    7: ("WAIT_FREE_SEGMENT", "wait"),
    8: ("WAIT_SYNC_PAUSE", "wait"),
    9: ("WAIT_CONTENTION", "wait"),
    10: ("WAIT_DONE", "wait_done"),
    11: ("GC_MINOR_START", "gc_start"),
    12: ("GC_MINOR_DONE", "gc_done"),
    13: ("GC_MAJOR_START", "gc_start"),
    14: ("GC_MAJOR_DONE", "gc_done"),
    15: ("CONTENTION_CALLERS", "detail"),
    16: ("CONTENTION_HANDLERS", "detail"),
    17: ("CONTENTION_OBJECT", "detail"),
    18: ("BECOME_INEVITABLE", "become_inevitable"),
}

C8_EVENTS = {  # number: name, the method of C8Accounts that it is for
    0: ("TRANSACTION_START", "start"),
    1: ("TRANSACTION_COMMIT", "commit"),
    2: ("TRANSACTION_ABORT", "abort"),
    3: ("TRANSACTION_DETACH", "detach"),
    4: ("TRANSACTION_REATTACH", "reattach"),
    5: ("BECOME_INEVITABLE", "become_inevitable"),
    6: ("CONTENTION_WRITE_READ", "contention"),
    7: ("WAIT_FREE_SEGMENT", "wait"),
    8: ("WAIT_SYNCING", "wait"),
    9: ("WAIT_SYNC_PAUSE", "wait"),
    10: ("WAIT_OTHER_INEVITABLE", "wait"),
    11: ("WAIT_DONE", "wait_done"),
    12: ("GC_MINOR_START", "gc_start"),
    13: ("GC_MINOR_DONE", "gc_done"),
    14: ("GC_MAJOR_START", "gc_start"),
    15: ("GC_MAJOR_DONE", "gc_done"),
}

WAITS_OF = {  # kind of conflict: the waits that are charged to it
    "CONTENTION_WRITE_WRITE": ("WAIT_CONTENTION",),
    "CONTENTION_WRITE_READ": ("WAIT_CONTENTION",),
    "CONTENTION_INEVITABLE": ("WAIT_CONTENTION", "WAIT_SYNC_PAUSE"),
    "BECOME_INEVITABLE": ("WAIT_OTHER_INEVITABLE",),
}

HEADER_SIZE = 16
C7_RECORD = struct.Struct("<IIIIBBB")  # seconds, nanoseconds, thread, other thread, event, lengths of two places
C8_RECORD = struct.Struct("<IIIBB")  # seconds, nanoseconds, thread, event, length of the place
SEQUENTIAL = b"sequential"  # the grade of what keeps nobody waiting
SECOND = 10**9  # all times inside are in nanoseconds
FAR = 2**32  # seconds: longer than any log


class LogError(Exception):
    """This file cannot be analysed; the text says why and is meant for the user."""


class LogReader:
    """The records of one log, read as a stream: memory does not grow with the log.

    Meanwhile `aligned` is where a record begins that is not far before the one that has been yielded.  After the iteration, `truncated`
    says whether the log ends in the middle of a record.
    """

    CHUNK = 1 << 20

    def __init__(self, stream: BinaryIO, progress: Callable[[int], object] | None = None) -> None:
        """`stream` is a binary file; `progress` is called with the number of bytes read so far, now and then.

        What is appended to a regular file from here on is not read: the program may write faster than we read.
        Raises LogError when this is no log, or one without a header's worth of bytes.
        """
        status = os.fstat(stream.fileno())
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        header = stream.read(HEADER_SIZE)
        if header not in FORMATS:
            if any(known.startswith(header) for known in FORMATS):
                raise LogError("is empty: no transaction was logged")
            raise LogError("is no conflict log: it does not begin with STMGC-C7-PROF01 or STMGC-C8-PROF01")
        self.format, self.events, self.accounts_class = FORMATS[header]
        self.truncated = False
        self.aligned = HEADER_SIZE
        self._stream = stream
        self._progress = progress

    def skip_to(self, offset: int) -> None:
        """Begin at that byte, which was `aligned` once, of a regular file."""
        self.aligned = self._stream.seek(offset)

    def __iter__(self) -> Iterator[tuple[int, int, int, int, bytes, bytes]]:
        """Yield (nanoseconds, thread, other thread or 0, event number, place here, place there); places are bytes."""
        is_c7 = self.format == "C7"
        record = C7_RECORD if is_c7 else C8_RECORD
        unpack, size = record.unpack_from, record.size
        other = there_length = 0
        rest = b""
        total = self.aligned
        while True:
            left = self.CHUNK if self._size is None else self._size - total
            chunk = self._stream.read(min(left, self.CHUNK)) if left > 0 else b""
            if not chunk:
                break
            total += len(chunk)
            data = rest + chunk
            self.aligned = total - len(data)
            end, position = len(data), 0
            while end - position >= size:
                if is_c7:
                    seconds, nanoseconds, thread, other, event, here_length, there_length = unpack(data, position)
                else:
                    seconds, nanoseconds, thread, event, here_length = unpack(data, position)
                here_at = position + size
                there_at = here_at + here_length
                next_at = there_at + there_length
                if next_at > end:
                    break
                stamp = seconds * SECOND + nanoseconds
                yield stamp, thread, other, event, data[here_at:there_at], data[there_at:next_at]
                position = next_at
            rest = data[position:]
            if self._progress:
                self._progress(total)
        self.truncated = bool(rest)


# What is summed

class Timeline:
    """How a cost is spread over the run, at a resolution that halves as the run grows: bounded memory.

    Invariant: `cells[i]` is the cost from i * width to (i + 1) * width nanoseconds, and every i < CELLS.
    """

    CELLS = 512
    SHADES = " .:-=+*#%@"

    def __init__(self):
        self.width = 1
        self.cells = {}

    def add(self, when, cost):
        """Add `cost` at `when` nanoseconds after the beginning of the run."""
        while when >= self.width * self.CELLS:
            merged = {}
            for index, value in self.cells.items():
                merged[index // 2] = merged.get(index // 2, 0) + value
            self.cells = merged
            self.width *= 2
        index = when // self.width
        self.cells[index] = self.cells.get(index, 0) + cost

    def columns(self, length, count):
        """The cost in each of `count` equal parts of a run of `length` nanoseconds, as floats."""
        columns = [0.0] * count
        scale = count / max(length, 1)
        for index, value in self.cells.items():
            begin = index * self.width * scale
            end = min(begin + self.width * scale, count)
            if end - begin < 1e-9:  # the very end of the run
                columns[-1] += value
                continue
            for column in range(int(begin), min(math.ceil(end), count)):
                columns[column] += value * (min(end, column + 1) - max(begin, column)) / (end - begin)
        return columns

    def draw(self, length, count=60):
        """The same as text: one character a column, darkest where it costs most, a blank where nothing happened."""
        columns = self.columns(length, count)
        most = max(columns)
        darkest = len(self.SHADES) - 1
        return "".join(self.SHADES[math.ceil(value / most * darkest)] if most else " " for value in columns)


class Lane:
    """What one thread did when, at a resolution that halves as the run grows: bounded memory.

    Invariant: `cells[i]` has the nanoseconds that it spent in each of STATES from i * width to (i + 1) * width, and every
    i < CELLS.  What is left of a cell it was idle.
    """

    CELLS = 8192
    STATES = COMMITTED, INEVITABLE, ABORTED, WAITING = range(4)

    def __init__(self):
        self.width = 1
        self.cells = {}

    def add(self, state, begin, end):
        """It was in that state between these nanoseconds of the run."""
        while end >= self.width * self.CELLS:
            merged = {}
            for index, spent in self.cells.items():
                cell = merged.setdefault(index // 2, [0] * len(self.STATES))
                for each, nanoseconds in enumerate(spent):
                    cell[each] += nanoseconds
            self.cells = merged
            self.width *= 2
        while begin < end:
            index = begin // self.width
            until = min(end, (index + 1) * self.width)
            self.cells.setdefault(index, [0] * len(self.STATES))[state] += until - begin
            begin = until

    def shares(self):
        """Of each cell, the shares of the states in 255ths, as bytes, without the cells behind the last one."""
        shares = bytearray(len(self.STATES) * (max(self.cells) + 1 if self.cells else 0))
        for index, spent in self.cells.items():
            for state, nanoseconds in enumerate(spent):
                shares[index * len(self.STATES) + state] = min(255, math.ceil(255 * nanoseconds / self.width))
        return bytes(shares)


class Cost:
    """How often something happened, and what it cost in nanoseconds."""

    def __init__(self):
        self.count = 0
        self.lost = 0  # CPU time of aborted transactions
        self.paused = 0

    @property
    def cost(self):
        return self.lost + self.paused

    def charge(self, count=0, lost=0, paused=0):
        self.count += count
        self.lost += lost
        self.paused += paused


class Conflict(Cost):
    """One kind of conflict between two places.

    Its texts are bytes, b"" where nothing is known.
    """

    def __init__(self, kind, here, there, caller_here=b"", caller_there=b"", wanted=b""):
        super().__init__()
        self.kind = kind  # the name of its event
        self.here = here  # the place in this thread
        self.there = there  # in the other thread
        self.caller_here = caller_here  # the program's own line that has called this place, if that is another one
        self.caller_there = caller_there
        self.wanted = wanted  # the object, attribute or key
        self.timeline = Timeline()
        self.handlers = {}  # handler that has lost time: how much

    def charge(self, when, count=0, lost=0, paused=0, handler=b""):
        """Add to it at `when` nanoseconds of the run."""
        super().charge(count, lost, paused)
        self.timeline.add(when, max(lost + paused, count))
        if handler and lost + paused:
            self.handlers[handler] = self.handlers.get(handler, 0) + lost + paused


class Thread:
    """Where one thread is in its current transaction.  All times are nanoseconds of the run; None: not now."""

    def __init__(self, now):
        self.begin(now)
        self.waiting = None  # since when
        self.wait_name = None  # the event it waits with
        self.collecting = None  # since when it collects garbage, pauses taken out
        self.collection = None  # the event that began it
        self.last_abort = None  # when
        self.unexplained = None  # the CPU time of its last abort, if no conflict was charged with it
        self.lane = None  # a Lane, if it is wanted what threads did when

    def begin(self, now):
        self.began = now
        self.paused = 0  # in this transaction, ended waits only
        self.detached = None  # since when
        self.away = 0  # detached in this transaction, ended ones only
        self.conflict = None  # the conflict that its waits and its abort are charged to
        self.conflict_when = now
        self.paid = None  # the wait that was charged to that conflict: no other kind will be
        self.handlers = b"", b""  # in that conflict, this thread's and the other's
        self.details = {}  # of the conflict that comes next: event: (here, there)
        self.won = False  # that conflict was decided against the other thread
        self.doomed_by = None  # the conflict in which another thread has asked for its abort, and this one's handler in it
        self.explained = False  # its abort has been charged already
        self.grades = []  # that it has had: ((place, grade), its CPU time then, and when it had the next one or None)
        self.inevitable_since = None  # when it first kept others waiting
        self.pieces = []  # of the lane: when it ran, (begin, end), until the wait that it is in
        self.runs_since = now

    def work(self, now):
        """CPU time of the current transaction until now; 0 when there is none."""
        if self.began is None:
            return 0
        until = now if self.detached is None else self.detached
        return max(until - self.began - self.paused - self.away, 0)


class Accounts:
    """The sums of a run: what both formats have in common.

    Public once all records are in, times in nanoseconds: `real_time`, `committed` and `aborted` (numbers),
    `cpu_committed`, `cpu_aborted`, `gc`, `pauses` (by name of the wait), `unexplained` and `cpu_unexplained` (the
    aborts that no conflict was charged with), `unknown_events` (skipped), `conflicts`, `inevitable` and, if asked for,
    the `lane` of each of `threads`.
    """

    def __init__(self, log_format, with_lanes=False):
        self.format = log_format
        self.with_lanes = with_lanes
        self.truncated = False
        self.records = 0
        self.unknown_events = 0
        self.real_time = 0
        self.committed = self.aborted = self.unexplained = 0
        self.cpu_committed = self.cpu_aborted = self.cpu_unexplained = 0
        self.gc = 0
        self.pauses = {}
        self.conflicts = {}  # the arguments of a Conflict: it
        self.handlers = {}  # handler: Cost, what it has lost
        self.inevitable = {}  # (place, grade): Cost, whose `lost` is what it was inevitable
        self.threads = {}  # number: Thread
        self.known = None  # for a later analysis: see `analyse`
        self.begins_at = None  # `aligned` of the reader, when it yielded the first record that counts
        self._first = None  # the stamp of that

    @property
    def paused(self):
        return sum(self.pauses.values())

    def ranking(self):
        """All conflicts, the most expensive first; what happened only once comes last."""
        return sorted(self.conflicts.values(), key=lambda c: (
            c.count < 2, -c.cost, -c.count, c.kind, c.here, c.there, c.caller_here, c.caller_there, c.wanted))

    def handlers_ranking(self):
        """(handler, Cost) of all that have lost time, who lost most first."""
        return sorted(self.handlers.items(), key=lambda item: (-item[1].cost, item[0]))

    def inevitable_ranking(self):
        """((place, grade), Cost) of all that was inevitable and kept others waiting, the longest first."""
        return sorted(((key, cost) for key, cost in self.inevitable.items() if key[1] != SEQUENTIAL),
                      key=lambda item: (-item[1].lost, -item[1].count, item[0]))

    def charge(self, conflict, when, count=0, lost=0, paused=0, handler=b""):
        """Charge a conflict with time that this handler has lost."""
        conflict.charge(when, count, lost, paused, handler)
        if handler:
            self.handlers.setdefault(handler, Cost()).charge(1, lost, paused)

    def read(self, reader, since=None, until=None):
        """Take in every record of a LogReader, or those whose stamps (in nanoseconds) are not before `since` or after `until`."""
        handlers = {number: (name, getattr(self, method)) for number, (name, method) in reader.events.items()}
        threads = self.threads
        for stamp, number, other, event, here, there in reader:
            if (since is not None and stamp < since) or (until is not None and stamp > until):
                continue
            if self._first is None:
                self._first, self.begins_at = stamp, reader.aligned
            now = max(stamp - self._first, 0)
            if now > self.real_time:
                self.real_time = now
            self.records += 1
            if event not in handlers:
                self.unknown_events += 1
                continue
            thread = threads.get(number)
            if thread is None:
                thread = threads[number] = Thread(now)
                if self.with_lanes:
                    thread.lane = Lane()
            name, handle = handlers[event]
            handle(thread, now, name, other, here, there)
        self.truncated = reader.truncated

    def conflict(self, *key):
        if key not in self.conflicts:
            self.conflicts[key] = Conflict(*key)
        return self.conflicts[key]

    # Transactions

    def start(self, thread, now, *_):
        thread.waiting = None
        thread.begin(now)

    def commit(self, thread, now, *_):
        work = thread.work(now)
        self.committed += 1
        self.cpu_committed += work
        for key, since, until in thread.grades[:-1] + [(*each[:2], work) for each in thread.grades[-1:]]:
            self.inevitable.setdefault(key, Cost()).charge(1, until - since)
        self._draw(thread, now, Lane.COMMITTED)
        self._end(thread)

    def abort(self, thread, now, *_):
        lost = thread.work(now)
        self.aborted += 1
        self.cpu_aborted += lost
        guilty, handler = self.guilty_of_abort(thread)
        if guilty:
            self.charge(guilty, now, lost=lost, handler=handler)
        self._draw(thread, now, Lane.ABORTED)
        thread.last_abort, thread.unexplained = now, None
        if not guilty and not thread.explained:
            thread.unexplained = lost
            self.unexplained += 1
            self.cpu_unexplained += lost
        self._end(thread)

    def guilty_of_abort(self, thread):
        """The conflict that the abort of its current transaction is charged to, or None; and the handler that it aborts."""
        raise NotImplementedError

    def become_inevitable(self, thread, now, name, other, here, there):
        if thread.began is not None:
            work = thread.work(now)
            if thread.grades:
                key, since, _ = thread.grades[-1]
                thread.grades[-1] = key, since, work
            thread.grades.append(((here, there), work, None))
            if thread.inevitable_since is None and there != SEQUENTIAL:
                thread.inevitable_since = now

    def _end(self, thread):
        thread.begin(None)
        thread.waiting = None

    def _draw(self, thread, now, state):
        """A transaction has ended: into the lane with when it ran, and how that ended."""
        if thread.lane is None or thread.began is None:
            return
        since = now if thread.inevitable_since is None or state == Lane.ABORTED else thread.inevitable_since
        for begin, end in thread.pieces + [(thread.runs_since, now)]:
            thread.lane.add(state, begin, min(end, max(since, begin)))
            thread.lane.add(Lane.INEVITABLE, max(begin, since), end)

    # Pauses

    def wait(self, thread, now, name, *_):
        if thread.waiting is not None:
            self.wait_done(thread, now)
        thread.waiting = now
        thread.wait_name = name
        if thread.lane is not None and thread.began is not None:
            thread.pieces.append((thread.runs_since, now))

    def wait_done(self, thread, now, *_):
        if thread.waiting is None:
            return
        pause = max(now - thread.waiting, 0)
        thread.waiting = None
        thread.paused += pause
        thread.runs_since = now
        if thread.lane is not None:
            thread.lane.add(Lane.WAITING, now - pause, now)
        if thread.collecting is not None:
            thread.collecting += pause
        self.pauses[thread.wait_name] = self.pauses.get(thread.wait_name, 0) + pause
        self.charge_pause(thread, now, pause)

    def charge_pause(self, thread, now, pause):
        """The wait thread.wait_name of a thread is over: charge it."""
        raise NotImplementedError

    # Garbage collection

    def gc_start(self, thread, now, name, *_):
        if thread.collecting is None:
            thread.collecting = now
            thread.collection = name

    def gc_done(self, thread, now, name, *_):
        if thread.collecting is not None and thread.collection == name.replace("DONE", "START"):
            self.gc += max(now - thread.collecting, 0)
            thread.collecting = None


class C7Accounts(Accounts):
    """A conflict names both threads; it may cost either of them."""

    def detail(self, thread, now, name, other, here, there):
        thread.details[name] = here, there

    def contention(self, thread, now, name, other, here, there):
        details, thread.details = thread.details, {}
        nothing = b"", b""
        callers, (wanted, _) = details.get("CONTENTION_CALLERS", nothing), details.get("CONTENTION_OBJECT", nothing)
        thread.conflict = self.conflict(name, here, there, *callers, wanted)
        thread.handlers = details.get("CONTENTION_HANDLERS", nothing)
        thread.conflict_when = now
        thread.paid = None
        thread.won = False
        thread.conflict.charge(now, count=1)

    def aborting_other(self, thread, now, name, other, here, there):
        if thread.conflict is None:
            return
        thread.won = True
        victim = self.threads.get(other)
        if victim is None:
            return
        if victim.last_abort is None or victim.last_abort < thread.conflict_when:
            victim.doomed_by = victim.doomed_by or (thread.conflict, thread.handlers[1])
        elif victim.unexplained is not None:
            self.charge(thread.conflict, victim.last_abort, lost=victim.unexplained, handler=thread.handlers[1])
            self.unexplained -= 1
            self.cpu_unexplained -= victim.unexplained
            victim.unexplained = None

    def guilty_of_abort(self, thread):
        if thread.doomed_by:
            return thread.doomed_by
        return (None, b"") if thread.won else (thread.conflict, thread.handlers[0])

    def charge_pause(self, thread, now, pause):
        if thread.conflict is None:
            return
        if thread.wait_name in WAITS_OF[thread.conflict.kind] and thread.paid in (None, thread.wait_name):
            thread.paid = thread.wait_name
            self.charge(thread.conflict, now, paused=pause, handler=thread.handlers[0])
        else:
            thread.conflict = None


class C8Accounts(Accounts):
    """A conflict names the thread that it costs."""

    def detach(self, thread, now, *_):
        if thread.detached is None:
            thread.detached = now

    def reattach(self, thread, now, *_):
        if thread.detached is not None:
            thread.away += max(now - thread.detached, 0)
            thread.detached = None

    def become_inevitable(self, thread, now, name, other, here, there):
        super().become_inevitable(thread, now, name, other, here, there)
        thread.conflict = name, here, there

    def contention(self, thread, now, name, other, here, there):
        thread.explained = True
        self.conflict(name, here, there).charge(now, count=1, lost=thread.work(now), paused=thread.paused)

    def guilty_of_abort(self, thread):
        return None, b""

    def charge_pause(self, thread, now, pause):
        if thread.conflict is not None and thread.wait_name in WAITS_OF[thread.conflict[0]]:
            self.conflict(*thread.conflict).charge(now, count=1, paused=pause)


FORMATS = {  # header: name, events, how they are summed
    b"STMGC-C7-PROF01\n": ("C7", C7_EVENTS, C7Accounts),
    b"STMGC-C8-PROF01\n": ("C8", C8_EVENTS, C8Accounts),
}


def parts(path: str) -> list[str]:
    """The files of the log at `path`, the older one first."""
    older = path + ".1"
    try:
        if not (os.path.isfile(path) and os.path.isfile(older)):
            return [path]
        with open(older, "rb") as one, open(path, "rb") as other:
            header = one.read(HEADER_SIZE)
            return [older, path] if header in FORMATS and header == other.read(HEADER_SIZE) else [path]
    except OSError:
        return [path]


def end_of(path: str) -> tuple[int | None, int | None]:
    """The stamps of the first and the last record of a log."""
    first = last = None
    for part in parts(path):
        with open(part, "rb") as stream:
            for stamp, *_ in LogReader(stream):
                first, last = (stamp if first is None else first), stamp
    return first, last


def window(path: str, since: float | None, until: float | None) -> tuple[int | None, int | None]:
    """What `since` and `until`, seconds of the run, negative from its end on, are in stamps; None stays."""
    if since is None and until is None:
        return None, None
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise LogError("is no regular file, which --since and --until would read twice")
    first, last = end_of(path)

    def stamp(seconds):
        return seconds and (last if seconds < 0 else first) + int(max(-FAR, min(seconds, FAR)) * SECOND)

    return (None, None) if first is None else (stamp(since), stamp(until))


def identity(stream: BinaryIO) -> str:
    """Which file of a log this is, whatever it is called meanwhile: its first stamp; "" where it has none, or is no regular file.

    The stream is at its beginning, before and after.
    """
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return ""
    stamp = stream.read(HEADER_SIZE + 8)[HEADER_SIZE:]
    stream.seek(0)
    return stamp.hex() if len(stamp) == 8 else ""


def analyse(
    path: str, progress: Callable[[int], object] | None = None, begin: int | None = None, end: int | None = None, with_lanes: bool = False,
    known: Sequence[Any] | None = None,
) -> Accounts:
    """Read the log at `path` and return its Accounts.

    `progress` is as for LogReader, for all files of the log together.  Only what is logged from the stamp `begin` to the
    stamp `end` counts, as if the log had been opened and closed then.  `known` is what the attribute of that name was when the log was
    analysed with an earlier `begin`: what is before that is not read again.
    Raises LogError when it is no log or has no complete record, and OSError.
    """
    accounts, before = None, 0
    with ExitStack() as stack:
        streams = [stack.enter_context(open(part, "rb")) for part in parts(path)]  # before one takes the place of another
        identities = [identity(stream) for stream in streams]
        first, offset = (identities.index(known[0]), known[1]) if known and known[0] in identities else (0, HEADER_SIZE)
        for stream, name in list(zip(streams, identities))[first:]:
            reader = LogReader(stream, progress and (lambda done, before=before: progress(before + done)))
            if accounts is None:
                accounts = reader.accounts_class(reader.format, with_lanes)
                if offset > HEADER_SIZE:
                    reader.skip_to(offset)
            accounts.read(reader, begin, end)
            if accounts.known is None and accounts.begins_at is not None:
                accounts.known = name, accounts.begins_at
            before += os.fstat(stream.fileno()).st_size
    if not accounts.records:
        raise LogError("is empty: no transaction was logged" + (" then" if begin is not None or end is not None else ""))
    return accounts


def logs_of_children(path: str) -> list[str]:
    """The names of the logs that children of the program have written beside this one, in the run or in an earlier one."""
    folder, name = os.path.split(path)
    try:
        return sorted(other for other in os.listdir(folder or ".") if re.fullmatch(re.escape(name) + r"\.fork\d+", other))
    except OSError:
        return []


# What is to be done

STEP = "end the step before it: `await asyncio.sleep(0)`, then compute"
LIBRARY = r"/(python\d[^/]*|lib-python/[^/]+)/"  # where Python's own modules are, or PyPy's
ADVICE = [  # (kinds of conflict, what its places match, what its object matches, advice): the first that fits
    ("INEVITABLE", r"", r"",
     "the other one runs alone or may not be rolled back from there on; `python -m tornado.stm --explain` says why and what to declare; "
     "what computes afterwards should begin a step of its own: `await asyncio.sleep(0)`"),
    ("WRITE", LIBRARY + r"random\.py", r"", "one generator of random numbers for all: make a random.Random() where it is needed, or use random.SystemRandom()"),
    ("WRITE", LIBRARY + r"logging/", r"", "handlers of logging are shared: log less in what computes, or log last"),
    ("WRITE", LIBRARY + r"functools\.py|, in [^\n]*cache", r"", "a cache that all fill: fill it before the server listens, or look it up first and " + STEP),
    ("WRITE", LIBRARY + r"(queue|asyncio/queues|asyncio/locks|threading)\.py", r"",
     "all that wait for one another meet here: take what is needed first, then " + STEP.replace("before it", "there")),
    ("WRITE", r"", r"\]$", "many want one key: split it (a key for each user, thread or minute, summed up when it is read), or change it last, or " + STEP),
    ("WRITE", r"", r"\.[^. )]+$", "an attribute or global that many change, such as a counter: count apart and add up when it is read, or change it first and " + STEP),
    ("WRITE", r"", r"\((list|.*deque|bytearray)\)$|(list|deque|bytearray) object$",
     "a sequence is one thing to all: put what each has of its own into a dict by key, or append last"),
    ("WRITE", r"", r"\((dict|set|.*[Dd]ict|Counter)\)$|(dict|set) object$",
     "who looks at all of it (its length, a loop, a copy) conflicts with who puts a new key in: keep the number beside it, or look in a step of its own"),
    ("", r"", r"", "both lines use one object: give each its own, or " + STEP),
]


def advice(conflict: Conflict) -> str:
    """What could be done about it, in one line."""
    places = "\n".join(map(place_text, (conflict.here, conflict.there, conflict.caller_here, conflict.caller_there)))
    wanted = place_text(conflict.wanted)
    return next(text for kind, place, object_, text in ADVICE
                if kind in conflict.kind and re.search(place, places) and re.search(object_, wanted))


# What is shown

PLACE = re.compile(r'File "(.+)", line (\d+)(?:, in (.+))?')


def seconds(nanoseconds: float) -> str:
    return "%.3fs" % (nanoseconds / SECOND)


def share(part: float, whole: float) -> str:
    return "%.1f%%" % (100 * part / whole) if whole else "-"


def printable(text: str) -> str:
    """`text` without line breaks and control characters, nor bytes that are no text (of a file's name)."""
    return "".join(c if c.isprintable() else "\\x%02x" % (ord(c) & 0xFF if "\udc80" <= c <= "\udcff" else ord(c))
                   for c in text)


def place_text(place):
    """The text of a place as it may be printed."""
    return printable(place.decode("utf-8", "surrogateescape"))


@lru_cache(maxsize=None)
def source_line(place):
    """The line of source that a place, as bytes, points to, stripped; "" when that cannot be read."""
    match = PLACE.match(place.decode("utf-8", "surrogateescape"))
    if not match:
        return ""
    name, number = os.fsencode(match.group(1)), int(match.group(2))
    if number > sys.maxsize or not os.path.isfile(name):
        return ""
    try:
        with open(name, encoding="utf-8", errors="replace") as source:
            return printable("".join(islice(source, max(number - 1, 0), number)).strip())
    except OSError:
        return ""


def summary_lines(accounts):
    """The head of the report: totals, and their shares of the real time."""
    real = accounts.real_time
    transactions = accounts.committed + accounts.aborted
    yield "Total real time:     %10s" % seconds(real)
    for label, spent in [
        ("CPU time committed:", accounts.cpu_committed),
        ("CPU time aborted:", accounts.cpu_aborted),
        ("CPU time in GC:", accounts.gc),
        ("Time paused:", accounts.paused),
    ]:
        yield "%-20s %10s  %6s of real time" % (label, seconds(spent), share(spent, real))
    for name, spent in sorted(accounts.pauses.items(), key=lambda item: -item[1]):
        yield "    in %s: %s" % (name, seconds(spent))
    for grade in sorted({grade for _, grade in accounts.inevitable}):
        spent = sum(cost.lost for (_, each), cost in accounts.inevitable.items() if each == grade)
        yield "%-20s %10s  %6s of real time" % ("Time %s:" % (place_text(grade) or "inevitable"), seconds(spent), share(spent, real))
    yield "Transactions:        %10d  %6s of them aborted (%d)" % (
        transactions, share(accounts.aborted, transactions), accounts.aborted)
    if accounts.unexplained:
        yield "    aborted without a conflict in the log: %d, %s" % (
            accounts.unexplained, seconds(accounts.cpu_unexplained))


def handler_text(handler):
    """The name of a handler and where it begins, as it may be printed."""
    text = place_text(handler)
    match = PLACE.match(text)
    return "%s (%s:%s)" % (match.group(3), os.path.basename(match.group(1)), match.group(2)) if match and match.group(3) else text


def place_lines(place, caller):
    """A place and its source, then the line of the program that has called it."""
    yield place_text(place)
    if source_line(place):
        yield "    " + source_line(place)
    if caller:
        yield "  for " + place_text(caller)
        if source_line(caller):
            yield "    " + source_line(caller)


def conflict_lines(conflict, real_time):
    """One conflict of the report: cost, object, places with their source lines, handlers, advice, time line."""
    yield "%s lost in aborts, %s paused (%dx STM_%s)" % (
        seconds(conflict.lost), seconds(conflict.paused), conflict.count, conflict.kind)
    if conflict.wanted:
        yield "about " + place_text(conflict.wanted)
    yield from place_lines(conflict.here or b"(no place in the log)", conflict.caller_here)
    if conflict.there:
        yield from place_lines(conflict.there, conflict.caller_there)
    if conflict.handlers:
        most = sorted(conflict.handlers.items(), key=lambda item: (-item[1], item[0]))[:3]
        yield "lost by " + ", ".join("%s %s" % (handler_text(handler), share(cost, conflict.cost)) for handler, cost in most)
    yield "time line: |%s|" % conflict.timeline.draw(real_time)
    yield "advice: " + advice(conflict)


def report_lines(accounts: Accounts, limit: int | None = None) -> Iterator[str]:
    """The whole report, line by line; `limit` is the number of conflicts to show, None all."""
    yield from summary_lines(accounts)
    handlers = accounts.handlers_ranking()
    if handlers:
        yield ""
        yield "Handlers that lost time:"
        for handler, cost in handlers[:limit]:
            yield "    %10s in aborts, %10s paused: %s" % (seconds(cost.lost), seconds(cost.paused), handler_text(handler))
    inevitable = accounts.inevitable_ranking()
    if inevitable:
        yield ""
        yield "Places that transactions were inevitable from:"
        for (place, grade), cost in inevitable[:limit]:
            yield "    %10s in %6d that were %s: %s" % (
                seconds(cost.lost), cost.count, place_text(grade) or "inevitable", place_text(place) or "(no place in the log)")
    ranking = accounts.ranking()
    for conflict in ranking[:limit]:
        yield ""
        yield from conflict_lines(conflict, accounts.real_time)
    hidden = ranking[limit:] if limit is not None else []
    if hidden:
        yield ""
        yield "%d less expensive conflicts not shown (%s in all): --all shows them" % (
            len(hidden), seconds(sum(c.cost for c in hidden)))


def as_json(accounts: Accounts) -> dict[str, Any]:
    """The same as plain data, all conflicts, times in seconds."""
    return {
        "format": accounts.format,
        "truncated": accounts.truncated,
        "unknown_events": accounts.unknown_events,
        "real_time": accounts.real_time / SECOND,
        "cpu_committed": accounts.cpu_committed / SECOND,
        "cpu_aborted": accounts.cpu_aborted / SECOND,
        "cpu_gc": accounts.gc / SECOND,
        "paused": accounts.paused / SECOND,
        "paused_by_wait": {name: spent / SECOND for name, spent in accounts.pauses.items()},
        "committed": accounts.committed,
        "aborted": accounts.aborted,
        "aborted_without_conflict": accounts.unexplained,
        "handlers": [
            {"handler": place_text(handler), "count": cost.count, "lost": cost.lost / SECOND, "paused": cost.paused / SECOND}
            for handler, cost in accounts.handlers_ranking()
        ],
        "inevitable": [
            {"place": place_text(place), "grade": place_text(grade), "count": cost.count, "time": cost.lost / SECOND}
            for (place, grade), cost in accounts.inevitable_ranking()
        ],
        "conflicts": [
            {
                "kind": "STM_" + c.kind,
                "count": c.count,
                "lost": c.lost / SECOND,
                "paused": c.paused / SECOND,
                "here": place_text(c.here),
                "there": place_text(c.there),
                "caller_here": place_text(c.caller_here),
                "caller_there": place_text(c.caller_there),
                "object": place_text(c.wanted),
                "handlers": {place_text(handler): cost / SECOND for handler, cost in sorted(c.handlers.items())},
                "advice": advice(c),
                "time_line": [cost / SECOND for cost in c.timeline.columns(accounts.real_time, 60)],
            }
            for c in accounts.ranking()
        ],
    }


def write_json(accounts: Accounts, output: TextIO) -> None:
    json.dump(as_json(accounts), output, indent=1)
    output.write("\n")


# The page

MOST_ON_PAGE = 200  # conflicts
EXCERPT = 2  # lines of source before and behind the one of a place


@lru_cache(maxsize=None)
def excerpt(place):
    """Source around a place: the number of its first line, and the lines; (0, []) when that cannot be read."""
    match = PLACE.match(place.decode("utf-8", "surrogateescape"))
    if not source_line(place):
        return 0, []
    number = int(match.group(2))
    first = max(number - EXCERPT, 1)
    try:
        with open(os.fsencode(match.group(1)), encoding="utf-8", errors="replace") as source:
            return first, [printable(line.rstrip().expandtabs()) for line in islice(source, first - 1, number + EXCERPT)]
    except OSError:
        return 0, []


def page_place(place):
    match = PLACE.match(place_text(place))
    first, lines = excerpt(place)
    return {"text": place_text(place), "line": int(match.group(2)) if match and lines else 0, "first": first, "lines": lines}


def page_data(accounts: Accounts) -> dict[str, Any]:
    """What the page is drawn from, as plain data."""
    return {
        "format": accounts.format,
        "real": accounts.real_time / SECOND,
        "summary": list(summary_lines(accounts)),
        "threads": [
            {"number": number, "width": thread.lane.width / SECOND, "shares": base64.b64encode(thread.lane.shares()).decode()}
            for number, thread in sorted(accounts.threads.items())
        ],
        "handlers": [[handler_text(handler), cost.lost / SECOND, cost.paused / SECOND] for handler, cost in accounts.handlers_ranking()],
        "inevitable": [
            [place_text(place), place_text(grade), cost.count, cost.lost / SECOND] for (place, grade), cost in accounts.inevitable_ranking()
        ],
        "conflicts": [
            {
                "kind": c.kind, "count": c.count, "lost": c.lost / SECOND, "paused": c.paused / SECOND,
                "object": place_text(c.wanted), "advice": advice(c),
                "places": [page_place(place) for place in (c.here, c.caller_here, c.there, c.caller_there)],
                "handlers": [[handler_text(h), share(cost, c.cost)] for h, cost in sorted(c.handlers.items(), key=lambda item: -item[1])],
                "costs": [round(cost / SECOND, 9) for cost in c.timeline.columns(accounts.real_time, Timeline.CELLS)],
            }
            for c in accounts.ranking()[:MOST_ON_PAGE]
        ],
        "hidden": max(0, len(accounts.conflicts) - MOST_ON_PAGE),
    }




def write_page(accounts: Accounts, output: TextIO) -> None:
    """Write one self-contained page."""
    data = json.dumps(page_data(accounts)).replace("<", "\\u003c")
    output.write(PAGE.replace("%DATA%", data))


def live_page(every: float) -> str:
    """The text of the same page, which asks for its data (`page_data`) under its own address and /data, after so many seconds anew."""
    return PAGE.replace("%DATA%", json.dumps({"live": every}))


PAGE = r"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conflicts</title>
<style>
:root {
  --page: #fbfbf9; --ink: #22252a; --faint: #6b7078; --line: #dcdcd6; --panel: #ffffff; --idle: #ecece7; --mark: #fff3c4;
  --committed: #3d9a6c; --inevitable: #7d5cc4; --aborted: #d1495b; --waiting: #e3a235;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #17191c; --ink: #e4e4df; --faint: #9a9fa6; --line: #34383d; --panel: #1f2226; --idle: #2b2f34; --mark: #4a4221;
    --committed: #4fb583; --inevitable: #a289e0; --aborted: #e5687a; --waiting: #e8b252;
  }
}
body { margin: 0 auto; max-width: 1180px; padding: 1.5rem; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto; }
pre { font: 13px/1.5 ui-monospace, monospace; margin: 0; white-space: pre; }
canvas { display: block; width: 100%; cursor: grab; touch-action: none; }
.legend span { display: inline-block; margin-right: 1.2rem; } .legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.bar { display: flex; gap: .5rem; align-items: center; flex-wrap: wrap; margin-bottom: .6rem; }
.bar button { font: inherit; background: var(--idle); color: inherit; border: 1px solid var(--line); border-radius: 6px; padding: .1rem .7rem; cursor: pointer; }
#told { color: var(--faint); margin-left: auto; min-height: 1.5em; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; color: var(--faint); }
td, th { padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.row { cursor: pointer; } tr.row:hover, tr.row:focus { background: var(--idle); outline: none; } tr.chosen { background: var(--idle); }
tr.more td { background: var(--page); } .advice { margin: .2rem 0 .8rem; } .source { margin: .2rem 0 .8rem; border-left: 3px solid var(--line); padding-left: .8rem; }
.source .at { background: var(--mark); } .what { color: var(--faint); } code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.kind { display: inline-block; border-radius: 4px; padding: 0 .4rem; font-size: .85em; background: var(--idle); }
</style>
</head>
<body>
<h1>Where the time went</h1>
<p class="what" id="about"></p>
<div class="panel"><pre id="summary"></pre></div>

<h2>Threads</h2>
<div class="panel">
  <div class="bar">
    <button id="in">Zoom in</button><button id="out">Zoom out</button><button id="left" aria-label="earlier">&larr;</button><button id="right" aria-label="later">&rarr;</button><button id="all">All</button>
    <span id="told" role="status"></span>
  </div>
  <canvas id="lanes" tabindex="0" aria-label="What each thread did when"></canvas>
  <p class="legend"><span><i style="background:var(--committed)"></i>ran and committed</span><span><i style="background:var(--inevitable)"></i>inevitable</span><span><i style="background:var(--aborted)"></i>ran in vain</span><span><i style="background:var(--waiting)"></i>waited</span><span><i style="background:var(--idle)"></i>idle</span>
  <span class="what">Turn the wheel to zoom, drag to move, click a peak of the curve to go there.</span></p>
</div>

<section id="handlers"><h2>Handlers that lost time</h2><div class="panel"><table><thead><tr><th>Handler</th><th class="n">in aborts</th><th class="n">paused</th></tr></thead><tbody></tbody></table></div></section>

<h2>Conflicts</h2>
<div class="panel"><table id="conflicts"><thead><tr><th class="n">in aborts</th><th class="n">paused</th><th class="n">times</th><th>kind</th><th>about</th><th>where</th></tr></thead><tbody></tbody></table><p class="what" id="hidden"></p></div>

<section id="inevitable"><h2>Where transactions became inevitable</h2><div class="panel"><table><thead><tr><th>Place</th><th>grade</th><th class="n">times</th><th class="n">for</th></tr></thead><tbody></tbody></table></div></section>

<script type="application/json" id="data">%DATA%</script>
<script>
"use strict";
let data = {real: 0, threads: [], conflicts: [], handlers: [], inevitable: [], summary: [], hidden: 0}, real = 1e-6, total = [];
const STATES = ["--committed", "--inevitable", "--aborted", "--waiting"], NAMES = ["ran", "inevitable", "in vain", "waited"];
const LANE = 24, GAP = 8, CURVE = 70, AXIS = 22, LABEL = 70;
const $ = id => document.getElementById(id), made = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};
const seconds = s => s >= 1 ? s.toFixed(2) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(1) + " ms" : (s * 1e6).toFixed(0) + " \u00b5s";

// The time lines

let from = 0, to = real, chosen = -1, dragged = null;  // what is seen, in seconds; the conflict that is; since when the mouse is held
const canvas = $("lanes"), pen = canvas.getContext("2d");

function shares(thread, begin, end) {  // of each state, between two times
  const sums = [0, 0, 0, 0], first = Math.floor(begin / thread.width), last = Math.max(first, Math.ceil(end / thread.width) - 1);
  for (let cell = first; cell <= last; cell++)
    for (let state = 0; state < 4; state++) sums[state] += (thread.bytes[cell * 4 + state] || 0) / 255;
  return sums.map(sum => sum / (last - first + 1));
}

function draw() {
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name);
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  const height = data.threads.length * (LANE + GAP) + CURVE + AXIS;
  canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + "px";
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
  const room = width - LABEL, at = x => from + (x - LABEL) / room * (to - from);
  data.threads.forEach((thread, row) => {
    const top = row * (LANE + GAP);
    pen.fillStyle = colour("--faint"); pen.fillText("thread " + thread.number, 0, top + LANE / 2);
    pen.fillStyle = colour("--idle"); pen.fillRect(LABEL, top, room, LANE);
    for (let x = LABEL; x < width; x++) {
      let y = top + LANE;
      shares(thread, at(x), at(x + 1)).forEach((share, state) => {
        if (!share) return;
        const h = Math.min(Math.max(share * LANE, 1), y - top);
        pen.fillStyle = colour(STATES[state]); pen.fillRect(x, y - h, 1, h); y -= h;
      });
    }
  });
  const costs = chosen < 0 ? total : data.conflicts[chosen].costs, bottom = height - AXIS, most = Math.max(...costs) || 1;
  pen.fillStyle = colour("--faint"); pen.fillText(chosen < 0 ? "conflicts" : "this one", 0, bottom - CURVE / 2 + GAP);
  pen.fillStyle = colour("--aborted");
  costs.forEach((cost, i) => {
    const x = LABEL + (i * real / costs.length - from) / (to - from) * room, next = LABEL + ((i + 1) * real / costs.length - from) / (to - from) * room;
    if (!cost || next < LABEL || x > width) return;
    const h = Math.max(cost / most * (CURVE - GAP), 1), begin = Math.max(x, LABEL);
    pen.fillRect(begin, bottom - h, Math.max(next - begin, 1), h);
  });
  pen.fillStyle = colour("--faint");
  const step = 10 ** Math.floor(Math.log10((to - from) / 4)), every = [1, 2, 5, 10].map(n => n * step).find(n => (to - from) / n <= 10);
  for (let t = Math.ceil(from / every) * every; t <= to; t += every) {
    const x = LABEL + (t - from) / (to - from) * room;
    pen.fillRect(x, bottom, 1, 5);
    if (x < width - 40) pen.fillText(seconds(t), x + 3, bottom + 13);
  }
}

function show(begin, end) {
  const least = Math.min(real, Math.max(1e-6, ...data.threads.map(t => t.width * 20)));
  const length = Math.min(Math.max(end - begin, least), real);
  from = Math.min(Math.max(begin, 0), real - length); to = from + length;
  draw();
}
const time = event => from + (event.offsetX - LABEL) / (canvas.clientWidth - LABEL) * (to - from);
const zoom = (factor, middle) => show(middle - (middle - from) * factor, middle + (to - middle) * factor);
const half = () => (from + to) / 2;
canvas.addEventListener("wheel", e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, time(e)); }, {passive: false});
canvas.addEventListener("pointerdown", e => { dragged = {x: e.clientX, from, to, moved: false}; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointermove", e => {
  if (dragged) {
    const shift = (dragged.x - e.clientX) / (canvas.clientWidth - LABEL) * (dragged.to - dragged.from);
    dragged.moved = dragged.moved || Math.abs(dragged.x - e.clientX) > 3;
    if (dragged.moved) show(dragged.from + shift, dragged.to + shift);
    return;
  }
  const t = time(e), row = Math.floor(e.offsetY / (LANE + GAP)), thread = data.threads[row], pixel = (to - from) / (canvas.clientWidth - LABEL);
  if (t < from || t > to) { $("told").textContent = ""; return; }
  const parts = thread ? shares(thread, t, t + pixel).map((s, i) => s ? NAMES[i] + " " + Math.round(100 * s) + " %" : "").filter(Boolean) : [];
  $("told").textContent = seconds(t) + (thread ? ", thread " + thread.number + ": " + (parts.join(", ") || "idle") : "");
});
canvas.addEventListener("pointerup", e => {
  const click = dragged && !dragged.moved;
  dragged = null;
  if (click && e.offsetY > data.threads.length * (LANE + GAP) && time(e) > from) zoom(0.2, time(e));
});
canvas.addEventListener("pointercancel", () => { dragged = null; });
canvas.addEventListener("dblclick", () => show(0, real));
canvas.addEventListener("keydown", e => {
  const move = (to - from) / 5, keys = {"+": () => zoom(0.5, half()), "-": () => zoom(2, half()), ArrowLeft: () => show(from - move, to - move), ArrowRight: () => show(from + move, to + move), Home: () => show(0, real)};
  if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
});
$("in").onclick = () => zoom(0.5, half()); $("out").onclick = () => zoom(2, half()); $("all").onclick = () => show(0, real);
$("left").onclick = () => show(from - (to - from) / 2, to - (to - from) / 2); $("right").onclick = () => show(from + (to - from) / 2, to + (to - from) / 2);
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

// The tables

function source(label, place) {
  const block = made("div", undefined, "source");
  block.append(made("div", label, "what"), made("code", place.text));
  if (place.lines.length) {
    const text = made("pre");
    place.lines.forEach((line, i) => text.append(made("span", String(place.first + i).padStart(5) + "  " + line + "\n", place.first + i === place.line ? "at" : "")));
    block.append(text);
  }
  return block;
}

function choose(number) {
  document.querySelectorAll("tr.more").forEach(row => row.remove());
  chosen = number;
  document.querySelectorAll("tr.row").forEach((row, i) => { row.classList.toggle("chosen", i === chosen); row.setAttribute("aria-expanded", i === chosen); });
  if (chosen >= 0) {
    const conflict = data.conflicts[chosen], row = made("tr", undefined, "more"), cell = made("td");
    cell.colSpan = 6;
    cell.append(made("p", conflict.advice, "advice"));
    if (conflict.handlers.length) cell.append(made("p", "Lost by " + conflict.handlers.map(h => h.join(" ")).join(", "), "what"));
    ["this thread", "for", "the other thread", "for"].forEach((label, i) => { if (conflict.places[i].text) cell.append(source(label, conflict.places[i])); });
    row.append(cell);
    document.querySelectorAll("tr.row")[chosen].after(row);
  }
  draw();
}

function load(loaded) {
  const all = from === 0 && to === real, was = data.conflicts[chosen] && identity(data.conflicts[chosen]);
  data = loaded; real = Math.max(data.real, 1e-6);
  for (const thread of data.threads) thread.bytes = Uint8Array.from(atob(thread.shares), c => c.charCodeAt(0));
  total = data.conflicts.reduce((sums, c) => sums.map((sum, i) => sum + c.costs[i]), new Array(512).fill(0));
  if (all || to > real) { from = 0; to = real; }
  $("about").textContent = "A " + data.format + " log" + (live ? ", the last " + seconds(real) + ", asked for every " + live + " s." : ".");
  for (const table of document.querySelectorAll("tbody")) table.replaceChildren();
  $("hidden").textContent = "";
  $("summary").textContent = data.summary.join("\n");
  data.conflicts.forEach((conflict, number) => {
    const row = made("tr", undefined, "row"), where = conflict.places[1].text ? conflict.places[1] : conflict.places[0], names = made("td");
    row.tabIndex = 0;
    names.append(made("code", where.text || "(no place in the log)"));
    const kind = made("td"); kind.append(made("span", conflict.kind.replace("CONTENTION_", "").toLowerCase().replace("_", "-"), "kind"));
    const about = made("td"); about.append(made("code", conflict.object));
    row.append(made("td", seconds(conflict.lost), "n"), made("td", seconds(conflict.paused), "n"), made("td", conflict.count + "\u00d7", "n"), kind, about, names);
    row.onclick = () => choose(chosen === number ? -1 : number);
    row.onkeydown = e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); row.onclick(); } };
    $("conflicts").tBodies[0].append(row);
  });
  if (data.hidden) $("hidden").textContent = data.hidden + " less expensive ones are not shown.";
  if (!data.conflicts.length) $("hidden").textContent = "There was none.";
  for (const [section, rows] of [["handlers", data.handlers.map(([name, lost, paused]) => [name, seconds(lost), seconds(paused)])],
                                 ["inevitable", data.inevitable.map(([place, grade, count, time]) => [place, grade, count + "\u00d7", seconds(time)])]]) {
    $(section).hidden = !rows.length;
    for (const row of rows.slice(0, 20)) {
      const element = made("tr"), numbers = section === "handlers" ? 1 : 2;
      row.forEach((text, i) => { const cell = made("td", i ? text : undefined, i >= numbers ? "n" : ""); if (!i) cell.append(made("code", text)); element.append(cell); });
      $(section).querySelector("tbody").append(element);
    }
  }
  choose(was === undefined ? -1 : data.conflicts.findIndex(conflict => identity(conflict) === was));
}

const identity = conflict => JSON.stringify([conflict.kind, conflict.object, conflict.places.map(place => place.text)]);
const given = JSON.parse($("data").textContent), live = given.live;
async function ask() {
  try {
    const loaded = await (await fetch(location.pathname.replace(/\/$/, "") + "/data")).json();
    if (loaded.threads) load(loaded); else $("about").textContent = "Nothing to show: " + loaded.error + ".";
  } catch (error) {
    $("about").textContent = "The program does not answer.";
  }
  setTimeout(ask, live * 1000);
}
if (live) ask(); else load(given);
</script>
</body>
</html>
"""

# The command

PROGRESS_FROM = 64 << 20  # bytes: a smaller log is read before anybody wonders


def progress_meter(path):
    """What shows on a terminal how much of a large log has been read, or None."""
    size = sum(map(os.path.getsize, parts(path)))
    if size < PROGRESS_FROM or not sys.stderr.isatty():
        return None

    def show(done):
        sys.stderr.write("\r%3d%% of %d MB" % (100 * done // size, size >> 20) if done < size else "\r\033[K")
        sys.stderr.flush()

    return show


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description="Say where the time of a run went, and which conflicts took it, from a PYPYSTM log (C7 or C8).")
    parser.error = refuse
    parser.add_argument("log", help="the file that PYPYSTM=... named")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("-n", "--top", dest="limit", type=int, default=10, metavar="N", help="show the N worst conflicts (10)")
    shown.add_argument("--all", dest="limit", action="store_const", const=None, help="show all conflicts")
    seconds_help = "take in only what happened %s so many seconds of the run; negative: counted from its end"
    parser.add_argument("--since", type=float, metavar="S", help=seconds_help % "after")
    parser.add_argument("--until", type=float, metavar="S", help=seconds_help % "before")
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE, too, as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page with the time lines of threads and all conflicts to FILE, too")
    arguments = parser.parse_args(argv)
    if arguments.limit is not None and arguments.limit < 0:
        parser.error("-n must not be negative")
    for name in "since", "until":
        if not math.isfinite(getattr(arguments, name) or 0):
            parser.error("--%s must be a number of seconds" % name)
    return arguments


def refuse(text):
    """For argparse: a command line that is wrong ends with one line that says why, and status 2."""
    complain(text)
    sys.exit(2)


def complain(text):
    """Tell the user in one line, if there is anybody to tell."""
    if sys.stderr is not None:
        try:
            print("print_stm_log: " + text, file=sys.stderr, flush=True)
        except OSError:
            pass


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 2 when the log cannot be analysed or the JSON not be written.

    Raises OSError when the report cannot be written.
    """
    arguments = parse_arguments(argv)
    try:
        stamps = window(arguments.log, arguments.since, arguments.until)
        accounts = analyse(arguments.log, progress_meter(arguments.log), *stamps, with_lanes=arguments.html is not None)
    except LogError as error:
        others = logs_of_children(arguments.log)
        more = "; those of its children: %s" % ", ".join(others[:3] + ["..."] * (len(others) > 3)) if others else ""
        complain("%s %s%s" % (arguments.log, error, more))
        return 2
    except OSError as error:
        complain("%s: %s" % (arguments.log, error.strerror or error))
        return 2
    if accounts.truncated:
        complain("%s ends in the middle of a record (its process was killed, or still runs): analysed up to there"
                 % arguments.log)
    if accounts.unknown_events:
        complain("%s has %d events of unknown number: skipped" % (arguments.log, accounts.unknown_events))
    for path, write in (arguments.json, write_json), (arguments.html, write_page):
        if path is not None:
            try:
                with open(path, "w", encoding="utf-8") as output:
                    write(accounts, output)
            except OSError as error:
                complain("%s: %s" % (path, error.strerror or error))
                return 2
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    sys.stdout.reconfigure(errors="backslashreplace")
    for line in report_lines(accounts, arguments.limit):
        print(line)
    return 0


def run():
    """main() as a process: what cannot be written is one line and status 2, or where the reader has left, silence.

    Returns the exit status, which for a reader that has left is a shell's for that signal.  An interrupt ends the process at once, also
    while it waits for more of a pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        try:
            status = main()
        except SystemExit as end:  # of the command line's syntax, or --help
            status = end.code
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        status = 128 + signal.SIGPIPE
    except OSError as error:
        complain("standard output: %s" % (error.strerror or error))
        status = 2
    if sys.stdout is not None:
        # What is left in its buffer is not tried again by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(run())
