"""The command line: ``python -m tests.suites``."""

import argparse
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from . import MODULES, TIMEOUT, compare, reason


def main(arguments=None):
    """Run the modules and print a row for each; 0 if all came out as they do plainly, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suites",
        description="Run modules of CPython's tests with each test as a transaction, and compare with a plain run.",
    )
    parser.add_argument("modules", metavar="MODULE", nargs="*", default=MODULES, help="such as test_list; default: all of ours")
    parser.add_argument("--inject", type=float, default=0.0, metavar="RATE",
                        help="how likely an abort is at each barrier of a first attempt (default 0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of these aborts")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="S", help="seconds for a module (default %(default)s)")
    parser.add_argument("--reasons", type=int, default=0, metavar="N", help="show the N commonest reasons for running alone")
    parser.add_argument("--output", action="store_true", help="show what the tests print")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_justify="left", caption=(
        "exclusive: tests that had to run alone, at least at their end.  aborts: attempts that were rolled back."))
    table.add_column("module", no_wrap=True)
    for heading in "tests", "same", "listed", "differing", "exclusive", "aborts":
        table.add_column(heading, justify="right", no_wrap=True)
    good = True
    for module in options.modules:
        with console.status(f"{module} ..."):
            comparison = compare(module, options.inject, options.seed, options.timeout)
        good &= comparison.good
        add_row(table, comparison)
        explain(console, comparison, options)
    console.print(table)
    return 0 if good else 1


def add_row(table, comparison):
    tests, differing, unlisted = comparison.plain.outcomes, comparison.differing, comparison.unlisted
    figures = [
        len(tests), len(tests.keys() - differing.keys()), len(differing) - len(unlisted), len(unlisted),
        len(comparison.ours.exclusive), comparison.ours.stats.get("aborts", "-"),
    ]
    table.add_row(comparison.module, *map(str, figures), style=None if comparison.good else "bold red")


def explain(console, comparison, options):
    """What a row cannot tell: the differences, the end of a process that came too soon, why tests ran alone."""
    say = lambda text, **style: console.print(text, markup=False, soft_wrap=True, **style)  # noqa: E731
    for name, (plain, ours) in comparison.differing.items():
        why = reason(comparison.listed, name)
        say(f"{name}" + (f"  ({why})" if why else ""), style="dim" if why else "bold")
        if why is None:
            say(f"    plainly: {told(plain)}\n    as a transaction: {told(ours)}")
            say(comparison.ours.traces.get(name, ""), style="dim")
    for pattern in comparison.settled:
        say(f"{pattern} is listed and does not differ", style="bold yellow")
    for way, run in ("plainly", comparison.plain), ("as transactions", comparison.ours):
        if run.end:
            say(f"{comparison.module} {way}: {run.end}", style="bold red")
        if run.end or options.output:
            say(run.output.rstrip())
    for why, times in comparison.ours.reasons.most_common(options.reasons):
        say(f"{times:6}  {why}", style="dim")


def told(events):
    return "; ".join(events) if events is not None else "never ended"


if __name__ == "__main__":
    sys.exit(main())
