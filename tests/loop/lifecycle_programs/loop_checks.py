"""What asyncio and Tornado promise of a loop, checked on the loop of ``tornado.stm.run``.

    loop_checks.py SEED NAME...     with aborts injected if SEED is not 0

Each check is a coroutine function, which runs in a ``tornado.stm.run`` of its own, or a plain function, which makes its
own loops.  A line of JSON says how each went: ``[name, what went wrong or null]``.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import datetime
import errno
import faulthandler
import gc
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import weakref

import tornado.gen
import tornado.httpclient
import tornado.httpserver
import tornado.ioloop
import tornado.locks
import tornado.netutil
import tornado.queues
import tornado.tcpclient
import tornado.tcpserver
import tornado.web
import tornado.websocket
from tornado.concurrent import dummy_executor

#: seconds after which a check is taken to be stuck, on a machine however busy
SECONDS_UNTIL_STUCK = 60

#: seconds of what is not waited for
FOR_EVER = 3600


async def until(condition):
    """Let the others go on until `condition()` holds."""
    while not condition():
        await asyncio.sleep(0.001)


# Callbacks and timers


async def call_soon_keeps_the_order():
    loop = asyncio.get_running_loop()
    seen, done = [], loop.create_future()

    def schedule():
        for i in range(200):
            loop.call_soon(seen.append, i)
        loop.call_soon(done.set_result, None)

    loop.call_soon(schedule)
    await done
    assert seen == list(range(200)), seen


async def call_soon_order_survives_nesting():
    loop = asyncio.get_running_loop()
    seen, done = [], asyncio.Event()

    def parent(i):
        seen.append(("parent", i))
        for j in range(5):
            loop.call_soon(child, i, j)

    def child(i, j):
        seen.append(("child", i, j))
        if len(seen) == 20 + 100:
            done.set()

    for i in range(20):
        loop.call_soon(parent, i)
    await done.wait()
    assert [e[1] for e in seen if e[0] == "parent"] == list(range(20)), seen
    for i in range(20):
        assert [e[2] for e in seen if e[:2] == ("child", i)] == list(range(5)), seen
        assert seen.index(("parent", i)) < seen.index(("child", i, 0)), seen


async def callbacks_share_state_without_locks():
    loop = asyncio.get_running_loop()
    counter, done = {"n": 0}, asyncio.Event()

    def increment():
        n = counter["n"]
        sum(range(200))
        counter["n"] = n + 1
        if n + 1 == 300:
            done.set()

    for _ in range(300):
        loop.call_soon(increment)
    await done.wait()
    assert counter == {"n": 300}


async def cancelled_callback_does_not_run():
    loop = asyncio.get_running_loop()
    seen = []
    handles = [loop.call_soon(seen.append, i) for i in range(10)]
    for handle in handles[::2]:
        handle.cancel()
    assert handles[0].cancelled() and not handles[1].cancelled()
    await asyncio.sleep(0)  # goes on after all that has been scheduled before
    assert seen == [1, 3, 5, 7, 9], seen


async def timers_fire_in_the_order_of_their_deadlines():
    loop = asyncio.get_running_loop()
    seen, done = [], loop.create_future()
    start = loop.time() + 0.01
    for i in reversed(range(100)):
        loop.call_at(start + i * 0.0005, seen.append, i)
    loop.call_at(start + 0.1, done.set_result, None)
    await done
    assert seen == list(range(100)), seen


async def timers_fire_in_order_between_those_of_others():
    loop = asyncio.get_running_loop()
    start = loop.time() + 0.02
    orders = [[], []]

    def come(seen, i):
        sum(range(4000 * (i % 2 == 0)))  # the next one would overtake this one
        seen.append(i)

    def set_timers(seen, delay):
        for i in range(60):
            loop.call_at(start + (2 * i + delay) * 1e-6, come, seen, i)

    for delay, seen in enumerate(orders):
        loop.call_soon(set_timers, seen, delay)
    await until(lambda: all(len(seen) == 60 for seen in orders))
    assert orders == [list(range(60))] * 2, orders


async def timers_that_are_due_while_others_are_set_fire_in_order():
    loop = asyncio.get_running_loop()

    def set_timers(seen):
        start = loop.time() + 0.004
        for i in range(2000):
            loop.call_at(start + i * 7919 % 2000 * 1e-6, seen.append, i * 7919 % 2000)
            loop.call_later(0.01, seen.append, "cancelled").cancel()

    for _ in range(12):
        seen = []
        loop.call_soon(set_timers, seen)
        await until(lambda: len(seen) >= 2000)
        assert seen == list(range(2000)), seen[:20]


async def timers_far_apart_fire_in_order():
    loop = asyncio.get_running_loop()
    seen, done = [], loop.create_future()
    loop.call_later(0.3, done.set_result, None)
    loop.call_later(0.15, seen.append, 2)
    loop.call_later(0.01, seen.append, 1)
    await done
    assert seen == [1, 2], seen


async def timer_is_never_early_and_cancels():
    loop = asyncio.get_running_loop()
    fired = loop.create_future()
    when = loop.time() + 0.03
    loop.call_at(when, lambda: fired.set_result(loop.time()))
    seen = []
    cancelled = loop.call_later(0.01, seen.append, "cancelled")
    cancelled.cancel()
    late = loop.call_later(3600, seen.append, "late")
    assert late.when() > when
    assert await fired >= when - 2 * loop._clock_resolution
    late.cancel()
    assert seen == []


async def many_cancelled_timers_are_forgotten():
    loop = asyncio.get_running_loop()
    seen = []
    for _ in range(500):
        loop.call_later(3600, seen.append, 1).cancel()
    await asyncio.sleep(0.01)
    fired = loop.create_future()
    loop.call_later(0.01, fired.set_result, "yes")
    assert await fired == "yes" and seen == []


async def waiting_timers_are_where_tools_look_for_them():
    loop = asyncio.get_running_loop()
    before, seen = set(loop._scheduled), []
    late, due, gone = (loop.call_later(delay, seen.append, delay) for delay in (3600, 0, 3600))
    gone.cancel()
    for _ in range(2):  # now, and where they have long been set
        assert {timer for timer in loop._scheduled if not timer.cancelled()} - before == {late, due}
        due._run()
        due.cancel()
        due = loop.call_later(3600, seen.append, "later")
        await asyncio.sleep(0.01)
    late.cancel()
    due.cancel()
    assert seen == [0, "later"]


async def loop_time_goes_on():
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.sleep(0.01)
    assert loop.time() > before


async def callbacks_from_threads():
    loop = asyncio.get_running_loop()
    seen, done = [], asyncio.Event()

    def note(entry):
        seen.append(entry)
        if len(seen) == 200:
            done.set()

    def work(thread):
        for i in range(50):
            loop.call_soon_threadsafe(note, (thread, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    await done.wait()
    for n in range(4):
        assert [i for thread, i in seen if thread == n] == list(range(50)), seen
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])


async def coroutines_from_threads():
    loop = asyncio.get_running_loop()

    async def double(x):
        await asyncio.sleep(0)
        return 2 * x

    def work(x):
        return asyncio.run_coroutine_threadsafe(double(x), loop).result(SECONDS_UNTIL_STUCK)

    assert await asyncio.gather(*[asyncio.to_thread(work, x) for x in range(10)]) == list(range(0, 20, 2))


async def coroutines_begun_in_a_callback():
    loop = asyncio.get_running_loop()

    async def double(x):
        await asyncio.sleep(0)
        return 2 * x

    def begin(coroutine, future):
        loop.create_task(coroutine).add_done_callback(future.set_result)
        sum([x for x in range(50)])

    def work():
        # Made outside of transactions: the loop calls their function once more.
        for x, future in enumerate(futures):
            loop.call_soon_threadsafe(begin, double(x), future)

    futures = [loop.create_future() for _ in range(100)]
    threading.Thread(target=work).start()
    assert [task.result() for task in await asyncio.gather(*futures)] == list(range(0, 200, 2))


async def threads_cancel_callbacks():
    loop = asyncio.get_running_loop()
    seen, early, started = [], [], threading.Event()

    def work():
        # It may have run by then.
        early.append(loop.call_soon_threadsafe(seen.append, "early"))
        early[0].cancel()
        running = loop.call_soon_threadsafe(run)
        started.wait()
        running.cancel()  # waits, and has no effect
        seen.append("waited")

    def run():
        started.set()
        sum(range(100_000))
        seen.append("run")

    thread = threading.Thread(target=work)
    thread.start()
    await until(lambda: not thread.is_alive())
    ran = ["early"] * ("early" in seen)
    assert sorted(seen) == ran + ["run", "waited"], seen
    if hasattr(asyncio.events, "_ThreadSafeHandle"):  # since Python 3.14
        assert seen == ran + ["run", "waited"], seen
        assert early[0].cancelled()


# Tasks


async def task_results():
    async def add(a, b):
        await asyncio.sleep(0)
        return a + b

    task = asyncio.create_task(add(1, 2), name="adder")
    called = []
    task.add_done_callback(lambda t: called.append((1, t.result())))
    task.add_done_callback(lambda t: called.append((2, t.result())))
    assert task.get_name() == "adder" and not task.done()
    assert await task == 3 and task.done() and task.result() == 3
    assert called == [(1, 3), (2, 3)], called


async def task_exceptions():
    async def fail():
        await asyncio.sleep(0)
        raise LookupError("what")

    task = asyncio.create_task(fail())
    try:
        await task
    except LookupError as e:
        assert e is task.exception() and str(e) == "what"
    else:
        raise AssertionError("no exception")


async def tasks_begin_in_order():
    seen = []

    async def begin(i):
        seen.append(i)

    tasks = [asyncio.create_task(begin(i)) for i in range(50)]
    await asyncio.gather(*tasks)
    assert seen == list(range(50)), seen


async def loops_around_await():
    async def steps(k):
        seen = []
        for i in range(20):
            await asyncio.sleep(0)
            seen.append(i)
        for key, value in {"a": 1, "b": 2, "c": 3}.items():
            await asyncio.sleep(0)
            seen.append((key, value))
        for pair in zip(range(5), "abcde"):
            await asyncio.sleep(0)
            seen.append(pair)
        seen += [await ready(i) for i in range(10)]
        return k, seen

    async def ready(i):
        await asyncio.sleep(0)
        return i

    expected = [*range(20), ("a", 1), ("b", 2), ("c", 3), *zip(range(5), "abcde"), *range(10)]
    results = await asyncio.gather(*[steps(k) for k in range(10)])
    assert results == [(k, expected) for k in range(10)], results


async def gather():
    async def value(x):
        await asyncio.sleep(0.001 * (x % 3))
        if x == 7:
            raise KeyError(x)
        return x

    assert await asyncio.gather(*[value(x) for x in range(7)]) == list(range(7))
    results = await asyncio.gather(*[value(x) for x in range(6, 9)], return_exceptions=True)
    assert results[0] == 6 and results[2] == 8 and isinstance(results[1], KeyError), results
    try:
        await asyncio.gather(value(7), value(8))
    except KeyError:
        pass
    else:
        raise AssertionError("no exception")


async def wait_for_and_timeout():
    cancelled = []

    async def sleep(seconds):
        try:
            await asyncio.sleep(seconds)
            return seconds
        except asyncio.CancelledError:
            cancelled.append(seconds)
            raise

    assert await asyncio.wait_for(sleep(0.01), FOR_EVER) == 0.01
    try:
        await asyncio.wait_for(sleep(FOR_EVER), 0.02)
    except TimeoutError:
        pass
    else:
        raise AssertionError("no TimeoutError")
    assert cancelled == [FOR_EVER]
    try:
        async with asyncio.timeout(0.02) as scope:
            await sleep(2 * FOR_EVER)
    except TimeoutError:
        assert scope.expired()
    else:
        raise AssertionError("no TimeoutError")
    async with asyncio.timeout(FOR_EVER) as scope:
        await sleep(0.001)
    assert not scope.expired() and cancelled == [FOR_EVER, 2 * FOR_EVER]


async def wait_and_as_completed():
    async def sleep(seconds):
        await asyncio.sleep(seconds)
        return seconds

    short, long = asyncio.create_task(sleep(0.01)), asyncio.create_task(sleep(FOR_EVER))
    done, pending = await asyncio.wait([short, long], return_when=asyncio.FIRST_COMPLETED)
    assert done == {short} and pending == {long}
    long.cancel()
    results = []
    for completed in asyncio.as_completed([sleep(0.02), sleep(0.01), sleep(0)]):
        results.append(await completed)
    assert sorted(results) == [0, 0.01, 0.02], results


async def task_group():
    async def value(x):
        await asyncio.sleep(0)
        return x

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(value(x)) for x in range(10)]
    assert [task.result() for task in tasks] == list(range(10))

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("first")

    try:
        async with asyncio.TaskGroup() as group:
            sibling = group.create_task(asyncio.sleep(FOR_EVER))
            group.create_task(fail())
    except* ValueError as group:
        assert [str(e) for e in group.exceptions] == ["first"]
    else:
        raise AssertionError("no exception")
    assert sibling.cancelled()


async def cancelling():
    seen, begun = [], asyncio.Event()

    async def sleeper():
        try:
            begun.set()
            await asyncio.sleep(FOR_EVER)
        except asyncio.CancelledError as e:
            seen.append(e.args)
            raise
        finally:
            seen.append("finally")

    task = asyncio.create_task(sleeper())
    await begun.wait()
    assert task.cancel("enough")
    try:
        await task
    except asyncio.CancelledError:
        pass
    assert task.cancelled() and seen == [("enough",), "finally"], seen

    unstarted = asyncio.create_task(sleeper())
    unstarted.cancel()
    await asyncio.wait([unstarted])
    assert unstarted.cancelled() and len(seen) == 2

    async def stubborn():
        try:
            begun.set()
            await asyncio.sleep(FOR_EVER)
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
            return "anyway"

    begun.clear()
    task = asyncio.create_task(stubborn())
    await begun.wait()
    task.cancel()
    assert await task == "anyway" and not task.cancelled()

    async def shielded(task):
        begun.set()
        return await asyncio.shield(task)

    begun.clear()
    go_on = asyncio.Event()
    inner = asyncio.create_task(go_on.wait())
    outer = asyncio.create_task(shielded(inner))
    await begun.wait()
    outer.cancel()
    await asyncio.wait([outer])
    assert outer.cancelled() and not inner.done()
    go_on.set()
    assert await inner is True


async def eager_tasks():
    if not hasattr(asyncio, "eager_task_factory"):
        return  # before Python 3.12
    loop = asyncio.get_running_loop()
    seen = []

    async def step(x):
        seen.append(x)
        if x % 2:
            await asyncio.sleep(0)
            seen.append(-x)
        return x

    loop.set_task_factory(asyncio.eager_task_factory)
    try:
        tasks = [asyncio.create_task(step(x)) for x in range(20)]
        assert [x for x in seen if x >= 0] == list(range(20)), seen
        assert all(type(task) is asyncio.Task for task in tasks)
        assert tasks[0].done() and not tasks[1].done()
        assert await asyncio.gather(*tasks) == list(range(20))
        assert sorted(x for x in seen if x < 0) == list(range(-19, 0, 2)), seen
        assert len(seen) == 30
    finally:
        loop.set_task_factory(None)


async def knowing_the_tasks():
    me = asyncio.current_task()
    inside = []

    async def other():
        inside.append(asyncio.current_task())
        await asyncio.sleep(FOR_EVER)

    tasks = {asyncio.create_task(other()) for _ in range(5)}
    await until(lambda: len(inside) == 5)
    assert asyncio.all_tasks() == tasks | {me}
    assert set(inside) == tasks
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert asyncio.all_tasks() == {me}


async def running_loop_is_the_one_loop():
    loop = asyncio.get_running_loop()
    seen = []

    async def look():
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append((asyncio.get_running_loop(), tornado.ioloop.IOLoop.current()))

    await asyncio.gather(*[look() for _ in range(20)])
    assert set(seen) == {(loop, tornado.ioloop.IOLoop.current())}


async def context_variables():
    loop = asyncio.get_running_loop()
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("outer")

    async def change(value):
        assert variable.get() == "outer"
        variable.set(value)
        await asyncio.sleep(0.001)
        seen = [variable.get()]
        await asyncio.sleep(0)
        seen.append(variable.get())
        return seen

    assert await asyncio.gather(*[change(i) for i in range(20)]) == [[i, i] for i in range(20)]
    assert variable.get() == "outer"
    context = contextvars.copy_context()
    context.run(variable.set, "given")
    future = loop.create_future()
    loop.call_soon(lambda: future.set_result(variable.get()), context=context)
    assert await future == "given"
    task = asyncio.create_task(in_context(variable), context=context)
    assert await task == "given" and context[variable] == "task"
    assert await asyncio.to_thread(variable.get) == "outer"


async def in_context(variable):
    found = variable.get()
    variable.set("task")
    return found


async def context_variable_reset():
    variable = contextvars.ContextVar("variable")

    async def work(i):
        token = variable.set(i)
        await asyncio.sleep(0)
        assert variable.get() == i
        variable.reset(token)
        return variable.get(None)

    assert await asyncio.gather(*[work(i) for i in range(20)]) == [None] * 20


async def async_generators():
    closed = []

    async def count(n):
        try:
            for i in range(n):
                await asyncio.sleep(0)
                got = yield i
                if got is not None:
                    closed.append(("got", got))
        finally:
            await asyncio.sleep(0)
            closed.append(n)

    assert [i async for i in count(5)] == list(range(5)) and closed == [5]
    generator = count(9)
    assert await anext(generator) == 0
    assert await generator.asend("x") == 1
    await generator.aclose()
    assert closed == [5, ("got", "x"), 9], closed
    async with contextlib.aclosing(count(7)) as generator:
        async for i in generator:
            if i == 3:
                break
    assert closed[-1] == 7
    generator = count(3)
    await anext(generator)
    try:
        await generator.athrow(KeyError("thrown"))
    except KeyError:
        pass
    assert closed[-1] == 3


async def async_context_managers():
    seen = []

    @contextlib.asynccontextmanager
    async def manager(name):
        seen.append(("enter", name))
        await asyncio.sleep(0)
        try:
            yield name
        finally:
            await asyncio.sleep(0)
            seen.append(("exit", name))

    async with contextlib.AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(manager(name))
    assert seen == [("enter", n) for n in "abc"] + [("exit", n) for n in "cba"], seen


# Synchronisation


async def lock():
    mutex, inside, worst, order = asyncio.Lock(), 0, 0, []

    async def work(i):
        nonlocal inside, worst
        async with mutex:
            inside += 1
            worst = max(worst, inside)
            order.append(i)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*[work(i) for i in range(30)])
    assert worst == 1 and order == list(range(30)) and not mutex.locked(), (worst, order)


async def event_and_condition():
    event, waiting, seen = asyncio.Event(), [], []

    async def wait(i):
        waiting.append(i)
        await event.wait()
        seen.append(i)

    tasks = [asyncio.create_task(wait(i)) for i in range(10)]
    await until(lambda: len(waiting) == 10)
    assert seen == []
    event.set()
    await asyncio.gather(*tasks)
    assert sorted(seen) == list(range(10))

    condition, items = asyncio.Condition(), []

    async def consume():
        async with condition:
            await condition.wait_for(lambda: items)
            return items.pop()

    tasks = [asyncio.create_task(consume()) for _ in range(5)]
    for i in range(5):
        await asyncio.sleep(0)
        async with condition:
            items.append(i)
            condition.notify()
    assert sorted(await asyncio.gather(*tasks)) == list(range(5))


async def queue():
    items, taken = asyncio.Queue(maxsize=3), []

    async def produce(n):
        for i in range(20):
            await items.put((n, i))

    async def consume():
        while True:
            taken.append(await items.get())
            items.task_done()

    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    await asyncio.gather(*[produce(n) for n in range(4)])
    await items.join()
    for consumer in consumers:
        consumer.cancel()
    assert sorted(taken) == [(n, i) for n in range(4) for i in range(20)]
    try:
        items.get_nowait()
    except asyncio.QueueEmpty:
        pass
    else:
        raise AssertionError("not empty")


async def priority_queue():
    items = asyncio.PriorityQueue()
    for i in (5, 1, 4, 2, 3):
        await items.put(i)
    assert [await items.get() for _ in range(5)] == [1, 2, 3, 4, 5]


async def semaphore_and_barrier():
    semaphore, inside, worst, full = asyncio.Semaphore(3), 0, 0, asyncio.Event()

    async def work():
        nonlocal inside, worst
        async with semaphore:
            inside += 1
            worst = max(worst, inside)
            if inside == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*[work() for _ in range(20)])
    assert worst == 3 and inside == 0, (worst, inside)
    barrier = asyncio.Barrier(4)
    positions = await asyncio.gather(*[barrier.wait() for _ in range(4)])
    assert sorted(positions) == [0, 1, 2, 3]


# Executors, signals, subprocesses, names


async def executor():
    loop = asyncio.get_running_loop()
    main = threading.get_ident()

    def work(x):
        assert threading.get_ident() != main
        if x == 3:
            raise RuntimeError("three")
        return x * x

    results = await asyncio.gather(*[loop.run_in_executor(None, work, x) for x in range(6)], return_exceptions=True)
    assert [r for r in results if isinstance(r, int)] == [0, 1, 4, 16, 25], results
    assert isinstance(results[3], RuntimeError) and str(results[3]) == "three", results


async def executor_runs_each_function_once():
    lock, calls = threading.Lock(), []

    def work(x):
        with lock:
            calls.append(x)

    await asyncio.gather(*[asyncio.to_thread(work, x) for x in range(50)])
    with lock:
        assert sorted(calls) == list(range(50)), calls


async def executor_that_calls_at_once():
    loop, main = asyncio.get_running_loop(), threading.get_ident()

    def work(x):
        assert threading.get_ident() == main
        if x == 3:
            raise RuntimeError("three")
        return x * x

    results = await asyncio.gather(
        *[loop.run_in_executor(dummy_executor, work, x) for x in range(6)], return_exceptions=True)
    assert [r for r in results if isinstance(r, int)] == [0, 1, 4, 16, 25], results
    assert isinstance(results[3], RuntimeError) and str(results[3]) == "three", results
    begun = []
    future = loop.run_in_executor(dummy_executor, begun.append, 1)
    assert begun == [1], "what its caller finds done, as on asyncio's loop"
    await future


async def executor_of_another_kind():
    """One that somebody has derived from the standard library's."""
    class Counting(concurrent.futures.ThreadPoolExecutor):
        submitted = 0

        def submit(self, function, /, *args):
            self.submitted += 1
            return super().submit(function, *args)

    with Counting(2) as executor:
        loop = asyncio.get_running_loop()
        assert await asyncio.gather(*[loop.run_in_executor(executor, abs, -x) for x in range(5)]) == list(range(5))
        assert executor.submitted == 5


async def signals():
    loop = asyncio.get_running_loop()
    for _ in range(3):
        received = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, received.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await received.wait()
    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert not loop.remove_signal_handler(signal.SIGUSR1)


async def signal_handlers_of_any_callback():
    loop = asyncio.get_running_loop()
    handlers = [lambda number, frame, i=i: None for i in range(20)]
    replaced = []

    async def handle(handler):
        await asyncio.sleep(0)
        sum(range(20000))
        replaced.append(signal.signal(signal.SIGUSR2, handler))
        assert signal.getsignal(signal.SIGUSR2) is handler

    await asyncio.gather(*map(handle, handlers))
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    assert replaced[0] is signal.SIG_DFL and set(replaced[1:]) < set(handlers) and len(set(replaced)) == 20
    assert loop.is_running()


async def all_callbacks_are_on_one_thread():
    here = threading.current_thread(), threading.get_ident()
    seen, done = [], asyncio.Event()

    def look():
        seen.append((threading.current_thread(), threading.get_ident()))
        sum(range(20000))
        if len(seen) == 100:
            done.set()

    loop = asyncio.get_running_loop()
    for _ in range(100):
        loop.call_soon(look)
    await done.wait()
    assert set(seen) == {here} and here[0] is threading.main_thread()
    thread = threading.Thread(target=print)
    assert not thread.daemon


def signals_of_many_loops():
    for _ in range(15):
        tornado.stm.run(signals(), threads=2)


async def signals_that_a_step_raises():
    """As on upstream: they are handled at once, and what the handler raises comes out of that; and by the handler that was there then."""
    seen = []

    def fail(*_):
        raise OverflowError("told")

    async def step(handler):
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            signal.raise_signal(signal.SIGUSR1)
            here = len(seen)
            os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        return here

    for i in range(20):
        assert await step(lambda *_, i=i: seen.append(i)) == 2 * i + 1, (i, seen)
        await asyncio.sleep(0)
    assert seen == [i for i in range(20) for _ in range(2)]
    before = signal.signal(signal.SIGUSR1, fail)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except OverflowError as e:
        seen.append(str(e))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen[-1] == "told"


async def signals_that_a_step_sends_to_its_process():
    """They are handled when the call returns, and by the handler that was there then, also beside a thread that might take them."""
    seen, done = [], threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()

    def send(i):
        if i % 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        else:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    async def step(i):
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(i))
        try:
            send(i)
            return len(seen)
        finally:
            signal.signal(signal.SIGUSR1, before)

    try:
        for i in range(40):
            assert await step(i) == i + 1, (i, seen)
            await asyncio.sleep(0)
    finally:
        done.set()
        thread.join()
    assert seen == list(range(40))


async def descriptors_that_signals_wake():
    """They are set by the main thread alone, which this loop's thread is, whichever one runs the step."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    async def set_and_put_back():
        for _ in range(50):
            await asyncio.sleep(0)
            before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
            assert signal.set_wakeup_fd(before) == theirs

    await asyncio.gather(*[set_and_put_back() for _ in range(4)])
    os.close(ours), os.close(theirs)


async def subprocesses():
    program = "import sys; data = sys.stdin.read(); print(data.upper()); print('oops', file=sys.stderr); sys.exit(5)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(b"hello " * 2000)
    assert out.strip() == (b"HELLO " * 2000).strip() and err.strip() == b"oops" and process.returncode == 5


async def subprocess_shell_and_kill():
    process = await asyncio.create_subprocess_shell("echo one; echo two", stdout=asyncio.subprocess.PIPE)
    lines = [line async for line in process.stdout]
    assert lines == [b"one\n", b"two\n"] and await process.wait() == 0
    process = await asyncio.create_subprocess_exec("sleep", "60")
    process.kill()
    assert await process.wait() == -signal.SIGKILL


SHOW_BLOCKED = "import signal; print(*sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))"


async def programs_begin_with_the_signals_of_this_one():
    loop = asyncio.get_running_loop()
    command = [sys.executable, "-S", "-c", SHOW_BLOCKED]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    blocked = [(await process.communicate())[0]]
    blocked.append(await loop.run_in_executor(None, subprocess.check_output, command))
    blocked.append(subprocess.check_output(command))
    for start in (
        lambda: os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)]),
        lambda: os.fork() or (os.dup2(write, 1), os.execv(command[0], command)),
    ):
        read, write = os.pipe()
        with warnings.catch_warnings(action="ignore"):  # fork() does not like threads
            child = start()
        os.close(write)
        with open(read, "rb") as pipe:
            blocked.append(pipe.read())
        os.waitpid(child, 0)
    assert blocked == [b"\n"] * 5, blocked
    process = await asyncio.create_subprocess_exec("sleep", "60")
    process.terminate()
    assert await process.wait() == -signal.SIGTERM


async def names():
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)
    assert ("127.0.0.1", 80) in [entry[4] for entry in found]
    host, service = await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    assert (host, service) == ("127.0.0.1", "80")


async def exceptions_of_callbacks():
    loop = asyncio.get_running_loop()
    contexts = []
    called = asyncio.Event()

    def handler(its_loop, context):
        assert its_loop is loop
        contexts.append(context)
        called.set()

    def fail():
        raise ZeroDivisionError("of a callback")

    loop.set_exception_handler(handler)
    assert loop.get_exception_handler() is handler
    loop.call_soon(fail)
    await called.wait()
    called.clear()
    loop.call_later(0.001, fail)
    await called.wait()
    loop.set_exception_handler(None)
    assert [str(c["exception"]) for c in contexts] == ["of a callback"] * 2, contexts
    assert all("handle" in c for c in contexts)


async def exceptions_of_done_callbacks():
    loop = asyncio.get_running_loop()
    contexts, seen = [], []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    future = loop.create_future()
    future.add_done_callback(lambda f: 1 / 0)
    future.add_done_callback(lambda f: seen.append(f.result()))
    future.set_result(5)
    await until(lambda: seen)
    loop.set_exception_handler(None)
    assert seen == [5] and [type(c["exception"]) for c in contexts] == [ZeroDivisionError]


async def effects_of_a_failed_callback_stay():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    seen, done = [], asyncio.Event()

    def fail():
        seen.append("before")
        loop.call_soon(done.set)
        raise ValueError

    loop.call_soon(fail)
    await done.wait()
    loop.set_exception_handler(None)
    assert seen == ["before"], seen


# Descriptors and sockets


async def readers_and_writers_of_sockets():
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair()
    a.setblocking(False), b.setblocking(False)
    received, done, pieces = [], asyncio.Event(), [b"%d," % i for i in range(100)]

    def readable():
        try:
            data = b.recv(7)
        except BlockingIOError:
            return
        if data:
            received.append(data)
        else:
            loop.remove_reader(b)
            done.set()

    def writable():
        if pieces:
            a.send(pieces.pop(0))
        else:
            loop.remove_writer(a)
            a.shutdown(socket.SHUT_WR)

    loop.add_reader(b, readable)
    loop.add_writer(a.fileno(), writable)
    await done.wait()
    assert b"".join(received) == b"".join(b"%d," % i for i in range(100)), received
    assert not loop.remove_reader(b) and not loop.remove_writer(a)
    a.close(), b.close()


def an_event_after_stop_waits():
    loop = new_loop()
    a, b = socket.socketpair()
    seen = []

    def writable():
        seen.append(1)
        loop.stop()

    loop.add_writer(a, writable)
    for runs in range(1, 20):
        loop.run_forever()
        assert len(seen) == runs, (seen, runs)
    loop.close()
    a.close(), b.close()


async def readers_need_a_descriptor():
    loop = asyncio.get_running_loop()
    for nonsense in (object(), -1, "1"):
        try:
            loop.add_reader(nonsense, print)
        except ValueError:
            pass
        else:
            raise AssertionError(nonsense)


async def readers_and_writers_of_pipes():
    loop = asyncio.get_running_loop()
    r, w = os.pipe()
    os.set_blocking(r, False), os.set_blocking(w, False)
    received, done, pieces = [], asyncio.Event(), [b"%d," % i for i in range(50)]

    def readable():
        data = os.read(r, 5)
        if data:
            received.append(data)
        else:
            loop.remove_reader(r)
            os.close(r)
            done.set()

    def writable():
        if pieces:
            os.write(w, pieces.pop(0))
        else:
            loop.remove_writer(w)
            os.close(w)

    loop.add_reader(r, readable)
    loop.add_writer(w, writable)
    await done.wait()
    assert b"".join(received) == b"".join(b"%d," % i for i in range(50)), received


async def reader_is_replaced():
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair()
    a.setblocking(False), b.setblocking(False)
    seen, done = [], asyncio.Event()
    loop.add_reader(b, seen.append, "first")

    def second():
        seen.append(b.recv(100))
        done.set()

    loop.add_reader(b, second)
    a.send(b"x")
    await done.wait()
    loop.remove_reader(b)
    a.send(b"y")
    await asyncio.sleep(0.02)
    assert seen == [b"x"], seen
    a.close(), b.close()


async def pipes_as_streams():
    loop = asyncio.get_running_loop()
    r, w = os.pipe()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(r, "rb"))
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(w, "wb"))
    for i in range(100):
        transport.write(b"%d\n" % i)
    transport.close()
    assert await reader.read() == b"".join(b"%d\n" % i for i in range(100))


async def sock_methods():
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    data = os.urandom(300_000)

    async def serve():
        connection, _ = await loop.sock_accept(listener)
        with connection:
            await loop.sock_sendall(connection, data)
            connection.shutdown(socket.SHUT_WR)
            buffer = bytearray(10)
            n = await loop.sock_recv_into(connection, buffer)
            return bytes(buffer[:n])

    server = asyncio.create_task(serve())
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, listener.getsockname())
        received = b""
        while piece := await loop.sock_recv(client, 65536):
            received += piece
        assert received == data, (len(received), len(data))
        await loop.sock_sendall(client, b"thanks")
        assert await server == b"thanks"
    listener.close()


def what_was_sent_precedes_a_file_and_the_end():
    loop = new_loop()
    a, b = socket.socketpair()
    a.setblocking(False), b.setblocking(False)
    before, after = os.urandom(200_000), os.urandom(200_000)

    async def receive():
        received = b""
        while piece := await loop.sock_recv(b, 65536):
            received += piece
        return received

    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(100_000))
        file.seek(0)
        inside = file.read()
        file.seek(0)
        receiver = loop.create_task(receive())
        loop.run_until_complete(loop.sock_sendall(a, before))
        assert loop.run_until_complete(loop.sock_sendfile(a, file)) == len(inside)
        loop.run_until_complete(loop.sock_sendall(a, after))
    a.close()
    assert loop.run_until_complete(receiver) == before + inside + after
    loop.close()
    b.close()


def what_was_sent_outlives_the_loop():
    a, b = socket.socketpair()
    a.setblocking(False)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    data = os.urandom(200_000)
    received = []

    def receive():
        while piece := b.recv(1000):
            received.append(piece)

    async def main():
        nonlocal sent
        sent = a.send(data)
        a.close()
        receiver.start()

    sent = 0
    receiver = threading.Thread(target=receive)
    run(main())
    receiver.join()
    assert b"".join(received) == data[:sent]
    b.close()


async def stream_echo():
    async def echo(reader, writer):
        while data := await reader.read(20_000):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    data = os.urandom(1 << 20)

    async def client():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send():
            for i in range(0, len(data), 50_000):
                writer.write(data[i:i + 50_000])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        received = await reader.read()
        await sending
        writer.close()
        await writer.wait_closed()
        return received

    for received in await asyncio.gather(client(), client()):
        assert received == data, (len(received), len(data))
    server.close()
    await server.wait_closed()


async def stream_lines():
    async def reverse(reader, writer):
        async for line in reader:
            writer.write(line.strip()[::-1] + b"\n")
        writer.close()

    server = await asyncio.start_server(reverse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def client(n):
        reader, writer = await asyncio.open_connection("localhost", port, family=socket.AF_INET)
        for i in range(20):
            writer.write(b"%d-%d\n" % (n, i))
            assert await reader.readline() == (b"%d-%d" % (n, i))[::-1] + b"\n"
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[client(n) for n in range(10)])
    server.close()


async def one_connections_data_stays_in_order():
    chunks, closed = {}, asyncio.Event()

    class Collect(asyncio.Protocol):
        def connection_made(self, transport):
            self.data = []

        def data_received(self, data):
            self.data.append(data)

        def connection_lost(self, exc):
            whole = b"".join(self.data)
            chunks[whole[:1]] = whole
            if len(chunks) == 5:
                closed.set()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Collect, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    def send(n):
        with socket.create_connection(address) as sock:
            for i in range(500):
                sock.sendall(b"%d:%d," % (n, i))

    await asyncio.gather(*[asyncio.to_thread(send, n) for n in range(5)])
    await closed.wait()
    for n in range(5):
        assert chunks[b"%d" % n] == b"".join(b"%d:%d," % (n, i) for i in range(500)), n
    server.close()


async def datagrams():
    loop = asyncio.get_running_loop()

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, data, address):
            self.transport.sendto(data.upper(), address)

    class Client(asyncio.DatagramProtocol):
        def __init__(self):
            self.received = asyncio.Queue()

        def datagram_received(self, data, address):
            self.received.put_nowait(data)

    server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    transport, client = await loop.create_datagram_endpoint(Client, remote_addr=server.get_extra_info("sockname"))
    for i in range(20):
        transport.sendto(b"message %d" % i)
        assert await client.received.get() == b"MESSAGE %d" % i
    transport.close(), server.close()
    await asyncio.sleep(0.01)
    assert client.received.empty()


async def unix_sockets():
    path = "\0tornado-stm-%d" % os.getpid()

    async def echo(reader, writer):
        writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_unix_server(echo, path)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"hello")
    assert await reader.read() == b"hello"
    writer.close()
    server.close()


async def refused_connection():
    with socket.socket() as silent:  # its port is taken, but it does not listen
        silent.bind(("127.0.0.1", 0))
        try:
            await asyncio.open_connection(*silent.getsockname())
        except ConnectionRefusedError:
            pass
        else:
            raise AssertionError("connected")


async def port_in_use():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    try:
        await asyncio.start_server(lambda r, w: None, *server.sockets[0].getsockname())
    except OSError as e:
        assert e.errno == errno.EADDRINUSE
    else:
        raise AssertionError("listened")
    server.close()


async def serving_ends_by_cancelling():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0, start_serving=False)
    port = server.sockets[0].getsockname()[1]
    task = asyncio.create_task(server.serve_forever())
    await until(server.is_serving)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and not server.is_serving()
    with socket.create_server(("127.0.0.1", port)):
        pass


# Tornado


class Hello(tornado.web.RequestHandler):
    async def get(self, name):
        await asyncio.sleep(0.001)
        self.set_header("X-Name", name)
        self.write({"hello": name})

    def post(self, name):
        self.write(name.encode() + b":" + self.request.body)


class Chunks(tornado.web.RequestHandler):
    async def get(self):
        for i in range(20):
            self.write("%d," % i)
            await self.flush()


def serve(*handlers):
    """A server of these handlers and its URL."""
    (sock,) = tornado.netutil.bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server = tornado.httpserver.HTTPServer(tornado.web.Application(list(handlers)))
    server.add_sockets([sock])
    return server, "http://127.0.0.1:%d" % sock.getsockname()[1]


async def http_client_on_the_same_loop():
    server, url = serve((r"/hello/(\w+)", Hello), (r"/chunks", Chunks))
    client = tornado.httpclient.AsyncHTTPClient(
        force_instance=True, max_clients=5, defaults={"connect_timeout": FOR_EVER, "request_timeout": FOR_EVER}
    )
    responses = await asyncio.gather(*[client.fetch(f"{url}/hello/n{i}") for i in range(30)])
    assert [json.loads(r.body) for r in responses] == [{"hello": f"n{i}"} for i in range(30)]
    assert [r.headers["X-Name"] for r in responses] == [f"n{i}" for i in range(30)]
    body = os.urandom(100_000)
    response = await client.fetch(f"{url}/hello/post", method="POST", body=body)
    assert response.body == b"post:" + body
    pieces = []
    await client.fetch(f"{url}/chunks", streaming_callback=pieces.append)
    assert b"".join(pieces) == b"".join(b"%d," % i for i in range(20))
    response = await client.fetch(f"{url}/nothing", raise_error=False)
    assert response.code == 404
    client.close()
    server.stop()
    await server.close_all_connections()


async def periodic_callback():
    seen, done = [], asyncio.Event()

    def tick():
        seen.append(len(seen))
        if len(seen) == 5:
            callback.stop()
            done.set()

    callback = tornado.ioloop.PeriodicCallback(tick, 2)
    callback.start()
    await done.wait()
    await asyncio.sleep(0.02)
    assert seen == list(range(5)) and not callback.is_running(), seen


async def ioloop_callbacks():
    io_loop = tornado.ioloop.IOLoop.current()
    seen, done = [], asyncio.Event()
    for i in range(50):
        io_loop.add_callback(seen.append, i)
    io_loop.spawn_callback(seen.append, 50)
    io_loop.add_callback(done.set)
    await done.wait()
    assert seen == list(range(51)), seen
    done = asyncio.Event()
    timeout = io_loop.call_later(0.01, seen.append, "cancelled")
    io_loop.remove_timeout(timeout)
    io_loop.add_timeout(io_loop.time() + 0.02, done.set)
    await done.wait()
    assert seen == list(range(51))
    assert await io_loop.run_in_executor(None, lambda: 5) == 5


async def ioloop_handlers():
    io_loop = tornado.ioloop.IOLoop.current()
    a, b = socket.socketpair()
    a.setblocking(False), b.setblocking(False)
    seen, done = [], asyncio.Event()

    def handle(sock, events):
        seen.append((sock is b, events & io_loop.READ, b.recv(100)))
        io_loop.remove_handler(b)
        done.set()

    io_loop.add_handler(b, handle, io_loop.READ)
    a.send(b"data")
    await done.wait()
    assert seen == [(True, io_loop.READ, b"data")]
    a.close(), b.close()


async def web_sockets_hear_in_one_order_and_writing_may_be_awaited():
    members, ends = set(), []

    class Member(tornado.websocket.WebSocketHandler):
        def open(self):
            members.add(self)

        def on_close(self):
            members.discard(self)
            ends.append(self)

        async def on_message(self, message):
            if message == "await":
                await self.write_message("awaited")
                return
            for member in members:
                member.write_message(message)

    server, url = serve((r"/", Member))
    url = url.replace("http", "ws")
    clients = [await tornado.websocket.websocket_connect(url) for _ in range(4)]
    await until(lambda: len(members) == 4)
    for number in range(10):
        for client in clients:
            client.write_message(f"{number} {id(client)}")
    heard = [[await client.read_message() for _ in range(40)] for client in clients]
    assert all(each == heard[0] for each in heard) and len(set(heard[0])) == 40, heard
    await clients[0].write_message("await")
    assert await clients[0].read_message() == "awaited"
    for client in clients:
        client.close()
    await until(lambda: len(ends) == 4)
    for write in (ends[0].write_message, clients[0].write_message):
        try:
            await write("too late")
        except tornado.websocket.WebSocketClosedError:
            continue
        raise AssertionError("written to a web socket that is closed")
    server.stop()


async def tornado_coroutines():
    @tornado.gen.coroutine
    def double(x):
        yield tornado.gen.sleep(0.001)
        raise tornado.gen.Return(2 * x)

    @tornado.gen.coroutine
    def many():
        results = yield [double(x) for x in range(10)]
        for x in range(5):
            results.append((yield double(x)))
        return results

    assert (yield_from := await many()) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 0, 2, 4, 6, 8], yield_from


async def tornado_coroutines_yield_functions_and_their_arguments():
    order = []

    def add_up(*numbers):
        order.append(numbers)
        return sum(numbers)

    @tornado.gen.coroutine
    def sums(first):
        total = yield add_up, first, 2
        try:
            yield int, "none"
        except ValueError as e:
            order.append(type(e))
        try:
            yield 1, 2
        except tornado.gen.BadYieldError as e:
            order.append(str(e))
        return total

    totals = await tornado.gen.multi([sums(first) for first in range(5)])
    assert totals == [2, 3, 4, 5, 6]
    said = "yielded unknown object (1, 2): a tuple must be a function and its arguments"
    assert sorted(map(str, order)) == sorted(map(str, [*((n, 2) for n in range(5)), *5 * [ValueError], *5 * [said]])), order


async def tornado_queues_and_locks():
    items, taken, lock_ = tornado.queues.Queue(maxsize=2), [], tornado.locks.Lock()

    async def consume():
        async for item in items:
            async with lock_:
                taken.append(item)
            items.task_done()

    consumer = asyncio.create_task(consume())
    for i in range(20):
        await items.put(i)
    await items.join()
    consumer.cancel()
    assert taken == list(range(20))
    event = tornado.locks.Event()
    tornado.ioloop.IOLoop.current().call_later(0.005, event.set)
    await event.wait()
    try:
        await tornado.gen.with_timeout(datetime.timedelta(seconds=0.01), asyncio.Event().wait())
    except tornado.gen.TimeoutError:
        pass
    else:
        raise AssertionError("no TimeoutError")


async def tornado_tcp():
    class Echo(tornado.tcpserver.TCPServer):
        async def handle_stream(self, stream, address):
            try:
                while True:
                    line = await stream.read_until(b"\n")
                    await stream.write(line.upper())
            except tornado.iostream.StreamClosedError:
                pass

    (sock,) = tornado.netutil.bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server = Echo()
    server.add_sockets([sock])
    port = sock.getsockname()[1]

    async def client(n):
        stream = await tornado.tcpclient.TCPClient().connect("127.0.0.1", port)
        for i in range(10):
            await stream.write(b"line %d %d\n" % (n, i))
            assert await stream.read_until(b"\n") == b"LINE %d %d\n" % (n, i)
        stream.close()

    await asyncio.gather(*[client(n) for n in range(10)])
    server.stop()


# Loops by hand


def run_until_complete():
    loop = new_loop()

    async def value(x):
        await asyncio.sleep(0)
        if x is None:
            raise LookupError("none")
        return x

    assert loop.run_until_complete(value(1)) == 1
    task = loop.create_task(value(2))
    assert loop.run_until_complete(task) == 2
    try:
        loop.run_until_complete(value(None))
    except LookupError:
        pass
    else:
        raise AssertionError("no exception")
    assert not loop.is_running() and not loop.is_closed()
    future = loop.create_future()
    loop.call_soon(loop.stop)
    try:
        loop.run_until_complete(future)
    except RuntimeError as e:
        assert "stopped before" in str(e)
    else:
        raise AssertionError("no RuntimeError")
    loop.close()
    assert loop.is_closed()
    coroutine = value(1)
    try:
        loop.run_until_complete(coroutine)
    except RuntimeError as e:
        assert "closed" in str(e)
    else:
        raise AssertionError("no RuntimeError")
    coroutine.close()


def stop_runs_what_is_ready():
    loop = new_loop()
    seen = []

    def first():
        loop.stop()
        loop.call_soon(seen.append, "after")

    loop.call_soon(seen.append, "before")
    loop.call_soon(first)
    loop.call_soon(seen.append, "ready")
    loop.run_forever()
    assert seen == ["before", "ready"], seen
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == ["before", "ready", "after"], seen
    loop.close()


def stop_reaches_every_thread():
    """Whoever comes from the kernel for a wake-up that another one has taken must not take that of a third."""
    from tornado.stm.program import runner

    async def burst():
        for _ in range(5):
            loop.call_soon(str)
            await asyncio.sleep(0.001)

    def take_late(fd):
        time.sleep(0.002)
        return take(fd)

    take = getattr(os, "eventfd_read", None)
    os.eventfd_read = take_late
    loop = runner.new_loop(4)
    try:
        for _ in range(25):
            loop.run_until_complete(burst())
    finally:
        loop.close()
        os.eventfd_read = take


def stop_before_run():
    loop = new_loop()
    seen = []
    loop.call_soon(seen.append, 1)
    loop.stop()
    loop.run_forever()
    assert seen == [1], seen
    loop.close()


def closed_loop_keeps_nothing_alive():
    class Told:
        def __call__(self):
            raise AssertionError("the loop does not run any more")

    loop = new_loop()
    loop.call_soon(loop.stop)
    loop.run_forever()
    told = Told()
    remembered = weakref.ref(told)
    loop.call_soon(told)
    loop.close()
    del told
    gc.collect()
    assert remembered() is None, gc.get_referrers(remembered())


def loop_runs_only_once_at_a_time():
    loop = new_loop()

    async def inner():
        other = asyncio.sleep(0)
        try:
            loop.run_until_complete(other)
        except RuntimeError as e:
            assert "already running" in str(e)
        else:
            raise AssertionError("nested")
        finally:
            other.close()

    loop.run_until_complete(inner())
    loop.close()


def system_exit_of_a_callback_ends_the_loop():
    loop = new_loop()
    for exception in (SystemExit(3), KeyboardInterrupt()):
        def fail():
            raise exception

        loop.call_soon(fail)
        try:
            loop.run_forever()
        except BaseException as e:
            assert e is exception
        else:
            raise AssertionError("no exception")
    assert loop.run_until_complete(asyncio.sleep(0, 5)) == 5
    loop.close()


def async_generators_are_closed_at_the_end():
    closed = []

    async def generate():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    async def main():
        nonlocal generator
        generator = generate()
        return await anext(generator)

    generator = None
    assert run(main()) == 1 and closed == [True]


def remaining_tasks_are_cancelled_at_the_end():
    seen = []

    async def sleeper():
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            seen.append("cancelled")

    async def main():
        nonlocal task
        task = asyncio.create_task(sleeper())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    task = None
    run(main())
    assert seen == ["cancelled"], seen


def a_closed_loop_takes_no_coroutine():
    loop = new_loop()
    loop.close()

    async def nothing():
        pass

    with warnings.catch_warnings(record=True, action="always") as warned:
        try:
            asyncio.ensure_future(nothing(), loop=loop)
        except RuntimeError as e:
            assert "closed" in str(e)
        else:
            raise AssertionError("no RuntimeError")
    assert not warned, warned


def debug_mode():
    async def main():
        assert asyncio.get_running_loop().get_debug()
        return await asyncio.gather(*[asyncio.sleep(0.001, x) for x in range(10)])

    assert run(main(), debug=True) == list(range(10))


def runner_runs_again_and_again():
    variable = contextvars.ContextVar("variable", default=0)

    async def increment():
        await asyncio.sleep(0)
        variable.set(variable.get() + 1)
        return variable.get()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert [runner.run(increment()) for _ in range(5)] == [1, 2, 3, 4, 5]


# The program


def new_loop():
    from tornado.stm.program import runner

    return runner.new_loop(2)


def run(main, **options):
    import tornado.stm

    return tornado.stm.run(main, threads=2, **options)


def checks():
    """All checks by name."""
    helpers = {"serve", "new_loop", "run", "checks", "program", "until", "in_context"}
    return {
        name: member for name, member in globals().items()
        if inspect.isfunction(member) and member.__module__ == __name__ and name not in helpers
    }


def program(seed, names):
    from tornado.stm import core

    if int(seed):
        core.inject_aborts(0.002, int(seed))
    known = checks()
    for name in names:
        faulthandler.dump_traceback_later(SECONDS_UNTIL_STUCK, exit=True)
        failure = None
        try:
            if inspect.iscoroutinefunction(known[name]):
                run(known[name]())
            else:
                known[name]()
        except BaseException:
            failure = traceback.format_exc()
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([name, failure]), flush=True)


if __name__ == "__main__":
    program(sys.argv[1], sys.argv[2:])
