"""The command line: ``python -m tests.compat``."""

import sys

from tests.comparison import report

from . import SUITES, THREADS, TIMEOUT, compare, suite, suite_of


def percentage(comparison):
    """How many of the transactions ran alone."""
    stats = comparison.ours.stats
    return f"{100 * stats['exclusives'] / stats['commits']:.1f} %" if stats.get("commits") else "-"


FIGURES = {
    "on ours": lambda comparison: f"{len(comparison.ours.having('commits'))}",
    "strayed": lambda comparison: len(comparison.strayed),
    "transactions": lambda comparison: comparison.ours.stats.get("commits", "-"),
    "exclusive": percentage,
    "aborts": lambda comparison: comparison.ours.stats.get("aborts", "-"),
}


def main(arguments=None):
    """Run the modules and print a row for each; 0 if all came out as on upstream's loop, else 1."""
    parser = report.parser("python -m tests.compat", "Run Tornado's and asyncio's own tests on our loop, and compare with upstream's.")
    parser.set_defaults(timeout=TIMEOUT)
    parser.add_argument("modules", metavar="MODULE", nargs="*", default=SUITES, help="such as tornado.test.web_test, or a suite")
    parser.add_argument("--threads", type=report.threads, default=THREADS, metavar="N", help="how many run transactions (default %(default)s)")
    options = parser.parse_args(arguments)
    for name in [name for name in options.modules if name in SUITES and not suite(name).MODULES]:
        print(f"{name}: this interpreter came without the tests", file=sys.stderr)
    modules = [module for name in options.modules for module in (suite(name).MODULES if name in SUITES else [name])]
    for module in modules:
        try:
            suite_of(module)
        except ValueError as e:
            parser.error(str(e))
    good = report.reports(
        modules, lambda module, inject: compare(module, inject, options.seed, options.timeout, options.threads), options,
        FIGURES, ("on upstream's loop", f"on ours, {options.threads} threads"),
        "on ours: tests in which transactions committed.  strayed: others that use a selector loop.  "
        "exclusive: transactions that had to run alone.  aborts: attempts that were rolled back.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
