#!/bin/sh
# test_voice.sh - voice activity with real models: no words where nobody speaks, and no speech without
# words. WNPU_FREE_SECONDS (default 10) seconds of each kind of sound of
# make_sounds are made; `make check-long` takes 90, which is 30 minutes in all.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
seconds=${WNPU_FREE_SECONDS:-10}
t_models

# free_of_words MODEL: not one word in any of the sounds.
free_of_words() {
    [ -n "$1" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    mkdir -p "$T/sounds" "$T/text"
    for kind in $("$build/make_sounds"); do
        [ -f "$T/sounds/$kind.wav" ] ||
            "$build/make_sounds" "$kind" "$seconds" 17 >"$T/sounds/$kind.wav"
    done
    "$build/transcribe" -q -m "$1" -f tsv -o "$T/text/" "$T"/sounds/*.wav 2>"$T/log" ||
        [ $? -eq 6 ] || fail "$(cat "$T/log")" # something like a voice, without words
    for kind in $("$build/make_sounds"); do
        words=$(sed 1d "$T/text/$kind.tsv" | cut -f 3 | tr '\n' ' ')
        [ -z "$words" ] || fail "$kind: $words"
    done
    printf '  %s kinds of sound, %s s each\n' "$("$build/make_sounds" | wc -l)" "$seconds"
}

test_free_tiny() { free_of_words "$tiny"; }
test_free_base_en() { free_of_words "$base"; }

# commands MODEL VOICE...: a recording of one command is text, or the status says that it has none.
# At least half of them have text.
commands() {
    [ -n "$1" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for tool in espeak-ng sox; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool to speak commands"; return; }
    done
    model=$1 written=0 all=0
    shift
    for voice; do
        for words in No. Stop. Yes. Help. Two. Cancel. 'Lights on.' 'Play music.' 'Volume up.' \
            'Set a timer.'; do
            espeak-ng -v "$voice" -w "$T/raw.wav" "$words"
            sox -R -D "$T/raw.wav" -r 16000 -b 16 "$T/command.wav" pad 0.5 0.7
            all=$((all + 1))
            text=$("$build/transcribe" -q -m "$model" -l en -f txt "$T/command.wav" 2>"$T/log")
            status=$?
            case $status,$text in
            0,?*) written=$((written + 1)) ;;
            6,) grep -q 'have no text' "$T/log" || fail "$voice, $words: $(cat "$T/log")" ;;
            *) fail "$voice, $words: status $status, text '$text'" ;;
            esac
        done
    done
    printf '  %s of %s commands have text\n' "$written" "$all"
    [ $((written * 2)) -ge "$all" ] || fail "only $written commands have text"
}

# A command behind other text: what has voice is text or unresolved, also if its text is discarded.
test_commands_behind_text() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for tool in espeak-ng sox python3; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool to speak commands"; return; }
    done
    espeak-ng -v en-us -w "$T/raw.wav" \
        'The ship sailed into the harbour early in the morning, and everybody was waiting for it.'
    sox -R -D "$T/raw.wav" -r 16000 -b 16 "$T/talk.wav" pad 0.3 4
    mkdir -p "$T/behind"
    for voice in en-us en-gb-scotland; do
        for words in Two. Help. Next. Pause.; do
            espeak-ng -v "$voice" -w "$T/raw.wav" "$words"
            sox -R -D "$T/raw.wav" -r 16000 -b 16 "$T/command.wav" pad 0.5 0.7
            sox "$T/talk.wav" "$T/command.wav" "$T/both.wav"
            "$build/transcribe" -q -m "$tiny" -l en -f json -o "$T/behind/$voice.$words.json" \
                "$T/both.wav" 2>"$T/log" || [ $? -eq 6 ] || fail "$(cat "$T/log")"
        done
    done
    python3 - "$T"/behind/*.json <<'END' >"$T/log" 2>&1 || fail "python3: status $?"
import json, sys
for path in sys.argv[1:]:
    with open(path, encoding='utf-8') as f:
        r = json.load(f)
    for s in r['speech']:
        if not any(x['start'] < s['end'] and x['end'] > s['start'] and x['kind'] != 'silence'
                   for x in r['ledger']):
            print(path, 'is silence:', s)
END
    [ ! -s "$T/log" ] || fail "$(cat "$T/log")"
}

# A rising tone in faint noise, keys of a telephone: no text in any language.
test_signals() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    command -v sox >/dev/null 2>&1 || { skip "no sox to make tones"; return; }
    sox -R -n -r 16000 -b 16 "$T/tone.wav" synth 0.2 sine 320:1250 vol 0.3 pad 0.1 2.7
    sox -R -n -r 16000 -b 16 "$T/noise.wav" synth 3 whitenoise vol 0.003
    sox -R -D -m -v 1 "$T/tone.wav" -v 1 "$T/noise.wav" "$T/cue.wav"
    sox -R -n -r 16000 -b 16 "$T/key.wav" synth 0.12 sine 770 synth 0.12 sine mix 1336 vol 0.4 \
        pad 0 0.08
    sox "$T/key.wav" "$T/keys.wav" repeat 7 pad 0.5 1
    for language in en ja ko; do
        for sound in cue keys; do
            text=$("$build/transcribe" -q -m "$tiny" -l $language -f txt "$T/$sound.wav" \
                2>"$T/log") || fail "$sound, $language: status $?: $(cat "$T/log")"
            [ -z "$text" ] || fail "$sound, $language: $text"
        done
    done
}

# Live: a WAV header that is read as samples does not hide the quiet words behind it. Still quieter
# ones (0.007) are heard as well, but tiny's beam writes two of the three sentences as one.
test_header_as_samples() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for tool in espeak-ng sox; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool to speak words"; return; }
    done
    espeak-ng -v en-us -w "$T/raw.wav" 'Good morning, everybody.'
    sox -R -D "$T/raw.wav" -r 16000 -b 16 -t raw "$T/quiet.raw" vol 0.009 pad 0.2 1.5
    cat "$T/quiet.raw" "$T/quiet.raw" "$T/quiet.raw" >"$T/quiet3.raw"
    { head -c 44 "$T/raw.wav" | tail -c 40; cat "$T/quiet3.raw"; } >"$T/header.raw"
    for sound in quiet3 header; do
        "$build/listen" --language en "$tiny" - <"$T/$sound.raw" >"$T/$sound.txt" 2>"$T/log" ||
            fail "$sound: status $?: $(cat "$T/log")"
        [ "$(grep -c -i morning "$T/$sound.txt")" -eq 3 ] || fail "$sound: $(cat "$T/$sound.txt")"
    done
}

# covered FILE FROM TO: the detector hears a voice in at least 90 % of FROM to TO in ms.
covered() {
    "$build/transcribe" -q -m "$tiny" --spans "$T/$1.wav" >"$T/spans" 2>"$T/log" ||
        fail "$1: status $?: $(cat "$T/log")"
    awk -v from="$2" -v to="$3" '{ a = $1 > from ? $1 : from; b = $2 < to ? $2 : to }
        b > a { n += b - a } END { exit n < 0.9 * (to - from) }' "$T/spans" ||
        fail "$1: $2 to $3 is not covered: $(tr '\n\t' ';-' <"$T/spans")"
}

# Voices behind a narrow channel just after another without one, and between bursts of noise; in
# rumble that is louder; and with the noise of a telephone, in which the end is found as without.
test_channels() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for tool in espeak-ng sox; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool to speak words"; return; }
    done
    espeak-ng -v en-us -w "$T/raw.wav" 'The ship sailed into the harbour early in the morning.'
    sox -V1 -R -D "$T/raw.wav" -r 16000 -b 16 "$T/host.wav" pad 0.3 1.5 trim 0 4
    espeak-ng -v en-gb+m3 -w "$T/raw.wav" \
        'Please call the office before noon, and bring the papers.'
    sox -V1 -R -D "$T/raw.wav" -r 16000 -b 16 "$T/wide.wav" pad 0 2 trim 0 4.8

    sox -R -D "$T/wide.wav" "$T/narrow.wav" sinc -n 2047 400-2400 vol 0.18
    sox -R -D "$T/host.wav" "$T/narrow.wav" "$T/caller.wav"
    covered caller 4100 6900

    sox -R -D "$T/wide.wav" "$T/narrow.wav" sinc -n 2047 350-2800 vol 0.35 trim 0 3.3
    sox -R -n -r 16000 -b 16 "$T/burst.wav" synth 0.2 whitenoise vol 0.25 pad 0 0.1
    sox -R -D "$T/burst.wav" "$T/narrow.wav" "$T/burst.wav" "$T/radio.wav" pad 0 1
    covered radio 500 3200

    sox -R -n -r 16000 -b 16 "$T/low.wav" synth 4.8 whitenoise lowpass -1 120 lowpass -1 120 \
        lowpass 200 gain -n -3
    sox -R -n -r 16000 -b 16 "$T/hiss.wav" synth 4.8 whitenoise vol 0.024
    sox -R -D -m -v 0.95 "$T/low.wav" -v 1 "$T/hiss.wav" -v 0.1 "$T/wide.wav" "$T/cabin.wav"
    covered cabin 200 2900

    sox -R -n -r 16000 -b 16 "$T/noise.wav" synth 4.8 whitenoise vol 0.0011 lowpass -2 3600
    for rate in 8000 24000; do
        sox -R -D -m -v 1 "$T/wide.wav" -v 1 "$T/noise.wav" -r $rate "$T/$rate.wav"
        covered $rate 200 2900
        tail -n 1 "$T/spans" | cut -f 2 >"$T/end$rate"
    done
    [ $(($(cat "$T/end8000") - $(cat "$T/end24000"))) -le 60 ] ||
        fail "ends with 8 and 24 kHz: $(cat "$T/end8000" "$T/end24000")"
}

# With windows decoded together each span of speech is listed once, as without.
test_spans_once() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for batch in 1 4; do
        run 0 "$build/transcribe" -q -m "$tiny" -l en --pause 300 --batch $batch -f json \
            examples/jfk.wav
        python3 -c 'import json, sys; print(json.load(sys.stdin)["speech"])' <"$T/out" >"$T/$batch"
    done
    cmp -s "$T/1" "$T/4" || fail "spans: $(cat "$T/1" "$T/4")"
}

test_commands_tiny() { commands "$tiny" en-us en-gb+m3; }
test_commands_base_en() { commands "$base" en-us; }

# Speech between long silences: found where it is, and all of it transcribed.
test_islands() {
    [ -f "$speech/manifest.tsv" ] || { skip "no recordings; WNPU_SPEECH names them"; return; }
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    clip=$speech/hard/fmt_19-198-0001_stereo.wav
    wav=$speech/hard/wavhdr_extensible.wav
    [ -f "$clip" ] || { skip "no clip"; return; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3 to write a WAV file"; return; }
    # 47 s of silence, the clip, 95 s of silence, the clip, 33 s of silence
    python3 - "$wav" "$T/islands.wav" <<'END'
import sys, wave
data = open(sys.argv[1], 'rb').read()
data = data[data.index(b'data') + 8:]
data = data[:len(data) // 2 * 2]
with wave.open(sys.argv[2], 'wb') as w:
    w.setnchannels(1)
    w.setsampwidth(2)
    w.setframerate(16000)
    for part in (47, data, 95, data, 33):
        w.writeframes(bytes(part * 32000) if isinstance(part, int) else part)
END
    "$build/transcribe" -q -m "$tiny" --spans "$T/islands.wav" >"$T/spans" 2>"$T/log" ||
        fail "status $?: $(cat "$T/log")"
    awk '{ if ($1 < 46000 || $2 > 167000 || ($1 > 60000 && $1 < 152000)) exit 1 }
         END { if (NR < 2) exit 1 }' "$T/spans" || fail "spans: $(tr '\n\t' ';-' <"$T/spans")"
    "$build/transcribe" -q -m "$tiny" -l en -f tsv "$T/islands.wav" >"$T/out" 2>"$T/log" ||
        fail "status $?: $(cat "$T/log")"
    for words in 'little work' advertised; do
        [ "$(grep -c -i "$words" "$T/out")" -eq 2 ] || fail "$words: $(cat "$T/out")"
    done
    awk -F '\t' 'NR > 1 && ($1 < 46000 || $2 > 167000 || ($1 > 60000 && $1 < 152000)) { exit 1 }' \
        "$T/out" || fail "times: $(cat "$T/out")"
}

# A radio with steep edges passes 350 to 2800 Hz, and noise: speech is heard in it, and written.
test_narrow() {
    wav=$speech/hard/wavhdr_extensible.wav
    [ -f "$wav" ] || { skip "no recordings; WNPU_SPEECH names them"; return; }
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3 to write a WAV file"; return; }
    python3 - "$wav" "$T/narrow.wav" <<'END'
import array, cmath, random, sys, wave

def fft(x, sign):
    if len(x) == 1:
        return x
    even, odd, n = fft(x[0::2], sign), fft(x[1::2], sign), len(x)
    odd = [cmath.exp(sign * 2j * cmath.pi * k / n) * v for k, v in enumerate(odd)]
    return [a + b for a, b in zip(even, odd)] + [a - b for a, b in zip(even, odd)]

data = open(sys.argv[1], 'rb').read()
data = data[data.index(b'data') + 8:]
x = array.array('h', data[:len(data) // 2 * 2])
random.seed(1)
level = (sum(v * v for v in x) / len(x)) ** 0.5 * 0.25 # 12 dB below speech in all, 17 in the band
n = 1 << (len(x) - 1).bit_length()
y = fft([v + random.gauss(0, level) for v in x] + [0] * (n - len(x)), -1)
y = [v if 350 <= min(k, n - k) * 16000 / n <= 2800 else 0 for k, v in enumerate(y)]
y = [int(round(v.real / n)) for v in fft(y, 1)[:len(x)]]
with wave.open(sys.argv[2], 'wb') as w:
    w.setnchannels(1)
    w.setsampwidth(2)
    w.setframerate(16000)
    w.writeframes(array.array('h', [max(-32768, min(32767, v)) for v in y]).tobytes())
END
    "$build/transcribe" -q -m "$tiny" -l en -f tsv "$T/narrow.wav" >"$T/out" 2>"$T/log" ||
        fail "status $?: $(cat "$T/log")"
    for words in 'little work' advertised; do
        grep -q -i "$words" "$T/out" || fail "$words: $(cat "$T/out")"
    done
}

# The demo's recording is a radio's, too: as many words are in it as without the detector.
test_radio() {
    wav=$(examples/fetch.sh --offline demo 2>/dev/null)
    [ -n "$wav" ] && [ -n "$tiny" ] && [ -n "$base" ] ||
        { skip "no recording or no models; examples/fetch.sh all gets them"; return; }
    for model in "$tiny" "$base"; do
        for vad in off on; do
            "$build/transcribe" -q -m "$model" --vad $vad "$wav" >"$T/$vad" 2>"$T/log" ||
                fail "status $?: $(cat "$T/log")"
        done
        [ "$(wc -w <"$T/off")" -gt 40 ] || fail "no words: $(cat "$T/off")"
        [ $(($(wc -w <"$T/on") * 10)) -ge $(($(wc -w <"$T/off") * 9)) ] ||
            fail "words are missing: $(cat "$T/on")"
    done
}

# The model invents words for the noise at the beginning, which are confirmed. What follows is text.
test_confirmed() {
    wav=$(examples/fetch.sh --offline demo 2>/dev/null)
    [ -n "$wav" ] && [ -n "$tiny" ] ||
        { skip "no recording or no model; examples/fetch.sh all gets them"; return; }
    sox -D "$wav" "$T/start.wav" trim 0 10
    run 0 "$build/transcribe" -q -m "$tiny" -l en --commit 1000 "$T/start.wav"
    [ "$(wc -w <"$T/out")" -gt 8 ] || fail "words are missing: $(cat "$T/out")"
}

# A window that ends behind a confirmed word leaves the words behind it to the next one.
test_confirmed_words() {
    wav=$(examples/fetch.sh --offline demo 2>/dev/null)
    [ -n "$wav" ] && [ -n "$tiny" ] ||
        { skip "no recording or no model; examples/fetch.sh all gets them"; return; }
    run 0 "$build/transcribe" -q -m "$tiny" -l en --commit 800 --words -f json "$wav"
    python3 - "$T/out" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
segments = json.load(open(sys.argv[1]))["segments"]
assert len(segments) > 3, segments
for segment in segments:
    words = "".join(word["word"] for word in segment["words"])
    assert words == segment["text"], (words, segment["text"])
PYTHON
}

# A sentence that the model skips within a window: base.en greedily writes "Good morning." for all of
# this. What no word covers is decoded again, in any mode, and the ledger calls it unresolved if that
# is turned off and the text ends there.
test_skipped() {
    [ -n "$base" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    for tool in espeak-ng sox; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool to speak"; return; }
    done
    espeak-ng -v en-us -s 140 -w "$T/raw.wav" 'good morning'
    sox -R -D "$T/raw.wav" -r 16000 -c 1 "$T/first.wav" pad 0.3 0.5
    sox -R -D "$T/first.wav" examples/jfk.wav "$T/both.wav"
    for mode in '' --words '--batch 2'; do
        # shellcheck disable=SC2086 # options
        run 0 "$build/transcribe" -q -m "$base" -l en --beam 1 $mode "$T/both.wav"
        grep -qi 'good morning' "$T/out" && grep -q 'fellow Americans' "$T/out" ||
            fail "$mode: $(cat "$T/out")"
    done
    "$build/transcribe" -q -m "$base" -l en --beam 1 --word-gap off "$T/both.wav" >"$T/out" 2>&1
    ! grep -q 'fellow Americans' "$T/out" || fail "nothing is skipped without --word-gap"
}

for t in free_tiny free_base_en signals header_as_samples commands_tiny commands_base_en \
    commands_behind_text islands channels spans_once narrow radio confirmed confirmed_words \
    skipped; do
    t_run test_$t
done
t_end
