"""Signals that arrive while the main thread runs a queue: the handler is called once, and its exception ends the run."""

import signal
import threading
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
