#!/bin/sh
# test_fleet.sh - examples/fleet: two servers behind HAProxy that are restarted while clients upload
# and speak; an archive on Dask, whose workers are killed. Needs civetweb, python3, haproxy, and
# python3-distributed. TEST_UPLOADS says how many uploads a rolling
# restart must see.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models
case $build in /*) ;; *) build=$PWD/$build ;; esac
TOY=$T/toy.bin
PATH=$PATH:/usr/sbin
HAPROXY=$(command -v haproxy)
export T TOY HAPROXY
export WNPU_BUILD="$build"

# fleet NAME: a test of fleet_tests.py
fleet() {
    [ -f "$TOY" ] || "$build/make_toy" "$T" >/dev/null || { fail "no toy model"; return; }
    if python3 tests/api/fleet_tests.py "$1" >"$T/log" 2>&1; then
        sed 's/^/  /' "$T/log"
    else
        fail "$(tail -n 12 "$T/log")"
    fi
}

behind_haproxy() {
    [ "${WNPU_CIVETWEB-}" != no ] && [ -x "$build/server" ] ||
        { skip "no server: civetweb is missing"; return; }
    have python3 haproxy && fleet "$1"
}

# with_dask NAME: with the first python that has it.
with_dask() {
    for PYTHON in python3 /usr/bin/python3; do
        "$PYTHON" -c 'import distributed, fsspec' 2>/dev/null && break
        PYTHON=
    done
    [ -n "$PYTHON" ] || { skip "no python3-distributed"; return; }
    export PYTHON WNPU_LIBRARY="$build/libwnpu.so.0"
    chmod 755 "$T"
    fleet "$1"
}

test_parts() {
    [ -n "$tiny" ] || { skip "no model"; return; }
    have python3 || return
    export MODEL="$tiny" WNPU_LIBRARY="$build/libwnpu.so.0"
    fleet parts
}

test_joins() {
    [ -n "$tiny" ] || { skip "no model"; return; }
    have python3 || return
    export MODEL="$tiny" WNPU_LIBRARY="$build/libwnpu.so.0"
    fleet joins
}

# What transcribe says of cuts.
test_cuts() {
    [ -n "$tiny" ] && [ -s "$T/two.wav" ] || { skip "no model"; return; }
    run 0 "$build/transcribe" -q -m "$tiny" -l en --cuts 10 --channel 0 "$T/two.wav"
    grep -Eq '^[0-9]+\.[0-9]{3}$' "$T/out" || fail "$(cat "$T/out")"
    run 0 "$build/transcribe" -q -m "$tiny" -l en --cuts 10 --speakers channels "$T/two.wav"
    grep -Eq '^[01] [0-9]+\.[0-9]{3}$' "$T/out" || fail "$(cat "$T/out")"
    run 1 "$build/transcribe" -q -m "$tiny" --cuts 10 "$T/two.wav"
    grep -q "language" "$T/err" || fail "$(cat "$T/err")"
}

test_archive_killed() { with_dask archive_killed; }
test_archive_shared() { with_dask archive_shared; }
test_archive_faults() { with_dask archive_faults; }
# Both scripts run each recording once, say what fails, and go on where they stopped. Slurm's tasks
# are run as it runs them.
test_scripts() {
    have parallel awk || return
    "$build/make_toy" "$T" >/dev/null || { fail "no toy model"; return; }
    mkdir -p "$T/many" "$T/slurm"
    for i in 1 2 3 4 5; do
        cp examples/jfk.wav "$T/many/j$i.wav"
    done
    printf '%s\n' "$T"/many/j*.wav "$T/many/none.wav" >"$T/list"
    TRANSCRIBE=$build/transcribe FLEET=$PWD/examples/fleet
    export TRANSCRIBE FLEET
    run 3 examples/fleet/parallel.sh "$T/toy.bin" "$T/many-out" "$T/list" --vad off --max-tokens 8
    { grep -q '^none: .*No such file' "$T/err" && grep -q '^[05] done, [05] incomplete, 1 f' "$T/err"; } ||
        fail "$(cat "$T/err")"
    "$TRANSCRIBE" -q -m "$T/toy.bin" --vad off --max-tokens 8 -f json examples/jfk.wav >"$T/want"
    for i in 1 2 3 4 5; do
        cmp -s "$T/want" "$T/many-out/j$i.json" || fail "another text of $i"
    done
    rm "$T/many-out/j3.status"
    echo gone >"$T/many-out/j3.json"
    echo kept >"$T/many-out/j4.json"
    run 3 examples/fleet/parallel.sh "$T/toy.bin" "$T/many-out" "$T/list" --vad off --max-tokens 8
    cmp -s "$T/want" "$T/many-out/j3.json" || fail "what was not finished was not done"
    [ "$(cat "$T/many-out/j4.json")" = kept ] || fail "what was finished was done again"
    echo "$T/other/j1.mp3" >>"$T/list"
    run 1 examples/fleet/parallel.sh "$T/toy.bin" "$T/many-out" "$T/list"
    sed -i '$d' "$T/list"
    for i in 4 5 6; do
        SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_ID=$i \
            bash examples/fleet/slurm.sh "$T/toy.bin" "$T/slurm" "$T/list" --vad off --max-tokens 8 \
            2>"$T/err"
        echo $? >>"$T/slurm/codes"
    done
    [ "$(grep -c 3 "$T/slurm/codes")" -eq 1 ] || fail "status $(tr '\n' ' ' <"$T/slurm/codes")"
    n=$(find "$T/slurm" -name '*.json' | wc -l)
    { [ "$n" -eq 5 ] && cmp -s "$T/want" "$T/slurm/j2.json"; } ||
        fail "Slurm's tasks left something out"
}

test_rolling() { behind_haproxy rolling; }
test_jobs() { behind_haproxy jobs; }
test_identity() { behind_haproxy identity; }

for t in ${TEST_FLEET:-parts joins cuts scripts archive_killed archive_faults archive_shared \
        rolling jobs identity}; do
    t_run test_$t
done
t_end
