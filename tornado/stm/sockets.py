"""Sockets in transactions: what an aborted attempt received is received again, what is sent waits for the commit.

* Receiving and accepting own the socket.  What an attempt took from the kernel goes to the socket's *inbox* if the
  attempt aborts; the next attempt takes it from there.
* Sending puts a chunk into the socket's *outbox*, which goes to the kernel at commit, in order.  An outbox holds at most
  `OUTBOX_LIMIT` bytes: beyond that a send would block, as on a full socket.
* Closing and shutting down wait for the commit, and for the outbox to be empty.

Sockets with a time-out or in blocking mode are not for an event loop: using one is exclusive.
"""

import _socket
import asyncio
import errno
import os
import select
import socket
import threading
from collections import deque

from . import core
from .core import trusted

OUTBOX_LIMIT = 256 * 1024

_methods = _socket.socket
_recv = _methods.recv
_recvfrom = _methods.recvfrom
_send = _methods.send
_close = _methods.close
_shutdown = _methods.shutdown
_accept = _methods._accept
_fileno = _methods.fileno
_gettimeout = _methods.gettimeout

#: file descriptor -> deque of what aborted attempts have received: bytes, exceptions, accepted connections.  An entry
#: is only touched by the transaction that owns the socket.
_inboxes = {}

#: file descriptor -> Outbox of sockets that have something to send
_outboxes = {}


def has_input(fd):
    """Is there something to receive that the kernel does not know of?"""
    return bool(_inboxes) and bool(_inboxes.get(fd))


def _would_block():
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _transactional(sock):
    """Can this operation be replayed or put off?  If not, the transaction has become exclusive."""
    if not core.in_transaction() or core.is_exclusive():
        return False
    if _gettimeout(sock) != 0.0:
        core.exclusive("a blocking socket")
        return False
    return True


def _put_back(fd, item):
    _inboxes.setdefault(fd, deque()).appendleft(item)


def _take(sock, receive, *args):
    """Take from the inbox, else from the kernel; remember it for the next attempt."""
    fd = _fileno(sock)
    transactional = _transactional(sock)
    if transactional:
        core.own(sock)
    inbox = _inboxes.get(fd) if _inboxes else None
    if inbox:
        item = inbox.popleft()
        if not inbox:
            del _inboxes[fd]
    else:
        try:
            item = receive(sock, *args)
        except (BlockingIOError, InterruptedError):
            raise
        except OSError as e:
            item = e
    if transactional:
        core.on_abort(_put_back, fd, item)
    if isinstance(item, OSError):
        raise item
    return item


trusted(_put_back), trusted(_take), trusted(_transactional), trusted(has_input), trusted(_would_block)


@trusted
def recv(sock, bufsize, flags=0):
    """Twin of ``socket.recv``."""
    if flags:
        core.exclusive("receiving with flags")
        return _recv(sock, bufsize, flags)
    data = _take(sock, _recv, bufsize)
    if len(data) > bufsize:
        rest = data[bufsize:]
        _put_back(_fileno(sock), rest)
        if core.in_transaction():
            # The whole piece is put back on abort: this rest must not be there twice.
            core.on_abort(_drop_first, _fileno(sock))
        data = data[:bufsize]
    return data


@trusted
def _drop_first(fd):
    inbox = _inboxes[fd]
    inbox.popleft()
    if not inbox:
        del _inboxes[fd]


@trusted
def recv_into(sock, buffer, nbytes=0, flags=0):
    """Twin of ``socket.recv_into``."""
    view = memoryview(buffer).cast("B")
    core.change(buffer.obj if isinstance(buffer, memoryview) else buffer)
    data = recv(sock, nbytes or len(view), flags)
    view[: len(data)] = data
    return len(data)


@trusted
def recvfrom(sock, bufsize, flags=0):
    """Twin of ``socket.recvfrom``."""
    if flags:
        core.exclusive("receiving with flags")
        return _recvfrom(sock, bufsize, flags)
    return _take(sock, _recvfrom, bufsize)


@trusted
def accept(self):
    """In the place of ``socket.socket.accept``: the accepted socket object itself is kept for the next attempt."""
    return _take(self, _accept_socket)


@trusted
def _accept_socket(sock):
    fd, address = _accept(sock)
    accepted = socket.socket(sock.family, sock.type, sock.proto, fileno=fd)
    if socket.getdefaulttimeout() is None and _gettimeout(sock):
        accepted.setblocking(True)
    return accepted, address


class Outbox:
    """Bytes that committed transactions have sent and the kernel has not taken.

    Invariants (under `lock`): the kernel gets `chunks` in order, and nothing past them; `size` counts what is in
    `chunks` plus what running transactions have put aside, so it may be a little too large, never too small.
    """

    def __init__(self, sock, fd):
        self.sock = sock
        self.fd = fd
        self.lock = threading.Lock()
        self.chunks = deque()
        self.size = 0
        self.error = None
        self.shutdown = None
        self.closing = False

    def transmit(self, chunk):
        """At commit: send it, or queue what the kernel does not take now."""
        with self.lock:
            if self.error is not None:
                self.size -= len(chunk)
                return
            self.chunks.append(chunk)
            self._flush()
            waiting = bool(self.chunks)
        if waiting:
            _flush_later(self)

    def flush(self):
        """Send what the kernel takes; True when nothing is left."""
        with self.lock:
            self._flush()
            return not self.chunks

    def _flush(self):
        chunks = self.chunks
        while chunks:
            chunk = chunks[0]
            try:
                sent = _send(self.sock, chunk)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as e:
                self.error = e
                self.size -= sum(map(len, chunks))
                chunks.clear()
                break
            self.size -= sent
            if sent == len(chunk):
                chunks.popleft()
            else:
                chunks[0] = chunk[sent:]
        if self.shutdown is not None:
            self._shut_down()
        if self.closing:
            _close(self.sock)
        elif not self.size and self.error is None:
            _outboxes.pop(self.fd, None)

    def _shut_down(self):
        try:
            _shutdown(self.sock, self.shutdown)
        except OSError:
            pass  # the peer is gone: nobody is left to be told
        self.shutdown = None

    def give_back(self, size):
        """The transaction that put this much aside has aborted."""
        with self.lock:
            self.size -= size


for _name, _member in list(vars(Outbox).items()):
    if callable(_member) and hasattr(_member, "__code__"):
        trusted(_member)


@trusted
def _flush_later(outbox):
    loop = asyncio._get_running_loop()
    scheduler = getattr(loop, "_scheduler", None)
    if scheduler is not None:
        scheduler.flush_later(outbox)
    else:
        while not outbox.flush():
            select.select([], [outbox.sock], [])


@trusted
def _outbox_of(sock):
    fd = _fileno(sock)
    box = _outboxes.get(fd)
    if box is None:
        box = _outboxes.setdefault(fd, Outbox(sock, fd))
    return box


@trusted
def send(sock, data, flags=0):
    """Twin of ``socket.send``: takes as many bytes as there is room for; raises BlockingIOError when there is none."""
    if flags or not _transactional(sock):
        core.exclusive("sending at once")
        box = _outboxes.get(_fileno(sock))
        if box is not None and box.chunks and not box.flush():
            raise _would_block()
        return _send(sock, data, flags)
    core.open_all(data)
    if _fileno(sock) < 0:
        return _send(sock, data)  # raises what it has to
    box = _outbox_of(sock)
    with box.lock:
        if box.error is not None:
            error, box.error = box.error, None
            raise error
        room = OUTBOX_LIMIT - box.size
        if room <= 0:
            raise _would_block()
        view = memoryview(data).cast("B")
        chunk = bytes(view[:room])
        box.size += len(chunk)
    core.on_abort(box.give_back, len(chunk))
    core.defer(box.transmit, chunk)
    return len(chunk)


@trusted
def sendall(sock, data, flags=0):
    """Twin of ``socket.sendall``: only for what there is room for."""
    if flags or not _transactional(sock):
        core.exclusive("sending at once")
        return _methods.sendall(sock, data, flags)
    view = memoryview(data).cast("B")
    while view:
        view = view[send(sock, view):]


@trusted
def sendmsg(sock, buffers, *rest):
    """Twin of ``socket.sendmsg``, for plain data."""
    if rest or not _transactional(sock):
        core.exclusive("sending a message with ancillary data")
        return _methods.sendmsg(sock, buffers, *rest)
    core.open_all(buffers)
    return send(sock, b"".join(buffers))


@trusted
def close(sock):
    """Twin of ``socket.close``."""
    core.defer(_close_now, sock)


@trusted
def _close_now(sock):
    fd = _fileno(sock)
    _inboxes.pop(fd, None)
    box = _outboxes.pop(fd, None)
    if box is None:
        _close(sock)
        return
    with box.lock:
        if not box.chunks:
            _close(sock)
            return
        # The descriptor lives on under another socket object until all is sent.
        fd = sock.detach()
        box.sock = _methods(sock.family, sock.type, sock.proto, fileno=fd)
        box.closing = True
    _flush_later(box)


@trusted
def shutdown(sock, how):
    """Twin of ``socket.shutdown``."""
    if not _transactional(sock):
        core.exclusive("shutdown at once")
        return _shutdown(sock, how)
    sock.getpeername()  # raises if there is no connection
    core.defer(_shutdown_now, sock, how)


@trusted
def _shutdown_now(sock, how):
    box = _outboxes.get(_fileno(sock))
    if box is not None:
        with box.lock:
            if box.chunks:
                box.shutdown = how
                return
    try:
        _shutdown(sock, how)
    except OSError:
        pass  # the peer may have gone between the call and the commit


TWINS = {
    _recv: recv,
    _methods.recv_into: recv_into,
    _recvfrom: recvfrom,
    _send: send,
    _methods.sendall: sendall,
    _methods.sendmsg: sendmsg,
    _close: close,
    _shutdown: shutdown,
}


def install():
    """Let ``socket.socket.accept`` keep what it accepted for the next attempt."""
    for function in (socket.socket.__init__, socket._intenum_converter, socket.getdefaulttimeout):
        if hasattr(function, "__code__"):
            trusted(function)
    for attribute in ("family", "type"):
        trusted(vars(socket.socket)[attribute].fget)
    socket.socket.accept = accept
