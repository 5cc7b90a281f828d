"""The smallest changes to libraries whose own bookkeeping makes each request conflict with every other, or costs it much."""

import asyncio
import contextlib
import functools
import itertools
import sys
import types

from .. import core
from ..core import trusted


def has_other_threads():
    return not core.is_only_thread()


@types.coroutine
def _own_step():
    """What follows is a step of its own, for an operation that is done: where none would be, no cancellation can come in between.

    One that comes takes effect at the next wait of the task.
    """
    try:
        yield
    except asyncio.CancelledError as e:
        if (task := asyncio.current_task()) is None:
            raise
        task.uncancel()
        task.cancel(*e.args)


def _steps_if(asked):
    """Is there a step to end, and shall it?  On trio, where anyio and httpx run as well, ``yield`` means something else."""
    return asked is not None and asyncio._get_running_loop() is not None and asked()


def in_steps(operation, before=None, after=None):
    """The coroutine function, which begins a step of its own if `before()`; and so does what the program does after it, if `after()`.

    On asyncio's loops only.
    """

    @functools.wraps(operation)
    async def begun_anew(*args, **kwargs):
        if _steps_if(before):
            await asyncio.sleep(0)
        result = await operation(*args, **kwargs)
        if _steps_if(after):
            await _own_step()
        return result

    return begun_anew


def begun_anew(handle):
    """``RequestHandler._handle_request`` of aiohttp: the handler runs in a step of its own.

    Else it does in the step in which aiohttp has counted the request: all handlers would be kept waiting for the counter, where there are
    several threads.
    """
    return in_steps(handle, before=has_other_threads)


def copied(make):
    """``_extract_endpoint_context`` of FastAPI: a copy of what it remembers of a handler, for each request.

    Else all requests for a handler write their path into the same dict, and each keeps the others waiting to its end.
    """

    @functools.wraps(make)
    def _extract_endpoint_context(func):
        return make(func).copy()

    return _extract_endpoint_context


def gives_way(operation):
    """A coroutine function of a database driver or a client: what the program does with its result begins a step of its own.

    C code makes its step run alone, or so that it cannot be rolled back, to the end; so others would be kept waiting for what the
    handler computes with what it has got.  To the program the other side took a moment longer to answer, or its cancellation to arrive.
    """
    return in_steps(operation, after=core.keeps_others_waiting)


def given_back(operation):
    """A coroutine function that gives a connection back to a pool: what the program does afterwards begins a step of its own.

    Else it does in the step that has written to the pool, and all who need a connection would be kept waiting for it.
    """
    return in_steps(operation, after=has_other_threads)


def lent(connection):
    """What makes an asynchronous context in which a connection is taken out of a pool: likewise, when that has been left."""

    @functools.wraps(connection)
    @contextlib.asynccontextmanager
    async def begun_anew(*args, **kwargs):
        async with connection(*args, **kwargs) as lent:
            yield lent
        if _steps_if(has_other_threads):
            await _own_step()

    return begun_anew


def turns_taken(call):
    """``HTTPRoute._call_handler_function`` of Litestar: a handler that is a coroutine function has steps of its own.

    Else it computes in that in which msgspec's C code makes its arguments, which runs alone from there on, and
    in that in which it encodes the answer, which waits for all others to end what they compute if C code has to look into what it does not know.
    """

    @functools.wraps(call)
    async def _call_handler_function(self, scope, request, parameter_model, route_handler):
        # It may have been registered before there was a loop.
        if not route_handler.has_sync_callable and not hasattr(route_handler.fn, "takes_turns"):
            route_handler._fn = in_steps(route_handler.fn, before=core.keeps_others_waiting, after=has_other_threads)
            route_handler._fn.takes_turns = True
        return await call(self, scope, request, parameter_model, route_handler)

    return _call_handler_function


class Numbers:
    """Numbers that are all different, for as many transactions at once as there are.  An aborted one's are missing."""

    def __init__(self):
        self._count = itertools.count(1)

    @trusted
    def __next__(self):
        return next(self._count)

    def __getitem__(self, place):
        """As of the array that multidict 6 has in this place: its number plus 1 is the next one."""
        return next(self)

    def __setitem__(self, place, number):
        """The next one is another anyway."""


#: in the place of the iterator from which all of multidict's dicts take the numbers of their states
numbers = Numbers()
#: in the place of the lock that multidict 6 takes for that; to the end of its transaction, for the others
no_lock = contextlib.nullcontext()


@trusted
def string_at(pointer, size=-1):
    """``ctypes.string_at``, where nobody writes to what it reads."""
    return sys.modules["ctypes"]._string_at(pointer, size)


def messages_begun_anew(handle):
    """``WebSocketProtocol13._handle_message`` of Tornado: ``on_message`` runs in a step of its own.

    Else it does in the step in which its message was read: everybody who sends something to that connection meanwhile, as in
    a broadcast, would be kept waiting for it.
    """

    async def handle_later(self, opcode, data):
        await asyncio.sleep(0)
        handled = handle(self, opcode, data)
        if handled is not None:
            await handled

    @functools.wraps(handle)
    def _handle_message(self, opcode, data):
        if opcode in (TEXT, BINARY) and has_other_threads():
            return handle_later(self, opcode, data)
        return handle(self, opcode, data)

    return _handle_message


def with_globals(function, **changed):
    """The function, to which these names are something else."""
    there = function.__globals__ | changed
    return functools.wraps(function)(types.FunctionType(function.__code__, there, argdefs=function.__defaults__))


def not_set_to_zero(read):
    """``BaseIOStream._read_to_buffer`` of Tornado: the buffer that it reads into has not been set to zero.

    It makes one of 64 kB for each read, copies what has been read out of it, and drops it.  To set that to zero takes as long as the rest of
    a read, and fills the processor's first-level cache.
    """
    return with_globals(read, bytearray=core.unset_bytearray)


def versions_left_in_place(get_version):
    """``StaticFileHandler._get_cached_version`` of Tornado: while its cache is not half full, what is used is not moved to the end.

    In which order they have been used matters when one has to go, and all pages that name the same file would move that.
    """
    find = get_version.__func__

    @functools.wraps(find)
    def _get_cached_version(cls, abs_path):
        versions = cls._static_hashes
        if 2 * len(versions) <= cls.MAX_CACHED_VERSIONS and (version := versions.get(abs_path, find)) is not find:
            return version or None
        return find(cls, abs_path)

    return classmethod(_get_cached_version)


def waits_at_once(write_message):
    """``WebSocketProtocol13.write_message`` of Tornado: the task that waits until the message is written begins at once.

    Mostly there is nothing to wait for, and it ends with that.  Else each member of a broadcast would cost it one more transaction.
    """
    asyncio_there = types.ModuleType("asyncio")
    vars(asyncio_there).update(vars(asyncio), ensure_future=_begun_at_once)
    return with_globals(write_message, asyncio=asyncio_there)


def _begun_at_once(coroutine):
    loop = asyncio._get_running_loop()
    if loop is None or loop.get_task_factory() is not None:
        return asyncio.ensure_future(coroutine)
    return asyncio.Task(coroutine, loop=loop, eager_start=True)


#: the codes of web socket messages (RFC 6455)
TEXT, BINARY = 1, 2
