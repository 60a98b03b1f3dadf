#!/bin/sh
# test_words.sh - word times of real models: on recordings whose words stand at known places (made
# with espeak-ng), and what holds for every recording. Needs python3, the models and, for the second
# part, recordings as test_speech.sh does.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models

# need MODEL TOOL...: the model and the tools are there.
need() {
    [ -n "$1" ] || { skip "no model; scripts/fetch.sh all gets them"; return 1; }
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

# The text is the same with and without words; words follow each other inside segment and recording
# and are the segment's text.
test_every_recording() {
    need "$tiny" python3 || return
    [ -f "$speech/manifest.tsv" ] || { skip "no recordings; WNPU_SPEECH names them"; return; }
    awk -F '\t' -v dir="$speech" 'NR > 1 && ($2 == "multi" || $2 == "long" ||
        ($2 == "short" && n++ % 6 == 0)) { print dir "/" $1 }' "$speech/manifest.tsv" >"$T/paths"
    (
        IFS='
'
        set -f
        # shellcheck disable=SC2046 # one path a line
        set -- $(cat "$T/paths")
        # Status 6: all is written, but some speech stayed without text.
        "$build/transcribe" -q -m "$tiny" -f txt -o "$T/plain/" "$@" || [ $? -eq 6 ] || exit 1
        "$build/transcribe" -q -m "$tiny" --words -f json -o "$T/words/" "$@" || [ $? -eq 6 ]
    ) || fail "does not transcribe"
    python3 - "$T/words" "$T/plain" >"$T/log" <<'END' || fail "$(cat "$T/log")"
import glob, json, os, sys
bad = seen = 0
def check(ok, *what):
    global bad
    if not ok:
        print(*what)
        bad += 1
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    name = os.path.basename(path)[:-5]
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    at = 0
    for s in result["segments"]:
        check(at <= s["start"] <= s["end"] <= result["duration"], name, "segment", s["id"])
        check("".join(w["word"] for w in s["words"]) == s["text"], name, "text of", s["id"])
        at = s["start"]
        for w in s["words"]:
            seen += 1
            check(at <= w["start"] <= w["end"] <= s["end"], name, w)
            check(0 < w["probability"] <= 1, name, w)
            at = w["end"]
        at = s["end"]
    with open(os.path.join(sys.argv[2], name + ".txt"), encoding="utf-8") as file:
        text = " ".join(file.read().split())
    check(text == " ".join("".join(s["text"].strip() + " " for s in result["segments"]).split()),
          name, "another text with words")
check(seen > 1000, seen, "words")
sys.exit(bad > 0)
END
}

# ffprobe reads what was written: as many cues, with the times of the tsv file.
test_subtitles() {
    need "$tiny" ffprobe || return
    [ -f "$speech/manifest.tsv" ] || { skip "no recordings; WNPU_SPEECH names them"; return; }
    clip=$(awk -F '\t' -v dir="$speech" '$2 == "long" { print dir "/" $1; exit }' \
        "$speech/manifest.tsv")
    for option in --quiet --words; do
        "$build/transcribe" -q -m "$tiny" -l en $option -f tsv,srt,vtt -o "$T/long" "$clip" ||
            fail "does not transcribe"
        awk -F '\t' 'NR > 1 { printf "%.3f,%.3f\n", $1 / 1000, ($2 - $1) / 1000 }' "$T/long.tsv" \
            >"$T/want"
        [ "$(wc -l <"$T/want")" -gt 20 ] || fail "few segments"
        for f in srt vtt; do
            ffprobe -v error -show_entries packet=pts_time,duration_time -of csv=p=0 "$T/long.$f" |
                awk -F , '{ printf "%.3f,%.3f\n", $1, $2 }' >"$T/is"
            cmp -s "$T/want" "$T/is" || fail "$f, $option: $(diff "$T/want" "$T/is" | head -n 4)"
        done
    done
}

t_run test_known_tiny
t_run test_known_base_en
t_run test_every_recording
t_run test_subtitles
t_end
