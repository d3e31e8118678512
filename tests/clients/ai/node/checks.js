// Runs a list of checks and prints a line for each: `ok NAME` or `failed NAME: REASON`, as the programs of Python do.

/** Runs each function; the key is the name of the check. */
export async function run(functions) {
  let failed = 0;
  for (const [name, check] of Object.entries(functions)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`failed ${name}: ${String(error?.stack ?? error).replaceAll(/\s+/g, " ").slice(0, 600)}`);
    }
  }
  console.log(`end ${Object.keys(functions).length} checks`);
  process.exit(failed ? 1 : 0);
}

/** The text of the origin: groups of sixteen bytes. */
export function textOf(word, size) {
  let text = "";
  for (let number = 0; text.length < size; number += 1) {
    text += `${word}${number.toString(16).padStart(7, "0")} `;
  }
  return text.slice(0, size);
}

/** Eight digits that no earlier run has used. */
export function uniqueWord() {
  return (Math.floor(Math.random() * 2 ** 32)).toString(16).padStart(8, "0");
}
