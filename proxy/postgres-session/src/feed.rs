//! The client's input while a session takes messages from it. Adjacent bytes for the server leave in one piece.

use crate::io::ToServer;
use crate::retry::Retry;

/// Input, and what became of it.
pub(crate) struct Feed<'a> {
    input: &'a [u8],
    /// Bytes from here to `at` go to the server, and have not yet.
    from: usize,
    at: usize,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input, from: 0, at: 0 }
    }

    /// Bytes without a decision.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.input[self.at..]
    }

    /// The next bytes go to the server.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next bytes go nowhere, or have gone in another form.
    #[inline]
    pub(crate) fn skip(&mut self, bytes: usize, retry: &mut Retry, io: &impl ToServer) {
        self.flush(retry, io);
        self.at += bytes;
        self.from = self.at;
    }

    /// Sends what is due. Nothing else may be sent to the server before.
    #[inline]
    pub(crate) fn flush(&mut self, retry: &mut Retry, io: &impl ToServer) {
        if self.from < self.at {
            let due = &self.input[self.from..self.at];
            retry.note(due);
            io.to_server(due);
            self.from = self.at;
        }
    }

    pub(crate) fn consumed(&self) -> usize {
        self.at
    }
}
