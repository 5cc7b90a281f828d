"""What runs in the transaction that has scheduled it, and what begins one of its own."""

import asyncio
import time
import weakref

import pytest

import tornado.stm
from interpreters import needs_engine
from tornado.stm import core
from tornado.stm.core import trusted
from tornado.stm.loop.eventloop import TransactionalEventLoop
from tornado.stm.program import runner

needs_engine()

ROUNDS = 20  # after the first two, it is known how long a callback takes


@pytest.fixture
def loop():
    loop = TransactionalEventLoop(2)
    yield loop
    loop.close()


@trusted
def here():
    return core.current()


async def tell(told):
    """Set a future to the transaction that does so, for a callback."""
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(told)
    future.set_result(here())
    await asyncio.sleep(0)


def in_the_same():
    """Has the callback of a future run in the transaction that set it, round by round?"""
    seen = []

    def told(future):
        seen.append(future.result() is here())

    async def main():
        for _ in range(ROUNDS):
            await tell(told)

    tornado.stm.run(main(), threads=2)
    return seen


def test_what_a_future_tells_follows_once_it_is_known_to_be_short(all_short):
    seen = in_the_same()
    assert len(seen) == ROUNDS and not seen[0]
    assert seen == sorted(seen) and seen[-1]  # one that does not follow may still run when the next one could


def test_what_is_not_short_begins_a_transaction(none_short):
    assert in_the_same() == [False] * ROUNDS


def test_what_a_follower_takes_is_its_own(all_short):
    @trusted  # whose thread_time() is that of this thread, not of all threads of the loop
    def told(future):
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    async def main():
        for _ in range(4):
            await tell(told)
        loop = asyncio.get_running_loop()
        return loop._dispatcher.ready.estimates.expected(core.site_of(asyncio.Handle(told, (), loop)))

    assert tornado.stm.run(main(), threads=2) >= 0.005


def test_what_has_followed_is_gone_when_the_next_begins(all_short):
    gone = []

    class Payload:
        pass

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(ROUNDS):
            payload = Payload()
            known = weakref.ref(payload)
            first, second = loop.create_future(), loop.create_future()
            first.add_done_callback(lambda future, payload=payload: None)
            second.add_done_callback(lambda future: gone.append(known() is None))
            del payload
            first.set_result(None)
            second.set_result(None)
            del first
            await asyncio.sleep(0)

    tornado.stm.run(main(), threads=2)
    assert all(gone[2:])


def transactions_of_tasks(tasks):
    """Round by round: what created so many tasks at once, each task's beginning and what it does after a sleep, by their transactions."""
    rounds = []

    async def child(seen):
        seen.append(here())
        await asyncio.sleep(0)
        seen.append(here())

    async def main():
        for _ in range(ROUNDS):
            rounds.append([here()])
            created = [asyncio.create_task(child(rounds[-1])) for _ in range(tasks)]
            for task in created:
                await task
            await asyncio.sleep(0)

    tornado.stm.run(main(), threads=2)
    return rounds


def test_a_task_begins_a_transaction_until_it_is_known_always_to_be_prompt():
    rounds = transactions_of_tasks(1)
    assert len(rounds) == ROUNDS and all(len(set(seen)) == len(seen) == 3 for seen in rounds)


def test_a_task_that_is_always_prompt_begins_where_it_was_created_and_goes_on_elsewhere(all_short):
    rounds = transactions_of_tasks(1)
    assert len(rounds) == ROUNDS
    for creator, begun, gone_on in rounds[2:]:
        assert begun is creator and gone_on is not creator


def test_a_task_waits_for_its_turn_where_others_wait(all_short):
    rounds = []

    async def child():
        return here()

    async def creator():
        for _ in range(ROUNDS):
            seen = [here()]
            seen.append(await asyncio.create_task(child()))
            rounds.append(seen)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(creator(), creator())

    tornado.stm.run(main(), threads=1)
    assert len(rounds) == 2 * ROUNDS and all(begun is not created for created, begun in rounds[:-1])


def test_of_several_tasks_each_begins_a_transaction(all_short):
    rounds = transactions_of_tasks(3)
    assert len(rounds) == ROUNDS and all(len(set(seen)) == len(seen) == 7 for seen in rounds)


def test_one_task_at_most_begins_in_a_transaction(all_short):
    depths = []

    async def descend(depth, creator):
        depths.append((depth, here() is creator))
        if depth < 3:
            await asyncio.create_task(descend(depth + 1, here()))

    async def main():
        for _ in range(ROUNDS):
            await descend(0, here())
            await asyncio.sleep(0)

    tornado.stm.run(main(), threads=2)
    assert len(depths) == 4 * ROUNDS
    assert depths[-4:] == [(0, True), (1, True), (2, False), (3, True)]


def test_where_others_wait_what_is_no_trifle_takes_its_turn(all_short):
    """On one thread: what reads for all connections runs before what each of them then does."""
    rounds = []

    @trusted  # whose thread_time() is that of this thread, not of all threads of the loop
    def told(future):
        until = time.thread_time() + 0.0005
        while time.thread_time() < until:
            pass
        rounds[-1].append("told " + future.result())

    async def main():
        loop = asyncio.get_running_loop()

        def tell(name):
            rounds[-1].append("tell " + name)
            future = loop.create_future()
            future.add_done_callback(told)
            future.set_result(name)

        for _ in range(ROUNDS):
            rounds.append([])
            for name in "ab":
                loop.call_soon(tell, name)
            await asyncio.sleep(0.01)

    tornado.stm.run(main(), threads=1)
    assert rounds[2:] == [["tell a", "tell b", "told a", "told b"]] * (ROUNDS - 2)


def test_what_one_transaction_schedules_runs_in_that_order(all_short):
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        futures = []

        def note(name):
            seen.append(name)

        def told(future):
            name = future.result()
            seen.append(name)
            if len(name) == 1:
                tell_later(name * 2)

        def tell_later(name):
            future = loop.create_future()
            futures.append(future)
            future.add_done_callback(told)
            future.set_result(name)

        for done in range(ROUNDS):
            tell_later("a")
            tell_later("b")
            loop.call_soon(note, "c")
            tell_later("d")
            while len(seen) < 7 * (done + 1):
                await asyncio.sleep(0.001)

    tornado.stm.run(main(), threads=2)
    rounds = [seen[start : start + 7] for start in range(0, len(seen), 7)]
    assert len(rounds) == ROUNDS
    for each in rounds:
        assert [name for name in each if len(name) == 1] == ["a", "b", "c", "d"]
        assert all(each.index(name) < each.index(name * 2) for name in "abd")
    for each in rounds[2:]:
        # The transaction of `main` schedules both, by its followers; that of "d" schedules "dd".
        assert each.index("aa") < each.index("bb")


def test_a_follower_that_is_rolled_back_takes_all_that_it_follows_along(all_short):
    counts, seen = {"set": 0, "told": 0}, []

    async def main():
        loop = asyncio.get_running_loop()

        def told(future):
            counts["told"] += 1
            core.defer(seen.append, future.result())

        for number in range(300):
            future = loop.create_future()
            future.add_done_callback(told)
            counts["set"] += 1
            future.set_result(number)
            await asyncio.sleep(0)

    core.inject_aborts(0.02, 5)
    try:
        tornado.stm.run(main(), threads=2)
    finally:
        core.inject_aborts(0, 0)
    assert counts == {"set": 300, "told": 300} and seen == list(range(300))


def test_what_ends_the_loop_leaves_the_rest_for_its_next_run(all_short, loop):
    seen = []

    def told(future):
        seen.append(future.result())
        if future.result() == "end":
            raise SystemExit(3)

    def tell_of(*names):
        for name in names:
            future = loop.create_future()
            future.add_done_callback(told)
            future.set_result(name)

    for _ in range(ROUNDS):
        loop.call_soon(tell_of, "more")
    for _ in range(2):  # what they schedule is of the second round
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert seen == ["more"] * ROUNDS
    seen.clear()
    loop.call_soon(tell_of, "one", "end", "two")
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert seen == ["one", "end"]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["one", "end", "two"]


def test_what_is_scheduled_beside_a_stop_is_left_over(all_short, loop):
    """As by asyncio's loop, which runs what was ready with the callback that has stopped it, and returns."""
    seen = []

    def told(future):
        seen.append(future.result())

    def tell_around_stop():
        before, after = loop.create_future(), loop.create_future()
        before.add_done_callback(told)
        after.add_done_callback(told)
        before.set_result("before")
        loop.stop()
        after.set_result("after")

    for _ in range(ROUNDS):
        loop.call_soon(tell_around_stop)
        loop.run_forever()
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert seen == ["before", "after"] * ROUNDS
    seen.clear()
    loop.call_soon(tell_around_stop)
    loop.run_forever()
    assert seen == []


class Noted:
    """Something whose end is noticed."""

    def __init__(self, number, ends):
        self.number, self.ends = number, ends

    def __del__(self):
        core.defer(self.ends.append, self.number)


def test_what_an_aborted_attempt_has_scheduled_is_gone_before_the_next(loop):
    attempts, ends = [], []

    @trusted
    def begin():
        attempts.append(None)
        return len(attempts)

    @trusted
    def roll_back(number):
        if number == 1:
            raise core.Abort

    def schedule():
        number = begin()
        loop.call_soon(lambda noted: None, Noted(number, ends))
        roll_back(number)
        loop.call_soon(loop.stop)

    loop.call_soon(schedule)
    loop.run_forever()
    assert ends == [2]


def test_a_follower_that_stops_the_loop_leaves_over_what_asyncios_leaves(all_short):
    """What is of its round runs, what that schedules does not."""

    def logs_of(loop):
        log = []

        def told(future):
            log.append(future.result())
            if future.result() == 0:
                loop.stop()
            loop.call_soon(log.append, "next round")

        def tell_all():
            for i in range(50):
                future = loop.create_future()
                future.add_done_callback(told)
                future.set_result(i)

        for _ in range(ROUNDS):
            loop.call_soon(tell_all)
            loop.run_forever()
            yield log[:]
            log.clear()
            loop.call_soon(loop.stop)
            loop.run_forever()
            yield log[:]
            log.clear()
        loop.close()

    expected = [list(range(50)), ["next round"] * 50] * ROUNDS
    for make in asyncio.SelectorEventLoop, lambda: runner.new_loop(1), lambda: runner.new_loop(3):
        assert list(logs_of(make())) == expected
