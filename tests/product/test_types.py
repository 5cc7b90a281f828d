"""Types of what is public: two type checkers accept right uses, and refuse wrong ones.  (`make lint` has them check the package itself.)"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from interpreters import ROOT, not_sanitized

USES = ROOT / "tests" / "types" / "uses.py"

needs_checkers = pytest.mark.skipif(
    find_spec("mypy") is None or find_spec("basedpyright") is None, reason="the extra lint is not installed"
)


def mypy(*arguments):
    """What it finds: (file, line, text)."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--show-error-codes", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert bool(found) == bool(done.returncode), done.stdout
    return [(str(ROOT / file), int(line), text) for file, line, text in found]


def pyright(*arguments):
    """The same by pyright."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"], done.stdout
    return [
        (error["file"], error["range"]["start"]["line"] + 1, error["message"])
        for error in found["generalDiagnostics"] if error["severity"] == "error"
    ]  # fmt: skip


def pyright_of_installed(folder):
    """What pyright finds in the uses where both packages are installed: in one folder.  (It would not find ours in a folder of its own.)"""
    package = folder / "site" / "tornado"
    package.mkdir(parents=True)
    for part in Path(find_spec("tornado").origin).parent.iterdir():
        if part.name != "stm":
            (package / part.name).symlink_to(part)
    (package / "stm").symlink_to(ROOT / "tornado" / "stm")
    settings = {"include": [str(USES)], "extraPaths": [str(folder / "site")], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return pyright("-p", str(folder))


@needs_checkers
@not_sanitized
@pytest.mark.parametrize("find", [lambda _: mypy(str(USES)), pyright_of_installed], ids=["mypy", "pyright"])
def test_just_the_wrong_uses_are_errors(find, tmp_path):
    wrong = {number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# wrong")}
    found = {}
    for file, line, text in find(tmp_path):
        assert file == str(USES)
        found.setdefault(line, text)
    assert {line: text for line, text in found.items() if line not in wrong} == {}
    assert wrong - set(found) == set()


def test_the_marker_of_types_and_the_stub_are_installed(tmp_path):
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    package = tmp_path / "tornado" / "stm"
    assert (package / "py.typed").is_file() and (package / "core.pyi").is_file()


def test_the_stub_has_only_what_is_there():
    from tornado.stm import core

    stub = (ROOT / "tornado" / "stm" / "core.pyi").read_text()
    names = re.findall(r"^(?:def |class )?([A-Za-z]\w+)(?=[(:])", stub, re.MULTILINE)
    assert {"Transaction", "defer", "MOST_THREADS"} <= set(names)
    assert [name for name in names if not hasattr(core, name)] == []
