"""Classes that transactions make: who sees them, when, and in which order."""

import abc
import enum
import functools
import gc
import types
from collections import namedtuple

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from meeting import ALONE, APART, CONFLICT, meet, run
from tornado.stm._engine import Abort
from tornado.stm.core import trusted

activation.activate()


@trusted
def end_first_attempt(attempts):
    """Roll the first attempt back.  Attempts of transactions that warm up have no list."""
    if attempts is None:
        return
    attempts.append(core.is_exclusive())
    if len(attempts) == 1:
        raise Abort


def names(base):
    return [cls.__name__ for cls in base.__subclasses__()]


def make_base():
    class Base:
        pass

    return (Base,)


def statement(base):
    class Made(base):
        pass


def with_metaclass(base):
    class Meta(type):
        pass

    class Made(base, metaclass=Meta):
        pass


class Meta(type):
    def __new__(metatype, name, bases, namespace):
        return super().__new__(metatype, name, bases, namespace)


WAYS = {
    "a class statement": statement,
    "type": lambda base: type("Made", (base,), {}),
    "type.__new__": lambda base: type.__new__(type, "Made", (base,), {}),
    "a metaclass": lambda base: Meta("Made", (base,), {}),
    "a class statement with a metaclass": with_metaclass,
    "types.new_class": lambda base: types.new_class("Made", (base,)),
    "a partial": lambda base: functools.partial(type, "Made")((base,), {}),
    "a call by C code": lambda base: list(map(type, ["Made"], [(base,)], [{}])),
    "one of several bases": lambda base: type("Made", (make_base()[0], base), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_looks_at_the_subclasses_waits_for_who_makes_one(way):
    assert meet(make_base, WAYS[way], names) == CONFLICT


@pytest.mark.parametrize("way", WAYS)
def test_classes_are_made_side_by_side(way):
    assert meet(make_base, WAYS[way], statement) == APART


def test_classes_of_builtin_bases_are_made_side_by_side():
    assert meet(tuple, lambda: namedtuple("Pair", "a b"), lambda: namedtuple("Pair", "a b")) == APART


def test_subclasses_of_a_builtin_class():
    def make(base):
        return type("Made", (ValueError,), {})

    assert meet(make_base, make, lambda base: ValueError.__subclasses__()) == CONFLICT


def test_subclasses_of_different_bases_have_nothing_to_do_with_one_another():
    assert meet(lambda: make_base() + make_base(), lambda a, b: statement(a), lambda a, b: names(b)) == APART


@pytest.mark.parametrize("way", WAYS)
def test_a_class_of_an_aborted_attempt_never_was(way):
    (base,) = make_base()
    attempts = []

    def make():
        WAYS[way](base)
        end_first_attempt(attempts)

    kept = statement(base)
    before = names(base)
    gc.collect()
    run(make)
    assert attempts == [False, False]
    assert names(base) == before + ["Made"] or names(base) == ["Made"], kept
    gc.collect()
    assert names(base) == []


class Rejected(Exception):
    pass


def reject(cls, *_, **__):
    raise Rejected


class Named:
    __set_name__ = reject


@pytest.mark.parametrize("namespace", [{"__init_subclass__": classmethod(reject)}, {}], ids=["__init_subclass__", "__set_name__"])
def test_a_class_whose_making_fails_in_an_aborted_attempt(namespace):
    base = type("Base", (), namespace)
    attempts = []
    kept = []

    def make(base, attempts):
        try:
            type("Made", (base,), {"x": Named()})
        except Rejected as error:
            kept.append(error)
        end_first_attempt(attempts)

    run(make, type("Base", (), namespace), None)  # what C code calls for the first time runs alone
    kept.clear()
    gc.disable()
    try:
        run(make, base, attempts)
        assert attempts == [False, False]
        assert names(base) == ["Made"]
        assert len(kept) == 1
    finally:
        gc.enable()


def test_an_attempt_that_ends_while_the_class_is_made():
    attempts = None

    class Base:
        def __init_subclass__(cls):
            end_first_attempt(attempts)

    kept = [run(lambda: type("A", (Base,), {}))]  # what C code calls for the first time runs alone
    attempts = []
    gc.disable()
    try:
        kept.append(run(lambda: type("B", (Base,), {})))
        assert attempts == [False, False]
        assert names(Base) == ["A", "B"]
    finally:
        gc.enable()


def test_the_transaction_sees_its_own_classes():
    (base,) = make_base()

    def make():
        kept = [type("A", (base,), {}), type("B", (base,), {})]
        return names(base), names(kept[0])

    assert run(make) == (["A", "B"], [])


def test_a_class_may_be_changed_by_who_makes_it():
    (base,) = make_base()

    class Registered:
        def __init_subclass__(cls):
            cls.number = 1
            cls.kind = "made"

    def make():
        made = abc.ABCMeta("Made", (base,), {})
        made.x = 1
        made = Meta("Made", (base,), {})
        made.x = 1
        statement(Registered)
        return core.is_exclusive()

    plain = functools.partial(type, "Made", (Registered,), {})

    def change():
        made = plain()
        made.x = 1
        return core.is_exclusive()

    run(change)
    assert run(change) is False
    run(make)


def test_the_order_of_subclasses_is_that_of_the_commits():
    (base,) = make_base()
    transaction.set_threads(4)
    made = []

    def make(i):
        made.append(type(f"C{i}", (base,), {}))

    for _ in range(3):
        made.clear()
        gc.collect()
        queue = transaction.TransactionQueue()
        core.inject_delays(0.02, 0.0005)
        try:
            for i in range(60):
                queue.add(make, i)
            queue.run(4)
        finally:
            core.inject_delays(0, 0)
        assert base.__subclasses__() == made


def test_what_is_looked_at_is_what_has_been_committed():
    (base,) = make_base()
    made, wrong = [], []
    transaction.set_threads(4)

    def make(i):
        cls = type(f"C{i}", (base,), {})
        sum(range(500))
        made.append(cls)

    def look():
        seen = base.__subclasses__()
        if seen != made:
            wrong.append((seen, list(made)))

    gc.disable()
    core.inject_aborts(0.01, 7)
    try:
        queue = transaction.TransactionQueue()
        for i in range(100):
            queue.add(make, i)
            queue.add(look)
        queue.run(4)
    finally:
        core.inject_aborts(0, 0)
        gc.enable()
    assert wrong == []
    assert base.__subclasses__() == made


def test_a_base_may_lose_all_its_subclasses_and_get_new_ones():
    (base,) = make_base()
    for i in range(5):
        run(statement, base)
        assert run(names, base) == ["Made"]
        gc.collect()
        assert run(names, base) == []


def test_the_base_still_tells_its_subclasses_of_changes():
    (base,) = make_base()
    made = run(lambda: type("Made", (base,), {}))
    run(names, base)
    base.x = 1
    assert made.x == 1
    base.x = 2
    assert made.x == 2


def test_enumerations_and_metaclasses_still_work():
    assert run(lambda: enum.Enum("Color", "RED BLUE").BLUE.value) == 2
    assert type(run(lambda: types.new_class("X", (), {"metaclass": abc.ABCMeta}))) is abc.ABCMeta
    with pytest.raises(TypeError):
        run(lambda: type("Made", (int, str), {}))
    with pytest.raises(TypeError):
        run(lambda: type("Made", (1,), {}))


# ---- Abstract classes ---------------------------------------------------------------------------------------------------


class Plain:
    pass


def make_abstract():
    return (abc.ABCMeta("Abstract", (), {}),)


def make_one_for_all(abstract):
    class OneForAll(abstract):
        @classmethod
        def __subclasshook__(cls, other):
            return True


def test_a_new_subclass_of_an_abstract_class_has_a_say_only_when_it_is_committed():
    assert meet(make_abstract, make_one_for_all, lambda abstract: isinstance(Plain(), abstract)) in (ALONE, [ALONE, CONFLICT])


def test_an_abstract_class_remembers_nothing_of_an_aborted_attempt():
    (abstract,) = make_abstract()
    attempts, answers = [], []

    def attempt():
        if begins(attempts):
            make_one_for_all(abstract)
            answers.append(issubclass(Plain, abstract))
            end(attempts)
        else:
            answers.append(issubclass(Plain, abstract))

    @trusted
    def begins(attempts):
        attempts.append(None)
        return len(attempts) == 1

    @trusted
    def end(attempts):
        if not core.is_exclusive():
            raise Abort

    run(attempt)
    assert answers == [True] if len(attempts) == 1 else answers == [False]


def test_what_an_abstract_class_remembers_is_no_reason_to_run_alone():
    (abstract,) = make_abstract()

    class Registered:
        pass

    abstract.register(Registered)

    def ask():
        isinstance(Plain(), abstract)
        issubclass(Plain, abstract)
        isinstance(Registered(), abstract)
        return core.is_exclusive()

    run(ask)
    assert run(ask) is False
