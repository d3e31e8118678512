//! The pool of a client: chosen at its login, and again when a reload has replaced the upstream.

use std::rc::Rc;

use weir_postgres_session::users::Credential;
use weir_upstream::pooled::Pool;

use crate::{
    server::{PoolKey, PostgresServer},
    service::{PostgresUpstream, Service},
};

/// A client, as far as the choice of its pool depends on it.
pub(super) struct Identity {
    pub(super) user: Box<[u8]>,
    pub(super) database: Box<[u8]>,
    pub(super) credential: Credential,
}

impl Identity {
    /// The upstream that the listener has now, and the pool of the client there.
    pub(super) fn choose(&self, service: &Service) -> (Rc<PostgresUpstream>, Rc<Pool<PostgresServer>>) {
        let upstream = service.upstream();
        let settings = upstream.protocol().settings();
        let pool = upstream.pool(&PoolKey::new(&self.user, &self.database, self.credential.clone(), settings));
        (upstream, pool)
    }
}
