#!/bin/sh
# test_aarch64.sh - the library built for AArch64, and its NEON products run in an emulator. The
# other tests run there too with `make test-aarch64`, which takes a while.
cd "$(dirname "$0")/.." || exit 1
. tests/t.sh
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cc=aarch64-linux-gnu-gcc

test_compiles() {
    if ! command -v $cc >/dev/null 2>&1; then
        skip "no $cc"
        return
    fi
    $cc -std=c99 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -c whisper_npu.c \
        -o "$T/object.o" 2>"$T/log" || fail "$(grep -m 5 -E 'error|warning' "$T/log")"
}

test_products() {
    if ! command -v $cc >/dev/null 2>&1 || ! command -v qemu-aarch64 >/dev/null 2>&1; then
        skip "no $cc, or no qemu-aarch64"
        return
    fi
    if $cc -std=c11 -O2 -static -I. tests/test_gm.c -o "$T/test_gm" -lm -lpthread 2>"$T/log"; then
        qemu-aarch64 "$T/test_gm" >"$T/out" 2>&1 || fail "$(tail -n 20 "$T/out")"
    else
        fail "$(grep -m 5 -E 'error|undefined' "$T/log")"
    fi
}

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
t_run test_compiles
t_run test_products
t_end
