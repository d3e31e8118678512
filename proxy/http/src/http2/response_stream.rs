//! A response on its way out on a stream.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, server::SendResponse};
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields, ResponseHead};

use super::{
    body::{self, Outgoing},
    message,
};
use crate::{access_notes::SentBytes, body::BodyError, client::DisconnectWatch};

/// The response on its way to the client.
pub(crate) struct ResponseStream {
    stage: SendStage,
    /// Bytes of its body.
    sent: Rc<Cell<u64>>,
}

enum SendStage {
    /// Nothing of the final response was sent.
    BeforeHead(SendResponse<Bytes>),
    /// Its head was.
    Body(Outgoing),
    /// There is no more than a head.
    Over,
}

impl ResponseStream {
    pub(super) fn new(respond: SendResponse<Bytes>) -> Self {
        Self { stage: SendStage::BeforeHead(respond), sent: Rc::default() }
    }

    /// See [`Client::sent_bytes`](crate::client::Client::sent_bytes).
    pub(super) fn sent(&self) -> SentBytes {
        let sent = self.sent.clone();
        Box::new(move || sent.get())
    }

    /// An interim head.
    pub(super) fn interim(&mut self, head: &ResponseHead) {
        if let SendStage::BeforeHead(respond) = &mut self.stage {
            // See `ResponseStream::head`.
            let _ = respond.send_informational(message::response(head));
        }
    }

    /// The final head. It is not sent to a client that is gone, which is seen elsewhere.
    pub(super) fn head(&mut self, head: &ResponseHead, length: Option<BodyLength>, is_whole: bool) {
        let SendStage::BeforeHead(respond) = &mut self.stage else { return };
        let mut response = message::response(head);
        if let Some(BodyLength::Exact(length)) = length {
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.stage = match respond.send_response(response, is_whole) {
            Ok(stream) if !is_whole => SendStage::Body(Outgoing::new(stream)),
            _ => SendStage::Over,
        };
    }

    pub(super) fn whole(&mut self, head: &ResponseHead, length: Option<BodyLength>, body: &[u8]) {
        self.head(head, length, body.is_empty());
        if !body.is_empty() {
            self.data(body);
            self.end(None);
        }
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        let SendStage::Body(outgoing) = &mut self.stage else { return };
        self.sent.set(self.sent.get() + data.len() as u64);
        outgoing.data(data);
    }

    pub(super) fn end(&mut self, trailers: Option<&Fields>) {
        if let SendStage::Body(outgoing) = &mut self.stage {
            outgoing.end(trailers);
        }
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        match &mut self.stage {
            SendStage::BeforeHead(respond) => respond.send_reset(reason),
            SendStage::Body(outgoing) => outgoing.reset(reason),
            SendStage::Over => {}
        }
    }

    /// Sends what the client's window takes now.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        match &mut self.stage {
            SendStage::Body(outgoing) => outgoing.poll_flush(context),
            SendStage::BeforeHead(_) | SendStage::Over => Poll::Ready(true),
        }
    }

    /// Ready once the client has reset the stream, or is gone.
    pub(super) fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.stage {
            SendStage::BeforeHead(respond) => respond.poll_reset(context).map(drop),
            SendStage::Body(outgoing) => outgoing.poll_disconnected(context),
            SendStage::Over => Poll::Pending,
        }
    }
}

impl DisconnectWatch for &RefCell<ResponseStream> {
    fn poll_disconnected(&self, context: &mut Context<'_>) -> Poll<()> {
        self.borrow_mut().poll_disconnected(context)
    }
}

/// Sends all that is there.
pub(super) async fn flush(out: &RefCell<ResponseStream>, deadline: &Deadline) -> Result<(), BodyError> {
    let flush = |poll: &mut dyn FnMut(&mut Outgoing) -> Poll<bool>| match &mut out.borrow_mut().stage {
        SendStage::Body(outgoing) => poll(outgoing),
        SendStage::BeforeHead(_) | SendStage::Over => Poll::Ready(true),
    };
    body::flush(flush, deadline).await
}
