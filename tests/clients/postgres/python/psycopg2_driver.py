"""psycopg2: `psycopg2_driver.py URL`. It sends simple queries alone."""

import io
import select
import sys
import threading
import time

import psycopg2
import psycopg2.extensions as extensions
from psycopg2 import errors
from psycopg2.extras import DictCursor, execute_values
from psycopg2.pool import ThreadedConnectionPool

from checks import refused, run

URL = sys.argv[1]


def connect(autocommit=True, **words):
    conn = psycopg2.connect(URL, **words)
    conn.autocommit = autocommit
    return conn


def one(conn, query, values=None):
    with conn.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchone() if cursor.description else None


def connects_and_selects():
    conn = connect(application_name="psycopg2")
    assert conn.server_version >= 150000
    assert one(conn, "select %s, %s, current_setting('application_name')", (1, "ü")) == (1, "ü", "psycopg2")
    conn.close()


def transactions_commit_and_roll_back():
    conn, other = connect(autocommit=False), connect()
    one(conn, "create table money (n int)")
    conn.commit()
    with conn:
        one(conn, "insert into money values (1)")
        assert one(other, "select count(*) from money") == (0,)

    def fails():
        with conn:
            one(conn, "insert into money values (2)")
            one(conn, "select 1/0")

    refused(errors.DivisionByZero, fails)
    assert one(other, "select array_agg(n) from money") == ([1],)


def an_error_fails_the_block_until_rollback():
    conn = connect(autocommit=False)
    refused(errors.UndefinedTable, lambda: one(conn, "select * from nothing_there"))
    refused(errors.InFailedSqlTransaction, lambda: one(conn, "select 1"))
    conn.rollback()
    assert one(conn, "select 1") == (1,)


def session_characteristics_last():
    conn = connect()
    conn.set_session(isolation_level="SERIALIZABLE", readonly=True, autocommit=False)
    for _ in range(3):
        assert one(conn, "select current_setting('transaction_isolation')") == ("serializable",)
        refused(errors.ReadOnlySqlTransaction, lambda: one(conn, "create table never (n int)"))
        conn.rollback()


def copy_both_ways():
    conn = connect()
    one(conn, "create table copied (n int, t text)")
    with conn.cursor() as cursor:
        cursor.copy_expert("copy copied from stdin", io.StringIO("".join(f"{n}\trow {n}\n" for n in range(20000))))
        out = io.StringIO()
        cursor.copy_to(out, "copied")
        assert len(out.getvalue().splitlines()) == 20000
        bad = io.StringIO("1\tone\nx\ttwo\n" + "3\tthree\n" * 50000)
        refused(errors.InvalidTextRepresentation, lambda: cursor.copy_expert("copy copied from stdin", bad))
    assert one(conn, "select count(*) from copied") == (20000,)


def a_failing_source_of_a_copy_changes_nothing():
    class Source:
        def read(self, size):
            raise KeyError("no more")

    conn = connect()
    one(conn, "create table no_source (n int)")
    with conn.cursor() as cursor:
        refused(Exception, lambda: cursor.copy_expert("copy no_source from stdin", Source()))
    assert one(conn, "select count(*) from no_source") == (0,)


def named_cursors_fetch_and_hold():
    conn = connect(autocommit=False)
    with conn.cursor(name="named") as cursor:
        cursor.itersize = 100
        cursor.execute("select generate_series(1, 1000)")
        assert sum(row[0] for row in cursor) == 500500
    with conn.cursor(name="held", withhold=True) as cursor:
        cursor.execute("select generate_series(1, 10)")
        conn.commit()
        assert len(cursor.fetchall()) == 10
    conn.commit()


def notifications_are_polled():
    conn, other = connect(), connect()
    one(conn, "listen news")
    one(other, "notify news, 'first'")
    deadline = time.monotonic() + 10
    while not conn.notifies and time.monotonic() < deadline:
        select.select([conn], [], [], 1)
        conn.poll()
    note = conn.notifies.pop()
    assert (note.channel, note.payload) == ("news", "first")
    assert note.pid != conn.get_backend_pid()


def a_query_is_cancelled():
    conn = connect()
    timer = threading.Timer(0.3, conn.cancel)
    timer.start()
    refused(errors.QueryCanceled, lambda: one(conn, "select pg_sleep(20)"))
    timer.join()
    assert one(conn, "select 1") == (1,)


def settings_last_over_transactions():
    conn, other = connect(autocommit=False), connect()
    one(conn, "set statement_timeout = '54s'")
    one(conn, "set search_path = pg_catalog")
    conn.commit()
    for _ in range(3):
        assert one(conn, "select current_setting('statement_timeout'), current_setting('search_path')") == ("54s", "pg_catalog")
        conn.commit()
        assert one(other, "show statement_timeout") == ("0",)
    conn.reset()
    assert one(conn, "show statement_timeout") == ("0",)


def two_phase_commit():
    conn = connect(autocommit=False)
    one(conn, "create table phases (n int)")
    conn.commit()
    conn.tpc_begin(conn.xid(42, f"psycopg2-{id(conn)}-{time.time()}", "branch"))
    one(conn, "insert into phases values (1)")
    conn.tpc_prepare()
    conn.tpc_rollback()
    assert one(conn, "select count(*) from phases") == (0,)


def encodings_are_converted():
    conn = connect()
    conn.set_client_encoding("LATIN1")
    assert one(conn, "select %s", ("é",)) == ("é",)
    assert conn.encoding == "LATIN1"
    assert one(conn, "show client_encoding") == ("LATIN1",)


def batches_of_values():
    conn = connect()
    one(conn, "create table batches (a int, b text)")
    with conn.cursor(cursor_factory=DictCursor) as cursor:
        execute_values(cursor, "insert into batches values %s", [(n, str(n)) for n in range(1000)], page_size=100)
        cursor.execute("select sum(a) as total from batches")
        assert cursor.fetchone()["total"] == sum(range(1000))


def notices_are_collected():
    conn = connect()
    one(conn, "do $$ begin raise notice 'seen'; end $$")
    assert any("seen" in notice for notice in conn.notices)


def large_objects_are_files():
    conn = connect(autocommit=False)
    large = conn.lobject(0, "wb")
    large.write(b"x" * 1_000_000)
    oid = large.oid
    large.close()
    conn.commit()
    large = conn.lobject(oid, "rb")
    large.seek(999_990)
    assert large.read() == b"x" * 10
    large.unlink()
    conn.commit()


def an_asynchronous_connection_waits_by_polling():
    conn = psycopg2.connect(URL, async_=1)

    def wait():
        while True:
            state = conn.poll()
            if state == extensions.POLL_OK:
                return
            select.select([conn] * (state == extensions.POLL_READ), [conn] * (state == extensions.POLL_WRITE), [], 5)

    wait()
    cursor = conn.cursor()
    cursor.execute("select 5")
    wait()
    assert cursor.fetchone() == (5,)
    conn.close()


def a_pool_of_threads():
    pool = ThreadedConnectionPool(1, 6, URL)
    problems = []
    gate = threading.Semaphore(6)

    def work(mark):
        for _ in range(10):
            with gate:
                conn = pool.getconn()
                got = one(conn, "select %s", (mark,))
                conn.rollback()
                pool.putconn(conn)
                if got != (mark,):
                    problems.append((mark, got))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(20)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    pool.closeall()
    assert not problems, problems


CHECKS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == "__main__" and callable(value)]
CHECKS = [check for check in CHECKS if check not in (connect, one)]

if __name__ == "__main__":
    run(CHECKS)
