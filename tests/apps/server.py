"""The server of the tests: plain Tornado handlers on shared state, ``server.py THREADS TICKETS``.

The first part of a path is a room: each room has a state of its own, made by the first request to it.

Environment: ABORT_RATE and ABORT_SEED inject aborts; BARRIERS=off switches the barriers off, once it serves.
"""

import asyncio
import logging
import os
import sys
import time

import tornado.httpserver
import tornado.netutil
import tornado.web

import histories
import tornado.stm
from tornado.stm import core


class Handler(tornado.web.RequestHandler):
    def prepare(self):
        rooms = self.application.rooms
        room = self.path_args.pop(0)
        if room not in rooms:
            histories.work()
            rooms[room] = histories.State(self.application.tickets)
        self.state = rooms[room]

    def number(self, name):
        return int(self.get_argument(name))


class Count(Handler):
    def get(self):
        self.write({"value": histories.count(self.state)})


class Transfer(Handler):
    def get(self):
        source, target = self.get_argument("source"), self.get_argument("target")
        self.write({"sums": histories.transfer(self.state, source, target, self.number("amount"))})


class Audit(Handler):
    def get(self):
        self.write({"sums": histories.audit(self.state)})


class Sell(Handler):
    def get(self):
        self.write({"ticket": histories.sell(self.state, self.get_argument("buyer"))})


class Append(Handler):
    def get(self):
        self.write({"index": histories.append(self.state, self.get_argument("item"))})


class Yielding(Handler):
    async def get(self):
        first = histories.paired(self.state)
        await asyncio.sleep(0)
        second = histories.paired(self.state)
        await asyncio.sleep(0)
        self.write({"steps": [first, second, histories.paired(self.state)]})


def meeting(state, key):
    future = state.meetings.get(key)
    if future is None:
        histories.work()
        future = state.meetings[key] = asyncio.get_running_loop().create_future()
    return future


class Wait(Handler):
    async def get(self):
        key = self.get_argument("key")
        first = histories.paired(self.state)
        told = await meeting(self.state, key)
        second = histories.paired(self.state)
        del self.state.meetings[key]
        self.write({"steps": [first, second], "told": told})


class Tell(Handler):
    async def get(self):
        first = histories.paired(self.state)
        if not (future := meeting(self.state, self.get_argument("key"))).done():
            future.set_result(first)
        await asyncio.sleep(0)
        self.write({"steps": [first, histories.paired(self.state)]})


class Echo(Handler):
    def post(self):
        self.set_header("Content-Type", "application/octet-stream")
        self.write(self.request.body)


class Stream(Handler):
    async def get(self):
        self.set_header("Content-Type", "text/plain")
        name = self.get_argument("name")
        for i in range(self.number("pieces")):
            histories.work(200)
            self.write("%s:%d;" % (name, i) * self.number("size"))
            await self.flush()
        self.write("end")


class Say(Handler):
    def get(self):
        name = self.get_argument("name")
        value = histories.count(self.state)
        print("printed", value, name)
        logging.getLogger("said").warning("logged %d %s", value, name)
        self.write({"value": value})


class Raise(Handler):
    def get(self):
        histories.count(self.state)
        self.state.items.append(self.get_argument("item"))
        self.write("never sent")
        raise RuntimeError("on purpose")


class RaiseLater(Handler):
    async def get(self):
        histories.count(self.state)
        await asyncio.sleep(0)
        self.state.items.append(self.get_argument("item"))
        raise RuntimeError("on purpose")


class Large(Handler):
    def get(self):
        self.write(b"x" * self.number("size"))


class Summary(Handler):
    def get(self):
        stats = core.stats()
        self.write(self.state.summary() | {"commits": stats["commits"], "aborts": stats["aborts"]})


async def main(tickets):
    handlers = [
        Count, Transfer, Audit, Sell, Append, Yielding, Wait, Tell, Echo, Stream, Say, Raise, RaiseLater, Large, Summary,
    ]
    application = tornado.web.Application([("/([a-z]+)/%s" % each.__name__.lower(), each) for each in handlers])
    application.rooms = {}
    application.tickets = tickets
    server = tornado.httpserver.HTTPServer(application)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    print("listening", sockets[0].getsockname()[1], flush=True)
    if os.environ.get("BARRIERS") == "off":
        histories.work = core.trusted(lambda rounds=0: time.sleep(0.001))  # so that others come in between, on one processor, too
        core.switch_barriers(False)
    if "ABORT_RATE" in os.environ:
        core.inject_aborts(float(os.environ["ABORT_RATE"]), int(os.environ["ABORT_SEED"]))
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
    tornado.stm.run(main(int(sys.argv[2])), threads=int(sys.argv[1]))
    print("ended", flush=True)
