#!/bin/sh
# test_server.sh - build/server over loopback: every protocol against what transcribe writes, load,
# disconnecting clients, SIGTERM, memory, hostile requests, and the page in Chromium. Needs
# civetweb, python3, the model tiny and the demo recording in the cache; TEST_SHOTS, if set, is a directory
# for pictures of the page. TEST_REQUESTS and TEST_HOSTILE say how many requests the long forms make,
# TEST_SECONDS how long clients and attackers of all protocols go on at once, and TEST_SERVER which of
# the tests run. An hour of that under AddressSanitizer, after make test-asan has built it:
#     TEST_TIMEOUT=4500 TEST_SERVER=mixed TEST_SECONDS=3600 WNPU_SANITIZED=1 \
#         tests/run build/asan test_server.sh
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

MODEL=$(examples/fetch.sh --offline tiny 2>/dev/null)
ENGLISH=$(examples/fetch.sh --offline base.en 2>/dev/null)
SPEECH=$(examples/fetch.sh --offline demo 2>/dev/null)
TOY=$T/toy.bin
NODE_MODULES=${NODE_MODULES:-${XDG_CACHE_HOME:-$HOME/.cache}/whisper_npu/node/node_modules}
LIVEKIT_MODULES=${LIVEKIT_MODULES:-$(dirname "$NODE_MODULES")/livekit/node_modules}
export MODEL ENGLISH SPEECH TOY T NODE_MODULES LIVEKIT_MODULES
export WNPU_BUILD="$build"

need() {
    [ "${WNPU_CIVETWEB-}" != no ] && [ -x "$build/server" ] ||
        { skip "no server: civetweb is missing"; return 1; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return 1; }
    [ -n "$MODEL" ] && [ -n "$SPEECH" ] || { skip "no model or recording"; return 1; }
    [ -f "$TOY" ] || "$build/make_toy" "$T" >/dev/null || { fail "no toy model"; return 1; }
}

# check NAME: a test of server_tests.py
check() {
    need || return
    if python3 tests/api/server_tests.py "$1" >"$T/log" 2>&1; then
        sed 's/^/  /' "$T/log"
    else
        fail "$(tail -n 12 "$T/log")"
    fi
}

test_formats() { check formats; }
test_models() { check models; }
test_jobs() { check jobs; }
test_jobs_told() { check jobs_told; }
test_tls() {
    command -v openssl >/dev/null 2>&1 && command -v curl >/dev/null 2>&1 ||
        { skip "no openssl or no curl"; return; }
    check tls
}
test_options() { check options; }
test_languages() {
    [ -n "$ENGLISH" ] || { skip "no English model"; return; }
    check languages
}
test_errors() { check errors; }
test_openapi() { check openapi; }
test_several_keys() { check several_keys; }
test_keys() { check keys; }
test_listening() { check listening; }
test_subtitles() { check subtitles; }
test_paragraphs() { check paragraphs; }
test_speech() { check speech; }
test_aligned() { check aligned; }
test_long_recordings() {
    command -v ffmpeg >/dev/null 2>&1 || { skip "no ffmpeg"; return; }
    check long_recordings
}
test_websockets() { check websockets; }
test_wyoming_chunks() { check wyoming_chunks; }
test_operation() { check operation; }
test_origins() { check origins; }
test_threads() { check threads; }
test_persistent() { check persistent; }
test_events() { check events; }
test_speakers() { check speakers; }
test_wyoming() { check wyoming; }
test_wyoming_long() { check wyoming_long; }
test_wyoming_refused() { check wyoming_refused; }
test_realtime() { check realtime; }
test_realtime_settings() { check realtime_settings; }
test_realtime_divided() { check realtime_divided; }
test_realtime_idle() { check realtime_idle; }
# check_spoken NAME: a test that speaks
check_spoken() {
    command -v sox >/dev/null 2>&1 && command -v espeak-ng >/dev/null 2>&1 ||
        { skip "no sox or no espeak-ng"; return; }
    check "$1"
}
test_realtime_speech() { check_spoken realtime_speech; }
test_realtime_turns() { check_spoken realtime_turns; }
test_realtime_semantic() { check_spoken realtime_semantic; }
test_realtime_words() { check_spoken realtime_words; }
test_realtime_keys() { check realtime_keys; }
test_realtime_refused() { check realtime_refused; }
# The SDK is in NODE_MODULES; examples/fetch.sh does not get it, npm install openai does.
test_openai() {
    command -v node >/dev/null 2>&1 || { skip "no node"; return; }
    [ -d "$NODE_MODULES/openai" ] || { skip "no OpenAI SDK: npm install --prefix" \
        "$(dirname "$NODE_MODULES") openai"; return; }
    check openai
}
# check_node NAME DIRECTORY PACKAGE: a test that needs a package of npm
check_node() {
    command -v node >/dev/null 2>&1 || { skip "no node"; return; }
    [ -d "$2/$3" ] || { skip "no $3 in $2; .ci/run has the npm install"; return; }
    check_spoken "$1"
}
test_sdks() { check_node sdks "$NODE_MODULES" openai; }
test_livekit() { check_node livekit "$LIVEKIT_MODULES" @livekit/agents-plugin-openai; }
test_frames() { check frames; }
test_forbidden() { check forbidden; }
# check_page NAME: a test of server_tests.py that opens the page
check_page() {
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        command -v google-chrome >/dev/null 2>&1 || { skip "no chromium"; return; }
    command -v espeak-ng >/dev/null 2>&1 || { skip "no espeak-ng"; return; }
    check "$1"
}
test_browser() { check_page browser; }
test_browser_again() { check_page browser_again; }
test_browser_errors() { check_page browser_errors; }
test_page() { check_page page; }
test_together() { check together; }
test_mixed() { check mixed; }
test_queue() { check queue; }
test_disconnect() { check disconnect; }
test_half_closed() { check half_closed; }
test_draining() { check draining; }
test_proxies() { check proxies; }
test_cut_short() { check cut_short; }
test_shutdown() { check shutdown; }
test_memory() { check memory; }
test_hostile() { check hostile; }
test_silent() { check silent; }
test_slow_bodies() { check slow_bodies; }
test_containers() {
    command -v ffmpeg >/dev/null 2>&1 || { skip "no ffmpeg"; return; }
    check containers
}

for t in ${TEST_SERVER:-formats subtitles paragraphs speech aligned models jobs jobs_told tls options languages errors keys several_keys openapi listening origins operation threads persistent \
    containers events speakers \
    wyoming wyoming_chunks wyoming_long wyoming_refused realtime realtime_settings realtime_idle realtime_speech \
    realtime_divided realtime_turns realtime_words \
    realtime_semantic realtime_keys realtime_refused openai sdks livekit browser browser_again browser_errors page together mixed \
    queue disconnect half_closed \
    shutdown cut_short memory long_recordings websockets hostile frames forbidden silent slow_bodies}; do
    t_run test_$t
done
t_end
