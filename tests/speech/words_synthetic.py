#!/usr/bin/env python3
"""words_synthetic.py - word times on recordings whose words stand at known places.

usage: tests/speech/words_synthetic.py make DIRECTORY   writes NAME.wav and NAME.tsv
       tests/speech/words_synthetic.py score DIRECTORY  reads NAME.tsv and NAME.json, prints errors

espeak-ng speaks each piece by itself; the pieces are put one behind another with known silences
and a little noise over all of it. A piece is one word, or a phrase of which only the first word's
begin and the last word's end are known. NAME.tsv has word, begin, end in seconds, - where unknown.
NAME.json is what `transcribe --words -f json` makes of NAME.wav.
"""
import array
import glob
import json
import os
import re
import subprocess
import sys
import wave

RATE = 22050
SENTENCES = [
    "The old farmer walked slowly along the river and looked for his brown dog.",
    "She opened the window because the kitchen was full of smoke.",
    "Twelve people waited at the station until the last train arrived.",
    "My brother bought seven apples and a bottle of milk.",
    "Nobody remembers the name of the island where they found the ship.",
    "Please bring the yellow umbrella when you come home tonight.",
    "The teacher wrote a long letter to the children of the village.",
    "Winter came early and the garden disappeared under heavy snow.",
]
# name, voice, words a minute, pieces, silence between pieces and between sentences in seconds
KINDS = [
    ("words_close", "en-us", 150, "words", 0.04, 0.6),
    ("words_apart", "en-us", 150, "words", 0.2, 0.8),
    ("words_female", "en-us+f3", 140, "words", 0.06, 0.5),
    ("words_british", "en-gb", 150, "words", 0.06, 0.7),
    ("phrases", "en-us", 165, "phrases", 0.35, 1.0),
    ("sentences", "en-gb", 160, "sentences", 0.0, 1.5),
]


def speak(text, voice, speed, directory):
    """Samples from the first to the last that is not silence."""
    path = os.path.join(directory, "piece.wav")
    subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", path, text], check=True)
    with wave.open(path) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            sys.exit("espeak-ng writes another format than it used to")
        samples = array.array("h", file.readframes(file.getnframes()))
    os.remove(path)
    loud = [i for i, x in enumerate(samples) if abs(x) > 200]
    return samples[loud[0]:loud[-1] + 1]


def cut(sentence, pieces):
    words = sentence.split()
    if pieces == "words":
        return [[w] for w in words]
    if pieces == "phrases":
        return [words[i:i + 4] for i in range(0, len(words), 4)]
    return [words]


def make(directory):
    os.makedirs(directory, exist_ok=True)
    state = 1
    for name, voice, speed, pieces, gap, pause in KINDS:
        samples, lines = array.array("h", bytes(2 * RATE)), []
        for sentence in SENTENCES:
            for words in cut(sentence, pieces):
                begin = len(samples) / RATE
                samples.extend(speak(" ".join(words), voice, speed, directory))
                end = len(samples) / RATE
                for i, word in enumerate(words):
                    lines.append("%s\t%s\t%s\n" % (
                        word, "%.3f" % begin if i == 0 else "-",
                        "%.3f" % end if i == len(words) - 1 else "-"))
                samples.extend(array.array("h", bytes(2 * int(RATE * gap))))
            samples.extend(array.array("h", bytes(2 * int(RATE * (pause - gap)))))
        for i, x in enumerate(samples):  # noise at -60 dB of full scale, always the same
            state = (state * 1664525 + 1013904223) % 2**32
            samples[i] = max(-32768, min(32767, x + (state >> 16) % 65 - 32))
        with wave.open(os.path.join(directory, name + ".wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(samples.tobytes())
        with open(os.path.join(directory, name + ".tsv"), "w", encoding="utf-8") as file:
            file.writelines(lines)


def plain(word):
    return re.sub(r"[^a-z0-9]", "", word.lower())


def pairs(known, heard):
    """Indices of words that belong together in an alignment with the fewest changes. One word
    that was heard as another stands at the same place, so it counts."""
    cost = [[max(i, k) if 0 in (i, k) else 0 for k in range(len(heard) + 1)]
            for i in range(len(known) + 1)]
    for i, a in enumerate(known):
        for k, b in enumerate(heard):
            cost[i + 1][k + 1] = min(cost[i][k] + (a != b), cost[i][k + 1] + 1, cost[i + 1][k] + 1)
    i, k, found = len(known), len(heard), []
    while i > 0 and k > 0:
        if cost[i][k] == cost[i - 1][k - 1] + (known[i - 1] != heard[k - 1]):
            i, k = i - 1, k - 1
            found.append((i, k))
        elif cost[i][k] == cost[i - 1][k] + 1:
            i -= 1
        else:
            k -= 1
    return reversed(found)


def score(directory):
    everything, found, spoken = [], 0, 0
    for path in sorted(glob.glob(os.path.join(directory, "*.tsv"))):
        with open(path, encoding="utf-8") as file:
            known = [line.rstrip("\n").split("\t") for line in file]
        with open(path[:-4] + ".json", encoding="utf-8") as file:
            heard = [w for s in json.load(file)["segments"] for w in s["words"]]
        errors = {"begin": [], "end": []}
        for i, k in pairs([plain(line[0]) for line in known], [plain(w["word"]) for w in heard]):
            word, begin, end = known[i]
            times = heard[k]
            found += 1
            for what, at, is_at in (("begin", begin, times["start"]), ("end", end, times["end"])):
                if at != "-":
                    errors[what].append((abs(is_at - float(at)), is_at - float(at), word))
        spoken += len(known)
        name = os.path.basename(path)[:-4]
        both = errors["begin"] + errors["end"]
        everything += both
        for what in ("begin", "end"):
            n = max(1, len(errors[what]))
            print("  %-14s %-6s %4d  mean %3.0f ms, bias %+4.0f, largest %4.0f" % (
                name, what + "s", len(errors[what]), 1000 * sum(e[0] for e in errors[what]) / n,
                1000 * sum(e[1] for e in errors[what]) / n,
                1000 * max((e[0] for e in errors[what]), default=0)))
        if "-v" in sys.argv:
            for error in sorted(both, reverse=True)[:8]:
                print("    %+.2f s  %s" % error[1:])
    if not everything:
        sys.exit("no word was recognised")
    print("all: %d of %d words recognised, mean error %.0f ms" % (
        found, spoken, 1000 * sum(e[0] for e in everything) / len(everything)))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "score"):
        sys.exit(__doc__)
    (make if sys.argv[1] == "make" else score)(sys.argv[2])
