"""C objects whose state is put back after an aborted attempt, whatever it has freed, replaced or ended: see structures.c."""

import hashlib
import hmac
import threading
import zlib

import pytest

from tornado.stm import core

if not core.PARALLEL:
    pytest.skip("the engine is absent: transactions run one at a time and are never rolled back", allow_module_level=True)

from test_rollback import check, rolled_back

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
