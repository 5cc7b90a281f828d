"""Tornado: ``GET /N`` answers the primes up to N; so does a web socket, ``/room``, and tells the room how many there are."""

import asyncio
import ssl

import tornado.httpserver
import tornado.web
import tornado.websocket

from stm_bench.primes import primes


class Primes(tornado.web.RequestHandler):
    def get(self, limit):
        self.write({"primes": primes(int(limit))})


class Member(tornado.websocket.WebSocketHandler):
    """Gets back ``primes N: HOW MANY`` for each N that it sends, and ``news N: HOW MANY`` for what others send."""

    members: set["Member"] = set()

    def open(self):
        self.members.add(self)

    def on_message(self, message):
        found = len(primes(int(message)))
        for member in self.members:
            kind = "primes" if member is self else "news"
            member.write_message(f"{kind} {message}: {found}")

    def on_close(self):
        self.members.discard(self)


async def serve(port, given):
    tls = None
    if given:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(given)
    app = tornado.web.Application([(r"/room", Member), (r"/([0-9]+)", Primes)])
    tornado.httpserver.HTTPServer(app, ssl_options=tls).listen(port)
    await asyncio.Event().wait()
