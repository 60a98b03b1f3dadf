#!/usr/bin/env python3
"""words_compare.py - word times beside whisper.cpp's, from the same model and the same texts.

usage: tests/speech/words_compare.py --cli WHISPER_CLI --model FILE --dtw NAME [--list] WAV...

WHISPER_CLI is whisper.cpp's command line program, NAME its name for the model's alignment heads
(tiny, base.en, ...). Both decode greedily; whisper.cpp without flash attention, which would switch
its word times off. Texts stay in WORK (default: build/words) and are not made again.

What is compared: whisper.cpp gives each token one time, t_dtw, at which its path through the
attention goes on to the next token. Here that is the end of the token, which is not corrected the
way words are: so tokens are compared, one with one, where both programs have the same tokens. As a
second figure words are, by their ends; a word's time there is that of its last token before joined
punctuation. Words here are corrected for the lag of the heads and end where pauses begin, so that
figure is expected to be larger: by 0.05 s with tiny, 0.2 s with base.en.
"""
import argparse
import difflib
import json
import os
import subprocess
import sys


def run(arguments, args, wav, ours):
    name = os.path.splitext(os.path.basename(wav))[0] + (".ours" if ours else ".theirs")
    model = os.path.splitext(os.path.basename(args.model))[0]
    out = os.path.join(args.work, model, name)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    if ours or not os.path.exists(out + ".json"):
        arguments = [a.replace("OUT", out) for a in arguments]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out + ".json", encoding="utf-8", errors="replace") as file:
        return json.load(file)


def our_tokens(args, wav):
    """[(id, text, end of the token, end of its word if it is the word's last but punctuation)]"""
    result = run([args.transcribe, "-q", "-t", "1", "-m", args.model, "-l", args.language, "--words",
                  "-f", "json", "-o", "OUT.json", *args.options.split(), wav], args, wav, True)
    tokens = []
    for segment in result["segments"]:
        left = list(segment["tokens"])
        final = [t for t in left if any(c.isalnum() for c in t["text"])][-1:]
        for word in segment["words"]:
            own, text = [], ""
            while text != word["word"] and left:
                own.append(left.pop(0))
                text += own[-1]["text"]
            last = max((i for i, t in enumerate(own) if any(c.isalnum() for c in t["text"])),
                       default=len(own) - 1)
            tokens += [(t["id"], t["text"], None if final and final[0] in own and i > last else t["end"],
                        word["end"] if i == last else None) for i, t in enumerate(own)]
    return tokens


def their_tokens(args, wav):
    result = run([args.cli, "-t", "1", "-m", args.model, "-l", args.language, "-bs", "1", "-bo",
                  "1", "-nf", "-mc", "0", "-nfa", "-dtw", args.dtw, "-ojf", "-of", "OUT", wav],
                 args, wav, False)
    return [(t["id"], t["t_dtw"] / 100) for s in result["transcription"] for t in s["tokens"]
            if not t["text"].startswith("[_") and t["t_dtw"] >= 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cli", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtw", required=True)
    parser.add_argument("--language", default="en")
    parser.add_argument("--transcribe", default="build/transcribe")
    parser.add_argument("--options", default="", help="more options for transcribe")
    parser.add_argument("--work", default=os.environ.get("WORK", "build/words"))
    parser.add_argument("--list", action="store_true", help="print distances above 0.3 s")
    parser.add_argument("wav", nargs="+")
    args = parser.parse_args()
    of_tokens, of_words, far, total, same = [], [], [], 0, 0
    for wav in args.wav:
        ours, theirs = our_tokens(args, wav), their_tokens(args, wav)
        total += len(ours)
        matcher = difflib.SequenceMatcher(None, [t[0] for t in ours], [t[0] for t in theirs], False)
        for block in matcher.get_matching_blocks():
            same += block.size
            for k in range(block.size):
                _, text, end, word_end = ours[block.a + k]
                there = theirs[block.b + k][1]
                if word_end is not None:
                    of_words.append(abs(word_end - there))
                if end is None:
                    continue
                of_tokens.append(abs(end - there))
                if of_tokens[-1] > (0.3 if args.list else 0.5):
                    far.append((of_tokens[-1], os.path.basename(wav), text, end, there))
    if not of_tokens:
        sys.exit("nothing to compare")
    for name, values in (("tokens", of_tokens), ("words", of_words)):
        values.sort()
        print("%-6s %5d  mean %.0f ms, median %.0f, 95 %% %.0f, largest %.0f; above 0.5 s: %d" % (
            name, len(values), 1000 * sum(values) / len(values), 1000 * values[len(values) // 2],
            1000 * values[len(values) * 95 // 100], 1000 * values[-1],
            sum(v > 0.5 for v in values)))
    print("%d of %d tokens are not there" % (total - same, total))
    for line in sorted(far, reverse=True):
        print("  %.2f s  %s: '%s' ends at %.2f, there %.2f" % line)


if __name__ == "__main__":
    main()
