#!/bin/sh
# test_matrix.sh - the small part of matrix.sh: one answer from every instruction set of this
# machine with 1, 2, 3 and 8 threads. `make matrix` does the rest.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh

test_one_answer() {
    if [ -n "${WNPU_SANITIZED-}" ]; then
        echo "  sanitizers would see nothing new here, and take long"
    elif ! examples/fetch.sh --offline tiny demo >/dev/null 2>&1; then
        skip "no model or recording; examples/fetch.sh all gets them"
    elif ! tests/api/matrix.sh quick; then
        fail "not one answer"
    fi
}

t_run test_one_answer
t_end
