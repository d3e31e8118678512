//! Commands, the check of replies, and the section of a scenario.

use weir_mongodb_codec::bson::{Document, Value, Writer, document};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::compressed::{Compressed, Compressor};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_sasl::Mechanism;

use crate::reply::ReplyKind;
use crate::requests::{Integrity, Requests};
use crate::scenario::{self, Mongodb, Operation};
use crate::shard::Shard;
use crate::wire::{ReplyTo, StreamError, Wire as _};

use super::wire::Replies;

fn source(section: &str) -> String {
    format!(
        "name = \"test\"\nprotocol = \"mongodb\"\nconnections = 1\n{section}\n[[phase]]\nrate = 100\nduration = \"1s\"\n"
    )
}

/// Fifty requests of a shard.
fn requests(section: &str) -> Requests {
    let scenario = scenario::parse("s.toml", &source(section)).unwrap_or_else(|mistakes| panic!("{section}{mistakes}"));
    Requests::build(&scenario, Shard::ONLY, 50)
}

fn number(value: Option<Value<'_>>) -> i64 {
    value.and_then(Value::as_integer).expect("a number")
}

/// The `_id` and the mark of a find.
fn wanted(bytes: &[u8]) -> (i64, i64) {
    let body = Message::read(bytes).expect("an OP_MSG").body;
    let filter = body.get(b"filter").expect("elements").and_then(|value| value.as_document().expect("a document"));
    let id = number(filter.expect("a filter").get(b"_id").expect("elements"));
    (id, number(body.get(b"comment").expect("elements")))
}

/// A reply to the request with this id.
fn reply(response_to: i32, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: 9, response_to }, Flags::empty(), body);
    out
}

/// The reply of a server with these documents: `_id`, and a mark of the lab's origin.
fn found(response_to: i32, documents: &[(i64, Option<i64>)], cursor: i64) -> Vec<u8> {
    reply(response_to, |body| {
        body.document("cursor", |body| {
            body.array("firstBatch", documents, |array, name, (id, mark)| {
                array.document(name, |document| {
                    document.int64("_id", *id);
                    if let Some(mark) = mark {
                        document.int64("request", *mark);
                    }
                });
            });
            body.int64("id", cursor);
            body.string("ns", "lab.documents");
        });
        body.double("ok", 1.0);
    })
}

#[test]
fn a_find_is_that_of_a_driver() {
    let requests = requests("");
    let bytes = requests.bytes(3);
    let message = Message::read(bytes).expect("an OP_MSG");
    let command = Command::read(message.body).expect("a command");
    assert_eq!((command.name, command.db, command.collection()), (&b"find"[..], &b"lab"[..], Some(&b"documents"[..])));
    assert_eq!(message.header.request, 4, "the number in the plan");
    assert!(command.session.is_some() && (150..250).contains(&bytes.len()), "{} bytes", bytes.len());
    let (id, mark) = wanted(bytes);
    assert!((1..=100_000).contains(&id) && mark == 3);
    assert_ne!(
        Command::read(Message::read(requests.bytes(4)).expect("an OP_MSG").body).expect("a command").session,
        command.session
    );
}

#[test]
fn an_insert_has_its_document_in_a_sequence() {
    let requests = requests("mongodb.operation = \"insert\"\npayload.size = \"2KiB\"");
    let message = Message::read(requests.bytes(0)).expect("an OP_MSG");
    let sequence = message.sequences().next().expect("a sequence");
    let documents: Vec<Document<'_>> = sequence.documents().map(|one| one.expect("a document")).collect();
    assert_eq!((sequence.identifier, documents.len()), (&b"documents"[..], 1));
    assert_eq!((documents[0].bytes().len(), documents[0].get(b"_id")), (2_048, Ok(None)));
    let check = |reply: &[u8]| requests.check(0, reply).expect("checked");
    let counted = |body: &mut Writer<'_>, n: i32| {
        body.int32("n", n);
        body.double("ok", 1.0);
    };
    assert_eq!(check(&reply(1, |body| counted(body, 1))), Integrity::Ok);
    assert_eq!(check(&reply(1, |body| counted(body, 0))), Integrity::Missing);
    assert_eq!(check(&reply(1, |body| counted(body, 2))), Integrity::Mismatch);
    assert_eq!(check(&reply(2, |body| counted(body, 1))), Integrity::Mismatch);
    for mark in [0, 1] {
        let marked = reply(1, |body| {
            counted(body, 1);
            body.int64("request", mark);
        });
        assert_eq!(check(&marked), if mark == 0 { Integrity::Ok } else { Integrity::Mismatch });
    }
    let failed = reply(1, |body| {
        counted(body, 1);
        body.array("writeErrors", [0; 1], |array, name, one| array.int32(name, one));
    });
    assert_eq!(check(&failed), Integrity::Mismatch);
}

#[test]
fn both_commands_come_in_their_share() {
    let requests = requests("mongodb = { operation = \"mixed\", insert_percent = 50 }");
    let names: Vec<Vec<u8>> = (0..50)
        .map(|index| {
            Message::read(requests.bytes(index))
                .expect("an OP_MSG")
                .body
                .first_element()
                .unwrap()
                .unwrap()
                .name
                .to_vec()
        })
        .collect();
    let inserts = names.iter().filter(|name| **name == b"insert").count();
    assert!((10..=40).contains(&inserts) && names.iter().any(|name| name == b"find"), "{inserts}");
}

#[test]
fn the_document_of_another_request_is_seen() {
    let requests = requests("");
    for index in 0..50 {
        let (id, mark) = wanted(requests.bytes(index));
        let own = index as i32 + 1;
        let check = |reply: &[u8]| requests.check(index, reply).expect("checked");
        assert_eq!(check(&found(own, &[(id, None)], 0)), Integrity::Ok);
        assert_eq!(check(&found(own, &[(id, Some(mark))], 0)), Integrity::Ok);
        assert_eq!(requests.check(index + 50, &found(own, &[(id, None)], 0)), Some(Integrity::Ok));
        assert_eq!(check(&found(own, &[], 0)), Integrity::Missing);
        let wrong = [
            found(own + 1, &[(id, Some(mark))], 0),
            found(own, &[(id + 1, None)], 0),
            found(own, &[(id, Some(mark + 1))], 0),
            found(own, &[(id, None), (id, None)], 0),
            found(own, &[(id, None)], 7),
            reply(own, |body| body.double("ok", 1.0)),
            found(own, &[(id, None)], 0)[..40].to_vec(),
            Vec::new(),
        ];
        for reply in wrong {
            assert_eq!(check(&reply), Integrity::Mismatch, "{reply:?}");
        }
    }
}

#[test]
fn a_document_of_the_origin_is_checked_to_its_last_byte() {
    let requests = requests("");
    let (id, mark) = wanted(requests.bytes(0));
    let with = |filler: &[u8]| {
        reply(1, |body| {
            body.document("cursor", |body| {
                body.array("firstBatch", [()], |array, name, ()| {
                    array.document(name, |document| {
                        document.int64("_id", id);
                        document.string("ns", "lab.documents");
                        document.int64("request", mark);
                        document.string("filler", filler);
                    });
                });
                body.int64("id", 0);
                body.string("ns", "lab.documents");
            });
            body.double("ok", 1.0);
        })
    };
    let mut text = Vec::new();
    weir_origin::mongodb::filler(id, 900, &mut text);
    assert_eq!(requests.check(0, &with(&text)), Some(Integrity::Ok));
    text[899] = b'x';
    assert_eq!(requests.check(0, &with(&text)), Some(Integrity::Mismatch));
}

/// Kind and length of each reply in these pieces.
fn collect<'a>(
    settings: &Mongodb,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<(String, usize)>, StreamError> {
    let (mut replies, mut found) = (Replies::new(settings), Vec::new());
    for piece in pieces {
        replies.take(piece, &mut Vec::new(), &mut |of, reply| {
            assert_eq!(of, ReplyTo::Oldest);
            let kind = match reply.kind {
                ReplyKind::Value => "value".to_owned(),
                ReplyKind::Error(text) => String::from_utf8_lossy(text).into_owned(),
                ReplyKind::Shed(reason) => format!("shed: {reason}"),
                _ => panic!("{:?}", reply.kind),
            };
            found.push((kind, reply.body.expect("a reply").len()));
            Ok(())
        })?;
    }
    Ok(found)
}

fn failure(body: &mut Writer<'_>, code: i32, name: &str) {
    body.double("ok", 0.0);
    body.string("errmsg", "no");
    body.int32("code", code);
    body.string("codeName", name);
}

#[test]
fn replies_are_the_same_however_they_are_cut() {
    let parts = [
        reply(1, |body| body.double("ok", 1.0)),
        reply(2, |body| failure(body, 13, "Unauthorized")),
        reply(3, |body| failure(body, 462, "IngressRequestRateLimitExceeded")),
        reply(4, |body| {
            failure(body, 91, "ShutdownInProgress");
            body.array("errorLabels", ["SystemOverloadedError"], |array, name, one| array.string(name, one));
        }),
    ];
    let kinds = ["value", "13 Unauthorized: no", "shed: system_overloaded", "shed: system_overloaded"];
    let wanted: Vec<_> = kinds.iter().zip(&parts).map(|(kind, part)| ((*kind).to_owned(), part.len())).collect();
    let stream = parts.concat();
    let settings = Mongodb::default();
    assert_eq!(collect(&settings, [&stream[..]]), Ok(wanted.clone()));
    for cut in 0..stream.len() {
        assert_eq!(collect(&settings, [&stream[..cut], &stream[cut..]]), Ok(wanted.clone()), "cut at {cut}");
    }
}

#[test]
fn a_compressed_reply_is_inflated_where_it_was_agreed_on() {
    let plain = reply(1, |body| {
        body.string("text", "x".repeat(500));
        body.double("ok", 1.0);
    });
    for compressor in Compressor::NEGOTIABLE {
        let mut compressed = Vec::new();
        weir_mongodb_codec::compressed::write(&mut compressed, &plain, compressor).expect("compressed");
        assert!(Compressed::read(&compressed).is_ok());
        let settings = Mongodb { compressor: Some(compressor), ..Mongodb::default() };
        assert_eq!(collect(&settings, [&compressed[..]]), Ok(vec![("value".to_owned(), plain.len())]));
        assert_eq!(collect(&Mongodb::default(), [&compressed[..]]), Err(StreamError));
    }
}

#[test]
fn bytes_that_are_no_reply_end_the_connection() {
    let settings = Mongodb::default();
    assert_eq!(collect(&settings, [&b"HTTP/1.1 400 Bad Request\r\n"[..]]), Err(StreamError));
    let large = reply(1, |body| body.string("text", "x".repeat(70_000)));
    assert_eq!(collect(&settings, [&large[..]]), Err(StreamError), "it is beyond the limit");
    let mut stream = Vec::new();
    message::write(&mut stream, Ids { request: 9, response_to: 1 }, Flags::MORE_TO_COME, |body| body.double("ok", 1.0));
    assert_eq!(collect(&settings, [&stream[..]]), Err(StreamError), "nobody has asked for a stream");
}

#[test]
fn the_section_is_read_and_its_mistakes_have_remedies() {
    let text = source(
        "[mongodb]\noperation = \"mixed\"\ninsert_percent = 5\nuser = \"app\"\npassword = \"pw\"\n\
         mechanism = \"scram-sha-1\"\ncompressor = \"zstd\"\nload_balanced = true",
    );
    let scenario = scenario::parse("s.toml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let mongodb = &scenario.mongodb;
    assert_eq!((mongodb.operation, mongodb.insert_percent, &*mongodb.user), (Operation::Mixed, 5, "app"));
    assert_eq!((mongodb.mechanism, mongodb.compressor), (Mechanism::ScramSha1, Some(Compressor::Zstd)));
    assert!(mongodb.is_load_balanced && mongodb.document_bytes == 1_024 && mongodb.documents == 100_000);
    assert!(!format!("{scenario:?}").contains("pw"), "the password is a secret");
    assert_eq!(scenario.payload_words(), "documents of 1KiB");
    for (section, mistake) in [
        ("mongodb.operation = \"drop\"", "`mongodb.operation` is \"drop\""),
        ("mongodb.insert_percent = 20", "`mongodb.insert_percent` is only for operation = \"mixed\""),
        ("mongodb.documents = 0", "`mongodb.documents` is 0"),
        ("mongodb.database = \"\"", "`mongodb.database` is \"\""),
        ("mongodb.compressor = \"lz4\"", "`mongodb.compressor` is \"lz4\""),
        ("mongodb.table = \"x\"", "unknown key `table` in `mongodb`"),
        ("payload = [{ size = 1 }, { size = 2 }]", "`payload` has several sizes"),
        ("keys.count = 1", "`keys` is only for protocol = \"redis\""),
        ("postgres.user = \"x\"", "`postgres` is only for protocol = \"postgres\""),
    ] {
        let mistakes = scenario::parse("s.toml", &source(section)).expect_err(section);
        assert!(mistakes.list().len() == 1 && mistakes.to_string().contains(mistake), "{mistakes}");
    }
}

#[test]
fn the_count_of_an_origin_is_read_once_it_is_whole() {
    let question = Message::read(super::COUNT).expect("an OP_MSG");
    let command = Command::read(question.body).expect("a command");
    assert_eq!((command.name, command.db), (&b"weirOrigin"[..], &b"admin"[..]));
    let response = reply(1, |body| {
        body.int64("requests", 1_234);
        body.double("ok", 1.0);
    });
    for cut in 0..response.len() {
        assert_eq!(super::requests_served(&response[..cut]), None, "cut at {cut}");
    }
    assert_eq!(super::requests_served(&response), Some(1_234));
    let mut empty = Vec::new();
    document(&mut empty, |_| {});
    assert_eq!(super::requests_served(&empty), None);
}
