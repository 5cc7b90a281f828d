"""What ``python -m tornado.stm`` tells of a run: at its end, on SIGUSR2, and at once where something costs much."""

import os
import re
import subprocess
import sys

import pytest

from extensions import compile_extension
from interpreters import ROOT, has_gil, on_each, parallel_only
from tornado.stm.loop import graceful
from tornado.stm.program import report

APP = """
import asyncio, os, signal, sqlite3, ssl, sys, time
from tornado.stm.program import report

report.LONG_RUN *= 100  # on a busy machine a short one may take as long
db = sqlite3.connect(":memory:")

async def query():
    for _ in range(20):
        db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        await asyncio.sleep(0)

def context():
    return ssl.create_default_context()

def long():
    begun.append(time.monotonic())
    end = begun[0] + (5 if "5" in sys.argv else 60)
    while len(looks) < 2 and time.monotonic() < end:
        pass

async def main():
    if "long" in sys.argv:
        count_looks()
        asyncio.get_running_loop().call_soon(long)
        await asyncio.sleep(0.01)
    await asyncio.gather(*[query() for _ in range(4)])
    context()
    if "signal" in sys.argv:
        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.sleep(0.1)
        print("went on")

begun, looks = [], []

def count_looks():  # of the watch, from when on it can tell: it looks each second, later on a busy machine
    def look(watch):
        may_tell = begun and time.monotonic() - begun[0] > report.LONG_CALLBACK
        look_as_ever(watch)
        if may_tell:
            looks.append(True)

    look_as_ever, report.Watch.look = report.Watch.look, look

asyncio.run(main())
"""


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "app.py"
    path.write_text(APP)
    return str(path)


def run(python, *arguments):
    done = subprocess.run([python, "-m", "tornado.stm", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "transactions run on one thread" not in line], done.stdout


FIRST = re.compile(
    r"tornado\.stm: (\d+) transactions on (\d+) threads?, [\d.]+ % rolled back; of the time [\d.]+ % lost in conflicts, [\d.]+ % alone"
)


@on_each
def test_a_short_run_is_not_told_of(python, app):
    assert run(python, "-j", "2", app) == ([], "")


@on_each
def test_explain(python, app):
    (first, *reasons), _ = run(python, "-j", "2", "--explain", app)
    if has_gil(python):
        assert first == report.SERIAL and reasons == []
    else:
        told = FIRST.fullmatch(first)
        assert told and int(told[1]) > 80 and int(told[2]) == 2
        shares = [float(line.split()[0]) for line in reasons if " times " in line]
        assert shares == sorted(shares, reverse=True)
        line = next(line for line in reasons if "sqlite3.Connection.getlimit" in line)
        assert line.endswith(f'File "{app}", line 10, in query')
        assert reasons[reasons.index(line) + 1].strip() == report.STANDARD
        # Where a library did that: the program's line, too.
        line = next(line for line in reasons if "_SSLContext:" in line)
        assert "ssl.py" in line and line.endswith(f'for File "{app}", line 14, in context')


EXTENSION = """
#include <Python.h>

static PyObject *same(PyObject *self, PyObject *o) { return Py_NewRef(o); }
static PyMethodDef functions[] = {{"same", same, METH_O, NULL}, {NULL}};
static PyMethodDef methods[] = {{"same", same, METH_O, NULL}, {NULL}};
static PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, NULL}};
/* Its name is that of a function, which has no such attribute. */
static PyType_Spec spec = {"unknown.same", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, slots};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "unknown", NULL, -1, functions};

PyMODINIT_FUNC
PyInit_unknown(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
    PyModule_AddObject(module, "Thing", PyType_FromSpec(&spec));
    return module;
}
"""

FUNCTIONS = """
import asyncio, ctypes, _sqlite3, unknown

async def ask(function, argument):
    for _ in range(20):
        function(argument)
        await asyncio.sleep(0)

async def main():
    magnitude, thing = ctypes.CDLL(None).abs, unknown.Thing()
    await asyncio.gather(*[ask(*each) for each in [
        (_sqlite3.complete_statement, "a"), (magnitude, -1), (unknown.same, 1), (thing.same, 1)]])

asyncio.run(main())
"""


@pytest.fixture
def functions(tmp_path):
    compile_extension(tmp_path, "unknown", EXTENSION)
    (tmp_path / "app.py").write_text(FUNCTIONS)
    return str(tmp_path / "app.py")


@parallel_only
def test_explain_names_functions_as_declarations_do(functions):
    lines, _ = run(sys.executable, "-j", "2", "--explain", functions)
    assert any("call unknown.same EFFECT" in line for line in lines), lines
    assert any("tornado.stm.effects.declare(abs, EFFECT)" in line for line in lines), lines
    assert any("tornado.stm.effects.declare(type(x).same, EFFECT), x: a unknown.same" in line for line in lines), lines


@parallel_only
def test_explain_asks_nobody_to_declare_the_standard_library(functions):
    lines, _ = run(sys.executable, "-j", "2", "--explain", functions)
    (number,) = [i for i, line in enumerate(lines) if "call of _sqlite3.complete_statement:" in line]
    assert lines[number + 1].strip() == report.STANDARD


IMPORTS = """
import asyncio, importlib

async def find():
    importlib.import_module("colorsys")

asyncio.run(find())
"""


@parallel_only
def test_what_importlib_imports_is_an_import(tmp_path):
    (tmp_path / "app.py").write_text(IMPORTS)
    (_, reason), _ = run(sys.executable, "-j", "2", "--explain", str(tmp_path / "app.py"))
    assert " 1 times  an import: " in reason and reason.endswith(f'for File "{tmp_path / "app.py"}", line 5, in find')


@parallel_only
def test_explain_names_what_was_declared_and_is_not_there(tmp_path, functions):
    names = {
        "_sqlite3.complete_statement": False, "_sqlite3.complete_statment": True, "_sqlite3.Nothing.*": True, "sqlite3.dump.none": False,
        "asyncio.run": True, "no_such_module.function": False,
    }  # fmt: skip
    (tmp_path / "more.effects").write_text("".join(f"call {name} PURE\n" for name in names))
    lines, _ = run(sys.executable, "-j", "2", "--explain", "--effects", str(tmp_path / "more.effects"), functions)
    told = [line.rpartition(": ")[2] for line in lines if line.startswith("  declared, but nothing in C")]
    assert told == [name for name, is_told in names.items() if is_told]


@on_each
def test_a_signal_asks(python, app):
    lines, output = run(python, "-j", "2", app, "signal")
    assert output == "went on\n" and (lines[0] == report.SERIAL if has_gil(python) else FIRST.fullmatch(lines[0]))
    assert len(lines) <= 1 + report.REASONS


@parallel_only
def test_a_callback_that_takes_long_is_told_of_once(app):
    assert_told_of_once(app, run(sys.executable, "-j", "2", app, "long")[0])


def assert_told_of_once(app, lines):
    (line,) = (line for line in lines if "warning" in line)
    assert re.fullmatch(rf'tornado\.stm: warning: a callback has run for 2 seconds and more: File "{app}", line [12][90], in long', line)


FORKED_AND_LONG = """
import os, sys, warnings

warnings.simplefilter("ignore")
if (child := os.fork()) == 0:
    sys.argv.append("long")
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@parallel_only
def test_so_is_one_in_the_child_of_a_fork(app, tmp_path):
    (tmp_path / "forks.py").write_text(FORKED_AND_LONG)
    assert_told_of_once(app, run(sys.executable, "-j", "2", str(tmp_path / "forks.py"), app)[0])


@parallel_only
def test_or_nothing_is_said(app):
    assert run(sys.executable, "-q", "-j", "2", app, "long", "5") == ([], "")


@on_each
@pytest.mark.parametrize("options", [[], ["-q"]])
def test_a_line_says_what_the_dump_is_that_sigterm_prints(python, tmp_path, options):
    app = tmp_path / "app.py"
    app.write_text("""
import asyncio, os, signal

async def main():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    open(os.devnull, "w")  # from here on it is not rolled back
    while True:
        pass

asyncio.run(main())
""")
    done = subprocess.run([python, "-m", "tornado.stm", *options, str(app)], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "transactions run on one thread" not in line and "warning" not in line]
    if not options:
        assert lines.pop(0) == graceful.WHY_KILLED.rstrip()
    assert lines[0].startswith("Timeout (") and any(f'File "{app}", line' in line for line in lines), lines


class Costs:
    """The engine's counts, at moments of the test's choice."""

    def __init__(self, monkeypatch):
        self.now, self.used, self.alone, self.lost, self.running = 0.0, 0.0, 0.0, 0.0, 0.0
        monkeypatch.setattr(report.core, "stats", self.stats)
        monkeypatch.setattr(report.core, "running", lambda: [])
        monkeypatch.setattr(report.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(report.time, "process_time", lambda: self.used)
        self.said = []
        monkeypatch.setattr(report, "write", self.said.extend)

    def stats(self):
        return {
            "commits": 100, "aborts": 10, "seconds_alone": self.alone, "seconds_lost": self.lost,
            "seconds_running": self.running,
            "exclusive_reasons": {"call of f: File \"a\", line 1, in b": 5}, "exclusive_seconds": {"call of f: File \"a\", line 1, in b": self.alone},
        }  # fmt: skip

    def pass_time(self, watch, seconds, used, alone, lost, running=0):
        self.now += seconds
        self.used += used
        self.alone += alone
        self.lost += lost
        self.running += running
        watch.look()


def test_what_costs_a_fifth_of_the_time_is_told_of_once(monkeypatch):
    costs = Costs(monkeypatch)
    watch = report.Watch()
    for _ in range(5):
        costs.pass_time(watch, 11, 10, 1.9, 1.9)
    assert costs.said == []
    costs.pass_time(watch, 5, 10, 9, 0)  # too soon
    assert costs.said == []
    for _ in range(3):
        costs.pass_time(watch, 6, 10, 3, 0)
    (said,) = costs.said
    assert said.startswith("tornado.stm: warning: 60.0 % of the time went to what runs alone, most by call of f: File")
    assert f"kill -USR2 {os.getpid()}" in said
    costs.pass_time(watch, 11, 10, 0, 5)
    assert len(costs.said) == 2 and "50.0 % of the time was lost in conflicts" in costs.said[1]


def test_on_a_machine_that_others_use_shares_are_of_the_time_that_transactions_took(monkeypatch):
    costs = Costs(monkeypatch)
    run, watch = report.Run(), report.Watch()
    costs.pass_time(watch, 11, 3, 3, 3, running=20)  # a third of a processor for each of two threads
    assert costs.said == [] and "of the time 15.0 % lost in conflicts, 15.0 % alone" in run.lines()[0]
    costs.pass_time(watch, 11, 3, 10, 0, running=20)
    assert len(costs.said) == 1 and "50.0 % of the time went to what runs alone" in costs.said[0]


ALONE = """
import asyncio, sqlite3
from tornado.stm import core

db = sqlite3.connect(":memory:")

async def query():
    for _ in range(300):
        db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        await asyncio.sleep(0)

class World:
    n = 0

async def count(world):
    for _ in range(300):
        world.n += 1
        sum(range(5000))
        await asyncio.sleep(0)

async def main():
    world = World()
    await asyncio.gather(query(), query(), *[count(world) for _ in range(4)])

asyncio.run(main())
stats = core.stats()
print(stats["seconds_alone"], stats["seconds_lost"], stats["seconds_running"])
"""


@parallel_only
def test_what_is_lost_or_alone_is_part_of_what_transactions_took(tmp_path):
    (tmp_path / "app.py").write_text(ALONE)
    alone, lost, running = map(float, run(sys.executable, "-q", "-j", "2", str(tmp_path / "app.py"))[1].split())
    assert 0 < alone + lost < running * 1.01  # two clocks


def test_a_callback_that_goes_from_place_to_place_is_told_of_once(monkeypatch):
    costs = Costs(monkeypatch)
    running = []
    monkeypatch.setattr(report.core, "running", lambda: running)
    monkeypatch.setattr(report, "place_of", lambda thread: f"{thread} at {costs.now}")
    watch = report.Watch()

    def look(*now):
        running[:] = now
        costs.pass_time(watch, 1, 1, 0, 0)

    for seconds in 1.5, 2.5, 3.5, 4.5:
        look((1, seconds), (2, 0.1))
    assert [line.partition("more: ")[2] for line in costs.said] == ["1 at 2.0"]
    look((1, 2.25), (2, 2.5))  # another one; and one of another thread
    look((1, 3.25), (2, 0.5))
    look((2, 2.125))
    assert [line.partition("more: ")[2] for line in costs.said[1:]] == ["1 at 5.0", "2 at 5.0", "2 at 7.0"]


def test_the_reason_in_a_warning_is_that_of_the_time_that_it_is_about(monkeypatch):
    costs = Costs(monkeypatch)
    sums = {"import of x": 100.0, "call of f": 0.0}
    monkeypatch.setattr(report.core, "stats", lambda: costs.stats() | {"exclusive_seconds": dict(sums), "exclusive_reasons": dict.fromkeys(sums, 1)})
    watch = report.Watch()
    sums["call of f"] += 3
    costs.pass_time(watch, 11, 10, 3, 0)
    (said,) = costs.said
    assert "30.0 % of the time went to what runs alone, most by call of f (" in said


def test_a_server_that_is_idle_is_not_told_of(monkeypatch):
    costs = Costs(monkeypatch)
    watch = report.Watch()
    for _ in range(5):
        costs.pass_time(watch, 11, 0.01, 0.01, 0.01)
    assert costs.said == []


FORKED = """
import asyncio, os, signal, time, warnings

async def main(n):
    for _ in range(n):
        await asyncio.sleep(0)

asyncio.run(main(1000))
while time.process_time() < 1:  # the child begins at 0
    pass
warnings.simplefilter("ignore")
if (child := os.fork()) == 0:
    asyncio.run(main(100))
    os.kill(os.getpid(), signal.SIGUSR2)
    os._exit(0)
os.waitpid(child, 0)
"""


@parallel_only
def test_in_the_child_of_a_fork_it_is_told_of_that_child(tmp_path):
    (tmp_path / "app.py").write_text(FORKED)
    (first, *_), _ = run(sys.executable, "-j", "2", str(tmp_path / "app.py"))
    told = FIRST.fullmatch(first)
    assert told and 100 <= int(told[1]) < 1000, first


@parallel_only
def test_the_number_of_threads_is_that_of_the_program(tmp_path):
    (tmp_path / "app.py").write_text("import asyncio, tornado.stm\ntornado.stm.run(asyncio.sleep(0), threads=3)\n")
    (first, *_), _ = run(sys.executable, "--explain", str(tmp_path / "app.py"))
    assert " on 3 threads, " in first


WITHOUT_STDERR = """
import asyncio, os

file = os.open("data", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

async def main():
    await asyncio.sleep(0)

asyncio.run(main())
os.write(file, b"data")
"""


@on_each
def test_where_there_is_no_standard_error_nothing_is_told_to_anybody(python, tmp_path):
    """The first file that the program opens would get its number, and print() would take standard output."""
    (tmp_path / "app.py").write_text(WITHOUT_STDERR)
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    for arguments, status in (["-j", "2", "--explain", "--log", "stm.log", "app.py"], 0), (["-j", "0", "app.py"], 2):
        command = ["sh", "-c", 'exec "$0" "$@" 2>&-', python, "-m", "tornado.stm", *arguments]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, env=environment, timeout=100)
        assert (done.returncode, done.stdout) == (status, b"")
    assert (tmp_path / "data").read_bytes() == b"data"
