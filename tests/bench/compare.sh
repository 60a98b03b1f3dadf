#!/bin/sh
# compare.sh - is one commit as fast as another? CPU time of both, stage by stage and instruction set
# by instruction set, measured in turn, so that what else the machine does meets both alike.
#
# usage: tests/bench/compare.sh OLD NEW [MODEL [RECORDING.wav]]
#
# OLD and NEW are commits of this repository or directories with a whisper_npu.c. The model is tiny
# and the recording that of the other benchmarks unless named (examples/fetch.sh gets both). ISA lists
# the instruction sets, STAGES the stages, SECONDS_PER_STAGE how long each is measured (15).
# Ratios are NEW over OLD, the median of all pairs and the quotient of the smallest times; a stage is
# marked if both are above 1.02. About 7 minutes for four sets, and two compilations.
cd "$(dirname "$0")/../.." || exit 1
root=$(pwd)
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    echo "compare.sh: $*" >&2
    exit 1
}

case $# in
2 | 3 | 4) ;;
*) die "usage: tests/bench/compare.sh OLD NEW [MODEL [RECORDING.wav]]" ;;
esac
model=${3:-$(examples/fetch.sh --offline tiny)} || die "examples/fetch.sh tiny gets the model"
recording=${4:-$(examples/fetch.sh --offline demo)} || die "examples/fetch.sh demo gets a recording"

# build SOURCE NAME: the program of one side. Some functions have other names in old commits.
build() {
    if [ -f "$1/whisper_npu.c" ]; then
        source=$(cd "$1" && pwd)
    else
        source=$T/source-$2
        mkdir "$source"
        git archive "$1" whisper_npu.c whisper_npu.h | tar -x -C "$source" -f - ||
            die "$1 is neither a directory nor a commit"
    fi
    names=
    for name in de_carve=de_take os_cpus=tp_cpus os_advise_huge=ar_advise_huge \
        os_advise_huge=ar_ask_large; do
        ! grep -q "${name%=*}(" "$source/whisper_npu.c" &&
            grep -q "${name#*=}(" "$source/whisper_npu.c" && names="$names -D$name"
    done
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -O2 -std=gnu11 -I"$source" $names -DLIBRARY="\"$source/whisper_npu.c\"" \
        "$root/tests/bench/stages.c" -o "$T/$2" -lm -lpthread || die "$1 does not compile"
}

# pair 0|1: a time of each side, old and new; the old one's is measured first if 0.
pair() {
    if [ "$1" -eq 0 ]; then
        echo "$stage" >&3 && read -r old <&4 && echo "$stage" >&5 && read -r new <&6
    else
        echo "$stage" >&5 && read -r new <&6 && echo "$stage" >&3 && read -r old <&4
    fi
}

# start SIDE SET
start() {
    "$T/$1" "$model" "$2" "$recording" <"$T/in-$1" >"$T/out-$1" &
}

# launch SET SECONDS: all stages in turn, in new processes: how their memory lies in large pages and
# caches decides some percent. The first to start takes turns.
launch() {
    if [ "$first" = old ]; then
        start old "$1"
        start new "$1"
        first=new
    else
        start new "$1"
        start old "$1"
        first=old
    fi
    exec 3>"$T/in-old" 4<"$T/out-old" 5>"$T/in-new" 6<"$T/out-new"
    for stage in $stages; do
        pair 0 || die "$1, $stage: no answer" # to warm up
        end=$(($(date +%s) + $2)) i=0
        while [ "$(date +%s)" -lt $end ] || [ $i -lt 2 ]; do
            pair $((i % 2)) || die "$1, $stage: no answer"
            echo "$old $new" >>"$T/times-$stage"
            i=$((i + 1))
        done
    done
    exec 3>&- 4<&- 5>&- 6<&-
    wait
}

# measure SET: a row of the table for each stage.
measure() {
    rm -f "$T"/times-*
    i_launch=0
    while [ $i_launch -lt $launches ]; do
        launch "$1" $((SECONDS_PER_STAGE / launches))
        i_launch=$((i_launch + 1))
    done
    for stage in $stages; do
        report "$1" "$T/times-$stage"
    done
}

# report SET FILE: the medians and the least of a stage's pairs of times.
report() {
    awk '{ print $2 / $1 }' "$2" | sort -n >"$T/ratios"
    awk -v set="$1" -v stage="$stage" -v ratios="$T/ratios" '
        NR == 1 || $1 < old { old = $1 }
        NR == 1 || $2 < new { new = $2 }
        END {
            while ((getline line <ratios) > 0) r[++n] = line
            median = n % 2 ? r[(n + 1) / 2] : (r[n / 2] + r[n / 2 + 1]) / 2
            slower = median > 1.02 && new / old > 1.02 ? "  slower" : ""
            printf "%-9s %-9s %9.3f %9.3f %8.3f %8.3f %6d%s\n", set, stage, old, new, median,
                new / old, n, slower
        }' "$2"
}

SECONDS_PER_STAGE=${SECONDS_PER_STAGE:-15}
stages=${STAGES:-encoder token beams8 windows8 clip} launches=3 first=old
build "$1" old
build "$2" new
mkfifo "$T/in-old" "$T/out-old" "$T/in-new" "$T/out-new"
printf '%-9s %-9s %9s %9s %8s %8s %6s\n' set stage 'old ms' 'new ms' median least pairs
for set in ${ISA:-sse4.1 avx2 avx-vnni avx512}; do
    if "$T/new" "$model" "$set" "$recording" </dev/null >/dev/null 2>&1; then
        measure "$set"
    else
        echo "$set: not on this machine"
    fi
done
