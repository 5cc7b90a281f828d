"""Prints the tracebacks that a program sees of what goes wrong in it, each as [(file, function, line), ...]."""

import asyncio
import functools
import json
import sys
import traceback


class Item:
    def __init__(self, x):
        self.x = x

    def __lt__(self, other):
        raise ValueError("lt")

    def __eq__(self, other):
        raise ValueError("eq")

    def __hash__(self):
        raise ValueError("hash")

    def __str__(self):
        raise ValueError("str")

    def __repr__(self):
        return "Item"


def bad(*args):
    raise ValueError("bad")


def cases():
    """Functions that fail in or below something that C code does, or what stands in for it."""
    yield lambda: bad()
    yield lambda: sorted([1, 2], key=bad)
    yield lambda: sorted([Item(1), Item(2)])
    yield lambda: max([1, 2], key=bad)
    yield lambda: [3].sort(key=bad)
    yield lambda: list(map(bad, [1]))
    yield lambda: functools.reduce(bad, [1, 2])
    yield lambda: sum(bad() for _ in range(3))
    yield lambda: any(bad() for _ in range(3))
    yield lambda: dict(a=1)["b"]
    yield lambda: dict([(1, 2, 3)])
    yield lambda: {}.update([(Item(1), 2)])
    yield lambda: {Item(1): 2}
    yield lambda: print(Item(1))
    yield lambda: "{}".format(Item(1))
    yield lambda: b"".join(bad() for _ in range(3))
    yield lambda: "".join(bad() for _ in range(3))
    yield lambda: json.dumps({1: Item(1)}, default=bad)
    yield lambda: functools.partial(bad, 1)()
    yield lambda: functools.lru_cache(bad)(1)
    yield lambda: exec("bad()", {"bad": bad})
    yield lambda: Item(1) == Item(2)
    yield lambda: [Item(1)].index(Item(2))
    yield lambda: sys.stdout.write(1)
    yield lambda: open("/nonexistent")


async def awaited():
    await asyncio.sleep(0)
    bad()


async def in_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(awaited())


def deep(n):
    try:
        return deep(n - 1) if n else sorted([1], key=bad)
    finally:
        n += 1


def show(what, error):
    stack = [(frame.filename.rpartition("/")[2], frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    print(what, f"{type(error).__name__}: {error}", *stack, sep="\n    ")


async def main():
    for i, case in enumerate([*cases(), functools.partial(deep, 30)]):
        try:
            case()
        except Exception as error:
            show(f"case {i}", error)
    waits = {
        "await": awaited, "task": lambda: asyncio.create_task(awaited()), "gather": lambda: asyncio.gather(awaited()),
        "wait_for": lambda: asyncio.wait_for(awaited(), 60), "thread": lambda: asyncio.to_thread(bad), "group": in_group,
    }
    for name, wait in waits.items():
        try:
            await wait()
        except BaseException as error:
            show(name, error)
            if isinstance(error, ExceptionGroup):
                show("in the group", error.exceptions[0])
    loop = asyncio.get_running_loop()
    for schedule in loop.call_soon, loop.call_soon_threadsafe, functools.partial(loop.call_later, 0.001):
        handled = loop.create_future()
        loop.set_exception_handler(lambda loop, context: handled.set_result(context))
        schedule(bad)
        context = await handled
        show(f"{context['message'].partition(' at ')[0]}, {sorted(context)}", context["exception"])


asyncio.run(main())


async def interrupted(kind):
    raise kind("out of the loop")


def of_the_program(error):
    """Asyncio runs its loop by functions that ours does without."""
    for frame in traceback.extract_tb(error.__traceback__):
        name = frame.filename.rpartition("/")[2]
        if name not in ("base_events.py", "events.py") or frame.name == "run_until_complete":
            yield name, frame.name


for kind in LookupError, KeyboardInterrupt, SystemExit:
    try:
        asyncio.run(interrupted(kind))
    except BaseException as error:
        print(type(error).__name__, *of_the_program(error), sep="\n    ")

for kind in KeyboardInterrupt, SystemExit:
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: exec("raise kind('from a callback')"))
    try:
        loop.run_forever()
    except BaseException as error:
        print(type(error).__name__, *of_the_program(error), sep="\n    ")
    loop.close()
