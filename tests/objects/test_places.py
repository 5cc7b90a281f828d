"""An iterator that lives on does not notice that what it is over has been changed and rolled back meanwhile."""

import _thread
import collections
import contextlib
import itertools
import threading

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from tornado.stm.core import trusted

activation.activate()

TIMEOUT = 60


@trusted
def roll_back():
    raise core.Abort


def undone(function, *args):
    """Run the function in a transaction that is rolled back, and then does nothing."""

    def attempt():
        if core.rehearse():
            function(*args)
            roll_back()

    core.Transaction(attempt, ()).run()


class Key:
    """A key that is compared by Python code."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n % 4

    def __eq__(self, other):
        return isinstance(other, Key) and self.n == other.n


def with_gaps(table, *keys):
    for key in keys:
        del table[key]
    return table


def set_with_gaps(items, *gone):
    made = set(items)
    for item in gone:
        made.discard(item)
    return made


# ---- What is changed, and how ---------------------------------------------------------------------------------------------

DICTS = {
    "text": lambda: with_gaps(dict.fromkeys("abcdefgh"), "a", "d"),
    "numbers": lambda: with_gaps(dict.fromkeys(range(12)), 0, 5, 11),
    "full": lambda: with_gaps(dict.fromkeys("abcdefghij"), "b", "c"),
    "large": lambda: with_gaps(dict.fromkeys(range(1000)), *range(0, 900, 7)),
}


def take_all(table):
    while table:
        table.popitem()


def insert_and_delete(table):
    for i in range(2000, 2030):
        table[i] = i
        if i % 3:
            del table[i]


def insert_another_type(table):
    table[1.5] = 1
    table["text"] = 2


def clear(container):
    container.clear()


def clear_and_fill(table):
    table.clear()
    table.update(dict.fromkeys(range(40), 1))


def delete_look_insert(table):
    first = next(iter(table))
    del table[first]
    list(table)
    table[first] = 1


LOCK = threading.Lock()


def fill_under_a_lock(table):
    """Others may change other keys meanwhile, under other locks."""
    with LOCK:
        for key in range(2000, 2040):
            table[key] = key


def exchange_under_a_lock(table):
    with LOCK:
        first = next(iter(table))
        del table[first]
        for key in "a new key", 1.5, 3000, 3001, first:
            table[key] = key


def look_and_delete_under_a_lock(table):
    with LOCK:
        keys = list(table)
        del table[keys[1]]
        table[4000] = 1
        table.pop(keys[2])
        del table[4000]
        table[keys[1]] = 2


DICT_CHANGES = [take_all, insert_and_delete, insert_another_type, clear, clear_and_fill, delete_look_insert]
LOCKED_CHANGES = [fill_under_a_lock, exchange_under_a_lock, look_and_delete_under_a_lock]

SETS = {
    "small": lambda: set_with_gaps([3, 8, 16, 1], 8),
    "large": lambda: set_with_gaps(range(0, 3000, 7), *range(0, 2000, 21)),
    "collisions": lambda: set_with_gaps(range(0, 1024, 32), 32, 512),
}


def pop_all(elements):
    while elements:
        elements.pop()


def add_many(elements):
    for i in range(5000, 5400):
        elements.add(i)


def discard_and_add(elements):
    for element in sorted(elements)[:3]:
        elements.discard(element)
        elements.add(element + 1)
        elements.add(element)


def symmetric_difference(elements):
    elements ^= {1, 2, 3, 4, 5, 6, 7, 8}


def discard_and_grow(elements):
    for element in sorted(elements)[1:3]:
        elements.discard(element)
    add_many(elements)


SET_CHANGES = [pop_all, add_many, discard_and_add, symmetric_difference, discard_and_grow, clear]

#: nothing but which one it is says whether it is another
MARKS = [type(f"Mark{i}", (), {}) for i in range(300)]

DEQUES = {
    "one": lambda: collections.deque([1]),
    "few": lambda: collections.deque(range(10)),
    "blocks": lambda: collections.deque(range(300)),
    "shifted": lambda: shifted(500, 77),
    "bounded": lambda: collections.deque(range(100), maxlen=100),
    "many blocks": lambda: collections.deque(range(900)),
    "marks": lambda: collections.deque(MARKS),
}


def shifted(n, by):
    made = collections.deque(range(-by, n))
    for _ in range(by):
        made.popleft()
    return made


def pop_and_push(queue):
    last = queue.pop()
    queue.append(last)
    queue.appendleft(queue.popleft())


def pop_until_empty(queue):
    while queue:
        queue.popleft()
    queue.append(1)


def push_many(queue):
    for i in range(200):
        queue.append(i)
        queue.appendleft(i)


def pop_push_and_clear(queue):
    for _ in range(min(70, len(queue))):
        queue.popleft()
    queue.extend(range(100))
    queue.clear()
    queue.extendleft("abc")


def rotate(queue):
    queue.rotate(33)
    queue.reverse()


def change_items(queue):
    queue[0] = "changed"
    del queue[-1]


def take_out(queue):
    for each in list(queue)[::3] + list(queue)[:4] + ["missing"]:
        with contextlib.suppress(ValueError):
            queue.remove(each)


DEQUE_CHANGES = [pop_and_push, pop_until_empty, push_many, pop_push_and_clear, rotate, change_items, clear, take_out]


def make_ordered():
    return collections.OrderedDict.fromkeys("abcdef")


def move(table):
    table.move_to_end("c")
    table["new"] = 1
    del table["a"]


CASES = [
    *[(make, change, by) for make in DICTS.values() for change in DICT_CHANGES + LOCKED_CHANGES for by in (iter, reversed)],
    *[(make, change, iter) for make in SETS.values() for change in SET_CHANGES],
    *[(make, change, by) for make in DEQUES.values() for change in DEQUE_CHANGES for by in (iter, reversed)],
    *[(make_ordered, change, by) for change in (take_all, insert_and_delete, clear, move) for by in (iter, reversed)],
]


# ---- The tests ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, change, by", CASES)
def test_an_iterator_keeps_its_place(make, change, by):
    expected = list(by(make()))
    for taken in {0, 1, 2, len(expected) // 2, len(expected) - 1}:
        container = make()
        iterator = by(container)
        seen = list(itertools.islice(iterator, taken))
        undone(change, container)
        seen += core.Transaction(lambda: list(itertools.islice(iterator, 1)), ()).run()
        undone(change, container)
        assert seen + list(iterator) == expected
        assert list(by(container)) == expected


@pytest.mark.parametrize("make, change, by", CASES)
def test_it_goes_on_in_the_transaction_itself(make, change, by):
    """What the transaction does to the container has the same consequences as ever."""

    def rest(container, iterator):
        change(container)
        try:
            return list(iterator)
        except RuntimeError as e:
            return str(e)

    results = []
    for run in (lambda f, *args: core.Transaction(f, args).run(), lambda f, *args: f(*args)):
        container = make()
        iterator = by(container)
        next(iterator)
        results.append((run(rest, container, iterator), list(container)))
    assert results[0] == results[1]


@pytest.mark.parametrize("change", LOCKED_CHANGES)
@pytest.mark.parametrize("make", DICTS.values(), ids=DICTS)
def test_what_a_thread_does_under_another_lock_is_not_rolled_back(make, change):
    table, other_lock, alone = make(), threading.Lock(), []
    *kept, deleted, changed = table
    before = list(table.items())
    go_on, over = _thread.allocate_lock(), _thread.allocate_lock()
    go_on.acquire()
    over.acquire()

    @trusted
    def threads_changes():
        go_on.acquire()
        with other_lock:
            table[changed] = "changed by a thread"
            del table[deleted]
            table["put by a thread"] = 1
            table["deleted by a thread"] = 1
            del table["deleted by a thread"]
        over.release()

    @trusted
    def meanwhile():
        alone.append(core.is_exclusive())
        go_on.release()
        assert over.acquire(timeout=TIMEOUT)

    _thread.start_new_thread(threads_changes, ())

    def attempt():
        with LOCK:
            table[kept[0]] = "changed by the attempt"
        change(table)
        meanwhile()

    undone(attempt)
    assert alone == [False]
    expected = dict(before) | {changed: "changed by a thread", "put by a thread": 1}
    del expected[deleted]
    assert list(table.items()) == list(expected.items())


def test_keys_compared_by_python_code_keep_their_places():
    keys = [Key(n) for n in range(20)]
    elements = set(keys)
    expected = list(elements)
    iterator = iter(elements)
    seen = [next(iterator) for _ in range(3)]

    def change():
        for key in keys[::3]:
            elements.discard(Key(key.n))
        for n in range(20, 60):
            elements.add(Key(n))

    undone(change)
    assert all(a is b for a, b in zip(seen + list(iterator), expected, strict=True))


def test_a_deque_that_loses_its_blocks_says_so():
    queue = collections.deque(range(5000))
    iterator = iter(queue)
    next(iterator)
    undone(clear, queue)
    assert list(queue) == list(range(5000))
    with pytest.raises(RuntimeError, match="mutated"):
        next(iterator)


@pytest.mark.parametrize("others", [(100,), range(100, 200)], ids=["there is room", "there is none"])
def test_a_set_grows_and_goes_back_while_others_use_it(others):
    elements = set_with_gaps([3, 8, 1, 2], 2)
    over = threading.Lock()
    over.acquire()

    def meanwhile():
        elements.discard(8)
        for other in others:
            elements.add(other)

    @trusted
    def run_other():
        core.Transaction(meanwhile, ()).run()
        over.release()

    @trusted
    def let_it_happen():
        _thread.start_new_thread(run_other, ())
        assert over.acquire(timeout=TIMEOUT)

    def change():
        elements.discard(1)
        for i in range(1000, 1020):
            elements.add(i)
        let_it_happen()

    undone(change)
    assert elements == {3, 1, *others}
    assert sorted(elements) == sorted([3, 1, *others])
