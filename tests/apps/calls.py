"""Calls of a service of gRPC (grpclib), all on one connection, from handlers.

    calls.py                  prints its port, then serves

    /learn/N    a call that computes for longer than a step that is short
    /meet/N     a call that stays in the service until another one is there, too, but not for ever

Each answers its number, and whether there have been two at once.
"""

import asyncio
import json
import time

import grpclib.client
import grpclib.const
import grpclib.encoding.base
import grpclib.server
import tornado.httpserver
import tornado.netutil
import tornado.web

from tornado.stm import core
from tornado.stm.core import LONG, trusted

LONGEST = 10  # seconds that a call waits for another one

inside, have_met = set(), []


@trusted
def compute():
    until = time.thread_time() + 2 * LONG
    while time.thread_time() < until:
        pass


@trusted
def meets(number):
    """Are there two at once?  Not seen by transactions, which could wait for each other."""
    inside.add(number)
    give_up = time.monotonic() + LONGEST
    while not have_met and time.monotonic() < give_up and not core.is_unwinding():
        if len(inside) > 1:
            have_met.append(True)
        time.sleep(0.001)
    inside.discard(number)
    return bool(have_met)


class Json(grpclib.encoding.base.CodecBase):
    __content_subtype__ = "json"

    def encode(self, message, message_type):
        return json.dumps(message).encode()

    def decode(self, data, message_type):
        return json.loads(data)


class Service:
    async def call(self, stream):
        kind, number = await stream.recv_message()
        met = compute() if kind == "learn" else meets(number)
        await stream.send_message([number, bool(met)])

    def __mapping__(self):
        return {"/Service/Call": grpclib.const.Handler(self.call, grpclib.const.Cardinality.UNARY_UNARY, list, list)}


class Call(tornado.web.RequestHandler):
    def initialize(self, call):
        self.call = call

    async def get(self, kind, number):
        self.write(json.dumps(await self.call([kind, int(number)])))


async def main():
    server = grpclib.server.Server([Service()], codec=Json())
    [listens] = tornado.netutil.bind_sockets(0, "127.0.0.1")
    await server.start(sock=listens)
    channel = grpclib.client.Channel(*listens.getsockname(), codec=Json())
    call = grpclib.client.UnaryUnaryMethod(channel, "/Service/Call", list, list)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    app = tornado.web.Application([(r"/(learn|meet)/(\d+)", Call, {"call": call})])
    tornado.httpserver.HTTPServer(app).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
