"""Suites that nobody here wrote, run with each test as a transaction: do they come out as without transactions?

CPython's own tests know the language's corners better than we do.  Each of their modules runs in three processes: plainly,
with each test as a transaction on two threads, and, where asked for, once more with aborts injected at random barriers, so
that bodies are rolled back and run again at any point.  Every test must come out as it does plainly.  What cannot is listed
in ``differences.txt``, one by one, with the reason.

    python -m tests.suites [--inject RATE] [--seed N] [MODULE...]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: the modules of the interpreter's package ``test`` that `make suites` runs
MODULES = """
    test_list test_dict test_set test_deque test_generators test_coroutines test_heapq test_json test_re test_collections
    test_functools test_itertools test_copy test_dataclasses test_enum test_contextlib
""".split()

TIMEOUT = 600  # seconds for one module in one process


@dataclass
class Run:
    """What became of the tests of a module in one process.

    `outcomes` has what unittest told of each test, `traces` the tracebacks of what it raised, `exclusive` the tests that
    ended alone; `end` is None, or says how the process ended if it did not do so by itself.
    """

    outcomes: dict = field(default_factory=dict)
    traces: dict = field(default_factory=dict)
    exclusive: set = field(default_factory=set)
    stats: dict = field(default_factory=dict)
    end: str | None = None
    output: str = ""

    @property
    def reasons(self):
        """Why tests had to run alone, as a Counter of (why, place)."""
        return Counter(self.stats.get("exclusive_reasons", {}))


@dataclass
class Comparison:
    """A module's tests plainly and as transactions, and which of the differences are listed."""

    module: str
    plain: Run
    ours: Run
    listed: dict

    @property
    def differing(self):
        """The tests that come out differently: name → (plainly, as a transaction)."""
        plain, ours = self.plain.outcomes, self.ours.outcomes
        return {
            name: (plain.get(name), ours.get(name))
            for name in sorted(plain.keys() | ours.keys())
            if plain.get(name) != ours.get(name)
        }

    @property
    def unlisted(self):
        """The differences that nobody has explained."""
        return {name: pair for name, pair in self.differing.items() if reason(self.listed, name) is None}

    @property
    def settled(self):
        """The patterns of the list that tests of this module match, none of which comes out differently."""
        return [
            pattern for pattern in self.listed
            if any(matches(pattern, name) for name in self.plain.outcomes)
            and not any(matches(pattern, name) for name in self.differing)
        ]

    @property
    def good(self):
        """Does the module behave as it does plainly, but for what is listed?"""
        return not (self.unlisted or self.plain.end or self.ours.end) and bool(self.plain.outcomes)


def compare(module, inject=0.0, seed=0, timeout=TIMEOUT):
    """Run a module plainly and as transactions.

    Args:
        module: the name of one of the package ``test``, such as ``test_list``, or of another one.
        inject: how likely an abort is at each barrier of a first attempt; see `core.inject_aborts`.
        seed: of these aborts.
        timeout: seconds for each of the two processes.
    """
    plain = run(module, timeout=timeout)
    ours = run(module, "--transactions", f"--inject={inject}", f"--seed={seed}", timeout=timeout)
    return Comparison(module, plain, ours, differences())


def run(module, *options, timeout=TIMEOUT):
    """Run a module in a process of its own; return its `Run`."""
    with tempfile.TemporaryDirectory(prefix="suite-") as directory:
        directory = Path(directory)
        records, output, work = directory / "records", directory / "output", directory / "work"
        records.touch()
        work.mkdir()
        with output.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", HERE / "child.py", module, records, *options],
                cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=os.environ | {"PYTHONHASHSEED": "0", "TMPDIR": str(work)},
            )
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # prints the stacks
                status = None
            finally:
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    pass
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        return read(records.read_text(), status, timeout, output.read_text(errors="replace"))


def read(records, status, timeout, output):
    """The `Run` that a process's records and exit status tell of."""
    result = Run(output=output)
    running, ended = set(), False
    for line in records.splitlines():
        record = json.loads(line)
        if "begins" in record:
            running.add(record["begins"])
        elif "ends" in record:
            name = record["ends"]
            running.discard(name)
            result.outcomes[name] = sorted(result.outcomes.get(name, []) + record["events"])
            result.traces[name] = "\n".join(record["traces"])
            if record["exclusive"]:
                result.exclusive.add(name)
        else:
            result.stats = record["stats"]
            ended = True
    if status != 0 or not ended:
        what = f"no end after {timeout} s" if status is None else ended_with(status)
        result.end = what + (f" while running {', '.join(sorted(running))}" if running else "")
    return result


def ended_with(status):
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def differences():
    """The listed differences: pattern of names of tests → why they differ."""
    listed = {}
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, why = line.split(None, 1)
            listed[pattern] = why
    return listed


def reason(listed, name):
    """Why this test differs, if that is listed; else None."""
    return next((why for pattern, why in listed.items() if matches(pattern, name)), None)


def matches(pattern, name):
    return fnmatchcase(name.removeprefix("test."), pattern)
