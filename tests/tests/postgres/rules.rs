//! Rules about statements, with psql and with drivers.

use std::process::Command;

use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{SYNC, Wire, parse, run};
use weir_tests::postgres::{Major, Postgres, USER};
use weir_tests::tools;

use crate::gateway::{before, psql, sql, text, try_sql};
use crate::hostile::{login, value};

const RULES: &str = r#"read_only_users = ["reader"]
statements_max = 3
[[listener.postgres.rule]]
name = "seen"
action = "count"
tables = ["notes"]
[[listener.postgres.rule]]
name = "noted"
action = "log"
functions = ["pg_sleep"]
[[listener.postgres.rule]]
name = "owner"
action = "allow"
users = ["owner"]
[[listener.postgres.rule]]
name = "no-ddl"
action = "deny"
classes = ["ddl"]
[[listener.postgres.rule]]
name = "secret"
action = "deny"
databases = ["app"]
tables = ["secret"]
"#;

fn start(server: &Postgres, folder: &std::path::Path) -> Gateway {
    server.sql_in(USER, "create table notes (n int); create table secret (n int); grant all on notes, secret to app");
    Gateway::start(before(server, folder, RULES, "pool_size = 2").workers(2))
}

#[test]
fn a_denied_statement_gets_42501_with_its_rule_and_the_session_goes_on() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let denied = |statement: &str, rule: &str| {
        let error = try_sql(&gateway, statement).expect_err(statement);
        assert!(error.contains("42501") && error.contains(rule), "{statement}: {error}");
    };
    denied("drop table notes", "no-ddl");
    denied("select 1; select * from secret", "secret");
    denied("select 1; select 2; select 3; select 4", "more than 3 statements");
    denied("prepare p as select * from secret", "secret");
    // Their text does not show the statements that they run.
    denied("do $$ begin execute 'drop table notes'; end $$", "no-ddl");
    denied("select query_to_xml('select * from secret', true, false, '')", "no-ddl");
    assert_eq!(sql(&gateway, "insert into notes values (1); select count(*) from notes"), "1");
    // A refusal is the gateway's: the server's block goes on, and its status is what the client is shown.
    let mut psql = psql(&gateway, USER, USER, "begin");
    let words =
        ["-v", "ON_ERROR_STOP=0", "-c", "insert into notes values (2)", "-c", "drop table notes", "-c", "commit"];
    let (_, error) = text(&psql.args(words).output().expect("psql"));
    assert!(error.contains("no-ddl") && !error.contains("25P02"), "{error}");
    assert_eq!(sql(&gateway, "select count(*) from notes"), "2");
    let by = |rule: &str, action: &str| {
        let labels = [("rule", rule), ("action", action)];
        gateway.metrics().sum_where("weir_postgres_rules_total", &labels)
    };
    assert_eq!((by("no-ddl", "deny"), by("secret", "deny"), by("statements_max", "deny")), (4.0, 2.0, 1.0));
    assert!(by("seen", "count") >= 4.0);
    sql(&gateway, "select pg_sleep(0)");
    gateway.wait_log("fits a statement of app at app");
    assert_eq!(by("noted", "log"), 1.0);
}

#[test]
fn rules_are_for_users_and_readers_write_nothing() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let as_user = |user: &str, statement: &str| {
        let output = psql(&gateway, user, USER, statement).output().expect("psql");
        let (out, error) = text(&output);
        if output.status.success() { Ok(out) } else { Err(error) }
    };
    assert!(as_user("owner", "create table more (n int); drop table more").is_ok());
    assert_eq!(as_user("reader", "select count(*) from notes"), Ok("0".to_owned()));
    for statement in ["insert into notes values (1)", "select nextval('x')", "copy notes from stdin"] {
        let error = as_user("reader", statement).expect_err(statement);
        assert!(error.contains("42501") && error.contains("read-only"), "{statement}: {error}");
    }
}

#[test]
fn drivers_see_a_refusal_in_a_batch_as_that_of_a_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let script = r#"
import psycopg, sys
conn = psycopg.connect(sys.argv[1], autocommit=True)
for _ in range(8):
    assert conn.execute("select count(*) from notes where n = %s", (7,)).fetchone() == (0,)
    try:
        conn.execute("select * from secret where n = %s", (7,), prepare=True)
        raise SystemExit("no error")
    except psycopg.errors.InsufficientPrivilege as error:
        assert "secret" in str(error), error
try:
    with conn.pipeline():
        first = conn.execute("select 1")
        conn.execute("select * from secret")
        conn.execute("insert into notes values (99)")
    raise SystemExit("no error in the pipeline")
except psycopg.errors.InsufficientPrivilege:
    pass
assert first.fetchone() == (1,)
assert conn.execute("select count(*) from notes where n = 99").fetchone() == (0,), "behind the error up to the Sync"
with conn.transaction():
    conn.execute("insert into notes values (%s)", (7,))
    try:
        conn.execute("drop table notes")
    except psycopg.errors.InsufficientPrivilege:
        pass
    conn.execute("insert into notes values (%s)", (7,))
assert conn.execute("select count(*) from notes where n = 7").fetchone() == (2,)
print("done")
"#;
    let url = format!("postgresql://{USER}@127.0.0.1:{}/{USER}", gateway.address.tcp().port());
    let output = Command::new(tools::python_installed()).args(["-c", script, &url]).output().expect("Python");
    let (out, error) = text(&output);
    assert_eq!(out, "done", "{error}\n{}", gateway.log());
}

#[test]
fn a_reload_of_the_rules_reaches_clients_that_are_connected() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let mut client = login(&gateway);
    let mut prepared = login(&gateway);
    let run_it = |wire: &mut Wire| {
        wire.send(&[run("s", &[]), SYNC.to_vec()].concat()).expect("sent");
        wire.reply().expect("a reply")
    };
    prepared.send(&[parse("s", "select count(*) from notes"), SYNC.to_vec()].concat()).expect("sent");
    assert!(prepared.reply().expect("a reply").errors.is_empty());
    assert_eq!(run_it(&mut prepared).rows, [["0"]]);
    assert_eq!(value(&mut client, "select count(*) from notes"), "0");
    let reload = |from: &str, to: &str| {
        gateway.rewrite(|text| text.replace(from, to));
        let outcome = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(outcome.json()["outcome"], "applied", "{}", outcome.body);
    };
    let (without, with) = ("tables = [\"secret\"]", "tables = [\"secret\", \"notes\"]");
    reload(without, with);
    until_true("the rule holds", || client.query("select count(*) from notes").expect("a reply").state() == "42501");
    until_true("for what was prepared, too", || run_it(&mut prepared).state() == "42501");
    assert_eq!(value(&mut client, "select 7"), "7", "the session goes on");
    reload(with, without);
    until_true("it is gone", || client.query("select count(*) from notes").expect("a reply").errors.is_empty());
    until_true("for what was prepared, too", || run_it(&mut prepared).errors.is_empty());
}
