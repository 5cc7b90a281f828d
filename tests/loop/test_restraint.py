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
        ("in_a_row", ctypes.c_int), ("keep", ctypes.c_int), ("left", ctypes.c_int),
    ]


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    library = tmp_path_factory.mktemp("restraint") / "restraint.so"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", str(SOURCE), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).restraint_look
    function.argtypes = [ctypes.POINTER(Restraint), ctypes.c_double, ctypes.c_uint64]
    function.restype = ctypes.c_bool
    return function


class Load:
    """Much that is short waits all the time; so many callbacks a second run on one thread, and on all.

    `noise` says how many times as many it is in the present millisecond.
    """

    def __init__(self, look, one, all, noise=lambda: 1.0):
        self.look, self.rates, self.noise, self.state, self.now, self.callbacks = look, (one, all), noise, Restraint(), 1000.0, 0.0

    def pass_time(self, seconds):
        """The share of the time in which all threads are called."""
        steps, called = round(seconds / 0.001), 0
        for _ in range(steps):
            of_all = self.look(ctypes.byref(self.state), self.now, int(self.callbacks))
            called += of_all
            self.now += 0.001
            self.callbacks += self.rates[of_all] * self.noise() * 0.001
        return called / steps


def test_one_thread_does_it_until_more_is_known(look):
    assert not look(ctypes.byref(Restraint()), 1000.0, 5)


def test_all_are_called_where_that_is_more(look):
    load = Load(look, 10_000, 14_000)
    load.pass_time(10)
    assert load.pass_time(40) > 0.95


@pytest.mark.parametrize("gain", [0.5, 0.9, 1.2])
def test_one_thread_goes_on_where_that_is_not_more(look, gain):
    load = Load(look, 10_000, gain * 10_000)
    load.pass_time(10)
    assert load.pass_time(40) < 0.05


def test_what_takes_long_is_not_tried_for_long(look):
    load = Load(look, 400, 700)
    load.pass_time(0.6)
    assert load.pass_time(0.4) == 1.0


def test_what_was_found_is_looked_at_again(look):
    load = Load(look, 10_000, 14_000)
    load.pass_time(30)
    load.rates = (10_000, 9_000)
    load.pass_time(20)
    assert load.pass_time(40) < 0.05
    load.rates = (10_000, 14_000)
    load.pass_time(20)
    assert load.pass_time(40) > 0.95


def test_a_window_in_which_there_was_too_little_to_do_says_nothing(look):
    load = Load(look, 10_000, 14_000)
    load.pass_time(30)
    load.now += 60  # nobody has asked
    assert load.pass_time(1) > 0.75  # a trial takes a fifth


@pytest.mark.parametrize("gain, least, most", [(1.0, 0.0, 0.12), (2.0, 0.85, 1.0)])
def test_what_comes_in_bursts_misleads_nobody(look, gain, least, most):
    called = []
    for seed in range(20):
        randomness = random.Random(seed)
        bursts = itertools.chain.from_iterable(itertools.repeat(randomness.lognormvariate(0, 0.5), 70) for _ in itertools.count())
        load = Load(look, 10_000, gain * 10_000, lambda: next(bursts))
        load.pass_time(10)
        called.append(load.pass_time(60))
    assert least <= sum(called) / len(called) <= most
