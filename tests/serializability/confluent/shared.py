"""What all tasks share, of as many kinds as there are."""

import array
import asyncio
import contextvars
import dataclasses
import decimal
import functools
import io
import itertools
import threading
import types
import weakref
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

from suspended import Color, Problem, counting

from tornado import gen, locks, queues

#: a variable of a module that tasks change
COUNT = 0


class Total:
    """Attributes of a class that tasks change."""

    total, per = 0, {}


class WithSlot:
    __slots__ = ("a",)


class Slots(WithSlot):
    __slots__ = ("b", "__weakref__")

    def __init__(self):
        self.a = self.b = 0


class Hooks:
    """Attributes by methods of its own."""

    def __init__(self):
        object.__setattr__(self, "table", {"n": 0})

    def __getattr__(self, name):
        try:
            return self.table[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.table[name] = value


class Descriptor:
    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__.get("_seen", 0)

    def __set__(self, instance, value):
        instance.__dict__["_seen"] = value


@dataclasses.dataclass
class Data:
    n: int = 0
    items: list = dataclasses.field(default_factory=list)
    seen = Descriptor()


class Number:
    def __init__(self):
        self.n = 0


def adding():
    total = 0

    def add(n):
        nonlocal total
        total += n
        return total

    return add


def walking():
    seen = set()
    for i in itertools.count():
        for j in range(3):
            seen.add(i)
            yield len(seen), j


async def walking_awaited():
    n = 0
    while True:
        await asyncio.sleep(0)
        n += 1
        yield n


@gen.coroutine
def changed_by_generator(shared, n):
    yield gen.moment
    shared.n += n
    try:
        yield gen.sleep(0.0001)
        raise Problem(n)
    except Problem as e:
        shared.n += e.n
    raise gen.Return(n)


@gen.coroutine
def yielded_list(n):
    numbers = yield [asyncio.sleep(0, i) for i in range(n)]
    named = yield {"a": asyncio.sleep(0, n), "b": asyncio.sleep(0.0001, 1)}
    return numbers, sorted(named.items())


async def changed_with_problems(shared, n):
    shared.n += n
    await asyncio.sleep(0)
    shared.n += 1
    if n % 2:
        raise Problem(n)


def changed_under_lock(shared, n):
    with shared.thread_lock:
        shared.under_lock = shared.under_lock + n


class Shared:
    """The state; `bad` gets a name for each thing seen that cannot be seen in any order of the steps."""

    def __init__(self):
        self.bad = []
        self.n, self.bits, self.str, self.text, self.num, self.dec = 0, 0, "", "", 0, decimal.Decimal(0)
        self.slots, self.hooks, self.data, self.ns = Slots(), Hooks(), Data(), types.SimpleNamespace(n=0)
        self.objs = [Number() for _ in range(6)]
        self.d, self.d2, self.dd, self.counter, self.tree = {}, {}, defaultdict(list), Counter(), {}
        self.od, self.od2, self.chain = OrderedDict(), OrderedDict(), ChainMap({}, {"base": 1})
        self.view, self.views = self.d.keys(), self.d.items()
        self.nested = {"a": {"b": [0, {"c": 0}]}}
        self.s, self.l, self.dq, self.heap = set(), [], deque(), []
        self.ba, self.arr = bytearray(8), array.array("l", [0] * 8)
        self.mv = memoryview(self.arr)
        self.weak, self.keep = weakref.WeakValueDictionary(), []
        self.purses, self.pd, self.colors = [10] * 6, dict.fromkeys("abcdef", 10), dict.fromkeys(Color, 0)
        self.stream, self.lines = io.StringIO(), io.StringIO()
        self.add = adding()
        self.cached, self.fcache = functools.lru_cache(maxsize=3)(lambda n: (n, n * n)), functools.cache(lambda n: n + 1)
        self.err = Problem(0)
        # to go on with
        self.ids, self.taken, self.sit, self.taken2 = itertools.count(), [], iter(range(100000)), []
        self.sgen, self.ssum, self.total = counting(), 0, 0
        next(self.sgen)
        self.sagen, self.got2, self.walk, self.got3 = walking_awaited(), [], walking(), []
        self.ctx, self.var, self.varsum = contextvars.Context(), contextvars.ContextVar("var", default=0), 0
        # to wait for
        self.lock, self.sem, self.cond = asyncio.Lock(), asyncio.Semaphore(2), asyncio.Condition()
        self.inside, self.ready, self.called, self.free = 0, {}, [], list(range(5))
        self.work, self.prio, self.got = asyncio.Queue(), asyncio.PriorityQueue(), []
        self.pool, self.out, self.tasks = asyncio.LifoQueue(), set(), set()
        for number in range(2):
            self.pool.put_nowait(number)
        self.tq, self.tlock, self.tin, self.tgot = queues.Queue(), locks.Lock(), 0, []
        self.rlock, self.thread_lock, self.under_lock = threading.RLock(), threading.Lock(), 0

    def bump(self, n):
        value = self.n
        for _ in range(n * 7):
            value += 0
        self.n = value + n

    def observe(self):
        """All that is left, without the order in which it came there."""
        return {
            "bad": self.bad, "COUNT": COUNT, "Total": (Total.total, sorted(Total.per.items())),
            "numbers": (self.n, self.bits, sorted(self.str), sorted(self.text), self.num, self.dec, self.add(0), self.ns.n),
            "slots": (self.slots.a, self.slots.b), "hooks": sorted(self.hooks.table.items()), "objs": sum(each.n for each in self.objs),
            "data": (self.data.n, sorted(self.data.items), self.data.seen), "nested": self.nested,
            "d": sorted(self.d.items()), "d2": sorted(self.d2), "dd": of_lists(self.dd), "counter": sorted(self.counter.items()),
            "tree": of_lists(self.tree), "od": sorted(self.od.items()), "od2": of_lists(self.od2), "chain": sorted(self.chain.items()),
            "s": sorted(self.s), "l": sorted(self.l), "dq": sorted(self.dq), "heap": sorted(self.heap),
            "ba": bytes(self.ba), "arr": list(self.arr), "weak": sorted(self.weak),
            "purses": sum(self.purses), "pd": sum(self.pd.values()), "colors": [(color.name, n) for color, n in self.colors.items()],
            "streams": (sorted(self.stream.getvalue().split()), sorted(self.lines.getvalue().split())),
            "err": (self.err.n, sorted(self.err.args), sorted(getattr(self.err, "__notes__", []))),
            "ids": next(self.ids), "taken": sorted(self.taken), "sit": next(self.sit), "taken2": sorted(self.taken2),
            "sgen": (self.ssum, self.sgen.send(0)), "got2": sorted(self.got2), "got3": sorted(self.got3),
            "ctx": (self.varsum, self.ctx.run(self.var.get)), "ready": sorted(self.ready.items()), "called": self.called,
            "free": sorted(self.free), "got": sorted(self.got), "tgot": sorted(self.tgot), "under_lock": self.under_lock,
            "left": (self.work.qsize(), self.prio.qsize(), self.pool.qsize(), self.tq.qsize(), len(self.out), len(self.tasks)),
            "locks": (self.inside, self.tin, self.lock.locked(), self.sem._value),
        }


def of_lists(table):
    return sorted((key, sorted(values)) for key, values in table.items())


def begin():
    """Nothing is left of the last program."""
    global COUNT
    COUNT = 0
    Total.total, Total.per = 0, {}
    return Shared()
