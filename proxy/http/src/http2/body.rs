//! Bodies as HTTP/2 has them, in either direction.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use weir_base::time::turn;
use weir_engine::Deadline;
use weir_http_codec::Fields;

use super::message;
use crate::relay::{Broken, Sink};

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

    /// See [`crate::relay::Source::pass`].
    pub(super) fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        let data = std::mem::take(&mut self.current);
        // A stream that is gone needs no window.
        let _ = self.body.flow_control().release_capacity(data.len());
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

/// Ready when the peer takes more of a stream: true, or false if it takes nothing any more.
pub(super) fn poll_room(stream: &mut SendStream<Bytes>, context: &mut Context<'_>) -> Poll<bool> {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(context)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(false),
        }
    }
    Poll::Ready(true)
}
