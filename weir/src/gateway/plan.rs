//! What the control thread hands to the workers: a snapshot with everything that only the control thread can make.

use std::{collections::HashMap, io, sync::Arc};

use socket2::Socket;
use weir_config::Snapshot;
use weir_engine::{accept::Accepted, net, settings::Address, tls};
use weir_listener::{Admission, ConnectionPermit, ListenerAdmission};
use weir_redis::{Drain, ListenerShare};
use weir_upstream::Health;

/// A configuration ready to run: files read, addresses bound, budgets made.
pub struct Plan {
    pub snapshot: Arc<Snapshot>,
    pub listeners: HashMap<Arc<str>, ListenerPlan>,
    /// Of each upstream, one per endpoint.
    pub health: HashMap<Arc<str>, Vec<Arc<Health>>>,
}

/// What one listener needs besides its settings.
pub struct ListenerPlan {
    pub admission: ListenerAdmission,
    /// What its workers share about its users.
    pub share: Arc<ListenerShare>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// A message to a worker.
pub enum Mail {
    /// Run this configuration; the sockets are those of new listeners, one for this worker.
    Apply { plan: Arc<Plan>, sockets: Vec<(Arc<str>, Socket)> },
    /// A connection that another worker accepted.
    Connection { listener: Arc<str>, accepted: Accepted, permit: ConnectionPermit },
    /// Accept what waits in the queues, then no more.
    StopAccepting,
    /// End the sessions.
    Drain(Drain),
    /// End what is left, and the worker.
    Stop,
}

impl Plan {
    /// Makes a plan of `snapshot`, keeping the budgets of listeners and the health of upstreams that stay.
    ///
    /// # Errors
    /// TLS files that cannot be used.
    pub fn new(snapshot: Arc<Snapshot>, admission: &Admission, previous: Option<&Plan>) -> io::Result<Self> {
        let tls = |listener: &weir_config::Listener| {
            let config = listener.settings.tls.as_ref().map(tls::server_config).transpose();
            config.map_err(io::Error::other)
        };
        // What can fail comes first: a refused plan must leave no limit changed.
        let mut tls = snapshot.listeners.iter().map(tls).collect::<io::Result<Vec<_>>>()?.into_iter();
        let mut listeners = HashMap::new();
        for listener in &snapshot.listeners {
            let settings = &listener.settings;
            let kept = previous.and_then(|plan| plan.listeners.get(&settings.name));
            let own = match kept {
                Some(kept) => kept.admission.with_limits(settings.connections_max, settings.connections_per_source_max),
                None => admission.listener(settings.connections_max, settings.connections_per_source_max),
            };
            let tls = tls.next().flatten();
            let share = kept.map_or_else(Arc::default, |kept| kept.share.clone());
            listeners.insert(settings.name.clone(), ListenerPlan { admission: own, share, tls });
        }
        let health = |upstream: &weir_config::Upstream| {
            let name = &upstream.settings.name;
            let same = |plan: &&Plan| plan.snapshot.upstream(name).is_some_and(|old| old == upstream);
            let kept = previous.filter(same).and_then(|plan| plan.health.get(name)).cloned();
            let fresh = || upstream.settings.endpoints.iter().map(|_| Arc::default()).collect();
            (name.clone(), kept.unwrap_or_else(fresh))
        };
        let health = snapshot.upstreams.iter().map(health).collect();
        Ok(Self { snapshot, listeners, health })
    }
}

/// Binds a listener once per worker. Unix sockets have one queue, which all workers share.
///
/// # Errors
/// As `bind(2)`, with the address in the text.
pub fn bind_for_workers(address: &Address, backlog: u32, workers: usize) -> io::Result<Vec<Socket>> {
    let refused = |error: io::Error| io::Error::new(error.kind(), format!("cannot bind {address}: {error}"));
    let first = net::bind(address, backlog).map_err(refused)?;
    let bound = match first.local_addr()?.as_socket() {
        // With port 0 the kernel chose one; the others must have the same.
        Some(bound) => Address::Socket(bound),
        None => address.clone(),
    };
    let mut sockets = vec![first];
    while sockets.len() < workers {
        let next = match bound {
            Address::Unix(_) => sockets[0].try_clone()?,
            _ => net::bind(&bound, backlog).map_err(refused)?,
        };
        sockets.push(next);
    }
    Ok(sockets)
}
