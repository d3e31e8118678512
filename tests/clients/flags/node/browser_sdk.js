// unleash-proxy-client in headless Chromium: `browser_sdk.js URL TOKEN FLAG APPLICATION CHROMIUM`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { evaluate, withTab } from "../../node/chromium.js";
import { watch } from "./watch.js";

const [url, token, flag, appName, chromium] = process.argv.slice(2);
const entry = createRequire(import.meta.url).resolve("unleash-proxy-client");
const bundle = readFileSync(join(dirname(entry), "main.min.js"), "utf8");

await withTab(chromium, async (tab) => {
  // A page of another origin than the gateway's: each request is one of CORS, with a preflight.
  await tab.open("data:text/html,<title>flags</title>");
  await evaluate(tab, `${bundle}; window.bundle = typeof unleash; undefined`);
  const settings = { url: `${url}/api/frontend`, clientKey: token, appName, refreshInterval: 1, metricsInterval: 1 };
  await evaluate(
    tab,
    `(async () => {
      const settings = ${JSON.stringify(settings)};
      const storage = { values: {}, save: async (n, v) => { storage.values[n] = v; }, get: async (n) => storage.values[n] };
      window.client = new unleash.UnleashClient({ ...settings, storageProvider: storage });
      window.client.on("error", (error) => console.error(error));
      await window.client.start();
    })()`,
  );
  const isOn = () => evaluate(tab, `window.client.isEnabled(${JSON.stringify(flag)})`);
  await watch(isOn, () => evaluate(tab, "(async () => { await window.client.sendMetrics(); window.client.stop(); })()"));
});
