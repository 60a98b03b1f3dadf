#!/usr/bin/env bash
# browser.sh - [ROUNDS]: CPU time of whole programs on one thread for 30 s of speech, the least of some
# rounds: the modules of "make browser" in node (simd, plain) beside the native program (sse4.1,
# scalar). KINDS: some of these, or threads: CPU time of the module on two threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "${WNPU_BUILD:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
recording=$(scripts/fetch.sh demo)
ffmpeg -nostdin -loglevel error -i "$recording" -t 30 -ar 16000 -ac 1 "$work/30s.wav"
cat >"$work/run.mjs" <<END
import { open } from "file://$build/browser/wnpu.mjs";
import { readFile } from "node:fs/promises";
const [,, model, simd] = process.argv;
const speech = await open({ model, worker: simd === "threads", threads: 2,
                            simd: simd !== "plain" });
await speech.transcribe(new Uint8Array(await readFile("$work/30s.wav")));
speech.close();
END

run() {
    case $1 in
    simd | plain | threads) node "$work/run.mjs" "$model" "$1" ;;
    *) "$build/transcribe" -q -t 1 --isa "$1" -m "$model" "$work/30s.wav" ;;
    esac
}

read -ra kinds <<<"${KINDS:-sse4.1 simd scalar plain}"
for name in tiny base.en; do
    model=$(scripts/fetch.sh "$name")
    declare -A least=()
    for _ in $(seq "${1:-3}"); do
        for kind in "${kinds[@]}"; do
            now=$( (TIMEFORMAT=%U; time run "$kind" >"$work/out") 2>&1)
            least[$kind]=$(printf '%s\n' "$now" "${least[$kind]-$now}" | sort -n | head -n 1)
        done
    done
    for kind in "${kinds[@]}"; do
        printf '%-8s %-7s %s s\n' "$name" "$kind" "${least[$kind]}"
    done
done
