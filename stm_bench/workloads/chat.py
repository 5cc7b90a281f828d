"""A room of web sockets: what one member says, all hear, in one order."""

import asyncio
import html
import itertools
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


SHOWN = len(marked_up(WORDS))


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

        def enter(connection):
            client.open_web_socket(connection)
            connection.heard_to = 0
            members.append(connection)

        def ask(connection):
            connection.asked = "%d" % next(numbers)
            return client.frame(connection.asked)

        found = client.ask_on(servers, self.clients, seconds, ask, hear, enter)
        for member in members:
            check(member)
        for one, other in itertools.combinations(members, 2):
            if one.server is other.server:
                compare(one, other)
        return found.times(self.clients / len(servers))


def hear(connection):
    """Has the connection's own message come?  What else has come is looked at when the load is over: that takes the client longer."""
    own = told(connection.asked)
    at = connection.received.find(own, connection.heard_to)
    connection.heard_to = at + len(own) if at >= 0 else max(0, len(connection.received) - len(own))
    return at >= 0


def told(message):
    """The bytes by which a member is told of a message: a frame."""
    text = "%s %d" % (message, len(message) + SHOWN)
    return bytes((0x81, len(text))) + text.encode()


def check(member):
    """The messages that have come whole, as `heard`.

    Raises:
        WrongAnswer: one was not marked up as it should be, or came twice.
    """
    member.heard, at, received = [], 0, member.received
    while at + 2 <= len(received) and at + 2 + received[at + 1] <= len(received):
        end = at + 2 + received[at + 1]
        message = received[at + 2 : end].partition(b" ")[0].decode()
        if received[at:end] != told(message):
            raise WrongAnswer("server %s sent %.60r" % (member.server.name, received[at:end]))
        member.heard.append(message)
        at = end
    if len(set(member.heard)) < len(member.heard):
        raise WrongAnswer("server %s sent a message twice" % member.server.name)


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


WORKLOADS = by_name(
    Chat(
        "chat", "web sockets in a room, each message marked up (1 ms) and sent to all",
        limits="The room: who speaks changes what was said last, and sends to all; two at once are one after the other.",
    )
)  # fmt: skip
