"""asyncpg: `asyncpg_driver.py URL`. It prepares every statement, named and in binary."""

import asyncio
import datetime
import decimal
import io
import json
import sys
import uuid

import asyncpg

from checks import refused_async, run

URL = sys.argv[1]


async def connect(**words):
    return await asyncpg.connect(URL, timeout=20, **words)


async def connects_and_selects():
    conn = await connect(server_settings={"application_name": "asyncpg", "search_path": "pg_catalog"})
    assert await conn.fetchval("show application_name") == "asyncpg"
    assert await conn.fetchval("show search_path") == "pg_catalog"
    assert conn.get_server_version().major >= 15
    assert await conn.fetchrow("select $1::int, $2::text", 1, "ü") == (1, "ü")
    await conn.close()


async def a_wrong_password_is_refused():
    await refused_async(asyncpg.InvalidPasswordError, asyncpg.connect(URL, password="wrong"))


async def an_unknown_database_is_refused():
    await refused_async(asyncpg.InvalidCatalogNameError, asyncpg.connect(URL, database="no_such_database"))


async def types_go_both_ways():
    conn = await connect()
    values = [
        ("int8", 2**60), ("numeric", decimal.Decimal("1234.5678")), ("float8", -0.5), ("bool", True),
        ("bytea", b"\x00\xff"), ("uuid", uuid.UUID(int=7)), ("date", datetime.date(2024, 2, 29)),
        ("timestamptz", datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)), ("int[]", [1, None, 3]),
        ("interval", datetime.timedelta(days=2, seconds=3)), ("text", None), ("jsonb", json.dumps({"a": 1})),
    ]
    for kind, value in values:
        got = await conn.fetchval(f"select $1::{kind}", value)
        got = json.dumps(json.loads(got)) if kind == "jsonb" else got
        assert got == value, (kind, got, value)


async def unknown_types_are_introspected():
    conn = await connect()
    await conn.execute("create type mood as enum ('sad', 'happy')")
    await conn.execute("create type pair as (a int, m mood)")
    got = await conn.fetchval("select row(5, 'happy')::pair")
    assert tuple(got) == (5, "happy"), got
    assert await conn.fetchval("select array[row(1, 'sad')::pair]") == [(1, "sad")]
    await conn.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    assert await conn.fetchval("select $1::json", {"x": [1]}) == {"x": [1]}


async def a_setting_of_jit_does_not_stay_behind():
    conn, other = await connect(), await connect()
    before = await conn.fetchval("show jit")
    await conn.execute("create type level as enum ('low', 'high')")
    await conn.fetchval("select 'low'::level")
    for _ in range(4):
        assert await conn.fetchval("show jit") == before
        assert await other.fetchval("show jit") == before


async def prepared_statements_are_reused():
    conn = await connect()
    statement = await conn.prepare("select $1::int * 2")
    for number in range(10):
        assert await statement.fetchval(number) == 2 * number
        async with conn.transaction():
            assert await statement.fetchval(number) == 2 * number
    assert [parameter.name for parameter in statement.get_parameters()] == ["int4"]
    assert (await statement.explain(1))[0]["Plan"]


async def many_statements_are_evicted():
    conn = await connect(statement_cache_size=5)
    for round_ in range(3):
        for number in range(30):
            assert await conn.fetchval(f"select $1::int + {number}", round_) == round_ + number


async def statements_without_a_cache():
    conn = await connect(statement_cache_size=0)
    for number in range(30):
        assert await conn.fetchval("select $1::int", number) == number


async def a_changed_table_invalidates_its_statements():
    conn, other = await connect(), await connect()
    await conn.execute("create table changing (a int); insert into changing values (1)")
    assert tuple(await conn.fetchrow("select * from changing")) == (1,)
    await other.execute("alter table changing add column b int default 2")
    assert tuple(await conn.fetchrow("select * from changing")) == (1, 2)


async def transactions_and_savepoints():
    conn, other = await connect(), await connect()
    await conn.execute("create table money (n int unique)")
    async with conn.transaction():
        await conn.execute("insert into money values (1)")
        try:
            async with conn.transaction():
                await conn.execute("insert into money values (2)")
                await conn.execute("insert into money values (1)")
        except asyncpg.UniqueViolationError as error:
            assert error.constraint_name == "money_n_key"
        assert await other.fetchval("select count(*) from money") == 0
    assert await other.fetch("select n from money") == [(1,)]


async def isolation_and_read_only():
    conn = await connect()
    async with conn.transaction(isolation="serializable", readonly=True, deferrable=True):
        assert await conn.fetchval("show transaction_isolation") == "serializable"
        await refused_async(asyncpg.ReadOnlySQLTransactionError, conn.execute("create table never (n int)"))


async def cursors_fetch_in_portions():
    conn = await connect()
    async with conn.transaction():
        got = [row[0] async for row in conn.cursor("select generate_series(1, $1::int)", 1000, prefetch=70)]
        assert got == list(range(1, 1001))
        cursor = await conn.cursor("select generate_series(1, 100)")
        await cursor.forward(10)
        assert await cursor.fetchrow() == (11,)
        assert len(await cursor.fetch(500)) == 89


async def copy_of_records_and_queries():
    conn = await connect()
    await conn.execute("create table copied (n int, t text)")
    records = [(number, f"row {number}") for number in range(10000)]
    assert await conn.copy_records_to_table("copied", records=records) == "COPY 10000"
    out = io.BytesIO()
    assert await conn.copy_from_query("select * from copied where n < $1", 50, output=out, format="csv") == "COPY 50"
    assert out.getvalue().splitlines()[7] == b"7,row 7"
    source = io.BytesIO(b"1,one\n2,two\n")
    assert await conn.copy_to_table("copied", source=source, format="csv") == "COPY 2"
    assert await conn.fetchval("select count(*) from copied") == 10002


async def a_copy_with_a_bad_row_leaves_the_connection_usable():
    conn = await connect()
    await conn.execute("create table bad_copy (n int)")
    source = io.BytesIO(b"1\nx\n" + b"2\n" * 200_000)
    await refused_async(asyncpg.InvalidTextRepresentationError, conn.copy_to_table("bad_copy", source=source))
    assert await conn.fetchval("select count(*) from bad_copy") == 0


async def a_copy_whose_source_fails_changes_nothing():
    conn = await connect()
    await conn.execute("create table no_source (n int)")

    async def source():
        yield b"1\n"
        raise KeyError("no more")

    await refused_async(KeyError, conn.copy_to_table("no_source", source=source()))
    assert await conn.fetchval("select count(*) from no_source") == 0


async def listeners_are_called():
    conn, other = await connect(), await connect()
    queue = asyncio.Queue()
    await conn.add_listener("news", lambda *words: queue.put_nowait(words))
    await other.execute("select pg_notify('news', 'hello')")
    got = await asyncio.wait_for(queue.get(), 10)
    assert got[2:] == ("news", "hello"), got
    await conn.execute("notify news, 'own'")
    got = await asyncio.wait_for(queue.get(), 10)
    assert got[1] == conn.get_server_pid() and got[3] == "own", got
    await conn.reset()
    await other.execute("notify news, 'late'")
    await refused_async(TimeoutError, asyncio.wait_for(queue.get(), 0.3))


async def a_timeout_cancels_the_query():
    conn, other = await connect(), await connect()
    await refused_async(TimeoutError, conn.fetchval("select pg_sleep(20) /* asyncpg times out */", timeout=0.3))
    assert await conn.fetchval("select 1") == 1
    query = "select count(*) from pg_stat_activity where query like $1 and state = 'active' and pid <> pg_backend_pid()"
    deadline = asyncio.get_running_loop().time() + 10
    while await other.fetchval(query, "%asyncpg times out%"):
        assert asyncio.get_running_loop().time() < deadline, "the query still runs"
        await asyncio.sleep(0.05)


async def a_cancelled_task_cancels_the_query():
    conn = await connect()
    task = asyncio.create_task(conn.fetchval("select pg_sleep(20)"))
    await asyncio.sleep(0.3)
    task.cancel()
    await refused_async(asyncio.CancelledError, task)
    assert await conn.fetchval("select 2") == 2


async def settings_last_and_reset_clears_them():
    conn, other = await connect(), await connect()
    await conn.execute("set statement_timeout = '43s'")
    await conn.execute("select set_config('weir.mark', 'mine', false)")
    for _ in range(4):
        assert await conn.fetchrow("select current_setting('statement_timeout'), current_setting('weir.mark')") == ("43s", "mine")
        assert await other.fetchval("select current_setting('weir.mark', true)") in (None, "")
    await conn.reset()
    assert await conn.fetchval("show statement_timeout") == "0"


async def temporary_tables_last():
    conn, other = await connect(), await connect()
    await conn.execute("create temp table scratch (n int)")
    for number in range(4):
        await conn.execute("insert into scratch values ($1)", number)
    assert await conn.fetchval("select count(*) from scratch") == 4
    await refused_async(asyncpg.UndefinedTableError, other.fetch("select * from scratch"))


async def advisory_locks_exclude():
    conn, other = await connect(), await connect()
    await conn.execute("select pg_advisory_lock(815)")
    assert await other.fetchval("select pg_try_advisory_lock(815)") is False
    await conn.reset()
    assert await other.fetchval("select pg_try_advisory_lock(815)") is True
    await other.reset()


async def executemany_is_one_transaction():
    conn = await connect()
    await conn.execute("create table many (n int unique)")
    await conn.executemany("insert into many values ($1)", [(number,) for number in range(2000)])
    bad = conn.executemany("insert into many values ($1)", [(number,) for number in (5000, 5001, 1)])
    await refused_async(asyncpg.UniqueViolationError, bad)
    assert await conn.fetchval("select count(*), max(n) from many") == 2000
    assert await conn.fetchval("select max(n) from many") == 1999


async def errors_have_their_fields():
    conn = await connect()
    error = await refused_async(asyncpg.UndefinedColumnError, conn.fetch("select missing from pg_class"))
    assert (error.sqlstate, error.position) == ("42703", "8")
    await refused_async(asyncpg.DivisionByZeroError, conn.fetch("select 1/$1::int", 0))
    assert await conn.fetchval("select 1") == 1


async def logs_reach_their_listener():
    conn = await connect()
    got = []
    conn.add_log_listener(lambda _, message: got.append(message.message))
    await conn.execute("do $$ begin raise notice 'seen'; end $$")
    await asyncio.sleep(0)
    assert got == ["seen"], got


async def large_values():
    conn = await connect()
    value = "x" * 8_000_000
    assert await conn.fetchval("select $1::text", value) == value
    rows = await conn.fetch("select n, repeat('y', 100) from generate_series(1, 50000) n")
    assert len(rows) == 50000 and rows[-1][0] == 50000


async def a_pool_gives_each_task_its_own():
    async with asyncpg.create_pool(URL, min_size=2, max_size=5, max_queries=20) as pool:

        async def work(mark):
            for _ in range(5):
                async with pool.acquire() as conn:
                    await conn.execute(f"set application_name = 'task {mark}'")
                    assert await conn.fetchval("show application_name") == f"task {mark}"
                    assert await conn.fetchval("select $1::int", mark) == mark

        await asyncio.gather(*[work(mark) for mark in range(30)])


async def a_terminated_backend_is_reported():
    conn, other = await connect(), await connect()
    transaction = conn.transaction()
    await transaction.start()
    pid = await conn.fetchval("select pg_backend_pid()")
    await other.execute("select pg_terminate_backend($1)", pid)
    # The end of the connection may arrive while the query starts, which asyncpg calls an error of its own.
    kinds = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
    await refused_async(kinds, conn.fetchval("select pg_sleep(5)"))
    assert await other.fetchval("select 1") == 1


CHECKS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == "__main__" and callable(value)]
CHECKS.remove(connect)

if __name__ == "__main__":
    run(CHECKS)
