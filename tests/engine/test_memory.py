"""What the engine puts into objects of C code is freed once: under the interpreter's debug allocator, which spoils what is free."""

import os
import subprocess
import sys

import pytest

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


KEYS = """
import _testcapi
from tornado.stm import activation, core
from tornado.stm.core import trusted

activation.activate()
fail_from = trusted(lambda start: _testcapi.set_nomemory(start, 0))
end = trusted(lambda: _testcapi.remove_mem_hooks())
keys, failed = [f"key{i}" for i in range(150)], 0

def work(things, start):
    fail_from(start)
    try:
        for key in keys:
            things[key] = 1
        for key in keys[:100]:
            del things[key]
    finally:
        end()

for start in range(200):
    things = {"before": 0}
    try:
        core.Transaction(work, (things, start)).run()
    except MemoryError:
        failed += 1
        assert list(things)[:1] == ["before"]
    else:
        assert list(things) == ["before", *keys[100:]]
print(failed > 0)
"""


def test_that_there_is_no_memory_to_note_keys_is_the_programs_exception():
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
