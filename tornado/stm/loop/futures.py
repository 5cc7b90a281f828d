"""asyncio's futures and tasks, whose state can be rolled back: types of the engine's (``../engine/dispatch/future.h``).

Here is what is seldom needed of them, and how they come into the place of asyncio's own.
"""

import asyncio
import dis
import sys
import traceback
import types
import weakref
from asyncio import base_events, constants, format_helpers, futures, tasks

from .. import core
from ..core import trusted
from ..patches import table

if core.COMPILED:
    from .._engine import Future, Task


class TaskReference(weakref.ref):
    """Knows under which key of a `TaskRegistry` it is, also when the task is gone."""

    __slots__ = ("key",)


class TaskRegistry:
    """In the place of asyncio's weak set of tasks: the engine's tasks, and those of other types that somebody has registered.

    Creating and ending one conflicts with nothing.  Whoever wants to see all of them does so exclusively.
    """

    def __init__(self):
        self._references = {}

    @trusted
    def add(self, task):
        reference = TaskReference(task, self._forget)
        reference.key = id(task)
        self._references[reference.key] = reference
        # A task that is rolled back may be kept alive by a cycle.
        core.on_abort(self._references.pop, reference.key, None)

    @trusted
    def _forget(self, reference):
        if self._references.get(reference.key) is reference:
            del self._references[reference.key]

    @trusted
    def discard(self, task):
        self._references.pop(id(task), None)

    @trusted
    def __iter__(self):
        core.exclusive("a look at all tasks")
        others = [reference() for reference in list(self._references.values())]
        return iter(core.tasks_all() + [task for task in others if task is not None])

    @trusted
    def __len__(self):
        return sum(1 for _ in self)


#: of all loops
registry = TaskRegistry()


@trusted
def extract_stack(frame=None, limit=None):
    """In the place of asyncio's: where something was made, `limit` lines of it, and none that `core.hide_frames` names.

    The frame itself is there in any case: the callers count on it.
    """
    frame = frame or sys._getframe(1)
    shown = (
        (each, line) for each, line in traceback.walk_stack(frame) if each is frame or not core.is_hidden(each.f_code)
    )
    stack = traceback.StackSummary.extract(shown, limit=limit or constants.DEBUG_STACK_DEPTH, lookup_lines=False)
    stack.reverse()
    return stack


def eager_task_factory(_):
    """asyncio's, for these tasks."""
    return tasks.create_eager_task_factory(Task)


def start_eagerly(task):
    """The first step of a task, while it is being made: in its context, and as the current one of its loop."""
    loop = task._loop
    previous = tasks._py_swap_current_task(loop, task)
    try:
        tasks._py_register_eager_task(task)
        try:
            task.get_context().run(core.task_eager_step, task)
        finally:
            tasks._py_unregister_eager_task(task)
    finally:
        tasks._py_swap_current_task(loop, previous)


@trusted
def tell_of_dying(future, unfinished):
    """A task dies before its end (`unfinished`), or a future with an exception that nobody has asked for.

    Nothing is said of those that an aborted attempt has made: in no serial run did they exist.
    """
    if core.is_unwinding():
        return
    where = {"source_traceback": future._source_traceback} if future._source_traceback else {}
    if unfinished:
        future._loop.call_exception_handler(
            {"task": future, "message": "Task was destroyed but it is pending!"} | where
        )
    if future._log_traceback:
        message = f"{future.__class__.__name__} exception was never retrieved"
        future._loop.call_exception_handler(
            {"message": message, "exception": future._exception, "future": future} | where
        )


def run_slowly(handle):
    """Call back where the engine does not by itself: in debug mode, where this tells of what takes long, and of other handles.

    What is measured is the attempt that commits.
    """
    loop = handle._loop
    if not loop._debug:
        handle._run()
        return
    track_origins(constants.DEBUG_STACK_DEPTH)
    loop._current_handle = handle
    try:
        start = loop.time()
        handle._run()
        took = loop.time() - start
        if took >= loop.slow_callback_duration:
            base_events.logger.warning("Executing %s took %.3f seconds", base_events._format_handle(handle), took)
    finally:
        loop._current_handle = None
        track_origins(loop._scheduler.origins)  # an attempt that is rolled back does not come here


@trusted
def track_origins(depth):
    """Let coroutines that this thread makes know where, to that depth; `BaseEventLoop.set_debug` does that for one thread only."""
    sys.set_coroutine_origin_tracking_depth(depth)


def tell_of_callback(handle, exception):
    """A callback has raised: the loop's exception handler is told."""
    callback = format_helpers._format_callback_source(handle._callback, handle._args, debug=False)
    context = {"message": f"Exception in callback {callback}", "exception": exception, "handle": handle}
    handle._loop.call_exception_handler(context)


def first_call(function):
    """The first instruction by which the function calls something, and its line, by their numbers."""
    return next((each.offset, each.line_number) for each in dis.get_instructions(function)
                if each.opname in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"))  # fmt: skip


@core.once
def use_engine_futures():
    """Have asyncio use the engine's Future and Task: the state of its own cannot be rolled back.

    Modules that have imported the names before get them too.  The current task stays with asyncio's C code, which keeps
    it per thread.
    """
    if not core.COMPILED:
        return
    # Printing one, and the stack of a task, are asyncio's own code.
    for ours, asyncios, names in (
        (Future, futures._PyFuture, "__repr__"), (Task, tasks._PyTask, "__repr__ get_stack print_stack"),
    ):
        for name in names.split():
            setattr(ours, name, vars(asyncios)[name])
    table.apply("futures")  # it finds what is here
    core.futures_begin(tell_of_dying)
    core.tasks_begin(start_eagerly)
    core.handles_begin(
        asyncio.Handle, asyncio.TimerHandle, base_events.BaseEventLoop.call_soon, run_slowly, tell_of_callback,
        asyncio.Handle._run, *first_call(asyncio.Handle._run),
    )
    core.hide_frames(futures.__file__, "Future.")
    core.hide_frames(tasks.__file__, "Task.")
    core.holds(asyncio.Handle, "_callback")
    core.holds(Task, "_coro")


def rebased(cls):
    """The same class over the engine's Future; its functions' `super()` refer to the new one."""
    cell = types.CellType()
    namespace = {}
    for name, value in vars(cls).items():
        if isinstance(value, types.FunctionType):
            closure = tuple(
                cell if free == "__class__" else old
                for free, old in zip(value.__code__.co_freevars, value.__closure__ or ())
            )
            copy = types.FunctionType(value.__code__, value.__globals__, name, value.__defaults__, closure or None)
            copy.__kwdefaults__, copy.__qualname__, copy.__doc__ = value.__kwdefaults__, value.__qualname__, value.__doc__
            value = copy
        if name not in ("__dict__", "__weakref__"):
            namespace[name] = value
    cell.cell_contents = type(cls.__name__, (Future,), namespace)
    return cell.cell_contents
