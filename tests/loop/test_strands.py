"""Callbacks that descend from one event run in asyncio's order, however many threads run them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tornado.stm

# What a callback does: (how it is scheduled, how long it computes, what it schedules in its turn).
callbacks = st.recursive(
    st.tuples(st.sampled_from(["call_soon", "future", "task"]), st.sampled_from([0, 0, 0, 20_000]), st.just(())),
    lambda child: st.tuples(st.sampled_from(["call_soon", "future", "task"]), st.sampled_from([0, 0, 0, 20_000]), st.lists(child, max_size=4)),
    max_leaves=12,
)


def compute(n):
    for _ in range(n):
        pass


def schedule(child, name, log):
    """Let it run soon; in all three ways that is a callback in the line of those that are ready, or in that of a future."""
    loop, (how, n, children) = asyncio.get_running_loop(), child

    def run():
        compute(n)
        log.append(name)
        for i, each in enumerate(children):
            schedule(each, (*name, i), log)

    async def run_task():
        run()
        await asyncio.sleep(0)
        log.append((*name, "again"))

    if how == "call_soon":
        loop.call_soon(run)
    elif how == "future":
        future = loop.create_future()
        future.add_done_callback(lambda _: run())
        future.set_result(None)
    else:
        tasks.add(task := loop.create_task(run_task()))
        task.add_done_callback(tasks.discard)


tasks = set()


def length(children):
    return sum(1 + (how == "task") + length(below) for how, _, below in children)


def log_of(children, run):
    log = []

    async def main():
        asyncio.get_running_loop().call_soon(lambda: [schedule(child, (i,), log) for i, child in enumerate(children)])
        while len(log) < length(children):
            await asyncio.sleep(0.001)

    run(main())
    return log


@given(st.lists(callbacks, max_size=4))
def test_what_descends_from_one_event_runs_in_asyncios_order(children):
    assert log_of(children, lambda main: tornado.stm.run(main, threads=3)) == log_of(children, asyncio.run)


@pytest.mark.parametrize("heavy", ["a", "b", "c", "ab"])
def test_chains_of_callbacks_advance_in_step(heavy):
    log = []

    def step(name, i):
        compute(40_000 if name in heavy else 0)
        log.append((i, name))
        if i < 20:
            asyncio.get_running_loop().call_soon(step, name, i + 1)

    async def main():
        asyncio.get_running_loop().call_soon(lambda: [asyncio.get_running_loop().call_soon(step, name, 0) for name in "abc"])
        while len(log) < 63:
            await asyncio.sleep(0.001)

    tornado.stm.run(main(), threads=2)
    assert log == [(i, name) for i in range(21) for name in "abc"]
