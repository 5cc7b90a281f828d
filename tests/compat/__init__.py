"""Tornado's and asyncio's own tests on the transactional loop: does each come out as on upstream's loop?

Each module of them runs on the same interpreter in processes of their own: on the event loop that comes with Python, and on
ours on two threads, where asked for with aborts injected at random barriers.  What a test runs on a loop then consists of
transactions; what it does around it is ordinary code.  Every test must come out the same, and whatever runs on upstream's
selector loop must have run as transactions on ours.  What cannot is listed in ``differences.txt``, one by one, with the
reason.

    python -m tests.compat [--threads N] [--inject RATE...] [--seed N] [tornado | asyncio | MODULE...]

A suite is a module of this package: see `tornado_suite`.
"""

import functools
import importlib
from pathlib import Path

from tests import comparison as compared

HERE = Path(__file__).resolve().parent

#: the suites, each a module here that has MODULES, ENVIRONMENT, prepare() and install(threads)
SUITES = ["tornado", "asyncio"]

THREADS = 2
TIMEOUT = 900  # seconds for a module in one process


class Comparison(compared.Comparison):
    """A module's tests on upstream's loop (`plain`) and on `ours`."""

    @property
    def strayed(self):
        """The tests that run a selector event loop plainly, and no transaction with ours."""
        return sorted(
            name for name in self.plain.having("selector_loops") & self.ours.outcomes.keys()
            if not self.ours.facts[name]["commits"] and compared.reason(self.listed, name) is None
        )

    @property
    def good(self):
        return super().good and not self.strayed


def suite(name):
    """The module that describes a suite."""
    return importlib.import_module(f"{__name__}.{name}_suite")


def suite_of(module):
    """The name of the suite that has this module of tests.  Raises ValueError if none has."""
    for name in SUITES:
        if module.startswith(suite(name).PREFIX):
            return name
    raise ValueError(f"no suite has {module}")


def compare(module, inject=0.0, seed=0, timeout=TIMEOUT, threads=THREADS):
    """Run a module of tests on upstream's loop and on ours.

    Args:
        module: such as ``tornado.test.web_test``; a class and a method of it may follow.
        inject: how likely an abort is at each barrier of a first attempt; see `core.inject_aborts`.
        seed: of these aborts.
        timeout: seconds for each of the two processes.
        threads: how many run transactions.
    """
    ours = run(module, f"--threads={threads}", f"--inject={inject}", f"--seed={seed}", timeout=timeout)
    return Comparison(module, upstream(module, timeout), ours, compared.differences(HERE / "differences.txt"))


@functools.cache
def upstream(module, timeout):
    """The module on upstream's loop: once for any number of comparisons."""
    return run(module, timeout=timeout)


def run(module, *options, timeout):
    name = suite_of(module)
    return compared.run(HERE / "child.py", name, module, *options, timeout=timeout, environment=suite(name).ENVIRONMENT)
