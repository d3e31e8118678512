// Mongoose: `node mongoose.js URL LIST`, with the list `server`, `scripted` or `stored`. It prints a line for each check.
import assert from "node:assert/strict";

import mongoose from "mongoose";

import { run } from "./checks.js";

const [url, list] = process.argv.slice(2);

const connection = await mongoose
  .createConnection(url, { dbName: "mongoose", serverSelectionTimeoutMS: 15_000 })
  .asPromise();
const author = new mongoose.Schema({ name: { type: String, required: true } });
const book = new mongoose.Schema({
  title: { type: String, required: true },
  pages: { type: Number, min: 1 },
  tags: [String],
  author: { type: mongoose.Schema.Types.ObjectId, ref: "Author" },
  published: Date,
});
const Author = connection.model("Author", author);
const Book = connection.model("Book", book);

/** Runs `body` with empty collections. */
const scene = (body) => async () => {
  await Author.deleteMany({});
  await Book.deleteMany({});
  await body();
};

const server = {
  "saves and finds documents": scene(async () => {
    const saved = await new Book({ title: "One", pages: 10, tags: ["a", "b"], published: new Date(0) }).save();
    const found = await Book.findById(saved._id);
    assert.deepEqual(found.toObject(), saved.toObject());
    found.pages = 11;
    found.tags.push("c");
    await found.save();
    assert.deepEqual((await Book.findOne({ pages: { $gt: 10 } })).tags.toObject(), ["a", "b", "c"]);
  }),
  "refuses documents that its schema forbids": scene(async () => {
    await assert.rejects(new Book({ pages: 0 }).save(), { name: "ValidationError" });
    assert.equal(await Book.countDocuments(), 0);
  }),
  "populates references": scene(async () => {
    const writer = await Author.create({ name: "Ada" });
    await Book.insertMany(Array.from({ length: 5 }, (_, number) => ({ title: `Book ${number}`, author: writer._id })));
    const books = await Book.find().sort("title").populate("author");
    assert.deepEqual(books.map((one) => [one.title, one.author.name]), Array.from({ length: 5 }, (_, n) => [`Book ${n}`, "Ada"]));
  }),
  "updates and deletes many": scene(async () => {
    await Book.insertMany(Array.from({ length: 20 }, (_, number) => ({ title: `${number}`, pages: number + 1 })));
    assert.equal((await Book.updateMany({ pages: { $lte: 5 } }, { $set: { tags: ["short"] } })).modifiedCount, 5);
    assert.equal((await Book.deleteMany({ tags: "short" })).deletedCount, 5);
    assert.equal(await Book.countDocuments(), 15);
  }),
  "a cursor over many batches": scene(async () => {
    await Book.insertMany(Array.from({ length: 300 }, (_, number) => ({ title: `${number}`, pages: number + 1 })));
    const pages = [];
    for await (const one of Book.find().sort("pages").batchSize(7).cursor()) pages.push(one.pages);
    assert.deepEqual(pages, Array.from({ length: 300 }, (_, number) => number + 1));
  }),
  "aggregates": scene(async () => {
    await Book.insertMany(Array.from({ length: 12 }, (_, number) => ({ title: `${number % 3}`, pages: 2 })));
    const groups = await Book.aggregate([{ $group: { _id: "$title", pages: { $sum: "$pages" } } }, { $sort: { _id: 1 } }]);
    assert.deepEqual(groups, ["0", "1", "2"].map((_id) => ({ _id, pages: 8 })));
  }),
};

const scripted = {
  "a transaction commits and another aborts": async () => {
    await connection.transaction(async (session) => {
      await new Author({ name: "Ada" }).save({ session });
    });
    await assert.rejects(
      connection.transaction(async (session) => {
        await new Author({ name: "Bob" }).save({ session });
        throw new Error("no");
      }),
    );
  },
};

// The scripted server stores documents.
const stored = {
  "a transaction counts with its commit alone": scene(async () => {
    await connection.transaction(async (session) => {
      await new Author({ name: "Ada" }).save({ session });
      assert.equal((await Author.find()).length, 0);
    });
    await assert.rejects(
      connection.transaction(async (session) => {
        await new Author({ name: "Bob" }).save({ session });
        throw new Error("no");
      }),
    );
    assert.deepEqual((await Author.find()).map((one) => one.name), ["Ada"]);
  }),
};

await run({ server, scripted, stored }[list]);
