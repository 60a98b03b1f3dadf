#!/usr/bin/env python3
"""Checks the JSON of transcribe against its schema: usage: json_schema.py FILE...

A file in which there is speech must have segments."""
import json
import sys

NUMBER, PROBABILITY, LOGPROB, COUNT, TEXT, FLAG = range(6)
REASONS = ["loop", "compression_ratio", "avg_logprob", "first_token"]

WORD = {"word": TEXT, "start": NUMBER, "end": NUMBER, "probability": PROBABILITY}
TOKEN = {"id": COUNT, "text": TEXT, "start": NUMBER, "end": NUMBER, "probability": PROBABILITY}
SEGMENT = {
    "id": COUNT, "start": NUMBER, "end": NUMBER, "text": TEXT, "language": TEXT, "window": COUNT,
    "avg_logprob": LOGPROB, "no_speech_prob": PROBABILITY, "temperature": NUMBER,
    "compression_ratio": NUMBER, "first_logprob": LOGPROB, "retries": COUNT, "reasons": list,
    "accepted": FLAG, "prompted": FLAG, "voice": PROBABILITY, "tokens": list,
}
SPEECH = {"start": NUMBER, "end": NUMBER}
LEDGER = {"start": NUMBER, "end": NUMBER, "kind": TEXT, "reason": TEXT}
# Why a stretch of the recording is what it is, for each kind of the ledger's spans.
KINDS = {
    "text": ["none"],
    "silence": ["no-voice", "no-speech", "pause"],
    "unresolved": ["no-text", "cancelled", "full", "input", "failed", "overrun"],
}
WHOLE = {"language": TEXT, "duration": NUMBER, "text": TEXT, "segments": list, "speech": list,
         "ledger": list}
OPTIONAL = {"languages": dict, "choice": dict}
DEVICES = ["cpu", "accelerator"]
# OpenAI's verbose_json.
VERBOSE = {"task": TEXT, "language": TEXT, "duration": NUMBER, "text": TEXT, "segments": list}
VERBOSE_SEGMENT = {
    "id": COUNT, "seek": COUNT, "start": NUMBER, "end": NUMBER, "text": TEXT, "tokens": list,
    "temperature": NUMBER, "avg_logprob": LOGPROB, "compression_ratio": NUMBER,
    "no_speech_prob": PROBABILITY,
}
VERBOSE_WORD = {"word": TEXT, "start": NUMBER, "end": NUMBER}
CHOICE = {"best": COUNT, "logprob": LOGPROB, "second": int, "second_logprob": LOGPROB,
          "margin": NUMBER}


def fits(value, kind):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == NUMBER:
        return number and value >= 0
    if kind == PROBABILITY:
        return number and 0 <= value <= 1
    if kind == LOGPROB:
        return number and value <= 1e-4
    if kind == COUNT:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if kind == TEXT:
        return isinstance(value, str)
    if kind == FLAG:
        return isinstance(value, bool)
    return isinstance(value, kind)


def check(value, schema, where, optional=()):
    missing = [k for k in schema if k not in value]
    unknown = [k for k in value if k not in schema and k not in optional]
    assert not missing and not unknown, f"{where}: without {missing}, with {unknown}"
    for key, kind in schema.items():
        assert fits(value[key], kind), f"{where}.{key}: {value[key]!r}"


def check_segment(s, number, end):
    where = f"segments[{number}]"
    check(s, SEGMENT, where, ["words", "device", "speaker"])
    assert s.get("device", "cpu") in DEVICES, f"{where}: {s['device']}"
    assert s["id"] == number and s["start"] <= s["end"] <= end, f"{where}: times"
    assert all(r in REASONS for r in s["reasons"]), f"{where}: {s['reasons']}"
    assert len(set(s["reasons"])) == len(s["reasons"]), f"{where}: a reason twice"
    assert bool(s["reasons"]) == (s["retries"] > 0 or not s["accepted"]), f"{where}: reasons"
    for i, token in enumerate(s["tokens"]):
        check(token, TOKEN, f"{where}.tokens[{i}]")
        assert s["start"] <= token["start"] <= token["end"] <= s["end"], f"{where}: token {i}"
    if "words" in s:
        assert "".join(w["word"] for w in s["words"]) == s["text"], f"{where}: words"
    at = s["start"]
    for i, word in enumerate(s.get("words", [])):
        check(word, WORD, f"{where}.words[{i}]", ["speaker"])
        assert word.get("speaker") == s.get("speaker"), f"{where}: word {i}"
        assert at <= word["start"] <= word["end"] <= s["end"], f"{where}: word {i}"
        at = word["end"]


def check_spans(spans, schema, path, name, end):
    """In order, without overlaps; returns the length of them all."""
    at = total = 0
    for i, span in enumerate(spans):
        where = f"{path}: {name}[{i}]"
        check(span, schema, where)
        assert at <= span["start"] < span["end"] <= end, f"{where}: times"
        at = span["end"]
        total += span["end"] - span["start"]
    return total


def check_ledger(whole, path):
    """The ledger adds up to the duration, and every segment stands in it as text."""
    end = whole["duration"]
    check_spans(whole["speech"], SPEECH, path, "speech", end)
    total = check_spans(whole["ledger"], LEDGER, path, "ledger", end)
    assert abs(total - end) < 1e-6, f"{path}: the ledger adds up to {total} of {end}"
    for span in whole["ledger"]:
        assert span["reason"] in KINDS.get(span["kind"], []), f"{path}: {span}"
    texts = [(s["start"], s["end"]) for s in whole["ledger"] if s["kind"] == "text"]
    for s in whole["segments"]:
        covered = sum(max(min(s["end"], b) - max(s["start"], a), 0) for a, b in texts)
        assert abs(covered - (s["end"] - s["start"])) < 1e-6, f"{path}: {s['text']} is no text"


def check_verbose(whole, path):
    check(whole, VERBOSE, path, ["words"])
    end = whole["duration"]
    assert whole["task"] in ("transcribe", "translate"), f"{path}: {whole['task']}"
    assert whole["language"].isalpha() and len(whole["language"]) > 3, f"{path}: a code"
    text = "".join(s["text"] for s in whole["segments"])
    assert whole["text"] == text.removeprefix(" "), f"{path}: text"
    for i, s in enumerate(whole["segments"]):
        where = f"{path}: segments[{i}]"
        check(s, VERBOSE_SEGMENT, where, ["speaker"])
        assert s["id"] == i and s["start"] <= s["end"] <= end, f"{where}: times"
        assert s["seek"] / 100 <= s["end"], f"{where}: seek"
        assert s["tokens"] and all(fits(t, COUNT) for t in s["tokens"]), f"{where}: tokens"
    at = 0
    for i, w in enumerate(whole.get("words", [])):
        check(w, VERBOSE_WORD, f"{path}: words[{i}]", ["speaker"])
        assert w["word"] == w["word"].strip(" ") != "", f"{path}: words[{i}]"
        assert 0 <= w["start"] <= w["end"] <= end, f"{path}: words[{i}]"
        assert "speaker" in w or at <= w["start"], f"{path}: words[{i}]"
        at = w["end"]
    if "words" in whole:
        assert "".join(w["word"] for w in whole["words"]) == text.replace(" ", ""), f"{path}: words"


def check_file(path):
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    if "task" in whole:
        check_verbose(whole, path)
        return
    check(whole, WHOLE, path, OPTIONAL)
    for key, kind in OPTIONAL.items():
        assert key not in whole or isinstance(whole[key], kind), f"{path}: {key}"
    if "choice" in whole:
        check(whole["choice"], CHOICE, f"{path}: choice")
    languages = whole.get("languages", {})
    assert all(fits(p, PROBABILITY) for p in languages.values()), f"{path}: languages"
    assert sum(languages.values()) < 1.001, f"{path}: languages add up to more than 1"
    assert whole["text"] == "".join(s["text"] for s in whole["segments"]), f"{path}: text"
    for i, s in enumerate(whole["segments"]):
        check_segment(s, i, whole["duration"])
    check_ledger(whole, path)
    assert whole["segments"] or not whole["speech"], f"{path}: no segments"


for name in sys.argv[1:]:
    check_file(name)
