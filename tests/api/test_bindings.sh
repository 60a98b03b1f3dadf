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
model=$(examples/fetch.sh --offline tiny 2>/dev/null)
wav=$(examples/fetch.sh --offline demo 2>/dev/null)

data() {
    [ -n "$model" ] && [ -n "$wav" ] || { skip "no data; examples/fetch.sh all gets it"; return 1; }
}

# compiler NAME: compilers that CI does not install are no failure there; rustup's rustc without a
# toolchain is none. go has no --version.
compiler() {
    command -v "$1" >/dev/null 2>&1 && { [ "$1" = go ] || "$1" --version >/dev/null 2>&1; } && return
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
c_names = {"Stream": "wnpu_stream_options", "Options": "wnpu_write_options",
           "Memory": "wnpu_model_memory"}
for name in ("Token", "Segment", "Word", "Config", "Audio", "Stream", "Live", "Params", "Options",
             "Memory"):
    kind = getattr(wnpu, name)
    c = c_names.get(name, "wnpu_" + name.lower())
    least = "<=" if name in ("Config", "Audio", "Stream", "Options") else "=="
    least = ">=" if name == "Params" else least
    print(f'    printf("{name} %d\\n", {ctypes.sizeof(kind)} {least} sizeof({c}));')
    for field, _ in kind._fields_:
        if name == "Params" and field in ("before", "behind"):
            continue
        is_at = getattr(kind, field)
        of = names.get(field, field) if name == "Config" else field
        print(f'    printf("{name}.{field} %d\\n", offsetof({c}, {of}) == {is_at.offset} &&'
              f' sizeof((({c} *)0)->{of}) == {is_at.size});')
print('    return 0;\n}')
END
    try "${CC:-cc}" -I. "$T/layout.c" -o "$T/layout" || return
    "$T/layout" >"$T/out"
    [ "$(wc -l <"$T/out")" -gt 60 ] || fail "few fields"
    ! grep -v ' 1$' "$T/out" || fail "layouts differ: a new field, or a wrong type"
    awk 'length > 100 { print FILENAME ": " FNR }' examples/wnpu.py examples/packaging/*.py >"$T/long"
    [ ! -s "$T/long" ] || fail "long lines: $(cat "$T/long")"
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
    assert session.write("json") == open(sys.argv[3], "rb").read()
    assert len(session.write("srt", max_words=1)) > len(session.write("srt"))
    for call in (lambda: session.write("doc"), lambda: session.write("srt", lines=1)):
        try:
            call()
            raise AssertionError("it was written")
        except wnpu.Error as error:
            assert error.args[0] == -1, error
    with wave.open(sys.argv[2]) as file:
        samples, rate = file.readframes(file.getnframes()), file.getframerate()
    parts = [samples[i:i + 2 * 777] for i in range(0, len(samples), 2 * 777)]
    same(session.stream(parts, rate=rate, words="on", least_ms=0, pause_ms=3000))
    session.transcribe(sys.argv[2], language="en").close()
    same(session.transcribe(sys.argv[2], words=1))
END
    echo 'import sys, wnpu; n = wnpu.memory(sys.argv[1]); assert n.held > 4e7 and n.session > 2e7, n' |
        python3 - "$model" 2>"$T/err" || fail "memory: $(tail -n 1 "$T/err")"
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
    # Busy and closed are not cancelled.
    run = session.transcribe(sys.argv[2])
    next(run)
    assert "busy" in refused(-8, lambda: next(session.transcribe(sys.argv[2])))
    assert len(list(run)) > 2 # which goes on
refused(-8, lambda: list(session.transcribe(sys.argv[2])))
run = session.stream([b"1234"])
assert "closed" in refused(-8, lambda: list(run))
assert "none.bin" in refused(-3, lambda: wnpu.Session("none.bin"))
END
    python3 "$T/cancel.py" "$model" "$wav" 2>"$T/err" || fail "$(tail -n 3 "$T/err")"
}

# Samples of every type and in pieces of every size give the text of the file; what cannot be right is
# refused and never read as something else. What the toy model makes of samples has no meaning, but
# depends on each.
test_python_samples() {
    data || return
    "$build/make_toy" "$T" || { fail "no toy model"; return; }
    cat >"$T/samples.py" <<'END'
import array, io, os, pathlib, struct, sys, wave, wnpu
model, path, toy, short = sys.argv[1:5]
def refused(word, call):
    try:
        call()
    except wnpu.Error as error:
        assert error.args[0] == wnpu.ARGUMENT and word in error.args[1], error.args
        return
    raise AssertionError("no error: " + word)
with wave.open(path) as file:
    samples, rate = file.readframes(file.getnframes()), file.getframerate()
ints = array.array("h", samples)
floats = array.array("f", (x / 32768 for x in ints))
def odd(data, sizes=(1, 7, 4097, 3, 33333)):
    at = k = 0
    while at < len(data):
        yield data[at:at + sizes[k % len(sizes)]]
        at += sizes[k % len(sizes)]
        k += 1
stereo = array.array("h", (x for y in ints for x in (y, y)))
raw = floats.tobytes()
with wnpu.Session(pathlib.Path(toy), threads=2, voice_dimension=2) as session:
    said = lambda source, **more: [(s.text, s.mean_logprob) for s in session.transcribe(
        source, language="en", vad=0, max_tokens=8, temperature_step=0, **more)]
    want = said(pathlib.Path(path), words=True)
    assert session.status == 0 and len(want) > 2, want
    for source in (path, open(path, "rb").read(), samples, bytearray(samples), memoryview(samples),
                   ints, floats, array.array("d", floats), io.BytesIO(samples), odd(samples),
                   odd(floats, (1, 3, 20001)), os.fdopen(os.dup(os.open(path, os.O_RDONLY)), "rb")):
        if hasattr(source, "fileno") and not isinstance(source, io.BytesIO):
            source.seek(os.path.getsize(path) - len(samples))
        assert said(source, rate=rate) == want, type(source)
    assert said(odd(stereo.tobytes()), channels=2) == want
    assert said(raw, format="f32") == want
    # A WAV file that is open or in a buffer, from its start.
    wav = open(path, "rb").read()
    for source in (memoryview(wav), bytearray(wav), array.array("B", wav), io.BytesIO(wav),
                   open(path, "rb"), open(path, "rb", buffering=0)):
        assert said(source, words=True) == want, type(source)
    refused("mode", lambda: said(open(__file__)))
    class Bytes(array.array):
        dtype = "as NumPy has it"
    eight = bytes((x >> 8) + 128 for x in ints)
    assert said(Bytes("B", eight), rate=rate) == said(eight, rate=rate, format="u8") != want
    assert said(Bytes("B", samples), rate=rate, format="s16") == want
    refused("type", lambda: said(Bytes("b", samples)))
    # Speakers by voice, with the vectors of a function.
    heard = []
    def on_voice(turn):
        heard.append(turn)
        return [[3, 0], (0, 1), None][min(len(heard), 3) - 1]
    unnamed = said(path)
    for source in (path, odd(floats)):
        del heard[:]
        assert said(source, on_voice=on_voice) == unnamed and session.status == 0
        session.seen = 0
        assert [s.speaker for s in session.segments()][:3] == [1, 2, 0]
        assert len(heard) == 3 and isinstance(heard[0], array.array), heard
        assert all(32000 <= len(turn) <= 480000 and 0.01 < max(turn) <= 1 for turn in heard)
    def broken(turn):
        raise KeyError("of the function")
    try:
        said(path, on_voice=broken)
        raise AssertionError("no error")
    except KeyError:
        pass
    refused("voice_dimension, 2", lambda: said(path, on_voice=lambda turn: [1]))
    refused("on_voice", lambda: said(path, voices=2))
    refused("wnpu_transcribe", lambda: list(session.stream([samples], voices=2)))
    assert said(path, words=True) == want
    try:
        import numpy as np
    except ImportError:
        np = None
    if np:
        x = np.frombuffer(samples, np.int16)
        two = np.stack([x, x], axis=1)
        for source in (x, x.astype(np.float32) / 32768, x / 32768, x.astype(np.int32) << 16, two,
                       np.asfortranarray(two), two[::-1][::-1], [x[:5], x[5:]]):
            assert said(source) == want, source.dtype
        refused("type", lambda: list(session.transcribe(x.astype(np.float16))))
        refused("channels", lambda: list(session.stream([two, x.reshape(-1, 1)])))
with wnpu.Session(pathlib.Path(model), threads=2) as session:
    text = lambda segments: "".join(s.text for s in segments)
    # Live: the defaults of live runs, tentative text, and the same segments in the end.
    final, shown = "", set()
    with wave.open(short) as file:
        speech = file.readframes(file.getnframes())
    for update in session.live(odd(speech, (3201,)), language="en"):
        final += text(update.segments)
        shown.add(update.text)
        assert update.text.startswith(update.likely)
    assert len(shown) > 1 and final == text(session.stream([speech], language="en")), (shown, final)
    # Lists, and other values.
    for options in ({"replace": ["Ask => Ask", "country => land"], "script": "simplified",
                     "drop_fillers": True, "suppress_numerals": True},
                    {"hotwords": ["Houston", "land = county, country"], "beam": 2}):
        said = text(session.transcribe(short, language="en", **options))
        assert "your land" in said and "country" not in said, (options, said)
    # A given text: a word and a line that nobody said, and what was said beside it.
    lines = session.align("And so, my fellow Americans,\nask not what your purple country can do\n"
                          "elephants", short, extra=True, language="en")
    lines, beside = [s for s in lines if s.accepted], [s for s in lines if not s.accepted]
    assert [w.text for w in lines[1].words if w.probability == 0] == [" purple"], lines
    assert all(w.t0_ms < w.t1_ms for w in lines[0].words) and lines[0].t1_ms <= lines[1].t0_ms
    assert beside[0].text == " elephants" and "ask what you can" in text(beside), beside
    assert (session.aligned.words, session.aligned.said) == (14, 12), session.aligned.said
    list(session.transcribe(path, hotwords=["Houston", "Swigert, Jack"], beam=5, language="en",
                            temperature_step=0.2, logprob_threshold=float("-inf")))
    token = next(session.transcribe(path, language="en")).tokens[1].id
    assert all(t.id != token for s in session.transcribe(path, language="en", suppress=[token])
               for t in s.tokens)
    languages = {s.language for s in session.transcribe(path, languages=["de", "fr"])}
    assert languages <= {wnpu.lib.wnpu_language_id(x) for x in (b"de", b"fr")}, languages
    for word, call in {
            "format": lambda: session.stream([raw], width=4),
            "WAV": lambda: session.stream([open(path, "rb").read()]),
            "str": lambda: session.stream(["abcd"]),
            "str holds": lambda: session.stream("abcd"),
            "f32": lambda: session.stream([floats, ints]),
            "4 bytes": lambda: session.stream([ints], width=4),
            "list": lambda: session.stream([[1, 2, 3]]),
            "type": lambda: session.stream([array.array("q", [1, 2])]),
            "dimensions": lambda: session.stream([memoryview(raw).cast("f", (1, 1, len(floats)))]),
            "tempo": lambda: session.transcribe(path, tempo=1),
            "klingon": lambda: session.transcribe(path, languages=["de", "klingon"]),
            "more than one line": lambda: session.transcribe(path, hotwords=["a\nb"]),
            "neither": lambda: session.transcribe(path, words=2.5)}.items():
        refused(word, lambda: list(call()))
refused("thread", lambda: wnpu.Session(model, thread=2))
END
    python3 "$T/samples.py" "$model" "$wav" "$T/toy.bin" examples/jfk.wav 2>"$T/err" ||
        fail "$(tail -n 3 "$T/err")"
}

# Without WNPU_LIBRARY the library is found where make shared and pip leave it, or the message says
# what to do.
test_python_finds() {
    mkdir -p "$T/tree/examples" "$T/tree/build"
    cp examples/wnpu.py "$T/tree/examples"
    (unset WNPU_LIBRARY LD_LIBRARY_PATH PYTHONPATH
        cd "$T/tree/examples" && ! python3 -c 'import wnpu' 2>"$T/err" &&
            grep -q 'ImportError.*make shared.*WNPU_LIBRARY.*ldconfig' "$T/err") ||
        fail "without a library: $(tail -n 1 "$T/err")"
    for to in tree/build/libwnpu.so tree/examples/libwnpu.so.0; do
        cp "$WNPU_LIBRARY" "$T/$to"
        (unset WNPU_LIBRARY LD_LIBRARY_PATH PYTHONPATH
            cd "$T/tree/examples" && python3 -c 'import wnpu' 2>"$T/err") ||
            fail "$to is not found: $(tail -n 1 "$T/err")"
        rm "$T/$to"
    done
    ! WNPU_LIBRARY=none.so python3 -c 'import wnpu' 2>"$T/err" && grep -q none.so "$T/err" ||
        fail "WNPU_LIBRARY=none.so: $(tail -n 1 "$T/err")"
}

# install_from PLACE: a folder or an sdist, in an empty environment, without a package index.
install_from() {
    rm -rf "$T/venv"
    try python3 -m venv "$T/venv" || return
    try env -u PYTHONPATH CFLAGS="-O1 -DWNPU_KEEP_FLAGS" PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
        "$T/venv/bin/pip" install -q --no-cache-dir --no-build-isolation "$1" || return
    data || return
    (unset WNPU_LIBRARY LD_LIBRARY_PATH PYTHONPATH
        cd "$T" && venv/bin/python -c '
import sys, wnpu
assert "venv" in wnpu.lib._name, wnpu.lib
with wnpu.Session(sys.argv[1]) as session:
    print("".join(s.text for s in session.transcribe(sys.argv[2])))' "$model" \
            "$here/examples/jfk.wav") >"$T/out" 2>"$T/err" &&
        grep -q 'what your country can do for you' "$T/out" ||
        fail "pip's module: $(tail -n 2 "$T/err" "$T/out")"
    try "$T/venv/bin/pip" uninstall -q -y wnpu
    [ -z "$(find "$T/venv" -name '*wnpu*')" ] || fail "left: $(find "$T/venv" -name '*wnpu*')"
}

test_pip() {
    python3 -c 'import venv, ensurepip' 2>/dev/null || { skip "no venv"; return; }
    git status --short >"$T/before" 2>/dev/null
    install_from ./examples/packaging
    git status --short 2>/dev/null | cmp -s "$T/before" || fail "pip leaves something in the sources"
    mkdir "$T/alone"
    cp examples/packaging/pip_backend.py "$T/alone"
    ! PYTHONPATH="$T/alone" python3 -c 'import pip_backend' 2>"$T/err" &&
        grep -q 'update pip' "$T/err" || fail "a copy of the folder: $(tail -n 1 "$T/err")"
}

# The sdist has all that a wheel and another sdist are made of.
test_pip_sdist() {
    python3 -c 'import venv, ensurepip' 2>/dev/null || { skip "no venv"; return; }
    mkdir "$T/sdist"
    for tree in "$here" "$T/sdist/wnpu"; do
        try env PYTHONPATH="$tree/examples/packaging" python3 -c '
import pip_backend, sys
pip_backend.build_sdist(sys.argv[1])' "$T/sdist" || return
        rm -rf "$T/sdist/wnpu"
        (cd "$T/sdist" && tar xf wnpu-*.tar.gz && mv wnpu-*[0-9] wnpu) || fail "tar"
    done
    install_from "$T"/sdist/wnpu-*.tar.gz
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
    try bindgen whisper_npu.h --allowlist-function 'wnpu_.*' --allowlist-type 'wnpu_.*' \
        --allowlist-var 'WNPU_.*' -o "$T/wnpu.rs" &&
        try rustc --crate-type lib -A warnings "$T/wnpu.rs" -o "$T/libwnpu.rlib"
    ! grep -q 'fn wnpu_get_segment(' "$T/wnpu.rs" || fail "a function without all fields"
}

test_go() {
    compiler go || return
    [ -z "$(gofmt -l examples/minimal.go)" ] || fail "gofmt would change examples/minimal.go"
    GOCACHE="$T/go" GO111MODULE=off CGO_CFLAGS="-I$here" CGO_LDFLAGS="-L$build" \
        try go build -o "$T/minimal_go" examples/minimal.go && shows "$T/minimal_go"
}

for t in python_layout python_transcribes python_cancels python_samples python_finds pip pip_sdist rust rust_bindgen go; do
    t_run test_$t
done
t_end
