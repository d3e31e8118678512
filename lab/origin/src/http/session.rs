//! From received bytes to replies.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use weir_http_codec::{
    BodyDecoder, BodyLength, BodyLimits, HeadLimits, Known, RequestHead, RequestParser, WireError, encode,
};
use weir_websocket_codec::handshake;

use super::{connection::HIGH_WATER_BYTES, echo::Echo, target::requested_body};
use crate::server::{WorkerStats, add};

/// The facts that every reply repeats.
const FIELDS: &[u8] = b"Server: weir-origin\r\nContent-Type: text/plain\r\n";
const REQUESTS: &[u8] = b"/requests";

/// Data for the responses of all connections of one worker.
pub struct Replies {
    /// The longest body that was requested so far: each reply has its beginning.
    body: RefCell<Vec<u8>>,
    payload: usize,
    pub connections_max: usize,
    /// Before each reply.
    pub delay: Duration,
    pub stats: Arc<WorkerStats>,
}

/// A reply whose head is still to be written.
pub struct Reply<'a> {
    pub status: u16,
    /// The body's beginning.
    pub word: &'a [u8],
    /// Bytes of the body, the word included.
    pub size: usize,
}

impl Replies {
    pub fn new(payload: usize, connections_max: usize, delay: Duration, stats: Arc<WorkerStats>) -> Self {
        Self { body: RefCell::default(), payload, connections_max, delay, stats }
    }

    /// An error, after which the connection ends.
    pub fn refuse(status: u16, out: &mut Vec<u8>) {
        encode::status_line(status, b"", out);
        out.extend_from_slice(FIELDS);
        encode::framing(BodyLength::Exact(0), out);
        encode::field(b"Connection", b"close", out);
        encode::end_of_head(out);
    }

    /// The reply to a request for `target`, which is counted; `count` is room for a number.
    pub fn reply<'a>(&self, target: &'a [u8], count: &'a mut String) -> Reply<'a> {
        add(&self.stats.requests, 1);
        match requested_body(target, self.payload) {
            Some(requested_body) => Reply { status: 200, word: requested_body.word, size: requested_body.size },
            None if target == REQUESTS => {
                *count = self.stats.requests.load(Ordering::Relaxed).to_string();
                Reply { status: 200, word: count.as_bytes(), size: count.len() }
            }
            None => Reply { status: 404, word: b"", size: 0 },
        }
    }

    /// The body of a reply as one piece.
    pub fn body_of(&self, reply: &Reply<'_>) -> Bytes {
        let mut body = Vec::with_capacity(reply.size);
        self.write_body(reply, &mut body);
        body.into()
    }

    fn write_body(&self, reply: &Reply<'_>, out: &mut Vec<u8>) {
        let filling = reply.size - reply.word.len();
        let mut body = self.body.borrow_mut();
        if body.len() < filling {
            body.resize(filling, b'x');
        }
        out.extend_from_slice(reply.word);
        out.extend_from_slice(&body[..filling]);
    }

    fn respond(&self, head: &RequestHead, out: &mut Vec<u8>) {
        let mut count = String::new();
        let reply = self.reply(head.target(), &mut count);
        encode::status_line(reply.status, b"", out);
        out.extend_from_slice(FIELDS);
        encode::framing(BodyLength::Exact(reply.size as u64), out);
        if !head.is_persistent() {
            encode::field(b"Connection", b"close", out);
        } else if head.options().keep_alive {
            encode::field(b"Connection", b"keep-alive", out);
        }
        encode::end_of_head(out);
        if head.method() != b"HEAD" {
            self.write_body(&reply, out);
        }
    }
}

/// The key of a wish for a WebSocket (RFC 6455 section 4.2.1); `None`: it is an ordinary request.
fn websocket_key(head: &RequestHead) -> Option<&[u8]> {
    let is_wish = head.options().upgrade
        && head.method() == b"GET"
        && head.fields.get(Known::Upgrade).is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"));
    if !is_wish || head.fields.all_named(b"sec-websocket-version").next() != Some(handshake::VERSION) {
        return None;
    }
    head.fields.all_named(b"sec-websocket-key").next().filter(|key| handshake::is_key(key))
}

/// How far the input was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All whole requests.
    Done,
    /// Requests remain, because enough is waiting to be sent: call [`Session::respond`] again when it has left.
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
    /// Behind a 101.
    echo: Option<Echo>,
}

impl Session {
    /// Responds to the requests that `chunk` completes.
    pub fn respond(&mut self, chunk: &[u8], replies: &Replies, out: &mut Vec<u8>) -> Progress {
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
                Err(Broken) => return (input.len(), Progress::Ended),
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

    /// Takes a head and writes its response, or takes a piece of a body, or a frame. `None`: incomplete. On an error the reply
    /// has been written.
    fn one(&mut self, input: &[u8], replies: &Replies, out: &mut Vec<u8>) -> Result<Option<usize>, Broken> {
        if let Some(echo) = &mut self.echo {
            let stepped = echo.step(input, out).map_err(|_| Broken)?;
            self.is_last = echo.is_closed();
            return Ok(stepped.map(|stepped| {
                add(&replies.stats.requests, u64::from(stepped.is_message));
                stepped.taken
            }));
        }
        self.request(input, replies, out).map_err(|error| {
            Replies::refuse(error.status(), out);
            Broken
        })
    }

    fn request(&mut self, input: &[u8], replies: &Replies, out: &mut Vec<u8>) -> Result<Option<usize>, WireError> {
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
        if let Some(key) = websocket_key(&head) {
            upgrade(key, out);
            self.echo = Some(Echo::default());
            return Ok(Some(taken));
        }
        if head.expects_continue() {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        replies.respond(&head, out);
        self.is_last = !head.is_persistent();
        self.body = Some(BodyDecoder::new(head.body())).filter(|body| !body.is_done());
        self.parser.reuse(head);
        Ok(Some(taken))
    }
}

/// The client broke a rule, and has its response.
struct Broken;

/// The 101 behind which frames come.
fn upgrade(key: &[u8], out: &mut Vec<u8>) {
    encode::status_line(101, b"", out);
    encode::field(b"Upgrade", b"websocket", out);
    encode::field(b"Connection", b"Upgrade", out);
    encode::field(b"Sec-WebSocket-Accept", handshake::accept(key).as_bytes(), out);
    encode::end_of_head(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::settings::BODY_BYTES_MAX;

    fn replies() -> Replies {
        Replies::new(3, 1, Duration::ZERO, Arc::default())
    }

    fn replies_to(input: &[u8]) -> (String, Progress) {
        let (mut session, mut out) = (Session::default(), Vec::new());
        let progress = session.respond(input, &replies(), &mut out);
        (String::from_utf8(out).unwrap(), progress)
    }

    #[test]
    fn the_target_says_how_large_the_body_is() {
        let (text, progress) = replies_to(b"GET /5 HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (first, second) = text.split_once("xxxxx").unwrap();
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains("Content-Length: 5\r\n"), "{first}");
        assert!(second.contains("Content-Length: 3\r\n") && second.ends_with("\r\n\r\n"), "{second}");
        assert_eq!(progress, Progress::Done);
        for wrong in ["/x", "/1048577", "/99999999", "/5?x"] {
            assert!(
                replies_to(format!("GET {wrong} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).0.contains(" 404 "),
                "{wrong}"
            );
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
            progress = session.respond(&[*byte], &replies, &mut out);
        }
        assert_eq!(progress, Progress::Ended);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("Connection: close\r\n\r\n2"), "{text}");
    }

    #[test]
    fn a_body_begins_with_the_word_of_its_target_and_frames_follow_an_upgrade() {
        let (text, _) = replies_to(b"GET /6/abc HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.contains("Content-Length: 6\r\n") && text.ends_with("\r\n\r\nabcxxx"), "{text}");
        let wish = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let frames = b"\x81\x82\0\0\0\0hi\x88\x80\0\0\0\0";
        let (mut session, replies, mut out) = (Session::default(), replies(), Vec::new());
        let progress = session.respond(&[&wish[..], frames].concat(), &replies, &mut out);
        assert_eq!(progress, Progress::Ended);
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("HTTP/1.1 101 ") && text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text}");
        assert!(out.ends_with(b"\r\n\r\n\x81\x02hi\x88\0"), "{text}");
        assert_eq!(replies.stats.requests.load(Ordering::Relaxed), 1);
        // Without a key it is a request like any other.
        let (text, _) = replies_to(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }

    #[test]
    fn a_broken_rule_ends_the_connection() {
        let (text, progress) = replies_to(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        assert_eq!(progress, Progress::Ended);
    }

    #[test]
    fn pipelined_requests_wait_while_enough_is_unsent() {
        let (mut session, replies, mut out) = (Session::default(), replies(), Vec::new());
        let requests = b"GET /1048576 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(9);
        let mut progress = session.respond(&requests, &replies, &mut out);
        let mut rounds = 1;
        while progress == Progress::Congested {
            assert!(out.len() < HIGH_WATER_BYTES + 2 * BODY_BYTES_MAX);
            out.clear();
            progress = session.respond(&[], &replies, &mut out);
            rounds += 1;
        }
        assert_eq!((progress, replies.stats.requests.load(Ordering::Relaxed)), (Progress::Done, 9));
        assert!(rounds > 1);
    }
}
