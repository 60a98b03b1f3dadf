#!/usr/bin/env python3
"""Tests of examples/fleet over loopback: usage: fleet_tests.py NAME. See test_fleet.sh, which sets
WNPU_BUILD, TOY (a model without meaning, but fast), T (a directory) and HAPROXY (its program)."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from server import Server, WebSocket, form, wait_for, wav_file  # noqa: E402
import http.client  # noqa: E402

T, TOY = os.environ["T"], os.environ["TOY"]
UPLOADS = int(os.environ.get("TEST_UPLOADS", "1000"))
CLIENTS = 8
TRANSCRIPTIONS = "/v1/audio/transcriptions"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def same(a, b):
    assert a == b, f"{a!r} and {b!r}"


def noise(seconds):
    return wav_file(random.Random(1).randbytes(int(seconds * 32000)))


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Fleet:
    """Two servers behind HAProxy, with examples/fleet/haproxy.cfg on ports of its own."""

    def __init__(self):
        self.port, *self.ports = free_ports(3)
        self.context = None
        with open("examples/fleet/haproxy.cfg", encoding="utf-8") as file:
            text = file.read()
        for old, new in zip((":9004", ":9005", ":9006"), (self.port, *self.ports)):
            assert old in text, old
            text = text.replace(f"bind {old}", f"bind 127.0.0.1:{new}").replace(
                f"127.0.0.1{old}", f"127.0.0.1:{new}")
        self.config = f"{T}/haproxy.cfg"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)
        self.servers = [self.start(0), self.start(1)]
        self.log = open(f"{T}/haproxy.log", "w", encoding="utf-8")
        self.haproxy = subprocess.Popen([os.environ["HAPROXY"], "-f", self.config],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        assert wait_for(lambda: self.is_up(2), 20) is not None, "HAProxy does not start"

    def start(self, i):
        return Server("--sessions", "2", "--queue", "32", "--connections", "100", "--proxy", "127.0.0.1",
                      "--node", "ab"[i], "--verbose", "--listen", f"127.0.0.1:{self.ports[i]}", model=TOY)

    def is_up(self, n):
        """Whether HAProxy has asked n servers for /ready, and answers."""
        try:
            return self.ask("GET", "/ready")[0] == 200 and \
                sum("GET /ready 200" in "".join(s.lines) for s in self.servers) == n
        except OSError:
            return False

    def ask(self, method, path, body=None, headers=None, timeout=600):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, data

    def post(self, audio, fields=(), headers=None):
        body, kind = form(fields, audio)
        return self.ask("POST", TRANSCRIPTIONS, body, {"Content-Type": kind, **(headers or {})})

    def connect(self, port=None, plain=False):
        return socket.create_connection(("127.0.0.1", self.port), timeout=300)

    def restart(self, i):
        old = self.servers[i]
        old.process.send_signal(signal.SIGTERM)
        old.ends()
        old.process.stderr.close()
        self.servers[i] = self.start(i)
        assert wait_for(lambda: "GET /ready 200" in "".join(self.servers[i].lines), 20) is not None
        return old

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.haproxy.terminate()
        self.haproxy.wait(60)
        self.log.close()
        for s in self.servers:
            s.__exit__(*unused)


def upload(fleet, audio, want, wrong, done, ending):
    while not ending.is_set():
        try:
            status, _, data = fleet.post(audio)
            if status != 200 or json.loads(data)["text"] != want:
                wrong.append((status, data))
        except OSError as e:
            wrong.append(repr(e))
        done.append(1)
        time.sleep(0.1)


def say(w):
    """A turn. Returns whether its text came before the end of the connection."""
    try:
        for _ in range(5):
            w.append(bytes(9600))
            time.sleep(0.05)
        w.send("input_audio_buffer.commit")
    except ConnectionError:
        pass  # it was closed behind the turn before, which is to be read yet
    while (event := w.receive()) is not None and event["type"] != COMPLETED:
        pass
    return event is not None


def talk(fleet, wrong, done, codes, ending):
    """Realtime sessions, each of turns that end with a commit; a new one when one was closed."""
    while not ending.is_set():
        w, items = WebSocket(fleet), 0
        try:
            w.until("session.created")
            w.send("session.update", session={"type": "transcription", "audio": {"input": {
                "turn_detection": None}}})
            w.until("session.updated")
            while not ending.is_set() and w.code is None:
                items += say(w)
            codes += [w.code] if w.code else []
        except (OSError, EOFError, AssertionError) as e:
            wrong.append((repr(e), items))
        w.close()
        done.append(items)


def rolling():
    """Each server is restarted twice while eight clients upload: no request fails. Realtime sessions
    are told to connect again."""
    audio = noise(0.5)
    with Fleet() as fleet:
        want = json.loads(fleet.post(audio)[2])["text"]
        wrong, done, said, codes, ending = [], [], [], [], threading.Event()
        threads = [threading.Thread(target=upload, args=(fleet, audio, want, wrong, done, ending))
                   for _ in range(CLIENTS)]
        threads += [threading.Thread(target=talk, args=(fleet, wrong, said, codes, ending))
                    for _ in range(2)]
        begin = time.monotonic()
        for t in threads:
            t.start()
        try:
            for i in (0, 1, 0, 1):
                before = len(done)
                fleet.restart(i)
                assert wait_for(lambda: len(done) > before + CLIENTS or wrong, 20) is not None
            assert wait_for(lambda: len(done) >= UPLOADS or wrong, 600) is not None
        finally:
            ending.set()
            for t in threads:
                t.join()
        print(f"{len(done)} uploads in {time.monotonic() - begin:.0f} s, {sum(said)} turns in "
              f"{len(said)} realtime sessions, closed with {sorted(codes)}")
        same(wrong[:3], [])
        assert codes and set(codes) == {1012}, codes
        assert sum(said) > 0, said


def jobs():
    """The id of a job names its server, which is asked also while it is draining."""
    with Fleet() as fleet:
        ids = [json.loads(fleet.post(noise(1), [("async", "true")])[2])["id"] for _ in range(6)]
        same({i[:6] for i in ids}, {"job_a_", "job_b_"})

        def state(i):
            return json.loads(fleet.ask("GET", f"/v1/jobs/{i}")[2])["status"]
        assert wait_for(lambda: {state(i) for i in ids} == {"completed"}, 30) is not None
        server = fleet.servers[0]
        mine = [i for i in ids if i[4] == "a"]
        server.process.send_signal(signal.SIGTERM)
        assert wait_for(lambda: server.get("/ready")[0] == 503, 5) is not None
        time.sleep(2.5)  # HAProxy has asked, too
        same([state(i) for i in mine], ["completed"] * len(mine))
        server.ends()
        for i in ids:
            status, _, data = fleet.ask("GET", f"/v1/jobs/{i}", timeout=20)
            same((i, status), (i, 404 if i in mine else 200))
            assert i not in mine or "server a" in json.loads(data)["error"]["message"], data
        server.process.stderr.close()
        fleet.servers[0] = fleet.start(0)
        status, _, data = fleet.ask("GET", f"/v1/jobs/{mine[0]}")
        same((status, "no such job" in json.loads(data)["error"]["message"]), (404, True))


def identity():
    """The client's address and the request's id pass through HAProxy."""
    with Fleet() as fleet:
        status, headers, _ = fleet.post(noise(0.5), headers={"X-Request-Id": "mine-7"})
        same((status, headers["x-request-id"]), (200, "mine-7"))
        made = fleet.post(noise(0.5))[1]["x-request-id"]
        assert re.fullmatch("[0-9a-f]{8}-[0-9a-f-]{27}", made), made
        for i in ("mine-7", made):
            assert wait_for(lambda i=i: any(f", {i}\n" in line for s in fleet.servers
                                            for line in s.lines), 10) is not None, i


globals()[sys.argv[1]]()
