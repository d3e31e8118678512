// Shows pages in headless Chromium as on a desk and on a phone, light and dark: `pages.js PROGRAM FOLDER PAGE...`. Prints a
// line of JSON for each view with the faults that a program can see, and writes a screenshot of each into FOLDER.
import { writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { evaluate, withTab } from "./chromium.js";
import { inspect } from "./inspect.js";

const SIZES = [[1280, 900], [390, 844]];
const SCHEMES = ["light", "dark"];
// The height of a screenshot, in pixels; a page may be longer.
const HEIGHT_MAX = 12_000;

const [program, folder, ...pages] = process.argv.slice(2);
await withTab(program, async (tab) => {
  let errors = [];
  tab.on("Runtime.exceptionThrown", ({ exceptionDetails }) => errors.push(exceptionDetails.text));
  tab.on("Runtime.consoleAPICalled", ({ type, args }) => {
    if (type === "error" || type === "warning") errors.push(args.map((one) => one.value ?? one.description).join(" "));
  });
  tab.on("Log.entryAdded", ({ entry }) => errors.push(`${entry.text} ${entry.url ?? ""}`));
  await tab.call("Runtime.enable");
  await tab.call("Log.enable");
  for (const page of pages) {
    for (const [width, height] of SIZES) {
      for (const scheme of SCHEMES) {
        errors = [];
        await tab.call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
        const features = [{ name: "prefers-color-scheme", value: scheme }];
        await tab.call("Emulation.setEmulatedMedia", { features });
        await tab.open(pathToFileURL(page).href);
        const seen = await evaluate(tab, `(${inspect})(${width})`);
        const name = `${basename(page, ".html")}-${width}-${scheme}.png`;
        const clip = { x: 0, y: 0, width, height: Math.min(Math.max(seen.height, height), HEIGHT_MAX), scale: 1 };
        const { data } = await tab.call("Page.captureScreenshot", { captureBeyondViewport: true, clip });
        writeFileSync(join(folder, name), data, "base64");
        console.log(JSON.stringify({ page: basename(page), width, scheme, ...seen, faults: [...seen.faults, ...errors] }));
      }
    }
  }
});
