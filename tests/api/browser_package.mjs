// browser_package.mjs - what test_browser.sh runs in node, in the folder where the package was
// installed: node browser_package.mjs TEST ARGUMENTS... It prints what is wrong.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(process.cwd() + "/").resolve("wnpu");
const { open, hasSimd, SpeechError } = await import(pathToFileURL(installed));

const check = (ok, text) => { if (!ok) { console.log(text); } };

/* The error of what should fail. */
async function error(promise) {
    try {
        await promise;
    } catch (found) {
        return found;
    }
    return { name: "none", message: "no error", code: "none" };
}

/* Samples of a WAV file of 16 bits, 16 kHz, mono with a header of 44 bytes. */
async function samples(wav) {
    const file = await readFile(wav);
    const words = new Int16Array(file.buffer.slice(file.byteOffset + 44,
                                                   file.byteOffset + file.length));
    return Float32Array.from(words, word => word / 32768);
}

function compare(found, want, what) {
    check(found === want, `${what}: another result: ${found.slice(0, 200)}`);
}

const tests = {
    async toy(model, wav, want) {
        const params = { vad: false, max_tokens: 8, temperature_step: 0 };
        const expected = await readFile(want, "utf8"), sound = await readFile(wav);
        check(hasSimd(), "this node has no SIMD");
        for (const [worker, simd, threads, working] of [
            [true, undefined, 3, 3], [true, undefined, 1, 1], [true, false, 2, 1], [false, true, 2, 1],
            [true, true, 99, 16]]) {
            const what = `worker ${worker}, simd ${simd}, threads ${threads}`;
            const speech = await open({ model, worker, simd, threads });
            check(speech.info.isa === (simd === false ? "scalar" : "simd128"), what);
            check(speech.info.threads === working, `${what}: ${speech.info.threads}`);
            await speech.selfTest();
            compare((await speech.transcribe(new Uint8Array(sound), params)).json, expected, what);
            compare((await speech.transcribe(await samples(wav), params)).json, expected,
                    what + ", samples");
            compare(await speech.write("json"), expected, what + ", written");
            check((await speech.write("vtt")).startsWith("WEBVTT"), what + ": no WebVTT");
            speech.close();
        }
    },

    async errors(model, wav, trapping, small) {
        const bytes = await readFile(model), sound = await samples(wav);
        const cases = [
            [{}, "bad argument", /no model/],
            [{ model: "/nowhere.bin" }, "ENOENT", /nowhere/],
            [{ model: new Uint8Array(1000) }, "bad model file", /./],
            [{ model: bytes.subarray(0, bytes.length / 2) }, "bad model file", /./],
            [{ model, sha256: "0".repeat(64) }, "bad model file", /damaged/],
            [{ model, module: pathToFileURL(wav) }, "CompileError", /WebAssembly/],
            [{ model, threads: 1, module: pathToFileURL(small) }, "out of memory", /cannot allocate/]
        ];
        delete globalThis.crypto; // as in node 18
        for (const [options, code, message] of cases) {
            const found = await error(open(options));
            check(found.code === code && message.test(found.message),
                  `not ${code} ${message}: ${found.code}: ${found.message}`);
        }
        const speech = await open({ model });
        for (const [recording, params, message] of [
            [sound, { beams: 5 }, /beams/], [sound, { beam: 99 }, /beam/], ["text", {}, /recording/],
            [new Uint8Array(100), {}, /WAV/i], [{ samples: sound, rate: 1 }, {}, /rate/]]) {
            const found = await error(speech.transcribe(recording, params));
            check(found instanceof SpeechError && found.code.startsWith("bad") &&
                  message.test(found.message), `not ${message}: ${found.code}: ${found.message}`);
        }
        const first = speech.transcribe(sound, { vad: false, max_tokens: 8 });
        check((await error(speech.transcribe(sound))).code === "wrong state", "two runs at once");
        check((await error(speech.listen())).code === "wrong state", "live beside a run");
        await first;
        check((await error(speech.write("odt"))).code === "bad argument", "a format called odt");
        const live = await speech.listen({ vad: false, max_tokens: 8 });
        live.push(sound);
        await live.abandon();
        await speech.transcribe(sound, { vad: false, max_tokens: 8, beam: 2,
                                         hotwords: ["pyridine", "Otto Klemperer"] });
        check((await error(speech.transcribe(sound, { languages: ["en", "xx"] }))).message
            .includes("xx"), "a language called xx");
        const last = speech.transcribe(sound);
        speech.close();
        check((await error(last)).message === "closed", "closed during a run");
        check((await error(speech.write("txt"))).message === "closed", "closed");
        const broken = await open({ model, threads: 2, module: pathToFileURL(trapping) });
        for (const call of [() => broken.selfTest(), () => broken.transcribe(sound),
                            () => broken.listen()]) {
            const found = await error(call());
            check(found.code === "RuntimeError" &&
                  /module failed: unreachable.*again/.test(found.message),
                  `a trap in a thread: ${found.code}: ${found.message}`);
        }
        broken.close();
        let told = "nothing";
        const deaf = await open({ model, threads: 2, module: pathToFileURL(trapping) });
        const hopeless = await deaf.listen({ onError: found => { told = found.message; } });
        hopeless.push(sound);
        check((await error(hopeless.finish())).code === "RuntimeError" &&
              /module failed/.test(told), `a trap in a live run: ${told}`);
        deaf.close();
    },

    /* MODEL, then WAV, JSON, JSON of a live run for each clip. */
    async clips(model, ...files) {
        const speech = await open({ model });
        for (let i = 0; i < files.length; i += 3) {
            const [wav, offline, live] = files.slice(i, i + 3), sound = await samples(wav);
            const heard = [], states = [];
            const result = await speech.transcribe(sound, {
                onSegment: segment => heard.push(segment.text) });
            compare(result.json, await readFile(offline, "utf8"), wav);
            check(heard.join("") === result.text, `${wav}: segments are not the text`);
            const run = await speech.listen({ onSegment: segment => heard.push(segment.text),
                                              onLive: state => states.push(state) });
            heard.length = 0;
            for (let at = 0, n = 700; at < sound.length; at += n, n = n % 9000 + 1700) {
                run.push(sound.slice(at, at + n));
                await new Promise(done => setTimeout(done, 1));
            }
            const ended = await run.finish();
            compare(ended.json, await readFile(live, "utf8"), wav + ", live");
            check(heard.join("") === ended.text, `${wav}: live segments are not the text`);
            check(states.length > 0 && states.at(-1).lost === 0, `${wav}: lost samples`);
        }
        speech.close();
    },

    /* Of several windows; JSON is that of a whole run. With shared memory and without. */
    async cancel(model, wav, json) {
        const sound = await samples(wav), whole = await readFile(json, "utf8");
        for (const worker of [true, false]) {
            const stop = new AbortController(), speech = await open({ model, worker });
            const result = await speech.transcribe(sound, {
                signal: stop.signal, onSegment: () => stop.abort() });
            check(result.cancelled && result.text.length > 0 &&
                  JSON.parse(whole).text.startsWith(result.text) &&
                  JSON.parse(whole).text !== result.text, `worker ${worker}: not cancelled`);
            compare((await speech.transcribe(sound)).json, whole, `after a cancel, ${worker}`);
            speech.close();
        }
    }
};

await tests[process.argv[2]](...process.argv.slice(3));
