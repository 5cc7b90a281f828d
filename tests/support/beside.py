"""Do calls of C code of other libraries run beside other transactions?"""

import pytest

from meeting import is_alone
from tornado.stm import activation, core
from tornado.stm.c_functions import libraries
from tornado.stm.core import trusted


def beside_others(function, *args):
    """Does the transaction of such a call run beside others?  And what the call returns."""
    activation.activate()
    seen = []

    def step():
        result = function(*args)
        core.defer(seen.append, not is_alone())
        return result

    result = core.Transaction(step, ()).run()
    return seen == [True], result


def runs_beside_others(function, *args):
    """The same when it is not called for the first time: what nobody has asked of a class before is asked alone."""
    beside_others(function, *args)
    beside, result = beside_others(function, *args)
    return result if beside else pytest.fail(f"it ran alone: {core.stats()['exclusive_reasons']}")


def runs_alone(function, *args):
    beside_others(function, *args)
    return not beside_others(function, *args)[0]


def needs_release(library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if not libraries.covers(library):
        pytest.skip(f"nothing is declared for this release of {library}")
    activation.activate()
    return module


def warmed_up(*functions):
    """What C code calls for the first time may have to run alone."""
    for function in functions:
        core.Transaction(function, ()).run()


@trusted
def is_irrevocable():
    """Does the transaction keep others waiting, so that it cannot be rolled back?"""
    return core.keeps_others_waiting()
