"""The command line: ``python -m tests.strangers``."""

import sys

from tests.comparison import Comparison, Run, report

from . import Unavailable, compare


def main(arguments=None):
    """Run the packages' tests and print a row for each; 0 if all came out as they do plainly, else 1."""
    parser = report.parser(
        "python -m tests.strangers", "Run tests of packages from the index beside each other as transactions, and compare with plain runs.")
    parser.add_argument("packages", metavar="PACKAGE", nargs="+", help="its name on the index, perhaps with ==VERSION")
    parser.add_argument("--folder", default="build/strangers", help="where the packages are kept (default %(default)s)")
    parser.add_argument("--threads", type=report.threads, default=2, metavar="N", help="for transactions (default %(default)s)")
    options = parser.parse_args(arguments)

    def comparison(package, inject):
        try:
            return compare(package, options.folder, inject, options.seed, options.threads, options.timeout)
        except Unavailable as why:
            return Comparison(package, Run(end=str(why)), Run(), {})

    good = report.reports(
        options.packages, comparison, options, report.FIGURES, ("plainly", "as transactions"),
        report.FIGURES_MEAN)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
