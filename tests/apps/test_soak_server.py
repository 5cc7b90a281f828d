"""A server at full load for ten minutes: nothing is lost, memory stays flat, no descriptor is left.

SOAK_SECONDS in the environment is how long (default 600).
"""

import json
import os
import random
import struct
import time
from collections import Counter

import pytest

from interpreters import needs_engine
from programs import TIMEOUT, Client, Program, get, in_parallel, reset, until

needs_engine()

SECONDS = float(os.environ.get("SOAK_SECONDS", 600))

#: times that memory is looked at; the first quarter is for warming up
LOOKS = 20

GROWTH = 16 << 20


def computed(n):
    total = 0
    for i in range(n):
        total = (total * 31 + i) % 1000003
    return b"%d" % total


class Load:
    """Clients of all kinds until it is over; counts what each kind has sent and got."""

    def __init__(self, server, until):
        self.server, self.until = server, until

    def goes_on(self):
        return time.monotonic() < self.until

    def http(self, choose):
        """Keep-alive, for a while."""
        counts = Counter()
        while self.goes_on():
            with Client(self.server) as client:
                for _ in range(choose.randrange(1, 200)):
                    path, answer = choose.choice([
                        ("/compute?n=3000", computed(3000).decode()), ("/later", "later"), ("/contend", "1"), ("/contend?backwards=yes", "1"),
                        ("/count", None),
                    ])
                    text = client.get(path)
                    assert answer in (None, text), (path, text)
                    counts[path] += 1
        return counts

    def pipelining(self, choose):
        """Several requests at once; the answers in order."""
        counts = Counter()
        while self.goes_on():
            connection = self.server.connect()
            for _ in range(20):
                numbers = [choose.randrange(1, 500) for _ in range(choose.randrange(1, 8))]
                connection.sendall(b"".join(b"GET /compute?n=%d HTTP/1.1\r\nHost: test\r\n\r\n" % n for n in numbers))
                stream = connection.makefile("rb")
                assert [read_answer(stream) for _ in numbers] == [computed(n) for n in numbers]
                counts["pipelined"] += len(numbers)
            connection.close()
        return counts

    def streaming(self, choose):
        """Large responses, read in pieces, and uploads of several parts."""
        counts = Counter()
        while self.goes_on():
            pieces, size = choose.randrange(1, 60), choose.randrange(1, 50000)
            assert get(self.server, f"/stream?pieces={pieces}&size={size}") == "p" * pieces * size
            connection = self.server.connect()
            connection.sendall(b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % (pieces * size))
            for _ in range(pieces):
                connection.sendall(b"u" * size)
            assert read_answer(connection.makefile("rb")) == b"%d" % (pieces * size)
            connection.close()
            counts["streamed"] += 1
            counts["uploaded"] += 1
        return counts

    def websocket(self, choose):
        """Echoes, in order."""
        counts = Counter()
        while self.goes_on():
            connection = self.server.connect()
            connection.sendall(
                b"GET /echo HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: a2tra2tra2tra2tra2traw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            stream = connection.makefile("rb")
            while stream.readline() != b"\r\n":
                pass
            for _ in range(choose.randrange(1, 100)):
                messages = [b"%x" % choose.getrandbits(400) for _ in range(choose.randrange(1, 10))]
                # The mask is nought.
                connection.sendall(b"".join(bytes([0x81, 0x80 | len(m)]) + bytes(4) + m for m in messages))
                for message in messages:
                    assert stream.read(2 + len(message)) == bytes([0x81, len(message)]) + message
                counts["messages"] += len(messages)
            if choose.random() < 0.5:
                connection.sendall(b"\x88\x82" + bytes(4) + struct.pack("!H", 1000))
                assert stream.read(4) == b"\x88\x02" + struct.pack("!H", 1000)
            connection.close()
        return counts

    def vanishing(self, choose):
        """Clients that go away in the middle of something."""
        counts = Counter()
        whole = [
            b"GET /stream?pieces=100&size=10000 HTTP/1.1\r\nHost: test\r\n\r\n", b"GET /later HTTP/1.1\r\nHost: test\r\n\r\n" * 3,
            b"POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 9999\r\n\r\n" + b"v" * 5000,
        ]
        while self.goes_on():
            connection = self.server.connect()
            request = choose.choice(whole)
            connection.sendall(request[: choose.randrange(len(request)) if choose.random() < 0.5 else None])
            if choose.random() < 0.5:
                connection.settimeout(0.01)
                try:
                    connection.recv(1000)
                except TimeoutError:
                    pass
                connection.settimeout(TIMEOUT)
            if choose.random() < 0.5:
                reset(connection)
            connection.close()
            counts["vanished"] += 1
            get(self.server, "/count")  # not faster than the server can take
            counts["/count"] += 1
        return counts

    def watching(self, choose):
        """What the server's memory is, now and then."""
        counts = Counter()
        step = (self.until - time.monotonic()) / LOOKS
        self.memory = []
        while self.goes_on():
            time.sleep(min(step, max(0, self.until - time.monotonic())))
            self.memory.append(self.server.resident)
        return counts


def read_answer(stream):
    """The body of a response with a length."""
    assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b": ")
        if name == b"Content-Length":
            length = int(value)
    return stream.read(length)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 300)
def test_at_full_load_nothing_is_lost_and_nothing_is_left():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    with Program("faulty.py") as server:
        get(server, "/count")
        before = server.descriptors
        load = Load(server, time.monotonic() + SECONDS)
        kinds = [load.http, load.http, load.http, load.pipelining, load.streaming, load.websocket, load.vanishing, load.watching]
        counts = sum(in_parallel(len(kinds), lambda i: kinds[i](random.Random(seed + i))), Counter())
        print(dict(counts))
        print("MB:", [resident >> 20 for resident in load.memory])
        assert int(get(server, "/count")) == counts["/count"] + 2
        values = json.loads(get(server, "/values"))
        assert values["table"] == [counts["/contend"] + counts["/contend?backwards=yes"]]
        assert values["computed"] == counts["/compute?n=3000"] + counts["pipelined"]
        assert load.memory[-1] - load.memory[LOOKS // 4] < GROWTH, load.memory
        until(lambda: server.descriptors <= before, server)
        assert server.errors == ""
        assert server.end() == 0
