//! One TCP listener on one worker: the state that its connections share.

use std::{any::Any, cell::RefCell, rc::Rc};

use weir_listener::{Arrival, ConnectionFuture, CoreShare, Sessions, Stages, is_among, settings::ListenerSettings};
use weir_upstream::{ExclusiveUpstream, NoMultiplexer};

use crate::{session, settings::TcpListenerSettings};

/// An upstream of TCP on one worker.
pub type TcpUpstream = ExclusiveUpstream<NoMultiplexer>;

/// Names and upstreams of a listener.
pub(crate) struct Routing {
    pub(crate) settings: TcpListenerSettings,
    /// In the order of the settings' own.
    pub(crate) upstreams: Vec<Rc<TcpUpstream>>,
}

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) stages: Stages,
    routing: RefCell<Rc<Routing>>,
}

impl Service {
    /// A listener with its settings, and their upstreams in their order.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: TcpListenerSettings,
        upstreams: Vec<Rc<TcpUpstream>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            stages: Stages::new(&core, &listener.name),
            sessions: Sessions::new(core, listener),
            routing: RefCell::new(Rc::new(Routing { settings, upstreams })),
        })
    }

    /// New settings, for connections that come from now on.
    pub fn update(&self, listener: ListenerSettings, settings: TcpListenerSettings, upstreams: Vec<Rc<TcpUpstream>>) {
        self.sessions.update(listener);
        *self.routing.borrow_mut() = Rc::new(Routing { settings, upstreams });
    }

    pub(crate) fn routing(&self) -> Rc<Routing> {
        self.routing.borrow().clone()
    }
}

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture {
        Box::pin(session::serve(self, arrival))
    }

    fn refusal(&self) -> &'static [u8] {
        // The protocol of the client is not known.
        b""
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        is_among(upstream, &self.routing.borrow().upstreams)
    }
}
