#!/bin/sh
# parallel.sh MODEL OUT LIST [OPTION...] - the recordings of a list, one on each line, on all CPUs
# of this machine with GNU parallel. Start it again to go on where it stopped. OPTIONs are those
# of transcribe; JOBS is the number of recordings at a time. Exit status: 0, 1 usage, 3 some
# failed (see OUT/*.err), 6 some are incomplete.
if [ $# -lt 3 ] || [ ! -r "$3" ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 1
fi
model=$1 out=$2 list=$3
shift 3
same=$(sed 's,.*/,,; s/\.[^.]*$//' "$list" | sort | uniq -d | head -n 3)
[ -z "$same" ] || { echo "parallel.sh: several recordings have the name: $same" >&2; exit 1; }
mkdir -p "$out" || exit 1
parallel --will-cite -j "${JOBS:-100%}" --joblog "$out/joblog" -- \
    "$(dirname "$0")/one.sh" "$model" "$out" {} "$@" :::: "$list"
awk 'NR > 1 { n[$7]++; all++ } END { bad = all - n[0] - n[6]
    printf "%d done, %d incomplete, %d failed\n", n[0], n[6], bad > "/dev/stderr"
    exit bad > 0 ? 3 : n[6] > 0 ? 6 : 0 }' "$out/joblog"
