"""What the engine puts into objects of C code is freed once: under the interpreter's debug allocator, which spoils what is free."""

import os
import subprocess
import sys

from interpreters import needs_engine

needs_engine()

CACHES = """
import functools, gc, weakref
from tornado.stm import activation, core

activation.activate()
run = lambda f, *args: core.Transaction(f, args).run()

class Value:
    pass

def make(abort):
    attempts = []

    @functools.lru_cache(maxsize=4)
    def cached(n):
        return Value()

    def work(numbers):
        refs = [weakref.ref(cached(n)) for n in numbers]
        attempts.append(len(refs))
        core.inject_aborts(0.2 if abort and len(attempts) == 1 else 0, 1)
        for n in numbers:
            cached(n)
        return refs

    seen = [weakref.ref(cached(0))]  # by CPython, outside
    for n in range(3):
        seen += run(work, range(2 + 3 * n))
    run(cached.cache_clear)
    seen += run(work, range(7))
    del cached, work
    gc.collect()
    return seen

for _ in range(60):
    for abort in (False, True):
        assert [ref for ref in make(abort) if ref() is not None] == []
core.inject_aborts(0, 0)
"""


def test_links_of_a_bounded_cache_are_freed_once():
    done = subprocess.run(
        [sys.executable, "-c", CACHES], env={**os.environ, "PYTHONMALLOC": "debug"}, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr[-2000:]
