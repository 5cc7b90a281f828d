"""What `make lint`, `make format`, `make nightly` and `make sanitize` run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interpreters import ROOT


def run(folder, script, *arguments):
    """Run the script that was copied there; returns its status and all that it says."""
    done = subprocess.run([folder / "scripts" / script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


@pytest.fixture
def place(tmp_path):
    """A folder with the scripts, and with commands in .venv/bin that do nothing."""
    (tmp_path / "scripts").mkdir()
    for name in ("lint.sh", "nightly.sh", "sanitize.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for name in ("ruff", "mypy", "basedpyright", "git-clang-format", "python"):
        command(tmp_path / ".venv" / "bin" / name)
    (tmp_path / "tornado").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tornado" / "fine.c").write_text("int\nmain(void)\n{\n    return 0;\n}\n")
    return tmp_path


def command(path, text="exit 0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_lint_finds_nothing_where_nothing_is(place):
    assert run(place, "lint.sh") == (0, "")


@pytest.mark.parametrize("line, told", [
    ("\treturn 0;", "a tab"), ("return 0; ", "blanks at the end"), ("return 0;\r", "blanks at the end"),
    (f"return {'0' * 150};", "longer than 150 characters"),
])  # fmt: skip
def test_lint_finds_what_c_must_not_have(place, line, told):
    (place / "tornado" / "wrong.h").write_text(f"/* a line before */\n{line}\n")
    assert run(place, "lint.sh") == (1, f"tornado/wrong.h:2: {told}\n")


@pytest.mark.parametrize("tool", ["ruff", "mypy", "basedpyright"])
def test_lint_runs_all_and_has_the_status_of_each(place, tool):
    for name in ("ruff", "mypy", "basedpyright"):
        command(place / ".venv" / "bin" / name, f"echo {name}\nexit {int(name == tool)}")
    assert run(place, "lint.sh") == (1, "ruff\nmypy\nbasedpyright\n")


def test_lint_says_what_is_missing(place):
    os.remove(place / ".venv" / "bin" / "mypy")
    assert run(place, "lint.sh") == (2, "lint: there is no .venv/bin/mypy: run make setup\n")


def test_nightly_goes_on_after_a_failure_and_fails_in_the_end(place):
    command(place / "scripts" / "sanitize.sh", "echo a report; exit 3")
    status, told = run(place, "nightly.sh", "sanitize", "long")
    assert status == 1
    assert "sanitize: status 3" in told and "a report" in told and "long: right" in told
    assert told.endswith("nightly: failed: sanitize\n")


def test_nightly_is_right_where_all_is(place):
    status, told = run(place, "nightly.sh", "long", "fuzz")
    assert status == 0 and told.endswith("nightly: all right\n")
    assert run(place, "nightly.sh", "longer")[0] == 2


MAKES_AN_ENGINE = "mkdir -p build/sanitize/lib/tornado/stm; touch build/sanitize/lib/tornado/stm/_engine-3.so"


@pytest.mark.parametrize("setup, look, status, said", [
    (MAKES_AN_ENGINE, "exit 0", 0, "no report"),
    ("echo no source", "exit 0", 1, "no engine was compiled"),
    (MAKES_AN_ENGINE, "exit 1", 1, "the tests would not run on that engine"),
])  # fmt: skip
def test_sanitize_fails_where_the_tests_would_run_on_another_engine(place, setup, look, status, said):
    command(place / "tests" / "engine" / "build.sh", 'ln -sf /bin/true "$3"')
    command(place / ".venv" / "bin" / "python", f"case $1 in setup.py) {setup};; -c) {look};; esac")
    found, told = run(place, "sanitize.sh")
    assert (found, told.splitlines()[-1]) == (status, f"sanitize: {said}")


@pytest.mark.parametrize("status, expected", [(0, 0), (1, 0), (2, 1)])
def test_format_is_right_where_something_was_to_be_changed(place, status, expected):
    command(place / ".venv" / "bin" / "git-clang-format", f"exit {status}")
    assert run(place, "lint.sh", "format") == (expected, "")


def test_environments_are_not_looked_at(tmp_path):
    """Outside of a checkout nobody asks .gitignore."""
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is missing")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in (".venv", ".venv-27", ".venv-gil-3.13", ".venv-pypy", "pypystm-lib"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wrong.py").write_text("import os\n")
    assert subprocess.run([ruff, "check", "--no-cache", "--quiet"], cwd=tmp_path).returncode == 0
    (tmp_path / "wrong.py").write_text("import os\n")
    assert subprocess.run([ruff, "check", "--no-cache", "--quiet"], cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 1
