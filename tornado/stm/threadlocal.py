"""Values that each thread has for itself, so that transactions on several threads do not conflict over them.

Which thread runs a transaction is open, so what it finds there may come from any that has run before: they are for caches
and scratch space.
"""

from threading import local

from .counting import count

__all__ = ["local", "threadlocalproperty"]

#: the attribute of an instance that holds the values of all its properties
_VALUES = "_threadlocalproperties"


class threadlocalproperty:
    """An attribute of instances whose value each thread has for itself.  The class must give its instances a ``__dict__``.

    Args:
        factory: makes the value where the thread has none; None: reading it raises AttributeError then.
    """

    def __init__(self, factory=None):
        self._factory = factory
        self._key = f"{_VALUES}.{count()}"
        self._name = None

    def __set_name__(self, cls, name):
        self._name = name

    def __get__(self, obj, cls=None):
        if obj is None:
            return self
        values = self._values(obj)
        try:
            return values[self._key]
        except KeyError:
            if self._factory is None:
                raise self._missing(obj) from None
        value = values[self._key] = self._factory()
        return value

    def __set__(self, obj, value):
        self._values(obj)[self._key] = value

    def __delete__(self, obj):
        try:
            del self._values(obj)[self._key]
        except KeyError:
            raise self._missing(obj) from None

    def _values(self, obj):
        """This thread's values of the instance, by the keys of their properties."""
        attributes = obj.__dict__
        values = attributes.get(_VALUES)
        if values is None:
            values = attributes.setdefault(_VALUES, local())
        return values.__dict__

    def _missing(self, obj):
        return AttributeError(f"{type(obj).__name__!r} object has no attribute {self._name!r} in this thread")
