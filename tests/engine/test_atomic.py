"""``transaction.atomic`` in a thread that is no transaction: nothing else runs meanwhile, and its turn comes.

What the engine recorded is the judge of who ran when (`progress`), a log that everybody writes of what they saw.
"""

import functools
import itertools
import threading
import time

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from progress import EXCLUSIVE_GRADE, Latch, in_threads, recorded, run_transactions
from tornado.stm.core import trusted
from tornado.stm.transaction import TransactionError, TransactionQueue, atomic

activation.activate()


class Pair:
    """Two numbers that everybody keeps equal, except while nobody looks."""

    def __init__(self):
        self.a = self.b = 0


def raise_both(pair, torn):
    a = pair.a
    pair.a = a + 1
    if pair.b != a:
        report(torn, a, pair.b)
    pair.b = a + 1


@trusted
def report(torn, *what):
    torn.append(what)


@trusted
def atomically(pair, torn, rounds, body=lambda: None):
    """Code outside transactions: no barriers, only the block protects it."""
    for _ in range(rounds):
        with atomic:
            a = pair.a
            pair.a = a + 1
            body()
            if pair.b != a or pair.a != a + 1:
                torn.append((a, pair.a, pair.b))
            pair.b = a + 1


def busy(pair, torn):
    raise_both(pair, torn)
    for _ in range(30):
        pass


def going_exclusive(pair, torn):
    raise_both(pair, torn)
    core.exclusive("a test")
    pair.a += 1
    pair.b += 1


@pytest.mark.parametrize("kinds", [(busy,), (busy, busy, busy, going_exclusive), (going_exclusive,)], ids=["plain", "mixed", "exclusive"])
@pytest.mark.parametrize("workers, blocks", [(1, 1), (2, 1), (2, 3), (8, 3), (3, 8)])
def test_nothing_runs_meanwhile_and_its_turn_comes(workers, blocks, kinds):
    """`check` proves both: nobody begins or ends in between, and each block waits for one commit of each thread at most."""
    pair, torn = Pair(), []
    kind = itertools.cycle(kinds)
    transactions = [core.Transaction(next(kind), (pair, torn)) for _ in range(200)]
    ages = {t.age for t in transactions}
    history = recorded(
        lambda: in_threads(
            [lambda: run_transactions(transactions, workers)] + [lambda: atomically(pair, torn, 30)] * blocks
        )
    )
    assert torn == []
    twice = sum(1 for i, _ in enumerate(transactions) if kinds[i % len(kinds)] is going_exclusive)
    assert pair.a == pair.b == 200 + twice + 30 * blocks
    assert sum(e.age not in ages for e in history.commits) == 30 * blocks
    history.check()


def test_turns_come_in_the_order_in_which_they_were_asked_for():
    """Some ask while the next one is looked for, which may take any time: a block that ends lets the others ask."""
    begun, over, rounds = [0], [0, 0, 0], 100

    @trusted
    def let_ask():
        for n in range(1, rounds + 1):
            with atomic:
                begun[0] = n
            while min(over) < n:
                time.sleep(0)

    @trusted
    def ask(i):
        while over[i] < rounds:
            while begun[0] == over[i]:
                time.sleep(0)
            with atomic:
                over[i] += 1

    core.inject_delays(0.2, 0.0001)
    try:
        history = recorded(lambda: in_threads([let_ask] + [functools.partial(ask, i) for i in range(3)]))
    finally:
        core.inject_delays(0, 0)
    history.check_token()


def test_blocks_get_in_while_transactions_never_stop():
    """Each transaction adds its successor until the blocks are over: if they starved this would never end."""
    pair, torn, over = Pair(), [], []
    queue = TransactionQueue()

    @trusted
    def go_on():
        return not over

    def endless():
        raise_both(pair, torn)
        if go_on():
            queue.add(endless)

    for _ in range(10):
        queue.add(endless)

    @trusted
    def blocks():
        try:
            atomically(pair, torn, 50)
        finally:
            over.append(True)

    history = recorded(lambda: in_threads([lambda: queue.run(4), blocks]))
    assert torn == [] and pair.a == pair.b
    history.check()


def test_transactions_get_in_while_blocks_never_stop():
    pair, torn, over = Pair(), [], []

    @trusted
    def blocks():
        while not over:
            atomically(pair, torn, 1)

    @trusted
    def run():
        try:
            run_transactions([core.Transaction(busy, (pair, torn)) for _ in range(100)], 2)
        finally:
            over.append(True)

    history = recorded(lambda: in_threads([run, blocks, blocks, blocks]))
    assert torn == [] and pair.a == pair.b
    history.check()


def test_a_transaction_that_has_begun_ends_first():
    inside, entered = Latch(), []

    @trusted
    def look():
        inside.open()
        return list(entered)

    seen = []

    def works():
        seen.append(look())
        for _ in range(10000):
            pass
        seen.append(look())

    @trusted
    def block():
        inside.wait()
        with atomic:
            entered.append(list(seen))

    history = recorded(lambda: in_threads([core.Transaction(works, ()).run, block]))
    assert seen == [[], []] and entered == [[[], []]]
    history.check()


# ---- Inside the block ----------------------------------------------------------------------------------------------------


def test_nested():
    pair, torn = Pair(), []

    @trusted
    def nested():
        for _ in range(30):
            with atomic:
                with atomic:
                    pair.a += 1
                assert transaction.is_atomic()
                pair.b += 1
            assert not transaction.is_atomic()

    transactions = [core.Transaction(busy, (pair, torn)) for _ in range(100)]
    history = recorded(lambda: in_threads([lambda: run_transactions(transactions, 2), nested, nested]))
    assert torn == [] and pair.a == pair.b == 160
    # Only the outer one is a block of its own.
    assert sum(e.what == "get" and e.detail == EXCLUSIVE_GRADE for e in history.events) == 60
    history.check()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, StopIteration, GeneratorExit])
def test_exceptions_come_out_and_what_was_done_stays(kind):
    pair, torn = Pair(), []

    @trusted
    def failing():
        for n in range(20):
            try:
                with atomic:
                    pair.a += 1
                    pair.b += 1
                    try:
                        with atomic:
                            raise kind(n)
                    finally:
                        assert transaction.is_atomic()
            except kind as e:
                assert e.args == (n,)
            else:
                raise AssertionError
            assert not transaction.is_atomic()

    transactions = [core.Transaction(busy, (pair, torn)) for _ in range(50)]
    history = recorded(lambda: in_threads([lambda: run_transactions(transactions, 2), failing]))
    assert torn == [] and pair.a == pair.b == 70
    history.check()


def test_run_is_refused_and_add_counts():
    pair, torn = Pair(), []
    queue = TransactionQueue()
    refused = []

    @trusted
    def block():
        for _ in range(10):
            with atomic:
                queue.add(busy, pair, torn)
                for run in (queue.run, transaction.run, TransactionQueue().run):
                    transaction.add(list)
                    try:
                        run()
                    except TransactionError:
                        refused.append(run)
                assert pair.a == pair.b
            assert not transaction.is_atomic()

    others = [core.Transaction(busy, (pair, torn)) for _ in range(50)]
    in_threads([lambda: run_transactions(others, 2), block])
    assert len(refused) == 30 and pair.a == 50
    queue.run()
    transaction.run()
    assert torn == [] and pair.a == pair.b == 60


def test_a_transaction_is_refused():
    t = core.Transaction(list, ())
    with atomic:
        with pytest.raises(RuntimeError):
            t.run()
    assert not t.done
    assert t.run() == []


def test_what_is_deferred_happens_at_once():
    log = []
    with atomic:
        core.defer(log.append, 1)
        assert log == [1]


def test_run_in_another_thread_waits_for_the_block():
    log = []
    queue = TransactionQueue()
    queue.add(log.append, "transaction")
    started = Latch()

    @trusted
    def run():
        started.open()
        queue.run(1)

    with atomic:
        thread = threading.Thread(target=run)
        thread.start()
        started.wait()
        log.append("block")
    thread.join(60)
    assert log == ["block", "transaction"]


def test_transactions_added_by_a_block_while_a_queue_runs():
    pair, torn, over = Pair(), [], []
    queue = TransactionQueue()

    def endless():
        raise_both(pair, torn)
        if not_over():
            queue.add(endless)

    @trusted
    def not_over():
        return not over

    @trusted
    def blocks():
        try:
            for _ in range(30):
                with atomic:
                    queue.add(busy, pair, torn)
                    queue.add(busy, pair, torn)
        finally:
            over.append(True)

    queue.add(endless)
    history = recorded(lambda: in_threads([lambda: queue.run(3), blocks]))
    queue.run()
    assert torn == [] and pair.a == pair.b
    history.check()


def test_a_block_in_an_executor_of_a_transaction():
    """The transaction does not wait for it, so it can come in when the transaction has ended."""
    from concurrent.futures import ThreadPoolExecutor

    pair, torn = Pair(), []
    with ThreadPoolExecutor(2) as executor:

        def hand_over():
            raise_both(pair, torn)
            core.defer(executor.submit, atomically, pair, torn, 3)

        transactions = [core.Transaction(hand_over, ()) for _ in range(20)]

        def run():
            run_transactions(transactions, 2)
            executor.shutdown()

        history = recorded(run)
    assert torn == [] and pair.a == pair.b == 80
    history.check()


def test_a_block_of_the_main_thread_serves_those_that_need_it():
    """An exclusive transaction elsewhere that needs the main thread gets it while that one waits to enter a block."""
    served = Latch()
    asked = Latch()
    log = []

    @trusted
    def request():
        log.append(threading.current_thread() is threading.main_thread())
        served.open()

    @trusted
    def ask():
        core.ask_main(request)
        asked.open()
        served.wait()

    def needs_main():
        core.exclusive("a test")
        ask()

    thread = threading.Thread(target=core.Transaction(needs_main, ()).run)
    thread.start()
    asked.wait()
    with atomic:
        log.append("block")
    thread.join(60)
    assert log == [True, "block"]


def test_a_block_runs_since_it_began():
    """As long as the thread that asks can have waited for it."""
    inside, asked = threading.Event(), threading.Event()

    def work():
        with atomic:
            inside.set()
            asked.wait()

    thread, before = threading.Thread(target=work), time.monotonic()
    thread.start()
    try:
        inside.wait()
        found = dict(core.running())
    finally:
        asked.set()
        thread.join()
    assert 0 <= found[thread.ident] <= 2 * (time.monotonic() - before)
