"""What tornado-stm installs beside upstream's tornado, and how its engine is compiled.  Metadata: pyproject.toml.

The distribution is an overlay.  It owns `tornado/stm` and nothing else below `tornado`: upstream's package is the parent.
The package is therefore mapped by its full name; with a mapping of the root, an editable install would put the
repository itself on the path, where upstream's package never looks for a subpackage.

`tornado/platform/pypystm.py` is for PyPy-STM, that is, Python 2.7 and Tornado 4.  There, nothing else is installed; on
Python 3 it travels only in the source distribution.  So this file must run on both.
"""

import os
import re
import sys
import sysconfig
from glob import glob

from setuptools import Distribution, Extension, find_packages, setup
from setuptools.command.sdist import sdist

PACKAGE = "tornado/stm"
SOURCES = sorted(glob(PACKAGE + "/engine/*.c"))
HEADERS = sorted(glob(PACKAGE + "/engine/*.h"))
LOOP = "interpreter"  # what builds the engine with an evaluation loop of its own; not installed

COMPILE = [
    "-O3",
    "-std=c11",
    "-fno-strict-aliasing",  # the interpreter's own structures are read through several types
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",  # a thread's transaction is one load away, without a call
    "-DPy_BUILD_CORE_MODULE=1",  # frames and generators are only in CPython's internal headers
]
SANITIZERS = {  # by the value of STM_SANITIZE
    "": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"],
    "thread": ["-fsanitize=thread", "-fno-omit-frame-pointer", "-g"],
}


def engine():
    """The compiled core: only where threads run in parallel, so that other interpreters need no compiler."""
    if not (SOURCES and sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info >= (3, 14)):
        return []
    sanitizer = os.environ.get("STM_SANITIZE", "")
    if sanitizer not in SANITIZERS:
        sys.exit("STM_SANITIZE is %r: it can be 'address' or 'thread'" % sanitizer)
    sanitize = SANITIZERS[sanitizer]
    return [
        Extension(
            "tornado.stm._engine",
            SOURCES,
            depends=HEADERS,
            include_dirs=[PACKAGE + "/engine", os.path.join(sysconfig.get_path("include"), "internal")],
            extra_compile_args=COMPILE + sanitize,
            extra_link_args=sanitize,
        )
    ]


class Overlay(Distribution):
    """Tagged for one interpreter even without the engine: pip must not install that wheel where the engine belongs."""

    def has_ext_modules(self):
        return True


class SourceDistribution(sdist):
    """Holds the engine's sources and the PyPy-STM loop too, whichever interpreter makes it."""

    def make_distribution(self):
        self.filelist.extend(SOURCES + HEADERS + glob(PACKAGE + "/" + LOOP + "/*.*") + glob("tornado/platform/pypystm.py"))
        super().make_distribution()


def project(key):
    """A string of pyproject.toml's table [project], which the setuptools of Python 2.7 does not read."""
    with open("pyproject.toml") as file:
        return re.search('^%s = "(.*)"$' % key, file.read(), re.MULTILINE).group(1)


if sys.version_info < (3,):
    setup(
        name=project("name"),
        version=project("version"),
        description=project("description"),
        license=project("license"),
        python_requires="==2.7.*",
        install_requires=["tornado>=4.0,<5"],
        py_modules=["tornado.platform.pypystm"],
    )
else:
    setup(
        packages=["tornado.stm"] + ["tornado.stm." + name for name in find_packages(PACKAGE, exclude=[LOOP])],
        package_dir={"tornado.stm": PACKAGE},
        include_package_data=False,
        ext_modules=engine(),
        distclass=Overlay,
        cmdclass={"sdist": SourceDistribution},
    )
