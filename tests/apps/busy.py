"""Handlers that compute until a file is there, over HTTP and web sockets.

    busy.py FOLDER [CERTIFICATE]        prints its port, then serves; with TLS if there is a certificate

    /until?file=FILE    computes until the file is there
    /thread/N           what a thread makes of N
    /relay/N            the same, asked of itself as a client
    /files/NAME         a file of FOLDER
    /room               a web socket; everybody gets what a member sends, once the file that it names is there
"""

import asyncio
import os
import ssl
import sys

import tornado.httpclient
import tornado.httpserver
import tornado.netutil
import tornado.web
import tornado.websocket


def compute_until(file):
    rounds = 0
    while not os.path.exists(file):
        rounds += 1
    return rounds


class Until(tornado.web.RequestHandler):
    def get(self):
        self.write({"rounds": compute_until(self.get_argument("file"))})


class Thread(tornado.web.RequestHandler):
    async def get(self, number):
        self.write({"parts": await asyncio.get_running_loop().run_in_executor(None, divmod, int(number), 10)})


class Relay(tornado.web.RequestHandler):
    async def get(self, number):
        client = tornado.httpclient.AsyncHTTPClient()
        url = f"http://{self.request.host}/thread/{number}"
        answer = await client.fetch(url, connect_timeout=60, request_timeout=60)
        self.set_header("Content-Type", "application/json")
        self.write(answer.body)


class Member(tornado.websocket.WebSocketHandler):
    members = set()

    def open(self):
        self.members.add(self)

    def on_message(self, file):
        compute_until(file)
        for member in self.members:
            member.write_message(file)

    def on_close(self):
        self.members.discard(self)


async def main(folder, certificate=None):
    tls = None
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    files = (r"/files/(.*)", tornado.web.StaticFileHandler, {"path": folder})
    app = tornado.web.Application(
        [(r"/until", Until), (r"/thread/(\d+)", Thread), (r"/relay/(\d+)", Relay), (r"/room", Member), files]
    )
    tornado.httpserver.HTTPServer(app, ssl_options=tls).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
