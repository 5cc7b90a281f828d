"""The standard library in transactions: what it does there is what it does in plain Python, beside other transactions.

The table below has one small function for each feature; it works on a state that `make` builds.  Each is run

* once as a transaction, against the same call in plain Python: results, exceptions and the state left behind;
* again, when all code has been seen: nothing of it may run alone;
* with aborts injected at random barriers: an aborted attempt leaves no trace;
* several times on one state, from two threads: since all are the same function, every serial order gives the same
  results and the same end, and that is what must come out.

A function returns what can be compared: not what depends on the time, on chance or on addresses.
"""

import array
import base64
import bisect
import codecs
import contextlib
import contextvars
import copy
import copyreg
import csv
import dataclasses
import datetime
import decimal
import email.message
import email.mime.text
import email.utils
import enum
import fractions
import functools
import hashlib
import heapq
import hmac
import html
import inspect
import io
import itertools
import json
import logging
import math
import mimetypes
import operator
import pickle
import pprint
import random
import re
import secrets
import statistics
import string
import struct
import textwrap
import time
import traceback
import types
import typing
import urllib.parse
import uuid
import weakref
import zipfile
import zlib
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from http import cookies

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

activation.activate()

RUNS = 6  # of each function on one state
INJECTED = 0.03  # the chance of an abort at a barrier
SEEDS = range(1, 6)


# ---- The table -------------------------------------------------------------------------------------------------------

FEATURES = {}


def feature(make):
    """Add a function to the table; `make` builds the state that it works on."""

    def add(function):
        name = function.__name__
        assert name not in FEATURES, name
        FEATURES[name] = make, function
        return function

    return add


def nothing():
    return None


def numbers():
    return [5, 3, 8, 1, 9, 2, 7]


class Ranked:
    """Compares by Python methods."""

    def __init__(self, rank):
        self.rank = rank

    def __lt__(self, other):
        return self.rank < other.rank

    def __eq__(self, other):
        return isinstance(other, Ranked) and self.rank == other.rank

    def __hash__(self):
        return hash(self.rank)

    def __repr__(self):
        return f"<{self.rank}>"


def ranked():
    return [Ranked(n) for n in numbers()]


class Money:
    """Prints and counts by Python methods."""

    def __init__(self, amount, currency="EUR"):
        self.amount = amount
        self.currency = currency

    def __str__(self):
        return f"{self.amount} {self.currency}"

    def __repr__(self):
        return f"Money({self.amount!r})"

    def __format__(self, spec):
        return f"{self.amount:{spec}}{self.currency}"

    def __add__(self, other):
        return Money(self.amount + (other.amount if isinstance(other, Money) else other))

    __radd__ = __add__

    def __bool__(self):
        return self.amount != 0

    def __eq__(self, other):
        return isinstance(other, Money) and self.amount == other.amount

    def __len__(self):
        return self.amount

    def __index__(self):
        return self.amount


class Shelf:
    """Iterates by Python methods, over what it stores."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


# -- collections


@feature(lambda: defaultdict(list))
def defaultdict_list(d):
    d["a"].append(len(d["a"]))
    d["b"] += [1]
    return sorted(d), d.get("c"), "c" in d


@feature(lambda: defaultdict(int, a=1))
def defaultdict_int(d):
    for letter in "abracadabra":
        d[letter] += 1
    return dict(d), d.copy() == d, repr(d)


@feature(lambda: defaultdict(lambda: defaultdict(int)))
def defaultdict_nested(d):
    d["x"]["y"] += 1
    d["x"]["z"] -= 1
    return len(d), d["x"]["y"], d["new"]["key"]


@feature(lambda: defaultdict(Counter))
def defaultdict_of_counters(d):
    d["x"].update("abca")
    d["x"]["b"] -= 1
    return d["x"].most_common(1), d.pop("nothing", None), d.setdefault("y", 1)


@feature(lambda: defaultdict(functools.partial(Money, 3)))
def defaultdict_with_a_partial(d):
    return d["a"].amount, len(d)


@feature(Counter)
def counter_update(c):
    c.update("abracadabra")
    c.update({"a": 2, "z": 1})
    c.update(letter for letter in "generator")
    c.update(a=1)
    return c.most_common(3), c["missing"], c.total()


@feature(lambda: [])
def counter_made(made):
    made.append(Counter("mississippi"))
    made.append(Counter(word[0] for word in ("an", "apple", "be")))
    made.append(Counter({"x": 2}, y=3))
    return Counter(made[0]).most_common(), list(Counter(a=2, b=1).elements())


@feature(lambda: (Counter("aab"), Counter("abc")))
def counter_arithmetic(pair):
    a, b = pair
    a += Counter("c")
    b.subtract("cc")
    return a + b, a - b, a & b, a | b, +b, -b, a == b, a <= a + b, a < b


@feature(lambda: Counter("hello world"))
def counter_deletes(c):
    del c["missing"]
    c["h"] = 0
    c["w"] += 1
    return sorted(c.items()), c.copy() == c, repr(c)


@feature(lambda: OrderedDict(a=1, b=2, c=3))
def ordered_dict_moves(d):
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    d["d"] = d.pop("b", 0) + 1
    d["b"] = len(d)
    return list(d), list(reversed(d)), list(d.items())


@feature(lambda: OrderedDict((n, str(n)) for n in range(30)))
def ordered_dict_popitem(d):
    return d.popitem(), d.popitem(last=False), next(iter(d)), list(d.values())[-1], len(d)


@feature(lambda: OrderedDict(a=1))
def ordered_dict_update(d):
    d.update(b=2)
    d.update([("c", 3)])
    d.update((key, 4) for key in "de")
    d |= {"f": 5}
    d.setdefault("g", 6)
    del d["b"]
    return d, d | {"x": 1}, d == OrderedDict(d), d.copy(), repr(d), OrderedDict.fromkeys("ab", 0)


@feature(lambda: deque([1, 2, 3, 4]))
def deque_rotate(d):
    d.rotate(1)
    d.rotate(-2)
    d.reverse()
    return list(d), d.count(2), d.index(3), 2 in d


@feature(lambda: deque([1, 2, 3], maxlen=3))
def deque_maxlen(d):
    d.append(d[0])
    d.appendleft(9)
    d.extend([7, 8])
    d.extendleft(n for n in (5,))
    return list(d), d.maxlen, d.copy(), d == deque([1])


@feature(lambda: deque(range(10)))
def deque_edits(d):
    d.insert(2, 99)
    d.remove(99)
    d[1] = d[0] + d[-1]
    del d[3]
    d += (5,)
    d.append(d.popleft())
    d.appendleft(d.pop())
    return list(d), len(d), list(reversed(d)), d + deque([1]), d * 2, sum(d)


@feature(lambda: deque(maxlen=2))
def deque_init(d):
    d.append(1)
    return deque(d, 5), deque("abc", maxlen=2), deque(d.copy(), maxlen=1), repr(d)


@feature(lambda: bytearray(b"hello"))
def bytearray_edits(b):
    b.extend(b" world")
    b += b"!"
    b[0] = 72
    b[1:3] = b"EL"
    del b[-1]
    b.insert(0, 33)
    b.reverse()
    b.append(b.pop(0))
    b.remove(33)
    del b[20:]
    return bytes(b), b.find(b"o"), b.upper(), b.decode(), b.split(b" "), b.hex(), b[0], b"l" in b, len(b)


@feature(lambda: bytearray(b"a,b,c"))
def bytearray_reads(b):
    return (
        b.replace(b",", b";"), b.partition(b","), b.rsplit(b",", 1), b.title(), b.center(9), b.isalpha(), b.strip(b"a"),
        b.startswith(b"a"), b + b"x", b * 2, b == b"a,b,c", bytearray(b), bytes(b), b.join([b"x", b"y"]), b.copy(),
        b.translate(None, b","), list(b), b.ljust(7), b.zfill(7), b.splitlines(), b.expandtabs(), b.removeprefix(b"a"),
    )


@feature(lambda: bytearray(b","))
def bytearray_changed_while_it_joins(b):
    def parts():
        yield b"x"
        b[0] = 59
        try:
            b.clear()
        except BufferError as e:
            yield str(e).encode()

    return b.join(parts()), len(b)


@feature(lambda: {1, 2, 3})
def set_methods(s):
    s.add(4)
    s.discard(1)
    s.update([5, 6], (7,))
    s |= {8}
    s -= {2}
    s ^= {3, 9}
    s &= set(range(20))
    s.difference_update([5])
    s.intersection_update(range(15))
    s.symmetric_difference_update({6, 10})
    return sorted(s), s | {1}, s & {4}, s - {4}, s ^ {4}, s.union([1], [2]), s.isdisjoint({100}), s <= s, {4} < s


@feature(lambda: {Ranked(n) for n in range(5)})
def set_of_objects(s):
    s.add(Ranked(7))
    s.discard(Ranked(2))
    s.remove(Ranked(3)) if Ranked(3) in s else s.add(Ranked(3))
    return sorted(r.rank for r in s), len(s), Ranked(1) in s, s == set(s)


@feature(lambda: (frozenset("abc"), {}))
def frozensets(pair):
    f, d = pair
    d[f] = d.get(f, 0) + 1
    d[frozenset((1, 2))] = f | {"d"}
    return f & {"a"}, f - {"a"}, f ^ {"z"}, f.union("xy"), hash(f) == hash(frozenset("cba")), f.issubset("abcd"), f == set("abc")


@feature(lambda: ChainMap({"a": 1}, {"b": 2}))
def chain_map(m):
    m["c"] = m.get("c", 0) + 1
    child = m.new_child({"a": 5})
    return child["a"], child["b"], sorted(child), len(m), child.parents == m, "zz" in m, dict(child), m.pop("c") and m.maps


@feature(lambda: (UserDict(a=1), UserList([1, 2]), UserString("text")))
def user_containers(three):
    d, items, text = three
    d["b"] = d.get("b", 0) + 1
    d.update(c=3)
    items.append(len(items))
    items.sort(reverse=True)
    items += [0]
    return d, dict(d), items, items[0], items[1:3].data, text.upper(), text + "s", "b" in d, d | {"z": 1}, str(text)


Point = namedtuple("Point", "x y", defaults=[0])


class Person(typing.NamedTuple):
    name: str
    age: int = 3
    tags: list = []

    def older(self):
        return self._replace(age=self.age + 1)


@feature(lambda: [Point(1, 2), Person("Ann")])
def named_tuples(made):
    p, person = made
    made[1] = person.older()
    x, y = p
    return p.x + p[1], p._replace(y=9), p._asdict(), Point._make([3, 4]), Point(5), person._fields, Person("Bob", age=4), x, repr(p)


# -- iterators that outlive a transaction


def iterator(name, make):
    def advance(state):
        iterator = state[0]
        taken = [next(iterator, "end"), next(iterator, "end")]
        state[1].append(taken)
        return taken

    advance.__name__ = f"iterator_{name}"
    FEATURES[advance.__name__] = (lambda: [make(), []]), advance


def is_even(n):
    return n % 2 == 0


def squares(n):
    for i in range(n):
        yield i * i


def shared_rows():
    return [[1, 2], [3], [], [4, 5, 6], [7, 8, 9, 10, 11]]


def append_result(items):
    def call():
        items.append(len(items))
        return items

    return call


class Sequence:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


def grouped(pairs):
    return ((key, list(group)) for key, group in pairs)


ITERATORS = {
    "list": lambda: iter(numbers()),
    "list_reversed": lambda: reversed(numbers()),
    "tuple": lambda: iter(tuple(numbers())),
    "str": lambda: iter("abcdefgh"),
    "unicode": lambda: iter("äöüßéèàç"),
    "bytes": lambda: iter(b"abcdefgh"),
    "bytearray": lambda: iter(bytearray(b"abcdefgh")),
    "range": lambda: iter(range(100)),
    "long_range": lambda: iter(range(2**70, 2**70 + 50)),
    "memoryview": lambda: iter(memoryview(b"abcdefgh")),
    "array": lambda: iter(array.array("i", range(20))),
    "dict": lambda: iter(dict.fromkeys(range(20))),
    "dict_items": lambda: iter({n: [n] for n in range(20)}.items()),
    "dict_values": lambda: iter({n: -n for n in range(20)}.values()),
    "dict_reversed": lambda: reversed(dict.fromkeys(range(20))),
    "dict_items_reversed": lambda: reversed({n: n for n in range(20)}.items()),
    "ordered_dict": lambda: iter(OrderedDict.fromkeys(range(20))),
    "ordered_dict_items": lambda: iter(OrderedDict.fromkeys(range(20), 1).items()),
    "ordered_dict_reversed": lambda: reversed(OrderedDict.fromkeys(range(20), 1)),
    "set": lambda: iter(set(range(20))),
    "frozenset": lambda: iter(frozenset(range(20))),
    "deque": lambda: iter(deque(range(20))),
    "deque_reversed": lambda: reversed(deque(range(20))),
    "sequence": lambda: iter(Sequence(list(range(20)))),
    "sequence_reversed": lambda: reversed(Sequence(list(range(20)))),
    "callable": lambda: iter(iter(range(20)).__next__, 9),
    "python_callable": lambda: iter(append_result([]), [0, 1, 2, 3, 4, 5]),
    "enumerate": lambda: enumerate(numbers(), 5),
    "enumerate_of_an_iterator": lambda: enumerate(map(str, iter(numbers()))),
    "zip": lambda: zip("abcdefgh", numbers(), itertools.count()),
    "zip_strict": lambda: zip("abc", "def", strict=True),
    "map": lambda: map(lambda n: n + 1, iter(numbers())),
    "map_of_two": lambda: map(operator.add, iter(numbers()), numbers()),
    "map_str": lambda: map(str, [[1], {2: 3}, ("x",)] * 5),
    "map_of_a_bound_method": lambda: map([10, 11].append, iter(numbers())),
    "filter": lambda: filter(is_even, iter(range(30))),
    "filter_none": lambda: filter(None, [0, 1, [], [2], {}, {3: 4}, 5, 6, 7, 8]),
    "filter_by_c_function": lambda: filter([].append, [1, 2, 3]),
    "filter_by_result": lambda: filter({1: [], 2: [3], 4: [5]}.get, iter(range(20))),
    "generator": lambda: squares(30),
    "generator_expression": lambda: (n * 2 for n in numbers() if n > 1),
    "chain": lambda: itertools.chain([1, 2], iter([3]), "ab", {4: 5}, squares(9)),
    "chain_from_iterable": lambda: itertools.chain.from_iterable(shared_rows()),
    "chain_from_generator": lambda: itertools.chain.from_iterable(row for row in shared_rows()),
    "chain_from_iterator": lambda: itertools.chain.from_iterable(iter(shared_rows())),
    "islice": lambda: itertools.islice(iter(range(50)), 1, 40, 2),
    "islice_of_generator": lambda: itertools.islice(squares(50), 9),
    "count": lambda: itertools.count(5),
    "count_by_fraction": lambda: itertools.count(fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "count_long": lambda: itertools.count(2**63 - 3),
    "repeat": lambda: itertools.repeat("x", 5),
    "cycle": lambda: itertools.cycle("abc"),
    "cycle_of_generator": lambda: itertools.cycle(squares(4)),
    "accumulate": lambda: itertools.accumulate(iter(numbers())),
    "accumulate_lists": lambda: itertools.accumulate(shared_rows()),
    "accumulate_with_function": lambda: itertools.accumulate(iter(numbers()), lambda a, b: a * b, initial=2),
    "accumulate_with_c_function": lambda: itertools.accumulate(iter(numbers()), operator.mul),
    "takewhile": lambda: itertools.takewhile(lambda n: n < 50, squares(30)),
    "dropwhile": lambda: itertools.dropwhile(lambda n: n < 20, squares(30)),
    "filterfalse": lambda: itertools.filterfalse(is_even, iter(range(30))),
    "filterfalse_none": lambda: itertools.filterfalse(None, [[], [1], 0, "", 5, {}]),
    "starmap": lambda: itertools.starmap(pow, [(2, 3), [2, 4], iter((2, 5))] + [(3, n) for n in range(9)]),
    "compress": lambda: itertools.compress(itertools.count(), iter([1, 0, [], [1], "", "x", 1, 1, 1])),
    "pairwise": lambda: itertools.pairwise(iter(numbers())),
    "batched": lambda: itertools.batched(squares(30), 3),
    "zip_longest": lambda: itertools.zip_longest("abcdefgh", iter([1, 2, 3]), fillvalue="-"),
    "product": lambda: itertools.product([1, 2, 3], "ab", repeat=2),
    "permutations": lambda: itertools.permutations(numbers(), 3),
    "combinations": lambda: itertools.combinations(numbers(), 3),
    "combinations_with_replacement": lambda: itertools.combinations_with_replacement("abc", 3),
    "groupby": lambda: (key for key, _ in itertools.groupby("aabbccddeeffgghhii")),
    "groupby_with_key": lambda: grouped(itertools.groupby([1, 3, 5, 2, 4, 7, 8, 8, 9], key=is_even)),
    "groupby_of_lists": lambda: grouped(itertools.groupby([[1], [1], [2], [3], [3], [4]])),
    "tee": lambda: itertools.tee(squares(200), 2)[0],
    "tee_of_tee": lambda: itertools.tee(itertools.tee(iter(range(200)))[1])[0],
    "python_iterator": lambda: iter(Shelf(numbers())),
    "finditer": lambda: map(re.Match.group, re.finditer("[a-z]", "a1b2c3d4e5")),
    "iter_unpack": lambda: struct.iter_unpack("<H", bytes(range(40))),
    "scandir_like": lambda: zip(enumerate("abcdef"), filter(None, map(int, "102345"))),
}

for name, make in ITERATORS.items():
    iterator(name, make)


@feature(lambda: [itertools.groupby([1, 1, 2, 2, 3, 3, 3, 4], key=lambda n: n), None])
def groupby_groups(state):
    if state[1] is None:
        state[1] = next(state[0], None)
        return state[1] and state[1][0]
    taken = next(state[1][1], None)
    if taken is None:
        state[1] = None
    return taken


@feature(lambda: list(itertools.tee(iter(range(300)), 3)))
def tee_of_three(tees):
    a, b, c = tees
    first = [next(a) for _ in range(3)]
    tees[2] = copy.copy(b)
    return first, next(b), list(itertools.islice(c, 2))


@feature(lambda: {"walk": iter({n: n for n in range(10)}), "d": {}})
def size_changed_during_iteration(state):
    d = state["d"] = {1: 2, 3: 4}
    walk = iter(d)
    next(walk)
    d[5] = 6
    try:
        next(walk)
    except RuntimeError as e:
        return str(e)


@feature(lambda: deque(range(5)))
def deque_changed_during_iteration(d):
    walk = iter(d)
    next(walk)
    d.append(1)
    try:
        next(walk)
    except RuntimeError as e:
        return str(e)


class Reader:
    """Its iterator is stored, as a file's or a stream's is."""

    def __init__(self, items):
        self.lines = iter(items)

    def __iter__(self):
        return self.lines


@feature(lambda: Reader(list(range(100))))
def stored_iterator_in_a_loop(reader):
    for n in reader:
        break
    return n


@feature(lambda: Reader(list(range(100))))
def stored_iterator_taken_by_c(reader):
    return list(zip(reader, "ab")), list(itertools.islice(reader, 3)), 7 in reader


@feature(lambda: Reader([[1, 2], [3, 4], [5, 6], [7, 8]] * 20))
def stored_iterator_unpacked(reader):
    first, *rest = itertools.islice(reader, 3)
    for a, b in zip(reader, reader):
        return first, rest, a, b


# -- functools

calls = []


@functools.lru_cache(maxsize=None)
def doubled(n, *, plus=0):
    return [2 * n + plus]


@feature(nothing)
def lru_cache_unbounded(_):
    return doubled(3), doubled(4, plus=1), doubled(3) is doubled(3)


def make_cached(maxsize, typed=False):
    def make():
        log = []

        @functools.lru_cache(maxsize=maxsize, typed=typed)
        def slow(n, **options):
            log.append(n)
            return {n: len(log)}

        return slow, log

    return make


@feature(make_cached(None))
def lru_cache_new_arguments(state):
    slow, log = state
    slow(len(log))
    slow(1, a=2)
    return slow(0), slow.cache_info(), slow.cache_parameters(), len(log)


@feature(make_cached(3))
def lru_cache_evicts(state):
    slow, log = state
    for n in (1, 2, 1, 3, 4, 1, 2):
        slow(n)
    return log[-3:], slow.cache_info()


@feature(make_cached(2, typed=True))
def lru_cache_typed(state):
    slow, log = state
    return [slow(n) for n in (1, 1.0, True, 1)], slow.cache_info(), len(log)


@feature(make_cached(0))
def lru_cache_of_nothing(state):
    slow, log = state
    return slow(1), slow(1), slow.cache_info()


@feature(make_cached(8))
def lru_cache_clear(state):
    slow, log = state
    slow(1)
    slow.cache_clear()
    return slow(1), slow.cache_info(), slow.__wrapped__.__name__


@feature(lambda: [])
def lru_cache_made_here(made):
    @functools.cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    made.append(fibonacci(30))
    return made[-1], fibonacci.cache_info()


class Circle:
    computed = 0

    def __init__(self, radius):
        self.radius = radius
        self.log = []

    @functools.cached_property
    def area(self):
        self.log.append("area")
        return round(math.pi * self.radius**2, 3)

    @functools.lru_cache(maxsize=None)  # noqa: B019
    def scaled(self, factor):
        return self.radius * factor

    add = functools.partialmethod(lambda self, a, b: self.log.append(a + b), 5)

    @functools.singledispatchmethod
    def describe(self, value):
        return "something", value

    @describe.register
    def _(self, value: int):
        return "a number", value + self.radius

    @describe.register(list)
    def _(self, value):
        return "a list", len(value)


@feature(lambda: Circle(2))
def cached_property(circle):
    return circle.area, circle.area, len(circle.log)


@feature(lambda: Circle(2))
def cached_property_deleted(circle):
    area = circle.area
    del circle.__dict__["area"]
    return area, circle.area, len(circle.log)


@feature(lambda: Circle(3))
def lru_cache_of_a_method(circle):
    return circle.scaled(2), circle.scaled(2), circle.scaled(3)


@feature(lambda: Circle(3))
def partialmethod(circle):
    circle.add(6)
    return circle.log


@feature(lambda: Circle(4))
def singledispatchmethod(circle):
    return circle.describe(1), circle.describe([1]), circle.describe("x")


@functools.singledispatch
def kind_of(value):
    return "object"


@kind_of.register(int)
@kind_of.register(float)
def _(value):
    return "number"


@kind_of.register
def _(value: list):
    return ["list", *map(kind_of, value)]


@feature(nothing)
def singledispatch(_):
    return kind_of(1), kind_of("x"), kind_of([1, "y", [2.5]]), kind_of(True), kind_of.dispatch(int) is not None


@feature(lambda: [])
def singledispatch_new_class(log):
    class Local(list):
        pass

    return kind_of(Local([1])), kind_of(Ranked(1))


@feature(lambda: {"log": []})
def partial(state):
    add = functools.partial(operator.add, 10)
    note = functools.partial(state["log"].append)
    note(add(5))
    named = functools.partial(Money, currency="USD")
    sub = functools.partial(lambda a, b, *, c=0: a - b - c, 10, c=1)
    return add(1), str(named(5)), sub(2), sub(2, c=3), functools.partial(sub, 3)(), add.func is operator.add, add.args


@feature(lambda: {"log": [], "f": functools.partial(dict.setdefault, {})})
def partial_of_c_methods(state):
    push = functools.partial(list.append, state["log"])
    push(len(state["log"]))
    state["f"]("k", len(state["log"]))
    return functools.partial(int, base=2)("101"), functools.partial(sorted, reverse=True)([1, 2]), state["f"]("k")


@functools.total_ordering
class Version:
    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return self.parts == other.parts

    def __lt__(self, other):
        return self.parts < other.parts


@feature(lambda: [Version(1, 2), Version(1, 10), Version(0, 9)])
def total_ordering(versions):
    a, b, c = versions
    versions.append(versions.pop(0))
    return a < b, a >= c, a <= b, a > b, max(versions).parts, [v.parts for v in sorted(versions)], a == Version(1, 2)


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.log.append(args)
        return function(*args, **kwargs)

    wrapper.log = []
    return wrapper


@traced
def triple(n):
    """Three times."""
    return 3 * n


@feature(nothing)
def wraps(_):
    return triple(2), triple.__name__, triple.__doc__, triple.__wrapped__(3), len(triple.log) > 0


@feature(lambda: [])
def wraps_made_here(log):
    @functools.wraps(triple)
    def wrapped(n):
        log.append(n)
        return n

    return wrapped(4), wrapped.__name__, len(log)


@feature(numbers)
def reduce(items):
    items.append(functools.reduce(lambda a, b: a + b, items) % 10)
    return (
        functools.reduce(operator.mul, items, 1), functools.reduce(lambda a, b: a + [b], iter(items), []),
        functools.reduce(operator.add, [[1], [2]]), functools.reduce(max, items),
    )


@feature(ranked)
def cmp_to_key(items):
    items.reverse()
    by_rank = functools.cmp_to_key(lambda a, b: a.rank - b.rank)
    return [r.rank for r in sorted(items, key=by_rank)], min(items, key=by_rank).rank, by_rank(items[0]) < by_rank(items[1])


# -- heapq, bisect, sorting, iteration


@feature(lambda: [5, 7, 6, 9, 8])
def heap_of_numbers(heap):
    heapq.heapify(heap)
    heapq.heappush(heap, len(heap))
    return heapq.heappop(heap), heapq.heapreplace(heap, 4), heapq.heappushpop(heap, 1), heap[0]


@feature(lambda: [(n, [n]) for n in range(100, 0, -1)])
def heap_of_tuples(heap):
    heapq.heapify(heap)
    heapq.heappush(heap, (3, [0]))
    return [heapq.heappop(heap) for _ in range(5)], heapq.nsmallest(2, heap), heapq.nlargest(2, heap), len(heap)


@feature(ranked)
def heap_of_objects(heap):
    heapq.heapify(heap)
    heapq.heappush(heap, Ranked(len(heap)))
    return heapq.heappop(heap).rank, heapq.nlargest(2, heap, key=lambda r: r.rank), heapq.nsmallest(1, heap)


@feature(lambda: [])
def heap_of_heaps(log):
    log.append(list(heapq.merge([1, 4], iter([2, 3]), squares(3))))
    return log[-1], list(heapq.merge([3, 1], [2], reverse=True, key=lambda n: -n))


@feature(lambda: [5, 3, 1])
def heap_max(heap):
    heapq.heapify_max(heap)
    heapq.heappush_max(heap, 4)
    return heapq.heappop_max(heap), heapq.heappushpop_max(heap, 2), heapq.heapreplace_max(heap, 7), heap


@feature(lambda: list(range(0, 100, 3)))
def bisection(items):
    bisect.insort(items, 10)
    bisect.insort_left(items, 10)
    return bisect.bisect(items, 10), bisect.bisect_left(items, 50), bisect.bisect_right(items, 3, 1, 9), len(items)


@feature(lambda: sorted(ranked()))
def bisection_with_key(items):
    bisect.insort(items, Ranked(4), key=lambda r: r.rank)
    return bisect.bisect_left(items, 4, key=lambda r: r.rank), bisect.bisect(items, Ranked(5)), [r.rank for r in items]


@feature(lambda: [[1], [2, 5], [3]])
def bisection_of_lists(items):
    bisect.insort_right(items, [2, len(items)])
    return bisect.bisect(items, [2, 4]), items[1]


@feature(ranked)
def sorting(items):
    items.sort()
    first = [r.rank for r in items]
    items.sort(key=lambda r: -r.rank)
    items.insert(0, items.pop())
    return first, [r.rank for r in sorted(items)], [r.rank for r in sorted(items, key=operator.attrgetter("rank"), reverse=True)]


@feature(lambda: [[3, 1], [2], [3, 0]])
def sorting_lists(rows):
    rows.sort(key=len)
    rows[0].append(0)
    return sorted(rows), sorted(rows, key=operator.itemgetter(0)), sorted(map(len, rows)), sorted(set(map(tuple, rows)))


@feature(numbers)
def sorting_with_c_keys(items):
    items.sort(key=str)
    return sorted(items, key={1: 9, 2: 8}.get if False else float), sorted("bAc", key=str.lower), sorted(items, key=operator.neg)


@feature(numbers)
def sort_that_fails(items):
    try:
        items.sort(key=lambda n: "x" if n == 8 else n)
    except TypeError as e:
        return items, "not supported" in str(e)


@feature(lambda: Shelf([3, 1, 2]))
def aggregates(shelf):
    shelf.items.append(len(shelf.items))
    return (
        min(shelf), max(shelf), sum(shelf), any(shelf), all(shelf), list(shelf), tuple(shelf), set(shelf), sorted(shelf),
        min(shelf, key=lambda n: -n), max((n for n in shelf), default=0), sum((n for n in shelf), 100), min([], default=7),
        any(n > 2 for n in shelf), all(n > 0 for n in shelf), 3 in shelf, dict.fromkeys(shelf, 0), sum([[1], [2]], []),
    )


@feature(lambda: [Money(3), Money(0), Money(2)])
def aggregates_of_objects(wallet):
    wallet.append(Money(len(wallet)))
    return str(sum(wallet)), any(wallet), all(wallet), max(wallet, key=len).amount, [str(m) for m in filter(None, wallet)]


@feature(numbers)
def mapping(items):
    log = []
    items.append(len(items))
    return (
        list(map(lambda n: n + 1, items)), list(filter(lambda n: n > 3, items)), list(map(log.append, items)), log,
        [a * b for a, b in zip(items, reversed(items))], list(enumerate(items, 1)), dict(zip("abc", items)),
        list(map(operator.add, items, items)), list(map(str.upper, "ab")), list(filter(None, [[], items, 0])),
        set(map(is_even, items)), list(map(operator.methodcaller("bit_length"), items)), list(zip(*[iter(items)] * 2)),
    )


@feature(lambda: (Money(1), {"a": [1, 2], "b": (3, {"c": 4})}))
def operators(pair):
    money, data = pair
    money.amount += 1
    data["a"].append(money.amount)
    return (
        operator.attrgetter("amount")(money), operator.attrgetter("amount", "currency")(money), operator.itemgetter("a")(data),
        operator.attrgetter("__class__.__name__")(money), operator.itemgetter(0, -1)(data["a"]), operator.methodcaller("get", "z", 5)(data),
        operator.itemgetter(slice(1, None))(data["a"]), operator.methodcaller("__str__")(money), operator.concat([1], [2]),
        operator.countOf(data["a"], 1), operator.indexOf(data["a"], 2), operator.iadd([1], [2]), operator.length_hint(data["a"]),
    )


@feature(lambda: {"log": [], "d": {}})
def operator_calls_that_change(state):
    operator.methodcaller("append", len(state["log"]))(state["log"])
    operator.methodcaller("setdefault", "k", [])(state["d"])
    operator.setitem(state["d"], "n", operator.getitem(state["log"], -1))
    operator.iadd(state["log"], [7])
    operator.call(state["log"].append, 8)
    return len(state["log"]), state["d"]


@feature(lambda: [1, 2, 3])
def itertools_at_once(items):
    items.append(len(items))
    return (
        list(itertools.chain(items, "ab")), list(itertools.product(items, repeat=2))[-1], list(itertools.permutations(items, 2))[3],
        list(itertools.combinations(items, 2)), list(itertools.combinations_with_replacement("ab", 2)),
        [(k, list(g)) for k, g in itertools.groupby(sorted(items, key=is_even), key=is_even)],
        list(itertools.zip_longest(items, "a", fillvalue=0)), list(itertools.islice(itertools.cycle(items), 9)),
        list(itertools.accumulate(items, max)), list(itertools.pairwise(items)), list(itertools.batched(items, 2)),
        [list(t) for t in itertools.tee(items)], list(itertools.starmap(pow, zip(items, items))),
        list(itertools.takewhile(lambda n: n < 3, items)), list(itertools.compress(items, [1, 0, 1])),
        list(itertools.chain.from_iterable([items, (9,)])), list(itertools.filterfalse(is_even, items)),
        list(itertools.dropwhile(lambda n: n < 2, items)), next(itertools.count(len(items))), list(itertools.repeat(1, 2)),
    )


# -- copy, pickle, weakref, contextvars


class Node:
    def __init__(self, value, next=None):
        self.value = value
        self.next = next
        self.tags = ["t"]


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Reduced:
    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return Reduced, (self.n + 1,)


class Copied:
    def __init__(self, n):
        self.n = n

    def __copy__(self):
        return Copied(self.n + 1)

    def __deepcopy__(self, memo):
        return Copied(copy.deepcopy([self.n], memo)[0] + 2)

    def __getstate__(self):
        return {"n": self.n * 10}


class Registered:
    def __init__(self, n):
        self.n = n


copyreg.pickle(Registered, lambda r: (Registered, (r.n + 100,)))


@feature(lambda: Node(1, Node([2])))
def copy_instances(node):
    node.value += 1
    shallow, deep = copy.copy(node), copy.deepcopy(node)
    deep.next.value.append(3)
    return shallow.next is node.next, deep.next is node.next, node.next.value, deep.next.value, shallow.value, deep.tags


@feature(lambda: [1, {"a": [2]}, (3, [4]), {5}, deque([6], 3), bytearray(b"7"), defaultdict(list, x=[8]), OrderedDict(y=[9])])
def copy_containers(things):
    things[0] += 1
    shallow, deep = [copy.copy(each) for each in things], copy.deepcopy(things)
    deep[1]["a"].append(0)
    return shallow, deep, things, shallow[1]["a"] is things[1]["a"]


@feature(lambda: [Slots(1), Reduced(2), Copied(3), Registered(4), Point(5, [6])])
def copy_by_protocol(things):
    slots, reduced, copied, registered, point = things
    slots.a += 1
    return (
        copy.copy(slots).a, copy.deepcopy(slots).a, copy.copy(reduced).n, copy.deepcopy(reduced).n, copy.copy(copied).n,
        copy.deepcopy(copied).n, copy.copy(registered).n, copy.deepcopy(point), copy.copy(point), copy.deepcopy(things[3]).n,
        copy.replace(point, x=7),
    )


@feature(lambda: Node(1))
def copy_of_a_cycle(node):
    node.next = node
    deep = copy.deepcopy(node)
    return deep.next is deep, deep is not node


@feature(lambda: {"a": [1, 2.5, None, True], "b": ("x", b"y", {3}), "c": {"d": datetime.date(2020, 1, 2)}})
def pickle_plain_data(data):
    data["a"].append(len(data["a"]))
    return pickle.loads(pickle.dumps(data)), pickle.loads(pickle.dumps(data, protocol=2)), len(pickle.dumps(data["a"]))


@feature(lambda: [Node(1, Node(2)), Reduced(3), Copied(4), Ranked(1), Point(1, 2), Money(3)])
def pickle_instances(things):
    things[0].value += 1
    again = pickle.loads(pickle.dumps(things))
    return again[0].value, again[0].next.value, again[0].tags, again[1].n, again[2].n, again[3].rank, again[4], again[5].amount


@feature(lambda: {"keep": [Ranked(n) for n in range(3)], "d": weakref.WeakValueDictionary()})
def weak_values(state):
    d = state["d"]
    for ranked in state["keep"]:
        d[ranked.rank] = ranked
    gone = "gone" in d
    d["gone"] = Ranked(9)  # it may live until the commit
    d.setdefault("kept", state["keep"][0])
    return sorted(r.rank for r in d.values() if r.rank < 9), gone, d.get(7), d.pop("kept").rank, 0 in d, dict(d)[0].rank


@feature(lambda: {"keep": [Ranked(n) for n in range(3)], "d": weakref.WeakKeyDictionary()})
def weak_keys(state):
    d = state["d"]
    for ranked in state["keep"]:
        d[ranked] = d.get(ranked, 0) + 1
    gone = Ranked(9) in d
    d[Ranked(9)] = 1
    return sorted((r.rank, n) for r, n in d.items() if r.rank < 9), gone, d.pop(Ranked(1)), d.setdefault(state["keep"][1], 5)


@feature(lambda: {"keep": [Ranked(n) for n in range(4)], "s": weakref.WeakSet()})
def weak_sets(state):
    s = state["s"]
    for ranked in state["keep"]:
        s.add(ranked)
    gone = Ranked(9) in s
    s.add(Ranked(9))
    s.discard(state["keep"][1])
    return sorted(r.rank for r in s if r.rank < 9), state["keep"][0] in s, gone, len({r for r in s | {state["keep"][1]} if r.rank < 9})


@feature(lambda: {"keep": Ranked(3), "log": []})
def weak_references(state):
    log = state["log"]
    ref = weakref.ref(state["keep"])
    method = weakref.WeakMethod(state["keep"].__repr__)
    proxy = weakref.proxy(state["keep"])
    return ref().rank, method()(), weakref.getweakrefcount(state["keep"]) > 0, len(log), proxy.rank, ref == weakref.ref(state["keep"])


@feature(lambda: {"log": [], "keep": []})
def weak_finalizers(state):
    node = Node(1)
    finalizer = weakref.finalize(node, state["log"].append, "done")
    alive = finalizer.alive
    finalizer()
    other = Node(2)
    detached = weakref.finalize(other, state["log"].append, "never").detach()
    return alive, finalizer.alive, state["log"], detached is not None


colour = contextvars.ContextVar("colour", default="none")
depth = contextvars.ContextVar("depth")


@feature(lambda: contextvars.Context())
def context_run(context):
    def inside(n):
        colour.set("red")
        token = depth.set(depth.get(0) + n)
        if n > 2:
            depth.reset(token)
        return colour.get(), depth.get()

    return context.run(inside, 2), context.run(inside, 3), colour.get(), context[colour], len(context), depth in context


@feature(lambda: [])
def context_tokens(log):
    token = colour.set("green")
    seen = colour.get()
    inner = colour.set("blue")
    old = inner.old_value
    colour.reset(inner)
    again = colour.get()
    colour.reset(token)
    try:
        colour.reset(token)
    except RuntimeError:
        log.append("used")
    with colour.set("black"):
        log.append(colour.get())
    return seen, old, again, colour.get(), token.var is colour, len(log)


@feature(lambda: [])
def context_copies(log):
    token = depth.set(1)
    copied = contextvars.copy_context()
    copied.run(depth.set, 5)
    empty = contextvars.Context()
    result = copied[depth], copied.get(colour, "?"), depth.get(), empty.run(depth.get, "unset"), sorted(v.name for v in copied if v in (depth,))
    depth.reset(token)
    log.append(copied.copy().run(depth.get))
    return result


@feature(nothing)
def context_variable_that_stays(_):
    counter = colour.get()
    colour.set(counter + "!" if counter != "none" else "!")
    return len(colour.get()) > 0


# -- text


@feature(lambda: [Money(3), [1, Money(2)], {"k": Money(5)}, None])
def formatting(things):
    money = things[0]
    money.amount += 1
    return (
        f"{money} {money!r} {money:>6} {things[1]} {things[2]!s:>20}", "%s %r" % (money, money), "%(a)s" % {"a": money},
        "{} {!r} {:>5}".format(money, things, money), "{0.amount} {1[0]} {2[k].amount}".format(*things), "{a.currency}".format(a=money),
        "{x}".format_map({"x": things}), str(things), repr(things[2]), format(money, "03"), "%s" % money, "%5.2f|%-4d|%c" % (1.5, 3, "x"),
        ascii(things[1]), "{:{}}".format(money, 5), "{0[1][0]}".format(things),
    )


class Missing(dict):
    def __missing__(self, key):
        return [key]


class Lookup:
    def __init__(self, d):
        self.d = d

    def __getitem__(self, key):
        return self.d[key]


@feature(lambda: (Missing(a=1), Lookup({"b": [2], "m": Money(1)})))
def formatting_with_mappings(pair):
    missing, lookup = pair
    lookup.d["b"].append(3)
    return "{a} {z}".format_map(missing), "{b} {m.amount}".format_map(lookup)


@feature(lambda: (Missing(a=1), Lookup({"b": [2], "m": Money(1)})))
def interpolation_of_mappings(pair):
    missing, lookup = pair
    lookup.d["b"].append(3)
    return "%(b)s" % lookup, "%(a)s %(q)s" % missing, "%(k)s %(k)r" % {"k": Money(2)}, "%s" % lookup.d


@feature(lambda: (Missing(a=1), Missing(b=[2])))
def interpolation_of_defaults(pair):
    for missing in pair:
        missing["n"] = missing.get("n", 0) + 1
    return "%(a)s %(q)s %%(b)s" % pair[0], "%(b)r %(n)03d %(q)s %(q)s" % pair[1]


class Flagged:
    dirty, nothing, count = True, None, 1


@feature(lambda: [])
def flags_of_a_class(log):
    Flagged.dirty, Flagged.nothing = True, None
    log.append(Flagged.dirty)
    return Flagged.dirty, Flagged.nothing, Flagged().dirty


@feature(lambda: [])
def numbers_of_a_class(log):
    log.append(Flagged.count)
    Flagged.count = 1
    return Flagged.count


@feature(lambda: [1, 2])
def joining(items):
    items.append(len(items))
    return (
        ",".join(str(n) for n in items), b"-".join(bytes([n]) for n in items), "".join(map(str, items)), ",".join({"a": 1}),
        b"".join([b"x", bytearray(b"y"), memoryview(b"z")]), "-".join(reversed("abc")), bytearray(b",").join(iter([b"1", b"2"])),
    )


@feature(lambda: {"name": "Ann", "n": 1})
def string_templates(values):
    values["n"] += 1
    template = string.Template("$name has ${n} $$ and $missing")
    formatter = string.Formatter()
    return template.safe_substitute(values), string.Template("$name").substitute(values, name="Bob"), formatter.format("{n:>3}", **values), string.capwords("a b")


@feature(lambda: [])
def strings(log):
    log.append("Ab c")
    s = log[-1]
    table = str.maketrans("abc", "xyz")
    return (
        s.upper(), s.split(), s.encode("utf-16"), s.translate(table), s.partition(" "), s.center(9, "*"), s.casefold(), s.isidentifier(),
        s.encode().decode("latin-1"), str(b"x", "ascii"), s.startswith(("A", "B")), s.zfill(8), "%d" % 3, s.title(), s.swapcase(),
        s.rjust(10), s.find("b"), s * 2, s.splitlines(), s.expandtabs(), sorted(s), s[::-1], "ß".upper(), "a" < "b", s.replace("A", "B"),
    )


@feature(lambda: {"seen": []})
def regular_expressions(state):
    def note(match):
        state["seen"].append(match.group())
        return str(len(state["seen"])) + match["last"]

    pattern = re.compile(r"(?P<first>\w)\w*(?P<last>\w)")
    text = "hello brave new world"
    return (
        len(pattern.sub(note, text)) > 0, re.findall("[aeiou]", text), [m.span() for m in re.finditer("o", text)], re.split(r"\s+", text, maxsplit=2),
        re.match("h(.)l", text).groups(), pattern.fullmatch("word").groupdict(), re.subn("l", lambda m: "L", text), re.escape("a.b"),
        re.search("b(?P<rest>.*)", text)["rest"], pattern.sub(r"\g<last>\1", text), re.compile("(a)|b").match("b").group(1), pattern.groups,
        re.sub("(l)(l)?", lambda m: (m[2] or "-").upper(), text), re.search("w", text).start(), pattern.pattern, m_expand(text),
    )


def m_expand(text):
    return re.match("(h)(e)", text).expand(r"\2\1")


@feature(lambda: {"n": 0})
def regular_expressions_made_here(state):
    state["n"] += 1
    return re.sub(f"[{state['n'] % 3}]", "x", "012"), re.compile(f"a{{{state['n'] % 3}}}").search("caaat").span()


@feature(lambda: {"b": [1, None, True, 2.5, "é"], "a": {"n": [{}]}, "t": (1, 2)})
def json_plain(data):
    data["b"].append(len(data["b"]))
    text = json.dumps(data)
    return text, json.loads(text), json.dumps(data, sort_keys=True, indent=2), json.dumps(data, separators=(",", ":"), ensure_ascii=False)


class MoneyEncoder(json.JSONEncoder):
    def default(self, value):
        if isinstance(value, Money):
            return {"amount": value.amount, "log": value.log}
        return super().default(value)


def make_wallet():
    wallet = [Money(1), {"m": Money(2)}]
    for money in (wallet[0], wallet[1]["m"]):
        money.log = [["deep"]]
    return wallet


@feature(make_wallet)
def json_with_callbacks(wallet):
    wallet[0].amount += 1
    wallet[0].log[0].append("more")
    text = json.dumps(wallet, cls=MoneyEncoder)
    try:
        json.dumps(wallet)
    except TypeError as e:
        error = str(e)
    seen = []

    def hook(d):
        seen.append(sorted(d))
        return tuple(d.items())

    return (
        text, json.loads(text, object_hook=hook), seen, error, json.dumps(wallet, default=lambda m: m.log), json.dumps([1, {"a": (2,)}], default=str),
        json.loads("[1.5, 2]", parse_float=decimal.Decimal, parse_int=lambda s: int(s) * 2), json.loads('{"a": 1}', object_pairs_hook=OrderedDict),
        "".join(MoneyEncoder(indent=1).iterencode(wallet)), list(json.JSONEncoder().iterencode([1, [2]])), json.loads("[NaN]", parse_constant=str),
    )


@feature(lambda: [])
def json_errors(log):
    for text in ("[1,", "nope", '{"a" 1}'):
        try:
            json.loads(text)
        except json.JSONDecodeError as e:
            log.append((e.msg, e.pos))
    loop = []
    loop.append(loop)
    try:
        json.dumps(loop)
    except ValueError as e:
        log.append(str(e))
    return log[-4:]


class Pairs(dict):
    def items(self):
        return [(key, [value]) for key, value in super().items()]


@feature(lambda: [OrderedDict(a=1), defaultdict(int, b=2), Counter("x"), Pairs(c=3), Point(1, 2), UserList([1]), enum.IntEnum("E", "A")])
def json_of_subclasses(things):
    things[0]["n"] = len(things[0])
    return json.dumps(things[:5]), json.dumps(list(things[5])), json.dumps({things[6].A: things[6].A, "k": 1.0})


@feature(lambda: [])
def textwrap_html_urls(log):
    log.append(textwrap.wrap("the quick brown fox jumps over the lazy dog", 12))
    parts = urllib.parse.urlsplit("http://user@host:80/a/b;c?d=e&d=f#g")
    return (
        log[-1], textwrap.fill("aaa bbb", 4), textwrap.dedent("  a\n   b"), textwrap.indent("a\nb", "> "), textwrap.shorten("a b c d e", 6, placeholder="."),
        html.escape("<a href='x'>&"), html.unescape("&lt;&eacute;&#65;"), parts, parts.port, urllib.parse.parse_qs(parts.query),
        urllib.parse.urlencode({"a": [1, 2], "b": "é"}, doseq=True), urllib.parse.quote("a b/ü"), urllib.parse.unquote_plus("a+%C3%A9"),
        urllib.parse.urljoin("http://x/a/b", "../c"), urllib.parse.urlparse("https://x/?q").netloc, urllib.parse.parse_qsl("a=1&b=2"), parts.geturl(),
    )


@feature(lambda: cookies.SimpleCookie())
def mail_and_cookies(jar):
    jar["session"] = f"id{len(jar)}"
    jar["session"]["path"] = "/"
    jar["session"]["httponly"] = True
    jar.load("other=1; third=x")
    return (
        jar.output(), jar["session"].value, sorted(jar), email.utils.formatdate(0, usegmt=True), email.utils.parseaddr("A <a@b.c>"),
        email.utils.parsedate("Thu, 01 Jan 1970 00:00:00 GMT"), email.utils.format_datetime(datetime.datetime(2020, 1, 2)), email.utils.formataddr(("A", "a@b")),
        mimetypes.guess_type("a.html"), mimetypes.guess_extension("text/html"), email.utils.parsedate_to_datetime("Thu, 01 Jan 1970 00:00:00 GMT"),
    )


# -- binary data, numbers, time


@feature(lambda: bytearray(16))
def structs(buffer):
    struct.pack_into("<HI", buffer, 2, 7, 9)
    record = struct.Struct(">bq")
    record.pack_into(buffer, 7, -1, 5)
    return (
        bytes(buffer), struct.unpack_from("<HI", buffer, 2), record.unpack(record.pack(1, 2)), struct.calcsize("ihq"), record.size,
        list(struct.iter_unpack("<H", buffer)), struct.unpack("2s", b"ab"), list(record.iter_unpack(bytes(18))), int.from_bytes(buffer[:3], "big"),
    )


@feature(lambda: {"data": bytearray(b"some data")})
def digests(state):
    state["data"] += b"!"
    data = state["data"]
    h = hashlib.sha256(data)
    h.update(data)
    copied = h.copy()
    copied.update(b"x")
    mac = hmac.new(b"key", data, "sha1")
    mac.update(b"more")
    return (
        h.hexdigest(), copied.digest(), hashlib.md5(data, usedforsecurity=False).hexdigest(), hashlib.new("sha512", data).digest(), mac.hexdigest(), h.name,
        hmac.digest(b"k", data, "sha256"), hmac.compare_digest(b"a", b"a"), hashlib.blake2b(data, digest_size=8).hexdigest(), hashlib.sha3_256(data).hexdigest(),
        zlib.crc32(data), zlib.decompress(zlib.compress(bytes(data))), zlib.adler32(data), hashlib.pbkdf2_hmac("sha1", b"p", b"s", 2), mac.copy().digest(),
        hashlib.shake_128(data).hexdigest(4), h.digest_size, h.block_size,
    )


@feature(lambda: {"hash": hashlib.sha256(), "mac": hmac.new(b"key", digestmod="sha256"), "blake": hashlib.blake2s(), "sha3": hashlib.sha3_224()})
def digests_that_grow(state):
    for digest in state.values():
        digest.update(b"more")
    return [digest.hexdigest() for digest in state.values()]


@feature(lambda: {"out": zlib.compressobj(), "in": zlib.decompressobj(), "text": b""})
def compression_that_goes_on(state):
    chunk = state["out"].compress(b"hello hello hello") + state["out"].flush(zlib.Z_SYNC_FLUSH)
    state["text"] += state["in"].decompress(chunk)
    return len(chunk) > 0, len(state["text"])


@feature(lambda: b"some bytes" * 10)
def compression(data):
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compressor.compress(data) + compressor.flush()
    decompressor = zlib.decompressobj(47)
    return decompressor.decompress(packed) == data, decompressor.eof, decompressor.unused_data, len(packed)


@feature(lambda: bytearray(b"\x00\xff"))
def encodings(data):
    data.append(1)
    return (
        base64.b64encode(data), base64.b64decode("AAEC"), base64.urlsafe_b64encode(data), base64.b32encode(data), base64.b16encode(data), base64.b85encode(data),
        base64.a85encode(data), bytes.fromhex("00ff"), data.hex(":"), base64.encodebytes(data), base64.standard_b64decode(b"AA=="), "é".encode("punycode"),
        codecs_round_trip("é"),
    )


def codecs_round_trip(text):
    return text.encode("utf-8").decode("utf-8", errors="replace"), text.encode("cp1252"), text.encode("ascii", "xmlcharrefreplace")


@feature(lambda: array.array("i", [1, 2, 3]))
def arrays(a):
    a.append(len(a))
    a.extend([7, 8])
    a.insert(0, 5)
    a[1] = 9
    a[2:4] = array.array("i", [6])
    a.remove(7)
    a.reverse()
    popped = a.pop()
    a += array.array("i", [popped])
    return a, a.tolist(), a.tobytes(), a.count(9), a.index(8), len(a), a[0], list(a), a.typecode, a[1:3], sum(a), 9 in a, a == a[:], max(a), a.itemsize


@feature(lambda: array.array("d"))
def arrays_from_data(a):
    a.frombytes(struct.pack("d", 2.5))
    a.fromlist([1.0, float(len(a))])
    copied = copy.copy(a)
    view = memoryview(a)
    view[0] = 3.5
    del view
    a.byteswap()
    a.byteswap()
    return copied, a, array.array("b", b"xy"), array.array("w", "text").tounicode(), array.array("H", (n for n in range(3)))


@feature(lambda: io.StringIO("first\nsecond\nthird\n"))
def string_io(stream):
    line = stream.readline()
    stream.seek(0, 2)
    stream.write(f"line {len(stream.getvalue())}\n")
    stream.writelines(["a\n", "b\n"])
    stream.seek(0)
    return line, stream.read(5), stream.tell(), list(stream)[:2], stream.getvalue(), stream.closed, stream.seekable()


@feature(lambda: io.BytesIO(b"0123456789"))
def bytes_io(stream):
    stream.seek(2)
    part = stream.read(3)
    stream.write(b"xx")
    stream.seek(0, 2)
    stream.write(b"end")
    stream.truncate(12)
    buffer = bytearray(4)
    stream.seek(0)
    n = stream.readinto(buffer)
    return part, stream.getvalue(), stream.tell(), n, buffer, stream.readline(), stream.read1(3), bytes(stream.getbuffer()[:2])


@feature(lambda: [])
def streams_made_here(log):
    with io.StringIO() as text:
        print("to", "text", 5, file=text, end="!")
        log.append(text.getvalue())
    out = io.BytesIO()
    wrapper = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    wrapper.write("é")
    return log[-1], out.getvalue(), [line for line in io.StringIO("a\nb")], io.BytesIO(b"ab\ncd").readlines()


@feature(lambda: io.StringIO("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n"))
def stream_lines(stream):
    return next(stream), stream.readline(), [line for line, _ in zip(stream, "xx")][:1]


@feature(nothing)
def dates(_):
    moment = datetime.datetime(2020, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    delta = datetime.timedelta(days=1, hours=2)
    berlin = datetime.timezone(datetime.timedelta(hours=1), "CET")
    return (
        moment + delta, moment.isoformat(), (moment - delta).strftime("%Y-%m-%d %H:%M"), datetime.datetime.fromisoformat("2020-01-02T03:04:05"), delta.total_seconds(),
        moment.astimezone(berlin).hour, datetime.datetime.strptime("2020", "%Y").year, datetime.date(2020, 1, 2).replace(day=5).weekday(), moment.timestamp(),
        datetime.datetime.fromtimestamp(0, datetime.timezone.utc), datetime.date.fromordinal(5), moment.date() < datetime.date.max, repr(delta), delta * 2 // 3,
        datetime.datetime.combine(datetime.date(2020, 1, 1), datetime.time(3)), moment.timetuple().tm_yday, str(berlin), moment.utcoffset(), hash(moment) == hash(moment),
        f"{moment:%d.%m}", moment == moment.astimezone(berlin), sorted([moment, moment - delta])[0] is not moment, max(delta, delta * 2), copy.copy(moment) == moment,
    )


class Offset(datetime.tzinfo):
    def __init__(self, hours):
        self.hours = hours
        self.asked = []

    def utcoffset(self, moment):
        self.asked.append(moment is not None)
        return datetime.timedelta(hours=self.hours)

    def dst(self, moment):
        return datetime.timedelta(0)

    def tzname(self, moment):
        return f"+{self.hours}"


@feature(lambda: Offset(2))
def dates_with_python_zones(zone):
    moment = datetime.datetime(2020, 1, 1, 12, tzinfo=zone)
    return moment.isoformat(), moment.astimezone(datetime.timezone.utc).hour, moment.tzname(), len(zone.asked), moment == moment.replace(hour=13)


@feature(nothing)
def times(_):
    return (
        time.time() > 0, time.monotonic() >= 0, time.perf_counter_ns() > 0, time.gmtime(0).tm_year, time.strftime("%Y", time.gmtime(0)), time.mktime(time.localtime(0)),
        time.strptime("1.2.2003", "%d.%m.%Y").tm_mon, time.asctime(time.gmtime(0)), time.struct_time(range(9)).tm_mday, time.sleep(0), time.get_clock_info("time").adjustable,
        datetime.datetime.now() is not None, datetime.date.today() is not None, datetime.datetime.now(datetime.timezone.utc).tzinfo is not None, time.tzname is not None,
    )


@feature(lambda: [decimal.Decimal("1.10")])
def decimals(log):
    a, b = log[-1], decimal.Decimal("3")
    log.append(a + b)
    return (
        a * b, a / b, -a, a**2, round(a, 1), a.quantize(decimal.Decimal("0.1")), int(b), float(a), f"{a:.3f}", a < b, max(a, b), sum([a, b]), a.as_tuple(), str(a),
        decimal.Decimal(5) % 3, divmod(b, 2), a.compare(b), abs(-a), b.sqrt(), decimal.Decimal(0.5), decimal.Decimal((0, (1, 2), -1)), hash(b) == hash(3), a == 1.1,
        b.is_finite(), a.normalize(), decimal.getcontext().prec,
    )


@feature(lambda: [])
def decimal_contexts(log):
    with decimal.localcontext() as context:
        context.prec = 4
        log.append(decimal.Decimal(1) / 3)
        context.rounding = decimal.ROUND_UP
        log.append(decimal.Decimal(1) / 3)
    with decimal.localcontext(prec=2):
        log.append(decimal.Decimal(1) / 3)
    own = decimal.Context(prec=3)
    return log[-3:], decimal.Decimal(1) / 3, own.divide(1, 3), own.create_decimal("1.23456"), decimal.getcontext().prec


@feature(lambda: [fractions.Fraction(1, 3)])
def fractions_and_numbers(log):
    a = log[-1]
    log.append(a + 1)
    return (
        a + fractions.Fraction(1, 6), a * 3 == 1, round(a, 2), float(a), fractions.Fraction("0.25"), a.limit_denominator(2), str(a), math.floor(a), a**2, a < 1, divmod(a, 2),
        math.gcd(12, 18), math.isclose(0.1 + 0.2, 0.3), math.fsum(iter([0.1] * 10)), math.prod([1, 2, 3]), math.comb(5, 2), complex(1, 2) * 2j, int("ff", 16), 7 // 2, -7 % 3,
        round(2.567, 1), (5).bit_length(), (5).to_bytes(2, "big"), 1.5.as_integer_ratio(), float("inf") > 5, bin(5), hex(255), pow(2, 10, 7), abs(-2.5), 1.5.is_integer(),
        math.dist([1, 2], [3, 4]), math.hypot(3, 4), math.sumprod([1, 2], (3, 4)), math.isqrt(17), 0b101 ^ 3, int(Money(4).__index__()), math.trunc(2.7), sum([0.1] * 3),
    )


@feature(lambda: random.Random(42))
def random_instances(rng):
    items = list(range(10))
    rng.shuffle(items)
    return (
        rng.random(), rng.randrange(100), rng.choice("abc"), rng.sample(range(100), 3), rng.gauss(0, 1), rng.uniform(1, 2), items, rng.choices([1, 2], k=3), rng.getrandbits(40),
        rng.randint(1, 6), rng.expovariate(1), rng.betavariate(1, 2), rng.randbytes(3), rng.triangular(), rng.normalvariate(),
    )


@feature(lambda: random.Random(1))
def random_state(rng):
    state = rng.getstate()
    first = rng.random()
    rng.setstate(state)
    again = rng.random()
    rng.seed(len(str(first)))
    return first == again, rng.random(), first


@feature(nothing)
def random_module(_):
    items = [1, 2, 3]
    random.shuffle(items)
    return 0 <= random.random() < 1, random.randrange(10) < 10, random.choice([1]) == 1, sorted(items), len(random.sample(range(9), 2)), random.gauss(0, 1) is not None


@feature(nothing)
def random_module_seeded(_):
    random.seed(5)
    first = random.random(), random.randrange(1000)
    random.seed(5)
    return first == (random.random(), random.randrange(1000)), first


@feature(nothing)
def unique_ids(_):
    fixed = uuid.UUID("12345678123456781234567812345678")
    return (
        uuid.uuid4().version, uuid.uuid5(uuid.NAMESPACE_DNS, "x"), str(fixed), fixed.hex, fixed.int, uuid.uuid3(uuid.NAMESPACE_URL, "y"), uuid.UUID(int=5) < fixed, fixed.bytes_le,
        uuid.uuid1().version, {fixed: 1}[uuid.UUID(fixed.hex)], len(secrets.token_hex(4)), len(secrets.token_urlsafe()), secrets.choice([7]), secrets.compare_digest("a", "a"),
        secrets.randbelow(1), repr(fixed), uuid.uuid7().version, len(secrets.token_bytes(5)),
    )


# -- logging, traceback, inspect, pprint


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append((record.levelname, record.getMessage(), self.format(record).count("\n") > 0))


def make_logger():
    logger = logging.Logger("stm-test")
    handler = Records()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(funcName)s: %(message)s"))
    logger.addHandler(handler)
    stream = io.StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    logger.setLevel(logging.INFO)
    return logger, handler.records, stream


@feature(make_logger)
def loggers(state):
    logger, records, stream = state
    logger.debug("not %s", "seen")
    logger.info("money: %s", Money(5))
    try:
        1 / 0
    except ZeroDivisionError:
        logger.exception("failed")
    logging.getLogger("stm.other.child").debug("nothing")
    return len(records), records[-1], logger.isEnabledFor(logging.DEBUG), logger.level, stream.getvalue().count("money")


@feature(lambda: [])
def tracebacks(log):
    def fail(n):
        if n:
            fail(n - 1)
        raise ValueError("deep", n)

    try:
        try:
            fail(2)
        except ValueError as e:
            log.append(len(traceback.extract_tb(e.__traceback__)))
            raise KeyError("outer") from e
    except KeyError as e:
        text = "".join(traceback.format_exception(e))
        only = traceback.format_exception_only(e)
        frames = [frame.name for frame in traceback.extract_stack()][-1]
        e.add_note("a note")
        return text.count("raise"), only, frames, traceback.format_exc().count("Traceback"), e.__notes__, len(traceback.TracebackException.from_exception(e).stack)


@feature(lambda: types.SimpleNamespace(a=1, b=[2]))
def namespaces(ns):
    ns.a += 1
    ns.b.append(ns.a)
    ns.c = getattr(ns, "c", 0) + 1
    same = types.SimpleNamespace(**vars(ns))
    return ns == same, repr(ns), sorted(vars(ns)), copy.copy(ns) == ns, copy.deepcopy(ns).b, hasattr(ns, "z"), copy.replace(ns, a=0).a


@feature(lambda: types.SimpleNamespace(a=1))
def namespaces_delete(ns):
    ns.b = 5
    del ns.b
    return hasattr(ns, "b"), ns


@feature(lambda: {"a": 1})
def mapping_proxies(d):
    proxy = types.MappingProxyType(d)
    d["n"] = proxy.get("n", 0) + 1
    return (
        proxy["a"], dict(proxy), "a" in proxy, len(proxy), list(proxy), sorted(proxy.items()), proxy | {"z": 1}, repr(proxy), proxy == d, proxy.copy(), list(proxy.values()),
        list(reversed(proxy)), [*proxy.keys()], {**proxy},
    )


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"
    BLUE = (1, 2)

    @property
    def pretty(self):
        return self.name.title()


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    ALL = READ | WRITE


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Word(enum.StrEnum):
    HELLO = enum.auto()


@feature(lambda: {})
def enums(counts):
    counts[Colour.RED] = counts.get(Colour.RED, 0) + 1
    try:
        Colour(99)
    except ValueError as e:
        error = str(e)
    rights = Rights.READ | Rights.WRITE
    return (
        Colour(1) is Colour.RED, Colour["GREEN"].value, Colour.BLUE.pretty, [c.name for c in Colour], len(Colour), Colour.RED in Colour, 1 in Colour, repr(Colour.RED), error,
        rights is Rights.ALL, Rights.READ in rights, ~Rights.READ, list(rights), Rights(0), bool(Rights.READ & Rights.WRITE), rights ^ Rights.READ, Level.HIGH > 3, Level(5) + 1,
        f"{Level.LOW} {Word.HELLO}", Word.HELLO == "hello", Word("hello").upper(), Colour.__members__["RED"], hash(Colour.RED) == hash(Colour.RED), Colour.RED == 1, str(Colour.RED),
        pickle.loads(pickle.dumps(Colour.RED)) is Colour.RED, copy.deepcopy(Colour.RED) is Colour.RED, reversed(Colour).__next__(), isinstance(Colour.RED, Colour), Rights(3).name,
    )


@dataclasses.dataclass(order=True)
class Item:
    name: str
    price: float = 1.0
    tags: list = dataclasses.field(default_factory=list, compare=False)
    total: float = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        self.total = self.price * 2


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    a: int
    b: tuple = ()


@feature(lambda: [Item("x", tags=["t"]), {Key(1): "one"}])
def dataclass_instances(state):
    item, table = state
    item.price += 1
    item.tags.append(len(item.tags))
    table[Key(1, (2,))] = item.name
    try:
        Key(1).a = 5
    except dataclasses.FrozenInstanceError as e:
        error = str(e)
    return (
        dataclasses.replace(item, name="y").total, dataclasses.asdict(item), dataclasses.astuple(item), [f.name for f in dataclasses.fields(item)], repr(item), item == Item("x"),
        Item("a") < Item("b"), table[Key(1)], error, hash(Key(1)) == hash(Key(1)), dataclasses.is_dataclass(item), dataclasses.replace(Key(1), a=3), Item("z").tags,
        copy.copy(item) == item, copy.deepcopy(item).tags, dataclasses.asdict(Item("q", tags=[Item("r")]))["tags"], copy.replace(Key(1), b=5), len(table),
    )


@feature(lambda: [2, 4, 4, 5])
def statistics_of_data(data):
    data.append(data[len(data) % 4])
    return (
        statistics.mean(data), statistics.median(data), statistics.mode(data), round(statistics.stdev(data), 6), statistics.variance([1, 2, 4]), statistics.fmean(data),
        statistics.quantiles(range(10)), statistics.multimode("aabb"), statistics.harmonic_mean([1, 2]), statistics.mean(fractions.Fraction(n, 3) for n in data), statistics.pstdev(data),
        statistics.geometric_mean([1, 4]), statistics.median_low(data), statistics.correlation([1, 2, 3], [1, 5, 7]), statistics.NormalDist(1, 2).cdf(1),
    )


@feature(lambda: {"a": [1, {"b": Money(2)}], "c": list(range(40)), "d": Item("x")})
def pretty_printing(data):
    data["a"].append(len(data["a"]))
    return pprint.pformat(data), pprint.pformat(data, width=30, depth=2), pprint.isreadable([1]), pprint.saferepr(data["a"]), pprint.pformat(Point(1, 2)), pprint.pformat(Counter("ab"))


def signed(a, b: int = 2, *args, c, d=None, **kwargs) -> str:
    """Doc."""


@feature(nothing)
def signatures(_):
    signature = inspect.signature(signed)
    bound = signature.bind(1, c=3, e=4)
    bound.apply_defaults()
    return (
        str(signature), list(signature.parameters), bound.arguments, bound.args, bound.kwargs, str(inspect.signature(functools.partial(signed, 1))), str(inspect.signature(Circle)),
        inspect.getdoc(signed), inspect.isfunction(signed), inspect.ismethod(Circle(1).scaled), [n for n, _ in inspect.getmembers(Point(1, 2)) if n in "xy"], inspect.isclass(Circle),
        inspect.iscoroutinefunction(signed), str(inspect.signature(Circle(1).describe)), inspect.isgeneratorfunction(squares), inspect.cleandoc(" a\n  b"), inspect.unwrap(triple)(2),
    )


@feature(lambda: [])
def context_managers(log):
    @contextlib.contextmanager
    def noted(name):
        log.append(f"enter {name}")
        try:
            yield name
        finally:
            log.append(f"exit {name}")

    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(noted(n)) for n in "ab"]
        stack.callback(log.append, "callback")
    with contextlib.suppress(KeyError), noted("c"):
        {}["missing"]
    with contextlib.closing(squares(3)) as generator, contextlib.nullcontext(5) as five:
        first = next(generator)
    return names, len(log), first, five, log[-2:]


class Table(io.StringIO):
    """A file of which each object has a writer and a reader."""

    def __init__(self):
        super().__init__()
        self.rows = csv.writer(self, quoting=csv.QUOTE_NONNUMERIC)
        self.read = csv.reader(line for line in ["a;b\n", "'c\n", "d';5\n", "e\n"] * 20)


@feature(Table)
def tables_as_text(table):
    table.rows.writerow([len(table.getvalue()), "x,y", None, [1], 2.5])
    table.rows.writerows((n, str(n)) for n in range(3))
    out = io.StringIO()
    named = csv.DictWriter(out, ["a", "b"], restval="-", extrasaction="ignore", dialect="excel-tab")
    named.writeheader()
    named.writerows({"a": n, "c": n} for n in range(2))
    text = out.getvalue()
    return (
        table.getvalue(), next(table.read), table.read.line_num, text, list(csv.DictReader(text.splitlines(), dialect="excel-tab")),
        list(csv.reader(io.StringIO("1;'2'\n"), delimiter=";", quotechar="'", quoting=csv.QUOTE_NONNUMERIC)),
        csv.Sniffer().sniff("a;b\n1;2\n3;4\n").delimiter, csv.get_dialect("unix").quoting, "excel" in csv.list_dialects(),
    )


class Measured(io.RawIOBase):
    """A stream in Python, which C code of its base closes."""

    def __init__(self):
        self.written = []

    def writable(self):
        return True

    def write(self, data):
        self.written.append(bytes(data))
        return len(data)


@feature(nothing)
def streams_in_python(_):
    with Measured() as stream:
        stream.writelines([b"a", b"b"])
        before = stream.closed, stream.seekable(), stream.isatty()
    try:
        stream.flush()
    except ValueError as e:
        return before, stream.closed, str(e), stream.written


@feature(lambda: (Measured(), Measured()))
def streams_in_python_of_before(streams):
    streams[1].flush()
    streams[1].write(b"c")
    with streams[0] as stream:
        stream.write(b"d")
    return stream.closed, streams[1].closed


@feature(lambda: io.BytesIO())
def archives(store):
    with zipfile.ZipFile(store, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "text " * 100, zipfile.ZIP_DEFLATED)  # not of this moment
        with archive.open(zipfile.ZipInfo("b.txt"), "w") as file:
            file.write(b"line\nanother\n")
    with zipfile.ZipFile(io.BytesIO(store.getvalue())) as archive, archive.open("b.txt") as file:
        return archive.namelist(), archive.read("a.txt"), file.readline(), list(file), file.closed, archive.testzip()


@feature(nothing)
def mail(_):
    message = email.message.EmailMessage()
    message["Subject"] = "é"
    message.set_content("hé")
    message.add_alternative("<b>hé</b>", subtype="html")
    return email.mime.text.MIMEText("hé").as_string(), email.message_from_bytes(message.as_bytes().split(b"boundary")[0])["Subject"]


@feature(nothing)
def what_cannot_be_called(_):
    found = []
    for what in "text", 5, None, [], object(), Measured():
        try:
            what("argument", key=1)
        except TypeError as e:
            found.append(str(e))
    return found, codecs.lookup("latin-1").name, codecs.getincrementaldecoder("utf-8")().decode(b"x")


@feature(nothing)
def redirection(_):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("redirected")


#: what runs alone, and why; the same table for users is in docs/limits.rst
ALONE = {
    "streams_in_python_of_before": "C code asks for the attribute that says whether a stream is closed",
    "bytearray_changed_while_it_joins": "views that ended transactions still hold are gone only when this one is alone",
    "bytes_io": "getbuffer() of a stream that is older than the transaction lets anybody change its memory",
    "iterator_finditer": "the position in a regular expression's search cannot be put back",
    "iterator_iter_unpack": "made outside: it holds a buffer that cannot be given back twice",
    "numbers_of_a_class": "classes are read without asking, so changed exclusively",
    "redirection": "contextlib.redirect_stdout assigns to an attribute of a module",
    "weak_references": "a weakref.proxy hands everything on in C",
}


# ---- What is compared ------------------------------------------------------------------------------------------------


def picture(value, seen=None):
    """The value as nested tuples of what can be compared: types, order and contents, not identities."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, (int, float, str, bytes, complex, type, range)) and not isinstance(value, enum.Enum):
        return type(value).__name__, repr(value)
    if type(value).__name__ in ("lock", "RLock"):
        return "a lock"
    if id(value) in seen:
        return "again", seen[id(value)][0]
    seen[id(value)] = len(seen), value  # kept alive, so that no other object gets its id

    def inside(values):
        return tuple(picture(each, seen) for each in values)

    name = type(value).__name__
    if isinstance(value, (set, frozenset)):
        return name, tuple(sorted(map(repr, value))), picture(vars(value), seen) if hasattr(value, "__dict__") else ()
    if isinstance(value, (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)):
        return name, sorted(map(repr, value))
    if isinstance(value, enum.Enum):
        return name, repr(value)
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return name, inside(kind.keys(value)), inside(kind.values(value)), getattr(value, "default_factory", None) is None
    if isinstance(value, (list, tuple, deque, array.array)):
        return name, inside(value), getattr(value, "maxlen", None)
    if isinstance(value, (io.StringIO, io.BytesIO)):
        return name, value.getvalue(), value.tell()
    if isinstance(value, Measured):
        return name, value.closed, inside(value.written)
    if hasattr(value, "hexdigest"):
        return name, value.hexdigest()
    if isinstance(value, random.Random):
        return name, value.getstate()
    if hasattr(value, "cache_info"):
        return name, repr(value.cache_info())
    if isinstance(value, contextvars.Context):
        return name, tuple(sorted((var.name, repr(each)) for var, each in value.items()))
    if isinstance(value, BaseException):
        return name, inside(value.args)
    if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, weakref.ref)):
        return name, getattr(value, "__qualname__", "")
    if hasattr(type(value), "__next__"):
        return name, inside(itertools.islice(value, 30))
    slots = [slot for cls in type(value).__mro__ for slot in getattr(cls, "__slots__", ()) if hasattr(value, slot)]
    if hasattr(value, "__dict__") or slots:
        return name, inside(vars(value).items() if hasattr(value, "__dict__") else ()), inside(getattr(value, slot) for slot in slots)
    return name, repr(value) if type(value).__repr__ is not object.__repr__ else ""


def outcome(function, state):
    """What a call returns or raises, as a picture."""
    try:
        result = function(state)
    except Exception as e:
        return "raised", type(e).__name__, str(e)
    return "returned", picture(result)


def plainly(make, function, runs):
    """The outcomes of several calls in plain Python, and a picture of the state that they leave behind."""
    state = make()
    outcomes = [outcome(function, state) for _ in range(runs)]
    return outcomes, picture(state)


def run(function, *args):
    return core.Transaction(function, args).run()


def reasons():
    return Counter(core.stats()["exclusive_reasons"])


@pytest.fixture
def injected():
    """Injects aborts with the seed that it is called with, until the test is over."""
    yield lambda seed: core.inject_aborts(INJECTED, seed)
    core.inject_aborts(0, 0)


@pytest.fixture(autouse=True)
def context():
    """Each test has variables of its own."""
    yield
    colour.set("none")


def in_transactions(make, function, runs):
    state = make()
    outcomes = [run(outcome, function, state) for _ in range(runs)]
    return outcomes, picture(state)


def expected_of(name):
    make, function = FEATURES[name]
    plain = contextvars.copy_context().run(plainly, make, function, RUNS)
    return make, function, plain


@pytest.mark.parametrize("name", FEATURES)
def test_same_as_plain_python(name):
    make, function, plain = expected_of(name)
    assert in_transactions(make, function, RUNS) == plain


@pytest.mark.parametrize("name", sorted(set(FEATURES) - set(ALONE)))
def test_not_alone(name):
    make, function = FEATURES[name]
    for _ in range(2):  # code that has not been seen before may have to run alone
        in_transactions(make, function, RUNS)
    before = reasons()
    in_transactions(make, function, RUNS)
    assert reasons() - before == Counter()


@pytest.mark.parametrize("name", ALONE)
def test_what_is_said_to_run_alone_does(name):
    make, function = FEATURES[name]
    for _ in range(2):
        in_transactions(make, function, RUNS)
    before = reasons()
    in_transactions(make, function, RUNS)
    assert reasons() - before != Counter()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FEATURES)
def test_aborts_leave_no_trace(name, seed, injected):
    make, function, plain = expected_of(name)
    injected(seed)
    assert in_transactions(make, function, RUNS) == plain


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", FEATURES)
def test_two_threads_on_one_state(name, seed, injected, monkeypatch):
    make, function, (outcomes, end) = expected_of(name)
    state, seen = make(), []
    queue = transaction.TransactionQueue()
    for _ in range(RUNS):
        queue.add(lambda: core.defer(seen.append, outcome(function, state)))
    monkeypatch.setattr(transaction.running, "_threads", 2)
    if seed is not None:
        injected(seed)
    queue.run()
    core.inject_aborts(0, 0)
    assert sorted(map(repr, seen)) == sorted(map(repr, outcomes))
    assert picture(state) == end
