"""Fixtures that several test modules share."""

import contextlib

import pytest

from client import Server


@pytest.fixture
def start_server():
    """Start servers that end, and must end well, with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda threads, tickets=0, **environment: stack.enter_context(Server(threads, tickets, **environment))
