"""C objects whose state is put back after an aborted attempt, whatever it has freed, replaced or ended: see structure.c."""

import _md5
import _sha1
import _sha3
import array
import contextlib
import csv
import hashlib
import hmac
import io
import pickle
import struct
import sys
import threading
import time
import types
import zlib

import _sha2
import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, transaction

needs_engine()

from rolled_back import check, rolled_back, run, unraisable, unraisable_exceptions  # noqa: F401, a fixture
from tornado.stm.core import trusted

activation.activate()

TEXT = b"what is said again and again " * 50


# ---- Streams that end -----------------------------------------------------------------------------------------------------


def compressor():
    stream = zlib.compressobj()
    return stream, stream.compress(TEXT)


def decompressor():
    stream = zlib.decompressobj()
    packed = zlib.compress(TEXT * 2)
    return stream, packed[len(packed) // 2:], stream.decompress(packed[:len(packed) // 2])


ENDINGS = {
    "at_once": lambda z: z.flush(),
    "after_more": lambda z: (z.compress(b"more"), z.flush()),
    "after_a_flush": lambda z: (z.flush(zlib.Z_FULL_FLUSH), z.flush()),
    "of_a_copy_too": lambda z: (z.copy().flush(), z.flush()),
}


def raising(function, *args):
    """What the call raises, as text."""
    try:
        return function(*args)
    except Exception as e:
        return repr(e)


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_a_compressor_that_an_attempt_has_ended_goes_on(end):
    stream, begun = compressor()
    rest = check(end, stream, rest=lambda stream: stream.compress(TEXT) + stream.flush())
    assert zlib.decompress(begun + rest) == TEXT * 2
    assert raising(stream.compress, b"more").startswith("error")  # it has ended now


@pytest.mark.parametrize("twice", [False, True], ids=["once", "used_again"])
def test_a_decompressor_that_an_attempt_has_ended_goes_on(twice):
    stream, missing, begun = decompressor()

    def end(stream):
        stream.decompress(missing[:-1])
        stream.flush()
        if twice:
            raising(stream.decompress, missing)  # which keeps what it cannot use

    rest = check(end, stream, rest=lambda stream: (stream.decompress(missing + b"unused"), stream.flush()))
    assert begun + b"".join(rest) == TEXT * 2
    assert (stream.eof, stream.unused_data, stream.unconsumed_tail) == (True, b"unused", b"")


def test_what_a_decompressor_has_kept_is_as_it_was():
    packed = zlib.compress(TEXT)
    stream = zlib.decompressobj()
    begun = stream.decompress(packed + b"unused", 10)
    tail = stream.unconsumed_tail

    def end(stream):
        stream.decompress(stream.unconsumed_tail + b"more")
        stream.decompress(b"and more")
        stream.flush()

    rest = check(end, stream, rest=lambda stream: (stream.unconsumed_tail, stream.unused_data, stream.decompress(tail)))
    assert rest == (tail, b"", TEXT[10:])
    assert (begun, stream.unused_data) == (TEXT[:10], b"unused")


@pytest.mark.parametrize("make", [compressor, decompressor])
def test_a_stream_that_has_ended_before_is_used_alone(make):
    """There is no copy of it, and a decompressor still keeps what it is given."""
    stream, *more = make()
    if make is decompressor:
        stream.decompress(more[0])
    stream.flush()
    used = []
    use = stream.compress if make is compressor else stream.decompress
    assert rolled_back(lambda stream: used.append(raising(use, b"more")), stream)[0] is False
    assert used == [raising(use, b"more")]


def test_a_stream_that_an_attempt_has_begun_and_ended_many_times():
    stream, begun = compressor()
    for _ in range(20):
        rest = check(lambda stream: stream.flush(), stream, rest=lambda stream: stream.flush(zlib.Z_SYNC_FLUSH))
        begun += rest
    assert zlib.decompress(begun + stream.flush()) == TEXT


# ---- A thread beside the transactions that is in a method meanwhile ---------------------------------------------------


BUSY = {
    "zlib": (lambda: zlib.compressobj(9), lambda stream, data: stream.compress(data)),
    "sha512": (hashlib.sha512, lambda digest, data: digest.update(data)),
    "blake2b": (hashlib.blake2b, lambda digest, data: digest.update(data)),
    "md5 without OpenSSL": (_md5.md5, lambda digest, data: digest.update(data)),
    "sha1 without OpenSSL": (_sha1.sha1, lambda digest, data: digest.update(data)),
    "sha512 without OpenSSL": (_sha2.sha512, lambda digest, data: digest.update(data)),
    "sha3_256 without OpenSSL": (_sha3.sha3_256, lambda digest, data: digest.update(data)),
    "hmac": (lambda: hmac.new(b"key", digestmod="sha512")._hmac, lambda digest, data: digest.update(data)),
}


@pytest.mark.parametrize("kind", BUSY)
def test_a_thread_in_a_method_of_what_is_rolled_back(kind):
    """It has let go of the thread state and holds the object's lock; nobody may exchange the state under it."""
    make, use = BUSY[kind]
    shared, data = make(), bytes(range(256)) * 4000
    done = threading.Event()

    def beside():
        for _ in range(10):
            use(shared, data)
        done.set()

    thread = threading.Thread(target=beside)
    thread.start()
    while not done.is_set():
        rolled_back(lambda shared: use(shared, b"x" * 100), shared)
    thread.join()
    use(shared, b"and on")


# ---- Views ------------------------------------------------------------------------------------------------------------------


class Holder:
    pass


EXPORTERS = {"bytearray": lambda: bytearray(b"0123456789abcdef"), "array": lambda: array.array("B", b"0123456789abcdef")}
exporters = pytest.mark.parametrize("make", EXPORTERS.values(), ids=EXPORTERS)


def sliced(data):
    with memoryview(data) as view, view[2:6] as part:
        return part[0]


def cast(data):
    with memoryview(data) as view, view[:8].cast("H") as wide, wide[1:3] as part:
        return part[0]


def readonly(data):
    view = memoryview(data)
    other = view.toreadonly()
    seen = memoryview(other)[3]
    other.release()
    view.release()
    return seen


def unpacked(data):
    with memoryview(data)[4:8] as part:
        return [sum(struct.unpack("<HH", part)), *struct.iter_unpack("<H", part)]


def dropped(data):
    return memoryview(data)[2:6][1:].tolist()


LOOKS = [sliced, cast, readonly, unpacked, dropped]
looks = pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.__name__)


@exporters
@looks
def test_views_of_an_aborted_attempt_hinder_nobody(make, look):
    """They are gone when the next transaction begins, and need not be waited for alone."""
    data = make()
    seen = look(data)
    core.Transaction(look, (make(),)).run()  # what C code calls for the first time runs alone
    assert check(look, data, rest=lambda data: (look(data), data.append(1))) == (seen, None)
    assert len(data) == 17


@exporters
@looks
def test_views_of_others_hinder_nobody(make, look):
    """Half of the transactions look, the others change the size, and attempts are aborted in between."""
    data, failed = make(), []

    def grow():
        look(data)
        try:
            data.append(1)
        except BufferError:
            failed.append("BufferError")
        look(data)

    core.inject_aborts(0.02, 1)
    try:
        queue = transaction.TransactionQueue()
        for _ in range(60):
            queue.add(grow)
            queue.add(look, data)
        queue.run(4)
    finally:
        core.inject_aborts(0, 0)
    assert (len(data), failed) == (76, [])


@exporters
@pytest.mark.parametrize("keep", [
    lambda holder, view: setattr(holder, "kept", view),
    lambda holder, view: setattr(holder, "kept", {"views": (view, view[1:])}),
    lambda holder, view: setattr(holder, "kept", iter(view)),
    lambda holder, view: setattr(holder, "kept", pickle.PickleBuffer(view)),
    lambda holder, view: setattr(holder, "kept", [view, view[2:].release()]),
], ids=["attribute", "nested", "iterator", "pickle_buffer", "released"])
def test_what_an_attempt_has_made_larger_and_kept_views_of(make, keep):
    """Nobody looks through these: the bytes are what they were, and may change their size."""
    data, holder = make(), Holder()
    rolled_back(keep, holder, memoryview(b"what may run alone does so once"))

    def grow_and_keep(data, holder):
        data.extend(data)
        keep(holder, memoryview(data))

    done, _ = rolled_back(grow_and_keep, data, holder, rest=lambda data, holder: data.append(1))
    assert not unraisable
    if done:
        assert (bytes(data), vars(holder)) == (b"0123456789abcdef\1", {})


@exporters
@pytest.mark.parametrize("resize", [
    lambda data: data.append(1), lambda data: data.__delitem__(0), lambda data: data.extend(b"12"), lambda data: data.pop(),
], ids=["append", "delete", "extend", "pop"])
def test_a_view_that_is_dropped_lets_go_at_once(make, resize):
    """The undo log holds it: nobody may notice."""
    data, holder = make(), Holder()
    holder.view = memoryview(data)[1:]
    length = len(data)

    def drop_and_resize():
        del holder.view
        resize(data)

    run(drop_and_resize)
    assert len(data) != length


@exporters
def test_a_slice_is_written_where_a_view_was(make):
    data, holder = make(), Holder()
    holder.view = memoryview(data)

    def write_slices():
        holder.view = None
        data[1:3] = data[:1]
        del data[:2]
        data.__iadd__(data[:1])
        data.__imul__(2)

    run(write_slices)
    plain, holder.view = make(), None
    write_plain = write_slices.__code__  # the same, on data of its own
    types.FunctionType(write_plain, {}, closure=(types.CellType(plain), types.CellType(holder)))()
    assert data == plain


@exporters
def test_a_view_that_is_there_is_an_error_as_ever(make):
    data = make()
    view = memoryview(data)
    for resize in (lambda: data.append(1), lambda: data.clear(), lambda: data.__delitem__(slice(1, 3))):
        with pytest.raises(BufferError):
            run(resize)
    assert view.tolist() == list(make())


def test_what_holds_a_view_s_buffer_is_dropped_before_the_view_is_released():
    holder = Holder()
    holder.view = memoryview(b"01234567")
    holder.numbers = struct.iter_unpack("<H", holder.view)

    def release():
        del holder.numbers
        holder.view.release()

    run(release)
    with pytest.raises(ValueError):
        holder.view.tolist()


@pytest.mark.parametrize("make", [lambda: bytes(range(20)), *EXPORTERS.values()], ids=["bytes", *EXPORTERS])
def test_views_of_one_view_are_counted(make):
    """Any number of transactions may slice it at a time."""
    data = make()
    view = memoryview(data)

    def slices(n):
        kept = [view[i:] for i in range(n)]
        with view.cast("b") as signed, view.toreadonly() as same, memoryview(view) as again:
            return len(kept) + signed[0] + same[1] + again[2]

    queue = transaction.TransactionQueue()
    for i in range(400):
        queue.add(slices, i % 50)
    queue.run(4)
    assert view.tolist() == list(data)
    references, counted = sys.getrefcount(data), not sys._is_immortal(data)  # bytes may have become so by then (immortal.c)
    view.release()
    assert sys.getrefcount(data) == references - counted
    if not isinstance(data, bytes):
        data.append(1)


@exporters
def test_views_that_threads_make_are_counted(make):
    """CPython does not count those of an array under a lock, nor those that share a buffer."""
    data = make()
    view = memoryview(data)

    def make_many():
        for _ in range(10000):
            view[1:].release()
            memoryview(data)

    threads = [threading.Thread(target=make_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view.release()
    data.append(1)
    assert len(data) == 17


# ---- Streams in memory ------------------------------------------------------------------------------------------------------


class NamedBytes(io.BytesIO):
    name = None


class NamedText(io.StringIO):
    name = None


class Meanwhile:
    """Another transaction, which commits in the middle of the first attempt of one."""

    def __init__(self, function, *args):
        self.begun, self.over = [], []
        self.thread = threading.Thread(target=self.follow, args=(function, *args))
        self.thread.start()

    def follow(self, function, *args):
        while not self.begun:
            time.sleep(0.0002)
        try:
            run(function, *args)
        finally:
            self.over.append(True)

    @trusted
    def wait(self):
        self.begun.append(True)
        while not (self.over or core.is_exclusive()):  # if it is, the other one waits for it
            time.sleep(0.0002)


@pytest.mark.parametrize("make, text", [(NamedBytes, b"text"), (NamedText, "text")])
def test_an_attribute_of_a_stream_that_another_has_set_stays(make, text):
    """It has a lock of its own; the attempt that is rolled back has only written to the stream."""
    stream = make(text)

    def rename(name):
        stream.name = name

    def write(stream):
        stream.write(text * 2)
        other.wait()

    run(rename, "old")  # what is only met for the first time may run alone
    other = Meanwhile(rename, "new")
    assert check(write, stream, rest=lambda stream: stream.getvalue()) == text
    assert vars(stream) == {"name": "new"}


@pytest.mark.parametrize("newline", [None, "", "\n", "\r\n"])
def test_the_line_ends_that_a_stream_has_seen(newline):
    """What a decoder has seen is no part of what a stream tells about itself: such streams are used alone."""
    stream, expected = io.StringIO(newline=newline), io.StringIO(newline=newline)
    for each in (stream, expected):
        each.write("a\r\nb")
        each.seek(0)
        each.truncate()
        each.write("a\r")
    done, _ = rolled_back(lambda stream: stream.write("x\ny\r\n"), stream)
    assert done is (newline not in (None, ""))
    if done:
        for each in (stream, expected):
            each.write("\nb")
        assert (stream.getvalue(), stream.newlines) == (expected.getvalue(), expected.newlines)


# ---- Tables as text ---------------------------------------------------------------------------------------------------------


class Lines(list):
    """What has been written, a line an item."""

    write = list.append


@pytest.mark.parametrize("make", [io.StringIO, Lines])
def test_rows_that_are_written_go_with_their_attempt(make):
    """The record is collected in memory that grows, and stays with the writer whatever becomes of the attempt."""
    file = make()
    writer = csv.writer(file)
    writer.writerow(["before", 1])

    def write(writer, file):
        writer.writerow(["x" * 100_000, None])
        writer.writerows([[2, 3], (4, [5]), {"6": 7}, (str(n) for n in range(8))])

    def rest(writer, file):
        writer.writerow(("after", 2.5))
        return file.getvalue() if make is io.StringIO else "".join(file)

    for _ in range(2):
        assert check(write, writer, file, rest=rest).endswith('after,2.5\r\n')
    assert rest(writer, file) == "before,1\r\n" + 3 * "after,2.5\r\n"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="there are no templates in this Python")
def test_templates():
    value = [1]
    template = eval('t"a{value!r:>5}b{value}"', {"value": value})

    def parts(template):
        return [part if isinstance(part, str) else (part.value, part.expression, part.conversion, part.format_spec) for part in template]

    expected = ["a", (value, "value", "r", ">5"), "b", (value, "value", None, "")]
    assert check(parts, template, rest=parts) == expected
    iterator = iter(template)
    next(iterator)
    assert check(list, iterator, rest=lambda iterator: next(iterator).expression) == "value"
    assert check(lambda: None, rest=lambda: (parts(template + template), (template + template).strings)) == (
        [*expected, *expected], ("a", "b", "a", "b", ""))


def test_how_many_lines_a_reader_has_read():
    reader = csv.reader(iter(["a,b", '"c', 'd"', "e"]))
    next(reader)
    assert check(list, reader, rest=lambda reader: (reader.line_num, next(reader), reader.line_num)) == (1, ["cd"], 3)


# ---- Generators -------------------------------------------------------------------------------------------------------------


def test_an_asynchronous_generator_lets_go_of_the_loop_s_finalizer():
    async def numbers():
        yield 1

    def finalizer(generator):
        pass

    async def first(generator):
        return await generator.asend(None)

    def step(generator):
        with contextlib.suppress(StopIteration):
            first(generator).send(None)

    generator = run(numbers)
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=finalizer)
    try:
        before = sys.getrefcount(finalizer)
        for _ in range(10):
            check(step, generator, rest=lambda generator: None)
        assert sys.getrefcount(finalizer) <= before + 1
    finally:
        sys.set_asyncgen_hooks(*hooks)
