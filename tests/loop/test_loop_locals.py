"""A ``threading.local`` in callbacks: to the program, all threads of a loop are one."""

import asyncio
import contextvars
import decimal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tornado.stm
from tornado.stm import activation, core


@pytest.fixture(params=[0, 0.05], ids="aborts {}".format)
def aborts(request):
    activation.activate()
    core.inject_aborts(request.param, 1)
    yield
    core.inject_aborts(0, 0)


class Counting(threading.local):
    made = []

    def __init__(self, first):
        self.made.append(first)
        self.count = first


def count_on(local, threads):
    """What the callbacks of a loop leave in it, each a transaction that takes its time."""
    async def step():
        for _ in range(20):
            await asyncio.sleep(0)
            count = local.count
            sum(range(2000))
            local.count = count + 1

    async def main():
        if not hasattr(local, "count"):
            local.count = 0
        await asyncio.gather(*(step() for _ in range(10)))
        return local.count

    return tornado.stm.run(main(), threads=threads)


def test_callbacks_share_the_attributes(aborts):
    local = threading.local()
    assert count_on(local, threads=3) == 200
    # They are those of the thread that runs the loop.
    assert local.count == 200
    assert count_on(local, threads=2) == 400


def test_the_init_of_a_class_is_called_once_for_all_of_them(aborts):
    Counting.made.clear()
    local = Counting(1000)
    assert count_on(local, threads=3) == 1200
    assert Counting.made == [1000]


def test_one_that_is_made_in_a_callback(aborts):
    async def main():
        local = threading.local()
        local.names = []
        await asyncio.gather(*(add(local, name) for name in "abcdefgh"))
        return sorted(local.names)

    async def add(local, name):
        await asyncio.sleep(0)
        local.names = local.names + [name]

    assert tornado.stm.run(main(), threads=3) == list("abcdefgh")


def test_other_threads_have_their_own(aborts):
    local = threading.local()
    local.place = "loop"

    def work():
        had = getattr(local, "place", None)
        local.place = "executor"
        return had

    async def main():
        loop = asyncio.get_running_loop()
        seen = [await loop.run_in_executor(None, work) for _ in range(5)]
        return seen[0], set(seen) <= {None, "executor"}, local.place

    assert tornado.stm.run(main(), threads=2) == (None, True, "loop")


@pytest.mark.skipif(not getattr(sys.flags, "thread_inherit_context", 0), reason="threads inherit no context")
def test_the_threads_of_an_executor_inherit_the_context_of_who_hands_work_to_it(aborts):
    """And with it, for instance, the precision of decimal numbers."""
    variable = contextvars.ContextVar("variable", default=0)

    class Own(ThreadPoolExecutor):
        """Of another class, which the loop hands work to in another way."""

    async def hand_over(i):
        variable.set(i)
        seen = []
        for kind in ThreadPoolExecutor, Own:
            await asyncio.sleep(0)
            with kind(1) as executor:
                seen.append(await asyncio.get_running_loop().run_in_executor(executor, variable.get))
        return seen

    async def main():
        return await asyncio.gather(*map(hand_over, range(1, 9)))

    assert tornado.stm.run(main(), threads=2) == [[i, i] for i in range(1, 9)]


def test_tasks_have_decimal_contexts_of_their_own(aborts):
    async def third(digits):
        if digits:
            decimal.getcontext().prec = digits
        await asyncio.sleep(0)
        return len(str(decimal.Decimal(1) / 3)) - 2

    async def main():
        return await asyncio.gather(*(third(digits) for digits in [5, 0, 7, 0]))

    assert contextvars.Context().run(tornado.stm.run, main(), threads=2) == [5, 28, 7, 28]


def test_the_engine_sets_no_variable_of_the_program():
    program = "from tornado.stm import activation; activation.activate(); import contextvars; print(len(contextvars.copy_context()))"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"0\n"


def test_two_loops_on_two_threads_have_two():
    local = threading.local()
    counts = []

    def run():
        counts.append(count_on(local, threads=2))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [200, 200]
    assert not hasattr(local, "count")
