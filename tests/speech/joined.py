#!/usr/bin/env python3
"""joined.py - words lost and errors where speakers take turns.

    joined.py make SPEECH DIRECTORY [--count 240] [--seed 1]
    joined.py score DIRECTORY --model MODEL [--transcribe PROGRAM] [--wer PROGRAM] [OPTION...]
    joined.py clips DIRECTORY --model MODEL ...     the same clips alone, for comparison

`make` joins clips of different speakers of the set `short` of SPEECH (16 kHz, mono, 16 bits, listed
in manifest.tsv), all groups (see wer.c) being equally frequent: two, in every fourth recording four, made equally loud, with pauses of 0.3 to 2 s
between them and faint noise throughout. The same seed gives the same recordings.

`score` transcribes them, options after the known ones being those of transcribe, and prints
errors, deleted words, and recordings in which four or more words in a row are missing although
the status is 0 and the ledger has nothing unresolved near them. `--verbose` prints the words.
Python's standard library is enough.
"""
import argparse
import array
import json
import math
import os
import random
import subprocess
import sys
import wave

RATE = 16000
LEVEL = 0.06   # root mean square of each clip, of full scale
NOISE = 0.0004 # of the noise
LOST = 4       # words in a row


def read_manifest(speech):
    with open(os.path.join(speech, "manifest.tsv"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    names = rows[0]
    rows = [dict(zip(names, row)) for row in rows[1:]]
    return [row for row in rows if row["set"] == "short"]


def by_group(rows):
    """The clips of each group: the beginning of their file names, up to the first '_'."""
    groups = {}
    for row in rows:
        groups.setdefault(os.path.basename(row["path"]).split("_")[0], []).append(row)
    return groups


def read_clip(path):
    with wave.open(path, "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"joined.py: {path} is not 16 kHz, mono, 16 bits")
        samples = array.array("h", file.readframes(file.getnframes()))
    power = math.sqrt(sum(x * x for x in samples) / max(len(samples), 1)) / 32768.0
    peak = max(max(samples), -min(samples)) / 32768.0
    gain = min(LEVEL / max(power, 1e-6), 0.9 / max(peak, 1e-6))
    return [x * gain for x in samples]


def write_wav(path, samples, noise):
    data = array.array("h", (max(-32768, min(32767, round(x + noise.gauss(0, NOISE * 32768))))
                             for x in samples))
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, RATE, len(data), "NONE", ""))
        file.writeframes(data.tobytes())


def make(arguments):
    clips = by_group(read_manifest(arguments.speech))
    groups = sorted(clips)
    draw = random.Random(arguments.seed)
    os.makedirs(arguments.directory, exist_ok=True)
    cache = {}
    lines = []
    for number in range(arguments.count):
        chosen = []
        while len(chosen) < (4 if number % 4 == 3 else 2):
            clip = draw.choice(clips[draw.choice(groups)])
            if all(clip["speaker"] != other["speaker"] for other in chosen[-1:]) and \
                    clip not in chosen:
                chosen.append(clip)
        samples = [0.0] * int(RATE * 0.3)
        for i, clip in enumerate(chosen):
            if i > 0:
                samples += [0.0] * int(RATE * draw.uniform(0.3, 2.0))
            path = os.path.join(arguments.speech, clip["path"])
            if path not in cache:
                cache[path] = read_clip(path)
            samples += cache[path]
        samples += [0.0] * int(RATE * 0.3)
        name = f"joined_{number:03d}.wav"
        write_wav(os.path.join(arguments.directory, name), samples, draw)
        lines.append("\t".join([name, " ".join(c["transcript"] for c in chosen),
                                " ".join(c["path"] for c in chosen)]))
    with open(os.path.join(arguments.directory, "joined.tsv"), "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def normalise(program, texts):
    lines = "".join(" ".join(text.split()) + "\n" for text in texts)
    done = subprocess.run([program, "-n"], input=lines, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.split("\n")[:len(texts)]]


def align(reference, words):
    """Edits of the best alignment: a list of (operation, word of the reference, position)."""
    n, m = len(reference), len(words)
    cost = [list(range(m + 1))]
    for i in range(1, n + 1):
        row, above = [i], cost[-1]
        for j in range(1, m + 1):
            row.append(min(above[j] + 1, row[-1] + 1,
                           above[j - 1] + (reference[i - 1] != words[j - 1])))
        cost.append(row)
    edits, i, j = [], n, m
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (reference[i - 1] != words[j - 1]):
            i, j = i - 1, j - 1
            edits.append(("=" if reference[i] == words[j] else "s", reference[i], words[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            edits.append(("d", reference[i], ""))
        else:
            j -= 1
            edits.append(("i", "", words[j]))
    return edits[::-1]


def lost_runs(edits):
    """Runs of at least LOST deleted words."""
    runs, run = [], []
    for operation, word, _ in edits + [("=", "", "")]:
        if operation == "d":
            run.append(word)
            continue
        if operation == "=" or operation == "s":
            if len(run) >= LOST:
                runs.append(" ".join(run))
            run = []
    return runs


def transcribe(arguments, options, names, out):
    os.makedirs(out, exist_ok=True)
    paths = [os.path.join(arguments.directory, name) for name in names]
    command = [arguments.transcribe, "--model", arguments.model, "--language", "en", *options,
               "--format", "json", "--output", out + "/", *paths]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode not in (0, 6):
        raise SystemExit(f"joined.py: transcribe ended with status {ended.returncode}: "
                         f"{ended.stderr[-500:]}")
    results = []
    for name in names:
        with open(os.path.join(out, name[:-4] + ".json"), encoding="utf-8") as file:
            results.append(json.load(file))
    return results


def score(arguments, options):
    with open(os.path.join(arguments.directory, "joined.tsv"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    out = os.path.join(arguments.directory, "out-" + str(os.getpid()))
    results = transcribe(arguments, options, [row[0] for row in rows], out)
    references = normalise(arguments.wer, [row[1] for row in rows])
    texts = normalise(arguments.wer, [result["text"] for result in results])
    words = errors = deleted = inserted = losses = silent = told = 0
    for row, result, reference, text in zip(rows, results, references, texts):
        edits = align(reference, text)
        unresolved = any(span["kind"] == "unresolved" for span in result["ledger"])
        runs = lost_runs(edits)
        words += len(reference)
        errors += sum(edit[0] != "=" for edit in edits)
        deleted += sum(edit[0] == "d" for edit in edits)
        inserted += sum(edit[0] == "i" for edit in edits)
        losses += len(runs) > 0
        silent += len(runs) > 0 and not unresolved
        told += unresolved
        if arguments.verbose and runs:
            print(row[0], "told" if unresolved else "silent", runs)
    for name in os.listdir(out):
        os.unlink(os.path.join(out, name))
    os.rmdir(out)
    print(f"{100 * errors / words:.2f} % of {words} words, {deleted} deleted, {inserted} inserted; "
          f"of {len(rows)} recordings {losses} lose {LOST} words in a row, {silent} of them "
          f"silently; {told} tell of speech without text")


def clips(arguments, speech):
    """Links the clips that were joined, each as often as it occurs, as recordings of their own."""
    with open(os.path.join(arguments.directory, "joined.tsv"), encoding="utf-8") as file:
        paths = [path for line in file for path in line.rstrip("\n").split("\t")[2].split()]
    texts = {row["path"]: row["transcript"] for row in read_manifest(speech)}
    to = os.path.join(arguments.directory, "clips")
    os.makedirs(to, exist_ok=True)
    with open(os.path.join(to, "joined.tsv"), "w", encoding="utf-8") as file:
        for number, path in enumerate(paths):
            name = f"clip_{number:04d}.wav"
            link = os.path.join(to, name)
            if os.path.lexists(link):
                os.unlink(link)
            os.symlink(os.path.abspath(os.path.join(speech, path)), link)
            file.write(f"{name}\t{texts[path]}\t{path}\n")


def main():
    build = os.environ.get("WNPU_BUILD", "build")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("command", choices=["make", "score", "clips"])
    parser.add_argument("directory", nargs="+")
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("--transcribe", default=os.path.join(build, "transcribe"))
    parser.add_argument("--wer", default=os.path.join(build, "wer"))
    parser.add_argument("--verbose", action="store_true")
    arguments, options = parser.parse_known_args()
    if arguments.command != "score":
        if len(arguments.directory) != 2:
            parser.error("this command needs SPEECH and DIRECTORY")
        speech, arguments.directory = arguments.directory
        arguments.speech = speech
        make(arguments) if arguments.command == "make" else clips(arguments, speech)
        return
    if len(arguments.directory) != 1 or arguments.model is None:
        parser.error("score needs DIRECTORY and --model")
    arguments.directory = arguments.directory[0]
    score(arguments, options)


if __name__ == "__main__":
    sys.exit(main())
