"""The engine's algorithms without the interpreter: ``tests/engine/stress.c`` says what it checks.

Here without sanitizers, which ``make sanitize`` adds.
"""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tornado.stm import core

BUILD = Path(__file__).parent / "engine" / "build.sh"

if not core.PARALLEL:
    pytest.skip("the engine is absent", allow_module_level=True)
if not shutil.which("cc"):
    pytest.skip("there is no C compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "stress"
    subprocess.run([BUILD, sys.executable, path], check=True)
    return path


def run(program, seed, threads, transactions):
    done = subprocess.run([program, *map(str, (seed, threads, transactions))], capture_output=True, text=True)
    assert done.returncode == 0, f"stress {seed} {threads} {transactions}: {done.stderr or done.returncode}"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_random_transactions_are_serial(program, threads):
    run(program, random.randrange(1 << 32), threads, 3000)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16, 32, 60])
def test_many_random_transactions_are_serial(program, threads):
    for _ in range(4):
        run(program, random.randrange(1 << 32), threads, 100_000 // threads)
