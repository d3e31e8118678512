//! One AI listener on one worker, around an HTTP listener.

use std::{any::Any, rc::Rc, sync::Arc};

use weir_base::{ByteLease, Time};
use weir_http::{HttpUpstream, filter::FilterFactory};
use weir_listener::{Arrival, ConnectionFuture, CoreShare, Sessions, settings::ListenerSettings};

use crate::{
    agents::endpoint_hashes,
    http,
    metrics::Metrics,
    settings::{AiListenerSettings, Provider},
    share::WorkerShare,
    worker::{Filters, Worker},
};

/// An upstream of AI on one worker.
pub struct AiUpstream {
    /// Its connections.
    pub http: Rc<HttpUpstream>,
    /// The provider behind it.
    pub provider: Arc<Provider>,
}

/// One listener on one worker.
pub struct Service {
    http: Rc<weir_http::Service>,
    share: WorkerShare,
    cells: (Rc<Metrics>, ByteLease),
}

impl Service {
    /// A listener with its settings, and their upstreams in their order. `share`: the state of all listeners of this worker.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: AiListenerSettings,
        upstreams: Vec<AiUpstream>,
        share: WorkerShare,
    ) -> Rc<Self> {
        let cells =
            (Rc::new(Metrics::new(&core.metrics, &listener.name).with_log(core.log.clone())), core.bytes.clone());
        let (http, upstreams, filters) = parts(&listener.name, settings, upstreams, &share, &cells);
        let http = weir_http::Service::filtered(core, listener, http, upstreams, Some(filters));
        Rc::new(Self { http, share, cells })
    }

    /// New settings; they hold from the next request of each connection on. Requests under way keep their key, their reservation
    /// and their targets.
    pub fn update(&self, listener: ListenerSettings, settings: AiListenerSettings, upstreams: Vec<AiUpstream>) {
        let (http, upstreams, filters) = parts(&listener.name, settings, upstreams, &self.share, &self.cells);
        self.http.update_filtered(listener, http, upstreams, Some(filters));
    }
}

type Parts = (weir_http::settings::HttpListenerSettings, Vec<Rc<HttpUpstream>>, Rc<dyn FilterFactory>);

/// The parts of the HTTP listener.
fn parts(
    listener: &Arc<str>,
    settings: AiListenerSettings,
    upstreams: Vec<AiUpstream>,
    share: &WorkerShare,
    cells: &(Rc<Metrics>, ByteLease),
) -> Parts {
    let http = http::settings(&settings);
    let endpoints = upstreams.iter().map(|one| endpoint_hashes(&one.http)).collect();
    let (upstreams, providers) = upstreams.into_iter().map(|one| (one.http, one.provider)).unzip();
    let seed = Time::now().as_nanos();
    let worker = Worker::new(listener.clone(), settings, providers, share.clone(), cells.clone(), seed);
    let worker = worker.with_endpoints(endpoints);
    (http, upstreams, Rc::new(Filters(Rc::new(worker))))
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
}
