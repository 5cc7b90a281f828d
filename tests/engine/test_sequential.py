"""Sequential transactions: exclusive from their beginning, where nobody else has anything to do.

What a loop does is asked in a process of its own: in this one there may be threads of other tests which run transactions.
"""

import asyncio
import collections
import functools
import threading
import time

import pytest

import apart
import tornado.stm
from interpreters import needs_engine
from python_calls import calls_of
from tornado.stm import activation, core
from tornado.stm.c_functions import twins
from tornado.stm.core import trusted

needs_engine()

activation.activate()


in_a_process = functools.partial(apart.in_a_process, __file__)


# ---- Loops ----------------------------------------------------------------------------------------------------------------


async def rest(times=100):
    for _ in range(times):
        await asyncio.sleep(0)


async def rest_until_many_were_sequential():
    """A step that the machine has kept waiting counts as a long one: so it takes as many as it takes."""
    while core.stats()["sequentials"] < 500:
        await rest()


def stats_of(threads, coroutine=rest):
    tornado.stm.run(coroutine(), threads=threads)
    return core.stats()


def test_a_loop_on_one_thread_has_no_others():
    stats = in_a_process("stats_of(1)")
    assert stats["sequentials"] == stats["commits"] >= 100
    assert (stats["aborts"], stats["exclusives"], stats["exclusive_reasons"]) == (0, 0, {})


def test_a_loop_on_several_threads_runs_what_has_always_been_short_on_one_of_them():
    """What it cannot know as that yet is not: others must be able to go on."""
    stats = in_a_process("stats_of(2, test_sequential.rest_until_many_were_sequential)")
    assert 500 <= stats["sequentials"] < stats["commits"] - 100


async def take_long_now_and_then():
    for number in range(100):
        if number % 4 == 0:
            sum(n * n % 7 for n in range(50_000))
        await asyncio.sleep(0)


async def wait_long():
    for _ in range(20):
        time.sleep(0.01)
        await asyncio.sleep(0)


@pytest.mark.parametrize("coroutine", [take_long_now_and_then, wait_long])
def test_on_several_threads_none_is_of_what_has_been_long(coroutine):
    assert in_a_process(f"stats_of(2, test_sequential.{coroutine.__name__})")["sequentials"] <= 5


def steps_beside_one_that_computes():
    steps, sequentials, computed = [], [], []

    @trusted
    def wait_for_steps():
        until = time.monotonic() + 60
        while len(steps) < 10 and time.monotonic() < until:
            time.sleep(0.001)

    async def compute():
        sum(n * n % 7 for n in range(300_000))
        wait_for_steps()
        computed.append(None)

    async def rest_beside():
        await rest()
        tasks = []
        # By another transaction, which what this one schedules later does not come after.
        asyncio.get_running_loop().call_soon(lambda: tasks.append(asyncio.create_task(compute())))
        await asyncio.sleep(0.01)
        sequentials.append(core.stats()["sequentials"])
        while not computed:
            await asyncio.sleep(0)
            steps.append(None)
        sequentials.append(core.stats()["sequentials"])

    tornado.stm.run(rest_beside(), threads=2)
    return len(steps), sequentials[1] - sequentials[0]


def test_none_keeps_another_thread_from_going_on():
    steps, sequentials = in_a_process("steps_beside_one_that_computes()")
    assert sequentials <= 3 and steps >= 10


def stats_with_injected_aborts():
    core.inject_aborts(1e-9, 1)
    return stats_of(1)


def test_injected_aborts_leave_none():
    assert in_a_process("stats_with_injected_aborts()")["sequentials"] == 0


def stats_beside_a_thread():
    activation.activate()
    ready, over = threading.Event(), threading.Event()

    def beside():
        core.Transaction(len, ((),)).run()
        ready.set()
        over.wait()

    other = threading.Thread(target=beside)
    other.start()
    assert ready.wait(60)
    stats = stats_of(1)
    over.set()
    other.join()
    return stats


def test_a_thread_that_runs_transactions_beside_the_loop_leaves_none():
    """Not even while it rests: it may have taken locks of the program's that the loop's transactions wait for."""
    assert in_a_process("stats_beside_a_thread()")["sequentials"] == 0


async def wait_for_futures():
    loop = asyncio.get_running_loop()
    for _ in range(200):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


def test_callbacks_follow_in_the_transaction_that_has_scheduled_them():
    """A callback that makes a future done, and the step of the task that waits for it, are one transaction each time."""
    assert 200 <= in_a_process("stats_of(1, test_sequential.wait_for_futures)")["sequentials"] < 300


class Held:
    """What only a transaction refers to."""

    seen = []

    def __del__(self):
        self.seen.append(core.is_exclusive())


async def drop():
    for _ in range(10):
        asyncio.get_running_loop().call_soon(len, [Held()])
        await asyncio.sleep(0)


def seen_by_finalizers():
    return stats_of(1, drop)["exclusives"], Held.seen


def test_what_a_transaction_held_last_dies_while_it_is_still_alone():
    assert in_a_process("seen_by_finalizers()") == (0, [True] * 10)


# ---- Beside others --------------------------------------------------------------------------------------------------------


def test_some_run_alone_between_others():
    total = {"n": 0}

    def add():
        n = total["n"]
        total["n"] = n + 1

    def work(number):
        for i in range(500):
            core.Transaction(add, ()).run((i + number) % 3 == 0)

    before = core.stats()["sequentials"]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert total["n"] == 2000 and core.stats()["sequentials"] - before >= 600


def test_whoever_begins_meanwhile_waits():
    order = []

    @trusted
    def note(what):
        order.append(what)

    def first():
        note("begins")
        other.start()
        for _ in range(1000):
            sum(range(100))
        note("ends")

    other = threading.Thread(target=lambda: core.Transaction(note, ("other",)).run())
    core.Transaction(first, ()).run(True)
    other.join()
    assert order == ["begins", "ends", "other"]


def test_results_and_exceptions_are_as_ever():
    def fail():
        raise ValueError("a test")

    assert core.Transaction(divmod, (7, 2)).run(True) == (3, 1)
    with pytest.raises(ValueError, match="a test"):
        core.Transaction(fail, ()).run(True)
    with pytest.raises(RuntimeError, match="inside another"):
        core.Transaction(trusted(lambda: core.Transaction(len, ((),)).run(True)), ()).run(True)


def test_whoever_is_alone_needs_no_twin_that_differs_by_its_barriers():
    def use_containers():
        made = dict({"a": 1}, b=2)
        made.update([("c", 3)], d=4)
        return made, collections.defaultdict(list, a=[5]), collections.OrderedDict(e=6), "{:>2}".format(7), sorted([9, 8], key=abs)

    with calls_of(twins) as called:
        alone = core.Transaction(use_containers, ()).run(True)
        assert called == []
        assert core.Transaction(use_containers, ()).run() == alone == use_containers()
        assert "dict_update" in called
