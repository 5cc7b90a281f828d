"""The apps benchmark: do handlers that compute scale behind TLS, web sockets that broadcast, other frameworks, a database?

Each application runs on upstream's loop and on tornado.stm with 1, 2... threads, in turns, each turn in a process of its
own: start, warm-up, load, stop.  The clients are aiohttp's, in this process, on connections that they keep; every answer
is checked.
"""

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import trustme
from rich.console import Console

from stm_bench import engine_report, primes_load
from stm_bench.calibrate import request_size
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import WrongAnswer
from stm_bench.primes import positive
from stm_bench.progress import Runs
from stm_bench.servers import HOST, Server

SUMMARY = "CPU-heavy handlers behind HTTPS, web sockets, other frameworks and a database: how they scale."

SCALES = 1.7  # what two threads should answer, to one
REQUEST_SECONDS = 0.03  # CPU time of one request
WARM_UP_SIZE, WARM_UP_EACH = 50, 40  # small requests, enough for all code to be specialized
ANSWER_TIMEOUT = 60  # seconds until a server is taken to hang
WIDTH_IN_A_FILE = 120  # columns, where the table is not printed on a terminal


# The load


class Load:
    """Clients that each ask again as soon as they are answered.

    Args:
        server: a running Server.
        size: they ask for the primes up to this.
        clients: how many.
        trust: an ssl.SSLContext, or None for plain connections.
    """

    def __init__(self, server, size, clients, trust=None):
        self.server, self.size, self.clients, self.trust = server, size, clients, trust
        self.expected = primes_load.sieve(size)
        self.answered = 0

    def run(self, seconds=None, each=None):
        """Ask for so many seconds, or so often each; returns the answers per second."""
        return asyncio.run(asyncio.wait_for(self.load(seconds, each), (seconds or 0) + ANSWER_TIMEOUT))

    async def load(self, seconds, each):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            clients = await self.connect(session)
            self.answered, self.each = 0, each
            start = time.monotonic()
            self.end = start + seconds if seconds else float("inf")
            await asyncio.gather(*map(self.ask_on, clients))
            return self.answered / (seconds or time.monotonic() - start)

    async def ask_on(self, client):
        asked = 0
        while asked != self.each and time.monotonic() < self.end:
            asked += 1
            await self.ask(client)
            self.answered += time.monotonic() < self.end  # what is answered later belongs to no second of the load

    def check(self, answer, expected):
        if answer != expected:
            raise WrongAnswer("server %s answered wrongly" % self.server.name)


class Requests(Load):
    """GET requests over HTTP, or HTTPS."""

    async def connect(self, session):
        return [session] * self.clients

    async def ask(self, session):
        url = "%s://%s:%d/%d" % ("https" if self.trust else "http", HOST, self.server.port, self.size)
        async with session.get(url, ssl=self.trust or True) as response:
            self.check((response.status, await response.json()), (200, {"primes": self.expected}))


class Room(Load):
    """Messages over web sockets, about each of which everybody in the room is told."""

    async def connect(self, session):
        self.members = {}  # web socket -> how many messages it has been told of
        self.sent = 0
        for _ in range(self.clients):
            self.members[await session.ws_connect("ws://%s:%d/room" % (HOST, self.server.port))] = 0
        return list(self.members)

    async def ask_on(self, member):
        await super().ask_on(member)
        # Others may not be done yet.  Nobody may miss anything.
        while self.members[member] < self.sent:
            await self.receive(member)

    async def ask(self, member):
        self.sent += 1
        await member.send_str(str(self.size))
        while await self.receive(member) != "primes":
            pass

    async def receive(self, member):
        kind, _, what = (await member.receive_str()).partition(" ")
        self.check(what, "%d: %d" % (self.size, len(self.expected)))
        self.members[member] += 1
        return kind


# What is measured


@dataclass(frozen=True)
class Kind:
    title: str
    app: str  # a module of stm_bench.apps
    load: Callable
    tls: bool = False


KINDS = {
    "http": Kind("Tornado, HTTP", "tornado_app", Requests),
    "https": Kind("Tornado, HTTPS", "tornado_app", Requests, tls=True),
    "websocket": Kind("Tornado, web sockets with broadcast", "tornado_app", Room),
    "aiohttp": Kind("aiohttp, HTTP", "aiohttp_app", Requests),
    "starlette": Kind("Starlette under uvicorn, HTTP", "starlette_app", Requests),
    "fastapi": Kind("FastAPI with pydantic, HTTP", "fastapi_app", Requests),
    "flask": Kind("Flask in WSGIContainer, HTTP", "flask_app", Requests),
    "django": Kind("Django (ASGI) under uvicorn, HTTP", "django_app", Requests),
    "sqlite": Kind("Tornado with sqlite3, HTTP", "sqlite_app", Requests),
}


def add_arguments(parser):
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, metavar="APP", help="of: %s (default: all)" % ", ".join(KINDS)
    )
    parser.add_argument("--time", type=positive, default=5, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="loads of each (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=primes_load.thread_counts,
        metavar="N,N...",
        help="for tornado.stm (default: 1,2,4... up to the usable CPUs)",
    )
    parser.add_argument("--concurrency", type=positive, default=12, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument(
        "--size",
        type=primes_load.size,
        metavar="N",
        help="ask for the primes up to N (default: what takes about %d ms here)" % (REQUEST_SECONDS * 1000),
    )
    parser.add_argument(
        "--exclusive", action="store_true", help="list what ran exclusively on the most threads, and where"
    )
    parser.add_argument("--json", type=primes_load.output_file, metavar="FILE", help="write all figures to FILE")
    parser.add_argument(
        "--rst", type=primes_load.output_file, metavar="FILE.rst", help="write the table as reStructuredText"
    )
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the loads and prints their table; returns the exit status."""
    threads = options.threads or primes_load.default_threads(primes_load.usable_cpus())
    kinds = options.only or list(KINDS)
    size = options.size or request_size(REQUEST_SECONDS)
    runs = {}  # (kind, threads or None for upstream) -> [(rate, stats)]
    hows = [None, *threads]
    turns = options.repeats * len(kinds) * len(hows)
    with tempfile.TemporaryDirectory(prefix="stm_bench-") as folder, Runs(turns) as shown:
        certificate = Certificate(folder)
        for _ in range(options.repeats):
            for kind in kinds:
                for how in hows:
                    name = "%s, %s" % (kind, "upstream" if how is None else "-j %d" % how)
                    shown.starting(name)
                    run = take_turn(KINDS[kind], how, name, size, options, certificate)
                    runs.setdefault((kind, how), []).append(run)
                    shown.done("%s: %.1f/s" % (name, run[0]))
    section = table(kinds, threads, runs, size, options)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    engine_report.show(section, console)
    engine_report.write([section], primes_load.describe_machine(), options.json, options.rst)
    return 0


class Certificate:
    """A certificate for this host, self-signed, and what makes clients trust it."""

    def __init__(self, folder):
        self.path = str(Path(folder, "server.pem"))
        authority = trustme.CA()
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(self.path)
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)


def take_turn(kind, threads, name, size, options, certificate):
    """Starts a server, loads it and stops it; returns (answers per second, what its engine has counted)."""
    command = [sys.executable, "-m", "stm_bench.app_server", kind.app]
    if threads is not None:
        command += ["--threads", str(threads)]
    if kind.tls:
        command += ["--certificate", certificate.path]
    trust = certificate.trust if kind.tls else None
    with Server(name, command) as server:
        try:
            kind.load(server, WARM_UP_SIZE, options.concurrency, trust).run(each=WARM_UP_EACH)
            kind.load(server, size, options.concurrency, trust).run(each=1)
            rate = kind.load(server, size, options.concurrency, trust).run(seconds=options.time)
        except (aiohttp.ClientError, OSError, TypeError, TimeoutError) as error:
            server.check_alive()
            raise WrongAnswer("server %s did not answer: %r" % (name, error)) from None
        return rate, server.stop()


def table(kinds, threads, runs, size, options):
    def rate(kind, how):
        return statistics.median(rate for rate, _ in runs[kind, how])

    most = max(threads)
    scaling = 1 in threads and most > 1
    rows = []
    for kind in kinds:
        stats = [stats for _, stats in runs[kind, most]]
        commits, aborts = (sum(each[what] for each in stats) for what in ("commits", "aborts"))
        row = {
            "name": KINDS[kind].title,
            "upstream": rate(kind, None),
            **{"threads%d" % count: rate(kind, count) for count in threads},
            "aborted": 100 * aborts / (commits + aborts),
            "exclusive": 100 * sum(each["exclusives"] for each in stats) / (commits + aborts),
        }
        if scaling:
            ratios = [many / one for (many, _), (one, _) in zip(runs[kind, most], runs[kind, 1])]
            row["figure"] = statistics.median(ratios)
            row["range"] = "%.2f-%.2f" % (min(ratios), max(ratios))
            row["target"] = Target(SCALES, at_least=True) if most == 2 else None
        rows.append(row)
    columns = [Column("application", "name"), Column("upstream", "upstream", "%.1f")]
    columns += [Column("%d thread%s" % (count, "s" * (count > 1)), "threads%d" % count, "%.1f") for count in threads]
    if scaling:
        columns += [Column("%d to 1" % most, "figure", "%.2f"), Column("range", "range"), Column("target", "target")]
    columns += [Column("aborted", "aborted", "%.1f %%"), Column("exclusive", "exclusive", "%.1f %%")]
    notes = []
    if options.exclusive:
        notes = [note for kind in kinds for note in exclusive_reasons(kind, runs[kind, most][-1][1])]
    return Section(
        "apps",
        "answers/s: the primes up to %d, %d clients, median of %d x %d s"
        % (size, options.concurrency, options.repeats, options.time),
        columns,
        rows,
        [
            "upstream: the same application on asyncio's own loop, same interpreter.  aborted, exclusive: share of all",
            "attempts on the most threads, the start and the warm-up included.",
        ],
        notes,
    )


def exclusive_reasons(kind, stats):
    """The most frequent ones, as lines."""
    reasons = sorted(stats["exclusive_reasons"].items(), key=lambda item: -item[1])
    return ["%s: %d x %s" % (kind, count, reason) for reason, count in reasons[:10]]
