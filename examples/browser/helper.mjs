// helper.mjs - a thread of engine.mjs, in a worker: an instance of its module on the same memory.
const node = typeof process === "object" && Boolean(process.versions?.node);

function help({ compiled, memory, stack, helper }, say) {
    const imports = {};
    for (const { module, name } of WebAssembly.Module.imports(compiled)) {
        imports[module] ??= {};
        imports[module][name] = () => { throw new Error(`a helper calls ${name}()`); };
    }
    imports.env.memory = memory;
    imports.wnpu.clock = () => performance.now();
    const instance = new WebAssembly.Instance(compiled, imports);
    instance.exports.__stack_pointer.value = stack;
    say("ready");
    try {
        instance.exports.help(helper);
    } catch (error) {
        instance.exports.__stack_pointer.value = stack;
        instance.exports.lost(); // the caller is told instead of waiting for ever
        throw error;
    }
}

if (node) {
    const { parentPort } = await import("node:worker_threads");
    parentPort.once("message", data => help(data, text => parentPort.postMessage(text)));
} else {
    self.onmessage = ({ data }) => help(data, text => self.postMessage(text));
}
