//! Connections of HTTP/1.1 that no exchange has.
//!
//! A response ends where its framing says. Bytes that an origin writes behind that end would be taken for the response to the next
//! request, unless they arrive before it is sent: then they are seen here, and the connection is closed. A connection on which such
//! bytes are likely therefore rests before it serves again.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::time::Time;
use weir_engine::Stream;

use crate::exclusive_lane::Open;

/// How long a connection rests. 100 ms: what a server writes next to its first write arrives at once, or, as a small segment that
/// waits for the acknowledgement of the one before it (Nagle, RFC 9293 section 3.7.4), when the gateway's kernel sends that: Linux
/// delays it by 40 ms at the least; and there is the distance. Worst case: a connection per request to an endpoint whose
/// requests are all HEAD, `idle_max` of them every 100 ms at rest, the others closed.
const REST: Duration = Duration::from_millis(100);

/// Bytes that are found on a connection within this time of its last response came behind that response; later ones may be a
/// server's word that it closes an idle connection (408). Above the interval at which idle connections are looked at.
const BEHIND_RESPONSE: Duration = Duration::from_secs(2);

/// The state in which an exchange leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing: the response is whole and its framing says that nothing follows.
    Nothing,
    /// Perhaps a body: the response has none (HEAD, 204, 304), and its fields announce one.
    PerhapsBody,
    /// Bytes behind the response.
    Bytes,
}

/// A connection that no exchange has.
pub(crate) struct Idle {
    pub(crate) stream: Stream,
    pub(crate) since: Time,
    pub(crate) open: Open,
}

/// The state of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleCheck {
    /// Neither bytes nor an end.
    Silence,
    /// The server has closed it, or sent bytes a long time after its last response.
    Ended,
    /// Bytes behind the last response.
    Bytes,
}

impl Idle {
    /// Checks for bytes or an end since the last exchange.
    pub(crate) fn look(&mut self, now: Time) -> IdleCheck {
        if now == self.since {
            // It was given back in this very turn, before sockets were polled again.
            self.stream.reader.expect_more();
        }
        match self.stream.reader.poll_receive(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending if !self.stream.output.is_closed() => IdleCheck::Silence,
            Poll::Ready(Ok(Some(_))) if now.since(self.since) <= BEHIND_RESPONSE => IdleCheck::Bytes,
            _ => IdleCheck::Ended,
        }
    }
}

/// The idle connections of one endpoint.
#[derive(Default)]
pub(crate) struct IdlePool {
    /// The one used last is the next one taken: the others can grow old.
    ready: Vec<Idle>,
    /// In the order of their end.
    resting: VecDeque<Idle>,
}

impl IdlePool {
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.resting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one that is least likely to serve again.
    pub(crate) fn take_oldest(&mut self) -> Option<Idle> {
        self.resting.pop_front().or_else(|| (!self.ready.is_empty()).then(|| self.ready.remove(0)))
    }

    /// One that may serve at once.
    pub(crate) fn push(&mut self, idle: Idle) {
        self.ready.push(idle);
    }

    /// One that rests first.
    pub(crate) fn rest(&mut self, idle: Idle) {
        self.resting.push_back(idle);
    }

    /// One may serve at once, as far as is known without a look at it.
    pub(crate) fn has_ready(&self, now: Time) -> bool {
        !self.ready.is_empty() || self.resting.front().is_some_and(|first| now.since(first.since) >= REST)
    }

    /// The next one for an exchange, still to be looked at.
    pub(crate) fn take(&mut self, now: Time) -> Option<Idle> {
        while self.resting.front().is_some_and(|first| now.since(first.since) >= REST) {
            self.ready.extend(self.resting.pop_front());
        }
        self.ready.pop()
    }

    /// The one that has rested the longest, and not long enough.
    pub(crate) fn take_resting(&mut self) -> Option<Idle> {
        self.resting.pop_front()
    }

    /// All that are not fit to be kept, with what was found on them.
    pub(crate) fn take_unfit(&mut self, now: Time, idle_timeout: Duration) -> Vec<(Idle, IdleCheck)> {
        let mut unfit = Vec::new();
        for mut idle in std::mem::take(&mut self.ready) {
            match idle.look(now) {
                IdleCheck::Silence if now.since(idle.since) <= idle_timeout => self.ready.push(idle),
                found => unfit.push((idle, found)),
            }
        }
        for mut idle in std::mem::take(&mut self.resting) {
            match idle.look(now) {
                IdleCheck::Silence if now.since(idle.since) <= idle_timeout => self.resting.push_back(idle),
                found => unfit.push((idle, found)),
            }
        }
        unfit
    }

    /// The next look at each asks its socket, whatever the last poll of all sockets found.
    pub(crate) fn expect_ends(&mut self) {
        self.ready.iter_mut().chain(&mut self.resting).for_each(|idle| idle.stream.reader.expect_more());
    }

    /// All of them.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Idle> {
        self.ready.into_iter().chain(self.resting)
    }
}
