"""Functions of test modules, called in a process of its own: where nothing has run before, and what is endless stays to its end."""

import ast
import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent


def run_beside(test_file, program, timeout=100):
    """Run Python code that may import that module of tests, and what it imports.

    Returns:
        subprocess.CompletedProcess: with texts.
    """
    path = [str(Path(test_file).resolve().parent), str(SUPPORT), str(SUPPORT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=timeout)


def in_a_process(test_file, call):
    """What the call of a function of that module of tests returns there: a literal."""
    module = Path(test_file).stem
    done = run_beside(test_file, f"import {module}\nprint(repr({module}.{call}))")
    assert (done.returncode, done.stderr) == (0, "")
    return ast.literal_eval(done.stdout)
