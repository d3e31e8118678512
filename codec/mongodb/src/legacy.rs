//! OP_QUERY and OP_REPLY: the handshake of drivers that may meet a server before 3.6. Nothing else uses them any more.
//!
//! Source: "Opcodes" of MongoDB's manual, and the handshake specification: legacy hello is the one command of OP_QUERY.

use crate::bson::{self, Document, Writer};
use crate::error::MessageError;
use crate::header::{HEADER_BYTES, Header, OpCode};
use crate::limits::COLLECTION_BYTES_MAX;
use crate::message::Ids;

/// Bit of an OP_REPLY: the query has failed, and the document says why.
const QUERY_FAILURE: i32 = 1 << 1;
/// Bit of an OP_REPLY that every server since 1.6 sets.
const AWAIT_CAPABLE: i32 = 1 << 3;

/// A whole OP_QUERY.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Its header.
    pub header: Header,
    /// Database and collection. A command has the collection `$cmd`.
    pub namespace: &'a [u8],
    /// The command. Old drivers wrap it in `$query`; this is the wrapped one.
    pub body: Document<'a>,
}

impl<'a> Query<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// The message is another opcode, or its fields do not fit it.
    pub fn read(message: &'a [u8]) -> Result<Self, MessageError> {
        let (header, rest) = of_kind(message, OpCode::Query)?;
        let rest = rest.get(4..).ok_or(MessageError::Short)?;
        let name = &rest[..rest.len().min(COLLECTION_BYTES_MAX + 1)];
        let end = memchr::memchr(0, name).ok_or(MessageError::Short)?;
        // Numbers to skip and to return are of no use to a command.
        let documents = rest.get(end + 1 + 8..).ok_or(MessageError::Short)?;
        let whole = Document::first(documents)?;
        // A projection may follow.
        let behind = &documents[whole.bytes().len()..];
        if !behind.is_empty() {
            Document::read(behind)?;
        }
        let wrapped = whole.first_element()?.filter(|element| matches!(element.name, b"$query" | b"query"));
        let body = wrapped.map(|element| element.value.as_document()).transpose()?.flatten();
        Ok(Self { header, namespace: &rest[..end], body: body.unwrap_or(whole) })
    }

    /// The database, if the query is a command.
    pub fn database(&self) -> Option<&'a [u8]> {
        self.namespace.strip_suffix(b".$cmd").filter(|database| !database.is_empty())
    }
}

/// Appends a command as an OP_QUERY.
pub fn write_query(out: &mut Vec<u8>, request: i32, database: &str, body: impl FnOnce(&mut Writer<'_>)) {
    write(out, Ids { request, response_to: 0 }, OpCode::Query, |out| {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(database.as_bytes());
        out.extend_from_slice(b".$cmd\0");
        out.extend_from_slice(&0_i32.to_le_bytes());
        out.extend_from_slice(&(-1_i32).to_le_bytes());
        bson::document(out, body);
    });
}

/// A whole OP_REPLY with one document.
#[derive(Clone, Copy, Debug)]
pub struct LegacyReply<'a> {
    /// Its header.
    pub header: Header,
    /// Its document.
    pub body: Document<'a>,
}

impl<'a> LegacyReply<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// The message is another opcode, or has not exactly one document.
    pub fn read(message: &'a [u8]) -> Result<Self, MessageError> {
        let (header, rest) = of_kind(message, OpCode::Reply)?;
        let (fields, documents) = rest.split_first_chunk::<20>().ok_or(MessageError::Short)?;
        if fields[16..] != 1_i32.to_le_bytes() {
            return Err(MessageError::NoBody);
        }
        Ok(Self { header, body: Document::read(documents)? })
    }
}

/// Appends an OP_REPLY with one document. `is_error`: the document says why the query has failed.
pub fn write_reply(out: &mut Vec<u8>, ids: Ids, is_error: bool, body: impl FnOnce(&mut Writer<'_>)) {
    write(out, ids, OpCode::Reply, |out| {
        let flags = AWAIT_CAPABLE | if is_error { QUERY_FAILURE } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        // No cursor, and the first document.
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&1_i32.to_le_bytes());
        bson::document(out, body);
    });
}

fn of_kind(message: &[u8], op_code: OpCode) -> Result<(Header, &[u8]), MessageError> {
    let header = Header::read(message)?.ok_or(MessageError::Short)?;
    if header.op_code != op_code {
        return Err(MessageError::OpCode(header.op_code.number()));
    }
    if header.bytes != message.len() {
        return Err(MessageError::Length { claimed: header.bytes as i32 });
    }
    Ok((header, &message[HEADER_BYTES..]))
}

fn write(out: &mut Vec<u8>, ids: Ids, op_code: OpCode, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    Header { bytes: 0, request: ids.request, response_to: ids.response_to, op_code }.write(out);
    fields(out);
    let bytes = out.len() - start;
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BsonError;

    /// `{ismaster: 1}` to `admin.$cmd`, written by hand.
    const HELLO: &[u8] = b"\x3a\0\0\0\x05\0\0\0\0\0\0\0\xd4\x07\0\0\x04\0\0\0admin.$cmd\0\0\0\0\0\xff\xff\xff\xff\x13\0\0\0\x10ismaster\0\x01\0\0\0\0";

    #[test]
    fn m6_the_first_message_of_an_old_driver_is_read() {
        let query = Query::read(HELLO).unwrap();
        assert_eq!(
            (query.header.request, query.namespace, query.database()),
            (5, &b"admin.$cmd"[..], Some(&b"admin"[..]))
        );
        assert_eq!(query.body.first_element().unwrap().unwrap().name, b"ismaster");
        for cut in 0..HELLO.len() {
            assert!(Query::read(&HELLO[..cut]).is_err());
        }
        let mut out = Vec::new();
        write_query(&mut out, 5, "admin", |body| body.int32("ismaster", 1));
        assert_eq!((&out[..16], &out[20..]), (&HELLO[..16], &HELLO[20..]), "the flags are of no use");
    }

    #[test]
    fn a_command_that_is_wrapped_is_unwrapped() {
        let mut out = Vec::new();
        write_query(&mut out, 5, "admin", |body| {
            body.document("$query", |body| body.int32("isMaster", 1));
            body.document("$readPreference", |body| body.string("mode", "primaryPreferred"));
        });
        assert_eq!(Query::read(&out).unwrap().body.first_element().unwrap().unwrap().name, b"isMaster");
        let mut find = Vec::new();
        write_query(&mut find, 5, "a", |body| body.string("query", "text"));
        assert_eq!(Query::read(&find).unwrap().body.first_element().unwrap().unwrap().name, b"query");
    }

    #[test]
    fn bytes_behind_the_query_are_a_projection_or_a_mistake() {
        let with = |behind: &[u8]| {
            let mut message = [HELLO, behind].concat();
            let length = message.len() as u32;
            message[..4].copy_from_slice(&length.to_le_bytes());
            Query::read(&message).map(|query| query.body.elements().count())
        };
        assert_eq!(with(b"\x05\0\0\0\0"), Ok(1));
        assert_eq!(with(b"\x05\0\0\0\0\0"), Err(BsonError::Length { claimed: 5 }.into()));
        assert_eq!(with(b"\0"), Err(BsonError::Short.into()));
    }

    #[test]
    fn replies_read_back_as_sent() {
        for is_error in [false, true] {
            let mut out = Vec::new();
            write_reply(&mut out, Ids { request: 9, response_to: 5 }, is_error, |body| body.double("ok", 1.0));
            let reply = LegacyReply::read(&out).unwrap();
            assert_eq!((reply.header.request, reply.header.response_to), (9, 5));
            assert!(reply.body.get(b"ok").unwrap().unwrap().is_true());
            assert_eq!(out[16], if is_error { 10 } else { 8 });
            out[32] = 2;
            assert_eq!(LegacyReply::read(&out).err(), Some(MessageError::NoBody));
        }
    }
}
