//! PostgreSQL: its upstreams and listeners.

use std::{any::Any, io, rc::Rc, sync::Arc};

use weir_listener::{Service, settings::ListenerSettings};
use weir_postgres::{
    ListenerShared, LoginProbe, PostgresServer, PostgresUpstream,
    settings::{PostgresListenerSettings, PostgresUpstreamSettings},
};

use super::{AnyUpstream, ListenerParts, ListenerShare, Protocol, UpstreamParts, Upstreams};

impl AnyUpstream for PostgresUpstream {
    fn retire(&self) {
        PostgresUpstream::retire(self);
    }

    fn keep_pauses(&self, before: &dyn AnyUpstream) {
        let before: &dyn Any = before;
        if let Some(before) = before.downcast_ref::<PostgresUpstream>() {
            before.pauses().iter().for_each(|scope| self.pause(scope));
        }
    }
}

/// See [`Protocol`].
pub(super) struct Postgres;

impl Protocol for Postgres {
    type Listener = PostgresListenerSettings;
    type Upstream = PostgresUpstreamSettings;
    type Service = weir_postgres::Service;

    fn upstream(of: UpstreamParts<'_>, own: &PostgresUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let share = of.protocols.postgres.clone();
        let probe = of.probes.then(|| LoginProbe::new(own));
        let pools = own.pool.clone();
        let server = PostgresServer::new(own.clone(), share);
        let upstream = PostgresUpstream::new(of.settings, pools, server, of.shares, of.metrics, probe)?;
        if of.probes {
            weir_postgres::watch(&upstream);
        }
        Ok(upstream)
    }

    fn listener_share() -> ListenerShare {
        Arc::new(ListenerShared::default())
    }

    fn service(of: ListenerParts<'_>, own: &PostgresListenerSettings) -> Option<Rc<dyn Service>> {
        let upstreams = of.upstreams.all_named(&own.upstreams)?;
        let shared = of.share.clone().downcast::<ListenerShared>().ok()?;
        let core = (of.core.clone(), of.protocols.postgres.clone(), shared, of.protocols.relay.clone());
        Some(weir_postgres::Service::new(core, of.settings, own.clone(), upstreams))
    }

    fn update(
        service: &weir_postgres::Service,
        settings: ListenerSettings,
        own: &PostgresListenerSettings,
        _: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.all_named(&own.upstreams)?);
        Some(())
    }
}
