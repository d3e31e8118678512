//! Messages to test with, and a reader that keeps what the framer names.

use proptest::prelude::*;
use weir_postgres_codec::backend::{self, Column, ErrorReport, TransactionStatus};
use weir_postgres_codec::frame::{Framer, HEAD_BYTES};
use weir_postgres_codec::frontend::{self, Kind};
use weir_postgres_codec::{FrameError, Version};

/// A message as the framer delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub tag: u8,
    pub body: Vec<u8>,
}

/// A stream in pieces: its whole messages, bytes of the last one that are not whole, and its error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    pub messages: Vec<Message>,
    pub rest: Vec<u8>,
    pub error: Option<FrameError>,
}

/// Follows the pieces as a gateway does: the bytes that the framer does not take are presented again with more.
pub fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Followed {
    let mut framer = Framer::default();
    let mut followed = Followed { messages: Vec::new(), rest: Vec::new(), error: None };
    let (mut waiting, mut body_left) = (Vec::new(), 0);
    for piece in pieces {
        waiting.extend_from_slice(piece);
        loop {
            match framer.next(&waiting) {
                Ok(Some(piece)) => {
                    assert!(piece.bytes > 0 && piece.bytes <= waiting.len());
                    assert_eq!(piece.is_start, followed.rest.is_empty());
                    assert_eq!(piece.is_end, piece.body_left == 0);
                    assert_eq!((framer.is_between_messages(), framer.body_left()), (piece.is_end, piece.body_left));
                    assert!(piece.is_start || piece.body_left + piece.bytes == body_left, "no byte is counted twice");
                    body_left = piece.body_left;
                    followed.rest.extend(waiting.drain(..piece.bytes));
                    if piece.is_end {
                        let whole = std::mem::take(&mut followed.rest);
                        assert_eq!(whole[0], piece.tag);
                        followed.messages.push(Message { tag: piece.tag, body: whole[HEAD_BYTES..].to_vec() });
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    followed.error = Some(error);
                    return followed;
                }
            }
        }
        assert!(waiting.len() < HEAD_BYTES, "only the beginning of a head waits");
    }
    followed.rest.append(&mut waiting);
    followed
}

/// A text without NUL.
pub fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8..=255, 0..24)
}

/// A value of a column or of a parameter.
pub fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..24))
}

pub fn values() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
    prop::collection::vec(value(), 0..8)
}

/// References as the encoders take them.
pub fn borrowed(values: &[Option<Vec<u8>>]) -> impl Iterator<Item = Option<&[u8]>> {
    values.iter().map(Option::as_deref)
}

/// Any message of either direction.
pub fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![client_message(), server_message()]
}

/// Any message of a client after its startup packet.
pub fn client_message() -> impl Strategy<Value = Vec<u8>> {
    (0..15, text(), text(), values(), any::<i32>()).prop_map(|(kind, one, two, values, number)| {
        let mut out = Vec::new();
        let types = [number as u32, 23];
        match kind {
            0 => frontend::query(&mut out, &one),
            1 => frontend::parse(&mut out, &one, &two, &types),
            2 => frontend::bind(&mut out, &one, &two, borrowed(&values)),
            3 => frontend::describe(&mut out, Kind::Statement, &one),
            4 => frontend::close(&mut out, Kind::Portal, &one),
            5 => frontend::execute(&mut out, &one, number),
            6 => frontend::flush(&mut out),
            7 => frontend::sync(&mut out),
            8 => frontend::terminate(&mut out),
            9 => frontend::function_call(&mut out, number as u32, borrowed(&values)),
            10 => frontend::copy_data(&mut out, &one),
            11 => frontend::copy_fail(&mut out, &one),
            12 => frontend::password(&mut out, &one),
            13 => frontend::sasl_initial(&mut out, &one, values.first().and_then(Option::as_deref)),
            _ => frontend::sasl_response(&mut out, &one),
        }
        out
    })
}

/// Any message of a server.
pub fn server_message() -> impl Strategy<Value = Vec<u8>> {
    (0..22, text(), text(), values(), any::<i32>()).prop_map(|(kind, one, two, values, number)| {
        let mut out = Vec::new();
        match kind {
            0 => backend::authentication_ok(&mut out),
            1 => backend::authentication_md5(&mut out, number.to_be_bytes()),
            2 => backend::authentication_sasl(&mut out, [&b"SCRAM-SHA-256-PLUS"[..], b"SCRAM-SHA-256"]),
            3 => backend::authentication_sasl_continue(&mut out, &one),
            4 => backend::parameter_status(&mut out, &one, &two),
            5 => backend::backend_key_data(&mut out, number as u32, b"abcd"),
            6 => backend::ready_for_query(&mut out, TransactionStatus::InBlock),
            7 => backend::row_description(&mut out, [Column::text(&one, number as u32, 4), Column::text(&two, 25, -1)]),
            8 | 9 => backend::data_row(&mut out, borrowed(&values)),
            10 => backend::command_complete(&mut out, &one),
            11 => backend::empty_query(&mut out),
            12 => backend::error(&mut out, &ErrorReport::error("53300", &one).with_detail(&two)),
            13 => backend::notice(&mut out, &ErrorReport::fatal("57P01", &one).with_hint(&two)),
            14 => backend::notification(&mut out, number as u32, &one, &two),
            15 => backend::parse_complete(&mut out),
            16 => backend::parameter_description(&mut out, [number as u32, 23]),
            17 => backend::copy_out(&mut out, number > 0, 3),
            18 => backend::copy_data(&mut out, &one),
            19 => backend::negotiate_protocol_version(&mut out, Version::V3_0, [&b"_pq_.a"[..]].into_iter()),
            20 => backend::function_call_response(&mut out, values.first().and_then(Option::as_deref)),
            _ => backend::no_data(&mut out),
        }
        out
    })
}
