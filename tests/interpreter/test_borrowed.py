"""Borrowed references: what frames hold uncounted lives as long as they use it, and dies when it would have died without.

An object with a read bias lies in a holder.  One transaction loads it, and it is taken out of the holder: by the same transaction when that
runs alone, or by another one, when the first is over or while it runs.  Where pytest-xdist has a thread of its own, beside which nothing is
borrowed, all of this runs in a process without one.
"""

import _thread
import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import types
import weakref

import pytest

import tornado.stm
from interpreters import needs_engine
from meeting import TIMEOUT, run
from rolled_back import abort, begins
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()

IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ
borrows = pytest.mark.skipif(IN_WORKER, reason="beside the thread of pytest-xdist nothing is borrowed: they run in a process of their own")

activation.activate()


@pytest.mark.skipif(not IN_WORKER, reason="this process does it all")
def test_all_that_in_a_process_of_its_own():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.fixture(autouse=True)
def nobody_stands_by():
    core.forget_bystanders()


class Thing:
    def __init__(self):
        self.value = [1, 2, 3]


class Holder:
    def __init__(self):
        self.thing, self.things = Thing(), [Thing()]


class Slotted:
    __slots__ = "thing", "things"

    def __init__(self):
        self.thing, self.things = Thing(), [Thing()]


module = types.ModuleType("module")
thing = None  # in globals


def use(thing, *rest):
    """What is the value of it, and was it alive until now?"""
    return thing.value[-1], *rest


@trusted
def counted(obj):
    """How many references to it are counted, but for this function's?"""
    return sys.getrefcount(obj) - 1


class Case:
    """One holder; `watch` is how the test sees what has become of the thing."""

    def __init__(self, holder, find, remove):
        self.holder, self.remove = holder, remove
        self.watch = weakref.ref(find(holder))
        self.count = sys.getrefcount(find(holder)) - 1
        self.not_counted = self.alive = None
        for obj in holder, getattr(holder, "things", None), find(holder):
            if type(obj) in (Holder, Slotted, list, Thing):
                assert core.bias(obj)
        core.forget_bystanders()

    @trusted
    def look(self):
        """In the transaction, where the thing has been loaded."""
        if not core.is_exclusive():
            self.not_counted = counted(self.watch()) == self.count

    def drop(self):
        """The transaction runs alone from here on, and the holder loses the thing."""
        self.look()
        core.exclusive("a test")
        self.remove(self.holder)
        self.alive = self.is_alive()

    @trusted
    def is_alive(self):
        return self.watch() is not None


def forget_attribute(holder):
    holder.thing = None


def forget_item(holder):
    holder.things.clear()


def forget_global(holder):
    global thing
    thing = None


ATTRIBUTE = (lambda holder: holder.thing), forget_attribute
ITEM = (lambda holder: holder.things[0]), forget_item
GLOBAL = (lambda holder: thing), forget_global


def as_operand(case):
    return use(case.holder.thing, case.drop())


def as_operand_of_a_method(case):
    return case.holder.thing.value.__len__(), use(case.holder.thing, case.drop())


def as_variable(case):
    found = case.holder.thing
    case.drop()
    return use(found)


def as_parameter(case):
    def inner(found, case):
        case.drop()
        return use(found)

    return inner(case.holder.thing, case)


def as_default(case):
    def inner(found=case.holder.thing):
        case.drop()
        return use(found)

    return inner()


def as_item(case):
    return use(case.holder.things[0], case.drop())


def as_item_of_a_loop(case):
    for found in case.holder.things:
        case.drop()
        return use(found)


def as_item_of_a_comprehension(case):
    return [use(found, case.drop()) for found in case.holder.things][0]


def as_closure(case):
    shared = case.holder.thing

    def inner(case):
        return use(shared, drop_and_forget(case))

    def drop_and_forget(case):
        nonlocal shared
        case.drop()
        shared = None

    return inner(case)


def as_global(case):
    return use(thing, case.drop())


def in_a_generator(case):
    def generator():
        found = case.holder.thing
        yield use(found, case.drop())

    return next(generator())


def below_c_code(case):
    def key(_):
        case.drop()
        return 0

    found = case.holder.thing
    sorted([1], key=key)
    return use(found)


ALONE = {
    as_operand: ATTRIBUTE, as_operand_of_a_method: ATTRIBUTE, as_variable: ATTRIBUTE, as_parameter: ATTRIBUTE, as_default: ATTRIBUTE,
    as_closure: ATTRIBUTE, as_item: ITEM, as_item_of_a_loop: ITEM, as_item_of_a_comprehension: ITEM, as_global: GLOBAL, in_a_generator: ATTRIBUTE,
    below_c_code: ATTRIBUTE,
}  # fmt: skip


def make(kind, find, remove):
    global thing
    holder = kind()
    if find is GLOBAL[0]:
        thing = holder.thing
        holder.thing = None
    return Case(holder, find, remove)


def warm(function, kind, ways):
    """Run it until its instructions are specialised: only such borrow."""
    for _ in range(60):
        case = make(kind, *ways)
        run(function, case)
    return make(kind, *ways)


def name_of(value):
    return getattr(value, "__name__", None)


@borrows
@pytest.mark.parametrize("kind", [Holder, Slotted], ids=name_of)
@pytest.mark.parametrize("function", ALONE, ids=name_of)
def test_it_lives_on_when_the_transaction_has_become_exclusive(function, kind):
    case = warm(function, kind, ALONE[function])
    assert run(function, case)[0] in (3, [])
    assert case.alive
    assert case.not_counted or function in (as_default, as_closure, as_global)
    assert not case.is_alive()


# ---- What a transaction changes that it has borrowed --------------------------------------------------------------------

class Values:
    """Nothing else refers to them."""

    def __init__(self):
        self.list, self.dict, self.set = [1, 2, 3], {1: 1, 2: 2}, {1, 2, 3}

    def copies(self):
        return list(self.list), dict(self.dict), set(self.set)


def go_over_list(values):
    for _ in values.list:
        pass
    values.list.append(4)


def go_over_dict(values):
    for _ in values.dict:
        pass
    values.dict[3] = 3


def go_over_set(values):
    for _ in values.set:
        pass
    values.set.add(4)


def look_up_in_list(values):
    values.list[0] = values.list[1] + 1


def look_up_in_dict(values):
    values.dict[1] = values.dict[2] + 1


def variable_of_list(values):
    found = values.list
    for _ in found:
        pass
    found.append(4)


@borrows
@pytest.mark.parametrize(
    "change", [go_over_list, go_over_dict, go_over_set, look_up_in_list, look_up_in_dict, variable_of_list], ids=name_of)
def test_what_is_changed_afterwards_is_put_back(change):
    def attempt(values, attempts):
        first = begins(attempts)
        change(values)
        if first:
            abort(attempts)

    for _ in range(60):     # until its instructions are specialised: only such borrow
        values = Values()
        expected = Values()
        change(expected)
        for part in values, values.list, values.dict, values.set:
            assert core.bias(part)
        core.forget_bystanders()
        core.inject_aborts(1e-9, 0)     # so that each barrier is called
        core.Transaction(attempt, (values, [])).run()     # on the thread that has made them
        assert values.copies() == expected.copies()


# ---- What is kept beyond the transaction --------------------------------------------------------------------------------

kept = []


class Kept:
    pass


def by_append(holder):
    kept.append(holder.thing)


def by_list(holder):
    kept[:] = [holder.thing, None]


def by_tuple(holder):
    kept.append((1, holder.thing))


def by_dict(holder):
    kept.append({"thing": holder.thing})


def by_comprehension(holder):
    kept.append([found for found in (holder.thing,)])


def by_loop_over_list(holder):
    holder.things[0] = holder.thing
    for found in holder.things:
        kept.append(found)
    holder.things[0] = None


def by_attribute(holder):
    made = Kept()
    made.thing = holder.thing
    kept.append(made)


def by_item(holder):
    made = [None]
    made[0] = holder.thing
    kept.append(made)


def by_key(holder):
    made = {}
    made["thing"] = holder.thing
    kept.append(made)


def by_closure(holder):
    found = holder.thing
    kept.append(lambda: found)


def by_default(holder):
    kept.append(lambda found=holder.thing: found)


def by_arguments(holder):
    kept.append((lambda *args, **named: (args, named))(holder.thing, found=holder.thing))


def by_result(holder):
    kept.append((lambda: holder.thing)())


def by_exception(holder):
    try:
        raise ValueError(holder.thing)
    except ValueError as error:
        kept.append(error.args)


def by_frame_of_a_traceback(holder):
    def fails(found):
        local = holder.thing
        raise ValueError(local.value[0], found.value[0])

    try:
        fails(holder.thing)
    except ValueError as error:
        kept.append(error)


def by_frame(holder):
    def inner(found):
        return sys._getframe()

    kept.append(inner(holder.thing))


def by_generator_not_begun(holder):
    def generator(found):
        yield found

    kept.append(generator(holder.thing))


def by_parameter_of_a_generator(holder):
    def generator(found):
        yield
        yield use(found)

    made = generator(holder.thing)
    next(made)
    kept.append(made)


def by_variable_of_a_generator(holder):
    def generator():
        local = holder.thing
        yield
        yield use(local)

    made = generator()
    next(made)
    kept.append(made)


def by_operand_of_a_generator(holder):
    def generator():
        yield use(holder.thing, (yield))

    made = generator()
    next(made)
    kept.append(made)


def by_loop_of_a_generator(holder):
    def generator():
        for found in holder.things:
            yield
            yield use(found)

    holder.things[0] = holder.thing
    made = generator()
    next(made)
    holder.things[0] = None
    kept.append(made)


def by_yielded(holder):
    def generator():
        yield holder.thing

    kept.append(next(generator()))


@types.coroutine
def pause():
    yield


def by_coroutine(holder):
    async def main():
        local = holder.thing
        await pause()
        use(local)
        await pause()

    made = main()
    made.send(None)
    kept.append(made)


def by_asynchronous_generator(holder):
    async def generator():
        local = holder.thing
        yield
        yield use(local)

    async def main():
        made = generator()
        kept.append(made)
        await anext(made)

    with pytest.raises(StopIteration):
        main().send(None)


KEEP = [value for name, value in list(globals().items()) if name.startswith("by_")]


@trusted
def go_on():
    """What is suspended uses it once more."""
    for obj in kept:
        if isinstance(obj, (types.GeneratorType, types.CoroutineType)):
            obj.send(None) if not hasattr(obj, "__next__") else next(obj)


def forget_kept():
    for obj in kept:
        if isinstance(obj, (types.GeneratorType, types.CoroutineType)):
            obj.close()
    kept.clear()


@borrows
@pytest.mark.parametrize("keep", KEEP, ids=name_of)
def test_what_outlives_the_transaction_is_counted(keep):
    for _ in range(60):
        run(keep, Holder())
        forget_kept()
    holder = Holder()
    case = Case(holder, *ATTRIBUTE)
    run(keep, holder)
    assert case.is_alive()
    before = counted(case.watch())
    assert before > case.count
    run(forget_attribute, holder)
    assert case.is_alive() and counted(case.watch()) == before - 1
    run(go_on)
    forget_kept()
    gc.collect()
    assert not case.is_alive()


@borrows
def test_a_generator_of_an_attempt_that_is_rolled_back():
    holder = Holder()
    case = Case(holder, *ATTRIBUTE)

    def generator():
        while True:
            found = holder.thing
            yield use(found)

    made = generator()
    core.inject_aborts(0.2, 5)
    try:
        for _ in range(200):
            assert run(next, made) == (3,)
    finally:
        core.inject_aborts(0, 1)
    run(forget_attribute, holder)
    assert case.is_alive()
    made.close()
    assert not case.is_alive()


# ---- Weak references --------------------------------------------------------------------------------------------------------


class Owner:
    """Nobody but the test refers to it, and then nobody."""

    def __init__(self):
        self.thing = Thing()

    def method(self):
        pass


def by_call(reference, wait):
    return use(reference().thing, wait())


def by_variable_that_is_used_again(reference, wait):
    owner = reference()
    found = owner.thing
    owner = wait()
    return use(found, owner)


class Derived(weakref.ref):
    def __call__(self):
        return super().__call__()


def method_of(owner):
    return weakref.WeakMethod(owner.method)


def by_method(reference, wait):
    return use(reference().__self__.thing, wait())


def by_key_function(reference, wait):
    found = list(map(lambda reference: reference(), [reference]))[0].thing
    return use(found, wait())


@borrows
@pytest.mark.parametrize("find, refer", [
    (by_call, weakref.ref), (by_call, Derived), (by_method, method_of), (by_variable_that_is_used_again, weakref.ref),
    (by_key_function, weakref.ref),
], ids=name_of)  # fmt: skip
def test_what_only_a_weak_reference_leads_to_lives_until_the_attempt_is_over(find, refer):
    """Another transaction drops the owner while this one uses what belongs to it."""
    box = [Owner()]
    for _ in range(60):
        run(find, refer(box[0]), int)
    box[0] = Owner()
    reference, watch = refer(box[0]), weakref.ref(box[0].thing)
    assert core.bias(box[0]) and core.bias(box[0].thing)
    loaded, dropped, over, seen = *(_thread.allocate_lock() for _ in range(3)), []
    for lock in loaded, dropped, over:
        lock.acquire()

    def drop():
        box[0] = None

    @trusted
    def wait():
        if not seen:
            loaded.release()
            assert dropped.acquire(timeout=TIMEOUT)
            seen.append(watch() is not None)

    @trusted
    def other():
        assert loaded.acquire(timeout=TIMEOUT)
        core.Transaction(drop, ()).run()
        dropped.release()
        over.release()

    _thread.start_new_thread(other, ())
    core.forget_bystanders()
    assert run(find, reference, wait)[0] == 3
    assert over.acquire(timeout=TIMEOUT)
    assert seen == [True]
    gc.collect()
    assert watch() is None


# ---- Bystanders ---------------------------------------------------------------------------------------------------------------


def reads_uncounted():
    """Is a reference not counted that a transaction loads now?"""
    case = warm(as_variable, Holder, ATTRIBUTE)
    run(as_variable, case)
    return case.not_counted


def start_by_transaction(function):
    run(threading.Thread(target=function).start)


def start_by_threading(function):
    threading.Thread(target=function).start()


def start_bare(function):
    _thread.start_new_thread(function, ())


@borrows
@pytest.mark.parametrize("start", [start_by_threading, start_bare, start_by_transaction], ids=name_of)
def test_all_is_counted_while_another_thread_runs_code_of_the_program(start):
    go_on, begun, over = (_thread.allocate_lock() for _ in range(3))
    for lock in go_on, begun, over:
        lock.acquire()

    def program():
        begun.release()
        assert go_on.acquire(timeout=TIMEOUT)
        over.release()

    assert reads_uncounted()
    start(program)
    assert begun.acquire(timeout=TIMEOUT)
    assert not reads_uncounted()
    go_on.release()
    assert over.acquire(timeout=TIMEOUT)
    end = time.monotonic() + TIMEOUT
    while not reads_uncounted():  # the thread is about to end
        assert time.monotonic() < end


@borrows
def test_a_thread_waits_until_nothing_is_borrowed():
    """Then it may do what it likes.  The attempt that has been at work begins again, since it lasts."""
    over = _thread.allocate_lock()
    over.acquire()

    class Lasting(Case):
        def __init__(self, *args):
            self.attempts, self.is_forgotten, self.others = 0, False, True
            super().__init__(*args)

        @trusted
        def begin(self):
            self.attempts += 1
            if self.attempts == 1 and not self.others:
                _thread.start_new_thread(self.forget, ())

        @trusted
        def is_over(self):
            return self.others or self.is_forgotten or self.attempts > 1

        def forget(self):
            self.holder.thing = None
            self.is_forgotten = True
            over.release()

    def lasts(case):
        found = case.holder.thing
        case.begin()
        while not case.is_over():
            sum(range(100))
        return found is None or use(found)

    for _ in range(60):
        run(lasts, Lasting(Holder(), *ATTRIBUTE))
    case = Lasting(Holder(), *ATTRIBUTE)
    case.others = False
    run(lasts, case)
    assert over.acquire(timeout=TIMEOUT)
    assert case.attempts > 1 and not case.is_alive()


def walk(table, made):
    """What a thread beside may change while a transaction walks over it, and what that makes before it commits."""
    total = 0
    for _ in range(200):
        made["list"] = own = []
        for found in table:
            own.append(found)
            total += len(found.value)
        for n in range(len(own)):
            total += own[n] is table[0] if table else 0
    return total


def test_a_thread_beside_changes_lists_that_transactions_use():
    """As on CPython each operation is whole, and nothing is used that is dead."""
    table, made, over = [Thing() for _ in range(50)], {"list": []}, []
    core.bias(table)

    def change():
        while not over:
            own = made["list"]
            with contextlib.suppress(IndexError):  # another one has made it shorter
                for n in range(50):
                    own.append(table[-1])
                    table[n] = Thing()
            table.extend([Thing() for _ in range(200)])
            del table[50:]
            own.clear()

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with contextlib.suppress(IndexError):
                run(walk, table, made)
    finally:
        over.append(True)
        for thread in threads:
            thread.join()


# ---- Under load --------------------------------------------------------------------------------------------------------------


def test_many_read_what_is_replaced_now_and_then():
    """Nothing is used that is dead, and nothing is left over."""
    made = []

    class Counted:
        def __init__(self, n):
            self.values = [n] * 5
            made.append(weakref.ref(self))

    table = [Counted(n) for n in range(20)]

    def read(n):
        total = 0
        for counted in table:
            values = counted.values
            total += sum(values) - 5 * values[0]
        return total

    def replace(n):
        table[n % 20] = Counted(n)

    async def reader():
        for n in range(400):
            found = table[n % 20]
            assert read(n) == 0
            await asyncio.sleep(0)
            assert found.values == [found.values[0]] * 5

    async def writer():
        for n in range(200):
            for _ in range(10):
                await asyncio.sleep(0)
            replace(n)

    async def main():
        await asyncio.gather(*[reader() for _ in range(6)], writer())

    tornado.stm.run(main(), threads=3)
    gc.collect()
    assert sum(reference() is not None for reference in made) == 20
