#!/usr/bin/env bash
# The body of `make nightly`: all that takes long, one after the other.  What fails does not keep the rest from running; the status
# is 1 then, and the last lines say what it was.  The output of each is in build/nightly.
#
#   scripts/nightly.sh [NAME...]      only some of them

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=.venv/bin/python
OUTPUT=build/nightly

declare -A COMMANDS=(
    [sanitize]="scripts/sanitize.sh"
    [suites]="make --no-print-directory suites"
    [compat]="make --no-print-directory compat"
    [long]="$PYTHON -m pytest -q -rs -m long"
    [fuzz]="$PYTHON tests/support/fuzz_http.py --requests 100000"
)
names=("$@")
((${#names[@]})) || names=(sanitize suites compat long fuzz)

say() { echo "nightly: $*" >&2; }

for name in "${names[@]}"; do
    [[ -n ${COMMANDS[$name]:-} ]] || { say "there is no '$name': it can be ${!COMMANDS[*]}"; exit 2; }
done

mkdir -p "$OUTPUT"
failed=()
for name in "${names[@]}"; do
    say "$name: ${COMMANDS[$name]}"
    start=$SECONDS
    # shellcheck disable=SC2086  # commands that we chose
    if ${COMMANDS[$name]} >"$OUTPUT/$name.log" 2>&1 </dev/null; then
        say "$name: right, after $(((SECONDS - start) / 60)) minutes"
    else
        say "$name: status $? after $(((SECONDS - start) / 60)) minutes; the end of $OUTPUT/$name.log:"
        tail -n 20 "$OUTPUT/$name.log" >&2
        failed+=("$name")
    fi
done

if ((${#failed[@]})); then
    say "failed: ${failed[*]}"
    exit 1
fi
say "all right"
