//! The byte counters move while rows are copied, on both sides, and count each byte once.

use socket2::SockRef;
use weir_tests::byte_counts::{ByteCounts, wait_since};
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{Wire, message, query};
use weir_tests::postgres::{Major, Postgres, USER};

use super::gateway::{before, sql};

/// Bytes of a row of text with its line end.
const ROW_BYTES: usize = 1_000;

/// Rows of a copy: together far more than all buffers between a server and a client hold.
const ROWS: usize = 48_000;

/// Rows of a message that a client sends.
const MESSAGE_ROWS: usize = 100;

/// The counters must show each part before the client reads or sends the next one.
const PART_BYTES: usize = 4_000_000;

/// Bytes that a gateway and a server exchange besides: a login, or the settings of a session.
const BESIDES_BYTES: usize = 8 << 10;

/// Bytes that the kernel keeps for a client: without a limit it would keep the greater part of a copy.
const KERNEL_BYTES: usize = 256 << 10;

/// A server, a gateway that has a connection to it, and a client.
fn stand(folder: &std::path::Path) -> (Postgres, Gateway, Wire) {
    let server = Postgres::start(Major::Fifteen);
    let gateway = Gateway::start(before(&server, folder, "", "pool_size = 1"));
    let mut client = Wire::connect(gateway.address.tcp().port(), USER, USER, "traffic").expect("a login");
    SockRef::from(client.socket()).set_recv_buffer_size(KERNEL_BYTES).expect("a limit");
    assert_eq!(client.query("select 1").expect("a reply").rows, [["1"]]);
    (server, gateway, client)
}

/// Both sides have counted what the client has sent and received, and no more.
fn assert_sums(gateway: &Gateway, start: ByteCounts, sent: usize, received: usize) {
    let whole =
        ByteCounts { client_read: sent, client_written: received, upstream_read: received, upstream_written: sent };
    let moved = wait_since(gateway, start, whole);
    assert_eq!((moved.client_read, moved.client_written), (sent, received));
    let besides = [(moved.upstream_read, received), (moved.upstream_written, sent)].map(|(moved, own)| moved - own);
    assert!(besides.iter().all(|bytes| *bytes < BESIDES_BYTES), "{besides:?} of {moved:?}");
}

#[test]
fn a_copy_to_a_slow_client_moves_the_counters_of_both_sides_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, gateway, mut client) = stand(folder.path());
    let start = ByteCounts::now(&gateway);
    let (length, rows) = (ROW_BYTES - 1, ROWS);
    let request = query(&format!("copy (select repeat('x', {length}) from generate_series(1, {rows})) to stdout"));
    client.send(&request).expect("sent");
    let (mut received, mut copied, mut scrapes) = (0, 0, Vec::new());
    loop {
        let (tag, body) = client.message().expect("a message");
        received += 5 + body.len();
        copied += if tag == b'd' { body.len() } else { 0 };
        if received >= (scrapes.len() + 1) * PART_BYTES {
            let so_far = ByteCounts {
                client_read: request.len(),
                client_written: received,
                upstream_read: received,
                upstream_written: request.len(),
            };
            scrapes.push(wait_since(&gateway, start, so_far));
        }
        if tag == b'Z' {
            break;
        }
    }
    assert_eq!(copied, ROWS * ROW_BYTES);
    let later = scrapes[scrapes.len() / 4];
    for (first, second) in
        [(scrapes[0].client_written, later.client_written), (scrapes[0].upstream_read, later.upstream_read)]
    {
        assert!(first < second && second < received, "{first}, {second} of {received}: {scrapes:?}");
    }
    assert_sums(&gateway, start, request.len(), received);
    client.leave(2);
    gateway.finish();
}

#[test]
fn a_copy_from_a_slow_client_moves_the_counters_of_both_sides_on_its_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, gateway, mut client) = stand(folder.path());
    sql(&gateway, "create table copied (text text)");
    let start = ByteCounts::now(&gateway);
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
    assert_sums(&gateway, start, sent + end.len(), received);
    assert_eq!(server.sql_in(USER, "select count(*) from copied"), ROWS.to_string());
    client.leave(2);
    gateway.finish();
}
