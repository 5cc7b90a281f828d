"""Dict keys stand in the order that a serial run gives them, whatever others do to the dict before a rollback.

Transactions are interleaved step by step.  They touch different keys, so each step must be able to go on while the other
transactions are open: a step that waits, or a transaction that begins again unasked, fails.
"""

import collections
import operator
import random
import threading
import time
import types
import weakref

import pytest

from apart import in_a_process
from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from meeting import is_alone, run
from tornado.stm._engine import Abort
from tornado.stm.core import trusted

activation.activate()

TIMEOUT = 60


class Interleaved:
    """A transaction whose steps run when they are told to, on a thread of its own; it ends by a commit or a rollback."""

    def __init__(self, d, commits):
        self.d, self.commits = d, commits
        self.orders, self.answers, self.attempts, self.failures = [], [], [], []
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    @trusted
    def work(self):
        try:
            core.Transaction(self.body, ()).run()
        except BaseException as e:
            self.failures.append(e)
        self.answers.append("over")

    def body(self):
        self.begin()
        while (step := self.next_step()) is not None:
            step(self.d)
            self.answer()
        self.end()

    @trusted
    def begin(self):
        self.attempts.append(core.is_exclusive())

    @trusted
    def next_step(self):
        if len(self.attempts) > 1:
            return None  # rolled back; nothing to do again
        while not self.orders:
            time.sleep(0.0001)
        return self.orders.pop()

    @trusted
    def answer(self):
        self.answers.append("done")

    @trusted
    def end(self):
        if not self.commits and len(self.attempts) == 1:
            raise Abort

    @trusted
    def tell(self, step):
        """Have it do the step, or end if that is None, and wait until it has."""
        self.answers.clear()
        self.orders.append(step)
        give_up = time.monotonic() + TIMEOUT
        while not self.answers:
            assert time.monotonic() < give_up, "the step waits"
            time.sleep(0.0001)
        if step is None:
            self.thread.join(TIMEOUT)
            assert not self.failures
            assert self.attempts == [False] * (1 if self.commits else 2)
        else:
            assert self.answers == ["done"]


def delete(key):
    def delete(d):
        del d[key]

    return delete


def pop(key):
    def pop(d):
        d.pop(key, None)

    return pop


def put(key):
    value = f"put {key}"

    def put(d):
        d[key] = value

    return put


def put_default(key):
    def put_default(d):
        d.setdefault(key, "default")

    return put_default


def get(key):
    def get(d):
        d.get(key)

    return get


STEPS = delete, pop, put, put_default, get


@pytest.fixture(scope="module", autouse=True)
def warm_up():
    def everything():
        for step in STEPS:
            step(1)({1: 1})

    for _ in range(2):
        run(everything)


def replay(d, steps):
    for step in steps:
        step(d)


def check(make, programs, schedule):
    """Interleave the programs, a list of (steps, commits), as the schedule (a list of their numbers) says."""
    d, serial = make(), make()
    transactions = [Interleaved(d, commits) for _, commits in programs]
    left = [list(steps) for steps, _ in programs]
    for n in schedule:
        if left[n]:
            transactions[n].tell(left[n].pop(0))
        else:
            transactions[n].tell(None)
            if programs[n][1]:
                replay(serial, programs[n][0])
    assert list(d.items()) == list(serial.items())
    assert list(reversed(d)) == list(reversed(serial))
    for key in serial:
        assert d[key] == serial[key]
    assert len(d) == len(serial)


def letters():
    return dict.fromkeys("abcdef")


CASES = {
    "a deletion is rolled back": ([([delete("b")], False)], [0, 0]),
    "neighbours, the first one first": ([([delete("b")], False), ([delete("c")], False)], [0, 1, 0, 1]),
    "neighbours, the second one first": ([([delete("b")], False), ([delete("c")], False)], [0, 1, 1, 0]),
    "neighbours backwards, the first one first": ([([delete("c")], False), ([delete("b")], False)], [0, 1, 0, 1]),
    "neighbours backwards, the second one first": ([([delete("c")], False), ([delete("b")], False)], [0, 1, 1, 0]),
    "one comes back, one does not": ([([delete("b")], False), ([delete("c")], True)], [0, 1, 1, 0]),
    "the last one, with one inserted after it": ([([delete("f")], False), ([put("g")], True)], [0, 1, 1, 0]),
    "deleted and put again": ([([delete("b"), put("b")], True), ([put("g")], True)], [0, 1, 0, 1, 0]),
    "deleted, put again, rolled back": ([([delete("b"), put("b")], False), ([put("g")], True)], [0, 1, 0, 1, 0]),
    "others between deletion and insertion": ([([delete("b"), put("g"), put("b")], True), ([put("h")], True)], [0, 0, 0, 1, 1, 0]),
    "a key that was not there": ([([pop("x"), put("x")], False), ([put("g")], True)], [0, 0, 1, 1, 0]),
    "a key inserted and deleted": ([([put("x"), delete("x")], False), ([put("g")], True)], [0, 1, 0, 1, 0]),
    "the dict moves its entries": (
        [([delete("b")], False), ([put(f"new {i}") for i in range(40)], True)], [0] + [1] * 41 + [0],
    ),
    "the dict moves its entries, and one deletes from those": (
        [([delete("b")], False), ([put(f"new {i}") for i in range(40)], True), ([delete("c"), delete("a")], False)],
        [0] + [1] * 41 + [2, 2, 0, 2],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name):
    check(letters, *CASES[name])


MAKERS = {
    "strings": lambda: dict.fromkeys("abcdefghij"),
    "numbers": lambda: dict.fromkeys(range(10)),
    "tuples": lambda: {(i, str(i)): i for i in range(10)},
    "objects": lambda: dict.fromkeys([Key(i) for i in range(10)]),
    "collisions": lambda: dict.fromkeys([i << 61 for i in range(10)]),
    "defaultdict": lambda: collections.defaultdict(list, {i: [i] for i in range(10)}),
    "Counter": lambda: collections.Counter({i: i for i in range(10)}),
    "made of another": lambda: {**dict.fromkeys("abcdefghij")},
    "after deletions": lambda: with_gaps(),
}


class Key:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Key({self.n})"


def with_gaps():
    d = dict.fromkeys(range(30))
    for i in range(20):
        del d[i]
    return d


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("seed", range(12))
def test_random_interleavings(maker, seed):
    rng = random.Random(f"{maker} {seed}")
    base = MAKERS[maker]()
    keys = list(base) + [type(next(iter(base)))(key) if isinstance(next(iter(base)), str) else key
                         for key in new_keys(base)]
    rng.shuffle(keys)
    programs, schedule = [], []
    for n in range(3):
        own = keys[n::3]  # each touches keys of its own
        steps = [rng.choice(STEPS)(rng.choice(own)) for _ in range(rng.randrange(1, 12))]
        steps = [step for step in steps if step.__name__ != "delete"] + [pop(rng.choice(own)) for _ in range(2)]
        rng.shuffle(steps)
        programs.append((steps, rng.random() < 0.5))
        schedule += [n] * (len(steps) + 1)
    rng.shuffle(schedule)
    check(lambda: copy_of(base), programs, schedule)


def copy_of(d):
    copy = d.copy()
    return copy


def new_keys(d):
    first = next(iter(d))
    if isinstance(first, str):
        return [f"new {i}" for i in range(8)]
    if isinstance(first, tuple):
        return [("new", i) for i in range(8)]
    if isinstance(first, Key):
        return [Key(100 + i) for i in range(8)]
    return [first + 1000 + i for i in range(8)]


# ---- A transaction's own view of what it has deleted ---------------------------------------------------------------


@trusted
def abort_once(attempts):
    attempts.append(core.is_exclusive())
    if len(attempts) == 1:
        assert not core.is_exclusive(), "it runs alone"
        raise Abort


LOOKS = {
    "iteration": list,
    "items": lambda d: list(d.items()),
    "reversed": lambda d: list(reversed(d)),
    "len": len,
    "comparison": lambda d: d == {"a": None},
    "repr": repr,
    "copy": lambda d: d.copy(),
    "merge": lambda d: {**d},
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "in": lambda d: [key for key in "abcdef" if key in d],
}


@pytest.mark.parametrize("look", LOOKS)
def test_the_transaction_does_not_see_what_stands_for_deleted_keys(look):
    def use(d):
        del d["b"]
        d["g"] = 1
        d["b"] = 2
        del d["d"]
        first = LOOKS[look](d)
        d.pop("e", None)
        d["d"] = 3
        return first, LOOKS[look](d) if d else None, list(d.items())

    plain = letters()
    expected = use(plain)
    run(use, letters())
    d = letters()
    attempts, before = [], list(d.items())

    def attempt():
        seen(d, before)
        result = use(d)
        abort_once(attempts)
        return result

    run(lambda: seen(d, before))
    assert run(attempt) == expected
    assert list(d.items()) == list(plain.items())


def seen(d, before):
    assert list(d.items()) == before


def test_a_deletion_that_does_not_come_about_changes_no_order():
    class Stubborn(dict):
        def __delitem__(self, key):
            pass

    d = Stubborn.fromkeys("abc")

    def attempt():
        del d["a"]

    for _ in range(3):
        run(attempt)
        assert list(d) == ["a", "b", "c"]


DELETIONS = {
    "del": lambda d, key: operator.setitem(d, "result", delete(key)(d)),
    "pop": lambda d, key: d.pop(key),
    "pop with a default": lambda d, key: d.pop(key, 0),
    "dict.pop": lambda d, key: dict.pop(d, key),
    "pop by arguments": lambda d, key: d.pop(*[key]),
    "a method kept": lambda d, key: (pop := d.pop, pop(key))[1],
    "__delitem__": lambda d, key: d.__delitem__(key),
    "dict.__delitem__": lambda d, key: dict.__delitem__(d, key),
    "operator": lambda d, key: operator.delitem(d, key),
    "super": lambda d, key: Sub.delete(d, key) if isinstance(d, Sub) else d.pop(key),
    "bound by hand": lambda d, key: types.MethodType(dict.pop, d)(key),
}


class Sub(dict):
    def delete(self, key):
        return super().pop(key)


@pytest.mark.parametrize("make", [dict, Sub, collections.OrderedDict, lambda d: collections.defaultdict(list, d), collections.Counter])
@pytest.mark.parametrize("name", DELETIONS)
def test_every_way_to_delete_gives_what_it_gives(name, make):
    deletion = DELETIONS[name]
    if make is collections.OrderedDict and name in ("dict.pop", "dict.__delitem__", "bound by hand"):
        pytest.skip("breaks an OrderedDict")

    def both(d):
        try:
            missing = deletion(d, "missing")
        except KeyError as e:
            missing = repr(e)
        return deletion(d, "b"), missing, list(d.items())

    plain = make(dict.fromkeys("abc", 1))
    expected = both(plain)
    run(both, make(dict.fromkeys("abc", 1)))
    d, attempts = make(dict.fromkeys("abc", 1)), []

    def attempt():
        seen(d, list(plain_before.items()))
        result = both(d)
        abort_once(attempts)
        return result

    plain_before = make(dict.fromkeys("abc", 1))
    run(lambda: seen(d, list(plain_before.items())))
    assert run(attempt) == expected
    assert list(d.items()) == list(plain.items())


@pytest.mark.parametrize("bad", [lambda d: d.pop(), lambda d: d.pop("a", 1, 2), lambda d: d.__delitem__("a", 1), lambda d: d.pop([])])
def test_a_call_that_complains_deletes_nothing(bad):
    for _ in range(2):
        d = letters()
        with pytest.raises(TypeError):
            run(bad, d)
        assert list(d) == list("abcdef")


def test_an_iterator_finds_what_it_finds_after_a_deletion():
    # The language leaves open what it finds; it is the same as without transactions, though.
    def use(d, iterator):
        del d["b"]
        d["b"] = 1
        d["c"] = d.pop("c")
        return next(iterator, None)

    results = []
    for call in (lambda f, *args: f(*args)), run, run:
        d = letters()
        iterator = iter(d)
        next(iterator)
        results.append([call(use, d, iterator)] + list(iterator) + list(d))
    assert results[0] == results[1] == results[2]


def test_deletions_of_one_that_becomes_exclusive():
    d = letters()

    def attempt():
        del d["b"]
        core.exclusive("a test")
        return list(d), len(d)

    assert run(attempt) == (list("acdef"), 5)
    assert list(d) == list("acdef")


def test_keys_that_only_python_can_compare():
    class Word:
        def __init__(self, text):
            self.text = text

        def __eq__(self, other):
            return isinstance(other, Word) and self.text == other.text

        def __hash__(self):
            return hash(self.text)

        def __repr__(self):
            return self.text

    d = {Word(c): c for c in "abcdef"}
    attempts, before = [], list(d.items())
    run(lambda: {Word("a"): 1}.pop(Word("a")))

    def attempt():
        seen(d, before)
        del d[Word("c")]
        d[Word("c")] = "again"
        d.pop(Word("x"), None)
        abort_once(attempts)

    run(lambda: seen(d, before))
    run(attempt)
    assert repr(list(d)) == "[a, b, d, e, f, c]"


def test_weak_keys_are_deleted_beside_others_also_under_a_lock():
    class Thing:
        pass

    things, lock = [Thing() for _ in range(6)], threading.Lock()
    d = weakref.WeakKeyDictionary((thing, i) for i, thing in enumerate(things))
    attempts = []

    def attempt():
        with lock:
            first = d.pop(things[2], None), d.pop(Thing(), "none")
        del d[things[4]]
        d[things[4]] = "again"
        abort_once(attempts)
        return first, is_alone()

    assert run(attempt) == ((2, "none"), False)
    assert list(d.values()) == [0, 1, 3, 5, "again"]


def test_a_weak_key_to_what_only_python_can_compare():
    class Word(str):
        def __eq__(self, other):
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    words, other = [Word(c) for c in "abcd"], Word("b")
    d = {weakref.ref(word): str(word) for word in words}
    attempts = []
    run(lambda: {weakref.ref(other): 1}.pop(weakref.ref(other)))

    def attempt():
        gone = d.pop(weakref.ref(other)), d.pop(weakref.ref(words[3]))
        abort_once(attempts)
        return gone

    assert run(attempt) == ("b", "d")
    assert list(d.values()) == ["a", "c"]


def test_identity_of_a_deleted_key():
    one = 1.0
    d = {0: 0, one: 1, 2: 2}
    attempts = []

    def attempt():
        first = next(iter([key for key in d if key == 1]))
        kept.append(first)
        del d[1]
        d[1] = 5
        abort_once(attempts)

    kept = trusted_list()
    run(lambda: {1: 1}.pop(1))
    run(attempt)
    assert [type(key) for key in kept] == [float, float]
    assert list(d.items()) == [(0, 0), (2, 2), (1, 5)]


class trusted_list(list):
    append = trusted(lambda self, item: list.append(self, item))


class OfTheSizeOfADict:
    __slots__ = "a", "b", "c", "d"


def is_empty_when_c_code_has_popped_the_last(addresses, kept, **names):
    """None: these names do not lie where an object lay that this transaction has made."""
    if id(names) not in addresses:
        kept.append(names)
        return None
    list(map(names.pop, ("a",)))
    return not names


def outcomes_where_others_have_lain():
    outcomes = []

    def transaction():
        kept, addresses = [{} for _ in range(200)], set()
        for _ in range(300):
            made = OfTheSizeOfADict()
            addresses.add(id(made))
            del made
            outcomes.append(is_empty_when_c_code_has_popped_the_last(addresses, kept, a=1))

    for _ in range(200):
        core.Transaction(transaction, ()).run()
        if True in outcomes:
            break  # the memory is another one each time, as the collector's moments are
    return outcomes


def test_a_dict_that_lies_where_something_made_before_has_died():
    """In a process whose memory nothing else has used: in another one no dict may come to lie there."""
    outcomes = in_a_process(__file__, "outcomes_where_others_have_lain()")
    assert True in outcomes, "no dict lay there: what has been tested?"
    assert False not in outcomes
