//! MongoDB: its upstreams and listeners.

use std::{io, rc::Rc, sync::Arc};

use weir_listener::{Service, settings::ListenerSettings};
use weir_mongodb::{
    ListenerShared, MongodbUpstream,
    settings::{MongodbListenerSettings, MongodbUpstreamSettings},
};

use super::{AnyUpstream, ListenerParts, ListenerShare, Protocol, UpstreamParts, Upstreams};

impl AnyUpstream for MongodbUpstream {
    fn retire(&self) {
        MongodbUpstream::retire(self);
    }
}

/// See [`Protocol`].
pub(super) struct Mongodb;

impl Protocol for Mongodb {
    type Listener = MongodbListenerSettings;
    type Upstream = MongodbUpstreamSettings;
    type Service = weir_mongodb::Service;

    fn upstream(of: UpstreamParts<'_>, own: &MongodbUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let process = &of.protocols.mongodb;
        Ok(MongodbUpstream::new((of.core, process), of.settings, own.clone(), of.shares, of.probes)?)
    }

    fn listener_share() -> ListenerShare {
        Arc::new(ListenerShared::default())
    }

    fn service(of: ListenerParts<'_>, own: &MongodbListenerSettings) -> Option<Rc<dyn Service>> {
        let upstream = of.upstreams.named(of.upstream)?;
        let shared = of.share.clone().downcast::<ListenerShared>().ok()?;
        Some(weir_mongodb::Service::new((of.core.clone(), shared), of.settings, own.clone(), upstream))
    }

    fn update(
        service: &weir_mongodb::Service,
        settings: ListenerSettings,
        own: &MongodbListenerSettings,
        upstream: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.named(upstream)?);
        Some(())
    }
}
