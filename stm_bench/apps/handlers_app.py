"""Tornado: handlers as people write them, that compute for a chosen while.

``GET /hello`` answers a few words, ``GET /primes/N`` the sum of the primes up to N, ``GET /PROGRAM/N`` the checksum of N rounds of
one of stm_bench.programs.  What else takes next to nothing: JSON, a static file, a redirect, a form that is posted, messages that are
sent back over a web socket.
"""

import asyncio
from pathlib import Path

import tornado.httpserver
import tornado.web
import tornado.websocket

from stm_bench.primes import primes
from stm_bench.programs import load

GREETING = "Hello, world"
STATIC = Path(__file__).parent  # this file is what is served from it
RECORDS = [{"id": n, "name": "record %d" % n, "tags": ["a", "b"], "price": n / 4} for n in range(16)]  # about 1 kB of JSON
PROGRAMS = {name: load(name) for name in ("genexprs", "catalogue", "template")}


class Hello(tornado.web.RequestHandler):
    def get(self):
        self.write(GREETING)


class Records(tornado.web.RequestHandler):
    def get(self):
        self.write({"records": RECORDS})


class Form(tornado.web.RequestHandler):
    def post(self):
        self.write("%s is %d" % (self.get_body_argument("name"), int(self.get_body_argument("age"))))


class Echo(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)


class Primes(tornado.web.RequestHandler):
    def get(self, limit):
        self.write(str(sum(primes(int(limit)))))


class Program(tornado.web.RequestHandler):
    def get(self, name, rounds):
        self.write(str(PROGRAMS[name].run(int(rounds))))


async def serve(port, given):
    app = tornado.web.Application(
        [
            (r"/hello", Hello),
            (r"/json", Records),
            (r"/static/(.*)", tornado.web.StaticFileHandler, {"path": STATIC}),
            (r"/redirect", tornado.web.RedirectHandler, {"url": "/hello", "permanent": False}),
            (r"/form", Form),
            (r"/echo", Echo),
            (r"/primes/([0-9]+)", Primes),
            (r"/(%s)/([0-9]+)" % "|".join(PROGRAMS), Program),
        ]
    )
    tornado.httpserver.HTTPServer(app).listen(port)
    await asyncio.Event().wait()
