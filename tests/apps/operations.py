"""Small operations on a heap with one object of each kind: what `test_serializability` makes random programs of.

An operation is a function ``op(h, n, m)`` of the heap and small numbers from 0 to 7, one for each feature of the language
that transactions must get right.  Operations may raise; nothing that they return depends on what Python leaves open (the
order of a set, when an object dies, addresses).

*Purses* are places of every kind that hold coins.  Coins move between purses and are neither made nor lost, so a
transaction that counts them notices if it sees another one half done.
"""

import abc
import array
import asyncio
import bisect
import bz2
import codecs
import contextlib
import contextvars
import copy
import csv
import dataclasses
import datetime
import enum
import functools
import hashlib
import heapq
import hmac
import io
import itertools
import json
import logging
import lzma
import math
import operator
import os
import random
import re
import socket
import string
import struct
import sys
import threading
import traceback
import types
import weakref
import xml.etree.ElementTree as ElementTree
import zlib
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from xml.parsers import expat

from tornado.stm import core, testing
from tornado.stm.testing import require

try:
    from sqlalchemy.util.concurrency import await_only, greenlet_spawn
except ImportError:
    await_only = greenlet_spawn = None

COINS = 10
PACKED = zlib.compress(b"what is packed")
OPERATIONS = {}  # name -> function; arguments are small numbers, but for the names of purses
UNDONE = {}  # the same, for what Python gives no meaning to if it is done: changing what an iterator is about to walk over
PURSES = {}  # name -> function(h, new=None): what it holds; if `new` is given, after it has been put in


def op(function):
    """Declare an operation."""
    OPERATIONS[function.__name__] = function
    return function


def undone(function):
    """Declare an operation that must be rolled back."""
    UNDONE[function.__name__] = function
    return function


def purse(function):
    """Declare a place for coins."""
    PURSES[function.__name__] = function
    return function


# ---- Classes ------------------------------------------------------------------------------------------------------------


class Thing:
    """Attributes in the instance."""

    limit = 100

    def __init__(self, coins=COINS, **others):
        self.coins = coins
        self.__dict__.update(others)

    def bump(self, n):
        self.count = getattr(self, "count", 0) + n
        return self.count

    @classmethod
    def named(cls, name):
        return cls(0, name=name)

    @staticmethod
    def twice(n):
        return n * 2


class Space(types.SimpleNamespace):
    pass


class Slotted:
    __slots__ = ("coins", "left", "right", "__weakref__")

    def __init__(self):
        self.coins = COINS
        self.left = self.right = 0


class SlottedChild(Slotted):
    __slots__ = ("extra",)


class Account:
    """A property with a setter, a read-only one, and a cached one."""

    def __init__(self):
        self._coins = COINS

    @property
    def coins(self):
        return self._coins

    @coins.setter
    def coins(self, value):
        self._coins = value

    @coins.deleter
    def coins(self):
        self._coins = 0

    @property
    def doubled(self):
        return 2 * self._coins

    @functools.cached_property
    def first_seen(self):
        return self._coins

    def draw(self, amount, *, reason):
        self.reason = reason
        return self._coins - amount

    draw_one = functools.partialmethod(draw, 1, reason="one")

    @functools.singledispatchmethod
    def accept(self, what):
        return "refused"

    @accept.register
    def _(self, what: int):
        self.accepted = what
        return what


class Field:
    """A data descriptor in Python, which keeps its values in a dict of its own name."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.values[self.name]

    def __set__(self, instance, value):
        instance.values[self.name] = value

    def __delete__(self, instance):
        del instance.values[self.name]


class Described:
    coins = Field()
    other = Field()

    def __init__(self):
        self.values = {"_coins": COINS, "_other": 0}


class Lazy:
    """A descriptor without __set__: what is in the instance comes first."""

    def __get__(self, instance, owner=None):
        instance.__dict__["value"] = instance.seed + 1
        return instance.__dict__["value"]


class WithLazy:
    value = Lazy()

    def __init__(self):
        self.seed = 1


class Dynamic:
    """__getattr__, __setattr__ and __delattr__."""

    def __init__(self):
        object.__setattr__(self, "data", {"coins": COINS})

    def __getattr__(self, name):
        try:
            return object.__getattribute__(self, "data")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.data[name] = value

    def __delattr__(self, name):
        del self.data[name]


class Watched:
    """__getattribute__."""

    def __init__(self):
        self.looks = 0
        self.coins = COINS

    def __getattribute__(self, name):
        if name == "coins":
            self.looks += 1
        return object.__getattribute__(self, name)


class Many:
    """More attributes than an instance keeps inline."""

    def __init__(self):
        for i in range(36):
            setattr(self, f"a{i}", COINS if i == 0 else i)


class Borg:
    """All instances share one dict of attributes."""

    def __init__(self, state):
        self.__dict__ = state


class OwnDict(dict):
    """Its attributes are its items."""

    def __init__(self):
        self.__dict__ = self


class Vector:
    """Operators, comparisons, hash, length, truth, call, subscripts, iteration."""

    def __init__(self, *parts):
        self.parts = list(parts)

    def __eq__(self, other):
        return isinstance(other, Vector) and self.parts == other.parts

    def __hash__(self):
        return len(self.parts)

    def __lt__(self, other):
        return self.parts < other.parts

    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self.parts, other.parts)))

    def __radd__(self, other):
        return Vector(*(other + a for a in self.parts))

    def __iadd__(self, n):
        self.parts[0] += n
        return self

    def __neg__(self):
        return Vector(*(-a for a in self.parts))

    def __len__(self):
        return len(self.parts)

    def __bool__(self):
        return self.parts[0] != 0

    def __call__(self, n):
        self.parts[0] = n
        return sum(self.parts)

    def __getitem__(self, i):
        return self.parts[i]

    def __setitem__(self, i, value):
        self.parts[i] = value

    def __delitem__(self, i):
        del self.parts[i]

    def __contains__(self, item):
        return item in self.parts

    def __iter__(self):
        return iter(self.parts)

    def __reversed__(self):
        return reversed(self.parts)

    def __repr__(self):
        return f"Vector({', '.join(map(repr, self.parts))})"

    def __format__(self, spec):
        return f"<{self.parts[0]:{spec}}>"

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.parts, other.parts))


class Spot:
    """A key whose hash and comparison are Python code, and take a lock; some have the same hash, and that of a name or a number."""

    lock = None
    hashes = (hash("a"), 1, hash("spot"), 2**40 + 7)

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        with self.lock:
            return self.hashes[self.n % 4]

    def __eq__(self, other):
        with self.lock:
            return isinstance(other, Spot) and self.n == other.n

    def __repr__(self):
        return f"Spot({self.n})"


@functools.total_ordering
class Rank:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    __hash__ = None


class Countdown:
    """An iterator in Python."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Sequence:
    """Iterated by __getitem__."""

    def __init__(self):
        self.items = [3, 1, 2]

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


class Guard:
    """A context manager that keeps books."""

    def __init__(self, swallow):
        self.swallow = swallow
        self.log = []

    def __enter__(self):
        self.log.append("in")
        return len(self.log)

    def __exit__(self, kind, value, traceback):
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow


class AsyncGuard(Guard):
    async def __aenter__(self):
        self.log.append("in")
        await pause("enter")
        return len(self.log)

    async def __aexit__(self, kind, value, traceback):
        if kind is not GeneratorExit:
            await pause("exit")
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow


class Stack(list):
    """A list with attributes and a method of its own."""

    def append(self, item):
        self.appended = getattr(self, "appended", 0) + 1
        super().append(item)


class Missing(dict):
    def __missing__(self, key):
        self[key] = key * 2
        return self[key]


class Whole(int):
    """An integer with attributes."""


class Problem(Exception):
    def __init__(self, number):
        super().__init__(number, "problem")
        self.number = number


class Registry:
    """Classes that are made at run time get registered."""

    def __init_subclass__(cls, registry=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if registry is not None:
            registry.append(cls)


class Meta(type):
    def __new__(mcs, name, bases, namespace, **kwargs):
        namespace["made_by"] = "Meta"
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *args):
        instance = super().__call__(*args)
        instance.called = args
        return instance


Pair = namedtuple("Pair", "first second")


class Mail:
    """What is told outside of the process when a transaction commits; whoever tells something takes the next number for it."""

    def __init__(self):
        self.number = 0
        self.paper = os.fdopen(os.memfd_create("paper"), "w")
        self.logger = logging.Logger("mail")
        self.logger.addHandler(logging.StreamHandler(self.paper))
        self.sender, self.receiver = socket.socketpair()
        self.sender.setblocking(False)
        self.receiver.setblocking(False)
        self.inbox, other_end = socket.socketpair()
        self.inbox.setblocking(False)
        other_end.sendall(bytes(range(100)))
        other_end.close()
        self.packets, other_end = socket.socketpair(type=socket.SOCK_DGRAM)
        self.packets.setblocking(False)
        for n in range(10):  # as many as the kernel keeps
            other_end.send(b"%d..." % n)
        other_end.close()
        self.told = []  # by calls that wait for the commit
        self.ways = self.paper, self.logger, self.sender, self.told, self.inbox, self.packets

    def next(self):
        self.number += 1
        return self.number

    def arrived(self):
        """All that has been told, in its order, and what has not been received."""
        self.paper.flush()
        try:
            sent = self.receiver.recv(10000)
        except BlockingIOError:
            sent = b""
        left = b""
        while piece := core.Transaction(self.inbox.recv, (1000,)).run():  # what attempts have received that were rolled back, too
            left += piece
        with contextlib.suppress(BlockingIOError):
            while True:
                left += core.Transaction(self.packets.recv, (10,)).run()
        return self.number, os.pread(self.paper.fileno(), 10000, 0), sent, self.told, left

    def close(self):
        for each in (self.paper, self.sender, self.receiver, self.inbox, self.packets):
            each.close()


@core.trusted
def tell_at_commit(told, *what):
    core.defer(told.append, what)


@dataclasses.dataclass
class Data:
    coins: int = COINS
    tags: list = dataclasses.field(default_factory=list)
    name: str = "data"

    def __post_init__(self):
        self.size = len(self.tags)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    m: int = 0


@dataclasses.dataclass(slots=True)
class SlottedData:
    coins: int = COINS
    items: list = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = 0
    GREEN = 1
    BLUE = 2

    def after(self):
        return Color((self.value + 1) % 3)


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2
    EXECUTE = 4


@functools.singledispatch
def kind_of(obj):
    return "object"


@kind_of.register
def _(obj: int):
    return "int"


@kind_of.register(list)
def _(obj):
    return f"list of {len(obj)}"


@types.coroutine
def pause(what):
    return (yield what)


def finish(coroutine, answers=()):
    """Run a coroutine to its end; what it waits for is answered with these values, then None."""
    answers = iter(answers)
    answer = None
    waits = []
    while True:
        try:
            waits.append(coroutine.send(answer))
        except StopIteration as e:
            return e.value, waits
        answer = next(answers, None)


# ---- Module globals that functions rebind -----------------------------------------------------------------------------------

global_coins = 0
global_count = 0
global_item = None


# ---- The heap -----------------------------------------------------------------------------------------------------------------


def make_account(coins):
    """Closures that share rebound variables."""
    count = spare = 0

    def look():
        return coins

    def put(new):
        nonlocal coins, count
        coins = new
        count += 1
        return count

    def drop():
        nonlocal spare
        try:
            del spare
        except NameError:
            spare = "made again"
        return count

    return look, put, drop


def counting(log):
    """A generator that outlives transactions; it takes what is sent to it, and cleans up."""
    n = 0
    try:
        while n < 40:
            try:
                got = yield n
            except Problem as e:
                got = e.number
            n += 1 if got is None else got
            log.append(n)
    finally:
        log.append("closed")


def delegating(log):
    with contextlib.suppress(ZeroDivisionError):
        first = yield from iter([1, 2, 3])
        log.append(first)
        got = yield from counting(log)
        log.append(got)
    return "done"


def walking(items):
    """A loop over a list, suspended with its iterator on the stack."""
    for i, item in enumerate(items):
        for letter in "ab":
            yield i, item, letter


def squares_of(items):
    return (item * item for item in items if item is not None)


async def ticking(log):
    """An asynchronous generator that outlives transactions."""
    n = 0
    try:
        while True:
            n += await pause(("tick", n)) or 1
            got = yield n
            if got:
                log.append(got)
    finally:
        log.append("aclosed")


async def working(things, log):
    """A coroutine that outlives transactions."""
    async with AsyncGuard(False) as n:
        log.append(n)
        for thing in things:
            log.append([thing, await pause(thing)])
        async for n in ticking([]):  # it says that it is closed when it dies, and who knows when that is
            if n > 4:
                break
            log.append([n async for n in some(n)])
    return len(log)


async def some(n):
    for i in range(n):
        await pause(i)
        yield i


def rest_of(iterator):
    """What is left in it; that of a set in an order of its own."""
    try:
        rest = list(itertools.islice(iterator, 30))
    except (RuntimeError, TypeError) as e:  # such as of an item that cannot be squared
        return str(e)
    return sorted(rest) if isinstance(iterator, type(iter(set()))) else rest


class Heap:
    """One object of each kind."""

    def __init__(self):
        global global_coins, global_count, global_item
        global_coins, global_count, global_item = COINS, 0, None
        Spot.lock = threading.RLock()  # a new one: a run that hangs has it for ever
        # Places for coins, and what there is to do with their kinds.
        self.thing = Thing(x=1, y=[1, 2])
        self.things = {name: Thing(i) for i, name in enumerate("abc")}
        self.slotted = Slotted()
        self.child = SlottedChild()
        self.account = Account()
        self.described = Described()
        self.lazy = WithLazy()
        self.dynamic = Dynamic()
        self.watched = Watched()
        self.many = Many()
        state = {"coins": COINS, "n": 0}
        self.borgs = [Borg(state), Borg(state)]
        self.own = OwnDict()
        self.own.coins = COINS
        self.space = types.SimpleNamespace(coins=COINS, x=0)
        self.derived_space = Space(x=0, y=0)
        self.look, self.put, self.drop = make_account(COINS)
        self.cells = [(lambda: i) for i in range(2)]
        self.list = [COINS, 4, 7, 1]
        self.long = [COINS] + list(range(99))
        self.stack = Stack([1])
        self.dict = {"coins": COINS, 0: "zero", "a": 1}
        self.words = {}
        self.numbers = {-1: 0, -2: 0}
        self.default = defaultdict(list, {"coins": [COINS]})
        self.tally = defaultdict(int, {"coins": COINS})
        self.counter = Counter(coins=COINS, a=2)
        self.ordered = OrderedDict(a=1, coins=COINS, b=2)
        self.missing = Missing(coins=COINS)
        self.chain = ChainMap({}, {"coins": COINS, "a": 0})
        self.user_dict = UserDict(coins=COINS)
        self.user_list = UserList([COINS, 1])
        self.set = {1, 2, 5}
        self.purse_set = set(range(COINS))
        self.other_set = {5, 6, 7}
        self.frozen = frozenset([1, 2, 3])
        self.sets = {frozenset(), frozenset([1, 2, 5])}
        self.row = ["row", 0]
        self.deque = deque([COINS, 1, 2])
        self.bounded = deque([0, 1, 2], maxlen=3)
        self.bytes = bytearray([COINS, 1, 2, 3])
        self.view = memoryview(self.bytes)
        self.grown = bytearray(b"01234567")
        self.shown = None
        self.array = array.array("H", range(5))
        self.compressor = zlib.compressobj()
        self.decompressor = zlib.decompressobj()
        self.packers = []
        self.digests = [hashlib.sha256(), hashlib.blake2b(), hmac.new(b"key", digestmod="sha1")]
        self.nested = {"list": [[COINS], {}], "deep": {"er": [1, 2]}}
        self.tuple = (1, [COINS], {"a": 1})
        self.data = Data()
        self.slotted_data = SlottedData()
        self.frozen_data = {Frozen(1): 1}
        self.color = Color.RED
        self.rights = Rights.READ
        self.vector = Vector(1, 2, 3)
        self.vectors = {Vector(1): 1, Vector(2): 2}
        self.spots = {Spot(0): 0, "a": 1, Spot(1): 2, 1: 3, Spot(4): 4}
        self.spot_set = {Spot(0), 1, Spot(1), "a"}
        self.spot_thing = Thing()
        self.spot_order = OrderedDict.fromkeys(map(Spot, range(3)), 0)
        self.spot_cache = functools.lru_cache(maxsize=3)(spot_number)
        self.spot_memory = functools.cache(spot_number)
        self.ranks = [Rank(3), Rank(1), Rank(2)]
        self.heap = [1, 3, 2, 7, 4]
        self.sorted = [1, 3, 5, 7]
        self.partial = functools.partial(self.long.index, 5)
        self.bound = self.thing.bump
        self.described = types.FunctionType((lambda a: a).__code__, {}, "described")
        self.described.p, self.described.q = 1, 2
        self.around = functools.partial(max, self.list, self.dict)
        self.erroneous = SyntaxError("message")
        self.variable = contextvars.ContextVar("variable", default=0)
        self.context = contextvars.Context()
        self.context.run(self.variable.set, COINS)
        self.token = None
        self.weak_values = weakref.WeakValueDictionary()
        self.weak_keys = weakref.WeakKeyDictionary()
        self.weak_set = weakref.WeakSet()
        self.kept = [Thing(i) for i in range(4)]  # alive, so that none of these changes by itself
        self.reference = weakref.ref(self.kept[0])
        self.proxy = weakref.proxy(self.kept[1])
        self.tickets, self.watched = [], []
        self.problem = Problem(1)
        self.problems = []
        self.guard = Guard(True)
        self.classes = []
        self.base = type("Base", (), {})
        self.abstract = abc.ABCMeta("Abstract", (), {})
        self.subclasses = {n: [] for n in range(8)}  # alive, so that none of these leaves its base by itself
        self.asked = [type("Asked", (), {"number": n}) for n in range(8)]
        self.namespace = {"x": 1}
        self.mapping = types.MappingProxyType({"a": [1]})
        self.random = random.Random(1)
        self.text = io.StringIO()
        self.rows = csv.writer(self.text)
        self.tree = ElementTree.fromstring(f"<a coins='{COINS}'><b n='1'>text</b>{COINS}<c><b/></c><d>{COINS}</d></a>")
        self.future = None
        self.log = []
        self.calls = []
        self.abandoned = []  # generators and coroutines that would do something when they die
        # What some look at for long, and others change meanwhile: few operations each, so that those of a program meet.
        self.members = {0, 2, 4, 6}
        self.names = dict.fromkeys([0, 2, 4, 6])
        self.watched_things = [Thing(n) for n in range(8)]
        self.watched_dicts = [{"a": n} for n in range(8)]

        @functools.lru_cache(maxsize=4)
        def cached(n):
            return [n]

        self.cached = cached
        self.remembered = functools.cache(lambda n: [n])
        self.dispatched = functools.singledispatch(lambda obj: "anything")
        self.views = [self.dict.keys(), self.dict.items(), self.words.values()]

        # What outlives transactions: started, and in the middle of something.
        self.generator = counting(self.log)
        self.delegating = delegating(self.log)
        self.walking = walking([3, 1, 4])
        self.squares = squares_of(self.list)
        self.made = None
        self.ticking = ticking(self.log)
        self.working = working(["a", "b"], self.log)
        self.working.send(None)
        self.block_variable = contextvars.ContextVar("block_variable", default="outside")
        self.blocks = contextvars.Context()
        self.block = self.blocks.run(self.block_variable.set, 0)
        self.countdown = Countdown(9)
        # What these are over is only changed by what is undone.
        self.table = table = dict.fromkeys("abcdefgh", 0)
        del table["b"]
        self.plain = plain = list(range(12))
        self.walked_set = {0, 1, 2, 3, 8, 16}
        self.walked_ordered = OrderedDict.fromkeys("abcd")
        self.walked_deque = deque(plain)
        self.walked_bytes = bytearray(b"xyz")
        self.iterators = [
            iter(plain), iter(tuple(plain)), iter("abcdefghij"), iter(b"abcdefgh"), iter(range(9)), iter(table),
            iter(table.items()), iter(table.values()), iter(self.walked_set), iter(self.walked_deque), reversed(plain),
            reversed(table), enumerate(plain), zip(plain, plain), map(operator.neg, plain), filter(None, plain),
            itertools.chain(plain, "ab"), itertools.islice(plain, 2, 9), itertools.count(5), itertools.accumulate(plain),
            itertools.pairwise(plain), itertools.batched(plain, 2), itertools.repeat(1, 5), iter(self.countdown.__next__, 3),
            itertools.cycle([1, 2, 3]), itertools.zip_longest(plain, "ab"), itertools.product([0, 1], repeat=2),
            itertools.groupby([0, 0, 1]), iter(self.walked_ordered), iter(self.walked_bytes), iter(Sequence()),
            map(lambda a: a + 1, plain), filter(lambda a: a % 2, plain), zip(iter(plain), self.countdown),
            itertools.starmap(pow, [(2, 2), (3, 2)]), itertools.takewhile(bool, [1, 2, 0]), iter(reversed("abc")),
            itertools.permutations("abc"), itertools.tee(iter(plain))[0], re.finditer("a", "banana"),
        ]
        self.live = iter(self.list)  # over what operations change, as are these
        self.lives = [None] * 7
        self.steady = dict.fromkeys(range(4), 0)
        self.mail = Mail()
        # A pool of operations each, for they are to meet.
        self.paper, self.logger, self.sender, self.told, self.inbox, self.packets = self.mail.ways

    def observe(self):
        """What is compared: everything, and then what is left in the iterators."""
        everything = dict(vars(self))
        everything["mail"] = self.mail.arrived()
        iterators = everything.pop("iterators") + [self.walking, self.squares, self.live]
        left = [rest_of(iterator) for iterator in iterators]
        for name in (
            "walking", "squares", "live", "cached", "remembered", "countdown", "spot_cache", "spot_memory", "watched",
            "paper", "logger", "sender", "told", "inbox", "packets",
        ):
            del everything[name]
        self.namespace.pop("__builtins__", None)  # exec leaves them there
        rebound = [global_coins, global_count, global_item]
        known = [function(n) for function in (self.cached, self.remembered) for n in range(3)]
        known += [self.spot_cache.cache_info(), self.spot_memory.cache_info()]
        return [everything, left, rebound, self.random.getstate(), known]


# ---- Transactions -------------------------------------------------------------------------------------------------------------


def functions(steps):
    return [(OPERATIONS.get(name) or UNDONE[name], *args) for name, *args in steps]


def perform(h, *steps):
    """A transaction of several operations, given by their names."""
    return testing.perform(h, *functions(steps))


def perform_all(h, *steps):
    return testing.perform_all(h, *functions(steps))


def perform_rehearsed(h, rehearsal, *steps):
    return testing.perform_rehearsed(h, functions(rehearsal), *functions(steps))


# ---- Purses -------------------------------------------------------------------------------------------------------------------
# `new` is None to look only.


@purse
def in_attribute(h, new=None):
    if new is not None:
        h.thing.coins = new
    return h.thing.coins


@purse
def in_attribute_of_element(h, new=None):
    if new is not None:
        h.tree.set("coins", str(new))
    return int(h.tree.get("coins"))


@purse
def in_attributes_of_element(h, new=None):
    if new is not None:
        h.tree.attrib["more"] = str(new)
    return int(h.tree.attrib.get("more", COINS))


@purse
def in_text_of_element(h, new=None):
    if new is not None:
        h.tree.find("d").text = str(new)
    return int(h.tree.findtext("d"))


@purse
def in_tail_of_element(h, new=None):
    if new is not None:
        h.tree[0].tail = str(new)
    return int(next(child.tail for child in h.tree if child.tag == "b"))


@purse
def in_attribute_by_name(h, new=None):
    if new is not None:
        setattr(h.things["b"], "coins", new + 1 - COINS)
    return getattr(h.things["b"], "coins") - 1 + COINS


@purse
def in_vars(h, new=None):
    if new is not None:
        vars(h.things["c"])["coins"] = new + 2 - COINS
    return h.things["c"].__dict__["coins"] - 2 + COINS


@purse
def in_slot(h, new=None):
    if new is not None:
        h.slotted.coins = new
    return h.slotted.coins


@purse
def in_inherited_slot(h, new=None):
    if new is not None:
        object.__setattr__(h.child, "coins", new)
    return h.child.coins


@purse
def in_property(h, new=None):
    if new is not None:
        h.account.coins = new
    return h.account.doubled // 2


@purse
def in_descriptor(h, new=None):
    if new is not None:
        h.described.coins = new
    return h.described.coins


@purse
def in_dynamic_attribute(h, new=None):
    if new is not None:
        h.dynamic.coins = new
    return h.dynamic.coins


@purse
def in_watched_attribute(h, new=None):
    if new is not None:
        h.watched.coins = new
    return h.watched.coins


@purse
def in_many_attributes(h, new=None):
    if new is not None:
        h.many.a0 = new
    return vars(h.many)["a0"]


@purse
def in_shared_dict_of_instances(h, new=None):
    if new is not None:
        h.borgs[0].coins = new
    return h.borgs[1].coins


@purse
def in_own_dict(h, new=None):
    if new is not None:
        h.own.coins = new
    return h.own["coins"]


@purse
def in_namespace(h, new=None):
    if new is not None:
        h.space.coins = new
    return h.space.coins


@purse
def in_closure(h, new=None):
    if new is not None:
        h.put(new)
    return h.look()


@purse
def in_global(h, new=None):
    global global_coins
    if new is not None:
        global_coins = new
    return global_coins


@purse
def in_list(h, new=None):
    if new is not None:
        h.list[0] = new
    return h.list[0]


@purse
def in_long_list(h, new=None):
    if new is not None:
        h.long[0] = new
    return h.long[0]


@purse
def in_dict(h, new=None):
    if new is not None:
        h.dict["coins"] = new
    return h.dict["coins"]


@purse
def in_updated_dict(h, new=None):
    if new is not None:
        h.words.update(coins=new)
    return h.words.get("coins", COINS)


@purse
def in_reinserted_key(h, new=None):
    if new is not None:
        h.numbers.pop("coins", None)
        h.numbers["coins"] = new
    return h.numbers.get("coins", COINS)


@purse
def in_list_of_defaultdict(h, new=None):
    if new is not None:
        h.default["coins"][:] = [new]
    return h.default["coins"][-1]


@purse
def in_defaultdict(h, new=None):
    if new is not None:
        h.tally["coins"] += new - h.tally["coins"]
    return h.tally["coins"]


@purse
def in_counter(h, new=None):
    if new is not None:
        h.counter.subtract(coins=h.counter["coins"] - new)
    return h.counter["coins"]


@purse
def in_ordered_dict(h, new=None):
    if new is not None:
        h.ordered["coins"] = new
    return h.ordered["coins"]


@purse
def in_dict_subclass(h, new=None):
    if new is not None:
        h.missing |= {"coins": new}
    return h.missing["coins"]


@purse
def in_chain_map(h, new=None):
    if new is not None:
        h.chain["coins"] = new
    return h.chain["coins"]


@purse
def in_user_dict(h, new=None):
    if new is not None:
        h.user_dict["coins"] = new
    return h.user_dict["coins"]


@purse
def in_user_list(h, new=None):
    if new is not None:
        h.user_list[0] = new
    return h.user_list[0]


@purse
def in_size_of_set(h, new=None):
    if new is not None:
        h.purse_set.clear()
        h.purse_set.update(range(new))
    return len(h.purse_set)


@purse
def in_deque(h, new=None):
    if new is not None:
        h.deque.rotate(-1)
        h.deque.pop()
        h.deque.appendleft(new)
    return h.deque[0]


@purse
def in_bytearray(h, new=None):
    if new is not None:
        h.bytes[0] = new
    return h.bytes[0]


@purse
def in_nested_list(h, new=None):
    if new is not None:
        h.nested["list"][0][0] = new
    return h.nested["list"][0][0]


@purse
def in_tuple_of_list(h, new=None):
    if new is not None:
        h.tuple[1][0] = new
    return h.tuple[1][0]


@purse
def in_dataclass(h, new=None):
    if new is not None:
        h.data.coins = new
    return h.data.coins


@purse
def in_replaced_dataclass(h, new=None):
    if new is not None:
        h.slotted_data = dataclasses.replace(h.slotted_data, coins=new)
    return h.slotted_data.coins


@purse
def in_context(h, new=None):
    if new is not None:
        h.context.run(h.variable.set, new)
    return h.context[h.variable]


@op
def count_coins(h):
    """No transaction has ever made or lost a coin."""
    total = 0
    for name, look in PURSES.items():
        total += look(h)
    require(total == COINS * len(PURSES), f"{total} coins")
    return total


@op
def move_coins(h, source, target, n):
    """Between the two writes, the number of coins is wrong."""
    n = min(n, PURSES[source](h))
    PURSES[source](h, PURSES[source](h) - n)
    PURSES[target](h, PURSES[target](h) + n)


@op
def move_coins_carefully(h, source, target, n):
    """The same, with an exception for a result, and counting these two before and after."""
    take, put = PURSES[source], PURSES[target]
    before = take(h) + put(h)
    if n > take(h):
        raise ValueError("not enough coins")
    try:
        take(h, take(h) - n)
    finally:
        put(h, put(h) + n)
    require(source == target or take(h) + put(h) == before, f"coins of {source} and {target}")
    return take(h)


@op
def look_twice(h, first, second, n):
    """What a transaction has seen stays so until its end."""
    before = PURSES[first](h), PURSES[second](h)
    busy = [i * i for i in range(n)]
    require((PURSES[first](h), PURSES[second](h)) == before, f"{first} and {second} stay")
    return before, busy


# ---- Attributes -----------------------------------------------------------------------------------------------------------------


@op
def attribute_count(h, n):
    h.thing.count = getattr(h.thing, "count", 0) + n
    return h.thing.count


@op
def attribute_new(h, n):
    setattr(h.thing, f"new{n}", n)
    return list(vars(h.thing))


@op
def flag_set(h, n):
    """Frameworks set the same one in each request."""
    before = getattr(h.thing, "flag", "none")
    h.thing.flag = (None, False, True, True)[n % 4]
    return before, h.thing.flag


@op
def flag_deleted(h):
    if hasattr(h.thing, "flag"):
        del h.thing.flag


@op
def attribute_deleted(h, n):
    del h.thing.x
    return h.thing.x


@op
def attribute_deleted_by_name(h, n):
    delattr(h.things["a"], "coins")
    h.things["a"].coins = n


@op
def attribute_moved(h):
    h.thing.x, h.thing.z = getattr(h.thing, "z", 0), getattr(h.thing, "x", 0)
    return sorted(vars(h.thing))


@op
def attribute_missing(h, n):
    return getattr(h.thing, f"new{n}", "none"), hasattr(h.thing, "y")


@op
def attribute_error(h, n):
    return h.thing.nowhere


@op
def attributes_of_dict(h, n):
    d = h.thing.__dict__
    d[f"new{n}"] = n
    return d.setdefault("x", 5), "y" in d, len(d)


@op
def attributes_updated(h, n):
    h.thing.__dict__.update(x=n, w=n)


@op
def attributes_popped(h, n):
    return vars(h.thing).pop(f"new{n}", "none")


@op
def attributes_listed(h):
    return list(h.thing.__dict__.items())[:2], len(vars(h.thing))


@op
def attributes_replaced(h, n):
    h.things["a"].__dict__ = {"coins": n, "name": "replaced"}


@op
def attributes_copied(h, n):
    h.things["a"] = copy.copy(h.things["a"])
    h.things["a"].coins += n


@op
def attributes_given_to_a_copy(h, n, m):
    name = "abc"[m % 3]
    one = h.things[name]
    other = one.__class__.__new__(one.__class__)
    other.__dict__ = vars(one).copy() if n % 2 else {k: v for k, v in one.__dict__.items() if k != "given"}
    other.given = n
    vars(other)["taken"] = m
    h.things[name] = other
    one.given = other.given + 1
    return list(vars(other)), hasattr(one, "taken")


@op
def class_changed(h, n):
    h.things["a"].__class__ = Borg if n % 2 else Thing
    return type(h.things["a"]).__name__


@op
def attribute_of_class(h, n):
    cls = type(h.things["b"])
    cls.limit = 100 + n
    limit = h.things["a"].limit if isinstance(h.things["a"], Thing) else 0
    cls.limit = 100
    return limit


@op
def method_bound(h, n):
    h.bound = h.things["b"].bump
    return h.bound(n)


@op
def method_called(h, n):
    return h.thing.bump(n), h.bound(1), Thing.twice(n), Thing.named("x").name


@op
def method_through_class(h, n):
    return Thing.bump(h.thing, n), operator.attrgetter("count")(h.thing), operator.methodcaller("bump", n)(h.thing)


@op
def slots(h, n):
    h.slotted.left, h.slotted.right = h.slotted.right, n
    return h.slotted.left


@op
def slot_unset(h, n):
    h.child.extra = getattr(h.child, "extra", 0) + n
    return h.child.extra


@op
def slot_deleted(h):
    del h.child.extra


@op
def property_deleted_and_set(h):
    coins = h.account.coins
    del h.account.coins
    h.account.coins = coins


@op
def property_without_setter(h, n):
    h.account.doubled = n


@op
def property_cached(h):
    return h.account.first_seen


@op
def property_forgotten(h):
    del h.account.first_seen


@op
def descriptor(h, n):
    h.described.other += n
    return h.described.other


@op
def descriptor_deleted(h):
    del h.described.other
    h.described.other = 1


@op
def descriptor_lazy(h, n):
    h.lazy.seed = n
    return h.lazy.value


@op
def dynamic(h, n):
    h.dynamic.x = n
    return h.dynamic.x, hasattr(h.dynamic, "y")


@op
def dynamic_deleted(h):
    del h.dynamic.x


@op
def watched(h):
    h.watched.coins
    return h.watched.looks


@op
def many_attributes(h, n):
    h.many.a9 += n
    setattr(h.many, f"b{n}", n)
    return len(vars(h.many))


@op
def many_attributes_deleted(h, n):
    del h.many.a7
    h.many.a7 = n


@op
def attributes_shared(h, n):
    h.borgs[0].n += n
    h.borgs[1].m = n
    return h.borgs[1].n


@op
def attributes_that_are_items(h, n):
    h.own[f"k{n % 3}"] = n
    h.own.last = h.own["k0"] if "k0" in h.own else None
    return len(h.own)


@op
def namespace_attributes(h, n):
    h.space.x += n
    h.space.new = n
    return repr(h.space) == "" or h.space == types.SimpleNamespace(), sorted(vars(h.space))


@op
def proxied(h, n):
    h.proxy.coins += n
    return h.proxy.coins, h.reference().coins


@op
def proxied_and_changed(h, n):
    h.kept[1].coins = h.proxy.coins + n


# ---- Closures, globals, functions -----------------------------------------------------------------------------------------------


@op
def closure_count(h):
    return h.put(h.look())


@op
def closure_variable_deleted(h):
    return h.drop()


@op
def closure_new(h, n):
    h.look_, h.put_, _ = make_account(n)
    return h.put_(n + 1), h.look_()


@op
def closure_in_loop(h, n):
    h.cells.append(lambda: n)
    return [f() for f in h.cells[2:]]


@op
def global_counted(h, n):
    global global_count
    global_count += n
    return global_count


@op
def global_bound(h, n):
    global global_item
    global_item = h.list if n % 2 else h.dict
    return len(global_item)


@op
def global_deleted(h):
    global global_item
    del global_item
    global_item = "made again"


@op
def global_seen(h):
    return global_count, global_item is h.list, globals()["global_count"]


@op
def defaults_of_function(h, n):
    def remember(item, seen=h.log):
        seen.append(item)
        return len(seen)

    return remember(n)


@op
def slots_through_super(h):
    inherited = super(SlottedChild, h.child)
    return inherited.coins, getattr(super(SlottedChild, h.child), "coins")


@op
def function_attributes(h, n):
    def counted():
        counted.calls += 1
        return counted.calls

    counted.calls = n
    h.counted = counted
    return h.counted()


@op
def function_attributes_shared(h):
    return h.counted() if "counted" in vars(h) else None


@op
def function_attributes_deleted(h, n):
    del h.described.p
    h.described.p = n


@op
def function_attributes_listed(h):
    return list(vars(h.described).items())


@op
def function_annotated(h, n):
    if n % 2:
        h.described.__annotations__ = {"a": n}
    else:
        h.described.__annotate__ = lambda form: {"b": n}


@op
def function_annotations(h, n):
    h.described.__annotations__[n] = n
    return dict(h.described.__annotations__), h.described.__annotate__ is None


@op
def function_renamed(h, n):
    h.described.__qualname__ = f"described{n}"


@op
def function_printed(h):
    return repr(h.described).split()[1]


@op
def printed_from_around(h):
    text = repr(h.around)
    return text[text.index("[") :], f"{slice(h.list, h.dict)}", str(operator.itemgetter(h.list)), repr(itertools.repeat(h.list, 1))


@op
def compared_from_around(h):
    return slice(h.list) == slice([1, 2]), slice(h.dict) == slice({})


@op
def erroneous_changed(h, n):
    h.erroneous.msg, h.erroneous.lineno = f"message {n}", n


@op
def erroneous_printed(h):
    return str(h.erroneous), f"{h.erroneous}"


@op
def decorated(h, n):
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            h.log.append(function.__name__)
            return function(*args, **kwargs)

        return wrapper

    @logged
    def add(a, /, b=1, *rest, c, **others):
        return a + b + c + sum(rest) + sum(others.values())

    return add(n, 2, 3, c=4, d=5), add(*[n, 1], **{"c": 1}), add.__name__


@op
def recursion(h, n):
    def depth(tree):
        return 1 + max([depth(each) for each in tree.values() if isinstance(each, dict)], default=0)

    return depth(h.nested)


@op
def partial_called(h, n):
    h.calls.append(functools.partial(divmod, n))
    return h.partial(0), [f(3) for f in h.calls if isinstance(f, functools.partial)]


@op
def called_by_its_method(h, n):
    operator.methodcaller("append", n).__call__(h.list)
    return max.__call__(h.list, key=abs), functools.partial(len, h.list).__call__()


@op
def partial_of_method(h, n):
    h.calls.append(functools.partial(h.thing.bump, n))
    return h.calls[-1]()


@op
def reduced(h):
    return functools.reduce(lambda a, b: a + b, h.sorted, 0), functools.reduce(operator.add, h.list, 0)


@op
def cached(h, n):
    return h.cached(n % 5)


@op
def cached_and_cleared(h, n):
    h.cached.cache_clear()
    return h.cached(n)


@op
def cached_for_good(h, n):
    h.remembered(n).append(n)
    return h.remembered(n)


@op
def cached_for_good_and_cleared(h, n):
    h.remembered.cache_clear()
    return h.remembered.cache_info().currsize


@op
def single_dispatch(h, n):
    return kind_of(n), kind_of(h.list), kind_of(h.thing)


@op
def single_dispatch_registered(h, n):
    h.dispatched.register((int, str, list)[n % 3], lambda obj: n)


@op
def single_dispatch_at_run_time(h, n):
    return h.dispatched(n), h.dispatched("text"), h.dispatched(h.list)


@op
def single_dispatch_of_method(h, n):
    return h.account.accept(n), h.account.accept("text")


@op
def partial_method(h):
    return h.account.draw_one(), h.account.reason


@op
def ranked(h):
    return h.ranks[0] <= h.ranks[1], h.ranks[0] >= h.ranks[2], [rank.n for rank in sorted(h.ranks)]


@op
def compared_by_function(h):
    return sorted(h.list, key=functools.cmp_to_key(lambda a, b: b - a))


# ---- Lists ------------------------------------------------------------------------------------------------------------------------


@op
def list_append(h, n):
    h.list.append(n)
    return len(h.list)


@op
def list_gone_over_and_appended_to(h, n):
    for _ in h.list:
        pass
    h.list.append(n)
    return len(h.list)


@op
def list_looked_up_and_changed(h, n):
    h.list[n or 1] = h.list[0] + n
    return h.list[n or 1]


@op
def list_pop(h):
    if len(h.list) > 1:
        return h.list.pop()


@op
def list_pop_middle(h, n):
    return h.list.pop(n % (len(h.list) - 1) + 1)


@op
def list_item(h, n):
    h.list[n or 1] = h.list[-1]
    return h.list[-n]


@op
def list_item_changed(h, n):
    h.list[1] += n


@op
def list_deleted(h, n):
    del h.list[n % 3 + 1]


@op
def list_extended(h, n):
    h.list.extend(i for i in range(n))
    h.list += h.list[1:3]


@op
def list_extended_by_what_pops(h, n):
    h.list.extend(("new", h.list.pop()) for _ in range(min(n, len(h.list))))


@op
def long_list_extended_by_what_pops(h, n):
    h.long += (h.long.pop() for _ in range(n))


@op
def list_inserted(h, n):
    h.list.insert(n + 1, n)
    return h.list.index(n)


@op
def list_removed(h, n):
    h.list[1:] = [each for each in h.list[1:] if each != n]


@op
def list_remove(h, n):
    h.list.remove(n + 1000)


@op
def list_sliced(h, n):
    return h.list[1:n], h.list[::-2], h.list[n:]


@op
def list_slice_assigned(h, n):
    h.list[2:4] = range(n)


@op
def list_slice_stepped(h, n):
    h.list[1::2] = [n] * len(h.list[1::2])


@op
def list_slice_deleted(h, n):
    del h.list[n + 1 :]


@op
def list_reversed(h):
    tail = h.list[1:]
    tail.reverse()
    h.list[1:] = tail
    return list(reversed(h.list))


@op
def list_sorted(h, n):
    h.list[1:] = sorted(h.list[1:], key=lambda a: a % (n + 1), reverse=bool(n % 2))


@op
def list_sorted_in_place(h, n):
    h.sorted.append(n)
    h.sorted.sort()
    h.heap.sort(key=lambda a: -a)
    heapq.heapify(h.heap)


@op
def list_sort_in_place_fails(h, n):
    def key(a):
        h.deque.append(a)
        return "a" if a == n else a

    h.sorted.sort(key=key)


@op
def aggregates_go_step_by_step(h, n, m):
    def falling():
        while len(h.list) > 1:
            if h.list[-1] == n:
                raise KeyError(n)
            yield h.list.pop()

    choose = (min, max, sorted)[m % 3]
    return choose(falling(), key=lambda a: h.deque.append(len(h.list)) or a) if m % 2 else sum(falling())


@op
def list_sort_fails(h):
    h.list[1:].sort(key=lambda a: a.nothing)


@op
def list_cleared(h):
    first = h.list[0]
    h.list.clear()
    h.list.append(first)


@op
def list_multiplied(h):
    if len(h.list) < 10:
        h.list *= 2
        del h.list[len(h.list) // 2]
        return h.list + [1], [0] * len(h.list)


@op
def list_counted(h, n):
    return h.list.count(n), n in h.list, sum(h.list), max(h.list), min(h.list, key=lambda a: -a)


@op
def list_compared(h):
    return h.list == h.sorted, h.list < h.sorted, h.list != list(h.list), h.list is h.list


@op
def list_unpacked(h):
    first, *rest = h.list
    (a, b), c = h.sorted[:2], [*rest, *h.sorted]
    return first, rest, a, b, c


@op
def list_unpack_fails(h):
    a, b, c, d = h.list
    return a, b, c, d


@op
def list_shared(h):
    h.nested["list"].append(h.list)
    return h.nested["list"][-1] is h.list


@op
def long_list_item(h, n):
    h.long[10 + n] += n
    return h.long[10:13]


@op
def long_list_popped(h, n):
    h.long.append(n)
    h.long.append(h.long.pop() + h.long.pop())
    return h.long.pop(), len(h.long)


@op
def list_subclass(h, n):
    h.stack.append(n)
    return h.stack.appended, len(h.stack)


@op
def list_subclass_popped(h):
    return h.stack.pop()


@op
def user_list(h, n):
    h.user_list.append(n)
    return h.user_list[1:], len(h.user_list)


# ---- Dicts --------------------------------------------------------------------------------------------------------------------------


@op
def dict_get(h, n):
    return h.dict.get(n), h.dict.get(str(n), "none"), n in h.dict, "a" not in h.dict


@op
def dict_gone_over_and_changed(h, n):
    for _ in h.dict:
        pass
    h.dict[n] = n
    return list(h.dict)


@op
def dict_put(h, n):
    h.dict[n] = h.dict.get(n - 1)
    return list(h.dict)


def put_early(d, n):
    """Others may put keys of their own, and commit, while this goes on."""
    d["early", n] = n
    for _ in range(20):
        d.get("nothing")


@op
def dict_put_early(h, n):
    put_early(h.dict, n)


@op
def dict_missing_key(h, n):
    return h.dict[n + 10]


@op
def dict_deleted(h, n):
    del h.dict[n]


@op
def dict_popped(h, n):
    return h.dict.pop(n, "none"), h.dict.pop("a", "none")


@op
def delete_from_a_dict_while_walking_over_it(h, n):
    seen = []
    try:
        for key in h.dict:
            seen.append(key)
            if key != "coins":
                del h.dict[key]
    except RuntimeError as e:
        seen.append(str(e))
    h.dict["a"] = n
    return seen


@op
def delete_behind_an_iterator_of_a_dict(h, n):
    items = iter(h.dict.items())
    seen = [next(items)]
    h.dict.pop("a", None)
    try:
        seen.extend(items)
    except RuntimeError as e:
        seen.append(str(e))
    h.dict["a"] = n
    return seen


@op
def dict_pop_item(h):
    key, value = h.words.popitem()
    if key == "coins":
        h.words[key] = value
    return key


@op
def dict_set_default(h, n):
    h.words.setdefault(n % 3, []).append(n)
    return h.words[n % 3]


@op
def dict_updated(h, n):
    h.words.update({n: n, "k": "v"}, z=n)
    h.words.update([(n + 1, 1)])
    return len(h.words)


@op
def dict_merged(h, n):
    h.words |= {n: "merged"}
    return {**h.words, "x": 1} | {"y": n}


@op
def dict_cleared(h):
    coins = h.words.get("coins", COINS)
    h.words.clear()
    h.words["coins"] = coins
    return len(h.words)


@op
def dict_iterated(h):
    return [key for key in h.dict], [type(value).__name__ for value in h.words.values()], list(reversed(h.dict.items()))


@op
def dict_changed_in_loop(h, n):
    for key in h.words:
        h.words[n + 50] = key


@op
def dict_comprehended(h):
    return {str(key): len(str(value)) for key, value in h.dict.items() if key != "coins"}


@op
def dict_views_kept(h):
    return list(h.views[0]), len(h.views[1]), list(h.views[2])


@op
def dict_views(h):
    return h.dict.keys() & {0, 1, "a"} == {0}, "coins" in h.dict.keys(), len(h.dict.values()), (0, "zero") in h.dict.items()


@op
def dict_compared(h):
    return h.dict == h.words, h.dict == dict(h.dict), bool(h.words)


@op
def dict_copied(h, n):
    d = h.words.copy()
    d[n] = "copy"
    h.words = dict(d, n=n)
    return dict.fromkeys(h.sorted[:2], n)


@op
def dict_equal_hashes(h, n):
    h.numbers[-1] += n
    h.numbers[-2] += 1
    return h.numbers.get(-1.0)


@op
def dict_equal_hashes_deleted(h, n):
    del h.numbers[-1]
    h.numbers[-1] = n


@op
def dict_keys_with_python_hash(h, n):
    h.vectors[Vector(n % 3)] = n
    return h.vectors.get(Vector(1)), Vector(2) in h.vectors


@op
def dict_keys_with_python_hash_deleted(h, n):
    del h.vectors[Vector(n % 3)]


@op
def dict_of_equal_keys(h, n):
    h.dict[True] = n
    h.dict[1.0] = n + 1
    return h.dict[1]


@op
def nested(h, n):
    h.nested["deep"]["er"].append(n)
    h.nested["deep"][n] = {}
    return len(h.nested["deep"]["er"])


@op
def nested_deleted(h, n):
    del h.nested["deep"][n]


@op
def nested_in_tuple(h, n):
    h.tuple[2]["a"] += n
    h.tuple[1].append(n)
    return h.tuple[2]


@op
def default_dict(h, n):
    h.default[n % 3].append(n)
    return list(h.default)


@op
def default_dict_of_numbers(h, n):
    h.tally[n] += 1
    return h.tally[7], 3 in h.tally


@op
def default_dict_interpolated(h, n):
    return f"%({'abc'[n % 3]})s" % h.tally, f"%({n})s" % types.MappingProxyType(h.default), list(h.tally)


@op
def default_dict_translated(h, n):
    return chr(n).translate(h.tally), codecs.charmap_encode(chr(n + 1), "strict", h.tally), h.tally.get(n)


@op
def default_dict_begun_anew(h, n):
    h.tally.__init__((int, float)[n % 2], {n: n})
    return h.tally.default_factory, h.tally[n]


@op
def default_dict_get(h, n):
    return h.default.get(n), h.default.pop(n, None)


@op
def counter(h, n):
    h.counter.update("ab" * (n % 3))
    h.counter["c"] += n
    return h.counter["nothing"], h.counter.total()


@op
def counter_most_common(h):
    return h.counter.most_common(2), sorted(Counter("abca").elements())


@op
def counter_arithmetic(h):
    return h.counter + Counter(a=1), h.counter & Counter(a=5, c=1), +h.counter


@op
def ordered_dict(h, n):
    h.ordered[n] = n
    return list(h.ordered)


@op
def ordered_dict_set_default_by_name(h, n):
    return h.ordered.setdefault(key=n, default=n), list(h.ordered)


@op
def ordered_dict_moved(h):
    h.ordered.move_to_end("a", last=False)
    return next(iter(h.ordered))


@op
def ordered_dict_popped(h, n):
    return h.ordered.pop(n, "none")


@op
def ordered_dict_pop_item(h):
    key, value = h.ordered.popitem(last=False)
    h.ordered[key] = value
    return key


@op
def ordered_dict_deleted(h, n):
    del h.ordered[n]


@op
def dict_subclass(h, n):
    return h.missing[n], len(h.missing), h.missing.get(n + 1)


@op
def chain_map(h, n):
    h.chain[n] = n
    return sorted(map(str, h.chain)), h.chain["a"], len(h.chain.new_child({"a": 3}))


@op
def chain_map_deleted(h, n):
    del h.chain[n]


@op
def user_dict(h, n):
    h.user_dict[n] = n
    return n - 1 in h.user_dict, dict(h.user_dict)


@op
def mapping_proxy(h, n):
    h.mapping["a"].append(n)
    proxy = types.MappingProxyType(h.dict)
    return h.mapping["a"], proxy.get(n), len(proxy)


@op
def mapping_proxy_assigned(h, n):
    h.mapping["a"] = n


# ---- Sets -----------------------------------------------------------------------------------------------------------------------------


@op
def set_gone_over_and_added_to(h, n):
    for _ in h.set:
        pass
    h.set.add(n)
    return len(h.set)


@op
def set_added(h, n):
    h.set.add(n)
    return len(h.set), n in h.set


@op
def set_removed(h, n):
    h.set.remove(n)


@op
def set_discarded(h, n):
    h.set.discard(n)
    return sorted(h.set)


@op
def set_popped(h):
    taken = set()
    while h.other_set:
        taken.add(h.other_set.pop())
    h.other_set |= taken
    return sorted(taken)


@op
def set_algebra(h):
    return h.set | h.other_set, h.set & h.other_set, h.set - h.other_set, h.set ^ h.frozen, h.set <= h.other_set


@op
def set_algebra_in_place(h, n):
    h.set ^= h.other_set
    h.set -= {n}
    h.set |= {n + 1 & 7}


@op
def set_updated(h, n):
    h.set.update(range(n), [n])
    h.set.intersection_update(range(8))
    h.set.difference_update([n])


@op
def set_iterated(h):
    return sorted([n for n in h.set]), {n * 2 for n in h.set if n}, sum(h.set)


@op
def set_compared(h):
    return h.set == h.other_set, h.set.issubset(h.other_set), h.set.isdisjoint({9}), frozenset(h.set)


@op
def set_of_tuples(h, n):
    h.seen = getattr(h, "seen", frozenset()) | {(n, str(n))}
    return (n, str(n)) in h.seen, len(h.seen)


@op
def set_cleared(h, n):
    h.set.clear()
    h.set |= {n}


@op
def set_unhashable(h, n):
    h.set.add([n])


# ---- One look at one thing, one change of one thing -------------------------------------------------------------------------------------
# Where an operation looks at something in two ways, one barrier hides that the other is missing.  Where it looks at the whole
# of what it changes, nobody else can change it at the same time.


@op
def item_put(h, n):
    h.words[n] = n


@op
def item_put_early(h, n):
    put_early(h.words, n)


@op
def item_taken(h, n):
    return h.words.pop(n, None)


@op
def attribute_put(h, n):
    setattr(h.space, f"new{n}", n)


@op
def element_put(h, n):
    h.set.add(n)


@op
def contained_in_dict(h, n):
    return n in h.dict


@op
def contained_in_set(h, n):
    return n in h.set


@op
def contained_in_list(h, n):
    return n in h.list


@op
def contained_in_deque(h, n):
    return n in h.deque


@op
def not_contained_in_defaultdict(h, n):
    return n not in h.tally


@op
def true_or_false(h):
    return "full" if h.other_set else "empty"


@op
def length_of_list(h):
    return len(h.list)


@op
def length_of_set(h):
    return len(h.set)


@op
def length_of_dict(h):
    return len(h.words)


@op
def item_of_dict(h, n):
    return h.words.get(n)


@op
def item_by_key(h, n):
    return h.words[n]


@op
def last_of_list(h):
    return h.list[-1]


@op
def slice_of_list(h, n):
    return h.list[n:]


@op
def items_of_set(h):
    return sorted(h.set)


@op
def equal_sets(h):
    return h.set == h.other_set


@op
def printed(h):
    return f"{h.sorted}"


@op
def spread_out(h):
    return [*h.deque], {**h.words}


@op
def all_attributes(h):
    return list(vars(h.thing))


# ---- Deques, bytes, heaps ---------------------------------------------------------------------------------------------------------------


@op
def deque_append(h, n):
    h.deque.append(n)
    return len(h.deque)


@op
def deque_popped(h):
    if len(h.deque) > 1:
        return h.deque.pop()


def called_in_turn(*functions):
    """By one instruction, which the interpreter specialises for some of them, and which falls back for the others."""
    return [function() for function in functions][-1]


def called_in_turn_with(n, *functions):
    return [function(n) for function in functions][-1]


@op
def deque_popped_by_any_call(h, n):
    if len(h.deque) > 1:
        others = [n, n]
        return called_in_turn(others.pop, others.pop, h.deque.pop)


@op
def deque_appended_by_any_call(h, n):
    called_in_turn_with(n, round, round, h.deque.append)
    return called_in_turn_with(n, round, h.deque.count)


@op
def long_popped_by_any_call(h, n):
    if len(h.long) > 80:
        others = [n, n]
        return called_in_turn(others.sort, others.sort, h.long.pop)


@op
def deque_rotated(h, n):
    h.deque.rotate(n)
    h.deque.rotate(-n)
    return list(h.deque)


@op
def deque_extended(h, n):
    coins = h.deque.popleft()
    h.deque.extendleft(range(n % 3))
    h.deque.appendleft(coins)


@op
def deque_inserted(h, n):
    h.deque.insert(n % 3 + 1, n)
    return h.deque.index(n), h.deque.count(n), n in h.deque


@op
def deque_removed(h, n):
    h.deque.remove(n + 1000)


@op
def deque_item(h, n):
    h.deque[-1], h.deque[1] = h.deque[1], h.deque[-1]
    del h.deque[n % 2 + 1]


@op
def deque_reversed(h):
    coins = h.deque.popleft()
    h.deque.reverse()
    h.deque.appendleft(coins)
    return list(reversed(h.deque))


@op
def deque_bounded(h, n):
    h.bounded.append(n)
    return h.bounded[0], h.bounded.maxlen


@op
def deque_bounded_extended(h, n):
    h.bounded.extendleft(range(n))
    return h.bounded.copy()


@op
def deque_added(h, n):
    h.bounded += deque([n])
    return h.bounded + h.deque, h.bounded == h.deque


@op
def byte_changed(h, n):
    h.bytes[1 + n % 3] ^= 85
    return bytes(h.bytes[1:3])


@op
def byte_through_view(h, n):
    h.view[2] = n
    return h.view[1:].tobytes()

@op
def view_sliced(h, n):
    with memoryview(h.bytes) as view, view[n % 4 :] as part, part.toreadonly() as same:
        return part.tolist(), same == part


@op
def view_cast_and_grown(h, n):
    view = memoryview(h.grown)
    wide = view[:4].cast("H")
    wide[n % 2] = n
    wide.release()
    view.release()
    h.grown.append(n)
    return bytes(h.grown)


@op
def view_replaced(h, n):
    h.shown = memoryview(h.grown)[n % 3 :]
    return h.shown[1:].tolist()


@op
def view_dropped_and_grown(h, n):
    h.shown = None
    h.grown += bytes([n])
    return len(h.grown)


@op
def view_of_array(h, n):
    with memoryview(h.array) as view, view.cast("B") as narrow:
        narrow[n % 3] = n
        return view.tolist()


@op
def array_grown(h, n):
    h.array.extend(h.array[:n])
    del h.array[8:]
    return h.array.tolist()


@op
def deflated(h, n, m):
    return h.compressor.compress(bytes([n]) * m) + h.compressor.copy().flush()


@op
def deflated_to_the_end(h, n):
    packed = h.compressor.compress(bytes([n])) + h.compressor.flush()
    if n % 2:
        h.compressor = zlib.compressobj()
    return packed


@op
def inflated(h, n):
    return h.decompressor.decompress(PACKED[n * 4 : n * 4 + 5], 3 + n), h.decompressor.unconsumed_tail, h.decompressor.eof


@op
def inflated_to_the_end(h, n):
    text = h.decompressor.decompress(h.decompressor.unconsumed_tail + PACKED[n * 4 :]), h.decompressor.flush(n + 1)
    h.decompressor = zlib.decompressobj()
    return text


@op
def inflated_and_kept(h, n):
    h.decompressor = zlib.decompressobj()
    text = h.decompressor.decompress(PACKED + bytes(n), n)
    return text, h.decompressor.flush(), h.decompressor.unused_data, h.decompressor.unconsumed_tail


@op
def packed_by_others(h, n):
    packed = [stream.compress(bytes([n])) + stream.flush() for stream in h.packers]
    h.packers = [bz2.BZ2Compressor(1), lzma.LZMACompressor(preset=0)]  # the least of memory
    return packed


@op
def hashed(h, n):
    for each in h.digests:
        each.update(bytes([n]) * 8)
    return [each.digest() for each in h.digests]


@op
def bytes_resized(h, n):
    h.bytes.append(n)


@op
def bytes_new(h, n):
    other = bytearray(h.bytes)
    other += b"xyz"
    del other[n : n + 2]
    other[1:1] = b"ab"
    other.extend(range(n))
    return other, other.find(b"x"), other.upper()


@op
def bytes_kept(h, n):
    h.buffer = getattr(h, "buffer", bytearray())
    h.buffer.extend(bytes([n]))
    h.buffer.reverse()
    return len(h.buffer), h.buffer[-1]


@op
def bytes_kept_popped(h):
    return h.buffer.pop()


@op
def heap_pushed(h, n):
    heapq.heappush(h.heap, n)
    return h.heap[0]


@op
def heap_popped(h):
    return heapq.heappop(h.heap)


@op
def heap_replaced(h, n):
    return heapq.heapreplace(h.heap, n), heapq.heappushpop(h.heap, n), heapq.nsmallest(2, h.heap), heapq.nlargest(1, h.heap)


@op
def heap_of_things(h, n):
    queue = [(rank.n, i) for i, rank in enumerate(h.ranks)]
    heapq.heapify(queue)
    h.ranks[heapq.heappop(queue)[1]].n += n
    return list(heapq.merge(h.sorted, [n]))


@op
def bisected(h, n):
    bisect.insort(h.sorted, n)
    return bisect.bisect_left(h.sorted, 3), bisect.bisect(h.sorted, n)


@op
def bisected_by_key(h, n):
    bisect.insort(h.sorted, n, key=lambda a: a)
    return bisect.bisect_left(h.ranks, n, key=lambda rank: rank.n)


# ---- Operators, comprehension, builtins -----------------------------------------------------------------------------------------------


@op
def operators_of_instance(h, n):
    h.vector += n
    return [*(h.vector + Vector(1, 1, 1)), *sum([h.vector], 0), *-h.vector], h.vector @ h.vector, len(h.vector), bool(h.vector)


@op
def subscripts_of_instance(h, n):
    h.vector[n % 3] = n
    return n in h.vector, h.vector[0], list(h.vector), list(reversed(h.vector)), h.vector(n)


@op
def subscript_of_instance_deleted(h):
    if len(h.vector) > 3:
        del h.vector[3]


@op
def comparison_of_instances(h, n):
    return h.vector == Vector(n, 2, 3), h.vector < Vector(n), hash(h.vector), [h.vector] == [Vector(1, 2, 3)]


@op
def formatted(h, n):
    return f"{h.vector} {h.vector:>3} {h.list!r} {h.thing.coins:5d}", "%s %r" % (h.vector, h.dict), "{0.coins}".format(h.thing)


@op
def text_made(h, n):
    return ",".join(str(item) for item in h.list), string.Template("$a").substitute(a=n), str(h.sorted), repr(h.deque)


@op
def text_stream(h, n):
    h.text.write(str(n))
    return h.text.getvalue()


@op
def rows_as_text(h, n):
    h.rows.writerow([n, h.vector, h.list])
    h.rows.writerows((key, h.dict[key]) for key in list(h.dict)[:2])
    return list(csv.reader(h.text.getvalue().splitlines()[-3:]))


def shape(element):
    return element.tag, sorted(element.items()), element.text, element.tail, [shape(child) for child in element]


@op
def elements_made(h, n):
    tree = ElementTree.fromstring(f"<a n='{n}'>{''.join(f'<b n={i!r}>{key}</b>' for i, key in zip('01', h.dict))}<!-- -->tail</a>")
    tree.append(h.tree[2])
    ElementTree.SubElement(tree, "made", at=str(n)).text = str(h.list[0])
    tree[0].set("seen", str(len(h.tree)))
    return ElementTree.tostring(tree), [child.get("n") for child in tree.iter("b")]


@op
def elements_read(h, n):
    return ("".join(h.tree.itertext()), [child.tag for child in h.tree.iter()], h.tree.findtext("c/b"), h.tree.find(f"b[@n='{n}']") is None,
            len(h.tree), shape(copy.deepcopy(h.tree)))


@op
def elements_changed(h, n):
    c = h.tree.find("c")
    if n % 2 and len(c) > 1:
        c.remove(c[n % len(c)])
    else:
        c.insert(n, ElementTree.Element("b", n=str(n)))
    c.tail = f"{c.tail or ''}{n}"[-3:]
    if n > 5:
        c[:] = list(c)[:2]
    return shape(c)


@op
def elements_parsed_with_handlers(h, n):
    parser = expat.ParserCreate()
    tags = []
    parser.StartElementHandler = lambda tag, attributes: (tags.append(tag), h.log.append(tag) if tag == "b" else None)
    parser.Parse(ElementTree.tostring(h.tree), True)
    return tags, parser.CurrentByteIndex


@op
def text_matched(h, n):
    return re.sub("[0-9]", lambda match: str(h.sorted[0]), f"a{n}b"), re.findall("[13]", repr(h.sorted))


@op
def encoded(h, n):
    h.nested["json"] = json.loads(json.dumps({"list": h.list, "n": n}))
    return json.dumps(h.sorted), json.dumps(h.dict, default=str, skipkeys=True)


@op
def dates(h, n):
    return datetime.date(2024, 1, 1) + datetime.timedelta(days=h.sorted[0] + n)


@op
def derived_space_changed(h, n):
    h.derived_space.x = h.derived_space.y = n


@op
def derived_space_begun_anew(h, n):
    h.derived_space.__init__({"x": n}, y=n)


@op
def derived_space_seen(h, n):
    return repr(h.derived_space), f"{[h.derived_space]}", h.derived_space == Space(x=n, y=n)


@op
def sets_of_sets(h, n):
    found = h.set in h.sets, h.sets.__contains__(h.set)
    h.sets.discard(h.set)
    h.sets.add(frozenset(h.set))
    return found, len(h.sets)


@op
def row_changed(h, n):
    h.row[1] += n


@op
def rows_merged(h, n):
    merged, ordered = {}, OrderedDict()
    merged |= [h.row]
    ordered |= (h.row, ("n", n))
    return merged, ordered


@op
def memory_packed(h, n):
    packed, lines = bytearray(4), io.BytesIO()
    struct.pack_into("4s", packed, 0, h.bytes)
    lines.writelines([h.bytes, b"n"])
    return packed, lines.getvalue(), bytearray(b"ab").startswith((h.bytes, b"a")), bytearray.maketrans(h.bytes[:n], h.bytes[:n])


@op
def generator_united(h):
    return sorted({1: 2}.keys() | h.walking), int.from_bytes(n for n in h.frozen)


@op
def block_entered(h, n):
    h.block = h.blocks.run(h.block_variable.set, n)


@op
def block_left(h):
    with contextlib.suppress(RuntimeError):  # it has been left before
        h.blocks.run(h.block.__exit__, None, None, None)
    return h.blocks.run(h.block_variable.get)


@op
def random_numbers(h, n):
    return h.random.random(), h.random.randrange(n + 1), h.random.choice(h.sorted), h.random.sample(range(10), 2)


@op
def random_shuffled(h):
    tail = h.list[1:]
    h.random.shuffle(tail)
    h.list[1:] = tail


@op
def comprehended(h, n):
    return [(a, b) for a in h.list if a for b in h.sorted if b > n], {a: b for a, b in zip(h.list, h.sorted)}, {*h.set}


@op
def comprehended_lazily(h, n):
    return sum(a for a in h.list), any(a == n for a in h.list), all(h.list), max((a for a in h.sorted), default=0)


@op
def mapped(h, n):
    return list(map(lambda a, b: a + b, h.list, h.sorted)), list(filter(lambda a: a > n, h.list)), list(map(str, h.sorted))


@op
def mapped_in_loops(h, n):
    """C functions, called by iterators that loops, unpacking and `yield from` advance."""
    found = [value for value in map(h.dict.get, range(4))]  # noqa: C416
    for _ in map(h.dict.__setitem__, [n], [found[n % 4]]):
        pass
    first, second = map(len, (h.list, h.dict))
    for _ in map(h.set.add, filter(h.dict.get, [n])):
        pass
    return found, first, second, [*filter(h.set.__contains__, range(8))]


@op
def zipped(h):
    return list(zip(h.list, h.deque, h.bytes[1:])), list(enumerate(h.sorted, 1)), dict(zip("ab", h.list))


@op
def zipped_strictly(h):
    return list(zip(h.list, h.sorted, strict=True))


@op
def chained(h, n):
    return (
        list(itertools.chain(h.list, h.deque)), list(itertools.islice(h.long, n)), list(itertools.accumulate(h.sorted)),
        [(key, len(list(group))) for key, group in itertools.groupby(sorted(h.list), key=lambda a: a % 2)],
        list(itertools.product(h.sorted[:2], "a")), list(itertools.combinations(h.sorted[:3], 2)),
    )


@op
def sliced(h, n):
    part = slice(n % 2, None, 2)
    return h.list[part], h.sorted[-n:], h.bytes[1::2], tuple(h.deque)[part], "abcdef"[part]


@op
def walrus(h):
    while (last := h.list[-1]) and len(h.list) > 3:
        h.list.pop()
    return last


@op
def matched(h, n):
    subject = [h.thing, h.dict, h.list, h.data, n, (n, h.color), None, h.tuple][n]
    match subject:
        case {"coins": coins, **rest}:
            return "mapping", coins, sorted(map(str, rest))
        case [first, *rest] if isinstance(first, int) and len(rest) > 2:
            return "sequence", first, rest
        case Data(coins=coins, name="data"):
            return "data", coins
        case 4 | 5:
            return "number"
        case (_, Color.RED):
            return "red"
        case Thing(coins=coins):
            return "thing", coins
        case _:
            return "other"


@op
def copied(h, n):
    h.nested["copy"] = copy.copy(h.tuple)
    deep = copy.deepcopy(h.nested["deep"])
    deep["er"].append(n)
    h.nested["deep"] = deep
    return copy.copy(h.deque), copy.copy(h.set), copy.deepcopy(h.data).tags


@op
def dispatched_attribute(h, n):
    name = ("thing", "slotted", "account", "described", "dynamic", "space", "data")[n % 7]
    return operator.attrgetter(name + ".coins")(h), operator.itemgetter(0)(h.list)


# ---- with, try, exceptions ------------------------------------------------------------------------------------------------------------


@op
def guarded(h, n):
    with h.guard as entered:
        h.list.append(entered)
        if n % 2:
            raise Problem(n)
        h.list.pop()
    return h.guard.log[-2:]


@op
def guarded_by_function(h, n):
    @contextlib.contextmanager
    def noted():
        h.log.append("in")
        try:
            yield n
        except KeyError as e:
            h.log.append(e.args[0])
        finally:
            h.log.append("out")

    with noted() as a, contextlib.suppress(IndexError):
        h.dict[f"missing {n}"] if n % 2 else h.list[100]
    return a


@op
def guarded_by_closing(h, n):
    class Door:
        def close(self):
            h.log.append("shut")

    with contextlib.closing(Door()):
        h.log.append("open")
        return h.list[n]


@op
def guarded_asynchronously(h, n):
    @contextlib.asynccontextmanager
    async def noted():
        h.log.append("in")
        try:
            yield await pause(n)
        finally:
            await pause("out")
            h.log.append("out")

    async def use():
        async with noted() as got:
            h.list[1] = got
            if n % 2:
                raise Problem(n)
        return got

    return finish(use(), [n])


@op
def guarded_by_stack(h, n):
    with contextlib.ExitStack() as stack:
        stack.callback(h.log.append, "left")
        stack.enter_context(h.guard)
        h.log.append("inside")
        raise ZeroDivisionError(n)


@op
def exception_raised(h, n):
    h.log.append("before")
    raise Problem(n)


@op
def exception_kept(h, n):
    try:
        raise Problem(n)
    except Problem as e:
        e.add_note("kept")
        h.problems.append(e)
    return len(h.problems)


@op
def exception_traced(h, n):
    def fail(depth):
        return fail(depth - 1) if depth else h.sorted[n + 100]

    try:
        fail(n % 3)
    except IndexError as e:
        h.log.append(e.__traceback__.tb_frame.f_code.co_name)
        return traceback.format_exception_only(e), [frame.name for frame in traceback.extract_tb(e.__traceback__)]


@op
def exception_raised_again(h):
    raise h.problem


@op
def exception_from_another(h, n):
    try:
        h.list[n + 100]
    except IndexError as e:
        raise Problem(n) from e


@op
def exception_while_handling(h, n):
    try:
        h.dict[n + 100]
    except KeyError:
        h.log.append("handling")
        raise h.problem


@op
def exception_attribute(h, n):
    h.problem.number += n
    h.problem.args = (n,)
    return str(h.problem)


@op
def exception_group(h, n):
    try:
        raise ExceptionGroup("several", [Problem(n), KeyError(n)])
    except* Problem as group:
        h.log.append([e.number for e in group.exceptions])


@op
def finally_reached(h, n):
    for i in range(3):
        try:
            h.log.append(i)
            if i == n:
                continue
            if i > n:
                return i
            if n == 7:
                h.list[1000]
        except IndexError as e:
            h.log.append(type(e).__name__)
            break
        else:
            h.log.append("else")
        finally:
            h.log.append("finally")


@op
def exception_in_the_middle(h, n):
    h.thing.count = n
    h.dict[n] = "half"
    h.list.append(n)
    h.set.add(n)
    h.sorted[0] = h.nowhere


# ---- Iterators and generators that outlive transactions -----------------------------------------------------------------------------


@op
def iterator_advanced(h, n):
    return next(h.iterators[n], "over")


@op
def more_iterators_advanced(h, n):
    return next(h.iterators[8 + n], "over")


@op
def still_more_iterators_advanced(h, n):
    return next(h.iterators[16 + n], "over")


@op
def yet_more_iterators_advanced(h, n):
    return next(h.iterators[24 + n], "over")


@op
def last_iterators_advanced(h, n):
    return next(h.iterators[-1 - n], "over")


@op
def iterator_in_loop(h, n):
    taken = []
    for item in h.iterators[n * 4]:
        taken.append(item)
        if len(taken) == 2:
            break
    return taken


@op
def iterator_unpacked(h, n):
    return [*itertools.islice(h.iterators[n], 2)], list(zip(range(2), h.iterators[n + 8]))


@op
def iterator_of_changing_list(h):
    return next(h.live, "over")


@op
def iterator_replaced(h):
    h.live = iter(h.list)


def next_of(h, i, changing):
    """The next item of an iterator over something that changes; a new iterator when this one has come to its end."""
    if h.lives[i] is None:
        h.lives[i] = iter(changing)
    try:
        return next(h.lives[i])
    except (RuntimeError, StopIteration) as e:
        h.lives[i] = None
        return type(e).__name__


# What an iterator over a dict finds when keys come and go meanwhile, the language leaves open.


@op
def value_changed(h, n):
    h.steady[n % 4] += 1


@op
def iterator_of_changing_values(h):
    return next_of(h, 0, h.steady.values())


@op
def iterator_of_changing_items(h):
    return next_of(h, 1, h.steady.items())


@op
def iterator_of_changing_keys(h):
    return next_of(h, 2, reversed(h.steady))


@op
def iterator_of_changing_bytes(h):
    return next_of(h, 3, h.bytes)


@op
def iterator_of_changing_deque(h):
    return next_of(h, 4, h.deque)


@op
def iterator_of_changing_deque_reversed(h):
    return next_of(h, 5, reversed(h.deque))


@op
def iterator_of_changing_ordered_dict(h):
    return next_of(h, 6, h.ordered.items())


# ---- Keys that only Python code can compare -------------------------------------------------------------------------------


def spot_number(spot):
    return 2 * spot.n


@op
def spot_put(h, n, m):
    h.spots[Spot(n)] = m


@op
def spot_read(h, n):
    return h.spots.get(Spot(n)), Spot(n) in h.spot_set, len(h.spots)


@op
def spot_counted(h, n):
    h.spots[Spot(n)] = h.spots.get(Spot(n), 0) + 1
    return h.spots[Spot(n)]


@op
def spot_beside_name(h, n):
    h.spots["a"] = n
    h.spots[1] = n
    return h.spots.get(Spot(0)), h.spots.get(Spot(1))


SAME_HASHES = (0, "", b"", b"a", "a", 1, 2**61, 0.0)


@op
def same_hash_put(h, n, m):
    h.spots[SAME_HASHES[n]] = m
    h.spot_set.add(SAME_HASHES[m])


@op
def same_hash_taken(h, n, m):
    h.spot_set.discard(SAME_HASHES[m])
    return h.spots.pop(SAME_HASHES[n], None)


@op
def same_hash_attribute(h, n):
    vars(h.spot_thing)[SAME_HASHES[n]] = n
    h.spot_thing.a = n
    return list(vars(h.spot_thing).items())


@op
def same_hash_attribute_deleted(h, n):
    return vars(h.spot_thing).pop(SAME_HASHES[n], None)


@op
def ends_changed_at_one_place(h, n):
    """An instruction that is specialised for one of them falls back to its general form for the other."""
    for _ in range(3):
        for container in (h.deque, h.long, h.deque):
            container.append(n)
        for container in (h.deque, h.long, h.deque):
            container.pop()


def refused(container, n):
    """Call all methods in ways that raise before they have done anything."""
    names = [name for name in dir(container) if not name.startswith("_")]
    refusals = 0
    for name in names:
        method = getattr(container, name)
        for call in (lambda: method(n, n, n, n, n), lambda: method(n, no=n), lambda: getattr(type(container), name)(n, n)):
            try:
                call()
            except TypeError:
                refusals += 1
    return refusals, len(names)


@op
def deque_calls_refused(h, n):
    return refused(h.deque, n)


@op
def list_calls_refused(h, n):
    return refused(h.long, n)


@op
def dict_calls_refused(h, n):
    return refused(h.dict, n)


@op
def ordered_calls_refused(h, n):
    return refused(h.ordered, n)


@op
def set_calls_refused(h, n):
    return refused(h.purse_set, n)


@op
def bytes_calls_refused(h, n):
    return refused(h.bytes, n)


@op
def array_calls_refused(h, n):
    return refused(h.array, n)


@op
def spot_deleted(h, n):
    return h.spots.pop(Spot(n), None)


@op
def spot_name_deleted(h):
    return h.spots.pop("a", None), h.spots.pop(1, None)


@op
def spots_in_order(h):
    return list(h.spots), list(h.spots.values())


@op
def spot_added(h, n):
    h.spot_set.add(Spot(n))
    h.spot_set.add(n)


@op
def spot_discarded(h, n):
    h.spot_set.discard(Spot(n))
    h.spot_set.discard(n)


@op
def spot_ordered_put(h, n, m):
    h.spot_order[Spot(n)] = m
    h.spot_order.move_to_end(Spot(n), last=m % 2 == 0)


@op
def spot_ordered_taken(h, n):
    return h.spot_order.pop(Spot(n), None), list(h.spot_order)


@op
def spot_cached(h, n):
    return h.spot_cache(Spot(n)), h.spot_memory(Spot(n))


@op
def spot_cache_seen(h):
    return h.spot_cache.cache_info(), h.spot_memory.cache_info()


@op
def spot_locked(h, n):
    with Spot.lock:
        h.spots[Spot(n)] = n
        return h.spots.get(Spot(n + 1))


@op
def words_exchanged_locked(h, n):
    """A dict that has been read is changed under a lock: its entries may move, and a rollback puts them back one by one."""
    with Spot.lock:
        words = list(h.words)
        for word in words[n % 3 :: 3]:
            del h.words[word]
        for i in range(n % 8):
            h.words[f"word {n * i % 11}"] = n
        return words, list(h.words)


@op
def words_added_locked(h, n):
    with Spot.lock:
        h.words.pop(f"word {n % 5}", None)
        h.words[f"word {n}"] = n
        return h.words.get(f"word {n + 1}")


@op
def thread_started(h, n):
    """It begins at the commit."""
    thread = threading.Thread(target=int, name=f"thread {n}", daemon=True)
    thread.start()
    return thread.name, thread.ident is not None, thread.native_id is not None


@undone
def spots_changed(h, n):
    for i in range(12):
        h.spots[Spot(i)] = n
        h.spot_set.add(Spot(i + n))
    del h.spots[Spot(n)]
    h.spots.pop(next(iter(h.spots)))
    h.spot_order.clear()



@undone
def table_changed(h, n):
    h.table["new"] = n
    del h.table["adef"[n % 4]]
    h.table["b"] = n


@undone
def table_emptied(h, n):
    key, value = h.table.popitem()
    h.table.clear()
    h.table.update(a=n, z=n)


@undone
def table_grown(h):
    for i in range(20):
        h.table[i] = i
        if i % 3 == 0:
            del h.table[i]


@undone
def plain_changed(h, n):
    h.plain.pop(n)
    h.plain[n:] = [n] * 20
    h.plain.sort()


@undone
def plain_emptied(h):
    h.plain.clear()


@undone
def walked_set_changed(h, n):
    h.walked_set.discard(n)
    h.walked_set.add(n + 20)
    h.walked_set ^= {1, 2}


@undone
def walked_set_emptied(h, n):
    while h.walked_set:
        h.walked_set.pop()
    h.walked_set.update(range(n * 5))


@undone
def walked_set_grown(h):
    h.walked_set.discard(8)
    for i in range(30, 60):
        h.walked_set.add(i)
    h.walked_set.discard(16)


@undone
def walked_ordered_changed(h, n):
    h.walked_ordered.move_to_end("abcd"[n % 4], last=n > 3)
    h.walked_ordered["e"] = n
    del h.walked_ordered["b"]


@undone
def walked_ordered_emptied(h, n):
    h.walked_ordered.popitem(last=False)
    h.walked_ordered.clear()


@undone
def walked_deque_changed(h, n):
    h.walked_deque.rotate(n)
    h.walked_deque.append(n)
    h.walked_deque[1] = h.walked_deque.popleft()


@undone
def walked_deque_pushed(h, n):
    h.walked_deque.append(n)
    h.walked_deque.appendleft(n)


@undone
def walked_deque_emptied(h):
    h.walked_deque.clear()


@undone
def walked_bytes_changed(h, n):
    h.walked_bytes[0] = n
    h.walked_bytes.append(n)


@undone
def class_kept_changed(h, n):
    cls = type(h.thing)
    cls.limit = n
    cls.another = n


@op
def iterator_of_list_reversed(h):
    h.live = reversed(h.list)
    return next(h.live)


@op
def iterator_in_python(h):
    return next(h.countdown, "over")


@op
def generator_advanced(h):
    return next(h.generator, "over")


@op
def generator_sent(h, n):
    return h.generator.send(n)


@op
def generator_thrown(h, n):
    return h.generator.throw(Problem(n))


@op
def generator_closed(h):
    h.generator.close()


@op
def generator_replaced(h):
    h.generator.close()
    h.abandoned.append(h.generator)
    h.generator = counting(h.log)
    return next(h.generator)


@op
def generator_delegating(h, n):
    return next(h.delegating, "over")


@op
def generator_delegating_sent(h, n):
    return h.delegating.send(n)


@op
def generator_delegating_thrown(h, n):
    return h.delegating.throw(ZeroDivisionError if n == 7 else Problem(n))


@op
def generator_walking(h):
    return next(h.walking, "over")


@op
def generator_expression(h):
    return next(h.squares, "over")


@op
def generator_made(h, n):
    items = iter(h.sorted)
    h.made = (item + n for item in items)
    return next(h.made)


@op
def generator_made_elsewhere(h):
    return None if h.made is None else next(h.made, "over")


@op
def generator_drained(h, n):
    return list(counting([])) if n > 3 else list(walking(h.list[:2]))


@op
def generator_running(h):
    return h.generator.gi_running, h.generator.gi_frame is None, h.generator.gi_yieldfrom is None


# ---- Coroutines -------------------------------------------------------------------------------------------------------------------------


@op
def coroutine_finished(h, n):
    async def add():
        total = 0
        async for i in some(n):
            total += i
        async with AsyncGuard(True) as entered:
            total += entered
            raise Problem(n)
        return total

    return finish(add())


@op
def coroutine_continued(h, n):
    try:
        return h.working.send(None)
    except StopIteration as e:
        h.abandoned.append(h.working)
        h.working = working([n], h.log)
        h.working.send(None)
        return "done", e.value


@op
def coroutine_thrown(h, n):
    try:
        return h.working.throw(Problem(n))
    finally:
        h.abandoned.append(h.working)
        h.working = working([n], h.log)
        h.working.send(None)


@op
def asynchronous_comprehension(h, n):
    async def collect():
        return [i + await pause(i) async for i in some(n % 4)], {i async for i in some(2)}

    return finish(collect(), range(1, 20))


@op
def asynchronous_generator(h, n):
    async def one():
        try:
            return await h.ticking.asend(n)
        except TypeError:  # it has not begun
            return await anext(h.ticking)

    return finish(one(), [n])


@op
def asynchronous_generator_advanced(h, n):
    return finish(anext(h.ticking, "over"), [None, n])


@op
def asynchronous_generator_closed(h):
    finish(h.ticking.aclose())
    h.abandoned.append(h.ticking)
    h.ticking = ticking(h.log)


@op
def asynchronous_generator_thrown(h, n):
    async def throw():
        await anext(h.ticking)
        await h.ticking.athrow(Problem(n))

    try:
        finish(throw())
    finally:
        h.abandoned.append(h.ticking)
        h.ticking = ticking(h.log)


@op
def asynchronous_stack(h, n):
    async def use():
        async with contextlib.AsyncExitStack() as stack:
            entered = await stack.enter_async_context(AsyncGuard(False))
            stack.push_async_callback(asyncio.sleep, 0)
            return entered

    return finish(use())


@op
def greenlet_that_waits(h, n):
    if greenlet_spawn is None:
        return None

    def move():
        h.log.append(await_only(pause(n)))
        coins = min(h.thing.coins, n)
        h.thing.coins -= coins
        moved = coins, await_only(pause("between"))
        h.slotted.coins += coins
        if n == 3:
            raise Problem(n)
        return moved

    return finish(greenlet_spawn(move), range(1, 9))[0]  # where it is irrevocable it waits once more


# ---- Dataclasses, enums, tuples ---------------------------------------------------------------------------------------------------------


@op
def dataclass_changed(h, n):
    h.data.tags.append(n)
    h.data.size = len(h.data.tags)
    return dataclasses.asdict(h.data), h.data == Data()


@op
def dataclass_made(h, n):
    h.data = dataclasses.replace(h.data, tags=[n])
    return repr(h.data)


@op
def dataclass_frozen(h, n):
    h.frozen_data[Frozen(n % 3)] = n
    return Frozen(n) < Frozen(3), h.frozen_data.get(Frozen(1)), hash(Frozen(2)) == hash(Frozen(2))


@op
def dataclass_frozen_assigned(h, n):
    Frozen(n).n = 2


@op
def dataclass_with_slots(h, n):
    h.slotted_data.items.append(n)
    return dataclasses.astuple(h.slotted_data)


@op
def dataclass_at_run_time(h, n):
    @dataclasses.dataclass
    class Local:
        n: int
        log: list = dataclasses.field(default_factory=list)

    h.local = Local(n)
    h.local.log.append(n)
    return h.local, dataclasses.make_dataclass("Made", ["a"])(n).a


@op
def enum_next(h):
    h.color = h.color.after()
    return h.color, h.color is Color.GREEN, Color["RED"], [each.name for each in Color]


@op
def enum_missing(h, n):
    return Color(n)


@op
def enum_flags(h, n):
    h.rights ^= Rights(n)
    return Rights.WRITE in h.rights, h.rights.value, list(h.rights)


@op
def enum_at_run_time(h, n):
    made = enum.Enum("Made", "A B")
    return made.A.name, made(2).name, len(made)


@op
def named_tuple(h, n):
    h.pair = Pair(n, getattr(h, "pair", None) and h.pair.first)
    return h.pair, h.pair._replace(first=0), h.pair._asdict()


@op
def number_subclass(h, n):
    h.whole = Whole(n)
    h.whole.seen = getattr(h.whole, "seen", 0) + 1
    return h.whole + 1, h.whole.seen


# ---- Classes made at run time, exec -------------------------------------------------------------------------------------------------------


@op
def class_made(h, n):
    class Local(Thing):
        count = n

        def bump(self, by):
            return super().bump(by) + self.count

    h.made_class = Local
    h.things["made"] = Local(n)
    return h.things["made"].bump(1), Local.__mro__[1].__name__


@op
def class_made_and_used(h, n):
    return h.things["made"].bump(n) if "made" in h.things else None


@op
def class_attribute_made_at_run_time(h, n):
    if hasattr(h, "made_class"):
        h.made_class.count += n
        return h.made_class.count, h.made_class(n).bump(1)


@op
def class_by_type(h, n):
    cls = type("Made", (Slotted,), {"twice": lambda self: self.coins * 2})
    h.child_made = cls()
    return cls().twice()


@op
def class_registered(h, n):
    class Local(Registry, registry=h.classes):
        number = n

    return [cls.number for cls in h.classes]


@op
def class_derived(h, n):
    cls = type("Derived", (h.base,), {"number": n})
    h.thing.bump(n)  # which others do meanwhile
    h.subclasses[n].append(cls)


@op
def classes_derived(h):
    return [cls.number for cls in h.base.__subclasses__()]


@op
def class_of_abstract(h, n):
    def is_mine(cls, other):
        return getattr(other, "number", None) == n or NotImplemented

    h.subclasses[n].append(type(h.abstract)("Derived", (h.abstract,), {"__subclasshook__": classmethod(is_mine)}))


@op
def abstract_class_asked(h, n):
    return issubclass(h.asked[n], h.abstract), isinstance(h.asked[n](), h.abstract)


@op
def list_grown_for_a_while(h, n):
    h.list.extend(range(200))
    h.thing.bump(n)
    del h.list[-200:]


@op
def list_has_room_for_twice_its_items_at_most(h):
    room = sys.getsizeof(h.list) - sys.getsizeof([])
    return room <= sys.getsizeof([None] * (2 * len(h.list) + 20))


@op
def class_with_meta(h, n):
    class Local(metaclass=Meta):
        field = Field()

        def __init__(self, *args):
            self.values = {"_field": args}

    instance = Local(n)
    h.calls.append(instance.field)
    return instance.called, instance.made_by


@op
def executed(h, n):
    exec(f"x += {n}\ndef f(a):\n    return a + x\ny = [f(i) for i in range(2)]", h.namespace)
    return h.namespace["x"], h.namespace["y"]


@op
def executed_function_called(h, n):
    return h.namespace["f"](n)


@op
def evaluated(h, n):
    return eval("x + n", h.namespace, {"n": n}), eval("[h.list, n]")


@op
def compiled_and_executed(h, n):
    space = {"h": h}
    exec(compile("h.list.append(1)\nlast = h.list[-1]", "<made>", "exec"), space)
    return space["last"]


# ---- Contexts, weak references ----------------------------------------------------------------------------------------------------------


@op
def context_run(h, n):
    def inside():
        h.token = h.variable.set(h.variable.get() + n)
        try:
            return h.variable.get()
        finally:
            h.variable.reset(h.token)

    return h.context.run(inside)


@op
def context_copied(h, n):
    other = h.context.copy()
    other.run(h.variable.set, n)
    h.contexts = [*getattr(h, "contexts", []), other][-2:]
    return other[h.variable], h.variable.get(), len(other)


@op
def context_current(h, n):
    token = h.variable.set(n)
    seen = contextvars.copy_context()[h.variable]
    h.variable.reset(token)
    return seen


@op
def weak_value(h, n):
    h.weak_values[n] = h.kept[n % 4]
    return sorted(h.weak_values), h.weak_values.get(0) is h.kept[0]


@op
def weak_value_deleted(h, n):
    del h.weak_values[n]


@op
def weak_key(h, n):
    h.weak_keys[h.kept[n % 4]] = n
    return sorted(h.weak_keys.values()), h.weak_keys.get(h.kept[0])


@op
def weak_key_popped(h, n):
    return h.weak_keys.pop(h.kept[n % 4], "none"), len(h.weak_keys)


@op
def weak_set(h, n):
    h.weak_set.add(h.kept[n % 4])
    return len(h.weak_set), h.kept[0] in h.weak_set


@op
def weak_set_discarded(h, n):
    h.weak_set.discard(h.kept[n % 4])
    return sorted(thing.coins for thing in h.weak_set)


@op
def weak_reference(h, n):
    h.reference = weakref.ref(h.kept[n % 4])
    return h.reference().coins


# ---- Garbage in cycles, whose end is noticed -------------------------------------------------------------------------------


class Ticket:
    pass


class Ending:
    """Dies when garbage is collected; then the transaction that has made it must have been committed, with its ticket."""

    def __init__(self, tickets, ticket):
        self.tickets, self.ticket, self.itself = tickets, ticket, self

    def __del__(self):
        require_ticket(self.tickets, self.ticket)


def require_ticket(tickets, ticket):
    require(any(each is ticket for each in tickets), "the end of what never was")


def ticket_of(h):
    h.tickets.append(Ticket())
    return h.tickets[-1]


@op
def left_to_die(h, n):
    Ending(h.tickets, ticket_of(h))
    return len(h.tickets)


@op
def left_to_die_in_generator(h, n):
    def generator(tickets, ticket):
        itself.append(made)
        try:
            yield
        finally:
            require_ticket(tickets, ticket)

    itself = []
    made = generator(h.tickets, ticket_of(h))
    next(made)
    return len(h.tickets)


@op
def left_to_die_called_back(h, n):
    tickets, ticket, made = h.tickets, ticket_of(h), Thing()
    made.itself = made
    h.watched.append(weakref.ref(made, lambda reference: require_ticket(tickets, ticket)))
    return len(h.tickets)


# ---- What is looked at for long while others change it ----------------------------------------------------------------------


LOOKS = 30  # at the same, in one operation: long enough for another transaction to begin, write and commit


@op
def members_looked_at(h, n):
    return [n in h.members for _ in range(LOOKS)]


@op
def members_copied(h):
    return [h.members.copy() for _ in range(LOOKS)]


@op
def member_changed(h, n):
    h.members ^= {n}


@op
def names_looked_at(h, n):
    return [n in h.names for _ in range(LOOKS)]


@op
def name_changed(h, n):
    if h.names.pop(n, n) is not None:
        h.names[n] = None


@op
def things_looked_at(h):
    return [sum([thing.coins for thing in h.watched_things]) for _ in range(LOOKS // 8)]


@op
def coins_of_a_thing_changed(h, n):
    h.watched_things[n].coins += 1


@op
def dicts_looked_at(h):
    return [[list(each.values()) for each in h.watched_dicts] for _ in range(LOOKS // 8)]


@op
def dict_looked_at_changed(h, n):
    h.watched_dicts[n]["a"] += 1


# ---- Effects that wait for the commit ----------------------------------------------------------------------------------------


@op
def printed_at_commit(h, n):
    print(h.mail.next(), n, file=h.paper)
    h.thing.bump(n)


@op
def logged_at_commit(h, n):
    h.logger.error("%d is %d", h.mail.next(), n)


@op
def sent_at_commit(h, n):
    return h.sender.send(b"%d %d " % (h.mail.next(), n))


@op
def told_at_commit(h, n):
    tell_at_commit(h.told, h.mail.next(), n)


@op
def told_in_several_ways(h, n):
    for i in range(n % 4):
        tell_at_commit(h.told, h.mail.next(), i)
        print(h.mail.number, end=" ", file=h.paper)
        h.sender.send(b"%d " % h.mail.number)


@op
def received(h, n):
    return [h.inbox.recv(1) for _ in range(n)]  # of more there may come less than that


@op
def received_into_bytes(h, n):
    return h.inbox.recv_into(h.bytes, 1), h.bytes[0]


@op
def received_and_answered(h, n):
    got = h.inbox.recv(1)
    h.sender.send(b"%d " % h.mail.next())
    return got, h.inbox.recv(1)


@op
def received_datagram(h, n):
    return h.packets.recv(n % 4 + 1)


@op
def received_datagram_into_a_buffer(h, n):
    buffer = bytearray(4)
    return h.packets.recv_into(buffer, n % 4), buffer


@op
def received_datagram_from_somebody(h, n):
    return h.packets.recvfrom(n % 4 + 1)


@op
def received_message(h, n):
    return h.packets.recvmsg(n % 4 + 1)


@op
def looked_at_what_has_come(h, n):
    return h.packets.recv(n % 4 + 1, socket.MSG_PEEK), h.inbox.recv(1, socket.MSG_PEEK)


# ---- C functions by their names ----------------------------------------------------------------------------------------------


@op
def sets_made_of_a_set(h, n):
    made = h.set.union(h.other_set, [n]), h.set.intersection(h.other_set), h.set.difference([n])
    return made, h.set.symmetric_difference(h.other_set), h.set.issuperset(h.other_set)


@op
def set_that_gets_what_is_in_one_of_two(h, n):
    h.set.symmetric_difference_update(h.other_set if n % 2 else [n])
    return len(h.set)


@op
def list_filtered_in_c(h, n):
    some = itertools.dropwhile(bool, h.sorted), itertools.filterfalse(None, h.list), itertools.chain.from_iterable([h.list, h.sorted])
    return [*map(list, some), list(itertools.combinations_with_replacement(h.sorted[: n % 4], 2))]


@op
def list_added_up_in_c(h):
    return math.fsum(h.sorted), math.dist(h.sorted, h.sorted), math.sumprod(h.sorted, h.sorted)


@op
def list_changed_by_an_operator(h, n):
    operator.iadd(h.list, [n])
    operator.iconcat(h.list, [n])
    return operator.concat(h.list, h.sorted), operator.mul(h.sorted, 2), operator.lt(h.sorted, h.list), operator.ne(h.list, h.sorted)


@op
def set_changed_by_an_operator(h, n):
    operator.iand(h.set, h.other_set)
    operator.ior(h.set, {n})
    operator.ixor(h.other_set, {n})
    return operator.and_(h.set, h.other_set), operator.xor(h.set, h.other_set), operator.ge(h.set, h.other_set)


@op
def dict_changed_by_an_operator(h, n):
    operator.ior(h.dict, {"a": n})
    return operator.or_(h.dict, {"b": n}), operator.eq(h.dict, {})


@op
def array_filled(h, n):
    h.array.fromlist([n, n + 1])
    h.array.frombytes(b"ab")
    h.array.byteswap()
    return h.array.tolist()


@op
def bytes_read_in_c(h, n):
    return zlib.crc32(h.bytes), zlib.adler32(h.bytes), h.bytes.endswith(b"\x03"), struct.unpack_from("B", h.bytes, n % 4), ord(h.bytes[n:])


@op
def bytes_filled_by_a_stream(h, n):
    return io.BytesIO(bytes([n]) * 3).readinto(h.bytes)


@op
def bytearray_resized(h, n):
    h.grown.resize(n)
    return len(h.grown)


@op
def matches_counted(h, n):
    return re.subn(b"[\x00-\x07]", lambda match: b"x" * h.thing.bump(n), h.bytes), re.subn("a", "b", "banana")


@op
def text_of_what_is_nested(h):
    return ascii(h.nested), ascii(h.list)


@op
def exception_without_its_traceback(h):
    return h.problem.with_traceback(None) is h.problem


@op
def list_turned_round(h):
    h.heap.reverse()
    return h.heap[0]


@op
def list_copied(h, n):
    return h.heap.copy(), h.sorted.copy(), h.sorted.count(n)


@op
def set_copied(h):
    return h.set.copy(), h.set.isdisjoint(h.other_set), h.set.issubset(h.other_set)


@op
def set_narrowed(h, n):
    h.other_set.difference_update([n])
    h.set.intersection_update(h.other_set)


@op
def deque_copied(h, n):
    return h.bounded.copy(), h.bounded.count(n)


@op
def deque_filled_anew(h, n):
    if n > 4:
        h.bounded.clear()
    h.bounded.extendleft([n, n + 1])
    h.bounded.reverse()


@op
def bytearray_changed_by_methods(h, n):
    h.grown.insert(n, n)
    h.grown.reverse()
    if n > 5:
        h.grown.clear()
    return h.grown.copy(), h.grown.count(n), h.grown.startswith(b"0")


@op
def array_changed_by_methods(h, n):
    h.array.insert(n, n)
    h.array.reverse()
    return h.array.pop(), h.array.count(n), h.array.tobytes()
