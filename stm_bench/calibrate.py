"""How large must a request be to take a given time here?

python -m stm_bench.calibrate SECONDS     prints the N of a GET /N that takes about so long
"""

import sys
import time

from stm_bench.primes import LARGEST, primes


def request_size(seconds):
    """The N, in whole hundreds where it is larger than that, whose primes take about `seconds` on one thread."""
    size = 100
    while size < LARGEST:
        spent = min(time_primes(size) for _ in range(3))
        if spent > seconds / 5:
            # The work grows almost as the square of N.  One step from a fifth of the time is near enough.
            size = size * (seconds / spent) ** 0.53
            break
        size *= 2
    size = min(int(size), LARGEST)
    return max(2, size if size < 100 else round(size, -2))


def rounds(program, seconds):
    """How many rounds of one of stm_bench.programs take about `seconds` of processor time here."""
    return max(1, round(seconds / min(_spent(program) for _ in range(5))))


def _spent(program):
    """Seconds of processor time that one round takes."""
    start = time.thread_time()
    program.run(1)
    return time.thread_time() - start


def time_primes(size):
    start = time.perf_counter()
    primes(size)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(request_size(float(sys.argv[1])))
