"""A chat room: web sockets, and long polling for those who have none.

    chat.py         prints its port, then serves

    /room?name=NAME     a web socket; what a member sends reaches every member, numbered
    /poll?after=N       answers as soon as there are messages after the N-th, with all of these
    /say                POST: a message without a web socket
    /log                every message so far
"""

import json

import tornado.httpserver
import tornado.ioloop
import tornado.locks
import tornado.netutil
import tornado.web
import tornado.websocket


class Room:
    def __init__(self):
        self.members = set()
        self.messages = []
        self.news = tornado.locks.Condition()
        self.beats = 0

    def say(self, name, text):
        self.messages.append([len(self.messages) + 1, name, text])
        line = json.dumps(self.messages[-1])
        for member in self.members:
            member.write_message(line)
        self.news.notify_all()

    def beat(self):
        self.beats += 1


class Member(tornado.websocket.WebSocketHandler):
    def initialize(self, room):
        self.room = room

    def open(self):
        self.name = self.get_argument("name")
        self.room.members.add(self)
        self.write_message(json.dumps([0, "room", f"welcome {self.name}"]))

    def on_message(self, message):
        self.room.say(self.name, message)

    def on_close(self):
        self.room.members.discard(self)


class Poll(tornado.web.RequestHandler):
    def initialize(self, room):
        self.room = room

    async def get(self):
        after = int(self.get_argument("after"))
        while len(self.room.messages) <= after:
            await self.room.news.wait()
        self.write({"messages": self.room.messages[after:]})


class Say(tornado.web.RequestHandler):
    def initialize(self, room):
        self.room = room

    def post(self):
        self.room.say(self.get_argument("name"), self.request.body.decode())


class Log(tornado.web.RequestHandler):
    def initialize(self, room):
        self.room = room

    def get(self):
        self.write({"messages": self.room.messages, "members": len(self.room.members), "beats": self.room.beats})


def main():
    room = Room()
    routes = [(r"/room", Member), (r"/poll", Poll), (r"/say", Say), (r"/log", Log)]
    app = tornado.web.Application([(path, handler, {"room": room}) for path, handler in routes])
    tornado.ioloop.PeriodicCallback(room.beat, 10).start()
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    tornado.httpserver.HTTPServer(app).add_sockets(sockets)
    print(sockets[0].getsockname()[1], flush=True)
    tornado.ioloop.IOLoop.current().start()


if __name__ == "__main__":
    main()
