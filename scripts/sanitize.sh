#!/usr/bin/env bash
# The body of `make sanitize`: the engine under the sanitizers that come with the compiler.
#
#   1. tests/engine/stress.c and queues.c, the engine's algorithms without the interpreter: under the thread sanitizer,
#      then under the address and the undefined behaviour sanitizer;
#   2. the tests, on an engine compiled with the address and the undefined behaviour sanitizer, in build/sanitize.
#
# The ordinary build is left alone.  Stops at the first report, with status 1.
#
#   scripts/sanitize.sh [PYTEST ARGUMENT...]      the arguments narrow part 2; SEED=N starts the seeds of part 1 there
#
# The interpreter itself is the ordinary one: the thread sanitizer would take its locks for races, and the address
# sanitizer does not see into its heap.  There PYTHONMALLOC=debug overwrites what is freed and fences what is not.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BUILD=$PWD/build/sanitize
PYTHON=.venv/bin/python
CC=${CC:-cc}
SEED=${SEED:-1}
TRANSACTIONS=20000
TREES=1600

say() { echo "sanitize: $*" >&2; }
die() { say "$*"; exit 1; }

[[ -x $PYTHON ]] || die "there is no .venv yet: run make setup"
rm -rf "$BUILD"
mkdir -p "$BUILD"

# The thread sanitizer of some compilers cannot work where addresses are randomized as widely as recent kernels do.
PLAIN_ADDRESSES=()
if setarch -R true 2>/dev/null; then
    PLAIN_ADDRESSES=(setarch -R)
fi

export TSAN_OPTIONS=halt_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1

# stress PROGRAM SIZE NAME COMPILER-FLAG...
stress() {
    local program=$1 size=$2 name=$3 threads seed=$SEED
    shift 3
    say "program $program, ${name//_/ } sanitizer"
    tests/engine/build.sh "$program" "$PYTHON" "$BUILD/${program}_$name" "$@" || die "the program $program does not compile"
    for threads in 1 2 3 4 8 16; do
        "${PLAIN_ADDRESSES[@]}" "$BUILD/${program}_$name" "$seed" "$threads" "$size" ||
            die "stopped: build/sanitize/${program}_$name $seed $threads $size"
        ((seed += 1))
    done
}

# gcc warns that the thread sanitizer does not understand fences; where the engine has some, what they order are atomics.
for program in "stress $TRANSACTIONS" "queues $TREES"; do
    stress $program thread -fsanitize=thread -Wno-tsan
    stress $program address_and_undefined -fsanitize=address,undefined -fno-sanitize-recover=undefined
done

say "compiling the engine with the address sanitizer"
STM_SANITIZE=address "$PYTHON" setup.py --quiet build_ext --build-lib "$BUILD/lib" ||
    die "the engine does not compile"

# The interpreter is not linked with the sanitizer, so it comes first by LD_PRELOAD; and libstdc++, for the exceptions
# of extension modules in C++.
library() { readlink -f "$("$CC" -print-file-name="$1")"; }

engine=$(compgen -G "$BUILD/lib/tornado/stm/_engine*.so") || die "no engine was compiled"
sanitized=(
    env "LD_PRELOAD=$(library libasan.so) $(library libstdc++.so.6)"
    "ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8:detect_stack_use_after_return=1:log_path=$BUILD/report"
    "UBSAN_OPTIONS=$UBSAN_OPTIONS:log_path=$BUILD/report"
    PYTHONMALLOC=debug "PYTHONPATH=$PWD/tests/sanitized" "STM_ENGINE=$engine" "$PYTHON"
)
# The tests pass on any engine, and where there is none most are skipped.
"${sanitized[@]}" -c 'import os; from tornado.stm import _engine; assert _engine.__file__ == os.environ["STM_ENGINE"], _engine' ||
    die "the tests would not run on that engine"

say "tests on that engine"
status=0
"${sanitized[@]}" -m pytest -q -x -n auto --dist loadfile "$@" || status=$?

# One in a subprocess may have gone unnoticed.
if compgen -G "$BUILD/report*" >/dev/null; then
    cat "$BUILD"/report* >&2
    die "stopped: the reports above are in build/sanitize"
fi
((status == 0)) || die "the tests failed"
say "no report"
