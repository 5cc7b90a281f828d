"""The engine's algorithms without the interpreter: ``tests/engine/stress.c`` and ``queues.c`` say what they check.

Here without sanitizers, which ``make sanitize`` adds.
"""

import graphlib
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tornado.stm
from interpreters import needs_engine

BUILD = Path(__file__).parent / "build.sh"
ENGINE = Path(tornado.stm.__file__).parent / "engine"

needs_engine()
if not shutil.which("cc"):
    pytest.skip("there is no C compiler", allow_module_level=True)


def included(file):
    """The engine's own headers that a file includes, wherever they lie."""
    names = re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE)
    folders = [file.parent, ENGINE, ENGINE.parent / "interpreter"]
    found = [(folder / name).resolve() for name in names for folder in folders if (folder / name).exists()]
    return {path for path in found if path.is_relative_to(ENGINE.parent.resolve())}


def test_the_core_knows_nothing_of_what_is_built_on_it():
    for file in (ENGINE / "core").iterdir():
        assert {path.parent.name for path in included(file)} <= {"core"}, file.name


def test_headers_include_each_other_in_no_circle():
    headers = [path.resolve() for path in ENGINE.parent.rglob("*.h")]
    tuple(graphlib.TopologicalSorter({header: included(header) for header in headers}).static_order())


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build("stress", tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def queues(tmp_path_factory):
    return build("queues", tmp_path_factory.mktemp("engine"))


def build(name, directory, **environment):
    subprocess.run([BUILD, name, sys.executable, directory / name], check=True, env=os.environ | environment)
    return directory / name


def run(program, seed, threads, transactions):
    done = subprocess.run([program, *map(str, (seed, threads, transactions))], capture_output=True, text=True)
    assert done.returncode == 0, f"{program.name} {seed} {threads} {transactions}: {done.stderr or done.returncode}"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_random_transactions_are_serial(program, threads):
    run(program, random.randrange(1 << 32), threads, 3000)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16, 32, 60])
def test_many_random_transactions_are_serial(program, threads):
    for _ in range(4):
        run(program, random.randrange(1 << 32), threads, 100_000 // threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_added_to_queues_runs_once(queues, threads):
    run(queues, random.randrange(1 << 32), threads, 1600)


#: what it breaks: (file, text, what takes its place); each of them makes the engine unsound
BUGS = {
    "a reader does not look for owners": ("core/orec.c", "int other = owner_before_reader(c, tx->slot);", "int other = 0;"),
    "a writer does not look for readers": ("core/orec.c", "            if (!find_marker(tx, &x)) {", "            if (true) {"),
    "marks are compared with the wrong epoch": ("core/orec.c", "if (m >> 18 == epoch && (tag", "if (m >> 18 == epoch - 1 && (tag"),
    "the mark that stands for any does not": ("core/orec.c", "|| tag == MARK_ANY_TAG)", ")"),
    "a writer looks for marks in another bucket": ("core/orec.c", "b = marks_at(o, c, large);", "b = marks_at(o, c >> 1, large);"),
    "a writer does not look for marks that have spilled": ("core/orec.c", "marks_at(o, c, large);", "marks_at(o, c, false);"),
    "marks that spill are not announced": ("core/orec.c", "atomic_store_explicit(&tx->locks.spilled, epoch", "(void)(&tx->locks.spilled, epoch"),
    "a reader does not look for owners that have spilled": (
        "core/orec.c", "if (w == 0 || mark_tag_of(w) != mark_tag(c))", "if (w == 0 || large || mark_tag_of(w) != mark_tag(c))",
    ),
    "locks are released before the commit": ("core/transaction.c", "take_ticket(tx);", "locks_release(tx); take_ticket(tx);"),
    "locks are released before the rollback": ("core/transaction.c", "undo_rollback(tx);", "locks_release(tx); undo_rollback(tx);"),
    "the undo log is applied forwards": (
        "core/undo.c", "Py_ssize_t i = tx->undo.n; --i >= 0;", "Py_ssize_t i = 0; i < tx->undo.n; i++",
    ),
    "an undo entry is lost": ("core/undo.c", "u->kind->undo(tx, u) < 0", "i != 2 && u->kind->undo(tx, u) < 0"),
    "an exclusive transaction does not wait": ("core/contention.c", "await_others(tx, others_over, ANY_AGE, since);", "(void)since;"),
    "a transaction begins beside an exclusive one": (
        "core/contention.c", "|| LIKELY(atomic_load(&stm_exclusive_slot) == 0))", "|| true)",
    ),
    "a commit does not wait for its predecessor": (
        "core/contention.c", "if (p == NULL || atomic_load(&p->done))", "if (true)",
    ),
    "keys are not in the order of commits": ("objects/order.c", "if (order_of(tx)->unordered == 0)", "if (true)"),
    "a ticket is drawn unseen": ("core/contention.c", "atomic_store(&tx->ticket, CHOOSING);", ""),
}

#: the same, for queues
QUEUE_BUGS = {
    "what an aborted attempt has added stays": (
        "core/transaction.c", "tx->added.first = tx->added.last = NULL;\n    release(tx, AFTER_ABORT, added);",
        "(void)added;\n    release(tx, AFTER_ABORT, NULL);",
    ),
    "an empty queue remembers its last transaction": ("core/queue.c", "q->last = before;", ";"),
    "what is dropped is not let go": ("core/queue.c", "release_dropped(tx, t);", "release_dropped(tx, NULL);"),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [*BUGS, *QUEUE_BUGS])
def test_the_programs_find_a_bug(bug, tmp_path):
    """They fail on an engine that is broken on purpose."""
    name, text, instead = (BUGS | QUEUE_BUGS)[bug]
    engine = tmp_path / "engine"
    shutil.copytree(ENGINE, engine)
    shutil.copytree(ENGINE.parent / "interpreter", tmp_path / "interpreter")  # whose headers it includes
    source = (engine / name).read_text()
    assert source.count(text) >= 1
    (engine / name).write_text(source.replace(text, instead))
    program = build("queues" if bug in QUEUE_BUGS else "stress", tmp_path, ENGINE=str(engine))
    for seed in range(20):
        done = subprocess.run([program, str(seed), "4", "5000"], capture_output=True, timeout=300)
        if done.returncode:
            return
    pytest.fail("it finds nothing")
