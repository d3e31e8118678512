// unleash-client of Node: `server_sdk.js URL TOKEN FLAG APPLICATION polling|streaming`.
import { initialize } from "unleash-client";
import { watch } from "./watch.js";

const [url, token, flag, appName, mode] = process.argv.slice(2);
const unleash = initialize({
  url: `${url}/api`,
  appName,
  customHeaders: { Authorization: token },
  refreshInterval: 500,
  metricsInterval: 1000,
  ...(mode === "streaming" ? { experimentalMode: { type: "streaming" } } : {}),
});
const sent = { yes: 0, no: 0 };
unleash.on("error", (error) => console.error(error));
unleash.on("warn", (warning) => console.error(warning));
unleash.on("sent", ({ bucket }) => {
  sent.yes += bucket.toggles[flag]?.yes ?? 0;
  sent.no += bucket.toggles[flag]?.no ?? 0;
});
await new Promise((resolve) => unleash.once("synchronized", resolve));
await watch(
  async () => unleash.isEnabled(flag),
  () => unleash.destroy(),
  async () => sent,
);
