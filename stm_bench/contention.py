"""The contention benchmark: what removing contention brings, step by step (docs/contention.rst).

One application on tornado.stm, on one thread and on two; its handlers are those before and after each of three changes.  They are
loaded in turns, in rounds; a figure is the median of the ratios of the rounds.  Linear is twice what one thread answers to
the same handler.  Two processes of upstream's, each with half of the clients, show what two cores can give here at this moment.
"""

import statistics
import sys
from contextlib import ExitStack

from stm_bench import engine_report, handlers_load, machine, siege
from stm_bench.apps import contended_app
from stm_bench.engine_report import Column, Section, Target
from stm_bench.pages import Page
from stm_bench.primes import positive
from stm_bench.progress import Runs
from stm_bench.servers import Server

SUMMARY = "A contended application, and three changes that remove what its log shows: the gain of each."

LINEAR = 0.9  # of it: what is left of contention after the last change
TITLES = ["as it was", "1. counted in a step of its own", "2. remembered at the end", "3. offers by number"]


def add_arguments(parser):
    parser.add_argument("--time", type=positive, default=3, metavar="SECONDS", help="of one load (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="rounds (default: %(default)s)")
    parser.add_argument("--concurrency", type=positive, default=8, metavar="N", help="clients (default: %(default)s)")
    parser.add_argument("--json", type=machine.output_file, metavar="FILE", help="write all figures to FILE")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the loads and prints their table; returns the exit status."""
    siege.version()
    pages = [Page(title, "/%d/green%%20chairs" % n, None, app="contended_app") for n, title in enumerate(TITLES)]
    hows = ["one", "two", "upstream", "processes"]
    rates = {}  # (page, how) -> [answers per second]
    with ExitStack() as stack, Runs(options.repeats * (2 * len(pages) + 2)) as shown:
        servers = start_servers(stack)
        asked = [(page, how) for page in pages for how in hows if how in ("one", "two") or page is pages[-1]]
        for page, how in asked:
            handlers_load.load(servers[how], page, options.concurrency, handlers_load.WARM_UP_SECONDS)
        for round_number in range(1, options.repeats + 1):
            for page, how in asked:
                name = "%s, %s" % (page.name, {"one": "1 thread", "two": "2 threads", "processes": "2 processes"}.get(how, how))
                shown.starting(name)
                rate, _ = handlers_load.load(servers[how], page, options.concurrency, options.time)
                rates.setdefault((page, how), []).append(rate)
                shown.done("round %d: %s: %.1f/s" % (round_number, name, rate))
    section = table(pages, rates, options)
    engine_report.show(section, engine_report.console())
    engine_report.write([section], machine.describe(), options.json)
    return 0


def start_servers(stack):
    command = [sys.executable, "-m", "stm_bench.app_server", contended_app.__name__.rpartition(".")[2]]
    one, two = (stack.enter_context(Server("-j %d" % n, [*command, "--threads", str(n)])) for n in (1, 2))
    upstream, another = (stack.enter_context(Server(name, command)) for name in ("upstream", "upstream's second process"))
    return {"one": [one], "two": [two], "upstream": [upstream], "processes": [upstream, another]}


def table(pages, rates, options):
    def ratios(page, how, to):
        return [a / b for a, b in zip(rates[page, how], rates[page, to])]

    first, last = pages[0], pages[-1]
    rows = []
    for page in pages:
        figures = [ratio / 2 for ratio in ratios(page, "two", "one")]
        rows.append({
            "name": page.name, "one": statistics.median(rates[page, "one"]), "two": statistics.median(rates[page, "two"]),
            "gain": statistics.median(a / b for a, b in zip(rates[page, "two"], rates[first, "two"])),
            "figure": statistics.median(figures), "range": "%.2f-%.2f" % (min(figures), max(figures)),
            **({"target": Target(LINEAR, at_least=True)} if page is last else {}),
        })  # fmt: skip
    return Section(
        "contention",
        "%d clients, median of %d rounds of %d s" % (options.concurrency, options.repeats, options.time),
        [
            Column("change", "name"), Column("1 thread", "one", "%.0f/s"), Column("2 threads", "two", "%.0f/s"), Column("gain", "gain", "%.2f"),
            Column("of linear", "figure", "%.2f"), Column("range", "range"), Column("target", "target"),
        ],
        rows,
        [
            "gain: of two threads, to two threads before all changes.  of linear: of twice what one thread answers.",
            "2 processes of upstream's gave %.2f of linear at this moment." % (statistics.median(ratios(last, "processes", "upstream")) / 2),
        ],
    )  # fmt: skip
