//! Reads at a standby: what goes there, and that a client sees its own writes.

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::wire::Wire;
use weir_tests::postgres::{Postgres, USER};

use super::routing::{console, pair, password, run, sql};

/// In front of a primary and its standby, with reads at the standby.
fn split(primary: &Postgres, standby: &Postgres, folder: &tempfile::TempDir, keys: &str) -> Gateway {
    let servers = [primary, standby];
    let gateway = start(servers, &servers, folder, keys);
    until_true("a read at the standby", || sql(&gateway, USER, PORT) == standby.port().to_string());
    gateway
}

/// In front of servers one of which is the primary, with reads at the standbys among `reads`.
fn start(writes: [&Postgres; 2], reads: &[&Postgres], folder: &tempfile::TempDir, keys: &str) -> Gateway {
    let login = |attrs: &str| {
        let password = password(folder);
        format!(
            "[upstream.postgres]\nuser = \"{USER}\"\npassword = {password}\nrole_interval = \"200ms\"\n\
             target_session_attrs = \"{attrs}\"\n"
        )
    };
    let listener = format!(
        "[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n\
         [[listener.postgres.database]]\nname = \"*\"\nread_upstream = \"reads\"\n{keys}\n"
    );
    let endpoints: Vec<_> = reads.iter().map(|server| format!("\"{}\"", server.address.text())).collect();
    let reads =
        format!("[[upstream]]\nname = \"reads\"\nendpoints = [{}]\n{}", endpoints.join(", "), login("prefer-standby"));
    let config = Config { protocol: "postgres", ..Config::to_all(writes.map(|server| &server.address)) };
    Gateway::start(config.listener(&listener).upstream(&format!("{}{reads}", login("primary"))))
}

/// The server of a statement.
const PORT: &str = "select current_setting('port')";

fn row(wire: &mut Wire, text: &str) -> String {
    let reply = wire.query(text).expect("a reply");
    assert!(reply.errors.is_empty(), "{text}: {:?}", reply.errors);
    reply.rows.first().map_or_else(String::new, |row| row[0].clone())
}

#[test]
fn what_only_reads_goes_to_the_standby_and_everything_else_to_the_primary() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "");
    let (first, second) = (primary.port().to_string(), standby.port().to_string());
    for (texts, wanted) in [
        (vec![PORT], &second),
        (vec!["begin read only", PORT, "commit"], &second),
        (vec!["begin read only; select current_setting('port'); commit"], &second),
        (vec!["set weir.role = 'primary'", PORT], &first),
        (vec!["/* weir: role=primary */ select current_setting('port')"], &first),
        (vec!["select current_setting('port') /* weir: role=primary */"], &first),
        (vec!["begin", PORT, "commit"], &first),
        (vec!["select current_setting('port') from pg_advisory_xact_lock(1)"], &first),
    ] {
        let result = run(&gateway, USER, &texts);
        assert_eq!(result.as_deref(), Ok(wanted.as_str()), "{texts:?}\n{}", gateway.log());
    }
    assert_eq!(run(&gateway, USER, &["select pg_is_in_recovery()"]).as_deref(), Ok("f"), "perhaps it writes");
    let wished = ["set weir.role = 'replica'", "select pg_is_in_recovery()"];
    assert_eq!(run(&gateway, USER, &wished).as_deref(), Ok("t"));
    let error = run(&gateway, USER, &["begin read only", "insert into marks values (1)"]).expect_err("it only reads");
    assert!(error.contains("25006"), "{error}");
}

#[test]
fn a_client_reads_its_own_writes_and_others_read_at_the_standby() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "");
    let (first, second) = (primary.port().to_string(), standby.port().to_string());
    let connect = || Wire::connect(gateway.address.tcp().port(), USER, USER, "reads").expect("a login");
    let (mut writer, mut reader) = (connect(), connect());
    let count = "select count(*) from marks";
    for round in 1..=3 {
        standby.sql("select pg_wal_replay_pause()");
        row(&mut writer, &format!("insert into marks values ({round})"));
        for _ in 0..20 {
            assert_eq!((row(&mut writer, count), row(&mut writer, PORT)), (round.to_string(), first.clone()));
        }
        assert_eq!((row(&mut reader, count), row(&mut reader, PORT)), ((round - 1).to_string(), second.clone()));
        standby.sql("select pg_wal_replay_resume()");
        until_true("the writer to read at the standby again", || row(&mut writer, PORT) == second);
        assert_eq!(row(&mut writer, count), round.to_string());
    }
    // Without a pause: never an old count, whichever server it comes from.
    for number in 4..200 {
        row(&mut writer, &format!("insert into marks values ({number})"));
        assert_eq!(row(&mut writer, count), number.to_string());
    }
}

#[test]
fn a_standby_that_is_far_behind_serves_no_reads_and_a_lost_one_none_either() {
    let (primary, mut standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "replica_lag_max = \"1s\"");
    let (first, second) = (primary.port().to_string(), standby.port().to_string());
    let port = || sql(&gateway, USER, PORT);
    standby.sql("select pg_wal_replay_pause()");
    primary.sql_in(USER, "insert into marks values (1)");
    until_true("a read at the primary", || port() == first);
    assert_eq!(sql(&gateway, USER, "select count(*) from marks"), "1");
    standby.sql("select pg_wal_replay_resume()");
    until_true("a read at the standby", || port() == second);
    standby.kill();
    for _ in 0..10 {
        assert_eq!(port(), first, "a new client, and no standby");
    }
    standby.start_again();
    until_true("a read at the standby again", || port() == second);
}

#[test]
fn a_session_that_wishes_for_standbys_writes_nowhere_while_there_is_none() {
    let (primary, mut standby) = pair();
    primary.sql_in(USER, "insert into marks values (1)");
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "");
    let mut wire = Wire::connect(gateway.address.tcp().port(), USER, USER, "reads").expect("a login");
    row(&mut wire, "set weir.role = 'replica'");
    standby.kill();
    let first = primary.port().to_string();
    let reads_at_primary = |wire: &mut Wire| {
        let reply = wire.query(PORT).expect("a reply");
        reply.errors.is_empty() && reply.rows[0][0] == first
    };
    until_true("a read at the primary", || reads_at_primary(&mut wire));
    for text in ["delete from marks", "begin; delete from marks; commit"] {
        let reply = wire.query(text).expect("a reply");
        assert_eq!(reply.errors[0].0, "57P03", "{text}: {:?}\n{}", reply.errors, gateway.log());
    }
    assert_eq!(primary.sql_in(USER, "select count(*) from marks"), "1");
    // The session can leave its wish.
    row(&mut wire, "set weir.role = 'auto'");
    row(&mut wire, "delete from marks");
    assert_eq!(row(&mut wire, "select count(*) from marks"), "0");
}

#[test]
fn a_standby_that_stays_on_the_old_timeline_serves_no_client_that_has_written() {
    let (mut primary, next) = pair();
    let left = primary.standby();
    // The log of the one that is left behind is longer than that of the one that is promoted.
    next.sql("alter system set primary_conninfo = ''");
    next.sql("select pg_reload_conf()");
    until_true("no log comes", || next.sql("select count(*) from pg_stat_wal_receiver") == "0");
    primary.sql_in(USER, "create table filler as select generate_series(1, 200000)");
    left.catch_up(&primary);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = start([&primary, &next], &[&left], &folder, "");
    until_true("a read at the standby", || sql(&gateway, USER, PORT) == left.port().to_string());
    primary.kill();
    next.promote();
    let mark = "insert into marks values (7) on conflict do nothing";
    until_true("a write at the new primary", || run(&gateway, USER, &[mark]).is_ok());
    let connect = || Wire::connect(gateway.address.tcp().port(), USER, USER, "reads").expect("a login");
    let (mut writer, mut reader) = (connect(), connect());
    for number in 8..40 {
        row(&mut writer, &format!("insert into marks values ({number})"));
        let count = row(&mut writer, &format!("select count(*) from marks where n = {number}"));
        assert_eq!((count.as_str(), row(&mut writer, PORT)), ("1", next.port().to_string()), "{}", gateway.log());
    }
    assert_eq!(row(&mut reader, PORT), left.port().to_string(), "a client that has written nothing reads there");
}

#[test]
fn a_pin_at_a_standby_counts_at_its_endpoint() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "");
    let mut wire = Wire::connect(gateway.address.tcp().port(), USER, USER, "reads").expect("a login");
    row(&mut wire, "set weir.role = 'replica'");
    row(&mut wire, "select pg_advisory_lock(1)");
    assert_eq!(row(&mut wire, PORT), standby.port().to_string());
    let endpoint = standby.address.text();
    let labels = [("upstream", "reads"), ("endpoint", &*endpoint), ("reason", "advisory_lock")];
    gateway.wait_metric("weir_pins_total", &labels, 1.0);
    assert_eq!(gateway.metric("weir_pins_total"), 1.0, "and nowhere else");
}

/// Rows of the console, without names of columns.
fn rows(gateway: &Gateway, command: &str) -> Vec<Vec<String>> {
    let text = console(gateway, command).unwrap_or_else(|error| panic!("{command}: {error}"));
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

/// Exporters label a row of SHOW POOLS by its first two columns, and one of SHOW DATABASES by its first five: two rows of the same label
/// fail the whole scrape of prometheus-community/pgbouncer_exporter.
#[test]
fn the_console_has_one_row_for_what_an_exporter_takes_for_one() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = split(&primary, &standby, &folder, "");
    let connect = || Wire::connect(gateway.address.tcp().port(), USER, USER, "rows").expect("a login");
    let mut clients = [connect(), connect()];
    for (number, client) in clients.iter_mut().enumerate() {
        row(client, &format!("insert into marks values ({number})"));
        row(client, PORT);
    }
    until_true("all clients have their reads back", || rows(&gateway, "SHOW POOLS").iter().all(|row| row[6] == "0"));
    let pools = rows(&gateway, "SHOW POOLS");
    let of_app: Vec<_> = pools.iter().filter(|row| row[0] == USER).collect();
    assert_eq!(of_app.len(), 1, "one row for both upstreams and both endpoints: {pools:?}");
    assert_eq!((&*of_app[0][2], &*of_app[0][3]), ("2", "0"), "each client counts once: {pools:?}");
    let servers = of_app[0][9].parse::<u32>().expect("a number");
    assert!(servers >= 2, "connections to both: {pools:?}");
    let databases = rows(&gateway, "SHOW DATABASES");
    let of_app: Vec<_> = databases.iter().filter(|row| row[0] == USER).collect();
    let mut addresses: Vec<_> = of_app.iter().map(|row| row[2].clone()).collect();
    addresses.sort_unstable();
    let mut expected = [primary.port().to_string(), standby.port().to_string()];
    expected.sort_unstable();
    assert_eq!(addresses, expected, "one row for each server: {databases:?}");
    let sum = |column: usize| of_app.iter().map(|row| row[column].parse::<u32>().expect("a number")).sum::<u32>();
    assert_eq!(sum(14), 2, "idle clients are clients: {databases:?}");
    assert!(sum(12) >= servers, "those of the standby too: {databases:?}");
}
