"""The compiled engine for exactly this interpreter, in the place of this module.

Its evaluation loop is made from the source of one version of CPython, and relies on structures that change from one micro
version to the next.  So there is a file for each version, and for one that has none an ImportError.
"""

import importlib.util
import platform
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from .placement import near_the_interpreter

FILE = Path(__file__).with_name(f"_engine-{platform.python_version()}{EXTENSION_SUFFIXES[0]}")

if not FILE.exists():
    raise ImportError(
        f"there is no engine for CPython {platform.python_version()} (install tornado-stm from its source, with STM_SOURCE "
        "naming the folder of that CPython's)",
        name=__name__,
    )
_spec = importlib.util.spec_from_file_location(__name__, FILE)
with near_the_interpreter():
    sys.modules[__name__] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
