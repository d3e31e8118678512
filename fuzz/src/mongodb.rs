//! Any bytes as messages of MongoDB, as documents, as compressed messages, and in a session.

use weir_analysis::mongodb::{Argument, Limits, analyse, classify, normal_form, shape};
use weir_mongodb_codec::bson::{self, Document};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::compressed::Compressed;
use weir_mongodb_codec::frame::Framer;
use weir_mongodb_codec::header::{HEADER_BYTES, Header};
use weir_mongodb_codec::legacy::{LegacyReply, Query};
use weir_mongodb_codec::limits::{DEPTH_MAX, INFLATE_FREE_BYTES, INFLATE_RATIO_MAX};
use weir_mongodb_codec::message::{self, Ids, Message, first_body};
use weir_mongodb_codec::reply::{Reply, ReplyFollower};
use weir_mongodb_codec::sections::SectionFramer;
use weir_mongodb_codec::{MessageError, OpCode};

use crate::pieces::{Followed, follow};

/// The messages of a stream do not depend on where it is cut, only the beginning of one header is held back, and each message is read in one
/// piece as in many.
pub fn mongodb_messages(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    let whole = followed(stream, stream.len().max(1));
    let piece = 1 + usize::from(*choice);
    for piece in [1, 2, 7, piece] {
        assert_eq!(followed(stream, piece), whole, "pieces of {piece}");
    }
    let mut at = 0;
    for end in whole.ends {
        look(&stream[at..end], piece);
        at = end;
    }
}

fn followed(stream: &[u8], piece: usize) -> Followed<MessageError> {
    let mut framer = Framer::default();
    let next = |input: &[u8]| Ok(framer.next(input)?.map(|piece| (piece.bytes, piece.is_end())));
    follow(stream, piece, HEADER_BYTES, next)
}

/// One whole message.
fn look(bytes: &[u8], piece: usize) {
    let header = Header::read(bytes).expect("it was read").expect("it is whole");
    let _ = Query::read(bytes).map(|query| query.database().map(<[u8]>::len));
    let _ = LegacyReply::read(bytes);
    if header.op_code != OpCode::Msg {
        assert!(Message::read(bytes).is_err());
        return;
    }
    let mut sections = SectionFramer::new(&header);
    let in_pieces = bytes.chunks(piece).try_for_each(|piece| sections.take(piece));
    let mut follower = ReplyFollower::new(&header);
    let reply_in_pieces = bytes.chunks(piece).try_for_each(|piece| follower.take(piece));
    match Message::read(bytes) {
        Ok(read) => {
            assert!(in_pieces.is_ok() && sections.is_end());
            assert_eq!(first_body(bytes), Ok(Some((read.flags, read.body))));
            let mut edited = bytes.to_vec();
            message::set_ids(&mut edited, Ids { request: 1, response_to: 2 }).expect("a whole message");
            assert!(Message::read(&edited).is_ok_and(|edited| edited.body == read.body));
            // A reply that is followed to its end has the facts of the whole one.
            if let (Ok(()), Some(found)) = (reply_in_pieces, follower.reply()) {
                let whole = Reply::read(read.body);
                assert!(whole.is_err() || whole == Ok(found.1));
            }
        }
        Err(MessageError::Bson(_)) => {}
        Err(error) => assert!(in_pieces.is_err(), "{error:?}"),
    }
}

/// A document: what passes the check is walked without a flaw, copied byte for byte, and has the same facts when it is copied.
pub fn mongodb_bson(data: &[u8]) {
    let Ok(document) = Document::first(data) else { return };
    let is_whole = document.check(DEPTH_MAX).is_ok();
    let mut copy = Vec::new();
    let mut copied = Ok(());
    bson::document(&mut copy, |writer| {
        copied = document.elements().try_for_each(|element| element.map(|it| writer.value(it.name, it.value)));
    });
    if is_whole {
        assert_eq!(copied, Ok(()));
        assert_eq!(copy, document.bytes());
    }
    let _ = Reply::read(document);
    let Ok(command) = Command::read_in(document, Some(b"shop")) else { return };
    let limits = Limits { elements_max: 1_000, ..Limits::default() };
    let arguments = || [Argument { name: b"updates", document }];
    let facts = analyse(&command, arguments(), &limits);
    assert!(facts.namespaces.len() <= limits.namespaces_max);
    let (row, class) = classify(&command);
    assert_eq!(facts.command, row.map_or("other", |row| row.name));
    // A closer look finds more, never less.
    assert!(facts.class >= class);
    assert!(!is_whole || facts.flaw != Some(weir_analysis::mongodb::Flaw::Broken) || facts.namespaces.len() < 64);
    let form = normal_form(&command, arguments(), &limits);
    assert_eq!(form.is_ok(), shape(&command, arguments(), &limits).is_ok());
}

/// A compressed message: it inflates to exactly what it claims, within the ratio, or not at all.
pub fn mongodb_inflate(data: &[u8]) {
    let [choice, rest @ ..] = data else { return };
    // The first bytes make a head that is mostly possible.
    let (claimed, compressed) = rest.split_at(rest.len().min(3));
    let claimed = claimed.iter().rev().fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
    let numbers = [25 + compressed.len() as u32, 7, 0, 2012, 2013, claimed].map(u32::to_le_bytes).concat();
    let message = [&numbers[..], &[choice % 5], compressed].concat();
    let Ok(read) = Compressed::read(&message) else { return };
    let mut out = b"before".to_vec();
    match read.inflate(&mut out) {
        Ok(()) => {
            assert_eq!(out.len() - 6, read.inflated);
            assert!(claimed as usize <= INFLATE_FREE_BYTES.max(compressed.len() * INFLATE_RATIO_MAX));
        }
        Err(_) => assert_eq!(out, b"before"),
    }
}

/// A client and its server that send any messages; see [`weir_mongodb_simulation::raw::run_raw`].
pub fn mongodb_session(data: &[u8]) {
    weir_mongodb_simulation::raw::run_raw(data);
}
