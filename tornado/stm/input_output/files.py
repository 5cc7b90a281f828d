"""Files and directories in transactions.

All of them are one object to the engine, which whoever looks at one shares, and whoever changes one owns, to the end of its transaction.
So nobody sees what a transaction has changed that comes later in the order of commits.  What is in a regular file is such an object, too:
whoever opens or looks at that file shares it, and those that write to it at their commits add to it, beside one another.

To open a regular file for reading changes nothing that anybody sees, and what an attempt has opened is closed when it aborts.
While the file belongs to its transaction only, it is used as it is; later ones own it, if it is one of bytes, and put its position
back if they abort.  Closing it waits for the commit then.

Who makes, renames or removes something, or opens a file to write to it, is irrevocable, and others go on.  What it writes to that file
is written at once; what later transactions write waits for their commits (`output`), in order with all else that they write.  So who
has written something that waits is exclusive when it changes something at once, as for everything else about files.
"""

import _io
import builtins
import functools
import operator
import os
import stat
import types

from .. import _engine, core
from ..core import trusted

_open = builtins.open
_stat, _fstat = os.stat, os.fstat  # the program may put others in their place, which shall not be asked what it has not asked
_read, _seek, _tell, _close = (getattr(_io.BufferedReader, name) for name in ("read", "seek", "tell", "close"))


class _FileSystem:
    """All files and directories of this machine."""


class _Contents:
    """What is in the regular files: a part for each."""


_files, _contents = _FileSystem(), _Contents()


@trusted
def look():
    """Something is about to be looked at, which others may not change from now on."""
    core.share(_files)


@trusted
def _part(found):
    """The number of the part of `_contents` for what `stat` has found; None for what is no regular file."""
    return hash((found.st_dev, found.st_ino)) if stat.S_ISREG(found.st_mode) else None


@trusted
def _look_into(found):
    """Something is about to look into that file, to which others may not write from now on.  Is it a regular one?"""
    part = _part(found)
    if part is not None:
        core.look_into(_contents, part)
    return part is not None


@trusted
def part_of(file):
    """The part of what is in the regular files that this open one is; None for what is no such file."""
    try:
        return _part(_fstat(file.fileno()))
    except (OSError, ValueError):
        return None  # the original complains


@trusted
def look_into_part(part):
    """Something is about to look into it, to which others may not write from now on."""
    core.look_into(_contents, part)


@trusted
def _look_into_what_is_there(file, **where):
    try:
        found = _stat(file, **where)
    except (OSError, ValueError, TypeError):
        return  # the original complains
    if _is_written_to(found):
        core.exclusive("a look at a file that has just been written to")
    _look_into(found)


@trusted
def change(what):
    """Something is about to be changed, at once."""
    if core.is_exclusive():
        return
    if _pending.mine().written:
        core.exclusive(f"{what}, after something that is written at the commit")
        return
    core.own(_files)
    core.irrevocable(what)


class _Pending:
    """What a thread's transaction has put off, and has opened.

    Attributes:
        written: the files (`FileIO`) to which it has written, and which parts of `_contents` they are, by their ids.
        closing: the files that it closes.
        numbers: of the files that it has opened by `os.open`, and not closed.
    """

    @trusted
    def __init__(self):
        self.written = {}
        self.closing = []
        self.numbers = set()


_pending = core.PerThread(_Pending)


@trusted
def _is_written_to(found):
    """Will what `stat` has found be another one at the commit?"""
    written = _pending.mine().written
    if not written or stat.S_ISDIR(found.st_mode):
        return False
    part = _part(found)
    return part is None or any(part == each for _, each in written.values())


@trusted
def _settled():
    _pending.mine().written.clear()
    _pending.mine().closing.clear()
    _pending.mine().numbers.clear()


@trusted
def note_writing(file):
    """Something has been written to a stream around this one, or flushed, and will be there from the commit on."""
    written = _pending.mine().written
    if core.is_exclusive() or id(file) in written:
        return
    part = part_of(file)
    written[id(file)] = file, part
    if len(written) == 1:
        core.on_abort(_settled)
        core.defer(_settled)
    if part is not None:
        core.add_to(_contents, part)


def open_(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    """Twin of ``open``."""
    if not isinstance(file, int):
        file = os.fspath(file)
    if opener is not None and not isinstance(file, int) and mode in _FLAGS:
        _may_open(file, mode)
        number = opener(file, _FLAGS[mode] | os.O_CLOEXEC)
        opener = trusted(lambda file, flags: number)
    return _open_now(file, mode, buffering, encoding, errors, newline, closefd, opener)


_open_code = _io.open_code


@trusted
def open_code(path):
    """Twin of ``io.open_code``."""
    return _open_now(path, "rb", -1, None, None, None, True, None) if isinstance(path, str) else _open_code(path)


#: what a file is opened for → how
_FLAGS = {
    f"{how}{more}": flags
    for letter, flags_for, flags_for_both in (
        ("r", os.O_RDONLY, os.O_RDWR), ("w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT | os.O_TRUNC),
        ("a", os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT | os.O_APPEND),
        ("x", os.O_WRONLY | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_CREAT | os.O_EXCL),
    )
    for how, flags, moreover in ((letter, flags_for, ("", "b", "t")), (f"{letter}+", flags_for_both, ("", "b", "t")),
                                 (f"{letter}b", flags_for_both, ("+",)), (f"{letter}t", flags_for_both, ("+",)))
    for more in moreover
}  # fmt: skip
_READING = {"r", "rt", "rb"}


@trusted
def _may_open(file, mode):
    """Where it only reads, others may not change it from now on; else the transaction becomes irrevocable, or exclusive."""
    if mode in _READING:
        look()
        if _is_regular_or_missing(file):
            return
        core.exclusive("opening what is no regular file")
    change("opening a file")
    _look_into_what_is_there(file)


@trusted
def _open_now(file, mode, buffering, encoding, errors, newline, closefd, opener):
    if mode not in _FLAGS or closefd is not True or (isinstance(file, int) and file not in _pending.mine().numbers):
        core.exclusive("opening a file")
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    _may_open(file, mode)
    opened = core.fresh(_open(file, mode, buffering, encoding, errors, newline, True, opener))
    if isinstance(file, int):
        _pending.mine().numbers.discard(file)
    if mode in _READING:
        core.on_abort(type(opened).close, opened)
    buffered = core.fresh(opened.buffer) if type(opened) is _io.TextIOWrapper else opened
    if type(buffered) is not _io.FileIO:
        core.fresh(buffered.raw)
    return opened


_WRITTEN = _io.BufferedWriter, _io.BufferedRandom


@trusted
def is_written_at_once(file):
    """Has this transaction opened the file to write to it?"""
    if not core.is_fresh(file):
        return False
    buffered = file.buffer if type(file) is _io.TextIOWrapper else file
    if type(buffered) not in _WRITTEN or type(buffered.raw) is not _io.FileIO or not core.is_fresh(buffered):
        return False
    if _pending.mine().written:
        core.exclusive("writing to a file, after something that is written at the commit")
    return True


@trusted
def _is_regular_or_missing(file):
    """If it is missing, the original complains."""
    try:
        found = _stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    if _is_written_to(found):
        core.exclusive("opening a file that has just been written to")
    return _look_into(found)


@trusted
def _keep_position(file):
    """Before it moves: it is our own, or can be put back; else the transaction becomes exclusive."""
    if core.is_exclusive() or core.is_fresh(file):
        return
    look()
    core.own(file)
    if type(file) is not _io.BufferedReader or any(each is file for each in _pending.mine().closing):
        core.exclusive("reading from a file")
        return
    try:
        regular = type(file.raw) is _io.FileIO and _look_into(_fstat(file.fileno()))
    except (OSError, ValueError):
        regular = False
    if not regular:
        core.exclusive("reading from a file")
        return
    core.on_abort(_put_back, file, _tell(file))


@trusted
def _put_back(file, place):
    if not file.closed:  # by C code, that has opened it as well (ZoneInfo)
        _seek(file, place)


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


@trusted
def buffered_reader(*args, **named):
    """Twin of ``BufferedReader``: around a stream in Python, as ``gzip`` has it, or bytes of its own, it is the transaction's own."""
    raw = args[0] if args else named.get("raw")
    own_bytes = type(raw) is _io.BytesIO and core.is_fresh(raw)
    if not own_bytes and not isinstance(getattr(type(raw), "readinto", None), types.FunctionType):
        core.exclusive("a buffer around what others may use")
    return core.fresh(_buffered_reader(*args, **named))


_buffered_reader = _io.BufferedReader


def begin_buffer(init):
    """In the place of ``tarfile.ExFileObject.__init__``: what is around a stream in Python is the transaction's own, likewise."""

    @functools.wraps(init)
    def __init__(self, *args, **named):
        _begin_buffer(self)
        init(self, *args, **named)

    return __init__


@trusted
def _begin_buffer(file):
    core.own(file)
    if not core.is_exclusive() and file.raw is None:  # it has not begun yet: nobody can have read from it
        core.fresh(file)


def reader_flush(file, /):
    """Twin of ``BufferedReader.flush``, which calls that of the stream around which it is."""
    return _stream_below(file).flush()


@trusted
def _stream_below(file):
    if not core.is_fresh(file):
        core.exclusive("call of BufferedReader.flush")
    return file.raw


def read_into(original):
    """``DecompressReader.readinto``, also into memory of the buffer in C that calls it: that is the transaction's own, as the reader is."""

    def readinto(self, b):
        size = _size_of_own(self, b)
        if size is None:
            return original(self, b)
        data = self.read(size)
        _put_into(b, data)
        return len(data)

    return readinto


@trusted
def _size_of_own(reader, view):
    """Of a view of memory that is no object's, which only C code makes, for the time of a call; else None."""
    own = type(view) is memoryview and view.obj is None and view.format == "B" and _engine.is_captured(reader)
    return view.nbytes if own else None


@trusted
def _put_into(view, data):
    view[: len(data)] = data


def _of_own_file(method):
    """The twin of a method of files that are read and written."""

    @trusted
    def use(file, *args, **named):
        if not is_written_at_once(file):
            core.exclusive("use of a file that is read and written")
        core.open_all((args, named))
        return method(file, *args, **named)

    return use


def _of_own_raw_file(method):
    """The twin of a method of files without a buffer."""

    @trusted
    def use(file, *args, **named):
        if not core.is_fresh(file):
            core.exclusive("use of a file without a buffer")
        elif not file.closed and file.writable() and _pending.mine().written:
            core.exclusive("writing to a file, after something that is written at the commit")
        core.open_all((args, named))
        return method(file, *args, **named)

    return use


def _moving(method):
    """The twin of a method that reads."""

    @trusted
    def read_on(file, *args, **named):
        _keep_position(file)
        return method(file, *args, **named)

    return read_on


@trusted
def open_number(path, flags, mode=0o777, *, dir_fd=None):
    """Twin of ``os.open``: the number is this transaction's own, until it ends."""
    change("opening a file")
    _look_into_what_is_there(path, dir_fd=dir_fd)
    number = _open_number(path, flags, mode, dir_fd=dir_fd)
    if not core.is_exclusive():
        if not _pending.mine().numbers:
            core.defer(_settled)
        _pending.mine().numbers.add(number)
    return number


@trusted
def close_number(fd):
    """Twin of ``os.close``."""
    if fd not in _pending.mine().numbers:
        core.exclusive("closing a descriptor")
    _pending.mine().numbers.discard(fd)
    _close_number(fd)


def _of_own_number(function):
    """The twin of a function of descriptors."""

    @trusted
    def use(fd, *args, **named):
        core.open_all((args, named))
        if fd not in _pending.mine().numbers:
            core.exclusive("use of a descriptor")
        elif _pending.mine().written:
            core.exclusive("use of a file, after something that is written at the commit")
        return function(fd, *args, **named)

    return use


_open_number, _close_number = os.open, os.close


@trusted
def written_close(file, /):
    """Twin of ``close`` of what is written to."""
    if not (core.is_fresh(file) and (file.closed or type(file) is not _io.BufferedWriter or is_written_at_once(file))):
        core.exclusive("closing a file")
    return _written_close(file)


@trusted
def text_close(file, /):
    """Twin of ``TextIOWrapper.close``."""
    if not core.is_fresh(file):
        core.exclusive("closing a file")
    elif not file.closed:
        is_written_at_once(file)
    return _text_close(file)


_written_close, _text_close = _io.BufferedWriter.close, _io.TextIOWrapper.close


def _looking(function):
    """The twin of a function that tells what is where."""

    @trusted
    def look_at(*args, **kwds):
        look()
        return function(*args, **kwds)

    return look_at


def _after_writing(function):
    """The twin of a function that tells the size of a file and when it was changed."""

    @trusted
    def look_at(*args, **kwds):
        look()
        found = function(*args, **kwds)
        if _is_written_to(found):
            core.exclusive("a look at a file that has just been written to")
        elif core.is_exclusive() or not _look_into(found):
            return found
        return function(*args, **kwds)

    return look_at


def _changing(function):
    """The twin of a function that makes, renames or removes something."""

    @trusted
    def make_change(*args, **kwds):
        change("a change of files or directories")
        return function(*args, **kwds)

    return make_change


def _changing_file(function):
    """The twin of a function that changes what is known of a file, or is in it: nobody else may write to that at a commit meanwhile."""

    @trusted
    def make_change(path, *args, **kwds):
        change("a change of files or directories")
        _look_into_what_is_there(path, **{name: kwds[name] for name in _WHERE & kwds.keys()})
        return function(path, *args, **kwds)

    return make_change


_WHERE = {"dir_fd", "follow_symlinks"}


@trusted
def copy_range(src, dst, *args, **kwds):
    """Twin of ``os.copy_file_range``."""
    change("a change of files or directories")
    _look_into_what_is_there(src)
    _look_into_what_is_there(dst)
    return _copy_range(src, dst, *args, **kwds)


_copy_range = os.copy_file_range

#: They talk to the system of files alone, by the names that they are given.
_CHANGES = (
    os.mkdir, os.rmdir, os.remove, os.unlink, os.rename, os.replace, os.link, os.symlink, os.chmod, os.chown, os.lchown,
    os.mkfifo, os.mknod, os.setxattr, os.removexattr,
)  # fmt: skip
_LOOKS = os.access, os.listdir, os.readlink, os.pathconf, os.statvfs, os.getxattr, os.listxattr


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
    look()
    with _scandir(path) as entries:
        return [core.fresh(entry) for entry in entries]


_scandir = os.scandir


@trusted
def entry_stat(entry, *, follow_symlinks=True):
    """Twin of ``DirEntry.stat``."""
    if not core.is_fresh(entry):
        core.exclusive("a look at an entry of a directory that has been looked through before")
    look()
    if entry.path != entry.name:
        _look_into_what_is_there(entry.path, follow_symlinks=follow_symlinks)
    elif not entry.is_dir():
        core.exclusive("a look at an entry of a directory that is known by a descriptor")
    return _entry_stat(entry, follow_symlinks=follow_symlinks)


_entry_stat = os.DirEntry.stat


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
    **{function: _after_writing(function) for function in (os.stat, os.lstat, os.fstat)},
    **{function: _looking(function) for function in _LOOKS},
    **{function: _changing(function) for function in _CHANGES},
    **{function: _changing_file(function) for function in (os.truncate, os.utime)},
    _copy_range: copy_range,
    _scandir: scandir,
    os.DirEntry.stat: entry_stat,
    _open: open_,
    _open_code: open_code,
    _read: read,
    _seek: seek,
    _tell: tell,
    _close: close,
    _buffered_reader: buffered_reader,
    _io.BufferedReader.flush: reader_flush,
    _written_close: written_close,
    **{method: _moving(method) for method in (
        getattr(_io.BufferedReader, name) for name in ("readline", "read1", "peek"))},
    **{method: _of_own_file(method) for method in (
        getattr(_io.BufferedRandom, name) for name in (
            "read", "readline", "read1", "peek", "write", "seek", "tell", "flush", "truncate", "close"))},
    **{method: _of_own_raw_file(method) for method in (
        getattr(_io.FileIO, name) for name in ("read", "readall", "write", "seek", "tell", "truncate", "close"))},
    **{function: _of_own_number(function) for function in (os.read, os.write, os.fsync, os.ftruncate, os.lseek)},
    _open_number: open_number,
    _close_number: close_number,
    _text_close: text_close,
    _io._IOBase.__exit__: leave,
}
