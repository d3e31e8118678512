//! One echo listener on one worker: what its connections share.

use std::{any::Any, cell::RefCell, rc::Rc};

use weir_listener::{Arrival, CoreShare, Life, Sessions, Stages, is_among, settings::ListenerSettings};
use weir_upstream::{ExclusiveUpstream, NoMultiplexer};

use crate::{session, settings::EchoListenerSettings};

/// An upstream of echo on one worker: each lane serves one line at a time.
pub type EchoUpstream = ExclusiveUpstream<NoMultiplexer>;

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) stages: Stages,
    settings: RefCell<EchoListenerSettings>,
    upstream: RefCell<Rc<EchoUpstream>>,
}

impl Service {
    /// A listener with its settings and its upstream.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: EchoListenerSettings,
        upstream: Rc<EchoUpstream>,
    ) -> Rc<Self> {
        Rc::new(Self {
            stages: Stages::new(&core, &listener.name),
            sessions: Sessions::new(core, listener),
            settings: RefCell::new(settings),
            upstream: RefCell::new(upstream),
        })
    }

    /// New settings: the limits for connections that come from now on, the upstream for every line.
    pub fn update(&self, listener: ListenerSettings, settings: EchoListenerSettings, upstream: Rc<EchoUpstream>) {
        self.sessions.update(listener);
        *self.settings.borrow_mut() = settings;
        *self.upstream.borrow_mut() = upstream;
    }

    pub(crate) fn line_bytes_max(&self) -> usize {
        self.settings.borrow().line_bytes_max
    }

    pub(crate) fn upstream(&self) -> Rc<EchoUpstream> {
        self.upstream.borrow().clone()
    }
}

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> Life {
        Box::pin(session::serve(self, arrival))
    }

    fn refusal(&self) -> &'static [u8] {
        b"!connections\n"
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        is_among(upstream, &[self.upstream()])
    }
}
