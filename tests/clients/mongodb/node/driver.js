// The driver of Node: `node driver.js URL LIST`, with the list `server`, `scripted`, `stored` or `login`. It prints a line for each check.
import assert from "node:assert/strict";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";

import { Binary, GridFSBucket, Long, MongoClient, ObjectId, ReadPreference } from "mongodb";

import { run } from "./checks.js";

const [url, list] = process.argv.slice(2);
const NAME = "node";

/** Runs `body` with a connected client and an empty collection. */
async function scene(name, body, options = {}) {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 15_000, ...options });
  try {
    const notes = client.db(NAME).collection(name);
    await notes.deleteMany({});
    return await body(notes, client);
  } finally {
    await client.close();
  }
}

const documents = (count, size = 0) =>
  [...Array(count).keys()].map((number) => ({ _id: number, n: number % 10, text: `${number}-${"x".repeat(size)}` }));
const ids = (found) => found.map((one) => one._id);
const numbers = (count) => [...Array(count).keys()];
const fail = (client, failCommands, data) =>
  client.db("admin").command({ configureFailPoint: "failCommand", mode: { times: 1 }, data: { failCommands, ...data } });

const server = {
  "inserts and finds": () =>
    scene("crud", async (notes) => {
      await notes.insertMany(documents(20));
      assert.deepEqual(await notes.findOne({ _id: 3 }), { _id: 3, n: 3, text: "3-" });
      assert.deepEqual(ids(await notes.find({ n: { $gt: 7 } }).sort({ _id: -1 }).limit(3).toArray()), [19, 18, 9]);
      assert.equal(await notes.findOne({ _id: "nothing" }), null);
    }),
  "updates, replaces and deletes": () =>
    scene("changes", async (notes) => {
      await notes.insertMany(documents(20));
      assert.equal((await notes.updateMany({ n: 1 }, { $set: { n: 50 } })).modifiedCount, 2);
      assert.equal((await notes.updateOne({ _id: 77 }, { $set: { n: 1 } }, { upsert: true })).upsertedId, 77);
      assert.equal((await notes.replaceOne({ _id: 77 }, { other: true })).modifiedCount, 1);
      assert.deepEqual(await notes.findOneAndDelete({ _id: 77 }), { _id: 77, other: true });
      assert.equal((await notes.findOneAndUpdate({ _id: 2 }, { $inc: { n: 5 } }, { returnDocument: "after" })).n, 7);
      assert.equal((await notes.deleteMany({ n: 50 })).deletedCount, 2);
    }),
  "bulk writes with an error": () =>
    scene("bulk", async (notes) => {
      const work = [1, 1, 2].map((_id) => ({ insertOne: { document: { _id } } }));
      await assert.rejects(notes.bulkWrite(work, { ordered: false }), (error) => error.code === 11000 && error.insertedCount === 2);
      const done = await notes.bulkWrite([
        { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } },
        { deleteOne: { filter: { _id: 2 } } },
      ]);
      assert.deepEqual([done.modifiedCount, done.deletedCount], [1, 1]);
    }),
  "a bulk of many messages": () =>
    scene("large bulk", async (notes) => {
      const done = await notes.insertMany(documents(3_000, 2_000));
      assert.equal(done.insertedCount, 3_000);
      assert.equal(await notes.countDocuments({}), 3_000);
    }),
  "a cursor over many batches": () =>
    scene("batches", async (notes) => {
      await notes.insertMany(documents(700, 50));
      const found = [];
      for await (const one of notes.find({}, { batchSize: 6 }).sort({ _id: 1 })) found.push(one._id);
      assert.deepEqual(found, numbers(700));
    }),
  "a cursor that is closed early is gone": () =>
    scene("closed", async (notes, client) => {
      await notes.insertMany(documents(50));
      const cursor = notes.find({}, { batchSize: 5 });
      await cursor.next();
      const id = cursor.id;
      await cursor.close();
      const more = { getMore: Long.fromBigInt(BigInt(id.toString())), collection: "closed" };
      await assert.rejects(client.db(NAME).command(more), { code: 43 });
    }),
  "aggregates, counts and distinct values": () =>
    scene("aggregates", async (notes) => {
      await notes.insertMany(documents(60));
      const groups = await notes.aggregate([{ $group: { _id: "$n", count: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
      assert.deepEqual(groups, numbers(10).map((_id) => ({ _id, count: 6 })));
      assert.equal(await notes.countDocuments({ n: 4 }), 6);
      assert.deepEqual((await notes.distinct("n")).sort(), numbers(10));
    }),
  "indexes": () =>
    scene("indexes", async (notes) => {
      assert.equal(await notes.createIndex({ n: 1 }, { unique: true }), "n_1");
      await notes.insertOne({ _id: 1, n: 1 });
      await assert.rejects(notes.insertOne({ _id: 2, n: 1 }), { code: 11000 });
      assert.deepEqual(ids(await notes.find().toArray()), [1]);
      await notes.dropIndex("n_1");
    }),
  "values of many types": () =>
    scene("types", async (notes) => {
      const value = {
        _id: new ObjectId(),
        text: "ü✓",
        number: 1.5,
        long: Long.fromString("4611686018427387904"),
        date: new Date(1_700_000_000_123),
        data: new Binary(Buffer.from([0, 1, 255])),
        list: [1, { a: null }, true],
      };
      await notes.insertOne(value);
      assert.deepEqual(await notes.findOne({ _id: value._id }, { promoteLongs: false, promoteValues: true }), value);
    }),
  "large documents": () =>
    scene("large", async (notes) => {
      for (const size of [16_384, 262_144, 1_048_576, 8_388_608]) {
        await notes.insertOne({ _id: size, text: "z".repeat(size) });
        assert.equal((await notes.findOne({ _id: size })).text, "z".repeat(size));
      }
    }),
  "many at a time on few connections": () =>
    scene("parallel", async (notes) => {
      await Promise.all(numbers(60).map(async (owner) => {
        await notes.insertMany(numbers(8).map((number) => ({ _id: `${owner}-${number}`, owner })));
        const found = await notes.find({ owner }, { batchSize: 3 }).toArray();
        assert.deepEqual(found.map((one) => one.owner), Array(8).fill(owner));
      }));
    }, { maxPoolSize: 5 }),
  "sessions": () =>
    scene("sessions", async (notes, client) => {
      await client.withSession(async (session) => {
        await notes.insertOne({ _id: 1 }, { session });
        assert.ok(await notes.findOne({ _id: 1 }, { session }));
      });
    }),
  "errors have their codes": () =>
    scene("errors", async (_, client) => {
      await assert.rejects(client.db(NAME).command({ noSuchCommand: 1 }), { code: 59 });
      assert.equal((await client.db("admin").command({ ping: 1 })).ok, 1);
    }),
  "files of GridFS": () =>
    scene("files", async (_, client) => {
      const bucket = new GridFSBucket(client.db(NAME), { chunkSizeBytes: 50_000 });
      const content = Buffer.alloc(600_000, "gridfs ");
      const upload = bucket.openUploadStream("report");
      await pipeline(Readable.from([content]), upload);
      const parts = [];
      for await (const part of bucket.openDownloadStream(upload.id)) parts.push(part);
      assert.ok(Buffer.concat(parts).equals(content));
      await bucket.delete(upload.id);
    }),
};

// The scripted server has 500 documents in each collection, with _id from 1 on, and the comment of the command in each.
const ALL = numbers(500).map((number) => number + 1);

const scripted = {
  "cursors over many batches, many at a time": () =>
    scene("batches", async (notes) => {
      await Promise.all(numbers(12).map(async (number) => {
        const comment = `cursor ${number}`;
        const found = await notes.find({}, { batchSize: 20 + number, comment }).toArray();
        assert.deepEqual(ids(found), ALL);
        assert.ok(found.every((one) => one.request === comment), comment);
      }));
    }, { maxPoolSize: 6 }),
  "unacknowledged writes": () =>
    scene("unacknowledged", async (notes, client) => {
      const inserted = async () => Number((await client.db("admin").command({ weirOrigin: 1 })).inserted);
      const before = await inserted();
      for (const _id of numbers(100)) await notes.insertOne({ _id }, { writeConcern: { w: 0 } });
      for (let turn = 0; (await inserted()) < before + 100; turn++) {
        assert.ok(turn < 50, "not all have arrived");
        await pause(100);
      }
    }, { maxPoolSize: 1 }),
  "transactions commit and abort": () =>
    scene("transactions", async (notes, client) => {
      await client.withSession(async (session) => {
        await session.withTransaction(async () => {
          await notes.insertOne({ n: 1 }, { session });
          assert.equal((await notes.findOne({ _id: 5 }, { session, comment: "within" })).request, "within");
        });
        session.startTransaction();
        await notes.insertOne({ n: 2 }, { session });
        await session.abortTransaction();
      });
    }),
  "a transaction is repeated after a transient error": () =>
    scene("transient", async (notes, client) => {
      let tries = 0;
      await client.withSession((session) =>
        session.withTransaction(async () => {
          if (++tries === 1) await fail(client, ["insert"], { errorCode: 112, errorLabels: ["TransientTransactionError"] });
          await notes.insertOne({ n: tries }, { session });
        }),
      );
      assert.equal(tries, 2);
    }),
  "a write and a read are repeated once after a lost connection": () =>
    scene("retried", async (notes, client) => {
      await fail(client, ["insert"], { closeConnection: true });
      await notes.insertOne({ n: 1 });
      await fail(client, ["find"], { closeConnection: true });
      assert.equal((await notes.findOne({ _id: 2 }, { comment: "again" })).request, "again");
    }),
  "a change stream shows writes of others": () =>
    scene("watched", async (notes) => {
      const stream = notes.watch([], { maxAwaitTimeMS: 300 });
      assert.equal(await stream.tryNext(), null);
      await notes.insertOne({ _id: 1 });
      assert.deepEqual((await stream.next()).documentKey, { _id: 1 });
      await stream.close();
    }),
  "a read preference passes": () =>
    scene("preferences", async (notes) => {
      const found = await notes.find({}, { readPreference: ReadPreference.secondaryPreferred, limit: 5 }).toArray();
      assert.equal(found.length, 5);
    }),
};

// The scripted server stores documents.
const all = async (notes, options = {}) => ids(await notes.find({}, { batchSize: 2, ...options }).toArray()).sort();
/** The next such command is carried out, and its reply makes the driver send it again. */
const doneAndRepeated = (client, command) =>
  fail(client, [command], { writeConcernError: { code: 262, errmsg: "late" }, errorLabels: ["RetryableWriteError"] });

const stored = {
  "a transaction is seen behind its commit alone": () =>
    scene("committed", async (notes, client) => {
      await client.withSession(async (session) => {
        session.startTransaction();
        await notes.insertMany([1, 2, 3, 4, 5].map((_id) => ({ _id })), { session });
        assert.deepEqual([await all(notes), await all(notes, { session })], [[], [1, 2, 3, 4, 5]]);
        await session.commitTransaction();
      });
      assert.deepEqual(await all(notes), [1, 2, 3, 4, 5]);
    }),
  "an aborted transaction leaves nothing": () =>
    scene("aborted", async (notes, client) => {
      await notes.insertOne({ _id: 1, n: 0 });
      await client.withSession(async (session) => {
        session.startTransaction();
        await notes.insertOne({ _id: 2 }, { session });
        await notes.updateOne({ _id: 1 }, { $set: { n: 9 } }, { session });
        await session.abortTransaction();
      });
      assert.deepEqual(await notes.find().toArray(), [{ _id: 1, n: 0 }]);
    }),
  "a transaction that is repeated counts once": () =>
    scene("repeated", async (notes, client) => {
      let tries = 0;
      await client.withSession((session) =>
        session.withTransaction(async () => {
          await notes.insertOne({ _id: ++tries }, { session });
          if (tries === 1) await fail(client, ["insert"], { closeConnection: true });
          await notes.insertOne({ _id: 100 + tries }, { session });
        }),
      );
      assert.deepEqual(await all(notes), [102, 2]);
    }),
  "a write that was done and is repeated counts once": () =>
    scene("done", async (notes, client) => {
      await doneAndRepeated(client, "insert");
      await notes.insertOne({ _id: 1, n: 0 });
      await doneAndRepeated(client, "update");
      await notes.updateOne({ _id: 1 }, { $inc: { n: 1 } });
      assert.deepEqual(await notes.find().toArray(), [{ _id: 1, n: 1 }]);
    }),
};

/** A client of the URL's user, with other options. */
const login = async (options, body) => {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 15_000, ...options });
  try {
    return await body(client.db(NAME).collection("logins"));
  } finally {
    await client.close();
  }
};
const { username, password } = new URL(url.replace("mongodb:", "http:"));

const logins = {
  "the right password is enough": () =>
    login({}, async (notes) => {
      await notes.deleteMany({});
      await notes.insertMany(documents(30));
      assert.equal((await notes.find({}, { batchSize: 4 }).toArray()).length, 30);
    }),
  "both mechanisms of SCRAM": async () => {
    for (const authMechanism of ["SCRAM-SHA-256", "SCRAM-SHA-1"]) {
      await login({ authMechanism }, (notes) => notes.findOne());
    }
  },
  "a wrong password is refused": () =>
    assert.rejects(login({ auth: { username, password: `${password}!` } }, (notes) => notes.findOne()), { code: 18 }),
};

await run({ server, scripted, stored, login: logins }[list]);
