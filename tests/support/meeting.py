"""Brings two transactions together: do they go on side by side?

Of two transactions the younger one acts first and stays open; then the older one acts.  If their actions conflict, the
older one dooms the younger, which sees it; if not, the younger one sees that the older has acted.  So nothing here
depends on time: the time-outs only tell that something hangs.
"""

import threading
import time

from tornado.stm import core
from tornado.stm.core import trusted

TIMEOUT = 60
APART, CONFLICT, ALONE = "apart", "conflict", "alone"


def run(function, *args):
    return core.Transaction(function, args).run()


@trusted
def is_alone():
    """Does the transaction run alone?"""
    return core.is_exclusive()


@trusted
def alone_so_far():
    """How often transactions have had to run alone."""
    return sum(core.stats()["exclusive_reasons"].values())


class Meeting:
    """Two transactions that are open at the same time."""

    def __init__(self, make, first, second):
        self.objects = make()
        self.first, self.second = first, second
        self.opened, self.acted, self.results, self.failures = [], [], [], []
        self.reasons = alone_so_far()

    @trusted
    def hold(self):
        """The younger one, open, until it knows how the older one fares."""
        if self.results:
            return
        if self.opened:
            # Its doom has reached the first attempt as an exception, before it looked.
            self.results.append(CONFLICT)
            return
        if core.is_exclusive():
            self.results.append(ALONE)
            self.opened.append(True)
            return
        self.opened.append(True)
        give_up = time.monotonic() + TIMEOUT
        while not self.results:
            if core.is_unwinding():
                self.results.append(CONFLICT)
            elif self.acted:
                self.results.append(APART)
            elif alone_so_far() > self.reasons:
                self.results.append(ALONE)
            elif time.monotonic() > give_up:
                self.results.append("hangs")
            else:
                time.sleep(0.0002)

    @trusted
    def act(self):
        self.acted.append(True)

    def younger(self):
        self.first(*self.objects)
        self.hold()

    def older(self):
        self.second(*self.objects)
        self.act()

    def run(self):
        """How they got on with one another."""
        older, younger = core.Transaction(self.older, ()), core.Transaction(self.younger, ())
        threads = [threading.Thread(target=self.work, args=(younger,)), threading.Thread(target=self.follow, args=(older,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * TIMEOUT)
        assert not self.failures
        return self.results[0]

    @trusted
    def work(self, transaction):
        try:
            transaction.run()
        except (AttributeError, LookupError):
            pass  # the other one was first and has deleted it
        except Exception as e:
            self.failures.append(e)

    @trusted
    def follow(self, transaction):
        give_up = time.monotonic() + TIMEOUT
        while not self.opened and time.monotonic() < give_up:
            time.sleep(0.0002)
        self.work(transaction)


def meet(make, first, second):
    """How two actions on the objects that `make` returns get on, whichever comes first."""
    for _ in range(2):  # what has never been called before may have to run alone
        run(first, *make())
        run(second, *make())
    outcomes = {Meeting(make, first, second).run(), Meeting(make, second, first).run()}
    return outcomes.pop() if len(outcomes) == 1 else sorted(outcomes)
