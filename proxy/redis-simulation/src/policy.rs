//! The resources that a world gives its session.

use weir_base::exchange::Refusal;
use weir_redis_session::io::{Full, Pinning};

/// Reaction of the world to requests of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Result of the next wish for a lane.
    pub pinning: Pinning,
    /// The resource that the core is short of.
    pub full: Option<Full>,
    /// Requests that the rate of the listener still lets pass.
    pub admits: u64,
    /// Result of requests on the shared lane.
    pub refusal: Option<Refusal>,
    /// The client has shown valid credentials, or needs none.
    pub is_trusted: bool,
    /// The client reads nothing.
    pub is_stalled: bool,
    /// Each command of this many is logged; 0: none.
    pub logs_every: u64,
}

impl Default for Policy {
    fn default() -> Self {
        let (full, refusal) = (None, None);
        let (is_trusted, is_stalled) = (true, false);
        Self { pinning: Pinning::Later, full, admits: u64::MAX, refusal, is_trusted, is_stalled, logs_every: 0 }
    }
}
