//! AI: its upstreams and listeners.

use std::{io, rc::Rc, sync::Arc};

use weir_ai::{AiUpstream, settings::AiListenerSettings};
use weir_config::{AiUpstreamSettings, UpstreamProtocol};
use weir_listener::{Service, settings::ListenerSettings};

use super::{AnyUpstream, ListenerParts, Protocol, UpstreamParts, Upstreams, http::Http};

/// See [`Protocol`].
pub(super) struct Ai;

impl Protocol for Ai {
    type Listener = AiListenerSettings;
    type Upstream = AiUpstreamSettings;
    type Service = weir_ai::Service;

    fn upstream(of: UpstreamParts<'_>, own: &AiUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        Http::upstream(of, &own.http)
    }

    fn service(of: ListenerParts<'_>, own: &AiListenerSettings) -> Option<Rc<dyn Service>> {
        let (upstreams, share) = (all(of.upstreams, own)?, of.protocols.ai()?);
        Some(weir_ai::Service::new(of.core.clone(), of.settings, own.clone(), upstreams, share))
    }

    fn update(
        service: &weir_ai::Service,
        settings: ListenerSettings,
        own: &AiListenerSettings,
        _: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), all(upstreams, own)?);
        Some(())
    }
}

/// The upstreams of a listener, in the order of its settings.
fn all(upstreams: &Upstreams, own: &AiListenerSettings) -> Option<Vec<AiUpstream>> {
    let one = |name: &Arc<str>| {
        let UpstreamProtocol::Ai(settings) = &upstreams.0.get(name)?.config.protocol else { return None };
        Some(AiUpstream { http: upstreams.named(name)?, provider: settings.provider.clone() })
    };
    own.upstreams.iter().map(one).collect()
}
