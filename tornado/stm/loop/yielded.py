"""What a ``gen.coroutine`` of Tornado may yield on these loops, beyond what it may elsewhere: a function and its arguments.

``total = yield add_up, n``: the function is called in a transaction of its own, and the coroutine goes on with what it returns, or raises.
So a handler says that others may compute meanwhile.  (Beazley's "Yieldable Threads", 2010.)
"""

import asyncio
import sys


def accept():
    """From here on, if the program uses Tornado's coroutines and has not said itself what a tuple means."""
    gen = sys.modules.get("tornado.gen")
    if gen is not None and tuple not in gen.convert_yielded.registry:
        gen.convert_yielded.register(tuple, _called_apart)


def _called_apart(call):
    """The future of what is yielded.  Raises BadYieldError."""
    if not call or not callable(call[0]):
        bad = sys.modules["tornado.gen"].BadYieldError
        raise bad(f"yielded unknown object {call!r}: a tuple must be a function and its arguments")
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(_call, future, *call)
    return future


def _call(future, function, *args):
    if future.cancelled():
        return
    try:
        result = function(*args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as e:
        future.set_exception(e)
    else:
        future.set_result(result)
