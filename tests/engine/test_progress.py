"""No deadlock, no livelock, no starvation: every transaction commits, and what the engine decided on the way was just.

The judge is the record that the engine keeps of its decisions, see `progress`; no test looks at a clock.  Seeds are printed.
"""

import contextlib
import gc
import itertools
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from progress import FOR_ORDER, PATIENT, Latch, in_threads, recorded, run_transactions
from tornado.stm.core import trusted
from tornado.stm.transaction import TransactionQueue, atomic

activation.activate()

THREADS = [1, 2, 3, 8, 64]


@pytest.fixture
def seed(request):
    """Another one each time, printed if the test fails; STM_SEED=N repeats it."""
    seed = int(os.environ.get("STM_SEED", random.randrange(1 << 32)))
    print(f"STM_SEED={seed}")
    return seed


def rounds(quick, thorough):
    """The same test, quick and, behind the marker, long."""
    return pytest.mark.parametrize(
        "size", [pytest.param(quick, id="quick"), pytest.param(thorough, id="long", marks=[pytest.mark.long, pytest.mark.timeout(900)])]
    )


class Box:
    def __init__(self, value=0):
        self.value = value


# ---- Cycles of locks -----------------------------------------------------------------------------------------------


class Shared:
    """A few of each thing that can be locked, and a number in each place."""

    def __init__(self, places):
        self.boxes = [Box() for _ in range(places)]
        self.table = {i: 0 for i in range(places)}
        self.lists = [[0] for _ in range(places)]
        self.places = places

    def total(self):
        return sum(box.value for box in self.boxes) + sum(self.table.values()) + sum(item[0] for item in self.lists)


def step(shared, place, by):
    kind, index = divmod(place, shared.places)
    if kind == 0:
        shared.boxes[index].value += by
    elif kind == 1:
        shared.table[index] += by
    else:
        shared.lists[index][0] += by


def peek(shared, place):
    kind, index = divmod(place, shared.places)
    if kind == 0:
        return shared.boxes[index].value
    if kind == 1:
        return shared.table[index]
    return shared.lists[index][0]


def ring(shared, reads, writes):
    for place in reads:
        peek(shared, place)
    for place in writes:
        step(shared, place, 1)


@pytest.mark.parametrize("threads", THREADS)
@rounds(300, 20000)
def test_cycles_of_locks(threads, size, seed):
    rng = random.Random(seed)
    shared = Shared(3)
    places = range(9)
    written = 0
    transactions = []
    for _ in range(size):
        writes = rng.sample(places, rng.randint(1, 4))
        reads = rng.sample(places, rng.randint(0, 3))
        written += len(writes)
        transactions.append(core.Transaction(ring, (shared, reads, writes)))
    history = recorded(lambda: run_transactions(transactions, threads))
    assert shared.total() == written
    assert len(history.commits) == size
    history.check()


def everything(shared):
    for place in range(3 * shared.places):
        step(shared, place, 1)
        for _ in range(50):
            pass


def whole_look(shared):
    return sum(shared.table.values()) + len(shared.table) + sum(map(sum, shared.lists))


@pytest.mark.parametrize("threads", THREADS)
@rounds(200, 10000)
def test_long_and_short_ones(threads, size, seed):
    rng = random.Random(seed)
    shared = Shared(4)
    written = 0
    transactions = []
    for _ in range(size):
        kind = rng.choice("lwsssss")
        if kind == "l":
            transactions.append(core.Transaction(everything, (shared,)))
            written += 12
        elif kind == "w":
            transactions.append(core.Transaction(whole_look, (shared,)))
        else:
            transactions.append(core.Transaction(ring, (shared, [], [rng.randrange(12)])))
            written += 1
    history = recorded(lambda: run_transactions(transactions, threads))
    assert shared.total() == written
    history.check()


def increment(box):
    box.value += 1


@pytest.mark.parametrize("threads", THREADS)
@rounds(2000, 200000)
def test_one_counter(threads, size):
    box = Box()
    queue = TransactionQueue()
    transaction.set_threads(threads)
    for _ in range(size):
        queue.add(increment, box)
    try:
        history = recorded(queue.run)
    finally:
        transaction.set_threads(None)
    assert box.value == size
    history.check()
    # Every transaction wants the same cell.  Those that pass an older one are the few that it has patience with, those
    # that had the cell already, and one a thread that has not seen yet that somebody waits.
    worst = max(history.bypasses().values(), default=0)
    assert worst <= PATIENT + 2 * threads


def swap_reads(first, second):
    value = first.value
    second.value = value + 1


@pytest.mark.parametrize("threads", THREADS)
@rounds(300, 20000)
def test_readers_that_become_writers(threads, size):
    """Each reads what the other writes: upgrades, the classic deadlock of two-phase locking."""
    a, b = Box(), Box()
    transactions = [core.Transaction(swap_reads, (a, b) if i % 2 else (b, a)) for i in range(size)]
    history = recorded(lambda: run_transactions(transactions, threads))
    assert abs(a.value - b.value) == 1
    history.check()


def upgrade(box):
    if box.value >= 0:
        for _ in range(20):
            pass
        box.value += 1


@pytest.mark.parametrize("threads", THREADS)
@rounds(300, 20000)
def test_all_upgrade_the_same_cell(threads, size):
    box = Box()
    transactions = [core.Transaction(upgrade, (box,)) for _ in range(size)]
    history = recorded(lambda: run_transactions(transactions, threads))
    assert box.value == size
    history.check()


# ---- Inevitable ones in between ------------------------------------------------------------------------------------


def going_inevitable(shared, before, grade, between, upgrades, after):
    for place in before:
        step(shared, place, 1)
    if grade == 1:
        core.irrevocable("a test")
        for place in between:
            step(shared, place, 1)
        if upgrades:
            core.exclusive("a test, at last")
    elif grade == 2:
        core.exclusive("a test")
        for place in between:
            step(shared, place, 1)
    for place in after:
        step(shared, place, 1)


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("threads", THREADS)
@rounds(200, 10000)
def test_inevitable_ones_in_between(threads, share, size, seed):
    rng = random.Random(seed)
    shared = Shared(3)
    written = 0
    transactions = []
    for _ in range(size):
        grade = rng.choice((1, 2)) if rng.random() < share else 0
        parts = [rng.sample(range(9), rng.randint(0, 3)) for _ in range(3)]
        written += len(parts[0]) + len(parts[2]) + (len(parts[1]) if grade else 0)
        transactions.append(
            core.Transaction(going_inevitable, (shared, parts[0], grade, parts[1], rng.random() < 0.2, parts[2]))
        )
    history = recorded(lambda: run_transactions(transactions, threads))
    assert shared.total() == written
    history.check()


@pytest.mark.parametrize("threads", [2, 8, 64])
@rounds(200, 10000)
def test_injected_aborts_in_between(threads, size, seed):
    rng = random.Random(seed)
    shared = Shared(3)
    transactions = [
        core.Transaction(going_inevitable, (shared, rng.sample(range(9), 2), rng.choice((0, 0, 0, 1, 2)), (), False, [rng.randrange(9)]))
        for _ in range(size)
    ]
    core.inject_aborts(0.05, seed)
    try:
        history = recorded(lambda: run_transactions(transactions, threads))
    finally:
        core.inject_aborts(0, 0)
    assert shared.total() == 3 * size
    history.check()


def test_who_was_aborted_too_often_runs_alone():
    attempts = []

    @trusted
    def note():
        attempts.append(core.is_exclusive())
        return not core.is_exclusive()

    box = Box()

    def hopeless():
        if note():
            raise_abort()
        box.value += 1

    @trusted
    def raise_abort():
        raise core.Abort

    history = recorded(core.Transaction(hopeless, ()).run)
    assert attempts == [False] * 30 + [True] and box.value == 1
    history.check()


# ---- Executors and foreign threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 8])
@rounds(30, 1000)
def test_transactions_that_call_executors(threads, size):
    """The result of an executor is waited for exclusively; its functions look at nothing shared, or do so atomically."""
    boxes = [Box() for _ in range(3)]
    asked = []

    def work(n):
        return n * 2

    def ask(n):
        boxes[n % 3].value += 1
        asked.append(executor.submit(work, n).result())

    with ThreadPoolExecutor(3) as executor:
        transactions = []
        for n in range(size):
            transactions.append(core.Transaction(ask, (n,)))
            transactions.append(core.Transaction(increment, (boxes[n % 3],)))
        history = recorded(lambda: run_transactions(transactions, threads))
    assert sorted(asked) == [n * 2 for n in range(size)]
    assert sum(box.value for box in boxes) == 2 * size
    history.check()


@pytest.mark.parametrize("threads", [1, 2, 8])
@rounds(20, 500)
def test_executors_that_use_atomic(threads, size):
    shared = Shared(2)
    outcome = []

    def work(n):
        with atomic:
            before = shared.total()
            step(shared, n % 6, 1)
            outcome.append(shared.total() - before)

    def hand_over(n):
        step(shared, n % 6, 1)
        core.defer(executor.submit, work, n)

    with ThreadPoolExecutor(3) as executor:
        transactions = [core.Transaction(hand_over, (n,)) for n in range(size)]

        def run():
            run_transactions(transactions, threads)
            executor.shutdown()

        history = recorded(run)
    assert outcome == [1] * size and shared.total() == 2 * size
    history.check()


# ---- Order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", THREADS)
@rounds(200, 10000)
def test_chains_of_predecessors(threads, size, seed):
    """Several chains, whose transactions want the same cells and are inevitable now and then."""
    rng = random.Random(seed)
    shared = Shared(2)
    done = [[] for _ in range(5)]
    last = [None] * 5
    transactions = []

    def link(chain, n, places, grade):
        for place in places:
            step(shared, place, 1)
        if grade == 1:
            core.irrevocable("a test")
        elif grade == 2:
            core.exclusive("a test")
        done[chain].append(n)

    for n in range(size):
        chain = rng.randrange(5)
        t = core.Transaction(link, (chain, n, rng.sample(range(6), 3), rng.choice((0,) * 18 + (1, 2))), last[chain])
        last[chain] = t
        transactions.append(t)
    ages = {t.age: n for n, t in enumerate(transactions)}
    history = recorded(lambda: run_transactions(transactions, threads))
    assert all(numbers == sorted(numbers) for numbers in done)
    assert sorted(ages[e.age] for e in history.commits) == list(range(size))
    assert shared.total() == 3 * size
    history.check()


@pytest.mark.parametrize("threads", THREADS)
@rounds(200, 10000)
def test_keys_inserted_by_those_that_commit_at_once(threads, size):
    """They take their turn at the commit, by ticket."""
    tables = [{}, {}]

    def insert(n):
        tables[n % 2][n] = n
        tables[1 - n % 2][n] = n

    transactions = [core.Transaction(insert, (n,)) for n in range(size)]
    ages = {t.age: n for n, t in enumerate(transactions)}
    history = recorded(lambda: run_transactions(transactions, threads))
    in_order = [ages[e.age] for e in sorted(history.commits, key=lambda e: e.other)]
    assert list(tables[0]) == list(tables[1]) == in_order
    history.check()


# ---- Doom reaches it wherever it is --------------------------------------------------------------------------------------


class Victim:
    """A transaction that takes `box` and stays where it is until it is doomed; its later attempts end at once."""

    def __init__(self, place):
        self.place = place
        self.box = Box()
        self.attempts = 0
        self.holds = Latch()

    def run(self):
        self.box.value += 1
        if self.first_attempt():
            self.place(self)

    @trusted
    def first_attempt(self):
        self.attempts += 1
        self.holds.open()
        return self.attempts == 1

    def elder(self):
        self.holds.wait()
        self.box.value += 10


def in_a_loop_without_barriers(victim):
    while True:
        pass


def in_a_loop_with_barriers(victim):
    while True:
        victim.box.value


def in_arithmetic(victim):
    n = 0
    while True:
        n = (n + 1) % 1000


def in_c_calls(victim):
    while True:
        pow(3, 30000)


def in_a_long_c_call(victim):
    pow(3, 3000000)
    while True:
        pass


def in_finally(victim):
    try:
        victim.box.value += 1
    finally:
        while True:
            pass


def in_finally_after_its_abort(victim):
    while True:
        try:
            while True:
                pass
        finally:
            victim.box.value = 5


def in_a_handler_of_everything(victim):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def in_a_bare_handler(victim):
    while True:
        try:
            while True:
                victim.box.value += 1
        except:  # noqa: E722
            continue


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return True


def in_a_block_that_swallows(victim):
    while True:
        with Swallows():
            while True:
                pass


class LoopsInExit:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        while True:
            pass


def in_exit(victim):
    with LoopsInExit():
        pass


def in_suppress(victim):
    while True:
        with contextlib.suppress(BaseException):
            while True:
                pass


def numbers():
    while True:
        yield 1


def stubborn_numbers():
    while True:
        try:
            yield 1
        except BaseException:
            pass


def loops_inside():
    yield 1
    while True:
        pass


def in_generators(victim):
    for _ in numbers():
        pass


def in_a_stubborn_generator(victim):
    for _ in stubborn_numbers():
        pass


def inside_a_generator(victim):
    for _ in loops_inside():
        pass


def in_yield_from(victim):
    def outer():
        yield from loops_inside()

    list(outer())


def in_a_generator_that_c_code_advances(victim):
    sum(numbers())


def in_a_generator_closed(victim):
    def closes():
        try:
            yield 1
        finally:
            while True:
                pass

    generator = closes()
    next(generator)
    generator.close()


def endless_key(item):
    while True:
        pass


def in_a_twin(victim):
    sorted([3, 1, 2], key=endless_key)


def in_a_twin_again_and_again(victim):
    lock = threading.Lock()
    while True:
        with lock:
            pass


def in_trusted_code(victim):
    while True:
        core.in_transaction()


class Compared:
    def __lt__(self, other):
        while True:
            pass


def in_a_special_method(victim):
    return Compared() < Compared()


class Property:
    @property
    def endless(self):
        while True:
            pass


def in_a_property(victim):
    return Property().endless


def in_a_lambda_mapped(victim):
    return list(map(lambda n: endless_key(n), [1]))


def in_a_comprehension(victim):
    return [n for n in itertools.count() if n < 0]


async def coroutine():
    while True:
        pass


def in_a_coroutine(victim):
    coroutine().send(None)


async def stubborn_coroutine():
    while True:
        try:
            await coroutine()
        except BaseException:
            pass


def in_a_stubborn_coroutine(victim):
    stubborn_coroutine().send(None)


def in_recursion(victim):
    def down(n):
        if n:
            try:
                down(n - 1)
            finally:
                down(n - 1)

    down(60)


def in_context(victim):
    import contextvars

    contextvars.copy_context().run(in_a_loop_without_barriers, victim)


PLACES = [
    in_a_loop_without_barriers, in_a_loop_with_barriers, in_arithmetic, in_c_calls, in_a_long_c_call, in_finally,
    in_finally_after_its_abort, in_a_handler_of_everything, in_a_bare_handler, in_a_block_that_swallows, in_exit, in_suppress,
    in_generators, in_a_stubborn_generator, inside_a_generator, in_yield_from, in_a_generator_that_c_code_advances,
    in_a_generator_closed, in_a_twin, in_a_twin_again_and_again, in_trusted_code, in_a_special_method, in_a_property,
    in_a_lambda_mapped, in_a_comprehension, in_a_coroutine, in_a_stubborn_coroutine, in_recursion, in_context,
]


@pytest.mark.parametrize("place", PLACES)
def test_doom_reaches_it(place):
    victim = Victim(place)
    elder = core.Transaction(victim.elder, ())
    doomed = core.Transaction(victim.run, ())
    history = recorded(lambda: in_threads([doomed.run, elder.run]))
    assert victim.box.value == 11
    assert {e.age for e in history.aborts} == {doomed.age}
    history.check()


def test_doom_reaches_it_at_its_commit_behind_a_predecessor():
    for _ in range(50):  # the elder may act before the other one has come to its commit
        victim = Victim(lambda victim: None)
        elder = core.Transaction(victim.elder, ())
        doomed = core.Transaction(victim.run, (), elder)
        history = recorded(lambda: in_threads([doomed.run, elder.run]))
        assert victim.box.value == 11
        assert {e.age for e in history.aborts} == {doomed.age}
        history.check()
        if any(e.what == "wait" and e.detail == FOR_ORDER for e in history.events):
            return
    pytest.fail("it never waited for its predecessor")


@pytest.mark.parametrize("grade", [core.irrevocable, core.exclusive])
def test_doom_reaches_it_while_it_waits_for_the_token(grade):
    """An irrevocable one has the token and stays until the victim has been doomed and the elder has committed."""
    held, over = Latch(), Latch()

    def holder():
        core.irrevocable("a test")
        held.open()
        over.wait()

    def ask(victim):
        held.wait()
        grade("a test")

    victim = Victim(ask)

    def elder():
        victim.holds.wait()
        victim.box.value += 10
        core.defer(over.open)

    elder = core.Transaction(elder, ())
    transactions = [core.Transaction(holder, ()), elder, core.Transaction(victim.run, ())]
    history = recorded(lambda: in_threads([t.run for t in transactions]))
    assert victim.box.value == 11
    assert {e.age for e in history.aborts} == {transactions[2].age}
    history.check()


# ---- Memory and numbers of threads ---------------------------------------------------------------------------------------


@rounds(20000, 1000000)
def test_a_queue_that_is_never_long_needs_no_more_memory(size):
    """64 threads; each transaction adds its successor, and there are never more than 100."""
    boxes = [Box() for _ in range(100)]
    queue = TransactionQueue()
    transaction.set_threads(64)

    def successor(chain, left):
        boxes[chain].value += 1
        if left > 1:
            queue.add(successor, chain, left - 1)

    def run(rounds):
        for chain in range(100):
            queue.add(successor, chain, rounds)
        queue.run()
        gc.collect()
        return sys.getallocatedblocks()

    try:
        grown = -run(20) + run(size // 100)
    finally:
        transaction.set_threads(None)
    assert [box.value for box in boxes] == [20 + size // 100] * 100
    assert grown < 2000, f"{grown} more blocks of memory than before {size} transactions"


@rounds(30, 1000)
def test_other_numbers_of_threads_from_run_to_run(size, seed):
    rng = random.Random(seed)
    shared = Shared(3)
    written = 0
    queue = TransactionQueue()
    try:
        for _ in range(size):
            transaction.set_threads(rng.choice((1, 2, 3, 5, 16, 64, None)))
            for _ in range(rng.choice((0, 1, 2, 50))):
                queue.add(ring, shared, [], rng.sample(range(9), 2))
                written += 2
            history = recorded(lambda: queue.run(rng.choice((0, 0, 1, 7, 100))))
            assert shared.total() == written
            history.check()
    finally:
        transaction.set_threads(None)
