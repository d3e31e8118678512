//! Bytes of a connection that are received and not spent yet.

use std::{
    io,
    task::{Context, Poll, ready},
};

use weir_engine::{Chunk, Reader};

/// More memory than this is freed once it is empty: a long head is rare.
const SAVED_BYTES_MAX: usize = 4 * 1024;

/// Received and not spent. It stays in the chunk that it came in; only what is no whole head yet is copied out of it, to wait
/// for the rest.
#[derive(Default)]
pub(crate) struct Input {
    chunk: Option<Chunk>,
    /// Spent of the chunk.
    at: usize,
    /// Bytes before the chunk that belong to the same message.
    saved: Vec<u8>,
    is_ended: bool,
}

impl Input {
    /// The received bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.chunk {
            Some(chunk) => &chunk[self.at..],
            None => &self.saved,
        }
    }

    /// The first `count` bytes are spent.
    pub(crate) fn spend(&mut self, count: usize) {
        match &self.chunk {
            Some(chunk) => {
                self.at += count;
                if self.at == chunk.len() {
                    self.chunk = None;
                }
            }
            None if count == self.saved.len() => {
                self.saved.clear();
                self.saved.shrink_to(SAVED_BYTES_MAX);
            }
            None => drop(self.saved.drain(..count)),
        }
    }

    /// The peer has closed its direction, and everything before is here or spent.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Waits for more; 0 once the peer has closed its direction. Received bytes stay in front.
    pub(crate) fn poll_more(&mut self, reader: &mut Reader, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_ended {
            return Poll::Ready(Ok(0));
        }
        let Some(chunk) = ready!(reader.poll_receive(context))? else {
            self.is_ended = true;
            return Poll::Ready(Ok(0));
        };
        let count = chunk.len();
        self.release_chunk();
        if self.saved.is_empty() {
            (self.chunk, self.at) = (Some(chunk), 0);
        } else {
            self.saved.extend_from_slice(&chunk);
        }
        Poll::Ready(Ok(count))
    }

    /// Takes all that is not spent.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.release_chunk();
        std::mem::take(&mut self.saved)
    }

    /// Lets go of the chunk: its buffer is for who receives next.
    pub(crate) fn release_chunk(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.saved.extend_from_slice(&chunk[self.at..]);
        }
    }
}
