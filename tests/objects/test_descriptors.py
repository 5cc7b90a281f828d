"""Attributes that C code makes when they are read: known ones with what they keep, all others alone."""

import ctypes
import functools
import operator

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from meeting import APART, CONFLICT, is_alone, meet, run
from tornado.stm.core import trusted

activation.activate()

propcache = pytest.importorskip("propcache._helpers_c")


@trusted
def roll_back():
    raise core.Abort


def instance_method(function):
    """A descriptor in C that nobody has declared."""
    make = ctypes.pythonapi.PyInstanceMethod_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object]
    return make(function)


def test_an_unknown_one_runs_alone():
    class Class:
        method = instance_method(lambda self: is_alone())

    class Derived(Class):
        pass

    def on_one_made_here():
        own = Derived()
        before = is_alone()
        return before, own.method()

    for cls in Class, Derived:
        instance = cls()
        assert run(lambda: (is_alone(), instance.method(), is_alone())) == (False, True, True)
    assert run(on_one_made_here) == (False, True)
    assert run(lambda: (Class.method is not None, is_alone())) == (True, True)


def test_one_that_the_class_gets_later():
    class Class:
        pass

    instance = Class()
    assert run(lambda: (hasattr(instance, "method"), is_alone())) == (False, False)
    Class.method = instance_method(lambda self: is_alone())
    assert run(lambda: (getattr(instance, "method")(), is_alone())) == (True, True)


class Cached:
    def __init__(self):
        self._cache, self.calls, self.source = {}, 0, [1]

    @propcache.under_cached_property
    def under(self):
        self.calls += 1
        return [*self.source]

    @propcache.under_cached_property
    def other(self):
        return [*self.source]

    @propcache.cached_property
    def inside(self):
        self.calls += 1
        return [*self.source]

    def fail(self):
        raise LookupError(self)

    failing = propcache.under_cached_property(fail)
    failing_inside = propcache.cached_property(fail)


class Derived(Cached):
    pass


NAMES = ["under", "inside"]


@pytest.mark.parametrize("cls", [Cached, Derived])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_computed_once(cls, name):
    instance = cls()
    first = run(lambda: (getattr(instance, name), is_alone()))
    again = run(lambda: (getattr(instance, name), is_alone()))
    assert first == again == ([1], False)
    assert first[0] is again[0] is getattr(instance, name)
    assert instance.calls == 1

    def in_one_of_its_own():
        own = cls()
        return getattr(own, name) is getattr(own, name), own.calls, is_alone()

    assert run(in_one_of_its_own) == (True, 1, False)


@pytest.mark.parametrize("name", NAMES)
def test_what_an_attempt_has_computed_is_not_kept(name):
    instance = Cached()

    def attempt():
        if core.rehearse():
            instance.source.append(2)
            assert getattr(instance, name) == [1, 2]
            roll_back()
        return is_alone()

    assert run(attempt) is False
    assert (instance._cache, instance.calls, name in vars(instance)) == ({}, 0, False)
    assert run(lambda: getattr(instance, name)) == [1]


@pytest.mark.parametrize("name", NAMES)
def test_who_reads_it_meets_who_computes_it(name):
    def compute(instance):
        getattr(instance, name)

    def read_ahead(instance):
        return instance.other

    assert meet(lambda: [Cached()], compute, compute) == CONFLICT
    assert meet(lambda: [Cached()], lambda i: i.source.append(2), compute) == CONFLICT
    assert meet(lambda: [Cached()], read_ahead, compute) == APART

    def computed():
        instance = Cached()
        getattr(instance, name)
        return [instance]

    assert meet(computed, compute, compute) == APART


def test_its_exception_is_the_functions():
    for name in "failing", "failing_inside":
        with pytest.raises(LookupError):
            run(lambda: getattr(Cached(), name))


def test_read_from_the_class_it_is_itself():
    assert run(lambda: (Cached.under, Cached.inside, is_alone())) == (vars(Cached)["under"], vars(Cached)["inside"], False)


# ---- Methods in C, of classes in Python -----------------------------------------------------------------------------------------


class Given(dict):
    """A descriptor that keeps what it has been asked for."""

    __get__ = dict.setdefault
    __set__ = dict.__setitem__


def class_with_another_get():
    class Later(dict):
        def __get__(self, obj, cls):
            return 1

        def __set__(self, obj, value):
            pass

    class Owner:
        it = Later()

    owner = Owner()
    run(lambda: (owner.it, setattr(owner, "it", 1)))
    Later.__get__ = dict.setdefault
    type.__setattr__(Later, "__set__", functools.partial(operator.setitem))
    return owner


def class_with_given():
    class Owner:
        it = Given()

    return Owner()


def ask(owner):
    return owner.it


def assign(owner):
    owner.it = 1


@pytest.mark.parametrize("make", [class_with_given, class_with_another_get])
@pytest.mark.parametrize("use", [ask, assign])
def test_what_a_method_in_c_of_a_descriptor_does_is_undone(make, use):
    owner = make()
    kept = vars(type(owner))["it"]

    def attempt():
        if core.rehearse():
            use(owner)
            roll_back()

    run(attempt)
    assert not kept
    run(use, owner)
    assert list(kept) == [owner]
