"""Pages that compute, and pages that take next to nothing."""

import json
import sys

from stm_bench import programs
from stm_bench.calibrate import request_size, rounds
from stm_bench.primes import positive, primes
from stm_bench.workloads.workload import Pages, by_name


class Primes(Pages):
    """The primes up to a number, each tested by every number below it (the page of 2014)."""

    settings = {"milliseconds": (positive, "that a request takes, about")}

    def answer(self, state, path):
        return json.dumps({"primes": primes(int(path))})

    def path(self):
        return str(request_size(self.milliseconds / 1000))


class CompiledPrimes(Primes):
    """The same with its inner loop compiled by numba; on PyPy, for which there is no numba, as it is."""

    def state(self):
        if sys.implementation.name == "pypy":
            return primes
        import numba

        @numba.njit(nogil=True)
        def primes_into(found, limit):
            count = 0
            for n in range(2, limit + 1):
                for i in range(2, n):
                    if n % i == 0:
                        break
                else:
                    found[count] = n
                    count += 1
            return count

        import numpy

        def compiled(limit):
            found = numpy.empty(limit, dtype="int64")
            return found[: primes_into(found, limit)].tolist()

        compiled(10)  # compiles it
        if "tornado.stm" in sys.modules:  # what a user adds: it changes nothing but the array that it is given
            from tornado.stm import effects

            effects.declare(primes_into, "MUTATES")
        return compiled

    def answer(self, state, path):
        return json.dumps({"primes": state(int(path))})


class Computing(Pages):
    """The checksum of so many rounds of one of stm_bench.programs."""

    settings = {"milliseconds": (positive, "that a request takes, about")}

    def state(self):
        return programs.load(self.program)

    def answer(self, state, path):
        return str(state.run(int(path)))

    def path(self):
        return str(rounds(programs.load(self.program), self.milliseconds / 1000))


class Records(Pages):
    """About 1 kB of JSON."""

    RECORDS = [{"id": n, "name": "record %d" % n, "tags": ["a", "b"], "price": n / 4} for n in range(16)]

    def answer(self, state, path):
        return json.dumps({"records": self.RECORDS})


class Hello(Pages):
    def answer(self, state, path):
        return "Hello, world"


BUSY = "What transactions cost: the threads compute, and nothing that changes is shared."
TRIVIAL = "The request itself: to read and to answer it is all there is to do, and in transactions that costs more."
WORKLOADS = by_name(
    Primes(
        "primes", "the primes up to N by trial division, about 50 ms", milliseconds=50, target=1.85, limits=BUSY,
        published="2014, 4 cores, N 10,000, 50 clients, requests/s: PyPy-STM on 1, 2, 3 and 4 threads 9.3, 16.4, 20.4 and 24.2; PyPy 2.4 14.4, "
        "CPython 2.7 3.2.",
    ),
    Primes("primes-small", "the same, about 2 ms", milliseconds=2, limits="The request itself, which is a tenth of the time."),
    CompiledPrimes(
        "primes-numba", "primes, the inner loop compiled by numba", milliseconds=50, needs=("numba",),
        limits="The request itself, which is a tenth of the time: the compiled loop takes the rest.",
    ),
    Computing("sieve", "primes by generator expressions, about 10 ms", program="genexprs", milliseconds=10, target=1.3, limits=BUSY),
    Computing(
        "catalogue", "2,000 shared objects filtered, grouped and sorted, about 10 ms", program="catalogue", milliseconds=10, target=1.3,
        limits="Reading what is shared: each of the 2,000 objects is looked at anew by every request.",
    ),
    Computing("template", "a page of tornado.template, about 10 ms", program="template", milliseconds=10, target=1.3, limits=BUSY),
    Records("json", "1 kB of JSON", target=1.3, limits=TRIVIAL),
    Hello("hello", "a few words, asked for by ten at the same time (PythonPlus)", clients=10, target=1.3, limits=TRIVIAL),
    Hello("hello-1", "the same, by one", clients=1, limits=TRIVIAL),
)  # fmt: skip
