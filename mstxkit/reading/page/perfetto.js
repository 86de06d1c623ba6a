"use strict";
// How Perfetto takes a trace: it answers PING with PONG once it is there, and then takes the bytes.
// Source: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
const origin = "https://ui.perfetto.dev", state = document.getElementById("state");
const button = document.getElementById("go");
function hand() {
  const other = window.open(origin);
  if (!other) { state.textContent = "The browser let no new tab open: allow it for this page, and try again."; return; }
  state.textContent = "Waiting for Perfetto ...";
  const ping = setInterval(() => other.postMessage("PING", origin), 100);
  const late = setTimeout(() => { clearInterval(ping); removeEventListener("message", listen);
    state.textContent =
    "Perfetto does not answer: this browser may not reach it. Download the trace, and open it there."; }, 20000);
  async function listen(event) {
    if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
    clearInterval(ping); clearTimeout(late); removeEventListener("message", listen);
    const answer = await fetch("trace").catch(() => null);
    if (!answer || !answer.ok) { state.textContent = "The trace could not be made: see its terminal."; return; }
    const buffer = await answer.arrayBuffer();
    other.postMessage({ perfetto: { buffer, title: document.title } }, origin);
    state.textContent = "Perfetto has the trace, in the other tab. It stays in this browser: nothing is uploaded.";
  }
  addEventListener("message", listen);
}
button.addEventListener("click", hand);
