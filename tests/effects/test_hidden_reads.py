"""C code that reads more than the values it is given: the size of their memory, who refers to them, what they were made with."""

import contextlib
import contextvars
import copy
import datetime
import decimal
import functools
import hashlib
import inspect
import io
import itertools
import json
import math
import operator
import pickle
import socket
import struct
import sys
import threading
import time
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import ItemsView

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from beside import runs_alone, runs_beside_others
from meeting import ALONE, APART, CONFLICT, meet, run
from tornado.stm._engine import Abort
from tornado.stm.core import trusted

activation.activate()


class Zone(datetime.tzinfo):
    def utcoffset(self, when):
        return None


class OwnGroup(ExceptionGroup):
    def __new__(cls, *args):
        return super().__new__(cls, *args)


class OwnSyntaxError(SyntaxError):
    def __init__(self, *args):
        super().__init__(*args)


class OwnSet(set):
    pass


class OwnDeque(deque):
    pass


class OwnStream(io.BytesIO):
    pass


class OwnBytes(bytearray):
    pass


class OwnFrozen(frozenset):
    pass


class OwnNamespace(types.SimpleNamespace):
    pass


class Returns:
    """What these methods return C code looks into."""

    def __init__(self, value):
        self.value = value

    def returned(self, *_):
        return self.value

    def __dir__(self):
        return self.returned()

    def __buffer__(self, flags):
        return self.returned()

    def __iter__(self):
        yield self.returned()


class Decides(type):
    def __instancecheck__(cls, obj):
        return obj.value

    def __subclasscheck__(cls, other):
        return other.value


class Decided(metaclass=Decides):
    pass


class OtherItems(dict):
    """Has items that C code asks for, and not its own."""

    def __init__(self, other):
        super().__init__(a=1)
        self.other = other

    def items(self):
        return self.other.items() if isinstance(self.other, dict) else self.other


def class_with(value):
    return type("WithValue", (), {"value": value})


def merge(container, other):
    container |= other


def first_byte(memory, *_):
    memory[0] = 65


def buffered():
    memory = bytearray(b"abcd")
    return memory, memoryview(memory)


def second_item(row, *_):
    row[1] = 5


def set_note(obj, *_):
    obj.note = 1


def reads_state(cls, reduce=None):
    return lambda: (cls(),), set_note, lambda obj: (reduce or cls.__reduce__)(obj)


MODULES = [types.ModuleType("made_for_hidden_reads") for _ in range(2)]


def module_dict():
    sys.modules["made_for_hidden_reads"] = MODULES[0]
    return (sys.modules,)


def replace_module(modules):
    modules["made_for_hidden_reads"] = MODULES[1]


def import_it(modules):
    import made_for_hidden_reads

    return made_for_hidden_reads


def a_socket():
    return (socket.socket(),)


def counting():
    x = 0
    while True:
        x += 1
        yield x


def suspended():
    g = run(counting)
    run(next, g)
    return g, g.gi_frame


def about_to_end():
    def once():
        x = 1
        yield
        x = 2

    g = run(once)
    run(next, g)
    return g, g.gi_frame


def enclosing():
    x = 1

    def change():
        nonlocal x
        x += 1

    return change, sys._getframe()


#: ways to see the variables of a frame
VARIABLES = {
    "by their names": lambda view: (view["x"], view.get("x")),
    "all": lambda view: (list(view.items()), list(view.values())),
    "copied": lambda view: (dict(view), {**view}),
    "copied by itself": lambda view: view.copy(),
    "printed": repr,
    "merged": lambda view: view | {},
    "one by one": lambda view: [view[name] for name in view],
}

class Slotted:
    __slots__ = ("x", "y")

    def __init__(self):
        self.x = self.y = 0


class Derived(Slotted):
    __slots__ = ()

    def by_call(self):
        return getattr(super(), "x")

    def by_object(self):
        inherited = super(Derived, self)
        return inherited.x

    def by_getter(self):
        return operator.attrgetter("x")(super())

    def by_question(self):
        return hasattr(super(), "x")

    def other(self):
        return getattr(super(), "y")


class OwnSuper(super):
    pass


def set_x(obj):
    obj.x += 1


VARIABLE = contextvars.ContextVar("VARIABLE")


def shared_list(around):
    """What makes a list and something with that inside."""
    def make():
        inside = [1]
        return inside, around(inside)

    return make


def in_contexts(inside):
    """Two contexts, in which the variable has the list, and one that is equal."""
    first, second = contextvars.Context(), contextvars.Context()
    first.run(VARIABLE.set, inside)
    second.run(VARIABLE.set, [1])
    return first, second


def token():
    context = contextvars.Context()
    return context, context.run(VARIABLE.set, 1)


def named():
    def f():
        pass

    return (f,)


def lacking():
    """An exception, and an object that raises it when it is asked for anything."""
    error = AttributeError()

    class Lacking:
        def __getattr__(self, name):
            raise error

    return error, Lacking()


def miss(_, obj):
    with contextlib.suppress(AttributeError):
        obj.missing


DESCRIPTION = ["__doc__", "__module__", "__name__", "__qualname__"]


def append(inside, _):
    inside.append(2)


#: C objects around others, and ways to see what is in these
AROUND = {
    "the text of a partial": (lambda inside: functools.partial(print, inside), repr),
    "the text of a partial, of what it names": (lambda inside: functools.partial(print, sep=inside), repr),
    "a partial in a text": (lambda inside: functools.partial(print, inside), lambda p: f"{p}"),
    "a partial in a text with %": (lambda inside: functools.partial(print, inside), lambda p: "%s" % p),
    "a list with a partial in a text": (lambda inside: [functools.partial(print, inside)], lambda p: f"{p}"),
    "the text of a bound method": (lambda inside: types.MethodType(print, inside), repr),
    "the text of an itemgetter": (lambda inside: operator.itemgetter(inside), repr),
    "the text of a methodcaller": (lambda inside: operator.methodcaller("x", inside), repr),
    "the text of a staticmethod": (staticmethod, repr),
    "the text of a classmethod": (classmethod, repr),
    "the text of a generic alias": (lambda inside: types.GenericAlias(list, (inside,)), repr),
    "generic aliases compared": (lambda inside: types.GenericAlias(list, (inside,)), lambda a: a == types.GenericAlias(list, ([1],))),
    "the text of a union": (lambda inside: int | types.GenericAlias(list, (inside,)), repr),
    "the text of a slice": (slice, repr),
    "slices compared": (slice, lambda s: s == slice([1])),
    "a slice looked for": (slice, lambda s: s in [slice([1])]),
    "the text of what is repeated": (itertools.repeat, repr),
    "the text of a context variable": (lambda inside: contextvars.ContextVar("v", default=inside), repr),
    "contexts compared": (in_contexts, lambda contexts: contexts[0] == contexts[1]),
}

#: exceptions, what is assigned to, and how that is seen
SHOWN = {
    "the text of a SyntaxError": (lambda: SyntaxError("a"), "msg", "b", str),
    "a SyntaxError in a text": (lambda: SyntaxError("a"), "lineno", 3, lambda e: f"{e}"),
    "the text of an ImportError": (lambda: ImportError("a"), "msg", "b", str),
    "the text of a UnicodeDecodeError": (lambda: UnicodeDecodeError("a", b"b", 0, 1, "c"), "reason", "b", str),
    "the text of a UnicodeEncodeError": (lambda: UnicodeEncodeError("a", "b", 0, 1, "c"), "end", 0, str),
    "the text of an OSError": (lambda: OSError(1, "b", "c"), "errno", 5, str),
    "the second file in an OSError": (lambda: OSError(1, "b", "c", None, "d"), "filename2", "e", str),
}

#: name -> what makes the objects, what changes them, and what sees the change
HIDDEN = {
    **{name: (shared_list(around), append, lambda inside, obj, see=see: see(obj)) for name, (around, see) in AROUND.items()},
    **{name: (lambda make=make: (make(),), lambda e, field=field, value=value: setattr(e, field, value), see)
       for name, (make, field, value, see) in SHOWN.items()},
    **{f"a slot through super() {how}": (lambda: (Derived(),), set_x, see)
       for how, see in [("by a call", Derived.by_call), ("kept", Derived.by_object), ("by an attrgetter", Derived.by_getter),
                        ("asked for", Derived.by_question), ("of a class of its own", lambda d: OwnSuper(Derived, d).x)]},
    "the keywords of a partial in its text": (
        lambda: (functools.partial(int, a=1),), lambda p: p.keywords.update(a=2), repr),
    "weak references compared": (
        lambda: ((a := OwnSet(), b := OwnSet()), weakref.ref(a), weakref.ref(b)), lambda sets, r, s: sets[0].add(1), lambda sets, r, s: r == s),
    "a weak reference looked for": (
        lambda: ((a := OwnSet(), b := OwnSet()), weakref.ref(a), weakref.ref(b)), lambda sets, r, s: sets[0].add(1), lambda sets, r, s: r in [s]),
    "the text of a weak reference": (
        lambda: (n := named()[0], weakref.ref(n)), lambda n, r: setattr(n, "__name__", "b"), lambda n, r: repr(r)),
    **{f"an attribute of what a weak proxy refers to, by {how}": (
        lambda: (n := OwnNamespace(a=1), weakref.proxy(n)), lambda n, p: setattr(n, "a", 2), see) for how, see in {
        "name": lambda n, p: p.a, "getattr": lambda n, p: getattr(p, "a"),  # noqa: B009
        "hasattr": lambda n, p: hasattr(p, "a"), "a getter": lambda n, p: operator.attrgetter("a")(p)}.items()},
    **{f"what a pickled {name} refers to": (lambda kept=kept, make=make: (kept(), make), change, lambda o, make: pickle.dumps(make(o)))
       for name, kept, make, change in [
        ("method of a list", lambda: [1], lambda l: l.append, lambda l, make: l.append(2)),
        ("list of methods", lambda: [1], lambda l: [l.append], lambda l, make: l.append(2)),
        ("slot of a list", lambda: [1], lambda l: l.__len__, lambda l, make: l.append(2)),
        ("datetime", Zone, lambda zone: datetime.datetime(2026, 1, 1, tzinfo=zone), lambda zone, make: setattr(zone, "a", 2)),
        ("time", Zone, lambda zone: [datetime.time(tzinfo=zone)], lambda zone, make: setattr(zone, "a", 2))]},
    **{f"what {name} is made of": (make, change, see) for name, make, change, see in [
        ("a group of exceptions", lambda: ([KeyError(1)],), lambda l: l.append(KeyError(2)), lambda l: ExceptionGroup("group", l)),
        ("a group by its __new__", lambda: ([KeyError(1)],), lambda l: l.append(KeyError(2)), lambda l: OwnGroup("group", l)),
        ("a SyntaxError", lambda: (["file", 1, 2, "text"],), second_item, lambda l: SyntaxError("message", l)),
        ("a derived SyntaxError", lambda: (["file", 1, 2, "text"],), second_item, lambda l: OwnSyntaxError("message", l)),
        ("a UnicodeDecodeError", lambda: (bytearray(b"abc"),), first_byte, lambda b: UnicodeDecodeError("utf-8", b, 0, 1, "reason"))]},
    "the lists that are multiplied": (lambda: ([1],), lambda l: l.append(2), lambda l: math.prod([l])),
    "the list that is multiplied first": (lambda: ([1],), lambda l: l.append(2), lambda l: math.prod([2], start=l)),
    "the text of a token": (token, lambda context, t: context.run(VARIABLE.reset, t), lambda context, t: repr(t)),
    "the text of a suspended generator's frame": (suspended, lambda g, f: next(g), lambda g, f: repr(f)),
    "the text of a function": (named, lambda f: setattr(f, "__qualname__", "g"), repr),
    "the text of a method of a function": (named, lambda f: setattr(f, "__qualname__", "g"), lambda f: repr(types.MethodType(f, 1))),
    "the size of a list": (lambda: ([],), lambda l: l.extend(range(100)), sys.getsizeof),
    "the size of a dict": (lambda: ({},), lambda d: d.update(dict.fromkeys(range(100))), sys.getsizeof),
    "the size of a set": (lambda: (set(),), lambda s: s.update(range(100)), sys.getsizeof),
    "the size of a deque": (lambda: (deque(),), lambda d: d.extend(range(100)), sys.getsizeof),
    "the size of a bytearray": (lambda: (bytearray(),), lambda b: b.extend(bytes(100)), sys.getsizeof),
    "what a set is reduced to": reads_state(OwnSet),
    "what a frozenset is reduced to": reads_state(OwnFrozen),
    "what a deque is reduced to": reads_state(OwnDeque),
    "what a bytearray is reduced to": reads_state(OwnBytes),
    "what a bytearray is reduced to for a protocol": reads_state(OwnBytes, lambda b: bytearray.__reduce_ex__(b, 2)),
    "what a tzinfo is reduced to": reads_state(Zone),
    "what an exception is reduced to": reads_state(ValueError),
    "what a partial is reduced to": (
        lambda: (functools.partial(int),), set_note, lambda p: functools.partial.__reduce__(p)),
    "a reversed proxy": (
        lambda: ({1: 2},), lambda d: d.update({3: 4}), lambda d: list(types.MappingProxyType(d).__reversed__())),
    "the mapping of a namespace": (
        lambda: ({"a": 1},), lambda d: d.update(a=2), lambda d: types.SimpleNamespace(d)),
    "the digits of a decimal": (
        lambda: ([1, 2],), lambda digits: digits.append(3),
        lambda digits: decimal.Context().create_decimal((0, digits, 0))),
    "whether a view has been released": (
        lambda: (memoryview(b"abc"),), lambda view: view.release(), lambda view: contextlib.suppress(view.nbytes)),
    **{f"the attributes of a derived namespace, {how}": (lambda: (OwnNamespace(a=1), OwnNamespace(a=1)), set_note, see) for how, see in {
        "printed": lambda o, p: repr(o), "in a text": lambda o, p: f"{o}", "compared": lambda o, p: o == p, "in a list": lambda o, p: str([o]),
        "compared in a list": lambda o, p: [o] == [p]}.items()},
    **{f"the memory of a bytearray, {how}": (lambda: (bytearray(b"abcd"),), first_byte, see) for how, see in {
        "packed": lambda b: struct.pack_into("4s", bytearray(4), 0, b),
        "packed by a Struct": lambda b: struct.Struct("4s").pack_into(bytearray(4), 0, b),
        "written as a line": lambda b: io.BytesIO().writelines([b]),
        "from hexadecimal digits": lambda b: bytearray.fromhex(b),
        "made a table": lambda b: bytearray.maketrans(b, b"abcd"),
        "as one of several beginnings": lambda b: bytearray(b"abc").startswith((b, b"x")),
        "as one of several ends": lambda b: bytearray(b"abc").endswith((b, b"x")),
        "as an address": socket.inet_ntoa, "as an address of a family": lambda b: socket.inet_ntop(socket.AF_INET, b),
    }.items()},
    **{f"the memory that __buffer__ gives, {how}": (buffered, first_byte, lambda _, view, see=see: see(Returns(view))) for how, see in {
        "copied": bytes, "unpacked": lambda b: struct.unpack("4s", b), "joined": lambda b: b"".join([b]),
        "written": lambda b: io.BytesIO().write(b), "hashed": lambda b: hashlib.sha256(b)}.items()},
    **{f"the rows that {how} takes": (lambda: (["a", 1],), second_item, see) for how, see in {
        "|=": lambda row: merge({}, [row]), "|= of an OrderedDict": lambda row: merge(OrderedDict(), (row,)),
        "__ior__": lambda row: {}.__ior__([row]), "operator.ior": lambda row: operator.ior({}, [row])}.items()},
    **{f"a set for which a frozenset is {how}": (lambda: ({1}, {frozenset([1])}), lambda s, sets: s.add(5), see) for how, see in {
        "looked": lambda s, sets: s in sets, "looked for by a method": lambda s, sets: sets.__contains__(s),
        "looked for in what is new": lambda s, sets: s in set(sets), "discarded": lambda s, sets: sets.discard(s),
        "looked for in a frozenset": lambda s, sets: s in frozenset(sets),
        "discarded from what is new": lambda s, sets: set(sets).discard(s)}.items()},
    "the items that a dict says it has": (lambda: ([("k", 1)],), lambda rows: rows.append(("l", 2)), lambda rows: json.dumps(OtherItems(rows))),
    "the items of another dict": (lambda: ({"k": 1},), lambda d: d.update(k=2), lambda d: json.dumps(OtherItems(d), indent=1, sort_keys=True)),
    "what is in the items of another dict": (lambda: ([1],), lambda l: l.append(2), lambda l: json.dumps(OtherItems([("k", l)]))),
    "the names that __dir__ gives": (lambda: (["a"],), lambda names: names.append("b"), lambda names: dir(Returns(names))),
    "the truth of __instancecheck__": (lambda: ([],), lambda l: l.append(1), lambda l: isinstance(Returns(l), Decided)),
    "the truth of __subclasscheck__": (lambda: ([],), lambda l: l.append(1), lambda l: issubclass(class_with(l), Decided)),
    "the imported modules": (module_dict, replace_module, import_it),
    "the imported modules, by a call": (module_dict, replace_module, lambda modules: __import__("made_for_hidden_reads")),
    "whether a stream has been closed": (lambda: (OwnStream(),), lambda stream: stream.close(), lambda stream: stream.closed),
    "the timeout of a socket": (a_socket, lambda s: s.settimeout(5), lambda s: s.gettimeout()),
    "whether a socket blocks": (a_socket, lambda s: s.setblocking(False), lambda s: s.getblocking()),
    "the variables of a generator that ends": (about_to_end, lambda g, f: next(g, None), lambda g, f: f.f_locals["x"]),
    "the line of a generator that ends": (about_to_end, lambda g, f: next(g, None), lambda g, f: f.f_lineno),
    "the text of a generator's frame that ends": (about_to_end, lambda g, f: next(g, None), lambda g, f: repr(f)),
    "what a shared AttributeError says": (lacking, miss, lambda e, _: e.name),
    "what was lacking, in a shared AttributeError": (lacking, lambda e, obj: hasattr(obj, "other"), lambda e, _: e.obj),
    "the first name that a partial adds": (
        lambda: (functools.partial(dict),), lambda p: p.keywords.update(a=1), lambda p: p()),
    "the first name that a partial of a function adds": (
        lambda: (functools.partial(lambda **names: names),), lambda p: p.keywords.update(a=1), lambda p: p()),
    "what a partial of a partial gets": (
        lambda: (functools.partial(dict),), lambda p: p.keywords.update(a=1), lambda p: functools.partial(p, b=1)),
    "whether a partial is made of a partial": (
        lambda: (functools.partial(dict),), set_note, lambda p: functools.partial(p, b=1)),
    "the names of slots": (lambda: (["a"],), lambda l: l.append("b"), lambda l: type("Made", (), {"__slots__": l})),
    "the documented names of slots": (lambda: ({"a": ""},), lambda d: d.update(b=""), lambda d: type("Made", (), {"__slots__": d})),
    **{f"what a {of.__name__} says of itself, {name}": (
        named, lambda f, name=name: setattr(f, name, "other"), lambda f, of=of, name=name: getattr(of(f), name))
       for of, names in {property: ["__doc__", "__name__"], staticmethod: DESCRIPTION, classmethod: DESCRIPTION}.items() for name in names},
    "what a property with a setter says of itself": (
        lambda: (property(*named()), *named()), lambda p, f: setattr(p.fget, "__doc__", "other"), lambda p, f: p.setter(f).__doc__),
    "what makes annotations": (named, lambda f: setattr(f, "__annotations__", {}), lambda f: f.__annotate__),
    "annotations that are made anew": (named, lambda f: setattr(f, "__annotate__", lambda form: {}), lambda f: f.__annotations__),
    "annotations in a signature": (named, lambda f: setattr(f, "__annotations__", {}), inspect.signature),
    "the line of a suspended generator": (suspended, lambda g, f: next(g), lambda g, f: f.f_lineno),
    "the variables of a suspended generator": (suspended, lambda g, f: next(g), lambda g, f: f.f_locals),
    **{f"the variables of a suspended generator, {how}": (suspended, lambda g, f: next(g), lambda g, f, see=see: see(f.f_locals))
       for how, see in VARIABLES.items()},
    **{f"the variables of an enclosing function, {how}": (enclosing, lambda change, f: change(), lambda change, f, see=see: see(f.f_locals))
       for how, see in VARIABLES.items()},
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_read_conflicts_with_a_change(name):
    def see(*objects):
        with contextlib.suppress(ValueError):  # a view that has been released
            HIDDEN[name][2](*objects)

    make, change, _ = HIDDEN[name]
    assert meet(make, change, see) == CONFLICT


def test_texts_of_methods_and_references_conflict_with_no_attribute():
    class Thing:
        def method(self):
            pass

    def see(thing):
        repr(thing.method), repr(weakref.ref(thing)), repr(functools.partial(thing.method, thing)), thing.method == thing.see

    Thing.see = Thing.method
    assert meet(lambda: (Thing(),), set_note, see) == APART


def test_annotations_are_read_beside_each_other():
    def f(a: int): pass

    assert meet(lambda: (f,), lambda f: f.__annotations__, lambda f: (f.__annotations__, f.__annotate__)) == APART


def test_another_slot_through_super_conflicts_with_nothing():
    assert meet(lambda: (Derived(),), set_x, Derived.other) == APART


@pytest.mark.parametrize("name", AROUND)
def test_a_key_that_is_deleted_is_in_no_text(name):
    """Until the commit its place in the dict is kept; C code that looks into the dict is not to find it."""
    around, see = AROUND[name]

    def step(d):
        around_it = around(d)
        del d["a"]
        return see(around_it)

    assert "tornado" not in str(run(step, {"a": 1, "b": 2}))


def test_sizes_of_what_does_not_change_conflict_with_nothing():
    class Thing:
        pass

    assert meet(lambda: (Thing(),), set_note, sys.getsizeof) == APART


@pytest.mark.parametrize("rows", [Returns, lambda row: iter([row]), lambda row: (row for _ in "x"), lambda row: map(list, [row])],
                         ids=["object", "iterator", "generator", "map"])
def test_rows_that_are_not_there_yet_are_taken_alone(rows):
    assert meet(lambda: (["a", 1],), second_item, lambda row: merge({}, rows(row))) == ALONE


def test_items_that_are_not_there_yet_are_encoded_alone():
    assert meet(lambda: ([1],), lambda row: row.append(2), lambda row: json.dumps(OtherItems(ItemsView({"k": row})))) == ALONE


@pytest.mark.parametrize("count", [weakref.getweakrefcount, weakref.getweakrefs, sys.getrefcount])
def test_references_are_counted_alone(count):
    class Thing:
        pass

    assert meet(lambda: (Thing(), []), lambda thing, refs: refs.append(weakref.ref(thing)), lambda thing, refs: count(thing)) \
        in (ALONE, [ALONE, CONFLICT])


def in_own_builtins(code, again=False):
    """What makes builtins of the program's own, and a function that finds something there; if `again`, its globals have others by now."""
    def make():
        builtins = {"len": len, "value": [1], "__build_class__": __build_class__}
        names = {"__builtins__": builtins, "__name__": "made_for_hidden_reads"}
        exec(code, names)
        if again:
            names["__builtins__"] = {}
        return builtins, names["look"]

    return make


@pytest.mark.parametrize("code, again", [
    ("def look(): return len(value)", False),
    ("def look(): return len(value)", True),
    ("def other():\n global given\n given = 1\ndef look(): return len(value)", False),
    ("def look():\n class Own:\n  own = value\n return Own.own", False),
    ("look = lambda: [len(value) for i in range_][0]\nrange_ = (1, 2)", False),
], ids=["global", "of before", "beside one that is rebound", "in a class", "in a comprehension"])  # fmt: skip
def test_builtins_of_its_own_change_alone(code, again):
    assert meet(in_own_builtins(code, again), lambda builtins, look: builtins.update(value=[2, 3]), lambda builtins, look: look()) \
        in (ALONE, [ALONE, CONFLICT])


def test_an_aborted_attempt_leaves_the_timeout_of_a_socket():
    attempts = []

    @trusted
    def end(sock):
        attempts.append(core.is_exclusive())
        if len(attempts) == 1:
            raise Abort

    @trusted
    def is_first():
        return not attempts

    def change(sock):
        if is_first():
            sock.settimeout(7)
            sock.setblocking(False)
        end(sock)
        return sock.gettimeout()

    with socket.socket() as sock:
        sock.settimeout(3)
        assert run(change, sock) == 3
        assert attempts == [False, False]
        assert sock.gettimeout() == 3


def test_what_is_read_in_hiding_is_right():
    assert run(lambda: types.SimpleNamespace({"a": 1}, b=2)) == types.SimpleNamespace(a=1, b=2)
    assert run(lambda: decimal.Context(prec=2).create_decimal((0, [1, 2, 7], 0))) == decimal.Decimal("1.3E2")
    assert run(lambda: decimal.Context().create_decimal()) == decimal.Decimal(0)
    assert run(lambda: copy.copy(OwnSet([1]))) == OwnSet([1])


def test_variables_of_a_call_are_looked_at_beside_others():
    def look():
        x, rows = 1, [1]
        view = sys._getframe().f_locals
        return [see(view) for see in VARIABLES.values()][:2], "x" in view, len(view), sorted(view), view == {}, rows

    def fail():
        x = 1
        try:
            x / 0
        except ZeroDivisionError as e:
            return repr(sorted(e.__traceback__.tb_frame.f_locals))

    for function in (look, fail):
        assert repr(runs_beside_others(function)) == repr(function())


def test_variables_are_changed_and_other_threads_looked_at_alone():
    def change():
        x = 1
        sys._getframe().f_locals["x"] = 5
        return x

    assert runs_alone(change) and run(change) == 5
    frames, done = [], threading.Event()

    def wait():
        x = [7]
        frames.append(sys._getframe())
        done.wait(60)
        return x

    thread = threading.Thread(target=wait)
    thread.start()
    while not frames:
        time.sleep(0.001)
    try:
        assert runs_alone(lambda: frames[0].f_locals["x"]) and run(lambda: frames[0].f_locals["x"]) == [7]
    finally:
        done.set()
        thread.join()
