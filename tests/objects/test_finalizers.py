"""Finalizers that a commit sets off: once, after it, in a transaction that others run beside."""

import _thread
import contextvars
import functools
import gc
import inspect
import io
import sqlite3
import subprocess
import sys
import threading
import types
import weakref
from itertools import islice

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from meeting import is_alone, run
from progress import TIMEOUT
from rolled_back import abort, begins
from tornado.stm.core import trusted
from tornado.stm.loop.eventloop import TransactionalEventLoop

activation.activate()


class Holder:
    pass


class Counted:
    """Counts what dies, without a lock, in containers that others change too."""

    def __init__(self, n, counts, order):
        self.n, self.counts, self.order = n, counts, order

    def __del__(self):
        self.counts["dead"] = self.counts.get("dead", 0) + 1
        self.order[f"dead {self.n}"] = is_alone()


def test_each_runs_once_and_beside_others():
    counts, order, holder = {}, {}, Holder()
    holder.kept = None

    def replace(n):
        holder.kept = Counted(n, counts, order)
        counts["made"] = counts.get("made", 0) + 1
        order[f"made {n}"] = is_alone()

    core.inject_aborts(0.01, 3)
    try:
        queue = transaction.TransactionQueue()
        for n in range(300):
            queue.add(replace, n)
        queue.run()
    finally:
        core.inject_aborts(0, 1)
    assert counts == {"made": 300, "dead": 299}
    names = list(order)
    made = [name for name in names if name.startswith("made")]
    for one, replacing in zip(made, made[1:]):  # in whichever order they were run
        assert names.index(one.replace("made", "dead")) > names.index(replacing)
    assert not any(list(order.values())[40:])


def kinds():
    def by_method(done):
        class Dies:
            def __del__(self):
                done()

        return Dies()

    def by_default(done):
        class Dies:
            def __del__(self, done=done):
                done()

        return Dies()

    def by_alias(done):
        class Dies:
            def close(self):
                done()

            __del__ = close

        return Dies()

    def by_wrapper(done):
        class Dies:
            def __del__(*args, **kwargs):
                done()

        return Dies()

    def by_late(done):
        class Dies:
            pass

        Dies.__del__ = lambda self: done()
        return Dies()

    def by_later(done):
        class Base:
            pass

        class Dies(Base):
            pass

        made = Dies()
        Base.__del__ = lambda self: done()
        return made

    def by_stream(done):
        class Stream(io.BytesIO):
            def close(self):
                if not self.closed:
                    done()
                super().close()

        return Stream()

    def called_back(callback):
        holder = Holder()
        references.append(weakref.ref(holder, callback))
        return holder

    def by_callback(done):
        return called_back(lambda reference: done())

    def by_partial(done):
        return called_back(functools.partial(lambda done, reference: done(), done))

    def by_instance(done):
        class Callback:
            def __call__(self, reference):
                done()

        return called_back(Callback())

    def by_anything(done):
        return called_back(lambda *references: done())

    def by_proxy(done):
        holder = Holder()
        references.append(weakref.proxy(holder, functools.partial(lambda done, reference: done(), done)))
        return holder

    def by_generator(done):
        def generator():
            try:
                yield
            finally:
                done()

        made = generator()
        next(made)
        return made

    references = []
    return {
        "__del__": by_method, "default": by_default, "alias": by_alias, "wrapper": by_wrapper, "late": by_late, "later": by_later,
        "stream": by_stream,
        "callback": by_callback, "partial": by_partial, "instance": by_instance, "anything": by_anything, "proxy": by_proxy,
        "finally": by_generator,
    }  # fmt: skip


KINDS = kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_others_go_on_meanwhile(kind):
    """The finalizer waits for a transaction to write; if it ran alone, that would not."""
    seen, holder, go_on, over = [], Holder(), _thread.allocate_lock(), _thread.allocate_lock()
    go_on.acquire()
    over.acquire()

    @trusted
    def wait_for_writer():
        seen.append(core.is_exclusive())
        go_on.release()
        assert over.acquire(timeout=TIMEOUT)

    def finalize():
        seen.append(1)
        wait_for_writer()
        seen.append(2)

    def make():
        holder.dies = KINDS[kind](finalize)

    def drop():
        holder.dies = None

    def write():
        holder.written = True

    @trusted
    def writer():
        assert go_on.acquire(timeout=TIMEOUT)
        core.Transaction(write, ()).run()
        over.release()

    for function in make, write:
        run(function)
    thread = threading.Thread(target=writer)
    thread.start()
    run(drop)
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert seen == [1, False, 2]


@trusted
def elsewhere(function):
    """Run it as a transaction, on another thread."""
    over = _thread.allocate_lock()
    over.acquire()

    @trusted
    def work():
        core.Transaction(function, ()).run()
        over.release()

    _thread.start_new_thread(work, ())
    assert over.acquire(timeout=TIMEOUT)


@trusted
def this_thread():
    return _thread.get_ident()


def test_what_another_thread_drops_ends_while_its_maker_sleeps():
    kept, references, made_elsewhere, alive = {}, [], [], []
    queue = transaction.TransactionQueue()

    def compute():
        return sum(k % 7 for k in range(20000))

    def make(i):
        compute()
        holder = Holder()
        kept[i] = holder, this_thread()
        references.append(weakref.ref(holder))
        if len(kept) == 60:
            queue.add(drop)

    def drop():     # the other thread has found nothing to do
        compute()
        made_elsewhere.append(sum(thread != this_thread() for _, thread in kept.values()))
        kept.clear()
        queue.add(look)

    def look():
        compute()
        alive.append(sum(reference() is not None for reference in references))

    for i in range(60):
        queue.add(make, i)
    queue.run()
    assert made_elsewhere[0] > 0
    assert alive == [0]


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_another_thread_drops_does_not_end_in_an_attempt_of_its_maker(kind, outside):
    """The interpreter lets it die there, amid whatever that thread does."""
    ended, box, seen, attempts = [], [], [], []

    def make():
        box.append(KINDS[kind](lambda: ended.append(kind)))

    make() if outside else run(make)

    @trusted
    def note(n):
        seen.append(n)

    def attempt():
        if begins(attempts):
            elsewhere(box.clear)
            for _ in range(1000):
                abs(1)
            note(len(ended))
            abort(attempts)

    run(attempt)
    core.settle()
    assert attempts == ["attempt"] * 2
    assert (seen, ended) == ([0], [kind])


def hold_last_and_roll_back(box, attempts):
    """An attempt replaces what the box has kept, and another thread drops that when the rollback has put it back."""

    @trusted
    def drop():
        box.clear()

    def attempt():
        if begins(attempts):
            trusted(lambda: core.on_abort(drop))()
            box["kept"] = None
            abort(attempts)

    run(attempt)
    core.settle()


@pytest.mark.parametrize("kind", KINDS)
def test_what_dies_with_the_rest_of_an_attempt_ends_though_that_is_rolled_back(kind):
    """It was there before."""
    ended, box, attempts = [], {}, []
    run(lambda: box.update(kept=KINDS[kind](lambda: ended.append(kind))))

    hold_last_and_roll_back(box, attempts)
    assert (attempts, ended) == (["attempt"] * 2, [kind])


@pytest.mark.parametrize("make", [
    lambda thing, ended: weakref.ref(thing, ended.append), lambda thing, ended: weakref.ref(thing, lambda reference: ended.append(1)),
    lambda thing, ended: weakref.finalize(thing, ended.append, 1), lambda thing, ended: weakref.WeakKeyDictionary({thing: 1}),
])  # fmt: skip
def test_callbacks_of_weak_references_come_though_an_attempt_is_rolled_back(make):
    ended, box, attempts = [], {"kept": Holder()}, []
    references = [make(box["kept"], ended)]

    hold_last_and_roll_back(box, attempts)
    assert attempts == ["attempt"] * 2
    assert len(ended) == 1 or (isinstance(references[0], weakref.WeakKeyDictionary) and not references[0].data)


def test_an_entry_whose_object_lives_is_not_taken_for_dead():
    """The callback of an older object under the same key asks again."""
    kept, dead = Holder(), Holder()
    entries = {"live": weakref.ref(kept), "dead": weakref.ref(dead)}
    del dead

    def forget():
        for key in "live", "dead":
            weakref._remove_dead_weakref(entries, key)

    run(forget)
    assert list(entries) == ["live"]
    values = weakref.WeakValueDictionary()

    def exchange(key):
        values[key] = held[key] = Holder()
        assert values[key] is held[key]

    held = {}
    threads = [threading.Thread(target=lambda: [run(exchange, n % 3) for n in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    core.settle()
    assert dict(values) == held and len(held) == 3


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("refer", [weakref.ref, weakref.proxy])
def test_c_functions_that_are_called_back_neither_see_nor_change_what_an_attempt_uses(refer, alone):
    events, references, box, seen, attempts = [], [], [], [], []

    def make():
        box.append(Holder())
        references.append(refer(box[0], events.append))

    core.Transaction(make, ()).run(alone)

    @trusted
    def note(n):
        seen.append(n)

    def attempt():
        if begins(attempts):
            note(len(events))
            elsewhere(box.clear)
            note(len(events))
            events.append("never was")
            abort(attempts)

    run(attempt)
    core.settle()
    assert attempts == ["attempt"] * 2
    assert seen == [0, 0]
    assert [type(event) for event in events] == [type(references[0])]


def test_references_from_before_the_engine_have_their_callbacks_guarded():
    program = """
import functools, weakref
class Holder: pass
events, holder, other = [], Holder(), Holder()
reference, proxy = weakref.ref(holder, events.append), weakref.proxy(other, functools.partial(events.append))
from tornado.stm import activation, core
activation.activate()
print(type(reference.__callback__).__name__)
core.inject_aborts(0.2, 1)
def drop():
    global holder
    holder = None
    events.append("dropped")
    return [number for number in range(50)]
core.Transaction(drop, ()).run()
core.inject_aborts(0, 0)
del other
core.settle()
print([event if type(event) is str else "called" for event in events])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT)
    assert (result.stdout, result.stderr) == ("Guarded\n['dropped', 'called', 'called']\n", "")


@pytest.mark.parametrize("cycle", [True, False])
def test_transactions_that_it_adds_run(cycle):
    """In the same run, if that is not over yet; whatever becomes of the thread's next attempts."""
    ran, attempts, queue = [], [], transaction.TransactionQueue()

    class Adds:
        def __init__(self):
            self.itself = self if cycle else None

        def __del__(self):
            queue.add(ran.append, "added")

    def attempt():
        if begins(attempts):
            abort(attempts)

    holder = Holder()
    holder.adds = Adds()
    queue.add(delattr, holder, "adds")
    queue.run()
    if cycle:
        core.collect_garbage()
    else:
        assert ran == ["added"]
    run(attempt)
    queue.run()
    assert ran == ["added"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_sees_what_was_committed_and_what_it_defers_happens(kind, capfd):
    holder, seen = Holder(), []

    def finalize():
        seen.append(holder.dies)
        print("the end of", kind, flush=True)
        holder.later = KINDS["__del__"](lambda: print("and of another", flush=True))
        holder.later = None

    run(lambda: setattr(holder, "dies", KINDS[kind](finalize)))
    run(lambda: setattr(holder, "dies", None))
    gc.collect()
    assert seen == [None]
    assert capfd.readouterr().out == f"the end of {kind}\nand of another\n"


def test_program_hook_hears_of_exceptions_only(monkeypatch):
    heard, holder = [], Holder()
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: heard.append(unraisable.exc_type))

    def fail():
        raise LookupError("in a finalizer")

    for kind in KINDS.values():
        for finalizer in (lambda: None), fail:
            run(lambda: setattr(holder, "dies", kind(finalizer)))
            run(lambda: setattr(holder, "dies", None))
    assert heard == [LookupError] * len(KINDS)


def test_a_hook_of_the_program_hears_nothing_of_aborts(monkeypatch, capfd):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: heard.append(unraisable.exc_type))

    class Dying:
        def __init__(self, numbers):
            self.numbers = numbers

        def __del__(self):
            self.numbers.append(1)

    def attempt():
        numbers = [1, 2, 3]
        for _ in range(10):
            Dying(numbers)
            numbers.append(len(numbers))

    try:
        for seed in range(60):
            core.inject_aborts(0.02, seed)
            queue = transaction.TransactionQueue()
            queue.add(attempt)
            queue.run()
    finally:
        core.inject_aborts(0, 0)
    assert (heard, capfd.readouterr().err) == ([], "")


def test_locks_of_the_program():
    lock, holder, log = threading.Lock(), Holder(), []

    def finalize():
        with lock:
            log.append(is_alone())

    def replace():
        holder.dies = KINDS["__del__"](finalize)
        with lock:
            log.append("made")

    queue = transaction.TransactionQueue()
    for _ in range(50):
        queue.add(replace)
    queue.run()
    assert log.count("made") == 50 and len(log) == 99
    assert not lock.locked()


def test_what_c_code_calls_where_an_object_dies_runs_alone_and_says_why():
    """The end of a buffer is C code, which calls close() of what it is around."""
    holder, closed = Holder(), []

    class Stream(io.RawIOBase):
        def readable(self):
            return True

        def close(self):
            if not self.closed:
                closed.append(is_alone())
            super().close()

    def drop():
        holder.stream = None

    run(setattr, holder, "stream", io.BufferedReader(Stream()))
    run(drop)
    assert closed == [True]
    assert any(reason.startswith("what C code calls where an object dies: ") for reason in core.stats()["exclusive_reasons"])


def singletons():
    """Classes with a finalizer whose call returns an instance that others have, if there is one in `held`."""

    class ByNew:
        held = []

        def __new__(cls, value, ended):
            if not cls.held:
                cls.held.append(super().__new__(cls))
                cls.held[0].ended = ended
            return cls.held[0]

        def __del__(self):
            self.ended.append("ended")

    class ByNewWithInit(ByNew):
        held = []

        def __init__(self, value, ended):
            self.value = value

    class Meta(type):
        def __call__(cls, value, ended):
            if not cls.held:
                cls.held.append(super().__call__(value, ended))
            cls.held[0].value = value
            return cls.held[0]

    class ByMeta(metaclass=Meta):
        held = []

        def __init__(self, value, ended):
            self.ended = ended

        def __del__(self):
            self.ended.append("ended")

    return {cls.__name__: cls for cls in (ByNew, ByNewWithInit, ByMeta)}


@pytest.mark.parametrize("name", singletons())
def test_what_a_class_returns_may_be_old(name):
    """An attempt that is rolled back has neither made it, nor changed it."""
    cls, ended, attempts = singletons()[name], [], []
    one = cls(1, ended)
    one.value = 1

    def attempt():
        if begins(attempts):
            cls(2, ended)
            abort(attempts)

    run(attempt)
    assert attempts == ["attempt"] * 2
    assert one.value == 1
    del one
    cls.held.clear()
    core.settle()
    assert ended == ["ended"]


@pytest.mark.filterwarnings("error")  # a finalizer that fails ran, too
@pytest.mark.parametrize("name", singletons())
def test_what_a_class_makes_in_python_may_never_have_been(name):
    cls, ended, attempts = singletons()[name], [], []

    def attempt():
        if begins(attempts):
            made = cls(1, ended)
            made.itself = made
            abort(attempts)

    run(attempt)
    assert attempts == ["attempt"] * 2
    assert cls.held == []
    gc.collect()
    core.settle()
    assert ended == []


@pytest.mark.parametrize("awaitable", ["anext", "asend", "athrow", "aclose"])
def test_what_is_awaited_of_a_generator_in_a_cycle_was_never_there(awaitable, recwarn):
    """It had been sent to, which was undone: the collector warned of what nobody had awaited."""
    waits = types.coroutine(lambda: (yield))

    async def endless():
        while True:
            try:
                yield await waits()
            except KeyError:
                await waits()
            finally:
                await waits()

    async def one(generator, cycle):
        cycle.append(cycle)
        if awaitable == "anext":
            await anext(generator)
        elif awaitable == "asend":
            await generator.asend(None)
        elif awaitable == "athrow":
            await generator.athrow(KeyError)
        else:
            await generator.aclose()

    def attempt():
        if begins(attempts):
            cycle = []
            cycle.append(one(generator, cycle))
            cycle[0].send(None)
            abort(attempts)

    def finish(awaited):
        with pytest.raises(StopIteration):
            while True:
                awaited.send(None)

    generator, attempts = endless(), []
    if awaitable in ("athrow", "aclose"):
        finish(generator.asend(None))
    run(attempt)
    assert attempts == ["attempt"] * 2
    gc.collect()
    core.settle()
    finish(generator.aclose())
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("make", [lambda generator: next(islice(generator, 1)), next], ids=["within", "alone"])
def test_thousands_that_die_when_the_transaction_is_to_run_alone_end_one_after_the_other(make):
    depths = []

    class Section:
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            depths.append(len(inspect.stack(0)))

    def left():
        with Section():
            yield

    def drop():
        for _ in range(500):
            make(left())
        sqlite3.complete_statement("")  # which nobody has declared
        assert core.is_exclusive()

    core.Transaction(drop, ()).run()
    assert len(depths) == 500 and max(depths) - min(depths) < 10


@pytest.mark.parametrize("kind", ["object", "generator", "weak reference"])
def test_what_a_callback_lets_go_is_finalized_with_the_variables_of_its_context(kind):
    variable, seen = contextvars.ContextVar("variable", default=0), []

    class Ends:
        def __del__(self):
            seen.append(variable.get())

    class Thing:
        pass

    def generator():
        try:
            yield
        finally:
            seen.append(variable.get())

    def make():
        if kind == "object":
            return Ends()
        made = generator() if kind == "generator" else Thing()
        if kind == "generator":
            next(made)
        else:
            references.append(weakref.ref(made, lambda _: seen.append(variable.get())))
        return made

    def let_go():
        variable.set(variable.get() + 1)
        holder.thing = None

    references, holder, loop = [], types.SimpleNamespace(), TransactionalEventLoop(2)
    context = contextvars.copy_context()
    try:
        for _ in range(4):  # what has never been called before may have to run alone
            holder.thing = make()
            core.Transaction(core.run_handle, (core.new_handle(loop, let_go, (), context),)).run()
    finally:
        loop.close()
    assert seen == [1, 2, 3, 4] and variable.get() == 0
