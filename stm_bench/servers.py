"""Interpreters, and the server processes that run on them."""

import contextlib
import functools
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from stm_bench.errors import BenchmarkError, WrongAnswer

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
ANSWER_TIMEOUT = 120  # seconds until a single request must be answered
START_TIMEOUT = 20  # seconds until a server must accept connections
POLL = 0.01  # seconds between two looks whether it accepts connections
STOP_TIMEOUT = 30  # seconds until a server must have ended after SIGTERM; it may answer what has arrived first

PROBE = """\
import json, platform, sys, sysconfig, tornado
print(json.dumps({
    "implementation": platform.python_implementation(),
    "version": platform.python_version(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "tornado": tornado.version,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that has Tornado.  `python` is its executable."""

    python: str
    implementation: str
    version: str
    free_threaded: bool
    tornado: str

    def __str__(self):
        return "%s %s%s" % (self.implementation, self.version, "t" if self.free_threaded else "")


def probe(python):
    """The Interpreter whose executable is `python`.  Raises BenchmarkError where it does not run or lacks Tornado."""
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError("%s does not run: %s" % (python, error)) from None
    if done.returncode != 0:
        raise BenchmarkError("%s has no usable Tornado: %s" % (python, last_lines(done.stderr, 1)))
    return Interpreter(python=python, **json.loads(done.stdout))


def require(interpreter, module):
    """Raises BenchmarkError where `interpreter` cannot import `module`."""
    done = subprocess.run([interpreter.python, "-c", "import " + module], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise BenchmarkError("%s cannot import %s: %s" % (interpreter, module, last_lines(done.stderr, 1)))


@functools.cache
def lacks(python, module):
    """Can the interpreter whose executable is `python` not import `module`?"""
    return subprocess.run([python, "-c", "import " + module], capture_output=True, timeout=60).returncode != 0


#: of the servers: what they import has been compiled, as what pip has installed is, whatever this process is told
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Server:
    """A server process on a free port: a context manager within which the server accepts connections.

    `command` is run with ``--port PORT --stats FILE`` added; `name` is what messages call it.  However the context is
    left, the process has ended after it.  Entering raises BenchmarkError where the server ends or does not accept
    connections within START_TIMEOUT.
    """

    def __init__(self, name, command):
        self.name = name
        self.command = command
        self.port = None  # within the context
        self.process = None
        self.started = None  # when, by time.monotonic()
        self.folder = None
        self.held = contextlib.ExitStack()  # the port and the folder

    def __enter__(self):
        self.folder = self.held.enter_context(tempfile.TemporaryDirectory(prefix="stm_bench-"))
        self.port = self.held.enter_context(reserved_port())
        try:
            with open(self.path("stderr"), "wb") as stderr:
                self.started = time.monotonic()
                self.process = subprocess.Popen(
                    self.command + ["--port", str(self.port), "--stats", self.path("stats")],
                    cwd=ROOT,
                    env=ENVIRONMENT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                )
            self.wait_until_serving()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.held.close()

    def wait_until_serving(self):
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(POLL)
        raise self.error("does not accept connections after %d s" % START_TIMEOUT)

    def check_alive(self):
        """Raises BenchmarkError where the process has ended."""
        if self.process.poll() is not None:
            raise self.error("ended with status %d" % self.process.returncode)

    @contextlib.contextmanager
    def answering(self):
        """Raises WrongAnswer where a connection to it fails within; BenchmarkError if what goes wrong within does because it has ended."""
        try:
            yield
        except (OSError, WrongAnswer) as error:
            self.check_alive()
            raise error if isinstance(error, WrongAnswer) else WrongAnswer("server %s did not answer: %s" % (self.name, error)) from None

    def url(self, path):
        return "http://%s:%d%s" % (HOST, self.port, path)

    def ask(self, path):
        """The text that it answers.  Raises WrongAnswer where it does not, or not with status 200."""
        status, text = self.answer(path)
        if status != 200:
            raise WrongAnswer("server %s did not answer GET %s: status %d" % (self.name, path, status))
        return text

    def answer(self, path, form=None):
        """The status of what it answers, and the text; to a POST of the form, if there is one.  Redirections are not followed.

        Raises WrongAnswer where it does not answer.
        """
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_TIMEOUT)
        try:
            if form is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.check_alive()
            raise WrongAnswer("server %s did not answer a request for %s: %s" % (self.name, path, error)) from None
        finally:
            connection.close()

    def processor_seconds(self):
        """What the process has used of the processors until now, user and system (Linux)."""
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        """What of the process is in memory now (Linux)."""
        with open("/proc/%d/statm" % self.process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def count_anew(self):
        """What `stop` returns is to be counted from now on (``app_server.run``).  Raises BenchmarkError where the process has ended."""
        self.check_alive()
        self.process.send_signal(signal.SIGUSR1)

    def begin_log(self):
        """Have a workload's server on tornado.stm write its conflict log from now on.  Raises BenchmarkError where the process has ended.

        Returns:
            The file, which is complete when the server has been stopped.
        """
        self.check_alive()
        self.process.send_signal(signal.SIGUSR2)
        return self.path("log")

    def stop(self):
        """Ends the server with SIGTERM; returns the statistics that it wrote, a dict.

        Raises BenchmarkError where it had ended before, does not end, or ends with an error.
        """
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise self.error("has not ended %d s after SIGTERM" % STOP_TIMEOUT) from None
        if status != 0:
            raise self.error("ended with status %d after SIGTERM" % status)
        try:
            with open(self.path("stats")) as file:
                return json.load(file)
        except (OSError, ValueError):
            raise self.error("wrote no statistics") from None

    def path(self, name):
        return os.path.join(self.folder, name)

    def error(self, what):
        with open(self.path("stderr"), errors="replace") as file:
            stderr = last_lines(file.read(), 3)
        return BenchmarkError("server %s %s: %s" % (self.name, what, stderr or "it printed nothing on stderr"))


#: ends when the process that has started it does
ENDLESS_LOOP = """\
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


class EndlessLoops:
    """So many processes that compute all the time, but while they are paused: a context manager."""

    def __init__(self, count):
        self.count = count
        self.processes = []

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", ENDLESS_LOOP]) for _ in range(self.count)]
        return self

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
            process.wait()

    def pause(self, paused=True):
        """Has them stand still, or go on."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)


def last_lines(text, count):
    """The last `count` lines of `text` that are not blank, as one line."""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


@contextlib.contextmanager
def reserved_port():
    """Yields a port that the kernel gives to nobody else within; who asks for it by its number, with SO_REUSEADDR, can listen on it.

    Servers ask so.  A port that is only free now may be another process's before the server has asked for it.
    """
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as holding:
        if dual:
            holding.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("", 0))  # bound and not listening: two of such do not exclude each other
        yield holding.getsockname()[1]
