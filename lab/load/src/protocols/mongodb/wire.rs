//! Whole replies out of the chunks of one connection.

use weir_engine::Stream;
use weir_mongodb_codec::bson::{Document, Value};
use weir_mongodb_codec::compressed::Compressed;
use weir_mongodb_codec::message::{Flags, Message};
use weir_mongodb_codec::reply::{self, Labels};
use weir_mongodb_codec::{Header, OpCode};

use super::login;
use crate::reply::{Reply, ReplyKind};
use crate::scenario::{Mongodb, Scenario};
use crate::wire::{GoAway, OnReply, Pending, ReplyTo, StreamError, Wire};

/// Bytes of a reply beside its document. Default 64 KiB: the other fields have a few hundred.
const REPLY_BYTES_MORE: usize = 64 * 1024;
/// Bytes of the text of an error that are kept.
const ERROR_BYTES_MAX: usize = 512;

/// Code of an error by which servers and gateways refuse a request because of load: IngressRequestRateLimitExceeded.
const RATE_LIMIT: i32 = 462;

/// Collects replies. One that lies whole in a chunk is never copied.
pub(super) struct Replies {
    /// The beginning of a reply.
    partial: Vec<u8>,
    /// An inflated reply.
    inflated: Vec<u8>,
    bytes_max: usize,
    has_compressor: bool,
}

impl Replies {
    pub(super) fn new(mongodb: &Mongodb) -> Self {
        Self {
            partial: Vec::new(),
            inflated: Vec::new(),
            bytes_max: mongodb.document_bytes + REPLY_BYTES_MORE,
            has_compressor: mongodb.compressor.is_some(),
        }
    }

    /// Gives `each` the replies that end in `input`, and returns their bytes.
    fn each(&mut self, input: &[u8], each: OnReply<'_>) -> Result<usize, StreamError> {
        let mut start = 0;
        while let Some(header) = Header::read(&input[start..]).map_err(|_| StreamError)? {
            if header.bytes > self.bytes_max {
                return Err(StreamError);
            }
            let Some(message) = input.get(start..start + header.bytes) else { break };
            start += header.bytes;
            self.one(&header, message, each)?;
        }
        Ok(start)
    }

    fn one(&mut self, header: &Header, message: &[u8], each: OnReply<'_>) -> Result<(), StreamError> {
        let message = match header.op_code {
            OpCode::Compressed if self.has_compressor => {
                let compressed = Compressed::read(message).map_err(|_| StreamError)?;
                if compressed.inflated > self.bytes_max {
                    return Err(StreamError);
                }
                self.inflated.clear();
                compressed.inflate(&mut self.inflated).map_err(|_| StreamError)?;
                &self.inflated[..]
            }
            OpCode::Msg => message,
            _ => return Err(StreamError),
        };
        let read = Message::read(message).map_err(|_| StreamError)?;
        let facts = reply::Reply::read(read.body).map_err(|_| StreamError)?;
        // No command permits a stream of replies.
        if read.flags.contains(Flags::MORE_TO_COME) {
            return Err(StreamError);
        }
        if facts.is_ok {
            return each(ReplyTo::Oldest, Reply::value(message));
        }
        let text = error_text(read.body);
        let is_shed = facts.code == Some(RATE_LIMIT) || facts.labels.contains(Labels::SYSTEM_OVERLOADED);
        let kind = if is_shed { ReplyKind::Shed("system_overloaded") } else { ReplyKind::Error(&text) };
        each(ReplyTo::Oldest, Reply { kind, body: Some(message) })
    }
}

/// The code of an error, its name and its text.
pub(super) fn error_text(body: Document<'_>) -> Vec<u8> {
    let get = |name: &[u8]| body.get(name).ok().flatten();
    let code = get(b"code").and_then(Value::as_integer).map_or("no code".to_owned(), |code| code.to_string());
    let name = get(b"codeName").and_then(Value::as_string).unwrap_or_default();
    let mut text = [code.as_bytes(), b" ", name, b": ", reply::error_text(body).unwrap_or_default()].concat();
    text.truncate(ERROR_BYTES_MAX);
    text
}

impl Wire for Replies {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(login::begin(stream, &scenario.mongodb))
    }

    fn take(&mut self, chunk: &[u8], _out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        if self.partial.is_empty() {
            let used = self.each(chunk, each)?;
            self.partial.extend_from_slice(&chunk[used..]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(chunk);
            let used = self.each(&partial, each)?;
            partial.drain(..used);
            self.partial = partial;
        }
        Ok(GoAway::No)
    }
}
