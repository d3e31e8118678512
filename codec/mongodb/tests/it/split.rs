//! Where a read ends must not matter.

use proptest::prelude::*;
use weir_mongodb_codec::frame::Framer;
use weir_mongodb_codec::message::{Message, first_body};
use weir_mongodb_codec::sections::SectionFramer;
use weir_mongodb_codec::{MessageError, header::Header};

use crate::support::{message, op_msg};

/// The messages of a stream that arrives in pieces, the bytes that stay with the caller, and the error.
fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, usize, Option<MessageError>) {
    let mut framer = Framer::default();
    let (mut held, mut messages, mut present) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            match framer.next(&held) {
                Ok(Some(piece)) => {
                    assert_eq!(piece.is_start, present.is_empty());
                    present.extend(held.drain(..piece.bytes));
                    assert_eq!(present.len() + piece.left, piece.header.bytes);
                    if piece.is_end() {
                        messages.push(std::mem::take(&mut present));
                    }
                }
                Ok(None) => break,
                Err(error) => return (messages, held.len(), Some(error)),
            }
        }
        assert!(held.len() < 16);
    }
    (messages, held.len() + present.len(), None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn m13_streams_split_at_every_byte_boundary(sent in prop::collection::vec(message(), 1..4), tail in prop::collection::vec(any::<u8>(), 0..4)) {
        let input = [sent.concat(), tail].concat();
        let whole = follow([&input[..]]);
        prop_assert_eq!(&whole.0[..sent.len()], &sent[..]);
        let bytewise = follow(input.chunks(1));
        prop_assert_eq!((&bytewise.0, bytewise.2), (&whole.0, whole.2));
        for cut in 0..input.len() {
            let (messages, _, error) = follow([&input[..cut], &input[cut..]]);
            prop_assert_eq!((&messages, error), (&whole.0, whole.2), "cut at {}", cut);
        }
    }

    #[test]
    fn sections_in_pieces_are_read_as_in_one(message in op_msg(), piece in 1_usize..30, flaw in prop::option::of((any::<prop::sample::Index>(), 1..=255_u8))) {
        let mut message = message;
        if let Some((at, bits)) = flaw {
            // The header is the framer's.
            let at = 16 + at.index(message.len() - 16);
            message[at] ^= bits;
        }
        let header = Header::read(&message).unwrap().unwrap();
        let mut framer = SectionFramer::new(&header);
        let followed = message.chunks(piece).try_for_each(|piece| framer.take(piece));
        match Message::read(&message) {
            Ok(read) => {
                prop_assert_eq!(followed, Ok(()));
                prop_assert!(framer.is_end());
                prop_assert_eq!(first_body(&message).unwrap().unwrap(), (read.flags, read.body));
            }
            // A document is the reader's alone.
            Err(MessageError::Bson(_)) => {}
            Err(error) => prop_assert!(followed.is_err(), "{error:?}"),
        }
    }
}
