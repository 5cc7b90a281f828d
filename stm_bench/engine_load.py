"""The engine benchmark: what transactions cost, and how they scale, without a web server.

Everything is a ratio of two things measured in turns in one run, so that a machine that grows slower or faster does so
for both; a figure is the median over the rounds.  Each side is a process of its own (workers.py): code that has once run
in a transaction is instrumented, and no longer plain.
"""

import json
import statistics
from pathlib import Path

from rich.console import Console

from stm_bench import engine_report, programs
from stm_bench.engine_report import Column, Section, Target
from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.primes import positive
from stm_bench.primes_load import WIDTH_IN_A_FILE, output_file
from stm_bench.progress import Runs
from stm_bench.workers import WorkerProcess

SUMMARY = "The cost of transactions and how they scale, as ratios, beside the project's targets."

WARM_UPS = 3  # unmeasured runs at most: the first ones instrument functions, exclusively
PROGRAM_RUNS = 10  # of a program in each round
QUICK = 50  # how much less work --quick does


def add_arguments(parser):
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="SECTION", help="of: %s (default: all)" % ", ".join(SECTIONS)
    )
    parser.add_argument(
        "--repeats", type=positive, metavar="N", help="rounds, whose median is printed (default: 7; 1 with --quick)"
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
    effort = Effort(options.repeats or (1 if options.quick else 7), options.quick, options.length)
    sections = []
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_FILE
    for name in options.only or SECTIONS:
        section = SECTIONS[name](effort)
        sections.append(section)
        console.print()
        console.print(engine_report.table(section))
        for note in section.notes:
            console.print("  note: " + note, markup=False, soft_wrap=True)
    try:
        if options.json:
            Path(options.json).write_text(json.dumps(engine_report.to_json(sections), indent=2) + "\n")
        if options.rst:
            Path(options.rst).write_text(engine_report.rst(sections))
    except OSError as error:
        raise BenchmarkError("cannot write %s: %s" % (error.filename, error.strerror)) from None
    return 0


class Effort:
    """How much is measured: so many rounds, of work of full size or of hardly any, of programs so many times as long as usual."""

    def __init__(self, repeats, quick, length):
        self.repeats = repeats
        self.quick = quick
        self.length = length

    def size(self, full):
        return max(1, full // QUICK) if self.quick else full


def in_turns(number, *sides):
    """The sides, in the other order every second round, so that none always comes after the same one."""
    return sides if number % 2 else sides[::-1]


# Programs


def measure_programs(effort):
    """Each program plain and in one transaction, one thread."""
    sizes = {name: effort.size(programs.load(name).ROUNDS * effort.length) for name in programs.PROGRAMS}
    runs_each = effort.size(max(1, PROGRAM_RUNS // effort.length))
    found = {name: {"plain": [], "transaction": []} for name in sizes}
    with (
        WorkerProcess("plain Python") as plain,
        WorkerProcess("transactions", threads=2) as transactional,
        Runs(effort.repeats * len(sizes)) as runs,
    ):

        def run(name, how):
            worker = transactional if how == "transaction" else plain
            return worker.measure("program", name=name, how=how, size=sizes[name], runs=runs_each)

        for number in range(effort.repeats):
            for name in sizes:
                runs.starting(name)
                if number == 0:
                    warm_up(lambda: run(name, "plain"), lambda: run(name, "transaction"))
                for how in in_turns(number, "plain", "transaction"):
                    found[name][how].append(run(name, how))
                answers = {taken["result"] for taken in found[name]["plain"] + found[name]["transaction"]}
                if len(answers) > 1:
                    raise WrongAnswer("%s computes something else in a transaction: %s" % (name, sorted(answers)))
                runs.done(
                    "round %d: %s: %.2f"
                    % (number + 1, name, found[name]["transaction"][-1]["seconds"] / found[name]["plain"][-1]["seconds"])
                )
    rows = [program_row(name, each["plain"], each["transaction"]) for name, each in found.items()]
    mean = statistics.geometric_mean(row["figure"] for row in rows)
    rows.append({"what": "geometric mean", "figure": mean, "target": Target(1.35)})
    return Section(
        "programs",
        "Programs in one transaction, to the same program plain, 1 thread",
        [
            Column("program", "what"),
            Column("plain ms", "plain", "%.1f"),
            Column("transaction ms", "transaction", "%.1f"),
            Column("ratio", "figure", "%.2f"),
            Column("range", "range"),
            Column("target", "target"),
            Column("exclusive", "exclusives"),
        ],
        rows,
        "median of %d rounds of %d transactions each, CPU time.\nexclusive: measured transactions that did not stay abortable."
        % (effort.repeats, runs_each),
        exclusive_notes({name: each["transaction"] for name, each in found.items()}),
    )


def program_row(name, plain, transaction):
    ratios = [ours["seconds"] / theirs["seconds"] for ours, theirs in zip(transaction, plain)]
    return {
        "what": name,
        "plain": 1e3 * statistics.median(each["seconds"] for each in plain),
        "transaction": 1e3 * statistics.median(each["seconds"] for each in transaction),
        "figure": statistics.median(ratios),
        "range": "%.2f-%.2f" % (min(ratios), max(ratios)),
        "target": Target(1.8),
        "exclusives": sum(each["exclusives"] for each in transaction),
    }


def warm_up(*sides):
    """Runs each side until a run stays abortable: the first calls of functions do not."""
    for side in sides:
        for _ in range(WARM_UPS):
            if not side()["exclusives"]:
                break


def exclusive_notes(found):
    """A line for each name whose measured transactions did not stay abortable, with the reasons."""
    notes = []
    for name, taken in found.items():
        exclusives = sum(each["exclusives"] for each in taken)
        reasons = sorted({reason for each in taken for reason in each["reasons"]})
        if exclusives:
            said = "; ".join(reasons) or "no reason recorded"
            notes.append("%s: %d of %d transactions ran exclusively: %s" % (name, exclusives, sum(each["commits"] for each in taken), said))
    return notes


SECTIONS = {"programs": measure_programs}
