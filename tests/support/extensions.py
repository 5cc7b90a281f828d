"""Extension modules that tests compile."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest


def compile_extension(folder, name, text):
    """Into the folder; where there is no compiler the test is skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("needs a C compiler and Python's headers")
    (folder / "module.c").write_text(text)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-I", sysconfig.get_path("include"), "module.c", "-o", name + sysconfig.get_config_var("EXT_SUFFIX")],
        cwd=folder, check=True, timeout=100,
    )  # fmt: skip
