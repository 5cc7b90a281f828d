"""Runs one program in this process, plain or each round of it in one transaction: for profilers.

python -m stm_bench.programs richards --transaction --rounds 3 --size 5
valgrind --tool=callgrind python -m stm_bench.programs richards --transaction --rounds 3 --size 1

The first round of a transaction also puts the barriers in: what one more round costs is the difference between a run
with that round and a run without.
"""

import sys

from stm_bench import engine_worker
from stm_bench.errors import OneLineParser
from stm_bench.primes import positive
from stm_bench.programs import PROGRAMS, load


def main():
    parser = OneLineParser(prog="stm_bench.programs", description=__doc__.partition("\n")[0])
    parser.add_argument("program", choices=PROGRAMS)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--plain", action="store_const", dest="how", const="plain")
    how.add_argument("--transaction", action="store_const", dest="how", const="transaction")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="how often it is run (%(default)s)")
    parser.add_argument("--size", type=positive, metavar="N", help="of each round (default: what takes about 15 ms)")
    options = parser.parse_args()
    size = options.size or load(options.program).ROUNDS
    measure = engine_worker.Worker(threads=2).measure
    for number in range(1, options.rounds + 1):
        found = measure("program", name=options.program, how=options.how, size=size, runs=1)
        print(
            "round %d: %.1f ms, checksum %d, exclusive %d"
            % (number, found["seconds"] * 1e3, found["result"], found["exclusives"])
        )
        for reason, count in found["reasons"].items():
            print("    exclusive: %d x %s" % (count, reason))
    return 0


if __name__ == "__main__":
    sys.exit(main())
