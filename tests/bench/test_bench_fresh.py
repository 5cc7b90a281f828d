"""The benchmark of servers that have just been started.  No test looks at a time or a size."""

import json
import subprocess
import sys

import pytest

from interpreters import ROOT

pytest.importorskip("rich")



def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "stm_bench", "fresh", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_it_measures(tmp_path):
    file = tmp_path / "figures.json"
    done = run("--connections", "150", "--repeats", "1", "--threads", "2", "--json", str(file))
    assert (done.returncode, "memory with 150 connections" in done.stdout) == (0, True), done.stderr
    rows = json.loads(file.read_text())["sections"]["fresh"]
    assert len(rows) == 6 and all(row["figure"] == row["ratios"]["-j 2"] > 0 for row in rows)


def test_more_connections_than_there_may_be_files_are_refused(refused):
    assert "--connections" in refused("fresh", "--connections", "1000000000")
