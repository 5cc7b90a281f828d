"""Text by lines, without HTTP: a server on TCP and on a Unix socket, a pipe, and signals.

    lines.py SOCKET         SOCKET: the path of the Unix socket; prints its port, then serves

Each line that a client sends is a command, and gets one line back:

    add NAME NUMBER     adds to a counter; its new value
    relay LINE          what the server on the Unix socket, asked by a client of its own, says to LINE
    raw LINE            the same, asked on a bare IOStream
    pipe WORD           the word, after it has been through a pipe
    signals             how many SIGUSR1 and SIGUSR2 have come
    quit                closes the connection
"""

import collections
import os
import signal
import socket
import sys

import tornado.gen
import tornado.ioloop
import tornado.iostream
import tornado.netutil
import tornado.tcpclient
import tornado.tcpserver


class Pipe:
    """A pipe to oneself; who waits for what comes out of it is served in turn."""

    def __init__(self):
        self.output, self.input = os.pipe()
        os.set_blocking(self.output, False)
        self.waiting = collections.deque()
        self.received = b""
        tornado.ioloop.IOLoop.current().add_handler(self.output, self.on_output, tornado.ioloop.IOLoop.READ)

    def pass_on(self, word):
        future = tornado.gen.Future()
        self.waiting.append(future)
        os.write(self.input, word + b"\n")
        return future

    def on_output(self, fd, events):
        self.received += os.read(fd, 4096)
        *words, self.received = self.received.split(b"\n")
        for word in words:
            self.waiting.popleft().set_result(word)


class Lines(tornado.tcpserver.TCPServer):
    def __init__(self, path):
        super().__init__()
        self.path = path
        self.counters = collections.Counter()
        self.signals = [0, 0]
        self.pipe = Pipe()

    async def handle_stream(self, stream, address):
        try:
            while True:
                line = await stream.read_until(b"\n", max_bytes=10000)
                if line == b"quit\n":
                    break
                await stream.write(await self.answer(line[:-1]) + b"\n")
        except tornado.iostream.StreamClosedError:
            pass
        stream.close()

    async def answer(self, line):
        command, _, rest = line.partition(b" ")
        if command == b"add":
            name, number = rest.split()
            self.counters[name] += int(number)
            return b"%d" % self.counters[name]
        if command == b"relay":
            return await self.ask(await tornado.tcpclient.TCPClient().connect("127.0.0.1", self.port), rest)
        if command == b"raw":
            stream = tornado.iostream.IOStream(socket.socket(socket.AF_UNIX))
            await stream.connect(self.path)
            return await self.ask(stream, rest)
        if command == b"pipe":
            return await self.pipe.pass_on(rest)
        if command == b"signals":
            return b"%d %d" % tuple(self.signals)
        return b"what?"

    async def ask(self, stream, line):
        await stream.write(line + b"\n")
        answer = await stream.read_until(b"\n")
        stream.close()
        return answer[:-1]

    def count_signal(self, which):
        self.signals[which] += 1


def main(path):
    server = Lines(path)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.port = sockets[0].getsockname()[1]
    server.add_sockets([*sockets, tornado.netutil.bind_unix_socket(path)])
    loop = tornado.ioloop.IOLoop.current()
    loop.asyncio_loop.add_signal_handler(signal.SIGUSR1, server.count_signal, 0)
    signal.signal(signal.SIGUSR2, lambda number, frame: loop.add_callback_from_signal(server.count_signal, 1))
    print(server.port, flush=True)
    loop.start()


if __name__ == "__main__":
    main(sys.argv[1])
