"""Runs one suite, in a process of its own, and writes what became of each test to a file.

    python child.py RECORDS MODULE WAY [--inject RATE] [--seed N]

MODULE is one of the interpreter's package ``test``, or another one; a class or a method of it may follow.  WAY is

* ``transactions``: each test is one;
* ``plain``: on one thread, beside the main thread as there;
* ``outside``: on the main thread, on the engine's evaluation loop, but in no transaction;
* ``main``: on the main thread, plainly.

As a transaction, a test is one transaction from ``setUp`` to the last clean-up, because that is what its author takes to be alone in the
process: two tests of a class may patch the same module.  What a class or a module sets up is outside; the tests of one
class are what runs in parallel.  A test ends, for RECORDS, when it has committed.
"""

import argparse
import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.comparison.child import (  # noqa: E402
    Runner, as_line, full_name, load_tests, nothing, open_records, outcome_of, prepare_process,
)

THREADS = 2


def transactional(records, inject, seed):
    """A Runner for which each test is a transaction."""
    from tornado.stm import activation, core, transaction

    @core.trusted
    def begin_attempt(line):
        os.write(records, line)

    class TransactionalRunner(Runner):
        def test(self, case, begins):
            begin_attempt(begins)
            outcome = outcome_of(case)
            core.defer(self.committed, case.id(), outcome.events, outcome.traces, core.is_exclusive())

        def committed(self, name, events, traces, exclusive):
            self.ended(name, events, traces, exclusive=exclusive)

        def run(self, tests):
            queue = transaction.TransactionQueue()
            for case in tests:
                queue.add(self.test, case, as_line({"begins": case.id()}))
            queue.run()

        def stats(self):
            core.inject_aborts(0, 0)
            return core.stats()

    activation.activate()
    core.inject_aborts(inject, seed)
    transaction.set_threads(THREADS)
    return TransactionalRunner(records)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("records")
    parser.add_argument("module")
    parser.add_argument("way", choices=["transactions", "plain", "outside", "main"])
    parser.add_argument("--inject", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prepare_process()
    records = open_records(options.records)
    suite = load_tests(full_name(options.module))
    sys.argv[1:] = []
    if options.way in ("outside", "main"):
        if options.way == "outside":
            from tornado.stm import activation
            activation.activate()
        runner = Runner(records)
        runner.run_all(suite)
    else:
        runner = run_beside_main(records, suite, options)
    runner.end()


def run_beside_main(records, suite, options):
    """Run the tests on other threads than the main one, where signals arrive: with two threads a test would be there by chance."""
    # Not a matter of the tests: unittest clears the frames of each exception that it expected, and that runs alone.
    traceback.clear_frames = nothing
    runner = transactional(records, options.inject, options.seed) if options.way == "transactions" else Runner(records)
    thread = threading.Thread(target=runner.run_all, args=(suite,))
    thread.start()
    while thread.is_alive():
        with contextlib.suppress(KeyboardInterrupt):
            thread.join()
    return runner


if __name__ == "__main__":
    main()
