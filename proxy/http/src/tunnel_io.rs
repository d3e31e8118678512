//! The ends of a tunnel: their readers and writers; those of a connection of its own.

use std::{
    io,
    task::{Context, Poll},
};

use weir_engine::{Deadline, Output, Reader};
use weir_http_codec::{ResponseHead, encode};

use crate::{
    body::{BodyError, output_ready},
    http1_body::receive,
    input::Input,
};

/// Reads the bytes of one end.
pub(crate) trait TunnelReader {
    /// The received bytes.
    fn bytes(&self) -> &[u8];

    /// The first `count` bytes are spent.
    fn spend(&mut self, count: usize);

    /// Nothing is looked at for a while.
    fn release_chunk(&mut self);

    /// Waits for more; 0 once there is none. `None`: the deadline has passed.
    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>>;

    /// Ready once it is reset or given up, while nothing is received.
    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<BodyError>;
}

/// Writes bytes to one end.
pub(crate) trait TunnelWriter {
    /// Sends the response that accepts the upgrade.
    fn accept_upgrade(&self, head: &ResponseHead);

    /// More of it.
    fn append(&self, bytes: &[u8]);

    /// It has to be waited for, or is gone.
    fn is_full(&self) -> bool;

    /// Waits until it has room.
    async fn ready(&self, deadline: &Deadline) -> Result<(), BodyError>;

    /// There is no more.
    fn finish(&self);
}

/// One end, as the exchange before the tunnel leaves it.
pub(crate) struct TunnelIo<'a, I, O> {
    pub(crate) tunnel_reader: I,
    pub(crate) tunnel_writer: O,
    /// Deadline of this end.
    pub(crate) deadline: &'a Deadline,
    /// Deadline of the other end.
    pub(crate) other_deadline: &'a Deadline,
}

/// Reads the tunnel's bytes from a connection.
pub(crate) struct Http1TunnelReader<'a> {
    reader: &'a mut Reader,
    input: &'a mut Input,
}

impl<'a> Http1TunnelReader<'a> {
    pub(crate) fn new(reader: &'a mut Reader, input: &'a mut Input) -> Self {
        Self { reader, input }
    }
}

impl TunnelReader for Http1TunnelReader<'_> {
    fn bytes(&self) -> &[u8] {
        self.input.bytes()
    }

    fn spend(&mut self, count: usize) {
        self.input.spend(count);
    }

    fn release_chunk(&mut self) {
        self.input.release_chunk();
    }

    async fn receive(&mut self, deadline: &Deadline) -> Option<io::Result<usize>> {
        receive(self.reader, self.input, deadline).await
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.reader.peer_watch().poll_broken(context).map(|()| BodyError::Truncated)
    }
}

/// Writes the tunnel's bytes to a connection, behind a 101.
pub(crate) struct Http1TunnelWriter<'a>(pub(crate) &'a Output);

impl TunnelWriter for Http1TunnelWriter<'_> {
    fn accept_upgrade(&self, head: &ResponseHead) {
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

    async fn ready(&self, deadline: &Deadline) -> Result<(), BodyError> {
        output_ready(self.0, deadline).await
    }

    fn finish(&self) {
        self.0.finish();
    }
}
