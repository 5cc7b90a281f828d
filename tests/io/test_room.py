"""Whoever sends is told how much the kernel has taken: at the commit it takes that, and nothing waits for long."""

import asyncio
import contextlib
import gc
import os
import socket
import threading
import weakref

import pytest
from test_sockets import nonblocking_pair

import tornado.stm
from interpreters import needs_engine
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()

activation.activate()


def of_unix():
    return socket.socketpair()


def of_tcp():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        return client, listening.accept()[0]


def of_tcp_with_low_water():
    pair = of_tcp()
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 30_000)
    return pair


def of_tcp_at_once():
    pair = of_tcp()
    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return pair


@pytest.mark.parametrize("between", [False, True], ids=["together", "one by one"])
@pytest.mark.parametrize("size", [1, 100, 1000, 2500, 4000, 16_000, 65_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("buffer", [None, 1, 20_000, 100_000])
@pytest.mark.parametrize("connect", [of_unix, of_tcp, of_tcp_at_once, of_tcp_with_low_water])
def test_the_kernel_takes_what_has_been_promised(connect, buffer, size, between):
    ours, theirs = connect()
    data, total = os.urandom(size), 0

    def send():
        sent = 0
        with contextlib.suppress(BlockingIOError):
            for _ in range(900):
                sent += ours.send(data)
                if between:
                    core.defer(id, None)
        return sent

    with ours, theirs:
        if buffer is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        ours.setblocking(False)
        for _ in range(3):
            total += (sent := core.Transaction(send, ()).run())
            assert sent > 0
            assert core.find_outbox(ours.fileno()) is None
            while total:
                total -= len(theirs.recv(total))


def test_what_one_step_sends_is_one_piece():
    ours, theirs = nonblocking_pair()

    def send():
        for n in range(100):
            ours.send(b"%02d" % n)

    with ours, theirs:
        core.Transaction(send, ()).run()
        assert theirs.recv(1000) == b"".join(b"%02d" % n for n in range(100))


@pytest.mark.parametrize("connect", [of_unix, of_tcp])
def test_whoever_sends_to_a_peer_that_is_gone_is_told_at_once(connect):
    ours, theirs = connect()
    ours.send(b"unread: so it is reset")
    theirs.close()
    ours.setblocking(False)
    with ours, pytest.raises(ConnectionError):
        core.Transaction(ours.send, (b"to nobody",)).run()


def test_whoever_sends_before_there_is_a_connection_is_told():
    with socket.socket() as sock, pytest.raises(OSError):
        sock.setblocking(False)
        core.Transaction(sock.send, (b"to nobody",)).run()


@pytest.mark.parametrize("connect", [of_unix, of_tcp])
def test_whoever_sends_after_a_shutdown_is_told_at_once(connect):
    ours, theirs = connect()
    with ours, theirs:
        ours.setblocking(False)
        core.Transaction(ours.shutdown, (socket.SHUT_WR,)).run()
        for _ in range(2):
            with pytest.raises(BrokenPipeError):
                core.Transaction(ours.send, (b"too late",)).run()


def test_an_error_that_nobody_asks_for_keeps_no_socket_open():
    ours, theirs = nonblocking_pair()

    @trusted
    def fail(data):
        raise ConnectionResetError

    with theirs:
        core.Transaction(core.put_off, (ours, b"data", fail)).run()
        reference = weakref.ref(ours)
        del ours
        gc.collect()
        assert reference() is None
        theirs.setblocking(True)
        assert theirs.recv(1) == b""


def test_what_waits_is_sent_without_waiting_for_the_peer_where_the_program_has_made_the_socket_block():
    ours, theirs = nonblocking_pair()
    size = 1 << 20
    allowed = threading.Event()

    @trusted
    def write_later(data):
        if not allowed.is_set():
            raise BlockingIOError
        return len(data)

    async def main():
        core.put_off(ours, b"first", write_later)
        core.put_off(ours, bytes(150_000))
        await asyncio.sleep(0)
        ours.setblocking(True)
        allowed.set()
        received = 0
        while received < 150_000:
            received += len(await asyncio.get_running_loop().sock_recv(theirs, size))
            await asyncio.sleep(0)
        return received

    with ours, theirs:
        assert tornado.stm.run(asyncio.wait_for(main(), 60), threads=2) == 150_000


def test_what_is_written_and_closed_at_once_arrives():
    """As much as the kernel takes."""

    async def main():
        async def serve(reader, writer):
            writer.write(bytes(1_000_000))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = len(await reader.read())
        writer.close()
        server.close()
        return received

    assert tornado.stm.run(main(), threads=2) == 1_000_000


def test_what_is_sent_beside_a_close_arrives():
    """A serial order: the other callback closes the socket after that, or nothing can be sent any more."""
    ours, theirs = nonblocking_pair()
    sent, closed, said = threading.Event(), threading.Event(), []

    @trusted
    def wait_for_the_other():
        sent.set()
        closed.wait(0.3)  # only where the other does not wait for this one

    def send():
        said.append(ours.send(b"x"))
        wait_for_the_other()

    def close():
        ours.close()

    sender = threading.Thread(target=core.Transaction(send, ()).run)
    with theirs:
        sender.start()
        sent.wait(60)
        core.Transaction(close, ()).run()
        closed.set()
        sender.join()
        theirs.setblocking(True)
        assert (said, theirs.recv(10)) == ([1], b"x")


@pytest.mark.parametrize("end", [lambda sock: sock.shutdown(socket.SHUT_WR), socket.socket.close], ids=["shutdown", "close"])
def test_nothing_is_sent_after_an_end_in_the_same_step(end):
    ours, theirs = nonblocking_pair()

    def transaction():
        ours.send(b"before")
        end(ours)
        try:
            ours.send(b"after")
        except OSError as e:
            return type(e)

    with ours, theirs:
        assert issubclass(core.Transaction(transaction, ()).run(), OSError)
        assert theirs.recv(100) == b"before"
