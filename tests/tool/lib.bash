# SPDX-License-Identifier: MIT
# For the tool's tests: sourced with the path of the tool as $1. Every failure is told, and makes
# the test fail at its end (call finish).

weft=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
num_failures=0
# A launcher around the tests must not be taken for ours.
unset WEFT_ID WEFT_RANK WEFT_WORLD_SIZE WEFT_NODES RANK WORLD_SIZE OMPI_COMM_WORLD_RANK \
    SLURM_PROCID PMI_RANK

fail() {
    num_failures=$((num_failures + 1))
    echo "FAILED: $*"
    sed 's/^/  out: /' "$scratch/out"
    sed 's/^/  err: /' "$scratch/err"
}

# expect STATUS COMMAND...: leaves what it wrote in $scratch/out and $scratch/err.
expect() {
    local wanted=$1 status=0
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    command=$*
    [ "$status" -eq "$wanted" ] || fail "$command: status $status, not $wanted"
}

# The last command's output has a line that matches the extended regular expression.
said() { grep -Eq -- "$2" "$scratch/$1" || fail "$command: no line of std$1 matches: $2"; }
# And exactly that many.
said_times() {
    local count
    count=$(grep -Ec -- "$3" "$scratch/$1") || true
    [ "$count" -eq "$2" ] || fail "$command: $count lines of std$1, not $2, match: $3"
}

# The values of a loop: under sanitizers, whose grid is small, the first alone. Tests in C have each
# of the library's cases there.
some() { [ "${WEFT_TEST_GRID:-full}" = small ] && echo "$1" || echo "$@"; }

finish() {
    [ "$num_failures" -eq 0 ] || { echo "$num_failures failures"; exit 1; }
}
