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

/// Parsers of a kind that a worker keeps. Default 64, as many messages as a worker has begun and not ended at most times; each holds a head
/// of a kilobyte or two.
const POOLED_MAX: usize = 64;

thread_local! {
    static REQUESTS: RefCell<Vec<RequestParser>> = const { RefCell::new(Vec::new()) };
    static RESPONSES: RefCell<Vec<ResponseParser>> = const { RefCell::new(Vec::new()) };
}

/// A parser of which a worker keeps some.
pub(crate) trait Pool: Default + 'static {
    /// Those that the worker keeps.
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>>;

    /// Makes it forget what it has seen, for the peer may have failed in the middle of a head.
    fn reset(&mut self);
}

impl Pool for RequestParser {
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>> {
        &REQUESTS
    }

    fn reset(&mut self) {
        RequestParser::reset(self);
    }
}

impl Pool for ResponseParser {
    fn kept() -> &'static LocalKey<RefCell<Vec<Self>>> {
        &RESPONSES
    }

    fn reset(&mut self) {
        ResponseParser::reset(self);
    }
}

/// A parser at the beginning of a message. Dropped, it goes to those that the worker keeps.
pub(crate) struct PooledParser<P: Pool>(P);

impl<P: Pool> PooledParser<P> {
    pub(crate) fn take() -> Self {
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
        let mut parser = PooledParser::<RequestParser>::take();
        let begun = parser.parse(b"GET / HTTP/1.1\r\nHost: a\r\n", &HeadLimits::default());
        assert!(matches!(begun, Ok(None)));
        drop(parser);
        assert_eq!(kept(), 1);
        let mut again = PooledParser::<RequestParser>::take();
        assert_eq!(kept(), 0);
        assert!(again.is_idle());
        let whole = b"GET /b HTTP/1.1\r\nHost: b\r\n\r\n";
        assert!(matches!(again.parse(whole, &HeadLimits::default()), Ok(Some(used)) if used == whole.len()));
        assert_eq!(again.take().fields.len(), 1);
    }

    #[test]
    fn a_worker_keeps_so_many() {
        let all: Vec<_> = (0..=POOLED_MAX).map(|_| PooledParser::<RequestParser>::take()).collect();
        drop(all);
        assert_eq!(kept(), POOLED_MAX);
    }
}
