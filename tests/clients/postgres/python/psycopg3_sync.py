"""psycopg 3 with blocking connections: `psycopg3_sync.py URL`."""

import datetime
import decimal
import sys
import threading
import time
import uuid

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from checks import refused, run

URL = sys.argv[1]


def connect(**words):
    return psycopg.connect(URL, autocommit=words.pop("autocommit", True), **words)


def connects_with_password_and_reports_the_server():
    with connect(application_name="psycopg3") as conn:
        assert conn.info.server_version >= 150000, conn.info.server_version
        assert conn.info.parameter_status("application_name") == "psycopg3"
        assert conn.info.parameter_status("integer_datetimes") == "on"
        assert conn.execute("select current_user, 1").fetchone() == ("app", 1)


def a_wrong_password_is_refused():
    error = refused(psycopg.OperationalError, lambda: psycopg.connect(URL, password="wrong"))
    assert "password authentication failed" in str(error), error


def an_unknown_database_is_refused():
    error = refused(psycopg.OperationalError, lambda: psycopg.connect(URL, dbname="no_such_database"))
    assert "no_such_database" in str(error), error


def startup_options_take_effect():
    with connect(options="-c search_path=pg_catalog -c statement_timeout=54321") as conn:
        assert conn.execute("show search_path").fetchone() == ("pg_catalog",)
        assert conn.execute("show statement_timeout").fetchone() == ("54321ms",)


def parameters_and_results_of_many_types():
    values = [
        (1, 2**40, -3.5, decimal.Decimal("12345678901234567890.123"), True, "text ü", b"\x00\xff"),
        (uuid.UUID(int=5), datetime.date(2024, 2, 29), datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ([1, 2, None], ["a", "b,c"], Jsonb({"a": [1, None]}), None, datetime.timedelta(days=3, seconds=5)),
    ]
    casts = ["int,int8,float8,numeric,bool,text,bytea", "uuid,date,timestamp", "int[],text[],jsonb,text,interval"]
    with connect() as conn:
        for binary in (False, True):
            for row, types in zip(values, casts):
                query = "select " + ", ".join(f"%s::{kind}" for kind in types.split(","))
                got = conn.cursor(binary=binary).execute(query, row).fetchone()
                want = tuple(value.obj if isinstance(value, Jsonb) else value for value in row)
                assert got == want, f"{got} instead of {want}"


def statements_are_prepared_after_five_uses():
    with connect() as conn:
        for number in range(12):
            assert conn.execute("select %s::int + 1", (number,)).fetchone() == (number + 1,)
        assert len(conn._prepared._names) == 1
        for number in range(12):
            with conn.transaction():
                assert conn.execute("select %s::int + 1", (number,)).fetchone() == (number + 1,)


def many_prepared_statements_are_evicted():
    with connect() as conn:
        conn.prepared_max = 5
        for round_ in range(3):
            for number in range(20):
                got = conn.execute(f"select %s::int + {number}", (round_,), prepare=True).fetchone()
                assert got == (round_ + number,), got


def prepared_statements_live_through_rollback_and_deallocate():
    with connect() as conn:
        query = "select %s::text"
        for _ in range(3):
            conn.execute(query, ("a",), prepare=True)
        with conn.transaction(force_rollback=True):
            conn.execute(query, ("a",), prepare=True)
        assert conn.execute(query, ("b",), prepare=True).fetchone() == ("b",)
        conn.execute("deallocate all")
        assert conn.execute(query, ("c",), prepare=True).fetchone() == ("c",)


def sql_prepare_and_execute():
    with connect() as conn:
        conn.execute("prepare twice (int) as select $1 * 2")
        for number in range(4):
            with conn.transaction():
                assert conn.execute(f"execute twice ({number})").fetchone() == (2 * number,)
        conn.execute("deallocate twice")
        refused(errors.InvalidSqlStatementName, lambda: conn.execute("execute twice (1)"))


def transactions_commit_and_roll_back():
    with connect() as conn, connect() as other:
        conn.execute("create table money (n int)")
        with conn.transaction():
            conn.execute("insert into money values (1)")
            assert other.execute("select count(*) from money").fetchone() == (0,)
        with conn.transaction(force_rollback=True):
            conn.execute("insert into money values (2)")
        assert other.execute("select array_agg(n) from money").fetchone() == ([1],)


def savepoints_undo_a_part():
    with connect() as conn:
        conn.execute("create table parts (n int unique)")
        with conn.transaction():
            conn.execute("insert into parts values (1)")
            try:
                with conn.transaction():
                    conn.execute("insert into parts values (2), (1)")
            except errors.UniqueViolation as error:
                assert error.diag.constraint_name == "parts_n_key"
            conn.execute("insert into parts values (3)")
        assert conn.execute("select array_agg(n order by n) from parts").fetchone() == ([1, 3],)


def an_error_fails_the_block_until_rollback():
    with connect(autocommit=False) as conn:
        error = refused(errors.DivisionByZero, lambda: conn.execute("select 1/0"))
        assert error.diag.sqlstate == "22012" and error.diag.severity == "ERROR"
        assert conn.info.transaction_status.name == "INERROR"
        refused(errors.InFailedSqlTransaction, lambda: conn.execute("select 1"))
        conn.rollback()
        assert conn.info.transaction_status.name == "IDLE"
        assert conn.execute("select 1").fetchone() == (1,)


def isolation_levels_and_read_only():
    with connect(autocommit=False) as conn:
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        conn.read_only = True
        shown = "select current_setting('transaction_isolation'), current_setting('transaction_read_only')"
        assert conn.execute(shown).fetchone() == ("serializable", "on")
        refused(errors.ReadOnlySqlTransaction, lambda: conn.execute("create table never (n int)"))
        conn.rollback()
        conn.isolation_level, conn.read_only = None, None
        assert conn.execute(shown).fetchone() == ("read committed", "off")


def two_phase_commit():
    with connect(autocommit=False) as conn:
        conn.execute("create table phases (n int)")
        conn.commit()
        xid = conn.xid(1, f"gtrid-{uuid.uuid4()}", "branch")
        conn.tpc_begin(xid)
        conn.execute("insert into phases values (1)")
        conn.tpc_prepare()
        conn.tpc_commit()
        assert conn.execute("select count(*) from phases").fetchone() == (1,)


def copy_in_text_and_binary():
    rows = [(number, f"row {number}\t\\ü", None if number % 3 else 1.5) for number in range(5000)]
    with connect() as conn:
        conn.execute("create table copied (n int, t text, f float8)")
        with conn.cursor().copy("copy copied from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        with conn.cursor().copy("copy copied from stdin (format binary)") as copy:
            copy.set_types(["int4", "text", "float8"])
            for row in rows:
                copy.write_row(row)
        assert conn.execute("select count(*), sum(n) from copied").fetchone() == (10000, 2 * sum(range(5000)))


def copy_out_text_and_binary():
    with connect() as conn:
        query = "select n, 'x' || n, null::int from generate_series(1, 3000) n"
        with conn.cursor().copy(f"copy ({query}) to stdout") as copy:
            lines = b"".join(copy).decode().splitlines()
        assert len(lines) == 3000 and lines[41] == "42\tx42\t\\N"
        with conn.cursor().copy(f"copy ({query}) to stdout (format binary)") as copy:
            copy.set_types(["int4", "text", "int4"])
            got = list(copy.rows())
        assert got == conn.execute(query).fetchall()


def a_copy_with_a_bad_row_fails_and_the_connection_lives():
    with connect() as conn:
        conn.execute("create table bad_copy (n int)")

        def copy_in():
            with conn.cursor().copy("copy bad_copy from stdin") as copy:
                for _ in range(2000):
                    copy.write("1\n")
                copy.write("no number\n")
                for _ in range(20000):
                    copy.write("1\n")

        refused(errors.InvalidTextRepresentation, copy_in)
        assert conn.execute("select count(*) from bad_copy").fetchone() == (0,)


def a_copy_that_the_client_gives_up_changes_nothing():
    with connect() as conn:
        conn.execute("create table given_up (n int)")

        def copy_in():
            with conn.cursor().copy("copy given_up from stdin") as copy:
                copy.write("1\n")
                raise KeyError("enough")

        refused(KeyError, copy_in)
        assert conn.execute("select count(*) from given_up").fetchone() == (0,)


def an_unfinished_copy_out_is_left():
    with connect() as conn:

        def copy_out():
            with conn.cursor().copy("copy (select generate_series(1, 2000000)) to stdout") as copy:
                assert copy.read()
                raise KeyError("enough")

        refused(KeyError, copy_out)
        assert conn.execute("select 1").fetchone() == (1,)


def server_side_cursors_fetch_scroll_and_hold():
    with connect(autocommit=False) as conn:
        with conn.cursor("named", scrollable=True) as cursor:
            cursor.execute("select generate_series(1, 1000)")
            assert cursor.fetchmany(3) == [(1,), (2,), (3,)]
            cursor.scroll(500, mode="absolute")
            assert cursor.fetchone() == (501,)
            cursor.itersize = 50
            assert sum(1 for _ in cursor) == 499
        conn.commit()
        with conn.cursor("held", withhold=True) as cursor:
            cursor.execute("select generate_series(1, 10)")
            conn.commit()
            assert cursor.fetchmany(2) == [(1,), (2,)]
            conn.commit()
            assert cursor.fetchall() == [(number,) for number in range(3, 11)]


def rows_are_streamed():
    with connect() as conn:
        got = 0
        for row in conn.cursor(row_factory=dict_row).stream("select generate_series(1, 5000) as n"):
            got += row["n"]
        assert got == sum(range(5001))
        if hasattr(psycopg, "capabilities") and psycopg.capabilities.has_stream_chunked():
            got = sum(row[0] for row in conn.cursor().stream("select generate_series(1, 5000)", size=100))
            assert got == sum(range(5001))


def a_pipeline_returns_results_in_order():
    with connect() as conn:
        with conn.pipeline():
            cursors = [conn.execute("select %s::int", (number,)) for number in range(300)]
        assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(300)]


def an_error_in_a_pipeline_aborts_the_rest_up_to_the_sync():
    with connect() as conn:
        conn.execute("create table piped (n int)")

        def pipeline():
            with conn.pipeline() as pipe:
                conn.execute("insert into piped values (1)")
                pipe.sync()
                conn.execute("insert into piped values (2)")
                conn.execute("select 1/0")
                conn.execute("insert into piped values (3)")
                pipe.sync()

        refused((errors.DivisionByZero, errors.PipelineAborted), pipeline)
        assert conn.execute("select array_agg(n) from piped").fetchone() == ([1],)


def a_pipeline_goes_on_after_an_error_and_a_sync():
    with connect() as conn:
        conn.execute("create table piped_on (n int)")
        with conn.pipeline() as pipe:
            first = conn.execute("insert into piped_on values (1)")
            refused(errors.UndefinedTable, lambda: conn.execute("insert into missing values (2)") and pipe.sync())
            second = conn.execute("insert into piped_on values (3) returning n")
            assert second.fetchone() == (3,)
        assert first.rowcount == 1
        assert conn.execute("select count(*) from piped_on").fetchone()[0] >= 1


def a_transaction_within_a_pipeline():
    with connect() as conn:
        conn.execute("create table piped_block (n int)")
        with conn.pipeline(), conn.transaction():
            conn.cursor().executemany("insert into piped_block values (%s)", [(n,) for n in range(500)])
        assert conn.execute("select count(*) from piped_block").fetchone() == (500,)


def executemany_returns_rows():
    with connect() as conn:
        cursor = conn.cursor()
        cursor.executemany("select %s::int", [(n,) for n in range(50)], returning=True)
        got = []
        while True:
            got.append(cursor.fetchone()[0])
            if not cursor.nextset():
                break
        assert got == list(range(50))


def notifications_arrive_from_others_and_oneself():
    with connect() as conn, connect() as other:
        conn.execute("listen news")
        other.execute("select pg_notify('news', 'from another')")
        got = next(conn.notifies(timeout=10, stop_after=1))
        assert (got.channel, got.payload) == ("news", "from another")
        conn.execute("notify news, 'own'")
        got = next(conn.notifies(timeout=10, stop_after=1))
        assert got.payload == "own" and got.pid == conn.info.backend_pid, got
        conn.execute("unlisten news")
        other.execute("notify news, 'late'")
        assert list(conn.notifies(timeout=0.3)) == []


def notifications_of_a_rolled_back_transaction_never_arrive():
    with connect() as conn, connect() as other:
        conn.execute("listen undone")
        with other.transaction(force_rollback=True):
            other.execute("notify undone, 'never'")
        with other.transaction():
            other.execute("notify undone, 'once'")
            other.execute("notify undone, 'once'")
        assert [note.payload for note in conn.notifies(timeout=2)] == ["once"]


def a_query_is_cancelled_and_the_connection_lives():
    with connect() as conn:
        for cancel in (conn.cancel, conn.cancel_safe):
            timer = threading.Timer(0.3, cancel)
            timer.start()
            begun = time.monotonic()
            refused(errors.QueryCanceled, lambda: conn.execute("select pg_sleep(20)"))
            assert time.monotonic() - begun < 10
            timer.join()
            assert conn.execute("select 1").fetchone() == (1,)


def a_cancel_reaches_no_other_connection():
    with connect() as conn, connect() as other:
        done = []
        thread = threading.Thread(target=lambda: done.append(other.execute("select pg_sleep(1), 5").fetchone()[1]))
        thread.start()
        for _ in range(10):
            conn.cancel_safe()
            time.sleep(0.05)
        thread.join()
        assert done == [5], done


def a_statement_timeout_ends_a_query():
    with connect() as conn:
        conn.execute("set statement_timeout = '200ms'")
        refused(errors.QueryCanceled, lambda: conn.execute("select pg_sleep(20)"))
        conn.execute("set statement_timeout = 0")
        assert conn.execute("select pg_sleep(0.3), 2").fetchone()[1] == 2


def settings_last_over_transactions_and_are_ones_own():
    with connect() as conn, connect() as other:
        conn.execute("set application_name = 'mine'")
        conn.execute("set search_path = pg_catalog, public")
        conn.execute("set work_mem = '5MB'")
        conn.execute("select set_config('weir.mark', 'mine', false)")
        shown = (
            "select current_setting('application_name'), current_setting('search_path'),"
            " current_setting('work_mem'), current_setting('weir.mark', true)"
        )
        for _ in range(5):
            with conn.transaction():
                assert conn.execute(shown).fetchone() == ("mine", "pg_catalog, public", "5MB", "mine")
            got = other.execute(shown).fetchone()
            assert "mine" not in got and got[2] != "5MB", got
        assert conn.info.parameter_status("application_name") == "mine"
        conn.execute("reset work_mem")
        assert conn.execute("show work_mem").fetchone() == ("4MB",)


def a_local_setting_ends_with_its_transaction():
    with connect() as conn:
        conn.execute("set work_mem = '6MB'")
        with conn.transaction():
            conn.execute("set local work_mem = '7MB'")
            assert conn.execute("show work_mem").fetchone() == ("7MB",)
        assert conn.execute("show work_mem").fetchone() == ("6MB",)
        with conn.transaction(force_rollback=True):
            conn.execute("set work_mem = '8MB'")
        assert conn.execute("show work_mem").fetchone() == ("6MB",)


def time_zone_and_encoding_are_reported():
    with connect() as conn:
        conn.execute("set timezone = 'Asia/Tokyo'")
        assert conn.info.parameter_status("TimeZone") == "Asia/Tokyo"
        got = conn.execute("select '2024-01-01 00:00+00'::timestamptz").fetchone()[0]
        assert got.utcoffset() == datetime.timedelta(hours=9)
        conn.execute("set client_encoding = 'latin1'")
        assert conn.info.encoding == "iso8859-1"
        assert conn.execute("select %s::text", ("é",)).fetchone() == ("é",)


def temporary_tables_last_as_long_as_the_connection():
    with connect() as conn, connect() as other:
        conn.execute("create temp table scratch (n int)")
        for number in range(5):
            with conn.transaction():
                conn.execute("insert into scratch values (%s)", (number,))
        assert conn.execute("select count(*) from scratch").fetchone() == (5,)
        refused(errors.UndefinedTable, lambda: other.execute("select * from scratch"))


def advisory_locks_exclude_and_end_with_the_connection():
    with connect() as other:
        with connect() as conn:
            conn.execute("select pg_advisory_lock(4711)")
            for _ in range(3):
                assert other.execute("select pg_try_advisory_lock(4711)").fetchone() == (False,)
        deadline = time.monotonic() + 10
        while other.execute("select pg_try_advisory_lock(4711)").fetchone() != (True,):
            assert time.monotonic() < deadline, "the lock of a closed connection lives"
            time.sleep(0.05)
        assert other.execute("select pg_advisory_unlock(4711)").fetchone() == (True,)


def roles_last_over_transactions():
    with connect() as conn:
        conn.execute("set role none")
        conn.execute("set session authorization default")
        assert conn.execute("select current_user, session_user").fetchone() == ("app", "app")
        refused(errors.InsufficientPrivilege, lambda: conn.execute("set session authorization postgres"))


def discard_all_forgets_everything():
    with connect() as conn:
        conn.execute("set work_mem = '9MB'")
        conn.execute("create temp table forgotten (n int)")
        conn.execute("prepare forgotten as select 1")
        conn.execute("discard all")
        assert conn.execute("show work_mem").fetchone() == ("4MB",)
        refused(errors.UndefinedTable, lambda: conn.execute("select * from forgotten"))
        refused(errors.InvalidSqlStatementName, lambda: conn.execute("execute forgotten"))


def several_statements_in_one_text():
    with connect() as conn:
        cursor = conn.execute("create table several (n int); insert into several values (1), (2); select n from several")
        assert cursor.nextset() and cursor.nextset() and cursor.fetchall() == [(1,), (2,)]
        refused(errors.DivisionByZero, lambda: conn.execute("insert into several values (3); select 1/0"))
        assert conn.execute("select count(*) from several").fetchone() == (2,), "an implicit transaction"


def notices_reach_their_client():
    with connect() as conn:
        got = []
        conn.add_notice_handler(lambda notice: got.append((notice.severity, notice.message_primary)))
        conn.execute("do $$ begin raise notice 'hello %', 5; raise warning 'careful'; end $$")
        assert got == [("NOTICE", "hello 5"), ("WARNING", "careful")], got


def large_values_and_many_columns():
    with connect() as conn:
        value = "ü" * 5_000_000
        assert conn.execute("select %s::text", (value,)).fetchone() == (value,)
        data = bytes(range(256)) * 20_000
        assert conn.cursor(binary=True).execute("select %b::bytea", (data,)).fetchone() == (data,)
        row = conn.execute("select " + ", ".join(str(number) for number in range(1600))).fetchone()
        assert row == tuple(range(1600))


def large_objects():
    with connect() as conn:
        oid = conn.execute("select lo_from_bytea(0, %s)", (b"abc" * 100_000,)).fetchone()[0]
        with conn.transaction():
            handle = conn.execute("select lo_open(%s, 262144)", (oid,)).fetchone()[0]
            conn.execute("select lo_lseek(%s, 3, 0)", (handle,))
            assert conn.execute("select loread(%s, 3)", (handle,)).fetchone() == (b"abc",)
        conn.execute("select lo_unlink(%s)", (oid,))


def empty_queries_and_comments():
    with connect() as conn:
        for text in ("", ";", "-- nothing", "/* nothing */"):
            cursor = conn.execute(text)
            assert cursor.description is None
        assert conn.execute("select 1 -- ; begin").fetchone() == (1,)


def each_of_many_threads_sees_its_own_rows():
    problems = []

    def work(mark):
        try:
            with connect() as conn:
                conn.execute("select set_config('weir.mark', %s, false)", (str(mark),))
                for step in range(30):
                    query = "select %s::int, %s::int, current_setting('weir.mark')"
                    got = conn.execute(query, (mark, step)).fetchone()
                    if got != (mark, step, str(mark)):
                        problems.append((mark, step, got))
        except Exception as error:
            problems.append((mark, repr(error)))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(40)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not problems, problems[:3]


def a_pool_checks_resets_and_returns_connections():
    # psycopg does not notice that DISCARD ALL deallocates the statements that it has prepared by itself.
    reset = lambda conn: conn.execute("reset all", prepare=False)
    check = ConnectionPool.check_connection
    words = {"min_size": 2, "max_size": 4, "kwargs": {"autocommit": True}, "reset": reset, "check": check}
    with ConnectionPool(URL, **words) as pool:
        problems = []

        def work(mark):
            try:
                for _ in range(10):
                    with pool.connection(timeout=20) as conn:
                        assert conn.execute("show application_name").fetchone() == ("",)
                        conn.execute("set application_name = 'pool %s'" % mark)
                        assert conn.execute("show application_name").fetchone() == (f"pool {mark}",)
            except Exception as error:
                problems.append(repr(error))

        threads = [threading.Thread(target=work, args=(mark,)) for mark in range(12)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not problems, problems


def a_terminated_backend_is_reported():
    with connect() as conn, connect() as other:
        conn.execute("begin")
        pid = conn.execute("select pg_backend_pid()").fetchone()[0]
        other.execute("select pg_terminate_backend(%s)", (pid,))
        refused(psycopg.OperationalError, lambda: conn.execute("select pg_sleep(5)"))
        assert conn.closed and conn.broken
        assert other.execute("select 1").fetchone() == (1,)


def closing_twice_is_no_error():
    conn = connect()
    conn.close()
    conn.close()
    refused(psycopg.OperationalError, lambda: conn.execute("select 1"))


CHECKS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == "__main__" and callable(value)]
CHECKS.remove(connect)

if __name__ == "__main__":
    run(CHECKS)
