"""Random programs of the operations on a heap, run by the serializability oracle."""

import os
import random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from tornado.stm import testing

SCHEDULES = [(2, 0.005, 0.02), (3, 0.02, 0.05), (4, 0.002, 0.02)]  # (threads, aborts, delays)


def run(make_heap, operations, count, seed, observe=None):
    """So many programs of operations, {name: function of the heap and small numbers}."""
    steps = [(function, *[st.integers(0, 7)] * (function.__code__.co_argcount - 1)) for function in operations.values()]

    @hypothesis_seed(seed)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(testing.programs(steps), st.integers(0, 2**16))
    def run_one(program, seed):
        threads, aborts, delays = SCHEDULES[seed % len(SCHEDULES)]
        testing.check_serializable(
            make_heap, program, observe=observe, seed=seed, threads=threads, aborts=aborts, delays=delays
        )

    run_one()


def run_as_told(run_programs, count, **options):
    """SERIALIZABILITY_SEED=n and SERIALIZABILITY_PROGRAMS=n run others, or more."""
    seed = int(os.environ.get("SERIALIZABILITY_SEED", random.randrange(2**32)))
    print("seed", seed)
    run_programs(int(os.environ.get("SERIALIZABILITY_PROGRAMS", count)), seed=seed, **options)
