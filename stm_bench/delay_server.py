"""A server that takes its time: ``GET /SECONDS/N`` answers a page with 50 links that late, ``POST`` a word.

python -m stm_bench.delay_server --port PORT --stats FILE

It reads and writes what it needs of HTTP itself: the fewer cores it takes, the more are left to those that are measured.
"""

import argparse
import asyncio
import re

from stm_bench import app_server

PAGE = "<html>%s</html>" % "".join('<p>%s <a href="/page/%d">more</a>' % ("words " * 40, number) for number in range(50))
REQUEST = re.compile(rb"(GET|POST) /([0-9.]+)/[0-9]+ HTTP/1")


def answer(status, text):
    return ("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)).encode()


ANSWERS = {b"GET": answer("200 OK", PAGE), b"POST": answer("200 OK", "stored")}
NOT_FOUND = answer("404 Not Found", "")


class Late(asyncio.Protocol):
    """One connection, whose client asks again when it has been answered; bodies are empty."""

    def __init__(self):
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            request = REQUEST.match(head)
            if request is None:
                self.transport.write(NOT_FOUND)
            else:
                asyncio.get_running_loop().call_later(float(request[2]), self.transport.write, ANSWERS[request[1]])


async def serve(port):
    await asyncio.get_running_loop().create_server(Late, port=port, backlog=1000)
    await asyncio.Event().wait()


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--stats", required=True)
    options = parser.parse_args(arguments)
    app_server.run(lambda: asyncio.run(app_server.until_terminated(serve(options.port))), options.stats)


if __name__ == "__main__":
    main()
