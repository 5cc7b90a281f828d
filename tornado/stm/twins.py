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

from . import core, sockets
from .core import trusted

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


# ---- Locks ---------------------------------------------------------------------------------------------------------
# Transactions exclude one another by themselves, so a lock that a transaction takes and gives back is left alone: it
# is only looked at, for threads that are no transactions may hold it.  What a transaction still holds when it commits
# is taken in earnest then, and others that have looked at the lock wait or begin again.


class _Held(threading.local):
    """The locks that this thread's transaction holds, each as often as it has been acquired."""

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
        core.share(lock)
        held = _held.locks
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
    def enter(lock):
        return acquire(lock)

    @trusted
    def leave(lock, *exc):
        release(lock)

    return {
        acquire_: acquire,
        release_: release,
        lock_type.__enter__: enter,
        lock_type.__exit__: leave,
    }


@trusted
def settle():
    """Before the commit: take in earnest what the transaction still holds."""
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
        value = wrapper.__wrapped__(*args, **kwargs)
        if maxsize:
            _make_room(memo, maxsize)
            memo[key] = value
    return value


@trusted
def _make_room(memo, maxsize):
    if len(memo) >= maxsize:
        core.exclusive("a full lru_cache starts again")
        memo.clear()


@trusted
def lru_clear(wrapper):
    """Twin of ``cache_clear``."""
    core.exclusive("lru_cache.cache_clear")
    _memo_of(wrapper)[1].clear()
    _lru_clear(wrapper)


_lru_wrapper = functools._lru_cache_wrapper
_lru_clear = _lru_wrapper.cache_clear

TWINS = {
    builtins.print: print_,
    _text_write: text_write,
    _text_flush: text_flush,
    _buffered_write: buffered_write,
    _buffered_flush: buffered_flush,
    _lru_wrapper: lru_cached,
    _lru_clear: lru_clear,
    **_lock_twins(_thread.lock),
    **_lock_twins(_thread.RLock),
    **{getattr(_random.Random, name): _random_twin(getattr(_random.Random, name))
       for name in ("random", "getrandbits", "seed", "setstate")},
    **sockets.TWINS,
}
