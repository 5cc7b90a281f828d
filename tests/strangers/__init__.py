"""Suites of packages that strangers wrote, the tests of each module run beside each other as transactions.

What people write finds in an hour what generated programs have not found in weeks.  A package comes from the index, installed and as
source, with its tests.  They are what pytest collects; those of a module are set up one after the other, each with its own fixtures,
then *run* all at once, as transactions on several threads, with aborts injected where asked for, then torn down.  Once they run like
that without transactions, and once more in another order: what comes out differently there depends on more than itself, and is left out.

    python -m tests.strangers [--inject RATE] [--seed N] [--threads N] [--folder FOLDER] PACKAGE...

Of an outcome only the exception's type is compared.  Tests are left out that exchange what all of a process share (``monkeypatch``,
``capsys`` and the like), and coroutines.
"""

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tests.comparison import TIMEOUT, Comparison, run

HERE = Path(__file__).resolve().parent

EXTRAS = "test,tests,testing"  # what packages call what their tests need; pip only warns of those that a package has not
CAPTURED = {"capture_output": True, "text": True}


class Unavailable(Exception):
    """A package cannot be had with its tests; the message says why."""


def fetch(package, folder):
    """Get a package from the index, and what its tests need.

    Args:
        package: its name, perhaps with a version, as for pip.
        folder: where all packages are kept.

    Returns:
        The folders of its source and of what is installed.

    Raises:
        Unavailable: there is no source distribution of it, or it does not install here.
    """
    home = Path(folder).resolve() / package
    installed, source = home / "site", home / "source"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        pip("install", "--target", installed, "--upgrade", f"{package}[{EXTRAS}]", "pytest", "hypothesis")
        pip("download", "--no-deps", "--no-binary", package.partition("=")[0], "--dest", home, package)
        archives = list(home.glob("*.tar.gz"))
        if not archives:
            raise Unavailable(f"{package} has no source distribution that could be unpacked")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(source, filter="data")
        for group in groups_of_tests(unpacked(source)):
            pip("install", "--target", installed, "--group", group)
        (home / "complete").touch()
    return unpacked(source), installed


def unpacked(source):
    return next(path for path in source.iterdir() if path.is_dir())


def groups_of_tests(source):
    """What its project file says that tests need, as pip wants that named."""
    project = source / "pyproject.toml"
    if not project.exists():
        return []
    groups = tomllib.loads(project.read_text(encoding="utf-8")).get("dependency-groups", {})
    return [f"{project}:{name}" for name in groups if "test" in name and "type" not in name]


def pip(*arguments):
    done = subprocess.run([sys.executable, "-m", "pip", "-q", "--no-input", *map(str, arguments)], **CAPTURED)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Unavailable(f"pip: {next((line for line in lines if 'error' in line.lower()), lines[-1])}")


def compare(package, folder, inject=0.0, seed=0, threads=2, timeout=TIMEOUT):
    """Run a package's tests beside each other, plainly and as transactions.

    Args:
        package, folder: as of `fetch`.
        inject, seed, threads, timeout: as of `compare_folder`.

    Raises:
        Unavailable: the package cannot be had.
    """
    source, installed = fetch(package, folder)
    return compare_folder(package, source, installed, inject, seed, threads, timeout)


def compare_folder(name, source, installed, inject=0.0, seed=0, threads=2, timeout=TIMEOUT):
    """Run the tests in a folder beside each other, plainly and as transactions.

    Args:
        name: what to call them.
        source: the folder.
        installed: a folder with what they import.
        inject: how likely an abort is at each barrier of a first attempt.
        seed: of these aborts, and of the other order.
        threads: for transactions.
        timeout: seconds for each of the three processes.
    """
    ways = ("plain",), ("plain", "--shuffle"), ("transactions", f"--inject={inject}", f"--threads={threads}")
    plain, shuffled, ours = (run(HERE / "child.py", source, installed, *way, f"--seed={seed}", timeout=timeout) for way in ways)
    if not plain.outcomes:
        plain.end = plain.end or "no test was found that can run beside others"
    if shuffled.end:  # or what it has not come to would pass for unsteady
        plain.end = plain.end or f"in another order: {shuffled.end}"
    steady = {test for test, outcome in plain.outcomes.items() if shuffled.outcomes.get(test) == outcome}
    for each in plain, ours:
        each.outcomes = {test: outcome for test, outcome in each.outcomes.items() if test in steady}
    return Comparison(name, plain, ours, {})
