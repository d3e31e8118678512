"""Logins of PyMongo: the URL has a user and a password, and perhaps a mechanism."""

import sys
from urllib.parse import unquote, urlsplit

import pymongo
from checks import refused
from pymongo.errors import OperationFailure

URL = sys.argv[1]
NAME = "pymongo_login"


def login(**words):
    """A client of that user; the words replace what the URL says."""
    parts = urlsplit(URL)
    user, password = unquote(parts.username), unquote(parts.password)
    plain = f"mongodb://{parts.hostname}:{parts.port}/?{parts.query}"
    words = {"username": user, "password": password, **words}
    return pymongo.MongoClient(plain, serverSelectionTimeoutMS=15_000, **words)


def the_right_password_is_enough():
    with login() as client:
        notes = client[NAME].notes
        notes.drop()
        notes.insert_many([{"_id": number} for number in range(50)])
        assert len(list(notes.find(batch_size=3))) == 50


def both_mechanisms_of_scram():
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1"]:
        with login(authMechanism=mechanism) as client:
            assert client[NAME].notes.find_one({"_id": "nothing"}) is None, mechanism


def a_wrong_password_is_refused():
    with login(password="wrong") as client:
        error = refused(OperationFailure, lambda: client[NAME].notes.find_one())
        assert error.code == 18, error


def an_unknown_user_is_refused_in_the_same_words():
    texts = set()
    for words in [{"username": "nobody"}, {"password": "wrong"}]:
        with login(**words) as client:
            texts.add(str(refused(OperationFailure, lambda: client[NAME].notes.find_one()).details["errmsg"]))
    assert len(texts) == 1, texts


def without_a_login_nothing_is_served():
    with login(username=None, password=None) as client:
        error = refused(OperationFailure, lambda: client[NAME].notes.find_one())
        assert error.code == 13 or "auth" in str(error).lower(), error
        assert client.admin.command("ping")["ok"] == 1


def many_connections_log_in_at_a_time():
    import threading

    faults = []
    with login(maxPoolSize=16) as client:

        def work(number):
            try:
                client[NAME].logins.update_one({"_id": number}, {"$set": {"n": number}}, upsert=True)
            except Exception as error:
                faults.append(repr(error))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[:3]
        assert client[NAME].logins.count_documents({}) >= 16


CHECKS = [
    the_right_password_is_enough,
    both_mechanisms_of_scram,
    a_wrong_password_is_refused,
    an_unknown_user_is_refused_in_the_same_words,
    without_a_login_nothing_is_served,
    many_connections_log_in_at_a_time,
]
