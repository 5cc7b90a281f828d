"""Suites that nobody here wrote, run with each test as a transaction: do they come out as without transactions?

CPython's own tests know the language's corners better than we do.  Each of their modules runs in three processes: plainly,
with each test as a transaction on two threads, and, where asked for, once more with aborts injected at random barriers, so
that bodies are rolled back and run again at any point.  Every test must come out as it does plainly.  What cannot is listed
in ``differences.txt``, one by one, with the reason.

    python -m tests.suites [--inject RATE] [--seed N] [MODULE...]
"""

from pathlib import Path

from tests.outcomes import TIMEOUT, Comparison, differences, run

HERE = Path(__file__).resolve().parent

#: the modules of the interpreter's package ``test`` that `make suites` runs
MODULES = """
    test_list test_dict test_set test_deque test_generators test_coroutines test_heapq test_json test_re test_collections
    test_functools test_itertools test_copy test_dataclasses test_enum test_contextlib
""".split()


def compare(module, inject=0.0, seed=0, timeout=TIMEOUT):
    """Run a module plainly and as transactions.

    Args:
        module: the name of one of the package ``test``, such as ``test_list``, or of another one.
        inject: how likely an abort is at each barrier of a first attempt; see `core.inject_aborts`.
        seed: of these aborts.
        timeout: seconds for each of the two processes.
    """
    child = HERE / "child.py"
    plain = run(child, module, timeout=timeout)
    ours = run(child, module, "--transactions", f"--inject={inject}", f"--seed={seed}", timeout=timeout)
    return Comparison(module, plain, ours, differences(HERE / "differences.txt"))
