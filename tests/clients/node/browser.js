// Opens a page in headless Chromium and prints the value of its `window.result`: `browser.js PROGRAM URL`.
import { evaluate, withTab } from "./chromium.js";

const [program, url] = process.argv.slice(2);
await withTab(program, async (tab) => {
  await tab.open(url);
  console.log(JSON.stringify(await evaluate(tab, "window.result")));
});
