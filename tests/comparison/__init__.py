"""What becomes of the tests of a module in two ways of running them, each in a process of its own, and where it differs.

The ways are the business of a package that uses this one: it has a ``child`` module, which runs the tests and records what
became of each (`comparison.child`), and a list of the differences that cannot be otherwise.
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

#: how the reason begins for a test that does not always come out differently
NOW_AND_THEN = "now and then: "

TIMEOUT = 600  # seconds for one module in one process


@dataclass
class Run:
    """What became of the tests of a module in one process.

    `outcomes` has what unittest told of each test, `traces` the tracebacks of what it raised, `facts` what else its child
    has recorded of it; `end` is None, or says how the process ended if it did not do so by itself.
    """

    outcomes: dict = field(default_factory=dict)
    traces: dict = field(default_factory=dict)
    facts: dict = field(default_factory=dict)
    stats: dict = field(default_factory=dict)
    end: str | None = None
    output: str = ""

    @property
    def reasons(self):
        """Why transactions had to run alone, as a Counter of (why, place)."""
        return Counter(self.stats.get("exclusive_reasons", {}))

    def having(self, fact):
        """The tests of which this fact is recorded, and true."""
        return {name for name, facts in self.facts.items() if facts.get(fact)}


@dataclass
class Comparison:
    """A module's tests plainly and in our way, and which of the differences are listed."""

    module: str
    plain: Run
    ours: Run
    listed: dict

    @property
    def differing(self):
        """The tests that come out differently: name → (plainly, in our way)."""
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
        """The patterns of the list that tests of this module match, none of which comes out differently, as they always should."""
        return [
            pattern for pattern, why in self.listed.items()
            if not why.startswith(NOW_AND_THEN) and any(matches(pattern, name) for name in self.plain.outcomes)
            and not any(matches(pattern, name) for name in self.differing)
        ]

    @property
    def good(self):
        """Does the module behave as it does plainly, but for what is listed?"""
        return not (self.unlisted or self.plain.end or self.ours.end) and bool(self.plain.outcomes)


def run(child, *arguments, timeout=TIMEOUT, environment=None):
    """Run a child in a process of its own, in an empty folder; return its `Run`.

    Args:
        child: path of the script, which gets the path of the file for its records first, then the arguments.
        arguments: strings.
        timeout: seconds.
        environment: variables to set beside the inherited ones.
    """
    with tempfile.TemporaryDirectory(prefix="comparison-") as directory:
        directory = Path(directory)
        records, output, work = directory / "records", directory / "output", directory / "work"
        records.touch()
        work.mkdir()
        with output.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", child, records, *arguments],
                cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=os.environ | {"PYTHONHASHSEED": "0", "TMPDIR": str(work)} | (environment or {}),
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
            name = record.pop("ends")
            running.discard(name)
            result.outcomes[name] = sorted(result.outcomes.get(name, []) + record.pop("events"))
            result.traces[name] = "\n".join(record.pop("traces"))
            result.facts[name] = record
        else:
            result.stats = record["stats"]
            ended = True
    if status != 0 or not ended:
        what = f"no end after {timeout} s" if status is None else ended_with(status)
        result.end = what + (f" while running {', '.join(sorted(running))}" if running else "")
    return result


def ended_with(status):
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def differences(path):
    """The differences that a file lists: pattern of names of tests → why they differ."""
    listed = {}
    for line in Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, why = line.split(None, 1)
            listed[pattern] = why
    return listed


def reason(listed, name):
    """Why this test differs, if that is listed; else None."""
    return next((why for pattern, why in listed.items() if matches(pattern, name)), None)


def matches(pattern, name):
    return fnmatchcase(name.removeprefix("test."), pattern)
