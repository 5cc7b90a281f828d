"""A server that starts again when a file that it reads changes.

    reloaded.py FILE        prints its port when it knows the file, then serves

    /       what was in the file when it started, and what runs the loop
"""

import asyncio
import os
import sys

import tornado.autoreload
import tornado.httpserver
import tornado.netutil
import tornado.web


class Show(tornado.web.RequestHandler):
    def get(self):
        self.write({"text": text, "loop": type(asyncio.get_running_loop()).__name__})


class Looks(os.PathLike):
    """The same file, which tells when it is looked at: what changes before the first look does not count as changed."""

    def __init__(self, path):
        self.path, self.looked = path, False

    def __fspath__(self):
        self.looked = True
        return self.path


async def main():
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(tornado.web.Application([(r"/", Show)])).add_sockets(sockets)
    tornado.autoreload.watch(sys.argv[1])
    tornado.autoreload.watch(looks := Looks(sys.argv[1]))
    tornado.autoreload.start(check_time=20)
    while not looks.looked:
        await asyncio.sleep(0.01)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        text = file.read()
    asyncio.run(main())
