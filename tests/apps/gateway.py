"""What a server asks of others: other servers, threads, processes, and time.

    gateway.py      prints its port, then serves

    /fetch?client=simple|curl&paths=A&paths=B     fetches these paths of itself at once; the bodies, in order
    /piece/N        something to fetch
    /threads/N      N sums that threads of an executor compute
    /pipe           POST: the body, through ``cat``, and what ``sh`` says of an exit
    /terminate      how two processes end that are told to: one of asyncio's, one of Tornado's
    /timers/N       N timers, all set at once, half of them cancelled: those that came, in their order
"""

import asyncio
import concurrent.futures
import signal
import subprocess

import tornado.concurrent
import tornado.curl_httpclient
import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.process
import tornado.simple_httpclient
import tornado.web

CLIENTS = {
    "simple": tornado.simple_httpclient.SimpleAsyncHTTPClient,
    "curl": tornado.curl_httpclient.CurlAsyncHTTPClient,
}


class Fetch(tornado.web.RequestHandler):
    async def get(self):
        client = CLIENTS[self.get_argument("client")]()
        host = f"http://{self.request.host}"
        answers = await asyncio.gather(*(client.fetch(host + path, connect_timeout=60, request_timeout=60) for path in self.get_arguments("paths")))
        self.write({"bodies": [answer.body.decode() for answer in answers]})


class Piece(tornado.web.RequestHandler):
    async def get(self, number):
        await asyncio.sleep(0)
        self.write(f"piece {number} " * 1000)


class Threads(tornado.web.RequestHandler):
    executor = concurrent.futures.ThreadPoolExecutor(3)

    @tornado.concurrent.run_on_executor
    def triangle(self, number):
        return sum(range(number + 1))

    async def get(self, count):
        loop = tornado.ioloop.IOLoop.current()
        here = [self.triangle(n) for n in range(int(count))]
        there = [loop.run_in_executor(None, divmod, n, 7) for n in range(int(count))]
        try:
            await loop.run_in_executor(None, divmod, 1, 0)
        except ZeroDivisionError as e:
            self.write({"sums": await asyncio.gather(*here), "pairs": await asyncio.gather(*there), "failed": str(e)})


class Pipe(tornado.web.RequestHandler):
    async def post(self):
        cat = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        output, _ = await cat.communicate(self.request.body)
        command = ["sh", "-c", "echo from the shell; exit 3"]
        shell = tornado.process.Subprocess(command, stdout=tornado.process.Subprocess.STREAM)
        said = await shell.stdout.read_until_close()
        status = await shell.wait_for_exit(raise_error=False)
        self.write({"output": output.decode(), "cat": cat.returncode, "said": said.decode(), "shell": status})


class Terminate(tornado.web.RequestHandler):
    async def get(self):
        first = await asyncio.create_subprocess_exec("sleep", "1000")
        first.terminate()
        second = tornado.process.Subprocess(["sleep", "1000"])
        second.proc.send_signal(signal.SIGINT)
        self.write({"status": [await first.wait(), await second.wait_for_exit(raise_error=False)]})


class Timers(tornado.web.RequestHandler):
    async def get(self, count):
        loop = asyncio.get_running_loop()
        came, done = [], asyncio.Event()
        start = loop.time() + 0.02
        for i in range(int(count)):
            loop.call_at(start + (i * 7919 % int(count)) * 1e-5, came.append, i * 7919 % int(count))
            loop.call_later(0.01, came.append, "cancelled").cancel()
        loop.call_at(start + 0.01 + int(count) * 1e-5, done.set)
        await done.wait()
        self.write({"came": came})


async def main():
    app = tornado.web.Application(
        [
            (r"/fetch", Fetch),
            (r"/piece/(\d+)", Piece),
            (r"/threads/(\d+)", Threads),
            (r"/pipe", Pipe),
            (r"/terminate", Terminate),
            (r"/timers/(\d+)", Timers),
        ]
    )
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(app).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
