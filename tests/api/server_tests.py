#!/usr/bin/env python3
"""Tests of build/server over loopback: usage: server_tests.py NAME. See test_server.sh, which sets
WNPU_BUILD, MODEL, TOY (a model without meaning, but fast), SPEECH (a WAV file) and T (a directory)."""
import base64
import functools
import http.client
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from server import Server, WebSocket, form, read, received, request, wait_for, wav_file  # noqa: E402

BUILD, MODEL, TOY = os.environ["WNPU_BUILD"], os.environ["MODEL"], os.environ["TOY"]
SPEECH, T = os.environ["SPEECH"], os.environ["T"]
TRANSCRIPTIONS = "/v1/audio/transcriptions"
AUDIO = read(SPEECH)
SANITIZED = bool(os.environ.get("WNPU_SANITIZED"))  # freed memory is not used again
FULL = int(os.environ.get("TEST_REQUESTS", "0"))


def wav(seconds, seed=0, channels=1):
    """Noise as a WAV file."""
    return wav_file(random.Random(seed).randbytes(int(seconds * 16000) * 2 * channels), channels)


DATA = AUDIO[AUDIO.index(b"data") + 8:]
DATA = DATA[:12 * 32000]  # 12 s of it, which are decoded many times


def cut(begin, end, times=1):
    """Part of the recording, as a WAV file."""
    return wav_file(DATA[begin * 32000:end * 32000] * times)


AUDIO = cut(0, 12)
with open(f"{T}/clip.wav", "wb") as clip:
    clip.write(AUDIO)


@functools.lru_cache(maxsize=None)
def transcribed(*options, path=None):
    path = path or f"{T}/clip.wav"
    done = subprocess.run([f"{BUILD}/transcribe", "-q", "-m", MODEL, *options, path], check=False,
                          capture_output=True, text=True)
    assert done.returncode in (0, 6), done.stderr  # 6: part of the audio is unresolved
    return done.stdout


def joined(text):
    """The lines of txt as one."""
    return " ".join(text.split())


def same(a, b):
    assert a == b, f"{a!r} and {b!r}"


def sent_events(data):
    """Server-sent events; the type of each is in a line of its own and in its data."""
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        kind, value = block.split("\n")
        events.append(json.loads(value.removeprefix("data: ")))
        same(kind, "event: " + events[-1]["type"])
    return events


def error_of(answer, status, param=None):
    assert answer[0] == status, answer
    error = json.loads(answer[2])["error"]
    assert error["message"] and set(error) == {"message", "type", "code", "param"}, error
    assert param is None or error["param"] == param, error
    return error


# ---- what is answered ----

def formats():
    """Each format of each protocol is what transcribe writes, in any order of requests."""
    text = joined(transcribed())
    with Server() as s:
        answer = json.loads(s.text(AUDIO, [("model", "whisper-1")]))
        same(answer["text"], text)
        same(answer["usage"]["type"], "duration")
        same(answer["languages"], [{"code": "en"}])
        for name, options in (("srt", ["--subtitles"]), ("vtt", ["--subtitles"]), ("ass", [])):
            same(s.text(AUDIO, [("response_format", name)]), transcribed("-f", name, *options))
        same(s.text(AUDIO, [("response_format", "srt"), ("max_len", "0")]), transcribed("-f", "srt"))
        verbose_json(s)
        same(json.loads(s.text(AUDIO, [("response_format", "nonsense"),
                                       ("unknown", "x" * 50)]))["text"], text)
        same(json.loads(s.text(AUDIO, path="/inference"))["text"], text)
        same(s.text(AUDIO, [("response_format", "srt")], path="/inference"),
             transcribed("-f", "srt", "--subtitles"))
        whisper_cpp(s)
        asr = {"name": "audio_file"}
        same(s.text(AUDIO, path="/asr", **asr), text + "\n")
        for name in ("tsv", "json"):
            same(s.text(AUDIO, path=f"/asr?output={name}&encode=true&language=en", **asr),
                 transcribed("-l", "en", "-f", name))
        same(s.text(DATA, path="/asr?encode=false&output=txt", **asr), text + "\n")
        found = json.loads(s.text(AUDIO, path="/detect-language", **asr))
        same((found["detected_language"], found["language_code"]), ("english", "en"))
        assert 0.5 < found["confidence"] <= 1, found
        same(s.text(AUDIO, [("response_format", "text")]), text + "\n")


def without_usage(verbose):
    """OpenAI's verbose_json, which has more than that of transcribe: without that."""
    verbose = json.loads(verbose) if isinstance(verbose, str) else dict(verbose)
    same(verbose.pop("usage"), {"type": "duration", "seconds": 12})
    return verbose


def verbose_json(s):
    """Segments and words are those of transcribe, and where each client looks for them."""
    def ask(kind, *names):
        return s.text(AUDIO, [("response_format", kind),
                              *[("timestamp_granularities[]", name) for name in names]])
    plain = json.loads(transcribed("-f", "verbose_json"))
    timed = json.loads(transcribed("-f", "verbose_json", "--words"))
    same(without_usage(ask("verbose_json")), plain)
    same(without_usage(ask("verbose_json", "segment")), plain)
    both = without_usage(ask("verbose_json", "word", "segment"))
    same([w for segment in both["segments"] for w in segment.pop("words")], timed["words"])
    same(both, timed)
    same(without_usage(ask("verbose_json", "word")),
         {k: v for k, v in timed.items() if k != "segments"})
    same(timed["language"], "english")
    for fields, language in (([], "english"), ([("language", "de")], "english")):
        got = json.loads(s.text(AUDIO, [("response_format", "verbose_json"), *fields],
                                "/v1/audio/translations"))
        same((got["task"], got["language"], len(got["segments"]) > 0), ("translate", language, True))
    same(json.loads(s.text(AUDIO, [("response_format", "verbose_json"), ("language", "de")]))[
        "language"], "german")
    short = json.loads(ask("json", "word", "segment"))  # Subtitle Edit asks this way
    same(short["words"], timed["words"])
    same([(x["start"], x["end"], x["text"]) for x in short["segments"]],
         [(x["start"], x["end"], x["text"]) for x in timed["segments"]])
    same(sorted(json.loads(ask("json"))), ["languages", "text", "usage"])
    same("words" in json.loads(ask("json", "segment")), False)
    done = sent_events(s.post(TRANSCRIPTIONS, AUDIO, [("stream", "true")])[2])[-1]
    same([(x["start"], x["end"], x["text"]) for x in done["segments"]],
         [(x["start"], x["end"], x["text"]) for x in plain["segments"]])


def whisper_cpp(s):
    """verbose_json of whisper.cpp's server: words in the segments, and the language's detection."""
    def ask(*fields):
        return json.loads(s.text(AUDIO, [("response_format", "verbose_json"), *fields],
                                 "/inference"))
    languages = json.loads(transcribed("-f", "json"))["languages"]
    verbose = ask()
    same(verbose.pop("language_probabilities"), languages)
    same((verbose.pop("detected_language"), verbose.pop("detected_language_probability")),
         ("english", languages["en"]))
    want = json.loads(transcribed("-f", "verbose_json", "--words"))
    words = [w for segment in verbose["segments"] for w in segment.pop("words")]
    same([{"word": w["word"].strip(), "start": w["start"], "end": w["end"]} for w in words],
         want.pop("words"))
    for w in words:
        assert 0 <= w["probability"] <= 1 and abs(w["t_dtw"] / 100 - w["start"]) < 1.5, w
    assert words[1]["word"].startswith(" "), words
    for segment in want["segments"]:
        segment.pop("seek")
    for segment in verbose["segments"] + want["segments"]:
        for name in ("avg_logprob", "compression_ratio", "no_speech_prob"):
            segment[name] = round(segment[name], 3)
    same(verbose, want)
    plain = ask(("token_timestamps", "false"), ("no_language_probabilities", "true"))
    assert not [k for k in plain if k.startswith(("detected", "language_"))], plain
    assert "words" not in plain["segments"][0], plain
    same([x["start"] for x in plain["segments"]],
         [x["start"] for x in json.loads(transcribed("-f", "verbose_json"))["segments"]])
    same(s.text(AUDIO, [("response_format", "srt"), ("token_timestamps", "true"),
                        ("max_len", "0")], "/inference"), transcribed("-f", "srt", "--words"))


def options():
    """Fields change the run as the options of transcribe do."""
    with Server() as s:
        for fields, args in [
                ([("prompt", "Glossary: Zyxwy."), ("language", "en"), ("replace", "the => THE"),
                  ("drop_fillers", "true"), ("suppress_numerals", "1"), ("script", "simplified")],
                 ["--prompt", "Glossary: Zyxwy.", "-l", "en", "--replace", "the => THE",
                  "--drop-fillers", "--suppress-numerals", "--script", "simplified"]),
                ([("temperature", "0.7")], ["--temperature", "0.7"]),
                ([("languages[]", "de"), ("languages[]", "fr")], ["--languages", "de,fr"]),
                ([("languages", " de, fr,, nl, ")], ["--languages", "de,fr,nl"]),
                ([("keywords[]", "Shrieking"), ("keywords", "Kreek=creek|creak")],
                 ["--hotwords", "Shrieking,Kreek=creek|creak", "--beam", "5"])]:
            same(json.loads(s.text(AUDIO, fields))["text"], joined(transcribed(*args)))
        same(json.loads(s.text(AUDIO, [("language", "de")], "/v1/audio/translations"))["text"],
             joined(transcribed("--translate", "-l", "de")))
        same(s.text(AUDIO, [("offset_t", "2000"), ("duration", "3000"), ("beam_size", "3"),
                            ("response_format", "srt"), ("max_len", "0")], "/inference"),
             transcribed("--offset", "2", "--duration", "3", "--beam", "3", "-f", "srt"))
        # Of a long prompt the last 222 tokens count; each of these words, and the dot, is one.
        words = ("we have a problem here this is the first time that people can see what was said "
                 "before and now they will go to the moon with three men ").split() * 15
        same(without_usage(s.text(AUDIO, [("prompt", " ".join(words) + "."), ("language", "en"),
                                          ("response_format", "verbose_json")])),
             json.loads(transcribed("--prompt", " ".join(words[-221:]) + ".", "-l", "en",
                                    "-f", "verbose_json")))
        assert json.loads(s.text(AUDIO, [("prompt", "\u732b" * 3000)]))["text"]
        long = (" ".join(words) + ".").rjust(40000)
        same(json.loads(s.text(AUDIO, [("prompt", long), ("language", "en")]))["text"],
             joined(transcribed("--prompt", " ".join(words[-221:]) + ".", "-l", "en")))
        same(s.text(AUDIO, (), "/asr?output=srt&language=en&word_timestamps=True",
                    name="audio_file"), transcribed("--words", "-l", "en", "-f", "srt", "--subtitles"))
        brief = cut(4, 8)
        with open(f"{T}/brief.wav", "wb") as clip:
            clip.write(brief)
        said = joined(transcribed(path=f"{T}/brief.wav"))
        assert said
        for name in ("temperature", "stream", "prompt", "keywords[]", "include[]", "max_len",
                     "chunking_strategy", "timestamp_granularities[]", "response_format"):
            for value in ("null", "undefined"):  # what JavaScript makes of nothing
                same(json.loads(s.text(brief, [(name, value)]))["text"], said)
        same(json.loads(s.text(AUDIO, [("chunking_strategy", "none")]))["text"],
             joined(transcribed()))
        for name, value in (("include[]", "logprobs"), ("include", "x, logprobs")):
            answer = json.loads(s.text(AUDIO, [(name, value)]))
            for t in answer["logprobs"]:
                same(set(t), {"token", "logprob", "bytes"})
                same(t["token"], bytes(t["bytes"]).decode())
                assert -100 <= t["logprob"] <= 0, t
            same("".join(t["token"] for t in answer["logprobs"]).strip(), answer["text"])
        assert "logprobs" not in json.loads(s.text(AUDIO, [("include[]", "x")]))
        timed = json.loads(transcribed("-f", "verbose_json", "--words"))
        for names in ([("timestamp_granularities[]", "word,segment")],
                      [("timestamp_granularities", "segment, word")]):
            got = without_usage(s.text(AUDIO, [("response_format", "verbose_json"), *names]))
            same((got["words"], len(got["segments"]) > 0), (timed["words"], True))
        for names in ([("timestamp_granularities", '["word", "segment"]')],
                      [("timestamp_granularities[]", '["segment","word"]')],
                      [("timestamp_granularities[0]", "word"),
                       ("timestamp_granularities[1]", "segment")]):
            got = without_usage(s.text(AUDIO, [("response_format", "verbose_json"), *names]))
            same((got["words"], len(got["segments"]) > 0), (timed["words"], True))
        for name in ("auto", "Auto", "null", "None", "undefined", "und"):
            same(json.loads(s.text(brief, [("language", name)]))["text"], said)
        for fields in ([("chunking_strategy", '{"type": "server_vad", "threshold": 0.8, '
                         '"prefix_padding_ms": 50, "silence_duration_ms": 200}')],
                       [("chunking_strategy[type]", "server_vad"),
                        ("chunking_strategy[threshold]", "0.8"),
                        ("chunking_strategy[prefix_padding_ms]", "50"),
                        ("chunking_strategy[silence_duration_ms]", "200")]):
            same(s.text(AUDIO, [("response_format", "tsv"), *fields]),
                 transcribed("-f", "tsv", "--vad-threshold", "0.8", "--vad-pad", "50",
                             "--vad-min-silence", "200"))
        same(s.text(AUDIO, [("response_format", "tsv"), ("chunking_strategy", "auto")]),
             transcribed("-f", "tsv"))
    with Server("--set", "vad=0") as s:
        same(s.text(AUDIO, [("response_format", "tsv")]), transcribed("-f", "tsv", "--vad", "off"))
        same(s.text(AUDIO, [("response_format", "tsv"), ("chunking_strategy", "auto")]),
             transcribed("-f", "tsv"))
    with Server("--set", "beam=4", "--set", "language=en") as s:
        same(json.loads(s.text(AUDIO))["text"], joined(transcribed("--beam", "4", "-l", "en")))


def subtitles():
    """The layout of subtitles, by the names that clients of each API know."""
    with Server() as s:
        for path, name in ((TRANSCRIPTIONS, "file"), ("/inference", "file"), ("/asr", "audio_file")):
            for kind, fields, options in (
                    ("srt", {"max_line_width": 30, "max_line_count": 2},
                     ["--max-line-width", "30", "--max-lines", "2"]),
                    ("srt", {"max_len": 20, "split_on_word": "true"},
                     ["--max-line-width", "20", "--max-lines", "1"]),
                    ("vtt", {"max_len": 1}, ["--max-words", "1"]),
                    ("vtt", {"max_words_per_line": 3, "highlight_words": "True"},
                     ["--max-words", "3", "--word-times"]),
                    ("srt", {"max_len": 0, "split_on_word": "False"}, [])):
                wanted = transcribed("-f", kind, *options)
                if path == "/asr":
                    query = "&".join(f"{k}={v}" for k, v in fields.items())
                    got = s.text(AUDIO, path=f"{path}?output={kind}&{query}", name=name)
                else:
                    got = s.text(AUDIO, [("response_format", kind), *fields.items()], path)
                same((path, fields, got), (path, fields, wanted))
        plain = json.loads(s.text(AUDIO, [("max_line_width", "30")]))
        same(sorted(plain), ["languages", "text", "usage"])
        for field, value in (("max_line_width", "wide"), ("max_lines", "2"), ("max_len", "-1"),
                             ("split_on_word", "x")):
            error_of(s.post(TRANSCRIPTIONS, AUDIO, [("response_format", "srt"), (field, value)]),
                     400, field)


def speech():
    """Spans of voice, as transcribe finds them."""
    with Server() as s:
        def ask(*fields):
            return [(x["start"], x["end"]) for x in json.loads(
                s.text(AUDIO, fields, "/v1/audio/speech/timestamps"))]

        def wanted(*options):
            spans = json.loads(transcribed("-f", "json", *options))["speech"]
            return [(round(1000 * x["start"]), round(1000 * x["end"])) for x in spans]
        same(ask(), wanted("--vad-min-speech", "0", "--vad-min-silence", "1000", "--vad-pad", "0"))
        same(ask(("threshold", "0.8"), ("min_silence_duration_ms", "200"), ("speech_pad_ms", "50"),
                 ("min_speech_duration_ms", "300"), ("language", "en"), ("model", "silero_vad_v5")),
             wanted("--vad-threshold", "0.8", "--vad-min-silence", "200", "--vad-pad", "50",
                    "--vad-min-speech", "300"))
        same(json.loads(s.text(wav_file(bytes(64000)), (), "/v1/audio/speech/timestamps")), [])
        for fields, audio, param in (([("threshold", "x")], AUDIO, "threshold"),
                                     ([], b"no audio", "file"), ([], None, "file")):
            error_of(s.post("/v1/audio/speech/timestamps", audio, fields), 400, param)


def aligned():
    """The words of a text that the client knows, as transcribe --align finds them."""
    text = f"{T}/known.txt"
    heard = joined(transcribed()).split()
    lines = [" ".join(heard[:3]), "Purple elephants", " ".join(heard[3:])]
    known = "\ufeff" + "\r\n".join(lines)
    for name, value in ((text, known), (f"{text}.part", lines[0])):
        with open(name, "w", encoding="utf-8", newline="") as file:
            file.write(value)
    with Server() as s:
        srt = ("response_format", "srt")
        same(s.text(AUDIO, [("align", known), srt]),
             transcribed("--align", text, "-f", "srt"))
        answer = s.post("/asr?output=srt&align_extra=1", AUDIO, [("align", lines[0])],
                        name="audio_file")
        same(answer[2].decode(), transcribed("--align", f"{text}.part", "--align-extra", "-f", "srt"))
        body = s.post(TRANSCRIPTIONS, AUDIO, [("align", known), ("stream", "true"),
                                                  ("tentative", "true")])[2]
        deltas = [e for e in sent_events(body) if e["type"] == "transcript.text.delta"]
        done = sent_events(body)[-1]
        same(("".join(e["delta"] for e in deltas), len(deltas)), (" ".join(lines), 3))
        same((done["text"], done["alignment"]), (" ".join(lines), {
            "words": len(heard) + 2, "said": len(heard), "alike": 0, "extra": 0}))
        for fields, param in (([("align_extra", "1")], "align_extra"), ([("align", " \n")], "align"),
                              ([("align", "x" * 131073)], "align"), ([("align", "a\n" * 65536)], "align"),
                              ([("align", "a\0")], "align"),
                              ([("align", "a"), ("response_format", "diarized_json")], "align")):
            error_of(s.post(TRANSCRIPTIONS, cut(0, 1), fields), 400, param)
        error_of(s.post("/v1/audio/translations", cut(0, 1), [("align", "a")]), 400, "align")


def long_recordings():
    """What is longer than --max-minutes is refused, or ended there."""
    for kind in ("flac", "ogg"):
        subprocess.run(["ffmpeg", "-nostdin", "-y", "-v", "error", "-f", "lavfi", "-i",
                        "anullsrc=r=48000:cl=stereo", "-t", "100", f"{T}/long.{kind}"], check=True)
    header = wav_file(b"")
    slow = header[:24] + struct.pack("<II", 1, 2) + header[32:40] + struct.pack("<I", 1000)
    with Server("--max-minutes", "1", model=TOY) as s:
        for audio in (read(f"{T}/long.flac"), wav_file(bytes(32000 * 61)), slow + bytes(1000),
                      wav_file(bytes(32000 * 200))):
            assert "1 min" in error_of(s.post(TRANSCRIPTIONS, audio), 413, "file")["message"]
        same(s.post("/asr?encode=false", bytes(32000 * 61), name="audio_file")[0], 413)
        same(s.post("/inference", wav_file(bytes(32000 * 70)), [("offset_t", "20000")])[0], 200)
        same(s.post(TRANSCRIPTIONS, wav_file(bytes(32000 * 59)))[0], 200)
        status, headers, body = s.post(TRANSCRIPTIONS, read(f"{T}/long.ogg"))
        same((status, json.loads(body)["usage"]["seconds"]), (200, 60))
        assert "1 min" in headers["x-warning"], headers
    with Server(model=TOY) as s:
        status, headers, body = s.post(TRANSCRIPTIONS, read(f"{T}/long.ogg"))
        same((status, json.loads(body)["usage"]["seconds"]), (200, 100))
        assert "x-warning" not in headers, headers


def languages():
    """What the model cannot do is named, and left out where something is left."""
    with Server(model=os.environ["ENGLISH"]) as s:
        assert "de" in error_of(s.post(TRANSCRIPTIONS, wav(1), [("language", "de")]), 400,
                                "language")["message"]
        for value in ("de,fr", '["de", "fr"]'):
            assert "de, fr" in error_of(s.post(TRANSCRIPTIONS, wav(1), [("languages", value)]),
                                        400, "languages")["message"]
        status, headers, _ = s.post(TRANSCRIPTIONS, wav(1), [("languages[]", "en,xx")])
        same((status, headers["x-warning"][-4:]), (200, ": xx"))
        for value in ("de,en", "en", "auto"):
            status, headers, _ = s.post(TRANSCRIPTIONS, wav(1), [("languages", value)])
            same((status, headers.get("x-warning", "")[-4:]), (200, ": de" if "de" in value else ""))
        w = WebSocket(s)
        w.until("session.created")
        for listed, single, told in ((["de", "en"], None, "en"), (None, "de", "en"),
                                     (["de", "fr"], None, "en"), (None, "en", "en")):
            w.send("session.update", session={"input_audio_transcription": {
                "languages": listed, **({"language": single} if single else {})}})
            if "de" in (listed or [single]):
                assert "de" in w.until("error")[-1]["error"]["message"]
            if listed == ["de", "en"] or single == "en":
                told = w.until("session.updated")[-1]["session"]["audio"]["input"]
                same(told["transcription"]["language"], "en")
        w.append(bytes(48000))
        w.send("input_audio_buffer.commit")
        same(w.until(COMPLETED)[-1]["transcript"], "")
        w.close()
    with Server(model=TOY) as s:
        assert "tlh" in error_of(s.post(TRANSCRIPTIONS, wav(1), [("languages", "tlh")]),
                                 400)["message"]


def errors():
    with Server("--max-mb", "1") as s:
        error_of(s.post(TRANSCRIPTIONS), 400)
        error_of(s.post(TRANSCRIPTIONS, None, [("model", "whisper-1")]), 400, "file")
        error_of(s.post(TRANSCRIPTIONS, b""), 400, "file")
        error_of(s.post(TRANSCRIPTIONS, b"no audio at all " * 100), 400, "file")
        error_of(s.post(TRANSCRIPTIONS, wav(1)[:40]), 400, "file")
        for field, value in [("temperature", "9"), ("temperature", "warm"), ("language", "xx"),
                             ("languages[]", "tlh,xx"), ("timestamp_granularities[]", "phone"),
                             ("timestamp_granularities", "word,phone"),
                             ("timestamp_granularities", '["word", "phone"]'),
                             ("timestamp_granularities", '["word", 5]'),
                             ("timestamp_granularities[0]", "phone"), ("keywords", '["a\\u0000"]'),
                             ("chunking_strategy", "some"), ("chunking_strategy", "{}"),
                             ("chunking_strategy", '{"type": "server_vad", "threshold": "x"}'),
                             ("chunking_strategy[threshold]", "x"), ("stream", "perhaps"), ("prompt", "a\0b"),
                             ("replace", "x" * 20000)]:
            error_of(s.post(TRANSCRIPTIONS, wav(1), [(field, value)]), 400)
        error_of(s.post(TRANSCRIPTIONS, wav(40)), 413)
        same(s.post(TRANSCRIPTIONS, wav_file(bytes((1 << 20) - 1000)))[0], 200)  # MiB
        same(s.post(TRANSCRIPTIONS, wav(1), [("metadata", "x" * 900000)])[0], 200)  # unknown
        error_of(s.post(TRANSCRIPTIONS, wav(1), [("metadata", "x" * 1300000)]), 413)
        body, kind = form([("metadata", "x" * 1300000)], wav(1))
        c = s.connect()  # without a length
        c.sendall(f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
                  f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + body
                  + b"\r\n0\r\n\r\n")
        same(reply(c.makefile("rb"))[0], 413)
        c.close()
        error_of(s.answer("POST", TRANSCRIPTIONS, b"x" * 100, {}), 400)
        for path in ("/", "/health", "/metrics", "/v1/models", "/v1/languages", "/v1/realtime"):
            answer = s.answer("POST", path, b"x", {})
            error_of(answer, 405)
            same(answer[1]["allow"], "GET, HEAD, OPTIONS")
        for path in (TRANSCRIPTIONS, "/v1/audio/translations", "/inference", "/asr",
                     "/detect-language"):
            for method, status in (("GET", 405), ("PUT", 405), ("OPTIONS", 204)):
                answer = s.get(path, method=method)
                same((answer[0], answer[1]["allow"]), (status, "POST, OPTIONS"))
            same(s.get(path, method="HEAD")[0::2], (405, b""))
        for path in ("/v1/nothing", "/audio", "/v1", "/health/x", "/transcriptions",
                     "/audio/transcriptions/x", "/v2/models"):
            error_of(s.get(path), 404)
        for path in ("/v1/audio/transcriptions/", "/audio/transcriptions", "/audio/transcriptions/",
                     "/openai/v1/audio/transcriptions", "/api/v1/audio/transcriptions/",
                     "/audio/translations", "/inference/", "/asr/"):
            field = "audio_file" if path == "/asr/" else "file"
            same(s.post(path, wav(0.2), name=field)[0], 200)
        same(s.get("/models")[2], s.get("/v1/models")[2])
        same(s.get("/openai/v1/models/whisper-1")[2], s.get("/v1/models/whisper-1")[2])
        for path in ("/openai", "/api/models", "/api/v2/models", "/openai/api/v1/models/x/"):
            error_of(s.get(path), 404)
        for front in ("/openai", "/api"):
            w = WebSocket(s, path=f"{front}/v1/realtime?intent=transcription")
            same(w.receive()["type"], "session.created")
            w.close()
        for path, length in (("/v1/nothing", 3000000), ("/inferenz", 100)):  # sent before it is read
            c = s.connect()
            c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                      f"{length:x}\r\n".encode() + bytes(length) + b"\r\n0\r\n\r\n")
            same(reply(c.makefile("rb"))[0], 404)
            same(c.recv(1), b"")  # the end, and no reset
            c.close()
        same(s.get("/models/whisper-1/")[0], 404)
        same(s.get("/models/whisper-1")[0::2], s.get("/v1/models/whisper-1")[0::2])
        same(s.get("/realtime")[0], 426)
        error_of(s.get("/../../etc/passwd"), 404)
        error_of(s.get("/v1/models/gpt"), 404, "model")
        same(s.get("/v1/models/whisper-1")[0], 200)
        for path in ("/", "/health", "/metrics", "/v1/models", "/v1/languages"):
            same(s.get(path, method="HEAD")[0::2], (200, b""))
        c = s.connect()  # a body without a length is refused by civetweb itself
        c.sendall(b"POST /inference HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n")
        assert c.recv(100).startswith(b"HTTP/1.1 411 Length Required\r\n")
        c.close()
        names = ",".join(f"Mount {i} of New Place" for i in range(500))
        same(s.post(TRANSCRIPTIONS, cut(0, 1), [("keywords", names)])[0], 200)
        answer = s.post(TRANSCRIPTIONS, cut(0, 1), [("keywords[]", "a"), ("keywords[]", "x" * 300)])
        assert error_of(answer, 400, "keywords")["message"].startswith("keywords[1] is "), answer
        answer = s.post("/inference", b"x")
        assert answer[0] == 400 and json.loads(answer[2])["error"], answer
        answer = s.post("/asr", b"x", name="audio_file")
        assert answer[0] == 400 and json.loads(answer[2])["detail"], answer
        for playlist in (b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n",
                         b"ffconcat version 1.0\nfile /etc/passwd\n"):
            text = json.dumps(error_of(s.post(TRANSCRIPTIONS, playlist), 400))
            assert "/etc" not in text and "/dev" not in text and "/tmp" not in text, text
        same(s.post(TRANSCRIPTIONS, AUDIO)[0], 200)
    with Server("--upload-timeout", "3", model=TOY) as s:
        same(s.post(TRANSCRIPTIONS, wav_file(bytes(26 << 20)))[0], 200)  # more than OpenAI takes
        c = s.connect()  # a body that arrives slowly, and one that does not
        begin, data = time.monotonic(), request(TRANSCRIPTIONS, wav(2))
        for i in range(0, len(data), len(data) // 4):
            c.sendall(data[i:i + len(data) // 4])
            time.sleep(1.2)
        same(reply(c.makefile("rb"))[0], 200)
        c.close()
        c = s.connect()
        begin = time.monotonic()
        c.sendall(request(TRANSCRIPTIONS, wav(2))[:5000])
        answer = c.recv(100)
        assert b" 408 " in answer, f"a slow body: {answer}"
        assert time.monotonic() - begin > 2, time.monotonic() - begin
        c.close()
        same(s.post(TRANSCRIPTIONS, wav(0.2))[0], 200)


def keys():
    with open(f"{T}/key", "w", encoding="ascii") as file:
        file.write("sesame\n")
    with Server("--api-key", f"@{T}/key", "--cors", "https://example.org", model=TOY) as s:
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"},
                        {"Authorization": "Bearer sesamesesame"}):
            error_of(s.post(TRANSCRIPTIONS, wav(1), headers=headers), 401)
            error_of(s.get("/metrics", headers), 401)
        for headers in ({"api-key": "sesame"}, {"X-API-Key": " sesame "},
                        {"Authorization": "bearer  sesame "}):
            same(s.post(TRANSCRIPTIONS, wav(1), headers=headers)[0], 200)
        for headers in ({"api-key": "sesam"}, {"X-API-Key": ""}, {"api-key": "x" * 600},
                        {"X-API-Key": "Bearer sesame"}):
            error_of(s.post(TRANSCRIPTIONS, wav(1), headers=headers), 401)
        status, headers, _ = s.post(TRANSCRIPTIONS, wav(1),
                                    headers={"Authorization": "Bearer sesame"})
        same((status, headers["access-control-allow-origin"]), (200, "https://example.org"))
        same(s.get("/health")[0], 200)
        asked = "authorization,content-type,x-stainless-arch"
        for path, methods in ((TRANSCRIPTIONS, "POST, OPTIONS"), ("/inference", "POST, OPTIONS"),
                              ("/v1/models", "GET, HEAD, OPTIONS"), ("/", "GET, HEAD, OPTIONS")):
            status, headers, _ = s.get(path, {"Origin": "https://example.org",
                                              "Access-Control-Request-Headers": asked,
                                              "Access-Control-Request-Method": "POST"}, "OPTIONS")
            same((status, headers["access-control-allow-methods"]), (204, methods))
            same((headers["access-control-allow-headers"], headers["allow"]), (asked, methods))
        same(s.get("/nothing", method="OPTIONS")[0], 404)
    with Server("--api-key", "sesame", model=TOY) as s:
        with open(f"/proc/{s.process.pid}/cmdline", "rb") as file:
            assert b"sesame" not in file.read(), "the key is in the list of processes"
        status, headers, _ = s.post(TRANSCRIPTIONS, wav(1), headers={
            "Authorization": "Bearer sesame", "Origin": "https://example.org"})
        assert status == 200 and not [h for h in headers if "access-control" in h], headers
        status, headers, _ = s.get(TRANSCRIPTIONS, {"Origin": "https://example.org",
                                                    "Access-Control-Request-Method": "POST"},
                                   "OPTIONS")
        assert status == 204 and not [h for h in headers if "access-control" in h], headers


def matches(document, schema, value, at="$"):
    """Asserts that a value is as a schema says, as far as the server's document uses JSON Schema."""
    if "$ref" in schema:
        return matches(document, document["components"]["schemas"][schema["$ref"].split("/")[-1]],
                       value, at)
    if "anyOf" in schema:
        def fits(one):
            try:
                matches(document, one, value, at)
                return True
            except AssertionError:
                return False
        assert any(fits(one) for one in schema["anyOf"]), (at, value)
        return None
    unknown = set(schema) - {"type", "enum", "required", "properties", "additionalProperties", "items",
                             "description"}
    assert not unknown, unknown
    if "enum" in schema:
        assert value in schema["enum"], (at, value)
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int,
             "boolean": bool, "null": type(None)}
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert any(isinstance(value, kinds[n]) for n in names), (at, names, value)
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value), (at, schema["required"], value)
        for key, item in value.items():
            more = schema.get("additionalProperties", True)
            assert key in schema.get("properties", {}) or more is not False, (at, key)
            matches(document, schema.get("properties", {}).get(key, more if more is not True else {}),
                    item, f"{at}.{key}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            matches(document, schema.get("items", {}), item, f"{at}[{i}]")
    return None


def paragraphs():
    """Paragraphs and doubts, as transcribe writes them, in each format that has them."""
    silence = bytes(3 * 32000)
    twice = wav_file(DATA[:5 * 32000] + silence + DATA[:5 * 32000])
    with open(f"{T}/twice.wav", "wb") as file:
        file.write(twice)
    wants = {kind: transcribed("-l", "en", "-f", kind, "--words", "--paragraphs", "2000", "--doubt",
                               path=f"{T}/twice.wav") for kind in ("txt", "json", "vtt")}
    want = json.loads(wants["json"])
    asked = [("language", "en"), ("paragraphs", "true"), ("doubt", "true")]
    with Server() as s:
        text = s.text(twice, [*asked, ("response_format", "text")])
        same(text, wants["txt"])
        same(text.count("\n\n"), 1)
        same(s.text(twice, [*asked, ("response_format", "vtt"), ("max_len", "0")]), wants["vtt"])
        assert "::cue(.doubtful)" in s.text(twice, [*asked, ("response_format", "vtt")])
        for kind in ("json", "verbose_json"):
            got = json.loads(s.text(twice, [*asked, ("response_format", kind),
                                            ("timestamp_granularities[]", "word,segment")]))
            same((got["paragraphs"], got["certainty"]), (want["paragraphs"], want["certainty"]))
            same(len(got["paragraphs"]), 2)
            pairs = list(zip(got["words"], (w for x in want["segments"] for w in x["words"]), strict=True))
            assert pairs and all(abs(a["probability"] - b["probability"]) < 1e-3 for a, b in pairs), pairs
        whole = json.loads(s.text(twice, [("language", "en"), ("paragraph_ms", "20000")]))
        same(len(whole["paragraphs"]), 1)
        plain = json.loads(s.text(twice, [("language", "en"), ("response_format", "verbose_json")]))
        assert not {"paragraphs", "certainty"} & set(plain), plain
        done = s.text(twice, [*asked, ("stream", "true")]).strip().split("\n\n")[-1].split("data: ")[1]
        same(json.loads(done)["paragraphs"], want["paragraphs"])
        same(s.post("/v1/audio/transcriptions", twice, [("paragraph_ms", "x")])[0], 400)


def openapi():
    """The document tells what each path answers, with success and with errors."""
    with Server("--api-key", "sesame", "--max-mb", "1") as s:
        document = json.loads(s.get("/openapi.json")[2])
        key, done = {"X-API-Key": "sesame"}, set()

        def check(path, answer, method="get", name=None):
            status, headers, body = answer
            responses = document["paths"][name or path][method]["responses"]
            assert str(status) in responses, (path, status, body)
            done.add((name or path, method, str(status)))
            if status == 204:
                return None
            kind = headers["content-type"].split(";")[0]
            content = responses[str(status)]["content"]
            assert kind in content, (path, status, kind)
            if kind == "application/json":
                matches(document, content[kind]["schema"], json.loads(body))
            return body
        for path, operations in document["paths"].items():
            if "get" in operations and "{" not in path:
                check(path, s.get(path, key))
                check(path, s.get(path))
        for path in ("/v1/audio/transcriptions", "/v1/audio/translations"):
            formats = document["paths"][path]["post"]["requestBody"]["content"][
                "multipart/form-data"]["schema"]["properties"]["response_format"]["enum"]
            for kind in formats:
                if kind in ("json", "verbose_json", "diarized_json", "text", "vtt"):
                    for more in ([], [("timestamp_granularities", "word,segment"),
                                      ("include[]", "logprobs")],
                                 [("paragraphs", "true"), ("doubt", "true"),
                                  ("timestamp_granularities", "word")]):
                        check(path, s.post(path, cut(0, 5), [("response_format", kind), *more], key),
                              "post")
            check(path, s.post(path, cut(0, 3), [("align", "we have"), ("stream", "true")], key)
                  if path.endswith("ptions") else s.post(path, cut(0, 3), [], key), "post")
        for path, operations in document["paths"].items():
            if "post" in operations:
                field = [n for n, v in operations["post"]["requestBody"]["content"][
                    "multipart/form-data"]["schema"]["properties"].items()
                         if v.get("format") == "binary"][0]
                check(path, s.post(path, cut(0, 3), [], key, name=field), "post")
                check(path, s.post(path, b"no audio", [], key, name=field), "post")
                check(path, s.post(path, bytes(2 << 20), [], key, name=field), "post")
        for path in ("/asr?output=json", "/asr?output=vtt"):
            check(path, s.post(path, cut(0, 3), [], key, name="audio_file"), "post", "/asr")
        for name in ("whisper-1", "none"):
            check(f"/v1/models/{name}", s.get(f"/v1/models/{name}", key), "get", "/v1/models/{model}")
        made = json.loads(check(TRANSCRIPTIONS, s.post(TRANSCRIPTIONS, cut(0, 3), [("async", "true")],
                                                       key), "post"))
        path = f"/v1/jobs/{made['id']}"
        assert wait_for(lambda: json.loads(s.get(path, key)[2])["status"] == "completed", 20)
        for method, headers in (("GET", key), ("GET", {}), ("DELETE", key), ("DELETE", key)):
            check(path, s.get(path, headers, method), method.lower(), "/v1/jobs/{id}")
        listed = {(path, method) for path, all_of in document["paths"].items() for method in all_of}
        same({(path, method) for path, method, _ in done}, listed)
        print(f"{len(done)} answers of {len(listed)} operations")


def several_keys():
    """Keys with names: each has its share of the queue, and the log tells whose request it was."""
    path = f"{T}/keys"

    def write(text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    for text in ("", "# none\n", "name\n", "a b c\n", "a one\na two\n", "a one\nb one\n",
                 "a " + "x" * 300 + "\n", "".join(f"n{i} k{i}\n" for i in range(65))):
        write(text)
        code, why = refused_start("--keys", path)
        assert code == 1 and "--keys" in why, (text, code, why)
    same(refused_start("--keys", f"{T}/no file")[0], 1)
    write("# who  key\nanna  apple\n\n  bert\tpear \n")
    with Server("--keys", path, "--api-key", "plum", "--queue", "3", "--verbose") as s:
        def ask(key, audio=cut(0, 1)):
            return s.post(TRANSCRIPTIONS, audio, headers={"X-API-Key": key})[0]
        same([ask(key) for key in ("apple", "pear", "plum", "anna", "", "appl")],
             [200, 200, 200, 401, 401, 401])
        w = WebSocket(s, ["Authorization: Bearer pear"])
        same(w.receive()["type"], "session.created")
        w.close()
        busy = [s.connect() for _ in range(2)]  # a session, and a third of the queue
        for c in busy:
            c.sendall(request(TRANSCRIPTIONS, cut(0, 12, 60)).replace(
                b"\r\n", b"\r\nX-API-Key: apple\r\n", 1))
        assert wait_for(lambda: s.health()["waiting"] == 1, 20) is not None
        status, headers, _ = s.post(TRANSCRIPTIONS, AUDIO, headers={"api-key": "apple"})
        same((status, int(headers["retry-after"]) > 0), (429, True))
        other = s.connect()
        other.sendall(request(TRANSCRIPTIONS, AUDIO).replace(
            b"\r\n", b"\r\nX-API-Key: pear\r\n", 1))
        assert wait_for(lambda: s.health()["waiting"] == 2, 20) is not None
        for c in busy:
            c.close()
        same(reply(other.makefile("rb"))[0], 200)
        other.close()
    lines = "".join(s.lines)
    assert " anna POST /v1/audio/transcriptions 429" in lines.replace("127.0.0.1 ", " "), lines
    assert "127.0.0.1 bert POST" in lines and "127.0.0.1 POST" in lines, lines
    assert not any(key in lines for key in ("apple", "pear", "plum")), lines


def refused_start(*options):
    """What a server says that does not start."""
    done = subprocess.run([f"{BUILD}/server", "--model", TOY, *options], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stderr


def listening():
    """A port alone is one of this machine only; what cannot be listened on is said, with advice."""
    with Server("--listen", "0", "--wyoming", "0", model=TOY, log=f"{T}/server.log") as s:
        for port in (s.port, s.ports["wyoming"]):
            with open("/proc/net/tcp", encoding="ascii") as file:
                assert f" 0100007F:{port:04X} 00000000:0000 0A " in file.read(), port
        s.log.flush()
        same(read(f"{T}/server.log").count(b" on 127.0.0.1:"), 2)
        for name, listen in (("--listen", []), ("--wyoming", ["--listen", "0"])):
            code, why = refused_start(*listen, name, f"127.0.0.1:{s.port}")
            same(code, 3)
            assert f"127.0.0.1:{s.port}: Address already in use (errno 98); another" in why, why
    code, why = refused_start("--listen", "192.0.2.1:9004")
    assert code == 3 and "errno 99" in why and "0.0.0.0" in why, (code, why)
    if os.geteuid() != 0:
        code, why = refused_start("--listen", "1")
        assert code == 3 and "errno 13" in why and "1024" in why, (code, why)
    has_ipv6 = "[::1]" in subprocess.run([f"{BUILD}/server", "--help"], capture_output=True,
                                         text=True, check=True).stdout
    if not has_ipv6:
        code, why = refused_start("--listen", "[::1]:9004")
        assert code == 3 and "[::1]:9004" in why and "IPv6" in why, (code, why)
    for wrong in ("", ":9004", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "9004s", "+9004", "65536",
                  "-1", "127.0.0.1:9004,9005", "no such name:1", "[::1:5"):
        code, why = refused_start("--listen", wrong)
        assert code == 1 and "--listen" in why, (wrong, code, why)
    with Server("--listen", "localhost:0", model=TOY) as s:
        same(s.get("/health")[0], 200)


def origins():
    """Pages of other sites, and those that come by a name that is not the server's, get nothing
    computed."""
    def post(s, headers):
        return s.post(TRANSCRIPTIONS, wav(0.2), headers=headers)[0]

    def connect(s, host, origin):
        w = WebSocket(s, [f"Origin: {origin}"] if origin else [], host=host)
        w.close()
        return w.status
    page = {"Sec-Fetch-Site": "same-origin"}  # as browsers say, which may have been deceived
    good = [("127.0.0.1:9004", None), ("localhost", None), ("x", None), ("[::1]:80", None),
            ("192.168.1.5:9004", "http://192.168.1.5:9004"), ("box.local:1", "http://box.local:1"),
            ("Speech.Example.org.:80", None), ("speech.example.org", "https://speech.example.org"),
            *[(f"nas.{end}", f"http://nas.{end}") for end in (
                "fritz.box", "lan", "home", "localdomain", "tail1.ts.net", "home.arpa", "intranet")]]
    bad = [("localhost", "https://example.org"), ("localhost", "null"),
           ("localhost:9004", "http://localhost:8000"), ("localhost", "http://localhost.evil"),
           ("evil.example:9004", "http://evil.example:9004"), ("local", "http://x"),
           ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example"),
           ("xspeech.example.org", "http://xspeech.example.org"), ("evillan", "http://evil.lan")]
    with Server("--host", "speech.example.org", "--host", "x.example", model=TOY) as s:
        for host, origin in good + bad:
            headers = {"Host": host, **({"Origin": origin} if origin else {})}
            wanted = (host, origin) in good
            same((host, origin, post(s, headers)), (host, origin, 200 if wanted else 403))
            same((host, origin, connect(s, host, origin)), (host, origin, 101 if wanted else 403))
            same(s.get("/health", headers)[0], 200)
        for host in ("evil.example", "127.0.0.1.evil.example", "example.org", "xspeech.example.org"):
            same(post(s, {"Host": host}), 200)  # no page, and from this machine
            same(post(s, {"Host": host, **page}), 403)
            same(connect(s, host, None), 101)
        error_of(s.post("/v1/audio/translations", wav(0.2), headers={"Origin": "http://x"}), 403)
        for path, name in (("/inference", "file"), ("/asr", "audio_file")):
            same(s.post(path, wav(0.2), headers={"Origin": "http://x"}, name=name)[0], 403)
    for options, origin, status in ((["--cors", "https://example.org"], "https://example.org", 200),
                                    (["--cors", "https://example.org"], "https://x.org", 403),
                                    (["--cors", "*"], "https://x.org", 200)):
        with Server(*options, model=TOY) as s:
            same(post(s, {"Origin": origin}), status)
            same(post(s, {"Host": "evil.example", **page}), 200 if "*" in options else 403)
    with Server("--proxy", "127.0.0.1", model=TOY) as s:
        for address, status in (("192.168.1.7", 200), ("100.99.1.2", 200), ("fd00::7", 200),
                                ("203.0.113.9", 403), ("172.32.0.1", 403), ("2001:db8::1", 403)):
            same((address, post(s, {"Host": "nas.example.net", "X-Forwarded-For": address})),
                 (address, status))
    with Server("--api-key", "sesame", model=TOY) as s:
        for headers in ({"Authorization": "Bearer sesame"}, {"X-API-Key": "sesame"}):
            same(post(s, {**headers, "Host": "speech.example.org", **page}), 200)


def operation():
    """What is told to those who run the server: metrics and lines about requests."""
    log = f"{T}/operation.log"
    for verbose in (False, True):
        with Server("--max-mb", "1", "--wyoming", "127.0.0.1:0", *["--verbose"] * verbose, model=TOY,
                    log=log) as s:
            same(s.post(TRANSCRIPTIONS, wav(2))[0], 200)
            same(s.post(TRANSCRIPTIONS, wav(40))[0], 413)
            same(s.get("/health")[0], 200)
            same(s.get("/x%0a%1b[31m")[0], 404)
            wyoming_say(s, bytes(32000))
            w = WebSocket(s)
            w.until("session.created")
            same(s.metric("realtime_connections"), 1)
            w.append(bytes(48000))
            w.send("input_audio_buffer.commit")
            w.until(COMPLETED)
            w.close()
            for name in ("request_seconds", "queue_seconds"):
                text = s.get("/metrics")[2].decode()
                buckets = re.findall(rf'^wnpu_{name}_bucket{{le="(\S+)"}} (\d+)$', text, re.M)
                same([int(n) for _, n in buckets], sorted(int(n) for _, n in buckets))
                same((buckets[-1][0], float(buckets[-1][1])), ("+Inf", s.metric(f"{name}_count")))
                assert s.metric(f"{name}_count") >= 2 and s.metric(f"{name}_sum") >= 0, text
            assert 'wnpu_build_info{version="' in text and 'model="toy"} 1\n' in text, text
            process = dict(re.findall(r"^process_(\w+) (\S+)$", text, re.M))
            assert abs(int(process["resident_memory_bytes"]) / 1024 - s.memory_kb()) < 4096, process
            assert abs(float(process["start_time_seconds"]) - time.time()) < 300, process
            assert 0 < float(process["cpu_seconds_total"]) < 300, process
            assert 3 < int(process["open_fds"]) < int(process["max_fds"]), process
            for i in range(100):  # no flood
                same(s.get(f"/nothing/{i}")[0], 404)
            s.process.send_signal(signal.SIGTERM)
            s.reader.join()
            lines = "".join(s.lines)
        told = re.findall(r"^server: 127.0.0.1 (.*)$", lines, re.M)
        same(any(re.match(r"POST /v1/audio/transcriptions 200, 2.0 s of audio, \d+ ms in the queue, "
                          r"\d+ ms, req_[0-9a-f]{16}$", line) for line in told), verbose)
        assert any(re.match(r"POST /v1/audio/transcriptions 413, \d+ ms, req_\w+: the request is "
                        "larger", line)
                   for line in told), lines
        assert any(line.startswith("GET /x??[31m 404, ") for line in told), lines
        same("GET /health 200" in lines, verbose)
        for kind in ("Wyoming 200, 1.0 s", "realtime item_000001_0001, 1.0 s of audio"):
            same((kind, kind in lines), (kind, verbose))
        same(sum("/nothing/" in line for line in told) == 100, verbose)


def threads():
    """The sessions share the CPUs that the server may use."""
    def of_each(*options):
        with Server(*options, model=TOY, log=f"{T}/server.log") as s:
            s.log.flush()
            return int(re.search(r"with (\d+) threads? each", read(f"{T}/server.log").decode())[1])
    cpus = os.sched_getaffinity(0)
    same(of_each("--threads", "6", "--sessions", "2"), 3)
    same(of_each("--sessions", "2"), max(1, min(8, len(cpus)) // 2))
    os.sched_setaffinity(0, {min(cpus)})
    same(of_each(), 1)


def reply(lines):
    """Reads an answer from a connection: its status, headers and body."""
    status = int(lines.readline().split()[1])
    headers = {}
    while (line := lines.readline().strip()):
        name, value = line.decode().split(": ", 1)
        headers[name.lower()] = value
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while (n := int(lines.readline(), 16)) > 0:
            body += lines.read(n)
            lines.readline()
        lines.readline()
        return status, headers, body
    return status, headers, lines.read(int(headers.get("content-length", 0)))


def persistent():
    """A connection carries one request after another, unless what follows could be misread."""
    with Server("--max-mb", "1", "--connections", "6", model=TOY) as s:
        c = s.connect()
        lines = c.makefile("rb")
        want = s.text(wav(0.5), [("response_format", "verbose_json")])
        for name, audio in (("verbose_json", wav(0.5)), ("stream", wav(0.5)), ("json", b"bad"),
                            ("verbose_json", wav(0.5))):
            c.sendall(request(TRANSCRIPTIONS, audio, [
                ("stream", "true") if name == "stream" else ("response_format", name)]))
            status, headers, body = reply(lines)
            same((status, headers["connection"]), (400 if name == "json" else 200, "keep-alive"))
            assert name != "verbose_json" or body.decode() == want, body
        for method in ("HEAD", "GET"):
            c.sendall(f"{method} /health HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if method == "HEAD":
                while lines.readline().strip():
                    pass
            else:
                same(json.loads(reply(lines)[2])["status"], "ok")
        for end in (b"", b"\r\n" * 50, b"x" * 9000):  # what follows the form
            body, kind = form([("response_format", "text")], wav(0.5))
            c.sendall(f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
                      f"Content-Length: {len(body + end)}\r\n\r\n".encode() + body + end)
            status, headers, _ = reply(lines)
            same((status, headers["connection"]), (200, "keep-alive"))
        for i in range(30):  # for longer than a connection may be silent
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            same(reply(lines)[0], 200)
            time.sleep(0.4)
        c.close()
        for head in (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
                     b"GET /health HTTP/1.0\r\n\r\n",
                     b"GET /health HTTP/1.1\r\nContent-Length: 30\r\n\r\nGET /v1/models HTTP/1.1\r\n",
                     b"POST /asr HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 29\r\n\r\n"
                     b"GET /metrics HTTP/1.1\r\n\r\n",
                     b"POST /asr HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
                     b"\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
                     request(TRANSCRIPTIONS, wav(40)), request("/nothing", wav(1))):
            c = s.connect()
            c.sendall(head)
            lines = c.makefile("rb")
            same(reply(lines)[1]["connection"], "close")
            try:
                same(lines.read(), b"")
            except ConnectionResetError:
                pass
            c.close()
        clients, kept = [], []

        def half():  # more than half of the connections; those before may still be being closed
            while clients:
                clients.pop().close()
            kept.clear()
            for _ in range(5):
                clients.append(s.connect())
                begin = time.monotonic()
                clients[-1].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                kept.append((reply(clients[-1].makefile("rb"))[1]["connection"], begin))
            return [how for how, _ in kept].count("keep-alive") == 3
        assert wait_for(half, 60) is not None, kept
        # clients take a kept connection for granted for 5 s
        first = [how for how, _ in kept].index("keep-alive")
        same(clients[first].recv(1), b"")
        assert time.monotonic() - kept[first][1] > 6, time.monotonic() - kept[first][1]
        if shutil.which("curl"):
            url = f"http://127.0.0.1:{s.port}{TRANSCRIPTIONS}"
            with open(f"{T}/noise.wav", "wb") as file:
                file.write(wav(0.5))
            done = subprocess.run(["curl", "-sv", "-F", f"file=@{T}/noise.wav", url, url],
                                  check=True, capture_output=True, text=True)
            same(done.stderr.count("< HTTP/1.1 200 OK"), 2)
            assert "Re-using existing" in done.stderr, done.stderr


def containers():
    """What browsers, phones and recorders send, by file and by extension."""
    with Server() as s:
        for kind, codec in [("webm", "libopus"), ("ogg", "libvorbis"), ("mp4", "aac"),
                            ("m4a", "aac"), ("mp3", "libmp3lame"), ("mpeg", "mp2"),
                            ("flac", "flac")]:
            path = f"{T}/a.{kind}"
            done = subprocess.run(["ffmpeg", "-nostdin", "-y", "-v", "error", "-i", f"{T}/clip.wav", "-c:a",
                                   codec, "-b:a", "96k", path], check=False)
            if done.returncode == 0:
                same(json.loads(s.text(read(path), filename=f"a.{kind}"))["text"],
                     joined(transcribed(path=path)))
        time.sleep(0.2)  # the last connection is being closed
        before = s.descriptors()
        for _ in range(5):
            s.text(read(f"{T}/a.flac"))
        assert wait_for(lambda: s.descriptors() <= before, 5) is not None, "descriptors leak"


def events():
    """Server-sent events: deltas add up to the text."""
    with Server() as s:
        text = json.loads(s.text(AUDIO))["text"]
        status, headers, data = s.post(TRANSCRIPTIONS, AUDIO, [("stream", "true"),
                                                               ("include[]", "logprobs")])
        same((status, headers["content-type"].split(";")[0]), (200, "text/event-stream"))
        seen = sent_events(data)
        deltas = [e for e in seen if e["type"] == "transcript.text.delta"]
        assert len(deltas) > 1 and all(d["logprobs"] for d in deltas), seen
        same("".join(d["delta"] for d in deltas), text)
        same((seen[-1]["type"], seen[-1]["text"]), ("transcript.text.done", text))
        usage, tokens = seen[-1]["usage"], len(seen[-1]["logprobs"])
        same((usage["type"], usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]),
             ("tokens", len(DATA) // 3200 + (len(DATA) % 3200 > 0), tokens,
              usage["input_tokens"] + tokens))
        error_of(s.post(TRANSCRIPTIONS, b"no audio", [("stream", "true")]), 400, "file")
        tentative_events(s, text)
        progress_events(s, text)
        begun_events(s, text)


def begun_events(s, text):
    """A client that waits gets the headers at once, and comments."""
    busy = s.connect()
    busy.sendall(request(TRANSCRIPTIONS, cut(0, 12, 60)))
    assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
    c = s.connect()
    c.sendall(request(TRANSCRIPTIONS, AUDIO, [("stream", "true")]))
    file = c.makefile("rb")
    same(file.readline(), b"HTTP/1.1 200 OK\r\n")
    assert s.health()["waiting"] > 0 or s.health()["idle"] == 0
    busy.close()
    done = next(line for line in iter(file.readline, b"") if b'"transcript.text.done"' in line
                and b"data: " in line)
    same(json.loads(done.split(b"data: ", 1)[1])["text"], text)
    c.close()


def progress_events(s, text):
    """With progress=true there are events for the wait, the progress and what is missing."""
    wanted = [("stream", "true"), ("progress", "true")]
    audio = cut(0, 12, 3) # several windows
    seen = sent_events(s.post(TRANSCRIPTIONS, audio, wanted)[2])
    steps = [e for e in seen if e["type"] == "transcript.progress"]
    length = json.loads(s.text(audio, [("response_format", "verbose_json")]))["duration"]
    assert len(steps) > 1 and steps[0]["done"] < steps[-1]["done"], seen
    same({(e["total"], e["done"] <= e["total"]) for e in steps}, {(length, True)})
    same({e["type"].split(".")[-1] for e in seen}, {"progress", "delta", "done"})
    seen = sent_events(s.post(TRANSCRIPTIONS, wav(1), wanted + [("languages", "en,yue")])[2])
    same([e["type"] for e in seen[-2:]], ["transcript.warning", "transcript.text.done"])
    assert "yue" in seen[-2]["message"], seen[-2]
    busy, second = s.connect(), s.connect()
    busy.sendall(request(TRANSCRIPTIONS, cut(0, 12, 60)))
    assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
    second.sendall(request(TRANSCRIPTIONS, AUDIO, wanted))
    file = second.makefile("rb")
    lines = iter(file.readline, b"")
    assert any(line == b'data: {"type": "transcript.waiting", "before": 0}\n' for line in lines)
    busy.close()
    done = next(line for line in lines if b'"transcript.text.done"' in line and b"data: " in line)
    same(json.loads(done.split(b"data: ", 1)[1])["text"], text)
    second.close()
    error_of(s.post(TRANSCRIPTIONS, AUDIO, [("progress", "maybe")]), 400, "progress")


def tentative_events(s, text):
    """With tentative=true text comes token by token, and the deltas are the same."""
    wanted = [("response_format", "verbose_json"), ("timestamp_granularities[]", "word")]
    verbose = json.loads(s.text(AUDIO, wanted))
    data = s.post(TRANSCRIPTIONS, AUDIO, wanted + [("stream", "true"), ("tentative", "true")])[2]
    seen = sent_events(data)
    kinds = [e["type"].split(".")[-1] for e in seen]
    same("".join(e["delta"] for e in seen if "delta" in e), text)
    assert kinds.index("delta") > 5, kinds  # text before the first window is complete
    same(text.startswith(seen[kinds.index("delta") - 1]["text"]), True)
    same([seen[i - 1]["text"] for i in range(len(seen)) if kinds[i] == "done"], [""])
    same((seen[-1]["text"], seen[-1]["verbose_json"]), (text, verbose))
    error_of(s.post(TRANSCRIPTIONS, AUDIO, [("tentative", "maybe")]), 400, "tentative")


def wyoming_event(c, kind, data=None, payload=b"", apart=False):
    """Sends an event as Home Assistant does; apart: with its data behind the line."""
    event = {"type": kind, "version": "1.7.1"}
    more = json.dumps(data or {}).encode()
    if payload:
        event["payload_length"] = len(payload)
    if apart:
        event["data_length"] = len(more)
    else:
        event["data"], more = data or {}, b""
    c.sendall(json.dumps(event).encode() + b"\n" + more + payload)


def wyoming_say(s, samples, **more):
    """Sends a command; returns the texts of the events that it leads to, by type."""
    c = s.connect(s.ports["wyoming"], plain=True)
    lines = c.makefile("rb")
    pcm = {"rate": 16000, "width": 2, "channels": 1}
    wyoming_event(c, "transcribe", {"language": "en", **more})
    wyoming_event(c, "audio-start", pcm)
    wyoming_event(c, "audio-chunk", pcm, samples)
    wyoming_event(c, "audio-stop")
    got = {}
    while "transcript-stop" not in got and "error" not in got:
        line = lines.readline()
        event = json.loads(line)
        assert len(line) < 65536, len(line)
        data = event.get("data") or json.loads(lines.read(event.get("data_length", 0)) or "{}")
        got.setdefault(event["type"], []).append(data.get("text", ""))
    c.close()
    return got


def broken_event(r):
    """What is not an event of Wyoming's, or comes at the wrong time."""
    return r.choice([
        b"{", b'{"type": "audio-stop"}', b'{"type": 5}', b"[]", b"\0" * 70000, r.randbytes(100),
        b'{"type":"audio-start","data":{"rate":-1}}', b'{"type":"x","data_length":99999999999}',
        b'{"type":"audio-chunk","payload_length":-5}',
        b'{"type":"audio-chunk","data":{"rate":%d,"width":%d,"channels":%d},"payload_length":9}'
        % (r.choice([1000, 384000]), r.randrange(1, 5), r.choice([1, 256]))]) + b"\n" + \
        r.randbytes(r.randrange(40)) + b'{"type":"audio-stop"}\n'


def wyoming():
    """What Home Assistant sends: describe, and a command in chunks."""
    text = joined(transcribed("-l", "en"))
    with Server("--wyoming", "127.0.0.1:0") as s:
        for apart in (False, True):
            c = s.connect(s.ports["wyoming"])
            lines = c.makefile("rb")
            wyoming_event(c, "describe")
            info = json.loads(lines.readline())
            same(info["type"], "info")
            model = info["data"]["asr"][0]["models"][0]
            assert model["installed"] and info["data"]["asr"][0]["installed"], info
            assert {"en", "de"} < set(model["languages"]), model
            c.close()
            c = s.connect(s.ports["wyoming"])
            lines = c.makefile("rb")
            pcm = {"rate": 16000, "width": 2, "channels": 1}
            wyoming_event(c, "transcribe", {"language": "en", "name": None}, apart=apart)
            wyoming_event(c, "audio-start", {**pcm, "timestamp": 0}, apart=apart)
            for at in range(0, len(DATA), 2048):
                wyoming_event(c, "audio-chunk", {**pcm, "timestamp": at // 32},
                              DATA[at:at + 2048], apart)
            wyoming_event(c, "audio-stop", {"timestamp": len(DATA) // 32})
            got = {}
            while "transcript-stop" not in got:
                event = json.loads(lines.readline())
                got.setdefault(event["type"], []).append(event["data"].get("text", ""))
            same(list(got), ["transcript-start", "transcript-chunk", "transcript",
                             "transcript-stop"])
            same(got["transcript"], [text])
            same("".join(got["transcript-chunk"]), text)
            wyoming_event(c, "ping")
            same(json.loads(lines.readline())["type"], "pong")
            c.close()
        c = s.connect(s.ports["wyoming"])  # commands and questions over one connection
        lines = c.makefile("rb")
        for order in ("start first", "transcribe first", "transcribe once"):
            if order != "start first":
                wyoming_event(c, "transcribe", {"language": "en"})
            wyoming_event(c, "audio-start", {"rate": 8000, "width": 1, "channels": 1})
            wyoming_event(c, "audio-chunk", payload=bytes(5000))  # is forgotten
            wyoming_event(c, "audio-start", pcm)
            if order != "transcribe once":
                wyoming_event(c, "transcribe", {"language": "en"})
            wyoming_event(c, "audio-chunk", pcm, DATA[:100001])
            wyoming_event(c, "describe")
            same(json.loads(lines.readline())["type"], "info")
            wyoming_event(c, "audio-chunk", pcm, DATA[100001:])
            wyoming_event(c, "audio-stop")
            wyoming_event(c, "describe")
            got = []
            while not got or got[-1][0] != "info":
                event = json.loads(lines.readline())
                got.append((event["type"], event["data"].get("text")))
            same([e for e in got if e[0] != "transcript-chunk"],
                 [("transcript-start", None), ("transcript", text), ("transcript-stop", None),
                  ("info", None)])
        wyoming_event(c, "audio-start", pcm)  # no audio
        wyoming_event(c, "audio-stop")
        same([json.loads(lines.readline())["type"] for _ in range(3)],
             ["transcript-start", "transcript", "transcript-stop"])
        c.close()
        r = random.Random(1)
        for _ in range(50):  # broken events
            c = s.connect(s.ports["wyoming"])
            c.sendall(broken_event(r))
            c.close()
        same(s.post(TRANSCRIPTIONS, AUDIO)[0], 200)


def wyoming_chunks():
    """A chunk names the format of its audio; audio-start may be missing."""
    with open(f"{T}/high.wav", "wb") as file:
        high = DATA[:8 * 32000]
        file.write(resampled(high, 22050))
    text = joined(transcribed("-l", "en", path=f"{T}/high.wav"))
    pcm = {"rate": 22050, "width": 2, "channels": 1}
    with Server("--wyoming", "127.0.0.1:0") as s:
        for start in (None, pcm, {"rate": 16000, "width": 2, "channels": 1}, {}):
            c = s.connect(s.ports["wyoming"])
            lines = c.makefile("rb")
            wyoming_event(c, "transcribe", {"language": "en"})
            if start is not None:
                wyoming_event(c, "audio-start", start)
            for at in range(0, len(high), 50000):
                wyoming_event(c, "audio-chunk", pcm, high[at:at + 50000])
            wyoming_event(c, "audio-stop")
            got = {}
            while "transcript-stop" not in got:
                event = json.loads(lines.readline())
                got[event["type"]] = event["data"].get("text")
            same(got["transcript"], text)
            c.close()
        c = s.connect(s.ports["wyoming"])
        wyoming_event(c, "audio-chunk", pcm, high[:50000])
        wyoming_event(c, "audio-chunk", {**pcm, "rate": 44100}, high[:50000])
        same(json.loads(c.makefile("rb").readline())["data"]["code"], "invalid_event")
        c.close()


def talkative_model(path):
    """Writes TOY with tokens of a thousand letters."""
    data, letters = read(TOY), random.Random(1)
    at = 4 + 11 * 4  # behind the magic and the sizes: the mel filters
    mels, bins = struct.unpack_from("<ii", data, at)
    at += 8 + 4 * mels * bins
    out = [data[:at + 4]]
    (n,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(n):
        at += 4 + struct.unpack_from("<I", data, at)[0]
        out.append(struct.pack("<I", 1000) + bytes(letters.choices(b"abcdefghijklmnop", k=1000)))
    with open(path, "wb") as file:
        file.write(b"".join(out) + data[at:])


def wyoming_long():
    """What is longer than the 64 KiB that the wyoming package reads as a line is behind it."""
    talkative_model(f"{T}/long.bin")
    free = [x for name in ("logprob_threshold=off", "no_speech_threshold=off", "temperature_step=0",
                           "compression_threshold=off", "temperature=1", "vad=0")
            for x in ("--set", name)]
    with Server("--wyoming", "127.0.0.1:0", *free, model=f"{T}/long.bin") as s:
        text = json.loads(s.text(wav(5), [("language", "en")]))["text"]
        assert len(text) > 65536, len(text)
        same(wyoming_say(s, wav(5)[44:])["transcript"], [text])
    for n in (30000, 100000):
        with Server("--wyoming", "127.0.0.1:0", "--name", "x" * n, model=TOY) as s:
            c = s.connect(s.ports["wyoming"])
            lines = c.makefile("rb")
            wyoming_event(c, "describe")
            line = lines.readline()
            event = json.loads(line)
            assert len(line) < 65536, len(line)
            same("data" in event, n < 32768)
            data = event.get("data") or json.loads(lines.read(event["data_length"]))
            same((event["type"], data["asr"][0]["models"][0]["name"]), ("info", "x" * n))
            wyoming_event(c, "ping")
            same(json.loads(lines.readline())["type"], "pong")
            c.close()


def wyoming_refused():
    """What is not served is answered with an error event."""
    with Server("--wyoming", "127.0.0.1:0", "--queue", "0", "--max-mb", "1", model=TOY) as s:
        def refusal(data):
            c = s.connect(s.ports["wyoming"])
            c.sendall(data)
            lines = c.makefile("rb").readlines()  # up to the end of the connection
            c.close()
            same(len(lines), 1)
            event = json.loads(lines[0])
            assert event["type"] == "error" and event["data"]["text"], event
            return event["data"]["code"]
        start = b'{"type": "audio-start", "data": {"rate": 16000, "width": 2, "channels": 1}}\n'
        wrong = [b"{\n", b"[]\n", b"5\n", b'{"type": 5}\n', b'{"type": "audio-stop"}\n',
                 b'{"type": "audio-start", "data": {"rate": -1}}\n',
                 b'{"type": "x", "data_length": 99999999999}\n',
                 b'{"type": "x", "data_length": "5"}\n',
                 b'{"type": "audio-chunk", "payload_length": -5}\n', b" " * 70000 + b"\n",
                 b'{"type": "' + b"x" * 3000000]
        for data in wrong:
            same(refusal(data), "invalid_event")
        same(refusal(start + b'{"type": "audio-chunk", "payload_length": 2000000}\n'
                     + bytes(2000000)), "too_much_audio")
        same(s.metric('refused_total{reason="bad_request"}'), len(wrong) + 1)

        others = [s.connect(s.ports["wyoming"]) for _ in range(40)]
        event = json.loads(others[-1].makefile("rb").readline())
        same((event["type"], event["data"]["code"]), ("error", "server_busy"))
        for c in others:
            c.close()
    with Server("--wyoming", "127.0.0.1:0", "--queue", "0") as s:
        def say(c):
            wyoming_event(c, "audio-start", {"rate": 16000, "width": 2, "channels": 1})
            wyoming_event(c, "audio-chunk", payload=bytes(20000))
            wyoming_event(c, "audio-stop")
            lines = c.makefile("rb")
            event = json.loads(lines.readline())
            return event["type"], event["data"].get("code"), lines
        upload = busy(s)
        c = s.connect(s.ports["wyoming"])
        kind, code, lines = say(c)
        same((kind, code), ("error", "server_busy"))
        same(lines.read(), b"")  # Home Assistant ignores errors, and waits for this
        c.close()
        upload.close()
        assert wait_for(lambda: s.health()["idle"] == 1, 5) is not None
        c = s.connect(s.ports["wyoming"])
        same(say(c)[0], "transcript-start")
        c.close()


def speakers():
    """Channels as speakers: each has its own text, in order, and crosstalk is reported once."""
    left = right = DATA[:6 * 32000]
    quiet = bytes(6 * 32000)

    def stereo(one, two):
        frames = zip(struct.iter_unpack("<h", one), struct.iter_unpack("<h", two))
        return wav_file(b"".join(struct.pack("<hh", a, b) for (a,), (b,) in frames), 2)
    with Server() as s:
        both = stereo(left + quiet, quiet + right)
        answer = json.loads(s.text(both, [("response_format", "diarized_json"),
                                          ("language", "en")]))
        turns = answer["segments"]
        same([t["speaker"] for t in turns], sorted(t["speaker"] for t in turns))
        same({t["speaker"] for t in turns}, {"A", "B"})
        same({w["speaker"] for w in answer["words"]}, {"A", "B"})
        assert all(t["type"] == "transcript.text.segment" and t["end"] >= t["start"]
                   for t in turns), turns
        once = json.loads(s.text(stereo(left, left), [("response_format", "diarized_json")]))
        same({t["speaker"] for t in once["segments"]}, {"A"})
        data = s.post(TRANSCRIPTIONS, both, [("response_format", "diarized_json"),
                                             ("language", "en"), ("stream", "true")])[2]
        seen = sent_events(data)
        same([e["speaker"] for e in seen[:-1]], [t["speaker"] for t in turns])
        same((seen[-1]["type"], seen[-1]["text"]), ("transcript.text.done", answer["text"]))
        mono = json.loads(s.text(AUDIO, [("response_format", "diarized_json")]))
        same({t["speaker"] for t in mono["segments"]}, {"A"})
    with Server(model=TOY) as s:
        for channels, warning in (1, "told apart by channel"), (16, None), (17, "first 16 of 17"):
            status, headers, _ = s.post(TRANSCRIPTIONS, wav(0.2, channels=channels),
                                        [("response_format", "diarized_json")])
            same((status, "x-warning" in headers), (200, warning is not None))
            assert warning is None or warning in headers["x-warning"], headers


DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def pieces(samples, ms=100, rate=16000):
    size = rate * ms // 1000 * 2
    return [samples[i:i + size] for i in range(0, len(samples), size)]


def realtime():
    """Realtime transcription with commits of the client gives what a request for the file gives."""
    with Server("--sessions", "1") as s:
        want = json.loads(s.text(AUDIO, [("language", "en")]))["text"]
        w = WebSocket(s)
        same(w.status, 101)
        same(w.receive()["type"], "session.created")
        w.send("transcription_session.update", session={
            "input_audio_format": {"type": "audio/pcm", "rate": 16000},
            "input_audio_transcription": {"model": "whisper-1", "language": "en"},
            "turn_detection": None})
        updated = w.receive()
        same(updated["type"], "transcription_session.updated")
        same((updated["session"]["input_audio_format"], updated["session"]["turn_detection"],
              updated["session"]["input_audio_transcription"]["language"]), ("pcm16", None, "en"))
        items, ids, sent = [], set(), 0
        for languages, language in ((["de", "en"], None), (["en"], "en")):
            w.send("session.update", session={"type": "transcription", "audio": {"input": {
                "transcription": {"model": "whisper-1", "languages": languages}}}})
            same(w.receive()["session"]["audio"]["input"]["transcription"]["language"], language)
        for _ in range(2):
            for piece in pieces(DATA):
                w.append(piece)
            w.send("input_audio_buffer.commit")
            seen = w.until(COMPLETED)
            committed = [e for e in seen if e["type"] == "input_audio_buffer.committed"][0]
            same((seen[-1]["transcript"], seen[-1]["languages"]), (want, [{"code": "en"}]))
            same("".join(e["delta"] for e in seen if e["type"] == DELTA), want)
            assert {e["item_id"] for e in seen if "item_id" in e} == {committed["item_id"]}, seen
            named = [e for e in seen if e["type"].startswith("conversation.item.") and "item" in e]
            same([e["type"].split(".")[-1] for e in named], ["created", "added", "done"])
            same({e["item"]["id"] for e in named}, {committed["item_id"]})
            same({e["previous_item_id"] for e in named}, {committed["previous_item_id"]})
            ids.update(e["event_id"] for e in seen)
            sent += len(seen)
            items.append(committed)
        same(len(ids), sent)
        same(items[1]["previous_item_id"], items[0]["item_id"])
        for i in range(0, len(DATA), 3201):  # samples that are divided between events
            w.append(DATA[i:i + 3201])
        w.send("input_audio_buffer.commit")
        same(w.until(COMPLETED)[-1]["transcript"], want)
        for include in (["item.input_audio_transcription.logprobs", "x"], []):
            w.send("session.update", session={"include": include})
            w.receive()
            for piece in pieces(DATA, 1000):
                w.append(piece)
            w.send("input_audio_buffer.commit")
            seen = w.until(COMPLETED)
            for event in seen[-1:] + [e for e in seen if e["type"] == DELTA]:
                same("logprobs" in event, len(include) > 0)
                same("".join(t["token"] for t in event.get("logprobs", [])).strip(),
                     event.get("delta", event.get("transcript")).strip() if include else "")
        w.append(DATA[:32001])  # a new format begins with the next item
        w.send("session.update", session={"input_audio_format": "g711_ulaw"})
        for piece in pieces(DATA[32001:], 10000):
            w.append(piece)
        w.send("session.update", session={"input_audio_format": {"type": "audio/pcm",
                                                                 "rate": 16000}})
        w.send("input_audio_buffer.commit")
        same(w.until(COMPLETED)[-1]["transcript"], want)
        w.append(DATA[:64001])
        w.send("input_audio_buffer.clear")
        same(w.until("input_audio_buffer.cleared")[-1]["type"], "input_audio_buffer.cleared")
        w.send("input_audio_buffer.commit", event_id="e1")
        error = w.until("error")[-1]["error"]
        same((error["event_id"], error["type"], error["code"]),
             ("e1", "invalid_request_error", "input_audio_buffer_commit_empty"))
        w.send("input_audio_buffer.commit")
        same(w.until("error")[-1]["error"]["event_id"], None)
        same(s.health()["idle"], 1)
        w.close()
        for closing, code in ((b"", 1000), (b"\x03\xe9", 1001), (b"\x0f\xa0bye", 4000),
                              (b"x", 1002), (b"\x03\xee", 1002)):  # is answered in kind
            w = WebSocket(s)
            w.until("session.created")
            w.frame(closing, 8)
            same((w.receive(), w.code), (None, code))
        for event in (b"{", b"[]", b'{"type": "x"}',
                      b'{"type": "input_audio_buffer.append", "audio": "*"}',
                      b'{"type": "input_audio_buffer.append"}',
                      b'{"type": "session.update", "session": {"audio": {"input": {"format": 5}}}}',
                      b'{"type": "session.update", "session": {"input_audio_transcription": '
                      b'{"languages": ["en", "xx"]}}}',
                      b'{"type": "session.update", "session": {"turn_detection": {"threshold": ""}}}'):
            w = WebSocket(s)
            w.until("session.created")
            w.frame(event)
            same(w.until("error")[-1]["type"], "error")
            w.close()
        w = WebSocket(s)  # an event in several frames
        w.until("session.created")
        w.frame(b'{"type": "input_audio', last=False)
        w.frame(b'_buffer.clear"}', opcode=0)
        same(w.receive()["type"], "input_audio_buffer.cleared")
        w.close()


def realtime_settings():
    """What a session sets changes its text as the fields of a request do; it is told back in the
    form that the client used."""
    with Server("--sessions", "2", "--set", "language_windows=3") as s:
        def hear(w):
            for piece in pieces(DATA, 1000):
                w.append(piece)
            w.send("input_audio_buffer.commit")
            return w.until(COMPLETED)[-1]["transcript"]

        def set_up(w, **transcription):
            w.send("session.update", session={"type": "transcription", "audio": {"input": {
                "format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": {"type": "none"},
                "transcription": {"model": "gpt-4o-transcribe", **transcription}}}})
            told = w.until("session.updated")[-1]["session"]
            same((told["type"], told["audio"]["input"]["format"],
                  told["audio"]["input"]["turn_detection"]),
                 ("transcription", {"type": "audio/pcm", "rate": 16000}, None))
            return told["audio"]["input"]["transcription"]
        w = WebSocket(s)
        same(w.receive()["type"], "session.created")
        for name in ("auto", "null", "None", "und", "", None):  # no reason to refuse the rest
            w.send("session.update", session={"type": "transcription", "audio": {"input": {
                "transcription": {"language": name}, "format": {"type": "audio/pcmu"}}}})
            told = w.until("session.updated")[-1]["session"]["audio"]["input"]
            same((told["transcription"]["language"], told["format"]["type"]), (None, "audio/pcmu"))
        texts = []
        for fields in ({"language": "en"}, {"prompt": "Glossary: Zyxwy."},
                       {"keywords": ["Shrieking", "", "Kreek"]}, {"prompt": "", "keywords": []}):
            told = set_up(w, **fields)
            for name, value in fields.items():
                same(told[name], [v for v in value if v] if name == "keywords" else value)
            texts.append(hear(w))
        base, prompt = ("language", "en"), ("prompt", "Glossary: Zyxwy.")
        for text, fields in zip(texts, ([base], [base, prompt],
                                        [base, prompt, ("keywords", "Shrieking,Kreek")], [base])):
            same(text, json.loads(s.text(AUDIO, fields))["text"])
        same(len(set(texts)), 3)
        names = [f"Mount {i} of New Place" for i in range(100, 356)]  # as many as a file's may be
        same(set_up(w, keywords=names)["keywords"], names)
        told = set_up(w, keywords=[" ".join(f"{n:x}" for n in range(100 * i, 100 * i + 100))
                                   for i in range(20)])
        same(told["keywords"], [])  # more tokens than a session has room for
        same(hear(w), texts[0])
        for keywords in ("Kreek", [5], ["a\0b"], ["x" * 9000], ["x"] * 300):
            w.send("session.update", session={"input_audio_transcription": {"keywords": keywords}})
            assert "keywords" in w.until("error")[-1]["error"]["message"]
        w.close()
        for headers in (["OpenAI-Beta: realtime=v1"],
                        ["Sec-WebSocket-Protocol: realtime, openai-beta.realtime-v1"]):
            assert wait_for(lambda: s.health()["idle"] == 2, 5) is not None
            w = WebSocket(s, headers)
            told = w.receive()
            same((told["type"], told["session"]["input_audio_format"],
                  told["session"]["turn_detection"]["type"]),
                 ("transcription_session.created", "pcm16", "server_vad"))
            w.close()


def busy(s):
    """Makes a server busy; ends when the connection that is returned is closed."""
    c = s.connect()
    c.sendall(request(TRANSCRIPTIONS, cut(0, 12, 60)))
    assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
    return c


def realtime_idle():
    """A connection has a session only while speech is decoded, and turns are found without one."""
    with Server() as s:
        silent = WebSocket(s)
        same(silent.receive()["type"], "session.created")
        for piece in pieces(bytes(48000 * 3), rate=24000):
            silent.append(piece)
        same(s.post(TRANSCRIPTIONS, AUDIO)[0], 200)
        dictating = WebSocket(s)  # a client that commits, and hesitates
        set_format(dictating, 16000, turn_detection=None, language="en")
        for piece in pieces(DATA[:11 * 32000], 1000):
            dictating.append(piece)
        text = json.loads(s.text(AUDIO, [("language", "en")]))["text"]
        assert wait_for(lambda: s.health()["idle"] == 1, 5) is not None
        for piece in pieces(DATA[11 * 32000:], 1000):
            dictating.append(piece)
        dictating.send("input_audio_buffer.commit")
        same(dictating.until(COMPLETED)[-1]["transcript"], text)
        same(s.metric("runs_total"), 3)
        upload = busy(s)
        w = WebSocket(s)
        set_format(w, 16000, language="en")
        for piece in pieces(DATA + bytes(64000)):
            w.append(piece)
        w.until("input_audio_buffer.speech_started")
        w.until("input_audio_buffer.speech_stopped")
        same(w.receive()["type"], "input_audio_buffer.committed")
        same(s.health()["idle"], 0)
        upload.close()
        w.until(COMPLETED)
        for c in (silent, w, dictating):
            c.close()


def realtime_divided():
    """Who divides the audio, if a client does not say so: with a model that takes a stream, the
    client. Text that is missing has a reason."""
    with Server(model=TOY) as s:
        for model, more, kind in (("gpt-realtime-whisper", {}, None), ("gpt-live-transcribe", {}, None),
                                  ("gpt-4o-transcribe", {}, "server_vad"), (None, {}, "server_vad"),
                                  ("gpt-realtime-whisper", {"turn_detection": {"type": "server_vad"}},
                                   "server_vad"),
                                  ("gpt-4o-transcribe", {"turn_detection": None}, None)):
            w = WebSocket(s)
            w.until("session.created")
            transcription = {"model": model} if model else {"language": "en"}
            for _ in range(2):  # again, without what was said before
                w.send("session.update", session={"type": "transcription", "audio": {"input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": transcription, **more}}})
                told = w.until("session.updated")[-1]["session"]["audio"]["input"]
                same((model, (told["turn_detection"] or {}).get("type")), (model, kind))
                more = {}
            w.close()
        _, headers, body = s.post(TRANSCRIPTIONS, AUDIO)
        same(json.loads(body)["text"], "")
        w = WebSocket(s)
        set_format(w, 16000, turn_detection=None)
        for piece in pieces(DATA, 1000):
            w.append(piece)
        w.send("input_audio_buffer.commit")
        completed = w.until(COMPLETED)[-1]
        same((completed["transcript"], completed["warning"]), ("", headers["x-warning"]))
        w.append(bytes(48000))
        w.send("input_audio_buffer.commit")
        assert "warning" not in w.until(COMPLETED)[-1]
        w.close()


def set_format(w, rate, **more):
    """Sets up a session: the rate of its samples, and more."""
    language = {"language": more.pop("language")} if "language" in more else {}
    w.send("session.update", session={"type": "transcription", "audio": {"input": {
        "format": {"type": "audio/pcm", "rate": rate}, "transcription": language, **more}}})
    w.until("session.updated")


def said(rate):
    """Five sentences, as samples."""
    for text in ("Please turn on the lights in the kitchen.", "We will go to the station tomorrow.",
                 "The train to London is late.", "What is the weather like today?",
                 "Somebody has left the door open."):
        subprocess.run(["espeak-ng", "-s", "140", "-w", f"{T}/said.wav", text], check=True)
        silence = ["silence", "1", "0.01", "0.3%", "reverse"]
        subprocess.run(["sox", "-R", "-D", f"{T}/said.wav", "-r", str(rate), "-t", "raw",
                        f"{T}/said.raw", *silence, *silence], check=True)
        yield read(f"{T}/said.raw")


def turns_of(s, samples, rate, ms=100, **detection):
    """Sends samples, and returns for each turn what its events say, with the time of the audio that
    was sent when its end was told."""
    w = WebSocket(s)
    set_format(w, rate, language="en", **detection)
    turns, texts, at = [], {}, 0
    for i, piece in enumerate(pieces(samples, ms, rate)):
        w.append(piece)
        at += len(piece) * 500 // rate
        w.send("mark", event_id=f"m{i}")
        while (event := w.receive())["type"] != "error":
            if event["type"] == "input_audio_buffer.speech_started":
                turns.append({"id": event["item_id"], "start": event["audio_start_ms"]})
            elif event["type"] == "input_audio_buffer.speech_stopped":
                turns[-1].update(end=event["audio_end_ms"], told=at)
            elif event["type"] == COMPLETED:
                texts[event["item_id"]] = event
    while len(texts) < len([t for t in turns if "end" in t]):
        event = w.until(COMPLETED)[-1]
        texts[event["item_id"]] = event
    w.close()
    return [{**t, "text": texts[t["id"]]["transcript"],
             "seconds": texts[t["id"]]["usage"]["seconds"]} for t in turns if "end" in t]


def realtime_turns():
    """A turn is what was said, whatever the pauses: nothing of it is lost or in another turn. Its
    end is told when the silence has lasted."""
    with Server("--commit", "off") as s:
        for rate in (16000, 24000):
            sentences = list(said(rate))

            def ms(samples):
                return len(samples) * 500 // rate

            def quiet(seconds):
                return bytes(int(seconds * rate) * 2)
            for pauses, detection in (
                    ((0.7, 1.0, 1.5, 2.0), {}), ((0.4, 0.4, 1.0, 0.4), {}),
                    ((1.0, 0.6, 2.0, 1.0), {"turn_detection": {
                        "type": "server_vad", "prefix_padding_ms": 600,
                        "silence_duration_ms": 350}}),
                    ((0.5, 1.0, 0.5, 1.0), {"turn_detection": {
                        "type": "server_vad", "silence_duration_ms": 200}})):
                silence = detection.get("turn_detection", {}).get("silence_duration_ms", 500)
                padding = detection.get("turn_detection", {}).get("prefix_padding_ms", 300)
                samples, spans = quiet(0.8), []
                for sentence, pause in zip(sentences, (*pauses, 1.0)):
                    if spans and ms(samples) - spans[-1][1] < silence:
                        spans[-1][1] = ms(samples + sentence)
                    else:
                        spans.append([ms(samples), ms(samples + sentence)])
                    samples += sentence + quiet(pause)
                turns = turns_of(s, samples, rate, 20, **detection)
                print([[t["start"], t["end"], t["told"]] for t in turns], spans)
                same(len(turns), len(spans))
                for turn, (begin, end), last in zip(turns, spans, [{"end": -silence}, *turns]):
                    first = max(begin - padding, last["end"] + silence // 2)
                    assert abs(turn["start"] - first) <= 150, (turn, begin)
                    assert abs(turn["end"] - end) <= 150, (turn, end)
                    assert turn["told"] <= end + silence + (60 if silence == 200 else 150), (turn, end)
                    last = turn["start"] + int(turn["seconds"] * 1000)
                    assert end <= last <= turn["end"] + silence, (turn, end)
                    part = samples[turn["start"] * rate // 1000 * 2:last * rate // 1000 * 2]
                    same(turn["text"], json.loads(s.text(resampled(part, rate), [
                        ("language", "en")]))["text"])
                same([(t["start"], t["end"], t["text"]) for t in turns],  # in any division
                     [(t["start"], t["end"], t["text"])
                      for t in turns_of(s, samples, rate, 1730, **detection)])


def speak(w, samples, rate, ms=50):
    """Sends samples as they would be said."""
    begin = time.monotonic()
    for i, piece in enumerate(pieces(samples, ms, rate)):
        time.sleep(max(0, begin + i * ms / 1000 - time.monotonic()))
        w.append(piece)


def realtime_words():
    """Words are told while they are said, and the text of a turn is decoded before its end is known:
    again if the speech goes on."""
    rate, patient = 16000, {"type": "server_vad", "silence_duration_ms": 10000}
    one, two = list(said(rate))[:2]
    silence = bytes(rate * 2)

    def wait_in_silence(s, drafts):
        """Sends silence until the text of the turn has been decoded."""
        def is_drafted():
            speak(w, silence[:rate // 5], rate)
            return s.metric("drafts_total") == drafts
        assert wait_for(is_drafted, 1.2) is not None  # a sixth of the time in which the turn ends
    with Server() as s:
        for more in ({"commit_step_ms": 400}, {"commit_step_ms": 400, "follow_words": 1},
                     {"commit_step_ms": 0},
                     {"include": ["item.input_audio_transcription.logprobs"]}):
            before = [s.metric(n) for n in ("drafts_total", "drafts_used_total", "runs_total")]
            drafts = more.get("commit_step_ms", -1) == 0
            w = WebSocket(s)
            set_format(w, rate, language="en", turn_detection=patient)
            w.send("session.update", session=more)
            w.until("session.updated")
            samples = bytes(rate) + one
            speak(w, samples, rate)
            if drafts:
                wait_in_silence(s, before[0] + 1)
                speak(w, two, rate)
                wait_in_silence(s, before[0] + 2)
            events = []
            if more.get("commit_step_ms"):  # a word that is alone waits for 1.6 s
                speak(w, silence * (3 if "follow_words" in more else 1), rate)
                events = w.until(DELTA)
            for _ in range(11):
                w.append(silence)
            events += w.until(COMPLETED)
            w.close()
            kinds = [e["type"] for e in events]
            text = events[-1]["transcript"]
            assert len(text.split()) > 3, text
            same("".join(e["delta"] for e in events if e["type"] == DELTA), text)
            early = kinds.index(DELTA) < kinds.index("input_audio_buffer.speech_stopped")
            same(early, "commit_step_ms" in more and not drafts)
            if drafts:
                same([s.metric(n) - b for n, b in zip(
                    ("drafts_total", "drafts_used_total", "runs_total"), before)], [2, 1, 1])
                assert len(text.split()) > 10, text
        w = WebSocket(s)
        for value in ("x", [], -1, 20000):
            for name in ("commit_step_ms", "follow_words"):
                w.send("session.update", session={name: value})
                w.until("error" if value in ("x", []) else "session.updated")
        w.close()


def realtime_semantic():
    """semantic_vad waits less where the text ends a sentence, by its eagerness."""
    rate, sentence = 16000, next(said(16000))
    with Server() as s:
        w = WebSocket(s)
        for eagerness, told in (("high", "high"), ("auto", "auto"), (None, "auto"), ("low", "low")):
            more = {"eagerness": eagerness} if eagerness else {}
            w.send("session.update", session={"turn_detection": {"type": "semantic_vad", **more}})
            same(w.until("session.updated")[-1]["session"]["audio"]["input"]["turn_detection"],
                 {"type": "semantic_vad", "eagerness": told})
        w.send("session.update", session={"turn_detection": {"type": "semantic_vad",
                                                             "eagerness": "very"}})
        w.until("error")
        set_format(w, rate, language="en")
        for part, include in ((len(sentence), []), (len(sentence) // 5 * 2, []), (len(sentence), [
                "item.input_audio_transcription.logprobs"])):  # whose text is known at the end
            drafts, silent, seen = s.metric("drafts_total"), 500, []
            w.send("session.update", session={"include": include})
            w.until("session.updated")
            for piece in pieces(bytes(rate) + sentence[:part // 2 * 2] + bytes(rate), 50):
                w.append(piece)
            assert include or wait_for(lambda n=drafts: s.metric("drafts_total") > n, 20) is not None
            while "input_audio_buffer.speech_stopped" not in seen:
                w.append(bytes(rate // 10))
                silent += 50
                w.send("mark")
                seen += [e["type"] for e in w.until("error")]
            text = w.until(COMPLETED)[-1]["transcript"] if COMPLETED not in seen else "."
            print(f"{text!r} ended after {silent} ms")
            is_sentence = text[-1:] in (".", "?", "!") and text[-3:] != "..." and not include
            same((part == len(sentence) and not include) <= is_sentence, True)
            low, high = (1000, 1300) if is_sentence else (4000, 4300)
            assert low <= silent <= high, (silent, text)
        set_format(w, rate, turn_detection={"type": "server_vad"})
        w.close()


def resampled(samples, rate):
    """Samples as a WAV file of their rate."""
    data = wav_file(samples)
    return data[:24] + struct.pack("<II", rate, 2 * rate) + data[32:]


def realtime_speech():
    """The server finds the ends of utterances; what it hears is what was said."""
    quiet = bytes(2 * 24000 * 2)
    sentences = ["Please turn on the lights in the kitchen.",
                 "Tomorrow morning we will go to the station."]
    speech = []
    for i, sentence in enumerate(sentences):
        subprocess.run(["espeak-ng", "-s", "140", "-w", f"{T}/said.wav", sentence], check=True)
        subprocess.run(["sox", "-R", "-D", f"{T}/said.wav", "-r", "24000", "-t", "raw",
                        f"{T}/said.raw"], check=True)  # without dither, which varies
        speech.append(read(f"{T}/said.raw"))
    with Server() as s:
        w = WebSocket(s)
        w.send("session.update", session={"type": "transcription", "audio": {"input": {
            "transcription": {"language": "en"},
            "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 700}}}})
        w.until("session.updated")
        for piece in pieces(quiet + speech[0] + quiet + speech[1] + quiet, rate=24000):
            w.append(piece)
        at = 0
        events = [e for _ in sentences for e in w.until(COMPLETED)]
        ids = [e["item_id"] for e in events if e["type"] == COMPLETED]
        for sentence, name in zip(sentences, ids):
            seen = [e for e in events if e.get("item_id") == name]
            kinds = [e["type"].split(".")[-1] for e in seen]
            same([k for k in kinds if k in ("speech_started", "speech_stopped", "committed")],
                 ["speech_started", "speech_stopped", "committed"])
            started = seen[kinds.index("speech_started")]["audio_start_ms"]
            stopped = seen[kinds.index("speech_stopped")]["audio_end_ms"]
            # 2 s of silence, less 300 ms before the words and what espeak-ng fades out in
            assert at + 1200 < started < at + 3500 and started < stopped, (at, started, stopped)
            at = stopped
            got = seen[-1]["transcript"].lower().replace(".", "").replace(",", "").split()
            words = sentence.lower().replace(".", "").split()
            assert sum(word in got for word in words) >= 0.7 * len(words), (words, got)
        w.close()


def openai():
    """OpenAI's Node SDK: formats, stream, errors, and abort in the middle."""
    paths = {"bad": b"no audio at all", "long": cut(0, 12, 40)}
    for name, data in paths.items():
        with open(f"{T}/{name}.wav", "wb") as file:
            file.write(data)
    raw = [f"{T}/clip.raw"] if shutil.which("sox") else []
    for path in raw:
        subprocess.run(["sox", f"{T}/clip.wav", "-r", "24000", "-t", "raw", path], check=True)
    version = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True)
    flags = ["--experimental-websocket"] if version.stdout.startswith("v20.") else []
    with Server("--api-key", "sesame") as s:
        done = subprocess.run(["node", *flags, "tests/api/server_openai.mjs",
                               f"http://127.0.0.1:{s.port}", f"{T}/clip.wav", f"{T}/bad.wav",
                               f"{T}/long.wav", *raw], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        assert wait_for(lambda: s.health()["idle"] == 1, 10) is not None, "aborted, but it runs"
    text = joined(transcribed())
    same((got["json"], got["deltas"], got["text"]), (text, text, text + "\n"))
    for name in ("srt", "vtt"):
        same(got[name], transcribed("-f", name, "--subtitles"))
    for segment in got["verbose"]["segments"]:
        segment.pop("words")
    same(without_usage(got["verbose"]), json.loads(transcribed("-f", "verbose_json", "--words")))
    same({t["speaker"] for t in got["diarized"]["segments"]}, {"A"})
    assert got["logprobs"] > 10 and "whisper-1" in got["models"], got
    assert "realtime" in got or not (flags and raw), got
    if "realtime" in got:
        words = set(got["realtime"].lower().split())
        assert len(words & set(text.lower().split())) > len(words) / 2, (got["realtime"], text)


def node(script, *args):
    """What a script prints, as JSON."""
    done = subprocess.run(["node", f"tests/api/{script}", *args], check=False, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sdks():
    """Vercel's AI SDK, LangChain, and OpenAI's SDK with the package ws, as far as they are here."""
    with open(f"{T}/bad.wav", "wb") as file:
        file.write(b"no audio at all")
    subprocess.run(["sox", f"{T}/clip.wav", "-r", "24000", "-t", "raw", f"{T}/clip.raw"], check=True)
    with Server("--api-key", "sesame") as s:
        got = node("server_sdks.mjs", f"http://127.0.0.1:{s.port}", f"{T}/clip.wav", f"{T}/bad.wav",
                   f"{T}/clip.raw")
    text, timed = joined(transcribed()), json.loads(transcribed("-f", "verbose_json", "--words"))
    print("tried:", *got)
    assert not os.environ.get("CI") or {"vercel_word", "langchain", "ws"} <= set(got), set(got)
    if "vercel_word" in got:
        same(got["vercel_word"], {"text": text, "language": "en", "duration": timed["duration"],
             "segments": [[w["word"], w["start"], w["end"]] for w in timed["words"]]})
        same([s[0] for s in got["vercel_segment"]["segments"]],
             [x["text"] for x in json.loads(transcribed("-f", "verbose_json"))["segments"]])
        same(got["vercel_error"], 400)
    if "langchain" in got:
        same((got["langchain"], got["langchain_error"]), (text, 400))
    if "ws" in got:
        words = set(got["ws"].lower().split())
        assert len(words & set(text.lower().split())) > len(words) / 2, (got["ws"], text)


def livekit():
    """LiveKit's agents: text of each turn before its final text."""
    samples = b"".join(one + bytes(48000 * 2) for one in said(24000))
    with open(f"{T}/turns.raw", "wb") as file:
        file.write(samples)
    with Server("--api-key", "sesame") as s:
        events = node("server_livekit.mjs", f"http://127.0.0.1:{s.port}", f"{T}/turns.raw", "5")
    kinds = [kind for kind, _ in events]
    same(kinds.count("FINAL_TRANSCRIPT"), 5)
    interim = []
    for kind, text in events:
        if kind == "INTERIM_TRANSCRIPT":
            interim.append(text)
        else:
            assert len(interim) > 0 and len(text.split()) > 3, events
            assert all(text.startswith(t) for t in interim), events
            interim = []


def spoken(path, before="1", behind="3"):
    """A clear sentence as a WAV file at 48 kHz, with pauses around it."""
    subprocess.run(["espeak-ng", "-s", "140", "-w", f"{T}/said.wav",
                    "Tomorrow morning we will all go by train to the old station."], check=True)
    subprocess.run(["sox", "-R", "-D", f"{T}/said.wav", "-r", "48000", path, "pad", before, behind],
                   check=True)


def saved(b, button):
    """What a button would download."""
    return downloaded(b, button).decode()


def downloaded(b, button):
    """Its bytes."""
    b.run("{ const real = URL.createObjectURL; window.saved = null; "
          "URL.createObjectURL = blob => { URL.createObjectURL = real; const r = new FileReader(); "
          "r.onload = () => { window.saved = r.result; }; r.readAsDataURL(blob); return '#'; }; "
          f"{button}.click() }}")
    b.wait("window.saved !== null", 10)
    return base64.b64decode(b.run("window.saved").split(",", 1)[1])


def save_as(b, kind):
    return downloaded(b, f"document.querySelector('[data-save={kind}]')")


def browser_captions(s, b, shots):
    """The second tab, which the keyboard opens."""
    b.run("$('tab-files').focus()")
    b.key("ArrowRight", 39)
    same(b.run("document.activeElement.id"), "tab-captions")
    assert b.run("$('panel-files').hidden")
    b.run("$('start').focus()")
    b.key(" ", 32)
    b.wait("$('status').textContent === 'Listening'", 30)
    b.run("onEvent(live, {item_id: 'x', type: 'conversation.item.input_audio_transcription.tentative"
          "', text: 'perhaps'})")
    same(b.run("live.items.get('x').rest.textContent"), "perhaps")
    b.run("onEvent(live, {item_id: 'x', type: 'conversation.item.input_audio_transcription.delta"
          "', delta: 'Yes'})")  # confirmed, and as such in full colour at once
    same(b.run("live.items.get('x').final.textContent"), "Yes")
    assert b.run("getComputedStyle(live.items.get('x').final).color === "
                 "getComputedStyle(document.body).color")
    b.screenshot(f"{shots}/tentative.png")
    b.run("onEvent(live, {item_id: 'x', type: 'conversation.item.input_audio_transcription.completed"
          "', transcript: ''})")
    assert b.run("!live.items.has('x') && !/Yes/.test($('captions').textContent)")
    b.wait("$('level').firstChild.style.transform > 'scaleX(0.3'", 60)  # it is loud now and then
    b.wait("/station/i.test(document.querySelector('.committed')?.textContent || '') && "
           "document.querySelector('#captions .tentative').textContent === ''", 120)
    b.run("$('size').value = 'large'; $('size').dispatchEvent(new Event('change'))")
    assert b.run("parseFloat(getComputedStyle($('captions')).fontSize) > 30")
    b.screenshot(f"{shots}/live.png")
    heard = b.run("document.querySelector('.committed').textContent").lower()
    for word in ("tomorrow", "morning", "go", "station"):
        assert word in heard, heard
    assert b.run("$('source').length >= 3"), "no choice of microphones"
    b.run("$('start').click()")
    same(b.run("$('status').textContent"), "Stopped")
    assert b.run("$('level').hidden")
    assert wait_for(lambda: s.health()["idle"] == 2, 20) is not None, "a session in use"
    b.run("$('start').click()")  # a second time, on another line
    b.wait("document.querySelectorAll('.committed').length >= 2 && /station/i.test("
           "[...document.querySelectorAll('.committed')].at(-1).textContent)", 120)
    same(b.run("document.querySelector('.committed').textContent").lower(), heard)
    b.run("$('start').click()")
    assert heard in saved(b, "$('save-captions')").lower()
    b.wait("document.querySelectorAll('#files li').length === 2", 30)  # they are kept, too


def browser_text(s, b):
    """The text of T/clip.wav: its words, the player, keys and downloads."""
    want = json.loads(s.text(AUDIO, [("response_format", "verbose_json"), ("language", "en"),
                                     ("timestamp_granularities", "word,segment")]))
    same(b.run("view.words.map(w => w.text.trim())"), [w["word"] for w in want["words"]])
    same(b.run("view.lines.map(lineText).join(' ')"), want["text"].strip())
    b.wait("document.querySelectorAll('.word').length > 5", 10)
    b.run("player.currentTime = 6")
    b.wait("document.querySelector('.word.now') !== null", 10)
    at = b.run("view.now")
    same(b.run("document.querySelector('.word.now').textContent"), want["words"][at]["word"])
    assert want["words"][at]["start"] <= 6.1 and \
        (at + 1 == len(want["words"]) or want["words"][at + 1]["start"] > 5.9), at
    b.run("$('text').focus()")
    b.key("ArrowRight", 39)
    b.wait(f"view.now === {at + 1}", 10)
    b.run("player.play = () => Promise.resolve(); view.lines[0].button.focus()")
    b.run("goTo(view.lines.at(-2) || view.lines[0]); view.lines[0].button.focus()")
    b.key("ArrowDown", 40)  # to the last line, whose button the focus is then on
    assert b.run("document.activeElement === view.lines.at(-1).button")
    same(b.run("document.querySelectorAll('.time[tabindex=\"0\"]').length"), 1)
    same(b.run("player.currentTime"), b.run("view.lines.at(-1).start"))
    b.run("view.lines[0].button.click()")
    same(b.run("player.currentTime"), want["words"][0]["start"])
    for kind in ("srt", "vtt"):
        same(saved(b, f"document.querySelector('[data-save={kind}]')"),
             transcribed("-l", "en", "--words", "-f", kind, "--subtitles"))
    found = json.loads(saved(b, "document.querySelector('[data-save=json]')"))
    same([(x["start"], x["end"], x["text"]) for x in found["segments"]],
         [(x["start"], x["end"], x["text"]) for x in want["segments"]])
    same([{k: w[k] for k in ("word", "start", "end")}
          for x in found["segments"] for w in x["words"]], want["words"])
    same((found["language"], found["duration"]), (want["language"], want["duration"]))
    same(saved(b, "document.querySelector('[data-save=txt]')").split(), want["text"].split())


def browser_names(b):
    """What the keyboard reaches has a role and a name for screen readers, in a sensible order."""
    tree = b.call("Accessibility.getFullAXTree")["nodes"]
    for node in tree:
        flags = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
        role = node.get("role", {}).get("value")
        if flags.get("focusable") and not node["ignored"] and role != "RootWebArea":
            assert node["name"].get("value") and role != "generic", node
    b.run("$('language').focus()")
    order = []
    while len(order) < 16:
        b.key("Tab", 9)
        order.append(b.run("document.activeElement.id || document.activeElement.ariaLabel || "
                           "document.activeElement.textContent"))
    same(order[:2], ["file", "Options"])
    assert order[2].startswith("<img src=x onerror=alert(1)>.wav: Done") or \
        order[2].startswith("<img src=x onerror=alert(1)>.wav: 0:12"), order
    same(order[3], "More for <img src=x onerror=alert(1)>.wav")
    assert "search" in order and "edit" in order, order


def browser_files(s, b, shots):
    """Two files at once, one with a name that is not HTML."""
    b.run("$('tab-captions').focus()")
    b.key("Home", 36)
    strange = f"{T}/<img src=x onerror=alert(1)>.wav"
    shutil.copyfile(f"{T}/clip.wav", strange)
    b.run("history.replaceState(null, '', location.pathname)")
    b.choose_file("#file", os.path.abspath(f"{T}/clip.wav"), strange)
    b.wait("entries.length === 4 && entries.slice(2).every(e => e.state === 'done')", 60)
    b.wait("$('title').textContent === 'clip.wav' && view.lines.length > 0", 10)
    assert b.run("/^0:12 · English · /.test(entries[2].said.textContent)")
    browser_text(s, b)
    browser_names(b)
    for width, dark in ((1280, False), (768, True), (320, False), (320, True)):
        b.look(width, 900, dark)
        assert b.run(f"document.documentElement.scrollWidth <= {width}"), f"wider than {width}"
        b.screenshot(f"{shots}/file_{width}_{'dark' if dark else 'light'}.png")
    assert b.run("view.lines[0].said.getBoundingClientRect().top < 450"), "the head is large"
    b.run("$('back').click()")
    b.wait("!document.body.classList.contains('reading')", 10)
    b.run("document.querySelector('#files .open').focus()")  # the newest: the strange one
    b.key(" ", 32)
    b.wait(f"$('title').textContent === {json.dumps(os.path.basename(strange))}", 10)
    same(b.run("document.activeElement.id"), "text")
    b.run("entries.at(-1).acts.remove.click()")
    b.wait("!document.body.classList.contains('reading')", 10)
    same(b.run("document.querySelectorAll('#files li').length"), 3)
    b.run("showText([{start: 0, end: 1, text: ' I.e. 東京です。', words: ['I', '.e.', '東京', "
          "'です。'].map(word => ({word, start: 0, end: 1}))}, {start: 2.5, end: 3, text: "
          "' <b>Yes'}, {start: 65, end: 66, text: ' No'}])")
    same(b.run("[...document.querySelectorAll('.line')].map(p => p.textContent)"),
         ["0:00I.e. 東京です。", "0:02<b>Yes", "1:05No"])
    assert b.run("document.querySelector('main img, main b') === null"), "a name became HTML"


def no_errors(b, own, refused=False):
    """The page asked no other server, and nothing went wrong that only the console shows. refused:
    except answers that the test wanted."""
    for log in b.logs:
        if log.get("method") == "Network.requestWillBeSent":
            url = log["params"]["request"]["url"]
            assert url.startswith((own, "blob:", "data:", "about:")), url
        assert log.get("method") != "Runtime.exceptionThrown", log
        if log.get("method") == "Log.entryAdded":
            entry = log["params"]["entry"]
            assert entry["level"] != "error" or (
                refused and entry["text"].startswith("Failed to load resource")), log


def browser():
    """The page in a real browser: captions from the microphone, and files with words."""
    from browser import Browser
    spoken(f"{T}/microphone.wav")
    shots = os.environ.get("TEST_SHOTS", T)
    with Server("--sessions", "2") as s:
        b = Browser(f"http://127.0.0.1:{s.port}/", f"{T}/microphone.wav")
        try:
            b.look(1100, 900, False)
            b.wait("$('language').length > 90", 20)
            same(b.run("document.querySelector('option[value=en]').textContent"), "English")
            b.run("$('language').value = 'en'; $('language').onchange()")
            browser_captions(s, b, shots)
            browser_files(s, b, shots)
            reload(b, "document.querySelectorAll('#files li').length === 3 && "
                      "$('language').length > 90")
            same(b.run("$('language').value"), "en")  # remembered
            no_errors(b, f"http://127.0.0.1:{s.port}/")
        finally:
            b.close()


def reload(b, condition):
    """The page again, until a condition holds."""
    b.reload()
    b.wait(condition, 30)


def page_run(c, b, clip):
    """A run that survives a reload, also of the upload before it, and one that the server forgot."""
    c.go.clear()
    b.choose_file("#file", clip)
    b.wait("entries.length === 1 && entries[0].state === 'sending' && entries[0].kept", 20)
    c.go.set()
    reload(b, "entries[0]?.state === 'running'")
    c.given = 40
    b.wait("view.segments.length === 40 && view.running", 20)  # it is shown again, and as it comes
    lines = b.run("document.querySelectorAll('.line').length")
    assert lines > 30, lines
    c.given = 45
    reload(b, "view.segments.length === 45")
    assert b.run("/^Transcribing/.test($('progress-note').textContent) && !$('progress').hidden")
    c.jobs.clear()  # the server was restarted: the file is sent again
    c.given = 0
    assert wait_for(lambda: c.jobs, 30) is not None, "not sent again"
    c.given = 50
    b.wait("view.segments.length === 50", 20)
    c.warning = "the end is missing"
    c.end()
    b.wait("entries[0].state === 'done'", 30)
    assert wait_for(lambda: c.deleted, 10) is not None, "the server keeps it"
    same(b.run("$('remark').textContent"), "the end is missing")
    assert b.run("$('progress').hidden && $('run').hidden")


def page_long(c, b):
    """Words have elements only where they are seen, at any time."""
    b.wait("view.built === view.lines.length", 60)
    same(b.run("view.words.length"), sum(len(x["words"]) for x in c.segments))
    assert b.run("document.querySelectorAll('.word').length < 1500"), "all words have elements"
    b.run("player.currentTime = 0; view.now = -1; showLine(view.lines.length - 2, false)")
    b.wait("view.lines.at(-1).worded", 10)
    assert b.run("document.querySelectorAll('.word').length < 3000"), "words between have elements"
    b.wait("(top => top > 150 && top < 600)(view.lines.at(-2).element.getBoundingClientRect().top)",
           10)
    b.run("scrollTo(0, 0)")


def page_edit(c, b):
    """Search, and edits, which are in what is saved and there after a reload."""
    b.run("$('search').click()")
    b.run("$('query').value = 'india juliett'; search()")
    found = b.run("view.found.length")
    same(found, sum(" ".join(w["word"].strip() for w in x["words"]).lower().count("india juliett")
                    for x in c.segments))
    assert b.run("/^1 of /.test($('found').textContent)")
    b.key("Enter", 13)
    assert b.run("/^2 of /.test($('found').textContent)")
    same(b.run("[...document.querySelectorAll('.here')].map(w => w.textContent)"),
         ["india", "juliett"])
    b.key("Escape", 27)
    assert b.run("$('find').hidden && !document.querySelector('.found')")
    doubtful = [w["word"].strip() for x in c.segments[:20] for w in x["words"]
                if w["probability"] < 0.4]
    b.wait("document.querySelectorAll('.word').length > 50", 10)
    same(b.run("[...document.querySelectorAll('.doubt')].map(w => w.textContent)")[:3],
         doubtful[:3])
    b.run("$('edit').click(); document.querySelectorAll('.word')[2].click()")
    assert b.run("editing.isContentEditable && document.activeElement === editing")
    b.call("Input.insertText", text="Ω <b>")
    b.key("Tab", 9)  # to the next word, which is deleted
    b.call("Input.insertText", text=" ")
    b.key("Enter", 13)
    b.run("$('edit').click(); edit(4)")
    b.call("Input.insertText", text="never")
    b.key("Escape", 27)
    first = [w["word"].strip() for w in c.segments[0]["words"]]
    want = " ".join([*first[:2], "Ω <b>", *first[4:]])
    same(b.run("lineText(view.lines[0])"), want)
    b.wait("entries[0].edited", 10)
    reload(b, "view.lines.length > 0 && view.lines[0].worded")
    same(b.run("lineText(view.lines[0])"), want)
    times = [c.segments[0]["words"][2][k] for k in ("start", "end")]
    same(b.run("[view.words[2].start, view.words[2].end]"), times)
    text = save_as(b, "json").decode()
    same(json.loads(text)["segments"][0]["words"][2]["word"], "Ω <b>")
    assert save_as(b, "txt").decode().startswith(want), "not in the text"
    assert f"[0:00] {want}\n" in save_as(b, "times").decode()
    assert "Ω &lt;b&gt;" in save_as(b, "vtt").decode()
    b.run("$('width').value = '32'")
    lines = [line for cue in save_as(b, "srt").decode().split("\n\n")[:-1]
             for line in cue.split("\n")[2:]]
    assert 20 < max(map(len, lines)) <= 32, max(lines, key=len)
    with zipfile.ZipFile(io.BytesIO(save_as(b, "docx"))) as file:
        same(file.testzip(), None)
        parts = {name: file.read(name) for name in file.namelist()}
    same(sorted(parts), ["[Content_Types].xml", "_rels/.rels", "word/document.xml"])
    said = [xml.etree.ElementTree.fromstring(part) for part in parts.values()][2]
    assert want in "".join(said.itertext()), "not in the document"

def page_list(c, b, clip):
    """Three files, of which two are at the server at a time; names, and what was deleted."""
    b.run("location.hash = ''")
    c.status, c.given, c.warning = "running", 0, ""
    for name in "123":
        shutil.copyfile(clip, f"{T}/file {name}.wav")
    b.run("$('keywords').value = 'Ω, New York'; $('speakers').checked = true; "
          "$('translate').checked = true; $('model').value = 'tiny'")
    b.choose_file("#file", *(f"{T}/file {name}.wav" for name in "123"))
    b.wait("entries.length === 4 && /^Waiting behind 2/.test(entries[3].said.textContent)", 20)
    assert wait_for(lambda: len(c.jobs) == 2, 20) is not None, c.jobs
    fields = dict(c.jobs[max(c.jobs)])
    same((fields["response_format"], fields["model"], fields["keywords[]"], fields["path"]),
         ("diarized_json", "tiny", "New York", "/v1/audio/translations"))
    b.run("entries[1].acts.cancel.click()")
    b.wait("entries[1].said.textContent === 'Cancelled' && entries[3].state === 'running'", 20)
    c.given = 10
    b.wait("entries[2].segments.length === 10", 20)
    c.end()
    b.wait("entries[2].state === 'done' && entries[3].state === 'done'", 30)
    b.run("entries[2].acts.rename.click()")
    b.call("Input.insertText", text="Interview <1>")
    b.key("Enter", 13)
    same(b.run("entries[2].label.textContent"), "Interview <1>")
    b.run("entries[3].acts.remove.click()")
    same(b.run("document.querySelectorAll('#files li').length"), 3)
    b.run("$('toast').querySelector('button').click()")
    b.wait("document.querySelectorAll('#files li').length === 4", 10)
    b.run("entries[0].acts.remove.click()")
    reload(b, "entries.length === 3")
    same(b.run("entries.map(e => e.name)"), ["file 1.wav", "Interview <1>", "file 3.wav"])
    b.run("entries[2].open.click()")
    b.wait(f"view.segments.length === {len(c.segments)}", 20)
    c.error = 503
    b.run("entries[0].acts.again.click()")
    b.wait("/server is busy/.test(entries[0].said.textContent)", 20)
    c.error = 400
    b.run("entries[0].busy = false; next()")
    b.wait("/^It was not transcribed: there are too many jobs.$/.test("
           "entries[0].said.textContent)", 20)


def page_film(c, b):
    """A film is shown with its subtitles, and the line that is spoken is kept in view."""
    subprocess.run(["ffmpeg", "-loglevel", "error", "-y", "-f", "lavfi", "-i",
                    "color=c=navy:s=160x90:r=5:d=90", "-f", "lavfi", "-i", "sine=d=90", "-c:v",
                    "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus",
                    f"{T}/film.webm"], check=True)
    c.error = 0
    b.look(360, 740, True)
    b.choose_file("#file", f"{T}/film.webm")
    b.wait("shown?.name === 'film.webm' && !player.hidden && entries.at(-1).state === 'done'", 60)
    b.wait("cues?.cues.length > 10 && view.built > 60", 20)
    assert b.run("view.lines[0].said.getBoundingClientRect().top < 370"), "below the middle"
    assert b.run("document.documentElement.scrollWidth <= 360"), "wider than a phone"
    b.run("$('speed').value = '2'; $('speed').onchange()")
    b.run("goTo(view.lines[10]); play()")
    b.wait("!player.paused && player.currentTime > view.lines[10].start + 1", 60)
    b.run("player.pause()")
    same(b.run("player.playbackRate"), 2)
    b.run("player.currentTime = view.lines[10].start + 0.5")
    b.wait("cues.activeCues.length === 1", 10)
    third = "(b => b.bottom + (innerHeight - b.bottom) / 3)($('bar').getBoundingClientRect())"
    b.run("showLine(view.line, false)")
    b.wait(f"Math.abs(view.lines[view.line].element.getBoundingClientRect().top - {third}) < 12", 10)
    b.run("play()")
    b.wait("marking !== 0", 20)
    b.run("dispatchEvent(new Event('wheel'))")  # the reader scrolls
    assert b.run("!view.follow && !$('follow').hidden")
    b.run("$('follow').click()")
    assert b.run("view.follow && $('follow').hidden")


def page():
    """The page with answers that are canned: long recordings, reloads, several files."""
    from browser import Browser
    from canned import Canned, sentences
    clip = os.path.abspath(f"{T}/clip.wav")
    c = Canned(sentences(3))
    b = Browser(c.url, clip)
    try:
        b.look(1100, 800, False)
        b.wait("$('language').length === 4", 20)
        page_run(c, b, clip)
        page_long(c, b)
        page_edit(c, b)
        c.segments = c.segments[:300]
        c.duration = c.segments[-1]["end"]
        page_list(c, b, clip)
        if shutil.which("ffmpeg"):
            page_film(c, b)
        no_errors(b, c.url, refused=True)
    finally:
        b.close()
        c.close()


def browser_key(b):
    """The page asks for the key of a server that wants one, and then uses it."""
    about = "document.getElementById('about').textContent"
    with Server("--api-key", "secret", model=TOY) as s:
        b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
        b.wait(f"location.port === '{s.port}' && document.readyState === 'complete' && "
               f"/^The server wants an API key: see below.$/.test({about})", 30)
        assert b.run("document.getElementById('access').open")
        b.run("take([new File(['no audio'], 'a.wav')])")
        b.wait("/wants an API key/.test(document.getElementById('problem').textContent)", 20)
        b.run("document.getElementById('key').value = 'secret'; "
              "document.getElementById('key').onchange()")
        b.wait(f"{about} === '' && /^Model: toy. Files of up to /.test($('limits').textContent)", 20)
        b.run("$('act').click()")
        assert b.run("document.activeElement.id === 'text'")
        b.wait("/cannot be read/.test(document.getElementById('problem').textContent)", 20)


def browser_again():
    """Captions go on when the server is killed while somebody speaks, and when it is restarted: of a
    sentence that is said again and again, none is lost, and the times go on."""
    from browser import Browser
    spoken(f"{T}/microphone.wav", "0.5", "1.2")
    every = len(read(f"{T}/microphone.wav")) / 96000
    speaking = "[...live.open].some(item => item.start > {})"
    heard = "[...live.items.values()].filter(item => /station/i.test(item.final.textContent))"
    servers = [Server("--threads", "2")]
    try:
        b = Browser(f"http://127.0.0.1:{servers[0].port}/", f"{T}/microphone.wav")
        try:
            b.wait("$('language').length > 90", 20)
            b.run("$('language').value = 'en'; $('tab-captions').click(); $('start').click()")
            b.wait(f"live?.ready && {heard}.length >= 1", 60)
            for how, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 0)):
                n = b.run(f"{heard}.length")
                b.wait(speaking.format("live.items.values().next().value.start"), 30)
                servers[-1].process.send_signal(how)
                same(servers[-1].process.wait(60), status)
                b.wait("/Connecting again/.test($('status').textContent)", 20)
                servers.append(Server("--threads", "2", "--listen", f"127.0.0.1:{servers[0].port}"))
                b.wait("$('status').textContent === 'Listening'", 30)
                b.wait(f"{heard}.length >= {n} + 2", 60)
            same(b.run("live.connections"), 3)
            starts = b.run(f"{heard}.map(item => item.start)")
            gaps = [after - before for before, after in zip(starts, starts[1:])]
            # One that was cut by the restart may be in two lines, of which the second has its end.
            assert gaps and all(0 < gap < 1.7 * every for gap in gaps), (every, starts)
            b.run("$('start').click()")
            b.wait("document.querySelectorAll('#files li').length === 1", 30)
        finally:
            b.close()
    finally:
        for s in servers:
            if s.process.poll() is None:
                s.process.kill()
                s.process.wait()


def browser_errors():
    """The page says what is wrong: no microphone, a busy server, none, or a bad file."""
    from browser import Browser
    spoken(f"{T}/microphone.wav")
    status, problem = (f"document.getElementById('{name}').textContent"
                       for name in ("status", "problem"))
    click = "document.getElementById('{}').click()"

    def says(b, what, words):
        b.wait(f"/{words}/.test({what})", 20)

    def drop(b, script):
        b.run("{ const files = new DataTransfer(); "
              f"files.items.add(new File([{script}], 'a b.wav')); document.body.dispatchEvent("
              "new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true})); }")
    with Server("--queue", "0", "--jobs", "1", "--max-mb", "100", "--connections", "16", model=TOY) as s:
        b = Browser(f"http://127.0.0.1:{s.port}/", f"{T}/microphone.wav", allowed=False)
        try:
            b.run(click.format("tab-captions"))
            b.run(click.format("start"))
            says(b, status, "does not let this page use the microphone")
            assert b.run("document.getElementById('status').classList.contains('bad')")
        finally:
            b.close()
        b = Browser(f"http://127.0.0.1:{s.port}/", f"{T}/microphone.wav")
        try:
            b.look(360, 740, True)
            many = [WebSocket(s) for _ in range(12)]  # three quarters of the connections
            b.run(click.format("start"))
            says(b, status, "the server is busy")
            for one in many:
                one.close()
            busy = submitted(s, cut(0, 12, 150), [("async", "true")])
            drop(b, "'no audio'")
            b.wait("/^The server is busy: /.test(entries[0]?.said.textContent)", 20)
            s.get(f"/v1/jobs/{busy}", method="DELETE")
            assert wait_for(lambda: s.health()["idle"] == 1, 10) is not None
            b.run("entries[0].busy = false; next()")
            says(b, problem, "cannot be read")
            assert b.run("getComputedStyle(document.querySelector('.state')).color !== "
                         "getComputedStyle(document.getElementById('limits')).color")
            b.run("limits.max_mb = 0")
            drop(b, "'no audio'")
            says(b, problem, "has 1 MB, and the server accepts 0 MB")
            b.run("limits.max_mb = 100")
            # 31 minutes of speech, as of noise nothing is transcribed.
            part = list(DATA[:4 * 32000])
            b.run(f"{{ const wav = Uint8Array.from({list(wav_file(b''))}); "
                  f"const part = Uint8Array.from({part}); "
                  f"new DataView(wav.buffer).setUint32(40, 468 * {len(part)}, true); "
                  "window.long = new Blob([wav, ...Array(468).fill(part)]); }")
            drop(b, "window.long")
            assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None, "not received"
            b.wait("/^Transcribing/.test(entries[2].said.textContent) && !entries[2].bar.hidden", 60)
            assert b.run("document.documentElement.scrollWidth <= 360"), "wider than a phone"
            b.screenshot(f"{os.environ.get('TEST_SHOTS', T)}/running.png")
            b.run("entries[2].acts.cancel.click()")
            assert wait_for(lambda: s.health()["idle"] == 1, 5) is not None, "not cancelled"
            b.wait("entries[2].said.textContent === 'Cancelled'", 5)
            same(b.run(problem), "")
            browser_key(b)
            b.call("Page.navigate", url=f"http://127.0.0.1:{s.port}/")
            b.wait(f"location.port === '{s.port}' && document.readyState === 'complete' && "
                   "document.getElementById('language')?.length > 1", 30)
            b.run(click.format("start"))
            says(b, status, "^Listening$")
            s.process.send_signal(signal.SIGTERM)
            says(b, status, "Connecting again")
            same(s.process.wait(120), 0)
            b.run(click.format("start"))
            says(b, status, "^Stopped$")
            b.run(click.format("start"))
            says(b, status, "does not answer")
            drop(b, "'no audio'")
            says(b, problem, "does not answer")
        finally:
            b.close()


def refused(w, status):
    """Checks that a request for a WebSocket was answered with an error. Returns its headers."""
    same(w.status, status)
    headers, body = w.refusal()
    assert body["error"]["message"] and headers["connection"] == "close", (headers, body)
    w.close()
    return headers


def realtime_keys():
    with Server("--api-key", "sesame", model=TOY) as s:
        for status, headers in (
                (401, []), (401, ["Authorization: Bearer sesam"]),
                (401, ["Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sesam"]),
                (403, ["Authorization: Bearer sesame", "Origin: https://example.org"])):
            answer = refused(WebSocket(s, headers), status)
            assert status != 401 or answer["www-authenticate"] == "bearer", answer
        for headers in (["Authorization: Bearer sesame"],
                        ["Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sesame"]):
            w = WebSocket(s, headers)
            same((w.status, w.receive()["type"]), (101, "session.created"))
            w.close()
            assert wait_for(lambda: s.health()["idle"] == 1, 5) is not None
        metrics = s.get("/metrics", {"Authorization": "Bearer sesame"})[2]
        assert b'wnpu_refused_total{reason="key"} 4\n' in metrics, metrics


def closing_code(w):
    """Reads events up to the end of a connection. Returns its code and the errors."""
    errors = []
    while (event := w.receive()) is not None:
        if event["type"] == "error":
            errors.append(event["error"])
    return w.code, errors


def realtime_refused():
    """A connection that cannot be served says why: a status before the upgrade, a code after it."""
    with Server("--connections", "2", model=TOY) as s:
        first = WebSocket(s)
        first.receive()
        assert int(refused(WebSocket(s), 503)["retry-after"]) > 0
        same(s.metric('refused_total{reason="queue_full"}'), 1)
        first.frame(b"x", opcode=2)
        code, errors = closing_code(first)
        same((code, len(errors)), (1003, 1))
        first.close()

        def connected():
            w = WebSocket(s)
            w.close()
            return w.status == 101
        assert wait_for(connected, 5) is not None
    with Server(model=TOY) as s:
        long = WebSocket(s)
        try:
            for i in range(3):
                long.frame(b" " * 500000, opcode=1 if i == 0 else 0, last=False)
            same(closing_code(long)[0], 1009)
        except OSError:  # the socket may be closed before the frame is read
            pass
        long.close()
        answer = s.get("/v1/realtime")
        error_of(answer, 426)
        same(answer[1]["upgrade"], "websocket")
        silent, last = WebSocket(s), WebSocket(s)
        for w in (silent, last):
            w.receive()
        last.append(bytes(24000))
        last.send("mark")
        last.until("error")
        s.process.send_signal(signal.SIGTERM)
        same(last.until(COMPLETED)[-1]["transcript"], "")
        for w in (silent, last):
            same(closing_code(w), (1012, []))
            w.close()
    with Server("--timeout", "6", model=TOY) as s:  # idle for too long
        w = WebSocket(s)
        for _ in range(4):
            time.sleep(2)
            begin = time.monotonic()
            w.append(bytes(4800))
        code, errors = closing_code(w)
        same((code, [e["code"] for e in errors]), (1000, ["session_expired"]))
        assert time.monotonic() - begin > 5, time.monotonic() - begin
        w.close()


# ---- models ----

def models_of(s):
    """What /v1/models tells, by name."""
    return {m["id"]: m for m in json.loads(s.get("/v1/models")[2])["data"]}


def wyoming_languages(s):
    """The languages of each model, as describe tells them."""
    c = s.connect(s.ports["wyoming"])
    wyoming_event(c, "describe")
    info = json.loads(c.makefile("rb").readline())
    c.close()
    return {m["name"]: m["languages"] for m in info["data"]["asr"][0]["models"]}


def models():
    """A model is loaded when a client names it, and unloaded when nobody uses it for a time."""
    clip = cut(0, 5)
    with open(f"{T}/short.wav", "wb") as file:
        file.write(clip)
    text = joined(transcribed("-l", "en", path=f"{T}/short.wav"))
    for name in ("words", "broken"):
        shutil.copyfile(MODEL, f"{T}/{name}.bin")
    with Server("--model", f"words={T}/words.bin", "--model", f"{T}/broken.bin", "--model",
                f"small.en-q5_1={T}/words.bin", "--idle-unload", "1", "--wyoming", "127.0.0.1:0",
                model=TOY) as s:
        same(list(models_of(s)), ["toy", "words", "broken", "small.en-q5_1", "whisper-1"])
        same(models_of(s)["words"]["state"], "unloaded")
        languages = wyoming_languages(s)
        same((list(languages), languages["small.en-q5_1"]),
             (["toy", "words", "broken", "small.en-q5_1"], ["en"]))
        assert len(languages["words"]) == 100, languages
        assert wait_for(lambda: models_of(s)["toy"]["state"] == "unloaded", 5) is not None
        before = s.memory_kb()
        w = WebSocket(s, path="/v1/realtime?model=words")
        same(w.receive()["session"]["audio"]["input"]["transcription"]["model"], "words")
        for name in ("whisper-1", "words"):
            w.send("session.update", session={"audio": {"input": {
                "transcription": {"model": name, "language": "en"},
                "format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": None}}})
            same(w.receive()["session"]["audio"]["input"]["transcription"]["model"],
                 {"whisper-1": "toy"}.get(name, name))
        w.append(clip[44:])
        w.send("input_audio_buffer.commit")
        same(w.until(COMPLETED)[-1]["transcript"], text)
        same(json.loads(s.text(clip, [("language", "en"), ("model", "words")]))["text"], text)
        same(wyoming_say(s, clip[44:], name="words")["transcript"], [text])
        same(len(wyoming_languages(s)["words"]), 99)
        assert json.loads(s.text(clip, [("language", "en")]))["text"] != text
        during, told = s.memory_kb(), models_of(s)["words"]
        same((told["state"], s.metric('model_bytes{model="words"}')), ("loaded", told["bytes"]))
        same([s.metric(f'model_{name}{{model="words"}}')
              for name in ("loaded", "users", "loads_total", "load_failures_total")], [1, 1, 1, 0])
        w.close()
        assert wait_for(lambda: models_of(s)["words"]["state"] == "unloaded", 5) is not None
        same((models_of(s)["words"]["bytes"], s.metric('model_users{model="words"}')), (0, 0))
        if not SANITIZED:
            assert during - before > told["bytes"] / 2048, (before, during, told)
            assert during - s.memory_kb() > told["bytes"] / 2048, (during, s.memory_kb(), told)
        for data in (None, b"no model" * 100):  # the file is removed, or replaced by another
            os.unlink(f"{T}/broken.bin")
            if data is not None:
                with open(f"{T}/broken.bin", "wb") as file:
                    file.write(data)
            answer = s.post(TRANSCRIPTIONS, clip, [("model", "broken")])
            assert "broken cannot be loaded: " in error_of(answer, 503)["message"], answer
            w = WebSocket(s, path="/v1/realtime?model=broken")
            same([e["code"] for e in closing_code(w)[1]], ["model_unavailable"])
            w.close()
            same(list(wyoming_say(s, clip[44:], name="broken")), ["error"])
            if data is None:
                shutil.copyfile(MODEL, f"{T}/broken.bin")
        os.unlink(f"{T}/broken.bin")
        shutil.copyfile(MODEL, f"{T}/broken.bin")
        same(json.loads(s.text(clip, [("language", "en"), ("model", "broken")]))["text"], text)
    code, why = refused_start("--model", f"{T}/missing.bin")
    assert code == 2 and f"{T}/missing.bin: No such file" in why, (code, why)
    code, why = refused_start("--model", TOY)
    assert code == 1 and "two models have the name toy" in why, (code, why)


# ---- jobs ----

def submitted(s, audio, fields=(), headers=None):
    """The id of a new job."""
    answer = s.post(TRANSCRIPTIONS, audio, fields, headers)
    same(answer[0], 202)
    job = json.loads(answer[2])
    same(answer[1]["location"], f"/v1/jobs/{job['id']}")
    return job["id"]


def job(s, name):
    """The state of a job, or None."""
    status, _, data = s.get(f"/v1/jobs/{name}")
    assert status in (200, 404), data
    return json.loads(data) if status == 200 else None


def finished(s, name):
    """The state of a job when it is over; until then its progress grows."""
    seen = [0]

    def is_over():
        state = job(s, name)
        seen.append(state["progress"])
        assert seen[-2] <= seen[-1] <= 1, seen
        same(("result" in state), state["status"] == "completed")
        return state["status"] in ("completed", "failed")
    assert wait_for(is_over, 30) is not None, seen
    return job(s, name)


def shared(s, other):
    """A job lets what others want go first, and its result is that of one that has been alone."""
    def ask():
        return submitted(s, wav(150), [("response_format", "verbose_json"), ("async", "1")])
    want = finished(s, ask())["result"]
    assert len(want["segments"]) > 2, want
    for _ in range(20):  # it may be over before the other comes
        before, name = s.metric("yields_total"), ask()
        assert wait_for(lambda: job(s, name)["status"] != "queued", 30) is not None
        other()
        same(finished(s, name)["result"], want)
        if s.metric("yields_total") > before:
            return
    assert False, "no job lets others go first"


def jobs():
    """A client that does not wait fetches the same answer later, while it is kept."""
    long = cut(0, 12, times=50)
    with Server("--jobs", "2", "--keep-results", "1000") as s:
        first = submitted(s, AUDIO, [("response_format", "verbose_json")],
                          {"Prefer": "respond-async, wait=1"})
        state = finished(s, first)
        same(without_usage(state["result"]), json.loads(transcribed("-f", "verbose_json")))
        assert 900 < state["expires_in"] <= 1000 and abs(state["created"] - time.time()) < 300, state
        second = submitted(s, AUDIO, [("response_format", "srt"), ("async", "true")])
        same(finished(s, second)["result"], transcribed("-f", "srt", "--subtitles"))
        same(job(s, first)["status"], "completed")
        third = submitted(s, b"no audio" * 10, [("async", "true")])
        state = finished(s, third)
        same((state["status"], state["error"]["code"]), ("failed", "invalid_request"))
        same((job(s, first), job(s, second)["status"]), (None, "completed"))  # the oldest is gone
        running = submitted(s, long, [("async", "true")])
        waiting = submitted(s, long, [("async", "true")])
        assert wait_for(lambda: job(s, running)["progress"] > 0, 30) is not None
        same((job(s, running)["status"], job(s, waiting)["status"]), ("running", "queued"))
        error_of(s.post(TRANSCRIPTIONS, AUDIO, [("async", "1")]), 503)
        for name in (waiting, running):
            same([s.get(f"/v1/jobs/{name}", method="DELETE")[0] for _ in range(2)], [204, 404])
        assert wait_for(lambda: s.metric("sessions_busy") == 0, 5) is not None
        same(s.metric('model_users{model="ggml-tiny"}'), 0)
        error_of(s.get("/v1/jobs"), 404)
        error_of(s.get("/v1/jobs/x", {"Origin": "http://x.example"}, "DELETE"), 403)
        submitted(s, long, [("async", "true")])  # and the server ends all the same
    free = [x for name in ("vad=0", "temperature_step=0", "logprob_threshold=off",
                           "no_speech_threshold=off") for x in ("--set", name)]
    with Server(*free, model=TOY) as s:
        text = json.loads(s.text(wav(1)))["text"]
        shared(s, lambda: same(json.loads(s.text(wav(1)))["text"], text))
        w = WebSocket(s)
        set_format(w, 16000, turn_detection=None)

        def say():
            w.append(wav(1)[44:])
            w.send("input_audio_buffer.commit")
            same(w.until(COMPLETED)[-1]["transcript"], text)
        shared(s, say)
        w.close()
    with Server("--keep-results", "1", model=TOY) as s:
        name = submitted(s, wav(1), [("async", "true")])
        assert wait_for(lambda: job(s, name) is None, 5) is not None


def told(s, name):
    """The segments of a job as they come, and its last state."""
    segments, after = [], 0
    while True:
        state = json.loads(s.get(f"/v1/jobs/{name}?after={after}")[2])
        segments += state["segments"]
        if state["status"] in ("completed", "failed") and not state["segments"]:
            return segments, state
        after = state["next"]
        time.sleep(0.02)


def jobs_told():
    """A job's segments can be fetched while it runs, each once, and as often as wanted from any
    place; a stop for another client changes nothing."""
    fields = [("async", "true"), ("progress", "true"), ("response_format", "text"),
              ("timestamp_granularities", "word"), ("language", "en")]
    with Server() as s:
        name = submitted(s, wav_file(read(SPEECH)[44:] * 3), fields)
        early = []

        def first():
            early[:] = [job(s, name)["status"],
                        json.loads(s.get(f"/v1/jobs/{name}?after=0")[2])["segments"]]
            return early[1]
        assert wait_for(first, 60) is not None
        same(early[0], "running")
        s.text(AUDIO)  # for which the job stops
        segments, state = told(s, name)
        same(segments[:len(early[1])], early[1])
        same((state["language"], round(state["duration"])), ("english", 90))
        assert "result" not in state, state
        text = "".join(x["text"] for x in segments)
        same(job(s, name)["result"].strip(), text.strip())
        for x in segments:
            same("".join(w["word"] for w in x["words"]), x["text"])
            assert all(x["start"] <= w["start"] <= w["end"] <= x["end"] and
                       0 < w["probability"] <= 1 for w in x["words"]), x
        middle = json.loads(s.get(f"/v1/jobs/{name}?after={state['next']}")[2])
        same((middle["segments"], middle["next"]), ([], state["next"]))
        for wrong in ("1", "99999999999999999999", "x"):  # is no place: all
            same(json.loads(s.get(f"/v1/jobs/{name}?after={wrong}")[2])["segments"], segments)
        both = wav_file(b"".join(DATA[i:i + 2] * 2 for i in range(0, 5 * 32000, 2)), 2)
        name = submitted(s, both, [("response_format", "diarized_json"), *fields[:2]])
        segments, state = told(s, name)
        same([x["text"].strip() for x in segments],
             [x["text"] for x in job(s, name)["result"]["segments"]])
        assert {x["speaker"] for x in segments} <= {"A", "B"} and segments, segments
        failed = submitted(s, b"no audio" * 10, fields)
        segments, state = told(s, failed)
        same((segments, state["status"]), ([], "failed"))
        assert state["error"]["message"], state
        other = submitted(s, AUDIO, fields[:1])  # whose client did not ask for it
        same(finished(s, other), json.loads(s.get(f"/v1/jobs/{other}?after=0")[2]))


# ---- TLS ----

def make_certificate(name):
    """A certificate for 127.0.0.1 and its key; returns a context that trusts it alone."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{T}/{name}.key",
                    "-out", f"{T}/{name}.pem"], check=True, capture_output=True)
    return ssl.create_default_context(cafile=f"{T}/{name}.pem")


def use_certificate(certificate, key):
    """Puts files at the place of those that the server has."""
    for name, to in ((f"{certificate}.pem", "cert.pem"), (f"{key}.key", "key.pem")):
        shutil.copyfile(f"{T}/{name}", f"{T}/new")
        os.rename(f"{T}/new", f"{T}/{to}")


def listening_ports(s):
    """The ports that a server listens on."""
    own = {os.readlink(f"/proc/{s.process.pid}/fd/{fd}")
           for fd in os.listdir(f"/proc/{s.process.pid}/fd")}
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file][1:]
    return {int(row[1].split(":")[1], 16) for row in rows
            if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def is_trusted(s):
    try:
        return s.get("/health")[0] == 200
    except ssl.SSLError:
        return False


def tls():
    """All is as without TLS; a renewed certificate is used, and a wrong one is not."""
    first, second = make_certificate("first"), make_certificate("second")
    use_certificate("first", "first")
    clip = wav(60)
    with Server(model=TOY) as s:
        want = s.text(clip, [("response_format", "verbose_json")])
    with Server("--certificate", f"{T}/cert.pem", "--key", f"{T}/key.pem", model=TOY,
                context=first) as s:
        same(s.text(clip, [("response_format", "verbose_json")]), want)
        got = subprocess.run(["curl", "-sS", "--cacert", f"{T}/first.pem", "-F", "file=@-",
                              "-F", "response_format=verbose_json",
                              f"https://127.0.0.1:{s.port}{TRANSCRIPTIONS}"], input=clip,
                             capture_output=True, check=True)
        same(got.stdout.decode(), want)
        w = WebSocket(s)
        w.until("session.created")
        s.context = None
        try:
            answer = s.get("/health")
            assert False, answer
        except (OSError, http.client.HTTPException):
            pass
        (inner,) = listening_ports(s) - {s.port}
        outer, s.port = s.port, inner
        error_of(s.get("/v1/models"), 403)  # nobody gets past TLS
        same(refused(WebSocket(s), 403)["connection"], "close")
        s.port = outer
        use_certificate("second", "second")
        s.context = second
        same(s.get("/health")[0], 200)
        use_certificate("second", "first")  # not its key
        same(s.get("/health")[0], 200)
        for name in ("first.pem", "first.key"):  # as it was, written over
            shutil.copyfile(f"{T}/{name}", f"{T}/{'cert' if name[-3:] == 'pem' else 'key'}.pem")
        s.process.send_signal(signal.SIGHUP)
        s.context = first
        assert wait_for(lambda: is_trusted(s), 5) is not None
        w.append(bytes(48000))  # on the connection from before
        w.send("input_audio_buffer.commit")
        w.until(COMPLETED)
        s.process.send_signal(signal.SIGTERM)
        same(closing_code(w), (1012, []))
        w.close()
    with Server("--certificate", f"{T}/first.pem", "--key", f"{T}/first.key", "--connections", "10",
                model=TOY, context=first) as s:  # there is TLS for 26
        lazy, begin = [s.connect(plain=True) for _ in range(20)], time.monotonic()
        assert wait_for(lambda: any(hung_up(c) for c in lazy), 20) is not None
        time.sleep(0.5)
        early = time.monotonic() - begin < 8  # without a crowd they are given 10 s
        assert not early or not all(hung_up(c) for c in lazy), "few are not a crowd"
        same(s.get("/health")[0], 200)
        for c in lazy:
            c.close()
    with Server("--certificate", f"{T}/first.pem", "--key", f"{T}/first.key", model=TOY,
                context=first) as s:
        s.health()
        c, asked = s.connect(), []
        c.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)

        def answered():
            asked.append(1)
            return s.metric('requests_total{status="200"}') >= 3 + len(asked)
        assert wait_for(answered, 5) is not None
        s.process.send_signal(signal.SIGTERM)  # what was answered still arrives
        got = b""
        while (more := c.recv(65536)):
            got += more
        same((got.count(b"HTTP/1.1 200 OK"), got.count(b"</html>")), (3, 3))
        c.close()
    for options in (["--certificate", f"{T}/first.pem", "--key", f"{T}/second.key"],
                    ["--certificate", f"{T}/none.pem", "--key", f"{T}/first.key"]):
        code, why = refused_start("--listen", "0", *options)
        assert code == 6 and (".pem" in why or ".key" in why), (code, why)
    same(refused_start("--certificate", f"{T}/first.pem")[0], 1)


# ---- load ----

def together():
    """Requests at the same time get what each gets alone."""
    clips = [AUDIO, wav(3), cut(2, 10), cut(0, 5)]
    with Server("--sessions", "2") as s:
        alone = [s.text(c, [("response_format", "verbose_json")]) for c in clips]
        got = [None] * 8

        def ask(i):
            got[i] = s.text(clips[i % 4], [("response_format", "verbose_json")])
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        same(got, alone * 2)


def realtime_client(s, r):
    w = WebSocket(s, path=r.choice(["/v1/realtime?intent=transcription", "/v1/realtime?model=other"]))
    w.receive()
    for _ in range(3):
        w.send("session.update", session={"turn_detection": r.choice([None, {}]), "tentative": True})
        for _ in range(r.randrange(1, 12)):
            w.append(r.randbytes(9600))
        if r.random() < 0.3:
            w.send("input_audio_buffer.clear")
        w.append(r.randbytes(4801))
        w.send("input_audio_buffer.commit")
    if r.random() < 0.8:
        w.until(COMPLETED)
    if r.random() < 0.5:
        w.frame(b"", opcode=8)
    w.close()


def rest_client(s, r):
    model = ("model", r.choice(["toy", "other"]))
    same(s.post(TRANSCRIPTIONS, wav(0.5, r.randrange(9)),
                [model, *[("align", "a known text")] * r.randrange(2), ("response_format", r.choice(["srt", "verbose_json", "json"])),
                 ("stream", r.choice(["true", "false"]))])[0], 200)
    c = s.connect()  # does not wait for the answer
    c.sendall(request(TRANSCRIPTIONS, wav(20), [model, ("stream", "true")]))
    time.sleep(r.random() / 10)
    c.close()
    for path in ("/metrics", "/v1/models", "/health", "/"):
        same(s.get(path)[0], 200)


def job_client(s, r):
    name = submitted(s, wav(r.choice([0.5, 40])), [("async", "true"), ("progress", "true"),
                                                   ("model", r.choice(["toy", "other"]))])
    if r.random() < 0.4:
        same(s.get(f"/v1/jobs/{name}", method="DELETE")[0], 204)
    else:
        same(finished(s, name)["status"], "completed")


def wyoming_client(s, r):
    c = s.connect(s.ports["wyoming"], plain=True)
    wyoming_event(c, "describe")
    same(json.loads(c.makefile("rb").readline())["type"], "info")
    wyoming_event(c, "audio-chunk", {}, r.randbytes(9000))
    if r.random() < 0.5:
        wyoming_event(c, "audio-stop")
    c.close()
    got = wyoming_say(s, wav(0.5)[44:], name=r.choice(["toy", "other"]))
    assert "transcript" in got, got


def renewing(s, r):
    """Not a client: certificates are renewed, and sometimes wrong."""
    use_certificate(r.choice(["first", "second"]), r.choice(["first", "second"]))
    if r.random() < 0.5:
        s.process.send_signal(signal.SIGHUP)
    time.sleep(0.1)


def attacker(s, r):
    """Sends nonsense by every protocol, and in place of TLS."""
    attack(s, r, request(TRANSCRIPTIONS, wav(0.2), [
        ("temperature", "0"), ("languages[]", "en"), ("user", "a,b"), ("max_len", "9"),
        ("chunking_strategy", '{"type": "server_vad", "threshold": 0.5}'), ("keywords", '["a", "b"]'),
        ("response_format", r.choice(["srt", "verbose_json", "diarized_json"])), ("async", "1")]))
    attack(s, r, request("/asr?output=json&language=%65n&encode=true", wav(0.2), name="audio_file"))
    data = bytearray(wav(0.2))
    for _ in range(3):
        data[r.randrange(4, 44)] = r.choice([0, 1, 2, 16, 128, 255])
    try:  # the answer may be that it is too long
        s.post(r.choice([TRANSCRIPTIONS, "/inference"]), bytes(data), [
            ("response_format", r.choice(["srt", "diarized_json"])), ("offset_t", "100"),
            ("align", "a\nb" * r.randrange(2))])
    except (OSError, http.client.HTTPException):
        pass
    attack(s, r, b"GET /v1/jobs/job_%032x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
           % r.getrandbits(128))
    w = WebSocket(s)
    send_frames(w, r)
    w.close()
    c = s.connect(s.ports["wyoming"], plain=True)
    for _ in range(r.randrange(1, 4)):
        c.sendall(broken_event(r))
    c.close()
    c = s.connect(plain=True)
    hello = bytearray(client_hello())
    for _ in range(r.randrange(4)):
        hello[r.randrange(len(hello))] = r.randrange(256)
    c.sendall(r.choice([bytes(hello), bytes(hello[:r.randrange(len(hello))]), r.randbytes(200),
                        b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(70000)]))
    c.close()


def client_hello():
    """What a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def at_once(s, clients, seconds):
    """Runs clients for a time, and each at least once. Then the server ends, while they go on."""
    ending, wrong, rounds = threading.Event(), [], []
    end = time.monotonic() + seconds

    def work(client, r):
        while not ending.is_set():
            try:
                client(s, r)
            except (ConnectionError, TimeoutError, EOFError, ssl.SSLError, http.client.HTTPException,
                    AssertionError, ValueError, TypeError, AttributeError) as why:
                if not ending.is_set():
                    wrong.append((client.__name__, repr(why)[:300]))
                break
            rounds.append(client)
    threads = [threading.Thread(target=work, args=(client, random.Random(i)))
               for i, client in enumerate(clients)]
    for t in threads:
        t.start()
    try:
        while s.process.poll() is None and not wrong and \
                (time.monotonic() < end or len(set(rounds)) < len(set(clients))):
            time.sleep(0.1)
    finally:
        ending.set()
    s.process.send_signal(signal.SIGTERM)
    for t in threads:
        t.join()
    s.ends()
    same(wrong, [])
    print(f"{len(rounds)} rounds of {len(clients)} clients")


def mixed():
    """All protocols at once, with clients that change their mind, go away or send nonsense, while models
    come and go, certificates are renewed, and last the server ends: for sanitizers. TEST_SECONDS says
    for how long."""
    context = make_certificate("first")
    make_certificate("second")
    context.load_verify_locations(f"{T}/second.pem")
    use_certificate("first", "first")
    with Server("--sessions", "2", "--queue", "40", "--connections", "60", "--jobs", "20", "--grace", "1",
                "--model", f"other={TOY}", "--idle-unload", "1", "--certificate", f"{T}/cert.pem",
                "--key", f"{T}/key.pem", "--wyoming", "127.0.0.1:0", model=TOY, context=context) as s:
        at_once(s, 2 * [realtime_client, rest_client, job_client, wyoming_client, attacker] + [renewing],
                float(os.environ.get("TEST_SECONDS", "0")))


def queue():
    """Beyond the queue there is status 503 at once, and the queue's requests are served."""
    with Server("--queue", "1") as s:
        statuses = []
        running = busy(s)
        t = threading.Thread(target=lambda: statuses.append(s.post(TRANSCRIPTIONS, AUDIO)[0]))
        t.start()
        assert wait_for(lambda: s.health()["waiting"] == 1, 20) is not None
        same(s.health()["state"], "busy")
        answer = s.post(TRANSCRIPTIONS, AUDIO)
        error_of(answer, 503)
        assert int(answer[1]["retry-after"]) > 0 and not statuses, (answer, statuses)
        running.close()
        t.join()
        same(statuses, [200])
        same(s.health()["state"], "ready")
        same(s.metric('refused_total{reason="queue_full"}'), 1)
        assert s.metric("audio_seconds_total") > 1 and s.metric("computing_seconds_total") > 0


def disconnect():
    """A client that goes away frees its session, whether it runs, waits, or feeds ffmpeg."""
    long = cut(0, 12, 40)
    with Server() as s:
        times = []
        for fields in ([], [("stream", "true")]):
            c = s.connect()
            c.sendall(request(TRANSCRIPTIONS, long, fields))
            assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
            time.sleep(0.3)
            waiting = s.connect()
            waiting.sendall(request(TRANSCRIPTIONS, long))
            assert wait_for(lambda: s.health()["waiting"] == 1, 20) is not None
            waiting.close()
            assert wait_for(lambda: s.health()["waiting"] == 0, 5) is not None, "still waits"
            c.close()
            times.append(wait_for(lambda: s.health()["idle"] == 1, 10))
        assert None not in times, "the session is still in use"
        print("a disconnected client's session was free after "
              + ", ".join(f"{1000 * t:.0f} ms" for t in times))
        assert wait_for(lambda: s.metric("cancelled_total") == 4, 5) is not None, "not counted"
        same(s.post(TRANSCRIPTIONS, AUDIO)[0], 200)


def half_closed():
    """A client that closes only its sending half gets its answer, whether it runs or waits."""
    with Server() as s:
        want = s.text(AUDIO)
        for fields in ([], [("stream", "true")], [("stream", "true"), ("tentative", "true")]):
            clients = [s.connect() for _ in range(2)]
            for c in clients:
                c.sendall(request(TRANSCRIPTIONS, AUDIO, fields))
                c.shutdown(socket.SHUT_WR)
            for c in clients:
                lines = c.makefile("rb")
                status, _, body = reply(lines)
                if status == 100:  # asks whether the client is still there
                    status, _, body = reply(lines)
                body = re.sub(b":\n\n", b"", body)  # comments
                text = sent_events(body)[-1] if fields else json.loads(body)
                same((status, text["text"]), (200, json.loads(want)["text"]))
                same(lines.read(), b"")
                c.close()
        same(s.metric("cancelled_total"), 0)
        c = s.connect()  # the protocol has no interim answers before 1.1
        c.sendall(request(TRANSCRIPTIONS, cut(0, 12, 40)).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
        c.shutdown(socket.SHUT_WR)
        same(c.recv(100), b"")
        assert wait_for(lambda: s.health()["idle"] == 1, 10) is not None


def shutdown():
    """SIGTERM lets running requests end, within --grace; new ones are refused."""
    with Server("--grace", "600") as s:
        got, want = [], json.loads(s.text(cut(0, 12, 8)))["text"]
        t = threading.Thread(target=lambda: got.append(s.text(cut(0, 12, 8))))
        t.start()
        assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
        s.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: s.health()["status"] == "shutting down", 5) is not None
        same((s.get("/health")[0], s.get("/ready")[0]), (200, 503))
        error_of(s.post(TRANSCRIPTIONS, AUDIO), 503)
        t.join()
        same(s.process.wait(120), 0)
        same(json.loads(got[0])["text"], want)
    with Server("--grace", "600", "--wyoming", "127.0.0.1:0") as s:
        c = s.connect(s.ports["wyoming"])
        wyoming_event(c, "audio-start", {"rate": 16000, "width": 2, "channels": 1})
        for at in range(0, len(DATA), 32000):
            wyoming_event(c, "audio-chunk", {}, DATA[at:at + 32000])
        wyoming_event(c, "audio-stop")
        w = wait_for(lambda: s.health()["idle"] == 0, 20)
        assert w is not None
        s.process.send_signal(signal.SIGTERM)
        lines = c.makefile("rb")
        kinds = []
        while "transcript" not in kinds:
            line = lines.readline()
            assert line, f"hung up after {kinds}"
            kinds.append(json.loads(line)["type"])
        c.close()
        same(s.process.wait(120), 0)
    with Server("--grace", "6", "--wyoming", "127.0.0.1:0", model=TOY) as s:
        kept, stalled, sending = s.connect(), s.connect(), s.connect()
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        same(reply(kept.makefile("rb"))[0], 200)
        whole = request(TRANSCRIPTIONS, wav(20))
        stalled.sendall(whole[:300000])
        sending.sendall(whole[:300000])
        spoken, halted = (s.connect(s.ports["wyoming"]) for _ in range(2))
        chunk = b'{"type": "audio-chunk", "payload_length": 4000}\n'
        for c in (spoken, halted):
            c.sendall(chunk + bytes(2000))
        assert wait_for(lambda: all(received(c) for c in (stalled, sending, spoken, halted)), 60) \
            is not None
        s.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: s.health()["status"] == "shutting down", 5) is not None
        sending.sendall(whole[300000:])
        spoken.sendall(bytes(2000))
        wyoming_event(spoken, "audio-stop")
        same(reply(sending.makefile("rb"))[0], 200)
        same(json.loads(spoken.makefile("rb").readline())["type"], "transcript-start")
        status, headers, body = reply(stalled.makefile("rb"))
        same((status, json.loads(body)["error"]["code"]), (503, "server_busy"))
        assert int(headers["retry-after"]) > 0, headers
        same(kept.recv(1), b"")
        for c in (kept, stalled, sending, spoken, halted):
            c.close()
        same(s.process.wait(120), 0)
    with Server("--grace", "1", "--set", "words=1", model=TOY) as s:
        deaf = s.connect()  # does not receive its answers
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(2)
        try:
            while True:
                deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        except TimeoutError:
            pass
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        same(s.process.wait(120), 0)
        print(f"with a client that receives nothing it ended after {time.monotonic() - begin:.1f} s")
        deaf.close()
    with Server("--grace", "0") as s:
        t = threading.Thread(target=lambda: got.append(
            s.post(TRANSCRIPTIONS, cut(0, 12, 40))))
        t.start()
        assert wait_for(lambda: s.health()["idle"] == 0, 20) is not None
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        same(s.process.wait(120), 0)
        t.join()
        print(f"with --grace 0 the server ended after {time.monotonic() - begin:.1f} s")
        assert got[1][0] == 503 or json.loads(got[1][2])["incomplete"], got[1]


def draining():
    """A server that a balancer asks serves on for a time after SIGTERM, but says that it is not ready.
    Jobs end, and are fetched, within --grace, and so do turns."""
    audio = wav(2)
    with Server("--drain", "600", "--grace", "600", "--node", "a-1", model=TOY) as s:
        same((s.get("/ready")[0], s.get("/ready", method="HEAD")[0]), (200, 200))
        silent, speaker = WebSocket(s), WebSocket(s)
        for w in (silent, speaker):
            w.receive()
        speaker.send("session.update", session={"type": "transcription", "audio": {"input": {
            "turn_detection": None}}})
        speaker.until("session.updated")
        speaker.append(bytes(24000))
        s.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: s.get("/ready")[0] == 503, 5) is not None
        same((s.health()["status"], s.get("/health")[0]), ("draining", 200))
        status, headers, _ = s.post(TRANSCRIPTIONS, audio)
        same((status, headers["connection"]), (200, "close"))
        late = WebSocket(s)
        same(late.receive()["type"], "session.created")
        job = json.loads(s.post(TRANSCRIPTIONS, wav(20), [("async", "true")])[2])["id"]
        assert job.startswith("job_a-1_"), job
        s.process.send_signal(signal.SIGTERM)  # the second one ends --drain, but not --grace
        for w in (silent, late):
            same(closing_code(w), (1012, []))
            w.close()
        error_of(s.post(TRANSCRIPTIONS, audio), 503)
        other = s.get(f"/v1/jobs/{job.replace('a-1', 'b')}")
        assert "server b" in error_of(other, 404)["message"], other
        speaker.append(bytes(24000))
        speaker.send("input_audio_buffer.commit")
        speaker.until(COMPLETED)
        same(closing_code(speaker), (1012, []))
        speaker.close()
        answers = []

        def completed():
            answers.append(json.loads(s.get(f"/v1/jobs/{job}")[2]))
            return answers[-1]["status"] == "completed"
        assert wait_for(completed, 60) is not None
        assert "text" in answers[-1]["result"], answers[-1]
        same(s.process.wait(120), 0)
    with Server("--grace", "600", model=TOY) as s:  # nobody asks: no drain; no turn is waited for for ever
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        same(s.process.wait(120), 0)
        assert time.monotonic() - begin < 4.9, "it drained without a balancer"
    with Server(model=TOY) as s:
        same(s.get("/ready")[0], 200)
        s.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: s.get("/ready")[0] == 503, 5) is not None
        same(s.post(TRANSCRIPTIONS, audio)[0], 200)
        s.process.send_signal(signal.SIGINT)
    with Server("--grace", "4", model=TOY) as s:
        w = WebSocket(s)
        w.send("session.update", session={"type": "transcription", "audio": {"input": {
            "turn_detection": None}}})
        w.append(bytes(24000))
        w.until("session.updated")
        s.process.send_signal(signal.SIGTERM)
        w.until(COMPLETED)
        same(closing_code(w), (1012, []))
        w.close()
    wants_model()


def wants_model():
    """A server whose models were unloaded is ready as long as it can open one."""
    path = f"{T}/there.bin"
    shutil.copyfile(TOY, path)
    with Server("--idle-unload", "1", model=path) as s:
        assert wait_for(lambda: b'"state": "unloaded"' in s.get("/v1/models")[2], 20) is not None
        same(s.get("/ready")[0], 200)
        os.unlink(path)
        same((s.get("/ready")[0], s.get("/health")[0]), (503, 200))
        shutil.copyfile(TOY, path)
        same(s.get("/ready")[0], 200)


def proxies():
    """Trusted proxies say who asks, and which request it is."""
    said = {"X-Request-Id": "abc-1.2", "X-Forwarded-For": "6.6.6.6, 198.51.100.7:1234, 10.1.2.3"}
    with Server("--verbose", "--proxy", "127.0.0.1", "--proxy", "10.0.0.0/8", model=TOY) as s:
        same(s.get("/health", said)[1]["x-request-id"], "abc-1.2")
        same(s.get("/x", {**said, "X-Request-Id": "y" * 65})[1]["x-request-id"][:4], "req_")
        same(s.get("/y", {"X-Forwarded-For": "nonsense, [2001:db8::5]:80"})[0], 404)
        same(s.get("/z", {"X-Forwarded-For": "1.2.3.4, nonsense, 10.0.0.1"})[0], 404)
        w = WebSocket(s, [f"{name}: {value}" for name, value in said.items()])
        w.until("session.created")
        w.append(bytes(48000))
        w.send("input_audio_buffer.commit")
        w.until(COMPLETED)
        w.close()
        s.process.send_signal(signal.SIGTERM)
        s.reader.join()
        told = "".join(s.lines)
    for line in (r"198.51.100.7 GET /health 200, \d+ ms, abc-1.2", r"198.51.100.7 GET /x 404, .*: ",
                 r"2001:db8::5 GET /y 404, ", r"10.0.0.1 GET /z 404, ",
                 r"198.51.100.7 realtime item_.*, abc-1.2"):
        assert re.search("^server: " + line, told, re.M), (line, told)
    with Server("--verbose", "--proxy", "10.0.0.0/8", model=TOY) as s:  # not the client's address
        ids = [s.get("/health", said)[1]["x-request-id"] for _ in range(2)]
        assert ids[0] != ids[1] and all(re.fullmatch("req_[0-9a-f]{16}", x) for x in ids), ids
        s.process.send_signal(signal.SIGTERM)
        s.reader.join()
        assert f"server: 127.0.0.1 GET /health 200, 0 ms, {ids[0]}" in \
            re.sub(r"\d+ ms", "0 ms", "".join(s.lines)), s.lines
    for wrong in ("here", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "::/129"):
        same(refused_start("--proxy", wrong)[0], 1)
    same(refused_start("--node", "a_b")[0], 1)


def cut_short():
    """What was found before the end of the server is not lost."""
    audio = wav_file((DATA[:4 * 32000] + bytes(4 * 32000)) * 300)

    def ask(s, fields):
        c = s.connect()
        c.sendall(request(TRANSCRIPTIONS, audio, fields))
        return c
    with Server("--grace", "0", "--max-mb", "100") as s:
        c, body, begin = ask(s, [("stream", "true")]), b"", time.monotonic()
        while b".delta" not in body:
            body += c.recv(65536)
        patience = time.monotonic() - begin
        s.process.send_signal(signal.SIGTERM)
        while (more := c.recv(65536)):
            body += more
        done = json.loads(re.findall(rb"^data: (.*done.*)$", body, re.M)[-1])
        same((bool(done["text"]), done["incomplete"]), (True, True))
        same(s.process.wait(120), 0)
        c.close()
    status = 0
    for attempt in range(6):  # the first text may take longer than before
        if status != 200:
            with Server("--grace", "0", "--max-mb", "100") as s:
                c = ask(s, [])
                time.sleep(patience * 1.5 ** attempt)
                s.process.send_signal(signal.SIGTERM)
                status, headers, body = reply(c.makefile("rb"))
                same(s.process.wait(120), 0)
                c.close()
    answer = json.loads(body)
    same((status, answer["incomplete"], answer["text"][:4]), (200, True, done["text"][:4]))
    assert "the first" in headers["x-warning"], headers


def memory():
    """Memory, threads and descriptors do not grow with requests."""
    n = FULL or 800
    with Server("--max-mb", "5", model=TOY) as s:
        def burst(count, seed):
            for i in range(count):
                fields = [("user", "x" * (i % 50 * 100)), ("response_format", "verbose_json")]
                same(s.post(TRANSCRIPTIONS, wav(0.5, seed + i), fields)[0], 200)
            for _ in range(4):
                same(s.post(TRANSCRIPTIONS, wav(140))[0], 200)  # does not stay in memory
        burst(n // 2, 0)  # the heap takes its shape
        before, fds = s.memory_kb(), s.descriptors()
        burst(n // 2, 100000)
        after = s.memory_kb()
        print(f"{n} requests: {before} KB resident after half of them, {after} KB after all")
        assert SANITIZED or after < before + 1024, (before, after)
        assert wait_for(lambda: s.descriptors() <= fds, 5) is not None, "descriptors leak"


# ---- attack ----

def mutated(r, good):
    """A hostile request made of a good one."""
    data = bytearray(good)
    kind = r.randrange(9)
    if kind == 0:
        return bytes(data[:r.randrange(len(data))])
    if kind == 1:
        for _ in range(r.randrange(1, 20)):
            data[r.randrange(min(len(data), 600))] = r.randrange(256)
    if kind == 2:
        return bytes(data).replace(b"Content-Length: ", b"Content-Length: " +
                                   r.choice([b"9", b"-", b"0x", b"99999999999999999999", b"1 "]))
    if kind == 3:
        return bytes(data).replace(b"boundary=", r.choice(
            [b"boundary=x", b"boundary=\"", b"", b"boundary=" + b"b" * 200, b"Boundary = "]))
    if kind == 4:
        return bytes(data).replace(b'name="', r.choice(
            [b'name="' + b"n" * 3000, b"name=", b'filename="', b'name="\0', b'Name="file"; name="']))
    if kind == 5:
        return r.choice([b"GET ", b"PUT ", b"\0", b"POST " + b"/" * 20000, b"\x16\x03\x01\x02",
                         b"POST / HTTP/9.9\r\n"]) + r.randbytes(r.randrange(200)) + b"\r\n\r\n"
    if kind == 6:
        head = good[:good.index(b"\r\n\r\n")]
        return head.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX: ") + \
            b"\r\n\r\n" + r.choice([b"zz\r\n", b"ffffffffffffffff\r\n", b"5\r\nabc", b"-1\r\n"]) + \
            r.randbytes(50)
    if kind == 7:
        at = good.index(b"\r\n\r\n")
        return good[:at] + b"\r\nX-Long: " + b"h" * r.randrange(30000) + good[at:]
    at = r.randrange(len(data))
    return bytes(data[:at]) + r.randbytes(r.randrange(1, 2000)) + bytes(data[at:])


def attack(s, r, good):
    way = r.randrange(3)
    if way == 1:  # the answer's end is that of the connection
        good = good.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    c = s.connect()
    c.settimeout(5)
    try:
        c.sendall(mutated(r, good))
        if way == 0:
            c.shutdown(1)
        if way < 2:
            while c.recv(65536):
                pass
    except (OSError, TimeoutError):
        pass
    c.close()


def hostile():
    """After hostile requests, a good one is answered, and nothing has leaked."""
    n = int(os.environ.get("TEST_HOSTILE", "0")) or 240
    good = request(TRANSCRIPTIONS, wav(0.2), [("temperature", "0"), ("response_format", "text"),
                                              ("languages[]", "en"), ("user", "a,b")])
    asr = request("/asr?output=json&language=%65n&encode=true", wav(0.2), name="audio_file")
    with Server("--upload-timeout", "1", "--connections", "64", model=TOY) as s:
        want = s.text(wav(0.2))

        def work(seed, count):
            r = random.Random(seed)
            for _ in range(count):
                attack(s, r, r.choice([good, asr]))

        def burst(first):
            threads = [threading.Thread(target=work, args=(seed, n // 32))
                       for seed in range(first, first + 16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert wait_for(lambda: s.health()["idle"] == 1, 30) is not None
        burst(1)  # the heap takes its shape
        before = s.memory_kb()
        burst(17)
        assert s.process.poll() is None, "the server crashed"
        want_health = {"status": "ok", "state": "ready", "sessions": 1, "idle": 1, "waiting": 0}
        assert wait_for(lambda: s.health().items() >= want_health.items(), 30) is not None
        same(s.text(wav(0.2)), want)
        after = s.memory_kb()
        print(f"{n} hostile requests: {before} KB resident after half of them, {after} KB after all")
        assert SANITIZED or after < before + 4096, (before, after)


def send_frames(w, r):
    """Sends what may not be frames, or not events."""
    try:
        for _ in range(r.randrange(1, 4)):
            kind = r.randrange(6)
            if kind == 0:
                w.socket.sendall(r.randbytes(r.randrange(1, 300)))
            elif kind == 1:  # a length that never comes
                w.socket.sendall(b"\x81\xff" + struct.pack(">Q", r.choice(
                    [1 << 20, 1 << 30, 1 << 40, (1 << 63) - 1])) + r.randbytes(100))
            elif kind == 2:
                w.frame(r.randbytes(r.randrange(200)), r.randrange(16), r.random() < 0.7)
            elif kind == 3:
                w.append(r.randbytes(r.randrange(5000)))
            elif kind == 4:
                w.frame(mutated_event(r))
            else:
                w.frame(b"[" * r.randrange(10000))
    except OSError:
        pass


EVENTS = [{"type": "input_audio_buffer.commit"}, {"type": "input_audio_buffer.clear"}, {"type": "x"},
          {"type": "session.update", "session": {"audio": {"input": {
              "format": {"type": "audio/pcm", "rate": 24000}, "noise_reduction": None,
              "transcription": {"model": "toy", "language": "en", "prompt": "a"},
              "turn_detection": {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
                                 "silence_duration_ms": 500}}},
              "include": ["item.input_audio_transcription.logprobs"]}}]


def mutated_event(r):
    """An event of the realtime protocol, or bytes like one."""
    data = bytearray(json.dumps(r.choice(EVENTS)).encode())
    for _ in range(r.randrange(3)):
        at = r.randrange(len(data))
        data[at:at + r.randrange(8)] = r.choice([b"", b"null", b"-1e999", b"\"", b"{", b"[]", b"\\ud800",
                                                 b"1e9", b"true", b"\x7f"])
    return bytes(data)


def frames():
    """Hostile WebSocket frames: no crash, no session in use, the next client is served."""
    n = (int(os.environ.get("TEST_HOSTILE", "0")) or 600) // 10
    r = random.Random(7)
    with Server("--connections", "16", model=TOY) as s:
        for _ in range(n):
            w = WebSocket(s)
            send_frames(w, r)
            w.close()
        assert s.process.poll() is None, "the server crashed"
        assert wait_for(lambda: s.health()["idle"] == 1, 60) is not None, "a session is in use"
        w = WebSocket(s)
        w.until("session.created")
        w.close()
        assert wait_for(lambda: s.health()["idle"] == 1, 20) is not None, "a session is in use"
        for size in (3 << 20, 12 << 20):  # larger than events may be
            c = WebSocket(s)
            same(c.receive()["type"], "session.created")
            c.socket.sendall(b"\x81\xff" + struct.pack(">Q", size) + bytes(4))
            for _ in range(size >> 20):
                c.socket.sendall(b" " * (1 << 20))
            code, errors = closing_code(c)
            same((code, len(errors)), (1009, 1))
            c.close()
            assert wait_for(lambda: s.health()["idle"] == 1, 20) is not None, "a session is in use"
        c = WebSocket(s)  # so large that it is not received to its end
        c.socket.sendall(b"\x81\xff" + struct.pack(">Q", 1 << 30) + bytes(4))
        try:
            for _ in range(2000):
                c.socket.sendall(bytes(100000))
            raise AssertionError("200 MB were received")
        except OSError:
            pass


def websockets():
    """RFC 6455: pings are echoed, requests have a key, and text is UTF-8."""
    with Server(model=TOY) as s:
        for key in ("", "Sec-WebSocket-Key: \r\n", "Sec-WebSocket-Key: abc\r\n"):
            c = s.connect()
            c.sendall((f"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n{key}"
                       "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
            same(reply(c.makefile("rb"))[0], 400)
            c.close()
        w = WebSocket(s)
        w.until("session.created")
        for data in (b"", b"ping \xff\0", b"x" * 125):
            w.frame(data, opcode=9)
            while len(w.bytes) < 2 + len(data):
                w._more()
            same(w.bytes, bytes([0x8a, len(data)]) + data)
            w.bytes = b""
        w.frame(b"pong", opcode=10)
        for text in ("\u00e9\u20ac\U0001f600\ud7ff\ue000\U0010ffff", "x"):
            w.frame(json.dumps({"type": text}, ensure_ascii=False).encode())
            w.until("error")
        w.close()
        for text in (b"\xff", b"\xc0\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf",
                     b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xc3", b"\x80"):
            w = WebSocket(s)
            w.until("session.created")
            w.frame(b'{"type": "' + text + b'"}')
            same((text, closing_code(w)[0]), (text, 1007))
            w.close()


def forbidden():
    """Frames that RFC 6455 forbids end the connection with code 1002, and an answer to that is not
    waited for without end."""
    with Server(model=TOY) as s:
        for frames_sent in ([(0x81 | 0x40, b"{}")], [(0x80, b"{}")], [(0x83, b"")], [(0x8f, b"")],
                            [(0x01, b"{"), (0x81, b"}")], [(0x01, b""), (0x81, b"{}")],
                            [(0x08, b"")], [(0x88, b"\x03\xe8" + b"x" * 124)]):
            w = WebSocket(s)
            same(w.receive()["type"], "session.created")
            for first, data in frames_sent:
                w.frame(data, opcode=first & 0x7f, last=first >= 0x80)
            code, errors = closing_code(w)
            same((code, len(errors)), (1002, 1))
            w.close()
            assert wait_for(lambda: s.health()["idle"] == 1, 20) is not None, "a session is in use"
        w = WebSocket(s)
        w.until("session.created")
        w.frame(b'{"type": "input_audio', last=False)
        w.frame(b"ping", opcode=9)  # may come between the frames of a message
        w.frame(b'_buffer.clear"}', opcode=0)
        same(w.until("input_audio_buffer.cleared")[-1]["type"], "input_audio_buffer.cleared")
        w.close()
    with Server("--timeout", "1", model=TOY) as s:
        w = WebSocket(s)
        same(closing_code(w)[0], 1000)
        same(w.socket.recv(1), b"")  # although it has not answered
        w.close()


def hung_up(c):
    """Whether the server has closed a connection."""
    c.setblocking(False)
    try:
        return not c.recv(1000)
    except BlockingIOError:
        return False
    except OSError:
        return True


def silent():
    """Connections that send nothing, or a header bit by bit, are ended, and others are served; soon
    if there are many of them, but without haste for those that have had a request."""
    def begin_lazily(s, count):
        lazy = [s.connect() for _ in range(count)]
        for i, c in enumerate(lazy):
            c.sendall(b"POST / HTTP/1.1\r\n"[:i % 4 * 5])
        return lazy

    def trickle(lazy, times):
        for _ in range(times):
            for c in lazy:
                try:
                    c.sendall(b"X")
                except OSError:
                    pass
            time.sleep(0.5)
    with Server("--connections", "10", model=TOY) as s:
        lazy = begin_lazily(s, 4)
        begin = time.monotonic()
        trickle(lazy, 4)
        early = time.monotonic() - begin < 5  # they are given 8 s
        assert not early or not hung_up(lazy[0]), "hung up on early"  # patience with few of them
        for c in lazy[1:]:
            assert wait_for(lambda c=c: hung_up(c), 20) is not None, "kept"
        print(f"four were hung up on after {time.monotonic() - begin:.1f} s")
        for c in lazy:
            c.close()
        kept = s.connect()
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        same(reply(kept.makefile("rb"))[0], 200)
        lazy = begin_lazily(s, 60)
        begin = time.monotonic()
        trickle(lazy, 4)
        early = time.monotonic() - begin < 5  # it is kept for 8 s
        assert not early or not hung_up(kept), "hung up on between two requests"
        same(s.get("/health")[0], 200)
        print(f"served after {time.monotonic() - begin:.1f} s behind 60 silent connections")
        assert time.monotonic() - begin < 45, "no haste"  # ten at a time, 48 s for all
        for c in lazy + [kept]:
            c.close()
    # A request that waited for a thread is not ended with the silent ones that made room for it.
    with Server("--connections", "60", model=TOY) as s:
        lazy = [s.connect() for _ in range(200)]
        same(s.get("/health")[0], 200)
        for c in lazy:
            c.close()


def slow_bodies():
    """Uploads that hardly proceed are ended when the connections are scarce, and not before."""
    with Server("--connections", "6", model=TOY) as s:
        body = request(TRANSCRIPTIONS, wav(2))

        def begin_slowly(count):
            lazy = [s.connect() for _ in range(count)]
            for c in lazy:
                c.sendall(body[:2000])
            return lazy
        few = begin_slowly(2)
        for _ in range(7):
            time.sleep(1)
            for c in few:
                c.sendall(b"x")
        for c in few:
            assert not hung_up(c), "hung up on, although nobody waits"
            c.close()
        many, begin = begin_slowly(6), time.monotonic()
        same(s.post(TRANSCRIPTIONS, wav(0.2))[0], 200)
        print(f"served after {time.monotonic() - begin:.1f} s behind six slow uploads")
        same(reply(many[0].makefile("rb"))[0], 408)
        for c in many:
            c.close()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
