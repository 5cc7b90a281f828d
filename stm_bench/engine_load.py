"""The engine benchmark: what transactions cost, and how they scale, without a web server."""

from stm_bench import engine_report, machine
from stm_bench.engine_sections import SECTIONS, Effort
from stm_bench.errors import BenchmarkError
from stm_bench.machine import default_threads, output_file, positive, thread_counts, usable_cpus

SUMMARY = "The cost of transactions and how they scale, as ratios, beside the project's targets."

REPEATS = 7


def add_arguments(parser):
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="of: %s (default: all)" % ", ".join(SECTIONS)
    )
    parser.add_argument(
        "--repeats",
        type=positive,
        metavar="N",
        help="rounds, whose median is printed (default: %d; 1 with --quick)" % REPEATS,
    )
    parser.add_argument(
        "--threads",
        type=thread_counts,
        metavar="N,N...",
        help="to compare with one (default: 2,4... up to the usable CPUs)",
    )
    parser.add_argument(
        "--length",
        type=positive,
        default=1,
        metavar="N",
        help="of each program: N times what takes about 15 ms, in fewer transactions (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="see that it runs: hardly any work, figures mean nothing")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--rst", type=output_file, metavar="FILE.rst", help="write the tables as reStructuredText")
    parser.set_defaults(benchmark=benchmark)


def benchmark(options):
    """Runs the sections asked for and prints their tables; returns the exit status."""
    check_engine()
    effort = Effort(
        repeats=options.repeats or (1 if options.quick else REPEATS),
        quick=options.quick,
        length=options.length,
        threads=options.threads or default_threads(usable_cpus()),
    )
    environment = machine.describe()
    sections = []
    console = engine_report.console()
    for name in options.only or SECTIONS:
        section = SECTIONS[name](effort)
        sections.append(section)
        engine_report.show(section, console)
    engine_report.write(sections, environment, options.json, options.rst)
    return 0


def check_engine():
    """Raises BenchmarkError where transactions would not run in parallel."""
    from tornado.stm import core

    if not core.PARALLEL:
        raise BenchmarkError("this interpreter has no compiled engine, or a GIL: run make setup, then .venv/bin/python")
