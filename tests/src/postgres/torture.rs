//! The torture of a gateway's sessions: hundreds of clients set session state, fail, cancel, time out and vanish. Every row and
//! every setting carries the mark of its owner, so that a client sees at once what belongs to another.
//!
//! | letter | rule (postgres.md) | how it is found |
//! |---|---|---|
//! | K1 | a row reaches only the client that requested it | rows, copied lines and notifications carry mark and number |
//! | K2 | the reported status is the server's | each act knows the status that it must end with |
//! | K3 | one ReadyForQuery for each Query and Sync | pipelines count them, and an idle connection is silent |
//! | K4 | the user of the client is the user at the server | a probe reads `current_user` and `session_user` |
//! | K5 | no state of another, and all of one's own | a probe compares settings, tables, locks, channels with a model |
//!
//! Clients log in by trust: the torture is about sessions. `acts` has what clients do, `client` the model, `wire` the protocol.
//! The wire protocol is written here a second time on purpose: a mistake of Weir's codec must not be in its judge too.

mod acts;
mod client;
pub mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_base::rng::Rng;

use crate::postgres::Postgres;
use client::TortureClient;

/// Users of the clients; each has one of them.
pub const USERS: [&str; 3] = ["torture_a", "torture_b", "torture_c"];

/// The database of the torture.
pub const DATABASE: &str = "torture";

/// Findings that are kept; a gateway that leaks has thousands.
const FINDINGS_MAX: usize = 500;

/// A class of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// K1: a row, line or notification of another client, or out of order.
    ForeignRow,
    /// K2: another status than the server can have.
    WrongStatus,
    /// K3: a response too many or too few.
    WrongCount,
    /// K4: another user.
    WrongUser,
    /// K5: state that another client has set.
    ForeignState,
    /// K5: own state is gone.
    LostState,
    /// A query was cancelled that no client of its session cancelled.
    ForeignCancel,
    /// No response in time, or a connection that ended.
    Stuck,
    /// An error that the act cannot have.
    Unexpected,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its class.
    pub kind: Kind,
    /// The client and its life.
    pub mark: String,
    /// The act.
    pub act: &'static str,
    /// The value that was seen, and the right one.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} [{} in {}]: {}", self.kind, self.mark, self.act, self.text)
    }
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Torture {
    /// Port on this machine: the server's, or that of a gateway in front of it.
    pub port: u16,
    /// Clients at a time.
    pub clients: u32,
    /// How long.
    pub duration: Duration,
    /// The same seed gives each client the same acts; how they meet is up to the machine.
    pub seed: u64,
}

/// The account of a run.
#[derive(Debug, Default)]
pub struct TortureReport {
    /// The findings; at most some hundreds are kept.
    pub findings: Vec<Finding>,
    /// All findings by class.
    pub counts: BTreeMap<Kind, u64>,
    /// Acts that ended as they must.
    pub acts: BTreeMap<&'static str, u64>,
    /// Connections that were made.
    pub lives: u64,
}

impl TortureReport {
    /// The findings of a class.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.kind).or_default() += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

impl fmt::Display for TortureReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acts: u64 = self.acts.values().sum();
        writeln!(formatter, "{acts} acts in {} lives: {:?}", self.lives, self.acts)?;
        writeln!(formatter, "findings: {:?}", self.counts)?;
        self.findings.iter().take(40).try_for_each(|finding| writeln!(formatter, "  {finding}"))
    }
}

/// The rules of `pg_hba.conf` that let the users of the torture in.
#[must_use]
pub fn hba() -> Vec<String> {
    USERS.iter().map(|user| format!("host {DATABASE} {user} 127.0.0.1/32 trust")).collect()
}

/// Makes users, database and tables.
///
/// # Panics
/// If the server refuses.
pub fn prepare(server: &Postgres) {
    for user in USERS {
        server.sql(&format!("create role {user} login"));
    }
    server.sql(&format!("create database {DATABASE}"));
    let tables = "create table marked (owner text not null, number bigint not null); create index on marked (owner); \
        create table copied (owner text not null, number bigint not null); grant all on marked, copied to public";
    server.sql_in(DATABASE, tables);
}

impl Torture {
    /// Runs the clients, each in a thread, until the time is over.
    #[must_use]
    pub fn run(&self) -> TortureReport {
        let report = Mutex::new(TortureReport::default());
        let end = Instant::now() + self.duration;
        let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as u32);
        let mut seeds = Rng::new(self.seed);
        thread::scope(|scope| {
            for number in 0..self.clients {
                let (rng, report) = (seeds.fork(), &report);
                let builder = thread::Builder::new().stack_size(256 * 1024);
                let client = TortureClient::new(self.port, run, number, rng, report);
                builder.spawn_scoped(scope, move || client.live_until(end)).expect("a thread for each client");
            }
        });
        report.into_inner().expect("no client panicked")
    }
}
