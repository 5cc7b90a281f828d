"""Handlers and ordinary threads that share one object without a lock: single operations are whole, as on upstream.

    python -m tornado.stm -j N unlocked_beside.py OBJECT CALLBACKS

so many callbacks use the object of that name (below), and threads meanwhile.  Attempts are aborted at random.  Prints a line
for each kind of thing that was wrong; the status is 1 then.
"""

import asyncio
import collections
import faulthandler
import functools
import heapq
import io
import random
import sys

from tornado.stm import core

THREADS = 2
OPERATIONS = 5  # of a callback


def expect(true, what):
    if not true:
        raise AssertionError(what)


# ---- Objects: a class makes one, `use` is a few operations on it, `check` what holds in the end ---------------------------


class BoundedCache:
    def __init__(self, maxsize=4):
        self.calls = functools.lru_cache(maxsize)(lambda x: (x, x + 1))

    def use(self, x):
        expect(self.calls(x % 12) == (x % 12, x % 12 + 1), "another call's result")
        if x % 211 == 0:
            self.calls.cache_clear()

    def check(self):
        info = self.calls.cache_info()
        expect(info.currsize <= info.maxsize, str(info))
        for x in range(2 * info.maxsize):
            self.calls(100 + x)
        expect(self.calls.cache_info().currsize == info.maxsize, f"{self.calls.cache_info()} when full")


class CacheOfOne(BoundedCache):
    def __init__(self):
        super().__init__(1)


class BoundedDeque:
    def __init__(self):
        self.items = collections.deque(range(10), maxlen=10)

    def use(self, x):
        self.items.append(x)
        self.items.appendleft(x)
        n = len(self.items.copy())
        expect(n == 10, f"{n} items")

    def check(self):
        self.use(1)


class Deque:
    def __init__(self):
        self.items = collections.deque(range(100))

    def use(self, x):
        self.items.rotate(1)
        self.items.append(x)
        self.items.rotate(x % 3)
        try:
            self.items.popleft()
        except IndexError:
            self.items.extend(range(100))  # as below, for Bytearray
        self.items.reverse()

    def check(self):
        expect(len(list(self.items)) == len(self.items), "items are lost")


class Ordered:
    def __init__(self):
        self.items = collections.OrderedDict((i, i) for i in range(20))

    def use(self, x):
        self.items[x % 40] = x
        self.items.get(x % 20)
        self.items.pop(x % 37, None)
        if 0 in self.items:
            try:
                self.items.move_to_end(0)
            except KeyError as e:
                expect(e.args == (0,), repr(e))  # another one has taken it out

    def check(self):
        expect(len(list(self.items)) == len(self.items) == len(list(reversed(self.items))), "keys are lost")


class Text:
    def __init__(self):
        self.stream = io.StringIO()

    def use(self, x):
        self.stream.write("a")
        self.stream.seek(0)
        if x % 7 == 0:
            self.stream.write("ab" * (x % 50))
            self.stream.truncate(3)
        expect(set(self.stream.getvalue()) <= set("ab\0"), "other text")

    def check(self):
        self.use(7)


class Bytes(Text):
    def use(self, x):
        self.stream.write(b"a")
        self.stream.seek(0)
        if x % 7 == 0:
            self.stream.write(b"ab" * (x % 50))
            self.stream.truncate(3)
        expect(set(self.stream.getvalue()) <= set(b"ab\0"), "other bytes")

    def __init__(self):
        self.stream = io.BytesIO()


class Heap:
    """Of floats, and of tuples."""

    def __init__(self, item=float):
        self.item, self.items = item, [item(i) for i in range(50)]

    def use(self, x):
        heapq.heappush(self.items, self.item(x))
        heapq.heappop(self.items)
        heapq.heappushpop(self.items, self.item(x % 97))
        heapq.heapreplace(self.items, self.item(x % 101))

    def check(self):
        expect(set(map(type, self.items)) == {type(self.item(1))}, "other items")


class HeapOfTuples(Heap):
    def __init__(self):
        super().__init__(lambda x: (x % 5, str(x)))


class Bytearray:
    def __init__(self):
        self.items = bytearray(100)

    def use(self, x):
        self.items.extend(b"ab")
        try:
            self.items.pop()
            self.items.pop()
            self.items[3] = 1
        except IndexError:
            # What a thread has put into it is lost where a transaction is rolled back, and what it has taken out is there again: so
            # it gets shorter and longer by and by.
            self.items.extend(bytes(100))

    def check(self):
        self.use(1)


OBJECTS = {cls.__name__: cls for cls in (
    BoundedCache, CacheOfOne, BoundedDeque, Deque, Ordered, Text, Bytes, Heap, HeapOfTuples, Bytearray,
)}


async def use(made, callbacks):
    """Returns what was wrong, and how often."""
    loop = asyncio.get_running_loop()
    wrong, over, done = collections.Counter(), [], []

    def one(x):
        try:
            made.use(x)
        except Exception as e:
            wrong[repr(e)] += 1

    def thread(seed):
        chance = random.Random(seed)
        while not over:
            one(chance.randrange(1 << 20))

    def callback(i):
        for j in range(OPERATIONS):
            one(i * 31 + j * 17)
        done.append(1)

    threads = [loop.run_in_executor(None, thread, seed) for seed in range(THREADS)]
    core.inject_aborts(0.02, 1)
    for begin in range(0, callbacks, 100):
        for i in range(100):
            loop.call_soon(callback, begin + i)
        while len(done) < begin + 100:
            await asyncio.sleep(0)
    core.inject_aborts(0.0, 0)
    over.append(1)
    await asyncio.gather(*threads)
    made.check()
    return wrong


if __name__ == "__main__":
    faulthandler.enable()
    found = asyncio.run(use(OBJECTS[sys.argv[1]](), int(sys.argv[2])))
    for what, times in found.items():
        print(f"{times} times: {what}")
    sys.exit(1 if found else 0)
