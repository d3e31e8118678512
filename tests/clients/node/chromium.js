// Headless Chromium, which is spoken to over two pipes in the words of its own developer tools.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

// Starts `program`, opens a tab, passes it to `use`, and ends the browser. The tab has `call(method, params)`, which resolves
// with the result of the method; `on(event, act)`, which has one act for each event; and `open(url)`, which resolves when the
// page is loaded.
export async function withTab(program, use) {
  const folder = mkdtempSync(join(tmpdir(), "weir-browser-"));
  const words = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--log-level=3",
    "--disable-background-networking",
    "--disable-component-update",
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
    `--user-data-dir=${folder}`,
    "about:blank",
  ];
  const browser = spawn(program, words, { stdio: ["ignore", "ignore", "inherit", "pipe", "pipe"] });
  const ended = new Promise((resolve) => browser.on("exit", resolve));
  try {
    const connection = connect(browser.stdio[3], browser.stdio[4]);
    const { targetId } = await connection.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await connection.call("Target.attachToTarget", { targetId, flatten: true });
    const call = (method, params = {}) => connection.call(method, params, sessionId);
    await call("Page.enable");
    const open = async (url) => {
      const loaded = new Promise((resolve) => connection.on("Page.loadEventFired", resolve));
      const { errorText } = await call("Page.navigate", { url });
      if (errorText) throw new Error(errorText);
      await loaded;
    };
    await use({ call, open, on: connection.on });
    await connection.call("Browser.close");
    await ended;
  } finally {
    browser.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
  }
}

function connect(into, from) {
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
  return {
    call(method, params = {}, sessionId = undefined) {
      number += 1;
      into.write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
      return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
    },
    on: (event, act) => events.set(event, act),
  };
}

// The value of an expression, which may be a promise.
export async function evaluate(tab, expression) {
  const params = { expression, awaitPromise: true, returnByValue: true };
  const { result, exceptionDetails } = await tab.call("Runtime.evaluate", params);
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  return result.value;
}
