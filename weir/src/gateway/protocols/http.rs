//! HTTP: its upstreams and listeners.

use std::{io, rc::Rc};

use weir_config::HttpUpstreamSettings;
use weir_http::{Http2Multiplexer, HttpUpstream, settings::HttpListenerSettings};
use weir_listener::{Service, settings::ListenerSettings};

use super::{AnyUpstream, ListenerParts, Protocol, UpstreamParts, Upstreams};

/// See [`Protocol`].
pub(super) struct Http;

impl Protocol for Http {
    type Listener = HttpListenerSettings;
    type Upstream = HttpUpstreamSettings;
    type Service = weir_http::Service;

    fn upstream(of: UpstreamParts<'_>, own: &HttpUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let probe = of.probes.then(|| own.probe.clone());
        let http2 = own.http2.map(|http2| Http2Multiplexer::new(http2, of.core.bytes.clone()));
        Ok(HttpUpstream::new(of.settings, own.lanes.clone(), http2, of.shares, of.metrics, probe)?)
    }

    fn service(of: ListenerParts<'_>, own: &HttpListenerSettings) -> Option<Rc<dyn Service>> {
        let upstreams = of.upstreams.all_named(&own.routes.upstreams)?;
        Some(weir_http::Service::new(of.core.clone(), of.settings, own.clone(), upstreams))
    }

    fn update(
        service: &weir_http::Service,
        settings: ListenerSettings,
        own: &HttpListenerSettings,
        _: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.all_named(&own.routes.upstreams)?);
        Some(())
    }
}
