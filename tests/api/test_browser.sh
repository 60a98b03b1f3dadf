#!/bin/sh
# test_browser.sh - the library as WebAssembly with its JavaScript: make browser, and the package
# that npm makes of it, installed in an empty folder; and the page in a headless Chromium.
#
# TEST_CLIPS: recordings for each model (default 1)
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here depends on sanitizers"
    t_end
    exit
fi
t_models
here=$PWD
build=$(cd "$build" && pwd) || exit 1
toy_says "$build" || exit 1

# in_node TEST ARGUMENTS...: of browser_package.mjs, where the package is installed.
in_node() {
    (cd "$T/app" && node "$here/tests/api/browser_package.mjs" "$@") >"$T/out" 2>&1 &&
        [ ! -s "$T/out" ] || fail "$(head -n 20 "$T/out")"
}

test_package() {
    have clang node npm wasm-ld || return
    [ -f /usr/lib/wasm32-wasi/libc.a ] || { skip "no wasi-libc"; return; }
    try make -s BUILD="$build" browser || return
    mkdir "$T/app" && (cd "$T/app" && npm pack -s "$build/browser" &&
        npm install -s --offline --no-audit --no-fund ./wnpu-*.tgz) >"$T/out" 2>&1 ||
        { fail "$(cat "$T/out")"; return; }
    package=$T/app/node_modules/wnpu
    for module in wnpu wnpu_threads wnpu_scalar; do
        [ "$(wc -c <"$package/$module.wasm")" -lt 436000 ] || fail "$module.wasm is large"
    done
    version=$(sed -n 's/^#define WNPU_VERSION_[MP][A-Z]* //p' whisper_npu.h | paste -s -d . -)
    grep -q "\"version\": \"$version\"" "$package/package.json" || fail "not version $version"
    # Everything that is exported has a type.
    sed -n 's/^export \(async \)*\(function\|class\|const\) \([A-Za-z]*\).*/\3/p; ' \
        "$package/wnpu.mjs" >"$T/names"
    sed -n 's/^export { \(.*\) };/\1/p' "$package/wnpu.mjs" | tr -d ' ' | tr ',' '\n' >>"$T/names"
    while read -r name; do
        grep -qE "^export (function|class|const) $name\b" "$package/wnpu.d.ts" || fail "no type: $name"
    done <"$T/names"
    [ "$(wc -l <"$T/names")" -gt 3 ] || fail "what is exported? $(cat "$T/names")"
    in_node toy "$T/toy.bin" "$T/noise.wav" "$T/want"
}

# link MODULE OBJECT OPTIONS...: with the library's object of make browser.
link() {
    module=$1 object=$2
    shift 2
    try clang --target=wasm32-wasi -nostartfiles -L/usr/lib/wasm32-wasi "$object" \
        "$build/wasm/whisper_npu.o" -Wl,--no-entry,--gc-sections,-s,--stack-first "$@" -o "$module"
}

# Also a module that traps in a thread, and one without memory for a model.
test_errors() {
    [ -d "$T/app/node_modules" ] || { skip "no package"; return; }
    try clang --target=wasm32-wasi -isystem /usr/include/wasm32-wasi -O2 -msimd128 -matomics \
        -mbulk-memory -DWNPU_NO_OS -c tests/api/browser_trap.c -o "$T/trap.o" || return
    link "$T/trap.wasm" "$T/trap.o" -Wl,--shared-memory,--import-memory,--no-check-features \
        -Wl,--initial-memory=4194304,--max-memory=4294967296,--export=__stack_pointer || return
    link "$T/small.wasm" "$build/wasm/glue.o" -Wl,--max-memory=2097152 || return
    in_node errors "$T/toy.bin" "$T/noise.wav" "$T/trap.wasm" "$T/small.wasm"
}

# The same bytes as from the native program, at once and live.
test_clips() {
    [ -d "$T/app/node_modules" ] || { skip "no package"; return; }
    [ -n "$tiny" ] && [ -n "$base" ] && [ -d "$speech/short" ] || { skip "no models or speech"; return; }
    speech=$(cd "$speech" && pwd)
    for model in "$tiny" "$base"; do
        set --
        for clip in $(find "$speech/short" -name '*.wav' | sort | head -n "${TEST_CLIPS:-1}"); do
            out=$T/$(basename "$model").$(basename "$clip")
            "$build/transcribe" -q -m "$model" -f json "$clip" >"$out.json"
            "$build/transcribe" -q -m "$model" --least 3000 --pause 700 -f json "$clip" >"$out.live"
            set -- "$@" "$clip" "$out.json" "$out.live"
        done
        in_node clips "$model" "$@"
    done
}

test_cancel() {
    [ -d "$T/app/node_modules" ] || { skip "no package"; return; }
    [ -n "$tiny" ] && have sox || { skip "no model or sox"; return; }
    demo=$(examples/fetch.sh --offline demo 2>/dev/null)
    [ -n "$demo" ] || { skip "no recording"; return; }
    # After the first segment there is so much left that it takes longer than to hear of the cancel.
    sox "$demo" "$demo" -r 16000 -c 1 -b 16 "$T/long.wav" || { fail "sox"; return; }
    "$build/transcribe" -q -m "$tiny" -f json "$T/long.wav" >"$T/long.json"
    in_node cancel "$tiny" "$T/long.wav" "$T/long.json"
}

# site: $T/site with the page and models, and $T/spoken.wav.
site() {
    [ -d "$T/app/node_modules" ] || { skip "no package"; return; }
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        command -v google-chrome >/dev/null 2>&1 || { skip "no chromium"; return; }
    have python3 sox espeak-ng || return
    [ -n "$tiny" ] || { skip "no model"; return; }
    if [ ! -d "$T/site" ]; then
        cp -r "$build/browser" "$T/site"
        ln -s "$tiny" "$T/site/ggml-tiny.bin"
        head -c 100000 "$tiny" >"$T/site/damaged.bin"
        espeak-ng -s 140 -w "$T/said.wav" \
            "Tomorrow morning we will all go by train to the old station."
        sox -R -D "$T/said.wav" -b 16 -r 16000 "$T/spoken.wav" pad 1 3
    fi
}

# page TEST ARGUMENTS...: of browser_page.py
page() {
    python3 tests/api/browser_page.py "$T/site" "$@" >"$T/out" 2>&1 ||
        fail "$(tail -n 5 "$T/out")"
}

test_page_recording() {
    site || return
    run 0 "$build/transcribe" -q -m "$tiny" --words -f json,srt --subtitles -o "$T/page" \
        "$T/spoken.wav"
    page recording "$T/spoken.wav" "$T/page.json" "$T/page.srt"
}

test_page_microphone() { site && page microphone "$T/spoken.wav" station; }
test_page_errors() { site && page errors "$T/spoken.wav"; }

for t in package errors clips cancel page_recording page_microphone page_errors; do
    t_run test_$t
done
t_end
