"""The dispatch order: what is expected to be long waits for what is not, and neither starves."""

import asyncio
import functools

import pytest
from hypothesis import given, strategies as st

import tornado.stm
from tornado.stm import core

if not core.PARALLEL:
    pytest.skip("the engine is absent: asyncio's own loop runs", allow_module_level=True)

from tornado.stm.loop import dispatch
from tornado.stm.loop.dispatch import LONG, Estimates, ReadyQueue, site_of

PROMPT_SITE, LONG_SITE = (("prompt",), 1), (("long",), 1)


class Waiting:
    """What the queue asks of a transaction."""

    def __init__(self, age, before=None):
        self.age = age
        self.before = before


def queue_that_knows(long=0.05, prompt=0.001):
    """A queue that has seen the two sites twice."""
    ready = ReadyQueue()
    for _ in range(2):
        ready._estimates.learn(LONG_SITE, long)
        ready._estimates.learn(PROMPT_SITE, prompt)
    return ready


def take_all(ready):
    taken = []
    while (entry := ready.take()) is not None:
        taken.append(entry.transaction)
    return taken


def test_prompt_ones_come_first_each_in_their_order():
    ready = queue_that_knows()
    a, b, c, d = (Waiting(age) for age in range(4))
    ready.put(a, LONG_SITE)
    ready.put(b, PROMPT_SITE)
    ready.put(c, LONG_SITE)
    ready.put(d)
    assert not ready.only_long()
    assert take_all(ready) == [b, d, a, c]
    assert len(ready) == 0


def test_a_transaction_follows_a_long_predecessor_into_its_queue():
    ready = queue_that_knows()
    a, b, c, d = (Waiting(age) for age in range(4))
    ready.put(a, LONG_SITE)
    ready.put(b, PROMPT_SITE, before=a)
    ready.put(c, None, before=b)
    ready.put(d, PROMPT_SITE)
    assert take_all(ready) == [d, a, b, c]


def test_long_ones_are_owed_what_prompt_ones_have_taken():
    ready = queue_that_knows(long=0.05, prompt=0.001)
    heavy = Waiting(0)
    ready.put(heavy, LONG_SITE)
    for age in range(1, 49):
        ready.put(Waiting(age), PROMPT_SITE)
        entry = ready.take()
        assert entry.transaction is not heavy
        ready.ran(entry, 0.001)
    ready.put(Waiting(50), PROMPT_SITE)
    ready.ran(ready.take(), 0.004)
    ready.put(Waiting(51), PROMPT_SITE)
    assert ready.take().transaction is heavy


def test_what_is_owed_does_not_outlive_those_that_waited():
    ready = queue_that_knows()
    ready.put(Waiting(0), LONG_SITE)
    prompt = Waiting(1)
    ready.put(prompt, PROMPT_SITE)
    ready.ran(ready.take(), 10.0)
    ready.put(Waiting(2), PROMPT_SITE)
    assert ready.take().transaction.age == 0
    ready.put(Waiting(3), LONG_SITE)
    assert ready.take().transaction.age == 2


def test_what_is_too_young_to_run_before_the_loop_stops_stays():
    ready = queue_that_knows()
    for age in range(4):
        ready.put(Waiting(age), LONG_SITE if age % 2 else PROMPT_SITE)
    taken = []
    while (entry := ready.take(until=2)) is not None:
        taken.append(entry.transaction.age)
    assert taken == [0, 1]
    assert len(ready) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 20), st.booleans()), max_size=60))
def test_every_one_is_dispatched_once_and_after_its_predecessor(steps):
    ready, everyone, taken = queue_that_knows(), [], []

    def take():
        entry = ready.take()
        if entry is not None:
            taken.append(entry.transaction)
            ready.ran(entry, 0.05 if entry.site is LONG_SITE else 0.001)
        return entry

    for long, back, prompt_run, takes in steps:
        before = everyone[-back] if 0 < back <= len(everyone) else None
        everyone.append(Waiting(len(everyone), before))
        ready.put(everyone[-1], LONG_SITE if long else PROMPT_SITE, before)
        ready._owed += prompt_run / 1000
        if takes:
            take()
    while take() is not None:
        pass
    assert sorted(taken, key=lambda one: one.age) == everyone
    place = {one: i for i, one in enumerate(taken)}
    assert all(place[one.before] < place[one] for one in everyone if one.before is not None)


def test_one_run_alone_does_not_make_a_site_long():
    estimates = Estimates()
    estimates.learn(PROMPT_SITE, 0.001)
    estimates.learn(PROMPT_SITE, 2.0)
    assert estimates.expected(PROMPT_SITE) < LONG
    estimates.learn(PROMPT_SITE, 1.0)
    assert estimates.expected(PROMPT_SITE) == 1.0


def test_an_unknown_site_is_expected_to_do_what_its_kind_does():
    estimates = Estimates()
    for n in range(100):
        estimates.learn((("handler",), n), 0.05)
    assert estimates.expected((("handler",), "new")) >= LONG
    assert estimates.expected((("another",), "new")) < LONG
    for n in range(10):
        estimates.learn((("handler",), n), 0.001)
    assert estimates.expected((("handler",), "new")) < LONG


def test_no_more_sites_are_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(dispatch, "SITES", 10)
    estimates = Estimates()
    for n in range(100):
        estimates.learn((("kind", n), n), 1.0)
        estimates.learn(LONG_SITE, 1.0)
    assert estimates.expected(LONG_SITE) == 1.0
    assert len(estimates._sites) == len(estimates._kinds) == 10


# ---- Sites -------------------------------------------------------------------------------------------------------------


class Handler:
    async def answer(self, argument, *path, option=None):
        await asyncio.sleep(0)

    def call(self):
        pass


def sites_of(*callbacks):
    """The sites of these callbacks, or of the first steps of these coroutines."""
    async def ask():
        loop = asyncio.get_running_loop()
        found = []
        for callback in callbacks:
            if asyncio.iscoroutine(callback):
                task = asyncio.tasks._PyTask(callback, loop=loop)
                found.append(site_of(asyncio.Handle(task._Task__step, (), loop)))
                task.cancel()
            else:
                found.append(site_of(asyncio.Handle(callback, (), loop)))
        return found

    return tornado.stm.run(ask(), threads=1)


def test_calls_of_a_coroutine_differ_by_their_plain_arguments():
    a, b = Handler(), Handler()
    first, same, other, keyword, longer = sites_of(
        a.answer(1, "x"), b.answer(1, "x"), a.answer(1, "y"), a.answer(1, "x", option=b"z"), a.answer([], "x" * 1000)
    )
    assert first == same
    assert len({first, other, keyword, longer}) == 4
    assert {site[0] for site in (first, other, keyword, longer)} == {first[0]}


def test_callbacks_differ_by_function_class_and_object():
    a, b = Handler(), Handler()
    first, same, other, wrapped = sites_of(a.call, a.call, b.call, functools.partial(functools.partial(a.call)))
    assert first == same == wrapped
    assert first != other and first[0] == other[0]


def test_a_callable_object_is_not_asked_for_anything():
    class Strange:
        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

        def __call__(self):
            pass

    assert sites_of(Strange()) == [None]


def test_a_trivial_task_goes_before_heavy_ones_that_came_before_it():
    """On one thread, so that the order of dispatch is that of the answers."""
    order = []

    def compute(n):
        if n:
            sum(range(n))
            for _ in range(n):
                pass

    async def request(n, number):
        compute(n)
        order.extend(number)

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await asyncio.gather(request(1_000_000, []), request(0, []))
        # Of a transaction each: those of one would have to commit in its order.
        tasks = []
        for n, number in [(1_000_000, number) for number in range(4)] + [(0, "trivial")]:
            loop.call_soon(lambda n=n, number=number: tasks.append(loop.create_task(request(n, [number]))))
        while len(order) < 5:
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    tornado.stm.run(main(), threads=1)
    assert order == ["trivial", 0, 1, 2, 3]
