//! Bodies on their way in.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use weir_base::time::turn;
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields};

use super::{
    flow::{SHORT_TIMEOUT, StreamAccount},
    stream_handle::StreamHandle,
};
use crate::{
    body::{BodyError, Sink},
    limits::BODY_PIECE_BYTES,
};

/// A body on its way in, as far as it has come.
pub(super) struct Incoming {
    stream: Rc<StreamHandle>,
    account: StreamAccount,
    is_request: bool,
    /// Longest pause.
    pub(super) idle_timeout: Duration,
    data: Vec<u8>,
    /// Spent of `data`.
    at: usize,
    /// Bytes that were passed on, and not given back to the windows: the receiver may have no room behind them.
    passed: usize,
    trailers: Option<Fields>,
    /// It is over, except for `data`.
    is_over: bool,
}

impl Incoming {
    /// The body of a message; `length`, if that is known. `is_over`: there is none.
    pub(super) fn new(stream: Rc<StreamHandle>, length: BodyLength, is_over: bool, idle_timeout: Duration) -> Self {
        let length = if let BodyLength::Exact(length) = length { Some(length) } else { None };
        let account = StreamAccount::new(stream.machine.account.clone(), length, is_over);
        let (is_request, data, at, passed, trailers) = (false, Vec::new(), 0, 0, None);
        Self { stream, account, is_request, idle_timeout, data, at, passed, trailers, is_over }
    }

    /// The body of a request, which may wait long before it is wanted.
    pub(super) fn of_request(
        stream: Rc<StreamHandle>,
        length: BodyLength,
        is_over: bool,
        idle_timeout: Duration,
    ) -> Self {
        let mut incoming = Self::new(stream, length, is_over, idle_timeout);
        incoming.is_request = true;
        if !is_over {
            incoming.account.enter(incoming.stream.id);
            incoming.account.expect_body();
        }
        incoming
    }

    /// Bytes that were received and not spent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data[self.at..]
    }

    /// The first `count` bytes are spent: they are given back to the windows.
    pub(super) fn spend(&mut self, count: usize) {
        self.at += count;
        self.release(count);
    }

    /// See [`crate::body::Source::poll_arrived`].
    pub(super) fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        if self.is_done() {
            return Poll::Pending;
        }
        self.account.enter(self.stream.id);
        // In any case: to be given up wakes it too.
        self.stream.register_reader(context);
        if self.account.is_given_up() {
            return Poll::Ready(BodyError::Evicted);
        }
        let reset = self.stream.poll_reset(context);
        // A client that has reset the stream wants no response. Bytes that an origin has sent before go on.
        if self.is_request && reset.is_ready() { Poll::Ready(BodyError::Cancelled) } else { Poll::Pending }
    }

    /// See [`crate::body::Source::is_held_back`].
    pub(super) fn is_held_back(&self) -> bool {
        self.account.is_short()
    }

    /// The trailers behind it.
    pub(super) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// See [`crate::body::Source::is_done`].
    pub(super) fn is_done(&self) -> bool {
        self.is_over && self.bytes().is_empty()
    }

    /// See [`crate::body::Source::fill`].
    pub(super) async fn fill(&mut self, deadline: &Deadline) -> Result<(), BodyError> {
        if self.is_over || !self.bytes().is_empty() {
            return Ok(());
        }
        deadline.set(turn::now().saturating_add(self.idle_timeout));
        let mut was_held_back = false;
        poll_fn(|context| {
            if let Poll::Ready(filled) = self.poll_more(context) {
                return Poll::Ready(filled.map(drop));
            }
            was_held_back |= self.is_request && self.is_held_back();
            if deadline.poll_expired(context).is_pending() {
                return Poll::Pending;
            }
            let Some(more) = grace(self.idle_timeout, std::mem::take(&mut was_held_back)) else {
                return Poll::Ready(Err(BodyError::TimedOut));
            };
            deadline.set(turn::now().saturating_add(more));
            // It is woken only if it is polled.
            deadline.poll_expired(context).map(|()| Err(BodyError::TimedOut))
        })
        .await
    }

    /// Waits for more, behind the bytes that are not spent; 0 at the end of the body. It is a piece at most: the codec has the rest, as part
    /// of the windows, until the receiver has room.
    pub(super) fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, BodyError>> {
        self.forget_spent();
        self.release_passed();
        let count = self.stream.take_data(&mut self.data, BODY_PIECE_BYTES);
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        if self.take_end() {
            return Poll::Ready(Ok(0));
        }
        if self.data.is_empty() {
            // A body that pauses holds no buffer.
            self.data = Vec::new();
        }
        let _ = ready!(self.stream.poll_reset(context));
        Poll::Ready(Err(BodyError::Cancelled))
    }

    /// The peer has ended the stream, and all of it was taken.
    fn take_end(&mut self) -> bool {
        let received = self.stream.received();
        if !self.is_over && received.is_end && received.bytes == 0 {
            self.trailers = self.stream.take_trailers();
            self.is_over = true;
            self.account.over();
        }
        self.is_over
    }

    fn forget_spent(&mut self) {
        self.data.drain(..std::mem::take(&mut self.at));
    }

    /// The receiver of what was passed on has room for more.
    fn release_passed(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        self.release(passed);
    }

    /// Returns `count` bytes to the windows.
    fn release(&mut self, count: usize) {
        if count > 0 {
            self.account.taken(count);
            self.stream.with(|codec, stream| codec.release(stream, count));
        }
    }

    /// See [`crate::body::Source::pass`].
    pub(super) fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        self.passed += self.data.len();
        if self.take_end() {
            self.release_passed();
        }
        match (self.is_over, &self.trailers) {
            (false, _) => sink.data(&self.data),
            (true, None) => sink.last(&self.data),
            (true, trailers) => {
                sink.data(&self.data);
                sink.end(trailers.as_ref());
            }
        }
        self.data.clear();
        if self.data.capacity() > BODY_PIECE_BYTES {
            self.data = Vec::new();
        }
        Ok(())
    }
}

/// Extension of a pause that has lasted for all of `idle_timeout`: a client that was held back meanwhile may have
/// waited for the gateway.
fn grace(idle_timeout: Duration, was_held_back: bool) -> Option<Duration> {
    was_held_back.then(|| idle_timeout.max(SHORT_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_the_gateway_holds_back_has_more_time() {
        let long = Duration::from_secs(30);
        assert_eq!(grace(long, true), Some(long));
        assert_eq!(grace(Duration::ZERO, true), Some(SHORT_TIMEOUT), "not again at once, for ever");
        assert_eq!(grace(long, false), None);
    }
}
