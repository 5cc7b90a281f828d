"""Which names of other libraries' modules and classes are something else after a program has run?

    patched.py modules              prints which modules the program below imports
    patched.py MODULE,...           imports these, runs the program on this loop and prints as JSON: "changed", what has
                                    changed; "declared", what the table of patches says; "absent", what of that is not there;
                                    "new", the modules that have been imported after all
    patched.py MODULE,... --stock   the same on asyncio's loop, without this package

What is compared is the objects to which names refer, not what is in these.
"""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time


def is_ours(name):
    return name == "__main__" or name.split(".")[:2] == ["tornado", "stm"]


def namespaces():
    """{id: (a module or class, its names)}, of all modules but this package's, and the classes in them."""
    found = {}
    waiting = [module for name, module in list(sys.modules.items()) if not is_ours(name)]
    while waiting:
        holder = waiting.pop()
        if id(holder) in found or not hasattr(holder, "__dict__"):
            continue
        found[id(holder)] = holder, dict(vars(holder))
        waiting.extend(v for v in vars(holder).values() if isinstance(v, type) and not is_ours(str(v.__module__)))
    return found


def name_of(holder):
    return f"{holder.__module__}:{holder.__qualname__}" if isinstance(holder, type) else holder.__name__


def changes(before):
    nothing = object()
    for holder, names in before.values():
        for name in {*names, *vars(holder)}:
            now = vars(holder).get(name, nothing)
            if names.get(name, nothing) is not now and now is not sys.modules.get("tornado.stm"):
                yield f"{name_of(holder)} {name}"


def declared(before, moments):
    """What the table says of these moments, as `changes` names it."""
    from tornado.stm.patches import table

    for moment in moments:
        for patch in table.patches(moment):
            *path, name = patch.path.split(".")
            for module in patch.modules if patch.modules[0] in sys.modules else ():
                if module == "*":
                    yield from imported(before, vars_of(before, patch.modules[0], path)[1][name])
                elif module in sys.modules:
                    holder, names = vars_of(before, module, path)
                    yield f"{name_of(holder)} {name}"


def vars_of(before, module, path):
    """The module, or the class in it, and what its names were before."""
    found = before[id(sys.modules[module])]
    for name in path:
        found = before[id(found[1][name])]
    return found


def imported(before, original):
    """Where a module has the object, or a tuple with it; not those names by which asyncio keeps what it has in C."""
    for holder, names in before.values():
        if isinstance(holder, type) or holder.__name__ == "_asyncio":
            continue
        for name, value in names.items():
            has_it = value is original or type(value) is tuple and any(item is original for item in value)
            if has_it and not name.startswith(("_C", "_c_")):
                yield f"{name_of(holder)} {name}"


async def work(terminate):
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(3)))
    await loop.run_in_executor(None, time.sleep, 0)
    subprocess.run([sys.executable, "-c", ""])
    if terminate:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)


def modules_of_others():
    return [name for name, module in sys.modules.items() if module is not None and not is_ours(name)]


def program(stock):
    if not stock:
        import tornado.stm
        from tornado.stm import transaction
        from tornado.stm.program import tracebacks

        transaction.add(str)
        transaction.run()
        tornado.stm.install(2)
    try:
        asyncio.run(work(terminate=False))
        asyncio.run(work(terminate=not stock))
        assert stock
    except SystemExit as e:
        assert not stock and e.code == 0
    if not stock:
        tracebacks.show_programs_own(ValueError())


def main(modules, stock):
    os.environ["FROZENLIST_NO_EXTENSIONS"] = "1"
    import aiohttp.web  # noqa: F401, it is what is looked at
    import tornado.httpserver
    import tornado.websocket  # noqa: F401, likewise

    if modules == "modules":
        program(stock)
        print(json.dumps(modules_of_others()))
        return
    for name in modules.split(","):
        importlib.import_module(name)
    sysconfig.get_config_vars()  # which it keeps
    known, before = set(sys.modules), namespaces()
    present = {f"{name_of(holder)} {name}" for holder, _ in before.values() for name in dir(holder)}
    program(stock)
    found = {"changed": sorted(set(changes(before))), "new": [n for n in modules_of_others() if n not in known]}
    if not stock:
        from tornado.stm import core

        moments = ["guard", "install", "failure"]
        moments += ["engine", "libraries"] if core.COMPILED else []
        moments += ["futures", "loop"] if core.PARALLEL else ["drain"]
        moments += ["extensions"] if sysconfig.get_config_var("Py_GIL_DISABLED") else []
        listed = set(declared(before, moments))
        found.update(declared=sorted(listed & present), absent=sorted(listed - present))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], "--stock" in sys.argv)
