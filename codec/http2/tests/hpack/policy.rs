//! The fields that the encoder indexes.

use weir_http2_codec::hpack::{Decoder, Encoder, TABLE_BYTES_DEFAULT};

use crate::support::encoded;

/// The first byte of the same field in four blocks, one after the other.
fn patterns(name: &str, value: &str) -> [u8; 4] {
    let mut encoder = Encoder::new();
    let mut next = || encoded(&mut encoder, [(name.as_bytes(), value.as_bytes())])[0];
    [next(), next(), next(), next()]
}

const INDEXED: u8 = 0x80 | 62;

#[test]
fn fields_that_most_messages_have_are_inserted_at_once() {
    assert_eq!(patterns("server", "weir"), [0x40 | 54, INDEXED, INDEXED, INDEXED]);
    assert_eq!(patterns("content-type", "application/json"), [0x40 | 31, INDEXED, INDEXED, INDEXED]);
}

#[test]
fn other_fields_are_inserted_when_they_repeat() {
    assert_eq!(patterns("x-served-by", "a"), [0x00, 0x40, INDEXED, INDEXED]);
    assert_eq!(patterns("date", "Mon, 21 Oct 2013 20:13:21 GMT"), [0x0f, 0x40 | 33, INDEXED, INDEXED]);
    assert_eq!(patterns("cookie", "session=0123456789abcdef"), [0x0f, 0x40 | 32, INDEXED, INDEXED]);
}

#[test]
fn values_of_one_message_are_never_inserted() {
    assert_eq!(patterns("content-length", "1234"), [0x0f; 4]);
    assert_eq!(patterns(":path", "/index"), [0x04; 4]);
    assert_eq!(patterns("etag", "\"1\""), [0x0f; 4]);
    assert_eq!(patterns("set-cookie", "session=0123456789abcdef"), [0x0f; 4]);
}

#[test]
fn secrets_are_marked_for_all_hops() {
    assert_eq!(patterns("authorization", "Bearer 0123456789abcdef0123456789"), [0x1f; 4]);
    assert_eq!(patterns("proxy-authorization", "Basic YTpi"), [0x1f; 4]);
    assert_eq!(patterns("cookie", "pin=1234"), [0x1f; 4]);
    let (mut encoder, mut block) = (Encoder::new(), Vec::new());
    encoder.begin(&mut block);
    encoder.field_never_indexed(&mut block, b"x-api-key", b"secret");
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let account = decoder.decode(&block, 100, |field| {
        assert_eq!((field.name, field.value, field.is_never_indexed), (&b"x-api-key"[..], &b"secret"[..], true));
    });
    assert_eq!(account.expect("valid").fields, 1);
}

#[test]
fn a_status_is_one_byte_if_the_static_table_has_it() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
    for status in [200, 204, 206, 304, 400, 404, 500, 100, 302, 503, 999] {
        let mut block = Vec::new();
        encoder.status(&mut block, status);
        assert_eq!(block.len() == 1, [200, 204, 206, 304, 400, 404, 500].contains(&status));
        let account = decoder.decode(&block, 100, |field| {
            assert_eq!((field.static_name, field.name), (8, &b":status"[..]));
            assert_eq!(field.value, status.to_string().as_bytes());
        });
        assert_eq!(account.expect("valid").fields, 1);
    }
}

#[test]
fn a_field_that_would_fill_the_table_stays_out() {
    let value = "x".repeat(3500);
    assert_eq!(patterns("server", &value), [0x0f; 4]);
    let value = "x".repeat(3000);
    assert_eq!(patterns("server", &value), [0x40 | 54, INDEXED, INDEXED, INDEXED]);
}

#[test]
fn identifiers_of_their_own_for_each_message_evict_nothing() {
    let mut encoder = Encoder::new();
    encoded(&mut encoder, [(&b"server"[..], &b"weir"[..])]);
    for number in 0..10_000 {
        let id = format!("{number:032x}");
        encoded(&mut encoder, [(&b"x-request-id"[..], id.as_bytes())]);
    }
    // A few identifiers may have been taken for known ones.
    let block = encoded(&mut encoder, [(&b"server"[..], &b"weir"[..])]);
    assert_eq!(block.len(), 1, "{block:x?}");
}
