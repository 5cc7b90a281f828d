"""asyncio's futures and tasks written in Python, in the place of those in C: their state can be rolled back."""

import asyncio
import itertools
import sys
import traceback
import types
import weakref
from asyncio import constants, format_helpers, futures, tasks

from .. import core
from ..core import trusted
from ..patches import finalizers
from .scheduler import Watch

_task_numbers = itertools.count(1)


@trusted
def _next_task_number():
    return next(_task_numbers)


class TaskReference(weakref.ref):
    """Knows under which key of a `TaskRegistry` it is, also when the task is gone."""

    __slots__ = ("key",)


class TaskRegistry:
    """In the place of asyncio's weak set of tasks: creating and ending tasks conflicts with nothing.

    Whoever wants to see all tasks does so exclusively.
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
        tasks_ = [reference() for reference in list(self._references.values())]
        return iter([task for task in tasks_ if task is not None])

    @trusted
    def __len__(self):
        return sum(1 for _ in self)


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


@core.once
def use_python_futures():
    """Let asyncio use its own Future and Task written in Python: the state of the C ones cannot be rolled back.

    Modules that have imported the names before get them too.  The current task stays with asyncio's C code, which keeps
    it per thread.
    """
    if not core.COMPILED:
        return
    replaced = {
        id(futures.Future): futures._PyFuture, id(tasks.Task): tasks._PyTask, id(asyncio.all_tasks): tasks._py_all_tasks,
    }
    if hasattr(tasks, "eager_task_factory"):
        replaced[id(tasks.eager_task_factory)] = tasks.create_eager_task_factory(tasks._PyTask)
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if namespace is None or module is sys.modules["_asyncio"]:
            continue
        for name, value in list(namespace.items()):
            if id(value) in replaced and not name.startswith(("_C", "_c_")):
                setattr(module, name, replaced[id(value)])
            elif type(value) is tuple and any(id(item) in replaced for item in value):
                # tornado.concurrent.FUTURES
                setattr(module, name, tuple(replaced.get(id(item), item) for item in value))
    futures.future_add_to_awaited_by = futures._py_future_add_to_awaited_by
    futures.future_discard_from_awaited_by = futures._py_future_discard_from_awaited_by
    tasks._py_enter_task = tasks._c_enter_task
    tasks._py_leave_task = tasks._c_leave_task
    tasks._py_swap_current_task = tasks._c_swap_current_task
    tasks._py_current_task = tasks._c_current_task
    tasks._task_name_counter = _next_task_number
    tasks._GatheringFuture = _rebased(tasks._GatheringFuture, futures._PyFuture)
    tasks._scheduled_tasks = TaskRegistry()
    # The C ones have no frames.
    format_helpers.extract_stack = extract_stack
    core.hide_frames(futures.__file__, "Future.")
    core.hide_frames(tasks.__file__, "Task.")
    core.holds(asyncio.Handle, "_callback")
    core.holds(tasks._PyTask, "_coro")
    core.holds(Watch, "reader")
    core.holds(Watch, "writer")
    futures._PyFuture.__del__ = finalizers.quiet_future(futures._PyFuture.__del__)
    tasks._PyTask.__del__ = finalizers.quiet_future(tasks._PyTask.__del__)


def _rebased(cls, base):
    """The same class over another base; its functions' `super()` refer to the new one."""
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
    cell.cell_contents = type(cls.__name__, (base,), namespace)
    return cell.cell_contents
