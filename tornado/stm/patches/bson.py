"""pymongo: its ``bson`` in C calls what options name, and each new ObjectId takes a number of the class."""

import contextlib
import functools
import itertools
import struct
import sys
import time
import types

from .. import core
from ..core import trusted

#: what Python itself knows, and looks up in C
KNOWN_ERRORS = {None, "strict", "ignore", "replace", "backslashreplace", "surrogateescape", "surrogatepass"}


def _is_python(function):
    return type(function.__func__ if type(function) is types.MethodType else function) is types.FunctionType


def _check(options):
    """Whoever has options by which C code may call C code, or fill what is none of ours, runs alone; the rest of them is read."""
    known = sys.modules["bson.codec_options"]
    if type(options) is known.CodecOptions and type(options.type_registry) is known.TypeRegistry:
        registry, document = options.type_registry, options.document_class
        named = [*registry._encoder_map.values(), *registry._decoder_map.values()]
        if registry._fallback_encoder is not None:
            named.append(registry._fallback_encoder)
        simple = document is dict or document is getattr(sys.modules.get("bson.son"), "SON", dict)
        if simple and options.unicode_decode_error_handler in KNOWN_ERRORS and all(map(_is_python, named)):
            return
    core.exclusive("bson with options of its own")


def _checking(function, place):
    if type(function) is types.FunctionType:  # there is none in C
        return function

    @functools.wraps(function)
    def checked(*arguments):
        if len(arguments) > place:
            _check(arguments[place])
        return function(*arguments)

    return checked


def decoding(function):
    """``bson._bson_to_dict`` and ``_decode_all``: with options that call Python code, if any, beside others."""
    return _checking(function, 1)


def encoding(function):
    """``bson._dict_to_bson``, likewise."""
    return _checking(function, 2)


def message(function):
    """``_op_msg`` of ``pymongo._cmessage``, likewise."""
    return _checking(function, 4)


def batch(function):
    """``_batched_op_msg`` of ``pymongo._cmessage``: likewise, without the connection, to which its last argument refers."""
    checked = _checking(function, 4)
    if checked is function:
        return function

    @functools.wraps(function)
    def batched(operation, command, docs, ack, opts, ctx):
        limits = {name: getattr(ctx, name) for name in ("max_bson_size", "max_write_batch_size", "max_message_size", "max_split_size")}
        return checked(operation, command, docs, ack, opts, types.SimpleNamespace(**limits))

    return batched


class _NoLock(contextlib.nullcontext):
    def locked(self):
        return False


#: in the place of the lock of the class's own counter
no_lock = _NoLock()


def numbered(init):
    """``ObjectId.__init__``: a new one has its number from a counter of ours, of which an aborted attempt's are missing.

    The class has one, which each new id would change, alone.
    """
    cls = sys.modules["bson.objectid"].ObjectId
    if not hasattr(cls, "_inc") or not hasattr(cls, "_random"):
        return init
    count, pack = itertools.count(cls._inc), struct.Struct(">I5s").pack
    take = trusted(lambda: next(count))

    @functools.wraps(init)
    def __init__(self, oid=None):
        if oid is None:
            oid = pack(int(time.time()), cls._random()) + (take() & 0xFFFFFF).to_bytes(3)
        init(self, oid)

    return __init__
