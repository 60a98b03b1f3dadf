#!/bin/sh
# layout.sh - the layouts that the library promises to keep: 0.2.txt, what programs know of the
# header (see layout.awk), and snapshot.txt, what snapshots contain, with SN_VERSION. Offsets and
# sizes are those of 64-bit systems. usage:
#
#     layout.sh              compare both with the sources
#     layout.sh --write      write both; refuses what breaks a promise (make abi)
#     layout.sh --of HEADER  print what programs know of a header
#
# Complains in lines, with status 1.
cd "$(dirname "$0")/../../.." || exit 1
here=tests/api/abi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
c='clang -O0' # which does not compile functions that nobody calls
command -v clang >/dev/null 2>&1 || c="${CC:-cc} -O0"

# layout ROOTS HEADER [SOURCE]: prints it.
layout() {
    awk -v roots="$1" -f $here/layout.awk "$2" ${3:+"$3"} >"$work/print.c" &&
        $c -w -I. -DWNPU_NO_SIMD -DWNPU_API=static "-DABI_SOURCE=\"${3:-$2}\"" "$work/print.c" \
            -o "$work/print" -lm -lpthread && "$work/print"
}

# compare NAME: $work/NAME with the file here; complains of what the promise forbids.
compare() {
    if [ "$1" = snapshot.txt ]; then
        cmp -s "$here/$1" "$work/$1" ||
            [ "$(sed -n 's/^SN_VERSION //p' "$here/$1")" -lt "$(sed -n 's/^SN_VERSION //p' \
                "$work/$1")" ] || {
            diff "$here/$1" "$work/$1" | sed -n 's/^[<>] /snapshots: &/p' | head -n 5
            echo "snapshots: their layout has changed, so SN_VERSION has to grow"
            return 1
        }
    else
        awk -f $here/grown.awk "$here/$1" "$work/$1"
    fi
}

if [ "${1-}" = --of ]; then
    layout "" "$PWD/$2"
    exit
fi
layout "" "$PWD/whisper_npu.h" >"$work/0.2.txt" || exit 1
layout "sn_head sn_state rs_record rs_word rs_link wnpu_token" "$PWD/whisper_npu.h" \
    "$PWD/whisper_npu.c" >"$work/snapshot.txt" || exit 1
status=0
for name in 0.2.txt snapshot.txt; do
    if [ ! -f "$here/$name" ] || compare $name; then
        if [ "${1-}" = --write ]; then
            cp "$work/$name" "$here/$name" || exit 1
        elif ! cmp -s "$here/$name" "$work/$name"; then
            diff "$here/$name" "$work/$name" | sed -n 's/^[<>] /&/p' | head -n 5
            echo "$here/$name is not up to date: make abi"
            status=1
        fi
    else
        status=1
    fi
done
exit $status
