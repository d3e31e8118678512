//! One stream, as the tasks that read it and write to it have it.

use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

use weir_base::{limits, time::turn};
use weir_engine::Deadline;
use weir_http_codec::Fields;
use weir_http2_codec::{Connection, ErrorCode, Received, ResetCause, StreamId};

use super::machine::{Machine, ReceivedHead};
use crate::body::{BodyError, TAKEN_BYTES_MIN};

/// One stream, which is given up when the handle is dropped.
pub(super) struct StreamHandle {
    pub(super) machine: Rc<Machine>,
    pub(super) id: StreamId,
}

impl StreamHandle {
    /// A stream that has just begun.
    pub(super) fn new(machine: &Rc<Machine>, id: StreamId) -> Rc<Self> {
        machine.enter(id);
        Rc::new(Self { machine: machine.clone(), id })
    }

    /// Calls the codec with the stream.
    pub(super) fn with<R>(&self, call: impl FnOnce(&mut Connection, StreamId) -> R) -> R {
        self.machine.with(|codec| call(codec, self.id))
    }

    /// See [`Connection::received`].
    pub(super) fn received(&self) -> Received {
        self.machine.look(|codec| codec.received(self.id))
    }

    /// See [`Connection::take_data`].
    pub(super) fn take_data(&self, into: &mut Vec<u8>, most: usize) -> usize {
        self.with(|codec, id| codec.take_data(id, into, most))
    }

    /// See [`Connection::take_trailers`].
    pub(super) fn take_trailers(&self) -> Option<Fields> {
        self.with(Connection::take_trailers)
    }

    /// The next head of the response to a request.
    pub(super) fn take_head(&self) -> Option<ReceivedHead> {
        self.machine.take_head(self.id)
    }

    /// Wakes the task of `context` when something has arrived, or the stream has ended early.
    pub(super) fn register_reader(&self, context: &Context<'_>) {
        self.machine.register_reader(self.id, context);
    }

    /// Ready once the stream has ended early.
    pub(super) fn poll_reset(&self, context: &Context<'_>) -> Poll<ResetCause> {
        match self.received().reset {
            Some(cause) => Poll::Ready(cause),
            None => {
                self.register_reader(context);
                Poll::Pending
            }
        }
    }

    /// Sends data. A stream that is gone takes none, which [`StreamHandle::flush`] tells.
    pub(super) fn data(&self, data: &[u8]) {
        let _ = self.with(|codec, id| codec.send_data(id, data));
    }

    /// Sends the end of the data.
    pub(super) fn end(&self, trailers: Option<&Fields>) {
        // See `StreamHandle::data`.
        let _ = self.with(|codec, id| codec.send_end(id, trailers));
    }

    /// Resets the stream. Bytes that its peer's window lets through are sent before.
    pub(super) fn reset(&self, code: ErrorCode) {
        self.machine.send();
        self.with(|codec, id| codec.reset(id, code));
    }

    /// Bytes that were not sent yet.
    pub(super) fn queued(&self) -> usize {
        self.machine.look(|codec| codec.queued(self.id))
    }

    /// Waits until all data is sent. Gives up a peer that takes less than [`TAKEN_BYTES_MIN`] in [`limits::WRITE_IDLE_TIMEOUT`].
    pub(super) async fn flush(&self, deadline: &Deadline) -> Result<(), BodyError> {
        if self.queued() > 0 {
            self.machine.send();
        }
        let mut left = self.queued();
        if left > 0 {
            deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        }
        poll_fn(|context| {
            if self.received().reset.is_some() {
                return Poll::Ready(Err(BodyError::ReceiverGone));
            }
            let queued = self.queued();
            if queued == 0 {
                return Poll::Ready(Ok(()));
            }
            if queued as u64 + TAKEN_BYTES_MIN <= left as u64 {
                left = queued;
                deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
            }
            self.machine.register_writer(self.id, context);
            deadline.poll_expired(context).map(|()| Err(BodyError::ReceiverStalled))
        })
        .await
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.machine.forget(self.id);
    }
}
