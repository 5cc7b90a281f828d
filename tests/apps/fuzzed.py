"""What the fuzzer's bytes meet, ``fuzzed.py [at-once]``: answers tell all that Tornado has made of a request.

Limits are small, so that bytes can go beyond them.  With ``at-once`` the kernel holds no small answer back (Nagle's
algorithm): it would forget it if the connection is closed, and thereby reset, with bytes left unread.  Environment: ABORT_RATE and
ABORT_SEED inject aborts.
"""

import asyncio
import hashlib
import logging
import os
import socket
import sys

import tornado.httpserver
import tornado.iostream
import tornado.netutil
import tornado.web
import tornado.websocket


def told(request):
    """All of a request but its body, in a form that JSON can write."""
    return {
        "method": request.method,
        "uri": request.uri,
        "version": request.version,
        "host": request.host,
        "ip": request.remote_ip,
        "protocol": request.protocol,
        "headers": list(request.headers.get_all()),
        "query": {name: list(map(repr, values)) for name, values in request.query_arguments.items()},
        "cookies": {name: morsel.value for name, morsel in request.cookies.items()},
    }


class Echo(tornado.web.RequestHandler):
    SUPPORTED_METHODS = (*tornado.web.RequestHandler.SUPPORTED_METHODS, "BREW")

    def get(self, *path):
        body = self.request.body
        files = {
            name: [(file.filename, file.content_type, repr(file.body)) for file in files]
            for name, files in self.request.files.items()
        }
        self.write(told(self.request) | {
            "path": path,
            "body": [len(body), repr(body[:200]), hashlib.sha1(body).hexdigest()],
            "arguments": {name: list(map(repr, values)) for name, values in self.request.body_arguments.items()},
            "files": files,
        })

    post = put = patch = delete = options = brew = head = get


class Later(Echo):
    """Answers after other requests may have been read."""

    async def get(self, *path):
        for _ in range(3):
            await asyncio.sleep(0)
        super().get(*path)

    post = put = head = get


@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    def prepare(self):
        if self.get_argument("limit", None) is not None:
            self.request.connection.set_max_body_size(int(self.get_argument("limit")))
        self.size, self.digest = 0, hashlib.sha1()

    async def data_received(self, chunk):
        self.size += len(chunk)
        self.digest.update(chunk)
        if self.get_argument("slow", None) is not None:
            await asyncio.sleep(0)

    def post(self):
        self.write(told(self.request) | {"size": self.size, "digest": self.digest.hexdigest()})

    put = post


class Refuse(tornado.web.RequestHandler):
    """Answers, or fails, before anything of the body has been read."""

    def prepare(self):
        raise tornado.web.HTTPError(int(self.get_argument("status", "403")))


class Pieces(tornado.web.RequestHandler):
    async def get(self):
        for i in range(int(self.get_argument("pieces", "3"))):
            self.write(f"piece {i}\n")
            await self.flush()
        if self.get_argument("fail", None) is not None:
            raise tornado.web.HTTPError(500)

    head = post = get


class Socket(tornado.websocket.WebSocketHandler):
    def check_origin(self, origin):
        return "evil" not in origin

    def select_subprotocol(self, subprotocols):
        return "chat" if "chat" in subprotocols else None

    def get_compression_options(self):
        return {} if "Sec-WebSocket-Extensions" in self.request.headers else None

    async def on_message(self, message):
        if message == "later":
            await asyncio.sleep(0)
        if message == "bye":
            self.close(1000, "bye")
        else:
            await self.write_message(message, binary=isinstance(message, bytes))

    def on_ping(self, data):
        self.write_message(b"ping " + data, binary=True)


class Quiet(tornado.web.RequestHandler):
    """Answers when what has come on other connections has been answered, on a loop that takes turns."""

    async def get(self):
        for _ in range(30):
            await asyncio.sleep(0)


async def main():
    application = tornado.web.Application(
        [("/(later)", Later), ("/upload", Upload), ("/refuse", Refuse), ("/pieces", Pieces), ("/socket", Socket),
         ("/quiet", Quiet), ("/(?!missing)(.*)", Echo)],
        websocket_max_message_size=4096,
    )
    server = tornado.httpserver.HTTPServer(
        application, max_header_size=4096, max_body_size=16384, chunk_size=1024, decompress_request=True, xheaders=True,
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1", backlog=1024)
    if sys.argv[1:] == ["at-once"]:
        sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those accepted inherit it
        tornado.iostream.IOStream.set_nodelay = lambda stream, value: None
    server.add_sockets(sockets)
    if "ABORT_RATE" in os.environ:
        from tornado.stm import core

        core.inject_aborts(float(os.environ["ABORT_RATE"]), int(os.environ["ABORT_SEED"]))
    print("listening", sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.getLogger("tornado").setLevel(logging.CRITICAL)
    asyncio.run(main())
