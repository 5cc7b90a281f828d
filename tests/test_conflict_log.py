"""The conflict log of contended programs: its grammar, the places of its conflicts, and to whom lost time is charged.

What the analyser makes of a log is tested in test_print_stm_log.py.
"""

import collections
import functools
import gc
import os
import queue as queue_module
import random
import sys
import threading

import pytest

from tornado.stm import core, transaction

if not core.PARALLEL:
    pytest.skip("the engine is absent: there are no conflicts", allow_module_level=True)

import conflict_log
from meeting import CONFLICT, Meeting
from progress import in_threads
from tornado.stm.containers import stmdict, stmset
from tornado.stm.core import trusted
from tornado.stm.queues import Empty, queue
from tornado.stm.threadlocal import local, threadlocalproperty
from tornado.stm.transaction import TransactionQueue, atomic

core.activate()
THREADS = 4


@pytest.fixture
def logged(tmp_path):
    """Call this with a function: the records of the log of what it does."""

    def logged(program, *args, ended=True):
        path = tmp_path / "stm.log"
        core.log_open(str(path))
        try:
            program(*args)
        finally:
            core.log_close()
        records = conflict_log.read(path)
        logged.counts = conflict_log.check(records, ended)
        return records

    return logged


class Box:
    def __init__(self, value=0):
        self.value = value


# ---- Contended programs ---------------------------------------------------------------------------------------------


def compute(n=300):
    for _ in range(n):
        pass


def write_write(world, rng):
    world.box.value = rng
    compute()


def read_write(world, rng):
    value = world.box.value
    compute()
    world.box.value = value + 1


def only_read(world, rng):
    compute()
    return world.box.value, world.table.get(rng % 7), len(world.table)


def change_keys(world, rng):
    world.table[rng % 7] = rng
    world.table.pop((rng + 3) % 7, None)


def go_exclusive(world, rng):
    world.box.value += 1
    core.exclusive("a test")
    world.box.value += 1


def begin_to_compute_then_exclusive(world, rng):
    compute()
    core.exclusive("a test")


def go_irrevocable(world, rng):
    world.table[rng % 7] = 1
    core.irrevocable("a test")
    world.box.value += 1


def upgrade(world, rng):
    core.irrevocable("a test")
    compute()
    core.exclusive("a test, at last")


def put(world, rng):
    world.queue.put(rng)


def take(world, rng):
    try:
        world.queue.get(block=False)
    except Empty:
        pass


class Mortal:
    def __init__(self, world):
        self.world = world

    def __del__(self):
        self.world.box.value += 1


def let_die(world, rng):
    Mortal(world)
    world.mortals.append(Mortal(world))
    del world.mortals[:-2]


def fail(world, rng):
    world.box.value += 1
    raise ValueError(rng)


class World:
    def __init__(self):
        self.box = Box()
        self.table = {}
        self.queue = queue()
        self.mortals = []


PROGRAMS = {
    "write-write": [write_write],
    "write-read": [read_write, only_read, change_keys],
    "exclusive": [go_exclusive, read_write],
    "exclusive-at-once": [begin_to_compute_then_exclusive],
    "irrevocable": [go_irrevocable, read_write],
    "upgrade": [upgrade, go_irrevocable, go_exclusive],
    "queue": [put, take],
    "finalizers": [let_die, only_read],
    "everything": [write_write, read_write, only_read, change_keys, go_exclusive, go_irrevocable, upgrade, put, take, let_die],
}
kinds = pytest.mark.parametrize("kind", PROGRAMS)


def run_program(kind, seed, size=300):
    rng, world = random.Random(seed), World()
    transactions = TransactionQueue()
    for _ in range(size):
        transactions.add(rng.choice(PROGRAMS[kind]), world, rng.randrange(1000))
    transactions.run(nb_segments=THREADS)


@pytest.fixture
def many_threads():
    transaction.set_threads(THREADS)
    core.inject_delays(0.01, 0.00005)
    yield
    core.inject_delays(0, 0)
    transaction.set_threads(None)


@kinds
def test_grammar(logged, many_threads, kind):
    before = core.stats()
    logged(run_program, kind, 1)
    after = core.stats()
    # What drops old objects is told of, too, if it has waited.
    assert logged.counts["COMMIT"] >= after["commits"] - before["commits"] == 300
    assert logged.counts["ABORT"] == after["aborts"] - before["aborts"]


@kinds
def test_grammar_with_injected_aborts(logged, many_threads, kind):
    core.inject_aborts(0.05, 7)
    try:
        logged(run_program, kind, 2, 150)
    finally:
        core.inject_aborts(0, 0)
    assert logged.counts["ABORT"]


def test_grammar_with_exceptions(logged, many_threads):
    def program():
        for _ in range(30):
            transactions, world = TransactionQueue(), World()
            for i in range(8):
                transactions.add(fail if i == 5 else read_write, world, i)
            with pytest.raises(ValueError):
                transactions.run(nb_segments=THREADS)

    logged(program)


def test_grammar_with_atomic_blocks_beside(logged, many_threads):
    world = World()

    def blocks(_):
        for _ in range(50):
            with atomic:
                world.box.value += 1
            core.Transaction(read_write, (world, 1)).run()

    records = logged(in_threads, [functools.partial(blocks, n) for n in range(THREADS)])
    assert world.box.value == THREADS * 100
    assert ("INEVITABLE", "read_write", "blocks") in {
        (kind, here, there.rpartition(".")[2]) for kind, here, there in conflict_log.places(records)}


@pytest.mark.parametrize("others", [read_write, go_exclusive, go_irrevocable])
def test_grammar_with_overdue_ones(logged, many_threads, others):
    """A loop that ends only when the others have got by."""
    world = World()

    def never_ends_alone():
        world.box.value
        if core.is_exclusive():
            return
        while not over[0]:
            pass

    over = [False]

    @trusted
    def end():
        over[0] = True

    def other():
        others(world, 1)

    def program():
        loop = core.Transaction(never_ends_alone, ())
        waiting = [core.Transaction(other, ()) for _ in range(3)]

        def run_others():
            for each in waiting:
                each.run()
            end()

        in_threads([loop.run, run_others])

    core.set_allowance(0.02)
    try:
        logged(program)
    finally:
        core.set_allowance(3600)
    if logged.counts["ABORT"]:
        assert logged.counts["ABORTING_OTHER"]


def test_a_log_that_is_opened_and_closed_meanwhile(many_threads, tmp_path):
    """Each log obeys the grammar, though some of what it should tell has begun before, and it ends in between."""
    over = threading.Event()

    def write_logs():
        number = 0
        while not over.is_set():
            core.log_open(str(tmp_path / f"{number % 40}.log"))
            over.wait(0.002)
            number += 1
        core.log_close()

    writer = threading.Thread(target=write_logs)
    writer.start()
    try:
        for seed in range(3):
            run_program("everything", seed)
    finally:
        over.set()
        writer.join()
    logs = list(tmp_path.iterdir())
    assert logs
    for path in logs:
        conflict_log.check(conflict_log.read(path), ended=False, whole=False)
