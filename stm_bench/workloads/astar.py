"""A game on one map: players build walls, tear them down, and ask for shortest paths (the second benchmark of 2014).

The map is a list of lists of integers, without a lock.  The client plays it and knows when each wall can have stood: a path that leads
through one that has stood all the time since it was asked for is wrong, and so is none where one has been open all that time.
"""

import json
import random
import time

from stm_bench.errors import WrongAnswer
from stm_bench.primes import positive
from stm_bench.programs.astar import OPEN, WALL, Search
from stm_bench.workloads import client
from stm_bench.workloads.workload import Pages, by_name, share

WALLS = 0.25  # of the fields, at the start


def first_map(width, height):
    chance = random.Random(7)
    return [[WALL if chance.random() < WALLS else OPEN for _ in range(width)] for _ in range(height)]


class Game(Pages):
    shared = True
    needs_siege = False
    width, height = 120, 120
    settings = {
        "width": (positive, "of the map"), "height": (positive, "of the map"),
        "writers": (share, "share of the requests that build or destroy, 0 to 1"),
    }  # fmt: skip

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self._games = {}  # of each server, what is known of its map

    def state(self):
        return first_map(self.width, self.height)

    def answer(self, state, path):
        what, _, rest = path.partition("/")
        x, y, *goal = map(int, rest.split(","))
        if what == "path":
            found = Search(state, (x, y), tuple(goal)).path() if state[y][x] == OPEN else None
            return json.dumps(found)
        state[y][x] = WALL if what == "build" else OPEN
        return "done"

    def load(self, servers, seconds):
        chance = random.Random(3)  # all rounds ask for the same
        games = self._games
        for server in servers:
            games.setdefault(server, Walls(self.width, self.height)).restore(server)

        def ask(connection):
            return client.get(games[connection.server].ask(connection, chance, self.writers))

        def take(connection):
            text = client.take_page(connection)
            if text is not None:
                games[connection.server].check(connection, text)
            return text is not None

        return client.ask_on(servers, self.clients, seconds, ask, take)


class Walls:
    """What the client knows of one server's map: since when each field has been open or a wall, for certain.

    While a field is being changed nothing is certain of it; its next change waits until that one is answered.
    """

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.fields = first_map(width, height)
        self.since = [[0.0] * width for _ in range(height)]  # infinity: it is being changed

    def restore(self, server):
        """Make the server's map what it was first: so all rounds find the same."""
        first = first_map(self.width, self.height)
        for y, row in enumerate(self.since):
            for x, since in enumerate(row):
                if since:
                    server.ask("/%s/%d,%d" % ("build" if first[y][x] == WALL else "destroy", x, y))
        self.__init__(self.width, self.height)

    def ask(self, connection, chance, writers):
        """The path of a request."""
        x, y = self.place(chance)
        if chance.random() < writers and self.since[y][x] < float("inf"):
            what = "build" if chance.random() < WALLS else "destroy"
            self.since[y][x] = float("inf")
            connection.asked = (what, (x, y))
            return "%s/%d,%d" % (what, x, y)
        goal = self.place(chance)
        connection.asked = ("path", (x, y), goal, time.monotonic())
        return "path/%d,%d,%d,%d" % (x, y, *goal)

    def place(self, chance):
        return chance.randrange(self.width), chance.randrange(self.height)

    def check(self, connection, text):
        """Raises WrongAnswer."""
        what, (x, y), *asked = connection.asked
        if what != "path":
            if text != "done":
                raise WrongAnswer("server %s answered %s with %.60r" % (connection.server.name, what, text))
            self.fields[y][x] = WALL if what == "build" else OPEN
            self.since[y][x] = time.monotonic()
            return
        goal, since = asked
        path = json.loads(text)
        if path is None:
            if self.is_way((x, y), goal, since):
                raise WrongAnswer("server %s found no path from %s to %s, and there is one" % (connection.server.name, (x, y), goal))
            return
        steps = zip(path, path[1:])
        if tuple(path[0]) != (x, y) or tuple(path[-1]) != goal or any(abs(a - c) + abs(b - d) != 1 for (a, b), (c, d) in steps):
            raise WrongAnswer("server %s answered with no path from %s to %s" % (connection.server.name, (x, y), goal))
        for a, b in path:
            if self.fields[b][a] == WALL and self.since[b][a] < since:
                raise WrongAnswer("server %s answered with a path through the wall at %d, %d" % (connection.server.name, a, b))

    def is_way(self, start, goal, since):
        """Do fields lead from one to the other that have been open all the time since then?"""

        def is_open(x, y):
            return 0 <= x < self.width and 0 <= y < self.height and self.fields[y][x] == OPEN and self.since[y][x] < since

        todo = [start] if is_open(*start) and is_open(*goal) else []
        seen = set(todo)
        while todo:
            x, y = todo.pop()
            if (x, y) == goal:
                return True
            for place in (x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1):
                if place not in seen and is_open(*place):
                    seen.add(place)
                    todo.append(place)
        return False


WORKLOADS = by_name(
    Game(
        "astar", "a game on one map; 2 % of the requests change it, the others ask for shortest paths", writers=0.02, target=1.6,
        limits="What transactions cost: who changes a row waits for the searches that have read it, which takes next to nothing of the time.",
        published="2014, requests/s: PyPy-STM 2 to 4 on 1 thread and 2 to 6 on 4; PyPy 5 to 7, CPython 2.7 0.5 to 0.9.",
    ),
    Game(
        "astar-building", "the same, 20 % change the map", writers=0.2, target=1.2,
        limits="The map: who changes a row waits for the searches that have read it.",
    ),
)  # fmt: skip
