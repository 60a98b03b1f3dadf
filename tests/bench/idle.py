#!/usr/bin/env python3
"""What build/listen costs while nobody speaks: CPU time, and how often its threads wake up.

usage: idle.py [--seconds N] [--every MS] MODEL

Sends low noise to its standard input as fast as it would be recorded, every MS (100) what a recorder
has by then, and reads /proc for N seconds (20), after some for the beginning. A wake-up is a voluntary
context switch. CPU time in percent of one core. Linux only."""
import argparse
import os
import random
import struct
import subprocess
import sys
import threading
import time

BUILD = os.environ.get("WNPU_BUILD", "build")
RATE = 16000
WARM_S = 4


def record(pipe, every, stop):
    """Noise of -70 dB, in time."""
    noise = [struct.pack(f"<{RATE * every // 1000}h",
                         *(random.randint(-18, 18) for _ in range(RATE * every // 1000)))
             for _ in range(10)]
    begin, i = time.monotonic(), 0
    while not stop.is_set():
        pipe.write(noise[i % 10])
        pipe.flush()
        i += 1
        time.sleep(max(0.0, begin + i * every / 1000 - time.monotonic()))
    pipe.close()


def spent(pid):
    """CPU seconds and wake-ups of all threads so far."""
    ticks = wakes = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as f:
            ticks += int(f.read().split()[0])
        with open(f"/proc/{pid}/task/{task}/status") as f:
            wakes += next(int(line.split()[1]) for line in f
                          if line.startswith("voluntary_ctxt_switches"))
    return ticks / 1e9, wakes


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("model", metavar="MODEL")
    a = parser.parse_args()
    if not os.path.exists("/proc/self/schedstat"):
        sys.exit("idle.py: /proc/self/schedstat is missing")
    listen = subprocess.Popen([os.path.join(BUILD, "listen"), "--live", "--raw", "s16le,16000",
                               a.model, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stop = threading.Event()
    recorder = threading.Thread(target=record, args=(listen.stdin, a.every, stop))
    recorder.start()
    time.sleep(WARM_S)
    if listen.poll() is not None:
        stop.set()
        sys.exit(f"idle.py: listen has ended with {listen.returncode}")
    since, (cpu, wakes) = time.monotonic(), spent(listen.pid)
    time.sleep(a.seconds)
    elapsed, (cpu_now, wakes_now) = time.monotonic() - since, spent(listen.pid)
    stop.set()
    recorder.join()
    listen.stdin = None
    text = listen.communicate()[0]
    if listen.returncode != 0 or text.strip():
        sys.exit(f"idle.py: listen: status {listen.returncode}, text {text[:200]!r}")
    print(f"{elapsed:.0f} s of silence, sound every {a.every} ms: "
          f"{(wakes_now - wakes) / elapsed:.1f} wake-ups a second, "
          f"{100 * (cpu_now - cpu) / elapsed:.2f} % of one core")


if __name__ == "__main__":
    main()
