"""What handlers call for a password, a hash, an id, or to parse: it runs beside others, and nobody changes meanwhile what it reads."""

import copy
import decimal

import pytest

from beside import needs_release, runs_alone, runs_beside_others
from meeting import APART, CONFLICT, meet
from tornado.stm import activation, core, testing

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def bcrypt():
    return needs_release("bcrypt")


@pytest.fixture
def low_level():
    """Of argon2."""
    module = pytest.importorskip("argon2.low_level", reason="argon2-cffi is not installed")
    activation.activate()
    if core.COMPILED and not hasattr(module.hash_secret, "__wrapped__"):
        pytest.skip("nothing is known of this release of argon2-cffi")
    return module


def change(data, *others):
    data[1] = 7


@needs_threads
def test_bcrypt_runs_beside_others(bcrypt):
    salt = runs_beside_others(bcrypt.gensalt, 4)
    hashed = runs_beside_others(bcrypt.hashpw, b"secret", salt)
    assert hashed == bcrypt.hashpw(b"secret", salt)
    assert runs_beside_others(bcrypt.checkpw, b"secret", hashed) is True
    assert runs_beside_others(bcrypt.checkpw, b"other", hashed) is False
    assert runs_beside_others(bcrypt.kdf, b"secret", b"salt", 16, 50) == bcrypt.kdf(b"secret", b"salt", 16, 50)
    assert meet(lambda: (hashed,), lambda hashed: bcrypt.checkpw(b"secret", hashed), lambda hashed: bcrypt.gensalt(4)) == APART


@needs_engine
def test_bcrypt_takes_nothing_that_can_change(bcrypt):
    """Else it would have to be declared otherwise."""
    for argument in bytearray(b"secret"), memoryview(b"secret"), [1]:
        with pytest.raises(TypeError):
            bcrypt.hashpw(argument, bcrypt.gensalt(4))
        with pytest.raises(TypeError):
            bcrypt.checkpw(b"secret", argument)
        with pytest.raises(TypeError):
            bcrypt.kdf(argument, b"salt", 16, 50)
        with pytest.raises(TypeError):
            bcrypt.gensalt(4, argument)


@needs_threads
def test_argon2_runs_beside_others(low_level):
    import argon2

    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=2)
    hashed = runs_beside_others(hasher.hash, "secret")
    assert runs_beside_others(hasher.verify, hashed, "secret") is True and hasher.verify(hashed, "secret")

    def refuses():
        with pytest.raises(argon2.exceptions.VerifyMismatchError):
            hasher.verify(hashed, "other")
        return True

    assert runs_beside_others(refuses)
    how = b"secret", b"saltsalt", 1, 64, 1, 16, low_level.Type.ID
    assert runs_beside_others(low_level.hash_secret, *how) == low_level.hash_secret(*how)
    assert runs_beside_others(low_level.hash_secret_raw, *how) == low_level.hash_secret_raw(*how)
    assert meet(lambda: (), lambda: hasher.hash("secret"), lambda: hasher.verify(hashed, "secret")) == APART


@needs_threads
def test_what_argon2_makes_of_lists_it_makes_alone(low_level):
    secret, how = list(b"secret"), (b"saltsalt", 1, 64, 1, 16, low_level.Type.ID)
    assert runs_alone(low_level.hash_secret_raw, secret, *how)
    assert runs_alone(lambda: low_level.hash_secret_raw(secret=secret, salt=b"saltsalt", time_cost=1, memory_cost=64, parallelism=1,
                                                        hash_len=16, type=low_level.Type.ID))
    assert core.Transaction(low_level.hash_secret_raw, (secret, *how)).run() == low_level.hash_secret_raw(b"secret", *how)


#: of each module: functions of data, and types
HASHES = {
    "xxhash": (
        [f"{name}_{form}" for name in ("xxh32", "xxh64", "xxh3_64", "xxh128") for form in ("digest", "hexdigest", "intdigest")],
        ["xxh32", "xxh64", "xxh3_64", "xxh128"],
    ),
    "mmh3": (
        ["hash_from_buffer", "mmh3_32_digest", "mmh3_x64_128_sintdigest", "mmh3_x86_128_utupledigest"], ["mmh3_32", "mmh3_x64_128", "mmh3_x86_128"],
    ),
    "blake3": ([], ["blake3"]),
}
FUNCTIONS = [(module, name) for module, (functions, types) in HASHES.items() for name in functions]
TYPES = [(module, name) for module, (functions, types) in HASHES.items() for name in types]


@needs_threads
@pytest.mark.parametrize("module, name", FUNCTIONS)
def test_a_hash_of_bytes(module, name):
    function = getattr(needs_release(module), name)
    assert runs_beside_others(function, b"text" * 1000) == function(b"text" * 1000)
    assert runs_beside_others(function, memoryview(bytearray(b"text"))) == function(b"text") != function(b"other")

    def make():
        return bytearray(b"text"), memoryview(b"text")

    for use in lambda data, view: function(data), lambda data, view: function(memoryview(data)[1:]):
        assert meet(make, use, change) == CONFLICT
        assert meet(make, use, use) == APART
    assert meet(make, lambda data, view: function(view), change) == APART


@needs_threads
@pytest.mark.parametrize("module, name", TYPES)
def test_a_hash_in_steps(module, name):
    type_ = getattr(needs_release(module), name)

    def hashed(data):
        state = type_(data[:2])
        state.update(data[2:])
        return state.copy().digest()

    assert runs_beside_others(hashed, b"text" * 2000) == type_(b"text" * 2000).digest()
    shared = type_(b"te")
    runs_beside_others(shared.update, b"xt")
    assert runs_beside_others(shared.digest) == type_(b"tetextxt"[:2] + b"xt" * 2).digest()  # it has been called twice, in two transactions

    def make():
        return bytearray(b"text"), type_(b"te")

    def use(data, state):
        state.update(b"x")

    def read(data, state):
        return state.digest()

    for each in lambda data, state: type_(data), lambda data, state: type_().update(memoryview(data)):
        assert meet(make, each, change) == CONFLICT and meet(make, each, use) == APART
    assert meet(make, use, read) == meet(make, use, lambda data, state: state.copy()) == CONFLICT


@needs_threads
@pytest.mark.parametrize("module, name", TYPES)
def test_what_an_attempt_has_hashed_is_rolled_back(module, name):
    type_ = getattr(needs_release(module), name)

    class Sum:
        def __init__(self):
            self.state = type_(b"0")

    def add(found, n):
        found.state.update(b"%d" % n)
        return found.state.digest()

    def read(found):
        return found.state.copy().digest()

    for seed in range(10):
        testing.check_serializable(Sum, [(add, seed), (read,), (add, 1), (add, 2), (read,)], seed=seed, aborts=0.05)


@needs_threads
def test_what_of_hashes_is_not_declared_runs_alone(tmp_path):
    blake3 = needs_release("blake3")
    (tmp_path / "file").write_bytes(b"text")
    assert runs_alone(lambda: blake3.blake3().update_mmap(tmp_path / "file"))


@needs_threads
def test_mmh3_of_texts():
    mmh3 = needs_release("mmh3")
    for function in mmh3.hash, mmh3.hash64, mmh3.hash128, mmh3.hash_bytes:
        assert runs_beside_others(function, "text", 3) == function(b"text", seed=3)
        assert runs_beside_others(lambda: function(key="text", seed=3)) == function(b"text", 3)


@needs_threads
def test_uuid_utils_runs_beside_others():
    uuid_utils = needs_release("uuid_utils")
    from uuid_utils import compat

    for module in uuid_utils, compat:
        for name in "uuid1", "uuid4", "uuid6", "uuid7", "uuid8":
            found = runs_beside_others(lambda: [getattr(module, name)() for _ in range(3)])
            assert len(set(found)) == 3 and {each.version for each in found} == {int(name[4:])}
        namespace = module.NAMESPACE_DNS
        assert runs_beside_others(module.uuid5, namespace, "a") == module.uuid5(namespace, "a") != runs_beside_others(module.uuid3, namespace, "a")
        assert meet(lambda: (), module.uuid7, module.uuid7) == meet(lambda: (), module.uuid4, module.uuid1) == APART

    def used(text):
        found = uuid_utils.UUID(text)
        assert found == uuid_utils.UUID(hex=found.hex) == uuid_utils.UUID(bytes=found.bytes) == copy.deepcopy(found) != uuid_utils.NIL
        assert found > uuid_utils.NIL and {found: 1}[uuid_utils.UUID.from_int(int(found))] == 1
        return str(found), found.version, found.urn

    text = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    assert runs_beside_others(used, text) == (text, 1, f"urn:uuid:{text}")


@needs_threads
def test_a_name_that_uuid_utils_reads_nobody_changes_meanwhile():
    uuid_utils = needs_release("uuid_utils")
    namespace = uuid_utils.NAMESPACE_DNS
    for data in bytearray(b"name"), list(b"name"):
        assert runs_beside_others(uuid_utils.uuid5, namespace, data) == uuid_utils.uuid5(namespace, b"name")
        for each in uuid_utils.uuid3, uuid_utils.uuid5:
            assert meet(lambda: (copy.copy(data),), lambda data: each(namespace, data), change) == CONFLICT
            assert meet(lambda: (copy.copy(data),), lambda data: each(namespace, Numbers(data)), change) == CONFLICT
            assert meet(lambda: (copy.copy(data),), lambda data: each(namespace, b"name"), change) == APART


class Numbers:
    def __init__(self, data):
        self.data = data

    def __getitem__(self, i):
        return self.data[i]

    def __iter__(self):
        return iter(self.data)


@needs_threads
def test_jiter_runs_beside_others():
    jiter = needs_release("jiter")
    text = b'{"key": [1, 2.5, null, "text", "text"]}'
    assert runs_beside_others(jiter.from_json, text) == {"key": [1, 2.5, None, "text", "text"]}
    assert runs_beside_others(lambda: jiter.from_json(text, float_mode="decimal", cache_mode="keys"))["key"][1] == decimal.Decimal("2.5")
    (number,) = runs_beside_others(lambda: jiter.from_json(b"[1.50]", float_mode="lossless-float"))
    asked = runs_beside_others(lambda: (str(number), float(number), bytes(number), number.as_decimal()))
    assert asked == ("1.50", 1.5, b"1.50", decimal.Decimal("1.50"))
    assert runs_beside_others(lambda: float(jiter.LosslessFloat(list(b"1.5")))) == 1.5
    assert meet(lambda: (), lambda: jiter.from_json(text), lambda: jiter.from_json(text)) == APART
    assert meet(lambda: (list(b"1.5"),), lambda data: jiter.LosslessFloat(data), lambda data: data.reverse()) == CONFLICT
    with pytest.raises(ValueError):
        core.Transaction(jiter.from_json, (b'{"key',)).run()
    for argument in bytearray(text), memoryview(text), list(text):
        with pytest.raises(TypeError):  # else it would have to be declared otherwise
            jiter.from_json(argument)
    assert runs_alone(jiter.cache_clear)
