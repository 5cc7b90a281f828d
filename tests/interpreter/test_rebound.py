"""Which globals of a module its functions rebind."""

import asyncio.events
import dis
import gc
import logging
import mimetypes
import types

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()

from tornado.stm import rebound


def codes_in(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes_in(const)


def compiled(source):
    return compile(source, "<source>", "exec")


def names_after(code):
    return [name for instruction in rebound._REBINDING for name in rebound._names_after(instruction, code, code.co_code[::2])]


@pytest.mark.parametrize("module", [asyncio.events, logging, mimetypes], ids=lambda module: module.__name__)
def test_as_dis_finds_them(module):
    found = 0
    with open(module.__file__) as file:
        for code in codes_in(compiled(file.read())):
            listed = [i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")]
            assert sorted(names_after(code)) == sorted(listed)
            found += len(listed)
    assert found > 0


@pytest.mark.parametrize("names", [200, 300, 70_000])
def test_however_many_names_there_are(names):
    source = "def f(x):\n global last\n" + "".join(f" x.a{i}\n" for i in range(names)) + " last = x\n del last\n"
    [_, code] = codes_in(compiled(source))
    assert names_after(code) == ["last", "last"]


SOURCE = """
import functools, types
def plain(): global a; a = 1
def outer():
    def inner(): global b; b = 1
    return inner
made = outer()
class C:
    def method(self): global c; c = 1
    @staticmethod
    def static(): global d; d = 1
    @classmethod
    def of_class(cls): global e; e = 1
    @property
    def read(self): global f; f = 1
    class Nested:
        def method(self): global g; g = 1
@functools.wraps(plain)
def wrapper(): pass
def closed(function):
    return lambda: function()
def hidden(): global h; h = 1
held = closed(hidden)
del hidden
def by_dict(): globals()["i"] = 1
def reads(): return j
"""


def test_whatever_holds_the_function():
    namespace = {"__name__": "a module of the program's"}
    exec(SOURCE, namespace)
    rebound.see_globals(namespace)
    assert sorted(core._engine.rebound_globals(namespace)) == list("abcdefghi")


def test_functions_that_are_looked_at_get_no_dict():
    def function():
        pass

    namespace = {"__name__": __name__, "function": function}
    assert function.__globals__ in gc.get_referents(function)
    before = len(gc.get_referents(function))
    rebound.see_globals(namespace)
    assert len(gc.get_referents(function)) == before


def test_whatever_a_class_says_of_its_module():
    class Silent(type):
        @property
        def __module__(cls):
            raise AttributeError("__module__")

    namespace = {"__name__": __name__, "silent": Silent("silent", (), {}), "core": core}
    assert list(rebound._codes_of_module(namespace)) == []
    activation.activate()
    with pytest.raises(NameError):
        core.Transaction(eval, ("nothing", namespace)).run()
