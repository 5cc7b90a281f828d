"""Unmodified applications as processes, ``python app.py`` and ``python -m tornado.stm -j N app.py``, and clients that count."""

import functools
import http.client
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from client import in_parallel as all_in_parallel

ROOT = Path(__file__).resolve().parents[2]
APPS = ROOT / "tests" / "apps"
TIMEOUT = 60  # seconds until a silent program is taken to hang

#: programs whose contexts have been entered and not left
running = []

#: of what nobody has ended
CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}


class Program:
    """An application of `apps`, which prints ``listening PORT``, in a process of its own.  A context manager.

    Args:
        name: of its file.
        arguments: for it.
        threads: of the transactional loop; 0 for upstream's.
        limits: resource limits, as {resource.RLIMIT_...: (soft, hard)}.
        environment: more variables for it.
        python: the interpreter.
    """

    def __init__(self, name, *arguments, threads=2, limits=None, environment=None, python=sys.executable):
        loop = ["-m", "tornado.stm", "-j", str(threads)] if threads else []
        self._aborted = False
        self._output = tempfile.TemporaryFile("w+b")
        self._errors = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            [python, *loop, str(APPS / name), *map(str, arguments)], cwd=ROOT,
            stdout=self._output, stderr=self._errors,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"} | (environment or {}),
            preexec_fn=(lambda: [resource.setrlimit(*limit) for limit in limits.items()]) if limits else None,
        )
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _wait_for_port(self):
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end and self.process.poll() is None:
            match = re.search(r"listening (\d+)\n", self.output)
            if match:
                return int(match[1])
            time.sleep(0.02)
        raise RuntimeError(f"no server:\n{self.errors}")

    @property
    def output(self):
        """What it has printed so far."""
        return os.pread(self._output.fileno(), 1 << 26, 0).decode()

    @property
    def errors(self):
        """What it has written to its standard error so far."""
        return os.pread(self._errors.fileno(), 1 << 26, 0).decode()

    @property
    def descriptors(self):
        """How many it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def resident(self):
        """Bytes of its memory that are resident."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self, **options):
        """A socket connected to it."""
        connection = socket.create_connection(("127.0.0.1", self.port), TIMEOUT, **options)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def end(self, number=signal.SIGTERM):
        """Send it the signal; its exit status.  What its threads are at is printed if it does not end."""
        self.process.send_signal(number)
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.abort()
            raise AssertionError(f"signal {number} did not end the program:\n{self.errors[-20000:]}") from None

    def abort(self):
        """End it at once; what its threads are at goes to its standard error."""
        self._aborted = True
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()

    @property
    def command(self):
        return " ".join(self.process.args)

    def last_words(self):
        """End it at once, if it has not ended; the end of what it has written to its standard error."""
        if self.process.poll() is None:
            self.abort()
        return self.errors[-20000:]

    def __enter__(self):
        running.append(self)
        return self

    def __exit__(self, kind, *rest):
        running.remove(self)
        crashed = self.process.poll() in CRASHES and not self._aborted
        written = self.last_words()
        if kind is not None:
            print(f"{self.command} wrote:\n{written}")
        self._output.close()
        self._errors.close()
        assert kind is not None or not crashed, f"{self.command} has crashed:\n{written}"


class Client:
    """A connection that asks, and counts; a context manager."""

    def __init__(self, server):
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
        self.sent = self.answered = 0

    def __enter__(self):
        self._connection.connect()
        return self

    def __exit__(self, *exc):
        self._connection.close()

    def ask(self, path):
        """Send a request for it."""
        self._connection.request("GET", path)
        self.sent += 1

    def answer(self):
        """The status and the text of the answer to what has been asked."""
        response = self._connection.getresponse()
        text = response.read().decode()
        self.answered += 1
        return response.status, text

    def get(self, path, status=200):
        """The text of the answer."""
        self.ask(path)
        got, text = self.answer()
        assert got == status, (got, text)
        return text


def get(server, path, status=200):
    with Client(server) as client:
        return client.get(path, status)


def in_parallel(count, work):
    """Call work(number) on so many threads; their results in order.  Raises the first exception."""
    return all_in_parallel([functools.partial(work, number) for number in range(count)])


def until(condition, server):
    """Ask the server for something, again and again, until the condition holds."""
    for _ in range(3000):
        if condition():
            return
        get(server, "/count")
    raise AssertionError(f"it never came true: {condition()}")


def reset(connection):
    """Close it as a client does that dies."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
