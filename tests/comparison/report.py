"""Prints comparisons: a table with a row for each module, and what a row cannot tell."""

import argparse
import functools

from rich import box
from rich.console import Console
from rich.table import Table

from tornado.stm import core

from . import TIMEOUT, reason

WIDTH = 130  # columns at least

#: the columns that every report has
COUNTS = ["tests", "same", "listed", "differing"]

#: more of them, where each test is a transaction, and what explains those
FIGURES = {
    "exclusive": lambda comparison: len(comparison.ours.having("exclusive")),
    "aborts": lambda comparison: comparison.ours.stats.get("aborts", "-"),
}
FIGURES_MEAN = "exclusive: tests that had to run alone, at least at their end.  aborts: attempts that were rolled back."


def rate(text):
    """Of aborts."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"not a rate, from 0 to below 1: {text!r}")
    return number


def threads(text):
    """How many run transactions."""
    number = int(text)
    if not 0 < number <= core.MOST_THREADS:
        raise argparse.ArgumentTypeError(f"not a number of threads, {core.MOST_THREADS} at most: {text!r}")
    return number


def seconds(text):
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"not a positive number of seconds: {text!r}")
    return number


def parser(prog, description):
    """An argument parser with the options that every report has."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--inject", type=rate, action="append", metavar="RATE",
                        help="how likely an abort is at each barrier of a first attempt (default 0); may be given again, for "
                             "another round")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of these aborts")
    parser.add_argument("--timeout", type=seconds, default=TIMEOUT, metavar="S", help="seconds for a module (default %(default)s)")
    parser.add_argument("--reasons", type=int, default=0, metavar="N", help="show the N commonest reasons for running alone")
    parser.add_argument("--output", action="store_true", help="show what the tests print")
    return parser


def reports(modules, compare, options, figures, ways, caption):
    """Explain and tabulate comparisons of modules as they come, in a round for each rate of aborts; True if all are good, and there are some.

    Args:
        modules: names.
        compare: called with a name and a rate of aborts, makes the `Comparison`.
        options: what the `parser` has made.
        figures: heading → function of a Comparison, for columns beside the `COUNTS`.
        ways: how the tests run, plainly and in our way, in two phrases such as "as a transaction".
        caption: explains the columns.
    """
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)  # a pipe says 80, which cuts the figures off
    good = bool(modules)
    for inject in options.inject or [0.0]:
        comparisons = ((module, functools.partial(compare, module, inject)) for module in modules)
        title = f"aborts injected at {inject:g} of the barriers" if inject else None
        good &= report(console, comparisons, options, figures, ways, caption, title)
    return good


def report(console, comparisons, options, figures, ways, caption, title):
    """One round of that; the comparisons are pairs of a module's name and a function that makes its `Comparison`."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    table.add_column("module", no_wrap=True)
    for heading in *COUNTS, *figures:
        table.add_column(heading, justify="right", no_wrap=True)
    good = True
    for module, compare in comparisons:
        with console.status(f"{module} ..."):
            comparison = compare()
        good &= comparison.good
        table.add_row(
            module, *map(str, counts(comparison)), *(str(figure(comparison)) for figure in figures.values()),
            style=None if comparison.good else "bold red")
        explain(console, comparison, options, ways)
    console.print(table)
    return good


def counts(comparison):
    """What stands below `COUNTS`."""
    tests, differing, unlisted = comparison.plain.outcomes, comparison.differing, comparison.unlisted
    return len(tests), len(tests.keys() - differing.keys()), len(differing) - len(unlisted), len(unlisted)


def explain(console, comparison, options, ways):
    """What a row cannot tell: the differences, the end of a process that came too soon, why tests ran alone."""
    say = lambda text, **style: console.print(text, markup=False, soft_wrap=True, **style)  # noqa: E731
    plainly, our_way = ways
    for name, (plain, ours) in comparison.differing.items():
        why = reason(comparison.listed, name)
        say(f"{name}" + (f"  ({why})" if why else ""), style="dim" if why else "bold")
        if why is None:
            say(f"    {plainly}: {told(plain)}\n    {our_way}: {told(ours)}")
            say(comparison.ours.traces.get(name, ""), style="dim")
    for pattern in comparison.settled:
        say(f"{pattern} is listed and does not differ", style="bold yellow")
    for way, run in (plainly, comparison.plain), (our_way, comparison.ours):
        if run.end:
            say(f"{comparison.module} {way}: {run.end}", style="bold red")
        if run.end or options.output:
            say(run.output.rstrip())
    for why, times in comparison.ours.reasons.most_common(options.reasons):
        say(f"{times:6}  {why}", style="dim")


def told(events):
    return "; ".join(events) if events is not None else "never ended"
