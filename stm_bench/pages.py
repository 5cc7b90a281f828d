"""What the handlers benchmark asks servers for: pages that compute for a while, and requests that take next to nothing."""

import base64
import os
import selectors
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from stm_bench import siege
from stm_bench.apps import handlers_app
from stm_bench.calibrate import request_size, rounds
from stm_bench.errors import WrongAnswer
from stm_bench.primes_client import sieve
from stm_bench.servers import ANSWER_TIMEOUT, HOST


@dataclass(frozen=True)
class Page:
    """One page of an application.

    Attributes:
        name, path: what it is called, and where it is.
        answer: the text that it answers; None: something, which is not looked at.
        milliseconds: how long it is meant to take; None: as little as it can.
        status: of the answer.
        form: what is posted; None: it is got.
        keep_alive: do clients keep their connections?
        app: a module of stm_bench.apps.
    """

    name: str
    path: str
    answer: str | None
    milliseconds: int | None = None
    status: int = 200
    form: str | None = None
    keep_alive: bool = True
    app: str = "handlers_app"

    @property
    def title(self):
        return self.name if self.milliseconds is None else "%s, %d ms" % (self.name, self.milliseconds)

    def check(self, server):
        """Ask for it once.

        Raises:
            WrongAnswer: it answers something else.
        """
        status, text = server.answer(self.path, self.form)
        if status != self.status or self.answer not in (None, text):
            raise WrongAnswer("server %s answered %s with %d, %.60r" % (server.name, self.path, status, text))

    def load(self, server, clients, seconds):
        """Put the server under the load of so many clients.

        Returns:
            The answers per second, and how many there were.

        Raises:
            WrongAnswer: there was an answer of another kind, or none at all.
        """
        url = server.url(self.path) + (" POST " + self.form if self.form is not None else "")
        report = siege.load(url, clients, seconds, keep_alive=self.keep_alive)
        answered, failed = report.answered, report.failed
        if self.status >= 400:  # what siege calls a failure
            answered, failed = failed, answered
        if not answered or failed:
            raise WrongAnswer("server %s failed %d of %d requests for %s" % (server.name, failed, answered + failed, self.path))
        return report.rate, answered


class Echo(Page):
    """Messages over web sockets, which come back."""

    MESSAGE = b"What is sent comes back."

    def check(self, server):
        self.load(server, 1, 0.01)

    def load(self, server, clients, seconds):
        frame = bytes((0x81, 0x80 | len(self.MESSAGE), 0, 0, 0, 0)) + self.MESSAGE  # one text frame, its mask is 0
        expected = bytes((0x81, len(self.MESSAGE))) + self.MESSAGE
        answered = 0
        with selectors.DefaultSelector() as selector:
            for _ in range(clients):
                selector.register(self.connect(server), selectors.EVENT_READ, [b""])
            start = time.monotonic()
            for key in list(selector.get_map().values()):
                key.fileobj.sendall(frame)
            while (now := time.monotonic()) < start + seconds:
                ready = selector.select(ANSWER_TIMEOUT)
                if not ready:
                    raise WrongAnswer("server %s does not send messages back" % server.name)
                for key, _ in ready:
                    key.data[0] += key.fileobj.recv(1 << 16)
                    if key.data[0] == expected:
                        key.data[0] = b""
                        answered += 1
                        key.fileobj.sendall(frame)
                    elif not expected.startswith(key.data[0]) or not key.data[0]:
                        raise WrongAnswer("server %s sent %.60r back" % (server.name, key.data[0]))
            for key in list(selector.get_map().values()):
                key.fileobj.close()
        return answered / (now - start), answered

    def connect(self, server):
        """A web socket."""
        connection = socket.create_connection((HOST, server.port), ANSWER_TIMEOUT)
        lines = (
            "GET %s HTTP/1.1" % self.path, "Host: %s:%d" % (HOST, server.port), "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: %s" % base64.b64encode(os.urandom(16)).decode(), "", "",
        )  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 16) or b"\r\n\r\n"
        if not head.startswith(b"HTTP/1.1 101"):
            raise WrongAnswer("server %s opens no web socket: %.60r" % (server.name, head))
        return connection


#: by name, what takes next to nothing
TRIVIAL = {
    page.name: page
    for page in (
        Page("hello", "/hello", handlers_app.GREETING),
        Page("hello, not kept alive", "/hello", handlers_app.GREETING, keep_alive=False),
        Page("json", "/json", None),
        Page("static", "/static/" + Path(handlers_app.__file__).name, Path(handlers_app.__file__).read_text()),
        Page("redirect", "/redirect", None, status=302),
        Page("missing", "/missing", None, status=404),
        Page("form", "/form", "Ada is 36", form="name=Ada&age=36"),
        Echo("echo", "/echo", None),
        Page("aiohttp", "/0", None, app="aiohttp_app"),
        Page("starlette", "/0", None, app="starlette_app"),
        Page("fastapi", "/0", None, app="fastapi_app"),
    )
}
COMPUTING = ("primes", *handlers_app.PROGRAMS)


def computing(names, milliseconds):
    """The pages of that names, each as long as each of `milliseconds` on this interpreter, which is measured."""
    found = []
    for length in milliseconds:
        for name in names:
            if name == "primes":
                size = request_size(length / 1000)
                found.append(Page(name, "/primes/%d" % size, str(sum(sieve(size))), length))
            elif name in handlers_app.PROGRAMS:
                program = handlers_app.PROGRAMS[name]
                count = rounds(program, length / 1000)
                found.append(Page(name, "/%s/%d" % (name, count), str(program.run(count)), length))
    return found
