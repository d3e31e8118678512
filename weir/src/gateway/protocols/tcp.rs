//! TCP: its upstreams and listeners.

use std::{io, rc::Rc};

use weir_listener::{Service, settings::ListenerSettings};
use weir_tcp::{TcpUpstream, settings::TcpListenerSettings};
use weir_upstream::{ConnectionProbe, settings::ExclusiveSettings};

use super::{AnyUpstream, ListenerParts, Protocol, UpstreamParts, Upstreams};

/// See [`Protocol`].
pub(super) struct Tcp;

impl Protocol for Tcp {
    type Listener = TcpListenerSettings;
    type Upstream = ExclusiveSettings;
    type Service = weir_tcp::Service;

    fn upstream(of: UpstreamParts<'_>, own: &ExclusiveSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let probe = of.probes.then_some(ConnectionProbe);
        Ok(TcpUpstream::new(of.settings, own.clone(), None, of.shares, of.metrics, probe)?)
    }

    fn service(of: ListenerParts<'_>, own: &TcpListenerSettings) -> Option<Rc<dyn Service>> {
        let upstreams = of.upstreams.all_named(&own.upstreams)?;
        Some(weir_tcp::Service::new(of.core.clone(), of.settings, own.clone(), upstreams))
    }

    fn update(
        service: &weir_tcp::Service,
        settings: ListenerSettings,
        own: &TcpListenerSettings,
        _: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.all_named(&own.upstreams)?);
        Some(())
    }
}
