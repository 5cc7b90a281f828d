"""Handlers and ordinary threads that share one object without a lock: single operations are whole, as on upstream.

    python -m tornado.stm -j N unlocked_beside.py OBJECT CALLBACKS

so many callbacks use the object of that name (below), and threads meanwhile.  Attempts are aborted at random.  Prints a line
for each kind of thing that was wrong; the status is 1 then.
"""

import asyncio
import collections
import faulthandler
import functools
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


OBJECTS = {cls.__name__: cls for cls in (BoundedCache, CacheOfOne)}


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
