// Requests made with Node's fetch over TLS: `fetch.js URL`; NODE_EXTRA_CA_CERTS names the authority. Prints `ok`, or fails loudly.
import assert from 'node:assert';

const LARGE = Buffer.from(Array.from({ length: 1_000_000 }, (_, at) => (at * 7919 >> 8) & 255));

async function body(response) {
  assert.strictEqual(response.status, 200);
  return Buffer.from(await response.arrayBuffer());
}

async function main(url) {
  const responses = await Promise.all(
    Array.from({ length: 50 }, (_, number) => fetch(url, { method: 'POST', body: String(number) }).then(body)),
  );
  responses.forEach((response, number) => assert.strictEqual(response.toString(), String(number)));
  assert.ok(LARGE.equals(await body(await fetch(url, { method: 'POST', body: LARGE }))));
  const pieces = new ReadableStream({
    start(controller) {
      for (let at = 0; at < LARGE.length; at += 50_000) controller.enqueue(LARGE.subarray(at, at + 50_000));
      controller.close();
    },
  });
  assert.ok(LARGE.equals(await body(await fetch(url, { method: 'POST', body: pieces, duplex: 'half' }))), 'in chunks');
  assert.strictEqual((await fetch(url, { method: 'HEAD' })).status, 200);
  const gone = new AbortController();
  const aborted = fetch(url, { method: 'POST', body: LARGE, signal: gone.signal });
  gone.abort();
  await assert.rejects(aborted);
  assert.strictEqual((await body(await fetch(url, { method: 'POST', body: 'after' }))).toString(), 'after');
  console.log('ok');
}

await main(process.argv[2]);
