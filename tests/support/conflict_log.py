"""Reads a conflict log and judges it: does each thread's story obey the grammar, and does each conflict say where?"""

import re
import struct
from collections import Counter, defaultdict, deque, namedtuple
from pathlib import Path

import tornado.stm

PROJECT = str(Path(tornado.stm.__file__).parent)
EVENTS = (
    "START COMMIT ABORT WRITE_WRITE WRITE_READ INEVITABLE ABORTING_OTHER WAIT_FREE_SEGMENT WAIT_SYNC_PAUSE WAIT_CONTENTION "
    "WAIT_DONE GC_MINOR_START GC_MINOR_DONE GC_MAJOR_START GC_MAJOR_DONE CALLERS HANDLERS OBJECT BECOME_INEVITABLE"
).split()
DETAILS = ("OBJECT", "CALLERS", "HANDLERS")  # of the conflict that follows, in this order
CONFLICTS = ("WRITE_WRITE", "WRITE_READ", "INEVITABLE")
HEADER = b"STMGC-C7-PROF01\n"
PLACE = re.compile(r'File "(.+)", line (\d+), in (.+)')

#: what a thread is about: {event: what it is about then}
GRAMMAR = {
    "between": {"START": "running", "WAIT_SYNC_PAUSE": "paused between"},
    "paused between": {"WAIT_DONE": "between"},
    "running": {
        "COMMIT": "between", "ABORT": "between", "WAIT_SYNC_PAUSE": "paused", "BECOME_INEVITABLE": "running",
        **dict.fromkeys(CONFLICTS, "in conflict"), **{event: f"told {event}" for event in DETAILS},
    },
    **{
        f"told {event}": {**dict.fromkeys(CONFLICTS, "in conflict"), **{later: f"told {later}" for later in DETAILS[i + 1 :]}}
        for i, event in enumerate(DETAILS)
    },
    "paused": {"WAIT_DONE": "running"},
    "in conflict": {"ABORTING_OTHER": "has won", "WAIT_CONTENTION": "waiting", "ABORT": "between"},
    "has won": {"WAIT_CONTENTION": "waiting"},
    "waiting": {"WAIT_DONE": "running"},
}

Record = namedtuple("Record", "time thread other event here there")


def read(path):
    """The records of a log, none of them cut off."""
    data = Path(path).read_bytes()
    assert data[:16] == HEADER
    records, at = [], 16
    while at < len(data):
        seconds, nanoseconds, thread, other, event, here, there = struct.unpack_from("<IIIIBBB", data, at)
        at += 19
        here, there = data[at : at + here], data[at + here : at + here + there]
        at += len(here) + len(there)
        records.append(Record((seconds, nanoseconds), thread, other, EVENTS[event], here.decode(), there.decode()))
    assert at == len(data)
    return records


def check(records, ended=True, whole=True):
    """The grammar of each thread, time stamps that rise, and both places of each conflict; return how many of each event.

    Args:
        ended: no transaction ran any more when the log was closed.
        whole: none had begun when it was opened, so it knows all places.
    """
    state, time = {}, (0, 0)
    stories = defaultdict(lambda: deque(maxlen=12))
    for number, record in enumerate(records):
        assert record.time >= time, (number, record)
        time = record.time
        before = state.get(record.thread, "between")
        story = stories[record.thread]
        assert record.event in GRAMMAR[before], (number, before, record, story)
        state[record.thread] = GRAMMAR[before][record.event]
        story.append(f"{record.event} {record.here} | {record.there}")
        if record.event in CONFLICTS:
            for place in (record.here, record.there):
                match = PLACE.fullmatch(place)
                assert match or not (whole or place), (number, record, story)
                assert not match or not match[1].startswith(PROJECT), (number, record, story)
        elif record.event in ("CALLERS", "HANDLERS"):
            assert record.here or record.there
            assert all(PLACE.fullmatch(place) for place in (record.here, record.there) if place), record
        elif record.event == "BECOME_INEVITABLE":
            assert record.there in ("irrevocable", "exclusive", "sequential"), record
        elif record.event == "OBJECT":
            assert record.here and not record.there, record
        else:
            assert not record.here and not record.there
        if record.event in (*CONFLICTS, "ABORTING_OTHER"):
            assert record.other not in (0, record.thread), record
        else:
            assert record.other == 0
    if ended:
        assert set(state.values()) <= {"between"}, state
    return Counter(record.event for record in records)


def places(records):
    """Of all conflicts: (kind, function here, function there)."""
    return {
        (record.event, PLACE.fullmatch(record.here)[3], PLACE.fullmatch(record.there)[3])
        for record in records
        if record.event in CONFLICTS
    }
