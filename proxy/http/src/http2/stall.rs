//! A peer that takes nothing of what waits for it.

use std::task::{Context, Poll};

use weir_base::{limits, time::turn};
use weir_engine::{Deadline, Output};

use crate::body::TAKEN_BYTES_MIN;

/// Watches a peer while frames wait for it that no stream waits for: a stream has a deadline of its own.
pub(super) struct StallWatch {
    deadline: Deadline,
    /// Bytes that the peer's socket had taken when the deadline was set; `None`: nothing waits.
    progress: Option<u64>,
}

impl StallWatch {
    pub(super) fn new() -> Self {
        Self { deadline: weir_engine::deadline(), progress: None }
    }

    /// Ready once frames have waited for [`limits::WRITE_IDLE_TIMEOUT`], in which the peer has taken less than [`TAKEN_BYTES_MIN`].
    pub(super) fn poll_stalled(&mut self, output: &Output, is_waiting: bool, context: &mut Context<'_>) -> Poll<()> {
        if !is_waiting {
            self.progress = None;
            return Poll::Pending;
        }
        let is_over = match self.progress {
            Some(_) if self.deadline.poll_expired(context).is_pending() => return Poll::Pending,
            Some(progress) => output.progress() - progress < TAKEN_BYTES_MIN,
            None => false,
        };
        if is_over {
            return Poll::Ready(());
        }
        self.progress = Some(output.progress());
        self.deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        // It is woken only if it is polled.
        self.deadline.poll_expired(context)
    }
}
