"""The apps benchmark: do handlers that compute scale behind TLS, web sockets that broadcast, other frameworks, databases?

Each application runs on upstream's loop and on tornado.stm with 1, 2... threads, in turns, each turn in a process of its
own: start, warm-up, load, stop.  The clients are aiohttp's, in this process, on connections that they keep; every answer
is checked.
"""

import asyncio
import contextlib
import importlib.metadata
import sqlite3
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

from stm_bench import database_servers, engine_report, machine
from stm_bench.calibrate import request_size
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import positive
from stm_bench.primes_client import sieve
from stm_bench.progress import Runs
from stm_bench.servers import HOST, Server

SUMMARY = "CPU-heavy handlers behind HTTPS, web sockets, other frameworks and databases: how they scale."

SCALES = 1.6  # what two threads should answer, to upstream
OFTEN = 0.5  # times a request: what runs alone so often is told
REQUEST_SECONDS = 0.01  # CPU time of one request: as docs/benchmarks.rst and the targets have it
WARM_UP_SIZE, WARM_UP_EACH = 50, 40  # small requests, enough for all code to be specialized
SETTLING_SECONDS = 1  # of the load, before any is measured: until it is known what takes long, and what is only read
ANSWER_TIMEOUT = 60  # seconds until a server is taken to hang


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
        self.expected = sieve(size)
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


@contextlib.contextmanager
def certificate():
    """Yields a self-signed certificate's file for this host, and what makes clients trust it."""
    authority, trust = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trust)
    with tempfile.TemporaryDirectory(prefix="stm_bench-") as folder:
        path = str(Path(folder, "server.pem"))
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(path)
        yield path, trust


@contextlib.contextmanager
def nothing():
    yield None, None


def database(driver, server=None):
    """What an application of that driver is given; `server` runs meanwhile."""

    @contextlib.contextmanager
    def given():
        with server() if server else contextlib.nullcontext("-") as url:
            yield "%s %s" % (driver, url), None

    return given


@dataclass(frozen=True)
class Kind:
    title: str
    app: str  # a module of stm_bench.apps
    load: Callable = Requests
    libraries: tuple = ()  # distributions whose releases are told
    given: Callable = nothing  # a context: what the application is given, and whom its clients trust
    target: float = SCALES  # what two threads should answer, to upstream

    def releases(self):
        """Of the libraries, for which `sqlite3` stands for SQLite itself.  Raises PackageNotFoundError."""
        return ", ".join(
            sqlite3.sqlite_version if name == "sqlite3" else importlib.metadata.version(name) for name in self.libraries
        )


postgresql, redis = database_servers.postgresql, database_servers.redis

KINDS = {
    "http": Kind("Tornado", "tornado_app", libraries=("tornado",)),
    "https": Kind("Tornado, HTTPS", "tornado_app", libraries=("tornado",), given=certificate),
    "websocket": Kind("Tornado, web sockets, broadcast", "tornado_app", Room, libraries=("tornado",)),
    "aiohttp": Kind("aiohttp", "aiohttp_app", libraries=("aiohttp",)),
    "starlette": Kind("Starlette, uvicorn", "starlette_app", libraries=("starlette", "uvicorn")),
    "fastapi": Kind("FastAPI, pydantic", "fastapi_app", libraries=("fastapi", "pydantic")),
    "flask": Kind("Flask in WSGIContainer", "flask_app", libraries=("flask",), target=1.3),
    "quart": Kind("Quart, uvicorn", "quart_app", libraries=("quart",)),
    "django": Kind("Django (ASGI), uvicorn", "django_app", libraries=("django",), target=1.3),
    "litestar": Kind("Litestar, uvicorn", "litestar_app", libraries=("litestar", "msgspec")),
    "sqlite": Kind("sqlite3", "database_app", libraries=("sqlite3",), given=database("sqlite"), target=1.2),
    "aiosqlite": Kind("aiosqlite", "database_app", libraries=("aiosqlite",), given=database("aiosqlite"), target=1.5),
    "asyncpg": Kind("asyncpg", "database_app", libraries=("asyncpg",), given=database("asyncpg", postgresql), target=1.5),
    "psycopg": Kind("psycopg, in Python", "database_app", libraries=("psycopg",), given=database("psycopg", postgresql), target=1.5),
    "sqlalchemy": Kind(
        "SQLAlchemy's ORM, asyncpg", "database_app", libraries=("sqlalchemy",), given=database("sqlalchemy", postgresql), target=1.5,
    ),  # fmt: skip
    "redis": Kind("redis-py", "database_app", libraries=("redis",), given=database("redis", redis), target=1.5),
}


def add_arguments(parser):
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, metavar="APP", help="of: %s (default: all)" % ", ".join(KINDS)
    )
    parser.add_argument("--time", type=positive, default=5, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="loads of each (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=machine.thread_counts,
        metavar="N,N...",
        help="for tornado.stm (default: 1,2,4... up to the usable CPUs)",
    )
    parser.add_argument("--concurrency", type=positive, default=12, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument(
        "--size",
        type=machine.size,
        metavar="N",
        help="ask for the primes up to N (default: what takes about %d ms here)" % (REQUEST_SECONDS * 1000),
    )
    parser.add_argument(
        "--exclusive", action="store_true", help="list what ran exclusively on the most threads, and where"
    )
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.add_argument(
        "--rst", type=machine.output_file, metavar="FILE.rst", help="write the table as reStructuredText"
    )
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the loads and prints their table; returns the exit status, 1 where something failed or was answered wrongly."""
    threads = options.threads or machine.default_threads(machine.usable_cpus())
    kinds = []
    for kind in options.only or KINDS:
        try:
            KINDS[kind].releases()
        except importlib.metadata.PackageNotFoundError as error:
            if options.only:
                raise BenchmarkError("%s is not installed" % error.name) from None
        else:
            kinds.append(kind)
    size = options.size or request_size(REQUEST_SECONDS)
    runs = {}  # (kind, threads or None for upstream) -> [(rate, stats)]
    failures = {}  # likewise -> what went wrong; it is not run again
    hows = [None, *threads]
    turns = options.repeats * len(kinds) * len(hows)
    missing = []
    with Runs(turns) as shown:
        for kind in list(kinds):
            try:
                with KINDS[kind].given() as (given, trust):
                    for _ in range(options.repeats):
                        for how in hows:
                            name = "%s, %s" % (kind, "upstream" if how is None else "-j %d" % how)
                            shown.starting(name)
                            if (kind, how) not in failures:
                                try:
                                    runs.setdefault((kind, how), []).append(take_turn(KINDS[kind], how, name, size, options, given, trust))
                                except BenchmarkError as error:
                                    failures[kind, how] = str(error)
                            shown.done("%s: %s" % (name, failures.get((kind, how)) or "%.1f/s" % runs[kind, how][-1][0]))
            except database_servers.Missing as error:
                if options.only:
                    raise
                missing.append("%s is left out: %s" % (kind, error))
                kinds.remove(kind)
            except BenchmarkError as error:  # of what is beside the application
                failures.update({(kind, how): str(error) for how in hows})
    section = table(kinds, threads, runs, failures, size, options)
    section.notes += missing
    console = engine_report.console()
    engine_report.show(section, console)
    engine_report.write([section], machine.describe(), options.json, options.rst)
    return 1 if failures else 0


def take_turn(kind, threads, name, size, options, given, trust):
    """Starts a server, loads it and stops it; returns (answers per second, what its engine has counted)."""
    command = [sys.executable, "-m", "stm_bench.app_server", kind.app]
    if threads is not None:
        command += ["--threads", str(threads)]
    if given is not None:
        command += ["--given", given]
    with Server(name, command) as server:
        try:
            kind.load(server, WARM_UP_SIZE, options.concurrency, trust).run(each=WARM_UP_EACH)
            kind.load(server, size, options.concurrency, trust).run(seconds=SETTLING_SECONDS)
            server.count_anew()
            rate = kind.load(server, size, options.concurrency, trust).run(seconds=options.time)
        except (aiohttp.ClientError, OSError, TypeError, ValueError, TimeoutError) as error:
            server.check_alive()
            raise WrongAnswer("server %s did not answer: %r" % (name, error)) from None
        return rate, server.stop()


def table(kinds, threads, runs, failures, size, options):
    def rate(kind, how):
        return engine_report.FAILED if (kind, how) in failures else statistics.median(rate for rate, _ in runs[kind, how])

    most = max(threads)
    rows = []
    for kind in kinds:
        row = {
            "name": KINDS[kind].title,
            "releases": KINDS[kind].releases(),
            "upstream": rate(kind, None),
            **{"threads%d" % count: rate(kind, count) for count in threads},
        }
        if (kind, most) not in failures:
            stats = [stats for _, stats in runs[kind, most]]
            commits, aborts = (sum(each[what] for each in stats) for what in ("commits", "aborts"))
            row["aborted"] = 100 * aborts / (commits + aborts)
            row["alone"] = often_alone(runs[kind, most][-1], options)
            if (kind, None) not in failures:
                ratios = [many / upstream for (many, _), (upstream, _) in zip(runs[kind, most], runs[kind, None])]
                row["figure"] = statistics.median(ratios)
                row["range"] = "%.2f-%.2f" % (min(ratios), max(ratios))
                row["target"] = Target(KINDS[kind].target, at_least=True) if most == 2 else None
        rows.append(row)
    columns = [Column("application", "name"), Column("releases", "releases"), Column("upstream", "upstream", "%.1f")]
    columns += [Column("%d thread%s" % (count, "s" * (count > 1)), "threads%d" % count, "%.1f") for count in threads]
    columns += [Column("%d to upstream" % most, "figure", "%.2f"), Column("range", "range"), Column("target", "target")]
    columns += [Column("aborted", "aborted", "%.1f %%"), Column("alone", "alone")]
    notes = []
    if options.exclusive:
        measured = [kind for kind in kinds if (kind, most) not in failures]
        notes = [note for kind in measured for note in exclusive_reasons(kind, runs[kind, most][-1][1])]
    notes += dict.fromkeys("%s failed: %s" % (kind, why) for (kind, _), why in failures.items())
    return Section(
        "apps",
        "answers/s: the primes up to %d, %d clients, median of %d x %d s"
        % (size, options.concurrency, options.repeats, options.time),
        columns,
        rows,
        [
            "upstream: the same application on asyncio's own loop, same interpreter.  aborted: share of all attempts on the most",
            "threads.  alone: what ran so in half of the requests or more.  The start and the warm-up are not in it.",
        ],
        notes,
    )


def often_alone(run, options):
    """What ran so again and again, without the places."""
    rate, stats = run
    requests = rate * options.time
    often = {reason.partition(": ")[0] for reason, count in stats["exclusive_reasons"].items() if count > OFTEN * requests}
    return ", ".join(sorted(often)) or "nothing"


def exclusive_reasons(kind, stats):
    """The most frequent ones, as lines."""
    reasons = sorted(stats["exclusive_reasons"].items(), key=lambda item: -item[1])
    return ["%s: %d x %s" % (kind, count, reason) for reason, count in reasons[:10] if count]
