"""The handlers benchmark: ordinary handlers of some milliseconds, on tornado.stm and on upstream Tornado.

All servers are up all the time and are loaded in turns, in rounds of a few seconds, so that what else the machine does meets
them all; a figure is the median of the ratios of the rounds.  Two processes of upstream's, each with half of the clients, show
in the same rounds what two cores can give here at this moment: a figure that is larger is noise.

``--beside`` tells what a server keeps of its rate beside endless loops, as programs are on a machine that is not the server's
alone, to what upstream keeps: a server whose threads give the processor away while others wait for them keeps less.
"""

import itertools
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from stm_bench import engine_report, machine, pages, siege
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError
from stm_bench.primes import positive
from stm_bench.progress import Runs
from stm_bench.servers import EndlessLoops, Server
from stm_bench.workloads import client

SUMMARY = "Ordinary handlers of 1 and 10 ms, and trivial ones: requests/s and processor time, to upstream Tornado."

NAMES = (*pages.COMPUTING, *pages.TRIVIAL)
MILLISECONDS = (10, 1)
ONE_THREAD, TWO_THREADS = 0.85, 1.6  # of upstream's rate: what handlers of 10 ms should reach
TRIVIAL_ONE_THREAD, TRIVIAL = 0.8, 1.3  # the same of what takes next to nothing
KEPT = 0.8  # what every server keeps of its rate beside endless loops, on any number of threads, to what upstream keeps
WARM_UP_SECONDS = 2


def add_arguments(parser):
    names = parser.add_mutually_exclusive_group()
    names.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="HANDLER", help="of: %s (default: hello, and what computes)" % ", ".join(NAMES)
    )
    names.add_argument("--trivial", action="store_true", help="all that take next to nothing, and no other")
    parser.add_argument(
        "--milliseconds", nargs="+", type=positive, metavar="N", help="of one request on upstream (default: %s)" % "%d %d" % MILLISECONDS
    )
    parser.add_argument("--time", type=positive, default=3, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=machine.thread_counts,
        metavar="N,N...",
        help="for tornado.stm (default: 1,2,4... up to the usable CPUs)",
    )
    parser.add_argument("--concurrency", type=positive, default=8, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument(
        "--beside", type=positive, default=0, metavar="N", help="what is kept beside so many endless loops (default: none)"
    )
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the loads and prints their table; returns the exit status, 1 where something failed or was answered wrongly."""
    siege.version()
    threads = options.threads or machine.default_threads(machine.usable_cpus())
    names = pages.TRIVIAL if options.trivial else options.only or ["hello", *pages.COMPUTING]
    asked = pages.computing(names, options.milliseconds or MILLISECONDS) + [pages.TRIVIAL[name] for name in names if name in pages.TRIVIAL]
    hows = ["upstream", *threads, "two"]
    crowds = [False, True] if options.beside else [False]
    runs = {}  # (handler, how, beside endless loops) -> [(answers per second, processor seconds per answer)]
    failures = {}  # handler -> what went wrong, after which it is not asked for again
    with ExitStack() as stack, Runs(options.repeats * len(asked) * len(hows) * len(crowds)) as shown:
        servers = {app: start_servers(stack, app, threads) for app in dict.fromkeys(handler.app for handler in asked)}

        def attempt(handler, how, seconds):
            """What `load` returns, or None."""
            try:
                if handler not in failures:
                    return load(servers[handler.app][how], handler, options.concurrency, seconds)
            except BenchmarkError as error:
                failures[handler] = "failed: %s" % error

        for handler in asked:
            for how in hows:
                attempt(handler, how, WARM_UP_SECONDS)
        loops = stack.enter_context(EndlessLoops(options.beside))
        for round_number in range(1, options.repeats + 1):
            for handler in asked:
                for how, crowd in itertools.product(hows, crowds):
                    name = "%s, %s" % (handler.title, {"upstream": "upstream", "two": "two processes"}.get(how, "-j %s" % how))
                    name += ", beside endless loops" * crowd
                    shown.starting(name)
                    loops.pause(not crowd)
                    run = attempt(handler, how, options.time)
                    runs.setdefault((handler, how, crowd), []).append(run)
                    shown.done("round %d: %s: %s" % (round_number, name, failures.get(handler) or "%.1f/s" % run[0]))
        for app, running in servers.items():
            for server in running["two"] + [running[count][0] for count in threads]:
                if not any(handler.app == app for handler in failures):  # it may have ended
                    server.stop()
    section = (kept if options.beside else table)([handler for handler in asked if handler not in failures], threads, runs, options)
    section.rows += [{"name": handler.title, "figure": engine_report.FAILED} for handler in failures]
    section.notes += ["%s %s" % (handler.title, why) for handler, why in failures.items()]
    console = engine_report.console()
    engine_report.show(section, console)
    engine_report.write([section], machine.describe(), options.json)
    return 1 if failures else 0


def start_servers(stack, app, threads):
    """How to run the application: the servers that share the load then."""
    command = [sys.executable, "-m", "stm_bench.app_server", app]
    upstream, another = (stack.enter_context(Server(name, command)) for name in ("upstream", "upstream's second process"))
    servers = {"upstream": [upstream], "two": [upstream, another]}
    for count in threads:
        servers[count] = [stack.enter_context(Server("-j %d" % count, [*command, "--threads", str(count)]))]
    return servers


def load(servers, page, clients, seconds):
    """Puts servers under the load of so many clients together; returns (answers per second, processor seconds per answer).

    Raises:
        WrongAnswer: one failed, or answered something else before or after the load.
        BenchmarkError: one has ended.
    """
    asked = client.shared_out(clients, servers)
    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.answering())
            page.check(server)
        before = [server.processor_seconds() for server in servers]
        with ThreadPoolExecutor(len(asked)) as loads:
            found = list(loads.map(lambda each: page.load(*each, seconds), asked))
        taken = sum(server.processor_seconds() for server in servers) - sum(before)
        for server in servers:
            page.check(server)
    return sum(rate for rate, _ in found), taken / sum(answered for _, answered in found)


def table(asked, threads, runs, options):
    def ratios(handler, how, what, to="upstream"):
        return [run[what] / other[what] for run, other in zip(runs[handler, how, False], runs[handler, to, False])]

    most = max(threads)
    rows = []
    for handler in asked:
        row = {"name": handler.title, "upstream": 1000 * statistics.median(cpu for _, cpu in runs[handler, "upstream", False])}
        for count in threads:
            row["threads%d" % count] = statistics.median(ratios(handler, count, 0))
            row["cpu%d" % count] = statistics.median(ratios(handler, count, 1))
        row["two"] = statistics.median(ratios(handler, "two", 0))
        row["figure"] = row["threads%d" % most]
        figures = ratios(handler, most, 0)
        row["range"] = "%.2f-%.2f" % (min(figures), max(figures))
        if handler.milliseconds is not None and handler.milliseconds >= 10 and most <= 2:
            row["target"] = Target(TWO_THREADS if most == 2 else ONE_THREAD, at_least=True)
        elif handler.milliseconds is None and most <= 2:
            row["target"] = Target(TRIVIAL if most == 2 else TRIVIAL_ONE_THREAD, at_least=True)
        rows.append(row)
    columns = [Column("handler", "name"), Column("upstream CPU", "upstream", "%.2f ms")]
    columns += [Column("%d thr." % count, "threads%d" % count, "%.2f") for count in threads[:-1]]
    columns += [Column("%d thr." % most, "figure", "%.2f"), Column("range", "range"), Column("target", "target")]
    columns += [Column("CPU %d" % count, "cpu%d" % count, "%.2f") for count in threads]
    columns.append(Column("2 processes", "two", "%.2f"))
    return Section(
        "handlers",
        "requests/s to upstream's, %d clients, median of %d rounds of %d s" % (options.concurrency, options.repeats, options.time),
        columns,
        rows,
        [
            "upstream CPU: processor time of one request.  CPU N: that of tornado.stm on N threads, to upstream's.",
            "2 processes: of upstream's, each with half of the clients: what two cores give here.",
        ],
    )


def kept(asked, threads, runs, options):
    """The table of what is kept beside endless loops."""

    def shares(handler, how):
        return [crowded / free for (crowded, _), (free, _) in zip(runs[handler, how, True], runs[handler, how, False])]

    rows = []
    for handler in asked:
        upstream = shares(handler, "upstream")
        row = {"name": handler.title, "upstream": statistics.median(upstream)}
        for how in (*threads, "two"):
            row["threads%s" % how] = statistics.median(share / other for share, other in zip(shares(handler, how), upstream))
        row["figure"] = min(row["threads%d" % count] for count in threads)
        row["target"] = Target(KEPT, at_least=True)
        rows.append(row)
    columns = [Column("handler", "name"), Column("upstream keeps", "upstream", "%.2f")]
    columns += [Column("%d thr." % count, "threads%d" % count, "%.2f") for count in threads]
    columns += [Column("worst", "figure", "%.2f"), Column("target", "target"), Column("2 processes", "threadstwo", "%.2f")]
    return Section(
        "handlers",
        "what is kept of requests/s beside %d endless loops, %d clients, median of %d rounds of %d s"
        % (options.beside, options.concurrency, options.repeats, options.time),
        columns,
        rows,
        [
            "upstream keeps: of its rate.  N thr.: what tornado.stm keeps of its own on N threads, to that.",
            "2 processes: the same of two of upstream's: what the system leaves to two threads here.",
        ],
    )
