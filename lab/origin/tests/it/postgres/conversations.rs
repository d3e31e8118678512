//! The origin alone: its login, its limits, and rows that follow from the request.

use std::time::{Duration, Instant};

use weir_base::secret::Secret;
use weir_origin::postgres::{Origin, PostgresOriginSettings, abalance, start};
use weir_postgres_codec::frontend;

use super::client::{Client, startup, written};

fn origin(settings: PostgresOriginSettings) -> Origin {
    start(settings).expect("an origin")
}

fn log_in(origin: &Origin) -> Client {
    Client::log_in(origin.addresses()[0])
}

#[test]
fn every_row_follows_from_its_request_whichever_worker_answers() {
    let origin = origin(PostgresOriginSettings { workers: 2, ..Default::default() });
    let mut clients: Vec<Client> = (0..8).map(|_| log_in(&origin)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let aid = number as i32 + 1;
        let balance = abalance(aid).to_string().bytes().map(|byte| format!("{byte:x}")).collect::<Vec<_>>().join(", ");
        let found = client.query(&format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}"));
        assert!(found[1].ends_with(&format!("{balance}]")), "{found:?}");
    }
    let rows: Vec<String> =
        clients.iter_mut().map(|client| client.query("SELECT name FROM users WHERE id = 7")[1].clone()).collect();
    assert!(rows.windows(2).all(|two| two[0] == two[1]), "{rows:?}");
    assert_ne!(clients[0].query("SELECT name FROM users WHERE id = 8")[1], rows[0]);
    assert_eq!((origin.stats().connections, origin.stats().requests), (8, 17));
}

#[test]
fn the_origin_counts_its_requests_for_the_lab() {
    let origin = origin(PostgresOriginSettings::default());
    let mut client = log_in(&origin);
    client.query("select 1");
    client.query("select 2");
    let found = client.query("SELECT requests FROM weir_origin");
    assert_eq!(found[..2], ["T requests 0 20 8 -1 0", "D [0, 1, 0, 0, 0, 1, 33]"], "three with its own");
}

#[test]
fn a_password_is_proven_by_scram() {
    let password = Some(Secret::from("secret"));
    let origin = origin(PostgresOriginSettings { password, ..Default::default() });
    let mut client = Client::connect(origin.addresses()[0]);
    client.send(&startup(&[("user", "app")]));
    let (tag, body) = client.next().expect("a request");
    assert_eq!((tag, &body[..]), ('R', &b"\0\0\0\x0aSCRAM-SHA-256\0\0"[..]));
    // Everything but a message of SASL ends it.
    client.send(&written(|out| frontend::query(out, b"select 1")));
    let found = super::client::shown(&client.next().expect("a refusal"));
    assert_eq!(found, "E FATAL 08P01 expected SASL response, got message type 81");
    client.expect_end();
    let port = origin.addresses()[0].port().to_string();
    for (given, succeeds) in [("secret", true), ("other", false)] {
        let mut psql = std::process::Command::new("psql");
        psql.args(["-XAtqh", "127.0.0.1", "-p", &port, "-U", "app", "-d", "app", "-c", "select 1"]);
        let output = psql.env("PGPASSWORD", given).output().expect("psql: run `cargo xtask setup postgres`");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), succeeds, "{errors}");
        assert!(succeeds || errors.contains("password authentication failed for user \"app\""), "{errors}");
    }
}

#[test]
fn p1_p20_p21_packets_that_start_no_session_end_the_connection() {
    let origin = origin(PostgresOriginSettings::default());
    for silent in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x7f\xff\xff\xff\0\x03\0\0",
        b"\0\0\0\x04",
        b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01abcd",
    ] {
        let mut client = Client::connect(origin.addresses()[0]);
        client.send(silent);
        client.expect_end();
    }
    for (packet, text) in [
        (
            &b"\0\0\0\x0e\0\x02\0\0user\0\0"[..],
            "E FATAL 0A000 unsupported frontend protocol 2.0: server supports 3.0 to 3.2",
        ),
        (
            b"\0\0\0\x0f\0\x03\0\0user\0a\0",
            "E FATAL 08P01 invalid startup packet layout: expected terminator as last byte",
        ),
        (b"\0\0\0\x09\0\x03\0\0\0", "E FATAL 28000 no PostgreSQL user name specified in startup packet"),
    ] {
        let mut client = Client::connect(origin.addresses()[0]);
        client.send(packet);
        assert_eq!(super::client::shown(&client.next().expect("a refusal")), text);
        client.expect_end();
    }
}

#[test]
fn a_client_beyond_the_limit_gets_53300() {
    let origin = origin(PostgresOriginSettings { connections_max: 1, ..Default::default() });
    let _first = log_in(&origin);
    let mut second = Client::connect(origin.addresses()[0]);
    let refusal = super::client::shown(&second.next().expect("a refusal"));
    assert_eq!(refusal, "E FATAL 53300 sorry, too many clients already");
    second.expect_end();
}

#[test]
fn a_message_beyond_the_limit_ends_the_connection() {
    let origin = origin(PostgresOriginSettings { message_bytes_max: 1_000, ..Default::default() });
    let mut client = log_in(&origin);
    client.send(b"Q\x7f\xff\xff\xff");
    client.expect_end();
    let mut client = log_in(&origin);
    client.send(&written(|out| frontend::query(out, &[b' '; 1_000])));
    client.expect_end();
}

#[test]
fn a_delay_holds_back_each_reply() {
    let delay = Duration::from_millis(50);
    let origin = origin(PostgresOriginSettings { delay, ..Default::default() });
    let mut client = log_in(&origin);
    let begun = Instant::now();
    client.query("select 1");
    assert!(begun.elapsed() >= delay);
}

#[test]
fn messages_in_pieces_of_one_byte_are_the_same_messages() {
    let origin = origin(PostgresOriginSettings::default());
    let script = written(|out| {
        frontend::query(out, b"select 'a'; select 2");
        frontend::parse(out, b"s", b"select $1::int4", &[]);
        frontend::bind(out, b"", b"s", [Some(&b"7"[..])]);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
    });
    let whole = log_in(&origin).ask(&script, 2);
    let mut client = log_in(&origin);
    for byte in &script {
        client.send(&[*byte]);
    }
    assert_eq!(client.ask(b"", 2), whole);
    assert_eq!(whole.len(), 12, "{whole:?}");
}
