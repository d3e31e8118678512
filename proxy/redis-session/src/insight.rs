//! The record that a worker keeps of its requests, for operators: hot keys, big keys, slow requests.
//!
//! All of it belongs to the worker and is bounded; nothing is shared but a secret and a number. The path of a request meets it
//! twice: when it is sent (`sent`: a countdown, and a copy of its beginning for the trail), and when its reply is
//! here (two comparisons). All else is done for one request of [many](settings::KEYS_SAMPLE), for large ones and slow ones.
//! The admin server asks by mail ([`Insight::report`]) and merges what the workers say.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose |
//! | `sketch` | the most frequent items of a stream |
//! | `key` | a key as it is kept and shown |
//! | `hot` / `big` | the two lists of keys |
//! | `slow` | the slow log |
//! | `trail` | the last requests, as they were sent |
//! | `wire` | such a request, read again |

mod big;
mod hot;
mod key;
pub mod settings;
mod sketch;
mod slow;
mod trail;
mod wire;

use std::{
    cell::{Cell, RefCell},
    hash::RandomState,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use weir_analysis::redis::Args;
use weir_base::{exchange::FrameKind, rng::Rng, time::Time};

use self::{
    big::BigKeys,
    hot::HotKeys,
    settings::InsightSettings,
    slow::SlowLog,
    trail::{Trail, TrailRequest},
    wire::RequestArguments,
};
use crate::{io::Ticket, lane::LaneKey};

pub use self::{
    big::{BIG_KEPT, BigKey, Direction, merge_big_keys},
    hot::{HALF_LIFE, HotKey, merge_hot_keys},
    key::{KEY_TEXT_BYTES_MAX, Keyspace, NotedKey, printable},
    slow::{SlowClient, SlowRequest, merge_slow_requests},
};

/// Keys of one sampled command that are counted: those of an MGET of thousands would crowd all others out.
const KEYS_PER_COMMAND: usize = 32;
/// Entries that one turn adds to the slow log: when a server was away for a second, thousands of requests are slow at once,
/// and looking each of them up would make them slower. All are counted.
const SLOW_PER_TURN: u32 = 8;

/// State shared by the workers of a process: equal keys must be equal on all of them.
#[derive(Debug, Default)]
pub struct InsightShare {
    hasher: RandomState,
    slow_ids: AtomicU64,
}

/// Report of one worker.
#[derive(Clone, Debug, Default)]
pub struct InsightReport {
    /// The worker.
    pub worker: usize,
    /// Its hot keys.
    pub hot_keys: Vec<HotKey>,
    /// Its big keys.
    pub big_keys: Vec<BigKey>,
    /// Its slow requests.
    pub slow: Vec<SlowRequest>,
}

/// A worker's record of its requests.
pub struct Insight {
    settings: InsightSettings,
    share: Arc<InsightShare>,
    worker: usize,
    /// Requests until the next one is looked at; near the end of numbers if none is.
    until_sample: Cell<u64>,
    /// Bytes of a request or reply from which its key is noted.
    big_bytes: u64,
    /// Duration from which a request is slow.
    slow_nanos: u64,
    keeps_trail: bool,
    /// Entries made in the turn of that time.
    slow_in_turn: Cell<(Time, u32)>,
    trail: RefCell<Trail>,
    hot: RefCell<HotKeys>,
    big: RefCell<BigKeys>,
    slow: RefCell<SlowLog>,
    rng: RefCell<Rng>,
}

/// A reply that took long, or will not come.
pub struct SlowReply {
    /// The number of the request.
    pub number: u64,
    /// Time at which the request had been parsed; `None`: no longer known.
    pub arrived: Option<Time>,
    /// When it was handed to the kernel, likewise.
    pub sent: Option<Time>,
    /// When its end was here, and what the wall clock said then.
    pub ended: Time,
    /// See `ended`.
    pub ended_at: SystemTime,
    /// Requests that were answered with it.
    pub requests: u64,
    /// The word for how it ended.
    pub outcome: &'static str,
}

impl Insight {
    /// An empty memory. `seed`: of the choice of what is sampled; another for each worker.
    pub fn new(settings: InsightSettings, share: Arc<InsightShare>, worker: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let has_keys = settings.has_keys();
        let insight = Self {
            until_sample: Cell::new(u64::MAX),
            big_bytes: if has_keys { settings.big_bytes } else { u64::MAX },
            slow_nanos: match settings.has_slow_log() {
                true => u64::try_from(settings.slower_than.as_nanos()).unwrap_or(u64::MAX),
                false => u64::MAX,
            },
            keeps_trail: has_keys || settings.has_slow_log(),
            slow_in_turn: Cell::new((Time::ZERO, 0)),
            trail: RefCell::default(),
            hot: RefCell::new(HotKeys::new(settings.top, rng.fork())),
            big: RefCell::new(BigKeys::new(settings.top)),
            slow: RefCell::new(SlowLog::new(settings.slow_entries)),
            rng: RefCell::new(rng),
            settings,
            share,
            worker,
        };
        if has_keys {
            insight.until_sample.set(insight.draw());
        }
        insight
    }

    /// The configured settings.
    pub fn settings(&self) -> &InsightSettings {
        &self.settings
    }

    /// Requests up to the next one to look at. Drawn and not fixed: a client that asks for two keys in turn would else be seen
    /// to ask for one of them only.
    fn draw(&self) -> u64 {
        1 + self.rng.borrow_mut().below(2 * u64::from(self.settings.sample) - 1)
    }

    /// Requests of `connection` have just been given to a lane. `upstream` tells the name of its upstream.
    #[inline]
    pub fn sent(
        &self,
        connection: u64,
        ticket: Ticket,
        key: LaneKey,
        wire: &[u8],
        now: Time,
        upstream: impl FnOnce() -> Arc<str>,
    ) {
        if self.keeps_trail {
            self.trail.borrow_mut().add(now, connection, ticket, key, wire);
        }
        let requests = ticket.count + u64::from(ticket.skip);
        let left = self.until_sample.get();
        let is_sampled = left <= requests;
        let is_big = wire.len() as u64 >= self.big_bytes || (!ticket.has_deadline && self.big_bytes != u64::MAX);
        if !is_sampled {
            self.until_sample.set(left - requests);
        }
        if is_sampled || is_big {
            let keyspace = Keyspace { upstream: upstream(), db: key.db };
            if is_sampled {
                self.sample(&keyspace, requests, wire, now);
            }
            if is_big && requests == 1 {
                self.note_big_request(&keyspace, wire, now);
            }
        }
    }

    #[cold]
    fn sample(&self, keyspace: &Keyspace, requests: u64, wire: &[u8], now: Time) {
        let (mut rest, mut at) = (wire, 0);
        let mut next = self.until_sample.get() - 1;
        while next < requests {
            rest = wire::skip(rest, next - at).unwrap_or_default();
            at = next;
            if let Some(words) = RequestArguments::read(rest)
                && let Some(command) = words.command()
            {
                for key in words.keys(command, KEYS_PER_COMMAND).unwrap_or_default() {
                    let hash = NotedKey::hash(&self.share.hasher, keyspace, key);
                    let make = || NotedKey::new(self.settings.names, keyspace, hash, key);
                    self.hot.borrow_mut().add(hash, command.name, now, make);
                }
            }
            next += self.draw();
        }
        self.until_sample.set(next + 1 - requests);
    }

    #[cold]
    fn note_big_request(&self, keyspace: &Keyspace, wire: &[u8], now: Time) {
        // Only the head of a streamed request is here; it states the size of the rest.
        let Some(words) = RequestArguments::read(wire) else { return };
        let bytes = words.bytes.max(wire.len()) as u64;
        if bytes >= self.big_bytes {
            self.note_big(keyspace, &words, bytes, Direction::Request, now);
        }
    }

    fn note_big(&self, keyspace: &Keyspace, words: &RequestArguments<'_>, bytes: u64, direction: Direction, now: Time) {
        let Some(command) = words.command() else { return };
        let Some(key) = words.single_key(command) else { return };
        let hash = NotedKey::hash(&self.share.hasher, keyspace, key);
        let make = || {
            let key = NotedKey::new(self.settings.names, keyspace, hash, key);
            BigKey { key, bytes, direction, command: command.name, at: now }
        };
        self.big.borrow_mut().add(hash, bytes, now, make);
    }

    /// A reply of so many bytes is worth a look.
    #[inline]
    pub fn is_big(&self, bytes: u64) -> bool {
        bytes >= self.big_bytes
    }

    /// The reply to request `number` had so many bytes.
    #[cold]
    pub fn note_big_reply(
        &self,
        (connection, number): (u64, u64),
        arrived: Time,
        bytes: u64,
        now: Time,
        upstream: Arc<str>,
    ) {
        let found = self.trail.borrow().find(connection, number, arrived);
        let Some(found) = found.filter(|found| found.skip == 0) else { return };
        if let Some(words) = RequestArguments::nth(&found.wire, found.index) {
            self.note_big(&Keyspace { upstream, db: found.db }, &words, bytes, Direction::Reply, now);
        }
    }

    /// A request that took so long is slow.
    #[inline]
    pub fn is_slow(&self, nanos: u64) -> bool {
        nanos >= self.slow_nanos
    }

    /// The slow log may take one more entry in this turn.
    pub fn has_room_for_slow(&self, now: Time) -> bool {
        let (turn, count) = self.slow_in_turn.get();
        let count = if turn == now { count } else { 0 };
        self.slow_in_turn.set((now, count + 1));
        count < SLOW_PER_TURN
    }

    /// Puts a request into the slow log. False if it does not belong there: its duration was the client's choice, or it was
    /// not slow after all. `endpoint` names the one with this number.
    #[cold]
    pub fn note_slow(
        &self,
        client: SlowClient,
        reply: &SlowReply,
        upstream_name: Arc<str>,
        endpoint: impl FnOnce(u16) -> Option<String>,
    ) -> bool {
        let found = match reply.arrived {
            Some(arrived) => self.trail.borrow().find(client.id, reply.number, arrived),
            None => self.trail.borrow().find_any(client.id, reply.number),
        };
        let Some(arrived) = reply.arrived.or(found.as_ref().map(|found| found.at)) else { return false };
        let took = reply.ended.since(arrived);
        let is_own_choice = found.as_ref().is_some_and(|found| !found.has_deadline);
        if is_own_choice || !self.is_slow(took.as_nanos() as u64) {
            return false;
        }
        let gateway = reply.sent.map_or(Duration::ZERO, |sent| sent.since(arrived)).min(took);
        let command = found.as_ref().map(|found| self.command_of(found)).unwrap_or_default();
        let entry = SlowRequest {
            id: self.share.slow_ids.fetch_add(1, Relaxed),
            ended: reply.ended_at,
            duration: took,
            gateway,
            upstream: took - gateway,
            command,
            requests: reply.requests,
            outcome: reply.outcome,
            client: SlowClient { worker: self.worker, ..client },
            upstream_name,
            endpoint: found.and_then(|found| endpoint(found.shard)),
        };
        self.slow.borrow_mut().add(entry);
        true
    }

    fn command_of(&self, found: &TrailRequest) -> Vec<String> {
        let with_arguments = self.settings.slow_arguments;
        let Some(words) = RequestArguments::nth(&found.wire, found.index) else { return Vec::new() };
        if found.skip == 0 {
            return slow::shown(&words, words.argc(), with_arguments);
        }
        // A transaction: MULTI, the queued commands, EXEC. The first queued command is the most telling one.
        let queued = found.skip.saturating_sub(1);
        let mut command = vec!["exec".to_owned(), format!("({queued} commands)")];
        if let Some(first) = RequestArguments::nth(&found.wire, 1).filter(|_| queued > 0) {
            command.extend(slow::shown(&first, first.argc(), with_arguments));
        }
        command
    }

    /// The hot keys, the hottest first.
    pub fn hot_keys(&self, now: Time) -> Vec<HotKey> {
        self.hot.borrow_mut().report(now, self.settings.sample)
    }

    /// Everything that is remembered.
    pub fn report(&self, now: Time) -> InsightReport {
        InsightReport {
            worker: self.worker,
            hot_keys: self.hot_keys(now),
            big_keys: self.big.borrow_mut().report(now),
            slow: self.slow.borrow().report(),
        }
    }

    #[cfg(test)]
    fn slow_count(&self) -> usize {
        self.slow.borrow().len()
    }

    /// Empties the slow log; how many entries there were.
    pub fn reset_slow(&self) -> usize {
        self.slow.borrow_mut().reset()
    }
}

/// The word for how a reply ended.
pub fn outcome(end: Option<FrameKind>) -> &'static str {
    if end == Some(FrameKind::Error) { "error" } else { "ok" }
}

#[cfg(test)]
mod tests;
