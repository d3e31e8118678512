//! From received bytes to replies.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::Ordering},
};

use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, HeadLimits, RequestHead, RequestParser, WireError, encode};

use super::{connection::HIGH_WATER_BYTES, settings::BODY_BYTES_MAX};
use crate::server::{WorkerStats, add};

/// What every reply says of itself.
const FIELDS: &[u8] = b"Server: weir-origin\r\nContent-Type: text/plain\r\n";
const REQUESTS: &[u8] = b"/requests";

/// What all connections of one worker answer with.
pub struct Replies {
    /// The longest body that was asked for so far: each reply has its beginning.
    body: RefCell<Vec<u8>>,
    payload: usize,
    pub connections_max: usize,
    pub stats: Arc<WorkerStats>,
}

impl Replies {
    pub fn new(payload: usize, connections_max: usize, stats: Arc<WorkerStats>) -> Self {
        Self { body: RefCell::default(), payload, connections_max, stats }
    }

    /// An error, after which the connection ends.
    pub fn refuse(status: u16, out: &mut Vec<u8>) {
        encode::status_line(status, b"", out);
        out.extend_from_slice(FIELDS);
        encode::framing(BodyLength::Exact(0), out);
        encode::field(b"Connection", b"close", out);
        encode::end_of_head(out);
    }

    fn answer(&self, head: &RequestHead, out: &mut Vec<u8>) {
        add(&self.stats.requests, 1);
        let count;
        let mut body = self.body.borrow_mut();
        let (status, body) = match (head.target(), size(head.target(), self.payload)) {
            (_, Some(size)) => {
                if body.len() < size {
                    body.resize(size, b'x');
                }
                (200, &body[..size])
            }
            (REQUESTS, None) => {
                count = self.stats.requests.load(Ordering::Relaxed).to_string();
                (200, count.as_bytes())
            }
            (_, None) => (404, &b""[..]),
        };
        encode::status_line(status, b"", out);
        out.extend_from_slice(FIELDS);
        encode::framing(BodyLength::Exact(body.len() as u64), out);
        if !head.is_persistent() {
            encode::field(b"Connection", b"close", out);
        } else if head.options().keep_alive {
            encode::field(b"Connection", b"keep-alive", out);
        }
        encode::end_of_head(out);
        if head.method() != b"HEAD" {
            out.extend_from_slice(body);
        }
    }
}

/// Bytes of the body that a target asks for.
fn size(target: &[u8], payload: usize) -> Option<usize> {
    match target {
        b"/" => Some(payload),
        // No number with seven digits is much too large to be counted.
        [b'/', digits @ ..] if (1..=7).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) => {
            let size = digits.iter().fold(0, |size, digit| size * 10 + usize::from(digit & 15));
            (size <= BODY_BYTES_MAX).then_some(size)
        }
        _ => None,
    }
}

/// How far the input was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All whole requests.
    Done,
    /// Requests remain, because enough is waiting to be sent: call [`Session::answer`] again when it has left.
    Congested,
    /// The connection ends.
    Ended,
}

/// The input side of one client.
#[derive(Default)]
pub struct Session {
    parser: RequestParser,
    /// The body of the request that was answered last.
    body: Option<BodyDecoder>,
    /// Received and not spent: no whole head, or requests that wait.
    kept: Vec<u8>,
    is_last: bool,
}

impl Session {
    /// Answers the requests that `chunk` completes.
    pub fn answer(&mut self, chunk: &[u8], replies: &Replies, out: &mut Vec<u8>) -> Progress {
        if self.kept.is_empty() {
            let (used, progress) = self.step(chunk, replies, out);
            self.kept.extend_from_slice(&chunk[used..]);
            return progress;
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(chunk);
        let (used, progress) = self.step(&kept, replies, out);
        kept.drain(..used);
        self.kept = kept;
        progress
    }

    fn step(&mut self, input: &[u8], replies: &Replies, out: &mut Vec<u8>) -> (usize, Progress) {
        let mut used = 0;
        loop {
            match self.one(&input[used..], replies, out) {
                Ok(Some(taken)) => used += taken,
                Ok(None) => return (used, Progress::Done),
                Err(error) => {
                    Replies::refuse(error.status(), out);
                    return (input.len(), Progress::Ended);
                }
            }
            if self.is_last && self.body.is_none() {
                return (input.len(), Progress::Ended);
            }
            if used == input.len() {
                return (used, Progress::Done);
            }
            if out.len() >= HIGH_WATER_BYTES {
                return (used, Progress::Congested);
            }
        }
    }

    /// A head with its answer, or a piece of a body; `None`: more is needed.
    fn one(&mut self, input: &[u8], replies: &Replies, out: &mut Vec<u8>) -> Result<Option<usize>, WireError> {
        if let Some(body) = &mut self.body {
            let taken = body.decode(input, &BodyLimits::default())?.taken;
            if body.is_done() {
                self.body = None;
            } else if taken == 0 {
                return Ok(None);
            }
            return Ok(Some(taken));
        }
        let Some(taken) = self.parser.parse(input, &HeadLimits::default())? else { return Ok(None) };
        let head = self.parser.take();
        if head.expects_continue() {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        replies.answer(&head, out);
        self.is_last = !head.is_persistent();
        self.body = Some(BodyDecoder::new(head.body())).filter(|body| !body.is_done());
        self.parser.reuse(head);
        Ok(Some(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies() -> Replies {
        Replies::new(3, 1, Arc::default())
    }

    fn told(input: &[u8]) -> (String, Progress) {
        let (mut session, mut out) = (Session::default(), Vec::new());
        let progress = session.answer(input, &replies(), &mut out);
        (String::from_utf8(out).unwrap(), progress)
    }

    #[test]
    fn the_target_says_how_large_the_body_is() {
        let (text, progress) = told(b"GET /5 HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (first, second) = text.split_once("xxxxx").unwrap();
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains("Content-Length: 5\r\n"), "{first}");
        assert!(second.contains("Content-Length: 3\r\n") && second.ends_with("\r\n\r\n"), "{second}");
        assert_eq!(progress, Progress::Done);
        for wrong in ["/x", "/1048577", "/99999999", "/5?x"] {
            assert!(told(format!("GET {wrong} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).0.contains(" 404 "), "{wrong}");
        }
    }

    #[test]
    fn requests_are_counted_and_may_come_in_pieces_with_a_body() {
        let input: &[u8] =
            b"POST /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET /requests HTTP/1.0\r\n\r\n";
        let (mut session, replies, mut out) = (Session::default(), replies(), Vec::new());
        let mut progress = Progress::Done;
        for byte in input {
            assert_eq!(progress, Progress::Done);
            progress = session.answer(&[*byte], &replies, &mut out);
        }
        assert_eq!(progress, Progress::Ended);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("Connection: close\r\n\r\n2"), "{text}");
    }

    #[test]
    fn a_broken_rule_ends_the_connection() {
        let (text, progress) = told(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        assert_eq!(progress, Progress::Ended);
    }

    #[test]
    fn what_is_pipelined_waits_while_enough_is_unsent() {
        let (mut session, replies, mut out) = (Session::default(), replies(), Vec::new());
        let requests = b"GET /1048576 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(9);
        let mut progress = session.answer(&requests, &replies, &mut out);
        let mut rounds = 1;
        while progress == Progress::Congested {
            assert!(out.len() < HIGH_WATER_BYTES + 2 * BODY_BYTES_MAX);
            out.clear();
            progress = session.answer(&[], &replies, &mut out);
            rounds += 1;
        }
        assert_eq!((progress, replies.stats.requests.load(Ordering::Relaxed)), (Progress::Done, 9));
        assert!(rounds > 1);
    }
}
