//! The byte counters move while rows are copied, on both sides, and count each byte once.

use weir_tests::byte_counts::{ByteCounts, assert_moved_on_the_way, assert_sums, read_slowly, wait_since, wait_start};
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{Wire, message, query};
use weir_tests::postgres::{Major, Postgres, USER};

use super::gateway::before;

/// Bytes of a row of text with its line end.
const ROW_BYTES: usize = 1_000;

/// Rows of a copy: together far more than all buffers between a server and a client hold.
const ROWS: usize = 48_000;

/// Rows of a message that a client sends.
const MESSAGE_ROWS: usize = 100;

/// The counters must show each part before the client reads or sends the next one.
const PART_BYTES: usize = 4_000_000;

/// The bytes for clients of a database.
const WRITTEN: &str = "weir_postgres_written_bytes_total";

/// Bytes that a gateway and a server exchange besides: a login, or the settings of a session.
const BESIDES_BYTES: usize = 8 << 10;

/// A server with a table, a gateway that has a connection to it, its only client, and the counters so far.
fn stand(folder: &std::path::Path) -> (Postgres, Gateway, Wire, ByteCounts) {
    let server = Postgres::start(Major::Fifteen);
    server.sql_in(USER, &format!("create table copied (text text); alter table copied owner to {USER}"));
    let gateway = Gateway::start(before(&server, folder, "", "pool_size = 1"));
    let mut client = Wire::connect(gateway.address.tcp().port(), USER, USER, "traffic").expect("a login");
    read_slowly(client.socket());
    assert_eq!(client.query("select 1").expect("a reply").rows, [["1"]]);
    let start = wait_start(&gateway, client.sent, client.received);
    (server, gateway, client, start)
}

#[test]
fn a_copy_to_a_slow_client_moves_the_counters_of_both_sides_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, gateway, mut client, start) = stand(folder.path());
    let own = gateway.metric(WRITTEN);
    let (length, rows) = (ROW_BYTES - 1, ROWS);
    let request = query(&format!("copy (select repeat('x', {length}) from generate_series(1, {rows})) to stdout"));
    client.send(&request).expect("sent");
    let (mut received, mut copied, mut scrapes) = (0, 0, Vec::new());
    loop {
        let (tag, body) = client.message().expect("a message");
        received += 5 + body.len();
        copied += if tag == b'd' { body.len() } else { 0 };
        if received >= (scrapes.len() + 1) * PART_BYTES {
            scrapes.push(wait_since(&gateway, start, ByteCounts::through(request.len(), received)));
            gateway.wait_metric(WRITTEN, &[], own + received as f64);
        }
        if tag == b'Z' {
            break;
        }
    }
    assert_eq!(copied, ROWS * ROW_BYTES);
    assert_moved_on_the_way(&scrapes, received);
    assert_sums(&gateway, start, (request.len(), received), BESIDES_BYTES);
    assert_eq!(gateway.metric(WRITTEN) - own, received as f64);
    client.leave(2);
    gateway.finish();
}

#[test]
fn a_copy_from_a_slow_client_moves_the_counters_of_both_sides_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, gateway, mut client, start) = stand(folder.path());
    let request = query("copy copied from stdin");
    client.send(&request).expect("sent");
    let (tag, body) = client.message().expect("a message");
    assert_eq!(tag, b'G', "the server waits for rows");
    let (mut sent, mut received) = (request.len(), 5 + body.len());
    let row = format!("{}\n", "x".repeat(ROW_BYTES - 1));
    let part = message(b'd', row.repeat(MESSAGE_ROWS).as_bytes()).repeat(PART_BYTES / ROW_BYTES / MESSAGE_ROWS);
    for _ in 0..ROWS * ROW_BYTES / PART_BYTES {
        client.send(&part).expect("sent");
        sent += part.len();
        let so_far = ByteCounts { client_read: sent, upstream_written: sent, ..ByteCounts::default() };
        let moved = wait_since(&gateway, start, so_far);
        assert_eq!((moved.client_read, moved.client_written), (sent, received));
    }
    let end = message(b'c', b"");
    client.send(&end).expect("sent");
    loop {
        let (tag, body) = client.message().expect("a message");
        received += 5 + body.len();
        assert_ne!(tag, b'E', "{}", String::from_utf8_lossy(&body));
        if tag == b'Z' {
            break;
        }
    }
    assert_sums(&gateway, start, (sent + end.len(), received), BESIDES_BYTES);
    assert_eq!(server.sql_in(USER, "select count(*) from copied"), ROWS.to_string());
    client.leave(2);
    gateway.finish();
}
