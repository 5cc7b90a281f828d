"""A thread that a transaction starts begins when that has committed, and never for an attempt that was rolled back."""

import _thread
import asyncio
import concurrent.futures
import contextvars
import threading
import time
import types

import pytest

import apart
from interpreters import needs_engine
from tornado import stm
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted

needs_engine()

from meeting import APART, is_alone, meet, run
from progress import TIMEOUT

activation.activate()


def threads_that_run(function, *args):
    """Those that the calls of a transaction, rolled back now and then, have started; and what its calls returned, alone or not."""
    core.inject_aborts(0.02, 5)
    try:
        queue = transaction.TransactionQueue()
        for i in range(100):
            queue.add(function, i, *args)
        queue.run()
    finally:
        core.inject_aborts(0, 5)


def test_each_begins_once():
    ran, started = [], []

    def start(i):
        thread = threading.Thread(target=ran.append, args=(i,))
        thread.start()
        started.append((i, thread, is_alone()))

    before = core.stats()["aborts"]
    threads_that_run(start)
    for _, thread, _ in started:
        thread.join(TIMEOUT)
    assert sorted(ran) == sorted(i for i, _, _ in started) == list(range(100))
    assert core.stats()["aborts"] > before
    assert sum(alone for _, _, alone in started[20:]) < 8  # what is rolled back again and again is alone at last, whatever it does
    assert threading.enumerate().count(threading.main_thread()) == 1
    assert not any(thread in threading.enumerate() for _, thread, _ in started)


def test_to_the_transaction_it_is_there():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait(TIMEOUT)

    def start():
        thread = threading.Thread(target=work, daemon=True)
        with pytest.raises(RuntimeError):
            thread.join()
        thread.start()
        with pytest.raises(RuntimeError):
            thread.start()
        return thread, thread.is_alive(), thread.ident, thread.native_id, begun._flag, is_alone()

    run(start)[0]
    thread, alive, ident, native_id, has_begun, alone = run(start)
    assert (alive, alone) == (True, False)
    assert begun.wait(TIMEOUT)
    assert (ident, native_id) == (thread.ident, thread.native_id)
    assert thread in threading.enumerate()
    go_on.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_whoever_waits_for_it_has_it_begin():
    ran = []

    def start_and_wait(i):
        thread = threading.Thread(target=ran.append, args=(i,))
        thread.start()
        thread.join(TIMEOUT)
        return list(ran), thread in threading.enumerate()

    assert run(start_and_wait, 1) == ([1], False)
    assert run(start_and_wait, 2) == ([1, 2], False)


def test_one_that_was_made_before():
    ran = []
    for i in range(20):
        thread = threading.Thread(target=ran.append, args=(i,))
        tries = []

        def start():
            thread.start()
            tries.append(thread.ident)
            core.open_all(ran)

        core.inject_aborts(0.2, i)
        try:
            run(start)
        finally:
            core.inject_aborts(0, 1)
        thread.join(TIMEOUT)
    assert ran == list(range(20))


def test_what_an_attempt_has_made_does_not_end_on_the_thread():
    ended = []

    class Ends:
        def __del__(self):
            ended.append(threading.get_ident())

    def start():
        thread = threading.Thread(target=lambda own: None, args=(Ends(),))
        thread.start()
        attempts.append(1)
        return thread

    for i in range(30):
        attempts = []
        core.inject_aborts(0.05, i)
        try:
            thread = run(start)
        finally:
            core.inject_aborts(0, 1)
        thread.join(TIMEOUT)
        del thread
    assert len(ended) == 30


def test_it_gets_the_context_of_its_start():
    variable, seen = contextvars.ContextVar("variable"), []

    def start():
        variable.set("of the transaction")
        thread = threading.Thread(target=lambda: seen.append(variable.get("none")))
        thread.start()
        return thread

    contextvars.copy_context().run(run, start).join(TIMEOUT)
    assert seen == ["of the transaction"]


def test_an_exception_of_its_start(monkeypatch):
    import _thread

    def refuse(*args, **kwargs):
        raise RuntimeError("can't start new thread")

    def start():
        thread = threading.Thread(target=print)
        with pytest.raises(RuntimeError, match="new thread"):
            thread.start()
        return thread

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_joinable_thread", refuse)
        thread = run(start)
    assert not thread.is_alive() and thread not in threading.enumerate()
    thread.run = lambda: None
    thread.start()
    thread.join(TIMEOUT)


def test_two_that_start_one_each_go_on_side_by_side():
    def start():
        threading.Thread(target=int).start()

    assert meet(lambda: (), start, start) == APART


def test_an_executor_gets_what_has_committed():
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        ran, futures = [], []

        def submit(i):
            futures.append((i, executor.submit(ran.append, i), is_alone()))

        threads_that_run(submit)
        for _, future, _ in futures:
            assert future.result(TIMEOUT) is None
    assert sorted(ran) == list(range(100))
    assert sum(alone for _, _, alone in futures[20:]) < 8


def test_those_that_are_starting_may_be_looked_at():
    """The standard library's own tests do."""
    thread = threading.Thread(target=int)
    assert thread not in threading._limbo and list(threading._limbo) == []
    threading._limbo[thread] = thread
    assert thread in threading._limbo and list(threading._limbo) == [thread]
    del threading._limbo[thread]


state = {"amid": False, "until": 0.0}


def begin(lock):
    lock.release()


@trusted
def start_a_thread_and_wait():
    """As threading.Thread.start() does, at the commit."""
    state["amid"] = True
    time.sleep(0.05)  # meanwhile the other transaction waits for this one to be over
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(begin, (lock,))
    state["began"] = lock.acquire(timeout=TIMEOUT)


@trusted
def is_amid():
    return state["amid"] or time.monotonic() > state["until"]


def start():
    core.defer(start_a_thread_and_wait)


def go_alone(held):
    inner = held.inner  # borrowed
    while not is_amid():
        pass
    core.exclusive("something unknown")
    return inner


def threads_begin_beside_who_waits_to_be_alone():
    core.forget_bystanders()
    core.set_sequential(0)
    held = types.SimpleNamespace(inner=types.SimpleNamespace())
    began = []
    for amid in True, True, False, False:  # when all is known, one is amid its commit while the other one waits for that
        state.update(amid=amid, until=time.monotonic() + TIMEOUT)
        queue = transaction.TransactionQueue()
        queue.add(go_alone, held)
        queue.add(start)
        queue.run()
        began.append(state["began"])
    return began


def test_a_thread_begins_at_a_commit_though_another_transaction_waits_to_be_alone():
    """It waits for nobody who borrows, and who waits to be alone does not."""
    assert apart.in_a_process(__file__, "threads_begin_beside_who_waits_to_be_alone()") == [True] * 4


def test_a_pool_gets_threads_from_the_loop_s_thread_whichever_commits():
    """They are daemons if that is one, as the threads that run transactions are."""
    started = []

    async def use_a_pool_of_its_own(pool):
        sum(range(50_000))
        where = _thread.get_ident()  # the real one: that step commits there
        await asyncio.get_running_loop().run_in_executor(pool, int)
        started.append((where != threading.main_thread().ident, next(iter(pool._threads)).daemon))

    async def use_pools():
        for _ in range(500):
            pools = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(4)]
            await asyncio.gather(*map(use_a_pool_of_its_own, pools))
            for pool in pools:
                pool.shutdown(wait=False)
            if sum(elsewhere for elsewhere, _ in started) > 3:
                break
        return threading.enumerate()

    threads = stm.run(use_pools(), threads=2)
    assert any(elsewhere for elsewhere, _ in started)
    assert not any(daemon for _, daemon in started)
    assert not any(isinstance(thread, threading._DummyThread) for thread in threads)
