#!/bin/sh
# test_windows.sh - the library, transcribe and pack for Windows, made with mingw-w64 and run by wine:
# the self test, files with names in Unicode, mapped packs, command lines, and JSON that has the bytes
# of Linux with every instruction set. make test has 3 clips and tiny; with TEST_WINDOWS=full, as in
# make check-long, there are 12 clips, and base.en too. The sources also pass clang for Windows, and
# Visual Studio's own compiler is refused with a reason.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
speech=${WNPU_SPEECH:-../shared/speech}
T=$(mktemp -d) || exit 1
stop_wine() {
    [ ! -d "$T/wine" ] || wineserver -k 2>/dev/null
    rm -rf "$T"
}
trap stop_wine EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export WINEPREFIX="$T/wine" WINEDEBUG=-all
strict='-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi

# exe NAME ARGUMENTS...
exe() {
    program=$1
    shift
    wine "$build/windows/$program.exe" "$@"
}

# shellcheck disable=SC2086 # several words are wanted
test_clang() {
    have clang x86_64-w64-mingw32-gcc || return
    sources=$(sed -n 's/^OBJECTS_\(transcribe\|pack\) = //p' Makefile)
    for file in whisper_npu.c $(for name in transcribe pack $sources; do echo examples/*/"$name".c; done); do
        clang --target=x86_64-w64-mingw32 -DNO_NPU $strict -I. -fsyntax-only "$file" 2>"$T/log" ||
            fail "$file: $(grep -m 3 -E 'error|warning' "$T/log")"
    done
}

# gcc plays Visual Studio's compiler.
test_cl() {
    ! gcc -D_MSC_VER=1930 -fsyntax-only whisper_npu.c 2>"$T/log" || fail "cl was accepted"
    [ "$(grep -m 1 -c '#error.*clang-cl' "$T/log")" = 1 ] || fail "$(head -n 3 "$T/log")"
}

test_build() {
    have x86_64-w64-mingw32-gcc || return
    env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES make -s BUILD="$build" \
        ${TEST_CFLAGS:+CFLAGS="$TEST_CFLAGS"} windows >"$T/log" 2>&1 || fail "$(grep -m 5 error "$T/log")"
    ! grep -m 5 warning "$T/log" || fail "warnings"
    x86_64-w64-mingw32-objdump -p "$build/windows/transcribe.exe" |
        sed -n 's/.*DLL Name: //p' | tr '[:upper:]' '[:lower:]' | sort | tr '\n' ' ' >"$T/dlls"
    [ "$(cat "$T/dlls")" = "kernel32.dll msvcrt.dll shell32.dll " ] || fail "needs $(cat "$T/dlls")"
}

# built: whether the programs can be run.
built() {
    have wine && [ -f "$build/windows/transcribe.exe" ] || { skip "no programs"; return 1; }
}

test_library() {
    built || return
    "$build/make_toy" "$T" && "$build/pack" "$T/toy.bin" "$T/toy.wnpu" || { fail "no toy"; return; }
    mkdir -p "$T/files"
    exe tests/windows "$T/toy.bin" "$T/toy.wnpu" "$T/files" >"$T/out" 2>"$T/log" ||
        fail "$(cat "$T/out" "$T/log")"
    [ "$(tr -d '\r' <"$T/out")" = passed ] || fail "$(cat "$T/out")"
}

# Options, their order, UTF-8, backslashes, what is read from a pipe, replaced files, exit statuses.
test_command_line() {
    built || return
    name="Öffnung – 日本"
    tiny=$(examples/fetch.sh --offline tiny 2>/dev/null) &&
        cp "$(examples/fetch.sh --offline demo)" "$T/$name.wav" ||
        { skip "no model or recording; examples/fetch.sh all gets them"; return; }
    "$build/transcribe" -q -m "$tiny" --duration 5 --prompt "Grüße, 日本" -f json "$T/$name.wav" \
        >"$T/want" 2>/dev/null
    grep -q '"text"' "$T/want" || fail "no text on Linux"
    exe transcribe -qm"$tiny" "$T/$name.wav" --duration=5 --prompt "Grüße, 日本" -f json >"$T/is" \
        2>"$T/log"
    cmp -s "$T/want" "$T/is" || fail "another text with a Unicode name: $(cat "$T/log")"
    echo old >"$T/ä.json"
    exe transcribe -q -m "$tiny" --duration 5 --prompt="Grüße, 日本" --form json -o "$T/ä.json" -- \
        "Z:$(printf '%s' "$T/$name.wav" | tr / '\\')" 2>"$T/log"
    cmp -s "$T/want" "$T/ä.json" || fail "another file: $(cat "$T/log")"
    mkdir -p "$T/out folder"
    exe transcribe -q -m "$tiny" --duration 5 -f txt,srt -o "$T/out folder/" \
        "$T/$name.wav" 2>"$T/log"
    [ -f "$T/out folder/$name.txt" ] && [ -f "$T/out folder/$name.srt" ] ||
        fail "no files in a directory: $(cat "$T/log")"
    # shellcheck disable=SC2002 # a pipe is wanted
    cat "$T/$name.wav" | "$build/transcribe" -q -m "$tiny" --duration 5 -f json - >"$T/want" 2>/dev/null
    # shellcheck disable=SC2002
    cat "$T/$name.wav" | exe transcribe -q -m "$tiny" --duration 5 -f json - >"$T/is" 2>"$T/log"
    grep -q '"text"' "$T/want" && cmp -s "$T/want" "$T/is" ||
        fail "another text from a pipe: $(cat "$T/log")"
    for line in '3 none.wav' '1 --no-such-option x' '1 --language' '1 --threads=0x x'; do
        # shellcheck disable=SC2086
        exe transcribe -m "$tiny" ${line#* } >"$T/is" 2>"$T/log"
        [ $? -eq "${line%% *}" ] || fail "status of ${line#* }: $(cat "$T/log")"
    done
    exe transcribe -m "$tiny" 'it"s.wav' >"$T/is" 2>"$T/log"
    [ $? -eq 3 ] && grep -q 's.wav: Invalid argument' "$T/log" || fail "a quote: $(cat "$T/log")"
    mkfifo "$T/pipe"
    : <"$T/pipe" & # a reader that is gone when help is written
    exec 3>"$T/pipe"
    wait "$!"
    exe transcribe --help >&3 2>"$T/log"
    [ $? -eq 5 ] && [ ! -s "$T/log" ] || fail "a closed pipe: $(cat "$T/log")"
    exec 3>&-
    echo "no sound" >"$T/x.mp3"
    exe transcribe -m "$tiny" "$T/x.mp3" >"$T/is" 2>"$T/log"
    grep -q 'on Windows only WAV' "$T/log" || fail "says $(cat "$T/log")"
    exe pack "$T/toy.bin" "$T/p ü.wnpu" 2>"$T/log" && cmp -s "$T/p ü.wnpu" "$T/toy.wnpu" ||
        fail "another pack: $(cat "$T/log")"
    exe pack --check "$T/p ü.wnpu" >/dev/null 2>"$T/log" || fail "pack --check: $(cat "$T/log")"
}

# clips N: N recordings.
clips() {
    if [ -f "$speech/manifest.tsv" ]; then
        awk -F '\t' -v n="$1" '$2 == "short" { clip[k++] = $1 }
            END { for (i = 0; i < n; i++) print clip[int(i * k / n)] }' "$speech/manifest.tsv" |
            sed "s|^|$speech/|"
    else
        examples/fetch.sh --offline demo
    fi
}

# same MODEL SET CLIPS...: Linux and Windows write the same bytes.
same() {
    model=$1 set=$2
    shift 2
    "$build/transcribe" -q -m "$model" --isa "$set" -f json "$@" >"$T/want" 2>"$T/log" ||
        fail "$(cat "$T/log")"
    exe transcribe -q -m "$model" --isa "$set" -f json "$@" >"$T/is" 2>"$T/log" ||
        fail "$set: $(cat "$T/log")"
    cmp -s "$T/want" "$T/is" || fail "$set: another text than on Linux"
    grep -c '"text"' "$T/is" >/dev/null || fail "$set: no text"
}

test_same_bytes() {
    built || return
    n=3 models=tiny
    [ "${TEST_WINDOWS-}" != full ] || { n=12 models='tiny base.en'; }
    for m in $models; do
        model=$(examples/fetch.sh --offline "$m" 2>/dev/null) || { skip "no $m"; return; }
        IFS='
'
        # shellcheck disable=SC2046 # one path a line
        set -- $(clips "$n")
        unset IFS
        runs=
        for set in auto scalar sse4.1 avx2 avx-vnni avx512; do
            exe transcribe -q -m "$model" --isa "$set" "$T/none.wav" >/dev/null 2>&1
            [ $? -eq 3 ] || continue # the option is wrong (1) before a missing file is (3)
            runs="$runs $set"
            if [ "$set" = auto ] || [ "$n" -gt 3 ]; then
                same "$model" "$set" "$@"
            else
                same "$model" "$set" "$1"
            fi
        done
        echo "  $m: $# clips with$runs"
    done
}

for t in clang cl build library command_line same_bytes; do
    t_run test_$t
done
t_end
