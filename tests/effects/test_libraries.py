"""What is known of the C code of other libraries: the files that come with the engine, and what programs declare."""

import subprocess
import sys
from pathlib import Path

import pytest

from interpreters import ROOT, without_report
from tornado.stm import core, effects
from tornado.stm.c_functions import libraries

FILES = sorted(Path(libraries.__file__).parent.glob("*.effects"))

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

#: a function of C code that the engine knows nothing about
UNKNOWN = "_sqlite3.complete_statement"
ASK = """
import _sqlite3
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
@trusted
def tell():
    core.defer(print, "alone" if core.is_exclusive() else "beside others")
def ask():
    _sqlite3.complete_statement("a")
    tell()
activation.activate()
core.Transaction(ask, ()).run()
"""


def run(*arguments, text=None):
    done = subprocess.run([sys.executable, *arguments], input=text, cwd=ROOT, capture_output=True, text=True, timeout=100)
    done.stderr = without_report(done.stderr)
    return done


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_means_something(file):
    found = libraries.parse(file.read_text(), file.name)
    assert found and all(declaration.releases or file.stem in sys.stdlib_module_names for declaration in found)
    assert {declaration.name.partition(".")[0] for declaration in found} == {file.stem}


@needs_engine
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_of_a_library_that_is_installed_is_about_something_there(file):
    found = libraries.parse(file.read_text(), file.name)
    if not (found[0].releases is None or libraries.is_installed(*found[0].releases)):
        pytest.skip("another release is installed, or none")
    names = sorted({declaration.name.rpartition(".")[0] for declaration in found if declaration.what == "hidden"})
    parts = [declaration.name.split(".") for declaration in found]
    modules = sorted({".".join(each[:i]) for each in parts for i in range(2, len(each))}, key=lambda name: (name.count("."), name))
    code = f"""
import contextlib, importlib
import {file.stem}
for name in {modules}:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
from tornado.stm import activation
activation.activate()
from tornado.stm.c_functions import libraries
print([each for each in libraries._waiting if each.name.startswith("{file.stem}.")])
"""
    done = run("-c", code)
    assert (done.stdout, names) == ("[]\n", names), done.stderr


@needs_threads
def test_what_is_not_declared_runs_alone_and_what_is_does_not(tmp_path):
    assert run("-c", ASK).stdout == "alone\n"
    early = f"from tornado.stm import effects\neffects.declare('{UNKNOWN}', 'PURE')\n"
    assert run("-c", early + ASK).stdout == "beside others\n"
    late = ASK.replace("activation.activate()\n", "activation.activate()\n" + early)
    assert run("-c", late).stdout == "beside others\n"
    later = ASK.replace("import _sqlite3\n", early).replace("def ask():\n", "def ask():\n    import _sqlite3\n") + "ask()\n"
    assert run("-c", later).stdout.splitlines()[-1] == "beside others"


CALLED_OBJECTS = """
import sys
from tornado.stm import activation, core, effects
from tornado.stm.core import trusted
@trusted
def is_alone():
    return core.is_exclusive()
def call(f, argument):
    return f(argument), is_alone()
activation.activate()
{make}
for declared in (), (double,):
    for f in declared:
        effects.declare(f, "PURE")
    print([core.Transaction(call, (f, 4)).run() for f in (double, other)])
"""


@needs_threads
def test_a_function_of_ctypes_is_declared_by_itself():
    make = "import ctypes\nc = ctypes.CDLL(None)\ndouble, other = c.abs, c.labs"
    done = run("-c", CALLED_OBJECTS.format(make=make))
    assert (done.stdout, done.stderr) == ("[(4, True), (4, True)]\n[(4, False), (4, True)]\n", "")


@needs_threads
def test_what_numba_has_compiled_is_declared_by_itself():
    pytest.importorskip("numba")
    make = "import numba\ndouble, other = (numba.njit(nogil=True)(lambda n, by=by: n * by) for by in (2, 3))\ndouble(1), other(1)"
    done = run("-c", CALLED_OBJECTS.format(make=make))
    assert (done.stdout, done.stderr) == ("[(8, True), (12, True)]\n[(8, False), (12, True)]\n", "")


@needs_threads
def test_instances_of_a_class_in_python_are_declared_by_it():
    code = CALLED_OBJECTS.format(make="import ctypes\nc = ctypes.CDLL(None)\ndouble, other = c.abs, c.labs")
    code = code.replace('effects.declare(f, "PURE")', 'effects.declare(type(f), instances="PURE")')
    assert run("-c", code).stdout.splitlines()[-1] == "[(4, False), (4, False)]"


SEEN_BEFORE = """
import bz2
from tornado.stm import activation, core, effects
from tornado.stm.core import trusted
@trusted
def is_alone():
    return core.is_exclusive()
def look(decompressor):
    return decompressor.eof, is_alone()
activation.activate()
objects = bz2.BZ2Decompressor(),
print(core.Transaction(look, objects).run())
effects.declare("_bz2.BZ2Decompressor", kind="INERT")
print(core.Transaction(look, objects).run())
"""


@needs_threads
def test_what_is_declared_of_a_type_counts_for_those_who_have_seen_it_before():
    done = run("-c", SEEN_BEFORE)
    assert (done.stdout, done.stderr) == ("(False, True)\n(False, False)\n", "")


IMPORTED_MEANWHILE = """
import sys
from tornado.stm import activation, effects
sys.path.append(sys.argv[1])
activation.activate()
for name in "second.one", "second.two", "second.three", "first.Class.method", "third.complete_statement":
    effects.declare(name, "PURE")
import first
""" + ASK.replace("_sqlite3", "third")


@needs_threads
def test_to_look_for_what_is_declared_may_import_something_that_is_declared_too(tmp_path):
    (tmp_path / "first.py").write_text("""
class Importing(type):
    def __getattr__(cls, name):
        import second
        raise AttributeError(name)
class Class(metaclass=Importing): pass
""")
    (tmp_path / "second.py").write_text("from _sqlite3 import adapt as one, register_adapter as two, register_converter as three")
    (tmp_path / "third.py").write_text("from _sqlite3 import complete_statement")
    done = run("-c", IMPORTED_MEANWHILE, str(tmp_path))
    assert (done.stdout, done.stderr) == ("beside others\n", "")


@needs_threads
def test_a_file_on_the_command_line(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"# what I have read\ncall {UNKNOWN} PURE  # it only looks at the text\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert done.stdout == "beside others\n", done.stderr


@needs_threads
def test_declarations_for_another_release_do_not_count(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"library tornado 1.0 2\ncall {UNKNOWN} PURE\nlibrary tornado 6 7\n")
    done = run("-m", "tornado.stm", "--explain", "--effects", str(file), str(app))
    assert done.stdout == "alone\n", done.stderr
    # Nor need anybody read the source to find out what is known of other releases.
    assert "this is known of tornado from 1.0 on, below 2; what is installed is 6." in done.stderr
    assert "EFFECT" not in done.stderr


@pytest.mark.parametrize("text, said", [
    ("call a.b", "more.effects:1: 'call a.b': it should be: call NAME EFFECT"),
    ("type a.b", "it should be: type NAME KIND"),
    ("instances a.b PURE more", "it should be: instances NAME EFFECT"),
    ("\ncalls a.b PURE", "more.effects:2:"),
    ("call nodots PURE", "'nodots' is no dotted name"),
    pytest.param("call a.b PURER", "there is no effect 'PURER'", marks=needs_engine),
    pytest.param("type a.b PURE", "there is no kind 'PURE'", marks=needs_engine),
    pytest.param("call a.b TWIN", "there is no effect 'TWIN'", marks=needs_engine),
    ("library x one two", "more.effects:1: 'library x one two': it should be: library DISTRIBUTION FROM BELOW, with releases like 1.4"),
    ("library x 1.4b1 2", "with releases like 1.4"),
    ("library x 1.4", "it should be: library DISTRIBUTION FROM BELOW"),
    (b"\xff\xfe", "more.effects: not a text file"),
])  # fmt: skip
def test_what_cannot_be_declared_is_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "more.effects"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError):
        effects.load(file)
    done = run("-m", "tornado.stm", "--effects", str(file), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


@needs_threads
@pytest.mark.parametrize("line, said", [
    ("type _sqlite3.adapt INERT", ["_sqlite3.adapt is no type"]), ("instances _sqlite3.adapt PURE", ["_sqlite3.adapt is no type"]),
    ("type _sqlite3.Nothing INERT", []),
])  # fmt: skip
def test_what_is_declared_of_another_sort_of_thing_does_not_count(tmp_path, line, said):
    """That is known only when the module is imported, which the program may do at any time."""
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text("from tornado.stm import activation\nactivation.activate()\n" + ASK)
    file.write_text(f"{line}\ncall {UNKNOWN} PURE\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert (done.returncode, done.stdout) == (0, "beside others\n")
    assert [words in told for words, told in zip(said, done.stderr.splitlines(), strict=True)] == [True] * len(said)


@needs_threads
def test_a_file_may_begin_with_a_mark_of_its_encoding(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"call {UNKNOWN} PURE\n", encoding="utf-8-sig")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert (done.stdout, done.stderr) == ("beside others\n", "")


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path):
    done = run("-m", "tornado.stm", "--effects", str(tmp_path / "none"), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "No such file" in done.stderr


def test_a_module_may_say_that_it_has_another_name(tmp_path):
    (tmp_path / "says_another.py").write_text("__name__ = 'another'\n")
    code = "from tornado.stm import activation; activation.activate(); import sys; sys.path.append(sys.argv[1]); import says_another"
    done = run("-c", code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_cannot_be_declared():
    with pytest.raises(ValueError):
        effects.declare("a.b")
    with pytest.raises(ValueError):
        effects.declare("nodots", "PURE")
    for is_no_code_in_c in run, 1:
        with pytest.raises(ValueError, match="only what C code does"):
            effects.declare(is_no_code_in_c, "PURE")
    with pytest.raises(ValueError, match="only a type"):
        effects.declare(abs, kind="INERT")


COMPILED_OR_NOT = """
import importlib, sys
import tornado.stm
tornado.stm.install(2)
module = importlib.import_module(sys.argv[1])
print(module.__file__ is not None and module.__file__.endswith(".py"))
"""


@needs_threads
@pytest.mark.parametrize("name", ["sqlalchemy.util._immutabledict_cy", "sqlalchemy.engine._row_cy"])
def test_what_has_a_twin_in_python_and_is_not_declared_runs_in_python(name):
    pytest.importorskip(name)
    done = run("-c", COMPILED_OR_NOT, name)
    assert (done.stdout, done.stderr) == ("True\n", "")


LITESTAR = """
import asyncio
from litestar import Litestar, get
from tornado.stm import core

@get("/{n:int}", media_type="text/plain")
async def ask(n: int) -> str:
    return "alone" if core.is_exclusive() else "beside others"

async def main(app=Litestar([ask], openapi_config=None)):
    scope = dict(type="http", method="GET", path="/1", raw_path=b"/1", root_path="", query_string=b"", headers=[], scheme="http",
                 server=("test", 80), client=("test", 1), http_version="1.1", asgi={"version": "3.0"})
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    print(sent[0]["status"], sent[1]["body"].decode())

asyncio.run(main())
"""


@needs_threads
def test_a_handler_of_litestar_does_not_run_alone_after_its_arguments_were_made(tmp_path):
    pytest.importorskip("litestar", reason="litestar is not installed")
    (tmp_path / "app.py").write_text(LITESTAR)
    done = run("-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py"))
    assert (done.returncode, done.stdout) == (0, "200 beside others\n"), done.stderr
