"""The command line: ``python -m tests.cpython_suites``."""

import sys

from tests.comparison import report

from . import LOOP_MODULES, MODULES, compare, compare_outside


def main(arguments=None):
    """Run the modules and print a row for each; 0 if all came out as they do plainly, else 1."""
    parser = report.parser(
        "python -m tests.cpython_suites", "Run modules of CPython's tests with each test as a transaction, and compare with a plain run.")
    parser.add_argument("modules", metavar="MODULE", nargs="*", help="such as test_list; default: all of ours")
    parser.add_argument("--outside", action="store_true", help="on the engine's evaluation loop, but in no transaction")
    options = parser.parse_args(arguments)
    if options.outside:
        if options.inject:
            parser.error("--outside and --inject: outside of transactions there are no aborts to inject")
        good = report.reports(
            options.modules or LOOP_MODULES, lambda module, inject: compare_outside(module, options.timeout), options, {},
            ("on the interpreter's loop", "on the engine's"), None)
        return 0 if good else 1
    good = report.reports(
        options.modules or MODULES, lambda module, inject: compare(module, inject, options.seed, options.timeout), options, report.FIGURES,
        ("plainly", "as a transaction"),
        report.FIGURES_MEAN)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
