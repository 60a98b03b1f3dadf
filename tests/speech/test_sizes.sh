#!/bin/sh
# test_sizes.sh - models as wide as small and turbo, made of tiny's weights by inflate.py in
# tests/bench, with tiny's four layers: they write what tiny writes. make sizes has all layers.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models

# made SHAPE: $T/SHAPE.bin, and $T/want, what tiny writes.
made() {
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh all gets them"; return 1; }
    python=
    for p in python3 /usr/bin/python3; do
        [ -n "$python" ] || ! $p -c 'import numpy' 2>/dev/null || python=$p
    done
    [ -n "$python" ] || { skip "no python3 with numpy"; return 1; }
    run 0 "$build/transcribe" -q -m "$tiny" -l en examples/jfk.wav
    mv "$T/out" "$T/want"
    run 0 env PYTHONDONTWRITEBYTECODE=1 "$python" tests/bench/inflate.py --layers 4,4 "$tiny" "$1" \
        "$T/$1.bin"
    [ -s "$T/$1.bin" ]
}

test_small() {
    made small || return
    run 0 "$build/transcribe" -q -m "$T/small.bin" -l en examples/jfk.wav
    cmp -s "$T/out" "$T/want" || fail "$(cat "$T/out")"
    rm -f "$T/small.bin"
}

# 128 mel bins and 100 languages; a pack of it, and words with times.
test_turbo() {
    made turbo || return
    run 0 "$build/pack" "$T/turbo.bin" "$T/turbo.wnpu"
    rm -f "$T/turbo.bin"
    run 0 "$build/transcribe" -q -m "$T/turbo.wnpu" --words -f json examples/jfk.wav
    grep -q '^{"language": "en"' "$T/out" || fail "not English: $(head -n 1 "$T/out")"
    grep -qF "\"text\": \" $(cat "$T/want")\"" "$T/out" || fail "$(cat "$T/out")"
    [ "$(grep -c '"word":' "$T/out")" -eq 22 ] || fail "$(grep -c '"word":' "$T/out") words"
}

for t in small turbo; do
    t_run test_$t
done
t_end
