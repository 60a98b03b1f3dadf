// engine.mjs - the module wnpu.wasm with one model and one session, behind a MessagePort: what
// wnpu.mjs talks to, in a worker (worker.mjs) or in the same thread.
//
// Requests are {id, name, argument}, answers {id, value} or {id, error}; events of a run come in
// between as {event, ...}. One request is worked on at a time, in order.

const node = typeof process === "object" && Boolean(process.versions?.node);
const INCOMPLETE = 1, CANCELLED = -6, TENTATIVE = 4, MORE = 32; // wnpu_status, wnpu_event
const QUEUE_SECONDS = 60; // of live audio that waits outside the module's memory

/* A function that counts bits of a vector that it loads atomically: valid only where 128-bit SIMD is,
 * and atomic instructions on memory that is not shared, which all such hosts have, too. */
const SIMD_PROBE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0,
    5, 3, 1, 0, 1, 10, 14, 1, 12, 0, 65, 0, 254, 16, 2, 0, 253, 15, 253, 98, 11]);

export const hasSimd = () => WebAssembly.validate(SIMD_PROBE);

export class SpeechError extends Error {
    constructor(message, code) {
        super(message);
        this.name = "SpeechError";
        this.code = code;
    }
}

async function compile(url) {
    if (node && String(url).startsWith("file:")) {
        const { readFile } = await import("node:fs/promises");
        return WebAssembly.compile(await readFile(new URL(url)));
    }
    const answer = await fetch(url);
    if (!answer.ok) {
        throw new SpeechError(`${url}: ${answer.status} ${answer.statusText}`, "module");
    }
    return WebAssembly.compile(await answer.arrayBuffer()); // whatever its type is said to be
}

/* Shared memory that grows as far as this host allows, at most to 4 GB; null if it allows none. */
function sharedMemory() {
    for (let maximum = 65536; maximum >= 2048; maximum /= 2) { // pages of 64 KB
        try {
            return new WebAssembly.Memory({ initial: 64, maximum, shared: true });
        } catch { /* then less */ }
    }
    return null;
}

/* A worker of helper.mjs that is ready. */
async function startHelper(work) {
    const url = new URL("./helper.mjs", import.meta.url);
    const Thread = node ? (await import("node:worker_threads")).Worker : Worker;
    const helper = new Thread(url, { type: "module" });
    helper.on ??= (name, call) => helper.addEventListener(name, call);
    await new Promise((done, fail) => {
        helper.on("message", done);
        helper.on("error", error => fail(new SpeechError("a thread cannot start: " +
            `${error.message ?? url}; threads: 1 needs none`, "worker")));
        helper.postMessage(work);
    });
}

/* Lets messages in. */
const breathe = () => new Promise(done => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
        port1.close();
        done();
    };
    port2.postMessage(0);
});

export class Engine {
    /* send: receives events; stopped: shared memory whose first int ends a run, or null. */
    constructor(send, stopped) {
        this.send = send;
        this.stopped = stopped;
        this.stop = false;         // the same without shared memory, between two windows
        this.output = [];
        this.source = null;        // {samples, at, channels}, what audio() delivers
        this.windowEnded = false;
        this.strings = [];         // of the parameters
        this.queue = [];           // live audio that has not been pushed
        this.queued = 0;           // its samples
        this.live = null;
    }

    async start({ model, simd, module, threads }) {
        const scalar = simd === false || (simd !== true && !hasSimd());
        const memory = threads > 1 && !scalar ? sharedMemory() : null;
        const name = scalar ? "wnpu_scalar.wasm" :
            memory !== null ? "wnpu_threads.wasm" : "wnpu.wasm";
        const compiled = await compile(module ?? new URL(name, import.meta.url));
        const nothing = () => 52; // WASI's ENOSYS: libc names these, nothing here calls them
        const instance = await WebAssembly.instantiate(compiled, {
            wnpu: this.imports(),
            wasi_snapshot_preview1: { fd_close: nothing, fd_seek: nothing, fd_write: nothing },
            env: { memory }
        });
        this.wasm = instance.exports;
        this.memory = this.wasm.memory ?? memory;
        const working = this.wasm.memory ? 1 : await this.hire(compiled, threads);
        this.model = new Uint8Array(model);
        this.memoryNeeded = this.wasm.measure(this.model.length);
        this.check(this.memoryNeeded < 0 ? this.memoryNeeded : 0);
        this.check(this.wasm.open(this.model.length));
        this.model = null;
        return { ...JSON.parse(this.collect(() => this.wasm.describe())), threads: working,
                 bytes: this.memory.buffer.byteLength };
    }

    /* Starts threads beside this one; returns how many there are in all. */
    async hire(compiled, threads) {
        const ready = [];
        for (let stack; ready.length + 1 < threads && (stack = this.wasm.hire()) !== 0;) {
            ready.push(startHelper({ compiled, memory: this.memory, stack, helper: ready.length }));
        }
        await Promise.all(ready);
        return ready.length + 1;
    }

    imports() {
        return {
            clock: () => performance.now(),
            model: (offset, to, size) => {
                const part = this.model.subarray(offset, offset + size);
                this.bytes().set(part, to);
                return part.length;
            },
            audio: (to, frames) => {
                const { samples, at, channels } = this.source;
                const part = samples.subarray(at, at + frames * channels);
                new Float32Array(this.memory.buffer, to, part.length).set(part);
                this.source.at += part.length;
                return part.length / channels;
            },
            output: (data, size) => this.output.push(this.bytes().slice(data, data + size)),
            log: (level, text, length) =>
                this.send({ event: "log", level, text: this.text(text, length) }),
            progress: (done, total) => {
                this.send({ event: "progress", done: done / 1000,
                            total: total < 0 ? null : total / 1000 });
                if (this.stopped !== null) {
                    return Atomics.load(this.stopped, 0);
                }
                const pause = this.windowEnded && this.source !== null;
                this.windowEnded = false;
                return pause ? 1 : 0; // breathe() lets a cancel in, then the run goes on
            },
            segment: index => {
                this.send({ event: "segment", segment: this.segment(index) });
                return 0;
            },
            token: (text, length, restart, complete) => {
                this.windowEnded = complete === 1;
                this.send({ event: "text", text: this.text(text, length), restart: restart === 1 });
                return 0;
            }
        };
    }

    bytes() { return new Uint8Array(this.memory.buffer); }

    text(at, length) { return new TextDecoder().decode(this.bytes().slice(at, at + length)); }

    /* What call writes to output(). */
    collect(call) {
        const before = this.output;
        this.output = [];
        call();
        const parts = this.output;
        this.output = before;
        const whole = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
        parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
        return new TextDecoder().decode(whole);
    }

    segment(index) { return JSON.parse(this.collect(() => this.wasm.write_segment(index))); }

    check(status) {
        if (status < 0) {
            const at = this.wasm.error_name(status), bytes = this.bytes();
            const name = this.text(at, bytes.indexOf(0, at) - at);
            const reason = this.collect(() => this.wasm.message());
            throw new SpeechError(reason || name, name);
        }
        return status;
    }

    /* A copy in the module's memory, to be given back. */
    put(data) {
        const at = this.wasm.take(Math.max(data.byteLength, 1));
        if (at === 0) {
            throw new SpeechError(`no memory for ${data.byteLength} bytes`, "out of memory");
        }
        this.bytes().set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
        return at;
    }

    putString(text) {
        const at = this.put(new TextEncoder().encode(text + "\0"));
        this.strings.push(at);
        return at;
    }

    setParams(params, live) {
        for (const at of this.strings.splice(0)) {
            this.wasm.give(at);
        }
        this.wasm.params_begin(live ? 1 : 0);
        for (const [name, value] of Object.entries(params ?? {})) {
            if (value !== undefined) {
                const text = Array.isArray(value) ? value.join("\n") : String(value);
                this.check(this.wasm.params_set(this.putString(name), this.putString(text)));
            }
        }
    }

    result(status) {
        return { json: this.collect(() => this.check(this.wasm.write_results(
                     this.putString("json"), 0))),
                 incomplete: status === INCOMPLETE, cancelled: status === CANCELLED };
    }

    /* Until the end of the run; without shared memory a window at a time. */
    async complete(status) {
        while (status === CANCELLED && this.stopped === null && !this.stop) {
            await breathe();
            if (!this.stop) {
                status = this.wasm.proceed();
            }
        }
        this.source = null;
        if (status !== CANCELLED) {
            this.check(status);
        }
        return this.result(status);
    }

    async transcribe({ samples, rate, channels, wav, params }) {
        this.stop = this.windowEnded = false;
        this.setParams(params, false);
        if (wav) {
            const at = this.put(wav);
            this.source = {};
            try {
                return await this.complete(this.wasm.run_wav(at, wav.byteLength));
            } finally {
                this.wasm.give(at);
            }
        }
        this.source = { samples, at: 0, channels };
        return this.complete(this.wasm.run(rate, channels, samples.length / channels));
    }

    listen({ rate, stepMs, params }) {
        this.setParams(params, true);
        this.check(this.wasm.live_begin(rate, stepMs));
        this.live = { rate, scheduled: false, failed: null };
        this.chunk = this.wasm.take(rate * 4); // a second
        this.queue = [];
        this.queued = 0;
    }

    /* Never answered: an error is that of finish(). */
    push(samples) {
        if (this.live !== null) {
            this.queue.push(samples);
            this.queued += samples.length;
            this.schedule();
        }
    }

    schedule() {
        if (!this.live.scheduled) {
            this.live.scheduled = true;
            breathe().then(() => {
                if (this.live !== null) {
                    this.live.scheduled = false;
                    this.step();
                }
            });
        }
    }

    /* Moves what waits into the module, as far as there is room. When this computer is so slow that
     * a minute waits, the rest is lost, as the ledger of the results says. */
    feed() {
        while (this.queue.length > 0) {
            const late = this.queued > QUEUE_SECONDS * this.live.rate;
            const part = this.queue[0].subarray(0, this.live.rate);
            if (!late && this.wasm.live_room() < part.length) {
                return;
            }
            this.bytes().set(new Uint8Array(part.buffer, part.byteOffset, part.byteLength),
                             this.chunk);
            this.wasm.live_push(this.chunk, part.length);
            this.queued -= part.length;
            this.queue[0] = this.queue[0].subarray(part.length);
            if (this.queue[0].length === 0) {
                this.queue.shift();
            }
        }
    }

    step() {
        if (this.live.failed !== null) {
            return;
        }
        let events;
        try {
            this.feed();
            events = this.wasm.live_step();
        } catch (error) {
            this.live.failed = error;
            this.send({ event: "failed", text: broken(error).message });
            return;
        }
        if (events < 0) {
            this.live.failed = events;
            this.send({ event: "failed", text: this.collect(() => this.wasm.message()) });
            return;
        }
        const state = JSON.parse(this.collect(() => this.wasm.live_state()));
        this.send({ event: "live", ...state, changed: (events & TENTATIVE) !== 0,
                    waiting: this.queued / this.live.rate });
        if (this.queue.length > 0 || (events & MORE) !== 0) {
            this.schedule();
        }
    }

    async finish() {
        while (this.queue.length > 0 && this.live.failed === null) {
            this.step();
            await breathe();
        }
        this.source = null;
        if (this.live.failed instanceof Error) {
            throw this.live.failed;
        }
        const status = this.live.failed ?? this.wasm.live_finish();
        this.endLive();
        this.check(status);
        return this.result(status);
    }

    abandon() {
        if (this.live !== null) {
            this.endLive();
            this.wasm.reset();
        }
    }

    endLive() {
        this.live = null;
        this.wasm.give(this.chunk);
    }

    write({ format, subtitles }) {
        return this.collect(() => this.check(this.wasm.write_results(this.putString(format),
                                                                     subtitles ? 1 : 0)));
    }

    selfTest() {
        this.check(this.wasm.self_test());
    }
}

/* What a caller is told of an error; a module that has trapped is of no further use. */
function broken(error) {
    return error instanceof WebAssembly.RuntimeError || error instanceof RangeError ?
        new SpeechError(`the module failed: ${error.message}; open it again`, "RuntimeError") : error;
}

/* Answers the requests that come through a port. */
export function serve(port) {
    const send = message => port.postMessage(message);
    let engine = null, dead = null, last = Promise.resolve();
    const answer = async ({ id, name, argument }) => {
        try {
            if (dead !== null) {
                throw dead;
            }
            if (name === "start") {
                const stopped = argument.stopped ? new Int32Array(argument.stopped) : null;
                engine = new Engine(send, stopped);
            }
            send({ id, value: await engine[name](argument) });
        } catch (error) {
            const told = broken(error);
            dead ??= told.code === "RuntimeError" ? told : null;
            send({ id, error: { message: told.message, code: told.code ?? told.name } });
        }
    };
    port.onmessage = ({ data }) => {
        if (data.name === "cancel") {
            engine.stop = true;
        } else if (data.name === "push") {
            engine.push(data.argument);
        } else {
            last = last.then(() => answer(data));
        }
    };
}
