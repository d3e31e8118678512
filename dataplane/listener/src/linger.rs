//! The end of a connection that the gateway closes first.

use std::time::Duration;

use weir_engine::{Stream, timeout};

/// The patience with a client whose connection is over.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    /// The time in which the client must take some of the bytes that wait for it, until all have left. Zero: they have
    /// [`Linger::limit`].
    pub stalled: Duration,
    /// The time until the client closes.
    pub limit: Duration,
    /// Bytes that the client may still send.
    pub bytes_max: u64,
}

impl Linger {
    /// Sends the rest, and waits for the client to close. Unread bytes of the client would turn a close into
    /// a reset, and destroy the last response with it.
    pub async fn close(self, mut stream: Stream) {
        stream.finish();
        if !self.stalled.is_zero() && !stream.output.drained(self.stalled).await {
            return;
        }
        let discarded = async {
            let mut left = self.bytes_max;
            while let Ok(Some(chunk)) = stream.reader.receive().await {
                // A client that still floods gets no more attention.
                let Some(rest) = left.checked_sub(chunk.len() as u64) else { break };
                left = rest;
            }
        };
        // A client that does not close in time loses the response.
        let _ = timeout(self.limit, discarded).await;
        stream.close(self.limit).await;
    }
}
