"""What is left in the middle while its task waits for something else."""

import asyncio
import contextlib
import contextvars
import enum
import re
import types

VARIABLE = contextvars.ContextVar("VARIABLE", default=0)


class Problem(Exception):
    def __init__(self, n):
        super().__init__(n)
        self.n = n


class Color(enum.Enum):
    RED, GREEN, BLUE = 1, 2, 3


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


# ---- To go over -------------------------------------------------------------------------------------------------------------


def pairs(n):
    kept = []
    try:
        for i in range(n):
            kept.append(i)
            yield i, len(kept)
    finally:
        kept.clear()


def pairs_from(n):
    result = yield from pairs(n // 2)
    yield from iter([(i, result) for i in range(n - n // 2)])
    return n


class Countdown:
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
    """Gone over by its __getitem__."""

    def __init__(self, n):
        self.n = n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError
        return i * 3


async def pairs_awaited(n):
    held = []
    try:
        for i in range(n):
            held.append(i)
            if i % 2:
                await asyncio.sleep(0)
            yield i, len(held)
    finally:
        held.clear()


class CountAwaited:
    def __init__(self, n):
        self.i, self.n = 0, n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.i >= self.n:
            raise StopAsyncIteration
        self.i += 1
        await asyncio.sleep(0)
        return self.i


def counting():
    """Sums up what it is sent, and takes off the number of each Problem."""
    total = 0
    while True:
        try:
            total += (yield total) or 0
        except Problem as e:
            total -= e.n


#: expressions for iterables with at least $n items
ITERABLES = """\
range($n)
list(range($n))
iter(tuple(range($n)))
dict.fromkeys(range($n)).items()
dict.fromkeys(range($n)).keys()
{i: i * 2 for i in range($n)}.values()
set(range($n))
deque(range($n))
'abcdefghijklmnop'[:$n]
bytes(range($n))
bytearray(range($n))
array.array('h', range($n))
memoryview(bytes(range($n)))
enumerate('abcdefghijklmnop'[:$n], 3)
zip(range($n), Countdown(50), Sequence(50))
map(lambda a: a * 2, Countdown($n))
filter(None, range(1, $n + 1))
reversed(list(range($n)))
pairs($n)
pairs_from($n)
Countdown($n)
Sequence($n)
itertools.islice(itertools.count(5, 2), $n)
itertools.islice(itertools.cycle([1, 2, 3]), $n)
itertools.chain([1], range($n - 1))
itertools.accumulate(range($n))
itertools.starmap(pow, [(2, i) for i in range($n)])
itertools.batched(range(2 * $n), 2)
itertools.pairwise(range($n + 1))
itertools.takewhile(lambda a: a < 99, range($n))
itertools.zip_longest(range($n), 'ab')
itertools.islice(itertools.product('ab', range(9)), $n)
itertools.islice(itertools.permutations('abcd'), $n)
(k for k, _ in itertools.groupby(range($n)))
re.finditer('a', 'ba' * $n)
(a * a for a in Countdown($n))
[a for a in pairs($n)]
OrderedDict.fromkeys(range($n)).items()
ChainMap(dict.fromkeys(range($n))).keys()
io.StringIO('a\\nb\\n' * $n).readlines()[:$n]
itertools.islice(Color, 0, $n) if $n <= 3 else range($n)
iter(Countdown($n + 1).__next__, 0)
struct.iter_unpack('b', bytes(range($n)))
itertools.compress(range(99), [1] * $n)
itertools.tee(Countdown($n))[1]
itertools.repeat('r', $n)
iter(deque(range($n), maxlen=50))
reversed(dict.fromkeys(range($n)))
reversed(OrderedDict.fromkeys(range($n)))
Counter({i: 1 for i in range($n)}).elements()
io.StringIO('x\\n' * $n)
io.BytesIO(b'x\\n' * $n)
frozenset(range($n))
""".splitlines()

ASYNCHRONOUS = """\
pairs_awaited($n)
CountAwaited($n)
(i async for i in pairs_awaited($n))
(await asyncio.sleep(0, i) for i in range($n))
""".splitlines()


def shown(value):
    """What can be compared of an item of ITERABLES."""
    return value.span() if isinstance(value, re.Match) else value.name if isinstance(value, Color) else value


# ---- To be inside of -----------------------------------------------------------------------------------------------------------


class Manager:
    """A context manager of both kinds that writes down who enters and leaves."""

    def __init__(self, log, n, swallows=False):
        self.log, self.n, self.swallows = log, n, swallows

    def __enter__(self):
        self.log(("enter", self.n))
        return self

    def __exit__(self, kind, exception, traceback):
        self.log(("exit", self.n, kind and kind.__name__))
        return self.swallows

    async def __aenter__(self):
        await asyncio.sleep(0)
        return self.__enter__()

    async def __aexit__(self, *exception):
        await asyncio.sleep(0)
        return self.__exit__(*exception)


@contextlib.contextmanager
def managed(log, n):
    log(("managed", n))
    token = VARIABLE.set(n)
    try:
        yield n
    except Problem as e:
        log(("caught", e.n))
    finally:
        VARIABLE.reset(token)
        log(("left", n))


@contextlib.asynccontextmanager
async def managed_awaited(log, n):
    log(("managed", n))
    try:
        await asyncio.sleep(0)
        yield n
    finally:
        await asyncio.sleep(0)
        log(("left", n))


class Awaitable:
    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __await__(self):
        result = yield from self.coroutine.__await__()
        return result


@types.coroutine
def awaited_by_generator(coroutine):
    results = [1]
    result = yield from coroutine
    results.append(result)
    return results[-1]
