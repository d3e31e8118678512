//! Why a run ends before its last record.

use std::fmt;
use std::io;

use crate::part::TooFewShards;

/// Why there are no further records.
#[derive(Debug)]
pub enum RunError {
    /// The scenario cannot be run in so many parts.
    Shards(TooFewShards),
    /// A phase has connections of its own, and all phases of a load share theirs.
    Shape,
    /// A worker could not be started.
    Worker(io::Error),
    /// The target takes no connection. Nothing was sent.
    Unreachable {
        /// The target.
        target: String,
        /// Why.
        error: io::Error,
    },
    /// The target takes connections and does not speak the protocol, or not as the scenario needs it. No load was made.
    Protocol {
        /// The target.
        target: String,
        /// The protocol.
        protocol: String,
        /// Description of its behaviour; a sentence for people.
        why: String,
    },
    /// The keys could not be written. No load was made.
    Preload {
        /// The target.
        target: String,
        /// Its actual reply.
        reply: String,
    },
    /// The server behind the target does not hold the outcome of whole requests.
    Audit {
        /// The target.
        target: String,
        /// The finding; a sentence for people.
        why: String,
    },
    /// Connections were gone before a phase and did not come back. The phase did not begin.
    Connections {
        /// So many are wanted.
        wanted: u32,
        /// So many do not stand.
        missing: u32,
    },
    /// The other processes of the run will not come, or this one came too late; a sentence for people.
    Barrier(String),
    /// A worker panicked; its message is on standard error.
    Panicked,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shards(error) => error.fmt(f),
            Self::Shape => f.write_str(
                "a phase has `connections`, `pipeline` or `streams` of its own, and all phases of one load share theirs; \
                 `weir lab compare` runs each phase by itself",
            ),
            Self::Worker(error) => write!(f, "cannot start a generator core: {error}; fewer `shards` need less"),
            Self::Unreachable { target, error } => write!(
                f,
                "cannot reach {target}: {error}; nothing was sent. Start the target, or mend the address, or raise the \
                 limit of open files (ulimit -n) if the scenario has many `connections`"
            ),
            Self::Protocol { target, protocol, why } => write!(
                f,
                "cannot begin {protocol} with {target}: {why}; no load was made. Name a target that speaks it, or change \
                 `protocol`"
            ),
            Self::Preload { target, reply } => write!(
                f,
                "cannot write the keys to {target}: {reply}; no load was made. The target must be Redis without a \
                 password that takes SET; or write `preload = false` under [keys]"
            ),
            Self::Audit { target, why } => write!(f, "after the load, {target}: {why}"),
            Self::Connections { wanted, missing } => write!(
                f,
                "connections: {missing} of {wanted} are not open, so the phase was not begun. Check the connection \
                 limit of the target, or lower `connections`"
            ),
            Self::Barrier(why) => f.write_str(why),
            Self::Panicked => {
                f.write_str("a generator core failed; this is a bug of the lab, its message stands above")
            }
        }
    }
}

impl std::error::Error for RunError {}
