"""The test tool itself: what it must notice, and that each of its means does what it says."""

import pytest

from tornado.stm import activation, core, testing

activation.activate()

parallel = pytest.mark.skipif(not core.PARALLEL, reason="nothing is rolled back where transactions run one at a time")


def make_counter():
    return {"n": 0}


def increment(heap, by):
    heap["n"] += by
    return heap["n"]


def fail(heap, by):
    heap["n"] += by
    raise ValueError(by)


def test_serial_programs_pass():
    calls = [(increment, 1), (increment, 10), (fail, 100)] * 4
    run = testing.check_serializable(make_counter, calls, seed=1, runs=5)
    assert run.heap == {"n": 444}
    assert sorted(run.order) == list(range(12))
    assert [type(e) for e in run.exceptions] == [type(None), type(None), ValueError] * 4


@pytest.mark.parametrize("options", [{"runs": 0}, {"threads": 0}])
def test_what_would_check_nothing_is_refused(options):
    with pytest.raises(ValueError, match="at least"):
        testing.check_serializable(make_counter, [(increment, 1)], **options)


@pytest.mark.parametrize("change, text", [
    (lambda run: run.values.__setitem__(0, -1), "call 0[0]: -1 concurrently, 1 serially"),
    (lambda run: run.exceptions.__setitem__(0, KeyError()), "KeyError"),
    (lambda run: run.heap.update(n=7), "heap['n']: 7 concurrently, 1 serially"),
    (lambda run: run.broken.append((0, "a rule")), "call 0 has seen a state that no serial run has: a rule"),
    (lambda run: run.early.append(1), "call 1 has taken effect before call 0, which it was to follow"),
])
def test_each_kind_of_difference_is_reported_with_the_seed(change, text):
    calls = [(increment, 1)]
    run = testing.run_concurrently(make_counter, calls)
    serial = testing.replay(make_counter, calls, run.order)
    testing.judge(run, serial, calls, 5)
    change(run)
    with pytest.raises(AssertionError) as caught:
        testing.judge(run, serial, calls, 5)
    assert text in str(caught.value) and "seed=5" in str(caught.value)


@parallel
def test_calls_that_are_ordered_take_effect_in_their_order():
    for seed in range(5):
        run = testing.run_concurrently(make_counter, [(increment, 1)] * 12, seed=seed, ordered=1)
        assert run.order == list(range(12)) and run.early == []
        assert run.values == list(range(1, 13))


def break_a_rule(heap):
    testing.require(False, "always broken")


def test_a_rule_that_a_serial_run_breaks_is_told_apart():
    with pytest.raises(AssertionError, match="when it runs alone: always broken"):
        testing.check_serializable(make_counter, [(break_a_rule,)])


def leave_a_trace(heap):
    heap["trace"] = True
    testing.require(False, "seen in the attempt that is undone")


@parallel
def test_rehearsals_take_place_and_are_rolled_back():
    before = core.stats()["aborts"]
    calls = [(testing.perform_rehearsed, ((leave_a_trace,),), (increment, 1))]
    run = testing.run_concurrently(make_counter, calls, aborts=0, delays=0)
    assert core.stats()["aborts"] == before + 1
    assert run.exceptions == [None] and run.values == [[1]]
    assert run.heap == {"n": 1}
    # What the attempt noted outlives it.
    assert run.broken == [(0, "seen in the attempt that is undone")]


def go_alone(heap):
    heap["n"] = 100
    core.exclusive("a test")
    heap["n"] = 200


@parallel
def test_a_rehearsal_never_runs_alone():
    calls = [(testing.perform_rehearsed, ((go_alone,),), (increment, 1))]
    run = testing.run_concurrently(make_counter, calls, aborts=0, delays=0)
    assert run.heap == {"n": 1} and run.exceptions == [None]


@pytest.mark.parametrize("one, other", [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ([[1], [1]], [[1]] * 2),
    (1, True),
    (ValueError(1), ValueError(2)),
])
def test_pictures_differ(one, other):
    assert testing.describe(it=one) != testing.describe(it=other)


def test_pictures_of_sets_have_no_order():
    assert testing.describe(it={0, 8, 16}) == testing.describe(it={16, 8, 0})


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": -1}, {"runs": 0}, {"aborts": 1}, {"aborts": -0.1}, {"delays": 2}, {"pause": 1}])
def test_what_cannot_be_is_refused_and_leaves_nothing_behind(options):
    with pytest.raises(ValueError):
        testing.check_serializable(make_counter, [(increment, 1)] * 3, **({"aborts": 0.9} | options))
    before, heap = core.stats()["aborts"], make_counter()
    for _ in range(50):
        core.Transaction(increment, (heap, 1)).run()
    assert (heap["n"], core.stats()["aborts"]) == (50, before)
