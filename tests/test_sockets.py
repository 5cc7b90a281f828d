"""What a transaction asks of a socket happens at its commit, in the order in which it was asked for."""

import errno
import select
import socket

import pytest

from tornado.stm import core, sockets
from tornado.stm.core import trusted

if not core.PARALLEL:
    pytest.skip("what is asked of a socket happens at once", allow_module_level=True)

core.activate()


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


# Connecting


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def non_blocking():
    sock = socket.socket()
    sock.setblocking(False)
    return sock


def begin(sock, address):
    """What `connect` says of it."""
    try:
        sock.connect(address)
    except OSError as e:
        return type(e), e.errno
    return None


def pending_error(sock):
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


IN_PROGRESS = BlockingIOError, errno.EINPROGRESS


def wait_until_writable(sock):
    _, writable, _ = select.select([], [sock], [], 10)
    assert writable


def run_twice(function, *args):
    """In a transaction whose first attempt is rolled back after the call; not alone."""
    attempts = []

    def attempt():
        result = function(*args)
        raise_in_a_first_attempt(attempts)
        return result

    before = core.stats()["exclusives"]
    result = core.Transaction(attempt, ()).run()
    assert len(attempts) == 2
    return result, core.stats()["exclusives"] - before


def test_only_the_attempt_that_commits_connects(listening):
    core.Transaction(begin, (non_blocking(), listening.getsockname())).run()  # instruments
    listening.accept()[0].close()
    sock = non_blocking()
    assert run_twice(begin, sock, listening.getsockname()) == (IN_PROGRESS, 0)
    wait_until_writable(sock)
    assert core.Transaction(pending_error, (sock,)).run() == 0
    accepted, address = listening.accept()
    assert address == sock.getsockname()
    listening.settimeout(0)
    with accepted, sock, pytest.raises(BlockingIOError):
        listening.accept()


def test_who_refuses_is_told_as_a_pending_error(listening):
    address = listening.getsockname()
    listening.close()
    with non_blocking() as sock:
        assert core.Transaction(begin, (sock, address)).run() == IN_PROGRESS
        wait_until_writable(sock)
        assert run_twice(pending_error, sock)[0] == errno.ECONNREFUSED
        assert pending_error(sock) == 0


def test_what_cannot_begin_at_the_commit_is_told_as_a_pending_error():
    with non_blocking() as sock:
        # Without permission to broadcast, the kernel says no at once.
        assert core.Transaction(begin, (sock, ("255.255.255.255", 9))).run() == IN_PROGRESS
        wait_until_writable(sock)
        assert run_twice(pending_error, sock)[0] in (errno.EACCES, errno.ENETUNREACH)


def test_a_socket_that_connects_is_used_in_the_same_transaction(listening):
    def connect_and_use(sock):
        result = begin(sock, listening.getsockname())
        return result, sock.getsockname()[0], sock.connect_ex(listening.getsockname())

    with non_blocking() as sock:
        result, host, again = core.Transaction(connect_and_use, (sock,)).run()
        assert (result, host) == (IN_PROGRESS, "127.0.0.1") and again in (0, errno.EALREADY, errno.EISCONN)


def test_connecting_again_tells_how_far_it_is(listening):
    with non_blocking() as sock:
        assert core.Transaction(sock.connect_ex, (listening.getsockname(),)).run() == errno.EINPROGRESS
        wait_until_writable(sock)
        assert core.Transaction(sock.connect_ex, (listening.getsockname(),)).run() in (0, errno.EISCONN)


@pytest.mark.parametrize("address", [("127.0.0.1", 70000), ("127.0.0.1", "9"), "127.0.0.1", ("127.0.0.1",), (b"\xff", 9)])
def test_wrong_addresses_are_told_as_without_transactions(address):
    def kind_of_error(sock):
        with pytest.raises(Exception) as info:
            sock.connect(address)
        return info.type

    with non_blocking() as sock:
        assert core.Transaction(kind_of_error, (sock,)).run() is kind_of_error(sock)
