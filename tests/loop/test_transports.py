"""asyncio's transports on the transactional loop: what ends with a connection."""

import asyncio
import gc
import socket

import pytest

import tornado.stm
from tornado.stm import core, transaction
from tornado.stm.core import trusted

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

CONNECTIONS = 30


@trusted
def exclusives():
    return transaction.stats()["exclusives"]


@needs_threads
def test_connections_that_end_keep_nobody_waiting():
    """Nothing runs alone for them: neither the transport's finalizer nor the callback of a weak reference."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)
            self.transport.close()

    def ask(port):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"text\n")
            received = b""
            while more := connection.recv(100):
                received += more
            return received

    async def main():
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for _ in range(5):
            assert await asyncio.to_thread(ask, port) == b"text\n"
        before = exclusives()
        for _ in range(CONNECTIONS):
            assert await asyncio.to_thread(ask, port) == b"text\n"
        server.close()
        return exclusives() - before

    assert tornado.stm.run(main(), threads=2) < CONNECTIONS // 3


def test_the_text_of_a_transport_says_whether_it_waits():
    async def main():
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with theirs:
            await asyncio.sleep(0)
            seen = [str(writer.transport).partition(" read=")[2]]
            writer.transport.pause_reading()
            writer.transport.set_write_buffer_limits(0)
            while not writer.transport.get_write_buffer_size():
                writer.write(b"x" * 100_000)
            seen.append(str(writer.transport).partition(" read=")[2].partition(", bufsize")[0])
            with pytest.raises(KeyError):
                asyncio.get_running_loop()._selector.get_key(theirs)
            writer.transport.abort()
            await asyncio.sleep(0)
        return seen

    assert tornado.stm.run(main(), threads=2) == ["polling write=<idle, bufsize=0>>", "idle write=<polling"]


def test_a_transport_is_known_by_its_descriptor_while_it_lives():
    async def main():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        descriptor = ours.fileno()
        for use in loop.add_reader, loop.add_writer:
            with pytest.raises(RuntimeError, match="is used by transport"):
                use(descriptor, print)
        transport.close()
        loop.add_reader(descriptor, print)  # one that closes is no hindrance
        loop.remove_reader(descriptor)
        await asyncio.sleep(0.01)
        del transport
        gc.collect()
        theirs.close()

    tornado.stm.run(main(), threads=2)


@needs_threads
def test_a_transport_that_nobody_has_closed_is_told_of():
    async def main():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        transport, protocol = await loop.create_connection(asyncio.Protocol, sock=ours)
        loop._remove_reader(ours.fileno())
        with pytest.warns(ResourceWarning, match="unclosed transport"):
            del transport, protocol
            await asyncio.sleep(0)
            gc.collect()
        theirs.close()

    tornado.stm.run(main(), threads=2)


async def remove_of_closed_sockets():
    loop, removed = asyncio.get_running_loop(), []
    for add, remove in (loop.add_reader, loop.remove_reader), (loop.add_writer, loop.remove_writer):
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        with peer:
            add(ours, removed.append)
            ours.close()
            removed.append(remove(ours))
            with pytest.raises(ValueError, match="-1"):
                remove(ours)
    return removed


@pytest.mark.parametrize("run", [asyncio.run, tornado.stm.run])
def test_a_socket_that_has_been_closed_is_still_known_to_the_loop_by_itself(run):
    """As to upstream's selector, which finds the object: anyio closes UNIX sockets first."""
    assert run(remove_of_closed_sockets()) == [True, True]
