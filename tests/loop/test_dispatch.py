"""The dispatch order: what is expected to be long waits for what is not, and neither starves."""

import _thread
import asyncio
import functools
import os
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tornado.stm
from interpreters import needs_engine
from tornado.stm import activation

needs_engine()

from progress import TIMEOUT
from tornado.stm.core import LONG, Estimates, ReadyQueue, Site, site_of, trusted

activation.activate()

PROMPT_SITE, LONG_SITE, ALONE_SITE, ANCHORED_SITE = (Site(kind, 1) for kind in ("prompt", "long", "alone", "anchored"))


def wait(ready, site=None, before=None):
    """Let a transaction wait that does nothing; its Entry."""
    return ready.put(int, (), site, before)


def queue_that_knows(long=0.05, prompt=0.001):
    """A queue that has seen the two sites twice."""
    ready = ReadyQueue()
    for _ in range(2):
        ready.estimates.learn(LONG_SITE, long)
        ready.estimates.learn(PROMPT_SITE, prompt)
    return ready


def queue_that_gathers():
    """One that has also seen that transactions of the third site have to run alone, and those of the fourth on the loop's thread."""
    ready = queue_that_knows()
    ready.gathers = True
    for _ in range(10):
        ready.estimates.learn(ALONE_SITE, 0.0001)
        ready.estimates.learn_alone(ALONE_SITE, "because")
        ready.estimates.learn(ANCHORED_SITE, 0.0001)
        ready.estimates.learn_anchored(ANCHORED_SITE, True)
    return ready


def take_elsewhere(ready):
    """What a thread takes that is not the loop's."""
    return ready.take(None, False)


def take_all(ready):
    taken = []
    while (entry := ready.take()) is not None:
        taken.append(entry)
    return taken


def test_prompt_ones_come_first_each_in_their_order():
    ready = queue_that_knows()
    a, b, c, d = (wait(ready, site) for site in (LONG_SITE, PROMPT_SITE, LONG_SITE, None))
    assert not ready.only_long()
    assert take_all(ready) == [b, d, a, c]
    assert len(ready) == 0


def test_a_transaction_follows_a_long_predecessor_into_its_queue():
    ready = queue_that_knows()
    a = wait(ready, LONG_SITE)
    b = wait(ready, PROMPT_SITE, a)
    c = wait(ready, None, b)
    d = wait(ready, PROMPT_SITE)
    assert take_all(ready) == [d, a, b, c]


def test_what_is_put_first_comes_first():
    ready = queue_that_knows()
    a, b = wait(ready, LONG_SITE), wait(ready, PROMPT_SITE)
    ready.put_first(str, ("first",))
    assert ready.take().transaction.run() == "first"
    assert take_all(ready) == [b, a]


def test_a_transaction_commits_after_its_predecessor():
    ready, done = ReadyQueue(), []
    before = ready.put(done.append, (1,))
    after = ready.put(done.append, (2,), None, before)
    assert [ready.take(), ready.take(), ready.take()] == [before, after, None]
    before.transaction.run(), after.transaction.run()
    assert done == [1, 2]


def test_what_is_put_off_comes_back_before_all_others_when_the_one_before_it_has_run():
    ready = queue_that_knows()
    a = wait(ready)
    b, c = wait(ready, None, a), wait(ready, None, a)
    d = wait(ready, None, c)
    e = wait(ready)
    assert [ready.take(), ready.take(), ready.take()] == [a, b, c]
    ready.put_off(c)
    ready.put_off(b)
    assert take_all(ready) == [e]  # d has to come after c
    wait(ready)
    a.transaction.run()
    ready.ran(a, 0.001)
    assert [ready.take(), ready.take(), ready.take()] == [c, d, b]


def test_what_is_put_off_when_the_one_before_it_has_just_run_comes_at_once():
    ready = ReadyQueue()
    a = wait(ready)
    b = wait(ready, None, a)
    assert [ready.take(), ready.take()] == [a, b]
    a.transaction.run()
    ready.put_off(b)
    ready.ran(a, 0.001)
    assert ready.take() is b


def test_what_turns_out_to_need_the_loops_thread_comes_before_what_must_come_after_it():
    ready = queue_that_gathers()
    a = wait(ready)
    b = wait(ready, ANCHORED_SITE, a)
    assert take_elsewhere(ready) is a
    ready.put_off(a, True)
    assert [ready.take(), ready.take()] == [a, b]


def test_only_what_has_been_taken_can_be_put_off():
    ready = ReadyQueue()
    for wrong in wait(ready), None:
        with pytest.raises(TypeError):
            ready.put_off(wrong)


def test_what_is_forgotten_never_comes():
    ready = queue_that_knows()
    a = wait(ready, LONG_SITE)
    wait(ready, PROMPT_SITE, a)
    ready.clear()
    assert len(ready) == 0 and ready.take() is None
    b = wait(ready, PROMPT_SITE, a)
    assert ready.take() is b


def test_what_is_forgotten_while_it_is_put_off_never_comes():
    ready = ReadyQueue()
    a = wait(ready)
    b = wait(ready, None, a)
    assert [ready.take(), ready.take()] == [a, b]
    ready.put_off(b)
    ready.clear()
    a.transaction.run()
    ready.ran(a, 0.001)
    assert ready.take() is None


@pytest.mark.parametrize("args", [(), (int,), (int, [1]), (int, (), "site"), (int, (), None, "entry"), (int, (), None, None, None)])
def test_what_is_put_in_must_be_a_call(args):
    with pytest.raises(TypeError):
        ReadyQueue().put(*args)


def test_long_ones_are_owed_what_prompt_ones_have_taken():
    ready = queue_that_knows(long=0.05, prompt=0.001)
    heavy = wait(ready, LONG_SITE)
    for _ in range(48):
        wait(ready, PROMPT_SITE)
        entry = ready.take()
        assert entry is not heavy
        ready.ran(entry, 0.001)
    wait(ready, PROMPT_SITE)
    ready.ran(ready.take(), 0.004)
    wait(ready, PROMPT_SITE)
    assert ready.take() is heavy


def test_what_is_owed_does_not_outlive_those_that_waited():
    ready = queue_that_knows()
    first = wait(ready, LONG_SITE)
    wait(ready, PROMPT_SITE)
    ready.ran(ready.take(), 10.0)
    wait(ready, PROMPT_SITE)
    assert ready.take() is first
    last = wait(ready, PROMPT_SITE)
    wait(ready, LONG_SITE)
    ready.take()
    assert ready.take() is last


def test_what_is_too_young_to_run_before_the_loop_stops_stays():
    ready = queue_that_knows()
    entries = [wait(ready, LONG_SITE if number % 2 else PROMPT_SITE) for number in range(4)]
    taken = []
    while (entry := ready.take(entries[2].transaction.age)) is not None:
        taken.append(entry)
    assert taken == entries[:2]
    assert len(ready) == 2


def test_what_is_expected_to_run_alone_waits_for_itself():
    ready = queue_that_gathers()
    a, b, c, d = (wait(ready, site) for site in (ALONE_SITE, PROMPT_SITE, ALONE_SITE, LONG_SITE))
    assert (a.why_alone, b.why_alone) == ("because", None)
    assert take_all(ready) == [b, d]
    assert len(ready) == 2 and not ready.only_long()
    assert [ready.take_gathered(), ready.take_gathered(), ready.take_gathered()] == [a, c, None]
    ready.gathers = False
    e = wait(ready, ALONE_SITE)
    assert take_all(ready) == [e] and e.why_alone is None


def test_what_is_gathered_comes_after_its_predecessor():
    ready = queue_that_gathers()
    a = wait(ready, PROMPT_SITE)
    b = wait(ready, ALONE_SITE, a)
    c = wait(ready, PROMPT_SITE, b)  # which waits for it in its line
    d = wait(ready, LONG_SITE)
    e = wait(ready, ALONE_SITE, d)  # likewise
    assert ready.take_gathered() is None
    assert take_all(ready) == [a, d, e]
    assert [ready.take_gathered(), ready.take_gathered(), ready.take_gathered()] == [b, c, None]
    assert c.why_alone is None


def test_what_is_expected_to_need_the_loops_thread_is_left_to_that():
    ready = queue_that_gathers()
    a, b, c, d = (wait(ready, site) for site in (PROMPT_SITE, ANCHORED_SITE, PROMPT_SITE, LONG_SITE))
    assert len(ready) == 4
    assert [take_elsewhere(ready) for _ in range(4)] == [a, c, d, None]
    assert take_all(ready) == [b]
    e, f, g = (wait(ready, site) for site in (ANCHORED_SITE, PROMPT_SITE, ANCHORED_SITE))
    assert take_all(ready) == [e, f, g]  # to it, they come in their turn
    ready.gathers = False
    h = wait(ready, ANCHORED_SITE)
    assert take_elsewhere(ready) is h


def test_what_must_come_after_something_for_the_loops_thread_waits_for_that_alone():
    ready = queue_that_gathers()
    a = wait(ready, ANCHORED_SITE)
    b = wait(ready, PROMPT_SITE, a)
    c = wait(ready, PROMPT_SITE)
    assert [take_elsewhere(ready), take_elsewhere(ready)] == [c, None]
    assert ready.take() is a and take_elsewhere(ready) is None
    a.transaction.run()
    ready.ran(a, 0.001)
    assert take_elsewhere(ready) is b


def test_the_loops_thread_gives_long_transactions_what_they_are_owed_before_what_waits_for_it_alone():
    ready = queue_that_gathers()
    a, b = wait(ready, ANCHORED_SITE), wait(ready, LONG_SITE)
    ready.owed = 1.0
    assert take_all(ready) == [b, a]


def test_what_needs_the_loops_thread_runs_alone_where_nothing_takes_long():
    ready = queue_that_gathers()
    for _ in range(1000):
        assert not ready.only_prompt
        ready.ran(wait(ready, PROMPT_SITE), 0.001)
    ready.clear()
    assert ready.only_prompt
    a = wait(ready, ANCHORED_SITE)
    assert "greenlet" in a.why_alone and ready.take_gathered() is a
    ready.ran(a, LONG)
    assert not ready.only_prompt
    b = wait(ready, ANCHORED_SITE)
    assert b.why_alone is None and ready.take_gathered() is None and take_all(ready) == [b]


def test_a_kind_needs_the_loops_thread_if_most_of_its_last_runs_have():
    estimates = Estimates()
    for _ in range(3):
        estimates.learn_anchored(ANCHORED_SITE, True)
    assert estimates.is_anchored(ANCHORED_SITE) and not estimates.is_anchored(PROMPT_SITE) and not estimates.is_anchored(None)
    assert estimates.why_alone(ANCHORED_SITE) is None
    for _ in range(3):
        estimates.learn_anchored(ANCHORED_SITE, False)
    assert not estimates.is_anchored(ANCHORED_SITE)


def test_only_what_is_known_to_be_prompt_is_taken_as_that():
    ready, prompt, unknown = queue_that_gathers(), Site("prompt", 1), Site("unknown", 1)
    for _ in range(20):
        ready.estimates.learn(prompt, 0.004)
    a, b, c = wait(ready, prompt), wait(ready, unknown), wait(ready, prompt)
    assert [ready.take_prompt(a.transaction.age), ready.take_prompt(), ready.take_prompt()] == [None, a, None]
    assert take_all(ready) == [b, c]


def test_what_is_known_to_be_prompt_may_not_be_short():
    estimates = Estimates()
    assert not estimates.is_prompt(PROMPT_SITE)
    for _ in range(20):
        estimates.learn(PROMPT_SITE, 0.004)
    assert estimates.is_prompt(PROMPT_SITE) and not estimates.is_short(PROMPT_SITE)
    estimates.learn(PROMPT_SITE, 0.006)
    assert not estimates.is_prompt(PROMPT_SITE)
    assert not estimates.is_prompt(None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([PROMPT_SITE, LONG_SITE, ALONE_SITE, ANCHORED_SITE]),
            st.integers(0, 5),
            st.integers(0, 20),
            st.sampled_from(["", "take", "take_elsewhere", "take_gathered", "take_prompt", "run"]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_every_one_runs_once_and_after_its_predecessor(steps):
    """As many are taken at a time as there are threads; one whose predecessor has not run yet is put off, and one that turns out to
    need the loop's thread."""
    ready, everyone, at_work, ran, before_it, movable = queue_that_gathers(), [], [], [], {}, set()

    def take(how="take"):
        entry = take_elsewhere(ready) if how == "take_elsewhere" else getattr(ready, how)()
        if entry is not None:
            at_work.append(entry)
        return entry is not None

    def run():
        entry = at_work.pop()  # the last one first
        if before_it[entry] is not None and before_it[entry] not in ran:
            ready.put_off(entry)
        elif entry in movable:
            movable.remove(entry)
            ready.put_off(entry, True)
        else:
            entry.transaction.run()
            ran.append(entry)
            ready.ran(entry, 0.05 if entry.site == LONG_SITE else 0.001)

    for site, back, prompt_run, then, moves in steps:
        before = everyone[-back] if 0 < back <= len(everyone) else None
        everyone.append(wait(ready, site, before))
        before_it[everyone[-1]] = before
        if moves:
            movable.add(everyone[-1])
        ready.owed += prompt_run / 1000
        if then.startswith("take"):
            take(then)
        elif then == "run" and at_work:
            run()
    while at_work or take() or take("take_gathered"):
        run()
    assert sorted(ran, key=lambda entry: entry.transaction.age) == everyone and len(ready) == 0
    place = {entry: i for i, entry in enumerate(ran)}
    assert all(place[before] < place[entry] for entry, before in before_it.items() if before is not None)


def test_one_run_alone_does_not_make_a_site_long():
    estimates = Estimates()
    estimates.learn(PROMPT_SITE, 0.001)
    estimates.learn(PROMPT_SITE, 2.0)
    assert estimates.expected(PROMPT_SITE) < LONG
    estimates.learn(PROMPT_SITE, 1.0)
    assert estimates.expected(PROMPT_SITE) == 1.0


def test_a_site_has_always_been_prompt_when_none_of_its_many_last_runs_was_long():
    estimates = Estimates()

    def runs(used, passed, times=1):
        for _ in range(times):
            estimates.learn(PROMPT_SITE, used, passed)
        return estimates.is_always_prompt(PROMPT_SITE)

    assert not estimates.is_always_prompt(PROMPT_SITE)
    assert not runs(0.02, 0.02)  # the first
    assert not runs(0.0001, 0.0001, 100)  # many more may still be others: a file that is there, and is waited for later
    assert runs(0.0001, 0.0001, 400)
    assert not runs(0.0001, 0.02)  # it has waited
    assert runs(0.0001, 0.0001, 10)
    assert not runs(0.02, 0.02)
    assert not runs(0.0001, 0.0001, 100)
    assert runs(0.0001, 0.0001, 500)
    assert estimates.is_always_prompt(Site("prompt", "new")) and not estimates.is_always_prompt(LONG_SITE)
    estimates.learn(Site("prompt", "another"), 0.02)
    assert not estimates.is_always_prompt(Site("prompt", "new")) and estimates.is_always_prompt(PROMPT_SITE)
    assert not estimates.is_always_prompt(None)


def test_sites_that_were_new_when_their_kind_was_are_prompt_when_that_is():
    estimates = Estimates()
    sites = [Site("task", n) for n in range(100)]
    for site in sites:
        estimates.learn(site, 0.0001)
    assert not any(map(estimates.is_always_prompt, sites))
    for n in range(500):
        estimates.learn(Site("task", 100 + n), 0.0001)
    assert all(map(estimates.is_always_prompt, sites))
    estimates.learn(sites[0], 0.02)
    for n in range(500):
        estimates.learn(Site("task", 600 + n), 0.0001)
    assert not estimates.is_always_prompt(sites[0]) and all(map(estimates.is_always_prompt, sites[1:]))


def test_what_had_to_run_alone_is_expected_to():
    estimates, other = Estimates(), Site("alone", "new")
    estimates.learn_alone(ALONE_SITE, "because")
    assert estimates.why_alone(ALONE_SITE) is None  # it may not again
    estimates.learn_alone(ALONE_SITE, "because of that")
    assert estimates.why_alone(ALONE_SITE) == estimates.why_alone(other) == "because of that"
    assert estimates.why_alone(PROMPT_SITE) is estimates.why_alone(None) is None
    runs = 0
    while estimates.why_alone(ALONE_SITE):  # nobody can tell any more
        estimates.learn_alone(ALONE_SITE, None, 0, True)
        runs += 1
    assert runs < 100
    estimates.learn_alone(ALONE_SITE, "because", 0.0)
    assert estimates.why_alone(ALONE_SITE) == "because"
    for _ in range(3):
        estimates.learn_alone(ALONE_SITE, None)
    assert estimates.why_alone(ALONE_SITE) is None


def test_what_computes_before_it_has_to_be_alone_is_not_expected_to_be():
    estimates = Estimates()
    for _ in range(10):
        estimates.learn_alone(ALONE_SITE, "because", 0.01)
    assert estimates.why_alone(ALONE_SITE) is None


def test_an_unknown_site_is_expected_to_do_what_its_kind_does():
    estimates = Estimates()
    for n in range(100):
        estimates.learn(Site("handler", n), 0.05)
    assert estimates.expected(Site("handler", "new")) >= LONG
    assert estimates.expected(Site("another", "new")) < LONG
    for n in range(10):
        estimates.learn(Site("handler", n), 0.001)
    assert estimates.expected(Site("handler", "new")) < LONG


def test_the_sites_not_seen_for_longest_are_forgotten():
    estimates = Estimates()
    for n in range(20_000):
        estimates.learn(Site(("kind", n), n), 1.0)
        estimates.learn(LONG_SITE, 1.0)
    assert estimates.expected(LONG_SITE) == 1.0
    known = [estimates.expected(Site(("kind", n), n)) for n in range(20_000)]
    assert known[:10_000].count(1.0) < 100
    assert known[-1] == 1.0
    assert 3000 < known.count(1.0) <= 4096


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

        def note(callback, *args, context=None):
            found.append(site_of(asyncio.Handle(callback, args, loop)))
            return type(loop).call_soon(loop, callback, *args, context=context)

        for callback in callbacks:
            if asyncio.iscoroutine(callback):
                loop.call_soon = note  # which a task calls for its first step
                task = loop.create_task(callback)
                del loop.call_soon
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
    assert {site.kind for site in (first, other, keyword, longer)} == {first.kind}


def test_calls_of_a_function_are_of_one_kind_whatever_their_first_argument():
    async def crawl(number, page):
        await asyncio.sleep(0)

    first, same, other = sites_of(crawl(1, "x"), crawl(1, "x"), crawl(2, "x"))
    assert first == same != other and first.kind == other.kind
    assert sites_of(crawl("1", "x"))[0].kind != first.kind


def test_steps_of_a_coroutine_differ_by_where_they_wait():
    async def inner(handles):
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def outer(handles):
        for _ in range(2):
            await inner(handles)

    async def ask():
        loop, found = asyncio.get_running_loop(), []

        def note(callback, *args, context=None):
            found.append(site_of(asyncio.Handle(callback, args, loop)))
            return type(loop).call_soon(loop, callback, *args, context=context)

        loop.call_soon = note
        task = loop.create_task(outer(found))
        await task
        del loop.call_soon
        return found[:5]

    first, *steps = tornado.stm.run(ask(), threads=1)
    assert steps[0] == steps[2] and steps[1] == steps[3]  # each time round
    assert len({site.kind for site in (first, *steps)}) == 3


def test_callbacks_differ_by_function_class_and_object():
    a, b = Handler(), Handler()
    first, same, other, wrapped = sites_of(a.call, a.call, b.call, functools.partial(functools.partial(a.call)))
    assert first == same == wrapped
    assert first != other and first.kind == other.kind


def test_a_callable_object_is_not_asked_for_anything():
    class Strange:
        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

        def __call__(self):
            pass

    a, b = Strange(), Strange()
    first, same, other = sites_of(a, a, b)
    assert first == same != other and first.kind == other.kind != sites_of(print)[0].kind


def test_tasks_of_what_is_awaited_otherwise_differ_by_its_type():
    async def numbers():
        yield 1

    first, same, other = sites_of(numbers().__anext__(), numbers().asend(None), numbers().aclose())
    assert first.kind == same.kind != other.kind and first != same


def test_what_has_been_cancelled_is_of_a_kind_of_its_own():
    """Else nobody knew that it is prompt, and other threads were called for what waits with it."""
    async def ask():
        loop = asyncio.get_running_loop()
        handles = [asyncio.Handle(print, (), loop), asyncio.Handle(asyncio.sleep, (), loop)]
        for handle in handles:
            handle.cancel()
        return [site_of(handle) for handle in [*handles, asyncio.Handle(print, (), loop)]]

    first, other, lively = tornado.stm.run(ask(), threads=1)
    assert first == other and first.kind != lively.kind


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
        # By a timer each: those of one transaction would have to commit in its order.
        tasks, now = [], loop.time()
        for i, (n, number) in enumerate([(1_000_000, number) for number in range(4)] + [(0, "trivial")]):
            loop.call_at(now + i / 1e6, lambda n=n, number=number: tasks.append(loop.create_task(request(n, [number]))))
        while len(order) < 5:
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    tornado.stm.run(main(), threads=1)
    assert order == ["trivial", 0, 1, 2, 3]


def test_what_a_reader_has_scheduled_runs_before_it_is_told_again():
    """As a driver's in C does, the callback leaves the reading to whom it wakes, for whom the long ones leave no thread."""
    told = 0

    def compute():
        return sum(i * i % 7 for i in range(50_000))

    async def compute_often():
        for _ in range(WAITS):
            compute()
            await asyncio.sleep(0)

    async def wait_often():
        loop, (end, peer) = asyncio.get_running_loop(), socket.socketpair()
        with end, peer:
            for _ in range(WAITS):
                readable = asyncio.Event()

                def tell():
                    nonlocal told
                    told += 1
                    readable.set()

                peer.send(b"x")
                loop.add_reader(end, tell)
                await readable.wait()
                loop.remove_reader(end)
                assert os.read(end.fileno(), 10) == b"x"
                compute()

    async def main():
        await asyncio.gather(wait_often(), *(compute_often() for _ in range(8)))

    for threads in 1, 2:
        told = 0
        tornado.stm.run(main(), threads=threads)
        assert told == WAITS


WAITS = 10


@pytest.mark.parametrize("takes_long", (False, True), ids=("short", "long"))
@pytest.mark.parametrize("way", ("reader", "writer"))
def test_what_a_callback_has_scheduled_may_remove_it_before_it_is_told_again(way, takes_long):
    """As with ``loop.add_writer(fd, future.set_result, None)``, though others are heard meanwhile, and whatever that takes."""
    told, asked, heard = [], _thread.allocate_lock(), _thread.allocate_lock()
    asked.acquire(), heard.acquire()

    @trusted
    def wait_for_others():
        for _ in range(5):
            asked.release()
            assert heard.acquire(timeout=TIMEOUT), "nobody else is heard"

    def others(client):
        for _ in range(5 * WAITS):
            assert asked.acquire(timeout=TIMEOUT), "nobody waits"
            client.send(b"x")
            client.recv(1)
            heard.release()

    async def main():
        loop, (end, peer), (other, client) = asyncio.get_running_loop(), socket.socketpair(), socket.socketpair()
        add, remove = getattr(loop, f"add_{way}"), getattr(loop, f"remove_{way}")

        def remove_it(future):
            if takes_long:
                sum(i * i % 7 for i in range(100_000))
            wait_for_others()
            remove(end)
            done.set_result(None)

        with end, peer, other, client:
            peer.send(b"x")
            other.setblocking(False)
            loop.add_reader(other, lambda: other.send(other.recv(1)))
            serving = asyncio.create_task(asyncio.to_thread(others, client))
            for number in range(WAITS):
                future, done = loop.create_future(), loop.create_future()
                future.add_done_callback(remove_it)

                def tell(future, number):
                    told.append(number)
                    if not future.done():
                        future.set_result(None)

                add(end, tell, future, number)
                await done
            await serving
            loop.remove_reader(other)

    tornado.stm.run(main(), threads=2)
    assert told == list(range(WAITS))


def test_what_a_reader_tells_of_is_told_again_when_nobody_reads():
    """What it has scheduled has run and has not read: so it is told until somebody does."""
    told = []

    async def main():
        loop, (end, peer) = asyncio.get_running_loop(), socket.socketpair()
        with end, peer:
            enough = loop.create_future()

            def tell():
                told.append(len(told))
                if len(told) % 2:
                    loop.call_soon(int)
                if len(told) == 20:
                    loop.remove_reader(end)
                    enough.set_result(None)

            peer.send(b"x")
            loop.add_reader(end, tell)
            await asyncio.wait_for(enough, TIMEOUT)

    for threads in 1, 2:
        told.clear()
        tornado.stm.run(main(), threads=threads)
        assert told == list(range(20))


@pytest.mark.parametrize("tells_future", (False, True), ids=("callback", "future"))
def test_what_events_of_one_descriptor_schedule_runs_in_their_order(tells_future):
    """A short callback that a later event schedules, or what a future tells then, does not overtake the long one of an earlier event."""
    came = []

    def compute(byte):
        sum(i * i % 7 for i in range(300_000 if byte in b"CGKW" else 100_000))  # so the next one might be over first
        came.append(byte)

    async def main():
        loop, (end, peer) = asyncio.get_running_loop(), socket.socketpair()
        with end, peer:
            for _ in range(3):  # so that both are known for what they are
                loop.call_soon(compute, b"-")
                await asyncio.sleep(0)
                future = loop.create_future()
                future.add_done_callback(lambda future: came.append(b"-"))
                future.set_result(None)
                loop.call_soon(came.append, b"-")
                await asyncio.sleep(0.01)
            came.clear()
            over = asyncio.Event()

            def read():
                byte = os.read(end.fileno(), 1)
                if byte.isupper():
                    loop.call_soon(compute, byte)
                elif tells_future:
                    future = loop.create_future()
                    future.add_done_callback(lambda future: came.append(byte))
                    future.set_result(None)
                else:
                    loop.call_soon(came.append, byte)
                if byte == b"z":
                    loop.call_soon(over.set)

            loop.add_reader(end, read)
            peer.send(BYTES)
            await asyncio.wait_for(over.wait(), TIMEOUT)
            loop.remove_reader(end)

    for threads in 1, 2, 3:
        tornado.stm.run(main(), threads=threads)
        assert b"".join(came) == BYTES


def test_what_descends_from_events_of_one_descriptor_runs_in_their_order(all_short):
    """Also where what the first one has scheduled is over, and what that has scheduled is not."""
    log = []

    async def main():
        loop, (end, peer) = asyncio.get_running_loop(), socket.socketpair()

        def a():
            log.append("a")
            loop.call_soon(b)

        def b():
            sum(i * i % 7 for i in range(500_000))
            log.append("b")

        def read():
            end.recv(1)
            loop.call_soon(log.append, "c") if log else loop.call_soon(a)

        def send_when_a_is_over():
            peer.send(b"-")
            while not log:
                time.sleep(0.0001)
            time.sleep(0.002)  # its thread is through with it
            peer.send(b"-")

        with end, peer:
            end.setblocking(False)
            loop.add_reader(end, read)
            sending = threading.Thread(target=send_when_a_is_over)
            sending.start()
            while len(log) < 3:
                await asyncio.sleep(0.001)
            loop.remove_reader(end)
            await asyncio.to_thread(sending.join)

    for _ in range(5):
        log.clear()
        tornado.stm.run(main(), threads=3)
        assert log == ["a", "b", "c"]


BYTES = b"AbCDEfGHijKLMnOpqrStUvWXYz"
