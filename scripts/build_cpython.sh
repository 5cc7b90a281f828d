#!/usr/bin/env bash
# Builds a free-threaded CPython from Debian's source package and prints the path of its interpreter; or only gets the source.
#
#   scripts/build_cpython.sh CACHE
#   scripts/build_cpython.sh CACHE VERSION      unpacks the source of that version and prints its folder
#   scripts/build_cpython.sh CACHE list         prints the versions whose checksums are below
#
# Only a tarball with the right SHA-256 is ever unpacked.  The sum of the newest version comes from Debian's index, which
# apt has checked against Debian's signature; the sums of the versions to fall back on are below.
#
#   CACHE/src/                       tarballs, unpacked sources (Python-VERSION), and the log of each build
#   CACHE/cpython-VERSIONt/          the finished interpreter (with PGO=1: cpython-VERSIONt-pgo)
#   CACHE/build.XXXXXX/              a build in progress: what it installs is moved into place in one step at its end,
#                                    so that half an interpreter is never taken for one

set -euo pipefail

CACHE=$1
WANTED=${2:-}
SRC=$CACHE/src
APT_HELPER=/usr/lib/apt/apt-helper
POOL=pool/main/p/python3.14
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

PINNED=(
    "3.14.7 3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81"
    "3.14.6 143b1dddefaec3bd2e21e3b839b34a2b7fb9842272883c576420d605e9f30c63"
    "3.14.5 7e32597b99e5d9a39abed35de4693fa169df3e5850d4c334337ffd6a19a36db6"
    "3.14.4 d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8"
)

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 2; }


# What a build needs

# What must be there, and the Debian package that brings it.
TOOLS=("gcc gcc" "make make" "pkg-config pkg-config" "xz xz-utils")
HEADERS=(
    "stdlib.h libc6-dev" "openssl/ssl.h libssl-dev" "zlib.h zlib1g-dev" "ffi.h libffi-dev" "bzlib.h libbz2-dev"
    "lzma.h liblzma-dev" "readline/readline.h libreadline-dev" "sqlite3.h libsqlite3-dev" "uuid/uuid.h uuid-dev"
)

# Prints the packages of what is missing.
missing_packages() {
    local entry what package
    for entry in "${TOOLS[@]}"; do
        read -r what package <<<"$entry"
        command -v "$what" >/dev/null || echo "$package"
    done
    for entry in "${HEADERS[@]}"; do
        read -r what package <<<"$entry"
        # <stdio.h> first: readline.h does not include what it uses.
        printf '#include <stdio.h>\n#include <%s>\n' "$what" | gcc -E -x c -o /dev/null - 2>/dev/null || echo "$package"
    done
}

check_needs() {
    local missing
    missing=$(missing_packages | paste -sd ' ')
    [[ -n $missing ]] || return 0
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        say "installing $missing"
        apt-get update -qq </dev/null >/dev/null 2>&1 || true  # old lists may do
        # libzstd is optional, and old releases do not have one that is new enough.
        # shellcheck disable=SC2086  # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $missing libzstd-dev </dev/null >/dev/null 2>&1 || true
        missing=$(missing_packages | paste -sd ' ')
    fi
    [[ -z $missing ]] || die "to build CPython, install these packages or what they are called here: $missing"
}


# The source

# The places that this machine's apt gets packages from, the likeliest to hold Debian's pool first.
mirrors() {
    # --no-release-info: the places are wanted even if nothing was ever downloaded from them.
    # shellcheck disable=SC2016  # the variable is apt's
    apt-get indextargets --no-release-info --format '$(REPO_URI)' 2>/dev/null | grep -E '^https?://' | sort -u |
        awk '{ print /\/debian\/?$/ ? 0 : 1, $0 }' | sort | cut -d ' ' -f 2 | sed 's,/*$,/,'
}

# newest MIRROR SCRATCH: prints "VERSION SHA256" of the newest python3.14 in Debian's index, or nothing.
# apt reads the index into SCRATCH, with sources of our own, so that neither the machine's lists change nor root is needed.
newest() {
    local mirror=$1 scratch=$2 apt
    mkdir -p "$scratch/lists/partial" "$scratch/archives/partial"
    echo "deb-src [signed-by=$KEYRING] $mirror unstable main" >"$scratch/sources.list"
    apt=(-qq -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch" -o APT::Sandbox::User=)
    apt-get "${apt[@]}" update </dev/null >/dev/null 2>&1 || return 0
    (cd "$scratch" && apt-get "${apt[@]}" source --download-only --print-uris python3.14 2>/dev/null) |
        sed -nE "s/^'[^']*' python3\.14_([0-9.]+)\.orig\.tar\.xz [0-9]+ SHA256:([0-9a-f]{64})$/\1 \2/p" | head -n 1
}

is_verified() { [[ -f $1 ]] && echo "$2  $1" | sha256sum --check --status; }

# fetch VERSION SHA256 MIRROR: gets the tarball into the cache; true if it is the right one.
fetch() {
    local tarball=$SRC/python3.14_$1.orig.tar.xz
    "$APT_HELPER" -qq download-file "$3$POOL/${tarball##*/}" "$tarball.part" "SHA256:$2" </dev/null >/dev/null 2>&1 &&
        is_verified "$tarball.part" "$2" && mv "$tarball.part" "$tarball" && return 0
    rm -f "$tarball".part*  # apt-helper adds .FAILED to the name of what has a wrong sum
    return 1
}

is_wanted() { [[ -z $WANTED || $1 == "$WANTED" ]]; }

# The version that is wanted, or the one to build, in $VERSION, with its verified tarball in the cache.
get_source() {
    local entry sha256 mirror found
    for entry in "${PINNED[@]}"; do
        read -r VERSION sha256 <<<"$entry"
        is_wanted "$VERSION" && is_verified "$SRC/python3.14_$VERSION.orig.tar.xz" "$sha256" && return
    done
    if [[ ! -x $APT_HELPER ]]; then
        [[ -z $WANTED ]] || die "there is no apt to get the source of CPython $WANTED: name its folder with STM_SOURCE"
        die "no free-threaded CPython 3.14 here and no apt to get its source: install one (python3.14t) or uv"
    fi
    for mirror in $(mirrors); do
        say "looking for CPython 3.14 where apt gets its packages"
        found=$(newest "$mirror" "$WORK/index")
        for entry in ${found:+"$found"} "${PINNED[@]}"; do
            read -r VERSION sha256 <<<"$entry"
            if is_wanted "$VERSION" && fetch "$VERSION" "$sha256" "$mirror"; then
                say "fetched the source of CPython $VERSION"
                return
            fi
        done
    done
    [[ -z $WANTED ]] || die "apt's mirrors do not offer the source of CPython $WANTED: name its folder with STM_SOURCE"
    die "apt's mirrors do not offer the source of CPython 3.14: install a free-threaded CPython 3.14 (python3.14t) or uv"
}


# The build

# step NAME COMMAND...: runs it with its output in the log, and shows that it is alive.
step() {
    local name=$1 began=$SECONDS pid shown=0 progress
    shift
    set -m  # a process group of its own, so that an interrupted build ends with its compilers
    "$@" >>"$LOG" 2>&1 </dev/null &
    set +m
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        progress="setup: CPython $VERSION: $name, $(grep -cE '^gcc.* -c ' "$LOG" || true) files compiled, $((SECONDS - began)) s"
        if [[ -t 2 ]]; then
            printf '\r\e[K%s' "$progress" >&2
        elif ((SECONDS - began >= shown + 15)); then
            shown=$((SECONDS - began))
            echo "$progress" >&2
        fi
    done
    [[ ! -t 2 ]] || printf '\r\e[K' >&2
    wait "$pid" || die "building CPython failed ($name): the end of $LOG says why"
}

build() {
    local final=$1 options=(--disable-gil)
    [[ ${PGO:-} != 1 ]] || options+=(--enable-optimizations --with-lto)
    mkdir "$WORK/source"
    tar -xJf "$SRC/python3.14_$VERSION.orig.tar.xz" -C "$WORK/source" --strip-components=1
    cd "$WORK/source"
    : >"$LOG"
    unset MAKEFLAGS MFLAGS MAKELEVEL  # of the make that runs this
    step configuring ./configure --prefix="$final" "${options[@]}"
    step compiling make -j"$(nproc)"
    step installing make install DESTDIR="$WORK/root"
    rm -rf "$final"  # one that is there can only be broken, or it would have been taken
    mv -T "$WORK/root$final" "$final"
}

clean_up() {
    local job
    for job in $(jobs -p); do
        kill -- "-$job" 2>/dev/null || true
    done
    rm -rf "$WORK"
}

if [[ $WANTED == list ]]; then
    printf '%s\n' "${PINNED[@]%% *}"
    exit
fi

mkdir -p "$SRC"
WORK=$(mktemp -d "$CACHE/build.XXXXXX")
trap clean_up EXIT
trap 'exit 2' INT TERM

if [[ -n $WANTED ]]; then
    FOLDER=$SRC/Python-$WANTED
    if [[ ! -f $FOLDER/Include/patchlevel.h ]]; then
        get_source
        mkdir "$WORK/source"
        tar -xJf "$SRC/python3.14_$VERSION.orig.tar.xz" -C "$WORK/source" --strip-components=1
        rm -rf "$FOLDER"
        mv -T "$WORK/source" "$FOLDER"
    fi
    echo "$FOLDER"
    exit
fi
check_needs
get_source
LOG=$SRC/build-$VERSION.log
FINAL=$CACHE/cpython-${VERSION}t
[[ ${PGO:-} != 1 ]] || FINAL+=-pgo
say "building CPython $VERSION without a GIL in $FINAL (minutes; only once)"
build "$FINAL"
echo "$FINAL/bin/python3"
