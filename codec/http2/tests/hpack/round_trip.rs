//! The decoder reads the blocks of the encoder.

use proptest::prelude::*;
use weir_http2_codec::hpack::{Decoder, ENCODER_TABLE_BYTES_MAX, Encoder, TABLE_BYTES_DEFAULT};

use crate::support::{Owned, decoded, encoded};

const NAMES: &[&str] = &[
    ":authority",
    ":method",
    ":path",
    ":scheme",
    ":status",
    "accept",
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "etag",
    "server",
    "set-cookie",
    "user-agent",
    "via",
    "x-request-id",
    "x-b",
    "traceparent",
    "",
];

/// Few values, so that fields repeat.
fn fields() -> impl Strategy<Value = Vec<Owned>> {
    let value = prop_oneof![
        4 => (0..6_usize).prop_map(|number| format!("value number {number}, long enough").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        1 => prop::sample::select(&["GET", "/", "https", "200", "404", "gzip, deflate", ""][..])
            .prop_map(|value| value.as_bytes().to_vec()),
        1 => (3000..5000_usize).prop_map(|bytes| vec![b'x'; bytes]),
    ];
    let name = prop_oneof![
        8 => prop::sample::select(NAMES).prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec((name, value), 0..20)
}

/// Blocks, each behind the table sizes that the decoder's end has sent since the last one.
fn exchange() -> impl Strategy<Value = Vec<(Vec<u32>, Vec<Owned>)>> {
    let size = prop_oneof![0..200_u32, 0..6000_u32, Just(TABLE_BYTES_DEFAULT), Just(u32::MAX)];
    let sizes = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(size, 1..4)];
    prop::collection::vec((sizes, fields()), 1..20)
}

proptest! {
    #[test]
    fn fields_come_back_whatever_the_table_sizes(exchange in exchange()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
        for (sizes, fields) in exchange {
            for size in sizes {
                encoder.set_table_bytes_max(size);
                decoder.set_table_bytes_max(size);
            }
            let block = encoded(&mut encoder, fields.iter().map(|(name, value)| (&name[..], &value[..])));
            prop_assert_eq!(decoded(&mut decoder, &block), Ok(fields));
        }
    }
}

#[test]
fn a_table_that_shrinks_and_grows_between_two_blocks_has_both_sizes_announced() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
    let server = [(&b"server"[..], &b"weir"[..])];
    let block = encoded(&mut encoder, server);
    assert!(decoded(&mut decoder, &block).is_ok());
    for size in [0, 100] {
        encoder.set_table_bytes_max(size);
        decoder.set_table_bytes_max(size);
    }
    let block = encoded(&mut encoder, server);
    assert!(block.starts_with(&[0x20, 0x3f, 100 - 31]), "{block:x?}");
    assert!(decoded(&mut decoder, &block).is_ok());
    // The sizes are announced once.
    assert_eq!(encoded(&mut encoder, server), [0x80 | 62]);
}

#[test]
fn a_peer_that_allows_more_changes_nothing() {
    let mut encoder = Encoder::new();
    encoder.set_table_bytes_max(u32::MAX);
    assert_eq!(encoded(&mut encoder, []), []);
    assert_eq!(ENCODER_TABLE_BYTES_MAX, TABLE_BYTES_DEFAULT);
}
