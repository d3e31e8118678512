//! A response on its way out on a stream.

use std::{
    cell::Cell,
    rc::Rc,
    task::{Context, Poll},
};

use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields, ResponseHead};
use weir_http2_codec::ErrorCode;

use super::stream_handle::StreamHandle;
use crate::{access_notes::SentBytes, body::BodyError, client::DisconnectWatch};

/// The response on its way to the client. A stream that is gone takes nothing of it, which [`ResponseStream::flush`] tells.
pub(crate) struct ResponseStream {
    stream: Rc<StreamHandle>,
    /// It has got its end.
    is_ended: Cell<bool>,
    /// Bytes of its body.
    sent: Rc<Cell<u64>>,
}

impl ResponseStream {
    pub(super) fn new(stream: Rc<StreamHandle>) -> Self {
        Self { stream, is_ended: Cell::new(false), sent: Rc::default() }
    }

    /// See [`Client::sent_bytes`](crate::client::Client::sent_bytes).
    pub(super) fn sent(&self) -> SentBytes {
        let sent = self.sent.clone();
        Box::new(move || sent.get())
    }

    /// A head, an interim one or the last. `is_whole`: no body follows.
    pub(super) fn head(&self, head: &ResponseHead, length: Option<BodyLength>, is_whole: bool) {
        let length = if let Some(BodyLength::Exact(length)) = length { Some(length) } else { None };
        let _ = self.stream.with(|codec, stream| codec.send_response(stream, head, length, is_whole));
        self.is_ended.set(is_whole && !head.is_interim());
    }

    pub(super) fn whole(&self, head: &ResponseHead, length: Option<BodyLength>, body: &[u8]) {
        self.head(head, length, body.is_empty());
        if !body.is_empty() {
            self.data(body);
            self.end(None);
        }
    }

    pub(super) fn data(&self, data: &[u8]) {
        self.sent.set(self.sent.get() + data.len() as u64);
        self.stream.data(data);
    }

    pub(super) fn end(&self, trailers: Option<&Fields>) {
        self.is_ended.set(true);
        self.stream.end(trailers);
    }

    /// All of it was sent.
    fn is_sent(&self) -> bool {
        self.is_ended.get() && self.stream.queued() == 0
    }

    /// Some of it has to wait, or the stream is gone.
    pub(super) fn is_blocked(&self) -> bool {
        self.stream.queued() > 0 || self.stream.received().reset.is_some()
    }

    /// Breaks it off, behind the bytes that the client's window lets through.
    pub(super) fn reset(&self, code: ErrorCode) {
        if !self.is_sent() {
            self.stream.reset(code);
        }
    }

    /// Sends all that is there.
    pub(super) async fn flush(&self, deadline: &Deadline) -> Result<(), BodyError> {
        self.stream.flush(deadline).await
    }
}

impl DisconnectWatch for &ResponseStream {
    /// Ready once the client has reset the stream, or is gone.
    fn poll_disconnected(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.is_sent() {
            true => Poll::Pending,
            false => self.stream.poll_reset(context).map(drop),
        }
    }
}
