#!/bin/sh
# test_bindings.sh - examples/wnpu.py, minimal.rs and minimal.go with the shared library: structures
# have the layout of the header, and what they write is what transcribe writes.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
here=$PWD
build=$(cd "${WNPU_BUILD:-build}" && pwd) || exit 1
t_temp

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES make -s BUILD="$build" \
    ${TEST_CFLAGS:+CFLAGS="$TEST_CFLAGS"} shared >"$T/log" 2>&1 || { cat "$T/log"; exit 1; }
export WNPU_LIBRARY="$build/libwnpu.so.0" PYTHONPATH="$here/examples" PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$build"
model=$(scripts/fetch.sh --offline tiny 2>/dev/null)
wav=$(scripts/fetch.sh --offline demo 2>/dev/null)

data() {
    [ -n "$model" ] && [ -n "$wav" ] || { skip "no data; scripts/fetch.sh all gets it"; return 1; }
}

# compiler NAME: compilers that CI does not install are no failure there.
compiler() {
    command -v "$1" >/dev/null 2>&1 && return
    printf '  skipped: no %s\n' "$1"
    t_skip_now=1
    return 1
}

# Every field of the structures that Python declares, in a C program. Results have all fields; what
# is passed to the library may have fewer.
test_python_layout() {
    python3 - >"$T/layout.c" <<'END' || fail "cannot import wnpu"
import ctypes, wnpu
print('#include "whisper_npu.h"\n#include <stdio.h>\nint main(void) {')
names = {"parallel_user": "parallel_user", "user": "parallel_user"}
for name in "Token", "Segment", "Word", "Config", "Stream":
    kind = getattr(wnpu, name)
    c = "wnpu_stream_options" if name == "Stream" else "wnpu_" + name.lower()
    least = "<=" if name in ("Config", "Stream") else "=="
    print(f'    printf("{name} %d\\n", {ctypes.sizeof(kind)} {least} sizeof({c}));')
    for field, _ in kind._fields_:
        is_at = getattr(kind, field)
        of = names.get(field, field) if name == "Config" else field
        print(f'    printf("{name}.{field} %d\\n", offsetof({c}, {of}) == {is_at.offset} &&'
              f' sizeof((({c} *)0)->{of}) == {is_at.size});')
print('    printf("params %d\\n", sizeof(wnpu_params) <= 512 && sizeof(wnpu_params) >= 256);')
print('    return 0;\n}')
END
    try "${CC:-cc}" -I. "$T/layout.c" -o "$T/layout" || return
    "$T/layout" >"$T/out"
    [ "$(wc -l <"$T/out")" -gt 45 ] || fail "few fields"
    ! grep -v ' 1$' "$T/out" || fail "layouts differ: a new field, or a wrong type"
    [ "$(wc -l <examples/wnpu.py)" -le 120 ] || fail "examples/wnpu.py has over 120 lines"
}

# Text, times, words and every number of each segment.
test_python_transcribes() {
    data || return
    "$build/transcribe" -q -m "$model" --words -f json "$wav" >"$T/want.json" || fail "transcribe"
    cat >"$T/same.py" <<'END'
import json, sys, wave, wnpu
want = json.load(open(sys.argv[3]))
def same(got):
    got = list(got)
    assert len(got) == len(want["segments"]) > 3, (len(got), len(want["segments"]))
    for g, w in zip(got, want["segments"]):
        assert g.text.strip() == w["text"].strip(), (g, w)
        assert abs(g.t0_ms / 1000 - w["start"]) < 0.0015 and abs(g.t1_ms / 1000 - w["end"]) < 0.0015
        assert "".join(word.text for word in g.words) == g.text and len(g.tokens) >= len(g.words) > 0
        for word, x in zip(g.words, w["words"]):
            assert abs(word.t0_ms / 1000 - x["start"]) < 0.0015, (word, x)
        assert 0 <= g.voice <= 1 and g.accepted in (0, 1) and g.compression_ratio > 0.5
        assert g.mean_logprob < 0 and g.first_logprob < 0 and g.device == 0
    assert max(g.voice for g in got) > 0.5
with wnpu.Session(sys.argv[1], threads=2) as session:
    same(session.transcribe(sys.argv[2], words=1))
    assert session.status == 0
    with wave.open(sys.argv[2]) as file:
        samples, rate = file.readframes(file.getnframes()), file.getframerate()
    parts = [samples[i:i + 2 * 777] for i in range(0, len(samples), 2 * 777)]
    same(session.stream(parts, rate=rate, words="on"))
    session.transcribe(sys.argv[2], language="en").close()
    same(session.transcribe(sys.argv[2], words=1))
END
    python3 "$T/same.py" "$model" "$wav" "$T/want.json" 2>"$T/err" || fail "$(tail -n 3 "$T/err")"
}

test_python_cancels() {
    data || return
    cat >"$T/cancel.py" <<'END'
import sys, threading, wnpu
def refused(status, call):
    try:
        call()
    except wnpu.Error as error:
        assert error.args[0] == status and len(error.args[1]) > 5, error.args
        return error.args[1]
    raise AssertionError("no error")
with wnpu.Session(sys.argv[1], threads=1) as session:
    # Between two segments, and during a step, from another thread.
    run, seen = session.transcribe(sys.argv[2]), 0
    next(run)
    session.cancel()
    refused(wnpu.CANCELLED, lambda: next(run))
    over = threading.Event()
    def cancel_often(): # before the run has begun there is nothing to cancel
        while not over.wait(0.1):
            session.cancel()
    other = threading.Thread(target=cancel_often)
    other.start()
    refused(wnpu.CANCELLED, lambda: list(session.transcribe(sys.argv[2], beam=5)))
    over.set()
    other.join()
    assert session.status is None
    assert len(list(session.transcribe(sys.argv[2]))) > 3 # usable afterwards
    assert "nobeam" in refused(-1, lambda: list(session.transcribe(sys.argv[2], nobeam=5)))
    refused(-1, lambda: list(session.stream([b""], channels=999)))
assert "none.bin" in refused(-3, lambda: wnpu.Session("none.bin"))
END
    python3 "$T/cancel.py" "$model" "$wav" 2>"$T/err" || fail "$(tail -n 3 "$T/err")"
}

# shows PROGRAM: times and text of each segment.
shows() {
    data || return
    "$build/transcribe" -q -m "$model" --beam 2 -f json "$wav" | python3 -c '
import json, sys
for s in json.load(sys.stdin)["segments"]:
    print(round(s["start"] * 1000), round(s["end"] * 1000), s["text"].strip())' >"$T/want"
    "$1" "$model" "$wav" beam=2 >"$T/out" 2>"$T/err" && cmp -s "$T/out" "$T/want" && [ -s "$T/want" ] ||
        fail "$1: $(head -n 2 "$T/err" "$T/out")"
    ! "$1" "$model" "$wav" beam=99 >"$T/out" 2>"$T/err" || fail "$1 accepts a beam of 99"
    grep -q beam "$T/err" || fail "$1 says $(cat "$T/err")"
}

test_rust() {
    compiler rustc && try rustc -D warnings -O examples/minimal.rs -L "$build" -l wnpu \
        -o "$T/minimal_rs" && shows "$T/minimal_rs"
}

# The declarations by hand have the sizes that bindgen would give them.
test_rust_bindgen() {
    compiler rustc && compiler bindgen || return
    try bindgen whisper_npu.h --allowlist-item 'wnpu_.*|WNPU_.*' -o "$T/wnpu.rs" &&
        try rustc --crate-type lib -A warnings "$T/wnpu.rs" -o "$T/libwnpu.rlib"
    ! grep -q 'fn wnpu_get_segment(' "$T/wnpu.rs" || fail "a function without all fields"
}

test_go() {
    compiler go || return
    [ -z "$(gofmt -l examples/minimal.go)" ] || fail "gofmt would change examples/minimal.go"
    GOCACHE="$T/go" GO111MODULE=off CGO_CFLAGS="-I$here" CGO_LDFLAGS="-L$build" \
        try go build -o "$T/minimal_go" examples/minimal.go && shows "$T/minimal_go"
}

for t in python_layout python_transcribes python_cancels rust rust_bindgen go; do
    t_run test_$t
done
t_end
