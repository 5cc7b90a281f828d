"""TLS in transactions: the C objects behind ``ssl.SSLSocket`` and ``ssl.SSLObject``.

Those of sockets (Tornado's) do as sockets do (``sockets.py``): what an aborted attempt has decrypted is received again, what
is written is encrypted at commit.  A handshake needs no undoing: one that has got further is further, whoever asks
next; only its failure is kept for the next attempt.

Those in memory (asyncio's) pass records on that must be made and read once: using one is irrevocable.  Other transactions run
beside it, but for those that want to be irrevocable themselves.
"""

import _ssl
import functools
import gc
import ssl
import threading

from .. import core, forks
from ..core import trusted
from . import sockets

_methods = _ssl._SSLSocket
_read = _methods.read
_write = _methods.write
_pending = _methods.pending
_do_handshake = _methods.do_handshake
_version = _methods.version  # None before the end of the handshake

#: OpenSSL bears one call at a time for a connection, and Python sees to that no more: what one transaction has written may be on
#: its way, after its commit, while another one reads.  Each lock is for many connections, and never held over code of the program,
#: which may have to wait for a transaction that needs the same one in its commit.
_locks = [threading.RLock() for _ in range(256)]
forks.free(*_locks)

#: id of an _SSLSocket -> (it, the error with which its handshake failed in an aborted attempt)
_failures = {}


@trusted
def _socket_of(connection):
    """The socket that this connection belongs to.  None if it is in memory: then the transaction has become irrevocable."""
    sock = connection.owner
    if isinstance(sock, ssl.SSLSocket):
        if core.in_transaction() and _message_callback(connection.context) is not None:
            core.exclusive("TLS that calls back")
        return sock
    if core.in_transaction():
        core.own(connection)
        core.irrevocable("TLS in memory")
    return None


@trusted
def _alone(function, connection, *args):
    """Call a method of a connection, but wait until nobody else does.  (One that blocks would keep others waiting for ever.)"""
    sock = connection.owner
    if not isinstance(sock, ssl.SSLSocket) or sockets.blocks(sock) or _calls_back(connection):
        return function(connection, *args)  # whoever calls back is exclusive, or has the socket, which has nothing left to send
    with _locks[id(connection) // 16 % len(_locks)]:
        return function(connection, *args)


@trusted
def read(connection, size, buffer=None, /):
    """Twin of ``_SSLSocket.read``."""
    sock = _socket_of(connection)
    if buffer is None:
        return _read(connection, size) if sock is None else sockets.receive(sock, size, _alone, _read, connection)
    if not sockets.is_writable(buffer):
        return _read(connection, size, buffer)  # which raises what it has to
    core.change(buffer.obj if isinstance(buffer, memoryview) else buffer)
    if sock is None:
        return _read(connection, size, buffer)
    view = memoryview(buffer).cast("B")
    data = sockets.receive(sock, size if 0 < size < len(view) else len(view), _alone, _read, connection)
    view[: len(data)] = data
    return len(data)


@trusted
def write(connection, data, /):
    """Twin of ``_SSLSocket.write``.  Raises SSLWantWriteError when too much waits to be sent."""
    if not sockets.is_readable(data):
        return _write(connection, data)  # which raises what it has to
    sock = _socket_of(connection)
    core.open_all(data)
    if sock is None:
        return _write(connection, data)
    if sockets.transactional(sock):
        return _unless_full(core.put_off, sock, data, functools.partial(_encrypt, sock, connection))
    _unless_full(sockets.send_at_once, sock)
    return _alone(_write, connection, data)


@trusted
def _unless_full(function, *args):
    """Call it; raise SSLWantWriteError in the place of BlockingIOError."""
    try:
        return function(*args)
    except BlockingIOError as e:
        raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, e.strerror) from None


@trusted
def _encrypt(sock, connection, chunk):
    # The socket is here to live as long: the connection refers to it weakly.
    try:
        return _alone(_write, connection, chunk)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError from None


@trusted
def do_handshake(connection):
    """Twin of ``_SSLSocket.do_handshake``."""
    sock = _socket_of(connection)
    transactional = sock is not None and sockets.transactional(sock)
    if transactional:
        if _version(connection) is None and sockets.waits_to_be_sent(sock):
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "what was sent before the handshake is not sent yet")
        core.own(connection)
        if _calls_back(connection):
            core.own(sock)
            # An abort of the Python code that it calls would make the handshake fail.
            core.irrevocable("a TLS handshake that calls back")
    # The attempt that comes after the one that failed may be exclusive.
    kept = _failures.pop(id(connection), None)
    try:
        if kept is not None:
            raise kept[1]
        return _alone(_do_handshake, connection) if transactional else _do_handshake(connection)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise
    except OSError as e:
        if transactional:
            core.on_abort(_failures.__setitem__, id(connection), (connection, e))
        raise


_message_callback = _ssl._SSLContext._msg_callback.__get__


@trusted
def _calls_back(connection):
    """May OpenSSL call code of the program: for each message, or in the handshake (for server names, shared keys)?

    Not all of those callbacks have an attribute.
    """
    context = connection.context
    if _message_callback(context) is not None:
        return True
    return _version(connection) is None and any(
        callable(part) and not isinstance(part, type) for part in gc.get_referents(context))


@trusted
def pending(connection):
    """Twin of ``_SSLSocket.pending``."""
    sock = _socket_of(connection)
    if sock is None:
        return _pending(connection)
    core.own(sock)
    return _alone(_pending, connection) + sockets.received(sock)


def _irrevocable(function):
    """A twin that does the same to the object that it owns, irrevocably."""

    @trusted
    def twin(subject, *args):
        if core.in_transaction():
            core.own(subject)
            core.open_all(args)
            core.irrevocable("TLS in memory" if isinstance(subject, _ssl.MemoryBIO) else "TLS without a way back")
        return function(subject, *args)

    return twin


@trusted
def shutdown(connection):
    """Twin of ``_SSLSocket.shutdown``, after what was written."""
    sock = _socket_of(connection)
    if sock is not None:
        _unless_full(sockets.send_at_once, sock)
    return _alone(_methods.shutdown, connection)


def _owning(function):
    """A twin that does the same to the object that it owns: what it tells is changed by nobody else."""

    @trusted
    def twin(connection, *args):
        if core.in_transaction():
            core.own(connection)
        return function(connection, *args)

    return twin


def after_what_waits(method):
    """``SSLSocket.send`` or ``write``: outside of transactions, too, nothing overtakes what transactions have written."""

    @functools.wraps(method)
    def send(self, *args):
        _look_outside(self)
        return method(self, *args)

    return send


@trusted
def _look_outside(sock):
    if not core.in_transaction() and sockets.waits_to_be_sent(sock):
        _unless_full(sockets.send_at_once, sock)


TWINS = {
    _read: read,
    _write: write,
    _do_handshake: do_handshake,
    _pending: pending,
    _methods.shutdown: shutdown,
    **{method: _irrevocable(method) for method in (
        _methods.verify_client_post_handshake, _ssl.MemoryBIO.read, _ssl.MemoryBIO.write, _ssl.MemoryBIO.write_eof)},
    **{method: _owning(method) for method in (
        _methods.getpeercert, _methods.get_verified_chain, _methods.get_unverified_chain, _methods.selected_alpn_protocol,
        _methods.cipher, _methods.shared_ciphers, _methods.compression, _methods.version, _methods.get_channel_binding)},
}
