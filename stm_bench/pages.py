"""What the handlers benchmark asks servers for: pages that compute for a while, and requests that take next to nothing."""

import json
from dataclasses import dataclass
from pathlib import Path

from stm_bench import siege
from stm_bench.apps import handlers_app
from stm_bench.calibrate import request_size, rounds
from stm_bench.errors import WrongAnswer
from stm_bench.primes_client import sieve
from stm_bench.workloads import client


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

    MESSAGE = "What is sent comes back."

    def check(self, server):
        connection = client.Connection(server)
        with connection.socket:
            self.begin(connection)
            connection.socket.sendall(self.ask(connection))
            while not self.take(connection):
                connection.receive()

    def load(self, server, clients, seconds):
        found = client.ask_on([server], clients, seconds, self.ask, self.take, self.begin)
        return found.rate, len(found.waits)

    def begin(self, connection):
        client.open_web_socket(connection, self.path)

    def ask(self, connection):
        return client.frame(self.MESSAGE)

    def take(self, connection):
        expected = bytes((0x81, len(self.MESSAGE))) + self.MESSAGE.encode()
        if not expected.startswith(connection.received):
            raise WrongAnswer("server %s sent %.60r back" % (connection.server.name, connection.received))
        if connection.received != expected:
            return False
        connection.received = b""
        return True


#: by name, what takes next to nothing
TRIVIAL = {
    page.name: page
    for page in (
        Page("hello", "/hello", handlers_app.GREETING),
        Page("hello, not kept alive", "/hello", handlers_app.GREETING, keep_alive=False),
        Page("json", "/json", json.dumps({"records": handlers_app.RECORDS})),
        Page("static", "/static/" + Path(handlers_app.__file__).name, Path(handlers_app.__file__).read_text()),
        Page("redirect", "/redirect", "", status=302),
        Page("missing", "/missing", "<html><title>404: Not Found</title><body>404: Not Found</body></html>", status=404),
        Page("form", "/form", "Ada is 36", form="name=Ada&age=36"),
        Echo("echo", "/echo", None),
        Page("aiohttp", "/0", '{"primes": []}', app="aiohttp_app"),
        Page("starlette", "/0", '{"primes":[]}', app="starlette_app"),
        Page("fastapi", "/0", '{"primes":[]}', app="fastapi_app"),
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
