"""Attributes that each thread has for itself: `threading.local` in transactions, and `threadlocalproperty`."""

import copy
import gc
import pickle
import threading
import weakref

import pytest

from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
from tornado.stm.transaction import TransactionQueue, local, threadlocalproperty

activation.activate()


def run(function, *args):
    return core.Transaction(function, args).run()


@pytest.fixture(params=["plain", "transaction"])
def do(request):
    """Calls a function, as it is or as a transaction, and returns its result."""
    return (lambda f, *args: f(*args)) if request.param == "plain" else run


@trusted
def elsewhere(function, *args):
    """What the function returns in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join(60)
    return results[0]


class Foo:
    x = threadlocalproperty()
    y = threadlocalproperty(dict)


class Bar(Foo):
    x = threadlocalproperty(lambda: "made")

    def inherited(self):
        return super().x


# ---- local -----------------------------------------------------------------------------------------------------------------


def test_local_is_that_of_threading():
    assert local is threading.local


class WithDefault(threading.local):
    x = 10

    @property
    def twice(self):
        return self.x * 2

    def set(self, value):
        self.x = value
        return self


class Prepared(threading.local):
    def __init__(self, start):
        self.x = start


@pytest.mark.parametrize("make", [threading.local, WithDefault, lambda: Prepared(1)], ids=["plain", "default", "prepared"])
def test_values_of_threads(do, make):
    def use(loc):
        before = getattr(loc, "x", None)
        loc.x = [before]
        loc.x.append(2)
        setattr(loc, "y", 3)
        loc.__dict__["z"] = 4
        seen = [loc.x, loc.y, loc.z, hasattr(loc, "w"), sorted(vars(loc)), "y" in dir(loc)]
        del loc.y
        delattr(loc, "z")
        return seen, hasattr(loc, "y"), hasattr(loc, "z"), getattr(loc, "x")

    start = first = None if make is threading.local else 10 if make is WithDefault else 1
    loc = make()
    for _ in range(2):
        assert do(use, loc) == ([[first, 2], 3, 4, False, ["x", "y", "z"], True], False, False, [first, 2])
        first = [first, 2]
    assert elsewhere(do, use, loc)[3] == [start, 2]
    assert loc.x == first


def test_classes_of_local(do):
    def use(loc):
        return loc.twice, loc.set("a") is loc, loc.twice, elsewhere(lambda: loc.twice)

    loc = WithDefault()
    assert do(use, loc) == (20, True, "aa", 20)


def test_made_in_a_transaction(do):
    def use():
        loc, other = threading.local(), WithDefault()
        loc.x, other.x = 1, 2
        return loc, other

    loc, other = do(use)
    assert (loc.x, other.x) == (1, 2)
    assert elsewhere(lambda: (hasattr(loc, "x"), other.x)) == (False, 10)


# ---- threadlocalproperty -----------------------------------------------------------------------------------------------------


def test_property(do):
    def use():
        foo = Foo()
        seen = [hasattr(foo, "x"), dict(foo.y), foo.y is foo.y]
        foo.y["bar"] = "baz"
        foo.x = 42
        seen += [foo.x, dict(foo.y)]
        foo.y = 43
        seen += [foo.y]
        del foo.x
        del foo.y
        return seen + [hasattr(foo, "x"), foo.y]

    assert do(use) == [False, {}, True, 42, {"bar": "baz"}, 43, False, {}]


class Slotted:
    __slots__ = ("a", "__weakref__")
    x = threadlocalproperty(dict)


def test_it_is_no_part_of_the_instance(do):
    def use():
        foo, slotted = Foo(), Slotted()
        foo.a = slotted.a = 1
        foo.x, foo.y["k"], slotted.x["k"] = 1, 2, 3
        others = [copy.copy(foo), copy.deepcopy(foo), pickle.loads(pickle.dumps(foo))]
        return vars(foo), [(vars(other), hasattr(other, "x"), other.y) for other in others], slotted.x, Slotted().x

    assert do(use) == ({"a": 1}, [({"a": 1}, False, {})] * 3, {"k": 3}, {})


def test_clear_removes_the_values_of_all_threads(do):
    foo, other = Foo(), Foo()
    steps = [threading.Event() for _ in range(2)]
    seen = []

    def there():
        foo.x = foo.y["k"] = other.x = "there"
        steps[0].set()
        assert steps[1].wait(60)
        seen.extend([hasattr(foo, "x"), foo.y, other.x])

    thread = threading.Thread(target=there)
    thread.start()
    assert steps[0].wait(60)
    foo.x = "here"
    do(Foo.x.clear, foo)
    do(Foo.x.clear, foo)
    steps[1].set()
    thread.join(60)
    assert seen == [False, {"k": "there"}, "there"] and not hasattr(foo, "x")


def test_its_errors(do):
    def use():
        foo, messages = Foo(), []
        for operation in (lambda: foo.x, lambda: delattr(foo, "x"), lambda: delattr(foo, "y")):
            try:
                operation()
            except AttributeError as e:
                messages.append(str(e))
        return messages

    assert do(use) == [f"'Foo' object has no attribute '{name}' in this thread" for name in "xxy"]


def test_instances_classes_and_properties_are_apart(do):
    def use():
        foo, other, bar = Foo(), Foo(), Bar()
        foo.x, bar.y["a"] = 1, 2
        return hasattr(other, "x"), other.y, bar.x, hasattr(bar, "inherited"), bar.y, foo.y, type(Foo.x) is threadlocalproperty

    assert do(use) == (False, {}, "made", True, {"a": 2}, {}, True)
    bar = Bar()
    assert bar.x == "made"
    with pytest.raises(AttributeError):
        bar.inherited()  # a property of its own


def test_threads_are_apart():
    foo = Foo()
    foo.x = "here"
    foo.y["k"] = "here"

    def there():
        seen = hasattr(foo, "x"), dict(foo.y)
        foo.x = foo.y["k"] = "there"
        return seen, foo.x, foo.y

    assert elsewhere(there) == ((False, {}), "there", {"k": "there"})
    assert elsewhere(run, there) == ((False, {}), "there", {"k": "there"})
    assert foo.x == "here" and foo.y == {"k": "here"}


class Value:
    pass


def test_values_die_with_their_instance():
    foo, values, go_on, made = Foo(), [], threading.Event(), threading.Event()

    @trusted
    def keep(value):
        values.append(weakref.ref(value))

    def use(foo):
        foo.x = Value()
        foo.y["v"] = Value()
        keep(foo.x)
        keep(foo.y["v"])

    def there():
        run(use, foo)
        made.set()
        assert go_on.wait(60)

    thread = threading.Thread(target=there)
    thread.start()
    assert made.wait(60)
    run(use, foo)
    alive = [value() is not None for value in values]
    del foo, there
    # The other thread's frame still has what it was called with; its own values do not depend on that.
    go_on.set()
    thread.join(60)
    del thread
    gc.collect()
    assert alive == [True] * 4
    assert [value() for value in values] == [None] * 4


def test_values_of_living_threads_die_with_their_instance():
    box, value, steps = [Foo()], [], [threading.Event() for _ in range(2)]

    def there():
        box[0].x = Value()
        value.append(weakref.ref(box[0].x))
        steps[0].set()
        assert steps[1].wait(60)

    thread = threading.Thread(target=there)
    thread.start()
    assert steps[0].wait(60)
    assert value[0]() is not None
    box.clear()
    gc.collect()
    assert value[0]() is None
    steps[1].set()
    thread.join(60)


def test_values_die_with_their_thread():
    foo, value = Foo(), []

    def there():
        foo.x = Value()
        value.append(weakref.ref(foo.x))

    elsewhere(run, there)
    gc.collect()
    assert value[0]() is None


def test_caches_of_the_threads_of_a_queue():
    """What they are for: each thread fills a cache of its own, and what all of them hold is right."""
    transaction.set_threads(3)
    foo, results = Foo(), {}

    def square(n):
        if n not in foo.y:
            foo.y[n] = n * n
        results[n] = results.get(n, 0) + foo.y[n]

    queue = TransactionQueue()
    for i in range(200):
        queue.add(square, i % 10)
    core.inject_aborts(0.02, 4)
    try:
        queue.run()
    finally:
        core.inject_aborts(0, 0)
        transaction.set_threads(None)
    assert results == {n: 20 * n * n for n in range(10)}


# ---- Concurrency and rollback ------------------------------------------------------------------------------------------------

if core.PARALLEL:
    from meeting import APART, meet
    from tornado.stm._engine import Abort

    def set_x(o):
        o.x = 5

    def get_x(o):
        return getattr(o, "x", None)

    def change_x(o):
        o.x = getattr(o, "x", 0) + 1
        del o.x

    def put_in_y(o):
        o.y["k"] = o.y.get("k", 0) + 1

    def change_dict(o):
        o.__dict__.update(x=1, z=2)
        o.__dict__.clear()

    USES = [set_x, get_x, change_x, change_dict]

    @pytest.mark.parametrize("kind", [threading.local, WithDefault])
    @pytest.mark.parametrize("second", USES)
    @pytest.mark.parametrize("first", USES)
    def test_threads_never_conflict_over_a_local(kind, first, second):
        assert meet(lambda: (kind(),), first, second) == APART

    def begun():
        foo = Foo()
        foo.x = 0
        return (foo,)

    @pytest.mark.parametrize("second", [set_x, get_x, change_x, put_in_y])
    @pytest.mark.parametrize("first", [set_x, get_x, change_x, put_in_y])
    def test_threads_never_conflict_over_a_property(first, second):
        assert meet(begun, first, second) == APART

    class Attempts:
        """A transaction whose first attempt is rolled back at its end."""

        def __init__(self):
            self.n = 0

        @trusted
        def end(self):
            self.n += 1
            if self.n == 1 and not core.is_exclusive():
                raise Abort

    @pytest.mark.parametrize("make", [threading.local, WithDefault, lambda: Prepared(1), Foo, Bar])
    def test_rolled_back(make):
        """In the thread of the attempt, whether it had any values before or not."""

        def use(o, attempts):
            before = {name: getattr(o, name, None) for name in ("x", "new", "gone")}
            o.x = "changed"
            o.new = 1
            o.gone = 2
            del o.gone
            attempts.end()
            return before

        def both(o):
            attempts = Attempts()
            before = run(use, o, attempts)
            return before, {name: getattr(o, name, None) for name in ("x", "new", "gone")}, attempts.n

        for where in (elsewhere, lambda f, *args: f(*args)):
            o = make()
            before = where(lambda: {name: getattr(o, name, None) for name in ("x", "new", "gone")})
            seen, after, _ = where(both, o)
            assert seen == before
            assert after == {"x": "changed", "new": 1, "gone": None}

    def test_a_class_with_an_init_prepares_each_thread_once_for_ever():
        made = []

        class Noting(threading.local):
            def __init__(self):
                self.__dict__["x"] = []
                note()

        @trusted
        def note():
            made.append(threading.get_ident())

        def use(loc, attempts):
            loc.x.append(1)
            attempts.end()
            return loc.x

        loc = Noting()
        for _ in range(3):
            made.clear()
            assert elsewhere(run, use, loc, Attempts()) == [1]
            assert len(made) == 1

    def test_it_does_not_run_alone():
        loc, foo = threading.local(), Foo()

        def use():
            loc.x = getattr(loc, "x", 0) + 1
            foo.x = foo.y.setdefault("k", 0)
            threading.local().x = 1
            del loc.x

        for _ in range(3):
            run(use)
        before = core.stats()["exclusives"]
        run(use)
        assert core.stats()["exclusives"] == before
