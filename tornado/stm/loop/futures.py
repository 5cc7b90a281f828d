"""asyncio's futures and tasks written in Python, in the place of those in C: their state can be rolled back."""

import asyncio
import itertools
import sys
import traceback
import types
import weakref
from asyncio import constants, futures, tasks

from .. import core
from ..core import trusted
from ..patches import finalizers, table

_task_numbers = itertools.count(1)


@trusted
def next_task_number():
    """In the place of the iterator from which asyncio takes the numbers in the names of tasks."""
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
    """asyncio's, for tasks in Python."""
    return tasks.create_eager_task_factory(tasks._PyTask)


@core.once
def use_python_futures():
    """Let asyncio use its own Future and Task written in Python: the state of the C ones cannot be rolled back.

    Modules that have imported the names before get them too.  The current task stays with asyncio's C code, which keeps
    it per thread.
    """
    if not core.COMPILED:
        return
    table.apply("futures")  # it finds `finalizers` and what is here
    core.hide_frames(futures.__file__, "Future.")
    core.hide_frames(tasks.__file__, "Task.")
    core.holds(asyncio.Handle, "_callback")
    core.holds(tasks._PyTask, "_coro")


def rebased(cls):
    """The same class over the Future in Python; its functions' `super()` refer to the new one."""
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
    cell.cell_contents = type(cls.__name__, (futures._PyFuture,), namespace)
    return cell.cell_contents
