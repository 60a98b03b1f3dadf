#!/bin/sh
# npu_speech.sh - real models on real recordings by way of the simulated NPU: transcribe --npu must
# write the CPU's JSON to the byte, and so must live runs of three clips each, which npu_live pushes in
# pieces. For make check-long; takes hours.
#
#     tests/npu/npu_speech.sh DIR [MODEL...]
#
# DIR has manifest.tsv and the set short/ (see tests/speech/test_speech.sh). Models (tiny and base.en)
# as examples/fetch.sh names them. Both devices, five drivers, int8 and int16 packs and the built-in
# kernels (as a model of what their machine code does): 30 combinations, each with all clips. NPU_STEP=N gives each combination every Nth clip only, others than the one
# before: up to N = 30 each clip is still taken, by 30 / N combinations. NPU_ONLY=REGEX runs only
# what fits, say "npu1 i8 7.2". NPU_PACK=DIR is a pack of yours, with SIM_AMDXDNA_CORES for its
# overlay if that is not make_pack's. WNPU_BUILD says where transcribe is.
cd "$(dirname "$0")/../.." || exit 1
speech=$1
if [ ! -f "$speech/manifest.tsv" ]; then
    echo "usage: $0 DIR [MODEL...]; no manifest.tsv in '$speech'" >&2
    exit 2
fi
shift
[ $# -gt 0 ] || set -- tiny base.en
build=${WNPU_BUILD:-build}
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
step=${NPU_STEP:-1}
awk -F '\t' -v dir="$speech" 'NR > 1 && $2 == "short" { print dir "/" $1 }' \
    "$speech/manifest.tsv" >"$T/all"

# run CLIPS OUT OPTIONS...: every clip of the list CLIPS into OUT/NAME.json.
run() {
    clips=$1
    out=$2
    shift 2
    mkdir -p "$T/$out"
    xargs "$build/transcribe" -q -m "$model" -l en -f json -o "$T/$out/" "$@" <"$T/$clips"
}

# on_npu COMMAND...: on the simulated device.
on_npu() {
    SIM_AMDXDNA_CORES=$cores SIM_AMDXDNA_KERNEL=$kernel SIM_AMDXDNA_DEVICE=$device \
        SIM_AMDXDNA_CACHE=off SIM_AMDXDNA_CLOCK=model SIM_AMDXDNA_QUIET=1 \
        LD_PRELOAD=$build/libsim_amdxdna.so "$@"
}

# choose COMBINATION: its clips into $T/clips. With each round of N combinations the clips move on
# by one, lest a driver meet the same ones on every device.
choose() {
    awk -v step="$step" -v first="$(($1 + $1 / step))" '(NR - 1 + first) % step == 0' "$T/all" \
        >"$T/clips"
}

# compare: counts those of $T/clips whose JSON is the CPU's.
compare() {
    while read -r clip; do
        name_json=$(basename "$clip" .wav).json
        cmp -s "$T/cpu/$name_json" "$T/npu/$name_json" && echo same
    done <"$T/clips" | wc -l
}

failed=0
for name; do
    combination=0 all_same=0 all_runs=0
    model=$(examples/fetch.sh --offline "$name") || exit 2
    state=$([ "$name" = tiny ] && echo 384 || echo 512)
    run all cpu 2>"$T/log" || { cat "$T/log"; exit 1; }
    for device in npu1 npu4; do
        for type in i8 i16 auto; do
            pack=${NPU_PACK:-$T/pack} cores=${SIM_AMDXDNA_CORES-}
            [ "$type" != auto ] || pack=auto cores=built-in
            [ -n "${NPU_PACK-}" ] || [ "$type" = auto ] || WNPU_BUILD=$build tests/npu/npu_pack.sh "$pack" $device $type \
                "$state" >/dev/null || exit 1
            for kernel in 6.16 6.18 7.1 7.2 legacy; do
                choose $combination
                combination=$((combination + 1))
                echo "$name $device $type $kernel" | grep -Eq "${NPU_ONLY:-.}" || continue
                rm -rf "$T/npu"
                on_npu run clips npu --npu "$pack" --npu-all --require-npu 2>"$T/log"
                status=$?
                same=$(compare)
                count=$(wc -l <"$T/clips")
                printf '%s %s %s on %s: %d of %d files are the same, status %d\n' "$name" \
                    "$device" "$type" "$kernel" "$same" "$count" "$status"
                if [ "$status" -ne 0 ] || [ "$same" -ne "$count" ]; then
                    failed=$((failed + 1))
                    head -n 5 "$T/log"
                fi
                # shellcheck disable=SC2046 # paths without spaces
                on_npu "$build/npu_live" "$model" "$pack" $(head -n 3 "$T/clips") >"$T/log" 2>&1 ||
                    failed=$((failed + 1))
                printf '%s %s %s on %s: %s\n' "$name" "$device" "$type" "$kernel" \
                    "$(tail -n 1 "$T/log")"
                all_same=$((all_same + same)) all_runs=$((all_runs + count))
            done
        done
    done
    printf '%s: %d of %d files are the same\n' "$name" $all_same $all_runs
    [ $all_runs -gt 0 ] || failed=$((failed + 1))
    rm -rf "$T/cpu"
done
[ $failed -eq 0 ] && echo "the same everywhere"
