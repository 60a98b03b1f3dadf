#!/bin/sh
# test_abi.sh - programs compiled with an older and with a newer header than the library's. The newer
# one is today's with a field more at the end of every structure that carries its size.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
t_temp

npu=
if [ "${WNPU_LIBDRM-}" != no ] && nm "$build/libwhisper_npu.a" 2>/dev/null |
    grep -q ' T wnpu_amdxdna_open$'; then
    npu="-DWITH_NPU $(pkg-config --libs libdrm 2>/dev/null || echo -ldrm)"
fi

# client NAME HEADER FLAGS...: $T/NAME, compiled with HEADER.
client() {
    name=$1 header=$2
    shift 2
    # shellcheck disable=SC2086 # several words are wanted
    "${CC:-cc}" -std=c11 -Wall -Wextra -Werror ${WNPU_SANITIZED:+-fsanitize=address,undefined} \
        "-DABI_HEADER=\"$header\"" "$@" tests/api/abi/client.c "$build/libwhisper_npu.a" \
        -o "$T/$name" -lm -lpthread ${npu#-DWITH_NPU} >"$T/log" 2>&1 ||
        fail "$name does not compile: $(grep -m 3 -E 'error|warning|undefined' "$T/log")"
}

"$build/make_toy" "$T" || exit 1

# shellcheck disable=SC2086
test_structures() {
    client now "$PWD/whisper_npu.h" ${npu:+-DWITH_NPU} || return
    "$T/now" --structures "$T/toy.bin" >"$T/out" 2>&1 || fail "$(grep -v '^wnpu_' "$T/out")"
    # None is forgotten.
    sed -n -e '/^typedef struct wnpu_/,/^}/p' -e '/^struct wnpu_/,/^}/p' whisper_npu.h |
        awk '/struct wnpu_[a-z_]* \{/ { name = $(NF - 1) } /uint32_t struct_size;/ { print name }' |
        grep -v "${npu:+^$}${npu:-^wnpu_amdxdna}" | sort >"$T/declared"
    grep '^wnpu_' "$T/out" | sort | diff "$T/declared" - >"$T/differ" ||
        fail "structures that carry a size and those tested: $(cat "$T/differ")"
}

# $T/later/whisper_npu.h, today's header with a field more at the end of structures.
newer_header() {
    [ ! -f "$T/later/whisper_npu.h" ] || return
    mkdir "$T/later"
    awk '/struct wnpu_[a-z_]* \{/ { sized = 0 } /uint32_t struct_size;/ { sized = 1 }
         /^}/ && sized { print "    uint64_t abi_future;"; sized = 0 } { print }' whisper_npu.h \
        >"$T/later/whisper_npu.h"
    [ "$(grep -c abi_future "$T/later/whisper_npu.h")" -gt 10 ] ||
        fail "the newer header is not newer"
    [ -x "$T/now" ] || client now "$PWD/whisper_npu.h"
    "$T/now" "$T/toy.bin" >"$T/want" 2>"$T/err" || fail "today's: $(cat "$T/err")"
    grep -q '"words"' "$T/want" || fail "the toy says nothing"
}

# Today's program, linked to a library that was compiled with the newer header. Accelerators have to
# have all functions that the library knows.
test_older() {
    newer_header
    mkdir "$T/library"
    cp whisper_npu.c "$T/library/"
    sed '/^struct wnpu_accel {/,/^}/{/abi_future/d}' "$T/later/whisper_npu.h" \
        >"$T/library/whisper_npu.h"
    c='clang -O0' # which takes the least time
    command -v clang >/dev/null 2>&1 || c="${CC:-cc} -Og"
    # shellcheck disable=SC2086
    try $c -std=c11 -DWNPU_NO_SIMD -c "$T/library/whisper_npu.c" -o "$T/later.o" || return
    client older "$PWD/whisper_npu.h" "$T/later.o"
    "$T/older" "$T/toy.bin" >"$T/out" 2>"$T/err" || fail "with a newer library: $(cat "$T/err")"
    cmp -s "$T/out" "$T/want" || fail "an older program reads: $(diff "$T/want" "$T/out" | head -5)"
}

test_newer() {
    newer_header
    client newer "$T/later/whisper_npu.h" -DABI_NEWER
    "$T/newer" "$T/toy.bin" >"$T/out" 2>"$T/err" || fail "newer: $(cat "$T/err")"
    cmp -s "$T/out" "$T/want" || fail "a newer program reads: $(diff "$T/want" "$T/out" | head -5)"
}

for t in structures older newer; do
    t_run test_$t
done
t_end
