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
    route::Routes,
    server::{PoolKey, PostgresServer},
    service::Service,
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

/// Pauses `scope` at all upstreams of the listener, or ends the pause.
pub(crate) fn order(service: &Service, scope: &Scope<PoolKey>, is_paused: bool) {
    service.shared.set_paused(name_of(scope), is_paused);
    PauseNotice(scope.clone()).follow(service);
    let (core, name) = (service.sessions.core(), service.sessions.name());
    for worker in (0..core.workers).filter(|worker| *worker != core.worker) {
        (core.post)(worker, name, Box::new(PauseNotice(scope.clone())));
    }
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

/// An upstream, and its scopes that are paused.
type Paused<'a> = (&'a str, Vec<Scope<PoolKey>>);

/// Pauses the upstreams that came with `now` as those of `before` are. No client has moved to them yet.
pub(crate) fn keep(before: &Routes, now: &Routes) {
    let is_kept = |upstream: &Rc<_>| before.upstreams().iter().any(|old| Rc::ptr_eq(old, upstream));
    let paused: Vec<Paused<'_>> =
        before.upstreams().iter().map(|upstream| (&*upstream.settings().name, upstream.pauses())).collect();
    for upstream in now.upstreams().iter().filter(|upstream| !is_kept(upstream)) {
        inherited(&upstream.settings().name, &paused).iter().for_each(|scope| upstream.pause(scope));
    }
}

/// The pauses of an upstream that a reload brings: those of the one that had its name, or else those of the whole listener.
fn inherited(name: &str, before: &[Paused<'_>]) -> Vec<Scope<PoolKey>> {
    if let Some((_, scopes)) = before.iter().find(|(old, _)| *old == name) {
        return scopes.clone();
    }
    let Some(((_, first), others)) = before.split_first() else { return Vec::new() };
    let is_everywhere = |scope: &&Scope<PoolKey>| others.iter().all(|(_, scopes)| scopes.contains(scope));
    first.iter().filter(is_everywhere).cloned().collect()
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
    fn an_upstream_of_a_reload_is_paused_as_the_one_before_it_or_as_the_listener() {
        let shop = || Scope::Database(b"shop"[..].into());
        let before = [("main", vec![Scope::All, shop()]), ("reports", vec![shop()])];
        assert_eq!(inherited("main", &before), [Scope::All, shop()], "other endpoints of one name");
        assert_eq!(inherited("reports", &before), [shop()]);
        assert_eq!(inherited("new", &before), [shop()], "PAUSE of a database holds at each upstream of the listener");
        assert_eq!(inherited("new", &before[..1]), [Scope::All, shop()]);
        assert!(inherited("new", &[("main", vec![shop()]), ("reports", Vec::new())]).is_empty());
        assert!(inherited("new", &[]).is_empty());
    }
}
