"""Programs whose results do not depend on the order of their steps have the results that they have on upstream's loop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import planted
import random_programs
from interpreters import needs_engine

needs_engine()

RUN = Path(__file__).with_name("confluent") / "run.py"
#: (threads, aborts); every program is run with each of them
SCHEDULES = [(1, 0.005), (2, 0), (2, 0.002), (4, 0.002)]
AT_ONCE = 50  # programs of one process


def lines_of(command):
    """The lines that it has printed, and how it ended if not well."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0"})
    return done.stdout.splitlines() + ([f"status {done.returncode}: {done.stderr[-5000:]}"] if done.returncode or done.stderr else [])


def differences(first, count, engine=planted.ROOT, schedules=SCHEDULES):
    """What comes out otherwise than on upstream's loop, of the programs from that seed on, by the engine in that directory."""
    expected = lines_of([str(RUN), str(first), str(count)])
    assert len(expected) == count and not any("Traceback" in line for line in expected), "not on upstream's loop, either"
    found = []
    for threads, aborts in schedules:
        loop = ["-c", planted.ELSEWHERE, str(engine), "-q", "-j", str(threads)]
        got = lines_of([*loop, str(RUN), str(first), str(count), str(aborts)])
        for here, there in zip(got + [""] * count, expected + got[count:]):
            if here != there:
                found.append(f"{threads} threads, {aborts} aborts, program {there.split()[0]}: {parts(here, there)}")
    return found


def parts(here, there):
    """Where two lines begin to differ."""
    start = max(0, len(os.path.commonprefix([here, there])) - 100)
    return f"{here[start:][:400]!r}, and upstream {there[start:][:400]!r}"


def run_programs(count, seed):
    for first in range(seed, seed + count, AT_ONCE):
        assert differences(first, min(AT_ONCE, seed + count - first)) == []


def test_programs_have_the_results_of_upstreams_loop():
    run_programs(8, seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_programs_have_the_results_of_upstreams_loop():
    random_programs.run_as_told(run_programs, 1000)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", planted.BUGS_CONFLUENT)
def test_planted_bugs_are_found(bug, tmp_path):
    planted.plant(bug, tmp_path)
    for first in range(1, 1000, AT_ONCE):
        found = differences(first, AT_ONCE, engine=tmp_path, schedules=[(4, 0.002), (2, 0.02)])
        if found:
            break
    print(bug, first, found[:1])
    assert found
