#!/usr/bin/env pypy-stm
"""The primes server of 2014, for PyPy-STM, Python 2.7 and Tornado 4: ``GET /N`` answers ``{"primes": [...]}``.

    primes.py [THREADS] [--port 8888] [--plain | --contended]

Each number is tested by every number below it, on purpose.  Without THREADS, it runs on as many as the interpreter has
in parallel.  --plain runs upstream's loop, for comparison and on other interpreters; --contended leaves Tornado's own
contention as it is.
"""

from __future__ import absolute_import, division, print_function

import argparse
import sys

from tornado import web
from tornado.ioloop import IOLoop


def is_prime(n):
    for i in range(2, n):
        if n % i == 0:
            return False
    return n >= 2


class PrimesHandler(web.RequestHandler):
    def get(self, limit):
        self.write({"primes": [n for n in range(2, int(limit) + 1) if is_prime(n)]})


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main():
    parser = argparse.ArgumentParser(description="Serves GET /N: the primes up to N, by trial division.")
    parser.add_argument("threads", nargs="?", type=positive, metavar="THREADS",
                        help="default: as many as run in parallel")
    parser.add_argument("--port", type=int, default=8888, help="default: %(default)s; 0: any that is free")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plain", action="store_true", help="on upstream's loop")
    how.add_argument("--contended", action="store_true", help="with the contention that is in Tornado")
    options = parser.parse_args()
    if not options.plain:
        try:
            IOLoop.configure(
                "tornado.platform.pypystm.STMIOLoop", threads=options.threads, decontend=not options.contended)
        except ImportError as error:
            parser.error("%s (--plain runs on any interpreter)" % error)
    server = web.Application([(r"/([0-9]{1,5})", PrimesHandler)]).listen(options.port)
    port = list(server._sockets.values())[0].getsockname()[1]
    print("serving http://localhost:%d/10000" % port)
    sys.stdout.flush()
    try:
        IOLoop.current().start()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
