//! The ends of a tunnel: where frames come from and where they go, on a connection of its own.

use std::{
    io,
    task::{Context, Poll},
};

use weir_engine::{Deadline, Output, Reader};
use weir_http_codec::{ResponseHead, encode};

use crate::{
    body::{Broken, relieved},
    input::Input,
    wire::receive,
};

/// Where frames come from.
pub(crate) trait Inlet {
    /// What is there.
    fn bytes(&self) -> &[u8];

    /// The first `count` bytes are spent.
    fn spend(&mut self, count: usize);

    /// Nothing is looked at for a while.
    fn keep(&mut self);

    /// Waits for more; 0 once there is none. `None`: the deadline has passed.
    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>>;

    /// Ready once it is reset or given up, while nothing is received.
    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<Broken>;
}

/// Where frames go.
pub(crate) trait Outlet {
    /// Tells that the tunnel stands.
    fn agree(&self, head: &ResponseHead);

    /// More of it.
    fn append(&self, bytes: &[u8]);

    /// It has to be waited for, or is gone.
    fn is_full(&self) -> bool;

    /// Waits until it has room.
    async fn relieved(&self, deadline: &Deadline) -> Result<(), Broken>;

    /// There is no more.
    fn finish(&self);
}

/// One end, as the exchange before the tunnel leaves it.
pub(crate) struct TunnelEnd<'a, I, O> {
    pub(crate) inlet: I,
    pub(crate) outlet: O,
    /// Of what this end does.
    pub(crate) deadline: &'a Deadline,
    /// Of what the other end does.
    pub(crate) other_deadline: &'a Deadline,
}

/// What comes from a connection.
pub(crate) struct WireInlet<'a> {
    reader: &'a mut Reader,
    input: &'a mut Input,
}

impl<'a> WireInlet<'a> {
    pub(crate) fn new(reader: &'a mut Reader, input: &'a mut Input) -> Self {
        Self { reader, input }
    }
}

impl Inlet for WireInlet<'_> {
    fn bytes(&self) -> &[u8] {
        self.input.bytes()
    }

    fn spend(&mut self, count: usize) {
        self.input.spend(count);
    }

    fn keep(&mut self) {
        self.input.keep();
    }

    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>> {
        receive(self.reader, self.input, deadline).await
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        self.reader.peer_watch().poll_broken(context).map(|()| Broken::Cut)
    }
}

/// What goes to a connection, behind a 101.
pub(crate) struct WireOutlet<'a>(pub(crate) &'a Output);

impl Outlet for WireOutlet<'_> {
    fn agree(&self, head: &ResponseHead) {
        self.0.with(|into| {
            encode::response(head, into);
            encode::field(b"Connection", b"Upgrade", into);
            encode::field(b"Upgrade", b"websocket", into);
            encode::end_of_head(into);
        });
    }

    fn append(&self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    fn is_full(&self) -> bool {
        self.0.is_congested() || self.0.is_closed()
    }

    async fn relieved(&self, deadline: &Deadline) -> Result<(), Broken> {
        relieved(self.0, deadline).await
    }

    fn finish(&self) {
        self.0.finish();
    }
}
