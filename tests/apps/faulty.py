"""What goes wrong in applications, ``faulty.py``: handlers that loop, swallow, recurse, allocate and contend.

Environment: ABORT_RATE and ABORT_SEED inject aborts; ALLOWANCE is how long others wait for one that runs and runs.
"""

import _thread
import asyncio
import gc
import logging
import os
import re
import socket
import threading
import time

import tornado.httpserver
import tornado.ioloop
import tornado.iostream
import tornado.netutil
import tornado.web
import tornado.websocket


class Handler(tornado.web.RequestHandler):
    def initialize(self, state):
        self.state = state

    def number(self, name):
        return int(self.get_argument(name))


class State:
    def __init__(self):
        self.served = 0
        self.flushed = 0
        self.closed = 0
        self.accepted = 0
        self.received = 0
        self.peer = None
        self.shared = 0
        self.swallowed = 0
        self.computed = 0
        self.table = dict.fromkeys(range(200), 0)
        self.ticks = 0
        self.new = []


class Count(Handler):
    def get(self):
        self.state.served += 1
        self.write(str(self.state.served))


class Stream(Handler):
    """Sends pieces as fast as the client reads them."""

    async def get(self):
        piece = b"p" * self.number("size")
        try:
            for _ in range(self.number("pieces")):
                self.write(piece)
                await self.flush()
                self.state.flushed += len(piece)
        except tornado.iostream.StreamClosedError:
            self.state.closed += 1


class Flushed(Handler):
    def get(self):
        self.write(str(self.state.flushed))


def is_wanted(thread):
    """Is this the main thread, or one that is not?  (`threading` says that all handlers are on the loop's thread.)

    If not, it computes a while: nobody goes on beside what has been short hundreds of times.
    """
    if thread in ("any", "main" if _thread.get_native_id() == os.getpid() else "other"):
        return True
    return sum(range(200_000)) < 0


class Spin(Handler):
    """Loops for ever: on the main thread, or on one that is not, or where it happens to be."""

    def get(self):
        if is_wanted(self.get_argument("on", "any")):
            if self.get_argument("holding", ""):
                self.state.shared += 1
            loop_for_ever()
        self.write("elsewhere")


def loop_for_ever():
    while True:
        pass


class Listen(Handler):
    """Listens at a port of its own, where the task of the first connection loops for ever."""

    def get(self):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self.accept, listener)
        self.write(str(listener.getsockname()[1]))

    def accept(self, listener):
        connection, _ = listener.accept()
        asyncio.create_task(self.serve(connection, first=self.state.accepted == 0))
        self.state.accepted += 1

    async def serve(self, connection, first):
        if first:
            loop_for_ever()
        connection.send(b"served")
        connection.close()


class Pair(Handler):
    """Sends a byte through a pair of sockets.  When the first arrives, something is scheduled that loops for ever; with the second
    that end is closed."""

    def get(self):
        if self.state.peer is None:
            end, self.state.peer = socket.socketpair()
            asyncio.get_running_loop().add_reader(end, self.receive, end)
        self.state.peer.send(b"x")

    def receive(self, end):
        end.recv(1)
        self.state.received += 1
        if self.state.received == 1:
            asyncio.get_running_loop().call_soon(loop_for_ever)
        else:
            asyncio.get_running_loop().remove_reader(end)
            end.close()


class Match(Handler):
    """Computes in C, for years if the text is long; where `Spin` loops."""

    def get(self):
        if not is_wanted(self.get_argument("on", "any")):
            self.write("elsewhere")
            return
        self.write(str(re.match("(a+)+$", "a" * self.number("length") + "b")))


class Halt(Handler):
    """From here on a thread of the program stops all others for a moment, twenty times a second."""

    def get(self):
        threading.Thread(target=stop_again_and_again, daemon=True).start()


def stop_again_and_again():
    while True:
        time.sleep(0.05)
        gc.collect()


class New(Handler):
    """Runs code that has never run before, and leaves garbage in cycles behind."""

    def get(self):
        namespace = {}
        exec("def function(n):\n    return [n, n]", namespace)
        for n in range(self.number("garbage")):
            cycle = namespace["function"](n)
            cycle.append(cycle)
        self.state.new.append(cycle[0])
        self.write(str(len(self.state.new)))


class Swallow(Handler):
    """Adds to what all of them add to, and swallows all that goes wrong."""

    def get(self):
        how = swallow if self.get_argument("how") == "baseexception" else swallow_bare
        for _ in range(self.number("rounds")):
            how(self.state)
        self.write(str(self.state.shared))


def swallow(state):
    try:
        add(state)
        raise KeyboardInterrupt
    except BaseException:
        state.swallowed += 1


def swallow_bare(state):
    try:
        add(state)
        raise SystemExit
    except:  # noqa: E722
        state.swallowed += 1
    finally:
        state.swallowed += 0


def add(state):
    before = state.shared
    for _ in range(100):
        pass
    state.shared = before + 1


class Recurse(Handler):
    def get(self):
        self.state.shared += 1
        deeper(self.state, 0)


def deeper(state, depth):
    state.table[depth % 200] = depth
    return deeper(state, depth + 1) + 1


class Allocate(Handler):
    """Needs more memory than there is, at once or little by little."""

    def get(self):
        self.state.shared += 1
        if self.get_argument("how") == "at-once":
            self.write(b"x" * (1 << 46))
        held = []
        while True:
            held.append(bytearray(1 << 20))


class Contend(Handler):
    """Reads and writes all of a table that everybody else reads and writes too."""

    def get(self):
        table = self.state.table
        keys = list(table)
        if self.get_argument("backwards", ""):
            keys.reverse()
        for key in keys:
            table[key] += 1
        self.write(str(len(set(table.values()))))


class Values(Handler):
    def get(self):
        state = self.state
        self.write({"shared": state.shared, "swallowed": state.swallowed, "computed": state.computed, "table": sorted(set(state.table.values()))})


class Echo(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)


class Compute(Handler):
    def get(self):
        total = 0
        for i in range(self.number("n")):
            total = (total * 31 + i) % 1000003
        self.state.computed += 1
        self.write(str(total))


class Later(Handler):
    async def get(self):
        await asyncio.sleep(0.001)
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        loop.call_later(0.001, called.set_result, "later")
        self.write(await called)


@tornado.web.stream_request_body
class Upload(Handler):
    def prepare(self):
        self.size = 0

    async def data_received(self, chunk):
        self.size += len(chunk)
        await asyncio.sleep(0)

    def post(self):
        self.write(str(self.size))


async def main():
    state = State()
    handlers = [
        Count, Stream, Flushed, Spin, Listen, Pair, Match, Halt, New, Swallow, Recurse, Allocate, Contend, Values, Compute, Later, Upload,
    ]
    application = tornado.web.Application(
        [(f"/{each.__name__.lower()}", each, {"state": state}) for each in handlers] + [("/echo", Echo)]
    )
    server = tornado.httpserver.HTTPServer(application)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1", backlog=2048)
    server.add_sockets(sockets)

    def tick():
        state.ticks += 1

    ticking = tornado.ioloop.PeriodicCallback(tick, 10)
    ticking.start()
    if os.environ.keys() & {"ABORT_RATE", "ALLOWANCE"}:
        from tornado.stm import core

        core.inject_aborts(float(os.environ.get("ABORT_RATE", 0)), int(os.environ.get("ABORT_SEED", 0)))
        core.set_allowance(float(os.environ.get("ALLOWANCE", 2)))
    print("listening", sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)
    asyncio.run(main())
