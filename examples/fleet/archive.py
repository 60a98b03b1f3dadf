#!/usr/bin/env python3
"""archive.py - transcribes many recordings on many machines, with Dask.

    archive.py --model base.en.wnpu --out text --format json,srt recordings/
    archive.py --scheduler tcp://host:8786 --model /srv/base.en.wnpu --out /srv/text @list.txt

Inputs are files, directories, @LIST (a file with an input on each line) and URLs that fsspec opens.
Each recording is a task. What is finished is not done again: OUT/NAME.done says of what input,
model, parameters and library the results are. See README.md."""
import argparse
import collections
import csv
import fcntl
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

EXTENSIONS = frozenset((
    "3gp aac ac3 aif aiff amr ape au avi caf dss ds2 dts eac3 flac flv gsm m2ts m4a m4b m4v mka "
    "mkv mov mp2 mp3 mp4 mpc mpeg mpg mts oga ogg opus ra rm spx tak ts tta voc w64 wav weba webm "
    "wma wmv wv").split())
NO_MODEL_S = 10      # to wait for a worker that can open the model, if the present ones cannot
DEATHS = 3           # workers that a recording may kill
WORKER_MORE = 150e6  # bytes of a worker beside model and session: Python and Dask
MEMORY_SHARE = 0.8   # of what is free, for all workers
# as examples/kit/ffmpeg.c runs it, so that the samples are the same
FFMPEG = ("ffmpeg -nostdin -hide_banner -nostats -v error -protocol_whitelist file "
          "-itsoffset 0.000001 -dts_delta_threshold 3600 -analyzeduration 60000000 "
          "-probesize 64000000").split()
FFMPEG_OUT = ("-vn -sn -dn -af aresample=async=1:first_pts=0 -ar 16000 -c:a pcm_s16le -f wav "
              "pipe:1").split()
EXIT_OK, EXIT_USAGE, EXIT_FAILED, EXIT_CANCELLED, EXIT_INCOMPLETE = 0, 1, 3, 4, 6


# ---- in a worker ----

def is_wav(path):
    with open(path, "rb") as file:
        head = file.read(12)
    if not head:
        raise ValueError("the file is empty")
    return head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:] == b"WAVE"


def decoded(path, log):
    """A child that writes any other format as WAV, and its number of channels."""
    try:
        child = subprocess.Popen([*FFMPEG, "-i", "file:" + path, *FFMPEG_OUT], stderr=log,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise ValueError("this is no WAV file, and ffmpeg is not installed") from None
    channels, head = 1, child.stdout.read(12)
    while len(head := child.stdout.read(8)) == 8 and head[:4] != b"data":
        chunk = child.stdout.read(int.from_bytes(head[4:], "little"))
        channels = int.from_bytes(chunk[2:4], "little") if head[:4] == b"fmt " else channels
    return child, channels


def run(session, path, params):
    """Transcribes a file. Returns its length in seconds, and what is odd about it."""
    import wnpu  # pylint: disable=import-outside-toplevel
    if is_wav(path):
        for _ in session.transcribe(path, **params):
            pass
        return session.warning
    with tempfile.TemporaryFile() as log:
        child, channels = decoded(path, log)
        try:
            for _ in session.transcribe(child.stdout, channels=channels, format="s16", **params):
                pass
        finally:
            child.kill()
            child.stdout.close()
            code = child.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip().split("\n")[0]
    if code not in (0, -9) and json.loads(session.write("json"))["duration"] == 0:
        raise wnpu.Error(wnpu.IO, said or f"ffmpeg ended with status {code}")
    return said if code not in (0, -9) else ""


def write(path, data):
    """All or nothing: a file has its name when it is complete."""
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def remove_temporaries(jobs):
    """Removes temporary files of write() whose workers were killed."""
    outs = {job.out for job in jobs}
    for folder in {os.path.dirname(out) for out in outs}:
        try:
            for name in os.listdir(folder):
                path, *rest = os.path.join(folder, name).rsplit(".", 3)
                if path in outs and len(rest) == 3 and rest[1].isdigit() and rest[2] == "part":
                    os.unlink(os.path.join(folder, name))
        except OSError:
            pass  # it is not there, or another removes it


def local_copy(source, folder):
    """A file for what has another address: itself, or a copy."""
    if "://" not in source:
        return source
    import fsspec  # pylint: disable=import-outside-toplevel
    path = os.path.join(folder, "input")
    with fsspec.open(source, "rb") as there, open(path, "wb") as here:
        shutil.copyfileobj(there, here, 1 << 20)
    return path


def reason_of(error):
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return str(error.args[-1] if error.args else error) or type(error).__name__


class Engine:
    """The model and the session of a worker: a plugin of Dask, which has one in each worker. Its
    name is that of one run of this program, and of a resource of the worker: there is one if the
    model is open, each task needs it, and so tasks come one at a time, and only where they can be
    done."""

    def __init__(self, name, model, module, formats):
        self.name, self.model, self.module, self.formats = name, model, module, formats
        self.session = self.problem = None

    async def setup(self, worker):
        if self.open():
            await worker.set_resources(**{self.name: 1})

    def open(self):
        try:
            sys.path.append(self.module)
            import wnpu  # pylint: disable=import-outside-toplevel
            self.session = wnpu.Session(self.model, threads=1)
        except Exception as e:  # pylint: disable=broad-except
            self.problem = f"{self.model} cannot be opened: {reason_of(e)}"
        return self.problem is None

    def teardown(self, worker=None):
        if self.session is not None:
            self.session.close()

    def transcribe(self, source, out, params, mark):
        """Writes the results of a recording, and then a note of what they are of."""
        folder = None
        try:
            folder = tempfile.mkdtemp(prefix="archive-") if "://" in source else None
            begin, path = time.monotonic(), local_copy(source, folder)
            warning = run(self.session, path, params)
            state, duration, warning = self.write_results(out, mark, warning)
            return state, duration, time.monotonic() - begin, warning
        except Exception as e:  # pylint: disable=broad-except
            return "failed", 0, 0, reason_of(e)
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def write_results(self, out, mark, warning):
        duration = json.loads(self.session.write("json"))["duration"]
        os.makedirs(os.path.dirname(out), exist_ok=True)
        for name in self.formats:
            write(f"{out}.{name}", self.session.write(name))
        state = "done" if self.session.status == 0 else "incomplete"
        if self.session.status != 0:
            warning = "some speech has no text; the ledger in the JSON says where"
        mark = {**mark, "state": state, "audio_s": duration}
        write(out + ".done", (json.dumps(mark, indent=1, sort_keys=True) + "\n").encode())
        return state, duration, warning

    def divide(self, source, params, part_s):
        """The begins of a WAV file's parts in ms, each at least part_s long besides the last; one
        if it is short or cannot be divided."""
        begins = [0]
        try:
            audio = self.session.whole(source)[0] if is_wav(source) else None
            if audio is not None and audio.frames >= 1.5 * part_s * audio.rate:
                for cut in self.session.cuts(source, **params):
                    if cut - begins[-1] >= part_s * 1000:
                        begins.append(cut)
        except Exception:  # pylint: disable=broad-except
            return [0]  # the run of the whole says what is wrong
        return begins

    def part(self, source, begin, end, params):
        """A part's results for join(), what is odd about the file, and seconds."""
        since = time.monotonic()
        try:
            block = self.session.part(source, begin, end, **params)
        except Exception as e:  # pylint: disable=broad-except
            raise ValueError(reason_of(e)) from None  # which the client can unpickle
        return block, self.session.warning, time.monotonic() - since

    def join(self, parts, out, params, mark):
        """Writes the results of a recording whose parts are done, as transcribe() does."""
        since = time.monotonic()
        try:
            self.session.join([block for block, _, _ in parts], **params)
            state, duration, warning = self.write_results(out, mark, parts[0][1])
        except Exception as e:  # pylint: disable=broad-except
            raise ValueError(reason_of(e)) from None
        return state, duration, time.monotonic() - since + sum(part[2] for part in parts), warning


def engine_here(name):
    from distributed import get_worker  # pylint: disable=import-outside-toplevel
    worker = get_worker()
    return worker.plugins[name], worker.address


def divide_task(name, source, params, part_s):
    return engine_here(name)[0].divide(source, params, part_s)


def part_task(name, source, begin, end, params):
    return engine_here(name)[0].part(source, begin, end, params)


def join_task(name, parts, out, params, mark):
    engine, address = engine_here(name)
    return (*engine.join(parts, out, params, mark), address)


def task(name, source, out, params, mark):
    engine, address = engine_here(name)
    return (*engine.transcribe(source, out, params, mark), address)


# ---- inputs ----

Job = collections.namedtuple("Job", "source out mark")


def is_audio(name):
    return os.path.splitext(name)[1][1:].lower() in EXTENSIONS


def walked(folder, problems):
    """The recordings below a folder, with their paths from there."""
    def note(error):
        problems.append((error.filename, reason_of(error)))
    for parent, folders, names in os.walk(folder, onerror=note):
        folders.sort()
        for name in sorted(names):
            if is_audio(name):
                path = os.path.join(parent, name)
                yield path, os.path.relpath(path, folder)


def remote(url, problems):
    import fsspec  # pylint: disable=import-outside-toplevel
    try:
        system, path = fsspec.core.url_to_fs(url)
        if is_audio(path.split("?")[0]) or not system.isdir(path):
            return [(url, os.path.basename(path.split("?")[0]))]
        return [(system.unstrip_protocol(found), os.path.relpath(found, path))
                for found in sorted(system.find(path)) if is_audio(found)]
    except Exception as e:  # pylint: disable=broad-except
        problems.append((url, reason_of(e)))
        return []


def listed(arguments, problems):
    """Pairs of an input and the name that its results are to have."""
    for argument in arguments:
        argument = argument[7:] if argument.startswith("file://") else argument
        if argument.startswith("@"):
            try:
                with open(argument[1:], encoding="utf-8", errors="surrogateescape") as file:
                    lines = [line.strip() for line in file]
                yield from listed([line for line in lines if line], problems)
            except OSError as e:
                problems.append((argument[1:], reason_of(e)))
        elif "://" in argument:
            yield from remote(argument, problems)
        elif os.path.isdir(argument):
            yield from walked(os.path.abspath(argument), problems)
        else:
            yield os.path.abspath(argument), os.path.basename(argument)


def identity(source, by_content):
    """What tells whether an input is the same as before. Raises OSError if it is not there."""
    if "://" in source:
        import fsspec  # pylint: disable=import-outside-toplevel
        system, path = fsspec.core.url_to_fs(source)
        info = system.info(path)
        found = {key: str(info[key]) for key in ("size", "mtime", "LastModified", "ETag")
                 if info.get(key) is not None}
        if by_content:
            with system.open(path, "rb") as file:
                found = {"sha256": digest(file)}
        return found
    with open(source, "rb") as file:  # also whether it can be read
        if by_content:
            return {"sha256": digest(file)}
        info = os.fstat(file.fileno())
    return {"size": info.st_size, "mtime_ns": info.st_mtime_ns}


def digest(file):
    found = hashlib.sha256()
    while block := file.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def model_identity(path):
    """Its size, and a SHA-256 of 64 blocks of it: a model of gigabytes is told at once."""
    found, size = hashlib.sha256(), os.path.getsize(path)
    with open(path, "rb") as file:
        for i in range(64):
            file.seek(max(0, size - 65536) * i // 63)
            found.update(file.read(65536))
    return {"size": size, "sha256_of_blocks": found.hexdigest()}


def is_finished(job, formats):
    try:
        with open(job.out + ".done", encoding="utf-8") as file:
            before = json.load(file)
        return {key: before.get(key) for key in job.mark} == job.mark and \
            all(os.path.exists(f"{job.out}.{name}") for name in formats) and before
    except (OSError, ValueError, AttributeError):
        return False


def jobs_of(o, problems):
    """All jobs. Of inputs whose results would have one name, each keeps its extension."""
    found = list(dict.fromkeys(listed(o.inputs, problems)))
    stems = collections.Counter(os.path.splitext(name)[0] for _, name in found)
    names = collections.Counter(name for _, name in found)
    common = {"model": model_identity(o.model), "params": o.params, "library": o.library,
              "formats": sorted(o.formats)}
    for source, name in found:
        stem = os.path.splitext(name)[0]
        name = stem if stems[stem] == 1 else name
        if names[name] > 1:  # of different directories
            name += "-" + hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
        try:
            mark = {**common, "input": identity(source, o.by_content), "source": source}
        except Exception as e:  # pylint: disable=broad-except
            problems.append((source, reason_of(e)))
            continue
        yield Job(source, os.path.join(o.out, name), mark)


# ---- the run ----

class Report:
    """report.csv, and what is told meanwhile and at the end."""

    def __init__(self, path, total):
        self.file = open(path, "a", newline="", encoding="utf-8", errors="surrogateescape")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{path}: another archive.py is at work") from None
        except OSError:
            pass  # not on this file system
        self.file.truncate(0)
        self.rows, self.problem = csv.writer(self.file), None
        self.write("input", "output", "state", "audio_s", "seconds", "worker", "reason", "parts")
        self.counts, self.audio_s, self.total = collections.Counter(), 0, total
        self.begin = self.told = time.monotonic()

    def add(self, source, out, state, audio_s=0, seconds=0, reason="", worker="", parts=1):
        reason = reason.removesuffix(f": {source}")
        self.write(source, out, state, f"{audio_s:.2f}", f"{seconds:.2f}", worker, reason, parts)
        self.counts[state] += 1
        self.audio_s += audio_s if state != "skipped" else 0
        if state == "failed" or reason:
            self.clear()
            print(f"archive: {source}: {reason}", file=sys.stderr, flush=True)
        self.tell()

    def write(self, *fields):
        """A row. If the disk is full, what has room later is still done."""
        try:
            self.rows.writerow(fields)
            self.file.flush()
        except OSError as e:
            if self.problem is None:
                print(f"archive: {self.file.name}: {reason_of(e)}", file=sys.stderr)
            self.problem = e

    def state(self):
        wall = time.monotonic() - self.begin
        return (f"{sum(self.counts.values())} of {self.total}, "
                f"{self.audio_s / 3600:.2f} h of audio, "
                f"{self.audio_s / max(wall, 1e-3):.1f} x real time, "
                f"{self.counts['failed']} failed")

    def clear(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)

    def tell(self):
        every = 0.2 if sys.stderr.isatty() else 60
        if time.monotonic() - self.told >= every:
            self.told = time.monotonic()
            print(f"\r\033[K{self.state()}" if sys.stderr.isatty() else f"archive: {self.state()}",
                  end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    def end(self):
        self.clear()
        wall = time.monotonic() - self.begin
        print(f"archive: {self.counts['done']} done, {self.counts['incomplete']} incomplete, "
              f"{self.counts['skipped']} finished before, {self.counts['failed']} failed; "
              f"{self.audio_s / 3600:.3f} h of audio in {wall:.1f} s, "
              f"{self.audio_s / max(wall, 1e-3):.1f} x real time", file=sys.stderr)
        try:
            self.file.close()
        except OSError as e:
            self.problem = e
        return EXIT_FAILED if self.counts["failed"] or self.problem else \
            EXIT_INCOMPLETE if self.counts["incomplete"] else EXIT_OK


def workers_that_fit(o):
    """One for each CPU, as far as memory goes: the shared part of a pack counts once."""
    import wnpu  # pylint: disable=import-outside-toplevel
    try:
        need = wnpu.memory(o.model, threads=1)
    except wnpu.Error:
        return o.workers or 1  # the report says of each recording that it cannot be opened
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("MemAvailable"))
        free = int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        free = 1 << 62
    one = need.held + need.session + WORKER_MORE
    fit = int((free * MEMORY_SHARE - need.shared) // one)
    if fit < 1 and o.workers is None:
        raise ValueError(f"a worker needs {(one + need.shared) / 1e6:.0f} MB, and "
                         f"{free / 1e6:.0f} MB are free")
    n = o.workers or max(1, min(cpus, fit))
    print(f"archive: {n} workers with a thread each, {(need.shared + n * one) / 1e6:.0f} MB: "
          f"{need.shared / 1e6:.0f} MB shared and {one / 1e6:.0f} MB each", file=sys.stderr)
    return n


def connect(o, jobs):
    """A client of the given scheduler, or of a cluster on this machine."""
    import dask  # pylint: disable=import-outside-toplevel
    from distributed import Client, LocalCluster  # pylint: disable=import-outside-toplevel
    cluster = None
    if o.scheduler:
        client = Client(o.scheduler, timeout=30)
        if not client.ncores():
            print(f"archive: waiting for workers of {o.scheduler}", file=sys.stderr)
        client.wait_for_workers(1)
    else:
        dask.config.set({"distributed.scheduler.allowed-failures": DEATHS - 1,
                         "distributed.worker.memory.terminate": False,
                         "distributed.worker.daemon": False})
        cluster = LocalCluster(n_workers=min(workers_that_fit(o), max(1, len(jobs))),
                               threads_per_worker=1, dashboard_address=None, silence_logs=50,
                               memory_limit=0)
        client = Client(cluster)
    return client, cluster


def open_engines(client, o):
    """Opens the model on all workers, also on those that come later."""
    register = getattr(client, "register_plugin", None) or client.register_worker_plugin
    register(Engine(o.name, o.model, o.module, o.formats), name=o.name)


def set_deaths(dask_scheduler):
    dask_scheduler.allowed_failures = DEATHS - 1


def able(name, dask_scheduler):
    """The addresses of all workers, and whether each has opened the model."""
    return {address: worker.resources.get(name, 0) > 0
            for address, worker in dask_scheduler.workers.items()}


def problem_of(name, dask_worker):
    engine = dask_worker.plugins.get(name)
    return engine.problem if engine else None


class Places:
    """Tasks to have under way: one for each worker that there is now and that has the model, so
    that none waits behind another that kills its worker. They are counted once a second."""

    def __init__(self, client, name):
        self.client, self.name = client, name
        self.n, self.counted, self.told = 1, 0, {}

    def most(self):
        if time.monotonic() - self.counted > 1:
            self.n = max(1, self.count())
            self.counted = time.monotonic()
        return self.n

    def wait(self, patience):
        """Waits for one that can work: False if for so many seconds there are only others."""
        begin = time.monotonic()
        while self.count() == 0:
            if self.told and time.monotonic() - begin >= patience:
                return False
            time.sleep(0.2)
        return True

    def count(self):
        """How many can work; tells once of each that cannot."""
        found = self.client.run_on_scheduler(able, self.name)
        unable = [address for address, is_able in found.items()
                  if not is_able and address not in self.told]
        try:
            problems = self.client.run(problem_of, self.name, workers=unable) if unable else {}
        except Exception:  # pylint: disable=broad-except
            problems = {}  # one has just ended
        for address, problem in problems.items():
            if problem:
                self.told[address] = problem
                print(f"archive: worker {address} gets no recordings: {problem}", file=sys.stderr)
        return sum(found.values())


def results_of(client, futures):
    """What tasks have returned, fetched together: that takes as long as one."""
    try:
        return dict(zip(futures, client.gather(futures)))
    except Exception:  # pylint: disable=broad-except
        return {}  # a worker has died since: each by itself, which does it again


class Recording:
    """The tasks of a job: one; or if it is long one that divides it, the parts, and their join."""

    def __init__(self, number, job, o):
        self.job, self.o = job, o
        # Two runs of this program may share a scheduler, and names may be any bytes.
        self.key = f"{o.name}-{number}-{ascii(os.path.basename(job.source))}"
        self.parts, self.left = [], 0
        self.waiting = [("divide", divide_task, job.source, o.params, o.part)] \
            if self.is_long() else [self.whole()]

    def is_long(self):
        """Whether it may be, as its format is not known: a second has at least 8000 bytes."""
        try:
            return self.o.part > 0 and os.path.getsize(self.job.source) > 8000 * self.o.part
        except OSError:
            return False

    def whole(self):
        return "whole", task, self.job.source, self.job.out, self.o.params, self.job.mark

    def submit(self, client):
        kind, function, *arguments = self.waiting.pop(0)
        future = client.submit(function, self.o.name, *arguments, pure=False,
                               key=f"{self.key}-{kind}", resources={self.o.name: 1})
        if function is part_task:
            self.parts.append(future)
        return future, function

    def ended(self, future, function, results):
        """What comes of a task that has ended: the fields of the report, or None if there are more
        to come."""
        if future.status == "cancelled":
            raise ConnectionError("the scheduler is gone, or has cancelled the task")
        error = future.exception() if future.status == "error" else None
        if error is not None and type(error).__name__ == "KilledWorker":
            self.waiting, self.parts = [], []
            return {"state": "failed", "reason": f"{DEATHS} workers died with it"}
        if error is not None and function in (part_task, join_task):
            if self.left > 0:  # one run would go on in another way there, for instance
                self.waiting, self.parts, self.left = [self.whole()], [], 0
            return None
        if error is not None:
            return {"state": "failed", "reason": reason_of(error)}
        if function is divide_task:
            self.divide(results[future] if future in results else future.result())
        elif function is part_task:
            self.count_part(future)
        else:
            state, audio_s, seconds, reason, worker = \
                results[future] if future in results else future.result()
            n, self.parts = max(1, len(self.parts)), []  # which are then forgotten
            return {"state": state, "audio_s": audio_s, "seconds": seconds, "reason": reason,
                    "worker": worker, "parts": n}
        return None

    def divide(self, begins):
        self.left = len(begins)
        self.waiting = [(f"part{i}", part_task, self.job.source, begin, end, self.o.params)
                        for i, (begin, end) in enumerate(zip(begins, [*begins[1:], 0]))] \
            if self.left > 1 else [self.whole()]

    def count_part(self, future):
        if future in self.parts:  # not one of a division that was given up
            self.left -= 1
            if self.left == 0:
                self.left = 1  # the join
                self.waiting = [("join", join_task, list(self.parts), self.job.out, self.o.params,
                                 self.job.mark)]


def run_all(client, jobs, o, report):
    """Runs the jobs, a new task whenever one has ended; what has begun comes first."""
    from distributed import as_completed  # pylint: disable=import-outside-toplevel
    waiting = collections.deque(Recording(i, job, o) for i, job in enumerate(jobs))
    under_way, done, told, places = {}, as_completed(), set(), Places(client, o.name)
    if not places.wait(NO_MODEL_S if o.scheduler else 0):
        for job in jobs:
            report.add(job.source, job.out, "failed", reason="no worker has opened the model")
        return

    def fill():
        most = places.most() if waiting else 0
        while waiting and len(under_way) < most:
            recording = waiting[0]
            if not recording.waiting:
                waiting.popleft()
                continue
            future, function = recording.submit(client)
            under_way[future] = recording, function
            done.add(future)
    fill()
    for batch in done.batches():
        results = results_of(client, [future for future in batch if future.status == "finished" and
                                      under_way[future][1] is not part_task])
        for future in batch:
            recording, function = under_way.pop(future)
            try:
                fields = recording.ended(future, function, results)
            except ConnectionError:
                raise
            except Exception as e:  # pylint: disable=broad-except
                fields = {"state": "failed", "reason": reason_of(e)}
            if fields is not None and recording not in told:
                told.add(recording)
                report.add(recording.job.source, recording.job.out, **fields)
            elif fields is None and recording.waiting and recording not in told:
                waiting.appendleft(recording)
        fill()


def release(client, name):
    """Closes the model on the workers, which may be somebody else's. A scheduler that is gone makes
    Dask log tracebacks, which say no more than this program does."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client.unregister_worker_plugin(name)
    except Exception:  # pylint: disable=broad-except
        pass  # the scheduler is gone


def parsed(arguments):
    p = argparse.ArgumentParser(
        prog="archive.py", description="Transcribes many recordings with Dask; what is finished is "
        "skipped. Exit status: 0, 1 usage, 3 some failed (report.csv in OUT says why), "
        "4 cancelled, 6 some are incomplete.")
    p.add_argument("inputs", nargs="+", metavar="FILE|DIR|@LIST|URL")
    p.add_argument("--model", required=True, help="the same path on all machines; a pack is shared "
                   "by the workers of a machine")
    p.add_argument("--out", required=True, metavar="DIR", help="on all machines")
    p.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, such as "
                   "tcp://host:8786; without it, one on this machine is started")
    p.add_argument("--format", default="json", metavar="F,...",
                   help="json (default), srt, vtt, txt, ...")
    p.add_argument("--param", action="append", default=[], metavar="NAME=VALUE",
                   help="a parameter of the run, such as beam=5 or language=de; can be repeated")
    p.add_argument("--workers", type=int, metavar="N", help="on this machine; otherwise as many as "
                   "there are CPUs and memory for")
    p.add_argument("--part", type=float, default=1800, metavar="SECONDS", help="divide longer WAV "
                   "files where that changes nothing (1800; 0: never)")
    p.add_argument("--by-content", action="store_true", help="tell whether an input has changed by "
                   "its SHA-256, not by size and time")
    o = p.parse_args(arguments)
    o.params = {}
    for pair in o.param:
        name, sign, value = pair.partition("=")
        if not sign:
            p.error(f"--param {pair}: NAME=VALUE is needed")
        o.params[name] = value
    o.formats = list(dict.fromkeys(o.format.split(",")))
    o.out, o.model = os.path.abspath(o.out), os.path.abspath(o.model)
    o.name = f"wnpu-{uuid.uuid4().hex[:12]}"  # of this run, on a scheduler that has others
    return o


def check(o):
    """What is wrong for all recordings, before anything starts."""
    o.module = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path.append(o.module)
    import wnpu  # pylint: disable=import-outside-toplevel
    o.library = wnpu.version()
    wnpu.parameters(wnpu.lib.wnpu_params_init, o.params)
    for name in o.formats:
        if wnpu.lib.wnpu_format_from_name(name.encode()) < 0:
            raise ValueError(f"there is no format {name}")
    os.makedirs(o.out, exist_ok=True)


def main(arguments):
    o, problems, client, cluster = parsed(arguments), [], None, None
    try:
        check(o)
        jobs = list(jobs_of(o, problems))
        report = Report(os.path.join(o.out, "report.csv"), len(jobs) + len(problems))
    except Exception as e:  # pylint: disable=broad-except
        print(f"archive: {reason_of(e)}", file=sys.stderr)
        return EXIT_USAGE
    for source, reason in problems:
        report.add(source, "", "failed", reason=reason)
    if not jobs and not problems:
        print("archive: there are no recordings", file=sys.stderr)
    todo = []
    for job in jobs:
        before = is_finished(job, o.formats)
        if before:
            report.add(job.source, job.out, "skipped", before.get("audio_s", 0))
        else:
            todo.append(job)
    try:
        if todo:
            client, cluster = connect(o, todo)
            client.run_on_scheduler(set_deaths)
            open_engines(client, o)
            run_all(client, todo, o, report)
        return report.end()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        report.end()
        print("archive: cancelled; start it again to go on", file=sys.stderr)
        return EXIT_CANCELLED
    except ImportError as e:
        print(f"archive: {sys.executable}: {reason_of(e)}: apt install python3-distributed, which "
              "is for /usr/bin/python3, or pip install distributed", file=sys.stderr)
        return EXIT_FAILED
    except (OSError, ValueError) as e:
        if client is not None:
            report.end()
        print(f"archive: {reason_of(e)}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        if client is not None:
            release(client, o.name)
        for thing in (client, cluster):
            if thing is not None:
                thing.close()
        remove_temporaries(todo)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
