"""What is known of the C code of other libraries: the files that come with the engine, and what programs declare."""

import base64
import dataclasses
import enum
import functools
import hashlib
import hmac
import itertools
import random
import sqlite3
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

from meeting import APART, CONFLICT, is_alone, meet
from tornado.stm import activation, core, effects, testing
from tornado.stm.c_functions import libraries

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(Path(libraries.__file__).parent.glob("*.effects"))

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

#: a function of C code that the engine knows nothing about
UNKNOWN = "_sqlite3.complete_statement"
ASK = """
import _sqlite3
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
@trusted
def tell():
    core.defer(print, "alone" if core.is_exclusive() else "beside others")
def ask():
    _sqlite3.complete_statement("a")
    tell()
activation.activate()
core.Transaction(ask, ()).run()
"""


def run(*arguments, text=None):
    return subprocess.run([sys.executable, *arguments], input=text, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_means_something(file):
    found = libraries.parse(file.read_text(), file.name)
    assert found and all(declaration.releases for declaration in found)
    assert {declaration.name.partition(".")[0] for declaration in found} == {file.stem}


@needs_engine
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_of_a_library_that_is_installed_is_about_something_there(file):
    found = libraries.parse(file.read_text(), file.name)
    if not libraries._is_installed(*found[0].releases):
        pytest.skip("another release is installed, or none")
    names = sorted({declaration.name.rpartition(".")[0] for declaration in found if declaration.what == "hidden"})
    parts = [declaration.name.split(".") for declaration in found]
    modules = sorted({".".join(each[:i]) for each in parts for i in range(2, len(each))}, key=lambda name: (name.count("."), name))
    code = f"""
import contextlib, importlib
import {file.stem}
for name in {modules}:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
from tornado.stm import activation
activation.activate()
from tornado.stm.c_functions import libraries
print([each for each in libraries._waiting if each.name.startswith("{file.stem}.")])
"""
    done = run("-c", code)
    assert (done.stdout, names) == ("[]\n", names), done.stderr


@needs_threads
def test_what_is_not_declared_runs_alone_and_what_is_does_not(tmp_path):
    assert run("-c", ASK).stdout == "alone\n"
    early = f"from tornado.stm import effects\neffects.declare('{UNKNOWN}', 'PURE')\n"
    assert run("-c", early + ASK).stdout == "beside others\n"
    late = ASK.replace("activation.activate()\n", "activation.activate()\n" + early)
    assert run("-c", late).stdout == "beside others\n"
    later = ASK.replace("import _sqlite3\n", early).replace("def ask():\n", "def ask():\n    import _sqlite3\n") + "ask()\n"
    assert run("-c", later).stdout.splitlines()[-1] == "beside others"


@needs_threads
def test_a_file_on_the_command_line(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"# what I have read\ncall {UNKNOWN} PURE  # it only looks at the text\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert done.stdout == "beside others\n", done.stderr


@needs_threads
def test_declarations_for_another_release_do_not_count(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"library tornado 1.0 2\ncall {UNKNOWN} PURE\nlibrary tornado 6 7\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert done.stdout == "alone\n", done.stderr


@pytest.mark.parametrize("text, said", [
    ("call a.b", "more.effects:1: 'call a.b': it should be"),
    ("\ncalls a.b PURE", "more.effects:2:"),
    ("call nodots PURE", "'nodots' is no dotted name"),
    pytest.param("call a.b PURER", "there is no effect 'PURER'", marks=needs_engine),
    pytest.param("type a.b PURE", "there is no kind 'PURE'", marks=needs_engine),
    pytest.param("call a.b TWIN", "there is no effect 'TWIN'", marks=needs_engine),
    ("library x one two", "more.effects:1:"),
    (b"\xff\xfe", "more.effects: not a text file"),
])  # fmt: skip
def test_what_cannot_be_declared_is_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "more.effects"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError):
        effects.load(file)
    done = run("-m", "tornado.stm", "--effects", str(file), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path):
    done = run("-m", "tornado.stm", "--effects", str(tmp_path / "none"), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "No such file" in done.stderr


def test_a_module_may_say_that_it_has_another_name(tmp_path):
    (tmp_path / "says_another.py").write_text("__name__ = 'another'\n")
    code = "from tornado.stm import activation; activation.activate(); import sys; sys.path.append(sys.argv[1]); import says_another"
    done = run("-c", code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_cannot_be_declared():
    with pytest.raises(ValueError):
        effects.declare("a.b")
    with pytest.raises(ValueError):
        effects.declare("nodots", "PURE")


COMPILED_OR_NOT = """
import importlib, sys
import tornado.stm
tornado.stm.install(2)
module = importlib.import_module(sys.argv[1])
print(module.__file__ is not None and module.__file__.endswith(".py"))
"""


@needs_threads
@pytest.mark.parametrize("name", ["sqlalchemy.util._immutabledict_cy", "sqlalchemy.engine._row_cy"])
def test_what_has_a_twin_in_python_and_is_not_declared_runs_in_python(name):
    pytest.importorskip(name)
    done = run("-c", COMPILED_OR_NOT, name)
    assert (done.stdout, done.stderr) == ("True\n", "")


LITESTAR = """
import asyncio
from litestar import Litestar, get
from tornado.stm import core

@get("/{n:int}", media_type="text/plain")
async def ask(n: int) -> str:
    return "alone" if core.is_exclusive() else "beside others"

async def main(app=Litestar([ask], openapi_config=None)):
    scope = dict(type="http", method="GET", path="/1", raw_path=b"/1", root_path="", query_string=b"", headers=[], scheme="http",
                 server=("test", 80), client=("test", 1), http_version="1.1", asgi={"version": "3.0"})
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    print(sent[0]["status"], sent[1]["body"].decode())

asyncio.run(main())
"""


@needs_threads
def test_a_handler_of_litestar_does_not_run_alone_after_its_arguments_were_made(tmp_path):
    pytest.importorskip("litestar", reason="litestar is not installed")
    (tmp_path / "app.py").write_text(LITESTAR)
    done = run("-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py"))
    assert (done.returncode, done.stdout) == (0, "200 beside others\n"), done.stderr


# ---- Of what is declared: does a call run beside others, and as if alone? ------------------------------------------------------


def beside_others(function, *args):
    """Does the transaction of such a call run beside others?  And what the call returns."""
    activation.activate()
    seen = []

    def step():
        result = function(*args)
        core.defer(seen.append, not is_alone())
        return result

    result = core.Transaction(step, ()).run()
    return seen == [True], result


def runs_beside_others(function, *args):
    """The same when it is not called for the first time: what nobody has asked of a class before is asked alone."""
    beside_others(function, *args)
    beside, result = beside_others(function, *args)
    return result if beside else pytest.fail(f"it ran alone: {core.stats()['exclusive_reasons']}")


def runs_alone(function, *args):
    beside_others(function, *args)
    return not beside_others(function, *args)[0]


def needs_release(library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if not libraries.covers(library):
        pytest.skip(f"nothing is declared for this release of {library}")
    activation.activate()
    return module


@pytest.fixture
def msgspec():
    return needs_release("msgspec")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass(eq=False)
class Line:
    name: str
    size: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


#: what dataclasses that are decoded put themselves into
made = []


@dataclasses.dataclass(eq=False)
class Noted:
    size: int

    def __post_init__(self):
        made.append(self.size)


@dataclasses.dataclass
class Numbered:
    number: int = dataclasses.field(default_factory=itertools.count().__next__)


class Pair(typing.NamedTuple):
    left: int
    right: str = "r"


class Options(typing.TypedDict):
    size: int


class Unsupported:
    def __init__(self, inside):
        self.inside = inside


def inside(value, *, more=()):
    return [value.inside, *more]


DATA = {"a": [1, 2.5, None, "é", b"x"], "b": (Color.RED, {7}), "c": Line("d", 1, ["e"])}
TEXT = b'{"a":[1,2.5,null,"\xc3\xa9","eA=="],"b":["red",[7]],"c":{"name":"d","size":1,"tags":["e"]}}'


@needs_threads
def test_msgspec_encodes_beside_others(msgspec):
    hooks = inside, functools.partial(inside, more=[4])
    for encode in msgspec.json.encode, msgspec.json.Encoder().encode:
        assert runs_beside_others(encode, DATA) == TEXT
    for encode in msgspec.msgpack.encode, msgspec.msgpack.Encoder().encode:
        assert msgspec.msgpack.decode(runs_beside_others(encode, DATA))["c"] == {"name": "d", "size": 1, "tags": ["e"]}
    assert runs_beside_others(msgspec.json.Encoder().encode_lines, [1, DATA]) == b"1\n" + TEXT + b"\n"
    assert runs_beside_others(msgspec.to_builtins, DATA)["b"] == ("red", [7])
    assert runs_beside_others(msgspec.json.format, "[1]") == "[\n  1\n]"
    for hook, expected in zip(hooks, (b"[[3]]", b"[[3,4]]")):
        assert runs_beside_others(msgspec.json.Encoder(enc_hook=hook).encode, [Unsupported(3)]) == expected
        assert runs_beside_others(lambda: msgspec.json.encode([Unsupported(3)], enc_hook=hook)) == expected
    assert runs_beside_others(lambda: msgspec.json.Encoder(enc_hook=inside).encode([Unsupported(3)])) == b"[[3]]"


@needs_threads
@pytest.mark.parametrize("type_, text, expected", [
    (typing.Any, b'{"a":[1]}', {"a": [1]}),
    (dict[str, int], b'{"a":1}', {"a": 1}),
    (set[int], b"[1]", {1}),
    (Pair, b"[1]", Pair(1, "r")),
    (Options | None, b'{"size":1}', {"size": 1}),
    (typing.Optional[Color], b'"red"', Color.RED),
    (typing.Literal["a", 1], b'"a"', "a"),
])  # fmt: skip
def test_msgspec_decodes_beside_others(msgspec, type_, text, expected):
    assert runs_beside_others(msgspec.json.Decoder(type_).decode, text) == expected
    assert runs_beside_others(msgspec.json.Decoder(type_).decode_lines, text + b"\n" + text) == [expected] * 2
    packed = msgspec.msgpack.encode(msgspec.json.decode(text))
    assert runs_beside_others(msgspec.msgpack.Decoder(type_).decode, packed) == expected
    assert runs_beside_others(msgspec.json.decode, text) == msgspec.json.decode(text)
    assert runs_beside_others(msgspec.msgpack.decode, packed) == msgspec.json.decode(text)


@needs_threads
def test_msgspec_makes_dataclasses_beside_others(msgspec):
    (line,) = runs_beside_others(msgspec.json.Decoder(list[Line]).decode, b'[{"name":"a"}]')
    assert (line.name, line.size, line.tags) == ("a", 0, [])
    assert runs_beside_others(msgspec.json.Decoder(typing.List[Noted]).decode, b'[{"size":1}]')[0].size == 1


@needs_threads
def test_what_msgspec_calls_and_nobody_knows_runs_alone(msgspec):
    unknown = sqlite3.complete_statement
    assert runs_alone(lambda: msgspec.json.encode(["a"], enc_hook=unknown))
    assert runs_alone(msgspec.json.Encoder(enc_hook=unknown).encode, ["a"])
    assert runs_alone(lambda: msgspec.json.decode(b"1", type=Line | int))
    for type_ in Numbered, Numbered | None, list[Numbered], typing.List[Numbered], dict[str, tuple[Numbered, ...]]:
        assert runs_alone(msgspec.json.Decoder(type_ | None).decode, b"null")
    assert runs_alone(lambda: msgspec.json.decode(b"{}", type=Numbered))
    assert runs_alone(msgspec.json.Decoder(float_hook=unknown).decode, b"1")


@needs_threads
def test_structs_of_msgspec_run_alone(msgspec):
    """Nothing is declared of them; but their attributes are read as all slots are."""

    class Point(msgspec.Struct):
        x: int = 0

    point = Point()
    assert runs_beside_others(lambda: point.x) == 0
    assert runs_alone(Point)
    assert runs_alone(setattr, point, "x", 1)
    assert runs_alone(lambda: point == point)
    assert runs_alone(msgspec.json.encode, [point])
    assert runs_alone(msgspec.json.Decoder(typing.Optional[Point]).decode, b"null")
    assert runs_alone(msgspec.convert, {"x": 1}, Point)


@needs_threads
@pytest.mark.parametrize("change", [
    lambda line, value: line.tags.append("more"),
    lambda line, value: setattr(line, "size", 3),
    lambda line, value: value.inside.append(3),
    lambda line, value: setattr(value, "inside", 3),
])  # fmt: skip
@pytest.mark.parametrize("container", [list, frozenset, lambda values: dict.fromkeys(map(str, range(2)), values)])
def test_what_msgspec_encodes_nobody_changes_meanwhile(msgspec, change, container):
    encoder = msgspec.json.Encoder(enc_hook=inside)

    def make():
        line, value = Line("a"), Unsupported([1])
        return line, value, container([line, value])

    def encode(line, value, both):
        encoder.encode(both)

    def to_builtins(line, value, both):
        msgspec.to_builtins(both, enc_hook=inside)

    def change_one(line, value, both):
        change(line, value)

    assert meet(make, encode, change_one) == meet(make, to_builtins, change_one) == CONFLICT
    assert meet(make, encode, to_builtins) == APART


class Shelf:
    def __init__(self):
        self.lines = {name: Line(name) for name in "abc"}
        self.line_set = {self.lines["a"]}
        self.value = Unsupported([0])
        self.text = bytearray(b"[1, 2]")
        self.made = made
        made.clear()


@needs_engine
def test_msgspec_gives_what_it_gives_one_after_the_other(msgspec):
    """What hooks and ``__post_init__`` see and change is rolled back with the rest."""
    encoder = msgspec.json.Encoder(enc_hook=inside)
    decoder = msgspec.json.Decoder(typing.List[Noted])

    def encode(shelf):
        return encoder.encode([shelf.lines, shelf.line_set, shelf.value, shelf.made])

    def pack(shelf):
        return msgspec.msgpack.encode(shelf.lines, order="deterministic"), msgspec.to_builtins(shelf.value, enc_hook=inside)

    def decode(shelf, n):
        return [noted.size for noted in decoder.decode(b'[{"size":%d},{"size":2}]' % n)]

    def read(shelf):
        return msgspec.json.decode(shelf.text), msgspec.json.decode(memoryview(shelf.text))

    def write(shelf, n):
        shelf.text[1] = ord("0") + n

    def change(shelf, n):
        line = shelf.lines["abc"[n % 3]]
        line.size += 1
        line.tags.append(str(n))
        shelf.value.inside = [n, *shelf.value.inside][:4]

    choice = random.Random(1)
    for seed in range(40):
        calls = [choice.choice([(encode,), (pack,), (decode, seed % 7), (read,), (write, seed % 7), (change, seed % 7)]) for _ in range(10)]
        testing.check_serializable(Shelf, calls, seed=seed, aborts=0.02)


# ---- cryptography -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def crypto():
    """What is used of it, by its names."""
    needs_release("cryptography")
    from cryptography import exceptions, fernet
    from cryptography.hazmat.primitives import constant_time, hashes, hmac, padding
    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
    from cryptography.hazmat.primitives.kdf import argon2, hkdf, pbkdf2, scrypt

    return types.SimpleNamespace(**locals())


KEY = bytes(range(32))


def encrypted(crypto):
    fernet = crypto.fernet.Fernet(base64.urlsafe_b64encode(KEY))
    return fernet.decrypt(fernet.encrypt(b"text"), ttl=1000)


def encrypted_by_one_of_two(crypto):
    fernets = crypto.fernet.MultiFernet([crypto.fernet.Fernet(base64.urlsafe_b64encode(key)) for key in (bytes(32), KEY)])
    return fernets.decrypt(fernets.rotate(fernets.encrypt(b"text")))


def hashed(crypto):
    digest = crypto.hashes.Hash(crypto.hashes.SHA256())
    digest.update(b"te")
    copy = digest.copy
    other = copy()
    other.update(bytearray(b"x"))
    other.update(memoryview(b"t"))
    assert digest.algorithm.name == "sha256" and digest.finalize() == hashlib.sha256(b"te").digest()
    return other.finalize() == crypto.hashes.Hash.hash(crypto.hashes.SHA256(), b"text") == hashlib.sha256(b"text").digest()


def authenticated(crypto):
    def make(data):
        code = crypto.hmac.HMAC(KEY, crypto.hashes.SHA256())
        code.update(data)
        return code

    code = make(b"text" * 5000).finalize()
    make(b"text" * 5000).copy().verify(code)
    with pytest.raises(crypto.exceptions.InvalidSignature):
        make(b"test").verify(code)
    return crypto.constant_time.bytes_eq(code, hmac.digest(KEY, b"text" * 5000, "sha256"))


def ciphered(crypto):
    def cipher(tag=None):
        return crypto.Cipher(crypto.algorithms.AES(KEY), crypto.modes.GCM(bytes(12), tag))

    encryptor = cipher().encryptor()
    encryptor.authenticate_additional_data(b"more")
    data = encryptor.update(b"text") + encryptor.finalize()
    found = []
    for decryptor in cipher(encryptor.tag).decryptor(), cipher().decryptor():
        decryptor.authenticate_additional_data(b"more")
        text = decryptor.update(data)
        found.append(text + (decryptor.finalize_with_tag(encryptor.tag) if found else decryptor.finalize()))
    stream = crypto.Cipher(crypto.algorithms.ChaCha20(KEY, bytes(16)), None).encryptor()
    first = stream.update(b"text")
    stream.reset_nonce(bytes(16))
    return found == [b"text"] * 2 and stream.update(b"text") == first


def padded(crypto):
    found = []
    for padding in crypto.padding.PKCS7(128), crypto.padding.ANSIX923(128):
        padder, unpadder = padding.padder(), padding.unpadder()
        found.append(unpadder.update(padder.update(b"text") + padder.finalize()) + unpadder.finalize())
    return found == [b"text"] * 2


def sealed(crypto):
    found = []
    for make in crypto.aead.AESGCM, crypto.aead.ChaCha20Poly1305:
        seal = make(KEY)
        found.append(seal.decrypt(bytes(12), seal.encrypt(bytes(12), b"text", b"more"), b"more"))
    return found == [b"text"] * 2 and len(crypto.aead.AESGCM.generate_key(128)) == 16


def derived(crypto):
    def make():
        return [
            crypto.pbkdf2.PBKDF2HMAC(crypto.hashes.SHA256(), 16, b"salt", 10),
            crypto.scrypt.Scrypt(b"salt", 16, 16, 1, 1),
            crypto.hkdf.HKDF(crypto.hashes.SHA256(), 16, b"salt", b"info"),
            crypto.hkdf.HKDFExpand(crypto.hashes.SHA256(), 16, b"info"),
            crypto.argon2.Argon2id(salt=b"salt" * 2, length=16, iterations=1, lanes=1, memory_cost=32),
        ]

    keys = [each.derive(KEY) for each in make()]
    for each, key in zip(make(), keys):
        each.verify(KEY, key)
    crypto.argon2.Argon2id.verify_phc_encoded(KEY, make()[-1].derive_phc_encoded(KEY))
    return keys[0] == hashlib.pbkdf2_hmac("sha256", KEY, b"salt", 10, 16)


@needs_threads
@pytest.mark.parametrize("use", [
    encrypted, encrypted_by_one_of_two, hashed, authenticated, ciphered, padded, sealed, derived,
])  # fmt: skip
def test_cryptography_runs_beside_others(crypto, use):
    assert runs_beside_others(use, crypto) in (True, b"text")
    assert meet(lambda: (crypto,), use, use) == APART


@needs_threads
def test_what_another_transaction_has_begun_to_hash_is_hashed_on_alone(crypto):
    """Its state cannot be put back."""
    digest = crypto.hashes.Hash(crypto.hashes.SHA256())
    encryptor = crypto.Cipher(crypto.algorithms.AES(KEY), crypto.modes.CTR(bytes(16))).encryptor()
    assert runs_alone(digest.update, b"x") and runs_alone(digest.copy) and runs_alone(getattr, digest, "algorithm")
    assert runs_alone(encryptor.update, b"x")
    assert runs_alone(crypto.aead.AESCCM(KEY).encrypt, bytes(12), b"text", None)  # not declared
    assert runs_alone(crypto.aead.AESGCM(KEY).encrypt_into, bytes(12), b"text", None, bytearray(20))


@needs_threads
@pytest.mark.parametrize("use", [
    lambda crypto, data, cipher: crypto.hmac.HMAC(data, crypto.hashes.SHA256()),
    lambda crypto, data, cipher: crypto.hmac.HMAC(KEY, crypto.hashes.SHA256()).update(data),
    lambda crypto, data, cipher: crypto.aead.AESGCM(data),
    lambda crypto, data, cipher: crypto.aead.AESGCM(KEY).encrypt(bytes(12), b"text", memoryview(data)),
    lambda crypto, data, cipher: crypto.pbkdf2.PBKDF2HMAC(crypto.hashes.SHA256(), 16, b"salt", 10).derive(data),
    lambda crypto, data, cipher: cipher.encryptor(),
    lambda crypto, data, cipher: cipher.decryptor(),
])  # fmt: skip
@pytest.mark.parametrize("cipher_of", [
    lambda crypto, data: crypto.Cipher(crypto.algorithms.AES256(data), crypto.modes.CBC(bytes(16))),
    lambda crypto, data: crypto.Cipher(crypto.algorithms.AES(KEY), crypto.modes.CBC(memoryview(data)[:16])),
])  # fmt: skip
def test_keys_and_data_that_cryptography_reads_nobody_changes_meanwhile(crypto, use, cipher_of):
    def make():
        data = bytearray(KEY)
        return crypto, data, cipher_of(crypto, data)

    def change(crypto, data, cipher):
        data[1] = 7

    assert meet(make, use, change) == CONFLICT


@needs_engine
def test_cryptography_gives_what_it_gives_one_after_the_other(crypto):
    class Safe:
        def __init__(self):
            self.fernet = crypto.fernet.Fernet(base64.urlsafe_b64encode(KEY))
            self.token = self.fernet.encrypt(b"0")
            self.key = bytearray(KEY)
            self.digest = crypto.hashes.Hash(crypto.hashes.SHA256())
            self.digests = []

    def count(safe):
        n = int(safe.fernet.decrypt(safe.token)) + 1
        safe.token = safe.fernet.encrypt(b"%d" % n)
        return n

    def sign(safe):
        code = crypto.hmac.HMAC(safe.key, crypto.hashes.SHA256())
        code.update(b"%d" % len(safe.digests))
        safe.digests.append(code.finalize())

    def rotate(safe, n):
        safe.key[n] += 1

    def encrypt(safe):
        return crypto.Cipher(crypto.algorithms.AES(safe.key), crypto.modes.ECB()).encryptor().update(bytes(16))

    def digest(safe, n):
        safe.digest.update(b"%d" % n)
        return safe.digest.copy().finalize()

    def observe(safe):
        return safe.fernet.decrypt(safe.token), safe.key, safe.digests, safe.digest.copy().finalize()

    choice = random.Random(1)
    for seed in range(40):
        calls = [choice.choice([(count,), (sign,), (rotate, seed % 3), (encrypt,), (encrypt,), (digest, seed)]) for _ in range(10)]
        testing.check_serializable(Safe, calls, seed=seed, aborts=0.01, observe=observe)


TOGETHER = """
import threading
from tornado.stm import activation, core
activation.activate()
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
cipher = Cipher(algorithms.AES(bytes(16)), modes.CBC(bytes(16)))
begin = threading.Barrier(4)
def encrypt():
    return cipher.encryptor().update(bytes(16))
def work():
    begin.wait()
    core.Transaction(encrypt, ()).run()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


@needs_threads
@pytest.mark.parametrize("n", range(5))
def test_threads_that_encrypt_for_the_first_time_do_not_wait_for_each_other(crypto, n):
    """See patches/cryptography.py."""
    assert run("-c", TOGETHER).stdout == "done\n"
