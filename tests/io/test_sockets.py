"""What a transaction asks of a socket happens at its commit, in the order in which it was asked for."""

import asyncio
import contextlib
import fcntl
import itertools
import os
import resource
import select
import socket
import sys
import termios
import threading
from collections import deque

import pytest
import tornado.iostream

import tornado.stm
from interpreters import needs_engine
from python_calls import calls_of
from tornado.stm import activation, core
from tornado.stm.core import trusted
from tornado.stm.input_output import sockets

needs_engine()

activation.activate()


@pytest.fixture
def connected():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        ours, _ = listening.accept()
        with ours:
            ours.setblocking(False)
            yield ours, client


@pytest.fixture
def calls(connected, monkeypatch):
    """What reaches the kernel but for data: names, arguments, and how many bytes the client has by then."""
    _, client = connected
    made = []

    def recorded(function):
        @trusted
        def record(sock, *arguments):
            here = fcntl.ioctl(client, termios.FIONREAD, bytes(4))
            made.append((function.__name__, *arguments, int.from_bytes(here, sys.byteorder)))
            return function(sock, *arguments)

        return record

    send, setsockopt, close, *others = sockets.METHODS
    core.sockets_begin(send, recorded(setsockopt), recorded(close), *others)
    for name in "_setsockopt", "_close":
        monkeypatch.setattr(sockets, name, recorded(getattr(sockets, name)))
    yield made
    core.sockets_begin(*sockets.METHODS)


NODELAY = socket.IPPROTO_TCP, socket.TCP_NODELAY


def send_at_once(sock):
    sock.setsockopt(*NODELAY, 1)
    sock.send(b"at once")
    sock.setsockopt(*NODELAY, 0)
    sock.close()


def test_options_are_set_in_order_with_what_is_sent(connected, calls):
    ours, client = connected
    core.Transaction(send_at_once, (ours,)).run()
    assert calls == [("setsockopt", *NODELAY, 1, 0), ("setsockopt", *NODELAY, 0, 7), ("close", 7)]
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
    assert calls == [("setsockopt", *NODELAY, 1, 0)]


ROOM = socket.SOL_SOCKET, socket.SO_RCVBUF


def give_less_room_in_a_first_attempt(sock):
    if core.rehearse():
        sock.setsockopt(*ROOM, 10_000)
        raise_in_a_first_attempt([])


def test_what_the_kernel_heeds_at_once_is_not_set_by_an_aborted_attempt(connected):
    ours, _ = connected
    before = ours.getsockopt(*ROOM)
    core.Transaction(give_less_room_in_a_first_attempt, (ours,)).run()
    assert ours.getsockopt(*ROOM) == before


def set_on_any(sock):
    sock.setsockopt(*NODELAY, 1)


def test_what_cannot_be_set_says_so_at_once(calls):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        with pytest.raises(OSError):
            core.Transaction(set_on_any, (sock,)).run()
    assert [name for name, *_ in calls] == ["close"]


def test_the_error_of_what_was_sent_before_is_told_again_after_an_abort(connected):
    ours, _ = connected
    box = core.Outbox(ours)
    box.error = BrokenPipeError("told")

    def send(attempts):
        try:
            ours.send(b"more")
        except BrokenPipeError as e:
            raise_in_a_first_attempt(attempts)
            return str(e)

    assert core.Transaction(send, ([],)).run() == "told"


def test_a_connection_that_is_gone_stays_so(connected):
    """Each step that sends is told, as each send is by the kernel."""
    ours, theirs = connected
    theirs.close()
    core.Transaction(ours.send, (b"lost",)).run()

    def send():
        try:
            ours.send(b"more")
        except ConnectionError as e:
            return type(e)

    core.Transaction(send, ()).run()  # where the kernel needs two to find out
    assert [core.Transaction(send, ()).run() for _ in range(5)] == [BrokenPipeError] * 5


def test_a_step_that_sends_on_and_on_hears_that_the_peer_is_gone(connected):
    ours, theirs = connected
    theirs.close()

    def send():
        for n in range(100_000):
            try:
                ours.send(b"x")
            except ConnectionError:
                return n

    assert core.Transaction(send, ()).run() is not None


def test_what_a_step_sends_on_and_on_comes_in_order(connected):
    ours, theirs = connected

    def send():
        for n in range(3000):
            ours.send(n.to_bytes(2))

    core.Transaction(send, ()).run()
    received = b""
    while len(received) < 6000:
        received += theirs.recv(6000)
    assert received == b"".join(n.to_bytes(2) for n in range(3000))


def set_too_much(sock):
    sock.setsockopt(*NODELAY, 1 << 40)


def test_an_option_of_a_value_that_cannot_be_says_so_at_once(connected):
    ours, _ = connected
    with pytest.raises(Exception) as plain:
        ours.setsockopt(*NODELAY, 1 << 40)
    with pytest.raises(plain.type):
        core.Transaction(set_too_much, (ours,)).run()


def receive_into_in_the_second_attempt(sock, attempts):
    buffer = bytearray(b"." * 8)
    size = sock.recv_into(buffer)
    raise_in_a_first_attempt(attempts)
    return size, bytes(buffer)


def receive_in_the_second_attempt(sock, attempts):
    data = sock.recv(8)
    raise_in_a_first_attempt(attempts)
    return data


def peek_when_something_is_there(sock):
    while not select.select([sock], [], [], 10)[0]:
        pass


def test_what_an_aborted_attempt_has_received_is_received_again(connected):
    ours, client = connected
    for receive, expected in (receive_into_in_the_second_attempt, (4, b"data....")), (receive_in_the_second_attempt, b"data"):
        client.sendall(b"data")
        peek_when_something_is_there(ours)
        attempts, results = [], []

        def transaction():
            results.append(receive(ours, attempts))

        core.Transaction(transaction, ()).run()
        assert results == [expected]
        assert len(attempts) == 2
        assert not sockets.inboxes


def test_keeping_what_an_aborted_attempt_has_received_calls_nothing_of_the_program(connected):
    ours, client = connected
    client.sendall(b"data")
    peek_when_something_is_there(ours)
    attempts, before = [], core.stats()
    assert core.Transaction(receive_in_the_second_attempt, (ours, attempts)).run() == b"data"
    assert core.stats()["strays"] == before["strays"] and core.stats()["exclusives"] == before["exclusives"]


def test_a_buffer_that_an_aborted_attempt_has_filled_is_as_before(connected):
    ours, client = connected
    client.sendall(b"data")
    peek_when_something_is_there(ours)
    buffer, attempts, seen = bytearray(b"........"), [], []

    @trusted
    def look():
        seen.append(bytes(buffer))

    def transaction():
        look()
        assert ours.recv_into(buffer, 2) == 2
        raise_in_a_first_attempt(attempts)

    core.Transaction(transaction, ()).run()
    assert seen == [b"........"] * 2
    assert buffer == b"da......"


def test_what_an_aborted_attempt_has_put_aside_leaves_room(connected):
    ours, client = connected
    data, attempts, sent = bytes(1 << 20), [], []

    @trusted
    def note(size):
        sent.append(size)

    def transaction():
        size = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                size += ours.send(data)
        note(size)
        raise_in_a_first_attempt(attempts)

    core.Transaction(transaction, ()).run()
    assert len(attempts) == 2
    assert 0 < sent[0] == sent[1]


def test_what_waits_is_sent_before_the_end_of_a_stream(connected):
    ours, client = connected
    data = bytes(range(256)) * 1024

    def transaction():
        assert ours.send(memoryview(data)) == len(data)
        ours.shutdown(socket.SHUT_WR)

    reader = threading.Thread(target=lambda: received.extend(iter(lambda: client.recv(1 << 16), b"")))
    received = []
    reader.start()
    core.Transaction(transaction, ()).run()
    ours.close()
    reader.join()
    assert b"".join(received) == data


def test_buffers_of_an_iterator_are_sent_at_the_commit(connected):
    ours, client = connected
    waiting = deque([b"one ", b"two ", b"three"])  # as asyncio's transports have it

    def send():
        assert ours.sendmsg(itertools.islice(waiting, 2)) == 8
        return core.is_exclusive()

    assert core.Transaction(send, ()).run() is False
    assert client.recv(100) == b"one two "


@pytest.mark.parametrize("receive", [
    lambda sock: sock.recv(1), lambda sock: sock.recvfrom(1)[0], lambda sock: receive_one_into(sock),
], ids=["recv", "recvfrom", "recv_into"])
def test_whoever_has_received_what_a_commit_sent_first_receives_the_rest(receive):
    """A commit sends on one socket after the other: nobody sees that."""
    (first, reader), (second, other_reader) = socket.socketpair(), socket.socketpair()
    with first, reader, second, other_reader:
        for sock in first, reader, second, other_reader:
            sock.setblocking(False)
        seen, told = threading.Event(), threading.Event()

        @trusted
        def between():
            seen.wait(60)
            told.wait(0.02)  # only where the reader does not wait for this commit

        def send():
            first.send(b"a")
            core.defer(between)
            second.send(b"b")

        @trusted
        def receive_first():
            select.select([reader], [], [], 60)
            received = receive(reader)
            seen.set()
            return received

        def receive_both():
            received = receive_first(), receive(other_reader)
            core.defer(told.set)
            return received

        sender = threading.Thread(target=core.Transaction(send, ()).run)
        sender.start()
        try:
            assert core.Transaction(receive_both, ()).run() == (b"a", b"b")
        finally:
            told.set()
            sender.join()


def receive_one_into(sock):
    buffer = bytearray(1)
    sock.recv_into(buffer)
    return bytes(buffer)


def test_each_datagram_is_told_of_at_once_and_goes_its_own_way():
    """Connected sockets of datagrams, as those of statsd and DNS: nobody listens at first, one is too long, then all arrive."""
    with socket.socket(type=socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    with socket.socket(type=socket.SOCK_DGRAM) as sender, socket.socket(type=socket.SOCK_DGRAM) as receiver:
        sender.setblocking(False)
        sender.connect(address)

        def send(data):
            try:
                return sender.send(data)
            except OSError as error:
                return type(error)

        def send_all(*data):
            return [send(each) for each in data]

        assert core.Transaction(send_all, (b"nobody", b"there")).run() == [6, ConnectionRefusedError]
        receiver.bind(address)
        receiver.settimeout(10)
        assert core.Transaction(send_all, (b"one", b"x" * 70_000, b"two")).run() == [3, OSError, 3]
        assert [receiver.recv(10), receiver.recv(10)] == [b"one", b"two"]


def test_a_datagram_with_an_address_is_told_of_by_the_same_words():
    """They are explained among the remedies; as an unknown C function it was to be declared as one whose effects nobody knows."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender, socket.socket(type=socket.SOCK_DGRAM) as receiver:
        sender.setblocking(False)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        before = core.stats()["exclusive_reasons"]
        assert core.Transaction(sender.sendto, (b"one", receiver.getsockname())).run() == 3
        assert core.Transaction(lambda: sender.sendto(b"two", 0, receiver.getsockname()), ()).run() == 3
        new = {reason for reason, count in core.stats()["exclusive_reasons"].items() if count != before.get(reason)}
        assert [reason for reason in new if not reason.startswith("sending a datagram")] == []
        assert [receiver.recv(10), receiver.recv(10)] == [b"one", b"two"]


def nonblocking_pair():
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair


def the_one_of_that_number(number):
    """The other end as well."""
    ends = nonblocking_pair()
    assert number in (ends[0].fileno(), ends[1].fileno())
    return sorted(ends, key=lambda end: end.fileno() != number)


def test_what_an_aborted_attempt_has_received_is_not_for_the_next_socket_of_that_number():
    ours, peer = nonblocking_pair()
    with peer:
        peer.send(b"secret")
        number, held, attempts = ours.fileno(), [ours], []
        del ours

        def transaction():
            if not attempts:
                receive_in_the_second_attempt(held[0], attempts)
            held.clear()  # the last reference to it; it is not closed by close()

        core.Transaction(transaction, ()).run()
        of_that_number, other = the_one_of_that_number(number)
        with of_that_number, other, pytest.raises(BlockingIOError):
            core.Transaction(of_that_number.recv, (8,)).run()


def refuse(data):
    """In the place of a kernel that takes less than it had room for."""
    raise BlockingIOError


def received_from_the_next_of_that_number(use):
    """Something waits to be sent by a socket that is closed behind its back: what comes when ``use(the next of its number)`` is over."""
    ours, peer = nonblocking_pair()

    async def main():
        core.put_off(ours, b"A", trusted(refuse))
        await asyncio.sleep(0)
        number = ours.fileno()
        os.close(number)
        of_that_number, other = the_one_of_that_number(number)
        with of_that_number, other:
            await use(of_that_number)
            return await asyncio.get_running_loop().sock_recv(other, 8)

    with peer:
        try:
            return tornado.stm.run(asyncio.wait_for(main(), 60), threads=2)
        finally:
            ours.detach()


def test_what_waits_to_be_sent_does_not_go_to_the_next_socket_of_that_number():
    async def send(sock):
        await asyncio.get_running_loop().sock_sendall(sock, b"C")

    assert received_from_the_next_of_that_number(send) == b"C"


def test_what_waits_to_be_sent_does_not_keep_the_next_socket_of_that_number_from_closing():
    async def close(sock):
        sock.close()

    assert received_from_the_next_of_that_number(close) == b""


def test_the_reader_is_told_of_what_an_aborted_attempt_has_received():
    """If the next attempt does not take it."""
    ours, peer = nonblocking_pair()

    @trusted
    def send_at_once(number, sent):
        if not sent:
            sent.append(os.write(number, b"data"))

    def receive_first(sent, attempts):
        if not attempts:
            send_at_once(peer.fileno(), sent)
            receive_in_the_second_attempt(ours, attempts)

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(20):
            received = loop.create_future()
            loop.add_reader(ours, lambda: received.done() or received.set_result(ours.recv(8)))
            await asyncio.sleep(0)
            loop.call_soon(receive_first, [], [])
            assert await asyncio.wait_for(received, 60) == b"data"
            loop.remove_reader(ours)

    with ours, peer:
        tornado.stm.run(main(), threads=2)


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, ValueError, TypeError, OverflowError) as error:
        return type(error), str(error)


def odd_sockets():
    """Pairs of what is done and what it gives, of a kind that only the kernel, or the original, knows what to say of."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        listening.setblocking(False)
        ours, peer = map(stack.enter_context, nonblocking_pair())
        closed, _ = map(stack.enter_context, nonblocking_pair())
        closed.close()
        datagrams, others = map(stack.enter_context, socket.socketpair(type=socket.SOCK_DGRAM))
        datagrams.setblocking(False)
        others.setblocking(False)
        peer.send(b"12345678")
        yield "room", outcome(ours.recv_into, memoryview(bytearray(4)), 8), outcome(ours.recv, 8)
        yield "closed", outcome(closed.sendall, b"")
        yield "empty", outcome(datagrams.sendall, b""), outcome(others.recv, 8)
        yield "error", outcome(ours.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR, 4)
        yield "shutdown", outcome(listening.shutdown, socket.SHUT_RDWR)


def test_odd_uses_of_sockets_have_upstreams_outcome(connected):
    assert core.Transaction(list, (odd_sockets(),)).run() == list(odd_sockets())


@pytest.mark.parametrize("receive", ["recv", "recvfrom", "recv_into", "recvfrom_into", "recvmsg"])
@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_closed_datagram_socket_receives_what_it_does_on_upstream(family, receive, size):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.close()
        what = bytearray(size) if receive.endswith("into") else size
        assert core.Transaction(outcome, (getattr(sock, receive), what)).run() == outcome(getattr(sock, receive), what)


def ask_for_nothing_first(sock, flags):
    return [outcome(sock.recv, 0, flags), outcome(sock.recv_into, bytearray(), 0, flags), outcome(sock.recv, 4)]


@pytest.mark.parametrize("flags", [0, socket.MSG_DONTWAIT])
@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_who_asks_for_nothing_takes_nothing(kind, flags):
    ours, peer = socket.socketpair(type=kind)
    with ours, peer:
        peer.send(b"1234")
        assert core.Transaction(ask_for_nothing_first, (ours, flags)).run() == [b"", 0, b"1234"]
        peer.send(b"5678")
        assert ask_for_nothing_first(ours, flags) == [b"", 0, b"5678"]


def test_a_datagram_is_received_once_and_by_any_method():
    ours, peer = socket.socketpair(type=socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, peer:
        attempts = []

        def receive_in_parts():
            if not attempts:
                ours.recvfrom(100)
            raise_in_a_first_attempt(attempts)
            return ours.recv(4), outcome(ours.recv, 4)[0]

        peer.send(b"headbody")
        assert core.Transaction(receive_in_parts, ()).run() == (b"head", BlockingIOError)


def receive_into(sock):
    return sock.recv_into(bytearray(8))


@pytest.mark.parametrize("receive", [lambda sock: sock.recv(8), receive_into, lambda sock: sock.recvfrom(8)], ids=["recv", "recv_into", "recvfrom"])
def test_an_error_that_an_aborted_attempt_was_told_of_is_told_again(receive):
    """The kernel tells it once."""
    ours, peer = nonblocking_pair()
    attempts = []

    def transaction():
        try:
            return receive(ours)
        except ConnectionResetError as e:
            raise_in_a_first_attempt(attempts)
            return type(e)

    with ours:
        ours.send(b"unread")
        peer.close()
        assert core.Transaction(transaction, ()).run() is ConnectionResetError
        assert len(attempts) == 2
        assert ours.recv(8) == b""


def recvfrom_into(sock):
    buffer = bytearray(4)
    return bytes(buffer), *sock.recvfrom_into(buffer), bytes(buffer)


def recvmsg_into(sock):
    first, second = bytearray(1), bytearray(8)
    return *sock.recvmsg_into(iter([first, second])), bytes(first), bytes(second)


@pytest.mark.parametrize("receive", [
    lambda sock: (sock.recv(2, socket.MSG_PEEK), sock.recv(8)),
    lambda sock: (sock.recvfrom(2, socket.MSG_PEEK), sock.recvfrom(2), sock.recvfrom(8)),
    lambda sock: (sock.recv(3, socket.MSG_DONTWAIT), sock.recv(8)),
    lambda sock: (recvfrom_into(sock), sock.recv(8)[-1:]),
    lambda sock: (sock.recvmsg(3, 100), sock.recvmsg(8)[0]),
    recvmsg_into,
], ids=["peek", "recvfrom", "flags", "recvfrom_into", "recvmsg", "recvmsg_into"])
def test_what_an_aborted_attempt_has_received_is_received_by_any_method(connected, receive):
    ours, client = connected
    attempts, results = [], []

    def transaction():
        if not attempts:
            ours.recv(100)
            raise_in_a_first_attempt(attempts)
        results.append(receive(ours))

    def plainly():
        results.append(receive(ours))

    for run in core.Transaction(transaction, ()).run, plainly:
        client.sendall(b"data123")
        peek_when_something_is_there(ours)
        run()
        client.sendall(b"last")
        peek_when_something_is_there(ours)
        ours.recv(100)  # what is left as well
    assert len(attempts) == 1
    assert results[0] == results[1]
    assert not sockets.inboxes


def test_a_socket_is_closed_after_its_loop_though_its_peer_does_not_read():
    ours, peer = nonblocking_pair()

    async def main():
        return ours.send(b"A" * 260_000)

    with peer:
        assert tornado.stm.run(main(), threads=2) > 0
        ours.close()
        assert ours.fileno() == -1


def test_a_connection_with_the_number_of_one_that_was_accepted_is_read_at_the_end(monkeypatch):
    """That one has died, without a close()."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        client.send(b"not read")
        ours, _ = listening.accept()
        ours.setblocking(False)
        monkeypatch.setattr(sockets, "_reads_accepted", False)
        with pytest.raises(BlockingIOError):
            core.Transaction(sockets.receive, (ours, 10, socket.socket.recv, ours)).run()
        number = ours.detach()
        os.close(number)
        other, peer = the_one_of_that_number(number)
        with other, peer:
            peer.send(b"read")
            assert core.Transaction(sockets.receive, (other, 10, socket.socket.recv, other)).run() == b"read"


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_does_not_send_what_its_parent_will():
    ours, peer = nonblocking_pair()

    @trusted
    def fork():
        return os.fork()

    async def main():
        core.put_off(ours, b"A", trusted(refuse))
        await asyncio.sleep(0)
        box = core.find_outbox(ours.fileno())
        pid = fork()
        if pid == 0:
            os._exit(10 + (box.waiting or box.size > 0))
        return box.waiting, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    with peer:
        try:
            assert tornado.stm.run(main(), threads=2) == (True, 10)
        finally:
            os.close(ours.detach())


class Four:
    """A number, but no int."""

    def __index__(self):
        return 4


def test_a_number_of_another_type_is_received_again_after_an_abort():
    ours, peer = nonblocking_pair()
    with ours, peer:
        attempts = []

        def receive():
            buffer = memoryview(bytearray(8))
            size = ours.recv_into(buffer, Four())
            raise_in_a_first_attempt(attempts)
            return size, bytes(buffer)

        peer.send(b"data")
        assert core.Transaction(receive, ()).run() == (4, b"data\0\0\0\0")


def talk(ours, buffer):
    """What a request does with its socket."""
    received = [ours.recv(2), bytes(buffer[: ours.recv_into(buffer)])]
    with contextlib.suppress(BlockingIOError):
        ours.recv(1)
    ours.setsockopt(*NODELAY, 1)
    return [*received, ours.send(b"answer"), ours.send(memoryview(b" two"))]


@pytest.mark.parametrize("alone", [False, True])
def test_what_a_usual_request_asks_of_its_socket_needs_no_python(connected, alone):
    ours, client = connected
    client.sendall(b"request")
    peek_when_something_is_there(ours)
    with calls_of(sockets) as called:
        assert core.Transaction(talk, (ours, bytearray(9))).run(alone) == [b"re", b"quest", 6, 4]
    assert called == []
    assert client.recv(10, socket.MSG_WAITALL) == b"answer two" and ours.getsockopt(*NODELAY) != 0


@pytest.mark.parametrize("receive", [
    lambda sock: (sock.recv(4), sock.recv(8)),
    lambda sock: (receive_into(sock), sock.recv(8)),
], ids=["recv", "recv_into"])
def test_who_is_alone_receives_first_what_an_aborted_attempt_had(connected, receive):
    ours, client = connected
    attempts = []

    def leave_something():
        if not attempts:
            ours.recv(100)
            raise_in_a_first_attempt(attempts)

    def plainly():
        return receive(ours)

    client.sendall(b"data123")
    peek_when_something_is_there(ours)
    core.Transaction(leave_something, ()).run()
    client.sendall(b"last")
    peek_when_something_is_there(ours)
    received = core.Transaction(plainly, ()).run(True)
    assert received in [(b"data", b"123"), (7, b"last")]
    assert not sockets.inboxes


def test_who_is_alone_sends_after_what_waits(connected):
    ours, client = connected
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    received, sent = [], []

    def send_all_there_is_room_for():
        with contextlib.suppress(BlockingIOError):
            while True:
                sent.append(ours.send(b"%d " % len(sent) * 500))

    for alone in [False, True] * 10:
        core.Transaction(send_all_there_is_room_for, ()).run(alone)
        with contextlib.suppress(BlockingIOError):
            received.append(client.recv(3000, socket.MSG_DONTWAIT))
    ours.close()
    received += iter(lambda: client.recv(1 << 16), b"")
    assert b"".join(received) == b"".join((b"%d " % i * 500)[:n] for i, n in enumerate(sent))


def test_what_a_stream_sends_to_an_address_comes_after_what_waits(connected):
    """To whichever: a connected stream ignores it."""
    ours, client = connected
    refused = []

    @trusted
    def take(data):
        if not refused:
            refused.append(data)
            raise BlockingIOError
        return os.write(ours.fileno(), data)

    async def main():
        core.put_off(ours, b"first, ", take)
        await asyncio.sleep(0)
        ours.sendto(b"second", client.getsockname())
        ours.close()

    tornado.stm.run(main(), threads=2)
    client.settimeout(10)
    assert b"".join(iter(lambda: client.recv(100), b"")) == b"first, second"


def probe_first(sock, attempts, probe):
    """Its first attempt, which is rolled back, does that to the socket."""
    if not attempts:
        with contextlib.suppress(OSError):
            probe(sock)
        raise_in_a_first_attempt(attempts)


@pytest.mark.parametrize("probe", [
    lambda sock: sock.recv(0), lambda sock: sock.recv_into(bytearray()), lambda sock: sock.recvfrom(0),
], ids=["recv", "recv_into", "recvfrom"])
def test_that_an_aborted_attempt_has_asked_for_no_bytes_is_not_the_end_of_the_stream(connected, probe):
    ours, client = connected
    core.Transaction(probe_first, (ours, [], probe)).run()
    client.send(b"hello")
    peek_when_something_is_there(ours)
    assert core.Transaction(ours.recv, (8,)).run() == b"hello"
    assert not sockets.inboxes


def test_an_error_that_the_kernel_tells_again_is_not_kept():
    """It may be right no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as ours:
        ours.setblocking(False)
        core.Transaction(probe_first, (ours, [], lambda sock: sock.recv(8))).run()
        ours.setblocking(True)
        ours.connect(listening.getsockname())
        ours.setblocking(False)
        client, _ = listening.accept()
        with client:
            client.send(b"hello")
            peek_when_something_is_there(ours)
            assert core.Transaction(ours.recv, (8,)).run() == b"hello"


def test_nothing_is_kept_of_a_closed_socket():
    ours, peer = nonblocking_pair()
    ours.close(), peer.close()
    core.Transaction(probe_first, (ours, [], lambda sock: sock.recv(8))).run()
    assert not sockets.inboxes


def test_what_an_aborted_attempt_has_received_is_there_for_another_number_of_the_socket(connected):
    ours, client = connected
    attempts = []

    def receive():
        if not attempts:
            ours.recv(8)
            raise_in_a_first_attempt(attempts)
        with ours.dup() as same:
            same.setblocking(False)
            return same.recv(3), ours.recv(8)

    client.send(b"hello")
    peek_when_something_is_there(ours)
    assert core.Transaction(receive, ()).run() == (b"hel", b"lo")
    assert not sockets.inboxes


def test_what_waits_is_sent_first_by_a_socket_that_blocks_whatever_its_number():
    """Also one for which there is no room in what select() takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2000, limits[1]), limits[1]))
    one, peer = nonblocking_pair()
    refused = []

    @trusted
    def take(data):
        if len(refused) < 3:
            refused.append(True)
            raise BlockingIOError
        return os.write(number, data)

    async def main():
        core.put_off(ours, b"first ", take)
        await asyncio.sleep(0)
        ours.setblocking(True)
        ours.send(b"and then")

    try:
        number = fcntl.fcntl(one, fcntl.F_DUPFD, 1500)
        with one, peer, socket.socket(fileno=number) as ours:
            ours.setblocking(False)
            tornado.stm.run(main(), threads=2)
            assert peer.recv(100) == b"first and then" and len(refused) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("size", [0, 1, 65_536, True, -1, 1 << 80, b"bytes", "text", 1.5, None])
def test_a_buffer_that_is_not_set_to_zero_is_a_bytearray(size):
    made, expected = outcome(core.unset_bytearray, size), outcome(bytearray, size)
    assert type(made) is type(expected)
    assert len(made) == len(expected) if isinstance(made, bytearray) else made == expected


@pytest.mark.parametrize("probability", [0, 0.02])
def test_of_the_buffers_of_streams_only_what_has_been_received_is_read(probability):
    """Tornado's, which are not set to zero: other data lay there before."""
    ours, theirs = socket.socketpair()
    buffers, lengths = [], [1, 70_000, 3, 0, 65_535, 65_536, 2, 131_072, 5] * 3

    class Stream(tornado.iostream.IOStream):
        def read_from_fd(self, buf):
            buffers.append((type(buf), len(buf)))
            return super().read_from_fd(buf)

    async def write():
        stream = tornado.iostream.IOStream(theirs)
        for length in lengths:
            await stream.write(b"%d\n" % length + b"x" * length + b"\r\n")
        stream.close()

    async def read():
        stream = Stream(ours)
        got = []
        for _ in lengths:
            length = int(await stream.read_until(b"\n"))
            data = await stream.read_bytes(length) if length % 2 else (await stream.read_until(b"\r\n"))[:-2]
            got.append(data == b"x" * length)
            if length % 2:
                assert await stream.read_until(b"\r\n") == b"\r\n"
        return got, await stream.read_until_close()

    async def main():
        return (await asyncio.gather(read(), write()))[0]

    core.inject_aborts(probability, 3)
    try:
        assert tornado.stm.run(main(), threads=2) == ([True] * len(lengths), b"")
    finally:
        core.inject_aborts(0, 0)
    assert set(buffers) == {(bytearray, 65_536)}
    assert tornado.iostream.BaseIOStream._read_to_buffer.__globals__["bytearray"] is core.unset_bytearray


@trusted
def roll_back():
    raise core.Abort


@pytest.mark.parametrize("first", ["recv", "recvfrom", "recv_into"])
def test_a_datagram_that_an_aborted_attempt_has_cut_off_is_there_to_its_end(first):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.setblocking(False)
        there.send(b"0123456789")
        there.send(b"next")

        def receive():
            if core.rehearse():
                if first == "recv_into":
                    buffer = bytearray(3)
                    assert (here.recv_into(buffer), buffer) == (3, b"012")
                else:
                    assert getattr(here, first)(3)[:3] in (b"012", (b"012", None))
                roll_back()
            return here.recv(100), here.recv(2)

        assert core.Transaction(receive, ()).run() == (b"0123456789", b"ne")
        with pytest.raises(BlockingIOError):
            here.recv(1)


@pytest.mark.parametrize("receive", [
    lambda sock: sock.recvfrom(3),
    lambda sock: sock.recvfrom(3, socket.MSG_PEEK),
    lambda sock: sock.recvmsg(3),
    lambda sock: sock.recvmsg_into([bytearray(3)]),
    lambda sock: sock.recvfrom_into(bytearray(3)),
], ids=["recvfrom", "peek", "recvmsg", "recvmsg_into", "recvfrom_into"])
@pytest.mark.parametrize("family, address", [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "")], ids=["unconnected", "unnamed"])
def test_of_a_datagram_that_an_aborted_attempt_has_received_all_is_told(family, address, receive):
    with socket.socket(family, socket.SOCK_DGRAM) as here, socket.socket(family, socket.SOCK_DGRAM) as there:
        here.bind(address)
        here.setblocking(False)

        def receive_after_an_attempt():
            if core.rehearse():
                here.recv(100)
                roll_back()
            return receive(here)

        there.sendto(b"0123", here.getsockname())
        expected = receive(here)
        while select.select([here], [], [], 0)[0]:
            here.recv(100)
        there.sendto(b"0123", here.getsockname())
        assert core.Transaction(receive_after_an_attempt, ()).run() == expected
