// Targets of the suite: see tests/src/bin/stage.rs. Every test runs for each target with the two
// ioredis lines that applications use.

import net from 'node:net';
import { Redis as Redis6 } from 'ioredis';
import { Redis as Redis5 } from 'ioredis5';

function targets() {
  const text = process.env.WEIR_TARGETS ?? '';
  if (text === '') {
    throw new Error('WEIR_TARGETS is not set: run `cargo xtask test clients:node`');
  }
  return text.split(';').map((part) => {
    const [name, server, via, host, port, authPort, password] = part.split(' ');
    return { name, server, via, host, port: Number(port), authPort: Number(authPort), password };
  });
}

const libraries = [
  { line: 'ioredis6', Redis: Redis6 },
  { line: 'ioredis5', Redis: Redis5 },
];

/** Every pair of target and library: `{ label, target, open(options) }`. */
export const cases = targets().flatMap((target) =>
  libraries.map(({ line, Redis }) => ({
    label: `${target.name} ${line}`,
    target,
    open(options = {}) {
      const client = new Redis({ host: target.host, port: target.port, ...options });
      // Errors are asserted where they are expected; the event alone must not end the process.
      client.on('error', () => {});
      return client;
    },
  })),
);

let numbers = 0;

/** A key prefix that no other test uses, so that nothing has to be flushed. */
export function freshKey(name) {
  numbers += 1;
  return `node:${process.pid}:${numbers}:${name}`;
}

/** Runs `body` with clients that are closed afterwards, whatever happens. */
export async function withClients(open, count, body) {
  const clients = Array.from({ length: count }, () => open());
  try {
    return await body(...clients);
  } finally {
    clients.forEach((client) => client.disconnect());
  }
}

/** Waits until `condition` holds, at most ten seconds. */
export async function until(what, condition) {
  const ends = Date.now() + 10_000;
  while (!(await condition())) {
    if (Date.now() > ends) throw new Error(`waited for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A byte forwarder whose connections a test can cut, to see a client come back. */
export async function forwarder(target) {
  const open = new Set();
  const state = { accepted: 0 };
  const server = net.createServer((client) => {
    state.accepted += 1;
    const upstream = net.connect(target.port, target.host);
    for (const [source, sink] of [
      [client, upstream],
      [upstream, client],
    ]) {
      open.add(source);
      source.on('error', () => sink.destroy());
      source.on('close', () => {
        open.delete(source);
        sink.destroy();
      });
      source.pipe(sink);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  state.port = server.address().port;
  state.cut = () => open.forEach((socket) => socket.destroy());
  state.close = () => {
    server.close();
    state.cut();
  };
  return state;
}
