#!/usr/bin/env bash
# Builds a stress program of the engine's algorithms:  build.sh PROGRAM PYTHON OUTPUT [COMPILER FLAG...]
#
# PROGRAM is stress or queues.
# PYTHON says where the interpreter's headers are; ENGINE=DIRECTORY takes the engine from there.  What the engine calls of
# the interpreter and the stand-in does not have becomes a stub that fails.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
engine=${ENGINE:-$here/../../tornado/stm/engine}
program=$1 python=$2 output=$3
shift 3
CC=${CC:-cc}

headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
flags=(-std=gnu11 -O1 -g -fno-omit-frame-pointer -fno-strict-aliasing -pthread -DPy_BUILD_CORE_MODULE=1
       -DCOMMITS=3 -DSELDOM=0 -I"$engine" -I"$here" -isystem "$headers" -isystem "$headers/internal" "$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pids=()
for file in bias orec contention anchor transaction undo order proflog locations history queue; do
    "$CC" "${flags[@]}" -include "$here/jitter.h" -c "$engine/$file.c" -o "$work/$file.o" &
    pids+=($!)
done
for file in interpreter "$program"; do
    "$CC" "${flags[@]}" -c "$here/$file.c" -o "$work/$file.o" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid"
done

# The linker says what is missing.
LC_ALL=C "$CC" "${flags[@]}" "$work"/*.o -o "$output" 2>&1 |
    sed -n "s/.*undefined reference to [\`']\([A-Za-z_0-9]*\)'.*/\1/p" | sort -u >"$work/missing" || true
{
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    while read -r name; do
        echo "void $name(void) { fprintf(stderr, \"FAILED: the engine calls $name, which the stand-in lacks\\n\"); abort(); }"
    done <"$work/missing"
} >"$work/missing.c"
"$CC" "${flags[@]}" -fno-builtin -w -c "$work/missing.c" -o "$work/missing.o"
"$CC" "${flags[@]}" "$work"/*.o -o "$output"
