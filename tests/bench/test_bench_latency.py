"""The benchmark of trivial requests beside heavy ones.  No test looks at a time."""

import json
import subprocess
import sys

import pytest

from interpreters import ROOT

pytest.importorskip("rich")



def test_it_measures(tmp_path):
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "stm_bench", "latency", "--time", "3", "--threads", "1", "--repeats", "1",
         "--concurrency", "2", "--json", str(file)],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert (done.returncode, "tornado-stm, 1 thread" in done.stdout) == (0, True), done.stderr
    assert json.loads(file.read_text())
