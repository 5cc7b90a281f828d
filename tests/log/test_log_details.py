"""What the conflict log tells beyond PyPy-STM's: the object, the program's own lines, the handlers; and how its file is kept."""

import dataclasses
import functools
import os
import signal
import site
import subprocess
import sys
import textwrap
import threading

import pytest

import conflict_log
from interpreters import ROOT, needs_engine
from meeting import CONFLICT, Meeting
from tornado.stm import activation, conflictlog, core

needs_engine()

activation.activate()


@pytest.fixture
def met(tmp_path):
    """Call this with what `Meeting` takes: what the log tells of the conflict, {event: (here, there)}."""

    def met(make, first, second, lines=None):
        for action in (first, second):
            core.Transaction(action, make()).run()
        conflictlog.start(tmp_path / "stm.log")
        try:
            assert Meeting(make, first, second).run() == CONFLICT
        finally:
            conflictlog.stop()
        records = conflict_log.read(tmp_path / "stm.log")
        conflict_log.check(records)
        if lines is not None:
            lines.update(place for record in records if record.event in conflict_log.CONFLICTS for place in (record.here, record.there))
        return [
            {record.event: (record.here, record.there) for record in records if record.event in conflict_log.DETAILS}
            for record in records if record.event in conflict_log.CONFLICTS
        ][0]  # fmt: skip

    return met


# ---- What they fought over -----------------------------------------------------------------------------------------------

total = 0
table = {}
items = []


class Session:
    hits = 0
    __slots__ = ("__dict__", "slot")

    def __init__(self):
        self.count, self.slot, self.seen, self.tags = 0, 0, {}, []


class Plain:
    def __init__(self):
        self.count, self.seen = 0, {}


def count_global(_):
    global total
    total += 1


def count_attribute(session):
    session.count += 1


def count_slot(session):
    session.slot += 1


def put_into_global(_):
    table["key", 1] = 1
    table["name"] = table.get("name", 0) + 1


def put_into_attribute(session):
    session.seen["Jane"] = 1


def append_to_global(_):
    items.append(1)


def append_to_local(session):
    mine = session.tags
    mine.append(1)


def put_local_key(session):
    for key in ("a", "b"):
        session.seen[key + "c"] = 1


def set_class_attribute(session):
    Session.hits += 1


MODULE = __name__


@pytest.mark.parametrize("make, action, expected", [
    (Plain, count_global, f"{MODULE}.total"),
    (Plain, count_attribute, "Plain.count"),
    (Session, count_attribute, "Session.count"),
    (Session, count_slot, "Session.slot"),
    (Plain, put_into_global, f"{MODULE}.table[('key', 1)]"),
    (Plain, put_into_attribute, "Plain.seen['Jane']"),
    (Plain, append_to_global, f"{MODULE}.items (list)"),
    (Session, append_to_local, "Session.tags (list)"),
    (Plain, put_local_key, "Plain.seen['ac']"),
])  # fmt: skip
def test_the_object_has_the_name_that_the_program_gives_it(met, make, action, expected):
    assert met(lambda: (make(),), action, action)["OBJECT"] == (expected, "")


def test_an_object_that_has_no_name_is_known_by_its_type(met):
    told = met(lambda: (bytearray(3),), lambda data: data.append(1), lambda data: data.append(2))
    assert told["OBJECT"] == ("bytearray object", "")


def test_a_module_may_have_no_name(met):
    namespace = {"__name__": None}
    exec("total = 0\ndef count(_):\n    global total\n    total += 1\n", namespace)
    assert met(lambda: (Plain(),), namespace["count"], namespace["count"])["OBJECT"] == ("?.total", "")


def test_keys_of_a_subclass_of_str_are_not_asked(met):
    class Name(str):
        def __eq__(self, other):
            raise AssertionError("asked")

        __hash__ = str.__hash__

    seen = {Name("a"): 1}

    def put(plain):
        for name in seen:
            plain.seen[name] = 1

    plains = Plain(), Plain()
    told = met(lambda: (plains[0],), put, put)
    assert told.get("OBJECT", ("dict object", ""))[0] in ("dict object", "Plain.seen (dict)"), told


# ---- Where, and for whom ----------------------------------------------------------------------------------------------------


def test_the_programs_own_line_is_told_beside_that_of_a_library(met):
    import collections

    def update(counter):
        counter.update("aab")

    def count(counter):
        update(counter)

    told = met(lambda: (collections.Counter(),), count, count)
    (here, there), (handler, other) = told["CALLERS"], told["HANDLERS"]
    for place in here, there:
        assert place.endswith("in test_the_programs_own_line_is_told_beside_that_of_a_library.<locals>.update") and __file__ in place
    assert {handler.rpartition(" ")[2], other.rpartition(" ")[2]} == {"Meeting.younger", "Meeting.older"}  # they have called the rest


LIBRARY = os.path.join(os.path.dirname(os.__file__), "not_there.py")


@pytest.mark.parametrize("n", range(30))
def test_the_innermost_line_is_that_of_its_frame_however_many_are_around_it(met, n):
    """What is known of lines lies in a table, in which the outer frames may take the place of the inner one."""
    lines = ["def touch(plain):", "    plain.count += 1", "def f0(plain):", "    touch(plain)"]
    for i in range(1, 60):
        lines += [f"def f{i}(plain):", f"    f{i - 1}(plain)"]
    namespace = {"__name__": "library"}
    exec(compile("\n".join(lines), LIBRARY, "exec"), namespace)

    def act(plain):
        namespace["f59"](plain)

    conflictlog_lines = set()
    met(lambda: (Plain(),), act, act, conflictlog_lines)
    assert conflictlog_lines == {f'File "{LIBRARY}", line 2, in touch'}


@pytest.mark.parametrize("enabled", [True, False])
def test_what_a_user_has_installed_is_a_library(monkeypatch, enabled):
    monkeypatch.setattr(site, "ENABLE_USER_SITE", enabled)
    monkeypatch.setattr(site, "USER_SITE", "/home/user/site-packages")
    assert ("/home/user/site-packages/" in activation.libraries_at()) is enabled


@dataclasses.dataclass
class Point:
    x: int = 0


def compare(point):
    assert point == Point()


def test_the_programs_own_line_is_told_beside_one_that_a_library_has_made_of_text(met):
    lines = set()
    told = met(lambda: (Point(),), compare, lambda point: setattr(point, "x", 0), lines)
    assert any('File "<string>", line' in line and line.endswith("__eq__") for line in lines), lines
    assert any(caller.startswith(f'File "{__file__}"') and caller.endswith("in compare") for caller in told["CALLERS"]), told


@pytest.mark.parametrize("path, name", [("/" + "d" * 300, "f" * 50), ("/" + "ü" * 150, "f" * 50), ("/srv", "ü" * 150), ("/srv", "f" * 300)])
def test_what_is_too_long_is_cut_between_characters_and_says_so(met, path, name):
    namespace = {}
    exec(compile(f"def {name}(plain):\n    plain.count += 1\n", f"{path}/app.py", "exec"), namespace)
    lines = set()
    met(lambda: (Plain(),), namespace[name], namespace[name], lines)
    (line,) = lines
    beginning, middle, end = line.partition('/app.py", line 2, in ')
    assert middle and 200 < len(line.encode()) < 256 or path == "/srv"
    shown = beginning.removeprefix('File "')
    assert shown == path or shown.startswith("...") and path.endswith(shown[3:])
    assert end == name or end.endswith("...") and name.startswith(end[:-3]) and len(end) > 30


def test_the_programs_own_line_is_told_beside_that_of_an_init_of_a_librarys(met):
    """The interpreter puts a frame of its own under that of an `__init__` that is called often."""
    text = """
class Counted:
    def __init__(self, plain):
        plain.count += 1
"""
    namespace = {"__name__": "library"}
    exec(compile(text, LIBRARY, "exec"), namespace)

    def count(plain):
        namespace["Counted"](plain)

    for _ in range(100):
        count(Plain())
    told = met(lambda: (Plain(),), count, count)
    assert all(caller.startswith(f'File "{__file__}"') and caller.endswith("count") for caller in told["CALLERS"]), told


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        wrapper.calls += 1
        return function(*args)

    wrapper.calls = 0
    return wrapper


@decorated
def count_decorated(plain):
    count_attribute(plain)


def test_the_handler_is_what_is_decorated(met, monkeypatch):
    """With the decorator's function all of its handlers would be one."""

    class Wrapped(Meeting):
        younger, older = map(decorated, (Meeting.younger, Meeting.older))

    monkeypatch.setitem(globals(), "Meeting", Wrapped)
    told = met(lambda: (Plain(),), count_decorated, count_decorated)
    assert {handler.rpartition(" ")[2] for handler in told["HANDLERS"]} <= {"Meeting.younger", "Meeting.older"}, told


def test_a_line_of_the_program_has_no_caller(met):
    told = met(lambda: (Plain(),), count_attribute, count_attribute)
    assert "CALLERS" not in told and told["HANDLERS"][0].rpartition(" ")[2] in ("Meeting.younger", "Meeting.older")


def test_grades_are_told(tmp_path):
    conflictlog.start(tmp_path / "stm.log")

    def upgrade():
        core.irrevocable("a test")
        core.exclusive("a test")

    core.Transaction(upgrade, ()).run()
    conflictlog.stop()
    records = conflict_log.read(tmp_path / "stm.log")
    told = [(record.here.rpartition(".")[2], record.there) for record in records if record.event == "BECOME_INEVITABLE"]
    assert told == [("upgrade", "irrevocable"), ("upgrade", "exclusive")]


def test_what_was_lost_at_a_place_is_counted(met):
    def conflicts_there():
        """At that place, whoever has called it."""
        return sum(conflicts for place, _, _, conflicts, *_ in core.log_losses() if place.endswith(b"in count_attribute"))

    before = conflicts_there()
    met(lambda: (Plain(),), count_attribute, count_attribute)
    assert conflicts_there() > before


# ---- The file ------------------------------------------------------------------------------------------------------------------


def many(n):
    for _ in range(n):
        core.Transaction(int, ()).run()


def test_a_log_is_bounded(tmp_path):
    path, older = tmp_path / "stm.log", tmp_path / "stm.log.1"
    older.write_bytes(b"somebody's")
    conflictlog.start(path, 40_000)
    many(2000)
    conflictlog.stop()
    assert path.stat().st_size < 20_040 and older.stat().st_size <= 20_040
    assert older.read_bytes()[:16] == path.read_bytes()[:16] == conflict_log.HEADER
    both = conflict_log.read(older) + conflict_log.read(path)
    conflict_log.check(both)
    conflictlog.start(path)
    conflictlog.stop()
    assert not older.exists()


def test_nothing_is_lost_at_the_border_of_two_files(tmp_path):
    path = tmp_path / "stm.log"
    conflictlog.start(path, 400_000)
    many(6000)
    conflictlog.stop()
    counts = conflict_log.check(conflict_log.read(f"{path}.1") + conflict_log.read(path))
    assert counts["COMMIT"] == counts["START"] == 6000


def test_a_log_stays_in_the_folder_that_it_began_in(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    conflictlog.start("stm.log", 40_000)
    assert conflictlog.path() == str(tmp_path / "stm.log")
    monkeypatch.chdir(tmp_path / "other")
    many(2000)
    conflictlog.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "stm.log", "stm.log.1"]
    assert conflictlog.path() is None


def test_a_pipe_has_no_older_half(tmp_path):
    pipe, chunks = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def read():
        with open(pipe, "rb") as file:
            chunks.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    conflictlog.start(pipe, 1000)
    many(200)
    conflictlog.stop()
    reader.join()
    assert len(chunks[0]) == 16 + 400 * 19 and [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_logs_are_begun_and_ended_by_several_threads_at_a_time(tmp_path):
    def switch(n):
        for i in range(40):
            conflictlog.start(tmp_path / f"{n}.log")
            many(2)
            conflictlog.stop()

    threads = [threading.Thread(target=switch, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for path in tmp_path.glob("*.log"):
        conflict_log.check(conflict_log.read(path), ended=False)


@pytest.mark.parametrize("limit", [-1, 2**63, 2**64])
def test_a_limit_that_no_file_has_is_refused(tmp_path, limit):
    with pytest.raises(ValueError):
        conflictlog.start(tmp_path / "stm.log", limit)


def test_the_name_of_a_log_may_be_no_text(tmp_path):
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    conflictlog.start(folder / "\udce9.log")
    many(5)
    conflictlog.stop()
    assert conflict_log.check(conflict_log.read(folder / "\udce9.log"))["COMMIT"] == 5
    with pytest.raises(IsADirectoryError) as caught:
        conflictlog.start(folder)
    assert caught.value.filename == str(folder)


KILLED = """
import os, signal, sys, time
from tornado.stm import activation, conflictlog, core
activation.activate()
conflictlog.start(sys.argv[1])
for _ in range(100):
    core.Transaction(int, ()).run()
while os.path.getsize(sys.argv[1]) < 3800:
    time.sleep(0.001)
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=dict(os.environ, **environment),
    )  # fmt: skip


def test_what_a_killed_process_has_told_is_there(tmp_path):
    done = run(KILLED, tmp_path / "stm.log")
    assert done.returncode == -signal.SIGKILL, done.stderr
    counts = conflict_log.check(conflict_log.read(tmp_path / "stm.log"))
    assert counts["COMMIT"] == 100


FORKED = """
import os, sys
from tornado.stm import activation, conflictlog, core
activation.activate()
conflictlog.start(sys.argv[1])
core.Transaction(int, ()).run()
if (pid := os.fork()) == 0:
    for _ in range(3):
        core.Transaction(int, ()).run()
    conflictlog.stop()
    os._exit(0)
print(pid, os.waitpid(pid, 0)[1])
core.Transaction(int, ()).run()
conflictlog.stop()
"""


def test_the_child_of_a_fork_writes_a_log_of_its_own(tmp_path):
    pid, status = map(int, run(FORKED, tmp_path / "stm.log").stdout.split())
    assert status == 0
    logs = [conflict_log.check(conflict_log.read(path))["COMMIT"] for path in (tmp_path / "stm.log", tmp_path / f"stm.log.fork{pid}")]
    assert logs == [2, 3]


def test_a_full_disk_ends_the_log_in_one_line(tmp_path):
    done = run("""
        from tornado.stm import activation, conflictlog, core
        activation.activate()
        conflictlog.start("/dev/full", 0)
        for _ in range(5):
            core.Transaction(int, ()).run()
        conflictlog.stop()
        print("done")
    """)  # fmt: skip
    assert done.returncode == 1 and "OSError" in done.stderr.splitlines()[-1] or (done.stdout, len(done.stderr.splitlines())) == ("done\n", 1)
    assert "/dev/full" in done.stderr and "No space left" in done.stderr


def test_log_of_the_command_line(tmp_path):
    (tmp_path / "app.py").write_text("import asyncio\nasyncio.run(asyncio.sleep(0))\n")
    done = subprocess.run(
        [sys.executable, "-m", "tornado.stm", "-q", "--log", "stm.log", "--log-size", "5", "app.py"], cwd=tmp_path, capture_output=True, text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert conflict_log.check(conflict_log.read(tmp_path / "stm.log"))["COMMIT"]
    told = subprocess.run([sys.executable, "-m", "tornado.stm.log", tmp_path / "stm.log"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0 and told.stdout.startswith("Total real time")


@pytest.mark.parametrize("arguments", [
    ("--log-size", "5"), ("--log", "stm.log", "--log-size", "much"), ("--log", "nowhere/stm.log"),
    ("--log", ""), ("--log", "", "--log-size", "5"), ("--log", "stm.log", "--log-size", ""), ("--log", "stm.log", "--log-size", "9" * 5000),
    ("--log", "stm.log", "--log-size", "9" * 20), ("--log", "/dev/full"),
])  # fmt: skip
def test_bad_logs_are_one_line(tmp_path, arguments):
    (tmp_path / "app.py").write_text("")
    done = subprocess.run([sys.executable, "-m", "tornado.stm", *arguments, "app.py"], cwd=tmp_path, capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=str(ROOT)), timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
