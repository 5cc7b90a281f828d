"""A*: shortest paths between places of a map of open ground and walls, a list of lists of integers."""

import heapq

ROUNDS = 25

WIDTH, HEIGHT = 60, 40
OPEN, WALL = 0, 1


def make_map(width, height):
    """A map with walls on about a quarter of its fields, always the same."""
    state = 12345
    fields = []
    for _ in range(height):
        row = []
        for _ in range(width):
            state = (state * 1103515245 + 12345) % 2**31
            row.append(WALL if state >> 16 & 255 < 70 else OPEN)
        fields.append(row)
    return fields


MAP = make_map(WIDTH, HEIGHT)


class Search:
    """One search of a path on `fields` from `start` to `goal`, both (x, y)."""

    def __init__(self, fields, start, goal):
        self.fields = fields
        self.start = start
        self.goal = goal
        self.costs = {start: 0}
        self.came_from = {}
        self.visited = set()

    def path(self):
        """The fields from start to goal, or None."""
        frontier = [(self.distance(self.start), self.start)]
        while frontier:
            _, place = heapq.heappop(frontier)
            if place == self.goal:
                return self.way_to(place)
            if place in self.visited:
                continue
            self.visited.add(place)
            cost = self.costs[place] + 1
            for neighbour in self.neighbours(place):
                if cost < self.costs.get(neighbour, cost + 1):
                    self.costs[neighbour] = cost
                    self.came_from[neighbour] = place
                    heapq.heappush(frontier, (cost + self.distance(neighbour), neighbour))
        return None

    def distance(self, place):
        return abs(place[0] - self.goal[0]) + abs(place[1] - self.goal[1])

    def neighbours(self, place):
        x, y = place
        for nx, ny in (x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1):
            if 0 <= ny < len(self.fields) and 0 <= nx < len(self.fields[ny]) and self.fields[ny][nx] == OPEN:
                yield nx, ny

    def way_to(self, place):
        way = [place]
        while place in self.came_from:
            place = self.came_from[place]
            way.append(place)
        way.reverse()
        return way


def open_places(fields):
    return [(x, y) for y, row in enumerate(fields) for x, field in enumerate(row) if field == OPEN]


def run(n):
    places = open_places(MAP)
    checksum = 0
    for i in range(n):
        search = Search(MAP, places[i * 37 % 100], places[-1 - i * 53 % 100])
        path = search.path()
        checksum += len(path) * 1000 + len(search.visited) if path else 1
    return checksum
