"""Starts build/server and talks to it over loopback: for tests/api/server_tests.py."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid


class Server:
    """A server on a port of its own; with a block, it is ended behind it."""

    def __init__(self, *options, model=None, log=None, context=None):
        self.context = context  # of ssl: for a server with a certificate
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
        self.lines = []  # what it tells later, so that it does not wait for a reader
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if unused[0] else signal.SIGTERM)
        if unused[0]:
            self.process.wait(timeout=300)
        else:
            self.ends()
        self.reader.join()
        self.process.stderr.close()

    def ends(self):
        """Waits until it has ended, without complaint."""
        status = self.process.wait(timeout=300)
        self.reader.join()
        assert status == 0, f"the server ended with status {status}: {''.join(self.lines[-60:])}"

    def connect(self, port=None, plain=False):
        s = socket.create_connection(("127.0.0.1", port or self.port), timeout=300)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is None or plain:
            return s
        return self.context.wrap_socket(s, server_hostname="127.0.0.1")

    def get(self, path, headers=None, method="GET"):
        return self.answer(method, path, None, headers or {})

    def answer(self, method, path, body, headers):
        c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=600, context=self.context) \
            if self.context else http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
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


class WebSocket:
    """A client of /v1/realtime (RFC 6455), without extensions."""

    def __init__(self, server, headers=(), path="/v1/realtime?intent=transcription", host=None):
        self.socket = server.connect()
        self.bytes = b""
        key = base64.b64encode(os.urandom(16)).decode()
        host = host or f"127.0.0.1:{server.port}"
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
                             "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                             + "".join(f"{h}\r\n" for h in headers) + "\r\n").encode())
        while b"\r\n\r\n" not in self.bytes:
            self._more()
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        self.head = head.decode()
        self.status = int(self.head.split()[1])
        self.code = None  # of the frame that closes the connection

    def refusal(self):
        """The headers and the body of an answer other than 101."""
        headers = dict(line.lower().split(": ", 1) for line in self.head.split("\r\n")[1:])
        while len(self.bytes) < int(headers["content-length"]):
            self._more()
        return headers, json.loads(self.bytes)

    def _more(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the server hung up")
        self.bytes += data

    def frame(self, data, opcode=1, last=True):
        mask = os.urandom(4)
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 \
            else b"\xff" + struct.pack(">Q", n)
        mask_all = (mask * (n // 4 + 1))[:n]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(mask_all, "big")).to_bytes(n, "big")
        self.socket.sendall(bytes([opcode | (0x80 if last else 0)]) + size + mask + masked)

    def send(self, kind, **members):
        self.frame(json.dumps({"type": kind, **members}).encode())

    def append(self, pcm):
        self.send("input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    def receive(self):
        """The next event, or None when the connection is closed."""
        while True:
            while len(self.bytes) < 2:
                self._more()
            n, at = self.bytes[1] & 127, 2
            if n >= 126:
                at = 4 if n == 126 else 10
                while len(self.bytes) < at:
                    self._more()
                n = int.from_bytes(self.bytes[2:at], "big")
            while len(self.bytes) < at + n:
                self._more()
            opcode, data = self.bytes[0] & 15, self.bytes[at:at + n]
            self.bytes = self.bytes[at + n:]
            if opcode == 8:
                self.code = int.from_bytes(data[:2], "big")
                return None
            if opcode == 1:
                return json.loads(data)

    def until(self, kind):
        """Events up to the first of a kind."""
        seen = []
        while True:
            event = self.receive()
            assert event is not None, f"closed before {kind}: {seen}"
            seen.append(event)
            if event["type"] == kind:
                return seen

    def close(self):
        self.socket.close()


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


def wav_file(samples, channels=1):
    """Samples of 16 bits as a WAV file at 16 kHz."""
    return b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + \
        struct.pack("<IHHIIHH", 16, 1, channels, 16000, 32000 * channels, 2 * channels, 16) + \
        b"data" + struct.pack("<I", len(samples)) + samples


def read(path):
    with open(path, "rb") as file:
        return file.read()


def received(connection):
    """Whether a program on this machine has accepted a connection and read what was sent over it."""
    here, there = (f":{at[1]:04X}" for at in (connection.getsockname(), connection.getpeername()))
    done = {}
    with open("/proc/net/tcp", encoding="ascii") as file:
        for row in (line.split() for line in file):
            if row[1].endswith(here) and row[2].endswith(there):
                done["sent"] = row[4].startswith("00000000:")
            if row[1].endswith(there) and row[2].endswith(here):
                done["read"] = row[4].endswith(":00000000") and row[9] != "0"
    return done.get("sent", False) and done.get("read", False)


# Machines may be busy: what is waited for comes late then, and is no failure before it is very late.
PATIENCE = 6


def wait_for(condition, seconds):
    """Seconds until the condition holds, or None after PATIENCE times those given."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds * PATIENCE:
        if condition():
            return time.monotonic() - begin
        time.sleep(0.005)
    return None
