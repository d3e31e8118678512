//! One server of an upstream: how it is reached, and what is known of it.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    time::{Time, turn},
};
use weir_engine::{
    Stream,
    settings::{Address, TlsClientSettings},
};

use crate::{
    balance::Latency,
    breaker::{Breaker, BreakerState},
    choice::{EndpointStanding, Reach},
    connect::{ConnectError, Connector},
    ejection::{Ejection, ExchangeOutcome, ResponseVerdict},
    health::{EndpointState, Health},
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    pooled::{LoginError, PoolShare},
    protocol::Handshake,
    quota::Quota,
    settings::{EjectionSettings, UpstreamSettings},
};

/// Lanes lost within this time of each other are one failure of the server.
pub(crate) const LOSSES_AT_ONCE: Duration = Duration::from_millis(100);

/// State that all workers share of one endpoint.
#[derive(Clone, Default)]
pub struct EndpointShare {
    /// State from the health probe.
    pub health: Arc<Health>,
    /// The connections that all workers together may have to it.
    pub quota: Quota,
    /// Keyed pools of whole connections to it.
    pub pools: PoolShare,
}

impl EndpointShare {
    /// The state that is valid for the same address after a reload: `before` were the settings of its upstream, and `now` they are.
    #[must_use]
    pub fn after_reload(self: &Arc<Self>, before: &UpstreamSettings, now: &UpstreamSettings) -> Arc<Self> {
        let (is_same_health, is_same_peer) =
            (before.health.is_some() == now.health.is_some(), peer_of(before) == peer_of(now));
        if is_same_health && is_same_peer {
            return self.clone();
        }
        let mut kept = Self::clone(self);
        if !is_same_health {
            // Health found before the probe began, or ended, is no longer valid.
            kept.health = Arc::default();
        }
        if !is_same_peer {
            // Connections that were made in clear text, or to a server that proved another name, serve no client of the new settings.
            kept.pools = PoolShare::default();
        }
        Arc::new(kept)
    }
}

/// The settings that decide to whom a connection goes, and how it is protected.
fn peer_of(settings: &UpstreamSettings) -> Option<TlsClientSettings> {
    let tls = settings.tls.clone()?;
    Some(TlsClientSettings { handshake_timeout: Duration::ZERO, ..tls })
}

/// One server on one worker.
pub(crate) struct Endpoint {
    connector: Connector,
    share: Arc<EndpointShare>,
    breaker: RefCell<Breaker>,
    /// When a lost lane was last counted as a failure.
    lost_at: Cell<Option<Time>>,
    /// When a connection could not be made last.
    refused_at: Cell<Time>,
    /// That connection timed out.
    is_silent: Cell<bool>,
    /// Since when connections can be made again, if its breaker was open before.
    back_since: Cell<Option<Time>>,
    /// Connections that are being made, and those of them that began while the breaker was not closed.
    attempts: Cell<u32>,
    trials: Cell<u32>,
    /// Relative to those of the others; 0: it gets nothing.
    pub(crate) weight: u32,
    /// Exchanges that have a lane of it to themselves.
    pub(crate) in_flight: Cell<u64>,
    latency: Cell<Latency>,
    ejection: RefCell<Ejection>,
    metrics: Rc<EndpointMetrics>,
    /// It is configured, or was in the cluster at the last query. Others may be anybody by now.
    pub(crate) is_member: Cell<bool>,
    /// It stands in the zone of this gateway, by its own words.
    pub(crate) is_near: Cell<bool>,
    /// The time of the next query for its zone.
    pub(crate) zone_due: Cell<Time>,
}

impl Endpoint {
    pub(crate) fn new(
        address: &Address,
        settings: &UpstreamSettings,
        weight: u32,
        share: Arc<EndpointShare>,
        metrics: &UpstreamMetrics,
    ) -> io::Result<Self> {
        Ok(Self {
            connector: Connector::new(address.clone(), settings)?,
            share,
            breaker: RefCell::new(Breaker::new(settings.breaker.clone())),
            lost_at: Cell::new(None),
            refused_at: Cell::default(),
            is_silent: Cell::new(false),
            back_since: Cell::new(None),
            attempts: Cell::new(0),
            trials: Cell::new(0),
            weight,
            in_flight: Cell::new(0),
            latency: Cell::default(),
            ejection: RefCell::default(),
            metrics: Rc::new(EndpointMetrics::new(metrics, &address.to_string())),
            is_member: Cell::new(true),
            is_near: Cell::new(false),
            zone_due: Cell::default(),
        })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn health(&self) -> &Health {
        &self.share.health
    }

    /// Its keyed pools.
    pub(crate) fn pools(&self) -> &PoolShare {
        &self.share.pools
    }

    /// The connections that all workers may have to it.
    pub(crate) fn quota(&self) -> &Quota {
        &self.share.quota
    }

    pub(crate) fn metrics(&self) -> &Rc<EndpointMetrics> {
        &self.metrics
    }

    /// The state of the breaker now.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.borrow().state(turn::now())
    }

    /// Somebody tries to connect now.
    pub(crate) fn is_tried(&self) -> bool {
        self.attempts.get() > 0
    }

    /// Somebody tries whether it is back.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.trials.get() > 0
    }

    /// An attempt to connect, until the result is dropped.
    pub(crate) fn attempt(self: &Rc<Self>) -> Attempt {
        let trials = u32::from(self.breaker_state() != BreakerState::Closed);
        self.attempts.set(self.attempts.get() + 1);
        self.trials.set(self.trials.get() + trials);
        Attempt { endpoint: self.clone(), trials }
    }

    /// Whether an exchange may try to connect. A good health check since the last failure is reason enough for a trial before the
    /// pause is over.
    pub(crate) fn reach(&self) -> Reach {
        let is_tried = self.is_tried();
        match self.breaker_state() {
            BreakerState::Closed => Reach::Yes,
            BreakerState::HalfOpen if !is_tried => Reach::Trial,
            BreakerState::Open if !is_tried && self.share.health.was_good_after(self.refused_at.get()) => Reach::Trial,
            BreakerState::HalfOpen | BreakerState::Open if self.is_silent.get() => Reach::Silent,
            BreakerState::HalfOpen | BreakerState::Open => Reach::No,
        }
    }

    /// The last connection that could not be made timed out, and nothing else is known since.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.get()
    }

    /// Since when it serves again, if it did not before: by its health check, or by connections that could not be made.
    pub(crate) fn up_since(&self) -> Option<Time> {
        self.share.health.up_since().max(self.back_since.get())
    }

    /// Its availability now. `has_waited`: the exchange has waited for a connection that timed out. It makes no second such
    /// trial. `has_lane` tells whether a connection stands that takes the exchange.
    pub(crate) fn standing(
        &self,
        has_failed: bool,
        has_waited: bool,
        has_lane: impl FnOnce() -> bool,
        now: Time,
    ) -> EndpointStanding {
        let reach = match self.reach() {
            Reach::Trial if has_waited && self.is_silent() => Reach::Silent,
            reach => reach,
        };
        EndpointStanding {
            is_off: self.weight == 0 || !self.is_member.get(),
            is_down: self.share.health.state() == EndpointState::Down,
            is_ejected: self.is_ejected(now),
            reach,
            has_failed,
            // Otherwise a connection can be made.
            has_lane: reach == Reach::Silent && has_lane(),
        }
    }

    /// How an exchange with it ended, and how long its response took to begin; true if it is to be left out for it.
    pub(crate) fn note(&self, outcome: ExchangeOutcome, took: Option<Duration>, settings: &EjectionSettings) -> bool {
        let now = turn::now();
        let mut ejection = self.ejection.borrow_mut();
        let is_good = match outcome {
            ExchangeOutcome::Responded(ResponseVerdict::Well) => true,
            ExchangeOutcome::Responded(ResponseVerdict::ApplicationError) => !settings.application_errors,
            ExchangeOutcome::Responded(ResponseVerdict::Unavailable) => false,
            ExchangeOutcome::Lost(since) if !ejection.is_own_loss(since, now) => return false,
            ExchangeOutcome::TimedOut if !ejection.is_own_timeout(now) => return false,
            ExchangeOutcome::Lost(_) | ExchangeOutcome::TimedOut | ExchangeOutcome::Failed => false,
        };
        if let Some(took) = took {
            let mut latency = self.latency.get();
            latency.note(took, now);
            self.latency.set(latency);
        }
        ejection.note(is_good, settings, now)
    }

    /// It responded badly and is left out for a while.
    pub(crate) fn is_ejected(&self, now: Time) -> bool {
        self.ejection.borrow().is_out(now)
    }

    /// Leaves it out for a while.
    pub(crate) fn eject(&self, settings: &EjectionSettings, now: Time) {
        let duration = self.ejection.borrow_mut().eject(settings, now);
        self.metrics.ejected(duration);
    }

    /// How long its responses take, in ns; 0 before the first.
    pub(crate) fn latency_nanos(&self) -> u64 {
        self.latency.get().nanos()
    }

    pub(crate) fn publish_breaker(&self) {
        self.metrics.breaker(self.breaker_state());
    }

    pub(crate) async fn open<P: Handshake>(
        self: &Rc<Self>,
        protocol: &P,
        key: P::Key,
        kind: LaneKind,
    ) -> Result<(Stream, P::Greeting), ConnectError> {
        let (begun, _attempt) = (turn::now(), self.attempt());
        let opened = self.connector.open(protocol, key).await;
        self.note_opened(kind, begun, opened.as_ref().err(), !P::has_own_greeting(key));
        opened
    }

    /// As [`Endpoint::open`], for a protocol in which the gateway says nothing first.
    pub(crate) async fn connect(self: &Rc<Self>, kind: LaneKind) -> Result<Stream, ConnectError> {
        let (begun, _attempt) = (turn::now(), self.attempt());
        let opened = self.connector.connect().await;
        self.note_opened(kind, begun, opened.as_ref().err(), true);
        opened
    }

    /// As [`Endpoint::connect`], and then what `begin` makes of the stream, within the same time again.
    pub(crate) async fn connect_and<T>(
        self: &Rc<Self>,
        kind: LaneKind,
        begin: impl AsyncFnOnce(Stream) -> io::Result<T>,
    ) -> Result<T, ConnectError> {
        let (begun, _attempt) = (turn::now(), self.attempt());
        let opened = self.connector.connect_and(begin).await;
        self.note_opened(kind, begun, opened.as_ref().err(), true);
        opened
    }

    /// As [`Endpoint::connect`], and then the login of one key, within the same time again. That the server refuses one login says
    /// nothing against the server.
    pub(crate) async fn log_in<T>(
        self: &Rc<Self>,
        kind: LaneKind,
        negotiates_tls: bool,
        login: impl AsyncFnOnce(&mut Stream) -> Result<T, LoginError>,
    ) -> Result<(Stream, T), (ConnectError, Option<Vec<u8>>)> {
        let (begun, _attempt) = (turn::now(), self.attempt());
        let opened = self.connector.log_in(negotiates_tls, login).await;
        self.note_opened(kind, begun, opened.as_ref().err().map(|(error, _)| error), false);
        opened
    }

    fn note_opened(&self, kind: LaneKind, begun: Time, error: Option<&ConnectError>, is_greeting_ours: bool) {
        match error {
            None => {
                self.note_reached();
                self.metrics.connected(kind, turn::now().since(begun));
            }
            Some(error) => self.note_unopened(error, is_greeting_ours),
        }
    }

    /// It can be reached.
    fn note_reached(&self) {
        if self.breaker_state() != BreakerState::Closed {
            self.back_since.set(Some(turn::now()));
        }
        self.breaker.borrow_mut().succeeded();
        self.is_silent.set(false);
    }

    /// A connection to it could not be made. `is_greeting_ours`: it was greeted with the credentials of the settings, and not with those
    /// of a client.
    fn note_unopened(&self, error: &ConnectError, is_greeting_ours: bool) {
        self.metrics.connect_failed(error.reason, &error.text);
        if matches!(error.refusal, Refusal::Greeting | Refusal::QueueFull) && !is_greeting_ours {
            // It has responded: the credentials of one client, and that it is full, say nothing against it, and must not keep its
            // breaker from closing.
            return self.note_reached();
        }
        self.refused_at.set(turn::now());
        self.is_silent.set(error.is_timeout());
        self.note_failure();
    }

    /// Looks whether it is back: one connection decides whether the breaker closes or opens again.
    pub(crate) async fn try_again<P: Handshake>(&self, protocol: &P, key: P::Key, _attempt: Attempt) {
        match self.connector.open(protocol, key).await {
            Ok(_) => self.note_reached(),
            Err(error) => self.note_unopened(&error, !P::has_own_greeting(key)),
        }
    }

    /// A lane has ended with `lost` exchanges under way. A server may close idle connections, and one that restarts closes
    /// all at once: the first is no failure, the second is one.
    pub(crate) fn lane_lost(&self, cause: LossCause, lost: usize) {
        self.metrics.lane_closed(cause);
        let is_failure = match cause {
            LossCause::Timeout | LossCause::Violation => true,
            LossCause::Closed => lost > 0,
            LossCause::Retired => false,
        };
        let now = turn::now();
        let is_counted = self.lost_at.get().is_some_and(|at| now.since(at) <= LOSSES_AT_ONCE);
        if is_failure && !is_counted {
            self.lost_at.set(Some(now));
            self.note_failure();
        }
    }

    pub(crate) fn note_failure(&self) {
        if self.breaker.borrow_mut().failed(turn::now()) {
            self.metrics.breaker_opened();
        }
    }
}

/// See [`Endpoint::attempt`].
pub(crate) struct Attempt {
    endpoint: Rc<Endpoint>,
    /// 1 for a trial, else 0.
    trials: u32,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Self { endpoint, trials } = self;
        endpoint.attempts.set(endpoint.attempts.get() - 1);
        endpoint.trials.set(endpoint.trials.get() - *trials);
    }
}
