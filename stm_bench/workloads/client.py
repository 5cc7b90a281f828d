"""Clients that know what a server may answer: connections that stay open, each of which asks again as soon as it is answered."""

import base64
import os
import selectors
import socket
import time
from dataclasses import dataclass

from stm_bench.errors import WrongAnswer

HOST = "127.0.0.1"
PATIENCE = 60  # seconds that an answer may take


@dataclass(frozen=True)
class Load:
    """What a load has found: answers a second, and the seconds that those took whose clients have measured it."""

    rate: float
    waits: tuple = ()

    def times(self, factor):
        return Load(self.rate * factor, self.waits)


class Connection:
    """What one client has sent, and what has come back so far."""

    def __init__(self, server):
        self.server = server
        self.socket = socket.create_connection((HOST, server.port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.asked = None  # by whoever uses it

    def receive(self):
        """Wait until more has come.

        Raises:
            WrongAnswer: the server has closed it.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            raise WrongAnswer("server %s has closed a connection" % self.server.name)
        self.received += data


def shared_out(clients, servers):
    """Pairs of a server and how many of the clients ask it: as equally as can be, without those that nobody asks."""
    shares = [clients // len(servers) + (number < clients % len(servers)) for number in range(len(servers))]
    return [(server, share) for server, share in zip(servers, shares) if share]


def ask_on(servers, clients, seconds, ask, take, begin=lambda connection: None):
    """Have so many clients ask servers, in turns, for so many seconds; they wait for the last answers.

    Args:
        begin: called with each Connection when it has been made, before any asks.
        ask: called with a Connection when it may ask: the bytes to send, or None when that client has nothing more to ask.
        take: called with a Connection whenever more has come: how many answers that were, which it takes from `received`.

    Returns:
        The Load: of what came within that time, or of what came first where nothing did.

    Raises:
        WrongAnswer: none comes, or a connection is closed; by `take`, or where that makes nothing of what has come.
    """
    answered, waiting, waits = 0, 0, []
    with selectors.DefaultSelector() as selector:
        for number in range(clients):
            connection = Connection(servers[number % len(servers)])
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            begin(connection)
        start = now = time.monotonic()
        end, ended = start + seconds, None

        def go_on(connection):
            question = ask(connection) if now < end else None
            if question is not None:
                connection.socket.sendall(question)
                connection.since = time.monotonic()
            return question is not None

        for key in list(selector.get_map().values()):
            waiting += go_on(key.data)
        while waiting:
            ready = selector.select(PATIENCE)
            if not ready:
                raise WrongAnswer("a server has not answered for %d s" % PATIENCE)
            now = time.monotonic()
            for key, _ in ready:
                connection = key.data
                connection.receive()
                try:
                    answers = take(connection)
                except (ValueError, LookupError, TypeError) as error:
                    raise WrongAnswer("server %s sent what is no answer: %s: %s" % (connection.server.name, type(error).__name__, error)) from None
                if answers and (now < end or not answered):
                    answered += answers
                    waits.append(now - connection.since)
                    ended = now
                if answers:
                    waiting += go_on(connection) - 1
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    if not answered:
        raise WrongAnswer("nothing was answered in %d s" % seconds)
    return Load(answered / (ended - start), tuple(waits))


def get(path):
    """The bytes of a request."""
    return b"GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path.encode(), HOST.encode())


def take_page(connection):
    """The text of a page that has come whole, taken from what the connection has received; None: not yet.

    Raises:
        WrongAnswer: it is an error's.
    """
    head, blank, rest = connection.received.partition(b"\r\n\r\n")
    if not blank:
        return None
    if not head.startswith(b"HTTP/1.1 200 "):
        raise WrongAnswer("server %s answered %s with %.60r" % (connection.server.name, connection.asked, head))
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    if len(rest) < length:
        return None
    connection.received = rest[length:]
    return rest[:length].decode()


def open_web_socket(connection, path="/"):
    """Make the connection one.

    Raises:
        WrongAnswer: the server does not want to.
    """
    server = connection.server
    lines = (
        "GET %s HTTP/1.1" % path, "Host: %s:%d" % (HOST, server.port), "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: %s" % base64.b64encode(os.urandom(16)).decode(), "", "",
    )  # fmt: skip
    connection.socket.sendall("\r\n".join(lines).encode())
    while b"\r\n\r\n" not in connection.received:
        connection.receive()
    head, _, connection.received = connection.received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101"):
        raise WrongAnswer("server %s opens no web socket: %.60r" % (server.name, head))


def frame(text):
    """The bytes of a short text, its mask is 0."""
    return bytes((0x81, 0x80 | len(text), 0, 0, 0, 0)) + text.encode()
