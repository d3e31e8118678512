//! A standby all of whose server connections are in use, while the primary has free ones.

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::wire::{Wire, query};
use weir_tests::postgres::{Postgres, USER};

use super::routing::{console, pair, password, sql};

const PORT: &str = "select current_setting('port')";

/// Reads go to one connection of the standby, writes to four of the primary. The access log is in the folder.
fn gateway(primary: &Postgres, standby: &Postgres, folder: &tempfile::TempDir) -> Gateway {
    gateway_with(primary, standby, folder, USER)
}

/// The same with another login for reads.
fn gateway_with(primary: &Postgres, standby: &Postgres, folder: &tempfile::TempDir, reads_as: &str) -> Gateway {
    let login = |user: &str, attrs: &str, pool_size: u32| {
        let password = password(folder);
        format!(
            "[upstream.postgres]\nuser = \"{user}\"\npassword = {password}\nrole_interval = \"200ms\"\n\
             pool_size = {pool_size}\ntarget_session_attrs = \"{attrs}\"\n"
        )
    };
    let listener = "[listener.postgres]\nauth = \"trust\"\nadmin_users = [\"boss\"]\n\
         [[listener.postgres.database]]\nname = \"*\"\nread_upstream = \"reads\"\n";
    let reads = format!(
        "[[upstream]]\nname = \"reads\"\nendpoints = [\"{}\"]\n{}",
        standby.address.text(),
        login(reads_as, "prefer-standby", 1)
    );
    let log = format!("[telemetry.access_log]\ntarget = \"file:{}\"\nsample = 1.0\n", log_file(folder).display());
    let servers = [primary, standby].map(|server| &server.address);
    let config = Config { protocol: "postgres", ..Config::to_all(servers) };
    let config = config.listener(listener).upstream(&format!("{}{reads}", login(USER, "primary", 4)));
    let gateway = Gateway::start(config.tables(&log));
    until_true("a read at the standby", || sql(&gateway, USER, PORT) == standby.port().to_string());
    gateway
}

fn log_file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("access.log")
}

fn connect(gateway: &Gateway, name: &str) -> Wire {
    Wire::connect(gateway.address.tcp().port(), USER, USER, name).expect("a login")
}

/// The clients that wait, by name: upstream, place and length of the line.
fn waits(gateway: &Gateway) -> Vec<(String, String, u64, u64)> {
    let page = gateway.admin.get("/api/v1/connections").json();
    let all = page["connections"].as_array().expect("a list").clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let waiting = all.iter().filter(|one| !one["waits_for"].is_null());
    let mut waits: Vec<_> = waiting
        .map(|one| {
            let wait = &one["waits_for"];
            let number = |key: &str| wait[key].as_u64().expect("a number");
            (text(&one["name"]), text(&wait["upstream"]), number("position"), number("waiting"))
        })
        .collect();
    waits.sort_unstable();
    waits
}

#[test]
fn reads_wait_for_a_full_standby_while_the_primary_serves_writes_and_each_wait_names_its_pool() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&primary, &standby, &folder);
    let mut keeper = connect(&gateway, "keeper");
    for text in ["begin read only", PORT] {
        keeper.query(text).expect("a reply");
    }
    let mut readers = [connect(&gateway, "reader"), connect(&gateway, "reader")];
    for reader in &mut readers {
        reader.send(&query(PORT)).expect("sent");
    }
    let named = |name: &str, upstream: &str, place, length| (name.to_owned(), upstream.to_owned(), place, length);
    let wanted = [named("reader", "reads", 1, 2), named("reader", "reads", 2, 2)];
    until_true("both wait for the standby", || waits(&gateway) == wanted);
    let mut writer = connect(&gateway, "writer");
    for number in 0..20 {
        let reply = writer.query(&format!("insert into marks values ({number})")).expect("a reply");
        assert!(reply.errors.is_empty(), "the primary is free: {:?}", reply.errors);
    }
    // The primary becomes full too.
    let mut holders: Vec<Wire> = (0..4).map(|_| connect(&gateway, "holder")).collect();
    for holder in &mut holders {
        holder.query("begin; select pg_current_xact_id()").expect("a reply");
    }
    writer.send(&query("delete from marks")).expect("sent");
    let both = [wanted[0].clone(), wanted[1].clone(), named("writer", "server", 1, 1)];
    until_true("each waits in its own line", || waits(&gateway) == both);
    // One row for both pools of the user and database, as exporters need it.
    let pools = console(&gateway, "SHOW POOLS").expect("rows");
    let row: Vec<_> = pools.lines().find(|line| line.starts_with(USER)).expect("a row").split('|').collect();
    assert_eq!((row[2], row[3]), ("5", "3"), "keeper and holders are active, three wait: {pools}");
    keeper.query("commit").expect("a reply");
    for reader in &mut readers {
        assert_eq!(reader.reply().expect("a reply").rows, [[standby.port().to_string()]]);
    }
    for holder in &mut holders {
        holder.query("commit").expect("a reply");
    }
    assert!(writer.reply().expect("a reply").errors.is_empty());
    until_true("nothing waits", || waits(&gateway).is_empty());
}

#[test]
fn a_client_that_waits_to_read_counts_in_the_row_of_that_pool_alone() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway_with(&primary, &standby, &folder, "postgres");
    let mut keeper = connect(&gateway, "keeper");
    for text in ["begin read only", PORT] {
        keeper.query(text).expect("a reply");
    }
    let mut readers = [connect(&gateway, "reader"), connect(&gateway, "reader")];
    for reader in &mut readers {
        reader.send(&query(PORT)).expect("sent");
    }
    until_true("both wait", || waits(&gateway).len() == 2);
    let pools = console(&gateway, "SHOW POOLS").expect("rows");
    let clients = |user: &str| {
        let rows: Vec<Vec<_>> = pools.lines().map(|line| line.split('|').collect()).collect();
        let own: Vec<_> = rows.iter().filter(|row| (row[0], row[1]) == (USER, user)).collect();
        assert_eq!(own.len(), 1, "one row of a name: {pools}");
        (own[0][2].to_owned(), own[0][3].to_owned())
    };
    assert_eq!(clients("postgres"), ("0".into(), "2".into()), "{pools}");
    assert_eq!(clients(USER), ("1".into(), "0".into()), "the keeper: {pools}");
    keeper.query("commit").expect("a reply");
    for reader in &mut readers {
        assert_eq!(reader.reply().expect("a reply").rows, [[standby.port().to_string()]]);
    }
}

#[test]
fn the_access_log_names_the_upstream_that_served() {
    let (primary, standby) = pair();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&primary, &standby, &folder);
    let mut wire = connect(&gateway, "logged");
    let peer = wire.socket().local_addr().expect("an address").to_string();
    let lines = || std::fs::read_to_string(log_file(&folder)).unwrap_or_default();
    // The lines of this client.
    let upstreams = || -> Vec<String> {
        let text = lines();
        let all = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let own = all.filter(|line| line["command"] == "transaction" && line["peer"] == *peer);
        own.map(|line| line["upstream"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let served = |wire: &mut Wire, text: &str, upstream: &str| {
        let before = upstreams().len();
        assert!(wire.query(text).expect("a reply").errors.is_empty(), "{text}");
        until_true("one line more", || upstreams().len() > before);
        assert_eq!(upstreams()[before..], [upstream.to_owned()], "{text}: {}", lines());
    };
    served(&mut wire, PORT, "reads");
    served(&mut wire, "insert into marks values (1)", "server");
    let mut looks = 2;
    until_true("the standby has the write", || {
        looks += 1;
        wire.query(PORT).expect("a reply").rows == [[standby.port().to_string()]]
    });
    until_true("a line of each look", || upstreams().len() == looks);
    served(&mut wire, "select count(*) from marks", "reads");
}
