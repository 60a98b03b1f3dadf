#!/bin/sh
# test_aarch64.sh - NEON's products and operators in an emulator. test_machines.sh runs a whole
# transcription on more machines; `make test-aarch64` runs all other tests there, which takes a
# while.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_temp
cc=aarch64-linux-gnu-gcc

# emulated NAME: a file of tests/unit/test_kernels.c, which is compiled once, for AArch64.
emulated() {
    if ! command -v $cc >/dev/null 2>&1 || ! command -v qemu-aarch64 >/dev/null 2>&1; then
        skip "no $cc, or no qemu-aarch64"
        return
    fi
    if [ -x "$T/test_kernels" ] || $cc -std=c11 -O2 -static -I. tests/unit/test_kernels.c \
        -o "$T/test_kernels" -lm -lpthread 2>"$T/log"; then
        qemu-aarch64 "$T/test_kernels" "$1" >"$T/out" 2>&1 || fail "$(tail -n 20 "$T/out")"
    else
        fail "$(grep -m 5 -E 'error|undefined' "$T/log")"
    fi
}

test_products() { emulated gm; }
test_operators() { emulated core; }

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
t_run test_products
t_run test_operators
t_end
