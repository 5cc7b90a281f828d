"""The fresh benchmark: how a server does that has just been started, and how much memory it takes when many are connected.

Each server, tornado.stm on each number of threads and upstream Tornado, is started anew in each round, in turns: how soon it
answers for the first time, how long each of its first requests takes, and how large it is then, with no connection and with
thousands that have been answered once and are kept.  A figure is the median of the rounds.
"""

import resource
import selectors
import socket
import statistics
import sys
import time

from stm_bench import engine_report, machine
from stm_bench.apps import handlers_app
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import positive
from stm_bench.progress import Runs
from stm_bench.servers import ANSWER_TIMEOUT, HOST, Server

SUMMARY = "A server that has just been started: its first answers, and its memory while many are connected."

FIRST = 1000  # requests after the first, whose slowest hundredth is told
CLIENTS = 8  # that ask for them
BEGIN, P99, MEMORY = 1.2, 2.0, 1.3  # at most, to upstream's
SPARE_DESCRIPTORS = 100  # of a process beside those of the connections
REQUEST = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"


def add_arguments(parser):
    parser.add_argument("--connections", type=positive, default=10_000, metavar="N", help="that are kept (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument(
        "--threads", type=machine.thread_counts, default=[1, 2], metavar="N,N...", help="for tornado.stm (default: 1,2)"
    )
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Starts the servers in turns and prints the table; returns the exit status."""
    allow_descriptors(options.connections + SPARE_DESCRIPTORS)
    command = [sys.executable, "-m", "stm_bench.app_server", "handlers_app"]
    commands = {"upstream": command}
    commands |= {"-j %d" % count: [*command, "--threads", str(count)] for count in options.threads}
    found = {name: [] for name in commands}
    with Runs(options.repeats * len(commands)) as shown:
        for round_number in range(1, options.repeats + 1):
            for name, command in commands.items():
                shown.starting(name)
                figures = measure(name, command, options.connections)
                found[name].append(figures)
                shown.done("round %d: %s: first answer %.2f s" % (round_number, name, figures["begin"]))
    section = table(found, options)
    console = engine_report.console()
    engine_report.show(section, console)
    engine_report.write([section], machine.describe(), options.json)
    return 0


def allow_descriptors(count):
    """Let this process and its children have so many open files.  Raises BenchmarkError where that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchmarkError("at most %d open files are allowed here: use fewer --connections, or ulimit -Hn" % hard)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def measure(name, command, connections):
    """What a server that is started now shows: seconds, and bytes."""
    with Server(name, command) as server, server.answering():
        if server.ask("/hello") != handlers_app.GREETING:
            raise WrongAnswer("server %s greets in another way" % name)
        begin = time.monotonic() - server.started
        times = first_requests(server)
        alone = server.resident_bytes()
        kept = [connect(server) for _ in range(connections)]
        try:
            for connection in kept:
                ask(server, connection)
            crowded = server.resident_bytes()
            for connection in kept[:: max(1, connections // 100)]:
                ask(server, connection)  # they have been kept, indeed
        finally:
            for connection in kept:
                connection.close()
        server.stop()
    return {
        "begin": begin, "median": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "alone": alone, "crowded": crowded,
        "each": (crowded - alone) / connections,
    }  # fmt: skip


def connect(server):
    return socket.create_connection((HOST, server.port), ANSWER_TIMEOUT)


def ask(server, connection):
    """Sends a request and waits for its answer."""
    connection.sendall(REQUEST)
    received = b""
    while not is_answer(server, received):
        more = connection.recv(1 << 16)
        if not more:
            raise WrongAnswer("server %s ended a connection" % server.name)
        received += more


def is_answer(server, received):
    """Is this the whole answer?  Raises WrongAnswer where it cannot become one."""
    head, end, body = received.partition(b"\r\n\r\n")
    if not (b"HTTP/1.1 200 ".startswith(head[:13]) and handlers_app.GREETING.encode().startswith(body)):
        raise WrongAnswer("server %s answered %.60r" % (server.name, received))
    return bool(end) and len(body) == len(handlers_app.GREETING)


def first_requests(server):
    """The seconds that each of the first requests took, in order of length, asked for by some clients at once."""
    times, asked = [], 0
    with selectors.DefaultSelector() as selector:
        for _ in range(CLIENTS):
            key = selector.register(connect(server), selectors.EVENT_READ, {"received": b""})
            key.data["began"] = time.perf_counter()
            key.fileobj.sendall(REQUEST)
            asked += 1
        while len(times) < FIRST:
            ready = selector.select(ANSWER_TIMEOUT)
            if not ready:
                raise WrongAnswer("server %s does not answer" % server.name)
            for key, _ in ready:
                more = key.fileobj.recv(1 << 16)
                if not more:
                    raise WrongAnswer("server %s ended a connection" % server.name)
                key.data["received"] += more
                if is_answer(server, key.data["received"]):
                    now = time.perf_counter()
                    times.append(now - key.data["began"])
                    key.data.update(received=b"", began=now)
                    if asked < FIRST:
                        key.fileobj.sendall(REQUEST)
                        asked += 1
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    return sorted(times)


def table(found, options):
    def median(name, what):
        return statistics.median(figures[what] for figures in found[name])

    def row(heading, what, form, scale, bound=None):
        cells = {"name": heading, "upstream": form % (median("upstream", what) * scale)}
        ratios = {}
        for name in found:
            if name != "upstream":
                cells[name] = form % (median(name, what) * scale)
                ratios[name] = statistics.median(
                    figures[what] / other[what] for figures, other in zip(found[name], found["upstream"])
                )
        cells["figure"] = max(ratios.values())
        return {**cells, "target": Target(bound) if bound else None, "ratios": ratios}

    rows = [
        row("first answer after the start", "begin", "%.2f s", 1, BEGIN),
        row("first %d requests, median" % FIRST, "median", "%.1f ms", 1e3),
        row("first %d requests, p99" % FIRST, "p99", "%.1f ms", 1e3, P99),
        row("memory after them", "alone", "%.1f MB", 1e-6),
        row("memory with %d connections" % options.connections, "crowded", "%.1f MB", 1e-6, MEMORY),
        row("a connection", "each", "%.1f kB", 1e-3),
    ]
    columns = [Column("", "name")] + [Column(name, name) for name in found]
    columns += [Column("to upstream", "figure", "%.2f"), Column("target", "target")]
    return Section(
        "fresh",
        "a server just started, %d clients, median of %d rounds" % (CLIENTS, options.repeats),
        columns,
        rows,
        ["to upstream: the largest ratio.  memory: resident."],
    )
