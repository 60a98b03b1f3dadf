#!/bin/sh
# test_align.sh - a known text aligned with its recording (transcribe --align), by a real model:
# times as in a free run, and marks for words that were not said and for those that are not in the
# text. Needs python3, the model and, for a long recording, those of test_speech.sh; with
# TEST_ALIGN=full, as in make check-long, all long recordings are aligned.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models
has() { grep -qF -e "$2" "$1" || fail "no '$2' in $(basename "$1"): $(head -c 300 "$1")"; }
same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ: $(cat "$2")"; }

# align MODEL NAME RECORDING TRANSCRIPT SEEDS: the transcript itself, and versions with random
# edits.
align() {
    "$build/transcribe" -q -m "$1" --words -f json -o "$T/free.json" "$3" || [ $? -eq 6 ] ||
        fail "$2: no free run"
    tr -s ' \n' '\n\n' <"$4" | awk 'NF { printf "%s%s", $0, NR % 10 ? " " : "\n" }' >"$T/text"
    "$build/transcribe" -q -m "$1" --align "$T/text" -f json -o "$T/aligned.json" "$3" ||
        [ $? -eq 6 ] || fail "$2: --align fails"
    python3 tests/speech/align_edits.py times "$T/free.json" "$T/aligned.json" >"$T/out" ||
        fail "$2: times: $(cat "$T/out")"
    echo "$2, times: $(cat "$T/out")"
    for seed in $5; do
        python3 tests/speech/align_edits.py edit "$4" "$T/edited" "$T/edits" "$seed"
        "$build/transcribe" -q -m "$1" --align "$T/edited" --align-extra -f json \
            -o "$T/marked.json" "$3" || [ $? -eq 6 ] || fail "$2: --align-extra fails"
        python3 tests/speech/align_edits.py marks "$T/edits" "$T/marked.json" >"$T/out" ||
            fail "$2, seed $seed: $(cat "$T/out")"
        echo "$2, seed $seed: $(cat "$T/out")"
    done
}

test_align_short() {
    [ -n "$base" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return; }
    echo "And so my fellow Americans ask not what your country can do for you" \
        "ask what you can do for your country" >"$T/jfk"
    # seeds with at least one edit of 22 words
    align "$base" "a short speech" examples/jfk.wav "$T/jfk" "1 2 3"
}

test_align_long() {
    [ -n "$base" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return; }
    [ -f "$speech/manifest.tsv" ] || { skip "no recordings; WNPU_SPEECH names them"; return; }
    list=$speech/manifest.tsv
    n=1
    [ "${TEST_ALIGN-}" != full ] || n=999
    for path in $(awk -F '\t' -v n="$n" '$2 == "long" && k++ < n { print $1 }' "$list"); do
        awk -F '\t' -v path="$path" '$1 == path { print $8 }' "$list" >"$T/transcript"
        align "$base" "$path" "$speech/$path" "$T/transcript" 1
    done
}

# The text is written whole and in order, in every format, whatever was said.
test_align_text() {
    [ -n "$base" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
    printf '\357\273\277Not said at all.\r\n\r\n— My fellow, Americans —\r\n\r\n 今日は!\r\nyou' \
        >"$T/odd"
    printf 'Not said at all.\n— My fellow, Americans —\n今日は!\nyou\n' >"$T/want"
    "$build/transcribe" -q -m "$base" --align "$T/odd" -o "$T/odd.txt" examples/jfk.wav ||
        fail "an odd text"
    same "$T/want" "$T/odd.txt"
    "$build/transcribe" -m "$base" --align "$T/odd" -f srt,vtt,ass,lrc,tsv,csv,json \
        -o "$T/odd" examples/jfk.wav 2>"$T/err" || fail "formats"
    has "$T/err" "of 11 words in $T/odd, 4 were said"
    has "$T/odd.srt" "— My fellow, Americans —"
    : >"$T/empty"
    run 1 "$build/transcribe" -m "$base" --align "$T/empty" examples/jfk.wav
    run 1 "$build/transcribe" -m "$base" --align "$T/none" examples/jfk.wav
    run 1 "$build/transcribe" -m "$base" --align "$T/odd" --spans examples/jfk.wav
    run 1 "$build/transcribe" -m "$base" --align-extra examples/jfk.wav
}

for t in align_short align_long align_text; do
    t_run "test_$t"
done
t_end
