"""PyMongo, blocking: `pymongo_sync.py URL LIST`, with the list `server`, `scripted`, `stored` or `login`. It prints a line for each check.

`server` needs what any server of documents has. `scripted` needs the scripted server of the lab: transactions, streams of replies, cursors
that wait, fail points. `stored` needs the same with `--store`. `login` needs a URL with a user and a password.
"""

import random
import sys
import threading
import time
from datetime import datetime

import gridfs
import pymongo
from bson import Binary, Int64, ObjectId, Regex, Timestamp
from checks import refused, run
from pymongo import DeleteMany, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge, DuplicateKeyError, OperationFailure

URL, LIST = sys.argv[1], sys.argv[2]
NAME = "pymongo_sync" if pymongo.version_tuple >= (4, 11) else "pymongo_older"
KIB = 1024


def client(**words):
    return pymongo.MongoClient(URL, serverSelectionTimeoutMS=15_000, **words)


class Scene:
    """A client, and an empty collection of the check's own."""

    def __init__(self, name, **words):
        self.name, self.words = name, words

    def __enter__(self):
        self.client = client(**self.words)
        self.db = self.client[NAME]
        self.db.drop_collection(self.name)
        return self.client, self.db[self.name]

    def __exit__(self, *_):
        self.client.close()


def text(seed, size):
    """A text of this length. Weir refuses a message that compresses to less than a 200th, as one of equal letters would."""
    return random.Random(seed).randbytes(size // 2).hex()


def documents(count, size=0):
    """Documents whose text shows whether one of another client came."""
    return [{"_id": number, "n": number % 10, "text": f"{NAME}-{number}-{text(number, size)}"} for number in range(count)]


def inserts_and_finds():
    with Scene("crud") as (_, notes):
        assert notes.insert_one({"_id": 1, "text": "one"}).inserted_id == 1
        made = notes.insert_many([{"text": "two"}, {"text": "three"}]).inserted_ids
        assert all(isinstance(one, ObjectId) for one in made) and len(made) == 2
        assert notes.find_one({"_id": 1}) == {"_id": 1, "text": "one"}
        assert notes.find_one({"_id": made[1]})["text"] == "three"
        assert notes.find_one({"_id": "nothing"}) is None


def finds_with_operators_order_and_limits():
    with Scene("queries") as (_, notes):
        notes.insert_many(documents(50))
        assert [one["_id"] for one in notes.find({"n": {"$gte": 8}}).sort("_id", 1).limit(4)] == [8, 9, 18, 19]
        assert [one["_id"] for one in notes.find({"n": 3}).sort("_id", -1).skip(1)] == [33, 23, 13, 3]
        assert notes.find_one({"_id": 7}, {"n": 1}) == {"_id": 7, "n": 7}
        assert notes.count_documents({"$or": [{"n": 1}, {"_id": {"$in": [2, 3]}}]}) == 7
        assert notes.count_documents({"text": Regex("-4[0-9]-")}) == 10


def updates_and_upserts():
    with Scene("updates") as (_, notes):
        notes.insert_many(documents(20))
        done = notes.update_one({"_id": 3}, {"$set": {"text": "new"}, "$inc": {"n": 5}})
        assert (done.matched_count, done.modified_count) == (1, 1)
        assert notes.find_one({"_id": 3}) == {"_id": 3, "n": 8, "text": "new"}
        assert notes.update_many({"n": 1}, {"$unset": {"text": ""}}).modified_count == 2
        assert notes.update_one({"_id": 99}, {"$set": {"n": 0}}, upsert=True).upserted_id == 99
        assert notes.replace_one({"_id": 99}, {"other": True}).modified_count == 1
        assert notes.find_one({"_id": 99}) == {"_id": 99, "other": True}


def finds_and_changes_at_once():
    with Scene("modify") as (_, notes):
        notes.insert_many(documents(5))
        after = pymongo.ReturnDocument.AFTER
        assert notes.find_one_and_update({"_id": 2}, {"$inc": {"n": 40}}, return_document=after)["n"] == 42
        assert notes.find_one_and_replace({"_id": 2}, {"n": 1})["n"] == 42
        assert notes.find_one_and_delete({"_id": 2}) == {"_id": 2, "n": 1}
        assert notes.count_documents({}) == 4


def deletes():
    with Scene("deletes") as (_, notes):
        notes.insert_many(documents(30))
        assert notes.delete_one({"n": 4}).deleted_count == 1
        assert notes.delete_many({"n": 4}).deleted_count == 2
        assert notes.delete_many({}).deleted_count == 27


def ordered_and_unordered_bulk_writes():
    with Scene("bulk") as (_, notes):
        work = [InsertOne({"_id": n}) for n in range(10)]
        work += [UpdateOne({"_id": 1}, {"$set": {"a": 1}}), UpdateMany({}, {"$set": {"b": 2}})]
        work += [ReplaceOne({"_id": 2}, {"c": 3}), DeleteMany({"_id": {"$gt": 7}})]
        done = notes.bulk_write(work)
        assert (done.inserted_count, done.deleted_count, done.matched_count) == (10, 2, 12), done.bulk_api_result
        for ordered, inserted in [(True, 1), (False, 2)]:
            work = [InsertOne({"_id": ordered}), InsertOne({"_id": 1}), InsertOne({"_id": f"{ordered} again"})]
            error = refused(BulkWriteError, lambda: notes.bulk_write(work, ordered=ordered))
            assert error.details["nInserted"] == inserted, error.details
            assert [(one["index"], one["code"]) for one in error.details["writeErrors"]] == [(1, 11000)]


def a_bulk_of_many_messages():
    with Scene("large_bulk") as (_, notes):
        assert len(notes.insert_many(documents(5_000, 2 * KIB)).inserted_ids) == 5_000
        assert notes.count_documents({}) == 5_000
        assert notes.find_one({"_id": 4_999})["text"].startswith(f"{NAME}-4999-")


def a_cursor_over_many_batches():
    with Scene("batches") as (_, notes):
        notes.insert_many(documents(1_000, 100))
        found = [one["_id"] for one in notes.find(batch_size=7).sort("_id", 1)]
        assert found == list(range(1_000)), found[:20]


def cursors_side_by_side():
    with Scene("cursors") as (_, notes):
        notes.insert_many(documents(200))
        cursors = [notes.find({"n": digit}, batch_size=2).sort("_id", 1) for digit in range(10)]
        for step in range(20):
            for digit, cursor in enumerate(cursors):
                assert next(cursor)["_id"] == step * 10 + digit
        assert all(next(cursor, None) is None for cursor in cursors)


def a_cursor_that_is_closed_early_is_gone():
    with Scene("closed") as (connected, notes):
        notes.insert_many(documents(100))
        cursor = notes.find(batch_size=5)
        next(cursor)
        number = cursor.cursor_id
        assert number
        cursor.close()
        more = {"getMore": Int64(number), "collection": notes.name}
        assert refused(OperationFailure, lambda: connected[NAME].command(more)).code == 43


def a_cursor_goes_on_after_its_client_waited():
    with Scene("waiting") as (_, notes):
        notes.insert_many(documents(20))
        cursor = notes.find(batch_size=5).sort("_id", 1)
        first = [next(cursor)["_id"] for _ in range(5)]
        time.sleep(1.2)
        assert first + [one["_id"] for one in cursor] == list(range(20))


def aggregates():
    with Scene("aggregates") as (_, notes):
        notes.insert_many(documents(100))
        stages = [{"$match": {"n": {"$lt": 3}}}, {"$group": {"_id": "$n", "count": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        assert list(notes.aggregate(stages)) == [{"_id": n, "count": 10} for n in range(3)]
        long = notes.aggregate([{"$match": {}}, {"$sort": {"_id": 1}}, {"$skip": 1}], batchSize=9)
        assert [one["_id"] for one in long] == list(range(1, 100))


def counts_and_distinct_values():
    with Scene("counts") as (_, notes):
        notes.insert_many(documents(40))
        assert notes.estimated_document_count() == 40
        assert notes.count_documents({"n": 5}) == 4
        assert sorted(notes.distinct("n")) == list(range(10))


def indexes_and_unique_keys():
    with Scene("indexes") as (_, notes):
        assert notes.create_index([("n", 1)], unique=True) == "n_1"
        assert {"_id_", "n_1"} == set(notes.index_information())
        notes.insert_one({"_id": 1, "n": 1})
        error = refused(DuplicateKeyError, lambda: notes.insert_one({"_id": 2, "n": 1}))
        assert error.code == 11000
        notes.drop_index("n_1")
        notes.insert_one({"_id": 2, "n": 1})


def databases_and_collections():
    with Scene("names") as (connected, notes):
        notes.insert_one({})
        assert NAME in connected.list_database_names()
        assert "names" in connected[NAME].list_collection_names()
        connected[NAME].drop_collection("names")
        assert "names" not in connected[NAME].list_collection_names()


def errors_have_their_codes_and_the_connection_goes_on():
    with Scene("errors", maxPoolSize=1) as (connected, notes):
        assert refused(OperationFailure, lambda: connected[NAME].command("noSuchCommand")).code == 59
        assert refused(OperationFailure, lambda: notes.update_one({}, {"$noSuchModifier": {"a": 1}})).code == 9
        assert connected.admin.command("ping")["ok"] == 1


def values_of_every_type_come_back():
    value = {
        "_id": "types",
        "double": 1.5,
        "text": "ü✓",
        "nested": {"a": {"b": [1, {"c": None}]}},
        "array": [1, "two", 3.0],
        "binary": bytes(range(256)),
        "vector": Binary(b"abc", 0x80),
        "id": ObjectId(),
        "bool": True,
        "date": datetime(2026, 11, 29, 12, 30, 15, 123_000),
        "null": None,
        "regex": Regex("a.b", "i"),
        "int": 2**31 - 1,
        "long": Int64(2**62),
        "timestamp": Timestamp(7, 9),
    }
    with Scene("types") as (_, notes):
        notes.insert_one(value)
        assert notes.find_one({"_id": "types"}) == value


def large_documents():
    with Scene("large") as (_, notes):
        for size in [15 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB, 8 * KIB * KIB]:
            sent = text(size, size)
            notes.insert_one({"_id": size, "text": sent})
            assert notes.find_one({"_id": size})["text"] == sent
        refused(DocumentTooLarge, lambda: notes.insert_one({"text": "x" * 17 * KIB * KIB}))


def explicit_sessions():
    with Scene("sessions") as (connected, notes):
        with connected.start_session() as one, connected.start_session(causal_consistency=True) as other:
            notes.insert_one({"_id": 1}, session=one)
            assert notes.find_one({"_id": 1}, session=other) == {"_id": 1}
            notes.insert_many([{} for _ in range(30)], session=one)
            assert len(list(notes.find(batch_size=4, session=other))) == 31
            assert one.session_id != other.session_id


def files_of_gridfs():
    with Scene("files") as (connected, _):
        database = connected[NAME]
        bucket = gridfs.GridFSBucket(database, chunk_size_bytes=64 * KIB)
        for name in ["fs.files", "fs.chunks"]:
            database.drop_collection(name)
        content = random.Random(7).randbytes(1_000_000)
        number = bucket.upload_from_stream("report", content, metadata={"kind": "test"})
        with bucket.open_download_stream(number) as stream:
            assert stream.read() == content and stream.metadata == {"kind": "test"}
        with bucket.open_download_stream_by_name("report") as stream:
            stream.seek(500_000)
            assert stream.read(1_000) == content[500_000:501_000]
        bucket.delete(number)
        refused(gridfs.NoFile, lambda: bucket.open_download_stream(number))


def many_clients_at_a_time():
    with Scene("threads", maxPoolSize=20) as (_, notes):
        faults = []

        def work(thread):
            try:
                for number in range(25):
                    key = f"{thread}-{number}"
                    notes.insert_one({"_id": key, "owner": thread})
                    assert notes.find_one({"_id": key})["owner"] == thread
                    assert notes.update_one({"_id": key}, {"$set": {"n": number}}).modified_count == 1
                found = list(notes.find({"owner": thread}, batch_size=6))
                assert len(found) == 25 and all(one["owner"] == thread for one in found)
            except Exception as error:
                faults.append(f"{thread}: {error!r}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[:3]


def a_connection_for_each_request():
    for number in range(20):
        with Scene("fresh") as (_, notes):
            notes.insert_one({"_id": number})
            assert notes.find_one()["_id"] == number


SERVER = [
    inserts_and_finds,
    finds_with_operators_order_and_limits,
    updates_and_upserts,
    finds_and_changes_at_once,
    deletes,
    ordered_and_unordered_bulk_writes,
    a_bulk_of_many_messages,
    a_cursor_over_many_batches,
    cursors_side_by_side,
    a_cursor_that_is_closed_early_is_gone,
    a_cursor_goes_on_after_its_client_waited,
    aggregates,
    counts_and_distinct_values,
    indexes_and_unique_keys,
    databases_and_collections,
    errors_have_their_codes_and_the_connection_goes_on,
    values_of_every_type_come_back,
    large_documents,
    explicit_sessions,
    files_of_gridfs,
    many_clients_at_a_time,
    a_connection_for_each_request,
]

if __name__ == "__main__":
    import pymongo_login
    import pymongo_scripted
    import pymongo_stored

    lists = {
        "server": SERVER,
        "scripted": pymongo_scripted.CHECKS,
        "stored": pymongo_stored.CHECKS,
        "login": pymongo_login.CHECKS,
    }
    run(lists[LIST])
