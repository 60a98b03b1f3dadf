#!/bin/sh
# test_abi.sh - the promise that programs and libraries of different versions work together, from
# 0.2 on. The older header is abi/0.2.h. The newer one is today's with a field more at the end of
# every structure that carries its size, and three parameters more.
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

# Offsets, values and functions are those of abi/0.2.txt, and what the frozen header has is in it.
test_layout() {
    [ "$(getconf LONG_BIT)" = 64 ] || { skip "the layouts are those of 64-bit systems"; return; }
    tests/api/abi/layout.sh >"$T/out" 2>&1 || fail "$(cat "$T/out")"
    tests/api/abi/layout.sh --of tests/api/abi/0.2.h >"$T/frozen" || fail "no layout of 0.2.h"
    awk -f tests/api/abi/grown.awk "$T/frozen" tests/api/abi/0.2.txt >"$T/out" ||
        fail "0.2.txt breaks the promise: $(head -n 5 "$T/out")"
    # What has grown at its end is told from what has not.
    sed '/^wnpu_params.user /a wnpu_params.more 352 8 double' "$T/frozen" >"$T/grown"
    awk -f tests/api/abi/grown.awk "$T/frozen" "$T/grown" || fail "a field at the end"
    for edit in '/^wnpu_params.vad /d' 's/^wnpu_params.vad 2/wnpu_params.vad 1/' \
        's/^\(wnpu_params.vad .*\) int32_t/\1 float/' '/^int wnpu_reset/d' \
        's/^\(sizeof .*\) 24/\1 32/' 's/^WNPU_E_IO -3/&3/' \
        '/^wnpu_params.drop_fillers /a wnpu_params.more 140 4 int32_t'; do
        sed "$edit" "$T/frozen" >"$T/grown"
        ! cmp -s "$T/frozen" "$T/grown" || fail "the layout is another: $edit"
        ! awk -f tests/api/abi/grown.awk "$T/frozen" "$T/grown" >"$T/out" || fail "kept: $edit"
    done
}

# The program of then with the library of now.
test_frozen() {
    newer_header
    # shellcheck disable=SC2086
    client frozen "$PWD/tests/api/abi/0.2.h" -DABI_FROZEN ${npu:+-DWITH_NPU}
    runs_frozen "$T/frozen" --structures
}

# runs_frozen CLIENT MODE
runs_frozen() {
    "$1" "$T/toy.bin" >"$T/out" 2>"$T/err" || fail "frozen: $(cat "$T/err")"
    cmp -s "$T/out" "$T/want" || fail "it reads: $(diff "$T/want" "$T/out" | head -5)"
    "$1" "$2" "$T/toy.bin" >"$T/out" 2>&1 || fail "$(grep -v '^wnpu_' "$T/out")"
    "$1" --parameters >"$T/lacking" 2>"$T/err" || fail "parameters: $(cat "$T/err")"
}

# $T/later/whisper_npu.h, today's header with a field more at the end of structures, and parameters.
newer_header() {
    [ ! -f "$T/later/whisper_npu.h" ] || return
    mkdir "$T/later"
    awk '/struct wnpu_[a-z_]* \{/ { sized = 0 } /uint32_t struct_size;/ { sized = 1 }
         /^} wnpu_params;/ { print "const char *abi_third; float abi_second; int32_t abi_first;" }
         /^}/ && sized { print "    uint64_t abi_future;"; sized = 0 } { print }' whisper_npu.h \
        >"$T/later/whisper_npu.h"
    [ "$(grep -c abi_future "$T/later/whisper_npu.h")" -gt 10 ] ||
        fail "the newer header is not newer"
    [ -x "$T/now" ] || client now "$PWD/whisper_npu.h"
    "$T/now" "$T/toy.bin" >"$T/want" 2>"$T/err" || fail "today's: $(cat "$T/err")"
    grep -q '"words"' "$T/want" || fail "the toy says nothing"
}

# row NAME GROUP TYPE RANGE: a row of the table of parameters.
row() {
    printf '    {"%s", NULL, NULL, "%s", "to come", PM_AT(%s), WNPU_PARAM_%s, %s, PM_NONE},\\\n' \
        "$1" "$2" "$1" "$3" "$4"
}

# Today's program and the frozen one, linked to a library that was compiled with the newer header
# and has three parameters more, which belong to its first groups. Accelerators and readers of WAV
# files do not grow.
test_older() {
    newer_header
    mkdir "$T/library"
    sed "/^static const pm_row pm_table/a\\
$(row abi_first basic INT '7, 1, 9')
$(row abi_second search FLOAT '0.5, 0.25, 1')
$(row abi_third style TEXT '0, 0, 0')
" whisper_npu.c >"$T/library/whisper_npu.c"
    sed '/struct wnpu_\(accel\|wav_reader\) {/,/^}/{/abi_future/d}' "$T/later/whisper_npu.h" \
        >"$T/library/whisper_npu.h"
    c='clang -O0' # which takes the least time
    command -v clang >/dev/null 2>&1 || c="${CC:-cc} -Og"
    # shellcheck disable=SC2086
    try $c -std=c11 -c "$T/library/whisper_npu.c" -o "$T/later.o" || return
    client older "$PWD/whisper_npu.h" "$T/later.o"
    "$T/older" "$T/toy.bin" >"$T/out" 2>"$T/err" || fail "with a newer library: $(cat "$T/err")"
    cmp -s "$T/out" "$T/want" || fail "an older program reads: $(diff "$T/want" "$T/out" | head -5)"
    client older_frozen "$PWD/tests/api/abi/0.2.h" -DABI_FROZEN "$T/later.o"
    runs_frozen "$T/older_frozen" --whole
    for name in abi_first abi_second abi_third; do
        grep -qx $name "$T/lacking" || fail "the frozen program sets $name"
    done
    client same "$T/later/whisper_npu.h" "$T/later.o"
    "$T/same" --parameters >"$T/lacking" 2>&1 || fail "a program of the same version fails"
    [ ! -s "$T/lacking" ] || fail "a program of the same version lacks $(cat "$T/lacking")"
}

test_newer() {
    newer_header
    client newer "$T/later/whisper_npu.h" -DABI_NEWER
    "$T/newer" "$T/toy.bin" >"$T/out" 2>"$T/err" || fail "newer: $(cat "$T/err")"
    cmp -s "$T/out" "$T/want" || fail "a newer program reads: $(diff "$T/want" "$T/out" | head -5)"
}

for t in structures layout frozen older newer; do
    t_run test_$t
done
t_end
