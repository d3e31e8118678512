//! One named upstream on one worker: its pools, and the knowledge of its servers.
//!
//! With the name of a replica set the endpoints of the configuration are seeds. The members that the set names replace them, on all
//! workers, and again at each change: the pools are made again over the members, with the connections and limits of those that stay.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use weir_engine::settings::Address;
use weir_listener::CoreShare;
use weir_mongodb_session::{
    ReadMode,
    pins::{PinLimits, Pins, ServerId},
};
use weir_upstream::{
    EndpointShare, UpstreamMetrics,
    pooled::{Pool, PooledUpstream},
    settings::UpstreamSettings,
};

use crate::{
    monitor,
    opening::Openings,
    preference::Preference,
    server::{HelloProbe, MongodbServer, PoolKey},
    settings::{MEMBERS_MAX, MongodbUpstreamSettings},
    topology::{Election, Topology},
    watch::ServerWatch,
};

/// The pools of all servers of an upstream, as they are known now.
pub(crate) type Servers = PooledUpstream<MongodbServer>;

/// A server and its share of all workers.
type Member = (Address, Arc<EndpointShare>);

/// The members of one upstream as all workers know them.
struct Members {
    /// The settings of the upstream.
    settings: UpstreamSettings,
    /// The seeds that they were found by.
    seeds: Vec<Member>,
    /// The name of the set.
    set_name: Option<String>,
    /// Those of now.
    list: Mutex<Vec<Member>>,
    /// Grows with each change of the list.
    version: AtomicU64,
    /// The newest election of the set that a worker has seen.
    newest: Mutex<Option<Election>>,
}

impl Members {
    /// Notes an election, and returns the newest one of all.
    fn newest(&self, seen: Option<Election>) -> Option<Election> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = seen.max(*newest);
        *newest
    }

    /// Those that are no seeds.
    fn found(&self) -> Vec<Member> {
        let is_found = |member: &&Member| !self.seeds.iter().any(|(seed, _)| *seed == member.0);
        self.list().iter().filter(is_found).cloned().collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Member>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_of(&self, seeds: &[Member], set_name: Option<&str>) -> bool {
        let is_same = |(own, other): (&Member, &Member)| own.0 == other.0 && Arc::ptr_eq(&own.1, &other.1);
        self.set_name.as_deref() == set_name
            && self.seeds.len() == seeds.len()
            && self.seeds.iter().zip(seeds).all(is_same)
    }
}

/// The state that all upstreams and listeners of the process share. Clones share it.
#[derive(Clone, Default)]
pub struct ProcessShare(Arc<Process>);

struct Process {
    /// The members of each upstream.
    members: Mutex<HashMap<Arc<str>, Arc<Members>>>,
    /// No pins, and the index of sessions that all listeners share.
    pins: Mutex<Pins>,
}

impl Default for Process {
    fn default() -> Self {
        Self { members: Mutex::default(), pins: Mutex::new(Pins::new(PinLimits::SHARED)) }
    }
}

impl ProcessShare {
    /// The members of the upstream with these settings, which the first worker with these seeds makes.
    fn members(&self, settings: &UpstreamSettings, seeds: Vec<Member>, set_name: Option<&str>) -> Arc<Members> {
        let mut all = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&settings.name).filter(|known| known.are_of(&seeds, set_name)) {
            return known.clone();
        }
        let before = all.get(&settings.name);
        // Other seeds of the same set undo no election, and lose no member.
        let before = before.filter(|before| set_name.is_some() && before.set_name.as_deref() == set_name);
        let mut list = seeds.clone();
        for (address, share) in before.iter().flat_map(|before| before.found()) {
            let share = share.after_reload(before.map_or(settings, |before| &before.settings), settings);
            let has_room = list.len() < MEMBERS_MAX;
            match list.iter_mut().find(|(own, _)| *own == address) {
                Some(seed) => seed.1 = share,
                None if has_room => list.push((address, share)),
                None => {}
            }
        }
        let newest = Mutex::new(before.and_then(|before| before.newest(None)));
        let (settings, set_name) = (settings.clone(), set_name.map(str::to_owned));
        let (list, version) = (Mutex::new(list), AtomicU64::new(0));
        let made = Arc::new(Members { settings, seeds, set_name, list, version, newest });
        all.insert(made.settings.name.clone(), made.clone());
        made
    }

    /// The servers of that upstream as they are known now, with the state of each: its endpoints, or the members that its set has named. `None`:
    /// no worker has it.
    pub fn servers_of(&self, upstream: &str) -> Option<Vec<(Address, Arc<EndpointShare>)>> {
        let all = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        let members = all.get(upstream)?;
        Some(members.list().clone())
    }

    /// No pins, beside those of all listeners.
    pub(crate) fn pins_beside(&self, limits: PinLimits) -> Pins {
        self.0.pins.lock().unwrap_or_else(PoisonError::into_inner).beside(limits)
    }
}

/// See above.
pub struct MongodbUpstream {
    core: CoreShare,
    settings: UpstreamSettings,
    own: MongodbUpstreamSettings,
    key: PoolKey,
    process: ProcessShare,
    members: Arc<Members>,
    servers: RefCell<Rc<Servers>>,
    /// The pool of the gateway's own login there.
    pool: RefCell<Rc<Pool<MongodbServer>>>,
    version: Cell<u64>,
    /// The knowledge of the servers, and the changes up to which it is.
    topology: RefCell<(u64, Rc<Topology>)>,
    /// This worker looks at the servers for all.
    watches: bool,
    /// The servers that have a monitor.
    pub(crate) monitored: RefCell<Vec<Address>>,
    /// The set had a primary at the last look.
    pub(crate) has_primary: Cell<bool>,
    is_retired: Cell<bool>,
    /// Connections of clients' own that are being made.
    pub(crate) openings: Rc<Openings>,
}

impl MongodbUpstream {
    /// An upstream with one share for each endpoint, the same on all workers. `watches`: this worker looks at the servers for all.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        (core, process): (&CoreShare, &ProcessShare),
        settings: UpstreamSettings,
        own: MongodbUpstreamSettings,
        shares: &[Arc<EndpointShare>],
        watches: bool,
    ) -> io::Result<Rc<Self>> {
        let seeds = settings.endpoints.iter().cloned().zip(shares.iter().cloned()).collect();
        let members = process.members(&settings, seeds, own.replica_set.as_deref());
        let version = members.version.load(Relaxed);
        let servers = make(core, &settings, &own, &members, watches)?;
        let key = PoolKey::new(&own);
        let upstream = Rc::new(Self {
            core: core.clone(),
            pool: RefCell::new(servers.pool(&key)),
            key,
            settings,
            own,
            process: process.clone(),
            members,
            servers: RefCell::new(servers),
            version: Cell::new(version),
            topology: RefCell::new((u64::MAX, Rc::new(Topology::new(Vec::new(), None, None)))),
            watches,
            monitored: RefCell::default(),
            has_primary: Cell::new(false),
            is_retired: Cell::new(false),
            openings: Rc::default(),
        });
        if watches {
            monitor::begin(&upstream);
        }
        Ok(upstream)
    }

    /// The name of the upstream.
    pub fn name(&self) -> &Arc<str> {
        &self.settings.name
    }

    /// Its own settings.
    pub fn own_settings(&self) -> &MongodbUpstreamSettings {
        &self.own
    }

    /// Takes part in nothing new: it was replaced.
    pub fn retire(&self) {
        self.is_retired.set(true);
        self.servers.borrow().retire();
    }

    /// It was replaced.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// The servers as they are known now.
    pub(crate) fn servers(self: &Rc<Self>) -> Rc<Servers> {
        if self.members.version.load(Relaxed) != self.version.get() {
            self.follow_members();
        }
        self.servers.borrow().clone()
    }

    /// The set has other members.
    #[cold]
    fn follow_members(self: &Rc<Self>) {
        self.version.set(self.members.version.load(Relaxed));
        // Its TLS files were readable before; without them the old members stay.
        let Ok(servers) = make(&self.core, &self.settings, &self.own, &self.members, self.watches) else { return };
        if self.is_retired.get() {
            servers.retire();
        }
        self.pool.replace(servers.pool(&self.key));
        let before = self.servers.replace(servers);
        self.topology.borrow_mut().0 = u64::MAX;
        before.retire();
        if self.watches {
            monitor::begin(self);
        }
    }

    /// Replaces the members of the set; those that stay keep their state. False: they are the same.
    pub(crate) fn set_members(&self, addresses: &[Address]) -> bool {
        let mut list = self.members.list();
        let is_same =
            list.len() == addresses.len() && addresses.iter().all(|new| list.iter().any(|(own, _)| own == new));
        if is_same || addresses.is_empty() {
            return false;
        }
        let share = |address: &Address| {
            let known = list.iter().chain(&self.members.seeds).find(|(own, _)| own == address);
            (address.clone(), known.map_or_else(Arc::default, |(_, share)| share.clone()))
        };
        let now: Vec<_> = addresses.iter().map(share).collect();
        *list = now;
        self.members.version.fetch_add(1, Relaxed);
        true
    }

    /// The addresses of the servers, in the order of their numbers.
    pub(crate) fn addresses(self: &Rc<Self>) -> Vec<Address> {
        self.servers().settings().endpoints.clone()
    }

    /// The endpoints of the configuration.
    pub(crate) fn seeds(&self) -> Vec<Address> {
        self.members.seeds.iter().map(|(address, _)| address.clone()).collect()
    }

    /// The pool of the gateway's own login.
    pub(crate) fn pool(self: &Rc<Self>) -> Rc<Pool<MongodbServer>> {
        if self.members.version.load(Relaxed) != self.version.get() {
            self.follow_members();
        }
        self.pool.borrow().clone()
    }

    fn count(servers: &Servers) -> usize {
        servers.settings().endpoints.len()
    }

    /// The knowledge of the servers.
    pub(crate) fn topology(self: &Rc<Self>) -> Rc<Topology> {
        let servers = self.servers();
        let watches = || (0..Self::count(&servers)).map(|number| servers.watch_ref(number));
        let changes: u64 = watches().map(ServerWatch::changes).sum();
        let mut known = self.topology.borrow_mut();
        if known.0 != changes {
            let standings = watches().map(ServerWatch::standing).collect();
            let topology = Topology::new(standings, self.own.replica_set.as_deref(), self.members.newest(None));
            self.members.newest(topology.newest());
            *known = (changes, Rc::new(topology));
        }
        known.1.clone()
    }

    /// The servers that a command may have, a bit for each.
    pub(crate) fn candidates(self: &Rc<Self>, mode: ReadMode, preference: &Preference<'_>) -> u64 {
        self.topology().candidates(mode, preference)
    }

    /// The number of a server; `None`: it is gone.
    pub(crate) fn number_of(self: &Rc<Self>, server: ServerId) -> Option<usize> {
        let servers = self.servers();
        (0..Self::count(&servers)).find(|number| servers.watch_ref(*number).id() == server)
    }

    /// Servers of this upstream that another one does not have.
    pub(crate) fn left_for(self: &Rc<Self>, other: &Rc<Self>) -> Vec<ServerId> {
        if Rc::ptr_eq(self, other) {
            return Vec::new();
        }
        let others = other.server_ids();
        self.server_ids().into_iter().filter(|server| !others.contains(server)).collect()
    }

    /// No pins, beside those of all listeners of the process.
    pub(crate) fn pins_of_process(&self, limits: PinLimits) -> Pins {
        self.process.pins_beside(limits)
    }

    /// All servers of now.
    pub(crate) fn server_ids(self: &Rc<Self>) -> Vec<ServerId> {
        let servers = self.servers();
        (0..Self::count(&servers)).map(|number| servers.watch_ref(number).id()).collect()
    }
}

/// Pools over the members of now.
fn make(
    core: &CoreShare,
    settings: &UpstreamSettings,
    own: &MongodbUpstreamSettings,
    members: &Members,
    watches: bool,
) -> io::Result<Rc<Servers>> {
    let (endpoints, shares): (Vec<_>, Vec<_>) = members.list().iter().cloned().unzip();
    let settings = UpstreamSettings { endpoints, ..settings.clone() };
    let metrics = UpstreamMetrics::new(&core.metrics, core.events.clone(), settings.name.clone());
    let probe = watches.then_some(HelloProbe);
    Servers::new(settings, own.pool.clone(), MongodbServer::new(own), &shares, metrics, probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect("an address")
    }

    fn seeds(all: &[&str]) -> Vec<Member> {
        all.iter().map(|seed| (address(seed), Arc::default())).collect()
    }

    #[test]
    fn members_that_were_found_stay_when_the_seeds_change() {
        let process = ProcessShare::default();
        let settings = UpstreamSettings::new("set", vec![address("10.0.0.1:27017")]);
        assert!(process.servers_of("set").is_none());
        let first = process.members(&settings, seeds(&["10.0.0.1:27017"]), Some("rs0"));
        let found: Member = (address("10.0.0.2:27017"), Arc::default());
        *first.list() = vec![found.clone()];
        let shown = process.servers_of("set").expect("its members");
        assert!(shown.len() == 1 && Arc::ptr_eq(&shown[0].1, &found.1), "operators see the members");
        let now = process.members(&settings, seeds(&["10.0.0.1:27017", "10.0.0.3:27017"]), Some("rs0"));
        let list = now.list().clone();
        let known: Vec<_> = list.iter().map(|(address, _)| address.to_string()).collect();
        assert_eq!(known, ["10.0.0.1:27017", "10.0.0.3:27017", "10.0.0.2:27017"]);
        assert!(Arc::ptr_eq(&list[2].1, &found.1), "with all that is known of it");
        let now = process.members(&settings, seeds(&["10.0.0.2:27017"]), Some("rs0"));
        let list = now.list().clone();
        assert!(list.len() == 1 && Arc::ptr_eq(&list[0].1, &found.1), "also as a seed");
        let other = process.members(&settings, seeds(&["10.0.0.1:27017"]), Some("rs1"));
        assert_eq!(other.list().len(), 1, "another set");
    }
}
