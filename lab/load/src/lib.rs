//! The load generator: what it will send, when, and what became of it. All but [`run`](mod@run), and the first words of a
//! connection in [`protocols`], is pure: no sockets, no clock, no threads, so that each part can be tested against theory.
//!
//! | module | concept |
//! |---|---|
//! | [`scenario`] | the TOML file of one workload, checked as a whole before any load |
//! | [`url`] | the scenario of a URL, for a load without a file |
//! | [`threshold`] | bounds that the figures of a phase have to keep |
//! | [`protocols`] | the protocols of the lab: one file each behind one trait, and the table that lists them |
//! | `wire` | the first bytes of a connection, and whole replies out of chunks |
//! | [`shard`] | one of n generator shards, its part of the connections, its own random streams |
//! | [`part`] | which shards are those of one of several processes |
//! | [`arrivals`] | intended times: a pure function of seed, shard and rate |
//! | [`keys`] | which key: uniform or Zipf |
//! | [`values`] | the value of a key: a keyed hash, so that every reply can be verified without a table |
//! | [`requests`] | the encoded requests of a shard, and the check of each reply |
//! | [`reply`] | kinds of replies: a value, the overload response of a gateway, or a failure |
//! | [`recorder`] | one latency histogram, 1 us to 60 s, and the sample-size rule |
//! | [`buckets`] | the same for people: a few rows |
//! | [`outcome`] | the counters and histograms of a shard, merged by adding |
//! | `measured` | measurements of all shards in a phase, added up, and its verdict |
//! | [`program`] | the program that sends the load, as records name it |
//! | [`record`] | the result line `weir.lab.step/1` |
//! | [`mod@merge`] | the records of all parts become the record of the run |
//! | [`run`](mod@run) | the engine-driven part: connections, sending, stamps, a record for each phase |
//!
//! Words, as everywhere in the lab: *intended time* is the instant the schedule gives to a request, *ready* the instant
//! from which a connection slot was free for it, *sojourn* the time from intended to completed. Open loop measures
//! sojourn, which no stall of the system under test can hide.
//!
//! The lab judges the gateway, so nothing here comes from its data path: only the codec, the engine and `base`.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod buckets;
pub mod keys;
mod measured;
pub mod merge;
pub mod outcome;
pub mod part;
pub mod program;
pub mod protocols;
pub mod record;
pub mod recorder;
pub mod reply;
pub mod requests;
pub mod run;
pub mod scenario;
pub mod shard;
pub mod threshold;
pub mod url;
pub mod values;
mod wire;

pub use arrivals::{Arrival, Rate, Schedule};
pub use merge::{MergeError, Named, merge};
pub use outcome::{ErrorClass, Stamps, WindowResult};
pub use part::Part;
pub use record::StepRecord;
pub use recorder::Recorder;
pub use requests::{Integrity, Requests};
pub use run::{Barrier, Event, RunError, Second, Stage, Start, run, run_part};
pub use scenario::Scenario;
pub use shard::Shard;
pub use threshold::{Gate, Threshold};
