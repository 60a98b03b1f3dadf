#!/bin/sh
# repeats.sh - speech that repeats itself, and sounds that make Whisper repeat itself.
#
#     tests/speech/repeats.sh [-s STEP] [-b BUILD] [-k DIR] MODEL [OPTION...]
#
# Makes 48 clips in which a phrase is said two to ten times, from espeak-ng and from the recordings
# in $WNPU_SPEECH, and 17 recordings that provoke loops: noise, music, silence, babble and long
# speech, also 1.5 times as fast. Transcribes them with the given options of transcribe; the clips
# also with --no-loop-check. Prints the word errors of each clip and of all, with the loop check and
# without, and every phrase that occurs three times in a row in the text of the other recordings.
#   -s STEP  use every STEPth clip and recording only
#   -b DIR   where transcribe and wer are (build)
#   -k DIR   keep sounds and texts there, and use the sounds that are there already
# English-only models (*.en*) get the English clips only. Needs espeak-ng and sox.
cd "$(dirname "$0")/../.." || exit 1
build=${WNPU_BUILD:-build} speech=${WNPU_SPEECH:-../shared/speech} step=1 keep=
while getopts s:b:k: option; do
    case $option in
    s) step=$OPTARG ;;
    b) build=$OPTARG ;;
    k) keep=$OPTARG ;;
    *) exit 1 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || { sed -n '4s/^# *//p' "$0" >&2; exit 1; }
model=$1
shift
D=$keep
if [ -z "$D" ]; then
    D=$(mktemp -d) || exit 1
    trap 'rm -rf "$D"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
fi
mkdir -p "$D/said" "$D/lure"

# Language, voice, words a minute, pause in ms or -, times, the phrase, what follows it. With - the
# voice reads all of it as one text.
spoken() {
    cat <<'END'
en en-us 170 600 4 Thank you very much.|Our first speaker comes from Canada.
en en-gb 160 400 4 I repeat, the train to London is late.|We are sorry for the delay.
en en-us 170 300 10 Yes.|That is all I wanted to hear.
en en-us 170 200 8 No, no, no.|I will not do it.
en en-gb 180 - 8 Hello.|Is anybody there?
en en-us 160 - 6 We want more.|The crowd went home late at night.
en en-us 150 500 6 One, two, three, four.|And stop.
en en-gb 165 1000 5 Please hold the line.|How can I help you?
en en-us 170 2500 4 The doors are closing.|
en en-us 150 700 3 Please keep your belongings with you at all times in the station.|Thank you.
en en-gb 190 250 10 Stop it.|Leave me alone.
en en-us 170 800 7 Row the boat.|Gently down the stream.
en en-us 175 100 5 The cat sat on the mat.|The dog lay by the door.
en en-gb 155 1500 6 Mind the gap.|This train goes to Brixton.
en en-us 165 - 4 Never give up.|Those were his last words.
en en-us 165 900 9 Goodbye.|
en en-gb-scotland 160 500 5 Say it again, louder this time.|Very good.
en en-us 170 4000 6 Emergency, please leave the building.|
en en-us 170 350 2 This is only a test of the warning system.|Do not be alarmed.
en en-gb 170 450 10 Are you ready?|Then let us begin.
de de 160 500 4 Vielen Dank.|Der erste Redner kommt aus Berlin.
de de 160 700 4 Achtung, der Zug hat heute leider zwanzig Minuten Verspätung.|Wir bitten um Entschuldigung.
de de 170 300 8 Nein.|Das mache ich nicht.
de de 160 - 6 Wir sind das Volk.|Danach gingen alle nach Hause.
de de 150 800 5 Bitte bleiben Sie sitzen.|Gleich geht es weiter.
fr fr-fr 160 600 4 Merci beaucoup.|Le premier orateur vient du Canada.
fr fr-fr 150 500 5 Attention à la fermeture des portes.|Bon voyage.
fr fr-fr 160 300 8 Encore.|Le public applaudit longtemps.
fr fr-fr 160 - 6 Tous ensemble.|La foule chante dans la rue.
es es 160 500 4 Muchas gracias.|El primer orador viene de Madrid.
es es 150 700 4 El tren con destino a Barcelona llega con retraso.|Disculpen las molestias.
es es 160 - 5 El pueblo unido.|La gente volvió a casa.
it it 160 500 4 Grazie mille.|Il primo oratore viene da Roma.
it it 150 800 6 Allontanarsi dalla linea gialla.|Il treno arriva adesso.
nl nl 160 600 5 Dank u wel.|De eerste spreker komt uit Utrecht.
pt pt 150 600 5 Muito obrigado.|O primeiro orador vem de Lisboa.
END
}

# Recordings of the set: pause in ms, times, path.
recorded() {
    cat <<'END'
en 300 4 short/dcmp3_1919-142785-0016.wav
en 600 5 short/lsmisc_KennethWang1221_1089-134691-0000.wav
en 0 6 short/mini_7859-102519-0021.wav
en 1200 4 short/cv_42387426.wav
en 200 5 short/mini_1970-28415-0023.wav
en 400 8 short/kath_arctic_a0485.wav
en 100 10 short/mini_669-129074-0018.wav
en 800 3 short/dcmp3_2086-149220-0046.wav
de 500 5 multi/de_rhasspy_1379.wav
it 600 4 multi/it_pv_cheetah_test_it.wav
nl 300 6 multi/nl_rhasspy_621.wav
pt 400 5 multi/pt_pv_cheetah_test_pt.wav
END
}

# say VOICE SPEED TEXT OUT: read by espeak-ng.
say() {
    espeak-ng -v "$1" -s "$2" -w "$D/raw.wav" "$3" && sox -R -D "$D/raw.wav" -r 16000 -b 16 "$4"
}

# chain OUT PAUSE TIMES PHRASE.wav [TAIL.wav]: the phrase so many times, and what follows.
chain() {
    out=$1 pause=$2 times=$3 phrase=$4 tail=${5-}
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/pause.wav" trim 0 "$(awk -v p="$pause" 'BEGIN { print p / 1000 }')"
    set --
    while [ "$times" -gt 0 ]; do
        set -- "$@" "$phrase"
        times=$((times - 1))
        [ "$pause" -eq 0 ] || set -- "$@" "$D/pause.wav"
    done
    # shellcheck disable=SC2086 # no tail is no argument
    sox -R -D "$@" $tail "$out"
}

# again N TEXT: the text N times.
again() {
    awk -v n="$1" -v text="$2" 'BEGIN { while (n-- > 0) printf "%s ", text }'
}

make_spoken() {
    n=0
    spoken | while read -r language voice speed pause times rest; do
        n=$((n + 1)) phrase=${rest%%|*} tail=${rest#*|}
        name=$language-$(printf %02d $n)
        printf '%s.wav\t%s%s\n' "$name" "$(again "$times" "$phrase")" "$tail"
        if [ "$pause" = - ]; then
            say "$voice" "$speed" "$(again "$times" "$phrase") $tail" "$D/said/$name.wav"
        else
            say "$voice" "$speed" "$phrase" "$D/phrase.wav"
            [ -z "$tail" ] || say "$voice" "$speed" "$tail" "$D/tail.wav"
            chain "$D/said/$name.wav" "$pause" "$times" "$D/phrase.wav" ${tail:+"$D/tail.wav"}
        fi || exit 1
    done
}

make_recorded() {
    n=60
    recorded | while read -r language pause times path; do
        n=$((n + 1)) name=$language-$n
        [ -f "$speech/$path" ] || continue
        text=$(awk -F '\t' -v path="$path" '$1 == path { print $8 }' "$speech/manifest.tsv")
        printf '%s.wav\t%s\n' "$name" "$(again "$times" "$text")"
        chain "$D/said/$name.wav" "$pause" "$times" "$speech/$path" || exit 1
    done
}

# tune OUT NOTE...: a tune of plucked strings, each note for 0.4 s.
tune() {
    out=$1
    shift
    for note in "$@"; do
        sox -R -D -n -r 16000 -b 16 -c 1 -t raw - synth 0.4 pluck "$note" gain -6
    done | sox -t raw -r 16000 -b 16 -e signed -c 1 - "$out" repeat 5
}

make_lures() {
    for colour in white pink brown; do
        sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/$colour.wav" synth 60 ${colour}noise gain -12
        sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/$colour-faint.wav" synth 40 ${colour}noise gain -50
    done
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/silence.wav" trim 0 40
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/hum.wav" synth 40 sawtooth 100 gain -20
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/siren.wav" synth 40 sine 400-900 tremolo 3 80 gain -12
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/chords.wav" synth 2 pluck C3 pluck E3 pluck G3 \
        gain -9 repeat 20
    tune "$D/lure/tune.wav" C4 E4 G4 C5 G4 E4 D4 F4 A4 D5 A4 F4
    sox -R -D -n -r 16000 -b 16 -c 1 "$D/lure/drums.wav" synth 0.12 brownnoise fade 0 0.12 0.1 \
        pad 0 0.38 gain -3 repeat 79
    [ -f "$speech/manifest.tsv" ] || return 0
    # shellcheck disable=SC2046 # no name has a blank
    sox -R -D -m $(awk -F '\t' -v s="$speech" '$1 ~ /^short.mini/ && n++ < 6 { print s "/" $1 }' \
        "$speech/manifest.tsv") "$D/lure/babble.wav" gain -n -6
    for path in $(awk -F '\t' '$2 == "long" { print $1 }' "$speech/manifest.tsv"); do
        name=$(basename "$path" .wav)
        sox -R -D "$speech/$path" "$D/lure/$name.wav"
        sox -R -D "$speech/$path" "$D/lure/$name-fast.wav" tempo -s 1.5
    done
}

# texts DIR OUT OPTIONS...: each sound of a directory into OUT/NAME.txt.
texts() {
    from=$1 to=$2
    shift 2
    rm -rf "$to"
    mkdir -p "$to"
    for language in en de fr es it nl pt; do
        [ "$language" = en ] || [ "$english" = 0 ] || continue
        if [ "$from" = said ]; then
            list=$(cut -f 1 "$D/$from.tsv" | grep "^$language-")
        else
            list=$(test "$language" != en || cut -f 1 "$D/$from.tsv")
        fi
        # shellcheck disable=SC2046 # no name has a blank
        [ -z "$list" ] || "$build/transcribe" -q -m "$model" -l "$language" -o "$to/" "$@" \
            $(echo "$list" | sed "s|^|$D/$from/|") 2>>"$D/messages"
    done
}

# hypothesis OUT: one line for each clip that has a text.
hypothesis() {
    while IFS='	' read -r file _; do
        [ ! -f "$1/${file%.wav}.txt" ] ||
            printf '%s\t%s\n' "$file" "$(tr '\n\t' '  ' <"$1/${file%.wav}.txt")"
    done <"$D/said.tsv" >"$1.tsv"
}

# loops OUT: phrases that stand three times in a row or more, and 12 characters long at least.
loops() {
    for text in "$1"/*.txt; do
        tr '\n' ' ' <"$text" | awk -v name="$(basename "$text" .txt)" '{
            n = split(tolower($0), w, /[^a-z0-9\047]+/)
            for (p = 1; p <= 24; p++) {
                for (i = p + 1; i <= n; i++) {
                    same = w[i] == w[i - p] && w[i] != "" ? same + 1 : 0
                    if (same == 2 * p && (p > 1 || same > 3)) {
                        phrase = ""
                        for (k = i - p + 1; k <= i; k++) phrase = phrase " " w[k]
                        print name ":" phrase
                    }
                }
                same = 0
            }
        }'
    done
}

# every LIST: every STEPth line.
every() {
    awk -v step="$step" 'NR % step == 1 || step == 1' "$1"
}

case $(basename "$model") in *.en*) english=1 ;; *) english=0 ;; esac
if [ ! -f "$D/lure.all" ]; then
    { make_spoken && make_recorded; } >"$D/said.all" 2>"$D/messages" &&
        make_lures 2>>"$D/messages" || { cat "$D/messages" >&2; exit 1; }
    (cd "$D/lure" && ls) >"$D/lure.all"
fi
every "$D/said.all" >"$D/said.tsv"
every "$D/lure.all" >"$D/lure.tsv"
texts said "$D/with" "$@"
texts said "$D/without" "$@" --no-loop-check
texts lure "$D/lured" "$@"
hypothesis "$D/with"
hypothesis "$D/without"
"$build/wer" "$D/said.tsv" "$D/with.tsv" "$D/without.tsv" 2>/dev/null | awk '$2 > 0'
loops "$D/lured" >"$D/loops"
cat "$D/loops"
printf '%d loops in %d recordings\n' "$(wc -l <"$D/loops")" "$(wc -l <"$D/lure.tsv")"
