"""Applications as users write them, with real clients: the same answers as on upstream's loop, in the same order.

Every test runs on upstream's loop too, which shows that the test itself is right, and with ``-m long`` on ours with aborts
injected.
"""

import asyncio
import hashlib
import http.client
import json
import os
import signal
import socket
import ssl

import pytest
import tornado.simple_httpclient
import tornado.websocket
import trustme

from app_process import HOWS, TIMEOUT, App
from tornado.stm import core

if not core.PARALLEL:
    HOWS = ["upstream", "ours"]


@pytest.fixture(scope="module", params=[pytest.param(how, marks=[pytest.mark.long] * (how == "aborts")) for how in HOWS])
def how(request):
    return request.param


def app_fixture(name):
    """One process for all tests of a file that use this application."""

    @pytest.fixture(scope="module")
    def app(how):
        with App(name, how=how) as app:
            yield app

    return app


chat = app_fixture("chat.py")
gateway = app_fixture("gateway.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files to serve."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "large").write_bytes(LARGE)
    (folder / "small.txt").write_text("a small file\n")
    return folder


@pytest.fixture(scope="module")
def files(how, folder):
    with App("files.py", folder, how=how) as app:
        yield app


@pytest.fixture(scope="module")
def lines(how, tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "socket"
    with App("lines.py", path, how=how) as app:
        app.unix = str(path)
        yield app


def together(coroutine):
    """Run a test's clients; a silent server fails it."""
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT))


# ---- Web sockets and long polling ----------------------------------------------------------------------------------


async def join(chat, name):
    member = await tornado.websocket.websocket_connect(chat.url(f"/room?name={name}", "ws"))
    assert json.loads(await member.read_message()) == [0, "room", f"welcome {name}"]
    return member


async def read_until_numbered(member, last):
    """The messages up to that number, as a member gets them."""
    messages = []
    while not messages or messages[-1][0] < last:
        messages.append(json.loads(await member.read_message()))
    return messages


def test_all_members_of_a_room_get_all_messages_in_one_order(chat):
    async def clients():
        before = len(chat.get("/log")["messages"])
        names = [f"member{i}" for i in range(6)]
        members = await asyncio.gather(*(join(chat, name) for name in names))

        async def talk(member):
            for i in range(15):
                await member.write_message(f"message {i}")

        last = before + 15 * len(members)
        _, *received = await asyncio.gather(
            asyncio.gather(*map(talk, members)), *(read_until_numbered(member, last) for member in members)
        )
        for member in members:
            member.close()
        for messages in received:
            assert messages == received[0]
            assert [number for number, _, _ in messages] == list(range(before + 1, last + 1))
            for name in names:
                assert [text for _, who, text in messages if who == name] == [f"message {i}" for i in range(15)]
        assert chat.get("/log")["messages"][before:] == received[0]

    together(clients())


def test_members_that_leave_are_forgotten(chat):
    async def clients():
        members = await asyncio.gather(*(join(chat, f"guest{i}") for i in range(5)))
        for member in members:
            member.close(1000, "bye")
            assert await member.read_message() is None
        while chat.get("/log")["members"]:
            await asyncio.sleep(0.01)

    together(clients())


def test_long_polling_tells_every_message_once(chat):
    async def clients():
        client = tornado.simple_httpclient.SimpleAsyncHTTPClient(
            max_clients=20, force_instance=True, defaults={"connect_timeout": TIMEOUT, "request_timeout": TIMEOUT}
        )
        before = len(chat.get("/log")["messages"])

        async def poll(count):
            messages, after = [], before
            while len(messages) < count:
                answer = await client.fetch(chat.url(f"/poll?after={after}"))
                messages += json.loads(answer.body)["messages"]
                after = before + len(messages)
            return messages

        async def say(name):
            for i in range(8):
                await client.fetch(chat.url(f"/say?name={name}"), method="POST", body=f"{name} {i}")

        *seen, _ = await asyncio.gather(*(poll(24) for _ in range(6)), asyncio.gather(*map(say, "abc")))
        assert seen == [chat.get("/log")["messages"][before:]] * 6
        assert sorted(text for _, _, text in seen[0]) == sorted(f"{name} {i}" for name in "abc" for i in range(8))

    together(clients())


def test_periodic_callbacks_come_again_and_again(chat):
    first = chat.get("/log")["beats"]
    while chat.get("/log")["beats"] < first + 5:
        pass


# ---- Bodies and files ----------------------------------------------------------------------------------------------

LARGE = b"".join(hashlib.sha512(b"%d" % i).digest() for i in range(50000))  # 3.2 MB


def check_upload(app, connection=None):
    pieces = [LARGE[i : i + 70001] for i in range(0, len(LARGE), 70001)]
    expected = {"length": len(LARGE), "sha1": hashlib.sha1(LARGE).hexdigest()}
    for body in (LARGE, iter(pieces)):  # the second one is sent in chunks
        status, _, answer = app.ask("/upload", "PUT", body, connection=connection)
        assert (status, json.loads(answer)) == (200, expected)


def test_a_request_body_is_streamed(files):
    check_upload(files)


def test_a_response_is_streamed(files):
    status, headers, body = files.ask("/rows/200")
    assert (status, headers["Transfer-Encoding"]) == (200, "chunked")
    assert body == b"".join(b"row %d\n" % i for i in range(200))


def test_generator_based_coroutines(files):
    expected = {"first": 9, "others": [n**2 for n in range(10)], "named": {"five": 25}, "failed": "thirteen"}
    assert files.get("/classic/10") == expected


def check_ranges(app, connection=None):
    def ask(**headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return app.ask("/files/large", headers=headers, connection=connection)

    status, headers, body = ask()
    assert (status, body) == (200, LARGE)
    tag = headers["Etag"]
    size = len(LARGE)
    for asked, start, end in (("0-99", 0, 100), ("100000-2000000", 100000, 2000001), ("-500", size - 500, size)):
        status, headers, body = ask(Range=f"bytes={asked}")
        assert (status, headers["Content-Range"]) == (206, f"bytes {start}-{end - 1}/{size}")
        assert body == LARGE[start:end]
    assert ask(Range=f"bytes={size}-")[0] == 416
    assert ask(If_None_Match=tag)[0] == 304
    assert app.ask("/files/missing", connection=connection)[0] == 404
    assert app.ask("/files/large", "HEAD", connection=connection)[1]["Content-Length"] == str(size)


def test_static_files_and_parts_of_them(files):
    check_ranges(files)


def test_a_connection_is_kept_for_many_requests(files):
    connection = http.client.HTTPConnection("127.0.0.1", files.port, timeout=TIMEOUT)
    connection.connect()
    sock = connection.sock
    for i in range(30):
        body = b"request %d" % i
        assert files.ask("/echo", "POST", body, connection=connection)[2] == body
        assert connection.sock is sock
    connection.close()


def test_pipelined_requests_are_answered_in_their_order(files):
    with files.connect() as sock:
        for i in range(40):
            body = b"request %d" % i
            sock.sendall(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        sock.sendall(b"GET /rows/3 HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        received = b"".join(iter(lambda: sock.recv(65536), b""))
    answers = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.partition(b"\r\n\r\n")[2] for answer in answers[:-1]] == [b"request %d" % i for i in range(40)]
    assert answers[-1].endswith(b"6\r\nrow 2\n\r\n0\r\n\r\n")


def test_tls(how, folder, tmp_path):
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with App("files.py", folder, tmp_path / "server.pem", tmp_path / "server.pem", how=how) as app:
        connection = http.client.HTTPSConnection("127.0.0.1", app.port, timeout=TIMEOUT, context=context)
        for i in range(10):
            assert app.ask("/echo", "POST", b"request %d" % i, connection=connection)[2] == b"request %d" % i
        check_upload(app, connection)
        check_ranges(app, connection)
        with app.connect() as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")  # which is the end of this connection, and of no other
        assert app.ask("/echo", "POST", b"still there", connection=connection)[2] == b"still there"
        connection.close()


# ---- Other servers, threads, processes, time ------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["simple", "curl"])
def test_http_clients(gateway, client):
    paths = [f"/piece/{i}" for i in range(12)]
    answer = gateway.get(f"/fetch?client={client}&" + "&".join(f"paths={path}" for path in paths))
    assert answer["bodies"] == [f"piece {i} " * 1000 for i in range(12)]


def test_executors(gateway):
    answer = gateway.get("/threads/40")
    assert answer["sums"] == [n * (n + 1) // 2 for n in range(40)]
    assert answer["pairs"] == [list(divmod(n, 7)) for n in range(40)]
    assert "zero" in answer["failed"]


def test_subprocesses(gateway):
    status, _, body = gateway.ask("/pipe", "POST", "a word\n" * 20000)
    assert status == 200
    assert json.loads(body) == {"output": "a word\n" * 20000, "cat": 0, "said": "from the shell\n", "shell": 3}


def test_a_subprocess_can_be_terminated(gateway):
    assert gateway.get("/terminate") == {"status": [-signal.SIGTERM, -signal.SIGINT]}


def test_a_storm_of_timers(gateway):
    assert gateway.get("/timers/2000") == {"came": list(range(2000))}


# ---- Without HTTP --------------------------------------------------------------------------------------------------


class LineClient:
    """One connection, over which a line is asked and a line answered."""

    def __init__(self, sock):
        self.sock = sock
        self.file = sock.makefile("rwb")

    def ask(self, line):
        self.file.write(line.encode() + b"\n")
        self.file.flush()
        return self.file.readline().decode()[:-1]

    def close(self):
        self.file.close()
        self.sock.close()


@pytest.fixture
def both(lines):
    """A client on TCP and one on the Unix socket."""
    unix = socket.socket(socket.AF_UNIX)
    unix.settimeout(TIMEOUT)
    unix.connect(lines.unix)
    clients = [LineClient(lines.connect()), LineClient(unix)]
    yield clients
    for client in clients:
        client.close()


def test_tcp_and_unix_sockets_share_a_server(both):
    for i in range(20):
        assert both[i % 2].ask("add a 2") == str(2 * i + 2)
    for client in both:
        assert client.ask("nonsense") == "what?"


def test_clients_of_other_servers(both):
    both[0].ask("add relayed 1")
    for i in range(10):
        assert both[i % 2].ask("relay add relayed 1") == str(2 * i + 2)
        assert both[i % 2].ask("raw add relayed 1") == str(2 * i + 3)
    assert both[0].ask("relay raw relay add relayed 1") == "22"


def test_a_handler_on_a_pipe(both):
    for i in range(20):
        assert both[i % 2].ask(f"pipe word{i}") == f"word{i}"


def test_signals(lines, both):
    for number, counts in ((signal.SIGUSR1, "1 0"), (signal.SIGUSR2, "1 1"), (signal.SIGUSR1, "2 1")):
        os.kill(lines.process.pid, number)
        while (answer := both[0].ask("signals")) != counts:
            assert answer < counts
    assert both[1].ask("signals") == "2 1"


def test_a_connection_that_is_told_to_end(lines, both):
    assert both[0].ask("quit") == ""
    assert both[1].ask("signals")


# ---- Processes -----------------------------------------------------------------------------------------------------


def test_forked_before_the_loop_starts(how):
    if how == "aborts":
        pytest.skip("the observer starts a thread")
    with App("prefork.py", 2, how=how) as app:
        seen = {}
        while len(seen) < 2:
            answer = app.get("/")
            assert seen.setdefault(answer["number"], answer["process"]) == answer["process"]
        assert sorted(seen) == [0, 1] and app.process.pid not in seen.values()
        for process in seen.values():
            os.kill(process, signal.SIGTERM)


def test_autoreload(how, tmp_path):
    upstream = "_UnixSelectorEventLoop"

    def show(app, expected):
        answer = app.get("/")
        assert answer["text"] == expected and (answer["loop"] == upstream) == (how == "upstream")

    text = tmp_path / "text"
    text.write_text("first")
    with App("reloaded.py", text, how="upstream" if how == "upstream" else "ours") as app:
        show(app, "first")
        changed = tmp_path / "changed"
        changed.write_text("second")
        os.utime(changed, (1, 1))  # or both might be of one moment
        changed.rename(text)  # at once: of two changes the server would start again twice
        app.port = app.wait_for_ports(2)[1]
        show(app, "second")
