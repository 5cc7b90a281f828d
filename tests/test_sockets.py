"""What a transaction asks of a socket happens at its commit, in the order in which it was asked for."""

import socket

import pytest

from tornado.stm import activation, core
from tornado.stm.core import trusted
from tornado.stm.input_output import sockets

if not core.PARALLEL:
    pytest.skip("what is asked of a socket happens at once", allow_module_level=True)

activation.activate()


@pytest.fixture
def connected():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        ours, _ = listening.accept()
        with ours:
            ours.setblocking(False)
            yield ours, client


@pytest.fixture
def calls(monkeypatch):
    """What reaches the kernel: names and arguments."""
    made = []

    def recorded(function):
        @trusted
        def record(sock, *arguments):
            made.append((function.__name__, *arguments))
            return function(sock, *arguments)

        return record

    for name in "_send", "_setsockopt", "_close":
        monkeypatch.setattr(sockets, name, recorded(getattr(sockets, name)))
    return made


NODELAY = socket.IPPROTO_TCP, socket.TCP_NODELAY


def send_at_once(sock):
    sock.setsockopt(*NODELAY, 1)
    sock.send(b"at once")
    sock.setsockopt(*NODELAY, 0)
    sock.close()


def test_options_are_set_in_order_with_what_is_sent(connected, calls):
    ours, client = connected
    core.Transaction(send_at_once, (ours,)).run()
    assert calls == [("setsockopt", *NODELAY, 1), ("send", b"at once"), ("setsockopt", *NODELAY, 0), ("close",)]
    assert client.recv(100) == b"at once"


def raise_in_a_first_attempt(attempts):
    attempts.append(None)
    if len(attempts) == 1:
        raise core.Abort


trusted(raise_in_a_first_attempt)


def set_twice(sock, attempts):
    sock.setsockopt(*NODELAY, 1)
    raise_in_a_first_attempt(attempts)
    return sock.getsockopt(*NODELAY)


def test_an_aborted_attempt_sets_nothing(connected, calls):
    ours, _ = connected
    attempts = []
    assert core.Transaction(set_twice, (ours, attempts)).run() != 0
    assert len(attempts) >= 2
    assert calls == [("setsockopt", *NODELAY, 1)]


def set_on_any(sock):
    sock.setsockopt(*NODELAY, 1)


def test_what_cannot_be_set_says_so_at_once(calls):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        with pytest.raises(OSError):
            core.Transaction(set_on_any, (sock,)).run()
    assert ("setsockopt", *NODELAY, 1) not in calls


def test_the_error_of_what_was_sent_before_is_told_again_after_an_abort(connected):
    ours, _ = connected
    box = sockets._outboxes[ours.fileno()] = sockets.Outbox(ours, ours.fileno())
    box.error = BrokenPipeError("told")

    def send(attempts):
        try:
            ours.send(b"more")
        except BrokenPipeError as e:
            raise_in_a_first_attempt(attempts)
            return str(e)

    assert core.Transaction(send, ([],)).run() == "told"
    assert box.error is None
