"""The interpreters that tests run programs on: this one, and what `make setup` has found with a GIL, one a minor version."""

import os
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from tornado.stm import core

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = Path(__file__).resolve().parent
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _environments():
    """{minor version: its interpreter}, the newest last."""
    if not FREE_THREADED:
        return {"{}.{}".format(*sys.version_info): sys.executable}
    found = {
        environment.name.removeprefix(".venv-gil-"): str(environment / "bin" / "python")
        for environment in ROOT.glob(".venv-gil-*") if os.access(environment / "bin" / "python", os.X_OK)
    }  # fmt: skip
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


WITH_A_GIL = _environments()

#: the newest with a GIL, or None
GIL = list(WITH_A_GIL.values())[-1] if WITH_A_GIL else None

needs_gil = pytest.mark.skipif(GIL is None, reason="no interpreter with a GIL")

#: for what the address sanitizer cannot bear: it reserves more memory than any limit, and takes a crash on purpose for one
not_sanitized = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="under the address sanitizer")
parallel_only = pytest.mark.skipif(not FREE_THREADED, reason="needs a free-threaded interpreter")


def needs_engine():
    """In a module of tests: all that follows is about transactions that run beside each other, or are rolled back."""
    if not core.PARALLEL:
        pytest.skip("transactions run one at a time", allow_module_level=True)


def without_report(stderr):
    """What a program wrote, without what it is told of that takes long, as any may on a busy machine."""
    lines = r"tornado\.stm: (\d+ transactions on|transactions ran one at a time|warning: (a callback has run for|[\d.]+ % of the time)).*\n"
    return re.sub(rf"^{lines}( +[\d.]+ % +\d+ times .*\n)*", "", stderr, flags=re.MULTILINE)


def has_gil(python):
    """Is this one of those with a GIL?"""
    return python in WITH_A_GIL.values()


def gil_parameters(*more):
    """A parameter for each of them, or one that is skipped; each with these values besides."""
    if not WITH_A_GIL:
        return [pytest.param(None, *more, id="gil", marks=needs_gil)]
    return [pytest.param(python, *more, id=f"gil-{version}") for version, python in WITH_A_GIL.items()]


_free_threaded = pytest.param(sys.executable, id="free-threaded", marks=parallel_only)

#: on both kinds: one that runs transactions in parallel, and the newest with a GIL
on_both = pytest.mark.parametrize("python", [_free_threaded, gil_parameters()[-1]])

#: on that one and all with a GIL: what depends on the version of asyncio, threading or the interpreter's end
on_each = pytest.mark.parametrize("python", [_free_threaded, *gil_parameters()])
