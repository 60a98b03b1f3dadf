#!/usr/bin/env python3
"""What build/server delivers to its clients, over loopback.

usage: bench_server.py [--json] [--clients N] [--requests N] [--rounds N]
       bench_server.py --endure N [--minutes M]
       bench_server.py --silent N
       bench_server.py --converse N --manifest FILE [--together M] [--rates R,...]
                       [--noise DBFS]

Sends the first 10 s of SPEECH, a WAV file at 16 kHz, to a server with MODEL, with one session and
with two, both from WNPU_BUILD:

first delta   from the last byte of a request with stream=true to the first event with text, on an
              idle server; the request is sent at once, and within 1 s
whole answer  the same to the answer of a request without stream
throughput    of 1 client that sends N requests one after another, and of 8 that share N, or as many
              as --clients says
memory        resident before and after all of these, and at the highest
silent        until GET /health is answered that comes behind 200 connections which send nothing, with
              --connections 60
Times are medians of --rounds, in ms; throughput is audio per time.

--endure: over 8 connections that stay open, N requests with 1 s of SPEECH that has text, or as many
as M minutes allow: formats, events, jobs, realtime, wrong ones. Each must be answered as the first of
its kind. Tells the memory after each tenth.

--silent: while ten realtime connections speak, uploads without and with N connections beside them
that send silence: the time of each upload, and the CPU time of the server per second.

--converse: N conversations of recordings that a manifest lists (see converse.py), spoken in real time
over /v1/realtime, M at a time: words lost, errors, and the times to deltas, ends of turns and final
text. A rate of 8000 is sent as G.711 (mu-law). --noise adds white noise of that level."""
import argparse
import base64
import http.client
import json
import os
import re
import socket
import statistics
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from converse import converse  # noqa: E402
from server import Server, WebSocket, form, read, request, wav_file  # noqa: E402

PATH = "/v1/audio/transcriptions"
SECONDS = 10


def send(connection, data, seconds):
    """Sends the data within a time, in pieces. Returns when the last one was sent."""
    pieces = 100 if seconds > 0 else 1
    size = -(-len(data) // pieces)
    begin = time.monotonic()
    for i in range(pieces):
        time.sleep(max(0, begin + seconds * i / pieces - time.monotonic()))
        connection.sendall(data[i * size:(i + 1) * size])
    return time.monotonic()


def first_delta(server, clip, seconds):
    """Seconds from the last byte of a request to the first text."""
    c = server.connect()
    sent = send(c, request(PATH, clip, [("stream", "true"), ("language", "en")]), seconds)
    got = b""
    while b'"transcript.text.delta"' not in got:
        more = c.recv(65536)
        assert more, got
        got += more
    took = time.monotonic() - sent
    while c.recv(65536):
        pass
    c.close()
    return took


def whole_answer(server, clip):
    c = server.connect()
    sent = send(c, request(PATH, clip, [("language", "en")]).replace(
        b"\r\n", b"\r\nConnection: close\r\n", 1), 0)
    got = b""
    while (more := c.recv(65536)):
        got += more
    assert got.startswith(b"HTTP/1.1 200 "), got
    took = time.monotonic() - sent
    c.close()
    return took


def throughput(server, clip, clients, requests):
    """Seconds of audio per second."""
    def work():
        for _ in range(requests // clients):
            server.text(clip, [("language", "en")])
    threads = [threading.Thread(target=work) for _ in range(clients)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return SECONDS * requests / (time.monotonic() - begin)


def behind_silence(sessions):
    """Seconds until a request is answered."""
    with Server("--sessions", str(sessions), "--connections", "60") as s:
        lazy = [socket.socket() for _ in range(200)]
        for c in lazy:
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", s.port))
        time.sleep(0.1)
        begin = time.monotonic()
        s.health()
        took = time.monotonic() - begin
        for c in lazy:
            c.close()
        return took


def peak_kb(server):
    return int(re.search(r"VmHWM:\s+(\d+)", read(f"/proc/{server.process.pid}/status").decode())[1])


def measure(sessions, clip, options):
    clients, requests, rounds = options.clients, options.requests, options.rounds
    with Server("--sessions", str(sessions), "--queue", "32") as s:
        throughput(s, clip, clients, clients)  # the first run of a session touches its memory
        before = s.memory_kb()

        def median(times):
            return round(1e3 * statistics.median(times), 1)
        result = {
            "sessions": sessions,
            "first_delta_ms": median(first_delta(s, clip, 0) for _ in range(rounds)),
            "first_delta_paced_ms": median(first_delta(s, clip, 1) for _ in range(rounds)),
            "whole_answer_ms": median(whole_answer(s, clip) for _ in range(rounds)),
            "clients1": round(throughput(s, clip, 1, requests), 1),
            "clients8": round(throughput(s, clip, clients, requests), 1)}
        result["ratio"] = round(result["clients8"] / result["clients1"], 2)
        result["rss_before_mb"] = round(before / 1024, 1)
        result["rss_after_mb"] = round(s.memory_kb() / 1024, 1)
        result["rss_peak_mb"] = round(peak_kb(s) / 1024, 1)
    result["silent_s"] = round(behind_silence(sessions), 1)
    return result


def ask(c, body, kind, path=PATH, more=None):
    c.request("POST", path, body, {"Content-Type": kind, **(more or {})})
    answer = c.getresponse()
    return answer.status, answer.read()


def ask_job(c, body, kind):
    """A job's answer."""
    status, text = ask(c, body, kind, more={"Prefer": "respond-async"})
    while status == 202 or (status == 200 and json.loads(text)["status"] in ("queued", "running")):
        time.sleep(0.02)
        c.request("GET", f"/v1/jobs/{json.loads(text)['id']}")
        answer = c.getresponse()
        status, text = answer.status, answer.read()
    return status, json.dumps(json.loads(text).get("result")).encode()


def ask_realtime(s, pcm):
    """What an item without turns is heard as, with deltas."""
    w = WebSocket(s)
    w.send("session.update", session={"type": "transcription", "audio": {"input": {
        "format": {"type": "audio/pcm", "rate": 16000}, "transcription": {"language": "en"},
        "turn_detection": None}}})
    w.append(pcm)
    w.send("input_audio_buffer.commit")
    got = w.until("conversation.item.input_audio_transcription.completed")[-1]["transcript"]
    w.close()
    return 200, got.encode()


def mixture(s, clip):
    """Requests of many kinds, each of which returns a status and an answer."""
    pcm = clip[44:]
    forms = [form([("language", "en"), *fields], clip) for fields in (
        [("response_format", "json")], [("response_format", "srt")], [("stream", "true")],
        [("response_format", "verbose_json"), ("timestamp_granularities[]", "word,segment")])]
    wrong = form([("language", "en")], b"no audio" * 500)
    return [lambda c, f=f: ask(c, *f) for f in forms] + [
        lambda c: ask_job(c, *forms[0]), lambda c: ask_realtime(s, pcm),
        lambda c: ask(c, *wrong), lambda c: ask(c, *form([("temperature", "x")], clip)),
        lambda c: ask(c, *forms[0], path="/nowhere"), lambda c: ask(c, *form([], clip, "audio_file"),
                                                                  path="/asr?output=vtt&language=en"),
        lambda c: ask(c, *form([], clip), path="/v1/audio/speech/timestamps")]


def memory(server):
    """Resident KB, and of that what no other process shares."""
    text = read(f"/proc/{server.process.pid}/smaps_rollup").decode()
    return tuple(int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) for name in ("Rss", "Pss"))


def endure(s, clip, requests, minutes):
    """Sends requests of all kinds until they or the time are over; each kind gets one answer."""
    kinds = mixture(s, clip)
    first = http.client.HTTPConnection("127.0.0.1", s.port, timeout=600)
    want = [kind(first) for kind in kinds]
    first.close()
    lock, end = threading.Lock(), time.monotonic() + 60 * minutes
    done, wrong = [0], []

    def work():
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=600)
        while True:
            with lock:
                if done[0] >= requests or time.monotonic() > end:
                    break
                number = done[0] = done[0] + 1
                if number == 1 or number * 10 % requests == 0:
                    rss, pss = memory(s)
                    print(f"{number} requests: {rss} KB resident, {pss} of its own", flush=True)
            kind = number % len(kinds)
            got = kinds[kind](c)
            if got != want[kind]:
                wrong.append((kind, got, want[kind]))
        c.close()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"{done[0]} requests of {len(kinds)} kinds over 8 connections, {len(wrong)} answered "
          f"otherwise than the first {wrong[:1]}, {s.memory_kb()} KB resident and "
          f"{s.descriptors()} descriptors at the end")


def frame(pcm):
    """A WebSocket frame with audio, masked with zeros."""
    event = json.dumps({"type": "input_audio_buffer.append",
                        "audio": base64.b64encode(pcm).decode()}).encode()
    return b"\x81\xfe" + struct.pack(">H", len(event)) + bytes(4) + event


def talk(connections, frames, stop):
    """Sends 100 ms of audio to each connection every 100 ms, and reads what they tell."""
    turn, next_time = 0, time.monotonic()
    for c in connections:
        c.socket.setblocking(False)
    while not stop.is_set():
        for i, c in enumerate(connections):
            try:
                data = frames[(turn + 37 * i) % len(frames)]
                assert c.socket.send(data) == len(data), "the server does not keep up"
                while c.socket.recv(65536):
                    pass
            except BlockingIOError:
                pass
        turn += 1
        next_time += 0.1
        time.sleep(max(0, next_time - time.monotonic()))


def beside_silence(s, clip, silent, rounds):
    """Uploads while clients of realtime are connected: their times, and CPU time per second."""
    pcm = read(os.environ["SPEECH"])
    pcm = pcm[pcm.index(b"data") + 8:][:12 * 32000] + bytes(32000)
    speech = [frame(pcm[at:at + 3200]) for at in range(0, len(pcm), 3200)]
    stop, threads, connections = threading.Event(), [], []
    for n, frames in ((10, speech), (silent, [frame(bytes(3200))])):
        new = [WebSocket(s) for _ in range(n)]
        for w in new:
            w.send("session.update", session={"audio": {"input": {
                "format": {"type": "audio/pcm", "rate": 16000}}}})
        threads.append(threading.Thread(target=talk, args=(new, frames, stop)))
        connections += new
    for t in threads:
        t.start()
    time.sleep(2)
    begin, cpu, times = time.monotonic(), cpu_seconds(s), []
    for _ in range(rounds):
        times.append(whole_answer(s, clip))
    cpu = (cpu_seconds(s) - cpu) / (time.monotonic() - begin)
    stop.set()
    for t in threads:
        t.join()
    for w in connections:
        w.close()
    return times, cpu


def cpu_seconds(server):
    fields = read(f"/proc/{server.process.pid}/stat").decode().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare_silence(clip, silent, rounds):
    with Server("--connections", str(2 * silent + 40), "--queue", "32") as s:
        for n in (0, silent, 0, silent):
            times, cpu = beside_silence(s, clip, n, rounds)
            print(f"{n} silent: {1e3 * statistics.median(times):.0f} ms, at most "
                  f"{1e3 * max(times):.0f}; {cpu:.2f} s of CPU time per second, "
                  f"{s.memory_kb()} KB resident", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object for each server")
    parser.add_argument("--requests", type=int, default=48, help="a multiple of --clients")
    parser.add_argument("--clients", type=int, default=8, help="that ask at the same time")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--endure", type=int, metavar="N")
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--silent", type=int, metavar="N")
    parser.add_argument("--converse", type=int, metavar="N")
    parser.add_argument("--manifest", metavar="FILE")
    parser.add_argument("--together", type=int, default=1, metavar="M")
    parser.add_argument("--rates", default="24000,16000,8000")
    parser.add_argument("--noise", type=float)
    parser.add_argument("--server", default="", help="options of the server, for --converse")
    options = parser.parse_args()
    if options.converse:
        with Server(*options.server.split()) as s:
            cpu = cpu_seconds(s)
            converse(s, options.manifest, options.converse, options.together,
                     [int(r) for r in options.rates.split(",")], options.noise)
            print(f"    CPU time of the server: {cpu_seconds(s) - cpu:.1f} s")
        return
    audio = read(os.environ["SPEECH"])
    if options.endure:
        data = audio[audio.index(b"data") + 8:]
        with Server("--queue", "32") as s:
            clips = [wav_file(data[at:at + 32000]) for at in range(0, len(data) - 32000, 32000)]
            spoken = next(c for c in clips if json.loads(s.text(c))["text"])
            endure(s, spoken, options.endure, options.minutes)
        return
    clip = wav_file(audio[audio.index(b"data") + 8:][:SECONDS * 32000])
    if options.silent:
        compare_silence(clip, options.silent, options.rounds)
        return
    results = [measure(n, clip, options) for n in (1, 2)]
    for result in results if options.json else ():
        print(json.dumps(result))
    if not options.json:
        print(f"| sessions | {' | '.join(str(r['sessions']) for r in results)} |\n| --- |"
              + " --- |" * len(results))
        for key, name in (("first_delta_ms", "first delta, sent at once, ms"),
                          ("first_delta_paced_ms", "first delta, sent within 1 s, ms"),
                          ("whole_answer_ms", "whole answer, ms"),
                          ("clients1", "1 client, times real time"),
                          ("clients8", "8 clients, times real time"), ("ratio", "8 beside 1"),
                          ("rss_before_mb", "resident before, MB"),
                          ("rss_after_mb", "resident after, MB"),
                          ("rss_peak_mb", "at the highest, MB"),
                          ("silent_s", "request behind 200 silent connections, s")):
            print(f"| {name} | {' | '.join(str(r[key]) for r in results)} |")


if __name__ == "__main__":
    main()
