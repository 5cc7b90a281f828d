"""What all tests need of the process that they run in."""

import signal

import pytest

import programs
from tornado.stm import core, processors


def pytest_configure(config):
    # A shell has what it starts in the background ignore SIGINT, and so would the programs that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What the tests run on several threads in this process is to meet there, short as it is.
    core.set_sequential(1)


@pytest.hookimpl(optionalhook=True)  # without xdist nobody asks
def pytest_xdist_auto_num_workers():
    """Twice as many as processors: half of the time a test waits for a program, a server or a clock."""
    return 2 * processors.usable()


@pytest.fixture(autouse=True, scope="module")
def no_gil():
    """A module that loads what switches the GIL on would have all tests after it run transactions one at a time, and pass."""
    before = core.gil_is_enabled()
    yield
    assert core.gil_is_enabled() == before, "something in here has switched the GIL on: it belongs into a process of its own"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What the programs of fixtures were at when a test failed."""
    report = yield
    if report.when == "call" and report.failed:
        for program in list(programs.running):
            report.sections.append((program.command, program.last_words()))
    return report
