"""The smallest changes to libraries whose own bookkeeping makes each request conflict with every other.

Each is named for what it replaces, and takes place when a loop is made, if the library has been imported by then.
"""

import asyncio
import functools
import itertools
import sys

from ..core import trusted

_done = set()


def apply():
    """Make the changes to what has been imported since the last call."""
    for name, change in _CHANGES.items():
        module = sys.modules.get(name)
        if module is not None and name not in _done:
            _done.add(name)
            change(module)


def _aiohttp_web_protocol(module):
    """``RequestHandler._handle_request``: the handler runs in a step of its own.

    Else it does in the step in which aiohttp has counted the request: all handlers would be kept waiting for the counter.
    """
    handle = module.RequestHandler._handle_request

    @functools.wraps(handle)
    async def _handle_request(self, *args):
        await asyncio.sleep(0)
        return await handle(self, *args)

    module.RequestHandler._handle_request = _handle_request


class Numbers:
    """Numbers that are all different, for as many transactions at once as there are.  An aborted one's are missing."""

    def __init__(self):
        self._count = itertools.count(1)

    @trusted
    def __next__(self):
        return next(self._count)


def _multidict(module):
    """``_version``: all dicts take the numbers of their states from one iterator."""
    module._version = Numbers()


def _tornado_websocket(module):
    """``WebSocketProtocol13._handle_message``: ``on_message`` runs in a step of its own.

    Else it does in the step in which its message was read: everybody who sends something to that connection meanwhile, as in
    a broadcast, would be kept waiting for it.
    """
    handle = module.WebSocketProtocol13._handle_message

    async def handle_later(self, opcode, data):
        await asyncio.sleep(0)
        handled = handle(self, opcode, data)
        if handled is not None:
            await handled

    @functools.wraps(handle)
    def _handle_message(self, opcode, data):
        return handle_later(self, opcode, data) if opcode in (TEXT, BINARY) else handle(self, opcode, data)

    module.WebSocketProtocol13._handle_message = _handle_message


#: the codes of web socket messages (RFC 6455)
TEXT, BINARY = 1, 2

_CHANGES = {
    "aiohttp.web_protocol": _aiohttp_web_protocol,
    "multidict._multidict_py": _multidict,
    "tornado.websocket": _tornado_websocket,
}
