//! A connection that moves to another process of the gateway, at an upgrade: its socket, and what its session knows.
//!
//! It moves in a moment in which every request has been answered and sent. Later bytes of the client wait
//! in the kernel, which knows nothing of processes, so nothing is lost and no client has to reconnect.

use std::rc::Rc;

use weir_base::connection::ConnectionDetails;
use weir_resp::Version;

use crate::{
    access::UserChange, io::Io, ordering::ReplyMode, session::Session, settings::RedisListenerSettings, spares::Spares,
    state::State,
};

/// Bytes of a command begun that a session may take along. Default 16 KiB: one received chunk. One with more of it is read
/// on until the command is whole and answered.
pub const MOVED_INPUT_BYTES_MAX: usize = 16 * 1024;

/// The state of a session between two commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedSession {
    /// It has shown the password, or needs none.
    pub is_authenticated: bool,
    /// Its user had restrictions.
    pub is_restricted: bool,
    /// Wrong passwords so far.
    pub auth_failures: u32,
    /// Replies are wanted.
    pub wants_replies: bool,
    /// The reply to the next command is not.
    pub skips_next_reply: bool,
    /// The number of the protocol version: 2 or 3.
    pub version: u8,
    /// The fields of CLIENT LIST. Their database is that of the session.
    pub details: ConnectionDetails,
    /// The beginning of a command whose end has not come.
    pub input: Vec<u8>,
}

impl Session {
    /// Nothing binds the session to this process but replies that are due: it can move when they are out.
    pub fn may_move(&self) -> bool {
        let state = &self.state;
        let is_free = state.transaction.is_none()
            && state.pins.is_none()
            && state.parked.is_none()
            && state.pin_result.is_none()
            && state.tunnel.is_none()
            && !state.is_subscriber()
            && state.tracking.is_none()
            && !self.is_streaming()
            && !state.is_watch_broken;
        let goes_on = !state.is_closing && !state.is_ended && !state.is_cut && !self.is_violated();
        is_free && goes_on && self.held() <= MOVED_INPUT_BYTES_MAX
    }

    /// They are out.
    pub fn moves_now(&self) -> bool {
        self.may_move() && self.is_quiet() && !self.state.is_redirecting() && self.state.changes_db.is_none()
    }

    /// The state that moves along; the session here is of no further use. `details` are those of the connection's entry;
    /// their version, users and pins do not travel.
    pub fn depart(&mut self, details: ConnectionDetails) -> MovedSession {
        let input = self.take_input();
        let state = &self.state;
        let details = ConnectionDetails { db: Some(state.db), ..details };
        MovedSession {
            is_authenticated: state.is_authenticated,
            is_restricted: state.is_watched,
            auth_failures: state.auth_failures,
            wants_replies: state.order.mode != ReplyMode::Off,
            skips_next_reply: state.order.mode == ReplyMode::SkipNext,
            version: state.version.number(),
            details,
            input,
        }
    }

    /// A session that has come from another process. Its input comes as received bytes, and who its client is has to be
    /// settled: see [`Session::settle_user`].
    pub fn from_moved(settings: Rc<RedisListenerSettings>, spares: Rc<Spares>, moved: &MovedSession) -> Self {
        let mut session = Self::new(settings, spares);
        let state: &mut State = &mut session.state;
        // Open sessions keep what they have shown, as at a reload.
        state.is_authenticated = moved.is_authenticated;
        state.limits.authenticated = moved.is_authenticated;
        state.auth_failures = moved.auth_failures;
        state.version = Version::from_number(i64::from(moved.version)).unwrap_or(Version::Resp2);
        state.db = moved.details.db.unwrap_or_default();
        state.order.mode = match (moved.wants_replies, moved.skips_next_reply) {
            (_, true) => ReplyMode::SkipNext,
            (true, false) => ReplyMode::On,
            (false, false) => ReplyMode::Off,
        };
        session
    }

    /// The client is who it was in the other process, by the rules of this one. False if it has to go, as at a reload.
    pub fn settle_user(&mut self, moved: &MovedSession, io: &impl Io) -> bool {
        self.state.settle_user(&moved.details.user, moved.is_restricted, io) == UserChange::Stays
    }
}
