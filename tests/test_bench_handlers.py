"""The benchmark of ordinary handlers.  No test looks at a speed."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("rich")

from stm_bench import handlers_load  # noqa: E402
from stm_bench.errors import WrongAnswer  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "stm_bench", "handlers", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=110
    )


def test_it_measures(tmp_path):
    file = tmp_path / "figures.json"
    done = run(
        "--only", "catalogue", "--milliseconds", "10", "--threads", "1,2", "--time", "1", "--repeats", "1",
        "--concurrency", "2", "--json", str(file),
    )  # fmt: skip
    assert (done.returncode, "catalogue, 10 ms" in done.stdout) == (0, True), done.stderr
    (row,) = json.loads(file.read_text())["sections"]["handlers"]
    assert all(row[key] > 0 for key in ("upstream", "threads1", "threads2", "cpu1", "cpu2", "two"))
    assert row["figure"] == row["threads2"] and {"target", "met", "range"} < row.keys()


def test_every_handler_is_asked_for_what_it_answers():
    found = handlers_load.handlers(handlers_load.NAMES, [3, 30])
    assert [handler.title for handler in found][-1] == "hello" and len(found) == 2 * len(handlers_load.NAMES) - 1
    assert all(handler.answer for handler in found) and len({handler.path for handler in found}) == len(found)


def test_a_wrong_answer_is_told():
    handler = handlers_load.Handler("hello", "/hello", "Hello", None)
    handlers_load.check([SimpleNamespace(name="right", ask=lambda path: "Hello")], handler)
    with pytest.raises(WrongAnswer, match="wrong"):
        handlers_load.check([SimpleNamespace(name="wrong", ask=lambda path: "Bye")], handler)


def test_bad_arguments_are_one_line():
    done = run("--only", "nonsense")
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
