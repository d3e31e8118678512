//! The byte counters move while a large message is on its way, on both sides, and count each byte once.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use weir_mongodb_codec::bson::{Document, Writer};
use weir_mongodb_codec::message::{Flags, Ids, write_with_sequence};
use weir_tests::byte_counts::{ByteCounts, assert_moved_on_the_way, assert_sums, read_slowly, wait_since, wait_start};
use weir_tests::gateway::Gateway;
use weir_tests::mongodb::fake::{Act, Fake, honest};
use weir_tests::mongodb::wire::{Wire, document, message};
use weir_tests::stream::Stream;

use crate::gateway::{before, port};

/// Bytes of the text in a large message: far more than all buffers between a server and a client hold.
const TEXT_BYTES: usize = 44 << 20;
/// Documents of a large request.
const DOCUMENTS: usize = 44;
/// The counters must show each part before the client reads or sends the next one.
const PART_BYTES: usize = 4 << 20;
/// Bytes that a gateway and a server exchange besides: a `hello` ten times a second.
const BESIDES_BYTES: usize = 1 << 20;
/// The bytes of replies for clients of a database.
const WRITTEN: &str = "weir_mongodb_written_bytes_total";

fn on_notes(body: &mut Writer<'_>, command: &str) {
    body.string(command, "notes");
    body.string("$db", "test");
}

/// An insert with documents of 1 MiB in a section of their own.
fn insert() -> Vec<u8> {
    let (id, text) = (Ids { request: 7, response_to: 0 }, "x".repeat(TEXT_BYTES / DOCUMENTS));
    let one = document(|body| body.string("text", &text));
    let mut out = Vec::new();
    let documents = std::iter::repeat_n(Document::read(&one).expect("a document"), DOCUMENTS);
    write_with_sequence(&mut out, id, Flags::empty(), |body| on_notes(body, "insert"), "documents", documents);
    out
}

#[test]
fn a_reply_that_is_read_slowly_moves_the_counters_of_both_sides_on_its_way() {
    let whole = message(0, Flags::empty(), |body| {
        body.string("text", "x".repeat(TEXT_BYTES));
        body.double("ok", 1.0);
    });
    let (bytes, large) = (whole.len(), Arc::<[u8]>::from(&whole[16..]));
    let server = Fake::start(move |asked| match asked.name {
        "aggregate" => Act::Shared(large.clone()),
        _ => honest(asked),
    });
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 1"));
    let mut client = Wire::connect(port(&gateway));
    let Stream::Tcp(tcp) = client.socket() else { panic!("the listener has a TCP address") };
    read_slowly(tcp);
    assert!(client.call(|body| on_notes(body, "count")).is_ok());
    let start = wait_start(&gateway, client.sent, client.received);
    let own = gateway.metric(WRITTEN);
    let request = message(7, Flags::empty(), |body| on_notes(body, "aggregate"));
    let mut socket = client.socket().duplicate();
    socket.write_all(&request).expect("sent");
    let (mut received, mut part, mut scrapes) = (0, vec![0; PART_BYTES], Vec::new());
    while received < bytes {
        let length = PART_BYTES.min(bytes - received);
        socket.read_exact(&mut part[..length]).expect("a part of the reply");
        received += length;
        scrapes.push(wait_since(&gateway, start, ByteCounts::through(request.len(), received)));
        gateway.wait_metric(WRITTEN, &[], own + received as f64);
    }
    assert_moved_on_the_way(&scrapes, bytes);
    assert_sums(&gateway, start, (request.len(), bytes), BESIDES_BYTES);
    assert_eq!(gateway.metric(WRITTEN) - own, bytes as f64);
    drop((client, socket));
    gateway.finish();
}

#[test]
fn a_request_that_is_sent_slowly_moves_the_counters_of_both_sides_on_its_way() {
    let server = Fake::honest();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 1"));
    let mut client = Wire::connect(port(&gateway));
    assert!(client.call(|body| on_notes(body, "count")).is_ok());
    let start = wait_start(&gateway, client.sent, client.received);
    let (request, before_insert) = (insert(), client.received);
    let mut socket = client.socket().duplicate();
    let mut sent = 0;
    for part in request.chunks(PART_BYTES) {
        socket.write_all(part).expect("sent");
        sent += part.len();
        if sent < request.len() {
            let so_far = ByteCounts { client_read: sent, upstream_written: sent, ..ByteCounts::default() };
            let moved = wait_since(&gateway, start, so_far);
            assert_eq!((moved.client_read, moved.client_written), (sent, 0));
        }
    }
    let reply = client.reply().expect("a reply");
    assert!(reply.is_ok(), "{reply:?}");
    assert_sums(&gateway, start, (sent, client.received - before_insert), BESIDES_BYTES);
    assert_eq!(server.count("insert"), 1);
    drop((client, socket));
    gateway.finish();
}
