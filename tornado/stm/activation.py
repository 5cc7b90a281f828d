"""The engine is made ready: its tables are filled, and what is changed in libraries is changed."""

import functools
import itertools
import os
import site
import threading

from . import conflictlog, core
from .c_functions import seeds
from .core import once

if core.COMPILED:
    from . import _engine, rebound
    from .c_functions import effects, libraries, trees, twins
    from .input_output import databases, files, output, sockets
    from .patches import argon2, asyncpg, bson, cryptography, fibers, finalizers, numpy, pillow, table, threads, warned, zmq  # noqa: F401, the table names most
    from .patches import libraries as library_patches  # noqa: F401, likewise

    try:
        from .input_output import tls
    except ImportError:  # an interpreter without OpenSSL
        tls = None

    #: C callable -> the Python function that stands in for it
    TWINS = (
        twins.TWINS | threads.TWINS | output.TWINS | files.TWINS | sockets.TWINS | (tls.TWINS if tls is not None else {})
    )


class Plain:
    """A class like those of programs, for the engine to compare others with."""


#: modules of other libraries of which something is changed
CHANGED = {module for patch in table.patches("libraries") for module in patch.modules} if core.COMPILED else ()


def change_library(module):
    """What is changed in other libraries when this module of one has been imported: servers may import applications while a loop runs.

    What the engine knows of C code may hold with these changes only.
    """
    if module in CHANGED:
        table.apply("libraries")
    library = module.partition(".")[0]
    if library in table.PATCHES and libraries.covers(library):
        table.apply(library)
    if library == "argon2" and all(itertools.starmap(libraries.is_installed, argon2.READ)):
        table.apply(library)
    if library == "_sqlite3":
        databases.begin()
    if library == "_elementtree":
        trees.begin_elements()
    if library == "pyexpat":
        trees.begin_expat()
    if library == "cryptography" and libraries.covers(library):
        cryptography.look_up(module)


def libraries_at():
    """What the names of files begin with that are not the program's own."""
    # Not sysconfig's: it would load what the interpreter was built with, at each start.
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = {os.path.join(folder, "") for folder in (os.path.dirname(os.__file__), *site.getsitepackages(), *users)}
    return (*sorted(folders), "<frozen ", "<attrs generated ")


@once
def activate():
    """Make the engine ready, and have Python code run on its loop.  Called before transactions run."""
    if core.COMPILED:
        table.apply("engine")  # it finds what has been imported above
        effects.register(TWINS, twins.WITH_BARRIERS, twins.INSTANCE_TWINS)
        libraries.begin(change_library)
        _engine.configure(rebound.see_globals, Plain, threading.main_thread().ident)
        _engine.hide_frames(core.FOLDER, "")
        _engine.libraries_are_in(libraries_at())
        _engine.holds(functools.partial, "func")
        _engine.begin_loop()
    conflictlog.begin()


#: what is called when transactions are about to run
at_runs = []


def begin_run():
    """Transactions are about to run, of a program that may have seeded the module's random numbers since they last did."""
    for function in at_runs:
        function()
    if core.COMPILED and seeds.seeded():
        _engine.register_unordered(None)
    core.begin_collecting()


def end_run():
    """They have run, and may have drawn any number of them."""
    core.end_collecting()
    if core.COMPILED:
        seeds.note()
