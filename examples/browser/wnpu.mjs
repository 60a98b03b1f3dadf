// wnpu.mjs - speech to text in a page, a worker or node, with models of OpenAI's Whisper:
//
//     import { open } from "./wnpu.mjs";
//     const speech = await open({ model: "ggml-tiny.bin" });
//     const { text, segments } = await speech.transcribe(samples); // 16 kHz, mono, Float32Array
//     const subtitles = await speech.write("srt");
//
// wnpu.d.ts describes everything. Nothing leaves the computer; what is fetched is the module beside
// this file and the model that you name. Audio is transcribed in workers.
import { SpeechError, hasSimd, serve } from "./engine.mjs";

export { SpeechError, hasSimd };

const node = typeof process === "object" && Boolean(process.versions?.node);

async function digest(bytes) {
    const subtle = globalThis.crypto?.subtle ?? // node 18 has it elsewhere
        (node ? (await import("node:crypto")).webcrypto.subtle : undefined);
    if (subtle === undefined) {
        throw new SpeechError("browsers compute checksums on https or localhost only", "unsupported");
    }
    const hash = new Uint8Array(await subtle.digest("SHA-256", bytes));
    return Array.from(hash, byte => byte.toString(16).padStart(2, "0")).join("");
}

async function verified(bytes, source, sha256) {
    if (sha256 !== undefined && await digest(bytes) !== sha256.toLowerCase()) {
        throw new SpeechError(`${source} is damaged, or another file: its SHA-256 is not ${sha256}`,
                              "bad model file");
    }
    return bytes;
}

async function download(url, { onProgress, signal }) {
    const answer = await fetch(url, { signal }).catch(error => {
        throw error.name === "AbortError" ? error :
            new SpeechError(`${url} cannot be fetched: ${error.message}`, "input or output failed");
    });
    if (!answer.ok) {
        throw new SpeechError(`${url}: ${answer.status} ${answer.statusText}`,
                              "input or output failed");
    }
    const encoded = answer.headers.get("content-encoding") !== null;
    const total = encoded ? 0 : Number(answer.headers.get("content-length"));
    const parts = [];
    let done = 0;
    for (const reader = answer.body.getReader(); ;) {
        const { done: ended, value } = await reader.read();
        if (ended) {
            break;
        }
        parts.push(value);
        done += value.length;
        onProgress?.(done, total || null);
    }
    if (total > 0 && done !== total) {
        throw new SpeechError(`${url} ended after ${done} of ${total} bytes`,
                              "input or output failed");
    }
    return new Blob(parts).arrayBuffer();
}

const address = source => node ? String(source) : new URL(source, location.href).href;

const cacheOf = async options => options.cache && typeof caches === "object" ?
    caches.open(options.cache).catch(() => null) : null;

/* The bytes of a model; of a URL also from the Cache API, and into it. */
export async function loadModel(source, options = {}) {
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
        const bytes = source instanceof ArrayBuffer ? source :
            source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength);
        return verified(bytes, "the model", options.sha256);
    }
    if (source instanceof Blob) {
        return verified(await source.arrayBuffer(), source.name ?? "the model", options.sha256);
    }
    if (node && !/^https?:/.test(source)) {
        const { readFile } = await import("node:fs/promises");
        const data = await readFile(source);
        return verified(data.buffer.slice(data.byteOffset, data.byteOffset + data.length), source,
                        options.sha256);
    }
    const url = address(source), cache = await cacheOf(options);
    const kept = await cache?.match(url);
    if (kept) {
        try {
            return await verified(await kept.arrayBuffer(), url, options.sha256);
        } catch {
            await cache.delete(url); // fetched again below
        }
    }
    const bytes = await verified(await download(url, options), url, options.sha256);
    await cache?.put(url, new Response(bytes)).catch(() => undefined); // no room: works without
    return bytes;
}

/* {postMessage, onmessage, close} of a worker, or of an engine in this thread. */
async function connect(inWorker) {
    if (!inWorker) {
        const { port1, port2 } = new MessageChannel();
        serve(port2);
        const port = { postMessage: (message, move) => port1.postMessage(message, move),
                       close: () => { port1.close(); port2.close(); } };
        port1.onmessage = ({ data }) => port.onmessage(data);
        return port;
    }
    if (node) {
        const { Worker } = await import("node:worker_threads");
        const worker = new Worker(new URL("./worker.mjs", import.meta.url));
        const port = { postMessage: (message, move) => worker.postMessage(message, move),
                       close: () => worker.terminate() };
        worker.on("message", data => port.onmessage(data));
        worker.on("error", error => port.onerror(error));
        return port;
    }
    const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
    const port = { postMessage: (message, move) => worker.postMessage(message, move),
                   close: () => worker.terminate() };
    worker.onmessage = ({ data }) => port.onmessage(data);
    worker.onerror = event => port.onerror(new Error(event.message || "the worker cannot start"));
    return port;
}

/* What transcribe() takes, as {samples, rate, channels} or {wav}. */
function recording(audio) {
    if (audio instanceof ArrayBuffer) {
        return { wav: new Uint8Array(audio) };
    }
    if (audio instanceof Uint8Array) {
        return { wav: audio };
    }
    if (audio instanceof Float32Array) {
        return { samples: audio, rate: 16000, channels: 1 };
    }
    if (typeof audio?.getChannelData === "function") { // an AudioBuffer
        const n = audio.numberOfChannels, samples = new Float32Array(audio.length * n);
        for (let c = 0; c < n; c++) {
            const channel = audio.getChannelData(c);
            for (let i = 0; i < channel.length; i++) {
                samples[i * n + c] = channel[i];
            }
        }
        return { samples, rate: audio.sampleRate, channels: n };
    }
    if (audio?.samples instanceof Float32Array) {
        return { rate: 16000, channels: 1, ...audio };
    }
    throw new SpeechError("a recording is a Float32Array, {samples, rate, channels}, an AudioBuffer, " +
        "or the bytes of a WAV file", "bad argument");
}

class Speech {
    #port;
    #stopped;
    #calls = 0;
    #waiting = new Map();
    #listeners = null; // of the run
    #busy = null;      // what is going on
    #dead = null;

    constructor(port, stopped) {
        this.#port = port;
        this.#stopped = stopped;
        port.onmessage = message => this.#receive(message);
        port.onerror = error => this.#end(new SpeechError(error.message, "worker"));
    }

    #receive(message) {
        if (message.event !== undefined) {
            this.#listeners?.(message);
            return;
        }
        const { done, fail } = this.#waiting.get(message.id);
        this.#waiting.delete(message.id);
        if (message.error) {
            fail(new SpeechError(message.error.message, message.error.code));
        } else {
            done(message.value);
        }
    }

    #end(error) {
        this.#dead ??= error;
        for (const { fail } of this.#waiting.values()) {
            fail(this.#dead);
        }
        this.#waiting.clear();
    }

    #request(name, argument, move = []) {
        if (this.#dead !== null) {
            return Promise.reject(this.#dead);
        }
        return new Promise((done, fail) => {
            const id = ++this.#calls;
            this.#waiting.set(id, { done, fail });
            this.#port.postMessage({ id, name, argument }, move);
        });
    }

    #begin(what) {
        if (this.#busy !== null) {
            throw new SpeechError(`${this.#busy} is going on; wait for its end`, "wrong state");
        }
        this.#busy = what;
    }

    async start(options) {
        this.info = Object.freeze(await this.#request("start", options, [options.model]));
    }

    async transcribe(audio, { onProgress, onSegment, onText, signal, ...params } = {}) {
        const given = recording(audio);
        signal?.throwIfAborted();
        this.#begin("a transcription");
        const cancel = () => {
            if (this.#stopped !== null) {
                Atomics.store(this.#stopped, 0, 1);
            } else {
                this.#port.postMessage({ name: "cancel" });
            }
        };
        if (this.#stopped !== null) {
            Atomics.store(this.#stopped, 0, 0);
        }
        signal?.addEventListener("abort", cancel);
        this.#listeners = message => {
            switch (message.event) {
            case "progress": onProgress?.(message.done, message.total); break;
            case "segment": onSegment?.(message.segment); break;
            case "text": onText?.(message.text, message.restart); break;
            }
        };
        try {
            const { json, ...rest } = await this.#request("transcribe", { ...given, params });
            return { ...JSON.parse(json), ...rest, json };
        } finally {
            signal?.removeEventListener("abort", cancel);
            this.#listeners = this.#busy = null;
        }
    }

    async listen({ rate = 16000, stepMs = 500, onSegment, onLive, onError, ...params } = {}) {
        this.#begin("a live run");
        if (this.#stopped !== null) {
            Atomics.store(this.#stopped, 0, 0);
        }
        this.#listeners = ({ event, ...message }) => {
            switch (event) {
            case "segment": onSegment?.(message.segment); break;
            case "live": onLive?.(message); break;
            case "failed": onError?.(new SpeechError(message.text, "live")); break;
            }
        };
        const end = () => { this.#listeners = this.#busy = null; };
        try {
            await this.#request("listen", { rate, stepMs, params });
        } catch (error) {
            end();
            throw error;
        }
        let open = true;
        return {
            push: samples => {
                if (open) {
                    this.#port.postMessage({ name: "push", argument: samples });
                }
            },
            finish: async () => {
                open = false;
                try {
                    const { json, ...rest } = await this.#request("finish");
                    return { ...JSON.parse(json), ...rest, json };
                } finally {
                    end();
                }
            },
            abandon: async () => {
                open = false;
                await this.#request("abandon");
                end();
            }
        };
    }

    write(format, { subtitles = false } = {}) {
        return this.#request("write", { format, subtitles });
    }

    selfTest() { return this.#request("selfTest"); }

    close() {
        this.#end(new SpeechError("closed", "wrong state"));
        this.#port.close();
    }
}

/* Logical CPUs, as far as the host tells. */
const cpus = async () => node ? (await import("node:os")).cpus().length :
    navigator.hardwareConcurrency ?? 1;

export async function open({ model, worker = true, simd, module, threads, ...loading } = {}) {
    if (model === undefined) {
        throw new SpeechError("no model: name its URL, or pass its bytes", "bad argument");
    }
    const bytes = await loadModel(model, loading);
    const shared = worker && typeof SharedArrayBuffer === "function" &&
        (node || globalThis.crossOriginIsolated);
    const stopped = shared ? new SharedArrayBuffer(4) : null;
    const speech = new Speech(await connect(worker), stopped && new Int32Array(stopped));
    try {
        await speech.start({ model: bytes, simd, module: module && String(module), stopped,
                             threads: shared ? threads ?? Math.min(await cpus(), 8) : 1 });
    } catch (error) {
        speech.close();
        if (error.code === "bad model file" && (typeof model === "string" || model instanceof URL)) {
            await (await cacheOf(loading))?.delete(address(model)); // next time it is fetched again
        }
        throw error;
    }
    return speech;
}
