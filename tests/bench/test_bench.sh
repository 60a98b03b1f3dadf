#!/bin/sh
# test_bench.sh - what the benchmarks write can be read by machines. Needs the model tiny and the
# demo recording in the cache (examples/fetch.sh tiny demo). How fast anything is does not matter.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
build=${WNPU_BUILD:-build}
t_temp

tiny=$(examples/fetch.sh --offline tiny 2>/dev/null) &&
    demo=$(examples/fetch.sh --offline demo 2>/dev/null) || demo=

need() {
    [ -n "$demo" ] || { skip "no data; examples/fetch.sh tiny demo gets it"; return 1; }
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return 1; }
}

test_json() {
    need || return
    "$build/bench" --model "$tiny" --threads 2 --commit 0123abc --json >"$T/json" \
        2>"$T/log" || fail "$(cat "$T/log")"
    python3 - "$T/json" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, math, sys
bench = json.load(open(sys.argv[1]))
for key in ("peak_gmac_s", "bandwidth_gb_s", "log_mel_ms", "encoder_ms", "encoder_fraction_of_peak",
            "decoder_ms_per_token", "decoder_fraction_of_bandwidth", "decoder_beams8_over_1",
            "decoder_windows8_over_1", "realtime_factor", "rss_mb", "model_open_ms",
            "sustained_gmac_s", "encoder_fraction_of_sustained", "sustained_gb_s",
            "decoder_fraction_of_sustained", "decoder_reading_ms",
            "decoder_reading_windows8_over_1", "decoder_ms_two_threads", "detector_ms",
            "detector_ms_batch4"):
    value = bench[key]
    assert isinstance(value, (int, float)) and math.isfinite(value) and value > 0, (key, value)
assert bench["threads"] == 2 and bench["model"] == "tiny", bench
assert bench["isa"] not in ("", "auto", "scalar"), bench
assert bench["machine"] and bench["commit"] == "0123abc", bench
PYTHON
}

test_server() {
    need || return
    [ "${WNPU_CIVETWEB-}" != no ] && [ -x "$build/server" ] ||
        { skip "no server: civetweb is missing"; return; }
    WNPU_BUILD=$build MODEL=$tiny SPEECH=$demo tests/bench/bench_server.py --json --clients 2 \
        --requests 2 --rounds 1 >"$T/json" 2>"$T/log" || fail "$(tail -n 3 "$T/log")"
    python3 - "$T/json" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import json, sys
for sessions, line in enumerate(open(sys.argv[1]), 1):
    bench = json.loads(line)
    assert bench["sessions"] == sessions and len(bench) == 11, bench
    assert all(value > 0 for value in bench.values()), bench
    assert bench["rss_after_mb"] < bench["rss_before_mb"] + 16, bench
assert sessions == 2
PYTHON
}

# INT8 is close to float, and not the same; predictions that were kept give the same figures.
test_fidelity() {
    need || return
    for i in 1 2; do
        "$build/fidelity" -v -r "$T/kept" "$tiny" "$demo" >"$T/fidelity.$i" 2>"$T/log" ||
            fail "$(cat "$T/log")"
    done
    cmp -s "$T/fidelity.1" "$T/fidelity.2" || fail "other figures: $(cat "$T/fidelity.2")"
    awk '/recordings/ { n++
        if (!($3 > 9 && $4 <= 3 && $5 > 0.01 && $5 < 0.6 && $6 > 0.1 && $6 < 20)) exit 1 }
        END { if (n != 1) exit 1 }' "$T/fidelity.1" || fail "$(cat "$T/fidelity.1")"
    run 1 "$build/fidelity" "$tiny" "$T/fidelity.1"
    run 1 "$build/fidelity" -r "$T/fidelity.1" "$tiny" "$demo"
}

test_plot() {
    need || return
    "$build/bench_plot" --model "$tiny" --output "$T/plot.svg" --commit 'a <"&"> commit' \
        >"$T/table" 2>"$T/log" || fail "$(cat "$T/log")"
    python3 - "$T/plot.svg" >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import sys, xml.etree.ElementTree as xml
svg = xml.parse(sys.argv[1]).getroot()
assert svg.tag == "{http://www.w3.org/2000/svg}svg", svg.tag
texts = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
labels = ("conv1 conv2 qkv attention attn_out fc1 fc2 cross_kv "
          + "qkv self-attention projections cross-attention mlp vocabulary " * 2).split()
for label in set(labels):
    assert texts.count(label) == labels.count(label), (label, texts)
assert any('a <"&"> commit' in t for t in texts), texts
assert not any("nan" in t or "inf" in t.split() for t in texts), texts
PYTHON
    [ "$(wc -l <"$T/table")" -eq 21 ] || fail "a table of $(wc -l <"$T/table") lines"
}

# What compare.sh and cpu_estimate.py use of the library is still there.
test_stages() {
    ${CC:-cc} -std=gnu11 -fsyntax-only -Wall -Wextra -I. -DLIBRARY='"whisper_npu.c"' \
        tests/bench/stages.c tests/bench/bench_work.c >"$T/log" 2>&1 || fail "$(head -n 3 "$T/log")"
    ${CC:-cc} -std=c11 -fsyntax-only -Wall -Wextra tests/bench/count_blocks.c >"$T/log" 2>&1 ||
        fail "$(head -n 3 "$T/log")"
}

# A few lines with finite figures, for one thread and for two.
test_share() {
    "$build/make_toy" "$T" || fail "no toy model"
    "$build/bench" --model "$T/toy.bin" --threads 2 --share --commit abc examples/jfk.wav \
        >"$T/share" 2>"$T/log" || fail "$(cat "$T/log")"
    [ "$(wc -l <"$T/share")" -le 10 ] || fail "$(wc -l <"$T/share") lines"
    [ "$(grep -c '^[12] threads*: 11.0 s of speech' "$T/share")" -eq 2 ] &&
        [ "$(grep -c 'token [0-9.]* ms; [0-9.]* GMAC/s, [0-9.]* GB/s$' "$T/share")" -eq 2 ] &&
        ! grep -qiE 'nan|inf' "$T/share" || fail "$(cat "$T/share")"
}

# The whole stages follow from their parts, and a missing tool is named.
test_estimate() {
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; return; }
    tests/bench/cpu_estimate.py --help >"$T/log" || fail "--help: status $?"
    mkdir "$T/empty"
    python=$(python3 -c 'import sys; print(sys.executable)') # and not a script that looks for it
    PATH=$T/empty "$python" tests/bench/cpu_estimate.py model >"$T/log" 2>&1 &&
        fail "works without llvm-mca"
    grep -q 'llvm-mca is missing' "$T/log" || fail "$(tail -n 2 "$T/log")"
    PYTHONDONTWRITEBYTECODE=1 python3 - >"$T/log" 2>&1 <<'PYTHON' || fail "$(tail -n 3 "$T/log")"
import sys
sys.path.insert(0, "tests/bench")
from cpu_estimate import parse_counts, products, readable, whole

def encoder(positions, layers):
    return 7 * positions + layers * (3 * positions + 2 * positions ** 2)

parts = [5, encoder(128, 1), encoder(128, 2), encoder(256, 1), 128, 1, 9]
counts, ends = parse_counts([f"n {i} 400 {n}" for i, n in enumerate(parts)] + ["end 400 40c"])
assert ends == {0x400: 0x40c}, ends
got = {stage: blocks[0x400]
       for stage, blocks in whole(counts, {"layers": 6, "positions": 1500}).items()}
assert got == {"mel": 5, "encoder": encoder(1500, 6), "cross": 1500, "detector": 6, "token": 9}, got
assert readable("b.ne\t0x400a10 <gm_dot_micro+0x10>", False) == "b.ne\t#0"
assert products(["sdot\tv0.4s, v1.16b, v2.4b[1]", "ldr\tq1, [x0]"]) == 16
PYTHON
}

if [ -n "${WNPU_SANITIZED-}" ]; then
    echo "nothing here is worth a sanitizer's time"
    t_end
    exit
fi
t_run test_json
t_run test_server
t_run test_fidelity
t_run test_plot
t_run test_stages
t_run test_share
t_run test_estimate
t_end
