#!/bin/sh
# make_npu_pack.sh - makes a kernel pack from builds of mlir-aie's whole-array matrix multiplication
# example.
#
#     tests/npu/make_npu_pack.sh DIR npu1|npu2 i8|i16 nk|kn FINAL.xclbin...
#
# DIR is created. npu1 is for Phoenix and Hawk Point, npu2 for Strix and later. i8 or i16 is the
# example's dtype_in (dtype_out must be i32); nk means b_col_maj=1, kn means b_col_maj=0. Each
# FINAL.xclbin must have the name given by the example, final_MxKxN_mxkxn_Cc.xclbin, with its
# instructions insts_MxKxN_mxkxn_Cc.bin (or .txt) in the same directory. Check the pack with
#
#     build/npu_doctor --pack DIR
#
# which tests every kernel on the NPU. The grammar of the manifest is at the top of
# tests/npu/make_pack.c.
set -eu
if [ $# -lt 5 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
dir=$1 device=$2 type=$3 layout=$4
shift 4
case "$device $type $layout" in
"npu1 i8 nk" | "npu1 i8 kn" | "npu1 i16 nk" | "npu1 i16 kn" | \
    "npu2 i8 nk" | "npu2 i8 kn" | "npu2 i16 nk" | "npu2 i16 kn") ;;
*) echo "make_npu_pack.sh: device, type or layout: '$device $type $layout'" >&2; exit 2 ;;
esac
bytes=$([ "$type" = i8 ] && echo 1 || echo 2)
mkdir -p "$dir"
columns=

# number FILE OFFSET BYTES: reads a little-endian number.
number() { od -A n -j "$2" -N "$3" -t "u$3" "$1" | tr -d ' '; }

# column_width FILE: columns of the partition that an xclbin requires, from its section
# AIE_PARTITION (kind 32). They may differ from those in the file's name, which are the design's:
# since June 2026 mlir-aie requests all 8 columns of an NPU4 for every design.
column_width() {
    [ "$(dd if="$1" bs=7 count=1 2>/dev/null)" = xclbin2 ] || return 1
    sections=$(number "$1" 448 4) i=0
    while [ "$i" -lt "$sections" ]; do
        if [ "$(number "$1" $((456 + 40 * i)) 4)" -eq 32 ]; then
            number "$1" $(($(number "$1" $((456 + 40 * i + 24)) 8) + 32)) 2
            return
        fi
        i=$((i + 1))
    done
    return 1
}

hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }

for file; do
    name=$(basename "$file" .xclbin)
    suffix=${name#final_}
    # MxKxN_mxkxn_Cc
    # shellcheck disable=SC2046 # splits into seven numbers
    set -- $(printf '%s\n' "$suffix" |
        grep -E '^[0-9]+x[0-9]+x[0-9]+_[0-9]+x[0-9]+x[0-9]+_[0-9]+c$' | tr 'x_c' '   ')
    if [ $# -ne 7 ]; then
        echo "make_npu_pack.sh: $file is not named final_MxKxN_mxkxn_Cc.xclbin" >&2
        exit 1
    fi
    stream=$(dirname "$file")/insts_$suffix.bin
    [ -f "$stream" ] || stream=$(dirname "$file")/insts_$suffix.txt
    if [ ! -f "$stream" ]; then
        echo "make_npu_pack.sh: no insts_$suffix.bin beside $file" >&2
        exit 1
    fi
    width=$(column_width "$file") || {
        echo "make_npu_pack.sh: $file is not an xclbin with an AIE_PARTITION section" >&2
        exit 1
    }
    if [ -n "$columns" ] && [ "$columns" != "$width" ]; then
        echo "make_npu_pack.sh: kernels of $columns and $width columns cannot share a pack" >&2
        exit 1
    fi
    if [ -z "$columns" ]; then
        columns=$width
        printf 'pack format=1 name=%s device=%s columns=%s\n' "$(basename "$dir")" "$device" \
            "$columns" >"$dir/manifest"
    fi
    cp "$file" "$dir/$suffix.xclbin"
    cp "$stream" "$dir/$suffix.bin"
    printf 'overlay id=o%s file=%s.xclbin kind=xclbin sha256=%s kernel=MLIR_AIE' "$suffix" \
        "$suffix" "$(hash_of "$file")" >>"$dir/manifest"
    printf ' dpu_kernel_id=0x901 ops_per_cycle=2048\n' >>"$dir/manifest"
    printf 'kernel id=g%s overlay=o%s op=gemm stream=%s.bin sha256=%s' "$suffix" "$suffix" \
        "$suffix" "$(hash_of "$stream")" >>"$dir/manifest"
    printf ' m=%s n=%s k=%s tile_m=%s tile_n=%s tile_k=%s' "$1" "$3" "$2" "$4" "$6" "$5" \
        >>"$dir/manifest"
    printf ' a=%s b=%s c=i32 acc=i32 a_layout=mk b_layout=%s c_layout=mn' "$type" "$type" \
        "$layout" >>"$dir/manifest"
    printf ' a_arg=0 b_arg=1 c_arg=2 a_bytes=%s b_bytes=%s c_bytes=%s' $(($1 * $2 * bytes)) \
        $(($2 * $3 * bytes)) $(($1 * $3 * 4)) >>"$dir/manifest"
    printf ' a_dir=in b_dir=in c_dir=out verified=none\n' >>"$dir/manifest"
done
echo "$dir: $(grep -c '^kernel' "$dir/manifest") kernels"
