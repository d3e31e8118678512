//! Echo: its upstreams and listeners.

use std::{io, rc::Rc};

use weir_echo::{EchoUpstream, settings::EchoListenerSettings};
use weir_listener::{Service, settings::ListenerSettings};
use weir_upstream::{ConnectionProbe, settings::ExclusiveSettings};

use super::{AnyUpstream, ForListener, ForUpstream, Protocol, Upstreams};

/// See [`Protocol`].
pub(super) struct Echo;

impl Protocol for Echo {
    type Listener = EchoListenerSettings;
    type Upstream = ExclusiveSettings;
    type Service = weir_echo::Service;

    fn upstream(of: ForUpstream<'_>, own: &ExclusiveSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let probe = of.probes.then_some(ConnectionProbe);
        Ok(EchoUpstream::new(of.settings, own.clone(), None, of.shares, of.metrics, probe)?)
    }

    fn service(of: ForListener<'_>, own: &EchoListenerSettings) -> Option<Rc<dyn Service>> {
        let upstream = of.upstreams.named(of.upstream)?;
        Some(weir_echo::Service::new(of.core.clone(), of.settings, own.clone(), upstream))
    }

    fn update(
        service: &weir_echo::Service,
        settings: ListenerSettings,
        own: &EchoListenerSettings,
        upstream: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.named(upstream)?);
        Some(())
    }
}
