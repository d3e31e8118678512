//! Whole replies out of the chunks of one connection. A reply is everything up to and with a ReadyForQuery.

use weir_engine::Stream;
use weir_postgres_codec::backend::{ErrorFields, ReadyForQuery, tag};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::sqlstate;

use super::login;
use super::tpcb::Course;
use crate::reply::{Reply, ReplyKind};
use crate::scenario::Scenario;
use crate::wire::{GoAway, OnReply, Pending, ReplyTo, StreamError, Wire};

/// Bytes of a reply that is not whole. Default 64 KiB: a row of an account and its description have 100.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// The end of a session.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// Bytes of the text of an error that are kept.
const ERROR_BYTES_MAX: usize = 512;

/// SQLSTATEs by which servers and gateways refuse a request because of load, and the label of each.
const OVERLOAD: [(&str, &str); 3] = [
    (sqlstate::TOO_MANY_CONNECTIONS, "too_many_connections"),
    (sqlstate::CONFIGURATION_LIMIT_EXCEEDED, "limit_exceeded"),
    (sqlstate::CANNOT_CONNECT_NOW, "cannot_connect_now"),
];

/// Collects replies. One that lies whole in a chunk is never copied.
pub(super) struct Replies {
    /// The beginning of a reply.
    partial: Vec<u8>,
    /// Where the next message begins in the reply under way.
    seen: usize,
    /// The first error of the reply under way.
    error: Option<Failure>,
    /// A request is a transaction, whose reply has several parts.
    course: Option<Course>,
}

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    /// SQLSTATE and message.
    text: Vec<u8>,
    shed: Option<&'static str>,
}

impl Failure {
    fn read(fields: ErrorFields<'_>) -> Self {
        let sqlstate = fields.sqlstate().unwrap_or("no SQLSTATE");
        let mut text = [sqlstate.as_bytes(), b" ", fields.message().unwrap_or_default()].concat();
        text.truncate(ERROR_BYTES_MAX);
        let shed = OVERLOAD.iter().find(|(known, _)| *known == sqlstate).map(|(_, reason)| *reason);
        Self { text, shed }
    }

    fn kind(&self) -> ReplyKind<'_> {
        self.shed.map_or(ReplyKind::Error(&self.text), ReplyKind::Shed)
    }
}

impl Replies {
    pub(super) fn new(course: Option<Course>) -> Self {
        Self { partial: Vec::new(), seen: 0, error: None, course }
    }

    /// Gives `each` the replies that end in `input`, which begins with a reply, and returns their bytes. The next statement of a
    /// transaction goes to `out`.
    fn each(&mut self, input: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<usize, StreamError> {
        let mut start = 0;
        loop {
            let at = start + self.seen;
            let Some(head) = head(&input[at..]).map_err(|_| StreamError)? else { return Ok(start) };
            let Some(message) = input.get(at..at + head.whole()) else { return Ok(start) };
            self.seen += head.whole();
            let is_last = match head.tag {
                tag::READY_FOR_QUERY => match &mut self.course {
                    None => true,
                    Some(course) => {
                        let status = ReadyForQuery::read(&message[HEAD_BYTES..]).map_err(|_| StreamError)?.0;
                        !course.go_on(status, self.error.is_some(), out)
                    }
                },
                tag::ERROR => {
                    let fields = ErrorFields::read(&message[HEAD_BYTES..]).map_err(|_| StreamError)?;
                    self.error.get_or_insert_with(|| Failure::read(fields));
                    // Nothing follows but the end of the connection.
                    fields.is_fatal()
                }
                _ => false,
            };
            if is_last {
                let end = start + self.seen;
                let error = self.error.take();
                let kind = error.as_ref().map_or(ReplyKind::Value, Failure::kind);
                each(ReplyTo::Oldest, Reply { kind, body: Some(&input[start..end]) })?;
                (start, self.seen) = (end, 0);
            }
        }
    }
}

impl Wire for Replies {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(login::begin(stream, &scenario.postgres))
    }

    fn farewell(&self) -> &'static [u8] {
        TERMINATE
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        if self.partial.is_empty() {
            let used = self.each(chunk, out, each)?;
            self.partial.extend_from_slice(&chunk[used..]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(chunk);
            let used = self.each(&partial, out, each)?;
            partial.drain(..used);
            self.partial = partial;
        }
        if self.partial.len() > REPLY_BYTES_MAX { Err(StreamError) } else { Ok(GoAway::No) }
    }
}

#[cfg(test)]
mod tests {
    use weir_postgres_codec::TransactionStatus;
    use weir_postgres_codec::backend::{self, ErrorReport};

    use super::*;

    /// Kind and length of each reply in these pieces.
    fn collect<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(String, usize)>, StreamError> {
        let (mut replies, mut found) = (Replies::new(None), Vec::new());
        for piece in pieces {
            replies.take(piece, &mut Vec::new(), &mut |of, reply| {
                assert_eq!(of, ReplyTo::Oldest);
                let kind = match reply.kind {
                    ReplyKind::Value => "value".to_owned(),
                    ReplyKind::Error(text) => String::from_utf8_lossy(text).into_owned(),
                    ReplyKind::Shed(reason) => format!("shed: {reason}"),
                    ReplyKind::Lost => "lost".to_owned(),
                    ReplyKind::Event => "event".to_owned(),
                };
                found.push((kind, reply.body.expect("a reply").len()));
                Ok(())
            })?;
        }
        Ok(found)
    }

    #[test]
    fn replies_are_the_same_however_they_are_cut() {
        let (mut stream, mut ends) = (Vec::new(), vec![0]);
        backend::parse_complete(&mut stream);
        backend::data_row(&mut stream, [Some(&b"7"[..])]);
        backend::command_complete(&mut stream, b"SELECT 1");
        backend::ready_for_query(&mut stream, TransactionStatus::Idle);
        ends.push(stream.len());
        backend::error(&mut stream, &ErrorReport::error("42601", "syntax error"));
        backend::ready_for_query(&mut stream, TransactionStatus::Idle);
        ends.push(stream.len());
        backend::notice(&mut stream, &ErrorReport::error("00000", "a notice"));
        backend::error(&mut stream, &ErrorReport::error("53300", "no server in time"));
        backend::ready_for_query(&mut stream, TransactionStatus::Idle);
        ends.push(stream.len());
        backend::error(&mut stream, &ErrorReport::fatal("57P01", "shutdown"));
        ends.push(stream.len());
        let kinds = ["value", "42601 syntax error", "shed: too_many_connections", "57P01 shutdown"];
        let wanted: Vec<_> =
            kinds.iter().zip(ends.windows(2)).map(|(kind, ends)| ((*kind).to_owned(), ends[1] - ends[0])).collect();
        assert_eq!(collect([&stream[..]]), Ok(wanted.clone()));
        assert_eq!(collect(stream.chunks(1)), Ok(wanted.clone()));
        for cut in 0..stream.len() {
            assert_eq!(collect([&stream[..cut], &stream[cut..]]), Ok(wanted.clone()), "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_reply_end_the_connection() {
        assert_eq!(collect([&b"HTTP/1.1 400 Bad Request\r\n"[..]]), Err(StreamError));
        assert_eq!(collect([&b"E\0\0\0\x05x"[..]]), Err(StreamError), "fields without an end");
        let mut endless = Vec::new();
        for _ in 0..REPLY_BYTES_MAX / 10 {
            backend::data_row(&mut endless, [Some(&b"0123456789"[..])]);
        }
        assert_eq!(collect([&endless[..]]), Err(StreamError));
    }
}
