"""What all tests need of the process that they run in."""

import signal


def pytest_configure(config):
    # A shell has what it starts in the background ignore SIGINT, and so would the programs that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
