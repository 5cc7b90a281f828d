"""A server that takes its time: ``GET /SECONDS/N`` answers a page with 50 links that late, ``POST`` a word.

python -m stm_bench.delay_server --port PORT --stats FILE
"""

import argparse
import asyncio

import tornado.web

from stm_bench import app_server

PAGE = "<html>%s</html>" % "".join('<p>%s <a href="/page/%d">more</a>' % ("words " * 40, number) for number in range(50))


class Late(tornado.web.RequestHandler):
    async def get(self, seconds):
        await asyncio.sleep(float(seconds))
        self.write(PAGE)

    async def post(self, seconds):
        await asyncio.sleep(float(seconds))
        self.write("stored")


async def serve(port):
    tornado.web.Application([(r"/([0-9.]+)/[0-9]+", Late)]).listen(port)
    await asyncio.Event().wait()


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stats", required=True)
    options = parser.parse_args(arguments)
    app_server.run(lambda: asyncio.run(app_server.until_terminated(serve(options.port))), options.stats)


if __name__ == "__main__":
    main()
