"""What tornado-stm installs beside upstream's tornado, and how its engine is compiled.  Metadata: pyproject.toml.

The distribution is an overlay.  It owns `tornado/stm` and nothing else below `tornado`: upstream's package is the parent.
The package is therefore mapped by its full name; with a mapping of the root, an editable install would put the
repository itself on the path, where upstream's package never looks for a subpackage.

Where the interpreter is profile-guided (as distributed ones are, and with PGO=1), so is the engine: it is built twice and run in
between (interpreter/training.py), which needs Tornado.  PGO=0 keeps it from that, PGO=1 asks for it anyway.

The engine has an evaluation loop that is made from CPython's source, one for each micro version: STM_SOURCE names the folders of
those sources (several as in PATH), or else the one for this interpreter is used that `make setup` has left in its cache.

`tornado/platform/pypystm.py` is for PyPy-STM, that is, Python 2.7 and Tornado 4.  There, nothing else is installed; on
Python 3 it travels only in the source distribution.  So this file must run on both.
"""

import os
import re
import shutil
import sys
import sysconfig
from glob import glob

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

PACKAGE = "tornado/stm"
LOOP = "interpreter"  # what builds the engine; not installed
SOURCES = [PACKAGE + "/" + name for name in ("engine/*.[ch]", "engine/*/*.[cdh]*", LOOP + "/*.*")]

SANITIZERS = {  # by the value of STM_SANITIZE
    "": [],
    "address": ["-UNDEBUG", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"],
    "thread": ["-UNDEBUG", "-fsanitize=thread", "-fno-omit-frame-pointer", "-g"],
}


def refuse(why):
    sys.stderr.write("setup: %s\n" % why)
    sys.exit(2)


def sanitizer():
    name = os.environ.get("STM_SANITIZE", "")
    if name not in SANITIZERS:
        refuse("STM_SANITIZE is %r: it can be 'address' or 'thread'" % name)
    return name


def wants_guided(default):
    """Is the engine to be compiled for what programs do?  PGO says so, or else it is as the interpreter was."""
    named = os.environ.get("PGO", "")
    if named not in ("", "0", "1"):
        refuse("PGO is %r: it can be 0 or 1" % named)
    return named == "1" or (not named and default)


def folders_of_sources():
    """Where CPython's sources are that an engine is built from."""
    named = os.environ.get("STM_SOURCE")
    if named:
        return named.split(os.pathsep)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "tornado-stm", "src", "Python-%d.%d.%d" % sys.version_info[:3])
    return [folder] if os.path.exists(os.path.join(folder, "Include", "patchlevel.h")) else []


class Engine(build_ext):
    """Compiles the engines: only where threads run in parallel, so that other interpreters need no compiler."""

    def run(self):
        if not (sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info >= (3, 14)):
            return
        sys.path.insert(0, os.path.abspath(PACKAGE))
        from interpreter.build import BuildError, build, build_guided, is_guided

        sources = folders_of_sources()
        if not sources:
            sys.stderr.write("setup: no engine: name the folder of CPython's unpacked source with STM_SOURCE\n")
        target = PACKAGE if self.inplace or self.editable_mode else os.path.join(self.build_lib, PACKAGE)
        os.makedirs(target, exist_ok=True)
        output = os.path.join("build", "engine-" + sanitizer() if sanitizer() else "engine")
        for source in sources:
            try:
                if sanitizer() or not wants_guided(is_guided()):
                    made = str(build(source, output, SANITIZERS[sanitizer()]))
                else:
                    made = str(build_guided(source, output))
            except BuildError as e:
                refuse(e)
            # not over one that a process may have in use
            shutil.copy2(made, os.path.join(target, ".engine.new"))
            os.replace(os.path.join(target, ".engine.new"), os.path.join(target, os.path.basename(made)))

    def get_source_files(self):
        return []

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class Overlay(Distribution):
    """Tagged for one interpreter even without the engine: pip must not install that wheel where the engine belongs."""

    def has_ext_modules(self):
        return True


class SourceDistribution(sdist):
    """Holds the engine's sources and the PyPy-STM loop too, whichever interpreter makes it."""

    def make_distribution(self):
        patterns = SOURCES + ["tornado/platform/pypystm.py"]
        self.filelist.extend(sorted(path for pattern in patterns for path in glob(pattern)))
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
        package_data={"tornado.stm": ["py.typed", "*.pyi"], "tornado.stm.c_functions.libraries": ["*.effects"]},
        include_package_data=False,
        distclass=Overlay,
        cmdclass={"build_ext": Engine, "sdist": SourceDistribution},
    )
