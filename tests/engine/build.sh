#!/usr/bin/env bash
# Builds a stress program of the engine's algorithms:  build.sh PROGRAM PYTHON OUTPUT [COMPILER FLAG...]
#
# PROGRAM is stress or queues.
# PYTHON says where the interpreter's headers are; ENGINE=DIRECTORY takes the engine from there.  It is the core, and for
# stress the order of keys; the core calls nothing but itself and what the stand-in (interpreter.c) has.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
engine=${ENGINE:-$here/../../tornado/stm/engine}
program=$1 python=$2 output=$3
shift 3
CC=${CC:-cc}

headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
flags=(-std=gnu11 -O1 -g -fno-omit-frame-pointer -fno-strict-aliasing -pthread -DPy_BUILD_CORE_MODULE=1
       -DCOMMITS=3 -DSELDOM=0 -DPUT_OFF_NS=0
       -I"$engine" -I"$engine/../interpreter" -I"$here" -isystem "$headers" -isystem "$headers/internal" "$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

parts=("$engine"/core/*.c)
[[ $program != stress ]] || parts+=("$engine"/objects/order.c)
pids=()
for file in "${parts[@]}"; do
    "$CC" "${flags[@]}" -include "$here/jitter.h" -c "$file" -o "$work/$(basename "$file" .c).o" &
    pids+=($!)
done
for file in interpreter unreached "$program"; do
    "$CC" "${flags[@]}" -c "$here/$file.c" -o "$work/$file.o" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid"
done
"$CC" "${flags[@]}" "$work"/*.o -o "$output"
