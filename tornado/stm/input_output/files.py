"""Files that transactions read.

To open a regular file for reading changes nothing that anybody sees, and what an attempt has opened is closed when it aborts.
While the file belongs to its transaction only, it is used as it is; later ones own it, if it is one of bytes, and put its position
back if they abort.  Closing it waits for the commit then.  Everything else about files is exclusive.
"""

import _io
import builtins
import operator
import os
import stat

from .. import core
from ..core import trusted

_open = builtins.open
_stat, _fstat = os.stat, os.fstat  # the program may put others in their place, which shall not be asked what it has not asked
_read, _seek, _tell, _close = (getattr(_io.BufferedReader, name) for name in ("read", "seek", "tell", "close"))


class _Pending:
    """What a thread's transaction has put off: has it written to a file, and which does it close?"""

    @trusted
    def __init__(self):
        self.written = False
        self.closing = []


_pending = core.PerThread(_Pending)


@trusted
def _settled():
    _pending.mine().written = False
    _pending.mine().closing.clear()


@trusted
def note_writing():
    """Something has been written to a file, or flushed, and will be there from the commit on."""
    if not _pending.mine().written:
        _pending.mine().written = True
        core.on_abort(_settled)
        core.defer(_settled)


def open_(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    """Twin of ``open``."""
    if not isinstance(file, int):
        file = os.fspath(file)
    return _open_now(file, mode, buffering, encoding, errors, newline, closefd, opener)


@trusted
def _open_now(file, mode, buffering, encoding, errors, newline, closefd, opener):
    reads = mode in ("r", "rt", "rb") and (buffering, closefd, opener) == (-1, True, None)
    if not reads or _pending.mine().written or isinstance(file, int) or not (_is_regular(file) or _is_missing(file)):
        core.exclusive("opening a file")
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    opened = core.fresh(_open(file, mode, -1, encoding, errors, newline))
    core.on_abort(type(opened).close, opened)
    if mode != "rb":
        core.fresh(opened.buffer)
    return opened


@trusted
def _is_regular(file):
    try:
        return stat.S_ISREG(_stat(file).st_mode)
    except (OSError, ValueError):
        return False


@trusted
def _is_missing(file):
    """Will the original complain that there is no such file?  Those who make one run alone."""
    try:
        _stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


@trusted
def _keep_position(file):
    """Before it moves: it is our own, or can be put back; else the transaction becomes exclusive."""
    if core.is_exclusive() or core.is_fresh(file):
        return
    core.own(file)
    if type(file) is not _io.BufferedReader or any(each is file for each in _pending.mine().closing):
        core.exclusive("reading from a file")
        return
    try:
        regular = type(file.raw) is _io.FileIO and stat.S_ISREG(_fstat(file.fileno()).st_mode)
    except (OSError, ValueError):
        regular = False
    if not regular:
        core.exclusive("reading from a file")
        return
    core.on_abort(_seek, file, _tell(file))


@trusted
def read(file, size=-1, /):
    """Twin of ``BufferedReader.read``."""
    _keep_position(file)
    return _read(file, size)


@trusted
def seek(file, target, whence=0, /):
    """Twin of ``BufferedReader.seek``."""
    _keep_position(file)
    return _seek(file, target, whence)


@trusted
def tell(file, /):
    """Twin of ``BufferedReader.tell``."""
    _keep_position(file)
    return _tell(file)


@trusted
def close(file, /):
    """Twin of ``BufferedReader.close``."""
    if core.is_exclusive() or core.is_fresh(file):
        _close(file)
        return
    core.own(file)
    if not _pending.mine().closing:
        core.on_abort(_settled)
        core.defer(_settled)
    _pending.mine().closing.append(file)
    core.defer(_close, file)


def leave(file, /, *exception):
    """Twin of the end of ``with file:``, which calls this method of whatever class in C."""
    file.close()


def _after_writing(look):
    """The twin of a function that tells the size of a file and when it was changed."""

    @trusted
    def look_at(*args, **kwds):
        if _pending.mine().written:
            core.exclusive("a look at files, one of which has just been written to")
        return look(*args, **kwds)

    return look_at


def scandir(path=None):
    """Twin of ``os.scandir``."""
    return scandir_iterator(path)


class scandir_iterator:
    """What the twin of ``scandir`` returns.  The entries belong to the transaction, for they remember what they have looked at."""

    __slots__ = ("_entries",)

    def __init__(self, path):
        self._entries = iter(_look_through(path))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self._entries = iter(())


@trusted
def _look_through(path):
    with _scandir(path) as entries:
        return [core.fresh(entry) for entry in entries]


_scandir = os.scandir


@trusted
def entry_stat(entry, *, follow_symlinks=True):
    """Twin of ``DirEntry.stat``."""
    if not core.is_fresh(entry):
        core.exclusive("a look at an entry of a directory that has been looked through before")
    return _entry_stat(entry, follow_symlinks=follow_symlinks)


_entry_stat = _after_writing(os.DirEntry.stat)


def raw_read(self, size=-1, /):
    """Twin of ``RawIOBase.read``, by which streams in Python are read that fill buffers."""
    size = operator.index(size)
    if size < 0:
        return self.readall()
    buffer = bytearray(size)
    count = self.readinto(buffer)
    if count is None:
        return None
    count = operator.index(count)
    if not 0 <= count <= size:
        raise ValueError(f"readinto returned {count} outside buffer size {size}")
    return bytes(buffer[:count])


def raw_readall(self):
    """Twin of ``RawIOBase.readall``."""
    chunks = []
    while data := self.read(_io.DEFAULT_BUFFER_SIZE):
        if not isinstance(data, bytes):
            raise TypeError("read() should return bytes")
        chunks.append(data)
    return data if data is None and not chunks else b"".join(chunks)


TWINS = {
    _io._RawIOBase.read: raw_read,
    _io._RawIOBase.readall: raw_readall,
    **{look: _after_writing(look) for look in (os.stat, os.lstat, os.fstat)},
    _scandir: scandir,
    os.DirEntry.stat: entry_stat,
    _open: open_,
    _read: read,
    _seek: seek,
    _tell: tell,
    _close: close,
    _io._IOBase.__exit__: leave,
}
