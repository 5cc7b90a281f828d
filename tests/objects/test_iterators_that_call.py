"""Iterators that call C functions or compare, made and used up in one transaction by the interpreter's own instructions."""

import functools
import itertools
import operator
from collections import ChainMap, deque

import pytest

from interpreters import needs_engine
from tornado.stm import activation, transaction

needs_engine()

from meeting import CONFLICT, meet
from rolled_back import rolled_back, unraisable_exceptions  # noqa: F401, a fixture

activation.activate()


def loop(iterator):
    for _ in iterator:
        pass


def yield_all(iterator):
    yield from iterator


def unpack(iterator):
    first, *_ = iterator


#: what takes all that such an iterator gives
CONSUMERS = {
    "loop": loop,
    "comprehension": lambda iterator: [item for item in iterator],  # noqa: C416
    "unpacking": unpack,
    "spread": lambda iterator: [*iterator],
    "yield from": lambda iterator: list(yield_all(iterator)),
    "list": list,
    "next": lambda iterator: (next(iterator), next(iterator, None)),
}

#: {what: an object, what changes it, an iterator that looks at it}
READERS = {
    "map": (lambda: {"a": 1}, lambda d: d.update(a=2), lambda d: map(d.get, ["a"])),
    "map len": (lambda: [1], lambda items: items.append(2), lambda items: map(len, [items])),
    "filter": (lambda: {"a": 1}, lambda d: d.update(a=0), lambda d: filter(d.get, ["a"])),
    "filter truth": (lambda: [1], lambda items: items.append(2), lambda items: filter(None, [items])),
    "filterfalse": (lambda: {"a": 0}, lambda d: d.update(a=1), lambda d: itertools.filterfalse(d.get, ["a"])),
    "takewhile": (lambda: {"a": 1}, lambda d: d.update(a=0), lambda d: itertools.takewhile(d.get, ["a"])),
    "dropwhile": (lambda: {"a": 0}, lambda d: d.update(a=1), lambda d: itertools.dropwhile(d.get, ["a"])),
    "starmap": (lambda: {"a": 1}, lambda d: d.update(a=2), lambda d: itertools.starmap(d.get, [("a",)])),
    "accumulate": (lambda: {3: 1}, lambda d: d.update({3: 2}), lambda d: itertools.accumulate([3, 4], d.get)),
    "groupby": (lambda: {"a": 1}, lambda d: d.update(a=2), lambda d: itertools.groupby(["a"], d.get)),
    "compress": (lambda: [1], lambda items: items.append(2), lambda items: itertools.compress("a", [items])),
    "iter": (lambda: [1, 2], lambda items: items.append(3), lambda items: iter(functools.partial(len, items), len(items))),
    "ChainMap": (lambda: {"a": 1}, lambda d: d.update(b=2), lambda d: iter(ChainMap(d))),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("consume", CONSUMERS.values(), ids=CONSUMERS)
def test_what_it_looks_at_conflicts_with_a_change(name, consume):
    make, change, iterator = READERS[name]

    def look(obj):
        try:
            consume(iterator(obj))
        except (StopIteration, ValueError):
            pass  # there is none

    assert meet(lambda: (make(),), change, look) == CONFLICT
    assert meet(lambda: (make(),), look, change) == CONFLICT


#: {what: an object, an iterator that changes it}
WRITERS = {
    "list.append": (lambda: [1], lambda items: map(items.append, [2, 3])),
    "list.pop": (lambda: [1, 2, 3], lambda items: map(items.pop, [0, 0])),
    "dict.pop": (lambda: {1: 1, 2: 2, 3: 3}, lambda d: map(d.pop, [1, 2])),
    "dict.__setitem__": (lambda: {1: 1}, lambda d: map(d.__setitem__, [1, 2], [3, 4])),
    "set.add": (lambda: {1}, lambda s: map(s.add, [2, 3])),
    "set.discard": (lambda: {1, 2}, lambda s: filter(s.discard, [1, 2])),
    "deque.popleft": (lambda: deque([1, 2, 3]), lambda d: iter(d.popleft, 3)),
    "setitem": (dict, lambda d: itertools.starmap(operator.setitem, [(d, 1, 2)])),
    "iadd": (lambda: [1], lambda items: itertools.accumulate([items, [2]], operator.iadd)),
    "groupby": (lambda: [1, 2, 3], lambda items: itertools.groupby([0, 0], items.pop)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("consume", CONSUMERS.values(), ids=CONSUMERS)
def test_what_it_changes_is_put_back(name, consume):
    make, iterator = WRITERS[name]

    def change(obj):
        try:
            consume(iterator(obj))
        except (StopIteration, ValueError):
            pass  # there is none

    rolled_back(change, make())


@pytest.mark.parametrize("consume", [CONSUMERS["loop"], CONSUMERS["list"]], ids=["loop", "list"])
def test_one_that_lies_where_another_has_ended(consume):
    """The second `map` is where the first one was, as a rule; 200 transactions take one each."""
    stock = {"left": 200}

    def take():
        left = []
        consume(map(left.append, map(stock.get, ["left"])))
        for _ in range(2000):
            pass
        consume(map(stock.__setitem__, ["left"], [left[0] - 1]))

    queue = transaction.TransactionQueue()
    for _ in range(200):
        queue.add(take)
    queue.run(4)
    assert stock == {"left": 0}
