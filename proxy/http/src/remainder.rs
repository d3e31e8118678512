//! The remainder of a response whose client has left: it is read on for its filter, within limits, and goes nowhere.

use std::{
    cell::{Cell, RefCell},
    future::{Future as _, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
};

use weir_base::time::turn;
use weir_engine::Deadline;
use weir_http_codec::{BodyLength, Fields, ResponseHead};
use weir_listener::RosterEntry;

use crate::{
    body::{BodyError, Sink},
    client::ResponseSink,
    connection::{Connection, EndWaker},
    request_context::RequestContext,
    upgrade::RequestedUpgrade,
};

/// Whether the client of an attempt is there, and what is read without it.
pub(crate) struct Remainder<'a> {
    connection: &'a Connection,
    request: &'a RequestContext,
    /// The origin has the whole request.
    is_uploaded: &'a Cell<bool>,
    /// Bytes of the body that may still come. `None`: the client is there.
    room: Cell<Option<u64>>,
    /// In a box: few exchanges need it.
    waits: RefCell<Option<Box<Waits>>>,
}

/// The events that end the reading.
struct Waits {
    deadline: Deadline,
    end_waker: Rc<EndWaker>,
    _listed: RosterEntry<EndWaker>,
}

impl<'a> Remainder<'a> {
    pub(crate) fn new(connection: &'a Connection, request: &'a RequestContext, is_uploaded: &'a Cell<bool>) -> Self {
        Self { connection, request, is_uploaded, room: Cell::new(None), waits: RefCell::new(None) }
    }

    /// The client has left, and its response is read on.
    pub(crate) fn is_read(&self) -> bool {
        self.room.get().is_some()
    }

    /// The client has left. Whether the rest of its response is read on: its filter decides, once.
    pub(crate) fn begin(&self) -> bool {
        let Self { request, connection, .. } = *self;
        if self.is_read() {
            return true;
        }
        if request.is_call || request.upgrade != RequestedUpgrade::None || !self.is_uploaded.get() {
            return false;
        }
        let Some(filter_handle) = request.filter_handle.get().filter(|_| connection.handle.ending().is_none()) else {
            return false;
        };
        let Some(limits) = filter_handle.with(|filter| filter.client_left()) else { return false };
        let (end_waker, listed) = connection.end_waker();
        let deadline = weir_engine::deadline();
        deadline.set(turn::now().saturating_add(limits.timeout));
        *self.waits.borrow_mut() = Some(Box::new(Waits { deadline, end_waker, _listed: listed }));
        self.room.set(Some(limits.bytes_max));
        true
    }

    /// Ready once no more of it is read: its time is over, or the gateway ends the connection of the client.
    pub(crate) fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let waits = self.waits.borrow();
        let Some(Waits { deadline, end_waker, .. }) = waits.as_deref() else { return Poll::Pending };
        if end_waker.poll_ended(self.connection, context) {
            return Poll::Ready(());
        }
        deadline.poll_expired(context)
    }

    /// Takes so many bytes of the body in place of the client; false: the client is there.
    fn takes(&self, bytes: usize) -> bool {
        let Some(room) = self.room.get() else { return false };
        self.room.set(Some(room.saturating_sub(bytes as u64)));
        true
    }
}

/// The sink of a response, as long as its client is there.
pub(crate) struct ClientSink<'a, R> {
    pub(crate) sink: R,
    pub(crate) remainder: &'a Remainder<'a>,
}

impl<R: ResponseSink> ResponseSink for ClientSink<'_, R> {
    fn interim(&mut self, head: &ResponseHead) {
        if !self.remainder.is_read() {
            self.sink.interim(head);
        }
    }

    fn head(&mut self, head: &ResponseHead, length: BodyLength, is_uploaded: bool) -> bool {
        !self.remainder.is_read() && self.sink.head(head, length, is_uploaded)
    }
}

impl<R: Sink> Sink for ClientSink<'_, R> {
    fn data(&mut self, data: &[u8]) {
        if !self.remainder.takes(data.len()) {
            self.sink.data(data);
        }
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        if !self.remainder.is_read() {
            self.sink.end(trailers);
        }
    }

    fn last(&mut self, data: &[u8]) {
        if !self.remainder.takes(data.len()) {
            self.sink.last(data);
        }
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        let Self { sink, remainder } = self;
        let mut ready = pin!(sink.ready());
        poll_fn(|context| {
            if !remainder.is_read() {
                match ready.as_mut().poll(context) {
                    Poll::Ready(Err(BodyError::ReceiverGone)) if remainder.begin() => {}
                    other => return other,
                }
            }
            // Without room the origin is not read any more.
            Poll::Ready(if remainder.room.get() == Some(0) { Err(BodyError::ReceiverGone) } else { Ok(()) })
        })
        .await
    }
}
