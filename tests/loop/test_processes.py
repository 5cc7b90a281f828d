"""Processes that multiprocessing starts run on the loop, as the one does that has started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interpreters import FREE_THREADED, ROOT, without_report

LOOP = "TransactionalEventLoop" if FREE_THREADED else "SerialEventLoop"
UPSTREAMS = "_UnixSelectorEventLoop"
THREADS = 3 if FREE_THREADED else 1

#: app.py WAY: prints what main() returns in a process of its own, its exit status, likewise in one of a pool, and how many all are
APP = """
import asyncio, concurrent.futures, multiprocessing, os, sys

{inside}

def in_queue(queue):
    queue.put((asyncio.run(main()), os.getpid()))

def in_pool():
    return asyncio.run(main()), os.getpid()

if __name__ == "__main__":
    {before}
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    process = context.Process(target=in_queue, args=(queue,))
    process.start()
    process.join()
    alone = queue.get() if process.exitcode == 0 else sys.exit(process.exitcode)
    with concurrent.futures.ProcessPoolExecutor(1, context) as executor:
        pooled = executor.submit(in_pool).result()
    print(*alone[0], process.exitcode, *pooled[0], len({{alone[1], pooled[1], os.getpid()}}))
"""

#: the class of the loop that runs, and how many threads it has
WHICH_LOOP = """
async def main():
    transaction = sys.modules.get("tornado.stm.transaction")
    return type(asyncio.get_running_loop()).__name__, transaction.getsegmentlimit() if transaction else 0
"""

#: whether a function in C that nobody knows has run alone
WHAT_RAN_ALONE = """
import syslog
from tornado.stm import transaction

async def main():
    await asyncio.gather(*[asyncio.create_task(call(syslog.LOG_MASK)) for _ in range(20)])
    return [any("LOG_MASK" in reason for reason in transaction.stats()["exclusive_reasons"])]

async def call(function):
    function(1)
"""

pytestmark = pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])


@pytest.fixture
def run(tmp_path, way):
    def run(*options, inside=WHICH_LOOP, before="pass", environment=None):
        app = tmp_path / "app.py"
        app.write_text(APP.format(inside=inside, before=before))
        return subprocess.run(
            [sys.executable, *options, str(app), way], cwd=ROOT, capture_output=True, text=True, timeout=100,
            env=os.environ | (environment or {}),
        )  # fmt: skip

    return run


def told(loop=LOOP, threads=THREADS):
    return f"{loop} {threads} 0 {loop} {threads} 3\n"


def test_as_the_command_says(run):
    done = run("-m", "tornado.stm", "-j", "3")
    assert done.stdout == told(), done.stderr
    assert len(without_report(done.stderr).splitlines()) == (0 if FREE_THREADED else 1), done.stderr


def test_as_the_program_says(run):
    done = run(before="import tornado.stm; tornado.stm.install(3)")
    assert done.stdout == told(), done.stderr


def test_what_the_program_says_besides_counts_too(run, tmp_path):
    """Its own `install` takes nothing of the command's options but the threads."""
    file = tmp_path / "some.effects"
    file.write_text("call syslog.LOG_MASK PURE\n")
    done = run(
        "-m", "tornado.stm", "-j", "3", "--effects", str(file), inside=WHAT_RAN_ALONE, before="import tornado.stm; tornado.stm.install(2)",
        environment={"TORNADO_STM_SEQUENTIAL": "0"},
    )  # fmt: skip
    assert done.stdout == "False 0 False 3\n" or not FREE_THREADED, done.stderr


#: classes that the module derives at its top are ours
DERIVED = """
class Own(asyncio.Future):
    pass

async def main():
    return [Own.__base__.__module__]
"""


@pytest.mark.skipif(not FREE_THREADED, reason="they are asyncio's there")
def test_the_program_is_imported_when_it_has_begun(run):
    done = run("-m", "tornado.stm", "-j", "3", inside=DERIVED)
    assert len(set(done.stdout.split()) - {"0", "3"}) == 1 and "_asyncio" not in done.stdout, done.stdout + done.stderr


#: of a process that makes no loop
WITHOUT_ASYNCIO = """
import concurrent.futures, multiprocessing, sys

def loaded():
    return sorted({"asyncio", "tornado.stm.loop"} & sys.modules.keys())

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(sys.argv[1])) as executor:
        print(executor.submit(loaded).result())
"""


def test_who_only_computes_loads_nothing(tmp_path, way):
    app = tmp_path / "app.py"
    app.write_text(WITHOUT_ASYNCIO)
    command = [sys.executable, "-m", "tornado.stm", "-j", "3", str(app), way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert way == "fork" or done.stdout == "[]\n", done.stderr


def test_where_it_has_been_imported_before(run):
    done = run(before="import multiprocessing.spawn, tornado.stm; tornado.stm.install(3)")
    assert done.stdout == told(), done.stderr


def test_without_it_they_are_as_ever(run):
    assert run().stdout == told(UPSTREAMS, 0)


def test_another_interpreter_is_told_nothing(run, way, tmp_path):
    """It is not this one by name, so perhaps it lacks tornado.stm: this one does."""
    other = tmp_path / "python"
    other.symlink_to(Path(sys.executable).resolve())
    done = run("-m", "tornado.stm", "-j", "3", before=f"multiprocessing.set_executable({str(other)!r})")
    assert done.stdout == (told() if way == "fork" else told(UPSTREAMS, 0)), done.stderr


@pytest.mark.skipif(not FREE_THREADED, reason="all runs alone")
@pytest.mark.parametrize("declared", [False, True])
def test_effects_are_known(run, tmp_path, declared):
    file = tmp_path / "some.effects"
    file.write_text("call syslog.LOG_MASK PURE\n" if declared else "# nothing\n")
    done = run(
        "-m", "tornado.stm", "-j", "3", "--effects", str(file), inside=WHAT_RAN_ALONE, environment={"TORNADO_STM_SEQUENTIAL": "0"}
    )
    assert done.stdout == f"{not declared} 0 {not declared} 3\n", done.stderr


def test_logs_stand_beside_each_other(run, tmp_path):
    log = tmp_path / "stm.log"
    done = run("-m", "tornado.stm", "-j", "3", "--log", str(log))
    assert done.stdout == told(), done.stderr
    if FREE_THREADED:
        others = [path.name for path in tmp_path.iterdir() if path.name.startswith("stm.log.fork")]
        assert log.exists() and len(others) == 2, others


def test_what_ran_alone_is_explained_where_something_ran(run, way):
    """The first process runs no transaction; one that is forked from it has not begun by itself, and says nothing at its exit."""
    done = run("-m", "tornado.stm", "-j", "3", "--explain")
    assert done.stdout == told(), done.stderr
    if FREE_THREADED:
        first_lines = [line for line in done.stderr.splitlines() if " transactions on " in line]
        assert [line.startswith("tornado.stm: 0 ") for line in first_lines].count(True) == 1, done.stderr
        assert len(first_lines) == (1 if way == "fork" else 3), done.stderr
