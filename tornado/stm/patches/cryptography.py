"""What cryptography's Rust code looks up in modules of Python is looked up before transactions need it.

It does so when it needs a class for the first time, in a lock of its own in which others wait who need it too.  A transaction that
holds this lock while a module is imported, or a module's attribute is set, would wait for those.
"""

import importlib
import sys

from ..core import trusted

CIPHERS = "cryptography.hazmat.primitives.ciphers"


@trusted
def look_up(module):
    """This module of the library has been imported."""
    if module == "cryptography.hazmat.bindings._rust":
        importlib.import_module("cryptography.exceptions")
        importlib.import_module("cryptography.hazmat.primitives.hashes")
    elif module == f"{CIPHERS}.base":
        algorithms, modes = sys.modules[f"{CIPHERS}.algorithms"], sys.modules[f"{CIPHERS}.modes"]
        # It is no mode with something of its own, so all others are looked up.
        sys.modules[module].Cipher(algorithms.AES(bytes(16)), modes.ECB()).encryptor()
