// Runs a list of checks and prints a line for each: `ok NAME` or `failed NAME: REASON`.
import { setTimeout as pause } from "node:timers/promises";

/** Runs each check for 30 s at most, then ends the process. */
export async function run(checks) {
  let failed = 0;
  for (const [name, body] of Object.entries(checks)) {
    const limit = new AbortController();
    const late = pause(30_000, undefined, { signal: limit.signal }).then(() => Promise.reject(new Error("no end after 30 s")));
    try {
      await Promise.race([body(), late]);
      console.log(`ok ${name}`);
    } catch (error) {
      failed++;
      console.log(`failed ${name}: ${String(error.message ?? error).split(/\s+/).join(" ")}`);
    }
    late.catch(() => {});
    limit.abort();
  }
  console.log(`end ${Object.keys(checks).length} checks`);
  process.exit(failed > 0 ? 1 : 0);
}
