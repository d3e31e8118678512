//! A hello that waits for a change: monitors of drivers learn of it at once, and hold nothing but their own connection.
//!
//! Source: "Server Monitoring" of the driver specifications: the reply comes at once if the client knows another run of the server
//! or an older version, otherwise with the next change or when its time is over.

use std::time::Duration;

use weir_base::time::Time;
use weir_mongodb_codec::message::Flags;

use crate::face::TopologyVersion;
use crate::hello::HelloRequest;
use crate::refusal::Refusal;
use crate::request::{Asker, Request};

/// The longest wait that a client gets, whatever it wants. Drivers want 10 seconds.
pub const AWAIT_MAX: Duration = Duration::from_secs(60);

/// The shortest time between two replies of a stream without a change, whatever the client wants: drivers never ask more often. Default
/// 500 ms. Without it one request would be a flood of replies.
pub const STREAM_AWAIT_MIN: Duration = Duration::from_millis(500);

/// A hello that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// The message that the next reply answers: the request, or in a stream the reply before.
    pub(crate) asker: Asker,
    /// The reply has `ismaster`.
    pub(crate) is_legacy: bool,
    /// Another reply follows each reply.
    is_stream: bool,
    known: TopologyVersion,
    time: Duration,
    deadline: Time,
}

impl Awaited {
    /// Whether a reply has to wait; `None`: it is due now.
    ///
    /// # Errors
    /// The client knows a version that is ahead of this run's.
    pub(crate) fn new(
        request: &Request<'_>,
        hello: &HelloRequest<'_>,
        present: Option<TopologyVersion>,
        now: Time,
    ) -> Result<Option<Awaited>, Refusal> {
        let (Some((known, await_ms)), Some(present)) = (hello.awaited, present) else { return Ok(None) };
        let is_stream = request.flags.contains(Flags::EXHAUST_ALLOWED);
        if known.process_id == present.process_id && known.counter > present.counter {
            return Err(Refusal::hello("'topologyVersion' is ahead of the server's"));
        }
        let is_due = known != present;
        if is_due && !is_stream {
            return Ok(None);
        }
        let least = if is_stream { STREAM_AWAIT_MIN } else { Duration::ZERO };
        let time = Duration::from_millis(await_ms as u64).clamp(least, AWAIT_MAX);
        let deadline = if is_due { now } else { now.saturating_add(time) };
        let (asker, is_legacy) = (request.asker(), hello.is_legacy);
        Ok(Some(Awaited { asker, is_legacy, is_stream, known, time, deadline }))
    }

    /// When the reply is due without a change.
    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    pub(crate) fn is_due(&self, present: Option<TopologyVersion>, now: Time) -> bool {
        now >= self.deadline || present != Some(self.known)
    }

    /// The flags of the reply that is due.
    pub(crate) fn flags(&self) -> Flags {
        if self.is_stream { Flags::MORE_TO_COME } else { Flags::empty() }
    }

    /// The wait that goes on behind a reply with this id; `None`: nothing any more.
    pub(crate) fn after(self, reply: i32, present: Option<TopologyVersion>, now: Time) -> Option<Awaited> {
        let known = present.filter(|_| self.is_stream)?;
        let asker = Asker { id: reply, ..self.asker };
        Some(Awaited { asker, known, deadline: now.saturating_add(self.time), ..self })
    }
}
