//! The surroundings of one session among many: what it asks for is noted, and the play carries it out.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_analysis::redis::Command;
use weir_base::{connection::ConnectionEntry, exchange::Refusal, time::Time, violation::Violation};
use weir_placement::{KeyLocation, Node};

use crate::{
    cache::Cache,
    io::{
        Admission, Clients, Clock, Feeds, Full, Lanes, NoSubscription, Pinning, Replies, Sample, Tally, Ticket,
        Topology, Track,
    },
    lane::{LaneKey, ServerInfo},
    pin_reason::PinReason,
    pubsub::{Kind, Name},
    tracking::{
        Scope,
        table::{EvictedKey, Table},
    },
    users::ListenerShare,
};

/// Keys in an invalidation that a client gets in place of another one; `None`: all.
pub(super) type Invalidation = (u64, Option<Vec<Vec<u8>>>);

/// State that all sessions of the play share.
#[derive(Default)]
pub(super) struct Common {
    pub(super) table: RefCell<Table>,
    /// The tracking lane is live.
    pub(super) is_live: Cell<bool>,
    /// Keys remembered at most.
    pub(super) keys_max: Cell<usize>,
    /// Keys that had to be forgotten for want of room, and whose.
    pub(super) evicted: RefCell<Vec<EvictedKey>>,
    /// Invalidations on their way to other clients.
    pub(super) posted: RefCell<Vec<Invalidation>>,
    pub(super) entries: RefCell<Vec<Arc<ConnectionEntry>>>,
}

/// A request on its way to a lane.
pub(super) struct SentRequest {
    pub(super) number: u64,
    pub(super) skip: u32,
    pub(super) wire: Vec<u8>,
}

/// See the module's documentation.
pub(super) struct Surroundings {
    pub(super) common: Rc<Common>,
    pub(super) entry: Arc<ConnectionEntry>,
    pub(super) place: Cell<Option<usize>>,
    pub(super) output: RefCell<Vec<u8>>,
    pub(super) sent: RefCell<Vec<SentRequest>>,
    pub(super) is_asking: Cell<bool>,
    /// Invalidations sent, of keys.
    pub(super) invalidations: Cell<u64>,
    /// It stands in front of this one.
    pub(super) cache: Option<Rc<Cache>>,
}

impl Surroundings {
    pub(super) fn new(common: &Rc<Common>, id: u64) -> Self {
        let entry = Arc::new(ConnectionEntry::new(id, "play".into(), 0, "192.0.2.1:1000".into(), Time::ZERO));
        common.entries.borrow_mut().push(entry.clone());
        Self {
            common: common.clone(),
            entry,
            place: Cell::new(None),
            output: RefCell::default(),
            sent: RefCell::default(),
            is_asking: Cell::new(false),
            invalidations: Cell::new(0),
            cache: None,
        }
    }
}

impl Clock for Surroundings {
    fn now(&self) -> Time {
        Time::from_nanos(1)
    }

    fn retry_later(&self, _exchange: u64, _pause: Duration) {}
}

impl Replies for Surroundings {
    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.output.borrow_mut());
    }

    fn is_congested(&self) -> bool {
        false
    }
}

impl Admission for Surroundings {
    fn full(&self) -> Option<Full> {
        None
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn admit(&self, _count: u64) -> bool {
        true
    }
}

impl Lanes for Surroundings {
    fn server(&self, _key: LaneKey) -> Option<Rc<ServerInfo>> {
        Some(Rc::default())
    }

    fn batch_room(&self, _key: LaneKey) -> u64 {
        8
    }

    fn must_settle(&self, _key: LaneKey) -> bool {
        false
    }

    fn forward(&self, _key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal> {
        assert_eq!(ticket.count, 1, "commands of a client that tracks are looked at one by one");
        self.sent.borrow_mut().push(SentRequest { number: ticket.number, skip: ticket.skip, wire: request.to_vec() });
        Ok(())
    }

    fn request_complete(&self) {}

    fn pin(&self, _key: LaneKey, _reason: PinReason) -> Pinning {
        Pinning::Refused(Refusal::Unreachable)
    }

    fn forward_pinned(&self, _request: &[u8], _ticket: Ticket) {}

    fn write_pinned(&self, _bytes: &[u8]) {}

    fn is_pin_congested(&self) -> bool {
        false
    }

    fn set_tunnel(&self, _is_tunnel: bool) {}

    fn park(&self) {
        unreachable!("no large commands")
    }

    fn unpark(&self) {
        unreachable!("no large commands")
    }

    fn unpin(&self, _is_clean: bool) {}
}

impl Topology for Surroundings {
    fn primary(&self) -> Option<u16> {
        Some(0)
    }

    fn read_from(&self, shard: u16) -> u16 {
        shard
    }

    fn is_sharded(&self) -> bool {
        false
    }

    fn shards(&self) -> Vec<u16> {
        vec![0]
    }

    fn place(&self, _key: &[u8]) -> KeyLocation {
        KeyLocation { shard: 0, group: 0 }
    }

    fn shard_of(&self, group: u16) -> u16 {
        group
    }

    fn keyless(&self) -> u16 {
        0
    }

    fn home(&self) -> u16 {
        self.keyless()
    }

    fn topology(&self) -> Option<u64> {
        None
    }

    fn redirected(&self, _slot: Option<u16>, _node: &Node, _from: u16) -> Option<u16> {
        None
    }

    fn refresh(&self) {}

    fn advertised(&self) -> (String, u16) {
        (String::new(), 0)
    }
}

impl Feeds for Surroundings {
    fn subscribe(&self, _login: u64, _kind: Kind, _names: &[Name]) -> Result<(), NoSubscription> {
        Err(NoSubscription::TooMany)
    }

    fn unsubscribe(&self, _kind: Kind, _names: &[Name]) -> bool {
        true
    }

    fn unsubscribe_all(&self) {}

    fn note_subscriptions(&self, _count: usize) {}

    fn publish(&self, _login: u64, _kind: Kind, _name: &[u8], _request: &[u8]) -> bool {
        false
    }

    fn track(&self, _login: u64, scope: &Scope) -> Track {
        let place = self.common.table.borrow_mut().join(scope.clone());
        self.place.set(Some(place));
        if self.common.is_live.get() {
            return Track::Live;
        }
        self.is_asking.set(true);
        Track::Later
    }

    fn untrack(&self) {
        if let Some(place) = self.place.take() {
            self.common.table.borrow_mut().leave(place);
        }
    }

    fn note_tracking(&self, _tracks: bool) {}

    fn watch_keys(&self, keys: &[(Name, u16)], remembers: bool) -> bool {
        let Some(place) = self.place.get().filter(|_| self.common.is_live.get()) else { return false };
        if remembers {
            for (key, _) in keys {
                let oldest = self.common.table.borrow_mut().remember(place, key, self.common.keys_max.get());
                self.common.evicted.borrow_mut().extend(oldest);
            }
        }
        true
    }

    fn forget_key(&self, key: &[u8]) {
        if let Some(place) = self.place.get() {
            self.common.table.borrow_mut().forget(place, key);
        }
    }

    fn cache(&self) -> Option<Rc<Cache>> {
        self.cache.clone()
    }
}

impl Clients for Surroundings {
    fn entry(&self) -> &ConnectionEntry {
        &self.entry
    }

    fn source(&self) -> Option<IpAddr> {
        None
    }

    fn share(&self) -> Option<&ListenerShare> {
        None
    }

    fn find_client(&self, id: u64) -> Option<Arc<ConnectionEntry>> {
        self.common.entries.borrow().iter().find(|entry| entry.id == id).cloned()
    }

    fn post(&self, client: &ConnectionEntry, keys: Option<&[&[u8]]>) {
        let keys = keys.map(|keys| keys.iter().map(|key| key.to_vec()).collect());
        self.common.posted.borrow_mut().push((client.id, keys));
    }

    fn list_clients(&self, _filter: &dyn Fn(&ConnectionEntry) -> bool, _out: &mut Vec<u8>) {}

    fn kill_clients(&self, _filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64 {
        0
    }

    fn blocked_as(&self, _id: u64) -> Option<(u16, u64)> {
        None
    }
}

impl Tally for Surroundings {
    fn draw_sample(&self) -> Sample {
        Sample::default()
    }

    fn begin_command(&self, _sample: Sample) {}

    fn count(&self, _command: Option<&'static Command>, _times: u64) {}

    fn count_shed(&self, _reason: &'static str) {}

    fn count_refused(&self, _command: Option<&'static Command>, _reason: &'static str) {}

    fn count_auth_failure(&self) {}

    fn count_error(&self, _reply: &[u8]) {}

    fn count_redirect(&self, _kind: &'static str) {}

    fn count_invalidations(&self, count: usize) {
        self.invalidations.set(self.invalidations.get() + count as u64);
    }

    fn count_denied(&self, _user: &str, _reason: &'static str) {}

    fn count_login(&self, _user: &str) {}

    fn write_info(&self, _out: &mut String, _with_keys: bool) {}

    fn report(&self, _violation: &Violation) {}
}
