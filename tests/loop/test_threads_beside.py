"""Locks between transactions and threads that are none: what is correct on one thread beside others stays correct."""

import asyncio
import concurrent.futures
import functools
import gc
import os
import queue
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import weakref
from pathlib import Path

import pytest

import planted
import tornado.stm
from interpreters import ROOT, needs_engine
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted

needs_engine()

sys.path.append(str(ROOT / "tests" / "apps"))

import unlocked_beside
from progress import TIMEOUT, Latch

activation.activate()

LOCKS = pytest.mark.parametrize("make_lock", [threading.Lock, threading.RLock])


class Worker(threading.Thread):
    """A thread whose exception comes out of `result`."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self._call, self._result, self._failure = (function, args), None, None
        self.start()

    def run(self):
        function, args = self._call
        try:
            self._result = function(*args)
        except BaseException as e:
            self._failure = e

    def result(self):
        self.join(TIMEOUT)
        assert not self.is_alive(), "the thread does not end"
        if self._failure is not None:
            raise self._failure
        return self._result


def transact(function, *args):
    """On a thread of its own."""
    return Worker(core.Transaction(function, args).run)


@trusted
def try_lock(lock):
    """Outside of transactions: could a thread have it?"""
    taken = lock.acquire(False)
    if taken:
        lock.release()
    return taken


def taken_and_given_back(lock):
    taken = lock.acquire(False)
    if taken:
        lock.release()
    return taken


def asleep_for(lock):
    """A thread that waits for the lock, then returns what `look` finds under it."""

    def wait(look):
        with lock:
            return look()

    return wait


def parked(worker):
    """Wait until a thread sleeps in the kernel: it has been switched out of its own accord, and not again for a while."""
    path = f"/proc/self/task/{worker.native_id}/status"
    stable = 0
    last = None
    while stable < 20 and worker.is_alive():
        status = Path(path).read_text()
        now = "State:\tS" in status and status.split("voluntary_ctxt_switches:\t")[1].split()[0]
        stable = stable + 1 if now and now == last else 0
        last = now
        time.sleep(0.001)


# ---- A transaction has the lock --------------------------------------------------------------------------------------------


@LOCKS
def test_a_lock_that_a_transaction_has_given_back_keeps_threads_out_until_its_end(make_lock):
    lock, inside, go_on = make_lock(), Latch(), Latch()
    state = []

    def step():
        with lock:
            state.append("changed")
        inside.open()
        go_on.wait()

    running = transact(step)
    inside.wait()
    assert not try_lock(lock)
    go_on.open()
    running.result()
    assert try_lock(lock) and state == ["changed"]


@LOCKS
def test_a_thread_sees_nothing_of_an_attempt_that_is_rolled_back(make_lock):
    lock, inside, waits = make_lock(), Latch(), Latch()
    state = {"a": 0, "b": 0}

    def step():
        rehearsal = core.rehearse()
        with lock:
            state["a"] += 1
            inside.open()
            waits.wait()
            if rehearsal:
                raise core.Abort
            state["b"] += 1

    running = transact(step)
    inside.wait()
    looking = Worker(asleep_for(lock), lambda: dict(state))
    parked(looking)
    waits.open()
    seen = looking.result()
    running.result()
    assert seen["a"] == seen["b"] and state == {"a": 1, "b": 1}


@LOCKS
def test_transactions_are_inside_together(make_lock):
    lock, first, second = make_lock(), Latch(), Latch()

    def step(mine, other):
        with lock:
            mine.open()
            other.wait()

    before = core.stats()["exclusives"]
    for running in transact(step, first, second), transact(step, second, first):
        running.result()
    assert core.stats()["exclusives"] == before and try_lock(lock)


def test_effects_come_before_the_lock_is_free():
    lock, inside, waits = threading.Lock(), Latch(), Latch()
    effects = []

    def step():
        with lock:
            pass
        inside.open()
        waits.wait()
        core.defer(effects.append, "commit")

    running = transact(step)
    inside.wait()
    looking = Worker(asleep_for(lock), lambda: effects.append("thread"))
    parked(looking)
    waits.open()
    running.result()
    looking.result()
    assert effects == ["commit", "thread"]


@LOCKS
def test_a_thread_that_waits_goes_before_transactions_to_come(make_lock):
    lock, inside, go_on = make_lock(), Latch(), Latch()

    def hold():
        with lock:
            inside.open()
            go_on.wait()

    holding = transact(hold)
    inside.wait()
    assert core.Transaction(lambda: lock.acquire(False) and lock.release(), ()).run() is None
    waiting = Worker(asleep_for(lock), lambda: "thread")
    while core.Transaction(taken_and_given_back, (lock,)).run():
        pass  # the thread is not asleep yet
    go_on.open()
    holding.result()
    assert waiting.result() == "thread" and try_lock(lock)


def test_a_lock_kept_over_commits_is_between_the_program_and_threads():
    lock = threading.Lock()
    core.Transaction(lock.acquire, ()).run()
    assert lock.locked()

    def give_back_at_last():
        rehearsal = core.rehearse()
        lock.release()
        with lock:
            pass
        if rehearsal:
            assert not try_lock(lock)
            raise core.Abort

    core.Transaction(give_back_at_last, ()).run()
    assert try_lock(lock)


def test_an_attempt_that_is_rolled_back_leaves_the_lock_as_it_was():
    lock = threading.Lock()
    lock.acquire()
    seen = []

    def step():
        if core.rehearse():
            lock.release()
            seen.append(lock.locked())
            raise core.Abort

    core.Transaction(step, ()).run()
    assert lock.locked() and seen == []
    lock.release()


def test_what_a_transaction_gives_back_of_a_thread_is_free_at_its_commit():
    """As a condition does that notifies a thread."""
    signal, inside, go_on = threading.Lock(), Latch(), Latch()
    signal.acquire()

    def notify():
        signal.release()
        inside.open()
        go_on.wait()

    waiting = Worker(signal.acquire)
    parked(waiting)
    running = transact(notify)
    inside.wait()
    assert waiting.is_alive() and signal.locked()
    go_on.open()
    running.result()
    assert waiting.result() is True


# ---- A thread has the lock -------------------------------------------------------------------------------------------------


@LOCKS
def test_a_transaction_waits_for_a_thread_and_is_alone_for_nobody(make_lock):
    lock, taken, give_back = make_lock(), Latch(), Latch()
    state = []

    def thread():
        with lock:
            state.append("half")
            taken.open()
            give_back.wait()
            state.append("whole")

    def step():
        with lock:
            return list(state)

    before = core.stats()["exclusives"]
    holding = Worker(thread)
    taken.wait()
    running = transact(step)
    # Others go on meanwhile, even alone.
    assert core.Transaction(lambda: len([1]), ()).run() == 1
    with transaction.atomic:
        pass
    give_back.open()
    holding.result()
    assert running.result() == ["half", "whole"]
    assert core.stats()["exclusives"] == before + 1  # the atomic block


@LOCKS
def test_an_atomic_block_inside_a_lock_for_which_a_transaction_waits(make_lock):
    lock, taken, asked = make_lock(), Latch(), Latch()

    def thread():
        with lock:
            taken.open()
            asked.wait()
            with transaction.atomic:
                return "both"

    def step():
        asked.open()
        with lock:
            return "after"

    holding = Worker(thread)
    taken.wait()
    running = transact(step)
    assert holding.result() == "both" and running.result() == "after"


@pytest.mark.parametrize("nested", [False, True])
def test_two_locks_in_either_order(nested):
    """The transaction has given the first one back, or not: then the thread takes it for no longer than a moment."""
    one, two = threading.Lock(), threading.Lock()
    thread_has_two, transaction_had_one = Latch(), Latch()
    entered = []

    def thread():
        with two:
            thread_has_two.open()
            transaction_had_one.wait()
            if nested:
                if one.acquire(timeout=0.001):
                    one.release()
            else:
                with one:
                    entered.append("thread")

    def step():
        with one:
            if not nested:
                pass
            else:
                transaction_had_one.open()
                with two:
                    entered.append("transaction")
        transaction_had_one.open()
        if not nested:
            with two:
                entered.append("transaction")

    running = Worker(thread)
    thread_has_two.wait()
    transact(step).result()
    running.result()
    assert entered == (["transaction"] if nested else ["thread", "transaction"])


def test_what_cannot_be_rolled_back_any_more_waits_too():
    one, two = threading.Lock(), threading.Lock()
    has_two, had_one = Latch(), Latch()

    def thread():
        with two:
            has_two.open()
            had_one.wait()
            with one:
                return "thread"

    def step():
        core.irrevocable("a test")
        with one:
            pass
        had_one.open()
        with two:
            return "transaction"

    running = Worker(thread)
    has_two.wait()
    assert transact(step).result() == "transaction" and running.result() == "thread"


def test_asking_for_a_lock_that_a_thread_has():
    lock, taken, give_back = threading.Lock(), Latch(), Latch()

    def thread():
        with lock:
            taken.open()
            give_back.wait()

    def ask():
        return lock.locked(), lock.acquire(False), lock.acquire(blocking=False), lock.acquire(timeout=0.001)

    holding = Worker(thread)
    taken.wait()
    assert core.Transaction(ask, ()).run() == (True, False, False, False)
    give_back.open()
    holding.result()
    assert core.Transaction(lambda: lock.acquire(timeout=TIMEOUT) and lock.release(), ()).run() is None
    assert try_lock(lock)


@pytest.mark.parametrize("arguments", [(False, 1), (True, -2), (True, 1e300), (True, "soon"), (True, 1, 2)])
@LOCKS
def test_bad_arguments_are_complained_about_as_ever(make_lock, arguments):
    lock = make_lock()

    def complaint():
        try:
            lock.acquire(*arguments)
        except Exception as e:
            return type(e), str(e)

    assert core.Transaction(complaint, ()).run() == complaint() is not None


@LOCKS
def test_giving_back_what_nobody_has(make_lock):
    lock = make_lock()

    def complaint():
        try:
            lock.release()
        except RuntimeError as e:
            return str(e)

    def after_use():
        with lock:
            pass
        return complaint()

    assert core.Transaction(complaint, ()).run() == complaint() == core.Transaction(after_use, ()).run() is not None
    assert try_lock(lock)


def test_a_lock_that_is_taken_twice_looks_taken():
    lock, recursive = threading.Lock(), threading.RLock()

    def step():
        with lock, recursive, recursive:
            return (lock.locked(), lock.acquire(False), recursive._is_owned(), recursive._recursion_count())

    assert core.Transaction(step, ()).run() == (True, False, True, 2)
    assert try_lock(lock) and try_lock(recursive)


# ---- Transactions that wait for what a thread does -------------------------------------------------------------------------


@pytest.mark.parametrize("nap", [None, 0.001])
def test_a_transaction_that_polls_under_a_lock_comes_to_its_end(nap):
    """On one thread beside others it would see at last what the thread does under the same lock."""
    lock, begun = threading.Lock(), Latch()
    state = {"done": False}

    def thread():
        begun.wait()
        with lock:
            state["done"] = True

    def poll():
        rounds = 0
        while True:
            rounds += 1
            with lock:
                if state["done"]:
                    return rounds
            begun.open()
            if nap is not None:
                time.sleep(nap)

    other = Worker(thread)
    assert transact(poll).result() > 0
    other.result()


def test_a_transaction_that_waits_for_a_condition_of_a_thread():
    condition, items, begun = threading.Condition(), [], Latch()

    def thread():
        begun.wait()
        with condition:
            items.append(1)
            condition.notify()

    def step():
        with condition:
            begun.open()
            condition.wait_for(lambda: items)
            return items.pop()

    other = Worker(thread)
    assert transact(step).result() == 1
    other.result()


def waits_for_a_semaphore():
    semaphore = threading.Semaphore(0)
    return semaphore.acquire, semaphore.release, True


def waits_for_an_event():
    event = threading.Event()
    return event.wait, event.set, True


def waits_at_a_barrier():
    barrier = threading.Barrier(2)
    return lambda: barrier.wait() in (0, 1), barrier.wait, True


def waits_for_a_queue():
    items = queue.Queue()
    return items.get, lambda: items.put("item"), "item"


def waits_for_room_in_a_queue():
    items = queue.Queue(1)
    items.put("old")
    return lambda: items.put("new"), items.get, None


def waits_for_a_simple_queue():
    items = queue.SimpleQueue()
    return items.get, lambda: items.put("item"), "item"


def waits_for_a_future():
    future = concurrent.futures.Future()
    return future.result, lambda: future.set_result("result"), "result"


def waits_with_a_limit():
    event = threading.Event()
    return lambda: event.wait(TIMEOUT), event.set, True


WAITS = pytest.mark.parametrize("make", [
    waits_for_a_semaphore, waits_for_an_event, waits_at_a_barrier, waits_for_a_queue, waits_for_room_in_a_queue,
    waits_for_a_simple_queue, waits_for_a_future, waits_with_a_limit,
])


@WAITS
def test_a_handler_that_waits_for_a_thread(make):
    wait, end, expected = make()
    begun = Latch()

    def step():
        begun.open()
        return wait()

    def thread():
        begun.wait()
        end()

    other = Worker(thread)
    assert transact(step).result() == expected
    other.result()


@WAITS
def test_a_thread_that_waits_for_a_handler(make):
    wait, end, expected = make()
    waiting = Worker(wait)
    parked(waiting)
    if make is not waits_at_a_barrier:  # which waits for the thread in its turn
        core.inject_aborts(0.05, 1)
    try:
        core.Transaction(lambda: end() and None, ()).run()
    finally:
        core.inject_aborts(0.0, 0)
    assert waiting.result() == expected


def test_an_event_is_not_seen_set_by_an_attempt_that_is_rolled_back():
    event, begun, looked = threading.Event(), Latch(), Latch()

    def step():
        rehearsal = core.rehearse()
        event.set()
        if rehearsal:
            begun.open()
            looked.wait()
            raise core.Abort

    def look():
        begun.wait()
        seen = event.is_set()
        looked.open()
        return seen

    looking = Worker(look)
    running = transact(step)
    # A rehearsal never becomes irrevocable: it ends where it would.
    running.result()
    begun.open()
    looking.result()
    assert event.is_set()


def test_the_items_of_a_list_may_have_locks_of_their_own():
    locks, counts = [threading.Lock(), threading.Lock()], [0, 0]
    inside, counted = Latch(), Latch()

    def step():
        rehearsal = core.rehearse()
        with locks[0]:
            counts[0] += 1
        inside.open()
        counted.wait()
        if rehearsal:
            raise core.Abort

    def thread():
        inside.wait()
        with locks[1]:
            counts[1] += 1
        counted.open()

    other = Worker(thread)
    transact(step).result()
    other.result()
    assert counts == [1, 1]


# ---- On a loop ---------------------------------------------------------------------------------------------------------------


def on_a_loop(main, threads=4):
    tornado.stm.run(main(), threads=threads)


def test_an_rlock_belongs_to_the_loop_whichever_thread_runs_the_step():
    lock, seen = threading.RLock(), []

    async def main():
        with lock:  # the first thread's, as elsewhere
            for _ in range(20):
                await asyncio.sleep(0)
                with lock:
                    seen.append((lock._is_owned(), try_from_a_thread()))
        await asyncio.gather(*[step() for _ in range(20)])

    async def step():
        lock.acquire()
        lock.release()

    def try_from_a_thread():
        return Worker(lock.acquire, False).result()

    on_a_loop(main)
    assert set(seen) == {(True, False)} and try_lock(lock)


def test_an_rlock_that_the_thread_of_the_loop_has_outside_of_transactions():
    """Which is a thread like any other there: it works beside them."""
    lock, seen = threading.RLock(), []

    async def main():
        seen.append((lock.acquire(False), lock._is_owned()))

    with lock:
        on_a_loop(main)
    assert seen == [(False, False)] and try_lock(lock)


def test_an_rlock_that_code_takes_again_which_is_called_from_c():
    """Where that C code has threads of its own liking, the transaction is on another one meanwhile."""
    lock, answers = threading.RLock(), []
    database = sqlite3.connect(":memory:")

    def locked():
        with lock:
            return lock._is_owned() + lock._recursion_count()

    async def step():
        with lock:
            answers.append(database.execute("select locked()").fetchone())

    async def main():
        database.create_function("locked", 0, locked)
        for _ in range(10):
            await asyncio.gather(step())

    on_a_loop(main)
    assert answers == [(3,)] * 10 and try_lock(lock)


def test_a_queue_between_handlers_and_threads():
    items, received = queue.Queue(), []

    def drain():
        while (item := items.get()) is not None:
            received.append(item)

    async def handler(number):
        for i in range(10):
            items.put((number, i))
            for _ in range(500):
                pass
            await asyncio.sleep(0)

    async def main():
        drains = [asyncio.to_thread(drain) for _ in range(2)]
        tasks = [asyncio.ensure_future(each) for each in drains]
        await asyncio.gather(*[handler(i) for i in range(20)])
        for _ in drains:
            items.put(None)
        await asyncio.gather(*tasks)

    on_a_loop(main)
    assert sorted(received) == [(number, i) for number in range(20) for i in range(10)]


def test_a_counter_under_a_lock_of_handlers_and_threads():
    lock = threading.Lock()
    state = {"first": 0, "second": 0}
    torn = []

    def change(spins):
        with lock:
            if state["first"] != state["second"]:
                torn.append(dict(state))
            state["first"] += 1
            for _ in range(spins):
                pass
            state["second"] += 1

    async def handler():
        for _ in range(10):
            change(500)
            await asyncio.sleep(0)

    def thread():
        for _ in range(50):
            change(100)

    async def main():
        await asyncio.gather(*[handler() for _ in range(10)], *[asyncio.to_thread(thread) for _ in range(3)])

    on_a_loop(main)
    assert state == {"first": 250, "second": 250} and torn == []


def test_starting_threads_at_a_commit_that_others_look_at():
    """`threading` has locks too: of the list of threads, of pools."""

    async def handler(number):
        loop = asyncio.get_running_loop()
        alive = threading.active_count()
        answer = await loop.run_in_executor(None, number.__add__, 1)
        return alive > 0 and len(threading.enumerate()) > 0 and answer == number + 1

    async def main():
        results.extend(await asyncio.gather(*[handler(i) for i in range(40)]))

    results = []
    on_a_loop(main)
    assert results == [True] * 40


def test_an_executor_that_has_been_shut_down_takes_nothing_from_a_transaction():
    """And whoever asks is told at once, not by the future."""
    executor = concurrent.futures.ThreadPoolExecutor(1)

    async def main():
        executor.shutdown()
        with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
            asyncio.get_running_loop().run_in_executor(executor, print)

    on_a_loop(main)


@pytest.fixture
def pool_of_one():
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        yield executor


def test_what_a_pool_has_done_before_anybody_asks_is_told_by_its_thread(pool_of_one):
    """As what it does next: it was told by the thread that had handed it over, at the end of that commit, after some of what followed."""
    submit = pool_of_one.submit

    def over_at_once(function, *args):
        submitted = submit(function, *args)
        concurrent.futures.wait([submitted])
        return submitted

    async def main():
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def call_soon_threadsafe(*args):
            tellers.add(threading.current_thread())
            return call(*args)

        loop.call_soon_threadsafe = call_soon_threadsafe
        jobs = [loop.run_in_executor(pool_of_one, functools.partial(divmod, 7), i) for i in (2, 3)]
        results.extend(await asyncio.gather(*jobs))

    tellers, results = set(), []
    pool_of_one.submit = over_at_once
    on_a_loop(main)
    assert results == [(3, 1), (2, 1)] and tellers == pool_of_one._threads


def test_what_a_pool_has_been_given_and_has_made_dies_with_the_last_that_has_it():
    """It lived until the next collection of garbage, however large it was, for the pool's future and what waits for it had each other."""

    class Large:
        pass

    def make(large):
        if large is None:
            raise ValueError(Large())
        return Large()

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(20):
            given = Large()
            made = await loop.run_in_executor(executor, make, given)
            dead.extend(map(weakref.ref, (given, made)))
            given = made = None
            try:
                await loop.run_in_executor(executor, make, None)
            except ValueError as e:
                dead.append(weakref.ref(e.args[0]))

    dead = []
    collects = gc.isenabled()
    gc.disable()
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            on_a_loop(main)
        assert sum(each() is not None for each in dead) == 0 and len(dead) == 60
    finally:
        if collects:
            gc.enable()


def test_what_somebody_wraps_for_a_pool_is_told_as_well(pool_of_one):
    """Tools that follow what is handed to threads do that."""
    submit, wrapped = pool_of_one.submit, []

    def wrapping(function, *args):
        wrapped.append(args)
        return submit(lambda: function(*args))

    async def main():
        loop = asyncio.get_running_loop()
        results.extend(await asyncio.gather(*[loop.run_in_executor(pool_of_one, str, i) for i in range(3)]))

    results = []
    pool_of_one.submit = wrapping
    on_a_loop(main)
    assert results == ["0", "1", "2"] and wrapped == [(0,), (1,), (2,)]


def test_the_traceback_of_what_fails_on_a_thread_of_a_pool(pool_of_one):
    def fails():
        raise ValueError

    def frames(raised):
        frames = [frame for frame, _ in traceback.walk_tb(raised.__traceback__)]
        names = [frame.f_code.co_name for frame in frames]
        at = names.index("run")
        return names[at:], [frame.f_locals.get("fn") for frame in frames[at:]]

    async def main():
        with pytest.raises(ValueError) as raised:
            await asyncio.get_running_loop().run_in_executor(pool_of_one, fails)
        seen.append(frames(raised.value))

    seen = []
    on_a_loop(main)
    assert seen == [frames(pool_of_one.submit(fails).exception())]


def test_a_pool_that_has_no_thread_for_what_it_keeps(pool_of_one):
    """Whoever has handed that over is told so; that it is done later all the same is told to nobody."""
    submit = pool_of_one.submit

    def without_thread(function, *args):
        concurrent.futures.wait([submit(function, *args)])
        raise RuntimeError("can't start new thread")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        results.extend(await asyncio.gather(loop.run_in_executor(pool_of_one, str, 1), return_exceptions=True))
        await asyncio.sleep(0.01)

    results, complaints = [], []
    pool_of_one.submit = without_thread
    on_a_loop(main)
    assert complaints == [] and str(results[0]) in ("1", "can't start new thread")


# ---- Forks -------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # the point
def test_in_a_child_locks_of_transactions_that_are_not_there_are_free():
    lock, inside, go_on = threading.Lock(), Latch(), Latch()

    def step():
        with lock:
            inside.open()
            go_on.wait()

    running = transact(step)
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(False) else 1)
    status = os.waitpid(child, 0)[1]
    go_on.open()
    running.result()
    assert status == 0


@LOCKS
def test_a_tool_that_replaces_the_methods_of_locks(make_lock):
    """blockbuster does: its functions call the originals, which must not come back to them."""
    from tornado.stm import _engine

    lock, calls = make_lock(), []
    original = vars(type(lock))["acquire"]

    def acquire(self, *args, **kwargs):
        if self is lock:
            calls.append(1)
            assert len(calls) < 5, "it calls itself"
        return original(self, *args, **kwargs)

    def alone():
        core.exclusive("a test")
        taken = lock.acquire(False)
        lock.release()
        return taken

    _engine.set_in_type(type(lock), "acquire", acquire)
    try:
        taken = transact(alone).result()
    finally:
        _engine.set_in_type(type(lock), "acquire", original)
    assert taken and calls


# ---- Without a lock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", list(unlocked_beside.OBJECTS))
def test_single_operations_are_whole_beside_threads(made):
    done = subprocess.run(
        [sys.executable, "-m", "tornado.stm", "-j", "4", "tests/apps/unlocked_beside.py", made, "5000"],
        cwd=ROOT, capture_output=True, text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


# ---- A random mix --------------------------------------------------------------------------------------------------------------


def mix(threads, seed, rounds, seconds=0, engine=ROOT):
    """Run the rounds of apps/locked_beside.py on so many threads; what it prints if it finds something wrong."""
    done = subprocess.run(
        [sys.executable, "-c", planted.ELSEWHERE, str(engine), "-j", str(threads), "tests/apps/locked_beside.py", str(seed), str(rounds),
         str(seconds)],
        cwd=ROOT, capture_output=True, text=True,
    )
    lines = [line for line in done.stdout.splitlines() if not line.endswith(": right")]
    return "\n".join([f"status {done.returncode}", *lines, done.stderr] if done.returncode or lines else [])


@pytest.mark.parametrize("threads", [2, 4])
def test_a_random_mix_of_handlers_and_threads(threads):
    assert mix(threads, 1, 3) == ""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_random_mix_for_ten_minutes():
    """BESIDE_SECONDS is how long (default 600), BESIDE_SEED the first seed."""
    seconds = float(os.environ.get("BESIDE_SECONDS", 600))
    seed = int(os.environ.get("BESIDE_SEED") or int.from_bytes(os.urandom(3)))
    print(f"first seed: {seed}")
    for threads in (2, 4, 8):
        assert mix(threads, seed, 1, int(seconds / 3)) == ""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", planted.BUGS_BESIDE)
def test_the_mix_finds_planted_bugs(bug, tmp_path):
    planted.plant(bug, tmp_path)
    found = mix(4, 1, 100, engine=tmp_path)
    print(bug, found[:200])
    assert found


# ---- Queues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("put", [queue.SimpleQueue.put, queue.SimpleQueue.put_nowait])
def test_what_is_put_into_a_queue_is_there_at_the_commit(put):
    """As aiosqlite's connections do it, for a thread of theirs."""
    items, echo = queue.SimpleQueue(), queue.SimpleQueue()
    thread = Worker(lambda: [echo.put(items.get(timeout=TIMEOUT)) for _ in range(2)])

    def hand_over():
        put(items, "first"), put(items, "second")
        return core.is_exclusive()

    exclusive = core.Transaction(hand_over, ()).run()
    thread.result()
    assert exclusive is False
    assert [echo.get_nowait(), echo.get_nowait()] == ["first", "second"]


def test_an_aborted_attempt_puts_nothing_into_a_queue():
    items = queue.SimpleQueue()
    core.inject_aborts(0.2, 7)
    try:
        for i in range(50):
            core.Transaction(lambda: [items.put(i), [str(n) for n in range(20)]], ()).run()
    finally:
        core.inject_aborts(0, 0)
    assert [items.get_nowait() for _ in range(items.qsize())] == list(range(50))


def test_who_looks_at_a_queue_finds_what_the_transaction_has_put():
    items = queue.SimpleQueue()

    def put_and_get():
        items.put(item="mine", block=True, timeout=None)
        return items.qsize(), items.get(), core.is_exclusive()

    assert core.Transaction(put_and_get, ()).run() == (1, "mine", True)


def test_a_queue_says_what_is_wrong_at_once():
    def put_nothing():
        with pytest.raises(TypeError):
            queue.SimpleQueue().put()

    core.Transaction(put_nothing, ()).run()
