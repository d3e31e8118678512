"""redis-py's cluster client against a cluster, and against Weir in front of it."""

import os

import pytest
from redis.cluster import RedisCluster


def clusters() -> list[tuple[str, str, int]]:
    """Reads WEIR_CLUSTERS: name, host and port of each."""
    text = os.environ.get("WEIR_CLUSTERS", "")
    if not text:
        raise RuntimeError("WEIR_CLUSTERS is not set: run `cargo xtask test clients:python`")
    found = []
    for part in text.split(";"):
        name, _via, host, port = part.split(" ")
        found.append((name, host, int(port)))
    return found


@pytest.fixture(params=clusters(), ids=lambda cluster: cluster[0])
def cluster(request, protocol):
    _, host, port = request.param
    with RedisCluster(
        host=host, port=port, protocol=protocol, decode_responses=True, socket_timeout=20
    ) as connected:
        yield connected


def test_keys_of_all_slots(cluster, key):
    keys = [f"{key}:{n}" for n in range(300)]
    for one in keys:
        assert cluster.set(one, f"value of {one}")
    assert [cluster.get(one) for one in keys] == [f"value of {one}" for one in keys]
    assert cluster.mget_nonatomic(keys) == [f"value of {one}" for one in keys]
    assert cluster.mset_nonatomic({one: "again" for one in keys})
    assert set(cluster.mget_nonatomic(keys)) == {"again"}
    assert cluster.exists(*keys) == 300
    assert set(cluster.scan_iter(match=f"{key}:*", count=100)) == set(keys)
    assert cluster.delete(*keys) == 300


def test_pipelines_over_nodes(cluster, key):
    with cluster.pipeline() as pipe:
        for n in range(500):
            pipe.incrby(f"{key}:{n}", n)
        assert pipe.execute() == list(range(500))


def test_transactions_on_one_slot(cluster, key):
    tagged = "{" + key + "}"
    with cluster.pipeline(transaction=True) as pipe:
        pipe.set(f"{tagged}:a", 1)
        pipe.incr(f"{tagged}:a")
        pipe.get(f"{tagged}:a")
        assert pipe.execute() == ["OK", 2, "2"]


def test_scripts_lists_and_sets(cluster, key):
    tagged = "{" + key + "}"
    script = cluster.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert script(keys=[f"{tagged}:n"], args=[5]) == 5
    assert cluster.rpush(f"{tagged}:l", "a", "b") == 2
    assert cluster.blpop([f"{tagged}:l"], timeout=5) == (f"{tagged}:l", "a") or cluster.llen(f"{tagged}:l") == 1
    cluster.sadd(f"{tagged}:s", 1, 2)
    cluster.sadd(f"{tagged}:t", 2, 3)
    assert cluster.sinterstore(f"{tagged}:u", [f"{tagged}:s", f"{tagged}:t"]) == 1


def test_pubsub(cluster, key):
    with cluster.pubsub() as pubsub:
        pubsub.subscribe(key)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        assert cluster.publish(key, "hello") >= 0
        for _ in range(50):
            message = pubsub.get_message(timeout=0.2)
            if message:
                break
        assert message["data"] == "hello"
