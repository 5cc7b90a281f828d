"""Tracebacks: what comes next in one may be changed, as jinja2 does that shows the lines of templates."""

import random
import traceback

import pytest

from interpreters import needs_engine
from meeting import APART, CONFLICT, meet
from tornado.stm import activation, core, testing

needs_engine()

from rolled_back import check  # noqa: E402

activation.activate()

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


def fails(depth):
    if depth == 0:
        raise LookupError("deep")
    fails(depth - 1)


def traced(depth=3):
    """The parts of a traceback, from the outside in."""
    try:
        fails(depth)
    except LookupError as e:
        return parts_of(e.__traceback__)


def parts_of(part):
    parts = []
    while part is not None:
        parts.append(part)
        part = part.tb_next
    return parts


@needs_threads
def test_who_joins_tracebacks_conflicts_with_who_follows_them():
    def make():
        return (traced(),)

    def cut(parts):
        parts[1].tb_next = None

    def cut_other(parts):
        parts[3].tb_next = None

    assert meet(make, cut, lambda parts: parts[1].tb_next) == CONFLICT
    assert meet(make, cut, lambda parts: parts_of(parts[0])) == CONFLICT
    assert meet(make, cut, lambda parts: traceback.format_tb(parts[0])) == CONFLICT
    assert meet(make, cut, cut_other) == CONFLICT  # where loops would be looked for
    assert meet(make, cut, lambda parts: (parts[2].tb_next, parts[1].tb_frame, parts[1].tb_lineno)) == APART
    assert meet(make, lambda parts: parts_of(parts[0]), lambda parts: traceback.format_tb(parts[0])) == APART


@needs_threads
def test_an_aborted_attempt_leaves_tracebacks_as_they_were():
    parts, seen = traced(), []

    def mutate(parts):
        first, second, third, last = parts[:4]
        first.tb_next = third
        third.tb_next = None
        second.tb_next = first
        with pytest.raises(ValueError):
            last.tb_next = last
        first.tb_next = last

    def look(parts):
        return [id(part) for part in parts_of(parts[0])]

    for seed in range(20):
        seen.append(check(mutate, parts, rest=look, inject=0.05 if seed else 0.0, seed=seed))
    assert seen == [[id(part) for part in parts]] * 20


class Parts:
    def __init__(self):
        self.parts = traced(4)


def test_tracebacks_are_joined_one_after_the_other():
    def join(shelf, n, m):
        shelf.parts[n % 5].tb_next = shelf.parts[m % 5]  # raises where that would be a loop

    def cut(shelf, n, m):
        shelf.parts[n % 5].tb_next = None

    def look(shelf, n, m):
        return [shelf.parts.index(part) for part in parts_of(shelf.parts[n % 5])], traceback.format_tb(shelf.parts[m % 5])

    choice = random.Random(1)
    for seed in range(60):
        calls = [(choice.choice([join, cut, look]), choice.randrange(5), choice.randrange(5)) for _ in range(10)]
        testing.check_serializable(Parts, calls, seed=seed, aborts=0.02)


@needs_threads
def test_an_error_in_a_template_is_shown_beside_others():
    jinja2 = pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from beside import runs_beside_others

    environment = jinja2.Environment(loader=jinja2.DictLoader({"page": "one\n{{ 1 // n }}\n", "wrong": "one\n{% if %}"}))

    def shown(name):
        try:
            return environment.get_template(name).render(n=0)
        except (ZeroDivisionError, jinja2.TemplateSyntaxError):
            return traceback.format_exc()

    assert "in top-level template code" in runs_beside_others(shown, "page")
    assert "line 2" in runs_beside_others(shown, "wrong")
