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
    flow::{Account, Part, SHORT_TIMEOUT},
    message,
};
use crate::body::{Broken, Sink, TAKEN_BYTES_MIN};

/// Pieces below this are kept together. Default 4 KiB, a quarter of what most senders put into a frame.
const SMALL_BYTES: usize = 4 * 1024;

/// A body on its way in, as far as it has come.
pub(super) struct Incoming {
    body: RecvStream,
    part: Part,
    is_request: bool,
    /// How long it may pause.
    pub(super) idle_timeout: Duration,
    pub(super) current: Bytes,
    /// What came behind it while nobody could take it.
    kept: Kept,
    trailers: Option<Fields>,
    /// It is over, but for `current`.
    is_over: bool,
}

impl Incoming {
    /// The body of a message; `length`, if that is known.
    pub(super) fn new(body: RecvStream, length: BodyLength, idle_timeout: Duration, account: Rc<Account>) -> Self {
        let length = if let BodyLength::Exact(length) = length { Some(length) } else { None };
        // Each look at the stream takes the lock of its connection.
        let is_over = body.is_end_stream();
        let part = Part::new(account, length, is_over);
        let (current, kept) = (Bytes::new(), Kept::default());
        Self { body, part, is_request: false, idle_timeout, current, kept, trailers: None, is_over }
    }

    /// The body of a request, which may wait long before anybody wants it.
    pub(super) fn of_request(
        body: RecvStream,
        length: BodyLength,
        idle_timeout: Duration,
        account: Rc<Account>,
    ) -> Self {
        let mut incoming = Self::new(body, length, idle_timeout, account);
        incoming.is_request = true;
        if !incoming.is_over {
            incoming.part.enter(&mut incoming.body);
            incoming.part.expect_body();
        }
        incoming
    }

    /// See [`crate::body::Source::poll_arrived`]. Takes small frames together: `h2` ends a connection on which too many of them
    /// wait. What is kept is within the window of the stream, which gets nothing back before it is passed on.
    pub(super) fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        if self.is_done() {
            return Poll::Pending;
        }
        if self.part.enter(&mut self.body).poll_given_up(context).is_ready() {
            return Poll::Ready(Broken::GivenUp);
        }
        while !self.kept.is_end && !self.is_over && !self.body.is_end_stream() {
            match self.body.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => {
                    self.kept.add(data);
                    // The end may stand in an empty frame: the sink has yet to get it.
                    self.kept.is_end = self.body.is_end_stream();
                }
                // A client that has gone wants no answer.
                Poll::Ready(Some(Err(_))) if self.is_request => return Poll::Ready(Broken::Cancelled),
                // It is seen again when what was kept is passed on.
                Poll::Ready(Some(Err(_)) | None) => self.kept.is_end = true,
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    /// Nothing comes any more. An end that was taken in with what was kept is passed on by [`Incoming::fill`].
    fn is_received(&self) -> bool {
        self.kept.is_empty() && !self.kept.is_end && self.body.is_end_stream()
    }

    /// See [`crate::body::Source::is_held_back`].
    pub(super) fn is_held_back(&self) -> bool {
        self.part.is_short()
    }

    /// What came behind it.
    pub(super) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// See [`crate::body::Source::is_done`].
    pub(super) fn is_done(&self) -> bool {
        self.current.is_empty() && (self.is_over || self.is_received())
    }

    /// See [`crate::body::Source::fill`].
    pub(super) async fn fill(&mut self, deadline: &Deadline) -> Result<(), Broken> {
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
                return Poll::Ready(Err(Broken::Idle));
            };
            deadline.set(turn::now().saturating_add(more));
            // It is woken only if it is polled.
            deadline.poll_expired(context).map(|()| Err(Broken::Idle))
        })
        .await
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while self.current.is_empty() && !self.is_over {
            match ready!(self.poll_data(context)) {
                Some(Ok(data)) => self.current = data,
                Some(Err(_)) => return Poll::Ready(Err(Broken::Cancelled)),
                None => {
                    let Ok(trailers) = ready!(self.body.poll_trailers(context)) else {
                        return Poll::Ready(Err(Broken::Cancelled));
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
        match self.kept.take() {
            Some(data) => Poll::Ready(Some(Ok(data))),
            None if self.body.is_end_stream() => {
                self.part.over();
                Poll::Ready(None)
            }
            None => self.body.poll_data(context),
        }
    }

    /// So many bytes were spent.
    pub(super) fn release(&mut self, count: usize) {
        self.part.taken(count);
        // A stream that is gone needs no window.
        let _ = self.body.flow_control().release_capacity(count);
    }

    /// See [`crate::body::Source::pass`].
    pub(super) fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
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

/// How much longer a body may pause that has paused for all of `idle_timeout`: a client that was held back meanwhile may have
/// waited for the gateway.
fn grace(idle_timeout: Duration, was_held_back: bool) -> Option<Duration> {
    was_held_back.then(|| idle_timeout.max(SHORT_TIMEOUT))
}

/// Pieces of a body that wait.
#[derive(Default)]
struct Kept {
    pieces: VecDeque<Bytes>,
    /// Small ones together, behind `pieces`: each would keep what it was received in.
    small: BytesMut,
    is_end: bool,
}

impl Kept {
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

/// A body on its way out. What the peer's window does not take waits here, and its sender with it.
pub(super) struct Outgoing {
    stream: SendStream<Bytes>,
    pending: BytesMut,
    /// What follows `pending`: there is no more.
    ending: Option<Ending>,
    is_over: bool,
}

/// How a body ends.
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
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.is_over {
            true => Poll::Pending,
            false => self.stream.poll_reset(context).map(drop),
        }
    }
}

/// Sends all that is there; who takes less than [`TAKEN_BYTES_MIN`] in [`limits::WRITE_IDLE_TIMEOUT`] is given up.
pub(super) async fn flush(
    outgoing: impl Fn(&mut dyn FnMut(&mut Outgoing) -> Poll<bool>) -> Poll<bool>,
    deadline: &Deadline,
) -> Result<(), Broken> {
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
        false if has_stalled => Err(Broken::Stalled),
        false => Err(Broken::Untaken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_held_back_has_another_while_and_nobody_else() {
        let long = Duration::from_secs(30);
        assert_eq!(grace(long, true), Some(long));
        assert_eq!(grace(Duration::ZERO, true), Some(SHORT_TIMEOUT), "not again at once, for ever");
        assert_eq!(grace(long, false), None);
    }
}
