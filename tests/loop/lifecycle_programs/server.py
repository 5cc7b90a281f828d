"""A server that the lifecycle tests start, load and end.

    server.py HOW [GRACE]      HOW: run, asyncio (under ``python -m tornado.stm``), ioloop (likewise), install, own-handler,
                               takes-its-time
                               GRACE: seconds to answer in what has begun when SIGTERM comes; without, those of every program

It prints its port, and at the end how it ended.  On a slow machine, too, it comes to that end: nothing kills it before.
"""

import asyncio
import contextlib
import signal
import socket
import sys
import time

import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web

import tornado.stm
import tornado.stm.loop.graceful
import tornado.stm.program.runner


class Busy(tornado.web.RequestHandler):
    """Computes for 30 ms, sleeps for 20 ms, answers 20,000 bytes."""

    async def get(self, name):
        end = time.process_time() + 0.03
        while time.process_time() < end:
            sum(range(500))
        await asyncio.sleep(0.02)
        self.write((name * 20000)[:20000])


class Held(Busy):
    """Begins, and goes on when SIGTERM has come."""

    begun = 0

    async def get(self, name):
        type(self).begun += 1
        loop = asyncio.get_running_loop()
        while not loop.terminated:
            await asyncio.sleep(0.005)
        await super().get(name)


class Late(tornado.web.RequestHandler):
    """Answers a port; accepts the connections that have been made to it, and begins to read, when SIGTERM has come."""

    async def get(self):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.write(str(listener.getsockname()[1]))
        await self.finish()
        loop = asyncio.get_running_loop()
        while not loop.terminated:
            await asyncio.sleep(0.005)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = listener.accept()
                connection.setblocking(False)
                loop.add_reader(connection, self.read, connection)

    def read(self, connection):
        with contextlib.suppress(BlockingIOError):
            connection.recv(100)


class Begun(tornado.web.RequestHandler):
    """Answers how many requests are held."""

    def get(self):
        self.write(str(Held.begun))


class Streamed(tornado.web.RequestHandler):
    """Answers in ten pieces, 5 ms apart."""

    async def get(self):
        for i in range(10):
            self.write("%d" % i * 1000)
            await self.flush()
            await asyncio.sleep(0.005)


class Slow(tornado.web.RequestHandler):
    """Answers too late for a graceful end."""

    async def get(self):
        await asyncio.sleep(3600)
        self.write("at last")


class Fails(tornado.web.RequestHandler):
    """Changes the answer that comes next, then raises."""

    count = 0

    def get(self):
        type(self).count += 1
        if self.count % 2:
            self.write("never sent")
            raise RuntimeError("on purpose")
        self.write("fine")


class Echo(tornado.web.RequestHandler):
    def post(self):
        self.write(self.request.body)


class Large(tornado.web.RequestHandler):
    """More than the sockets' buffers take."""

    def get(self):
        self.write(b"x" * 20_000_000)


def listen():
    (sock,) = tornado.netutil.bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server = tornado.httpserver.HTTPServer(
        tornado.web.Application(
            [
                (r"/busy/(\w+)", Busy), (r"/held/(\w+)", Held), (r"/late", Late), (r"/begun", Begun), (r"/streamed", Streamed),
                (r"/slow", Slow), (r"/fails", Fails), (r"/echo", Echo), (r"/large", Large),
            ]
        )
    )
    server.add_sockets([sock])
    print(sock.getsockname()[1], flush=True)


def set_everywhere(name, value):
    """Set a constant of tornado.stm.loop.graceful, there and where it has been imported."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("tornado.stm.") and hasattr(module, name):
            setattr(module, name, value)


async def main():
    listen()
    try:
        await asyncio.Event().wait()
    finally:
        print("main is over", flush=True)


async def takes_its_time():
    """Has a handler from within the loop, as uvicorn does, and longer to end than this loop would give it."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: loop.call_soon_threadsafe(told.set))
    listen()
    try:
        await told.wait()
        await asyncio.sleep(2 * tornado.stm.loop.graceful.GRACE)
        print("took its time", flush=True)
    finally:
        print("main is over", flush=True)


def own_handler(number, frame):
    print("own handler", flush=True)
    sys.exit(7)


if __name__ == "__main__":
    how, *grace = sys.argv[1:]
    set_everywhere("PATIENCE", 60)
    if grace:
        set_everywhere("GRACE", float(*grace))
    if how == "takes-its-time":
        tornado.stm.run(takes_its_time(), threads=2)
    elif how in ("run", "own-handler"):
        if how == "own-handler":
            signal.signal(signal.SIGTERM, own_handler)
        tornado.stm.run(main(), threads=2)
    elif how == "ioloop":
        listen()
        tornado.ioloop.IOLoop.current().start()
    else:
        if how == "install":
            tornado.stm.install(2)
        asyncio.run(main())
    print("the end", flush=True)
