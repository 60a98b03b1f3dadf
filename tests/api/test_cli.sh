#!/bin/sh
# test_cli.sh - the behaviour of build/transcribe and build/minimal, seen from outside. Needs the
# model tiny and the demo recording in the cache (examples/fetch.sh tiny demo).
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
transcribe=$build/transcribe
here=$PWD
t_temp
umask 022

model=$(examples/fetch.sh --offline tiny 2>/dev/null)
demo=$(examples/fetch.sh --offline demo 2>/dev/null)

# has FILE TEXT, hasnt FILE TEXT: fixed strings
has() { grep -qF -e "$2" "$1" || fail "no '$2' in $(basename "$1"): $(head -c 300 "$1")"; }
hasnt() { ! grep -qF -e "$2" "$1" || fail "'$2' in $(basename "$1"): $(head -c 300 "$1")"; }
empty() { [ ! -s "$1" ] || fail "$(basename "$1") is not empty: $(head -c 300 "$1")"; }
filled() { [ -s "$1" ] || fail "$(basename "$1") is empty or missing"; }
same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }

# Little-endian numbers of two and four bytes.
byte() { printf '%b' "\\0$(printf '%03o' $(($1 & 255)))"; }
le16() { byte "$1"; byte $(($1 >> 8)); }
le32() { le16 $(($1 & 65535)); le16 $(($1 >> 16 & 65535)); }

# wav_header BYTES CHANNELS: of 16-bit samples at 16 kHz
wav_header() {
    printf RIFF; le32 $(($1 + 36)); printf 'WAVEfmt '; le32 16
    le16 1; le16 "$2"; le32 16000; le32 $((32000 * $2)); le16 $((2 * $2)); le16 16
    printf data; le32 "$1"
}

# 8 s of speech, 2 s of silence, 20 minutes of speech, all from the recording's samples at the end.
make_recordings() {
    { wav_header 256000 1; tail -c 960000 "$demo" | head -c 256000; } >"$T/speech.wav"
    tail -c 256000 "$T/speech.wav" >"$T/spoken"
    { wav_header 64000 1; head -c 64000 /dev/zero; } >"$T/silence.wav"
    { wav_header 64000 2; head -c 64000 /dev/zero; } >"$T/stereo.wav"
    tail -c 960000 "$demo" >"$T/raw"
    i=0
    { wav_header 38400000 1; while [ $i -lt 40 ]; do cat "$T/raw"; i=$((i + 1)); done; } \
        >"$T/long.wav"
    head -c 20000 "$T/raw" | tr '\000-\037' x >"$T/noise.bin"
    : >"$T/empty.wav"
}

# ---- without a model ----

test_help() {
    run 0 "$transcribe" --help
    empty "$T/err"
    for option in model language translate threads isa compute format output prompt \
        no-timestamps condition no-suppress-nonspeech max-tokens channel list-languages \
        list-options quiet \
        verbose version self-test help npu npu-all require-npu beam patience \
        length-penalty length-rule temperature best-of seed temperature-step no-fallback \
        compression-threshold logprob-threshold \
        first-token-threshold no-speech-threshold no-loop-check repetition-penalty \
        no-repeat-ngram carry-prompt prefix hotwords hotword-boost commands languages \
        language-mode progress vad vad-threshold vad-min-speech vad-min-silence vad-pad spans \
        device batch \
        subtitles max-line-width max-lines max-cue-ms min-cue-ms min-gap-ms reading-speed \
        max-words word-times align align-extra \
        script suppress-numerals drop-fillers replace; do
        has "$T/out" "--$option"
    done
    for status in 0 1 2 3 4 5 6 7 8; do
        grep -q "^  $status  " "$T/out" || fail "exit status $status is not explained"
    done
    awk 'length($0) > 90 { exit 1 }' "$T/out" || fail "a line of --help is too long"
}

# What --help, the documents and wnpu_params know is the same.
# shellcheck disable=SC2086 # several words are wanted
test_readme() {
    documents='examples/README.md examples/transcribe/README.md examples/transcribe/GUIDE.md
        examples/pack/README.md examples/npu_doctor/README.md examples/browser/README.md'
    "$transcribe" --help | grep -oE -- '--[a-z][a-z-]+' | sort -u >"$T/help"
    grep -ohE -- '--[a-z][a-z-]+' README.md $documents | sort -u >"$T/readme"
    # Options of other programs are left out.
    { grep -E '^(\| .*`| +build/transcribe)' README.md
      sed -E -e 's#build/(pack|make_pack|npu_doctor|bench)[^`]*##g' $documents; } |
        grep -oE -- '--[a-z][a-z-]+' | sort -u >"$T/rows"
    comm -23 "$T/help" "$T/readme" >"$T/out"
    [ ! -s "$T/out" ] || fail "not documented: $(tr '\n' ' ' <"$T/out")"
    comm -23 "$T/rows" "$T/help" >"$T/out"
    [ ! -s "$T/out" ] || fail "documented but not in --help: $(tr '\n' ' ' <"$T/out")"
    sed -n '/^## All options$/,/^## /p' examples/transcribe/README.md | grep '^|' >"$T/readme"
    run 0 "$transcribe" --list-options
    same "$T/readme" "$T/out"
    sed -n '/^typedef struct wnpu_params/,/^}/p' whisper_npu.h |
        sed -nE 's/^    [a-z][^;/]*[ *(]([a-z_]+)(\)\(|;).*$/\1/p' >"$T/fields"
    [ "$(grep -c . "$T/fields")" -ge 40 ] || fail "fields: $(tr '\n' ' ' <"$T/fields")"
    while read -r field; do
        case $field in
        struct_size | reserved | n_* | *_lines) ;; # *_lines are lists by name
        *) grep -q "^|.*\`$field\`" $documents || fail "$field is in no table" ;;
        esac
    done <"$T/fields"
}

# The least and the most that --help names are taken: only the model is missing then.
test_limits() {
    for right in '--beam 1' '--beam 16' '--patience 0.1' '--patience 16' '--length-penalty -4' \
        '--length-penalty 4' '--temperature 0' '--temperature 2' '--best-of 1' '--best-of 16' \
        '--seed 0' '--seed 18446744073709551615' '--temperature-step 0.05' \
        '--temperature-step 1' '--compression-threshold 0' '--logprob-threshold 0' \
        '--first-token-threshold 0' '--no-speech-threshold 0' '--no-speech-threshold off' \
        '--repetition-penalty 0.5' '--repetition-penalty 4' '--no-repeat-ngram 0' \
        '--no-repeat-ngram 64' '--hotword-boost 0' '--hotword-boost 20' '--max-tokens 1' \
        '--max-tokens 224' '--language-mode 1' '--language-mode 20' '--threads 1' '--threads 64' \
        '--batch 1' '--batch 8' '--max-line-width 8' '--max-line-width 1000' \
        '--subtitles --max-lines 1' '--subtitles --max-lines 16' '--max-cue-ms 500' \
        '--max-cue-ms 60000' '--min-cue-ms 0' '--min-cue-ms 10000' '--min-gap-ms 0' \
        '--min-gap-ms 1000' '--reading-speed 5' '--reading-speed 100' '--format TXT' \
        '--subtitles --max-cue-ms 500'; do
        # shellcheck disable=SC2086 # two words are wanted
        run 2 "$transcribe" --model "$T/none" $right a.wav
    done
}

# What --list-options says of an option, as lines of exit status, option and value: both ends of its
# range, words and off are accepted, and refused what is beyond them.
option_cases() {
    awk -F ' *[|] *' '
        BEGIN { CONVFMT = OFMT = "%.12g" }
        function takes(value) { print 2, option, value }
        function refuses(value) { print 1, option, value }
        function refuses_below(x) { refuses(x - 1); refuses(x - 0.001) }
        function refuses_above(x) { refuses(x + 1); refuses(x + 0.001) }
        NR < 3 || !match($2, /--[a-z-]+/) { next }
        { option = substr($2, RSTART, RLENGTH); off = sub(/, or off$/, "", $5); range = 1 }
        $2 !~ /--[a-z-]+ / { if ($3 != "") takes(""); next } # without a value
        $5 ~ /^-?[0-9.]+ to -?[0-9.]+$/ {
            split($5, end, " to ")
            takes(end[1]); takes(end[2]); refuses_below(end[1]); refuses_above(end[2])
            range = 0
        }
        $5 ~ /^-?[0-9.]+ or more$/ { takes($5 + 0); takes(1000); refuses_below($5 + 0); range = 0 }
        $5 ~ /^-?[0-9.]+ or less$/ { takes($5 + 0); takes(-1000); refuses_above($5 + 0); range = 0 }
        $5 == "any number" { takes(-1000); takes(1000); range = 0 }
        $5 == "0 to 2^64 - 1" {
            takes(0); takes("18446744073709551615"); refuses(-1); refuses("18446744073709551616")
            range = 0
        }
        !range { if (off) takes("off"); else refuses("off"); refuses("nonsense"); refuses("1x") }
        range && $3 != "" && $5 ~ /^[a-z]+(, [a-z]+)+$/ { # words
            n = split($5, word, ", ")
            for (i = 1; i <= n; i++) takes(word[i])
            refuses("nonsense"); range = 0
        }
        range && $3 == "language" { takes("auto"); takes("de"); refuses("klingon"); range = 0 }
        range && $3 ~ /^(initial_prompt|prefix|hotwords)$/ { takes("word"); range = 0 }
        range && $3 == "replace" { takes("this=>that"); refuses("this"); range = 0 }
        range && $3 == "languages" { takes("en,de"); refuses("en,klingon"); range = 0 }
        range && $3 == "language_mode" {
            takes("first"); takes("each"); takes(1); takes(20); refuses(0); refuses(21); range = 0
        }
        range && $3 != "" { print "untested", option }'
}

# Every run parameter that has an option in the library's table: it is listed with that option, and
# has the range that is listed.
test_parameters() {
    run 0 "$transcribe" --list-options
    sed 's/\\|/!/g' "$T/out" >"$T/table" # in a cell
    sed -n '/pm_table\[\] = {$/,/^};/p' whisper_npu.c |
        sed -nE 's/^    \{"([a-z_]+)", "(--[a-z-]+)",.*/\2 \1/p' | sort >"$T/want"
    [ "$(grep -c . "$T/want")" -ge 34 ] || fail "parameters: $(cat "$T/want")"
    awk -F ' *[|] *' 'match($2, /--[a-z-]+/) && $3 != "" {
        gsub(/`/, "", $3); print substr($2, RSTART, RLENGTH), $3 }' "$T/table" | sort >"$T/listed"
    comm -23 "$T/want" "$T/listed" >"$T/out"
    [ ! -s "$T/out" ] || fail "not listed: $(cat "$T/out")"
    sed 's/`//g' "$T/table" | option_cases >"$T/cases"
    [ "$(grep -c . "$T/cases")" -ge 200 ] || fail "cases: $(cat "$T/cases")"
    ! grep untested "$T/cases" || fail "a kind of range that the test does not know"
    while read -r status option value; do
        set -- --subtitles "$option" # which --max-lines needs
        [ -z "$value" ] || set -- "$@" "$value"
        [ "$option" != --min-cue-ms ] || set -- "$@" --max-cue-ms 60000
        run "$status" "$transcribe" --model "$T/none" "$@" a.wav
        [ "$status" -eq 2 ] || has "$T/err" "transcribe: $option: "
    done <"$T/cases"
}

test_version_and_languages() {
    run 0 "$transcribe" --version
    grep -qE '^transcribe \(whisper_npu\) [0-9]+\.[0-9]+\.[0-9]+$' "$T/out" || fail "--version"
    run 0 "$transcribe" --self-test
    grep -q '^self test passed: scalar' "$T/out" || fail "--self-test"
    run 0 "$transcribe" --list-languages
    grep -q '^en	english$' "$T/out" || fail "no English"
    # shellcheck disable=SC2016 # the inner shell expands it
    run 5 sh -c '"$1" --help >/dev/full' sh "$transcribe"
}

test_usage_errors() {
    for wrong in --wrong '--patience 0.09' '--temperature-step 0.04' '--threads 0' \
        '--threads 65' '--threads x' '--max-tokens 225' \
        '--format doc' '--isa 6502' '--compute bf16' '--language klingon' '--channel -2' \
        '--speakers channels --channel 0' '--channel 1 --speakers channels' \
        '--speakers channels --spans' '--speakers both' '--speakers voices' '--speakers 2' \
        '--channel left' --model --npu --npu-all --require-npu '--beam -1' \
        '--beam 17' '--best-of 17' '--patience 0' '--batch 0' '--batch 9' \
        '--length-penalty 5' '--length-rule x' '--temperature -1' '--temperature nan' \
        '--seed -1' '--temperature-step 2' '--compression-threshold x' '--logprob-threshold x' \
        '--repetition-penalty 0' '--no-repeat-ngram 65' '--hotword-boost 21' \
        '--languages en,klingon' '--language-mode sometimes' '--language-mode 21' \
        '--vad maybe' '--vad-threshold 0.01' '--vad-threshold 1' '--vad-threshold x' \
        '--vad-min-speech -1' '--vad-min-speech 5001' '--vad-min-silence 10001' \
        '--vad-min-silence 1s' '--vad-pad 2001' '--vad-pad -1' '--max-line-width 7' \
        '--max-line-width 1001' \
        '--max-lines 0' '--max-lines 17' '--max-lines 2' '--max-cue-ms 499' '--max-cue-ms 60001' \
        '--min-cue-ms -1' '--min-cue-ms 10001' '--min-gap-ms 1001' '--reading-speed 4' \
        '--reading-speed 101' '--max-cue-ms 1000 --min-cue-ms 1001' '--format txt,doc' \
        '--format ,' '--format txt,srt' '--output talk.doc' '--output talk.1' \
        '--output a.txt --output b.doc' '--output a.txt --output b.srt --format srt'; do
        # shellcheck disable=SC2086 # two words are wanted
        run 1 "$transcribe" a.wav $wrong
        empty "$T/out"
        has "$T/err" --help
    done
    for voices in voices 2; do
        run 1 "$transcribe" a.wav --speakers $voices
        has "$T/err" "--speakers $voices: there is no model of voices"
    done
    run 1 "$transcribe" a.wav --beam
    has "$T/err" "--beam: the value is missing"
    run 1 "$transcribe" a.wav --beams 2
    has "$T/err" "--beams: no such option"
    run 1 "$transcribe" --commands "$T/none" a.wav
    has "$T/err" "$T/none"
    run 1 "$transcribe" --hotwords "@$T/none" a.wav
    has "$T/err" "$T/none"
    run 1 "$transcribe"
    run 1 "$transcribe" --format srt a.wav b.wav
    has "$T/err" "--output DIRECTORY"
    mkdir "$T/collide"
    run 1 "$transcribe" --output "$T/collide" x/a.wav y/a.mp3
    has "$T/err" "x/a.wav is written to it as well"
    run 1 "$transcribe" --output "" a.wav
}

# Lists: byte order mark, line ends, blanks, and what is no list.
test_lists() {
    for command in --commands --hotwords; do
        at=@
        [ $command = --hotwords ] || at=
        : >"$T/list"
        run 1 "$transcribe" $command "$at$T/list" a.wav
        has "$T/err" "no lines with text"
        printf '\357\273\277\r\n \t\r\n' >"$T/list"
        run 1 "$transcribe" $command "$at$T/list" a.wav
        has "$T/err" "no lines with text"
        printf '\377\376a\0' >"$T/list"
        run 1 "$transcribe" $command "$at$T/list" a.wav
        has "$T/err" "UTF-16"
        printf 'one\0two\nthree\n' >"$T/list"
        run 1 "$transcribe" $command "$at$T/list" a.wav
        has "$T/err" "NUL"
        printf '\357\273\277word\r\n' >"$T/list"
        run 2 "$transcribe" -m "$T/none" $command "$at$T/list" a.wav
    done
    for tag in en-US zh-Hans-CN pt_BR nb iw fil eng; do
        run 2 "$transcribe" -m "$T/none" -l $tag --languages en,$tag a.wav
    done
    for list in '' ,; do
        run 1 "$transcribe" --languages "$list" a.wav
        has "$T/err" "empty"
    done
}

test_models() {
    run 2 "$transcribe" --model "$T/none.bin" a.wav
    has "$T/err" none.bin
    printf 'not a model at all, but long enough to hold a header' >"$T/foreign.bin"
    run 2 "$transcribe" --model "$T/foreign.bin" a.wav
    : >"$T/empty.bin"
    run 2 "$transcribe" --model "$T/empty.bin" a.wav
    run 2 "$transcribe" --model "$T" a.wav
    mkdir -p "$T/nothing"
    run 2 env WHISPER_NPU_CACHE="$T/nothing" "$transcribe" a.wav
    has "$T/err" fetch.sh
}

# ---- with one ----

test_text() {
    run 0 "$transcribe" -m "$model" "$T/speech.wav"
    empty "$T/err"
    filled "$T/out"
    cp "$T/out" "$T/speech.txt"
    run 0 "$build/minimal" "$model" "$T/speech.wav"
    sed 's/^ *//' "$T/out" >"$T/minimal.txt"
    same "$T/speech.txt" "$T/minimal.txt"
    run 0 "$build/voices" "$model" "$T/speech.wav" 1
    grep -q '^Speaker 1: ' "$T/out" || fail "nobody speaks: $(head -n 3 "$T/out")"
    sed 's/^[A-Z][a-z1 ]*: *//' "$T/out" >"$T/minimal.txt"
    same "$T/speech.txt" "$T/minimal.txt"
    run 0 "$transcribe" -m "$model" --threads 1 --isa scalar "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    mkdir -p "$T/cache" && ln -s "$model" "$T/cache/ggml-tiny.bin"
    run 0 env WHISPER_NPU_CACHE="$T/cache" "$transcribe" "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    run 0 "$transcribe" -m "$model" --verbose "$T/speech.wav"
    has "$T/err" "times real time"
    same "$T/speech.txt" "$T/out"
    if "$transcribe" -q -m "$model" --isa amx "$T/silence.wav" >/dev/null 2>&1; then
        has "$T/err" ", amx, " # found without a name
    fi
    run 0 "$transcribe" -m "$model" --verbose --quiet "$T/silence.wav"
}

# Speech is found in speech and not in silence, and --vad off decodes all the same.
test_spans() {
    run 0 "$transcribe" -m "$model" --spans "$T/speech.wav"
    filled "$T/out"
    empty "$T/err"
    grep -vqE '^[0-9]+	[0-9]+$' "$T/out" && fail "spans: $(head -c 300 "$T/out")"
    run 0 "$transcribe" -m "$model" --spans "$T/silence.wav"
    empty "$T/out"
    run 0 "$transcribe" -m "$model" "$T/silence.wav"
    empty "$T/out"
    run 0 "$transcribe" -m "$model" -f json "$T/silence.wav"
    has "$T/out" '"kind": "silence", "reason": "no-voice"'
    run 0 "$transcribe" -m "$model" --vad off -f json "$T/speech.wav"
    has "$T/out" '"speech": []'
    has "$T/out" '"kind": "text"'
}

# Paragraphs by pause, dictated line breaks and punctuation, and words that are doubtful.
test_style() {
    run 0 "$transcribe" -q -m "$model" --paragraphs 200 examples/jfk.wav
    [ "$(wc -l <"$T/out")" -eq 1 ] || fail "one paragraph: $(cat "$T/out")"
    have sox || return
    sox examples/jfk.wav "$T/first.wav" pad 0 3
    sox "$T/first.wav" "$T/speech.wav" "$T/twice.wav"
    run 0 "$transcribe" -q -m "$model" --paragraphs 2000 "$T/twice.wav"
    [ "$(grep -c . "$T/out")/$(wc -l <"$T/out")" = 2/3 ] || fail "two: $(cat "$T/out")"
    run 0 "$transcribe" -q -m "$model" --paragraphs 2000 --doubt -f json "$T/twice.wav"
    has "$T/out" '"paragraphs": ['
    has "$T/out" '"mean_probability": 0.'
    [ "$(grep -c '"first": ' "$T/out")" -eq 2 ] || fail "json: $(grep first "$T/out")"
    run 0 "$transcribe" -q -m "$model" --replace 'my => \n, americans => .' examples/jfk.wav
    printf 'And so\nFellow. Ask not' >"$T/want"
    head -c 22 "$T/out" | cmp -s - "$T/want" || fail "dictated: $(cat "$T/out")"
    run 0 "$transcribe" -q -m "$model" --doubt -f vtt examples/jfk.wav
    has "$T/out" '::cue(.unsure)'
    has "$T/out" '<c.unsure>'
    run 0 "$transcribe" -q -m "$model" --doubt examples/jfk.wav
    grep -q "$(printf '\033')" "$T/out" && fail "colours in a file: $(cat "$T/out")"
    test_colours
    run 1 "$transcribe" -m "$model" --paragraphs 100 examples/jfk.wav
}

# What a terminal shows: the same text, with the words of vtt's marks in colours.
test_colours() {
    have python3 || return
    cat >"$T/terminal.py" <<'PROGRAM'
import os, pty, re, subprocess, sys

def shown(**more):
    ours, its = pty.openpty()
    done = subprocess.Popen(sys.argv[1:], stdout=its, env={**os.environ, "TERM": "xterm", **more})
    os.close(its)
    text = b""
    try:
        while (got := os.read(ours, 65536)):
            text += got
    except OSError:  # the end
        pass
    assert done.wait() == 0
    return text.decode().replace("\r\n", "\n")

text = shown()
print(re.sub(r"\x1b\[\d+m", "", text), end="")
for colour, kind in (("33", "unsure"), ("31", "doubtful")):
    for word in re.findall(rf"\x1b\[{colour}m(.*?)\x1b\[39m", text):
        print(f"<c.{kind}>{word}</c>", file=sys.stderr)
for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
    assert "\x1b" not in shown(**more)
PROGRAM
    cp "$T/out" "$T/want"
    run 0 python3 "$T/terminal.py" "$transcribe" -q -m "$model" --doubt examples/jfk.wav
    cmp -s "$T/out" "$T/want" || fail "on a terminal: $(cat "$T/out")"
    cp "$T/err" "$T/marks"
    run 0 "$transcribe" -q -m "$model" --doubt -f vtt examples/jfk.wav
    grep -o '<c\.[a-z]*>[^<]*</c>' "$T/out" | sort >"$T/want"
    filled "$T/want"
    sort "$T/marks" | cmp -s - "$T/want" || fail "colours: $(cat "$T/marks")"
}

# A list with a byte order mark and CR LF is the list without them.
test_commands() {
    printf '%s\n' "$(head -n 1 "$T/speech.txt" | cut -d ' ' -f 1-5)" 'lights on' >"$T/list"
    run 0 "$transcribe" -m "$model" --commands "$T/list" "$T/speech.wav"
    cp "$T/out" "$T/want"
    grep -q '^lights on' "$T/want" && fail "commands: $(cat "$T/want")"
    { printf '\357\273\277'; sed 's/$/\r/' "$T/list"; } >"$T/bom"
    run 0 "$transcribe" -m "$model" --commands "$T/bom" "$T/speech.wav"
    same "$T/want" "$T/out"
}

test_minimal_errors() {
    run 1 "$build/minimal"
    run 1 "$build/voices"
    run 1 "$build/voices" "$T/none.bin" "$T/speech.wav" 100
    has "$T/err" voices
    run 1 "$build/minimal" "$T/none.bin" "$T/speech.wav"
    filled "$T/err"
    run 1 "$build/minimal" "$model" "$T/noise.bin"
    filled "$T/err"
    run 1 "$build/minimal" "$model" "$T/empty.wav"
    filled "$T/err"
    run 1 "$build/minimal" "$model" "$T"
    filled "$T/err"
}

test_bad_inputs() {
    run 3 "$transcribe" -m "$model" "$T/none.wav"
    has "$T/err" "No such file"
    run 3 "$transcribe" -m "$model" "$T/empty.wav"
    has "$T/err" "is empty"
    run 3 "$transcribe" -m "$model" "$T"
    has "$T/err" "is a directory"
    run 3 "$transcribe" -m "$model" "$T/noise.bin"
    has "$T/err" "not a WAV file"
    [ "$(wc -l <"$T/err")" -eq 1 ] || fail "more than one line for one bad file"
    head -c 40 "$T/speech.wav" >"$T/header.wav"
    run 3 "$transcribe" -m "$model" "$T/header.wav"
    hasnt "$T/err" "not a WAV file"
    run 3 "$transcribe" -m "$model" --channel 2 "$T/stereo.wav"
    has "$T/err" "no channel 2"
    run 0 "$transcribe" -m "$model" --channel 1 "$T/stereo.wav"
}

test_several_files() {
    run 3 "$transcribe" -m "$model" "$T/speech.wav" "$T/none.wav" "$T/noise.bin" "$T/speech.wav"
    [ "$(wc -l <"$T/err")" -eq 2 ] || fail "not one line for each bad file"
    { echo "==> $T/speech.wav <=="; cat "$T/speech.txt"; echo; echo "==> $T/speech.wav <=="
      cat "$T/speech.txt"; } >"$T/want"
    same "$T/want" "$T/out"
}

test_stdin() {
    "$transcribe" -m "$model" - <"$T/speech.wav" >"$T/out" 2>"$T/err" || fail "from a file"
    same "$T/speech.txt" "$T/out"
    # shellcheck disable=SC2002 # a pipe is what is tested
    cat "$T/speech.wav" | "$transcribe" -m "$model" - >"$T/out" 2>"$T/err" || fail "from a pipe"
    same "$T/speech.txt" "$T/out"
    "$transcribe" -m "$model" - <"$T/noise.bin" >"$T/out" 2>"$T/err"
    [ $? -eq 3 ] || fail "noise on standard input"
    has "$T/err" "not a WAV file"
    run 3 "$transcribe" -m "$model" -
    has "$T/err" "is empty"
    "$transcribe" -m "$model" - <&- >"$T/out" 2>"$T/err"
    [ $? -eq 3 ] || fail "closed standard input"
}

test_formats() {
    for f in txt srt vtt tsv json csv lrc ass; do
        run 0 "$transcribe" -m "$model" -f $f "$T/speech.wav"
        cp "$T/out" "$T/result.$f"
        run 0 "$transcribe" -m "$model" -o "$T/by_name.$f" "$T/speech.wav"
        same "$T/result.$f" "$T/by_name.$f"
        upper=$(echo $f | tr '[:lower:]' '[:upper:]')
        run 0 "$transcribe" -m "$model" -o "$T/upper.$upper" "$T/speech.wav"
        same "$T/result.$f" "$T/upper.$upper"
        empty "$T/out"
        run 0 "$transcribe" -m "$model" -f $f "$T/silence.wav"
    done
    time='[0-9][0-9]:[0-5][0-9]:[0-5][0-9],[0-9][0-9][0-9]'
    awk -v time="^$time --> $time\$" '
        NR == 1 || (blank && NF) { at = 0; n++ }
        { at++; blank = !NF }
        at == 1 && $0 != n { print "number " $0; bad = 1 }
        at == 2 && $0 !~ time { print "times " $0; bad = 1 }
        at == 3 && !NF { print "empty text"; bad = 1 }
        END { exit bad || n == 0 }' "$T/result.srt" || fail "result.srt is not SubRip"
    [ "$(head -n 1 "$T/result.vtt")" = WEBVTT ] || fail "result.vtt has no first line"
    grep -qE '[0-9]{2}\.[0-9]{3} --> .*[0-9]{2}\.[0-9]{3}$' "$T/result.vtt" || fail "VTT times"
    awk -F '\t' 'NF != 3 { exit 1 } NR == 1 { if ($1 != "start") exit 1; next }
        $1 !~ /^[0-9]+$/ || $2 !~ /^[0-9]+$/ || $2 + 0 < $1 + 0 { exit 1 }' "$T/result.tsv" ||
        fail "result.tsv is not three columns of start, end, text"
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' \
            "$T/result.json" || fail "result.json is not JSON"
    elif command -v node >/dev/null 2>&1; then
        node -e 'JSON.parse(require("fs").readFileSync(process.argv[1], "utf8"))' \
            "$T/result.json" || fail "result.json is not JSON"
    else
        skip "neither python3 nor node can parse JSON here"
    fi
}

test_output_file() {
    mkdir -p "$T/o"
    echo old >"$T/o/file.txt"
    ln -sf file.txt "$T/o/link.txt"
    run 3 "$transcribe" -m "$model" -o "$T/o/file.txt" "$T/noise.bin"
    [ "$(cat "$T/o/file.txt")" = old ] || fail "a failed run touched its output"
    run 5 sh -c 'trap "" XFSZ; ulimit -f 0; exec "$@"' sh \
        "$transcribe" -m "$model" -o "$T/o/file.txt" "$T/speech.wav"
    [ "$(cat "$T/o/file.txt")" = old ] || fail "a failed write touched its output"
    run 0 "$transcribe" -m "$model" -o "$T/o/link.txt" "$T/speech.wav"
    same "$T/speech.txt" "$T/o/file.txt"
    [ -h "$T/o/link.txt" ] || fail "the link was replaced"
    ls -l "$T/o/file.txt" >"$T/mode"
    has "$T/mode" "-rw-r--r--"
    [ "$(find "$T/o" | wc -l)" -eq 3 ] || fail "temporary files were left: $(ls "$T/o")"
    run 5 "$transcribe" -m "$model" -o "$T/no/such/dir.txt" "$T/speech.wav"
    has "$T/err" dir.txt
    run 5 "$transcribe" -m "$model" -o "$T/speech.wav/" "$T/speech.wav"
    if [ "$(id -u)" -ne 0 ]; then
        mkdir -p "$T/locked" && chmod 555 "$T/locked"
        run 5 "$transcribe" -m "$model" -o "$T/locked/x.txt" "$T/speech.wav"
    fi
}

# What cannot be written is known before anything runs: there is no progress, and nothing is touched.
refused() {
    want=$1
    shift
    run "$want" "$transcribe" --progress -m "$model" "$@" "$T/long.wav"
    [ "$(wc -l <"$T/err")" -eq 1 ] || fail "not one line: $(cat "$T/err")"
}

test_output_refused() {
    rm -rf "$T/r" && mkdir "$T/r" && cp "$T/silence.wav" "$T/r/in.txt" && echo old >"$T/r/old.txt"
    cp "$T/r/in.txt" "$T/before"
    ln "$T/r/in.txt" "$T/r/hard.srt" && ln -s in.txt "$T/r/soft.srt"
    run 1 "$transcribe" -m "$model" -o "$T/r/in.txt" "$T/r/in.txt"
    has "$T/err" "is read"
    run 1 "$transcribe" -m "$model" -o "$T/r/hard.srt" "$T/r/in.txt"
    run 1 "$transcribe" -m "$model" -o "$T/r/soft.srt" "$T/r/in.txt"
    run 1 "$transcribe" -m "$model" -o "$T/r" "$T/silence.wav" "$T/r/in.txt"
    # shellcheck disable=SC2094 # that is the mistake
    "$transcribe" -m "$model" -f txt -o "$T/r/in.txt" - <"$T/r/in.txt" 2>"$T/err"
    [ $? -eq 1 ] || fail "standard input is the output: $(cat "$T/err")"
    cp "$model" "$T/r/model.txt"
    run 1 "$transcribe" -m "$T/r/model.txt" -o "$T/r/model.txt" "$T/silence.wav"
    mkdir "$T/r/cache" && cp "$model" "$T/r/cache/ggml-tiny.bin"
    run 1 env WHISPER_NPU_CACHE="$T/r/cache" "$transcribe" -f txt -o "$T/r/cache/ggml-tiny.bin" \
        "$T/silence.wav"
    has "$T/err" "a model"
    echo "lights on" >"$T/r/list.txt"
    run 1 "$transcribe" -m "$model" --commands "$T/r/list.txt" -o "$T/r/list.txt" "$T/silence.wav"
    run 1 "$transcribe" -m "$model" --hotwords "@$T/r/list.txt" -o "$T/r/list.txt" "$T/silence.wav"
    [ "$(cat "$T/r/list.txt")" = "lights on" ] || fail "a list that is read was replaced"
    sh -c 'exec "$@" >>"$0"' "$T/r/in.txt" "$transcribe" -q -m "$model" "$T/r/in.txt" 2>"$T/err"
    [ $? -eq 1 ] || fail "standard output is the input"
    same "$T/before" "$T/r/in.txt"
    refused 1 -o "$T/r/a.txt" -o "$T/r/./a.txt"
    refused 5 -o "$T/r/none/a.txt"
    refused 5 -o "$T/r/old.txt/a.txt"
    ln -s loop.txt "$T/r/loop.txt"
    refused 5 -o "$T/r/loop.txt"
    refused 5 -o "$T/r/$(printf '%0252d' 0).txt"
    cp "$T/long.wav" "$T/r/$(printf '%0251d' 0).wav"
    run 5 "$transcribe" --progress -m "$model" -f json -o "$T/r/" "$T/r/$(printf '%0251d' 0).wav"
    [ "$(wc -l <"$T/err")" -eq 1 ] || fail "not one line: $(cat "$T/err")"
    mkdir "$T/r/dir.txt"
    refused 5 -f txt,srt -o "$T/r/dir"
    refused 5 -o "$T/r/a.txt" -o "$T/r/none/b.srt"
    [ ! -e "$T/r/a.txt" ] || fail "an output was begun though another one cannot be written"
    sh -c 'exec "$@" >&-' sh "$transcribe" -m "$model" "$T/long.wav" 2>"$T/err"
    [ $? -eq 5 ] || fail "closed standard output"
    sh -c 'exec "$@" >&-' sh "$transcribe" -m "$model" -o /dev/null -f txt "$T/speech.wav" 2>"$T/err"
    [ $? -eq 0 ] || fail "closed standard output, which is not used: $(cat "$T/err")"
    printf 'x\033[31m\nz' >"$T/esc"
    run 3 "$transcribe" -m "$model" "$T/$(cat "$T/esc")"
    has "$T/err" 'x\x1b[31m\x0az'
    [ "$(wc -l <"$T/err")" -eq 1 ] || fail "a name ends a line"
    [ "$(cat "$T/r/old.txt")" = old ] || fail "an output was touched"
    run 5 sh -c 'ulimit -f 1; exec "$@"' sh "$transcribe" -m "$model" -o "$T/r/a.txt" "$T/long.wav"
    if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null 2>&1; then
        chmod 755 "$T" && chmod 555 "$T/r" && chmod 444 "$T/r/old.txt"
        for to in old.txt new.txt; do
            run 5 setpriv --reuid 65534 --clear-groups "$transcribe" --progress \
                -m "$T/r/model.txt" -o "$T/r/$to" "$T/long.wav"
            [ "$(wc -l <"$T/err")" -eq 1 ] || fail "not one line: $(cat "$T/err")"
        done
        chmod 755 "$T/r"
    fi
    [ -z "$(find "$T/r" -name '.transcribe*')" ] || fail "temporary files were left"
}

# Mode, owner, links and names of what is written over; and names as long as they may be.
test_output_kept() {
    rm -rf "$T/k" && mkdir "$T/k"
    echo old >"$T/k/mode.txt" && chmod 600 "$T/k/mode.txt"
    echo old >"$T/k/one.txt" && ln "$T/k/one.txt" "$T/k/two.txt"
    ln -s ../k/target.txt "$T/k/dangling.txt"
    for to in mode one dangling "$(printf '%0251d' 0)"; do
        run 0 "$transcribe" -m "$model" -o "$T/k/$to.txt" "$T/speech.wav"
        same "$T/speech.txt" "$T/k/$to.txt"
    done
    [ "$(stat -c %a "$T/k/mode.txt")" = 600 ] || fail "the mode changed"
    same "$T/speech.txt" "$T/k/two.txt"
    if [ ! -h "$T/k/dangling.txt" ] || [ -h "$T/k/target.txt" ]; then
        fail "the link was replaced"
    fi
    if [ "$(id -u)" -eq 0 ]; then
        echo old >"$T/k/owner.txt" && chown 12345:54321 "$T/k/owner.txt"
        run 0 "$transcribe" -m "$model" -o "$T/k/owner.txt" "$T/speech.wav"
        [ "$(stat -c %u:%g "$T/k/owner.txt")" = 12345:54321 ] || fail "the owner changed"
        same "$T/speech.txt" "$T/k/owner.txt"
    fi
    if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null 2>&1; then
        cp "$model" "$T/k/model.bin" && chmod 755 "$T" "$T/k" && chmod 644 "$T/speech.wav"
        echo old >"$T/k/mine.txt" && chmod 666 "$T/k/mine.txt"
        run 0 setpriv --reuid 65534 --clear-groups "$transcribe" -m "$T/k/model.bin" \
            -o "$T/k/mine.txt" "$T/speech.wav" # a directory that is not ours
        same "$T/speech.txt" "$T/k/mine.txt"
        [ "$(stat -c %u "$T/k/mine.txt")" = 0 ] || fail "the owner changed"
    fi
    if unshare -m true 2>/dev/null; then
        echo old >"$T/k/bound.txt" && echo other >"$T/k/real.txt"
        # shellcheck disable=SC2016 # the inner shell expands it
        run 0 unshare -m sh -c 'mount --bind "$0/real.txt" "$0/bound.txt" && exec "$@"' "$T/k" \
            "$transcribe" -m "$model" -o "$T/k/bound.txt" "$T/speech.wav"
        same "$T/speech.txt" "$T/k/real.txt"
        [ "$(cat "$T/k/bound.txt")" = old ] || fail "what is under the mount was changed"
    fi
    [ -z "$(find "$T/k" -name '.transcribe*')" ] || fail "temporary files were left"
}

# Several formats in one run are what single runs write.
test_output_several() {
    rm -rf "$T/s" && mkdir "$T/s"
    run 0 "$transcribe" -m "$model" -f txt,SRT,json,txt -o "$T/s/base" "$T/speech.wav"
    for f in txt srt json; do
        same "$T/result.$f" "$T/s/base.$f"
    done
    [ "$(find "$T/s" -type f | wc -l)" -eq 3 ] || fail "other files: $(ls "$T/s")"
    run 0 "$transcribe" -m "$model" -f vtt,csv -o "$T/s/known.vtt" "$T/speech.wav"
    same "$T/result.vtt" "$T/s/known.vtt"
    same "$T/result.csv" "$T/s/known.csv"
    run 0 "$transcribe" -m "$model" -o "$T/s/a.Lrc" -o - -o "$T/s/b.ass" "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    same "$T/result.lrc" "$T/s/a.Lrc"
    same "$T/result.ass" "$T/s/b.ass"
    run 0 "$transcribe" -m "$model" -f tsv,json -o "$T/s/d" "$T/speech.wav" "$T/silence.wav"
    same "$T/result.tsv" "$T/s/d/speech.tsv"
    same "$T/result.json" "$T/s/d/speech.json"
    [ "$(find "$T/s/d" -type f | wc -l)" -eq 4 ] || fail "other files: $(ls "$T/s/d")"
    run 3 "$transcribe" -m "$model" -f json "$T/none.wav" "$T/speech.wav" "$T/silence.wav"
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import json, sys
many = json.load(open(sys.argv[1]))
assert [one["file"].rsplit("/", 1)[1] for one in many] == ["speech.wav", "silence.wav"]
assert many[0]["result"] == json.load(open(sys.argv[2]))' "$T/out" "$T/result.json" ||
            fail "json of several files"
    fi
    run 3 "$transcribe" -m "$model" -f json "$T/none.wav" "$T/none.wav"
    [ "$(cat "$T/out")" = "[]" ] || fail "json of no files: $(cat "$T/out")"
}

# Other programs read what was written, with the same texts, and the limits hold.
test_subtitles() {
    if ! command -v python3 >/dev/null 2>&1; then
        skip "python3 is not installed"
        return
    fi
    run 0 "$transcribe" -m "$model" --subtitles -f srt,vtt,ass,lrc,csv,json -o "$T/sub" \
        "$T/speech.wav"
    python3 tests/lib/subtitles.py "$T/sub" 42 2 7000 1000 80 >"$T/out" 2>&1 ||
        fail "--subtitles: $(cat "$T/out")"
    run 0 "$transcribe" -m "$model" --max-line-width 20 --max-lines 1 --max-cue-ms 2000 \
        -f srt,vtt,ass,lrc,csv,json -o "$T/narrow" "$T/speech.wav"
    python3 tests/lib/subtitles.py "$T/narrow" 20 1 2000 0 0 >"$T/out" 2>&1 ||
        fail "narrow: $(cat "$T/out")"
    run 0 "$transcribe" -m "$model" --subtitles --max-words 1 --word-times \
        -f srt,vtt,ass,lrc,csv,json -o "$T/single" "$T/speech.wav"
    python3 tests/lib/subtitles.py "$T/single" 42 1 7000 0 80 1 >"$T/out" 2>&1 ||
        fail "one word a cue: $(cat "$T/out")"
    run 0 "$transcribe" -m "$model" --word-times -f srt,vtt,ass,lrc,csv,json -o "$T/karaoke" \
        "$T/speech.wav"
    python3 tests/lib/subtitles.py "$T/karaoke" 9999 1 30000 0 0 >"$T/out" 2>&1 ||
        fail "--word-times: $(cat "$T/out")"
    has "$T/karaoke.ass" '{\k'
    has "$T/karaoke.lrc" ']<00:'
}

# What devices do not take is somewhere else, unless nobody reads any more.
test_output_device() {
    mkdir -p "$T/tmp"
    run 8 env TMPDIR="$T/tmp" "$transcribe" -m "$model" -o /dev/full "$T/speech.wav"
    has "$T/err" "/dev/full: No space left on device; the text is in $T/tmp/full.1"
    same "$T/speech.txt" "$T/tmp/full.1"
    run 8 env TMPDIR="$T/none" sh -c 'exec "$@"' sh "$transcribe" -m "$model" -o /dev/full \
        "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    has "$T/err" "standard output"
    run 8 env TMPDIR="$T/tmp" sh -c 'exec "$@" >/dev/full' sh "$transcribe" -m "$model" \
        "$T/speech.wav"
    has "$T/err" "standard output"
    same "$T/speech.txt" "$T/tmp/transcript.1"
    run 5 env TMPDIR="$T/none" sh -c 'exec "$@" >/dev/full' sh "$transcribe" -m "$model" \
        "$T/speech.wav"
    [ -c /dev/full ] || fail "/dev/full was replaced"
    run 0 "$transcribe" -m "$model" -o /dev/null "$T/speech.wav"
    [ -c /dev/null ] || fail "/dev/null was replaced"
    { "$transcribe" -m "$model" "$T/speech.wav" 2>"$T/err"; echo $? >"$T/status"; } | true
    [ "$(cat "$T/status")" -eq 5 ] || fail "status $(cat "$T/status") when nobody reads"
    [ "$(find "$T/tmp" -type f | wc -l)" -eq 2 ] || fail "copies: $(ls "$T/tmp")"
}

# The directory goes while the recording is heard, when more of it was read than a pipe holds: the text
# is somewhere else.
test_output_lost() {
    rm -rf "$T/gone" "$T/tmp2" && mkdir "$T/gone" "$T/tmp2"
    { head -c 200000 "$T/speech.wav"; rm -r "$T/gone"; tail -c +200001 "$T/speech.wav"; } |
        TMPDIR=$T/tmp2 "$transcribe" -m "$model" -o "$T/gone/a.txt" - >"$T/out" 2>"$T/err"
    [ $? -eq 8 ] || fail "the status does not say so: $(cat "$T/err")"
    has "$T/err" "the text is in $T/tmp2/a.1.txt"
    same "$T/speech.txt" "$T/tmp2/a.1.txt"
    mkdir "$T/gone"
    timeout -s KILL 2 "$transcribe" -m "$model" --threads 1 -o "$T/gone/a.txt" "$T/long.wav" \
        >/dev/null 2>&1
    [ -z "$(ls -A "$T/gone")" ] || fail "a killed run left $(ls -A "$T/gone")"
}

# A disk that is full, becomes full or read-only. Needs mounts of our own.
test_output_space() {
    if ! unshare -m mount -t tmpfs none "$T" 2>/dev/null; then
        printf '  not tried: no right to mount\n' # depends on the machine, also in CI
        return
    fi
    rm -rf "$T/full" "$T/tmp3" && mkdir "$T/full" "$T/tmp3"
    cat >"$T/space.sh" <<'END'
how=$1 model=$2 in=$3 transcribe=$4
mount -t tmpfs -o size=64k none full || exit 99
[ "$how" != full ] || head -c 65536 /dev/zero >full/fill
[ "$how" != readonly ] || mount -o remount,ro full || exit 99
{ head -c 200000 "$in"; [ "$how" != later ] || head -c 99999 /dev/zero >full/fill
  tail -c +200001 "$in"; } 2>/dev/null | TMPDIR=tmp3 "$transcribe" -m "$model" -o full/a.txt -
status=$?
[ ! -e full/a.txt ] || exit 98
exit $status
END
    for how in full readonly; do
        (cd "$T" && exec unshare -m sh ./space.sh $how "$model" long.wav "$transcribe") 2>"$T/err"
        got=$?
        [ $got -eq 5 ] || fail "$how: status $got: $(cat "$T/err")"
        [ "$(wc -l <"$T/err")" -eq 1 ] || fail "$how: not one line: $(cat "$T/err")"
    done
    (cd "$T" && exec unshare -m sh ./space.sh later "$model" speech.wav "$transcribe") 2>"$T/err"
    got=$?
    [ $got -eq 8 ] || fail "later: status $got: $(cat "$T/err")"
    has "$T/err" "full/a.txt: No space left on device; the text is in tmp3/a.1.txt"
    same "$T/speech.txt" "$T/tmp3/a.1.txt"
}

test_output_directory() {
    run 3 "$transcribe" -m "$model" -f tsv -o "$T/dir" "$T/speech.wav" "$T/noise.bin" \
        "$T/silence.wav"
    same "$T/result.tsv" "$T/dir/speech.tsv"
    [ -f "$T/dir/silence.tsv" ] || fail "no output for the last file"
    [ "$(find "$T/dir" -type f | wc -l)" -eq 2 ] || fail "other files in it: $(ls "$T/dir")"
    "$transcribe" -m "$model" -o "$T/new/" - <"$T/speech.wav" || fail "one file into a new one"
    same "$T/speech.txt" "$T/new/stdin.txt"
    run 0 "$transcribe" -m "$model" -o "$T/new" "$T/speech.wav"
    same "$T/speech.txt" "$T/new/speech.txt"
}

test_signals() {
    for signal in INT TERM HUP; do
        begin "$transcribe" -m "$model" --threads 1 --isa scalar --progress -f json \
            -o "$T/$signal/" "$T/long.wav" "$T/speech.wav"
        soon [ -s "$T/err" ]
        kill -s $signal $pid
        ended 4
        has "$T/err" "long.wav: interrupted"
        [ -f "$T/$signal/long.json" ] || fail "the text up to $signal was not written"
        [ ! -e "$T/$signal/speech.json" ] || fail "went on with the next file"
        if command -v python3 >/dev/null 2>&1; then
            python3 -c 'import json, sys; json.load(open(sys.argv[1]))' \
                "$T/$signal/long.json" || fail "what was written is not whole"
        fi
    done
    mkfifo "$T/late"
    exec 9<>"$T/late"
    begin nohup "$transcribe" -q -m "$model" - <"$T/late"
    soon catches $pid
    kill -HUP $pid
    cat "$T/speech.wav" >&9
    exec 9>&-
    ended 0 # an ignored signal
    same "$T/speech.txt" "$T/out"
    # Of a pipe what was heard by then is transcribed.
    feed "$T/spoken" >"$T/late" &
    begin "$transcribe" -m "$model" -l en --raw s16le - <"$T/late"
    interrupted
    same "$T/speech.txt" "$T/out"
    # Waiting for input that does not come.
    exec 9<>"$T/late"
    begin "$transcribe" -m "$model" - <"$T/late"
    soon catches $pid
    kill -TERM $pid
    ended 4
    exec 9>&-
}

# Starts $pid on a pipe that does not end, and returns when it has received SIGHUP (jobs in the
# background ignore SIGINT).
interrupt_pipe() {
    rm -f "$T/open"
    mkfifo "$T/open"
    "$transcribe" -q -m "$model" --isa scalar --threads 1 --raw s16le "$T/open" >"$T/out" \
        2>"$T/err" &
    pid=$!
    exec 9>"$T/open"
    head -c 900000 "$T/raw" >&9
    began=$(date +%s%N)
    kill -HUP $pid
    while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$pid/status; do
        sleep 0.01
    done
}

# timeout(1) signals a process and its group, wrappers pass on the Ctrl-C that the terminal has sent
# to all: several signals at once are one. A later one of any kind ends the program.
test_repeated_signals() {
    [ -e /proc/self/status ] || { skip "no /proc"; return; }
    while :; do
        interrupt_pipe
        kill -TERM $pid
        passed_ms=$((($(date +%s%N) - began) / 1000000))
        wait $pid
        got=$?
        exec 9>&-
        # A machine that is too busy is asked again.
        [ $passed_ms -ge 250 ] || break
    done
    [ $got -eq 4 ] || fail "two signals in $passed_ms ms: status $got"
    [ -s "$T/out" ] || fail "two signals at once: the text is lost"
    interrupt_pipe
    kill -STOP $pid
    sleep 0.3
    kill -TERM $pid
    kill -CONT $pid
    wait $pid
    got=$?
    exec 9>&-
    [ $got -eq 143 ] || fail "a later signal: status $got"
    [ -z "$(find "$T" -name '.transcribe-*')" ] || fail "a temporary file is left"
}

# Text comes while the recording is still being transcribed, and all of it is what a file has.
test_live() {
    for format in txt srt; do
        mkfifo "$T/live.$format.fifo"
        "$transcribe" -q -m "$model" -f $format "$T/long.wav" >"$T/live.$format.fifo" 2>"$T/err" &
        pid=$!
        { head -n 3 >"$T/live.$format"; kill -0 $pid && kill -TERM $pid; cat >>"$T/live.$format"; } \
            <"$T/live.$format.fifo" || fail "$format: nothing before the end"
        wait $pid
        [ $? -eq 4 ] || fail "$format: a signal after three lines"
        [ "$(wc -l <"$T/live.$format")" -ge 3 ] || fail "$format: $(cat "$T/live.$format")"
    done
    cat "$T/raw" "$T/raw" "$T/raw" >"$T/raw3"
    { wav_header 2880000 1; cat "$T/raw3"; } >"$T/90s.wav"
    # The recording is noisy: if speech in it has no text, every run has to say so.
    "$transcribe" -q -m "$model" "$T/90s.wav" >"$T/out" 2>"$T/err"
    heard=$?
    [ $heard -eq 0 ] || [ $heard -eq 6 ] || fail "90 s: status $heard"
    for options in '-f srt' '-f vtt --subtitles' '-f txt -f tsv'; do
        # shellcheck disable=SC2086 # several words are wanted
        case $options in
        *tsv) run $heard "$transcribe" -q -m "$model" "$T/90s.wav" "$T/speech.wav" -o - ;;
        *) run $heard "$transcribe" -q -m "$model" $options "$T/90s.wav" ;;
        esac
        cp "$T/out" "$T/live"
        # shellcheck disable=SC2086
        case $options in
        *tsv)
            run $heard "$transcribe" -q -m "$model" -o "$T/d/" "$T/90s.wav" "$T/speech.wav"
            { printf '==> %s <==\n' "$T/90s.wav"; cat "$T/d/90s.txt"
              printf '\n==> %s <==\n' "$T/speech.wav"; cat "$T/d/speech.txt"; } >"$T/whole" ;;
        *) run $heard "$transcribe" -q -m "$model" $options -o "$T/whole" "$T/90s.wav" ;;
        esac
        same "$T/live" "$T/whole"
    done
}

# In lines where it is not a terminal, in one line that is written over where it is.
test_progress() {
    run 0 "$transcribe" -m "$model" --progress "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
    grep -q "^transcribe: $T/speech.wav: 100 % (8 of 8 s)\$" "$T/err" || fail "$(cat "$T/err")"
    grep -q "$(printf '\r')" "$T/err" && fail "a carriage return that is not for a terminal"
    command -v python3 >/dev/null 2>&1 || { skip "no python3 to make a terminal"; return; }
    python3 - "$transcribe" -m "$model" "$T/speech.wav" >"$T/err" <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
os.close(slave)
seen = b''
while True:
    try:
        part = os.read(master, 4096)
    except OSError:
        break
    if not part:
        break
    seen += part
sys.stdout.buffer.write(seen.replace(b'\r\n', b'\n'))
sys.exit(p.wait())
END
    [ $? -eq 0 ] || fail "on a terminal: $(cat "$T/err")"
    grep -q "$(printf '\r\033\\[K')$T/speech.wav: 100 % (8 of 8 s)$(printf '\r\033\\[K')" "$T/err" ||
        fail "on a terminal: $(cat -v "$T/err")"
    # The text is there, undisturbed.
    sed "s/.*$(printf '\033')\\[K//" "$T/err" | grep -v 'times real time' >"$T/out"
    same "$T/speech.txt" "$T/out"
}

test_ffmpeg_absent() {
    run 3 env PATH=/nonexistent "$transcribe" -m "$model" "$T/noise.bin"
    has "$T/err" "ffmpeg"
    has "$T/err" "not installed"
    run 0 env PATH=/nonexistent "$transcribe" -m "$model" "$T/speech.wav"
    same "$T/speech.txt" "$T/out"
}

# A stand-in that notes its arguments, and gives or refuses.
test_ffmpeg_pretended() {
    mkdir -p "$T/bin"
    cat >"$T/bin/ffmpeg" <<END
#!/bin/sh
printf '%s\n' "\$@" >"$T/args"
cat >"$T/given"
[ -z "\$REFUSE" ] || { echo 'some words' >&2; echo 'cannot make sense of it' >&2; exit 1; }
cat "$T/speech.wav"
END
    chmod +x "$T/bin/ffmpeg"
    cp "$T/noise.bin" "$T/-odd name;\$(x).mp3"
    (cd "$T" && PATH=$T/bin:$PATH "$transcribe" -m "$model" -- "-odd name;\$(x).mp3") \
        >"$T/out" 2>"$T/err" || fail "through ffmpeg: $(cat "$T/err")"
    same "$T/speech.txt" "$T/out"
    has "$T/args" "file:-odd name;\$(x).mp3"
    PATH=$T/bin:$PATH "$transcribe" -m "$model" - <"$T/noise.bin" >"$T/out" 2>"$T/err" ||
        fail "standard input through ffmpeg: $(cat "$T/err")"
    same "$T/speech.txt" "$T/out"
    same "$T/noise.bin" "$T/given"
    run 3 env REFUSE=1 PATH="$T/bin:$PATH" "$transcribe" -m "$model" "$T/noise.bin"
    has "$T/err" "cannot make sense of it"
    hasnt "$T/err" "some words"
}

test_ffmpeg_real() {
    if ! command -v ffmpeg >/dev/null 2>&1; then
        skip "ffmpeg is not installed"
        return
    fi
    ffmpeg -nostdin -v error -i "$T/speech.wav" "$T/speech.flac" || fail "cannot make a FLAC file"
    run 0 "$transcribe" -m "$model" "$T/speech.flac"
    same "$T/speech.txt" "$T/out"
    "$transcribe" -m "$model" - <"$T/speech.flac" >"$T/out" 2>"$T/err" || fail "from stdin"
    same "$T/speech.txt" "$T/out"
    run 3 "$transcribe" -m "$model" "$here/Makefile"
    has "$T/err" "ffmpeg cannot read it"
}

t_run test_help
t_run test_readme
t_run test_limits
t_run test_parameters
t_run test_version_and_languages
t_run test_usage_errors
t_run test_lists
t_run test_models
if [ -n "$model" ] && [ -n "$demo" ]; then
    make_recordings
    for t in text spans style commands minimal_errors bad_inputs several_files stdin formats output_file \
        output_device output_directory output_refused output_kept output_several output_lost \
        output_space subtitles signals repeated_signals live progress ffmpeg_absent \
        ffmpeg_pretended ffmpeg_real; do
        t_run test_$t
    done
else
    test_with_model() { skip "no model in the cache: examples/fetch.sh tiny demo"; }
    t_run test_with_model
fi
t_end
