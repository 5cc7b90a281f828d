"""A module in the place of uvloop, whose loops are the transactional one.

Servers choose uvloop where it is installed (uvicorn, Sanic), and programs ask for it by name.  On its loops no transaction would
run, and one core would do the work, without a word about it.
"""

import asyncio
import asyncio.unix_events
import importlib.machinery
import importlib.util
import socket
import sys

from ..core import say, trusted

NAME = "uvloop"
TOO_LATE = "tornado.stm: warning: uvloop has been imported already: on its loops no transaction runs; install() before that, or do without uvloop"
TOLD = "tornado.stm: in the place of uvloop's loop the transactional one runs"


class _Finder:
    """Finds the module in the place of uvloop, where uvloop is installed."""

    def __init__(self, loop_class):
        self.loop_class = loop_class

    def find_spec(self, name, path=None, target=None):
        if name != NAME or importlib.machinery.PathFinder.find_spec(NAME) is None:
            return None
        return importlib.util.spec_from_loader(NAME, self, origin=f"{__package__} in the place of {NAME}")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(names(self.loop_class))


def stand_in(loop_class):
    """From here on ``import uvloop`` gives a module whose loops are of that class, if uvloop is installed."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.loop_class = loop_class
            return
    if NAME in sys.modules:
        say(TOO_LATE)
    else:
        sys.meta_path.insert(0, _Finder(loop_class))


def _send_at_once(sock):
    """As uvloop has it for all of TCP, and asyncio only for sockets that say that they are (`proto`).

    Those that a server has made itself, for its workers (uvicorn's do), do not say so, and an answer in two pieces would wait for
    the client's acknowledgement, which comes 40 ms later.
    """
    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM and sock.proto != socket.IPPROTO_TCP:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)


_told = False


@trusted
def _tell():
    global _told
    if not _told:
        _told = True
        say(TOLD)


def names(loop_class):
    """What uvloop's module has."""

    class Loop(loop_class):
        def __init__(self):
            _tell()
            super().__init__()

        def _make_socket_transport(self, sock, *args, **kwargs):
            _send_at_once(sock)
            return super()._make_socket_transport(sock, *args, **kwargs)

        def _make_ssl_transport(self, rawsock, *args, **kwargs):
            _send_at_once(rawsock)
            return super()._make_ssl_transport(rawsock, *args, **kwargs)

    class EventLoopPolicy(asyncio.unix_events._UnixDefaultEventLoopPolicy):
        def _loop_factory(self):
            return Loop()

    def new_event_loop():
        """A new loop."""
        return Loop()

    def install():
        """All loops are of that kind already."""
        _tell()

    def run(main, *, loop_factory=new_event_loop, debug=None, **_):
        """As `asyncio.run`."""
        return asyncio.run(main, debug=debug, loop_factory=loop_factory)

    import importlib.metadata  # which takes long, and most programs have no uvloop

    return {
        "Loop": Loop, "EventLoopPolicy": EventLoopPolicy, "new_event_loop": new_event_loop, "install": install, "run": run,
        "__version__": importlib.metadata.version(NAME),
        "__all__": ("new_event_loop", "run", "Loop", "EventLoopPolicy", "install"),
    }  # fmt: skip
