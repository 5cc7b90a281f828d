"""Runs one module of a suite on one kind of event loop, in a process of its own.

    python child.py RECORDS SUITE MODULE [--threads N [--inject RATE] [--seed N]]

With ``--threads`` the event loops are transactional, else upstream's.  Tests run on the main thread, one after the other.
RECORDS tells of each test, beside its outcome, whether a selector event loop ran (``selector_loops``), and how many
transactions were committed (``commits``).
"""

import argparse
import asyncio
import contextlib
import importlib
import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.comparison.child import Runner, load_tests, open_records, outcome_of, prepare_process  # noqa: E402

LONGEST = 300  # seconds that a test may take


class NoEnd(BaseException):
    """The test has taken too long."""


@contextlib.contextmanager
def limited():
    """End what waits on the main thread for ever, so that the tests behind it run."""

    def give_up(number, frame):
        raise NoEnd

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def run(case):
    with limited():
        return outcome_of(case)


class UpstreamRunner(Runner):
    """Runs tests on upstream's loop, and counts the times that one runs."""

    def __init__(self, records):
        super().__init__(records)
        self.loops = 0
        setup = asyncio.SelectorEventLoop._run_forever_setup

        def counted(loop):
            setup(loop)
            self.loops += type(loop) is asyncio.SelectorEventLoop

        asyncio.SelectorEventLoop._run_forever_setup = counted

    def test(self, case):
        self.write({"begins": case.id()})
        before = self.loops
        outcome = run(case)
        self.ended(case.id(), outcome.events, outcome.traces, selector_loops=self.loops - before)


class TransactionalRunner(Runner):
    """Runs tests on our loop."""

    def __init__(self, records, inject, seed):
        from tornado.stm import activation, core

        super().__init__(records)
        self.core = core
        activation.activate()
        core.inject_aborts(inject, seed)

    def test(self, case):
        self.write({"begins": case.id()})
        before = self.core.stats()["commits"]
        outcome = run(case)
        self.ended(case.id(), outcome.events, outcome.traces, commits=self.core.stats()["commits"] - before)

    def stats(self):
        self.core.inject_aborts(0, 0)
        return self.core.stats()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("records")
    parser.add_argument("suite")
    parser.add_argument("module")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--inject", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prepare_process()
    suite = importlib.import_module(f"tests.compat.{options.suite}_suite")
    sys.argv[1:] = []
    suite.prepare()
    if options.threads is not None:
        suite.install(options.threads)
    tests = load_tests(options.module)
    records = open_records(options.records)
    runner = TransactionalRunner(records, options.inject, options.seed) if options.threads is not None else UpstreamRunner(records)
    runner.run_all(tests)
    runner.end()


if __name__ == "__main__":
    main()
