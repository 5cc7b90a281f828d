"""The conflict-log analyser: its accounting, its report, and what it does with files that are not as they should be."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "print_stm_log.py"
DATA = Path(__file__).parent / "data"

spec = importlib.util.spec_from_file_location("print_stm_log", str(SCRIPT))
analyser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(analyser)

C7_HEADER = b"STMGC-C7-PROF01\n"
C8_HEADER = b"STMGC-C8-PROF01\n"

# Spelt out and not taken from the analyser, which is what they test.
C7_NUMBERS = {name: number for number, name in enumerate(
    "START COMMIT ABORT WRITE_WRITE WRITE_READ INEVITABLE ABORTING_OTHER WAIT_FREE_SEGMENT WAIT_SYNC_PAUSE "
    "WAIT_CONTENTION WAIT_DONE MINOR_START MINOR_DONE MAJOR_START MAJOR_DONE CALLERS HANDLERS OBJECT INEVITABLE_FROM_NOW".split())}
C8_NUMBERS = {name: number for number, name in enumerate(
    "START COMMIT ABORT DETACH REATTACH BECOME_INEVITABLE WRITE_READ WAIT_FREE_SEGMENT WAIT_SYNCING WAIT_SYNC_PAUSE "
    "WAIT_OTHER_INEVITABLE WAIT_DONE MINOR_START MINOR_DONE MAJOR_START MAJOR_DONE".split())}

MS = 10**6


def test_the_engine_writes_the_events_that_the_analyser_knows():
    core = pytest.importorskip("tornado.stm.core")
    if not core.COMPILED:
        pytest.skip("the engine is absent")
    known = {name: number for number, (name, method) in analyser.C7_EVENTS.items()}
    assert core.LOG_EVENTS.items() <= known.items()


HERE, THERE = 'File "here.py", line 1, in get', 'File "there.py", line 2, in put'


def stamp(milliseconds):
    """A time of the log, which does not begin at a whole second: the run crosses one."""
    return divmod(7 * 10**9 + 995 * MS + milliseconds * MS, 10**9)


def c7_record(milliseconds, thread, event, here="", there="", other=0):
    here, there = here.encode(), there.encode()
    number = C7_NUMBERS.get(event, event)
    return struct.pack("<IIIIBBB", *stamp(milliseconds), thread, other, number, len(here), len(there)) + here + there


def c8_record(milliseconds, thread, event, here=""):
    here = here.encode()
    return struct.pack("<IIIBB", *stamp(milliseconds), thread, C8_NUMBERS.get(event, event), len(here)) + here


def c7_log(*records):
    """Each record: (milliseconds, thread, event[, here[, there[, other thread]]])."""
    return C7_HEADER + b"".join(c7_record(*record) for record in records)


def c8_log(*records):
    """Each record: (milliseconds, thread, event[, place])."""
    return C8_HEADER + b"".join(c8_record(*record) for record in records)


@pytest.fixture
def write(tmp_path):
    def write(data, name="stm.log"):
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


@pytest.fixture
def analyse(write):
    return lambda data: analyser.analyse(write(data))


def command(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT)] + [str(a) for a in arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def rows(accounts):
    """The conflicts in order, times in milliseconds."""
    return [(c.kind, c.here.decode(), c.there.decode(), c.count, c.lost / MS, c.paused / MS)
            for c in accounts.ranking()]


# Accounting

def test_agrees_with_the_original_analyser():
    accounts = analyser.analyse(str(DATA / "pypystm-c8-primes.log"))
    real_time, counts, cpu, *conflicts = (DATA / "pypystm-c8-primes.expected.txt").read_text().splitlines()

    def nanoseconds(text):
        return int(text.replace(".", ""))

    assert real_time.split() == ["total_real_time", "%.9f" % (accounts.real_time / 1e9)]
    assert counts == "committed %d aborted %d" % (accounts.committed, accounts.aborted)
    assert [nanoseconds(n) for n in cpu.split()[1::2]] == [
        accounts.cpu_committed, accounts.cpu_aborted, accounts.paused]
    expected = []
    for line in conflicts:
        kind, cost, place = line.split(" | ")
        _, aborted, _, paused, _, count = cost.split()
        expected.append((kind, nanoseconds(aborted), nanoseconds(paused), int(count), place))
    assert expected == [("STM_" + c.kind, c.lost, c.paused, c.count, c.here.decode())
                        for c in accounts.ranking()[:len(expected)]]
    assert len(expected) == 5
    assert accounts.truncated and accounts.unexplained == 0


def test_c7_transactions_pauses_and_collections(analyse):
    accounts = analyse(c7_log(
        (0, 1, "WAIT_FREE_SEGMENT"), (2, 1, "WAIT_DONE"),
        (2, 1, "START"),
        (4, 1, "MINOR_START"), (5, 1, "MINOR_DONE"),
        (5, 1, "MAJOR_START"), (6, 1, "WAIT_SYNC_PAUSE"), (9, 1, "WAIT_DONE"), (11, 1, "MAJOR_DONE"),
        (12, 1, "COMMIT"),
        (13, 2, "START"), (17, 2, "ABORT"),
        (18, 2, "START"), (20, 2, "WAIT_SYNC_PAUSE"),  # not over when the log ends
    ))
    assert accounts.real_time == 20 * MS
    assert (accounts.committed, accounts.aborted) == (1, 1)
    assert accounts.cpu_committed == (10 - 3) * MS
    assert accounts.cpu_aborted == 4 * MS
    assert accounts.pauses == {"WAIT_FREE_SEGMENT": 2 * MS, "WAIT_SYNC_PAUSE": 3 * MS}
    assert accounts.gc == (1 + 6 - 3) * MS
    assert (accounts.unexplained, accounts.cpu_unexplained) == (1, 4 * MS)
    assert rows(accounts) == []


def test_c7_aborting_itself_and_waiting(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (3, 1, "WRITE_WRITE", HERE, THERE), (5, 1, "ABORT"),
        (5, 1, "START"), (7, 1, "WRITE_WRITE", HERE, THERE), (7, 1, "WAIT_CONTENTION"), (11, 1, "WAIT_DONE"),
        (12, 1, "WRITE_READ", HERE), (12, 1, "WAIT_CONTENTION"), (13, 1, "WAIT_DONE"),
        (14, 1, "WAIT_SYNC_PAUSE"), (16, 1, "WAIT_DONE"),  # for something else
        (20, 1, "COMMIT"),
    ))
    assert rows(accounts) == [
        ("CONTENTION_WRITE_WRITE", HERE, THERE, 2, 5, 4),
        ("CONTENTION_WRITE_READ", HERE, "", 1, 0, 1),
    ]
    assert accounts.cpu_committed == (15 - 4 - 1 - 2) * MS
    assert accounts.unexplained == 0


def test_c7_abort_after_a_wait_is_charged_to_what_it_waited_for(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (2, 1, "INEVITABLE", HERE, THERE), (2, 1, "WAIT_CONTENTION"), (7, 1, "WAIT_DONE"),
        (8, 1, "ABORT"),
    ))
    assert rows(accounts) == [("CONTENTION_INEVITABLE", HERE, THERE, 1, 3, 5)]


def test_c7_abort_after_another_wait_is_nobodys(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (2, 1, "WRITE_READ", HERE), (2, 1, "WAIT_CONTENTION"), (7, 1, "WAIT_DONE"),
        (8, 1, "WAIT_SYNC_PAUSE"), (9, 1, "WAIT_DONE"), (9, 1, "ABORT"),
    ))
    assert rows(accounts) == [("CONTENTION_WRITE_READ", HERE, "", 1, 0, 5)]
    assert (accounts.unexplained, accounts.cpu_unexplained) == (1, 3 * MS)


def test_c7_becoming_inevitable_waits_for_all_others(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (1, 1, "INEVITABLE", HERE),
        (1, 1, "WAIT_SYNC_PAUSE"), (3, 1, "WAIT_DONE"), (3, 1, "WAIT_SYNC_PAUSE"), (6, 1, "WAIT_DONE"),
        (8, 1, "COMMIT"),
    ))
    assert rows(accounts) == [("CONTENTION_INEVITABLE", HERE, "", 1, 0, 5)]
    assert accounts.cpu_committed == 3 * MS


def test_c7_a_wait_for_something_else_is_not_charged_to_what_was_waited_for(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (1, 1, "INEVITABLE", HERE, THERE), (1, 1, "WAIT_CONTENTION"), (3, 1, "WAIT_DONE"),
        (4, 1, "WAIT_SYNC_PAUSE"), (9, 1, "WAIT_DONE"), (9, 1, "COMMIT"),
    ))
    assert rows(accounts) == [("CONTENTION_INEVITABLE", HERE, THERE, 1, 0, 2)]
    assert accounts.paused == 7 * MS


def test_c7_aborting_the_other(analyse):
    accounts = analyse(c7_log(
        (0, 2, "START"), (4, 1, "START"),
        (6, 1, "WRITE_WRITE", HERE, THERE, 2), (6, 1, "ABORTING_OTHER", "", "", 2), (6, 1, "WAIT_CONTENTION"),
        (9, 2, "WRITE_READ", THERE), (10, 2, "ABORT"),  # doomed already: not for what it met itself
        (11, 1, "WAIT_DONE"), (12, 1, "ABORT"),  # it has won that conflict
        (12, 2, "START"), (20, 2, "ABORT"),  # asked for by nobody
    ))
    assert rows(accounts) == [
        ("CONTENTION_WRITE_WRITE", HERE, THERE, 1, 10, 5),
        ("CONTENTION_WRITE_READ", THERE, "", 1, 0, 0),
    ]
    assert (accounts.unexplained, accounts.cpu_unexplained) == (2, (3 + 8) * MS)
    assert accounts.cpu_aborted == (10 + 3 + 8) * MS


def test_c7_victim_that_logs_its_abort_first(analyse):
    accounts = analyse(c7_log(
        (0, 2, "START"), (1, 1, "START"),
        (3, 1, "WRITE_WRITE", HERE, THERE, 2), (4, 2, "ABORT"), (4, 2, "START"),
        (5, 1, "ABORTING_OTHER", "", "", 2), (6, 1, "COMMIT"), (9, 2, "ABORT"),
    ))
    assert rows(accounts) == [("CONTENTION_WRITE_WRITE", HERE, THERE, 1, 4, 0)]
    assert (accounts.unexplained, accounts.cpu_unexplained) == (1, 5 * MS)


def test_c7_doom_ends_with_the_transaction(analyse):
    accounts = analyse(c7_log(
        (0, 2, "START"), (0, 1, "START"), (1, 1, "WRITE_WRITE", HERE, THERE, 2), (1, 1, "ABORTING_OTHER", "", "", 2),
        (2, 2, "COMMIT"), (3, 2, "START"), (5, 2, "ABORT"),
    ))
    assert rows(accounts) == [("CONTENTION_WRITE_WRITE", HERE, THERE, 1, 0, 0)]


def test_c8_conflicts(analyse):
    accounts = analyse(c8_log(
        (0, 1, "START"), (1, 1, "BECOME_INEVITABLE", HERE), (2, 1, "COMMIT"),  # no wait: no conflict
        (2, 1, "START"), (3, 1, "BECOME_INEVITABLE", HERE),
        (3, 1, "WAIT_OTHER_INEVITABLE"), (6, 1, "WAIT_DONE"),
        (6, 1, "MINOR_START"), (7, 1, "MINOR_DONE"),
        (7, 1, "WAIT_OTHER_INEVITABLE"), (9, 1, "WAIT_DONE"),
        (9, 1, "WAIT_SYNC_PAUSE"), (10, 1, "WAIT_DONE"),
        (11, 1, "WRITE_READ", THERE), (13, 1, "ABORT"),
    ))
    assert rows(accounts) == [
        ("BECOME_INEVITABLE", HERE, "", 2, 0, 5),
        ("CONTENTION_WRITE_READ", THERE, "", 1, 3, 6),  # what happened once comes last
    ]
    assert (accounts.cpu_committed, accounts.cpu_aborted) == (2 * MS, 5 * MS)
    assert (accounts.paused, accounts.gc) == (6 * MS, 1 * MS)


def test_c8_detached_time_is_no_cpu_time(analyse):
    accounts = analyse(c8_log(
        (0, 1, "DETACH"), (4, 1, "REATTACH"), (5, 1, "REATTACH"),  # a transaction older than the log
        (6, 1, "COMMIT"),
        (6, 1, "START"), (7, 1, "DETACH"), (8, 1, "DETACH"), (10, 1, "COMMIT"),  # committed by another thread
    ))
    assert accounts.committed == 2
    assert accounts.cpu_committed == (2 + 1) * MS


def test_waits_and_collections_that_do_not_pair(analyse):
    accounts = analyse(c8_log(
        (0, 1, "WAIT_DONE"), (0, 1, "MINOR_DONE"),
        (1, 1, "START"), (2, 1, "WAIT_SYNCING"), (4, 1, "WAIT_SYNC_PAUSE"), (7, 1, "WAIT_DONE"), (7, 1, "WAIT_DONE"),
        (8, 1, "COMMIT"), (9, 1, "COMMIT"), (9, 1, "ABORT"), (9, 1, "WRITE_READ"), (9, 1, "REATTACH"),
    ))
    assert accounts.pauses == {"WAIT_SYNCING": 2 * MS, "WAIT_SYNC_PAUSE": 3 * MS}
    assert accounts.cpu_committed == 2 * MS
    assert accounts.gc == 0


# The time line

def test_time_line_shows_when():
    line = analyser.Timeline()
    for when in (0, 500, 999):
        line.add(when * MS, 5)
    line.add(999 * MS, 5)
    drawn = line.draw(999 * MS, 60)
    assert len(drawn) == 60
    assert {column for column, c in enumerate(drawn) if c != " "} <= {0, 1, 29, 30, 59, 58}
    assert drawn[0] != " " and drawn[59] == "@"


@pytest.mark.parametrize("length", [0, 1, 59, 60, 511, 512, 513, 10**6, 3 * 10**12])
def test_time_line_loses_nothing_at_any_length(length):
    line = analyser.Timeline()
    moments = sorted({length * i // 97 for i in range(98)})
    for when in moments:
        line.add(when, 3)
    columns = line.columns(length, 60)
    assert len(columns) == 60
    assert sum(columns) == pytest.approx(3 * len(moments))
    assert min(columns) >= 0
    assert len(line.cells) <= line.CELLS
    assert "@" in line.draw(length)


def test_even_load_draws_an_even_line():
    line = analyser.Timeline()
    for when in range(100000):
        line.add(when * 1000, 1)
    columns = line.columns(100000 * 1000, 60)
    assert max(columns) / min(columns) < 1.05


# The report

def report_of_three(write, tmp_path):
    source = tmp_path / "app.py"
    source.write_text("import time\n\n    self.start = time.time()\n", encoding="utf-8")
    place = 'File "%s", line 3, in get (#42)' % source
    return write(c7_log(
        (0, 1, "START"), (1, 1, "WRITE_READ", "cheap"), (2, 1, "ABORT"),
        (2, 1, "START"), (3, 1, "WRITE_WRITE", place, THERE), (9, 1, "ABORT"),
        (9, 1, "START"), (10, 1, "INEVITABLE", "middle"), (10, 1, "WAIT_SYNC_PAUSE"), (13, 1, "WAIT_DONE"),
        (14, 1, "COMMIT"),
    )), place


def test_report(write, tmp_path):
    log, place = report_of_three(write, tmp_path)
    done = command(log)
    assert (done.returncode, done.stderr) == (0, "")
    head, *conflicts = done.stdout.strip().split("\n\n")
    assert [re.sub(" +", " ", line).strip() for line in head.splitlines()] == [
        "Total real time: 0.014s",
        "CPU time committed: 0.002s 14.3% of real time",
        "CPU time aborted: 0.009s 64.3% of real time",
        "CPU time in GC: 0.000s 0.0% of real time",
        "Time paused: 0.003s 21.4% of real time",
        "in WAIT_SYNC_PAUSE: 0.003s",
        "Transactions: 3 66.7% of them aborted (2)",
    ]
    assert [c.splitlines()[0] for c in conflicts] == [
        "0.007s lost in aborts, 0.000s paused (1x STM_CONTENTION_WRITE_WRITE)",
        "0.000s lost in aborts, 0.003s paused (1x STM_CONTENTION_INEVITABLE)",
        "0.002s lost in aborts, 0.000s paused (1x STM_CONTENTION_WRITE_READ)",
    ]
    first = conflicts[0].splitlines()
    assert first[1:4] == [place, "    self.start = time.time()", THERE]
    assert re.fullmatch(r"time line: \|[ .:=+*#%@-]{60}\|", first[4])
    assert first[5].startswith("advice: ") and len(first) == 6


def test_number_of_conflicts_shown(write):
    records = []
    for i in range(15):
        begin, end = i * 20, i * 21 + 1
        records += [(begin, 1, "START"), (end, 1, "WRITE_READ", "place %d" % i), (end, 1, "ABORT")]
    log = write(c8_log(*records))

    def shown(*arguments):
        return re.findall(r"^place (\d+)$", command(log, *arguments).stdout, re.M)

    worst_first = [str(i) for i in reversed(range(15))]
    assert shown() == worst_first[:10]
    assert shown("-n", "3") == worst_first[:3]
    assert shown("-n", "0") == []
    assert shown("--all") == worst_first
    assert "5 less expensive conflicts not shown (0.015s in all)" in command(log).stdout
    assert command(log, "-n", "-1").returncode == 2


def test_aborts_without_a_conflict_are_said(write):
    done = command(write(c7_log((0, 1, "START"), (2, 1, "ABORT"))))
    assert "aborted without a conflict in the log: 1, 0.002s" in done.stdout


def test_places_that_cannot_be_printed_as_they_are(write):
    log = write(c8_log((0, 1, "START"), (1, 1, "WRITE_READ", "a\nb\x1b[31mé"), (1, 1, "ABORT"),
                       (2, 1, "START"), (2, 1, "WRITE_READ"), (2, 1, "ABORT")))
    environment = dict(os.environ, PYTHONIOENCODING="ascii")
    done = subprocess.run([sys.executable, str(SCRIPT), log], stdout=subprocess.PIPE, env=environment, check=True)
    assert b"a\\x0ab\\x1b[31m\\xe9\n" in done.stdout
    assert b"(no place in the log)\n" in done.stdout


def test_places_whose_source_cannot_be_read(write, tmp_path):
    places = ['File "%s", line 1, in f' % tmp_path, 'File "%s", line 99, in f' % write(b"one line\n", "short.py"),
              'File "%s", line 0, in f' % write(b"\xff\xfe", "binary.py"), 'File "<string>", line 1, in f', 'File "',
              'File "%s", line %s, in f' % (write(b"one line\n", "short.py"), "9" * 150),
              'File "a\0b", line 1, in f', 'File "%s", line 1, in f' % os.devnull]
    assert [analyser.source_line(place.encode()) for place in places] == [""] * 8


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_source_without_permission(write):
    path = write(b"secret = 1\n", "app.py")
    os.chmod(path, 0)
    assert analyser.source_line(b'File "%s", line 1, in f' % path.encode()) == ""


def test_place_whose_file_has_a_name_that_is_no_text(write, tmp_path):
    path = os.path.join(os.fsencode(str(tmp_path)), b"caf\xe9\xc3\xa9.py")
    with open(path, "wb") as source:
        source.write(b"drink()\n")
    place = b'File "%s", line 1, in f' % path
    record = struct.pack("<IIIIBBB", *stamp(1), 1, 0, C7_NUMBERS["WRITE_READ"], len(place), 0) + place
    log = write(c7_log((0, 1, "START")) + record + c7_record(2, 1, "ABORT"))
    environment = dict(os.environ, PYTHONIOENCODING="utf-8")
    done = subprocess.run([sys.executable, str(SCRIPT), log], stdout=subprocess.PIPE, env=environment, check=True)
    assert b"caf\\xe9\xc3\xa9.py\", line 1, in f\n    drink()\n" in done.stdout
    assert analyser.as_json(analyser.analyse(log))["conflicts"][0]["here"].endswith('caf\\xe9é.py", line 1, in f')


def test_json(write, tmp_path):
    log, place = report_of_three(write, tmp_path)
    output = tmp_path / "out.json"
    done = command(log, "--json", output)
    assert done.returncode == 0 and "lost in aborts" in done.stdout
    data = json.loads(output.read_text(encoding="utf-8"))
    conflicts = data.pop("conflicts")
    assert data == {
        "format": "C7", "truncated": False, "unknown_events": 0, "real_time": 0.014, "cpu_committed": 0.002,
        "cpu_aborted": 0.009, "cpu_gc": 0, "paused": 0.003, "paused_by_wait": {"WAIT_SYNC_PAUSE": 0.003},
        "committed": 1, "aborted": 2, "aborted_without_conflict": 0, "handlers": [], "inevitable": [],
    }
    time_line = conflicts[0].pop("time_line")
    assert len(time_line) == 60 and sum(time_line) == pytest.approx(0.007)
    assert conflicts[0] == {"kind": "STM_CONTENTION_WRITE_WRITE", "count": 1, "lost": 0.007, "paused": 0,
                            "here": place, "there": THERE, "caller_here": "", "caller_there": "", "object": "", "handlers": {},
                            "advice": analyser.ADVICE[-1][-1]}
    assert len(conflicts) == 3


def test_json_that_cannot_be_written(write, tmp_path):
    log, _ = report_of_three(write, tmp_path)
    done = command(log, "--json", tmp_path / "missing" / "out.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "No such file" in done.stderr


# Files that are not as they should be

@pytest.mark.parametrize("data, says", [
    (b"", "is empty: no transaction was logged"),
    (C7_HEADER[:9], "is empty: no transaction was logged"),
    (C8_HEADER, "is empty: no transaction was logged"),
    (C7_HEADER + b"\0" * 7, "is empty: no transaction was logged"),
    (b"GET / HTTP/1.1\r\n\r\n", "is no conflict log"),
    (b"short", "is no conflict log"),
    (b"STMGC-C9-PROF01\n" + b"\0" * 100, "is no conflict log"),
])
def test_no_log(write, data, says):
    done = command(write(data))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr


def test_an_empty_log_may_have_children(write, tmp_path):
    """A server that forks its workers runs no transaction itself."""
    log = write(C7_HEADER)
    for number in range(1, 5):
        (tmp_path / f"{os.path.basename(log)}.fork{number}").write_bytes(C7_HEADER)
        (tmp_path / f"{os.path.basename(log)}.fork{number}.1").write_bytes(C7_HEADER)
        told = command(log).stderr
        assert told.endswith("; those of its children: %s\n" % ", ".join(
            [f"{os.path.basename(log)}.fork{i}" for i in range(1, min(number, 3) + 1)] + ["..."] * (number > 3)))


def test_time_stamps_that_go_back(write, tmp_path):
    log = write(c7_log(
        (50, 1, "START"), (20, 1, "WRITE_WRITE", HERE, THERE, 2), (10, 1, "WAIT_CONTENTION"), (5, 1, "WAIT_DONE"),
        (5, 2, "START"), (4, 2, "MINOR_START"), (1, 2, "MINOR_DONE"), (60, 1, "ABORT"), (0, 2, "COMMIT")))
    done = command(log, "--json", tmp_path / "out.json")
    assert (done.returncode, done.stderr) == (0, "")
    accounts = analyser.analyse(log)
    assert accounts.real_time == 10 * MS
    assert all(t >= 0 for t in (accounts.cpu_committed, accounts.cpu_aborted, accounts.paused, accounts.gc))


def test_log_that_grows_while_it_is_read(write, monkeypatch):
    """It is read as far as it went in the beginning: a program may write faster than anybody reads."""
    path = write(c7_log((0, 1, "START"), (1, 1, "COMMIT")))
    monkeypatch.setattr(analyser.LogReader, "CHUNK", 8)

    def grow(read):
        with open(path, "ab") as log:
            log.write(c7_record(2, 1, "START") + c7_record(3, 1, "COMMIT"))

    accounts = analyser.analyse(path, grow)
    assert (accounts.records, accounts.truncated) == (2, False)


def test_log_through_a_pipe(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    process = subprocess.Popen([sys.executable, str(SCRIPT), pipe], stdout=subprocess.PIPE, universal_newlines=True)
    with open(pipe, "wb") as log:
        log.write(c7_log((0, 1, "START"), (2, 1, "COMMIT")))
    assert "Total real time:         0.002s" in process.communicate()[0]
    assert process.returncode == 0


def test_interrupt(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    process = subprocess.Popen([sys.executable, str(SCRIPT), pipe], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with open(pipe, "wb") as log:  # opened by both: it is about to read
        log.write(c7_log((0, 1, "START")))
        log.flush()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGINT


def test_files_that_cannot_be_read(tmp_path):
    for path, says in [(tmp_path / "missing.log", "No such file or directory"), (tmp_path, "Is a directory")]:
        done = command(path)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1 and says in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(write):
    log = write(C7_HEADER)
    os.chmod(log, 0)
    done = command(log)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "Permission denied" in done.stderr


def small_logs():
    c7 = c7_log((0, 1, "START"), (0, 2, "START"), (1, 1, "WRITE_WRITE", HERE, THERE, 2),
                (1, 1, "ABORTING_OTHER", "", "", 2), (1, 1, "WAIT_CONTENTION"), (2, 2, "ABORT"), (3, 1, "WAIT_DONE"),
                (4, 1, "MINOR_START"), (5, 1, "MINOR_DONE"), (6, 1, "COMMIT"))
    c8 = c8_log((0, 1, "DETACH"), (1, 1, "REATTACH"), (2, 1, "BECOME_INEVITABLE", HERE),
                (2, 1, "WAIT_OTHER_INEVITABLE"), (3, 1, "WAIT_DONE"), (4, 1, "WRITE_READ", HERE), (5, 1, "ABORT"))
    return [c7, c8]


@pytest.mark.parametrize("log", small_logs(), ids=["C7", "C8"])
def test_truncated_anywhere(log, analyse, write, capsys):
    whole = analyse(log)
    assert not whole.truncated
    counts = []
    for size in range(len(log)):
        path = write(log[:size])
        status = analyser.main([path])
        out, err = capsys.readouterr()
        lines = err.splitlines()
        if status == 0:
            accounts = analyser.analyse(path)
            counts.append(accounts.records)
            assert out.startswith("Total real time")
            assert len(lines) == accounts.truncated
            assert not lines or "ends in the middle of a record" in lines[0]
        else:
            assert (status, out, len(lines)) == (2, "", 1)
            assert "is empty" in lines[0]
    assert counts == sorted(counts) and counts[-1] == whole.records - 1


@pytest.mark.parametrize("log", small_logs(), ids=["C7", "C8"])
def test_damaged_anywhere(log, write, capsys):
    for position in range(16, len(log)):
        for value in (0, 255):
            assert analyser.main([write(log[:position] + bytes([value]) + log[position + 1:])]) in (0, 2)
    capsys.readouterr()


def test_events_of_unknown_number_are_counted(write):
    log = write(c7_log((0, 1, "START"), (1, 1, 99, "x", "y"), (2, 1, 200), (3, 1, "COMMIT")))
    done = command(log)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1 and "2 events of unknown number" in done.stderr
    assert analyser.analyse(log).cpu_committed == 3 * MS


def test_records_across_the_borders_of_reading(analyse, monkeypatch):
    log = (DATA / "pypystm-c8-primes.log").read_bytes()[:20011]
    at_once = analyse(log)
    monkeypatch.setattr(analyser.LogReader, "CHUNK", 7)
    in_pieces = analyse(log)
    assert analyser.as_json(in_pieces) == analyser.as_json(at_once)


def test_progress_is_told_in_bytes(write, monkeypatch):
    monkeypatch.setattr(analyser.LogReader, "CHUNK", 10000)
    told = []
    path = DATA / "pypystm-c8-primes.log"
    analyser.analyse(str(path), told.append)
    assert told == sorted(told) and told[-1] == path.stat().st_size and len(told) > 10


def test_reader_of_the_output_that_leaves_early(write):
    records = [(i, 1, "WRITE_READ", "place %d" % i) for i in range(5000)]
    log = write(c8_log(*records))
    process = subprocess.Popen([sys.executable, str(SCRIPT), "--all", log],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), complaints) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("arguments", [[], ["--all"]])
@pytest.mark.parametrize("redirect, says", [(">/dev/full", "No space left on device"), (">&-", "closed")])
def test_output_that_cannot_be_written(write, redirect, says, arguments):
    log = write(c8_log(*[(i, 1, "WRITE_READ", "place %d" % i) for i in range(3000)]))
    line = " ".join(map(shlex.quote, [sys.executable, str(SCRIPT), log, *arguments])) + " " + redirect
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", ">&- 2>&-"])
def test_complaints_that_cannot_be_written(write, redirect):
    line = " ".join(map(shlex.quote, [sys.executable, str(SCRIPT), write(C7_HEADER)])) + " " + redirect
    done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, universal_newlines=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_json_on_a_full_disk(write, tmp_path):
    log, _ = report_of_three(write, tmp_path)
    done = command(log, "--json", "/dev/full")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and "No space left" in done.stderr


# What tornado-stm's logs tell beyond PyPy-STM's

HANDLER, OTHER_HANDLER = 'File "app.py", line 10, in Main.get', 'File "app.py", line 20, in Form.post'
CALLER = 'File "app.py", line 12, in Main.get'


def detailed(*between):
    return c7_log(
        (0, 1, "START"), (0, 2, "START"), (1, 1, "OBJECT", "Session.hits"), (1, 1, "CALLERS", CALLER, ""),
        (1, 1, "HANDLERS", HANDLER, OTHER_HANDLER), (1, 1, "WRITE_READ", HERE, THERE, 2), *between)


def test_details_are_of_the_conflict_that_follows(analyse):
    accounts = analyse(detailed(
        (1, 1, "WAIT_CONTENTION"), (5, 1, "WAIT_DONE"), (6, 1, "WRITE_READ", HERE, THERE, 2), (6, 1, "WAIT_CONTENTION"), (7, 1, "WAIT_DONE")))
    assert [(c.wanted, c.caller_here, c.caller_there, c.count, c.paused) for c in accounts.conflicts.values()] == [
        (b"Session.hits", CALLER.encode(), b"", 1, 4 * MS), (b"", b"", b"", 1, 1 * MS)]


def test_the_handler_that_waited_or_was_rolled_back_has_lost_the_time(analyse):
    accounts = analyse(detailed(
        (2, 1, "ABORTING_OTHER", "", "", 2), (2, 1, "WAIT_CONTENTION"), (5, 2, "ABORT"), (6, 1, "WAIT_DONE"), (7, 1, "COMMIT")))
    assert [(name.decode(), cost.lost / MS, cost.paused / MS) for name, cost in accounts.handlers_ranking()] == [
        (OTHER_HANDLER, 5, 0), (HANDLER, 0, 4)]
    (conflict,) = accounts.conflicts.values()
    assert conflict.handlers == {HANDLER.encode(): 4 * MS, OTHER_HANDLER.encode(): 5 * MS}


def test_a_victim_that_logs_its_abort_first_has_a_handler(analyse):
    accounts = analyse(detailed((3, 2, "ABORT"), (3, 1, "ABORTING_OTHER", "", "", 2), (7, 1, "COMMIT")))
    assert [(name.decode(), cost.lost / MS) for name, cost in accounts.handlers_ranking()] == [(OTHER_HANDLER, 3)]
    accounts = analyse(detailed((4, 1, "ABORT")))
    assert [(name.decode(), cost.lost / MS) for name, cost in accounts.handlers_ranking()] == [(HANDLER, 4)]


def test_inevitable_time_is_that_of_the_transaction_from_then_on(analyse):
    accounts = analyse(c7_log(
        (0, 1, "START"), (2, 1, "INEVITABLE_FROM_NOW", HERE, "irrevocable"), (3, 1, "WAIT_SYNC_PAUSE"), (5, 1, "WAIT_DONE"),
        (6, 1, "INEVITABLE_FROM_NOW", THERE, "exclusive"), (9, 1, "COMMIT"),
        (9, 1, "START"), (10, 1, "INEVITABLE_FROM_NOW", HERE, "exclusive"), (11, 1, "ABORT"), (12, 1, "START"), (20, 1, "COMMIT")))
    assert [(key, cost.count, cost.lost / MS) for key, cost in accounts.inevitable_ranking()] == [
        ((THERE.encode(), b"exclusive"), 1, 3), ((HERE.encode(), b"irrevocable"), 1, 2)]
    assert accounts.cpu_committed == 15 * MS


def test_what_is_sequential_keeps_nobody_waiting(analyse, write):
    log = c7_log((0, 1, "START"), (2, 1, "INEVITABLE_FROM_NOW", HERE, "sequential"), (9, 1, "COMMIT"))
    assert analyse(log).inevitable_ranking() == []
    assert "Time sequential:         0.007s" in command(write(log)).stdout
    lane = analyser.analyse(write(log), with_lanes=True).threads[1].lane
    assert sum(cell[lane.INEVITABLE] for cell in lane.cells.values()) == 0


def test_report_of_details(write):
    events = (1, 1, "WAIT_CONTENTION"), (5, 1, "WAIT_DONE"), (6, 1, "INEVITABLE_FROM_NOW", HERE, "exclusive"), (9, 1, "COMMIT")
    done = command(write(detailed(*events)))
    assert done.stderr == ""
    parts = done.stdout.strip().split("\n\n")
    assert "Time exclusive:          0.003s   33.3% of real time" in parts[0]
    assert parts[1] == "Handlers that lost time:\n        0.000s in aborts,     0.004s paused: Main.get (app.py:10)"
    assert parts[2] == "Places that transactions were inevitable from:\n        0.003s in      1 that were exclusive: %s" % HERE
    assert parts[3].splitlines()[:5] == [
        "0.000s lost in aborts, 0.004s paused (1x STM_CONTENTION_WRITE_READ)", "about Session.hits", HERE, "  for " + CALLER, THERE]
    assert parts[3].splitlines()[5] == "lost by Main.get (app.py:10) 100.0%"


def test_each_advice_is_given_for_something():
    cases = {
        ("CONTENTION_INEVITABLE", HERE, ""), ("CONTENTION_WRITE_WRITE", 'File "/usr/lib/python3.14/random.py", line 3, in seed', "Random object"),
        ("CONTENTION_WRITE_WRITE", 'File "/usr/lib/python3.14/logging/__init__.py", line 3, in emit', ""),
        ("CONTENTION_WRITE_READ", 'File "/usr/lib/python3.14/functools.py", line 3, in get', ""),
        ("CONTENTION_WRITE_READ", 'File "/usr/lib/python3.14/asyncio/queues.py", line 3, in get', ""),
        ("CONTENTION_WRITE_WRITE", HERE, "app.users['7']"),
        ("CONTENTION_WRITE_WRITE", HERE, "Session.hits"), ("CONTENTION_WRITE_READ", HERE, "app.items (list)"),
        ("CONTENTION_WRITE_READ", HERE, "Shop.seen (collections.OrderedDict)"), ("CONTENTION_WRITE_READ", HERE, ""),
    }
    given = {analyser.advice(analyser.Conflict(kind, place.encode(), b"", b"", b"", wanted.encode())) for kind, place, wanted in cases}
    assert given == {row[-1] for row in analyser.ADVICE} and len(given) == len(cases)


@pytest.mark.parametrize("path", ["/root/.cache/app.py", "/srv/in cache/queue.py", "/srv/logging/random.py", "/srv/threading.py"])
def test_advice_is_not_for_how_the_programs_own_files_are_named(path):
    place = b'File "%s", line 3, in get' % path.encode()
    assert analyser.advice(analyser.Conflict("CONTENTION_WRITE_READ", place, place, place, place)) == analyser.ADVICE[-1][-1]


# Parts of a log

LOG = object()  # the path of one, among arguments


def many_seconds():
    records = []
    for second in range(10):
        begin = second * 1000
        records += [(begin, 1, "START"), (begin + 1, 1, "WRITE_READ", "place %d" % second), (begin + 2, 1, "ABORT")]
    return c7_log(*records)


@pytest.mark.parametrize("arguments, seen", [
    (("--since", "7"), "789"), (("--until", "1.5"), "01"), (("--since", "2", "--until", "3.5"), "23"), (("--since", "-1.5"), "89"),
    (("--until", "-8.5"), "0"), (("--since", "0"), "0123456789"),
])
def test_what_happened_then(write, arguments, seen):
    done = command(write(many_seconds()), "--all", *arguments)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^place (\d)$", done.stdout, re.M)) == list(seen)


def test_nothing_happened_then(write):
    log = write(many_seconds())
    for arguments, says in ((("--since", "99"), "no transaction was logged then"), (("--until", "nan"), "number of seconds")):
        done = command(log, *arguments)
        assert (done.returncode, done.stdout) == (2, "") and says in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments, says", [
    ((), "log"), (("missing.log",), "missing.log: No such file"), (("missing.log", "--since", "1"), "missing.log: No such file"),
    ((LOG, "-n", "many"), "-n"), ((LOG, "-n", "-1"), "negative"), ((LOG, "--all", "-n", "1"), "--all"), ((LOG, "--until", "inf"), "--until"),
    ((LOG, "--since", "1e300"), "no transaction was logged then"), ((LOG, "--until=-1e300"), "no transaction was logged then"),
    ((LOG, "--json", ""), "No such file"), ((LOG, "--html", ""), "No such file"), ((LOG, "another.log"), "another.log"),
])  # fmt: skip
def test_what_cannot_be_done_is_one_line(write, arguments, says):
    log = write(many_seconds())
    done = command(*(log if argument is LOG else argument for argument in arguments))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1) and says in done.stderr


@pytest.mark.parametrize("arguments", [("--since=-1e300",), ("--until", "1e300")])
def test_a_time_may_be_far_from_the_run(write, arguments):
    done = command(write(many_seconds()), "--all", *arguments)
    assert (done.returncode, len(re.findall(r"^place (\d)$", done.stdout, re.M))) == (0, 10)


def test_the_older_half_of_a_log_is_read_first(write, tmp_path):
    whole = many_seconds()
    expected = analyser.as_json(analyser.analyse(write(whole)))
    for cut in range(16, len(whole), 29):
        if cut in borders(whole):
            write(whole[:cut], "half.log.1")
            path = write(C7_HEADER + whole[cut:], "half.log")
            assert analyser.as_json(analyser.analyse(path)) == expected
    write(b"something else", "other.log.1")
    assert analyser.as_json(analyser.analyse(write(whole, "other.log"))) == expected


def test_what_is_known_to_be_before_is_not_read_again(write, monkeypatch):
    """As a live page does, which asks for the last minute again and again, while the log grows and its files change their names."""
    monkeypatch.setattr(analyser.LogReader, "CHUNK", 100)

    def at(second):
        seconds, nanoseconds = stamp(second * 1000)
        return seconds * 10**9 + nanoseconds

    records = [(second * 1000 + i, 1, event) for second in range(20) for i, event in enumerate(("START", "COMMIT"))]
    whole, half = c7_log(*records), c7_log(*records[20:])
    path = write(whole[: analyser.HEADER_SIZE + 19 * 20])
    skipped = []
    skip_to = analyser.LogReader.skip_to
    monkeypatch.setattr(analyser.LogReader, "skip_to", lambda reader, offset: (skipped.append(offset), skip_to(reader, offset)))
    first = analyser.analyse(path, begin=at(5), known=None)
    assert first.committed == 5 and skipped == []
    write(whole)
    again = analyser.analyse(path, begin=at(8), known=first.known)
    assert again.committed == 12 and skipped == [first.known[1]] and 100 < skipped[0] <= analyser.HEADER_SIZE + 19 * 10
    # The older half goes, and the newer one gets its name.
    os.rename(path, path + ".1")
    write(half)
    later = analyser.analyse(path, begin=at(9), known=again.known)
    assert later.committed == 21 and len(skipped) == 2
    assert analyser.analyse(path, begin=at(12), known=("ff" * 8, 10**9)).committed == 16 and len(skipped) == 2
    known = analyser.analyse(path, begin=at(19), known=None).known
    os.unlink(path + ".1")
    assert analyser.analyse(path, begin=at(19), known=known).committed == 1


def test_an_older_half_of_another_format_is_none(write):
    write(C8_HEADER + c8_record(0, 1, "START"), "stm.log.1")
    assert analyser.analyse(write(many_seconds())).aborted == 10


def test_a_part_of_what_comes_through_a_pipe_is_refused(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    done = command(tmp_path / "pipe", "--since", "1")
    assert done.returncode == 2 and "no regular file" in done.stderr


def borders(log):
    """Where its records begin."""
    at, found = 16, set()
    while at < len(log):
        found.add(at)
        at += 19 + log[at + 17] + log[at + 18]
    return found


# The page

def test_lanes_lose_nothing_at_any_length():
    for length in (1, 1000, 10**6, 10**10):
        lane = analyser.Lane()
        for begin in range(0, length, max(1, length // 50)):
            lane.add(begin % 4, begin, begin + length // 100)
        spent = sum(map(sum, lane.cells.values()))
        assert spent == len(range(0, length, max(1, length // 50))) * (length // 100)
        assert all(0 <= index < lane.CELLS and sum(cell) <= lane.width for index, cell in lane.cells.items())
        assert len(lane.shares()) <= 4 * lane.CELLS


def test_what_a_thread_did_when(write):
    accounts = analyser.analyse(write(c7_log(
        (0, 1, "START"), (2, 1, "WRITE_READ", HERE, THERE), (2, 1, "WAIT_CONTENTION"), (3, 1, "WAIT_DONE"), (5, 1, "ABORT"),
        (6, 1, "START"), (7, 1, "INEVITABLE_FROM_NOW", HERE, "exclusive"), (8, 1, "COMMIT"), (10, 1, "START"))), with_lanes=True)
    lane = accounts.threads[1].lane
    spent = [sum(cell[state] for cell in lane.cells.values()) / MS for state in lane.STATES]
    assert spent == [1, 1, 4, 1]
    assert max(lane.cells) * lane.width < 8 * MS


def page_of(path):
    """The data of a written page."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*)</script>', text)[1])


def hostile_log():
    bad = 'File "</script><script>document.title=\'broken\'</script><!--.py", line 1, in <b>'
    return detailed((2, 1, "ABORT"), (3, 1, "START"), (4, 1, "WRITE_WRITE", bad, bad, 2), (5, 1, "ABORT")), bad


def test_page(write, tmp_path):
    log, bad = hostile_log()
    page = tmp_path / "report.html"
    assert command(write(log), "--html", page).returncode == 0
    data = page_of(page)
    assert {c["places"][0]["text"] for c in data["conflicts"]} == {bad, HERE}
    assert page.read_text(encoding="utf-8").count("<script") == 2
    done = command(write(log), "--html", tmp_path / "missing" / "out.html")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or pytest.skip("there is no Chromium")


def test_page_in_a_browser(write, tmp_path):
    """It draws itself; texts of the log are no markup."""
    log, bad = hostile_log()
    page = tmp_path / "report.html"
    command(write(log), "--html", page)
    done = subprocess.run(
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=%s" % (tmp_path / "profile"), "--virtual-time-budget=3000",
         "--dump-dom", page.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    drawn = done.stdout
    assert drawn.count('class="row"') == 2 and "Session.hits" in drawn and "<title>Conflicts</title>" in drawn
    assert 'style="height:' in drawn.partition("<canvas")[2]


# Logs that nobody wrote

@pytest.mark.parametrize("header", [C7_HEADER, C8_HEADER])
def test_any_records_are_analysed_or_refused(header, write, tmp_path, capsys):
    hypothesis = pytest.importorskip("hypothesis")
    strategies = hypothesis.strategies
    texts = strategies.sampled_from([b"", HERE.encode(), CALLER.encode(), b"\xff\x00", b"Session.hits", b"x" * 255])
    numbers = strategies.sampled_from([0, 1, 2, 3, 2**32 - 1])
    stamps = strategies.integers(0, 2**32 - 1) | strategies.integers(0, 50)
    record = strategies.tuples(stamps, stamps, numbers, numbers, strategies.integers(0, 20) | strategies.just(255), texts, texts)

    options = strategies.sampled_from([(), ("--since", "-1"), ("--until", "3")])

    @hypothesis.settings(max_examples=300, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategies.lists(record, max_size=40), strategies.binary(max_size=30), options)
    def check(records, rest, window):
        data = header
        for second, nanosecond, thread, other, event, here, there in records:
            if header == C7_HEADER:
                data += struct.pack("<IIIIBBB", second, nanosecond, thread, other, event, len(here), len(there)) + here + there
            else:
                data += struct.pack("<IIIBB", second, nanosecond, thread, event, len(here)) + here
        log = write(data + rest)
        assert analyser.main([log, "--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"), *window]) in (0, 2)
        capsys.readouterr()

    check()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_gigabyte_is_read_in_bounded_memory(tmp_path):
    events = [("START", ()), ("WRITE_READ", (HERE, THERE)), ("WAIT_CONTENTION", ()), ("WAIT_DONE", ()), ("COMMIT", ())]
    path, millisecond = tmp_path / "huge.log", 0
    with open(str(path), "wb") as file:
        file.write(C7_HEADER)
        while file.tell() < 1 << 30:
            file.write(b"".join(c7_record(millisecond, 1 + n, event, *places) for n in range(8) for event, places in events))
            millisecond += 1
    code = (
        "import resource, runpy, sys; sys.argv = sys.argv[1:]\ntry: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(SCRIPT), str(path), "--html", str(tmp_path / "out.html")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert int(done.stdout.split()[-1]) < 200 << 10, "kilobytes"
