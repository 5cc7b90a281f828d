"""A million transactions, a tenth of them aborted, leave no more memory behind than the first ones did."""

import asyncio
import collections
import contextvars
import ctypes
import gc
import os
import random
import sys
import threading

import pytest

import tornado.stm
from interpreters import needs_engine
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()

TRANSACTIONS = 1_000_000
CONVERSATIONS = 20_000
ROUNDS = 10  # the first warms up
KEYS = 50

activation.activate()


class Mallinfo(ctypes.Structure):
    """What the C library says of its heap: there lies what the engine allocates itself."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def bytes_of_c():
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0  # another C library: the resident set will have to tell
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


class Memory:
    """What this process holds."""

    def __init__(self):
        for _ in range(3):
            gc.collect()
        self.blocks = sys.getallocatedblocks()
        self.c = bytes_of_c()
        with open("/proc/self/statm") as file:
            self.resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __str__(self):
        return f"{self.blocks} objects, {self.c >> 10} KB of C, {self.resident >> 20} MB resident"

    def has_not_grown_from(self, before, transactions):
        """Not by an object or 16 bytes of C in a hundred transactions."""
        assert self.blocks - before.blocks < transactions / 100, (str(before), str(self))
        assert self.c - before.c < 16 * transactions / 100, (str(before), str(self))
        assert self.resident - before.resident < 32 << 20, (str(before), str(self))


# ---- What the transactions do ---------------------------------------------------------------------------------------


class Node:
    """With attributes that come and go, a slot's worth of state, and a cycle."""

    def __init__(self, n):
        self.n = n
        self.self = self

    def __eq__(self, other):
        return isinstance(other, Node) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


class Slotted:
    __slots__ = ("a", "b")


class Mortal:
    def __init__(self, world):
        self.world = world

    def __del__(self):
        self.world.died += 1


class Failure(Exception):
    pass


class World:
    def __init__(self):
        self.count = 0
        self.died = 0
        self.nodes = [Node(n) for n in range(KEYS)]
        self.slotted = [Slotted() for _ in range(KEYS)]
        self.table = {}
        self.groups = collections.defaultdict(list)
        self.recent = collections.OrderedDict()
        self.counter = collections.Counter()
        self.list = []
        self.deque = collections.deque()
        self.bounded = collections.deque(maxlen=8)
        self.set = set()
        self.bytes = bytearray()
        self.generators = [iter(()) for _ in range(KEYS)]
        self.iterators = [iter(()) for _ in range(KEYS)]
        self.closures = [counting() for _ in range(KEYS)]
        self.failures = [None] * KEYS
        self.noted = [0]

    @trusted
    def note(self, n):
        self.noted[0] += n


def counting():
    n = 0

    def count(step):
        nonlocal n
        n += step
        return n

    return count


def numbers(n):
    kept = [Node(n)]
    try:
        for i in range(n):
            kept.append(Node(i))
            yield from (node.n for node in kept[-2:])
    finally:
        kept.clear()


def attributes(world, n):
    node = world.nodes[n]
    node.n += 1
    node.last = (n, node.n)
    node.text = f"{node.n} of {n}"
    slotted = world.slotted[n]
    slotted.a, slotted.b = node.last, getattr(slotted, "a", None)
    world.nodes[(n + 1) % KEYS] = Node(node.n % 7)


def insert_and_delete(world, n):
    table = world.table
    if n in table:
        del table[n]
    else:
        table[n] = [n]
        table[Node(n)] = {"n": n}
    table.pop(Node(n + 1), None)
    world.groups[n % 5].append(n)
    if len(world.groups[n % 5]) > 10:
        del world.groups[n % 5]
    world.counter[n % 9] += 1
    world.recent[n] = n
    world.recent.move_to_end(n)
    if len(world.recent) > 20:
        world.recent.popitem(last=False)


def lists_and_queues(world, n):
    items = world.list
    items.append(Node(n))
    items.extend([n, str(n)])
    if len(items) > 60:
        items[10:40] = []
        items.pop()
        items.sort(key=str)
    world.deque.append([n])
    if len(world.deque) > 30:
        world.deque.popleft()
    world.bounded.appendleft((n,))
    world.bytes += b"0123456789"
    if len(world.bytes) > 1000:
        world.bytes.clear()


def sets(world, n):
    world.set.add(Node(n))
    world.set.discard(Node((n * 7) % KEYS))
    world.set ^= {n, n + 1}


def outliving(world, n):
    """Generators, iterators and closures that other transactions go on with."""
    if next(world.generators[n], None) is None:
        world.generators[n] = numbers(n % 6)
    if next(world.iterators[n], None) is None:
        world.iterators[n] = zip(list(range(n % 4)), map(str, range(9)))
    world.closures[n](n)
    if n % 5 == 0:
        world.closures[n] = counting()


def exceptions(world, n):
    try:
        {}[n]
    except KeyError as e:
        world.failures[n] = e
    if n % 10 == 0:
        world.count += 1
        raise Failure(n, world.failures[n])


def effects(world, n):
    core.defer(world.note, 1)
    core.on_abort(str, n)
    if n == 0:
        Mortal(world)


ACTIONS = [attributes, insert_and_delete, lists_and_queues, sets, outliving, exceptions, effects]


def some_actions(world, work):
    for action, n in work:
        action(world, n)
    world.nodes[n].n -= 1


@trusted
def run_all(works, world):
    """Take work until there is none left; exceptions of transactions are results."""
    while works:
        try:
            work = works.pop()
        except IndexError:
            return
        try:
            core.Transaction(some_actions, (world, work)).run()
        except Failure:
            pass


# ---- The soaks --------------------------------------------------------------------------------------------------------


class Injected:
    """A context in which about this share of the attempts is aborted."""

    def __init__(self, share, seed):
        self.rate = share / 100  # at each barrier; adapted as attempts turn out
        self.share, self.seed = share, seed

    def __enter__(self):
        self.before = core.stats()
        core.inject_aborts(self.rate, self.seed)

    def __exit__(self, *exc):
        core.inject_aborts(0, 0)
        now = core.stats()
        self.commits = now["commits"] - self.before["commits"]
        self.aborts = now["aborts"] - self.before["aborts"]
        self.rate = min(0.5, self.rate * min(4, max(0.25, self.share / max(0.001, self.aborts / self.commits))))


def soak(round_of, share):
    """Run `round_of(choose)` ROUNDS times, with this share of attempts aborted; the first round warms up."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    choose = random.Random(seed)
    injected = Injected(share, seed)
    commits = aborts = 0
    for number in range(ROUNDS):
        with injected:
            round_of(choose)
        memory = Memory()
        print(f"{injected.commits} commits, {injected.aborts} aborts: {memory}", flush=True)
        if number == 0:
            before = memory
        else:
            commits += injected.commits
            aborts += injected.aborts
    print(core.stats())
    assert aborts > 0.8 * share * commits
    memory.has_not_grown_from(before, commits)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_transactions_do_not_grow_memory():
    world = World()

    def round_of(choose):
        works = [
            tuple((choose.choice(ACTIONS), choose.randrange(KEYS)) for _ in range(2)) for _ in range(TRANSACTIONS // ROUNDS)
        ]
        threads = [threading.Thread(target=run_all, args=(works, world)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    soak(round_of, 0.1)
    assert world.died > 0 and world.noted[0] > TRANSACTIONS / 10


variable = contextvars.ContextVar("variable", default=0)


async def counting_down(n):
    try:
        while n:
            await asyncio.sleep(0)
            yield n
            n -= 1
    finally:
        variable.set(n)


async def failing(n):
    await asyncio.sleep(0)
    raise Failure(n)


async def conversation(world, queue, n):
    """Futures, tasks, queues, timers and asynchronous generators, finished and not."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, Node(n))
    node = await future
    variable.set(variable.get() + node.n)
    queue.put_nowait(node)
    async for i in counting_down(n % 5):
        if i == 2:
            break
    forgotten = asyncio.create_task(asyncio.sleep(1000))
    try:
        async with asyncio.timeout(100):
            await asyncio.gather(failing(n), asyncio.sleep(0.001))
    except Failure as e:
        world.failures[n % KEYS] = e
    forgotten.cancel()
    loop.call_later(0, world.closures[n % KEYS], n)
    await loop.run_in_executor(None, str, n)
    await queue.get()
    world.count += 1


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_loop_does_not_grow_memory():
    world = World()

    async def main(choose):
        queue = asyncio.Queue()
        for _ in range(CONVERSATIONS // ROUNDS // 50):
            await asyncio.gather(*(conversation(world, queue, choose.randrange(1000)) for _ in range(50)))

    soak(lambda choose: tornado.stm.run(main(choose), threads=3), 0.1)
    assert world.count > 0
