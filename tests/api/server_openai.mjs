// OpenAI's own Node SDK against build/server: usage: node server_openai.mjs URL WAV BAD_WAV LONG_WAV
// RAW, of which the last is 16 bits at 24 kHz. Prints one line of JSON with what was received. NODE_MODULES names the directory with "openai".
import assert from "node:assert";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(path.resolve(process.env.NODE_MODULES), "x.js"));
const { OpenAI, APIError } = require("openai");
const [url, wav, bad, long, raw] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "sesame", baseURL: url + "/v1", maxRetries: 0 });
const ask = (more, file = wav) => client.audio.transcriptions.create(
    { file: fs.createReadStream(file), model: "whisper-1", ...more });
const got = {};

got.json = (await ask({})).text;
for (const format of ["text", "srt", "vtt"]) {
    got[format] = await ask({ response_format: format });
}
got.verbose = await ask({ response_format: "verbose_json",
                          timestamp_granularities: ["word", "segment"] });
got.diarized = await ask({ response_format: "diarized_json" });
got.logprobs = (await ask({ include: ["logprobs"] })).logprobs.length;
got.models = (await client.models.list()).data.map(m => m.id);

const events = [];
for await (const event of await ask({ stream: true })) {
    events.push(event);
}
got.deltas = events.filter(e => e.type === "transcript.text.delta").map(e => e.delta).join("");
assert.equal(events.at(-1).type, "transcript.text.done");
assert.equal(events.at(-1).text, got.deltas);

const error = await ask({}, bad).then(() => assert.fail("bad audio"), e => e);
assert(error instanceof APIError && error.status === 400 && error.param === "file", error);
const stranger = new OpenAI({ apiKey: "x", baseURL: url + "/v1", maxRetries: 0 });
const refused = await stranger.models.list().then(() => assert.fail("a wrong key"), e => e);
assert.equal(refused.status, 401);

const controller = new AbortController();
setTimeout(() => controller.abort(), 500);
const aborted = await client.audio.transcriptions.create(
    { file: fs.createReadStream(long), model: "whisper-1" }, { signal: controller.signal })
    .then(() => assert.fail("not aborted"), e => e);
assert.equal(aborted.name === "AbortError" || aborted instanceof OpenAI.APIUserAbortError, true);

/* Realtime transcription, with what Node has as WebSocket: 20 with --experimental-websocket. The
 * SDK takes no address but wss:, as README.md says. */
async function realtime(samples) {
    const { OpenAIRealtimeWebSocket } = require("openai/realtime/websocket");
    globalThis.WebSocket = class extends WebSocket {
        constructor(url, protocols) { super(String(url).replace("wss:", "ws:"), protocols); }
    };
    const socket = new OpenAIRealtimeWebSocket({ model: "gpt-realtime" }, client);
    const seen = [];
    socket.on("event", event => seen.push(event.type));
    const next = name => new Promise((done, failed) => {
        socket.once(name, done);
        socket.once("error", failed);
    });
    await next("session.created");
    socket.send({ type: "session.update", session: { type: "transcription", audio: { input: {
        format: { type: "audio/pcm", rate: 24000 }, turn_detection: null,
        transcription: { model: "whisper-1", language: "en" } } } } });
    assert.equal((await next("session.updated")).session.type, "transcription");
    for (let i = 0; i < samples.length; i += 24000) {
        socket.send({ type: "input_audio_buffer.append",
                      audio: samples.subarray(i, i + 24000).toString("base64") });
    }
    const named = [next("conversation.item.added"), next("conversation.item.done")];
    const text = next("conversation.item.input_audio_transcription.completed");
    socket.send({ type: "input_audio_buffer.commit" });
    const [added, done] = await Promise.all(named), completed = await text;
    assert.deepEqual([added.item.id, done.item.id], Array(2).fill(completed.item_id));
    socket.close();
    return completed.transcript;
}
if (globalThis.WebSocket && raw) {
    got.realtime = await realtime(fs.readFileSync(raw));
}
console.log(JSON.stringify(got));
