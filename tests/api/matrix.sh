#!/bin/sh
# matrix.sh - one answer: transcripts as JSON (text, times, probabilities) have the same bytes from
# every instruction set and every number of threads.
#
# usage: tests/api/matrix.sh [quick|full|modes]
#
# The model is tiny, the recordings are 52 clips of short/ in WNPU_SPEECH (or ../shared/speech).
# Fast sets run each clip with 1, 2, 3 and 8 threads. Slow ones take turns: AVX2 runs each clip with
# two of these, SSE4.1 and plain C with one, so that about ten minutes are enough on two CPUs.
# NEON runs in qemu-aarch64 where it is not at home, on 3 clips, if BUILD/aarch64/transcribe is
# there (make matrix builds it).
#
# quick: only the fetched recording and one clip, no emulator.
# full: every clip with every number of threads, about forty minutes.
# modes: tiny and base.en; greedy, five beams, and words on every clip, eight windows together on a
# recording of some minutes; one number of threads for each clip, in turn. Plain C and emulated sets
# get a few clips. About forty minutes.
#
# MATRIX_KEEP is a directory for the transcripts: those that are there already, from another build or
# commit, are what the new ones are compared with. MATRIX_SETS leaves out instruction sets, and
# MATRIX_CLIPS is another number of clips than 52.
cd "$(dirname "$0")/../.." || exit 1
mode=${1:-turns}
build=${WNPU_BUILD:-build}
speech=${WNPU_SPEECH:-../shared/speech}
sets=${MATRIX_SETS:-scalar sse4.1 avx2 avx-vnni avx512 amx neon neon-dot neon-i8mm}
cpus=$(getconf _NPROCESSORS_ONLN 2>/dev/null) || cpus=1
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    echo "matrix.sh: $*" >&2
    exit 1
}

# clips: the recordings, one a line.
clips() {
    if [ "$mode" = quick ]; then
        examples/fetch.sh --offline demo
        find "$speech/short" -name '*.wav' 2>/dev/null | sort | head -n 1
    else
        find "$speech/short" -name '*.wav' 2>/dev/null | sort | awk -v most="${MATRIX_CLIPS:-52}" '{ clip[NR] = $0 } END {
            n = NR < most ? NR : most
            for (i = 0; i < n; i++) print clip[1 + int(i * NR / n)]
        }'
    fi
}

# A recording that has more than one window, for windows that are decoded together.
long_recording() { find "$speech/long" -name '*.wav' -exec ls -S {} + 2>/dev/null | tail -n 1; }

# transcribe native|emulated MODEL ARGUMENTS...
transcribe() {
    machine=$1 model=$2
    shift 2
    if [ "$machine" = emulated ]; then
        qemu-aarch64 "$build/aarch64/transcribe" -q -m "$model" -f json "$@"
    else
        "$build/transcribe" -q -m "$model" -f json "$@"
    fi
}

# has native|emulated SET: the option is wrong (1) before a missing file is (3).
has() {
    transcribe "$1" "$tiny" --isa "$2" "$T/none.wav" >/dev/null 2>&1
    [ $? -eq 3 ]
}

# plan native|emulated SET EVERY TIMES MODEL WAY: every EVERYth recording of the way with TIMES of
# the numbers of threads, in turn, becomes jobs/SET-THREADS-MODEL-WAY: the machine, then the paths.
plan() {
    recordings=$T/clips
    [ "$6" != batch ] || recordings=$T/long
    awk -v machine="$1" -v every="$3" -v times="$4" -v job="$T/jobs/$2-" -v end="-$5-$6" '
        BEGIN { split("1 2 3 8", threads) }
        (NR - 1) % every == 0 {
            for (i = 0; i < times; i++) {
                file = job threads[1 + (n + i * 4 / times) % 4] end
                if (!(file in seen)) print machine >file
                seen[file]
                print >file
            }
            n++
        }' "$recordings"
    for threads in 1 2 3 8; do
        [ ! -f "$T/jobs/$2-$threads-$5-$6" ] || echo "$2 $threads $5 $6"
    done >>"$T/order"
}

# plan_set native|emulated SET EVERY TIMES
plan_set() {
    for way in $ways; do
        for size in $models; do
            case $1-$way-$size in
            emulated-*-base.en | emulated-batch-*) ;; # too slow
            *) [ "$2-$way" = scalar-batch ] || plan "$1" "$2" "$3" "$4" "$size" "$way" ;;
            esac
        done
    done
}

# Jobs of all sets, in the order of sets: what takes long begins first.
plan_all() {
    for set in $sets; do
        times=4 every=1
        case $mode-$set in
        modes-scalar) times=1 every=25 ;;
        modes-* | turns-scalar | quick-scalar | turns-sse4.1) times=1 ;;
        quick-sse4.1 | turns-avx2) times=2 ;;
        esac
        if has native "$set"; then
            plan_set native "$set" "$every" "$times"
        elif [ "$mode" != quick ] && has emulated "$set"; then
            plan_set emulated "$set" "$every_emulated" 1
        else
            missing="$missing $set"
        fi
    done
}

# work: does jobs until none is left; a directory that could be made is a job taken.
work() {
    while read -r set threads size way; do
        name=$set-$threads-$size-$way
        mkdir "$T/out/$name" 2>/dev/null || continue
        case $way in
        beam) options='--beam 5' ;;
        words) options=--words ;;
        batch) options='--batch 8' ;;
        *) options= ;;
        esac
        path=$tiny
        [ "$size" = tiny ] || path=$base
        (
            IFS='
'
            set -f
            # shellcheck disable=SC2046 # one path a line
            set -- $(cat "$T/jobs/$name")
            machine=$1
            shift
            IFS=' '
            # shellcheck disable=SC2086 # options are words
            transcribe "$machine" "$path" --isa "$set" -t "$threads" $options \
                -o "$T/out/$name/" "$@"
        ) 2>"$T/log/$name" </dev/null
    done <"$T/order"
}

# Each transcript beside the first of its recording, which plain C gave where it was asked.
compare() {
    while read -r set threads size way; do
        name=$set-$threads-$size-$way same=0
        mkdir -p "$keep/$size-$way"
        sed 1d "$T/jobs/$name" >"$T/paths"
        while read -r path; do
            clip=$(basename "$path" .wav).json
            got=$T/out/$name/$clip first=$keep/$size-$way/$clip
            if [ ! -s "$got" ]; then
                echo "$name, $clip: missing; $(head -n 1 "$T/log/$name")"
                bad=1
                continue
            fi
            [ -f "$first" ] || cp "$got" "$first"
            if diff "$first" "$got" >"$T/difference"; then
                same=$((same + 1))
            else
                echo "$name, $clip: another answer"
                head -n 4 "$T/difference"
                bad=1
            fi
        done <"$T/paths"
        echo "$set $size $way $threads $same $(wc -l <"$T/paths")"
    done <"$T/order" >"$T/result"
    awk 'NF != 6 || $5 !~ /^[0-9]+$/ { print; next } {
            if (!(($1, $2, $3) in of)) row[++n] = $1 SUBSEP $2 SUBSEP $3
            equal[$1, $2, $3] += $5
            of[$1, $2, $3] += $6
            threads[$1, $2, $3] = threads[$1, $2, $3] " " $4
        } END {
            for (i = 1; i <= n; i++) {
                split(row[i], key, SUBSEP)
                printf "%-10s %-8s %-7s %d of %d equal,%s threads\n", key[1], key[2], key[3],
                    equal[row[i]], of[row[i]], threads[row[i]]
            }
        }' "$T/result"
    [ -z "$missing" ] || echo "not here:$missing"
}

case $mode in
quick | turns | full | modes) ;;
*) die "what is '$mode'?" ;;
esac
tiny=$(examples/fetch.sh --offline tiny) || die "examples/fetch.sh tiny gets the model"
models=tiny ways=greedy every_emulated=18
if [ "$mode" = modes ]; then
    base=$(examples/fetch.sh --offline base.en) || die "examples/fetch.sh base.en gets the model"
    models='tiny base.en' ways='batch beam words greedy' every_emulated=52
    long_recording >"$T/long"
fi
clips >"$T/clips"
[ -s "$T/clips" ] || die "no recordings; WNPU_SPEECH names their directory"
mkdir "$T/jobs" "$T/out" "$T/log"
keep=${MATRIX_KEEP:-$T/first}
missing='' bad=0 i=0
plan_all
while [ $i -lt "$cpus" ]; do
    work &
    i=$((i + 1))
done
wait
compare
exit $bad
