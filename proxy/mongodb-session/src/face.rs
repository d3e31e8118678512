//! The server that clients see. Nothing of the servers behind it shows: no hosts, no name of a set, no election.

use weir_mongodb_codec::compressed::Compressor;

/// The newest version of the wire protocol that the gateway knows: 8.0.
pub const WIRE_VERSION_MAX: i32 = 25;

/// The oldest version with OP_MSG: 3.6. Servers below it are of no use.
pub const WIRE_VERSION_MIN: i32 = 6;

/// Versions of the wire protocol, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireVersions {
    /// The oldest.
    pub min: i32,
    /// The newest.
    pub max: i32,
}

impl WireVersions {
    /// Those that the gateway knows.
    pub const KNOWN: WireVersions = WireVersions { min: 0, max: WIRE_VERSION_MAX };

    /// Those that both have; `None`: there is none.
    #[must_use]
    pub fn common(self, other: WireVersions) -> Option<WireVersions> {
        let both = WireVersions { min: self.min.max(other.min), max: self.max.min(other.max) };
        (both.min <= both.max).then_some(both)
    }

    /// A version of the server with this newest wire version, for clients that want to know it.
    #[must_use]
    pub const fn server_version(self) -> [i32; 4] {
        match self.max {
            25.. => [8, 0, 0, 0],
            22..=24 => [7, 1, 0, 0],
            21 => [7, 0, 0, 0],
            17..=20 => [6, 0, 0, 0],
            13..=16 => [5, 0, 0, 0],
            9..=12 => [4, 4, 0, 0],
            8 => [4, 2, 0, 0],
            7 => [4, 0, 0, 0],
            _ => [3, 6, 0, 0],
        }
    }
}

/// The kind of server that a client sees. It stays the same as long as the client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// A mongos: drivers discover nothing, send read preferences, and may use any of their connections for a cursor.
    Mongos,
    /// A service behind a load balancer, for clients that say `loadBalanced: true`: cursors and transactions stay on their connection.
    LoadBalancer,
    /// A server without a set: for one server that is none of a set, and has no transactions.
    Standalone,
}

/// The server that a listener presents. It changes with the servers behind it, except for the face of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    /// For clients that do not say `loadBalanced: true`: [`Face::Mongos`] or [`Face::Standalone`].
    pub face: Face,
    /// The service in load-balanced mode: stable while the gateway runs, and another one when it drains.
    pub service_id: [u8; 12],
    /// Versions that the gateway and every server behind it have: see [`WireVersions::common`].
    pub wire: WireVersions,
    /// Compressors that the gateway inflates, in its order. None: every message is plain.
    pub compressors: Vec<Compressor>,
    /// Minutes until a server forgets a logical session that is not used; `None`: the servers have none.
    pub session_timeout_minutes: Option<i32>,
    /// Streaming of hello to monitors; `None`: they poll.
    pub topology: Option<TopologyVersion>,
}

/// The version of the facts in hello: it grows with each change that clients should know at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyVersion {
    /// This run of the gateway.
    pub process_id: [u8; 12],
    /// Changes so far.
    pub counter: i64,
}

impl Presentation {
    /// The face for a client.
    #[must_use]
    pub const fn face_for(&self, is_load_balanced: bool) -> Face {
        if is_load_balanced { Face::LoadBalancer } else { self.face }
    }

    /// Compressors of the client's list that the gateway has, in the client's order.
    pub fn common_compressors(&self, wanted: impl Iterator<Item = Compressor>) -> Vec<Compressor> {
        let mut common = Vec::new();
        for compressor in wanted {
            if self.compressors.contains(&compressor) && !common.contains(&compressor) {
                common.push(compressor);
            }
        }
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_all_have() {
        let of = |min, max| WireVersions { min, max };
        assert_eq!(WireVersions::KNOWN.common(of(0, 21)), Some(of(0, 21)));
        assert_eq!(WireVersions::KNOWN.common(of(6, 29)), Some(of(6, 25)));
        assert_eq!(of(0, 8).common(of(9, 25)), None);
        assert_eq!((of(0, 25).server_version(), of(0, 21).server_version()), ([8, 0, 0, 0], [7, 0, 0, 0]));
    }
}
