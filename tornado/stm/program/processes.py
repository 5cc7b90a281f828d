"""How a process has begun; and those that it has ``multiprocessing`` start anew begin likewise, as those do that are forked.

A process that is started by "spawn" or "forkserver" is a new interpreter, which knows of the one that started it only what that writes
to it.  Servers start their workers so, and the program where they reload it (Hypercorn, Sanic, uvicorn's ``--workers`` and
``--reload``), and they would run it without a word on asyncio's own loop.  So what is written says how this process has begun, and the
new one begins so when it imports asyncio: what only computes, as the workers of an executor do, pays nothing for it.
"""

import functools
import os
import sys
from typing import NamedTuple

from .. import conflictlog, core, effects
from ..loop import graceful
from ..patches import table
from . import parallelism, report, runner
from .imports import when_imported

SPAWN = "multiprocessing.spawn"


class Options(NamedTuple):
    """Of ``python -m tornado.stm``; the default is what `tornado.stm.install` does: nothing is reported.

    Declarations of `effects` files are known already in the process that the command has begun.
    """

    threads: int | None = None
    effects: tuple[str, ...] = ()  # absolute paths
    report: bool = False
    explain: bool = False
    quiet: bool = False


#: those in force
_options = Options()


def begin(options, child=False):
    """Install the loop, and what else `options` ask for, here and in the processes that are started from here on.

    Args:
        child: another process has begun so, and has started this one.

    Raises:
        ValueError: no such number of threads.
        RuntimeError: a loop is running.
    """
    global _options
    _options = options
    install(options.threads)
    if options.quiet:
        graceful.WHY_KILLED = None
    if options.report:
        report.Run(options.explain, child).begin()


def install(threads):
    """Install the loop with so many threads; all else stays as it is.  Raises what `begin` does."""
    global _options
    runner.install(threads)
    _options = _options._replace(threads=threads)
    # importing it at once would cost each program time, and each record of `logging` a look at the process' name
    when_imported(SPAWN, functools.partial(table.apply, "spawn"))
    if core.COMPILED:
        when_imported("_sqlite3", _note_connections)


def _note_connections():
    """What connections are given to call is noted from the first one on: many a program makes it before any loop."""
    from ..input_output import databases

    databases.begin()


def with_options(get_preparation_data):
    """For `multiprocessing.spawn.get_preparation_data`: what the new process reads first, and may know nothing of."""

    def get_preparation_data_and_how_to_begin(name):
        data = get_preparation_data(name)
        # another interpreter may have no tornado.stm
        if os.fsdecode(sys.modules[SPAWN].get_executable() or "") == sys.executable:
            data["tornado.stm"] = _BeginLikewise()
            if name == "ignore":  # for a server of forks, which would import the program before it has begun so
                data.pop("init_main_from_path", None)
        return data

    return get_preparation_data_and_how_to_begin


class _BeginLikewise:
    """Pickled, how this process has begun; when this is unpickled, another one is about to begin likewise.

    It finds this package where this process does, and where it does not, it goes on without.
    """

    def __reduce__(self):
        names = {"path": sys.path, "options": tuple(_options), "log": conflictlog.of_children()}
        return exec, (_IN_CHILD, names)


_IN_CHILD = """
import sys
sys.path[:] = path

def begin():
    from tornado.stm.program.processes import begin_likewise
    begin_likewise(options, log)

try:
    from tornado.stm.program.imports import when_imported
except ImportError:
    pass
else:
    when_imported("asyncio", begin)
"""


def begin_likewise(options, log):
    """In a process that multiprocessing has started: begin as the one that has started it, which has said what there was to say."""
    options = Options(*options)
    parallelism.say_no_more()
    for file in options.effects:
        effects.load(file)
    conflictlog.want_as_child(*log)
    begin(options, child=True)
