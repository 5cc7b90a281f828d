"""Tornado: handlers as people write them, that compute for a chosen while.

``GET /hello`` answers a few words, ``GET /primes/N`` the sum of the primes up to N, ``GET /PROGRAM/N`` the checksum of N rounds of
one of stm_bench.programs.
"""

import asyncio

import tornado.httpserver
import tornado.web

from stm_bench.primes import primes
from stm_bench.programs import load

GREETING = "Hello, world"
PROGRAMS = {name: load(name) for name in ("genexprs", "catalogue", "template")}


class Hello(tornado.web.RequestHandler):
    def get(self):
        self.write(GREETING)


class Primes(tornado.web.RequestHandler):
    def get(self, limit):
        self.write(str(sum(primes(int(limit)))))


class Program(tornado.web.RequestHandler):
    def get(self, name, rounds):
        self.write(str(PROGRAMS[name].run(int(rounds))))


async def serve(port, certificate):
    app = tornado.web.Application(
        [
            (r"/hello", Hello),
            (r"/primes/([0-9]+)", Primes),
            (r"/(%s)/([0-9]+)" % "|".join(PROGRAMS), Program),
        ]
    )
    tornado.httpserver.HTTPServer(app).listen(port)
    await asyncio.Event().wait()
