"""A server whose handler a debugger stops in, or a measurement counts the lines of; it asks itself."""

import asyncio
import socket
import sys

import tornado.httpclient
import tornado.httpserver
import tornado.netutil
import tornado.web


def double(x):
    y = x * 2
    return y


def classify(n):
    if n < 0:
        return "negative"
    for i in range(3):
        n += i
    try:
        if n == 3:
            raise ValueError(n)
    except ValueError as e:
        return f"error {e}"
    finally:
        n = None
    return [x for x in "abc" if x != "b"]


class Measured(tornado.web.RequestHandler):
    async def get(self, n):
        await asyncio.sleep(0)
        self.write(str(classify(int(n))))
        async with asyncio.Lock():
            if n == "77":
                self.write("never")

    def post(self, n):
        self.write("never")


class Stops(tornado.web.RequestHandler):
    async def get(self):
        name = "world"
        await asyncio.sleep(0)
        breakpoint()
        answer = double(21)
        self.write(f"{name} {answer}")


async def main():
    (sock,) = tornado.netutil.bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server = tornado.httpserver.HTTPServer(tornado.web.Application([(r"/stops", Stops), (r"/(-?\d+)", Measured)]))
    server.add_sockets([sock])
    client = tornado.httpclient.AsyncHTTPClient()
    url = "http://127.0.0.1:%d/" % sock.getsockname()[1]
    for path in sys.argv[1:]:
        response = await client.fetch(url + path, connect_timeout=100, request_timeout=100)
        print("answer:", response.body.decode())
    server.stop()


asyncio.run(main())
