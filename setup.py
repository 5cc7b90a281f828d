"""What tornado-stm installs beside upstream's tornado, and how its engine is compiled.  Metadata: pyproject.toml.

The distribution is an overlay.  It owns `tornado/stm` and nothing else below `tornado`: upstream's package is the parent.
The package is therefore mapped by its full name; with a mapping of the root, an editable install would put the
repository itself on the path, where upstream's package never looks for a subpackage.

Where the interpreter is profile-guided (as distributed ones are, and with PGO=1), so is the engine: it is built twice and run in
between (interpreter/training.py), which needs Tornado.  PGO=0 keeps it from that, PGO=1 asks for it anyway, as `make wheels` does.

The engine has an evaluation loop that is made from CPython's source, one for each micro version: STM_SOURCE names the folders of
those sources (several as in PATH), or else the one for this interpreter is used that `make setup` has left in its cache.

There are two kinds of wheels, for pip to choose between by their tags, and `make wheels` makes both.  That of a free-threaded
interpreter has the engines, and is for systems whose C library is as new as they need (`Wheel`).  STM_PURE=1 makes the other, of
Python alone, for all interpreters with a GIL.

`tornado/platform/pypystm.py` is for PyPy-STM, that is, Python 2.7 and Tornado 4.  There, nothing else is installed; on
Python 3 it travels only in the source distribution.  So this file must run on both.
"""

import os
import platform
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
INSTEAD = "use a free-threaded CPython 3.14 (python3.14t), or for one thread a CPython 3.11 or later with a GIL"

#: Where the wheel without an engine goes: by the tag of the stable ABI, which all CPythons with a GIL have from 3.11 on, and neither a
#: free-threaded one nor PyPy.  With "none-any" they would take it too: where no wheel with an engine fits, threads would run one at a time
#: and nobody would have been told.  As there is no such tag for all platforms, these are named; elsewhere pip takes the source.
PURE_TAG = "cp311", "abi3", "manylinux_2_5_x86_64.manylinux_2_17_aarch64.musllinux_1_1_aarch64.musllinux_1_1_x86_64"

#: what a checkout has, besides the files that setuptools knows of; and which of that is made by running things
SHIPPED = [
    "Makefile", "CONTRIBUTING.rst", "CHANGELOG.rst", ".gitignore", ".editorconfig", ".clang-format", ".pre-commit-config.yaml", ".ci",
    "docs", "scripts", "stm_bench", "tests", "tornado",
]
MADE = re.compile(r"__pycache__/|\.(?:so|o|py[co])$|/stm\.log[^/]*$")

SANITIZERS = {  # by the value of STM_SANITIZE
    "": [],
    "address": ["-UNDEBUG", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"],
    "thread": ["-UNDEBUG", "-fsanitize=thread", "-fno-omit-frame-pointer", "-g"],
}


def refuse(why):
    sys.stderr.write("setup: %s\n" % why)
    sys.exit(2)


def unusable(implementation, version, free_threaded):
    """Why there can be no tornado-stm on such an interpreter, and what to do; None if there can."""
    this = "%s %d.%d" % ((implementation,) + tuple(version[:2]))
    if implementation != "CPython":
        return "tornado-stm is for CPython, and this is %s: %s" % (this, INSTEAD)
    if version < (3, 11):
        return "tornado-stm needs Python 3.11, and this is %s: %s" % (this, INSTEAD)
    if free_threaded and version < (3, 14):
        return "the engine needs CPython 3.14, and this is a free-threaded %s: %s" % (this, INSTEAD)
    return None


def is_free_threaded():
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_pure():
    """Is the wheel for interpreters with a GIL to be made, whichever interpreter makes it?"""
    named = os.environ.get("STM_PURE", "")
    if named not in ("", "0", "1"):
        refuse("STM_PURE is %r: it can be 0 or 1" % named)
    return named == "1"


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


def engine_builder():
    """What compiles engines: it is part of no package, as tornado.stm need not be installed yet."""
    sys.path.insert(0, os.path.abspath(PACKAGE))
    from interpreter import build

    return build


class Engine(build_ext):
    """Compiles the engines: only where threads run in parallel, so that other interpreters need no compiler."""

    def run(self):
        if is_pure() or not is_free_threaded():
            return
        builder = engine_builder()
        sources = folders_of_sources()
        if not sources:
            sys.stderr.write("setup: no engine: name the folder of CPython's unpacked source with STM_SOURCE\n")
        target = PACKAGE if self.inplace or self.editable_mode else os.path.join(self.build_lib, PACKAGE)
        os.makedirs(target, exist_ok=True)
        output = os.path.join("build", "engine-" + sanitizer() if sanitizer() else "engine")
        for source in builder.own_version_first(sources):
            try:
                if sanitizer() or not wants_guided(builder.is_guided()):
                    made = str(builder.build(source, output, SANITIZERS[sanitizer()]))
                else:
                    made = str(builder.build_guided(source, output))
            except builder.BuildError as e:
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
    """Holds all that a checkout has, so that `make test` works in it; the same, whichever interpreter makes it."""

    def make_distribution(self):
        for name in SHIPPED:
            self.filelist.extend([name] if os.path.isfile(name) else [
                os.path.join(folder, file)
                for folder, _, files in sorted(os.walk(name)) for file in sorted(files)
                if not MADE.search(os.path.join(folder, file))
            ])
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
    why_not = unusable(platform.python_implementation(), sys.version_info, is_free_threaded())
    if why_not:
        refuse(why_not)

    from setuptools.command.bdist_wheel import bdist_wheel  # the setuptools of Python 2.7 has none

    class Wheel(bdist_wheel):
        """Tagged for what is in it.

        With engines, "linux_x86_64" would be true of this machine only, and no index takes it: what they need of the C library says which
        other systems can load them, and if that is all that they need, the wheel has the tag of those (PEP 600).
        """

        def get_tag(self):
            if is_pure():
                return PURE_TAG
            python, abi, platform_tag = super().get_tag()
            engines = glob(os.path.join(self.get_finalized_command("build").build_lib, PACKAGE, "_engine-*.so"))
            if engines:
                platform_tag = engine_builder().manylinux(engines) or platform_tag
            return python, abi, platform_tag

    setup(
        packages=["tornado.stm"] + ["tornado.stm." + name for name in find_packages(PACKAGE, exclude=[LOOP])],
        package_dir={"tornado.stm": PACKAGE},
        package_data={"tornado.stm": ["py.typed", "*.pyi"], "tornado.stm.c_functions.libraries": ["*.effects"]},
        include_package_data=False,
        distclass=Overlay,
        cmdclass={"build_ext": Engine, "bdist_wheel": Wheel, "sdist": SourceDistribution},
    )
