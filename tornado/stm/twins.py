"""Transactional stand-ins for C callables.

A call barrier that finds a C callable which is a key of `TWINS` puts its twin into the call instead.  Twins marked
`trusted` know about transactions: they lock with `core.own`, log undo with `core.on_abort` and put effects off with
`core.defer`.  The others are ordinary Python: the instrumenter gives them barriers like a user's function.
"""

import _io
import _random
import _thread
import builtins
import functools
import random
import sys
import threading
import types

from . import core, sockets
from .core import trusted

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
def text_write(file, text):
    """Twin of ``TextIOWrapper.write``."""
    if not isinstance(text, str):
        raise TypeError(f"write() argument must be str, not {type(text).__name__}")
    core.defer(_text_write, file, text)
    return len(text)


@trusted
def text_flush(file):
    """Twin of ``TextIOWrapper.flush``."""
    core.defer(_text_flush, file)


@trusted
def buffered_write(file, data):
    """Twin of ``BufferedWriter.write``."""
    core.open_all(data)
    data = bytes(data)
    core.defer(_buffered_write, file, data)
    return len(data)


@trusted
def buffered_flush(file):
    """Twin of ``BufferedWriter.flush``."""
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


def dict_(*args, **kwargs):
    """Twin of ``dict(...)``."""
    if len(args) == 1 and not hasattr(args[0], "keys"):
        args = (list(args[0]),)
    return _dict(args, kwargs)


@trusted
def _dict(args, kwargs):
    core.open_all(args)
    return dict(*args, **kwargs)


def dict_update(self, /, *others, **kwargs):
    """Twin of ``dict.update``: key by key, so that it conflicts with nothing but the same keys."""
    if len(others) > 1:
        raise TypeError(f"update expected at most 1 argument, got {len(others)}")
    for other in others:
        if isinstance(other, dict):
            for key, value in other.items():
                dict.__setitem__(self, key, value)
        elif hasattr(other, "keys"):
            for key in other.keys():
                dict.__setitem__(self, key, other[key])
        else:
            for i, row in enumerate(other):
                pair = _row(i, row)
                if len(pair) != 2:
                    raise ValueError(
                        f"dictionary update sequence element #{i} has length {len(pair)}; 2 is required"
                    )
                dict.__setitem__(self, *pair)
    for key, value in kwargs.items():
        dict.__setitem__(self, key, value)


def _row(i, row):
    try:
        try:
            items = iter(row)
        except TypeError:
            raise TypeError("object is not iterable") from None
        return tuple(items)
    except TypeError as error:
        error.add_note(f"Cannot convert dictionary update sequence element #{i} to a sequence")
        raise


def dict_subclass(cls, rows, /):
    """Twin of the call of a subclass of dict that has no constructor of its own, with an iterator of rows."""
    self = cls.__new__(cls)
    dict_update(self, rows)
    return self


def exec_(source, /, globals=None, locals=None, *, closure=None):
    """Twin of ``exec``: compiled code that runs in a namespace of its own runs instrumented."""
    return _exec(source, globals, locals, closure)


@trusted
def _exec(source, namespace, local, closure):
    if isinstance(source, types.CodeType) and namespace is not None and local is None and closure is None:
        core.change(namespace)
        return exec(core.instrument_module_code(source, namespace), namespace)
    core.exclusive("exec of text, or in the namespace of its caller")
    if namespace is None:
        caller = sys._getframe(2)
        namespace, local = caller.f_globals, caller.f_locals if local is None else local
    return exec(source, namespace, local, closure=closure)


# ---- Locks ---------------------------------------------------------------------------------------------------------
# Transactions exclude one another by themselves, so a lock that a transaction takes and gives back is left alone: it
# is only looked at, for threads that are no transactions may hold it.  What a transaction still holds when it commits
# is taken in earnest then, and others that have looked at the lock wait or begin again.


class _Held(threading.local):
    """The locks that this thread's transaction holds, each as often as it has been acquired."""

    @trusted  # C code calls it, in each thread anew
    def __init__(self):
        self.locks = []


_held = _Held()


def _lock_twins(lock_type):
    acquire_ = lock_type.acquire
    release_ = lock_type.release
    is_locked = getattr(lock_type, "locked")

    @trusted
    def acquire(lock, blocking=True, timeout=-1):
        if core.is_exclusive():
            return acquire_(lock, blocking, timeout)
        held = _held.locks
        core.share(lock)
        if lock_type is _thread.lock and any(each is lock for each in held):
            # Waiting for oneself: as on one thread.
            if not blocking:
                return False
            core.exclusive("waiting for a lock")
            return acquire_(lock, blocking, timeout)
        if is_locked(lock):
            if not blocking:
                return False
            core.exclusive("waiting for a lock that another thread holds")
            return acquire_(lock, blocking, timeout)
        if not held:
            core.before_commit(settle)
            core.on_abort(held.clear)
        held.append(lock)
        return True

    @trusted
    def release(lock):
        held = _held.locks
        for i in range(len(held) - 1, -1, -1):
            if held[i] is lock:
                del held[i]
                return
        if core.is_exclusive():
            release_(lock)
            return
        core.own(lock)
        if not is_locked(lock):
            release_(lock)  # raises what it has to
        core.defer(release_, lock)

    @trusted
    def locked(lock):
        if any(each is lock for each in _held.locks):
            return True
        core.share(lock)
        return is_locked(lock)

    @trusted
    def is_owned(lock):
        return any(each is lock for each in _held.locks) or lock._is_owned()

    @trusted
    def enter(lock):
        return acquire(lock)

    @trusted
    def leave(lock, *exc):
        release(lock)

    twins = {is_locked: locked}
    if hasattr(lock_type, "_is_owned"):
        twins[lock_type._is_owned] = is_owned
    return twins | {
        acquire_: acquire,
        release_: release,
        lock_type.__enter__: enter,
        lock_type.__exit__: leave,
    }


@trusted
def settle():
    """Before the commit, or when the transaction goes exclusive: take in earnest what it still holds."""
    held = _held.locks
    for lock in held:
        core.own(lock)
        core.defer(type(lock).acquire, lock, False)
    core.defer(held.clear)


# ---- Random numbers ------------------------------------------------------------------------------------------------


def _random_twin(method):
    @trusted
    def twin(generator, *args):
        # The module's own generator has no order that anybody could observe.
        if generator is not random._inst:
            core.own(generator)
            core.on_abort(_random.Random.setstate, generator, _random.Random.getstate(generator))
        return method(generator, *args)

    return twin


# ---- functools.lru_cache -------------------------------------------------------------------------------------------

_memos = {}
_MISSING = object()


@trusted
def _memo_of(wrapper):
    found = _memos.get(id(wrapper))
    if found is None:
        parameters = wrapper.cache_parameters()
        maxsize = parameters["maxsize"]
        found = _memos.setdefault(
            id(wrapper), (wrapper, {}, float("inf") if maxsize is None else maxsize, parameters["typed"])
        )
    return found


def lru_cached(wrapper, /, *args, **kwargs):
    """Twin of a call of an ``lru_cache`` function: remembered in a dict of ours, so that keys do not conflict."""
    _, memo, maxsize, typed = _memo_of(wrapper)
    key = args
    if kwargs or typed:
        key = functools._make_key(args, kwargs, typed)
    value = memo.get(key, _MISSING)
    if value is _MISSING:
        # The original remembers what was called before, and by C code; it cannot be rolled back.
        value = _ask_original(wrapper, args, kwargs, memo, maxsize)
        if maxsize:
            memo[key] = value
    return value


@trusted
def _ask_original(wrapper, args, kwargs, memo, maxsize):
    core.exclusive("a function with lru_cache is called with new arguments")
    if len(memo) >= maxsize:
        memo.clear()
    return wrapper(*args, **kwargs)


@trusted
def lru_clear(wrapper):
    """Twin of ``cache_clear``."""
    core.exclusive("lru_cache.cache_clear")
    _memo_of(wrapper)[1].clear()
    _lru_clear(wrapper)


_lru_wrapper = functools._lru_cache_wrapper
_lru_clear = _lru_wrapper.cache_clear

#: types whose instances, when called, are stood in for; `type` itself only where the engine says so
INSTANCE_TWINS = {
    _lru_wrapper: lru_cached,
    type: dict_subclass,
}

TWINS = {
    builtins.print: print_,
    builtins.exec: exec_,
    dict.update: dict_update,
    builtins.sorted: sorted_,
    builtins.all: all_,
    builtins.any: any_,
    builtins.sum: sum_,
    dict: dict_,
    list.sort: list_sort,
    builtins.min: _extreme("min", builtins.min),
    builtins.max: _extreme("max", builtins.max),
    _text_write: text_write,
    _text_flush: text_flush,
    _buffered_write: buffered_write,
    _buffered_flush: buffered_flush,
    _lru_clear: lru_clear,
    **_lock_twins(_thread.lock),
    **_lock_twins(_thread.RLock),
    **{getattr(_random.Random, name): _random_twin(getattr(_random.Random, name))
       for name in ("random", "getrandbits", "seed", "setstate")},
    **sockets.TWINS,
}
