//! The rules that hold for a session between two events, for a shell that plays it step by step.

use std::fmt;

use crate::{session::Session, state::Hold};

/// The lanes that a shell has for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLanes {
    /// The client has a lane of its own.
    pub is_pinned: bool,
    /// One was requested, and has not come.
    pub is_asked: bool,
    /// One is set aside.
    pub is_parked: bool,
}

impl Session {
    /// Half a frame was all the client could get: a lane was lost in the middle of it.
    pub fn is_cut(&self) -> bool {
        self.state.is_cut
    }

    /// Panics if a rule is broken.
    pub fn check(&self, lanes: HeldLanes) {
        let state = &self.state;
        let is_pinned = state.pins.is_some() || state.pin_result == Some(Ok(()));
        let (is_asked, is_parked) = (state.hold == Some(Hold::Pin), state.parked.is_some());
        let claimed = HeldLanes { is_pinned, is_asked, is_parked };
        assert_eq!(lanes, claimed, "session and shell agree on the lanes; one is waited for only if it will come");
        assert!(!is_parked || self.is_streaming() || !state.is_quiet(), "one is set aside for as long as it must");
        assert!(state.tunnel.is_none() || state.pins.is_some(), "a tunnel runs on a pinned lane");
        assert!(!state.is_quiet() || state.order.waiting_bytes() == 0, "no reply waits for nothing");
        assert!(!self.is_idle() || self.is_streaming() || self.is_bare(), "an idle session has no memory of others");
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.state;
        f.debug_struct("Session")
            .field("hold", &state.hold)
            .field("streaming", &state.streaming)
            .field("outstanding", &state.order.outstanding())
            .field("held", &self.held())
            .field("pins", &state.pins)
            .field("tunnel", &state.tunnel)
            .finish_non_exhaustive()
    }
}
