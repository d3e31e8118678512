//! The surroundings of one session: lanes to the model server, a client that reads when it likes, and every rule of
//! [`Io`](weir_redis_session::Io) asserted where it is used.

mod surroundings;

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::{BTreeMap, HashSet, VecDeque},
};

use weir_base::{connection::ConnectionEntry, time::Time};
use weir_redis_session::{
    io::{Feeds as _, Ticket},
    lane::LaneKey,
};
use weir_resp::Version;

use crate::{feeds::Feeds, lane::Lane, policy::Policy, server::Shared};

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
    requested_pin: Cell<Option<LaneKey>>,
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
    /// How often the session wanted a refresh.
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
            requested_pin: Cell::new(None),
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

    /// How often the session wanted a refresh.
    pub fn refreshes(&self) -> u64 {
        self.refreshes.get()
    }

    /// The policy of the world.
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

    /// State that all server connections share.
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
        // It stays in its place until the session knows: it may still write to it, or give it back.
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

    /// A lane was requested and has neither come nor been refused.
    pub fn is_pin_requested(&self) -> bool {
        self.requested_pin.get().is_some()
    }

    /// The requested lane is here.
    pub fn grant_pin(&self) {
        let key = self.requested_pin.take().expect("a lane was asked for");
        self.place_pin(key);
    }

    /// The requested lane will not come.
    pub fn refuse_pin(&self) {
        self.requested_pin.take().expect("a lane was asked for");
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
        self.requested_pin.set(None);
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

    /// The session is another one now, in another process: it counts its exchanges again.
    pub(crate) fn restart_caching(&self) {
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
