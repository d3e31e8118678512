"""Values, pipelines, transactions, scripts, scans: what most applications do."""

import os
import threading
import time

import pytest
import redis


def test_strings_hashes_lists_sets_and_sorted_sets(client, key, protocol):
    assert client.set(f"{key}:s", "value", ex=100) is True
    assert client.get(f"{key}:s") == "value"
    assert 90 <= client.ttl(f"{key}:s") <= 100
    assert client.hset(f"{key}:h", mapping={"a": "1", "b": "2"}) == 2
    assert client.hgetall(f"{key}:h") == {"a": "1", "b": "2"}
    assert client.rpush(f"{key}:l", "x", "y", "z") == 3
    assert client.lrange(f"{key}:l", 0, -1) == ["x", "y", "z"]
    assert client.sadd(f"{key}:set", "m", "n") == 2
    assert client.smembers(f"{key}:set") == {"m", "n"}
    assert client.zadd(f"{key}:z", {"one": 1, "two": 2.5}) == 2
    pairs = client.zrange(f"{key}:z", 0, -1, withscores=True)
    assert [(member, score) for member, score in pairs] == [("one", 1.0), ("two", 2.5)]
    assert client.mget(f"{key}:s", f"{key}:absent") == ["value", None]
    assert client.delete(f"{key}:s", f"{key}:h", f"{key}:absent") == 2


def test_the_connection_speaks_the_version_it_asked_for(client, protocol):
    reply = client.execute_command("HELLO")
    fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))
    assert int(fields["proto"]) == protocol
    assert fields["mode"] == "standalone"


def test_binary_keys_and_values_come_back_unchanged(target, protocol, key):
    name = key.encode() + b"\r\n\x00\xff"
    value = bytes(range(256)) * 64
    with redis.Redis(host=target.host, port=target.port, protocol=protocol) as client:
        assert client.set(name, value)
        assert client.get(name) == value
        assert client.strlen(name) == len(value)
        assert client.delete(name) == 1


@pytest.mark.parametrize("size", [64 * 1024, 1 << 20, 24 << 20])
def test_large_values(target, protocol, key, size):
    value = os.urandom(4096) * (size // 4096)
    with redis.Redis(host=target.host, port=target.port, protocol=protocol, socket_timeout=60) as client:
        assert client.set(key, value)
        assert client.get(key) == value
        assert client.getrange(key, size - 4, size - 1) == value[-4:]
        assert client.delete(key) == 1


def test_a_pipeline_keeps_order_and_isolates_errors(client, key):
    pipe = client.pipeline(transaction=False)
    for number in range(2_000):
        pipe.set(f"{key}:{number}", number)
        pipe.get(f"{key}:{number}")
    replies = pipe.execute()
    assert replies[0::2] == [True] * 2_000
    assert replies[1::2] == [str(number) for number in range(2_000)]
    pipe = client.pipeline(transaction=False)
    pipe.set(f"{key}:text", "abc").incr(f"{key}:text").get(f"{key}:text")
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and replies[2] == "abc"
    assert isinstance(replies[1], redis.ResponseError)
    assert "not an integer" in str(replies[1])


def test_a_transaction_is_atomic(client, key):
    pipe = client.pipeline(transaction=True)
    pipe.set(f"{key}:a", 1).incrby(f"{key}:a", 41).get(f"{key}:a")
    assert pipe.execute() == [True, 42, "42"]
    pipe = client.pipeline(transaction=True)
    pipe.set(f"{key}:b", "x")
    pipe.execute_command("INCR")
    with pytest.raises(redis.ResponseError):
        pipe.execute()
    assert client.get(f"{key}:b") is None


def test_watch_sees_a_foreign_write(client, key):
    client.set(key, 1)
    with client.pipeline() as pipe:
        pipe.watch(key)
        value = int(pipe.get(key))
        client.set(key, 100)
        pipe.multi()
        pipe.set(key, value + 1)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.get(key) == "100"

    def add_one(pipe):
        current = int(pipe.get(key))
        pipe.multi()
        pipe.set(key, current + 1)

    assert client.transaction(add_one, key) == [True]
    assert client.get(key) == "101"


def test_unwatch_forgets(client, key):
    client.set(key, 1)
    with client.pipeline() as pipe:
        pipe.watch(key)
        client.set(key, 2)
        pipe.unwatch()
        pipe.multi()
        pipe.get(key)
        assert pipe.execute() == ["2"]


def test_many_threads_increment_under_watch(target, protocol, key):
    rounds, threads = 20, 4

    def work():
        with redis.Redis(host=target.host, port=target.port, protocol=protocol) as own:
            for _ in range(rounds):

                def add_one(pipe):
                    current = int(pipe.get(key) or 0)
                    pipe.multi()
                    pipe.set(key, current + 1)

                own.transaction(add_one, key)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    with redis.Redis(host=target.host, port=target.port) as client:
        assert int(client.get(key)) == rounds * threads


def test_blocking_pop_waits_for_a_push(client, target, key):
    def push():
        with redis.Redis(host=target.host, port=target.port) as other:
            time.sleep(0.2)
            other.rpush(key, "late")

    pusher = threading.Thread(target=push)
    started = time.monotonic()
    pusher.start()
    assert list(client.blpop([key, f"{key}:other"], timeout=10)) == [key, "late"]
    assert time.monotonic() - started >= 0.15
    pusher.join()
    started = time.monotonic()
    assert client.blpop([key], timeout=1) is None
    assert 0.9 <= time.monotonic() - started < 5
    client.zadd(f"{key}:z", {"m": 3})
    assert list(client.bzpopmin([f"{key}:z"], timeout=5)) == [f"{key}:z", "m", 3.0]
    client.rpush(f"{key}:from", "moved")
    assert client.blmove(f"{key}:from", f"{key}:to", timeout=5) == "moved"


def test_scripts(client, key):
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}")
    assert script(keys=[key], args=["x"]) == [key, "x", 1]
    assert script(keys=[key], args=["y"]) == [key, "y", 2]
    assert client.eval("return redis.call('GET', KEYS[1])", 1, key) == "2"
    assert client.script_exists(script.sha, "0" * 40) == [True, False]
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha("f" * 40, 0)
    with pytest.raises(redis.ResponseError, match="my failure"):
        client.eval("return redis.error_reply('MINE my failure')", 0)


def test_functions(client, key, target, protocol):
    # One library per connection kind: the suites of several targets share a server.
    name = f"py_{target.via}_{protocol}"
    code = (
        f"#!lua name={name}\n"
        f"redis.register_function('{name}_set', function(keys, args)\n"
        "  return redis.call('SET', keys[1], args[1])\nend)\n"
    )
    assert client.function_load(code, replace=True) == name
    assert client.fcall(f"{name}_set", 1, key, "by function") == "OK"
    assert client.get(key) == "by function"
    assert client.function_delete(name) in (True, "OK")
    with pytest.raises(redis.ResponseError, match="Function not found"):
        client.fcall(f"{name}_set", 1, key, "again")


def test_scan_iterators_visit_everything(client, key):
    pipe = client.pipeline(transaction=False)
    for number in range(500):
        pipe.set(f"{key}:{number}", "v")
    pipe.execute()
    client.hset(f"{key}:h", mapping={f"f{number}": number for number in range(600)})
    client.sadd(f"{key}:s", *range(600))
    client.zadd(f"{key}:z", {f"m{number}": number for number in range(600)})
    found = set(client.scan_iter(match=f"{key}:[0-9]*", count=100))
    assert len(found) == 500
    assert dict(client.hscan_iter(f"{key}:h", count=50))["f599"] == "599"
    assert len(set(client.sscan_iter(f"{key}:s", count=50))) == 600
    assert dict(client.zscan_iter(f"{key}:z", count=50))["m17"] == 17.0


def test_databases_are_apart(target, protocol, key):
    def client(db):
        return redis.Redis(
            host=target.host, port=target.port, protocol=protocol, db=db, decode_responses=True
        )

    with client(0) as zero, client(5) as five:
        zero.set(key, "in 0")
        five.set(key, "in 5")
        assert zero.get(key) == "in 0"
        assert five.get(key) == "in 5"
        assert five.delete(key) == 1
        assert zero.get(key) == "in 0"
    with pytest.raises(redis.ResponseError, match="out of range"), client(99) as far:
        far.get(key)


def test_errors_keep_their_class_and_text(client, key):
    client.rpush(key, "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.get(key)
    with pytest.raises(redis.ResponseError, match="unknown command 'NOSUCH'"):
        client.execute_command("NOSUCH", "a")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'get' command"):
        client.execute_command("GET")
