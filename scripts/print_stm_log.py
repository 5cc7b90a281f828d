#!/usr/bin/env python3
"""Say what a conflict log tells: where the time of a run went, and which conflicts took it.

    PYPYSTM=stm.log python -m tornado.stm app.py
    scripts/print_stm_log.py stm.log

The log
    A log is a header of 16 bytes that names its format, C7 or C8, and a stream of records in the order of time: when,
    which thread, what happened, and the place in the program, if it has one.  The tables below are the formats.

    A thread's records tell its life as a sequence of transactions: START, then COMMIT or ABORT.  A thread that was
    inside a transaction when the log was opened has no START for it; that transaction counts from the thread's first
    record.  Between WAIT_* and WAIT_DONE the thread is paused.  Between DETACH and REATTACH (C8) it is outside of
    Python, in a blocking call for example.  Records of garbage collection may be anywhere.

Where the time went
    real time    from the first record to the last.
    CPU time     of a transaction is the time from its START to its COMMIT (committed) or ABORT (aborted), less what
                 it was paused and detached.  Several threads together may have more CPU time than there is real time.
    paused       all WAIT_* to WAIT_DONE, inside of transactions and between them.
    in GC        collections, less the pauses in them.  It is a part of the CPU time, not beside it.
    A transaction, a wait or a collection that has not ended when the log does is in none of them.

Whom a conflict is charged to
    Conflicts are summed by kind, place in this thread and place in the other thread.  Each has a number of times, the
    CPU time lost in transactions aborted for it, and the time threads were paused for it.

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

import argparse
import errno
import json
import math
import os
import re
import signal
import stat
import struct
import sys
from functools import lru_cache
from itertools import islice


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
SECOND = 10**9  # all times inside are in nanoseconds


class LogError(Exception):
    """This file cannot be analysed; the text says why and is meant for the user."""


class LogReader:
    """The records of one log, read as a stream: memory does not grow with the log.

    After the iteration, `truncated` says whether the log ends in the middle of a record.
    """

    CHUNK = 1 << 20

    def __init__(self, stream, progress=None):
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
        self._stream = stream
        self._progress = progress

    def __iter__(self):
        """Yield (nanoseconds, thread, other thread or 0, event number, place here, place there); places are bytes."""
        is_c7 = self.format == "C7"
        record = C7_RECORD if is_c7 else C8_RECORD
        unpack, size = record.unpack_from, record.size
        other = there_length = 0
        rest = b""
        total = HEADER_SIZE
        while True:
            left = self.CHUNK if self._size is None else self._size - total
            chunk = self._stream.read(min(left, self.CHUNK)) if left > 0 else b""
            if not chunk:
                break
            total += len(chunk)
            data = rest + chunk
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


class Conflict:
    """One kind of conflict between two places: how often, and what it cost in nanoseconds."""

    def __init__(self, kind, here, there):
        self.kind = kind  # the name of its event
        self.here = here  # the text of the place in this thread, b"" if unknown
        self.there = there  # in the other thread, b"" if unknown
        self.count = 0
        self.lost = 0
        self.paused = 0
        self.timeline = Timeline()

    @property
    def cost(self):
        return self.lost + self.paused

    def charge(self, when, count=0, lost=0, paused=0):
        """Add to it at `when` nanoseconds of the run."""
        self.count += count
        self.lost += lost
        self.paused += paused
        self.timeline.add(when, max(lost + paused, count))


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

    def begin(self, now):
        self.began = now
        self.paused = 0  # in this transaction, ended waits only
        self.detached = None  # since when
        self.away = 0  # detached in this transaction, ended ones only
        self.conflict = None  # the conflict that its waits and its abort are charged to
        self.conflict_when = now
        self.paid = None  # the wait that was charged to that conflict: no other kind will be
        self.won = False  # that conflict was decided against the other thread
        self.doomed_by = None  # the conflict in which another thread has asked for its abort
        self.explained = False  # its abort has been charged already

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
    aborts that no conflict was charged with), `unknown_events` (skipped), and `conflicts`.
    """

    def __init__(self, log_format):
        self.format = log_format
        self.truncated = False
        self.records = 0
        self.unknown_events = 0
        self.real_time = 0
        self.committed = self.aborted = self.unexplained = 0
        self.cpu_committed = self.cpu_aborted = self.cpu_unexplained = 0
        self.gc = 0
        self.pauses = {}
        self.conflicts = {}  # (kind, here, there): Conflict
        self.threads = {}  # number: Thread

    @property
    def paused(self):
        return sum(self.pauses.values())

    def ranking(self):
        """All conflicts, the most expensive first; of two that cost the same, the more frequent first."""
        return sorted(self.conflicts.values(), key=lambda c: (-c.cost, -c.count, c.kind, c.here, c.there))

    def read(self, reader):
        """Take in every record of a LogReader."""
        handlers = {number: (name, getattr(self, method)) for number, (name, method) in reader.events.items()}
        threads = self.threads
        first = None
        for stamp, number, other, event, here, there in reader:
            if first is None:
                first = stamp
            now = max(stamp - first, 0)
            if now > self.real_time:
                self.real_time = now
            self.records += 1
            if event not in handlers:
                self.unknown_events += 1
                continue
            thread = threads.get(number)
            if thread is None:
                thread = threads[number] = Thread(now)
            name, handle = handlers[event]
            handle(thread, now, name, other, here, there)
        self.truncated = reader.truncated

    def conflict(self, kind, here, there):
        key = kind, here, there
        if key not in self.conflicts:
            self.conflicts[key] = Conflict(kind, here, there)
        return self.conflicts[key]

    # Transactions

    def start(self, thread, now, *_):
        thread.waiting = None
        thread.begin(now)

    def commit(self, thread, now, *_):
        self.committed += 1
        self.cpu_committed += thread.work(now)
        self._end(thread)

    def abort(self, thread, now, *_):
        lost = thread.work(now)
        self.aborted += 1
        self.cpu_aborted += lost
        guilty = self.guilty_of_abort(thread)
        if guilty:
            guilty.charge(now, lost=lost)
        thread.last_abort, thread.unexplained = now, None
        if not guilty and not thread.explained:
            thread.unexplained = lost
            self.unexplained += 1
            self.cpu_unexplained += lost
        self._end(thread)

    def guilty_of_abort(self, thread):
        """The conflict that the abort of its current transaction is charged to, or None."""
        raise NotImplementedError

    def _end(self, thread):
        thread.begin(None)
        thread.waiting = None

    # Pauses

    def wait(self, thread, now, name, *_):
        if thread.waiting is not None:
            self.wait_done(thread, now)
        thread.waiting = now
        thread.wait_name = name

    def wait_done(self, thread, now, *_):
        if thread.waiting is None:
            return
        pause = max(now - thread.waiting, 0)
        thread.waiting = None
        thread.paused += pause
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

    def contention(self, thread, now, name, other, here, there):
        thread.conflict = self.conflict(name, here, there)
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
            victim.doomed_by = victim.doomed_by or thread.conflict
        elif victim.unexplained is not None:
            thread.conflict.charge(victim.last_abort, lost=victim.unexplained)
            self.unexplained -= 1
            self.cpu_unexplained -= victim.unexplained
            victim.unexplained = None

    def guilty_of_abort(self, thread):
        if thread.doomed_by:
            return thread.doomed_by
        return None if thread.won else thread.conflict

    def charge_pause(self, thread, now, pause):
        if thread.conflict is None:
            return
        if thread.wait_name in WAITS_OF[thread.conflict.kind] and thread.paid in (None, thread.wait_name):
            thread.paid = thread.wait_name
            thread.conflict.charge(now, paused=pause)
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
        thread.conflict = name, here, there

    def contention(self, thread, now, name, other, here, there):
        thread.explained = True
        self.conflict(name, here, there).charge(now, count=1, lost=thread.work(now), paused=thread.paused)

    def guilty_of_abort(self, thread):
        return None

    def charge_pause(self, thread, now, pause):
        if thread.conflict is not None and thread.wait_name in WAITS_OF[thread.conflict[0]]:
            self.conflict(*thread.conflict).charge(now, count=1, paused=pause)


FORMATS = {  # header: name, events, how they are summed
    b"STMGC-C7-PROF01\n": ("C7", C7_EVENTS, C7Accounts),
    b"STMGC-C8-PROF01\n": ("C8", C8_EVENTS, C8Accounts),
}


def analyse(path, progress=None):
    """Read the log at `path` and return its Accounts.

    `progress` is as for LogReader.  Raises LogError when it is no log or has no complete record, and OSError.
    """
    with open(path, "rb") as stream:
        reader = LogReader(stream, progress)
        accounts = reader.accounts_class(reader.format)
        accounts.read(reader)
    if not accounts.records:
        raise LogError("is empty: no transaction was logged")
    return accounts


# What is shown

PLACE = re.compile(r'File "(.+)", line (\d+)')


def seconds(nanoseconds):
    return "%.3fs" % (nanoseconds / SECOND)


def share(part, whole):
    return "%.1f%%" % (100 * part / whole) if whole else "-"


def printable(text):
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
    yield "Transactions:        %10d  %6s of them aborted (%d)" % (
        transactions, share(accounts.aborted, transactions), accounts.aborted)
    if accounts.unexplained:
        yield "    aborted without a conflict in the log: %d, %s" % (
            accounts.unexplained, seconds(accounts.cpu_unexplained))


def conflict_lines(conflict, real_time):
    """One conflict of the report: cost, places with their source lines, time line."""
    yield "%s lost in aborts, %s paused (%dx STM_%s)" % (
        seconds(conflict.lost), seconds(conflict.paused), conflict.count, conflict.kind)
    for place in filter(None, (conflict.here or b"(no place in the log)", conflict.there)):
        yield place_text(place)
        if source_line(place):
            yield "    " + source_line(place)
    yield "time line: |%s|" % conflict.timeline.draw(real_time)


def report_lines(accounts, limit=None):
    """The whole report, line by line; `limit` is the number of conflicts to show, None all."""
    yield from summary_lines(accounts)
    ranking = accounts.ranking()
    for conflict in ranking[:limit]:
        yield ""
        yield from conflict_lines(conflict, accounts.real_time)
    hidden = ranking[limit:] if limit is not None else []
    if hidden:
        yield ""
        yield "%d less expensive conflicts not shown (%s in all): --all shows them" % (
            len(hidden), seconds(sum(c.cost for c in hidden)))


def as_json(accounts):
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
        "conflicts": [
            {
                "kind": "STM_" + c.kind,
                "count": c.count,
                "lost": c.lost / SECOND,
                "paused": c.paused / SECOND,
                "here": place_text(c.here),
                "there": place_text(c.there),
                "time_line": [cost / SECOND for cost in c.timeline.columns(accounts.real_time, 60)],
            }
            for c in accounts.ranking()
        ],
    }


# The command

PROGRESS_FROM = 64 << 20  # bytes: a smaller log is read before anybody wonders


def progress_meter(path):
    """What shows on a terminal how much of a large log has been read, or None."""
    size = os.path.getsize(path)
    if size < PROGRESS_FROM or not sys.stderr.isatty():
        return None

    def show(done):
        sys.stderr.write("\r%3d%% of %d MB" % (100 * done // size, size >> 20) if done < size else "\r\033[K")
        sys.stderr.flush()

    return show


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description="Say where the time of a run went, and which conflicts took it, from a PYPYSTM log (C7 or C8).")
    parser.add_argument("log", help="the file that PYPYSTM=... named")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("-n", dest="limit", type=int, default=10, metavar="N", help="show the N worst conflicts (10)")
    shown.add_argument("--all", dest="limit", action="store_const", const=None, help="show all conflicts")
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE, too, as JSON")
    arguments = parser.parse_args(argv)
    if arguments.limit is not None and arguments.limit < 0:
        parser.error("-n must not be negative")
    return arguments


def complain(text):
    """Tell the user in one line, if there is anybody to tell."""
    if sys.stderr is not None:
        try:
            print("print_stm_log: " + text, file=sys.stderr, flush=True)
        except OSError:
            pass


def main(argv=None):
    """The command; returns its exit status: 0, or 2 when the log cannot be analysed or the JSON not be written.

    Raises OSError when the report cannot be written.
    """
    arguments = parse_arguments(argv)
    try:
        accounts = analyse(arguments.log, progress_meter(arguments.log))
    except LogError as error:
        complain("%s %s" % (arguments.log, error))
        return 2
    except OSError as error:
        complain("%s: %s" % (arguments.log, error.strerror or error))
        return 2
    if accounts.truncated:
        complain("%s ends in the middle of a record (its process was killed, or still runs): analysed up to there"
                 % arguments.log)
    if accounts.unknown_events:
        complain("%s has %d events of unknown number: skipped" % (arguments.log, accounts.unknown_events))
    if arguments.json:
        try:
            with open(arguments.json, "w", encoding="utf-8") as output:
                json.dump(as_json(accounts), output, indent=1)
                output.write("\n")
        except OSError as error:
            complain("%s: %s" % (arguments.json, error.strerror or error))
            return 2
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    sys.stdout.reconfigure(errors="backslashreplace")
    for line in report_lines(accounts, arguments.limit):
        print(line)
    return 0


def run():
    """main() as a process: what cannot be written is one line and status 2, or where the reader has left, silence.

    Returns the exit status, which for a reader that has left and for an interrupt is a shell's for that signal.
    """
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
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except OSError as error:
        complain("standard output: %s" % (error.strerror or error))
        status = 2
    if sys.stdout is not None:
        # What is left in its buffer is not tried again by the interpreter.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(run())
