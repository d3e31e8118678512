//! PAUSE and RESUME on all workers, over a reload and over an upgrade: servers that come with it are paused as those that they replace.
//!
//! A pause is in the ledgers of the endpoints, which all workers share. Workers take a reload one after the other, and for that moment they
//! have different endpoints: an order goes to each of them.

use std::{collections::HashSet, rc::Rc, sync::Arc};

use weir_upstream::{
    EndpointShare,
    pooled::{PoolShare, Scope},
};

use crate::{
    relay::{ForeignPause, PauseOrder},
    route::Routes,
    server::{PoolKey, PostgresServer},
    service::{PostgresUpstream, Service},
};

/// The order for a scope has changed: the worker has its upstreams do what [`crate::ListenerShared`] says of it now.
pub(crate) struct PauseNotice(Scope<PoolKey>);

impl PauseNotice {
    /// Has the upstreams of the worker of `service` follow.
    pub(crate) fn follow(&self, service: &Service) {
        let is_paused = service.shared.is_paused(name_of(&self.0));
        for upstream in service.routes().upstreams() {
            match is_paused {
                true => upstream.pause(&self.0),
                false => upstream.resume(&self.0),
            }
        }
    }
}

impl PauseOrder {
    fn scope(&self) -> Scope<PoolKey> {
        self.database.clone().map_or(Scope::All, Scope::Database)
    }

    /// Carries the order out on the worker of `service`. One of another process comes to each worker.
    pub(crate) fn carry_out(&self, service: &Service) {
        service.shared.set_paused(self.database.as_deref(), self.is_paused);
        PauseNotice(self.scope()).follow(service);
    }
}

/// Carries the order out at all upstreams of the listener, and at those of the process before, whose clients may wait.
///
/// # Errors
/// See [`PauseFailure`].
pub(crate) fn order(service: &Service, order: PauseOrder) -> Result<(), PauseFailure> {
    let (core, name) = (service.sessions.core(), service.sessions.name());
    let carry_out = || {
        order.carry_out(service);
        for worker in (0..core.workers).filter(|worker| *worker != core.worker) {
            (core.post)(worker, name, Box::new(PauseNotice(order.scope())));
        }
    };
    service.relay.while_open(carry_out).ok_or(PauseFailure::UpgradeUnderWay)?;
    match service.relay.forward_pause(ForeignPause { listener: name.clone(), order: order.clone() }) {
        true => Ok(()),
        false => Err(PauseFailure::NotForwarded),
    }
}

/// Why an order holds not at all, or not everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseFailure {
    /// Nothing was done: the new process would not know of the order.
    UpgradeUnderWay,
    /// The order holds here. The process before, which drains, takes no order now.
    NotForwarded,
}

/// The database of a scope. `None`: all of them.
fn name_of(scope: &Scope<PoolKey>) -> Option<&[u8]> {
    match scope {
        Scope::Database(name) => Some(name),
        Scope::All | Scope::Key(_) => None,
    }
}

/// The databases of one upstream that PAUSE or KILL stops, for an upstream of the same name: after a reload, or in another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedDatabases {
    /// All of them.
    pub is_all: bool,
    /// Their names. They are those that clients give, or those of the server.
    pub names: Vec<Box<[u8]>>,
}

impl PausedDatabases {
    /// The pauses that hold now at some of the endpoints of an upstream.
    #[must_use]
    pub fn of(endpoints: &[Arc<EndpointShare>]) -> Self {
        let mut all = Self::default();
        for scope in endpoints.iter().flat_map(|endpoint| endpoint.pools.pauses::<PostgresServer>()) {
            match scope {
                Scope::All => all.is_all = true,
                Scope::Database(name) if !all.names.contains(&name) => all.names.push(name),
                // Orders name databases alone.
                Scope::Database(_) | Scope::Key(_) => {}
            }
        }
        all
    }

    /// Nothing is paused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Pauses them at each of the endpoints of an upstream.
    pub fn hold(&self, endpoints: &[Arc<EndpointShare>]) {
        let pause = |pools: &PoolShare, scope: &Scope<PoolKey>| pools.pause::<PostgresServer>(scope);
        for endpoint in endpoints {
            if self.is_all {
                pause(&endpoint.pools, &Scope::All);
            }
            self.names.iter().for_each(|name| pause(&endpoint.pools, &Scope::Database(name.clone())));
        }
    }
}

/// The databases that are paused at some upstream, and one more if all are.
pub(crate) fn count(routes: &Routes) -> usize {
    let scopes = routes.upstreams().iter().flat_map(|upstream| upstream.pauses());
    scopes.map(|scope| name_of(&scope).map(Box::<[u8]>::from)).collect::<HashSet<_>>().len()
}

/// Pauses the upstreams that the listener has `now` and did not have `before`. No client has moved to them yet. An upstream that replaces
/// another one of its name has the pauses of that one already, whichever listener leads there.
pub(crate) fn keep(before: &Routes, now: &Routes) {
    let is_known = |upstream: &Rc<PostgresUpstream>| {
        before.upstreams().iter().any(|old| old.settings().name == upstream.settings().name)
    };
    let paused: Vec<_> = before.upstreams().iter().map(|upstream| upstream.pauses()).collect();
    let everywhere = of_all(&paused);
    for upstream in now.upstreams().iter().filter(|upstream| !is_known(upstream)) {
        everywhere.iter().for_each(|scope| upstream.pause(scope));
    }
}

/// The scopes that are paused at each upstream of a listener: those of a PAUSE at its console.
fn of_all(upstreams: &[Vec<Scope<PoolKey>>]) -> Vec<Scope<PoolKey>> {
    let Some((first, others)) = upstreams.split_first() else { return Vec::new() };
    first.iter().filter(|scope| others.iter().all(|scopes| scopes.contains(scope))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_endpoints_hold_the_pauses_of_an_upstream() {
        let endpoints = || [Arc::<EndpointShare>::default(), Arc::default()];
        let (old, new) = (endpoints(), endpoints());
        assert!(PausedDatabases::of(&old).is_empty());
        let shop = PausedDatabases { is_all: false, names: vec![b"shop"[..].into()] };
        shop.hold(&old[1..]);
        assert_eq!(PausedDatabases::of(&old), shop, "at one of them");
        PausedDatabases { is_all: true, ..shop.clone() }.hold(&old);
        PausedDatabases::of(&old).hold(&new);
        for endpoint in new.chunks(1) {
            assert_eq!(PausedDatabases::of(endpoint), PausedDatabases { is_all: true, ..shop.clone() });
        }
    }

    #[test]
    fn an_upstream_that_is_new_to_a_listener_is_paused_as_all_others_of_the_listener() {
        let shop = || Scope::Database(b"shop"[..].into());
        let (main, reports) = (vec![Scope::All, shop()], vec![shop()]);
        assert_eq!(of_all(&[main.clone(), reports.clone()]), [shop()], "PAUSE holds at each upstream of the listener");
        assert_eq!(of_all(std::slice::from_ref(&main)), main);
        assert!(of_all(&[reports, Vec::new()]).is_empty());
        assert!(of_all(&[]).is_empty());
    }
}
