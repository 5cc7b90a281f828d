"""The table of what is changed in other libraries is true and complete."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest

import patched
import tornado.stm as stm
from interpreters import ROOT, has_gil, on_each
from tornado.stm.patches import libraries, table


def output_of(python, *arguments, **environment):
    finished = subprocess.run(
        [python, ROOT / "tests" / "support" / "patched.py", *arguments], capture_output=True, text=True, timeout=100, cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def compared(python, **environment):
    """What a program changes on this loop, and what it changes on asyncio's own: a library may keep something, too."""
    modules = ",".join(output_of(python, "modules", **environment))
    ours, stock = output_of(python, modules, **environment), output_of(python, modules, "--stock", **environment)
    assert ours["new"] == stock["new"] == [], "else not all has been compared"
    assert set(ours["changed"]) - set(stock["changed"]) == set(ours["declared"])
    return ours


@on_each
def test_nothing_is_changed_but_what_the_table_lists(python):
    ours = compared(python)
    assert len(ours["declared"]) > (5 if has_gil(python) else 60)


def test_nor_where_the_gil_is_switched_on():
    compared(sys.executable, PYTHON_GIL="1")


@pytest.mark.skipif(has_gil(sys.executable), reason="most is not changed there")
def test_the_table_lists_what_there_is():
    modules = ",".join(output_of(sys.executable, "modules"))
    assert output_of(sys.executable, modules)["absent"] == []


#: prints what the callables of the module that the last argument names say they are; the first one is run before
NAMES = """
import asyncio, importlib, json, sys
exec(sys.argv[1])
asyncio.new_event_loop().close()
functions = {name: value for name, value in vars(importlib.import_module(sys.argv[2])).items() if callable(value)}
print(json.dumps({name: f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', '')}" for name, value in functions.items()}))
"""


@pytest.mark.skipif(has_gil(sys.executable), reason="most is not changed there")
@pytest.mark.parametrize("module", ["threading", "socket", "os", "subprocess", "_signal"])
def test_what_replaces_a_function_has_its_names(module):
    stock, ours = (
        json.loads(subprocess.run(
            [sys.executable, "-c", NAMES, before, module], capture_output=True, text=True, timeout=100, cwd=ROOT, check=True).stdout)
        for before in ("", "import tornado.stm; tornado.stm.install()")
    )
    assert ours == stock


@pytest.mark.skipif(has_gil(sys.executable), reason="none is changed there")
@pytest.mark.parametrize("within", ["a callback", "a thread"])
def test_a_library_that_is_imported_when_the_loop_runs_is_changed(within):
    code = f"""
import asyncio, threading
import tornado.stm

def load():
    import tornado.websocket
    print(tornado.websocket.WebSocketProtocol13._handle_message.__code__.co_filename)

async def main():
    if {within!r} == "a callback":
        load()
    else:
        await asyncio.to_thread(load)

tornado.stm.run(main(), threads=2)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == (libraries.__file__ + "\n", "")


def test_changes_are_seen(monkeypatch):
    before = patched.namespaces()
    monkeypatch.setattr(shutil, "which", print)
    monkeypatch.setattr(json.JSONDecoder, "decode", print)
    monkeypatch.setattr(json, "more", None, raising=False)
    assert {"shutil which", "json.decoder:JSONDecoder decode", "json more"} <= set(patched.changes(before))


def test_every_line_says_why():
    for moment in table.PATCHES:
        for patch in table.patches(moment):
            assert patch.why and patch.path and ":" in patch.replacement, patch
    assert all(f"\n{moment} " in table.__doc__ for moment in table.PATCHES)


class Connection:
    """Something that waits, and then takes what has come."""

    def __init__(self):
        self.come, self.taken = asyncio.get_running_loop().create_future(), 0

    async def receive(self):
        await self.come
        self.taken += 1
        return "what has come"


async def cancelled_when_it_has_come(operation, cancel):
    """What the operation gives, how often it has been taken, how many ask for the cancellation then, and what comes at the next wait."""
    connection, seen = Connection(), []

    async def take():
        seen.append(await operation(connection))
        seen.append(asyncio.current_task().cancelling())
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as e:
            seen.append(e.args)

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    connection.come.set_result(None)
    asyncio.get_running_loop().call_soon(cancel, task)
    await asyncio.wait([task])
    return connection.taken, seen, task.cancelled()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cancellation_in_a_step_that_upstream_has_not_loses_nothing(threads):
    operation = libraries.in_steps(Connection.receive, after=lambda: True)
    taken, seen, cancelled = stm.run(cancelled_when_it_has_come(operation, lambda task: task.cancel("over")), threads=threads)
    assert (taken, seen, cancelled) == (1, ["what has come", 1, ("over",)], False)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_time_limit_in_such_a_step_is_told_at_the_next_wait(threads):
    operation = libraries.in_steps(Connection.receive, after=lambda: True)

    async def main():
        connection, seen = Connection(), []
        connection.come.set_result(None)
        try:
            async with asyncio.timeout(None) as limit:
                asyncio.get_running_loop().call_soon(limit.reschedule, 0)
                seen.append(await operation(connection))
                await asyncio.sleep(10)
        except TimeoutError:
            seen.append("over")
        return seen, asyncio.current_task().cancelling()

    assert stm.run(main(), threads=threads) == (["what has come", "over"], 0)


def test_where_no_loop_of_asyncios_runs_there_are_no_such_steps():
    """As on trio, where httpx runs as well: it takes nothing but its own from a coroutine."""
    async def answer():
        return "what has come"

    @contextlib.asynccontextmanager
    async def connection():
        yield "what has come"

    async def leaving(lent):
        async with lent() as taken:
            return taken

    operation = libraries.in_steps(answer, before=lambda: True, after=lambda: True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries, "has_other_threads", lambda: True)
        lent = libraries.lent(connection)
        for coroutine in operation(), leaving(lent):
            with pytest.raises(StopIteration) as ended:
                coroutine.send(None)
            assert ended.value.value == "what has come"
