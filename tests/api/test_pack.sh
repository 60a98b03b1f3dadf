#!/bin/sh
# test_pack.sh - build/pack seen from outside, and a pack linked into a program. A toy model is
# enough; with the models in the cache (examples/fetch.sh all) real ones are packed as well.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
pack=$build/pack
transcribe=$build/transcribe
t_temp

has() { grep -qF -e "$2" "$1" || fail "no '$2' in $(basename "$1"): $(head -c 300 "$1")"; }
same() { cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"; }

# 2 s of noise, 16 kHz mono: bytes of the model serve as samples.
make_recording() {
    {
        printf 'RIFF\044\372\000\000WAVEfmt \020\000\000\000\001\000\001\000\200\076\000\000'
        printf '\000\175\000\000\002\000\020\000data\000\372\000\000'
        tail -c 64000 "$T/toy.bin"
    } >"$T/noise.wav"
}

# heard MODEL: what is transcribed, as JSON in $T/json.
heard() {
    run 0 "$transcribe" -q -t 1 -m "$1" --vad off --max-tokens 8 -f json "$T/noise.wav"
    cp "$T/out" "$T/json"
}

"$build/make_toy" "$T" || exit 1
make_recording

test_help() {
    run 0 "$pack" --help
    has "$T/out" "Usage: pack"
    for status in 0 1 2 5 6; do
        grep -qE "(^|[ :])$status " "$T/out" || fail "exit status $status is not explained"
    done
    run 1 "$pack"
    run 1 "$pack" "$T/toy.bin"
    run 1 "$pack" --no-such-option "$T/toy.bin"
    has "$T/err" "--help"
}

test_forms() {
    heard "$T/toy.bin"
    cp "$T/json" "$T/ggml.json"
    grep -q '"probability"' "$T/json" || fail "the toy says nothing"
    for form in toy.bin hf shards; do
        run 0 "$pack" "$T/$form" "$T/$form.wnpu"
        run 0 "$pack" --check "$T/$form.wnpu"
        heard "$T/$form.wnpu"
        same "$T/json" "$T/ggml.json"
        same "$T/$form.wnpu" "$T/toy.bin.wnpu"
    done
    cp "$T/toy.bin" "$T/same.bin" && cp "$T/toy.bin" "$T/many.wnpu"
    ln "$T/many.wnpu" "$T/many2.wnpu"
    run 5 "$pack" "$T/same.bin" "$T/same.bin" # never over the model itself
    run 5 "$pack" "$T/toy.bin" "$T/many.wnpu" # nor into a file that may be mapped
    same "$T/toy.bin" "$T/same.bin"
    same "$T/toy.bin" "$T/many2.wnpu"
    run 0 "$pack" "$T/toy.bin.wnpu" - # a pack of a pack, on standard output
    same "$T/out" "$T/toy.bin.wnpu"
}

# Less room, and the same bytes on each instruction set.
test_bits() {
    run 0 "$pack" --bits 8 "$T/toy.bin" "$T/eight.wnpu"
    same "$T/eight.wnpu" "$T/toy.bin.wnpu"
    run 0 "$pack" --bits 6 "$T/toy.bin" "$T/six.wnpu"
    run 0 "$pack" --check "$T/six.wnpu"
    [ "$(wc -c <"$T/six.wnpu")" -lt "$(wc -c <"$T/eight.wnpu")" ] || fail "6 bits are not smaller"
    heard "$T/six.wnpu"
    cp "$T/json" "$T/six.json"
    for isa in scalar sse4.1 avx2 avx-vnni avx512 neon neon-dot; do
        "$transcribe" -q -t 1 -m "$T/six.wnpu" --isa "$isa" --vad off --max-tokens 8 -f json \
            "$T/noise.wav" >"$T/json" 2>"$T/err" || continue
        same "$T/json" "$T/six.json"
    done
    run 1 "$pack" --bits 5 "$T/toy.bin" "$T/x.wnpu"
    has "$T/err" "6 or 8, not '5'"
    run 2 "$pack" --bits 6 "$T/eight.wnpu" "$T/x.wnpu"
    has "$T/err" "8 bits and cannot have 6"
    [ ! -e "$T/x.wnpu" ] || fail "a pack that is not what was asked for"
    run 0 "$pack" "$T/six.wnpu" "$T/again.wnpu"
    same "$T/again.wnpu" "$T/six.wnpu"
    run 1 "$pack" --bits 6
}

# byte FILE OFFSET: replaces a byte by its opposite.
byte() {
    was=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf '%b' "\\0$(printf '%03o' $((255 - was)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

test_damage() {
    run 0 "$pack" "$T/toy.bin" "$T/damaged.wnpu"
    size=$(wc -c <"$T/damaged.wnpu")
    byte "$T/damaged.wnpu" $((size / 2))
    run 2 "$pack" --check "$T/damaged.wnpu"
    grep -qE "section '[a-z0-9_.]+' of the pack" "$T/err" || fail "no name: $(cat "$T/err")"
    byte "$T/damaged.wnpu" $((size / 2))
    run 0 "$pack" --check "$T/damaged.wnpu"
    byte "$T/damaged.wnpu" 50
    run 2 "$transcribe" -q -m "$T/damaged.wnpu" "$T/noise.wav"
    has "$T/err" "damaged"
    head -c 5000 "$T/toy.bin.wnpu" >"$T/damaged.wnpu"
    run 2 "$pack" --check "$T/damaged.wnpu"
    has "$T/err" "truncated"
    run 2 "$pack" --check "$T/toy.bin"
    has "$T/err" "not come from a pack"
}

test_errors() {
    run 2 "$pack" "$T/nothing" "$T/x.wnpu"
    has "$T/err" "no such file"
    run 2 "$pack" "$T" "$T/x.wnpu"
    has "$T/err" "config.json: there is no such file"
    mkdir -p "$T/part" && cp "$T"/hf/*.json "$T/part"
    run 2 "$pack" "$T/part" "$T/x.wnpu"
    has "$T/err" "neither model.safetensors nor"
    head -c 100000 "$T/hf/model.safetensors" >"$T/part/model.safetensors"
    run 2 "$pack" "$T/part" "$T/x.wnpu"
    has "$T/err" "exceed the file"
    [ ! -e "$T/x.wnpu" ] || fail "a failed run left a pack"
    run 5 "$pack" "$T/toy.bin" "$T/no/such/directory.wnpu"
    [ ! -e /dev/full ] || run 5 "$pack" "$T/toy.bin" /dev/full
    cp "$T/toy.bin.wnpu" "$T/kept.wnpu"
    run 2 "$pack" "$T/part" "$T/kept.wnpu"
    same "$T/kept.wnpu" "$T/toy.bin.wnpu"
    run 2 "$transcribe" -q -m "$T/kept.wnpu" --compute float "$T/noise.wav"
    has "$T/err" "no float weights"
}

# As the README has it.
test_linked_in() {
    cat >"$T/model.s" <<'S'
        .section .rodata
        .balign 64
        .global model, model_end
model:  .incbin "toy.bin.wnpu"
model_end:
        .section .note.GNU-stack, "", %progbits
S
    cat >"$T/linked.c" <<'C'
#include "whisper_npu.h"
#include <stdio.h>
extern const unsigned char model[], model_end[];
int main(void)
{
    wnpu_model *m = NULL;
    wnpu_model_info info = {0};
    wnpu_error error = {0, ""};
    int status = wnpu_model_open_static(&m, model, (size_t)(model_end - model), NULL, &error);
    info.struct_size = sizeof info;
    if (status == WNPU_OK && wnpu_model_verify(m, &error) == WNPU_OK)
        wnpu_model_get_info(m, &info);
    printf("%s%s shared %d bytes %d\n", error.message, info.name ? info.name : "",
           info.shared_bytes == (size_t)(model_end - model), info.bytes < 16384);
    wnpu_model_close(m);
    return status != WNPU_OK;
}
C
    here=$PWD
    [ -z "${WNPU_SANITIZED-}" ] || { echo "  the library wants the sanitizers' flags"; return; }
    (cd "$T" && ${CC:-cc} -I"$here" linked.c model.s "$build/libwhisper_npu.a" -o linked -lm \
        -lpthread) >"$T/log" 2>&1 || { fail "$(head -n 5 "$T/log")"; return; }
    run 0 "$T/linked"
    has "$T/out" "custom shared 1 bytes 1"
}

real() {
    model=$(examples/fetch.sh --offline "$1" 2>/dev/null)
    demo=$(examples/fetch.sh --offline demo 2>/dev/null)
    if [ -z "$model" ] || [ -z "$demo" ]; then
        skip "no model or recording; examples/fetch.sh all gets them"
        return
    fi
    run 0 "$pack" "$model" "$T/real.wnpu"
    run 0 "$transcribe" -q -m "$model" -f json "$demo"
    cp "$T/out" "$T/json"
    run 0 "$transcribe" -v -m "$T/real.wnpu" -f json "$demo"
    same "$T/out" "$T/json"
    has "$T/err" " 0 MB in memory"
    run 0 "$pack" --bits 6 "$model" "$T/six.wnpu"
    run 0 "$transcribe" -v -m "$T/six.wnpu" examples/jfk.wav
    has "$T/out" "ask what you can do for your country"
    has "$T/err" "6 bits"
}

test_tiny() { real tiny; }

for t in help forms bits damage errors linked_in tiny; do
    t_run test_$t
done
t_end
