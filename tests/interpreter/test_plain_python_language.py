"""Everything of the language is transactional without running alone.

A feature is a function of a shared state, called as a transaction.  Four things hold for each:

1. it returns, raises and leaves behind what it does without transactions;
2. called again, it does not run alone;
3. so it is with aborts injected at random barriers;
4. two transactions that do it at the same time give what two calls, one after the other, give.
"""

import abc
import asyncio
import builtins
import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import math
import operator
import sys
import threading
import traceback
import types
import weakref
from collections import Counter

import pytest
from interpreters import needs_engine
from tornado import template

from tornado.stm import activation, core

needs_engine()

from tornado.stm.core import trusted

activation.activate()

TIMEOUT = 60
FEATURES = {}

#: features that run alone, and why
ALONE = {
    "instance_dict_replaced": "attributes that others have open would be those of another dict",
    "type_with_three_arguments": "classes are changed exclusively",
    "abstract_classes_made_at_run_time": "functions are changed exclusively",
    "dataclasses_made_at_run_time": "classes are changed exclusively",
    "named_tuples": "evaluates text",
    "exec_of_text": "run again, it assigns to globals that no function rebinds",
    "exec_in_attributes": "the globals of code are the attributes of an object",
    "exec_of_unusual_things": "what is no text, or not in a dict, is left to the interpreter",
    "compiled_code": "run again, it assigns to globals that no function rebinds",
}


def feature(make=lambda: None):
    """Enter a function into the table; ``make`` returns a new state for it (decorator)."""

    def enter(function):
        assert function.__name__ not in FEATURES
        FEATURES[function.__name__] = make, function
        return function

    return enter


# ---- Attributes ------------------------------------------------------------------------------------------------------


class Thing:
    default = "of the class"

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


def thing():
    return Thing(a=1, b=2, c=3)


@feature(thing)
def attributes(o):
    o.a += 1
    o.d = o.b
    return o.a, o.b, o.default, hasattr(o, "missing")


@feature(thing)
def missing_attribute(o):
    return o.missing


@feature(thing)
def attribute_deleted(o):
    del o.a
    found = hasattr(o, "a"), list(vars(o))
    o.a = 4
    return found, list(vars(o))


@feature(thing)
def attribute_deleted_in_the_middle(o):
    b = o.b
    del o.b
    o.b = b + 1
    o.e = getattr(o, "e", 0) + 1
    return list(vars(o))


@feature(thing)
def attribute_deleted_twice(o):
    del o.a
    del o.a


@feature(thing)
def builtin_attribute_functions(o):
    setattr(o, "x", getattr(o, "x", 0) + 1)
    before = hasattr(o, "x"), getattr(o, "y", "none")
    delattr(o, "b")
    o.b = 1
    return before, hasattr(o, "b"), sorted(dir(o))[-3:]


@feature(thing)
def attribute_methods(o):
    o.__setattr__("x", 1)
    object.__setattr__(o, "y", 2)
    o.__delattr__("a")
    object.__delattr__(o, "b")
    o.a, o.b = 5, 6
    return o.__getattribute__("x"), object.__getattribute__(o, "y"), list(vars(o))


@feature(lambda: Thing(**{f"a{i}": i for i in range(50)}))
def many_attributes(o):
    for i in range(0, 50, 7):
        setattr(o, f"a{i}", getattr(o, f"a{i}") + 1)
    o.new = len(vars(o))
    del o.a13
    o.a13 = 0
    return list(vars(o).items())


@feature(thing)
def attributes_grow_beyond_the_room(o):
    for i in range(40):
        setattr(o, f"more{i}", i)
    return list(vars(o))


@feature(thing)
def instance_dict(o):
    d = o.__dict__
    d["a"] += 1
    d["new"] = d.get("new", 0) + 1
    found = "b" in d, d["b"], len(d), list(d), list(d.items()), "zzz" in d
    del d["b"]
    d["b"] = o.a
    d.setdefault("c2", 2)
    d.pop("c", None)
    d.pop("nothing", None)
    d["c"] = 9
    return found, o.b, list(d.values()), d == vars(o), dict(d), bool(d)


@feature(thing)
def instance_dict_as_a_whole(o):
    vars(o).update(x=1, y=2)
    d = o.__dict__
    d |= {"z": 3}
    del o.x, o.y, o.z
    copy = dict(vars(o))
    vars(o).clear()
    empty = list(vars(o)), hasattr(o, "a")
    vars(o).update(copy)
    last = vars(o).popitem()
    o.__dict__.update([last])
    return empty, list(vars(o)), repr(vars(o))


@feature(thing)
def instance_dict_replaced(o):
    o.__dict__ = {"a": 10, "q": 1}
    o.a += 1
    o.__dict__["q"] += 1
    return o.a, o.q, hasattr(o, "b")


class Slotted:
    __slots__ = ("a", "b", "__weakref__")

    def __init__(self):
        self.a = 1


@feature(Slotted)
def slots(o):
    missing = hasattr(o, "b")
    o.b = o.a + 1
    o.a = o.b
    del o.b
    return missing, hasattr(o, "b"), o.a


class SlotsAndDict(Slotted):
    def __init__(self):
        super().__init__()
        self.c = 1


@feature(SlotsAndDict)
def slots_and_dict(o):
    o.a += o.c
    o.c += 1
    o.d = o.a
    del o.c
    o.c = o.a
    return list(vars(o).items())


class Temperature:
    def __init__(self):
        self._celsius = 0

    @property
    def celsius(self):
        return self._celsius

    @celsius.setter
    def celsius(self, value):
        if value < -273:
            raise ValueError("too cold")
        self._celsius = value

    @celsius.deleter
    def celsius(self):
        del self._celsius

    @functools.cached_property
    def cached(self):
        return self._celsius * 2


@feature(Temperature)
def properties(o):
    o.celsius += 1
    with contextlib.suppress(ValueError):
        o.celsius = -300
    value = o.celsius
    del o.celsius
    gone = hasattr(o, "celsius")
    o.celsius = value
    return value, gone


@feature(Temperature)
def cached_property(o):
    first = o.cached
    o.celsius += 1
    second = o.cached
    del o.cached
    return first, second, o.cached


class Typed:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__[self.name] * 10

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value

    def __delete__(self, instance):
        del instance.__dict__[self.name]


class Lazy:
    def __init__(self, function):
        self.function = function

    def __get__(self, instance, owner=None):
        value = self.function(instance)
        instance.__dict__[self.function.__name__] = value
        return value


class Described:
    x = Typed()

    def __init__(self):
        self.x = 1

    @Lazy
    def lazy(self):
        return self.x + 1


@feature(Described)
def data_descriptor(o):
    o.x = o.x + 1
    seen = o.x
    del o.x
    gone = hasattr(o, "x")
    o.x = 2
    return seen, type(Described.x).__name__, vars(o)


def data_descriptor_missing(o):
    return o.x


@feature(Described)
def non_data_descriptor(o):
    o.x += 1
    return o.lazy, o.lazy, vars(o)


class Dynamic:
    def __init__(self):
        object.__setattr__(self, "table", {"a": 1})
        object.__setattr__(self, "log", [])

    def __getattr__(self, name):
        try:
            return self.table[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.log.append(name)
        self.table[name] = value

    def __delattr__(self, name):
        del self.table[name]


@feature(Dynamic)
def getattr_setattr_delattr_in_python(o):
    o.a += 1
    o.b = getattr(o, "b", 0) + 1
    found = hasattr(o, "zzz"), o.b
    del o.a
    o.a = 1
    return found, list(o.table), list(o.log)


class Watched:
    def __init__(self):
        self.x = 0
        self.reads = {}

    def __getattribute__(self, name):
        if name == "x":
            reads = object.__getattribute__(self, "reads")
            reads[name] = reads.get(name, 0) + 1
        return super().__getattribute__(name)


@feature(Watched)
def getattribute_in_python(o):
    o.x += 1
    return o.x, o.reads


class Borg:
    shared = None

    def __init__(self, state):
        self.__dict__ = state


@feature(lambda: (lambda state: (Borg(state), Borg(state)))({"n": 0}))
def instances_that_share_a_dict(both):
    one, other = both
    one.n += 1
    other.n += one.n
    other.m = 1
    del one.m
    return one.n, other.n, vars(one) is vars(other), list(vars(one))


@feature(lambda: (Thing(a=1), Thing(a=2)))
def attributes_of_two_objects(both):
    one, other = both
    one.a, other.a = other.a + 1, one.a
    return one.a, other.a


@feature(lambda: types.SimpleNamespace(a=1))
def simple_namespace(o):
    o.a += 1
    o.b = o.a
    del o.b
    o.b = 7
    return o.a, repr(o), o == types.SimpleNamespace(a=o.a, b=7)


def with_attributes():
    def function(x):
        "doc"
        return x

    function.calls = 0
    return function


@feature(with_attributes)
def function_attributes(f):
    f.calls += 1
    f.note = f.calls
    del f.note
    f.__doc__ = f"called {f.calls}"
    f.__name__ = f"name{f.calls}"
    vars(f)["more"] = 1
    return f.calls, f.__doc__, f.__name__, sorted(vars(f)), f(1)


# ---- Variables ---------------------------------------------------------------------------------------------------------


def counter():
    count = 0
    history = []

    def step(by=1):
        nonlocal count
        count += by
        history.append(count)
        return count, len(history)

    def reset():
        nonlocal count
        del count
        count = 0

    return step, reset


@feature(counter)
def closures(functions):
    step, reset = functions
    first = step(), step(2)
    reset()
    return first, step()


@feature(lambda: [])
def closure_in_a_loop(made):
    for i in range(3):
        made.append(lambda i=i, j=len(made): (i, j))
    functions = [lambda: i for i in range(3)]
    return [f() for f in made], [f() for f in functions]


@feature(counter)
def cell_contents(functions):
    step, _ = functions
    step()
    return sorted(type(cell.cell_contents).__name__ for cell in step.__closure__)


total = 0
table_of_globals = {}


def reset_globals():
    global total, optional
    total = 0
    optional = 1
    globals()["written"] = 0


@feature(reset_globals)
def rebound_globals(_):
    global total
    total += 1
    table_of_globals["x"] = total
    return total


@feature(reset_globals)
def deleted_global(_):
    global optional
    value = optional
    del optional
    try:
        return optional
    except NameError as e:
        optional = value + 1
        return str(e), optional


@feature(reset_globals)
def globals_as_a_dict(_):
    globals()["written"] += 1
    seen = globals()["written"], "written" in globals(), globals().get("nothing"), written  # noqa: F821
    del globals()["written"]
    gone = "written" in globals()
    globals()["written"] = seen[0]
    return seen, gone, globals() is sys.modules[__name__].__dict__


@feature(thing)
def local_namespaces(o):
    x = 1
    y = [o.a]

    def inner():
        return x, sorted(locals())

    names = sorted(locals()), sorted(vars()), sorted(dir())
    locals()["x"] = 5
    o.a += 1
    return names, inner(), x, y


# ---- Expressions ---------------------------------------------------------------------------------------------------------


def numbers():
    return [3, 1, 2]


@feature(lambda: {"words": ["b", "a"], "table": {"x": 1}})
def comprehensions(d):
    words, table = d["words"], d["table"]
    words.append("c")
    return (
        [w * 2 for w in words if w], {w for w in words}, {w: i for i, w in enumerate(words)},
        list(w for w in words), [(a, b) for a in words for b in table], [v for v in table.values() for v in [v + 1]],
        [[x for x in w] for w in words],
    )


@feature(numbers)
def star_unpacking(xs):
    first, *middle, last = xs
    xs.append(first)
    a, (b, *c) = 1, xs
    merged = [*xs, *middle], (*xs, 1), {*xs}, {**dict.fromkeys(xs), "k": 1}
    return first, middle, last, a, b, c, merged, (lambda *args, **kwds: (args, kwds))(*xs, **{"z": 1}), max(*xs), [*map(str, xs)]


@feature(numbers)
def unpacking_that_fails(xs):
    xs.append(1)
    a, b = xs
    return a, b


@feature(lambda: list(range(10)))
def slicing(xs):
    xs[1:3] = [xs[0]] * 3
    xs[::2] = xs[::-2] if len(xs) % 2 else xs[1::2]
    del xs[-1]
    del xs[5:7]
    xs[len(xs):] = (1, 2)
    return xs[2:5], xs[-3:], xs[::3], xs, "text"[1:3], (1, 2, 3)[:2], bytes(5)[1:], xs[slice(1, 3)]


@feature(lambda: ([1, [2]], {"a": 1}, {1, 2}, collections.deque([1])))
def membership(containers):
    xs, d, s, q = containers
    xs.append(3)
    d["b"] = s.add(3)
    q.append(9)
    return (
        3 in xs, [2] in xs, 4 not in xs, "b" in d, 3 in s, frozenset([1]) in s, 9 in q, "el" in "hello", 1 in range(5),
        "a" in d.keys(), 1 in d.values(), ("a", 1) in d.items(), (1, 2) in {(1, 2)},
    )


@feature(numbers)
def iteration(xs):
    seen = []
    for i, x in enumerate(xs):
        if x == 2:
            continue
        seen.append((i, x))
    else:
        seen.append("else")
    while xs[-1] < 6:
        xs.append(xs[-1] + 1)
        if len(xs) > 20:
            break
    for a, b in zip(xs, reversed(xs)):
        seen.append(a - b)
    return seen


class Rows:
    def __init__(self):
        self.rows = [1, 2, 3]
        self.position = 0
        self.kept = iter([1, 2, 3, 4, 5, 6])

    def __iter__(self):
        return iter(self.rows)

    def __reversed__(self):
        return reversed(self.rows)

    def keep(self):
        return self.kept


@feature(Rows)
def iteration_over_instances(rows):
    rows.rows.append(len(rows.rows))
    first, *rest = rows
    return list(rows), [x for x in rows], sum(rows), first, rest, list(reversed(rows)), 2 in rows, dict.fromkeys(rows)


class Countdown:
    def __init__(self):
        self.n = 5

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@feature(Countdown)
def iterator_in_python(it):
    return next(it, None), [x for x, _ in zip(it, "ab")], list(it)


@feature(lambda: [iter([1, 2, 3, 4, 5, 6]), iter({"a": 1, "b": 2}.items()), enumerate("abcd"), iter(range(9))])
def iterators_that_outlive_a_transaction(iterators):
    taken = [next(it, None) for it in iterators]
    for x in iterators[0]:
        taken.append(x)
        break
    return taken


@feature(lambda: {"x": 2, "xs": [1]})
def assignment_forms(d):
    a = b = d["x"]
    a += 1
    (c := b + 1)
    d["x"] += c
    d["xs"] += [a]
    d["xs"] *= 2
    x, y = y, x = a, b
    ok = 1 < a <= 5 != 6
    z = a if ok else b
    return a, b, c, x, y, z, not ok, a and b or c, d["x"], d["xs"], a if d["xs"] else None


@feature(lambda: {"name": "x", "items": [1, {"k": (2,)}]})
def formatting(d):
    d["items"].append(len(d["items"]))
    return (
        f"{d['name']!r:>5} {d['items']} {d!s} {1.5:.2f} {d['items'][0]:03}", "%s %r" % (d["name"], d["items"]),
        "{0[name]} {1}".format(d, d["items"]), str(d), repr(d), ascii("é"), format(3, "b"), "%(name)s" % d,
    )


@feature(lambda: [1])
def template_strings(xs):
    xs.append(2)
    template = t"a {xs} b {xs[0]!r:>3}"  # noqa
    return template.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in template.interpolations]


@feature(lambda: {"n": 0})
def lambdas_defaults_and_keywords(d):
    def f(a, /, b=2, *args, c, d=4, **rest):
        return a, b, args, c, d, rest

    d["n"] += 1
    return f(1, c=3), f(1, 2, 3, c=4, e=5), (lambda x, y=d["n"]: (x, y))(1), f.__defaults__, f.__kwdefaults__


# ---- Operators in Python ---------------------------------------------------------------------------------------------------


class Vector:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.uses = 0

    def used(self):
        self.uses += 1
        return self

    def __add__(self, other):
        self.used()
        return Vector(self.x + other.x, self.y + other.y) if isinstance(other, Vector) else NotImplemented

    def __radd__(self, other):
        return Vector(self.x + other, self.y + other)

    def __iadd__(self, other):
        self.x += other.x
        self.y += other.y
        return self

    def __sub__(self, other):
        return Vector(self.x - other.x, self.y - other.y)

    def __mul__(self, n):
        return Vector(self.x * n, self.y * n)

    __rmul__ = __mul__

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y

    def __truediv__(self, n):
        return Vector(self.x / n, self.y / n)

    def __floordiv__(self, n):
        return Vector(self.x // n, self.y // n)

    def __mod__(self, n):
        return Vector(self.x % n, self.y % n)

    def __divmod__(self, n):
        return self // n, self % n

    def __pow__(self, n, modulus=None):
        return Vector(pow(self.x, n, modulus), pow(self.y, n, modulus))

    def __lshift__(self, n):
        return Vector(self.x << n, self.y << n)

    def __rshift__(self, n):
        return Vector(self.x >> n, self.y >> n)

    def __and__(self, n):
        return Vector(self.x & n, self.y & n)

    def __or__(self, n):
        return Vector(self.x | n, self.y | n)

    def __xor__(self, n):
        return Vector(self.x ^ n, self.y ^ n)

    def __neg__(self):
        self.used()
        return Vector(-self.x, -self.y)

    def __pos__(self):
        self.used()
        return Vector(+self.x, +self.y)

    def __invert__(self):
        return Vector(~self.x, ~self.y)

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __round__(self, n=None):
        return Vector(round(self.x, n), round(self.y, n))

    def __bool__(self):
        self.used()
        return bool(self.x or self.y)

    def __len__(self):  # may be asked for its length as a hint
        return 2

    def __getitem__(self, i):
        self.used()
        return (self.x, self.y)[i]

    def __setitem__(self, i, value):
        if i == 0:
            self.x = value
        else:
            self.y = value

    def __delitem__(self, i):
        self[i] = 0

    def __contains__(self, value):
        self.used()
        return value == self.x or value == self.y

    def __iter__(self):
        self.used()
        yield self.x
        yield self.y

    def __eq__(self, other):
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    def __lt__(self, other):
        self.used()
        return abs(self) < abs(other)

    def __le__(self, other):
        return self < other or self == other

    def __hash__(self):  # may be called more often than without transactions
        return hash((self.x, self.y))

    def __call__(self, n):
        self.used()
        return self * n

    def __int__(self):
        return self.x

    def __float__(self):
        return float(self.x)

    def __complex__(self):
        return complex(self.x, self.y)

    def __index__(self):
        return int(self.x)

    def __repr__(self):
        return f"V({self.x}, {self.y})"

    def __str__(self):
        return f"<{self.x}, {self.y}>"

    def __format__(self, spec):
        return f"{self.x:{spec}}|{self.y:{spec}}"

    def __bytes__(self):
        return bytes([self.x % 256, self.y % 256])

    def __dir__(self):
        return ["x", "y"]

    def __sizeof__(self):
        return 10

    def __enter__(self):
        return self.used()

    def __exit__(self, *exc):
        self.used()
        return exc[0] is KeyError


def vector():
    return Vector(3, 4)


@feature(vector)
def arithmetic_in_python(v):
    w = Vector(1, 2)
    results = [v + w, 5 + v, v - w, v * 2, 2 * v, v @ w, v / 2, v // 2, v % 2, divmod(v, 2), v**2, pow(v, 2, 5),
               v << 1, v >> 1, v & 1, v | 8, v ^ 1, -v, +v, ~v, abs(v), round(v)]
    v += w
    return results, v, v.uses


@feature(vector)
def arithmetic_that_is_not_there(v):
    v += Vector(1, 1)
    return v + 1


@feature(vector)
def comparisons_in_python(v):
    w = Vector(6, 8)
    return v == w, v != w, v < w, v <= w, v > w, w >= v, [v] == [Vector(3, 4)], sorted([w, v]), max(v, w), v.uses


@feature(vector)
def containers_in_python(v):
    v[0] += 1
    del v[1]
    return (
        len(v), v[0], v[-1], 4 in v, 99 in v, list(v), tuple(v), bool(v), not v, sum(v), [*v], dict([v]), v.uses,
        "yes" if v else "no",
    )


@feature(lambda: ({}, set(), [Vector(1, 1)]))
def keys_in_python(state):
    d, s, xs = state
    d[Vector(1, 2)] = len(d)
    d[Vector(1, 2)] = d.get(Vector(1, 2), 0) + 1
    s.add(Vector(1, 2))
    s.add(Vector(2, 1))
    s.discard(Vector(1, 2))
    found = Vector(1, 2) in d, Vector(1, 2) in s, d[Vector(1, 2)], xs.index(Vector(1, 1)), xs.count(Vector(1, 1))
    d[Vector(9, 9)] = 1
    del d[Vector(9, 9)]
    return found, d.pop(Vector(0, 0), None), list(d), hash(Vector(1, 2)) == hash(Vector(1, 2))


@feature(vector)
def conversions_in_python(v):
    return (
        v(2), int(v), float(v), complex(v), [10, 20, 30, 40][v], hex(v), str(v), repr(v), f"{v:03}", f"{v!r}", bytes(v),
        dir(v), "%s %r" % (v, v), range(v)[-1], v.uses,
    )


# ---- Control flow ------------------------------------------------------------------------------------------------------------


class Resource:
    def __init__(self):
        self.events = []
        self.swallow = True

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.events.append(kind and kind.__name__)
        return self.swallow and kind is ValueError


@feature(Resource)
def with_statement(r):
    with r as same, contextlib.suppress(KeyError):
        r.events.append(same is r)
    with r:
        raise ValueError("swallowed")
    try:
        with r:
            raise KeyError("not swallowed")
    except KeyError as e:
        r.events.append(repr(e))
    return list(r.events)


@contextlib.contextmanager
def logged(events):
    events.append("in")
    try:
        yield len(events)
    finally:
        events.append("out")


@feature(list)
def context_managers_from_generators(events):
    with logged(events) as n:
        events.append(n)
    with contextlib.suppress(ZeroDivisionError), logged(events):
        1 / 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(logged(events))
        stack.callback(events.append, "callback")
    return list(events)


@feature(list)
def try_finally(log):
    def f(kind):
        try:
            log.append("try")
            if kind == 0:
                return "returned"
            if kind == 1:
                raise ValueError(kind)
            return 1 / 0
        except ValueError as e:
            log.append(str(e))
            return "handled"
        else:
            log.append("else")
        finally:
            log.append("finally")

    results = [f(0), f(1)]
    try:
        f(2)
    except ZeroDivisionError as e:
        results.append(str(e))
    for i in range(2):
        try:
            continue
        finally:
            log.append(i)
    return results, list(log)


@feature(list)
def except_star(log):
    def f(*errors):
        try:
            raise ExceptionGroup("several", errors)
        except* ValueError as group:
            log.append([str(e) for e in group.exceptions])
        except* (KeyError, IndexError) as group:
            log.append([type(e).__name__ for e in group.exceptions])
            raise OSError("new")
        return "through"

    results = [f(ValueError(1), ValueError(2))]
    try:
        f(ValueError(1), KeyError(2), TypeError(3))
    except ExceptionGroup as group:
        results.append((str(group), [type(e).__name__ for e in group.exceptions]))
    return results, list(log)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Subject:
    __match_args__ = ("first", "second")

    def __init__(self, first, second):
        self.first, self.second = first, second


def classify(value):
    match value:
        case None | True | False:
            return "singleton"
        case int(n) if n < 0:
            return "negative", n
        case 0 | 1:
            return "small"
        case int():
            return "int"
        case str() as text if text.startswith("a"):
            return "a-word", text
        case "literal":
            return "literal"
        case Colour.RED:
            return "red"
        case Point(x=0, y=0):
            return "origin"
        case Point(x, y) if x == y:
            return "diagonal", x
        case Point(x=x):
            return "point", x
        case Subject(first, Subject(second)):
            return "nested", first, second
        case Subject(first=[a, *_]):
            return "list inside", a
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [x, y, *rest]:
            return "more", x, y, rest
        case {"kind": "circle", "r": r}:
            return "circle", r
        case {"kind": kind, **rest}:
            return kind, rest
        case {}:
            return "mapping"
        case _:
            return "other"


@feature(lambda: {
    "values": [None, -5, 1, 7, "abc", "literal", "x", Colour.RED, Colour.GREEN, Point(0, 0), Point(2, 2), Point(1, 2),
               Subject(1, Subject(2, 3)), Subject([4, 5], 0), Subject(0, 0), [], [1], [1, 2, 3], (1, 2),
               {"kind": "circle", "r": 2}, {"kind": "square", "a": 1}, {}, {"q": 1}, collections.deque([1, 2]), 1.5, {1}]
})
def match_statement(d):
    d["values"][-1].add(2)
    d["values"].append(len(d["values"]))
    point = d["values"][11]
    point.y += 1
    return [classify(value) for value in d["values"]]


@feature(lambda: [1, 2, 3])
def assertions(xs):
    xs.append(4)
    assert xs, "not reached"
    try:
        assert not xs, f"there are {len(xs)}"
    except AssertionError as e:
        return str(e)


@feature(list)
def recursion(log):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    log.append(fib(8))
    return list(log)


# ---- Generators, coroutines ------------------------------------------------------------------------------------------------


def running_total():
    total = 0
    for _ in range(20):
        received = yield total
        total += received or 1


def delegating(log):
    try:
        result = yield from inner(log)
        log.append(result)
        yield result
    finally:
        log.append("closed")


def inner(log):
    try:
        yield 1
    except ValueError as e:
        log.append(repr(e))
        yield "caught"
    return "inner's"


def started():
    log = []
    first, second = running_total(), delegating(log)
    next(first)
    next(second)
    return first, second, log


@feature(started)
def generators_that_outlive_a_transaction(state):
    first, second, log = state
    results = [first.send(5), next(first)]
    try:
        results.append(second.throw(ValueError("thrown")))
        results += list(second)
    except (StopIteration, ValueError) as e:
        results.append(repr(e))
    return results, list(log)


@feature(list)
def generators(log):
    g = running_total()
    results = [next(g), g.send(3), g.send(None)]
    g.close()
    d = delegating(log)
    results += list(d)
    results += [list(x * y for x in range(3) for y in range(2)), sum(x for x in [1, 2])]
    return results, list(log), next(g, "over")


def chunks(xs, n):
    for i in range(0, len(xs), n):
        yield xs[i:i + n]


@feature(lambda: list(range(7)))
def pipelines_of_generators(xs):
    xs.append(len(xs))
    return [sum(chunk) for chunk in chunks([x * 2 for x in xs if x % 2], 2)], list(map(len, chunks(xs, 3)))


def drive(coroutine):
    """Run a coroutine that waits for nothing but `Later`."""
    value = None
    while True:
        try:
            value = coroutine.send(value)
        except StopIteration as e:
            return e.value


class Later:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield self.value
        return got


class Asynchronous:
    def __init__(self, log):
        self.log = log
        self.n = 0

    async def __aenter__(self):
        self.log.append(await Later("enter"))
        return self

    async def __aexit__(self, *exc):
        self.log.append(await Later("exit"))
        return exc[0] is KeyError

    def __aiter__(self):
        return self

    async def __anext__(self):
        self.n += 1
        if self.n > 3:
            raise StopAsyncIteration
        return await Later(self.n)


async def ticks(log):
    try:
        for i in range(3):
            received = yield await Later(i)
            log.append(received)
    finally:
        log.append(await Later("closed"))


@feature(list)
def coroutines(log):
    async def add(a, b):
        return await Later(a) + await Later(b)

    async def main():
        log.append(await add(1, 2))
        return [await Later(i) for i in range(3)]

    return drive(main()), list(log)


@feature(list)
def async_for_and_with(log):
    async def main():
        async with Asynchronous(log) as a:
            async for i in a:
                log.append(i)
            else:
                log.append("else")
            raise KeyError("swallowed")
        return [i async for i in Asynchronous(log)], {i: i async for i in Asynchronous(log) if await Later(i)}

    return drive(main()), list(log)


@feature(list)
def async_generators(log):
    async def main():
        agen = ticks(log)
        first = await anext(agen)
        second = await agen.asend("sent")
        await agen.aclose()
        return first, second, [x async for x in ticks(log)], await anext(agen, "over")

    return drive(main()), list(log)


async def waits(log):
    for i in range(4):
        log.append(await Later(i))
    async with Asynchronous(log):
        log.append(await Later("inside"))
    return "over"


def suspended():
    log = []
    coroutine = waits(log)
    coroutine.send(None)
    return coroutine, log


@feature(suspended)
def coroutine_that_outlives_a_transaction(state):
    coroutine, log = state
    try:
        results = [coroutine.send(f"sent {i}") for i in range(2)]
    except (StopIteration, RuntimeError) as e:
        results = str(e)
    return results, list(log)


# ---- Exceptions --------------------------------------------------------------------------------------------------------------


class Problem(Exception):
    def __init__(self, code, **details):
        super().__init__(code)
        self.code = code
        self.details = details

    def __str__(self):
        return f"problem {self.code} {self.details}"


@feature(lambda: {"kept": None})
def exceptions(state):
    try:
        raise Problem(1, a=2)
    except Problem as e:
        state["kept"] = e
        e.details["more"] = 3
        e.code += 1
        return str(e), e.args, e.code


@feature(dict)
def exception_that_leaves(state):
    state["n"] = state.get("n", 0) + 1
    raise Problem(state["n"])


def chain(e):
    return [(type(x).__name__, str(x)) for x in (e, e.__cause__, e.__context__)], e.__suppress_context__


@feature(list)
def chained_exceptions(log):
    def fails():
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")

    for how in range(4):
        try:
            try:
                fails()
            except ValueError as e:
                if how == 0:
                    raise TypeError("third") from e
                if how == 1:
                    raise TypeError("third") from None
                if how == 2:
                    raise
                raise e
        except Exception as e:
            log.append(chain(e))
    return list(log)


@feature(lambda: ValueError("shared"))
def exception_shared_by_transactions(error):
    try:
        raise error
    except ValueError as e:
        e.__cause__ = KeyError(len(traceback.extract_tb(e.__traceback__)))
        return e is error, str(e.__cause__)


@feature(lambda: ValueError("noted"))
def notes(error):
    error.add_note("a note")
    error.add_note("another")
    error.__notes__.append("by hand")
    return list(error.__notes__), len(traceback.format_exception(error))


@feature(list)
def exception_groups(log):
    group = ExceptionGroup("outer", [ValueError(1), ExceptionGroup("inner", [KeyError(2), ValueError(3)])])
    group.add_note("noted")
    matching, rest = group.split(ValueError)
    log.append(len(matching.exceptions))
    return (
        str(matching), [type(e).__name__ for e in rest.exceptions], matching.__notes__,
        group.subgroup(lambda e: isinstance(e, KeyError)).message, group.derive([ValueError(4)]).exceptions[0].args,
    )


@feature(dict)
def tracebacks(state):
    def deepest():
        state["n"] = state.get("n", 0) + 1
        raise ValueError("here")

    def middle():
        try:
            deepest()
        except ValueError as e:
            raise KeyError("there") from e

    try:
        middle()
    except KeyError as e:
        frames = traceback.extract_tb(e.__traceback__)
        text = "".join(traceback.format_exception(e))
        names = []
        tb = e.__traceback__
        while tb is not None:
            names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno > 0))
            tb = tb.tb_next
        return (
            [frame.name for frame in frames], names, "raise ValueError" in text, "direct cause" in text,
            traceback.format_exc().count("Traceback"), e.with_traceback(None).__traceback__,
            "".join(traceback.format_exception_only(e)), sys.exc_info()[0].__name__, repr(sys.exception()),
        )


@feature(dict)
def warnings_of_the_language(state):
    state["n"] = 1
    errors = []
    for f in (lambda: 1 / 0, lambda: [][1], lambda: {}["k"], lambda: None.x, lambda: 1 + "a", lambda: int("x"), lambda: nothing,  # noqa
              lambda: len(5), lambda: next(iter([])), lambda: (lambda a: a)(), lambda: 2**3 % 0):
        try:
            f()
        except Exception as e:
            errors.append((type(e).__name__, str(e)))
    return errors


# ---- Classes -----------------------------------------------------------------------------------------------------------------


class Base:
    registry = {}

    def __init_subclass__(cls, tag=None, **kwds):
        super().__init_subclass__(**kwds)
        cls.tag = tag
        cls.made_of = [base.__name__ for base in cls.__mro__]

    def describe(self):
        return f"{type(self).__name__} {self.tag}"


class Named:
    def __set_name__(self, owner, name):
        self.name = name
        owner.names = getattr(owner, "names", ()) + (name,)

    def __get__(self, instance, owner):
        return self.name


class Meta(type):
    def __new__(mcs, name, bases, namespace, **kwds):
        cls = super().__new__(mcs, name, bases, namespace)
        cls.made_by = mcs.__name__
        return cls

    def __init__(cls, name, bases, namespace, **kwds):
        super().__init__(name, bases, namespace)
        cls.keywords = sorted(kwds)

    @classmethod
    def __prepare__(mcs, name, bases, **kwds):
        return {"prepared": True}

    def __call__(cls, *args, **kwds):
        instance = super().__call__(*args, **kwds)
        instance.called = True
        return instance

    def __len__(cls):
        return 7

    def __iter__(cls):
        return iter("abc")

    def __getattr__(cls, name):
        return f"no {name}"

    @property
    def upper(cls):
        return cls.__name__.upper()


@feature(list)
def class_in_a_function(made):
    n = len(made)

    class Local:
        number = n
        doubled = [x * n for x in range(3)]

        def __init__(self, x):
            self.x = x

        def get(self):
            return self.x, self.number, __class__.__name__

        @classmethod
        def create(cls):
            return cls(5)

        @staticmethod
        def plain():
            return n

        @property
        def both(self):
            return self.x + self.number

        class Inner:
            pass

    made.append(Local.create().get())
    o = Local(1)
    o.y = 2
    return Local.number, Local.doubled, o.get(), Local.plain(), o.both, Local.__qualname__, Local.Inner.__name__, made


@feature(list)
def class_attributes_of_a_new_class(made):
    class Local:
        x = 1

    Local.x += 1
    Local.y = lambda self: self.x
    setattr(Local, "z", 3)
    before = Local().y(), Local.z, sorted(name for name in vars(Local) if not name.startswith("_"))
    del Local.z
    Local.__name__ = "Renamed"
    made.append(Local.__name__)
    return before, hasattr(Local, "z"), list(made)


@feature(list)
def class_hooks(made):
    class Sub(Base, tag=len(made)):
        first = Named()
        second = Named()

    made.append(Sub.tag)
    return Sub.tag, Sub.names, Sub.first, Sub.made_of, Sub().describe(), issubclass(Sub, Base)


@feature(list)
def type_with_three_arguments(made):
    def method(self):
        return self.x

    Local = type("Local", (Base,), {"x": 1, "method": method}, tag="t")
    made.append(Local().method())
    New = types.new_class("New", (Local,), {"tag": 2}, lambda ns: ns.update(y=2))
    return Local.__name__, Local.tag, New.tag, New.y, New().method(), list(made)


@feature(list)
def metaclasses(made):
    class Local(metaclass=Meta, b=1, a=2):
        seen = prepared  # noqa: F821

    class Sub(Local):
        pass

    Sub.extra = len(made)
    made.append(Sub.extra)
    return (
        Local.made_by, Local.keywords, Local.prepared, Local.seen, Local().called, len(Local), list(Local), Sub.nothing,
        Sub.upper, type(Sub).__name__, Sub.extra, isinstance(Sub(), Local),
    )


@feature(list)
def inheritance(made):
    class A:
        def f(self):
            return ["A"]

    class B(A):
        def f(self):
            return ["B"] + super().f()

    class C(A):
        def f(self):
            return ["C"] + super(C, self).f()

    class D(B, C):
        def f(self):
            made.append("D")
            return ["D"] + super().f()

    return D().f(), [c.__name__ for c in D.__mro__], D.__bases__ == (B, C), len(A.__subclasses__()), len(made)


def traced(function):
    @functools.wraps(function)
    def wrapper(*args, **kwds):
        wrapper.calls += 1
        return function(*args, **kwds), wrapper.calls

    wrapper.calls = 0
    return wrapper


def tagged(cls):
    cls.tagged = True
    cls.old = cls.__name__
    return cls


@feature(list)
def decorators(made):
    @traced
    def f(x):
        "doc of f"
        return x * 2

    @tagged
    class Local:
        @traced
        def method(self):
            return self.tagged

        @functools.lru_cache
        def cached(self):
            return 1

    made.append(f(1))
    return f(2), f.__name__, f.__doc__, f.__wrapped__(3), Local.tagged, Local.old, Local().method(), Local.method.calls


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self):
        ...

    @classmethod
    def __subclasshook__(cls, other):
        return True if cls is Shape and hasattr(other, "shapely") else NotImplemented


class Square(Shape):
    def __init__(self, a):
        self.a = a

    def area(self):
        return self.a**2


@feature(lambda: Square(2))
def abstract_classes(square):
    square.a += 1
    try:
        Shape()
    except TypeError as e:
        message = str(e)
    return (
        square.area(), message, isinstance(square, Shape), isinstance(1, Shape), issubclass(Square, Shape),
        isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping), issubclass(int, collections.abc.Hashable),
    )


@feature(list)
def abstract_classes_made_at_run_time(made):
    class Local(abc.ABC):
        @abc.abstractmethod
        def f(self):
            ...

        @property
        @abc.abstractmethod
        def p(self):
            ...

    class Concrete(Local):
        p = 1

        def f(self):
            return 1

    class Other:
        shapely = True

    @Local.register
    class Virtual:
        pass

    made.append(Concrete().f())
    return (
        sorted(Local.__abstractmethods__), isinstance(Concrete(), Local), isinstance(Virtual(), Local),
        issubclass(Other, Shape), isinstance(Other(), Local), isinstance(Other(), Shape),
    )


class Duck:
    def __init__(self):
        self.asked = 0


class Quacks(type):
    def __instancecheck__(cls, instance):
        if isinstance(instance, Duck):
            instance.asked += 1
        return hasattr(instance, "asked")

    def __subclasscheck__(cls, other):
        return other is Duck


class Quacking(metaclass=Quacks):
    pass


@feature(Duck)
def instance_checks_in_python(duck):
    return isinstance(duck, Quacking), isinstance(1, Quacking), issubclass(Duck, Quacking), isinstance(duck, (int, Quacking)), duck.asked


@dataclasses.dataclass(order=True)
class Card:
    suit: str
    rank: int = 1
    tags: list = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self):
        self.tags.append("made")


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: int
    y: int = 2


@dataclasses.dataclass(kw_only=True)
class Keywords:
    a: int
    b: dict = dataclasses.field(default_factory=dict)


@feature(lambda: [Card("a", 2), Fixed(1), Keywords(a=1)])
def dataclasses_used(state):
    card, fixed, keywords = state
    card.rank += 1
    card.tags.append("used")
    keywords.b["n"] = keywords.a
    try:
        fixed.x = 5
    except dataclasses.FrozenInstanceError as e:
        message = str(e)
    return (
        repr(state), card < Card("b"), card == Card("a", card.rank), hash(fixed) == hash(Fixed(1)), message, {fixed: 1}[Fixed(1)],
        dataclasses.replace(card, suit="z"), dataclasses.asdict(keywords), dataclasses.astuple(fixed),
        [f.name for f in dataclasses.fields(card)],
    )


@feature(list)
def dataclasses_made_at_run_time(made):
    @dataclasses.dataclass(order=True)
    class Local:
        x: int
        y: list = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Frozen:
        a: int = 1

    Made = dataclasses.make_dataclass("Made", [("n", int, 5)])
    made.append(Local(1))
    return Local(1) < Local(2), repr(Local(3)), hash(Frozen(a=2)) == hash(Frozen(a=2)), Made().n, Frozen.__slots__, len(made)


class Planet(enum.Enum):
    EARTH = (1, 2)
    MARS = (3, 4)

    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius

    @property
    def ratio(self):
        return self.mass / self.radius


class Level(enum.IntEnum):
    LOW = enum.auto()
    HIGH = enum.auto()


class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4


@feature(lambda: {Colour.RED: 0})
def enums(d):
    d[Colour.RED] += 1
    d[Colour["GREEN"]] = d.get(Colour(2), 0) + 1
    try:
        Colour(99)
    except ValueError as e:
        message = str(e)
    return (
        list(Colour), Colour.RED.name, Planet.EARTH.ratio, Level.LOW + 1, Level.HIGH > Level.LOW, Flags.A | Flags.C,
        (Flags.A | Flags.B) & ~Flags.A, Flags.A in (Flags.A | Flags.B), repr(Colour.RED), str(Level.LOW), message,
        Colour.RED is Colour(1), len(Colour), Colour.__members__["RED"], list(Flags.A | Flags.B), Flags(5), d,
    )


@feature(list)
def enums_made_at_run_time(made):
    class Local(enum.Enum):
        X = 1
        Y = "y"

        def double(self):
            return self.value * 2

    Functional = enum.Enum("Functional", "ONE TWO")

    class Bits(enum.IntFlag):
        A = 1
        B = 2

    made.append(Local.X.double())
    return Local("y").name, [m.name for m in Functional], Functional.TWO.value, int(Bits.A | Bits.B), len(made)


@feature(list)
def named_tuples(made):
    Pair = collections.namedtuple("Pair", "a b", defaults=[2])
    p = Pair(1)
    made.append(p)
    return p, p.b, p._replace(a=5), p._asdict(), Pair._fields, [*p], p == (1, 2), len(made)


@feature(list)
def generic_classes(made):
    class Box[T]:
        def __init__(self, item: T):
            self.item = item

        def get[U](self, other: U) -> T | U:
            return self.item or other

    type Alias[V] = list[V] | None

    def first[T: int](xs: list[T]) -> T:
        return xs[0]

    made.append(Box[int](1).get(2))
    return made[-1], Box.__type_params__[0].__name__, Alias.__name__, first([3]), Box[str].__origin__ is Box, list[int]


@feature(list)
def annotations(made):
    def f(x: int, y: "str" = "") -> list[int]:
        z: int = x
        return [z]

    class Local:
        a: int
        b: str = "b"

    made.append(f(1))
    return f.__annotations__, Local.__annotations__, Local.b


class Immutable(tuple):
    def __new__(cls, *items):
        self = super().__new__(cls, items)
        self.extra = len(items)
        return self


class Text(str):
    uses = 0

    def upper(self):
        self.uses += 1
        return super().upper()


class Numbers(list):
    def append(self, x):
        super().append(x * 2)

    def total(self):
        self.last = sum(self)
        return self.last


class Defaulting(dict):
    def __missing__(self, key):
        self[key] = value = len(self)
        return value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.latest = key


@feature(lambda: (Immutable(1, 2), Text("abc"), Numbers([1]), Defaulting(a=1), types.SimpleNamespace()))
def subclasses_of_builtin_types(state):
    t, s, xs, d, _ = state
    t.extra += 1
    xs.append(3)
    return t, t.extra, s.upper(), s.uses, xs, xs.total(), vars(xs), d["x"], d["x"], d.latest, dict(d), isinstance(d, dict), s + "d"


# ---- exec, eval, compile -------------------------------------------------------------------------------------------------


@feature(lambda: {"x": 1})
def exec_of_text(namespace):
    exec("x += 1\ny = x * 2\ndef f(n):\n    return n + x\nclass C:\n    z = y", namespace)
    f, C = namespace["f"], namespace["C"]
    namespace["x"] = 100
    result = f(1), C.z, C().z, namespace["y"], sorted(key for key in namespace if key != "__builtins__")
    namespace["x"] = namespace["y"]
    for name in ("f", "C", "__builtins__"):
        del namespace[name]
    return result


@feature(lambda: {"x": 1})
def exec_with_locals(d):
    namespace, local = {"g": 2}, {}
    exec("a = g + 1\nb = [a * i for i in range(2)]\ndel a\nglobal h\nh = 5", namespace, local)
    d["x"] += 1
    return local, namespace["h"]


@feature(lambda: {"x": 1})
def exec_in_a_function(d):
    y = 5
    d["x"] += 1
    before = {}
    exec("before['seen'] = y + d['x']\nz = 1")
    return before, "z" in locals(), y


@feature(lambda: {"x": 1})
def eval_of_text(d):
    y = 10
    d["x"] += 1
    return (
        eval("d['x'] + y"), eval("x + 1", {"x": 5}), eval("a * b", {"a": 2}, {"b": 3}), eval("[i * y for i in range(3)]"),
        eval("(lambda q: q + y)(1)"), eval(" 1 + 1"),
    )


@feature(lambda: {"x": 1})
def compiled_code(d):
    expression = compile("x * 3", "<feature>", "eval")
    module = compile("x = x + 1\nfor i in range(2):\n    x += i", "<feature>", "exec")
    exec(module, d)
    value = eval(expression, d)
    d.pop("__builtins__", None)
    d.pop("i")
    try:
        compile("1 +", "<feature>", "exec")
    except SyntaxError as e:
        message = e.msg, e.lineno
    return value, message


@feature(lambda: {"x": 1})
def exec_that_fails(d):
    d["x"] += 1
    exec("d['x'] += 1\nraise ValueError(d['x'])", {"d": d})


@feature(list)
def exec_binds_names_of_its_own(seen):
    a = 1
    exec("b = a + 1\ndef f(): return a")
    try:
        exec("c = b")
    except NameError as e:
        seen.append(str(e))
    names = sorted(locals()), sorted(vars())
    exec("a = 7; del seen")
    inner = (lambda: [eval("a"), sorted(locals())])()
    return names, a, inner, eval("[a, sorted(locals())]"), sorted(locals()), len(seen)


@feature(lambda: {"made": 0})
def exec_of_functions_that_rebind_globals(d):
    namespace = {"n": d["made"]}
    exec("def count():\n    global n\n    n += 1\n    return n\ndef clear():\n    global n\n    del n", namespace)
    d["made"] = namespace["count"]() + namespace["count"]()
    namespace["clear"]()
    return "n" in namespace, d["made"]


@feature(list)
def exec_with_builtins_of_its_own(seen):
    bare, own = {"__builtins__": {}}, {"__builtins__": {"len": lambda xs: "long", "range": seen.append}}
    for text in ("len([])", "range(3)", "print()"):
        for namespace in (bare, own):
            try:
                seen.append(eval(text, namespace))
            except NameError as e:
                seen.append(str(e))
    return seen[-6:]


@feature(lambda: {"template": template.Template("{% for x in xs %}<{{ x }}>{% end %}{{ len(xs) }}", autoescape=None), "xs": []})
def templates(d):
    d["xs"].append("a")
    return d["template"].generate(xs=d["xs"]), len(d["xs"])


@feature(lambda: Thing(x=1))
def exec_in_attributes(o):
    exec("x += 1", vars(o))
    del o.__builtins__
    o.x += 1
    return eval("x", {}, vars(o)), o.x


@feature(list)
def exec_of_unusual_things(seen):
    def free():
        return seen

    given = [
        ("1 +",), (b"1",), ("1\0",), ("\t 1",), (" 1",), (free.__code__,), (None,), (1, 2), ("x", [], {}), ("x", {}, types.MappingProxyType({"x": 1})),
        ("x", {"x": 2}, collections.ChainMap({"x": 3})), ("x", collections.UserDict(x=1)), ("x", None, {"x": 4}), ("y", {"x": 5}), ("yield",),
    ]
    for run in (eval, exec):
        for arguments in given:
            try:
                seen.append((run.__name__, run(*arguments)))
            except Exception as e:
                seen.append((run.__name__, type(e).__name__, str(e)))
    return eval("x", globals={"x": 6}), eval("x", {}, locals={"x": 7}), eval("1", None, None), len(seen)


# ---- Finalizers ----------------------------------------------------------------------------------------------------------------


class Dying:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)


@feature(list)
def finalizers_inside(died):
    # When an object dies the language leaves open.
    a = Dying(died, "a")
    del a
    for i in range(2):
        Dying(died, i)


@feature(lambda: (lambda log: {"log": log, "held": Dying(log, "held")})([]))
def finalizers_after_a_commit(d):
    d["held"] = None
    return "dropped"


# ---- The tests ---------------------------------------------------------------------------------------------------------------


class Shown:
    """What can be seen of an object and all that it refers to, as values that can be compared."""

    def __init__(self):
        self.seen = {}

    def of(self, obj):
        if isinstance(obj, (int, float, complex, str, bytes, type(None), range, type(...))) and not hasattr(obj, "__dict__"):
            return type(obj).__name__, repr(obj)
        if id(obj) in self.seen:
            return "seen", self.seen[id(obj)][0]
        self.seen[id(obj)] = len(self.seen), obj
        if isinstance(obj, (type, types.ModuleType, types.BuiltinFunctionType)):
            return type(obj).__name__, getattr(obj, "__qualname__", obj.__name__)
        return type(obj).__name__, self.inside(obj)

    def inside(self, obj):
        parts = []
        if isinstance(obj, (list, tuple, collections.deque)):
            parts += [self.of(x) for x in (list.__iter__(obj) if isinstance(obj, list) else obj)]
        elif isinstance(obj, dict):
            parts += [(self.of(k), self.of(v)) for k, v in dict.items(obj)]
        elif isinstance(obj, (set, frozenset)):
            parts += sorted((self.of(x) for x in obj), key=repr)
        elif isinstance(obj, bytearray):
            parts.append(bytes(obj))
        elif isinstance(obj, BaseException):
            parts += [self.of(x) for x in (obj.args, obj.__cause__, obj.__context__, obj.__suppress_context__)]
            parts.append(len(traceback.extract_tb(obj.__traceback__)))
        elif isinstance(obj, types.FunctionType):
            parts += [obj.__name__] + [self.of(c.cell_contents) for c in obj.__closure__ or ()]
        elif isinstance(obj, enum.Enum):
            return [obj.name]
        for cls in type(obj).__mro__:
            for name in cls.__dict__.get("__slots__", ()):
                if name != "__weakref__":
                    parts.append((name, self.of(getattr(obj, name)) if hasattr(obj, name) else "empty"))
        try:
            attributes = object.__getattribute__(obj, "__dict__")
        except AttributeError:
            attributes = {}
        parts += [(name, self.of(value)) for name, value in attributes.items()]
        if not parts and type(obj).__module__ == "builtins" and hasattr(obj, "__reduce__") and hasattr(obj, "__next__"):
            parts += [self.of(x) for x in obj]  # what is left in an iterator
        return parts


def shown(*objects):
    show = Shown()
    return [show.of(obj) for obj in objects]


def outcome(function, *args):
    """("returned", value) or ("raised", exception), as values that can be compared."""
    try:
        return "returned", shown(function(*args))
    except Exception as e:
        return "raised", type(e).__name__, str(e), shown(*e.args)


def plainly(name, times=1):
    """The outcomes of so many calls without transactions, and the state after them."""
    make, function = FEATURES[name]
    state = make()
    outcomes = [outcome(function, state) for _ in range(times)]
    return outcomes, shown(state)


def in_transactions(name, times=1):
    make, function = FEATURES[name]
    state = make()
    outcomes = [outcome(core.Transaction(function, (state,)).run) for _ in range(times)]
    return outcomes, shown(state)


def warm_up(name):
    for _ in range(2):
        in_transactions(name, 2)


def reasons():
    return Counter(core.stats()["exclusive_reasons"])


@pytest.fixture(autouse=True)
def collect():
    gc.collect()
    yield
    core.inject_aborts(0, 0)


@pytest.mark.parametrize("name", FEATURES)
def test_as_without_transactions(name):
    warm_up(name)
    assert in_transactions(name, 2) == plainly(name, 2)


@pytest.mark.parametrize("name", FEATURES)
def test_does_not_run_alone(name):
    warm_up(name)
    before = reasons()
    in_transactions(name, 2)
    new = reasons() - before
    assert bool(new) == (name in ALONE), new


@pytest.mark.parametrize("name", FEATURES)
def test_as_without_transactions_after_aborts(name):
    warm_up(name)
    expected = plainly(name, 2)
    aborts = core.stats()["aborts"]
    for seed in range(12):
        core.inject_aborts(0.3 / (1 + seed), seed)
        try:
            found = in_transactions(name, 2)
        finally:
            core.inject_aborts(0, 0)
        assert found == expected
    assert core.stats()["aborts"] > aborts or name in ALONE


@pytest.mark.parametrize("name", FEATURES)
def test_two_at_a_time(name):
    warm_up(name)
    expected, expected_state = plainly(name, 4)
    for round in range(3):
        make, function = FEATURES[name]
        state = make()
        outcomes, failures = [], []
        start = threading.Barrier(2)

        @trusted
        def work():
            try:
                start.wait(TIMEOUT)
                for _ in range(2):
                    transaction = core.Transaction(outcome, (function, state))  # later ones change what it returns
                    found = transaction.run()
                    outcomes.append((transaction.commit_number, found))
            except BaseException as e:
                failures.append(e)

        core.inject_aborts(0.02 * round, round)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        core.inject_aborts(0, 0)
        assert not failures
        outcomes.sort(key=operator.itemgetter(0))
        assert [found for _, found in outcomes] == expected
        assert shown(state) == expected_state


def test_builtins_that_an_attempt_has_put_into_globals_go_with_it():
    """The other thread's ``exec`` must not rely on them: an abort takes them out again.  Once in some dozen rounds."""
    for _ in range(200):
        test_two_at_a_time("exec_of_text")
