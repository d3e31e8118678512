//! The state that all filters of a listener share on one worker.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc, time::Duration};

use weir_base::{ByteLease, Rng, Time, time::turn};
use weir_http::filter::{Caller, FilterFactory, HttpFilter};
use weir_http_codec::RequestHead;
use weir_spend::meter::Meter;

use crate::{
    agents::{AgentFilter, EndpointHashes, is_agent_path},
    balance::Balancer,
    cache::ResponseCache,
    filter::AiFilter,
    metrics::Metrics,
    plan::Plan,
    recent::RecentRequests,
    ring::ListenerRing,
    settings::{AiListenerSettings, Provider, Target},
    share::WorkerShare,
    stored::StoredResponses,
    surface::split_query,
};

/// The label of every model of a listener whose configuration names none.
const ANY_MODEL: &str = "any";

/// Longest pause that a provider may demand by Retry-After. Default 120 s, as long as SDKs wait.
const COOLING_MAX: Duration = Duration::from_secs(120);

/// A listener with its settings, on one worker.
pub(crate) struct Worker {
    pub(crate) listener: Arc<str>,
    pub(crate) settings: AiListenerSettings,
    /// In the order of [`AiListenerSettings::upstreams`].
    pub(crate) providers: Vec<Arc<Provider>>,
    /// In the same order.
    pub(crate) endpoints: Vec<EndpointHashes>,
    /// `None`: clients need no key.
    pub(crate) ring: Option<ListenerRing>,
    pub(crate) meter: Meter,
    pub(crate) stored: StoredResponses,
    /// For the memory of translated streams.
    pub(crate) bytes: ByteLease,
    /// That of the process.
    pub(crate) cache: Arc<ResponseCache>,
    pub(crate) recent: Rc<RecentRequests>,
    pub(crate) metrics: Rc<Metrics>,
    rng: RefCell<Rng>,
    pub(crate) balancer: Rc<Balancer>,
    /// Until when each upstream comes last.
    cooling: RefCell<Vec<Time>>,
}

impl Worker {
    pub(crate) fn new(
        listener: Arc<str>,
        settings: AiListenerSettings,
        providers: Vec<Arc<Provider>>,
        WorkerShare { meter, cache, issued, recent, stored }: WorkerShare,
        (metrics, bytes): (Rc<Metrics>, ByteLease),
        seed: u64,
    ) -> Self {
        let ring = settings.ring(&listener, meter.ledger(), &issued);
        recent.keep_bodies(&listener, settings.recent_body_bytes_max > 0);
        let cooling = RefCell::new(vec![Time::ZERO; providers.len()]);
        let (rng, balancer) = (RefCell::new(Rng::new(seed)), Rc::new(Balancer::new(&settings.models)));
        Self {
            listener,
            settings,
            providers,
            endpoints: Vec::new(),
            ring,
            meter,
            stored,
            bytes,
            cache,
            recent,
            metrics,
            rng,
            balancer,
            cooling,
        }
    }

    /// The same with the endpoints of its upstreams.
    pub(crate) fn with_endpoints(self, endpoints: Vec<EndpointHashes>) -> Self {
        Self { endpoints, ..self }
    }

    /// The position of an endpoint of an upstream. `None`: the upstream has none of this hash any more.
    pub(crate) fn endpoint(&self, upstream: usize, hash: u64) -> Option<usize> {
        self.endpoints.get(upstream)?.iter().position(|known| *known == hash)
    }

    /// A uniform number, for the choice among targets.
    pub(crate) fn random(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }

    /// Leaves the target of a plan that has made the response `id`. If that is not known, or no target of the plan, all stay: false.
    pub(crate) fn bind(&self, plan: &mut Plan, id: Option<&str>) -> bool {
        let Some(upstream) = id.and_then(|id| self.stored.upstream(id)) else { return false };
        let name = |target: &Target| self.settings.upstreams.get(target.upstream);
        let Some(at) = plan.targets.iter().position(|target| name(target) == Some(&upstream)) else { return false };
        plan.targets.swap(0, at);
        plan.targets.truncate(1);
        true
    }

    /// An upstream wants no request for so long.
    pub(crate) fn cool(&self, upstream: usize, pause: Duration) {
        if let Some(until) = self.cooling.borrow_mut().get_mut(upstream) {
            *until = turn::now().saturating_add(pause.min(COOLING_MAX));
        }
    }

    /// An upstream wants no request now.
    pub(crate) fn is_cooling(&self, upstream: usize) -> bool {
        self.cooling.borrow().get(upstream).is_some_and(|until| turn::now() < *until)
    }

    /// The label of a model in metrics, by its position in the configuration.
    pub(crate) fn label(&self, model: usize) -> &str {
        self.settings.models.get(model).map_or(ANY_MODEL, |model| model.name.text())
    }
}

/// The filter factory of a listener.
pub(crate) struct Filters(pub(crate) Rc<Worker>);

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filters").field(&self.0.settings).finish()
    }
}

impl FilterFactory for Filters {
    fn create(&self, head: &RequestHead, caller: &Caller) -> Box<dyn HttpFilter> {
        let (path, _) = split_query(std::str::from_utf8(head.target()).unwrap_or_default());
        if !self.0.settings.agents.is_empty() && is_agent_path(path) {
            return Box::new(AgentFilter::new(self.0.clone(), caller.client));
        }
        Box::new(AiFilter::new(self.0.clone(), head, caller.client))
    }
}
