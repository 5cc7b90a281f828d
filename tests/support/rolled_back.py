"""Attempts that are rolled back, and pictures of all that can be seen of objects: before, and after."""

import array
import contextvars
import sys
import types
from collections import Counter, OrderedDict, deque

import pytest

from tornado.stm import core
from tornado.stm._engine import Abort
from tornado.stm.core import trusted

unraisable = []


@pytest.fixture(autouse=True)
def unraisable_exceptions(monkeypatch):
    """Exceptions that nobody could handle go to the list `unraisable`, by a hook that no abort can stop."""
    monkeypatch.setattr(sys, "unraisablehook", trusted(lambda report: unraisable.append(report.exc_type)))
    unraisable.clear()


def run(function, *args):
    return core.Transaction(function, args).run()


@trusted
def begins(attempts):
    """Is this the first attempt?  The list survives the abort, since nobody logs how it was."""
    attempts.append("attempt")
    return len(attempts) == 1


@trusted
def abort(attempts):
    """End the attempt; one that runs alone cannot be, and says so."""
    core.inject_aborts(0, 0)
    if core.is_exclusive():
        attempts.append("alone")
    else:
        raise Abort


@trusted
def no_more_aborts():
    core.on_abort(core.inject_aborts, 0.0, 0)


def rolled_back(mutate, *objects, rest=None, inject=0.0, seed=0):
    """Run `mutate` on the objects in an attempt that is aborted at its end, or where injection wants it.

    Checks that the objects are then what they were.

    Args:
        rest: called in the second attempt; must return what it returns on objects that nobody has touched.
        inject: the rate of aborts at the barriers of the first attempt.

    Returns:
        ``(False, None)`` if the attempt had to run alone, which cannot be rolled back; else True and what `rest` returned.
    """
    attempts = []
    before = picture(objects)

    def attempt():
        no_more_aborts()
        if begins(attempts):
            mutate(*objects)
            abort(attempts)
            return None
        if rest is not None:
            return rest(*objects)

    core.inject_aborts(inject, seed)
    try:
        result = run(attempt)
    finally:
        core.inject_aborts(0, 0)
    if "alone" in attempts:
        return False, None
    assert attempts == ["attempt", "attempt"]
    if rest is None:
        assert picture(objects).tree == before.tree
    return True, result


def check(mutate, *objects, **options):
    """`rolled_back`, of a change that must not need to run alone."""
    before = Counter(core.stats()["exclusive_reasons"])
    done, result = rolled_back(mutate, *objects, **options)
    assert done, Counter(core.stats()["exclusive_reasons"]) - before
    return result


class Picture:
    """Everything that can be seen of some objects: values, order, identities.  Keeps them alive, so that ids stay apart."""

    def __init__(self):
        self.seen = {}
        self.tree = None

    def of(self, obj):
        if id(obj) in self.seen:
            return id(obj)
        self.seen[id(obj)] = obj
        return type(obj).__name__, id(obj), self.inside(obj)

    def all(self, objects):
        return [self.of(each) for each in objects]

    def inside(self, obj):
        parts = []
        if isinstance(obj, (int, float, str, bytes, type(None), type, types.ModuleType)):
            return repr(obj)
        if isinstance(obj, (list, tuple)):
            parts.append(self.all(list.__iter__(obj) if isinstance(obj, list) else obj))
        elif isinstance(obj, OrderedDict):
            parts.append([self.all(pair) for pair in OrderedDict.items(obj)])
            parts.append([id(key) for key in reversed(obj)])
        elif isinstance(obj, dict):
            parts.append([self.all(pair) for pair in dict.items(obj)])
            parts.append(id(getattr(obj, "default_factory", None)))
        elif isinstance(obj, (set, frozenset)):
            parts.append(sorted((self.of(each) for each in obj), key=str))
        elif isinstance(obj, deque):
            parts.append((obj.maxlen, self.all(obj)))
        elif isinstance(obj, (bytearray, array.array)):
            parts.append(bytes(obj))
        elif isinstance(obj, contextvars.Context):
            parts.append(sorted((var.name, self.of(value)) for var, value in obj.items()))
        elif isinstance(obj, types.FunctionType):
            return [self.of(cell.cell_contents) for cell in obj.__closure__ or () if filled(cell)]
        elif isinstance(obj, BaseException):
            parts.append(self.all((obj.args, obj.__cause__, obj.__context__, obj.__suppress_context__)))
        for cls in type(obj).__mro__:
            for name in cls.__dict__.get("__slots__", ()):
                parts.append((name, self.of(getattr(obj, name)) if hasattr(obj, name) else "empty"))
        if "__dict__" in dir(type(obj)) and hasattr(obj, "__dict__"):
            attributes = object.__getattribute__(obj, "__dict__")
            parts.append([(name, self.of(attributes[name])) for name in sorted(attributes, key=str)])
        return parts


def filled(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def picture(objects):
    result = Picture()
    result.tree = result.all(objects)
    return result
