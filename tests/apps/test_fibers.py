"""Python code that waits in the midst of functions, on stacks of their own: SQLAlchemy's greenlets, without a database.

Whoever lets one go on is on the loop's thread and irrevocable, and others run beside it.  Where they are handed to that thread is asked in
a process of its own: in this one they run alone on any other.
"""

import _thread
import ast
import asyncio
import contextvars
import functools
import time

import pytest

import apart
import tornado.stm
from interpreters import needs_engine
from strands import begin_apart
from tornado.stm import activation, core
from tornado.stm.core import trusted

needs_engine()
pytest.importorskip("greenlet")
concurrency = pytest.importorskip("sqlalchemy.util.concurrency")

activation.activate()

in_a_process = functools.partial(apart.in_a_process, __file__)

ALONE = "a greenlet"  # how the reasons begin for which one has run alone

colour = contextvars.ContextVar("colour", default="none")


def spawn(function, *arguments):
    return concurrency.greenlet_spawn(function, *arguments)


def pause(result=None, seconds=0):
    """In a greenlet: other transactions run meanwhile."""
    return concurrency.await_only(asyncio.sleep(seconds, result))


@trusted
def this_thread():
    return _thread.get_ident()


@trusted
def is_alone():
    return core.is_exclusive()


def compute():
    """It takes long; where nothing does, greenlets run alone."""
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        sum(range(1000))


async def spawn_apart(function, *arguments):
    await begin_apart()
    return await spawn(function, *arguments)


def run(main, threads=2):
    return tornado.stm.run(main, threads=threads)


def alone():
    """How often greenlets have run alone."""
    return sum(count for reason, count in core.stats()["exclusive_reasons"].items() if reason.startswith(ALONE))


# ---- Beside others ------------------------------------------------------------------------------------------------------


class Bank:
    """Accounts, that greenlets and plain tasks write to."""

    def __init__(self):
        self.accounts, self.threads, self.computed, self.beside = [100] * 5, set(), 0, 0

    def transfer(self, number, times):
        """Of all that a step does, others see all or nothing."""
        for i in range(times):
            self.threads.add(this_thread())
            self.beside += not is_alone()
            a, b = (number + i) % 5, (number + 3 * i + 1) % 5
            self.accounts[a] -= 1
            sum(range(3000))  # for somebody to look meanwhile
            self.accounts[b] += 1
            assert pause(i) == i
        return number

    async def count(self, until):
        await begin_apart()
        while not until.done():
            assert sum(self.accounts) == 500
            compute()
            self.computed += 1
            await asyncio.sleep(0)

    async def begin(self, number, times, alone_first):
        await begin_apart()
        if alone_first:
            core.exclusive("the first step")
        return await spawn(self.transfer, number, times)

    async def main(self, greenlets=6, times=60, alone_first=False):
        transfers = asyncio.gather(*[self.begin(number, times, alone_first) for number in range(greenlets)])
        counting = [asyncio.create_task(self.count(transfers)) for _ in range(3)]
        assert await transfers == list(range(greenlets))
        await asyncio.gather(*counting)
        assert sum(self.accounts) == 500


def transfers_in_a_process(threads):
    bank = Bank()
    run(bank.main(), threads)
    return {"alone": alone(), "elsewhere": len(bank.threads - {this_thread()}), "computed": bank.computed}


def begun_alone_in_a_process():
    bank = Bank()
    run(bank.main(times=300, alone_first=True))
    return bank.beside


def test_frames_of_a_greenlet_that_have_begun_alone_go_on_with_barriers():
    assert in_a_process("begun_alone_in_a_process()") > 6 * 100


@pytest.mark.parametrize("threads", [2, 4])
def test_greenlets_run_on_the_loops_thread_and_others_beside_them(threads):
    found = in_a_process(f"transfers_in_a_process({threads})")
    assert found["elsewhere"] == found["alone"] == 0
    assert found["computed"] > 0


def loops_in_a_process():
    """How many items a loop in a greenlet has seen that stand in the list only in the midst of a transaction, for three ways to loop."""
    items, changed = ["whole"] * 200, []

    def change():
        for i in range(len(items)):
            items[i] = "half"
        compute()
        for i in range(len(items)):
            items[i] = "whole"
        changed.append(True)

    def look(iterate):
        seen = 0
        for item in iterate(items):
            seen += "half" in item
            pause()
        return seen

    def look_at_pairs(iterate):
        return sum(["half" in item for item in iterate(items) if pause() is None])

    async def change_always():
        while True:
            change()
            await asyncio.sleep(0)

    async def main():
        changing = [asyncio.create_task(change_always()) for _ in range(2)]
        seen = [await spawn(look, iter), await spawn(look, lambda items: zip(items, items)), await spawn(look_at_pairs, iter)]
        for task in changing:
            task.cancel()
        return seen, bool(changed)

    return tornado.stm.run(main(), threads=4)


def test_a_loop_that_goes_on_in_another_transaction_opens_again_what_it_loops_over():
    assert in_a_process("loops_in_a_process()") == ([0, 0, 0], True)


def light_in_a_process():
    """Nothing takes long."""
    bank = Bank()

    async def main():
        await asyncio.gather(*[spawn(bank.transfer, number, 400) for number in range(6)])

    run(main())
    return {"alone": alone(), "sum": sum(bank.accounts)}


def test_where_nothing_takes_long_greenlets_run_alone():
    found = in_a_process("light_in_a_process()")
    assert found["alone"] > 100 and found["sum"] == 500


def test_a_thread_alone_needs_nothing_of_that():
    found = in_a_process("transfers_in_a_process(1)")
    assert found["elsewhere"] == 0


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_what_greenlets_write_is_seen_whole(rate):
    core.inject_aborts(rate, 7)
    try:
        run(Bank().main())
    finally:
        core.inject_aborts(0, 0)


is_stuck = []


@trusted
def note_stuck():
    is_stuck.append(True)


@trusted
def has_gone_on(log):
    return "went on" in log


def stuck_in_a_process():
    """What is on the loop's thread takes for ever, or nearly so."""
    core.set_sequential(0)  # else it may have been short before, for long, on the other threads, and nobody else would go on
    log, here = [], this_thread()

    async def take_long():
        if this_thread() != here:
            return False
        note_stuck()
        until = time.monotonic() + 60
        while not has_gone_on(log) and time.monotonic() < until:
            pass
        log.append("took long")
        return True

    def waits():
        while not is_stuck:
            pause(seconds=0.001)  # else the loop's thread may have no time for anything else
        log.append(pause("waits"))
        log.append("went on")

    async def main():
        waiting = asyncio.create_task(spawn_apart(waits))
        await begin_apart()
        while not await asyncio.create_task(take_long()):
            pass
        await waiting

    run(main())
    return log


def test_a_greenlet_goes_on_when_the_loops_thread_does_not_come():
    assert in_a_process("stuck_in_a_process()") == ["waits", "went on", "took long"]


def stopped_in_a_process():
    """A loop that stops leaves nothing behind that is ready."""
    done = []

    async def main(number):
        await asyncio.gather(*[spawn(lambda: done.append(pause(k))) for k in range(number)])

    for number in range(30):
        run(main(number % 4))
    return len(done)


def test_nothing_waits_for_the_loops_thread_when_that_has_stopped():
    assert in_a_process("stopped_in_a_process()") == sum(number % 4 for number in range(30))


# ---- Within C code --------------------------------------------------------------------------------------------------------


def through_key_function():
    by = {}

    def key(n):
        by[n] = pause(n), is_alone()
        return by[n]

    return sorted([3, 1, 2], key=key), by


def through_generator():
    def waiting():
        for n in range(3):
            yield pause(n), is_alone()

    return list(waiting())


class Attributes:
    def __getattr__(self, name):
        return pause(name), is_alone()


def through_attribute():
    return Attributes().missing


def within_c_in_a_process(name):
    """What that function returns in a greenlet on two threads; the greenlets end when they go on beside others again."""

    def wait_in_it():
        result = globals()[name]()
        while is_alone():
            pause()
        return result

    async def go_on_computing(until):
        await begin_apart()
        while not until.done():
            compute()
            await asyncio.sleep(0)

    async def main():
        waiting = asyncio.gather(*[spawn_apart(wait_in_it) for _ in range(4)])
        await asyncio.gather(*[go_on_computing(waiting) for _ in range(3)])
        return await waiting

    return run(main())


@pytest.mark.parametrize("name", ["through_key_function", "through_generator", "through_attribute"])
def test_a_greenlet_that_waits_within_c_code_goes_on_alone_until_it_waits_elsewhere(name):
    expected = {
        "through_key_function": ([1, 2, 3], {n: (n, True) for n in (3, 1, 2)}),
        "through_generator": [(n, True) for n in range(3)],
        "through_attribute": ("missing", True),
    }[name]
    assert in_a_process(f"within_c_in_a_process({name!r})") == [expected] * 4


# ---- As without transactions ---------------------------------------------------------------------------------------------------


def outcome(threads):
    """What greenlets do whose tasks are cancelled, that raise, that see context variables, and that are nested."""
    log = []

    def waits_for_ever():
        colour.set("red")
        try:
            concurrency.await_only(asyncio.Event().wait())
        except asyncio.CancelledError:
            log.append(("cancelled", colour.get()))
            raise
        finally:
            log.append(pause("at the end"))

    def raises(error):
        pause()
        raise error

    def sees():
        before = colour.get()
        colour.set("green")
        pause()
        return before, colour.get()

    async def changes_beside():
        seen = await spawn(lambda: (pause(), colour.set("brown"), pause(), colour.get()))
        return seen[0], seen[3], colour.get()

    def nested():
        return concurrency.await_only(spawn(lambda: pause("inner"))), pause("outer")

    async def fails():
        raise KeyError("in a coroutine")

    def catches():
        try:
            return concurrency.await_only(fails())
        except KeyError as error:
            return str(error), pause("after it")

    async def main():
        task = asyncio.create_task(spawn(waits_for_ever))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ZeroDivisionError, match="so it is"):
            await spawn(raises, ZeroDivisionError("so it is"))
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await spawn(raises, StopIteration(1))
        colour.set("blue")
        log.append((await spawn(sees), colour.get()))
        log.append(await changes_beside())
        log.append(await spawn(nested))
        log.append(await spawn(catches))
        log.append(await spawn(lambda: "at once"))
        with pytest.raises(Exception, match="greenlet_spawn has not been called"):
            pause()
        with pytest.raises(Exception, match="required an async"):
            await concurrency.greenlet_spawn(lambda: None, _require_await=True)
        log.append(concurrency.in_greenlet() or await spawn(concurrency.in_greenlet))
        return log

    return run(main(), threads) if threads else asyncio.run(main())


def test_greenlets_do_what_they_do_without_transactions():
    expected = in_a_process("outcome(None)")
    assert expected[0] == ("cancelled", "red") and expected[-1] is True
    for threads in 1, 2:
        assert in_a_process(f"outcome({threads})") == expected


def in_midair():
    """It is begun by hand, outside of transactions, and goes on in one."""
    seen = []
    coroutine = spawn(lambda: seen.append(pause() or pause()))
    assert coroutine.send(None) is None

    async def main():
        with pytest.raises(StopIteration):
            while True:
                assert coroutine.send(None) is None
                await asyncio.sleep(0)

    run(main())
    return seen, alone() > 0


def test_a_greenlet_that_was_begun_outside_of_transactions_goes_on_alone():
    assert in_a_process("in_midair()") == ([None], True)


BEGUN_BEFORE_ANY_LOOP = """
import asyncio, collections.abc
from sqlalchemy.util import concurrency
import tornado.stm
from tornado.stm import core

class Pause(collections.abc.Awaitable):
    def __await__(self):
        yield
        return "paused"

def waits_twice():
    return concurrency.await_only(Pause()), concurrency.in_greenlet(), concurrency.await_only(Pause())

begun = concurrency.greenlet_spawn(waits_twice)
begun.send(None)

async def main():
    for _ in range(20):
        assert await concurrency.greenlet_spawn(waits_twice) == ("paused", True, "paused")
    foreign = [why for why in core.stats()["exclusive_reasons"] if why.startswith("call of greenlet")]
    try:
        while True:
            begun.send(None)
            await asyncio.sleep(0)
    except StopIteration as end:
        return foreign, end.value, concurrency.in_greenlet()

print(tornado.stm.run(main(), threads=2))
"""


def test_what_has_begun_before_any_loop_goes_on_and_what_follows_is_no_foreign_code():
    done = apart.run_beside(__file__, BEGUN_BEFORE_ANY_LOOP)
    assert (done.stderr, ast.literal_eval(done.stdout)) == ("", ([], ("paused", True, "paused"), False))
