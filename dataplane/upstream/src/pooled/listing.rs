//! The connections of one worker, for operators. Each is listed from its login, or its arrival from another worker, to its end; nothing
//! here is touched when one is lent or comes back.

use std::{cell::RefCell, collections::BTreeMap, net::SocketAddr, rc::Rc};

use weir_base::time::Time;

use super::{PooledProtocol, PooledUpstream, member::Member};

/// One connection of a pool.
#[derive(Clone, Debug)]
pub struct ConnectionStatus<K> {
    /// The key of its pool.
    pub key: K,
    /// Position of its endpoint in the settings.
    pub endpoint: usize,
    /// Its number, unique in the process.
    pub id: u64,
    /// Since when it is logged in.
    pub since: Time,
    /// Since when no client has it. `None`: a client has it, or it is being reset or checked.
    pub idle_since: Option<Time>,
    /// It was idle for so long that it is checked before it serves again.
    pub is_used: bool,
    /// It is closed as soon as it is free.
    pub is_outdated: bool,
    /// The address at this end. `None`: a Unix socket.
    pub local: Option<SocketAddr>,
    /// The server's number of it, see [`PooledProtocol::process`].
    pub process: u32,
    /// It has TLS.
    pub has_tls: bool,
}

/// The facts of a connection that do not change.
pub(super) struct Listed {
    pub(super) since: Time,
    pub(super) generation: u32,
    pub(super) local: Option<SocketAddr>,
    pub(super) process: u32,
    pub(super) has_tls: bool,
}

/// The connections of a member by their numbers.
#[derive(Clone, Default)]
pub(super) struct List(Rc<RefCell<BTreeMap<u64, Listed>>>);

impl List {
    /// Lists a connection until the result is dropped.
    pub(super) fn enter(&self, id: u64, listed: Listed) -> Listing {
        self.0.borrow_mut().insert(id, listed);
        Listing { list: self.clone(), id }
    }
}

/// A place in a [`List`].
pub(crate) struct Listing {
    list: List,
    id: u64,
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.list.0.borrow_mut().remove(&self.id);
    }
}

impl<P: PooledProtocol> PooledUpstream<P> {
    /// The connections of this worker.
    pub fn connections(&self) -> Vec<ConnectionStatus<P::Key>> {
        let pools: Vec<_> = self.pools.borrow().values().cloned().collect();
        let mut all = Vec::new();
        for pool in &pools {
            for (endpoint, member) in pool.members.iter().enumerate() {
                all.extend(self.of_member(endpoint, member));
            }
        }
        all
    }

    fn of_member(&self, endpoint: usize, member: &Member<P>) -> Vec<ConnectionStatus<P::Key>> {
        let (generation, now) = (member.share.signals.generation(), weir_base::time::turn::now());
        let check_delay = self.context.settings.server_check_delay;
        let idle = member.idle_times();
        let listed = member.list.0.borrow();
        let status = |(&id, listed): (&u64, &Listed)| {
            let idle_since = idle.iter().find(|(idle, _)| *idle == id).map(|(_, since)| *since);
            ConnectionStatus {
                key: member.share.key.clone(),
                endpoint,
                id,
                since: listed.since,
                idle_since,
                is_used: idle_since.is_some_and(|since| now.since(since) >= check_delay),
                is_outdated: listed.generation != generation,
                local: listed.local,
                process: listed.process,
                has_tls: listed.has_tls,
            }
        };
        listed.iter().map(status).collect()
    }
}
