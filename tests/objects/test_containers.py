"""PyPy-STM's containers: what they do, in and out of transactions; who conflicts with whom; what an abort puts back."""

import copy
import pickle
import weakref

import pytest

from tornado.stm import activation, core, transaction
from tornado.stm.transaction import TransactionQueue, hashtable, stmdict, stmiddict, stmidset, stmset

activation.activate()


@pytest.fixture(params=["plain", "transaction"])
def do(request):
    """Calls a function, as it is or as a transaction, and returns its result."""
    return (lambda f, *args: f(*args)) if request.param == "plain" else (lambda f, *args: core.Transaction(f, args).run())


def raises(kind, f, *args):
    try:
        f(*args)
    except kind:
        return True
    return False


class Key:
    """Equal to all of its kind, with the same hash; as a key by identity, different."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Key)

    def __hash__(self):
        return 7

    def __repr__(self):
        return f"Key({self.name})"


class Collides:
    """Equal to itself only, with the hash of its kind."""

    def __hash__(self):
        return 7


# ---- By value ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [stmdict, hashtable])
def test_keys(do, kind):
    def keys():
        d = kind()
        seen = [raises(KeyError, lambda: d[42]), 42 in d, d.get(42), d.get(42, 1), len(d), bool(d)]
        d[42] = "5"
        seen += [d[42], 42 in d, d.get(42), d.get(42, 1), len(d), bool(d)]
        d[42] = "6"
        seen += [d[42], d.setdefault(42, "7"), d.setdefault(43), d[43], d.setdefault(44, "8"), len(d)]
        del d[42]
        seen += [42 in d, raises(KeyError, d.__delitem__, 42), d.pop(43), raises(KeyError, d.pop, 43), d.pop(43, "no")]
        seen += [d.popitem(), raises(KeyError, d.popitem), len(d)]
        return seen

    assert do(keys) == [
        True, False, None, 1, 0, False,
        "5", True, "5", "5", 1, True,
        "6", "6", None, None, "8", 3,
        False, True, None, True, "no",
        (44, "8"), True, 0,
    ]  # fmt: skip


def test_equal_keys_are_one(do):
    def equal():
        d, s = stmdict(), stmset()
        d[42.0] = "hello"
        d[42] = "bye"
        s.add(42.0)
        s.add(42)
        return list(d.items()), list(s), 42 in d, 42.5 in d, 42 in s

    assert do(equal) == ([(42.0, "bye")], [42.0], True, False, True)


def test_keys_of_one_hash(do):
    def collide():
        a, b, c = Collides(), Collides(), Collides()
        d, s = stmdict(), stmset()
        d[a], d[b] = "a", "b"
        s.add(a)
        s.add(b)
        seen = [d[a], d[b], c in d, len(d), a in s, b in s, c in s, len(s)]
        del d[a]
        s.remove(a)
        return seen + [a in d, d[b], a in s, b in s]

    assert do(collide) == ["a", "b", False, 2, True, True, False, 2, False, "b", False, True]


def test_keys_must_be_hashable(do):
    def unhashable():
        d, s = stmdict(), stmset()
        operations = [d.__getitem__, d.__delitem__, d.__contains__, d.get, d.setdefault, s.add, s.remove, s.discard]
        return [raises(TypeError, operation, []) for operation in operations] + [raises(TypeError, d.__setitem__, [], 5)]

    assert do(unhashable) == [True] * 9


def test_set(do):
    def elements():
        s = stmset()
        seen = [42 in s, len(s), raises(KeyError, s.remove, 42)]
        s.add(42)
        s.add(42)
        s.discard(43)
        seen += [42 in s, len(s), list(s)]
        s.remove(42)
        s.add(43)
        s.discard(43)
        return seen + [42 in s, 43 in s, len(s)]

    assert do(elements) == [False, 0, True, True, 1, [42], False, False, 0]


@pytest.mark.parametrize("kind", [stmdict, hashtable])
def test_views_are_lists(do, kind):
    def views():
        d = kind({1: "a", 2: "b"})
        return d.keys(), d.values(), d.items(), [*d], list(d), tuple(d), sorted(d), dict(d), {**d}, [k for k in d]

    assert do(views) == (
        [1, 2], ["a", "b"], [(1, "a"), (2, "b")], [1, 2], [1, 2], (1, 2), [1, 2], {1: "a", 2: "b"}, {1: "a", 2: "b"}, [1, 2],
    )  # fmt: skip


def test_they_may_change_under_an_iteration(do):
    def change():
        d, s, seen = stmdict({1: "a", 2: "b"}), stmset([1, 2]), []
        for key in d:
            d[key + 10] = d.pop(key)
            seen.append(key)
        for key, value in d.items():
            d[key] = value * 2
            del d[key]
        for element in s:
            s.remove(element)
            s.add(element + 10)
            seen.append(element)
        iterator = iter(s)
        s.clear()
        return seen, dict(d), sorted(iterator), len(s)

    assert do(change) == ([1, 2, 1, 2], {}, [11, 12], 0)


def test_equality_and_repr(do):
    def compare():
        d, s = stmdict({1: 2}), stmset([1])
        return (
            d == d, d == {1: 2}, {1: 2} == d, d == stmdict({1: 2}), d != stmdict({1: 2}), d != d, repr(d), str(d),
            s == s, s == {1}, {1} == s, s == stmset([1]), s != stmset([1]), s != s, repr(s), repr(stmset()),
        )  # fmt: skip

    assert do(compare) == (
        True, False, False, False, True, False, "{1: 2}", "{1: 2}",
        True, False, False, False, True, False, "stmset({1})", "stmset()",
    )  # fmt: skip


@pytest.mark.parametrize("kind", [stmdict, stmset, stmiddict, stmidset, hashtable])
def test_objects_like_any_other(do, kind):
    """They can be keys and weakly referenced, and only those that know keys by value are false while they are empty."""

    def use():
        one, other = kind(), kind()
        table = {one: 1, other: 2}
        return table[one], table[other], weakref.ref(one)() is one, bool(one), one == other, one != other

    assert do(use) == (1, 2, True, kind in (stmiddict, stmidset), False, True)


def test_copies(do):
    def copies():
        d, s = stmdict({1: [2]}), stmset([1])
        made = [copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d)), copy.copy(s), pickle.loads(pickle.dumps(s))]
        return [type(each) for each in made], made

    types, made = do(copies)
    assert types == [stmdict] * 3 + [stmset] * 2
    assert [dict(each) for each in made[:3]] == [{1: [2]}] * 3 and [set(each) for each in made[3:]] == [{1}] * 2


class Named(stmiddict):
    """Has an attribute, and cannot be made without one."""

    def __init__(self, name):
        super().__init__()
        self.name = name


def test_copies_of_those_with_identities(do):
    """A copy has items of its own, and finds its own keys."""

    def copies():
        key = Key("k")
        d, s = Named("all"), stmidset([key])
        d[key] = [1]
        d[s] = d
        shallow, deep, loaded = copy.copy(d), copy.deepcopy(d), pickle.loads(pickle.dumps(d))
        shallow[Key("another")] = 2
        more = copy.copy(s)
        more.add(Key("another"))
        return d, s, more, shallow, deep, loaded

    d, s, more, shallow, deep, loaded = do(copies)
    assert (len(d), len(s), len(more), len(shallow), len(deep), len(loaded)) == (2, 1, 2, 3, 2, 2)
    key, elements = d
    assert shallow[key] is d[key] and elements in shallow and key in more
    for made in deep, loaded:
        itself, others = made
        assert type(made) is Named and made.name == "all"
        assert key not in made and itself in others and made[itself] == [1] and made[itself] is not d[key] and made[others] is made


class Counting(stmdict):
    """Counts what is asked for."""

    def __init__(self, start, **more):
        super().__init__(start, **more)
        self.asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)

    def __missing__(self, key):
        return f"no {key}"


class Folded(stmset):
    """Ignores case."""

    def add(self, element):
        super().add(element.lower())

    def __contains__(self, element):
        return super().__contains__(element.lower())


def test_subclasses(do):
    def use():
        d, s = Counting({"a": 1}, b=2), Folded()
        d["c"] = 3
        s.add("ABC")
        return d["a"], d["z"], d.asked, sorted(d), dict(d) == {"a": 1, "b": 2, "c": 3}, "abc" in s, "Abc" in s, list(s), repr(s)

    expected = (1, "no z", 2, ["a", "b", "c"], True, True, True, ["abc"], "Folded({'abc'})")
    assert do(use) == expected
    assert do(use) == expected


# ---- By identity ---------------------------------------------------------------------------------------------------------


def test_identity_of_keys(do):
    def use():
        a, b = Key("a"), Key("b")
        d = stmiddict()
        seen = [a in d, d.get(a), d.get(a, 1), len(d), raises(KeyError, lambda: d[a]), raises(KeyError, d.__delitem__, a)]
        d[a], d[b] = 1, 2
        seen += [d[a], d[b], a in d, Key("a") in d, d.get(Key("a")), len(d), d.setdefault(a, 5), d.setdefault(b), d.pop(b)]
        seen += [d.setdefault(b, 3), d[b], [key.name for key in d], repr(d)]
        del d[a]
        return seen + [a in d, b in d, len(d)]

    assert do(use) == [
        False, None, 1, 0, True, True,
        1, 2, True, False, None, 2, 1, 2, 2,
        3, 3, ["a", "b"], "stmiddict([(Key(a), 1), (Key(b), 3)])",
        False, True, 1,
    ]  # fmt: skip


def test_identity_of_elements(do):
    def use():
        a, b = Key("a"), Key("b")
        s = stmidset([a])
        seen = [a in s, b in s, len(s)]
        s.add(b)
        s.add(b)
        s.discard(Key("a"))
        seen += [a in s, b in s, len(s), repr(s), raises(KeyError, s.remove, Key("a"))]
        s.remove(a)
        s.discard(b)
        return seen + [a in s, b in s, len(s), list(s), repr(s)]

    assert do(use) == [
        True, False, 1,
        True, True, 2, "stmidset([Key(a), Key(b)])", True,
        False, False, 0, [], "stmidset([])",
    ]  # fmt: skip


def test_unhashable_objects_by_identity(do):
    def use():
        a, b = [], []
        d, s = stmiddict(), stmidset()
        d[a] = "a"
        s.add(a)
        return d[a], b in d, a in s, b in s

    assert do(use) == ("a", False, True, False)


def test_equality_by_identity(do):
    def compare():
        a = Key("a")
        d, s = stmiddict([(a, 1)]), stmidset([a])
        return d == d, d == stmiddict([(a, 1)]), d == {a: 1}, s == s, s == stmidset([a]), {a} == s

    assert do(compare) == (True, False, False, True, False, False)


def test_they_keep_their_keys_alive():
    """Else another object could get the identity of one that is gone."""
    d, s = stmiddict(), stmidset()
    for i in range(100):
        d[[i]] = i
        s.add([i])
    assert len(d) == len(s) == 100
    assert [key[0] for key in d] == list(range(100)) == [key[0] for key in s]


def test_identity_in_subclasses(do):
    class Registry(stmiddict):
        def __missing__(self, key):
            return None

        def name(self, key, name):
            self[key] = name
            return key

    def use():
        r = Registry()
        a = r.name([], "a")
        return r[a], len(r), repr(r)

    assert do(use) == ("a", 1, "Registry([([], 'a')])")


# ---- Concurrency -----------------------------------------------------------------------------------------------------------

if core.PARALLEL:
    from meeting import APART, CONFLICT, meet

    a, b, absent = Key("a"), Key("b"), Key("absent")

    OPERATIONS = {
        "set": lambda c, k: c.__setitem__(k, 5),
        "get": lambda c, k: c.get(k),
        "in": lambda c, k: k in c,
        "pop": lambda c, k: c.pop(k, None),
        "setdefault": lambda c, k: c.setdefault(k, 6),
        "add": lambda c, k: c.add(k),
        "discard": lambda c, k: c.discard(k),
    }

    MAKE = {
        "stmdict": lambda: (stmdict({1: 1, 2: 2, 3: 3}),),
        "stmset": lambda: (stmset([1, 2, 3]),),
        "stmiddict": lambda: (stmiddict([(a, 1), (b, 2)]),),
        "stmidset": lambda: (stmidset([a, b]),),
    }
    KEYS = {"stmdict": (1, 2), "stmset": (1, 2), "stmiddict": (a, b), "stmidset": (a, b)}
    ABSENT = {"stmdict": 9, "stmset": 9, "stmiddict": absent, "stmidset": absent}
    OF = {kind: ("in", "add", "discard") if "set" in kind else ("set", "get", "in", "pop", "setdefault") for kind in KEYS}
    CHANGES = {"set", "pop", "add", "discard"}

    def on(operation, key):
        operation = OPERATIONS[operation]
        return lambda c: operation(c, key)

    @pytest.mark.parametrize("kind, one", [(kind, one) for kind in OF for one in OF[kind]])
    def test_different_keys_never_conflict(kind, one):
        first, second = KEYS[kind]
        for other in OF[kind]:
            assert meet(MAKE[kind], on(one, first), on(other, second)) == APART, other
            assert meet(MAKE[kind], on(one, first), on(other, ABSENT[kind])) == APART, other

    @pytest.mark.parametrize("kind, change", [(kind, one) for kind in OF for one in OF[kind] if one in CHANGES - {"add"}])
    def test_the_same_key_serialises(kind, change):
        key, _ = KEYS[kind]
        for other in OF[kind]:
            assert meet(MAKE[kind], on(change, key), on(other, key)) == CONFLICT, other

    @pytest.mark.parametrize("kind", KEYS)
    @pytest.mark.parametrize("look", [len, list], ids=["len", "list"])
    def test_who_looks_at_all_conflicts_with_who_adds(kind, look):
        assert meet(MAKE[kind], look, on("add" if "set" in kind else "set", ABSENT[kind])) == CONFLICT

    @pytest.mark.parametrize("kind", KEYS)
    def test_two_may_look_at_all(kind):
        assert meet(MAKE[kind], list, len) == APART


@pytest.mark.parametrize("inject", [0, 0.02])
def test_counters_in_all_of_them(inject):
    """Every transaction counts in each; keys that some share, some have alone."""
    transaction.set_threads(4)
    objects = [Key(i) for i in range(7)]
    d, h, by_id, members, by_id_members = stmdict(), hashtable(), stmiddict(), stmset(), stmidset()

    def count_in(i):
        key = objects[i % 7]
        d[i % 5] = d.get(i % 5, 0) + 1
        h[i] = h.setdefault(i, 0) + 1
        by_id[key] = by_id.get(key, 0) + 1
        members.add(i)
        if i % 2:
            members.discard(i - 1)
            members.add(i - 1)
        by_id_members.add(key)

    queue = TransactionQueue()
    for i in range(300):
        queue.add(count_in, i)
    core.inject_aborts(inject, 5)
    try:
        queue.run()
    finally:
        core.inject_aborts(0, 0)
        transaction.set_threads(None)
    assert dict(d) == {i: 60 for i in range(5)}
    assert dict(h) == {i: 1 for i in range(300)}
    assert [by_id[key] for key in objects] == [43] * 6 + [42]
    assert set(members) == set(range(300))
    assert sorted(key.name for key in by_id_members) == list(range(7))
