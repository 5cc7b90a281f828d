#!/usr/bin/env bash
# The body of `make wheels`: all that is to be published, in dist/.
#
#   1. CPython's source of each micro version that an engine can be made for and whose checksum is known (`build_cpython.sh`), in the cache;
#   2. the wheel for free-threaded CPython 3.14, with an engine for each of them, profile-guided as the interpreters that people install
#      are, whether .venv's own is or not (PGO=0 keeps it from that);
#   3. the wheel for interpreters with a GIL, which needs no compiler and no source;
#   4. the source distribution.
#
# A version whose source cannot be had gets one line, and its engine is missing; only without that of .venv's own interpreter
# is there no wheel (status 2).  STM_SOURCE=FOLDER:FOLDER takes these sources instead, all of them and no others.
#
# The wheel's platform tag says which version of glibc it needs: that of the machine that compiles it, at most.  To make one for older
# systems, do this on one.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HOME=${HOME:-~}  # not all that starts programs says it
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/tornado-stm
PYTHON=.venv/bin/python

say() { echo "wheels: $*" >&2; }
die() { say "$*"; exit 2; }

# Prints the folders of the sources, as in PATH.
get_sources() {
    local own version folder folders=()
    own=$("$PYTHON" -c 'import platform; print(platform.python_version())')
    for version in $({ scripts/build_cpython.sh "$CACHE" list; echo "$own"; } | sort -Vu); do
        if folder=$(scripts/build_cpython.sh "$CACHE" "$version"); then
            folders+=("$folder")
        elif [[ $version == "$own" ]]; then
            die "without the source of CPython $own, which .venv runs on, there is no wheel"
        else
            say "without the source of CPython $version, the wheel has no engine for it"
        fi
    done
    (IFS=:; echo "${folders[*]}")
}

# wheel DIRECTORY: makes one, from nothing that another has left in build/ but what the engines' compilers have made.
wheel() {
    rm -rf build/lib* build/bdist*
    "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir "$1" . ||
        die "the wheel could not be made"
}

[[ -x $PYTHON ]] || die "there is no .venv yet: run make setup"
if [[ -z ${STM_SOURCE:-} ]]; then
    STM_SOURCE=$(get_sources)
    export STM_SOURCE
fi
# What is there already is replaced at the end, and only by all of it.
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
trap 'exit 2' INT TERM
export PGO=${PGO:-1}
say "compiling an engine for each version (a minute or two each, the first time)"
STM_PURE=0 wheel "$WORK"
STM_PURE=1 wheel "$WORK"
"$PYTHON" setup.py --quiet sdist --dist-dir "$WORK" || die "the source distribution could not be made"
rm -rf build/lib* build/bdist*
mkdir -p dist
rm -f dist/tornado_stm-*
mv "$WORK"/* dist/
say "made these:"
ls -1 dist/tornado_stm-*
