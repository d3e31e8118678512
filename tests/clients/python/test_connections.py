"""Authentication, names, reconnection, and the asyncio client."""

import asyncio
import time

import pytest
import redis
import redis.asyncio as aredis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

# A refused password stays refused: trying again only costs time.
NO_RETRY = Retry(ConstantBackoff(0), 0)


def test_a_password_is_asked_for(target, protocol, key):
    def client(password):
        return redis.Redis(
            host=target.host,
            port=target.auth_port,
            password=password,
            protocol=protocol,
            decode_responses=True,
            retry=NO_RETRY,
        )

    with client(target.password) as good:
        assert good.set(key, "v")
        assert good.get(key) == "v"
    with client("wrong") as bad, pytest.raises(redis.AuthenticationError):
        bad.ping()
    with client(None) as none, pytest.raises((redis.AuthenticationError, redis.ResponseError), match="(?i)auth"):
        none.get(key)


def test_the_user_default_is_the_one_word_form(target, protocol, key):
    with redis.Redis(
        host=target.host,
        port=target.auth_port,
        username="default",
        password=target.password,
        protocol=protocol,
    ) as client:
        assert client.ping()
    with redis.Redis(
        host=target.host,
        port=target.auth_port,
        username="nobody",
        password=target.password,
        protocol=protocol,
        retry=NO_RETRY,
    ) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_a_client_name_is_kept(target, protocol):
    with redis.Redis(
        host=target.host,
        port=target.port,
        protocol=protocol,
        client_name="suite-python",
        decode_responses=True,
        single_connection_client=True,
    ) as client:
        assert client.client_getname() == "suite-python"
        own = client.client_id()
        assert isinstance(own, int) and client.client_id() == own
        assert client.client_info()["name"] == "suite-python"


def test_reset_returns_the_connection_to_its_first_state(target, key):
    with redis.Redis(
        host=target.host, port=target.port, protocol=2, decode_responses=True, single_connection_client=True
    ) as client:
        client.execute_command("SELECT", 3)
        client.execute_command("MULTI")
        assert client.execute_command("RESET") == "RESET"
        assert client.client_getname() in (None, "")
        client.set(key, "in db 0")
        client.execute_command("SELECT", 3)
        assert client.get(key) is None


def test_a_lost_connection_is_opened_again(forwarder, protocol, key):
    with redis.Redis(
        host="127.0.0.1",
        port=forwarder.port,
        protocol=protocol,
        decode_responses=True,
        retry=Retry(ConstantBackoff(0.05), 5),
        retry_on_error=[redis.ConnectionError],
    ) as client:
        client.set(key, "before")
        forwarder.cut()
        assert client.get(key) == "before"
        assert forwarder.accepted >= 2


def test_a_lost_subscription_comes_back(forwarder, target, protocol, key):
    with redis.Redis(
        host="127.0.0.1",
        port=forwarder.port,
        protocol=protocol,
        decode_responses=True,
        retry=Retry(ConstantBackoff(0.05), 5),
        retry_on_error=[redis.ConnectionError],
    ) as client, redis.Redis(host=target.host, port=target.port) as publisher:
        pubsub = client.pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(key)
        pubsub.get_message(timeout=5)
        forwarder.cut()
        ends = time.monotonic() + 15
        received = None
        while received is None and time.monotonic() < ends:
            publisher.publish(key, "after the cut")
            received = pubsub.get_message(timeout=0.2)
        assert received is not None and received["data"] == "after the cut"
        pubsub.close()


def test_a_client_that_gives_up_on_a_blocking_pop_loses_nothing(target, protocol, key):
    """The gateway must not take an element for a client that has gone."""
    with redis.Redis(
        host=target.host, port=target.port, protocol=protocol, socket_timeout=0.3, retry=NO_RETRY
    ) as impatient, pytest.raises(redis.TimeoutError):
        impatient.blpop([key], timeout=0)
    with redis.Redis(host=target.host, port=target.port, decode_responses=True) as client:
        ends = time.monotonic() + 10
        while client.info("clients")["blocked_clients"] > 0:
            assert time.monotonic() < ends, "the server still holds the blocked client"
            time.sleep(0.02)
        client.rpush(key, "kept")
        assert client.lrange(key, 0, -1) == ["kept"]


def asyncio_client(target, protocol):
    pool = aredis.BlockingConnectionPool(
        host=target.host,
        port=target.port,
        protocol=protocol,
        decode_responses=True,
        max_connections=20,
        timeout=20,
    )
    return aredis.Redis.from_pool(pool)


def test_asyncio_pipelines_blocking_and_pubsub(target, protocol, key):
    async def scenario():
        async with asyncio_client(target, protocol) as client:
            await asyncio.gather(*(client.set(f"{key}:{n}", n) for n in range(200)))
            values = await asyncio.gather(*(client.get(f"{key}:{n}") for n in range(200)))
            assert values == [str(n) for n in range(200)]
            async with client.pipeline(transaction=True) as pipe:
                pipe.incr(f"{key}:counter").incr(f"{key}:counter")
                assert await pipe.execute() == [1, 2]
            waiting = asyncio.create_task(client.blpop([f"{key}:list"], timeout=10))
            await asyncio.sleep(0.1)
            await client.rpush(f"{key}:list", "x")
            assert list(await waiting) == [f"{key}:list", "x"]
            async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                await pubsub.subscribe(f"{key}:channel")
                await pubsub.get_message(timeout=5)
                await client.publish(f"{key}:channel", "hi")
                message = await pubsub.get_message(timeout=5)
                while message is None:
                    message = await pubsub.get_message(timeout=5)
                assert message["data"] == "hi"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_asyncio_cancellation_does_not_shift_replies(target, protocol, key):
    async def scenario():
        async with asyncio_client(target, protocol) as client:
            for n in range(50):
                await client.set(f"{key}:{n}", n)
            for round_number in range(20):
                doomed = [asyncio.create_task(client.get(f"{key}:{n}")) for n in range(50)]
                await asyncio.sleep(0.001 * (round_number % 3))
                for task in doomed[::2]:
                    task.cancel()
                results = await asyncio.gather(*doomed, return_exceptions=True)
                for n, result in enumerate(results):
                    if not isinstance(result, BaseException):
                        assert result == str(n)

    asyncio.run(asyncio.wait_for(scenario(), 60))
