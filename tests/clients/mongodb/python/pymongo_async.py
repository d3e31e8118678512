"""PyMongo with asyncio: `pymongo_async.py URL LIST`, with the list `server`, `scripted` or `stored`; see `pymongo_sync.py`."""

import asyncio
import sys

import pymongo
from bson import Int64
from checks import refused_async, run
from gridfs import AsyncGridFSBucket
from pymongo import InsertOne, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

URL, LIST = sys.argv[1], sys.argv[2]
NAME = "pymongo_async"


def client(**words):
    return pymongo.AsyncMongoClient(URL, serverSelectionTimeoutMS=15_000, **words)


class Scene:
    """A client, and an empty collection of the check's own."""

    def __init__(self, name, **words):
        self.name, self.words = name, words

    async def __aenter__(self):
        self.client = client(**self.words)
        notes = self.client[NAME][self.name]
        await notes.delete_many({})
        return self.client, notes

    async def __aexit__(self, *_):
        await self.client.close()


async def fail(connected, commands, **data):
    words = {"failCommands": commands, **data}
    await connected.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=words)


async def inserts_finds_updates_and_deletes():
    async with Scene("crud") as (_, notes):
        await notes.insert_many([{"_id": number, "n": number % 3} for number in range(30)])
        assert (await notes.find_one({"_id": 4}))["n"] == 1
        assert (await notes.update_many({"n": 1}, {"$set": {"n": 7}})).modified_count == 10
        assert await notes.count_documents({"n": 7}) == 10
        assert (await notes.delete_many({"n": 7})).deleted_count == 10
        assert [one["_id"] async for one in notes.find({"n": 2}).sort("_id", -1).limit(2)] == [29, 26]


async def bulk_writes_with_an_error():
    async with Scene("bulk") as (_, notes):
        work = [InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"a": 1}}), InsertOne({"_id": 1}), InsertOne({"_id": 2})]
        error = await refused_async(BulkWriteError, notes.bulk_write(work, ordered=False))
        assert error.details["nInserted"] == 2 and error.details["writeErrors"][0]["code"] == 11000
        await refused_async(DuplicateKeyError, notes.insert_one({"_id": 1}))


async def a_cursor_over_many_batches():
    async with Scene("batches") as (_, notes):
        await notes.insert_many([{"_id": number} for number in range(700)])
        assert [one["_id"] async for one in notes.find(batch_size=6).sort("_id", 1)] == list(range(700))


async def a_cursor_that_is_closed_early_is_gone():
    async with Scene("closed") as (connected, notes):
        await notes.insert_many([{} for _ in range(50)])
        cursor = notes.find(batch_size=5)
        await cursor.next()
        number = cursor.cursor_id
        await cursor.close()
        more = {"getMore": Int64(number), "collection": notes.name}
        assert (await refused_async(OperationFailure, connected[NAME].command(more))).code == 43


async def many_tasks_on_few_connections():
    async with Scene("tasks", maxPoolSize=4) as (_, notes):

        async def work(task):
            for number in range(10):
                await notes.insert_one({"_id": f"{task}-{number}", "owner": task})
            found = [one["owner"] async for one in notes.find({"owner": task}, batch_size=3)]
            assert found == [task] * 10, found

        await asyncio.gather(*(work(task) for task in range(40)))


async def a_task_that_is_cancelled_leaves_nothing_behind():
    async with Scene("cancelled", maxPoolSize=1) as (_, notes):
        await notes.insert_many([{"_id": number, "text": "x" * 100_000} for number in range(100)])
        for pause in [0, 0.001, 0.01, 0.03]:
            task = asyncio.create_task(notes.find().to_list())
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert (await notes.find_one({"_id": 7}))["_id"] == 7


async def explicit_sessions():
    async with Scene("sessions") as (connected, notes):
        async with connected.start_session() as session:
            await notes.insert_one({"_id": 1}, session=session)
            assert await notes.find_one({"_id": 1}, session=session)


async def files_of_gridfs():
    async with Scene("files") as (connected, _):
        bucket = AsyncGridFSBucket(connected[NAME], chunk_size_bytes=50_000)
        content = bytes(range(256)) * 2_000
        number = await bucket.upload_from_stream("report", content)
        stream = await bucket.open_download_stream(number)
        assert await stream.read() == content
        await bucket.delete(number)


async def transactions_commit_and_abort():
    async with Scene("transactions") as (connected, notes):
        for ending in ["commit_transaction", "abort_transaction"]:
            async with connected.start_session() as session:
                await session.start_transaction()
                await notes.insert_one({"n": 1}, session=session)
                found = await notes.find_one({"_id": 3}, session=session, comment=ending)
                assert found["request"] == ending
                await getattr(session, ending)()


async def cursors_of_many_tasks_are_their_own():
    async with Scene("tasks", maxPoolSize=6) as (_, notes):

        async def work(task):
            comment = f"task {task}"
            found = await notes.find(batch_size=60, comment=comment).to_list()
            assert [one["_id"] for one in found] == list(range(1, 501)), comment
            assert all(one["request"] == comment for one in found), comment

        await asyncio.gather(*(work(task) for task in range(20)))


async def a_stream_of_replies():
    async with Scene("exhaust") as (_, notes):
        cursor = notes.find(cursor_type=pymongo.CursorType.EXHAUST, batch_size=20)
        assert [one["_id"] async for one in cursor] == list(range(1, 501))


async def a_write_is_repeated_once_after_a_lost_connection():
    async with Scene("retried") as (connected, notes):
        await fail(connected, ["insert"], closeConnection=True)
        assert (await notes.insert_one({"_id": 1})).acknowledged


async def a_change_stream_shows_writes_of_others():
    async with Scene("watched") as (_, notes):
        async with await notes.watch(max_await_time_ms=500) as stream:
            assert await stream.try_next() is None
            await notes.insert_one({"_id": 1})
            assert (await stream.next())["documentKey"] == {"_id": 1}


async def a_transaction_counts_with_its_commit_alone():
    async with Scene("ends") as (connected, notes):
        for number, ending in enumerate(["commit_transaction", "abort_transaction"]):
            async with connected.start_session() as session:
                await session.start_transaction()
                await notes.insert_one({"_id": number}, session=session)
                assert [one["_id"] async for one in notes.find()] == list(range(number))
                await getattr(session, ending)()
        assert [one["_id"] async for one in notes.find()] == [0]


async def a_write_that_was_done_and_is_repeated_counts_once():
    async with Scene("done") as (connected, notes):
        error = {"code": 262, "errmsg": "the reply came too late"}
        await notes.insert_one({"_id": 1, "n": 0})
        await fail(connected, ["update"], writeConcernError=error, errorLabels=["RetryableWriteError"])
        await notes.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert (await notes.find_one({"_id": 1}))["n"] == 1


LISTS = {
    "server": [
        inserts_finds_updates_and_deletes,
        bulk_writes_with_an_error,
        a_cursor_over_many_batches,
        a_cursor_that_is_closed_early_is_gone,
        many_tasks_on_few_connections,
        a_task_that_is_cancelled_leaves_nothing_behind,
        explicit_sessions,
        files_of_gridfs,
    ],
    "scripted": [
        transactions_commit_and_abort,
        cursors_of_many_tasks_are_their_own,
        a_stream_of_replies,
        a_write_is_repeated_once_after_a_lost_connection,
        a_change_stream_shows_writes_of_others,
    ],
    "stored": [
        a_transaction_counts_with_its_commit_alone,
        a_write_that_was_done_and_is_repeated_counts_once,
    ],
}

if __name__ == "__main__":
    run(LISTS[LIST])
