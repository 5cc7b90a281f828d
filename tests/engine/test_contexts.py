"""Context variables: a transaction of a queue runs in a copy of the context in which it was added."""

import contextvars
import gc
import threading
import weakref
from collections import Counter

import pytest

from tornado.stm import activation, core, transaction
from tornado.stm.transaction import TransactionQueue

TIMEOUT = 60

colour = contextvars.ContextVar("colour", default="none")
number = contextvars.ContextVar("number")


@pytest.fixture(params=[1, 2, 4], autouse=True)
def threads(request):
    transaction.set_threads(request.param)
    yield request.param
    transaction.set_threads(None)
    core.inject_aborts(0, 0)


def in_a_context(function, *args):
    return contextvars.copy_context().run(function, *args)


def run_all(*functions):
    queue = TransactionQueue()
    for function in functions:
        queue.add(function)
    queue.run()


def test_the_context_is_that_of_add():
    seen = []
    queue = TransactionQueue()

    def look(n):
        core.defer(seen.append, (n, colour.get()))

    def add_all():
        for n, value in enumerate(["red", "green", "blue"]):
            colour.set(value)
            queue.add(look, n)
        colour.set("black")
        queue.run()
        return colour.get()

    assert in_a_context(add_all) == "black"
    queue.add(look, 3)
    queue.run()
    assert sorted(seen) == [(0, "red"), (1, "green"), (2, "blue"), (3, "none")]


def test_what_is_set_ends_with_the_transaction():
    found = []

    def change():
        found.append(colour.get())
        colour.set("changed")
        found.append(colour.get())

    run_all(*[change] * 20)
    assert found == ["none", "changed"] * 20
    assert colour.get() == "none"


def test_also_on_a_thread_that_has_no_context():
    found = []

    def work():
        run_all(*[lambda: found.append((colour.get(), colour.set("changed").old_value))] * 3)
        found.append(colour.get())

    thread = threading.Thread(target=work, context=contextvars.Context())
    thread.start()
    thread.join(TIMEOUT)
    assert found == [("none", contextvars.Token.MISSING)] * 3 + ["none"]


def test_what_a_transaction_adds_has_its_context():
    seen = []
    queue = TransactionQueue()

    def parent():
        colour.set("before")
        queue.add(child, 1)
        colour.set("after")
        queue.add(child, 2)
        contextvars.Context().run(queue.add, child, 3)

    def child(n):
        core.defer(seen.append, (n, colour.get()))
        colour.set("child")

    queue.add(parent)
    queue.run()
    assert sorted(seen) == [(1, "before"), (2, "after"), (3, "none")]


def test_tokens_and_copies_outlive_it():
    kept = []

    def keep():
        token = colour.set("kept")
        number.set(5)
        core.defer(kept.append, (token, contextvars.copy_context()))

    run_all(keep, keep, keep)
    assert [(token.old_value, context[colour], context[number]) for token, context in kept] == [(contextvars.Token.MISSING, "kept", 5)] * 3
    for token, _ in kept:
        with pytest.raises(ValueError):
            colour.reset(token)
    run_all(keep)
    assert len(kept) == 4


def test_reset_and_other_contexts_inside():
    found = []

    def change():
        token = colour.set("first")
        second = colour.set("second")
        copy = contextvars.copy_context()
        copy.run(colour.set, "in the copy")
        colour.reset(second)
        found.append((colour.get(), copy[colour]))
        colour.reset(token)
        found.append(colour.get())

    run_all(change, change)
    assert found == [("first", "in the copy"), "none"] * 2


def test_after_an_exception():
    def fail():
        colour.set("failed")
        raise ValueError

    for _ in range(3):
        with pytest.raises(ValueError):
            run_all(fail)
        found = []
        run_all(lambda: found.append(colour.get()))
        assert found == ["none"] and colour.get() == "none"


@pytest.mark.skipif(not core.PARALLEL, reason="no attempt is ever rolled back")
def test_aborted_attempts_leave_no_trace():
    found, table = [], {}
    queue = TransactionQueue()

    def change(n):
        number.set(number.get() + 1)
        table[n % 3] = table.get(n % 3, 0) + 1
        number.set(number.get() + 1)
        core.defer(found.append, number.get())
        if n < 50:
            queue.add(change, n + 50)

    def add_all():
        number.set(0)
        for n in range(50):
            queue.add(change, n)
        aborts = core.stats()["aborts"]
        core.inject_aborts(0.2, 1)
        queue.run()
        return core.stats()["aborts"] - aborts, number.get()

    for _ in range(3):
        found.clear()
        aborts, mine = in_a_context(add_all)
        assert aborts > 0 and mine == 0
        assert Counter(found) == {2: 50, 4: 50}


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
def test_setting_does_not_run_alone():
    def change():
        token = colour.set("x")
        number.set(1)
        colour.reset(token)
        return contextvars.copy_context()

    run_all(change)
    before = core.stats()["exclusives"]
    run_all(*[change] * 20)
    assert core.stats()["exclusives"] == before


def test_what_it_has_set_dies():
    class Value:
        pass

    dead = []

    def keep():
        value = Value()
        colour.set(value)
        core.defer(dead.append, weakref.ref(value))

    run_all(keep, keep)
    run_all(lambda: None)
    gc.collect()
    assert [ref() for ref in dead] == [None, None]


@pytest.mark.skipif(not core.PARALLEL, reason="no attempt is ever rolled back")
def test_a_thread_without_a_context_gets_one_and_the_attempt_is_aborted():
    found = []

    @core.trusted
    def abort_once(attempts):
        attempts.append(1)
        if len(attempts) == 1:
            raise core.Abort

    def work():
        attempts = []

        def step():
            found.append(colour.get())
            colour.set("changed")
            abort_once(attempts)

        core.Transaction(step, ()).run()

    activation.activate()
    # This way a thread begins without a context, even where it would get a copy of its maker's.
    import _thread
    done = threading.Event()

    @core.trusted
    def whole():
        try:
            work()
        finally:
            done.set()

    _thread.start_new_thread(whole, ())
    assert done.wait(TIMEOUT)
    assert found == ["none"]
