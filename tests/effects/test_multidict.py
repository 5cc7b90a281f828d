"""multidict's dicts take numbers from one place; those of releases 6 and 7 do so in different ways."""

import threading

import pytest

from meeting import APART, CONFLICT, meet
from tornado.stm import activation, core, testing
from tornado.stm.c_functions import libraries as libraries_of_c
from tornado.stm.patches import libraries

try:
    import multidict
except ImportError:
    multidict = None

needs_multidict = pytest.mark.skipif(multidict is None, reason="multidict is not installed")


def taken_as_7():
    return next(libraries.numbers)


def taken_as_6():
    v = libraries.numbers
    v[0] += 1
    return v[0]


def taken_as_6_free_threaded():
    with libraries.no_lock:
        v = libraries.numbers[0] + 1
        libraries.numbers[0] = v
    return v


@pytest.mark.parametrize("taken", [taken_as_7, taken_as_6, taken_as_6_free_threaded])
def test_numbers_are_all_different(taken):
    found = []

    def take():
        found.extend([taken() for _ in range(1000)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 4000


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
@pytest.mark.parametrize("taken", [taken_as_7, taken_as_6, taken_as_6_free_threaded])
def test_numbers_make_no_conflict(taken):
    activation.activate()
    assert meet(lambda: (), taken, taken) == APART


@needs_multidict
def test_dicts_of_the_installed_release():
    def add(heap, n):
        heap.add(str(n % 2), n)
        return list(heap.items())

    def drop(heap, n):
        return heap.popall(str(n % 2), None), len(heap)

    calls = [(add, 1), (drop, 0), (add, 2), (add, 3), (drop, 1), (add, 4)] * 2
    testing.check_serializable(lambda: multidict.MultiDict({"0": 0}), calls, runs=20, seed=1, observe=lambda heap: list(heap.items()))


#: what programs do with a dict that the transaction has made, or only look at
def use_own(shared):
    heap = multidict.CIMultiDict({"a": "1"})
    heap["b"] = "2"
    heap.add("A", "3")
    heap.extend([["c", "4"]])
    heap.update(shared)
    copy = heap.copy()
    copy["d"] = "5"
    del heap["b"]
    assert heap.popall("a") and heap.pop("c") and "b" not in heap
    assert multidict.istr("D") in copy and list(copy.items()) and dict(copy)


def look(shared):
    proxy = multidict.CIMultiDictProxy(shared)
    for heap in shared, proxy:
        assert heap["X"] == heap.get("x") and "x" in heap and len(heap) == 1 and heap.getall("x") == ["y"]
        assert [*heap] == [*heap.keys()] and [*heap.values()] == ["y"] and sorted(heap.items()) == [("x", "y")]
        assert heap == {"x": "y"} and "y" in repr(heap)


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
@needs_multidict
@pytest.mark.parametrize("use", [use_own, look])
def test_own_dicts_and_looks_keep_nobody_out(use):
    if not libraries_of_c.covers("multidict") or multidict.MultiDict.__module__ != "multidict._multidict":
        pytest.skip("another release of multidict, or its Python parts")
    activation.activate()
    shared = multidict.CIMultiDict({"x": "y"})
    assert meet(lambda: (shared,), use, use) == APART
    before = core.stats()["exclusives"]
    core.Transaction(use, (shared,)).run()
    assert core.stats()["exclusives"] == before


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
@needs_multidict
def test_pairs_that_a_dict_is_made_of_may_be_lists():
    if not libraries_of_c.covers("multidict") or multidict.MultiDict.__module__ != "multidict._multidict":
        pytest.skip("another release of multidict, or its Python parts")
    activation.activate()
    assert meet(lambda: ([["a", "1"]],), lambda pairs: pairs[0].reverse(), multidict.MultiDict) == CONFLICT


@needs_multidict
@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")
@pytest.mark.parametrize("look", [
    lambda values, m: repr(m), lambda values, m: repr(m.values()), lambda values, m: f"{m.items()}", lambda values, m: f"{[m.values()]}",
])  # fmt: skip
def test_what_a_view_shows_is_read(look):
    def make():
        values = [1]
        return values, multidict.MultiDict(a=values)

    assert meet(make, look, lambda values, m: values.append(2)) == CONFLICT
