//! Forms of messages: pieces, compression, old opcodes, and those that end the connection.

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::compressed::{self, Compressor};
use weir_mongodb_codec::message::Flags;
use weir_mongodb_codec::{Header, OpCode};
use weir_origin::mongodb::MongodbOriginSettings;

use super::client::{Client, origin};

fn find(body: &mut Writer<'_>, id: i64) {
    body.string("find", "documents");
    body.document("filter", |filter| filter.int64("_id", id));
    body.string("$db", "lab");
}

#[test]
fn messages_in_pieces_of_one_byte_are_the_same_messages() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let mut bytes = client.bytes(Flags::empty(), |body| find(body, 7));
    bytes.extend(client.bytes(Flags::CHECKSUM_PRESENT, |body| find(body, 8)));
    for byte in &bytes {
        client.send(&[*byte]);
    }
    assert_eq!((client.answer().ids(), client.answer().ids()), (vec![7], vec![8]));
}

#[test]
fn replies_come_in_the_order_of_their_requests() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let bytes: Vec<u8> = (1..=5_000).flat_map(|id| client.bytes(Flags::empty(), |body| find(body, id))).collect();
    client.send(&bytes);
    for id in 1..=5_000 {
        assert_eq!(client.answer().ids(), [id]);
    }
}

#[test]
fn a_compressed_request_has_a_compressed_reply() {
    let origin = origin(MongodbOriginSettings::default());
    for compressor in Compressor::NEGOTIABLE {
        let mut client = Client::to(&origin);
        let hello = client.run("admin", |body| {
            body.int32("hello", 1);
            body.array("compression", [compressor.name()], |body, name, one| body.string(name, one));
        });
        assert_eq!(hello.text("compression.0").as_deref(), Some(compressor.name()));
        let plain = client.bytes(Flags::empty(), |body| find(body, 7));
        let mut out = Vec::new();
        compressed::write(&mut out, &plain, compressor).expect("compressed");
        client.send(&out);
        let found = client.answer();
        assert_eq!((found.ids(), found.header.op_code), (vec![7], OpCode::Compressed));
        assert_eq!(client.run("lab", |body| body.string("find", "c")).header.op_code, OpCode::Msg);
    }
}

#[test]
fn a_compressor_that_was_not_agreed_on_ends_the_connection() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let plain = client.bytes(Flags::empty(), |body| find(body, 7));
    let mut out = Vec::new();
    compressed::write(&mut out, &plain, Compressor::Snappy).expect("compressed");
    client.send(&out);
    client.expect_end();
}

#[test]
fn m1_m6_messages_that_are_none_end_the_connection() {
    let origin = origin(MongodbOriginSettings { message_bytes_max: 1_000, ..Default::default() });
    let header = |bytes: i32, op_code: i32| [bytes, 7, 0, op_code].map(i32::to_le_bytes).concat();
    for silent in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        header(15, 2013),
        header(-1, 2013),
        header(1_001, 2013),
        [header(20, 2013), vec![0; 4]].concat(),
        header(16, 2001),
        header(16, 1),
        header(16, 2012),
    ] {
        let mut client = Client::to(&origin);
        client.send(&silent);
        client.expect_end();
    }
}

#[test]
fn m11_a_command_that_is_none_is_refused() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let mut code = |write: fn(&mut Writer<'_>)| {
        client.command(Flags::empty(), write);
        client.answer().code()
    };
    assert_eq!(code(|body| body.string("find", "c")), Some(9), "it names no database");
    let twice = |body: &mut Writer<'_>| {
        find(body, 1);
        body.string("$db", "lab");
    };
    assert_eq!(code(twice), Some(9));
    let foreign = |body: &mut Writer<'_>| {
        body.string("find", "c");
        body.string("$db", "a.b");
    };
    assert_eq!(code(foreign), Some(73));
    let unknown = |body: &mut Writer<'_>| {
        body.string("Find", "c");
        body.string("$db", "lab");
    };
    assert_eq!(code(unknown), Some(59), "case counts");
}

#[test]
fn ids_of_replies_are_those_of_the_server() {
    let origin = origin(MongodbOriginSettings::default());
    let mut client = Client::to(&origin);
    let ids: Vec<i32> = (0..3).map(|_| client.ask("ping").header.request).collect();
    assert!(ids.windows(2).all(|two| two[0] != two[1]), "{ids:?}");
    client.command(Flags::empty(), |body| find(body, 1));
    let whole = client.message().expect("a reply");
    assert_eq!(Header::read(&whole).expect("a header").map(|header| header.bytes), Some(whole.len()));
}
