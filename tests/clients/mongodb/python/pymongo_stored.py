"""Checks of PyMongo in front of the scripted server of the lab with `--store`: the effects of transactions, and of writes that are
repeated. The checks run with any options of the URL: compressors, load-balanced mode."""

import sys

import pymongo_scripted
from pymongo import ReturnDocument
from pymongo_scripted import fail

URL = sys.argv[1]
ALL = list(range(20))


class Scene(pymongo_scripted.Scene):
    """A client, and an empty collection of the check's own."""

    def __enter__(self):
        connected, notes = super().__enter__()
        notes.delete_many({})
        return connected, notes


def ids(notes, **words):
    """The documents of a collection, read in batches."""
    return sorted(one["_id"] for one in notes.find(batch_size=7, **words))


def documents(numbers):
    return [{"_id": number} for number in numbers]


def done_and_repeated(connected, command):
    """The next such command is carried out, and its reply makes the driver send it again."""
    error = {"code": 262, "errmsg": "the reply came too late"}
    fail(connected, [command], writeConcernError=error, errorLabels=["RetryableWriteError"])


def a_transaction_is_seen_behind_its_commit_alone():
    with Scene("committed") as (connected, notes):
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_many(documents(ALL), session=session)
            assert ids(notes) == [] and ids(notes, session=session) == ALL
            session.commit_transaction()
        assert ids(notes) == ALL


def an_aborted_transaction_leaves_nothing():
    with Scene("aborted") as (connected, notes):
        notes.insert_many([{"_id": number, "n": 0} for number in range(3)])
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_one({"_id": 7}, session=session)
            notes.update_one({"_id": 1}, {"$inc": {"n": 5}}, session=session)
            notes.delete_one({"_id": 2}, session=session)
            assert ids(notes, session=session) == [0, 1, 7]
            session.abort_transaction()
        assert sorted((one["_id"], one["n"]) for one in notes.find()) == [(0, 0), (1, 0), (2, 0)]


def a_transaction_whose_session_ends_leaves_nothing():
    with Scene("ended") as (connected, notes):
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_one({"_id": 1}, session=session)
        assert ids(notes) == []


def transactions_side_by_side_do_not_mix():
    with Scene("mixed") as (connected, notes):
        sessions = [connected.start_session() for _ in range(6)]
        for session in sessions:
            session.start_transaction()
        for step in range(4):
            for number, session in enumerate(sessions):
                notes.insert_one({"_id": number * 10 + step}, session=session)
                assert ids(notes, session=session) == [number * 10 + before for before in range(step + 1)]
        for number, session in enumerate(sessions):
            session.commit_transaction() if number % 2 else session.abort_transaction()
            session.end_session()
        assert ids(notes) == [number * 10 + step for number in [1, 3, 5] for step in range(4)]


def repeated(name, **data):
    """A transaction whose first try fails in its middle: the second one counts alone."""
    with Scene(name) as (connected, notes):
        tries = []

        def work(session):
            tries.append(1)
            notes.insert_one({"_id": len(tries)}, session=session)
            if len(tries) == 1:
                fail(connected, ["insert"], **data)
            notes.insert_one({"_id": 100}, session=session)

        with connected.start_session() as session:
            session.with_transaction(work)
        assert len(tries) == 2 and ids(notes) == [2, 100], (tries, ids(notes))


def a_transaction_that_is_repeated_after_an_error_counts_once():
    repeated("after_error", errorCode=112, errorLabels=["TransientTransactionError"])


def a_transaction_that_is_repeated_after_a_lost_connection_counts_once():
    repeated("after_loss", closeConnection=True)


def a_commit_that_is_repeated_after_a_lost_connection_counts_once():
    with Scene("commit_lost") as (connected, notes):
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_one({"_id": 1}, session=session)
            fail(connected, ["commitTransaction"], closeConnection=True)
            session.commit_transaction()
        assert ids(notes) == [1]


def a_commit_that_was_done_and_is_repeated_counts_once():
    with Scene("commit_done") as (connected, notes):
        with connected.start_session() as session:
            session.start_transaction()
            notes.insert_one({"_id": 1}, session=session)
            done_and_repeated(connected, "commitTransaction")
            session.commit_transaction()
        assert ids(notes) == [1]


def writes(name, before_each):
    """Each write counts once, although the driver sends it twice."""
    with Scene(name) as (connected, notes):
        before_each(connected, "insert")
        # A second execution would find its documents there.
        notes.insert_many([{"_id": number, "n": 0} for number in range(3)])
        before_each(connected, "update")
        notes.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert notes.find_one({"_id": 1})["n"] == 1
        before_each(connected, "findAndModify")
        notes.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=ReturnDocument.AFTER)
        assert notes.find_one({"_id": 1})["n"] == 2
        before_each(connected, "delete")
        notes.delete_one({"n": 0})
        assert len(ids(notes)) == 2


def a_write_that_was_done_and_is_repeated_counts_once():
    writes("done", done_and_repeated)


def a_write_that_is_repeated_after_a_lost_connection_counts_once():
    writes("lost", lambda connected, command: fail(connected, [command], closeConnection=True))


CHECKS = [
    a_transaction_is_seen_behind_its_commit_alone,
    an_aborted_transaction_leaves_nothing,
    a_transaction_whose_session_ends_leaves_nothing,
    transactions_side_by_side_do_not_mix,
    a_transaction_that_is_repeated_after_an_error_counts_once,
    a_transaction_that_is_repeated_after_a_lost_connection_counts_once,
    a_commit_that_was_done_and_is_repeated_counts_once,
    a_write_that_was_done_and_is_repeated_counts_once,
    a_write_that_is_repeated_after_a_lost_connection_counts_once,
]
# In load-balanced mode a transaction ends with its connection.
if "loadBalanced=true" not in URL:
    CHECKS.append(a_commit_that_is_repeated_after_a_lost_connection_counts_once)
