"""asyncio's futures and tasks in the engine: they do what asyncio's do, and what an aborted attempt does to one leaves no trace."""

import asyncio
import collections
import contextvars
import gc
import inspect
import subprocess
import sys
import traceback
import weakref

import pytest

from interpreters import ROOT, needs_engine
from meeting import APART, meet
from tornado.stm import activation, core

needs_engine()

import tornado.stm
from tornado.stm.core import trusted
from tornado.stm.loop import futures as ours

activation.activate()
ours.use_engine_futures()


pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # tasks that no loop runs


@pytest.mark.parametrize("module", ["test_futures", "test_futures2", "test_tasks", "test_eager_task_factory"])
def test_asyncios_own_tests_pass(module):
    command = [sys.executable, "-m", "tests.apps.asyncio_types", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_they_are_what_asyncio_calls_futures_and_tasks():
    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        future = loop.create_future()
        assert type(task) is asyncio.Task is ours.Task and type(future) is asyncio.Future is ours.Future
        assert isinstance(task, asyncio.Future) and asyncio.isfuture(future)
        assert not isinstance(future, asyncio.Task)
        assert isinstance(loop.call_soon(int), asyncio.Handle) and isinstance(loop.call_later(0, int), asyncio.TimerHandle)

    tornado.stm.run(main(), threads=2)


def test_one_that_has_not_been_set_up_says_so():
    future = asyncio.Future.__new__(asyncio.Future)
    for ask in future.result, future.exception:
        with pytest.raises(asyncio.InvalidStateError, match="not initialized"):
            ask()
    for ask in lambda: future._state, future.__repr__, future.get_loop, lambda: future.set_result(1), lambda: future.add_done_callback(print):
        with pytest.raises(RuntimeError, match="not initialized"):
            ask()
    assert not future.done() and not future.cancelled()


# ---- An aborted attempt leaves no trace ---------------------------------------------------------------------------------


class Loop:
    """What futures ask of a loop.  What is scheduled is noted by the attempt that commits."""

    def __init__(self):
        self.scheduled = []

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def call_soon(self, callback, *args, context=None):
        self.scheduled.append((callback, args, context))

    def call_exception_handler(self, context):
        told.append(context["message"])


told = []


@trusted
def look(future):
    """All that can be seen of a future or task."""
    names = "_state _result _exception _cancel_message _log_traceback _asyncio_future_blocking _loop _asyncio_awaited_by"
    if isinstance(future, asyncio.Task):
        names += " _coro _fut_waiter _must_cancel _log_destroy_pending"
    seen = {name: getattr(future, name) for name in names.split()}
    callbacks = future._callbacks
    return seen | {"callbacks": callbacks and list(callbacks), "scheduled": list(future._loop.scheduled)}


@trusted
def abort():
    assert not core.is_exclusive(), core.stats()["exclusive_reasons"]
    raise core.Abort


def twice(change, *arguments):
    """Run change(*arguments) in an attempt that is rolled back; returns what its objects are like before that, and after."""
    attempts = []

    @trusted
    def begins():
        attempts.append(None)
        return len(attempts) == 1

    def attempt():
        if not begins():
            return
        try:
            change(*arguments)
        except (Exception, asyncio.CancelledError):
            pass
        abort()

    before = [look(each) for each in arguments]
    core.Transaction(attempt, ()).run()
    assert len(attempts) == 2, attempts
    return before, [look(each) for each in arguments]


def pending():
    return asyncio.Future(loop=Loop())


def with_callbacks():
    future = pending()
    for callback in (print, len):
        future.add_done_callback(callback)
    return future


def with_result():
    future = pending()
    future.set_result("result")
    return future


def with_exception():
    future = with_callbacks()
    future.set_exception(ValueError("exception"))
    return future


def cancelled():
    future = with_callbacks()
    future.cancel("message")
    return future


async def coroutine(awaited=None):
    if awaited is not None:
        await awaited
    return "returned"


def task():
    return asyncio.Task(coroutine(), loop=Loop(), name="task")


@trusted
def set_running(loop):
    asyncio._set_running_loop(loop)


def call(scheduled, loop):
    """What the loop would do."""
    callback, args, context = scheduled
    set_running(loop)
    try:
        context.run(callback, *args)
    finally:
        set_running(None)


def step(each):
    """Run what a task has scheduled last."""
    call(each._loop.scheduled[-1], each._loop)


def waiting_task():
    each = task()
    loop = each._loop
    other = asyncio.Task(coroutine(asyncio.Future(loop=loop)), loop=loop)
    step(other)
    each.cancel()
    return other


def set_blocking(future):
    future._asyncio_future_blocking = True


def set_attribute(future):
    future.attribute = 1


CHANGES = {
    "set_result": lambda future: future.set_result(1),
    "set_exception": lambda future: future.set_exception(KeyError(1)),
    "cancel": lambda future: future.cancel("another message"),
    "add_done_callback": lambda future: future.add_done_callback(str),
    "add and finish": lambda future: (future.add_done_callback(str), future.set_result(1)),
    "remove_done_callback": lambda future: future.remove_done_callback(len),
    "result": lambda future: future.result(),
    "exception": lambda future: future.exception(),
    "await": lambda future: next(iter(future)),
    "blocking": set_blocking,
    "begin anew": lambda future: future.__init__(loop=Loop()),
}

TASK_CHANGES = {
    "cancel": lambda each: each.cancel("message"),
    "cancel twice, and take one back": lambda each: (each.cancel(), each.cancel(), each.uncancel()),
    "set_name": lambda each: each.set_name("another"),
    "step": step,
    "cancel and step": lambda each: (each.cancel(), step(each)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [pending, with_callbacks, with_result, with_exception, cancelled])
def test_a_future_is_put_back(make, change):
    future = make()
    before, after = twice(CHANGES[change], future)
    assert before == after


@pytest.mark.parametrize("change", TASK_CHANGES)
@pytest.mark.parametrize("make", [task, waiting_task])
def test_a_task_is_put_back(make, change):
    each = make()

    def more():
        lines = [frame.f_lineno for frame in each.get_stack()]
        return each.get_name(), each.cancelling(), inspect.getcoroutinestate(each.get_coro()), lines

    was = more()
    before, after = twice(TASK_CHANGES[change], each)
    assert before == after and more() == was
    each._log_destroy_pending = False


def test_what_awaits_it_is_put_back():
    loop = Loop()
    future = asyncio.Future(loop=loop)
    first, second = (asyncio.Task(coroutine(future), loop=loop) for _ in range(2))
    step_of_first, step_of_second = loop.scheduled
    call(step_of_first, loop)
    before, after = twice(lambda *_: call(step_of_second, loop), future, second)
    assert before == after and future._asyncio_awaited_by == {first}
    call(step_of_second, loop)
    assert future._asyncio_awaited_by == {first, second}
    before, after = twice(lambda *_: future.set_result(1), future)
    assert before == after
    for each in (first, second):
        each._log_destroy_pending = False


def test_an_attribute_of_ones_own_is_put_back():
    future = pending()
    twice(set_attribute, future)
    assert not hasattr(future, "attribute")
    core.Transaction(set_attribute, (future,)).run()
    assert future.attribute == 1


def test_of_what_an_aborted_attempt_has_made_nothing_is_said():
    gc.collect()  # what others have left
    told.clear()
    loop = Loop()

    def leave():
        """One with an exception, one task that is pending; both in a cycle, so that only the collector finds them."""
        future = asyncio.Future(loop=loop)
        future.set_exception(ValueError())
        future.cycle = future
        each = asyncio.Task(coroutine(), loop=loop)
        each.cycle = each

    def aborted(_):
        leave()

    twice(aborted, asyncio.Future(loop=loop))
    loop.scheduled.clear()
    gc.collect()
    assert told == []
    leave()
    loop.scheduled.clear()
    gc.collect()
    assert sorted(told) == ["Future exception was never retrieved", "Task was destroyed but it is pending!"]


def test_a_context_variable_that_a_task_has_set_is_put_back():
    variable = contextvars.ContextVar("variable", default=0)

    async def sets():
        variable.set(variable.get() + 1)
        await asyncio.sleep(0)
        return variable.get()

    loop = Loop()
    each = asyncio.Task(sets(), loop=loop)
    before, after = twice(step, each)
    assert before == after and each.get_context().get(variable, 0) == 0
    step(each)
    assert each.get_context()[variable] == 1
    each._log_destroy_pending = False


# ---- As asyncio's, where its own tests do not look --------------------------------------------------------------------


def test_a_task_whose_awaitable_cannot_be_cancelled_says_so():
    class Awaitable:
        _asyncio_future_blocking = False

        def __init__(self, loop):
            self._loop = loop

        def add_done_callback(self, callback, context=None):
            pass

        def __await__(self):
            self._asyncio_future_blocking = True
            yield self

    loop = Loop()
    each = asyncio.Task(coroutine(Awaitable(loop)), loop=loop)
    step(each)
    with pytest.raises(AttributeError, match="'Awaitable' object has no attribute 'cancel'"):
        each.cancel()
    each._log_destroy_pending = False


def test_the_constructor_of_an_exception_may_end_the_future():
    future = pending()

    class Ends(Exception):
        def __init__(self):
            future.set_result("result")

    with pytest.raises(asyncio.InvalidStateError):
        future.set_exception(Ends)
    assert future.result() == "result"


def contexts(fail, *arguments):
    """Call this, which raises, amid the handling of an exception: what the context of what it raises is."""
    try:
        raise LookupError
    except LookupError:
        try:
            fail(*arguments)
        except BaseException as e:
            return type(e.__context__)


def test_an_exception_of_a_future_is_raised_amid_what_is_being_handled():
    """So that a traceback says "during the handling of the above exception, another exception occurred"."""
    failed, gone = with_exception(), cancelled()
    failed.exception()
    assert contexts(failed.result) is contexts(gone.result) is contexts(gone.exception) is LookupError
    assert contexts(next, iter(with_exception())) is contexts(next, iter(cancelled())) is LookupError

    async def main():
        async def fails():
            raise ValueError

        done = asyncio.create_task(fails())
        await asyncio.wait([done])
        try:
            raise LookupError
        except LookupError:
            with pytest.raises(ValueError) as caught:
                await done
        return type(caught.value.__context__)

    assert tornado.stm.run(main(), threads=2) is LookupError


def test_an_exception_handler_is_called_amid_the_handling_of_the_exception():
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: seen.append((sys.exc_info()[1], context["exception"])))
        loop.call_soon(divmod, 1, 0)
        loop.call_later(0, divmod, 1, 0)
        while len(seen) < 2:
            await asyncio.sleep(0)
        return [handled is told for handled, told in seen], sys.exc_info()[1]

    assert tornado.stm.run(main(), threads=2) == ([True, True], None)


def test_a_traceback_of_a_callback_is_as_asyncios():
    async def main():
        loop, seen = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        loop.call_soon(divmod, 1, 0)
        while not seen:
            await asyncio.sleep(0)
        return seen[0]

    ours = tornado.stm.run(main(), threads=2)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        asyncios = runner.run(main())
    assert traceback.format_exception(ours) == traceback.format_exception(asyncios)
    assert ours.__traceback__.tb_frame.f_code is asyncios.__traceback__.tb_frame.f_code


def test_who_awaits_a_future_of_a_derived_class_is_seen_and_gets_what_its_own_method_says():
    class Derived(asyncio.Future):
        def result(self):
            raise LookupError("its own")

    class DerivedTask(asyncio.Task):
        pass

    async def awaits(awaited):
        return await awaited

    async def main():
        future = Derived()
        waiting = asyncio.create_task(awaits(future))
        outer = DerivedTask(awaits(waiting))
        outermost = asyncio.create_task(awaits(outer))
        while outer._asyncio_awaited_by is None:
            await asyncio.sleep(0)
        seen = future._asyncio_awaited_by, outer._asyncio_awaited_by
        future.set_result(None)
        with pytest.raises(LookupError, match="its own"):
            await outermost
        return seen == (frozenset({waiting}), frozenset({outermost})), future._asyncio_awaited_by, outer._asyncio_awaited_by

    assert tornado.stm.run(main(), threads=2) == (True, None, None)


def test_tasks_that_libraries_register_are_among_all():
    class Other:
        def __init__(self, loop):
            self._loop = loop

        def get_loop(self):
            return self._loop

        def done(self):
            return False

    async def main():
        other = Other(asyncio.get_running_loop())
        is_there = []
        for name in "_register_task", "_unregister_task", "_register_eager_task", "_unregister_eager_task":
            getattr(asyncio.tasks, name)(other)
            is_there.append(other in asyncio.all_tasks())
        return is_there

    assert tornado.stm.run(main(), threads=2) == [True, False, True, False]


def test_who_leaves_a_line_of_waiters_does_not_look_at_the_others():
    """As those do that `asyncio.Event`, `Lock`, `Semaphore` and `Condition` let go: each would look at all that are still there."""
    def line():
        waiters = [asyncio.Future(loop=Loop()) for _ in range(3)]
        return collections.deque(waiters), *waiters

    for i in 1, 3:  # the first and the last
        leave = lambda *o, i=i: o[0].remove(o[i])  # noqa: E731
        assert meet(line, leave, lambda line, a, b, c: b.set_result(None)) == APART


def test_a_task_that_waits_is_shown_as_asyncios():
    loop = Loop()
    awaited = asyncio.Future(loop=loop)
    each = asyncio.Task(coroutine(awaited), loop=loop)
    step(each)
    assert repr(awaited) == "<Future pending cb=[Task.task_wakeup()]>"
    each._log_destroy_pending = False


def test_frames_do_not_live_as_long_as_the_future():
    class Local:
        pass

    def fails():
        local = Local()
        alive.append(weakref.ref(local))
        raise ValueError

    alive, future = [], pending()
    try:
        fails()
    except ValueError as e:
        future.set_exception(e)
    with pytest.raises(ValueError) as caught:
        future.result()
    future.exception().__traceback__ = None
    del caught
    gc.collect()
    assert alive[0]() is None


def test_calls_from_a_callback_keep_their_order():
    async def main():
        loop, order = asyncio.get_running_loop(), []
        for _ in range(3):
            loop.call_soon(order.append, "soon")
            loop.call_soon_threadsafe(order.append, "threadsafe")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return order

    assert tornado.stm.run(main(), threads=2) == ["soon", "threadsafe"] * 3


@pytest.mark.parametrize("threads", [1, 4])
def test_many_tasks_that_tell_each_other_under_aborts(threads):
    """Rings of tasks hand a number on through futures; each adds one."""
    async def hand_on(before, after):
        after.set_result(await before + 1)

    async def ring(length):
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(length + 1)]
        tasks = [asyncio.create_task(hand_on(a, b)) for a, b in zip(futures, futures[1:])]
        futures[0].set_result(0)
        last = await futures[-1]
        await asyncio.gather(*tasks)
        return last, sum(not each.done() for each in tasks)

    async def main():
        rings = [asyncio.create_task(ring(length)) for length in range(1, 30)]
        return await asyncio.gather(*rings)

    core.inject_aborts(0.01, 7)
    try:
        results = tornado.stm.run(main(), threads=threads)
    finally:
        core.inject_aborts(0, 0)
    assert results == [(length, 0) for length in range(1, 30)]
