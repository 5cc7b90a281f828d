#!/usr/bin/env python3
"""The primes server: ``GET /N`` answers ``{"primes": [...]}``, the primes up to N.

    primes.py [THREADS] [--port 8888]     on tornado.stm; without THREADS, on every core
    primes.py --upstream [--port 8888]    on plain asyncio, without tornado.stm

Each number is tested by every number below it, on purpose: a request is a lump of pure Python that takes milliseconds,
which is what one loop on one core is bad at.  The application is plain Tornado; only the last lines, which start it,
know of tornado.stm.
"""

import argparse
import asyncio
import errno
import json
import signal
import sys

import tornado.web

LARGEST = 100000  # the largest N answered: about half a minute of CPython


def is_prime(n):
    for i in range(2, n):
        if n % i == 0:
            return False
    return n >= 2


def primes(limit):
    return [n for n in range(2, limit + 1) if is_prime(n)]


class PrimesHandler(tornado.web.RequestHandler):
    def get(self, limit):
        limit = int(limit)
        if limit > LARGEST:
            raise tornado.web.HTTPError(400, "N is larger than %d", LARGEST)
        self.write({"primes": primes(limit)})


async def main(port, stop_signal=None):
    """Serves on `port` until cancelled, or until the process receives `stop_signal` where one is given.

    Raises OSError where the port cannot be opened.
    """
    stopped = asyncio.Event()
    if stop_signal is not None:  # whoever has been let in may send it at once
        asyncio.get_running_loop().add_signal_handler(stop_signal, stopped.set)
    app = tornado.web.Application([(r"/([0-9]{1,9})", PrimesHandler)])
    app.listen(port)
    print("serving http://localhost:%d/10000" % port, flush=True)
    await stopped.wait()


def positive(text):
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError("not a positive integer: %r" % text)
    return int(text)


def port_number(text):
    number = positive(text)
    if number > 65535:
        raise argparse.ArgumentTypeError("not a port: %r" % text)
    return number


def parse_arguments():
    parser = argparse.ArgumentParser(description="Serves GET /N: the primes up to N, by trial division.")
    parser.error = lambda message: sys.exit(fail(message))
    parser.add_argument("threads", nargs="?", type=positive, metavar="THREADS", help="default: one for each usable CPU")
    parser.add_argument("--port", type=port_number, default=8888, help="default: %(default)s")
    parser.add_argument("--upstream", action="store_true", help="run on plain asyncio, without tornado.stm")
    parser.add_argument("--stats", metavar="FILE", help="when the server stops, write its transaction counts as JSON")
    options = parser.parse_args()
    if options.upstream and options.threads is not None:
        parser.error("--upstream runs on one thread: leave THREADS out")
    return options


def fail(message):
    """Prints one line on stderr; returns the exit status of bad usage, 2."""
    print("primes.py: %s" % message, file=sys.stderr)
    return 2


def command_line():
    """Serves until SIGTERM or Ctrl-C; returns the exit status."""
    options = parse_arguments()
    stats = dict
    try:
        if options.upstream:
            asyncio.run(main(options.port, stop_signal=signal.SIGTERM))
        else:
            import tornado.stm
            import tornado.stm.transaction

            stats = tornado.stm.transaction.stats
            tornado.stm.run(main(options.port), threads=options.threads)
    except KeyboardInterrupt:
        pass
    except ImportError as error:
        return fail("tornado.stm cannot be imported: %s" % error)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return fail("port %d is in use: stop the other server or choose another --port" % options.port)
        return fail("cannot serve on port %d: %s" % (options.port, error))
    if options.stats:
        with open(options.stats, "w") as file:
            json.dump(stats(), file)
    return 0


if __name__ == "__main__":
    sys.exit(command_line())
