"""Read bias: what nobody has written for long is read without locks, until somebody writes to it.

``tests/engine/stress.c`` proves the protocol; here is that every way to write takes the bias away, and no way to read does.
In the tests that judge whole histories (`tornado.stm.testing`), a part of the objects has it from the beginning.
"""

import bisect
import copy
import heapq
import inspect
import operator
import random
import threading

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, testing
from tornado.stm.core import trusted

needs_engine()

activation.activate()


class Plain:
    def __init__(self):
        self.a, self.b = 1, 2

    def method(self):
        return self.a


class Other(Plain):
    pass


class Slots:
    __slots__ = "a", "b"

    def __init__(self):
        self.a, self.b = 1, 2


class Both(Plain):
    __slots__ = "c"

    def __init__(self):
        super().__init__()
        self.c = 3


class Key:
    """Compares itself by Python code."""

    def __eq__(self, other):
        return isinstance(other, Key)

    def __hash__(self):
        return 7

    def __repr__(self):
        return "a key"


def a_list():
    return [3, 1, 2]


def a_dict():
    return {"a": 1, "b": 2, Key(): 3}


def a_set():
    return {1, 2, Key()}


def some_numbers():
    return {1, 2, 3}


def run(function, *args):
    return core.Transaction(function, args).run()


def biased(make):
    obj = make()
    assert core.bias(obj)
    return obj


def each(pairs):
    """A test for each pair of what makes an object and what uses it: by instructions that are new, and by specialised ones."""

    def parametrize(test):
        test = pytest.mark.parametrize("warm", (False, True), ids=["first", "specialised"])(test)
        names = list(inspect.signature(test).parameters)[:2]
        return pytest.mark.parametrize(names, pairs, ids=range(len(pairs)))(test)

    return parametrize


def prepared(make, use, warm):
    """An object that is biased, when the instructions that use it are specialised or not."""
    for _ in range(50 * warm):
        run(use, make())
    return biased(make)


@pytest.mark.parametrize("make, read", [
    (Plain, operator.attrgetter("a")), (Slots, operator.attrgetter("a")), (Both, operator.attrgetter("c")),
    (a_list, len), (a_dict, operator.itemgetter("a")), (a_set, len),
])
def test_what_is_only_read_gets_the_bias_after_a_while(make, read):
    obj = make()
    for n in range(1000):
        run(read, obj)
        if core.is_biased(obj):
            break
    assert core.is_biased(obj) and n > 50
    assert run(read, obj) == read(obj)
    assert core.is_biased(obj)


def test_what_is_written_now_and_then_does_not():
    obj = Plain()

    def write():
        obj.a += 1

    for n in range(1000):
        run(obj.method)
        if n % 50 == 49:
            run(write)
        assert not core.is_biased(obj)


def test_what_has_lost_it_gets_it_again_later():
    obj = Plain()

    def transactions_until_biased():
        for n in range(1_000_000):
            run(obj.method)
            if core.is_biased(obj):
                return n

    first = transactions_until_biased()
    run(setattr, obj, "a", 5)
    assert not core.is_biased(obj)
    again = transactions_until_biased()
    assert first < again < 20 * first


def test_a_new_object_in_the_place_of_a_biased_one():
    def addresses():
        objects = [make() for make in (Plain, Slots, a_list, a_dict, a_set) for _ in range(100)]
        new = [obj for obj in objects if core.is_biased(obj)]
        for obj in objects:
            core.bias(obj)
        return {id(obj) for obj in objects}, new

    first, _ = addresses()
    again, new = addresses()
    assert first & again and new == []


def set_by_dict(obj):
    vars(obj)["a"] = 5


def update_dict(obj):
    obj.__dict__.update(a=5)


def delete_by_dict(obj):
    del vars(obj)["a"]


def by_getattr(obj):
    getattr(obj, "__dict__")["a"] = 5


def swap_class(obj):
    obj.__class__ = Other


def new_dict(obj):
    obj.__dict__ = {"a": 5}


def assign(obj):
    obj.a = 5


def delete(obj):
    del obj.a


def add(obj):
    obj.c = 5


def by_object(obj):
    object.__setattr__(obj, "a", 5)


def item(obj):
    obj[1] = 5


def item_a(obj):
    obj["a"] = 5


def delete_item(obj):
    del obj[1]


def delete_a(obj):
    del obj["a"]


def piece(obj):
    obj[1:2] = [7, 8]


def add_in_place(obj):
    obj += [1, 2]


def merge_in_place(obj):
    obj |= {5: 6}


def unite_in_place(obj):
    obj |= {5}


WRITES = [
    (Plain, assign), (Plain, delete), (Plain, add), (Plain, by_object), (Plain, set_by_dict), (Plain, update_dict),
    (Plain, delete_by_dict), (Plain, by_getattr), (Plain, new_dict), (Plain, swap_class),
    (Plain, lambda obj: setattr(obj, "a", 5)), (Plain, lambda obj: delattr(obj, "a")), (Plain, lambda obj: vars(obj).clear()),
    (Plain, lambda obj: vars(obj).pop("a")), (Plain, lambda obj: vars(obj).setdefault("z", 1)),
    (Plain, lambda obj: vars(obj).popitem()), (Both, assign), (Both, add), (Both, update_dict), (Slots, assign), (Slots, delete),
    (Slots, by_object), (Slots, lambda obj: Slots.a.__set__(obj, 5)),
    (a_list, item), (a_list, delete_item), (a_list, piece), (a_list, add_in_place), (a_list, lambda obj: obj.append(1)),
    (a_list, lambda obj: obj.extend([1])), (a_list, lambda obj: obj.insert(0, 1)), (a_list, list.pop),
    (a_list, lambda obj: obj.pop(0)), (a_list, lambda obj: obj.remove(1)), (a_list, list.clear), (a_list, list.sort),
    (a_list, list.reverse), (a_list, heapq.heapify), (a_list, lambda obj: heapq.heappush(obj, 0)),
    (a_list, lambda obj: bisect.insort(obj, 0)), (a_list, lambda obj: operator.setitem(obj, 0, 9)),
    (a_list, lambda obj: operator.iadd(obj, [9])), (a_list, random.shuffle), (a_list, lambda obj: obj.__init__([5])),
    (a_dict, item_a), (a_dict, delete_a), (a_dict, merge_in_place), (a_dict, lambda obj: obj.update(z=1)),
    (a_dict, lambda obj: obj.pop("a")), (a_dict, lambda obj: obj.setdefault("z", 1)), (a_dict, dict.popitem), (a_dict, dict.clear),
    (a_dict, lambda obj: obj.__setitem__("z", 1)), (a_dict, lambda obj: operator.delitem(obj, "a")),
    (a_dict, lambda obj: obj.__init__(z=1)), (a_dict, lambda obj: obj.pop(Key())),
    (a_set, unite_in_place), (a_set, lambda obj: obj.add(9)), (a_set, lambda obj: obj.discard(1)), (a_set, lambda obj: obj.remove(1)),
    (a_set, set.pop), (a_set, set.clear), (a_set, lambda obj: obj.update([9])), (a_set, lambda obj: obj.intersection_update([1])),
    (a_set, lambda obj: obj.difference_update([1])), (a_set, lambda obj: obj.symmetric_difference_update([1])),
    (a_set, lambda obj: obj.__init__([9])), (a_set, lambda obj: obj.discard(Key())),
]


@each(WRITES)
def test_whoever_writes_takes_it_away(make, write, warm):
    obj = prepared(make, write, warm)
    inside = []

    @trusted
    def look():
        inside.append(core.is_exclusive() or not core.is_biased(obj))

    def change():
        write(obj)
        look()

    run(change)
    assert inside == [True]


READS = [
    (Plain, Plain.method), (Plain, lambda obj: (obj.a, obj.b)), (Plain, lambda obj: getattr(obj, "z", None)),
    (Plain, lambda obj: hasattr(obj, "a")), (Plain, operator.attrgetter("a", "b")), (Plain, repr), (Plain, lambda obj: obj == 1),
    (Slots, lambda obj: obj.a), (Both, lambda obj: (obj.a, obj.c)), (Plain, lambda obj: vars(obj)["a"]),
    (Plain, lambda obj: list(vars(obj))), (Plain, lambda obj: copy.copy(obj).a),
    (a_list, list), (a_list, sorted), (a_list, sum), (a_list, lambda obj: [x for x in obj]), (a_list, lambda obj: obj[0]),
    (a_list, lambda obj: obj[1:]), (a_list, lambda obj: 2 in obj), (a_list, lambda obj: obj.index(1)), (a_list, lambda obj: [*obj, *obj]),
    (a_list, lambda obj: obj + obj), (a_list, lambda obj: obj == [1]), (a_list, lambda obj: bool(obj)), (a_list, repr),
    (a_dict, dict), (a_dict, lambda obj: obj["a"]), (a_dict, lambda obj: obj.get("z")), (a_dict, lambda obj: "a" in obj),
    (a_dict, lambda obj: obj[Key()]), (a_dict, lambda obj: list(obj.items())), (a_dict, lambda obj: [k for k in obj]),
    (a_dict, lambda obj: {**obj}), (a_dict, len), (a_dict, lambda obj: obj.copy()),
    (a_set, list), (a_set, lambda obj: 1 in obj), (a_set, lambda obj: Key() in obj), (a_set, lambda obj: obj | {5}),
    (a_set, lambda obj: obj <= {1, 2}), (a_set, lambda obj: {*obj}),
]


@each(READS)
def test_whoever_reads_does_not(make, read, warm):
    obj = prepared(make, read, warm)
    run(read, obj)
    assert core.is_biased(obj)


WALKS = [iter, reversed, enumerate, lambda obj: zip(obj, range(9)), lambda obj: map(str, obj), lambda obj: iter(obj.items()),
         lambda obj: reversed(obj.values())]
CHANGES = [
    (a_dict, [lambda obj: obj.__delitem__("b"), lambda obj: obj.pop("b"), lambda obj: obj.popitem(), lambda obj: obj.clear(),
              lambda obj: obj.update(c=1), lambda obj: obj.setdefault("c", 1), lambda obj: obj.__setitem__("b", 5)]),
    (a_list, [lambda obj: obj.append(4), lambda obj: obj.pop(), lambda obj: obj.pop(0), lambda obj: obj.insert(0, 4),
              lambda obj: obj.__delitem__(slice(0, 2)), lambda obj: obj.sort(), lambda obj: obj.reverse(), lambda obj: obj.clear()]),
    (some_numbers, [lambda obj: obj.add(5), lambda obj: obj.discard(1), lambda obj: obj.pop(), lambda obj: obj.clear(),
                    lambda obj: obj.update({1, 9}), lambda obj: obj.remove(2)]),
]


@each([(make, change) for make, changes in CHANGES for change in changes])
def test_who_changes_what_it_is_going_over_meets_what_plain_python_would(make, change, warm):
    """That it has read the whole is known by no lock."""

    def with_a_loop(obj, walk):
        seen = []
        for item in walk(obj):
            seen.append(item)
            change(obj)
            if len(seen) > 5:
                break
        return seen

    def with_next(obj, walk):
        items = walk(obj)
        first = next(items)
        change(obj)
        return first, list(items), len(obj)

    def deleting(obj, walk):
        for item in walk(obj):
            del obj[item]

    def outcome(call, obj, function, walk):
        try:
            result = call(function, obj, walk)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
            result = type(error), str(error)
        return repr(result), repr(obj)

    for function in with_a_loop, with_next, deleting:
        for walk in WALKS:
            obj = prepared(make, lambda obj: outcome(operator.call, obj, function, walk), warm)
            expected = outcome(operator.call, make(), function, walk)
            assert outcome(run, obj, function, walk) == expected


def test_a_dict_of_attributes_that_was_there_before():
    obj = Plain()
    attributes = vars(obj)
    assert core.bias(obj)
    run(attributes.__setitem__, "a", 5)
    assert not core.is_biased(obj) and obj.a == 5


@pytest.mark.parametrize("read, biased, alone", [
    (lambda names: names["a"], False, False),
    (lambda names: names["a"], True, True),
    (lambda names: len(names), False, True),
    (lambda names: len(names), True, True),
])
def test_a_dict_that_becomes_globals_of_a_function_after_it_was_read(read, biased, alone):
    """From there on its names are locked one by one: what has been read without locks, or as a whole, has none of these."""
    names = {"a": 1, "__builtins__": __builtins__}
    if biased:
        assert core.bias(names)

    def step():
        read(names)
        return eval("a + 1", names), core.is_exclusive()

    assert run(step) == (2, alone)


def test_attributes_whose_values_have_moved_into_a_dict_while_one_ran_alone():
    """They are locked as if there were no bias, which nobody has taken away."""

    def make():
        obj = Plain()
        core.bias(obj)
        return obj

    def move(obj, how):
        core.exclusive("a test")
        if how:
            obj.__dict__ = {"a": 1, "b": 2}
        else:
            for n in range(40):
                setattr(obj, f"other_{n}", n)

    def write(obj):
        attributes = vars(obj)
        attributes["a"] += 1
        attributes["b"] += 1

    def read(obj):
        testing.require(obj.b - obj.a == 1, "both are changed at once")
        return obj.a

    for how in (False, True):
        calls = [(move, how)] + [(write,), (read,), (read,)] * 4
        testing.check_serializable(make, calls, runs=20)


def test_readers_beside_a_writer():
    """What they read without locks is never torn, and the writer's turn comes."""
    objects = [Plain() for _ in range(4)]
    table = {"a": 1, "b": 2}
    numbers = [1, 2]
    torn, over = [], []

    @trusted
    def tell(*seen):
        torn.append(seen)

    def read():
        for obj in objects:
            a = obj.a
            if obj.b - a != 1:
                tell(obj)
        if table["b"] - table["a"] != 1:
            tell(table)
        if numbers[1] - numbers[0] != 1:
            tell(numbers)

    def write(n):
        obj = objects[n % 4]
        obj.a += 1
        table["a"] += 1
        numbers[0] += 1
        obj.b += 1
        table["b"] += 1
        numbers[1] += 1

    @trusted
    def readers():
        while not over:
            core.Transaction(read, ()).run()

    threads = [threading.Thread(target=readers) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(8):
        while not (core.is_biased(objects[n % 4]) and core.is_biased(table) and core.is_biased(numbers)):
            core.Transaction(read, ()).run()
        core.Transaction(write, (n,)).run()
    over.append(True)
    for thread in threads:
        thread.join()
    assert torn == []
    assert numbers == [9, 10] and table == {"a": 9, "b": 10}


def test_a_writer_waits_once_for_all_that_it_writes_of_an_object():
    """What interrupts all threads costs as much as hundreds of writes."""
    table = {n: 0 for n in range(50)}
    obj = Plain()
    assert core.bias(table) and core.bias(obj)

    def write():
        for _ in range(3):
            for n in table:
                table[n] += 1
            obj.a, obj.b = obj.a + 1, obj.b + 1

    before = core.bias_waits()
    run(write)
    assert 2 <= core.bias_waits() - before <= 6  # a thread may remember both in one place: then twice in each round
    assert table[49] == 3 and obj.b == 5


def test_what_each_transaction_reads_and_writes_is_hardly_ever_given_the_bias():
    """Nobody would gain by it, and each time it is taken away all threads are interrupted."""
    accounts = [Plain() for _ in range(200)]  # whose turn comes again when epochs are over
    bystander = [Plain()]

    def use(obj):
        for _ in range(20):
            obj.a += obj.b
            obj.b = obj.a % 7
        return obj.method(), bystander[0].a

    before = core.bias_waits()
    for n in range(6000):
        run(use, accounts[n % 200])
    assert core.is_biased(bystander[0])
    assert core.bias_waits() - before < 40
