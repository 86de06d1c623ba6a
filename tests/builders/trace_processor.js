// Perfetto's trace processor, as it runs in a browser's worker: requests from stdin, answers to stdout.
// node trace_processor.js <folder with engine_bundle.js and the .wasm files>
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const { stdin, stderr } = process;
const bundle = path.join(folder, "engine_bundle.js");

// What the bundle looks for to know that it is in a worker. It must not find node.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/", protocol: "http:", host: "localhost" };
globalThis.XMLHttpRequest = class {
  open(method, name) {
    this.name = name;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.name)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
};
console.log = console.warn = console.error = (...words) => stderr.write(words.join(" ") + "\n");
globalThis.process = undefined;

function write(bytes) {
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(1, bytes, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

vm.runInThisContext(fs.readFileSync(bundle, "utf8"), { filename: bundle });
const port = { onmessage: null, postMessage: write };
self.onmessage({ data: port });
// Loading it is synchronous, what follows on that is not.
setImmediate(async () => {
  for await (const piece of stdin) port.onmessage({ data: new Uint8Array(piece) });
});
