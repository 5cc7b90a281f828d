"""What the workloads have in common."""

import argparse
import asyncio
import copy
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import tornado.httpserver
import tornado.netutil
import tornado.web

from stm_bench import siege
from stm_bench.errors import WrongAnswer
from stm_bench.workloads import client
from stm_bench.workloads.client import HOST


class Workload:
    """What a server does again and again, for clients that ask at once for more.

    Attributes:
        name, summary: what it is called, and what it does, in a line.
        unit: what is counted a second.
        shared: do requests change what others read?  Then several processes cannot serve them, and threads need a lock.
        kinds: in which ways (`Way.kind`) it can be run; the others are shown as not possible.
        needs: modules that the interpreter must have besides Tornado, but for one that compiles while it runs (PyPy).
        needs_siege: is that what asks?
        delayed: is there a stm_bench.delay_server beside it, at `how.delayed_by`?
        clients: how many there are; None: it runs by itself.
        settings: those of its numbers that the command line may change: name -> (what makes it of a text, what it is).
        target: what tornado.stm on two threads should reach, to upstream.
        limits: what limits it, in a sentence: from the conflict log and from profiles.
        published: what others have found for the like, on their machines, in a sentence.
    """

    unit = "requests/s"
    shared = False
    kinds = ("plain", "processes", "executor", "loops", "stm")
    needs = ()
    needs_siege = False
    delayed = False
    clients = 8
    settings = {}
    changed = {}
    target = None
    limits = ""
    published = ""

    def __init__(self, name, summary, **settings):
        self.name, self.summary = name, summary
        for setting, value in settings.items():
            setattr(self, setting, value)

    def with_settings(self, changed):
        """The same, with other settings: name -> number; what is `changed` then."""
        other = copy.copy(self)
        other.__dict__.update(changed, changed=changed)
        return other

    async def serve(self, port, how):
        """On this port of the loopback interface, until cancelled.  Raises OSError where that cannot be opened."""
        raise NotImplementedError

    def load(self, servers, seconds):
        """Put servers, which share the clients, under load; in the process that measures.

        Returns:
            The client.Load: what was done a second, by all of them together.

        Raises:
            WrongAnswer: something was answered wrongly, or nothing was.
        """
        raise NotImplementedError


def by_name(*workloads):
    """name -> Workload: what a module's WORKLOADS is."""
    return {workload.name: workload for workload in workloads}


# What settings are made of


def natural(text):
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError("not a number of something: %r" % text)
    return int(text)


def share(text):
    try:
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError("not a share, 0 to 1: %r" % text)


#: of so many clients one is ours where siege asks: siege tells times in hundredths of a second, and looks at no text
SAMPLED = 4


class Pages(Workload):
    """Pages over HTTP, each made by a function, `answer`, of what all requests share, `state`."""

    needs_siege = True

    def __init__(self, name, summary, **settings):
        super().__init__(name, summary, **settings)
        self._state, self._making = None, threading.Lock()
        self._asked = None

    def state(self):
        """What all requests share, made when a server starts."""

    def answer(self, state, path):
        """The text of the page there.  Plain Python, which knows nothing of the way that it is run."""
        raise NotImplementedError

    async def serve(self, port, how):
        with self._making:  # loops of several threads have one
            if self._state is None:
                self._state = self.state() or self
        handler = HANDLERS.get((how.kind, self.shared), Plain)
        application = tornado.web.Application([(r"/(.*)", handler, {"pages": self, "state": self._state})])
        server = tornado.httpserver.HTTPServer(application)
        server.add_sockets(tornado.netutil.bind_sockets(port, HOST, reuse_port=how.kind == "loops"))
        await asyncio.Event().wait()

    # -- The load ---------------------------------------------------------------------------------------------------------

    def path(self):
        """What siege asks for; unless there are `paths`."""
        return ""

    def paths(self):
        """What the clients ask for in turns, of whose answers `is_right` is asked; None: siege asks for `path`."""

    def is_right(self, server, path, text):
        """May the server have answered this?"""
        raise NotImplementedError

    def load(self, servers, seconds):
        if self._asked is None:
            paths = self.paths()
            path = None if paths else self.path()
            self._asked = (paths, path, None if paths else self.answer(self.state(), path))
        paths, path, text = self._asked
        if paths:
            return self._ask(servers, self.clients, seconds, itertools.cycle(paths), self.is_right)
        asked = client.shared_out(self.clients, servers)
        with ThreadPoolExecutor(len(asked)) as loads:
            found = list(loads.map(lambda each: self._besiege(*each, seconds, path, text), asked))
        return client.Load(sum(load.rate for load in found), tuple(wait for load in found for wait in load.waits))

    def _besiege(self, server, clients, seconds, path, text):
        """siege and some clients of ours, who ask meanwhile: they check each answer, and measure how long it takes."""
        if server.ask("/" + path) != text:
            raise WrongAnswer("server %s answered GET /%s wrongly" % (server.name, path))

        def is_right(server, path, answer):
            return answer == text

        ours, over = max(1, clients // SAMPLED), threading.Event()
        if clients == ours:
            return self._ask([server], clients, seconds, itertools.repeat(path), is_right)
        answers = []
        with ThreadPoolExecutor(1) as sampling:
            paths = itertools.takewhile(lambda path: not over.is_set(), itertools.repeat(path))
            sampled = sampling.submit(self._ask, [server], ours, 3600, paths, is_right, answers)
            try:
                report = siege.load(server.url("/" + path), clients - ours, seconds, keep_alive=True)
                end = time.monotonic()
            finally:
                over.set()
            sampled.result()
        if not report.answered or report.failed:
            raise WrongAnswer("server %s failed %d of %d requests" % (server.name, report.failed, report.failed + report.answered))
        within = [answered - asked for asked, answered in answers if end - report.elapsed < answered <= end]
        waits = within or [answered - asked for asked, answered in answers]  # a request that takes longer than all of it
        return client.Load(report.rate + len(within) / report.elapsed, tuple(waits))

    def _ask(self, servers, clients, seconds, paths, is_right, answers=None):
        """Has clients ask for these paths, and checks every answer; `answers` gets when each was asked for, and when it came."""

        def ask(connection):
            connection.asked = next(paths, None)
            return None if connection.asked is None else client.get(connection.asked)

        def take(connection):
            text = client.take_page(connection)
            if text is None:
                return False
            if not is_right(connection.server, connection.asked, text):
                raise WrongAnswer("server %s answered GET /%s wrongly: %.60r" % (connection.server.name, connection.asked, text))
            if answers is not None:
                answers.append((connection.since, time.monotonic()))
            return True

        return client.ask_on(servers, clients, seconds, ask, take)


class Plain(tornado.web.RequestHandler):
    """As people write them."""

    lock = threading.Lock()  # around what threads share

    def initialize(self, pages, state):
        self.pages, self.state = pages, state

    def get(self, path):
        self.write(self.pages.answer(self.state, path))


class Locked(Plain):
    """On one of several loops, each on a thread of its own."""

    def get(self, path):
        self.write(self.locked(path))

    def locked(self, path):
        with self.lock:
            return self.pages.answer(self.state, path)


class InExecutor(Plain):
    """On the threads of a pool."""

    async def get(self, path):
        self.write(await asyncio.get_running_loop().run_in_executor(None, self.pages.answer, self.state, path))


class LockedInExecutor(Locked):
    """On the threads of a pool, one at a time."""

    async def get(self, path):
        self.write(await asyncio.get_running_loop().run_in_executor(None, self.locked, path))


HANDLERS = {("loops", True): Locked, ("executor", False): InExecutor, ("executor", True): LockedInExecutor}
