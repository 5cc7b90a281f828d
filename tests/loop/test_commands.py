"""``python -m tornado.stm`` and the variables PYPYSTM and PYTHON_GIL: what a user types, and what comes back."""

import os
import select
import signal
import socket
import subprocess
import sys
import zipfile

import pytest

from extensions import compile_extension
from interpreters import ROOT, has_gil, on_both, parallel_only, without_report

WHO_AM_I = """
import asyncio, json, sys

async def main():
    await asyncio.sleep(0)
    loop = type(asyncio.get_running_loop()).__name__
    print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __package__ or ""]))
    print(loop, file=sys.stderr)

asyncio.run(main())
"""

TORNADO_STYLE = """
import sys
import tornado.ioloop

seen = []
io_loop = tornado.ioloop.IOLoop.current()

def last():
    print(seen, type(io_loop.asyncio_loop).__name__)
    io_loop.stop()

for i in range(5):
    io_loop.add_callback(seen.append, i)
io_loop.call_later(0.01, last)
io_loop.start()
print("after")
"""

FAILS = """
import asyncio

async def main():
    await asyncio.sleep(0)
    raise LookupError("not there")

asyncio.run(main())
"""

SERVER = """
import asyncio, sys
import tornado.web

async def main():
    tornado.web.Application([]).listen(int(sys.argv[1]), "127.0.0.1")
    print("listening", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

#: python -c: remove the current folder, then run Python with these arguments
REMOVED = """
import os, sys

os.rmdir(os.getcwd())
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

CONFLICTS = """
import asyncio

shared = {"n": 0}

def count():
    n = shared["n"]
    for _ in range(20000):
        pass
    shared["n"] = n + 1

async def main():
    loop = asyncio.get_running_loop()
    for _ in range(200):
        loop.call_soon(count)
    while shared["n"] < 200:
        await asyncio.sleep(0.01)
    print(shared["n"])

asyncio.run(main())
"""

#: goes on until two have met
COLLISIONS = CONFLICTS.partition("async def")[0] + """
from tornado.stm import transaction

async def main():
    loop = asyncio.get_running_loop()
    expected = 0
    while transaction.stats()["aborts"] < 20:
        expected += 50
        for _ in range(50):
            loop.call_soon(count)
        while shared["n"] < expected:
            await asyncio.sleep(0.01)
    print(shared["n"] == expected)

asyncio.run(main())
"""


def run(python, *arguments, cwd, **environment):
    """Run to the end; `environment` is added to this process's."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYPYSTM", "PYTHON_GIL")}
    return subprocess.run(
        [python, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=100, env={**env, **environment}
    )


def stm(python, *arguments, cwd, **environment):
    return run(python, "-m", "tornado.stm", *arguments, cwd=cwd, **environment)


def is_bad_input(result, *words):
    """One line, status 2, no traceback."""
    assert result.returncode == 2, result
    (line,) = result.stderr.splitlines()
    for word in words:
        assert word in line, line
    return True


def program(folder, text, name="app.py"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return name


def without_notice(python, stderr):
    """What the program itself wrote: on an interpreter with a GIL the first line says why there is one thread."""
    stderr = without_report(stderr)
    if not has_gil(python):
        return stderr
    notice, _, rest = stderr.partition("\n")
    assert "GIL" in notice and "one thread" in notice, stderr
    return rest


# Programs


@on_both
def test_script_sees_what_plain_python_shows_it(python, tmp_path):
    program(tmp_path, WHO_AM_I)
    for arguments in (["app.py", "a", "-j", "7"], [tmp_path / "app.py"], ["./app.py", "--flag"]):
        plain = run(python, *arguments, cwd=tmp_path)
        ours = stm(python, "-j", "2", *arguments, cwd=tmp_path)
        assert ours.returncode == 0, ours.stderr
        assert ours.stdout == plain.stdout
    loop = without_notice(python, ours.stderr).strip()
    assert (loop == "TransactionalEventLoop") != has_gil(python)


@on_both
def test_script_in_another_folder_imports_its_neighbours(python, tmp_path):
    program(tmp_path, "value = 5\n", "apps/neighbour.py")
    program(tmp_path, "import neighbour, sys\nprint(neighbour.value, sys.path[0])\n", "apps/app.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "apps" / "app.py")
    for script in ("apps/app.py", "link.py"):
        plain = run(python, script, cwd=tmp_path)
        ours = stm(python, script, cwd=tmp_path)
        assert (ours.returncode, ours.stdout) == (0, plain.stdout), ours.stderr
        assert ours.stdout.startswith("5 ")


@on_both
def test_a_script_runs_where_the_current_folder_is_gone(python, tmp_path):
    program(tmp_path, WHO_AM_I, "app.py")
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["-m", "tornado.stm", str(tmp_path / "app.py")]
    done = subprocess.run([python, "-c", REMOVED, *command], cwd=gone, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and str(tmp_path / "app.py") in done.stdout, done.stderr


@on_both
def test_module_sees_what_plain_python_shows_it(python, tmp_path):
    program(tmp_path, "", "package/__init__.py")
    program(tmp_path, WHO_AM_I, "package/__main__.py")
    program(tmp_path, WHO_AM_I, "package/app.py")
    for name in ("package", "package.app"):
        plain = run(python, "-m", name, "a", "-x", cwd=tmp_path)
        ours = stm(python, "-j", "2", "-m", name, "a", "-x", cwd=tmp_path)
        assert (ours.returncode, ours.stdout) == (0, plain.stdout), ours.stderr


@on_both
def test_program_that_starts_the_ioloop_itself(python, tmp_path):
    result = stm(python, program(tmp_path, TORNADO_STYLE), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    seen, after = result.stdout.splitlines()
    assert seen.startswith("[0, 1, 2, 3, 4]") and after == "after"
    assert ("TransactionalEventLoop" in seen) != has_gil(python)
    assert without_notice(python, result.stderr) == ""


@on_both
def test_program_reads_its_standard_input(python, tmp_path):
    program(tmp_path, "import sys\nprint(sys.stdin.read().upper())\n")
    result = subprocess.run(
        [python, "-m", "tornado.stm", "app.py"], cwd=tmp_path, input="hello", capture_output=True, text=True, timeout=100
    )
    assert result.stdout == "HELLO\n"


# How programs end


@on_both
@pytest.mark.parametrize("end, status, said", [("3", 3, ""), ("", 0, ""), ("'words'", 1, "words\n")])
@pytest.mark.parametrize("where", ["outside", "inside"])
def test_exit_status_passes_through(python, tmp_path, end, status, said, where):
    text = f"import sys\nsys.exit({end})\n"
    if where == "inside":
        text = f"import asyncio, sys\nasync def main():\n    await asyncio.sleep(0)\n    sys.exit({end})\nasyncio.run(main())\n"
    result = stm(python, program(tmp_path, text), cwd=tmp_path)
    assert result.returncode == status, result
    assert without_notice(python, result.stderr) == said


@on_both
def test_exception_gives_the_usual_traceback(python, tmp_path):
    plain = run(python, program(tmp_path, FAILS), cwd=tmp_path)
    ours = stm(python, "app.py", cwd=tmp_path)
    assert ours.returncode == plain.returncode == 1
    lines = without_notice(python, ours.stderr).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "LookupError: not there"
    path = tmp_path / "app.py"
    at = [line.strip() for line in lines if str(path) in line]
    assert at == [f'File "{path}", line 8, in <module>', f'File "{path}", line 6, in main']
    assert sum("Error" in line for line in lines if not line.startswith(" ")) == 1


@on_both
def test_error_in_the_program_is_not_taken_for_bad_input(python, tmp_path):
    program(tmp_path, "import no_such_module_anywhere\n")
    for arguments in (["app.py"], ["-m", "app"]):
        result = stm(python, *arguments, cwd=tmp_path)
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    program(tmp_path, "open('nowhere/file')\n")
    result = stm(python, "app.py", cwd=tmp_path)
    assert result.returncode == 1 and "FileNotFoundError" in result.stderr.splitlines()[-1]


# Bad input


@on_both
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-j", "0", "app.py"], ["-j 0", "positive integer"]),
        (["-j", "x", "app.py"], ["-j x", "positive integer"]),
        (["-j", "-1", "app.py"], ["-j", "-1"]),
        (["-j", "1.5", "app.py"], ["-j 1.5", "positive integer"]),
        (["-j", "", "app.py"], ["-j", "positive integer"]),
        (["-j", "128", "app.py"], ["-j 128", "127 at most"]),
        (["-j", "10000", "app.py"], ["-j 10000", "127 at most"]),
        (["-j", "9" * 5000, "app.py"], ["-j 9", "127 at most"]),
        (["-j"], ["-j"]),
        (["missing.py"], ["missing.py", "no such script"]),
        (["folder"], ["folder", "__main__"]),
        (["-m", "missing_module"], ["missing_module", "no such module"]),
        (["-m", "missing_package.module"], ["missing_package.module", "no such module"]),
        (["-m", "..odd"], ["..odd", "no such module"]),
        (["-m"], ["which program"]),
        ([], ["which program"]),
        (["--wrong", "app.py"], ["--wrong"]),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_bad_input_is_one_line(python, tmp_path, arguments, words):
    program(tmp_path, WHO_AM_I)
    program(tmp_path, "", "package/__init__.py")
    (tmp_path / "folder").mkdir()
    result = stm(python, *arguments, cwd=tmp_path)
    assert is_bad_input(result, *words) and result.stdout == ""


@on_both
def test_a_version_that_cannot_be_written_is_one_line(python, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([python, "-m", "tornado.stm", "--version"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert is_bad_input(done, "standard output", "No space left")


@on_both
@pytest.mark.parametrize("name", ["asyncio.missing", "package", "package.missing", "package.module.missing"])
def test_module_that_its_package_has_not_is_one_line(python, tmp_path, name):
    program(tmp_path, "", "package/__init__.py")
    program(tmp_path, "", "package/module.py")
    result = stm(python, "-m", name, cwd=tmp_path)
    result.stderr = without_notice(python, result.stderr)
    assert is_bad_input(result, name, "no such module") and result.stdout == ""


@on_both
def test_archive_without_a_main_module_is_one_line(python, tmp_path):
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("other.py", "")
    result = stm(python, "app.zip", cwd=tmp_path)
    result.stderr = without_notice(python, result.stderr)
    assert is_bad_input(result, "app.zip", "__main__") and result.stdout == ""


@on_both
def test_port_in_use_is_one_line(python, tmp_path):
    program(tmp_path, SERVER)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = stm(python, "app.py", port, cwd=tmp_path)
        result.stderr = without_notice(python, result.stderr)
        assert is_bad_input(result, "app.py", "in use") and result.stdout == ""
        program(tmp_path, SERVER.partition("async def")[0] + f"""
import tornado.ioloop
tornado.web.Application([]).listen({port}, "127.0.0.1")
tornado.ioloop.IOLoop.current().start()
""")
        result = stm(python, "app.py", cwd=tmp_path)
        result.stderr = without_notice(python, result.stderr)
        assert is_bad_input(result, "app.py", "in use")


@on_both
def test_port_of_the_primes_server_in_use_is_one_line(python):
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        result = run(python, ROOT / "stm_bench" / "primes.py", "2", "--port", port, cwd=ROOT)
        result.stderr = without_notice(python, result.stderr)
        assert is_bad_input(result, str(port), "in use")
        result = stm(python, ROOT / "stm_bench" / "primes.py", "--upstream", "--port", port, cwd=ROOT)
        result.stderr = without_notice(python, result.stderr)
        assert is_bad_input(result, str(port), "in use")


# The conflict log


def analyse(log):
    return run(sys.executable, ROOT / "scripts" / "print_stm_log.py", log, cwd=ROOT)


@parallel_only
def test_conflict_log_names_the_users_code(tmp_path):
    log = tmp_path / "stm.log"
    result = stm(sys.executable, "-j", "2", program(tmp_path, COLLISIONS), cwd=tmp_path, PYPYSTM=str(log))
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr
    assert log.read_bytes()[:16] == b"STMGC-C7-PROF01\n"
    report = analyse(log)
    assert report.returncode == 0, report.stderr
    lines = [line.strip() for line in report.stdout.partition("STM_CONTENTION")[2].splitlines()]
    places = [i for i, line in enumerate(lines) if f'File "{tmp_path / "app.py"}", line ' in line and "in count" in line]
    assert places, report.stdout
    # Both sides of one conflict: a place, its source line, and the other place.
    assert any(i + 2 in places for i in places), report.stdout
    sources = {lines[i + 1] for i in places}
    assert sources <= {"def count():", 'n = shared["n"]', 'shared["n"] = n + 1', "for _ in range(20000):"}, sources
    assert sources & {'n = shared["n"]', 'shared["n"] = n + 1'}, sources


@on_both
def test_conflict_log_of_a_program_without_conflicts_can_be_read(python, tmp_path):
    log = tmp_path / "stm.log"
    result = stm(python, program(tmp_path, WHO_AM_I), cwd=tmp_path, PYPYSTM=str(log))
    assert result.returncode == 0, result.stderr
    assert log.read_bytes()[:16] == b"STMGC-C7-PROF01\n"
    report = analyse(log)
    if has_gil(python):
        assert is_bad_input(report, str(log), "no transaction")
    else:
        assert report.returncode == 0, report.stderr


QUEUE = CONFLICTS.partition("async def")[0] + """
from tornado.stm import transaction

while not shared["n"] or (transaction.getsegmentlimit() > 1 and not transaction.stats()["aborts"]):
    queue = transaction.TransactionQueue()
    for _ in range(50):
        queue.add(count)
    queue.run(2)
"""


@on_both
def test_conflict_log_of_a_program_without_a_loop(python, tmp_path):
    result = run(python, program(tmp_path, QUEUE), cwd=tmp_path, PYPYSTM="stm.log")
    assert result.returncode == 0, result.stderr
    report = analyse(tmp_path / "stm.log")
    if has_gil(python):
        assert len(result.stderr.splitlines()) == 1 and "nothing to log" in result.stderr
    else:
        assert result.stderr == "" and "in count" in report.stdout


@on_both
@pytest.mark.parametrize("path", ["nowhere/stm.log", "."])
def test_conflict_log_that_cannot_be_written_is_one_line(python, tmp_path, path):
    program(tmp_path, WHO_AM_I)
    result = stm(python, "app.py", cwd=tmp_path, PYPYSTM=path)
    result.stderr = without_notice(python, result.stderr)
    assert is_bad_input(result, path) and result.stdout == ""


@on_both
def test_conflict_log_that_cannot_be_written_with_run(python, tmp_path):
    text = "import asyncio, tornado.stm\ntornado.stm.run(asyncio.sleep(0), threads=2)\n"
    result = run(python, program(tmp_path, text), cwd=tmp_path, PYPYSTM="nowhere/stm.log")
    result.stderr = without_notice(python, result.stderr)
    assert is_bad_input(result, "nowhere/stm.log")


# The GIL


@on_both
def test_results_are_the_same_with_a_gil(python, tmp_path):
    result = stm(python, "-j", "4", program(tmp_path, CONFLICTS), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "200\n"), result.stderr
    assert without_notice(python, result.stderr) == ""


@parallel_only
def test_gil_switched_on_from_the_start(tmp_path):
    program(tmp_path, CONFLICTS)
    result = stm(sys.executable, "-j", "2", "app.py", cwd=tmp_path, PYTHON_GIL="1")
    assert (result.returncode, result.stdout) == (0, "200\n"), result.stderr
    (line,) = without_report(result.stderr).splitlines()
    assert "GIL" in line and "one thread" in line


EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, .m_name = "%(name)s", .m_size = -1 };
PyMODINIT_FUNC PyInit_%(name)s(void) { return PyModule_Create(&module); }
"""

IMPORTS_IT = """
import asyncio, sys
if sys.argv[1] == "before":
    import needs_the_gil

shared = {"n": 0}

def count():
    shared["n"] += 1

async def main():
    loop = asyncio.get_running_loop()
    for _ in range(100):
        loop.call_soon(count)
    await asyncio.sleep(0.01)
    if sys.argv[1] == "during":
        import needs_the_gil
    for _ in range(100):
        loop.call_soon(count)
    while shared["n"] < 200:
        await asyncio.sleep(0.01)
    print(shared["n"], sys._is_gil_enabled())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def needs_the_gil(tmp_path_factory):
    """A folder with an extension module that does not declare that it can do without the GIL."""
    folder = tmp_path_factory.mktemp("extension")
    compile_extension(folder, "needs_the_gil", EXTENSION % {"name": "needs_the_gil"})
    return folder


@parallel_only
@pytest.mark.parametrize("when", ["before", "during"])
def test_extension_that_switches_the_gil_on_is_named(needs_the_gil, when):
    program(needs_the_gil, IMPORTS_IT)
    result = stm(sys.executable, "-j", "2", "app.py", when, cwd=needs_the_gil)
    assert (result.returncode, result.stdout) == (0, "200 True\n"), result.stderr
    named = [line for line in result.stderr.splitlines() if line.startswith("tornado.stm: warning:")]
    assert len(named) == 1 and "needs_the_gil" in named[0], result.stderr


# SIGTERM


@on_both
@pytest.mark.parametrize("arguments", [["app.py"], ["-m", "app"]], ids=["script", "module"])
def test_sigterm_ends_an_unmodified_server_with_status_0(python, tmp_path, arguments):
    program(tmp_path, SERVER)
    server = subprocess.Popen(
        [python, "-m", "tornado.stm", *arguments, "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout.readline() == "listening\n"
        server.send_signal(signal.SIGTERM)
        _, stderr = server.communicate(timeout=100)
    finally:
        server.kill()
    assert server.returncode == 0, stderr
    assert without_notice(python, stderr) == ""


BLOCKED = """
import asyncio, atexit, queue, sys, threading

atexit.register(print, "at exit")
nothing = queue.SimpleQueue()

async def main():
    if sys.argv[1] == "thread":
        threading.Thread(target=nothing.get).start()
    else:
        asyncio.get_running_loop().run_in_executor(None, nothing.get)
        await asyncio.to_thread(int)
    print("listening", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def end(python, *arguments, cwd):
    """Run a program that prints "listening", send it SIGTERM; what else it prints, and its exit status."""
    server = subprocess.Popen(
        [python, "-m", "tornado.stm", "-j", "2", *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout.readline() == "listening\n"
        server.send_signal(signal.SIGTERM)
        stdout, stderr = server.communicate(timeout=40)
    finally:
        server.kill()
    return stdout, without_notice(python, stderr), server.returncode


@on_both
@pytest.mark.parametrize("kind", ["thread", "executor"])
def test_sigterm_ends_a_program_whose_threads_are_blocked(python, tmp_path, kind):
    program(tmp_path, BLOCKED)
    assert end(python, "app.py", kind, cwd=tmp_path) == ("at exit\n", "", 0)


TOLD_ON_A_THREAD = """
import asyncio, signal, threading, time

running = threading.Event()

def tell():
    running.wait()
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

async def main():
    running.set()
    await asyncio.Event().wait()

threading.Thread(target=tell).start()
asyncio.run(main())
"""


@on_both
def test_sigterm_ends_a_program_whose_main_thread_it_does_not_interrupt(python, tmp_path):
    """As one does that comes when the thread is about to wait for events; here another thread gets it."""
    program(tmp_path, TOLD_ON_A_THREAD)
    done = subprocess.run(
        [python, "-m", "tornado.stm", "-j", "2", "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=40
    )
    assert (done.returncode, without_notice(python, done.stderr)) == (0, "")


@on_both
def test_sigterm_waits_for_threads_that_end(python, tmp_path):
    text = """
import asyncio, signal, sys, threading

ends = threading.Event()

def work():
    ends.wait()
    print("thread is over", flush=True)

async def main():
    threading.Thread(target=work).start()
    print("listening", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        ends.set()

asyncio.run(main())
"""
    assert end(python, program(tmp_path, text), cwd=tmp_path) == ("thread is over\n", "", 0)


@on_both
@pytest.mark.parametrize("how", ["asyncio", "ioloop"])
def test_sigterm_ends_a_program_under_autoreload(python, tmp_path, how):
    text = SERVER
    if how == "ioloop":
        text = """
import tornado.ioloop

loop = tornado.ioloop.IOLoop.current()
loop.add_callback(print, "listening", flush=True)
loop.start()
"""
    program(tmp_path, text)
    stdout, stderr, status = end(python, "-m", "tornado.autoreload", "app.py", "0", cwd=tmp_path)
    assert (stdout, status) == ("", 0), stderr


@on_both
def test_autoreload_starts_a_program_again_that_failed_on_this_loop(python, tmp_path):
    text = "import asyncio\nprint(type(asyncio.new_event_loop()).__name__, flush=True)\n"
    program(tmp_path, text + "(")
    command = [python, "-m", "tornado.stm", "-m", "tornado.autoreload", "--until-success", "app.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            said = "".join(iter(process.stderr.readline, "SyntaxError: '(' was never closed\n"))
            program(tmp_path, text)
            # What it does not know yet when it first looks does not count as changed.
            for changed in range(1, 100):
                os.utime(tmp_path / "app.py", (changed, changed))
                if select.select([process.stdout], [], [], 1)[0]:
                    break
            loop = "SerialEventLoop" if has_gil(python) else "TransactionalEventLoop"
            assert process.stdout.read() == f"{loop}\n" and process.wait() == 0
        finally:
            process.kill()
    assert "RuntimeWarning" not in said


# While an extension is loaded the interpreter has its GIL on for a moment

LOADS = """
#include <Python.h>
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, .m_name = "does_without", .m_size = -1 };
PyMODINIT_FUNC PyInit_does_without(void)
{
    PyObject *m = PyModule_Create(&module);
    PyUnstable_Module_SetGIL(m, Py_MOD_GIL_NOT_USED);
    return PyImport_ImportModule("meanwhile") == NULL ? NULL : m;
}
"""

MEANWHILE = """
import asyncio, sys
from tornado.stm import core

async def name():
    return type(asyncio.get_running_loop()).__name__

assert sys._is_gil_enabled()
loop = asyncio.new_event_loop()
print(core.PARALLEL, core.gil_is_enabled(), loop.run_until_complete(name()))
loop.close()
"""


@parallel_only
@pytest.mark.parametrize("first", ["import tornado.stm; tornado.stm.install(2)", "pass"])
def test_while_an_extension_is_loaded_the_gil_is_not_switched_on(tmp_path, first):
    compile_extension(tmp_path, "does_without", LOADS)
    install = "" if "install" in first else "import tornado.stm; tornado.stm.install(2)\n"
    program(tmp_path, install + MEANWHILE, "meanwhile.py")
    result = run(sys.executable, "-c", f"{first}; import does_without", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (result.returncode, result.stdout, result.stderr) == (0, "True False TransactionalEventLoop\n", "")


# A loop where nothing else may run meanwhile

LOOPS_INSIDE = """
import asyncio
from tornado.stm import transaction

async def wait():
    await asyncio.sleep(0)

def run_a_loop(how):
    loop = asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    try:
        how(loop)
    except RuntimeError as e:
        print(type(e).__name__, e)
    finally:
        loop.close()

def run_both():
    run_a_loop(lambda loop: loop.run_forever())
    run_a_loop(lambda loop: loop.run_until_complete(loop.create_future()))

with transaction.atomic:
    run_both()
transaction.add(run_both)
transaction.run()

async def in_a_loop():
    run_both()

asyncio.run(in_a_loop())
asyncio.run(wait())
print("outside")
"""


@on_both
def test_a_loop_inside_a_transaction_is_refused(python, tmp_path):
    """It would wait for ever for what is around it."""
    result = stm(python, "-j", "2", program(tmp_path, LOOPS_INSIDE), cwd=tmp_path)
    refused = "TransactionError an event loop cannot run inside a transaction or an atomic block"
    running = "RuntimeError Cannot run the event loop while another loop is running"
    assert result.stdout.splitlines() == [refused] * 4 + [running] * 2 + ["outside"], result.stderr
    assert (result.returncode, without_notice(python, result.stderr)) == (0, "")
