"""Conversations spoken in real time over /v1/realtime: for bench_server.py --converse.

A conversation is CLIPS recordings with gaps of 0.3 to 2 s, sent in pieces of 50 ms. What the server
should hear, and when each word ends, is what it hears of each recording as a file. All choices are
made by a generator with a fixed seed, so two servers hear the same."""
import array
import base64
import difflib
import json
import os
import random
import re
import statistics
import subprocess
import threading
import time

from server import WebSocket

CLIPS = 5
PIECE_MS = 50
EVENTS = "conversation.item.input_audio_transcription."
RATE = 24000    # conversations are made at
SETTLE_S = 2.0  # of silence at the end, which ends the last turn


def plain(word):
    return re.sub(r"[^a-z0-9']", "", word.lower())


def pcm(path):
    """A recording as samples of 16 bits at RATE."""
    return subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-i", path, "-ac", "1", "-ar",
                           str(RATE), "-f", "s16le", "-"], check=True, capture_output=True).stdout


def with_noise(samples, r, db):
    """Adds white noise of so many dBFS."""
    x, level = array.array("h", samples), 32768 * 10 ** (db / 20)
    return array.array("h", (max(-32768, min(32767, v + round(r.gauss(0, level))))
                             for v in x)).tobytes()


def encode(samples, rate):
    """Samples at RATE as a client sends them: at 8000 Hz mu-law of G.711, otherwise 16 bits."""
    kind = "mulaw" if rate == 8000 else "s16le"
    return subprocess.run(["ffmpeg", "-v", "error", "-f", "s16le", "-ar", str(RATE), "-ac", "1",
                           "-i", "-", "-ar", str(rate), "-f", kind, "-"], check=True,
                          capture_output=True, input=samples).stdout


def clips_of(manifest):
    """Recordings of 2.5 to 10 s, with their transcripts."""
    base = os.path.dirname(manifest)
    with open(manifest, encoding="utf-8") as file:
        names = file.readline().rstrip("\n").split("\t")
        rows = [dict(zip(names, line.rstrip("\n").split("\t"))) for line in file]
    return [(os.path.join(base, r["path"]), r["transcript"]) for r in rows
            if r["set"] == "short" and 2.5 <= float(r["seconds"]) <= 10]


class Conversation:
    """What is said, and when: seconds from its beginning."""

    def __init__(self, server, clips, number, rate, turns, noise, cache):
        r = random.Random(number)
        self.rate, self.turns = rate, turns
        samples = bytes(int(0.5 * RATE) * 2)
        self.words, self.transcript, self.ends = [], [], []
        for path, transcript in r.sample(clips, CLIPS):
            if path not in cache:
                with open(path, "rb") as file:
                    got = json.loads(server.text(file.read(), [
                        ("language", "en"), ("response_format", "verbose_json"),
                        ("timestamp_granularities[]", "word,segment")]))
                cache[path] = [(plain(w["word"]), w["end"]) for w in got["words"]]
            at = len(samples) / 2 / RATE
            self.words += [(w, at + end) for w, end in cache[path] if w]
            self.transcript += [w for w in map(plain, transcript.split()) if w]
            samples += pcm(path)
            self.ends.append((at + max((e for _, e in cache[path]), default=0),
                              len(samples) / 2 / RATE))
            samples += bytes(int(r.uniform(0.3, 2.0) * RATE) * 2)
        samples += bytes(int(SETTLE_S * RATE) * 2)
        if noise is not None:
            samples = with_noise(samples, r, noise)
        self.samples = encode(samples, self.rate)
        self.received = []

    def settings(self):
        return {"type": "transcription", "audio": {"input": {
            "format": ({"type": "audio/pcmu"} if self.rate == 8000
                       else {"type": "audio/pcm", "rate": self.rate}),
            "transcription": {"model": "whisper-1", "language": "en"},
            "turn_detection": {"type": "server_vad"} if self.turns else None}}}

    def listen(self, w):
        try:
            while (event := w.receive()) is not None:
                self.received.append((time.monotonic(), event))
        except (EOFError, OSError):
            pass

    def speak(self, server):
        w = WebSocket(server)
        w.until("session.created")
        w.send("session.update", session=self.settings())
        w.until("session.updated")
        reader = threading.Thread(target=self.listen, args=(w,))
        reader.start()
        second = self.rate * (1 if self.rate == 8000 else 2)
        size = second * PIECE_MS // 1000
        # A client without turns commits when a recording is over.
        commits = [] if self.turns else [end for _, end in self.ends]
        self.commits = []
        self.begin = time.monotonic()
        for i, at in enumerate(range(0, len(self.samples), size)):
            said = at / second
            time.sleep(max(0, self.begin + said + PIECE_MS / 1000 - time.monotonic()))
            w.append(self.samples[at:at + size])
            if commits and said + PIECE_MS / 1000 >= commits[0]:
                commits.pop(0)
                self.commits.append(time.monotonic() - self.begin)
                w.send("input_audio_buffer.commit")
        time.sleep(SETTLE_S)
        w.frame(b"\x03\xe8", 8)
        reader.join(timeout=60)
        w.close()

    def heard(self):
        """Words of deltas with the times of their arrival, the items' texts by deltas and as
        completed, and when turns were stopped and completed."""
        words, deltas, completed, stopped, final = [], {}, {}, {}, {}
        for when, e in self.received:
            when -= self.begin
            if e["type"] == EVENTS + "delta":
                text = deltas.get(e["item_id"], "") + e["delta"]
                deltas[e["item_id"]] = text
                n = len(text.split())
                have = sum(1 for name, _, _ in words if name == e["item_id"])
                words += [(e["item_id"], w, when) for w in text.split()[have:n]]
            elif e["type"] == EVENTS + "completed":
                completed[e["item_id"]] = e["transcript"]
                final[e["item_id"]] = when
            elif e["type"] in ("input_audio_buffer.speech_stopped", "input_audio_buffer.committed"):
                stopped.setdefault(e["item_id"], when)
        return words, deltas, completed, stopped, final

    def measure(self):
        words, deltas, completed, stopped, final = self.heard()
        got = [w for w in ((plain(w), when) for _, w, when in words) if w[0]]
        match = difflib.SequenceMatcher(None, [w for w, _ in self.words], [w for w, _ in got],
                                        autojunk=False)
        delays, lost, first = [], 0, []
        for kind, a0, a1, b0, b1 in match.get_opcodes():
            if kind == "equal":
                delays += [(got[b0 + i][1] - self.words[a0 + i][1]) for i in range(a1 - a0)]
            elif kind in ("delete", "replace"):
                lost += max(0, (a1 - a0) - (b1 - b0))
        seen = set()
        for item, w, when in words:
            if item not in seen:
                seen.add(item)
                begun = [end for word, end in self.words if word == plain(w) and end <= when + 0.3]
                if begun:
                    first.append(when - begun[-1])
        ends = []
        for item, when in stopped.items():
            before = [end for end, _ in self.ends if end <= when]
            if self.turns and before:
                ends.append(when - before[-1])
        text = [w for t in completed.values() for w in map(plain, t.split()) if w]
        return {"words": len(self.words), "lost": lost, "delays": delays, "first": first,
                "stop": ends, "final": [final[i] - stopped[i] for i in final if i in stopped],
                "contradictions": sum(deltas.get(i, "") != t for i, t in completed.items()),
                "early": sum(1 for i, t in completed.items() if any(
                    e["type"] == EVENTS + "delta" and e["item_id"] == i and
                    when - self.begin < stopped.get(i, 0) for when, e in self.received)),
                "turns": len(completed), "errors": errors(self.transcript, text),
                "spoken": len(self.transcript)}


def errors(reference, text):
    """Words to insert, delete and replace."""
    row = list(range(len(text) + 1))
    for i, a in enumerate(reference):
        last, row[0] = row[0], i + 1
        for j, b in enumerate(text):
            last, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, last + (a != b))
    return row[-1]


def spread(values):
    if not values:
        return "none"
    values = sorted(1e3 * v for v in values)
    return (f"{statistics.mean(values):.0f}, {statistics.median(values):.0f}, "
            f"{values[min(len(values) - 1, len(values) * 95 // 100)]:.0f}, {values[-1]:.0f}")


def converse(server, manifest, number, together, rates, noise=None):
    """Conversations, so many at a time; the rates take turns, and server_vad and commits do."""
    clips, cache, all_of = clips_of(manifest), {}, {True: [], False: []}
    made = [Conversation(server, clips, i, rates[i % len(rates)], i // len(rates) % 2 == 0, noise,
                         cache) for i in range(number)]
    for at in range(0, number, together):
        threads = [threading.Thread(target=c.speak, args=(server,)) for c in made[at:at + together]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for c in made:
        all_of[c.turns].append(c.measure())
    for turns, results in all_of.items():
        if results:
            total = {k: sum((r[k] for r in results), [] if isinstance(results[0][k], list) else 0)
                     for k in results[0]}
            print(f"{'server_vad' if turns else 'commit'}, {len(results)} conversations, "
                  f"{together} at a time: {total['turns']} items, {total['words']} words, {total['lost']} "
                  f"lost; {total['errors']} errors of {total['spoken']}; deltas before the end "
                  f"in {total['early']}, contradicted in {total['contradictions']}")
            for key, what in (("first", "first word of an item to delta"),
                              ("delays", "word to delta"), ("stop", "end of speech to stopped"),
                              ("final", "stopped or commit to completed")):
                print(f"    {what}: {spread(total[key])} ms (mean, median, 95th percentile, most)")
