"""numpy: arrays are read by many transactions, and changed by the one that has made them."""

import functools
import io
import operator
import struct

import pytest

from beside import is_irrevocable, needs_release, runs_beside_others
from meeting import APART, CONFLICT, Meeting, is_alone, meet
from tornado.stm import core, testing

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def np():
    return needs_release("numpy")


def reading(np, shared):
    """What handlers compute from arrays that they share."""
    total = (shared + 1) * [[1.0, 2.0, 3.0]] @ np.ones((3, 2)) - shared.mean()
    chosen = shared[shared > 1], shared[1:, [0, 2]], np.where(shared > 1, shared, 0), np.sort(shared)[0]
    return (
        total.tolist(), [each.tolist() for each in chosen], shared.sum(axis=0).tolist(), float(np.median(shared)), np.linalg.norm(shared).item(),
        np.concatenate([shared, shared]).shape, np.percentile(shared, 30).item(), np.exp(shared).max().item(), shared.dtype.name, shared[0, 0] + 1,
    )  # fmt: skip


def making(np, shared):
    """What they do to arrays of their own."""
    made = np.zeros((2, 3))
    made[0] = shared[0]
    made += shared
    np.sqrt(made, out=made)
    row = made[1]
    row *= 2
    copy = shared - 1
    copy[copy < 1] = 7
    copy.sort(axis=1)
    np.add(copy, made, copy)
    with np.errstate(divide="ignore"):
        copy /= np.arange(3)
    return made.tolist(), copy.tolist(), np.random.default_rng(3).integers(100)


@needs_threads
@pytest.mark.parametrize("use", [reading, making])
def test_arrays_are_computed_with_beside_others(np, use):
    shared = np.arange(6.0).reshape(2, 3)
    assert runs_beside_others(use, np, shared) == use(np, shared)
    assert meet(lambda: (np, shared), use, use) == APART


def changes_of_arrays(np):
    """Functions that change an array that others have, by all the ways that do."""
    shared, only_in_a_tuple, only_in_a_method = np.arange(4.0), (np.ones(4), 1, np.ones(4)), [np.arange(4.0).sort]

    def put():
        shared[0] = 1

    def put_into_a_view():
        view = shared[1:]
        view[0] = 1

    def add():
        array = shared
        array += 1

    return {
        "item": put, "view": put_into_a_view, "in place": add, "setitem": lambda: operator.setitem(shared, 0, 1),
        "iadd": lambda: operator.iadd(shared, 1), "out": lambda: np.add(1, 1, out=shared), "outs": lambda: np.add(1, 1, out=(shared,)),
        "position": lambda: np.add(1, 1, shared), "method": lambda: shared.cumsum(0, None, shared), "fill": lambda: shared.fill(1),
        "reshaped": lambda: shared.reshape(2, 2).T.sort(), "bound": lambda: only_in_a_method[0](), "spread": lambda: np.add(*only_in_a_tuple),
        "partial": functools.partial(np.add, 1, 1, np.ones(4)), "reduced": lambda: np.add.reduce(np.ones((2, 4)), 0, None, shared),
        "mean": lambda: np.mean(np.ones((2, 4)), axis=0, out=shared), "joined": lambda: np.concatenate([[1, 2], [3, 4]], 0, shared),
        "copied": lambda: np.copyto(shared, 1), "copied by name": lambda: np.copyto(dst=shared, src=1), "at": lambda: np.add.at(shared, 0, 1),
        "memory": lambda: operator.setitem(memoryview(shared), 0, 1.0), "packed": lambda: struct.pack_into("d", shared, 0, 1.0),
        "read": lambda: io.BytesIO(bytes(32)).readinto(shared), "random": lambda: np.random.default_rng(1).random(4, float, shared),
        "called back": lambda: np.frompyfunc([].append, 1, 1)(shared), "objects": lambda: np.array([[], {}], dtype=object)[0],
    }  # fmt: skip


@needs_threads
def test_who_changes_an_array_that_others_have_runs_alone(np):
    def is_alone_after(change):
        change()
        return is_alone()

    found = {name: core.Transaction(is_alone_after, (change,)).run() for name, change in changes_of_arrays(np).items()}
    assert set(found.values()) == {True}, found


@needs_threads
@pytest.mark.parametrize("use", [
    lambda np, rows: np.ones((2, 2)) + rows, lambda np, rows: np.add(1, rows), lambda np, rows: np.array(rows), lambda np, rows: np.sum(rows),
    lambda np, rows: np.ones((2, 2)) == rows, lambda np, rows: operator.setitem(np.ones((2, 2)), slice(None), rows),
    lambda np, rows: operator.add(np.ones((2, 2)), rows), lambda np, rows: np.ones((9, 9))[rows],
])  # fmt: skip
def test_lists_that_are_computed_with_are_read_to_the_bottom(np, use):
    def make():
        return np, [[1, 2], [3, 4]]

    for _ in range(2):
        core.Transaction(use, make()).run()
    assert Meeting(make, use, lambda np, rows: rows[0].reverse()).run() == CONFLICT


@needs_threads
def test_an_array_in_a_buffer_is_locked_as_that(np):
    def make():
        buffer = bytearray(16)
        return buffer, np.frombuffer(buffer, np.uint8)[3:]

    def change(buffer, array):
        buffer[5] = 1

    def change_array(buffer, array):
        array[2] = 1

    assert meet(make, lambda buffer, array: array.sum(), change) == CONFLICT
    assert meet(make, lambda buffer, array: buffer[5], change_array) == CONFLICT


@needs_threads
def test_random_numbers_are_drawn_by_one_at_a_time_or_from_ones_own(np):
    shared = np.random.default_rng(1)

    def draw():
        own = np.random.default_rng(2)
        return own.integers(100), own.random(3).tolist(), is_irrevocable(), shared.integers(100), is_irrevocable()

    again, own = np.random.default_rng(1), np.random.default_rng(2)
    again.integers(100)
    assert runs_beside_others(draw) == (own.integers(100), own.random(3).tolist(), False, again.integers(100), True)


@needs_threads
def test_what_is_called_on_errors_has_barriers(np):
    seen = {}

    def divide():
        with np.errstate(divide="call", call=functools.partial(operator.setitem, seen)):
            return (np.ones(2) / np.zeros(2)).tolist()

    assert core.Transaction(divide, ()).run() == [np.inf] * 2 and list(seen) == ["divide by zero"]
    assert meet(lambda: (), divide, lambda: seen.get("divide by zero")) == CONFLICT


@needs_threads
def test_changes_of_arrays_are_serializable(np):
    def make():
        array, buffer = np.arange(12.0).reshape(3, 4).copy(), bytearray(range(16))
        return {
            "array": array, "view": array[1:], "n": 0, "rows": [[float(n)] * 4 for n in range(3)], "buffer": buffer,
            "bytes": np.frombuffer(buffer, np.uint8), "random": np.random.default_rng(5),
        }  # fmt: skip

    def look(heap, n):
        return heap["array"].sum().item(), heap["view"][0].tolist(), (heap["array"] + heap["rows"]).mean().item(), heap["n"]

    def change(heap, n):
        heap["n"] += 1
        heap["array"][n % 3, n % 4] = n
        heap["view"] += 1

    def replace(heap, n):
        heap["n"] += 1
        new = heap["array"] * n
        new[new > 20] = 3
        new -= new.mean(axis=0)
        heap["array"], heap["view"] = new, new[1:]

    def change_rows(heap, n):
        heap["rows"][n % 3][n % 4] = n
        return np.array(heap["rows"]).tolist()

    def change_buffer(heap, n):
        heap["buffer"][n] = n * 3
        return heap["bytes"].tolist()

    def draw(heap, n):
        heap["n"] += 1
        return heap["random"].integers(100), heap["n"]

    def observe(heap):
        return {name: value.tolist() if isinstance(value, np.ndarray) else str(value) for name, value in heap.items() if name != "random"}

    functions = look, change, replace, change_rows, change_buffer, draw
    calls = [(function, n) for n in range(1, 7) for function in functions]
    testing.check_serializable(make, calls, runs=10, seed=1, aborts=0.01, observe=observe)


@needs_threads
@pytest.mark.parametrize("use", [
    lambda f: f("a", 1), lambda f: f.outer(["a"], [1]), lambda f: f.reduce(["a", 1]), lambda f: f.accumulate(["a", 1]),
], ids=["call", "outer", "reduce", "accumulate"])  # fmt: skip
def test_a_function_made_of_one_that_nobody_knows_is_used_alone(np, use):
    found = {}
    function = np.frompyfunc(found.setdefault, 2, 1)

    def step():
        use(function)
        return is_alone()

    assert core.Transaction(step, ()).run()
