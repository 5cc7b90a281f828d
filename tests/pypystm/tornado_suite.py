"""Runs modules of Tornado 4's own tests, under Python 2.7, and writes how each test ended.

    python2.7 tornado_suite.py OUTCOMES.json upstream|stm|strict tornado.test.ioloop_test ... [-TEST_TO_LEAVE_OUT ...]

OUTCOMES.json maps test ids to "passed", "skipped" or the last line of the failure.  With `strict`, a test that passes
fails nevertheless if a request handler begins in a transaction that has done what PyPy-STM cannot undo.
"""

from __future__ import absolute_import, division, print_function

import json
import logging
import os
import ssl
import sys
import unittest

import repository  # noqa: F401: for its effect
import transaction
from inevitable import HandlersComputeFirst
from tornado.ioloop import IOLoop


class Outcomes(unittest.TestResult):
    def __init__(self, watcher):
        super(Outcomes, self).__init__()
        self.by_test = {}
        self.watcher = watcher
        self.handlers = 0

    def stopTest(self, test):
        super(Outcomes, self).stopTest(test)
        handlers, before, _ = self.watcher.forget()
        self.handlers += handlers
        if before and self.by_test[test.id()] == "passed":
            self.by_test[test.id()] = ", ".join(sorted(set(before)))

    def addSuccess(self, test):
        super(Outcomes, self).addSuccess(test)
        self.by_test[test.id()] = "passed"

    def addSkip(self, test, reason):
        super(Outcomes, self).addSkip(test, reason)
        self.by_test[test.id()] = "skipped"

    def addFailure(self, test, error):
        super(Outcomes, self).addFailure(test, error)
        self._failed(test)

    def addError(self, test, error):
        super(Outcomes, self).addError(test, error)
        self._failed(test)

    def _failed(self, test):
        trace = (self.failures + self.errors)[-1][1] if test is None else dict(self.failures + self.errors)[test]
        self.by_test[test.id()] = trace.strip().splitlines()[-1]
        sys.stderr.write("%s\n%s\n" % (test.id(), trace))


def flat(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            for test in flat(each):
                yield test
        else:
            yield each


def main(path, loop, modules, left_out):
    if loop != "upstream":
        IOLoop.configure("tornado.platform.pypystm.STMIOLoop")
    ssl._DEFAULT_CIPHERS += ":@SECLEVEL=0"  # the keys of Tornado's test certificates are too small for OpenSSL 3
    logging.basicConfig(level=logging.INFO, filename=os.devnull)  # tests expect to see records of that level
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)  # as Tornado's own runner does
    watcher = HandlersComputeFirst()
    if loop == "strict":
        transaction.watch(watcher)
    outcomes = Outcomes(watcher)
    suite = unittest.defaultTestLoader.loadTestsFromNames(modules)
    unittest.TestSuite(test for test in flat(suite) if test.id() not in left_out).run(outcomes)
    with open(path, "w") as file:
        json.dump(outcomes.by_test, file, indent=1, sort_keys=True)
    print("%d request handlers began in transactions" % outcomes.handlers)


if __name__ == "__main__":
    names = sys.argv[3:]
    main(sys.argv[1], sys.argv[2], [name for name in names if not name.startswith("-")],
         frozenset(name[1:] for name in names if name.startswith("-")))
