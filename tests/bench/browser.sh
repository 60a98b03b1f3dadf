#!/usr/bin/env bash
# browser.sh - [ROUNDS]: 30 s of speech, the modules of "make browser" in node (simd, plain) beside the
# native program (sse4.1, scalar), in interleaved rounds. For each the least CPU time and the least
# wall time of the whole program, which opens the model and compiles the module, how many times as
# fast as speech that is, and its wall time over the native program's on as many threads; for modules
# also the least wall time of transcribe() alone. KINDS: some of these, with ":2" for two threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "${WNPU_BUILD:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
recording=$(examples/fetch.sh demo)
ffmpeg -nostdin -loglevel error -i "$recording" -t 30 -ar 16000 -ac 1 "$work/30s.wav"
cat >"$work/run.mjs" <<END
import { open } from "file://$build/browser/wnpu.mjs";
import { readFile } from "node:fs/promises";
const [,, model, kind, threads] = process.argv;
const speech = await open({ model, worker: threads > 1, threads: Number(threads),
                            simd: kind !== "plain" });
const sound = new Uint8Array(await readFile("$work/30s.wav")), began = performance.now();
await speech.transcribe(sound);
console.log(((performance.now() - began) / 1000).toFixed(2));
speech.close();
END

# run KIND THREADS: prints the seconds of transcribe() alone, for modules.
run() {
    case $1 in
    simd | plain) node "$work/run.mjs" "$model" "$1" "$2" ;;
    *) "$build/transcribe" -q -t "$2" --isa "$1" -m "$model" "$work/30s.wav" >"$work/text" ;;
    esac
}

# keep NAME SECONDS: the least.
keep() {
    if [ -n "$2" ]; then
        least[$1]=$(printf '%s\n' "$2" "${least[$1]-$2}" | sort -n | head -n 1)
    fi
}

read -ra kinds <<<"${KINDS:-sse4.1 simd sse4.1:2 simd:2 scalar plain}"
declare -A natives=([simd]=sse4.1 [plain]=scalar)
for name in tiny base.en; do
    model=$(examples/fetch.sh "$name")
    declare -A least=()
    for _ in $(seq "${1:-3}"); do
        for kind in "${kinds[@]}"; do
            [[ $kind == *:* ]] && threads=${kind#*:} || threads=1
            read -r cpu wall <<<"$( (TIMEFORMAT='%U %R'; time run "${kind%:*}" "$threads" \
                >"$work/alone") 2>&1)"
            keep "$kind cpu" "$cpu"
            keep "$kind wall" "$wall"
            keep "$kind alone" "$(cat "$work/alone")"
        done
    done
    for kind in "${kinds[@]}"; do
        native=${natives[${kind%:*}]-none}${kind#"${kind%:*}"}
        printf '%s %s %s %s %s %s\n' "$name" "$kind" "${least[$kind cpu]}" "${least[$kind wall]}" \
            "${least[$native wall]--}" "${least[$kind alone]--}" |
            awk '{ printf "%-8s %-9s CPU %6.2f s, wall %6.2f s, %5.1f x", $1, $2, $3, $4, 30 / $4
                   if ($5 != "-") { printf ", %.2f of native speed", $5 / $4 }
                   if ($6 != "-") { printf "; transcribe() %.2f s, %.1f x", $6, 30 / $6 }
                   print "" }'
    done
done
