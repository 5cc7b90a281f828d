"""What counts as short, whatever the machine is at: the guess decides on who follows whom, and on what leaves its strand.

And how long answers wait for that.
"""

import contextlib

import pytest

from tornado.stm import core


@contextlib.contextmanager
def short_below(seconds):
    core.set_short(seconds)
    try:
        yield
    finally:
        core.set_short(core.SHORT)


@pytest.fixture(scope="module")
def whole_module_short():
    with short_below(float("inf")):
        yield


@pytest.fixture
def all_short():
    with short_below(float("inf")):
        yield


@pytest.fixture
def none_short():
    with short_below(0.0):
        yield


@pytest.fixture
def answers_wait():
    """For what was scheduled with the question, however long that takes."""
    before = core.set_longest_question(float("inf"))
    yield
    core.set_longest_question(before)
