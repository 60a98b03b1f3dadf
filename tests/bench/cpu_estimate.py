#!/usr/bin/env python3
"""What CPUs that nobody here has would make of a model: a prediction, not a measurement.

usage: cpu_estimate.py [--isa NAME,...] [--loops] MODEL ...

1. The stages of build/static/bench_work (x86) and build/aarch64/bench_work run under qemu-user,
   where count_blocks.c counts how often each block of instructions is executed. A block is
   instructions up to a branch.
2. llvm-mca, the newest that is installed, computes the cycles of each block for each core, as if
   it were repeated and all its data were in the first-level cache: those of its instructions alone,
   and those with the time that they wait for each other. A core that reorders instructions waits
   only as far as it cannot see the next start of a loop, whose results depend on no earlier ones.
   Some cores are computed with the model of a relative, see CORES.
3. The time of the encoder is that of its cycles, or that of its bytes if that is longer. A token's
   products wait for their bytes, and the rest of its cycles follow. Threads share the cycles; bytes
   come at the bandwidth of the memory that others have measured, see CORES.
4. The same is computed for this machine, and compared with what it measures, one thread.

--loops prints only the loops with most of the products: multiply-accumulates a cycle beside what
the core can do at most, and what limits them. The counts of a program are kept beside it until it
is made again. MODEL is a pack; the make target makes packs.
"""
import argparse
import collections
import functools
import json
import os
import re
import shutil
import subprocess
import sys

BUILD = os.environ.get("WNPU_BUILD", "build")
TOKENS = 100    # of 30 s of speech
REGION_US = 5   # to start and end work of several threads, see D6 in tests/NOTES.md
REGIONS = 8     # of a decoder's layer
PART = 128      # positions that bench_work.c counts of the encoder's 1500
DETECTOR = 6    # it counts the detector for 5 s of 30
PARTS = ("mel", "layer1", "layer2", "layer1wide", "cross", "detector", "token")
STAGES = ("mel", "encoder", "cross", "detector", "token")

# Name, LLVM's CPU, instruction set, GHz, GB/s of all cores, number of cores. Bandwidths: Pi 4
# (STREAM's copy, sci-pi.org.uk/bench/stream.html); Pi 5 (twice the 4.9 to 5.7 that tinymembench
# copies, less a tenth, github.com/geerlingguy/sbc-reviews issue 21); RK3588 (17 to 22,
# turingpi.com, "RK1 compute module benchmarks"; four A55 get a third of it); N100 (one channel of
# DDR4-3200, two thirds of 25.6); Atom C3558 (one channel of DDR4-2133, two thirds of 17). N1, M1,
# Zen 3 and Zen 4: one core, assumed. LLVM takes the A76 for an A57, so the N1, which was made of
# it, stands for it; the M1 is computed like Apple's A7, Gracemont like Alder Lake's large cores,
# and Goldmont like Silvermont. Last: among about how many operations a core looks for one that can
# start (its reorder buffer; in order: 0).
Core = collections.namedtuple("Core", "name cpu isa ghz gbs cores sees")
CORES = (
    Core("Pi 4, A72", "cortex-a72", "neon", 1.8, 5.5, 4, 128),
    Core("Pi 5, A76", "neoverse-n1", "neon-dot", 2.4, 9.0, 4, 128),
    Core("RK3588, A76", "neoverse-n1", "neon-dot", 2.4, 17.0, 4, 128),
    Core("RK3588, A55", "cortex-a55", "neon-dot", 1.8, 6.0, 4, 0),
    Core("Graviton2, N1", "neoverse-n1", "neon-dot", 2.5, 30.0, 4, 128),
    Core("Apple M1", "apple-m1", "neon-dot", 3.2, 58.0, 4, 630),
    Core("N100, Gracemont", "gracemont", "avx2", 2.9, 17.0, 4, 256),
    Core("C3558, Goldmont", "goldmont", "sse4.1", 2.2, 11.0, 4, 78),
    Core("Zen 3", "znver3", "avx2", 3.4, 20.0, 4, 256),
    Core("Zen 4", "znver4", "avx2", 3.7, 30.0, 4, 320),
)
X86 = ("scalar", "sse4.1", "avx2")
MINOR = 0.002   # of the instructions of a stage, in thousands of blocks, is left out
HERE_SEES = 256 # this machine; a Zen 3 has as many

# The fewest instructions for exact sums of products of int8, in registers.
PEAKS = {
    "scalar": None,
    "sse4.1": ["pmaddwd %xmm15, %xmm{0}", "paddd %xmm{0}, %xmm{1}"],
    "avx2": ["vpmaddwd %ymm14, %ymm15, %ymm{0}", "vpaddd %ymm{0}, %ymm{1}, %ymm{1}"],
    "neon": ["smull v{0}.8h, v30.8b, v31.8b", "smlal v{0}.8h, v28.8b, v29.8b",
             "sadalp v{1}.4s, v{0}.8h"],
    "neon-dot": ["sdot v{0}.4s, v30.16b, v31.4b[0]", "sdot v{1}.4s, v30.16b, v31.4b[0]"],
    "neon-i8mm": ["usmmla v{0}.4s, v30.16b, v31.16b", "usmmla v{1}.4s, v30.16b, v31.16b"],
}

# Multiply-accumulates of an instruction.
PRODUCTS = (
    (re.compile(r"[su]dot\tv\d+\.4s"), 16),
    (re.compile(r"us?mmla\tv|smmla\tv"), 32),
    (re.compile(r"[su]ml[a][l]\tv|[su]mull\tv"), 8),
    (re.compile(r"v?pmaddwd\t.*%ymm"), 16),
    (re.compile(r"v?pmaddubsw\t.*%ymm"), 32),
    (re.compile(r"v?pmaddwd\t"), 8),
    (re.compile(r"v?pmaddubsw\t"), 16),
)


def die(text):
    sys.exit("cpu_estimate.py: " + text)


@functools.lru_cache(maxsize=None)
def newest(tool):
    """The program with the highest number, as Debian names them."""
    for number in range(40, 13, -1):
        if shutil.which(f"{tool}-{number}"):
            return f"{tool}-{number}"
    if shutil.which(tool) is None:
        die(f"{tool} is missing (Debian: llvm)")
    return tool


def is_x86(isa):
    return isa in X86


def program_of(isa):
    return os.path.join(BUILD, "static" if is_x86(isa) else "aarch64", "bench_work")


# ---- counting ----

@functools.lru_cache(maxsize=None)
def plugin_for(emulator):
    """count_blocks.c, compiled for this emulator's interface."""
    if shutil.which(emulator) is None:
        die(f"{emulator} is missing (Debian: qemu-user)")
    about = subprocess.run([emulator, "--version"], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"version (\d+)", about)
    version = 1 if found and int(found.group(1)) < 9 else 2
    source = os.path.join(os.path.dirname(__file__), "count_blocks.c")
    name = os.path.join(BUILD, "count_blocks.so")
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", f"-DPLUGIN_VERSION={version}", source, "-o",
                    name], check=True)
    return name


def address(program, name):
    out = subprocess.run(["nm", program], stdout=subprocess.PIPE, check=True, text=True).stdout
    found = re.search(rf"^([0-9a-f]+) [tT] {name}$", out, re.M)
    return int(found.group(1), 16) if found else die(f"{program} has no {name}")


def parse_counts(lines):
    """Counts by part and address, and the last instruction of each block."""
    counts = [collections.Counter() for _ in PARTS]
    ends = {}
    for line in lines:
        word = line.split()
        if word[0] == "n":
            counts[int(word[1])][int(word[2], 16)] = int(word[3])
        else:
            ends[int(word[1], 16)] = int(word[2], 16)
    if not all(counts):
        die("no blocks of instructions were counted")
    return counts, ends


def count(isa, model):
    """Executed blocks of the parts, from a file beside the program or from qemu."""
    program = program_of(isa)
    kept = f"{program}.{isa}.{os.path.basename(model)}"
    if not os.path.exists(kept) or os.path.getmtime(kept) < os.path.getmtime(program):
        emulator = "qemu-x86_64" if is_x86(isa) else "qemu-aarch64"
        plugin = f"{plugin_for(emulator)},mark={address(program, 'work_mark'):x},out={kept}.part"
        command = [emulator, "-cpu", "max", "-plugin", plugin, program, "count", model, isa]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            die(" ".join(command) + " has failed")
        os.rename(kept + ".part", kept)
    with open(kept) as lines:
        return parse_counts(lines)


def facts(command, model, isa):
    """What bench_work prints: numbers by name."""
    out = subprocess.run([program_of("avx2"), command, model, isa], stdout=subprocess.PIPE,
                         text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def whole(counts, about):
    """Executed blocks of whole stages. The work of an encoder of L layers for P positions is a P +
    L (b P + q P^2)."""
    part = dict(zip(PARTS, counts))
    layers, positions = about["layers"], about["positions"]
    encoder = {}
    for pc in part["layer2"] | part["layer1wide"]:
        one, two, wide = (part[name][pc] for name in ("layer1", "layer2", "layer1wide"))
        layer = two - one
        front = one - layer
        q = (wide - 2 * front - 2 * layer) / (2 * PART ** 2)
        b = (layer - q * PART ** 2) / PART
        encoder[pc] = front / PART * positions + layers * (b * positions + q * positions ** 2)
    return {
        "mel": part["mel"], "encoder": encoder, "token": part["token"],
        "cross": {pc: n * positions / PART for pc, n in part["cross"].items()},
        "detector": {pc: n * DETECTOR for pc, n in part["detector"].items()},
    }


# ---- cycles ----

@functools.lru_cache(maxsize=None)
def disassemble(program, x86):
    """Instructions as an assembler reads them, functions, and targets of branches by address."""
    tool = newest("llvm-objdump")
    out = subprocess.run([tool, "-d", "--no-show-raw-insn", program], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    code, function, target, name = {}, {}, {}, ""
    for line in out.splitlines():
        found = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
        if found:
            name = found.group(1)
            continue
        found = re.match(r"^ *([0-9a-f]+):\s+(\S.*)$", line)
        if found:
            at = int(found.group(1), 16)
            code[at] = readable(found.group(2), x86)
            function[at] = name
            goal = re.search(r"\b0x([0-9a-f]+) <", line)
            if goal:
                target[at] = int(goal.group(1), 16)
    return code, function, target


def readable(text, x86):
    """An instruction without what an assembler does not know."""
    text = re.sub(r"\s*<[^>]*>", "", text).strip()
    if x86:
        return re.sub(r"\s*#.*", "", text)
    text = re.sub(r"\s*//.*", "", text)
    if re.match(r"(b|bl|b\.\w+|cbn?z|tbn?z|adrp?)\s", text):
        text = re.sub(r"(#?)0x[0-9a-f]+$|(?<=\s)[0-9a-f]{6,}$", "#0", text)
    return text


def is_call(text):
    return re.match(r"(call|ret|bl|blr|jmpq?\s+\*|svc|syscall|br)\b", text) is not None


def is_branch(text):
    return is_call(text) or re.match(r"(j\w+|loop\w*|b|b\.\w+|cbn?z|tbn?z)\s", text) is not None


def following(counts, ends, code, target):
    """Blocks that are computed with the one before: where the emulator ended one at the end of a
    page, and where as often as the one before, a block comes behind it or a branch ahead leads to
    it. Loops with branches inside are then one block, as they should be."""
    at = sorted(code)
    after = dict(zip(at, at[1:]))
    times = {pc: tuple(part[pc] for part in counts) for pc in ends}
    found, taken = {}, set()
    for pc in sorted(ends):
        end = ends[pc]
        choices = [after.get(end), target.get(end)]
        if end in code and not is_branch(code[end]):
            found[pc] = after.get(end)
            continue
        for choice in choices if end in code and not is_call(code[end]) else ():
            if choice in times and choice > pc and choice not in taken and \
                    any(times[pc]) and times[choice] == times[pc]:
                found[pc] = choice
                taken.add(choice)
                break
    return found


def join(stages, found):
    """Each block as often as it is executed without the one before."""
    joined = {}
    for stage, blocks in stages.items():
        joined[stage] = dict(blocks)
        for pc, n in blocks.items():
            if found.get(pc) in blocks:
                joined[stage][found[pc]] -= n
    return joined


def block_text(code, ends, parts, first):
    """The instructions of a block and of those computed with it, but calls."""
    text = []
    while first in ends:
        text += [code[at] for at in range(first, ends[first] + 1)
                 if at in code and not is_call(code[at])]
        first = parts.get(first)
    return text


def limit(region, resources):
    """What a block waits for: a unit that is busy, or the width of the core, or results."""
    view, totals = region["SummaryView"], collections.Counter()
    n = len(region["Instructions"])
    for info in region["ResourcePressureView"]["ResourcePressureInfo"]:
        if info["InstructionIndex"] == n:
            totals[resources[info["ResourceIndex"]]] += info["ResourceUsage"]
    cycles = view["TotalCycles"] / view["Iterations"]
    width = view["TotaluOps"] / view["TotalCycles"] / view["DispatchWidth"]
    name, busy = totals.most_common(1)[0] if totals else ("", 0.0)
    if busy / cycles >= 0.85:
        return re.sub(r"\W.*", "", name)
    return "width" if width >= 0.85 else "results"


def analyse(blocks, cpu, x86):
    """Of blocks of instructions by llvm-mca: cycles, what they wait for, cycles without waiting for
    results, and operations."""
    # With // of AArch64, LLVM 14 sees no marks.
    text = "".join(f"# LLVM-MCA-BEGIN b{i}\n" + "\n".join(block) + f"\n# LLVM-MCA-END b{i}\n"
                   for i, block in enumerate(blocks))
    command = [newest("llvm-mca"), "-mtriple=" + ("x86_64" if x86 else "aarch64") + "-linux-gnu",
               "-mcpu=" + cpu, "-json", "-iterations=200"]
    if not x86:
        command.append("-mattr=+dotprod,+i8mm")
    if "skip-unsupported" in subprocess.run([command[0], "--help-hidden"], stdout=subprocess.PIPE,
                                            text=True).stdout:
        command.append("-skip-unsupported-instructions=any")
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)
    if result.returncode != 0:
        die(f"{' '.join(command)}: {result.stderr[:500]}")
    parsed = json.loads(result.stdout)
    resources = parsed["TargetInfo"]["Resources"]
    found = [(0.0, "", 0.0, 0.0)] * len(blocks)
    for region in parsed["CodeRegions"]:
        view = region["SummaryView"]
        cycles = view["TotalCycles"] / view["Iterations"]
        found[int(region["Name"][1:])] = (cycles, limit(region, resources),
                                          min(cycles, view["BlockRThroughput"]),
                                          view["TotaluOps"] / view["Iterations"])
    return found


def products(block):
    return sum(next((n for pattern, n in PRODUCTS if pattern.match(text)), 0) for text in block)


def peak(isa, cpu):
    """Multiply-accumulates a cycle at most."""
    if PEAKS[isa] is None:
        return 0.0
    block = [line.format(i, i + 6).replace(" ", "\t", 1) for line in PEAKS[isa] for i in range(6)]
    return products(block) / analyse([block], cpu, is_x86(isa))[0][0]


def trips(executed, ends, parts, code, target):
    """How often a loop of one block is repeated before it ends, when what comes behind it is
    executed. 1 for other blocks."""
    at = sorted(code)
    after = dict(zip(at, at[1:]))
    found = {}
    for first, n in executed.items():
        last = first
        while parts.get(last) in ends:
            last = parts[last]
        end = ends.get(last)
        if target.get(end) == first:
            left = executed.get(after.get(end), 0)
            found[first] = max(1.0, n / left) if left > 0 else n
    return found


class Work:
    """What an instruction set executes for a model, and the cycles of it on a core."""

    def __init__(self, isa, model):
        self.isa = isa
        self.code, self.function, target = disassemble(program_of(isa), is_x86(isa))
        self.about = facts("about", model, "scalar")
        counts, self.ends = count(isa, model)
        parts = following(counts, self.ends, self.code, target)
        executed = whole(counts, self.about)
        self.stages = join(executed, parts)
        self.text = {pc: block_text(self.code, self.ends, parts, pc)
                     for pc in set().union(*self.stages.values())}
        self.blocks = sorted(set().union(*(self.most(stage) for stage in self.stages)))
        self.trips = {stage: trips(executed[stage], self.ends, parts, self.code, target)
                      for stage in self.stages}

    def most(self, stage):
        """The blocks with all but MINOR of a stage's executed instructions."""
        executed = sorted(((n * len(self.text[pc]), pc) for pc, n in self.stages[stage].items()
                           if n > 0 and self.text[pc]), reverse=True)
        left, chosen = (1.0 - MINOR) * sum(n for n, _ in executed), []
        for n, pc in executed:
            if left <= 0.0:
                break
            chosen.append(pc)
            left -= n
        return chosen

    @functools.lru_cache(maxsize=None) # cores share models of LLVM, and tables ask again
    def analysed(self, cpu):
        return dict(zip(self.blocks, analyse([self.text[pc] for pc in self.blocks], cpu,
                                             is_x86(self.isa))))

    @functools.lru_cache(maxsize=None)
    def on(self, cpu, sees):
        """Cycles of each stage, those of them in blocks with products, what most of them wait for,
        and by stage the cycles and limit of each block."""
        cycles, reading, limits, found = {}, {}, {}, {}
        for stage, blocks in self.stages.items():
            waits, reading[stage], found[stage] = collections.Counter(), 0.0, {}
            for pc, (waiting, why, least, ops) in self.analysed(cpu).items():
                n = blocks.get(pc, 0)
                seen = min(1.0, ops * self.trips[stage].get(pc, 1.0) / sees) if sees else 1.0
                one = max(least, waiting * seen)
                found[stage][pc] = one, "width" if why == "results" and one <= least else why
                waits[found[stage][pc][1]] += n * one
                reading[stage] += n * one if products(self.text[pc]) else 0.0
            cycles[stage] = sum(waits.values())
            limits[stage] = waits.most_common(1)[0][0]
        return cycles, reading, limits, found

    def loops(self, stage, found, most=3): # found: of this stage
        """The blocks with most of a stage's products: function, products, cycles, limit, and their
        share of the cycles."""
        total = sum(n * found[pc][0] for pc, n in self.stages[stage].items() if pc in found)
        rows = sorted(((n * products(self.text[pc]), pc) for pc, n in self.stages[stage].items()
                       if pc in found), reverse=True)[:most]
        return [(self.function[pc], products(self.text[pc]), *found[pc],
                 self.stages[stage][pc] * found[pc][0] / total) for n, pc in rows if n > 0.5]

    def functions(self, stage, found, most=8):
        """The functions with most cycles of a stage, and their shares."""
        cycles = collections.Counter()
        for pc, n in self.stages[stage].items():
            if pc in found:
                cycles[self.function[pc]] += n * found[pc][0]
        total = sum(cycles.values())
        return [(name, n / total) for name, n in cycles.most_common(most)]


# ---- tables ----

def times(core, cycles, reading, about, threads):
    """ms of each stage, and whether memory limits it."""
    moved = {"encoder": about["encoder_bytes"], "token": about["token_bytes"]}
    ms, memory = {}, {}
    for stage in STAGES:
        compute = cycles[stage] / core.ghz / 1e6
        if stage != "detector": # one thread hears it
            compute /= threads
        waits = reading[stage] / cycles[stage] * compute if stage == "token" else compute
        bytes_ms = moved.get(stage, 0.0) / core.gbs / 1e6
        ms[stage] = compute + max(0.0, bytes_ms - waits)
        if stage == "token" and threads > 1:
            ms[stage] += about["decoder_layers"] * REGIONS * REGION_US / 1e3
        memory[stage] = bytes_ms > compute / 2 and bytes_ms > waits
    return ms, memory


def print_estimate(work, model, size):
    print(f"\n{model}: a prediction. Real-time factors are those of 30 s of speech with {TOKENS} "
          f"tokens; live is the part\nof the time that an encoder run and 25 tokens each second "
          f"take (build/listen --commit 1000).\n")
    print(f"{'core':17}{'code':10}{'threads':>7}{'encoder ms':>11}{'token ms':>9}{'clip s':>7}"
          f"{'times real time':>16}{'live':>6}{'MB':>5}  limits: encoder, token")
    for core in CORES:
        if core.isa not in work:
            continue
        about = work[core.isa].about
        cycles, reading, limits, _ = work[core.isa].on(core.cpu, core.sees)
        for threads in (1, core.cores):
            ms, memory = times(core, cycles, reading, about, threads)
            clip = sum(ms[s] for s in STAGES if s != "token") + TOKENS * ms["token"]
            live = ms["mel"] + ms["encoder"] + ms["cross"] + ms["detector"] / 30 + 25 * ms["token"]
            why = ["memory" if memory[s] else limits[s] for s in ("encoder", "token")]
            print(f"{core.name:17}{core.isa:10}{threads:7}{ms['encoder']:11.0f}{ms['token']:9.2f}"
                  f"{clip / 1e3:7.2f}{30e3 / clip:16.1f}{live / 1e3:6.2f}"
                  f"{(size + about['session_bytes']) / 1e6:5.0f}  {', '.join(why)}")


def print_loops(work, model):
    print(f"\n{model}: loops with most products; multiply-accumulates a cycle\n")
    print(f"{'core':17}{'stage':9}{'function':27}{'a cycle':>8}{'peak':>6}{'share':>7}"
          f"{'of stage':>10}  limit")
    for core in CORES:
        if core.isa not in work:
            continue
        most = peak(core.isa, core.cpu)
        found = work[core.isa].on(core.cpu, core.sees)[3]
        for stage in ("encoder", "token"):
            for name, macs, cycles, why, part in work[core.isa].loops(stage, found[stage]):
                print(f"{core.name:17}{stage:9}{name:27}{macs / cycles:8.1f}{most:6.1f}"
                      f"{macs / cycles / most:7.0%}{part:10.0%}  {why}")
        for stage in ("encoder", "token"):
            print(f"{'':17}{stage}: " + ", ".join(
                f"{name} {part:.0%}" for name, part in
                work[core.isa].functions(stage, found[stage])))


def print_validation(work, model, path):
    """Predictions for this machine beside measurements."""
    print(f"\n{model} on this machine, one thread: predicted and measured\n")
    print(f"{'code':10}{'stage':10}{'predicted ms':>13}{'measured ms':>12}{'error':>8}")
    for isa in X86:
        if isa not in work:
            continue
        measured = facts("time", path, isa)
        core = Core("", "native", isa, measured["clock"], measured["bandwidth"], 1, HERE_SEES)
        cycles, reading, _, _ = work[isa].on("native", core.sees)
        ms, _ = times(core, cycles, reading, measured, 1)
        ms["detector"] /= DETECTOR
        for stage in STAGES:
            print(f"{isa:10}{stage:10}{ms[stage]:13.2f}{measured[stage]:12.2f}"
                  f"{ms[stage] / measured[stage] - 1:8.0%}")
    print(f"clock {measured['clock']:.2f} GHz")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", help="only these instruction sets, with commas between them")
    parser.add_argument("--loops", action="store_true", help="only the loops")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    a = parser.parse_args()
    mca = newest("llvm-mca")
    sets = a.isa.split(",") if a.isa else sorted({core.isa for core in CORES} | {"scalar"})
    version = subprocess.run([mca, "--version"], stdout=subprocess.PIPE, text=True).stdout
    print("llvm-mca:", version.split("\n")[0].strip())
    for path in a.models:
        model = os.path.basename(path)
        work = {isa: Work(isa, path) for isa in sets}
        if not a.loops:
            print_validation(work, model, path)
        print_loops(work, model)
        if not a.loops:
            print_estimate(work, model, os.path.getsize(path))


if __name__ == "__main__":
    main()
