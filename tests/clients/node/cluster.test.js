// ioredis's cluster client against a cluster, and against Weir in front of it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Cluster as Cluster6 } from 'ioredis';
import { Cluster as Cluster5 } from 'ioredis5';
import { freshKey } from './targets.js';

const text = process.env.WEIR_CLUSTERS ?? '';
if (text === '') {
  throw new Error('WEIR_CLUSTERS is not set: run `cargo xtask test clients:node`');
}
const libraries = [
  { line: 'ioredis6', Cluster: Cluster6 },
  { line: 'ioredis5', Cluster: Cluster5 },
];

for (const part of text.split(';')) {
  const [name, , host, port] = part.split(' ');
  for (const { line, Cluster } of libraries) {
    const withCluster = async (body) => {
      const client = new Cluster([{ host, port: Number(port) }]);
      client.on('error', () => {});
      try {
        await body(client);
      } finally {
        client.disconnect();
      }
    };
    describe(`${name} ${line}`, () => {
      test('keys of all slots', () =>
        withCluster(async (client) => {
          const key = freshKey('cluster');
          const keys = Array.from({ length: 300 }, (_, n) => `${key}:${n}`);
          await Promise.all(keys.map((one) => client.set(one, `value of ${one}`)));
          const values = await Promise.all(keys.map((one) => client.get(one)));
          assert.deepEqual(values, keys.map((one) => `value of ${one}`));
          const deleted = await Promise.all(keys.map((one) => client.del(one)));
          assert.equal(deleted.reduce((sum, one) => sum + one, 0), 300);
        }));

      test('pipelines and transactions on one slot', () =>
        withCluster(async (client) => {
          const key = `{${freshKey('cluster')}}`;
          const replies = await client.pipeline().set(`${key}:a`, 1).incr(`${key}:a`).mget(`${key}:a`, `${key}:b`).exec();
          assert.deepEqual(replies.map(([, value]) => value), ['OK', 2, ['2', null]]);
          const done = await client.multi().incr(`${key}:a`).rename(`${key}:a`, `${key}:b`).get(`${key}:b`).exec();
          assert.deepEqual(done.map(([, value]) => value), [3, 'OK', '3']);
        }));

      test('subscriptions', () =>
        withCluster(async (client) => {
          const key = freshKey('cluster');
          const message = new Promise((resolve) => client.on('message', (channel, said) => resolve([channel, said])));
          await client.subscribe(key);
          await withCluster((other) => other.publish(key, 'hello'));
          assert.deepEqual(await message, [key, 'hello']);
        }));
    });
  }
}
