#!/bin/sh
# accuracy.sh - word error rates by group, INT8 beside the float path.
#
# usage: tests/speech/accuracy.sh DIRECTORY [MODEL...]        or: make accuracy SPEECH=DIRECTORY
#
# DIRECTORY has a manifest.tsv: path, set, speaker, seconds, language, licence, source, transcript,
# separated by tabs, one heading line. SETS (default: short) says which sets are transcribed. A
# model is tiny, base.en (fetched if needed; default: both) or a file. COMPUTE (default: int8 float)
# says how, TRANSCRIBE_OPTIONS is handed on. Texts stay in build/accuracy/MODEL/SET/COMPUTE.tsv.
set -eu
speech=$(cd "${1:?usage: tests/speech/accuracy.sh DIRECTORY [MODEL...]}" && pwd)
shift
cd "$(dirname "$0")/../.."
build=${WNPU_BUILD:-build}
[ -f "$speech/manifest.tsv" ] || { echo "accuracy.sh: no manifest.tsv in $speech" >&2; exit 1; }
[ -n "${WNPU_BUILD-}" ] || make -s "$build/transcribe" "$build/wer"
[ $# -gt 0 ] || set -- tiny base.en
tab=$(printf '\t')

# transcribe_set MODEL SET COMPUTE DIRECTORY: one run over all clips; two in one set with the same
# name would be refused.
transcribe_set() {
    rm -rf "${4:?}/$3"
    mkdir -p "$4/$3"
    clips=$(awk -F '\t' -v set="$2" -v dir="$speech" 'NR > 1 && $2 == set { print dir "/" $1 }' \
        "$speech/manifest.tsv")
    # The clips' names, one a line, become arguments.
    (
        IFS='
'
        set -f
        # shellcheck disable=SC2086
        set -- "$1" "$3" "$4/$3/" $clips
        IFS=' '
        model=$1 compute=$2 out=$3
        shift 3
        # shellcheck disable=SC2086
        "$build/transcribe" --model "$model" --compute "$compute" --language en \
            ${TRANSCRIBE_OPTIONS-} --format txt --output "$out" "$@"
    ) || echo "accuracy.sh: transcribe ended with status $?" >&2
    awk -F '\t' -v set="$2" 'NR > 1 && $2 == set { print $1 }' "$speech/manifest.tsv" |
        while IFS= read -r path; do
            name=$(basename "$path")
            text=$4/$3/${name%.*}.txt
            [ ! -f "$text" ] || printf '%s\t%s\n' "$path" "$(tr '\n\t' '  ' <"$text")"
        done >"$4/$3.tsv"
}

for model in "$@"; do
    case $model in
    tiny | base.en) file=$(examples/fetch.sh "$model") ;;
    *) file=$model ;;
    esac
    name=$(basename "$file" .bin)
    for set in ${SETS:-short}; do
        out=$build/accuracy/$name/$set
        mkdir -p "$out"
        awk -F '\t' -v OFS='\t' -v set="$set" 'NR > 1 && $2 == set { print $1, $8 }' \
            "$speech/manifest.tsv" >"$out/reference.tsv"
        if ! [ -s "$out/reference.tsv" ]; then
            echo "accuracy.sh: no set $set in $speech/manifest.tsv" >&2
            exit 1
        fi
        columns=
        for compute in ${COMPUTE:-int8 float}; do
            transcribe_set "$file" "$set" "$compute" "$out"
            columns="$columns$out/$compute.tsv$tab"
        done
        printf '%s, %s\n' "$name" "$set"
        (
            IFS=$tab
            # shellcheck disable=SC2086
            "$build/wer" "$out/reference.tsv" $columns
        )
        echo
    done
done
