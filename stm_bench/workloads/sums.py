"""Servers without HTTP: numbers come in lines, and their sums go back.

`sums` is the server of Beazley's "Yieldable Threads" (2010): the sum of 1 to n, added up one by one.  `affinity` is that of koder-ua
(2013): many small messages on many connections, with a little work for each.
"""

import asyncio
import functools
import socket

import tornado.gen
import tornado.iostream
import tornado.netutil
import tornado.tcpserver

from stm_bench.errors import WrongAnswer
from stm_bench.workloads import client
from stm_bench.workloads.client import HOST
from stm_bench.workloads.workload import Workload, by_name, natural


def add_up(n):
    total = 0
    for i in range(1, n + 1):
        total += i
    return total


class Server(tornado.tcpserver.TCPServer):
    """`compute` is what is done with a number; it may return what is to be awaited."""

    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    async def handle_stream(self, stream, address):
        try:
            while True:
                line = await stream.read_until(b"\n")
                result = self.compute(int(line))
                if not isinstance(result, int):
                    result = await result
                await stream.write(b"%d\n" % result)
        except tornado.iostream.StreamClosedError:
            pass


class YieldingServer(Server):
    """Beazley's way: what a handler yields is a function and its arguments, for others to compute; it goes on with what they return."""

    @tornado.gen.coroutine
    def handle_stream(self, stream, address):
        try:
            while True:
                line = yield stream.read_until(b"\n")
                total = yield add_up, int(line)
                yield stream.write(b"%d\n" % total)
        except tornado.iostream.StreamClosedError:
            pass


def computed(call):
    """What upstream makes of it here: Tornado itself knows no tuples."""
    function, *args = call
    future = asyncio.get_running_loop().create_future()
    future.set_result(function(*args))
    return future


class Sums(Workload):
    server = Server
    settings = {"n": (natural, "up to which numbers are added")}

    async def serve(self, port, how):
        compute = add_up
        if how.kind != "stm" and self.server is YieldingServer:
            tornado.gen.convert_yielded.register(tuple, computed)
        if how.kind == "executor":
            compute = functools.partial(asyncio.get_running_loop().run_in_executor, None, add_up)
        server = self.server(compute)
        server.add_sockets(tornado.netutil.bind_sockets(port, HOST, family=socket.AF_INET, reuse_port=how.kind == "loops"))
        await asyncio.Event().wait()

    def load(self, servers, seconds):
        right = b"%d\n" % (self.n * (self.n + 1) // 2)

        def ask(connection):
            return b"%d\n" % self.n

        def take(connection):
            received, connection.received = connection.received, b""
            if received != right:
                raise WrongAnswer("server %s sent %.60r for %d" % (connection.server.name, received, self.n))
            return 1

        return client.ask_on(servers, self.clients, seconds, ask, take)


WORKLOADS = by_name(
    Sums(
        "sums", "the sum of 1 to 25,000 over TCP", n=25_000, target=1.8,
        limits="What transactions cost: the threads compute, and nothing is shared.",
        published="Beazley, 2010: 1000 of them by 1, 2, 4 and 8 clients in 4.3, 7.8, 9.5 and 10.2 s with threads, 4.5, 2.3, 1.5 and 1.6 s with "
        "processes.",
    ),
    Sums(
        "sums-yielding", "the same, the handler yields (function, n)", n=25_000, server=YieldingServer, kinds=("plain", "processes", "stm"),
        limits="What transactions cost: what is yielded is computed in some of their own.",
    ),
    Sums(
        "affinity", "small messages on many connections, 0.1 ms of work each", n=500, clients=32, kinds=(*Workload.kinds, "pinned"),
        limits="The message itself: reading and sending it is most of what there is to do.",
        published="koder-ua, 2013: bound to one core, a server with a GIL took 4.7 s instead of 8.3, for 4 connections.",
    ),
)  # fmt: skip
