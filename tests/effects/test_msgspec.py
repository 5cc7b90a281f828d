"""msgspec: what its encoders and decoders read, call and make."""

import dataclasses
import enum
import functools
import itertools
import random
import sqlite3
import typing

import pytest

from beside import needs_release, runs_alone, runs_beside_others
from meeting import APART, CONFLICT, meet
from tornado.stm import core, testing

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def msgspec():
    return needs_release("msgspec")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass(eq=False)
class Line:
    name: str
    size: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


#: what dataclasses that are decoded put themselves into
made = []


@dataclasses.dataclass(eq=False)
class Noted:
    size: int

    def __post_init__(self):
        made.append(self.size)


@dataclasses.dataclass
class Numbered:
    number: int = dataclasses.field(default_factory=itertools.count().__next__)


class Pair(typing.NamedTuple):
    left: int
    right: str = "r"


class Options(typing.TypedDict):
    size: int


class Unsupported:
    def __init__(self, inside):
        self.inside = inside


def inside(value, *, more=()):
    return [value.inside, *more]


DATA = {"a": [1, 2.5, None, "é", b"x"], "b": (Color.RED, {7}), "c": Line("d", 1, ["e"])}
TEXT = b'{"a":[1,2.5,null,"\xc3\xa9","eA=="],"b":["red",[7]],"c":{"name":"d","size":1,"tags":["e"]}}'


@needs_threads
def test_msgspec_encodes_beside_others(msgspec):
    hooks = inside, functools.partial(inside, more=[4])
    for encode in msgspec.json.encode, msgspec.json.Encoder().encode:
        assert runs_beside_others(encode, DATA) == TEXT
    for encode in msgspec.msgpack.encode, msgspec.msgpack.Encoder().encode:
        assert msgspec.msgpack.decode(runs_beside_others(encode, DATA))["c"] == {"name": "d", "size": 1, "tags": ["e"]}
    assert runs_beside_others(msgspec.json.Encoder().encode_lines, [1, DATA]) == b"1\n" + TEXT + b"\n"
    assert runs_beside_others(msgspec.to_builtins, DATA)["b"] == ("red", [7])
    assert runs_beside_others(msgspec.json.format, "[1]") == "[\n  1\n]"
    for hook, expected in zip(hooks, (b"[[3]]", b"[[3,4]]")):
        assert runs_beside_others(msgspec.json.Encoder(enc_hook=hook).encode, [Unsupported(3)]) == expected
        assert runs_beside_others(lambda: msgspec.json.encode([Unsupported(3)], enc_hook=hook)) == expected
    assert runs_beside_others(lambda: msgspec.json.Encoder(enc_hook=inside).encode([Unsupported(3)])) == b"[[3]]"


@needs_threads
@pytest.mark.parametrize("type_, text, expected", [
    (typing.Any, b'{"a":[1]}', {"a": [1]}),
    (dict[str, int], b'{"a":1}', {"a": 1}),
    (set[int], b"[1]", {1}),
    (Pair, b"[1]", Pair(1, "r")),
    (Options | None, b'{"size":1}', {"size": 1}),
    (typing.Optional[Color], b'"red"', Color.RED),
    (typing.Literal["a", 1], b'"a"', "a"),
])  # fmt: skip
def test_msgspec_decodes_beside_others(msgspec, type_, text, expected):
    assert runs_beside_others(msgspec.json.Decoder(type_).decode, text) == expected
    assert runs_beside_others(msgspec.json.Decoder(type_).decode_lines, text + b"\n" + text) == [expected] * 2
    packed = msgspec.msgpack.encode(msgspec.json.decode(text))
    assert runs_beside_others(msgspec.msgpack.Decoder(type_).decode, packed) == expected
    assert runs_beside_others(msgspec.json.decode, text) == msgspec.json.decode(text)
    assert runs_beside_others(msgspec.msgpack.decode, packed) == msgspec.json.decode(text)


@needs_threads
def test_msgspec_makes_dataclasses_beside_others(msgspec):
    (line,) = runs_beside_others(msgspec.json.Decoder(list[Line]).decode, b'[{"name":"a"}]')
    assert (line.name, line.size, line.tags) == ("a", 0, [])
    assert runs_beside_others(msgspec.json.Decoder(typing.List[Noted]).decode, b'[{"size":1}]')[0].size == 1


@needs_threads
def test_what_msgspec_calls_and_nobody_knows_runs_alone(msgspec):
    unknown = sqlite3.complete_statement
    assert runs_alone(lambda: msgspec.json.encode(["a"], enc_hook=unknown))
    assert runs_alone(msgspec.json.Encoder(enc_hook=unknown).encode, ["a"])
    assert runs_alone(lambda: msgspec.json.decode(b"1", type=Line | int))
    for type_ in Numbered, Numbered | None, list[Numbered], typing.List[Numbered], dict[str, tuple[Numbered, ...]]:
        assert runs_alone(msgspec.json.Decoder(type_ | None).decode, b"null")
    assert runs_alone(lambda: msgspec.json.decode(b"{}", type=Numbered))
    assert runs_alone(msgspec.json.Decoder(float_hook=unknown).decode, b"1")


@needs_threads
def test_structs_of_msgspec_run_alone(msgspec):
    """Nothing is declared of them; but their attributes are read as all slots are."""

    class Point(msgspec.Struct):
        x: int = 0

    point = Point()
    assert runs_beside_others(lambda: point.x) == 0
    assert runs_alone(Point)
    assert runs_alone(setattr, point, "x", 1)
    assert runs_alone(lambda: point == point)
    assert runs_alone(msgspec.json.encode, [point])
    assert runs_alone(msgspec.json.Decoder(typing.Optional[Point]).decode, b"null")
    assert runs_alone(msgspec.convert, {"x": 1}, Point)


@needs_threads
@pytest.mark.parametrize("change", [
    lambda line, value: line.tags.append("more"),
    lambda line, value: setattr(line, "size", 3),
    lambda line, value: value.inside.append(3),
    lambda line, value: setattr(value, "inside", 3),
])  # fmt: skip
@pytest.mark.parametrize("container", [list, frozenset, lambda values: dict.fromkeys(map(str, range(2)), values)])
def test_what_msgspec_encodes_nobody_changes_meanwhile(msgspec, change, container):
    encoder = msgspec.json.Encoder(enc_hook=inside)

    def make():
        line, value = Line("a"), Unsupported([1])
        return line, value, container([line, value])

    def encode(line, value, both):
        encoder.encode(both)

    def to_builtins(line, value, both):
        msgspec.to_builtins(both, enc_hook=inside)

    def change_one(line, value, both):
        change(line, value)

    assert meet(make, encode, change_one) == meet(make, to_builtins, change_one) == CONFLICT
    assert meet(make, encode, to_builtins) == APART


class Shelf:
    def __init__(self):
        self.lines = {name: Line(name) for name in "abc"}
        self.line_set = {self.lines["a"]}
        self.value = Unsupported([0])
        self.text = bytearray(b"[1, 2]")
        self.made = made
        made.clear()


@needs_engine
def test_msgspec_gives_what_it_gives_one_after_the_other(msgspec):
    """What hooks and ``__post_init__`` see and change is rolled back with the rest."""
    encoder = msgspec.json.Encoder(enc_hook=inside)
    decoder = msgspec.json.Decoder(typing.List[Noted])

    def encode(shelf):
        return encoder.encode([shelf.lines, shelf.line_set, shelf.value, shelf.made])

    def pack(shelf):
        return msgspec.msgpack.encode(shelf.lines, order="deterministic"), msgspec.to_builtins(shelf.value, enc_hook=inside)

    def decode(shelf, n):
        return [noted.size for noted in decoder.decode(b'[{"size":%d},{"size":2}]' % n)]

    def read(shelf):
        return msgspec.json.decode(shelf.text), msgspec.json.decode(memoryview(shelf.text))

    def write(shelf, n):
        shelf.text[1] = ord("0") + n

    def change(shelf, n):
        line = shelf.lines["abc"[n % 3]]
        line.size += 1
        line.tags.append(str(n))
        shelf.value.inside = [n, *shelf.value.inside][:4]

    choice = random.Random(1)
    for seed in range(40):
        calls = [choice.choice([(encode,), (pack,), (decode, seed % 7), (read,), (write, seed % 7), (change, seed % 7)]) for _ in range(10)]
        testing.check_serializable(Shelf, calls, seed=seed, aborts=0.02)
