"""A server in a process of its own, and a client on raw sockets that checks every byte of every response."""

import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tornado

APPS = Path(__file__).resolve().parents[1] / "apps"
TIMEOUT = 60  # seconds until a silent server is taken to hang

REASONS = {200: "OK", 500: "Internal Server Error"}


class BadResponse(Exception):
    """What came back is not, byte for byte, a response of this server."""


class Server:
    """An application of `apps` as a process; what it prints goes to files.  A context manager.

    Args:
        threads: of the transactional loop.
        tickets: how many there are to sell.
        environment: more variables for it.
    """

    def __init__(self, threads, tickets=0, **environment):
        self.description = f"{threads} threads, {environment}"
        self._stdout = tempfile.TemporaryFile("w+b")
        self._stderr = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            [sys.executable, str(APPS / "server.py"), str(threads), str(tickets)],
            stdout=self._stdout, stderr=self._stderr, env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment,
        )
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.kill()
            raise

    def _wait_for_port(self):
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            match = re.match(r"listening (\d+)\n", self.stdout())
            if match:
                return int(match[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"no server ({self.description}):\n{self.stderr()}")

    @staticmethod
    def _read(file):
        return os.pread(file.fileno(), 1 << 26, 0).decode()

    def stdout(self):
        """All that it has printed so far."""
        return self._read(self._stdout)

    def stderr(self):
        """All that it has written to its standard error so far."""
        return self._read(self._stderr)

    def connect(self, timeout=TIMEOUT):
        """A new `Connection`, which waits that many seconds for an answer."""
        return Connection(self.port, timeout)

    def open_files(self):
        """How many descriptors it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def get(self, path):
        """The decoded JSON of one request on a connection of its own."""
        with self.connect() as connection:
            return connection.get(path)

    def stop(self):
        """End it with SIGTERM.  Raises AssertionError if it does not end well."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.abort()
            raise AssertionError(f"SIGTERM did not end the server ({self.description}):\n{self.stderr()}") from None
        assert status == 0, f"status {status} ({self.description}):\n{self.stderr()}"

    def kill(self):
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def abort(self):
        """End it at once; what its threads were at goes to its standard error."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        try:
            if kind is None:
                self.stop()
        finally:
            if self.process.poll() is None:
                self.abort()
            if kind is not None:
                print(f"server ({self.description}) wrote:\n{self.stderr()[-20000:]}")
            self._stdout.close()
            self._stderr.close()


DATE = rb"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
JSON = "application/json; charset=UTF-8"
BYTES = "application/octet-stream"
HTML = "text/html; charset=UTF-8"


class Connection:
    """One keep-alive connection.  A context manager."""

    def __init__(self, port, timeout=TIMEOUT):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def send(self, path, body=None):
        """Send a request: a GET, or with a body a POST."""
        self.sock.sendall(request(path, body))

    def get(self, path):
        """The decoded JSON of the response to a GET."""
        self.send(path)
        return json.loads(self.receive(kind=JSON))

    def receive(self, status=200, kind=JSON, chunked=False):
        """Read one response; return its body.

        Raises:
            BadResponse: a byte of it is not as it has to be.
        """
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = re.search(rb"\r\nContent-Length: (\d+)$", head)
        if chunked:
            body, tail = self._chunks(), rb"\r\nTransfer-Encoding: chunked"
        elif length:
            body = self._exactly(int(length[1]))
            tail = rb"\r\nContent-Length: %d" % len(body)
            if status == 200 and kind != BYTES:  # an answer to a GET
                tail = rb'\r\nEtag: "%s"' % hashlib.sha1(body).hexdigest().encode() + tail
        else:
            raise BadResponse(head)
        expected = rb"HTTP/1\.1 %d %s\r\nServer: TornadoServer/%s\r\nContent-Type: %s\r\nDate: %s%s" % (
            status, REASONS[status].encode(), re.escape(tornado.version.encode()), re.escape(kind.encode()), DATE, tail,
        )
        if not re.fullmatch(expected, head):
            raise BadResponse(head)
        return body

    def reset(self):
        """Close with a reset, as when the client dies."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def end(self):
        """Close after making sure that the server has sent nothing more.

        Raises:
            BadResponse: it has.
        """
        self.sock.shutdown(socket.SHUT_WR)
        while data := self.sock.recv(65536):
            self._buffer += data
        self.sock.close()
        if self._buffer:
            raise BadResponse(b"more than was asked for: " + self._buffer[:200])

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise BadResponse(b"ends after " + self._buffer[:200])
        self._buffer += data

    def _exactly(self, count):
        pieces = [self._buffer]
        missing = count - len(self._buffer)
        while missing > 0:
            data = self.sock.recv(65536)
            if not data:
                raise BadResponse(b"the body is truncated")
            pieces.append(data)
            missing -= len(data)
        data = b"".join(pieces)
        self._buffer = data[count:]
        return data[:count]

    def _line(self):
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _chunks(self):
        body = b""
        while True:
            size = int(self._line(), 16)
            body += self._exactly(size)
            if self._exactly(2) != b"\r\n":
                raise BadResponse(b"a chunk does not end")
            if size == 0:
                return body


def request(path, body=None):
    """The bytes of a request."""
    if body is None:
        return f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode()
    return f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Clock:
    """Numbers the events of all clients: what is before what, without any time."""

    def __init__(self):
        self._lock = threading.Lock()
        self._value = 0

    def tick(self):
        with self._lock:
            self._value += 1
            return self._value


class Call:
    """One request of a load and its answer: the path, the decoded JSON, when it was sent and when it came back."""

    def __init__(self, client, path, answer, sent, received):
        self.client, self.path, self.answer, self.sent, self.received = client, path, answer, sent, received

    def __repr__(self):
        return f"{self.path} -> {self.answer}"


def in_parallel(functions):
    """Call each function on a thread of its own; return their results, in order.  Raises the first exception."""
    results = [None] * len(functions)
    failures = []

    def call(i, function):
        try:
            results[i] = function()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=call, args=each, daemon=True) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def load(server, paths_of_clients):
    """One client per list of paths, all at once, each on one connection, one request after the other.

    Returns:
        The list of all `Call`s, client by client.
    """
    clock = Clock()

    def client(number, paths):
        calls = []
        with server.connect() as connection:
            for path in paths:
                sent = clock.tick()
                try:
                    answer = connection.get(path)
                except Exception as e:
                    e.add_note(f"client {number}, after {len(calls)} answers, asking for {path}")
                    raise
                calls.append(Call(number, path, answer, sent, clock.tick()))
            connection.end()
        return calls

    lists = in_parallel([lambda n=n, p=p: client(n, p) for n, p in enumerate(paths_of_clients)])
    return [call for calls in lists for call in calls]


def load_the_broken(server, paths_of_clients):
    """Like `load`, on a server that may do anything: returns the calls that were answered."""
    clock = Clock()
    calls = []

    def client(number, paths):
        try:
            with server.connect(timeout=2) as connection:
                for path in paths:
                    sent = clock.tick()
                    answer = connection.get(path)
                    calls.append(Call(number, path, answer, sent, clock.tick()))
        except (OSError, BadResponse):
            pass

    in_parallel([lambda n=n, p=p: client(n, p) for n, p in enumerate(paths_of_clients)])
    return calls
