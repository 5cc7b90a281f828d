"""The `transaction` module: queues, exceptions, order, atomic blocks, with the meaning that they have in PyPy-STM."""

import gc
import os
import threading
import time
import weakref

import pytest

from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
from tornado.stm.transaction import TransactionError, TransactionQueue, atomic

activation.activate()

TIMEOUT = 60


@pytest.fixture(params=[1, 2, 4], autouse=True)
def threads(request):
    transaction.set_threads(request.param)
    yield request.param
    transaction.set_threads(None)


@pytest.fixture
def rush():
    """Threads come in between everywhere, and attempts are rolled back."""
    core.inject_delays(0.05, 0.0001)
    core.inject_aborts(0.02, 5)
    yield
    core.inject_delays(0, 0)
    core.inject_aborts(0, 0)


def count_in(table, key):
    table[key] = table.get(key, 0) + 1


def test_everything_runs_once():
    done = {}
    queue = TransactionQueue()
    for i in range(100):
        queue.add(count_in, done, i)
    assert done == {}
    queue.run()
    assert done == {i: 1 for i in range(100)}


def test_arguments():
    seen = []
    queue = TransactionQueue()
    queue.add(lambda *args, **kwds: seen.append((args, kwds)), 1, 2, a=3, b=4)
    queue.add(lambda: seen.append("none"))
    queue.run()
    assert sorted(seen, key=str) == [((1, 2), {"a": 3, "b": 4}), "none"]


def test_an_empty_queue_runs():
    TransactionQueue().run()


def test_bound_methods_classes_and_builtins():
    things = []
    queue = TransactionQueue()
    queue.add(things.append, 1)
    queue.add(dict, a=1)
    queue.run()
    assert things == [1]


def test_run_again_after_more_add():
    done = {}
    queue = TransactionQueue()
    for n in range(5):
        queue.add(count_in, done, n)
        queue.run()
        assert done == {i: 1 for i in range(n + 1)}
    queue.run()
    assert done == {i: 1 for i in range(5)}


def test_number_of_segments():
    done = {}
    for segments in (0, 1, 3, 100):
        queue = TransactionQueue()
        for i in range(20):
            queue.add(count_in, done, i)
        queue.run(nb_segments=segments)
    assert set(done.values()) == {4}


def test_what_a_transaction_adds_runs_after_it():
    order = []
    queue = TransactionQueue()

    def parent(n, depth):
        if depth:
            for i in range(2):
                queue.add(parent, (n, i), depth - 1)
        order.append(n)

    for i in range(5):
        queue.add(parent, i, 3)
    queue.run()
    assert len(order) == 5 * 15
    place = {n: i for i, n in enumerate(order)}
    assert len(place) == len(order)
    for n in order:
        if isinstance(n, tuple):
            assert place[n[0]] < place[n]


def test_what_it_adds_does_not_run_before_it_ends():
    log = []
    queue = TransactionQueue()

    def child():
        log.append("child")

    def parent():
        queue.add(child)
        log.append("parent begins")
        for _ in range(2000):
            pass
        log.append("parent ends")

    queue.add(parent)
    queue.run()
    assert log == ["parent begins", "parent ends", "child"]


def test_one_thread_keeps_the_order(threads):
    order = []
    queue = TransactionQueue()
    for i in range(20):
        queue.add(order.append, i)
    queue.run(nb_segments=1)
    assert order == list(range(20))


def test_the_result_is_a_serial_one():
    state = {"n": 0}
    history = []
    queue = TransactionQueue()

    def step(i):
        before = state["n"]
        state["n"] = before * 3 + i
        history.append((i, before, state["n"]))

    for i in range(200):
        queue.add(step, i)
    queue.run()
    n = 0
    for i, before, after in history:
        assert before == n
        n = after
        assert after == before * 3 + i
    assert state["n"] == n and sorted(i for i, _, _ in history) == list(range(200))


def test_module_level_form():
    done = {}
    for i in range(10):
        transaction.add(count_in, done, i)
    transaction.add(lambda **kwds: count_in(done, kwds["key"]), key="k")
    transaction.run()
    transaction.run()
    assert done == {**{i: 1 for i in range(10)}, "k": 1}


def test_module_level_add_inside():
    done = []

    def first():
        transaction.add(second)
        done.append("first")

    def second():
        done.append("second")

    transaction.add(first)
    transaction.run()
    assert done == ["first", "second"]


# ---- Exceptions --------------------------------------------------------------------------------------------------------


class Failure(Exception):
    pass


def fail(table, key):
    table[key] = "written"
    raise Failure(key)


def test_effects_of_a_failed_transaction_stay():
    table = {}
    queue = TransactionQueue()
    queue.add(fail, table, "a")
    with pytest.raises(Failure, match="a"):
        queue.run()
    assert table == {"a": "written"}


def test_exactly_one_raises(rush):
    for _ in range(20):
        table = {}
        queue = TransactionQueue()
        for i in range(20):
            queue.add(fail, table, i)
        with pytest.raises(Failure) as info:
            queue.run()
        assert table == {info.value.args[0]: "written"}


def test_exactly_one_chain_comes_to_its_exception(rush):
    def go_on(i, n):
        table[i] = n
        if n == 4:
            raise Failure(i)
        queue.add(go_on, i, n + 1)

    for _ in range(20):
        table, queue = {}, TransactionQueue()
        for i in range(10):
            queue.add(go_on, i, 0)
        with pytest.raises(Failure) as info:
            queue.run()
        assert [i for i, n in table.items() if n == 4] == [info.value.args[0]]


WAYS = {"plain": lambda: None, "irrevocable": lambda: core.irrevocable("a test"), "exclusive": lambda: core.exclusive("a test")}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("way_of_the_failing", WAYS)
def test_nothing_follows_the_one_that_raises(rush, way_of_the_failing, way):
    """In the order of commits, which the numbers tell that each takes with its first look at the others."""
    log, others_way, failing_way = [], WAYS[way], WAYS[way_of_the_failing]

    def work(i):
        if i % 3 == 0:
            others_way()
        for _ in range(i % 50):
            pass
        log.append(i)
        if i % 3 == 1:
            others_way()

    def raises(before):
        if before:
            failing_way()
        log.append("raised")
        if not before:
            failing_way()
        raise Failure

    for n in range(20):
        log.clear()
        queue = TransactionQueue()
        for i in range(12):
            queue.add(work, i)
        queue.add(raises, n % 2)
        for i in range(12, 24):
            queue.add(work, i)
        with pytest.raises(Failure):
            queue.run()
        assert log[-1] == "raised"
        assert queue.number_of_transactions_executed() == len(log)


def test_nobody_sees_what_the_one_that_raised_has_done(rush):
    """Whether they write what it has read, or read what it has written, or only run beside it."""

    class State:
        raised = False

    def raises(state):
        for _ in range(300):
            pass
        state.raised = True
        raise Failure

    def looks(state, i):
        for _ in range(i * 100):
            pass
        if state.raised:
            seen.append(i)

    for _ in range(20):
        seen, state, queue = [], State(), TransactionQueue()
        queue.add(raises, state)
        for i in range(10):
            queue.add(looks, state, i)
        with pytest.raises(Failure):
            queue.run()
        assert seen == []


def test_what_ran_beside_it_is_dropped_and_released(rush):
    class Argument:
        pass

    class Born:
        pass

    done, alive = [], []

    def work(argument, options):
        for _ in range(2000):
            pass
        done.append(True)
        queue.add(work, argument, options=Born())
        del done[:]

    def last(n):
        if n == 0:
            raise Failure
        queue.add(last, n - 1)

    for _ in range(5):
        queue, arguments = TransactionQueue(), [Argument() for _ in range(8)]
        alive += [weakref.ref(argument) for argument in arguments]
        for argument in arguments:
            queue.add(work, argument, options=argument)
        queue.add(last, 3)
        with pytest.raises(Failure):
            queue.run()
        del argument, arguments, queue
    gc.collect()
    assert [ref for ref in alive if ref() is not None] == []


def test_a_transaction_that_never_ends_is_dropped(threads):
    """Once another one has raised: it would run for ever beside it."""
    if threads == 1 or not core.PARALLEL:
        pytest.skip("one of them would run for ever")
    begun = []
    queue = TransactionQueue()

    def endless():
        tell()
        while True:
            pass

    @trusted
    def tell():
        begun.append(True)

    @trusted
    def wait():
        give_up = time.monotonic() + TIMEOUT
        while not begun:
            assert time.monotonic() < give_up
            time.sleep(0.001)

    def raises():
        wait()
        raise Failure

    queue.add(endless)
    queue.add(raises)
    with pytest.raises(Failure):
        queue.run()
    queue.run()


def test_what_other_threads_add_after_the_exception_stays():
    raised, done = threading.Event(), []
    queue = TransactionQueue()

    @trusted
    def fill():
        assert raised.wait(TIMEOUT)
        for i in range(50):
            queue.add(done.append, i)

    def raises():
        core.defer(raised.set)
        raise Failure

    filler = threading.Thread(target=fill)
    filler.start()
    queue.add(raises)
    for _ in range(20):
        queue.add(done.append, "dropped")
    before = core.set_sequential(0)  # in a sequential transaction nothing is deferred: the others would add before the exception
    try:
        with pytest.raises(Failure):
            queue.run(nb_segments=1)
    finally:
        core.set_sequential(before)
    filler.join(TIMEOUT)
    queue.run()
    assert sorted(done) == list(range(50))


def test_one_of_the_threads_that_run_a_queue_gets_its_exception(rush):
    """All runs end with it, and what is added later waits for the next one."""
    for _ in range(10):
        caught, table, queue = [], {}, TransactionQueue()

        @trusted
        def run_queue():
            try:
                queue.run()
            except Failure as e:
                caught.append(e.args[0])

        for i in range(30):
            queue.add(fail if i % 3 == 1 else count_in, table, i)
        runs = [threading.Thread(target=run_queue) for _ in range(3)]
        for run in runs:
            run.start()
        for run in runs:
            run.join(TIMEOUT)
        queue.run()
        assert [i for i, value in table.items() if value == "written"] == caught
        assert len(caught) == 1


def test_other_queues_go_on(rush):
    """An exception ends the run of the queue that its transaction came from, and no other."""
    failing, other = TransactionQueue(), TransactionQueue()
    table = {}

    def fill(i):
        other.add(count_in, table, i)
        failing.add(fill, i + 100)
        if i % 100 == 7:
            raise Failure

    for i in range(8):
        failing.add(fill, i)
    for _ in range(200):
        other.add(count_in, table, "other")
    thread = threading.Thread(target=other.run)
    thread.start()
    with pytest.raises(Failure):
        failing.run()
    thread.join(TIMEOUT)
    other.run()
    assert table.pop("other") == 200
    assert 7 in table and set(table.values()) == {1}


def test_those_not_begun_are_dropped():
    table, after = {}, []
    queue = TransactionQueue()
    queue.add(fail, table, "a")
    for i in range(1000):
        queue.add(after.append, i)
    with pytest.raises(Failure):
        queue.run(nb_segments=1)
    assert table == {"a": "written"} and after == []
    queue.run()
    assert after == []


def test_the_queue_can_be_used_after_a_failure():
    table = {}
    queue = TransactionQueue()
    queue.add(fail, table, "a")
    with pytest.raises(Failure):
        queue.run()
    queue.add(count_in, table, "b")
    queue.run()
    assert table == {"a": "written", "b": 1}


def test_what_a_failed_transaction_added_is_dropped():
    done = []
    queue = TransactionQueue()

    def parent():
        queue.add(done.append, 1)
        raise Failure

    queue.add(parent)
    with pytest.raises(Failure):
        queue.run()
    queue.run()
    assert done == []


def test_what_others_add_after_a_failure_is_dropped():
    """Else a chain of transactions would go on for ever."""
    queue = TransactionQueue()

    def endless():
        queue.add(endless)

    def last(n):
        if n == 0:
            raise Failure
        queue.add(last, n - 1)

    for _ in range(5):
        queue.add(endless)
    queue.add(last, 20)
    with pytest.raises(Failure):
        queue.run()
    queue.run()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_any_exception_comes_out(kind):
    def stop():
        raise kind("why")

    queue = TransactionQueue()
    queue.add(stop)
    with pytest.raises(kind) as info:
        queue.run()
    assert info.value.args == ("why",)


def test_the_traceback_leads_to_the_failure():
    queue = TransactionQueue()
    queue.add(fail, {}, 1)
    with pytest.raises(Failure) as info:
        queue.run()
    assert info.traceback[-1].name == "fail"


# ---- Atomic blocks -----------------------------------------------------------------------------------------------------


def test_running_inside_a_transaction_is_an_error():
    queue, inner = TransactionQueue(), TransactionQueue()
    caught = []

    def transaction_in_transaction():
        try:
            inner.run()
        except TransactionError as e:
            caught.append(str(e))

    queue.add(transaction_in_transaction)
    queue.run()
    assert len(caught) == 1


def test_running_inside_an_atomic_block_is_an_error():
    queue = TransactionQueue()
    done = []
    queue.add(done.append, 1)
    with atomic:
        with pytest.raises(TransactionError):
            queue.run()
    assert done == []
    queue.run()
    assert done == [1]


def test_module_level_run_inside_an_atomic_block_is_an_error():
    transaction.add(list)
    with atomic:
        with pytest.raises(TransactionError):
            transaction.run()
    transaction.run()


def test_is_atomic():
    seen = []
    assert not transaction.is_atomic()
    with atomic:
        assert transaction.is_atomic()
        with atomic:
            assert transaction.is_atomic()
        assert transaction.is_atomic()
    assert not transaction.is_atomic()
    queue = TransactionQueue()
    queue.add(lambda: seen.append(transaction.is_atomic()))
    queue.run()
    assert seen == [True]


def test_atomic_ends_with_an_exception():
    with pytest.raises(Failure):
        with atomic:
            raise Failure
    assert not transaction.is_atomic()
    with atomic:
        pass


def test_atomic_inside_a_transaction():
    log = []
    queue = TransactionQueue()

    def nested(i):
        with atomic:
            log.append(i)
            with atomic:
                log.append(i)
        log.append(i)

    for i in range(20):
        queue.add(nested, i)
    queue.run()
    assert [log[i] for i in range(0, 60, 3)] == [log[i] for i in range(1, 60, 3)] == [log[i] for i in range(2, 60, 3)]


def test_atomic_in_a_plain_thread_excludes_transactions():
    state = {"a": 0, "b": 0}
    wrong, stop = [], []

    def plain():
        while not stop:
            with atomic:
                a = state["a"]
                state["a"] = a + 1
                time.sleep(0.0002)
                if state["a"] != a + 1 or state["a"] != state["b"] + 1:
                    wrong.append(dict(state))
                state["b"] += 1

    def both():
        if state["a"] != state["b"]:
            report(dict(state))
        state["a"] += 1
        state["b"] += 1

    @trusted
    def report(what):
        wrong.append(what)

    thread = threading.Thread(target=plain)
    thread.start()
    try:
        for _ in range(10):
            queue = TransactionQueue()
            for _ in range(20):
                queue.add(both)
            queue.run()
    finally:
        stop.append(True)
        thread.join(TIMEOUT)
    assert not thread.is_alive() and wrong == []
    assert state["a"] == state["b"] >= 200


def test_atomic_blocks_of_threads_exclude_one_another():
    state = [0]

    def work():
        for _ in range(100):
            with atomic:
                n = state[0]
                time.sleep(0)
                state[0] = n + 1

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert state == [300]


# ---- Generators ----------------------------------------------------------------------------------------------------------


def counting(table, key, n):
    for _ in range(n):
        count_in(table, key)
        yield


def test_each_yield_of_a_generator_ends_a_transaction():
    log = []
    queue = TransactionQueue()

    def steps(name):
        for i in range(3):
            log.append((name, i, "begins"))
            log.append((name, i, "ends"))
            yield "ignored"
        log.append((name, "last"))

    for name in range(10):
        queue.add_generator(steps(name))
    queue.run()
    begins = [entry for entry in log if "begins" in entry]
    assert len(begins) == 30
    for entry in begins:
        i = log.index(entry)
        assert log[i + 1] == (*entry[:2], "ends")
    for name in range(10):
        assert [entry[1] for entry in log if entry[0] == name] == [0, 0, 1, 1, 2, 2, "last"]
    assert queue.number_of_transactions_executed() == 40


def test_transactions_come_between_the_steps_of_a_generator():
    order = []
    queue = TransactionQueue()

    def steps():
        for i in range(3):
            order.append(i)
            yield

    queue.add_generator(steps())
    queue.add(order.append, "between")
    queue.run(nb_segments=1)
    assert order == [0, "between", 1, 2]


@pytest.mark.parametrize("inject", [0, 0.02])
def test_generators_count_together(inject):
    table = {}
    queue = TransactionQueue()
    for i in range(20):
        queue.add_generator(counting(table, i % 3, 10))
        queue.add_generator(count_in(table, i) or None for i in range(3, 6))
    core.inject_aborts(inject, 7)
    try:
        queue.run()
    finally:
        core.inject_aborts(0, 0)
    assert table == {0: 70, 1: 70, 2: 60, 3: 20, 4: 20, 5: 20}


def test_generators_with_any_arguments():
    seen = []
    queue = TransactionQueue()

    def steps(a, /, b, c=3, *rest, d, e=5, **more):
        nonlocal seen
        seen += [(a, b, c, rest, d, e, more)]
        yield
        seen += [a]

    queue.add_generator(steps(1, 2, d=4))
    queue.run()
    queue.add_generator(steps(1, 2, 30, 31, 32, d=40, e=50, f=60))
    queue.run()
    assert seen == [(1, 2, 3, (), 4, 5, {}), 1, (1, 2, 30, (31, 32), 40, 50, {"f": 60}), 1]


def test_generators_that_have_begun_and_other_iterators():
    table = {}
    queue = TransactionQueue()
    begun = counting(table, "begun", 5)
    next(begun)
    queue.add_generator(begun)
    queue.add_generator(iter([count_in, 2, 3]))
    queue.add_generator(map(lambda key: count_in(table, key), "ab"))
    queue.run()
    assert table == {"begun": 5, "a": 1, "b": 1}
    assert list(begun) == []
    assert queue.number_of_transactions_executed() == 5 + 4 + 3


def test_generators_added_by_transactions_and_generators():
    table = {}
    queue = TransactionQueue()

    def parent(n):
        count_in(table, n)
        yield
        if n:
            queue.add_generator(parent(n - 1))
            queue.add_generator(counting(table, "child", 3))
        yield

    queue.add(lambda: queue.add_generator(parent(5)))
    queue.run()
    assert table == {**{n: 1 for n in range(6)}, "child": 15}


def test_a_generator_that_raises():
    table = {}
    queue = TransactionQueue()

    def steps():
        count_in(table, "first")
        yield
        count_in(table, "second")
        raise Failure("in a step")
        yield

    queue.add_generator(steps())
    with pytest.raises(Failure, match="in a step"):
        queue.run()
    queue.run()
    assert table == {"first": 1, "second": 1}


def test_generators_made_outside_run_in_parallel(threads):
    if not core.PARALLEL:
        pytest.skip("nothing runs in parallel")
    table = {}

    def made_outside(key):
        count_in(table, key)
        yield
        count_in(table, key)

    generators = [made_outside(i) for i in range(20)]
    queue = TransactionQueue()
    queue.add(count_in, table, "warm")
    queue.add_generator(counting(table, "warm", 2))
    queue.run()
    before = core.stats()["exclusives"]
    for generator in generators:
        queue.add_generator(generator)
    queue.run()
    # What starts a thread may have to run alone, their 40 steps do not.
    assert core.stats()["exclusives"] - before < threads
    assert table == {"warm": 3, **{i: 2 for i in range(20)}}


# ---- How many have run -----------------------------------------------------------------------------------------------------


def test_number_of_transactions_executed():
    queue = TransactionQueue()
    refused = []

    def grow(depth):
        if depth:
            for _ in range(10):
                queue.add(grow, depth - 1)

    def ask():
        try:
            queue.number_of_transactions_executed()
        except TransactionError:
            refused.append(True)

    assert queue.number_of_transactions_executed() == 0
    queue.add(grow, 3)
    assert queue.number_of_transactions_executed() == 0
    queue.run()
    assert queue.number_of_transactions_executed() == 1111
    queue.add(ask)
    queue.run()
    assert refused == [True] and queue.number_of_transactions_executed() == 1112
    queue.add(fail, {}, 1)
    with pytest.raises(Failure):
        queue.run()
    assert queue.number_of_transactions_executed() == 1113


# ---- Several queues --------------------------------------------------------------------------------------------------------


def test_a_queue_filled_by_the_transactions_of_another():
    outer, inner = TransactionQueue(), TransactionQueue()
    table = {}

    def fill(i):
        inner.add(count_in, table, i)
        inner.add_generator(counting(table, i, 2))
        count_in(table, "outer")

    for i in range(30):
        outer.add(fill, i)
    outer.run()
    assert table == {"outer": 30}
    inner.run()
    assert table == {"outer": 30, **{i: 3 for i in range(30)}}


def test_what_a_failed_transaction_added_to_another_queue_stays():
    outer, inner = TransactionQueue(), TransactionQueue()
    done = []

    def work():
        inner.add(done.append, 1)
        raise Failure

    outer.add(work)
    with pytest.raises(Failure):
        outer.run()
    inner.run()
    assert done == [1]


def test_a_queue_made_in_a_transaction():
    outer, made, done = TransactionQueue(), [], []

    def work(i):
        inner = TransactionQueue()
        inner.add(done.append, i)
        made.append(inner)

    for i in range(10):
        outer.add(work, i)
    outer.run()
    for inner in made:
        inner.run()
    assert sorted(done) == list(range(10))


def test_queues_run_at_the_same_time():
    table, queues = {}, [TransactionQueue() for _ in range(3)]
    for queue in queues:
        for i in range(100):
            queue.add(count_in, table, i % 7)
    threads = [threading.Thread(target=queue.run) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert table == {i: 45 if i < 2 else 42 for i in range(7)}


def test_run_again_after_an_exception_and_more_add():
    table = {}
    queue = TransactionQueue()
    for n in range(5):
        queue.add(count_in, table, "begun")
        queue.add(fail, table, n)
        queue.add_generator(counting(table, "dropped", 3))
        with pytest.raises(Failure) as info:
            queue.run(nb_segments=1)
        assert info.value.args == (n,)
        queue.add(count_in, table, "again")
        queue.run()
    assert table == {"begun": 5, "again": 5, **{n: "written" for n in range(5)}}


# ---- Blocks that must not be nested ------------------------------------------------------------------------------------------


def test_exclusive_atomic():
    assert not transaction.is_atomic()
    for _ in range(2):
        with pytest.raises(Failure):
            with transaction.exclusive_atomic:
                assert transaction.is_atomic()
                with atomic:
                    assert transaction.is_atomic()
                raise Failure
        assert not transaction.is_atomic()


@pytest.mark.parametrize("outer", ["atomic", "exclusive_atomic"])
def test_exclusive_atomic_complains_when_nested(outer):
    with getattr(transaction, outer):
        with pytest.raises(TransactionError):
            with transaction.exclusive_atomic:
                raise Failure
        assert transaction.is_atomic()
        with atomic:
            pass
        assert transaction.is_atomic()
    assert not transaction.is_atomic()


def test_exclusive_atomic_complains_in_a_transaction():
    refused = []

    def work():
        try:
            with transaction.exclusive_atomic:
                raise Failure
        except TransactionError as e:
            refused.append(isinstance(e, threading.ThreadError))

    queue = TransactionQueue()
    queue.add(work)
    queue.run()
    assert refused == [True]


@pytest.mark.parametrize("block", ["atomic", "exclusive_atomic", "single_transaction"])
def test_more_exits_than_entries(block):
    block = getattr(transaction, block)
    for _ in range(2):
        with block:
            pass
        with pytest.raises(transaction.error):
            block.__exit__(None, None, None)
        assert not transaction.is_atomic()


def test_exclusive_atomic_excludes_transactions():
    table = {"a": 0, "b": 0}
    torn = []

    def both():
        table["a"] += 1
        table["b"] += 1

    def plain():
        for _ in range(50):
            with transaction.exclusive_atomic:
                if table["a"] != table["b"]:
                    torn.append(dict(table))
                table["a"] += 1
                time.sleep(0)
                table["b"] += 1

    queue = TransactionQueue()
    for _ in range(200):
        queue.add(both)
    threads = [threading.Thread(target=plain) for _ in range(2)]
    for thread in threads:
        thread.start()
    queue.run()
    for thread in threads:
        thread.join(60)
    assert torn == [] and table == {"a": 300, "b": 300}


# ---- Clocks, numbers, hints --------------------------------------------------------------------------------------------------


def test_clocks():
    def ask():
        return transaction.time(), time.time(), transaction.clock(), time.process_time()

    for answer in (ask(), core.Transaction(ask, ()).run()):
        assert all(isinstance(each, float) for each in answer)
        assert answer[0] <= answer[1] <= answer[0] + 60 and answer[2] <= answer[3]


def test_count_gives_different_positive_integers():
    numbers = [transaction.count() for _ in range(10)]
    assert numbers == sorted(set(numbers)) and numbers[0] > 0
    table = {}

    def draw():
        for _ in range(10):
            table[transaction.count()] = True

    queue = TransactionQueue()
    for _ in range(200):
        queue.add(draw)
    core.inject_aborts(0.02, 6)
    try:
        queue.run()
    finally:
        core.inject_aborts(0, 0)
    assert len(table) == 2000 and min(table) > numbers[-1]


def test_they_do_not_conflict_nor_run_alone():
    if not core.PARALLEL:
        pytest.skip("nothing runs in parallel")
    from meeting import APART, meet

    def ask():
        transaction.time()
        transaction.clock()
        transaction.count()
        transaction.hint_commit_soon()
        transaction.getsegmentlimit()
        with transaction.signals_enabled:
            return transaction.is_atomic()

    assert meet(lambda: (), ask, ask) == APART


def test_a_hint_changes_nothing():
    done = []

    def work(i):
        done.append(i)
        assert transaction.hint_commit_soon() is None
        done.append(i)

    queue = TransactionQueue()
    for i in range(20):
        queue.add(work, i)
    queue.run()
    assert done[::2] == done[1::2] and sorted(done[::2]) == list(range(20))
    with atomic:
        transaction.hint_commit_soon()
        assert transaction.is_atomic()


def test_signals_enabled_lets_exceptions_through():
    with pytest.raises(Failure):
        with transaction.signals_enabled:
            raise Failure


def test_every_name():
    assert set(transaction.__all__) >= {
        "Empty", "TransactionError", "TransactionQueue", "add", "atomic", "clock", "count", "exclusive_atomic",
        "error", "getsegmentlimit", "hashtable", "hint_commit_soon", "is_atomic", "local", "queue", "run", "signals_enabled",
        "set_num_threads", "single_transaction", "stmdict", "stmiddict", "stmidset", "stmset", "threadlocalproperty", "time",
    }  # fmt: skip
    for name in transaction.__all__:
        assert getattr(transaction, name) is not None
    assert issubclass(TransactionError, Exception)


# ---- Transactions as objects ---------------------------------------------------------------------------------------------


def test_a_transaction_runs_once():
    t = core.Transaction(lambda x: x + 1, (1,))
    assert not t.done
    assert t.run() == 2
    assert t.done
    with pytest.raises(RuntimeError):
        t.run()


def test_ages_rise():
    ages = [core.Transaction(len, ("",)).age for _ in range(5)]
    assert ages == sorted(set(ages))


def test_a_transaction_inside_a_transaction_is_an_error():
    inner = core.Transaction(list, ())

    def outer():
        try:
            inner.run()
        except RuntimeError:
            return "refused"

    activation.activate()
    assert core.Transaction(outer, ()).run() == "refused"


def test_deferred_actions_run_at_commit_in_order():
    log = []
    activation.activate()
    defer = core.defer

    @trusted
    def note(what):
        log.append(what)

    def work():
        for i in range(3):
            defer(note, i)
        note("end")

    core.Transaction(work, ()).run()
    assert log == ["end", 0, 1, 2]
    core.defer(log.append, "at once")
    assert log[-1] == "at once"


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_numbers_of_threads_that_are_none(threads):
    with pytest.raises(ValueError):
        transaction.set_threads(threads)


def test_segment_limit(threads):
    limit = transaction.getsegmentlimit()
    assert limit == (threads if core.PARALLEL else 1)
    transaction.set_threads(None)
    assert transaction.getsegmentlimit() >= 1


def test_all_threads_take_part_again_after_a_time_of_conflicts():
    """Where transactions only wait for each other, few threads run them; who comes later must not wait for that."""
    if not core.PARALLEL or os.cpu_count() < 2:
        pytest.skip("transactions do not wait for each other")
    threads, most = 4, 200_000

    class Counter:
        value = 0

    counter, met, narrow = Counter(), [], []

    def increment():
        counter.value += 1
        for _ in range(300):
            pass
        go_on()

    @trusted
    def go_on():
        if not narrow and queue._width == 1:
            core.defer(narrow.append, counter.value)
            for _ in range(threads):
                queue.add(meet)
        elif not narrow and counter.value < most:
            queue.add(increment)

    @trusted
    def meet():
        met.append(threading.get_ident())
        give_up = time.monotonic() + TIMEOUT
        while len(set(met)) < threads:
            assert time.monotonic() < give_up
            time.sleep(0.001)

    transaction.set_threads(threads)
    queue = transaction.TransactionQueue()
    for _ in range(threads):
        queue.add(increment)
    queue.run()
    assert narrow, "as many threads as ever ran transactions that all conflict"
    assert len(set(met)) == threads
