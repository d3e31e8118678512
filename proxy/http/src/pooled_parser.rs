//! Parsers of heads whose memory serves the next message, of any connection of the worker.
//!
//! A parser per connection would keep the memory of its last head while the connection is idle, and 256 connections in turns would find
//! none of theirs in the CPU's cache.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
    thread::LocalKey,
};

use weir_http_codec::{RequestParser, ResponseParser};

/// Parsers of a kind that a worker keeps. Default 256, as many messages as a busy worker has begun and not ended: with 64, most requests of
/// 256 clients grew a head of their own, in four steps. Worst case 1 MiB of a kind.
const POOLED_MAX: usize = 256;
/// Room for a head that a kept parser may have. Default 4 KiB: most heads have a kilobyte or two. The room of a larger head would stay with
/// one stranger after the other, and clients could make it grow.
const ROOM_MAX: usize = 4 * 1024;

thread_local! {
    static REQUESTS: RefCell<Vec<RequestParser>> = const { RefCell::new(Vec::new()) };
    static RESPONSES: RefCell<Vec<ResponseParser>> = const { RefCell::new(Vec::new()) };
}

/// A kind of parser that a worker keeps.
pub(crate) trait Pool: Default + 'static {
    /// The parsers that the worker keeps.
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>>;

    /// Goes to the beginning of a message: the peer may have failed in the middle of a head.
    fn reset(&mut self);

    /// Bytes of memory that the parser has for a head.
    fn room(&self) -> usize;
}

impl Pool for RequestParser {
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>> {
        &REQUESTS
    }

    fn reset(&mut self) {
        RequestParser::reset(self);
    }

    fn room(&self) -> usize {
        RequestParser::room(self)
    }
}

impl Pool for ResponseParser {
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>> {
        &RESPONSES
    }

    fn reset(&mut self) {
        ResponseParser::reset(self);
    }

    fn room(&self) -> usize {
        ResponseParser::room(self)
    }
}

/// A parser at the beginning of a message. Dropped, it goes to those that the worker keeps.
pub(crate) struct PooledParser<P: Pool>(P);

impl<P: Pool> PooledParser<P> {
    pub(crate) fn from_pool() -> Self {
        Self(P::kept().with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl<P: Pool> Deref for PooledParser<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

impl<P: Pool> DerefMut for PooledParser<P> {
    fn deref_mut(&mut self) -> &mut P {
        &mut self.0
    }
}

impl<P: Pool> Drop for PooledParser<P> {
    fn drop(&mut self) {
        let mut parser = std::mem::take(&mut self.0);
        if parser.room() > ROOM_MAX {
            return;
        }
        parser.reset();
        // At the end of the thread there may be no pool any more.
        let _ = P::kept().try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < POOLED_MAX {
                kept.push(parser);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use weir_http_codec::HeadLimits;

    use super::*;

    fn kept() -> usize {
        REQUESTS.with_borrow(Vec::len)
    }

    #[test]
    fn a_parser_comes_back_at_the_beginning_of_a_message() {
        let mut parser = PooledParser::<RequestParser>::from_pool();
        let begun = parser.parse(b"GET / HTTP/1.1\r\nHost: a\r\n", &HeadLimits::default());
        assert!(matches!(begun, Ok(None)));
        drop(parser);
        assert_eq!(kept(), 1);
        let mut again = PooledParser::<RequestParser>::from_pool();
        assert_eq!(kept(), 0);
        assert!(again.is_idle());
        let whole = b"GET /b HTTP/1.1\r\nHost: b\r\n\r\n";
        assert!(matches!(again.parse(whole, &HeadLimits::default()), Ok(Some(used)) if used == whole.len()));
        assert_eq!(again.take().fields.len(), 1);
    }

    #[test]
    fn the_room_of_a_large_head_does_not_stay() {
        let mut parser = PooledParser::<RequestParser>::from_pool();
        let whole = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(ROOM_MAX));
        assert!(matches!(parser.parse(whole.as_bytes(), &HeadLimits::default()), Ok(Some(_))));
        let head = parser.take();
        parser.reuse(head);
        drop(parser);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn an_empty_line_of_one_client_is_not_that_of_the_next() {
        for broken in [&b"\r\n"[..], b"GET / HTTP/1.0\r\nHo", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"] {
            let mut parser = PooledParser::<RequestParser>::from_pool();
            let _ = parser.parse(broken, &HeadLimits::default());
            drop(parser);
            let mut next = PooledParser::<RequestParser>::from_pool();
            let whole = b"\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n";
            assert!(matches!(next.parse(whole, &HeadLimits::default()), Ok(Some(used)) if used == whole.len()));
            let head = next.take();
            assert_eq!((head.version(), head.fields.len()), (weir_http_codec::Version::Http11, 1));
        }
    }

    #[test]
    fn a_worker_keeps_so_many() {
        let all: Vec<_> = (0..=POOLED_MAX).map(|_| PooledParser::<RequestParser>::from_pool()).collect();
        drop(all);
        assert_eq!(kept(), POOLED_MAX);
    }
}
