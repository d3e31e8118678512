//! The pools of a client: chosen at its login, and again when a reload has replaced an upstream.

use std::rc::Rc;

use weir_base::connection::{ConnectionEntry, PoolName};
use weir_postgres_session::users::Credential;
use weir_upstream::pooled::Pool;

use super::place::Standbys;
use crate::{route::Route, server::PostgresServer, service::PostgresUpstream};

/// The name of a pool among those of all upstreams.
pub(super) fn name_of(upstream: &PostgresUpstream, pool: &Pool<PostgresServer>) -> String {
    format!("{} {}", upstream.settings().name, pool.key())
}

/// A client, as far as the choice of its pools depends on it.
pub(super) struct Identity {
    pub(super) user: Box<[u8]>,
    pub(super) database: Box<[u8]>,
    pub(super) credential: Credential,
}

/// The pools of a client.
pub(super) struct Place {
    pub(super) upstream: Rc<PostgresUpstream>,
    pub(super) pool: Rc<Pool<PostgresServer>>,
    pub(super) standbys: Option<Standbys>,
}

impl Place {
    /// Shows operators the pools of the client.
    pub(super) fn show(&self, entry: &ConnectionEntry) {
        let upstream = |upstream: &PostgresUpstream| upstream.settings().name.to_string();
        let read_pool = self.standbys.as_ref().map(|standbys| {
            let pool = standbys.pool.key().to_string();
            Box::new(PoolName { upstream: upstream(&standbys.upstream), pool })
        });
        let mut details = entry.details();
        details.pool = self.pool.key().to_string();
        (details.upstream, details.read_pool) = (upstream(&self.upstream), read_pool);
    }
}

impl Identity {
    /// The pools of the client on its route.
    pub(super) fn place(&self, route: &Route) -> Place {
        let pool = |upstream: &Rc<PostgresUpstream>| {
            upstream.pool(&route.key(upstream, &self.user, &self.database, self.credential.clone()))
        };
        let standbys = route.standbys.as_ref().map(|standbys| Standbys {
            pool: pool(&standbys.upstream),
            upstream: standbys.upstream.clone(),
            lag_max: standbys.lag_max,
            seen: standbys.seen.clone(),
            wrote_at: None,
        });
        Place { upstream: route.upstream.clone(), pool: pool(&route.upstream), standbys }
    }
}
