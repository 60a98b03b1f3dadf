#!/bin/sh
# test_words.sh - word times of real models on recordings whose words stand at known places (made with
# espeak-ng). Needs python3 and the models. test_speech.sh has what holds for every recording.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models

# need MODEL TOOL...: the model and the tools are there.
need() {
    [ -n "$1" ] || { skip "no model; examples/fetch.sh all gets them"; return 1; }
    shift
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || { skip "no $tool"; return 1; }
    done
}

# known MODEL: the mean error of words' begins and ends is at most 100 ms, and most words are
# recognised.
known() {
    need "$1" python3 espeak-ng || return
    [ -d "$T/known" ] || python3 tests/speech/words_synthetic.py make "$T/known" ||
        fail "cannot make them"
    "$build/transcribe" -q -m "$1" -l en --words -f json -o "$T/known/" "$T"/known/*.wav ||
        fail "does not transcribe"
    python3 tests/speech/words_synthetic.py score "$T/known" >"$T/out" || fail "cannot score them"
    cat "$T/out"
    awk '$1 == "all:" { found = $2; spoken = $4; error = $(NF - 1) }
        END { exit !(spoken > 500 && found >= 0.95 * spoken && error <= 100) }' "$T/out" ||
        fail "more than 100 ms, or too few words"
}

test_known_tiny() { known "$tiny"; }
test_known_base_en() { known "$base"; }

t_run test_known_tiny
t_run test_known_base_en
t_end
