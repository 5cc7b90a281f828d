"""The primes benchmark: tornado.stm on 1, 2, 4... threads against upstream Tornado, under siege.

The servers are measured in turns, one round after the other, so that a machine that grows slower or faster does so for
all of them.  Each turn is a process of its own: start, warm-up, a check of answers, load, the same check, stop.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from stm_bench import plot, report, siege
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import LARGEST, positive
from stm_bench.progress import Runs
from stm_bench.servers import Server, probe, require

SUMMARY = "CPU-heavy requests: requests/s of tornado.stm on each number of threads, and of upstream Tornado."

ROOT = Path(__file__).resolve().parent.parent
APPLICATION = str(ROOT / "stm_bench" / "primes.py")
REQUEST_SECONDS = 0.05  # CPU time of one request
WARM_UP_CLIENTS, WARM_UP_EACH, WARM_UP_SIZE = 10, 40, 100  # small requests, enough for all code to be specialized
TURN_OVERHEAD = 4  # seconds, about, that a turn takes beyond its load
WIDTH_IN_A_FILE = 100  # columns, where the table is not printed on a terminal


def add_arguments(parser):
    parser.add_argument(
        "--time", type=positive, default=8, metavar="SECONDS", help="of one load (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=thread_counts,
        metavar="N,N...",
        help="for tornado.stm (default: 1,2,4... up to the usable CPUs)",
    )
    parser.add_argument("--concurrency", type=positive, default=50, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument(
        "--size",
        type=size,
        metavar="N",
        help="ask for the primes up to N (default: what takes about 50 ms of CPU here)",
    )
    parser.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="loads of each server (default: %(default)s)"
    )
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--plot", type=output_file, metavar="FILE.png", help="draw them into FILE.png")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the whole benchmark and prints its table; returns the exit status, 1 where a request failed."""
    if options.plot:
        plot.check()
    environment = {**describe_machine(), "siege": siege.version()}
    servers, notes = servers_to_measure(options.threads or default_threads(usable_cpus()))
    request_size = options.size or calibrated_size()
    turns = options.repeats * len(servers)
    with Runs(turns) as runs:
        runs.console.print(
            "%d servers, %d x %d s each, GET /%d: about %.0f s"
            % (len(servers), options.repeats, options.time, request_size, turns * (options.time + TURN_OVERHEAD))
        )
        for round_number in range(1, options.repeats + 1):
            for server in servers:
                runs.starting(server.name)
                run = take_turn(server, request_size, options.concurrency, options.time)
                server.runs.append(run)
                runs.done("round %d: %s: %.1f requests/s" % (round_number, server.name, run.load.rate))
    settings = {
        "benchmark": "primes",
        "size": request_size,
        "clients": options.concurrency,
        "seconds": options.time,
        "repeats": options.repeats,
    }
    figures = report.Figures(settings, environment, servers, notes)
    show(figures)
    try:
        if options.json:
            Path(options.json).write_text(report.to_json(figures) + "\n")
        if options.plot:
            plot.save(figures, options.plot)
    except OSError as error:
        raise BenchmarkError("cannot write %s: %s" % (error.filename, error.strerror)) from None
    return 1 if figures.failed else 0


def show(figures):
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    console.print()
    console.print(report.table(figures))
    for note in figures.notes:
        console.print("  note: " + note, markup=False, soft_wrap=True)
    if figures.failed:
        console.print("  [bold red]%d requests failed[/]" % figures.failed)


# One turn


def take_turn(server, request_size, clients, seconds):
    """Starts `server`, a Measured, loads it and stops it; returns the Run.

    Raises BenchmarkError where the server fails, WrongAnswer where it answers wrongly.
    """
    with Server(server.name, command(server)) as process:
        warm_up = siege.requests(process.url("/%d" % WARM_UP_SIZE), WARM_UP_CLIENTS, WARM_UP_EACH)
        process.check_alive()
        if warm_up.failed:
            raise WrongAnswer("server %s failed %d requests of its warm-up" % (server.name, warm_up.failed))
        check_answers(process, request_size)
        load = siege.load(process.url("/%d" % request_size), clients, seconds)
        process.check_alive()
        check_answers(process, request_size)
        counts = process.stop()
    return report.Run(load, counts.get("commits"), counts.get("aborts"))


def command(server):
    how = ["--upstream"] if server.threads is None else [str(server.threads)]
    return [server.interpreter.python, APPLICATION] + how


def check_answers(process, request_size):
    """Asks a server for a few answers at once and compares them with the truth.  Raises WrongAnswer."""
    sizes = [0, 2, WARM_UP_SIZE, request_size]
    with ThreadPoolExecutor(len(sizes)) as clients:
        answers = list(clients.map(lambda limit: ask(process, limit), sizes))
    for limit, answer in zip(sizes, answers):
        if answer != {"primes": sieve(limit)}:
            raise WrongAnswer("server %s answered GET /%d wrongly" % (process.name, limit))


def ask(process, limit):
    answer = process.ask("/%d" % limit)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise WrongAnswer("server %s answered GET /%d with no JSON: %s" % (process.name, limit, error)) from None


def sieve(limit):
    """The primes up to `limit`, found another way than the server does."""
    candidates = [True] * (limit + 1)
    for factor in range(2, int(limit**0.5) + 1):
        candidates[factor * factor :: factor] = [False] * len(range(factor * factor, limit + 1, factor))
    return [number for number in range(2, limit + 1) if candidates[number]]


# What to measure


def servers_to_measure(threads):
    """The servers, those first that are always there, and notes on those that are not."""
    here = probe(sys.executable)
    require(here, "tornado.stm")
    servers, notes = [upstream_on(here)], []
    pypy = ROOT / ".venv-pypy" / "bin" / "python"
    others = {
        "a CPython with a GIL": ROOT / ".venv-gil" / "bin" / "python",
        "PyPy": pypy if pypy.exists() else shutil.which("pypy3"),
    }
    for what, python in others.items():
        if python is None or not os.path.exists(python):
            notes.append("no row for %s: not found" % what)
            continue
        try:
            servers.append(upstream_on(probe(str(python))))
        except BenchmarkError as error:
            notes.append("no row for %s: %s" % (what, error))
    for count in threads:
        name = "tornado-stm, %d thread%s" % (count, "" if count == 1 else "s")
        servers.append(report.Measured(name, here, count))
    if not here.free_threaded:
        notes.append("this interpreter has a GIL: tornado.stm runs one transaction at a time on it")
    return servers, notes


def upstream_on(interpreter):
    return report.Measured("upstream, %s" % interpreter, interpreter, None)


def default_threads(cpus):
    """1, 2, 4... up to `cpus`, and `cpus` itself."""
    powers = [1 << exponent for exponent in range(cpus.bit_length()) if 1 << exponent <= cpus]
    return sorted({*powers, cpus})


def calibrated_size():
    """The size of a request that takes about REQUEST_SECONDS, timed in a process that does nothing else."""
    timing = [sys.executable, "-m", "stm_bench.calibrate", str(REQUEST_SECONDS)]
    done = subprocess.run(timing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError("cannot time a request: %s" % done.stderr.strip().splitlines()[-1])
    return int(done.stdout)


# Where it is measured


def usable_cpus():
    """The CPUs that this process may use."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0))


def describe_machine():
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": sys.version,
        "machine": platform.machine(),
        "processor": processor(),
        "system": platform.platform(),
        "cpus": usable_cpus(),
    }


def processor():
    """The processor's model where the system tells it, else what `platform` knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


# Arguments


def thread_counts(text):
    return sorted({positive(count) for count in text.split(",")})


def size(text):
    number = positive(text)
    if number > LARGEST:
        raise argparse.ArgumentTypeError("larger than %d: %d" % (LARGEST, number))
    return number


def output_file(text):
    """A file that can be written when the benchmark is done: found out before it starts."""
    folder = os.path.dirname(text) or "."
    if os.path.isdir(text) or not os.access(text if os.path.exists(text) else folder, os.W_OK):
        raise argparse.ArgumentTypeError("cannot write %s" % text)
    return text
