//! Bodies as HTTP/2 has them, in either direction.

use std::{
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use weir_base::{limits, time::turn};
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields};

use super::{
    flow::{FlowAccount, SHORT_TIMEOUT, StreamAccount},
    message,
};
use crate::body::{BodyError, Sink, TAKEN_BYTES_MIN};

/// Smaller pieces are joined. Default 4 KiB, a quarter of the frames of most senders.
const SMALL_BYTES: usize = 4 * 1024;

/// A body on its way in, as far as it has come.
pub(super) struct Incoming {
    body: RecvStream,
    part: StreamAccount,
    is_request: bool,
    /// Longest pause.
    pub(super) idle_timeout: Duration,
    pub(super) current: Bytes,
    /// Pieces behind it that arrived while no sink took them.
    queued: QueuedPieces,
    trailers: Option<Fields>,
    /// It is over, except for `current`.
    is_over: bool,
}

impl Incoming {
    /// The body of a message; `length`, if that is known.
    pub(super) fn new(body: RecvStream, length: BodyLength, idle_timeout: Duration, account: Rc<FlowAccount>) -> Self {
        let length = if let BodyLength::Exact(length) = length { Some(length) } else { None };
        // Each look at the stream takes the lock of its connection.
        let is_over = body.is_end_stream();
        let part = StreamAccount::new(account, length, is_over);
        let (current, queued) = (Bytes::new(), QueuedPieces::default());
        Self { body, part, is_request: false, idle_timeout, current, queued, trailers: None, is_over }
    }

    /// The body of a request, which may wait long before anybody wants it.
    pub(super) fn of_request(
        body: RecvStream,
        length: BodyLength,
        idle_timeout: Duration,
        account: Rc<FlowAccount>,
    ) -> Self {
        let mut incoming = Self::new(body, length, idle_timeout, account);
        incoming.is_request = true;
        if !incoming.is_over {
            incoming.part.enter(&mut incoming.body);
            incoming.part.expect_body();
        }
        incoming
    }

    /// See [`crate::body::Source::poll_arrived`]. Takes small frames together: `h2` ends a connection on which too many of them wait. The
    /// queue stays within the window of the stream, which is not renewed before the bytes are passed on.
    pub(super) fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        if self.is_done() {
            return Poll::Pending;
        }
        if self.part.enter(&mut self.body).poll_given_up(context).is_ready() {
            return Poll::Ready(BodyError::Evicted);
        }
        while !self.queued.is_end && !self.is_over && !self.body.is_end_stream() {
            match self.body.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => {
                    self.queued.add(data);
                    // The end may stand in an empty frame: the sink has yet to get it.
                    self.queued.is_end = self.body.is_end_stream();
                }
                // A client that has reset the stream wants no response.
                Poll::Ready(Some(Err(_))) if self.is_request => return Poll::Ready(BodyError::Cancelled),
                // The error shows again when the queue is passed on.
                Poll::Ready(Some(Err(_)) | None) => self.queued.is_end = true,
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    /// Nothing more will arrive. [`Incoming::fill`] passes on an end that is in the queue.
    fn is_received(&self) -> bool {
        self.queued.is_empty() && !self.queued.is_end && self.body.is_end_stream()
    }

    /// See [`crate::body::Source::is_held_back`].
    pub(super) fn is_held_back(&self) -> bool {
        self.part.is_short()
    }

    /// The trailers behind it.
    pub(super) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// See [`crate::body::Source::is_done`].
    pub(super) fn is_done(&self) -> bool {
        self.current.is_empty() && (self.is_over || self.is_received())
    }

    /// See [`crate::body::Source::fill`].
    pub(super) async fn fill(&mut self, deadline: &Deadline) -> Result<(), BodyError> {
        if !self.current.is_empty() {
            return Ok(());
        }
        deadline.set(turn::now().saturating_add(self.idle_timeout));
        let mut was_held_back = false;
        poll_fn(|context| {
            if let Poll::Ready(filled) = self.poll_fill(context) {
                return Poll::Ready(filled);
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

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while self.current.is_empty() && !self.is_over {
            match ready!(self.poll_data(context)) {
                Some(Ok(data)) => self.current = data,
                Some(Err(_)) => return Poll::Ready(Err(BodyError::Cancelled)),
                None => {
                    let Ok(trailers) = ready!(self.body.poll_trailers(context)) else {
                        return Poll::Ready(Err(BodyError::Cancelled));
                    };
                    self.trailers = trailers.as_ref().map(message::trailers);
                    self.is_over = true;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next piece, apart from the ways of a body with an end; `None`: there is no more.
    pub(super) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        match self.queued.take() {
            Some(data) => Poll::Ready(Some(Ok(data))),
            None if self.body.is_end_stream() => {
                self.part.over();
                Poll::Ready(None)
            }
            None => self.body.poll_data(context),
        }
    }

    /// Returns `count` bytes to the windows.
    pub(super) fn release(&mut self, count: usize) {
        self.part.taken(count);
        // A stream that is gone needs no window.
        let _ = self.body.flow_control().release_capacity(count);
    }

    /// See [`crate::body::Source::pass`].
    pub(super) fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        let data = std::mem::take(&mut self.current);
        self.release(data.len());
        self.is_over |= self.is_received();
        if self.is_over {
            self.part.over();
        }
        match (self.is_over, &self.trailers) {
            (false, _) => sink.data(&data),
            (true, None) => sink.last(&data),
            (true, trailers) => {
                sink.data(&data);
                sink.end(trailers.as_ref());
            }
        }
        Ok(())
    }
}

/// Extension of a pause that has lasted for all of `idle_timeout`: a client that was held back meanwhile may have
/// waited for the gateway.
fn grace(idle_timeout: Duration, was_held_back: bool) -> Option<Duration> {
    was_held_back.then(|| idle_timeout.max(SHORT_TIMEOUT))
}

/// Pieces of a body that wait.
#[derive(Default)]
struct QueuedPieces {
    pieces: VecDeque<Bytes>,
    /// Small ones together, behind `pieces`: each would keep what it was received in.
    small: BytesMut,
    is_end: bool,
}

impl QueuedPieces {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.small.is_empty()
    }

    fn add(&mut self, data: Bytes) {
        if data.len() < SMALL_BYTES {
            self.small.extend_from_slice(&data);
            return;
        }
        if !self.small.is_empty() {
            self.pieces.push_back(self.small.split().freeze());
        }
        self.pieces.push_back(data);
    }

    fn take(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front();
        piece.or_else(|| (!self.small.is_empty()).then(|| std::mem::take(&mut self.small).freeze()))
    }
}

/// A body on its way out. Bytes beyond the peer's window wait here, and their sender waits with them.
pub(super) struct Outgoing {
    stream: SendStream<Bytes>,
    pending: BytesMut,
    /// The end behind `pending`.
    ending: Option<Ending>,
    is_over: bool,
}

/// The end of a body.
enum Ending {
    Data,
    Trailers(HeaderMap),
}

impl Outgoing {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, pending: BytesMut::new(), ending: None, is_over: false }
    }

    /// A piece of it. Nothing is sent before [`Outgoing::poll_flush`], so that small pieces go together.
    pub(super) fn data(&mut self, data: &[u8]) {
        self.pending.extend_from_slice(data);
    }

    /// There is no more of it.
    pub(super) fn end(&mut self, trailers: Option<&Fields>) {
        self.ending = Some(match trailers {
            Some(trailers) => Ending::Trailers(message::map(trailers)),
            None => Ending::Data,
        });
    }

    /// Sends what is there as the peer takes it; false if it takes nothing any more.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while !self.is_over {
            let is_sent = if self.pending.is_empty() {
                match self.ending.take() {
                    None => break,
                    Some(ending) => {
                        self.is_over = true;
                        match ending {
                            Ending::Data => self.stream.send_data(Bytes::new(), true),
                            Ending::Trailers(trailers) => self.stream.send_trailers(trailers),
                        }
                    }
                }
            } else {
                self.stream.reserve_capacity(self.pending.len());
                let room = self.stream.capacity().min(self.pending.len());
                if room == 0 {
                    match ready!(self.stream.poll_capacity(context)) {
                        Some(Ok(_)) => continue,
                        Some(Err(_)) | None => return Poll::Ready(false),
                    }
                }
                let piece = self.pending.split_to(room).freeze();
                self.is_over = self.pending.is_empty() && matches!(self.ending, Some(Ending::Data));
                self.stream.send_data(piece, self.is_over)
            };
            if is_sent.is_err() {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        if !self.is_over {
            self.is_over = true;
            self.stream.send_reset(reason);
        }
    }

    /// Ready once the peer has reset the stream, or is gone.
    pub(super) fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.is_over {
            true => Poll::Pending,
            false => self.stream.poll_reset(context).map(drop),
        }
    }
}

/// Sends everything. Gives up a peer that takes less than [`TAKEN_BYTES_MIN`] in [`limits::WRITE_IDLE_TIMEOUT`].
pub(super) async fn flush(
    outgoing: impl Fn(&mut dyn FnMut(&mut Outgoing) -> Poll<bool>) -> Poll<bool>,
    deadline: &Deadline,
) -> Result<(), BodyError> {
    let (mut left, mut has_stalled) = (usize::MAX, false);
    deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
    let is_sent = poll_fn(|context| {
        let flushed = outgoing(&mut |outgoing| {
            let flushed = outgoing.poll_flush(context);
            if outgoing.pending.len() as u64 + TAKEN_BYTES_MIN <= left as u64 {
                left = outgoing.pending.len();
                deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
            }
            flushed
        });
        match flushed {
            Poll::Ready(is_sent) => Poll::Ready(is_sent),
            Poll::Pending => deadline.poll_expired(context).map(|()| {
                has_stalled = true;
                false
            }),
        }
    });
    match is_sent.await {
        true => Ok(()),
        false if has_stalled => Err(BodyError::ReceiverStalled),
        false => Err(BodyError::ReceiverGone),
    }
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
