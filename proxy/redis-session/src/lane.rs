//! Lanes to servers, as a session names them, and the frames that come on them.

use weir_base::{
    error::Culprit,
    exchange::{FrameKind, Scan},
    violation::Violation,
};
use weir_resp::{ReplyFramer, Version};

use crate::users::OWN_LOGIN;

/// The properties that distinguish two lanes to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// The endpoint, counted as in the settings of the upstream.
    pub shard: u16,
    /// As whom it logs in: the [key](crate::users::UpstreamLogin::key) of a user's own login, or the gateway's.
    pub login: u64,
    /// The selected database.
    pub db: u32,
    /// The protocol version; replies pass through unchanged, so it is the client's.
    pub version: Version,
    /// Its purpose.
    pub purpose: Purpose,
}

impl LaneKey {
    /// Data of database 0, as the gateway itself.
    pub fn new(shard: u16, version: Version) -> Self {
        Self { shard, login: OWN_LOGIN, db: 0, version, purpose: Purpose::Data }
    }
}

/// The purpose of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Reads and writes.
    #[default]
    Data,
    /// Reads at a replica, which in a cluster needs READONLY.
    Reads,
    /// Questions to a sentinel, which has no data.
    Sentinel,
}

/// The server's description of itself in the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// `redis`, `valkey`, …
    pub server: Vec<u8>,
    /// Its version.
    pub version: Vec<u8>,
    /// `master` or `replica`.
    pub role: Vec<u8>,
    /// The number that it gave this very connection; 0: it did not say.
    pub id: u64,
}

impl Default for ServerInfo {
    /// The assumed description of a server that does not know HELLO (Redis before 6).
    fn default() -> Self {
        Self { server: b"redis".to_vec(), version: b"5.0.0".to_vec(), role: b"master".to_vec(), id: 0 }
    }
}

/// The next piece of what a server says: up to the end of one frame, or all of `input`.
///
/// # Errors
/// The server broke the protocol.
#[inline]
pub fn scan(framer: &mut ReplyFramer, input: &[u8]) -> Result<Scan, Violation> {
    let weir_resp::Scan { taken, end } = framer.advance(input).map_err(upstream_violation)?;
    let (is_push, end) = match end {
        Some(kind) if kind.is_push() => (true, Some(FrameKind::Push)),
        Some(kind) if kind.is_error() => (false, Some(FrameKind::Error)),
        Some(_) => (false, Some(FrameKind::Reply)),
        None => (framer.first_byte() == Some(b'>'), None),
    };
    Ok(Scan { taken, is_push, end })
}

fn upstream_violation(error: weir_resp::ProtocolError) -> Violation {
    Violation::rule(error.reason(), Culprit::Upstream, error.to_string())
}
