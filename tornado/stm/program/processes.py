"""How a process has begun; and those that it has ``multiprocessing`` start anew begin likewise, as those do that are forked.

A process that is started by "spawn" or "forkserver" is a new interpreter, which knows of the one that started it only what that writes
to it.  Servers start their workers so, and the program where they reload it (Hypercorn, Sanic, uvicorn's ``--workers`` and
``--reload``), and they would run it without a word on asyncio's own loop.  So what is written says how this process has begun, and the
new one begins so as it reads that, before it imports the program.
"""

import importlib.machinery
import os
import sys
from typing import NamedTuple

from .. import conflictlog, effects, transaction
from ..loop import graceful
from ..patches import table
from . import parallelism, report, runner

SPAWN = "multiprocessing.spawn"


class Options(NamedTuple):
    """Of ``python -m tornado.stm``; without a `report` nobody has asked for more than the loop (`tornado.stm.install`).

    Declarations of `effects` files are known already in the process that the command has begun.
    """

    threads: int | None = None
    effects: tuple[str, ...] = ()  # absolute paths
    report: bool = False
    explain: bool = False
    quiet: bool = False


def begin(options, child=False):
    """Install the loop, and what else `options` ask for, here and in the processes that are started from here on.

    Args:
        child: another process has begun so, and has started this one.

    Raises:
        ValueError: no such number of threads.
        RuntimeError: a loop is running.
    """
    runner.install(options.threads)
    if options.quiet:
        graceful.WHY_KILLED = None
    if options.report:
        report.Run(transaction.getsegmentlimit(), options.explain, child).begin()
    _Finder.options = options
    if SPAWN in sys.modules:
        table.apply("spawn")
    elif _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds `multiprocessing.spawn` as Python does; when it has been imported, it is changed.

    Importing it at once would cost each program time, and each record of `logging` a look at the process' name.
    """

    #: of the last `begin`
    options = Options()

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != SPAWN:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        table.apply("spawn")


def telling(get_preparation_data):
    """For `multiprocessing.spawn.get_preparation_data`: what the new process reads first, and may know nothing of."""

    def get_preparation_data_and_how_to_begin(name):
        data = get_preparation_data(name)
        # another interpreter may have no tornado.stm
        if os.fsdecode(sys.modules[SPAWN].get_executable() or "") == sys.executable:
            data["tornado.stm"] = _Likewise(_Finder.options, conflictlog.of_children())
        return data

    return get_preparation_data_and_how_to_begin


class _Likewise:
    """Pickled, how a process has begun; when this is unpickled, another one begins likewise."""

    def __init__(self, *how):
        self._how = how

    def __reduce__(self):
        return begin_likewise, self._how


def begin_likewise(options, log):
    """In a process that multiprocessing has started: begin as the one that has started it, which has said what there was to say."""
    parallelism.say_no_more()
    for file in options.effects:
        effects.load(file)
    conflictlog.want_as_child(*log)
    begin(options, child=True)
