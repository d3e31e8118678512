//! One listener of flags on one worker, around an HTTP listener.

use std::{any::Any, cell::RefCell, rc::Rc, sync::Arc};

use weir_http::HttpUpstream;
use weir_listener::{Arrival, ConnectionFuture, CoreShare, Sessions, settings::ListenerSettings};

use crate::{edge::Edge, http, keeper::Keeper, metrics::Metrics, settings::FlagsListenerSettings};

/// The worker that has the keeper.
const KEEPING_WORKER: usize = 0;

/// One listener on one worker.
pub struct Service {
    http: Rc<weir_http::Service>,
    edge: Arc<Edge>,
    /// On the first worker only: one poller serves the process.
    kept: Option<Kept>,
}

/// The parts that only the worker with the keeper has.
struct Kept {
    keeper: RefCell<Option<Keeper>>,
    metrics: Metrics,
}

impl Service {
    /// A listener with its settings, and its upstream if it has one. `edge`: the state that all workers share of the listener.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: &FlagsListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
        edge: Arc<Edge>,
    ) -> Rc<Self> {
        let is_keeping = core.worker == KEEPING_WORKER;
        let metrics = is_keeping.then(|| Metrics::new(&core.metrics, &listener.name));
        let http = weir_http::Service::new(core, listener, http::settings(&edge, settings), upstreams);
        let kept = metrics.map(|metrics| {
            let keeper = keeper(&edge, settings, &http, None);
            Kept { keeper: RefCell::new(keeper), metrics }
        });
        Rc::new(Self { http, edge, kept })
    }

    /// New settings. Flags that are there stay until newer ones come; tokens that an operator has removed are bad at once.
    pub fn update(
        &self,
        listener: ListenerSettings,
        settings: &FlagsListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
    ) {
        self.http.update(listener, http::settings(&self.edge, settings), upstreams);
        if let Some(kept) = &self.kept {
            let before = kept.keeper.take();
            let keeper = keeper(&self.edge, settings, &self.http, before);
            kept.keeper.replace(keeper);
        }
    }
}

/// The keeper of the settings. A listener that redirects everything has none.
fn keeper(
    edge: &Arc<Edge>,
    settings: &FlagsListenerSettings,
    http: &Rc<weir_http::Service>,
    before: Option<Keeper>,
) -> Option<Keeper> {
    (!settings.redirect_https).then(|| Keeper::start(edge, settings, http, before))
}

impl weir_listener::Service for Service {
    fn sessions(&self) -> &Sessions {
        self.http.sessions()
    }

    fn serve(self: Rc<Self>, arrival: Arrival) -> ConnectionFuture {
        self.http.clone().serve(arrival)
    }

    fn refusal(&self) -> &'static [u8] {
        self.http.refusal()
    }

    fn clear_text_refusal(&self) -> Option<&'static [u8]> {
        self.http.clear_text_refusal()
    }

    fn count_clear_text_refusal(&self) {
        self.http.count_clear_text_refusal();
    }

    fn uses(&self, upstream: &dyn Any) -> bool {
        self.http.uses(upstream)
    }

    fn tick(&self) {
        if let Some(kept) = &self.kept {
            kept.metrics.show(&self.edge);
        }
    }

    fn finish(&self) -> Option<ConnectionFuture> {
        let kept = self.kept.as_ref()?;
        let finishing = kept.keeper.borrow().as_ref().map(Keeper::finishing)?;
        Some(Box::pin(finishing))
    }
}
