"""Streams with consumer groups, blocking reads, and publish/subscribe."""

import threading
import time

import pytest
import redis


def entries(reply, name):
    """XREAD as {stream: [...]} (RESP3) or [[stream, [...]]] (RESP2), one form."""
    if isinstance(reply, dict):
        found = reply[name]
        # redis-py wraps RESP3 entries of a stream in one more list.
        return found[0] if found and isinstance(found[0], list) else found
    return dict((stream, found) for stream, found in reply)[name]


def test_a_consumer_group_delivers_acknowledges_and_claims(client, key):
    ids = [client.xadd(key, {"n": number}) for number in range(10)]
    assert client.xlen(key) == 10
    assert client.xgroup_create(key, "group", id="0") is True
    first = entries(client.xreadgroup("group", "one", {key: ">"}, count=6), key)
    assert [entry for entry, _ in first] == ids[:6]
    second = entries(client.xreadgroup("group", "two", {key: ">"}, count=6), key)
    assert [fields["n"] for _, fields in second] == ["6", "7", "8", "9"]
    assert client.xack(key, "group", *ids[:3]) == 3
    assert client.xpending(key, "group")["pending"] == 7
    claimed = client.xclaim(key, "group", "two", 0, ids[3:6])
    assert [entry for entry, _ in claimed] == ids[3:6]
    assert {row["name"]: row["pending"] for row in client.xinfo_consumers(key, "group")} == {
        "one": 0,
        "two": 7,
    }
    assert client.xtrim(key, maxlen=2, approximate=False) == 8
    assert [entry for entry, _ in client.xrange(key)] == ids[8:]


def test_a_blocking_read_wakes_up(client, target, key):
    def add():
        with redis.Redis(host=target.host, port=target.port) as other:
            time.sleep(0.2)
            other.xadd(key, {"n": "woken"})

    adder = threading.Thread(target=add)
    adder.start()
    found = entries(client.xread({key: "$"}, block=10_000), key)
    adder.join()
    assert found[0][1] == {"n": "woken"}
    started = time.monotonic()
    assert not client.xread({key: "$"}, block=300)
    assert time.monotonic() - started >= 0.25
    client.xgroup_create(key, "g", id="$")
    adder = threading.Thread(target=add)
    adder.start()
    found = entries(client.xreadgroup("g", "c", {key: ">"}, block=10_000), key)
    adder.join()
    assert found[0][1] == {"n": "woken"}


def next_message(pubsub, deadline=10.0):
    ends = time.monotonic() + deadline
    while time.monotonic() < ends:
        message = pubsub.get_message(timeout=0.5)
        if message:
            return message
    raise AssertionError("no message came")


def test_channels_and_patterns(client, key):
    pubsub = client.pubsub()
    pubsub.subscribe(f"{key}:a", f"{key}:b")
    pubsub.psubscribe(f"{key}:*")
    assert [next_message(pubsub)["type"] for _ in range(3)] == ["subscribe", "subscribe", "psubscribe"]
    assert client.publish(f"{key}:a", "hello") == 2
    got = [next_message(pubsub), next_message(pubsub)]
    assert sorted((m["type"], m["channel"], m["data"]) for m in got) == [
        ("message", f"{key}:a", "hello"),
        ("pmessage", f"{key}:a", "hello"),
    ]
    assert client.publish(f"{key}:c", "only pattern") == 1
    assert next_message(pubsub)["pattern"] == f"{key}:*"
    assert client.pubsub_numsub(f"{key}:a") == [(f"{key}:a", 1)]
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    kinds = sorted(next_message(pubsub)["type"] for _ in range(3))
    assert kinds == ["punsubscribe", "unsubscribe", "unsubscribe"]
    assert client.publish(f"{key}:a", "nobody") == 0
    pubsub.close()


def test_a_subscriber_can_ping(target, key):
    """RESP2 only: there PING answers in the form of a message; with RESP3 it is a plain reply."""
    with redis.Redis(host=target.host, port=target.port, protocol=2, decode_responses=True) as client:
        pubsub = client.pubsub()
        pubsub.subscribe(key)
        assert next_message(pubsub)["type"] == "subscribe"
        pubsub.ping("are you there")
        pong = next_message(pubsub)
        assert (pong["type"], pong["data"]) == ("pong", "are you there")
        pubsub.close()


def test_every_subscriber_gets_every_message_in_order(client, target, protocol, key):
    count, readers = 300, 5
    others = [
        redis.Redis(host=target.host, port=target.port, protocol=protocol, decode_responses=True)
        for _ in range(readers)
    ]
    subscriptions = [other.pubsub() for other in others]
    for subscription in subscriptions:
        subscription.subscribe(key)
        assert next_message(subscription)["type"] == "subscribe"
    # The server counts its own subscribers: through Weir that is one per worker, however many clients there are.
    for number in range(count):
        assert 1 <= client.publish(key, number) <= readers
    for subscription in subscriptions:
        got = [next_message(subscription)["data"] for _ in range(count)]
        assert got == [str(number) for number in range(count)]
    for subscription, other in zip(subscriptions, others):
        subscription.close()
        other.close()


def test_shard_channels(client, key):
    pubsub = client.pubsub()
    pubsub.ssubscribe(key)
    assert next_message(pubsub)["type"] == "ssubscribe"
    assert client.execute_command("SPUBLISH", key, "to the shard") == 1
    message = next_message(pubsub)
    assert (message["type"], message["data"]) == ("smessage", "to the shard")
    pubsub.close()


def test_a_connection_is_usable_after_unsubscribing(target, protocol, key):
    pool = redis.ConnectionPool(
        host=target.host, port=target.port, protocol=protocol, decode_responses=True, max_connections=1
    )
    client = redis.Redis(connection_pool=pool)
    pubsub = client.pubsub()
    pubsub.subscribe(key)
    assert next_message(pubsub)["type"] == "subscribe"
    pubsub.unsubscribe(key)
    assert next_message(pubsub)["type"] == "unsubscribe"
    pubsub.close()
    assert client.set(key, "again")
    assert client.get(key) == "again"
    pool.disconnect()


def test_publish_inside_a_transaction(client, key):
    pubsub = client.pubsub()
    pubsub.subscribe(key)
    assert next_message(pubsub)["type"] == "subscribe"
    pipe = client.pipeline(transaction=True)
    pipe.set(f"{key}:v", 1)
    pipe.publish(key, "from a transaction")
    assert pipe.execute() == [True, 1]
    assert next_message(pubsub)["data"] == "from a transaction"
    pubsub.close()


@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
def test_large_messages(client, key, size):
    pubsub = client.pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(key)
    pubsub.get_message(timeout=5)
    assert client.publish(key, "x" * size) == 1
    assert len(next_message(pubsub)["data"]) == size
    pubsub.close()
