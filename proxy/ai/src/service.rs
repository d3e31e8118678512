//! One AI listener on one worker, around an HTTP listener.

use std::{any::Any, rc::Rc, sync::Arc};

use weir_base::Time;
use weir_http::{HttpUpstream, filter::FilterFactory};
use weir_listener::{Arrival, ConnectionFuture, CoreShare, Sessions, settings::ListenerSettings};
use weir_spend::meter::Meter;

use crate::{
    agents::endpoint_hashes,
    http,
    metrics::Metrics,
    settings::{AiListenerSettings, Provider},
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
    meter: Meter,
    metrics: Rc<Metrics>,
}

impl Service {
    /// A listener with its settings, and their upstreams in their order. `meter`: admission on this worker.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: AiListenerSettings,
        upstreams: Vec<AiUpstream>,
        meter: Meter,
    ) -> Rc<Self> {
        let metrics = Rc::new(Metrics::new(&core.metrics, &listener.name));
        let (http, upstreams, filters) = parts(settings, upstreams, &meter, &metrics);
        let http = weir_http::Service::filtered(core, listener, http, upstreams, Some(filters));
        Rc::new(Self { http, meter, metrics })
    }

    /// New settings; they hold from the next request of each connection on. Requests under way keep their key, their reservation
    /// and their targets.
    pub fn update(&self, listener: ListenerSettings, settings: AiListenerSettings, upstreams: Vec<AiUpstream>) {
        let (http, upstreams, filters) = parts(settings, upstreams, &self.meter, &self.metrics);
        self.http.update_filtered(listener, http, upstreams, Some(filters));
    }
}

type Parts = (weir_http::settings::HttpListenerSettings, Vec<Rc<HttpUpstream>>, Rc<dyn FilterFactory>);

/// The parts of the HTTP listener.
fn parts(settings: AiListenerSettings, upstreams: Vec<AiUpstream>, meter: &Meter, metrics: &Rc<Metrics>) -> Parts {
    let http = http::settings(&settings);
    let endpoints = upstreams.iter().map(|one| endpoint_hashes(&one.http)).collect();
    let (upstreams, providers) = upstreams.into_iter().map(|one| (one.http, one.provider)).unzip();
    let seed = Time::now().as_nanos();
    let worker = Worker::new(settings, providers, meter.clone(), metrics.clone(), seed).with_endpoints(endpoints);
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
