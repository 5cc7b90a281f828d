"""What ``python -m tornado.stm app.py`` shows is what ``python app.py`` shows, to the byte: output, tracebacks, exit status."""

import subprocess
import sys
import zipfile

import pytest

from interpreters import GIL, has_gil, needs_gil, on_each, without_report

MAIN = """
import json, sys

class Sorts:
    def of(name):
        value = globals().get(name, "none")
        return value if isinstance(value, (str, dict, type(None))) else getattr(value, "__name__", type(value).__name__)

import asyncio

async def main():
    await asyncio.sleep(0)

asyncio.run(main())
names = sorted(name for name in globals() if name.startswith("__") and not name.startswith("__conditional"))
print(sys.argv, sys.path, [(name, Sorts.of(name)) for name in names])
print(__loader__.__class__, getattr(__loader__, "name", None), getattr(__loader__, "path", None), __spec__ and __spec__.name)
print(sys.modules["__main__"].__dict__ is globals())
"""

RAISES = """
def inner():
    raise LookupError("not there")

def outer():
    try:
        inner()
    except LookupError as e:
        raise ValueError("worse") from e

try:
    outer()
except ValueError:
    1 / 0
"""

GROUP = """
def fail(n):
    try:
        {}[n]
    except KeyError as e:
        e.add_note("a note")
        return e

raise ExceptionGroup("several", [fail(1), ExceptionGroup("inner", [fail(2), OSError(3, "three")])])
"""

IN_A_LOOP = """
import asyncio

async def step(n):
    await asyncio.sleep(0)
    if n:
        await step(n - 1)
    raise LookupError("not there")

async def main():
    try:
        await asyncio.create_task(step(2))
    except LookupError as e:
        %s

asyncio.run(main())
"""

#: name: the text of app.py
PROGRAMS = {
    "attributes": MAIN,
    "syntax error": "def f(:\n    pass\n",
    "indentation error": "if 1:\nx\n",
    "encoding": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\nraise ValueError('\xe9')\n",
    "chained": RAISES,
    "group": GROUP,
    "module with a syntax error": "import broken\n",
    "module that raises": "import raises\n",
    "missing module": "import no_such_module_anywhere\n",
    "in a loop": IN_A_LOOP % 'raise ValueError("worse") from e',
    "in a task group": IN_A_LOOP % "async with asyncio.TaskGroup() as group:\n            group.create_task(step(0))",
    "in nested runs": "import asyncio\nasync def main():\n    asyncio.run(main)\nasyncio.run(main())\n",
    "exit with a number": "raise SystemExit(3)\n",
    "exit with words": "import sys\nsys.exit('words')\n",
    "exit with nothing": "raise SystemExit\n",
    "exit in a finally": "try:\n    1 / 0\nfinally:\n    raise SystemExit(4)\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "interrupt in a function": "def f():\n    raise KeyboardInterrupt('words')\ntry:\n    f()\nfinally:\n    print('finally')\n",
    "hook": "import sys, traceback\n"
    "def hook(kind, value, tb):\n"
    "    print(kind, value, len(traceback.extract_tb(tb)), value.__traceback__ is tb, sys.last_traceback is tb)\n"
    "sys.excepthook = hook\n" + RAISES,
    "at exit": "import atexit, sys\natexit.register(lambda: print(sys.last_traceback.tb_lineno, sys.last_value))\n1 / 0\n",
    "future": "from __future__ import annotations\ndef f(x: nonsense): pass\nprint(f.__annotations__)\n",
    "no future": "def f(x: nonsense): pass\nprint(f.__annotations__)\n",
    "pickle": "import pickle\nclass C: pass\nprint(type(pickle.loads(pickle.dumps(C()))) is C)\n",
}


def both(python, *arguments, cwd, given=b""):
    """[stdout, stderr, exit status] of the program by itself, and on our loop without the notice of a GIL."""
    processes = [
        subprocess.Popen(
            [python, *more, *arguments], cwd=cwd,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for more in ((), ("-m", "tornado.stm", "-j", "2"))
    ]  # fmt: skip
    plain, ours = ([*process.communicate(given, timeout=110), process.returncode] for process in processes)
    ours[1] = without_report(ours[1].decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if has_gil(python):
        notice, _, ours[1] = ours[1].partition(b"\n")
        assert b"one thread" in notice
    return plain, ours


def write(folder, text, name="app.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, "def f(:\n    pass\n", "broken.py")
    write(tmp_path, RAISES, "raises.py")
    return tmp_path


@pytest.mark.parametrize("python", [sys.executable, pytest.param(GIL, id="gil", marks=needs_gil)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_script(python, folder, name):
    write(folder, PROGRAMS[name])
    plain, ours = both(python, "app.py", "an argument", cwd=folder)
    assert ours == plain


@on_each
@pytest.mark.parametrize("kind", ["module", "package", "folder", "archive", "standard input", "compiled", "long path"])
def test_other_kinds_of_programs(python, folder, kind):
    text, given = MAIN + RAISES, b""
    if kind == "module":
        write(folder, "", "package/__init__.py")
        write(folder, text, "package/app.py")
        arguments = ["-m", "package.app"]
    elif kind == "package":
        write(folder, "import sys\nprint(sys.argv)\n", "package/__init__.py")
        write(folder, text, "package/__main__.py")
        arguments = ["-m", "package"]
    elif kind == "folder":
        write(folder, text, "app/__main__.py")
        arguments = ["app"]
    elif kind == "archive":
        with zipfile.ZipFile(folder / "app.zip", "w") as archive:
            archive.writestr("__main__.py", text)
        arguments = ["app.zip"]
    elif kind == "standard input":
        arguments, given = ["-"], text.encode()
    elif kind == "compiled":
        write(folder, text)
        make = "import py_compile; py_compile.compile('app.py', 'app.pyc', doraise=True)"
        subprocess.run([python, "-c", make], cwd=folder, check=True, timeout=50)
        arguments = ["app.pyc"]
    else:
        write(folder, text, "somewhere/else/app.py")
        arguments = ["./somewhere/../somewhere/else/app.py"]
    plain, ours = both(python, *arguments, "an argument", cwd=folder, given=given)
    assert ours == plain and plain[0] and b"ZeroDivisionError" in plain[1]


@on_each
def test_package_that_raises(python, folder):
    write(folder, RAISES, "package/__init__.py")
    write(folder, "", "package/app.py")
    plain, ours = both(python, "-m", "package.app", cwd=folder)
    assert ours == plain


@on_each
def test_package_sees_the_loop_that_the_program_gets(python, folder):
    """Its ``__init__`` belongs to the program."""
    write(folder, "import asyncio\nloop = asyncio.SelectorEventLoop\n", "package/__init__.py")
    write(folder, "import asyncio, package\nprint(package.loop is asyncio.SelectorEventLoop)\n", "package/app.py")
    _, (stdout, stderr, status) = both(python, "-m", "package.app", cwd=folder)
    assert (stdout, status) == (b"True\n", 0), stderr
