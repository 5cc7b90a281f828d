"""The conflict log of contended programs: its grammar, the places of its conflicts, and to whom lost time is charged.

What the analyser makes of a log is tested in test_print_stm_log.py.
"""

import bisect
import functools
import heapq
import importlib
import importlib.util
import io
import os
import pkgutil
import random
import re
import subprocess
import threading
import types
from collections import Counter

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

import conflict_log
import tornado.stm
from meeting import CONFLICT, Meeting
from progress import in_threads
from tornado.stm.core import trusted
from tornado.stm.transaction import Empty, TransactionQueue, atomic, queue, stmdict, stmset

activation.activate()
THREADS = 4
TRUSTED = 0x20000000  # flag of code that knows about transactions


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


@pytest.mark.long
@pytest.mark.timeout(900)
@kinds
def test_grammar_for_long(logged, many_threads, kind):
    for seed in range(20):
        core.inject_aborts(0.01 * (seed % 2), seed)
        try:
            logged(run_program, kind, seed, 5000)
        finally:
            core.inject_aborts(0, 0)


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

    met, runs = set(), 0
    while ("INEVITABLE", "read_write", "blocks") not in met:  # on a busy machine they may never meet in one run
        records = logged(in_threads, [functools.partial(blocks, n) for n in range(THREADS)])
        runs += 1
        assert world.box.value == runs * THREADS * 100
        met = {(kind, here, there.rpartition(".")[2]) for kind, here, there in conflict_log.places(records)}


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


# ---- Places ---------------------------------------------------------------------------------------------------------


def codes_of(module):
    """All code that the module has defined."""
    found, seen = [], set()

    def look(value):
        value = getattr(value, "__func__", value)
        value = getattr(value, "__wrapped__", value)  # what decorates it is not the project's
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, types.CodeType):
            found.append(value)
            for constant in value.co_consts:
                look(constant)
        elif isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            look(value.__code__)
        elif isinstance(value, property):
            for accessor in (value.fget, value.fset, value.fdel):
                look(accessor)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                look(member)

    for value in list(vars(module).values()):
        look(value)
    return found


def test_no_code_of_the_project_is_a_place():
    names = [info.name for info in pkgutil.walk_packages(tornado.stm.__path__, "tornado.stm.")]
    looked_at = 0
    for name in names:
        if name.endswith(("__main__", "_engine", "rebound")) or ".interpreter" in name:
            continue  # what looks for globals is no part of any transaction
        for code in codes_of(importlib.import_module(name)):
            looked_at += 1
            assert core.is_hidden(code) or code.co_flags & TRUSTED, code
    assert looked_at > 300


class Own(io.StringIO):
    """A file of one's own; its methods are Python."""

    lines = 0

    def write(self, text):
        self.lines += 1
        return len(text)


def write_key(table):
    table["key"] = 1


def read_all(table):
    return list(table.items())


def add_element(elements):
    elements.add("element")


def look_at_elements(elements):
    return len(elements)


def push(heap):
    heapq.heappush(heap, 1)


def pop(heap):
    return heapq.heappop(heap)


def insort(items):
    bisect.insort(items, 5)


def sort(items):
    items.sort(key=lambda item: -item)


def sum_up(items):
    return sum(items)


def largest(items):
    return max(items, key=lambda item: item)


def append(items):
    items.append(1)


def print_to(file):
    print("a line", file=file)


def cached(function):
    return function(1)


def put_item(items):
    items.put(1)


def take_item(items):
    try:
        return items.get(block=False)
    except Empty:
        return None


def wait_for_item(items):
    return items.get(block=False)


def read_file(file):
    return file.read(1)


def seek_file(file):
    file.seek(0)


def full_queue():
    made = queue()
    made.put(0)
    return made


MEETINGS = {
    "stmdict": (stmdict, write_key, read_all),
    "stmset": (stmset, add_element, look_at_elements),
    "heapq": (lambda: [1, 2, 3], push, pop),
    "bisect": (lambda: [1, 7], insort, append),
    "sort": (lambda: [1, 7], sort, append),
    "sum": (lambda: [1, 7], sum_up, append),
    "max": (lambda: [1, 7], largest, append),
    "print": (Own, print_to, print_to),
    "a queue with an item": (full_queue, take_item, take_item),
    "an empty queue": (queue, take_item, put_item),
    "a file": (lambda: open(__file__, "rb"), read_file, seek_file),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_both_sides_of_a_conflict_are_in_the_program(name, logged):
    make, first, second = MEETINGS[name]
    for action in (first, second):
        core.Transaction(action, (make(),)).run()
    found = set()
    for one, other in ((first, second), (second, first)):
        meeting = Meeting(lambda: (make(),), one, other)
        records = logged(meeting.run)
        assert meeting.results[0] == CONFLICT
        for kind, here, there in conflict_log.places(records):
            assert {here, there} <= {one.__name__, other.__name__, "Own.write"}, (here, there)
            found.add((here, there))
    assert found


def open_by_number(path):
    with open(os.dup(LOG.fileno()), "w"):
        pass


def write_and_rename(path):
    print("text", file=LOG)
    os.rename(path / "old", path / "new")


LOG = open(os.devnull, "w")


def read_a_pipe(path):
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as process:
        process.stdout.read()


def import_something(path):
    try:
        importlib.import_module(f"missing_{path.name}")
    except ImportError:
        pass


@pytest.mark.parametrize("action", [open_by_number, write_and_rename, read_a_pipe, import_something])
def test_what_runs_alone_is_located_in_the_program(action, tmp_path):
    (tmp_path / "old").write_text("text")
    before = Counter(core.stats()["exclusive_reasons"])
    core.Transaction(action, (tmp_path,)).run()
    reasons = Counter(core.stats()["exclusive_reasons"]) - before
    assert reasons
    for reason in reasons:
        place = re.search(r'File "(.+)", line \d+, in .+$', reason)
        assert place and not place[1].startswith(conflict_log.PROJECT), reason


def test_a_file_whose_name_is_no_text(tmp_path, logged):
    source = "def write(box):\n    box.value += 1\n"
    namespace = {}
    exec(compile(source, str(tmp_path / "caf\udce9.py"), "exec"), namespace)
    write = namespace["write"]
    core.Transaction(write, (Box(),)).run()
    core.log_open(str(tmp_path / "stm.log"))
    assert Meeting(lambda: (Box(),), write, write).run() == CONFLICT
    core.log_close()
    assert b'/caf\xe9.py", line 2, in write' in (tmp_path / "stm.log").read_bytes()


def test_what_is_going_to_be_called(logged):
    """Where none of the program's code runs yet, the place is that of what will run."""

    class Subject:
        def method(self):
            pass

    def generate():
        yield
        core.exclusive("a test")
        yield

    def blocks():
        for _ in range(20):
            with atomic:
                compute()

    def program():
        in_threads([blocks, run])

    def run():
        for _ in range(20):
            core.Transaction(Subject().method, ()).run()
            core.Transaction(functools.partial(Subject.method), (Subject(),)).run()
            transactions = TransactionQueue()
            transactions.add_generator(generate())
            transactions.run()

    core.inject_delays(0.05, 0.0001)
    found = set()
    try:
        while not {"Subject.method", "generate"} <= found:
            places = conflict_log.places(logged(program))
            found |= {here.rpartition("<locals>.")[2] for kind, here, there in places if there.endswith("blocks")}
    finally:
        core.inject_delays(0, 0)
    assert found <= {"Subject.method", "generate", "run"}, found


# ---- To whom time is charged -----------------------------------------------------------------------------------------

spec = importlib.util.spec_from_file_location(
    "print_stm_log", str(conflict_log.Path(__file__).resolve().parents[2] / "scripts" / "print_stm_log.py"))
analyser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(analyser)


def alone(world, rng):
    core.exclusive("a test")
    compute(3000)


def test_the_pauses_of_a_serialised_program_are_those_of_its_exclusive_line(logged, many_threads, tmp_path):
    """Each transaction runs alone, so all wait for one another: no pause is nobody's."""
    PROGRAMS["alone"] = [alone]

    def first_calls():
        return [reason for reason in core.stats()["exclusive_reasons"] if reason.startswith("first call")]

    while True:
        before = first_calls()
        records = logged(run_program, "alone", 1)
        if first_calls() == before and "INEVITABLE" in logged.counts:
            break
    assert "WAIT_SYNC_PAUSE" not in logged.counts
    accounts = analyser.analyse(str(tmp_path / "stm.log"))
    assert sum(c.paused for c in accounts.conflicts.values()) == accounts.paused > 0
    assert {kind for kind, here, there in conflict_log.places(records)} == {"INEVITABLE"}
    assert {there for kind, here, there in conflict_log.places(records)} == {"alone"}
    assert accounts.unexplained == 0


def test_all_aborts_have_a_conflict(logged, many_threads, tmp_path):
    for _ in range(3):
        run_program("everything", 0)  # what is called for the first time now is no conflict
    for seed in range(3):
        logged(run_program, "everything", seed)
        assert analyser.analyse(str(tmp_path / "stm.log")).unexplained == 0
