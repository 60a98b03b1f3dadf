"""Starts build/server and talks to it over loopback: for tests/api/server_tests.py."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid


class Server:
    """A server on a port of its own; with a block, it is ended behind it."""

    def __init__(self, *options, model=None, log=None):
        build = os.environ["WNPU_BUILD"]
        self.log = open(log or os.devnull, "w+")
        self.process = subprocess.Popen(
            [f"{build}/server", "--model", model or os.environ["MODEL"], "--listen",
             "127.0.0.1:0", *options], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.port = None
        self.ports = {}
        for line in self.process.stderr:
            self.log.write(line)
            found = re.match(r"server: (\w+) on \S*:(\d+)$", line)
            if found:
                self.ports[found[1]] = int(found[2])
            if found and found[1] == "listening":
                self.port = int(found[2])
                break
        assert self.port, f"the server does not start: {self.process.wait()}"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if unused[0] else signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.process.stderr.close()
        assert unused[0] or status == 0, f"the server ended with status {status}"

    def connect(self, port=None):
        s = socket.create_connection(("127.0.0.1", port or self.port), timeout=60)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def get(self, path, headers=None, method="GET"):
        return self.answer(method, path, None, headers or {})

    def answer(self, method, path, body, headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, body, headers)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), data

    def post(self, path, audio=None, fields=(), headers=None, name="file", filename="a.wav"):
        body, kind = form(fields, audio, name, filename)
        return self.answer("POST", path, body, {"Content-Type": kind, **(headers or {})})

    def text(self, audio, fields=(), path="/v1/audio/transcriptions", **more):
        status, _, data = self.post(path, audio, fields, **more)
        assert status == 200, (status, data)
        return data.decode()

    def health(self):
        return json.loads(self.get("/health")[2])

    def metric(self, name):
        text = self.get("/metrics")[2].decode()
        return float(re.search(rf"^wnpu_{re.escape(name)} (\S+)$", text, re.M)[1])

    def memory_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def form(fields, audio=None, name="file", filename="a.wav"):
    """A multipart body and its Content-Type."""
    boundary = "----" + uuid.uuid4().hex
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
             for k, v in fields]
    if audio is not None:
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; '
                     f'filename="{filename}"\r\nContent-Type: application/octet-stream\r\n\r\n'
                     .encode() + audio + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), \
        f"multipart/form-data; boundary={boundary}"


def request(path, audio, fields=(), name="file"):
    """The bytes of a whole request."""
    body, kind = form(fields, audio, name)
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def read(path):
    with open(path, "rb") as file:
        return file.read()


def wait_for(condition, seconds):
    """Seconds until the condition holds, or None."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if condition():
            return time.monotonic() - begin
        time.sleep(0.005)
    return None
