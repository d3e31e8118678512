//! The admin console with psql and with drivers that know only the extended protocol.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Gateway, program};
use weir_tests::metrics::Metrics;
use weir_tests::postgres::torture::wire::Wire;
use weir_tests::postgres::{Exporter, Major, PASSWORD, Pgbouncer, PoolMode, Postgres, USER, drivers};
use weir_tests::suite::outcome::TestOutcome;

use crate::gateway::{before, psql, psql_at, sql, text, try_sql};

/// A gateway with two workers in front of `server`, for its test user.
fn start(server: &Postgres, folder: &std::path::Path) -> Gateway {
    let listener = "stats_users = [\"watcher\"]";
    Gateway::start(before(server, folder, listener, "pool_size = 3").workers(2))
}

/// The rows of a command, as psql prints them unaligned.
fn console(gateway: &Gateway, command: &str) -> String {
    try_console(gateway, "boss", command).unwrap_or_else(|error| panic!("{command}: {error}\n{}", gateway.log()))
}

fn try_console(gateway: &Gateway, user: &str, command: &str) -> Result<String, String> {
    let output = psql(gateway, user, "pgbouncer", command).output().expect("psql starts");
    let (out, error) = text(&output);
    if output.status.success() { Ok(out) } else { Err(error) }
}

/// A result with names of columns, as rows of `name=value`.
fn table(gateway: &Gateway, command: &str) -> Vec<String> {
    let mut psql = psql(gateway, "boss", "pgbouncer", command);
    let (out, error) = text(&psql.args(["-P", "tuples_only=off", "-P", "footer=off"]).output().expect("psql starts"));
    let mut lines = out.lines();
    let header = lines.next().unwrap_or_else(|| panic!("{command}: {error}"));
    let names: Vec<&str> = header.split('|').collect();
    let row = |line: &str| {
        let cells = names.iter().zip(line.split('|')).map(|(name, value)| format!("{name}={value}"));
        cells.collect::<Vec<_>>().join(" ")
    };
    lines.map(row).collect()
}

/// The value of a column of a row of [`table`].
fn value<'a>(row: &'a str, name: &str) -> &'a str {
    let found = row.split(' ').find_map(|cell| cell.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// A client that sleeps in a query of its own.
fn sleeper(gateway: &Gateway, server: &Postgres, seconds: u32) -> Child {
    let query = format!("select pg_sleep({seconds})");
    let child = psql(gateway, USER, USER, &query).stdout(Stdio::null()).spawn().expect("psql starts");
    let is_asleep = format!("select count(*) from pg_stat_activity where query = '{query}' and state = 'active'");
    until_true("the query runs", || server.sql(&is_asleep) == "1");
    child
}

#[test]
fn servers_and_clients_are_linked_to_each_other() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let asleep = sleeper(&gateway, &server, 30);
    let pid = server.sql("select pid from pg_stat_activity where query = 'select pg_sleep(30)'");
    let servers = table(&gateway, "SHOW SERVERS");
    let busy = servers.iter().find(|row| value(row, "remote_pid") == pid).expect("its row");
    assert_eq!((value(busy, "type"), value(busy, "state"), value(busy, "user")), ("S", "active", USER));
    assert_eq!(value(busy, "port"), server.port().to_string());
    assert_ne!(value(busy, "local_port"), "0");
    let clients = table(&gateway, "SHOW CLIENTS");
    let client = clients.iter().find(|row| value(row, "ptr") == value(busy, "link")).expect("the client of the server");
    assert_eq!((value(client, "state"), value(client, "link")), ("active", value(busy, "ptr")));
    let active = table(&gateway, "show active_sockets;");
    assert_eq!(active.len(), 2, "one client and its server: {active:?}");
    assert!(table(&gateway, "SHOW SOCKETS").len() > 2);
    // A client that no server is left for waits, and is shown to.
    let others: Vec<Child> = (31..34)
        .map(|seconds| psql(&gateway, USER, USER, &format!("select pg_sleep({seconds})")).spawn().expect("psql starts"))
        .collect();
    // Each of the three servers has a login before it serves.
    until_true("three are served and one waits", || {
        let pools = table(&gateway, "SHOW POOLS");
        let pool = pools.iter().find(|row| value(row, "database") == USER).expect("the pool");
        (value(pool, "cl_active"), value(pool, "cl_waiting"), value(pool, "sv_active")) == ("3", "1", "3")
    });
    assert!(table(&gateway, "SHOW CLIENTS").iter().any(|row| value(row, "state") == "waiting"));
    for mut child in others.into_iter().chain([asleep]) {
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}

#[test]
fn counts_are_of_each_database() {
    let server = Postgres::start(Major::Fifteen);
    server.create_database("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    for _ in 0..3 {
        sql(&gateway, "select 1");
    }
    let output = psql(&gateway, USER, "shop", "begin; select pg_sleep(0.1); commit").output().expect("psql");
    assert!(output.status.success(), "{}", text(&output).1);
    let stats = table(&gateway, "SHOW STATS");
    let row = |name: &str| stats.iter().find(|row| value(row, "database") == name).expect("a row of the database");
    assert_eq!((value(row(USER), "total_xact_count"), value(row("shop"), "total_xact_count")), ("3", "1"));
    assert_eq!(value(row(USER), "total_client_login_count"), "3");
    let number = |row: &str, name: &str| value(row, name).parse::<u64>().expect("a number");
    let (transaction, query) = (number(row("shop"), "total_xact_time"), number(row("shop"), "total_query_time"));
    assert!(transaction >= 100_000 && (100_000..=transaction + 50_000).contains(&query), "{}", row("shop"));
    assert!(number(row("shop"), "total_received") > 20 && number(row("shop"), "total_sent") > 20);
    assert!(number(row("shop"), "avg_xact_time") >= 100_000, "{}", row("shop"));
    let totals = table(&gateway, "SHOW STATS_TOTALS");
    assert_eq!(totals.iter().map(|row| number(row, "xact_count")).sum::<u64>(), 4);
    let all = table(&gateway, "SHOW TOTALS");
    assert!(all.contains(&"name=total_xact_count value=4".to_owned()), "{all:?}");
    assert_eq!(table(&gateway, "SHOW STATS_AVERAGES").len(), 3, "and the console's own");
}

#[test]
fn transactions_of_clients_that_keep_their_server_count_each() {
    let server = Postgres::start(Major::Fifteen);
    for (mode, first) in [("session", "select 1"), ("transaction", "select pg_advisory_lock(7)")] {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = format!("pool_mode = \"{mode}\"");
        let gateway = Gateway::start(before(&server, folder.path(), &listener, "pool_size = 3"));
        // Five transactions of one client, each in a message of its own; the client takes its time between them.
        let script = ["-c", first, "-c", "select pg_sleep(0.1)", "-c", "begin", "-c", "select 2", "-c", "commit"];
        let mut client = psql(&gateway, USER, USER, "select 0");
        let output = client.args(script).args(["-c", "\\! sleep 1", "-c", "select 3"]).output().expect("psql");
        assert!(output.status.success(), "{}", text(&output).1);
        let stats = table(&gateway, "SHOW STATS");
        let row = stats.iter().find(|row| value(row, "database") == USER).expect("a row of the database");
        assert_eq!(value(row, "total_xact_count"), "5", "{mode}: {row}");
        let assignments = value(row, "total_server_assignment_count");
        // In transaction pooling the statement before the lock has a server of its own.
        assert_eq!(assignments, if mode == "session" { "1" } else { "2" }, "{mode}: {row}");
        let micros = value(row, "total_xact_time").parse::<u64>().expect("a number");
        assert!((100_000..1_000_000).contains(&micros), "{mode}: the pause is in no transaction: {row}");
    }
}

#[test]
fn names_that_clients_make_up_for_one_database_do_not_use_up_the_list_of_figures() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", &format!("database = \"{USER}\"")));
    for number in 0..70 {
        let mut client = Wire::connect(gateway.address.tcp().port(), USER, &format!("d{number}"), "many");
        assert!(client.as_mut().is_ok_and(|client| client.query("select 1").is_ok()), "d{number}\n{}", gateway.log());
    }
    let stats = table(&gateway, "SHOW STATS");
    let names: Vec<_> = stats.iter().map(|row| value(row, "database")).collect();
    assert_eq!(names, [USER, "pgbouncer"], "all of them are one database");
    assert_eq!(value(&stats[0], "total_client_login_count"), "70");
    assert_eq!(value(&stats[0], "total_xact_count"), "70");
}

#[test]
fn a_disabled_database_lets_nobody_in_and_kill_ends_its_clients() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    sql(&gateway, "select 1");
    console(&gateway, &format!("DISABLE {USER}"));
    let error = try_sql(&gateway, "select 1").expect_err("it is disabled");
    assert!(error.contains("is disabled"), "{error}");
    assert!(table(&gateway, "SHOW DATABASES").iter().any(|row| value(row, "disabled") == "1"));
    console(&gateway, &format!("enable \"{USER}\";"));
    assert_eq!(sql(&gateway, "select 1"), "1");
    let asleep = sleeper(&gateway, &server, 40);
    console(&gateway, &format!("KILL {USER}"));
    let (_, error) = text(&asleep.wait_with_output().expect("it ends"));
    assert!(error.contains("57P01") || error.contains("terminat"), "{error}");
    let left = "select count(*) from pg_stat_activity where usename = 'app' and backend_type = 'client backend'";
    until_true("its servers are gone", || server.sql(left) == "0");
    let mut waiting = psql(&gateway, USER, USER, "select 7").spawn().expect("psql starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.try_wait().expect("its state").is_none(), "KILL pauses");
    console(&gateway, &format!("RESUME {USER}"));
    assert_eq!(text(&waiting.wait_with_output().expect("it ends")).0, "7");
}

#[test]
fn wait_close_ends_when_the_servers_from_before_are_gone() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let mut asleep = sleeper(&gateway, &server, 3);
    console(&gateway, "RECONNECT");
    assert!(table(&gateway, "SHOW SERVERS").iter().any(|row| value(row, "close_needed") == "1"));
    console(&gateway, "WAIT_CLOSE");
    assert!(asleep.wait().expect("reaped").success(), "WAIT_CLOSE ends no query");
    assert!(!table(&gateway, "SHOW SERVERS").iter().any(|row| value(row, "close_needed") == "1"));
}

#[test]
fn set_changes_what_can_change_on_all_workers_and_reload_brings_the_file_back() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let timeout = || {
        let rows = table(&gateway, "SHOW CONFIG");
        let row = rows.iter().find(|row| value(row, "key") == "query_timeout").expect("its row").clone();
        assert_eq!(value(&row, "changeable"), "yes");
        value(&row, "value").to_owned()
    };
    assert_eq!(timeout(), "0");
    console(&gateway, "SET query_timeout = '300ms'");
    until_true("each worker has it", || (0..8).all(|_| timeout() == "0.3"));
    for _ in 0..4 {
        let error = try_sql(&gateway, "select pg_sleep(20)").expect_err("it takes too long");
        assert!(error.contains("57014") || error.contains("query_timeout"), "{error}");
    }
    let error = try_console(&gateway, "boss", "SET default_pool_size = 5").expect_err("it cannot change");
    assert!(error.contains("RELOAD"), "{error}");
    assert!(try_console(&gateway, "watcher", "SET query_timeout = 1").expect_err("no right").contains("admin access"));
    assert!(try_console(&gateway, "watcher", "SHOW STATS").is_ok());
    // A file that has changed in something is read, and every setting is as it says.
    gateway.rewrite(|text| text.replace("pool_size = 3", "pool_size = 4"));
    console(&gateway, "RELOAD");
    until_true("the file holds again", || (0..8).all(|_| timeout() == "0"));
    assert!(
        table(&gateway, "SHOW CONFIG").contains(&"key=default_pool_size value=4 default=20 changeable=no".to_owned())
    );
    gateway.rewrite(|text| format!("nonsense\n{text}"));
    let error = try_console(&gateway, "boss", "RELOAD").expect_err("the file is wrong");
    assert!(error.contains("RELOAD failed") && error.contains("mistake"), "{error}");
}

#[test]
fn shutdown_waits_for_clients_if_it_is_told_so() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let mut gateway = start(&server, folder.path());
    let mut asleep = sleeper(&gateway, &server, 2);
    console(&gateway, "SHUTDOWN WAIT_FOR_CLIENTS");
    let error = try_sql(&gateway, "select 1").expect_err("nobody is let in");
    assert!(error.contains("shuts down"), "{error}");
    assert!(asleep.wait().expect("reaped").success(), "a client that is there stays to its end");
    let status = gateway.process().wait(Duration::from_secs(20));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn what_is_not_supported_says_what_to_do() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    for (command, words) in [
        ("SUSPEND", "weir upgrade"),
        ("SHOW FDS", "weir upgrade"),
        ("SHOW NOTHING", "SHOW HELP"),
        ("PAUSE pgbouncer", "of this console"),
        ("BEGIN", "invalid command"),
    ] {
        let error = try_console(&gateway, "boss", command).expect_err(command);
        assert!(error.contains(words), "{command}: {error}");
    }
    for command in
        ["SHOW MEM", "SHOW PEERS", "SHOW PEER_POOLS", "SHOW DNS_HOSTS", "SHOW DNS_ZONES", "SHOW PINS", "SHOW USERS"]
    {
        console(&gateway, command);
    }
    assert_eq!(console(&gateway, "SHOW client_encoding"), "UTF8");
}

#[test]
fn drivers_use_the_console_by_the_extended_protocol() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    sql(&gateway, "select 1");
    let url = format!("postgresql://boss:any@127.0.0.1:{}/pgbouncer", gateway.address.tcp().port());
    let outcomes = drivers::run_console(&url);
    let failed: Vec<_> = outcomes.tests.iter().filter(|(_, outcome)| **outcome != TestOutcome::Passed).collect();
    assert!(failed.is_empty() && outcomes.problems.is_empty(), "{failed:?} {:?}", outcomes.problems);
    assert_eq!(outcomes.tests.len(), 5);
}

#[test]
fn the_api_and_top_say_what_a_client_waits_for_and_why_another_keeps_its_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let pinning = "select pg_advisory_lock(7)";
    let mut keepers = Vec::new();
    for seconds in 50..53 {
        let mut psql = psql(&gateway, USER, USER, if seconds == 50 { pinning } else { "select 1" });
        let query = format!("select pg_sleep({seconds})");
        keepers.push(psql.args(["-c", &query]).spawn().expect("psql starts"));
    }
    let asleep = "select count(*) from pg_stat_activity where query like 'select pg_sleep(5%' and state = 'active'";
    until_true("all servers are busy", || server.sql(asleep) == "3");
    for _ in 0..2 {
        keepers.push(psql(&gateway, USER, USER, "select 1").spawn().expect("psql starts"));
    }
    let page = || gateway.admin.get("/api/v1/connections").json();
    let found = |of: fn(&serde_json::Value) -> bool| {
        let page = page();
        let connections = page["connections"].as_array().expect("a list").clone();
        connections.into_iter().filter(of).collect::<Vec<_>>()
    };
    until_true("two wait", || found(|one| one["waits_for"]["seconds"].as_f64() > Some(0.0)).len() == 2);
    let waiting = found(|one| one["state"] == "waiting");
    let mut places: Vec<_> = waiting.iter().map(|one| one["waits_for"]["position"].as_u64()).collect();
    places.sort_unstable();
    assert_eq!(places, [Some(1), Some(2)], "{waiting:?}");
    assert_eq!(waiting[0]["waits_for"]["pool"], format!("{USER}@{USER}"));
    assert_eq!(waiting[0]["waits_for"]["upstream"], "server");
    let pinned = found(|one| one["pinned_by"][0] == "advisory_lock");
    assert_eq!(pinned.len(), 1);
    assert!(pinned[0]["pinned_seconds"].as_f64() > Some(0.0), "{pinned:?}");
    assert_eq!(found(|one| one["transaction_seconds"].as_f64() > Some(0.0)).len(), 3);
    let pins = table(&gateway, "SHOW PINS");
    assert_eq!((pins.len(), value(&pins[0], "reason")), (1, "advisory_lock"), "{pins:?}");
    assert!(pins[0].contains("UTC") && value(&pins[0], "seconds").parse::<u64>().is_ok(), "{pins:?}");
    let url = format!("http://{}", gateway.admin.address);
    let mut top = Command::new(program());
    top.args(["top", "--once", "--view", "clients", "--interval", "0.2", "--admin", &url])
        .env_remove("WEIR_ADMIN_TOKEN");
    let (shown, error) = text(&top.output().expect("weir top"));
    let line = |words: &str| shown.lines().any(|line| line.trim_end().ends_with(words));
    assert!(line(&format!("2/2 for {USER}@{USER} at server")) && line("advisory_lock"), "{shown} {error}");
    for mut keeper in keepers {
        keeper.kill().expect("killed");
        keeper.wait().expect("reaped");
    }
}

/// A family of the exporter that it reads by a column's name which PgBouncer itself has changed in 1.24.
const RENAMED: &str = "pgbouncer_databases_database_reserve_pool_size";

#[test]
fn an_exporter_finds_all_that_it_finds_at_pgbouncer() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start(&server, folder.path());
    let bouncer = Pgbouncer::before(&server, PoolMode::Transaction, 3, "");
    for port in [gateway.address.tcp().port(), bouncer.address.tcp().port()] {
        for number in 0..5 {
            let output = psql_at(port, USER, USER, &format!("select {number}")).output().expect("psql");
            assert_eq!(text(&output).0, number.to_string(), "{}", text(&output).1);
        }
    }
    let own = Exporter::before(gateway.address.tcp().port(), "boss", "any");
    let other = Exporter::before(bouncer.address.tcp().port(), USER, PASSWORD);
    let (found, expected) = (own.scrape(), other.scrape());
    assert_eq!((found.sum("pgbouncer_up"), expected.sum("pgbouncer_up")), (1.0, 1.0), "{} {}", own.log(), other.log());
    let of_exporter = |metrics: &Metrics| -> BTreeSet<String> {
        metrics.names().into_iter().filter(|name| name.starts_with("pgbouncer_")).map(str::to_owned).collect()
    };
    let (found_names, expected_names) = (of_exporter(&found), of_exporter(&expected));
    let missing: Vec<_> = expected_names.difference(&found_names).filter(|name| *name != RENAMED).collect();
    assert!(missing.is_empty() && expected_names.len() > 15, "{missing:?} of {expected_names:?}");
    let database = [("database", USER)];
    for (name, least, most) in [
        ("pgbouncer_stats_transactions_total", 5.0, 5.0),
        ("pgbouncer_stats_queries_total", 5.0, 5.0),
        ("pgbouncer_stats_received_bytes_total", 50.0, 10_000.0),
        ("pgbouncer_stats_sent_bytes_total", 50.0, 10_000.0),
        ("pgbouncer_stats_queries_duration_microseconds_total", 1.0, 1e7),
        ("pgbouncer_stats_transactions_duration_microseconds_total", 1.0, 1e7),
        ("pgbouncer_pools_server_idle_connections", 1.0, 3.0),
        ("pgbouncer_pools_server_active_connections", 0.0, 0.0),
        ("pgbouncer_pools_client_waiting_connections", 0.0, 0.0),
        ("pgbouncer_pools_client_maxwait_seconds", 0.0, 0.0),
        ("pgbouncer_databases_database_pool_size", 3.0, 3.0),
        ("pgbouncer_databases_database_current_connections", 1.0, 3.0),
    ] {
        for (side, metrics) in [("Weir", &found), ("PgBouncer", &expected)] {
            let value = metrics.sum_where(name, &database);
            assert!((least..=most).contains(&value), "{side}: {name} is {value}");
        }
    }
    assert!(found.sum("pgbouncer_config_max_client_conn") > 0.0);
}
