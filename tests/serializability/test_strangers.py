"""Tests of others run beside each other as transactions come out as they do plainly, and where they do not, it is said."""

import site

import pytest

from interpreters import FREE_THREADED
from tests.strangers import compare_folder

pytestmark = pytest.mark.skipif(not FREE_THREADED, reason="there is one thread")

SUITE = """
import unittest

import pytest

shared = []

@pytest.fixture
def box():
    made = []
    yield made
    assert made == ["used"]

@pytest.mark.parametrize("number", range(8))
def test_has_fixtures_of_its_own(box, number):
    assert box == []
    box.append("used")

def test_fails():
    assert {} == {1: 2}

@pytest.mark.skip
def test_is_left_out():
    raise SystemExit

def test_exchanges_what_all_share(monkeypatch):
    raise SystemExit

async def test_is_a_coroutine():
    raise SystemExit

class TestOfUnittest(unittest.TestCase):
    def setUp(self):
        self.made = []

    def test_passes(self):
        self.made.append(1)
        self.assertEqual(self.made, [1])

    def test_raises(self):
        raise KeyError(self.made)

def test_comes_first():
    shared.append(1)

def test_has_another_before_it():
    assert shared
"""

DIFFERS = """
from tornado.stm import core

def test_looks_for_its_transaction():
    assert core.current() is None

def test_does_not():
    pass
"""


def compared(folder, text):
    (folder / "test_of_others.py").write_text(text)
    return compare_folder("others", folder, site.getsitepackages()[0], inject=0.01, seed=3, timeout=60)


def test_what_fits_runs_beside_others_as_it_does_alone(tmp_path):
    comparison = compared(tmp_path, SUITE)
    names = {name.partition("::")[2] for name in comparison.plain.outcomes}
    assert {"test_fails", "test_has_fixtures_of_its_own[7]", "TestOfUnittest::test_passes", "TestOfUnittest::test_raises"} <= names
    assert not {"test_is_left_out", "test_exchanges_what_all_share", "test_is_a_coroutine", "test_has_another_before_it"} & names
    assert comparison.good, (comparison.unlisted, comparison.plain.end, comparison.ours.end, comparison.ours.output[-2000:])
    assert comparison.plain.outcomes["test_of_others.py::test_fails"] == ["AssertionError"]
    assert comparison.ours.outcomes["test_of_others.py::TestOfUnittest::test_raises"] == ["KeyError"]
    assert comparison.ours.stats["commits"] >= len(names)


def test_what_comes_out_differently_is_told(tmp_path):
    comparison = compared(tmp_path, DIFFERS)
    assert not comparison.good
    assert list(comparison.unlisted) == ["test_of_others.py::test_looks_for_its_transaction"]


LOOKS_AT_ITS_END = """
import pytest
from tornado.stm import core

@pytest.fixture
def found():
    found = []
    yield found
    assert found == [True]

def test_looks_for_its_transaction(found):
    found.append(core.current() is None)
"""


def test_what_a_fixture_finds_at_its_end_is_told(tmp_path):
    comparison = compared(tmp_path, LOOKS_AT_ITS_END)
    name = "test_of_others.py::test_looks_for_its_transaction"
    assert comparison.unlisted == {name: (["success"], ["success", "tear-down: AssertionError"])}


DIES = """
import os, sys

def test_dies_in_another_order():
    if "--shuffle" in sys.argv:
        os._exit(3)

def test_does_not():
    pass
"""


def test_what_another_order_has_not_come_to_is_told(tmp_path):
    comparison = compared(tmp_path, DIES)
    assert not comparison.good and comparison.plain.end.startswith("in another order: exit status 3 while running")
