#!/bin/sh
# test_fleet.sh - examples/fleet: two servers behind HAProxy that are restarted while clients upload
# and speak. Needs civetweb, python3 and haproxy. TEST_UPLOADS says how many uploads a rolling
# restart must see.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/t.sh
t_models
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

test_rolling() { behind_haproxy rolling; }
test_jobs() { behind_haproxy jobs; }
test_identity() { behind_haproxy identity; }

for t in ${TEST_FLEET:-rolling jobs identity}; do
    t_run test_$t
done
t_end
