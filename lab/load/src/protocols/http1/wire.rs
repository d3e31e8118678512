//! Whole responses of HTTP/1.1 out of the chunks of one connection. Only GET is requested, so every response but a 204 and a 304
//! has a body.

use weir_http_codec::{BodyDecoder, BodyLimits, HeadLimits, ResponseParser};

use super::http::reply;
use crate::reply::Reply;
use crate::wire::{GoAway, OnReply, ReplyTo, StreamError, Wire};

/// Bytes of a body that are kept besides those of the scenario's: the text of an error. More is cut off, which no check accepts.
const SPARE_BYTES: usize = 1_024;

/// Finds the events of a streamed body: given the body so far and the end of the last whole event, the new end and the number of
/// events that say something between both.
pub(in crate::protocols) type Scan = fn(&[u8], usize) -> (usize, usize);

/// The reply that a status and a body are.
pub(in crate::protocols) type Judge = for<'a> fn(u16, &'a [u8]) -> Reply<'a>;

/// Collects responses. A body that lies whole in a chunk is never copied, unless its events are counted.
pub(crate) struct ResponseReader {
    parser: ResponseParser,
    /// Bytes of an incomplete head.
    kept: Vec<u8>,
    body: Option<Body>,
    bytes_max: usize,
    /// `None`: bodies come as they are, whole.
    scan: Option<Scan>,
    judge: Judge,
}

struct Body {
    status: u16,
    decoder: BodyDecoder,
    collected: Vec<u8>,
    /// The end of the last whole event.
    scanned: usize,
    is_last: bool,
}

impl ResponseReader {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self::with_events(bytes_max, None)
    }

    /// The same, where the events of each body are reported as they arrive.
    pub(in crate::protocols) fn with_events(bytes_max: usize, scan: Option<Scan>) -> Self {
        Self { scan, ..Self::judged(bytes_max, reply) }
    }

    /// The same, where `judge` decides about a status.
    pub(in crate::protocols) fn judged(bytes_max: usize, judge: Judge) -> Self {
        let (parser, bytes_max) = (ResponseParser::new(), bytes_max + SPARE_BYTES);
        Self { parser, kept: Vec::new(), body: None, bytes_max, scan: None, judge }
    }

    fn step(&mut self, input: &[u8], each: OnReply<'_>) -> Result<(usize, GoAway), StreamError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if let Some(body) = &mut self.body {
                let piece = body.decoder.decode(rest, &BodyLimits::default()).map_err(|_| StreamError)?;
                used += piece.taken;
                let is_done = body.decoder.is_done();
                let (status, is_last) = (body.status, body.is_last);
                if is_done && body.collected.is_empty() && self.scan.is_none() {
                    each(ReplyTo::Oldest, (self.judge)(status, piece.data))?;
                } else {
                    let room = self.bytes_max.saturating_sub(body.collected.len());
                    body.collected.extend_from_slice(&piece.data[..piece.data.len().min(room)]);
                    if let Some(scan) = self.scan {
                        let (end, events) = scan(&body.collected, body.scanned);
                        body.scanned = end;
                        (0..events).try_for_each(|_| each(ReplyTo::Oldest, Reply::event()))?;
                    }
                    if is_done {
                        each(ReplyTo::Oldest, (self.judge)(status, &body.collected))?;
                    } else if piece.taken == 0 {
                        return Ok((used, GoAway::No));
                    }
                }
                if is_done {
                    self.body = None;
                    if is_last {
                        return Ok((input.len(), GoAway::Yes));
                    }
                }
                continue;
            }
            if rest.is_empty() {
                return Ok((used, GoAway::No));
            }
            let parsed = self.parser.parse(rest, &HeadLimits::default()).map_err(|_| StreamError)?;
            let Some(taken) = parsed else { return Ok((used, GoAway::No)) };
            used += taken;
            let head = self.parser.take();
            if !head.is_interim() {
                let decoder = BodyDecoder::new(head.body(false));
                let is_last = !head.is_persistent();
                self.body = Some(Body { status: head.status(), decoder, collected: Vec::new(), scanned: 0, is_last });
            }
            self.parser.reuse(head);
        }
    }
}

impl Wire for ResponseReader {
    fn take(&mut self, chunk: &[u8], _out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        if self.kept.is_empty() {
            let (used, leaving) = self.step(chunk, each)?;
            self.kept.extend_from_slice(&chunk[used..]);
            return Ok(leaving);
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(chunk);
        let (used, leaving) = self.step(&kept, each)?;
        kept.drain(..used);
        self.kept = kept;
        Ok(leaving)
    }

    /// The end of a body without a length.
    fn finish(&mut self, each: OnReply<'_>) -> Result<(), StreamError> {
        match self.body.take() {
            Some(body) if body.decoder.ends_with_connection() => {
                each(ReplyTo::Oldest, (self.judge)(body.status, &body.collected))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyKind;

    /// Whether each is a value, and its body.
    type Seen = Vec<(bool, String)>;

    fn note(reply: Reply<'_>, found: &mut Seen) -> Result<(), StreamError> {
        let body = String::from_utf8_lossy(reply.body.ok_or(StreamError)?).into_owned();
        found.push((reply.kind == ReplyKind::Value, body));
        Ok(())
    }

    fn collect(reader: &mut ResponseReader, chunk: &[u8], found: &mut Seen) -> Result<GoAway, StreamError> {
        reader.take(chunk, &mut Vec::new(), &mut |_, reply| note(reply, found))
    }

    #[test]
    fn responses_are_the_same_however_they_are_cut() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 100 Continue\r\n\r\n\
                     HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
                     HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let wanted: Seen = [(true, "hello"), (false, "abcde"), (true, ""), (true, "")]
            .map(|(is_value, body)| (is_value, body.to_owned()))
            .into();
        for at in 0..wire.len() {
            let (mut reader, mut found) = (ResponseReader::new(8), Seen::new());
            let first = collect(&mut reader, &wire[..at], &mut found).expect("responses");
            let second = collect(&mut reader, &wire[at..], &mut found).expect("responses");
            assert_eq!(found, wanted, "cut at {at}");
            assert_eq!((first, second), (GoAway::No, GoAway::Yes));
        }
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection_and_one_with_a_length_does_not() {
        for (framing, wanted) in [("", vec![(true, "abc".to_owned())]), ("Content-Length: 9\r\n", vec![])] {
            let (mut reader, mut found) = (ResponseReader::new(8), Seen::new());
            collect(&mut reader, format!("HTTP/1.1 200 OK\r\n{framing}\r\nabc").as_bytes(), &mut found)
                .expect("a head");
            reader.finish(&mut |_, reply| note(reply, &mut found)).expect("taken");
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn rubbish_is_refused_and_a_long_body_is_cut() {
        let mut found = Seen::new();
        assert_eq!(collect(&mut ResponseReader::new(8), b"+OK\r\n", &mut found), Err(StreamError));
        let mut reader = ResponseReader::new(2);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", SPARE_BYTES + 10);
        collect(&mut reader, head.as_bytes(), &mut found).expect("a head");
        for _ in 0..SPARE_BYTES + 10 {
            collect(&mut reader, b"y", &mut found).expect("a body");
        }
        assert_eq!(found[0].1.len(), SPARE_BYTES + 2);
    }
}
