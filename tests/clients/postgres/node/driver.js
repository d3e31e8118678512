// node-postgres: `node driver.js URL`. It prints a line for each check: `ok NAME` or `failed NAME: REASON`.
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as pause } from "node:timers/promises";

import pg from "pg";
import copy from "pg-copy-streams";
import Cursor from "pg-cursor";

const url = process.argv[2];

/** Runs `body` with so many connected clients. */
async function connected(count, body, options = {}) {
  const clients = [];
  try {
    for (let number = 0; number < count; number++) {
      const client = new pg.Client({ connectionString: url, ...options });
      client.on("error", () => {});
      await client.connect();
      clients.push(client);
    }
    return await body(...clients);
  } finally {
    await Promise.allSettled(clients.map((client) => client.end()));
  }
}

/** The first column of the first row. */
async function value(client, text, values) {
  const result = await client.query({ text, values, rowMode: "array" });
  return result.rows[0]?.[0];
}

const fails = (promise, code) => assert.rejects(promise, { code });

const checks = {
  "connects and selects": () =>
    connected(1, async (client) => {
      assert.equal(await value(client, "select current_user::text"), "app");
      assert.equal(await value(client, "select $1::int + 1", [2]), 3);
    }),
  "a wrong password is refused": async () => {
    const client = new pg.Client({ connectionString: url, password: "wrong" });
    // The URL's password counts more than that of the options.
    client.connectionParameters.password = client.password = "wrong";
    await fails(client.connect(), "28P01");
  },
  "options of the connection take effect": () =>
    connected(
      1,
      async (client) => {
        assert.equal(await value(client, "show application_name"), "node");
        assert.equal(await value(client, "show statement_timeout"), "54s");
        assert.equal(await value(client, "show search_path"), "pg_catalog");
      },
      { application_name: "node", statement_timeout: 54_000, options: "-c search_path=pg_catalog" },
    ),
  "unnamed statements with parameters of many types": () =>
    connected(1, async (client) => {
      const values = [1, "ü", true, null, Buffer.from([0, 255]), { a: [1] }, [1, 2]];
      const text = "select $1::int, $2::text, $3::bool, $4::text, $5::bytea, $6::jsonb, $7::int[]";
      const result = await client.query({ text, values, rowMode: "array" });
      assert.deepEqual(result.rows[0], values);
    }),
  "named statements are prepared once and survive transactions": () =>
    connected(2, async (one, two) => {
      for (let number = 0; number < 10; number++) {
        for (const client of [one, two]) {
          await client.query("begin");
          const result = await client.query({ name: "twice", text: "select $1::int * 2 as n", values: [number] });
          await client.query("commit");
          assert.equal(result.rows[0].n, 2 * number);
        }
      }
    }),
  "one name with another text on another connection": () =>
    connected(2, async (one, two) => {
      for (let number = 0; number < 5; number++) {
        const first = await one.query({ name: "same", text: "select 'one' as n" });
        const second = await two.query({ name: "same", text: "select 'two' as n" });
        assert.deepEqual([first.rows[0].n, second.rows[0].n], ["one", "two"]);
      }
    }),
  "queries that are queued are answered in order": () =>
    connected(1, async (client) => {
      const numbers = [...Array(300).keys()];
      const got = await Promise.all(numbers.map((number) => value(client, "select $1::int", [number])));
      assert.deepEqual(got, numbers);
    }),
  "queries in a pipeline are answered in order": () =>
    connected(
      1,
      async (client) => {
        const numbers = [...Array(300).keys()];
        const got = await Promise.all(numbers.map((number) => value(client, "select $1::int", [number])));
        assert.deepEqual(got, numbers);
      },
      { pipelining: true, pipelineMode: true },
    ),
  "an error among queued queries hits itself alone": () =>
    connected(1, async (client) => {
      const ends = await Promise.allSettled([value(client, "select 1"), value(client, "select 1/0"), value(client, "select 3")]);
      assert.deepEqual(ends.map((end) => end.value ?? end.reason.code), [1, "22012", 3]);
    }),
  "transactions commit and roll back": () =>
    connected(2, async (client, other) => {
      await client.query("create table node_money (n int unique)");
      await client.query("begin");
      await client.query("insert into node_money values (1)");
      assert.equal(await value(other, "select count(*)::int from node_money"), 0);
      await client.query("savepoint s");
      await fails(client.query("insert into node_money values (1)"), "23505");
      await fails(client.query("select 1"), "25P02");
      await client.query("rollback to s");
      await client.query("commit");
      assert.equal(await value(other, "select count(*)::int from node_money"), 1);
    }),
  "a cursor reads in portions": () =>
    connected(1, async (client) => {
      await client.query("begin");
      const cursor = client.query(new Cursor("select generate_series(1, $1::int) as n", [1000]));
      let sum = 0;
      for (let rows = await cursor.read(70); rows.length > 0; rows = await cursor.read(70)) {
        for (const row of rows) sum += row.n;
      }
      await cursor.close();
      await client.query("commit");
      assert.equal(sum, 500500);
    }),
  "a cursor outside a block that is closed early": () =>
    connected(1, async (client) => {
      const cursor = client.query(new Cursor("select generate_series(1, 1000) as n"));
      assert.equal((await cursor.read(10)).length, 10);
      await cursor.close();
      assert.equal(await value(client, "select 1"), 1);
    }),
  "copy in and out": () =>
    connected(1, async (client) => {
      await client.query("create table node_copied (n int)");
      const lines = Readable.from((function* () { for (let n = 0; n < 20000; n++) yield `${n}\n`; })());
      await pipeline(lines, client.query(copy.from("copy node_copied from stdin")));
      let bytes = 0;
      for await (const chunk of client.query(copy.to("copy node_copied to stdout"))) bytes += chunk.length;
      assert.equal(await value(client, "select count(*)::int from node_copied"), 20000);
      assert.equal(bytes, 108890);
      const bad = pipeline(Readable.from(["1\n", "x\n", "2\n".repeat(100000)]), client.query(copy.from("copy node_copied from stdin")));
      await fails(bad, "22P02");
      assert.equal(await value(client, "select count(*)::int from node_copied"), 20000);
    }),
  "notifications arrive": () =>
    connected(2, async (client, other) => {
      const heard = [];
      client.on("notification", (note) => heard.push([note.channel, note.payload]));
      await client.query("listen node_news");
      await other.query("select pg_notify('node_news', 'hello')");
      for (let tries = 0; tries < 200 && heard.length === 0; tries++) await pause(50);
      assert.deepEqual(heard, [["node_news", "hello"]]);
    }),
  "notices arrive": () =>
    connected(1, async (client) => {
      const heard = [];
      client.on("notice", (notice) => heard.push(notice.message));
      await client.query("do $$ begin raise notice 'seen'; end $$");
      assert.deepEqual(heard, ["seen"]);
    }),
  "a statement timeout ends a query": () =>
    connected(1, async (client) => {
      await fails(client.query("select pg_sleep(20)"), "57014");
      assert.equal(await value(client, "select 1"), 1);
    }, { statement_timeout: 300 }),
  "settings last over transactions": () =>
    connected(2, async (client, other) => {
      await client.query("set work_mem = '5MB'; set search_path = pg_catalog");
      for (let round = 0; round < 4; round++) {
        await client.query("begin");
        assert.equal(await value(client, "show work_mem"), "5MB");
        await client.query("commit");
        assert.equal(await value(client, "show search_path"), "pg_catalog");
        assert.equal(await value(other, "show work_mem"), "4MB");
      }
    }),
  "temporary tables and locks are those of the connection": () =>
    connected(2, async (client, other) => {
      await client.query("create temp table node_scratch (n int)");
      assert.equal(await value(client, "select count(*)::int from node_scratch"), 0);
      await fails(other.query("select * from node_scratch"), "42P01");
      await client.query("select pg_advisory_lock(31)");
      assert.equal(await value(other, "select pg_try_advisory_lock(31)"), false);
      assert.equal(await value(client, "select pg_advisory_unlock(31)"), true);
    }),
  "large values": () =>
    connected(1, async (client) => {
      const text = "x".repeat(8_000_000);
      assert.equal(await value(client, "select $1::text", [text]), text);
    }),
  "several statements in one text": () =>
    connected(1, async (client) => {
      const results = await client.query("select 1 as n; select 2 as n");
      assert.deepEqual(results.map((result) => result.rows[0].n), [1, 2]);
    }),
  "a pool serves many at once": async () => {
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    const numbers = [...Array(200).keys()];
    const got = await Promise.all(numbers.map((number) => value(pool, "select $1::int", [number])));
    await pool.end();
    assert.deepEqual(got, numbers);
  },
};

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
