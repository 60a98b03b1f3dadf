#!/bin/sh
# one.sh MODEL OUT FILE [OPTION...] - transcribes a recording unless that was done before: for
# parallel.sh and slurm.sh. OUT/NAME.status has the exit status of transcribe, 0 or 6 (incomplete),
# and is written when all results are there; what was said of a failure stays in OUT/NAME.err.
# TRANSCRIBE names the program, FORMATS the formats, THREADS those of a run.
model=$1 out=$2 file=$3
shift 3
name=$(basename "$file")
name=$out/${name%.*}
if [ -e "$name.status" ] && [ -z "$(find "$file" "$model" -prune -newer "$name.status")" ]; then
    exit "$(cat "$name.status")"
fi
rm -f "$name.status"
"${TRANSCRIBE:-transcribe}" -q -t "${THREADS:-1}" -m "$model" -f "${FORMATS:-json}" "$@" -o "$out/" \
    -- "$file" 2>"$name.err"
status=$?
[ -s "$name.err" ] && sed 's/^/'"$(printf %s "${name##*/}" | sed 's/[&/\]/\\&/g')"': /' "$name.err" >&2
case $status in
0 | 6) echo $status >"$name.status.part" && mv "$name.status.part" "$name.status" || exit 5 ;;
esac
[ $status -ne 0 ] || rm -f "$name.err"
exit $status
