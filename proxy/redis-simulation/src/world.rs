//! The surroundings of one session: lanes to the model server, a client that reads when it likes, and every rule of
//! [`Io`] asserted where it is used.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::{BTreeMap, HashSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use weir_analysis::redis::Command;
use weir_base::{connection::ConnectionEntry, exchange::Refusal, time::Time, violation::Violation};
use weir_placement::{Node, Place};
use weir_redis_session::{
    io::{Full, Io, NoSubscription, Pinning, Sample, Ticket},
    lane::{LaneKey, ServerInfo},
    pin::PinReason,
    pubsub::{Kind, Name},
};
use weir_resp::Version;

use crate::{
    feeds::Feeds,
    lane::Lane,
    policy::Policy,
    server::{Shared, group_of},
};

/// Requests that a shared lane takes at once.
const BATCH_MAX: u64 = 3;
/// Unread output above which the client counts as a slow reader, and below which no longer.
const OUTPUT_HIGH: usize = 4096;
const OUTPUT_LOW: usize = 1024;

/// See the module's documentation.
pub struct World {
    entry: ConnectionEntry,
    now: Cell<Time>,
    policy: Cell<Policy>,
    output: RefCell<Vec<u8>>,
    is_congested: Cell<bool>,
    next_number: Cell<u64>,
    greeted: RefCell<HashSet<Version>>,
    shared_lanes: RefCell<Vec<Lane>>,
    pinned: RefCell<Option<Lane>>,
    parked: RefCell<Option<Lane>>,
    asked: Cell<Option<LaneKey>>,
    idle: RefCell<Vec<Lane>>,
    server: RefCell<Shared>,
    violations: RefCell<Vec<&'static str>>,
    shed: RefCell<Vec<&'static str>>,
    pins: Cell<[u64; 4]>,
    pinned_to: RefCell<Vec<u16>>,
    drawn: Cell<u64>,
    /// How many shards there are.
    shards: Cell<u16>,
    /// The version of what the session knows of the cluster; `None`: this is none.
    topology: Cell<Option<u64>>,
    /// Where the session believes groups of keys to be, if not on the shard of their number.
    known: RefCell<BTreeMap<u16, u16>>,
    /// How often the session wished to know anew.
    refreshes: Cell<u64>,
    /// Requests that wait for their pause.
    retries: RefCell<VecDeque<u64>>,
    is_logged: Cell<bool>,
    logged: RefCell<Vec<(&'static str, u64)>>,
    pub(super) feeds: Feeds,
}

impl Default for World {
    fn default() -> Self {
        Self {
            entry: ConnectionEntry::new(7, "simulation".into(), 0, "192.0.2.1:1000".into(), Time::ZERO),
            now: Cell::new(Time::from_nanos(1)),
            policy: Cell::default(),
            output: RefCell::default(),
            is_congested: Cell::new(false),
            next_number: Cell::new(0),
            greeted: RefCell::default(),
            shared_lanes: RefCell::default(),
            pinned: RefCell::default(),
            parked: RefCell::default(),
            asked: Cell::new(None),
            idle: RefCell::default(),
            server: RefCell::default(),
            violations: RefCell::default(),
            shed: RefCell::default(),
            pins: Cell::default(),
            pinned_to: RefCell::default(),
            drawn: Cell::new(0),
            shards: Cell::new(1),
            topology: Cell::new(None),
            known: RefCell::default(),
            refreshes: Cell::new(0),
            retries: RefCell::default(),
            is_logged: Cell::new(false),
            logged: RefCell::default(),
            feeds: Feeds::default(),
        }
    }
}

impl World {
    /// The subscription lanes.
    pub fn feeds(&self) -> &Feeds {
        &self.feeds
    }

    /// Changes what the world does.
    pub fn set(&self, change: impl FnOnce(&mut Policy)) {
        let mut policy = self.policy.get();
        change(&mut policy);
        self.policy.set(policy);
    }

    /// Spreads the keys over `shards` servers.
    pub fn set_shards(&self, shards: u16) {
        self.shards.set(shards);
        self.server().shards = shards;
    }

    /// The shards are nodes of a cluster: they say where keys are that they do not have.
    pub fn set_cluster(&self) {
        self.topology.set(Some(0));
        self.server().is_cluster = true;
    }

    /// Requests that wait for their pause go on: the numbers of them.
    pub fn take_retries(&self) -> Vec<u64> {
        self.retries.borrow_mut().drain(..).collect()
    }

    /// The session learns where everything is.
    pub fn learn(&self) {
        *self.known.borrow_mut() = self.server().homes.clone();
        self.topology.set(self.topology.get().map(|version| version + 1));
    }

    /// How often the session wished to know anew.
    pub fn refreshes(&self) -> u64 {
        self.refreshes.get()
    }

    /// What the world does.
    pub fn policy(&self) -> Policy {
        self.policy.get()
    }

    /// Lets time pass.
    pub fn advance_to(&self, now: Time) {
        self.now.set(now.max(self.now.get()));
    }

    /// The client reads up to `bytes`.
    pub fn read_output(&self, bytes: usize) -> Vec<u8> {
        let mut output = self.output.borrow_mut();
        let count = bytes.min(output.len());
        let read = output.drain(..count).collect();
        if output.len() <= OUTPUT_LOW {
            self.is_congested.set(false);
        }
        read
    }

    /// Bytes that the client has not read.
    pub fn unread(&self) -> usize {
        self.output.borrow().len()
    }

    /// What all server connections share.
    pub fn server(&self) -> RefMut<'_, Shared> {
        self.server.borrow_mut()
    }

    /// The lanes in use: the shared ones, then the pinned one.
    pub fn lane_count(&self) -> usize {
        self.shared_lanes.borrow().len() + usize::from(self.pinned.borrow().is_some())
    }

    /// Looks at a lane; the pinned one is the last.
    pub fn with_lane<R>(&self, index: usize, look: impl FnOnce(&mut Lane, &mut Shared) -> R) -> R {
        let mut server = self.server.borrow_mut();
        match self.shared_lanes.borrow_mut().get_mut(index) {
            Some(lane) => look(lane, &mut server),
            None => look(self.pinned.borrow_mut().as_mut().expect("a pinned lane"), &mut server),
        }
    }

    /// A shared lane takes no more requests.
    pub fn retire_lane(&self, index: usize) {
        if let Some(lane) = self.shared_lanes.borrow_mut().get_mut(index) {
            lane.is_retired = true;
        }
    }

    /// Loses a lane. The numbers of the exchanges that will not be answered, and whether it was the pinned one.
    pub fn lose_lane(&self, index: usize) -> (Vec<u64>, bool) {
        let mut shared = self.shared_lanes.borrow_mut();
        if index < shared.len() {
            let lane = shared.swap_remove(index);
            let (lost, next) = lane.lose(true);
            shared.push(next);
            return (lost, false);
        }
        drop(shared);
        // It stays in its place until the session has been told: it may still write to it, or give it back.
        let mut pinned = self.pinned.borrow_mut();
        let lane = pinned.take().expect("a pinned lane");
        let (lost, mut ruin) = lane.lose(false);
        ruin.is_tunnel = false;
        ruin.is_ruin = true;
        *pinned = Some(ruin);
        (lost, true)
    }

    /// The ruin of a lost pinned lane goes, if the session has not given it back; true if it was still there.
    pub fn clear_ruin(&self) -> bool {
        let was_there = self.pinned.borrow_mut().take_if(|lane| lane.is_ruin).is_some();
        self.count_pins(|pins| pins[3] += u64::from(was_there));
        was_there
    }

    /// A lane was asked for and has neither come nor been refused.
    pub fn is_pin_asked(&self) -> bool {
        self.asked.get().is_some()
    }

    /// The lane asked for is here.
    pub fn grant_pin(&self) {
        let key = self.asked.take().expect("a lane was asked for");
        self.place_pin(key);
    }

    /// The lane asked for will not come.
    pub fn refuse_pin(&self) {
        self.asked.take().expect("a lane was asked for");
    }

    fn place_pin(&self, key: LaneKey) {
        let mut idle = self.idle.borrow_mut();
        let lane = match idle.iter().position(|lane| lane.key == key) {
            Some(at) => idle.swap_remove(at),
            None => Lane::new(key),
        };
        self.greeted.borrow_mut().insert(key.version);
        self.pinned_to.borrow_mut().push(key.shard);
        let before = self.pinned.borrow_mut().replace(lane);
        assert!(before.is_none(), "one pinned lane at a time");
        self.count_pins(|pins| pins[0] += 1);
    }

    fn count_pins(&self, count: impl FnOnce(&mut [u64; 4])) {
        let mut pins = self.pins.get();
        count(&mut pins);
        self.pins.set(pins);
    }

    /// Lanes of its own that the session got, gave back clean, gave back to be closed, and lost.
    pub fn pins(&self) -> [u64; 4] {
        self.pins.get()
    }

    /// The shards of the lanes of its own that the session got.
    pub fn pinned_to(&self) -> Vec<u16> {
        self.pinned_to.borrow().clone()
    }

    /// The lane that the session has set aside is lost; false if there is none.
    pub fn lose_parked(&self) -> bool {
        let was_there = self.parked.borrow_mut().take().is_some();
        self.count_pins(|pins| pins[3] += u64::from(was_there));
        was_there
    }

    /// The session has set a lane aside.
    pub fn is_parked(&self) -> bool {
        self.parked.borrow().is_some()
    }

    /// The session holds a lane of its own.
    pub fn is_pinned(&self) -> bool {
        self.pinned.borrow().is_some()
    }

    /// The connection's end: its lane is closed.
    pub fn leave(&self) {
        for own in [&self.pinned, &self.parked] {
            if own.borrow_mut().take().is_some() {
                self.count_pins(|pins| pins[2] += 1);
            }
        }
        self.shared_lanes.borrow_mut().clear();
        self.asked.set(None);
        self.unsubscribe_all();
    }

    /// Reasons reported.
    pub fn violations(&self) -> Vec<&'static str> {
        self.violations.borrow().clone()
    }

    /// Refusals counted.
    pub fn shed(&self) -> Vec<&'static str> {
        self.shed.borrow().clone()
    }

    /// Commands that went into the access log, and how often each was counted there.
    pub fn logged(&self) -> Vec<(&'static str, u64)> {
        self.logged.borrow().clone()
    }

    /// The session is another one now, in another process: it counts its exchanges anew.
    pub(crate) fn begin_anew(&self) {
        self.next_number.set(0);
    }

    fn is_changing(&self, is_meant: impl Fn(&LaneKey) -> bool) -> bool {
        let lanes = self.shared_lanes.borrow();
        lanes.iter().any(|lane| is_meant(&lane.key) && lane.is_retired && lane.in_flight() > 0)
    }

    fn carry(&self, ticket: Ticket) {
        let policy = self.policy.get();
        assert!(policy.is_trusted, "a request before authentication");
        assert!(policy.full.is_none(), "a request although the core is full: it would get no permit");
        // Commands in a tunnel, and subscriptions, have numbers too, but no tickets.
        let is_again = self.topology.get().is_some();
        assert!(is_again || ticket.number >= self.next_number.get(), "exchanges are numbered in order");
    }
}

impl Io for World {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut output = self.output.borrow_mut();
        encode(&mut output);
        if output.len() > OUTPUT_HIGH {
            self.is_congested.set(true);
        }
    }

    fn is_congested(&self) -> bool {
        self.is_congested.get()
    }

    fn full(&self) -> Option<Full> {
        self.policy.get().full
    }

    fn batch_room(&self, _key: LaneKey) -> u64 {
        let policy = self.policy.get();
        if policy.full.is_some() || self.is_sharded() || self.is_changing(|_| true) {
            0
        } else {
            BATCH_MAX.min(policy.admits)
        }
    }

    fn admit(&self, count: u64) -> bool {
        let left = self.policy.get().admits.checked_sub(count);
        if let Some(left) = left {
            self.set(|policy| policy.admits = left);
        }
        left.is_some()
    }

    fn must_settle(&self, key: LaneKey) -> bool {
        self.is_changing(|lane| lane.shard == key.shard)
    }

    fn is_sharded(&self) -> bool {
        self.shards.get() > 1
    }

    fn shards(&self) -> Vec<u16> {
        (0..self.shards.get()).collect()
    }

    fn place(&self, key: &[u8]) -> Place {
        let group = group_of(key, self.shards.get());
        Place { shard: self.shard_of(group), group }
    }

    fn shard_of(&self, group: u16) -> u16 {
        self.known.borrow().get(&group).copied().unwrap_or(group)
    }

    fn topology(&self) -> Option<u64> {
        self.topology.get()
    }

    fn redirected(&self, slot: Option<u16>, node: &Node, _from: u16) -> Option<u16> {
        let target = Some(node.port).filter(|&port| port < self.shards.get())?;
        if let Some(slot) = slot {
            self.known.borrow_mut().insert(slot, target);
            self.topology.set(self.topology.get().map(|version| version + 1));
        }
        Some(target)
    }

    fn refresh(&self) {
        self.refreshes.set(self.refreshes.get() + 1);
    }

    fn retry_later(&self, exchange: u64, _pause: Duration) {
        self.retries.borrow_mut().push_back(exchange);
    }

    fn forward(&self, key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal> {
        let pinned = self.pinned.borrow().as_ref().map(|lane| lane.key.shard);
        assert_ne!(pinned, Some(key.shard), "a request on a shared lane beside the pinned one");
        self.carry(ticket);
        if let Some(refusal) = self.policy.get().refusal {
            return Err(refusal);
        }
        let mut lanes = self.shared_lanes.borrow_mut();
        lanes.retain(|lane| !lane.is_retired || lane.in_flight() > 0);
        // Replies of several shards may come in any order.
        let is_other = |lane: &&Lane| lane.key.shard == key.shard && (lane.key != key || lane.is_retired);
        let others = lanes.iter().filter(is_other).map(Lane::in_flight).sum::<usize>();
        assert_eq!(others, 0, "replies of two lanes could overtake each other");
        self.next_number.set(self.next_number.get().max(ticket.number + ticket.count));
        match lanes.iter_mut().find(|lane| lane.key == key) {
            Some(lane) => lane.send(request, ticket),
            None => {
                let mut lane = Lane::new(key);
                lane.send(request, ticket);
                lanes.push(lane);
            }
        }
        Ok(())
    }

    fn pin(&self, key: LaneKey, _reason: PinReason) -> Pinning {
        assert!(self.policy.get().is_trusted, "a lane before authentication");
        assert!(self.asked.get().is_none(), "a lane was asked for already");
        let flying = self.shared_lanes.borrow().iter().map(Lane::in_flight).sum::<usize>();
        assert_eq!(flying, 0, "replies of two lanes could overtake each other");
        if let Some(lane) = &*self.pinned.borrow() {
            assert_eq!(lane.key, key, "the lane that came is the one asked for");
            return Pinning::Ready;
        }
        let answer = self.policy.get().pinning;
        match answer {
            Pinning::Ready => self.place_pin(key),
            Pinning::Later => self.asked.set(Some(key)),
            Pinning::TooManyBlocked | Pinning::Refused(_) => {}
        }
        answer
    }

    fn forward_pinned(&self, request: &[u8], ticket: Ticket) {
        self.carry(ticket);
        self.next_number.set(self.next_number.get().max(ticket.number + ticket.count));
        self.pinned.borrow_mut().as_mut().expect("a lane of the client's own").send(request, ticket);
    }

    fn write_pinned(&self, bytes: &[u8]) {
        assert!(self.policy.get().is_trusted, "a request before authentication");
        self.pinned.borrow_mut().as_mut().expect("a lane of the client's own").write(bytes);
    }

    fn is_pin_congested(&self) -> bool {
        self.pinned.borrow().as_ref().is_some_and(Lane::is_congested)
    }

    fn set_tunnel(&self, is_tunnel: bool) {
        let mut pinned = self.pinned.borrow_mut();
        let lane = pinned.as_mut().expect("a lane of the client's own");
        assert_eq!(lane.in_flight(), 0, "a tunnel is entered and left between exchanges");
        assert_ne!(lane.is_tunnel, is_tunnel);
        lane.is_tunnel = is_tunnel;
    }

    fn park(&self) {
        let lane = self.pinned.borrow_mut().take().expect("a lane of the client's own");
        assert_eq!((lane.in_flight(), lane.is_tunnel), (0, false), "a lane is set aside between exchanges");
        let before = self.parked.borrow_mut().replace(lane);
        assert!(before.is_none(), "one lane is set aside at a time");
    }

    fn unpark(&self) {
        let lane = self.parked.borrow_mut().take().expect("a lane was set aside");
        let before = self.pinned.borrow_mut().replace(lane);
        assert!(before.is_none(), "one pinned lane at a time");
    }

    fn unpin(&self, is_clean: bool) {
        let lane = self.pinned.borrow_mut().take().expect("a lane is given back once");
        self.count_pins(|pins| pins[if is_clean { 1 } else { 2 }] += 1);
        if is_clean && !lane.is_ruin {
            assert_eq!(lane.dirt(), None, "a lane given back as clean");
            self.idle.borrow_mut().push(lane);
        }
    }

    fn subscribe(&self, _login: u64, kind: Kind, names: &[Name]) -> Result<(), NoSubscription> {
        let policy = self.policy.get();
        assert!(policy.is_trusted, "a request before authentication");
        match policy.refusal {
            Some(refusal) => Err(NoSubscription::Refused(refusal)),
            None => {
                self.feeds.subscribe(kind, names, self);
                Ok(())
            }
        }
    }

    fn unsubscribe(&self, kind: Kind, names: &[Name]) -> bool {
        self.feeds.unsubscribe(kind, names, self)
    }

    fn unsubscribe_all(&self) {
        self.feeds.leave(self);
    }

    fn note_subscriptions(&self, count: usize) {
        self.entry.subscriptions.store(count as u32, std::sync::atomic::Ordering::Relaxed);
    }

    fn publish(&self, _login: u64, kind: Kind, name: &[u8], request: &[u8]) -> bool {
        self.feeds.publish(kind, name, request, self)
    }

    fn server(&self, key: LaneKey) -> Option<Rc<ServerInfo>> {
        self.greeted.borrow().contains(&key.version).then(Rc::default)
    }

    fn entry(&self) -> &ConnectionEntry {
        &self.entry
    }

    fn list_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool, out: &mut Vec<u8>) {
        if filter(&self.entry) {
            weir_redis_session::client::write_line(out, &self.entry, self.now());
        }
    }

    fn kill_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64 {
        u64::from(filter(&self.entry))
    }

    fn draw_sample(&self) -> Sample {
        self.drawn.set(self.drawn.get() + 1);
        let every = self.policy.get().logs_every;
        Sample { is_timed: false, is_logged: every > 0 && self.drawn.get().is_multiple_of(every) }
    }

    fn begin_command(&self, sample: Sample) {
        self.is_logged.set(sample.is_logged);
    }

    fn count(&self, command: Option<&'static Command>, times: u64) {
        if self.is_logged.take() {
            self.logged.borrow_mut().push((command.map_or("unknown", |command| command.name), times));
        }
    }

    fn count_shed(&self, reason: &'static str) {
        self.shed.borrow_mut().push(reason);
    }

    fn count_refused(&self, _command: Option<&'static Command>, reason: &'static str) {
        self.count_shed(reason);
    }

    fn count_auth_failure(&self) {}

    fn count_error(&self, reply: &[u8]) {
        assert!(!reply.is_empty());
    }

    fn report(&self, violation: &Violation) {
        self.violations.borrow_mut().push(violation.reason);
    }
}
