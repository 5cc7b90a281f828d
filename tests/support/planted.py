"""Bugs planted in a copy of the engine, to see that the serializability oracle finds them.

    planted.py NAME [SEED]     plant the bug in a copy, build that, and let the oracle run; without a name: list those that it is to find

A bug is a replacement in the text of one file; the text must be there once.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: name -> replacements (file below tornado/stm, text, text in its place)
BUGS = {
    "a missing barrier before a read": [
        ("interpreter/instructions.py", '    "_STM_CONTAINS": "CONTAINS_OP CONTAINS_OP_DICT CONTAINS_OP_SET",\n', ""),
        ("interpreter/instructions.py", "        COPY COPY_FREE_VARS ", "        CONTAINS_OP CONTAINS_OP_DICT CONTAINS_OP_SET COPY COPY_FREE_VARS "),
    ],
    "a missing barrier before a write": [
        ("interpreter/instructions.py", '    "_STM_WRITE_ITEM": "STORE_SUBSCR STORE_SUBSCR_DICT STORE_SUBSCR_LIST_INT",\n', ""),
        ("interpreter/instructions.py", "        COPY COPY_FREE_VARS ",
         "        STORE_SUBSCR STORE_SUBSCR_DICT STORE_SUBSCR_LIST_INT COPY COPY_FREE_VARS "),
    ],
    "a lost undo entry": [
        ("engine/core/undo.c", "for (Py_ssize_t i = tx->undo.n; --i >= 0;) {\n            Undo *u",
         "for (Py_ssize_t i = tx->undo.n; --i > 0;) {\n            Undo *u"),
    ],
    "an end undone that was not changed": [
        ("engine/objects/access.c", "    if (now != u->n)\n", "    if (now >= 0)\n"),
    ],
    "locks released before the rollback": [
        ("engine/core/transaction.c", "    undo_rollback(tx);\n", "    locks_release(tx);\n    undo_rollback(tx);\n"),
    ],
    "a mark compared without its mode": [
        ("engine/core/orec.c", "            if ((m & mode) == mode)\n", "            if (true)\n"),
    ],
    "a mark compared with the wrong epoch": [
        ("engine/core/orec.c", "        if (m >> 18 == epoch && (tag ", "        if (m >> 18 == epoch + 1 && (tag "),
    ],
    "a read bias that writers leave": [
        ("engine/core/bias.c", "    if (bias_take(obj))\n        return bias_await_readers(tx, obj);\n", "    return 0;\n"),
    ],
    "readers without a lock not waited for": [
        ("engine/core/bias.c", "        return bias_await_readers(tx, obj);\n", "        return 0;\n"),
    ],
    "an iterator not restored": [
        ("engine/objects/structure.c", "    structure_swap(u->obj, u->mem);\n", ""),
    ],
    "a generator not restored": [
        ("engine/objects/generator.c", ".undo = restore, .forget = forget}", ".undo = keep_going, .forget = forget}"),
        ("engine/objects/generator.c", "static const UndoKind undo_generator",
         "static int\nkeep_going(Tx *tx, Undo *u)\n{\n    return 0;\n}\n\nstatic const UndoKind undo_generator"),
    ],
    "keys compared by the program in a rollback": [
        ("engine/objects/dictkeys.c", "    if (is_of_strings(dict, key))\n        r = PyDict_Pop(dict, key, value);\n",
         "    if (true)\n        r = PyDict_Pop(dict, key, value);\n"),
    ],
    "keys in the order of insertion": [
        ("engine/objects/order.c", "    ok = are_last(&t, in, n);", "    ok = true;"),
    ],
    "an undo log applied forwards": [
        ("engine/core/undo.c", "for (Py_ssize_t i = tx->undo.n; --i >= 0;) {", "for (Py_ssize_t i = 0; i < tx->undo.n; i++) {"),
    ],
    "what waits for the commit done by a rollback": [
        ("engine/core/transaction.c", "    stm_upcalls->rolled_back(tx);\n", "    stm_upcalls->rolled_back(tx);\n    run_deferred(tx);\n"),
    ],
    "what waits for the commit done after it": [
        ("engine/core/transaction.c", "    run_deferred(tx);\n    interruptible(tx);\n    count_one", "    interruptible(tx);\n    count_one"),
        ("engine/core/transaction.c", "    tx_end(tx, true);\n    release(tx, AFTER_COMMIT, put_added(tx, dropped));\n",
         "    tx_end(tx, true);\n    interruptible(tx);\n    run_deferred(tx);\n    release(tx, AFTER_COMMIT, put_added(tx, dropped));\n"),
    ],
    "output kept over a rollback": [
        ("input_output/output.py", "        core.on_abort(output.drop)\n", ""),
    ],
    "a commit before its predecessor": [
        ("engine/core/contention.c", "    if (p == NULL || atomic_load(&p->done))\n        return NULL;\n    atomic_store",
         "    if (true)\n        return NULL;\n    atomic_store"),
    ],
    "what an attempt has made taken for the next one's": [
        ("engine/objects/opened.h", "    if (UNLIKELY(++table->stamp == 0)) {", "    if (UNLIKELY(table->stamp == 0 && ++table->stamp == 0)) {"),
    ],
    "others not waited for by who is to run alone": [
        ("engine/core/contention.c", "    await_others(tx, others_over, ANY_AGE, since);\n", "    (void)since;\n"),
    ],
    "a gate that others pass": [
        ("engine/core/contention.c", "|| LIKELY(atomic_load(&stm_exclusive_slot) == 0))", "|| true)"),
    ],
    "a read bias given beside writers": [
        ("engine/core/bias.c", "#define SOME_TIME 8 ", "#define SOME_TIME 0 "),
    ],
    "a C function that reads declared pure": [
        ("c_functions/effects.py", "    builtins.set.copy READS\n", "    builtins.set.copy PURE\n"),
    ],
    "a C function that writes declared to read": [
        ("c_functions/effects.py", "    array.array.insert MUTATES\n", "    array.array.insert READS\n"),
    ],
}

#: the same, of what threads beside the loop rely on: for the random mix of `apps/locked_beside.py` to find
BUGS_BESIDE = {
    "a lock let go when it is given back": [
        ("engine/objects/mutex.c", "    if (--h->level == 0 && is_final(tx))\n", "    if (--h->level == 0)\n"),
    ],
    "a lock taken beside a thread that has it": [
        ("engine/objects/mutex.c", "    else if (try_lock(m))\n", "    else if (try_lock(m) || true)\n"),
    ],
    "a lock given back of which others are members": [
        ("engine/objects/mutex.c", "    if (--team->members == 0) {\n", "    team->members = 0; {\n"),
    ],
}

#: the same, of what tasks of one loop rely on: for the programs of `serializability/confluent` to find
BUGS_CONFLUENT = {
    "callbacks of a future backwards": [
        ("engine/dispatch/future.c", "for (Py_ssize_t i = 0; r == 0 && callbacks != NULL && i < PyList_GET_SIZE(callbacks); i++) {",
         "for (Py_ssize_t i = callbacks != NULL ? PyList_GET_SIZE(callbacks) : 0; r == 0 && --i >= 0;) {"),
    ],
    "callbacks of a future left by a rollback": [
        ("engine/dispatch/future.c", "    if (f->callbacks != NULL && PyList_GET_SIZE(f->callbacks) > u->n) {", "    if (false) {"),
    ],
    "bytes received and not put back": [
        ("engine/sockets/socket.c", "undo_push(tx, &undo_call, put_back, arguments, NULL) != NULL;", "true;"),
    ],
}
#: all of them
ALL = BUGS | BUGS_BESIDE | BUGS_CONFLUENT

#: python -c: `python -m tornado.stm` with the package in that directory
ELSEWHERE = """
import runpy, sys, tornado
tornado.__path__.insert(0, sys.argv.pop(1) + "/tornado")
runpy.run_module("tornado.stm", run_name="__main__", alter_sys=True)
"""


def replaced(path, old, new):
    """The text of the file with the replacement, which must be possible in just one way."""
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has changed: {old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def plant(name, directory):
    """Make a copy of the project with the bug in it, and build it there."""
    shutil.copytree(ROOT / "tornado", directory / "tornado", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for file in ("setup.py", "pyproject.toml", "README.rst", "LICENSE"):
        shutil.copy(ROOT / file, directory)
    for file, old, new in ALL[name]:
        path = directory / "tornado" / "stm" / file
        path.write_text(replaced(path, old, new))
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, env=os.environ | {"PGO": "0"})


def hunt(directory, seed, programs):
    """Let the oracle run on the copy in that directory.

    Returns:
        dict: ``programs``, how many it took, and ``found``, the failure's text, or of which signal the interpreter died,
        or None.
    """
    command = [sys.executable, __file__, "--in", str(directory), str(seed), str(programs)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode <= 0, finished.stderr[-2000:]
    result = json.loads(finished.stdout.splitlines()[-1])
    if finished.returncode < 0:
        result["found"] = f"the interpreter died of {signal.Signals(-finished.returncode).name}"
    return result


def hunt_here(directory, seed, programs):
    """The same, in this process."""
    import tornado

    tornado.__path__.insert(0, str(Path(directory) / "tornado"))
    sys.path.insert(0, str(ROOT / "tests" / "serializability"))
    import test_serializability as oracle

    assert oracle.core.__file__.startswith(str(directory))
    check, count = oracle.check, 0

    def counted(*args, **options):
        nonlocal count
        count += 1
        print(json.dumps({"programs": count, "found": None}), flush=True)  # what is left of it if the interpreter dies
        check(*args, **options)

    oracle.check = counted
    found = None
    try:
        oracle.run_programs(programs, seed=seed, tries=1, shrink=False)
    except Exception as e:
        found = f"{type(e).__name__}: {e}"
    return {"programs": count, "found": found}


def main(args):
    if not args:
        print(*BUGS, sep="\n")
    elif args[0] != "--in" and (args[0] not in BUGS or not all(map(str.isdecimal, args[1:])) or len(args) > 2):
        print("planted.py: NAME [SEED], a bug of the list that it prints without a name, and a number", file=sys.stderr)
        sys.exit(2)
    elif args[0] == "--in":
        print(json.dumps(hunt_here(args[1], int(args[2]), int(args[3]))), flush=True)
        os._exit(0)  # a bug may have left threads that never end
    else:
        with tempfile.TemporaryDirectory() as directory:
            plant(args[0], Path(directory))
            result = hunt(directory, int(args[1]) if args[1:] else 1, 10000)
        print(f"{result['programs']} programs\n{result['found']}")


if __name__ == "__main__":
    main(sys.argv[1:])
