// Opens a page in headless Chromium and prints what it keeps in `window.result`: `browser.js PROGRAM URL`. The browser is told
// what to do over two pipes, in the words of its own developer tools.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [program, url] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "weir-browser-"));
const words = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--ignore-certificate-errors",
  "--remote-debugging-pipe",
  `--user-data-dir=${folder}`,
  "about:blank",
];
const browser = spawn(program, words, { stdio: ["ignore", "ignore", "inherit", "pipe", "pipe"] });
const [, , , into, from] = browser.stdio;

const waiting = new Map();
const events = new Map();
let number = 0;
let rest = "";
from.on("data", (bytes) => {
  const messages = (rest + bytes).split("\0");
  rest = messages.pop();
  for (const message of messages.map((text) => JSON.parse(text))) {
    if (message.id) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(JSON.stringify(message.error)));
      else resolve(message.result);
    } else {
      events.get(message.method)?.(message.params);
    }
  }
});

function ask(method, params = {}, sessionId = undefined) {
  number += 1;
  into.write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
}

const ended = new Promise((resolve) => browser.on("exit", resolve));
try {
  const { targetId } = await ask("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await ask("Target.attachToTarget", { targetId, flatten: true });
  const loaded = new Promise((resolve) => events.set("Page.loadEventFired", resolve));
  await ask("Page.enable", {}, sessionId);
  const { errorText } = await ask("Page.navigate", { url }, sessionId);
  if (errorText) throw new Error(errorText);
  await loaded;
  const expression = "window.result.then(JSON.stringify)";
  const { result, exceptionDetails } = await ask("Runtime.evaluate", { expression, awaitPromise: true }, sessionId);
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  console.log(result.value);
  await ask("Browser.close");
  await ended;
} finally {
  browser.kill("SIGKILL");
  await ended;
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
}
