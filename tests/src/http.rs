//! HTTP/1.1 as the tests see it: bytes as they are, and the end of a message found in the plainest way. Deliberately not the
//! codec under test.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::deadline::WAIT;
use crate::faulty::Words;
use crate::stream::{Address, Stream};

/// The first complete request of `buffer`: its head with the empty line, and what follows up to its end; and its length.
pub fn next_request(buffer: &[u8]) -> Option<(Words, usize)> {
    let head = find(buffer, b"\r\n\r\n")? + 4;
    let body = body_length(&buffer[..head], &buffer[head..])?;
    Some((vec![buffer[..head].to_vec(), buffer[head..head + body].to_vec()], head + body))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The value of a field in a head, if it is there.
pub fn field(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    text.lines().skip(1).find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// Length of the body behind a head that tells it, once all of it is there. A chunked one is as long as its bytes on the wire.
fn body_length(head: &[u8], rest: &[u8]) -> Option<usize> {
    if field(head, "transfer-encoding").is_some() {
        return chunked_length(rest);
    }
    let length = field(head, "content-length").map_or(0, |value| value.parse().expect("a length"));
    (rest.len() >= length).then_some(length)
}

fn chunked_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = find(&bytes[at..], b"\r\n")?;
        let digits = String::from_utf8_lossy(&bytes[at..at + line]).into_owned();
        let size = usize::from_str_radix(digits.split(';').next().unwrap_or(""), 16).expect("a chunk size");
        at += line + 2;
        if size == 0 {
            // Trailers, and the empty line.
            loop {
                let line = find(bytes.get(at..)?, b"\r\n")?;
                at += line + 2;
                if line == 0 {
                    return Some(at);
                }
            }
        }
        at += size + 2;
        if at > bytes.len() {
            return None;
        }
    }
}

/// The data of a chunked body that is whole.
pub fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(line) = find(bytes, b"\r\n") {
        let digits = String::from_utf8_lossy(&bytes[..line]).into_owned();
        let size = usize::from_str_radix(&digits, 16).expect("a chunk size");
        if size == 0 {
            break;
        }
        data.extend_from_slice(&bytes[line + 2..line + 2 + size]);
        bytes = &bytes[line + 2 + size + 2..];
    }
    data
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Status line and fields, with the empty line.
    pub head: Vec<u8>,
    /// The body as it came, chunks and all.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field, if it is there.
    pub fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }

    /// The body as text, chunks and all.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as text, without its chunks.
    pub fn content(&self) -> String {
        match self.field("transfer-encoding") {
            Some(_) => String::from_utf8_lossy(&unchunked(&self.body)).into_owned(),
            None => self.text(),
        }
    }
}

/// A raw client: it sends the given bytes.
pub struct HttpClient {
    stream: Stream,
    buffer: Vec<u8>,
}

impl HttpClient {
    /// Connects.
    ///
    /// # Panics
    /// If nothing listens there.
    pub fn connect(address: &Address) -> Self {
        Self::over(Stream::connect(address).expect("the gateway accepts"))
    }

    /// Over a connection that stands.
    pub fn over(stream: Stream) -> Self {
        stream.set_write_timeout(WAIT).expect("a time limit can be set");
        Self { stream, buffer: Vec::new() }
    }

    /// The connection.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If they cannot be sent.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the gateway takes the bytes");
    }

    /// Sends bytes to a gateway that may have closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// GET of a path, and its response.
    pub fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        self.response()
    }

    /// GET of a path, and its response; `None` if the connection ends first, or nothing comes in time.
    pub fn try_get(&mut self, path: &str) -> Option<Response> {
        let begun = Instant::now();
        let mut goes_on = self.try_send(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"));
        loop {
            if let Some(response) = self.take(false) {
                return Some(response);
            }
            let left = WAIT.saturating_sub(begun.elapsed());
            if !goes_on || left.is_zero() {
                return None;
            }
            goes_on = self.receive(left);
        }
    }

    /// The next response, to anything but HEAD.
    ///
    /// # Panics
    /// If it does not come whole.
    pub fn response(&mut self) -> Response {
        self.response_to(false)
    }

    /// The next response; one to HEAD has no body.
    ///
    /// # Panics
    /// If it does not come whole.
    pub fn response_to(&mut self, is_head: bool) -> Response {
        let begun = Instant::now();
        loop {
            if let Some(response) = self.take(is_head) {
                return response;
            }
            let left = WAIT.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "no whole response; so far:\n{}", self.seen());
            assert!(self.receive(left), "the connection ended within a response:\n{}", self.seen());
        }
    }

    /// Something of a response is there.
    pub fn has_response(&mut self) -> bool {
        if self.buffer.is_empty() {
            self.receive(Duration::from_millis(1));
        }
        !self.buffer.is_empty()
    }

    /// The beginning of what was received and not taken.
    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(2_000)]).into_owned()
    }

    fn take(&mut self, is_head: bool) -> Option<Response> {
        let end = find(&self.buffer, b"\r\n\r\n")? + 4;
        let head = self.buffer[..end].to_vec();
        let status = String::from_utf8_lossy(head.get(9..12)?).parse().expect("a status code");
        let has_body = !is_head && !matches!(status, 100..=199 | 204 | 304);
        let length = if has_body { body_length(&head, &self.buffer[end..])? } else { 0 };
        let body = self.buffer[end..end + length].to_vec();
        self.buffer.drain(..end + length);
        Some(Response { status, head, body })
    }

    /// Receives something within `limit`; false if the connection has ended.
    fn receive(&mut self, limit: Duration) -> bool {
        self.stream.set_read_timeout(limit).expect("a time limit can be set");
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => true,
            Err(_) => false,
        }
    }

    /// The next bytes, as many as requested.
    ///
    /// # Panics
    /// If they do not come.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        let begun = Instant::now();
        while self.buffer.len() < count {
            let left = WAIT.saturating_sub(begun.elapsed());
            assert!(!left.is_zero() && self.receive(left), "{count} bytes expected; so far: {:x?}", self.seen());
        }
        self.buffer.drain(..count).collect()
    }

    /// All that comes until the gateway closes.
    ///
    /// # Panics
    /// If it does not close in time.
    pub fn rest(&mut self) -> Vec<u8> {
        let begun = Instant::now();
        while self.receive(WAIT.saturating_sub(begun.elapsed()).max(Duration::from_millis(1))) {
            assert!(begun.elapsed() < WAIT, "the connection stayed open");
        }
        std::mem::take(&mut self.buffer)
    }

    /// Reads until the connection ends, however it does.
    pub fn to_end(&mut self) -> Vec<u8> {
        let begun = Instant::now();
        while begun.elapsed() < WAIT && self.receive(WAIT) {}
        std::mem::take(&mut self.buffer)
    }

    /// Nothing comes for `limit`, and the connection stays open.
    ///
    /// # Panics
    /// If something comes.
    pub fn expect_silence(&mut self, limit: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            assert!(self.receive(limit.saturating_sub(begun.elapsed()).max(Duration::from_millis(1))), "it closed");
            assert!(self.buffer.is_empty(), "{}", String::from_utf8_lossy(&self.buffer));
        }
    }
}
