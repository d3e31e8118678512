use super::*;
use crate::bson::Writer;
use crate::error::MessageError;
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
