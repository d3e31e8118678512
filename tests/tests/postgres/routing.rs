//! Which server a session gets: by its database, and by the roles of the servers.

use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::postgres::torture::wire::{Wire, query};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

fn psql(gateway: &Gateway, user: &str, database: &str, texts: &[&str]) -> Output {
    let port = gateway.address.tcp().port().to_string();
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-h", "127.0.0.1", "-p", &port]);
    psql.args(["-U", user, "-d", database]).args(texts.iter().flat_map(|text| ["-c", text]));
    psql.env("PGPASSWORD", PASSWORD).stdin(Stdio::null()).output().expect("psql starts")
}

/// The rows of the statements, or the errors.
pub(crate) fn run(gateway: &Gateway, database: &str, texts: &[&str]) -> Result<String, String> {
    let output = psql(gateway, USER, database, texts);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub(crate) fn sql(gateway: &Gateway, database: &str, text: &str) -> String {
    run(gateway, database, &[text]).unwrap_or_else(|error| panic!("{text}: {error}\n{}", gateway.log()))
}

pub(crate) fn console(gateway: &Gateway, command: &str) -> Result<String, String> {
    let output = psql(gateway, "boss", "pgbouncer", &[command]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub(crate) fn password(folder: &tempfile::TempDir) -> String {
    format!("{{ file = \"{}\" }}", secret_file(folder.path(), "server-password", PASSWORD))
}

#[test]
fn a_database_has_its_server_its_name_there_its_mode_and_its_login() {
    let (one, two) = (Postgres::start(Major::Fifteen), Postgres::start(Major::Fifteen));
    one.create_database("shop_live");
    two.create_database("reports");
    two.sql(&format!("create role auditor login password '{PASSWORD}'"));
    let folder = tempfile::tempdir().expect("a folder");
    let password = password(&folder);
    let login = format!("[upstream.postgres]\nuser = \"{USER}\"\npassword = {password}\npool_size = 2");
    let listener = format!(
        "[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n\
         [[listener.postgres.database]]\nname = \"shop\"\ndatabase = \"shop_live\"\n\
         [[listener.postgres.database]]\nname = \"reports\"\nupstream = \"two\"\npool_mode = \"session\"\n\
         [[listener.postgres.database]]\nname = \"audit\"\nupstream = \"two\"\ndatabase = \"reports\"\nuser = \"auditor\"\n\
         password = {password}\n"
    );
    let second = format!("[[upstream]]\nname = \"two\"\nendpoints = [\"{}\"]\n{login}", two.address.text());
    let config = Config { protocol: "postgres", ..Config::to(&one.address) };
    let gateway = Gateway::start(config.listener(&listener).upstream(&format!("{login}\n{second}")).workers(2));
    let place = "select current_database() || ' ' || current_user || ' ' || current_setting('port')";
    for (name, wanted) in [
        ("shop", format!("shop_live {USER} {}", one.port())),
        ("reports", format!("reports {USER} {}", two.port())),
        ("audit", format!("reports auditor {}", two.port())),
    ] {
        assert_eq!(sql(&gateway, name, place), wanted, "{name}");
    }
    let error = run(&gateway, "shop_live", &["select 1"]).expect_err("no such name");
    assert!(error.contains("FATAL:  database \"shop_live\" does not exist"), "{error}");
    // In session mode the temporary table is there for the next statement.
    assert_eq!(run(&gateway, "reports", &["create temp table t as select 7 n", "select n from t"]).as_deref(), Ok("7"));
    let databases = console(&gateway, "show databases").expect("rows");
    for (name, port, real, user, mode) in [
        ("shop", one.port(), "shop_live", USER, "transaction"),
        ("reports", two.port(), "reports", USER, "session"),
        ("audit", two.port(), "reports", "auditor", "transaction"),
    ] {
        let begin = format!("{name}|127.0.0.1|{port}|{real}|{user}|2|");
        assert!(
            databases.lines().any(|line| line.starts_with(&begin) && line.contains(&format!("|{mode}|"))),
            "{begin} {databases}"
        );
    }
    let pools = console(&gateway, "show pools").expect("rows");
    for name in ["shop", "reports", "audit"] {
        assert!(pools.lines().any(|line| line.starts_with(&format!("{name}|"))), "{pools}");
    }
    pause_stops_one_database(&gateway);
}

/// `audit` and `reports` are one database at the server.
fn pause_stops_one_database(gateway: &Gateway) {
    let error = console(gateway, "pause nowhere").expect_err("no such database");
    assert!(error.contains("no such database: nowhere"), "{error}");
    console(gateway, "pause audit").expect("paused");
    let port = gateway.address.tcp().port().to_string();
    let mut waiting = Command::new("psql")
        .args(["-XAtq", "-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", "audit", "-c", "select 7"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql starts");
    for name in ["shop", "reports"] {
        assert_eq!(sql(gateway, name, "select 1"), "1", "{name} is not paused");
    }
    assert!(waiting.try_wait().expect("its state").is_none(), "a paused client waits");
    console(gateway, "resume audit").expect("resumed");
    let output = waiting.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "7");
}

#[test]
fn a_star_serves_every_name_that_has_no_entry() {
    let (one, two) = (Postgres::start(Major::Fifteen), Postgres::start(Major::Fifteen));
    let folder = tempfile::tempdir().expect("a folder");
    let login = format!("[upstream.postgres]\nuser = \"{USER}\"\npassword = {}", password(&folder));
    let listener = "[listener.postgres]\nauth = \"trust\"\n\
         [[listener.postgres.database]]\nname = \"*\"\n\
         [[listener.postgres.database]]\nname = \"second\"\nupstream = \"two\"\ndatabase = \"postgres\"\n";
    let second = format!("[[upstream]]\nname = \"two\"\nendpoints = [\"{}\"]\n{login}", two.address.text());
    let config = Config { protocol: "postgres", ..Config::to(&one.address) };
    let gateway = Gateway::start(config.listener(listener).upstream(&format!("{login}\n{second}")));
    let port = "select current_setting('port')";
    assert_eq!(sql(&gateway, USER, port), one.port().to_string());
    assert_eq!(sql(&gateway, "postgres", port), one.port().to_string());
    assert_eq!(sql(&gateway, "second", port), two.port().to_string());
    let error = run(&gateway, "nowhere", &["select 1"]).expect_err("the server has none");
    assert!(error.contains("database \"nowhere\" does not exist"), "{error}");
}

/// Reads the file, and waits until all `workers` have what it says.
pub(crate) fn reload(gateway: &Gateway, workers: u32, change: impl Fn(&str) -> String) {
    let generation = || gateway.metric("weir_worker_config_generation");
    let before = generation();
    gateway.rewrite(change);
    console(gateway, "RELOAD").expect("the file is right");
    until_true("the workers have the settings", || generation() >= before + f64::from(workers));
}

#[test]
fn a_pause_holds_over_a_reload_that_changes_the_servers() {
    let (one, two) = (Postgres::start(Major::Fifteen), Postgres::start(Major::Fifteen));
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = format!("[upstream.postgres]\nuser = \"{USER}\"\npassword = {}\n", password(&folder));
    let listener = "[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n";
    let config = Config { protocol: "postgres", ..Config::to(&one.address) };
    let gateway = Gateway::start(config.listener(listener).upstream(&upstream).workers(2));
    let port = gateway.address.tcp().port().to_string();
    let ask = || {
        let text = "select current_setting('port')";
        let words = ["-XAtq", "-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", USER, "-c", text];
        Command::new("psql").args(words).stdout(Stdio::piped()).spawn().expect("psql starts")
    };
    assert_eq!(sql(&gateway, USER, "select current_setting('port')"), one.port().to_string());
    console(&gateway, "pause").expect("paused");
    let mut waiting = vec![ask(), ask(), ask()];
    std::thread::sleep(Duration::from_millis(500));
    let [from, to] = [&one, &two].map(|server| format!("\"{}\"", server.address.text()));
    reload(&gateway, 2, |text| text.replace(&from, &to));
    waiting.push(ask());
    std::thread::sleep(Duration::from_millis(800));
    for client in &mut waiting {
        assert!(client.try_wait().expect("its state").is_none(), "a paused client waits\n{}", gateway.log());
    }
    let sessions = two.sql(&format!("select count(*) from pg_stat_activity where usename = '{USER}'"));
    assert_eq!(sessions, "0", "the other server serves after RESUME\n{}", gateway.log());
    assert_eq!(gateway.metric("weir_postgres_paused_databases"), 1.0);
    console(&gateway, "resume").expect("resumed");
    until_true("no pause is left", || gateway.metric("weir_postgres_paused_databases") == 0.0);
    for client in waiting {
        let output = client.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), two.port().to_string(), "{}", gateway.log());
    }
}

#[test]
fn clients_that_are_connected_take_a_changed_login_and_database_of_their_entry() {
    let server = Postgres::start(Major::Fifteen);
    server.sql("create role auditor login password 'first'");
    server.create_database("later");
    let folder = tempfile::tempdir().expect("a folder");
    let entry = |database: &str, word: &str| {
        let file = secret_file(folder.path(), &format!("auditor-{word}"), word);
        format!("database = \"{database}\"\nuser = \"auditor\"\npassword = {{ file = \"{file}\" }}")
    };
    let (first, second) = (entry(USER, "first"), entry("later", "second"));
    let listener = format!(
        "[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n\
         [[listener.postgres.database]]\nname = \"audit\"\n{first}\n"
    );
    let upstream = format!("[upstream.postgres]\nuser = \"{USER}\"\npassword = {}\n", password(&folder));
    let config = Config { protocol: "postgres", ..Config::to(&server.address) };
    let gateway = Gateway::start(config.listener(&listener).upstream(&upstream));
    let mut wire = Wire::connect(gateway.address.tcp().port(), USER, "audit", "audit").expect("a login");
    let mut place = || {
        let reply = wire.query("select current_user || ' ' || current_database()").expect("a reply");
        assert!(reply.errors.is_empty(), "{:?}\n{}", reply.errors, gateway.log());
        reply.rows[0][0].clone()
    };
    assert_eq!(place(), format!("auditor {USER}"));
    server.sql("alter role auditor password 'second'");
    reload(&gateway, 1, |text| text.replace(&first, &second));
    console(&gateway, "RECONNECT").expect("each connection is made again");
    assert_eq!(place(), "auditor later");
}

/// A primary that logs connections, and its standby.
pub(crate) fn pair() -> (Postgres, Postgres) {
    let settings = vec!["log_connections=on".to_owned(), "wal_receiver_status_interval=1".to_owned()];
    let primary = Postgres::start_with(Major::Fifteen, Options { settings, ..Options::default() });
    primary.sql_in(USER, "create table marks (n int primary key); alter table marks owner to app");
    let standby = primary.standby();
    (primary, standby)
}

fn before(servers: [&Postgres; 2], folder: &tempfile::TempDir, keys: &str) -> Config {
    let upstream = format!(
        "[upstream.postgres]\nuser = \"{USER}\"\npassword = {}\nrole_interval = \"200ms\"\n{keys}",
        password(folder)
    );
    Config { protocol: "postgres", ..Config::to_all(servers.map(|server| &server.address)) }
        .listener("[listener.postgres]\nauth = \"trust\"\nquery_wait_timeout = \"30s\"\n")
        .upstream(&upstream)
}

#[test]
fn sessions_go_to_servers_of_the_wanted_role() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    for (attrs, wanted) in [("primary", &primary), ("standby", &standby), ("prefer-standby", &standby)] {
        let keys = format!("target_session_attrs = \"{attrs}\"");
        // The wrong one first.
        for servers in [[&primary, &standby], [&standby, &primary]] {
            let gateway = Gateway::start(before(servers, &folder, &keys).workers(2));
            for _ in 0..4 {
                let port = sql(&gateway, USER, "select current_setting('port')");
                assert_eq!(port, wanted.port().to_string(), "{attrs}");
            }
        }
    }
}

/// Server connections of the gateway in the test of a failover.
const POOL_SIZE: usize = 4;
const CLIENTS: u32 = 12;

/// The result of one statement: the SQLSTATE of its error, or `closed`.
fn exchange(wire: &mut Wire, text: &str) -> Result<(), String> {
    let mut state = String::new();
    wire.send(&query(text)).map_err(|_| "closed".to_owned())?;
    loop {
        match wire.message() {
            Ok((b'E', body)) => {
                let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
                state = String::from_utf8_lossy(code.unwrap_or_default()).into_owned();
            }
            Ok((b'Z', _)) if state.is_empty() => return Ok(()),
            Ok((b'Z', _)) => return Err(state),
            Ok(_) => {}
            Err(_) if state.is_empty() => return Err("closed".to_owned()),
            Err(_) => return Err(state),
        }
    }
}

/// Results that the clients of a failover have seen.
#[derive(Default)]
struct Seen {
    committed: AtomicU32,
    failures: Mutex<Vec<String>>,
}

/// Transactions without end, each with a key of its own, until `is_over`.
fn transactions(port: u16, client: u32, seen: &Seen, is_over: &AtomicBool) {
    let connect = || Wire::connect(port, USER, USER, "load").expect("a login");
    let (mut wire, mut number) = (connect(), client * 1_000_000);
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let insert = format!("insert into marks values ({number})");
        let done = match number % 2 {
            0 => exchange(&mut wire, &insert),
            _ => ["begin", &insert, "commit"].into_iter().try_for_each(|text| exchange(&mut wire, text)),
        };
        match done {
            Ok(()) => drop(seen.committed.fetch_add(1, Ordering::Relaxed)),
            Err(state) => {
                seen.failures.lock().expect("no panic").push(state);
                wire = connect();
            }
        }
    }
}

#[test]
fn when_a_standby_is_promoted_only_transactions_at_the_lost_primary_fail_and_the_pool_heals() {
    let (mut primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let keys = format!("target_session_attrs = \"primary\"\npool_size = {POOL_SIZE}");
    let gateway = Gateway::start(before([&primary, &standby], &folder, &keys).workers(2));
    let (seen, is_over) = (Seen::default(), AtomicBool::new(false));
    let port = gateway.address.tcp().port();
    let logins = |server: &Postgres| server.log().matches(&format!("authorized: user={USER}")).count();
    std::thread::scope(|scope| {
        for client in 1..=CLIENTS {
            let (seen, is_over) = (&seen, &is_over);
            scope.spawn(move || transactions(port, client, seen, is_over));
        }
        let committed = || seen.committed.load(Ordering::Relaxed);
        until_true("transactions at the first primary", || committed() > 200);
        primary.kill();
        // Clients wait: there is no primary.
        std::thread::sleep(Duration::from_millis(700));
        let before = committed();
        let promoted = Instant::now();
        standby.promote();
        until_true("transactions at the promoted standby", || committed() > before);
        assert!(promoted.elapsed() < Duration::from_secs(10), "{}", gateway.log());
        until_true("many transactions there", || committed() > before + 500);
        is_over.store(true, Ordering::Relaxed);
    });
    let failures = seen.failures.into_inner().expect("no panic");
    let is_right = |state: &String| ["08006", "57P01", "57P02"].contains(&state.as_str());
    assert!(failures.iter().all(is_right), "{failures:?}\n{}", gateway.log());
    assert!(failures.len() <= POOL_SIZE, "{} of {POOL_SIZE} servers were lost: {failures:?}", failures.len());
    // The pool, and the connection that looks at the role; each may have been tried once more.
    let count = logins(&standby);
    assert!(count <= POOL_SIZE + 4, "{count} logins\n{}", standby.log());
    assert!(gateway.log().contains("primary"), "{}", gateway.log());
}

#[test]
fn a_primary_that_is_stopped_in_order_leaves_its_clients_waiting_until_it_is_back() {
    let (mut primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before([&primary, &standby], &folder, "target_session_attrs = \"primary\""));
    assert_eq!(sql(&gateway, USER, "select 1"), "1");
    primary.stop();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sql(&gateway, USER, "select pg_is_in_recovery()"));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!waiting.is_finished(), "the standby is no primary");
        primary.start_again();
        assert_eq!(waiting.join().expect("no panic"), "f");
    });
}

#[test]
fn clients_that_keep_a_replaced_primary_end_between_two_transactions() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway =
        Gateway::start(before([&primary, &standby], &folder, "target_session_attrs = \"primary\"").workers(2));
    let port = gateway.address.tcp().port();
    let ask = |wire: &mut Wire, text: &str| {
        let reply = wire.query(text).expect("a reply");
        assert!(reply.errors.is_empty(), "{text}: {:?}\n{}", reply.errors, gateway.log());
    };
    let pinned = |number: u32| {
        let mut wire = Wire::connect(port, USER, USER, "pinned").expect("a login");
        ask(&mut wire, &format!("select pg_advisory_lock({number})"));
        wire
    };
    let (mut silent, mut within) = (pinned(1), pinned(2));
    ask(&mut within, "begin");
    // Both are primaries from now on, as after a division of the network.
    standby.promote();
    let (tag, body) = silent.message().expect("a reason");
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(tag == b'E' && text.contains("57P01") && text.contains("another server"), "{text}\n{}", gateway.log());
    ask(&mut within, "select 1");
    assert_eq!(exchange(&mut within, "commit"), Ok(()), "the transaction ends as it began");
    let (tag, body) = within.message().expect("a reason");
    assert!(tag == b'E' && String::from_utf8_lossy(&body).contains("57P01"), "{}", gateway.log());
    assert_eq!(sql(&gateway, USER, "select current_setting('port')"), standby.port().to_string());
}
