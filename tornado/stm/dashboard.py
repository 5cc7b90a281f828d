"""What transactions do, live: a page of the last minute, and metrics for Prometheus::

    from tornado.stm import dashboard

    dashboard.add(application)              # a tornado.web.Application: /stm and /stm/metrics
    app = dashboard.wrap(app)               # any ASGI application: likewise
    dashboard.serve(8899)                   # any other program: http://127.0.0.1:8899/stm

The page is that of ``python -m tornado.stm.log --html``, and follows the run.  It is made of the conflict log by a process of its
own; where no log is open (`conflictlog`), one is begun in a temporary folder, and is removed at the end.

Whoever is not on this machine is refused, and who says that it comes through a proxy, or asks by another name than this machine's
own, unless the page is declared to be public.  It shows source code: where a proxy on this machine says nothing of its clients, let it
not pass the path on.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import email.message
import http.server
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import tornado.httputil
import tornado.web

from . import conflictlog, core, forks, log
from .core import once, trusted

__all__ = ["add", "serve", "wrap"]

#: an ASGI application: of scope, receive and send, which each library has types of its own for
ASGI = Callable[[Any, Any, Any], Awaitable[None]]

#: seconds of the run that the page shows, and after which it asks anew
SHOWN, EVERY = 60, 5
#: seconds within which nothing is asked of the log twice, and which that may take
KEPT, LONGEST = 2, 100
#: bytes of a log that only the dashboard wants
LIMIT = 64 << 20

ANALYSE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("print_stm_log", sys.argv[1])
log = importlib.util.module_from_spec(spec)
spec.loader.exec_module(log)
known, data = None, None
try:
    accounts = log.analyse(sys.argv[2], begin=int(sys.argv[3]), with_lanes=True, known=json.loads(sys.argv[4]))
    known, data = accounts.known, log.page_data(accounts)
except (log.LogError, OSError) as e:
    data = {"error": "the log %s" % e}
print(json.dumps(known), json.dumps(data), sep="\\n")
"""
REFUSED = "the dashboard is for clients on this machine: see tornado.stm.dashboard\n"


# ---- What is shown -----------------------------------------------------------------------------------------------------


@trusted
@once
def _begin() -> None:
    """See to it that there is a log."""
    if conflictlog.path() is None:
        folder = tempfile.mkdtemp(prefix="stm-dashboard-")
        atexit.register(_remove, folder, os.getpid())
        conflictlog.start(os.path.join(folder, "stm.log"), LIMIT)


@trusted
def _remove(folder: str, process: int) -> None:
    """At the end of the process that has made it, not of its children."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class _Latest:
    """The data of the page: made once for all that ask at about the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        forks.free(self._lock)
        self._made: float | None = None
        self._process: int | None = None
        self._data = b"{}"
        self._known = b"null"  # where in the log what counts began the last time

    @trusted
    def get(self) -> bytes:
        """JSON; blocks while it is made.  Where there is nothing to tell: why not, as ``error``."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made > KEPT or self._process != os.getpid():
                self._data = self._make()
                self._made, self._process = time.monotonic(), os.getpid()
            return self._data

    def _make(self) -> bytes:
        path = conflictlog.path()
        if path is None:
            return _error("there is no log: it has been ended")
        begin = str(time.monotonic_ns() - SHOWN * 10**9)
        command = [sys.executable, "-P", "-c", ANALYSE, log.__file__, path, begin, self._known.decode()]
        for _ in range(3):  # while a file takes the place of another, the log may not be there
            try:
                done = subprocess.run(command, capture_output=True, timeout=LONGEST)
            except subprocess.TimeoutExpired:
                return _error(f"the log is too long to be read in {LONGEST} seconds")
            known, _, data = done.stdout.strip().partition(b"\n")
            if done.returncode == 0 and not data.startswith(b'{"error": "the log [Errno 2]'):
                self._known = known if known != b"null" else self._known
                return data
        return data or _error(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])


def _error(text: str) -> bytes:
    return json.dumps({"error": text}).encode()


_latest = _Latest()

#: what makes data: not the program's own executor, which has other things to do
_executor: concurrent.futures.ThreadPoolExecutor


def _begin_anew() -> None:
    global _executor
    _executor = concurrent.futures.ThreadPoolExecutor(2, "stm-dashboard")


_begin_anew()
forks.begin_by(_begin_anew)


@trusted
def page() -> str:
    """The page, which asks for its data itself (text)."""
    return log.live_page(EVERY)


@trusted
def metrics() -> bytes:
    """All counts since the start of the process, in Prometheus' text format (bytes).

    Raises:
        ImportError: there is no ``prometheus_client``.
    """
    import prometheus_client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            stats = core.stats()
            for name, key, text in (
                ("committed", "commits", "transactions that have committed"), ("rolled_back", "aborts", "attempts that were rolled back"),
                ("exclusive", "exclusives", "transactions that have run alone"),
            ):  # fmt: skip
                yield CounterMetricFamily(f"stm_transactions_{name}", text, stats.get(key, 0))
            alone = CounterMetricFamily("stm_exclusive_seconds", "time that transactions have run alone, by reason and place", labels=["reason"])
            for reason, seconds in stats.get("exclusive_seconds", {}).items():
                alone.add_metric([reason], seconds)
            yield alone
            yield GaugeMetricFamily("stm_transactions_running", "transactions that run now", len(core.running()))
            yield from self.losses()

        def losses(self) -> Iterable[Any]:
            families = [
                CounterMetricFamily(f"stm_{name}", f"{text}, by place", labels=["place", "handler"])
                for name, text in (
                    ("conflicts", "conflicts"), ("waited_seconds", "time that threads have waited in conflicts"),
                    ("lost_seconds", "time of attempts that were rolled back"),
                    ("inevitable_seconds", "time of transactions once they were inevitable"),
                )
            ]  # fmt: skip
            sums: dict[tuple[str, ...], list[float]] = {}
            for place, caller, handler, *values in core.log_losses():
                labels = tuple(text.decode("utf-8", "replace") for text in (caller or place, handler))
                sums[labels] = [a + b for a, b in zip(sums.get(labels, [0] * len(values)), values)]
            for labels, values in sorted(sums.items()):
                for family, value in zip(families, values):
                    family.add_metric(labels, value)
            return families

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    return prometheus_client.generate_latest(registry)


@trusted
def answer(path: str) -> tuple[int, str, bytes]:
    """What is under a path of the dashboard, relative to it: (status, content type, bytes)."""
    if path in ("", "/"):
        return 200, "text/html; charset=utf-8", page().encode()
    if path == "/data":
        return 200, "application/json", _latest.get()
    if path == "/metrics":
        try:
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics()
        except ImportError:
            return 501, "text/plain; charset=utf-8", b"install prometheus_client: it writes this format\n"
    return 404, "text/plain; charset=utf-8", b"the dashboard has /, /data and /metrics\n"


def _is_refused(client: str, headers: Mapping[str, str] | email.message.Message) -> bool:
    """Is this client, by its address, not on this machine?

    One behind a proxy is somewhere else; and a page of another site, whose name leads here, asks for that name.
    """
    if any(name in headers for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Via")):
        return True
    host = headers.get("Host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not (_is_loopback(client) and (name.lower() == "localhost" or _is_loopback(name)))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


# ---- Where it is shown ----------------------------------------------------------------------------------------------------


class _Handler(tornado.web.RequestHandler):
    def initialize(self, public: bool) -> None:
        self.public = public

    async def get(self, path: str) -> None:
        context = self.request.connection.context  # type: ignore[union-attr]  # an HTTP1Connection
        if not self.public and _is_refused(context.remote_ip, self.request.headers):
            self.set_status(403)
            self.finish(REFUSED)
            return
        status, kind, body = await asyncio.get_running_loop().run_in_executor(_executor, answer, path)
        self.set_status(status)
        self.set_header("Content-Type", kind)
        self.set_header("Cache-Control", "no-store")
        self.finish(body)


def add(application: tornado.web.Application, path: str = "/stm", public: bool = False) -> None:
    """Add the dashboard to a Tornado application.

    Args:
        application: a ``tornado.web.Application``.
        path: where the page is; metrics are under ``path/metrics``.
        public: clients on other machines may see it, too.

    Raises:
        ValueError: the path is no path of a page.
    """
    _check(path, 2)
    _begin()
    application.add_handlers(".*", [(rf"{re.escape(path.rstrip('/'))}(/.*|)", _Handler, {"public": public})])


def wrap(app: ASGI, path: str = "/stm", public: bool = False) -> ASGI:
    """An ASGI application that has the dashboard, too, and hands all else on.

    Args:
        app: an ASGI application.
        path, public: as for `add`.

    Raises:
        ValueError: the path is no path of a page.
    """
    _check(path, 2)
    _begin()
    path = path.rstrip("/")

    async def with_dashboard(scope: Any, receive: Any, send: Any) -> None:
        asked = scope.get("path", "")
        if scope["type"] != "http" or not (asked == path or asked.startswith(f"{path}/")):
            await app(scope, receive, send)
            return
        pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        given = tornado.httputil.HTTPHeaders(pairs)  # type: ignore[call-overload]  # it takes what a dict takes
        if not public and _is_refused((scope.get("client") or [""])[0], given):
            status, kind, body = 403, "text/plain; charset=utf-8", REFUSED.encode()
        else:
            status, kind, body = await asyncio.get_running_loop().run_in_executor(_executor, answer, asked[len(path) :])
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return with_dashboard


class _Server(http.server.BaseHTTPRequestHandler):
    path_of_page = ""
    public = False

    @trusted
    def do_GET(self) -> None:
        asked, prefix = self.path.partition("?")[0], self.path_of_page
        if not self.public and _is_refused(self.client_address[0], self.headers):
            status, kind, body = 403, "text/plain; charset=utf-8", REFUSED.encode()
        elif asked == prefix or asked.startswith(f"{prefix}/"):
            status, kind, body = answer(asked[len(prefix) :])
        else:
            status, kind, body = 404, "text/plain; charset=utf-8", f"the dashboard is at {prefix or '/'}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    @trusted
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not told of."""


@trusted
def serve(port: int, address: str = "127.0.0.1", path: str = "/stm", public: bool = False) -> int:
    """Serve the dashboard on a port of its own, by a thread beside the program.

    Args:
        port: a number, 0 for any that is free.
        address: of the interface.
        path, public: as for `add`.

    Returns:
        The port.

    Raises:
        OSError: the port cannot be had.
        ValueError: the path does not begin with a slash, or no port has that number.
    """
    _check(path, 1)
    if not 0 <= port <= 65535:
        raise ValueError(f"the port of the dashboard must be a number from 0 to 65535: {port}")
    _begin()
    handler = type("Server", (_Server,), {"path_of_page": path.rstrip("/"), "public": public})
    server = http.server.ThreadingHTTPServer((address, port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="stm-dashboard", daemon=True).start()
    return server.server_port


def _check(path: str, least: int) -> None:
    if not path.startswith("/") or len(path) < least:
        raise ValueError(f"the path of the dashboard must begin with a slash, and of an application's not be all: {path!r}")
