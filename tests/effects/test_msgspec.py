"""msgspec: what its encoders and decoders read, call and make."""

import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import random
import sqlite3
import sys
import typing

import pytest

from beside import beside_others, needs_release, runs_alone, runs_beside_others
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


def structs(msgspec):
    """Classes of Structs: what is changed, what is compared and hashed, and one that Python code sees made."""

    class Point(msgspec.Struct, order=True):
        x: int = 0
        tags: list[str] = []

    class Key(msgspec.Struct, frozen=True):
        x: int = 0

    class Seen(msgspec.Struct):
        point: Point
        lines: list[int] = msgspec.field(default_factory=lambda: [len(made)])

        def __post_init__(self):
            made.append(self.point.x)
            self.lines.append(self.point.x)

    for type_ in Point, Key, Seen:
        msgspec.json.Decoder(type_)  # which notes in the class what its fields are
    return Point, Key, Seen


@needs_threads
def test_structs_of_msgspec_run_beside_others(msgspec):
    Point, Key, Seen = structs(msgspec)
    point = Point(1, ["a"])
    assert runs_beside_others(lambda: point.x) == 1
    assert runs_beside_others(lambda: Point(2, tags=["b"])) == Point(2, ["b"])
    assert runs_beside_others(lambda: (point == Point(1, ["a"]), point < Point(2), {Key(1): 2}[Key(1)])) == (True, True, 2)
    assert runs_beside_others(repr, point) == "Point(x=1, tags=['a'])"
    assert runs_beside_others(setattr, point, "x", 3) is None
    assert runs_beside_others(msgspec.json.encode, [point]) == b'[{"x":3,"tags":["a"]}]'
    assert runs_beside_others(msgspec.to_builtins, point) == runs_beside_others(msgspec.structs.asdict, point) == {"x": 3, "tags": ["a"]}
    assert runs_beside_others(msgspec.structs.astuple, point) == (3, ["a"])
    assert runs_beside_others(lambda: msgspec.structs.replace(point, x=4).x) == 4
    for again in copy.copy, copy.deepcopy, copy.replace, lambda point: point.__reduce__()[0](*point.__reduce__()[1]):
        assert runs_beside_others(again, point) == point
    text = b'{"x":5,"tags":[]}'
    assert runs_beside_others(msgspec.json.Decoder(typing.Optional[Point]).decode, text) == Point(5)
    assert runs_beside_others(lambda: msgspec.json.decode(text, type=Point)) == Point(5)
    assert runs_beside_others(lambda: msgspec.convert({"x": "6"}, Point, strict=False)) == Point(6)
    assert runs_beside_others(msgspec.convert, {"point": {"x": 7}}, Seen).lines[1:] == [7]
    assert runs_beside_others(lambda: Seen(point).lines[1:]) == [3]


@needs_threads
def test_structs_of_which_not_all_is_known_run_alone(msgspec):
    class Counted(msgspec.Struct):
        number: int = msgspec.field(default_factory=itertools.count().__next__)

    class Ends(msgspec.Struct):
        __post_init__ = sys.getrefcount

    class Kept(msgspec.Struct, frozen=True, cache_hash=True):
        x: int = 0

    class Hashed(msgspec.Struct):
        x: int = 0

        def __hash__(self):
            return self.x

    class Light(msgspec.Struct, gc=False):
        x: int = 0

    class Point(msgspec.Struct):
        x: int = 0

    for type_ in Counted, Ends, Kept, Hashed, Light:
        assert runs_alone(type_)
    assert runs_alone(msgspec.structs.replace, Ends())
    assert runs_alone(msgspec.structs.force_setattr, Point(), "x", 1)
    for type_ in Counted, list[Counted]:
        assert runs_alone(msgspec.json.Decoder(type_ | None).decode, b"null")
        assert runs_alone(lambda type_=type_: msgspec.convert(None, type_ | None))
    assert runs_alone(lambda: msgspec.convert({}, Counted))
    assert not beside_others(msgspec.convert, {}, Point)[0]  # the first time
    assert beside_others(msgspec.convert, {}, Point)[0]
    for type_, value in (typing.List[Point], []), (typing.Annotated[Point, 1], {}), (list[Point], []), (Point | int, {}), (Color, "red"):
        assert runs_alone(lambda type_=type_, value=value: msgspec.convert(value, type_))


@needs_threads
def test_fields_of_structs_conflict_with_what_looks_at_them(msgspec):
    Point, Key, _ = structs(msgspec)

    def make():
        return Point(1, ["a"]), Key(1)

    def set_x(point, key):
        point.x = 2

    def add_tag(point, key):
        point.tags.append("b")

    def set_frozen(point, key):
        with contextlib.suppress(AttributeError):
            key.x = 2

    looks = [
        lambda point, key: point == Point(3), lambda point, key: repr(point), lambda point, key: point in [Point(3)],
        lambda point, key: msgspec.json.encode([point]), lambda point, key: msgspec.convert(point, Point),
    ]  # fmt: skip
    shallow = [
        lambda point, key: msgspec.structs.asdict(point), lambda point, key: msgspec.structs.astuple(point),
        lambda point, key: copy.copy(point), lambda point, key: msgspec.structs.replace(point, tags=[]), lambda point, key: point.__reduce__(),
    ]  # fmt: skip
    for look in looks + shallow:
        assert meet(make, look, set_x) == CONFLICT
        assert meet(make, look, look) == APART
    for look in looks:
        assert meet(make, look, add_tag) == CONFLICT
    for look in shallow:
        assert meet(make, look, add_tag) == APART
    assert meet(make, lambda point, key: point.tags, set_x) == APART
    assert meet(make, lambda point, key: hash(key), set_frozen) in (APART, CONFLICT)


@needs_threads
def test_an_aborted_attempt_leaves_no_trace_in_structs(msgspec):
    from rolled_back import check  # which needs the engine

    Point, Key, Seen = structs(msgspec)

    def mutate(points, keys, made):
        for point in points:
            point.x += 1
            point.tags = [*point.tags, point]
            point.tags.append("b")
        points.append(Point(3))
        del points[0].x
        keys[Key(1)] = 2
        keys[Key(2)] = Seen(points[1])
        msgspec.convert({"point": {"x": 7}}, Seen)
        points.append(msgspec.json.decode(b'{"x":5}', type=Point))
        with contextlib.suppress(AttributeError):
            next(iter(keys)).x = 5

    made.clear()
    for seed in range(20):
        check(mutate, [Point(1, ["a"]), Point(2)], {Key(1): 1}, made, inject=0.05 if seed else 0.0, seed=seed)
    assert made == []


class Points:
    def __init__(self, classes):
        Point, self.Key, self.Seen = classes
        self.points = [Point(n, [str(n)]) for n in range(3)]
        self.by_key = {self.Key(n): n for n in range(3)}
        self.made = made
        made.clear()


@needs_engine
def test_structs_are_what_they_are_one_after_the_other(msgspec):
    Point, Key, Seen = classes = structs(msgspec)

    def encode(shelf, n):
        return msgspec.json.encode(shelf.points), msgspec.structs.asdict(shelf.points[n % 3]), repr(shelf.points)

    def change(shelf, n):
        point = shelf.points[n % 3]
        point.x += n
        point.tags.append(str(n))

    def add(shelf, n):
        shelf.by_key[Key(n)] = shelf.by_key.get(Key(n), 0) + shelf.points[n % 3].x

    def convert(shelf, n):
        seen = msgspec.convert({"point": shelf.points[n % 3]}, Seen)
        return seen.lines, Seen(shelf.points[0]).lines, msgspec.json.decode(b'{"x":%d}' % n, type=Point) in shelf.points

    def replace(shelf, n):
        shelf.points[n % 3] = msgspec.structs.replace(shelf.points[0], x=n) if n % 2 else copy.copy(shelf.points[1])

    def order(shelf, n):
        shelf.points.sort()
        return max(shelf.points).x

    choice = random.Random(2)
    for seed in range(60):
        calls = [(choice.choice([encode, change, add, convert, replace, order]), choice.randrange(7)) for _ in range(10)]
        testing.check_serializable(lambda: Points(classes), calls, seed=seed, aborts=0.02)


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
