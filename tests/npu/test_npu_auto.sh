#!/bin/sh
# test_npu_auto.sh - transcribe --npu auto on the simulated device: the CPU's JSON, to the byte. The
# device executes the machine code of the built-in kernels, each multiply-accumulate of the encoder's
# products, for one clip, with a toy model (with TEST_NPU_AUTO=full, as in make check-long, with tiny
# too); and with tiny it computes what that machine code would, for some clips (NPU_STEP=1: all of
# short/; default every 40th). Needs recordings: WNPU_SPEECH, or ../shared/speech.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
speech=${WNPU_SPEECH:-../shared/speech}
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tiny=$(examples/fetch.sh --offline tiny 2>/dev/null)

need() {
    [ -f "$build/libsim_amdxdna.so" ] || { skip "no libdrm, so no NPU part"; return 1; }
    [ -f "$speech/manifest.tsv" ] || { skip "no recordings; WNPU_SPEECH names them"; return 1; }
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh tiny gets it"; return 1; }
}

# shorts STEP: paths of every STEPth clip of short/, the shortest first.
shorts() {
    awk -F '\t' 'NR > 1 && $2 == "short" { print $4, $1 }' "$speech/manifest.tsv" | sort -n |
        awk -v step="$1" -v dir="$speech" '(NR - 1) % step == 0 { print dir "/" $2 }'
}

# cpu CLIPS [OPTIONS...]: their JSON into $T/cpu/.
cpu() {
    clips=$1
    shift
    mkdir -p "$T/cpu"
    xargs "$build/transcribe" -q -m "$tiny" -l en -f json -o "$T/cpu/" "$@" <"$clips"
}

# npu DEVICE CORES CLIPS OUT [OPTIONS...]: the same by way of the simulated device, into $T/OUT/.
npu() {
    device=$1 cores=$2 clips=$3 out=$4
    shift 4
    mkdir -p "$T/$out"
    SIM_AMDXDNA_DEVICE=$device SIM_AMDXDNA_CORES=$cores SIM_AMDXDNA_CACHE=off \
        SIM_AMDXDNA_CLOCK=model LD_PRELOAD=$build/libsim_amdxdna.so xargs "$build/transcribe" -v \
        -m "$tiny" -l en -f json --npu auto --npu-all --require-npu -o "$T/$out/" "$@" <"$clips" \
        >"$T/$out.log" 2>&1
}

# same CLIPS OUT: every JSON is the CPU's, every window was the NPU's, no rule of the driver broken.
same() {
    while read -r clip; do
        name=$(basename "$clip" .wav).json
        cmp -s "$T/cpu/$name" "$T/$2/$name" || fail "$2: $name differs: $(tail -n 3 "$T/$2.log")"
    done <"$1"
    grep -q 'pack built-in: \([37]\) of \1 kernels' "$T/$2.log" || fail "$2: not all kernels"
    [ "$(grep -c '^  fc1  .* 100.0% .* 0.0%' "$T/$2.log")" -eq "$(wc -l <"$1")" ] ||
        fail "$2: not all on the NPU"
    grep -q '^sim: 0 violations' "$T/$2.log" || fail "$2: $(grep '^sim:' "$T/$2.log")"
}

machine_code() {
    need || return
    shorts 1 | head -n 1 >"$T/one"
    "$build/make_toy" "$T" || fail "no toy model"
    for model in "$T/toy.bin" $([ "${TEST_NPU_AUTO-}" != full ] || echo "$tiny"); do
        # The last model that is named counts.
        set -- -m "$model"
        [ "$model" = "$tiny" ] || set -- "$@" --vad off --max-tokens 8 --no-fallback
        cpu "$T/one" "$@" || fail "on the CPU"
        for device in npu4 npu1; do
            npu "$device" "" "$T/one" "machine-$device" "$@"
            same "$T/one" "machine-$device"
        done
    done
}

functional_model() {
    need || return
    shorts "${NPU_STEP:-40}" >"$T/some"
    cpu "$T/some" || fail "on the CPU"
    for device in npu1 npu4; do
        npu "$device" built-in "$T/some" "$device"
        same "$T/some" "$device"
    done
}

# doctor STATUS ARGUMENTS...: the page of npu_doctor on a simulated NPU4 into $T/page.
doctor() {
    want=$1
    shift
    SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_CORES=built-in SIM_AMDXDNA_CACHE=off SIM_AMDXDNA_QUIET=1 \
        SIM_AMDXDNA_CLOCK=cycles LD_PRELOAD=$build/libsim_amdxdna.so \
        "$build/npu_doctor" "$@" >"$T/page" 2>"$T/err"
    got=$?
    [ $got -eq "$want" ] || fail "status $got, not $want: npu_doctor $* $(cat "$T/err")"
    for private in "$(uname -n)" "$T" "$(id -un)"; do
        ! grep -qF -e "$private" "$T/page" || fail "the page names $private: npu_doctor $*"
    done
}

# page WORDS...: regular expressions of lines.
page() {
    for words in "$@"; do
        grep -q "$words" "$T/page" || fail "not in the page: $words"
    done
}

# What a user sends: machine, driver, options, cause, kernels with their times beside the counted
# cycles, and the clip's text, in one block without names.
doctor_page() {
    [ -f "$build/libsim_amdxdna.so" ] || { skip "no libdrm, so no NPU part"; return; }
    "$build/make_toy" "$T" || fail "no toy model"
    doctor 0 --report --model "$T/toy.bin"
    page '^npu_doctor, whisper_npu [0-9.]*$' '^  kernel  *7.2.13-amd64$' \
        '^  device  *NPU4 (1022:17f0 rev 10)$' '^  driver  *amdxdna 0.10$' \
        '^  options  *aie2_max_col=128 tdr_timeout_ms=2000 ' '^  firmware  *1.1.2.65$' \
        '^  rungs  *3 of 3 ' '^  columns  *8$' '^  clock  *1800 MHz$' '^  kernels  *built-in$' '^fine: ' \
        '^    512 x   256 x   192 .* us alone, .* in a chain .* counted [1-9][0-9]* cycles, ' \
        '^text: equal with custom:' 'with the NPU, which did [1-9].*; 0 fallbacks, 0 wrong$'
    [ "$(wc -l <"$T/page")" -le 40 ] || fail "more than a page"
    fence='```'
    [ "$(head -n 1 "$T/page")$(tail -n 1 "$T/page")" = "$fence$fence" ] || fail "not one block"
    HOME=$T doctor 1 --report --pack "$T/pack" --model "$T/toy.bin"
    page '^pack-missing: .*<path>' '^cure: '
    mkdir -p "$T/recorded"
    doctor 1 --report --root "$T/recorded"
    page '^  device  *-$' '^  clock  *-$' '^kernel-no-driver: '
    SIM_AMDXDNA_FAULT=result=1:stall doctor 1 --report
    page '^kernel-hangs: ' '^  rungs  *0 of 3 ' \
        '^  note: array: column 0 row 2: core 201 (enabled lock-east) pc ' '^  note: array: column 0 row 1: in0 '
    SIM_AMDXDNA_FAULT='result=36+:flipbit' doctor 1 --report --model "$T/toy.bin"
    page '^fine: ' '^text: equal ' '; [1-9][0-9]* fallbacks, [1-9][0-9]* wrong$' '^first reason: .*checksum'
}

t_run doctor_page
t_run functional_model
t_run machine_code
t_end
