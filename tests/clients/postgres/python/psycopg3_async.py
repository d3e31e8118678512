"""psycopg 3 with asyncio: `psycopg3_async.py URL`."""

import asyncio
import sys

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool

from checks import refused_async, run

URL = sys.argv[1]


async def connect(**words):
    return await AsyncConnection.connect(URL, autocommit=words.pop("autocommit", True), **words)


async def connects_and_selects():
    async with await connect() as conn:
        cursor = await conn.execute("select 1, 'two', %s::int", (3,))
        assert await cursor.fetchone() == (1, "two", 3)


async def statements_are_prepared_and_interleave_with_transactions():
    async with await connect() as conn:
        for number in range(12):
            async with conn.transaction():
                cursor = await conn.execute("select %s::int + 1", (number,))
                assert await cursor.fetchone() == (number + 1,)


async def many_connections_at_once():
    async def work(mark):
        async with await connect() as conn:
            for step in range(20):
                cursor = await conn.execute("select %s::int, %s::int", (mark, step))
                assert await cursor.fetchone() == (mark, step)

    await asyncio.gather(*[work(mark) for mark in range(50)])


async def pipelines_keep_their_order():
    async with await connect() as conn:
        async with conn.pipeline():
            cursors = [await conn.execute("select %s::int", (number,)) for number in range(200)]
        assert [await cursor.fetchone() for cursor in cursors] == [(number,) for number in range(200)]


async def an_error_in_a_pipeline_leaves_the_connection_usable():
    async with await connect() as conn:

        async def pipeline():
            async with conn.pipeline():
                await conn.execute("select 1")
                await conn.execute("select 1/0")
                await conn.execute("select 2")

        await refused_async((errors.DivisionByZero, errors.PipelineAborted), pipeline())
        assert await (await conn.execute("select 3")).fetchone() == (3,)


async def copy_both_ways_in_both_formats():
    async with await connect() as conn:
        await conn.execute("create table async_copied (n int, t text)")
        for form, size in (("text", 1000), ("binary", 2000)):
            async with conn.cursor().copy(f"copy async_copied from stdin (format {form})") as copy:
                copy.set_types(["int4", "text"])
                for number in range(1000):
                    await copy.write_row((number, f"row {number}"))
            async with conn.cursor().copy(f"copy async_copied to stdout (format {form})") as copy:
                copy.set_types(["int4", "text"])
                rows = [row async for row in copy.rows()]
            assert len(rows) == size, len(rows)
            assert rows[-1] == ((999, "row 999") if form == "binary" else (999, "row 999")), rows[-1]


async def server_side_cursors():
    async with await connect(autocommit=False) as conn:
        async with conn.cursor("named") as cursor:
            await cursor.execute("select generate_series(1, 500)")
            got = [row[0] async for row in cursor]
        assert got == list(range(1, 501))


async def notifications_are_awaited():
    async with await connect() as conn, await connect() as other:
        await conn.execute("listen async_news")

        async def send():
            for number in range(5):
                await asyncio.sleep(0.02)
                await other.execute("select pg_notify('async_news', %s)", (str(number),))

        task = asyncio.create_task(send())
        got = [note.payload async for note in conn.notifies(timeout=10, stop_after=5)]
        await task
        assert got == ["0", "1", "2", "3", "4"], got


async def a_cancelled_task_cancels_its_query():
    async with await connect() as conn, await connect() as other:
        task = asyncio.create_task(conn.execute("select pg_sleep(20) /* to be cancelled */"))
        await asyncio.sleep(0.4)
        task.cancel()
        await refused_async((asyncio.CancelledError, errors.QueryCanceled), task)
        assert await (await conn.execute("select 1")).fetchone() == (1,)
        query = "select count(*) from pg_stat_activity where query like '%%to be cancelled%%' and state = 'active' and pid <> pg_backend_pid()"
        assert await (await other.execute(query)).fetchone() == (0,)


async def a_timeout_leaves_the_connection_usable():
    async with await connect() as conn:
        await refused_async(TimeoutError, asyncio.wait_for(conn.execute("select pg_sleep(20)"), 0.4))
        assert await (await conn.execute("select 1")).fetchone() == (1,)


async def a_pool_serves_many_tasks():
    async with AsyncConnectionPool(URL, min_size=2, max_size=5, open=False, kwargs={"autocommit": True}) as pool:

        async def work(mark):
            async with pool.connection(timeout=20) as conn:
                cursor = await conn.execute("select %s::int", (mark,))
                assert await cursor.fetchone() == (mark,)

        await asyncio.gather(*[work(mark) for mark in range(60)])


CHECKS = [
    connects_and_selects,
    statements_are_prepared_and_interleave_with_transactions,
    many_connections_at_once,
    pipelines_keep_their_order,
    an_error_in_a_pipeline_leaves_the_connection_usable,
    copy_both_ways_in_both_formats,
    server_side_cursors,
    notifications_are_awaited,
    a_cancelled_task_cancels_its_query,
    a_timeout_leaves_the_connection_usable,
    a_pool_serves_many_tasks,
]

if __name__ == "__main__":
    run(CHECKS)
