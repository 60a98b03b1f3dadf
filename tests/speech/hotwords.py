#!/usr/bin/env python3
"""Table of rare words found with hotwords, by boost and length of the list.

usage: hotwords.py RECORDINGS MODEL [SIZE[,SIZE...] [BOOST[,BOOST...] [CLIPS]]]

RECORDINGS has a manifest.tsv as accuracy.sh reads it. MODEL is a ggml file. SIZES (default: 10,100)
are those of the lists, BOOSTS (default: 1,2,4,8) values of hotword_boost. Of the set `short`, the
CLIPS (default: 40) with the most rare words are transcribed with a beam of five: first without a
list, then each with the rare words of its own among others. A word is rare if it has five letters
or more and is no token of the model by itself. The other words are rare ones of other clips, and
where these are not enough, whole tokens. Needs the shared library (make shared) and build/wer.

A line has: the size of the list, the boost, how many of the rare words were found, all word errors,
words of the list that nobody said, and seconds of one thread.
"""
import csv
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples"))
import wnpu  # noqa: E402


def vocabulary(path):
    """The tokens of a ggml file."""
    with open(path, "rb") as file:
        file.read(48)
        n_mel, n_fft = struct.unpack("<2i", file.read(8))
        file.read(4 * n_mel * n_fft)
        count, = struct.unpack("<i", file.read(4))
        return [file.read(struct.unpack("<i", file.read(4))[0]) for _ in range(count)]


def words_of(text):
    return re.findall(r"[a-z]+", text.lower())


def clips_of(directory, tokens, count):
    """(path, transcript, rare words), and whole tokens that nobody says."""
    known, said = set(tokens), set()
    clips = []
    with open(os.path.join(directory, "manifest.tsv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        if row["language"] == "en":
            said.update(words_of(row["transcript"]))
        if row["set"] == "short":
            rare = {w for w in words_of(row["transcript"]) if len(w) >= 5 and not
                    known & {b" " + w.encode(), b" " + w.capitalize().encode()}}
            clips.append((row["path"], row["transcript"], sorted(rare)))
    clips.sort(key=lambda clip: (-len(clip[2]), clip[0]))
    others = [t[1:].decode() for t in tokens if re.fullmatch(rb" [A-Z][a-z]{4,}", t)]
    return clips[:count], [clip[2] for clip in clips], [w for w in others if w.lower() not in said]


def list_for(own, all_rare, tokens, size, draw):
    rare = sorted({w for words in all_rare for w in words} - set(own))
    draw.shuffle(rare)
    names = own + rare[:max(0, size - len(own))]
    return names + draw.sample(tokens, max(0, size - len(names)))


def errors_of(directory, name, clips, texts):
    """All word errors, by build/wer."""
    for file, column in (("reference", [c[1] for c in clips]), (name, texts)):
        with open(os.path.join(directory, file), "w", encoding="utf-8") as out:
            out.writelines(f"{c[0]}\t{t}\n" for c, t in zip(clips, column))
    wer = os.path.join(os.environ.get("WNPU_BUILD", "build"), "wer")
    lines = subprocess.run([wer, os.path.join(directory, "reference"),
                            os.path.join(directory, name)], check=True, capture_output=True,
                           text=True).stdout
    _, _, words, rate = next(x for x in map(str.split, lines.splitlines()) if x[0] == "all")[:4]
    return round(int(words) * float(rate) / 100), int(words)


def main(directory, model, sizes="10,100", boosts="1,2,4,8", count="40"):
    tokens = vocabulary(model)
    clips, all_rare, others = clips_of(directory, tokens, int(count))
    rows = [(0, 0.0)] + [(int(s), float(b)) for s in sizes.split(",") for b in boosts.split(",")]
    print("list boost found errors false seconds", flush=True)
    with wnpu.Session(model, threads=1, max_phrase_tokens=1 << 17) as session, \
            tempfile.TemporaryDirectory() as scratch:
        for size, boost in rows:
            found = wrong = 0
            texts, since = [], time.process_time()
            for number, (path, transcript, own) in enumerate(clips):
                names = list_for(own, all_rare, others, size, random.Random(number)) if size else []
                segments = session.transcribe(os.path.join(directory, path), language="en", beam=5,
                                              **({"hotwords": names, "hotword_boost": boost}
                                                 if names else {}))
                texts.append("".join(s.text for s in segments).replace("\n", " "))
                heard, said = words_of(texts[-1]), words_of(transcript)
                found += sum(w in heard for w in own)
                wrong += sum(w in heard and w not in said for w in map(str.lower, names))
            spent = time.process_time() - since
            errors, words = errors_of(scratch, f"{size}-{boost:g}", clips, texts)
            print(f"{size} {boost:g} {found}/{sum(len(c[2]) for c in clips)} {errors}/{words} "
                  f"{wrong} {spent:.0f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
