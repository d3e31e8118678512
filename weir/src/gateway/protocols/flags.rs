//! Feature flags: their upstreams and listeners.

use std::{io, rc::Rc, sync::Arc};

use weir_config::HttpUpstreamSettings;
use weir_flags::{Edge, settings::FlagsListenerSettings};
use weir_listener::{Service, settings::ListenerSettings};

use super::{AnyUpstream, ListenerParts, ListenerShare, Protocol, UpstreamParts, Upstreams, http::Http};

/// See [`Protocol`].
pub(super) struct Flags;

impl Protocol for Flags {
    type Listener = FlagsListenerSettings;
    type Upstream = HttpUpstreamSettings;
    type Service = weir_flags::Service;

    fn upstream(of: UpstreamParts<'_>, own: &HttpUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        Http::upstream(of, own)
    }

    fn listener_share() -> ListenerShare {
        Arc::new(Edge::default())
    }

    fn service(of: ListenerParts<'_>, own: &FlagsListenerSettings) -> Option<Rc<dyn Service>> {
        let upstreams = of.upstreams.all_named(&own.source.upstreams())?;
        let edge = of.share.clone().downcast::<Edge>().ok()?;
        Some(weir_flags::Service::new(of.core.clone(), of.settings, own, upstreams, edge))
    }

    fn update(
        service: &weir_flags::Service,
        settings: ListenerSettings,
        own: &FlagsListenerSettings,
        _: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own, upstreams.all_named(&own.source.upstreams())?);
        Some(())
    }
}
