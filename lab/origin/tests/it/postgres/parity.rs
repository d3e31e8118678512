//! The same bytes to PostgreSQL 15 and to the origin: the same messages come back. And psql and pgbench before both.

use std::net::SocketAddr;
use std::process::Command;

use weir_origin::postgres::{PostgresOriginSettings, start};
use weir_postgres_codec::frontend::{self, Kind};

use super::client::{Client, shown, startup, written};
use super::server::Server;

/// A step of a conversation: bytes, and the ReadyForQuery that they bring.
type Step = (Vec<u8>, usize);

fn query(text: &str) -> Step {
    (written(|out| frontend::query(out, text.as_bytes())), 1)
}

/// Messages of the extended protocol, with a Sync behind them.
fn synced(write: impl FnOnce(&mut Vec<u8>)) -> Step {
    let bytes = written(|out| {
        write(out);
        frontend::sync(out);
    });
    (bytes, 1)
}

/// A Bind of one parameter with formats.
fn bind_binary(out: &mut Vec<u8>, statement: &[u8], value: &[u8]) {
    let length = (value.len() as u32).to_be_bytes();
    let rest = [&b"\0\x01\0\x01\0\x01"[..], &length, value, b"\0\x01\0\x01"].concat();
    frontend::bind_renamed(out, b"", statement, &rest);
}

/// Statements in the simple protocol, one after the other on one connection.
const TEXTS: &[&str] = &[
    "select 1",
    "SELECT 1, 'a''b', 99999999999 AS big",
    "select 'x'::text as \"Name\", 7::int8, 1::text",
    "select 1; select 'two' ; ",
    "",
    " ; -- nothing\n ;",
    "SELECT abalance FROM pgbench_accounts WHERE aid = 7",
    "select aid, bid, abalance from pgbench_accounts where aid = 99999;",
    "SELECT abalance FROM pgbench_accounts WHERE aid = 0",
    "select count(*) from pgbench_branches",
    "select count(*) from pgbench_accounts",
    "selct 1",
    "select 1/0",
    "select 1; select 1/0; select 2",
    "select 1; selct 2",
    "BEGIN",
    "begin",
    "SELECT abalance FROM pgbench_accounts WHERE aid = 1",
    "UPDATE pgbench_accounts SET filler = '' WHERE aid = 1",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, 1, 5, CURRENT_TIMESTAMP)",
    "savepoint a",
    "select 1/0",
    "select 1",
    "rollback to a",
    "select 2",
    "release savepoint a",
    "COMMIT",
    "commit",
    "rollback",
    "start transaction",
    "selct",
    "select 1",
    "end",
    "begin; select 1/0",
    "insert into pgbench_history (tid) values (1)",
    "abort",
    "begin; select 3; commit",
    "savepoint b",
    "release b",
    "rollback to b",
    "begin",
    "discard all",
    "rollback",
    "discard all",
    "deallocate nosuch",
    "deallocate all",
    "set statement_timeout = 0",
    "reset statement_timeout",
    "set application_name = 'one'",
    "set application_name to 'one'",
    "set session application_name = two; select 1; set application_name to 'it''s'",
    "begin; set application_name = three",
    "rollback",
    "begin; set application_name = four; commit",
    "begin",
    "set application_name = five",
    "select 1/0",
    "commit",
    "set timezone = 'UTC'",
    "reset application_name",
    "set application_name = seven",
    "discard all",
    "set application_name = eight",
    "set application_name to default",
    "set application_name = nine",
    "reset all",
    "vacuum pgbench_branches",
    "analyze pgbench_branches",
    "select $1",
];

/// The extended protocol: section 2.4 of the notes on PostgreSQL, and values in both formats.
fn extended() -> Vec<Step> {
    let account = b"SELECT abalance FROM pgbench_accounts WHERE aid = $1";
    let mut steps = vec![
        synced(|out| {
            frontend::parse(out, b"", account, &[]);
            frontend::bind(out, b"", b"", [Some(&b"42"[..])]);
            frontend::describe(out, Kind::Portal, b"");
            frontend::execute(out, b"", 0);
        }),
        synced(|out| {
            frontend::parse(out, b"a", account, &[]);
            frontend::describe(out, Kind::Statement, b"a");
        }),
        synced(|out| {
            bind_binary(out, b"a", &43_i32.to_be_bytes());
            frontend::describe(out, Kind::Portal, b"");
            frontend::execute(out, b"", 0);
            // The row was delivered.
            frontend::execute(out, b"", 0);
        }),
        synced(|out| frontend::parse(out, b"a", b"select 1", &[])),
        synced(|out| frontend::bind(out, b"", b"a", [Some(&b"x"[..])])),
        synced(|out| frontend::bind(out, b"", b"a", [])),
        synced(|out| frontend::bind(out, b"", b"nosuch", [])),
        synced(|out| frontend::execute(out, b"nosuch", 0)),
        synced(|out| frontend::describe(out, Kind::Statement, b"nosuch")),
        synced(|out| frontend::describe(out, Kind::Portal, b"nosuch")),
        synced(|out| frontend::close(out, Kind::Statement, b"nosuch")),
        synced(|out| frontend::parse(out, b"", b"select 1; select 2", &[])),
        // The unnamed statement ends with a Query.
        synced(|out| frontend::parse(out, b"", b"select 1", &[])),
        query("select 2"),
        synced(|out| frontend::bind(out, b"", b"", [])),
        // Row limits: the portal is suspended, and ends at the Sync outside of a block.
        synced(|out| {
            frontend::parse(out, b"", b"select 5", &[]);
            frontend::bind(out, b"p", b"", []);
            frontend::execute(out, b"p", 1);
            frontend::execute(out, b"p", 1);
        }),
        synced(|out| frontend::execute(out, b"p", 0)),
        query("begin"),
        synced(|out| {
            frontend::parse(out, b"", b"select 5", &[]);
            frontend::bind(out, b"p", b"", []);
            frontend::execute(out, b"p", 1);
        }),
        synced(|out| frontend::bind(out, b"p", b"", [])),
        synced(|out| frontend::execute(out, b"p", 0)),
        synced(|out| frontend::parse(out, b"", b"select 6", &[])),
        query("rollback"),
        // Statements survive the rollback.
        synced(|out| {
            frontend::bind(out, b"", b"a", [None]);
            frontend::execute(out, b"", 0);
        }),
        synced(|out| {
            frontend::parse(out, b"", b"", &[]);
            frontend::bind(out, b"", b"", []);
            frontend::describe(out, Kind::Portal, b"");
            frontend::execute(out, b"", 0);
        }),
        synced(|out| {
            frontend::parse(out, b"", b"select $1, $2::int8", &[]);
            frontend::bind(out, b"", b"", [Some(&b"text"[..]), Some(b"-5")]);
            frontend::describe(out, Kind::Portal, b"");
            frontend::execute(out, b"", 0);
        }),
        synced(|out| {
            frontend::parse(out, b"", b"begin", &[]);
            frontend::bind(out, b"", b"", []);
            frontend::describe(out, Kind::Portal, b"");
            frontend::execute(out, b"", 0);
        }),
        synced(|out| {
            frontend::parse(out, b"", b"commit", &[]);
            frontend::bind(out, b"", b"", []);
            frontend::execute(out, b"", 0);
        }),
        // Nothing but a Sync; data of COPY outside of one.
        synced(|_| {}),
        synced(|out| {
            frontend::copy_data(out, b"x");
            frontend::copy_done(out);
            frontend::copy_fail(out, b"x");
        }),
        (written(|out| out.extend_from_slice(b"Q\0\0\0\x0cselect 1")), 1),
        synced(|out| frontend::close(out, Kind::Statement, b"a")),
        synced(|out| frontend::bind(out, b"", b"a", [Some(&b"1"[..])])),
    ];
    steps.extend(skipping());
    steps
}

/// Errors skip to the Sync.
fn skipping() -> Vec<Step> {
    let bad = |out: &mut Vec<u8>| frontend::parse(out, b"", b"selct", &[]);
    vec![
        (
            written(|out| {
                bad(out);
                frontend::sync(out);
                frontend::sync(out);
            }),
            2,
        ),
        synced(|out| {
            bad(out);
            frontend::flush(out);
            frontend::query(out, b"select 1");
        }),
        synced(|out| {
            frontend::parse(out, b"", b"select 1/0", &[]);
            frontend::bind(out, b"", b"", []);
            frontend::execute(out, b"", 0);
            frontend::parse(out, b"skipped", b"select 1", &[]);
        }),
        synced(|out| frontend::bind(out, b"", b"skipped", [])),
        query("select 1"),
    ]
}

/// Both sides of each step of a conversation.
fn compare(addresses: [SocketAddr; 2], steps: &[Step]) {
    let [mut real, mut ours] = addresses.map(Client::log_in);
    for (bytes, ready) in steps {
        let replies = [&mut real, &mut ours].map(|client| client.ask(bytes, *ready));
        let shown = String::from_utf8_lossy(bytes).replace('\0', "|");
        assert_eq!(replies[0], replies[1], "{shown} (PostgreSQL left, origin right)");
        let last = replies[0].last().map(String::as_str);
        assert!(last.is_some_and(|last| last.starts_with('Z')), "{shown}: {:?}", replies[0]);
    }
}

#[test]
fn every_reply_is_the_one_of_postgresql() {
    let server = Server::start();
    let origin = start(PostgresOriginSettings::default()).expect("an origin");
    let addresses = [server.address, origin.addresses()[0]];
    let texts: Vec<Step> = TEXTS.iter().map(|text| query(text)).collect();
    compare(addresses, &texts);
    compare(addresses, &extended());
    ends(addresses);
    logins(addresses);
    tools(addresses);
}

/// Messages that end the connection.
fn ends(addresses: [SocketAddr; 2]) {
    for bytes in [
        &b"y\0\0\0\x04"[..],
        b"p\0\0\0\x05\0",
        b"Q\0\0\0\x03",
        b"Q\xff\xff\xff\xff",
        b"X\0\0\0\x04",
        b"S\x7f\xff\xff\xff",
    ] {
        let replies = addresses.map(|address| {
            let mut client = Client::log_in(address);
            client.send(bytes);
            let found: Vec<String> = std::iter::from_fn(|| client.next()).map(|message| shown(&message)).collect();
            found
        });
        assert_eq!(replies[0], replies[1], "{bytes:?}");
    }
}

/// The messages of a login: the same names of parameters, and values where they are the client's.
fn logins(addresses: [SocketAddr; 2]) {
    for parameters in [
        &[("user", "postgres")][..],
        &[("user", "nobody"), ("user", "postgres"), ("database", "postgres"), ("application_name", "me")],
        &[("user", "postgres"), ("client_encoding", "SQL_ASCII"), ("TimeZone", "UTC")],
        &[("user", "postgres"), ("_pq_.unknown", "1")],
    ] {
        let replies = addresses.map(|address| {
            let mut client = Client::connect(address);
            // Both decline, and the client goes on.
            client.send(&written(frontend::ssl_request));
            assert_eq!(client.read_byte(), b'N');
            client.send(&startup(parameters));
            let messages = client.until_ready(1);
            let of_server = ["server_version|", "is_superuser|"];
            let mut shown: Vec<String> = messages.iter().map(shown).collect();
            for message in &mut shown {
                if let Some(name) = of_server.iter().find(|name| message.starts_with(&format!("S {name}"))) {
                    *message = format!("S {name}");
                }
            }
            // PostgreSQL orders them by their place in a table of its own.
            shown.sort_unstable();
            shown
        });
        assert_eq!(replies[0], replies[1], "{parameters:?} (PostgreSQL left, origin right)");
        assert!(replies[0].len() >= 16, "{:?}", replies[0]);
    }
}

fn run(program: &str, address: SocketAddr, arguments: &[&str]) -> String {
    let port = address.port().to_string();
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres"]).args(arguments).arg("postgres");
    let output =
        command.output().unwrap_or_else(|error| panic!("{program} ({error}): run `cargo xtask setup postgres`"));
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

/// psql prints the same, and pgbench runs clean in its three protocols, reading and with its whole transaction.
fn tools(addresses: [SocketAddr; 2]) {
    let text = "select abalance from pgbench_accounts where aid = 3; begin; update pgbench_accounts set filler = '' where \
                aid = 3; rollback; select 'x' as y, 2";
    let printed = addresses.map(|address| run("psql", address, &["-X", "-c", text]));
    assert_eq!(printed[0], printed[1]);
    for protocol in ["simple", "extended", "prepared"] {
        for script in [&["-S"][..], &[]] {
            for address in addresses {
                let counts = ["-n", "-c", "4", "-j", "2", "-t", "100", "-M", protocol];
                let told = run("pgbench", address, &[script, &counts].concat());
                assert!(told.contains("number of transactions actually processed: 400/400"), "{told}");
                assert!(told.contains("number of failed transactions: 0 "), "{told}");
            }
        }
    }
}
