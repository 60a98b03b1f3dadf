#!/bin/sh
# npu_speech.sh - real models on real recordings by way of the simulated NPU: transcribe --npu must
# write the CPU's JSON to the byte. For make check-long; takes an hour or so.
#
#     tests/npu_speech.sh DIR [MODEL...]
#
# DIR has manifest.tsv and the set short/ (see tests/test_speech.sh). Models (tiny and base.en) as
# scripts/fetch.sh names them. Both devices, five drivers, int8 and int16 kernels; NPU_STEP=N takes
# every Nth clip only (default 1), NPU_ONLY=REGEX only what fits, say "npu1 i8 7.2". NPU_PACK=DIR is
# a pack of yours, with SIM_AMDXDNA_CORES for its overlay if that is not make_pack's. WNPU_BUILD says
# where transcribe is.
cd "$(dirname "$0")/.." || exit 1
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
awk -F '\t' -v step="${NPU_STEP:-1}" -v dir="$speech" \
    'NR > 1 && $2 == "short" && n++ % step == 0 { print dir "/" $1 }' "$speech/manifest.tsv" \
    >"$T/clips"

# all OUT OPTIONS...: every clip into OUT/NAME.json.
all() {
    mkdir -p "$T/$1"
    out=$1
    shift
    xargs "$build/transcribe" -q -m "$model" -l en -f json -o "$T/$out/" "$@" <"$T/clips"
}

failed=0
for name; do
    model=$(scripts/fetch.sh --offline "$name") || exit 2
    state=$([ "$name" = tiny ] && echo 384 || echo 512)
    all cpu 2>"$T/log" || { cat "$T/log"; exit 1; }
    for device in npu1 npu4; do
        for type in i8 i16; do
            pack=${NPU_PACK:-$T/pack}
            [ -n "${NPU_PACK-}" ] || WNPU_BUILD=$build tests/npu_pack.sh "$pack" $device $type \
                "$state" >/dev/null || exit 1
            for kernel in 6.16 6.18 7.1 7.2 legacy; do
                echo "$name $device $type $kernel" | grep -Eq "${NPU_ONLY:-.}" || continue
                rm -rf "$T/npu"
                SIM_AMDXDNA_KERNEL=$kernel SIM_AMDXDNA_DEVICE=$device SIM_AMDXDNA_CACHE=off \
                    SIM_AMDXDNA_CLOCK=model SIM_AMDXDNA_QUIET=1 \
                    LD_PRELOAD=$build/libsim_amdxdna.so \
                    all npu --npu "$pack" --npu-all --require-npu 2>"$T/log"
                status=$?
                same=0
                for file in "$T"/cpu/*.json; do
                    cmp -s "$file" "$T/npu/$(basename "$file")" && same=$((same + 1))
                done
                printf '%s %s %s on %s: %d of %d files are the same, status %d\n' "$name" \
                    "$device" "$type" "$kernel" "$same" "$(wc -l <"$T/clips")" "$status"
                if [ "$status" -ne 0 ] || [ "$same" -ne "$(wc -l <"$T/clips")" ]; then
                    failed=$((failed + 1))
                    head -n 5 "$T/log"
                fi
            done
        done
    done
    rm -rf "$T/cpu"
done
[ $failed -eq 0 ] && echo "the same everywhere"
