"""What C code keeps of what Python code has evaluated: annotations, type aliases, bounds and defaults of type variables."""

import inspect
import operator
import types
import typing

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
