"""The tables of effects: every line means something here, and what has no line runs alone."""

import asyncio
import mmap
import subprocess
import sys
from collections import Counter

import pytest

from interpreters import needs_engine
from tornado import stm
from tornado.stm import activation, core, transaction

needs_engine()

from meeting import APART, CONFLICT, is_alone, meet
from tornado.stm import _engine
from tornado.stm.c_functions import effects, seeds
from tornado.stm.core import trusted

activation.activate()

#: names in the tables that only some versions or builds of Python have
VERSION_DEPENDENT = set()

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="the engine is absent: transactions run one at a time")


def lines(table):
    return list(effects._entries(table))


def run(function, *args):
    return core.Transaction(function, args).run()


def test_every_type_resolves():
    missing = {name for name, _ in lines(effects.TYPES) if not isinstance(effects._lookup(name), type)}
    assert missing - VERSION_DEPENDENT == set()


def test_every_call_resolves():
    missing = {name for name, _ in lines(effects.CALLS) if not effects._callables(name)}
    assert missing - VERSION_DEPENDENT == set()


def test_every_instance_and_stateful_type_resolves():
    names = [name for name, _ in lines(effects.INSTANCES)] + effects.STATEFUL_TYPES.split()
    assert [name for name in names if not isinstance(effects._lookup(name), type)] == []


def test_the_version_dependent_names_are_in_the_tables():
    assert VERSION_DEPENDENT <= {name for name, _ in lines(effects.TYPES + effects.CALLS)}


def test_every_line_has_two_words():
    assert [line for line in lines(effects.TYPES) + lines(effects.CALLS) if len(line) != 2] == []


def test_every_kind_is_known():
    assert {kind for _, kind in lines(effects.TYPES)} | {kind for _, kind in effects.HIDDEN_TYPES} <= set(_engine.KINDS)


def test_every_effect_is_known():
    assert {effect for _, effect in lines(effects.CALLS + effects.INSTANCES) + effects.HIDDEN_CALLS} <= set(_engine.EFFECTS)


def test_every_word_is_explained():
    explained = effects.__doc__.replace("LIST_...", "LIST_APPEND LIST_EXTEND LIST_POP").replace(
        "DEQUE_...", "DEQUE_APPEND DEQUE_APPENDLEFT DEQUE_POP DEQUE_POPLEFT DEQUE_REMOVE").split()
    used = {effect for _, effect in lines(effects.CALLS + effects.INSTANCES)} | {kind for _, kind in lines(effects.TYPES)} - {"UNKNOWN"}
    assert used - set(explained) == set()


def test_no_line_is_repeated_with_another_effect():
    seen, contradictions = {}, []
    for name, effect in lines(effects.CALLS):
        if seen.setdefault(name, effect) != effect:
            contradictions.append(name)
    assert contradictions == []


def test_twins_are_python_functions_for_c_callables():
    for callable_, twin in activation.TWINS.items():
        assert callable_ is None or isinstance(callable_, (*effects._C_CALLABLES, type)), callable_
        assert callable(twin)


@needs_threads
@pytest.mark.parametrize("unknown", [
    lambda: sys.setswitchinterval(sys.getswitchinterval()),
    lambda: mmap.mmap(-1, 1),
    lambda: sys.call_tracing(int, ()),
], ids=["function", "constructor", "caller"])
def test_what_is_not_in_the_table_runs_alone(unknown):
    seen = []
    note = trusted(lambda: seen.append(core.is_exclusive()))

    def transaction():
        note()
        unknown()
        note()

    before = core.stats()
    run(transaction)
    after = core.stats()
    assert seen[-2:] == [False, True]
    reasons = Counter(after["exclusive_reasons"]) - Counter(before["exclusive_reasons"])
    assert [count for reason, count in reasons.items() if __file__ in reason] == [1]
    # What other tests have left behind may be finalized meanwhile, alone too, and need no reason.
    assert after["exclusives"] > before["exclusives"]


@needs_threads
def test_the_reason_names_the_function_and_the_place():
    def transaction():
        sys.setswitchinterval(sys.getswitchinterval())

    before = core.stats()["exclusive_reasons"]
    run(transaction)
    after = core.stats()["exclusive_reasons"]
    (reason,) = [reason for reason in after if after[reason] != before.get(reason)]
    assert "getswitchinterval" in reason or "setswitchinterval" in reason
    assert __file__ in reason and "transaction" in reason


@needs_threads
def test_the_reason_names_a_special_method_that_is_called_by_its_name():
    before = core.stats()["exclusive_reasons"]
    run(lambda: "a".__rmod__("%s"))
    after = core.stats()["exclusive_reasons"]
    (reason,) = [reason for reason in after if after[reason] != before.get(reason)]
    assert reason.startswith("call of str.__rmod__:")


@needs_threads
def test_a_step_of_something_else_fails_as_ever():
    for receiver in 5, None, iter([]):
        with pytest.raises(TypeError, match="__anext__"):
            run(lambda receiver=receiver: types.AsyncGeneratorType.__anext__(receiver))


@needs_threads
def test_the_next_transaction_is_not_alone():
    run(lambda: sys.setswitchinterval(sys.getswitchinterval()))
    assert run(is_alone) is False


async def counting():
    yield 1


async def first_of(numbers):
    return await numbers.__anext__()


def result_of(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as e:
        return e.value


KNOWN = {
    "arithmetic": lambda: abs(-1) + max(1, 2) + len("abc") + int("5") + round(2.5),
    "strings": lambda: ",".join(["a", "b"]).split(",")[0].upper().encode().decode(),
    "json": lambda: json_round_trip({"a": [1, {"b": None}]}),
    "regular expressions": lambda: pattern.sub("x", "abc") + str(pattern.match("b")),
    "hashes": lambda: hashlib.sha1(b"abc").hexdigest(),
    "asynchronous generators": lambda: items().__aiter__(),
    "is it an address?": lambda: [tornado.netutil.is_valid_ip(text) for text in ("10.0.0.1", "::1", "10.0.0", "a.b", "\xe9" * 80)],
    "operators by their names": lambda: (Text("%s %(a)s") % {"a": Money(1) + 2 or -Money(3)}, 2 * Text("a"), len(Unordered())),
    "tokens": lambda: list(tokenize.generate_tokens(io.StringIO("a = 1\n").readline)) + list(tokenize.tokenize(io.BytesIO(b"a").readline)),
    "byte orders": lambda: socket.ntohs(socket.htons(1)) + socket.ntohl(socket.htonl(2)),
    "lengths of messages": lambda: socket.CMSG_LEN(4) + socket.CMSG_SPACE(4),
    "time": lambda: time.time() + time.monotonic(),
    "struct": lambda: struct.unpack("<I", struct.pack("<I", 5)),
    "containers": lambda: sorted({1: 2}.items()) + list(enumerate({3})) + [collections.deque([1]).popleft()],
    "iterators": lambda: list(itertools.chain([1], itertools.islice([2, 3], 1))),
    "StringIO": lambda: io.StringIO("abc").read(),
    "math": lambda: math.sqrt(math.floor(4.5)),
    "dates": lambda: datetime.datetime(2020, 1, 2).isoformat(),
    "weeks": lambda: (datetime.date(2020, 1, 2).isocalendar().week, datetime.date(2020, 1, 2).isocalendar()[0]),
    "what the system tells": lambda: (os.uname().nodename, os.statvfs("/").f_bfree, os.times().user),
    "base64": lambda: base64.b64encode(b"abc"),
    "random": lambda: random.random() + random.randrange(10),
    "items by methods": lambda: list(map("abc".__getitem__, [0])) + [b"abc".__getitem__(1), (5,).__getitem__(0), range(3).__getitem__(2)],
    "ends of lines": lambda: io.IncrementalNewlineDecoder(None, True).decode("a\r\nb"),
    "code read": lambda: io.open_code(__file__).readline(),
    "a step of an asynchronous generator": lambda: result_of(first_of(counting())),
    "random numbers of a seed": lambda: random.Random("text").random(),
    "counts of garbage": lambda: (gc.get_count(), gc.get_stats(), gc.get_threshold()),
}

import base64  # noqa: E402
import collections  # noqa: E402
import datetime  # noqa: E402
import decimal  # noqa: E402
import gc  # noqa: E402
import hashlib  # noqa: E402
import io  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402
import tokenize  # noqa: E402
import types  # noqa: E402

import tornado.netutil  # noqa: E402

pattern = re.compile("[bc]")


async def items():
    yield 1


class Money(decimal.Decimal):
    def __add__(self, other):
        return Money(super().__add__(other))

    def __neg__(self):
        return Money(super().__neg__())

    def __bool__(self):
        return super().__bool__()


class Text(str):
    def __mod__(self, values):
        return Text(super().__mod__(values))

    def __rmul__(self, times):
        return Text(super().__rmul__(times))


class Unordered(set):
    def __len__(self):
        return super().__len__()


def json_round_trip(value):
    return json.loads(json.dumps(value)) == value


@needs_threads
@pytest.mark.parametrize("name", KNOWN)
def test_what_web_code_uses_does_not_run_alone(name):
    for _ in range(2):  # code that C calls for the first time runs alone that once
        run(KNOWN[name])
    before = core.stats()["exclusive_reasons"]
    run(KNOWN[name])
    after = core.stats()["exclusive_reasons"]
    assert [reason for reason in after if after[reason] != before.get(reason)] == []


def test_a_bound_method_that_makes_an_object_gets_its_receiver():
    def find():
        found, copied = pattern.finditer, decimal.Context(prec=5).copy
        return [match.start() for match in found("abcb")], copied().prec

    assert run(find) == ([1, 2, 3], 5)


@needs_threads
def test_a_scanner_is_used_by_who_has_made_it_beside_others_and_else_alone():
    lexicon = re.Scanner([(r"[0-9]+", lambda scanner, text: int(text)), (r"[a-z]+", lambda scanner, text: text), (r"\s+", None)])

    def scan():
        return lexicon.scan("12 ab 3 c !"), core.is_exclusive()

    for _ in range(2):  # code that C calls for the first time runs alone that once
        found = run(scan)
    assert found == (([12, "ab", 3, "c"], "!"), False)
    old = pattern.scanner("abcb")
    assert run(lambda: (old.search().start(), core.is_exclusive())) == (1, True)


def draw():
    return random.random()


@pytest.fixture
def by_chance():
    def begin():
        random.seed()
        seeds._seeded = False
        seeds.note()
        _engine.register_unordered(random._inst)

    begin()
    yield
    begin()


def put_back():
    state = random.getstate()
    random.random()
    run_queue()
    random.setstate(state)


def run_queue():
    transaction.TransactionQueue().run()


def run_loop():
    stm.run(asyncio.sleep(0), threads=2)


@pytest.mark.parametrize("run_something", [run_queue, run_loop])
@pytest.mark.parametrize("seed", [
    lambda: random.seed(5), lambda: random.setstate(random.Random(5).getstate()), lambda: random._inst.__init__(5), put_back,
], ids=["seed", "setstate", "anew", "put_back"])
def test_what_is_seeded_between_runs_has_an_order(by_chance, seed, run_something):
    for _ in range(2):
        run(draw)
        random.sample(range(5000), 5000)
        run_something()
        assert meet(tuple, draw, draw) == APART
    seed()
    run_something()
    assert meet(tuple, draw, draw) == CONFLICT


SEEDED_FIRST = """
import asyncio, random

random.seed(5)
numbers = [random.random() for _ in range(200)]
random.seed(5)
pairs = []

def draw():
    first = random.random()
    sum(i * i for i in range(3000))
    pairs.append((first, random.random()))

async def main():
    for _ in range(100):
        asyncio.get_running_loop().call_soon(draw)
    while len(pairs) < 100:
        await asyncio.sleep(0.01)

asyncio.run(main())
print(pairs == list(zip(numbers[::2], numbers[1::2])))
"""


def test_a_program_that_begins_by_seeding_draws_the_numbers_of_a_serial_run(tmp_path):
    (tmp_path / "app.py").write_text(SEEDED_FIRST)
    done = subprocess.run([sys.executable, "-m", "tornado.stm", "-q", "-j", "4", "app.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
