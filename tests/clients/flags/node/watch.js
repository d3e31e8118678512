// The part that all programs of this folder share: it evaluates a flag ten times a second, prints each change of its state, and at the
// end of its input how often the flag was on and off. A test compares these counts with those that the server has got.
import { createInterface } from "node:readline";

const INTERVAL_MS = 100;

export async function watch(isOn, end) {
  let last;
  let [yes, no] = [0, 0];
  const look = async () => {
    const on = await isOn();
    if (on) yes += 1;
    else no += 1;
    const state = on ? "on" : "off";
    if (state !== last) console.log(`state ${state}`);
    last = state;
  };
  let timer;
  let running = Promise.resolve();
  const tick = () => {
    running = look().then(() => {
      timer = setTimeout(tick, INTERVAL_MS);
    });
  };
  tick();
  await new Promise((resolve) => createInterface({ input: process.stdin }).on("close", resolve));
  await running;
  clearTimeout(timer);
  await end();
  console.log(`counts ${yes} ${no}`);
  process.exit(0);
}
