"""Signals that arrive while the main thread runs a queue: the handler is called once, and its exception ends the run.

Outside of that, it comes out of whatever is interrupted, and leaves nothing half done.
"""

import _thread
import contextlib
import os
import random
import select
import signal
import threading
import time
import weakref

import pytest

from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
from tornado.stm.transaction import TransactionQueue

activation.activate()


class Interrupted(Exception):
    pass


MAIN = threading.main_thread().ident


@trusted  # and calls nothing that is not, and might be rolled back
def send():
    """A signal to the main thread, which has arrived when this returns there."""
    signal.pthread_kill(MAIN, signal.SIGUSR1)


@trusted
def on_main():
    return threading.get_ident() == MAIN


@pytest.fixture(params=[(1, 1), (1, 0), (3, 0)], ids=["sequential", "1", "3"])
def calls(request):
    """How the handler has been called; it raises Interrupted where that list has not been told to be quiet."""
    calls = []

    def handler(signum, frame):
        calls.append(signum)
        if calls[0] != "quiet":
            raise Interrupted

    threads, sequential = request.param
    transaction.set_threads(threads)
    sequential_before = core.set_sequential(sequential)
    before = signal.signal(signal.SIGUSR1, handler)
    yield calls
    core.set_sequential(sequential_before)
    assert signal.getsignal(signal.SIGUSR1) is handler
    signal.signal(signal.SIGUSR1, before)
    transaction.set_threads(None)


def endless(queue, act):
    act()
    queue.add(endless, queue, act)


def interrupted(act):
    """Run transactions that never end until a signal comes.

    Args:
        act: called by those on the main thread with a function that sends the signal, the first time that it is called.
    """
    sent = []

    @trusted
    def send_once():
        if not sent:
            sent.append(True)
            send()

    def act_on_main():
        if on_main():
            act(send_once)

    queue = TransactionQueue()
    for _ in range(4):
        queue.add(endless, queue, act_on_main)
    with pytest.raises(Interrupted):
        queue.run()


def test_in_the_transactions_code(calls):
    interrupted(lambda send: send())
    assert calls == [signal.SIGUSR1]


def test_while_it_commits(calls):
    interrupted(lambda send: core.defer(send))
    assert calls == [signal.SIGUSR1]


@pytest.mark.skipif(not core.PARALLEL, reason="the interpreter ignores that exception")
@pytest.mark.parametrize("calls", [(1, 0), (3, 0)], ids=["1", "3"], indirect=True)  # as it does in a sequential one
def test_in_a_weak_references_callback_after_the_commit(calls):
    box = []

    class Dying:
        pass

    def act(send):
        box.append(Dying())
        box.append(weakref.ref(box[0], lambda _: send()))
        del box[0]
        del box[:-1]

    interrupted(act)
    assert calls == [signal.SIGUSR1]


def test_from_another_thread(calls):
    running = threading.Event()

    def kill():
        assert running.wait(60)
        send()

    killer = threading.Thread(target=kill)
    killer.start()
    interrupted(lambda send: core.defer(running.set))
    killer.join(60)
    assert calls == [signal.SIGUSR1]


def test_an_attempt_that_is_rolled_back_does_not_lose_it(calls):
    core.inject_aborts(0.2, 9)
    try:
        interrupted(lambda send: send())
    finally:
        core.inject_aborts(0, 0)
    assert calls == [signal.SIGUSR1]


def test_the_transaction_goes_on_after_a_handler_that_returns(calls):
    calls.append("quiet")
    table = {}
    queue = TransactionQueue()

    def work(i):
        table[i] = "begun"
        if on_main():
            send()
        table[i] = "ended"

    for i in range(30):
        queue.add(work, i)
    queue.run()
    assert table == {i: "ended" for i in range(30)}


def test_what_was_done_before_stays(calls):
    table = {}
    queue = TransactionQueue()

    def work():
        table["before"] = True
        signal.raise_signal(signal.SIGUSR1)
        for _ in range(10):
            table["after"] = True

    queue.add(work)
    with pytest.raises(Interrupted):
        queue.run(nb_segments=1)
    assert table == {"before": True}
    queue.add(table.clear)
    queue.run()
    assert table == {}


# ---- What waits is broken off ------------------------------------------------------------------------------------------


def sleep():
    time.sleep(60)


def sleep_alone():
    core.exclusive("a test")
    time.sleep(60)


def sleep_for_good():
    core.irrevocable("a test")
    time.sleep(60)


def take_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=60)


def wait_for_a_descriptor():
    select.select([silent], [], [], 60)


silent, _writer = os.pipe()


def wait_for_an_event():
    threading.Event().wait(60)


def take_a_threads_lock():
    lock = _thread.allocate_lock()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    return lock


kept = take_a_threads_lock()


def take_what_a_thread_has():
    with kept:
        pass


@pytest.mark.parametrize("main", [True, False], ids=["main", "helper"])
@pytest.mark.parametrize(
    "wait",
    [sleep, sleep_alone, sleep_for_good, take_a_lock, wait_for_a_descriptor, wait_for_an_event, take_what_a_thread_has],
    ids=lambda wait: wait.__name__,
)
def test_what_waits_is_broken_off(calls, wait, main):
    if not core.PARALLEL or (not main and transaction.getsegmentlimit() == 1):
        pytest.skip("there is one thread")
    queue, waits = TransactionQueue(), _thread.allocate_lock()
    waits.acquire()

    def act():
        if on_main() is main:
            tell()
            wait()
        elif not let_the_other_begin():
            queue.add(act)

    begun = []

    @trusted
    def tell():
        if not begun:
            begun.append(True)
            waits.release()

    @trusted
    def let_the_other_begin():
        time.sleep(0.001)
        return bool(begun)

    def interrupt():
        waits.acquire()
        send()

    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    for _ in range(2):
        queue.add(act)
    with pytest.raises(Interrupted):
        queue.run()
    interrupter.join()
    assert calls == [signal.SIGUSR1]


def test_control_c_ends_a_run_beside_what_computes_on_and_on(calls):
    queue, waits = TransactionQueue(), _thread.allocate_lock()
    waits.acquire()

    @trusted
    def tell():
        if waits.locked():
            waits.release()

    def act():
        tell()
        while True:
            pass

    def interrupt():
        waits.acquire()
        signal.pthread_kill(MAIN, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    queue.add(act)
    with pytest.raises(KeyboardInterrupt):
        queue.run()
    interrupter.join()


# ---- Outside of a run --------------------------------------------------------------------------------------------------


@pytest.fixture
def interrupt():
    """A function that calls another one, amid which a signal comes at some moment, and says whether that has returned."""
    told = []

    def handler(signum, frame):
        told.append(signum)
        raise Interrupted

    def call(function, *args):
        del told[:]
        raised, returned = 0, False
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-4))
            function(*args)
            returned = True
            while not told:
                pass
        except Interrupted:
            raised += 1
        try:
            while not told:
                pass
        except Interrupted:
            raised += 1
        assert raised == len(told) == 1
        assert not core.in_transaction()
        return returned

    before = signal.signal(signal.SIGALRM, handler)
    yield call
    signal.signal(signal.SIGALRM, before)


def get_one(between, got):
    got.append(between.get(timeout=1))


def taken_from(between):
    taken = []
    with contextlib.suppress(transaction.Empty):
        while True:
            taken.append(between.get(block=False))
    return taken


@pytest.mark.skipif(not core.PARALLEL, reason="the serial engine does not care for that")
class TestAtAnyMoment:
    def test_of_an_atomic_block(self, interrupt):
        entered = []

        def block():
            with transaction.atomic:
                entered.append(True)

        for _ in range(1000):
            interrupt(block)
        assert entered

    def test_of_putting(self, interrupt):
        between = transaction.queue()
        put = {i for i in range(1000) if interrupt(between.put, i)}
        got = taken_from(between)
        assert put <= set(got) and len(set(got)) == len(got)

    def test_of_getting(self, interrupt):
        between, got = transaction.queue(), []
        for i in range(1000):
            between.put(i)
            interrupt(get_one, between, got)
        got += taken_from(between)
        assert len(set(got)) == len(got)
        between.put(1)
        assert between.get() == 1

    def test_of_saying_that_it_is_done(self, interrupt):
        between = transaction.queue()
        for i in range(1000):
            between.put(i)
            interrupt(between.task_done)
        left = len(between._open)
        for _ in range(left):
            between.task_done()
        between.join()
