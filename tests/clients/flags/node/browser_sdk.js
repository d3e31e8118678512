// unleash-proxy-client in headless Chromium: `browser_sdk.js URL TOKEN FLAG APPLICATION CHROMIUM`.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { evaluate, withTab } from "../../node/chromium.js";
import { watch } from "./watch.js";

const [url, token, flag, appName, chromium] = process.argv.slice(2);
const entry = createRequire(import.meta.url).resolve("unleash-proxy-client");
const bundle = readFileSync(join(dirname(entry), "main.min.js"), "utf8");

// The page has another origin than the gateway: each request is one of CORS, with a preflight. Chromium lets no page without an address
// of its own, such as one of a data: URL, send requests to this machine.
const page = createServer((_request, response) => {
  response.setHeader("content-type", "text/html");
  response.end("<title>flags</title>");
});
page.listen(0, "127.0.0.1");
await once(page, "listening");

await withTab(chromium, async (tab) => {
  tab.on("Runtime.consoleAPICalled", ({ args }) => console.error(...args.map((one) => one.value ?? one.description)));
  await tab.call("Runtime.enable");
  await tab.open(`http://127.0.0.1:${page.address().port}/`);
  await evaluate(tab, `${bundle}; undefined`);
  const settings = { url: `${url}/api/frontend`, clientKey: token, appName, refreshInterval: 1, metricsInterval: 1 };
  await evaluate(
    tab,
    `(async () => {
      window.sent = { yes: 0, no: 0 };
      window.client = new unleash.UnleashClient(${JSON.stringify(settings)});
      window.client.on("error", (error) => console.error(JSON.stringify(error)));
      window.client.on("sent", ({ bucket }) => {
        const counts = bucket.toggles[${JSON.stringify(flag)}];
        window.sent.yes += counts?.yes ?? 0;
        window.sent.no += counts?.no ?? 0;
      });
      await window.client.start();
    })()`,
  );
  await watch(
    () => evaluate(tab, `window.client.isEnabled(${JSON.stringify(flag)})`),
    () => evaluate(tab, "window.client.stop()"),
    () => evaluate(tab, "window.sent"),
  );
});
