#!/bin/sh
# test_systems.sh - systems other than Linux: WebAssembly (WASI) in node, no system at all, and
# whisper_npu.c compiled against declarations from the manuals of those that we cannot run, see
# tests/lib/systems. test_windows.sh has the Windows that we can run.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
here=$PWD
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
t_temp
strict='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'
stubs=$here/tests/lib/systems

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
toy_says "$build" || exit 1

# checks STUBS TARGET...: for each target with the headers in STUBS only.
# shellcheck disable=SC2086 # several words are wanted
checks() {
    have clang || return
    with="-nostdlibinc -isystem $stubs/$1 -isystem $stubs/common -ffreestanding"
    shift
    try clang --target="$1" -std=gnu17 $with -fsyntax-only $strict whisper_npu.c
    for target; do
        # Code, for the assembler's view of the inline assembly. Without protectors of the stack, with
        # which clang 14 crashes for OpenBSD on AArch64.
        try clang --target="$target" -std=c99 $with -fno-stack-protector $strict -c whisper_npu.c \
            -o "$T/$target.o"
    done
}

test_apple() { checks apple arm64-apple-macos11 x86_64-apple-macos11 arm64-apple-ios14; }
test_freebsd() { checks freebsd aarch64-unknown-freebsd13 x86_64-unknown-freebsd13; }
test_openbsd() { checks openbsd aarch64-unknown-openbsd x86_64-unknown-openbsd; }

test_android() {
    checks android aarch64-linux-android24 armv7a-linux-androideabi24 x86_64-linux-android24
}

# clang-cl's target: what is called is in kernel32 and the C library, and nothing in a runtime library
# of the compiler, which clang-cl does not link.
test_clang_cl() {
    checks windows x86_64-pc-windows-msvc aarch64-pc-windows-msvc || return
    nm=$(command -v llvm-nm llvm-nm-14 /usr/lib/llvm-*/bin/llvm-nm 2>/dev/null | head -n 1)
    [ -n "$nm" ] || { echo "  no llvm-nm"; return; }
    for target in x86_64-pc-windows-msvc aarch64-pc-windows-msvc; do
        "$nm" -u "$T/$target.o" | awk '{ print $NF }' | grep -vE '^([A-Z][A-Za-z]+|_aligned_(malloc|'\
'free)|__chkstk|_fltused|fabsf?|floor|sqrtf?|v?snprintf|mem[a-z]+|str[a-z]+)$' >"$T/calls"
        [ ! -s "$T/calls" ] || fail "$target calls $(tr '\n' ' ' <"$T/calls")"
    done
}

# The application's clock is all that there is of a system.
test_no_os() {
    printf '%s\n' '#include "whisper_npu.h"' 'double wnpu_clock_ms(void)' \
        '{ static double ms; return ms += 0.25; }' >"$T/clock.c"
    # clang without -O takes a second.
    try "$(command -v clang || command -v cc)" -DWNPU_NO_OS -I. tests/api/dropin/src/app.c \
        "$T/clock.c" whisper_npu.c -o "$T/no_os" -lm && hears "$T/no_os"
}

# wasi PROGRAM.wasm ARGUMENTS...
wasi() {
    node --no-warnings "$T/run.mjs" "$@"
}

# shellcheck disable=SC2086
test_wasi() {
    command -v clang >/dev/null && command -v node >/dev/null &&
        [ -f /usr/lib/wasm32-wasi/libc.a ] && command -v wasm-ld >/dev/null ||
        { skip "no clang, node, wasi-libc or lld"; return; }
    cat >"$T/run.mjs" <<'END'
import { WASI } from 'node:wasi';
import { readFile } from 'node:fs/promises';
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), preopens: { '/': '/' } });
const module = await WebAssembly.compile(await readFile(process.argv[2]));
process.exit(wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject())));
END
    printf '%s\n' '#include "whisper_npu.h"' '#include <stdio.h>' 'int main(void) {' \
        'wnpu_error e = {0, ""}; int bad = wnpu_self_test(NULL, &e);' \
        'printf("%s %d\n", bad ? e.message : "passed", wnpu_isa_available(WNPU_ISA_WASM));' \
        'return bad; }' >"$T/self.c"
    wasm='clang --target=wasm32-wasi -isystem /usr/include/wasm32-wasi -O1 -I.'
    for simd in 0 1; do
        name=$([ $simd = 1 ] && echo -msimd128)
        try $wasm -O0 $strict $name -DWNPU_NO_THREADS -c whisper_npu.c -o "$T/wasm.o" || return
        for program in "$T/self.c" tests/api/dropin/src/app.c; do
            try $wasm "$program" "$T/wasm.o" -L/usr/lib/wasm32-wasi \
                -o "$T/$(basename "$program" .c).wasm" || return
        done
        [ "$(wasi "$T/self.wasm" 2>"$T/log")" = "passed $simd" ] ||
            fail "self test $name: $(wasi "$T/self.wasm") $(head -n 3 "$T/log")"
        wasi "$T/app.wasm" "$T/toy.bin" "$T/noise.wav" >"$T/out" 2>"$T/log" &&
            cmp -s "$T/out" "$T/want" || fail "another text $name: $(head -n 3 "$T/log")"
    done
    # Without pages that cannot be touched, which WASI does not have.
    printf '%s\n' '#define _WASI_EMULATED_MMAN' '#include <sys/mman.h>' \
        '#define mprotect(...) 0' '#define madvise(...) 0' >"$T/pages.h"
    try $wasm -w -msimd128 -DWNPU_NO_THREADS -include "$T/pages.h" tests/unit/test_kernels.c \
        -L/usr/lib/wasm32-wasi -lwasi-emulated-mman -o "$T/kernels.wasm" || return
    wasi "$T/kernels.wasm" gm core >"$T/out" 2>"$T/log" ||
        fail "kernels: $(grep -A 3 '^FAIL' "$T/out") $(head -n 3 "$T/log")"
}

for t in apple freebsd openbsd android clang_cl no_os wasi; do
    t_run test_$t
done
t_end
