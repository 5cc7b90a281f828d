"""A handler that asks another server for something, and then does something with it.

    fetching.py CLIENT        prints its port, then serves

    /piece/N    something to fetch
    /relay/N    fetches /piece/N of itself by that client (aiohttp, httpx, tornado): its text, and whether what is done with it keeps
                others waiting
"""

import asyncio
import sys

import tornado.httpclient
import tornado.httpserver
import tornado.netutil
import tornado.web

from tornado.stm import core


class Piece(tornado.web.RequestHandler):
    def get(self, number):
        self.write(f"piece {number} " * 100)


class Relay(tornado.web.RequestHandler):
    def initialize(self, fetch):
        self.fetch = fetch

    async def get(self, number):
        piece = await self.fetch(f"http://{self.request.host}/piece/{number}")
        self.write({"piece": piece, "keeps_others_waiting": core.keeps_others_waiting()})


async def client_named(name):
    """The coroutine function that fetches a text by its address."""
    if name == "aiohttp":
        import aiohttp

        session = aiohttp.ClientSession()

        async def fetch(url):
            async with session.get(url) as response:
                return await response.text()

    elif name == "httpx":
        import httpx

        client = httpx.AsyncClient(timeout=60)

        async def fetch(url):
            return (await client.get(url)).text

    else:

        async def fetch(url):
            answer = await tornado.httpclient.AsyncHTTPClient().fetch(url, connect_timeout=60, request_timeout=60)
            return answer.body.decode()

    return fetch


async def main(name):
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    app = tornado.web.Application([(r"/piece/(\d+)", Piece), (r"/relay/(\d+)", Relay, {"fetch": await client_named(name)})])
    tornado.httpserver.HTTPServer(app).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
