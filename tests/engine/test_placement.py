"""The engine lies within the interpreter's 4 GiB, and loads all the same where it cannot."""

import json
import resource
import subprocess
import sys

from interpreters import needs_engine, not_sanitized
from tornado.stm import placement

needs_engine()

NEAR = 1 << 32

LOADED = """
import json, tornado.stm
from tornado.stm import core, placement
assert core.COMPILED
print(json.dumps([id(object), list(placement.mapped())]))
"""


def loaded(**options):
    """Where the interpreter is, and what is mapped once the engine is loaded."""
    return json.loads(subprocess.run([sys.executable, "-c", LOADED], stdout=subprocess.PIPE, check=True, **options).stdout)


@not_sanitized
def test_the_engine_is_near_the_interpreter():
    interpreter, regions = loaded()
    assert {start // NEAR for start, _, name in regions if "_engine-" in name} == {interpreter // NEAR}


@not_sanitized
def test_nothing_stays_reserved():
    _, regions = loaded()
    assert all(end - start < NEAR for start, end, name in regions if not name), regions


@not_sanitized
def test_with_a_limit_on_the_address_space_it_loads():
    loaded(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33)))


def test_what_is_reserved_is_what_is_free_above():
    end = placement.end_of_what_is_near(0x55_5555_0000)
    assert end == 0x56_0000_0000
    regions = [
        (0x55_5555_0000, 0x55_5566_0000, "/usr/bin/python3.14"),
        (0x55_6000_0000, 0x55_7000_0000, "[heap]"),
        (0x7F_0000_0000, 0x7F_0010_0000, "/usr/lib/libc.so.6"),
        (0x7F_0010_1000, 0x7F_0020_0000, ""),
        (0x7F_0080_0000, 0x7F_0090_0000, "/usr/lib/ld.so"),
        (0x7F_F000_0000, 0x7F_F001_0000, "[stack]"),
        (0x7F_F002_0000, 0x7F_F002_1000, "[vdso]"),
    ]
    assert list(placement.free_above(regions, end)) == [0x7F_0000_0000 - end, 0x60_0000]


def test_an_interpreter_among_the_libraries_needs_nothing():
    regions = [
        (0x7F_0000_0000, 0x7F_0010_0000, "/usr/lib/libpython3.14t.so"),
        (0x7F_0010_0000, 0x7F_0020_0000, "/usr/lib/libc.so.6"),
        (0x7F_F000_0000, 0x7F_F001_0000, "[stack]"),
    ]
    assert not list(placement.free_above(regions, placement.end_of_what_is_near(0x7F_0000_1000)))
