"""Who conflicts with whom: transactions that touch different things go on side by side, others never do.

`meeting` brings two transactions together; nothing here depends on time.
"""

import bisect
import contextlib
import contextvars
import copy
import csv
import functools
import heapq
import io
import itertools
import json
import operator
import pickle
import re
import socket
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from meeting import ALONE, APART, CONFLICT, TIMEOUT, Meeting, meet, run
from tornado.stm.core import trusted

activation.activate()


class Thing:
    default = 0

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = self.b = 0


class Measured:
    def __init__(self):
        self._width = self._height = 0

    @property
    def width(self):
        return self._width

    @width.setter
    def width(self, value):
        self._width = value

    @property
    def height(self):
        return self._height

    @height.setter
    def height(self, value):
        self._height = value


def closures():
    a = b = 0

    def set_a():
        nonlocal a
        a += 1

    def set_b():
        nonlocal b
        b += 1

    def get_a():
        return a

    return set_a, set_b, get_a


global_a = global_b = global_c = 0


def set_global_a(*_):
    global global_a
    global_a += 1


def set_global_b(*_):
    global global_b
    global_b += 1


def get_global_a(*_):
    return global_a


def put(key, value=1):
    def put(d, *_):
        d[key] = value

    return put


def delete(key):
    def delete(d, *_):
        del d[key]

    return delete


def get(key):
    def get(d, *_):
        return d[key]

    return get


def set_x(o, *_):
    o.x = 5


def set_done(value):
    def set_(o, *_):
        o.done = value

    return set_


def set_y(o, *_):
    o.y = 5


def get_x(o, *_):
    return o.x


def increment_x(o, *_):
    o.x += 1


def loop(things, *_):
    for _ in things:
        pass


def make_two_lists():
    return [1], [2]


def thing():
    return (Thing(x=1, y=2),)


def many():
    """More attributes than an instance keeps inline."""
    return (Thing(x=1, y=2, **{f"a{i}": i for i in range(40)}),)


def look(o):
    return vars(o)["x"]


def grown():
    """The same, made after somebody has looked at the attributes as a dict."""
    o = Thing(x=1, y=2)
    run(look, o)
    for i in range(40):
        setattr(o, f"a{i}", i)
    return (o,)


class Row(list):
    """An instance without inline attributes."""


def row():
    o = Row()
    o.x, o.y = 1, 2
    return (o,)


def table():
    return ({i: i for i in range(10)},)


def words():
    return ({"a": 1, "b": 2, "c": 3},)


def numbers():
    return ({1, 2, 3},)


def items():
    return ([1, 2, 3],)


def call(i):
    def call(*functions):
        return functions[i]()

    return call


SIDE_BY_SIDE = {
    "different attributes": (thing, set_x, set_y),
    "different attributes, counted": (thing, increment_x, set_y),
    "reading one and writing another": (thing, get_x, set_y),
    "the same attribute, read": (thing, get_x, get_x),
    "different attributes of many": (many, set_x, set_y),
    "different attributes of what has grown": (grown, set_x, set_y),
    "an attribute, another by the dict": (thing, set_x, lambda o: operator.setitem(vars(o), "y", 5)),
    "an attribute of what has grown, another by the dict": (grown, set_x, lambda o: operator.setitem(vars(o), "y", 5)),
    "one deleted, another read": (thing, get_x, lambda o: delattr(o, "y")),
    "one of many deleted, another read": (grown, get_x, lambda o: delattr(o, "y")),
    "one deleted, another written": (thing, set_x, lambda o: delattr(o, "y")),
    "new attributes": (lambda: (Thing(),), set_x, set_y),
    "new attributes of many": (grown, lambda o: setattr(o, "new", 1), lambda o: setattr(o, "newer", 1)),
    "different slots": (lambda: (Slotted(),), lambda o: setattr(o, "a", 1), lambda o: setattr(o, "b", 1)),
    "different properties": (lambda: (Measured(),), lambda o: setattr(o, "width", 1), lambda o: setattr(o, "height", 1)),
    "the same attribute of different objects": (lambda: (Thing(x=1), Thing(x=1)), set_x, lambda _, o: set_x(o)),
    "different keys overwritten": (table, put(1), put(2)),
    "different keys inserted": (table, put("new"), put("newer")),
    "one key overwritten, another inserted": (table, put(1), put("new")),
    "one key read, another overwritten": (table, get(1), put(2)),
    "one key read, another inserted": (table, get(1), put("new")),
    "the same key, read": (table, get(1), get(1)),
    "an absent key looked for, another inserted": (table, lambda d: "x" in d, put("y")),
    "get of one key, setdefault of another": (table, lambda d: d.get(1), lambda d: d.setdefault("new", 1)),
    "different keys of a defaultdict": (lambda: (defaultdict(list),), lambda d: d["a"].append(1), lambda d: d["b"].append(1)),
    "different keys of a dict subclass": (lambda: (Counter("ab"),), put("a"), put("b")),
    "different elements added": (numbers, lambda s: s.add("a"), lambda s: s.add("b")),
    "one element added, another looked for": (numbers, lambda s: s.add("a"), lambda s: 2 in s),
    "different keys deleted": (table, delete(1), delete(2)),
    "one key deleted, another inserted": (table, delete(1), put("new")),
    "one key deleted, another overwritten": (table, delete(1), put(2)),
    "one key deleted, another read": (table, delete(1), get(2)),
    "one key popped, another looked for": (table, lambda d: d.pop(1), lambda d: "x" in d),
    "a key popped that is not there, another inserted": (table, lambda d: d.pop("x", None), put("new")),
    "one key popped, setdefault of another": (table, lambda d: d.pop(1), lambda d: d.setdefault("new", 1)),
    "different keys of a defaultdict deleted": (lambda: (defaultdict(list, {1: [], 2: []}),), delete(1), delete(2)),
    "different elements discarded": (numbers, lambda s: s.discard(1), lambda s: s.discard(2)),
    "different lists appended to": (make_two_lists, lambda a, b: a.append(1), lambda a, b: b.append(1)),
    "different deques": (lambda: (deque(), deque()), lambda a, b: a.append(1), lambda a, b: b.append(1)),
    "lists under different keys": (lambda: ({"a": [], "b": []},), lambda d: d["a"].append(1), lambda d: d["b"].append(1)),
    "a list read twice": (items, len, loop),
    "a dict iterated twice": (table, loop, lambda d: list(d.items())),
    "a dict iterated, its keys read": (table, loop, get(1)),
    "an empty dict cleared": (lambda: ({},), dict.clear, lambda d: d.clear()),
    "an empty list cleared": (lambda: ([],), list.clear, lambda xs: xs.reverse()),
    "an empty set cleared": (lambda: (set(),), set.clear, lambda s: s.clear()),
    "different closure variables": (closures, call(0), call(1)),
    "a closure variable, read": (closures, call(2), call(2)),
    "different globals": (tuple, set_global_a, set_global_b),
    "text that reads another key, evaluated": (table, lambda d: eval("d[1] + 1"), put(2)),
    "text executed with names of its own": (table, lambda d: exec("x = d[1]"), put(2)),
    "text that reads another global, evaluated": (tuple, lambda: eval("global_b"), set_global_a),
    "a global, read": (tuple, get_global_a, get_global_a),
    "a flag set that is set": (lambda: (Thing(done=True),), set_done(True), set_done(True)),
    "a flag set that is set, and read": (lambda: (Thing(done=True),), set_done(True), lambda o: o.done),
    "nothing, where nothing was": (lambda: (Thing(done=None),), set_done(None), set_done(None)),
    "a method that reads nothing": (thing, lambda o: type(o), set_x),
    "identity and type": (items, lambda xs: (id(xs), xs is None, isinstance(xs, list)), lambda xs: xs.append(1)),
}


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_side_by_side(name):
    assert meet(*SIDE_BY_SIDE[name]) == APART


def skip(n):
    def advance(state):
        for _ in range(n):
            next(state[0])

    return advance


def over(make):
    """A maker of an iterator and the lists that it is made of."""

    def make_both():
        rows = [[1], [2, 3], []]
        return ((make(rows), rows),)

    return make_both


def append_to(n):
    return lambda state: state[1][n].append(4)


# An iterator that was made in another transaction, and what another transaction changes meanwhile.
ITERATORS = {
    "chain": (lambda rows: itertools.chain(*rows), skip(2), append_to(1)),
    "chain.from_iterable": (lambda rows: itertools.chain.from_iterable(rows), skip(2), append_to(1)),
    "chain of an iterator": (lambda rows: itertools.chain.from_iterable(filter(None, rows)), skip(2), append_to(1)),
    "zip": (lambda rows: zip(rows[0], rows[1]), skip(1), append_to(1)),
    "zip_longest": (lambda rows: itertools.zip_longest(rows[0], rows[1]), skip(1), append_to(1)),
    "filter": (lambda rows: filter(None, rows), skip(1), append_to(0)),
    "filter by what a function returns": (lambda rows: filter(lambda row: rows[2], [1, 2]), lambda s: next(s[0], 0), append_to(2)),
    "filterfalse": (lambda rows: itertools.filterfalse(None, iter(rows)), lambda s: next(s[0], 0), append_to(2)),
    "takewhile": (lambda rows: itertools.takewhile(lambda row: rows[1], [1, 2]), skip(1), append_to(1)),
    "compress": (lambda rows: itertools.compress("abc", rows), skip(1), append_to(0)),
    "accumulate": (lambda rows: itertools.accumulate(rows), skip(2), append_to(1)),
    "starmap": (lambda rows: itertools.starmap(pow, [rows[1]]), skip(1), append_to(1)),
    "groupby": (lambda rows: itertools.groupby(rows), skip(2), append_to(1)),
    "groupby by key": (lambda rows: itertools.groupby("ab", lambda c: rows[1]), lambda s: next(s[0]) and next(s[0], 0), append_to(1)),
    "map": (lambda rows: map(len, rows), skip(1), append_to(0)),
    "map of a method": (lambda rows: map(rows[2].append, "abc"), skip(1), append_to(2)),
    "iter with a sentinel": (lambda rows: iter(lambda: rows[1], [9]), skip(1), append_to(1)),
    "cycle": (lambda rows: itertools.cycle(rows[1]), skip(1), append_to(1)),
    "tee": (lambda rows: itertools.tee(rows[1])[0], skip(1), append_to(1)),
    "islice": (lambda rows: itertools.islice(iter(rows[1]), 2), skip(1), append_to(1)),
    "pairwise": (lambda rows: itertools.pairwise(rows[1]), skip(1), append_to(1)),
    "batched": (lambda rows: itertools.batched(rows[1], 2), skip(1), append_to(1)),
    "enumerate": (lambda rows: enumerate(rows[1]), skip(1), append_to(1)),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_what_an_iterator_reads_conflicts_with_changes(name):
    make, first, second = ITERATORS[name]
    assert meet(over(make), first, second) == CONFLICT


CALLBACKS = {
    "sorted by a key": lambda rows: sorted("ba", key=lambda c: rows[1]),
    "max by a key": lambda rows: max("ba", key=lambda c: rows[1]),
    "a search by a key": lambda rows: bisect.bisect([1, 2], rows[1], key=lambda n: rows[1]),
    "reduce": lambda rows: functools.reduce(operator.add, rows),
    "all": lambda rows: all(row for row in rows),
    "sum": lambda rows: sum((row for row in rows), []),
    "join of a generator": lambda rows: b"".join(bytes(row) for row in rows),
    "json by default": lambda rows: json.dumps(Thing(), default=lambda _: rows[1]),
    "a replacement in a pattern": lambda rows: re.sub("a", lambda m: str(rows[1]), "a"),
    "a factory": lambda rows: defaultdict(rows[1].copy)["k"],
    "partial": lambda rows: functools.partial(list, rows[1])(),
    "methodcaller": lambda rows: operator.methodcaller("copy")(rows[1]),
    "attrgetter": lambda rows: operator.attrgetter("x.y")(Thing(x=Thing(y=1))) and len(rows[1]),
    "itemgetter": lambda rows: operator.itemgetter(0)(rows[1]),
    "format": lambda rows: "{0[1]}".format(rows),
    "a method of a list, bound": lambda rows: types.MethodType(len, rows[1])(),
    "a method that waits": lambda rows: functools.partial(rows[1].append, 1)(),
    "cmp_to_key": lambda rows: sorted("ba", key=functools.cmp_to_key(lambda a, b: len(rows[1]))),
    "a heap": lambda rows: heapq.heappush([rows[1]], [1]),
    "context": lambda rows: contextvars.copy_context().run(len, rows[1]),
    "a pickle": lambda rows: pickle.dumps({"rows": rows}),
    "a copy": lambda rows: copy.deepcopy(Thing(rows=rows)),
    "the rows of a dict": lambda rows: dict([rows[1]]),
    "the rows of a dict subclass": lambda rows: OrderedDict(iter([rows[1]])),
    "a tuple made by its class": lambda rows: tuple.__new__(tuple, rows[1]),
    "counted": lambda rows: Counter(rows[1]),
    "many arguments": lambda rows: list(itertools.chain(*([rows[0]] * 100), rows[1])),
    "a view of values": lambda rows: repr({1: rows}.values()),
    "a cycle": lambda rows: repr([cyclic, rows]),
}

def function():
    def f():
        pass

    f.a = 1
    return (f,)


def bare_function():
    return (lambda: None,)


FUNCTIONS = {
    "the same attribute": (function, lambda f: setattr(f, "a", 2), lambda f: f.a, CONFLICT),
    "different attributes": (function, lambda f: setattr(f, "a", 2), lambda f: setattr(f, "b", 2), APART),
    "the name": (function, lambda f: setattr(f, "__name__", "g"), lambda f: f.__name__, CONFLICT),
    "the first attribute": (bare_function, lambda f: hasattr(f, "a"), lambda f: setattr(f, "a", 1), CONFLICT),
    "the first attribute, by the dict": (bare_function, lambda f: hasattr(f, "a"), lambda f: f.__dict__.update(a=1), CONFLICT),
    "an attribute, by the dict": (function, lambda f: f.a, lambda f: f.__dict__.update(a=3), CONFLICT),
    "by a bound method": (function, lambda f: types.MethodType(f, 1).a, lambda f: setattr(f, "a", 2), CONFLICT),
    "of a partial": (lambda: (functools.partial(int),), lambda p: setattr(p, "a", 2), lambda p: getattr(p, "a", 0), CONFLICT),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_attributes_of_functions(name):
    *meeting, outcome = FUNCTIONS[name]
    assert meet(*meeting) == outcome


cyclic = []
cyclic += [cyclic, cyclic]


class Lookup:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, key):
        return self.items


@pytest.mark.parametrize("name", CALLBACKS)
def test_what_c_code_reads_on_the_way_conflicts_with_changes(name):
    def make():
        return ([[1], [2, 3], []],)

    def change(rows):
        rows[1][0] = 7

    assert meet(make, CALLBACKS[name], change) == CONFLICT


CONFLICTING = {
    "the same attribute written": (thing, set_x, set_x),
    "the same attribute read and written": (thing, get_x, set_x),
    "all attributes read, a new one": (thing, lambda o: len(vars(o)), lambda o: setattr(o, "new", 1)),
    "all of many attributes read, a new one": (grown, lambda o: list(vars(o)), lambda o: setattr(o, "new", 1)),
    "all attributes read, one deleted": (thing, lambda o: list(vars(o)), lambda o: delattr(o, "y")),
    "two attributes deleted": (thing, lambda o: delattr(o, "x"), lambda o: delattr(o, "y")),
    "an absent attribute looked for, updated": (thing, lambda o: hasattr(o, "new"), lambda o: vars(o).update(new=1)),
    "an absent attribute looked for, merged": (thing, lambda o: hasattr(o, "new"), lambda o: operator.ior(vars(o), {"new": 1})),
    "an absent attribute of many looked for, updated": (grown, lambda o: hasattr(o, "new"), lambda o: vars(o).update(new=1)),
    "the same attribute counted": (thing, increment_x, increment_x),
    "the same new attribute": (lambda: (Thing(),), set_x, set_x),
    "the same slot": (lambda: (Slotted(),), lambda o: setattr(o, "a", 1), lambda o: o.a),
    "the same property": (lambda: (Measured(),), lambda o: setattr(o, "width", 1), lambda o: o.width),
    "a class default shadowed": (lambda: (Thing(),), lambda o: o.default, lambda o: setattr(o, "default", 1)),
    "an absent attribute looked for": (lambda: (Thing(),), lambda o: hasattr(o, "x"), set_x),
    "a flag set that is set, and cleared": (lambda: (Thing(done=True),), set_done(True), set_done(False)),
    "a flag set": (lambda: (Thing(done=False),), set_done(True), set_done(True)),
    "a flag set and read": (lambda: (Thing(done=False),), set_done(True), lambda o: o.done),
    "a new flag": (lambda: (Thing(),), set_done(True), set_done(True)),
    "the same key written": (table, put(1), put(1)),
    "the same key read and written": (table, get(1), put(1)),
    "the same new key": (table, put("new"), put("new")),
    "the same key, equal but of another type": (table, put(1), put(1.0)),
    "an absent key looked for": (table, lambda d: "new" in d, put("new")),
    "an absent key got": (table, lambda d: d.get("new"), put("new")),
    "the same key deleted": (table, delete(1), delete(1)),
    "a key deleted and read": (table, delete(1), lambda d: d.get(1)),
    "a key deleted and put": (table, delete(1), put(1)),
    "a key popped that is not there, and put": (table, lambda d: d.pop("x", None), put("x")),
    "a key deleted, the dict iterated": (table, delete(1), loop),
    "a key deleted, the length asked for": (table, delete(1), len),
    "an empty dict cleared, a key put": (lambda: ({},), dict.clear, put(1)),
    "an empty list cleared, one appended": (lambda: ([],), lambda xs: xs.clear(), lambda xs: xs.append(1)),
    "an empty set cleared, one added": (lambda: (set(),), set.clear, lambda s: s.add(1)),
    "a dict cleared": (table, dict.clear, dict.clear),
    "a missing key of a defaultdict, looked up in a text": (lambda: (defaultdict(list),), put("a"), lambda d: "%(b)s" % d),
    "a missing key of a defaultdict, looked up in translation": (lambda: (defaultdict(int),), put("a"), lambda d: "b".translate(d)),
    "a missing key of a defaultdict": (lambda: (defaultdict(list),), lambda d: d["a"], lambda d: d["a"]),
    "the same element": (numbers, lambda s: s.add("a"), lambda s: s.add("a")),
    "an absent element looked for": (numbers, lambda s: "a" in s, lambda s: s.add("a")),
    "an element discarded": (numbers, lambda s: 1 in s, lambda s: s.discard(1)),
    "text that reads a key, evaluated": (table, lambda d: eval("d[1]"), put(1)),
    "text that sets a key, executed": (table, lambda d: exec("d[1] = 2"), get(1)),
    "text that reads a global, evaluated": (tuple, lambda: eval("global_a"), set_global_a),
    "the same list appended to": (items, lambda xs: xs.append(1), lambda xs: xs.append(2)),
    "the same deque": (lambda: (deque([1, 2]),), lambda d: d.append(1), lambda d: d.popleft()),
    "the same closure variable": (closures, call(0), call(0)),
    "a closure variable read and written": (closures, call(0), call(2)),
    "the same global": (tuple, set_global_a, set_global_a),
    "a global read and written": (tuple, set_global_a, get_global_a),
    "one generator": (lambda: (iter([1, 2, 3]),), next, next),
}


@pytest.mark.parametrize("name", CONFLICTING)
def test_conflict(name):
    assert meet(*CONFLICTING[name]) == CONFLICT


def never_apart(make, first, second):
    outcome = meet(make, first, second)
    assert outcome in (CONFLICT, ALONE, [ALONE, CONFLICT]), outcome


def unpack(xs):
    a, *rest = xs
    return a, rest


def unpack_exactly(xs):
    try:
        a, b, c = xs
    except ValueError:
        pass


def as_arguments(xs):
    return (lambda *args: len(args))(*xs)


def match_sequence(xs):
    match xs:
        case [1, 2, 3]:
            return True
        case _:
            return False


def match_first(xs):
    match xs:
        case [first, *_]:
            return first


def assign_slice(to, xs, start=0):
    to[start:] = xs


def assign_constant_slice(to, xs):
    to[0:1] = xs


def assign_stepped_slice(to, xs):
    try:
        to[0:6:2] = xs
    except ValueError:
        pass


LIST_READERS = {
    "len": len,
    "loop": loop,
    "item": lambda xs: xs[0],
    "last item": lambda xs: xs[-1],
    "slice": lambda xs: xs[:2],
    "strided slice": lambda xs: xs[::2],
    "truth": lambda xs: 1 if xs else 0,
    "not": lambda xs: not xs,
    "bool": bool,
    "in": lambda xs: 9 in xs,
    "not in": lambda xs: 9 not in xs,
    "==": lambda xs: xs == [1, 2],
    "== of a nested list": lambda xs: [xs] == [[1]],
    "== of a tuple around it": lambda xs: (xs,) == ([1],),
    "<": lambda xs: xs < [1, 2],
    "+": lambda xs: xs + [1],
    "right +": lambda xs: [1] + xs,
    "*": lambda xs: xs * 2,
    "in place + of another": lambda xs: operator.iadd([], xs),
    "repr": repr,
    "str": str,
    "f-string": lambda xs: f"{xs}",
    "f-string !r": lambda xs: f"{xs!r}",
    "formatted f-string": lambda xs: f"{xs!s:>20}",
    "%": lambda xs: "%s" % (xs,),
    "% of a dict": lambda xs: "%(x)s" % {"x": xs},
    "format": lambda xs: "{}".format(xs),
    "format by keyword": lambda xs: "{x}".format(x=xs),
    "join": lambda xs: ",".join(map(str, xs)),
    "list": list,
    "tuple": tuple,
    "set": set,
    "sorted": sorted,
    "sum": sum,
    "max": max,
    "any": any,
    "reversed": lambda xs: list(reversed(xs)),
    "enumerate": lambda xs: list(enumerate(xs)),
    "zip": lambda xs: list(zip(xs, xs)),
    "map": lambda xs: list(map(abs, xs)),
    "filter": lambda xs: list(filter(None, xs)),
    "comprehension": lambda xs: [x for x in xs],
    "generator expression": lambda xs: sum(x for x in xs),
    "dict comprehension": lambda xs: {x: x for x in xs},
    "unpack": unpack,
    "unpack exactly": unpack_exactly,
    "arguments": as_arguments,
    "display": lambda xs: [*xs],
    "set display": lambda xs: {*xs},
    "tuple display": lambda xs: (0, *xs),
    "copy": lambda xs: xs.copy(),
    "index": lambda xs: xs.index(1),
    "count": lambda xs: xs.count(1),
    "json": json.dumps,
    "json of a nested one": lambda xs: json.dumps({"a": [xs]}),
    "__len__": lambda xs: xs.__len__(),
    "__getitem__": lambda xs: xs.__getitem__(0),
    "itemgetter": operator.itemgetter(0),
    "getitem": lambda xs: operator.getitem(xs, 0),
    "extend another": lambda xs: [].extend(xs),
    "slice assignment to another": lambda xs: assign_slice([], xs),
    "constant slice assignment to another": lambda xs: assign_constant_slice([], xs),
    "stepped slice assignment to another": lambda xs: assign_stepped_slice([0] * 10, xs),
    "setitem of a slice of another": lambda xs: operator.setitem([], slice(0, 0), xs),
    "__setitem__ of a slice of another": lambda xs: [].__setitem__(slice(0, 0), xs),
    "match": match_sequence,
    "match first": match_first,
    "yield from": lambda xs: list((lambda: (yield from xs))()),
    "bytes": bytes,
    "next of iter": lambda xs: next(iter(xs)),
    "isinstance and len": lambda xs: isinstance(xs, list) and len(xs),
}

LIST_WRITERS = {
    "append": lambda xs: xs.append(7),
    "setitem": lambda xs: operator.setitem(xs, 0, 8),
    "assignment": put(0, 8),
    "clear": lambda xs: xs.clear(),
}


@pytest.mark.parametrize("reader", LIST_READERS)
def test_reading_a_list_conflicts_with_appending(reader):
    never_apart(items, LIST_READERS[reader], LIST_WRITERS["append"])


@pytest.mark.parametrize("writer", ["setitem", "assignment", "clear"])
def test_iterating_a_list_conflicts_with_changing_it(writer):
    never_apart(items, loop, LIST_WRITERS[writer])


def merge(d):
    return {**d}


def as_keywords(d):
    return (lambda **kwargs: len(kwargs))(**d)


def match_mapping(d):
    match d:
        case {"a": 1, **rest}:
            return rest


DICT_READERS = {
    "len": len,
    "loop": loop,
    "truth": lambda d: 1 if d else 0,
    "bool": bool,
    "keys": lambda d: list(d.keys()),
    "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()),
    "loop over items": lambda d: loop(d.items()),
    "len of keys": lambda d: len(d.keys()),
    "in values": lambda d: 9 in d.values(),
    "in keys": lambda d: "new" in d.keys(),
    "in items": lambda d: ("new", 1) in d.items(),
    "keys and": lambda d: d.keys() & {"new"},
    "keys ==": lambda d: d.keys() == {"a"},
    "reversed": lambda d: list(reversed(d)),
    "list": list,
    "dict": dict,
    "copy": lambda d: d.copy(),
    "==": lambda d: d == {"a": 1},
    "!=": lambda d: d != {"a": 1},
    "|": lambda d: d | {},
    "right |": lambda d: {} | d,
    "update of another": lambda d: {}.update(d),
    "in place | of another": lambda d: operator.ior({}, d),
    "merge": merge,
    "keywords": as_keywords,
    "sorted": sorted,
    "sum": lambda d: sum(d.values()),
    "max": max,
    "repr": repr,
    "f-string": lambda d: f"{d}",
    "json": json.dumps,
    "format_map": lambda d: "{new}".format_map({**d, "new": 0}),
    "match": match_mapping,
    "popitem": lambda d: d.popitem(),
    "enumerate": lambda d: list(enumerate(d)),
    "comprehension": lambda d: {k: v for k, v in d.items()},
    "tuple": tuple,
    "next of iter": lambda d: next(iter(d)),
    "OrderedDict of it": OrderedDict,
    "Counter of it": Counter,
    "dict.fromkeys": dict.fromkeys,
    "unpack": unpack,
}


@pytest.mark.parametrize("reader", DICT_READERS)
def test_reading_a_whole_dict_conflicts_with_inserting(reader):
    never_apart(words, DICT_READERS[reader], put("new"))


@pytest.mark.parametrize("reader", ["values", "items", "==", "copy", "repr", "json", "sum", "match"])
def test_reading_a_whole_dict_conflicts_with_overwriting(reader):
    never_apart(words, DICT_READERS[reader], put("a", 7))


SET_READERS = {
    "len": len,
    "loop": loop,
    "truth": lambda s: 1 if s else 0,
    "list": list,
    "sorted": sorted,
    "==": lambda s: s == {1},
    "<=": lambda s: s <= {1},
    "|": lambda s: s | {1},
    "&": lambda s: s & {1, "new"},
    "right -": lambda s: {1, "new"} - s,
    "issubset": lambda s: s.issubset({1}),
    "issuperset": lambda s: s.issuperset({"new"}),
    "isdisjoint": lambda s: s.isdisjoint({"new"}),
    "isdisjoint of another": lambda s: {"new"}.isdisjoint(s),
    "union": lambda s: set().union(s),
    "copy": lambda s: s.copy(),
    "frozenset": frozenset,
    "repr": repr,
    "update of another": lambda s: set().update(s),
    "in place | of another": lambda s: operator.ior(set(), s),
    "pop": lambda s: s.pop(),
}


@pytest.mark.parametrize("reader", SET_READERS)
def test_reading_a_whole_set_conflicts_with_adding(reader):
    never_apart(numbers, SET_READERS[reader], lambda s: s.add(99))


DEQUE_READERS = {
    "len": len,
    "loop": loop,
    "item": lambda d: d[0],
    "in": lambda d: 9 in d,
    "==": lambda d: d == deque(),
    "list": list,
    "truth": lambda d: 1 if d else 0,
    "copy": lambda d: d.copy(),
    "repr": repr,
    "+": lambda d: d + deque(),
}


@pytest.mark.parametrize("reader", DEQUE_READERS)
def test_reading_a_deque_conflicts_with_appending(reader):
    never_apart(lambda: (deque([1, 2]),), DEQUE_READERS[reader], lambda d: d.append(7))


ATTRIBUTE_READERS = {
    "attribute": get_x,
    "getattr": lambda o: getattr(o, "x"),
    "getattr with default": lambda o: getattr(o, "x", None),
    "hasattr": lambda o: hasattr(o, "x"),
    "__dict__": lambda o: o.__dict__["x"],
    "__dict__ in": lambda o: "x" in o.__dict__,
    "__dict__ get": lambda o: o.__dict__.get("x"),
    "vars": lambda o: vars(o)["x"],
    "copy of vars": lambda o: dict(vars(o)),
    "dir": dir,
    "attrgetter": operator.attrgetter("x"),
    "__getattribute__": lambda o: o.__getattribute__("x"),
    "object.__getattribute__": lambda o: object.__getattribute__(o, "x"),
    "match": lambda o: match_class(o),
}


def match_class(o):
    match o:
        case Thing(x=5):
            return True


ATTRIBUTE_WRITERS = {
    "assignment": set_x,
    "setattr": lambda o: setattr(o, "x", 6),
    "__setattr__": lambda o: o.__setattr__("x", 6),
    "object.__setattr__": lambda o: object.__setattr__(o, "x", 6),
    "__dict__": lambda o: operator.setitem(o.__dict__, "x", 6),
    "update of __dict__": lambda o: o.__dict__.update(x=6),
    "delattr": lambda o: delattr(o, "x"),
}


@pytest.mark.parametrize("make", [thing, many, grown, row])
@pytest.mark.parametrize("writer", ATTRIBUTE_WRITERS)
@pytest.mark.parametrize("reader", ATTRIBUTE_READERS)
def test_every_way_to_an_attribute_conflicts(reader, writer, make):
    assert meet(make, ATTRIBUTE_READERS[reader], ATTRIBUTE_WRITERS[writer]) == CONFLICT


#: what is shared, what one transaction does with it by csv, what another one changes
TABLES = {
    "dialect": (lambda: [Thing(delimiter=";")], lambda d: csv.writer(io.StringIO(), d), lambda d: setattr(d, "delimiter", ",")),
    "part of a dialect by name": (lambda: [Thing(strict=True)], lambda d: csv.reader([], dialect=d), lambda d: setattr(d, "strict", False)),
    "method of a file": (lambda: [Thing(write=len)], csv.writer, lambda file: setattr(file, "write", str)),
    "field": (lambda: [[1]], lambda xs: csv.writer(io.StringIO()).writerow([xs]), lambda xs: xs.append(2)),
    "yielded field": (lambda: [[1]], lambda xs: csv.writer(io.StringIO()).writerow(iter([xs])), lambda xs: xs.append(2)),
    "field of a row": (lambda: [[1]], lambda xs: csv.writer(io.StringIO()).writerows([x] for x in [xs]), lambda xs: xs.append(2)),
    "lines": (lambda: [["a", "b"]], lambda lines: list(csv.reader(lines)), lambda lines: lines.append("c")),
    "file": (lambda: [io.StringIO()], lambda file: csv.writer(file).writerow([1]), lambda file: file.write("x")),
    "list that is written to": (lambda: [Written()], lambda file: csv.writer(file).writerow([1]), lambda file: file.append("x")),
    "writer": (lambda: [csv.writer(Thing(write=str))], lambda writer: writer.writerow([1]), lambda writer: writer.writerow([2])),
    "reader": (lambda: [csv.reader(iter(["a", "b"]))], next, lambda reader: reader.line_num),
}


class Written(list):
    write = list.append


@pytest.mark.parametrize("what", TABLES)
def test_tables_as_text_conflict_by_what_they_are_made_of(what):
    make, use, change = TABLES[what]
    assert meet(make, use, change) == meet(make, change, use) == CONFLICT


def test_tables_of_different_transactions_do_not_conflict():
    def write(xs):
        csv.writer(io.StringIO()).writerow(xs)

    assert meet(lambda: [[1]], write, write) == APART


class Guarded:
    def __init__(self):
        self.x = 1

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class Chained:
    def __init__(self):
        self.x = 1

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


class Indirect:
    def __init__(self):
        self.x = 1

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("cls", [Guarded, Chained, Indirect])
def test_attributes_behind_hooks(cls):
    never_apart(lambda: (cls(),), get_x, set_x)
    never_apart(lambda: (cls(),), set_x, set_x)


def test_everything_nested_is_read():
    def nested():
        return ({"a": [({"b": [1]},)]}, )

    def change(tree):
        tree["a"][0][0]["b"].append(2)

    for reader in repr, json.dumps, lambda tree: tree == {"a": []}, lambda tree: f"{tree}", lambda tree: str([tree]):
        never_apart(nested, reader, change)


def test_the_younger_waits_and_sees_what_the_older_wrote():
    d = {"n": 0}
    seen = []

    def older():
        d["n"] = 1

    def younger():
        value = d["n"]
        d["n"] = value + 10
        return value

    for _ in range(20):
        d["n"] = 0
        seen.clear()
        transactions = [core.Transaction(older, ()), core.Transaction(younger, ())]
        threads = [threading.Thread(target=trusted(lambda t=t: seen.append(t.run()))) for t in transactions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        assert (d["n"], {value for value in seen if value is not None}) in ((11, {1}), (1, {0}))


def test_a_transaction_that_keeps_losing_ends_all_the_same():
    d = {"n": 0}
    threads = []

    def count():
        for _ in range(5):
            d["n"] += 1

    def work():
        for _ in range(50):
            run(count)

    for _ in range(4):
        threads.append(threading.Thread(target=work))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
    assert d["n"] == 4 * 50 * 5


@pytest.mark.parametrize("look", [len, bytes, memoryview], ids=lambda f: f.__name__)
def test_nobody_looks_through_a_view_that_may_have_been_released(look):
    def make():
        return memoryview(bytearray(b"hello")), memoryview(b"another")

    def release(view, _):
        view.release()

    def look_through(view):
        try:
            look(view)
        except ValueError:
            pass  # it has been released

    assert Meeting(make, release, lambda view, _: look_through(view)).run() == CONFLICT
    assert Meeting(make, lambda view, _: look_through(view), release).run() == CONFLICT
    assert Meeting(make, release, lambda _, another: look_through(another)).run() == APART


@pytest.mark.parametrize("connect", ["connect", "connect_ex"])
def test_others_go_on_beside_one_that_connects(connect):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        sockets = [socket.socket() for _ in range(2)]
        for each in sockets:
            each.setblocking(False)

        def begin(things):
            with contextlib.suppress(BlockingIOError):
                getattr(sockets[things.pop()], connect)(address)

        def change(things):
            things.append(2)

        def make():
            return [0], [1], []

        try:
            assert Meeting(make, lambda a, b, c: begin(a), lambda a, b, c: change(c)).run() == APART
            assert Meeting(make, lambda a, b, c: change(c), lambda a, b, c: begin(b)).run() == APART
            for _ in sockets:
                server.accept()[0].close()
        finally:
            for each in sockets:
                each.close()


def test_a_dict_that_becomes_the_globals_of_a_function():
    def make():
        namespace = {"x": 1}
        return namespace, types.FunctionType((lambda: x).__code__, namespace)  # noqa: F821

    assert Meeting(make, lambda namespace, f: operator.setitem(namespace, "x", 2), lambda namespace, f: f()).run() == CONFLICT


@pytest.mark.parametrize("change", [
    lambda module: setattr(module, "x", 2),
    lambda module: delattr(module, "x"),
    lambda module: vars(module).update(x=2),
    lambda module: operator.delitem(vars(module), "x"),
    lambda module: exec("x = 2", vars(module)),
])  # fmt: skip
def test_a_global_of_a_module_that_is_read_as_its_attribute(change):
    """Often enough for the instruction that looks for nothing else, and without a barrier once a function of the module has run."""

    def make():
        module = types.ModuleType("settled")
        exec("x = 1\ndef f():\n    return x", vars(module))
        run(module.f)
        return (module,)

    def read(module):
        return [module.x for _ in range(100)]

    never_apart(make, read, change)


def test_attributes_that_are_globals_of_a_function():
    def make():
        o = Thing(x=1)
        return o, types.FunctionType((lambda: x).__code__, vars(o))  # noqa: F821

    def read(o, f):
        return f()

    def write(o, f):
        o.x += 1

    o, f = make()
    for _ in range(3):
        run(write, o, f)
        assert run(read, o, f) == o.x
    assert meet(make, read, write) in (CONFLICT, ALONE, [ALONE, CONFLICT])


def test_looking_at_all_variables_conflicts_with_rebinding_one():
    def make():
        x = 1

        def rebind(*_):
            nonlocal x
            x += 1

        def look(*_):
            return locals(), lambda: x

        return rebind, look

    assert meet(make, call(0), lambda rebind, look: look()) == CONFLICT


@pytest.mark.parametrize("look", [get("a"), len, lambda d: eval("a", d)])
def test_text_executed_in_a_namespace(look):
    never_apart(words, lambda d: exec("a = 2", d), look)


@pytest.mark.parametrize("change", [put("x"), lambda d: d.update(x=2), lambda d: d.clear() or d.update(x=2), lambda d: exec("x = 2", d)])
@pytest.mark.parametrize("first", [put("y"), put("x", 0), len, list, lambda d: None])
def test_a_dict_used_before_it_becomes_globals_of_a_function(first, change):
    def make():
        namespace = {"x": 1}
        return namespace, types.FunctionType((lambda: x).__code__, namespace)  # noqa: F821

    def use_and_call(namespace, f):
        first(namespace)
        return f()

    never_apart(make, use_and_call, lambda namespace, f: change(namespace))


class Forwards(type):
    """A metaclass whose methods hand on what they are called for."""

    def __setattr__(cls, name, value):
        super().__setattr__(name, value)

    def __delattr__(cls, name):
        super().__delattr__(name)


class Sets(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value)


@pytest.mark.parametrize("meta", [type, Forwards, Sets])
@pytest.mark.parametrize("change", [lambda cls: setattr(cls, "x", 2), lambda cls: delattr(cls, "x")])
def test_classes_are_changed_alone(meta, change):
    assert meet(lambda: (meta("Made", (), {"x": 1}),), change, lambda cls: hasattr(cls, "x")) == ALONE


def test_a_class_is_changed_by_who_makes_it():
    def make(*_):
        class Made:
            x = 1

        Made.y = Made.x + 1
        del Made.x
        return Made.y

    assert meet(tuple, make, make) == APART


def test_a_metaclass_that_gives_an_old_class():
    class Old:
        x = 1

    def make_and_change(*_):
        class Made(metaclass=lambda *_: Old):
            pass

        Made.x = 2

    assert meet(tuple, make_and_change, lambda: Old.x) == ALONE


class Full:
    """The instances of this class have no room for more attributes than these."""

    default = "of the class"


for name in ["default", *(f"a{i}" for i in range(40))]:
    setattr(Full(), name, 0)


def make_full():
    return (Full(),)


def make_full_with_dict():
    full = Full()
    full.a1 = 1
    return full, vars(full)


def add_attribute(full, *_):
    full.another = 1


def add_and_change(full, *_):
    full.another = 1
    full.a1 = 2


READ_MOVED = {
    "by the dict": lambda full, attributes: attributes.get("a1"),
    "by the instance": lambda full, attributes: full.a1,
    "by a new dict": lambda full, attributes: vars(full)["a1"],
}


@pytest.mark.parametrize("read", READ_MOVED)
def test_an_attribute_that_there_is_no_room_for_moves_all_others(read):
    """Whoever has locked one of them where it was, or by the dict that somebody has, has locked it where it is."""
    assert meet(make_full_with_dict, READ_MOVED[read], add_attribute) == APART
    assert meet(make_full_with_dict, READ_MOVED[read], add_and_change) == CONFLICT


def test_who_looks_at_all_attributes_meets_the_one_that_moves_them():
    assert meet(make_full, lambda full: list(vars(full)), add_attribute) == CONFLICT


@trusted
def roll_back():
    raise core.Abort


def test_an_attribute_whose_name_has_been_put_together_is_put_back():
    thing = Full()
    thing.default = "before"

    def attempt(name):
        if core.rehearse():
            setattr(thing, name, "after")
            roll_back()

    run(attempt, "".join(["def", "ault"]))
    assert vars(thing) == {"default": "before"}


def test_the_namespace_of_a_class_is_copied():
    def change(names):
        names["a"] = 1

    assert meet(lambda: ({"a": 0},), lambda names: type("Made", (), names), change) == CONFLICT
    assert meet(lambda: ({"a": 0},), lambda names: type("Made", (), names).a, lambda names: names["a"]) == APART


@pytest.mark.parametrize("get", [
    lambda slotted: Slotted.a.__get__(slotted), lambda slotted: next(map(Slotted.a.__get__, [slotted])),
    lambda slotted: functools.partial(Slotted.a.__get__, slotted)(), lambda slotted: type(Slotted.a).__get__(Slotted.a, slotted, Slotted),
    lambda slotted: Thing.__dict__["__dict__"].__get__(Thing(a=slotted))["a"].a,
])  # fmt: skip
def test_a_slot_is_read_by_its_descriptor(get):
    def change(slotted):
        slotted.a = 1

    assert meet(lambda: (Slotted(),), get, change) == CONFLICT
    assert meet(lambda: (Slotted(),), get, get) == APART


def test_keys_of_an_ordered_dict_are_not_called_by_who_iterates():
    """Its iterator refers to the current one."""

    class Called:
        def __call__(self):
            pass

    called = Called()
    for key in weakref.ref(called), called, called.__call__, len, [].append, test_defaults_of_keywords_are_changed_alone:
        it = iter(OrderedDict.fromkeys([key, "b"]))
        assert run(lambda it=it: (next(it), core.is_exclusive())) == (key, False)


def test_defaults_of_keywords_are_changed_alone():
    """Calls read them without asking."""

    def function(*, key=0):
        return key

    def get_and_change():
        function.__kwdefaults__["key"] += 1

    given = {"key": 5}

    def give():
        other.__kwdefaults__ = given

    def change_given():
        given["key"] += 1

    def other(*, key=0):
        return key

    give()
    for change in get_and_change, change_given:
        run(change)
        assert run(lambda change=change: (change(), core.is_exclusive()))[1]
    assert (function(), other()) == (2, 7)
    assert run(lambda: (function.__kwdefaults__["key"], core.is_exclusive())) == (2, False)


def test_names_that_cannot_be_written():
    name = "nonencodable\udbff"

    def set_global():
        globals()[name] = 1
        return io.BytesIO().getvalue()

    assert run(set_global) == b""
    assert globals().pop(name) == 1
