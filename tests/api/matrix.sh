#!/bin/sh
# matrix.sh - one answer: transcripts as JSON (text, times, probabilities) have the same bytes from
# every instruction set and every number of threads.
#
# usage: tests/api/matrix.sh [quick|full]
#
# The model is tiny, the recordings are 52 clips of short/ in WNPU_SPEECH (or ../shared/speech).
# Fast sets run each clip with 1, 2, 3 and 8 threads. Slow ones take turns: AVX2 runs each clip with
# two of these, SSE4.1 and plain C with one, so that about ten minutes are enough on two CPUs.
# NEON runs in qemu-aarch64 where it is not at home, on 3 clips, if BUILD/aarch64/transcribe is
# there (make matrix builds it). full: every clip with every number of threads, about forty
# minutes. quick: only the fetched recording and one clip, no emulator.
cd "$(dirname "$0")/../.." || exit 1
mode=${1:-turns}
build=${WNPU_BUILD:-build}
speech=${WNPU_SPEECH:-../shared/speech}
sets='scalar sse4.1 avx2 avx-vnni avx512 amx neon neon-dot neon-i8mm'
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
        scripts/fetch.sh --offline demo
        find "$speech/short" -name '*.wav' 2>/dev/null | sort | head -n 1
    else
        find "$speech/short" -name '*.wav' 2>/dev/null | sort | awk '{ clip[NR] = $0 } END {
            n = NR < 52 ? NR : 52
            for (i = 0; i < n; i++) print clip[1 + int(i * NR / n)]
        }'
    fi
}

# transcribe native|emulated ARGUMENTS...
transcribe() {
    machine=$1
    shift
    if [ "$machine" = emulated ]; then
        qemu-aarch64 "$build/aarch64/transcribe" -q -m "$model" -f json "$@"
    else
        "$build/transcribe" -q -m "$model" -f json "$@"
    fi
}

# has native|emulated SET: the option is wrong (1) before a missing file is (3).
has() {
    transcribe "$1" --isa "$2" "$T/none.wav" >/dev/null 2>&1
    [ $? -eq 3 ]
}

# plan native|emulated SET EVERY TIMES: every EVERYth clip with TIMES of the numbers of threads, in
# turn, becomes jobs/SET-THREADS: the machine, then the clips.
plan() {
    awk -v machine="$1" -v every="$3" -v times="$4" -v job="$T/jobs/$2-" '
        BEGIN { split("1 2 3 8", threads) }
        (NR - 1) % every == 0 {
            for (i = 0; i < times; i++) {
                file = job threads[1 + (n + i * 4 / times) % 4]
                if (!(file in seen)) print machine >file
                seen[file]
                print >file
            }
            n++
        }' "$T/clips"
}

# Jobs of all sets, in the order of sets: what takes long begins first.
plan_all() {
    for set in $sets; do
        times=4
        case $mode-$set in
        turns-scalar | quick-scalar | turns-sse4.1) times=1 ;;
        quick-sse4.1 | turns-avx2) times=2 ;;
        esac
        if has native "$set"; then
            plan native "$set" 1 "$times"
        elif [ "$mode" != quick ] && has emulated "$set"; then
            plan emulated "$set" 18 1
        else
            missing="$missing $set"
        fi
        for threads in 1 2 3 8; do
            [ ! -f "$T/jobs/$set-$threads" ] || echo "$set $threads"
        done >>"$T/order"
    done
}

# work: does jobs until none is left; a directory that could be made is a job taken.
work() {
    while read -r set threads; do
        name=$set-$threads
        mkdir "$T/out/$name" 2>/dev/null || continue
        (
            IFS='
'
            set -f
            # shellcheck disable=SC2046 # one path a line
            set -- $(cat "$T/jobs/$name")
            machine=$1
            shift
            transcribe "$machine" --isa "$set" -t "$threads" -o "$T/out/$name/" "$@"
        ) 2>"$T/log/$name" </dev/null
    done <"$T/order"
}

# Each transcript beside the first of its recording, which plain C gave.
compare() {
    while read -r set threads; do
        name=$set-$threads same=0
        sed 1d "$T/jobs/$name" >"$T/paths"
        while read -r path; do
            clip=$(basename "$path" .wav).json
            got=$T/out/$name/$clip first=$T/first/$clip
            if [ ! -s "$got" ]; then
                echo "$set, $threads threads, $clip: missing; $(head -n 1 "$T/log/$name")"
                bad=1
                continue
            fi
            [ -f "$first" ] || cp "$got" "$first"
            if diff "$first" "$got" >"$T/difference"; then
                same=$((same + 1))
            else
                echo "$set, $threads threads, $clip: another answer"
                head -n 4 "$T/difference"
                bad=1
            fi
        done <"$T/paths"
        printf '%-10s %d threads: %d of %d equal\n' "$set" "$threads" $same \
            "$(wc -l <"$T/paths")"
    done <"$T/order"
    [ -z "$missing" ] || echo "not here:$missing"
}

case $mode in
quick | turns | full) ;;
*) die "what is '$mode'?" ;;
esac
model=$(scripts/fetch.sh --offline tiny) || die "scripts/fetch.sh tiny gets the model"
clips >"$T/clips"
[ -s "$T/clips" ] || die "no recordings; WNPU_SPEECH names their directory"
mkdir "$T/jobs" "$T/out" "$T/log" "$T/first"
missing='' bad=0 i=0
plan_all
while [ $i -lt "$cpus" ]; do
    work &
    i=$((i + 1))
done
wait
compare
exit $bad
