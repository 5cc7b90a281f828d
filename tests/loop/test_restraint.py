"""Is what is short worth a second thread?  The algorithm alone, on a clock of the test's."""

import ctypes
import itertools
import random
import subprocess
import sysconfig

import pytest

from interpreters import FREE_THREADED, ROOT

pytestmark = pytest.mark.skipif(not FREE_THREADED, reason="there is one thread")

SOURCE = ROOT / "tornado" / "stm" / "engine" / "dispatch" / "restraint.c"


class Restraint(ctypes.Structure):
    _fields_ = [
        ("all", ctypes.c_bool), ("settled", ctypes.c_bool), ("at", ctypes.c_int), ("begun", ctypes.c_double),
        ("callbacks", ctypes.c_uint64), ("before", ctypes.c_double), ("tried", ctypes.c_double),
        ("usual", ctypes.c_double), ("lately", ctypes.c_double), ("in_a_row", ctypes.c_int), ("keep", ctypes.c_int), ("left", ctypes.c_int),
    ]


@pytest.fixture(scope="module")
def restraint(tmp_path_factory):
    library = tmp_path_factory.mktemp("restraint") / "restraint.so"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(SOURCE), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.restraint_look.argtypes = [ctypes.POINTER(Restraint), ctypes.c_double, ctypes.c_uint64]
    loaded.restraint_calls_all.argtypes = [ctypes.POINTER(Restraint), ctypes.c_double]
    loaded.restraint_look.restype = loaded.restraint_calls_all.restype = ctypes.c_bool
    return loaded


class Load:
    """Much that is short waits all the time; so many callbacks a second run on one thread, and on all.

    `noise` says how many times as many it is in the present millisecond.
    """

    def __init__(self, restraint, one, all, noise=lambda: 1.0):
        self.restraint, self.rates, self.noise, self.state, self.now, self.callbacks = restraint, (one, all), noise, Restraint(), 1000.0, 0.0

    def pass_time(self, seconds):
        """The share of the time in which all threads are called."""
        steps, called = round(seconds / 0.001), 0
        for _ in range(steps):
            of_all = self.restraint.restraint_look(ctypes.byref(self.state), self.now, int(self.callbacks))
            called += of_all
            self.now += 0.001
            self.callbacks += self.rates[of_all] * self.noise() * 0.001
        return called / steps


def test_one_thread_does_it_until_more_is_known(restraint):
    assert not restraint.restraint_look(ctypes.byref(Restraint()), 1000.0, 5)


def test_all_are_called_where_that_is_more(restraint):
    load = Load(restraint, 10_000, 14_000)
    load.pass_time(10)
    assert load.pass_time(40) > 0.95


@pytest.mark.parametrize("gain", [0.5, 0.9, 1.2])
def test_one_thread_goes_on_where_that_is_not_more(restraint, gain):
    load = Load(restraint, 10_000, gain * 10_000)
    load.pass_time(10)
    assert load.pass_time(40) < 0.05


def test_a_trial_that_loses_much_is_short(restraint):
    load = Load(restraint, 10_000, 6_000)
    assert 10 * load.pass_time(10) < 0.65  # seconds
    assert 60 * load.pass_time(60) < 0.9


def test_what_takes_long_is_not_tried_for_long(restraint):
    load = Load(restraint, 400, 700)
    load.pass_time(0.6)
    assert load.pass_time(0.4) == 1.0


def varied(deviation, steps, seed):
    """So many times as many for so many milliseconds each, and with so wide a spread."""
    randomness = random.Random(seed)
    varied = itertools.chain.from_iterable(itertools.repeat(randomness.lognormvariate(0, deviation), steps) for _ in itertools.count())
    return lambda: next(varied)


def test_what_takes_long_is_left_to_all_though_a_window_has_few_of_them(restraint):
    """Loaded for a second, then for three not at all."""
    called = []
    for seed in range(20):
        load = Load(restraint, 290, 410, varied(0.2, 50, seed))
        load.pass_time(1)
        for _ in range(20):
            load.now += 3
            called.append(load.pass_time(1))
    assert sum(called) / len(called) > 0.93


def test_what_takes_long_is_left_to_one_where_all_are_no_gain(restraint):
    load = Load(restraint, 290, 410)
    load.pass_time(10)
    load.rates = (290, 280)
    load.pass_time(20)
    assert load.pass_time(20) < 0.05


def test_what_was_found_is_looked_at_again(restraint):
    load = Load(restraint, 10_000, 14_000)
    load.pass_time(30)
    load.rates = (10_000, 9_000)
    load.pass_time(20)
    assert load.pass_time(40) < 0.05
    load.rates = (10_000, 14_000)
    load.pass_time(20)
    assert load.pass_time(40) > 0.95


def test_a_load_of_another_kind_is_tried_at_once(restraint):
    """Also where it comes in the middle of a trial, which says nothing then: the next one takes as long again."""
    for i in range(20):
        load = Load(restraint, 2_100, 2_700)
        load.pass_time(20 + 0.37 * i)
        for rates, all_are_better in ((12_000, 8_400), False), ((2_100, 2_700), True):
            load.rates = rates
            load.pass_time(1.2)
            assert load.state.settled == all_are_better, i
            load.pass_time(20 + 0.41 * i)


def test_a_moment_in_which_the_machine_does_something_else_asks_for_no_trial(restraint):
    load = Load(restraint, 12_000, 8_000)
    load.pass_time(60)  # trials are rare now
    called = 0.0
    for _ in range(20):
        load.rates = (500, 500)
        called += 0.05 * load.pass_time(0.05)
        load.rates = (12_000, 8_400)
        called += 0.25 * load.pass_time(0.25)
    assert called < 0.25  # seconds: one trial is due anyway


def test_what_was_found_where_much_waited_says_nothing_of_when_little_waits(restraint):
    load = Load(restraint, 2_100, 2_700)
    load.pass_time(30)
    assert restraint.restraint_calls_all(ctypes.byref(load.state), load.now)
    assert not restraint.restraint_calls_all(ctypes.byref(load.state), load.now + 0.5)


def test_a_window_in_which_there_was_too_little_to_do_says_nothing(restraint):
    load = Load(restraint, 10_000, 14_000)
    load.pass_time(30)
    load.now += 60  # nobody has asked
    assert load.pass_time(1) > 0.75  # a trial takes a fifth


@pytest.mark.parametrize("gain, least, most", [(1.0, 0.0, 0.12), (2.0, 0.85, 1.0)])
def test_what_comes_in_bursts_misleads_nobody(restraint, gain, least, most):
    called = []
    for seed in range(20):
        load = Load(restraint, 10_000, gain * 10_000, varied(0.5, 70, seed))
        load.pass_time(10)
        called.append(load.pass_time(60))
    assert least <= sum(called) / len(called) <= most
