// Vercel's AI SDK, LangChain and OpenAI's SDK with the package ws against build/server: usage: node
// server_sdks.mjs URL WAV BAD_WAV RAW, of which the last is 16 bits at 24 kHz. Prints one line of
// JSON with what was received. NODE_MODULES names the directory with the packages; what is missing
// in it is left out.
import assert from "node:assert";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const modules = path.resolve(process.env.NODE_MODULES);
const require = createRequire(path.join(modules, "x.js"));
const load = name => import(pathToFileURL(require.resolve(name)).href).catch(() => null);
const has = name => fs.existsSync(path.join(modules, name));
const [url, wav, bad, raw] = process.argv.slice(2);
const options = { apiKey: "sesame", baseURL: url + "/v1" };
const got = {};

if (has("ai") && has("@ai-sdk/openai")) {
    const { experimental_transcribe, transcribe = experimental_transcribe } = await load("ai");
    const { createOpenAI } = await load("@ai-sdk/openai");
    const model = createOpenAI(options).transcription("whisper-1");
    const ask = (file, granularities) => transcribe({ model, audio: fs.readFileSync(file),
        maxRetries: 0, providerOptions: { openai: { timestampGranularities: granularities } } });
    for (const kind of ["word", "segment"]) {
        const r = await ask(wav, [kind]);
        got[`vercel_${kind}`] = { text: r.text, language: r.language, segments: r.segments.map(
            s => [s.text, s.startSecond, s.endSecond]), duration: r.durationInSeconds };
    }
    const error = await ask(bad, ["word"]).then(() => assert.fail("bad audio"), e => e);
    got.vercel_error = error.statusCode ?? error.cause?.statusCode ?? String(error);
}

if (has("@langchain/community")) {
    const { OpenAIWhisperAudio } = await load(
        "@langchain/community/document_loaders/fs/openai_whisper_audio");
    const loader = (file, more) => new OpenAIWhisperAudio(file, {
        clientOptions: { ...options, maxRetries: 0 }, ...more });
    got.langchain = (await loader(wav).load())[0].pageContent;
    got.langchain_error = (await loader(bad).load().then(() => assert.fail("bad audio"),
                                                         e => e)).status;
}

/* The class for the package ws: as README.md says, without TLS. */
if (has("ws")) {
    const { OpenAI } = require("openai");
    const { OpenAIRealtimeWS } = require("openai/realtime/ws");
    const socket = new OpenAIRealtimeWS({ model: "gpt-realtime-whisper", options: {
        createConnection: o => net.connect(o.port, o.host) } }, new OpenAI(options));
    const samples = fs.readFileSync(raw);
    const next = name => new Promise((done, failed) => {
        socket.once(name, done);
        socket.once("error", failed);
    });
    await next("session.created");
    socket.send({ type: "session.update", session: { type: "transcription", audio: { input: {
        format: { type: "audio/pcm", rate: 24000 },
        transcription: { model: "gpt-realtime-whisper", language: "en" } } } } });
    await next("session.updated");
    for (let i = 0; i < samples.length; i += 48000) {
        socket.send({ type: "input_audio_buffer.append",
                      audio: samples.subarray(i, i + 48000).toString("base64") });
    }
    const text = next("conversation.item.input_audio_transcription.completed");
    socket.send({ type: "input_audio_buffer.commit" });
    got.ws = (await text).transcript;
    socket.close();
}
console.log(JSON.stringify(got));
process.exit(0);
