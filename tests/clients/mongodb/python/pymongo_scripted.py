"""Checks of PyMongo in front of the scripted server of the lab, which has 500 documents in each collection, with `_id` from 1 on. Each
document has the comment of the command that found it, so that the reply of another request shows. The checks run with any options of the
URL: compressors, load-balanced mode."""

import random
import sys
import threading
import time

import pymongo
from bson import Int64
from checks import refused
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

URL = sys.argv[1]
NAME = "pymongo_scripted"
ALL = list(range(1, 501))


def client(**words):
    return pymongo.MongoClient(URL, serverSelectionTimeoutMS=15_000, **words)


class Scene:
    """A client, and a collection of the check's own."""

    def __init__(self, name, **words):
        self.name, self.words = name, words

    def __enter__(self):
        self.client = client(**self.words)
        return self.client, self.client[NAME][self.name]

    def __exit__(self, *_):
        self.client.close()


def read(notes, comment, count=None, **words):
    """Reads a result to its end: it is whole, in order, and that of the request."""
    found = list(notes.find(comment=comment, **words))
    assert [one["_id"] for one in found] == ALL[:count], [one["_id"] for one in found][:10]
    assert all(one["request"] == comment for one in found), f"another reply than that to {comment}"
    assert all(one["ns"] == f"{NAME}.{notes.name}" for one in found)


def fail(connected, commands, **data):
    """The next request with one of these commands fails."""
    words = {"failCommands": commands, **data}
    connected.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=words)


def cursors_over_many_batches():
    with Scene("batches") as (_, notes):
        for size in [2, 7, 100, 499, 1_000]:
            read(notes, f"batches of {size}", batch_size=size)


def cursors_of_many_threads_are_their_own():
    with Scene("threads", maxPoolSize=12) as (_, notes):
        faults = []

        def work(thread):
            try:
                for round_ in range(3):
                    read(notes, f"thread {thread}, round {round_}", batch_size=40 + thread)
            except BaseException as error:
                faults.append(repr(error))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[:3]


def a_cursor_that_is_closed_early_is_gone():
    with Scene("closed") as (connected, notes):
        cursor = notes.find(batch_size=5)
        next(cursor)
        number = cursor.cursor_id
        cursor.close()
        more = {"getMore": Int64(number), "collection": notes.name}
        assert refused(OperationFailure, lambda: connected[NAME].command(more)).code == 43


def unacknowledged_writes_arrive():
    with Scene("unacknowledged", maxPoolSize=1) as (connected, notes):
        before = connected.admin.command("weirOrigin")["inserted"]
        silent = notes.with_options(write_concern=WriteConcern(w=0))
        for number in range(200):
            assert not silent.insert_one({"_id": number}).acknowledged
        read(notes, "behind them", batch_size=90)
        for _ in range(50):
            if connected.admin.command("weirOrigin")["inserted"] == before + 200:
                return
            time.sleep(0.1)
        raise AssertionError(connected.admin.command("weirOrigin"))


def transactions_commit_and_abort():
    with Scene("transactions") as (connected, notes):
        for ending in ["commit_transaction", "abort_transaction"]:
            with connected.start_session() as session:
                for _ in range(3):
                    session.start_transaction()
                    notes.insert_one({"n": 1}, session=session)
                    read(notes, ending, session=session, batch_size=90)
                    getattr(session, ending)()


def transactions_side_by_side():
    with Scene("side_by_side") as (connected, notes):
        sessions = [connected.start_session() for _ in range(8)]
        for session in sessions:
            session.start_transaction()
        for step in range(5):
            for number, session in enumerate(sessions):
                notes.insert_one({"step": step}, session=session)
                mark = f"session {number}"
                assert notes.find_one({"_id": 1 + number}, session=session, comment=mark)["request"] == mark
        for number, session in enumerate(sessions):
            if number % 2:
                session.commit_transaction()
            else:
                session.abort_transaction()
            session.end_session()


def a_transaction_is_repeated_after_a_transient_error():
    with Scene("transient") as (connected, notes):
        tries = []

        def work(session):
            tries.append(1)
            if len(tries) == 1:
                fail(connected, ["insert"], errorCode=112, errorLabels=["TransientTransactionError"])
            notes.insert_one({"n": len(tries)}, session=session)

        with connected.start_session() as session:
            session.with_transaction(work)
        assert len(tries) == 2


def a_transaction_is_repeated_after_a_lost_connection():
    with Scene("lost") as (connected, notes):
        tries = []

        def work(session):
            tries.append(1)
            notes.insert_one({"n": len(tries)}, session=session)
            if len(tries) == 1:
                fail(connected, ["insert"], closeConnection=True)
            notes.insert_one({"n": len(tries)}, session=session)

        with connected.start_session() as session:
            session.with_transaction(work)
        assert len(tries) == 2


def a_commit_is_repeated_after_a_lost_connection():
    with Scene("commit") as (connected, notes):
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_one({"n": 1}, session=session)
            fail(connected, ["commitTransaction"], closeConnection=True)
            session.commit_transaction()


def a_write_is_repeated_once_after_a_lost_connection():
    with Scene("retried") as (connected, notes):
        fail(connected, ["insert"], closeConnection=True)
        notes.insert_one({"n": 1})
        fail(connected, ["update"], errorCode=91, errorLabels=["RetryableWriteError"])
        notes.update_one({"_id": 1}, {"$set": {"n": 2}})
        with client(retryWrites=False) as plain:
            fail(connected, ["insert"], closeConnection=True)
            refused(PyMongoError, lambda: plain[NAME].retried.insert_one({"n": 3}))


def a_read_is_repeated_once_after_a_lost_connection():
    with Scene("reads") as (connected, notes):
        fail(connected, ["find"], closeConnection=True)
        assert notes.find_one({"_id": 4}, comment="again")["request"] == "again"
        with client(retryReads=False) as plain:
            fail(connected, ["find"], closeConnection=True)
            refused(PyMongoError, lambda: plain[NAME].reads.find_one())


def errors_of_the_server_pass_with_their_labels():
    with Scene("labels") as (connected, notes):
        fail(connected, ["find"], errorCode=96, errorLabels=["OneOfTheServer"])
        error = refused(OperationFailure, lambda: notes.find_one())
        assert error.code == 96 and error.has_error_label("OneOfTheServer"), error.details


def a_write_concern_error_passes():
    with Scene("concern") as (connected, notes):
        fail(connected, ["insert"], writeConcernError={"code": 100, "errmsg": "not enough members"})
        assert refused(PyMongoError, lambda: notes.insert_one({"n": 1})).code == 100


def a_stream_of_replies():
    with Scene("exhaust") as (_, notes):
        for size in [20, 150]:
            read(notes, f"stream of {size}", cursor_type=pymongo.CursorType.EXHAUST, batch_size=size)


def a_stream_of_replies_that_is_left():
    with Scene("left", maxPoolSize=2) as (connected, notes):
        for _ in range(3):
            cursor = notes.find(cursor_type=pymongo.CursorType.EXHAUST, batch_size=20)
            for _ in range(30):
                next(cursor)
            cursor.close()
            read(notes, "after a stream", batch_size=300)


def a_change_stream_shows_writes_of_others():
    with Scene("watched") as (_, notes):
        with notes.watch(max_await_time_ms=500) as stream:
            assert stream.try_next() is None
            for number in range(3):
                notes.insert_one({"_id": number})
            seen = [next(stream)["documentKey"]["_id"] for _ in range(3)]
            assert seen == [0, 1, 2] and stream.resume_token


def a_change_stream_waits_and_others_do_not():
    with Scene("waits") as (_, notes):
        with notes.watch(max_await_time_ms=4_000) as stream:
            seen = []
            waiting = threading.Thread(target=lambda: seen.append(next(stream)["documentKey"]["_id"]))
            waiting.start()
            begun = time.monotonic()
            for _ in range(50):
                notes.find_one({"_id": 1})
            assert time.monotonic() - begun < 2.0
            notes.insert_one({"_id": "late"})
            waiting.join(5)
            assert seen == ["late"] and time.monotonic() - begun < 3.0


def a_change_stream_goes_on_after_a_lost_connection():
    with Scene("resumed") as (connected, notes):
        with notes.watch(max_await_time_ms=500) as stream:
            notes.insert_one({"_id": 1})
            assert next(stream)["documentKey"]["_id"] == 1
            fail(connected, ["getMore"], closeConnection=True)
            assert stream.try_next() is None
            notes.insert_one({"_id": 2})
            assert next(stream)["documentKey"]["_id"] == 2


def overload_of_the_server_passes_and_is_repeated():
    with Scene("overload") as (connected, notes):
        labels = ["SystemOverloadedError", "RetryableError"]
        fail(connected, ["find"], errorCode=462, errorLabels=labels)
        assert notes.find_one({"_id": 9}, comment="later")["request"] == "later"


def large_messages_each_way():
    # Weir and the scripted server refuse a message that compresses to less than a 200th.
    some = random.Random(7)
    with Scene("both_ways") as (_, notes):
        notes.insert_many([{"_id": number, "text": some.randbytes(4_500).hex()} for number in range(2_000)])
        read(notes, "z" * 100, batch_size=500)


CHECKS = [
    unacknowledged_writes_arrive,
    cursors_over_many_batches,
    cursors_of_many_threads_are_their_own,
    a_cursor_that_is_closed_early_is_gone,
    transactions_commit_and_abort,
    transactions_side_by_side,
    a_transaction_is_repeated_after_a_transient_error,
    a_transaction_is_repeated_after_a_lost_connection,
    a_commit_is_repeated_after_a_lost_connection,
    a_write_is_repeated_once_after_a_lost_connection,
    a_read_is_repeated_once_after_a_lost_connection,
    errors_of_the_server_pass_with_their_labels,
    a_write_concern_error_passes,
    a_stream_of_replies,
    a_stream_of_replies_that_is_left,
    a_change_stream_shows_writes_of_others,
    a_change_stream_waits_and_others_do_not,
    a_change_stream_goes_on_after_a_lost_connection,
    overload_of_the_server_passes_and_is_repeated,
    large_messages_each_way,
]
# In load-balanced mode a transaction ends with its connection.
if "loadBalanced=true" in URL:
    CHECKS.remove(a_commit_is_repeated_after_a_lost_connection)
