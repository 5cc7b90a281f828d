"""Runs the tests of a package, in a process of its own, and writes what became of each to a file.

    python child.py RECORDS SOURCE INSTALLED WAY [--inject RATE] [--seed N] [--threads N] [--shuffle]

WAY is ``transactions``: the tests of a module beside each other, each a transaction; or ``plain``: one after the other, in another
order with ``--shuffle``.
"""

import argparse
import collections
import inspect
import itertools
import os
import random
import sys
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.comparison.child import Runner, as_line, described, open_records, prepare_process  # noqa: E402

MOST = 12  # tests that one function gives by its parameters: some packages have thousands

#: fixtures with which a test exchanges what all share, or which need the rest of pytest around each test
SHARED = {
    "monkeypatch", "mocker", "capsys", "capfd", "capsysbinary", "capfdbinary", "caplog", "recwarn", "pytester", "testdir", "benchmark",
    "event_loop", "anyio_backend",
}


def parse(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("records")
    parser.add_argument("source")
    parser.add_argument("installed")
    parser.add_argument("way", choices=["transactions", "plain"])
    parser.add_argument("--inject", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shuffle", action="store_true")
    return parser.parse_args(arguments)


class Beside(Runner):
    """A plugin of pytest's that runs the tests itself: those of a module are set up, then all run, then torn down.

    Args:
        records: the descriptor of the file to write to.
        options: of the command line.
    """

    def __init__(self, records, options):
        super().__init__(records)
        self.options = options
        self.order = random.Random(options.seed) if options.shuffle else None

    def pytest_runtestloop(self, session):
        for _, items in itertools.groupby(filter(fits, session.items), lambda item: item.path):
            self.run_module(session, some_of_each(items))
        return True

    def run_module(self, session, items):
        ready = [prepared for item in items if (prepared := Prepared.of(session, item)) is not None]
        if self.order:
            self.order.shuffle(ready)
        if self.options.way == "plain":
            for prepared in ready:
                self.write({"begins": prepared.name})
                self.ended(prepared.name, *prepared.run())
        else:
            self.run_as_transactions(ready)
        for prepared in reversed(ready):
            if failure := prepared.tear_down(session):  # the same test's, beside how it has ended
                self.ended(prepared.name, [f"tear-down: {type(failure).__name__}"], [shortened((type(failure), failure, failure.__traceback__))])

    def run_as_transactions(self, ready):
        from tornado.stm import core, transaction

        begin_attempt = core.trusted(lambda line: os.write(self.records, line))

        def run(prepared, begins):
            begin_attempt(begins)
            events, traces = prepared.run()
            core.defer(self.committed, prepared.name, events, traces, core.is_exclusive())

        queue = transaction.TransactionQueue()
        for prepared in ready:
            queue.add(run, prepared, as_line({"begins": prepared.name}))
        queue.run()

    def committed(self, name, events, traces, exclusive):
        self.ended(name, events, traces, exclusive=exclusive)

    def stats(self):
        if self.options.way == "plain":
            return {}
        from tornado.stm import core

        core.inject_aborts(0, 0)
        return core.stats()


def fits(item):
    """Can this test run beside others, as far as can be told?"""
    from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

    if not hasattr(item, "obj") or not hasattr(item, "_fixtureinfo") or SHARED & set(item._fixtureinfo.argnames):
        return False
    if inspect.iscoroutinefunction(inspect.unwrap(item.obj)) or inspect.isasyncgenfunction(inspect.unwrap(item.obj)):
        return False
    expected = evaluate_xfail_marks(item)
    return evaluate_skip_marks(item) is None and (expected is None or expected.run)


def some_of_each(items):
    """As many as `MOST` of those tests that are one function's."""
    counts = collections.Counter()
    chosen = []
    for item in items:
        function = item.nodeid.partition("[")[0]
        counts[function] += 1
        if counts[function] <= MOST:
            chosen.append(item)
    return chosen


class Prepared:
    """A test that is set up, while others are, too: pytest sets up one after the other, and keeps one value of each fixture.

    So each has a state of its own of what is set up, and what its fixtures of functions have made is taken from them until it is torn down.
    """

    def __init__(self, item, state):
        self.item, self.state, self.name = item, state, item.nodeid
        self.made = []

    @classmethod
    def of(cls, session, item):
        """Set a test up; None if that fails."""
        from _pytest.runner import SetupState

        self = cls(item, SetupState())
        session._setupstate = self.state
        try:
            self.state.setup(item)
        except BaseException as failure:  # a Skipped is one
            if isinstance(failure, KeyboardInterrupt):
                raise
            self.keep()
            self.tear_down(session)
            return None
        self.keep()
        return self

    def fixtures(self):
        return [fixture for fixture in self.item._request._fixture_defs.values() if getattr(fixture, "scope", None) == "function"]

    def keep(self):
        for fixture in self.fixtures():
            self.made.append((fixture, fixture.cached_result, fixture._finalizers))
            fixture.cached_result, fixture._finalizers = None, []

    def tear_down(self, session):
        """Returns what that raises, if anything: fixtures look at what their test has done."""
        session._setupstate = self.state
        for fixture, result, finalizers in self.made:
            fixture.cached_result, fixture._finalizers = result, finalizers
        try:
            self.state.teardown_exact(None)
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                raise
            return failure
        return None

    def run(self):
        """The kind of what it raises, in a list, and how that came."""
        import pytest

        item = self.item
        try:
            if isinstance(item, pytest.Function) and type(item).__name__ != "TestCaseFunction":
                item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
            else:
                item.runtest()
                for failure in getattr(item, "_excinfo", None) or ():
                    raise failure.value
        except BaseException:
            error = sys.exc_info()
            return [error[0].__name__], [shortened(error)]
        return ["success"], []


def shortened(error):
    return "".join(traceback.format_tb(error[2])[-6:]) + described(error)[:2000]


def forget_own_tests():
    """The package may have a package ``tests`` of its own."""
    del sys.path[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]


def main():
    options = parse()
    prepare_process()
    records = open_records(options.records)
    forget_own_tests()
    sys.path.insert(0, options.installed)
    if options.way == "transactions":
        from tornado.stm import activation, core, transaction

        activation.activate()
        transaction.set_threads(options.threads)
        core.inject_aborts(options.inject, options.seed)
    os.chdir(options.source)
    import hypothesis
    import pytest

    hypothesis.settings.register_profile("few", max_examples=5, deadline=None, database=None, derandomize=True)
    hypothesis.settings.load_profile("few")
    beside = Beside(records, options)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-o", "addopts=",
                          "--continue-on-collection-errors", "-W", "ignore"], plugins=[beside])
    beside.end()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if status in (0, 1) else int(status))


if __name__ == "__main__":
    main()
