"""CPython's own tests come out as they do plainly, as transactions and on our loop outside of them.

A few modules always, all of them with ``-m long``.
"""

import importlib.util
import itertools

import pytest

from tests.comparison import Comparison, Run
from tests.cpython_suites import LOOP_MODULES, MODULES, compare, compare_outside

if importlib.util.find_spec("test.test_list") is None:
    pytest.skip("this interpreter came without the package test", allow_module_level=True)

#: of the modules, with which share of injected aborts: with some is more than without; test_heapq would take half a minute
QUICK = {("test_list", 0.0), ("test_list", 0.02), ("test_deque", 0.02)}
QUICK_OUTSIDE = ["test_sys_setprofile", "test_frame"]


def these_quick(quick, modules):
    return [*quick, *(pytest.param(name, marks=pytest.mark.long) for name in modules if name not in quick)]


@pytest.mark.parametrize("module, inject", [
    pytest.param(*each, marks=[] if each in QUICK else pytest.mark.long) for each in itertools.product(MODULES, (0.0, 0.02))
])
@pytest.mark.timeout(1300)
def test_a_suite_comes_out_as_it_does_plainly(module, inject):
    comparison = compare(module, inject, seed=1)
    assert comparison.plain.outcomes
    assert comparison.good, (comparison.unlisted, comparison.plain.end, comparison.ours.end, comparison.ours.output[-2000:])
    if module in {name for name, _ in QUICK}:  # not because its tests run alone, from unittest's own code on
        assert len(comparison.ours.having("exclusive")) < len(comparison.plain.outcomes) / 2, comparison.ours.reasons.most_common(5)


@pytest.mark.parametrize("module", these_quick(QUICK_OUTSIDE, LOOP_MODULES))
@pytest.mark.timeout(1300)
def test_a_suite_comes_out_on_our_loop_as_on_the_interpreters(module):
    comparison = compare_outside(module)
    assert comparison.good, (comparison.unlisted, comparison.plain.end, comparison.ours.end, comparison.ours.output[-2000:])


def test_a_difference_fails_unless_it_is_listed():
    plain, ours = Run({"test.a.B.c": ["success"], "a.B.d": ["success"]}), Run({"test.a.B.c": ["error"], "a.B.d": ["success"]})
    assert not Comparison("a", plain, ours, {}).good
    assert Comparison("a", plain, ours, {"a.B.c": "why"}).good


def test_a_listed_difference_that_is_gone_is_told():
    run = Run({"test.a.B.c": ["success"]})
    assert Comparison("a", run, run, {"a.B.*": "why", "b.*": "why"}).settled == ["a.B.*"]
    assert Comparison("a", run, Run({"test.a.B.c": ["error"]}), {"a.B.*": "why"}).settled == []
    assert Comparison("a", run, run, {"a.B.*": "now and then: why"}).settled == []


def test_a_test_that_never_ends_fails():
    plain = Run({"a.B.c": ["success"]})
    assert not Comparison("a", plain, Run(), {}).good
    assert not Comparison("a", plain, Run(dict(plain.outcomes), end="killed by SIGSEGV"), {}).good


def test_a_suite_that_cannot_be_loaded_fails():
    comparison = compare("test_that_nobody_wrote")
    assert not comparison.good and comparison.plain.end and "test_that_nobody_wrote" in comparison.plain.output


def test_a_suite_without_tests_fails():
    assert not Comparison("a", Run(), Run(), {}).good
