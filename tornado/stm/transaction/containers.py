"""PyPy-STM's containers whose different keys do not conflict.

Here that is so for every dict and set, so these only add what PyPy-STM's do otherwise: iteration goes over what there was
when it began, and the identity of a key may count in the place of its value.  Each is equal to itself only, so that they
are hashable.
"""

from collections.abc import MutableMapping, MutableSet
from reprlib import recursive_repr

__all__ = ["hashtable", "stmdict", "stmiddict", "stmidset", "stmset"]


class _Identity:
    """Each is equal to itself only."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other


class stmdict(_Identity, dict):
    """A dict that may change while somebody iterates over it: ``keys``, ``values`` and ``items`` are lists."""

    __slots__ = ("__weakref__",)

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        """A list of the keys."""
        return list(dict.keys(self))

    def values(self):
        """A list of the values."""
        return list(dict.values(self))

    def items(self):
        """A list of pairs of a key and its value."""
        return list(dict.items(self))


#: PyPy-STM's has integers as keys
hashtable = stmdict


class stmset(_Identity, set):
    """A set that may change while somebody iterates over it."""

    __slots__ = ()

    def __iter__(self):
        return iter(frozenset(self))


class stmiddict(_Identity, MutableMapping):
    """A mapping whose keys are objects, hashable or not, each equal to itself only.  It is true, also while it is empty."""

    def __init__(self, items=()):
        self._items = {}  # id of the key -> (key, value); the key lives as long as that
        self.update(items)

    def __getitem__(self, key):
        try:
            return self._items[id(key)][1]
        except KeyError:
            raise KeyError(key) from None

    def __setitem__(self, key, value):
        self._items[id(key)] = key, value

    def __delitem__(self, key):
        try:
            del self._items[id(key)]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key):
        return id(key) in self._items

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        return iter([key for key, _ in self._items.values()])

    def __bool__(self):
        return True  # PyPy-STM's have no length

    @recursive_repr("...")
    def __repr__(self):
        return f"{type(self).__name__}({list(self.items())!r})"


class stmidset(_Identity, MutableSet):
    """A set of objects, hashable or not, each equal to itself only.  It is true, also while it is empty."""

    def __init__(self, elements=()):
        self._elements = stmiddict()
        for element in elements:
            self.add(element)

    def add(self, element):
        """Add it unless this very object is there."""
        self._elements[element] = None

    def discard(self, element):
        """Remove this very object if it is there."""
        self._elements.pop(element, None)

    def __contains__(self, element):
        return element in self._elements

    def __len__(self):
        return len(self._elements)

    def __bool__(self):
        return True

    def __iter__(self):
        return iter(self._elements)

    @recursive_repr("...")
    def __repr__(self):
        return f"{type(self).__name__}({list(self)!r})"
