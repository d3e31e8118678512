//! The commands of a shard, and the check of each reply.

use weir_base::Rng;
use weir_base::rng::{GOLDEN, mix};
use weir_mongodb_codec::BsonError;
use weir_mongodb_codec::bson::{self, Document, Element, Value, Writer};
use weir_mongodb_codec::compressed;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};

use crate::keys::{Distribution, KeyPicker};
use crate::protocols::messages::name_of;
use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::{Mongodb, Operation, Scenario};
use crate::shard::{Purpose, Shard};

/// Digits of a filler that follow from one number.
const DIGITS: usize = 16;

/// Bytes of an inserted document around its filler: length and end, and the head of `filler`.
const FRAME_BYTES: usize = 5 + 13;

/// Plans the commands of one shard.
pub(super) struct Commands<'a> {
    mongodb: &'a Mongodb,
    shard: Shard,
    rng: Rng,
    picker: KeyPicker,
    wanted: Vec<Wanted>,
    scratch: Vec<u8>,
}

/// The right reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The document with this `_id`.
    Document(i64),
    /// The count of one insert.
    Inserted,
}

impl<'a> Commands<'a> {
    pub(super) fn new(scenario: &'a Scenario, shard: Shard) -> Self {
        let mongodb = &scenario.mongodb;
        Self {
            mongodb,
            shard,
            rng: shard.stream(scenario.seed, Purpose::Requests, 0),
            picker: KeyPicker::new(Distribution::Uniform, mongodb.documents),
            wanted: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn next(&mut self) -> Wanted {
        let is_insert = match self.mongodb.operation {
            Operation::Find => false,
            Operation::Insert => true,
            Operation::Mixed => self.rng.below(100) < u64::from(self.mongodb.insert_percent),
        };
        match is_insert {
            true => Wanted::Inserted,
            // Documents are numbered from 1, below 2^54.
            false => Wanted::Document(self.picker.pick(&mut self.rng) as i64 + 1),
        }
    }

    /// The fields that every command ends with, as drivers send them: a session that no other command has, and the database.
    fn write_end(&self, body: &mut Writer<'_>, mark: i64) {
        body.int64("comment", mark);
        body.document("lsid", |lsid| lsid.binary("id", 4, &session(mark)));
        body.string("$db", &self.mongodb.database);
    }

    fn write(&self, wanted: Wanted, ids: Ids, mark: i64, out: &mut Vec<u8>) {
        let Mongodb { collection, document_bytes, .. } = self.mongodb;
        match wanted {
            Wanted::Document(id) => message::write(out, ids, Flags::empty(), |body| {
                body.string("find", collection);
                body.document("filter", |filter| filter.int64("_id", id));
                body.int32("limit", 1);
                body.bool("singleBatch", true);
                self.write_end(body, mark);
            }),
            Wanted::Inserted => {
                let mut document = Vec::new();
                let mut text = Vec::new();
                filler(mark, document_bytes.saturating_sub(FRAME_BYTES), &mut text);
                // Without `_id`, which the server adds: the same command is sent again in the next round.
                bson::document(&mut document, |document| document.string("filler", &text));
                let body = |body: &mut Writer<'_>| {
                    body.string("insert", collection);
                    body.bool("ordered", true);
                    self.write_end(body, mark);
                };
                let documents = Document::read(&document).ok();
                message::write_with_sequence(out, ids, Flags::empty(), body, "documents", documents);
            }
        }
    }
}

impl Planner for Commands<'_> {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        let at = self.wanted.len();
        let wanted = self.next();
        self.wanted.push(wanted);
        let ids = Ids { request: request_id(at), response_to: 0 };
        let mark = name_of(self.shard, at) as i64;
        let Some(compressor) = self.mongodb.compressor else { return self.write(wanted, ids, mark, arena) };
        let mut plain = std::mem::take(&mut self.scratch);
        plain.clear();
        self.write(wanted, ids, mark, &mut plain);
        // It was written here, so it has the length that it says.
        let written = compressed::write(arena, &plain, compressor);
        debug_assert_eq!(written, Ok(()));
        self.scratch = plain;
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        let namespace = format!("{}.{}", self.mongodb.database, self.mongodb.collection);
        Box::new(Replies { shard: self.shard, wanted: self.wanted, namespace: namespace.into_bytes() })
    }
}

/// The id of a command: its number in the plan, which has fewer than 2^31.
fn request_id(at: usize) -> i32 {
    at as i32 + 1
}

/// A UUID (RFC 9562, version 4) that follows from the mark of a command.
fn session(mark: i64) -> [u8; 16] {
    let [one, other] = [0, 1].map(|half: u64| mix((mark as u64).wrapping_mul(GOLDEN).wrapping_add(half)));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&one.to_be_bytes());
    id[8..].copy_from_slice(&other.to_be_bytes());
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// The 16 hexadecimal digits at this place of a filler, as the lab's origin makes them.
fn digits(id: i64, place: u64) -> [u8; DIGITS] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let hash = mix((id as u64).wrapping_mul(GOLDEN).wrapping_add(place)).to_be_bytes();
    let mut digits = [0; DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    digits
}

fn filler(id: i64, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    for place in 0.. {
        let left = end - out.len();
        if left == 0 {
            return;
        }
        out.extend_from_slice(&digits(id, place)[..DIGITS.min(left)]);
    }
}

fn is_filler(id: i64, text: &[u8]) -> bool {
    text.chunks(DIGITS).zip(0..).all(|(chunk, place)| digits(id, place).starts_with(chunk))
}

#[derive(Debug)]
struct Replies {
    shard: Shard,
    /// By the place in the plan.
    wanted: Vec<Wanted>,
    namespace: Vec<u8>,
}

impl Expectation for Replies {
    fn check(&self, place: PlanPosition, reply: &[u8]) -> Option<Integrity> {
        let Ok(reply) = Message::read(reply) else { return Some(Integrity::Mismatch) };
        if reply.header.response_to != request_id(place.at) || reply.flags.contains(Flags::MORE_TO_COME) {
            return Some(Integrity::Mismatch);
        }
        let mark = name_of(self.shard, place.at) as i64;
        let found = match self.wanted[place.at] {
            Wanted::Document(id) => self.judge_find(reply.body, id, mark),
            Wanted::Inserted => judge_insert(reply.body, mark),
        };
        Some(found.ok().flatten().unwrap_or(Integrity::Mismatch))
    }
}

impl Replies {
    /// Exactly one document, that of the request, and no cursor; `None`: the reply has another form.
    fn judge_find(&self, body: Document<'_>, id: i64, mark: i64) -> Result<Option<Integrity>, BsonError> {
        let mut integrity = None;
        for element in body.elements() {
            let Element { name, value } = element?;
            match name {
                b"cursor" => integrity = self.judge_cursor(value, id, mark)?,
                b"request" if value.as_integer() != Some(mark) => return Ok(None),
                b"ok" if !value.is_true() => return Ok(None),
                _ => {}
            }
        }
        Ok(integrity)
    }

    fn judge_cursor(&self, cursor: Value<'_>, id: i64, mark: i64) -> Result<Option<Integrity>, BsonError> {
        let Some(cursor) = cursor.as_document()? else { return Ok(None) };
        let (mut documents, mut is_right, mut is_closed) = (0, true, false);
        for element in cursor.elements() {
            let Element { name, value } = element?;
            match name {
                b"firstBatch" => {
                    for document in value.as_document()?.into_iter().flat_map(Document::elements) {
                        documents += 1;
                        let document = document?.value.as_document()?;
                        is_right &= document.map(|document| self.is_of(document, id, mark)).transpose()? == Some(true);
                    }
                }
                b"id" => is_closed = value.as_integer() == Some(0),
                b"ns" => is_right &= value.as_string() == Some(&self.namespace),
                _ => {}
            }
        }
        Ok(match (documents, is_right && is_closed) {
            (1, true) => Some(Integrity::Ok),
            (0, true) => Some(Integrity::Missing),
            _ => None,
        })
    }

    /// The number of the document, and where it is one of the lab's origin its mark and its whole content.
    fn is_of(&self, document: Document<'_>, id: i64, mark: i64) -> Result<bool, BsonError> {
        let (mut has_id, mut is_ours, mut text) = (false, false, None);
        for element in document.elements() {
            let Element { name, value } = element?;
            match name {
                b"_id" => has_id = value.as_integer() == Some(id),
                b"request" if value.as_integer() != Some(mark) => return Ok(false),
                b"ns" => {
                    is_ours = true;
                    if value.as_string() != Some(&self.namespace) {
                        return Ok(false);
                    }
                }
                b"filler" => text = value.as_string(),
                _ => {}
            }
        }
        Ok(has_id && (!is_ours || text.is_some_and(|text| is_filler(id, text))))
    }
}

/// One document was inserted; `None`: the reply has another form.
fn judge_insert(body: Document<'_>, mark: i64) -> Result<Option<Integrity>, BsonError> {
    let mut inserted = None;
    for element in body.elements() {
        let Element { name, value } = element?;
        match name {
            b"n" => inserted = value.as_integer(),
            b"request" if value.as_integer() != Some(mark) => return Ok(None),
            b"ok" if !value.is_true() => return Ok(None),
            b"writeErrors" | b"writeConcernError" => return Ok(None),
            _ => {}
        }
    }
    Ok(match inserted {
        Some(1) => Some(Integrity::Ok),
        Some(0) => Some(Integrity::Missing),
        _ => None,
    })
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn the_filler_is_that_of_the_origin() {
        for (id, bytes) in [(1, 0), (7, 100), (100_000, 1_024)] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            filler(id, bytes, &mut ours);
            weir_origin::mongodb::filler(id, bytes, &mut theirs);
            assert_eq!(ours, theirs);
            assert!(is_filler(id, &ours));
            if let Some(last) = ours.last_mut() {
                *last ^= 1;
                assert!(!is_filler(id, &ours));
            }
        }
    }
}
