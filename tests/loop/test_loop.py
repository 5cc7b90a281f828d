"""The loop against what asyncio and Tornado promise: the checks of lifecycle_programs/loop_checks.py, in other processes.

Each check runs on two threads, once undisturbed, once without sequential transactions, and once with aborts injected; where there
are interpreters with a GIL, on those too: same results.
"""

import json
import os
import subprocess
import sys

import pytest

from interpreters import FREE_THREADED, ROOT, WITH_A_GIL

CHECKS = ROOT / "tests" / "loop" / "lifecycle_programs" / "loop_checks.py"
NAMES = [
    line.split("(")[0].split()[-1]
    for line in CHECKS.read_text().partition("\n# The program\n")[0].splitlines()
    if line.startswith(("async def ", "def ")) and "()" in line
]

#: name: the interpreter, the seed for aborts (0: none)
VARIANTS = {"undisturbed": (sys.executable, 0), "parallel": (sys.executable, 0), "aborts": (sys.executable, 41)} if FREE_THREADED else {}
VARIANTS |= {f"gil-{version}": (python, 0) for version, python in WITH_A_GIL.items()}


def run_checks(variant, names):
    """What went wrong by check: None if nothing did.  A check that gets stuck or crashes ends its process only."""
    interpreter, seed = VARIANTS[variant]
    environment = {**os.environ, **({"TORNADO_STM_SEQUENTIAL": "0"} if variant == "parallel" else {})}
    results = {}
    while names:
        process = subprocess.run(
            [interpreter, str(CHECKS), str(seed), *names], capture_output=True, text=True, cwd=ROOT, env=environment
        )
        results.update(json.loads(line) for line in process.stdout.splitlines() if line.startswith("["))
        names = [name for name in names if name not in results]
        if names:
            results[names[0]] = f"the process ended with status {process.returncode}\n{process.stderr[-6000:]}"
            names = names[1:]
    return results


_results = {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_loop(variant, name):
    if variant not in _results:
        _results[variant] = run_checks(variant, NAMES)
    failure = _results[variant][name]
    assert failure is None, f"{name} ({variant}):\n{failure}"
