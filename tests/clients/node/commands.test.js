// Values, pipelines, transactions, scripts, streams, scans through ioredis.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { cases, freshKey, until, withClients } from './targets.js';

for (const { label, open } of cases) {
  describe(label, () => {
    test('plain values', () =>
      withClients(open, 1, async (client) => {
        const key = freshKey('plain');
        assert.equal(await client.set(`${key}:s`, 'value', 'EX', 100), 'OK');
        assert.equal(await client.get(`${key}:s`), 'value');
        assert.equal(await client.hset(`${key}:h`, { a: '1', b: '2' }), 2);
        assert.deepEqual({ ...(await client.hgetall(`${key}:h`)) }, { a: '1', b: '2' });
        assert.equal(await client.rpush(`${key}:l`, 'x', 'y'), 2);
        assert.deepEqual(await client.lrange(`${key}:l`, 0, -1), ['x', 'y']);
        assert.deepEqual(await client.mget(`${key}:s`, `${key}:absent`), ['value', null]);
        assert.equal(await client.del(`${key}:s`, `${key}:h`, `${key}:absent`), 2);
      }));

    test('the order of five thousand commands in flight', () =>
      withClients(open, 1, async (client) => {
        const key = freshKey('order');
        const replies = await Promise.all(
          Array.from({ length: 5_000 }, (_, n) => client.echo(`${key}:${n}`)),
        );
        replies.forEach((reply, n) => assert.equal(reply, `${key}:${n}`));
      }));

    test('pipelines isolate errors', () =>
      withClients(open, 1, async (client) => {
        const key = freshKey('pipeline');
        const replies = await client.pipeline().set(key, 'abc').incr(key).get(key).exec();
        assert.equal(replies[0][1], 'OK');
        assert.match(replies[1][0].message, /not an integer/);
        assert.equal(replies[2][1], 'abc');
      }));

    test('transactions commit, abort and see foreign writes', () =>
      withClients(open, 2, async (client, other) => {
        const key = freshKey('multi');
        const done = await client.multi().set(key, 1).incrby(key, 41).get(key).exec();
        assert.deepEqual(done.map(([, value]) => value), ['OK', 42, '42']);
        await client.watch(key);
        await other.set(key, 'foreign');
        assert.equal(await client.multi().set(key, 'mine').exec(), null);
        assert.equal(await client.get(key), 'foreign');
        await client.watch(key);
        assert.equal(await client.unwatch(), 'OK');
        await other.set(key, 'again');
        const kept = await client.multi().get(key).exec();
        assert.equal(kept[0][1], 'again');
        await assert.rejects(client.multi().call('INCR').set(key, 'no').exec(), /EXECABORT/);
        assert.equal(await client.get(key), 'again');
      }));

    test('blocking pops', () =>
      withClients(open, 2, async (client, other) => {
        const key = freshKey('block');
        const waiting = client.blpop(key, `${key}:other`, 10);
        // PING waits in the same connection behind the pop; another one is not held up.
        assert.equal(await other.ping(), 'PONG');
        await other.rpush(key, 'late');
        assert.deepEqual(await waiting, [key, 'late']);
        assert.equal(await client.blpop(key, 1), null);
        await other.rpush(`${key}:from`, 'moved');
        assert.equal(await client.blmove(`${key}:from`, `${key}:to`, 'LEFT', 'RIGHT', 5), 'moved');
      }));

    test('scripts', () =>
      withClients(open, 1, async (client) => {
        const key = freshKey('script');
        const body = "return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}";
        assert.deepEqual(await client.eval(body, 1, key, 'x'), [key, 'x', 1]);
        const sha = createHash('sha1').update(body).digest('hex');
        assert.deepEqual(await client.evalsha(sha, 1, key, 'y'), [key, 'y', 2]);
        await assert.rejects(client.evalsha('f'.repeat(40), 0), /NOSCRIPT/);
        client.defineCommand('bump', { numberOfKeys: 1, lua: `${body} -- ${key}` });
        assert.deepEqual(await client.bump(key, 'z'), [key, 'z', 3]);
        assert.deepEqual(await client.script('EXISTS', sha, '0'.repeat(40)), [1, 0]);
      }));

    test('streams with a consumer group', () =>
      withClients(open, 2, async (client, other) => {
        const key = freshKey('stream');
        assert.equal(await client.xgroup('CREATE', key, 'group', '$', 'MKSTREAM'), 'OK');
        const waiting = client.xreadgroup('GROUP', 'group', 'one', 'BLOCK', 10_000, 'STREAMS', key, '>');
        const id = await other.xadd(key, '*', 'field', 'value');
        assert.deepEqual(await waiting, [[key, [[id, ['field', 'value']]]]]);
        assert.equal((await client.xpending(key, 'group'))[0], 1);
        assert.equal(await client.xack(key, 'group', id), 1);
        assert.equal(await client.xread('BLOCK', 50, 'STREAMS', key, '$'), null);
        assert.equal(await client.xlen(key), 1);
      }));

    test('scan streams visit everything', () =>
      withClients(open, 1, async (client) => {
        const key = freshKey('scan');
        const pipe = client.pipeline();
        for (let n = 0; n < 400; n += 1) pipe.set(`${key}:${n}`, n);
        await pipe.exec();
        const found = new Set();
        for await (const batch of client.scanStream({ match: `${key}:*`, count: 50 })) {
          batch.forEach((name) => found.add(name));
        }
        assert.equal(found.size, 400);
        await client.sadd(`${key}-set`, ...Array.from({ length: 500 }, (_, n) => n));
        const members = new Set();
        for await (const batch of client.sscanStream(`${key}-set`, { count: 50 })) {
          batch.forEach((member) => members.add(member));
        }
        assert.equal(members.size, 500);
      }));

    test('large and binary values', () =>
      withClients(open, 1, async (client) => {
        const key = Buffer.concat([Buffer.from(freshKey('binary')), Buffer.from([13, 10, 0, 255])]);
        for (const size of [100, 1 << 20, 16 << 20]) {
          const value = randomBytes(size);
          assert.equal(await client.set(key, value), 'OK');
          assert.ok(value.equals(await client.getBuffer(key)), `${size} bytes came back changed`);
        }
        assert.equal(await client.del(key), 1);
      }));

    test('a database of its own', () =>
      withClients(() => open({ db: 6 }), 1, async (six) =>
        withClients(open, 1, async (zero) => {
          const key = freshKey('db');
          await six.set(key, 'six');
          assert.equal(await zero.get(key), null);
          await zero.select(6);
          assert.equal(await zero.get(key), 'six');
          await until('the key to go', async () => (await six.del(key)) === 0);
        }),
      ));
  });
}
