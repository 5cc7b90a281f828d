"""C code that reads more than the values it is given: the size of their memory, who refers to them, what they were made with."""

import contextlib
import copy
import datetime
import decimal
import functools
import hashlib
import io
import json
import operator
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
    pass


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

#: name -> what makes the objects, what changes them, and what sees the change
HIDDEN = {
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
