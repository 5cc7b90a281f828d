"""The ways to run a workload: upstream Tornado as people run it, and tornado.stm."""

import os
import shutil
import sys
from dataclasses import dataclass

from stm_bench.errors import BenchmarkError
from stm_bench.servers import ROOT, probe


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        name: what tables call it.
        kind: "plain" (upstream, one loop), "processes" (of which each has a loop and its share of the clients), "executor" (the function that
            computes runs on threads, under a lock where requests share what changes), "loops" (one on each thread, listening on one port, under
            the same lock), "stm" (tornado.stm), "pinned" (the same, each thread bound to a processor of its own).
        count: of processes or threads.
        python: the interpreter's executable.
    """

    name: str
    kind: str
    count: int = 1
    python: str = sys.executable

    @property
    def short(self):
        """What the heading of a narrow column calls it."""
        if self.kind == "plain":
            return "PyPy" if self.compiles else "GIL" if self.python != sys.executable else "upstream"
        names = {"processes": "%d processes", "executor": "executor, %d", "loops": "%d loops", "stm": "stm, %d", "pinned": "pinned, %d"}
        return names[self.kind] % self.count + (", GIL" if self.kind == "stm" and self.python != sys.executable else "")

    @property
    def compiles(self):
        """Does a just-in-time compiler make it faster for its first seconds?"""
        return "PyPy" in self.name

    @property
    def is_ours(self):
        return self.kind in ("stm", "pinned")


def all_ways(threads):
    """The ways, upstream on this interpreter first; and notes on those that cannot be had here.

    Args:
        threads: the numbers of threads for tornado.stm; the largest is that of processes and of upstream's threads, too.
    """
    most = max(threads)
    here = probe(sys.executable)
    ways, notes = [Way("upstream", "plain")], []
    pypy = ROOT / ".venv-pypy" / "bin" / "python"
    gil = ROOT / ".venv-gil" / "bin" / "python"
    for what, python in (("a CPython with a GIL", gil), ("PyPy", pypy if pypy.exists() else shutil.which("pypy3"))):
        try:
            if python is None or not os.path.exists(python):
                raise BenchmarkError("not found")
            ways.append(Way("upstream, %s" % probe(str(python)), "plain", python=str(python)))
        except BenchmarkError as error:
            notes.append("nothing on %s: %s" % (what, error))
    if most > 1:
        ways += [
            Way("upstream, %d processes" % most, "processes", most),
            Way("upstream, %d threads of an executor" % most, "executor", most),
            Way("upstream, a loop on each of %d threads" % most, "loops", most),
        ]
    ways += [Way("tornado.stm, %d thread%s" % (count, "s" * (count > 1)), "stm", count) for count in threads]
    if most > 1:
        ways.append(Way("tornado.stm, %d threads, pinned" % most, "pinned", most))
    if any(way.python == str(gil) for way in ways):
        ways.append(Way("tornado.stm, with a GIL", "stm", 1, str(gil)))
    if not here.free_threaded:
        notes.append("this interpreter has a GIL: tornado.stm runs one transaction at a time on it")
    return ways, notes
