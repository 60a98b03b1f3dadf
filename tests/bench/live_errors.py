#!/usr/bin/env python3
"""live_errors.py - errors of live text beside those of the file, on recordings made anew by a seed.

    live_errors.py SPEECH MODEL [--seed N] [--each N] [--clips N] [--build DIR] [--steps MS,...]
                   [--follow N,...] [--keep DIR]

MODEL is a file, or a name for examples/fetch.sh. SPEECH has a manifest.tsv (path, set, speaker,
seconds, language, licence, source, transcript) whose set `short` is used: clips of 3 to 16 s in a
random order, --clips (3) of them joined with pauses of 0.3 to 2 s, --each (1) recordings for each
group: as they are, tempo 0.91 and 1.09, a telephone's band, pink noise at about 12 dB. Another seed
joins others at other places: choose a rule with one seed and judge it with others, since what is
tuned on two recordings does not hold elsewhere.

Prints word error rates by group, for a file run by default, for the windows of live runs without
confirming (--least 3000 --pause 700), and for each step of --commit with each --follow. Needs ffmpeg,
build/transcribe and build/wer."""
import argparse
import csv
import os
import random
import subprocess
import tempfile

FILTERS = {"plain": "anull", "slow": "atempo=0.91", "fast": "atempo=1.09",
           "phone": "highpass=f=300,lowpass=f=3400,aresample=8000,aresample=16000", "noise": "anull"}
RATE = ["-ar", "16000", "-ac", "1", "-bitexact"]


def ffmpeg(*arguments):
    subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], check=True)


def join(clips, group, chance, path):
    """Writes the clips with pauses after them, through the filter of their group."""
    inputs, graph = [], ""
    for i, clip in enumerate(clips):
        inputs += ["-i", clip]
        graph += (f"[{i}:a]aresample=16000,loudnorm=I=-20,aresample=16000,"
                  f"apad=pad_dur={chance.uniform(0.3, 2):.3f}[c{i}];")
    graph += "".join(f"[c{i}]" for i in range(len(clips)))
    graph += (f"concat=n={len(clips)}:v=0:a=1,adelay={chance.randrange(1500)},{FILTERS[group]}")
    if group == "noise":
        graph += (f"[s];anoisesrc=c=pink:a=0.06:r=16000:s={chance.randrange(1 << 31)}[n];"
                  "[s][n]amix=duration=first:normalize=0")
    ffmpeg(*inputs, "-filter_complex", graph, *RATE, path)


def make(speech, seed, each, clips, folder):
    """Makes the recordings; returns their names and transcripts."""
    with open(os.path.join(speech, "manifest.tsv"), encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
                if r["set"] == "short" and 3 < float(r["seconds"]) < 16]
    chance = random.Random(seed)
    chance.shuffle(rows)
    made = []
    for group in FILTERS:
        for i in range(each):
            if len(rows) < clips:
                raise SystemExit("live_errors: too few clips")
            taken = [rows.pop() for _ in range(clips)]
            name = f"{group}_{i}.wav"
            join([os.path.join(speech, r["path"]) for r in taken], group, chance,
                 os.path.join(folder, name))
            made.append((name, " ".join(r["transcript"] for r in taken)))
    return made


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("speech")
    parser.add_argument("model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--clips", type=int, default=3)
    parser.add_argument("--build", default="build")
    parser.add_argument("--steps", default="800")
    parser.add_argument("--follow", default="0,1")
    parser.add_argument("--keep")
    o = parser.parse_args()
    live = ["--least", "3000", "--pause", "700"]
    columns = {"file": [], "live": live}
    model = o.model if os.path.exists(o.model) else subprocess.run(
        [os.path.join(os.path.dirname(__file__), "..", "..", "examples", "fetch.sh"), o.model],
        stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout.strip()
    for step in o.steps.split(","):
        for follow in o.follow.split(","):
            columns[f"commit{step}-{follow}"] = live + ["--commit", step, "--follow", follow]
    with tempfile.TemporaryDirectory() as temporary:
        folder = o.keep or temporary
        os.makedirs(folder, exist_ok=True)
        made = make(o.speech, o.seed, o.each, o.clips, folder)
        texts = []
        with open(os.path.join(folder, "reference.tsv"), "w", encoding="utf-8") as file:
            file.writelines(f"{name}\t{text}\n" for name, text in made)
        for column, options in columns.items():
            texts.append(os.path.join(folder, column + ".tsv"))
            with open(texts[-1], "w", encoding="utf-8") as file:
                for name, _ in made:
                    done = subprocess.run(
                        [os.path.join(o.build, "transcribe"), "-q", "-m", model, "-l", "en",
                         *options, os.path.join(folder, name)],
                        stdout=subprocess.PIPE, encoding="utf-8")
                    if done.returncode not in (0, 6):  # 6: some of it is unresolved
                        raise SystemExit(f"live_errors: transcribe ended with {done.returncode}")
                    file.write(name + "\t" + " ".join(done.stdout.split()) + "\n")
        print(f"seed {o.seed}; columns: {', '.join(columns)}", flush=True)
        subprocess.run([os.path.join(o.build, "wer"), os.path.join(folder, "reference.tsv"), *texts],
                       check=True)


main()
