"""`transaction.queue`: between threads, between transactions, and between both; what is lost, what is undone, who conflicts."""

import _thread
import contextlib
import io
import itertools
import os
import random
import subprocess
import sys
import threading

import pytest

import apart
import tornado.stm
from tornado.stm import activation, core, testing, transaction
from tornado.stm.core import trusted
from tornado.stm.transaction import Empty, TransactionError, TransactionQueue, atomic, queue

activation.activate()

TIMEOUT = 60


@pytest.fixture(params=[0, 0.02], ids=["undisturbed", "aborts"])
def inject(request):
    transaction.set_threads(4)
    core.inject_aborts(request.param, 3)
    yield request.param
    core.inject_aborts(0, 0)
    transaction.set_threads(None)


def run(function, *args):
    return core.Transaction(function, args).run()


@trusted
def in_threads(*functions):
    """Call each in a thread of its own; returns when all have."""
    failures = []

    def work(function):
        try:
            function()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert failures == []


def left_in(q):
    """What is in the queue, in order; it is empty then."""
    items = []
    try:
        while True:
            items.append(q.get(block=False))
    except Empty:
        return items


# ---- Outside of transactions -----------------------------------------------------------------------------------------------


def test_the_oldest_comes_first():
    q = queue()
    for i in range(5):
        q.put(i)
    assert [q.get() for _ in range(3)] == [0, 1, 2]
    q.put(5)
    assert left_in(q) == [3, 4, 5]


def test_any_object_is_an_item():
    q = queue()
    for item in (None, [], False, Empty):
        q.put(item)
    assert left_in(q) == [None, [], False, Empty]


def test_empty():
    q = queue()
    for arguments in ({"block": False}, {"block": False, "timeout": 5}, {"block": False, "timeout": -5}, {"timeout": 0}):
        with pytest.raises(Empty):
            q.get(**arguments)
    with pytest.raises(Empty):
        q.get(True, 0.001)
    with pytest.raises(ValueError):
        q.get(timeout=-1)
    q.put(1)
    assert q.get(True, 0.001) == 1


def test_get_waits_for_a_put():
    q, answers = queue(), queue()

    def serve():
        while (item := q.get()) is not None:
            answers.put(item + 1)

    def ask():
        for i in range(20):
            q.put(i)
            assert answers.get(timeout=TIMEOUT) == i + 1
        q.put(None)

    in_threads(serve, ask)


def test_get_waits_for_a_commit():
    q, got = queue(), []
    transactions = TransactionQueue()
    for i in range(50):
        transactions.add(q.put, i)
    in_threads(lambda: got.extend(q.get() for _ in range(50)), transactions.run)
    assert sorted(got) == list(range(50))


# ---- Tasks -----------------------------------------------------------------------------------------------------------------


def test_join_of_nothing_returns():
    queue().join()


def test_join_waits_for_all_tasks():
    q, log = queue(), []
    for i in range(20):
        q.put(i)

    def work():
        while True:
            item = q.get()
            if item is None:
                return
            log.append(item)
            q.task_done()

    def wait():
        q.join()
        log.append("joined")
        q.put(None)
        q.put(None)

    in_threads(work, work, wait)
    assert log[-1] == "joined" and sorted(log[:-1]) == list(range(20))


def test_join_waits_for_the_tasks_of_tasks():
    """What a task puts before it is done counts, however the two follow one another in a transaction."""
    q, done = queue(), []

    def work(depth):
        q.task_done()
        done.append(depth)
        if depth:
            q.put(depth - 1)
            q.put(depth - 1)

    def worker():
        while (depth := q.get()) is not None:
            run(work, depth)

    def wait():
        q.join()
        assert len(done) == 2**7 - 1
        for _ in range(3):
            q.put(None)

    q.put(6)
    in_threads(worker, worker, worker, wait)


def test_too_many_tasks_done():
    q = queue()
    q.put(1)
    q.task_done()
    q.join()
    q.task_done()
    with pytest.raises(ValueError):
        q.join()
    q.put(1)
    q.join()


# ---- In transactions -------------------------------------------------------------------------------------------------------


def test_it_never_waits_in_a_transaction():
    q = queue()
    q.put(1)

    def refused(f, *args):
        try:
            f(*args)
        except TransactionError:
            return True
        return False

    def attempt():
        return refused(q.get), refused(q.get, True, 1), refused(q.join), q.get(True, 0), refused(q.get)

    assert run(attempt) == (True, True, True, 1, True)
    with atomic:
        assert refused(q.get) and refused(q.join)
        q.put(2)
        assert q.get(False) == 2
    assert left_in(q) == []
    # As PyPy-STM, where it is the error of the thread module.
    assert issubclass(TransactionError, threading.ThreadError)


def test_a_transaction_gets_what_it_has_put():
    q = queue()

    def both():
        q.put("own")
        return left_in(q)

    assert run(both) == ["own"]
    q.put("another")
    assert run(both) == ["another", "own"]
    assert left_in(q) == []


def test_an_exception_leaves_what_was_done():
    q = queue()
    q.put(1)

    def work():
        q.get(False)
        q.put(2)
        q.put(3)
        raise KeyError

    with pytest.raises(KeyError):
        run(work)
    assert left_in(q) == [2, 3]


def test_pipeline_of_transactions(inject):
    """Producers, transactions that take from one queue and put into the next, a sum at the end."""
    raw, squared, sums = queue(), queue(), []
    transactions = TransactionQueue()

    def produce(i):
        raw.put(i)
        transactions.add(square)

    def square():
        n = raw.get(block=False)
        squared.put(n * n)
        raw.task_done()
        transactions.add(collect)

    def collect():
        sums.append(squared.get(False))
        squared.task_done()

    for i in range(200):
        transactions.add(produce, i)
    transactions.run()
    assert sorted(sums) == [i * i for i in range(200)]
    raw.join()
    squared.join()
    assert left_in(raw) == left_in(squared) == []


@pytest.mark.parametrize("producers, consumers", [(1, 3), (3, 1), (3, 3)])
def test_nothing_is_lost_between_threads_and_transactions(inject, producers, consumers):
    q, got = queue(), [[] for _ in range(consumers)]
    each = 60
    transactions = TransactionQueue()

    def produce_as_transactions(name):
        for i in range(each):
            transactions.add(put_some, name, i)
        transactions.run()

    def put_some(name, i):
        q.put((name, i))
        if i % 7 == 0:  # once more, taken back at once: perhaps another one
            q.put("extra")
            q.put(q.get(False))

    def produce(name):
        for i in range(each):
            q.put((name, i))

    def consume(items):
        while (item := q.get()) is not None:
            items.append(item)
            q.task_done()

    def end():
        in_threads(*(lambda name=name: (produce_as_transactions if name == 0 else produce)(name) for name in range(producers)))
        for _ in itertools.repeat(None, (each + 6) // 7):
            q.task_done()  # for the transactions that took one
        q.join()
        for _ in range(consumers):
            q.put(None)

    in_threads(end, *(lambda items=items: consume(items) for items in got))
    everything = [item for items in got for item in items if item != "extra"]
    assert sorted(everything) == [(name, i) for name in range(producers) for i in range(each)]
    assert left_in(q) == []


def test_consumers_that_are_transactions(inject):
    """They look whether something is there, and come again if not, until the last item has been taken."""
    q, taken = queue(), {}
    transactions = TransactionQueue()

    def produce(i):
        q.put(i)

    def consume():
        try:
            item = q.get(block=False)
        except Empty:
            if len(taken) < 100:
                transactions.add(consume)
            return
        taken[item] = taken.get(item, 0) + 1
        transactions.add(consume)

    for _ in range(3):
        transactions.add(consume)
    for i in range(100):
        transactions.add(produce, i)
    transactions.run()
    assert taken == {i: 1 for i in range(100)}


def test_subclass():
    class Doubling(queue):
        def put(self, item):
            super().put(item)
            super().put(item)

    q = Doubling()
    q.put(1)
    run(q.put, 2)
    assert left_in(q) == [1, 1, 2, 2]


# ---- Who conflicts with whom -------------------------------------------------------------------------------------------------

if core.PARALLEL:
    from meeting import APART, CONFLICT, meet

    def filled(n):
        def make():
            q = queue()
            for i in range(n):
                q.put(i)
            return (q,)

        return make

    def put(q):
        q.put("new")

    def get(q):
        try:
            return q.get(False)
        except Empty:
            return None

    def done(q):
        q.task_done()

    @pytest.mark.parametrize("other", [put, get, done])
    @pytest.mark.parametrize("one", [put, get, done])
    def test_as_long_as_there_are_items_nobody_conflicts(one, other):
        assert meet(filled(4), one, other) == APART

    def test_whether_it_is_empty_depends_on_the_others():
        assert meet(filled(0), get, put) == CONFLICT
        assert meet(filled(1), get, get) == CONFLICT
        assert meet(filled(0), get, get) == APART

    def test_an_aborted_transaction_gives_back_what_it_took():
        q = queue()
        for i in range(5):
            q.put(i)
        attempts = []

        def take_three():
            taken = [q.get(False) for _ in range(3)]
            q.put("of the attempt")
            if first():
                abort()
            return taken

        @trusted
        def first():
            attempts.append(True)
            return len(attempts) == 1

        @trusted
        def abort():
            from tornado.stm._engine import Abort

            raise Abort

        run(take_three)
        attempts.clear()
        q = queue()
        for i in range(5):
            q.put(i)
        assert run(take_three) == [0, 1, 2]
        assert left_in(q) == [3, 4, "of the attempt"]

    def operate(heap, *operations):
        """Returns what the operations saw."""
        q, table = heap
        seen = []
        for operation in operations:
            if operation == "put":
                q.put("item")
            elif operation == "get":
                seen.append(get(q))
            elif operation < 3:
                seen.append(table[operation])
            else:
                table[operation - 3] += 1
        return seen

    @pytest.mark.parametrize("n", [0, 2])
    def test_whether_there_is_an_item_is_what_a_serial_run_says(n):
        """The items are all the same, so that it does not matter which one somebody gets."""
        choose = random.Random(n)

        def make():
            q = queue()
            for _ in range(n):
                q.put("item")
            return q, {0: 0, 1: 0, 2: 0}

        for seed in range(40):
            calls = [(operate, *choose.choices(["put", "get", "get", 0, 1, 2, 3, 4, 5], k=5)) for _ in range(12)]
            testing.check_serializable(
                make, calls, seed=seed, observe=lambda heap: (len(heap[0]._items), heap[1])
            )

    def test_nothing_of_it_runs_alone():
        q = queue()

        def use():
            q.put(1)
            q.put(2)
            q.task_done()
            return get(q), get(q), get(q)

        for _ in range(3):
            run(use)
        before = core.stats()["exclusives"]
        assert run(use) == (1, 2, None)
        assert core.stats()["exclusives"] == before


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time, to their ends")
@pytest.mark.parametrize("use", [lambda q: q.put(2), lambda q: q.get(), lambda q: q.get(block=False)], ids=["put", "get", "try"])
def test_a_transaction_that_waits_for_a_thread_lets_it_use_a_queue(use):
    between, told = queue(), []
    run(between.put, 1)

    def wait():
        thread = threading.Thread(target=use, args=(between,), daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        told.append(thread.is_alive())

    waiting = TransactionQueue()
    waiting.add(wait)
    waiting.run()
    assert told == [False]


def take_slots(threads, over):
    """So many threads become known to the engine, and stay until `over` is set."""
    used = threading.Semaphore(0)

    def use():
        with atomic:
            pass
        used.release()
        over.wait()

    for _ in range(threads):
        threading.Thread(target=use, daemon=True).start()
        used.acquire()


def all_slots_in_a_process(threads):
    """How many transactions a queue runs when so many threads are known to the engine, which has room for no more than 127."""
    transaction.set_threads(core.MOST_THREADS)
    over = threading.Event()
    take_slots(threads, over)
    some = TransactionQueue()
    for number in range(500):
        some.add(sum, range(1000 + number))
    some.run()
    over.set()
    return some.number_of_transactions_executed()


@pytest.mark.skipif(not core.PARALLEL, reason="there is one thread")
def test_where_there_is_no_room_for_more_threads_fewer_run_a_queue():
    assert apart.in_a_process(__file__, "all_slots_in_a_process(100)") == 500


@pytest.mark.parametrize("threads", [0, -1])
def test_no_number_of_threads_is_the_usual_one(threads):
    ran = []
    some = TransactionQueue()
    some.add(ran.append, True)
    some.run(threads)
    assert ran == [True]


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
@pytest.mark.parametrize("threads", [1, 2])
def test_where_no_other_thread_runs_any_transactions_are_sequential(threads):
    """They need neither locks nor undo: so many are counted of 101, one of which adds another one, and the last raises."""
    program = f"""
from tornado.stm import core, transaction
transaction.set_threads(2)  # also where there is one processor
ran = []
tasks = transaction.TransactionQueue()
def task(n):
    ran.append(n)
    if n == 50:
        tasks.add(task, 100)
    if n == 100:
        raise KeyError(n)
for n in range(100):
    tasks.add(task, n)
try:
    tasks.run({threads})
except KeyError as e:
    assert e.args == (100,)
    assert {threads} > 1 or ran == list(range(101))  # else those that still run are dropped
    print(core.stats()["sequentials"])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT)
    assert (ran.stdout, ran.stderr) == ("101\n" if threads == 1 else "0\n", "")


def loop_when_all_slots_are_taken():
    """What a loop returns that has to wait for a thread to end, and what it says."""
    over = threading.Event()

    class Told(io.StringIO):
        def write(self, text):
            over.set()
            return super().write(text)

    async def main():
        return "run"

    take_slots(core.MOST_THREADS, over)
    told = Told()
    with contextlib.redirect_stderr(told):
        return tornado.stm.run(main(), threads=2), told.getvalue().splitlines()


@pytest.mark.skipif(not core.PARALLEL, reason="there is one thread")
def test_a_loop_waits_for_room_for_its_own_thread_and_says_so():
    result, lines = apart.in_a_process(__file__, "loop_when_all_slots_are_taken()")
    assert result == "run" and len(lines) == 1 and lines[0].startswith("tornado.stm: 127 threads ")


FORKED = """
import os, signal, threading
from tornado.stm import transaction

def forked(act):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]

between, over = transaction.queue(), False

def use():
    while not over:
        between.put(1)
        try:
            between.get(timeout=0.0001)
        except transaction.Empty:
            pass

def put_and_get():
    between.put(2)
    between.get(block=False)
    between.task_done()

threads = [threading.Thread(target=use, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
statuses = []
queue = transaction.TransactionQueue()
for _ in range(30):
    queue.add(lambda: statuses.append(forked(put_and_get)))
queue.run(nb_segments=2)
over = True
for thread in threads:
    thread.join()
print(set(statuses), len(statuses))
"""


@pytest.mark.skipif(not core.PARALLEL, reason="there is one thread")
def test_a_child_uses_a_queue_that_threads_of_its_parent_were_about_to_use():
    done = apart.run_beside(__file__, FORKED)
    assert (done.returncode, done.stdout) == (0, "{0} 30\n")


def forked_in_a_run():
    """What the child of a transaction's fork, which goes on with the queue, has run; and how it ended."""
    ran, reading, writing, children, parent = [], *os.pipe(), [], os.getpid()

    def act(i):
        ran.append(i)
        if not children and _thread.get_ident() == threading.main_thread().ident:
            children.append(os.fork())

    some = TransactionQueue()
    for i in range(100):
        some.add(act, i)
    some.run(nb_segments=2)
    if os.getpid() != parent:
        os.write(writing, repr(sorted(ran) == list(range(100))).encode())
        os._exit(0)
    status = os.waitpid(children[0], 0)[1]
    return sorted(ran) == list(range(100)), status, os.read(reading, 10).decode()


@pytest.mark.skipif(not core.PARALLEL, reason="there is one thread")
def test_a_child_goes_on_with_the_queue_whose_transaction_has_forked():
    program = "import warnings, test_queues; warnings.simplefilter('ignore'); print(test_queues.forked_in_a_run())"
    done = apart.run_beside(__file__, program)
    assert (done.returncode, done.stdout) == (0, "(True, 0, 'True')\n")
