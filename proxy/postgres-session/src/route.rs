//! Which server a statement may have.

use crate::session::Session;

/// What a session has seen and done that decides about its next server.
#[derive(Debug, Default)]
pub(crate) struct Route {
    /// A server has refused a statement because it only reads.
    pub(crate) saw_read_only: bool,
}

impl Session {
    /// A server has refused a statement with SQLSTATE 25006 since the last call: perhaps it is a standby.
    pub fn has_seen_read_only(&mut self) -> bool {
        std::mem::take(&mut self.route.saw_read_only)
    }
}
