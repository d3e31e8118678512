use super::*;
use crate::bson::Writer;
use crate::error::MessageError;
use crate::frame::Framer;
use crate::header::Header;
use crate::message::{self, Flags, Ids};

fn written(flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: 9, response_to: 7 }, flags, body);
    out
}

fn followed(bytes: &[u8], piece: usize) -> Result<Option<(Flags, Reply)>, MessageError> {
    let header = Header::read(bytes)?.ok_or(MessageError::Short)?;
    let mut follower = ReplyFollower::new(&header);
    bytes.chunks(piece).try_for_each(|piece| follower.take(piece))?;
    Ok(follower.reply())
}

/// Reads the message at once and in pieces of every size.
fn read(bytes: &[u8]) -> Reply {
    let message = message::Message::read(bytes).unwrap();
    let reply = Reply::read(message.body).unwrap();
    for piece in (1..40).chain([bytes.len()]) {
        assert_eq!(followed(bytes, piece), Ok(Some((message.flags, reply))), "pieces of {piece}");
    }
    reply
}

fn find(batch: usize, id: i64) -> impl FnOnce(&mut Writer<'_>) {
    move |body| {
        body.document("cursor", |cursor| {
            cursor.array("firstBatch", 0..batch, |writer, name, number| {
                writer.document(name, |document| {
                    document.int32("_id", number as i32);
                    document.double("ok", 0.0);
                });
            });
            cursor.int64("id", id);
            cursor.string("ns", "shop.orders");
        });
        body.double("ok", 1.0);
        body.document("$clusterTime", |time| time.int64("id", 5));
    }
}

#[test]
fn the_cursor_of_a_reply_is_behind_its_batch() {
    for (batch, id) in [(0, 0), (3, 77), (2_000, i64::MIN)] {
        let reply = read(&written(Flags::empty(), find(batch, id)));
        assert_eq!(reply, Reply { is_ok: true, cursor: Some(id), ..Reply::default() });
    }
    let reply = read(&written(Flags::MORE_TO_COME | Flags::CHECKSUM_PRESENT, find(1, 5)));
    assert_eq!(reply.cursor, Some(5));
}

#[test]
fn an_error_is_read_with_its_labels() {
    let reply = read(&written(Flags::empty(), |body| {
        body.double("ok", 0.0);
        body.string("errmsg", "over");
        body.int32("code", 462);
        body.array("errorLabels", ["SystemOverloadedError", "other", "RetryableError"], |writer, name, label| {
            writer.string(name, label);
        });
    }));
    assert_eq!((reply.is_ok, reply.code, reply.cursor), (false, Some(462), None));
    assert_eq!(reply.labels, Labels::SYSTEM_OVERLOADED | Labels::RETRYABLE);
    assert_eq!(reply.labels.texts().collect::<Vec<_>>(), ["SystemOverloadedError", "RetryableError"]);
}

#[test]
fn errors_inside_of_a_success_are_seen() {
    let reply = read(&written(Flags::empty(), |body| {
        body.int32("n", 0);
        body.array("writeErrors", 0..3, |writer, name, _| writer.document(name, |error| error.int32("code", 11000)));
        body.document("writeConcernError", |error| error.int32("code", 91));
        body.double("ok", 1.0);
    }));
    assert!(reply.is_ok && reply.has_write_errors && reply.has_write_concern_error && reply.code.is_none());
    assert_eq!(reply.write_concern_code, Some(91), "the server steps down");
}

#[test]
fn the_memory_of_a_follower_does_not_grow_with_the_reply() {
    let long = written(Flags::empty(), |body| {
        body.string("a", "x".repeat(1 << 20));
        body.double("ok", 1.0);
    });
    assert_eq!(followed(&long, 1000).map(|found| found.is_some_and(|(_, reply)| reply.is_ok)), Ok(true));
    let name = written(Flags::empty(), |body| body.int32("x".repeat(1 << 20), 1));
    assert_eq!(followed(&name, 1000), Err(MessageError::Bson(BsonError::Short)));
}

/// A piece that follows the beginning of an element may be longer than any element that is held.
#[test]
fn a_long_stream_is_followed_wherever_its_pieces_are_cut() {
    let batch = |flags, id| {
        written(flags, |body| {
            body.document("cursor", |cursor| {
                cursor.array("nextBatch", 0..2, |writer, name, _| {
                    writer.document(name, |document| document.string("text", "x".repeat(2 * 8_192)));
                });
                cursor.int64("id", id);
                cursor.string("ns", "shop.orders");
            });
            body.double("ok", 1.0);
            body.array("errorLabels", ["RetryableError"], |writer, name, label| writer.string(name, label));
        })
    };
    let stream = [batch(Flags::MORE_TO_COME, 7), batch(Flags::MORE_TO_COME | Flags::CHECKSUM_PRESENT, 7)].concat();
    let stream = [stream, batch(Flags::empty(), 0)].concat();
    let length = stream.len() / 3;
    // Every cut near the ends of a reply, and some inside of a long text.
    let cuts = (0..stream.len()).filter(|at| at % length < 200 || at % length > length - 200 || at % 997 == 0);
    for cut in cuts {
        for second in [stream.len(), cut + 1, cut + 10_000] {
            let second = second.min(stream.len());
            let pieces = [&stream[..cut], &stream[cut..second], &stream[second..]];
            let found = streamed(&pieces).unwrap_or_else(|error| panic!("cut at {cut} and {second}: {error:?}"));
            assert_eq!(found, [Some(7), Some(7), Some(0)], "cut at {cut} and {second}");
        }
    }
}

/// The cursors of a stream in pieces, as the gateway reads it.
fn streamed(pieces: &[&[u8]]) -> Result<Vec<Option<i64>>, MessageError> {
    let (mut framer, mut follower, mut held, mut found) = (Framer::default(), None, Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        let mut rest = &held[..];
        while let Some(piece) = framer.next(rest)? {
            let (part, behind) = rest.split_at(piece.bytes);
            let present = follower.get_or_insert_with(|| ReplyFollower::new(&piece.header));
            present.take(part)?;
            if piece.is_end() {
                let (_, reply) = present.reply().expect("the message has ended");
                assert!(reply.is_ok && reply.labels == Labels::RETRYABLE);
                found.push(reply.cursor);
                follower = None;
            }
            rest = behind;
        }
        held = rest.to_vec();
    }
    Ok(found)
}

#[test]
fn m4_a_reply_that_lies_is_refused_in_pieces_as_well() {
    let whole = written(Flags::empty(), find(2, 77));
    for at in 16..whole.len() {
        let mut broken = whole.clone();
        broken[at] ^= 0x55;
        let results: Vec<_> = [1, 7, broken.len()].into_iter().map(|piece| followed(&broken, piece)).collect();
        assert!(results.iter().all(|result| result.is_err() == results[0].is_err()), "at {at}: {results:?}");
    }
}
