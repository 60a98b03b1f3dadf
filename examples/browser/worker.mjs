// worker.mjs - engine.mjs in a worker of a page or of node.
import { serve } from "./engine.mjs";

if (typeof self === "object" && typeof self.postMessage === "function") {
    serve(self);
} else {
    const { parentPort } = await import("node:worker_threads");
    const port = { postMessage: message => parentPort.postMessage(message), onmessage: null };
    parentPort.on("message", data => port.onmessage({ data }));
    serve(port);
}
