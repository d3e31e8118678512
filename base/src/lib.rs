//! The foundation of every crate of Weir: limits, budgets, the clock, the seed, secrets, and errors that name a culprit.
//!
//! No I/O and no dependency but `zeroize`. The only clock read of the tree is [`time::Time::now`]; everything else
//! receives a [`time::Time`] as an argument, which is what makes codecs and sessions replayable.
//!
//! | file | concept |
//! |---|---|
//! | [`time`] | monotonic process time and the cached time of a loop turn |
//! | [`permit`] | process-wide [`permit::Budget`], per-core [`permit::LocalBudget`], RAII permits |
//! | [`lease`] | [`lease::ByteLease`]: a core's share of the process byte budget |
//! | [`rate`] | [`rate::LocalRate`]: at most so many per second on one core |
//! | [`shared_rate`] | [`SharedRate`]: at most so many per second on all cores together |
//! | [`limits`] | default of every limit, its worst case and the relations between them |
//! | [`violation`] | a peer broke a rule or a limit: one value, from which counter, log line and refusal derive |
//! | [`error`] | whose fault |
//! | [`exchange`] | [`exchange::Refusal`], [`exchange::LossCause`]: why an exchange has no reply; the kinds of replies |
//! | [`connection`] | a client connection as other threads see it |
//! | [`names`] | rules of host names, exact ones and wildcards |
//! | [`near`] | the known word that was probably meant |
//! | [`net`] | networks in CIDR form |
//! | [`secret`] | bytes that are never printed and are zeroed on drop |
//! | [`size`] | byte sizes as people write them: `64KiB` |
//! | [`rng`] | small seeded generator for jitter; never for keys |
#![forbid(unsafe_code)]

pub mod connection;
pub mod error;
pub mod exchange;
pub mod lease;
pub mod limits;
pub mod names;
pub mod near;
pub mod net;
pub mod permit;
pub mod rate;
pub mod rng;
pub mod secret;
pub mod shared_rate;
pub mod size;
pub mod time;
pub mod violation;

pub use error::Culprit;
pub use names::{NameError, Names};
pub use near::nearest;
pub use net::Net;
pub use permit::{Budget, ByteLease, BytesPermit, LocalBudget, LocalPermit, Permit};
pub use rate::LocalRate;
pub use rng::Rng;
pub use secret::Secret;
pub use shared_rate::SharedRate;
pub use size::ByteSize;
pub use time::Time;
pub use violation::Violation;
