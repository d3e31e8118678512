//! Bodies as HTTP/2 has them, in either direction.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use weir_base::{limits, time::turn};
use weir_engine::Deadline;
use weir_http_codec::Fields;

use super::message;
use crate::relay::{Broken, Sink, TAKEN_BYTES_MIN};

/// A body on its way in, as far as it has come.
pub(super) struct Incoming {
    body: RecvStream,
    /// How long it may pause.
    pub(super) idle_timeout: Duration,
    pub(super) current: Bytes,
    trailers: Option<Fields>,
    /// It is over, but for `current`.
    is_over: bool,
}

impl Incoming {
    pub(super) fn new(body: RecvStream, idle_timeout: Duration) -> Self {
        Self { body, idle_timeout, current: Bytes::new(), trailers: None, is_over: false }
    }

    /// What came behind it.
    pub(super) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// See [`crate::relay::Source::is_done`].
    pub(super) fn is_done(&self) -> bool {
        self.current.is_empty() && (self.is_over || self.body.is_end_stream())
    }

    /// See [`crate::relay::Source::fill`].
    pub(super) async fn fill(&mut self, deadline: &Deadline) -> Result<(), Broken> {
        if !self.current.is_empty() {
            return Ok(());
        }
        deadline.set(turn::now().saturating_add(self.idle_timeout));
        poll_fn(|context| match self.poll_fill(context) {
            Poll::Ready(filled) => Poll::Ready(filled),
            Poll::Pending => deadline.poll_expired(context).map(|()| Err(Broken::Idle)),
        })
        .await
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while self.current.is_empty() && !self.is_over {
            let data = match self.body.is_end_stream() {
                true => None,
                false => ready!(self.body.poll_data(context)),
            };
            match data {
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
        match self.body.is_end_stream() {
            true => Poll::Ready(None),
            false => self.body.poll_data(context),
        }
    }

    /// So many bytes were spent.
    pub(super) fn release(&mut self, count: usize) {
        // A stream that is gone needs no window.
        let _ = self.body.flow_control().release_capacity(count);
    }

    /// See [`crate::relay::Source::pass`].
    pub(super) fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        let data = std::mem::take(&mut self.current);
        self.release(data.len());
        self.is_over |= self.body.is_end_stream();
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
