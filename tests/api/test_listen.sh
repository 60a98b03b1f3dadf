#!/bin/sh
# test_listen.sh - build/listen: text of audio from a pipe, its events, commands, and what it draws on
# a terminal. Needs the model tiny in the cache (scripts/fetch.sh tiny), espeak-ng and ffmpeg.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
t_temp

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
    run 1 "$build/listen" "$T/none.bin" -
    run 1 "$build/listen" --language klingonese "$tiny" - </dev/null
    run 0 "$build/listen" "$tiny" - </dev/null
    [ ! -s "$T/out" ] || fail "text of nothing: $(head -c 100 "$T/out")"
}

test_events() {
    need && have python3 || return
    raw | "$build/listen" --json --language en "$tiny" - >"$T/events" 2>"$T/err" ||
        fail "$(cat "$T/err")"
    python3 - "$T/events" "$T/want" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
of = lambda name: [e for e in events if e["event"] == name]
text = "\n".join(e["text"].strip() for e in of("text"))
assert text == open(sys.argv[2], encoding="utf-8").read().strip(), text
assert len(of("tentative")) >= 5, events
assert any(e["text"] and 0 < e["likely"] <= len(e["text"].encode()) for e in of("tentative"))
starts, ends = of("speech-start"), of("utterance-end")
assert starts and 0 <= len(starts) - len(ends) <= 1, (starts, ends)
assert all(e["t0_ms"] < e["t1_ms"] for e in ends + of("text")), events
first = [e["event"] for e in events]
assert first.index("speech-start") < first.index("tentative") < first.index("text"), first
PYTHON
}

# Ctrl-C ends the input, and the text up to there is printed.
test_interrupt() {
    need || return
    mkfifo "$T/pipe"
    "$build/listen" --language en "$tiny" - <"$T/pipe" >"$T/out" 2>"$T/err" &
    listener=$!
    {
        raw | head -c 160000
        sleep 2
        kill -s INT $listener
        sleep 1
    } >"$T/pipe"
    wait $listener || fail "status $? $(cat "$T/err")"
    [ -s "$T/out" ] || fail "no text"
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

# On a terminal of 40 columns, tentative text of several rows is replaced and leaves nothing behind.
test_terminal() {
    need && have tmux || return
    raw >"$T/samples"
    cat >"$T/go" <<SCRIPT
{ cat '$T/samples'; sleep 2; } | '$here$build/listen' --language en '$tiny' -
touch '$T/done'; sleep 20
SCRIPT
    tmux -L "listen$$" -f /dev/null new-session -d -x 40 -y 20 "sh '$T/go'" || {
        fail "tmux does not start"
        return
    }
    tries=0
    while [ ! -f "$T/done" ] && [ $tries -lt 300 ]; do
        sleep 0.2
        tries=$((tries + 1))
    done
    tmux -L "listen$$" capture-pane -p -J >"$T/screen"
    tmux -L "listen$$" kill-server
    sed 's/ *$//' "$T/screen" | sed '/^$/d' >"$T/shown"
    sed 's/ *$//' "$T/want" | sed '/^$/d' | cmp -s - "$T/shown" || fail "screen: $(cat "$T/shown")"
}

test_size() {
    [ "$(wc -l <examples/listen.c)" -le 150 ] || fail "examples/listen.c has over 150 lines"
}

for t in text events interrupt commands terminal size; do
    t_run "test_$t"
done
t_end
