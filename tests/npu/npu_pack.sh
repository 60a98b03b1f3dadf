#!/bin/sh
# npu_pack.sh - a kernel pack for the simulated NPU with the products of a Whisper encoder.
#
#     tests/npu/npu_pack.sh DIR npu1|npu4 i8|i16 STATE [M]
#
# STATE is the model's width (384 tiny, 512 base, 768 small), M the rows of each kernel (default
# 512: a third of the encoder's 1,500 positions, so that CPU and NPU take turns). One kernel for
# each matrix: QKV, attention output, both of the feed-forward pair, keys and values of the cross-
# attention, both convolutions, in the multiples that the tiles of 64x64x32 want: N of 128 (four
# columns) or 256 (eight), K of 64. WNPU_BUILD says where make_pack is.
build=${WNPU_BUILD:-$(dirname "$0")/../../build}
columns=$([ "$2" = npu1 ] && echo 128 || echo 256)
shapes=$(awk -v columns="$columns" -v d="$4" -v m="${5:-512}" '
    function up(x, to) { return int((x + to - 1) / to) * to }
    function shape(n, k) { printf " --shape %dx%dx%d", m, up(n, columns), up(k, 64) }
    BEGIN { shape(3 * d, d); shape(d, d); shape(4 * d, d); shape(d, 4 * d); shape(2 * d, d)
            shape(d, 240); shape(d, 3 * d) }')
# shellcheck disable=SC2086 # several words are wanted
exec "$build/make_pack" "$1" --device "$([ "$2" = npu1 ] && echo npu1 || echo npu2)" \
    --dtype "$3" $shapes
