#!/usr/bin/env python3
"""Tests of examples/fleet over loopback: usage: fleet_tests.py NAME. See test_fleet.sh, which sets
WNPU_BUILD, TOY (a model without meaning, but fast), T (a directory), HAPROXY (its program) and
PYTHON (one that has Dask)."""
import array
import csv
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from server import PATIENCE, Server, WebSocket, form, read, wait_for, wav_file  # noqa: E402
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


# ---- an archive on Dask ----

def archive(*arguments, module=None, **more):
    """examples/fleet/archive.py, as somebody who may not read everything. module: another wnpu."""
    paths = [module] if module else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOME": T, "TMPDIR": T,
                   "PYTHONDONTWRITEBYTECODE": "1"}
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    return subprocess.Popen([*nobody, os.environ["PYTHON"], "examples/fleet/archive.py", *arguments],
                            env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                            **more)


def ended(process, status):
    said = process.communicate(timeout=600)[1]
    same((process.returncode, said if process.returncode != status else ""), (status, ""))
    return said


def rows(out):
    """The report, as far as it was written."""
    try:
        with open(f"{out}/report.csv", encoding="utf-8", errors="surrogateescape",
                  newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


def workers(pid):
    """The processes of workers that a cluster on this machine has started."""
    found = []
    for child in subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True,
                                text=True, check=False).stdout.splitlines():
        if "spawn_main" in child:
            found.append(int(child.split()[0]))
    return found


def folder(name):
    path = f"{T}/{name}"
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o777)
    return path


def recordings(path, n, seconds):
    for i in range(n):
        with open(f"{path}/r{i:02}.wav", "wb") as file:
            file.write(wav_file(random.Random(i).randbytes(seconds * 32000)))


def archive_killed():
    """40 recordings on two workers, of which one is killed in the middle; one recording is broken,
    and one is in a directory that may not be read."""
    source, out, alone = folder("archive"), folder("archive-out"), folder("alone")
    os.makedirs(f"{source}/secret", exist_ok=True)
    recordings(source, 39, 6)
    with open(f"{source}/r07.wav", "r+b") as file:
        file.write(b"RIFF\0\0\0\0WAVEjunk")
    shutil.copyfile(f"{source}/r00.wav", f"{source}/secret/r39.wav")
    os.chmod(f"{source}/secret", 0)
    options = ["--model", TOY, "--out", out, "--format", "json,srt", "--param", "vad=0"]
    process = archive(*options, "--workers", "2", source)
    assert wait_for(lambda: len(rows(out)) >= 8, 60) is not None, process.communicate()
    assert len(rows(out)) < 30, "it is too fast to be disturbed"
    victims = workers(process.pid)
    same(len(victims), 2)
    os.kill(victims[0], signal.SIGKILL)
    with open(f"{out}/r06.done.999999.part", "wb"):
        pass  # as if it had been writing
    said = ended(process, 3)
    lines = [line for line in said.splitlines() if line.startswith(f"archive: {source}/")]
    same(sorted(re.sub(r": .*", "", line.removeprefix(f"archive: {source}/")) for line in lines
                if "no text" not in line), ["r07.wav", "secret"])
    assert "Permission denied" in said, said
    states = {row["input"]: row["state"] for row in rows(out)}
    same(len(states), 40)
    same(sum(state != "failed" for state in states.values()), 38)
    same(len({row["worker"] for row in rows(out) if row["worker"]}) > 1, True)
    same([name for name in os.listdir(out) if ".part" in name], [])
    files = [f"{source}/r{i:02}.wav" for i in range(39) if i != 7]
    done = subprocess.run([f"{os.environ['WNPU_BUILD']}/transcribe", "-q", "-m", TOY, "--vad", "off", "-t",
                           "1", "-f", "json,srt", "-o", f"{alone}/", *files], check=False)
    assert done.returncode in (0, 6), done
    for i in range(39):
        for name in ("json", "srt"):
            if i != 7:
                same((i, read(f"{out}/r{i:02}.{name}") == read(f"{alone}/r{i:02}.{name}")), (i, True))
    again(options, source, out, states)


def again(options, source, out, states):
    """A second start has nothing to do but what failed; a change makes it do that again."""
    begin = time.monotonic()
    os.unlink(f"{source}/r07.wav")
    os.chmod(f"{source}/secret", 0o755)
    os.unlink(f"{source}/secret/r39.wav")
    ended(archive(*options, source), 0)
    took = time.monotonic() - begin
    assert took < 2 * PATIENCE, took
    same({row["state"] for row in rows(out)}, {"skipped"})
    print(f"a second start took {took:.1f} s")
    sys.path[:0] = ["examples/fleet", "examples"]
    import archive as program  # pylint: disable=import-outside-toplevel

    def finished(*more):
        o = program.parsed([*options, *more, f"{source}/r00.wav", f"{source}/r01.wav"])
        program.check(o)
        return [bool(program.is_finished(job, o.formats)) for job in program.jobs_of(o, [])]
    same(finished(), [True, True])
    os.utime(f"{source}/r00.wav", ns=(1, 1))
    same(finished(), [False, True])
    for change in (["--param", "vad=1"], ["--param", "beam=2"], ["--format", "json,srt,vtt"],
                   ["--by-content"], ["--model", "README.md"]):
        same((change, finished(*change)), (change, [False, False]))
    os.unlink(f"{out}/r01.srt")
    same(finished(), [False, False])
    ended(archive(*options, f"{source}/r00.wav"), 6 if "incomplete" in states.values() else 0)
    same(finished(), [True, False])


def archive_faults():
    """Each fault is a line, and the others go on: a recording that kills its workers, a model that
    is none, a full disk, a missing file. Inputs over HTTP are read. A long recording is done in
    parts; one that cannot be joined, as a whole."""
    source, out, fake, there = (folder(name) for name in ("faults", "faults-out", "fake", "web"))
    recordings(source, 3, 1)
    with open(f"{there}/w.wav", "wb") as file:
        file.write(wav_file(random.Random(0).randbytes(32000)))
    shutil.copyfile(f"{source}/r00.wav", os.fsencode(source) + b"/a, \xff.wav")  # names are bytes
    for name, pauses in (("long", (6, 1.2, 7, 1)), ("refused", (6, 1))):
        with open(f"{source}/{name}.wav", "wb") as file:
            file.write(conversation(pauses))
    with open("examples/wnpu.py", encoding="utf-8") as file:
        text = file.read()
    with open(f"{fake}/wnpu.py", "w", encoding="utf-8") as file:
        file.write(text + "\n\nclass Session(Session):\n"
                   "    def transcribe(self, source, **more):\n"
                   "        if str(source).endswith('r01.wav'):\n"
                   "            os.kill(os.getpid(), 9)\n"
                   "        yield from super().transcribe(source, **more)\n"
                   "    def part(self, source, begin, end, **more):\n"
                   "        if str(source).endswith('refused.wav') and begin > 0:\n"
                   "            raise Error(STATE, 'one run would not go on so')\n"
                   "        return super().part(source, begin, end, **more)\n")
    port = free_ports(1)[0]
    web = subprocess.Popen([os.environ["PYTHON"], "-m", "http.server", "--bind", "127.0.0.1", str(port)],
                           cwd=there, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 20) is not None
        said = ended(archive("--model", TOY, "--out", out, "--workers", "2", "--part", "4", "--param",
                             "language=en", "--param", "max_tokens=16", source,
                             f"{source}/none.wav",
                             f"http://127.0.0.1:{port}/w.wav", f"http://127.0.0.1:{port}/missing.wav",
                             module=fake), 3)
    finally:
        web.kill()
        web.wait()
    assert "r01.wav: 3 workers died with it" in said, said
    assert "none.wav: No such file" in said, said
    found = {os.path.basename(row["input"]): row for row in rows(out)}
    same(sorted(name for name, row in found.items() if row["state"] == "failed"),
         ["missing.wav", "none.wav", "r01.wav"])
    same((len(found), found["a, \udcff.wav"]["state"]), (9, "done"))
    same((found["long.wav"]["parts"], found["refused.wav"]["parts"]), ("3", "1"))
    for name in ("long", "refused"):
        done = subprocess.run([f"{os.environ['WNPU_BUILD']}/transcribe", "-q", "-m", TOY, "-t", "1", "-l",
                               "en", "--max-tokens", "16", "-f", "json",
                               f"{source}/{name}.wav"],
                              capture_output=True, check=False)
        same((name, read(f"{out}/{name}.json") == done.stdout), (name, True))
    same(read(f"{out}/w.json"), read(f"{out}/r00.json"))
    sys.path[:0] = ["examples/fleet", "examples"]
    import archive as program  # pylint: disable=import-outside-toplevel
    for arguments, why in ((("--out", "/dev/full/x"), ""),
                           (("--out", out, "--format", "doc"), "there is no format doc")):
        assert why in ended(archive("--model", TOY, *arguments, source), 1)
    said = ended(archive("--model", "tests/README.md", "--out", out, "--workers", "1", source), 3)
    assert "gets no recordings: " in said and "tests/README.md cannot be opened: " in said, said


def archive_shared():
    """Two runs on one scheduler, whose workers are one with two threads and one without the library:
    each run has its own results. A worker that is stopped ends its recording without a crash."""
    source, first, second = folder("shared"), folder("shared-a"), folder("shared-b")
    recordings(source, 12, 5)
    address, logs = f"tcp://127.0.0.1:{free_ports(1)[0]}", open(f"{T}/dask.log", "w", encoding="utf-8")

    def dask(name, *arguments, **env):
        return subprocess.Popen([os.environ["PYTHON"], "-m", f"distributed.cli.dask_{name}",
                                 "--no-dashboard", *arguments], stdout=logs, stderr=logs,
                                cwd=T, env={**os.environ, **env})

    def run(out, name, *more):
        return archive("--scheduler", address, "--model", TOY, "--out", out, "--format", name,
                       "--param", "vad=0", *more, source)
    scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", address.split(":")[2])
    helpers = [scheduler]
    try:
        early = run(first, "json")
        assert "waiting for workers" in early.stderr.readline()
        helpers += [dask("worker", address, "--no-nanny", "--nthreads", "2"),
                    dask("worker", address, "--no-nanny", WNPU_LIBRARY="/nowhere/lib.so")]
        late = run(second, "srt", "--param", "max_tokens=2")
        said = [process.communicate(timeout=600)[1] for process in (early, late)]
        for out, text in zip((first, second), said):
            same(sum(row["state"] in ("done", "incomplete") for row in rows(out)), 12)
            assert "failed" not in text.replace(" 0 failed", ""), text
        same(sorted(os.listdir(first)), sorted([f"r{i:02}.{kind}" for i in range(12)
                                                for kind in ("json", "done")] + ["report.csv"]))
        assert wait_for(lambda: read(f"{T}/dask.log").count(b"Register worker") == 2, 60) is not None
        last = run(folder("shared-c"), "json")
        assert wait_for(lambda: len(rows(f"{T}/shared-c")) > 1, 60) is not None
        helpers[1].terminate()
        assert helpers[1].wait(60) >= 0, helpers[1].returncode
        last.send_signal(signal.SIGINT)
        text = last.communicate(timeout=60)[1]
        assert "gets no recordings" in text and "/nowhere/lib.so" in text, text
    finally:
        for process in helpers:
            process.kill()
            process.wait()
        logs.close()


# ---- a recording in parts ----

def silence(seconds, seed):
    r = random.Random(seed)
    return array.array("h", [byte % 7 - 3 for byte in r.randbytes(int(seconds * 16000))])


def conversation(pauses, channels=1):
    """Parts of the demo's sentence, with pauses behind them; in another order in channel 1."""
    speech = array.array("h", read("examples/jfk.wav")[44:])
    whole = array.array("h")
    for i, pause in enumerate(pauses):
        whole += speech[i % 3 * 24000:i % 3 * 24000 + 72000] + silence(pause, i)
    if channels == 2:
        half = len(whole) // 2
        mixed = array.array("h", bytes(4 * len(whole)))
        mixed[0::2], mixed[1::2] = whole, whole[half:] + whole[:half]
        whole = mixed
    return wav_file(whole.tobytes(), channels)


def refused(wnpu, status, call):
    try:
        call()
    except wnpu.Error as error:
        same(error.args[0], status)
        return error.args[1]
    raise AssertionError("it was not refused")


def parts():
    """Parts joined are, in every format, the bytes of one run; what cannot be is refused."""
    sys.path[:0] = ["examples"]
    import wnpu  # pylint: disable=import-outside-toplevel
    english = {"language": "en", "words": 1}
    with wnpu.Session(os.environ["MODEL"], threads=1) as s:
        for pauses, least in (((0.5, 6, 1.2, 9, 31, 5.5, 3.2), 3), ((0.3, 0.9), 0)):
            wav = conversation(pauses)
            for _ in s.transcribe(wav, **english):
                pass
            whole = {name: s.write(name) for name in ("json", "srt", "verbose_json", "tsv")}
            cuts = [0, *s.cuts(wav, **english), 0]
            assert len(cuts) - 2 >= least, cuts
            blocks = [s.part(wav, a, b, **english) for a, b in reversed(list(zip(cuts, cuts[1:])))]
            s.join(blocks[::-1], **english)
            same({name: s.write(name) == text for name, text in whole.items()},
                 dict.fromkeys(whole, True))
            if least:
                first = cuts, blocks[::-1], wav
        cuts, blocks, wav = first
        part_errors(wnpu, s, cuts, blocks, wav)
        speakers(s, english)


def joins():
    """Speech that goes on for more than 30 s: its windows end where the text does, so that some end in
    other pauses than those that the detector alone would choose, until two are farther apart."""
    sys.path[:0] = ["examples"]
    import wnpu  # pylint: disable=import-outside-toplevel
    speech, whole = array.array("h", read("examples/jfk.wav")[44:]), array.array("h")
    params = {"words": 1, "language": "en"}
    for at, n, pause in ((1.1, 33, 1.7), *[(0.5, 0.7, 1.7)] * 4, (2, 7, 3), (0.5, 4, 3.5), (0, 3, 1)):
        at = int(at * 16000)
        whole += (speech[at:] + 3 * speech)[:int(n * 16000)] + silence(pause, 1)
    wav = wav_file(whole.tobytes())
    with wnpu.Session(os.environ["MODEL"], threads=1) as s:
        for _ in s.transcribe(wav, **params):
            pass
        text, cuts = s.write("json"), s.cuts(wav, **params)
        assert len(cuts) > 1 and cuts[0] > 45000, cuts
        ends = [0, *cuts, 0]
        s.join([s.part(wav, a, b, **params) for a, b in zip(ends, ends[1:])], **params)
        same(s.write("json") == text, True)


def part_errors(wnpu, s, cuts, blocks, wav):
    english = {"language": "en", "words": 1}
    for wrong in (blocks[1:], blocks[:-1], blocks[:1] + blocks[2:], blocks[::-1]):
        refused(wnpu, wnpu.ARGUMENT, lambda wrong=wrong: s.join(wrong, **english))
    refused(wnpu, wnpu.ARGUMENT, lambda: s.join(blocks, language="de", words=1))
    refused(wnpu, wnpu.ARGUMENT, lambda: s.join([blocks[0][:-1], *blocks[1:]], **english))
    refused(wnpu, wnpu.ARGUMENT, lambda: s.part(wav, cuts[1] + 20, 0, **english))
    refused(wnpu, wnpu.ARGUMENT, lambda: s.part(wav, 10 ** 9, 0, **english))
    assert "as one" in refused(wnpu, wnpu.STATE, lambda: s.part(wav, 0, 4000, **english))
    for params, why in (({}, "language"), ({"condition_on_previous": 1}, "condition_on_previous"),
                        ({"vad": 0}, "vad"), ({"pause_ms": 700}, "pause"), ({"append": 1}, "append"),
                        ({"voices": -1}, "voices"), ({"commit_step_ms": 500}, "commit")):
        given = {"language": "en", **params} if params else {}
        said = refused(wnpu, wnpu.ARGUMENT, lambda given=given: s.part(wav, 0, cuts[1], **given))
        assert why in said, (params, said)


def speakers(s, params):
    """Channels that are speakers: each in its own parts, and then as append has them."""
    two = conversation((6, 1.5, 7), 2)
    with open(f"{T}/two.wav", "wb") as file:
        file.write(two)
    done = subprocess.run([f"{os.environ['WNPU_BUILD']}/transcribe", "-q", "-t", "1", "-m",
                           os.environ["MODEL"], "-l", "en", "--speakers", "channels", "-f",
                           "json", f"{T}/two.wav"], capture_output=True, check=False)
    assert done.returncode in (0, 6), done
    blocks, n = [], 0
    for channel in (0, 1):
        cuts = [0, *s.cuts(two, channel=channel, **params), 0]
        n += len(cuts) - 2
        blocks.append([s.part(two, a, b, channel=channel, speaker=channel + 1, **params)
                       for a, b in zip(cuts, cuts[1:])])
    assert n > 0, "nothing was divided"
    for channel in (0, 1):
        s.join(blocks[channel], append=channel, speaker=channel + 1, **params)
    same(s.write("json") == done.stdout, True)


globals()[sys.argv[1]]()
