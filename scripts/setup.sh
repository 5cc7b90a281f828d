#!/usr/bin/env bash
# The body of `make setup`: everything the tests and benchmarks need, from a bare machine, and nothing twice.
#
#   1. a free-threaded CPython 3.14 or later: found on this machine, or fetched by uv, or built from Debian's source; and
#      the source of exactly its version, which the engine's evaluation loop is made from;
#   2. .venv        made from it, with this checkout (editable) and the test, bench, lint, docs and, if it can be had, compat extras;
#   3. .venv-gil-3.11, -3.12 and so on: the same checkout on each minor version of CPython with a GIL that there is, and
#      .venv-gil, a link to the newest; .venv-pypy with plain Tornado, and .venv-27 with Tornado 4 on CPython 2.7 (for
#      the tests of the PyPy-STM loop), if they are there;
#   4. siege, the load generator of the benchmarks.
#
# Without 1 and 2 there is nothing to run, so their failure is an error (status 2).  3 and 4 only widen what can be
# measured: what is missing of them gets one line, and setup succeeds.
#
#   scripts/setup.sh          all of it; at once when nothing has changed
#   scripts/setup.sh engine   compile the engine in place, and only that
#
# STM_PYTHON=PATH takes that free-threaded interpreter, STM_SOURCE=FOLDER the source of CPython that is there; PGO=1 builds a
# profile-guided interpreter, and so does the engine for any that is; PGO=0 keeps the engine from that (it takes a minute less to
# compile).  STM_SANITIZE=address or thread compiles the engine with that sanitizer.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HOME=${HOME:-~}  # not all that starts programs says it
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/tornado-stm

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 2; }


# Which interpreters there are

# The commands that may be a CPython: on PATH, of pyenv (its shims run only the selected version), of uv, of our cache.
candidates() {
    local name
    for name in $(compgen -c python3 | grep -xE 'python3(\.[0-9]+)?(t|-nogil)?' | sort -u); do
        type -aP "$name" || true
    done
    compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/*/bin/python3" || true
    if command -v uv >/dev/null; then
        uv python find --no-project 3.14t 2>/dev/null || true
    fi
    compgen -G "$CACHE/cpython-*/bin/python3" || true
}

# Prints "RANK<tab>EXECUTABLE" if the interpreter is of the kind asked for and can make a virtual environment.
# A free-threaded one must bring the internal headers that the engine is compiled against.  3.14 ranks above its
# successors: those headers change with every minor version, and it is the one that the engine was written for.
PROBE='
import os, sys, sysconfig, ensurepip, venv
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
headers = os.path.join(sysconfig.get_path("include"), "internal", "pycore_frame.h")
ok = sys.implementation.name == "cpython" and sys.prefix == sys.base_prefix and sys.version_info.releaselevel == "final"
if sys.argv[1] == "free":
    ok = ok and free and sys.version_info >= (3, 14) and os.path.exists(headers)
else:
    ok = ok and not free and sys.version_info >= (3, 11)
if ok:
    rank = sys.version_info[:3]
    if sys.argv[1] == "free":
        rank = (rank[:2] == (3, 14), *rank)
    print(*(format(part, "03d") for part in rank), sep=".", end="\t")
    print(sys.executable)
'

# Those of a kind, "free" or "gil", among the commands on standard input, the best last.
ranked() {
    local python
    sort -u | while read -r python; do
        "$python" -I -c "$PROBE" "$1" 2>/dev/null </dev/null || true
    done | sort
}

# The best free-threaded interpreter among the commands on standard input; nothing if there is none.
best() { ranked free | tail -n 1 | cut -f 2; }

# The free-threaded interpreter, in $PYTHON.
get_free_threaded() {
    if [[ -n ${STM_PYTHON:-} ]]; then
        PYTHON=$({ command -v "$STM_PYTHON" || true; } | best)
        [[ -n $PYTHON ]] || die "STM_PYTHON=$STM_PYTHON is not a free-threaded CPython 3.14 or later with its headers"
        return
    fi
    if [[ ${PGO:-} == 1 ]]; then
        PYTHON=$({ compgen -G "$CACHE/cpython-*t-pgo/bin/python3" || true; } | best)
    else
        PYTHON=$(candidates | best)
        if [[ -z $PYTHON ]] && command -v uv >/dev/null; then
            say "no free-threaded CPython 3.14 or later found; asking uv for one"
            uv python install --quiet 3.14t || say "uv could not install it"
            PYTHON=$(candidates | best)
        fi
    fi
    if [[ -z $PYTHON ]]; then
        PYTHON=$(scripts/build_cpython.sh "$CACHE") || exit 2
    fi
}


# Virtual environments

# A stamp file holds the hash of all that its step depends on.  The place of the checkout is part of it, because
# an editable install refers to it: a copy of the checkout sets itself up anew.
hash_of() { { pwd; cat -- "$@"; } | sha256sum | cut -d ' ' -f 1; }
is_stamped() { [[ -f $1 && $(<"$1") == "$2" ]]; }

engine_hash() {
    # shellcheck disable=SC2046  # a list of files whose names we chose
    { echo "${STM_SANITIZE:-} ${PGO:-} $STM_SOURCE"; hash_of setup.py $(find tornado/stm/engine -name '*.[cdh]*' | sort) \
        $(compgen -G 'tornado/stm/interpreter/*.*' | sort); } | sha256sum | cut -d ' ' -f 1
}

# make_venv DIRECTORY PYTHON: a fresh environment.
make_venv() { "$2" -m venv --clear "$1" || die "$2 cannot make a virtual environment"; }

# fill_venv DIRECTORY WHAT...: with what pip is told to install.
fill_venv() {
    local venv=$1
    shift
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || die "pip could not fill $venv"
}

compile_engine() {
    local hash
    say "compiling the engine${STM_SANITIZE:+ with -fsanitize=$STM_SANITIZE}"
    hash=$(engine_hash)  # before: what is edited while it compiles is compiled next time
    .venv/bin/python setup.py --quiet build_ext --inplace || die "the engine does not compile"
    echo "$hash" >.venv/engine.stamp
}

# CPython's unpacked source of exactly the version of this interpreter, in $STM_SOURCE, which setup.py reads.
get_source() {
    if [[ -z ${STM_SOURCE:-} ]]; then
        STM_SOURCE=$(scripts/build_cpython.sh "$CACHE" "$("$1" -c 'import platform; print(platform.python_version())')") || exit 2
    fi
    export STM_SOURCE
}

# Whether .venv is there, whole, and runs on the interpreter that was asked for, if one was.
has_wanted_interpreter() {
    local real
    [[ -x .venv/bin/python ]] || return 1
    # What was interrupted while it was made has no pip yet, and never gets one.
    [[ -f .venv/install.stamp ]] || .venv/bin/python -m pip --version >/dev/null 2>&1 || return 1
    real=$(readlink -f .venv/bin/python)
    [[ ${PGO:-} != 1 || $real == *-pgo/* ]] || return 1
    [[ -z ${STM_PYTHON:-} || $real == "$(readlink -f "$(command -v "$STM_PYTHON")")" ]]
}

setup_venv() {
    local wanted engine
    wanted=$(hash_of setup.py pyproject.toml)
    if ! has_wanted_interpreter; then
        get_free_threaded
        say "making .venv from $PYTHON"
        make_venv .venv "$PYTHON"
    fi
    get_source .venv/bin/python
    engine=$(engine_hash)
    if ! is_stamped .venv/install.stamp "$wanted"; then
        say "filling .venv and compiling the engine (a minute or two)"
        # setuptools: to compile the engine in place; pip itself builds in an environment of its own.
        fill_venv .venv 'setuptools>=77' -e '.[test,bench,lint,docs]'
        (fill_venv .venv -e '.[compat]') || say "some of Tornado's own tests will be skipped"
        echo "$wanted" >.venv/install.stamp
        echo "$engine" >.venv/engine.stamp
    fi
    is_stamped .venv/engine.stamp "$engine" || compile_engine
}

# One environment for each minor version.  To find them, each candidate is started once, and again when others are there.
setup_venv_gil() {
    local wanted rank python version newest complete=yes
    wanted=$({ hash_of setup.py pyproject.toml; candidates; } | sha256sum | cut -d ' ' -f 1)
    if is_stamped .venv/gil.stamp "$wanted" && [[ -z $(broken_venvs_gil) ]]; then
        return
    fi
    broken_venvs_gil | xargs -r rm -rf
    declare -A pythons=()
    while IFS=$'\t' read -r rank python; do
        IFS=. read -r _ version _ <<<"$rank"
        pythons[$((10#$version))]=$python
    done < <(candidates | ranked gil)
    for version in "${!pythons[@]}"; do
        make_venv_gil ".venv-gil-3.$version" "${pythons[$version]}" || complete=no
    done
    newest=$(compgen -G '.venv-gil-3.*' | sort -V | tail -n 1 || true)
    if [[ -z $newest ]]; then
        say "no CPython 3.11 or later with a GIL found: nothing to compare with (install python3 and python3-venv for it)"
        return
    fi
    [[ -L .venv-gil ]] || rm -rf .venv-gil
    ln -sfn "$newest" .venv-gil
    [[ $complete == no ]] || echo "$wanted" >.venv/gil.stamp
}

# The environments whose interpreters are gone.
broken_venvs_gil() {
    local venv
    for venv in $(compgen -G '.venv-gil-3.*' || true); do
        [[ -x $venv/bin/python ]] || echo "$venv"
    done
}

make_venv_gil() {
    local wanted
    wanted=$(hash_of setup.py pyproject.toml)
    if [[ -x $1/bin/python ]] && is_stamped "$1/install.stamp" "$wanted"; then
        return
    fi
    say "making $1 from $2"
    if (make_venv "$1" "$2" && fill_venv "$1" -e '.[test]'); then
        echo "$wanted" >"$1/install.stamp"
    else
        rm -rf "$1"
        say "this CPython with a GIL will be missing from the tests and benchmarks"
        return 1
    fi
}

setup_venv_pypy() {
    if ! command -v pypy3 >/dev/null || [[ -x .venv-pypy/bin/python && -f .venv-pypy/install.stamp ]]; then
        return
    fi
    say "making .venv-pypy"
    # pip takes the newest Tornado that this PyPy is new enough for.
    if (make_venv .venv-pypy pypy3 && fill_venv .venv-pypy tornado); then
        touch .venv-pypy/install.stamp
    else
        say "PyPy will be missing from the benchmarks"
    fi
}

# The last Tornado for Python 2.7.
TORNADO_4=4.5.3

setup_venv_27() {
    local found python tools
    if [[ -x .venv-27/bin/python ]] && is_stamped .venv-27/install.stamp "$TORNADO_4"; then
        return
    fi
    found=$({ type -aP python2.7; compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/2.7*/bin/python2.7"; } || true)
    for python in $found ""; do
        # The shims of pyenv are there for versions that are not selected too.
        if [[ -n $python ]] && "$python" -W ignore -c 'import pip' 2>/dev/null </dev/null; then
            break
        fi
    done
    [[ -n $python ]] || return 0
    say "making .venv-27 from $python"
    tools=$(mktemp -d)
    # virtualenv comes from an index, because Python 2.7 has no module venv.
    if (
        export PIP_NO_PYTHON_VERSION_WARNING=1
        "$python" -W ignore -m pip install --quiet --disable-pip-version-check --target "$tools" 'virtualenv<20.22' &&
            PYTHONPATH=$tools "$python" -m virtualenv --quiet --clear .venv-27 &&
            fill_venv .venv-27 "tornado==$TORNADO_4"
    ); then
        echo "$TORNADO_4" >.venv-27/install.stamp
    else
        say "the PyPy-STM loop will be missing from the tests"
    fi
    rm -rf "$tools"
}

setup_siege() {
    if command -v siege >/dev/null; then
        return
    fi
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        say "installing siege"
        if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y siege; } </dev/null >/dev/null 2>&1; then
            return
        fi
    fi
    say "siege is missing: install the package siege to run the benchmarks that need a load generator"
}


# Two at once would write the same environments and the same cache.
{ mkdir -p "$CACHE" && touch "$CACHE/lock"; } 2>/dev/null || die "cannot write to $CACHE"
exec {LOCK}>"$CACHE/lock"
if command -v flock >/dev/null && ! flock --nonblock "$LOCK"; then
    say "waiting for another setup to finish"
    flock "$LOCK"
fi

case ${1:-all} in
    all)
        setup_venv
        setup_venv_gil
        setup_venv_pypy
        setup_venv_27
        setup_siege
        ;;
    engine)
        [[ -x .venv/bin/python ]] || die "there is no .venv yet: run make setup"
        get_source .venv/bin/python
        compile_engine
        ;;
    *) die "unknown argument '$1': it can be 'engine' or nothing" ;;
esac
