"""PyPy-STM's containers whose different keys do not conflict.

Here that is so for every dict and set, so these only add what PyPy-STM's do otherwise: iteration goes over what there was
when it began, and the identity of a key may count in the place of its value.  Each is equal to itself only, so that they
are hashable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSet
from reprlib import recursive_repr
from typing import Any, TypeVar

__all__ = ["hashtable", "stmdict", "stmiddict", "stmidset", "stmset"]

K = TypeVar("K")
V = TypeVar("V")


class _Identity:
    """Each is equal to itself only."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


class stmdict(_Identity, dict[K, V]):  # type: ignore[misc]  # dicts have no hash
    """A dict that may change while somebody iterates over it: ``keys``, ``values`` and ``items`` are lists."""

    __slots__ = ("__weakref__",)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def keys(self) -> list[K]:  # type: ignore[override]
        """A list of the keys."""
        return list(dict.keys(self))

    def values(self) -> list[V]:  # type: ignore[override]
        """A list of the values."""
        return list(dict.values(self))

    def items(self) -> list[tuple[K, V]]:  # type: ignore[override]
        """A list of pairs of a key and its value."""
        return list(dict.items(self))


#: PyPy-STM's has integers as keys
hashtable = stmdict


class stmset(_Identity, set[K]):  # type: ignore[misc]  # likewise
    """A set that may change while somebody iterates over it."""

    __slots__ = ()

    def __iter__(self) -> Iterator[K]:
        return iter(frozenset(self))


class stmiddict(_Identity, MutableMapping[K, V]):
    """A mapping whose keys are objects, hashable or not, each equal to itself only.  It is true, also while it is empty."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items: dict[int, tuple[K, V]] = {}  # id of the key -> (key, value); the key lives as long as that
        self.update(items)

    def __getitem__(self, key: K) -> V:
        try:
            return self._items[id(key)][1]
        except KeyError:
            raise KeyError(key) from None

    def __setitem__(self, key: K, value: V) -> None:
        self._items[id(key)] = key, value

    def __delitem__(self, key: K) -> None:
        try:
            del self._items[id(key)]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return id(key) in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, _ in self._items.values()])

    def __bool__(self) -> bool:
        return True  # PyPy-STM's have no length

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, in which the keys may be other objects."""
        return vars(self) | {"_items": list(self._items.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _items={id(key): (key, value) for key, value in state["_items"]})

    @recursive_repr("...")
    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.items())!r})"


class stmidset(_Identity, MutableSet[K]):
    """A set of objects, hashable or not, each equal to itself only.  It is true, also while it is empty."""

    def __init__(self, elements: Iterable[K] = ()) -> None:
        self._elements: stmiddict[K, None] = stmiddict()
        for element in elements:
            self.add(element)

    def add(self, element: K) -> None:
        """Add it unless this very object is there."""
        self._elements[element] = None

    def discard(self, element: K) -> None:
        """Remove this very object if it is there."""
        self._elements.pop(element, None)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __len__(self) -> int:
        return len(self._elements)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[K]:
        return iter(self._elements)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles."""
        return vars(self) | {"_elements": stmiddict(self._elements)}

    @recursive_repr("...")
    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"
