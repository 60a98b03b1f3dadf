"""A server with the page of examples/server and canned answers, for tests of the page without the
work of a model: a job tells as many segments as the test permits."""
import http.server
import json
import os
import re
import threading
import urllib.parse

PAGE = os.path.join(os.path.dirname(__file__), "../../examples/server/server.html")
NAMES = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima".split()


def sentences(hours, seconds=4.0):
    """Segments for so many hours: each a sentence with a word every 0.4 s, of which some are
    doubtful. A pause is between every tenth and the one behind it."""
    segments = []
    for i in range(int(hours * 3600 / seconds)):
        begin = i * seconds
        words = [NAMES[(i * 7 + k * (i % 5 + 1)) % len(NAMES)] for k in range(int(seconds / 0.4) - 3)]
        words = [f" {w}" for w in [words[0].capitalize(), *words[1:-1], f"{words[-1]}{i}."]]
        segments.append({
            "start": begin, "end": begin + len(words) * 0.4, "text": "".join(words),
            "words": [{"word": w, "start": round(begin + k * 0.4, 3),
                       "end": round(begin + k * 0.4 + 0.4, 3),
                       "probability": 0.2 if (i + k) % 23 == 0 else 0.9}
                      for k, w in enumerate(words)]})
    return segments


class Canned:
    """given: how many segments jobs tell so far; status: of jobs; jobs: the forms that were sent,
    by id; held: uploads are not answered before it is unset; error: status of uploads."""

    def __init__(self, segments, duration=None, most=2000):
        canned = self
        self.segments, self.given, self.status = segments, 0, "running"
        self.duration = duration or (segments[-1]["end"] if segments else 0)
        self.jobs, self.deleted, self.polls, self.error = {}, [], 0, 0
        self.warning = ""
        self.go = threading.Event()
        self.go.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, data, kind="application/json"):
                body = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if kind.startswith("text/html"):
                    self.send_header(
                        "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; "
                        "script-src 'unsafe-inline' blob:; connect-src 'self' ws: wss:; media-src "
                        "blob:; img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'")
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                path = urllib.parse.urlsplit(self.path)
                if path.path == "/":
                    with open(PAGE, "rb") as file:
                        self.send(200, file.read(), "text/html; charset=utf-8")
                elif path.path == "/health":
                    self.send(200, {"status": "ok", "max_mb": most, "max_minutes": 600})
                elif path.path == "/v1/models":
                    self.send(200, {"data": [{"id": name} for name in
                                             ("base", "tiny", "whisper-1")]})
                elif path.path == "/v1/languages":
                    self.send(200, {"en": "english", "de": "german", "ja": "japanese"})
                elif path.path.startswith("/v1/jobs/") and path.path[9:] in canned.jobs:
                    canned.polls += 1
                    after = int(urllib.parse.parse_qs(path.query)["after"][0])
                    upto = min(canned.given, after + 2000)
                    end = canned.status == "completed"
                    self.send(200, {"id": path.path[9:], "status": canned.status,
                                    "progress": canned.given / max(1, len(canned.segments)),
                                    "segments": canned.segments[after:upto], "next": upto,
                                    "language": "english",
                                    **({"duration": canned.duration} if end else {}),
                                    **({"warning": canned.warning} if canned.warning else {})})
                else:
                    self.send(404, {"error": {"message": "there is no such job, or not any more"}})

            def do_DELETE(self):
                canned.deleted.append(self.path.rsplit("/", 1)[1])
                canned.jobs.pop(canned.deleted[-1], None)
                self.send_response(204)
                self.end_headers()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                canned.go.wait(60)
                if canned.error:
                    self.send(canned.error, {"error": {"message": "there are too many jobs"}})
                    return
                name = f"job_{len(canned.jobs) + len(canned.deleted)}"
                fields = re.findall(rb'name="([^"]+)"\r\n\r\n([^\r]*)\r\n', body)
                canned.jobs[name] = [(k.decode(), v.decode()) for k, v in fields] + \
                    [("path", self.path)]
                self.send(202, {"id": name, "status": "queued", "progress": 0})

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def end(self):
        """All is told."""
        self.given, self.status = len(self.segments), "completed"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
