#!/bin/sh
# live.sh - delays and changes of live text, and its cost: see bench_live.c.
#
# usage: tests/bench/live.sh [RECORDING.wav ...]        or: make bench-live SPEECH=DIRECTORY
#
# Without recordings those of SPEECH, a directory with a manifest.tsv (see tests/speech/accuracy.sh):
# the sets named in SETS (long), else the demo recording. MODELS: tiny base.en. THREADS: 2. The picture
# of the first recording is build/live-MODEL.svg.
set -eu
cd "$(dirname "$0")/../.."
build=${WNPU_BUILD:-build}
if [ $# -eq 0 ] && [ -n "${SPEECH-}" ]; then
    for set in ${SETS:-long}; do
        while IFS= read -r path; do
            set -- "$@" "$SPEECH/$path"
        done <<LIST
$(awk -F '\t' -v set="$set" 'NR > 1 && $2 == set { print $1 }' "$SPEECH/manifest.tsv")
LIST
    done
fi
[ $# -gt 0 ] || set -- "$(examples/fetch.sh demo)"
grep -m 1 'model name' /proc/cpuinfo 2>/dev/null || uname -mp
for model in ${MODELS:-tiny base.en}; do
    file=$(examples/fetch.sh "$model")
    echo "$model, ${THREADS:-2} threads"
    "$build/bench_live" --model "$file" --threads "${THREADS:-2}" --svg "$build/live-$model.svg" "$@"
done
for streams in ${STREAMS:-4 8}; do
    echo "tiny, $streams streams on one core"
    "$build/bench_live" --model "$(examples/fetch.sh tiny)" --streams "$streams" "$1"
done
