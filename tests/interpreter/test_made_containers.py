"""A container that a call or an operator has made is its attempt's own; what one has taken out of something is not."""

import csv
import functools
import json
import operator
import re
from collections import defaultdict

import pytest

from interpreters import needs_engine
from tornado.stm import activation

needs_engine()

from rolled_back import abort, begins, rolled_back, run
from tornado.stm.core import trusted

activation.activate()

LIST, DICT, SET = [3, 1, 2], {"a": 1}, {1, 2}

MAKERS = {
    "split": lambda: "a b".split(),
    "rsplit": lambda: b"a b".rsplit(),
    "splitlines": lambda: "a\nb".splitlines(),
    "list.copy": lambda: LIST.copy(),
    "dict.copy": lambda: DICT.copy(),
    "dict.fromkeys": lambda: dict.fromkeys("ab"),
    "set.copy": lambda: SET.copy(),
    "union": lambda: SET.union([5]),
    "findall": lambda: re.compile("a").findall("aa"),
    "sorted": lambda: sorted(LIST),
    "sorted by a key": lambda: sorted(LIST, key=lambda item: -item),
    "a key that was missing": lambda: defaultdict(list)["a"],
    "a row": lambda: next(csv.reader(["a,b"])),
    "JSON": lambda: json.loads('{"a": 1}'),
    "within JSON": lambda: json.loads('[{"a": [1, 2]}]')[0]["a"],
    "a slice": lambda: LIST[:],
    "a slice from": lambda: LIST[operator.index(1) :],
    "a slice in steps": lambda: LIST[::2],
    "+": lambda: LIST + LIST,
    "*": lambda: LIST * 2,
    "| of dicts": lambda: DICT | DICT,
    "| of sets": lambda: SET | SET,
    "&": lambda: SET & SET,
    "- of sets": lambda: SET - {1},
    "^": lambda: SET ^ {1},
}


def change(container):
    if type(container) is list:
        container.append("new")
    elif type(container) is dict:
        container["new"] = "new"
    else:
        container.add("new")


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_has_been_made_needs_no_undo(make):
    """So a rollback leaves as it is what only the test can see then."""
    attempts, seen = [], []

    @trusted
    def see(container):
        seen.append(container)

    def make_and_change():
        for _ in range(20):  # until the instruction is specialised, and its calls are known
            made = make()
        change(made)
        see(made)
        if begins(attempts):
            abort(attempts)

    run(make_and_change)
    expected = make()
    change(expected)
    assert seen == [expected, expected] and len(attempts) == 2


class Shelf:
    """Gives what it has, and keeps nothing of it."""

    def __init__(self):
        self.things = [[1], {"a": 1}, {1}]

    def take(self):
        return self.things.pop(0)


class Constants(dict):
    pass


def fails(text):
    try:
        text.split("")
    except ValueError:
        return True


TAKERS = {
    "a call": lambda shelf: shelf.take(),
    "a method in C": lambda shelf: shelf.things.pop(0),
    "a call behind one that makes": lambda shelf: "a b".split() and shelf.things.pop(0),
    "a call behind one that fails": lambda shelf: fails("a") and shelf.things.pop(0),
    "through min": lambda shelf: min((shelf.things.pop(0),), key=id),
    "through next": lambda shelf: next(shelf.things.pop(0) for _ in "a"),
    "through reduce": lambda shelf: functools.reduce(lambda _, item: shelf.things.pop(0), "ab"[:1], None),
    "through a tuple": lambda shelf: operator.itemgetter(0)((shelf.things.pop(0),)),
    "within one that makes": lambda shelf: [shelf.things.pop(0) for part in "a b".split()[:1]][0],
    "by a hook of JSON": lambda shelf: json.loads("[{}]", object_hook=lambda _: shelf.things.pop(0))[0],
    "as a number of JSON": lambda shelf: json.loads("[1]", parse_int=lambda _: shelf.things.pop(0))[0],
    "as a constant of JSON": lambda shelf: json.loads("[NaN]", parse_constant=Constants(NaN=shelf.things.pop(0)).pop)[0],
    "by a factory": lambda shelf: defaultdict(lambda: shelf.things.pop(0))["a"],
    "out of a copy": lambda shelf: shelf.things.copy() and shelf.things.pop(0),
    "out of a slice": lambda shelf: (shelf.things[1:], shelf.things.pop(0))[1],
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_what_has_been_taken_is_put_back(take):
    """Three containers, each of which nobody else refers to when it is changed."""
    shelf, attempts = Shelf(), []

    def take_and_change():
        first, taken = begins(attempts), []
        for _ in range(3):
            container = take(shelf)
            change(container)
            taken.append(container)
        if first:
            abort(attempts)
        return taken

    taken, expected = run(take_and_change), Shelf().things
    for container in expected:
        change(container)
    assert (taken, shelf.things, len(attempts)) == (expected, [], 2)


def test_a_rollback_leaves_nothing_of_what_was_made():
    def keep(table):
        table["made"] = parts = "a b".split()
        parts.append("c")
        table["copy"] = table["made"].copy()
        table["copy"].clear()

    rolled_back(keep, {})
