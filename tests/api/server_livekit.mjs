// LiveKit's agents with their OpenAI plugin against build/server: usage: node server_livekit.mjs URL
// RAW TURNS: a file of 16 bits at 24 kHz, which is sent as it would be said, and how many final texts
// to wait for. Prints one line of JSON: for each event with text, its type and text. LIVEKIT_MODULES
// names the directory with "@livekit".
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const module = name => import(pathToFileURL(
    path.join(path.resolve(process.env.LIVEKIT_MODULES), name, "dist/index.js")).href);
const [url, raw, turns] = process.argv.slice(2);
const { initializeLogger, stt } = await module("@livekit/agents");
const { AudioFrame } = await module("@livekit/rtc-node");
const { STT } = await module("@livekit/agents-plugin-openai");
initializeLogger({ pretty: false, level: "error" });

const recognizer = new STT({ baseURL: url + "/v1", apiKey: "sesame", model: "gpt-4o-transcribe" });
const stream = recognizer.stream();
const samples = new Int16Array(new Uint8Array(fs.readFileSync(raw)).buffer);
const events = [];
const reading = (async () => {
    for await (const event of stream) {
        if (event.alternatives?.length) {
            events.push([stt.SpeechEventType[event.type] ?? event.type, event.alternatives[0].text]);
        }
    }
})();
const frame = 1200, begin = Date.now(); /* 50 ms */
for (let at = 0; at + frame <= samples.length; at += frame) {
    await new Promise(done => setTimeout(done, begin + at / 24 - Date.now()));
    stream.pushFrame(new AudioFrame(samples.slice(at, at + frame), 24000, 1, frame));
}
const isFinal = ([kind]) => kind === "FINAL_TRANSCRIPT";
for (let i = 0; i < 600 && events.filter(isFinal).length < Number(turns); i++) {
    await new Promise(done => setTimeout(done, 100));
}
stream.close();
await Promise.race([reading, new Promise(done => setTimeout(done, 2000))]);
console.log(JSON.stringify(events));
process.exit(0);
