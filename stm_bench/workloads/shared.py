"""Pages that read and change what all requests share, without a lock of their own."""

import html
import random

from stm_bench.errors import WrongAnswer
from stm_bench.workloads.workload import Pages, by_name

SESSIONS = 500


class Session:
    def __init__(self, number):
        self.user = "user %d" % number
        self.basket = {"article %d" % (number * 7 % 100 + i): i + 1 for i in range(8)}
        self.visits = 0


class Sessions(Pages):
    """A dict of sessions: most requests read one and make a page of it, one in twenty changes one or replaces it."""

    shared = True
    needs_siege = False
    ROWS = 4000  # of a page: about 5 ms

    def state(self):
        return {"%04d" % number: Session(number) for number in range(SESSIONS)}

    def answer(self, state, path):
        what, _, key = path.partition("/")
        if what == "log-in":
            state[key] = Session(int(key))
        session = state[key]
        if what == "buy":
            session.basket["article %d" % (session.visits % 100)] = 1
            session.visits += 1
        articles = sorted(session.basket.items())
        rows = [self.row(number, *articles[number % len(articles)]) for number in range(self.ROWS)]
        return "<h1>%s</h1><table>%s</table>" % (html.escape(session.user), "".join(rows))

    @staticmethod
    def row(number, article, count):
        return "<tr class=%s><td>%s<td>%d</tr>" % ("even" if number % 2 else "odd", html.escape(article), count)

    def paths(self):
        chance = random.Random(1)
        whats = ["page"] * 19 + ["buy", "log-in"]
        return ["%s/%04d" % (chance.choice(whats), chance.randrange(SESSIONS)) for _ in range(400)]

    def is_right(self, server, path, text):
        return text.startswith("<h1>user %d</h1>" % int(path[-4:])) and text.count("<tr") == self.ROWS


class Count:
    """How often it was asked for."""

    def __init__(self):
        self.requests = 0


class Counter(Pages):
    """All requests count themselves first, then compute about 5 ms: every one conflicts with every other.

    No server may count a request twice, or not at all.
    """

    shared = True
    needs_siege = False
    STEPS = 60_000

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._last = {}  # of each server, what it has counted to

    def state(self):
        return Count()

    def answer(self, state, path):
        state.requests += 1
        return "%d %d" % (state.requests, sum(range(self.STEPS)) + self.compute())

    def compute(self):
        total = 0
        for number in range(self.STEPS):
            total += number % 7
        return total

    def paths(self):
        return ["count"]

    def load(self, servers, seconds):
        self._counts = {server: [] for server in servers}
        self._total = str(sum(range(self.STEPS)) + self.compute())
        found = super().load(servers, seconds)
        for server, counts in self._counts.items():
            before, self._last[server] = self._last.get(server, 0), self._last.get(server, 0) + len(counts)
            if sorted(counts) != list(range(before + 1, before + len(counts) + 1)):
                raise WrongAnswer("server %s has not counted each of its requests once" % server.name)
        return found

    def is_right(self, server, path, text):
        count, total = text.split()
        self._counts[server].append(int(count))
        return total == self._total


WORKLOADS = by_name(
    Sessions(
        "session", "a dict of sessions, one request in twenty changes one; 5 ms", target=1.3,
        limits="What transactions cost: two requests seldom meet at one session.",
    ),
    Counter(
        "counter", "every request increments one attribute first, then computes 5 ms", target=0.6,
        limits="The counter: what has incremented it keeps all others waiting to its end. Count at the end, or where nobody waits.",
    ),
)  # fmt: skip
