"""Calls of builtins and of the standard library that handlers are full of, each over some thousand items that all requests share.

Most of their work is done in C, in front of which the engine has to find out what they read.  `CALLS`: what is called -> a function
without arguments, which takes about a millisecond.
"""

import collections
import datetime
import functools
import html
import itertools
import json
import operator
import re


class Point:
    def __init__(self, x=1):
        self.x = x


NUMBERS = list(range(10_000))
WORDS = [str(number) for number in NUMBERS]
SEEN = set(WORDS)
POINTS = [Point(number) for number in range(5000)]
ROWS = [{"a": number, "b": str(number)} for number in range(2000)]
TEXT = " ".join(WORDS)
DOCUMENT = json.dumps(ROWS)
DAY = datetime.datetime(2020, 1, 1)


def by_first_letter():
    groups = collections.defaultdict(list)
    for word in WORDS:
        groups[word[0]].append(word)
    return groups


def drained():
    queue = collections.deque(NUMBERS)
    return [queue.popleft() for _ in NUMBERS]


def extended():
    numbers = []
    numbers.extend(NUMBERS)
    numbers.sort()
    return numbers


CALLS = {
    "sum(range)": lambda: sum(range(20_000)),
    "sum(list)": lambda: sum(NUMBERS),
    "sum(generator)": lambda: sum(number for number in NUMBERS),
    "sum(map(int))": lambda: sum(map(int, WORDS)),
    "max(list)": lambda: max(NUMBERS),
    "max(generator)": lambda: max(number for number in NUMBERS),
    "max(key=lambda)": lambda: max(POINTS, key=lambda point: point.x).x,
    "any(generator)": lambda: any(number < 0 for number in NUMBERS),
    "all(generator)": lambda: all(number >= 0 for number in NUMBERS),
    "list(range)": lambda: list(range(20_000)),
    "list(map(str))": lambda: list(map(str, NUMBERS)),
    "list(generator)": lambda: list(number for number in NUMBERS),
    "list(filter(lambda))": lambda: list(filter(lambda point: point.x % 2, POINTS)),
    "tuple(list)": lambda: tuple(NUMBERS),
    "set(list)": lambda: set(WORDS),
    "dict(zip)": lambda: dict(zip(WORDS, NUMBERS, strict=True)),
    "dict(dict)": lambda: [dict(row) for row in ROWS],
    "{**dict}": lambda: [{**row, "c": 1} for row in ROWS],
    "{for zip}": lambda: {word: number for word, number in zip(WORDS, NUMBERS, strict=True)},
    "enumerate": lambda: [index for index, _ in enumerate(WORDS)],
    "reversed": lambda: [number for number in reversed(NUMBERS)],
    "sorted": lambda: sorted(NUMBERS),
    "sorted(tuples)": lambda: sorted((word, number) for word, number in zip(WORDS, NUMBERS, strict=True)),
    "sorted(key=lambda)": lambda: sorted(POINTS, key=lambda point: -point.x),
    "sorted(key=attrgetter)": lambda: sorted(POINTS, key=operator.attrgetter("x")),
    "list.sort": extended,
    "object.attribute": lambda: [point.x for point in POINTS],
    "getattr": lambda: [getattr(point, "x", 0) for point in POINTS],
    "object.__dict__": lambda: [point.__dict__ for point in POINTS],
    "class()": lambda: [Point() for _ in range(3000)],
    "dict.__getitem__": lambda: [row["a"] for row in ROWS],
    "dict.get": lambda: [row.get("a") for row in ROWS],
    "dict.items": lambda: [value for row in ROWS for _, value in row.items()],
    "in set": lambda: [word in SEEN for word in WORDS],
    "in list": lambda: [number in NUMBERS for number in range(0, 1000, 10)],
    "list.__getitem__(slice)": lambda: [NUMBERS[start : start + 5] for start in range(5000)],
    "join(list)": lambda: ",".join(WORDS),
    "join(generator)": lambda: ",".join(word for word in WORDS),
    "join(map(str))": lambda: ",".join(map(str, NUMBERS)),
    "str.split": lambda: [word.split("1") for word in WORDS],
    "str.replace": lambda: [word.upper().strip().replace("1", "2") for word in WORDS],
    "str.startswith": lambda: [word.startswith("1") for word in WORDS],
    "str.encode": lambda: [word.encode() for word in WORDS],
    "str.format": lambda: ["{} {}".format(number, number) for number in range(3000)],  # noqa: UP032, it is what is measured
    "%": lambda: ["%d %s" % (number, number) for number in range(3000)],
    "f-string": lambda: [f"{number} {number}" for number in range(3000)],
    "int(str)": lambda: [int(word) for word in WORDS],
    "str(int)": lambda: [str(number) for number in NUMBERS],
    "round": lambda: [round(number / 3, 2) for number in range(2000)],
    "abs": lambda: [abs(number) for number in NUMBERS],
    "divmod": lambda: [divmod(number, 7) for number in NUMBERS],
    "len": lambda: [len(word) for word in WORDS],
    "isinstance": lambda: [isinstance(word, str) for word in WORDS],
    "hash": lambda: [hash(word) for word in WORDS],
    "json.dumps": lambda: json.dumps(ROWS),
    "json.loads": lambda: json.loads(DOCUMENT),
    "re.findall": lambda: re.findall("1+", TEXT),
    "re.sub": lambda: re.sub("1+", "x", TEXT),
    "html.escape": lambda: [html.escape(word) for word in WORDS[:3000]],
    "Counter": lambda: collections.Counter(WORDS),
    "defaultdict": by_first_letter,
    "deque": drained,
    "groupby": lambda: [key for key, _ in itertools.groupby(NUMBERS, lambda number: number // 10)],
    "chain": lambda: list(itertools.chain(NUMBERS, WORDS)),
    "accumulate": lambda: list(itertools.accumulate(NUMBERS)),
    "reduce": lambda: functools.reduce(operator.add, NUMBERS),
    "datetime": lambda: [DAY + datetime.timedelta(number) for number in range(3000)],
    "datetime.isoformat": lambda: [DAY.isoformat() for _ in range(3000)],
}


def checksum(name):
    """Calls it; returns a number that tells whether it has done what it does elsewhere."""
    result = CALLS[name]()
    return result if isinstance(result, int) else len(result)
