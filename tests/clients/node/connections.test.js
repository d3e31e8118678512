// Publish/subscribe, authentication and reconnection through ioredis.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { cases, forwarder, freshKey, until, withClients } from './targets.js';

for (const { label, target, open } of cases) {
  describe(label, () => {
    test('channels and patterns', () =>
      withClients(open, 2, async (subscriber, publisher) => {
        const key = freshKey('pubsub');
        const got = [];
        subscriber.on('message', (channel, message) => got.push(['message', channel, message]));
        subscriber.on('pmessage', (pattern, channel, message) => got.push([pattern, channel, message]));
        assert.equal(await subscriber.subscribe(`${key}:a`, `${key}:b`), 2);
        assert.equal(await subscriber.psubscribe(`${key}:*`), 3);
        assert.equal(await publisher.publish(`${key}:a`, 'hello'), 2);
        assert.equal(await publisher.publish(`${key}:z`, 'pattern'), 1);
        await until('three messages', () => got.length === 3);
        assert.deepEqual(got.map((entry) => entry.at(-1)).sort(), ['hello', 'hello', 'pattern']);
        assert.equal(await subscriber.unsubscribe(`${key}:a`, `${key}:b`), 1);
        assert.equal(await subscriber.punsubscribe(), 0);
        assert.equal(await publisher.publish(`${key}:a`, 'nobody'), 0);
        assert.equal(await subscriber.set(key, 'an ordinary command again'), 'OK');
      }));

    test('many messages keep their order', () =>
      withClients(open, 2, async (subscriber, publisher) => {
        const key = freshKey('flood');
        const got = [];
        subscriber.on('message', (_, message) => got.push(Number(message)));
        await subscriber.subscribe(key);
        const pipe = publisher.pipeline();
        for (let n = 0; n < 2_000; n += 1) pipe.publish(key, n);
        await pipe.exec();
        await until('2,000 messages', () => got.length === 2_000);
        got.forEach((number, n) => assert.equal(number, n));
      }));

    test('passwords', async () => {
      const key = freshKey('auth');
      const port = target.authPort;
      await withClients(() => open({ port, password: target.password }), 1, async (client) => {
        assert.equal(await client.set(key, 'v'), 'OK');
      });
      await withClients(
        () => open({ port, username: 'default', password: target.password }),
        1,
        async (client) => assert.equal(await client.get(key), 'v'),
      );
      await withClients(() => open({ port, password: 'wrong', retryStrategy: null }), 1, async (client) => {
        await assert.rejects(client.get(key), /NOAUTH|WRONGPASS|Connection is closed/);
      });
      await withClients(() => open({ port, retryStrategy: null }), 1, async (client) => {
        await assert.rejects(client.get(key), /NOAUTH/);
      });
    });

    test('a cut connection comes back, with its subscriptions', async () => {
      const between = await forwarder(target);
      const options = { port: between.port, retryStrategy: () => 20 };
      try {
        await withClients(() => open(options), 2, async (client, subscriber) =>
          withClients(open, 1, async (publisher) => {
            const key = freshKey('cut');
            const got = [];
            subscriber.on('message', (_, message) => got.push(message));
            await subscriber.subscribe(key);
            await client.set(key, 'before');
            const accepted = between.accepted;
            between.cut();
            assert.equal(await client.get(key), 'before');
            await until('a message after the cut', async () => {
              await publisher.publish(key, 'after');
              return got.includes('after');
            });
            assert.ok(between.accepted >= accepted + 2);
          }),
        );
      } finally {
        between.close();
      }
    });

    test('connection names and the offline queue', () =>
      withClients(() => open({ connectionName: 'suite-node' }), 1, async (client) => {
        // Sent before the connection stands: ioredis queues it, INFO and CLIENT SETNAME go first.
        assert.equal(await client.client('GETNAME'), 'suite-node');
        assert.equal(typeof (await client.client('ID')), 'number');
        assert.equal(await client.quit(), 'OK');
      }));

    test('a hundred connections at once', () =>
      withClients(open, 100, async (...clients) => {
        const key = freshKey('hundred');
        await Promise.all(clients.map((client, n) => client.set(`${key}:${n}`, n)));
        const values = await Promise.all(clients.map((client, n) => client.get(`${key}:${99 - n}`)));
        values.forEach((value, n) => assert.equal(value, String(99 - n)));
      }));
  });
}
