#!/usr/bin/env bash
# The body of `make lint`: what can be said of the code without running it.
#
#   1. ruff, on all Python (settings: pyproject.toml);
#   2. C: no tabs, no blanks at the ends of lines, no line longer than ruff allows in Python.  (.clang-format has more of the style,
#      but not all of it: `make format` applies it to changed lines only, and nothing is checked for it.)
#   3. mypy and pyright, on the public modules and the example applications.  tests/product/test_types.py has what they have to find.
#
# Says all that it finds, and has status 1 then.
#
#   scripts/lint.sh             all of it
#   scripts/lint.sh format      put right what can be: ruff's own corrections, and clang-format on the lines of C that differ from HEAD

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

BIN=.venv/bin
WIDTH=150

say() { echo "lint: $*" >&2; }
die() { say "$*"; exit 2; }

for tool in ruff mypy basedpyright git-clang-format; do
    [[ -x $BIN/$tool ]] || die "there is no $BIN/$tool: run make setup"
done

c_files() { find tornado tests -name '*.[ch]' -o -name '*.def'; }

check_c() {
    c_files | xargs awk -v width=$WIDTH '
        /\t/ { print FILENAME ":" FNR ": a tab"; bad = 1 }
        /[ \t\r]$/ { print FILENAME ":" FNR ": blanks at the end"; bad = 1 }
        length > width { print FILENAME ":" FNR ": longer than " width " characters"; bad = 1 }
        END { exit bad }'
}

status=0
case ${1:-check} in
    check)
        "$BIN/ruff" check --quiet || status=1
        check_c || status=1
        "$BIN/mypy" --no-error-summary || status=1
        "$BIN/basedpyright" || status=1
        ;;
    format)
        "$BIN/ruff" check --quiet --fix || status=1
        PATH=$PWD/$BIN:$PATH "$BIN/git-clang-format" --force HEAD -- tornado tests || (($? == 1)) || status=1  # 1: it has changed something
        check_c || status=1
        ;;
    *) die "unknown argument '$1': it can be 'format' or nothing" ;;
esac
exit $status
