"""pyzmq: whether a socket is closed is asked at one's turn, as all that libzmq is asked for."""

import functools

from .. import core
from ..core import trusted


def at_its_turn(closed):
    """``Socket.closed``, an attribute in C, of the class in Python.

    It asks libzmq, and another socket may be the same one to libzmq: what is known of it is not known by this one's lock.
    """

    @functools.wraps(closed)
    @trusted
    def get(socket):
        core.irrevocable("a look whether a socket of zmq is closed")
        return closed.__get__(socket)

    return property(get)
