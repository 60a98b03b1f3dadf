#!/bin/sh
# test_build.sh - what the README promises about compiling the library, and about its source.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_temp

strict='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'
compilers=
for c in gcc clang; do
    command -v $c >/dev/null 2>&1 && compilers="$compilers $c"
done
sources='whisper_npu.h whisper_npu.c'
[ ! -f npu_amdxdna.c ] || sources="$sources npu_amdxdna.c"

# npu_amdxdna.c is compiled where libdrm's headers are.
drm=$(pkg-config --cflags libdrm 2>/dev/null || echo -I/usr/include/libdrm)
npu=no
# shellcheck disable=SC2086 # several words are wanted
if [ -f npu_amdxdna.c ] && echo | "${CC:-cc}" $drm -include xf86drm.h -E -x c - >"$T/log" 2>&1; then
    npu=yes
fi

# compile_npu COMPILER FLAGS...: npu_amdxdna.c into $T/npu.o.
# shellcheck disable=SC2086
compile_npu() {
    "$@" $drm -c npu_amdxdna.c -o "$T/npu.o" >"$T/log" 2>&1 ||
        fail "$* -c npu_amdxdna.c: $(grep -m 3 -E 'error|warning' "$T/log")"
}

# compile COMPILER FLAGS...: whisper_npu.c into $T/object.o; fails with the first complaints.
compile() {
    "$@" -c whisper_npu.c -o "$T/object.o" >"$T/log" 2>&1 ||
        fail "$* -c whisper_npu.c: $(grep -m 3 -E 'error|warning' "$T/log")"
}

# unoptimised COMPILER: the flags with which it is fastest. whisper_npu.c asks gcc for more otherwise.
unoptimised() { [ "$1" = clang ] && echo -O0 || echo -O1 -DWNPU_KEEP_FLAGS; }

# optimised COMPILER: $T/COMPILER.o, compiled once for several tests. clang does not warn of what only
# its optimiser sees, and without -O it takes a few seconds.
# shellcheck disable=SC2086 # several words are wanted
optimised() {
    [ ! -f "$T/$1.o" ] || return
    rm -f "$T/object.o"
    compile "$1" -std=c99 "$([ "$1" = clang ] && echo -O0 || echo -O2)" $strict
    [ ! -f "$T/object.o" ] || mv "$T/object.o" "$T/$1.o"
}

# Every compiler, or a word that one is missing.
each() {
    [ "$compilers" = " gcc clang" ] || skip "not both of gcc and clang are installed"
    for c in $compilers; do
        compile "$c" "$@"
    done
}

# The language alone. test_dropin.sh compiles without any flags, and runs what comes of it.
test_plain_c99() { each -std=c99 -fsyntax-only; }

# A program may ask for less of POSIX than the library needs. The headers are those of any compiler.
# shellcheck disable=SC2086 # CC may be several words
test_old_posix() {
    for flag in -D_POSIX_C_SOURCE=200112L -D_POSIX_C_SOURCE=1 -D_POSIX_C_SOURCE= -D_POSIX_SOURCE \
        -D_XOPEN_SOURCE=500 -D_XOPEN_SOURCE=600; do
        compile ${CC:-cc} -std=c99 -fsyntax-only -Werror $flag
    done
}

# -fsyntax-only would miss what only the optimiser sees.
test_no_warnings() {
    [ "$compilers" = " gcc clang" ] || skip "not both of gcc and clang are installed"
    for c in $compilers; do
        optimised "$c"
    done
}

# shellcheck disable=SC2086
test_npu() {
    [ $npu = yes ] || { skip "no libdrm headers"; return; }
    for c in $compilers; do
        compile_npu $c
        compile_npu $c -std=c99 -O2 $strict
    done
    # Copies of the descriptor end contexts (Linux up to 6.19), drmIoctl() repeats EAGAIN for ever.
    # One thread is created, at opening: see section xm_.
    nm -u "$T/npu.o" | awk '{ print $NF }' | grep -E '^(dup[23]?|fcntl(64)?|fork|system|popen|exit|'\
'abort|getenv|signal|sigaction|printf|fprintf|drm.*)$' |
        grep -vE '^drm(Get|Free)Version$' >"$T/calls"
    [ ! -s "$T/calls" ] || fail "npu_amdxdna.c calls: $(tr '\n' ' ' <"$T/calls")"
}

# shellcheck disable=SC2086
test_switches() {
    for switch in WNPU_NO_THREADS WNPU_NO_SIMD WNPU_NO_STDIO; do
        each -std=c99 -fsyntax-only -D$switch $strict
    done
    for c in $compilers; do
        compile $c $(unoptimised $c) -std=c99 -DWNPU_NO_THREADS -DWNPU_NO_SIMD -DWNPU_NO_STDIO $strict
        ! nm -u "$T/object.o" | grep -qE ' (fopen|pthread_create)$' || fail "switched off, yet there"
    done
}

# Without an operating system: what is called besides libc's memory, strings and formats, and libm, is
# the application's clock. Every section but os_ is free of what would include or ask for a system.
# gcc takes long for vector instructions, which make no difference here.
# shellcheck disable=SC2086
test_no_os() {
    for c in $compilers; do
        no_os $c $(unoptimised $c) $([ $c = clang ] || echo -DWNPU_NO_SIMD)
    done
    each -std=c99 -fsyntax-only -DWNPU_NO_OS $strict
    awk '/^ \* +[0-9]+\. [a-z][a-z]_ / { section = $3 }
        section != "" && section != "os_" && /^ *#.*(<sys\/|<unistd|<windows|<pthread|<fcntl|<time\.h|'\
'_WIN32|__APPLE__|__FreeBSD__|__linux__)/ && !/define WNPU_AMX|defined\(__x86_64__\)|__MINGW32__/ &&
        section != "er_" { print "  line " FNR ": " $0 }
        section != "os_" && !/^ ?\*/ &&
        /[^a-z_0-9>.](mmap|munmap|madvise|pread|fstat|nanosleep|getpid|sysconf|clock_gettime|'\
'pthread_[a-z_]+|posix_memalign|syscall|open|close)\(/ { print "  line " FNR ": " $0 }' \
        whisper_npu.c >"$T/calls"
    [ ! -s "$T/calls" ] || fail "outside section os_: $(head -n 5 "$T/calls")"
}

# no_os COMPILER FLAGS...
# shellcheck disable=SC2086
no_os() {
    compile "$@" -std=c99 -DWNPU_NO_OS $strict
    nm -u "$T/object.o" | awk '{ print $NF }' | grep -vE '^_*(wnpu_clock_ms|malloc|free|bcmp|mem[a-z]*|'\
'str[a-z]*|v?snprintf|(__)?v?snprintf_chk|__mem[a-z]*_chk|qsort|bsearch|'\
'(a?sin|a?cos|a?tan|exp|log|log2|log10|pow|sqrt|floor|ceil|round|rint|fabs|fmod|ldexp|frexp)f?|'\
'(stack_chk_fail|GLOBAL_OFFSET_TABLE_|tls_get_addr))$' >"$T/calls"
    [ ! -s "$T/calls" ] || fail "calls besides libc and the clock: $(tr '\n' ' ' <"$T/calls")"
    ! nm -u "$T/object.o" | grep -q ' fopen$' || fail "opens files"
    nm -u "$T/object.o" | grep -q ' wnpu_clock_ms$' || fail "the clock is not used"
}

# The file includes itself: also under another name, from another folder, and when it is included.
test_renamed() {
    mkdir -p "$T/far/src"
    cp whisper_npu.h whisper_npu.c "$T/far/src/"
    mv "$T/far/src/whisper_npu.c" "$T/far/src/speech.c"
    echo '#include "src/speech.c"' >"$T/far/all.c"
    c=${CC:-cc}
    for file in far/src/speech.c "$T/far/src/speech.c" far/all.c; do
        (cd "$T" && $c -std=c99 -fsyntax-only "$file") 2>"$T/log" ||
            fail "$file: $(grep -m 3 -E 'error' "$T/log")"
    done
    $c -std=c99 -fsyntax-only -DWNPU_SELF='"speech.c"' "$T/far/src/speech.c" 2>"$T/log" ||
        fail "with WNPU_SELF: $(grep -m 3 -E 'error' "$T/log")"
}

test_no_fast_math() {
    for c in $compilers; do
        if "$c" -std=c99 -ffast-math -fsyntax-only whisper_npu.c >"$T/log" 2>&1; then
            fail "$c -ffast-math was accepted"
        fi
        grep -q '#error.*ffast-math' "$T/log" || fail "$c -ffast-math: no reason given"
    done
}

# Without __GNUC__ a compiler is neither gcc nor clang.
test_no_other_compiler() {
    for c in $compilers; do
        ! "$c" -U__GNUC__ -U__clang__ -E whisper_npu.c >"$T/out" 2>"$T/log" || fail "$c: another was accepted"
        grep -q '#error.*needs gcc or clang' "$T/log" || fail "$c: no reason given"
    done
}

test_header_is_cxx() {
    found=no
    # Numbers of results are what functions take, without casts.
    printf '%s\n' '#include "whisper_npu.h"' 'int main() { wnpu_stats s; wnpu_ledger_span l;' \
        's.isa = WNPU_ISA_AUTO; l.reason = WNPU_REASON_NONE;' \
        'return wnpu_version() == 0 || wnpu_isa_available(s.isa) == 0 || !wnpu_isa_name(s.isa) ||' \
        '!wnpu_ledger_reason_name(l.reason) || !wnpu_language_name(wnpu_language_id("en")); }' \
        >"$T/x.cpp"
    for c in g++ clang++; do
        command -v $c >/dev/null 2>&1 || continue
        found=yes
        $c -std=c++11 -Wall -Wextra -Wpedantic -Werror -I. -c "$T/x.cpp" -o "$T/x.o" 2>"$T/log" ||
            fail "$c: $(head -n 3 "$T/log")"
    done
    [ $found = yes ] || skip "no C++ compiler"
}

# shellcheck disable=SC2086
test_header_is_c99() {
    printf '#include "whisper_npu.h"\nint main(void) { return WNPU_OK; }\n' >"$T/x.c"
    for c in $compilers; do
        $c -std=c99 $strict -I. -c "$T/x.c" -o "$T/x.o" 2>"$T/log" ||
            fail "$c: $(head -n 3 "$T/log")"
    done
}

# The header's functions are in whisper_npu.c and npu_amdxdna.c together.
test_symbols() {
    for c in $compilers; do
        symbols "$c"
    done
}

# symbols COMPILER
symbols() {
    optimised "$1"
    nm -g --defined-only "$T/$1.o" >"$T/names"
    if [ $npu = yes ]; then
        compile_npu "$1"
        nm -g --defined-only "$T/npu.o" >>"$T/names"
    fi
    awk 'NF && $NF !~ /^_?wnpu_/ { print $NF }' "$T/names" >"$T/foreign"
    [ ! -s "$T/foreign" ] || fail "global symbols of other names: $(tr '\n' ' ' <"$T/foreign")"
    awk '$2 ~ /[BDCGS]/' "$T/names" >"$T/data"
    [ ! -s "$T/data" ] || fail "global data: $(cat "$T/data")"
    # Every function of the header is there.
    without=$([ $npu = yes ] || echo '^wnpu_amdxdna_')
    sed -n 's/^WNPU_API .*[ *]\(wnpu_[a-z0-9_]*\)(.*/\1/p' whisper_npu.h |
        grep -v "${without:-^$}" | sort >"$T/declared"
    awk '{ print $NF }' "$T/names" | sort >"$T/defined"
    comm -3 "$T/declared" "$T/defined" >"$T/differ"
    [ -s "$T/declared" ] || fail "found no declarations in the header"
    [ ! -s "$T/differ" ] || fail "header and object differ in: $(tr '\n' ' ' <"$T/differ")"
}

# Clean hands: no environment, locale, signals, output, exit.
test_calls() {
    for c in $compilers; do
        calls "$c"
    done
}

# calls COMPILER
calls() {
    optimised "$1"
    nm -u "$T/$1.o" | awk '{ print $NF }' | grep -E '^_?(exit|_exit|abort|__assert_fail|'\
'getenv|secure_getenv|setenv|setlocale|localeconv|strtod|signal|sigaction|raise|kill|fork|system|popen|'\
'printf|__printf_chk|fprintf|__fprintf_chk|vfprintf|puts|putchar|perror|stdout|stderr|stdin|'\
'fwrite|write|rand|srand|strtok|strerror|environ)$' >"$T/calls"
    [ ! -s "$T/calls" ] || fail "calls that a library must not make: $(tr '\n' ' ' <"$T/calls")"
    # Data that can change is a global by another name. .data.rel.ro are constant pointers.
    size -A "$T/$1.o" | awk '($1 ~ /^\.(data|bss|tdata|tbss)/ && $1 !~ /^\.data\.rel\.ro/) &&
        $2 > 0' >"$T/data"
    [ ! -s "$T/data" ] || fail "writable data: $(tr '\n' ' ' <"$T/data")"
}

test_lines() {
    # shellcheck disable=SC2086
    # In the C locale a character of UTF-8 is its first byte and some to take away.
    LC_ALL=C awk '{ gsub(/[\200-\277]/, "") }
         length($0) > 100 { print "  " FILENAME ":" FNR ": " length($0) " columns" }
         /\t/ { print "  " FILENAME ":" FNR ": tab" }
         /[ \t]$/ { print "  " FILENAME ":" FNR ": blank at the end" }' \
        $sources examples/*.[ch] examples/*/*.[ch] >"$T/long"
    [ ! -s "$T/long" ] || fail "$(head -n 20 "$T/long")"
}

# Sums of products stay in registers. Whether gcc keeps an unrolled loop's sums there depends on what
# stands around it: when it did not, the encoder took an eighth longer and every answer was right.
test_registers() {
    if [ "$(uname -m)" != x86_64 ]; then
        echo "  skipped: only for x86-64"
        t_skip_now=1
        return
    fi
    optimised gcc
    objdump -d --no-show-raw-insn "$T/gcc.o" >"$T/registers"
    for function in gm_micro_256 gm_some_256 gm_avx512_micro gm_avx512_few_micro \
        gm_avx512_pair_micro gm_avx512_two_micro gm_avx512_int4_rows gm_avx512_int4_tile; do
        awk -v name="^<$function[.>]" '/^[0-9a-f]+ </ { in_it = $2 ~ name; found += in_it }
            in_it && /%[yz]mm/ && /\(%r[sb]p/ { print; bad = 1 } END { exit bad || !found }' \
            "$T/registers" >"$T/stack" ||
            fail "$function is missing or keeps vectors on the stack: $(head -n 4 "$T/stack")"
    done
}

# A function body stands between { and } in the first column.
test_functions() {
    # shellcheck disable=SC2086
    awk 'FNR == 1 { start = 0 } /^\{/ { start = FNR }
         /^\}/ && start { if (FNR - start > 75) print FILENAME ":" start ": " FNR - start " lines"
                          start = 0 }' $sources examples/*.c examples/*/*.c >"$T/long"
    [ ! -s "$T/long" ] || fail "long functions: $(cat "$T/long")"
}

# The contents block at the top and the sections' banners name the same things in one order.
test_contents() {
    contents whisper_npu.c
    contents npu_amdxdna.c
}

contents() {
    awk '{ gsub(/ +/, " ") } /\*\// && !done { done = 1; next }
         !done && /^ \* [0-9]+\. / { print }' "$1" >"$T/contents"
    awk '{ gsub(/ +/, " ") } after && /^ \* [0-9]+\. / { print }
         { after = /^\/\* =+$/ }' "$1" >"$T/banners"
    [ -s "$T/contents" ] || fail "$1: no contents block"
    cmp -s "$T/contents" "$T/banners" ||
        fail "$1: contents and banners differ: $(diff "$T/contents" "$T/banners" | head -n 8)"
    awk 'seen[$2]++ { exit 1 }' "$T/banners" || fail "$1: two sections have one number"
}

# What long sections contain is marked.
test_marks() {
    # shellcheck disable=SC2086 # several words are wanted
    awk -v marks=250 -f tests/lib/outline.awk ${sources#whisper_npu.h } >"$T/unmarked" ||
        fail "tests/lib/outline.awk: status $?"
    [ ! -s "$T/unmarked" ] || fail "lines without a mark: $(cat "$T/unmarked")"
    sed '/^\/\* ---- /d' whisper_npu.c >"$T/plain.c"
    awk -v marks=250 -f tests/lib/outline.awk "$T/plain.c" >"$T/unmarked"
    [ "$(wc -l <"$T/unmarked")" -gt 30 ] || fail "not found: $(cat "$T/unmarked")"
}

# A section uses only sections before it. That the check finds such uses is checked on a copy in which
# the third section calls the last.
test_order() {
    # shellcheck disable=SC2086 # several words are wanted
    awk -v uses=1 -f tests/lib/outline.awk ${sources#whisper_npu.h } >"$T/uses" ||
        fail "tests/lib/outline.awk: status $?"
    [ ! -s "$T/uses" ] || fail "uses of later sections: $(head -n 10 "$T/uses")"
    last=$(sed -n 's/^ \* [0-9]*\. \([a-z][a-z]_\)  .*/\1/p' whisper_npu.c | tail -n 1)
    awk -v name="${last}forbidden" '{ print } /^ \*  3\. ar_/ { third = 1 }
        third && /^\{/ { print name "(); /* " name " */"; third = 0 }' whisper_npu.c >"$T/order.c"
    awk -v uses=1 -f tests/lib/outline.awk "$T/order.c" | sed 's/.*: //' >"$T/uses"
    [ "$(cat "$T/uses")" = "${last}forbidden in section 3" ] || fail "not found: $(cat "$T/uses")"
}

# The state of a run has owners: each part is written by few sections, statistics are added to
# elsewhere but set by few, and functions take the parts that they use. What a decoding reads is set by
# wd_load() and wd_read() from a view, and by nobody else. ru_begin() resets all, sn_read() restores.
test_owners() {
    awk -v owners=1 -f tests/lib/outline.awk whisper_npu.c | sort >"$T/owners"
    printf '%s\n' 'audio aw_' 'audio ru_' 'audio sn_' 'audio wi_' 'caches wd_load' 'language ru_' \
        'language sn_' 'language st_' 'language wd_' 'language wi_' 'lookahead aw_' 'lookahead sn_' \
        'lookahead tt_' 'lookahead wd_' 'lookahead wi_' 'place aw_' 'place ru_' 'search wd_read' \
        'search wi_start' 'stats aw_' 'stats lg_' 'work lg_' 'work ru_' 'work sn_' 'work st_' \
        'work wd_' 'work wi_' >"$T/want"
    grep -v '^whole ' "$T/owners" | diff "$T/want" - >"$T/differ" ||
        fail "sections that write: $(cat "$T/differ")"
    # A second place that sets what the caches hold is found.
    awk '{ print } /^static void wi_prepare\(/ { getline; print; print "r->engine.positions = 0;" }' \
        whisper_npu.c >"$T/second.c"
    awk -v owners=1 -f tests/lib/outline.awk "$T/second.c" | grep -qx 'caches wi_prepare' ||
        fail "not found: a write of wi_prepare()"
    whole=$(sed -n 's/^whole //p' "$T/owners")
    [ "$whole" -ge 50 ] && [ "$whole" -le 72 ] ||
        fail "$whole functions take the whole run, at most 72 should: pass them what they use"
}

# make outline lists every section with its lines and functions.
# Writes of what a decoding reads are few; and what make measures counts is found.
test_measures() {
    awk -f tests/lib/measures.awk whisper_npu.c >"$T/measures"
    n=$(sed -n 's/^inputs //p' "$T/measures")
    [ "$n" -le 12 ] || fail "$n writes of a decoding's inputs outside their owners, at most 12 should"
    cat >"$T/measured.c" <<'END'
/* =====
 * 16. ju_  judging text
 * ===== */
#define JU_MOST 2u /* a limit */
static const int32_t ju_least_ms[] = {
    [JU_SOME] = 100, /* and another */
    [JU_MORE] = JU_MOST, /* the first */
    200 /* and a third */
};
static const ju_repetition ju_once = {1, 2}, ju_twice = {3, 4};
static const ju_repetition ju_again = {1, 2};
static int ju_is_enough(int what, int64_t ms)
{
    return ms >= ju_least_ms[what] && what <= JU_MOST;
}
/* =====
 * 30. aw_  the audio window
 * ===== */
static int aw_own(ru_audio *a, int b, int c, int d, int e, const char *f)
{
    a->content = 500; /* e->positions = 1 */
    return b < 500 && c > WI_LEAST_MS && 0.5f > d && d < 0.5f && e < 5;
}
/* =====
 * 33. wi_  a window
 * ===== */
static int wi_other(ru_run *r, void (*f)(int, int, int, int, int))
{
    r->audio.content = 1;
    r->engine.positions = r->audio.content == 5 && n >> 20 < JU_MOST;
    status = status == WNPU_OK ? f("r->engine.positions = 1") : status;
}
END
    awk -f tests/lib/measures.awk "$T/measured.c" | tr '\n' ' ' >"$T/out"
    [ "$(cat "$T/out")" = "inputs 2 chains 1 wide 1 rules 3 thresholds 6 judges 1 strays 1 limits 5 " ] ||
        fail "$(cat "$T/out")"
    grep -qx 'strays 0' "$T/measures" || fail "a limit of ju_ is compared with elsewhere"
}

test_outline() {
    ${MAKE:-make} -s outline >"$T/out" 2>"$T/log" || fail "make outline: $(head -n 3 "$T/log")"
    # shellcheck disable=SC2086
    sed -n 's/^ \* *\([0-9][0-9]*\. [a-z][a-z]_  \)/\1/p' ${sources#whisper_npu.h } |
        awk '{ gsub(/ +/, " ") } !seen[$0]++' >"$T/want"
    awk '$1 * $2 > 0 { sub(/^ *[0-9]+ +[0-9]+ +[0-9]+ +/, ""); gsub(/ +/, " "); print }' "$T/out" |
        diff "$T/want" - >"$T/differ" || fail "sections: $(head -n 5 "$T/differ")"
    awk '$4 == "1." && $5 == "er_" && ($1 < 10 || $2 < 100 || $3 < 5) { exit 1 }' "$T/out" ||
        fail "$(cat "$T/out")"
    mkdir "$T/sections" && awk -v to="$T/sections" -f tests/lib/outline.awk whisper_npu.c
    for f in contents $(sed -n 's/^ \* \{3,\}[0-9]*\. \([a-z][a-z]\)_ .*/\1/p' whisper_npu.c); do
        cat "$T/sections/$f.c"
    done | cmp -s - whisper_npu.c || fail "the sections together are not the file"
}

# A format is a row of the library's table, and programs ask the row: with one more, whose cues are
# words, transcribe's objects as they are offer it and measure when its words are said, and so does
# the server.
test_new_format() {
    build=${WNPU_BUILD:-build}
    last=$(sed -n '/^typedef enum wnpu_format/,/^}/s/^ *\(WNPU_FORMAT_[A-Z_]*\).*/\1/p' whisper_npu.h |
        tail -n 1)
    sed -e 's|^static const wr_writer wr_writers.*|&\
    ['"$last"' + 1] = {.name = "toy", .type = "text/x-toy", .cue = wr_tsv_cue,\
                                      .tick_ms = 1, .words = 1},|' whisper_npu.c >"$T/more.c"
    toy_says "$build" || return
    objects=$(sed -n 's/^OBJECTS_transcribe = //p' Makefile)
    c='clang -O0' # which takes the least time
    command -v clang >/dev/null 2>&1 || c="${CC:-cc} -Og"
    try $c -std=c11 -DWNPU_NO_SIMD -DWNPU_SELF='"more.c"' -I. -c "$T/more.c" -o "$T/more.o" || return
    # shellcheck disable=SC2086,SC2046
    try $c "$T/more.o" $(printf "$build/%s.o " transcribe $objects) "$build/libwhisper_npu.a" \
        -o "$T/more" -lm -lpthread \
        $([ $npu = no ] || pkg-config --libs libdrm 2>/dev/null || echo -ldrm) || return
    "$T/more" --help >"$T/help"
    grep -q '^Subtitles (.*, toy)$' "$T/help" || fail "--help does not name the format"
    for f in toy vtt; do
        [ $f = toy ] && words= || words='--max-words 1'
        # shellcheck disable=SC2086
        "$T/more" -q -t 1 -m "$T/toy.bin" --vad off --max-tokens 8 --no-fallback $words \
            -o "$T/cues.$f" "$T/noise.wav" 2>"$T/log" || fail "$f: $(cat "$T/log")"
    done
    awk -F '[:. ]+' '/-->/ { print ($1 * 60 + $2) * 60000 + $3 * 1000 + $4 "\t" \
                                   ($6 * 60 + $7) * 60000 + $8 * 1000 + $9 }' "$T/cues.vtt" >"$T/want"
    [ "$(wc -l <"$T/want")" -ge 2 ] || fail "vtt has no words: $(cat "$T/cues.vtt")"
    cut -f 1,2 "$T/cues.toy" | cmp -s - "$T/want" ||
        fail "words have other times than in vtt: $(cut -f 1,2 "$T/cues.toy" | diff - "$T/want")"
    cat >"$T/asked.c" <<'END'
#define _GNU_SOURCE
#include "examples/kit/json.c"
#include "examples/kit/list.c"
#include "examples/server/server_request.c"
int main(int argc, char **argv)
{
    static request r;
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    return argc == 2 && request_init(&r, API_OPENAI, &p, 5) == 0 &&
           request_field(&r, "response_format", argv[1], strlen(argv[1])) == 0 &&
           request_finish(&r, NULL) == 0 ? 10 + (int)r.params.words : 1;
}
END
    try $c -std=c11 -I. "$T/asked.c" "$T/more.o" -o "$T/asked" -lm -lpthread || return
    "$T/asked" toy
    [ $? -eq 11 ] || fail "the server does not measure the words of the format"
    "$T/asked" text
    [ $? -eq 10 ] || fail "the server measures words of text"
}

# The example on the first screen of the header is examples/minimal.c, and compiles as C and C++.
test_header_example() {
    sed -n '/^ \*     #include <stdio.h>/,/^ \* Chapters/s/^ \*\( \{5\}\)\{0,1\}//p' whisper_npu.h |
        sed '/^ Chapters/d' | sed '$d' >"$T/example.c"
    sed -n '/^#include/,$p' examples/minimal.c | diff - "$T/example.c" >"$T/differ" ||
        fail "whisper_npu.h and examples/minimal.c differ: $(head -n 5 "$T/differ")"
    [ "$(grep -n '^ \* THE CONTRACT' whisper_npu.h | cut -d : -f 1)" -le 60 ] ||
        fail "the example is not on the first screen"
    # The tasks name what there is.
    sed -n '/^ \* TASKS$/,/^ \*\//p' whisper_npu.h | grep -o 'wnpu_[a-z_]*' | sort -u >"$T/named"
    [ "$(wc -l <"$T/named")" -gt 30 ] || fail "few functions for tasks"
    while read -r name; do
        sed 1,150d whisper_npu.h | grep -q "[ *(]$name[( ;]\|define $name(" || fail "no $name"
    done <"$T/named"
    for c in 'gcc -std=c99' 'clang -std=c11' 'g++ -x c++ -std=c++11'; do
        command -v "${c%% *}" >/dev/null 2>&1 || continue
        # shellcheck disable=SC2086 # several words are wanted
        $c -Wall -Wextra -Wpedantic -Werror -I. -fsyntax-only "$T/example.c" 2>"$T/log" ||
            fail "$c: $(head -n 3 "$T/log")"
    done
}

# The header's command for two copies renames every function, in C and C++.
test_prefix() {
    renames acme
    sed -n 's/^WNPU_API .*[ *]\(wnpu_[a-z0-9_]*\)(.*/\1/p' whisper_npu.h >"$T/declared"
    sed -n 's/^#define wnpu_\([a-z0-9_]*\) acme_\1$/wnpu_\1/p' "$T/acme.h" |
        diff "$T/declared" - >"$T/differ" || fail "not renamed: $(head -n 5 "$T/differ")"
    printf '#include "whisper_npu.h"\nunsigned f(void);\nunsigned f(void) { return %s; }\n' \
        'wnpu_version() + (unsigned)wnpu_transcribe(NULL, NULL, NULL)' >"$T/prefix.c"
    for c in 'gcc -std=c99' 'clang -std=c11' 'g++ -x c++ -std=c++11'; do
        command -v "${c%% *}" >/dev/null 2>&1 || continue
        # shellcheck disable=SC2086 # several words are wanted
        try $c -Wall -Wextra -Wpedantic -Werror -include "$T/acme.h" -I. -c "$T/prefix.c" \
            -o "$T/prefix.o" || continue
        [ "$(nm -u "$T/prefix.o" | awk '/wnpu_|acme_/ { print $NF }' | tr '\n' ' ')" = \
            "acme_transcribe acme_version " ] || fail "$c: $(nm -u "$T/prefix.o")"
    done
}

# The README's snippets compile as they are, with declarations around them, and the first reads a WAV
# file by the library.
test_readme_snippets() {
    awk '/^```/ { n++; next } n == 1' README.md >"$T/first.c"
    sed -n '/^#include/,$p' examples/minimal.c | diff - "$T/first.c" >"$T/differ" ||
        fail "README.md and examples/minimal.c differ: $(head -n 5 "$T/differ")"
    {
        printf '%s\n' '#include "whisper_npu.h"' '#include <stdio.h>' \
            'int record(short *samples, int n); int live(wnpu_session *session);' \
            'int live(wnpu_session *session) {' \
            'short samples[1600]; wnpu_segment segment; size_t n = 0;'
        awk '/^```/ { n++; next } n == 3' README.md
        echo 'return 0; }'
    } >"$T/readme.c"
    for c in $compilers; do
        $c -std=c99 -Wall -Wextra -Werror -I. -fsyntax-only "$T/readme.c" 2>"$T/log" ||
            fail "$c: $(head -n 5 "$T/log")"
    done
}

# As long as the documents say.
test_minimal_is_short() {
    for file in minimal.c:45 live.c:67; do
        [ "$(wc -l <"examples/${file%:*}")" -eq "${file#*:}" ] || fail "not ${file#*:} lines: ${file%:*}"
    done
    grep -q 'live sound in 67 lines' README.md || fail "README.md has another number"
    grep -q 'in 45 lines of C' examples/README.md && grep -q 'in 67 lines' examples/README.md ||
        fail "examples/README.md has other numbers"
}

# What is at the top is all that one needs to know about first; the rest has a folder.
test_top_level() {
    { git ls-files 2>/dev/null | grep . || ls -A; } | sed 's|/.*||' | sort -u |
        grep -vxE '\.git|build.*' >"$T/top"
    printf '%s\n' .ci .gitignore LICENSE Makefile README.md examples npu_amdxdna.c tests \
        whisper_npu.c whisper_npu.h | sort | diff - "$T/top" >"$T/log" ||
        fail "the top level differs: $(grep '^[<>]' "$T/log" | tr '\n' ' ')"
}

# Files that the documents link to exist.
test_links() {
    for f in README.md examples/README.md examples/*/*.md tests/*.md tests/*/README.md; do
        grep -oE '\]\([^)#]+' "$f" | sed 's/^](//' | grep -v '^https*:' | while read -r to; do
            [ -e "$(dirname "$f")/$to" ] || echo "$f: $to"
        done
    done >"$T/links"
    [ ! -s "$T/links" ] || fail "links to nothing: $(cat "$T/links")"
}

# A tree with the real Makefile and sources of a few lines each in $T/tree, and in $T/cc a compiler
# for which libdrm is missing as long as $T/no_libdrm exists.
small_tree() {
    rm -rf "$T/tree" && mkdir -p "$T/tree/examples/kit" || return
    cp -R examples/packaging "$T/tree/examples/" || return
    cp Makefile "$T/tree"
    grep '^#define WNPU_VERSION_[MP]' whisper_npu.h >"$T/tree/whisper_npu.h"
    {
        echo 'int wnpu_small(void); int wnpu_npu(void); int wnpu_drm(void); int drmAvailable(void);'
        echo 'int wnpu_output(void);'
    } >>"$T/tree/whisper_npu.h"
    small whisper_npu 'int wnpu_small(void) { return LEVEL; }'
    small npu_amdxdna 'int wnpu_npu(void) { return drmAvailable(); }'
    small examples/kit/npu '#ifdef NO_NPU
int wnpu_drm(void) { return 0; }
#else
int wnpu_drm(void) { (void)wnpu_npu; return 1; }
#endif'
    for name in $(sed -n 's/^OBJECTS_[a-z]* +*= //p' Makefile); do
        [ "$name" = npu ] || small "examples/kit/$name" 'extern int unused;'
    done
    small examples/kit/output 'int wnpu_output(void) { return 0; }'
    mkdir "$T/tree/examples/server" && echo "<p>" >"$T/tree/examples/server/server.html" &&
        echo "{}" >"$T/tree/examples/server/openapi.json"
    small examples/transcribe '#include <stdio.h>
int main(void) { return printf("%d %d\\n", wnpu_small(), wnpu_drm()) < 0; }'
    for name in minimal live voices pack listen npu_doctor server; do
        small examples/$name 'int main(void) { return wnpu_small(); }'
    done
    for folder in bench lib npu speech; do
        mkdir -p "$T/tree/tests/$folder"
    done
    small tests/npu/test_npu 'int main(void) { return wnpu_npu() - wnpu_npu(); }'
    for name in speech/wer speech/make_sounds bench/bench_plot bench/bench_live bench/fidelity \
        lib/make_toy npu/sim_small npu/make_pack npu/npu_live; do
        echo 'int main(void) { return 0; }' >"$T/tree/tests/$name.c"
    done
    printf '#!/bin/sh\ncase "$*" in *xf86drm*) [ ! -e "%s/no_libdrm" ] || exit 1 ;; esac\nexec %s "$@"\n' \
        "$T" "${CC:-cc}" >"$T/cc"
    chmod +x "$T/cc"
}

# small NAME TEXT: a source file of the small tree.
small() {
    printf '#include "whisper_npu.h"\n#ifndef LEVEL\n#define LEVEL 0\n#endif\n%b\n' "$2" \
        >"$T/tree/$1.c"
}

# small_make ARGUMENTS...: make as a user runs it, whatever the make above this test was told.
small_make() {
    env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES make -s CC="$T/cc" "$@" >"$T/log" 2>&1 ||
        fail "make $*: $(tail -n 3 "$T/log")"
}

# says WANTED PROGRAM
says() {
    [ "$("$2" 2>&1)" = "$1" ] || fail "$2 says '$("$2" 2>&1)' and not '$1'"
}

# Objects, archive and programs depend on the compiler, on flags and on what was found.
test_make_remakes() {
    small_tree
    touch "$T/no_libdrm"
    small_make -C "$T/tree"
    says '0 0' "$T/tree/build/transcribe"
    small_make -C "$T/tree" CPPFLAGS=-DLEVEL=1
    says '1 0' "$T/tree/build/transcribe"
    small_make -C "$T/tree" CFLAGS="-DLEVEL=2 -DTEXT='\"a b\"'"
    says '2 0' "$T/tree/build/transcribe"
    printf '#!/bin/sh\ncase $1 in --version) echo cc 99 ;; *) exec "%s" "$@" -DLEVEL=3 ;; esac\n' \
        "$T/cc" >"$T/cc2"
    chmod +x "$T/cc2"
    small_make -C "$T/tree" CC="$T/cc2"
    says '3 0' "$T/tree/build/transcribe"
    sed -i 's/LEVEL=3/LEVEL=4/; s/cc 99/cc 100/' "$T/cc2"
    small_make -C "$T/tree" CC="$T/cc2"
    says '4 0' "$T/tree/build/transcribe"
    # Nothing is made again when nothing changed.
    touch "$T/stamp"
    small_make -C "$T/tree" CC="$T/cc2"
    [ -z "$(find "$T/tree/build" -type f -newer "$T/stamp")" ] ||
        fail "made again without need: $(find "$T/tree/build" -type f -newer "$T/stamp")"
    [ $npu = yes ] || { skip "no libdrm headers"; return; }
    small_make -C "$T/tree"
    rm "$T/no_libdrm"
    small_make -C "$T/tree" tests
    says '0 1' "$T/tree/build/transcribe"
    [ -x "$T/tree/build/tests/test_npu" ] || fail "no test of the NPU part after libdrm came"
    touch "$T/no_libdrm"
    small_make -C "$T/tree"
    says '0 0' "$T/tree/build/transcribe"
    [ "$(ar t "$T/tree/build/libwhisper_npu.a")" = whisper_npu.o ] ||
        fail "the archive keeps npu_amdxdna.o when libdrm is gone"
    rm -f "$T/no_libdrm"
}

# make says which programs it leaves out, and what would be needed for them.
test_make_says_what_is_missing() {
    small_tree
    touch "$T/no_libdrm"
    small_make -C "$T/tree" CIVETWEB=
    grep -qx 'left out: npu_doctor (libdrm-dev), server (libcivetweb-dev)' "$T/log" ||
        fail "neither: $(cat "$T/log")"
    small_make -C "$T/tree" CIVETWEB=yes CIVETWEB_LIBS=
    grep -qx 'left out: npu_doctor (libdrm-dev)' "$T/log" || fail "no libdrm: $(cat "$T/log")"
    rm "$T/no_libdrm"
    [ $npu = yes ] || { skip "no libdrm headers"; return; }
    small_make -C "$T/tree" CIVETWEB=
    grep -qx 'left out: server (libcivetweb-dev)' "$T/log" || fail "no civetweb: $(cat "$T/log")"
    small_make -C "$T/tree" CIVETWEB=yes CIVETWEB_LIBS=
    ! grep -q 'left out' "$T/log" || fail "nothing is missing: $(cat "$T/log")"
}

test_make_spaces() {
    small_tree
    small_make -C "$T/tree" tests BUILD="$T/a b's"
    says '0 1' "$T/a b's/transcribe"
    sed -i 's/return LEVEL/return LEVEL + 5/' "$T/tree/whisper_npu.c"
    touch -d '+2 seconds' "$T/tree/whisper_npu.c"
    small_make -C "$T/tree" BUILD="$T/a b's"
    says '5 1' "$T/a b's/transcribe"
    touch -d '+4 seconds' "$T/tree/whisper_npu.h"
    touch "$T/stamp"
    small_make -C "$T/tree" BUILD="$T/a b's"
    [ "$T/a b's/transcribe" -nt "$T/stamp" ] || fail "a changed header is not noticed"
    to="$T/root of it/opt/my wnpu"
    small_make -C "$T/tree" install BUILD="$T/a b's" DESTDIR="$T/root of it" PREFIX='/opt/my wnpu'
    says '5 1' "$to/bin/transcribe"
    for f in include/whisper_npu.h lib/libwnpu.a lib/pkgconfig/wnpu.pc lib/libwnpu.so \
        lib/cmake/wnpu/wnpu-config.cmake; do
        [ -f "$to/$f" ] || fail "$f is not installed"
    done
    if command -v pkg-config >/dev/null; then
        flags=$(PKG_CONFIG_PATH="$to/lib/pkgconfig" pkg-config --cflags --libs wnpu)
        eval "set -- $flags"
        [ "$1|$2" = '-I/opt/my wnpu/include|-L/opt/my wnpu/lib' ] || fail "pkg-config says $flags"
    fi
    small_make -C "$T/tree" uninstall BUILD="$T/a b's" DESTDIR="$T/root of it" PREFIX='/opt/my wnpu'
    [ -z "$(find "$T/root of it" ! -type d)" ] ||
        fail "uninstall leaves $(find "$T/root of it" ! -type d)"
    small_make -C "$T/tree" clean BUILD="$T/a b's"
    [ ! -e "$T/a b's" ] || fail "clean leaves the build directory"
}

# The build directory is the caller's, like every path that is given.
test_make_elsewhere() {
    small_tree
    mkdir -p "$T/my home" && mv "$T/tree" "$T/my home/the source"
    mkdir -p "$T/else where"
    (cd "$T/else where" && small_make -f "$T/my home/the source/Makefile" && exit "$t_bad") || t_bad=1
    says '0 1' "$T/else where/build/transcribe"
    (cd "$T/else where" && small_make -f '../my home/the source/Makefile' all install BUILD=out \
        DESTDIR=staged PREFIX=/usr && exit "$t_bad") || t_bad=1
    says '0 1' "$T/else where/staged/usr/bin/transcribe"
    [ -d "$T/else where/out" ] || fail "BUILD=out is not in the caller's directory"
    [ ! -e "$T/my home/the source/build" ] || fail "the source directory was written to"
    (cd "$T/else where" && small_make -f '../my home/the source/Makefile' check-symbols BUILD=out &&
        exit "$t_bad") || t_bad=1
}

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
for t in plain_c99 old_posix no_warnings npu switches no_os renamed no_fast_math \
    no_other_compiler header_is_cxx header_is_c99 symbols calls registers lines functions contents \
    marks order owners measures outline new_format header_example prefix readme_snippets minimal_is_short top_level links \
    make_remakes make_says_what_is_missing make_spaces make_elsewhere; do
    t_run test_$t
done
t_end
