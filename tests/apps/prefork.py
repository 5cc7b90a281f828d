"""A server in several processes, which share the listening socket: forked before any of them has a loop.

    prefork.py COUNT        prints its port, then serves

    /       the number of the process that answers, and its id
"""

import asyncio
import os
import sys

import tornado.httpserver
import tornado.netutil
import tornado.process
import tornado.web


class Who(tornado.web.RequestHandler):
    def get(self):
        self.write({"number": tornado.process.task_id(), "process": os.getpid()})


async def serve(sockets):
    app = tornado.web.Application([(r"/", Who)])
    tornado.httpserver.HTTPServer(app).add_sockets(sockets)
    await asyncio.Event().wait()


if __name__ == "__main__":
    listening = tornado.netutil.bind_sockets(0, "127.0.0.1")
    print(listening[0].getsockname()[1], flush=True)
    tornado.process.fork_processes(int(sys.argv[1]))
    asyncio.run(serve(listening))
