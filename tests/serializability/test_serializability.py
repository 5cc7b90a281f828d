"""The serializability oracle: what random programs do in parallel is what they do one after the other."""

import importlib.util
from operator import methodcaller
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

import planted
import random_programs
from hooks import no_hooks_of_tools
from tornado.stm import activation, core, testing

activation.activate()
if core.PARALLEL:
    core.forget_bystanders()

HERE = Path(__file__).resolve().parent


def load(name):
    """A module of operations of its own: the one that transactions run gets barriers, the one for replays none."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / "apps" / "operations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


concurrent, plain = load("operations"), load("plain_operations")


def strategy_of(argument):
    return st.sampled_from(list(concurrent.PURSES)) if argument in PURSE_ARGUMENTS else st.integers(0, 7)


PURSE_ARGUMENTS = ("source", "target", "first", "second")


def steps_of(operations):
    return [
        (name, *map(strategy_of, function.__code__.co_varnames[1 : function.__code__.co_argcount]))
        for name, function in operations.items()
    ]


def check(program, seed, **options):
    """Raise an AssertionError unless this run of the program is what it would be one after the other."""
    with no_hooks_of_tools():
        run = testing.run_concurrently(concurrent.Heap, calls_of(program, concurrent), seed=seed, **options)
    calls = calls_of(program, plain)
    again = testing.replay(plain.Heap, calls, run.order)
    try:
        testing.judge(run, again, calls, seed, methodcaller("observe"))
    finally:
        run.heap.mail.close()
        again.heap.mail.close()


def calls_of(program, module):
    return [(getattr(module, way), *steps) for way, *steps in program]


def names_in(code):
    """The names that the code, and code nested in it, refers to."""
    nested = [names_in(const) for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*nested)


def that_use(part, operations):
    return {name: function for name, function in operations.items() if part in names_in(function.__code__)}


def parts_of_heap():
    heap = concurrent.Heap()
    heap.mail.close()
    return sorted(vars(heap))


#: (operations, those to be undone) that have to do with each part of the heap.  The operations of a program must meet, or
#: nothing can go wrong.
POOLS = [
    (steps_of(operations), steps_of(that_use(part, concurrent.UNDONE)))
    for part in parts_of_heap()
    if (operations := that_use(part, concurrent.OPERATIONS))
]


def programs_of(pools):
    operations, undone = map(list, zip(*pools))
    return testing.programs(
        sum(operations, []), sum(undone, []), ways=("perform", "perform_all"), rehearsed="perform_rehearsed"
    )


PROGRAMS = st.lists(st.sampled_from(POOLS), min_size=1, max_size=2).flatmap(programs_of)
#: combinations of (threads, aborts, delays); which one a program gets depends on its seed
SCHEDULES = [(2, 0.005, 0.02), (3, 0.02, 0.05), (4, 0.002, 0.02), (4, 0.05, 0.01), (6, 0, 0.1)]


def run_programs(count, seed, tries, shrink=True):
    """Let hypothesis make that many programs; the message of a failure shows the smallest one that it found.

    Threads do not do the same again.  So once a program has failed, it and its smaller variants get more `tries`.
    """
    failure = None

    @hypothesis_seed(seed)
    @settings(
        max_examples=count, deadline=None, database=None, phases=(Phase.generate, Phase.shrink)[: 1 + shrink], print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(PROGRAMS, st.integers(0, 2**16))
    def run(program, seed):
        nonlocal failure
        threads, aborts, delays = SCHEDULES[seed % len(SCHEDULES)]
        for attempt in range(tries if failure else 1):
            try:
                check(program, seed + attempt, threads=threads, aborts=aborts, delays=delays)
            except Exception as e:
                failure = min(failure, e, key=lambda each: len(str(each))) if failure else e
                raise

    try:
        run()
    except Exception as e:
        # Where it did not happen again, hypothesis only says that.
        raise failure or e from None


def advance(number):
    """The step that takes the next item of the iterator with this number."""
    names = ("iterator_advanced", "more_iterators_advanced", "still_more_iterators_advanced", "yet_more_iterators_advanced")
    return names[number // 8], number % 8


@pytest.mark.skipif(not core.PARALLEL, reason="nothing is rolled back where transactions run one at a time")
@pytest.mark.parametrize("step, iterator", [
    (("walked_ordered_changed", 0), 28),
    (("walked_ordered_emptied", 0), 28),
    (("table_emptied", 0), 11),
    (("table_changed", 0), 5),
    (("table_grown",), 5),
    (("walked_set_changed", 2), 8),
    (("walked_set_emptied", 7), 8),
    (("walked_set_grown",), 8),
    (("walked_deque_changed", 2), 9),
    (("walked_deque_pushed", 2), 9),
    (("walked_deque_emptied",), 9),
])
def test_an_iterator_keeps_its_place_when_what_it_is_over_is_rolled_back(step, iterator):
    taken = advance(iterator)
    for before in range(6):
        program = [("perform_all", *[taken] * before)] * (before > 0)
        program += [("perform_rehearsed", (step, taken), taken), ("perform_all", *[taken] * 8)]
        check(program, 1, threads=1, aborts=0, delays=0)


def test_random_programs_are_serializable():
    run_programs(200, seed=1, tries=30)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_programs_are_serializable():
    random_programs.run_as_told(run_programs, 10000, tries=100)


@pytest.mark.parametrize("bug", planted.ALL)
def test_planted_bugs_fit_the_engine(bug):
    for file, old, new in planted.ALL[bug]:
        planted.replaced(planted.ROOT / "tornado" / "stm" / file, old, new)


@pytest.mark.parametrize("arguments", [["no such bug"], ["a lost undo entry", "x"], [next(iter(planted.BUGS_BESIDE))]])
def test_a_bug_that_cannot_be_planted_is_one_line_and_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        planted.main(arguments)
    assert end.value.code == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.long
@pytest.mark.timeout(7200)  # what is not found is a matter of programs, not of the machine
@pytest.mark.parametrize("bug", planted.BUGS)
def test_planted_bugs_are_found(bug, tmp_path):
    planted.plant(bug, tmp_path)
    taken = [planted.hunt(tmp_path, seed, programs=4000) for seed in (1, 2, 3)]
    print(bug, [each["programs"] for each in taken])
    assert all(each["found"] for each in taken)
