"""Libraries of which little is in C: what that reads, calls and changes."""

import codecs
import collections
import decimal
import functools
import io
import random
import sqlite3
import subprocess
import sys

import pytest
import tornado.web

from beside import needs_release, runs_alone, runs_beside_others
from interpreters import ROOT
from meeting import APART, CONFLICT, meet
from tornado.stm import core, testing
from tornado.stm.program import python_parts

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


def meets_who_changes(read, make, change):
    """Who reads what `make` returns, by C code, conflicts with who changes it, and not with who reads it too, or changes another one."""
    one = make()

    def both():
        return make(), make()

    def read_one(one, other):
        read(one)

    def change_one(one, other):
        change(one)

    def change_other(one, other):
        change(other)

    before = read(one)
    change(one)
    assert read(one) != before
    assert meet(both, read_one, change_one) == CONFLICT
    assert meet(both, read_one, read_one) == meet(both, read_one, change_other) == APART


class Item:
    """What no library knows how to encode."""

    def __init__(self, *parts):
        self.parts = list(parts)


def parts_of(item, *, more=None):
    return item.parts if more is None else [*item.parts, *more]


UNKNOWN = sqlite3.complete_statement
DATA = {"a": [1, 2.5, None, True, "é\n"], "b": ({"c": "d"}, -(2**40))}


# ---- rpds ----------------------------------------------------------------------------------


class Key:
    """Hashed and compared by Python code, which looks at what can be changed."""

    def __init__(self, *parts):
        self.parts = list(parts)

    def __hash__(self):
        return 5

    def __eq__(self, other):
        return self.parts == other.parts


def test_what_rpds_keeps_is_looked_up_beside_others():
    rpds = needs_release("rpds")

    def used(numbers):
        table = rpds.HashTrieMap.convert({"a": 1, ("b", 2): numbers}).insert("c", 3).remove("a")
        names = rpds.HashTrieSet(["x", "y"]).insert("z").discard("y")
        row = rpds.List([1, 2]).push_front(0)
        line = rpds.Queue([1, 2]).enqueue(3).dequeue()
        pile = rpds.Stack([1, 2]).push(3).pop()
        assert table["c"] == 3 and table.get("a") is None and "c" in table and "a" not in names and len(names) == 2
        return table["b", 2], [each for each in row], sorted(name for name in names), line.peek(), pile.peek()

    assert runs_beside_others(used, [7]) == ([7], [0, 1, 2], ["x", "z"], 2, 2)
    shared = rpds.HashTrieMap({"a": 1}), rpds.List(["x", "y"])
    assert runs_beside_others(lambda: (shared[0]["a"], [each for each in shared[1]])) == (1, ["x", "y"])


def test_keys_of_rpds_in_python_are_compared_with_barriers():
    rpds = needs_release("rpds")

    def make():
        key = Key(1)
        return rpds.HashTrieMap({key: "found"}), key, Key(1)

    meets_who_changes(lambda made: made[0].get(made[2]), make, lambda made: made[1].parts.append(2))
    assert meet(lambda: (), lambda: rpds.HashTrieMap([(Key(1), 1)]), lambda: None) == APART


@pytest.mark.parametrize("look", [repr, lambda table: table == table.insert("a", table["a"])])
def test_who_looks_at_all_that_rpds_keeps_looks_into_what_is_in_it(look):
    rpds = needs_release("rpds")
    tables = [rpds.HashTrieMap({"a": [1, [2]], "b": None}), rpds.HashTrieMap({"a": [1, [2]]})]
    assert runs_beside_others(lambda: tables[0] == tables[0].insert("b", None) != tables[1])
    assert runs_beside_others(repr, tables[1]) == "HashTrieMap({'a': [1, [2]]})"
    assert meet(lambda: (tables[0],), look, lambda table: table["a"][1].append(3)) == CONFLICT
    assert meet(lambda: (tables[0],), look, look) == APART


def test_all_of_what_does_not_tell_what_is_in_it_is_looked_at_alone():
    rpds = needs_release("rpds")
    assert runs_alone(repr, rpds.Stack([1]))


def test_an_iterator_of_rpds_that_others_have_made_is_used_alone():
    rpds = needs_release("rpds")
    iterator = iter(rpds.List([1, 2, 3]))
    assert runs_alone(next, iterator)


def test_falcon_reads_headers_and_uris_beside_others():
    needs_release("falcon")
    misc, uri = pytest.importorskip("falcon.cyutil.misc"), pytest.importorskip("falcon.cyutil.uri")
    assert runs_beside_others(lambda: misc.encode_items_to_latin1({"a": "\xe9"})) == [(b"a", b"\xe9")]
    assert runs_beside_others(uri.parse_query_string, "a=1&b=2,3&c=", True, True) == {"a": "1", "b": ["2", "3"], "c": ""}
    assert runs_beside_others(uri.decode, "a%20b+c") == "a b c"
    assert runs_beside_others(lambda: (uri.encode("/ä b"), uri.encode_check_escaped("%20"))) == ("/%C3%A4%20b", "%20")
    assert runs_beside_others(lambda: (uri.encode_value("a/b"), uri.encode_value_check_escaped("%2F"))) == ("a%2Fb", "%2F")
    meets_who_changes(misc.encode_items_to_latin1, lambda: {"a": "b"}, lambda headers: headers.update(c="d"))


def test_jsonschema_validates_beside_others():
    needs_release("rpds")
    jsonschema = pytest.importorskip("jsonschema")
    schema = {"$defs": {"name": {"type": "string", "pattern": "^a"}}, "type": "object", "properties": {"names": {"items": {"$ref": "#/$defs/name"}}}}
    validator = jsonschema.Draft202012Validator(schema)

    def errors(data):
        return [error.message for error in validator.iter_errors(data)], jsonschema.Draft202012Validator(schema).is_valid(data)

    for _ in range(3):  # what it remembers, and where classes are compared for the first time
        core.Transaction(errors, ({"names": ["b"]},)).run()
    assert runs_beside_others(errors, {"names": ["ab", "ac"]}) == ([], True)
    assert runs_beside_others(errors, {"names": ["ab", "b"]}) == (["'b' does not match '^a'"], False)


# ---- websockets ----------------------------------------------------------------------------


@pytest.fixture
def apply_mask():
    needs_release("websockets")
    from websockets.speedups import apply_mask

    return apply_mask


MASKED = bytes(byte ^ mask for byte, mask in zip(b"text" * 5, bytes(range(1, 5)) * 5))


def test_data_of_websockets_is_masked_beside_others(apply_mask):
    data, mask = b"text" * 5, bytes(range(1, 5))
    for as_type in bytes, bytearray, lambda data: memoryview(bytearray(data)), lambda data: memoryview(bytes(data) + b"more")[: len(data)]:
        assert runs_beside_others(apply_mask, as_type(data), as_type(mask)) == MASKED
        assert runs_beside_others(lambda: apply_mask(mask=as_type(mask), data=as_type(data))) == MASKED
    assert runs_beside_others(apply_mask, memoryview(bytearray(b"t_e_x_t_" * 5))[::2], mask) == MASKED


def test_frames_of_websockets_are_read_beside_others(apply_mask):
    from websockets import frames, protocol, streams

    assert frames.apply_mask is apply_mask

    def serialize():
        return frames.Frame(frames.Opcode.TEXT, b"text").serialize(mask=True)

    def receive(data):
        server = protocol.Protocol(protocol.SERVER)
        server.receive_data(data)
        return [event.data for event in server.events_received()]

    assert streams.StreamReader
    assert runs_beside_others(receive, runs_beside_others(serialize)) == [b"text"]


@pytest.mark.parametrize("around", [lambda data: data, memoryview, lambda data: memoryview(data)[::2]])
def test_what_websockets_masks_nobody_changes_meanwhile(apply_mask, around):
    mask = bytes(range(1, 5))
    meets_who_changes(lambda data: apply_mask(around(data), mask), lambda: bytearray(b"text"), lambda data: data.__setitem__(0, 1))
    meets_who_changes(lambda data: apply_mask(b"text", around(data)[:4]), lambda: bytearray(b"12345678"), lambda data: data.__setitem__(0, 1))


TEXT = '{"a": [1, 2.5, null, true, "\\u00e9\\n"], "b": [{"c": "d"}, -1099511627776]}'


# ---- ujson ---------------------------------------------------------------------------------


@pytest.fixture
def ujson():
    return needs_release("ujson")


class WithDict(Item):
    def toDict(self):
        return {"parts": self.parts}


class WithText(Item):
    def __json__(self):
        return str(self.parts)


def test_ujson_encodes_and_decodes_beside_others(ujson):
    text = TEXT.replace(" ", "")
    for dumps, loads in (ujson.dumps, ujson.loads), (ujson.encode, ujson.decode):
        assert runs_beside_others(dumps, DATA) == text
        assert runs_beside_others(lambda: dumps(DATA, sort_keys=True, indent=2)) == dumps(DATA, sort_keys=True, indent=2)
        for data in text, text.encode(), bytearray(text.encode()):
            assert runs_beside_others(loads, data) == {**DATA, "b": list(DATA["b"])}
    assert runs_beside_others(ujson.dumps, [WithDict(1), WithText(2), decimal.Decimal("1.5")]) == '[{"parts":[1]},[2],1.5]'
    for default in parts_of, functools.partial(parts_of, more=[]):
        assert runs_beside_others(lambda: ujson.dumps([Item(3)], default=default)) == "[[3]]"

    def fails():
        with pytest.raises(ujson.JSONDecodeError):
            ujson.loads("[1, }")

    runs_beside_others(fails)


def test_what_ujson_calls_and_nobody_knows_runs_alone(ujson):
    assert runs_alone(lambda: ujson.dumps(["a"], default=UNKNOWN))
    assert runs_alone(lambda: ujson.dumps(["a"], True, False, True, False, 0, True, True, UNKNOWN))
    assert runs_alone(lambda: ujson.dumps(["a"], default=[].append))
    assert runs_beside_others(ujson.dumps, ["a"], True, False, True, False, 0, True, True, parts_of) == '["a"]'
    assert runs_beside_others(lambda: ujson.dumps([Item(1)], True, False, True, False, 0, True, True, parts_of)) == "[[1]]"


@pytest.mark.parametrize("make, change", [
    (lambda: [1, [2]], lambda data: data.append(3)),
    (lambda: [1, [2]], lambda data: data[1].append(3)),
    (lambda: {"a": {"b": [1]}}, lambda data: data["a"].update(b=2)),
    (lambda: (collections.OrderedDict(a=[]),), lambda data: data[0]["a"].append(1)),
    (lambda: [Item(1)], lambda data: data[0].parts.append(2)),
    (lambda: [Item(1)], lambda data: setattr(data[0], "parts", [2])),
    (lambda: [WithDict([1])], lambda data: data[0].parts[0].append(2)),
    (lambda: [WithText(1)], lambda data: data[0].parts.append(2)),
])  # fmt: skip
def test_what_ujson_encodes_nobody_changes_meanwhile(ujson, make, change):
    meets_who_changes(lambda data: ujson.dumps(data, default=parts_of), make, change)


def test_what_ujson_decodes_nobody_changes_meanwhile(ujson):
    meets_who_changes(ujson.loads, lambda: bytearray(b"[1, 2]"), lambda data: data.__setitem__(1, ord("3")))


# ---- Both together ---------------------------------------------------------------------------


class Shelf:
    def __init__(self):
        self.items = {name: Item(1) for name in "abc"}
        self.data = {"x": [1, {"y": [2]}], "t": (1, [3])}
        self.memory = bytearray(b"[1, 2]")


def test_random_programs_of_both_are_serializable(ujson, apply_mask):
    def encode(shelf):
        return ujson.dumps(shelf.items, default=parts_of), ujson.encode(shelf.data)

    def read(shelf):
        return ujson.loads(shelf.memory), apply_mask(shelf.memory, b"1234")

    def write(shelf, n):
        shelf.memory[1] = ord("0") + n

    def change(shelf, n):
        item = shelf.items["abc"[n % 3]]
        item.parts = [*item.parts, n][-3:]
        shelf.data["x"][1]["y"].append(n)

    def change_meanwhile(shelf, n):
        def default(item):
            item.parts.append(n)
            return item.parts

        return ujson.dumps(shelf.items, default=default)

    choice = random.Random(1)
    for seed in range(60):
        n = seed % 7
        possible = (encode,), (read,), (write, n), (change, n), (change_meanwhile, n)
        testing.check_serializable(Shelf, choice.choices(possible, k=10), seed=seed, aborts=0.02)


# ---- Those whose twin in Python is taken ---------------------------------------------------

TAKEN = {
    "wrapt": """
import wrapt
@wrapt.decorator
def twice(wrapped, instance, args, kwargs):
    return 2 * wrapped(*args, **kwargs)
class Some:
    @twice
    def method(self, n):
        return n
def step():
    proxy = wrapt.ObjectProxy([1])
    proxy.append(2)
    return Some().method(2), proxy == [1, 2], wrapt.FunctionWrapper.__init__.__class__.__name__
expected = 4, True, "function"
""",
    "zope.interface": """
import zope.interface, zope.interface.adapter
class IOne(zope.interface.Interface): pass
class ITwo(zope.interface.Interface): pass
@zope.interface.implementer(IOne)
class One: pass
registry = zope.interface.adapter.AdapterRegistry()
registry.register([IOne], ITwo, "", lambda one: "two")
def step():
    return IOne.providedBy(One()), ITwo(One(), None), registry.queryAdapter(One(), ITwo)
expected = True, None, "two"
""",
    "pendulum": """
import pendulum
def step():
    one, other = pendulum.parse("2026-01-31T12:00:00+01:00"), pendulum.datetime(2026, 3, 1, tz="Europe/Paris")
    return one.add(months=1).isoformat(), one.diff(other).in_words(locale="en"), other.week_of_year
expected = "2026-02-28T12:00:00+01:00", "1 month 12 hours", 9
""",
    "whenever": """
import whenever
def step():
    then = whenever.Instant.parse_iso("2026-03-29T00:30:00Z").to_tz("Europe/Paris")
    return then.add(hours=1).format_iso(), str(whenever.Date(2026, 1, 31).add(months=1))
expected = "2026-03-29T03:30:00+02:00[Europe/Paris]", "2026-02-28"
""",
    "wcwidth": """
import wcwidth
def step():
    return wcwidth.wcswidth("caf\u00e9 \u4e2d"), wcwidth.width("a\tb"), list(wcwidth.iter_graphemes("e\u0301x"))
expected = 7, 9, ["e\u0301", "x"]
""",
    "redis": """
import redis, redis.utils
def step():
    return redis.utils.HIREDIS_AVAILABLE, "Hiredis" in redis.connection.DefaultParser.__name__
expected = False, False
""",
}
ASK = """
async def main():
    for _ in range(4):
        await asyncio.sleep(0)
        found = step(), core.is_exclusive()
    print(found == (expected, False) or found)

import asyncio
from tornado.stm import core
asyncio.run(main())
"""


@pytest.mark.parametrize("library", TAKEN)
def test_what_has_a_twin_in_python_runs_beside_others(library, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    (tmp_path / "app.py").write_text(TAKEN[library] + ASK)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_who_asks_for_hiredis_gets_it_but_for_redis():
    finder = python_parts.PythonFinder()
    assert finder.find_spec("hiredis") is None
    ask = compile("finder.find_spec('hiredis')", "utils.py", "eval")
    assert eval(ask, {"finder": finder, "__name__": "application"}) is None
    with pytest.raises(ModuleNotFoundError):
        eval(ask, {"finder": finder, "__name__": "redis.utils"})


@pytest.fixture
def files_of_class(tmp_path, monkeypatch):
    """A class that serves three files, and has room for four versions."""

    class Files(tornado.web.StaticFileHandler):
        MAX_CACHED_VERSIONS = 4

    monkeypatch.setattr(tornado.web.StaticFileHandler, "_static_hashes", {})
    for name in "abc":
        (tmp_path / name).write_text(name)
    return Files, {"static_path": str(tmp_path)}


def test_pages_that_name_the_same_static_file_do_not_meet(files_of_class):
    files, settings = files_of_class

    def name_it():
        return files.make_static_url(settings, "a")

    assert "?v=" in name_it() == runs_beside_others(name_it)
    assert "?v=" not in files.make_static_url(settings, "missing") == files.make_static_url(settings, "missing")
    assert meet(lambda: (), name_it, name_it) == APART


def test_the_version_that_has_not_been_used_for_longest_goes(files_of_class):
    files, settings = files_of_class
    for name in ["a", "b", "a", "c", "a", "d", "b", "e"]:
        files.get_version(settings, name)
    assert [path[-1] for path in files._static_hashes] == ["a", "d", "b", "e"]


# ---- East Asian text, part by part ----

PARTS = ["日", "本語", "\u20ac"]


def in_parts(encoding, errors="replace"):
    encoder = codecs.getincrementalencoder(encoding)(errors)
    encoded = [*map(encoder.encode, PARTS), encoder.encode("", True)]
    text = b"".join(encoded)
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    decoded = [decoder.decode(text[i : i + 1]) for i in range(len(text))]
    state = decoder.getstate()
    decoder.reset()
    decoder.setstate(state)
    return encoded, decoded, decoder.decode(b"", True), encoder.getstate(), decoder.errors


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "big5", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "cp932", "hz"])
def test_east_asian_text_is_coded_part_by_part_beside_others(encoding):
    assert runs_beside_others(in_parts, encoding) == in_parts(encoding)


def test_an_incremental_codec_of_before_is_used_alone():
    decoder = codecs.getincrementaldecoder("gbk")()
    assert decoder.decode(b"\xc4") == ""
    assert runs_alone(lambda: decoder.getstate())
    assert runs_alone(lambda: decoder.decode(b"\xe3\xc4"))
    assert runs_alone(lambda: codecs.getreader("gbk")(io.BytesIO(b"\xc4\xe3")).read())


def test_east_asian_text_is_what_it_is_one_after_the_other():
    """Handlers of errors that the program has are called with the rest of the attempt, and rolled back with it."""

    class Shelf:
        def __init__(self):
            self.text, self.wrong = bytearray("日本".encode("gbk")), wrong
            wrong.clear()

    wrong = []

    def note(error):
        wrong.append(error.start)
        return "?", error.end

    codecs.register_error("noted", note)

    def read(shelf):
        decoder = codecs.getincrementaldecoder("gbk")("noted")
        return decoder.decode(shelf.text), decoder.decode(shelf.text[:3], True), in_parts("gbk"), len(shelf.wrong)

    def write(shelf, n):
        shelf.text[n % len(shelf.text)] = 0xFF if n % 2 else 0xC4

    for seed in range(30):
        choice = random.Random(seed)
        calls = [choice.choice([(read,), (write, seed + n)]) for n in range(8)]
        testing.check_serializable(Shelf, calls, seed=seed, aborts=0.02)
