"""Tornado's and asyncio's own tests come out on our loop as on upstream's: a few always, all of Tornado's with ``-m long``."""

import importlib.util

import pytest

from interpreters import needs_engine
from tests.comparison import Run
from tests.compat import Comparison, compare, suite
from tests.compat.__main__ import main

needs_engine()

QUICK = [
    "tornado.test.locks_test",
    "tornado.test.iostream_test.TestIOStream.test_many_mixed_reads",
    "tornado.test.httpclient_test.HTTPClientCommonTestCase.test_chunked",
]

#: a thread that asks a handle whether it is cancelled, or cancels it, waits for its callback, also where that sleeps
IN_EVENTS = "test.test_asyncio.test_events.EPollEventLoopTests.test_call_soon_threadsafe_handle_block_"
if importlib.util.find_spec("test.test_asyncio") is not None:  # some interpreters come without
    QUICK += [IN_EVENTS + "check_cancelled", IN_EVENTS + "cancellation"]

MODULES = suite("tornado").MODULES


@pytest.mark.parametrize("inject", [0.0, 0.005])
@pytest.mark.parametrize("module", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in MODULES if name not in QUICK)])
@pytest.mark.timeout(1900)
def test_a_module_comes_out_as_on_upstreams_loop(module, inject):
    comparison = compare(module, inject, seed=1)
    assert comparison.good, (
        comparison.unlisted, comparison.strayed, comparison.plain.end, comparison.ours.end, comparison.ours.output[-2000:])


def test_a_test_that_runs_another_loop_fails():
    plain = Run({"a.B.c": ["success"]}, facts={"a.B.c": {"selector_loops": 1}})
    ours = Run({"a.B.c": ["success"]}, facts={"a.B.c": {"commits": 0}})
    assert Comparison("a", plain, ours, {}).strayed == ["a.B.c"]
    assert not Comparison("a", plain, ours, {}).good
    ours.facts["a.B.c"]["commits"] = 1
    assert Comparison("a", plain, ours, {}).good


def test_a_module_of_no_suite_is_one_line_and_status_2(capsys):
    with pytest.raises(SystemExit) as end:
        main(["json"])
    assert end.value.code == 2 and "no suite has json" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, said", [
    (["--inject", "1"], "not a rate, from 0 to below 1: '1'"),
    (["--inject", "nan"], "not a rate, from 0 to below 1: 'nan'"),
    (["--threads", "0"], "not a number of threads, 127 at most: '0'"),
    (["--threads", "128"], "not a number of threads, 127 at most: '128'"),
    (["--timeout", "-1"], "not a positive number of seconds: '-1'"),
])
def test_what_cannot_be_run_so_is_said_before_anything_runs(capsys, arguments, said):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2 and said in capsys.readouterr().err
