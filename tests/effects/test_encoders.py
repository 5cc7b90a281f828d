"""msgpack and simplejson: what their encoders and decoders in C read, call and make, and whose an encoder is."""

import collections
import datetime
import decimal
import json
import random
import sqlite3

import pytest

from beside import needs_release, runs_alone, runs_beside_others
from meeting import ALONE, APART, CONFLICT, meet
from tornado.stm import core, testing

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

UNKNOWN = sqlite3.complete_statement
DATA = {"a": [1, 2.5, None, True, "é\n"], "b": ({"c": "d"}, -(2**40))}
MADE = {**DATA, "b": list(DATA["b"])}
TEXT = '{"a": [1, 2.5, null, true, "\\u00e9\\n"], "b": [{"c": "d"}, -1099511627776]}'


@pytest.fixture
def msgpack():
    return needs_release("msgpack")


@pytest.fixture
def simplejson():
    return needs_release("simplejson")


class Item:
    """What no library knows how to encode."""

    def __init__(self, *parts):
        self.parts = list(parts)

    def for_json(self):
        return {"parts": self.parts}


class Pair(collections.namedtuple("Pair", "left right")):
    pass


def parts_of(item):
    return item.parts


# ---- msgpack -------------------------------------------------------------------------------


def test_msgpack_packs_and_unpacks_beside_others(msgpack):
    packed = msgpack.packb(DATA)
    assert runs_beside_others(msgpack.packb, DATA) == packed
    for data in packed, bytearray(packed), memoryview(packed), memoryview(bytearray(packed)):
        assert runs_beside_others(msgpack.unpackb, data) == MADE
    assert runs_beside_others(lambda: msgpack.packb([Item(3)], default=parts_of)) == b"\x91\x91\x03"
    assert runs_beside_others(lambda: msgpack.unpackb(packed, object_hook=len)) == 2
    assert runs_beside_others(lambda: msgpack.unpackb(packed, list_hook=tuple, object_pairs_hook=dict))["b"] == ({"c": "d"}, -(2**40))
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    more = [msgpack.ExtType(3, b"x"), msgpack.Timestamp(3, 4), bytearray(b"y"), memoryview(b"z"), Pair(1, 2)]
    assert runs_beside_others(lambda: msgpack.unpackb(msgpack.packb(when, datetime=True), timestamp=3)) == when
    assert runs_beside_others(lambda: msgpack.unpackb(msgpack.packb(more))) == [*more[:2], b"y", b"z", [1, 2]]


def test_a_packer_of_ones_own_is_used_beside_others(msgpack):
    def parts():
        packer = msgpack.Packer(autoreset=False)
        packer.pack_array_header(2)
        packer.pack("x")
        packer.pack_map_header(0)
        packed = packer.bytes()
        packer.reset()
        return packed, packer.bytes()

    def fails():
        packer = msgpack.Packer()
        with pytest.raises(TypeError):
            packer.pack([1, Item(2)])
        return packer.pack(3)

    assert runs_beside_others(parts) == (b"\x92\xa1x\x80", b"")
    assert runs_beside_others(fails) == b"\x03"
    with pytest.raises(msgpack.ExtraData):
        runs_beside_others(msgpack.unpackb, b"\x01\x02")


def test_a_packer_of_somebody_else_is_used_alone(msgpack):
    """Whoever is called back may wait, and the other one would write into the same buffer."""
    packer = msgpack.Packer()
    assert runs_alone(packer.pack, [1])
    assert meet(lambda: (packer,), lambda packer: packer.pack(1), lambda packer: packer.pack(2)) == ALONE


def test_what_msgpack_calls_and_nobody_knows_runs_alone(msgpack):
    packed = msgpack.packb({"a": ["b"]})
    for unknown in UNKNOWN, [].append, collections.deque().append:
        assert runs_alone(lambda: msgpack.packb(["a"], default=unknown))
    assert runs_alone(lambda: msgpack.unpackb(packed, list_hook=[].append))
    assert runs_alone(lambda: msgpack.unpackb(packed, object_hook=[].append))
    assert runs_alone(lambda: list(msgpack.Unpacker()))
    assert runs_alone(lambda: msgpack.Packer().pack_map_pairs([(1, 2)]))


# ---- simplejson ----------------------------------------------------------------------------


def test_simplejson_encodes_and_decodes_beside_others(simplejson):
    assert simplejson.encoder.c_make_encoder is not None is not simplejson.scanner.c_make_scanner
    assert runs_beside_others(simplejson.dumps, DATA) == TEXT
    for how in {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"ignore_nan": True}, {"cls": simplejson.JSONEncoderForHTML}:
        assert runs_beside_others(lambda: simplejson.dumps(DATA, **how)) == simplejson.dumps(DATA, **how)
    for data in TEXT, TEXT.encode():
        assert runs_beside_others(simplejson.loads, data) == MADE
    assert runs_beside_others(lambda: simplejson.loads("[1.50, NaN]", use_decimal=True, allow_nan=True))[0] == decimal.Decimal("1.50")
    assert runs_beside_others(lambda: simplejson.loads('[{"a": 1}]', object_hook=list)) == [["a"]]
    more = [Pair(1, 2), decimal.Decimal("1.50"), simplejson.RawJSON("[]"), Item(3)]
    assert runs_beside_others(lambda: simplejson.dumps(more, for_json=True)) == '[{"left": 1, "right": 2}, 1.50, [], {"parts": [3]}]'
    assert runs_beside_others(lambda: simplejson.dumps([Item(3)], default=parts_of)) == "[[3]]"

    def fails():
        with pytest.raises(simplejson.JSONDecodeError):
            simplejson.loads("[1, }")

    runs_beside_others(fails)


def test_what_simplejson_calls_and_nobody_knows_runs_alone(simplejson):
    assert runs_alone(lambda: simplejson.dumps(["a"], default=UNKNOWN))
    assert runs_alone(lambda: simplejson.dumps(["a"], default=[].append))
    assert runs_alone(lambda: simplejson.dumps({"a": 1}, sort_keys=True))
    assert runs_alone(lambda: simplejson.dumps(iter([1]), iterable_as_array=True))
    for hook in "object_hook", "object_pairs_hook", "array_hook", "parse_float", "parse_int", "parse_constant":
        assert runs_alone(lambda: simplejson.loads("[]", **{hook: [].append}))


def test_what_a_decoder_looks_up_in_a_dict_nobody_changes_meanwhile(simplejson):
    """The text of a number that is none is looked up by a method of a dict, as it is by default."""

    def make():
        constants = {"NaN": 1}
        return constants, simplejson.JSONDecoder(parse_constant=constants.__getitem__)

    def decode(constants, decoder):
        decoder.decode("[NaN]")

    def change(constants, decoder):
        constants["NaN"] = 2

    assert meet(make, decode, change) == CONFLICT
    assert meet(make, decode, decode) == APART


def test_an_encoder_that_is_kept_is_used_alone(simplejson):
    """It has two dicts that the program gives it, and changes them."""
    encoder, name = simplejson.encoder, simplejson.encoder.encode_basestring_ascii
    arguments = None, parts_of, name, None, ": ", ", ", False, False, True, {}, False, True, True, None, None, "utf-8", False, False, decimal.Decimal
    shared = encoder.c_make_encoder(*arguments, False)
    assert runs_alone(shared, {"a": 1}, 0)
    assert list(runs_beside_others(lambda: encoder.c_make_encoder(*arguments[:9], {}, *arguments[10:], False)({"a": 1}, 0))) == ['{"a": 1}']


# ---- Both ----------------------------------------------------------------------------------


CHANGES = [
    (lambda: [1, [2]], lambda data: data.append(3)),
    (lambda: [1, [2]], lambda data: data[1].append(3)),
    (lambda: {"a": {"b": [1]}}, lambda data: data["a"].update(b=2)),
    (lambda: (collections.OrderedDict(a=[]),), lambda data: data[0]["a"].append(1)),
    (lambda: [Pair([], 1)], lambda data: data[0].left.append(1)),
    (lambda: [Item(1)], lambda data: data[0].parts.append(2)),
    (lambda: [Item(1)], lambda data: setattr(data[0], "parts", [2])),
]


@pytest.mark.parametrize("make, change", CHANGES)
@pytest.mark.parametrize("library", ["msgpack", "simplejson"])
def test_what_is_encoded_nobody_changes_meanwhile(library, make, change):
    module = needs_release(library)

    def encode(data):
        return (module.packb if library == "msgpack" else module.dumps)(data, default=parts_of)

    def both():
        return make(), make()

    def encode_one(one, other):
        encode(one)

    def change_one(one, other):
        change(one)

    def change_other(one, other):
        change(other)

    assert meet(both, encode_one, change_one) == CONFLICT
    assert meet(both, encode_one, encode_one) == meet(both, encode_one, change_other) == APART


def test_what_is_unpacked_nobody_changes_meanwhile(msgpack):
    def make():
        return (bytearray(b"\x92\x01\x02"),)

    def change(data):
        data[1] = 3

    assert meet(make, msgpack.unpackb, change) == CONFLICT
    assert meet(make, msgpack.unpackb, msgpack.unpackb) == APART


METHODS = "toDict", "_asdict"


def with_attribute(function):
    item = Item()
    for name in METHODS:
        setattr(item, name, function)
    return item


def with_slot(function):
    item = type("Slotted", (), {"__slots__": METHODS})()
    for name in METHODS:
        setattr(item, name, function)
    return item


def with_method(function):
    return type("Other", (), dict.fromkeys(METHODS, function))()


def with_static_method(function):
    return type("Static", (), dict.fromkeys(METHODS, staticmethod(function)))()


def with_property(function):
    return type("Computed", (), dict.fromkeys(METHODS, property(lambda self: function)))()


@pytest.mark.parametrize("wrap", [with_attribute, with_slot, with_method, with_static_method, with_property])
@pytest.mark.parametrize("library", ["simplejson", "ujson"])
def test_a_method_in_c_that_is_called_under_a_name_in_python_runs_alone(library, wrap):
    """A container's own, for one: nobody has opened that container."""
    dumps = needs_release(library).dumps

    def make():
        container = {"a": 1}
        return wrap(container.copy), container

    def change(item, container):
        container["a"] = 2

    assert json.loads(dumps(make()[0])) == {"a": 1}
    assert runs_alone(dumps, make()[0])
    assert meet(make, lambda item, container: dumps(item), change) == ALONE
    assert json.loads(runs_beside_others(dumps, wrap(lambda *args: {"b": 2}))) == {"b": 2}


class Table(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


@pytest.mark.parametrize("library", ["msgpack", "simplejson"])
def test_items_of_another_dict_under_that_name_are_looked_at_alone(library):
    module = needs_release(library)
    dumps = module.packb if library == "msgpack" else module.dumps

    def make():
        container, table = {"a": 1}, Table(b=2)
        table.items = container.items
        return table, container

    def change(table, container):
        container["a"] = 2

    assert dumps(make()[0]) == dumps({"a": 1})
    assert meet(make, lambda table, container: dumps(table), change) == ALONE
    for of_class in Table, Ordered, collections.Counter, type("Read", (dict,), {"items": lambda self: [("b", 2)]}):
        assert runs_beside_others(dumps, of_class(b=2)) == dumps({"b": 2})


class Shelf:
    def __init__(self):
        self.items = {name: Item(1) for name in "abc"}
        self.data = {"x": [1, {"y": [2]}], "t": (1, [3])}
        self.packed, self.text = bytearray(b"\x92\x01\x02"), "[1, 2]"
        self.made = []


def test_random_programs_are_serializable(msgpack, simplejson):
    packer = msgpack.Packer(default=parts_of)
    made = []
    decoder = simplejson.JSONDecoder(object_hook=lambda found: made.append(found) or len(made))

    def pack(shelf):
        return msgpack.packb(shelf.items, default=parts_of), msgpack.packb(shelf.data), packer.pack(shelf.items)

    def dump(shelf):
        return simplejson.dumps(shelf.items, default=parts_of), simplejson.dumps(shelf.data)

    def read(shelf):
        return msgpack.unpackb(shelf.packed), simplejson.loads(shelf.text)

    def write(shelf, n):
        shelf.packed[1], shelf.text = n, f"[{n}, 2]"

    def change(shelf, n):
        item = shelf.items["abc"[n % 3]]
        item.parts = [*item.parts, n][-3:]
        shelf.data["x"][1]["y"].append(n)

    def change_meanwhile(shelf, n):
        """What is encoded already stays as it is; what comes later is what `default` has made of it."""

        def default(item):
            for other in shelf.items.values():
                other.parts.append(n)
            return item.parts

        return msgpack.packb(shelf.items, default=default), simplejson.dumps(shelf.items, default=default)

    def change_by_hook(shelf, n):
        def hook(found):
            shelf.made.append(found)
            return len(shelf.made)

        return msgpack.unpackb(msgpack.packb([{"a": n}, {"b": n}]), object_hook=hook), simplejson.loads('[{"a": 1}, {"b": 2}]', object_hook=hook)

    def decode(shelf):
        return len(decoder.decode('[{"a": 1}, {"b": 2}]'))

    choice = random.Random(1)
    for seed in range(60):
        n = seed % 7
        possible = (pack,), (dump,), (read,), (write, n), (change, n), (change_meanwhile, n), (change_by_hook, n), (decode,)
        testing.check_serializable(Shelf, choice.choices(possible, k=10), seed=seed, aborts=0.02)
