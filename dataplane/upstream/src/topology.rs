//! Which endpoint has a key, which is the primary, and who follows whom.

use std::{io, rc::Rc};

use weir_base::time::turn;
use weir_engine::settings::Address;
use weir_placement::{KeyLocation, Node, Placement};

use crate::{
    breaker::BreakerState,
    discovery::{self, View},
    endpoint::Endpoint,
    endpoints::Endpoints,
    replicas::Primary,
    settings::{ReadFrom, Topology, UpstreamSettings},
    slots::SlotMap,
};

/// How keys are spread over the endpoints.
pub(crate) enum Spread {
    /// All are on the only one.
    No,
    Hashed(Placement),
    Slots(SlotMap),
    /// All are on one server: the present primary.
    Primary(Primary),
}

impl Spread {
    pub(crate) fn new(settings: &UpstreamSettings) -> Self {
        match settings.placement.clone() {
            _ if settings.topology == Topology::Slots => Self::Slots(SlotMap::default()),
            _ if settings.topology != Topology::Fixed => Self::Primary(Primary::default()),
            Some(placement) if settings.endpoints.len() > 1 => {
                Self::Hashed(Placement::new(placement, &settings.endpoints))
            }
            _ => Self::No,
        }
    }
}

impl Endpoints {
    /// Requests of one client may go to several endpoints at once.
    #[inline]
    pub fn is_spread(&self) -> bool {
        match self.spread {
            Spread::No => false,
            Spread::Hashed(_) | Spread::Slots(_) => true,
            Spread::Primary(_) => self.settings().read_from != ReadFrom::Primary,
        }
    }

    /// The endpoint of commands that belong to no other one; `None`: the primary is not known yet.
    #[inline]
    pub fn primary(&self) -> Option<u16> {
        match &self.spread {
            Spread::Primary(primary) => primary.number(),
            Spread::No | Spread::Hashed(_) | Spread::Slots(_) => Some(0),
        }
    }

    /// See [`Upstream::read_from`](crate::Upstream::read_from). `try_again` finds out whether a server is back.
    pub(crate) fn read_from(&self, shard: u16, connection: u64, try_again: impl Fn(u16, &Rc<Endpoint>)) -> u16 {
        if self.settings().read_from == ReadFrom::Primary {
            return shard;
        }
        let endpoints = self.all();
        let is_well = |number: u16| match endpoints.get(usize::from(number)).map(|one| (one, one.breaker_state())) {
            Some((_, BreakerState::Closed)) => true,
            Some((endpoint, BreakerState::HalfOpen)) => {
                // Reads go elsewhere, so none of them would find out that it is back.
                try_again(number, endpoint);
                false
            }
            Some((_, BreakerState::Open)) | None => false,
        };
        let is_near = |number: u16| endpoints.get(usize::from(number)).is_some_and(|one| one.is_near.get());
        self.replicas.choose(self.settings().read_from, shard, connection, is_well, is_near)
    }

    /// The slots, if this is a cluster.
    pub fn slots(&self) -> Option<&SlotMap> {
        match &self.spread {
            Spread::Slots(slots) => Some(slots),
            Spread::No | Spread::Hashed(_) | Spread::Primary(_) => None,
        }
    }

    /// The endpoint of messages. In a cluster one node for as long as it is part of it and can be reached, whether or not it
    /// keeps its slots: from two nodes the messages of one client could arrive in another order.
    pub fn home(&self) -> u16 {
        let endpoints = self.all();
        let is_well = |number: u16| {
            endpoints
                .get(usize::from(number))
                .is_some_and(|one| one.is_member.get() && one.breaker_state() != BreakerState::Open)
        };
        self.slots().map_or_else(|| self.primary().unwrap_or(0), |slots| slots.home(is_well))
    }

    /// Where `key` is.
    pub fn place(&self, key: &[u8]) -> KeyLocation {
        match &self.spread {
            Spread::No => KeyLocation { shard: 0, group: 0 },
            Spread::Hashed(placement) => {
                let shard = placement.place(key);
                KeyLocation { shard, group: shard }
            }
            Spread::Slots(slots) => slots.place(key),
            Spread::Primary(primary) => KeyLocation { shard: primary.number().unwrap_or(0), group: 0 },
        }
    }

    /// Where the keys of `group` are now.
    pub fn shard_of(&self, group: u16) -> u16 {
        match &self.spread {
            Spread::Slots(slots) => slots.owner(group),
            Spread::Primary(primary) => primary.number().unwrap_or(group),
            Spread::No | Spread::Hashed(_) => group,
        }
    }

    /// The numbers of the endpoints that have keys.
    pub fn shards(&self) -> Vec<u16> {
        match &self.spread {
            Spread::Slots(slots) => {
                let (mut primaries, endpoints) = (slots.primaries(), self.all());
                // The same order on every worker, and whatever slots move.
                primaries.sort_by_key(|&number| {
                    endpoints.get(usize::from(number)).map(|one| one.connector().endpoint.clone())
                });
                primaries
            }
            Spread::No | Spread::Hashed(_) => (0..self.endpoint_count()).collect(),
            Spread::Primary(primary) => primary.number().into_iter().collect(),
        }
    }

    /// The number of the endpoint that `node` is, as the endpoint `named_by` names it; `None` if it is not known to be in the
    /// cluster: a redirection must not lead just anywhere.
    pub fn find(&self, node: &Node, named_by: u16) -> Option<u16> {
        let endpoints = self.all();
        let address = discovery::address(node, &endpoints.get(usize::from(named_by))?.connector().endpoint)?;
        let is_there = |endpoint: &Rc<Endpoint>| endpoint.is_member.get() && endpoint.connector().endpoint == address;
        endpoints.iter().position(is_there).map(|at| at as u16)
    }

    /// The numbers of the endpoints that may be queried for the map.
    pub(crate) fn members(&self) -> Vec<u16> {
        if self.settings().topology == Topology::Watched {
            return (0..self.settings().endpoints.len() as u16).collect();
        }
        self.servers()
    }

    /// The numbers of the servers, not of those who watch over them.
    pub fn servers(&self) -> Vec<u16> {
        let watchers = if self.settings().topology == Topology::Watched { self.settings().endpoints.len() } else { 0 };
        let endpoints = self.all();
        let servers = (0..).zip(endpoints.iter()).skip(watchers);
        servers.filter(|(_, endpoint)| endpoint.is_member.get()).map(|(number, _)| number).collect()
    }

    /// Makes a discovery due: the cluster is queried soon.
    pub fn refresh(&self) {
        self.schedule.want();
    }

    /// Counts a request that a node of the cluster sent elsewhere.
    pub fn count_redirect(&self, kind: &str) {
        self.metrics.redirected(kind);
    }

    /// Takes the view that `asked` reported; false if the view names no owners of slots.
    pub(crate) fn take_view(&self, asked: &Address, view: &View) -> bool {
        if view.ranges.is_empty() {
            view.nodes.iter().filter_map(|node| discovery::address(node, asked)).for_each(|address| {
                // It may be queried next.
                self.number(address);
            });
            return false;
        }
        for endpoint in self.all().iter().skip(self.settings().endpoints.len()) {
            endpoint.is_member.set(endpoint.connector().endpoint == *asked);
        }
        let number = |node: &Node| self.number(discovery::address(node, asked)?);
        for node in &view.nodes {
            // So that a redirection may lead there.
            number(node);
        }
        let mut owners = Vec::new();
        self.replicas.clear();
        for range in &view.ranges {
            let Some(primary) = number(&range.primary) else { continue };
            owners.push((range.first, range.last, primary));
            self.replicas.add(primary, range.replicas.iter().filter_map(number));
        }
        match &self.spread {
            Spread::Slots(slots) => slots.replace(owners, turn::now()),
            Spread::Primary(primary) => primary.set(owners.first().map(|(_, _, number)| *number)),
            Spread::No | Spread::Hashed(_) => {}
        }
        true
    }

    /// Endpoint number `number` did not say who is in the cluster.
    pub(crate) fn discovery_failed(&self, number: u16, error: &io::Error) {
        self.get(usize::from(number)).metrics().connect_failed("discovery", &error.to_string());
    }
}
