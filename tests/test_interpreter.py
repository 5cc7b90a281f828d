"""How the engine's own evaluation loop is made: the table of barriers, and what cannot be built.  (`make loop` builds it.)"""

import platform
import re
import subprocess
import sys

import pytest

from interpreters import ROOT
from tornado.stm import core
from tornado.stm.interpreter import build, generate, instructions, sources

LOOP = ROOT / "tornado" / "stm" / "interpreter"

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="the loop is for an interpreter without a GIL")


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


def source_of(folder, version):
    (folder / "Include").mkdir()
    (folder / "Include" / "patchlevel.h").write_text(f'#define PY_VERSION              "{version}"\n')
    return folder


@needs_threads
@pytest.mark.skipif((platform.machine(), sys.platform) != ("x86_64", "linux"), reason="there is a line for that first")
@pytest.mark.parametrize("version, message", [
    (None, "is not CPython's source: it has no Include/patchlevel.h"),
    ("3.14.0rc1", f"is that of CPython 3.14.0rc1, and this is {platform.python_version()}"),
])
def test_a_source_that_does_not_fit_is_one_line_and_status_2(tmp_path, version, message):
    source = tmp_path if version is None else source_of(tmp_path, version)
    done = subprocess.run(
        [sys.executable, "-m", "tornado.stm.interpreter.build", source, tmp_path / "output"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tornado.stm: {source} {message}\n"


def test_another_machine_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(build.BuildError, match="the loop is for Linux on x86_64, and this is .* on riscv64"):
        build.check(tmp_path)


@needs_threads
def test_an_engine_without_a_loop_says_so():
    program = "from tornado.stm import core\nfrom tornado.stm import instrument\ncore.activate()\nprint(instrument.OWN_LOOP)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          env={"STM_OWN_LOOP": "1"}, check=True)
    from tornado.stm import _engine

    if hasattr(_engine, "use_loop"):
        assert (done.stdout, done.stderr) == ("True\n", "")
    else:
        assert done.stdout == "False\n"
        assert done.stderr == "tornado.stm: this engine was compiled without an evaluation loop: run make loop\n"
