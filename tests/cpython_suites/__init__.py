"""Suites that nobody here wrote, run with each test as a transaction: do they come out as without transactions?

CPython's own tests know the language's corners better than we do.  Each of their modules runs in three processes: plainly,
with each test as a transaction on two threads, and, where asked for, once more with aborts injected at random barriers, so
that bodies are rolled back and run again at any point.  Every test must come out as it does plainly.  What cannot is listed
in ``differences.txt``, one by one, with the reason.

    python -m tests.cpython_suites [--inject RATE] [--seed N] [MODULE...]

Code outside of transactions runs on the engine's evaluation loop, too.  The interpreter's own tests of what a loop does
(frames, tracing, compiling, threads) come out there as on the interpreter's loop:

    python -m tests.cpython_suites --outside [MODULE...]
"""

from pathlib import Path

from tests.comparison import TIMEOUT, Comparison, differences, run

HERE = Path(__file__).resolve().parent

#: the modules that `make suites` runs, most of the interpreter's package ``test``
MODULES = """
    test_list test_dict test_set test_deque test_generators test_coroutines test_heapq test_json test_re test_collections
    test_functools test_itertools test_copy test_dataclasses test_enum test_contextlib test_pyexpat test_minidom
    tests.cpython_suites.elements
""".split()

#: those that run outside of transactions: what an evaluation loop does, and what looks into its frames
LOOP_MODULES = """
    test_annotationlib test_asyncgen test_bdb test_builtin test_call test_class test_code test_compile test_context
    test_contextlib test_coroutines test_cprofile test_descr test_dis test_doctest test_dynamic test_except_star
    test_exceptions test_extcall test_faulthandler test_frame test_free_threading test_fstring test_funcattrs test_gc
    test_generator_stop test_generators test_genexps test_global test_grammar test_inspect test_keywordonlyarg
    test_listcomps test_monitoring test_named_expressions test_opcache test_opcodes test_patma test_pdb test_peepholer
    test_positional_only_arg test_profile test_raise test_scope test_super test_sys test_sys_setprofile
    test_sys_settrace test_thread test_thread_local_bytecode test_threading test_threading_local test_trace
    test_traceback test_tracemalloc test_tstring test_type_cache test_type_params test_unpack_ex test_weakref test_with
    test_yield_from
""".split()


def compare(module, inject=0.0, seed=0, timeout=TIMEOUT):
    """Run a module plainly and as transactions.

    Args:
        module: the name of one of the package ``test``, such as ``test_list``, or of another one.
        inject: how likely an abort is at each barrier of a first attempt; see `core.inject_aborts`.
        seed: of these aborts.
        timeout: seconds for each of the two processes.
    """
    return compare_ways(module, "plain", "transactions", f"--inject={inject}", f"--seed={seed}", timeout=timeout)


def compare_outside(module, timeout=TIMEOUT):
    """Run a module on the interpreter's evaluation loop and, outside of transactions, on the engine's.

    Args:
        module, timeout: as of `compare`.
    """
    return compare_ways(module, "main", "outside", timeout=timeout)


def compare_ways(module, plain, ours, *arguments, timeout):
    """Run a module in two of the ways that ``child.py`` knows; `arguments` go with the second."""
    child = HERE / "child.py"
    return Comparison(
        module, run(child, module, plain, timeout=timeout), run(child, module, ours, *arguments, timeout=timeout),
        differences(HERE / "differences.txt"))
