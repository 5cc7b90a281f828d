"""Transactional stand-ins for C callables.

A call barrier that finds a C callable which is a key of `activation.TWINS` puts its twin into the call instead.  Twins marked
`trusted` know about transactions: they lock with `core.own`, log undo with `core.on_abort` and put effects off with
`core.defer`.  The others are ordinary Python, with barriers like a user's function.
"""

import _abc
import _bisect
import _collections
import _compat_pickle
import _csv
import _heapq
import _imp
import _locale
import _queue
import _string
import _thread
import _tokenize
import _warnings
import builtins
import contextvars
import copyreg
import decimal
import functools
import io
import math
import operator
import pickle
import posix
import struct
import sys
import time
import types
import zoneinfo
from collections import OrderedDict, defaultdict

from .. import _engine, core
from ..core import trusted

# A program may replace builtins; what stands in for them must not call the replacements.
__builtins__ = dict(vars(builtins))

# ---- Dicts made of rows -------------------------------------------------------------


_missing = object()


def _row(i, row):
    """The key and the value in the i-th row that a dict is made of."""
    try:
        pair = tuple(_iterator(row))
    except TypeError as error:
        error.add_note(f"Cannot convert dictionary update sequence element #{i} to a sequence")
        raise
    if len(pair) != 2:
        raise ValueError(f"dictionary update sequence element #{i} has length {len(pair)}; 2 is required")
    return pair


def _iterator(row):
    try:
        return iter(row)
    except TypeError:
        pass
    raise TypeError("object is not iterable")


def _ordered_row(row):
    """The same for an OrderedDict, which has other complaints, and makes them before it has seen all."""
    items = iter(row)
    key = next(items, _missing)
    if key is _missing:
        raise ValueError("need more than 0 values to unpack")
    value = next(items, _missing)
    if value is _missing:
        raise ValueError("need more than 1 value to unpack")
    if next(items, _missing) is not _missing:
        raise ValueError("too many values to unpack (expected 2)")
    return key, value


def _dict_twin(cls, before, update):
    """Twin of the constructor of a kind of dict, whose first arguments, `before` of them, are none of its contents."""

    def twin(*args, **kwargs):
        usual = len(args) == before + 1 and not (before and args[0] is not None and not callable(args[0]))
        if not usual or type(args[before]) is dict:
            return _make(cls, args, kwargs)
        made = _make(cls, args[:before], {})
        update(made, args[before], **kwargs)
        return made

    return twin


@trusted
def _make(cls, args, kwargs):
    for arg in args:
        core.open_items(arg)
    return _engine.capture(cls(*args, **kwargs))


def dict_update(self, other=_missing, /, **kwargs):
    """Twin of ``dict.update`` and ``dict.__init__``: key by key, so that it conflicts with nothing but the same keys."""
    if other is not _missing:
        if isinstance(other, dict) and type(other).__iter__ is dict.__iter__:
            for key, value in dict.items(other):
                dict.__setitem__(self, key, value)
        elif hasattr(other, "keys"):
            for key in list(other.keys()):  # all of them first: looking one up may change their order
                dict.__setitem__(self, key, other[key])
        else:
            for i, row in enumerate(other):
                dict.__setitem__(self, *_row(i, row))
    for key, value in kwargs.items():
        dict.__setitem__(self, key, value)


def ordered_dict_update(self, other=_missing, /, **kwargs):
    """Twin of ``OrderedDict.update`` and ``OrderedDict.__init__``."""
    if other is not _missing:
        if type(other) is dict:
            for key, value in list(other.items()):
                self[key] = value
        elif hasattr(other, "keys"):
            for key in other.keys():  # noqa: SIM118, what has keys() need not be iterable
                self[key] = other[key]
        else:
            for row in other.items() if hasattr(other, "items") else other:
                key, value = _ordered_row(row)
                self[key] = value
    for key, value in kwargs.items():
        self[key] = value


def default_missing(self, key, /):
    """Twin of ``defaultdict.__missing__``."""
    factory = self.default_factory
    if factory is None:
        raise KeyError(key)
    return dict.setdefault(self, key, factory())


def namespace_init(self, /, *args, **kwargs):
    """Twin of ``SimpleNamespace.__init__``, also of one that has attributes already."""
    if len(args) > 1:
        raise TypeError(f"{type(self).__name__} expected at most 1 argument, got {len(args)}")
    if args:
        given = args[0] if type(args[0]) is dict else dict(args[0])
        if not all(isinstance(name, str) for name in given):
            raise TypeError("keywords must be strings")
        self.__dict__.update(given)
    self.__dict__.update(kwargs)


def dict_subclass(cls, rows, /):
    """Twin of the call of a subclass of dict that has no constructor of its own, with an iterator of rows."""
    self = cls.__new__(cls)
    dict_update(self, rows)
    return self


# ---- Functions that call functions ---------------------------------------------------------------------------------


def call(function, /, *args, **kwargs):
    """Twin of ``operator.call``."""
    return function(*args, **kwargs)


@trusted
def cmp_to_key(mycmp):
    """Twin of ``functools.cmp_to_key``."""
    return _cmp_to_key(core.guarded(mycmp))


_cmp_to_key = functools.cmp_to_key

# ---- Text and packed data ------------------------------------------------------------------------------------------------


#: formats none of whose fields names an attribute or an item of an argument, and None (who looks into a set locks it)
_plain_formats = {}


def str_format(self, /, *args, **kwargs):
    """Twin of ``str.format``."""
    if _looks_inside(self):
        return _format(self, args, kwargs, _Numbering(), 2)
    return _format_at_once(self, args, kwargs)


def str_format_map(self, mapping, /):
    """Twin of ``str.format_map``."""
    if type(mapping) is not dict or _looks_inside(self):
        return _format(self, None, mapping, _Numbering(), 2)
    return _format_map_at_once(self, mapping)


@trusted
def _format_map_at_once(text, mapping):
    core.open_all(mapping)
    return text.format_map(mapping)


@trusted
def _format_at_once(text, args, kwargs):
    core.open_all(args)
    core.open_all(kwargs)
    return text.format(*args, **kwargs)


@trusted
def _looks_inside(text):
    """Does any field of this format name an attribute or an item of an argument?"""
    try:
        for _, name, spec, _ in _string.formatter_parser(text):
            if name is not None and (any(_string.formatter_field_name_split(name)[1]) or _looks_inside(spec)):
                return True
    except ValueError:
        pass  # the original complains
    if len(_plain_formats) < 1000:
        _plain_formats[text] = None
    return False


class _Numbering:
    """How the fields of one format name their arguments: by numbers of their own, or one after the other."""

    def __init__(self):
        self.next = 0

    def number(self, name):
        """The argument of the field: its number, or its name.

        Raises:
            ValueError: numbered and unnumbered fields in one format.
        """
        if name == "":
            if self.next is None:
                raise ValueError("cannot switch from manual field specification to automatic field numbering")
            self.next += 1
            return self.next - 1
        if isinstance(name, int):
            if self.next:
                raise ValueError("cannot switch from automatic field numbering to manual field specification")
            self.next = None
        return name


def _format(text, args, kwargs, numbering, depth):
    if depth == 0:
        raise ValueError("Max string recursion exceeded")
    pieces = []
    for literal, name, spec, conversion in _string.formatter_parser(text):  # one by one: a mistake counts when its turn comes
        pieces.append(literal)
        if name is None:
            continue
        first, path = _string.formatter_field_name_split(name)
        value = _argument(numbering.number(first), args, kwargs)
        for is_attribute, part in path:
            value = getattr(value, part) if is_attribute else value[part]
        if conversion == "r":
            value = repr(value)
        elif conversion == "s":
            value = str(value)
        elif conversion == "a":
            value = ascii(value)
        elif conversion is not None:
            raise ValueError(f"Unknown conversion specifier {conversion}")
        pieces.append(format(value, _format(spec, args, kwargs, numbering, depth - 1) if "{" in spec else spec))
    return "".join(pieces)


def _argument(key, args, kwargs):
    if not isinstance(key, int):
        return kwargs[key]
    if args is None:
        raise ValueError("Format string contains positional fields")
    if key >= len(args):
        raise IndexError(f"Replacement index {key} out of range for positional args tuple")
    return args[key]


def unpack_all(layout, buffer, /):
    """Twin of ``struct.iter_unpack``."""
    return unpack_iterator(struct.Struct(layout), buffer)


class unpack_iterator:
    """What the twins of ``iter_unpack`` return: it can be put back where it was."""

    __slots__ = "_layout", "_view", "_at"

    def __init__(self, layout, buffer, /):
        _check_unpack(layout, buffer)
        self._layout = layout
        view = memoryview(buffer)
        self._view = view.cast("B") if view.nbytes else view  # of what has no bytes no shape can be cast
        self._at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self._view is None:
            raise StopIteration
        at = self._at
        if at >= self._view.nbytes:
            self._view = None
            raise StopIteration
        self._at = at + self._layout.size
        return self._layout.unpack_from(self._view, at)

    def __length_hint__(self):
        return 0 if self._view is None else (self._view.nbytes - self._at) // self._layout.size


def iter_unpack(layout, buffer, /):
    """Twin of ``Struct.iter_unpack``."""
    return unpack_iterator(layout, buffer)


@trusted
def _check_unpack(layout, buffer):
    _iter_unpack(layout, buffer)


_iter_unpack = struct.Struct.iter_unpack


def write_lines(self, lines, /):
    """Twin of ``BytesIO.writelines``, which reads the memory of each line."""
    io.BytesIO.tell(self)  # one that has been closed complains before it asks for lines
    for line in lines:
        io.BytesIO.write(self, line)


@trusted
def get_buffer(self, /):
    """Twin of ``BytesIO.getbuffer``: a view of the attempt's own stream is its own, too, so that it can be released."""
    own = core.is_fresh(self)
    if not own:
        core.exclusive("a view of a stream that others may have")
    view = _get_buffer(self)
    return _engine.capture(view) if own else view


_get_buffer = io.BytesIO.getbuffer


# ---- Pickles -------------------------------------------------------------------------------------------------------


def dumps(obj, protocol=None, *, fix_imports=True, buffer_callback=None):
    """Twin of ``pickle.dumps``: what is not plain data is pickled in Python, as it asks for itself."""
    if buffer_callback is None and _is_plain(obj):
        return _dumps(obj, protocol, fix_imports)
    try:
        return pickle._dumps(obj, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)
    except RecursionError:  # C code may go deeper
        return _dumps_alone(obj, protocol, fix_imports, buffer_callback)


@trusted
def _dumps_alone(obj, protocol, fix_imports, buffer_callback):
    core.exclusive_anew("pickling of what is deeply nested")
    core.exclusive("pickling of what is deeply nested")  # where it cannot begin anew
    return pickle.dumps(obj, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)


@trusted
def _is_plain(obj):
    core.open_items(copyreg.dispatch_table)
    return _engine.open_plain(obj)


@trusted
def _dumps(obj, protocol, fix_imports):
    return pickle.dumps(obj, protocol, fix_imports=fix_imports)


def loads(data, /, *, fix_imports=True, encoding="ASCII", errors="strict", buffers=()):
    """Twin of ``pickle.loads``."""
    fix_imports = bool(fix_imports)
    if not (isinstance(encoding, str) and isinstance(errors, str)):
        return _loads_alone(data, fix_imports, encoding, errors, buffers)  # which raises what it has to
    return _loads(data, dict(fix_imports=fix_imports, encoding=encoding, errors=errors, buffers=buffers))


@trusted
def _loads(data, options):
    core.open_items(data)
    if data is None:  # a stream would take it for nothing
        return pickle.loads(data)
    return _Unpickler(io.BytesIO(data), **options).load()


@trusted
def _loads_alone(data, fix_imports, encoding, errors, buffers):
    core.exclusive("unpickling in an unusual way")
    return pickle.loads(data, fix_imports=fix_imports, encoding=encoding, errors=errors, buffers=buffers)


def dump(obj, file, protocol=None, *, fix_imports=True, buffer_callback=None):
    """Twin of ``pickle.dump``: the file is written to as by Python code, once."""
    options = dict(fix_imports=fix_imports, buffer_callback=buffer_callback)
    if not hasattr(file, "write"):
        return _anyhow(pickle.dump, obj, file, protocol, **options)  # which raises what it has to
    write = file.write
    write(dumps(obj, protocol, **options))


def load(file, *, fix_imports=True, encoding="ASCII", errors="strict", buffers=()):
    """Twin of ``pickle.load``: the file is read as by Python code."""
    options = dict(fix_imports=bool(fix_imports), encoding=encoding, errors=errors, buffers=buffers)
    if not (isinstance(encoding, str) and isinstance(errors, str) and buffers == () and hasattr(file, "read") and hasattr(file, "readline")):
        return _anyhow(pickle.load, file, **options)
    reading = _Read(file.read, file.readline)
    if (peek := getattr(file, "peek", None)) is not None:
        reading.peek = lambda size: peek(size)
    return _load(reading, options)


@trusted
def _anyhow(function, *args, **options):
    core.exclusive("pickling in an unusual way")
    return function(*args, **options)


@trusted
def _load(reading, options):
    return _Unpickler(reading, **options).load()


class _Read:
    """A file that is read by methods in Python, which have barriers; it has none to read into memory of C code's."""

    def __init__(self, read, readline):
        self._read, self._readline = read, readline

    def read(self, size):
        return self._read(size)

    def readline(self):
        return self._readline()


class _Unpickler(pickle.Unpickler):
    """Looks at what the C code is going to call."""

    @trusted
    def find_class(self, module, name):
        now = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))[0]
        if module not in sys.modules and now not in sys.modules:
            core.exclusive("unpickling that imports a module")
        found = super().find_class(module, name)
        if callable(found):
            _engine.may_be_called(found)
        return found


# ---- What is free of effects most of the time ----------------------------------------------------------------------


def add_note(self, note, /):
    """Twin of ``BaseException.add_note``."""
    if not isinstance(note, str):
        _add_note(self, note)  # which raises what it has to
    if not hasattr(self, "__notes__"):
        self.__notes__ = []
    notes = self.__notes__
    if not isinstance(notes, list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    list.append(notes, note)


_add_note = trusted(lambda exception, note: BaseException.add_note(exception, note))


# ---- Groups of exceptions ------------------------------------------------------------------------------------------


def split_group(self, matcher, /):
    """Twin of ``BaseExceptionGroup.split``, which calls the matcher and ``derive``, and copies what groups say of themselves."""
    return _split(self, _matching(matcher), True, 0)


def subgroup(self, matcher, /):
    """Twin of ``BaseExceptionGroup.subgroup``, likewise."""
    return _split(self, _matching(matcher), False, 0)[0]


def _matching(matcher):
    """The function that says whether an exception is wanted: by its type, whatever metaclasses say of instances."""
    if callable(matcher) and not issubclass(type(matcher), type):
        return matcher
    wanted = matcher if type(matcher) is tuple else (matcher,)
    for one in wanted:
        if not issubclass(type(one), type) or not type.__subclasscheck__(BaseException, one):
            raise TypeError("expected an exception type, a tuple of exception types, or a callable (other than a class)")
    return lambda exception: any(type.__subclasscheck__(one, type(exception)) for one in wanted)


def _split(exception, matches, with_rest, depth):
    """What of it is wanted, and what is not, if that is asked for; or None."""
    if matches(exception):
        return exception, None
    if not issubclass(type(exception), BaseExceptionGroup):
        return None, exception if with_rest else None
    if depth == _MOST_NESTED:
        _split_alone()
    found, others = [], []
    for part in _parts(exception):
        match, rest = _split(part, matches, with_rest, depth + 1)
        if match is not None:
            found.append(match)
        if rest is not None:
            others.append(rest)
    return _group_of(exception, found), _group_of(exception, others)


_parts = BaseExceptionGroup.exceptions.__get__
_MOST_NESTED = 100  # C code may go deeper


@trusted
def _split_alone():
    core.exclusive_anew("splitting of an exception group that is deeply nested")


def _group_of(group, parts):
    """Such a group of these, if there are any."""
    if not parts:
        return None
    made = group.derive(parts)
    if not issubclass(type(made), BaseExceptionGroup):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    if _has_usual_fields(type(group)) and _has_usual_fields(type(made)):
        if (traceback := group.__traceback__) is not None:
            made.__traceback__ = traceback
        made.__context__ = group.__context__
        made.__cause__ = group.__cause__
    else:
        _copy_fields(group, made)
    notes = getattr(group, "__notes__", None)
    if hasattr(type(notes), "__getitem__") and not isinstance(notes, (dict, types.MappingProxyType)):
        made.__notes__ = list(notes)
    return made


def _has_usual_fields(cls):
    return (
        cls.__setattr__ is BaseException.__setattr__ and cls.__getattribute__ is BaseException.__getattribute__
        and cls.__traceback__ is BaseException.__traceback__
        and cls.__context__ is BaseException.__context__ and cls.__cause__ is BaseException.__cause__
    )  # fmt: skip


@trusted
def _copy_fields(group, made):
    """As C code does, whatever the classes have under those names."""
    core.exclusive("splitting of an exception group whose class says how attributes are set")
    for field in BaseException.__traceback__, BaseException.__context__, BaseException.__cause__:
        if (value := field.__get__(group)) is not None or field is not BaseException.__traceback__:
            field.__set__(made, value)


@trusted
def local_context(*args, **kwargs):
    """Twin of ``decimal.localcontext``, which copies a context: that is read without asking, as by arithmetic."""
    for value in (*args, *kwargs.values()):
        if type(value) is not decimal.Context:
            core.open_all(value)
    return core.fresh(_local_context(*args, **kwargs))


_local_context = decimal.localcontext


@trusted
def enter_decimal_context(manager, /):
    """Twin of the beginning of ``with decimal.localcontext():``."""
    context = _enter_decimal_context(manager)
    return core.fresh(context) if core.is_fresh(manager) else context


#: among variables of its own, as in effects.py
_enter_decimal_context = type(contextvars.Context().run(decimal.localcontext)).__enter__


@trusted
def create_decimal(context, number="0", /):
    """Twin of ``Context.create_decimal``, which may be given a sequence of digits."""
    core.open_all(number)
    return _create_decimal(context, number)


_create_decimal = decimal.Context.create_decimal


def setlocale(category, locale=None, /):
    """Twin of ``locale.setlocale``: to ask changes nothing."""
    return _setlocale(category, locale)


@trusted
def _setlocale(category, locale):
    if locale is not None:
        core.exclusive("a change of the locale")
    return _locale_setlocale(category, locale)


_locale_setlocale = _locale.setlocale


#: key → zone, of those whose first use has been committed; they are kept, as programs keep few
_zones = {}


@trusted
def zone_info(*args, **kwargs):
    """Twin of ``ZoneInfo``, which keeps what it makes in two caches, one of them in C.

    What an aborted attempt has made would stay in that one alone: one zone could be two objects then, and datetimes
    tell by the object whether two of them are in the same zone.
    """
    key = args[0] if args else kwargs.get("key")
    known = _zones.get(str.__str__(key)) if isinstance(key, str) else None
    if known is None:
        if isinstance(key, str) and len(args) + len(kwargs) == 1:
            _ZoneInfo.no_cache(key)  # which raises beside others, if there is none of that name
        core.exclusive("the first use of a time zone")
    made = _ZoneInfo(*args, **kwargs)
    if made is not known:
        core.exclusive("the first use of a time zone")  # the caches have been cleared
        _zones[str.__str__(made.key)] = made
    return made


_ZoneInfo = zoneinfo.ZoneInfo


def unpickled_zone(cls, key, from_cache, /):
    """Twin of ``ZoneInfo._unpickle``, by which zones are copied, and with them datetimes."""
    usual = cls is _ZoneInfo and type(key) is str and type(from_cache) is int and from_cache == 1
    return zone_info(key) if usual else _unpickled_zone(cls, key, from_cache)


@trusted
def _unpickled_zone(cls, key, from_cache):
    core.exclusive("the copy of a time zone")
    return vars(_ZoneInfo)["_unpickle"].__get__(None, cls)(key, from_cache)


# ---- Locks ---------------------------------------------------------------------------------------------------------
# What they mean between transactions and threads: engine/objects/mutex.c.


@trusted
def rlock_release_save(lock):
    """Twin of ``RLock._release_save``, with which a condition begins to wait."""
    return _engine.mutex_native(lock, "_release_save", ())


@trusted
def rlock_acquire_restore(lock, state, /):
    """Twin of ``RLock._acquire_restore``, with which it ends."""
    return _engine.mutex_native(lock, "_acquire_restore", (state,))


def _lock_twins(lock_type):
    return {
        getattr(lock_type, name): twin
        for name, twin in {
            "acquire": _engine.mutex_acquire,
            "acquire_lock": _engine.mutex_acquire,
            "__enter__": _engine.mutex_enter,
            "release": _engine.mutex_release,
            "release_lock": _engine.mutex_release,
            "__exit__": _engine.mutex_exit,
            "locked": _engine.mutex_locked,
            "locked_lock": _engine.mutex_locked,
            "_is_owned": _engine.mutex_is_owned,
            "_recursion_count": _engine.mutex_recursion_count,
            "_release_save": rlock_release_save,
            "_acquire_restore": rlock_acquire_restore,
        }.items()
        if hasattr(lock_type, name)
    }


def set_state(exception, state, /):
    """Twin of ``BaseException.__setstate__``, by which exceptions are copied."""
    if state is not None:
        if not isinstance(state, dict):
            raise TypeError("state is not a dictionary")
        for name, value in state.items():
            setattr(exception, name, value)


# ---- Abstract classes ---------------------------------------------------------------------------------------------------

_HEAP_TYPE = 1 << 9  #: in `type.__flags__`: it may be a class of the program's


@trusted
def abc_init(cls, /):
    """Twin of ``_abc._abc_init``, which asks all that is in a new class whether it is abstract, and notes that in the class."""
    if not core.is_fresh(cls) or any(type(value).__flags__ & _HEAP_TYPE for value in vars(cls).values()):
        core.exclusive("the making of an abstract class")
    return _abc_init(cls)


_abc_init = _abc._abc_init


# ---- Queues to threads -----------------------------------------------------------------------------------------------


@trusted
def simple_queue_put(queue, item, block=True, timeout=None):
    """Twin of ``SimpleQueue.put``: whoever waits gets what a transaction has put when that has committed.

    It never waits, so that nothing depends on when; who looks at the queue is exclusive, and finds it there.
    """
    core.defer(_simple_queue_put, queue, item)


@trusted
def simple_queue_put_nowait(queue, item):
    """Twin of ``SimpleQueue.put_nowait``, likewise."""
    core.defer(_simple_queue_put, queue, item)


_simple_queue_put = _queue.SimpleQueue.put


@trusted
def sleep(seconds, /):
    """Twin of ``time.sleep``.

    Who sleeps may wait for a thread, which may wait for a lock until this transaction ends, or for another loop: one that runs alone lets
    that go on meanwhile (engine/calls/waiting.c).  So does one that a signal's handler is to break off, if the queue's main thread is asleep
    or waits for this one.  And who is to be rolled back does not sleep to the end.
    """
    until = None
    while True:
        if _engine.mutex_wanted():
            core.exclusive("sleeping while a thread waits for a lock that the transaction has taken")
        elif _engine.several_run():
            core.exclusive("sleeping while another loop runs")
        elif _engine.is_interrupted():
            core.exclusive("sleeping when a signal arrives")
        if core.is_exclusive() or type(seconds) not in (int, float) or not _NAP < seconds < _LONGEST:
            return _sleep(seconds)
        until = _monotonic() + seconds if until is None else until
        _sleep(_NAP)
        core.share(_sleeping)  # or has it been doomed meanwhile?
        seconds = max(0, until - _monotonic())


_sleep, _monotonic = time.sleep, time.monotonic
_NAP, _LONGEST = 0.05, 1e9


class _Sleeping:
    """What those share who sleep."""


_sleeping = _Sleeping()


def call_alias(alias, /, *args, **kwargs):
    """Twin of calling what ``list[int]`` is: an object of the class, which remembers the alias if it can."""
    made = alias.__origin__(*args, **kwargs)
    try:
        made.__orig_class__ = alias
    except (AttributeError, TypeError):
        pass
    return made


_lru_wrapper = functools._lru_cache_wrapper

def tokens(readline, /, **options):
    """Twin of ``TokenizerIter``, which asks for each line: by a function in Python, so that whoever does is seen to read."""
    return _tokens(lambda: readline(), options)


@trusted
def _tokens(readline, options):
    return core.fresh(_tokenize.TokenizerIter(readline, **options))


#: functions of `heapq` that have a twin in C
HEAP = [
    f"{name}{suffix}" for name in ("heapify", "heappop", "heappush", "heappushpop", "heapreplace") for suffix in ("", "_max")
]

#: types whose instances, when called, are stood in for; `type` itself only where the engine says so
INSTANCE_TWINS = {
    type: dict_subclass,
    types.GenericAlias: call_alias,
}

#: those that differ from what they stand in for by their barriers alone
WITH_BARRIERS = {
    dict.update: _engine.short_way(dict.update, dict_update),
    OrderedDict.update: ordered_dict_update,
    dict.__init__: dict_update,
    OrderedDict.__init__: ordered_dict_update,
    dict: _engine.short_way(dict, _dict_twin(dict, 0, dict_update), _row),
    OrderedDict: _dict_twin(OrderedDict, 0, ordered_dict_update),
    defaultdict: _dict_twin(defaultdict, 1, dict_update),
    str.format: _engine.short_way(str.format, str_format, _plain_formats),
    str.format_map: str_format_map,
    pickle.dumps: dumps,
    pickle.dump: dump,
    BaseExceptionGroup.split: split_group,
    BaseExceptionGroup.subgroup: subgroup,
    **{function: _engine.c_twin(function) for function in (
        all, any, max, min, sorted, sum, math.prod, list.sort, bytes.join, bytearray.join, functools.reduce,
        _bisect.bisect_left, _bisect.bisect_right, _bisect.insort_left, _bisect.insort_right,
        *map(vars(_heapq).get, HEAP), _collections._count_elements, _csv.reader, _csv.writer,
        _csv.Writer.writerow, _csv.Writer.writerows)},
}

_waitpid = posix.waitpid
_looking = set()  # threads whose attempt has found that a child goes on


@trusted
def waitpid(*args):
    """Twin of ``os.waitpid``: who looks whether a child has ended, and it has not, changes nothing.

    Who looks once more in the same attempt runs alone: the child may wait for what is sent at the commit.
    """
    thread = core.thread_ident()
    if not core.is_exclusive() and thread not in _looking and _goes_on(*args):
        _looking.add(thread)
        core.on_abort(_looking.discard, thread)
        core.defer(_looking.discard, thread)
        return 0, 0
    core.exclusive("call of posix.waitpid")
    return _waitpid(*args)


@trusted
def _goes_on(pid=0, options=0, *more):
    """Looks only, since it may end before `_waitpid` is called, which would take its status."""
    if type(pid) is not int or pid <= 0 or options != posix.WNOHANG or more:
        return False
    try:
        return posix.waitid(posix.P_PID, pid, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT) is None
    except (OSError, OverflowError):
        return False


TWINS = {
    **WITH_BARRIERS,
    functools.cmp_to_key: cmp_to_key,
    operator.call: call,
    defaultdict.__missing__: default_missing,
    struct.iter_unpack: unpack_all,
    struct.Struct.iter_unpack: iter_unpack,
    types.SimpleNamespace.__init__: namespace_init,
    io.BytesIO.writelines: write_lines,
    io.BytesIO.getbuffer: get_buffer,
    _create_decimal: create_decimal,
    _abc_init: abc_init,
    _locale.setlocale: setlocale,
    zoneinfo.ZoneInfo: zone_info,
    zoneinfo.ZoneInfo._unpickle: unpickled_zone,
    BaseException.add_note: add_note,
    BaseException.__setstate__: set_state,
    _enter_decimal_context: enter_decimal_context,
    _local_context: local_context,
    pickle.loads: loads,
    pickle.load: load,
    _sleep: sleep,
    _waitpid: waitpid,
    _simple_queue_put: simple_queue_put,
    _queue.SimpleQueue.put_nowait: simple_queue_put_nowait,
    _tokenize.TokenizerIter: tokens,
    **_lock_twins(_thread.lock),
    **_lock_twins(_thread.RLock),
    **{function: _engine.c_twin(function) for function in (
        builtins.exec, builtins.eval, builtins.__import__, type.__subclasses__, _abc._abc_subclasscheck, _lru_wrapper.cache_info,
        _lru_wrapper.cache_clear, _warnings.warn, _imp.acquire_lock)},
}
