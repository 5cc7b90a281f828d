"""TLS in transactions, with aborts injected: of sockets (Tornado's) and in memory (asyncio's)."""

import asyncio
import contextlib
import os
import select
import socket
import ssl
import threading
import time

import pytest
import tornado.test
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

import tornado.stm
from tornado.stm import activation, core, transaction
from tornado.stm.input_output import tls
from tornado.stm.program import runner

TIMEOUT = 200  # seconds until what does not come is taken to hang
CERTIFICATE, KEY = (os.path.join(os.path.dirname(tornado.test.__file__), name) for name in ("test.crt", "test.key"))
LARGE = bytes(range(256)) * 4096  # 1 MiB: more than an outbox or a kernel's buffer holds


def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def client_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture(params=[0, 0.01, 0.05], ids="aborts {}".format)
def run(request):
    """Runs a coroutine on two threads, with aborts injected so often."""
    activation.activate()
    core.inject_aborts(request.param, 1)
    yield lambda main: tornado.stm.run(asyncio.wait_for(main, TIMEOUT), threads=2)
    core.inject_aborts(0, 0)


class Echo(TCPServer):
    """Sends back what it gets, line by line, and counts the lines."""

    lines = 0

    async def handle_stream(self, stream, address):
        try:
            while True:
                line = await stream.read_until(b"\n")
                self.lines += 1
                await stream.write(line)
        except StreamClosedError:
            pass


async def listening(server):
    sock, port = bind_unused_port()
    server.add_sockets([sock])
    return port


def test_lines_over_many_connections(run):
    async def member(port, name):
        stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
        for n in range(20):
            line = b"%d-%d%s\n" % (name, n, b"x" * 100 * n)
            await stream.write(line)
            assert await stream.read_until(b"\n") == line
        assert stream.socket.version().startswith("TLS")
        stream.close()

    async def main():
        server = Echo(ssl_options=server_context())
        port = await listening(server)
        await asyncio.gather(*(member(port, name) for name in range(6)))
        assert server.lines == 6 * 20

    run(main())


class Upload(RequestHandler):
    total = 0

    def post(self):
        Upload.total += len(self.request.body)
        self.write(self.request.body[::-1])


def test_large_requests_and_answers(run):
    async def main():
        Upload.total = 0
        server = HTTPServer(Application([("/", Upload)]), ssl_options=server_context())
        port = await listening(server)
        client = AsyncHTTPClient(force_instance=True, defaults={"connect_timeout": TIMEOUT, "request_timeout": TIMEOUT})
        answers = await asyncio.gather(*(
            client.fetch(
                f"https://127.0.0.1:{port}/", method="POST", body=LARGE, headers={"Content-Type": "x/y"}, validate_cert=False
            )
            for _ in range(3)
        ))
        assert [answer.body for answer in answers] == [LARGE[::-1]] * 3
        assert Upload.total == 3 * len(LARGE)

    run(main())


def test_what_was_written_before_a_close_arrives(run):
    class Farewell(TCPServer):
        async def handle_stream(self, stream, address):
            await stream.read_until(b"\n")
            await stream.write(LARGE)
            stream.close()

    async def main():
        port = await listening(Farewell(ssl_options=server_context()))
        stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
        await stream.write(b"go\n")
        await asyncio.sleep(0)
        assert await stream.read_bytes(len(LARGE)) == LARGE
        with pytest.raises(StreamClosedError):
            await stream.read_bytes(1)

    run(main())


def test_nobody_reads_a_connection_while_another_writes_it(run, monkeypatch):
    """What a transaction has written is encrypted after its commit, and OpenSSL loses it if it decrypts at the same time."""
    inside, overlaps = set(), []

    def watched(name):
        function = getattr(tls, name)

        @core.trusted
        def call(connection, *args):
            if id(connection) in inside:
                overlaps.append(name)
            inside.add(id(connection))
            try:
                time.sleep(0.001)
                return function(connection, *args)
            finally:
                inside.discard(id(connection))

        monkeypatch.setattr(tls, name, call)

    for name in "_read", "_write", "_do_handshake":
        watched(name)

    async def main():
        port = await listening(Echo(ssl_options=server_context()))
        for _ in range(25):  # the server has tickets to send while the client sends its line
            stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
            await stream.write(b"sent\n")
            await asyncio.sleep(0)
            assert await stream.read_until(b"\n") == b"sent\n"
            stream.close()

    run(main())
    assert overlaps == []


def test_plain_text_first_then_tls(run):
    class Upgrading(TCPServer):
        async def handle_stream(self, stream, address):
            assert await stream.read_until(b"\n") == b"STARTTLS\n"
            await stream.write(b"OK\n")
            stream = await stream.start_tls(True, server_context())
            await stream.write((await stream.read_until(b"\n")).upper())

    async def member(port):
        stream = await TCPClient().connect("127.0.0.1", port)
        await stream.write(b"STARTTLS\n")
        assert await stream.read_until(b"\n") == b"OK\n"
        stream = await stream.start_tls(False, client_context())
        await stream.write(b"secret\n")
        assert await stream.read_until(b"\n") == b"SECRET\n"
        stream.close()

    async def main():
        port = await listening(Upgrading())
        await asyncio.gather(*(member(port) for _ in range(5)))

    run(main())


def test_a_client_that_does_not_trust_the_server_is_told(run):
    async def main():
        port = await listening(Echo(ssl_options=server_context()))
        for _ in range(3):
            with pytest.raises(ssl.SSLCertVerificationError):
                await TCPClient().connect("127.0.0.1", port, ssl_options=ssl.create_default_context())
        stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
        await stream.write(b"still there\n")
        assert await stream.read_until(b"\n") == b"still there\n"

    run(main())


@core.trusted
def roll_back():
    raise core.Abort


@pytest.mark.parametrize("exclusive", (False, True))
def test_a_handshake_that_has_failed_fails_alike_in_the_next_attempt(exclusive):
    activation.activate()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = client_context().wrap_socket(ours, do_handshake_on_connect=False)
    theirs.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def attempt():
        first = core.rehearse()
        if exclusive and not first:
            core.exclusive("a test")
        try:
            connection.do_handshake()
        except ssl.SSLError as e:
            if first:
                roll_back()
            return e.reason

    with connection, theirs:
        assert core.Transaction(attempt, ()).run() == "WRONG_VERSION_NUMBER"


def test_a_client_that_speaks_no_tls_harms_nobody(run):
    async def main():
        port = await listening(Echo(ssl_options=server_context()))
        rude = await TCPClient().connect("127.0.0.1", port)
        await rude.write(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(StreamClosedError):
            while True:
                await rude.read_bytes(100, partial=True)
        stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
        await stream.write(b"still there\n")
        assert await stream.read_until(b"\n") == b"still there\n"

    run(main())


def test_server_names_are_asked_for_in_python(run):
    """The handshake calls back; it must not be aborted half-way."""
    names = []

    def choose(connection, name, context):
        names.append(name)

    async def main():
        context = server_context()
        context.sni_callback = choose
        port = await listening(Echo(ssl_options=context))
        for n in range(5):
            stream = await connect_as(port, f"host{n}.example")
            await stream.write(b"hello\n")
            assert await stream.read_until(b"\n") == b"hello\n"
        assert names == [f"host{n}.example" for n in range(5)]

    async def connect_as(port, name):
        stream = await TCPClient().connect("127.0.0.1", port)
        return await stream.start_tls(False, client_context(), server_hostname=name)

    run(main())


def test_streams_of_asyncio(run):
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def member(port, name):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
        for n in range(20):
            line = b"%d-%d%s\n" % (name, n, b"x" * 100 * n)
            writer.write(line)
            await writer.drain()
            assert await reader.readline() == line
        writer.close()
        await writer.wait_closed()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context())
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*(member(port, name) for name in range(5)))
        server.close()
        await server.wait_closed()

    run(main())


def test_nothing_of_tls_runs_alone_for_each_connection():
    """Once all code that it needs has been called."""
    async def main():
        server = Echo(ssl_options=server_context())
        port = await listening(server)
        context = client_context()

        async def talk():
            stream = await TCPClient().connect("127.0.0.1", port)
            stream = await stream.start_tls(False, context)
            for _ in range(10):
                await stream.write(b"line\n")
                await stream.read_until(b"\n")
            stream.close()

        for _ in range(3):
            await talk()
        before = transaction.stats()["exclusive_reasons"]
        for _ in range(10):
            await talk()
        after = transaction.stats()["exclusive_reasons"]
        return [why for why, count in after.items() if count - before.get(why, 0) >= 10]

    assert [why for why in tornado.stm.run(main(), threads=2) if "ssl" in why.lower()] == []


# ---- Outside of the loop's transactions: before it runs, and in between -------------------------------------------------

#: more than the kernel takes from a socket with a small buffer, less than an outbox holds
PENDING = LARGE[:200_000]


class Receiver(asyncio.Protocol):
    def __init__(self):
        self.data = bytearray()
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.data += data

    def connection_lost(self, error):
        self.lost.set_result(error)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("end", ["close", "write_eof"])
def test_what_is_written_outside_comes_after_what_was_written_inside(tls, end):
    if tls and end == "write_eof":
        pytest.skip("TLS has no half-closed connections")
    receivers = []

    def receiver():
        receivers.append(Receiver())
        return receivers[-1]

    async def connect():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(receiver, "127.0.0.1", 0, ssl=server_context() if tls else None)
        address = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, *address, ssl=client_context() if tls else None)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        while not receivers:  # the server accepts in its own time
            await asyncio.sleep(0.001)
        return server, transport

    async def write(transport):
        receivers[0].data.clear()
        transport.write(PENDING)

    async def received(server):
        error = await asyncio.wait_for(receivers[0].lost, TIMEOUT)
        server.close()
        return error

    for _ in range(3):
        receivers.clear()
        with asyncio.Runner(loop_factory=lambda: runner.new_loop(2)) as running:
            server, transport = running.run(connect())
            running.run(write(transport))
            transport.write(b"the end")
            getattr(transport, end)()
            assert running.run(received(server)) is None
        assert len(receivers[0].data) == len(PENDING) + 7
        assert receivers[0].data == PENDING + b"the end"


def test_what_a_tls_stream_writes_outside_comes_after_what_it_wrote_inside():
    async def connect():
        server = Collecting(ssl_options=server_context())
        port = await listening(server)
        stream = await TCPClient().connect("127.0.0.1", port, ssl_options=client_context())
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return server, stream

    async def write(stream):
        stream.write(PENDING)

    async def received(server):
        return await asyncio.wait_for(server.received, TIMEOUT)

    with asyncio.Runner(loop_factory=lambda: runner.new_loop(2)) as running:
        server, stream = running.run(connect())
        asyncio.set_event_loop(running.get_loop())
        running.run(write(stream))
        stream.write(b"the end\n")
        assert running.run(received(server)) == PENDING + b"the end\n"


class Collecting(TCPServer):
    """Gets one message, up to "the end"."""

    def __init__(self, **options):
        super().__init__(**options)
        self.received = asyncio.get_running_loop().create_future()

    async def handle_stream(self, stream, address):
        self.received.set_result(await stream.read_until(b"the end\n"))


def connected_by_tls(context, handshake=True):
    """The server's end, which does not block, and a thread with the client's, which reads to the end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    server = context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)

    def be_client():
        with theirs, contextlib.suppress(OSError), client_context().wrap_socket(theirs, server_hostname="a.example") as client:
            client.send(b"from the client")
            while client.recv(100):
                pass

    client = threading.Thread(target=be_client, daemon=True)
    client.start()
    while handshake:
        try:
            server.do_handshake()
            break
        except ssl.SSLWantReadError:
            select.select([server], [], [], TIMEOUT)
    select.select([server], [], [], TIMEOUT)
    return server, client


@pytest.mark.parametrize("way", ["handshake", "messages"])
def test_who_is_called_back_by_tls_may_wait_for_who_writes(way, monkeypatch):
    """For a transaction that is in its commit and has to encrypt by another connection, of the same lock."""
    activation.activate()
    monkeypatch.setattr(tls, "_locks", tls._locks[:1])
    shared, called, begun = Shared(), [], []
    alone_before = alone_so_far()

    def change(*message):
        called.append(True)
        shared.count += 1

    context = server_context()
    if way == "handshake":
        context.sni_callback = change
    else:
        context._msg_callback = change
    one, client = connected_by_tls(context, handshake=way != "handshake")
    called.clear()
    shared.count = 0
    other, other_client = connected_by_tls(server_context())

    def be_called_back():
        with contextlib.suppress(ssl.SSLWantReadError):
            one.do_handshake() if way == "handshake" else one.recv(100)

    def write():
        shared.count += 1
        other.send(b"x")
        hold()

    @core.trusted
    def hold():
        begun.append(True)
        end = time.monotonic() + TIMEOUT
        while not called and alone_so_far() == alone_before and not core.is_unwinding() and time.monotonic() < end:
            time.sleep(0.001)

    writing = threading.Thread(target=core.Transaction(write, ()).run, daemon=True)
    writing.start()
    while not begun:
        time.sleep(0.001)
    calling = threading.Thread(target=core.Transaction(be_called_back, ()).run, daemon=True)
    calling.start()
    for thread in writing, calling:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert shared.count == 1 + len(called) and called
    for each, end in (one, client), (other, other_client):
        each.close()
        end.join(TIMEOUT)


class Shared:
    count = 0


@core.trusted
def alone_so_far():
    return sum(core.stats()["exclusive_reasons"].values())
