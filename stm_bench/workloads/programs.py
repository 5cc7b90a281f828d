"""What is no server: programs that do something for a while, and then say how often.

Each is asked to run over HTTP, so that the ways to run it are up all the time and are measured in turns, as servers are.
"""

import asyncio
import http.server
import json
import random
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import tornado.httpclient
import tornado.web

from stm_bench.errors import WrongAnswer
from stm_bench.primes import is_prime
from stm_bench.workloads.client import HOST, Load
from stm_bench.workloads.workload import Workload, by_name, natural


class Run(tornado.web.RequestHandler):
    def initialize(self, program):
        self.program = program

    async def get(self, seconds):
        start = time.monotonic()
        count = await self.program.run(float(seconds))
        self.write({"rate": count / (time.monotonic() - start)})


class Program(Workload):
    """A coroutine, `run`, of one loop."""

    kinds = ("plain", "processes", "stm")
    clients = None

    async def run(self, seconds):
        """For about so long; returns how often something was done."""
        raise NotImplementedError

    async def serve(self, port, how):
        self.how = how
        tornado.web.Application([(r"/run/([0-9.]+)", Run, {"program": self})]).listen(port, HOST)
        await asyncio.Event().wait()

    def load(self, servers, seconds):
        with ThreadPoolExecutor(len(servers)) as asking:
            return Load(sum(asking.map(lambda server: rate(server, seconds), servers)))


def rate(server, seconds):
    """How often a second a program has done what it does.  Raises WrongAnswer where it has not, or does not tell."""
    text = server.ask("/run/%s" % seconds)
    try:
        told = json.loads(text)["rate"] / 1
    except (ValueError, LookupError, TypeError):
        raise WrongAnswer("server %s told no rate, but %.60r" % (server.name, text)) from None
    if not told:
        raise WrongAnswer("server %s has done nothing in %d s" % (server.name, seconds))
    return told


class Convoy(Program):
    """PythonPlus's hand-offs: a producer and a consumer coroutine with a queue for one; beside others that compute (`beside`)."""

    settings = {"beside": (natural, "coroutines that compute; 0: hand-offs alone")}
    unit = "hand-offs/s"
    kinds = ("plain", "stm")
    STEP = 60_000  # of those that compute: about 3 ms

    async def run(self, seconds):
        queue, end = asyncio.Queue(1), time.monotonic() + seconds
        others = [asyncio.ensure_future(self.compute()) for _ in range(self.beside)]
        consumer = asyncio.ensure_future(self.consume(queue))
        produced = 0
        while time.monotonic() < end:
            await queue.put(produced)
            produced += 1
        await queue.put(None)
        consumed = await consumer
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if consumed != list(range(produced)):
            raise ValueError("not all has been handed over in its order")
        return produced

    async def consume(self, queue):
        consumed = []
        while (item := await queue.get()) is not None:
            consumed.append(item)
        return consumed

    async def compute(self):
        while True:
            total = 0
            for number in range(self.STEP):
                total += number % 7
            await asyncio.sleep(0)


class Crawler(Program):
    """High Performance Python's crawler: pages from a server that takes 100 ms for each, at most 100 at a time; their links are looked for."""

    unit = "pages/s"
    delayed = True
    AT_ONCE = 100
    LINK = re.compile(r'<a href="([^"]*)">')

    async def run(self, seconds):
        client = tornado.httpclient.AsyncHTTPClient(force_instance=True, max_clients=self.AT_ONCE)
        end, found = time.monotonic() + seconds, []

        async def crawl(number):
            while time.monotonic() < end:
                page = await client.fetch("http://%s:%d/0.1/%d" % (HOST, self.how.delayed_by, number))
                links = self.LINK.findall(page.body.decode())
                if len(links) != 50:
                    raise ValueError("%d links in a page of 50" % len(links))
                found.append(len(links))
                number += self.AT_ONCE

        await asyncio.gather(*[crawl(number) for number in range(self.AT_ONCE)])
        client.close()
        return len(found)


class PrimesDb(Program):
    """High Performance Python's search for primes, each of which is stored over HTTP by a server that takes 50 ms for it."""

    unit = "primes/s"
    delayed = True
    AT_ONCE = 100
    LIMIT = 8192

    async def run(self, seconds):
        client = tornado.httpclient.AsyncHTTPClient(force_instance=True, max_clients=self.AT_ONCE)
        end, stored, numbers = time.monotonic() + seconds, [], iter(range(self.LIMIT * 1000))

        async def search():
            while time.monotonic() < end:
                number = next(numbers) % self.LIMIT
                if is_prime(number):
                    await client.fetch("http://%s:%d/0.05/%d" % (HOST, self.how.delayed_by, number), method="POST", body=b"")
                    stored.append(number)

        await asyncio.gather(*[search() for _ in range(self.AT_ONCE)])
        client.close()
        if not all(is_prime(number) for number in set(stored[:20])):
            raise ValueError("what was stored is no prime")
        return len(stored)


POINTS = 20_000  # about 3 ms


class Quarter:
    """Of a circle: how many of the points that were thrown lie within."""

    def __init__(self):
        self.thrown = self.within = self.chunks = 0

    def throw(self, seed):
        chance = random.Random(seed)
        within = sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(POINTS))
        self.thrown += POINTS
        self.within += within
        self.chunks += 1

    def check(self):
        if self.thrown != POINTS * self.chunks or abs(4 * self.within / self.thrown - 3.1416) > 0.1:
            raise ValueError("pi is %f" % (4 * self.within / self.thrown))


class Pi(Workload):
    """Pi by Monte Carlo: no loop, but transactions that add more of themselves to a TransactionQueue; or plain calls."""

    unit = "chunks/s"
    kinds = ("plain", "processes", "stm")
    clients = None
    load = Program.load

    def main(self, port, how):
        """Instead of `serve`: the main thread answers, and computes."""
        pi = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                start = time.monotonic()
                chunks = pi.run(float(self.path.rpartition("/")[2]), how)
                body = json.dumps({"rate": chunks / (time.monotonic() - start)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
        http.server.HTTPServer((HOST, port), Handler).serve_forever()

    def run(self, seconds, how):
        quarter, end = Quarter(), time.monotonic() + seconds
        if how.kind == "stm":
            self.run_queue(quarter, end, how.count)
        else:
            while time.monotonic() < end:
                quarter.throw(quarter.chunks)
        quarter.check()
        return quarter.chunks

    def run_queue(self, quarter, end, threads):
        from tornado.stm.transaction import TransactionQueue

        queue = TransactionQueue()

        def throw(seed):
            quarter.throw(seed)
            if time.monotonic() < end:
                queue.add(throw, seed + 1)

        for thread in range(4 * threads):
            queue.add(throw, thread << 20)
        queue.run(threads)


CLIENT = "The HTTP client: each request is about ten transactions, which compute little and cost more; they seldom meet."
WORKLOADS = by_name(
    Convoy(
        "convoy", "hand-offs from coroutine to coroutine, beside two that compute 3 ms each", beside=2,
        limits="The order of callbacks: what is short comes first, and the threads take turns at it.",
    ),
    Convoy(
        "convoy-alone", "the same with nothing beside", beside=0,
        limits="The hand-off itself: each step is a transaction, and there is one at a time to do.",
    ),
    Crawler(
        "crawler", "fetches pages that take 100 ms each, 100 at a time", limits=CLIENT,
        published="High Performance Python: 500 such pages in 52 s one by one, in 0.75 s 100 at a time (667/s).",
    ),
    PrimesDb(
        "primesdb", "tests numbers, and stores each prime over HTTP, which takes 50 ms", target=1.5, limits=CLIENT,
        published="High Performance Python: all 1,028 up to 8192 in 55.2 s one by one, in 4.1 s with batches of requests (251/s).",
    ),
    Pi(
        "pi", "Monte Carlo in transactions of 20,000 points",
        limits="What transactions cost: the threads compute, and meet at three counters at the end.",
    ),
)  # fmt: skip
