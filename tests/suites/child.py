"""Runs one suite, in a process of its own, and writes what became of each test to a file.

    python child.py MODULE RECORDS [--transactions] [--inject RATE] [--seed N]

MODULE is one of the interpreter's package ``test``, or another one; a class or a method of it may follow.

A test is one transaction from ``setUp`` to the last clean-up, because that is what its author takes to be alone in the
process: two tests of a class may patch the same module.  What a class or a module sets up is outside; the tests of one
class are what runs in parallel.

RECORDS gets a line of JSON for each event: ``{"begins": id}`` for each attempt at a test; ``{"ends": id, ...}`` with its
outcome and the tracebacks, when the test has committed; ``{"stats": ...}`` at the end.
"""

import argparse
import contextlib
import faulthandler
import importlib.util
import itertools
import json
import os
import re
import resource
import sys
import threading
import traceback
import unittest

ADDRESS_SPACE = 8 << 30  # bytes: the marks and the stacks of the threads, and a test that goes wild stops there
THREADS = 2


class Outcome:
    """What unittest tells of one test; what it tells a `unittest.TestResult`."""

    failfast = False
    shouldStop = False

    def __init__(self):
        self.events = []
        self.traces = []

    def startTest(self, test):
        pass

    def stopTest(self, test):
        pass

    def addDuration(self, test, seconds):
        pass

    def addSuccess(self, test):
        self.events.append("success")

    def addSkip(self, test, reason):
        self.events.append(f"skipped: {reason}")

    def addError(self, test, error):
        self.add(f"error: ", error)

    def addFailure(self, test, error):
        self.add(f"failure: ", error)

    def addExpectedFailure(self, test, error):
        self.add(f"expected failure: ", error)

    def addUnexpectedSuccess(self, test):
        self.events.append("unexpected success")

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.add(f"{subtest}: ", error)

    def add(self, what, error):
        self.events.append(what + described(error))
        self.traces.append("".join(traceback.format_tb(error[2])))


def described(error):
    """An exception in a line or more, without the addresses of objects."""
    type_, value, _ = error
    return re.sub(r"\b0x[0-9a-f]+", "0x...", f"{type_.__name__}: {value}")


def as_line(record):
    return (json.dumps(record) + "\n").encode()


def cases(suite):
    """The tests of a suite, one after the other."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def full_name(name):
    """The name with the package ``test`` before it, if it is there that the module is."""
    in_package = f"test.{name.partition('.')[0]}"
    return f"test.{name}" if importlib.util.find_spec(in_package) else name


class Runner:
    """Runs tests one by one, as they are."""

    def __init__(self, records):
        self.records = records

    def write(self, record):
        os.write(self.records, as_line(record))

    def test(self, case):
        """Run one test and record what came of it."""
        self.write({"begins": case.id()})
        outcome = outcome_of(case)
        self.ended(case.id(), outcome.events, outcome.traces)

    def ended(self, name, events, traces=(), exclusive=False):
        self.write({"ends": name, "events": events, "traces": traces, "exclusive": exclusive})

    def run(self, tests):
        """Run tests of one class."""
        for case in tests:
            self.test(case)

    @contextlib.contextmanager
    def fixture(self, name, set_up, tear_down, clean_up):
        """Set up for the tests inside and clean up after them; raises `Skipped` to leave them out."""
        try:
            try:
                set_up()
            except BaseException:
                self.ended(f"set-up of {name}", [described(sys.exc_info())])
                raise Skipped from None
            yield
            try:
                tear_down()
            except BaseException:
                self.ended(f"tear-down of {name}", [described(sys.exc_info())])
        finally:
            try:
                clean_up()
            except BaseException:
                self.ended(f"clean-up of {name}", [described(sys.exc_info())])

    def run_all(self, suite):
        """Run the tests of a suite with the fixtures of their modules and classes."""
        for module, of_module in itertools.groupby(cases(suite), lambda case: sys.modules[type(case).__module__]):
            with contextlib.suppress(Skipped), self.fixture(
                module.__name__,
                getattr(module, "setUpModule", nothing),
                getattr(module, "tearDownModule", nothing),
                unittest.doModuleCleanups,
            ):
                for class_, of_class in itertools.groupby(of_module, type):
                    if getattr(class_, "__unittest_skip__", False):
                        self.run(of_class)
                        continue
                    with contextlib.suppress(Skipped), self.fixture(
                        class_.__qualname__, class_.setUpClass, class_.tearDownClass, class_.doClassCleanups
                    ):
                        self.run(of_class)

    def end(self):
        """All tests have run."""
        self.write({"stats": {}})


class Skipped(Exception):
    """The tests of a fixture that could not be set up are left out."""


def nothing(*_):
    """Does nothing."""


def outcome_of(case):
    """Run a test; return what unittest has to say of it."""
    outcome = Outcome()
    try:
        case.run(outcome)
    except BaseException:
        outcome.add("raised ", sys.exc_info())
    return outcome


def transactional(records, inject, seed):
    """A Runner for which each test is a transaction."""
    from tornado.stm import core, transaction

    @core.trusted
    def begin_attempt(line):
        os.write(records, line)

    class TransactionalRunner(Runner):
        def test(self, case, begins):
            begin_attempt(begins)
            outcome = outcome_of(case)
            core.defer(self.ended, case.id(), outcome.events, outcome.traces, core.is_exclusive())

        def run(self, tests):
            queue = transaction.TransactionQueue()
            for case in tests:
                queue.add(self.test, case, as_line({"begins": case.id()}))
            queue.run()

        def end(self):
            core.inject_aborts(0, 0)
            self.write({"stats": core.stats()})

    core.activate()
    core.inject_aborts(inject, seed)
    transaction.set_threads(THREADS)
    return TransactionalRunner(records)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("records")
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--inject", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves more than any machine has
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    records = os.open(options.records, os.O_WRONLY | os.O_APPEND)
    suite = unittest.defaultTestLoader.loadTestsFromName(full_name(options.module))
    sys.argv[1:] = []
    # Not a matter of the tests: unittest clears the frames of each exception that it expected, and that runs alone.
    traceback.clear_frames = nothing
    runner = transactional(records, options.inject, options.seed) if options.transactions else Runner(records)
    # Not on the main thread, where signals arrive: with two threads a test would be there by chance.
    thread = threading.Thread(target=runner.run_all, args=(suite,))
    thread.start()
    while thread.is_alive():
        with contextlib.suppress(KeyboardInterrupt):
            thread.join()
    runner.end()


if __name__ == "__main__":
    main()
