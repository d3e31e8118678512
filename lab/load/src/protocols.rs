//! The protocols that the lab speaks: one file each behind one trait, and one table that lists them.
//!
//! | file | concept |
//! |---|---|
//! | `redis` | RESP2: a mix of commands over a key space; `redis-pubsub`: messages to channels, heard by all that subscribe |
//! | `http1`, `http2` | a GET for each request, over HTTP/1.1 or HTTP/2 in clear text |
//! | `websocket` | a message there and the same back, behind an upgrade of HTTP/1.1 |
//! | `mongodb` | the find or the insert of one document, in OP_MSG |
//! | `postgres` | a SELECT of one account, or a transaction of TPC-B, for each request: simple, extended or prepared |
//! | `ai` | a prompt for a language model, and its reply whole or as events |
//! | `flags` | the feature flags of a backend, or those that are on for the context of a frontend |
//! | `tcp` | a message there and the same back, with nothing around it |
//! | `http` | common parts of the versions of HTTP and of WebSocket: `[request]`, paths, bodies |
//! | `messages` | common parts of echoes: the plan of messages and their check |
//! | `scram` | common parts of logins by SCRAM |
//!
//! A new protocol is a file with its [`Protocol`], its `mod`, and its row in [`ALL`]. The generator, the trials and the
//! commands ask the trait and name no protocol.

use std::fmt;

use weir_engine::Stream;

use crate::requests::Planner;
use crate::scenario::mistake::Problems;
use crate::scenario::table::Table;
use crate::scenario::{Ai, Command, Flags, KeySpace, Mongodb, Payload, Postgres, Request, Scenario};
use crate::shard::Shard;
use crate::url::{Scheme, Url};
use crate::wire::{Pending, Wire};

mod ai;
mod flags;
mod http;
mod http1;
mod http2;
mod messages;
mod mongodb;
mod postgres;
pub(crate) mod redis;
mod scram;
mod tcp;
mod websocket;

/// Every protocol. The first stands in for a word that is none of them, so that the other mistakes of a scenario are found.
pub const ALL: &[&dyn Protocol] = &[
    &redis::Redis,
    &redis::PubSub,
    &http1::Http1,
    &http2::Http2,
    &websocket::WebSocket,
    &postgres::Postgres,
    &mongodb::Mongodb,
    &tcp::Tcp,
    &ai::Ai,
    &flags::Flags,
];

/// One protocol of the lab. A scenario is read by [`read`](Self::read); each shard then makes a [`planner`](Self::planner),
/// and each of its connections a [`wire`](Self::wire).
pub trait Protocol: Sync + 'static {
    /// The word of scenarios and peers: `redis`.
    fn word(&self) -> &'static str;

    /// The heading of its rows in tables.
    fn title(&self) -> &'static str;

    /// Whether requests under way on one connection are streams of their own, which `streams` counts in place of
    /// `pipeline`. A gateway may need a connection behind it for each.
    fn is_multiplexed(&self) -> bool {
        false
    }

    /// The reply in words, where the protocol decides about it; `None`: the payload of the scenario.
    fn fixed_reply(&self, _scenario: &Scenario) -> Option<String> {
        None
    }

    /// Whether a web server with one file can stand behind a gateway.
    fn is_served_by_files(&self) -> bool {
        false
    }

    /// How a URL names it, for a load without a scenario file; `None`: no URL does.
    fn scheme(&self) -> Option<Scheme> {
        None
    }

    /// The keys of its own in the scenario of a URL, as lines of TOML: those at the root first.
    fn lines_of(&self, _url: &Url) -> String {
        String::new()
    }

    /// Facts that it shares with other protocols.
    fn family(&self) -> &'static Family;

    /// Further words for the command of the origin, so that it serves what the scenario requests.
    fn origin_words(&self, _scenario: &Scenario) -> Vec<String> {
        Vec::new()
    }

    /// Reads and checks what is sent. Mistakes are noted, and `None` is given.
    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work>;

    /// Plans the requests of a shard.
    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a>;

    /// The reading side of a connection on which nothing was said yet.
    fn wire(&self, scenario: &Scenario, seat: Seat) -> Box<dyn Wire>;

    /// The writes of a shard before the run; `None`: this protocol stores nothing.
    fn preload(&self, _scenario: &Scenario, _shard: Shard) -> Option<Box<dyn Preload>> {
        None
    }

    /// The check of the server behind the gateway after a phase; `None`: there is none.
    fn audit(&self, _scenario: &Scenario) -> Option<Audit> {
        None
    }

    /// How what stands behind tells how many requests it has answered; `None`: it does not.
    fn count(&self) -> Option<Count> {
        None
    }

    /// The requests in words, for the row of a result.
    fn mix(&self, scenario: &Scenario) -> String;

    /// Further words of that row, with a comma in front.
    fn details(&self, _scenario: &Scenario) -> String {
        String::new()
    }
}

/// Checks, on a connection that has just logged in, that what stands behind holds the outcome of whole requests only.
pub type Audit = for<'a> fn(&'a mut Stream) -> Pending<'a>;

/// A question about the number of requests that were answered so far.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Bytes to send, on a connection of its own.
    pub question: &'static [u8],
    /// The number in what came back; `None`: it has not come, or there is none.
    pub read: fn(&[u8]) -> Option<u64>,
}

/// The word of [`Protocol::word`].
impl fmt::Display for dyn Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The same: fingerprints are made of it.
impl fmt::Debug for dyn Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl PartialEq for dyn Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.word() == other.word()
    }
}

/// The protocol of this word.
#[must_use]
pub fn named(word: &str) -> Option<&'static dyn Protocol> {
    ALL.iter().copied().find(|protocol| protocol.word() == word)
}

/// Protocols that one origin speaks, and that scenarios and comparisons treat alike.
#[derive(Debug)]
pub struct Family {
    /// Keys at the root of a scenario that not every protocol has.
    pub(crate) own_keys: &'static [OwnKey],
    /// The remedy for a key of another family.
    pub(crate) remedy: &'static str,
    /// The command of `weir lab origin`.
    pub(crate) origin: &'static str,
    /// Whether that origin runs on several cores.
    pub(crate) has_workers: bool,
    /// The gateways that people know for it, for a comparison that names none.
    pub usual_peers: &'static [&'static str],
}

/// The remedy of families that know no better one.
const REMEDY: &str = "remove it, or change the protocol";

impl Family {
    /// Whether its origin runs on several cores.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Arguments of the program `weir` that start the origin on `bind`, on so many cores if it can.
    #[must_use]
    pub fn origin_arguments(&self, bind: &str, workers: usize) -> Vec<String> {
        let mut arguments = ["lab", "origin", self.origin, "--bind", bind].map(str::to_owned).to_vec();
        if self.has_workers {
            arguments.extend(["--workers".to_owned(), workers.to_string()]);
        }
        arguments
    }
}

/// A key at the root of a scenario, and what a mistake says of it where it does not belong.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnKey {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

/// Keys of every protocol that matter to the reading of its own.
pub struct Common<'a> {
    pub(crate) connections: Option<u32>,
    pub(crate) shards: Option<u32>,
    pub(crate) payload: Option<&'a Payload>,
    pub(crate) integrity: Option<bool>,
    pub(crate) problems: &'a Problems<'a>,
}

impl Common<'_> {
    /// Whether messages have several sizes.
    fn has_sizes(&self) -> bool {
        self.payload.is_some_and(|payload| payload.sizes().len() > 1)
    }
}

/// The keys, commands or targets that a scenario sends.
#[derive(Default)]
pub struct Work {
    pub(crate) keys: KeySpace,
    pub(crate) commands: Vec<Command>,
    pub(crate) request: Request,
    pub(crate) postgres: Postgres,
    pub(crate) mongodb: Mongodb,
    pub(crate) ai: Ai,
    pub(crate) flags: Flags,
    pub(crate) channels: u32,
}

/// A connection among those of its shard.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    pub(crate) shard: Shard,
    /// From 0; where there are channels the last one is the publisher's, see [`Scenario::channels`].
    pub(crate) at: usize,
}

/// The writes of one shard before the run.
pub trait Preload {
    /// Keys still to come.
    fn left(&self) -> u64;

    /// Writes them on a connection.
    ///
    /// # Errors
    /// The reply of a target that did not take one, or its end of the connection.
    fn write<'a>(&'a mut self, stream: &'a mut Stream) -> Pending<'a>;
}
