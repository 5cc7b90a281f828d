"""Transactions as objects, and what an ended one lets go of."""

import _thread
import gc
import os
import subprocess
import sys
import threading
import typing
import warnings
import weakref

import pytest

from beside import runs_beside_others
from interpreters import ROOT, needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from tornado.stm.core import trusted

activation.activate()

TIMEOUT = 60


def run(function, *args):
    return core.Transaction(function, args).run()


class Once:
    """Aborts the first attempt."""

    def __init__(self):
        self.attempts = []

    @trusted
    def __call__(self):
        self.attempts.append(core.is_exclusive())
        if len(self.attempts) == 1 and not core.is_exclusive():
            raise core.Abort


# ---- One transaction ------------------------------------------------------------------------------------------------


def test_two_threads_cannot_run_one_transaction():
    entered, leave, results = threading.Lock(), threading.Lock(), []
    entered.acquire(), leave.acquire()

    @trusted
    def stay():
        entered.release()
        assert leave.acquire(timeout=TIMEOUT)

    def function():
        stay()
        return "ran"

    transaction = core.Transaction(function, ())
    thread = threading.Thread(target=lambda: results.append(transaction.run()))
    thread.start()
    assert entered.acquire(timeout=TIMEOUT)
    with pytest.raises(RuntimeError):
        transaction.run()
    leave.release()
    thread.join(TIMEOUT)
    assert results == ["ran"]


def test_a_failed_transaction_can_be_collected():
    class Node:
        pass

    def fail(node):
        raise ValueError(node)

    node = Node()
    node.transaction = core.Transaction(fail, (node,))
    with pytest.raises(ValueError):
        node.transaction.run()
    ids = id(node)
    del node
    gc.collect()
    assert not any(id(o) == ids and isinstance(o, Node) for o in gc.get_objects())


# ---- After an abort --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_init", [False, True])
def test_finalizers_of_what_a_generator_made_in_an_aborted_attempt_have_no_effect(with_init):
    dead = []

    class Mortal:
        if with_init:

            def __init__(self):
                pass

        def __del__(self):
            dead.append(1)

    def generate():
        yield 0
        mortal = Mortal()
        yield 1
        del mortal
        yield 2

    once = Once()

    def step():
        next(generator)
        once()

    run(lambda: [Mortal(), Mortal()].clear())  # what has never been called before has to run alone
    dead.clear()
    generator = run(generate)
    run(next, generator)
    run(step)
    assert once.attempts == [False, False] and dead == []
    run(step)
    assert dead == [1]


def test_what_only_a_rolled_back_generator_refers_to_survives_a_garbage_collection():
    def generate():
        kept = a_class  # frames do not count their references to a class that they have from a global
        yield 0
        value = kept.x
        del kept
        yield value
        yield -value

    collect, over = threading.Lock(), threading.Lock()
    collect.acquire(), over.acquire()

    @trusted
    def collector():
        collect.acquire()
        gc.collect()
        over.release()

    @trusted
    def garbage_is_collected():
        if not once.attempts:
            collect.release()
            assert over.acquire(timeout=TIMEOUT)

    once = Once()

    def step():
        value = next(generator)
        garbage_is_collected()
        once()
        return value

    globals()["a_class"] = type("Kept", (), {"x": 1})
    run(lambda: [*generate()])
    thread = threading.Thread(target=collector)
    thread.start()
    generator = run(generate)
    run(next, generator)
    del globals()["a_class"]
    assert run(step) == 1
    thread.join(TIMEOUT)
    assert once.attempts == [False, False]
    assert next(generator) == -1


def test_what_a_trusted_finalizer_puts_off_after_an_abort_is_dropped():
    done, kept, once = [], [], Once()

    class Mortal:
        @trusted
        def __del__(self):
            core.defer(done.append, 1)

    def make():
        kept.append(Mortal())
        once()

    def drop():
        kept.clear()

    run(make)
    run(len, "")
    assert once.attempts == [False, False] and done == []
    run(drop)
    assert done == [1]


# ---- Objects that one thread makes and another one drops --------------------------------------------------------------

class Mortal:
    """Counts its end in a shared object, as an ordinary application's class."""

    def __init__(self, world):
        self.world = world

    def __del__(self):
        self.world.died += 1


class World:
    def __init__(self):
        self.died = 0
        self.kept = None

    def has_lost_one(self, reference):
        self.died += 1


def make_object(world):
    world.kept = Mortal(world)


def counting(world):
    try:
        yield
    finally:
        world.died += 1


def make_generator(world):
    world.kept = counting(world)
    next(world.kept)


async def counting_asynchronously(world):
    yield


def make_asynchronous_generator(world):
    world.kept = counting_asynchronously(world)
    next(world.kept.asend(None), None)


def end_of_asynchronous_generator(generator):
    generator.ag_frame.f_locals["world"].died += 1


class Plain:
    pass


def make_referenced(world):
    world.kept = Plain()
    world.reference = weakref.ref(world.kept, world.has_lost_one)


def make_referenced_by_function(world):
    def callback(reference, world=world):
        world.died += 1

    world.kept = Plain()
    world.reference = weakref.ref(world.kept, callback)


MAKERS = {
    "object": make_object,
    "generator": make_generator,
    "asynchronous generator": make_asynchronous_generator,
    "weak reference": make_referenced,
    "weak reference with a function": make_referenced_by_function,
    "weak reference made outside": trusted(lambda world: make_referenced_by_function(world)),
}


def drop(world):
    world.kept = None


class OtherThread:
    """Makes an object and sees it dropped by the thread of the test, in the middle of what it does then."""

    def __init__(self, make, then):
        self.world = World()
        self.make = make
        sys.set_asyncgen_hooks(finalizer=end_of_asynchronous_generator)
        for _ in range(2):  # what has never been called before has to run alone
            run(make, self.world)
            run(drop, self.world)
        sys.set_asyncgen_hooks(None, None)
        self.world.died = 0
        self.then = then
        self.made, self.dropped = threading.Lock(), threading.Lock()
        self.made.acquire(), self.dropped.acquire()

    @trusted
    def is_dropped(self):
        """Wait until it is.  The next call of a Python function is where the interpreter finds out."""
        if self.made.locked():
            self.made.release()
            assert self.dropped.acquire(timeout=TIMEOUT)

    def nothing(self):
        pass

    @trusted
    def work(self):
        sys.set_asyncgen_hooks(finalizer=end_of_asynchronous_generator)
        run(self.make, self.world)
        self.then(self)

    def run(self):
        thread = threading.Thread(target=self.work)
        thread.start()
        assert self.made.acquire(timeout=TIMEOUT)
        self.made.release()
        run(drop, self.world)
        self.dropped.release()
        thread.join(TIMEOUT)
        return self.world.died


@pytest.mark.parametrize("maker", MAKERS)
def test_the_finalizer_of_an_object_of_another_thread_survives_an_abort(maker):
    once = Once()

    def step(other):
        other.is_dropped()
        other.nothing()
        once()

    assert OtherThread(MAKERS[maker], trusted(lambda other: run(step, other))).run() == 1
    assert once.attempts in ([False, False], [True])


@pytest.mark.parametrize("maker", MAKERS)
def test_the_finalizer_of_an_object_of_another_thread_waits_for_a_place_of_its_own(maker):
    """While the thread runs the project's code, between transactions, it may have a lock in its hand."""
    seen = []

    @trusted
    def then(other):
        other.is_dropped()
        trusted(lambda: None)()  # here the interpreter finds out
        seen.append(other.world.died)
        core.settle()
        seen.append(other.world.died)

    assert OtherThread(MAKERS[maker], then).run() == 1
    assert seen == [0, 1]


def test_a_weak_value_that_another_thread_drops_makes_no_transaction_run_alone():
    def step(other):
        other.is_dropped()
        other.nothing()
        seen.append((core.is_exclusive(), len(values)))

    @trusted
    def make(world):
        values[1] = world.kept = Plain()

    values, seen = weakref.WeakValueDictionary(), []
    run(len, values)
    before = core.stats()["exclusive_reasons"]
    OtherThread(make, trusted(lambda other: run(step, other))).run()
    after = core.stats()["exclusive_reasons"]
    assert [reason for reason in after if "remove" in reason and after[reason] != before.get(reason)] == []
    assert seen == [(False, 1)] and dict(values) == {}


def test_why_transactions_run_alone_is_counted_by_all_threads():
    """None of them forgets what another one counts at that moment."""
    reason, times = "what several threads do", 5_000

    def go_alone():
        core.exclusive(reason)

    def go_alone_often():
        for _ in range(times):
            run(go_alone)

    threads = [threading.Thread(target=go_alone_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sum(n for text, n in core.stats()["exclusive_reasons"].items() if text.startswith(reason)) >= 4 * times


def test_a_generator_of_the_project_itself_is_closed_where_it_is_dropped():
    """It may have a lock in its hand."""

    @trusted
    def holding():
        held.append(True)
        try:
            yield
        finally:
            held.clear()

    @trusted
    def step():
        generator = holding()
        next(generator)
        del generator
        return len(held)

    held = []
    run(int)
    assert run(step) == 0
    assert step() == 0


@pytest.mark.parametrize("call", [lambda f, x: f(x), lambda f, x: list(map(f, [x]))[0]])
def test_a_callback_that_the_program_calls_gives_its_result(call):
    def callback(reference):
        called.append(1)
        return "result"

    def refer():
        references.append(weakref.ref(kept[0], callback))

    kept, references, called = [Plain()], [], []
    run(refer)
    run(kept.clear)
    assert called == [1]
    assert run(call, callback, references[0]) == "result"
    assert called == [1, 1]


# ---- After a fork ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusively", [False, True])
def test_a_child_forgets_the_transactions_of_other_threads(exclusively):
    entered, leave = threading.Lock(), threading.Lock()
    entered.acquire(), leave.acquire()
    table = {}

    @trusted
    def stay():
        entered.release()
        assert leave.acquire(timeout=TIMEOUT)

    def function():
        table["key"] = "written"
        if exclusively:
            core.exclusive("a test")
        stay()

    def child():
        """In new threads, which take the places of those that are gone."""
        once, seen = Once(), []

        def change():
            table["other"] = core.is_exclusive()
            once()

        @trusted
        def work():
            try:
                run(change)
                seen.append(table["other"])
            finally:
                over.release()

        over = threading.Lock()
        for _ in range(5):
            once.attempts.clear()
            over.acquire()
            _thread.start_new_thread(work, ())
            over.acquire(timeout=TIMEOUT)
            over.release()
        return seen == [False] * 5

    thread = threading.Thread(target=run, args=(function,))
    thread.start()
    assert entered.acquire(timeout=TIMEOUT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if child() else 2
        finally:
            os._exit(status)
    leave.release()
    thread.join(TIMEOUT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_child(child):
    """Does it return True in the child of a fork?"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if child() is True else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@trusted
def on_threads(n, function):
    """What it returns on so many threads at the same time."""
    together, results = threading.Barrier(n), []

    @trusted
    def call():
        results.append(function())
        together.wait(TIMEOUT)

    threads = [threading.Thread(target=call) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    return results


@trusted
def test_threads_of_a_child_have_nothing_of_threads_of_the_parent():
    """Which have had the same numbers."""
    all_of_them = core.PerThread(list)
    ready, leave = threading.Barrier(5), threading.Event()

    @trusted
    def keep():
        all_of_them.mine().append("the parent's")
        ready.wait(TIMEOUT)
        leave.wait(TIMEOUT)

    threads = [threading.Thread(target=keep) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(TIMEOUT)
    all_of_them.mine().append("mine")
    try:
        assert in_child(lambda: on_threads(8, all_of_them.mine) == [[]] * 8 and all_of_them.mine() == ["mine"])
    finally:
        leave.set()
        for thread in threads:
            thread.join(TIMEOUT)


def locks_of_the_package():
    """Of its modules, by their names."""
    from tornado.stm import dashboard, serial, testing  # noqa: F401, all that have locks
    from tornado.stm.input_output import tls  # noqa: F401

    kinds = threading.Lock, type(threading.RLock())
    found = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("tornado.stm.")]:
        for name, value in vars(module).items():
            for i, each in enumerate(value if type(value) is list else [value]):
                if isinstance(each, kinds):
                    found[f"{module.__name__}.{name}.{i}"] = each
    return found


@trusted
def test_no_lock_of_the_package_is_kept_by_a_thread_that_is_no_more():
    locks = locks_of_the_package()
    assert len(locks) > 5
    taken, leave = threading.Event(), threading.Event()

    @trusted
    def keep():
        for lock in locks.values():
            lock.acquire()
        taken.set()
        leave.wait(TIMEOUT)
        for lock in locks.values():
            lock.release()

    @trusted
    def child():
        kept = {name.rpartition(".")[0] for name, lock in locks.items() if not lock.acquire(False)}
        os.write(2, f"kept: {kept}".encode() if kept else b"")
        return not kept

    thread = threading.Thread(target=keep)
    thread.start()
    assert taken.wait(TIMEOUT)
    try:
        assert in_child(child)
    finally:
        leave.set()
        thread.join(TIMEOUT)


FORKED_BY_A_WORKER = """
import os, signal, sys, threading, time, warnings
from tornado.stm import activation, core

activation.activate()
warnings.simplefilter("ignore", DeprecationWarning)
told = []


def step():
    global child
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda signum, frame: told.append(signum))
        os.write(ready, b"!")
        give_up = time.monotonic() + 60
        while not told and time.monotonic() < give_up:
            pass  # nothing here is interrupted by a signal
        os._exit(0 if told else 1)


heard, ready = os.pipe()
thread = threading.Thread(target=core.Transaction(step, ()).run)
thread.start()
thread.join()
os.read(heard, 1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_by_another_thread_is_told_of_signals():
    done = subprocess.run([sys.executable, "-c", FORKED_BY_A_WORKER], cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT)
    assert (done.stdout, done.stderr) == ("0\n", "")


FORKED_BESIDE_TRANSACTIONS = """
import os, threading, warnings
from tornado.stm import transaction

warnings.simplefilter("ignore", DeprecationWarning)
state, over = {"before": 0, "after": 0}, False


def step(i):
    state["before"] += 1
    state[i] = i
    for _ in range(500):
        pass
    state["after"] += 1


def add():
    if not over:
        for i in range(10):
            queue.add(step, i)
        queue.add(add)


def status_of_child():
    child = os.fork()
    if child == 0:
        whole = state["before"] == state["after"]
        for i in range(100):
            state["child", i] = i
        os._exit(0 if whole else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


queue = transaction.TransactionQueue()
queue.add(add)
thread = threading.Thread(target=queue.run, args=(2,))
thread.start()
statuses = [status_of_child() for _ in range(40)]
over = True
thread.join()
print(set(statuses), state["before"] == state["after"])
"""


@pytest.mark.skipif(not core.PARALLEL, reason="there is one thread")
def test_a_thread_forks_between_transactions():
    """Its child has the half of none, and no lock of the interpreter's that one had."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED_BESIDE_TRANSACTIONS], cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT
    )
    assert (done.stdout, done.stderr) == ("{0} True\n", "")


@trusted
def test_a_thread_forks_that_has_what_a_transaction_waits_for():
    """Which runs alone, and would wait for ever."""
    mutex, inside = threading.Lock(), threading.Lock()
    inside.acquire()

    def wait():
        with transaction.atomic:
            inside.release()
            with mutex:
                pass

    with mutex:
        thread = threading.Thread(target=wait)
        thread.start()
        assert inside.acquire(timeout=TIMEOUT)
        assert in_child(lambda: True)
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert in_child(lambda: run(core.in_transaction))


class Text(str):
    pass


class Bytes(bytes):
    pass


Named = typing.NewType("Named", str)


@pytest.mark.parametrize("function", [
    lambda: Named("a"), lambda: "#" in Text("abc"), lambda: [*Text("ab")], lambda: Text(",").join(["a"]), lambda: ",".join(Text("ab")),
    lambda: b"a" in Bytes(b"abc"),
], ids=["NewType", "in", "iteration", "join", "join of it", "bytes"])
def test_what_is_derived_from_a_type_without_state_runs_beside_others(function):
    assert runs_beside_others(function) == function()
