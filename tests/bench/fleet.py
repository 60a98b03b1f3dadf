#!/usr/bin/env python3
"""Measures examples/fleet/archive.py on this machine, with Dask:

    tests/bench/fleet.py overhead                 2,000 tasks that sleep, on 50 workers in one process
    tests/bench/fleet.py speed PACK FILE...       2 workers of a thread beside a process of 2 threads
    tests/bench/fleet.py memory PACK FILE         PSS of 1, 4 and 8 workers that share a pack
    tests/bench/fleet.py joins MODEL FILE...      recordings in parts: the same JSON as one run

`joins` makes conversations of 6 to 20 random FILEs (16 kHz, mono, 16 bits; the same each time), with
pauses of 0.3 to 5 s, and fails if any differs."""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
import types
import wave

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
sys.path[:0] = [os.path.join(EXAMPLES, "fleet"), EXAMPLES]
import archive  # noqa: E402  pylint: disable=wrong-import-position
import wnpu  # noqa: E402  pylint: disable=wrong-import-position
from distributed import Client, LocalCluster  # noqa: E402  pylint: disable=wrong-import-position

TASKS, WORKERS, SLEEP_S, RUNS = 2000, 50, 1.0, 3
CONVERSATIONS, RATE = 20, 16000


def cluster(n, processes):
    return LocalCluster(n_workers=n, threads_per_worker=1, processes=processes, memory_limit=0,
                        dashboard_address=None, silence_logs=50)


class Count:
    """In place of a report."""

    def __init__(self):
        self.states = []

    def add(self, source, out, state, reason="", **more):
        assert state in ("done", "incomplete"), (source, out, reason, more)
        self.states.append(state)


def timed(client, jobs, o):
    count, begin = Count(), time.monotonic()
    archive.run_all(client, jobs, o, count)
    assert len(count.states) == len(jobs)
    return time.monotonic() - begin


def overhead():
    def sleep(*unused):
        time.sleep(SLEEP_S)
        return "done", 0, SLEEP_S, "", ""
    archive.task = sleep
    o = options("", "")
    jobs = [archive.Job(str(i), str(i), {}) for i in range(TASKS)]
    ideal = TASKS * SLEEP_S / WORKERS
    archive.Engine.open = lambda self: True  # without a model
    with cluster(WORKERS, False) as here, Client(here) as client:
        archive.open_engines(client, o)
        took = timed(client, jobs, o)
    print(f"{TASKS} tasks of {SLEEP_S} s on {WORKERS} workers: {took:.1f} s, ideal {ideal:.1f} s, "
          f"{(took / ideal - 1) * 100:.1f} % more, {(took - ideal) / TASKS * 1e3:.2f} ms a task")


def options(model, out):
    return types.SimpleNamespace(name="wnpu", model=os.path.abspath(model), out=out, part=0,
                                 params={}, formats=["json"], module=EXAMPLES, scheduler=None)


def speed(model, files):
    with tempfile.TemporaryDirectory() as out, cluster(2, True) as here, Client(here) as client, \
            wnpu.Session(model, threads=2) as session:
        o = options(model, out)
        archive.open_engines(client, o)
        jobs = [archive.Job(os.path.abspath(file), f"{out}/{i}", {}) for i, file in enumerate(files)]
        ratios, audio = [], 0
        for i in range(RUNS + 1):  # the first is not counted
            two = timed(client, jobs, o)
            begin, audio = time.monotonic(), 0
            for job in jobs:
                archive.run(session, job.source, {})
                audio += seconds_of(session)
                archive.write(job.out + ".one", session.write("json"))
            one = time.monotonic() - begin
            print(f"2 workers {two:.2f} s, {audio / two:.0f} x real time; 1 process of 2 threads "
                  f"{one:.2f} s, {audio / one:.0f} x; {one / two:.3f}", flush=True)
            ratios += [one / two] if i > 0 else []
    print(f"median {statistics.median(ratios):.3f} of {RUNS}; {audio:.0f} s of audio")


def seconds_of(session):
    return json.loads(session.write("json"))["duration"]


def memory_mib():
    """PSS and RSS of a worker's process."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        found = {line.split()[0]: int(line.split()[1]) / 1024 for line in file if "kB" in line}
    return found["Pss:"], found["Rss:"]


def memory(model, file):
    with tempfile.TemporaryDirectory() as out:
        for n in (1, 4, 8):
            with cluster(n, True) as here, Client(here) as client:
                o = options(model, out)
                archive.open_engines(client, o)
                for worker in client.run(os.getpid):
                    client.submit(archive.task, o.name, os.path.abspath(file), f"{out}/x", {}, {},
                                  workers=[worker], pure=False).result()
                found = client.run(memory_mib)
            pss, rss = (sum(pair[i] for pair in found.values()) for i in (0, 1))
            print(f"{n} workers: PSS {pss:.0f} MiB, {pss / n:.0f} each; RSS {rss:.0f} MiB")


def conversation(files, rng, path):
    with wave.open(path, "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        for _ in range(rng.randint(6, 20)):
            with wave.open(rng.choice(files), "rb") as clip:
                assert clip.getparams()[:3] == (1, 2, RATE)
                out.writeframes(clip.readframes(clip.getnframes()))
            pause = rng.uniform(0.3, 2) if rng.random() < 0.7 else rng.uniform(2, 5)
            out.writeframes(bytes(2 * int(pause * RATE)))


def joins(model, files):
    rng, n_cuts, different = random.Random(1), 0, 0
    params = {"language": "en", "words": 1}
    with tempfile.TemporaryDirectory() as folder, wnpu.Session(model, threads=1) as session:
        path = f"{folder}/conversation.wav"
        for i in range(CONVERSATIONS):
            conversation(files, rng, path)
            archive.run(session, path, params)
            text, cuts = session.write("json"), session.cuts(path, **params)
            ends = [0, *cuts, 0]
            session.join([session.part(path, a, b, **params) for a, b in zip(ends, ends[1:])],
                         **params)
            n_cuts += len(cuts)
            if session.write("json") != text:
                different += 1
                print(f"conversation {i} of seed 1 differs", flush=True)
    print(f"{CONVERSATIONS} conversations, {n_cuts} cuts, {different} differ")
    return 1 if different else 0


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("overhead", "speed", "memory", "joins"))
    p.add_argument("model", nargs="?")
    p.add_argument("files", nargs="*")
    o = p.parse_args()
    if o.what == "overhead":
        overhead()
    elif o.model is None or not o.files:
        p.error("a model and recordings are needed")
    elif o.what == "joins":
        return joins(o.model, o.files)
    elif o.what == "speed":
        speed(o.model, o.files)
    else:
        memory(o.model, o.files[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
