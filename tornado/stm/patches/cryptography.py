"""What cryptography's Rust code looks up in modules of Python is looked up before transactions need it.

It does so when it needs a class for the first time, in a lock of its own in which others wait who need it too.  A transaction that
holds this lock while a module is imported, or a module's attribute is set, would wait for those.
"""

import contextlib
import importlib
import sys

from ..core import trusted

PRIMITIVES = "cryptography.hazmat.primitives"
CIPHERS = f"{PRIMITIVES}.ciphers"
ASYMMETRIC = f"{PRIMITIVES}.asymmetric"


@trusted
def look_up(module):
    """This module of the library has been imported."""
    if module == "cryptography.hazmat.bindings._rust":
        importlib.import_module("cryptography.exceptions")
        importlib.import_module(f"{PRIMITIVES}.hashes")
    elif module == f"{CIPHERS}.base":
        algorithms, modes = sys.modules[f"{CIPHERS}.algorithms"], sys.modules[f"{CIPHERS}.modes"]
        # It is no mode with something of its own, so all others are looked up.
        sys.modules[module].Cipher(algorithms.AES(bytes(16)), modes.ECB()).encryptor()
    elif module == f"{ASYMMETRIC}.padding":
        padding, algorithm = sys.modules[module], _sha256()
        key = sys.modules["cryptography.hazmat.bindings._rust"].openssl.rsa.RSAPublicNumbers(3, 2**1023 + 1).public_key()
        _verify_nothing(key, padding.PSS(padding.MGF1(algorithm), algorithm.digest_size), algorithm)
    elif module == f"{ASYMMETRIC}.ec":
        ec = sys.modules[module]
        _verify_nothing(ec.generate_private_key(ec.SECP256R1()).public_key(), ec.ECDSA(_sha256()))


def _sha256():
    return sys.modules[f"{PRIMITIVES}.hashes"].SHA256()


def _verify_nothing(key, *how):
    """To find out that this is no signature all is looked up that making and verifying one need."""
    importlib.import_module(f"{ASYMMETRIC}.utils")
    with contextlib.suppress(sys.modules["cryptography.exceptions"].InvalidSignature):
        key.verify(b"", b"", *how)
