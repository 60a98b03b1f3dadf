#!/bin/sh
# test_listen.sh - build/listen: text of audio from a pipe, its events, commands, and what it draws on
# a terminal. Needs the model tiny in the cache (scripts/fetch.sh tiny), espeak-ng and ffmpeg.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
t_temp
trap 'tmux -L "listen$$" kill-server 2>/dev/null; rm -rf "$T"' EXIT

tiny=$(scripts/fetch.sh --offline tiny 2>/dev/null)
case $build in /*) here= ;; *) here=$PWD/ ;; esac

# $T/speech.wav of 16 bits, 16 kHz, mono, and $T/want, its text.
need() {
    [ -n "$tiny" ] || { skip "no model; scripts/fetch.sh tiny gets it"; return 1; }
    have espeak-ng ffmpeg || return 1
    [ ! -f "$T/want" ] || return 0
    espeak-ng -v en-us -s 140 -w "$T/spoken.wav" "Ask not what your country can do for you. \
Ask what you can do for your country. And then we all went home to have a very good dinner."
    ffmpeg -v error -i "$T/spoken.wav" -af apad=pad_dur=2 -ar 16000 -bitexact "$T/speech.wav" \
        2>"$T/err" || fail "$(cat "$T/err")"
    "$build/transcribe" --model "$tiny" --language en --least 3000 --pause 700 "$T/speech.wav" \
        >"$T/want" 2>"$T/err" && [ -s "$T/want" ] || fail "$(cat "$T/err")"
}

# The samples without a header.
raw() {
    tail -c +45 "$T/speech.wav"
}

test_text() {
    need || return
    "$build/listen" --language en "$tiny" - <"$T/speech.wav" >"$T/wav" 2>"$T/err" || fail "$(cat "$T/err")"
    raw | "$build/listen" --language en "$tiny" - >"$T/raw" 2>"$T/err" || fail "$(cat "$T/err")"
    cmp -s "$T/want" "$T/wav" || fail "WAV: $(diff "$T/want" "$T/wav" | head -n 4)"
    cmp -s "$T/want" "$T/raw" || fail "raw: $(diff "$T/want" "$T/raw" | head -n 4)"
    run 1 "$build/listen" "$tiny"
    grep -q -- --help "$T/err" || fail "usage: $(cat "$T/err")"
    run 0 "$build/listen" --help
    grep -q -- --commands "$T/out" && [ ! -s "$T/err" ] || fail "--help: $(cat "$T/out" "$T/err")"
    run 1 sh -c '"$1" --help >/dev/full' sh "$build/listen"
    for deadline in 10x 0 -5 '' 1e3 3600001 99999999999999999999; do
        run 1 "$build/listen" --deadline "$deadline" "$tiny" - </dev/null
        grep -q "^listen: --deadline is a number" "$T/err" || fail "$deadline: $(cat "$T/err")"
    done
    run 1 "$build/listen" "$T/none.bin" -
    run 1 "$build/listen" --language klingonese "$tiny" - </dev/null
    run 0 "$build/listen" "$tiny" - </dev/null
    [ ! -s "$T/out" ] || fail "text of nothing: $(head -c 100 "$T/out")"
    run 1 sh -c '"$1" "$2" - <"$3"' sh "$build/listen" "$tiny" "$T"
    grep -q "standard input cannot be read" "$T/err" || fail "a directory: $(cat "$T/err")"
    run 1 sh -c '"$1" "$2" - <&-' sh "$build/listen" "$tiny"
    grep -q "standard input cannot be read" "$T/err" || fail "no input: $(cat "$T/err")"
    for head in ID3 fLaC OggS; do
        printf '%s and more than that' "$head" >"$T/compressed"
        run 1 "$build/listen" "$tiny" - <"$T/compressed"
        grep -q "compressed" "$T/err" || fail "$head: $(cat "$T/err")"
    done
    run 1 sh -c '"$1" "$2" - <"$3" >/dev/full' sh "$build/listen" "$tiny" "$T/speech.wav"
    grep -q "the output cannot be written" "$T/err" || fail "$(cat "$T/err")"
}

# As a microphone delivers it: while samples wait, no tentative text is decoded.
paced() {
    python3 -c '
import sys, time
due = time.monotonic()
while chunk := sys.stdin.buffer.read(6400):
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    due += 0.2
    time.sleep(max(0, due - time.monotonic()))'
}

test_events() {
    need && have python3 || return
    raw | paced | "$build/listen" --json --language en "$tiny" - >"$T/events" 2>"$T/err" ||
        fail "$(cat "$T/err")"
    python3 - "$T/events" "$T/want" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
of = lambda name: [e for e in events if e["event"] == name]
text = "\n".join(e["text"].strip() for e in of("text"))
assert text == open(sys.argv[2], encoding="utf-8").read().strip(), text
# A slow computer shows fewer; two are needed to know what is likely.
assert len([e for e in of("tentative") if e["text"]]) >= 2, events
assert any(e["text"] and 0 < e["likely"] <= len(e["text"].encode()) for e in of("tentative"))
starts, ends = of("speech-start"), of("utterance-end")
assert starts and len(starts) == len(ends), (starts, ends)
assert all(e["t0_ms"] < e["t1_ms"] for e in ends + of("text")), events
first = [e["event"] for e in events]
assert first.index("speech-start") < first.index("tentative") < first.index("text"), first
PYTHON
}

# As many bytes per second as a WAV file can have.
test_wide() {
    need && have python3 || return
    python3 -c '
import struct, sys
rate, channels, frames = 192000, 256, 20000
width = 8 * channels
sys.stdout.buffer.write(
    struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + frames * width, b"WAVE", b"fmt ", 16, 3, channels,
                rate, rate * width, width, 64, b"data", frames * width) + bytes(frames * width))
' >"$T/wide.wav"
    run 0 sh -c '"$1" --json "$2" - <"$3"' sh "$build/listen" "$tiny" "$T/wide.wav"
    [ ! -s "$T/out" ] || fail "events of silence: $(head -c 200 "$T/out")"
    rm "$T/wide.wav"
}

# Ctrl-C and SIGTERM end the input, and the text up to there is printed.
test_interrupt() {
    interrupt INT
    interrupt TERM
}

interrupt() {
    need || return
    rm -f "$T/pipe" "$T/written" "$T/over"
    mkfifo "$T/pipe"
    { raw | head -c 160000; echo >"$T/written"; soon [ -e "$T/over" ]; } >"$T/pipe" &
    begin "$build/listen" --json --language en "$tiny" - <"$T/pipe"
    soon grep -q speech-start "$T/out" && soon [ -e "$T/written" ]
    kill -s "$1" $pid
    ended 0
    grep -q '"event":"text".*"text":"[^"]' "$T/out" || fail "$1: no text"
    echo >"$T/over"
    wait
}

test_commands() {
    need || return
    printf 'open the window\n\nturn on the light\nplay some music\n' >"$T/list"
    espeak-ng -v en-us -s 140 -w "$T/spoken.wav" "Turn on the light!"
    ffmpeg -v error -y -i "$T/spoken.wav" -af apad=pad_dur=2 -ar 16000 -bitexact "$T/command.wav"
    "$build/listen" --commands "$T/list" --deadline 60000 "$tiny" - <"$T/command.wav" >"$T/out" \
        2>"$T/err" || fail "$(cat "$T/err")"
    grep -q "^turn on the light$(printf '\t')" "$T/out" || fail "$(head -n 5 "$T/out")"
    [ "$(wc -l <"$T/out")" -eq 1 ] || fail "$(wc -l <"$T/out") answers"
    "$build/listen" --commands "$T/list" --deadline 1 "$tiny" - <"$T/command.wav" >"$T/out" \
        2>"$T/err" || fail "$(cat "$T/err")"
    grep -q "^-$(printf '\t')" "$T/out" && ! grep -q turn "$T/out" || fail "an answer in 1 ms"
    run 1 "$build/listen" --commands "$T/none" "$tiny" - </dev/null
}

# One answer of a list for the recording $T/command.wav.
answer() { # answer LIST PHRASE
    "$build/listen" --commands "$1" --deadline 60000 "$tiny" - <"$T/command.wav" >"$T/out" \
        2>"$T/err" || fail "$(cat "$T/err")"
    grep -q "^$2$(printf '\t')" "$T/out" && [ "$(wc -l <"$T/out")" -eq 1 ] ||
        fail "$1: $(head -n 5 "$T/out")"
}

# Lists as editors of other systems write them, long ones and bad ones; and an utterance that the
# input ends before the silence that would end it.
test_lists() {
    need || return
    espeak-ng -v en-us -s 140 -w "$T/spoken.wav" "Turn on the light!"
    ffmpeg -v error -y -i "$T/spoken.wav" -ar 16000 -bitexact "$T/command.wav"
    printf '\357\273\277 turn on the light \r\n\r\nturn off the light\r\n' >"$T/list"
    answer "$T/list" "turn on the light"
    { seq -f 'call number %g' 2000; echo 'turn on the light'; } >"$T/list"
    answer "$T/list" "turn on the light"
    printf '%300d\n' 1 | tr ' ' x >"$T/list"
    run 1 "$build/listen" --commands "$T/list" "$tiny" - </dev/null
    grep -q "longer than 254 bytes" "$T/err" || fail "$(cat "$T/err")"
    printf '\377\376a\000\n\000' >"$T/list"
    run 1 "$build/listen" --commands "$T/list" "$tiny" - </dev/null
    grep -q "UTF-16" "$T/err" || fail "$(cat "$T/err")"
}

# Runs a command on a terminal of 40 columns and 20 rows; its rows at the end are in $T/screen.
ends() {
    tmux -L "listen$$" capture-pane -p >"$T/rows" && grep -q '^THE END' "$T/rows"
}

on_terminal() { # on_terminal COMMAND
    printf '%s\necho THE END; sleep 600\n' "$1" >"$T/go"
    LC_ALL=C.UTF-8 tmux -u -L "listen$$" -f /dev/null new-session -d -x 40 -y 20 "sh '$T/go'" || {
        fail "tmux does not start"
        return 1
    }
    soon ends
    tmux -L "listen$$" kill-server
    sed 's/ *$//' "$T/rows" | grep -v -e '^$' -e '^THE END' >"$T/screen"
}

words() {
    tr -s ' \n' '\n\n' <"$1" | sed '/^$/d'
}

# Tentative text of several rows is replaced and leaves nothing behind; final text is divided between
# words only.
test_terminal() {
    need && have tmux || return
    raw >"$T/samples"
    on_terminal "{ cat '$T/samples'; sleep 2; } | '$here$build/listen' --language en '$tiny' -" || return
    words "$T/screen" >"$T/shown"
    words "$T/want" | cmp -s - "$T/shown" && [ "$(wc -l <"$T/screen")" -gt 2 ] ||
        fail "screen: $(cat "$T/screen")"
}

# Text of any script, longer than a row with and without spaces, and its replacement.
test_rows() {
    have tmux || return
    cat >"$T/rows.c" <<'PROGRAM'
#include "terminal.h"
int main(void)
{
    static const char *const wide = "\343\201\202\343\201\204\343\201\206\343\201\210\343\201\212"
        "\343\201\213\343\201\215\343\201\217\343\201\221\343\201\223\343\201\225\343\201\227"
        "\343\201\231\343\201\233\343\201\235\343\201\237\343\201\241\343\201\244\343\201\246"
        "\343\201\250\343\201\252\343\201\253\343\201\254\343\201\255\343\201\256\343\201\257"
        "\343\201\262\343\201\265\343\201\270\343\201\273\343\201\276\343\201\277\343\202\200";
    static const char *const narrow = "a b cc ddd eeee fffff gggggg hhhhhhh iiiiiiii jjjjjjjjj kkkkkkkkkk";
    terminal_print("first");
    terminal_show(narrow);
    terminal_show(wide);
    terminal_show(narrow);
    terminal_print(wide);
    terminal_show(wide);
    terminal_print(narrow);
    terminal_show(narrow);
    terminal_print("last");
    return 0;
}
PROGRAM
    "${CC:-cc}" -Iexamples "$T/rows.c" examples/terminal.c -o "$T/print_rows" 2>"$T/err" ||
        { fail "$(cat "$T/err")"; return; }
    on_terminal "'$T/print_rows'" || return
    printf '%s\n' first あいうえおかきくけこさしすせそたちつて となにぬねのはひふへほまみむ \
        'a b cc ddd eeee fffff gggggg hhhhhhh' 'iiiiiiii jjjjjjjjj kkkkkkkkkk' last |
        cmp -s - "$T/screen" || fail "screen: $(cat "$T/screen")"
}

test_size() {
    [ "$(wc -l <examples/listen.c)" -le 150 ] || fail "examples/listen.c has over 150 lines"
}

for t in ${*:-text events wide interrupt commands lists terminal rows size}; do
    t_run "test_$t"
done
t_end
