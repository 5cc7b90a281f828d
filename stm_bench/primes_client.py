"""The primes server as a process, for benchmarks that load it themselves: how it is run, asked and checked."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from stm_bench.errors import BenchmarkError, WrongAnswer
from stm_bench.servers import ROOT

APPLICATION = str(ROOT / "stm_bench" / "primes.py")
REQUEST_SECONDS = 0.05  # CPU time of one request
WARM_UP_CLIENTS, WARM_UP_EACH, WARM_UP_SIZE = 10, 40, 100  # small requests, enough for all code to be specialized


def command(threads):
    """Of the server on so many threads of tornado.stm; None: on upstream."""
    return [sys.executable, APPLICATION, "--upstream" if threads is None else str(threads)]


def check_answers(process, request_size):
    """Asks a server for a few answers at once and compares them with the truth.  Raises WrongAnswer."""
    sizes = [0, 2, WARM_UP_SIZE, request_size]
    with ThreadPoolExecutor(len(sizes)) as clients:
        answers = list(clients.map(lambda limit: ask(process, limit), sizes))
    for limit, answer in zip(sizes, answers):
        if answer != {"primes": sieve(limit)}:
            raise WrongAnswer("server %s answered GET /%d wrongly" % (process.name, limit))


def ask(process, limit):
    answer = process.ask("/%d" % limit)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise WrongAnswer("server %s answered GET /%d with no JSON: %s" % (process.name, limit, error)) from None


def sieve(limit):
    """The primes up to `limit`, found another way than the server does."""
    candidates = [True] * (limit + 1)
    for factor in range(2, int(limit**0.5) + 1):
        candidates[factor * factor :: factor] = [False] * len(range(factor * factor, limit + 1, factor))
    return [number for number in range(2, limit + 1) if candidates[number]]


def calibrated_size():
    """The size of a request that takes about REQUEST_SECONDS, timed in a process that does nothing else."""
    timing = [sys.executable, "-m", "stm_bench.calibrate", str(REQUEST_SECONDS)]
    done = subprocess.run(timing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError("cannot time a request: %s" % done.stderr.strip().splitlines()[-1])
    return int(done.stdout)
