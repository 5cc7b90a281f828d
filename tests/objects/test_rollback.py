"""An aborted attempt leaves no trace: whatever it has changed is put back, with its order and its identities."""

import _thread
import array
import ast
import asyncio
import codecs
import collections
import contextlib
import contextvars
import copy
import csv
import functools
import gc
import heapq
import itertools
import operator
import random
import resource
import subprocess
import sys
import types
import weakref
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, testing, transaction

needs_engine()

from rolled_back import abort, begins, check, no_more_aborts, rolled_back, run, unraisable, unraisable_exceptions  # noqa: F401, a fixture
from tornado.stm._engine import Abort
from tornado.stm.core import trusted  # noqa: E402

activation.activate()

# ---- Attributes ------------------------------------------------------------------------------------------------------


class Thing:
    default = 100

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)

    def __repr__(self):
        return "a thing"


class Slotted:
    __slots__ = ("a", "b")


class Tracked:
    def __init__(self):
        object.__setattr__(self, "changes", [])

    def __setattr__(self, name, value):
        self.changes.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.changes.append(name)
        object.__delattr__(self, name)


class Measured:
    def __init__(self):
        self._size = 3.5
        self.old = []

    @property
    def size(self):
        return self._size

    @size.setter
    def size(self, value):
        self.old.append(self._size)
        self._size = value

    @size.deleter
    def size(self):
        del self._size


def set_attribute(o):
    o.a = [9]


def new_attribute(o):
    o.z = 9


def delete_first_attribute(o):
    del o.a


def delete_last_attribute(o):
    del o.c


def shadow_the_class(o):
    o.default = 7


def shadow_and_show(o):
    o.default = 7
    del o.default


def delete_and_set_again(o):
    del o.b
    o.b = 9


def many_new_attributes(o):
    for i in range(60):
        setattr(o, f"attribute{i}", i)


def count_up(o):
    for _ in range(10):
        o.a += 1
        o.b -= 1


def by_setattr(o):
    setattr(o, "a", 9)
    setattr(o, "new", 9)
    delattr(o, "b")


def by_object_setattr(o):
    object.__setattr__(o, "a", 9)
    object.__delattr__(o, "c")


def by_dict_item(o):
    o.__dict__["a"] = 9
    o.__dict__["new"] = 9


def by_dict_delete(o):
    del o.__dict__["a"]


def by_vars(o):
    vars(o)["a"] = 9


def by_dict_update(o):
    o.__dict__.update(a=9, new=8)


def by_dict_methods(o):
    d = o.__dict__
    d.pop("a")
    d.setdefault("y", 2)
    d.setdefault("b", 2)


def by_dict_clear(o):
    o.__dict__.clear()


def by_dict_popitem(o):
    o.z = 9
    vars(o).popitem()
    vars(o).popitem()
    o.y = 9


def by_dict_merge(o):
    d = vars(o)
    d |= {"new": 1, "b": 2}
    del d["new"]


def replace_dict(o):
    o.__dict__ = {"only": 1}


ATTRIBUTE_CHANGES = [
    set_attribute, new_attribute, delete_first_attribute, delete_last_attribute, shadow_the_class, shadow_and_show,
    delete_and_set_again, many_new_attributes, count_up, by_setattr, by_object_setattr, by_dict_item, by_dict_delete, by_vars,
    by_dict_update, by_dict_methods, by_dict_clear, by_dict_popitem, by_dict_merge,
]


def fresh():
    return Thing(a=1.5, b=2.5, c=3.5)


def with_dict():
    o = fresh()
    assert o.__dict__
    return o


def with_many():
    """More attributes than an instance keeps inline."""
    return Thing(a=1.5, b=2.5, c=3.5, **{f"a{i}": i for i in range(40)})


def grown():
    """The same, seen as a dict before."""
    o = fresh()
    run(lambda: vars(o)["a"])
    for i in range(40):
        setattr(o, f"a{i}", i)
    return o


class Row(list):
    default = 100


def row():
    """Without inline attributes."""
    o = Row()
    o.a, o.b, o.c = 1.5, 2.5, 3.5
    return o


def with_other_keys():
    o = fresh()
    vars(o)[1000] = vars(o)[2] = o
    return o


@pytest.mark.parametrize("make", [fresh, with_dict, with_many, grown, row, with_other_keys])
@pytest.mark.parametrize("mutate", ATTRIBUTE_CHANGES, ids=lambda f: f.__name__)
def test_attributes(mutate, make):
    o = make()
    names = list(vars(o)) if make is not fresh else ["a", "b", "c"]
    check(mutate, o)
    assert o.default == 100
    assert list(vars(o)) == names


class Bare(Exception):
    pass


class Flat(Slotted):
    """What is in slots needs no dict, which it could have."""


def flat():
    o = Flat()
    o.a = 1
    return o


def dicts_of(o):
    return [each for each in gc.get_referents(o) if type(each) is dict]


def look_for_what_is_missing(o):
    assert not hasattr(o, "missing") and getattr(o, "missing", None) is None


def set_what_is_no_attribute_in_a_dict(o):
    if isinstance(o, Exception):
        o.args = (2,)
    if isinstance(o, Slotted):
        o.a = o.b = 2
        del o.b


def reduce_and_copy(o):
    if isinstance(o, (Exception, functools.partial)):
        assert copy.copy(o).__reduce__() == o.__reduce__() == o.__reduce_ex__(4)
    if isinstance(o, functools.partial):
        assert functools.partial(o).func is max     # not o, which has no attributes of its own


class Number(int):
    pass


MAKE_BARE = {
    "exception": lambda: Exception(1), "of a class": lambda: Bare(1), "with fields": lambda: OSError(1, "text", "file"),
    "partial": lambda: functools.partial(max, 1), "number": lambda: Number(5), "function": lambda: lambda: None,
}  # fmt: skip


@pytest.mark.parametrize("make", [*MAKE_BARE.values(), Row, flat, Thing], ids=[*MAKE_BARE, "row", "flat", "thing"])
@pytest.mark.parametrize("look", [look_for_what_is_missing, set_what_is_no_attribute_in_a_dict, reduce_and_copy], ids=lambda f: f.__name__)
def test_a_dict_of_attributes_is_not_made_to_be_locked(make, look):
    o = make()
    before = dicts_of(o)
    run(look, o)
    assert dicts_of(o) == before


def test_a_view_of_attributes_is_not_made_where_a_default_is_shadowed():
    class Defaulting:
        default = 100

    o = Defaulting()
    Defaulting().default = 5  # from here on, instances have room for it
    run(shadow_the_class, o)
    assert o.default == 7 and not dicts_of(o)


@pytest.mark.parametrize("make", MAKE_BARE.values(), ids=MAKE_BARE)
@pytest.mark.parametrize("change", [lambda o: setattr(o, "new", 1), vars, lambda o: vars(o).update(new=1), dir], ids=["set", "ask", "put", "list"])
def test_a_dict_that_was_made_is_taken_away(make, change):
    o, attempts = make(), []
    before = len(dicts_of(o))

    def attempt():
        no_more_aborts()
        if begins(attempts):
            change(o)
            abort(attempts)

    run(attempt)
    assert "alone" not in attempts
    assert len(dicts_of(o)) == before


def set_unless(world, name, other):
    o = world["o"]
    if not hasattr(o, other):
        setattr(o, name, 1)


def look_twice(world):
    return getattr(world["o"], "x", None), getattr(world["o"], "y", None), getattr(world["o"], "x", None)


def names(world):
    return sorted(vars(world["o"]))


def reduced(world):
    return str(world["o"].__reduce__()[2:])


def remove(world, name):
    if hasattr(world["o"], name):
        delattr(world["o"], name)


def set_field(world):
    if isinstance(world["o"], Exception):
        world["o"].args += (1,)
        return world["o"].args


@pytest.mark.parametrize("make", [Exception, functools.partial(functools.partial, max)], ids=["exception", "partial"])
@pytest.mark.parametrize("seed", range(6))
def test_who_finds_no_dict_and_who_makes_it_are_one_after_the_other(make, seed):
    kinds = [(set_unless, "x", "y"), (set_unless, "y", "x"), (look_twice,), (names,), (reduced,), (remove, "x"), (remove, "y"), (set_field,)]
    calls = random.Random(seed).choices(kinds, k=20)
    testing.check_serializable(lambda: {"o": make()}, calls, runs=10)


@pytest.mark.parametrize("key", [2, 2.0, 10**3])
def test_what_is_no_name_keeps_its_place(key):
    def delete(o):
        del vars(o)[key]

    o = with_other_keys()
    check(delete, o)
    assert [repr(each) for each in vars(o)] == ["'a'", "'b'", "'c'", "1000", "2"]


def test_a_dict_that_is_replaced():
    o = with_dict()
    rolled_back(replace_dict, o)
    assert o.default == 100


def test_a_class_default_reappears():
    o = Thing()
    check(shadow_the_class, o)
    assert "default" not in vars(o) and o.default == 100


def test_slots():
    o = Slotted()
    o.a = [1]

    def mutate(o):
        o.b = 2
        del o.a
        o.a = 3

    check(mutate, o)


def test_property():
    def mutate(o):
        o.size = 9
        o.size = 10

    rolled_back(mutate, Measured())
    check(mutate, Measured())


def test_setattr_method():
    def mutate(o):
        o.x = 1
        o.y = 2

    rolled_back(mutate, Tracked())
    check(mutate, Tracked())


def test_constructor_of_a_shared_registry():
    class Registered:
        everything = []

        def __init__(self, name):
            self.name = name
            self.everything.append(self)

    check(lambda everything: [Registered(i) for i in range(3)], Registered.everything)


def popping(items, n):
    for _ in range(n):
        yield ("new", items.pop())


def popping_and_appending(items, n):
    yield "first"
    for i in range(n):
        items.pop()
        items.pop()
        yield i
        items.append("appended")
        items[len(items) // 2] = "put"
        yield items.pop()


def popping_in_the_middle(items, n):
    for i in range(n):
        yield items.pop()
        del items[3]
        items.insert(2, "inserted")


def add_in_place(items, more):
    items += more


def mapped_to_pop(items, n):
    return map(lambda _: items.pop(), range(n))


@pytest.mark.parametrize("size", [6, 64, 66, 100])
@pytest.mark.parametrize("changing", [popping, popping_and_appending, popping_in_the_middle, mapped_to_pop])
@pytest.mark.parametrize("extend", [
    lambda l, more: l.extend(more), add_in_place, lambda l, more: [*map(l.extend, [more])]], ids=["call", "+=", "mapped"])  # fmt: skip
@pytest.mark.parametrize("n", [1, 3, 5])
def test_a_list_that_is_extended_by_what_pops_from_it(size, changing, extend, n):
    def change(items):
        items.pop()
        extend(items, changing(items, n))
        items.append("last")
        items.pop()

    items = list(range(size))
    check(lambda items: extend(items, changing(items, n)), items)
    check(change, items)
    assert items == list(range(size))


def test_class_attributes():
    class Settings:
        level = 1.5

    def mutate(settings):
        settings.level = 9
        settings.new = 1

    if rolled_back(mutate, Settings)[0]:
        assert Settings.level == 1.5 and not hasattr(Settings, "new")


# ---- Variables -------------------------------------------------------------------------------------------------------

rebound = 1.5
deleted = 2.5


def test_attributes_of_functions():
    def set_all(f):
        f.a = 2
        f.b = 3
        f.__name__ = "other"
        f.__doc__ = "text"
        f.__dict__.update(c=4)

    for make in (lambda: None, lambda: None):
        f = make
        f.a = 1
        name = f.__name__
        check(set_all, f)
        assert (f.__dict__, f.__name__, f.__doc__) == ({"a": 1}, name, None)

    def bare():
        pass

    check(set_all, bare)
    assert (bare.__dict__, bare.__name__, bare.__doc__) == ({}, "bare", None)


def described(a: int):
    pass


def with_attributes(obj):
    obj.p, obj.q, obj.r = 1, 2, 3
    return obj


@pytest.mark.parametrize("make", [
    lambda: lambda: None, lambda: functools.partial(len), lambda: functools.lru_cache(len), lambda: staticmethod(len),
    lambda: classmethod(len), lambda: copied(described)], ids=["function", "partial", "cache", "static", "class", "copy"])  # fmt: skip
@pytest.mark.parametrize("name", ["p", "q", "r"])
def test_deleted_attributes_of_functions_keep_their_order(make, name):
    obj = with_attributes(make())
    before = list(obj.__dict__.items())

    def change(obj):
        delattr(obj, name)
        obj.s = 4
        setattr(obj, name, 5)

    for mutate in lambda obj: delattr(obj, name), change:
        check(mutate, obj)
        assert list(obj.__dict__.items()) == before


def copied(f, annotations=None):
    made = types.FunctionType(f.__code__, f.__globals__)
    made.__annotate__ = f.__annotate__
    if annotations is not None:
        made.__annotations__.update(annotations)
    return made


@pytest.mark.parametrize("change", [
    lambda f: setattr(f, "__annotations__", {}),
    lambda f: setattr(f, "__annotate__", lambda form: {"c": 1}),
    lambda f: setattr(f, "__annotate__", None),
    lambda f: delattr(f, "__annotations__"),
    lambda f: f.__annotations__,
    lambda f: (f.__annotations__.update(d=1), setattr(f, "__annotate__", lambda form: {}), f.__annotations__, delattr(f, "__annotations__")),
])
@pytest.mark.parametrize("annotations", [None, {}, {"b": str}], ids=["not made", "made", "changed"])
def test_annotations_of_functions(change, annotations):
    f = copied(described, annotations)
    check(change, f)
    assert f.__annotate__ is described.__annotate__
    assert f.__annotations__ == {"a": int, **(annotations or {})}


def test_closure():
    n, never_set = 1.5, None
    del never_set

    def change():
        nonlocal n, never_set
        n += 1
        never_set = 3

    def look():
        return n

    def is_set():
        try:
            never_set
        except NameError:
            return False
        return True

    check(change, rest=None)
    assert n == 1.5 and look() == 1.5 and not is_set()
    check(lambda look: change(), look)
    assert look() == 1.5 and not is_set()


def test_closure_counter():
    def counter():
        n = 0

        def count():
            nonlocal n
            n += 1
            return n

        return count

    count = counter()
    count()
    assert check(lambda: [count() for _ in range(5)], rest=lambda: count()) == 2
    assert count() == 3


def rebind(value):
    global rebound
    rebound = value
    rebound += 1


def delete():
    global deleted
    del deleted


def test_rebound_globals():
    check(lambda: rebind(8), rest=None)
    assert rebound == 1.5


def test_deleted_global():
    names = list(globals())
    check(delete)
    assert deleted == 2.5
    assert list(globals()) == names


# ---- Containers ------------------------------------------------------------------------------------------------------


def floats(n):
    return [i + 0.5 for i in range(n)]


class Labelled(list):
    pass


class Shelf(dict):
    pass


class ManyKeys(dict):
    def __missing__(self, key):
        self[key] = value = key * 2
        return value


class Crowd(set):
    pass


class Line(deque):
    pass


class Defaults(defaultdict):
    def __init__(self, *contents, **named):
        super().__init__(*contents, **named)


def quietly(f):
    """Operations on containers in any state: those that find nothing do nothing."""

    @functools.wraps(f)
    def operation(o):
        try:
            f(o)
        except (IndexError, KeyError, ValueError):
            pass

    return operation


def table(*functions):
    return {f.__name__: quietly(f) for f in functions}


def list_operations():
    def append(o):
        o.append(9.25)

    def append_many(o):
        for i in range(100):
            o.append(i)

    def extend(o):
        o.extend([1, 2, 3])

    def extend_by_itself(o):
        o.extend(o)

    def extend_by_generator(o):
        o.extend(i * i for i in range(5))

    def add_in_place(o):
        o += [1, 2]

    def add_tuple_in_place(o):
        o += (1, 2)

    def insert_first(o):
        o.insert(0, 9)

    def insert_middle(o):
        o.insert(2, 9)

    def insert_before_last(o):
        o.insert(-1, 9)

    def pop(o):
        o.pop()

    def pop_twice_and_append(o):
        o.pop()
        o.pop()
        o.append(3)

    def pop_first(o):
        o.pop(0)

    def pop_middle(o):
        o.pop(2)

    def pop_from_end(o):
        o.pop(-2)

    def pop_all(o):
        while o:
            o.pop()

    def delete_first(o):
        del o[0]

    def delete_last(o):
        del o[-1]

    def delete_slice(o):
        del o[1:3]

    def delete_steps(o):
        del o[::2]

    def replace_slice(o):
        o[1:3] = [7, 7, 7, 7]

    def replace_all(o):
        o[:] = [1]

    def replace_steps(o):
        o[::2] = [0] * len(o[::2])

    def sort(o):
        o.append(0.25)
        o.sort()

    def sort_by_key(o):
        o.sort(key=lambda x: -x)

    def reverse(o):
        o.reverse()

    def clear(o):
        o.clear()

    def repeat(o):
        o *= 2

    def repeat_never(o):
        o *= 0

    def remove(o):
        o.remove(2.5)

    def set_item(o):
        o[1] = 9

    def set_last_item(o):
        o[-1] = 9

    def set_all_items(o):
        for i in range(len(o)):
            o[i] = i

    def set_twice(o):
        o[1] = 9
        o[1] = 10

    def set_item_by_true(o):
        o[True] = 9

    def set_then_pop_then_append(o):
        o[0] = 1
        o[-1] = 3
        o.pop()
        o.append(4)
        o[-1] = 5
        o.pop(0)
        o.append(6)

    def append_then_set_then_sort(o):
        o.append(3)
        o[0] = 2
        o.insert(1, 8)
        o.reverse()
        o.append(1)

    def call_setitem(o):
        o.__setitem__(0, 9)
        list.__setitem__(o, 1, 9)
        o.__delitem__(2)

    def call_iadd(o):
        o.__iadd__([1, 2])

    def init_again(o):
        o.__init__([1, 2])

    def by_operator(o):
        operator.setitem(o, 0, 9)
        operator.delitem(o, 1)

    def by_iadd_operator(o):
        operator.iadd(o, [4])

    def by_bound_method(o):
        f = o.append
        f(1)
        f(2)

    def by_map(o):
        list(map(o.append, [1, 2]))

    def by_partial(o):
        functools.partial(o.append, 1)()

    def by_derived_partial(o):
        class Derived(functools.partial):
            def __call__(self, *args):
                return super().__call__(*args)

        Derived(o.append, 1)()

    def swap(o):
        o[0], o[1] = o[1], o[0]

    def heap(o):
        heapq.heappush(o, 0.25)
        heapq.heappop(o)
        heapq.heappushpop(o, 7.5)

    def heapify(o):
        o.reverse()
        heapq.heapify(o)

    def shuffle(o):
        random.shuffle(o)

    def star_target(o):
        o[0], *o[1:2] = (1, 2, 3)

    def in_loop_target(o):
        for o[0] in range(3):
            pass

    return table(*[f for f in locals().values()])


def dict_operations():
    def set_new(o):
        o["new"] = 1

    def overwrite(o):
        o[0] = 9

    def overwrite_and_insert(o):
        o[2] = 9
        o["x"] = 1
        o["y"] = 2
        o[2] = 10
        o["x"] = 3

    def delete_first(o):
        del o[0]

    def delete_middle(o):
        del o[2]

    def delete_last(o):
        del o[4]

    def delete_first_middle_last(o):
        del o[0]
        del o[2]
        del o[4]

    def delete_backwards(o):
        del o[4]
        del o[2]
        del o[0]

    def delete_and_put_again(o):
        del o[1]
        o[1] = 5

    def put_and_delete_again(o):
        o["new"] = 5
        del o["new"]

    def move_all(o):
        for i in range(5):
            o[i] = o.pop(i)

    def pop(o):
        o.pop(1)

    def pop_default(o):
        o.pop("none", None)

    def popitem(o):
        o.popitem()

    def popitem_then_insert(o):
        o.popitem()
        o["new"] = 1
        o.popitem()
        o.popitem()

    def update(o):
        o.update({0: 9, "new": 1})

    def update_by_pairs(o):
        o.update([(3, 1), ("a", 2)])

    def update_by_keywords(o):
        o.update(a=1, b=2)

    def merge(o):
        o |= {1: 9, "b": 2}

    def setdefault(o):
        o.setdefault("new", [])
        o.setdefault(0, [])

    def clear(o):
        o.clear()

    def clear_and_fill(o):
        o.clear()
        o["a"] = 1
        o[0] = 2

    def insert_then_delete_old(o):
        o["new"] = 1
        del o[0]
        o["newer"] = 2
        del o["new"]

    def overwrite_then_delete(o):
        o[1] = 9
        del o[1]
        o[3] = 9

    def many(o):
        for i in range(200):
            o[i] = -i

    def equal_key(o):
        o[1.0] = "one"
        o[True] = "yes"
        del o[1]

    def call_setitem(o):
        o.__setitem__(0, 5)
        dict.__setitem__(o, "x", 6)
        o.__delitem__(3)

    def by_operator(o):
        operator.setitem(o, 0, 9)
        operator.delitem(o, 1)

    def by_ior_operator(o):
        operator.ior(o, {"x": 1})

    def increment(o):
        o[0] += 1
        o["n"] = o.get("n", 0) + 1

    def init_again(o):
        dict.__init__(o, {7: 8})

    def in_loop_target(o):
        for o["i"] in range(3):
            pass

    return table(*[f for f in locals().values()])


def ordered_operations():
    def to_end(o):
        o.move_to_end(0)

    def to_front(o):
        o.move_to_end(4, last=False)

    def pop_first(o):
        o.popitem(last=False)

    def set_default_by_name(o):
        o.setdefault(key="x", default=1)

    def pop_by_name(o):
        o.pop(key=0)

    def move_by_name(o):
        o.move_to_end(key=0)

    def move_and_delete(o):
        o.move_to_end(1)
        del o[2]
        o[0] = 3
        o["x"] = 1

    return table(*[f for f in locals().values()])


def counter_operations():
    def count_letters(o):
        o.update("hello")

    def count_one(o):
        o["a"] += 1
        o[0] += 1

    def subtract(o):
        o.subtract([0, 1, "z"])

    def add_in_place(o):
        o += Counter("ab")

    def difference_in_place(o):
        o -= Counter({0: 1, 3: 100})

    def clear(o):
        o.clear()

    def delete(o):
        del o[0]
        del o["absent"]

    return table(*[f for f in locals().values()])


def default_operations():
    def read_missing(o):
        o["missing"]

    def append_to_missing(o):
        if o.default_factory is not int:
            o["missing"].append(1)

    def call_missing(o):
        o.__missing__("other")

    def replace_factory(o):
        o.default_factory = None

    def begin_anew(o):
        o.__init__(int, a=1)

    def interpolate_missing(o):
        "%(missing)s %(b)s" % o

    def interpolate_missing_bytes(o):
        b"%(missing)a" % o

    def interpolate_behind_a_proxy(o):
        "%(missing)s" % types.MappingProxyType(o)

    def interpolate_by_operator(o):
        operator.mod("%(missing)s", o)

    def translate_missing(o):
        with contextlib.suppress(TypeError):
            "xyz".translate(o)

    def decode_missing(o):
        with contextlib.suppress(TypeError):
            codecs.charmap_decode(b"ab", "strict", o)

    def encode_missing(o):
        with contextlib.suppress(TypeError):
            codecs.charmap_encode("ab", "strict", o)

    return table(*[f for f in locals().values()])


def set_operations():
    def add(o):
        o.add("new")

    def add_present(o):
        o.add(0.5)

    def discard(o):
        o.discard(1.5)
        o.discard("absent")

    def remove(o):
        o.remove(2.5)

    def remove_absent(o):
        o.remove("absent")

    def pop(o):
        o.pop()

    def pop_all(o):
        while o:
            o.pop()

    def clear(o):
        o.clear()

    def update(o):
        o.update([1.5, "a", "b"])

    def union(o):
        o |= {"a", 0.5}

    def intersection(o):
        o &= {0.5, 1.5, "x"}

    def difference(o):
        o -= {0.5, 1.5, "x"}

    def symmetric_difference(o):
        o ^= {0.5, 1.5, "x"}

    def methods(o):
        o.difference_update([0.5])
        o.intersection_update([1.5, 2.5, "a"])
        o.symmetric_difference_update(["b"])

    def add_and_discard(o):
        o.add("x")
        o.discard("x")
        o.discard(0.5)
        o.add(0.5)

    def many(o):
        for i in range(300):
            o.add(i)

    def empty_by_itself(o):
        o -= o

    def init_again(o):
        o.__init__([1])

    return table(*[f for f in locals().values()])


def deque_operations():
    def append(o):
        o.append(9)

    def appendleft(o):
        o.appendleft(9)

    def pop(o):
        o.pop()

    def popleft(o):
        o.popleft()

    def extend(o):
        o.extend([7, 8])

    def extendleft(o):
        o.extendleft([7, 8])

    def rotate(o):
        o.rotate(2)

    def rotate_back(o):
        o.rotate(-1)

    def set_item(o):
        o[0] = 9
        o[-1] = 8

    def delete_item(o):
        del o[1]

    def insert(o):
        o.insert(1, 9)

    def remove(o):
        o.remove(1.5)

    def reverse(o):
        o.reverse()

    def clear(o):
        o.clear()

    def add_in_place(o):
        o += [1, 2]

    def repeat(o):
        o *= 2

    def both_ends(o):
        o.append(1)
        o.popleft()
        o.appendleft(2)
        o.pop()
        o.pop()
        o.rotate(1)
        o.append(3)

    def queue(o):
        for i in range(100):
            o.append(i)
            o.popleft()

    def drain(o):
        while o:
            o.popleft()

    def init_again(o):
        o.__init__([1, 2])

    return table(*[f for f in locals().values()])


def bytearray_operations():
    def append(o):
        o.append(65)

    def extend(o):
        o.extend(b"abc")

    def add_in_place(o):
        o += b"xyz"

    def set_item(o):
        o[0] = 1

    def set_slice(o):
        o[1:3] = b"12345"

    def delete_slice(o):
        del o[:3]

    def pop(o):
        o.pop()

    def insert(o):
        o.insert(0, 66)

    def clear(o):
        o.clear()

    def reverse(o):
        o.reverse()

    def remove(o):
        o.remove(o[0])

    def repeat(o):
        o *= 2

    return table(*[f for f in locals().values()])


def labelled(cls, content):
    o = cls(content)
    o.label = "old"
    return o


def numbered(n):
    return {i: i + 0.5 for i in range(n)}


def array_operations():
    def append(o):
        o.append(65)

    def extend(o):
        o.extend([1, 2])

    def add_in_place(o):
        o += array.array("i", [7])

    def multiply_in_place(o):
        o *= 2

    def set_item(o):
        o[0] = 1

    def set_slice(o):
        o[1:3] = array.array("i", [5, 6, 7])

    def delete_item(o):
        del o[1]

    def delete_slice(o):
        del o[::2]

    def insert(o):
        o.insert(1, 9)

    def pop(o):
        o.pop()

    def pop_first(o):
        o.pop(0)

    def remove(o):
        o.remove(o[1])

    def reverse(o):
        o.reverse()

    def byteswap(o):
        o.byteswap()

    def from_bytes(o):
        o.frombytes(bytes(o.itemsize))

    def clear(o):
        o.clear()

    def through_a_view(o):
        view = memoryview(o)
        view[1] = 17

    return table(*locals().values())


CONTAINERS = {
    "short list": (lambda: floats(5), list_operations()),
    "long list": (lambda: floats(100), list_operations()),
    "list of the limit's length": (lambda: floats(64), list_operations()),
    "list beyond the limit": (lambda: floats(65), list_operations()),
    "list subclass": (lambda: labelled(Labelled, floats(5)), list_operations()),
    "long list subclass": (lambda: labelled(Labelled, floats(90)), list_operations()),
    "dict": (lambda: numbered(5), dict_operations()),
    "long dict": (lambda: numbered(100), dict_operations()),
    "dict of strings": (lambda: {"a": 1.5, "b": 2.5, "x": 3.5}, dict_operations()),
    "dict subclass": (lambda: labelled(Shelf, numbered(5)), dict_operations()),
    "dict with __missing__": (lambda: ManyKeys(numbered(5)), dict_operations()),
    "defaultdict": (lambda: defaultdict(list, numbered(5)), {**dict_operations(), **default_operations()}),
    "defaultdict of a function": (lambda: defaultdict(lambda: [1], numbered(5)), default_operations()),
    "defaultdict subclass": (lambda: labelled(functools.partial(Defaults, list), numbered(5)), default_operations()),
    "OrderedDict": (lambda: OrderedDict(numbered(5)), {**dict_operations(), **ordered_operations()}),
    "Counter": (lambda: Counter(numbered(5)), {**dict_operations(), **counter_operations()}),
    "set": (lambda: set(floats(5)), set_operations()),
    "set subclass": (lambda: labelled(Crowd, floats(5)), set_operations()),
    "deque": (lambda: deque(floats(5)), deque_operations()),
    "bounded deque": (lambda: deque(floats(5), maxlen=5), deque_operations()),
    "half full bounded deque": (lambda: deque(floats(3), maxlen=6), deque_operations()),
    "deque subclass": (lambda: labelled(Line, floats(5)), deque_operations()),
    "bytearray": (lambda: bytearray(b"hello world"), bytearray_operations()),
    "array": (lambda: array.array("i", range(5)), array_operations()),
    "empty list": (list, list_operations()),
    "empty dict": (dict, dict_operations()),
    "empty set": (set, set_operations()),
    "empty deque": (deque, deque_operations()),
}

ONE_OPERATION = [(kind, name) for kind, (_, operations) in CONTAINERS.items() for name in operations]


@pytest.mark.parametrize("kind, name", ONE_OPERATION, ids=lambda text: text.replace(" ", "_"))
def test_container(kind, name):
    make, operations = CONTAINERS[kind]
    rolled_back(operations[name], make())


MARKS = [int, str, float, bytes, list, dict, set]   # types are equal to nothing but themselves


@pytest.mark.parametrize("make", [deque, functools.partial(deque, maxlen=7), functools.partial(deque, maxlen=9), Line], ids=str)
def test_what_is_taken_out_of_a_deque_by_its_identity_comes_back_to_its_place(make):
    choice = random.Random(1)

    def mutate(o, chosen):
        for each in chosen:
            if each in o:
                o.remove(each)
            else:
                o.append(each)
        with contextlib.suppress(ValueError):
            o.remove(frozenset)

    for n in range(60):
        chosen = choice.choices(MARKS, k=choice.randrange(1, 12))
        rolled_back(functools.partial(mutate, chosen=chosen), make(MARKS), inject=choice.choice([0.0, 0.05]), seed=n)


def test_items_of_a_deque_are_compared_where_one_is_taken_out():
    """Those that say themselves what they are equal to, in front of it or looked for."""
    class Equal:
        def __eq__(self, other):
            return other is int

        __hash__ = None

    for items, item in ([str, Equal(), int], int), ([str, 1.0, int], 1), ([str, int, 1.0], Equal()):
        expected, line = deque(items), deque(items)
        expected.remove(item)
        core.Transaction(line.remove, (item,)).run()
        assert list(map(id, line)) == list(map(id, expected))


@pytest.mark.parametrize("kind", CONTAINERS)
def test_container_random_sequences(kind):
    """Several operations in one attempt, aborted at the end or anywhere before."""
    make, operations = CONTAINERS[kind]
    choice = random.Random(kind)
    for n in range(40):
        names = choice.choices(list(operations), k=choice.randrange(1, 7))

        def mutate(o, chosen=[operations[name] for name in names]):
            for operation in chosen:
                operation(o)

        try:
            rolled_back(mutate, make(), inject=choice.choice([0.0, 0.05]), seed=n)
        except AssertionError as e:
            raise AssertionError(f"{kind}: {names}: {e}") from None


# Ordinary changes of ordinary containers: worth nothing if they stop all other transactions.
ORDINARY = {
    "short list": "append extend add_in_place insert_first pop pop_first delete_first delete_slice replace_slice reverse "
                  "clear repeat remove set_item swap set_all_items by_bound_method",
    "long list": "append extend add_in_place pop pop_first set_item set_all_items clear",
    "dict": "set_new overwrite delete_middle pop popitem update merge setdefault clear increment",
    "defaultdict": "set_new append_to_missing delete_middle",
    "OrderedDict": "set_new overwrite delete_first popitem to_end pop_first clear",
    "Counter": "count_one",
    "set": "add discard remove pop clear update union intersection difference symmetric_difference",
    "deque": "append appendleft pop popleft extend rotate set_item delete_item clear",
    "bounded deque": "append appendleft",
    "bytearray": "append extend add_in_place set_item set_slice clear",
    "array": "append extend add_in_place set_item set_slice clear",
}


@pytest.mark.parametrize("make", [lambda: bytearray(b"abc"), lambda: array.array("i", range(3))], ids=["bytearray", "array"])
def test_a_view_of_what_has_changed_its_size(make):
    def grow_and_look(o, views):
        o.append(1)
        views.append(memoryview(o))

    check(grow_and_look, make(), [])


VIEWED = [lambda: b"hello world", lambda: bytearray(b"hello world"), lambda: array.array("i", range(5))]


@pytest.mark.parametrize("make", VIEWED, ids=["bytes", "bytearray", "array"])
@pytest.mark.parametrize("others", [0, 1], ids=["the_last", "one_of_two"])
def test_a_released_view_is_a_view_again(make, others):
    data = make()
    view = memoryview(data)[1:4]
    kept = [view[1:] for _ in range(others)]
    before = view.tolist()

    def release(view):
        view.release()

    def rest(view):
        seen = view.tolist()
        with view:
            pass
        return seen

    assert check(release, view, rest=rest) == before
    with pytest.raises(ValueError):
        view.tolist()
    assert [each.tolist() for each in kept] == [before[1:]] * others
    kept.clear()
    if not isinstance(data, bytes):
        data.append(1)  # no view is left


@pytest.mark.parametrize("make", VIEWED[1:], ids=["bytearray", "array"])
def test_what_a_view_was_of_changes_its_size_after_the_release(make):
    data = make()
    view = memoryview(data)[1:4]
    before = view.tolist()

    def release(view, data):
        data[0] += 1  # so that it has been logged before
        view.release()
        data.extend(data * 1000)  # which has to move
        with memoryview(data)[2:5] as another:
            data[1] = another[0]

    assert check(release, view, data, rest=lambda view, data: view.tolist()) == before
    if isinstance(data, bytearray):
        data[1] = 120
        assert view[0] == 120
    with pytest.raises(BufferError):
        data.append(1)


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_operations_need_not_run_alone(kind):
    make, operations = CONTAINERS[kind]
    for name in ORDINARY[kind].split():
        rolled_back(operations[name], make())  # what is only met for the first time may run alone
        check(operations[name], make())


def test_attributes_of_container_subclasses():
    def mutate(o):
        o.label = "new"
        o.more = 1
        o.append(1)

    check(mutate, labelled(Labelled, [1.5]))


def test_nested():
    tree = {"list": [1.5, {"set": {2.5}, "deque": deque([3.5])}], "thing": Thing(parts=[[4.5], (5.5, [6.5])])}

    def mutate(tree):
        tree["list"][1]["set"].add(9)
        tree["list"][1]["deque"].rotate(1)
        tree["list"][1]["deque"].appendleft(tree)
        tree["list"].append(tree["list"])
        tree["thing"].parts[1][1].append(7)
        tree["thing"].parts[0] = None
        tree["thing"].tree = tree
        del tree["list"]
        tree["thing"] = 1

    check(mutate, tree)


def test_two_names_of_one_container():
    shared = [1.5, 2.5]

    def mutate(a, b):
        a.append(1)
        b.pop(0)
        a[0] = b
        b.clear()

    check(mutate, shared, shared)


def test_keys_with_python_hash_and_eq():
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n % 2

        def __eq__(self, other):
            return isinstance(other, Key) and self.n == other.n

    def mutate(d, s):
        d[Key(1)] = 9
        d[Key(8)] = 9
        del d[Key(0)]
        del d[Key(3)]
        s.add(Key(9))
        s.discard(Key(2))

    for _ in range(2):
        rolled_back(mutate, {Key(i): i + 0.5 for i in range(6)}, {Key(i) for i in range(6)})


def test_exceptions_with_state():
    class Failure(Exception):
        pass

    failure = Failure("old", 1.5)
    failure.code = 3

    def mutate(e):
        e.code = 4
        e.args = ("new",)
        e.detail = []
        e.__cause__ = KeyError(1)
        e.__suppress_context__ = True

    rolled_back(mutate, failure)


class Refused(ValueError):
    def __init__(self, why):
        super().__init__(why, len(why))


class Closed(OSError):
    def __init__(self, errno, why):
        super().__init__(errno, why)


@pytest.mark.parametrize("make, fields", [
    (lambda: ValueError("old"), []), (lambda: Refused("old"), []), (lambda: StopIteration("old"), ["value"]),
    (lambda: Closed(1, "old"), ["errno", "strerror"]), (lambda: SystemExit("old"), ["code"]),
    (lambda: ImportError("old", name="m"), ["msg", "name", "path"]),
])
def test_an_exception_that_begins_anew(make, fields):
    error = make()
    before = error.args, [getattr(error, name) for name in fields]
    arguments = ["another"] * (2 if isinstance(error, Closed) else 1)
    rolled, _ = rolled_back(lambda e: e.__init__(*arguments), error)
    assert rolled and before == (error.args, [getattr(error, name) for name in fields])


@pytest.mark.parametrize("make", [
    lambda: UnicodeError("old"), lambda: ExceptionGroup("old", [KeyError()]), lambda: property(len),
    lambda: staticmethod(len),
])
def test_what_more_begins_anew_alone(make):
    rolled, _ = rolled_back(lambda e: e.__init__(max), make())
    assert not rolled


class Space(types.SimpleNamespace):
    def __init__(self, **attributes):
        super().__init__(**attributes)


class Reference(weakref.ref):
    def __init__(self, thing):
        super().__init__(thing, None)


class Branch(ast.Name):
    def __init__(self, **fields):
        super().__init__(**fields)


@pytest.mark.parametrize("make", [lambda: types.SimpleNamespace(id="a"), lambda: Space(id="a"), lambda: Branch(id="a"), lambda: ast.Name(id="a")])
def test_attributes_that_begin_anew(make):
    rolled_back(lambda obj: obj.__init__(id="b", ctx=3), make())


@pytest.mark.parametrize("make", [lambda: Space(a=1), lambda: Defaults(list, {1: 2}), lambda: Reference(Space)])
def test_what_begins_in_its_class_does_not_begin_alone(make):
    run(make)
    check(make)


def test_making_exceptions_does_not_run_alone():
    def make():
        return [Refused("new").args, ValueError("new").args, KeyError().args, Closed(1, "new").args]

    run(make)
    before = core.stats()["exclusives"]
    assert run(make) == [("new", 3), ("new",), (), (1, "new")]
    assert core.stats()["exclusives"] == before


def test_giving_a_new_object_a_dict_of_its_own_does_not_run_alone():
    original = Thing(a=1, b=[2])

    def copied():
        first, second = Thing.__new__(Thing), object.__new__(Thing)
        first.__dict__ = original.__dict__.copy()
        second.__dict__ = {"c": 3}
        first.a = 9
        second.d = 4
        return first, second

    run(copied)
    before = core.stats()["exclusives"]
    first, second = run(copied)
    assert core.stats()["exclusives"] == before
    assert (vars(first), vars(second), vars(original)) == ({"a": 9, "b": [2]}, {"c": 3, "d": 4}, {"a": 1, "b": [2]})

    def change(first, second):
        first.a, second.c = 10, 11
        del second.d

    rolled, _ = rolled_back(change, first, second)
    assert rolled
    assert (vars(first), vars(second)) == ({"a": 9, "b": [2]}, {"c": 3, "d": 4})


def test_giving_an_object_a_dict_that_others_know_runs_alone():
    thing, attributes = Thing(), {"x": 1}

    def replace(new):
        one = Thing.__new__(Thing) if new else thing
        one.__dict__ = attributes
        one.x = 2

    for new in True, False:
        before = core.stats()["exclusives"]
        run(lambda: replace(new))
        assert core.stats()["exclusives"] == before + 1 and attributes == {"x": 2}


class Copied:
    def __init__(self):
        raise TypeError("costly")


class CopiedWithSlot(Thing):
    __slots__ = ("slot",)


class Finalized(Thing):
    ended = []

    def __del__(self):
        self.ended.append(id(self))


def copy_by_class(cls, original):
    made = Thing(b=1)
    made.__class__ = cls
    made.c = 2
    made.__dict__ = original.__dict__.copy()
    made.a += 1
    return made


def test_giving_a_new_object_another_class_does_not_run_alone():
    original = Thing(a=1)
    run(copy_by_class, Copied, original)
    before = core.stats()["exclusives"]
    made = run(copy_by_class, Copied, original)
    assert core.stats()["exclusives"] == before
    assert type(made) is Copied and vars(made) == {"a": 2} and vars(original) == {"a": 1}

    def change(made):
        made.a, made.z = 5, 6

    rolled, _ = rolled_back(change, made)
    assert rolled and vars(made) == {"a": 2}


class LocalFault(Exception):
    def __init__(self, text, status=400):
        Exception.__init__(self, text)
        self.status = status


class RemoteFault(LocalFault):
    pass


def test_giving_a_new_exception_another_class_does_not_run_alone():
    """h11 does, with each message that it cannot parse."""

    def pass_on():
        try:
            raise LocalFault("late")
        except LocalFault as e:
            e.__class__ = RemoteFault
            e.seen = e.status + 1
            raise

    def caught():
        with pytest.raises(RemoteFault) as raised:
            pass_on()
        return raised.value

    run(caught)
    before = core.stats()["exclusives"]
    made = run(caught)
    assert core.stats()["exclusives"] == before
    assert type(made) is RemoteFault and made.args == ("late",) and vars(made) == {"status": 400, "seen": 401}

    def change(made):
        made.status, made.args, made.more = 5, (), 6

    rolled, _ = rolled_back(change, made)
    assert rolled and made.args == ("late",) and vars(made) == {"status": 400, "seen": 401}


def test_a_class_that_does_not_fit_is_refused_and_the_object_stays_its_transaction_s():
    def refused():
        made = Thing(a=1)
        for cls in int, CopiedWithSlot, 3:
            with pytest.raises(TypeError):
                made.__class__ = cls
        made.b = 2
        return type(made), vars(made)

    assert run(refused) == (Thing, {"a": 1, "b": 2})


def test_an_object_that_gets_a_finalizer_with_its_class_is_finalized_once():
    ended = len(Finalized.ended)
    run(lambda: copy_by_class(Finalized, Thing(a=1)) and None)
    assert len(Finalized.ended) == ended + 1


@pytest.mark.parametrize("assign", [object.__setattr__, setattr])
def test_a_new_object_gets_a_dict_and_a_class_by_functions(assign):
    original = Thing(a=1)

    def copied():
        made = Thing.__new__(Thing)
        assign(made, "__class__", Copied)
        assign(made, "__dict__", copy.copy(original.__dict__))
        made.b = 2
        return made

    run(copied)
    before = core.stats()["exclusives"]
    made = run(copied)
    assert core.stats()["exclusives"] == before
    assert type(made) is Copied and vars(made) == {"a": 1, "b": 2} and vars(original) == {"a": 1}


def test_giving_an_object_another_class_that_others_know_runs_alone():
    thing = Thing(a=1)

    def change():
        thing.__class__ = Copied

    before = core.stats()["exclusives"]
    run(change)
    assert core.stats()["exclusives"] == before + 1 and type(thing) is Copied


def test_raising_a_shared_exception():
    failure = ValueError("shared")

    def mutate(e):
        try:
            try:
                raise KeyError("context")
            except KeyError:
                raise e
        except ValueError:
            pass

    check(mutate, failure)


class OwnAttributeError(AttributeError):
    pass


class Lacking:
    """Raises the exception that it was made with wherever something is asked for."""

    def __init__(self, error):
        object.__setattr__(self, "error", error)

    def __getattr__(self, name):
        raise self.error


def miss(lacking):
    with contextlib.suppress(AttributeError):
        lacking.missing


@pytest.mark.parametrize("make", [AttributeError, OwnAttributeError, lambda: AttributeError(name="a"), lambda: AttributeError(obj=1)])
@pytest.mark.parametrize("ask", [
    miss, lambda lacking: hasattr(lacking, "missing"), lambda lacking: getattr(lacking, "missing", None),
    lambda lacking: (miss(lacking), setattr(lacking.error, "name", "b"), setattr(lacking.error, "obj", None)),
], ids=["missed", "asked for", "with a default", "missed and changed"])  # fmt: skip
def test_raising_a_shared_attribute_error(make, ask):
    error = make()
    before = error.name, error.obj
    lacking = Lacking(error)
    check(ask, lacking)
    assert (error.name, error.obj) == before
    miss(lacking)  # who has not noted anything in it does so still
    assert (error.name, error.obj) == (("missing", lacking) if before == (None, None) else before)


def test_exceptions_are_results():
    things = []

    def fail():
        things.append(1)
        raise LookupError("done")

    with pytest.raises(LookupError, match="done"):
        run(fail)
    assert things == [1]


def test_context_variables():
    var = contextvars.ContextVar("var", default="default")
    other = contextvars.ContextVar("other")
    context = contextvars.copy_context()
    context.run(var.set, "old")

    def change():
        var.set("new")
        other.set(1)
        other.set(2)

    rolled_back(lambda context: context.run(change), context)
    check(lambda context: context.run(change), context)
    rolled_back(lambda context: context.run(var.set, "new"), context)

    def set_here():
        token = var.set("here")
        other.set(3)
        var.reset(token)
        var.set("there")

    def both():
        check(set_here)
        assert var.get() == "outside" and other.get(None) is None

    contextvars.Context().run(lambda: (var.set("outside"), both()))


def test_a_context_variable_that_is_set_while_a_block_runs():
    var = contextvars.ContextVar("var", default="outside")

    async def work():
        with var.set("inside"):
            await pause(1)
        return var.get()

    def end(step):
        with contextlib.suppress(StopIteration):
            step()
            return None
        return var.get()

    work, context = work(), contextvars.Context()
    run(context.run, work.send, None)
    check(lambda: context.run(end, functools.partial(work.send, None)), rest=lambda: None)
    assert context.run(var.get) == "inside"
    assert run(context.run, end, functools.partial(work.send, None)) == "outside"
    token = context.run(var.set, "again")
    for leave in token.__exit__, lambda *_: token.__exit__(None, None, None):
        check(lambda leave=leave: context.run(leave, None, None, None), rest=lambda: None)
        assert context.run(var.get) == "again" and "used" not in repr(token)


def test_a_zone_whose_first_use_is_rolled_back_stays_one():
    zones = ["Europe/Lisbon", "Europe/Paris", "Europe/Rome", "Europe/Oslo", "Asia/Tokyo", "Asia/Dubai", "America/Lima", "America/New_York",
             "Africa/Cairo", "Australia/Perth"]  # the cache in C keeps eight
    for clear in range(2):
        if clear:
            zoneinfo.ZoneInfo.clear_cache()
        rolled_back(lambda: zoneinfo.ZoneInfo(zones[0]))
        first = run(zoneinfo.ZoneInfo, zones[0])
        for zone in zones[1:]:
            run(zoneinfo.ZoneInfo, zone)
        again = run(lambda: zoneinfo.ZoneInfo(key=zones[0]))
        assert first is again is zoneinfo.ZoneInfo(zones[0])
        check(lambda: zoneinfo.ZoneInfo(zones[0]))


def test_lru_cache():
    calls = []

    @functools.lru_cache(maxsize=None)
    def double(x):
        calls.append(x)
        return [x]

    def call(*numbers):
        return [double(n) for n in numbers]

    (first,) = run(call, 1)
    check(lambda: call(1, 1))
    assert calls == [1]
    assert run(call, 1, 2) == [first, [2]] and run(call, 1)[0] is first
    assert calls == [1, 2]
    # New arguments are forgotten with the attempt.
    info = double.cache_info()
    check(lambda: call(1, 2, 3))
    assert calls == [1, 2] and double.cache_info() == info
    assert run(call, 3, 3) == [[3], [3]] and calls == [1, 2, 3]


def test_cached_property():
    class Page:
        made = 0

        @functools.cached_property
        def text(self):
            return [1]

    for _ in range(2):
        rolled_back(lambda page: page.text, Page())


def test_new_objects_are_forgotten():
    class Node:
        pass

    head = Thing(next=None)

    def mutate(head):
        node = head
        for _ in range(50):
            node.next = Node()
            node = node.next
        node.next = head

    check(mutate, head)
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is Node]


def test_finalizers_of_aborted_objects_have_no_effect():
    dead = []

    class Mortal:
        def __del__(self):
            dead.append(self)

    def make(keep):
        keep.append([Mortal() for _ in range(3)])
        Mortal()

    run(lambda: make([]))
    assert len(dead) == 4
    dead.clear()
    check(make, [])
    gc.collect()
    assert dead == []


@pytest.mark.parametrize("become_known", [lambda: run(list), lambda: core.bias([])], ids=["by a transaction", "without one"])
def test_a_finalizer_that_begins_in_trusted_code_outside_of_transactions_runs_soon(become_known):
    dead, failures = [], []

    class Mortal:
        def __del__(self):
            dead.append(1)

    @trusted
    def dropped_meanwhile(things):
        # The interpreter lets this thread, which made it, finalize it: right here.
        thread = _thread.start_joinable_thread(things.clear)
        while not thread.is_done() or things:
            pass
        for _ in range(1000):
            pass
        return len(dead)

    def work():
        become_known()  # to the engine
        for _ in range(3):
            before = dropped_meanwhile([Mortal()])
            for _ in range(10):
                pass
            if (before, dead) != (0, [1]):
                failures.append((before, dead))
            dead.clear()

    _thread.start_joinable_thread(work).join(100)
    assert failures == []


def test_finalizers_of_dropped_objects_run_after_the_commit():
    dead = []

    class Mortal:
        def __del__(self):
            dead.append(1)

    things = [Mortal()]

    def drop(things):
        things.clear()

    check(drop, things)
    assert dead == [] and len(things) == 1
    run(drop, things)
    assert dead == [1]


def test_deferred_actions_of_an_aborted_attempt_are_dropped():
    done = []
    defer = core.defer
    check(lambda: defer(done.append, "no"), rest=lambda: defer(done.append, "yes"))
    assert done == ["yes"]


# ---- Generators and iterators ------------------------------------------------------------------------------------------


def continues(make, advance, rest=list):
    """An attempt that advances what `make` makes is rolled back; what is left then is what was left before."""

    def parts():
        made = make()
        return made if isinstance(made, tuple) else (made,)

    rolled_back(advance, *run(parts), rest=rest)  # its functions have been seen before
    expected = run(rest, *run(parts))
    done, left = rolled_back(advance, *run(parts), rest=rest)
    if done:
        assert left == expected


def steps(n):
    def advance(iterator):
        for _ in range(n):
            next(iterator)

    return advance


def exhaust(iterator):
    for _ in iterator:
        pass


def loop_over_list():
    for x in [1.5, 2.5, 3.5, 4.5]:
        yield x


def loop_over_dict():
    for key in {"a": 1, "b": 2, "c": 3, "d": 4}:
        yield key


def loop_over_items():
    for key, value in {"a": 1, "b": 2, "c": 3, "d": 4}.items():
        yield key, value


def loop_over_set():
    for each in {1, 2, 3, 4}:
        yield each


def loop_over_deque():
    for each in deque("abcd"):
        yield each


def loop_over_enumerate():
    for i, x in enumerate("abcd"):
        yield i, x


def loop_over_zip():
    for a, b in zip([1, 2, 3, 4], iter("abcd")):
        yield a, b


def loop_over_map():
    for x in map(str, iter([1, 2, 3, 4])):
        yield x


def loop_over_filter():
    for x in filter(None, [1, 0, 2, 3, 4]):
        yield x


def loop_over_range():
    for i in range(5):
        yield i


def loop_over_reversed():
    for x in reversed([1, 2, 3, 4]):
        yield x


def loop_over_string():
    for c in "abcdé":
        yield c


def nested_loops():
    for i, xs in enumerate([[1, 2], [3, 4]]):
        for x in xs:
            yield i, x


def delegated():
    yield 0
    got = yield from loop_over_list()
    yield got
    yield from [1, 2, 3]


def doubly_delegated():
    yield from delegated()
    yield from loop_over_zip()


def with_locals():
    total, history = 0, []
    while total < 20:
        total += 3
        history.append(total)
        yield total, tuple(history)


def with_try():
    try:
        for i in [0, 1, 2, 3]:
            try:
                yield i
            finally:
                i += 1
    finally:
        yield "finally"


def with_handler():
    try:
        raise KeyError("key")
    except KeyError as e:
        yield 1
        yield str(e)
        try:
            raise
        except KeyError as again:
            yield again is e
    yield "end"


@contextlib.contextmanager
def entered():
    yield "entered"


def with_block():
    with entered() as e:
        yield e
        yield 2
    yield 3


def comprehension():
    yield from [x * y for x in [0, 1, 2] for y in (3, 4)]


def generator_expression():
    return (x * 2 for x in [1, 2, 3, 4, 5])


GENERATORS = [
    loop_over_list, loop_over_dict, loop_over_items, loop_over_set, loop_over_deque, loop_over_enumerate, loop_over_zip,
    loop_over_map, loop_over_filter, loop_over_range, loop_over_reversed, loop_over_string, nested_loops, delegated,
    doubly_delegated, with_locals, with_try, with_handler, with_block, comprehension, generator_expression,
]


def begun(function):
    """The generator, suspended at its first yield."""
    generator = function()
    next(generator)
    return generator


def finished(function):
    generator = function()
    exhaust(generator)
    return generator


@pytest.mark.parametrize("function", GENERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("advance", [steps(1), steps(2), exhaust], ids=["one", "two", "to the end"])
@pytest.mark.parametrize("start", [lambda f: f(), begun], ids=["new", "begun"])
def test_generator(function, advance, start):
    continues(lambda: start(function), advance)


@pytest.mark.parametrize("function", GENERATORS, ids=lambda f: f.__name__)
def test_generator_closed_in_the_aborted_attempt(function):
    def close(g):
        try:
            g.close()
        except RuntimeError:
            pass  # it yields in its finally block

    continues(lambda: begun(function), close)


#: C code that takes all items of a generator
class MoreTuple(tuple):
    pass


class MoreList(list):
    pass


class MoreSet(set):
    pass


class MoreFrozenSet(frozenset):
    pass


class MoreDeque(deque):
    pass


class MoreBytes(bytes):
    pass


class MoreByteArray(bytearray):
    pass


DERIVED = [MoreTuple, MoreList, MoreSet, MoreFrozenSet, MoreDeque, MoreBytes, MoreByteArray]


@pytest.mark.parametrize("cls", DERIVED)
def test_a_container_of_a_derived_class_is_made_of_items_beside_others(cls):
    made = [lambda: cls(i for i in range(3)), lambda: cls(map(int, "012")), lambda: cls({0: 1, 1: 2, 2: 3}.keys())]
    for make in made:
        run(make)
    before = core.stats()["exclusives"]
    assert [list(run(make)) for make in made] == [[0, 1, 2]] * 3
    assert core.stats()["exclusives"] == before
    check(cls, run(begun, loop_over_range), rest=list)


EXHAUSTS = {
    "|": lambda g: {1: 2}.keys() | g, "&": lambda g: {1: 2}.keys() & g, "-": lambda g: {1: 2}.items() - g, "^": lambda g: {1: 2}.keys() ^ g,
    "| reversed": lambda g: g | {1: 2}.keys(), "|=": lambda g: operator.ior({1: 2}.keys(), g), "method": lambda g: {1: 2}.keys().__or__(g),
    "isdisjoint": lambda g: {9: 2}.keys().isdisjoint(g), "int.from_bytes": int.from_bytes, "bytes": bytes, "bytearray": bytearray,
    "array": lambda g: array.array("i", g), "update": lambda g: {1}.update(g), "unpacked": lambda g: [*g], "fromkeys": dict.fromkeys,
    "in": lambda g: 99 in g, "slice": lambda g: [0].__setitem__(slice(0, 1), g), "heap": lambda g: heapq.nsmallest(2, g),
}


@pytest.mark.parametrize("exhaust", EXHAUSTS.values(), ids=EXHAUSTS)
@pytest.mark.parametrize("start", [lambda f: f(), begun], ids=["new", "begun"])
def test_generator_that_c_code_exhausts(exhaust, start):
    continues(lambda: start(loop_over_range), quietly(exhaust))


@pytest.mark.parametrize("function", [f for f in GENERATORS if f is not loop_over_deque], ids=lambda f: f.__name__)
def test_common_generators_need_not_run_alone(function):
    for _ in range(2):
        rolled_back(steps(1), run(begun, function), rest=list)
    check(steps(1), run(begun, function), rest=list)


@pytest.mark.parametrize("function", GENERATORS, ids=lambda f: f.__name__)
def test_generator_interrupted_anywhere(function):
    run(exhaust, run(function))
    for seed in range(12):
        expected = run(list, run(begun, function))
        done, left = rolled_back(exhaust, run(begun, function), rest=list, inject=0.1, seed=seed)
        if done:
            assert left == expected


def accumulator():
    total = 0
    while True:
        try:
            got = yield total
        except ValueError:
            total = -100
        else:
            total += got


def started_accumulator():
    g = accumulator()
    next(g)
    g.send(5)
    return g


@pytest.mark.parametrize("advance", [
    lambda g: g.send(7),
    lambda g: [g.send(i) for i in range(5)],
    lambda g: g.throw(ValueError),
    lambda g: (g.throw(ValueError("x")), g.send(1)),
    lambda g: g.close(),
    lambda g: g.throw(ZeroDivisionError) if False else None,
], ids=["send", "sends", "throw", "throw and send", "close", "nothing"])
def test_generator_with_send(advance):
    continues(started_accumulator, advance, rest=lambda g: (g.send(1), g.send(2)))


def test_generator_that_dies_of_an_exception():
    def die(g):
        try:
            g.throw(ZeroDivisionError("x"))
        except ZeroDivisionError:
            pass

    continues(started_accumulator, die, rest=lambda g: (g.send(1), g.send(2)))


def test_generator_that_finishes_with_a_value():
    def outer():
        result = yield from inner()
        yield "outer", result

    def inner():
        yield 1
        return "inner"

    def finish(g):
        assert next(g) == ("outer", "inner")
        assert next(g, "end") == "end"

    continues(lambda: begun(outer), finish)


def remembering():
    """Keeps what it has caught, and so a traceback with its own frame."""
    kept = None
    x = "before"
    while True:
        try:
            got = yield x, kept
            if got:
                return
        except ZeroDivisionError as e:
            kept, x = e, "caught"


def finish_by_sending(g):
    with contextlib.suppress(StopIteration):
        g.send("end")


def at_frame(function):
    """Such a generator, and its frame object, which somebody keeps."""
    g = begun(function)
    return g, g.gi_frame


def caught():
    g = begun(remembering)
    return g, g.throw(ZeroDivisionError("x"))[1].__traceback__.tb_frame


@pytest.mark.parametrize("make", [lambda: at_frame(remembering), caught], ids=["asked for", "of a traceback"])
@pytest.mark.parametrize("end", [
    lambda g: next(g),
    lambda g: g.close(),
    finish_by_sending,
    lambda g: (g.throw(ZeroDivisionError("y")), g.close()),
], ids=["a step", "closed", "ended", "caught and closed"])  # fmt: skip
def test_a_frame_object_that_somebody_keeps_is_that_of_the_generator_once_more(make, end):
    g, frame = make()
    before = frame.f_locals["x"], frame.f_lineno, frame.f_lasti, frame.f_back
    check(end, g)
    assert g.gi_frame is frame and frame.f_generator is g
    assert (frame.f_locals["x"], frame.f_lineno, frame.f_lasti, frame.f_back) == before
    assert g.throw(ZeroDivisionError("z"))[0] == "caught" == frame.f_locals["x"]
    g.close()
    assert g.gi_frame is None and frame.f_locals["x"] == "caught"


def test_a_frame_object_asked_for_by_several_is_one():
    """It is made when somebody asks first."""
    kept = {}

    def ask(k, generators):
        kept[k] = [g.gi_frame for g in generators]

    for _ in range(30):
        generators = tuple(begun(accumulator) for _ in range(3000))
        queue = transaction.TransactionQueue()
        for k in range(4):
            queue.add(ask, k, generators)
        queue.run()
        assert all(len({id(kept[k][i]) for k in kept}) == 1 for i in range(len(generators)))


def test_generator_over_a_shared_list_that_grows():
    things = [1, 2]

    def over():
        for x in things:
            yield x

    def grow(g):
        things.append(3)
        next(g)
        things.append(4)
        next(g)

    run(lambda: list(over()))
    g = run(begun, over)
    assert check(grow, g, rest=list) == [2]
    assert things == [1, 2]


ITERATORS = {
    "list": lambda: iter([1, 2, 3, 4, 5]),
    "tuple": lambda: iter((1, 2, 3, 4)),
    "str": lambda: iter("abcde"),
    "bytes": lambda: iter(b"abcde"),
    "bytearray": lambda: iter(bytearray(b"abcde")),
    "range": lambda: iter(range(5)),
    "long range": lambda: iter(range(2**70, 2**70 + 5)),
    "dict": lambda: iter({1: 2, 3: 4, 5: 6}),
    "items": lambda: iter({1: 2, 3: 4, 5: 6}.items()),
    "values": lambda: iter({1: 2, 3: 4, 5: 6}.values()),
    "reversed dict": lambda: reversed({1: 2, 3: 4, 5: 6}),
    "OrderedDict": lambda: iter(OrderedDict({1: 2, 3: 4, 5: 6})),
    "OrderedDict of what can be called": lambda: iter(OrderedDict.fromkeys([weakref.ref(loop_over_list), len, loop_over_list, print])),
    "set": lambda: iter({1, 2, 3, 4}),
    "frozenset": lambda: iter(frozenset((1, 2, 3))),
    "deque": lambda: iter(deque("abcd")),
    "reversed deque": lambda: reversed(deque("abcd")),
    "enumerate": lambda: enumerate("abcde", 5),
    "zip": lambda: zip("abcde", [1, 2, 3, 4, 5]),
    "zip of iterators": lambda: zip(iter("abcde"), enumerate("xyzuv")),
    "map": lambda: map(str, [1, 2, 3, 4]),
    "map of an iterator": lambda: map(str, iter([1, 2, 3, 4])),
    "filter": lambda: filter(None, iter([1, 0, 2, 0, 3, 4])),
    "reversed": lambda: reversed([1, 2, 3, 4]),
    "count": lambda: itertools.islice(itertools.count(3), 6),
    "chain": lambda: itertools.chain([1, 2], iter([3]), "ab"),
    "chain of iterables": lambda: itertools.chain.from_iterable(iter([[1, 2], [3], "ab"])),
    "cycle": lambda: itertools.islice(itertools.cycle("ab"), 7),
    "repeat": lambda: itertools.repeat("x", 6),
    "takewhile": lambda: itertools.takewhile(bool, iter([1, 2, 3, 0, 4])),
    "dropwhile": lambda: itertools.dropwhile(operator.not_, iter([0, 0, 1, 2, 3])),
    "starmap": lambda: itertools.starmap(pow, [(2, 3), (2, 4), (2, 5)]),
    "accumulate": lambda: itertools.accumulate([1, 2, 3, 4]),
    "product": lambda: itertools.product("ab", repeat=2),
    "permutations": lambda: itertools.permutations("abc"),
    "combinations": lambda: itertools.combinations("abcd", 2),
    "groupby": lambda: (k for k, _ in itertools.groupby("aabbccdd")),
    "pairwise": lambda: itertools.pairwise([1, 2, 3, 4, 5]),
    "filterfalse": lambda: itertools.filterfalse(None, [0, 1, 0, 0, 0]),
    "compress": lambda: itertools.compress("abcdef", [1, 0, 1, 1, 1, 1]),
    "batched": lambda: itertools.batched("abcdefg", 2),
    "tee": lambda: itertools.tee(iter("abcd"))[0],
    "islice of a generator": lambda: itertools.islice(loop_over_list(), 3),
    "enumerate of a generator": lambda: enumerate(loop_over_list()),
    "callable": lambda: iter(iter([1, 2, 3, 0, 4]).__next__, 0),
    "csv": lambda: csv.reader(iter(["a,b\n", '"two\n', 'lines",' + 5000 * "x" + "\n", "c\n", '"not ended\n'])),
}


@pytest.mark.parametrize("name", ITERATORS)
@pytest.mark.parametrize("advance", [steps(1), steps(2), exhaust, list], ids=["one", "two", "loop", "list"])
@pytest.mark.parametrize("start", [0, 1], ids=["new", "begun"])
def test_iterator(name, advance, start):
    def make():
        iterator = ITERATORS[name]()
        for _ in range(start):
            next(iterator)
        return iterator

    expected = list(make())
    for _ in range(2):  # the first time it may have to run alone
        done, left = rolled_back(advance, make(), rest=list)
        if done:
            assert left == expected


@pytest.mark.parametrize("name", ["list", "dict", "items", "set", "enumerate", "zip", "map", "filter", "reversed", "chain", "csv"])
def test_common_iterators_need_not_run_alone(name):
    def make():
        return ITERATORS[name]()

    expected = list(make())
    for _ in range(2):
        check(steps(2), run(make), rest=list)
    assert check(steps(2), run(make), rest=list) == expected


ZIP_LONGEST = """
import itertools
from tornado.stm import activation, core
from tornado.stm.core import trusted
activation.activate()
attempts = []
@trusted
def end():
    attempts.append(1)
    if len(attempts) == 1 and not core.is_exclusive():
        raise core.Abort
def exhaust(pairs):
    result = list(pairs)
    end()
    return result
pairs = itertools.zip_longest("abcd", "ab")
print(core.Transaction(exhaust, (pairs,)).run() == list(itertools.zip_longest("abcd", "ab")))
"""


def test_zip_longest():
    done = subprocess.run([sys.executable, "-c", ZIP_LONGEST], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_iterators_made_outside_that_call_c_functions():
    for make in (lambda xs: map(xs.append, [1, 2]), lambda xs: filter(xs.append, [1, 2]), lambda xs: iter(xs.pop, 0.5)):
        things = floats(5)
        before = list(things)
        iterator = make(things)
        if rolled_back(lambda iterator: next(iterator, None), iterator, rest=lambda iterator: None)[0]:
            assert things == before


def test_default_factories_that_are_c_functions():
    ids = defaultdict(itertools.count().__next__)
    if rolled_back(lambda ids: (ids["a"], ids["b"]), ids)[0]:
        assert run(lambda ids: ids["c"], ids) == 0
    things = floats(3)
    popped = defaultdict(things.pop)
    if rolled_back(lambda popped: popped["a"], popped)[0]:
        assert things == floats(3)


def test_suspended_generators_of_an_aborted_attempt_die_silently():
    closed = []

    def with_finally():
        try:
            yield 1
        finally:
            closed.append(1)

    async def with_await():
        try:
            await pause(1)
        finally:
            closed.append(1)

    def start():
        generator, coroutine = with_finally(), with_await()
        next(generator)
        coroutine.send(None)

    run(start)
    closed.clear()
    check(start)
    assert closed == []
    assert unraisable == []


def test_count_is_put_back():
    numbers = itertools.count(5)
    assert rolled_back(steps(3), numbers, rest=next) in ((True, 5), (False, None))


# ---- Coroutines ------------------------------------------------------------------------------------------------------


@types.coroutine
def pause(value):
    return (yield value)


async def add_up(n):
    total = 0
    for i in list(range(n)):
        total += await pause((i, total))
    return total


async def over_range(n):
    total = 0
    for i in range(n):
        total += await pause((i, total))
    return total


async def nested():
    first = await add_up(2)
    second = await add_up(2)
    return first, second


class Manager:
    def __init__(self):
        self.log = []

    async def __aenter__(self):
        await pause("enter")
        self.log.append("enter")
        return self

    async def __aexit__(self, *exc):
        await pause("exit")
        self.log.append("exit")


async def numbers(n):
    for i in list(range(n)):
        await pause(("number", i))
        yield i


async def async_for():
    seen = []
    async for i in numbers(3):
        seen.append(i)
        await pause(tuple(seen))
    return seen


async def async_with():
    manager = Manager()
    async with manager:
        await pause(tuple(manager.log))
    return manager.log


async def async_comprehension():
    return [i async for i in numbers(3) if await pause(i) is not None]


async def with_await_in_handler():
    try:
        await pause("before")
        raise KeyError("k")
    except KeyError as e:
        await pause("in handler")
        return str(e)
    finally:
        await pause("finally")


async def gathered():
    return [await pause(i) for i in (0, 1, 2)]


COROUTINES = [
    lambda: add_up(4), lambda: over_range(4), nested, async_for, async_with, async_comprehension, with_await_in_handler,
    gathered,
]
COROUTINE_IDS = "loop range nested async_for async_with async_comprehension handler comprehension".split()


def finish(coroutine):
    """What the coroutine yields from here on, and what it returns."""
    seen = []
    try:
        while True:
            seen.append(coroutine.send(len(seen)))
    except StopIteration as e:
        return seen, e.value


def begun_coroutine(function, n):
    coroutine = function()
    coroutine.send(None)
    for _ in range(n):
        coroutine.send(1)
    return coroutine


@pytest.mark.parametrize("function", COROUTINES, ids=COROUTINE_IDS)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("how", ["one", "two", "finish", "throw", "close"])
def test_coroutine(function, start, how):
    def advance(coroutine):
        if how == "one":
            coroutine.send(10)
        elif how == "two":
            for i in range(2):
                try:
                    coroutine.send(20)
                except StopIteration:
                    pass
        elif how == "finish":
            finish(coroutine)
        elif how == "throw":
            try:
                coroutine.throw(ZeroDivisionError("thrown"))
            except ZeroDivisionError:
                pass
        else:
            try:
                coroutine.close()
            except RuntimeError:
                pass  # it awaits in its finally block

    for _ in range(2):
        rolled_back(advance, run(begun_coroutine, function, start), rest=finish)
    expected = run(finish, run(begun_coroutine, function, start))
    done, left = rolled_back(advance, run(begun_coroutine, function, start), rest=finish)
    if done:
        assert left == expected


@pytest.mark.parametrize("function", COROUTINES, ids=COROUTINE_IDS)
def test_common_coroutines_need_not_run_alone(function):
    for _ in range(2):
        rolled_back(finish, run(begun_coroutine, function, 0), rest=finish)
    check(finish, run(begun_coroutine, function, 0), rest=finish)


@pytest.mark.parametrize("function", COROUTINES, ids=COROUTINE_IDS)
def test_coroutine_interrupted_anywhere(function):
    run(finish, run(begun_coroutine, function, 0))
    for seed in range(12):
        expected = run(finish, run(begun_coroutine, function, 0))
        done, left = rolled_back(finish, run(begun_coroutine, function, 0), rest=finish, inject=0.1, seed=seed)
        if done:
            assert left == expected


async def interrupted(seen):
    try:
        for i in range(4):
            await pause(("number", i))
            yield i
    except KeyError as e:
        seen.append(e.args)
        await pause("caught")
        yield "caught"
    finally:
        if "over" not in seen:  # then nobody awaits it any more
            await pause("ends")
        seen.append("ended")


def told(function, *args):
    """What a step of an awaitable comes to."""
    try:
        return function(*args)
    except StopIteration as e:
        return "value", e.value
    except (StopAsyncIteration, RuntimeError, GeneratorExit, KeyError) as e:
        return type(e), e.args


#: what is awaited by hand, as a task does that is made of it
AWAITED = {
    "asend": lambda generator: generator.asend(None),
    "anext": lambda generator: generator.__anext__(),
    "anext with a default": lambda generator: anext(generator, "over"),
    "athrow": lambda generator: generator.athrow(KeyError("thrown")),
    "aclose": lambda generator: generator.aclose(),
    "await": lambda generator: generator.asend(None).__await__(),
    "coroutine": lambda generator: finish_of(generator).__await__(),
}


async def finish_of(generator):
    async for i in generator:
        await pause(i)


def one_step(state):
    return told(state["awaited"].send, None)


def thrown_into(state):
    return told(state["awaited"].throw, KeyError("into it")), one_step(state)


def closed(state):
    return told(state["awaited"].close), one_step(state)


def rest_of(state):
    steps = [one_step(state) for _ in range(3)]
    seen = state["seen"].copy()
    anew = [told(state["generator"].asend(None).send, None) for _ in range(3)]
    state["seen"].append("over")
    return steps, seen, anew, state["seen"].copy()


@pytest.mark.parametrize("step", [one_step, thrown_into, closed])
@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("kind", AWAITED)
def test_what_is_awaited_by_hand_need_not_run_alone(kind, begun, step):
    def start():
        generator = interrupted(seen := [])
        told(generator.asend(None).send, None)
        awaitable = generator.asend(None)
        told(awaitable.send, None), told(awaitable.send, None)
        state = {"generator": generator, "seen": seen, "awaited": AWAITED[kind](generator)}
        for _ in range(begun):
            one_step(state)
        return state

    def all_of_it(state):
        return step(state), rest_of(state)

    expected = run(all_of_it, run(start))
    assert check(step, run(start), rest=all_of_it) == expected
    for seed in range(6):
        done, left = rolled_back(step, run(start), rest=all_of_it, inject=0.1, seed=seed)
        assert (done, left) == (True, expected)


def test_coroutine_on_an_event_loop_still_runs():
    async def main():
        return [await asyncio.sleep(0, i) for i in range(3)]

    assert asyncio.run(main()) == [0, 1, 2]


# ---- Instructions that begin again -------------------------------------------------------------------------------------


def call_0(function):
    return function()


def call_1(function):
    return function(1)


# What a call may have been specialised for, by how many arguments it has: it falls back to the general one then.
EARLIER_CALLS = {call_0: [lambda: [1].pop, lambda: [].sort, lambda: {1: 1}.popitem, lambda: dict],
                 call_1: [lambda: [].append, lambda: {}.get, lambda: round, lambda: range]}
CHANGING_CALLS = [
    (call_0, lambda: deque([1, 2, 3]), "pop"), (call_0, lambda: deque([1, 2, 3]), "popleft"),
    (call_1, lambda: deque([1, 2, 3]), "append"), (call_1, lambda: deque([1, 2, 3]), "appendleft"),
    (call_0, lambda: list(range(100)), "pop"), (call_1, lambda: list(range(100)), "append"),
    (call_0, lambda: {1: 2, 3: 4}, "popitem"), (call_1, lambda: {1: 2, 3: 4}, "pop"), (call_1, lambda: {3: 4}, "setdefault"),
    (call_0, lambda: {1, 2, 3}, "pop"), (call_1, lambda: {2, 3}, "add"), (call_1, lambda: {1, 2, 3}, "discard"),
]


@pytest.mark.parametrize("template, make, name", CHANGING_CALLS, ids=lambda x: x if isinstance(x, str) else "")
def test_an_attempt_ends_while_a_call_falls_back_to_its_general_form(template, make, name):
    """The first barrier has logged how to undo what the second one then does not let happen."""
    n_done = 0
    for earlier, seed in itertools.product(EARLIER_CALLS[template], range(200)):
        call = types.FunctionType(template.__code__.replace(), {})
        for _ in range(20):
            call(earlier())
        done, left = rolled_back(lambda c: call(getattr(c, name)), make(), rest=list, inject=0.1, seed=seed)
        if done:
            assert left == list(make())
            n_done += 1
    assert n_done > 0


@pytest.mark.parametrize("name, args", [("pop", (1,)), ("popleft", (1,)), ("append", ()), ("appendleft", (1, 2))])
def test_a_call_of_a_deque_that_raises_has_changed_nothing(name, args):
    def mutate(line):
        with pytest.raises(TypeError):
            getattr(line, name)(*args)

    assert check(mutate, deque([1, 2, 3]), rest=list) == [1, 2, 3]


def test_what_an_aborted_attempt_was_handling_is_gone_at_once():
    """An exception, its traceback and the frame that handles it refer to each other, until the handler ends."""
    shared, attempts = bytearray(b"shared"), []

    def look_into(view):
        return {}[len(view)]

    def attempt():
        no_more_aborts()
        if begins(attempts):
            try:
                look_into(memoryview(shared))
            except KeyError as e:
                kept = [e]
                abort(attempts)
                return kept

    gc.disable()
    try:
        run(attempt)
        assert attempts == ["attempt", "attempt"]
        shared.clear()  # raises BufferError while there is a view
    finally:
        gc.enable()


# ---- Memory ----------------------------------------------------------------------------------------------------------


def aborted_work():
    thing = Thing(a=1, b=2)
    things, table, crowd, line = [1.5] * 80, {"a": 1, "b": 2, "c": 3}, {1, 2, 3}, deque([1, 2, 3])
    g = begun(loop_over_zip)
    coroutine = nested()
    coroutine.send(None)
    n = 0

    def work():
        nonlocal n
        n += 1
        thing.a = [n]
        thing.new = object()
        things.append(Thing())
        things[3] = object()
        things.pop(0)
        table["a"] = []
        table["d"] = Thing()
        del table["b"]
        crowd.add("x")
        crowd.discard(1)
        line.append([1])
        line.popleft()
        line.rotate(1)
        next(g)
        coroutine.send(1)
        thing.b = {"a": [things, table]}

    return work


def allocated():
    gc.collect()
    return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_abort_cycles_do_not_grow():
    cycles = []

    @trusted
    def abort_often(limit):
        if core.is_exclusive():
            return
        cycles.append(1)
        if len(cycles) % limit:
            raise Abort

    def cycle(transactions):
        for _ in range(transactions):
            work = run(aborted_work)

            def attempts():
                work()
                abort_often(20)

            core.Transaction(attempts, ()).run()
        cycles.clear()

    cycle(100)
    blocks, memory = allocated()
    aborts = core.stats()["aborts"]
    cycle(1050)
    assert core.stats()["aborts"] - aborts >= 19_900
    blocks_now, memory_now = allocated()
    assert blocks_now - blocks < 2_000
    assert memory_now - memory < 16 * 1024


# ---- Concurrent histories ----------------------------------------------------------------------------------------------


@pytest.fixture
def injected():
    """Sets the number of threads and the rate of injected aborts; both are put back."""

    def begin(threads, seed):
        transaction.set_threads(threads)
        core.inject_aborts(0.01, seed)

    yield begin
    core.inject_aborts(0, 0)
    transaction.set_threads(None)


def run_all(tasks):
    queue = transaction.TransactionQueue()
    for task in tasks:
        queue.add(*task)
    queue.run()


class Recorded:
    """A container and the history of what was done to it, in the order of commits."""

    def __init__(self, content):
        self.content = content
        self.history = []


def apply_operation(content, name, argument):
    try:
        if name == "len":
            return len(content)
        if name == "all":
            return list(content)
        if name == "get":
            return content[argument % len(content)] if content else None
        if name == "set" and content:
            content[argument % len(content)] = argument
            return None
        if name == "delete" and content:
            del content[argument % len(content)]
            return None
        if name == "key":
            return content.get(argument % 7)
        if name == "put":
            content[argument % 7] = argument
            return None
        if name == "drop":
            return content.pop(argument % 7, None)
        if name == "items":
            return list(content.items())
        if name == "contains":
            return argument % 7 in content
        if name in ("append", "appendleft", "add", "discard", "remove"):
            return getattr(content, name)(argument % 7)
        if name in ("pop", "popleft", "popitem", "clear", "reverse"):
            return getattr(content, name)()
        if name == "rotate":
            return content.rotate(argument % 3)
        if name == "extend":
            return content.extend([argument, argument + 1])
    except (IndexError, KeyError, ValueError) as e:
        return type(e).__name__


HISTORIES = {
    list: "len all get set delete append pop extend reverse remove contains append append",
    dict: "len items key put drop put contains popitem put put",
    set: "len contains add discard add remove add",
    deque: "len all append appendleft pop popleft rotate extend contains get set append",
}


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_histories_are_serial(threads, seed, injected):
    """Each transaction works on two containers; replaying the histories one after another gives the same results."""
    choice = random.Random(seed)
    shared = [Recorded(kind()) for kind in HISTORIES for _ in range(2)]

    def work(number, actions):
        for index, name, argument in actions:
            recorded = shared[index]
            result = apply_operation(recorded.content, name, argument)
            recorded.history.append((number, name, argument, result))

    tasks = []
    for number in range(400):
        actions = []
        for index in choice.sample(range(len(shared)), 2):
            name = choice.choice(HISTORIES[type(shared[index].content)].split())
            actions.append((index, name, choice.randrange(100)))
        tasks.append((work, number, actions))
    injected(threads, seed)
    run_all(tasks)
    core.inject_aborts(0, 0)
    follows = collections.defaultdict(set)
    for recorded in shared:
        model = type(recorded.content)()
        for number, name, argument, result in recorded.history:
            assert apply_operation(model, name, argument) == result
        assert model == recorded.content
        assert list(model) == list(recorded.content) or isinstance(model, set)
        for (before, *_), (after, *_) in itertools.pairwise(recorded.history):
            follows[after].add(before)
    assert sum(len(recorded.history) for recorded in shared) == 800
    import graphlib

    list(graphlib.TopologicalSorter(follows).static_order())


@pytest.mark.parametrize("threads", [2, 4])
def test_sums_stay(threads, injected):
    """Transfers between accounts of every shape, and readers who must never see money on its way."""
    accounts = {"dict": {i: 100 for i in range(20)}, "list": [100] * 20, "things": [Thing(value=100) for _ in range(20)]}
    wrong = []

    @trusted
    def report(total):
        wrong.append(total)

    def transfer(kind, a, b, amount):
        if kind == "things":
            accounts[kind][a].value -= amount
            accounts[kind][b].value += amount
        else:
            accounts[kind][a] -= amount
            accounts[kind][b] += amount

    def look(kind):
        if kind == "dict":
            total = sum(accounts[kind].values())
        elif kind == "list":
            total = sum(accounts[kind])
        else:
            total = 0
            for each in accounts[kind]:
                total += each.value
        if total != 2000:
            report((kind, total))

    choice = random.Random(threads)
    tasks = []
    for i in range(900):
        kind = choice.choice(list(accounts))
        if i % 10 == 0:
            tasks.append((look, kind))
        else:
            tasks.append((transfer, kind, choice.randrange(20), choice.randrange(20), choice.randrange(50)))
    injected(threads, threads)
    run_all(tasks)
    assert wrong == []
    assert sum(accounts["dict"].values()) == sum(accounts["list"]) == 2000
    assert sum(each.value for each in accounts["things"]) == 2000
    assert list(accounts["dict"]) == list(range(20))


@pytest.mark.parametrize("threads", [2, 4])
def test_elements_move_and_are_never_lost(threads, injected):
    """Tokens wander between containers of every kind; each is always in exactly one."""
    places = [list(range(10)), deque(range(10, 20)), set(range(20, 30)), dict.fromkeys(range(30, 40)), Thing()]

    def take(place, n):
        if not isinstance(place, Thing) and not place:
            return None
        if isinstance(place, list):
            return place.pop(n % len(place))
        if isinstance(place, deque):
            return place.popleft() if n % 2 else place.pop()
        if isinstance(place, set):
            return place.pop()
        if isinstance(place, dict):
            key = next(iter(place))
            del place[key]
            return key
        for name in list(vars(place)):
            value = getattr(place, name)
            delattr(place, name)
            return value
        return None

    def give(place, token):
        if isinstance(place, (list, deque)):
            place.append(token)
        elif isinstance(place, set):
            place.add(token)
        elif isinstance(place, dict):
            place[token] = None
        else:
            setattr(place, f"t{token}", token)

    def move(a, b, n):
        token = take(places[a], n)
        if token is not None:
            give(places[b], token)

    choice = random.Random(threads)
    tasks = [(move, choice.randrange(5), choice.randrange(5), choice.randrange(10)) for _ in range(600)]
    injected(threads, threads)
    run_all(tasks)
    tokens = [*places[0], *places[1], *places[2], *places[3], *vars(places[4]).values()]
    assert sorted(tokens) == list(range(40))


@pytest.mark.parametrize("threads", [2, 4])
def test_inserted_keys_come_in_the_order_of_commits(threads, injected):
    table, order = {}, itertools.count()
    committed = []

    @trusted
    def at_commit(key):
        core.defer(committed.append, key)

    def insert(key):
        at_commit(key)
        table[key] = key
        if key % 3 == 0:
            table.pop(key - 3, None)

    injected(threads, 3)
    run_all([(insert, key) for key in range(400)])
    core.inject_aborts(0, 0)
    assert sorted(committed) == list(range(400))
    left = set(table)
    assert list(table) == [key for key in committed if key in left]


@pytest.mark.parametrize("threads", [2, 4])
def test_generators_and_closures_under_aborts(threads, injected):
    def counter():
        n = 0
        while True:
            n += 1
            yield n

    total = 0
    numbers = run(counter)
    got = []

    def draw():
        nonlocal total
        n = next(numbers)
        total += n
        got.append(n)

    injected(threads, 5)
    run_all([(draw,) for _ in range(400)])
    assert got == list(range(1, 401))
    assert total == sum(got)
