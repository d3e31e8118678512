// The part that all programs of this folder share: it evaluates a flag ten times a second, prints each change of its state, and at the
// end of its input how often the flag was on and off. A test compares these counts with those that the server has got.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const INTERVAL_MS = 100;
const SENT_DEADLINE_MS = 30_000;

// `isOn` evaluates the flag. `sent` returns the counts that the SDK has sent so far, as `{ yes, no }`; an SDK that counts nothing has
// none. `end` closes the SDK.
export async function watch(isOn, end, sent) {
  let last;
  const counts = { yes: 0, no: 0 };
  let isOver = false;
  const input = createInterface({ input: process.stdin });
  input.on("close", () => {
    isOver = true;
  });
  while (!isOver) {
    const on = await isOn();
    counts[on ? "yes" : "no"] += 1;
    const state = on ? "on" : "off";
    if (state !== last) console.log(`state ${state}`);
    last = state;
    await pause(INTERVAL_MS);
  }
  if (sent) await untilSent(counts, sent);
  await end();
  console.log(`counts ${counts.yes} ${counts.no}`);
  process.exit(0);
}

// An SDK sends its counts once per interval: an end before that would lose the last of them.
async function untilSent({ yes, no }, sent) {
  const deadline = Date.now() + SENT_DEADLINE_MS;
  for (;;) {
    const gone = await sent();
    if (gone.yes === yes && gone.no === no) return;
    if (Date.now() > deadline) throw new Error(`the SDK has sent ${gone.yes} and ${gone.no} of ${yes} and ${no} counts in time`);
    await pause(INTERVAL_MS);
  }
}
