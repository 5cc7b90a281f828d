"""asyncpg, which speaks PostgreSQL's protocol in C: an operation is irrevocable, and what comes after it is not.

The C code of a connection (``asyncpg.protocol.protocol``, read in 0.32) has state that cannot be put back, but it changes nothing
else by itself.  It reads the arguments of the query, and calls

* methods of the loop, of futures and timers that this has made, and of the transport: of Python code, which has barriers, and
  of C code of the engine's, which expects that whoever calls it has seen to them.  So instead of the loop it gets a `Loop`, whose
  futures and timers have methods in Python;
* what the program has set to encode and decode a type: of Python code, too, once it is wrapped (`Settings`).

Since an operation is a coroutine in C, each of its steps is one of a coroutine in Python (`operation`), which makes the
transaction irrevocable first.  Only one transaction at a time is that, so two never change the state of one connection; and who
looks at it holds its lock (the kind of the type, in ``c_functions/libraries/asyncpg.effects``).
"""

import functools

from .. import core
from ..core import trusted
from .libraries import gives_way

if core.COMPILED:
    from .._engine import Future

    class Waiter(Future):
        """A future of which C code uses nothing but methods in Python."""

        def set_result(self, result):
            super().set_result(result)

        def set_exception(self, exception):
            super().set_exception(exception)

        def cancel(self, msg=None):
            return super().cancel(msg)

        def cancelled(self):
            return super().cancelled()

        def done(self):
            return super().done()

        def add_done_callback(self, callback, *, context=None):
            super().add_done_callback(callback, context=context)

        def __await__(self):
            return (yield from super().__await__())


class Timer:
    """What ``call_later`` returns, likewise."""

    def __init__(self, handle):
        self._handle = handle

    def cancel(self):
        self._handle.cancel()


class Loop:
    """What the C code of a connection uses of an event loop."""

    def __init__(self, loop):
        self._loop = loop

    def create_future(self):
        return Waiter(loop=self._loop)

    def call_later(self, delay, callback, *args):
        return Timer(self._loop.call_later(delay, callback, *args))

    def time(self):
        return self._loop.time()

    def call_exception_handler(self, context):
        self._loop.call_exception_handler(context)


def make_protocol(original):
    """In the place of the initializer of a connection's protocol."""

    @functools.wraps(original)
    def __init__(self, addr, connected_fut, con_params, record_class, loop):
        original(self, addr, connected_fut, con_params, record_class, Loop(loop))

    return __init__


@trusted
def _in_c(protocol, function, *arguments, **named):
    """Let C code change the state of the connection."""
    core.irrevocable("an operation of asyncpg")
    core.own(protocol)
    return function(*arguments, **named)


class _Steps:
    """Those of a coroutine in C, which ends with this one; `arguments` is what each of them may read, or None."""

    def __init__(self, protocol, coroutine, arguments=None):
        self._protocol, self._coroutine, self._arguments = protocol, coroutine, arguments

    def __await__(self):
        protocol, coroutine = self._protocol, self._coroutine
        proceed, argument = coroutine.send, None
        while True:
            if self._arguments is not None:
                core.open_all(self._arguments)
            try:
                waits_for = _in_c(protocol, proceed, argument)
            except StopIteration as end:
                return end.value
            try:
                proceed, argument = coroutine.send, (yield waits_for)
            except GeneratorExit:
                _in_c(protocol, coroutine.close)
                raise
            except BaseException as error:
                proceed, argument = coroutine.throw, error


def operation(method):
    """In the place of a coroutine method of the protocol."""

    @functools.wraps(method)
    async def steps(self, *arguments, **named):
        return await _Steps(self, _in_c(self, method, self, *arguments, **named))

    return gives_way(steps)


def operation_with_arguments(method):
    """Likewise, of one that encodes the arguments of a query in its first step."""

    @functools.wraps(method)
    async def steps(self, state, args, *arguments, **named):
        core.open_all(args)
        return await _Steps(self, _in_c(self, method, self, state, args, *arguments, **named))

    return gives_way(steps)


MOST_AT_ONCE = 1000


def operation_with_many_arguments(method):
    """Likewise, of one that encodes the arguments of many queries as it sends them, also in later steps.

    What C code would ask for the next ones, and what takes long to open again in each step, runs alone.
    """

    @functools.wraps(method)
    async def steps(self, state, args, *arguments, **named):
        if type(args) not in _SEQUENCES or len(args) > MOST_AT_ONCE or not all(type(each) in _SEQUENCES for each in args):
            return await method(self, state, args, *arguments, **named)
        return await _Steps(self, _in_c(self, method, self, state, args, *arguments, **named), args)

    return gives_way(steps)


_SEQUENCES = list, tuple


class Settings:
    """Those of a connection: what encodes and decodes has barriers, whatever it is."""

    def __init__(self, settings):
        self._settings = settings

    def add_python_codec(self, typeoid, typename, typeschema, typeinfos, typekind, encoder, decoder, format):
        def encode(value):
            return encoder(value)

        def decode(value):
            return decoder(value)

        self._settings.add_python_codec(typeoid, typename, typeschema, typeinfos, typekind, encode, decode, format)

    def __getattr__(self, name):
        return getattr(self._settings, name)

    def __repr__(self):
        return repr(self._settings)


def get_settings(original):
    """In the place of the protocol's method."""

    @functools.wraps(original)
    def method(self):
        return Settings(original(self))

    return method
