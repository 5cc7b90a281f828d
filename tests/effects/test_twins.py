"""Twins do what the C callables do that they stand for: results, exceptions, the order of effects, what is left.

`CALLS` and `SEQUENCES` have a strategy for every twin.  Hypothesis makes arguments of it: containers, iterators, functions and
values that record what is done to them, and raise at the n-th thing that is done.  Each call is made plain, as a
transaction, and with aborts injected; what can be seen afterwards must be the same.
"""

import _abc
import _bisect
import _collections
import _csv
import _heapq
import _imp
import _io
import _locale
import _queue
import _socket
import _ssl
import _thread
import _tokenize
import abc
import builtins
import copy
import datetime
import decimal
import errno
import functools
import importlib
import io
import itertools
import locale
import math
import operator
import os
import pickle
import re
import socket
import ssl
import struct
import subprocess
import sys
import time
import types
import warnings
import zoneinfo
from collections import OrderedDict, defaultdict

import pytest
import tornado.test
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from beside import runs_alone, runs_beside_others
from tornado.stm.c_functions import twins
from tornado.stm.input_output import files, sockets

activation.activate()

EXAMPLES = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
ABORTS = 0.05  # the chance of an injected abort at a barrier


@pytest.fixture(autouse=True, scope="module")
def the_same_locale_afterwards():
    before = locale.setlocale(locale.LC_ALL)
    yield
    locale.setlocale(locale.LC_ALL, before)


# ---- What records what is done to it ---------------------------------------------------------------------------------


class Failure(Exception):
    pass


class World:
    """One run: what has been done, and the number of the thing at which it fails."""

    def __init__(self, fails_at=0, path=None):
        self.log = []
        self.fails_at = fails_at
        self.path = path
        self.objects = []  # whatever has to be looked at afterwards, or closed

    def did(self, *event):
        self.log.append(event)
        if len(self.log) == self.fails_at:
            raise Failure(*event)

    def keep(self, value):
        self.objects.append(value)
        return value


class Value:
    """Compares, adds, counts and prints by methods in Python."""

    def __init__(self, world, n):
        self.world, self.n = world, n

    def __lt__(self, other):
        self.world.did("lt", self.n, number(other))
        return self.n < number(other)

    def __gt__(self, other):
        self.world.did("gt", self.n, number(other))
        return self.n > number(other)

    def __eq__(self, other):
        self.world.did("eq", self.n, number(other))
        return self.n == number(other)

    def __hash__(self):
        return hash(self.n)  # not recorded: a dict's own barriers ask for it once more

    def __add__(self, other):
        self.world.did("add", self.n, number(other))
        return Value(self.world, self.n + number(other))

    def __radd__(self, other):
        self.world.did("radd", self.n, number(other))
        return Value(self.world, number(other) + self.n)

    def __bool__(self):
        self.world.did("bool", self.n)
        return self.n > 0

    def __index__(self):
        self.world.did("index", self.n)
        return self.n

    def __str__(self):
        self.world.did("str", self.n)
        return f"<{self.n}>"

    def __repr__(self):
        self.world.did("repr", self.n)
        return f"<{self.n!r}>"

    def __format__(self, spec):
        self.world.did("format", self.n, spec)
        return f"<{self.n}:{spec}>"


def number(value):
    value = getattr(value, "n", value)
    return value if isinstance(value, (int, float)) else 0


class Iterator:
    """Yields by Python methods."""

    def __init__(self, world, items):
        self.world, self.items = world, list(items)

    def __iter__(self):
        self.world.did("iter")
        return self

    def __next__(self):
        self.world.did("next", len(self.items))
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


class Hinting(Iterator):
    """Knows how many items are left."""

    def __length_hint__(self):
        self.world.did("hint")
        return len(self.items)


class Sequence:
    """Has items, and a length, by Python methods."""

    def __init__(self, world, items):
        self.world, self.items = world, list(items)

    def __len__(self):
        self.world.did("len")
        return len(self.items)

    def __getitem__(self, i):
        self.world.did("getitem", i)
        return self.items[i]

    def insert(self, i, item):
        self.world.did("insert", i)
        self.items.insert(i, item)


class Mapping:
    """Is taken for a mapping, since it has keys."""

    def __init__(self, world, items):
        self.world, self.contents = world, dict(items)

    def keys(self):
        self.world.did("keys")
        return list(self.contents)

    def __getitem__(self, key):
        self.world.did("getitem", key)
        return self.contents[key]


class OtherDict(dict):
    """A dict that has other items than it seems to."""

    def keys(self):
        return [*super().keys(), "other"]

    def items(self):
        return [*super().items(), ("items", 1)]

    def __getitem__(self, key):
        return (key, "got")


class IterableDict(OtherDict):
    """The same, where iteration too is in Python."""

    def __iter__(self):
        return iter([*super().keys(), "iterated"])


class RecentlyUsed(OrderedDict):
    """Looking up a key moves it to the end."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        self.move_to_end(key)
        return value


class Stream:
    """A file object of the program's own."""

    def __init__(self, world):
        self.world = world

    def write(self, text):
        self.world.did("write", text)
        return len(text)

    def flush(self):
        self.world.did("flush")


def generator(world, items):
    for item in items:
        world.did("yield")
        yield item
    world.did("end")


def function(world, name, result):
    """A function that records its calls."""

    def recorded(*args):
        world.did(name, *map(number, args))
        return result(*args)

    return recorded


# ---- Recipes: what an argument is made of, so that each run gets its own -------------------------------------------------


def make(world, recipe):
    """The object that a recipe (kind, what of it) stands for; anything else stands for itself."""
    if not (type(recipe) is tuple and recipe and recipe[0] in KINDS):
        return recipe
    return KINDS[recipe[0]](world, recipe[1])


def many(world, recipes):
    return [make(world, recipe) for recipe in recipes]


KINDS = {
    "value": Value,
    "as it is": lambda world, value: value,
    "list": many,
    "tuple": lambda world, recipes: tuple(many(world, recipes)),
    "generator": lambda world, recipes: generator(world, many(world, recipes)),
    "iterator": lambda world, recipes: Iterator(world, many(world, recipes)),
    "hinting": lambda world, recipes: Hinting(world, many(world, recipes)),
    "sequence": lambda world, recipes: Sequence(world, many(world, recipes)),
    "list iterator": lambda world, recipes: iter(many(world, recipes)),
    "map": lambda world, recipes: map(function(world, "mapped", lambda item: item), many(world, recipes)),
    "dict": lambda world, rows: dict(rows),
    "other dict": lambda world, rows: OtherDict(rows),
    "iterable dict": lambda world, rows: IterableDict(rows),
    "mapping": lambda world, rows: Mapping(world, rows),
    "recently used": lambda world, rows: RecentlyUsed(rows),
    "default": lambda world, rows: defaultdict(function(world, "made", lambda: [5]), rows),
    "without default": lambda world, rows: defaultdict(None, rows),
    "bytes stream": lambda world, contents: bytes_stream(contents),
    "lines": lambda world, lines: iter(lines).__next__,
    "text": lambda world, lines: io.StringIO("".join(lines)).readline,
    "empty view": lambda world, shape: memoryview(bytes(4)).cast("B", shape)[:0],
    "key": lambda world, name: function(world, "key", FUNCTIONS[name]),
    "compare": lambda world, name: function(world, "compare", lambda a, b: number(a) - number(b)),
    "stream": lambda world, _: world.keep(Stream(world)),
    "bytearray": lambda world, text: bytearray(text),
    "view": lambda world, text: memoryview(text),
    "attributes": lambda world, contents: types.SimpleNamespace(a=contents, b=[contents]),
    "exception": lambda world, _: ValueError("of the test"),
    "noted": lambda world, notes: with_notes(ValueError("of the test"), notes),
    "context": lambda world, _: decimal.localcontext(),
    "cached": lambda world, _: functools.lru_cache(function(world, "cached", number)),
}

FUNCTIONS = {"same": lambda x: x, "minus": lambda x: -number(x), "text": str, "list": lambda x: [number(x)]}


def bytes_stream(contents):
    """A stream at the end of these; a closed one if there are none."""
    stream = io.BytesIO()
    if contents is None:
        stream.close()
    else:
        stream.write(contents)
    return stream


def with_notes(exception, notes):
    exception.__notes__ = notes
    return exception


NUMBERS = st.integers(-3, 3)
VALUES = st.one_of(NUMBERS, st.tuples(st.just("value"), NUMBERS), st.sampled_from([0.5, -0.1, "a", "", None, True]))
ALIKE = st.one_of(
    st.lists(NUMBERS, max_size=6), st.lists(st.tuples(st.just("value"), NUMBERS), max_size=6),
    st.lists(st.sampled_from([0.1, 0.2, 1e16, -1e16, 1, 2**70]), max_size=6),
    st.lists(st.tuples(st.just("list"), st.lists(NUMBERS, max_size=2)), max_size=3), st.lists(VALUES, max_size=5),
)
ITERABLE_KINDS = ["list", "tuple", "generator", "iterator", "hinting", "sequence", "list iterator", "map"]


def iterables(items=ALIKE):
    return st.one_of(st.tuples(st.sampled_from(ITERABLE_KINDS), items), st.tuples(st.sampled_from(ITERABLE_KINDS), items), VALUES)


LISTS = st.tuples(st.just("list"), ALIKE)
SORTED = st.one_of(
    st.tuples(st.sampled_from(["list", "tuple", "sequence"]), st.lists(NUMBERS, max_size=6).map(sorted)),
    st.tuples(st.sampled_from(["list", "sequence"]), st.lists(st.tuples(st.just("value"), NUMBERS), max_size=6)),
    st.sampled_from(["abc", None, ("dict", ((0, 1),))]),
)
KEYS = st.one_of(st.none(), st.tuples(st.just("key"), st.sampled_from(sorted(FUNCTIONS))), st.just(3))
INDICES = st.one_of(NUMBERS, st.tuples(st.just("value"), NUMBERS), st.sampled_from([None, 2**80, "a", 1.0]))
ROWS = st.lists(st.one_of(
    st.tuples(st.sampled_from("abc"), NUMBERS).map(lambda row: ("tuple", row)),
    st.sampled_from([("list", ("a", 1)), ("generator", ("b", 2)), ("iterator", ("c",)), "ab", "abc", 5, ("tuple", (("list", ()), 1)),
                     ("list", (("value", 1), 1))]),
), max_size=4)
CONTENTS = st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=3).map(lambda d: tuple(d.items()))
MAPPINGS = st.one_of(
    st.tuples(st.sampled_from(["dict", "other dict", "iterable dict", "mapping", "recently used"]), CONTENTS), iterables(ROWS),
)
DICTS = st.tuples(st.just("dict"), CONTENTS)
ORDERED = CONTENTS.map(lambda rows: ("ordered", rows))
KINDS["ordered"] = lambda world, rows: OrderedDict(rows)
TEXTS = st.sampled_from(["", "a", "é", "\ud800", "x\ny", 5, None, b"b"])
BYTES = st.one_of(
    st.sampled_from([b"", b"ab"]), st.sampled_from([("bytearray", b"xy"), ("view", b"vw"), "text", 3, None]),
)
BUFFERS = st.one_of(BYTES, st.just(("empty view", (2, 2))))
FIELDS = st.one_of(VALUES, TEXTS, st.sampled_from([("list", (("value", 1), "x,y")), 'quo"ted']))
WRITERS = st.tuples(st.just("writer"), st.sampled_from([_csv.QUOTE_MINIMAL, _csv.QUOTE_NONNUMERIC, _csv.QUOTE_NONE, _csv.QUOTE_NOTNULL]))
DIALECTS = st.sampled_from(["excel", "missing", None, 5, ("dialect", ";"), ("dialect", "too long")])
KINDS["dialect"] = lambda world, delimiter: types.SimpleNamespace(delimiter=delimiter, quoting=_csv.QUOTE_ALL)
KINDS["writer"] = lambda world, quoting: _csv.writer(world.keep(Stream(world)), quoting=quoting)
FORMATS = st.sampled_from([
    "", "{}", "{} {}", "{0}{1}", "{a}", "{0.a}", "{0.b[0]}", "{0[1]}", "{!r:>5}", "{:{}}", "{0}{}", "{", "}", "{0.}", "{a[x]}",
    "{!x}", "{0.missing}", "{:{:{}}}", "{a:>{b}}", "{0[}", "{-1}", "{ 0 }", "{!}", "{}{0}", "{0.a.real}", "{:d}",
    "{0.missing} {", "{0.missing[}", "{0.a} {", "{0.missing} {!x}",
])
FORMATTED = st.one_of(VALUES, st.tuples(st.just("attributes"), NUMBERS), st.just(("list", (1, ("value", 2)))))
DATA = st.recursive(
    st.sampled_from([1, "a", b"b", None, 2.5]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda l: ("list", l)),
        st.dictionaries(st.sampled_from("xy"), inner, max_size=2).map(lambda d: ("as it is", {k: repr(v) for k, v in d.items()})),
    ), max_leaves=5,
)


class Call:
    """How a C callable is called.

    Args:
        positional: strategies of positional arguments.
        needed: so many of these are always given.
        keywords: name → strategy of arguments that may be given by name.
        result: what of the result is to be compared.
        misused: now and then with arguments too many, too few, or of a wrong name?
    """

    def __init__(self, *positional, needed=None, result=None, misused=True, **keywords):
        self.misused = misused
        self.positional = positional
        self.needed = len(positional) if needed is None else needed
        self.keywords = keywords
        self.result = result

    def recipes(self):
        """A strategy of (positional arguments, named ones); now and then one too many, one too few, or of a wrong name."""

        @st.composite
        def arguments(draw):
            n = draw(st.integers(self.needed, len(self.positional)))
            args = [draw(strategy) for strategy in self.positional[:n]]
            names = draw(st.lists(st.sampled_from(sorted(self.keywords)), unique=True)) if self.keywords else []
            kwargs = {name: draw(self.keywords[name]) for name in names}
            wrong = draw(st.integers(0, 19)) if self.misused else None
            if wrong == 0:
                args += draw(st.lists(VALUES, min_size=1, max_size=4))
            elif wrong == 1:
                args = args[: draw(st.integers(0, len(args)))]
            elif wrong == 2:
                kwargs[draw(st.sampled_from(["wrong", "iterable", "self", "data", "function", "size", "file"]))] = draw(VALUES)
            return args, kwargs

        return arguments()


heaps = {name: Call(LISTS, *([VALUES] if name[4:8] in ("push", "repl") else [])) for name in twins.HEAP}
bisects = Call(SORTED, VALUES, INDICES, INDICES, needed=2, lo=INDICES, hi=INDICES, key=KEYS)
extremes = Call(iterables(), VALUES, VALUES, needed=1, key=KEYS, default=VALUES)


def items_of(result):
    return [type(result).__name__, operator.length_hint(result), next(result, None), operator.length_hint(result), *result]


def sorted_by(made):
    return sorted([2, 3, 1], key=made), repr(made)[:20]


CODE = ["a = 1\n", "(", ")\n", "  b", "\\\n", "1x", ""]
SOURCES = st.sampled_from(["x = 1 + y", "y", "1 +", "del y", "missing", "\tx", b"x = 2", 5, compile("y + 1", "<t>", "eval")])
NAMESPACES = st.one_of(st.none(), st.tuples(st.just("dict"), CONTENTS.map(lambda rows: (*rows, ("y", 3)))), st.just(7))
RUN = Call(SOURCES, NAMESPACES, NAMESPACES, needed=2, globals=NAMESPACES, locals=NAMESPACES, result=lambda made: made)

#: C callable → how it is called
CALLS = {
    all: Call(iterables()),
    any: Call(iterables()),
    sum: Call(iterables(), VALUES, needed=1, start=VALUES),
    math.prod: Call(iterables(), start=VALUES),
    min: extremes,
    max: extremes,
    sorted: Call(iterables(), key=KEYS, reverse=VALUES),
    list.sort: Call(LISTS, key=KEYS, reverse=VALUES),
    dict: Call(MAPPINGS, needed=0, a=NUMBERS, b=VALUES),
    OrderedDict: Call(MAPPINGS, needed=0, a=NUMBERS, b=VALUES),
    defaultdict: Call(st.sampled_from([int, None, 5, list]), MAPPINGS, needed=0, a=NUMBERS, b=VALUES),
    dict.update: Call(DICTS, MAPPINGS, needed=1, a=NUMBERS, b=VALUES),
    dict.__init__: Call(DICTS, MAPPINGS, needed=1, a=NUMBERS, b=VALUES),
    OrderedDict.update: Call(ORDERED, MAPPINGS, needed=1, a=NUMBERS, b=VALUES),
    OrderedDict.__init__: Call(ORDERED, MAPPINGS, needed=1, a=NUMBERS, b=VALUES),
    _bisect.bisect_left: bisects,
    _bisect.bisect_right: bisects,
    _bisect.insort_left: bisects,
    _bisect.insort_right: bisects,
    functools.reduce: Call(
        st.one_of(st.tuples(st.just("compare"), st.just("")), st.just(operator.add), st.just(3)), iterables(), VALUES, needed=2,
        initial=VALUES),
    functools.cmp_to_key: Call(st.one_of(st.tuples(st.just("compare"), st.just("")), st.just(3)), result=sorted_by),
    operator.call: Call(KEYS, VALUES, needed=1),
    str.format: Call(FORMATS, FORMATTED, FORMATTED, needed=1, a=FORMATTED, b=FORMATTED),
    str.format_map: Call(FORMATS, st.one_of(MAPPINGS, st.just(("as it is", {"a": 1})), FORMATTED)),
    bytes.join: Call(st.sampled_from([b"", b"-"]), iterables(st.lists(BYTES, max_size=4))),
    bytearray.join: Call(st.just(("bytearray", b"-")), iterables(st.lists(BYTES, max_size=4))),
    struct.iter_unpack: Call(st.sampled_from(["<H", "b", "", "z", b"<I", 4]), BUFFERS, result=items_of),
    struct.Struct.iter_unpack: Call(st.sampled_from([struct.Struct("<H"), struct.Struct("b"), struct.Struct("")]), BUFFERS,
                                    result=items_of, buffer=BUFFERS),
    io.BytesIO.writelines: Call(st.tuples(st.just("bytes stream"), st.sampled_from([b"", b"xy", None])),
                                st.one_of(iterables(st.lists(BYTES, max_size=4)), BYTES)),
    defaultdict.__missing__: Call(st.tuples(st.sampled_from(["default", "without default"]), CONTENTS),
                                  st.one_of(st.sampled_from("abc"), VALUES, LISTS)),
    types.SimpleNamespace.__init__: Call(st.tuples(st.just("attributes"), NUMBERS), MAPPINGS, needed=1, a=NUMBERS, c=VALUES),
    zoneinfo.ZoneInfo: Call(st.sampled_from(["UTC", "Europe/Berlin", "not/there", "../there", 5]), needed=0,
                            key=st.sampled_from(["UTC", 5]), result=str),
    _socket.getaddrinfo: Call(
        st.sampled_from(["127.0.0.1", "::1", b"10.0.0.1", "1.2.3", "\xe9" * 80, 5]), st.sampled_from([0, 80, None, "80", "no port"]),
        st.sampled_from([0, _socket.AF_INET, "a"]), st.just(_socket.SOCK_STREAM), st.just(0), st.just(_socket.AI_NUMERICHOST),
        needed=6, result=list),
    os.waitpid: Call(st.sampled_from([1, 1 << 70, "a", None]), st.sampled_from([os.WNOHANG, os.WNOHANG | os.WUNTRACED, "a"])),
    _socket.gethostbyname: Call(st.sampled_from(["127.0.0.1", "10.1.2.3", "\xe9" * 80, "a\0b", 5])),
    _socket.getnameinfo: Call(
        st.sampled_from([("127.0.0.1", 80), ("::1", 80, 0, 0), ("no address", 80), ("127.0.0.1", "80"), (), 5]),
        st.sampled_from([_socket.NI_NUMERICHOST | _socket.NI_NUMERICSERV, 1 << 40, "a"]), needed=2),
    _tokenize.TokenizerIter: Call(
        st.one_of(st.tuples(st.sampled_from(["lines", "text"]), st.lists(st.sampled_from(CODE), max_size=4)), st.just(5)),
        encoding=st.sampled_from([None, 5]), extra_tokens=st.booleans(), result=list),
    _csv.reader: Call(iterables(st.lists(TEXTS, max_size=3)), DIALECTS, needed=1, result=items_of, delimiter=st.sampled_from([";", 5])),
    _csv.writer: Call(st.sampled_from([("stream", None), 5]), DIALECTS, needed=1, result=lambda made: made.dialect.delimiter,
                      quoting=st.sampled_from([_csv.QUOTE_ALL, "a"])),
    _csv.Writer.writerow: Call(WRITERS, st.one_of(
        iterables(st.lists(FIELDS, max_size=4)),
        MAPPINGS.filter(lambda recipe: not re.search("generator|iterator", repr(recipe))),  # whose address would be written
        st.sampled_from([None, 5, "abc"]))),
    _csv.Writer.writerows: Call(WRITERS, st.one_of(
        iterables(st.lists(iterables(st.lists(FIELDS, max_size=3)), max_size=3)), MAPPINGS, st.sampled_from([None, 5, "abc"]))),
    _locale.setlocale: Call(st.sampled_from([_locale.LC_ALL, _locale.LC_CTYPE, 99, "a"]), st.sampled_from([None, "C", "xx", 5]),
                            needed=1),
    BaseException.add_note: Call(
        st.sampled_from([("exception", None), ("noted", ("list", ())), ("noted", 5)]), st.one_of(TEXTS, VALUES)),
    BaseException.__setstate__: Call(
        st.sampled_from([("exception", None), ("noted", ("list", ())), ("noted", 5)]),
        st.one_of(st.none(), st.just(5), st.sampled_from([{"a": 1, "__notes__": ["x"]}, {"args": (1, 2)}, {"args": 5}, {5: 6}, {}]))),
    twins._enter_decimal_context: Call(st.just(("context", None)), result=repr),
    pickle.dumps: Call(DATA, st.sampled_from([0, 1, 4, 5, -1, 9, None, "a"]), needed=1, protocol=st.sampled_from([2, 99]),
                       fix_imports=VALUES),
    pickle.loads: Call(st.one_of(DATA.map(lambda data: pickle.dumps(make(World(), data))), BYTES,
                                 st.just(pickle.dumps(OrderedDict(a=1)))),
                       encoding=st.sampled_from(["ASCII", "bytes", 5]), fix_imports=VALUES),
    **{vars(_heapq)[name]: how for name, how in heaps.items()},
    _collections._count_elements: Call(
        st.one_of(DICTS, ORDERED, st.tuples(st.just("other dict"), CONTENTS)), iterables(st.lists(NUMBERS, max_size=6))),
    exec: RUN,
    eval: RUN,
    builtins.__import__: Call(
        st.sampled_from(["json", "json.decoder", "not_there", "", 5]), st.none(), st.none(),
        st.sampled_from([(), ("loads",), ["decoder"], ("missing",), None, 5]), st.sampled_from([0, 1, -1, "a"]), needed=1,
        fromlist=st.just(("loads",)), level=st.just(0), result=lambda made: made.__name__),
    type(len_cache := functools.lru_cache(len)).cache_info: Call(st.just(("cached", None)), result=repr),
    type(len_cache).cache_clear: Call(st.just(("cached", None))),
    time.sleep: Call(st.sampled_from([0, 0.0001, -1, "a", None, ("value", 0)])),
    print: Call(VALUES, VALUES, TEXTS, needed=0, file=st.sampled_from([("stream", None), ("stream", None), 5]),
                sep=TEXTS, end=TEXTS, flush=VALUES),
}


# ---- Running ------------------------------------------------------------------------------------------------------------


def described(value, depth=0):
    """What can be compared of a value."""
    if isinstance(value, Value):
        return "Value", value.n
    if isinstance(value, (int, float, str, bytes, type(None), type)):
        return type(value).__name__, repr(value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(item) for item in value]
    if isinstance(value, (Iterator, Sequence)):
        return type(value).__name__, described(value.items)
    if isinstance(value, dict):
        return type(value).__name__, [(described(k), described(v)) for k, v in dict.items(value) if k != "__builtins__"]
    if isinstance(value, BaseException):
        return type(value).__name__, described(value.args), described(getattr(value, "__notes__", None))
    if isinstance(value, types.GeneratorType):
        return "generator", value.gi_frame is None or value.gi_frame.f_lasti
    if isinstance(value, (bytearray, memoryview)):
        return type(value).__name__, bytes(value)
    if isinstance(value, io.BytesIO):
        return type(value).__name__, "closed" if value.closed else value.getvalue()
    if isinstance(value, types.SimpleNamespace):
        return type(value).__name__, described(vars(value))
    return type(value).__name__


def failure(exception):
    return "raised", described(exception), type(exception.__context__).__name__


def perform(callable_, args, kwargs):
    return callable_(*args, **kwargs)


def outcome(how, world, run, callable_, recipes, named):
    """What comes of one call, and what it leaves."""
    args = [make(world, recipe) for recipe in recipes]
    kwargs = {name: make(world, recipe) for name, recipe in named.items()}
    fails_at, world.fails_at = world.fails_at, 0
    world.log.clear()
    world.fails_at = fails_at
    try:
        result = run(perform, callable_, args, kwargs)
        world.fails_at = 0
        seen = list(world.log)
        result = "returned", described(how.result(result) if how.result else result)
    except (Exception, SystemExit) as e:
        world.fails_at = 0
        seen = list(world.log)
        result = failure(e)
    return result, seen, described(args), described(kwargs)


def plainly(function_, *args):
    return function_(*args)


def as_transaction(function_, *args):
    return core.Transaction(function_, args).run()


def after_aborts(function_, *args):
    core.inject_aborts(ABORTS, 7)
    try:
        return core.Transaction(function_, args).run()
    finally:
        core.inject_aborts(0, 0)


def after_other_calls(others):
    """A run whose first attempt calls other methods, and is rolled back."""

    def run(function_, methods, calls, receiver):
        return core.Transaction(these_or_others, (function_, methods, calls, others, receiver)).run()

    return run


def these_or_others(function_, methods, calls, others, receiver):
    if core.rehearse():
        function_(methods, others, receiver)
        give_up()
    return function_(methods, calls, receiver)


@core.trusted
def give_up():
    raise core.Abort


def call_and_give_up(callable_, args, kwargs):
    if core.rehearse():
        try:
            callable_(*args, **kwargs)
        except (Exception, SystemExit):
            pass
        give_up()


def is_undone(how, callable_, recipes, named):
    """Is nothing left of a call by an attempt that is rolled back, if the next one does not call?"""
    world = World()
    args, kwargs = [make(world, recipe) for recipe in recipes], {name: make(world, recipe) for name, recipe in named.items()}
    before = described(args), described(kwargs)
    as_transaction(call_and_give_up, callable_, args, kwargs)
    return (described(args), described(kwargs)) == before


@pytest.mark.parametrize("callable_", CALLS, ids=lambda callable_: f"{getattr(callable_, '__qualname__', callable_)}")
def test_a_twin_does_what_it_stands_for(callable_):
    how = CALLS[callable_]

    @EXAMPLES
    @given(how.recipes(), st.one_of(st.just(0), st.integers(1, 12)))
    def check(recipe, fails_at):
        expected = outcome(how, World(fails_at), plainly, callable_, *recipe)
        for run in as_transaction, as_transaction, after_aborts:
            assert outcome(how, World(fails_at), run, callable_, *recipe) == expected
        assert is_undone(how, callable_, *recipe)

    check()


# ---- What is done to something outside -----------------------------------------------------------------------------------


class Sequences:
    """How several methods are called, one after the other, on what `begin` makes; `end` tells what is left of it outside.

    Args:
        begin: called with the `World`, whose `path` is a folder of its own.
        methods: C method → `Call`, whose positional arguments are those after the receiver.
        end: called with the world and what `begin` returned, after the transaction.
        last: methods after which there is nothing more to do.
        repeated: methods that are not called by an attempt which is rolled back, if another one comes after it.
        examples: how many sequences.
    """

    def __init__(self, begin, methods, end, last=(), repeated=(), examples=60):
        self.begin, self.methods, self.end, self.last, self.examples = begin, methods, end, last, examples
        self.others = [method for method in methods if method not in repeated]

    def recipes(self, methods=None):
        def until_the_last(calls):
            places = [i for i, (method, *_) in enumerate(calls) if method in self.last]
            return calls[: places[0] + 1] if places else calls

        return st.lists(st.sampled_from(list(methods or self.methods)).flatmap(
            lambda method: self.methods[method].recipes().map(lambda recipe: (method, *recipe))), min_size=2, max_size=6).map(until_the_last)


def open_for_reading(world):
    path = world.path / "read"
    path.write_bytes(b"one\ntwo\nthree\n")
    return world.keep(open(path, "rb"))


def whether_closed(world, file):
    return file.closed or (file.tell(), file.read())


OFFSETS = st.sampled_from([0, 3, -1, 100, None, "a", 2.5, ("value", 2)])
READING = {
    io.BufferedReader.read: Call(OFFSETS, needed=0, size=OFFSETS),
    io.BufferedReader.seek: Call(OFFSETS, st.sampled_from([0, 1, 2, 7, "a"]), needed=1, whence=st.just(0)),
    io.BufferedReader.tell: Call(),
    io.BufferedReader.close: Call(),
    _io._IOBase.__exit__: Call(st.none(), st.none(), st.none(), needed=0),
}


def open_text(encoding, errors):
    def begin(world):
        return world.keep(io.TextIOWrapper(open(world.path / "text", "wb"), encoding, errors))

    return begin


def text_left(world, file):
    if not file.closed:
        file.close()
    return (world.path / "text").read_bytes()


WRITING = {
    _io.TextIOWrapper.write: Call(TEXTS, text=TEXTS),
    _io.TextIOWrapper.flush: Call(),
    _io.TextIOWrapper.tell: Call(),
}


def open_binary(world):
    return world.keep(open(world.path / "text", "wb"))


WRITING_BYTES = {
    _io.BufferedWriter.write: Call(st.one_of(BYTES, st.just(("view", b"abc"))), buffer=BYTES),
    _io.BufferedWriter.flush: Call(),
}


def lock_left(world, lock):
    return lock.locked()


def lock_methods(lock_type):
    waiting = st.sampled_from([False, 0, ("value", 0)])
    timeouts = st.sampled_from([-1, 0.5, -2, "a", None, 1e100])
    calls = {
        "acquire": Call(waiting, timeouts, needed=1, misused=False, timeout=timeouts),
        "acquire_lock": Call(waiting, misused=False),
        "__exit__": Call(st.none(), st.none(), st.none(), needed=0, misused=False),
        **dict.fromkeys(("release", "release_lock", "locked", "locked_lock", "_is_owned", "_recursion_count"), Call(misused=False)),
    }
    if lock_type is _thread.RLock:
        calls |= {"__enter__": Call(misused=False), "_release_save": Call(result=lambda state: state[0], misused=False),
                  "_acquire_restore": Call(st.sampled_from([5, (1,)]), misused=False)}
    return {getattr(lock_type, name): call for name, call in calls.items() if hasattr(lock_type, name)}


def connected(kind):
    def begin(world):
        one, other = socket.socketpair(type=kind)
        for end in one, other:
            world.keep(end).setblocking(False)
        other.send(b"hello world")
        other.send(b"once more")
        return one

    return begin


def received_by_the_other(world, sock):
    other, closed = world.objects[1], sock.fileno() == -1
    options = [] if closed else [sock.getsockopt(socket.SOL_SOCKET, option, 8) for option in SET]
    try:
        return options, other.recv(1 << 20)
    except OSError as e:
        return options, errno.errorcode[e.errno]


SET = [socket.SO_SNDBUF, socket.SO_RCVBUF, socket.SO_KEEPALIVE, socket.SO_LINGER]


SIZES = st.sampled_from([0, 1, 5, 100, -1, "a", None])
FLAGS = st.sampled_from([0, socket.MSG_PEEK, "a"])
OPTIONS = st.sampled_from([(socket.SOL_SOCKET, socket.SO_ERROR), (99, 99), ("a", 1), *((socket.SOL_SOCKET, option) for option in SET)])
SENT = st.one_of(BYTES, st.just(b"some bytes"))
SOCKET = {
    _socket.socket.recv: Call(SIZES, FLAGS, needed=1),
    _socket.socket.recv_into: Call(st.sampled_from([("bytearray", b"12345678"), b"12", 5]), SIZES, FLAGS, needed=1, nbytes=SIZES),
    _socket.socket.recvfrom: Call(SIZES, FLAGS, needed=1),
    _socket.socket.recvfrom_into: Call(st.sampled_from([("bytearray", b"12345678"), b"12", 5]), SIZES, FLAGS, needed=1, nbytes=SIZES),
    _socket.socket.recvmsg: Call(SIZES, st.sampled_from([0, 100, -1, "a"]), FLAGS, needed=1),
    _socket.socket.recvmsg_into: Call(st.one_of(st.just(5), st.tuples(st.just("list"), st.lists(st.sampled_from([("bytearray", b"12"), b"12"])))),
                                      st.sampled_from([0, 100, "a"]), FLAGS, needed=1),
    _socket.socket.getsockopt: Call(OPTIONS.map(lambda o: o[0]), OPTIONS.map(lambda o: o[1])),
    _socket.socket.setsockopt: Call(OPTIONS.map(lambda o: o[0]), OPTIONS.map(lambda o: o[1]), st.sampled_from([1, 10_000, "a", b"1"])),
    **dict.fromkeys((_socket.socket.send, sockets.send_in_order), Call(SENT, FLAGS, needed=1)),
    _socket.socket.sendall: Call(SENT, FLAGS, needed=1),
    _socket.socket.sendmsg: Call(st.one_of(st.just(5), st.tuples(st.just("list"), st.lists(SENT, max_size=3)),
                                           st.tuples(st.just("generator"), st.lists(SENT, max_size=3)))),
    _socket.socket.shutdown: Call(st.sampled_from([socket.SHUT_WR, socket.SHUT_RDWR, 7, "a"])),
    _socket.socket.close: Call(),
}

SOCKET |= {
    _socket.socket.detach: Call(result=type),  # the number of a descriptor is nobody's business
    _socket.socket.connect: Call(st.sampled_from(["/not/there", 5, b"x", ("127.0.0.1", 1)])),
    _socket.socket.connect_ex: Call(st.sampled_from(["/not/there", 5, b"x", ("127.0.0.1", 1)])),
}

LAST = _socket.socket.close, _socket.socket.detach, _socket.socket.shutdown
#: what one attempt has received of a stream, another may receive in other pieces
RECEIVING = [getattr(_socket.socket, name) for name in dir(_socket.socket) if name.startswith("recv")]

CERTIFICATE, KEY = (os.path.join(os.path.dirname(tornado.test.__file__), name) for name in ("test.crt", "test.key"))


@functools.cache
def contexts():
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(CERTIFICATE, KEY)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


def encrypted(world):
    """The C object of one end of a connection, both of whose ends have shaken hands."""
    sides = []
    for end, context, is_server in zip(socket.socketpair(), contexts(), (True, False)):
        side = context.wrap_socket(end, server_side=is_server, do_handshake_on_connect=False)
        side.setblocking(False)
        sides.append(world.keep(side))
    waiting = set(sides)
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.discard(side)
            except ssl.SSLWantReadError:
                pass
    sides[1].send(b"hello world")
    return sides[0]._sslobj


def decrypted_by_the_other(world, connection):
    try:
        return world.objects[1].recv(1 << 20)
    except OSError as e:
        return type(e).__name__


ASKED = [
    _ssl._SSLSocket.verify_client_post_handshake, _ssl._SSLSocket.get_verified_chain, _ssl._SSLSocket.get_unverified_chain,
    _ssl._SSLSocket.selected_alpn_protocol, _ssl._SSLSocket.cipher, _ssl._SSLSocket.shared_ciphers,
    _ssl._SSLSocket.compression, _ssl._SSLSocket.version, _ssl._SSLSocket.do_handshake,
]
TLS = {
    _ssl._SSLSocket.read: Call(SIZES, st.sampled_from([("bytearray", b"12345678"), b"12", 5]), needed=1),
    _ssl._SSLSocket.write: Call(SENT),
    _ssl._SSLSocket.pending: Call(),
    _ssl._SSLSocket.getpeercert: Call(st.sampled_from([True, False, "a"]), needed=0),
    _ssl._SSLSocket.get_channel_binding: Call(st.sampled_from(["not known", 5]), needed=0, result=type),  # secret
    **dict.fromkeys(ASKED, Call()),
}
IN_MEMORY = {
    _ssl.MemoryBIO.read: Call(SIZES, needed=0),
    _ssl.MemoryBIO.write: Call(SENT),
    _ssl.MemoryBIO.write_eof: Call(),
}

def items_left(world, queue):
    return [queue.get_nowait() for _ in range(queue.qsize())]


QUEUE = {
    _queue.SimpleQueue.put: Call(VALUES, st.sampled_from([True, False]), st.sampled_from([None, 5, "a"]), needed=0, item=VALUES,
                                 result=type),
    _queue.SimpleQueue.put_nowait: Call(VALUES, needed=0, item=VALUES, result=type),
    _queue.SimpleQueue.qsize: Call(),
}

SEQUENCES = {
    "reading a file": Sequences(open_for_reading, READING, whether_closed),
    "writing text": Sequences(open_text("utf-8", "strict"), WRITING, text_left),
    "writing ASCII": Sequences(open_text("ascii", "strict"), WRITING, text_left),
    "writing text with replacements": Sequences(open_text("latin-1", "backslashreplace"), WRITING, text_left),
    "writing bytes": Sequences(open_binary, WRITING_BYTES, text_left),
    "a lock": Sequences(lambda world: _thread.allocate_lock(), lock_methods(_thread.lock), lock_left),
    "a lock of a thread": Sequences(lambda world: _thread.RLock(), lock_methods(_thread.RLock), lock_left),
    "a socket": Sequences(connected(socket.SOCK_STREAM), SOCKET, received_by_the_other, LAST, RECEIVING, 60),
    "a socket for datagrams": Sequences(connected(socket.SOCK_DGRAM), SOCKET, received_by_the_other, LAST, examples=60),
    "a TLS connection": Sequences(encrypted, TLS, decrypted_by_the_other, repeated=[_ssl._SSLSocket.read], examples=20),
    "a queue": Sequences(lambda world: _queue.SimpleQueue(), QUEUE, items_left),
    "TLS in memory": Sequences(lambda world: ssl.MemoryBIO(), IN_MEMORY, lambda world, memory: (memory.eof, memory.read())),
}

#: twins whose arguments are too special for a strategy → the test that compares them by hand
BY_HAND = {
    open: "test_opening_files",
    _io.BufferedWriter: "test_making_a_buffered_writer",
    os.sendfile: "test_sending_a_file",
    _imp.acquire_lock: "tests/loop/test_report.py",
    _socket.socket: "test_making_sockets",
    **dict.fromkeys((time.thread_time, time.thread_time_ns), "test_thread_ties"),
    _ssl._SSLSocket.shutdown: "test_tls",  # what it returns depends on the other side: the whole of tests/io/test_tls.py
    _thread.lock.__enter__: "test_entering_a_lock",
    **dict.fromkeys([os.stat, os.lstat, os.fstat], "test_looking_at_files"),
    **{getattr(_socket.socket, name): "test_blocking_of_sockets"
       for name in ("gettimeout", "settimeout", "getblocking", "setblocking")},
    decimal.Context.create_decimal: "test_making_decimals",
    decimal.localcontext: "test_beginning_a_decimal_context",
    zoneinfo.ZoneInfo._unpickle: "test_copying_zones",
    **dict.fromkeys([pickle.dump, pickle.load], "test_pickling_to_a_file"),
    io.BytesIO.getbuffer: "test_looking_into_a_stream",
    _socket.socket.sendto: "tests/io/test_sockets.py",
    type.__subclasses__: "tests/objects/test_classes.py",
    _abc._abc_subclasscheck: "tests/objects/test_classes.py",
    **dict.fromkeys([io.open_code, os.scandir, os.DirEntry.stat], "tests/io/test_files.py"),
    **dict.fromkeys([_abc._abc_init, _io.TextIOWrapper], "tests/effects/test_trees.py"),
    **dict.fromkeys([BaseExceptionGroup.split, BaseExceptionGroup.subgroup], "test_splitting_a_group"),
    **dict.fromkeys([*files._CHANGES, *files._LOOKS, os.truncate, os.utime, os.copy_file_range,
                     os.open, os.close, os.read, os.write, os.fsync, os.ftruncate, os.lseek,
                     _io.BufferedReader, _io.BufferedWriter.close, _io.TextIOWrapper.close,
                     *(getattr(_io.BufferedReader, name) for name in ("readline", "read1", "peek", "flush")),
                     *(getattr(_io.FileIO, name) for name in ("read", "readall", "write", "seek", "tell", "truncate", "close")),
                     *(getattr(_io.BufferedRandom, name) for name in (
                         "read", "readline", "read1", "peek", "write", "seek", "tell", "flush", "truncate", "close"))],
                    "tests/io/test_files.py"),
    **dict.fromkeys([_io._RawIOBase.read, _io._RawIOBase.readall], "tests/io/test_files.py"),
    warnings.warn: "tests/effects/test_warned.py",
}


def attempt(method, receiver, args, kwargs, seen=None):
    try:
        result = method(receiver, *args, **kwargs)
        return "returned", seen(result) if seen else result
    except (Exception, SystemExit) as e:
        return "raised", described(e)[:2]


def perform_all(methods, calls, receiver):
    return [attempt(method, receiver, args, kwargs, methods[method].result) for method, args, kwargs in calls]


def test_every_twin_is_compared():
    covered = {*CALLS, *BY_HAND}.union(*(how.methods for how in SEQUENCES.values()))
    assert [f"{twin}" for twin in activation.TWINS if twin not in covered] == []
    assert [f"{twin}" for twin in covered if twin not in activation.TWINS and twin is not _queue.SimpleQueue.qsize] == []
    assert list(twins.INSTANCE_TWINS) == [type, types.GenericAlias]  # test_making_a_dict_of_a_class, test_making_what_an_alias_is_of


def compared(function_, *args):
    """Both ways, with the same effects: the outcome."""
    outcomes = []
    for run in plainly, as_transaction, after_aborts:
        try:
            outcomes.append(("returned", run(function_, *args)))
        except Exception as e:
            outcomes.append(failure(e))
    assert outcomes[1:] == outcomes[:1] * 2
    return outcomes[0]


@pytest.mark.parametrize("args", [
    ("there", "rb"), ("there", "r"), ("not there", "rb"), ("there", "bad"), (5.5,), ("there", "rb", 0), ("there", "r", -1, "ascii"), (),
    ("there", "rb", -1, "ascii"), (b"there", "rb"), (...,), ("a\0b", "rb"), (True, "rb", 3, None, None, None, True, None, 9),
], ids=str)
def test_opening_files(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_bytes(b"contents")

    def read(*args, **kwargs):
        with open(*args, **kwargs) as file:
            return type(file).__name__, file.read(), file.mode

    compared(read, *args)
    compared(lambda: read(*args, wrong=1))


def test_making_a_buffered_writer(tmp_path):
    def write(*args, **kwargs):
        raw = io.FileIO(tmp_path / "file", "wb")
        writer = io.BufferedWriter(raw, *args, **kwargs)
        writer.write(b"abc")
        writer.close()
        return (tmp_path / "file").read_bytes(), raw.closed

    for args, kwargs in ((), {}), ((10,), {}), ((-1,), {}), (("a",), {}), ((), {"buffer_size": 5}), ((), {"wrong": 5}):
        compared(lambda: write(*args, **kwargs))


def test_sending_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"contents")

    def send(*args):
        one, other = socket.socketpair()
        with open(tmp_path / "file", "rb") as file, one, other:
            os.sendfile(one.fileno(), file.fileno(), *args)
            return other.recv(100)

    for args in (0, 3), (2, 100), ("a", 1), (0, -1), (0,), (), (0, 1, 2, 3, 4):
        compared(send, *args)


def test_making_sockets():
    def sockets(*args, **kwargs):
        with socket.socket(*args, **kwargs) as one, _socket.socket(*args, **kwargs) as other:
            return one.family, one.type, other.family, other.type, type(other).__name__

    for args in (), (socket.AF_UNIX,), (socket.AF_INET, socket.SOCK_DGRAM), ("a",), (1, 2, 3, 4, 5), (999,), (-1, -1, -1, 10**6):
        compared(sockets, *args)
    compared(lambda: sockets(type=socket.SOCK_DGRAM))
    compared(lambda: sockets(wrong=1))


def test_entering_a_lock():
    def enter():
        lock = _thread.allocate_lock()
        with lock as entered:
            return entered, lock.locked()

    compared(enter)


class OwnPartial(functools.partial):
    pass


STATES = [(max, (1,), {"key": abs}, None), (max, (1,), None, {"a": 1}), (max, (1, 2), OrderedDict(key=abs), None), (5, (), {}, None),
          (max, [], {}, None), (max, (functools.Placeholder,), {}, None), (max,), 5]  # fmt: skip


@pytest.mark.parametrize("make", [functools.partial, OwnPartial])
def test_copying_a_partial_function(make):
    made = make(sorted, [3, -1], key=abs)
    named = make(sorted, [3, -1], key=abs)
    named.name = "named"

    def copied(how, what):
        copy_ = how(what)
        return type(copy_), copy_.func, copy_.args, copy_.keywords, vars(copy_), copy_()

    for how in copy.copy, copy.deepcopy:
        assert compared(copied, how, made)[1][-1] == [-1, 3]
        compared(copied, how, named)

    def set_state(state):
        changed = make(min)
        changed.__setstate__(state)
        return changed.func, changed.args, changed.keywords, vars(changed)

    def shares_attributes(how):
        original = make(min)
        how(original).name = "copy"
        return hasattr(original, "name")

    assert [compared(shares_attributes, how) for how in (copy.copy, copy.deepcopy)] == [("returned", False)] * 2
    for state in STATES:
        compared(set_state, state)
        compared(lambda state=state: made.__setstate__(state))


class OwnZone(zoneinfo.ZoneInfo):
    pass


def test_copying_zones():
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    when = {"when": [datetime.datetime(2026, 1, 2, tzinfo=zone)]}

    def copied(how, zone):
        copy_ = how(zone)
        return type(copy_), str(copy_), copy_ is zone

    for how in copy.copy, copy.deepcopy, lambda zone: pickle.loads(pickle.dumps(zone)):
        assert compared(copied, how, zone) == ("returned", (zoneinfo.ZoneInfo, "Europe/Berlin", True))
        assert compared(copied, how, zoneinfo.ZoneInfo.no_cache("Europe/Berlin"))[1][2] is False
        assert compared(copied, how, OwnZone("Europe/Berlin"))[1][:2] == (OwnZone, "Europe/Berlin")
    assert runs_beside_others(copy.deepcopy, when) == when
    assert runs_beside_others(copy.deepcopy, when)["when"][0].tzinfo is zone
    for args in (), ("Europe/Berlin",), ("not/there", 1), (5, True), ("Europe/Berlin", "a"):
        compared(lambda args=args: zoneinfo.ZoneInfo._unpickle(*args))


class Remembering:
    def __init__(self, *args, **kwargs):
        if kwargs:
            raise ValueError(kwargs)
        self.args = args


class WithoutRoom:
    __slots__ = ()


class Refusing(Remembering):
    def __setattr__(self, name, value):
        if name == "__orig_class__":
            raise LookupError(name)
        super().__setattr__(name, value)


@pytest.mark.parametrize("origin", [list, dict, Remembering, WithoutRoom, Refusing])
def test_making_what_an_alias_is_of(origin):
    alias = types.GenericAlias(origin, (int,))

    def make(*args, **kwargs):
        made = alias(*args, **kwargs)
        return type(made), getattr(made, "__orig_class__", None) is alias, getattr(made, "args", made if origin in (list, dict) else None)

    compared(make)
    compared(make, [(1, 2)])
    compared(lambda: make(key=5))



@pytest.mark.parametrize("base", [dict, defaultdict, OrderedDict])
def test_making_a_dict_of_a_class(base):
    class Rows(base):
        pass

    @EXAMPLES
    @given(ROWS, st.sampled_from(["generator", "iterator", "list iterator"]))
    def check(rows, kind):
        compared(lambda: dict(Rows(make(World(), (kind, rows)))))

    check()


class Node:
    def __init__(self, inner):
        self.inner = inner


def chain(n):
    return Node(chain(n - 1)) if n else None


def test_pickling_as_deep_as_the_c_code_goes():
    nodes = chain(400)
    assert compared(pickle.dumps, nodes) == ("returned", pickle.dumps(nodes))
    shallow = chain(20)
    assert runs_beside_others(pickle.dumps, shallow) == pickle.dumps(shallow)


class OwnStream(io.BytesIO):
    pass


def test_looking_into_a_stream():
    def size(stream):
        with stream.getbuffer() as view:
            view[0] = 65
            return view.nbytes, view[:2].tobytes()

    def own(make=io.BytesIO):
        stream = make(b"abc")
        kept = stream.getbuffer()
        with pytest.raises(BufferError):
            stream.write(b"more than that")
        kept[1] = 66
        kept.release()
        with pytest.raises(ValueError):
            kept[0]
        stream.write(b"more than that")
        return size(stream), stream.getvalue()

    expected = (14, b"Ao"), b"Aore than that"
    assert runs_beside_others(own) == expected
    for make in io.BytesIO, OwnStream:
        assert compared(own, make) == ("returned", expected)
    assert compared(size, io.BytesIO(b"xyz")) == ("returned", (3, b"Ay"))
    assert runs_alone(size, io.BytesIO(b"xyz"))
    for stream in io.BytesIO(), 5:
        compared(lambda stream=stream: stream.close() or stream.getbuffer() if stream != 5 else io.BytesIO.getbuffer(5))


def test_a_view_of_a_stream_that_is_kept_holds_it():
    kept = []

    def look():
        stream = io.BytesIO(b"abc")
        kept.append(stream.getbuffer())
        return stream

    stream = after_aborts(look)
    with pytest.raises(BufferError):
        core.Transaction(stream.write, (b"more than that",)).run()
    assert len(kept) == 1 and bytes(kept[0]) == b"abc"
    core.Transaction(kept.pop().release, ()).run()
    assert core.Transaction(stream.write, (b"more than that",)).run() == 14


class Pages:
    """A file in Python, which tells what was asked of it."""

    def __init__(self, *pages):
        self.data, self.asked = io.BytesIO(b"".join(pages)), []

    def write(self, data):
        self.asked.append(bytes(data))

    def read(self, size):
        self.asked.append(size)
        return self.data.read(size)

    def readline(self):
        self.asked.append("line")
        return self.data.readline()


class Asked:
    def __reduce__(self):
        return Asked, ()

    def __eq__(self, other):
        return type(other) is Asked

    __hash__ = None


PICKLED = [{"a": [1, "x"]}, [Asked(), {Asked: b"y" * 70000}], OrderedDict(a=1), 5]


@pytest.mark.parametrize("protocol", [0, 2, 5, None, 99, "a"])
def test_pickling_to_a_file(protocol, tmp_path):
    def dump(file, *objects, **options):
        for obj in objects:
            pickle.dump(obj, file, protocol, **options)
        return file.getvalue() if isinstance(file, io.BytesIO) else b"".join(file.asked)

    def dump_to(path):
        with open(path, "wb") as file:
            for obj in PICKLED:
                pickle.dump(obj, file, protocol)
        return path.read_bytes()

    for make_file in io.BytesIO, Pages:
        compared(lambda make_file=make_file: dump(make_file(), *PICKLED))
    compared(dump_to, tmp_path / "file")
    compared(lambda: dump(io.BytesIO(), dump))
    if protocol != "a":
        compared(lambda: dump(io.BytesIO(), 1, fix_imports=False, buffer_callback=5))
    compared(lambda: pickle.dump(1, 5, protocol))
    if protocol in (0, 2, 5, None):
        shared = io.BytesIO()
        runs_beside_others(dump, shared, *PICKLED)
        assert shared.getvalue() == dump(io.BytesIO(), *PICKLED) * 2


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_unpickling_from_a_file(protocol, tmp_path):
    pickled = [pickle.dumps(obj, protocol) for obj in PICKLED]
    (tmp_path / "file").write_bytes(b"".join(pickled))

    def load(file, **options):
        loaded = [pickle.load(file, **options) for _ in pickled]
        with pytest.raises(EOFError):
            pickle.load(file)
        return loaded, file.asked if isinstance(file, Pages) else file.tell()

    def load_from(path):
        with open(path, "rb") as file:
            return load(file)

    class Ahead(Pages):
        def peek(self, size):
            start = self.data.tell()
            try:
                return self.data.read(size)
            finally:
                self.data.seek(start)

    for make_file in lambda: io.BytesIO(b"".join(pickled)), lambda: Pages(*pickled), lambda: Ahead(*pickled):
        assert compared(lambda make_file=make_file: load(make_file()))[1][0] == PICKLED
        assert runs_beside_others(lambda make_file=make_file: load(make_file(), fix_imports=False, encoding="bytes"))[0] == PICKLED
    assert compared(load_from, tmp_path / "file") == ("returned", (PICKLED, len(b"".join(pickled))))
    for wrong in b"x", pickled[0][:-3], 5:
        compared(lambda wrong=wrong: pickle.load(io.BytesIO(wrong) if wrong != 5 else wrong))
    compared(pickle.load, types.SimpleNamespace(read=5))
    for options in {"encoding": 5}, {"buffers": [b"x"]}, {"errors": None}:
        compared(lambda options=options: pickle.load(io.BytesIO(pickled[0]), **options))


def test_what_an_aborted_attempt_has_unpickled_is_read_once_more():
    shared, seen = io.BytesIO(pickle.dumps([1]) + pickle.dumps([2])), []
    for expected in [1], [2]:
        assert after_aborts(pickle.load, shared) == expected
    assert shared.read() == b"" == bytes(seen)


class Lying(type):
    def __instancecheck__(cls, instance):
        return True


class LyingError(ValueError, metaclass=Lying):
    pass


class OwnGroup(ExceptionGroup):
    exceptions = property(lambda group: ())

    def derive(self, parts):
        made = OwnGroup(f"{self.message}, derived", parts)
        made.__notes__ = "derived",
        return made


class Frozen(OwnGroup):
    __cause__, __context__ = property(lambda group: "nobody"), "nothing"

    def derive(self, parts):
        return Frozen("frozen", parts)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Unable(ExceptionGroup):
    def derive(self, parts):
        return parts if self.message == "a list" else 1 / 0


class Wanted:
    def __init__(self, log, fails_at=None):
        self.log, self.fails_at = log, fails_at

    def __call__(self, exception):
        self.log.append(repr(exception))
        if len(self.log) == self.fails_at:
            raise LookupError(exception)
        return [1] if isinstance(exception, ValueError) else ()


def raised(group, cause=None):
    try:
        try:
            raise OSError("before")
        except OSError:
            raise group from cause
    except BaseException as e:
        return e


def group(outer=ExceptionGroup, inner=ExceptionGroup, notes=("list", ["noted"])):
    leaf = ValueError("leaf")
    made = outer("outer", [leaf, LyingError("lying"), inner("inner", [KeyError(1), ValueError(2)]), raised(inner("raised", [leaf])), TypeError()])
    made.__notes__ = make(World(), notes)
    return raised(made, leaf)


def told(exception):
    """All that can be seen of an exception, or of several."""
    if exception is None or isinstance(exception, tuple):
        return exception and [told(part) for part in exception]
    lines, traceback = [], exception.__traceback__
    while traceback is not None:
        lines.append(traceback.tb_lineno)
        traceback = traceback.tb_next
    parts = [told(part) for part in BaseExceptionGroup.exceptions.__get__(exception)] if isinstance(exception, BaseExceptionGroup) else None
    return (type(exception), repr(exception), repr(exception.args), parts, lines, repr(exception.__cause__), repr(exception.__context__),
            exception.__suppress_context__, repr(getattr(exception, "__notes__", None)), vars(exception).keys())


MATCHERS = [
    ValueError, LyingError, KeyError, (KeyError, TypeError), ExceptionGroup, OwnGroup, BaseException, OSError, (), object, (int,), 5, None,
    [ValueError], (ValueError, 5),
]


@pytest.mark.parametrize("way", ["split", "subgroup"])
@pytest.mark.parametrize("notes", [
    ("list", ["noted"]), ("tuple", ("a", "b")), "text", 5, {"a": 1}, types.MappingProxyType({"a": 1})])  # fmt: skip
def test_splitting_a_group(way, notes):
    def split(made, matcher):
        return told(getattr(made(), way)(matcher))

    for outer, inner in itertools.product([ExceptionGroup, OwnGroup], repeat=2):
        for matcher in MATCHERS:
            compared(split, functools.partial(group, outer, inner, notes), matcher)
    compared(split, functools.partial(BaseExceptionGroup, "stop", [KeyboardInterrupt(), OwnGroup("own", [KeyError()])]), KeyError)
    compared(split, lambda: raised(raised(Frozen("frozen", [KeyError(), ValueError()])), OSError()), KeyError)
    for message in "a list", "nothing":
        assert compared(split, functools.partial(Unable, message, [KeyError(), ValueError()]), KeyError)[0] == "raised"


@pytest.mark.parametrize("way", ["split", "subgroup"])
@pytest.mark.parametrize("fails_at", [None, 1, 4])
def test_splitting_a_group_by_a_function(way, fails_at):
    def split(made):
        wanted = Wanted([], fails_at)
        try:
            return told(getattr(made, way)(wanted)), wanted.log
        except LookupError as e:
            return repr(e), repr(e.__context__), wanted.log

    assert compared(split, group())[0] == "returned"
    runs_beside_others(split, group())
    assert compared(lambda: getattr(group(), way)(functools.partial(isinstance, 5)))[0] == "raised"


def test_splitting_a_group_is_its_transactions_own_until_the_commit():
    made, seen = group(), []

    def split(made):
        match, rest = made.split(lambda exception: made.add_note("seen") or isinstance(exception, ValueError))
        seen.append((match.__notes__, rest.__notes__, len(made.__notes__)))
        return made.__notes__

    assert compared(split, group())[0] == "returned"
    seen.clear()
    assert after_aborts(split, made) == ["noted"] + ["seen"] * 9
    assert seen == [(["noted"] + ["seen"] * 9, ["noted"] + ["seen"] * 9, 10)]


def nested(depth):
    made = ValueError("inside")
    for _ in range(depth):
        made = ExceptionGroup("nested", [made, KeyError()])
    return made


def test_splitting_a_group_as_deep_as_the_c_code_goes():
    def depth(made):
        made, depth = made.split(ValueError)[0], 0
        while isinstance(made, ExceptionGroup):
            made, depth = made.exceptions[0], depth + 1
        return depth

    assert compared(depth, nested(3000)) == ("returned", 3000)
    assert runs_beside_others(depth, nested(50)) == 50


# ---- What strategies do not show ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("consume", [sum, max, min, any, functools.partial(functools.reduce, max)], ids=str)
def test_an_iterator_is_not_stored(consume):
    """In steps: no more than one item lives at a time."""
    alive, most = 0, 0

    class Item(int):
        def __new__(cls):
            nonlocal alive, most
            alive += 1
            most = max(alive, most)
            return super().__new__(cls)

        def __del__(self):
            nonlocal alive
            alive -= 1

    def items():
        for _ in range(200):
            yield Item()

    as_transaction(lambda: consume(items()))
    assert alive == 0 and most < 10


def test_what_cannot_be_encoded_is_complained_of_where_it_is_printed(tmp_path, monkeypatch):
    def print_all(file):
        monkeypatch.setattr(sys, "stdout", file)
        try:
            print("before", "\ud800", "after")
        except UnicodeEncodeError as e:
            print("caught", ascii(e.object), e.start, e.reason)

    left = []
    for run in plainly, as_transaction, after_aborts:
        with open(tmp_path / "file", "w", encoding="utf-8", errors="strict") as file:
            run(print_all, file)
        left.append((tmp_path / "file").read_bytes())
    assert left[0].startswith(b"before caught") and left[1:] == left[:1] * 2


def test_what_two_transactions_print_does_not_mix(tmp_path):
    def print_two(file, name):
        print(name, 1, sep="-", file=file)
        print(name, 2, sep="-", file=file)

    with open(tmp_path / "file", "w") as file:
        queue = transaction.TransactionQueue()
        for i in range(200):
            queue.add(print_two, file, i)
        queue.run(2)
    lines = (tmp_path / "file").read_text().splitlines()
    assert sorted(int(line.split("-")[0]) for line in lines[::2]) == list(range(200))
    assert [line.replace("-1", "-2") for line in lines[::2]] == lines[1::2]


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_of_twins_does_what_they_stand_for(name, tmp_path):
    how = SEQUENCES[name]

    def made_calls(world, recipes):
        return [(method, many(world, args), {k: make(world, v) for k, v in kwargs.items()}) for method, args, kwargs in recipes]

    def outcome_of(run, recipes, others=None):
        world = World(path=tmp_path)
        try:
            receiver = how.begin(world)
            calls = made_calls(world, recipes)
            if others is not None:
                run = run(made_calls(world, others))
            came = run(perform_all, how.methods, calls, receiver)
            return [(what, described(result)) for what, result in came], described([args for _, args, _ in calls]), how.end(
                world, receiver)
        finally:
            for each in world.objects:
                if hasattr(each, "close"):
                    each.close()

    @settings(EXAMPLES, max_examples=how.examples)
    @given(how.recipes(), how.recipes(how.others))
    def check(recipes, others):
        expected = outcome_of(plainly, recipes)
        for run in as_transaction, after_aborts:
            assert outcome_of(run, recipes) == expected
        assert outcome_of(after_other_calls, recipes, others) == expected

    check()


def test_looking_at_files(tmp_path):
    (tmp_path / "file").write_text("text")

    def look(path):
        with open(path, "rb") as file:
            return [found.st_size for found in (os.stat(path), os.lstat(path), os.fstat(file.fileno()))]

    compared(look, str(tmp_path / "file"))
    for function in os.stat, os.lstat:
        compared(function, str(tmp_path / "missing"))
        compared(function, 1.5)
    compared(os.fstat, -1)


def test_blocking_of_sockets():
    def change(value):
        with socket.socket() as sock:
            seen = [sock.gettimeout(), sock.getblocking()]
            sock.settimeout(value)
            seen += [sock.gettimeout(), sock.getblocking()]
            sock.setblocking(value)
            return seen + [sock.gettimeout(), sock.getblocking()]

    for value in (None, 0, 1, 2.5, -1, "soon"):
        compared(change, value)


@pytest.mark.parametrize("given", [
    {}, {"ctx": decimal.Context(prec=3, traps=[])}, {"ctx": None, "prec": 4}, {"ctx": 5}, {"prec": "a"}, {"traps": [decimal.Inexact]},
    {"flags": {decimal.Inexact: True}}, {"rounding": decimal.ROUND_UP, "nothing": 1}])  # fmt: skip
def test_beginning_a_decimal_context(given):
    def divide(*args, **given):
        with decimal.localcontext(*args, **given) as context:
            context.Emax = 99
            return decimal.Decimal(2) / 3, repr(context), decimal.getcontext() is context

    compared(lambda: divide(**given))
    compared(lambda: divide(*given.values()))


def test_a_context_that_others_have_is_copied_beside_them():
    def divide():
        with decimal.localcontext(context) as own:
            own.Emax = 99
            return decimal.Decimal(2) / 3

    context = decimal.Context(prec=3)
    assert runs_beside_others(divide) == decimal.Decimal("0.667") and context.Emax == 999999


def test_making_decimals():
    def make(value):
        return decimal.Context(prec=3).create_decimal(value)

    for value in ("1.23456", 7, 2.5, (0, (1, 2, 3, 4), -2), [0, [1], 0], "no number", None):
        compared(make, value)


PLAIN_KEYS = st.one_of(
    st.integers(0, 4), st.integers(-(10**30), 10**30), st.floats(), st.sampled_from("abc"), st.tuples(st.integers(0, 2), st.text(max_size=2)),
    st.tuples(st.floats(allow_nan=True), st.tuples(st.integers(0, 1), st.integers(0, 1))), st.lists(st.integers(0, 1), max_size=3).map(tuple),
)


@pytest.mark.skipif(not core.PARALLEL, reason="the originals are called")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PLAIN_KEYS, max_size=12), st.booleans())
def test_heaps_of_plain_keys_are_ordered_as_by_heapq(keys, greatest_first):
    """The same objects in the same places: also where some are not equal to themselves, or cannot be compared."""
    make, push, pop = (
        (_heapq.heapify_max, _heapq.heappush_max, _heapq.heappop_max) if greatest_first
        else (_heapq.heapify, _heapq.heappush, _heapq.heappop)
    )

    def sort():
        heap, popped = [], []
        try:
            for key in keys:
                push(heap, key)
            for _ in range(len(keys) // 2):
                popped.append(pop(heap))
            make(heap)
        except TypeError as e:
            popped.append(str(e))
        return [id(key) if not isinstance(key, str) else key for key in popped + heap]

    activation.activate()
    assert core.Transaction(sort, ()).run() == sort()


def test_a_method_that_is_known_and_then_bound():
    found = []

    def attempt():
        numbers = [3, 1, 2]
        for _ in range(40):  # until its calls are known
            numbers.sort()
        bound = numbers.sort
        numbers.reverse()
        bound()
        found.append(numbers)

    core.inject_aborts(1e-9, 0)  # so that none is sequential
    try:
        core.Transaction(attempt, ()).run()
    finally:
        core.inject_aborts(0, 0)
    assert found == [[1, 2, 3]]


class Singly(type):
    def __call__(cls, *args, **kwargs):
        return super().__call__(*args, **kwargs)


class OneDict(dict, metaclass=Singly):
    pass


class OneList(list, metaclass=Singly):
    pass


class OnePartial(functools.partial):
    def __call__(self, *args):
        return super().__call__(*args)


#: what is called by `__call__`, which C code hands on to it
BY_CALL = {
    "a function": lambda: sorted.__call__([3, 1], key=lambda n: -n),
    "a function, by its type": lambda: type(max).__call__(max, [3, 1]),
    "a method": lambda: "{} {a}".format.__call__(1, a=2),
    "a method of a type": lambda: str.format.__call__("{}", 1),
    "a type": lambda: dict.__call__([(1, 2)], a=3),
    "a type, by its own": lambda: [type.__call__(kind, made) for kind, made in [(list, "ab"), (dict, [(1, 2)]), (OrderedDict, [(3, 4)])]],
    "a type of iterators": lambda: list(map.__call__(lambda n: n + 1, [1, 2])),
    "a class of a metaclass": lambda: (OneDict([(1, 2)]), OneDict((n, n) for n in range(2)), OneDict(a=1), OneList("ab"), OneList.__call__()),
    "a partial": lambda: functools.partial(max, [1]).__call__(),
    "a partial, by its type": lambda: functools.partial.__call__(functools.partial(max, [1])),
    "a partial of a class of its own": lambda: OnePartial(max, [3])(),
    "what remembers": lambda: functools.lru_cache(lambda n: n + 1).__call__(4),
    "a caller of methods": lambda: operator.methodcaller("count", 1).__call__([1]),
    "a getter": lambda: operator.attrgetter("real.imag").__call__(5),
    "a bound method in C": lambda: types.MethodType(len, [1]).__call__(),
    "what calls what is around another": lambda: functools.partial(functools.partial(max, [1]).__call__)(),
    "for each item": lambda: [*map(operator.methodcaller("upper").__call__, "ab"), *map(functools.partial(divmod, 9).__call__, [4])],
    "again and again": lambda: len.__call__.__call__.__call__([1, 2]),
    "an alias": lambda: list[int].__call__("ab"),
    "eval": lambda: eval.__call__("1 + 1"),
}


@pytest.mark.parametrize("what", BY_CALL)
def test_what_is_called_by_its_method_is_stood_in_for(what):
    assert core.Transaction(BY_CALL[what], ()).run() == BY_CALL[what]()


def test_a_function_of_another_copy_of_the_module_is_called_itself():
    """Which has the same definitions in C, and a state of its own."""
    saved = {name: sys.modules.pop(name) for name in ("abc", "_abc")}
    try:
        other = importlib.import_module("abc")
    finally:
        sys.modules.update(saved)
    assert other is not abc

    class Here(metaclass=abc.ABCMeta):
        pass

    class There(metaclass=other.ABCMeta):
        pass

    def ask(cls):
        return {issubclass(int, cls) for _ in range(50)}

    def ask_all():
        return [ask(cls) for cls in (Here, There, Here, There)]

    activation.activate()
    assert ask_all() == [{False}] * 4  # and they are not asked for the first time
    core.inject_aborts(1e-9, 0)  # so that none is sequential
    try:
        assert core.Transaction(ask_all, ()).run() == [{False}] * 4
    finally:
        core.inject_aborts(0, 0)


NUMBERS_ONLY = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


@pytest.mark.parametrize("ask, found", [
    (lambda: socket.gethostbyname("127.0.0.1"), "127.0.0.1"),
    (lambda: socket.getnameinfo(("127.0.0.1", 80), NUMBERS_ONLY), ("127.0.0.1", "80")),
    (lambda: socket.getaddrinfo("127.0.0.1", 80, flags=socket.AI_NUMERICHOST)[0][4], ("127.0.0.1", 80)),
])  # fmt: skip
def test_who_asks_nobody_for_a_name_runs_beside_others(ask, found):
    assert runs_beside_others(ask) == found


@pytest.mark.parametrize("ask", [
    lambda: socket.gethostbyname("localhost"), lambda: socket.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST),
])  # fmt: skip
def test_who_asks_somebody_for_a_name_runs_alone(ask):
    before = core.stats()["exclusives"] + core.stats()["sequentials"]
    assert core.Transaction(lambda: (ask(), core.is_exclusive()), ()).run()[1]
    assert core.stats()["exclusives"] + core.stats()["sequentials"] > before


def test_who_sees_that_a_child_goes_on_runs_beside_others_and_who_takes_its_status_alone():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with child.stdin:
        assert runs_beside_others(os.waitpid, child.pid, os.WNOHANG) == (0, 0)
        assert runs_beside_others(child.poll) is None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (found, status), alone = core.Transaction(lambda: (os.waitpid(child.pid, os.WNOHANG), core.is_exclusive()), ()).run()
    assert found == child.pid and os.waitstatus_to_exitcode(status) == 1 and alone
    assert compared(os.waitpid, child.pid, os.WNOHANG)[0] == "raised"
    child.returncode = 1


def test_who_looks_until_a_child_has_ended_lets_it_have_what_was_put_off():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)

    def end():
        child.stdin.write(b"\n")
        child.stdin.flush()
        while child.poll() is None:
            pass
        return child.returncode, core.is_exclusive()

    with child.stdin:
        assert core.Transaction(end, ()).run() == (0, True)
