"""How the engine's evaluation loop is made: the table of barriers, and what cannot be built."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

from interpreters import ROOT, parallel_only
from tornado.stm import core
from tornado.stm.interpreter import build, generate, instructions, sources

LOOP = ROOT / "tornado" / "stm" / "interpreter"


def named(*tables):
    return [name for table in tables for names in table.values() for name in names.split()]


def test_a_table_that_names_each_instruction_once_is_right():
    instructions.check(named(instructions.BARRIERS, instructions.WITHOUT))


@pytest.mark.parametrize("known, message", [
    (lambda names: [*names, "NEW_ONE"], "no line says which barrier this instruction has: NEW_ONE"),
    (lambda names: [name for name in names if name != "CALL"], "this interpreter has no such instruction: CALL"),
])
def test_an_instruction_that_is_missing_or_unknown_ends_the_build(known, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        instructions.check(known(named(instructions.BARRIERS, instructions.WITHOUT)))


def test_an_instruction_named_twice_ends_the_build(monkeypatch):
    monkeypatch.setitem(instructions.WITHOUT, "because", "CALL")
    with pytest.raises(ValueError, match="more than one line is about this instruction: CALL$"):
        instructions.check(named(instructions.BARRIERS, instructions.WITHOUT))


def test_every_micro_op_is_used_and_every_one_used_is_there():
    used = {*instructions.BARRIERS, *instructions.BEHIND, *instructions.WITHIN}
    assert used == set(instructions.MICRO_OPS)


def test_what_micro_ops_call_is_declared():
    called = {match for line in instructions.MICRO_OPS.values() for text in line[1:] if text for match in re.findall(r"\b(\w+)\(", text)}
    declared = (LOOP / "loop.h").read_text() + "PyStackRef_AsPyObjectBorrow(GETLOCAL("
    assert [name for name in called if f"{name}(" not in declared] == []


def test_operands_have_names_that_no_other_micro_op_has():
    text = generate.micro_op("_STM_X", "owner, unused[oparg-1], site[oparg+2]", "LEFT({owner})", "act({owner}, site, NAME2)")
    assert text.splitlines()[0] == "op(_STM_X, (our_owner, unused[oparg-1], our_site[oparg+2] -- our_owner, unused[oparg-1], our_site[oparg+2])) {"
    assert "act(PyStackRef_AsPyObjectBorrow(our_owner), our_site, GETITEM(FRAME_CO_NAMES, oparg >> 1))" in text


def test_a_replacement_that_finds_no_place_ends_the_build():
    with pytest.raises(ValueError, match="Python/ceval has no "):
        sources.changed("Python/ceval", "int unrelated;")


def build_engine(output, **environment):
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", output]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment)


def source_of(folder, version):
    (folder / "Include").mkdir()
    (folder / "Include" / "patchlevel.h").write_text(f'#define PY_VERSION              "{version}"\n')
    return folder


@parallel_only
@pytest.mark.skipif((platform.machine(), sys.platform) != ("x86_64", "linux"), reason="there is a line for that first")
@pytest.mark.parametrize("version, message", [
    (None, "is not CPython's source: it has no Include/patchlevel.h"),
    ("3.13.1", f"is that of CPython 3.13.1, and this is {platform.python_version()}"),
])
def test_a_source_that_does_not_fit_is_one_line_and_status_2(tmp_path, version, message):
    source = tmp_path if version is None else source_of(tmp_path, version)
    done = build_engine(tmp_path / "output", STM_SOURCE=str(source))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"setup: {source} {message}\n"


@parallel_only
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_programs_that_a_guided_engine_is_compiled_for_run(threads):
    training = ROOT / "tornado" / "stm" / "interpreter" / "training.py"
    done = subprocess.run([sys.executable, training, core._engine.__file__, str(threads)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@parallel_only
def test_what_pgo_may_be_is_one_line_and_status_2(tmp_path):
    done = build_engine(tmp_path / "output", STM_SOURCE=str(source_of(tmp_path, platform.python_version())), PGO="yes")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "setup: PGO is 'yes': it can be 0 or 1\n")


def other_version_built(tmp_path, monkeypatch):
    """The flags with which an engine for 3.14.0 is built, guided, where this interpreter cannot run it."""
    built = []
    monkeypatch.setattr(build, "check", lambda source: "3.14.0")
    monkeypatch.setattr(build, "run", lambda command: pytest.fail(f"runs {command}"))
    monkeypatch.setattr(build, "build", lambda *args, everywhere, **options: built.append(list(everywhere)) or "made")
    assert build.build_guided(tmp_path, tmp_path) == "made"
    return built


def test_an_engine_for_another_version_is_not_trained_here(tmp_path, monkeypatch):
    assert other_version_built(tmp_path, monkeypatch) == [[]]


def test_an_engine_for_another_version_is_compiled_for_what_the_training_of_this_one_has_counted(tmp_path, monkeypatch):
    profile = tmp_path / "profile"
    own, other = (profile / "build" / "engine" / version / "objects" / "a.gcda" for version in (platform.python_version(), "3.14.0"))
    own.parent.mkdir(parents=True)
    own.write_bytes(b"counts")
    assert other_version_built(tmp_path, monkeypatch) == [[flag.format(profile=profile) for flag in build.GUIDED]]
    assert other.read_bytes() == own.read_bytes() == b"counts"


def test_the_version_that_can_be_trained_is_built_first(tmp_path):
    def source(name, version):
        (tmp_path / name / "Include").mkdir(parents=True)
        (tmp_path / name / "Include" / "patchlevel.h").write_text(f'#define PY_VERSION              "{version}"\n')
        return str(tmp_path / name)

    sources = [source("other", "3.14.0"), str(tmp_path / "none"), source("own", platform.python_version())]
    assert build.own_version_first(sources) == [sources[2], sources[0], sources[1]]


def test_another_machine_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(build.BuildError, match="the engine is for Linux on x86_64, and this is .* on riscv64"):
        build.check(tmp_path)


@parallel_only
def test_an_interpreter_without_an_engine_runs_one_thread_and_says_what_to_do(tmp_path):
    """As after an update of CPython to a micro version that no engine was built for."""
    package = tmp_path / "tornado"
    shutil.copytree(ROOT / "tornado", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "app.py").write_text(
        "import tornado; tornado.__path__.insert(0, %r)\n"
        "import asyncio, tornado.stm\n"
        "tornado.stm.run(asyncio.sleep(0, print('run')), threads=2)\n" % str(package))
    # Nor from elsewhere, as the sanitizers have it.
    environment = {name: value for name, value in os.environ.items() if name != "STM_ENGINE"}
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "run\n")
    assert done.stderr == (
        f"tornado.stm: there is no engine for CPython {platform.python_version()} (install tornado-stm from its source, with "
        "STM_SOURCE naming the folder of that CPython's): transactions run on one thread\n")


FOREIGN = """
#include <Python.h>

static long frames;

static PyObject *
evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    frames++;
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

static PyObject *
take(PyObject *self, PyObject *on)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), on == Py_True ? evaluate : _PyEval_EvalFrameDefault);
    return PyLong_FromLong(frames);
}

static PyMethodDef methods[] = {{"take", take, METH_O}, {0}};
static PyModuleDef_Slot slots[] = {{Py_mod_gil, Py_MOD_GIL_NOT_USED}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "foreign", .m_methods = methods, .m_slots = slots};
PyMODINIT_FUNC PyInit_foreign(void) { return PyModuleDef_Init(&module); }
"""

STEPS_BACK = """
import foreign
from tornado.stm import activation, core
activation.activate()
foreign.take(True)

def step():
    return core.is_exclusive()

print(core.Transaction(step, ()).run(), core.Transaction(step, ()).run(), foreign.take(False) >= 2, core.Transaction(step, ()).run())
"""


@parallel_only
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no C compiler")
def test_where_another_module_evaluates_frames_transactions_run_alone(tmp_path):
    (tmp_path / "foreign.c").write_text(FOREIGN)
    (tmp_path / "app.py").write_text(STEPS_BACK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-DPy_BUILD_CORE_MODULE=1", "-I", sysconfig.get_path("include"), "foreign.c",
                    "-o", "foreign" + sysconfig.get_config_var("EXT_SUFFIX")], cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True True True False\n"), done.stderr
    assert done.stderr == "tornado.stm: another module evaluates Python's frames (PEP 523): transactions run one at a time\n"


@parallel_only
def test_another_interpreter_is_made_in_a_transaction():
    """It has locks of its own there, whose methods are the same C code; and no transactions."""
    program = """
from concurrent import interpreters
from tornado.stm import activation, core
activation.activate()
def make():
    other = interpreters.create()
    other.exec("import json; print(json.dumps([1]))")
    other.close()
    return 2
print(core.Transaction(make, ()).run())
"""
    pytest.importorskip("concurrent.interpreters")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("[1]\n2\n", "")


@pytest.mark.parametrize("folder", ["plain", "with a blank"])
def test_what_is_right_is_not_compiled_again(tmp_path, folder):
    place = tmp_path / folder
    place.mkdir()
    source, header, target = place / "a.c", place / "a.h", place / "a.o"
    for file in source, header, target:
        file.touch()
    target.with_suffix(".command").write_text("gcc a.c")
    names = [str(name).replace(" ", "\\ ") for name in (target, source, header)]
    target.with_suffix(".d").write_text("{}: {} \\\n {}\n".format(*names))
    os.utime(target, (2e9, 2e9))
    assert build.is_right(target, ["gcc", "a.c"])
    assert not build.is_right(target, ["gcc", "-g", "a.c"])
    os.utime(header, (3e9, 3e9))
    assert not build.is_right(target, ["gcc", "a.c"])
    header.unlink()
    assert not build.is_right(target, ["gcc", "a.c"])
