# shellcheck shell=sh
# t.sh - t.h for shell tests, to be sourced. A test is a function that calls fail for each thing
# that is wrong, or skip; t_run runs it and t_end prints the line that tests/run reads.
t_passed=0 t_failed=0 t_skipped=0 t_bad=0 t_skip_now=0

fail() {
    printf '  %s\n' "$*"
    t_bad=1
}

# Missing data or tools are a failure in CI.
skip() {
    if [ "${CI-}" = true ]; then
        fail "what is missing is a failure in CI: $*"
    else
        printf '  skipped: %s\n' "$*"
        t_skip_now=1
    fi
}

# T: a directory that is removed at the end.
t_temp() {
    T=$(mktemp -d) || exit 1
    trap 'rm -rf "$T"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Also build and speech: directories of programs and recordings; tiny and base: models, or empty.
# shellcheck disable=SC2034 # the tests read them
t_models() {
    t_temp
    build=${WNPU_BUILD:-build}
    speech=${WNPU_SPEECH:-../shared/speech}
    tiny=$(examples/fetch.sh --offline tiny 2>/dev/null)
    base=$(examples/fetch.sh --offline base.en 2>/dev/null)
}

# run STATUS COMMAND...: its output goes to $T/out and $T/err.
run() {
    want=$1
    shift
    "$@" >"$T/out" 2>"$T/err"
    got=$?
    [ "$got" -eq "$want" ] ||
        fail "status $got, not $want: $* ($(head -c 300 "$T/err" | tr '\n' ' '))"
}

# soon COMMAND...: waits until it succeeds; fails after some minutes. What it waits for is an event,
# which a busy machine may bring late.
soon() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || { fail "does not happen: $*"; return 1; }
        sleep 0.05
    done
}

# begin COMMAND...: runs it in the background as $pid; its output goes to $T/out and $T/err. Not as a
# shell does it, which would have it ignore SIGINT and read nothing. 9 is for what it reads from.
begin() {
    : >"$T/out" 2>"$T/err"
    {
        env --default-signal=INT,QUIT "$@" <&7 7<&- 9>&- >"$T/out" 2>"$T/err" &
        pid=$!
    } 7<&0
}

# ended STATUS: waits for $pid.
ended() {
    wait $pid
    got=$?
    [ $got -eq "$1" ] || fail "status $got, not $1 ($(head -c 300 "$T/err" | tr '\n' ' '))"
}

# feed FILE: writes it to standard output, which stays open until interrupted is over.
feed() {
    cat "$1" && echo >"$T/written" && soon [ -e "$T/over" ]
}

# interrupted: sends SIGINT to $pid, which reads from feed, when all was written. It ends with status 4.
interrupted() {
    soon [ -e "$T/written" ]
    kill -INT $pid
    ended 4
    echo >"$T/over"
    wait
    rm -f "$T/written" "$T/over"
}

# catches PID: whether a program, no longer the shell that started it, has a handler of SIGTERM, which
# it installs with those of other signals.
catches() {
    [ "$(readlink "/proc/$1/exe")" != "$(readlink "/proc/$$/exe")" ] &&
        sed -n 's/^SigCgt:.*\(.\)...$/\1/p' "/proc/$1/status" | grep -q '[4-7c-f]'
}

# have TOOL...: skips with a reason when one is missing.
have() {
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool"; return 1; }
    done
}

# renames PREFIX: $T/PREFIX.h, by the command that whisper_npu.h has for two copies in a program.
renames() {
    eval "$(sed -n 's/^ \* *\(sed -n .*whisper_npu.h\) >acme.h$/\1/p' whisper_npu.h)" |
        sed "s/ acme_/ $1_/" >"$T/$1.h"
}

# try COMMAND...: fails with its first complaints.
try() {
    "$@" >"$T/log" 2>&1 && return
    fail "$*: $(grep -m 5 -iE 'error|warning|undefined' "$T/log" || tail -n 5 "$T/log")"
    return 1
}

# toy_says BUILD: $T/toy.bin, $T/noise.wav of 2 s, 16 kHz, mono (bytes of the model serve as samples),
# and $T/want, what BUILD/transcribe writes of it.
toy_says() {
    "$1/make_toy" "$T" || return
    {
        printf 'RIFF\044\372\000\000WAVEfmt \020\000\000\000\001\000\001\000\200\076\000\000'
        printf '\000\175\000\000\002\000\020\000data\000\372\000\000'
        tail -c 64000 "$T/toy.bin"
    } >"$T/noise.wav"
    "$1/transcribe" -q -t 1 -m "$T/toy.bin" --vad off --max-tokens 8 --no-fallback -f json \
        "$T/noise.wav" >"$T/want" || return
    grep -q '"probability"' "$T/want" || { echo "the toy says nothing"; return 1; }
}

# hears PROGRAM...: each writes $T/want for the toy and its noise.
hears() {
    for program; do
        if "$program" "$T/toy.bin" "$T/noise.wav" >"$T/out" 2>"$T/log"; then
            cmp -s "$T/out" "$T/want" || fail "$program writes something else"
        else
            fail "$program: $(head -c 300 "$T/log")"
        fi
    done
}

t_run() {
    t_bad=0 t_skip_now=0
    "$1" </dev/null
    if [ "$t_bad" -ne 0 ]; then
        t_failed=$((t_failed + 1))
        printf 'FAIL %s\n' "$1"
    elif [ "$t_skip_now" -ne 0 ]; then
        t_skipped=$((t_skipped + 1))
        printf 'skip %s\n' "$1"
    else
        t_passed=$((t_passed + 1))
        printf 'ok   %s\n' "$1"
    fi
}

t_end() {
    printf 't: %d passed, %d failed, %d skipped\n' "$t_passed" "$t_failed" "$t_skipped"
    [ "$t_failed" -eq 0 ]
}
