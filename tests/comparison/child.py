"""Runs the tests of a module one by one, as they are, and writes what becomes of each to a file.

Every event is a line of JSON: ``{"begins": id}`` for each attempt at a test; ``{"ends": id, "events": ..., "traces": ...}``
with its outcome, the tracebacks and whatever facts the way of running it adds, when it is over; ``{"stats": ...}`` at the end.
"""

import contextlib
import faulthandler
import importlib.util
import itertools
import json
import os
import re
import resource
import signal
import sys
import traceback
import unittest

ADDRESS_SPACE = 8 << 30  # bytes: the marks and the stacks of the threads, and a test that goes wild stops there


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
        self.add("error: ", error)

    def addFailure(self, test, error):
        self.add("failure: ", error)

    def addExpectedFailure(self, test, error):
        self.add("expected failure: ", error)

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


def outcome_of(case):
    """Run a test; return what unittest has to say of it."""
    outcome = Outcome()
    try:
        case.run(outcome)
    except BaseException:
        outcome.add("raised ", sys.exc_info())
    return outcome


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
    """Runs tests one by one, as they are.

    Args:
        records: the descriptor of the file to write to.
    """

    def __init__(self, records):
        self.records = records

    def write(self, record):
        os.write(self.records, as_line(record))

    def test(self, case):
        """Run one test and record what came of it."""
        self.write({"begins": case.id()})
        outcome = outcome_of(case)
        self.ended(case.id(), outcome.events, outcome.traces)

    def ended(self, name, events, traces=(), **facts):
        self.write({"ends": name, "events": events, "traces": traces, **facts})

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
        self.write({"stats": self.stats()})

    def stats(self):
        """Counts of the whole process."""
        return {}


class Skipped(Exception):
    """The tests of a fixture that could not be set up are left out."""


def nothing(*_):
    """Does nothing."""


def prepare_process():
    """Print the stacks of a process that dies; let none take the machine's memory, or leave a core; let SIGINT interrupt."""
    faulthandler.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell that started all this in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves more than any machine has
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_tests(name):
    """The tests of a module; ends the process if it cannot be loaded, since that is the same on both sides."""
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromName(name)
    if loader.errors:
        sys.exit(loader.errors[0])
    return suite


def open_records(path):
    """The descriptor of the file for the records."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
