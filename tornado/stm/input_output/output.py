"""Printed output in transactions: what ``print`` and text and binary streams write to files is written at commit, in order."""

import _io
import _thread
import builtins
import sys
import types
import weakref

from .. import _engine, core, forks
from ..core import trusted
from . import files

# A program may replace builtins; what stands in for them must not call the replacements.
__builtins__ = dict(vars(builtins))


def print_(*values, sep=None, end=None, file=None, flush=False):
    """Twin of ``print``."""
    flush = bool(flush)
    if file is None:
        file = _standard_output()
        if file is None:
            return
    for name, text in ("sep", sep), ("end", end):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be None or a string, not {type(text).__name__}")
    for i, value in enumerate(values):
        if i > 0:
            file.write(" " if sep is None else sep)
        file.write(str(value))
    file.write("\n" if end is None else end)
    if flush:
        file.flush()


@trusted
def _standard_output():
    if not hasattr(sys, "stdout"):
        raise RuntimeError("lost sys.stdout")
    return sys.stdout


_text_write = _io.TextIOWrapper.write
_text_flush = _io.TextIOWrapper.flush
_buffered_write = _io.BufferedWriter.write
_buffered_flush = _io.BufferedWriter.flush


@trusted
def _file_of(stream):
    """That in which ends what is written to this stream, and where nobody sees it before the commit; or None."""
    while isinstance(stream, (_io.TextIOWrapper, _io.BufferedWriter)):
        stream = stream.buffer if isinstance(stream, _io.TextIOWrapper) else stream.raw
    return stream if type(stream) is _io.FileIO else None


@trusted
def _writes_at_once(file):
    """Must this stream be written to now, since what comes of it can be seen?

    It does so alone, for a stream's state cannot be put back, unless it was made in this transaction around an object with
    a `write` in Python, which has barriers (what ``gzip`` does).
    """
    if files.is_written_at_once(file):
        return True
    if type(file) is _io.TextIOWrapper and core.is_fresh(file):
        return True  # opened by this transaction, to be read, and the original complains; or around bytes of its own
    if _file_of(file) is not None:
        return False
    if not (core.is_fresh(file) and isinstance(getattr(type(file.raw), "write", None), types.FunctionType)):
        core.exclusive("writing to a stream that can be read before the commit")
    return True


_text_stream = _io.TextIOWrapper


def _compresses(buffer):
    """Is it a file of the standard library's that C code may use by methods in Python, which return bytes and numbers?"""
    return any(type(buffer) is getattr(sys.modules.get(module), name, None) for module, name in _COMPRESSING.items())


def _is_member(buffer):
    """Is it a file in a tar archive, a buffer around a stream in Python?"""
    return type(buffer) is getattr(sys.modules.get("tarfile"), "ExFileObject", None)


_COMPRESSING = {"gzip": "GzipFile", "bz2": "BZ2File", "lzma": "LZMAFile", "zipfile": "ZipExtFile"}


@trusted
def text_stream(*args, **named):
    """Twin of ``TextIOWrapper``: around bytes that the transaction has made, or compresses, it is the transaction's own, as these are."""
    buffer = args[0] if args else named.get("buffer")
    in_c = type(buffer) is _io.BytesIO or _is_member(buffer)
    if not (core.is_fresh(buffer) if in_c else _compresses(buffer) and _engine.is_captured(buffer)):
        core.exclusive("a text stream around what others may use")
    return core.fresh(_text_stream(*args, **named))


@trusted
def text_write(file, text, /):
    """Twin of ``TextIOWrapper.write``."""
    if file.closed or _writes_at_once(file) or not isinstance(text, str):
        return _text_write(file, text)  # which raises what it has to
    if not (text.isascii() or _can_be_encoded(file, text)):
        core.exclusive("writing what cannot be encoded")
        return _text_write(file, text)
    if _told and file in _told:
        core.own(file)
    _put_off(_text_write, file, text)
    return len(text)


_text_tell = _io.TextIOWrapper.tell

#: The streams of which a transaction has asked how far they are written: whoever writes to one owns it from then on, so that the answer
#: is right in the order of the commits.  Changed exclusively.
_told = weakref.WeakSet()


@trusted
def text_tell(file, /):
    """Twin of ``TextIOWrapper.tell``, which ``logging`` asks of a file that it rotates, before each line."""
    if core.is_fresh(file):
        return _text_tell(file)
    raw = _file_of(file)
    if type(file) is not _io.TextIOWrapper or file.closed or raw is None:
        core.exclusive("a look at the position of a stream")
    elif file not in _told:
        core.exclusive("the first look at how far a file is written")
        _told.add(file)
    else:
        core.share(file)
        if _waits(raw):
            _write_before_the_commit(file, raw)
    with _writing:
        return _text_tell(file)


@trusted
def _waits(raw):
    """Has this transaction written something that ends in this file?"""
    return any(_file_of(stream) is raw for _, stream, *_ in _output.mine().actions)


@trusted
def _write_before_the_commit(file, raw):
    """What this transaction has for a stream of which it has been told: nobody else writes there until it ends."""
    output = _output.mine()
    place = files.part_of(raw)
    others = [action for action in output.actions if _file_of(action[1]) is not raw]
    if place is None or any(files.part_of(_file_of(stream)) == place for _, stream, *_ in others):
        core.exclusive("a look at the position of a stream")
        return
    core.own(file)
    files.look_into_part(place)
    core.irrevocable("a look at the position of a stream")
    output.actions = [action for action in output.actions if _file_of(action[1]) is raw]
    try:
        output.write_out()
    finally:
        output.actions = others


@trusted
def _can_be_encoded(file, text):
    """Is that certain, and without a look at what the program may have registered?"""
    if file.errors not in _ERROR_HANDLERS:
        return False
    try:
        text.encode(file.encoding, file.errors)
    except ValueError:
        return False
    return True


#: those of Python itself that are known to do nothing but replace
_ERROR_HANDLERS = {"strict", "ignore", "replace", "backslashreplace", "namereplace", "surrogateescape", "surrogatepass",
                   "xmlcharrefreplace"}


class _Output:
    """What a thread's transaction writes at its commit: functions and their arguments, in program order."""

    @trusted
    def __init__(self):
        self.actions = []

    @trusted
    def write_out(self):
        """At commit: nobody else's output comes in between.  What fails keeps the rest from nothing.

        Raises why the first of a file could not be written, for nobody may write to that any more; who does is told, too.
        """
        actions, self.actions = self.actions, []
        failure = None
        with _writing:
            for function, stream, *args in actions:
                try:
                    function(stream, *args)
                except OSError as e:
                    file = _file_of(stream)
                    is_first = _failed_before(file) is None
                    _failures[id(file)] = weakref.ref(file), e
                    failure = failure or (e if is_first else None)
                except Exception as e:
                    failure = failure or e
        if failure is not None:
            raise failure

    @trusted
    def drop(self):
        """The attempt has been rolled back."""
        self.actions = []


#: id of a FileIO -> (a weak reference to it, why something could not be written to it at a commit; None: somebody has been told)
_failures = {}


@trusted
def _failed_before(file):
    """What is known of this file's failures."""
    failed = _failures.get(id(file))
    return failed if failed is not None and failed[0]() is file else None


@trusted
def _write_after_failure(file, function, stream, *args):
    """Something could not be written to this file before: so it is written to at once, alone, until that succeeds.

    Raises why it could not be, to whoever comes first, and then what comes of it now.
    """
    core.exclusive("writing to a file to which something could not be written")
    failed = _failed_before(file)
    if failed is not None and failed[1] is not None:
        _failures[id(file)] = failed[0], None
        raise failed[1].with_traceback(None)
    function(stream, *args)
    stream.flush()
    _failures.pop(id(file), None)


_output = core.PerThread(_Output)
_writing = _thread.RLock()
forks.free(_writing)


@trusted
def _put_off(function, file, *args):
    raw = _file_of(file)
    if _failures and _failed_before(raw) is not None:
        _write_after_failure(raw, function, file, *args)
        return
    files.note_writing(raw)
    if core.is_exclusive():
        function(file, *args)
        return
    output = _output.mine()
    output.actions.append((function, file, *args))
    if len(output.actions) == 1:
        core.on_abort(output.drop)
        core.defer(output.write_out)


@trusted
def text_flush(file, /):
    """Twin of ``TextIOWrapper.flush``."""
    if file.closed or _writes_at_once(file):
        return _text_flush(file)
    _put_off(_text_flush, file)


@trusted
def buffered_writer(*args, **kwds):
    """Twin of ``BufferedWriter``."""
    return core.fresh(_io.BufferedWriter(*args, **kwds))


@trusted
def buffered_write(file, data, /):
    """Twin of ``BufferedWriter.write``."""
    core.open_all(data)
    chunk = _bytes_of(data)
    if file.closed or _writes_at_once(file) or chunk is None:
        return _buffered_write(file, data)  # which raises what it has to
    _put_off(_buffered_write, file, chunk)
    return len(chunk)


@trusted
def _bytes_of(data):
    """The bytes in a buffer as they are now, or None if it is no buffer that can be written."""
    try:
        view = memoryview(data)
    except TypeError:
        return None
    return bytes(view) if view.c_contiguous else None


@trusted
def buffered_flush(file, /):
    """Twin of ``BufferedWriter.flush``."""
    if file.closed or _writes_at_once(file):
        return _buffered_flush(file)
    _put_off(_buffered_flush, file)


TWINS = {
    builtins.print: print_,
    _text_stream: text_stream,
    _text_write: text_write,
    _text_flush: text_flush,
    _text_tell: text_tell,
    _io.BufferedWriter: buffered_writer,
    _buffered_write: buffered_write,
    _buffered_flush: buffered_flush,
}
