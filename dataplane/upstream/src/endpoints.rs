//! The servers of one upstream on one worker: which there are, what is known of each, and which of them is next.
//!
//! Lanes of every kind stand on it: shared and pinned ones, which ask for the server of a key or the primary
//! ([`crate::topology`]), and exclusive ones, which take the server that [`Endpoints::choose`] finds.

use std::{
    cell::{Cell, Ref, RefCell},
    io,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_base::{
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, Stream, settings::Address};

use crate::{
    balance::{Balancer, Candidate},
    breaker::BreakerState,
    choice::{Choice, EndpointStanding, Reach, TriedEndpoints},
    connect::ConnectError,
    discovery::{Schedule, discovery_loop},
    ejection::ExchangeOutcome,
    endpoint::{Endpoint, EndpointShare},
    health::{Probe, probe_loop},
    metrics::UpstreamMetrics,
    protocol::Directory,
    replicas::Replicas,
    settings::{BalanceSettings, RETRY_BUDGET_MIN, ReadFrom, SLOW_START_PERCENT_MIN, Topology, UpstreamSettings},
    topology::Spread,
    zones::zones_loop,
};
use weir_base::exchange::Refusal;

/// Addresses of one cluster in the life of an upstream. Nodes that are replaced get new ones, and numbers are not given twice:
/// at ten nodes replaced a day this lasts for four years.
const ENDPOINTS_MAX: usize = 16_384;

/// The requirements of an exchange for its endpoint.
#[derive(Clone, Debug, Default)]
pub struct SelectionCriteria {
    /// Preferably not this one, which has just failed.
    pub avoid: Option<usize>,
    /// Any other than these, as long as there is one.
    pub tried: TriedEndpoints,
    /// Not a connection that has served before, unless it carries several exchanges, or no other can be made.
    pub is_fresh: bool,
    /// Hash of the affinity value.
    pub hash: Option<u64>,
    /// No other than this one, whatever its health. A number that the upstream does not have gives no endpoint.
    pub only: Option<usize>,
    /// None of these: a bit for each number below 64.
    pub barred: u64,
    /// Something else takes the exchange if no endpoint does: it does not wait until one is fit.
    pub is_optional: bool,
    /// Endpoints that are only spare ones do not serve it.
    pub bars_spare: bool,
    /// The one that keyed pools have chosen for it already: the balancer counts each choice.
    pub chosen: Option<usize>,
}

/// An endpoint for an exchange.
pub(crate) struct ChosenEndpoint {
    pub(crate) number: usize,
    /// A connection may be made for it. Otherwise the exchange takes one that stands.
    pub(crate) connects: bool,
}

/// A retry that is under way.
pub struct Retry(Rc<Endpoints>);

impl Drop for Retry {
    fn drop(&mut self) {
        self.0.retries.set(self.0.retries.get() - 1);
    }
}

/// The servers of one upstream on one worker.
pub struct Endpoints {
    settings: UpstreamSettings,
    balancing: BalanceSettings,
    /// Never empty, and never shorter: the number of an endpoint is its name.
    all: RefCell<Vec<Rc<Endpoint>>>,
    balancer: RefCell<Balancer>,
    /// Retries under way.
    retries: Cell<u64>,
    pub(crate) spread: Spread,
    pub(crate) replicas: Replicas,
    pub(crate) schedule: Schedule,
    pub(crate) metrics: UpstreamMetrics,
}

impl Endpoints {
    /// The endpoints of the settings; `shares` has one entry for each.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub(crate) fn new(
        settings: UpstreamSettings,
        balancing: BalanceSettings,
        shares: &[Arc<EndpointShare>],
        metrics: UpstreamMetrics,
    ) -> io::Result<Rc<Self>> {
        let endpoint = |(number, (address, share)): (usize, (&Address, &Arc<EndpointShare>))| {
            let weight = balancing.weights.get(number).copied().unwrap_or(1);
            Endpoint::new(address, &settings, weight, share.clone(), &metrics).map(Rc::new)
        };
        let all = settings.endpoints.iter().zip(shares).enumerate().map(endpoint).collect::<io::Result<Vec<_>>>()?;
        if all.is_empty() || all.len() != settings.endpoints.len() {
            return Err(io::Error::other("an upstream needs an endpoint, and each its share"));
        }
        Ok(Rc::new(Self {
            balancer: RefCell::new(balancer(&balancing, &all)),
            spread: Spread::new(&settings),
            all: RefCell::new(all),
            retries: Cell::new(0),
            replicas: Replicas::default(),
            schedule: Schedule::default(),
            metrics,
            balancing,
            settings,
        }))
    }

    /// The settings of the upstream.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    pub(crate) fn all(&self) -> Ref<'_, Vec<Rc<Endpoint>>> {
        self.all.borrow()
    }

    /// Endpoint number `number`.
    pub(crate) fn get(&self, number: usize) -> Rc<Endpoint> {
        let all = self.all.borrow();
        // No number is kept past the list that it was made for.
        all.get(number).unwrap_or(&all[0]).clone()
    }

    /// The number of endpoints that are known, also of those that have no keys.
    #[inline]
    pub fn endpoint_count(&self) -> u16 {
        self.all.borrow().len() as u16
    }

    /// The address of endpoint number `number`, if there is one.
    pub fn endpoint_address(&self, number: u16) -> Option<String> {
        self.all.borrow().get(usize::from(number)).map(|one| one.connector().endpoint.to_string())
    }

    /// Address, health and breaker of every endpoint that is configured, or in the cluster.
    pub fn endpoint_states(&self) -> Vec<(String, &'static str, &'static str)> {
        let state = |one: &Rc<Endpoint>| {
            (one.connector().endpoint.to_string(), one.health().state().name(), one.breaker_state().name())
        };
        self.all.borrow().iter().filter(|one| one.is_member.get()).map(state).collect()
    }

    pub(crate) fn publish_breakers(&self) {
        self.all.borrow().iter().for_each(|endpoint| endpoint.publish_breaker());
    }

    /// Tells whether it is of use to wait for a connection to endpoint number `number`.
    ///
    /// # Errors
    /// Its breaker is open.
    pub(crate) fn check_available(&self, number: usize) -> Result<(), Refusal> {
        match self.get(number).breaker_state() {
            BreakerState::Open => Err(Refusal::BreakerOpen),
            BreakerState::Closed | BreakerState::HalfOpen => Ok(()),
        }
    }

    /// Tells whether a connection to endpoint number `number` may be tried now.
    ///
    /// # Errors
    /// Its breaker is open; or it is half open and another attempt is under way, which says whether the server is back.
    pub(crate) fn may_connect(&self, number: usize) -> Result<(), Refusal> {
        self.check_available(number)?;
        if self.get(number).is_on_trial() { Err(Refusal::Unreachable) } else { Ok(()) }
    }

    /// The number of the endpoint at `address`, which is added if it is new.
    pub(crate) fn number(&self, address: Address) -> Option<u16> {
        let mut all = self.all.borrow_mut();
        if let Some(at) = all.iter().position(|endpoint| endpoint.connector().endpoint == address) {
            all[at].is_member.set(true);
            return Some(at as u16);
        }
        if all.len() >= ENDPOINTS_MAX {
            return None;
        }
        let endpoint = Endpoint::new(&address, &self.settings, 1, Arc::default(), &self.metrics).ok()?;
        all.push(Rc::new(endpoint));
        *self.balancer.borrow_mut() = balancer(&self.balancing, &all);
        Some(all.len() as u16 - 1)
    }

    /// Probes every endpoint of the settings by `probe`, on a connection of its own that `open` makes.
    pub(crate) fn probe<P: Probe + 'static>(
        &self,
        probe: P,
        open: impl AsyncFn(&Endpoint, u16) -> Result<Stream, ConnectError> + Clone + 'static,
    ) -> Vec<JoinHandle<()>> {
        let Some(settings) = &self.settings.health else { return Vec::new() };
        let probe = Rc::new(probe);
        let endpoints = self.all.borrow();
        let task = |(endpoint, number): (&Rc<Endpoint>, u16)| {
            let (endpoint, settings, probe, open) = (endpoint.clone(), settings.clone(), probe.clone(), open.clone());
            weir_engine::spawn(async move {
                probe_loop(&endpoint, settings, async || open(&endpoint, number).await, &*probe).await;
            })
        };
        endpoints.iter().zip(0..).map(task).collect()
    }

    /// Finds out by `directory` which servers there are and in which zone each stands, as far as the settings want it.
    pub(crate) fn discover<D: Directory>(self: &Rc<Self>, directory: &Rc<D>) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        if self.settings.topology != Topology::Fixed {
            tasks.push(weir_engine::spawn(discovery_loop(self.clone(), directory.clone())));
        }
        if let Some(zone) = self.settings.zone.clone().filter(|_| self.settings.read_from != ReadFrom::Primary) {
            tasks.push(weir_engine::spawn(zones_loop(self.clone(), directory.clone(), zone)));
        }
        tasks
    }

    /// Another retry may be under way.
    pub(crate) fn may_retry(&self) -> bool {
        let in_flight: u64 = self.all.borrow().iter().map(|endpoint| endpoint.in_flight.get()).sum();
        let most = (in_flight * u64::from(self.balancing.retry_budget_percent) / 100).max(RETRY_BUDGET_MIN);
        self.retries.get() < most
    }

    /// Counts a retry after `outcome` at endpoint number `number`; it is under way until the result is dropped.
    pub(crate) fn retry(self: &Rc<Self>, number: usize, outcome: &str) -> Retry {
        self.get(number).metrics().retried_after(outcome);
        self.retries.set(self.retries.get() + 1);
        Retry(self.clone())
    }

    /// How an exchange with endpoint number `number` ended, and how long its response took to begin.
    pub(crate) fn note(&self, number: usize, outcome: ExchangeOutcome, took: Option<Duration>) {
        let endpoint = self.get(number);
        let settings = &self.balancing.ejection;
        if !endpoint.note(outcome, took, settings) {
            return;
        }
        let (all, now) = (self.all.borrow(), turn::now());
        let out = all.iter().filter(|endpoint| endpoint.is_ejected(now)).count();
        let most = (all.len() * settings.percent_max as usize / 100).max(1);
        if out < most && all.len() > 1 {
            endpoint.eject(settings, now);
        }
    }

    /// The endpoint that the next exchange goes to; `has_lane` tells whether a connection to an endpoint stands that takes it.
    /// `None` if the breaker of the only one is open, or those of all that were tried, or where connections to all of them time out
    /// and none has one with room.
    pub(crate) fn choose(
        &self,
        wanted: &SelectionCriteria,
        has_lane: impl Fn(usize) -> bool,
    ) -> Option<ChosenEndpoint> {
        self.choose_among(wanted, has_lane, |_| false, |_| false)
    }

    /// The same without those that are off. Among those that are equally well, busy ones come last: an exchange waits there.
    pub(crate) fn choose_among(
        &self,
        wanted: &SelectionCriteria,
        has_lane: impl Fn(usize) -> bool,
        is_off: impl Fn(usize) -> bool,
        is_busy: impl Fn(usize) -> bool,
    ) -> Option<ChosenEndpoint> {
        let (all, now) = (self.all.borrow(), turn::now());
        let lone = wanted.only.or((all.len() == 1).then_some(0));
        if let Some(number) = lone {
            let only = all.get(number)?;
            let connects = match only.reach() {
                Reach::Yes | Reach::Trial => true,
                Reach::No => only.breaker_state() != BreakerState::Open,
                Reach::Silent => false,
            };
            return (connects || has_lane(number)).then_some(ChosenEndpoint { number, connects });
        }
        let has_waited = wanted.tried.all().iter().any(|&number| all[number].is_silent());
        let standing = |(number, endpoint): (usize, &Rc<Endpoint>)| {
            let standing = endpoint.standing(wanted.tried.has(number), has_waited, || has_lane(number), now);
            EndpointStanding { is_off: standing.is_off || is_off(number), ..standing }
        };
        let standings: Vec<EndpointStanding> = all.iter().enumerate().map(standing).collect();
        let choice = Choice::among(&standings, self.balancing.panic_percent);
        let mut candidates: Vec<Candidate> = Vec::with_capacity(all.len());
        for (number, (endpoint, standing)) in all.iter().zip(&standings).enumerate() {
            if choice.takes(*standing) {
                let (in_flight, latency) = (endpoint.in_flight.get(), endpoint.latency_nanos());
                candidates.push(Candidate { number, weight: self.weight(endpoint, now), in_flight, latency });
            }
        }
        if candidates.len() > 1 {
            candidates.retain(|candidate| Some(candidate.number) != wanted.avoid);
            if candidates.iter().any(|candidate| !is_busy(candidate.number)) {
                candidates.retain(|candidate| !is_busy(candidate.number));
            }
        }
        let number = self.balancer.borrow_mut().choose(&candidates, wanted.hash)?;
        Some(ChosenEndpoint { number, connects: standings[number].reach != Reach::Silent })
    }

    /// Effective weight of an endpoint: reduced for a while after it was down.
    fn weight(&self, endpoint: &Endpoint, now: Time) -> u32 {
        let window = self.balancing.slow_start.as_nanos() as u64;
        if window == 0 {
            return endpoint.weight;
        }
        let since = endpoint.up_since().map_or(window, |at| now.nanos_since(at));
        let percent = (since.min(window) * 100 / window).max(SLOW_START_PERCENT_MIN);
        // Weights are scaled by 100, so that low ones also rise in steps.
        (u64::from(endpoint.weight) * percent).min(u64::from(u32::MAX)) as u32
    }
}

/// A balancer among these endpoints.
fn balancer(settings: &BalanceSettings, endpoints: &[Rc<Endpoint>]) -> Balancer {
    let named = |endpoint: &Rc<Endpoint>| (endpoint.connector().endpoint.to_string(), endpoint.weight);
    let rng = Rng::new(Time::now().as_nanos());
    Balancer::new(settings.balance, &endpoints.iter().map(named).collect::<Vec<_>>(), rng)
}
