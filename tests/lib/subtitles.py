"""Checks subtitles with readers of their own, and with ffmpeg's where it is installed.

usage: subtitles.py BASE COLUMNS LINES LONGEST SHORTEST GAP [WORDS]

BASE.srt, .vtt, .ass, .lrc, .csv and .json have the same words in the same order; no cue of the
first three is beyond a limit (times in ms). A cue may be shorter than SHORTEST where the recording
ends. Marks of word times lie within their cues, and add up to them in ASS.
"""
import csv
import html
import json
import re
import shutil
import subprocess
import sys
import unicodedata


def milliseconds(clock):
    hours, minutes, seconds = clock.replace(",", ".").split(":")
    return round((int(hours) * 60 + int(minutes)) * 60000 + float(seconds) * 1000)


def srt(text):
    for block in text.strip("\n").split("\n\n"):
        _, times, *lines = block.split("\n")
        begin, end = times.split(" --> ")
        yield milliseconds(begin), milliseconds(end), lines


def vtt(text):
    head, _, rest = text.partition("\n\n")
    assert head == "WEBVTT", head
    for block in rest.strip("\n").split("\n\n"):
        times, *lines = block.split("\n")
        begin, end = (milliseconds(t) for t in times.split(" --> "))
        marks = [milliseconds(t) for t in re.findall(r"<(\d\d:[\d:.]+)>", block)]
        inside = [begin] + marks + [end]
        assert all(a < b for a, b in zip(inside, inside[1:])), f"marks of {block}"
        lines = [re.sub(r"<\d\d:[\d:.]+><c>|</c>", "", line) for line in lines]
        yield begin, end, [html.unescape(line) for line in lines]


def ass(text):
    for line in text.split("\n"):
        if line.startswith("Dialogue: "):
            fields = line[10:].split(",", 9)
            begin, end = milliseconds(fields[1]), milliseconds(fields[2])
            parts = [int(n) for n in re.findall(r"{\\k(\d+)}", fields[9])]
            assert not parts or sum(parts) * 10 == end - begin, f"durations of {line}"
            fields[9] = re.sub(r"{\\k\d+}", "", fields[9])
            lines = re.sub(r"\\([{}])", r"\1", fields[9]).replace("\u2060", "").split("\\N")
            yield begin, end, lines


def width(line):
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Mc", "Cf")
               else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def apart(text):
    """The words of a text; its characters where it has no spaces between words."""
    words = text.split()
    return list("".join(words)) if any(width(c) > 1 for c in text) else words


def check(name, cues, limits, duration):
    columns, lines, longest, shortest, gap, words = limits
    end = -gap
    for t0, t1, text in cues:
        where = f"{name} at {t0}: {text}"
        assert t0 - end >= gap and t1 > t0, f"{where}: gap {t0 - end}"
        assert t1 - t0 <= longest, f"{where}: takes {t1 - t0}"
        assert t1 - t0 >= shortest or t1 >= duration - 10, f"{where}: takes only {t1 - t0}"
        assert t1 <= duration, f"{where}: beyond the end"
        assert 0 < len(text) <= lines, f"{where}: {len(text)} lines"
        assert all(width(line) <= columns for line in text), f"{where}: too wide"
        assert sum(len(apart(line)) for line in text) <= words, f"{where}: too many words"
        end = t1


def main():
    base, limits = sys.argv[1], [int(x) for x in sys.argv[2:8]]
    limits += [9999] * (6 - len(limits))
    files = {f: open(f"{base}.{f}", encoding="utf-8", newline="").read()
             for f in ("srt", "vtt", "ass", "lrc", "csv", "json")}
    result = json.loads(files["json"])
    words = apart(result["text"])
    assert words, "nothing was said"
    for name, reader in (("srt", srt), ("vtt", vtt), ("ass", ass)):
        cues = list(reader(files[name]))
        check(name, cues, limits, round(result["duration"] * 1000))
        assert apart(" ".join(" ".join(c[2]) for c in cues)) == words, f"{name}: other words"
    rows = list(csv.reader(files["csv"].splitlines(keepends=True)))
    assert rows[0] == ["start", "end", "text"]
    assert apart(" ".join(row[2] for row in rows[1:])) == words, "csv: other words"
    lyrics = re.findall(r"^\[(\d\d+):(\d\d\.\d\d)\](.*)$",
                        re.sub(r"<\d\d+:\d\d\.\d\d>", "", files["lrc"]), re.M)
    assert apart(" ".join(line[2] for line in lyrics)) == words, "lrc: other words"
    assert all(width(line[2]) <= limits[0] for line in lyrics), "lrc: too wide"
    if shutil.which("ffmpeg"):
        count = files["srt"].count(" --> ")
        for name in ("srt", "vtt", "ass", "lrc"):
            read = subprocess.run(["ffmpeg", "-v", "error", "-i", f"{base}.{name}", "-f", "srt",
                                   "-"], check=True, capture_output=True, text=True).stdout
            assert name == "lrc" or read.count(" --> ") == count, f"ffmpeg reads {name}: {read}"
            plain = re.sub(r"<[^>]*>", "", " ".join(read.split("\n")))
            plain = re.sub(r"\d+ [\d:,]+ --> [\d:,]+", " ", plain)
            assert apart(plain) == words, f"ffmpeg reads {name}: {read}"


main()
