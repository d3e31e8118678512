//! Replies of one command, appended to the connection's output and never larger than the limit.

use weir_resp::{Version, encode};

use super::errors::Refusal;

/// Appends one reply. Strings past the limit are left out and the reply counts as overflown: the dispatcher then puts
/// an error in its place, so that `MGET big big big …` cannot hold more than one message's bytes.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    /// Where the reply to this request begins.
    start: usize,
    bytes_max: usize,
    version: Version,
    is_overflown: bool,
}

impl<'a> Reply<'a> {
    pub fn new(out: &'a mut Vec<u8>, bytes_max: usize, version: Version) -> Self {
        let start = out.len();
        Self { out, start, bytes_max, version, is_overflown: false }
    }

    /// Sets the RESP version of the replies that follow (`HELLO`).
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The place of the next byte; see [`Reply::rewind`].
    pub fn mark(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was appended since `mark`.
    pub fn rewind(&mut self, mark: usize) {
        self.out.truncate(mark.max(self.start));
        self.is_overflown = false;
    }

    pub fn is_overflown(&self) -> bool {
        self.is_overflown
    }

    /// Bytes of the reply so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Appends what the reply holds so far once more.
    pub fn repeat(&mut self) {
        self.out.extend_from_within(self.start..);
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.len() + bytes <= self.bytes_max;
        self.is_overflown |= !has_room;
        has_room
    }

    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    pub fn simple(&mut self, text: &str) {
        encode::simple(self.out, text);
    }

    pub fn error(&mut self, refusal: &Refusal) {
        encode::error(self.out, refusal.text());
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        encode::integer(self.out, value);
    }

    /// A number of things.
    pub fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            encode::bulk(self.out, bytes);
        }
    }

    /// A string, or null.
    #[inline]
    pub fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub fn null(&mut self) {
        encode::null_bulk(self.out, self.version);
    }

    pub fn null_array(&mut self) {
        encode::null_array(self.out, self.version);
    }

    pub fn array(&mut self, elements: usize) {
        encode::array(self.out, elements);
    }

    pub fn map(&mut self, pairs: usize) {
        encode::map(self.out, pairs, self.version);
    }

    pub fn set(&mut self, elements: usize) {
        encode::set(self.out, elements, self.version);
    }

    pub fn push(&mut self, elements: usize) {
        encode::push(self.out, elements, self.version);
    }

    pub fn verbatim(&mut self, text: &[u8]) {
        if self.has_room(text.len()) {
            encode::verbatim(self.out, *b"txt", text, self.version);
        }
    }

    /// Bytes that are RESP already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.has_room(bytes.len()) {
            self.out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_stops_growing_at_its_limit_whatever_came_before_it() {
        let mut out = vec![b'x'; 100];
        let mut reply = Reply::new(&mut out, 64, Version::Resp2);
        for _ in 0..1_000 {
            reply.bulk(&[b'a'; 30]);
        }
        assert!(reply.is_overflown() && reply.len() < 80);
        reply.rewind(100);
        reply.ok();
        reply.repeat();
        assert_eq!(out[100..], *b"+OK\r\n+OK\r\n");
    }
}
