"""What C code keeps of what Python code has evaluated: annotations, type aliases, bounds and defaults of type variables."""

import functools
import inspect
import io
import operator
import types
import typing
import xml.etree.ElementTree as ElementTree
from collections import OrderedDict

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()
activation.activate()

from beside import beside_others, runs_beside_others
from meeting import APART, CONFLICT, meet
from rolled_back import rolled_back, run

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


def in_class():
    class Annotated:
        x: typing.Final["int"]

    return Annotated, lambda made: made.__annotations__["x"]


def in_class_by_name():
    return in_class()[0], lambda made: getattr(made, "__annotations__")["x"]  # noqa: B009


def in_class_by_hints():
    return in_class()[0], lambda made: typing.get_type_hints(made)["x"]


def in_function():
    def annotated(x: typing.Final["int"]): ...

    return annotated, lambda made: made.__annotations__["x"]


def in_function_by_signature():
    return in_function()[0], lambda made: inspect.signature(made).parameters["x"].annotation


def in_module():
    module = types.ModuleType("annotated")
    exec('import typing\nx: typing.Final["int"] = 1', vars(module))
    return module, lambda made: made.__annotations__["x"]


def defined(source):
    """What it calls `made`; older interpreters, for which this file has to be correct, do not know the syntax."""
    names = {"typing": typing}
    exec(source, names)
    return names["made"]


def in_alias():
    return defined('type made = typing.Final["int"]'), lambda made: made.__value__


def in_bound():
    return defined('def f[T: typing.Final["int"]](): ...\nmade, = f.__type_params__'), lambda made: made.__bound__


def in_constraints():
    return defined('def f[T: (typing.Final["int"], str)](): ...\nmade, = f.__type_params__'), lambda made: made.__constraints__[0]


def in_default():
    return defined('def f[T = typing.Final["int"]](): ...\nmade, = f.__type_params__'), lambda made: made.__default__


def in_default_of_tuple():
    return defined('def f[*Ts = typing.Final["int"]](): ...\nmade, = f.__type_params__'), lambda made: made.__default__


def in_default_of_spec():
    return defined('def f[**P = typing.Final["int"]](): ...\nmade, = f.__type_params__'), lambda made: made.__default__


@pytest.mark.parametrize("make", [
    in_class, in_class_by_name, in_class_by_hints, in_function, in_function_by_signature, in_module, in_alias, in_bound, in_constraints,
    in_default, in_default_of_tuple, in_default_of_spec,
], ids=lambda make: make.__name__)  # fmt: skip
def test_what_is_evaluated_first_is_evaluated_alone(make):
    """What an attempt has evaluated would be kept in pieces: its objects are taken back with it."""

    def forget():
        for cleanup in typing._cleanups:
            cleanup()

    made, look = make()
    forget()
    rolled_back(lambda: look(made))
    found = look(made)
    assert found.__origin__ is typing.Final and repr(found).startswith("typing.Final[")
    assert runs_beside_others(look, made) == found
    made, look = make()
    assert beside_others(look, made)[0] == make.__name__.startswith("in_function") and beside_others(look, made)[0]


def test_annotations_of_a_function_are_evaluated_by_one_at_a_time():
    def make():
        return (in_function()[0],)

    def look(function):
        return function.__annotations__

    def look_by_c_code(function):
        return operator.attrgetter("__annotations__")(function)

    for here in look, look_by_c_code:
        assert meet(make, here, look) == CONFLICT
    (function,) = make()
    look(function)
    assert meet(lambda: (function,), look, look_by_c_code) == APART


def test_an_own_class_is_looked_at_beside_others():
    def make():
        class Own:
            x: int

        return Own.__annotations__

    assert runs_beside_others(make) == {"x": int}


def test_a_class_with_a_tuple_of_type_variables_is_made_whatever_is_injected():
    """The interpreter crashes where what it calls for that raises an exception."""

    make = defined("def made():\n    class Generic[*Ts]: ...\n    return Generic[int, str].__args__")

    for seed in range(60):
        core.inject_aborts(0.1, seed)
        try:
            assert run(make) == (int, str)
        finally:
            core.inject_aborts(0, 0)


# ---- Containers that C code makes for an object when they are first asked for -----------------------------------------------


def leave_addresses(n):
    """Make so many dicts and lists in this transaction, of which nothing is left but what is remembered of their addresses."""
    made = [kind() for kind in (dict, list) for _ in range(n)]
    for each in made:
        if isinstance(each, dict):
            each["a"] = 1
        else:
            each.append(1)
    each = None
    made.clear()


class Derived(OrderedDict):
    pass


def annotated(wrap):
    def made(x: int): ...

    return wrap(made), lambda made: made.__annotations__


def attributes_of(kind):
    return kind(), lambda made: made.__dict__


MADE_LATE = {
    "element": lambda: (ElementTree.Element("a"), lambda made: made.attrib),
    "function": lambda: ((lambda: None), lambda made: made.__annotations__),
    "module": lambda: (types.ModuleType("made"), lambda made: made.__annotations__),
    "class": lambda: (type("Made", (), {}), lambda made: made.__annotations__),
    "static method": lambda: annotated(staticmethod),
    "class method": lambda: annotated(classmethod),
    "dict of a static method": lambda: attributes_of(lambda: staticmethod(print)),
    "partial": lambda: attributes_of(lambda: functools.partial(print)),
    "exception": lambda: attributes_of(ValueError),
    "ordered dict": lambda: attributes_of(OrderedDict),
    "derived dict": lambda: attributes_of(Derived),
    "stream": lambda: attributes_of(io.StringIO),
}


@pytest.mark.parametrize("make", MADE_LATE.values(), ids=MADE_LATE.keys())
def test_what_c_code_makes_late_is_no_container_of_the_transaction(make):
    for n in range(1, 30):
        made, look = make()
        before = dict(make()[1](make()[0]))

        def change(made=made, look=look, n=n):
            leave_addresses(n)
            look(made)["x"] = "never was"

        done, _ = rolled_back(change, rest=lambda look=look, made=made: dict(look(made)))
        assert not done or dict(look(made)) == before


@pytest.mark.parametrize("make", [ValueError, OrderedDict, Derived, io.StringIO, lambda: functools.partial(print)])
def test_an_attribute_for_which_c_code_makes_the_dict(make):
    for n in range(1, 30):
        made = make()

        def change(made=made, n=n):
            leave_addresses(n)
            made.x = made.y = "never was"

        done, _ = rolled_back(change)
        assert not done or vars(made) == {}


@pytest.mark.parametrize("wrap", [staticmethod, classmethod])
def test_what_a_method_has_found_in_its_function_is_asked_for_again(wrap):
    def make():
        return (annotated(wrap)[0],)

    def look(method):
        return method.__annotations__

    (method,) = make()
    rolled_back(look, method, rest=look)
    assert method.__annotations__ is method.__func__.__annotations__
    assert meet(make, look, look) == CONFLICT
