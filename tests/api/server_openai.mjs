// OpenAI's own Node SDK against build/server: usage: node server_openai.mjs URL WAV BAD_WAV LONG_WAV.
// Prints one line of JSON with what was received. NODE_MODULES names the directory with "openai".
import assert from "node:assert";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(path.resolve(process.env.NODE_MODULES), "x.js"));
const { OpenAI, APIError } = require("openai");
const [url, wav, bad, long] = process.argv.slice(2);
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
console.log(JSON.stringify(got));
