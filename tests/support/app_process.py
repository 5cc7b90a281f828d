"""Applications of `apps`, each in a process of its own: on the transactional loop, with aborts injected, or on upstream's."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
APPS = SUPPORT.parent / "apps"
TIMEOUT = 60  # seconds until a silent server is taken to hang

#: how an application is run: on upstream's loop, to show that the test itself is right; on ours; without sequential transactions; with
#: aborts
HOWS = ["upstream", "ours", "parallel", "aborts"]
ABORT_RATE = 0.002


class App:
    """An application that prints its port once it serves (context manager).

    Args:
        name: of the file in `apps`.
        arguments: of its command line.
        how: one of `HOWS`, or "observed", which is ours and makes `stats` work.
    """

    def __init__(self, name, *arguments, how="ours"):
        self.description = f"{name} {how}"
        program = [str(APPS / name), *map(str, arguments)]
        self._questions, theirs = socket.socketpair()
        watcher = [sys.executable, str(SUPPORT / "observed.py")]
        environment = os.environ | {"PYTHONFAULTHANDLER": "1"} | ({"TORNADO_STM_SEQUENTIAL": "0"} if how == "parallel" else {})
        how = "ours" if how == "parallel" else how
        command = {
            "upstream": [sys.executable, *program],
            "ours": [sys.executable, "-m", "tornado.stm", "-j", "2", *program],
            "aborts": [*watcher, str(ABORT_RATE), "7", "-1", *program],
            "observed": [*watcher, "0", "0", str(theirs.fileno()), *program],
        }[how]
        self._stdout, self._stderr = tempfile.TemporaryFile("w+b"), tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            command, stdout=self._stdout, stderr=self._stderr, cwd=SUPPORT.parents[1], pass_fds=[theirs.fileno()],
            env=environment,
        )
        theirs.close()
        try:
            ports = self.wait_for_ports(1)
            if not ports:
                raise RuntimeError(f"{self.description} does not serve:\n{self.stderr()}")
            self.port = ports[0]
        except BaseException:
            self.process.kill()
            self._close()
            raise

    def wait_for_ports(self, count, timeout=TIMEOUT):
        """The ports that it has printed, once these are so many; [] after `timeout` seconds.

        A server that starts again prints another one.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.process.poll() is None:
            ports = re.findall(r"^(\d+)\n", self.stdout(), re.MULTILINE)
            if len(ports) >= count:
                return list(map(int, ports))
            time.sleep(0.02)
        return []

    def stdout(self):
        """All that it has printed so far."""
        return os.pread(self._stdout.fileno(), 1 << 26, 0).decode()

    def stderr(self):
        """All that it has written to its standard error so far."""
        return os.pread(self._stderr.fileno(), 1 << 26, 0).decode()

    def url(self, path, scheme="http"):
        """Of something that it serves."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def connect(self):
        """A connected socket."""
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT)

    def ask(self, path, method="GET", body=None, headers={}, connection=None):
        """One request, on a new connection or a given `http.client` one: (status, headers, body)."""
        own = connection is None
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            if own:
                connection.close()

    def get(self, path):
        """The decoded JSON of the answer to a GET."""
        status, _, body = self.ask(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def stats(self):
        """What the engine of an observed one has counted so far."""
        self._questions.sendall(b"?")
        reply = b""
        while not reply.endswith(b"\n"):
            reply += self._questions.recv(1 << 16)
        return json.loads(reply)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        try:
            if kind is None:
                self._stop()
        finally:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGABRT)  # what its threads are at goes to its standard error
                self.process.wait()
            if kind is not None:
                print(f"{self.description} wrote:\n{self.stderr()[-20000:]}")
            self._close()

    def _stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"SIGTERM has not ended {self.description}:\n{self.stderr()}") from None
        assert status in (0, -signal.SIGTERM), f"status {status} of {self.description}:\n{self.stderr()}"
        assert "Traceback" not in self.stderr(), self.stderr()

    def _close(self):
        self._questions.close()
        self._stdout.close()
        self._stderr.close()
