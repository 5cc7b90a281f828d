"""A room of web sockets: what one member says, all hear, in one order."""

import asyncio
import base64
import html
import itertools
import os
import re

import tornado.web
import tornado.websocket

from stm_bench.errors import WrongAnswer
from stm_bench.workloads import client
from stm_bench.workloads.client import HOST
from stm_bench.workloads.workload import Workload, by_name

KEPT = 100  # of what was said last
WORDS = "some *words* of a member, with `code`, a <tag> and https://example.com/page?x=1 in them " * 12
MARKS = [
    (re.compile(r"\*(\w+)\*"), r"<b>\1</b>"), (re.compile(r"`(\w+)`"), r"<code>\1</code>"),
    (re.compile(r"(https?://\S+)"), r"<a href='\1'>\1</a>"),
]  # fmt: skip


def marked_up(text):
    """As a browser shows it: about 1 ms."""
    words = []
    for word in html.escape(text).split(" "):
        for mark, replacement in MARKS:
            word = mark.sub(replacement, word)
        words.append(word)
    return " ".join(words)


class Room:
    def __init__(self):
        self.members = set()
        self.said = []


class Member(tornado.websocket.WebSocketHandler):
    def initialize(self, room):
        self.room = room

    def open(self):
        self.set_nodelay(True)  # else a message waits up to 40 ms for a member to acknowledge the one before, on any loop
        self.room.members.add(self)

    def on_close(self):
        self.room.members.discard(self)

    def on_message(self, message):
        shown = len(marked_up(message + WORDS))
        self.room.said.append(message)
        del self.room.said[:-KEPT]
        for member in self.room.members:
            member.write_message("%s %d" % (message, shown))


class Chat(Workload):
    unit = "messages/s"  # heard
    shared = True
    kinds = ("plain", "stm")
    clients = 16

    async def serve(self, port, how):
        tornado.web.Application([(r"/", Member, {"room": Room()})]).listen(port, HOST)
        await asyncio.Event().wait()

    def load(self, servers, seconds):
        members, numbers = [], itertools.count()

        def ask(connection):
            if connection.asked is None:
                connection.asked, connection.heard = "open", None
                members.append(connection)
                return upgrade(connection.server)
            connection.asked = "%d" % next(numbers)
            return frame(connection.asked)

        def take(connection):
            if connection.heard is not None:
                return hear(connection)
            head, blank, rest = connection.received.partition(b"\r\n\r\n")
            if blank and not head.startswith(b"HTTP/1.1 101"):
                raise WrongAnswer("server %s opens no web socket: %.60r" % (connection.server.name, head))
            if blank:
                connection.received, connection.heard = rest, []
            return bool(blank)

        found = client.ask_on(servers, self.clients, seconds, ask, take)
        for one, other in itertools.combinations(members, 2):
            if one.server is other.server:
                compare(one, other)
        return found.times(self.clients / len(servers))


def hear(connection):
    """Takes messages; returns how many of them were the connection's own."""
    own = 0
    while (message := take_frame(connection)) is not None:
        said = message.split(" ")[0]
        connection.heard.append(said)
        own += said == connection.asked
    return own


def compare(one, other):
    """From where both were there, they must have heard the same, in the same order, as far as each has heard.

    Raises:
        WrongAnswer: they have not.
    """
    if not one.heard or not other.heard:
        return
    if other.heard[0] not in one.heard:
        one, other = other, one
    if other.heard[0] not in one.heard:
        return
    start = one.heard.index(other.heard[0])
    for a, b in zip(one.heard[start:], other.heard):
        if a != b:
            raise WrongAnswer("server %s sent %s to one and %s to another in its place" % (one.server.name, a, b))


def upgrade(server):
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        "GET / HTTP/1.1", "Host: %s:%d" % (HOST, server.port), "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: %s" % key, "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode()


def frame(text):
    """A short text, its mask is 0."""
    return bytes((0x81, 0x80 | len(text), 0, 0, 0, 0)) + text.encode()


def take_frame(connection):
    """The text of a short frame that has come whole, or None."""
    received = connection.received
    if len(received) < 2 or len(received) < 2 + received[1]:
        return None
    connection.received = received[2 + received[1] :]
    return received[2 : 2 + received[1]].decode()


WORKLOADS = by_name(
    Chat(
        "chat", "16 web sockets in a room, each message marked up (1 ms) and sent to all",
        limits="The room: who speaks changes what was said last, and sends to all; two at once are one after the other.",
    )
)  # fmt: skip
