"""Values that each thread has for itself, so that transactions on several threads do not conflict over them.

Which thread runs a transaction is open, so what it finds there may come from any that has run before: they are for caches
and scratch space.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import local
from typing import Any, Generic, TypeVar, overload

from .. import core
from ..core import trusted

__all__ = ["local", "threadlocalproperty"]


T = TypeVar("T")


class threadlocalproperty(Generic[T]):
    """An attribute of instances whose value each thread has for itself.

    The values lie beside the instance, not in it: copies, pickles and comparisons of instances know nothing of them.  They
    die with it, and with their thread.  The class must allow weak references to its instances (``__weakref__``, where it
    has ``__slots__``).

    Args:
        factory: makes the value where the thread has none; None: reading it raises AttributeError then.
    """

    def __init__(self, factory: Callable[[], T] | None = None) -> None:
        self._factory = factory
        self._name: str | None = None
        self._locals: dict[int, tuple[weakref.ref[Any], local]] = {}  # id of an instance -> (weak reference to it, what holds its values)

    def __set_name__(self, cls: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, obj: None, cls: type | None = None) -> threadlocalproperty[T]: ...

    @overload
    def __get__(self, obj: object, cls: type | None = None) -> T: ...

    def __get__(self, obj: object, cls: type | None = None) -> threadlocalproperty[T] | T:
        if obj is None:
            return self
        values: dict[str, T] = self._values(obj).__dict__
        try:
            return values["value"]
        except KeyError:
            if self._factory is None:
                raise self._missing(obj) from None
        value = values["value"] = self._factory()
        return value

    def __set__(self, obj: object, value: T) -> None:
        self._values(obj).value = value

    def __delete__(self, obj: object) -> None:
        try:
            del self._values(obj).value
        except AttributeError:
            raise self._missing(obj) from None

    @trusted
    def clear(self, obj: object) -> None:
        """Remove the values that all threads have in this instance.  In a transaction it runs alone."""
        core.exclusive("threadlocalproperty.clear")
        self._locals.pop(id(obj), None)

    @trusted
    def _values(self, obj: object) -> local:
        """The `threading.local` of the instance.

        That there is one is no state of the program, so transactions find and make it without locks; an attempt that is
        rolled back leaves it.  The interpreter calls `forget` before another object can lie where this one did.
        """
        key, found = id(obj), self._locals
        entry = found.get(key)
        if entry is None:

            @trusted
            def forget(reference: object) -> None:
                found.pop(key, None)

            entry = found.setdefault(key, (weakref.ref(obj, forget), local()))
        return entry[1]

    def _missing(self, obj: object) -> AttributeError:
        return AttributeError(f"{type(obj).__name__!r} object has no attribute {self._name!r} in this thread")
