//! The gateway in front of a real server, with real clients: psql and pgbench.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::torture::wire::{Wire, message, parse, run};
use weir_tests::postgres::{Major, PASSWORD, Pgbench, Postgres, Protocol, USER, prepare};
use weir_tests::stream::Address;

use super::routing::console;

/// In front of `server`, which the gateway logs in at with SCRAM; clients are believed.
pub(crate) fn before(server: &Postgres, folder: &std::path::Path, listener: &str, upstream: &str) -> Config {
    before_address(&server.address, folder, listener, upstream)
}

/// The same in front of an address that leads to a server.
pub(crate) fn before_address(server: &Address, folder: &std::path::Path, listener: &str, upstream: &str) -> Config {
    let password = secret_file(folder, "server-password", PASSWORD);
    Config { protocol: "postgres", ..Config::to(server) }
        .listener(&format!("[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n{listener}"))
        .upstream(&format!(
            "[upstream.postgres]\nuser = \"{USER}\"\npassword = {{ file = \"{password}\" }}\n{upstream}"
        ))
}

/// psql as `user` at `database`, with one command.
pub(crate) fn psql(gateway: &Gateway, user: &str, database: &str, text: &str) -> Command {
    psql_at(gateway.address.tcp().port(), user, database, text)
}

pub(crate) fn psql_at(port: u16, user: &str, database: &str, text: &str) -> Command {
    let port = port.to_string();
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-h", "127.0.0.1", "-p", &port]);
    psql.args(["-U", user, "-d", database, "-c", text]).env("PGPASSWORD", PASSWORD);
    psql.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    psql
}

pub(crate) fn text(output: &Output) -> (String, String) {
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (read(&output.stdout), read(&output.stderr))
}

/// The output of a statement.
pub(crate) fn sql(gateway: &Gateway, text: &str) -> String {
    try_sql(gateway, text).unwrap_or_else(|error| panic!("{text}: {error}\n{}", gateway.log()))
}

pub(crate) fn try_sql(gateway: &Gateway, statement: &str) -> Result<String, String> {
    let output = psql(gateway, USER, USER, statement).output().expect("psql starts");
    let (out, error) = text(&output);
    if output.status.success() { Ok(out) } else { Err(error) }
}

#[test]
fn pgbench_runs_in_its_three_protocols_over_fewer_servers_than_clients() {
    let server = Postgres::start(Major::Fifteen);
    prepare(&server, USER, 1);
    let folder = tempfile::tempdir().expect("a folder");
    for workers in [1, 2] {
        let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4").workers(workers));
        for protocol in Protocol::ALL {
            for words in [vec!["-S".to_owned()], Vec::new()] {
                // pgbench waits for each ParseComplete before its other clients go on, which may have all servers in their
                // transactions: only texts that no server has taken yet may need one.
                let clients = 12;
                let run = Pgbench { protocol, clients, transactions: 50, words };
                let figures = run.run(gateway.address.tcp().port(), USER);
                let figures = figures.unwrap_or_else(|error| panic!("{run:?}: {error}\n{}", gateway.log()));
                assert_eq!((figures.transactions, figures.failed), (u64::from(clients) * 50, 0), "{run:?}");
            }
        }
        let count = "select count(*) from pg_stat_activity where usename = 'app' and backend_type = 'client backend'";
        let servers: u32 = server.sql(count).parse().expect("a number");
        assert!((1..=4).contains(&servers), "{servers} of at most 4 servers, with {workers} workers");
        assert!(gateway.metric("weir_postgres_transactions_total") >= 3_200.0);
    }
}

/// pgbench waits for the reply to each Parse, and its other clients with it: one of them may have the only server in its transaction, and
/// a server may have the statement by a client of another worker.
#[test]
fn prepared_transactions_of_more_clients_than_servers_do_not_wait_for_each_other_on_two_workers() {
    let server = Postgres::start(Major::Fifteen);
    prepare(&server, USER, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let limits = "query_wait_timeout = \"5s\"";
    for pool_size in [1, 2] {
        let upstream = format!("pool_size = {pool_size}");
        let gateway = Gateway::start(before(&server, folder.path(), limits, &upstream).workers(2));
        // Each of the two workers has a greeting of the server: a login waits as well.
        for _ in 0..4 {
            sql(&gateway, "select 1");
        }
        let words = vec!["-j".to_owned(), "1".to_owned()];
        let run = Pgbench { protocol: Protocol::Prepared, clients: 6, transactions: 20, words };
        let figures = run.run(gateway.address.tcp().port(), USER);
        let figures = figures.unwrap_or_else(|error| panic!("{pool_size} servers: {error}\n{}", gateway.log()));
        assert_eq!((figures.transactions, figures.failed), (120, 0), "{pool_size} servers");
    }
}

#[test]
fn a_table_that_is_temporary_by_a_path_of_a_parameter_stays_with_its_client() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let mut client = Wire::connect(gateway.address.tcp().port(), USER, USER, "temporary").expect("a login");
    let path = "select set_config('search_path', $1, true)";
    for create in ["create table leaked (n int)", "select 1 as n into leaked", "create view leaked as select 1 as n"] {
        assert!(client.query("begin").expect("a reply").errors.is_empty());
        let batch = [parse("", path), run("", &["pg_temp"]), message(b'S', b"")].concat();
        client.send(&batch).expect("sent");
        assert!(client.reply().expect("a reply").errors.is_empty());
        let ended = client.query(&format!("{create}; commit")).expect("a reply");
        assert!(ended.errors.is_empty(), "{create}: {:?}", ended.errors);
        let pins = console(&gateway, "show pins").expect("rows");
        assert!(pins.contains("temporary_table"), "{create}: {pins}");
        assert_eq!(client.query("select n from pg_temp.leaked limit 1").expect("a reply").state(), "", "{create}");
        client.query("discard all").expect("a reply");
        assert_eq!(sql(&gateway, "select to_regclass('pg_temp.leaked') is null"), "t", "{create}");
    }
    // The path alone pins nothing, nor does a table that was there.
    let batch = [parse("", path), run("", &["public"]), message(b'S', b"")].concat();
    client.send(&batch).expect("sent");
    assert!(client.reply().expect("a reply").errors.is_empty());
    assert_eq!(sql(&gateway, "select 7"), "7", "the only server is free");
}

#[test]
fn an_error_has_its_code_and_the_session_goes_on() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", ""));
    let error = try_sql(&gateway, "select * from nothing").expect_err("no such table");
    assert!(error.contains("42P01"), "{error}");
    let mut two = psql(&gateway, USER, USER, "select 1/0");
    let output = two.args(["-v", "ON_ERROR_STOP=0", "-c", "select 7"]).output().expect("psql");
    let (out, error) = text(&output);
    assert!(out.ends_with('7') && error.contains("22012"), "{out} {error}");
    let output = psql(&gateway, USER, "nowhere", "select 1").output().expect("psql");
    assert!(text(&output).1.contains("database \"nowhere\" does not exist"), "{:?}", text(&output));
}

#[test]
fn session_settings_follow_their_client_and_reach_no_other() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let show = "show search_path";
    let fresh = sql(&gateway, show);
    let output = psql(&gateway, USER, USER, "set search_path = pg_temp, app").args(["-c", show]).output();
    assert_eq!(text(&output.expect("psql")).0, "pg_temp, app");
    assert_eq!(sql(&gateway, show), fresh, "another client of the same server");
    assert_eq!(sql(&gateway, "show application_name"), "psql");
}

#[test]
fn clients_prove_their_password_by_scram() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let password = secret_file(folder.path(), "client-password", PASSWORD);
    let user = format!("[[listener.user]]\nname = \"{USER}\"\npassword = {{ file = \"{password}\" }}");
    let config = Config { protocol: "postgres", ..Config::to(&server.address) }.listener(&user);
    // No user at the upstream: the client's own, whose password the gateway knows.
    let gateway = Gateway::start(config);
    assert_eq!(sql(&gateway, "select current_user"), USER);
    for (user, password) in [(USER, "wrong"), ("nobody", PASSWORD)] {
        let output = psql(&gateway, user, USER, "select 1").env("PGPASSWORD", password).output().expect("psql");
        let (_, error) = text(&output);
        assert!(error.contains(&format!("password authentication failed for user \"{user}\"")), "{error}");
    }
    assert!(gateway.metric("weir_auth_failures_total") >= 2.0);
}

#[test]
fn a_cancel_request_ends_the_query_of_its_client_alone() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    // Two workers: the request comes to either.
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 4").workers(2));
    let is_asleep = || {
        server.sql("select count(*) from pg_stat_activity where query like 'select pg_sleep(6%' and state = 'active'")
    };
    for _ in 0..4 {
        let sleeper = psql(&gateway, USER, USER, "select pg_sleep(60)").spawn().expect("psql starts");
        let other = psql(&gateway, USER, USER, "select pg_sleep(2), 'unharmed'").spawn().expect("psql starts");
        until_true("a query runs", || is_asleep() == "1");
        let pid = rustix::process::Pid::from_raw(sleeper.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
        let (_, error) = text(&sleeper.wait_with_output().expect("it ends"));
        assert!(error.contains("57014"), "{error}\n{}", gateway.log());
        let (out, error) = text(&other.wait_with_output().expect("it ends"));
        assert!(out.ends_with("unharmed"), "{out} {error}");
    }
    assert_eq!(gateway.metrics().sum_where("weir_postgres_cancels_total", &[("outcome", "forwarded")]), 4.0);
}

#[test]
fn a_client_that_vanishes_has_its_query_cancelled_and_its_transaction_rolled_back() {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, "create table notes (n int); grant all on notes to app");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let statement = "begin; insert into notes values (1); select pg_sleep(60)";
    let mut lost = psql(&gateway, USER, USER, statement).spawn().expect("psql starts");
    let is_asleep = "select count(*) from pg_stat_activity where query like '%pg_sleep(60)' and state = 'active' and usename = 'app'";
    until_true("the query runs", || server.sql(is_asleep) == "1");
    lost.kill().expect("killed");
    lost.wait().expect("reaped");
    let begun = Instant::now();
    assert_eq!(sql(&gateway, "select count(*) from notes"), "0");
    assert!(begun.elapsed() < Duration::from_secs(20), "the server was free again before its query would have ended");
    assert_eq!(server.sql(is_asleep), "0");
}

#[test]
fn a_full_pool_refuses_with_53300_after_its_wait() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "query_wait_timeout = \"500ms\"", "pool_size = 1"));
    sql(&gateway, "select 1");
    let mut holder = psql(&gateway, USER, USER, "select pg_sleep(60)").spawn().expect("psql starts");
    let is_asleep = "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'";
    until_true("the query runs", || server.sql(is_asleep) == "1");
    let error = try_sql(&gateway, "select 1").expect_err("no server is free");
    assert!(error.contains("53300"), "{error}");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    assert_eq!(sql(&gateway, "select 1"), "1");
}

#[test]
fn a_drain_ends_clients_between_transactions_with_57p01() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = Gateway::start(before(&server, folder.path(), "", ""));
    // One sleeps within a transaction; the drain lets it finish, and the next statement finds no gateway.
    let script = "begin; select pg_sleep(1); commit";
    let mut busy = psql(&gateway, USER, USER, script);
    let busy = busy.args(["-c", "select pg_sleep(0.5)", "-c", "select pg_sleep(5)"]).spawn().expect("psql starts");
    let is_asleep = "select count(*) from pg_stat_activity where query like '%pg_sleep(1)%' and state = 'active' and usename = 'app'";
    until_true("the transaction runs", || server.sql(is_asleep) == "1");
    gateway.process().signal("TERM");
    let (_, error) = text(&busy.wait_with_output().expect("it ends"));
    assert!(error.contains("57P01") || error.contains("terminating connection"), "{error}\n{}", gateway.log());
    let status = gateway.process().wait(Duration::from_secs(20));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn the_admin_console_shows_pools_and_pauses_them() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 3"));
    sql(&gateway, "select 1");
    let console = |user: &str, command: &str| text(&psql(&gateway, user, "pgbouncer", command).output().expect("psql"));
    let (pools, error) = console("boss", "show pools");
    assert!(pools.contains(&format!("{USER}|{USER}|")) && pools.contains("|transaction|\n"), "{pools} {error}");
    for command in ["show version", "show stats", "show databases", "show clients", "show lists", "show config"] {
        let (out, error) = console("boss", command);
        assert!(!out.is_empty() && error.is_empty(), "{command}: {out} {error}");
    }
    assert!(console("guest", "show pools").1.contains("not allowed"));
    assert_eq!(console("boss", "pause").1, "");
    let mut waiting = psql(&gateway, USER, USER, "select 7").spawn().expect("psql starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().expect("its state").is_none(), "a paused client waits");
    assert_eq!(console("boss", "resume").1, "");
    let (out, error) = text(&waiting.wait_with_output().expect("it ends"));
    assert_eq!((out.as_str(), error.as_str()), ("7", ""));
}
