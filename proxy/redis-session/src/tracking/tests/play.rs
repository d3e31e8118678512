//! The play: clients that keep what they read, a server with several connections, and who decides what happens next.

mod holding;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use weir_base::{exchange::FrameKind, rng::Rng};
use weir_resp::{RequestLimits, RequestParser, Step, encode};
use weir_telemetry::{Registry, catalog};

use super::surroundings::{Common, SentRequest, Surroundings};
use crate::{
    cache::Cache,
    session::Session,
    settings::{CacheSettings, RedisListenerSettings},
    tracking::line::{TrackingFrame, parse_frame},
};

const KEYS: [&str; 5] = ["a", "b", "c", "da", "db"];
const LANES: usize = 2;

/// How a client of the play tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackingMode {
    Read,
    Bcast,
    OptIn,
    NoLoop,
    NoLoopBcast,
    /// The next client in the row gets the invalidations, and does nothing else.
    Redirect,
    /// It does not track, and is behind the reply cache.
    Cached,
}

/// The replies that a client expects, in order.
#[derive(Debug)]
enum ExpectedReply {
    Nothing,
    /// Values of these keys, to be kept or not.
    Values(Vec<String>, bool),
    /// Values of these keys, not older than these versions.
    Fresh(Vec<(String, u64)>),
    /// Its own write of a key, which names it or hides it in a script.
    Write(String, bool),
}

struct Client {
    terms: TrackingMode,
    session: Session,
    io: Surroundings,
    expected: VecDeque<ExpectedReply>,
    read: Vec<u8>,
    /// Values held: the version of each key.
    holds: BTreeMap<String, u64>,
    /// Versions that its own writes made, as the server executed them.
    wrote: VecDeque<u64>,
    /// The latest version of each key that it has written or read.
    seen: BTreeMap<String, u64>,
}

struct Reply {
    client: usize,
    number: u64,
    bytes: Vec<u8>,
    given: usize,
    is_error: bool,
}

#[derive(Default)]
struct Lane {
    requests: VecDeque<(usize, SentRequest)>,
    replies: VecDeque<Reply>,
}

/// A frame of the tracking lane: a frame, with the versions of the keys in it.
struct Frame {
    bytes: Vec<u8>,
    versions: Vec<(String, u64)>,
}

/// See the module's documentation.
pub(super) struct Play {
    rng: Rng,
    common: Rc<Common>,
    clients: Vec<Client>,
    lanes: [Lane; LANES],
    server: BTreeMap<String, u64>,
    next_version: u64,
    /// The server's reply on the tracking lane; `None`: there was no request.
    feed: Option<VecDeque<Frame>>,
    /// The latest version of each key of which the gateway has heard that it was overwritten, plus one.
    overwritten: BTreeMap<String, u64>,
    cache: Rc<Cache>,
    /// The latest version of each key that a writer, by its name, was notified of through the gateway.
    notified_writers: BTreeMap<String, u64>,
    registry: Registry,
    losses: bool,
    invalidations: u64,
}

fn wire(words: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::command(&mut out, words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    out
}

impl Play {
    pub(super) fn new(seed: u64, terms: &[TrackingMode]) -> Self {
        let mut rng = Rng::new(seed);
        let common = Rc::new(Common::default());
        common.keys_max.set(if rng.below(3) == 0 { 4 } else { 1000 });
        let cache = CacheSettings {
            bytes_max: if rng.below(3) == 0 { 700 } else { 100_000 },
            value_bytes_max: 1000,
            age_max: Duration::from_secs(1),
            prefixes: Vec::new(),
        };
        let registry = Registry::new();
        let mut play = Self {
            rng,
            common,
            clients: Vec::new(),
            lanes: Default::default(),
            server: KEYS.iter().map(|key| ((*key).to_owned(), 0)).collect(),
            next_version: 1,
            feed: None,
            overwritten: BTreeMap::new(),
            cache: Cache::new(cache, &registry.core(0), "play", Rc::default(), |_| {}),
            notified_writers: BTreeMap::new(),
            registry,
            // Without them more is kept for longer.
            losses: seed.is_multiple_of(2),
            invalidations: 0,
        };
        let spares = Rc::default();
        // A partner for each client, that gets invalidations in its place.
        for terms in terms.iter().flat_map(|&terms| [terms, TrackingMode::Redirect]) {
            let mut io = Surroundings::new(&play.common, play.clients.len() as u64 + 1);
            io.cache = (terms == TrackingMode::Cached).then(|| play.cache.clone());
            let session = Session::new(RedisListenerSettings::default().into(), Rc::clone(&spares));
            let (expected, wrote) = (VecDeque::new(), VecDeque::new());
            let (holds, seen) = (BTreeMap::new(), BTreeMap::new());
            let client = Client { terms, session, io, expected, read: Vec::new(), holds, wrote, seen };
            play.clients.push(client);
        }
        for at in 0..play.clients.len() {
            play.says(at, &["HELLO", "3"], ExpectedReply::Nothing);
            if at % 2 == 1 || play.clients[at].terms == TrackingMode::Cached {
                continue;
            }
            let partner = (at + 2).to_string();
            let words: &[&str] = match play.clients[at].terms {
                TrackingMode::Read | TrackingMode::Cached => &[],
                TrackingMode::Bcast => &["BCAST", "PREFIX", "a", "PREFIX", "d"],
                TrackingMode::OptIn => &["OPTIN"],
                TrackingMode::NoLoop => &["NOLOOP"],
                TrackingMode::NoLoopBcast => &["NOLOOP", "BCAST"],
                TrackingMode::Redirect => &["REDIRECT", &partner],
            };
            play.says(at, &[&["CLIENT", "TRACKING", "ON"], words].concat(), ExpectedReply::Nothing);
        }
        play
    }

    /// Hits and misses of the reply cache.
    pub(super) fn hits(&self) -> (u64, u64) {
        let sum = |family| self.registry.sum(family, "listener", "play").unwrap_or(0);
        (sum(&catalog::CACHE_HITS), sum(&catalog::CACHE_MISSES))
    }

    fn says(&mut self, at: usize, words: &[&str], expected: ExpectedReply) {
        let client = &mut self.clients[at];
        client.expected.push_back(expected);
        client.session.on_client(&wire(words), &client.io).expect("a valid command");
        self.collect(at);
    }

    /// Delivers the session's output: requests to its lanes, replies to the client.
    fn collect(&mut self, at: usize) {
        let sent: Vec<SentRequest> = self.clients[at].io.sent.borrow_mut().drain(..).collect();
        self.lanes[at / 2 % LANES].requests.extend(sent.into_iter().map(|sent| (at, sent)));
        self.reads(at);
    }

    fn chance(&mut self, one_of: u64) -> bool {
        self.rng.below(one_of) == 0
    }

    fn key(&mut self) -> String {
        KEYS[self.rng.below(KEYS.len() as u64) as usize].to_owned()
    }

    /// No key has to be forgotten for want of room, and no lane is lost.
    pub(super) fn calm(&mut self) {
        self.common.keys_max.set(1000);
        self.losses = false;
    }

    pub(super) fn step(&mut self) {
        match self.rng.below(16) {
            0..4 => self.client_speaks(),
            4 => {
                // Somebody who is no client of the gateway.
                let key = self.key();
                self.write(&key);
            }
            5..8 => self.execute(),
            8..11 => self.deliver(),
            // A late invalidation lets more happen before it.
            11..14 if self.losses || self.chance(8) => self.deliver_frame(),
            11..14 => self.execute(),
            14 => self.bring_notice(),
            _ => self.lose_or_connect(),
        }
        let evicted: Vec<_> = self.common.evicted.borrow_mut().drain(..).collect();
        for (key, places) in evicted {
            self.tell_all_of(places.into_iter().map(|place| (place, vec![key.to_vec()])).collect());
        }
        self.check();
    }

    fn client_speaks(&mut self) {
        let at = 2 * self.rng.below(self.clients.len() as u64 / 2) as usize;
        if self.clients[at].expected.len() > 6 {
            return;
        }
        let (terms, key, other) = (self.clients[at].terms, self.key(), self.key());
        if terms == TrackingMode::Cached {
            return self.cached_client_speaks(at, &key, &other);
        }
        let keeps = |key: &str| terms != TrackingMode::Bcast || key.starts_with(['a', 'd']);
        if terms == TrackingMode::OptIn && !self.chance(3) {
            self.says(at, &["CLIENT", "CACHING", "YES"], ExpectedReply::Nothing);
        }
        let is_kept = keeps(&key) && keeps(&other) && (terms != TrackingMode::OptIn || self.said_caching(at));
        match self.rng.below(6) {
            0..3 => self.says(at, &["GET", &key], ExpectedReply::Values(vec![key.clone()], is_kept)),
            3 => {
                self.says(at, &["MGET", &key, &other], ExpectedReply::Values(vec![key.clone(), other.clone()], is_kept))
            }
            4 => self.says(at, &["SET", &key, "x"], ExpectedReply::Write(key.clone(), true)),
            _ => {
                self.says(at, &["MULTI"], ExpectedReply::Nothing);
                self.says(at, &["GET", &key], ExpectedReply::Nothing);
                self.says(at, &["EXEC"], ExpectedReply::Values(vec![key.clone()], is_kept));
            }
        }
    }

    fn cached_client_speaks(&mut self, at: usize, key: &str, other: &str) {
        let fresh = |play: &Self, keys: &[&str]| {
            let floor = |key: &&str| {
                let known = [&play.overwritten, &play.notified_writers, &play.clients[at].seen];
                let floor = known.iter().filter_map(|versions| versions.get(*key)).max().copied();
                ((*key).to_owned(), floor.unwrap_or(0))
            };
            ExpectedReply::Fresh(keys.iter().map(floor).collect())
        };
        match self.rng.below(12) {
            0..4 => self.says(at, &["GET", key], fresh(self, &[key])),
            4..8 => self.says(at, &["GETRANGE", key, "0", "-1"], fresh(self, &[key])),
            8 => self.says(at, &["MGET", key, other], fresh(self, &[key, other])),
            9 => self.says(at, &["SET", key, "x"], ExpectedReply::Write(key.to_owned(), true)),
            10 => self.says(at, &["EVAL", "script", "0", key], ExpectedReply::Write(key.to_owned(), false)),
            _ => {
                self.says(at, &["MULTI"], ExpectedReply::Nothing);
                self.says(at, &["GET", key], ExpectedReply::Nothing);
                self.says(at, &["EXEC"], fresh(self, &[key]));
            }
        }
    }

    /// CLIENT CACHING YES was the last thing it said.
    fn said_caching(&mut self, at: usize) -> bool {
        let client = &self.clients[at];
        client.session.state.tracking.as_ref().is_some_and(|tracking| tracking.is_caching())
    }

    /// A key changes at the server.
    fn write(&mut self, key: &str) -> u64 {
        let version = self.next_version;
        self.next_version += 1;
        self.server.insert(key.to_owned(), version);
        if let Some(feed) = &mut self.feed {
            // A server tells once what changes within one turn.
            let is_same_turn = self.rng.below(3) == 0;
            let last = feed.back_mut().filter(|frame| is_same_turn && !frame.versions.is_empty());
            let mut versions = last.map(|frame| std::mem::take(&mut frame.versions)).unwrap_or_default();
            if !versions.is_empty() {
                feed.pop_back();
            }
            versions.push((key.to_owned(), version));
            let keys: BTreeSet<&[u8]> = versions.iter().map(|(key, _)| key.as_bytes()).collect();
            let keys: Vec<&[u8]> = keys.into_iter().collect();
            let mut bytes = Vec::new();
            crate::tracking::notice::write(&mut bytes, Some(&keys), weir_resp::Version::Resp3);
            feed.push_back(Frame { bytes, versions });
        }
        version
    }

    /// The server executes one request.
    fn execute(&mut self) {
        let lane = self.rng.below(LANES as u64) as usize;
        let Some((client, sent)) = self.lanes[lane].requests.pop_front() else { return };
        let mut parser = RequestParser::new();
        let (mut rest, mut replies, mut inner) = (&sent.wire[..], Vec::new(), Vec::new());
        while let Ok(Step::Command { len, .. }) = parser.parse(rest, &RequestLimits::default()) {
            let words: Vec<String> =
                (0..parser.argc()).map(|index| String::from_utf8_lossy(parser.arg(index, rest)).into_owned()).collect();
            rest = &rest[len..];
            let mut reply = Vec::new();
            match words[0].as_str() {
                "MULTI" => {}
                "EXEC" => {
                    encode::array(&mut reply, inner.len());
                    inner.iter().for_each(|one: &Vec<u8>| reply.extend_from_slice(one));
                }
                "GET" | "GETRANGE" => encode::bulk(&mut reply, self.server[&words[1]].to_string().as_bytes()),
                "MGET" => {
                    encode::array(&mut reply, words.len() - 1);
                    for key in &words[1..] {
                        encode::bulk(&mut reply, self.server[key].to_string().as_bytes());
                    }
                }
                _ if self.chance(8) => encode::error(&mut reply, b"OOM no"),
                _ => {
                    let version = self.write(if words[0] == "EVAL" { &words[3] } else { &words[1] });
                    self.clients[client].wrote.push_back(version);
                    encode::simple(&mut reply, "OK");
                }
            }
            if sent.skip > 0 && words[0] != "EXEC" && words[0] != "MULTI" {
                inner.push(reply);
            } else {
                replies = reply;
            }
            if rest.is_empty() {
                break;
            }
        }
        let is_error = replies.first() == Some(&b'-');
        self.lanes[lane].replies.push_back(Reply { client, number: sent.number, bytes: replies, given: 0, is_error });
    }

    /// A piece of a reply reaches the gateway.
    fn deliver(&mut self) {
        let lane = self.rng.below(LANES as u64) as usize;
        let Some(reply) = self.lanes[lane].replies.front_mut() else { return };
        let left = reply.bytes.len() - reply.given;
        let count = if self.rng.below(2) == 0 { left } else { 1 + self.rng.below(left as u64) as usize };
        let piece = reply.bytes[reply.given..reply.given + count].to_vec();
        reply.given += count;
        let (at, number) = (reply.client, reply.number);
        let kind = if reply.is_error { FrameKind::Error } else { FrameKind::Reply };
        let end = (count == left).then_some(kind);
        if end.is_some() {
            self.lanes[lane].replies.pop_front();
        }
        let client = &mut self.clients[at];
        if client.session.on_reply(number, &piece, end, &client.io) {
            client.session.on_wake(&client.io).expect("valid input");
        }
        self.collect(at);
    }

    /// The gateway hears the next thing on the tracking lane.
    fn deliver_frame(&mut self) {
        let Some(frame) = self.feed.as_mut().and_then(VecDeque::pop_front) else { return };
        for (key, version) in &frame.versions {
            let overwritten = self.overwritten.entry(key.clone()).or_default();
            *overwritten = (*overwritten).max(*version);
        }
        match parse_frame(&frame.bytes) {
            TrackingFrame::Changed(keys) => {
                self.cache.changed(&keys);
                self.invalidate(&keys);
            }
            TrackingFrame::Reply => {
                self.common.is_live.set(true);
                self.cache.set_live(0, true);
                self.tell_all();
                for at in 0..self.clients.len() {
                    let client = &mut self.clients[at];
                    if client.io.is_asking.take() && client.session.on_tracked(None, &client.io) {
                        client.session.on_wake(&client.io).expect("valid input");
                    }
                    self.collect(at);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn invalidate(&mut self, keys: &[&[u8]]) {
        let mut invalidations = Vec::new();
        self.common.table.borrow_mut().changed(keys, |place, keys| {
            invalidations.push((place, keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>()));
        });
        self.tell_all_of(invalidations);
    }

    fn tell_all_of(&mut self, invalidations: Vec<(usize, Vec<Vec<u8>>)>) {
        for (place, keys) in invalidations {
            let Some(at) = self.clients.iter().position(|client| client.io.place.get() == Some(place)) else {
                continue;
            };
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let client = &mut self.clients[at];
            client.session.on_changed(&keys, &client.io);
            self.collect(at);
        }
    }

    fn tell_all(&mut self) {
        self.common.table.borrow_mut().all_changed();
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            client.session.on_all_changed(&client.io);
            self.collect(at);
        }
    }

    fn bring_notice(&mut self) {
        if self.common.posted.borrow().is_empty() {
            return;
        }
        let (id, keys) = self.common.posted.borrow_mut().remove(0);
        let at = id as usize - 1;
        let keys: Option<Vec<&[u8]>> = keys.as_ref().map(|keys| keys.iter().map(|key| &key[..]).collect());
        let client = &mut self.clients[at];
        client.session.on_notice(keys.as_deref(), &client.io);
        self.collect(at);
    }

    fn lose_or_connect(&mut self) {
        if self.feed.is_none() {
            // From here on the server tells.
            self.feed = Some([Frame { bytes: b"+OK\r\n".to_vec(), versions: Vec::new() }].into());
        } else if self.losses && self.chance(4) {
            self.feed = None;
            if self.common.is_live.take() {
                self.cache.set_live(0, false);
                self.tell_all();
            }
        }
    }

    /// Each client that is behind the reply cache reads `a`, one after the other.
    pub(super) fn reads_of_all(&mut self) {
        for at in (0..self.clients.len()).step_by(2) {
            self.says(at, &["GET", "a"], ExpectedReply::Fresh(vec![("a".to_owned(), 0)]));
            self.end();
        }
    }

    /// Nothing else happens: each client reads `a` and keeps it, and gets one invalidation of it.
    pub(super) fn rest(&mut self) {
        let readers: Vec<usize> = (0..self.clients.len()).step_by(2).collect();
        for &at in &readers {
            if self.clients[at].terms == TrackingMode::OptIn {
                self.says(at, &["CLIENT", "CACHING", "YES"], ExpectedReply::Nothing);
            }
            self.says(at, &["GET", "a"], ExpectedReply::Values(vec!["a".to_owned()], true));
        }
        self.end();
        assert!(readers.iter().all(|&at| self.clients[at].holds.contains_key("a")), "all keep it");
        let invalidations = self.invalidations;
        self.write("a");
        self.end();
        assert_eq!(self.invalidations - invalidations, readers.len() as u64);
        assert!(readers.iter().all(|&at| !self.clients[at].holds.contains_key("a")), "nobody has it any more");
    }

    /// Everything that is under way arrives; then all values held are those of the server.
    pub(super) fn end(&mut self) {
        self.losses = false;
        for _ in 0..4000 {
            match self.rng.below(5) {
                0 => self.execute(),
                1 => self.deliver(),
                2 => self.deliver_frame(),
                3 => self.bring_notice(),
                _ => self.lose_or_connect(),
            }
            self.check();
        }
        assert!(self.common.posted.borrow().is_empty() && self.feed.as_ref().is_some_and(VecDeque::is_empty));
        for client in &self.clients {
            assert!(client.expected.is_empty(), "everything is answered");
            for (key, version) in &client.holds {
                assert_eq!(*version, self.server[key], "{:?} holds the latest {key}", client.terms);
            }
        }
    }
}
