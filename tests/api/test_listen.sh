#!/bin/sh
# test_listen.sh - build/live, and build/listen: text of sound from a pipe and from recorders, its events, commands, and
# what it draws on a terminal. Needs the models tiny and base.en in the cache (examples/fetch.sh),
# espeak-ng and ffmpeg.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
t_temp
trap 'tmux -L "listen$$" kill-server 2>/dev/null; rm -rf "$T"' EXIT

tiny=$(examples/fetch.sh --offline tiny 2>/dev/null)
case $build in /*) here= ;; *) here=$PWD/ ;; esac

# $T/speech.wav of 16 bits, 16 kHz, mono, and $T/want, its text.
need() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh tiny gets it"; return 1; }
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

# Speech for which the model finds no word is no silence: there is text, or status 6 and a message.
# In "Go." the detector finds no voice at its usual threshold.
test_unheard() {
    need || return
    for said in en-gb-scotland:Help. en-us:Help. en-gb-scotland:Go.; do
        voice=${said%%:*}
        espeak-ng -v "$voice" -w "$T/help.wav" "${said#*:}"
        ffmpeg -v error -y -i "$T/help.wav" -af adelay=500,apad=pad_dur=0.7 -ar 16000 "$T/help16.wav"
        "$build/listen" --language en "$tiny" - <"$T/help16.wav" >"$T/out" 2>"$T/err"
        status=$?
        if [ -s "$T/out" ]; then
            [ $status -eq 0 ] || fail "$said: status $status: $(cat "$T/out" "$T/err")"
        else
            [ $status -eq 6 ] && grep -q '^listen: [0-9.]* s of speech have no text$' "$T/err" ||
                fail "$said: no text, status $status: $(cat "$T/err")"
        fi
    done
    tail -c +45 "$T/help16.wav" | "$build/live" "$tiny" >"$T/out" 2>"$T/err"
    status=$?
    [ -s "$T/out" ] && [ $status -eq 0 ] ||
        { [ $status -eq 2 ] && grep -q 'ms of speech have no text' "$T/err"; } ||
        fail "live: status $status: $(cat "$T/out" "$T/err")"
}

# examples/live.c has the segments of the file with their times.
test_live() {
    need || return
    "$build/transcribe" -q --model "$tiny" --least 3000 --pause 700 -f tsv "$T/speech.wav" |
        awk -F '\t' 'NR > 1 { printf "%.2f s: %s\n", $1 / 1000, $3 }' >"$T/segments"
    raw | "$build/live" "$tiny" >"$T/out" 2>"$T/err" || fail "$(cat "$T/err")"
    [ "$(wc -l <"$T/out")" -gt 1 ] && cmp -s "$T/segments" "$T/out" ||
        fail "live: $(diff "$T/segments" "$T/out" | head -n 4)"
    run 0 "$build/live" "$tiny" </dev/null
    [ ! -s "$T/out" ] && [ ! -s "$T/err" ] || fail "silence: $(cat "$T/out" "$T/err")"
    run 1 "$build/live"
    grep -q usage "$T/err" || fail "$(cat "$T/err")"
    run 1 "$build/live" "$T/none.bin" </dev/null
    grep -q none.bin "$T/err" || fail "$(cat "$T/err")"
    run 1 "$build/live" "$tiny" <"$T"
    grep -q 'input cannot be read' "$T/err" || fail "a directory: $(cat "$T/err")"
    run 1 sh -c '"$1" "$2" <"$3" >/dev/full' sh "$build/live" "$tiny" "$T/speech.wav"
    grep -q 'output failed' "$T/err" || fail "/dev/full: $(cat "$T/err")"
}

test_text() {
    need || return
    "$build/listen" --language en "$tiny" - <"$T/speech.wav" >"$T/wav" 2>"$T/err" || fail "$(cat "$T/err")"
    raw | "$build/listen" --language en "$tiny" - >"$T/raw" 2>"$T/err" || fail "$(cat "$T/err")"
    cmp -s "$T/want" "$T/wav" || fail "WAV: $(diff "$T/want" "$T/wav" | head -n 4)"
    cmp -s "$T/want" "$T/raw" || fail "raw: $(diff "$T/want" "$T/raw" | head -n 4)"
    run 1 "$build/listen" --language en
    grep -q -- --help "$T/err" || fail "usage: $(cat "$T/err")"
    run 0 "$build/listen" --help
    grep -q -- --commands "$T/out" && [ ! -s "$T/err" ] || fail "--help: $(cat "$T/out" "$T/err")"
    run 1 sh -c '"$1" --help >/dev/full' sh "$build/listen"
    for deadline in 10x 0 -5 '' 1e3 3600001 99999999999999999999; do
        run 1 "$build/listen" --deadline "$deadline" "$tiny" - </dev/null
        grep -q "^listen: --deadline: must be 1 to 3600000, not" "$T/err" || fail "$deadline: $(cat "$T/err")"
    done
    run 1 "$build/listen" "$T/none.bin" -
    run 1 "$build/listen" --language klingonese "$tiny" - </dev/null
    run 1 "$build/listen" --bogus "$tiny" - </dev/null
    run 1 "$build/listen" "$tiny" - more </dev/null
    run 1 "$build/listen" --recorder true "$tiny" - </dev/null
    run 1 sh -c '"$1" "$2" - <"$3" >/dev/full' sh "$build/listen" "$tiny" "$T/speech.wav"
    grep -q "the output cannot be written" "$T/err" || fail "$(cat "$T/err")"
}

# $T/record [FROM LOST] FILE [FORMAT]: the samples of a WAV file of 16 kHz as a recorder delivers them,
# in time; from second FROM on it loses what LOST seconds would hold. Or pairs of channels at 48 kHz.
recorder() {
    cat >"$T/record" <<'PYTHON'
#!/usr/bin/env python3
import sys, time
lost = [float(sys.argv.pop(1)), float(sys.argv.pop(1))] if len(sys.argv) > 3 else [1e9, 0]
samples = open(sys.argv[1], "rb").read()[44:]
rate, width = (48000, 4) if sys.argv[-1] == "wide" else (16000, 2)
begin, at = time.monotonic(), 0
while at < len(samples):
    due = int((time.monotonic() - begin) * rate) * width
    if at < lost[0] * rate * width <= due:
        sys.stdout.buffer.write(samples[at:int(lost[0] * rate) * width])
        sys.stdout.buffer.flush()
        time.sleep(lost[1])
        at = int((lost[0] + lost[1]) * rate) * width
        continue
    sys.stdout.buffer.write(samples[at:due])
    sys.stdout.buffer.flush()
    at = max(at, due)
    time.sleep(0.02)
PYTHON
    chmod +x "$T/record"
}

# Input that is none, cannot be read, or is something else than it is taken for.
test_input() {
    need || return
    run 1 "$build/listen" "$tiny" - </dev/null
    grep -q "standard input is empty" "$T/err" && [ ! -s "$T/out" ] || fail "$(cat "$T/err" "$T/out")"
    run 1 sh -c 'no-such-recorder 2>/dev/null | "$1" "$2"' sh "$build/listen" "$tiny"
    grep -q "standard input is empty" "$T/err" || fail "no recorder: $(cat "$T/err")"
    run 1 sh -c '"$1" "$2" - <"$3"' sh "$build/listen" "$tiny" "$T"
    grep -q "standard input is a directory" "$T/err" || fail "a directory: $(cat "$T/err")"
    run 1 sh -c '"$1" "$2" - <&-' sh "$build/listen" "$tiny"
    grep -q "standard input cannot be read" "$T/err" || fail "no input: $(cat "$T/err")"
    for file in README.md examples/listen/listen.c examples/fetch.sh; do
        run 1 "$build/listen" "$tiny" - <$file
        grep -q "standard input is text" "$T/err" || fail "$file: $(cat "$T/err")"
    done
    printf '\303\234ber \342\202\254 und \303\226l\n' >"$T/text"
    run 1 "$build/listen" "$tiny" - <"$T/text"
    grep -q "standard input is text" "$T/err" || fail "UTF-8: $(cat "$T/err")"
    for raw in s16 s16le, s16le,7999 s16le,16000,0 s16le,16000,1,1 ''; do
        run 1 "$build/listen" --raw "$raw" "$tiny" - <"$T/speech.wav"
        grep -q "^listen: --raw: the value" "$T/err" || fail "$raw: $(cat "$T/err")"
    done
}

# same NAME: $T/out has the words of $T/want that no coding changes.
same() {
    grep -qi 'what your country can do for you' "$T/out" &&
        grep -qi 'what you can do for your country' "$T/out" || fail "$1: $(cat "$T/out" "$T/err")"
}

# Compressed sound from a pipe, whatever its head, and samples of other formats.
test_formats() {
    need || return
    for kind in au flac mp3 adts ogg mp4 aiff matroska wav; do
        case $kind in
        adts | mp4) codec=aac ;; ogg | matroska) codec=libvorbis ;; mp3) codec=libmp3lame ;;
        flac) codec=flac ;; au | aiff) codec=pcm_s16be ;; *) codec=pcm_f32le ;;
        esac
        ffmpeg -v error -y -i "$T/speech.wav" -c:a $codec -ar 44100 -ac 2 -write_id3v2 0 -f $kind \
            "$T/coded" 2>"$T/err" || ffmpeg -v error -y -i "$T/speech.wav" -c:a $codec -ar 44100 \
            -ac 2 -f $kind "$T/coded" 2>"$T/err" || fail "$kind: $(cat "$T/err")"
        run 0 sh -c 'cat "$3" | "$1" --language en "$2" -' sh "$build/listen" "$tiny" "$T/coded"
        same $kind
    done
    for raw in s16le,48000,2 f32le,44100,1 s32le,16000,1 mulaw,8000,1; do
        format=${raw%%,*} rest=${raw#*,}
        ffmpeg -v error -y -i "$T/speech.wav" -ar "${rest%,*}" -ac "${rest#*,}" -f "$format" "$T/coded"
        run 0 "$build/listen" --language en --raw "$raw" "$tiny" - <"$T/coded"
        same "$raw"
        case $raw in mulaw*) continue ;; esac
        # noise may sound like a voice without words: 6
        "$build/listen" --language en "$tiny" - <"$T/coded" >"$T/out" 2>"$T/err" || [ $? -eq 6 ] ||
            fail "$raw: $(cat "$T/err")"
        grep -q "^listen: .*see --raw" "$T/err" || fail "no hint at $raw"
    done
    run 0 "$build/listen" --language en "$tiny" - <"$T/speech.wav"
    [ ! -s "$T/err" ] || fail "a hint without need: $(cat "$T/err")"
    raw >"$T/coded"
    run 0 "$build/listen" --language en "$tiny" - <"$T/coded"
    [ ! -s "$T/err" ] || fail "a hint without need: $(cat "$T/err")"
}

# Sound comes in pieces, the next one when there are events of the last, or soon.
test_events() {
    need && have python3 || return
    python3 - "$build/listen" "$tiny" "$T/speech.wav" "$T/want" >"$T/log" 2>&1 <<'PYTHON' ||
import json, queue, subprocess, sys, threading
listen, model, wav, want = sys.argv[1:]
samples = open(wav, "rb").read()[44:]
p = subprocess.Popen([listen, "--json", "--language", "en", model, "-"], stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE)
events, news = [], queue.Queue()
def read():
    for line in p.stdout:
        events.append(json.loads(line))
        news.put(events[-1]["event"])
reader = threading.Thread(target=read)
reader.start()
for at in range(0, len(samples), 16000):
    p.stdin.write(samples[at:at + 16000])
    p.stdin.flush()
    try:
        while at >= 32000 and news.get(timeout=3) not in ("tentative", "text"):
            pass
    except queue.Empty:
        pass
p.stdin.close()
reader.join()
assert p.wait() in (0, 6) # what is left of a word may have no text
of = lambda name: [e for e in events if e["event"] == name]
text = "\n".join(e["text"].strip() for e in of("text"))
assert text == open(want, encoding="utf-8").read().strip(), text
# A slow computer shows fewer; two are needed to know what is likely.
tentative = [e for e in of("tentative") if e["text"]]
assert tentative and all(e["likely"] <= len(e["text"].encode()) for e in tentative), events
assert len(tentative) < 3 or any(e["likely"] > 0 for e in tentative), tentative
starts, ends = of("speech-start"), of("utterance-end")
assert starts and len(starts) == len(ends), (starts, ends)
assert all(e["t0_ms"] < e["t1_ms"] for e in ends + of("text")), events
first = [e["event"] for e in events]
assert first.index("speech-start") < first.index("tentative") < first.index("text"), first
PYTHON
        fail "$(tail -n 3 "$T/log")"
}

# With --commit words are final while their window is open: final text only grows, and is in the end
# what transcribe writes.
test_commit() {
    need && have python3 || return
    ffmpeg -v error -y -i "$T/speech.wav" -t 5 -bitexact "$T/begin.wav"
    run 0 "$build/transcribe" -q -m "$tiny" -l en --least 3000 --pause 700 --commit 1000 --follow 1 \
        "$T/begin.wav"
    cp "$T/out" "$T/commit"
    printf partial >"$T/kept"
    run 0 "$build/listen" --json --commit 1000 -o "$T/kept" -l en "$tiny" - <"$T/begin.wav"
    { echo partial; cat "$T/commit"; } | cmp -s - "$T/kept" || fail "kept: $(cat "$T/kept")"
    python3 - "$T/out" "$T/commit" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
final, segments, grown = "", "", 0
for e in events:
    text = e["text"].encode()[:e.get("final", e["likely"])].decode()
    assert e.get("final", 0) <= e["likely"], e
    segments += text if e["event"] == "text" else ""
    now = segments + (text if e["event"] == "tentative" else "")
    if e["event"] in ("text", "tentative"):
        assert now.startswith(final) or e["event"] == "text" and final.startswith(now), (final, now)
        grown += len(now) > len(final)
        final = max(final, now, key=len)
assert grown >= 3, events
assert segments == final, (segments, final)
lines = [e["text"].strip() for e in events if e["event"] == "text"]
assert lines == open(sys.argv[2], encoding="utf-8").read().splitlines(), lines
PYTHON
}

# spoken FILE: its words in lower case, without signs, in a line.
spoken() { tr 'A-Z\n' 'a-z ' <"$1" | tr -d '.,!?' | tr -s ' ' | sed 's/^ //; s/ $//'; }

# What listen shows on a terminal by default has the words of the file, wherever steps cut the sound:
# silence of several lengths stands before it. Words that the end of the sound has cut are not final.
test_words_of_the_file() {
    need || return
    for model in "$tiny" "$(examples/fetch.sh --offline base.en 2>/dev/null)"; do
        [ -n "$model" ] || { skip "no base.en; examples/fetch.sh base.en gets it"; return; }
        run 0 "$build/transcribe" -q -m "$model" -l en examples/jfk.wav
        spoken "$T/out" >"$T/file"
        for at in 0/800 370/500 1130/1100; do
            [ "$model" = "$tiny" ] || [ $at = 0/800 ] || continue
            ffmpeg -v error -y -i examples/jfk.wav -af "adelay=${at%/*}" -bitexact "$T/later.wav"
            run 0 "$build/listen" --commit "${at#*/}" -l en "$model" - <"$T/later.wav"
            spoken "$T/out" | cmp -s - "$T/file" || fail "$model $at: $(spoken "$T/out")"
        done
    done
}

# Sound is read while the program cannot go on, here because nobody reads what it writes.
test_reads_on() {
    need && have python3 || return
    python3 - "$build/listen" "$tiny" "$T/speech.wav" "$T/want" >"$T/log" 2>&1 <<'PYTHON' ||
import fcntl, json, os, subprocess, sys, threading
listen, model, wav, want = sys.argv[1:]
samples = open(wav, "rb").read()[44:]
out, into = os.pipe()
fcntl.fcntl(into, 1031, 4096)  # F_SETPIPE_SZ
os.write(into, b" " * 4096)
p = subprocess.Popen([listen, "--json", "--language", "en", model, "-"], stdin=subprocess.PIPE,
                     stdout=into)
os.close(into)
feed = threading.Thread(target=lambda: (p.stdin.write(samples), p.stdin.close()))
feed.start()
feed.join(120)
assert not feed.is_alive(), "what is recorded waits"
events = [json.loads(line) for line in os.fdopen(out, encoding="utf-8")]
assert p.wait() in (0, 6) # what is left of a word may have no text
text = "\n".join(e["text"].strip() for e in events if e["event"] == "text")
assert text == open(want, encoding="utf-8").read().strip(), text
assert not [e for e in events if e["event"] == "lost"]
PYTHON
        fail "$(tail -n 3 "$T/log")"
}

# What a recorder loses is told and leaves times right; so is what does not fit because the program
# cannot go on.
test_lost() {
    need && have python3 || return
    recorder
    espeak-ng -v en-us -s 140 -w "$T/spoken.wav" "The end of it."
    ffmpeg -v error -y -i "$T/spoken.wav" -ar 16000 -bitexact "$T/tail.wav"
    { cat "$T/speech.wav"; head -c 128000 /dev/zero; tail -c +45 "$T/tail.wav"
      head -c 64000 /dev/zero; } >"$T/long.wav"
    end=$(($(wc -c <"$T/speech.wav") / 32))
    from=$((end / 1000 + 1))
    # what is left of a word may have no text: 6
    sh -c '"$1/record" "$4" 2 "$1/long.wav" | "$2" --live --json --language en "$3" -' sh \
        "$T" "$build/listen" "$tiny" "$from" >"$T/out" 2>"$T/err" || [ $? -eq 6 ] ||
        fail "$(cat "$T/err")"
    python3 - "$T/out" $from $((end + 4000)) >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
start, tail = int(sys.argv[2]) * 1000, int(sys.argv[3])
lost = [e for e in events if e["event"] == "lost"]
assert len(lost) == 1, lost
assert abs(lost[0]["t0_ms"] - start) < 700, (lost, start)
assert 1300 < lost[0]["t1_ms"] - lost[0]["t0_ms"] < 2700, lost
last = [e for e in events if e["event"] == "speech-start"][-1]
assert abs(last["t0_ms"] - tail) < 1000, (last, tail)
PYTHON
    python3 - "$build/listen" "$tiny" "$T/speech.wav" >"$T/log" 2>&1 <<'PYTHON' ||
import fcntl, json, os, subprocess, sys, time
listen, model, wav = sys.argv[1:]
samples = open(wav, "rb").read()[44:]
out, into = os.pipe()
fcntl.fcntl(into, 1031, 4096)
p = subprocess.Popen([listen, "--json", "--live", "--buffer", "2", "--language", "en", model, "-"],
                     stdin=subprocess.PIPE, stdout=into)
begin, at, filled = time.monotonic(), 0, False
filler = os.open(f"/proc/self/fd/{into}", os.O_WRONLY | os.O_NONBLOCK)
os.close(into)
while at < len(samples):
    due = min(int((time.monotonic() - begin) * 16000) * 2, len(samples))
    p.stdin.write(samples[at:due])
    p.stdin.flush()
    at = due
    if at > 4 * 32000 and not filled:
        filled = True
        try:
            while True:
                os.write(filler, b"\n")
        except BlockingIOError:
            pass
    time.sleep(0.02)
p.stdin.close()
os.close(filler)
events = [json.loads(line) for line in os.fdopen(out, encoding="utf-8") if line.strip()]
assert p.wait() in (0, 6) # what is left of a word may have no text
lost = [e for e in events if e["event"] == "lost"]
assert lost and all(e["t0_ms"] < e["t1_ms"] <= len(samples) // 32 for e in lost), lost
assert lost[0]["t0_ms"] >= 1900, lost
PYTHON
        fail "$(tail -n 3 "$T/log")"
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

# A second Ctrl-C ends the program, not only the sound.
test_cancel() {
    need || return
    base=$(examples/fetch.sh --offline base.en 2>/dev/null)
    [ -n "$base" ] || { skip "no model; examples/fetch.sh base.en gets it"; return; }
    for _ in 1 2 3 4 5 6 7 8 9; do raw; done >"$T/samples"
    begin "$build/listen" --json --threads 1 --language en "$base" - <"$T/samples"
    soon grep -q speech-start "$T/out"
    kill -INT $pid
    sleep 0.3 # signals closer together count as one
    kill -INT $pid
    ended 4
    grep -q "^listen: cancelled" "$T/err" || fail "$(cat "$T/err")"
    [ "$(grep -c dinner "$T/out")" -lt 9 ] || fail "everything was decoded first"
}

# What waits in the pipe at Ctrl-C was recorded before, and is heard.
test_drain() {
    need || return
    rm -f "$T/pipe" "$T/over" "$T/written" "$T/stopped"
    mkfifo "$T/pipe"
    { raw | head -c 48000; soon [ -e "$T/stopped" ]; raw | tail -c +48001 | head -c 44000
      echo >"$T/written"; soon [ -e "$T/over" ]; } >"$T/pipe" &
    begin "$build/listen" --json --language en "$tiny" - <"$T/pipe"
    soon grep -q speech-start "$T/out"
    kill -STOP $pid
    echo >"$T/stopped"
    soon [ -e "$T/written" ]
    kill -INT $pid
    kill -CONT $pid
    ended 0
    grep -q 'country can do for you' "$T/out" || fail "not heard: $(cat "$T/out")"
    echo >"$T/over"
    wait
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
# words only. Words are confirmed, as with --commit 800.
test_terminal() {
    need && have tmux || return
    raw >"$T/samples"
    run 0 "$build/listen" --commit 800 --language en "$tiny" - <"$T/samples"
    words "$T/out" >"$T/confirmed"
    on_terminal "'$here$build/listen' --language en '$tiny' - <'$T/samples'" || return
    words "$T/screen" >"$T/shown"
    cmp -s "$T/confirmed" "$T/shown" && [ "$(wc -l <"$T/screen")" -gt 2 ] ||
        fail "screen: $(cat "$T/screen")"
}

# A film of what listen shows while speech arrives in time, four pictures a second: text that is not
# dimmed grows by words, and none of it is taken back.
test_film() {
    need && have tmux python3 || return
    { cat "$T/speech.wav"; raw; } >"$T/twice.wav"
    tail -c +45 "$T/twice.wav" >"$T/samples"
    recorder
    printf '%s\n' "'$T/record' '$T/twice.wav' | '$here$build/listen' -l en '$tiny' -" \
        "echo THE END; sleep 600" >"$T/go"
    LC_ALL=C.UTF-8 tmux -u -L "listen$$" -f /dev/null new-session -d -x 60 -y 20 "sh '$T/go'" ||
        { fail "tmux does not start"; return; }
    python3 - "listen$$" "$T/filmed" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import re, subprocess, sys, time
final, grown, tails = [], 0, 0
while "END" not in final:
    time.sleep(0.25)
    rows = subprocess.run(["tmux", "-L", sys.argv[1], "capture-pane", "-p", "-e", "-S", "-"],
                          capture_output=True, check=True).stdout.decode()
    plain, tail, dim = "", "", False
    for part in re.split("(\33\\[[0-9;]*m)", rows.replace("\n", " ")):
        if part.startswith("\33"):
            dim = part == "\33[2m" or dim and part != "\33[0m"
        elif dim:
            tail += part
        else:
            plain += part
    now = plain.split()
    print(f"{' '.join(now)} [{' '.join(tail.split())}]")
    # a sign may still follow the last word
    assert " ".join(now).startswith(" ".join(final)), (final, now)
    grown += len(now) > len(final)
    tails += tail.strip() != ""
    final = now
assert grown > 3 and tails > 3, (grown, tails)
open(sys.argv[2], "w").write("\n".join(final[:-2]) + "\n")
PYTHON
    tmux -L "listen$$" kill-server
    run 0 "$build/listen" --commit 800 -l en "$tiny" - <"$T/samples"
    words "$T/out" | cmp -s - "$T/filmed" || fail "$(cat "$T/filmed")"
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
    static terminal t;
    terminal_print(&t, "first");
    terminal_show(&t, narrow);
    terminal_show(&t, wide);
    terminal_show(&t, narrow);
    terminal_print(&t, wide);
    terminal_show(&t, wide);
    terminal_print(&t, narrow);
    terminal_show(&t, narrow);
    terminal_print(&t, "last");
    return 0;
}
PROGRAM
    "${CC:-cc}" -Iexamples/listen "$T/rows.c" examples/listen/terminal.c -o "$T/print_rows" 2>"$T/err" ||
        { fail "$(cat "$T/err")"; return; }
    on_terminal "'$T/print_rows'" || return
    printf '%s\n' first あいうえおかきくけこさしすせそたちつて となにぬねのはひふへほまみむ \
        'a b cc ddd eeee fffff gggggg hhhhhhh' 'iiiiiiii jjjjjjjjj kkkkkkkkkk' last |
        cmp -s - "$T/screen" || fail "screen: $(cat "$T/screen")"
}

# fake NAME SCRIPT: a recorder in $T/bin.
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$T/bin/$1"
    chmod +x "$T/bin/$1"
}

# on_microphone OPTION...: listen on a terminal, without input; only recorders of $T/bin are found. Its
# status is in $T/status, its messages in $T/err.
on_microphone() {
    : >"$T/err"
    on_terminal "PATH='$T/bin' '$here$build/listen' --language en $* '$tiny' 2>'$T/err'
echo \$? >'$T/status'; PATH='$PATH'"
}

# The first recorder that delivers sound is used; those that are missing, that fail and that deliver
# nothing are not. The user is told if none does, and if it ends early.
test_recorders() {
    need && have tmux python3 || return
    recorder
    rm -rf "$T/bin"
    mkdir "$T/bin"
    tools="PATH='$PATH'"
    fake parec 'echo "Connection failure: refused" >&2; exit 1'
    fake arecord "$tools; echo \"\$*\" >'$T/arguments'; exec '$T/record' '$T/speech.wav'"
    fake rec "$tools; echo >'$T/wrong'"
    on_microphone -o "$T/dictated" || return
    # On a busy machine the source may lose sound, so only words far from each other are expected.
    [ "$(cat "$T/status")" = 0 ] && [ ! -s "$T/err" ] && grep -q 'for you' "$T/dictated" &&
        grep -q 'your country' "$T/dictated" ||
        fail "arecord: $(cat "$T/status" "$T/err" "$T/screen")"
    grep -q -- '-r 16000' "$T/arguments" && [ ! -e "$T/wrong" ] || fail "$(cat "$T/arguments")"
    on_microphone --recorder "'$tools; $T/record $T/speech.wav; echo It broke >&2; exit 3'" || return
    [ "$(cat "$T/status")" = 1 ] && grep -q '^listen: the recorder has ended: .*It broke$' "$T/err" &&
        grep -q 'your country' "$T/screen" || fail "$(cat "$T/status" "$T/err" "$T/screen")"
    fake arecord 'echo "no soundcards found" >&2; exit 1'
    fake rec 'exit 0'
    on_microphone || return
    [ "$(cat "$T/status")" = 1 ] && [ "$(cat "$T/err")" = "listen: nothing records: parec: Connection \
failure: refused; arecord: no soundcards found; rec: it delivers no sound" ] || fail "$(cat "$T/err")"
    rm -f "$T/bin"/*
    on_microphone || return
    [ "$(cat "$T/status")" = 1 ] && grep -q 'no recorder is installed; for example' "$T/err" ||
        fail "$(cat "$T/err")"
}

# Final text is in the file as soon as it is shown, whatever becomes of the program: also words that
# are confirmed in a line that is not complete. The first 2.8 s end between two steps, so that the one
# at 2 s is not left out because the next is due as well.
test_dictation() {
    need || return
    printf 'before\n' >"$T/dictated"
    rm -f "$T/pipe" "$T/over" "$T/more"
    mkfifo "$T/pipe"
    { raw | head -c 90000; soon [ -e "$T/more" ]; raw | tail -c +90001; soon [ -e "$T/over" ]; } \
        >"$T/pipe" &
    begin "$build/listen" --json --times --commit 1000 -o "$T/dictated" -l en "$tiny" - <"$T/pipe"
    soon grep -q '"event":"tentative".*"likely":[1-9]' "$T/out"
    ! grep -q '"event":"text"' "$T/out" && grep -q '^\[0:00:00\.[0-9]\] Ask' "$T/dictated" ||
        fail "not kept: $(cat "$T/dictated" "$T/out")"
    echo >"$T/more"
    soon grep -q '"event":"text"' "$T/out"
    kill -KILL $pid
    ended 137
    [ "$(head -n 1 "$T/dictated")" = before ] &&
        grep -q '^\[0:00:00\.[0-9]\] Ask .*your country' "$T/dictated" || fail "$(cat "$T/dictated")"
    echo >"$T/over"
    wait
    run 1 "$build/listen" -o "$T/none/file" "$tiny" - <"$T/speech.wav"
    run 1 "$build/listen" -o /dev/full "$tiny" - <"$T/speech.wav"
    grep -q "the output cannot be written" "$T/err" || fail "/dev/full: $(cat "$T/err")"
}

# as_a_file FILE OPTION...: the options mean what they mean to transcribe, and that is something else
# than without them.
as_a_file() {
    file=$1
    shift
    "$build/transcribe" -q -m "$tiny" --least 3000 --pause 700 "$@" "$file" >"$T/wanted" 2>"$T/err" ||
        fail "$(cat "$T/err")"
    run 0 "$build/listen" "$@" "$tiny" - <"$file"
    cmp -s "$T/wanted" "$T/out" && ! cmp -s "$T/want" "$T/out" || fail "$*: $(cat "$T/out")"
}

# Options of the run, and two callers.
test_options() {
    need || return
    as_a_file "$T/speech.wav" -l en --hotwords 'home to have a very good dinner,country'
    as_a_file "$T/speech.wav" -l en --translate --prompt 'ALL IN CAPITALS, PLEASE. WITHOUT END'
    espeak-ng -v de -w "$T/spoken.wav" "Guten Morgen. Ich trinke gern Wasser und Milch."
    ffmpeg -v error -y -i "$T/spoken.wav" -ar 16000 -bitexact "$T/german.wav"
    as_a_file "$T/german.wav" -l de --translate -t 1
    run 0 "$build/listen" -t 1 -l en -m "$tiny" --times - <"$T/speech.wav"
    grep -q '^\[0:00:0[0-9]\.[0-9]\] Ask what your country' "$T/out" || fail "$(cat "$T/out" "$T/err")"
    ffmpeg -v error -y -i "$T/speech.wav" -i "$T/german.wav" -filter_complex \
        '[1]apad[b];[0][b]join=inputs=2:channel_layout=stereo' -bitexact "$T/call.wav" 2>"$T/err" ||
        fail "$(cat "$T/err")"
    run 0 "$build/listen" -l en --speakers channels "$tiny" - <"$T/call.wav"
    sed -n 's/^Speaker 1: //p' "$T/out" | cmp -s - "$T/want" && grep -q '^Speaker 2: .' "$T/out" ||
        fail "speakers: $(cat "$T/out" "$T/err")"
    run 0 "$build/listen" -l en --json --speakers channels "$tiny" - <"$T/call.wav"
    grep -q '"event":"text".*"speaker":2' "$T/out" || fail "speakers: $(head -n 5 "$T/out")"
    for voices in voices 2; do
        run 1 "$build/listen" --speakers $voices "$tiny" - <"$T/call.wav"
        grep -q 'by voice is known at the end' "$T/err" || fail "$voices: $(cat "$T/err")"
    done
    run 1 "$build/listen" --speakers channels --commands "$T/none" "$tiny" - <"$T/call.wav"
}

# A terminal that becomes narrower or wider shows the same text once, and what is typed nowhere.
test_resize() {
    have tmux || return
    cat >"$T/hold.c" <<'PROGRAM'
#define _XOPEN_SOURCE 700
#include "terminal.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    static terminal t;
    int i;
    signal(SIGINT, SIG_IGN);
    terminal_open();
    for (i = 0; i < 40; i++)
        terminal_print(&t, "first");
    terminal_show(&t, "aaaa bbbb cccc dddd eeee ffff gggg hhhh iiii jjjj kkkk llll");
    fflush(stdout);
    while (argc > 1 && access(argv[1], F_OK) != 0) {
        terminal_refresh(&t);
        poll(NULL, 0, 10);
    }
    terminal_print(&t, "last");
    return 0;
}
PROGRAM
    "${CC:-cc}" -Iexamples/listen "$T/hold.c" examples/listen/terminal.c -o "$T/hold" 2>"$T/err" ||
        { fail "$(cat "$T/err")"; return; }
    rm -f "$T/go_on"
    printf "trap : INT; '%s' '%s'\necho THE END; sleep 600\n" "$T/hold" "$T/go_on" >"$T/go"
    LC_ALL=C.UTF-8 tmux -u -L "listen$$" -f /dev/null new-session -d -x 40 -y 20 "sh '$T/go'" ||
        { fail "tmux does not start"; return; }
    tmux -L "listen$$" set-option -g window-size manual
    soon rows_are first 'aaaa bbbb cccc dddd eeee ffff gggg hhhh' 'iiii jjjj kkkk llll'
    tmux -L "listen$$" send-keys C-c x
    tmux -L "listen$$" resize-window -x 22 -y 20
    soon rows_are first 'aaaa bbbb cccc dddd' 'eeee ffff gggg hhhh' 'iiii jjjj kkkk llll'
    tmux -L "listen$$" resize-window -x 12 -y 20
    soon rows_are first 'aaaa bbbb' 'cccc dddd' 'eeee ffff' 'gggg hhhh' 'iiii jjjj' 'kkkk llll'
    tmux -L "listen$$" resize-window -x 60 -y 20
    soon rows_are first 'aaaa bbbb cccc dddd eeee ffff gggg hhhh iiii jjjj kkkk llll'
    echo >"$T/go_on"
    soon ends
    soon rows_are first last 'THE END'
    tmux -L "listen$$" send-keys y # what is typed is shown again
    soon rows_are first last 'THE END' y
    tmux -L "listen$$" kill-server
}

# rows_are ROW...: whether the terminal and what it scrolled away are these; equal rows count once.
rows_are() {
    printf '%s\n' "$@" >"$T/wanted_rows"
    tmux -L "listen$$" capture-pane -p -S - | sed 's/ *$//; /^$/d' | uniq >"$T/rows"
    cmp -s "$T/wanted_rows" "$T/rows"
}

# Half a minute of film only with TEST_FILM=full, as in make check-long.
for t in ${*:-text unheard live input formats events commit words_of_the_file reads_on lost wide interrupt cancel drain commands lists options dictation terminal rows resize recorders ${TEST_FILM:+film}}; do
    t_run "test_$t"
done
t_end
