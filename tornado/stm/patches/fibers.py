"""The greenlets in which SQLAlchemy's asyncio engines run what was written to wait where it is called.

A greenlet has a stack of its own, which belongs to a thread, and cannot be rolled back.  So whoever makes one, or lets it go on, does so
on the loop's thread, and is irrevocable from there to the end of the step; others run beside it (``engine/calls/fiber.c``).  One that
waits where C code has called what waits goes on alone, until it waits elsewhere.

SQLAlchemy (read in 2.0 and 2.1) makes one for each operation of a session, engine or connection.  It gets a `Fiber` for it.
"""

import asyncio
import functools
import sys

from .. import core
from ..core import trusted


class Fiber:
    """In the place of SQLAlchemy's class of greenlets.

    Args:
        function: what is to run in it, called by the first `switch`.
    """

    __sqlalchemy_greenlet_provider__ = True

    @trusted
    def __init__(self, function, driver):
        self._barriers = None  # have its frames all of them?  None: it has not begun
        self._waits_in_c = False
        self._stack = core.in_fiber(False, _new_stack, self, function)
        self.parent = self.driver = Driver(self)

    @trusted
    def switch(self, *args, **kwargs):
        """Let it go on.  Returns what it waits for, or in the end has returned; raises what it does."""
        return self._goes_on(self._stack.switch, *args, **kwargs)

    @trusted
    def throw(self, *exception):
        """The same, with an exception where it waits."""
        return self._goes_on(self._stack.throw, *exception)

    @trusted
    def _goes_on(self, switch, *args, **kwargs):
        if self._barriers is None:
            self._barriers = _needs_barriers()
        elif self._waits_in_c or not self._barriers:
            core.exclusive("a greenlet that waits within C code, or has no barriers", False)
        self._barriers &= core.in_transaction()
        try:
            return core.in_fiber(self._barriers, switch, *args, **kwargs)
        finally:
            if self._stack.dead:
                vars(self._stack).clear()

    @property
    @trusted
    def dead(self):
        return self._stack.dead


class Driver:
    """What a fiber calls when it waits."""

    def __init__(self, fiber):
        self._fiber = fiber

    @trusted
    def switch(self, awaitable):
        self._fiber._waits_in_c = core.is_in_c()
        try:
            return _current_stack().parent.switch(awaitable)
        finally:
            core.fiber_goes_on()


@trusted
def _needs_barriers():
    """Will a greenlet that begins now go on beside others?  If it has no barriers it must not.

    On a loop with one thread it will not, nor as a rule where nothing takes long: there one thread runs all, alone.
    """
    scheduler = getattr(asyncio._get_running_loop(), "_scheduler", None)
    if not core.in_transaction() or scheduler is None or scheduler.threads == 1:
        return False
    return not (core.is_exclusive() and scheduler.dispatcher.ready.only_prompt)


@trusted
def _current_stack():
    return sys.modules["greenlet"].getcurrent()


@trusted
def _new_stack(fiber, function):
    stack = sys.modules["greenlet"].greenlet(function)
    stack.gr_context = _current_stack().gr_context
    stack.fiber = fiber
    return stack


@trusted
def current():
    """In the place of ``greenlet.getcurrent``, for SQLAlchemy: the `Fiber` that calls, or something else."""
    stack = _current_stack()
    if (fiber := getattr(stack, "fiber", None)) is not None:
        return fiber
    # It was begun before the first loop was made, by hand, and is SQLAlchemy's own.
    return stack if hasattr(stack, "__sqlalchemy_greenlet_provider__") else None


def initializing(initialize):
    """``_concurrency_shim_cls._initialize`` of SQLAlchemy 2.1, which imports greenlet where that is needed first.

    That may have been: an engine that a module makes is there before any loop is.
    """

    @functools.wraps(initialize)
    def _initialize(self, **options):
        initialize(self, **options)
        if self._has_greenlet:
            self._AsyncIoGreenlet, self.getcurrent = Fiber, current

    concurrency = sys.modules["sqlalchemy.util.concurrency"]
    if hasattr(concurrency, "greenlet"):  # it is None where there is none
        _initialize(concurrency._concurrency_shim, raise_=False)
    return _initialize
