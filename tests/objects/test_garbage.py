"""Garbage in cycles: collected while transactions are amid their work, and what never was leaves no trace."""

import _thread
import asyncio
import functools
import gc
import io
import multiprocessing
import os
import socket
import time
import weakref

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

import tornado.stm
from hooks import no_hooks_of_tools
from meeting import is_alone, run
from progress import TIMEOUT
from rolled_back import abort, begins
from tornado.stm.core import trusted
from tornado.stm.loop import futures

activation.activate()
futures.use_engine_futures()

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # that of the task that nobody runs


class Thing:
    pass


class Cycle:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


class Dying(Cycle):
    def __init__(self, end):
        super().__init__()
        self.end = end

    def __del__(self):
        self.end()


class Warned(Cycle):
    """Its finalizer has another parameter, as asyncio's have."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def __del__(self, warn=None):
        self.end()


class Stream(io.BytesIO):
    """Is closed by the finalizer of its class, which is C code."""

    def __init__(self, end):
        super().__init__()
        self.end, self.itself = end, self

    def close(self):
        if not self.closed:
            self.end()
        super().close()


class Narrow:
    """Has no room for weak references."""

    __slots__ = ("end", "itself")

    def __init__(self, end):
        self.end, self.itself = end, self

    def __del__(self):
        self.end()


def with_callback(end):
    made = Cycle()
    references.append(weakref.ref(made, lambda reference: end()))


def with_method(end):
    made = Cycle()
    references.append(weakref.ref(made, Ends(end).told))


def with_proxy(end):
    made = Cycle()
    references.append(weakref.proxy(made, lambda *proxies: end()))


def with_partial(end):
    """Nobody knows whether an attempt has made the object itself."""
    made = functools.partial(lambda: made)
    references.append(weakref.ref(made, functools.partial(lambda end, reference: end(), end)))


class Ends:
    def __init__(self, end):
        self.end = end

    def told(self, reference):
        self.end()


def in_generator(end):
    def generator():
        itself.append(made)
        try:
            yield
        finally:
            end()

    itself = []
    made = generator()
    next(made)


def in_coroutine(end):
    class Forever:
        def __await__(self):
            yield

    async def coroutine():
        try:
            await Forever()
        finally:
            end()

    made = Cycle()
    made.coroutine = coroutine()
    made.coroutine.send(None)


class Loop:
    """What futures ask of a loop."""

    def __init__(self, end):
        self.end = end

    def get_debug(self):
        return False

    def call_soon(self, callback, *args, context=None):
        pass

    def call_exception_handler(self, context):
        self.end()


async def nothing():
    pass


def in_task(end):
    """A task that is destroyed while it is pending tells the loop."""
    made = Cycle()
    made.task = asyncio.Task(nothing(), loop=Loop(end))
    made.task.cycle = made


def in_future(end):
    """So does a future with an exception that nobody has looked at."""
    made = Cycle()
    made.future = asyncio.Future(loop=Loop(end))
    made.future.cycle = made
    made.future.set_exception(ValueError())


references = []
KINDS = {
    "__del__": Dying, "warned": Warned, "stream": Stream, "no room": Narrow,
    "callback": with_callback, "method": with_method, "proxy": with_proxy, "partial": with_partial,
    "generator": in_generator, "coroutine": in_coroutine, "task": in_task, "future": in_future,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_left():
    references.clear()
    gc.collect()
    with no_hooks_of_tools():
        yield
    references.clear()
    gc.collect()


@trusted
def collections():
    return sum(generation["collections"] for generation in gc.get_stats())


@trusted
def wait_until(condition):
    give_up = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.001)


class Collector:
    """A thread that collects garbage once, when it is told to.  It has no code of the program's, so nobody minds it."""

    @trusted
    def __init__(self):
        self._go_on, self._over = _thread.allocate_lock(), _thread.allocate_lock()
        self._go_on.acquire()
        self._over.acquire()
        _thread.start_new_thread(self._work, ())

    @trusted
    def _work(self):
        self._go_on.acquire()
        core.collect_garbage()
        self._over.release()

    @trusted
    def begin(self):
        self._go_on.release()

    @trusted
    def wait(self):
        assert self._over.acquire(timeout=TIMEOUT)


class Amid:
    """A transaction that another thread collects garbage beside, when it is amid its first attempt."""

    def __init__(self, then=lambda: None):
        self.then = then
        self.attempts, self.seen = [], []
        self.collector = Collector()

    @trusted
    def collect(self):
        before = collections()
        self.collector.begin()
        wait_until(lambda: collections() > before)
        self.then()

    def run(self, act, rolled_back):
        def transaction():
            if begins(self.attempts):
                act()
                self.collect()
                if rolled_back:
                    abort(self.attempts)

        run(transaction)
        self.collector.wait()


def test_attempts_are_not_waited_for():
    made = Cycle()
    reference, alone = weakref.ref(made), core.stats()["exclusives"]
    del made
    amid = Amid(trusted(lambda: amid.seen.extend((reference(), core.stats()["exclusives"] - alone, core.is_exclusive()))))
    amid.run(lambda: None, rolled_back=False)
    assert amid.seen == [None, 0, False]
    assert amid.attempts == ["attempt"]


def test_what_an_attempt_uses_is_no_garbage():
    """Neither what it has replaced, nor what only it refers to."""
    holder, seen = Thing(), []
    holder.replaced, holder.used = Cycle(), Cycle()
    holder.replaced.name, holder.used.name = "replaced", "used"
    old = weakref.ref(holder.replaced)

    @trusted
    def note(names):
        seen.extend(names)

    def act():
        used, made = holder.used, Cycle()
        made.name = "made"
        holder.used = None
        holder.replaced = None
        amid.collect()
        note((used.name, made.itself.name))
        abort(amid.attempts)

    amid = Amid()

    def transaction():
        if begins(amid.attempts):
            act()

    run(transaction)
    amid.collector.wait()
    assert seen == ["used", "made"]
    assert old() is holder.replaced and holder.replaced.itself.name == "replaced" and holder.used.name == "used"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no room"])
def test_what_never_was_has_no_end(kind):
    ended, amid = [], Amid()
    amid.run(lambda: KINDS[kind](lambda: ended.append(kind)), rolled_back=True)
    core.collect_garbage()
    core.collect_garbage()
    assert amid.attempts == ["attempt"] * 2
    assert ended == []


def test_what_never_was_has_no_end_while_it_is_dropped():
    """Another thread collects amid that: what has been rolled back is no attempt's any more, and not yet gone."""
    told, attempts, kept = [], [], {}
    collector = Collector()

    @trusted
    def collect():
        before = collections()
        collector.begin()
        wait_until(lambda: collections() > before)

    @trusted
    def generator():
        try:
            yield
        finally:
            collect()

    @trusted
    def begun():
        made = generator()
        next(made)
        return made

    def attempt():
        if begins(attempts):
            kept["dropped first"] = begun()
            kept["reference"] = weakref.ref(Cycle(), lambda reference: told.append("told"))
            abort(attempts)

    run(attempt)
    collector.wait()
    core.collect_garbage()
    assert attempts == ["attempt"] * 2
    assert told == []


def test_what_has_no_room_for_weak_references_is_made_for_good():
    """Nothing could tell the collector that it never was: whoever makes it is not rolled back any more."""
    ended, attempts = [], []

    def transaction():
        begins(attempts)
        Narrow(lambda: ended.append(1))
        core.inject_aborts(0.999, 1)
        return [number for number in range(3)]

    try:
        run(transaction)
    finally:
        core.inject_aborts(0, 0)
    core.collect_garbage()
    core.collect_garbage()
    assert (attempts, ended) == (["attempt"], [1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_ends_once(kind):
    ended, amid = [], Amid()
    amid.run(lambda: KINDS[kind](lambda: ended.append(kind)), rolled_back=False)
    for _ in range(3):
        core.collect_garbage()
    assert ended == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_finalizers_wait_for_those_who_are_amid_their_work(kind):
    """What older transactions have left behind ends after them, and nobody waits for that."""
    ended = []
    run(KINDS[kind], lambda: ended.append(is_alone()))
    amid = Amid(trusted(lambda: amid.seen.extend(ended)))
    amid.run(lambda: None, rolled_back=True)
    for _ in range(3):
        core.collect_garbage()
    assert amid.seen == []
    assert ended == [False]


def test_finalizers_do_not_wait_for_ever():
    """Who goes on and on is rolled back for them, as for anybody else."""
    ended, attempts, amid = [], [], _thread.allocate_lock()
    amid.acquire()

    @trusted
    def go_on_and_on():
        amid.release()
        wait_until(core.is_unwinding)

    def transaction():
        if begins(attempts):
            go_on_and_on()
        return [number for number in range(3)]

    @trusted
    def work():
        core.Transaction(transaction, ()).run()
        amid.release()

    run(Dying, lambda: ended.append(1))
    core.set_allowance(0.05)
    try:
        _thread.start_new_thread(work, ())
        assert amid.acquire(timeout=TIMEOUT)
        core.collect_garbage()
        assert ended == [1]
        assert amid.acquire(timeout=TIMEOUT)
    finally:
        core.set_allowance(1e9)
    assert attempts == ["attempt"] * 2


def test_finalizers_see_each_other_whole_and_run_in_order():
    ended = []

    class Member:
        def __init__(self, number):
            self.number, self.others = number, []

        def __del__(self):
            ended.append((self.number, [other.number for other in self.others]))

    def make():
        members = [Member(number) for number in range(3)]
        for member in members:
            member.others = members

    run(make)
    core.collect_garbage()
    core.collect_garbage()
    assert sorted(ended) == [(number, [0, 1, 2]) for number in range(3)]


def open_socket():
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


RESOURCES = {"stream": lambda: io.BytesIO(b"x"), "Stream": lambda: Stream(lambda: None), "file": lambda: open(__file__), "socket": open_socket}


@pytest.mark.filterwarnings("ignore:unclosed")
@pytest.mark.parametrize("kind", RESOURCES)
def test_finalizers_may_use_what_is_closed_with_them(kind):
    """As that of a loop which nobody has closed does."""
    seen = []

    class User(Cycle):
        def __init__(self):
            super().__init__()
            self.resource = RESOURCES[kind]()
            self.resources = [self.resource, self]

        def __del__(self):
            seen.append(self.resource.fileno() if kind == "socket" else self.resource.closed)

    run(User)
    core.collect_garbage()
    core.collect_garbage()
    assert len(seen) == 1 and (seen[0] >= 0 if kind == "socket" else not seen[0])


def test_one_that_is_brought_back_lives():
    back = []

    class Returns(Cycle):
        def __del__(self):
            back.append(self)

    run(Returns)
    core.collect_garbage()
    assert [type(one) for one in back] == [Returns] and back[0].itself is back[0]
    back.clear()
    core.collect_garbage()
    assert back == []


def test_a_transaction_collects_what_it_has_made():
    """gc.collect() runs alone: what it has made is real by then."""
    ended = []

    def transaction():
        Dying(lambda: ended.append(1))
        gc.collect()
        return list(ended)

    assert run(transaction) == [1]


def test_gc_collect_lets_what_has_waited_end():
    """A state in which an object is gone and its finalizer has not run is no state of the program run step by step."""
    ended, seen, amid = [], [], Amid()
    run(Dying, lambda: ended.append("ended"))

    def transaction():
        amid.collect()
        gc.collect()
        seen.append(list(ended))

    run(transaction)
    amid.collector.wait()
    assert seen == [["ended"]]


def test_gc_collect_collects_whatever_finalizers_there_are():
    """One that must run alone is amid another thread's collection, meanwhile."""
    ended, seen, amid = [], [], Amid()
    run(Warned, lambda: core.exclusive("to end") or ended.append("ended"))

    def transaction():
        amid.collect()
        reference = weakref.ref(Cycle())
        seen.append((gc.collect() > 0, reference(), len(ended)))

    run(transaction)
    amid.collector.wait()
    assert seen == [(True, None, 1)]


def in_child():
    with no_hooks_of_tools():
        before = collections()
        for _ in range(50_000 + len(gc.get_objects()) // 2):  # of more than a quarter of all
            Cycle().memory = bytearray(1000)
        return gc.isenabled() and collections() > before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_child_of_a_fork_collects():
    ends = []

    def fork():
        child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if in_child() else 1))
        child.start()
        child.join(TIMEOUT)
        ends.append(child.exitcode)

    async def main():
        fork()

    tornado.stm.run(main(), threads=2)
    assert ends == [0]


@pytest.mark.parametrize("where", ["alone", "thread"])
@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_collected_while_no_transaction_ends(where, threads):
    seen = []

    def leave_behind():
        give_up = time.monotonic() + TIMEOUT
        before = collections()
        while collections() == before and time.monotonic() < give_up:
            for _ in range(10_000):
                Cycle()
        seen.append(collections() > before)

    async def main():
        if where == "alone":
            core.exclusive("to go on alone")
            leave_behind()
        else:
            await asyncio.to_thread(leave_behind)

    old = core.set_garbage(1000)
    try:
        tornado.stm.run(main(), threads=threads)
    finally:
        core.set_garbage(old)
    assert seen == [True]


def test_hooks_of_the_program_are_called_alone():
    told = []

    def hook(phase, info):
        told.append((phase, is_alone()))

    gc.callbacks.append(hook)
    try:
        core.collect_garbage()
    finally:
        gc.callbacks.remove(hook)
    assert told == [("start", True), ("stop", True)]


def test_hooks_of_attempts_are_waited_for():
    """One that is rolled back was never there."""
    told, amid = [], Amid()

    @trusted
    def begin_to_collect():
        amid.collector.begin()
        time.sleep(0.05)  # it waits by then, most times

    def transaction():
        if begins(amid.attempts):
            gc.callbacks.append(lambda phase, info: told.append(phase))
            begin_to_collect()
            abort(amid.attempts)

    run(transaction)
    amid.collector.wait()
    assert told == []


def by_loop(function, *args):
    async def main():
        for _ in range(20):
            function(*args)
            await asyncio.sleep(0)

    tornado.stm.run(main(), threads=2)


def by_queue(function, *args):
    queue = transaction.TransactionQueue()
    for _ in range(20):
        queue.add(function, *args)
    queue.run(2)


@pytest.mark.parametrize("run_twenty", [by_loop, by_queue])
def test_it_is_due_when_much_has_come_and_not_gone(run_twenty):
    """In rounds: a few containers are no reason; and whoever switches the collector off is obeyed."""
    old, thresholds = core.set_garbage(1000), gc.get_threshold()
    enough = 1000 + len(gc.get_objects()) // 10  # twenty times that are more than a quarter of all

    def leave_behind(many):
        for _ in range(many):
            Cycle()

    def collected(many):
        gc.collect()
        before = collections()
        run_twenty(leave_behind, many)
        return collections() - before

    try:
        assert gc.isenabled()
        assert collected(10) == 0
        assert collected(enough) > 0
        gc.set_threshold(0)
        assert collected(enough) == 0
        gc.set_threshold(*thresholds)
        gc.disable()
        assert collected(enough) == 0
        assert not gc.isenabled()
        gc.enable()
        assert collected(enough) > 0
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)
        core.set_garbage(old)


@pytest.mark.parametrize("on", [True, False])
def test_the_program_switches_it_while_transactions_run(on):
    """The interpreter's own collector stays off meanwhile, and is what the program wants afterwards."""
    seen = []

    async def main():
        seen.append(gc.isenabled())
        (gc.enable if on else gc.disable)()
        await asyncio.sleep(0)
        seen.append(gc.isenabled())

    (gc.disable if on else gc.enable)()
    try:
        tornado.stm.run(main(), threads=2)
        assert seen == [not on, on]
        assert gc.isenabled() == on
    finally:
        gc.enable()
