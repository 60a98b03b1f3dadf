#!/usr/bin/env python3
"""sizes.py - speed, memory and text of models in the shapes of small, medium, turbo and large-v3.

    tests/bench/sizes.py [SHAPE...]        (make sizes)

Makes each model with inflate.py, measures it and deletes it: the weights are those of tiny, so
speed and memory are the real model's, but not its errors. Says where INT8, weights in 6 bits, the
float path and, if WHISPER_CPP is the path of its whisper-cli, whisper.cpp give other text or
probabilities, and what whisper.cpp needs with q5_0 if whisper-quantize is beside it. Needs numpy, up
to 6 GB in SIZES_DIR (default: the cache directory), and for large-v3 8 GB of memory.

Times are CPU time of one thread, because other programs may run at the same time; a stage's is its
share of that. What is opened is a pack, so that opening takes no time; the peak of memory is that
of a run from the ggml file, and of one from the pack."""
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import inflate  # noqa: E402

ROOT = inflate.ROOT
BUILD = os.environ.get("WNPU_BUILD", os.path.join(ROOT, "build"))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
WHISPER_CPP = os.environ.get("WHISPER_CPP")
TEXT = os.path.join(ROOT, "examples", "jfk.wav")


def fetched(name):
    done = subprocess.run([os.path.join(ROOT, "examples", "fetch.sh"), name], check=True,
                          capture_output=True, text=True)
    return done.stdout.strip()


def measured(*command):
    """Output, messages, CPU seconds and the peak of memory in MB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        out, err = p.stdout.read(), p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode not in (0, 6):
        sys.exit(f"{' '.join(command)}: {err}")
    return out, err, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def transcribed(model, wav, *options):
    return measured(f"{BUILD}/transcribe", "-v", "-t", "1", "-l", "en", "-f", "json", *options,
                    "-m", model, wav)


def session_of(path):
    """Bytes of a session of two threads."""
    lib = ctypes.CDLL(f"{BUILD}/libwnpu.so")
    lib.wnpu_session_size.restype = ctypes.c_size_t
    model, config = ctypes.c_void_p(), (ctypes.c_uint32 * 28)()
    assert lib.wnpu_model_open(ctypes.byref(model), path.encode(), None, None) == 0, path
    lib.wnpu_config_init(config, ctypes.sizeof(config))
    config[1] = 2  # threads
    session = lib.wnpu_session_size(model, config, None)
    lib.wnpu_model_close(model)
    assert session > 0
    return session


def tokens_of(result):
    return [(t["id"], t["probability"]) for s in result["segments"] for t in s["tokens"]]


def tokens_of_whisper_cpp(path, first_special):
    with open(path, encoding="utf-8", errors="replace") as file:
        result = json.load(file)
    return [(t["id"], t["p"]) for s in result["transcription"] for t in s["tokens"]
            if t["id"] < first_special]


def difference(a, b):
    """How two texts with probabilities differ."""
    same = next((i for i, (x, y) in enumerate(zip(a, b)) if x[0] != y[0]), min(len(a), len(b)))
    most = max((abs(x[1] - y[1]) for x, y in zip(a[:same], b)), default=0)
    where = "same text" if same == len(a) == len(b) else f"other text at token {same} of {len(a)}"
    return f"{where}, probabilities {most:.3f} apart at most"


def stage(messages, name):
    return float(re.search(rf"\b{name} (\d+)", messages)[1])


def stages(messages, cpu):
    """Windows, and CPU time in ms of the encoder for a window and of the decoder for a token."""
    windows, tokens = map(int, re.search(r"(\d+) windows, (\d+) tokens", messages).groups())
    share = cpu / float(re.search(r"s of sound in ([\d.]+) s", messages)[1])
    return (windows, stage(messages, "encoder") * share / windows,
            stage(messages, "decoder") * share / max(1, tokens))


def with_six_bits(model, pack, speech, int8):
    """Writes the pack with weights in 6 bits; int8: tokens of the model with 8."""
    subprocess.run([f"{BUILD}/pack", "--bits", "6", model, pack], check=True)
    out = transcribed(pack, TEXT)[0]
    _, messages, cpu, peak = transcribed(pack, speech)
    _, encoder, token = stages(messages, cpu)
    print(f"  6 bits: {difference(int8, tokens_of(json.loads(out)))}; encoder {encoder:.0f} ms, "
          f"token {token:.1f} ms, {peak:.0f} MB", flush=True)


def with_q5_0(model, quantized, speech):
    """What whisper.cpp needs for the model in q5_0, which is written to a file."""
    quantize = os.path.join(os.path.dirname(WHISPER_CPP), "whisper-quantize")
    if os.path.exists(quantize):
        measured(quantize, model, quantized, "q5_0")
        _, _, cpu, peak = measured(WHISPER_CPP, "-m", quantized, "-t", "1", "-l", "en", "-ng", "-f",
                                   speech)
        print(f"  whisper.cpp, q5_0, 30 s of radio: {cpu:.0f} s, {peak:.0f} MB", flush=True)


def measure(name, folder, speech):
    model, pack = os.path.join(folder, f"{name}.bin"), os.path.join(folder, f"{name}.wnpu")
    source = fetched("base.en" if name.endswith(".en") else "tiny")
    print(f"{name}: making it", file=sys.stderr, flush=True)
    # In a process of its own: the peak of memory of a child counts what its parent had.
    subprocess.run([sys.executable, inflate.__file__, source, name, model], check=True)
    subprocess.run([f"{BUILD}/pack", model, pack], check=True)
    out, messages, _, peak = transcribed(model, TEXT)
    int8 = tokens_of(json.loads(out))
    memory = int(re.search(r"became (\d+)", messages)[1])
    _, messages, cpu, pack_peak = transcribed(pack, speech)
    seconds = float(re.search(r"([\d.]+) s of sound", messages)[1])
    windows, encoder, token = stages(messages, cpu)
    print(f"| {name} | {os.path.getsize(model) / 1e6:.0f} MB | {memory / 1e6:.0f} MB | "
          f"{session_of(pack) / 1e6:.0f} MB | {encoder:.0f} ms | {token:.1f} ms | "
          f"{windows} windows, {cpu:.1f} s, {seconds / cpu:.1f} x | "
          f"{peak:.0f}, {pack_peak:.0f} MB |", flush=True)
    with_six_bits(model, pack, speech, int8)
    out, _, cpu, peak = transcribed(model, TEXT, "--compute", "float")
    print(f"  float: {difference(int8, tokens_of(json.loads(out)))}; {cpu:.0f} s, {peak:.0f} MB",
          flush=True)
    if WHISPER_CPP:
        theirs = os.path.join(folder, "theirs")
        _, _, cpu, peak = measured(WHISPER_CPP, "-m", model, "-t", "1", "-l", "en", "-bs", "1",
                                   "-bo", "1", "-ng", "-ojf", "-of", theirs, "-f", TEXT)
        first_special = 50256 if name.endswith(".en") else 50257
        print(f"  whisper.cpp: "
              f"{difference(int8, tokens_of_whisper_cpp(theirs + '.json', first_special))}; "
              f"{cpu:.0f} s, {peak:.0f} MB", flush=True)
        with_q5_0(model, pack, speech)


def main():
    if sys.argv[1:2] == ["--help"]:
        sys.exit(__doc__)
    names = sys.argv[1:] or ["small", "medium", "turbo", "large-v3"]
    folder = os.environ.get("SIZES_DIR") or os.path.join(CACHE, "whisper_npu", "sizes")
    os.makedirs(folder, exist_ok=True)
    speech = fetched("demo")
    print("| shape | file | in memory | a session, 2 threads | encoder, a window | a token | "
          "30 s of radio | peak, from the file and a pack |")
    print("|" + " --- |" * 8, flush=True)
    for name in names:
        try:
            if shutil.disk_usage(folder).free < 6e9:
                sys.exit(f"{folder}: less than 6 GB are free; SIZES_DIR can be elsewhere")
            measure(name, folder, speech)
        finally:
            for end in (".bin", ".wnpu"):
                if os.path.exists(os.path.join(folder, name + end)):
                    os.remove(os.path.join(folder, name + end))


if __name__ == "__main__":
    main()
