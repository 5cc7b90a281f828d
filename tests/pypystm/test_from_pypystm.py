"""Programs written for PyPy-STM's module run here once they are Python 3 and the import is changed."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interpreters import FREE_THREADED, GIL, ROOT
from stm_bench.from_pypystm import pipeline, words

#: PyPy-STM's names: of the module, and of its objects that the programs use
NAMES = {
    "Empty", "TransactionError", "TransactionQueue", "add", "atomic", "clock", "count", "exclusive_atomic",
    "getsegmentlimit", "hashtable", "hint_commit_soon", "is_atomic", "local", "queue", "run", "signals_enabled",
    "stmdict", "stmiddict", "stmidset", "stmset", "threadlocalproperty", "time",
}  # fmt: skip
METHODS = {"add", "add_generator", "get", "join", "put", "run", "setdefault", "task_done"}


@pytest.fixture(
    params=[
        pytest.param((sys.executable, {}), id="this"),
        pytest.param((sys.executable, {"PYTHON_GIL": "1"}), id="switched-on", marks=pytest.mark.skipif(
            not FREE_THREADED, reason="this interpreter has no switch")),
        pytest.param((GIL, {}), id="gil", marks=pytest.mark.skipif(
            not (FREE_THREADED and GIL), reason="no other interpreter")),
    ]
)  # fmt: skip
def output_of(request):
    """Runs one of the programs and returns what it prints."""
    python, environment = request.param

    def output(program, *arguments):
        finished = subprocess.run(
            [python, "-m", f"stm_bench.from_pypystm.{program}", *map(str, arguments)],
            capture_output=True, text=True, timeout=100, cwd=ROOT, env={**os.environ, **environment},
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    return output


def test_a_loop_over_a_dict(output_of, monkeypatch, capsys):
    class Loop:
        """A plain loop in the place of the queue of transactions."""

        def __init__(self):
            self.calls = []

        def add(self, f, *args):
            self.calls.append((f, args))

        def run(self):
            for f, args in self.calls:
                f(*args)

    monkeypatch.setattr(words.transaction, "TransactionQueue", Loop)
    words.main(200)
    expected = capsys.readouterr().out
    assert expected.startswith("14900 words in 200 texts\nread     in 200, the first of them text 0\n")
    assert output_of("words", 200) == expected


@pytest.mark.parametrize("threads", [1, 4])
def test_producers_and_consumers(output_of, threads):
    assert output_of("pipeline", 995, threads) == "995 numbers, 995 different\nthe longest sequence: 179 numbers from 871\n"


@pytest.mark.parametrize("program", [words, pipeline])
def test_they_use_nothing_but_the_api_of_pypystm(program):
    source = Path(program.__file__).read_text()
    tree = ast.parse(source)
    imports = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert imports.count("from tornado.stm import transaction") == 1
    assert set(imports) <= {"import sys", "import threading", "from tornado.stm import transaction"}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "transaction"
    }
    assert used and used <= NAMES
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name) and node.func.value.id in ("queue", "producers", "numbers", "lengths")
    }
    assert called and called <= METHODS
