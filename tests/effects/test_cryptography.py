"""cryptography: hashes, ciphers and derived keys."""

import base64
import contextlib
import functools
import hashlib
import hmac
import random
import subprocess
import sys
import types

import pytest

from beside import needs_release, runs_alone, runs_beside_others
from meeting import APART, CONFLICT, meet
from tornado.stm import core, testing

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


@pytest.fixture
def crypto():
    """What is used of it, by its names."""
    needs_release("cryptography")
    from cryptography import exceptions, fernet
    from cryptography.hazmat.primitives import constant_time, hashes, hmac, padding, poly1305, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mlkem, rsa, utils, x25519
    from cryptography.hazmat.primitives.asymmetric import padding as signing
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


def tagged(crypto):
    code = crypto.poly1305.Poly1305(KEY)
    code.update(b"te")
    code.update(memoryview(b"xt"))
    tag = crypto.poly1305.Poly1305.generate_tag(KEY, bytearray(b"text"))
    crypto.poly1305.Poly1305.verify_tag(KEY, b"text", tag)
    with pytest.raises(crypto.exceptions.InvalidSignature):
        crypto.poly1305.Poly1305.verify_tag(KEY, b"test", tag)
    return code.finalize() == tag


def exchanged(crypto):
    """As SSH and TLS do it."""
    X, Y = crypto.x25519.X25519PrivateKey, crypto.x25519.X25519PublicKey
    mine, other = X.generate(), X.from_private_bytes(KEY)
    assert other.private_bytes_raw() == KEY
    assert mine.exchange(Y.from_public_bytes(other.public_key().public_bytes_raw())) == other.exchange(mine.public_key())
    for private, public in (
        (crypto.mlkem.MLKEM768PrivateKey, crypto.mlkem.MLKEM768PublicKey),
        (crypto.mlkem.MLKEM1024PrivateKey, crypto.mlkem.MLKEM1024PublicKey),
    ):
        key = private.from_seed_bytes(private.generate().private_bytes_raw())
        secret, text = public.from_public_bytes(key.public_key().public_bytes_raw()).encapsulate()
        assert key.decapsulate(memoryview(text)) == secret
    E = crypto.ed25519
    key = E.Ed25519PrivateKey.from_private_bytes(bytearray(KEY))
    E.Ed25519PublicKey.from_public_bytes(key.public_key().public_bytes_raw()).verify(key.sign(b"text"), b"text")
    return key.private_bytes_raw() == KEY


@functools.cache
def keys():
    """Of two parts, as bytes: RSA's, that of a curve, Ed25519's."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    made = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return [key.private_bytes(*forms) for key in made]


def signed(crypto):
    rsa, ec, ed25519 = (crypto.serialization.load_pem_private_key(key, None) for key in keys())
    SHA256, signing = crypto.hashes.SHA256, crypto.signing
    digest = SHA256()
    ways = [
        (rsa, signing.PKCS1v15(), digest),
        (rsa, signing.PSS(signing.MGF1(digest), 32), digest),
        (rsa, signing.PSS(mgf=signing.MGF1(digest), salt_length=signing.PSS.MAX_LENGTH), crypto.utils.Prehashed(digest)),
        (ec, crypto.ec.ECDSA(digest)),
        (ec, crypto.ec.ECDSA(crypto.utils.Prehashed(digest))),
        (ed25519,),
    ]
    for key, *how in ways:
        signature = key.sign(bytes(32), *how)
        key.public_key().verify(signature, memoryview(bytearray(32)), *how)
        with pytest.raises(crypto.exceptions.InvalidSignature):
            key.public_key().verify(signature, b"x" * 32, *how)
    crypto.utils.encode_dss_signature(*crypto.utils.decode_dss_signature(ec.sign(b"text", crypto.ec.ECDSA(digest))))
    numbers = rsa.public_key().public_numbers()
    secret = crypto.rsa.RSAPublicNumbers(numbers.e, numbers.n).public_key().encrypt(b"text", signing.OAEP(signing.MGF1(digest), digest, None))
    crypto.ec.generate_private_key(crypto.ec.SECP384R1()), crypto.ed25519.Ed25519PrivateKey.generate()
    return rsa.key_size == 2048 and rsa.decrypt(secret, signing.OAEP(signing.MGF1(digest), digest, None))


def in_tokens(crypto):
    jwt = sys.modules["jwt"]
    rsa, ec, ed25519 = keys()
    for name, key in ("HS256", b"k" * 32), ("RS256", rsa), ("PS256", rsa), ("ES256", ec), ("EdDSA", ed25519):
        token = jwt.encode({"sub": "text"}, key, name)
        public = key if name == "HS256" else crypto.serialization.load_pem_private_key(key, None).public_key()
        assert jwt.decode(token, public, [name]) == {"sub": "text"}
    return True


@needs_threads
@pytest.mark.parametrize("use", [
    encrypted, encrypted_by_one_of_two, hashed, authenticated, tagged, ciphered, padded, sealed, derived, signed, exchanged, in_tokens,
])  # fmt: skip
def test_cryptography_runs_beside_others(crypto, use):
    if use is in_tokens:
        pytest.importorskip("jwt", reason="PyJWT is not installed")
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
    lambda crypto, data, cipher: crypto.poly1305.Poly1305(data),
    lambda crypto, data, cipher: crypto.poly1305.Poly1305.generate_tag(KEY, data),
    lambda crypto, data, cipher: crypto.x25519.X25519PrivateKey.from_private_bytes(data),
    lambda crypto, data, cipher: crypto.ed25519.Ed25519PrivateKey.from_private_bytes(memoryview(data)),
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


@needs_threads
@pytest.mark.parametrize("use", [
    lambda crypto, rsa, ec, ed25519, data, padding: rsa.sign(data, crypto.signing.PKCS1v15(), crypto.hashes.SHA256()),
    lambda crypto, rsa, ec, ed25519, data, padding: rsa.sign(b"text", padding, crypto.hashes.SHA256()),
    lambda crypto, rsa, ec, ed25519, data, padding: ec.sign(memoryview(data), crypto.ec.ECDSA(crypto.hashes.SHA256())),
    lambda crypto, rsa, ec, ed25519, data, padding: ed25519.sign(data),
    lambda crypto, rsa, ec, ed25519, data, padding: ed25519.public_key().verify(ed25519.sign(b"text"), data),
], ids=["rsa", "padding", "ec", "ed25519", "verified"])  # fmt: skip
def test_what_is_signed_and_how_nobody_changes_meanwhile(crypto, use):
    def make():
        mgf = crypto.signing.MGF1(crypto.hashes.SHA256())
        keys_made = [crypto.serialization.load_pem_private_key(key, None) for key in keys()]
        return crypto, *keys_made, bytearray(b"text"), crypto.signing.PSS(mgf, 32)

    def sign(*what):
        with contextlib.suppress(crypto.exceptions.InvalidSignature):
            use(*what)

    def change(crypto, rsa, ec, ed25519, data, padding):
        data[1] = 7
        padding._mgf._algorithm = crypto.hashes.SHA512()

    assert meet(make, sign, change) == CONFLICT
    assert meet(make, sign, sign) == APART


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
    assert subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, text=True, timeout=100).stdout == "done\n"
