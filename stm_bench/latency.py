"""The latency benchmark: how long a trivial request waits while every thread is busy with heavy ones.

siege keeps the primes server busy with requests of about 50 ms.  Meanwhile a few clients ask for the primes up to 2, a trivial
request of the same handler: half of them on one connection each, half on a new connection for each request.  Their times are
told in milliseconds and in *handlers*, the time that one heavy request takes on the idle server.  tornado.stm and upstream are
measured in turns, each in a process of its own.
"""

import http.client
import json
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field

from stm_bench import engine_report, machine, primes_client, siege
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import positive
from stm_bench.progress import Runs
from stm_bench.servers import ANSWER_TIMEOUT, HOST, Server, probe, require

SUMMARY = "Trivial requests beside heavy ones: how long they wait, on tornado.stm and on upstream Tornado."

PROBES = 4  # clients with trivial requests
PAUSE = 0.02  # seconds between an answer and the next request of a probe
TRIVIAL = "/2", {"primes": [2]}
ALONE = 10  # heavy requests, one after the other, that tell how long one takes
RAMP = 2  # seconds of load before the probes begin
ACCEPTED = 3  # handlers that the slowest of a hundred trivial requests may wait, on two threads


@dataclass
class Waits:
    """What one server showed: seconds that each trivial request took, of one heavy request alone; heavy ones a second."""

    name: str
    threads: int | None  # of tornado.stm
    handler: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    rates: list = field(default_factory=list)

    def percentile(self, per_cent):
        """The time in seconds within which so many per cent of the trivial requests were answered."""
        return engine_report.percentile(self.seconds, per_cent)


def add_arguments(parser):
    parser.add_argument("--time", type=positive, default=10, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument(
        "--threads", type=machine.thread_counts, default=[1, 2], metavar="N,N...", help="for tornado.stm (default: 1,2)"
    )
    parser.add_argument("--concurrency", type=positive, default=50, metavar="N", help="heavy clients (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=2, metavar="N", help="loads of each server (default: %(default)s)")
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the whole benchmark and prints its table; returns the exit status."""
    here = probe(sys.executable)
    require(here, "tornado.stm")
    size = primes_client.calibrated_size()
    servers = [Waits("upstream, %s" % here, None)]
    for count in options.threads:
        servers.append(Waits("tornado-stm, %d thread%s" % (count, "" if count == 1 else "s"), count))
    with Runs(options.repeats * len(servers)) as runs:
        for round_number in range(1, options.repeats + 1):
            for waits in servers:
                runs.starting(waits.name)
                take_turn(waits, size, options.concurrency, options.time)
                runs.done("round %d: %s: p99 %.0f ms" % (round_number, waits.name, 1000 * waits.percentile(99)))
    section = table(servers, size, options)
    engine_report.show(section, engine_report.console())
    engine_report.write([section], machine.describe(), options.json)
    return 0


def take_turn(waits, size, clients, seconds):
    """Loads one server and adds what was seen to its Waits.  Raises BenchmarkError where it fails."""
    with Server(waits.name, primes_client.command(waits.threads)) as process:
        siege.requests(process.url("/%d" % primes_client.WARM_UP_SIZE), primes_client.WARM_UP_CLIENTS, primes_client.WARM_UP_EACH)
        primes_client.check_answers(process, size)
        for _ in range(ALONE):
            began = time.perf_counter()
            primes_client.ask(process, size)
            waits.handler.append(time.perf_counter() - began)
        over = threading.Event()
        times, failures = [], []
        probes = [
            threading.Thread(target=ask_again_and_again, args=(process.port, n % 2 == 0, over, times, failures))
            for n in range(PROBES)
        ]
        begin = threading.Timer(RAMP, lambda: [thread.start() for thread in probes])
        begin.start()
        load = siege.load(process.url("/%d" % size), clients, RAMP + seconds)
        over.set()
        begin.join()
        for thread in probes:
            thread.join()
        process.check_alive()
        process.stop()
    if failures or load.failed:
        raise WrongAnswer("server %s: %s" % (waits.name, failures or "%d heavy requests failed" % load.failed))
    if not times:
        raise BenchmarkError("server %s answered no trivial request in time: use a longer --time" % waits.name)
    waits.seconds += times
    waits.rates.append(load.rate)


def ask_again_and_again(port, keep_alive, over, times, failures):
    """A client with trivial requests; appends the seconds that each took."""
    path, expected = TRIVIAL
    connection = None
    try:
        while not over.is_set():
            began = time.perf_counter()
            if connection is None:
                connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_TIMEOUT)
            connection.request("GET", path, headers={} if keep_alive else {"Connection": "close"})
            answer = json.load(connection.getresponse())
            taken = time.perf_counter() - began
            if not keep_alive:
                connection.close()
                connection = None
            if answer != expected:
                raise ValueError("answered GET %s with %r" % (path, answer))
            if not over.is_set():  # else the load has ended meanwhile
                times.append(taken)
            over.wait(PAUSE)
    except (OSError, ValueError, http.client.HTTPException) as error:
        failures.append(str(error))
    finally:
        if connection is not None:
            connection.close()


def table(servers, size, options):
    rows = [
        {
            "name": waits.name, "rate": statistics.median(waits.rates), "handler": 1000 * statistics.median(waits.handler),
            "trivial": len(waits.seconds), **{"p%d" % n: 1000 * waits.percentile(n) for n in (50, 99)},
            "figure": waits.percentile(99) / statistics.median(waits.handler), "longest": 1000 * max(waits.seconds),
            "target": Target(ACCEPTED, form="%d") if waits.threads == 2 else None,
            "handler_seconds": waits.handler, "trivial_seconds": waits.seconds, "heavy_per_second": waits.rates,
        }
        for waits in servers
    ]  # fmt: skip
    times = [Column("median", "p50", "%.0f ms"), Column("p99", "p99", "%.0f ms")]
    return Section(
        "latency",
        "GET /2 beside GET /%d from %d clients, %d x %d s" % (size, options.concurrency, options.repeats, options.time),
        [
            Column("server", "name"), Column("heavy/s", "rate", "%.1f"), Column("handler", "handler", "%.0f ms"), Column("trivial", "trivial", "%d"),
            *times, Column("in handlers", "figure", "%.1f"), Column("target", "target"), Column("longest", "longest", "%.0f ms"),
        ],
        rows,
        ["handler: one heavy request on the idle server.  in handlers: the p99, in such."],
    )  # fmt: skip
