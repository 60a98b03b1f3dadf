#!/bin/sh
# test_machines.sh - other machines, old processors, another libc, and builds that leave things out.
# Each passes the self test, and writes what this machine writes when it transcribes with a toy model.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
transcribe=$build/transcribe
t_temp
strict='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi

"$build/make_toy" "$T" || exit 1
# 2 s of noise, 16 kHz mono: bytes of the model serve as samples.
{
    printf 'RIFF\044\372\000\000WAVEfmt \020\000\000\000\001\000\001\000\200\076\000\000'
    printf '\000\175\000\000\002\000\020\000data\000\372\000\000'
    tail -c 64000 "$T/toy.bin"
} >"$T/noise.wav"
"$transcribe" -q -t 1 -m "$T/toy.bin" --vad off --max-tokens 8 --no-fallback -f json \
    "$T/noise.wav" \
    >"$T/want" || exit 1
grep -q '"probability"' "$T/want" || { echo "the toy says nothing"; exit 1; }
"$build/pack" "$T/toy.bin" "$T/toy.wnpu" || exit 1 # one for all machines

# have TOOL...: skips with a reason when one is missing.
have() {
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool"; return 1; }
    done
}

# make_app COMPILER FLAGS...: $T/app, self test and transcription. tests/api/dropin/ has its source.
make_app() {
    # shellcheck disable=SC2086 # several words are wanted
    "$@" $strict -I. tests/api/dropin/src/app.c whisper_npu.c -o "$T/app" -lm -lpthread \
        >"$T/log" 2>&1 && return
    fail "$*: $(grep -m 5 -E 'error|warning|undefined' "$T/log")"
    return 1
}

# answers COMMAND...: with the model and the recording it writes what this machine writes.
answers() {
    if timeout 1800 "$@" >"$T/out" 2>"$T/log"; then
        cmp -s "$T/out" "$T/want" || fail "$* writes something else"
    else
        fail "$*: status $?, $(grep -v '^qemu.*warning' "$T/log" | head -c 300)"
    fi
}

# machine NAME EMULATOR FLAGS...: the library for another machine.
machine() {
    cc=$1-gcc emulator=$2
    shift 2
    rm -f "$T/app"
    have "$cc" "$emulator" && make_app "$cc" -O1 -DWNPU_KEEP_FLAGS -static "$@" || return
    answers "$emulator" "$T/app" "$T/toy.bin" "$T/noise.wav"
}

test_arm32() { machine arm-linux-gnueabihf qemu-arm -std=c99; }
test_riscv64() {
    machine riscv64-linux-gnu qemu-riscv64 -std=c99 || return
    [ ! -x "$T/app" ] || answers qemu-riscv64 "$T/app" "$T/toy.wnpu" "$T/noise.wav"
}
# Without flags gcc would compute floats in 80 bits here. With these the fast code is compiled, for
# eight registers.
test_i686() {
    machine i686-linux-gnu qemu-i386 -std=c99
    machine i686-linux-gnu qemu-i386 -std=c99 -msse2 -mfpmath=sse || return
    [ ! -x "$T/app" ] || answers qemu-i386 -cpu max "$T/app" "$T/toy.bin" "$T/noise.wav"
}

# The first has no dot product, the second no int8 matrix product.
test_aarch64() {
    machine aarch64-linux-gnu qemu-aarch64 -std=c99 || return
    [ -x "$T/app" ] || return
    for cpu in cortex-a53 cortex-a76; do
        answers qemu-aarch64 -cpu $cpu "$T/app" "$T/toy.wnpu" "$T/noise.wav"
    done
}

# cpu MODEL BEST: the same program on an x86-64 without newer instructions; BEST is what it takes.
cpu() {
    answers qemu-x86_64 -cpu "$1" "$transcribe" -v -t 1 -m "$T/toy.wnpu" --vad off --max-tokens 8 \
        --no-fallback -f json "$T/noise.wav"
    grep -qwF -e "$2" "$T/log" || fail "$1 does not take $2: $(grep -v '^qemu' "$T/log")"
    timeout 1800 qemu-x86_64 -cpu "$1" "$transcribe" --self-test >"$T/out" 2>"$T/log" ||
        fail "$1: $(cat "$T/out" "$T/log")"
}

test_old_x86() {
    [ "$(uname -m)" = x86_64 ] || { echo "  this machine is none"; return; }
    have qemu-x86_64 || return
    cpu qemu64,-sse3 scalar # SSE2 and nothing else
    cpu Nehalem sse4.1
}

# clang calls libatomic for 64 bits that it takes for misaligned.
test_clang() {
    have clang nm || return
    for target in i686-linux-gnu aarch64-linux-gnu arm-linux-gnueabihf; do
        flags=
        [ $target != i686-linux-gnu ] || flags='-msse2 -mfpmath=sse'
        # shellcheck disable=SC2086 # several words are wanted
        if clang --target=$target -isystem /usr/$target/include $strict -std=c99 $flags -I. \
            -c whisper_npu.c -o "$T/clang.o" 2>"$T/log"; then
            ! nm -u "$T/clang.o" | grep __atomic || fail "$target needs libatomic"
        else
            fail "$target: $(grep -m 5 -E 'error|warning' "$T/log")"
        fi
    done
}

test_big_endian() {
    ! "${CC:-cc}" -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ -fsyntax-only \
        whisper_npu.c 2>"$T/log" || fail "accepted"
    grep -q '#error.*little-endian' "$T/log" || fail "no reason given"
}

# The whole command line tool without a shared library, as for a small appliance.
test_musl() {
    have musl-gcc || return
    if musl-gcc -std=c11 -O1 -DWNPU_KEEP_FLAGS -static -s -DNO_NPU -I. examples/transcribe/*.c examples/kit/*.c \
        whisper_npu.c -o "$T/static" -lm 2>"$T/log"; then
        answers "$T/static" -q -t 2 -m "$T/toy.bin" --vad off --max-tokens 8 --no-fallback -f json \
            "$T/noise.wav"
        "$T/static" --self-test >"$T/out" 2>&1 || fail "$(cat "$T/out")"
        echo "  $(wc -c <"$T/static") bytes"
    else
        fail "$(grep -m 5 -E 'error|undefined' "$T/log")"
    fi
}

# clang without -O takes a second.
test_switches() {
    have clang || return
    for switch in -DWNPU_NO_THREADS -DWNPU_NO_SIMD -DWNPU_NO_STDIO \
        '-DWNPU_NO_THREADS -DWNPU_NO_SIMD -DWNPU_NO_STDIO'; do
        # shellcheck disable=SC2086 # several words are wanted
        make_app clang -std=c99 $switch && answers "$T/app" "$T/toy.bin" "$T/noise.wav"
    done
}

for t in arm32 riscv64 i686 aarch64 clang old_x86 big_endian musl switches; do
    t_run test_$t
done
t_end
