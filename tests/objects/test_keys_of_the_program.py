"""Keys whose hash and comparison are Python code: that runs inside of transactions, never while one is rolled back or commits.

There it would run without barriers, and wait for ever for a lock that this very attempt has taken.
"""

import _thread
import asyncio
import collections
import ctypes
import functools
import random
import threading

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from tornado.stm.core import Abort, trusted

activation.activate()

WATCHED = []    # while it has an item, code of keys is watched
STRAY = []      # what ran in a wrong place


@trusted
def note(what, key):
    if WATCHED and not core.in_transaction():
        STRAY.append((what, key.n))


class Key:
    """Equal to others of the same number, not to the number; and many have the same hash."""

    hashed_as = staticmethod(lambda n: n % 3)

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        note("hash", self)
        return self.hashed_as(self.n)

    def __eq__(self, other):
        note("eq", self)
        return isinstance(other, Key) and self.n == other.n


class Lonely(Key):
    """As usual: a hash of its own."""

    hashed_as = staticmethod(lambda n: hash(("lonely", n)))


class Locked(Lonely):
    """As those of unittest.mock: with a lock."""

    def __init__(self, n):
        self.n = n
        self.lock = threading.RLock()

    def __hash__(self):
        with self.lock:
            return super().__hash__()

    def __eq__(self, other):
        with self.lock:
            return super().__eq__(other)


@pytest.fixture(params=[Key, Lonely, Locked])
def key(request):
    """Makes keys; afterwards none of them may have run in a wrong place."""
    STRAY.clear()
    yield request.param
    WATCHED.clear()
    assert STRAY == []


def rolled_back(mutate, contents):
    """Its first attempts are rolled back and leave no trace; the last one, or one that has to run alone, commits."""
    attempts, before = [], contents()

    @trusted
    def aborts():
        attempts.append("alone" if core.is_exclusive() else "with others")
        if len(attempts) <= 3 and not core.is_exclusive():
            raise Abort

    @trusted
    def unchanged():
        if len(attempts) > 0:
            assert contents() == before

    def attempt():
        unchanged()
        mutate()
        aborts()

    WATCHED.append(None)
    core.Transaction(attempt, ()).run()
    WATCHED.clear()
    assert len(attempts) == 4 or attempts[-1] == "alone"
    assert STRAY == []


def numbers(keys):
    return [getattr(k, "n", k) for k in keys]


def test_dict(key):
    d = {key(i): i for i in range(6)}
    old = list(d)

    def mutate():
        d[old[1]] = "one"
        d[key(2)] = "two"
        d[key(10)] = "ten"
        d[key(10)] = "again"
        del d[key(3)]
        d[key(3)] = "last"
        d.pop(old[4])
        d.setdefault(key(11), 11)
        d[1] = "a number"
        d[2] = "another"

    rolled_back(mutate, lambda: [(getattr(k, "n", k), v) for k, v in d.items()])
    assert [(getattr(k, "n", k), v) for k, v in d.items()] == [
        (0, 0), (1, "one"), (2, "two"), (5, 5), (10, "again"), (3, "last"), (11, 11), (1, "a number"), (2, "another")]
    assert all(any(k is o for o in old) for k in d if not isinstance(k, int) and k.n in (0, 1, 2, 5))
    assert d[key(10)] == "again" and d[1] == "a number" and key(4) not in d


def test_dict_with_strings_and_keys_of_the_same_hash():
    class Named:
        def __init__(self, name):
            self.n = name

        def __hash__(self):
            note("hash", self)
            return hash(self.n)

        def __eq__(self, other):
            note("eq", self)
            return isinstance(other, Named) and self.n == other.n

    STRAY.clear()
    d = {Named("a"): 1, "a": 2, Named("b"): 3, "b": 4}

    def mutate():
        d[Named("a")] = "first"
        d["a"] = "second"
        d["".join(["b"])] = "fourth"
        del d["b"]
        d[Named("c")] = 5
        d["c"] = 6

    rolled_back(mutate, lambda: [(getattr(k, "n", k), type(k).__name__, v) for k, v in d.items()])
    assert [(getattr(k, "n", k), v) for k, v in d.items()] == [("a", "first"), ("a", "second"), ("b", 3), ("c", 5), ("c", 6)]


def test_dict_grows_under_the_insertions(key):
    d = {}
    rolled_back(lambda: [d.__setitem__(key(i), i) for i in range(100)], lambda: numbers(d))
    assert numbers(d) == list(range(100))


def test_defaultdict_and_counter(key):
    lists, counts = collections.defaultdict(list), collections.Counter()
    for i in range(3):
        lists[key(i)].append(i)
        counts[key(i)] += 1

    def mutate():
        for i in range(6):
            lists[key(i)].append("new")
            counts[key(i)] += 1

    rolled_back(mutate, lambda: ([(k.n, list(v)) for k, v in lists.items()], [(k.n, v) for k, v in counts.items()]))
    assert [(k.n, v) for k, v in counts.items()] == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]


def test_set(key):
    s = {key(i) for i in range(6)}

    def mutate():
        s.add(key(1))
        s.add(key(10))
        s.discard(key(2))
        s.remove(key(3))
        s.add(key(3))
        s.add(10)
        for i in range(20, 60):
            s.add(key(i))

    rolled_back(mutate, lambda: numbers(s))
    assert sorted(numbers(s)) == sorted([0, 1, 4, 5, 10, 3, 10, *range(20, 60)])


def test_ordered_dict(key):
    d = collections.OrderedDict((key(i), i) for i in range(6))
    iterator = iter(d)
    next(iterator)

    def mutate():
        d[key(1)] = "one"
        d[key(10)] = "ten"
        del d[key(3)]
        d.move_to_end(key(0))
        d.popitem(last=False)

    rolled_back(mutate, lambda: [(k.n, v) for k, v in d.items()])
    assert [(k.n, v) for k, v in d.items()] == [(2, 2), (4, 4), (5, 5), (10, "ten"), (0, 0)]


@pytest.mark.parametrize("maxsize", [None, 4])
def test_lru_cache(key, maxsize):
    calls = []

    @functools.lru_cache(maxsize=maxsize)
    def double(k, other=None):
        calls.append(k.n)
        return 2 * k.n

    for i in range(4):
        double(key(i))
    calls.clear()

    def mutate():
        double(key(1))
        for i in range(8):
            assert double(key(i)) == 2 * i
        double(key(7), other=key(1))

    rolled_back(mutate, lambda: (double.cache_info(), list(calls)))
    assert double.cache_info().misses == 4 + len(calls)


def test_a_key_as_name(key):
    class Open:
        pass

    thing = Open()
    thing.a = 1
    names = vars(thing)

    def mutate():
        names[key(1)] = 1
        names["b"] = 2
        del names["a"]
        names[key(1)] = 3
        thing.c = 4

    rolled_back(mutate, lambda: [(getattr(k, "n", k), v) for k, v in names.items()])
    assert [(getattr(k, "n", k), v) for k, v in names.items()] == [(1, 3), ("b", 2), ("c", 4)]


def test_insertions_put_in_order_at_the_commit():
    """Of two transactions that insert at the same time, the one that commits later has its keys behind those of the other one."""
    STRAY.clear()
    d = {Lonely(i): i for i in range(3)}
    over = threading.Lock()
    over.acquire()
    other = core.Transaction(lambda: insert([20, 21]), ())

    @trusted
    def overtaken():
        if not other.done and not core.is_exclusive():
            _thread.start_new_thread(run_other, ())
            assert over.acquire(timeout=60)

    @trusted
    def run_other():
        other.run()
        over.release()

    def insert(new, meanwhile=None):
        for n in new:
            d[Lonely(n)] = n
        if meanwhile is not None:
            meanwhile()

    WATCHED.append(None)
    core.Transaction(insert, ([10, 11], overtaken)).run()
    WATCHED.clear()
    assert other.done
    assert numbers(d) == [0, 1, 2, 20, 21, 10, 11]
    assert [d[Lonely(n)] for n in numbers(d)] == numbers(d)
    assert STRAY == []


def test_who_awaits_a_future(key):
    """asyncio keeps them in a set."""
    loop = asyncio.new_event_loop()

    class Waiter(asyncio.Future):
        def __hash__(self):
            return hash(self.key)

        def __eq__(self, other):
            return isinstance(other, Waiter) and self.key == other.key

    future = loop.create_future()
    waiters = [loop.create_future() for _ in range(2)] + [Waiter(loop=loop) for _ in range(4)]
    for waiter in waiters[2:]:
        waiter.key = key(id(waiter))
    for waiter in waiters[:4]:
        asyncio.future_add_to_awaited_by(future, waiter)

    def mutate():
        asyncio.future_discard_from_awaited_by(future, waiters[0])
        asyncio.future_discard_from_awaited_by(future, waiters[3])
        for waiter in waiters[2:]:
            asyncio.future_add_to_awaited_by(future, waiter)

    rolled_back(mutate, lambda: sorted(id(w) for w in future._asyncio_awaited_by))
    assert sorted(map(id, future._asyncio_awaited_by)) == sorted(map(id, waiters[1:]))
    loop.close()


class Text(str):
    """Equal to the string, by Python code."""

    def __eq__(self, other):
        note("eq", self)
        return str.__eq__(self, other)

    def __hash__(self):
        note("hash", self)
        return str.__hash__(self)

    @property
    def n(self):
        return str(self)


class Thing:
    pass


COLLIDING = {
    "zero and nothing": (0, ""),
    "bytes and text": (b"a", "a"),
    "large and small": (2**61, 1),
    "a fraction": (2.0**-40, 2**21),
    "minus one and two": (-1, -2),
    "tuples of them": ((-1,), (-2,)),
    "a key of the program": (Key(1), 1),
}


@pytest.mark.parametrize("one, two", [*COLLIDING.values(), *(pair[::-1] for pair in COLLIDING.values())],
                         ids=[*COLLIDING, *(f"{name}, reversed" for name in COLLIDING)])
def test_other_keys_of_the_same_hash(one, two):
    assert hash(one) == hash(two) and one != two
    STRAY.clear()

    def put(d, s):
        d[one] = d[two] = 1
        d[one] = d[two] = d["last"] = 2
        s.add(one)
        s.add(two)

    def take(d, s):
        d.pop(one, None)
        d[two] = 3
        d.pop(two, None)
        d[one] = 4
        s.discard(one)
        s.discard(two)
        s.add(one)

    for before in ([], [one], [two], [one, two]):
        d, s = dict.fromkeys(before, 0), set(before)
        expected = dict(d), set(s)
        for change in put, take, put:
            change(*expected)
            rolled_back(lambda: change(d, s), lambda: (list(d.items()), set(s)))
            assert (list(d.items()), s) == (list(expected[0].items()), expected[1])


@pytest.mark.parametrize("other", [b"a", Lonely(1), Text("a"), 5])
def test_attributes_beside_keys_of_the_same_hash(other):
    STRAY.clear()
    if isinstance(other, Lonely):
        other.hashed_as = lambda n: hash("a")
    thing = Thing()
    thing.b = 0
    vars(thing)[other] = 1

    def change():
        vars(thing)[other] = 2
        thing.a = 3
        thing.a = 4
        thing.b = 5

    def delete():
        del thing.a
        thing.a = 6
        del vars(thing)["a"]

    for step in change, delete, change:
        rolled_back(step, lambda: list(vars(thing).items()))
    assert thing.a == 4 and thing.b == 5


@pytest.mark.parametrize("make", [Text, type("Derived", (str,), {})])
@pytest.mark.parametrize("delete", [lambda thing: delattr(thing, "a"), lambda thing: vars(thing).pop("a")])
def test_a_name_is_put_back_as_the_object_that_it_was(make, delete):
    STRAY.clear()
    thing = Thing()
    names = vars(thing)
    core.Transaction(names.__setitem__, (make("a"), 1)).run()
    rolled_back(lambda: delete(thing), lambda: [(type(name), value) for name, value in names.items()])
    assert names == {}

    def put_and_delete():
        names[make("a")] = 1
        delete(thing)

    rolled_back(put_and_delete, lambda: list(names))
    assert names == {}


def test_a_name_of_a_class_derived_from_str():
    thing = Thing()
    attempts = []

    def attempt():
        attempts.append(1)
        setattr(thing, Text("a"), 1)
        return core.is_exclusive()

    assert core.Transaction(attempt, ()).run() and thing.a == 1


def table_of(s):
    """What lies where in a small set's table of 8: an element, a GAP, or None."""
    words = ctypes.cast(id(s) + object.__basicsize__, ctypes.POINTER(ctypes.c_ssize_t))
    table = ctypes.cast(words[3], ctypes.POINTER(ctypes.c_ssize_t))
    assert words[2] == 7
    elements = {id(element): element for element in s}
    return [elements.get(table[2 * i], GAP if table[2 * i] else None) for i in range(8)]


def place_for(table, number):
    """Where the number would be put, as sets look for a place; and is that an empty one?"""
    at, perturb, gap = number & 7, number, None
    while table[at] is not None:
        gap = at if table[at] is GAP else gap
        perturb >>= 5
        at = (at * 5 + 1 + perturb) & 7
    return (at, True) if gap is None else (gap, False)


def replaced(table, at, what):
    return [what if i == at else there for i, there in enumerate(table)]


def swap_for(table):
    """A number to be taken out, and one that is put into its gap, so that the first one needs an empty place to come back to."""
    for at, taken in enumerate(table):
        if taken is None or taken is GAP:
            continue
        for put in range(2000):
            if put not in table and place_for(replaced(table, at, GAP), put) == (at, False):
                if place_for(replaced(table, at, put), taken)[1]:
                    return taken, put
    return None


GAP = object()


def test_a_set_that_is_rolled_back_again_and_again_keeps_places_free():
    """Others put elements where this one takes some out; a set without an empty place could not be searched."""
    choice = random.Random(1)
    for _ in range(400):
        first, *others = choice.sample(range(2000), 4)
        s = {first, *others}
        for number in others:
            s.discard(number)
        while s.__sizeof__() == set().__sizeof__() and None in table_of(s) and (swap := swap_for(table_of(s))):
            take_while_another_is_put(s, *swap)
            assert swap[0] in s and swap[1] in s
        assert s.__sizeof__() > set().__sizeof__() or None in table_of(s)


def take_while_another_is_put(s, taken, put):
    """In attempts that are rolled back."""
    over = threading.Lock()
    attempts = []

    @trusted
    def other():
        core.Transaction(s.add, (put,)).run()
        over.release()

    @trusted
    def meanwhile():
        attempts.append(None)
        over.acquire()
        _thread.start_new_thread(other, ())
        assert over.acquire(timeout=60)
        raise Abort

    def step():
        if not attempts:
            s.discard(taken)
            meanwhile()

    core.Transaction(step, ()).run()


@pytest.mark.parametrize("change, before", [
    (lambda s: (s.discard(31), s.discard(60), s.add(31)), [59, 14, 31, 55, 60]),
    (lambda s: (s.discard(5), s.add(2), s.add(3), s.add(5)), [8, 1]),
    (lambda s: (s.add(5), s.discard(8), s.add(8), s.discard(5)), [8, 1]),
])
def test_a_set_has_its_elements_where_they_were(change, before):
    s = set(before)
    rolled_back(lambda: change(s), lambda: list(s))
