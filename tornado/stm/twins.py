"""Transactional stand-ins for C callables.

A call barrier that finds a C callable which is a key of `TWINS` puts its twin into the call instead.  Twins marked
`trusted` know about transactions: they lock with `core.own`, log undo with `core.on_abort` and put effects off with
`core.defer`.  The others are ordinary Python: the instrumenter gives them barriers like a user's function.
"""

import _abc
import _bisect
import _collections
import _compat_pickle
import _heapq
import _io
import _locale
import _string
import _thread
import builtins
import copyreg
import decimal
import functools
import io
import operator
import pickle
import struct
import sys
import time
import types
from collections import OrderedDict, defaultdict

from . import _engine, core, files, sockets
from .core import trusted

try:
    from . import tls
except ImportError:  # an interpreter without OpenSSL
    tls = None

# A program may replace builtins; what stands in for them must not call the replacements.
__builtins__ = dict(vars(builtins))

# ---- Output: written at commit, in order ---------------------------------------------------------------------------


def print_(*values, sep=" ", end="\n", file=None, flush=False):
    """Twin of ``print``: the text is made now and written at commit."""
    if file is None:
        file = sys.stdout
        if file is None:
            return
    text = (" " if sep is None else sep).join([str(value) for value in values]) + ("\n" if end is None else end)
    file.write(text)
    if flush:
        file.flush()


_text_write = _io.TextIOWrapper.write
_text_flush = _io.TextIOWrapper.flush
_buffered_write = _io.BufferedWriter.write
_buffered_flush = _io.BufferedWriter.flush


@trusted
def _is_outside(file):
    """Does what is written to this stream end in a file, where nobody sees it before the commit?"""
    while isinstance(file, (_io.TextIOWrapper, _io.BufferedWriter)):
        file = file.buffer if isinstance(file, _io.TextIOWrapper) else file.raw
    return type(file) is _io.FileIO


@trusted
def _writes_at_once(file):
    """Must this stream be written to now, since what comes of it can be seen?

    It does so alone, for a stream's state cannot be put back, unless it was made in this transaction around an object with
    a `write` in Python, which has barriers (what ``gzip`` does).
    """
    if _is_outside(file):
        return False
    if not (core.is_fresh(file) and isinstance(getattr(type(file.raw), "write", None), types.FunctionType)):
        core.exclusive("writing to a stream that can be read before the commit")
    return True


@trusted
def text_write(file, text):
    """Twin of ``TextIOWrapper.write``."""
    if file.closed or _writes_at_once(file):
        return _text_write(file, text)  # which raises what it has to
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    files.note_writing()
    core.defer(_text_write, file, text)
    return len(text)


@trusted
def text_flush(file):
    """Twin of ``TextIOWrapper.flush``."""
    if file.closed or _writes_at_once(file):
        return _text_flush(file)
    files.note_writing()
    core.defer(_text_flush, file)


@trusted
def buffered_writer(*args, **kwds):
    """Twin of ``BufferedWriter``."""
    return core.fresh(_io.BufferedWriter(*args, **kwds))


@trusted
def buffered_write(file, data):
    """Twin of ``BufferedWriter.write``."""
    core.open_all(data)
    if file.closed or _writes_at_once(file):
        return _buffered_write(file, data)
    data = bytes(data)
    files.note_writing()
    core.defer(_buffered_write, file, data)
    return len(data)


@trusted
def buffered_flush(file):
    """Twin of ``BufferedWriter.flush``."""
    if file.closed or _writes_at_once(file):
        return _buffered_flush(file)
    files.note_writing()
    core.defer(_buffered_flush, file)


# ---- Sorting with a key function -----------------------------------------------------------------------------------
# C code would compare what the function returns, which nobody has opened.  So the keys are made first, in Python.


def sorted_(iterable, /, *, key=None, reverse=False):
    """Twin of ``sorted``."""
    items = list(iterable)
    if key is None:
        core.open_all(items)
        return _in_order(items, items, reverse)
    return _in_order([key(item) for item in items], items, reverse)


def list_sort(self, /, *, key=None, reverse=False):
    """Twin of ``list.sort``.  The list is empty meanwhile, so that a change shows."""
    items = list.copy(self)
    list.clear(self)
    try:
        items = sorted_(items, key=key, reverse=reverse)
    finally:
        changed = list.__len__(self)
        list.__setitem__(self, slice(None), items)
    if changed:
        raise ValueError("list modified during sort")


@trusted
def _in_order(keys, items, reverse):
    core.open_all(keys)
    if keys is items:
        return _sorted(items, reverse=reverse)
    return [items[i] for i in _sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)]


_sorted = builtins.sorted
_no_default = object()


def _extreme(name, choose):
    def twin(*values, key=None, default=_no_default):
        if len(values) == 1:
            values = list(values[0])
            if not values:
                if default is _no_default:
                    raise ValueError(f"{name}() iterable argument is empty")
                return default
        elif not values:
            raise TypeError(f"{name} expected at least 1 argument, got 0")
        elif default is not _no_default:
            raise TypeError(f"Cannot specify a default for {name}() with multiple positional arguments")
        if key is None:
            return _choose(choose, values)
        keys = [key(value) for value in values]
        return values[_choose_index(choose, keys)]

    return twin


@trusted
def _choose(choose, values):
    core.open_all(values)
    return choose(values)


@trusted
def _choose_index(choose, keys):
    core.open_all(keys)
    return choose(range(len(keys)), key=keys.__getitem__)


# ---- Functions that look into the items they are given -------------------------------------------------------------


def all_(iterable, /):
    """Twin of ``all``."""
    for item in iterable:
        if not item:
            return False
    return True


def any_(iterable, /):
    """Twin of ``any``."""
    for item in iterable:
        if item:
            return True
    return False


def sum_(iterable, /, start=0):
    """Twin of ``sum``."""
    return _sum(list(iterable), start)


@trusted
def _sum(items, start):
    core.open_all(items)
    core.open_all(start)
    return builtins.sum(items, start)


def _row(i, row):
    """The key and the value in the i-th row that a dict is made of."""
    try:
        try:
            items = iter(row)
        except TypeError:
            raise TypeError("object is not iterable") from None
        pair = tuple(items)
    except TypeError as error:
        error.add_note(f"Cannot convert dictionary update sequence element #{i} to a sequence")
        raise
    if len(pair) != 2:
        raise ValueError(f"dictionary update sequence element #{i} has length {len(pair)}; 2 is required")
    return pair


def _ordered_row(_, row):
    """The same for an OrderedDict, which has other complaints."""
    pair = tuple(row)
    if len(pair) < 2:
        raise ValueError(f"need more than {len(pair)} value{'s' if not pair else ''} to unpack")
    if len(pair) > 2:
        raise ValueError("too many values to unpack (expected 2)")
    return pair


def _dict_twin(cls, before):
    """Twin of the constructor of a kind of dict, whose first arguments, `before` of them, are none of its contents."""

    row_of = _ordered_row if cls is OrderedDict else _row

    def twin(*args, **kwargs):
        if len(args) == before + 1:
            args = (*args[:before], _items_of(args[before], row_of))
        return _make(cls, args, kwargs)

    return twin


@trusted
def _make(cls, args, kwargs):
    for arg in args:
        core.open_items(arg)
    return _engine.capture(cls(*args, **kwargs))


def _items_of(source, row_of):
    """What a constructor of a dict is given, as something of which C code needs to open no more than the items."""
    if isinstance(source, dict):
        return source
    if hasattr(source, "keys"):
        return [(key, source[key]) for key in source.keys()]
    return [row_of(i, row) for i, row in enumerate(source)]


def dict_update(self, /, *others, **kwargs):
    """Twin of ``dict.update``: key by key, so that it conflicts with nothing but the same keys."""
    _update(self, dict.__setitem__, others, kwargs)


def ordered_dict_update(self, /, *others, **kwargs):
    """Twin of ``OrderedDict.update``."""
    _update(self, operator.setitem, others, kwargs, row_of=_ordered_row)


def dict_init(self, /, *others, **kwargs):
    """Twin of ``dict.__init__``."""
    _update(self, dict.__setitem__, others, kwargs, "dict")


def ordered_dict_init(self, /, *others, **kwargs):
    """Twin of ``OrderedDict.__init__``."""
    _update(self, operator.setitem, others, kwargs, "OrderedDict", _ordered_row)


def _update(self, put, others, kwargs, name="update", row_of=_row):
    if len(others) > 1:
        raise TypeError(f"{name} expected at most 1 argument, got {len(others)}")
    for other in others:
        if isinstance(other, dict):
            for key, value in other.items():
                put(self, key, value)
        elif hasattr(other, "keys"):
            for key in other.keys():
                put(self, key, other[key])
        else:
            for i, row in enumerate(other):
                put(self, *row_of(i, row))
    for key, value in kwargs.items():
        put(self, key, value)


def dict_subclass(cls, rows, /):
    """Twin of the call of a subclass of dict that has no constructor of its own, with an iterator of rows."""
    self = cls.__new__(cls)
    dict_update(self, rows)
    return self


# ---- Searching in sorted lists -------------------------------------------------------------------------------------


def bisect_left(a, x, lo=0, hi=None, *, key=None):
    """Twin of ``bisect_left``."""
    hi = _end_of_search(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def bisect_right(a, x, lo=0, hi=None, *, key=None):
    """Twin of ``bisect_right``."""
    hi = _end_of_search(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def _end_of_search(a, lo, hi):
    if lo < 0:
        raise ValueError("lo must be non-negative")
    return len(a) if hi is None else hi


def insort_left(a, x, lo=0, hi=None, *, key=None):
    """Twin of ``insort_left``."""
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_right(a, x, lo=0, hi=None, *, key=None):
    """Twin of ``insort_right``."""
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


# ---- Functions that call functions ---------------------------------------------------------------------------------


def reduce_(function, iterable, /, initial=_no_default):
    """Twin of ``functools.reduce``."""
    items = iter(iterable)
    if initial is _no_default:
        for initial in items:
            break
        else:
            raise TypeError("reduce() of empty iterable with no initial value")
    for item in items:
        initial = function(initial, item)
    return initial


def call(function, /, *args, **kwargs):
    """Twin of ``operator.call``."""
    return function(*args, **kwargs)


@trusted
def cmp_to_key(mycmp):
    """Twin of ``functools.cmp_to_key``."""
    return _cmp_to_key(core.guarded(mycmp))


_cmp_to_key = functools.cmp_to_key

# ---- Text and bytes ------------------------------------------------------------------------------------------------


def bytes_join(separator, iterable, /):
    """Twin of ``bytes.join``."""
    return _bytes_join(separator, list(iterable))


def bytearray_join(separator, iterable, /):
    """Twin of ``bytearray.join``: the separator cannot change its size meanwhile."""
    with memoryview(separator):
        return _bytes_join(separator, list(iterable))


@trusted
def _bytes_join(separator, items):
    core.open_items(separator)
    core.open_all(items)
    return separator.join(items)


#: formats none of whose fields names an attribute or an item of an argument
_plain_formats = set()


def str_format(self, /, *args, **kwargs):
    """Twin of ``str.format``."""
    if _looks_inside(self):
        return _format(self, args, kwargs, _Numbering(), 2)
    return _format_at_once(self, args, kwargs)


def str_format_map(self, mapping, /):
    """Twin of ``str.format_map``."""
    if type(mapping) is not dict or _looks_inside(self):
        return _format(self, None, mapping, _Numbering(), 2)
    return _format_at_once(self, (), mapping)


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
        _plain_formats.add(text)
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
    for literal, name, spec, conversion in list(_string.formatter_parser(text)):
        pieces.append(literal)
        if name is None:
            continue
        first, path = _string.formatter_field_name_split(name)
        value = _argument(numbering.number(first), args, kwargs)
        for is_attribute, part in list(path):
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
    """Twin of ``struct.iter_unpack``: a generator, which can be put back where it was."""
    return iter_unpack(struct.Struct(layout), buffer)


def iter_unpack(layout, buffer, /):
    """Twin of ``Struct.iter_unpack``."""
    _check_unpack(layout, buffer)
    view = memoryview(buffer)
    return (layout.unpack_from(view, i) for i in range(0, len(view.cast("B")), layout.size))


@trusted
def _check_unpack(layout, buffer):
    _iter_unpack(layout, buffer)


_iter_unpack = struct.Struct.iter_unpack


# ---- Pickles -------------------------------------------------------------------------------------------------------


def dumps(obj, protocol=None, *, fix_imports=True, buffer_callback=None):
    """Twin of ``pickle.dumps``: what is not plain data is pickled in Python, as it asks for itself."""
    if buffer_callback is None and _is_plain(obj):
        return _dumps(obj, protocol, fix_imports)
    return pickle._dumps(obj, protocol, fix_imports=fix_imports, buffer_callback=buffer_callback)


@trusted
def _is_plain(obj):
    core.open_items(copyreg.dispatch_table)
    return _engine.open_plain(obj)


@trusted
def _dumps(obj, protocol, fix_imports):
    return pickle.dumps(obj, protocol, fix_imports=fix_imports)


def loads(data, /, *, fix_imports=True, encoding="ASCII", errors="strict", buffers=()):
    """Twin of ``pickle.loads``."""
    return _loads(data, dict(fix_imports=fix_imports, encoding=encoding, errors=errors, buffers=buffers))


@trusted
def _loads(data, options):
    core.open_items(data)
    return _Unpickler(io.BytesIO(data), **options).load()


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
        raise TypeError(f"add_note() argument must be str, not {type(note).__name__}")
    if not hasattr(self, "__notes__"):
        self.__notes__ = []
    notes = self.__notes__
    if not isinstance(notes, list):
        raise TypeError("Cannot add note: __notes__ is not a list")
    list.append(notes, note)


@trusted
def enter_decimal_context(manager, /):
    """Twin of the beginning of ``with decimal.localcontext():``."""
    context = _enter_decimal_context(manager)
    return core.fresh(context) if core.is_fresh(manager) else context


_enter_decimal_context = type(decimal.localcontext()).__enter__


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


# ---- Locks ---------------------------------------------------------------------------------------------------------
# What they mean between transactions and threads: engine/mutexes.c.


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


@trusted
def sleep(seconds, /):
    """Twin of ``time.sleep``.  Who sleeps may wait for a thread, which may wait for a lock until this transaction ends."""
    if _engine.mutex_wanted():
        core.exclusive("sleeping while a thread waits for a lock that the transaction has taken")
    return _sleep(seconds)


_sleep = time.sleep

_lru_wrapper = functools._lru_cache_wrapper

#: functions of `heapq` that have a twin in C
HEAP = [
    f"{name}{suffix}" for name in ("heapify", "heappop", "heappush", "heappushpop", "heapreplace") for suffix in ("", "_max")
]

#: types whose instances, when called, are stood in for; `type` itself only where the engine says so
INSTANCE_TWINS = {
    type: dict_subclass,
}

TWINS = {
    builtins.print: print_,
    dict.update: dict_update,
    OrderedDict.update: ordered_dict_update,
    dict.__init__: dict_init,
    OrderedDict.__init__: ordered_dict_init,
    builtins.all: _engine.short_way(builtins.all, all_),
    builtins.any: _engine.short_way(builtins.any, any_),
    builtins.sorted: _engine.short_way(builtins.sorted, sorted_),
    builtins.sum: _engine.short_way(builtins.sum, sum_),
    builtins.min: _engine.short_way(builtins.min, _extreme("min", builtins.min)),
    builtins.max: _engine.short_way(builtins.max, _extreme("max", builtins.max)),
    dict: _engine.short_way(dict, _dict_twin(dict, 0)),
    OrderedDict: _dict_twin(OrderedDict, 0),
    defaultdict: _dict_twin(defaultdict, 1),
    _bisect.bisect_left: _engine.short_way(_bisect.bisect_left, bisect_left),
    _bisect.bisect_right: _engine.short_way(_bisect.bisect_right, bisect_right),
    _bisect.insort_left: insort_left,
    _bisect.insort_right: insort_right,
    functools.reduce: reduce_,
    functools.cmp_to_key: cmp_to_key,
    operator.call: call,
    str.format: _engine.short_way(str.format, str_format, _plain_formats),
    str.format_map: str_format_map,
    bytes.join: bytes_join,
    bytearray.join: bytearray_join,
    struct.iter_unpack: unpack_all,
    struct.Struct.iter_unpack: iter_unpack,
    _create_decimal: create_decimal,
    _locale.setlocale: setlocale,
    BaseException.add_note: add_note,
    _enter_decimal_context: enter_decimal_context,
    pickle.dumps: dumps,
    pickle.loads: loads,
    list.sort: list_sort,
    _text_write: text_write,
    _text_flush: text_flush,
    _io.BufferedWriter: buffered_writer,
    _buffered_write: buffered_write,
    _buffered_flush: buffered_flush,
    _sleep: sleep,
    **_lock_twins(_thread.lock),
    **_lock_twins(_thread.RLock),
    **{function: _engine.c_twin(function) for function in (
        *map(vars(_heapq).get, HEAP), _collections._count_elements, builtins.exec, builtins.eval,
        builtins.__import__, type.__subclasses__, _abc._abc_subclasscheck, _lru_wrapper.cache_info, _lru_wrapper.cache_clear)},
    **files.TWINS,
    **sockets.TWINS,
    **(tls.TWINS if tls is not None else {}),
}
