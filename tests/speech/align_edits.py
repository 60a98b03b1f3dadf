"""Edits a transcript at random, and judges how transcribe --align marks the edits.

usage: align_edits.py edit TRANSCRIPT TEXT EDITS SEED   writes TEXT, ten words a line, and EDITS
       align_edits.py times FREE.json ALIGNED.json      compares with the times of a free run
       align_edits.py marks EDITS ALIGNED.json          ALIGNED is made with --align-extra

One word in twenty is deleted, replaced, or gets another one before it. EDITS has a line for each
word of the transcript: what became of it, its number, and it. Both judgements print
"right N of M (worst ...)".
"""
import difflib
import json
import random
import re
import sys

OTHERS = ("umbrella giraffe seventeen yellow Portugal bicycle quietly volcano pepper thursday "
          "kitchen elephant marble nonsense harbour").split()


def letters(word):
    return re.sub(r"[^a-z0-9]", "", word.lower())


def words_of(path, extra):
    """(word, start, end, probability) of segments that are in the text, or of the others."""
    result = json.load(open(path, encoding="utf-8"))
    return [(w["word"].strip(), w["start"], w["end"], w["probability"])
            for s in result["segments"] for w in s["words"]
            if extra is None or (not s["accepted"]) == extra]


def edit(transcript, text, edits, seed):
    draw = random.Random(int(seed))
    out, log = [], []
    for i, word in enumerate(open(transcript, encoding="utf-8").read().split()):
        kind = draw.choice(("deleted", "replaced", "inserted")) if draw.random() < 0.05 else "kept"
        other = draw.choice([w for w in OTHERS if w[0] != letters(word)[:1]])
        if kind == "inserted":
            out.append(other)
            log.append(("inserted", i, other))
            kind = "kept"
        if kind == "replaced":
            out.append(other)
        elif kind == "kept":
            out.append(word)
        log.append((kind, i, word if kind != "replaced" else f"{word} {other}"))
    with open(text, "w", encoding="utf-8") as file:
        for i in range(0, len(out), 10):
            file.write(" ".join(out[i:i + 10]) + "\n")
    with open(edits, "w", encoding="utf-8") as file:
        file.writelines(f"{kind}\t{i}\t{word}\n" for kind, i, word in log)


def times(free, aligned):
    """Words of the text that the free run has, by Python's own alignment: most begin and end within
    100 ms of where they do there."""
    a, b = words_of(free, None), words_of(aligned, None)
    match = difflib.SequenceMatcher(None, [letters(w[0]) for w in a], [letters(w[0]) for w in b],
                                    autojunk=False)
    errors = [max(abs(x[1] - y[1]), abs(x[2] - y[2])) for i, j, n in match.get_matching_blocks()
              for x, y in zip(a[i:i + n], b[j:j + n])]
    right = sum(e <= 0.1 for e in errors)
    print(f"right {right} of {len(errors)} (worst {max(errors):.2f} s)")
    return errors and right >= 0.95 * len(errors) and len(errors) >= 0.8 * len(b)


def marks(edits, aligned):
    log = [line.rstrip("\n").split("\t") for line in open(edits, encoding="utf-8")]
    result = json.load(open(aligned, encoding="utf-8"))
    given, extra = [], []
    for s in result["segments"]:
        said = [(w["word"].strip(), w["probability"]) for w in s["words"]]
        # what was said beside the text has a probability; a line that was not said has none
        (extra if not s["accepted"] and any(p for _, p in said) else given).extend(said)
    extras = [letters(w) for w, _ in extra]
    at = right = total = wrong_kept = 0
    bad = []
    for kind, _, word in log:
        new = word.split()[-1]
        if kind == "deleted":
            ok = letters(word) in extras
        else:
            assert letters(given[at][0]) == letters(new), (given[at], word)
            probability = given[at][1]
            at += 1
            if kind == "kept":
                wrong_kept += probability == 0
                continue
            ok = probability == 0
        total += 1
        right += ok
        if not ok:
            bad.append(f"{kind} {word}")
    assert at == len(given), (at, len(given))
    kept = sum(kind == "kept" for kind, _, _ in log)
    print(f"right {right} of {total} (wrong: {', '.join(bad) or 'none'}); of {kept} words left as "
          f"they were, {wrong_kept} are called not said")
    return right >= 0.9 * total and total > 0


if __name__ == "__main__":
    sys.exit(not {"edit": lambda *a: edit(*a) is None, "times": times, "marks": marks}
             [sys.argv[1]](*sys.argv[2:]))
