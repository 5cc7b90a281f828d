"""A server that the lifecycle tests start, load and end.

    server.py HOW      HOW: run, asyncio (under ``python -m tornado.stm``), ioloop (likewise), install, own-handler

It prints its port, and at the end how it ended.
"""

import asyncio
import signal
import socket
import sys
import time

import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web


class Busy(tornado.web.RequestHandler):
    """Computes for 30 ms, sleeps for 20 ms, answers 20,000 bytes."""

    async def get(self, name):
        end = time.process_time() + 0.03
        while time.process_time() < end:
            sum(range(500))
        await asyncio.sleep(0.02)
        self.write((name * 20000)[:20000])


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
        await asyncio.sleep(60)
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
                (r"/busy/(\w+)", Busy), (r"/streamed", Streamed), (r"/slow", Slow), (r"/fails", Fails), (r"/echo", Echo),
                (r"/large", Large),
            ]
        )
    )
    server.add_sockets([sock])
    print(sock.getsockname()[1], flush=True)


async def main():
    listen()
    try:
        await asyncio.Event().wait()
    finally:
        print("main is over", flush=True)


def own_handler(number, frame):
    print("own handler", flush=True)
    sys.exit(7)


if __name__ == "__main__":
    how = sys.argv[1]
    if how in ("run", "own-handler"):
        import tornado.stm

        if how == "own-handler":
            signal.signal(signal.SIGTERM, own_handler)
        tornado.stm.run(main(), threads=2)
    elif how == "ioloop":
        listen()
        tornado.ioloop.IOLoop.current().start()
    else:
        if how == "install":
            import tornado.stm

            tornado.stm.install(2)
        asyncio.run(main())
    print("the end", flush=True)
