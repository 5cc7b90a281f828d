"""Sockets in transactions: what an aborted attempt received is received again, what is sent waits for the commit.

* Receiving and accepting own the socket.  What an attempt took from the kernel goes to the socket's *inbox* if the
  attempt aborts; the next attempt takes it from there.
* Sending puts a chunk into the socket's *outbox*, which goes to the kernel at commit, in order.  It holds what the kernel has
  room for: beyond that a send would block, as on a full socket.  A connection that has failed is used at once, alone: so whoever
  sends is told.
* Closing and shutting down wait for the commit, and for the outbox to be empty.
* Options that say how bytes are sent are set at commit, in order with the sending; others by whoever runs alone.

Sockets with a time-out or in blocking mode are not for an event loop: using one is exclusive.

Outboxes, and what is frequent and simple, are the engine's (``../engine/sockets/``): it calls these twins for the rest.
"""

import _socket
import asyncio
import errno
import fcntl
import functools
import math
import operator
import os
import select
import socket
import ssl
import sys
import termios
import weakref
from collections import deque

from .. import core
from ..core import trusted

_methods = _socket.socket
_recv = _methods.recv
_recvfrom = _methods.recvfrom
_send = _methods.send
_close = _methods.close
_shutdown = _methods.shutdown
_accept = _methods._accept
_fileno = _methods.fileno
_getsockopt = _methods.getsockopt
_setsockopt = _methods.setsockopt
_gettimeout = _methods.gettimeout
_type = _methods.type.__get__
_settimeout = _methods.settimeout
_sendfile = os.sendfile

#: file descriptor -> Inbox.  An entry is only touched by the transaction that owns the socket.
inboxes = {}


class Inbox(deque):
    """What aborted attempts have received by one socket: bytes, exceptions, accepted connections.

    `file` tells it from the next socket that has the number: not all are closed by socket.close().  Another number may be the same
    socket's (dup()), which then has this inbox, too.
    """

    @trusted
    def __init__(self, fd, file):
        super().__init__()
        self.fd, self.file = fd, file


#: file descriptor -> (weak reference to the socket, pending error) that an aborted attempt has asked for
_errors = {}

#: file descriptor of a connection that the program has accepted and not closed -> its file, as of an `Inbox`
accepted = {}

_PLAIN = bytes, bytearray

#: what receiving raises where nothing has come
_NOTHING = BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError

#: errors that the kernel tells once: it forgets them then
_TOLD_ONCE = {
    errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.ETIMEDOUT, errno.EPIPE, errno.EHOSTUNREACH, errno.ENETUNREACH,
    errno.EHOSTDOWN, errno.ENETDOWN, errno.ENONET, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EMSGSIZE, errno.EPROTO,
}

_reads_accepted = True


@trusted
def read_no_more():
    """From here on accepted connections have nothing to read: the program is ending."""
    global _reads_accepted
    _reads_accepted = False
    core.receive_by_twins()

#: descriptor of an accepted connection -> (socket object, address), while an aborted attempt is being undone
_accepted = {}


def _would_block():
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@trusted
def blocks(sock):
    """Do its operations wait?"""
    return _gettimeout(sock) != 0.0


@trusted
def transactional(sock):
    """Can this operation be replayed or put off?  If not, the transaction has become exclusive."""
    if not core.puts_off():
        return False
    if _gettimeout(sock) == 0.0:
        return True
    core.exclusive("a blocking socket")
    return False


def _file(fd):
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


@trusted
def is_accepted(fd):
    """Has the program accepted the connection that has this number now?"""
    return fd in accepted and accepted[fd] == _file(fd)


def _inbox(fd):
    """That of the socket which has this number now, or None."""
    if not inboxes:
        return None
    file, inbox = _file(fd), inboxes.get(fd)
    if inbox is not None and inbox.file != file:
        del inboxes[fd]
        inbox = None
    if inbox is None and file is not None:
        inbox = next((each for each in list(inboxes.values()) if each.file == file), None)
    return inbox


def _forget_empty(inbox):
    if not inbox and inboxes.get(inbox.fd) is inbox:
        del inboxes[inbox.fd]


def _put_back(fd, item):
    told_again = isinstance(item, OSError) and not isinstance(item, ssl.SSLError) and item.errno not in _TOLD_ONCE
    if fd < 0 or told_again:
        return
    if isinstance(item, BaseException):
        item.__traceback__ = None
    if type(item) is tuple and type(item[0]) is int:
        item = _accepted.pop(item[0], item)
    inbox = _inbox(fd)
    if inbox is None:
        inbox = inboxes[fd] = Inbox(fd, _file(fd))
    inbox.appendleft(item)
    # The next attempt may not take it: then it is for the reader, whom the kernel has nothing to tell any more.
    look_again = getattr(asyncio._get_running_loop(), "look_again", None)
    if look_again is not None:
        look_again(fd)


def _take(sock, receive, *args):
    """Take from the inbox, else by ``receive(*args)``; remember it for the next attempt."""
    fd = _fileno(sock)
    if transactional(sock):
        core.own(sock)
    inbox = _inbox(fd)
    if inbox:
        item = core.receive(_put_back, fd, inbox.popleft)
        _forget_empty(inbox)
        if isinstance(item, BaseException):
            raise item
        return item
    try:
        return core.receive(_put_back, fd, receive, *args)
    except _NOTHING:
        raise
    except OSError as e:
        core.on_abort(_put_back, fd, e)  # the kernel tells it once
        raise


trusted(_file), trusted(_inbox), trusted(_forget_empty), trusted(_put_back), trusted(_take), trusted(_would_block)


@trusted
def _is_stream(sock):
    return _type(sock) == socket.SOCK_STREAM


@trusted
def recv(sock, bufsize, flags=0, /):
    """Twin of ``socket.recv``."""
    bufsize, flags = operator.index(bufsize), operator.index(flags)
    if flags and bufsize:
        left = _left(sock, bufsize, flags)
        return _recv(sock, bufsize, flags) if left is None else left[0]
    return receive(sock, bufsize, _recv, sock)


@trusted
def _left(sock, size, flags=0):
    """Become exclusive, to receive in an unusual way: what an aborted attempt has received comes first.

    Returns that, whose it is, and what ``recvmsg`` says of it; or None: there is nothing.
    """
    core.exclusive("receiving in an unusual way")
    inbox = _inbox(_fileno(sock))
    size, flags = operator.index(size), operator.index(flags)
    if not inbox or size < 0 or flags & socket.MSG_ERRQUEUE:
        return None
    first, stream = inbox[0], _is_stream(sock)
    if isinstance(first, BaseException):
        return receive(sock, size, _recvfrom, sock), None, 0
    data, sender = first if type(first) is tuple else (first, _sender(sock))
    if not flags & socket.MSG_PEEK:
        receive(sock, size, _recvfrom, sock)
    return data[:size], sender, 0 if stream or len(data) <= size else int(socket.MSG_TRUNC)


@trusted
def receive(sock, size, read, *readers):
    """At most so many bytes from the socket: what an aborted attempt left, else what ``read(*readers, size)`` gives."""
    if operator.index(size) < 0:
        return read(*readers, size)  # which raises what it has to
    if not _reads_accepted and is_accepted(_fileno(sock)):
        raise _would_block()
    if not size and (read is _recv or _is_stream(sock)):  # nothing is taken, and nothing is to be put back
        if transactional(sock):
            core.own(sock)
        return b"" if _inbox(_fileno(sock)) else read(*readers, size)
    if read is _recv and not _is_stream(sock):
        read = _recvfrom  # the next attempt may ask whose it is
    data = _take(sock, read, *readers, _whole(sock, size))
    if type(data) is tuple:  # a datagram and whose it is
        data = data[0]
    if len(data) > size and not _is_stream(sock):
        data = data[:size]  # the kernel, too, drops the rest of a datagram
    if len(data) > size:
        rest = data[size:]
        _put_back(_fileno(sock), rest)
        if core.in_transaction():
            # The whole piece is put back on abort: this rest must not be there twice.
            core.on_abort(_drop_first, _fileno(sock))
        data = data[:size]
    return data


@trusted
def _whole(sock, size):
    """How much to ask the kernel for: a datagram to its end, which is gone else should the attempt be rolled back, and another ask for more."""
    fd = _fileno(sock)
    if fd < 0 or _is_stream(sock) or not core.puts_off() or operator.index(size) < 0:
        return size
    try:
        next_one = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return size
    return max(operator.index(size), next_one)


@trusted
def received(sock):
    """How many bytes an aborted attempt has left to be received."""
    return sum(len(item) for item in _inbox(_fileno(sock)) or () if isinstance(item, bytes))


@trusted
def has_something(sock):
    """Is there anything to be received by the socket, its end or an error, or is it closed?  Nobody takes that before the transaction is over."""
    core.share(sock)
    if (fd := _fileno(sock)) < 0 or _inbox(fd):
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def asking_beside_others(is_socket_readable):
    """``is_socket_readable`` of httpcore: has the other side of an idle connection closed it?  ``poll()`` would run alone."""

    @functools.wraps(is_socket_readable)
    def asked(sock):
        inner = getattr(sock, "_sock", sock)
        return has_something(inner) if isinstance(inner, socket.socket) else is_socket_readable(sock)

    return asked


@trusted
def _drop_first(fd):
    inbox = _inbox(fd)
    inbox.popleft()
    _forget_empty(inbox)


@trusted
def is_readable(buffer):
    """Can bytes be taken from this object?"""
    if type(buffer) in _PLAIN:
        return True
    try:
        return memoryview(buffer).c_contiguous
    except TypeError:
        return False


@trusted
def is_writable(buffer):
    """Can bytes be put into this object?"""
    return type(buffer) is bytearray or is_readable(buffer) and not memoryview(buffer).readonly


@trusted
def recv_into(sock, buffer, nbytes=0, flags=0):
    """Twin of ``socket.recv_into``."""
    size = _room(buffer, nbytes)
    if size is None:
        return _methods.recv_into(sock, buffer, nbytes, flags)  # which raises what it has to
    core.change(buffer.obj if isinstance(buffer, memoryview) else buffer)
    data = recv(sock, size, flags)
    memoryview(buffer).cast("B")[: len(data)] = data
    return len(data)


@trusted
def _room(buffer, nbytes):
    """How many bytes are to be received into it; None: that cannot be."""
    if not is_writable(buffer):
        return None
    nbytes, size = operator.index(nbytes), memoryview(buffer).nbytes
    return (nbytes or size) if 0 <= nbytes <= size else None


@trusted
def getsockopt(sock, level, option, /, *size):
    """Twin of ``socket.getsockopt``: asking for the pending error clears it, so the next attempt is told again."""
    if (level, option) in _SENDING:
        core.exclusive("asking how a socket sends")  # after what this transaction has set
    if size:
        core.exclusive("asking for a socket's option as bytes")
    if size or (level, option) != (socket.SOL_SOCKET, socket.SO_ERROR):
        return _getsockopt(sock, level, option, *size)
    fd = _fileno(sock)
    core.own(sock)
    if _errors and _errors.get(fd):
        owner, error = _errors.pop(fd)
        if owner() is sock:
            core.on_abort(_keep_error, owner, error)
            return error
    return core.receive(_keep_error, weakref.ref(sock), _getsockopt, sock, level, option)


@trusted
def _keep_error(owner, error):
    if error:
        _errors[_fileno(owner())] = owner, error


#: (level, option) that say how bytes are sent, what becomes of them when the socket is closed, or whether a silent peer is asked
_SENDING = {
    (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.IPPROTO_TCP, getattr(socket, "TCP_CORK", None)),
    (socket.SOL_SOCKET, socket.SO_LINGER), (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
}


@trusted
def setsockopt(sock, level, option, /, *value):
    """Twin of ``socket.setsockopt``."""
    # One of another kind raises what it has to.
    usual = (level, option) in _SENDING and len(value) == 1 and (
        isinstance(value[0], bytes) and len(value[0]) >= 8 if option == socket.SO_LINGER
        else isinstance(value[0], int) and -(1 << 31) <= value[0] < 1 << 31
    )
    if not usual:
        core.exclusive("setting a socket's option")  # the kernel heeds it at once: whom it receives from, how much it keeps
    if not usual or not transactional(sock):
        return _setsockopt(sock, level, option, *value)
    core.open_all(value)
    _getsockopt(sock, level, option, 8)  # raises if this socket has no such option
    core.defer(core.set_option_now, sock, level, option, *value)


@trusted
def recvfrom(sock, bufsize, flags=0, /):
    """Twin of ``socket.recvfrom``."""
    if operator.index(bufsize) < 0:
        return _recvfrom(sock, bufsize, flags)  # which raises what it has to
    if operator.index(flags):
        left = _left(sock, bufsize, flags)
        return _recvfrom(sock, bufsize, flags) if left is None else left[:2]
    if _is_stream(sock):
        return receive(sock, bufsize, _recv, sock), None
    item = _take(sock, _recvfrom, sock, _whole(sock, bufsize))
    data, sender = item if type(item) is tuple else (item, _sender(sock))
    return data[:bufsize], sender


@trusted
def _sender(sock):
    """Of what an aborted attempt has received without asking whose it is."""
    try:
        return None if _is_stream(sock) else sock.getpeername() or None
    except OSError:  # there is no one other side
        return None


@trusted
def recvfrom_into(sock, buffer, nbytes=0, flags=0):
    """Twin of ``socket.recvfrom_into``."""
    size = _room(buffer, nbytes)
    left = _left(sock, size, flags) if size is not None else None
    if left is None:
        return _methods.recvfrom_into(sock, buffer, nbytes, flags)
    data, sender, _ = left
    memoryview(buffer).cast("B")[: len(data)] = data
    return len(data), sender


@trusted
def recvmsg(sock, bufsize, ancbufsize=0, flags=0, /):
    """Twin of ``socket.recvmsg``."""
    left = _left(sock, bufsize, flags)
    if left is None:
        return _methods.recvmsg(sock, bufsize, ancbufsize, flags)
    data, sender, told = left
    return data, [], told, sender


@trusted
def recvmsg_into(sock, buffers, ancbufsize=0, flags=0, /):
    """Twin of ``socket.recvmsg_into``."""
    if hasattr(buffers, "__iter__"):
        buffers = list(buffers)
    usual = isinstance(buffers, list) and all(map(is_writable, buffers))
    left = _left(sock, sum(memoryview(buffer).nbytes for buffer in buffers), flags) if usual else None
    if left is None:
        return _methods.recvmsg_into(sock, buffers, ancbufsize, flags)
    data, sender, told = left
    rest = data
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        part, rest = rest[: len(view)], rest[len(view) :]
        view[: len(part)] = part
    return len(data), [], told, sender


@trusted
def accept(self):
    """In the place of ``socket.socket.accept``: the accepted socket object itself is kept for the next attempt."""
    item = _take(self, _accept, self)
    if isinstance(item[0], int):
        # An attempt's first: from here on the socket object is what is kept, for it closes the descriptor when it dies.
        fd, address = item
        connection = socket.socket.__new__(socket.socket)
        _make_socket(connection, self.family, self.type, self.proto, fd)
        if socket.getdefaulttimeout() is None and _gettimeout(self):
            connection.setblocking(True)
        accepted[fd] = _file(fd)
        item = connection, address
        if core.puts_off():
            core.on_abort(_replace_first, _fileno(self), item)
    return item


@trusted
def _replace_first(fd, item):
    # Undone before the receiving itself, which then puts the bare descriptor in front: see _put_back.
    _accepted[item[0].fileno()] = item


@trusted
def send(sock, data, flags=0, /):
    """Twin of ``socket.send``: takes as many bytes as there is room for; raises BlockingIOError when there is none."""
    if flags or not is_readable(data) or not transactional(sock):
        send_at_once(sock)
        return _send(sock, data, flags)
    return core.put_off(sock, data)


@trusted
def waits_to_be_sent(sock):
    """Has somebody sent what the kernel has not got yet?"""
    box = core.find_outbox(_fileno(sock))
    return box is not None and box.size > 0


@trusted
def send_at_once(sock):
    """Become exclusive, and send all that waits to be sent.  Raises BlockingIOError if that cannot be done now."""
    core.exclusive("sending at once")
    fd = _fileno(sock)
    core.answers_follow()
    box = core.find_outbox(fd)
    while box is not None and box.waiting and not box.flush():
        if not _has_room(fd, _gettimeout(sock)):
            raise _would_block()


@trusted
def _has_room(fd, seconds):
    """Does the kernel take something, within that time (None: whenever that is)?"""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return seconds != 0.0 and bool(poll.poll(None if seconds is None else math.ceil(1000 * seconds)))


@trusted
def sendall(sock, data, flags=0, /):
    """Twin of ``socket.sendall``: only for what there is room for."""
    if flags or not is_readable(data) or not memoryview(data).nbytes or not transactional(sock):
        send_at_once(sock)
        return _methods.sendall(sock, data, flags)
    view = memoryview(data).cast("B")
    while view:
        view = view[send(sock, view):]


def sendmsg(sock, buffers, /, *rest):
    """Twin of ``socket.sendmsg``."""
    looks_at_them = len(rest) < 2 or (len(rest) < 4 and isinstance(rest[1], int))
    if looks_at_them and type(buffers) not in (list, tuple) and hasattr(buffers, "__iter__"):
        buffers = list(buffers)
    return _sendmsg(sock, buffers, *rest)


@trusted
def _sendmsg(sock, buffers, /, *rest):
    """The same, for plain data."""
    usual = not rest and isinstance(buffers, (list, tuple)) and all(map(is_readable, buffers))
    if not usual or not transactional(sock):
        send_at_once(sock)
        return _methods.sendmsg(sock, buffers, *rest)
    core.open_all(buffers)
    return send(sock, b"".join(buffers))


@trusted
def sendto(sock, *arguments):
    """Twin of ``socket.sendto``: each datagram is told of at once, and what a stream sends comes after what waits there."""
    if sock.type == socket.SOCK_STREAM:
        send_at_once(sock)
    else:
        core.exclusive("sending a datagram")
    return _methods.sendto(sock, *arguments)


@trusted
def sendfile(out_fd, in_fd, offset, count):
    """Twin of ``os.sendfile``: at once, but never before what has been sent and not yet taken."""
    core.exclusive("sending a file")
    box = core.find_outbox(out_fd)
    if box is not None and box.waiting and not box.flush():
        raise _would_block()
    return _sendfile(out_fd, in_fd, offset, count)


@trusted
def close(sock):
    """Twin of ``socket.close``."""
    core.sends_no_more(sock)
    core.defer(_close_now, sock)


@trusted
def real_close(self, _ss=None):
    """In the place of ``socket.socket._real_close``: outside of transactions too, what has been sent goes first."""
    core.sends_no_more(self)
    core.defer(_close_now, self)


@trusted
def _close_now(sock):
    core.answers_follow()
    fd = _fileno(sock)
    inboxes.pop(fd, None)
    _errors.pop(fd, None)
    accepted.pop(fd, None)
    box = core.take_outbox(fd)
    if box is None or not box.close_later(_replace):
        _close(sock)


@trusted
def _replace(sock):
    """Another socket object has the descriptor from here on, and this one none."""
    family, kind, proto = sock.family, sock.type, sock.proto
    return _methods(family, kind, proto, fileno=sock.detach())


@trusted
def shutdown(sock, how, /):
    """Twin of ``socket.shutdown``."""
    if how not in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
        return _shutdown(sock, how)  # which raises what it has to
    if not transactional(sock):
        core.exclusive("shutdown at once")
        if not waits_to_be_sent(sock):
            core.answers_follow()
            return _shutdown(sock, how)
    try:
        sock.getpeername()
    except OSError:  # one that listens, or is not connected yet, or any more
        core.exclusive("shutdown at once")
        return _shutdown(sock, how)
    if how != socket.SHUT_RD:
        core.sends_no_more(sock)
    core.defer(_shutdown_now, sock, how)


@trusted
def _shutdown_now(sock, how):
    fd = _fileno(sock)
    core.answers_follow()
    box = core.find_outbox(fd)
    if box is not None and box.shut_down_later(how):
        return
    try:
        _shutdown(sock, how)
    except OSError:
        pass  # the peer may have gone between the call and the commit
    if how != socket.SHUT_RD:  # the kernel calls it writable all the same
        box = core.Outbox(sock)
        box.error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        box.flush()


@trusted
def gettimeout(sock):
    """Twin of ``socket.gettimeout``."""
    core.share(sock)
    return _gettimeout(sock)


@trusted
def getblocking(sock):
    """Twin of ``socket.getblocking``."""
    return gettimeout(sock) != 0.0


@trusted
def settimeout(sock, timeout):
    """Twin of ``socket.settimeout``."""
    _change_timeout(sock, _settimeout, timeout)


@trusted
def setblocking(sock, blocking):
    """Twin of ``socket.setblocking``."""
    _change_timeout(sock, _methods.setblocking, blocking)


@trusted
def _change_timeout(sock, change, value):
    core.own(sock)
    core.on_abort(_settimeout, sock, _gettimeout(sock))
    change(sock, value)


METHODS = _send, _setsockopt, _close, _shutdown, _fileno, _gettimeout, _methods.family, _methods.type, _methods.proto
core.sockets_begin(*METHODS)
core.receiving_begin(inboxes, _put_back, _NOTHING)

#: what socket objects have in the place of _send
send_in_order = core.socket_send(_send, send)

_getaddrinfo = _socket.getaddrinfo


@trusted
def getaddrinfo(*args, **named):
    """Twin of ``getaddrinfo``, which asks nobody whether a text is an address: Tornado does that of each request from a proxy."""
    if not _only_reads_a_number(*args, **named):
        core.exclusive("call of _socket.getaddrinfo")
    return _getaddrinfo(*args, **named)


@trusted
def _only_reads_a_number(host=None, port=0, family=0, type=0, proto=0, flags=0, *more, **others):
    is_text, has_number = isinstance(host, (str, bytes)), port is None or isinstance(port, int)
    return is_text and has_number and isinstance(flags, int) and int(flags) & _socket.AI_NUMERICHOST != 0


_gethostbyname, _getnameinfo = _socket.gethostbyname, _socket.getnameinfo
_NUMBERS_ONLY = _socket.NI_NUMERICHOST | _socket.NI_NUMERICSERV


@trusted
def gethostbyname(*args):
    """Twin of ``gethostbyname``, which asks nobody for an address that is one already."""
    if not _is_address(*args):
        core.exclusive("call of _socket.gethostbyname")
    return _gethostbyname(*args)


@trusted
def _is_address(host=None, *more):
    if type(host) is not str:
        return False
    try:
        _socket.inet_pton(_socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


@trusted
def getnameinfo(*args):
    """Twin of ``getnameinfo``, which asks nobody where it is to tell numbers: it takes no other address."""
    if not _wants_numbers(*args):
        core.exclusive("call of _socket.getnameinfo")
    return _getnameinfo(*args)


@trusted
def _wants_numbers(address=None, flags=0, *more):
    return type(address) is tuple and isinstance(flags, int) and int(flags) & _NUMBERS_ONLY == _NUMBERS_ONLY


TWINS = {
    _getaddrinfo: getaddrinfo,
    _gethostbyname: gethostbyname,
    _getnameinfo: getnameinfo,
    _gettimeout: gettimeout,
    _settimeout: settimeout,
    _methods.getblocking: getblocking,
    _methods.setblocking: setblocking,
    **{method: core.socket_way(method, twin) for method, twin in (
        (_recv, recv), (_methods.recv_into, recv_into), (_send, send), (_setsockopt, setsockopt))},
    _getsockopt: getsockopt,
    _recvfrom: recvfrom,
    _methods.recvfrom_into: recvfrom_into,
    _methods.recvmsg: recvmsg,
    _methods.recvmsg_into: recvmsg_into,
    _methods.sendall: sendall,
    _methods.sendmsg: sendmsg,
    _methods.sendto: sendto,
    _sendfile: sendfile,
    _close: close,
    _shutdown: shutdown,
}


def _connecting(connect):
    """The twin of ``socket.connect`` or ``connect_ex``: the peer sees it at once, but nobody here does."""

    @trusted
    def begin_to_connect(sock, address):
        core.open_all(address)
        core.own(sock)
        if not blocks(sock):
            core.irrevocable("connecting a socket")
        else:
            core.exclusive("a blocking socket")
        return connect(sock, address)

    return begin_to_connect


_make_socket = socket.socket.__init__


@trusted
@functools.wraps(_make_socket)
def make_socket(self, family=-1, type=-1, proto=-1, fileno=None):
    # Another socket object has that descriptor, and the one of an aborted attempt would close it.
    if fileno is not None and core.in_transaction():
        core.irrevocable("a socket object for a descriptor")
    _make_socket(self, family, type, proto, fileno)


@trusted
def detach(sock):
    """Twin of ``socket.detach``."""
    if core.in_transaction():
        core.own(sock)
        if waits_to_be_sent(sock):
            core.exclusive("detaching a socket object that has something to send")  # which sends it
        core.irrevocable("detaching a socket object")
    return _methods.detach(sock)


@trusted
def new_socket(*args, **keywords):
    """Twin of ``_socket.socket`` and of its ``__new__``, which makes an object without a descriptor."""
    if args and isinstance(args[0], type):
        return _methods.__new__(*args, **keywords)
    if (len(args) > 3 or keywords.get("fileno") is not None) and core.in_transaction():
        core.irrevocable("a socket object for a descriptor")
    return _methods(*args, **keywords)


TWINS |= {_methods.detach: detach, _methods: new_socket, send_in_order: TWINS[_send]}
TWINS |= {connect: _connecting(connect) for connect in (_methods.connect, _methods.connect_ex)}


# Of the standard library, with nothing in them that a transaction may change.
for _function in (_make_socket, socket._intenum_converter, socket.getdefaulttimeout):
    if hasattr(_function, "__code__"):
        trusted(_function)
for _attribute in ("family", "type"):
    trusted(vars(socket.socket)[_attribute].fget)
