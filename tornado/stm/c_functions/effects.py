"""What C code does to Python objects: the tables of types and of callables.

The engine cannot look into C functions.  What is not declared here runs exclusively (alone, never aborted), so a missing
line costs speed, and only a wrong line costs correctness.  One line an entry: the dotted name, then the effect, then, where
it may surprise, why nothing that a transaction can change is read or changed without being opened.
``Type.*`` stands for all methods of a type; a later line overrides an earlier one.

Kinds of types
    INERT      has no state that changes          INSTANCE   attributes only       LIST DICT ODICT SET DEQUE BYTEARRAY
    FIELDS     as INSTANCE, over a base in C that compares and prints slots, with a metaclass in C: Structs of msgspec
    TUPLE      inert, with objects inside          GENERATOR  a suspended frame     ITERATOR   its struct is its state
    RECORD     the same, whatever it refers to     PERSISTENT   a container that never changes: what its ``__reduce__`` tells
    MODULE CLASS FUNCTION METHOD CONTEXT ARRAY     PROXY BUFFER   what the mapping proxy or memoryview is around
    REFERENCE  a weak one: it is compared by what it refers to     SUPER    attributes of the object that it is for
    STRUCT COPIED STATED   C state that can be put back: a copy of the structure; what the method ``copy`` returns;
                   by ``__getstate__`` and ``__setstate__``
    STREAM     inert, but that lines are taken from it: by who has not opened it, exclusively
    LOCAL      attributes of which each thread has its own
    FUTURE     asyncio's futures and tasks, those of the engine
    ELEMENT    elements of trees of XML, in C: their structure is copied (`trees`)
    TRACEBACK  inert, but for what comes next
    FRAME      changes with the generator whose it is, if that is suspended
    FRAME_LOCALS   the variables of such a frame, as a mapping
    IRREVERSIBLE   C state that cannot be put back and that its methods alone change: who does is irrevocable
    FORWARD    a container in C whose changes cannot be put back, and call nothing: as IRREVERSIBLE
    NDARRAY    numpy's arrays: read freely; who has not made one changes it exclusively
    NUMBER     numpy's scalars: inert, but their operators read all of the other operand
    ENDPOINT   one end of a connection, or an image, in C, which calls nothing but Python code: as IRREVERSIBLE
    MEMO       a descriptor that keeps what its function returns: ``wrapped`` in the instance's dict ``_cache``, ``func`` in the instance
    DATABASE   what of ``sqlite3`` twins use (`input_output.databases`)
    OPAQUE     C state that cannot be put back

Effects of calls (the receiver of a method counts as the first argument)
    PURE         reads and changes nothing that a transaction may change
    READS        reads the arguments, one level deep
    DEEP         reads the arguments and all that they contain (compares, encodes)
    PRINTS       the same, but what iterators would yield
    INTERPOLATES the same, and what the second argument returns for keys that a text, the first one, names
    LOOKS_UP     the same as DEEP, and looks items up in the arguments, which may make what they miss
    ITERATES     takes items from the arguments
    GETS_KEY GETS_ITEM PUTS_KEY DELETES_KEY      the first argument at the key that is the second; GETS_ITEM by subscription
    MUTATES      changes the first argument in any way, takes items from the others
    MUTATES_DEEP the same, and reads all that the arguments contain
    MUTATES_SECOND   changes the second argument, reads those behind it
    LIST_... SET_CHANGE DEQUE_...      changes that have a cheaper undo than a copy
    GETS_ATTR SETS_ATTR DELETES_ATTR   the first argument's attribute that the second names
    BINDS        is the ``__get__`` of a type in C: of a slot, it reads the second argument's attribute
    WRAPS        makes a function of others: copies what they say of themselves; of a partial, what that adds
    BUILDS_CLASS calls what the arguments, bases and a metaclass, have for that
    GETS_DICT ATTRIBUTES   the first argument's ``__dict__``; all its attributes and what it contains; or as GETS_LOCALS
    REDUCES      tells what the first argument is made of, by a ``__reduce__`` that may look whether there is a dict
    REMAKES      makes another object like the first argument, a Struct: reads its fields, calls what its class was made with
    GETS_LOCALS  the variables of the function that calls
    RAISES       sets what raising sets in the first argument, an exception
    RELEASES     releases a memoryview
    RESUMES      continues a generator or coroutine
    ADVANCES     takes the next item of an iterator
    CALLS_BACK   reads the arguments, and calls those that can be called
    COMPILES     compiles the first argument; free of effects if that is text
    CALLED_LATER  keeps the second argument, to call it at any time
    CALLS_PARTS  reads the arguments deeply, and calls what the called instance was made with
    CONVERTS     makes objects of what the arguments and all that they refer to contain, attributes too; calls what its
                 converter, the first argument of a method or the called instance, was made with; gives attributes to named arguments
                 that are new; a converter of an OPAQUE type is used as by USES
    PARTIAL GETS_ITEMS GETS_ATTRS CALLS_METHOD     what functools.partial and the getters and callers of operator do
    CACHED       what functools.lru_cache does
    RUNS_CONTEXT SETS_CONTEXT          enters a contextvars.Context; sets a variable in the current one
    CREATES      makes an object of an OPAQUE type, which is this transaction's own until the end of it; reads all that is in the
                 arguments, asks instances for attributes and reads the memory of these
    DERIVES      the same of the first argument; may change the others
    COMPUTES     the same as DEEP, and changes the array that is named ``out``; an array that it makes is this transaction's own; changes
                 the first argument if that is an ENDPOINT
    COMPUTES_INTO  the same, and changes arrays that are given without a name behind the other arguments
    DISPATCHES   calls Python functions, and what the attribute ``_implementation`` of the called instance is
    OPAQUE       uses a C object in a way that cannot be put back: free for one's own, else exclusive
    USES         reads or changes the C state of the first argument, takes items from the others
    FILLS        the same, and changes the second argument
    SEEDS        the same, of a generator of random numbers whose order now matters
    REFERS       is a weak reference: what it refers to lives until the attempt is over
    IRREVOCABLE  an effect outside that touches no shared object
    EXCLUSIVE    anything else (the default)

Functions that have a *twin*, a transactional stand-in, are in `activation.TWINS`.
"""

import _hashlib  # noqa: F401, what it has is declared
import _string
import array
import builtins
import codecs
import contextlib
import contextvars
import datetime
import decimal
import encodings.cp437
import functools
import gc
import importlib
import io
import os
import random
import re
import sys
import types
import zlib
from collections import OrderedDict, deque, namedtuple

from .. import _engine, placement
from . import seeds

TYPES = """
    builtins.int INERT
    builtins.float INERT
    builtins.complex INERT
    builtins.bool INERT
    builtins.str INERT
    builtins.bytes INERT
    builtins.range INERT
    builtins.slice RECORD
    types.NoneType INERT
    types.EllipsisType INERT
    types.NotImplementedType INERT
    types.CodeType INERT
    types.BuiltinFunctionType INERT
    types.MethodDescriptorType INERT
    types.WrapperDescriptorType INERT
    types.MethodWrapperType INERT
    types.ClassMethodDescriptorType INERT
    types.GetSetDescriptorType INERT
    types.MemberDescriptorType INERT
    types.MappingProxyType PROXY
    types.GenericAlias RECORD
    types.UnionType RECORD
    typing.Generic INERT
    typing.TypeVar INERT
    typing.ParamSpec INERT
    typing.TypeVarTuple INERT
    typing.TypeAliasType INERT
    types.TracebackType TRACEBACK
    types.FrameType FRAME
    types.CellType UNKNOWN
    types.SimpleNamespace INSTANCE
    ast.AST INSTANCE
    tornado.stm._engine.Queue INSTANCE
    tornado.stm._engine.Future FUTURE
    tornado.stm._engine.Task FUTURE
    tornado.stm._engine.FutureIter INERT    # its state is the future's
    builtins.object INERT
    builtins.property FUNCTION
    builtins.staticmethod FUNCTION
    builtins.classmethod FUNCTION
    builtins.super SUPER
    builtins.tuple TUPLE
    builtins.frozenset TUPLE
    builtins.memoryview BUFFER
    builtins.list LIST
    builtins.dict DICT
    collections.defaultdict DICT
    collections.OrderedDict ODICT
    builtins.set SET
    collections.deque DEQUE
    builtins.bytearray BYTEARRAY
    builtins.BaseException INSTANCE
    builtins.type CLASS
    types.ModuleType MODULE
    types.FunctionType FUNCTION
    types.MethodType METHOD
    functools.partial METHOD
    functools._PlaceholderType INERT
    functools._lru_cache_wrapper METHOD
    operator.attrgetter METHOD
    operator.itemgetter METHOD
    operator.methodcaller METHOD
    types.GeneratorType GENERATOR
    types.CoroutineType GENERATOR
    types.AsyncGeneratorType GENERATOR
    weakref.ReferenceType REFERENCE
    weakref.ProxyType UNKNOWN
    re.Pattern INERT
    re.Match PROXY
    datetime.date INERT
    datetime.time INERT
    datetime.datetime INERT
    datetime.timedelta INERT
    datetime.timezone INERT
    datetime.tzinfo INERT
    decimal.Decimal INERT
    decimal.Context STRUCT
    struct.Struct INERT
    time.struct_time TUPLE
    os.stat_result TUPLE
    os.statvfs_result TUPLE
    os.terminal_size TUPLE
    os.times_result TUPLE
    os.uname_result TUPLE
    os.DirEntry OPAQUE
    zlib._ZlibDecompressor OPAQUE
    contextvars.ContextVar RECORD
    contextvars.Token CONTEXT
    contextvars.Context CONTEXT
    builtins.enumerate ITERATOR
    builtins.zip ITERATOR
    builtins.map ITERATOR
    builtins.filter ITERATOR
    builtins.reversed ITERATOR
    itertools.chain ITERATOR
    itertools.islice ITERATOR
    itertools.cycle ITERATOR
    itertools.repeat ITERATOR
    itertools.count ITERATOR
    itertools.takewhile ITERATOR
    itertools.dropwhile ITERATOR
    itertools.starmap ITERATOR
    itertools.accumulate ITERATOR
    itertools.product ITERATOR
    itertools.permutations ITERATOR
    itertools.combinations ITERATOR
    itertools.combinations_with_replacement ITERATOR
    itertools.groupby ITERATOR
    itertools._grouper ITERATOR
    itertools._tee ITERATOR
    itertools._tee_dataobject ITERATOR
    itertools.zip_longest ITERATOR
    itertools.pairwise ITERATOR
    itertools.filterfalse ITERATOR
    itertools.compress ITERATOR
    itertools.batched ITERATOR
    io.StringIO STATED
    io.BytesIO STATED
    _csv.Reader ITERATOR
    _csv.Writer STRUCT
    _csv.Dialect INERT
    zoneinfo.ZoneInfo INERT
    uuid.SafeUUID INERT
    array.array ARRAY
    _thread.lock INERT
    _thread.RLock INERT
    _thread._local LOCAL
    _thread._ThreadHandle INERT    # it changes when its thread begins and ends; in transactions, by `patches.threads` alone
    _socket.socket INERT
    _ssl._SSLContext INERT
    _ssl._SSLSocket OPAQUE
    _ssl.MemoryBIO OPAQUE
    select.epoll INERT
    json.encoder.c_make_encoder INERT
    json.decoder.scanner.c_make_scanner INERT
    _io._IOBase INSTANCE
    _io._RawIOBase INSTANCE
    _io._BufferedIOBase INSTANCE
    _io._TextIOBase INSTANCE
    _io.TextIOWrapper STREAM
    _io.IncrementalNewlineDecoder OPAQUE
    _tokenize.TokenizerIter OPAQUE
    _io.BufferedWriter STREAM
    _io.BufferedReader OPAQUE
    _random.Random STRUCT
    _hashlib.HASH COPIED
    _hashlib.HASHXOF COPIED
    _hashlib.HMAC COPIED
    _blake2.blake2b COPIED
    _blake2.blake2s COPIED
    _md5.MD5Type COPIED
    _sha1.SHA1Type COPIED
    _sha2.SHA224Type COPIED
    _sha2.SHA256Type COPIED
    _sha2.SHA384Type COPIED
    _sha2.SHA512Type COPIED
    _sha3.sha3_224 COPIED
    _sha3.sha3_256 COPIED
    _sha3.sha3_384 COPIED
    _sha3.sha3_512 COPIED
    _sha3.shake_128 COPIED
    _sha3.shake_256 COPIED
"""



async def _async_generator():
    yield


async def _coroutine():
    pass


def _awaitables():
    """Examples of the awaitables of asynchronous generators, and of the iterator of a coroutine."""
    generator, coroutine = _async_generator(), _coroutine()
    examples = [generator.asend(None), generator.athrow(GeneratorExit), anext(generator, None), coroutine.__await__()]
    for example in examples:
        example.close()
    return examples


_AWAITABLES = _awaitables()

#: made among variables of its own: those of the program get no decimal context, which all its callbacks would share
_LOCAL_DECIMALS = contextvars.Context().run(decimal.localcontext)


class _Sequence:
    def __getitem__(self, i):
        raise IndexError


#: types that have no public name
HIDDEN_TYPES = [
    (iter([]), "ITERATOR"),
    (iter(()), "ITERATOR"),
    (iter(""), "ITERATOR"),
    (iter("é"), "ITERATOR"),
    (iter(b""), "ITERATOR"),
    (iter(bytearray()), "ITERATOR"),
    (iter(range(1)), "ITERATOR"),
    (iter({}), "ITERATOR"),
    (iter({}.items()), "ITERATOR"),
    (iter({}.values()), "ITERATOR"),
    (reversed({}), "ITERATOR"),
    (reversed({}.items()), "ITERATOR"),
    (reversed({}.values()), "ITERATOR"),
    ({}.keys(), "ITERATOR"),
    ({}.items(), "ITERATOR"),
    ({}.values(), "ITERATOR"),
    (iter(set()), "ITERATOR"),
    (reversed([]), "ITERATOR"),
    (iter(int, 0), "ITERATOR"),
    (iter(range(2**70)), "ITERATOR"),
    (iter(memoryview(b"")), "ITERATOR"),
    (iter(array.array("b")), "ITERATOR"),
    (iter(deque()), "ITERATOR"),
    (reversed(deque()), "ITERATOR"),
    (iter(OrderedDict()), "ITERATOR"),
    (OrderedDict().keys(), "ITERATOR"),
    (OrderedDict().values(), "ITERATOR"),
    (OrderedDict().items(), "ITERATOR"),
    (iter(_Sequence()), "ITERATOR"),
    (iter(contextvars.Context()), "ITERATOR"),
    (contextvars.Context().values(), "ITERATOR"),
    (contextvars.Context().items(), "ITERATOR"),
    (_string.formatter_parser(""), "ITERATOR"),
    (namedtuple("Example", "field").field, "INERT"),
    (datetime.date.min.isocalendar(), "TUPLE"),
    (_string.formatter_field_name_split("")[1], "ITERATOR"),
    (functools.cmp_to_key(len), "INERT"),
    (codecs.charmap_build(encodings.cp437.decoding_table), "INERT"),
    (_LOCAL_DECIMALS, "INERT"),
    (sys.version_info, "TUPLE"),
    (sys.flags, "TUPLE"),
    (sys.float_info, "TUPLE"),
    (sys.int_info, "TUPLE"),
    (sys.hash_info, "TUPLE"),
    (sys.thread_info, "TUPLE"),
    (io.BytesIO().getbuffer().obj, "PROXY"),
    (re.compile("").scanner(""), "OPAQUE"),
    (zlib.compressobj(), "COPIED"),
    (zlib.decompressobj(), "COPIED"),
    *((awaitable, "ITERATOR") for awaitable in _AWAITABLES),
]

CALLS = """
    builtins.str.* DEEP
    builtins.str.__getitem__ GETS_ITEM    # and of other types, whose wrapper is the same
    builtins.str.join ITERATES
    builtins.str.translate LOOKS_UP
    builtins.bytes.* DEEP
    builtins.int.* PURE
    builtins.int.from_bytes ITERATES
    builtins.float.* PURE
    builtins.complex.* PURE
    builtins.range.* PURE
    builtins.slice.* PURE
    builtins.tuple.* DEEP
    builtins.frozenset.* ITERATES
    builtins.memoryview.* READS
    builtins.memoryview.release RELEASES
    builtins.memoryview.__exit__ RELEASES
    builtins.property.* WRAPS    # they make another property
    types.MappingProxyType.* PURE    # views; what these show is opened when somebody looks
    types.MappingProxyType.get GETS_KEY
    types.MappingProxyType.copy READS
    types.MappingProxyType.keys PURE
    types.MappingProxyType.__reversed__ ITERATES
    types.GenericAlias.* PURE
    types.CodeType.* PURE

    builtins.list.append LIST_APPEND
    builtins.list.extend LIST_EXTEND
    builtins.list.pop LIST_POP
    builtins.list.insert MUTATES
    builtins.list.remove MUTATES_DEEP
    builtins.list.clear MUTATES
    builtins.list.reverse MUTATES
    builtins.list.copy READS
    builtins.list.count DEEP
    builtins.list.index DEEP
    builtins.list.__reversed__ ITERATES
    builtins.list.__getitem__ GETS_ITEM
    builtins.list.__setitem__ PUTS_KEY
    builtins.list.__delitem__ DELETES_KEY
    builtins.list.__class_getitem__ PURE

    builtins.dict.get GETS_KEY
    builtins.dict.__getitem__ GETS_ITEM
    builtins.dict.__contains__ GETS_KEY
    builtins.dict.__setitem__ PUTS_KEY
    builtins.dict.__delitem__ DELETES_KEY
    builtins.dict.setdefault PUTS_KEY
    builtins.dict.pop DELETES_KEY
    builtins.dict.popitem MUTATES
    builtins.dict.clear MUTATES
    builtins.dict.copy READS
    builtins.dict.keys PURE    # a view; what it shows is opened when somebody looks
    builtins.dict.values PURE
    builtins.dict.items PURE
    builtins.dict.fromkeys ITERATES
    collections.OrderedDict.fromkeys ITERATES
    builtins.dict.__reversed__ ITERATES
    builtins.dict.__class_getitem__ PURE
    collections.defaultdict.copy READS
    collections.OrderedDict.move_to_end MUTATES
    collections.OrderedDict.popitem MUTATES
    collections.OrderedDict.pop DELETES_KEY
    collections.OrderedDict.setdefault PUTS_KEY
    collections.OrderedDict.clear MUTATES
    collections.OrderedDict.copy READS
    collections.OrderedDict.keys READS
    collections.OrderedDict.values READS
    collections.OrderedDict.items READS
    collections.OrderedDict.__reversed__ READS

    builtins.set.add SET_CHANGE
    builtins.set.discard SET_CHANGE
    builtins.set.remove SET_CHANGE
    builtins.set.__contains__ GETS_KEY
    builtins.set.pop MUTATES
    builtins.set.clear MUTATES
    builtins.set.update MUTATES
    builtins.set.difference_update MUTATES
    builtins.set.intersection_update MUTATES
    builtins.set.symmetric_difference_update MUTATES
    builtins.set.copy READS
    builtins.set.union ITERATES
    builtins.set.intersection ITERATES
    builtins.set.difference ITERATES
    builtins.set.symmetric_difference ITERATES
    builtins.set.isdisjoint ITERATES
    builtins.set.issubset ITERATES
    builtins.set.issuperset ITERATES

    collections.deque.append DEQUE_APPEND
    collections.deque.appendleft DEQUE_APPENDLEFT
    collections.deque.pop DEQUE_POP
    collections.deque.popleft DEQUE_POPLEFT
    collections.deque.extend MUTATES
    collections.deque.extendleft MUTATES
    collections.deque.insert MUTATES
    collections.deque.remove DEQUE_REMOVE
    collections.deque.clear MUTATES
    collections.deque.reverse MUTATES
    collections.deque.rotate MUTATES
    collections.deque.copy READS
    collections.deque.count DEEP
    collections.deque.index DEEP
    collections.deque.__reversed__ ITERATES
    collections.deque.__copy__ READS
    collections.deque.__class_getitem__ PURE
    collections.defaultdict.__copy__ READS
    collections.OrderedDict.__class_getitem__ PURE

    builtins.bytearray.* READS
    builtins.bytearray.append MUTATES
    builtins.bytearray.extend MUTATES
    builtins.bytearray.insert MUTATES
    builtins.bytearray.pop MUTATES
    builtins.bytearray.remove MUTATES
    builtins.bytearray.reverse MUTATES
    builtins.bytearray.clear MUTATES
    builtins.bytearray.resize MUTATES
    builtins.bytearray.startswith DEEP
    builtins.bytearray.endswith DEEP

    array.array.* READS
    array.array.append MUTATES
    array.array.byteswap MUTATES
    array.array.clear MUTATES
    array.array.extend MUTATES
    array.array.frombytes MUTATES
    array.array.fromfile EXCLUSIVE
    array.array.fromlist MUTATES
    array.array.fromunicode MUTATES
    array.array.insert MUTATES
    array.array.pop MUTATES
    array.array.remove MUTATES
    array.array.reverse MUTATES
    array.array.tofile EXCLUSIVE
    array.array.buffer_info EXCLUSIVE

    builtins.abs PURE
    builtins.ascii PRINTS
    builtins.bin PURE
    builtins.callable PURE    # says its class
    builtins.compile COMPILES
    builtins.chr PURE
    builtins.delattr DELETES_ATTR
    builtins.dir ATTRIBUTES
    builtins.vars GETS_DICT
    builtins.locals GETS_LOCALS
    builtins.divmod DEEP
    builtins.format PRINTS
    builtins.getattr GETS_ATTR
    builtins.globals PURE    # the dict; who looks into it opens it
    builtins.hasattr GETS_ATTR
    builtins.hash PURE    # of what does not change, or by a method in Python
    builtins.hex PURE
    builtins.id PURE    # an address, of which a program may expect nothing
    builtins.isinstance PURE    # classes are changed exclusively; an abstract one asks _abc_subclasscheck
    builtins.issubclass PURE    # the same
    builtins.iter ITERATES
    builtins.aiter ITERATES
    builtins.anext ADVANCES
    builtins.len READS
    builtins.next ADVANCES
    builtins.oct PURE
    builtins.ord READS
    builtins.pow DEEP
    builtins.repr PRINTS
    builtins.round PURE
    builtins.setattr SETS_ATTR
    builtins.__build_class__ BUILDS_CLASS    # calls code with barriers, and what makes the class (class.c)

    builtins.int DEEP
    builtins.float DEEP
    builtins.complex PURE
    builtins.bool READS
    builtins.str PRINTS
    builtins.bytes ITERATES
    builtins.bytearray ITERATES
    builtins.memoryview READS
    builtins.tuple ITERATES
    builtins.list ITERATES
    builtins.set ITERATES
    builtins.frozenset ITERATES
    builtins.object PURE
    builtins.type PURE    # class.c opens the bases
    builtins.range PURE
    builtins.slice PURE
    builtins.super PURE    # classes are changed exclusively
    builtins.property WRAPS
    builtins.staticmethod WRAPS
    builtins.classmethod WRAPS
    builtins.enumerate ITERATES
    builtins.zip ITERATES
    builtins.map ITERATES
    builtins.filter ITERATES
    builtins.reversed ITERATES
    types.MethodType PURE
    types.SimpleNamespace DEEP    # it may be given a mapping
    types.SimpleNamespace.__replace__ ATTRIBUTES
    types.MappingProxyType PURE
    types.GenericAlias PURE
    collections.deque ITERATES
    collections._tuplegetter PURE
    array.array ITERATES
    functools.partial WRAPS    # keeps its arguments, and looks at them when it is called
    functools._lru_cache_wrapper PURE
    itertools.chain ITERATES
    itertools.chain.from_iterable ITERATES
    itertools.islice ITERATES
    itertools.repeat PURE
    itertools.takewhile ITERATES
    itertools.dropwhile ITERATES
    itertools.starmap ITERATES
    itertools.accumulate ITERATES
    itertools.combinations ITERATES
    itertools.combinations_with_replacement ITERATES
    itertools.cycle ITERATES
    itertools.groupby ITERATES
    itertools.permutations ITERATES
    itertools.product ITERATES
    itertools.tee ITERATES
    itertools._tee.__copy__ ADVANCES
    itertools.zip_longest ITERATES
    itertools.pairwise ITERATES
    itertools.filterfalse ITERATES
    itertools.compress ITERATES
    itertools.batched ITERATES
    itertools.count PURE
    builtins.list.__iter__ ITERATES
    builtins.enumerate.__next__ ADVANCES

    types.GeneratorType.send RESUMES
    types.GeneratorType.throw RESUMES
    types.GeneratorType.close RESUMES
    types.CoroutineType.send RESUMES
    types.CoroutineType.throw RESUMES
    types.CoroutineType.close RESUMES
    types.CoroutineType.__await__ READS    # as of other types, whose wrapper is the same
    types.AsyncGeneratorType.__aiter__ READS    # likewise
    types.AsyncGeneratorType.asend RESUMES
    types.AsyncGeneratorType.__anext__ RESUMES
    types.AsyncGeneratorType.athrow RESUMES
    types.AsyncGeneratorType.aclose RESUMES

    builtins.BaseException.with_traceback RAISES
    builtins.BaseExceptionGroup.derive DEEP    # makes another one, which see
    builtins.BaseExceptionGroup.__class_getitem__ PURE
    builtins.BaseException.__reduce__ REDUCES    # its dict is in what it returns

    builtins.object.__setattr__ SETS_ATTR
    builtins.object.__delattr__ DELETES_ATTR
    builtins.object.__getattribute__ GETS_ATTR
    builtins.object.__repr__ PRINTS
    builtins.object.__str__ PRINTS
    builtins.object.__eq__ DEEP
    builtins.object.__ne__ DEEP
    builtins.object.__lt__ DEEP
    builtins.object.__le__ DEEP
    builtins.object.__gt__ DEEP
    builtins.object.__ge__ DEEP
    builtins.object.__hash__ PURE
    builtins.object.__init_subclass__ PURE
    builtins.object.__format__ PRINTS
    builtins.object.__reduce_ex__ REDUCES
    builtins.object.__reduce__ ATTRIBUTES
    builtins.object.__getstate__ ATTRIBUTES
    builtins.object.__dir__ ATTRIBUTES
    builtins.type.__dir__ PURE
    builtins.object.__sizeof__ PURE    # of the structure, which keeps its size
    builtins.object.__subclasshook__ PURE
    builtins.type.__prepare__ PURE
    builtins.set.__class_getitem__ PURE
    builtins.set.__reduce__ ATTRIBUTES    # attributes of a subclass, as below
    builtins.frozenset.__reduce__ ATTRIBUTES
    builtins.bytearray.__reduce__ ATTRIBUTES
    builtins.bytearray.__reduce_ex__ ATTRIBUTES
    array.array.__reduce_ex__ ATTRIBUTES
    builtins.enumerate.__class_getitem__ PURE
    builtins.reversed.__length_hint__ READS
    itertools.repeat.__length_hint__ READS
    itertools.chain.__class_getitem__ PURE
    collections.deque.__reduce__ ATTRIBUTES
    collections.defaultdict.__reduce__ READS
    collections.defaultdict.__class_getitem__ PURE
    collections.OrderedDict.__reduce__ ATTRIBUTES
    functools.partial.__reduce__ REDUCES
    functools.partial.__class_getitem__ PURE
    functools._lru_cache_wrapper.__copy__ PURE
    functools._lru_cache_wrapper.__deepcopy__ PURE
    functools._lru_cache_wrapper.__reduce__ PURE    # its name
    operator.attrgetter.__reduce__ PURE
    operator.itemgetter.__reduce__ PURE
    operator.methodcaller.__reduce__ PURE
    builtins.type.mro PURE    # classes are changed exclusively
    builtins.type.__instancecheck__ PURE    # as isinstance
    builtins.type.__subclasscheck__ PURE    # as issubclass
    builtins.list.__len__ READS
    builtins.dict.__len__ READS
    builtins.list.__contains__ DEEP
    builtins.dict.__or__ READS
    builtins.dict.__ior__ MUTATES_DEEP
    builtins.list.__iter__ ITERATES
    builtins.list.__add__ READS
    builtins.list.__mul__ READS
    builtins.list.__iadd__ MUTATES
    builtins.set.__or__ READS
    builtins.set.__and__ READS
    builtins.set.__sub__ READS
    builtins.set.__xor__ READS
    builtins.set.__ior__ MUTATES_DEEP    # the wrapper is the same
    builtins.set.__iand__ MUTATES
    builtins.set.__isub__ MUTATES
    builtins.set.__ixor__ MUTATES
    types.FunctionType.__get__ BINDS
    builtins.str.__mod__ INTERPOLATES    # of numbers and others, too: operators by their names, above all super's
    builtins.int.__add__ DEEP
    builtins.int.__radd__ DEEP
    builtins.int.__rsub__ DEEP
    builtins.int.__mul__ DEEP
    builtins.int.__rmul__ DEEP
    builtins.int.__truediv__ DEEP
    builtins.int.__rtruediv__ DEEP
    builtins.int.__floordiv__ DEEP
    builtins.int.__rfloordiv__ DEEP
    builtins.int.__divmod__ DEEP
    builtins.int.__rdivmod__ DEEP
    builtins.int.__pow__ DEEP
    builtins.int.__rpow__ DEEP
    builtins.int.__neg__ DEEP
    builtins.int.__pos__ DEEP
    builtins.int.__abs__ DEEP
    builtins.int.__bool__ DEEP
    builtins.int.__invert__ DEEP
    builtins.int.__lshift__ DEEP
    builtins.int.__rlshift__ DEEP
    builtins.int.__rshift__ DEEP
    builtins.int.__rrshift__ DEEP
    builtins.int.__rand__ DEEP
    builtins.int.__ror__ DEEP
    builtins.int.__rxor__ DEEP
    builtins.int.__int__ DEEP
    builtins.int.__float__ DEEP
    builtins.int.__index__ DEEP
    builtins.list.__rmul__ READS
    builtins.set.__len__ READS

    weakref.ref CALLED_LATER
    weakref.proxy CALLED_LATER    # whoever uses it is exclusive
    weakref.getweakrefcount EXCLUSIVE    # of all transactions
    weakref._remove_dead_weakref DELETES_KEY
    contextvars.copy_context SETS_CONTEXT
    contextvars.Context PURE
    contextvars.Context.run RUNS_CONTEXT
    contextvars.Context.copy READS
    contextvars.Context.get READS
    contextvars.Context.keys READS
    contextvars.Context.values READS
    contextvars.Context.items READS
    contextvars.Token.__enter__ PURE
    contextvars.Token.__exit__ SETS_CONTEXT
    types.CodeType.co_positions CREATES
    types.CodeType.co_lines CREATES
    contextvars.ContextVar PURE
    contextvars.ContextVar.get PURE    # in the current context, which its thread has opened, or has for itself
    contextvars.ContextVar.set SETS_CONTEXT
    contextvars.ContextVar.reset SETS_CONTEXT

    tornado.stm._engine.* PURE
    tornado.stm._engine.Queue.add PURE
    tornado.stm._engine.Future PURE    # they have the barriers themselves
    tornado.stm._engine.Future.* PURE
    tornado.stm._engine.Task PURE
    tornado.stm._engine.Task.* PURE
    tornado.stm._engine.FutureIter.* PURE
    _asyncio.get_running_loop PURE
    _asyncio._get_running_loop PURE
    _asyncio.get_event_loop PURE
    _asyncio.current_task PURE    # of the thread; an abort leaves none
    _asyncio._enter_task PURE    # the same
    _asyncio._leave_task PURE
    _asyncio._swap_current_task PURE

    time.time PURE
    time.time_ns PURE
    time.monotonic PURE
    time.monotonic_ns PURE
    time.perf_counter PURE
    time.perf_counter_ns PURE
    time.process_time PURE
    time.gmtime PURE
    time.localtime PURE    # the time zone is changed exclusively (tzset, putenv)
    time.mktime PURE
    time.strftime PURE
    time.strptime PURE    # Python code, with barriers
    time.asctime PURE
    time.ctime PURE
    time.get_clock_info PURE
    time.clock_getres PURE
    time.clock_gettime PURE
    time.clock_gettime_ns PURE
    time.process_time_ns PURE
    time.struct_time ITERATES
    datetime.date.* PURE
    datetime.time.* PURE
    datetime.datetime.* PURE    # a time zone in Python has barriers
    datetime.timedelta.* PURE
    datetime.timezone.* PURE
    datetime.date PURE
    datetime.time PURE
    datetime.datetime PURE
    datetime.timedelta PURE
    datetime.timezone PURE
    zoneinfo.ZoneInfo.utcoffset PURE
    zoneinfo.ZoneInfo.dst PURE
    zoneinfo.ZoneInfo.tzname PURE
    zoneinfo.ZoneInfo.fromutc PURE
    datetime.tzinfo.* PURE
    datetime.tzinfo.__reduce__ ATTRIBUTES    # attributes of a subclass
    decimal.Decimal DEEP
    decimal.Decimal.* PURE    # but for the flags of the context: see docs/limits.rst
    decimal.Context CREATES
    decimal.Context.* PURE    # the same
    decimal.Context.copy CREATES
    decimal.Context.__copy__ CREATES
    decimal.Context.clear_flags OPAQUE
    decimal.Context.clear_traps OPAQUE
    decimal.getcontext PURE    # as ContextVar.get
    decimal.setcontext SETS_CONTEXT
    math.* PURE
    math.fsum ITERATES
    math.dist ITERATES
    math.sumprod ITERATES
    cmath.* PURE
    operator.* READS
    operator.add DEEP
    operator.and_ DEEP
    operator.concat DEEP
    operator.floordiv DEEP
    operator.lshift DEEP
    operator.matmul DEEP
    operator.mul DEEP
    operator.or_ DEEP
    operator.pow DEEP
    operator.rshift DEEP
    operator.sub DEEP
    operator.truediv DEEP
    operator.xor DEEP
    operator.eq DEEP
    operator.ne DEEP
    operator.lt DEEP
    operator.le DEEP
    operator.gt DEEP
    operator.ge DEEP
    operator.iadd MUTATES_DEEP
    operator.iand MUTATES_DEEP
    operator.iconcat MUTATES_DEEP
    operator.ifloordiv MUTATES_DEEP
    operator.ilshift MUTATES_DEEP
    operator.imatmul MUTATES_DEEP
    operator.imod EXCLUSIVE    # of a text, it looks items up, as operator.mod
    operator.imul MUTATES_DEEP
    operator.ior MUTATES_DEEP
    operator.ipow MUTATES_DEEP
    operator.irshift MUTATES_DEEP
    operator.isub MUTATES_DEEP
    operator.itruediv MUTATES_DEEP
    operator.ixor MUTATES_DEEP
    operator.mod INTERPOLATES
    operator.countOf DEEP
    operator.indexOf DEEP
    operator.itemgetter PURE
    operator.attrgetter PURE
    operator.methodcaller PURE
    operator.contains DEEP
    operator.getitem GETS_ITEM
    operator.setitem PUTS_KEY
    operator.delitem DELETES_KEY

    re.Pattern.* READS
    re.Pattern.finditer CREATES
    re.Pattern.scanner CREATES
    re.Pattern.sub CALLS_BACK
    re.Pattern.subn CALLS_BACK
    re.Match.* READS
    _sre.compile ITERATES
    _sre.ascii_iscased PURE
    _sre.ascii_tolower PURE
    _sre.unicode_iscased PURE
    _sre.unicode_tolower PURE
    _sre.template ITERATES
    json.encoder.encode_basestring_ascii PURE
    json.encoder.encode_basestring PURE
    json.encoder.c_encode_basestring_ascii PURE
    json.encoder.c_encode_basestring PURE
    json.encoder.c_make_encoder DEEP
    json.decoder.scanstring PURE
    json.scanner.c_make_scanner READS
    struct.pack READS
    struct.unpack READS
    struct.unpack_from READS
    struct.calcsize PURE
    struct.pack_into MUTATES_SECOND
    struct.Struct PURE
    struct.Struct.pack READS
    struct.Struct.pack_into MUTATES_SECOND
    struct.Struct.unpack READS
    struct.Struct.unpack_from READS
    binascii.* READS
    marshal.dumps DEEP
    marshal.loads READS
    _locale.localeconv PURE    # the locale is changed exclusively
    _locale.nl_langinfo PURE
    _locale.strcoll PURE
    _locale.strxfrm PURE
    _locale.getencoding PURE
    _statistics._normal_dist_inv_cdf PURE
    zlib.crc32 READS
    zlib.adler32 READS
    zlib.compress READS
    zlib.decompress READS
    zlib.compressobj CREATES
    zlib.decompressobj CREATES
    zlib._ZlibDecompressor CREATES
    zlib._ZlibDecompressor.decompress USES
    _hashlib.openssl_md5 CREATES
    _hashlib.openssl_sha1 CREATES
    _hashlib.openssl_sha224 CREATES
    _hashlib.openssl_sha256 CREATES
    _hashlib.openssl_sha384 CREATES
    _hashlib.openssl_sha512 CREATES
    _hashlib.openssl_sha3_224 CREATES
    _hashlib.openssl_sha3_256 CREATES
    _hashlib.openssl_sha3_384 CREATES
    _hashlib.openssl_sha3_512 CREATES
    _hashlib.openssl_shake_128 CREATES
    _hashlib.openssl_shake_256 CREATES
    _hashlib.get_fips_mode PURE
    _hashlib.scrypt READS
    _hashlib.new CREATES
    _hashlib.hmac_new CREATES
    _hashlib.hmac_digest READS
    _hashlib.compare_digest READS
    _hashlib.pbkdf2_hmac READS
    _operator._compare_digest READS
    _blake2.blake2b CREATES
    _blake2.blake2s CREATES
    _md5.md5 CREATES
    _sha1.sha1 CREATES
    _sha2.sha224 CREATES
    _sha2.sha256 CREATES
    _sha2.sha384 CREATES
    _sha2.sha512 CREATES
    _sha3.sha3_224 CREATES
    _sha3.sha3_256 CREATES
    _sha3.sha3_384 CREATES
    _sha3.sha3_512 CREATES
    _sha3.shake_128 CREATES
    _sha3.shake_256 CREATES
    io.StringIO CREATES
    io.BytesIO CREATES
    io.BytesIO.readinto FILLS
    io.IncrementalNewlineDecoder CREATES
    io.IncrementalNewlineDecoder.* OPAQUE
    _random.Random.seed SEEDS
    _random.Random.setstate SEEDS
    _random.Random.getstate SEEDS
    io.text_encoding PURE
    _csv.Dialect CREATES
    _csv.get_dialect PURE    # the dialects have names by exclusive calls
    _csv.list_dialects PURE
    _io._IOBase.* USES
    _string.formatter_parser PURE
    _string.formatter_field_name_split PURE
    _codecs.* READS    # codecs are registered exclusively
    _codecs.charmap_encode LOOKS_UP
    _codecs.charmap_decode LOOKS_UP
    _codecs.register EXCLUSIVE
    _codecs.unregister EXCLUSIVE
    _codecs.register_error EXCLUSIVE
    _codecs._unregister_error EXCLUSIVE
    _codecs.lookup PURE    # it remembers what it has found for good, which is the same whoever asks; modules are imported exclusively
    posix._path_normpath PURE
    posix._path_splitroot_ex PURE
    unicodedata.* PURE
    os.urandom PURE
    os.getpid PURE
    os.getppid PURE
    os.fspath PURE
    os.cpu_count PURE
    os.strerror PURE
    os.DirEntry.* OPAQUE
    posix.getcwd PURE    # changed exclusively, as all that processes have
    posix.getcwdb PURE
    posix.getegid PURE
    posix.geteuid PURE
    posix.getgid PURE
    posix.getgroups PURE
    posix.getloadavg PURE
    posix.getpgid PURE
    posix.getpgrp PURE
    posix.getrandom PURE
    posix.getsid PURE
    posix.getuid PURE
    posix.get_terminal_size PURE
    os.terminal_size PURE
    posix.isatty PURE
    posix.sched_getaffinity PURE
    posix.sysconf PURE
    posix.confstr PURE
    posix.uname PURE
    posix.times PURE
    posix.waitstatus_to_exitcode PURE
    posix.WCOREDUMP PURE
    posix.WEXITSTATUS PURE
    posix.WIFCONTINUED PURE
    posix.WIFEXITED PURE
    posix.WIFSIGNALED PURE
    posix.WIFSTOPPED PURE
    posix.WSTOPSIG PURE
    posix.WTERMSIG PURE
    posix.get_blocking PURE
    posix.get_inheritable PURE
    _thread.get_ident PURE
    _thread.daemon_threads_allowed PURE
    _queue.SimpleQueue CREATES
    _thread.get_native_id PURE
    sys._getframe PURE    # frames of suspended generators are opened by their attributes
    sys.exc_info PURE
    sys.exception PURE
    sys.intern PURE    # the same text, for good
    sys.getrefcount EXCLUSIVE    # of all transactions
    sys.getsizeof READS    # of their memory
    sys.getrecursionlimit PURE
    sys.getdefaultencoding PURE
    sys.getfilesystemencodeerrors PURE
    sys.getswitchinterval PURE
    sys.get_int_max_str_digits PURE
    sys._is_gil_enabled PURE
    sys._getframemodulename PURE
    sys.gettrace PURE    # set exclusively, as all that follows
    sys.getprofile PURE
    sys.getfilesystemencoding PURE
    sys.get_coroutine_origin_tracking_depth PURE
    sys.get_asyncgen_hooks PURE
    sys.audit PURE    # hooks in Python have barriers
    sys.is_finalizing PURE
    gc.isenabled PURE
    gc.get_count PURE    # numbers that C code alone changes
    gc.get_threshold PURE
    gc.get_stats PURE
    atexit.register EXCLUSIVE
    _stat.* PURE
    tornado.speedups.websocket_mask READS
    _abc._abc_instancecheck PURE    # reads what is only written exclusively, else asks _abc_subclasscheck
    _abc._get_dump PURE    # the same
    _abc.get_cache_token PURE    # counts what is registered, exclusively
    _typing._idfunc PURE
    typing.Generic.* PURE
    typing.TypeVar PURE
    typing.TypeVar.* PURE
    typing.ParamSpec PURE
    typing.ParamSpec.* PURE
    typing.TypeVarTuple PURE
    typing.TypeVarTuple.* PURE
    typing.Union.* PURE
    _uuid.generate_time_safe PURE    # a clock
    _socket.gethostname PURE    # as if somebody else had set it at that moment
    resource.getrusage PURE    # a clock
    tornado.speedups.websocket_mask READS

    _ssl.MemoryBIO CREATES
    _ssl._SSLContext._wrap_socket CREATES
    _ssl._SSLContext._wrap_bio CREATES
    _socket.socket.fileno PURE    # closing waits for the commit: until then the old one, also for who closes
    _socket.socket.getsockname PURE    # binding and connecting do not come back
    _socket.socket.getpeername PURE
    _socket.inet_pton PURE
    _socket.inet_ntop READS
    _socket.inet_aton PURE
    _socket.inet_ntoa READS
    _socket.htons PURE
    _socket.htonl PURE
    _socket.ntohs PURE
    _socket.ntohl PURE
    _socket.CMSG_LEN PURE
    _socket.CMSG_SPACE PURE
    _socket.getdefaulttimeout PURE
    _thread.lock PURE
    _thread.allocate_lock PURE
    _thread.RLock PURE
    _thread._local PURE
    _thread._ThreadHandle PURE
    _thread._ThreadHandle.is_done PURE
    _io.TextIOWrapper.read OPAQUE
    _io.TextIOWrapper.readline OPAQUE
    _io.TextIOWrapper.seek OPAQUE
    _io.TextIOWrapper.detach OPAQUE
    _io.TextIOWrapper.readable PURE
    _io.TextIOWrapper.writable PURE
    _io.TextIOWrapper.seekable PURE
    _io.TextIOWrapper.isatty PURE    # closed exclusively
    _io.TextIOWrapper.fileno PURE
    _io.BufferedReader.readable PURE
    _io.BufferedReader.writable PURE
    _io.BufferedReader.seekable PURE
    _io.BufferedWriter.writable PURE
    _io.BufferedWriter.seekable PURE
    _io.BufferedRandom.seekable PURE
    _io.BufferedWriter.fileno PURE
    _io.BufferedReader.fileno PURE
    _io.BufferedRandom.fileno PURE
"""

#: methods of types that have no public name
HIDDEN_CALLS = [
    *((getattr(type(awaitable), name), "RESUMES") for awaitable in _AWAITABLES for name in ("send", "throw", "close")),
    *((method, "ITERATES") for view in (type({}.keys()), type({}.items()))
      for method in (view.isdisjoint, view.__reversed__)),
    (type({}.values()).__reversed__, "ITERATES"),
    (type(_LOCAL_DECIMALS).__enter__, "SETS_CONTEXT"),
    (type(_LOCAL_DECIMALS).__exit__, "SETS_CONTEXT"),
]

#: what calls of instances do
INSTANCES = """
    functools.partial PARTIAL
    functools._lru_cache_wrapper CACHED
    json.encoder.c_make_encoder CALLS_PARTS
    json.scanner.c_make_scanner CALLS_PARTS
    operator.attrgetter GETS_ATTRS
    operator.itemgetter GETS_ITEMS
    operator.methodcaller CALLS_METHOD
    weakref.ref REFERS
"""

if sys.version_info >= (3, 14):
    _template = eval('t"{1}"')  # older interpreters do not know the syntax
    HIDDEN_TYPES += [(_template, "RECORD"), (_template.interpolations[0], "RECORD"), (iter(_template), "ITERATOR")]
    HIDDEN_CALLS += [(type(_template), "PURE"), (type(_template.interpolations[0]), "PURE")]
    _variables = (lambda: sys._getframe().f_locals)()
    HIDDEN_TYPES += [(_variables, "FRAME_LOCALS")]
    HIDDEN_CALLS += [
        (vars(type(_variables))[name], "GETS_KEY" if name in ("get", "__contains__", "__getitem__") else "READS")
        for name in ("get", "__contains__", "__getitem__", "keys", "values", "items", "copy", "__reversed__")
    ]

#: types whose methods all use the C state of their receiver
STATEFUL_TYPES = """
    io.StringIO
    io.BytesIO
    _hashlib.HASH
    _hashlib.HASHXOF
    _hashlib.HMAC
    _blake2.blake2b
    _blake2.blake2s
    _md5.MD5Type
    _sha1.SHA1Type
    _sha2.SHA224Type
    _sha2.SHA256Type
    _sha2.SHA384Type
    _sha2.SHA512Type
    _sha3.sha3_224
    _sha3.sha3_256
    _sha3.sha3_384
    _sha3.sha3_512
    _sha3.shake_128
    _sha3.shake_256
    _random.Random
"""


#: modules of the standard library whose C objects may work on one thread only; of others than the standard library's,
#: that is taken for granted (anchor.c)
TIED_MODULES = {"_sqlite3", "sqlite3", "_tkinter", "tkinter", "_curses", "curses", "_curses_panel"}

#: what is tied of modules that are not: functions of other projects' libraries, of whose C code nothing is known, and what
#: such a function has left for ``ctypes.get_errno``
TIED_NAMES = {"_ctypes": {"CFuncPtr", "get_errno", "set_errno"}}


def _lookup(name):
    """The object of a dotted name, or None where this Python does not have it."""
    first, *parts = name.split(".")
    found = _imported(first)
    path = first
    for part in parts:
        path = f"{path}.{part}"
        holder = found
        found = holder.__dict__.get(part, _NOTHING) if isinstance(holder, type) else _NOTHING
        if found is _NOTHING:
            found = getattr(holder, part, _NOTHING)
        if found is _NOTHING:
            found = _imported(path) if hasattr(holder, "__path__") else None
        if found is None:
            return None
    return found


_NOTHING = object()


def _imported(name):
    if (module := sys.modules.get(name)) is not None:
        return module
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def loaded(name):
    """The C callables or the type of that dotted name, of modules that have been imported; none if there are no such."""
    parts = name.removesuffix(".*").split(".")
    for i in range(len(parts), 0, -1):
        path = ".".join(parts[:i])
        if (found := sys.modules.get(path, _hidden.get(path) if i < len(parts) or name.endswith(".*") else None)) is not None:
            break
    else:
        return []
    for part in parts[i:]:
        if isinstance(found, types.ModuleType):
            found = vars(found).get(part)  # not its __getattr__, which may import something
            continue
        inherited = getattr(found, part, None)
        found = vars(found).get(part, inherited) if isinstance(found, type) else inherited
    if found is None or isinstance(found, types.ModuleType) or (isinstance(found, type) and not name.endswith(".*")):
        return [found] if isinstance(found, type) else []
    if name.endswith(".*"):
        return _c_members(found)
    found = getattr(found, "__func__", found) if isinstance(found, (staticmethod, classmethod)) else found
    return [found] if callable(found) and not isinstance(found, types.FunctionType) else []


#: name -> the type that no module has under it
_hidden = {}


def _find_hidden(name):
    """The type that no module has under its name, if it is there by now: of that module, or of none but part of its file."""
    module, _, own = name.rpartition(".")
    for found in object.__subclasses__():
        if found.__name__ == own and (
            found.__module__ == module or (found.__module__ == "builtins" and _lies_in(found, sys.modules[module]))
        ):
            return found
    return None


def _lies_in(structure, module):
    """Is it part of the file that the module has been loaded from?  The kernel knows that by its real path, Python by the way there."""
    file = os.path.realpath(module.__file__)
    with contextlib.suppress(OSError):
        return any(start <= id(structure) < end and name == file for start, end, name in placement.mapped())
    return False


def register_one(declaration, objects):
    """Fill in what one line says of a library's objects."""
    what, name, value, *_ = declaration
    if what == "hidden":
        _engine.register_hidden_type(name, _engine.KINDS[value])
        if (found := _find_hidden(name)) is not None:
            _hidden[name] = found
            _engine.register_type(found, _engine.KINDS[value])
    for found in objects:
        if what == "prepare":
            found(None)
        elif what == "leaf":
            _engine.register_leaf(found)
        elif what == "converters":
            _engine.register_converters(sys.intern(value))
        elif what == "unread":
            _engine.register_unread(sys.intern(value))
        elif what == "asks":
            _engine.register_asked(sys.intern(value))
        elif what == "type":
            _engine.register_type(found, _engine.KINDS[value])
        elif what == "instances":
            _engine.register_instances(found, _engine.EFFECTS[value])
        else:
            _engine.register_effect(found, _engine.EFFECTS[value])
    top = name.partition(".")[0]
    if top and top not in _untied:  # the engine keeps each set that it was ever given
        _untied.add(top)
        _engine.set_untied(frozenset(_untied), TIED_NAMES)


#: of the modules with these names at the top the C code works on any thread
_untied = set(sys.stdlib_module_names - TIED_MODULES | {"tornado"})


#: types without state, whose objects refer to nothing that has any
LEAVES = (
    object, complex, range, type(Ellipsis), type(NotImplemented), datetime.date, datetime.datetime, datetime.time, datetime.timedelta,
    datetime.timezone, decimal.Decimal, re.Pattern,
)  # fmt: skip


def _entries(table):
    for line in table.splitlines():
        entry = line.partition("#")[0].split()
        if entry:
            yield entry


_C_CALLABLES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)


def _callables(name):
    """The C callables that a name of the table stands for."""
    if not name.endswith(".*"):
        found = _lookup(name)
        found = getattr(found, "__func__", found) if isinstance(found, (staticmethod, classmethod)) else found
        return [found] if isinstance(found, _C_CALLABLES + (type,)) else []
    holder = _lookup(name[:-2])
    if holder is None:
        return []
    return _c_members(holder)


def _c_members(holder):
    """The C functions and methods of a module or type.  Not slot wrappers, nor ``__new__``: all types share these."""
    kinds = tuple(kind for kind in _C_CALLABLES if kind is not types.WrapperDescriptorType)
    members = [getattr(member, "__func__", member) for name, member in vars(holder).items() if name != "__new__"]
    return [member for member in members if isinstance(member, kinds)]


def _made_of(exception):
    """What making such an exception of Python's own does to the arguments: some copy what these contain."""
    if issubclass(exception, BaseExceptionGroup):
        return "DEEP"    # it may keep how they are printed
    if issubclass(exception, SyntaxError):
        return "ITERATES"
    return "READS" if issubclass(exception, UnicodeError) else "PURE"


def register(twins, with_barriers, instance_twins):
    """Fill the engine's tables.  Once, before the first transaction.

    Args:
        twins: C callable → the Python function that stands in for it.
        with_barriers: those among them whose twins differ by their barriers alone.
        instance_twins: C type → the function that stands in for calls of its instances.
    """
    for name, kind in _entries(TYPES):
        found = _lookup(name)
        if isinstance(found, type):
            _engine.register_type(found, _engine.KINDS[kind])
    for example, kind in HIDDEN_TYPES:
        _engine.register_type(type(example), _engine.KINDS[kind])
    for exception in vars(builtins).values():
        if isinstance(exception, type) and issubclass(exception, BaseException):
            _engine.register_type(exception, _engine.KINDS["INSTANCE"])
            _engine.register_effect(exception, _engine.EFFECTS[_made_of(exception)])
    hidden = type(zlib.compressobj()), type(zlib.decompressobj()), type(re.compile("").scanner(""))
    for stateful in (*map(_lookup, STATEFUL_TYPES.split()), *hidden):
        for method in _c_members(stateful):
            _engine.register_effect(method, _engine.EFFECTS["USES"])
    for name, effect in _entries(CALLS):
        for found in _callables(name):
            _engine.register_effect(found, _engine.EFFECTS[effect])
    for name, effect in _entries(INSTANCES):
        _engine.register_instances(_lookup(name), _engine.EFFECTS[effect])
    _engine.register_instances(type(functools.cmp_to_key(len)), _engine.EFFECTS["PURE"])
    _engine.set_untied(frozenset(_untied), TIED_NAMES)
    for leaf in LEAVES:
        _engine.register_leaf(leaf)
    gc.callbacks.append(_engine.tell_collection)
    if not seeds.seeded():
        _engine.register_unordered(random._inst)
    for callable_, twin in twins.items():
        _engine.register_effect(callable_, _engine.EFFECTS["TWIN"], twin)
    for callable_ in with_barriers:
        _engine.stands_aside(callable_)
    for callable_, effect in HIDDEN_CALLS:
        _engine.register_effect(callable_, _engine.EFFECTS[effect], twins.get(callable_))
    for type_, twin in instance_twins.items():
        _engine.register_instances(type_, _engine.EFFECTS["TWIN"], twin)
