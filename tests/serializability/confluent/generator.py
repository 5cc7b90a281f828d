"""Makes a program from a seed."""

import random
import re
import textwrap

import actions
import channels
import nesting
import rehearsed
import suspended

DEPTH = 5  # as deep are the blocks at most

IMPORTS = """\
import array, asyncio, contextlib, contextvars, datetime, decimal, functools, heapq, io, itertools, json, logging, operator, re, socket
import struct, sys, threading, warnings
from collections import ChainMap, Counter, OrderedDict, deque
from fractions import Fraction

from tornado import locks
from tornado.ioloop import IOLoop

import channels, shared
from rehearsed import *
from shared import *
from suspended import *
"""

TASK = """
async def task{number}(h, ways, L):
    me = {number}
    x, y, z = me, [me], {{}}
    log, it, loop = L.append, iter(range(100)), asyncio.get_running_loop()
    ctr, priv = counting(), Shared()
    next(ctr)
    BODY
    log((x, y[-3:], sorted(z.items(), key=str), next(it, 'end')))
"""

REHEARSED = """
if rehearse():
    try:
        BODY
    finally:
        give_up()
"""

MAIN = """
async def main():
    h, logs = shared.begin(), [[] for _ in range({count})]
    ways = [{ways}]
    for each in ways:
        await each.open()
    tasks = [{tasks}]
    {run}
    for each in ways:
        each.close()
    await asyncio.sleep(0)
    return logs, h.observe()
"""

#: how all tasks, which are coroutines, are run
RUNS = """\
await asyncio.gather(*tasks)

async with asyncio.TaskGroup() as group:
        for each in tasks:
            group.create_task(each)

for each in asyncio.as_completed(tasks):
        await each
""".rstrip().split("\n\n")


#: what is done by an attempt that is rolled back
REHEARSED_ACTIONS = actions.split(rehearsed.LINES, rehearsed.PARAGRAPHS) + rehearsed.CHANNELS


def program(seed):
    """The text of a program with a coroutine function `main`, which returns what can be compared."""
    return Generator(random.Random(seed)).program()


class Generator:
    def __init__(self, chance):
        self.chance, self.names = chance, 0

    def program(self):
        count = self.chance.randint(2, 5)
        tasks, ways = [[] for _ in range(count)], {}
        talk = self.chance.choice((0.08, 0.3))  # how often one sends
        for _ in range(self.chance.randint(30, 100)):
            here = self.chance.randrange(count)
            if self.chance.random() < talk:
                # Whoever has sent it does not wait for what comes later: so nobody waits for ever.
                there = self.chance.choice([other for other in range(count) if other != here])
                way = f"ways[{ways.setdefault((here, there), len(ways))}]"
                tasks[here].append(self.filled(f"await {way}.send({self.chance.choice(actions.SENT)})"))
                received = self.filled(self.chance.choice(actions.RECEIVED))
                tasks[there].append(received.replace("GOT", f"await {way}.receive()"))
            else:
                table = actions.OWN if self.chance.random() < 0.25 else actions.SHARED
                tasks[here].append(self.filled(self.chance.choice(table)))
        text = IMPORTS
        for number, each in enumerate(tasks):
            text += placed(TASK.format(number=number), "BODY", self.block(each, 0))
        return text + MAIN.format(
            count=count, run=self.chance.choice(RUNS),
            tasks=", ".join(f"task{number}(h, ways, logs[{number}])" for number in range(count)),
            ways=", ".join(f"channels.{self.chance.choice(channels.ALL).__name__}()" for _ in ways),
        )

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def filled(self, text, **values):
        """The text with a value for each $ and a letter."""
        values = {
            "n": str(self.chance.randint(1, 7)), "m": str(self.chance.randint(0, 5)), "v": self.name(), "w": self.name(),
        } | values
        return re.sub(r"\$([a-z])", lambda match: values[match[1]], text)

    def block(self, steps, depth):
        """The actions, each once and in this order, some in what actions stand in."""
        out = []
        while steps:
            if self.chance.random() < 0.15:
                out.append(self.rehearsed())
            if depth < DEPTH and self.chance.random() < 0.45:
                count = self.chance.randint(1, min(6, len(steps)))
                out.append(self.nested(steps[:count], depth + 1))
            else:
                count = 1
                out.append(steps[0])
            steps = steps[count:]
        return "\n".join(out) or "pass"

    def rehearsed(self):
        table = self.chance.choices(REHEARSED_ACTIONS + actions.AT_ONCE, k=self.chance.randint(1, 3))
        return placed(REHEARSED.strip(), "BODY", "\n".join(map(self.filled, table)))

    def nested(self, steps, depth):
        count, v, w = str(len(steps)), self.name(), self.name()
        text = self.chance.choice(nesting.BLOCKS).replace("AWAITED", self.chance.choice(nesting.AWAITED))
        if "EXPRESSION" in text:
            names = [self.name() for _ in steps]
            text = text.replace("EXPRESSION", self.expression(names))
        iterables = self.chance.choice(suspended.ITERABLES), self.chance.choice(suspended.ASYNCHRONOUS)
        # One item more for a generator that has been begun.
        i, a = (each.replace("$n", str(len(steps) + ("BETWEEN" in text))) for each in iterables)
        text = self.filled(text, c=count, v=v, w=w, i=i, a=a)
        if "BODY" in text:
            return placed(text, "BODY", self.block(steps, depth))
        if "CASES" in text:
            cases = [placed(f"if {w} == {number}:\n    BODY", "BODY", self.block([each], depth)) for number, each in enumerate(steps)]
            return placed(text, "CASES", "\nel".join(cases))
        if "BETWEEN" in text:
            sent = f"try: log({w}.send({count}))\nexcept StopIteration: log('stopped')"
            return placed(text, "BETWEEN", "\n".join(f"{each}\n{sent}" for each in steps))
        functions = [
            placed(f"async def {name}(x=x, y=y, it=it):\n    BODY\n    return {number}", "BODY", self.block([each], depth))
            for number, (name, each) in enumerate(zip(names, steps), 1)
        ]
        return placed(text, "FUNCTIONS", "\n".join(functions))

    def expression(self, names):
        begin, each, end = self.chance.choice(nesting.EXPRESSIONS)
        return begin + "".join(each.replace("$v", name) for name in names) + end


def placed(text, word, lines):
    """The text with these lines where a line of it has just that word, as far to the right."""
    return re.sub(rf"^( *){word}$", lambda match: textwrap.indent(lines, match[1]), text, flags=re.MULTILINE)


if __name__ == "__main__":
    import sys

    print(program(int(sys.argv[1])))
