"""pymongo: what bson in C reads, calls and makes, and the numbers of ObjectIds."""

import collections
import datetime
import re
import sqlite3
import threading
import types
import uuid

import pytest

from beside import needs_release, runs_alone, runs_beside_others
from meeting import APART, CONFLICT, meet
from tornado.stm import core, testing

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

bson = pytest.importorskip("bson")
if not hasattr(bson, "encode"):
    pytest.skip("another bson", allow_module_level=True)
needs_release("bson")

from bson import code, codec_options, decimal128, int64, min_key, objectid, raw_bson, son, timestamp
from bson import regex as bson_regex
from pymongo import message

CodecOptions, ObjectId, TypeRegistry = codec_options.CodecOptions, objectid.ObjectId, codec_options.TypeRegistry
UNKNOWN = sqlite3.complete_statement
ID = ObjectId("0123456789ab0123456789ab")
DATA = {
    "b": [1.5, "x", None, True, 2**40, b"y"], "_id": ID, "when": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), "in": {"a": (1, 2)},
    "numbers": [int64.Int64(3), decimal128.Decimal128("1.5"), timestamp.Timestamp(1, 2), min_key.MinKey()], "pattern": re.compile("a+"),
    "regex": bson_regex.Regex("b"), "id": bson.Binary.from_uuid(uuid.UUID(int=1)), "code": code.Code("x", {"a": 1}),
    "ref": bson.DBRef("c", ID), "son": son.SON(a=1), "order": collections.OrderedDict(z=1, a={"b": 2}),
}  # fmt: skip
ENCODED = bson.encode(DATA)


class Complex(codec_options.TypeCodec):
    python_type = complex
    bson_type = str

    def transform_python(self, value):
        return str(value)

    def transform_bson(self, value):
        return value.upper()


class InC(codec_options.TypeDecoder):
    bson_type = str
    transform_bson = staticmethod(UNKNOWN)


def options(*codecs, **named):
    return CodecOptions(type_registry=TypeRegistry(codecs, **named))


def test_documents_are_encoded_and_decoded_beside_others():
    assert runs_beside_others(bson.encode, DATA) == ENCODED
    for data in ENCODED, bytearray(ENCODED), memoryview(ENCODED), memoryview(bytearray(ENCODED)):
        assert runs_beside_others(bson.decode, data) == bson.decode(ENCODED)
    assert runs_beside_others(bson.decode_all, ENCODED * 2) == bson.decode_all(ENCODED * 2)
    assert runs_beside_others(bson.decode, ENCODED, CodecOptions(tz_aware=True))["when"] == DATA["when"]
    ordered = runs_beside_others(bson.decode, ENCODED, CodecOptions(document_class=son.SON))
    assert type(ordered) is son.SON and list(ordered)[0] == "_id"


def test_codecs_in_python_are_called_beside_others():
    made = runs_beside_others(lambda: bson.encode({"a": 1j, "b": "x"}, codec_options=options(Complex())))
    assert runs_beside_others(bson.decode, made, options(Complex())) == {"a": "1J", "b": "X"}
    assert bson.decode(runs_beside_others(lambda: bson.encode({"a": 1j}, codec_options=options(fallback_encoder=lambda v: str(v))))) == {"a": "1j"}


def test_options_that_name_what_nobody_knows_run_alone():
    for unknown in UNKNOWN, str, [].append:
        assert runs_alone(lambda: bson.encode({"a": 1}, codec_options=options(fallback_encoder=unknown)))
    assert runs_alone(bson.decode, ENCODED, options(InC()))
    assert runs_alone(bson.decode, ENCODED, CodecOptions(document_class=raw_bson.RawBSONDocument))
    assert runs_alone(bson.decode, ENCODED, CodecOptions(document_class=collections.OrderedDict))
    assert runs_alone(bson.decode, ENCODED, CodecOptions(unicode_decode_error_handler="xmlcharrefreplace"))
    assert runs_alone(bson.encode, {"a": collections.UserDict(b=1)})  # its iterator


def test_what_cannot_be_encoded_or_decoded_is_complained_of_beside_others():
    def fails():
        with pytest.raises(bson.errors.InvalidDocument, match="cannot encode object: <object"):
            bson.encode({"a": [object()]})
        with pytest.raises(bson.errors.InvalidBSON):
            bson.decode(ENCODED[:-1])
        with pytest.raises(TypeError):
            bson.encode(5)
        with pytest.raises(TypeError):
            bson._dict_to_bson({})

    runs_beside_others(fails)


class Connection:
    """What pymongo's contexts of batches refer to, and tell numbers of."""

    max_bson_size = max_split_size = 1 << 24
    max_write_batch_size = 2
    max_message_size = 1 << 25

    def __init__(self):
        self.conn = types.SimpleNamespace(compression_context=None, lock=threading.Lock())


def test_messages_are_made_beside_others():
    made = runs_beside_others(message._op_msg, 0, {"find": "c", "filter": {"_id": ID}}, "db", None, CodecOptions())
    assert made[2:] == message._op_msg(0, {"find": "c", "filter": {"_id": ID}}, "db", None, CodecOptions())[2:]
    assert ENCODED in runs_beside_others(message._op_msg, 0, {"insert": "c", "documents": [DATA]}, "db", None, CodecOptions())[1]
    docs = [DATA, {"a": 1}, {"b": 2}]
    batch = runs_beside_others(message._do_batched_op_msg, "db.c", 0, {"insert": "c"}, docs, CodecOptions(), Connection())
    assert batch[2] == docs[:2] and ENCODED in batch[1]
    assert runs_alone(message._op_msg, 0, {"insert": "c"}, "db", None, options(fallback_encoder=UNKNOWN))
    without_limits = types.SimpleNamespace(conn=Connection().conn)
    with pytest.raises(AttributeError, match="max_bson_size"):
        runs_beside_others(message._do_batched_op_msg, "db.c", 0, {"insert": "c"}, docs, CodecOptions(), without_limits)


@pytest.mark.parametrize("make, change", [
    (lambda: {"a": 1}, lambda data: data.update(a=2)),
    (lambda: {"a": {"b": [1]}}, lambda data: data["a"]["b"].append(2)),
    (lambda: {"a": son.SON(b=[])}, lambda data: data["a"].update(b=2)),
    (lambda: {"a": bson.DBRef("c", ID, b=[])}, lambda data: data["a"].b.append(2)),
])  # fmt: skip
@pytest.mark.parametrize("encode", [bson.encode, lambda data: message._op_msg(0, {"in": data}, "db", None, CodecOptions())])
def test_what_is_encoded_nobody_changes_meanwhile(encode, make, change):
    def both():
        return make(), make()

    def encode_one(one, other):
        encode(one)

    assert meet(both, encode_one, lambda one, other: change(one)) == CONFLICT
    assert meet(both, encode_one, encode_one) == meet(both, encode_one, lambda one, other: change(other)) == APART


def test_what_is_decoded_nobody_changes_meanwhile():
    def make():
        return (bytearray(bson.encode({"a": 1})),)

    def change(data):
        data[7] = 3

    assert meet(make, bson.decode, change) == CONFLICT
    assert meet(make, bson.decode, bson.decode) == APART


def test_new_ids_run_beside_others_and_are_all_different():
    made = runs_beside_others(ObjectId)
    assert str(made) in repr(made) and abs(made.generation_time.timestamp() - datetime.datetime.now().timestamp()) < 600
    assert str(made)[8:18] == str(ObjectId())[8:18]
    assert runs_beside_others(lambda: ObjectId(str(ID))) == ID == runs_beside_others(lambda: ObjectId(ID.binary))
    for wrong in "x", 5, b"":
        with pytest.raises((bson.errors.InvalidId, TypeError)):
            runs_beside_others(ObjectId, wrong)
    assert meet(lambda: ([],), lambda seen: ObjectId(), lambda seen: ObjectId()) == APART
    ids = []
    core.inject_aborts(0.02, 3)
    try:
        threads = [threading.Thread(target=lambda: ids.extend(core.Transaction(ObjectId, ()).run() for _ in range(300))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        core.inject_aborts(0, 0)
    assert len(set(ids)) == 600


def store(data, key, value):
    data[key] = value
    return bson.encode(data)


def copy(data, source, target):
    data[target] = bson.decode(bson.encode({"value": data[source]}))["value"]
    return data[target]


def move(data, source, target):
    data[target] = [data[source], data.pop(target)]
    return message._op_msg(0, data, "db", None, CodecOptions())[2:]


def test_what_transactions_encode_and_decode_is_what_one_after_the_other_does():
    calls = [(store, "a", 1), (copy, "b", "a"), (move, "a", "b"), (store, "b", ID), (copy, "a", "b"), (store, "c", {"x": [DATA]}), (copy, "c", "a")]
    testing.check_serializable(lambda: {"a": [1], "b": {"c": 2}, "c": ID}, calls * 2, runs=30)
