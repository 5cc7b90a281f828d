"""Bodies of all sizes: streamed up, streamed down, files and parts of them.

    files.py FOLDER [CERTIFICATE KEY]       prints its port, then serves; with TLS if there is a certificate

    /upload         PUT: the length and the SHA-1 of a body that is never in memory as a whole
    /rows/N         N lines, flushed one by one
    /classic/N      what N generator-based coroutines return
    /echo           POST: the body
    /files/NAME     a file of FOLDER
"""

import asyncio
import hashlib
import ssl
import sys

import tornado.gen
import tornado.httpserver
import tornado.netutil
import tornado.web


@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    def prepare(self):
        self.request.connection.set_max_body_size(1 << 30)
        self.length = 0
        self.digest = hashlib.sha1()

    async def data_received(self, chunk):
        await asyncio.sleep(0)
        self.length += len(chunk)
        self.digest.update(chunk)

    def put(self):
        self.write({"length": self.length, "sha1": self.digest.hexdigest()})


class Rows(tornado.web.RequestHandler):
    async def get(self, count):
        for i in range(int(count)):
            self.write(f"row {i}\n")
            await self.flush()


@tornado.gen.coroutine
def squared(number):
    yield tornado.gen.moment
    if number == 13:
        raise ValueError("thirteen")
    raise tornado.gen.Return(number**2)


class Classic(tornado.web.RequestHandler):
    @tornado.gen.coroutine
    def get(self, count):
        first = yield squared(3)
        others = yield [squared(n) for n in range(int(count))]
        named = yield {"five": squared(5)}
        try:
            yield squared(13)
        except ValueError as e:
            self.write({"first": first, "others": others, "named": named, "failed": str(e)})


class Echo(tornado.web.RequestHandler):
    def post(self):
        self.write(self.request.body)


async def main(folder, certificate=None, key=None):
    app = tornado.web.Application(
        [
            (r"/upload", Upload),
            (r"/rows/(\d+)", Rows),
            (r"/classic/(\d+)", Classic),
            (r"/echo", Echo),
            (r"/files/(.*)", tornado.web.StaticFileHandler, {"path": folder}),
        ]
    )
    tls = None
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(app, ssl_options=tls).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
