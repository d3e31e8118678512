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
use crate::{body::Broken, client::Watch, notes::SentBytes};

/// The answer's way to the client.
pub(crate) struct Out {
    stage: Stage,
    /// Bytes of its body.
    sent: Rc<Cell<u64>>,
}

enum Stage {
    /// Nothing of the final answer was sent.
    Silent(SendResponse<Bytes>),
    /// Its head was.
    Begun(Outgoing),
    /// There is no more than a head.
    Over,
}

impl Out {
    pub(super) fn new(respond: SendResponse<Bytes>) -> Self {
        Self { stage: Stage::Silent(respond), sent: Rc::default() }
    }

    /// See [`Client::sent_bytes`](crate::client::Client::sent_bytes).
    pub(super) fn sent(&self) -> SentBytes {
        let sent = self.sent.clone();
        Box::new(move || sent.get())
    }

    /// An interim head.
    pub(super) fn interim(&mut self, head: &ResponseHead) {
        if let Stage::Silent(respond) = &mut self.stage {
            // See `Out::head`.
            let _ = respond.send_informational(message::response(head));
        }
    }

    /// The final head. What cannot be sent any more is not: the client is gone then, which is seen elsewhere.
    pub(super) fn head(&mut self, head: &ResponseHead, length: Option<BodyLength>, is_whole: bool) {
        let Stage::Silent(respond) = &mut self.stage else { return };
        let mut response = message::response(head);
        if let Some(BodyLength::Exact(length)) = length {
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
        }
        self.stage = match respond.send_response(response, is_whole) {
            Ok(stream) if !is_whole => Stage::Begun(Outgoing::new(stream)),
            _ => Stage::Over,
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
        let Stage::Begun(outgoing) = &mut self.stage else { return };
        self.sent.set(self.sent.get() + data.len() as u64);
        outgoing.data(data);
    }

    pub(super) fn end(&mut self, trailers: Option<&Fields>) {
        if let Stage::Begun(outgoing) = &mut self.stage {
            outgoing.end(trailers);
        }
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        match &mut self.stage {
            Stage::Silent(respond) => respond.send_reset(reason),
            Stage::Begun(outgoing) => outgoing.reset(reason),
            Stage::Over => {}
        }
    }

    /// Sends what the client's window takes now.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        match &mut self.stage {
            Stage::Begun(outgoing) => outgoing.poll_flush(context),
            Stage::Silent(_) | Stage::Over => Poll::Ready(true),
        }
    }

    /// Ready once the client has reset the stream, or is gone.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.stage {
            Stage::Silent(respond) => respond.poll_reset(context).map(drop),
            Stage::Begun(outgoing) => outgoing.poll_gone(context),
            Stage::Over => Poll::Pending,
        }
    }
}

impl Watch for &RefCell<Out> {
    fn poll_gone(&self, context: &mut Context<'_>) -> Poll<()> {
        self.borrow_mut().poll_gone(context)
    }
}

/// Sends all that is there.
pub(super) async fn flush(out: &RefCell<Out>, deadline: &Deadline) -> Result<(), Broken> {
    let flush = |poll: &mut dyn FnMut(&mut Outgoing) -> Poll<bool>| match &mut out.borrow_mut().stage {
        Stage::Begun(outgoing) => poll(outgoing),
        Stage::Silent(_) | Stage::Over => Poll::Ready(true),
    };
    body::flush(flush, deadline).await
}
