//! The cells that one upstream writes on one worker.

use std::{any::Any, cell::OnceCell, rc::Rc, sync::Arc, time::Duration};

use weir_base::{exchange::LossCause, time::turn, violation::Violation};
use weir_engine::Traffic;
use weir_telemetry::{
    CoreMetrics, Counter, EventLog, Gauge, Histogram, catalog,
    cells::GaugeGuard,
    log::{LogEvent, UpstreamChange, UpstreamEvent, endpoint_of},
};

use crate::{breaker::BreakerState, health::EndpointState};

/// The purpose of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Shared,
    Pinned,
    Subscription,
    Tracking,
    Exclusive,
    Pooled,
}

/// Label values, in the order of [`LaneKind`].
const LANE_KINDS: [&str; 6] = ["shared", "pinned", "subscription", "tracking", "exclusive", "pooled"];

/// The parts from which the metric cells of an upstream's endpoints are made.
pub struct UpstreamMetrics {
    core: CoreMetrics,
    events: EventLog,
    upstream: Arc<str>,
}

impl UpstreamMetrics {
    /// For `upstream`; `events` gets what changes there.
    pub fn new(core: &CoreMetrics, events: EventLog, upstream: Arc<str>) -> Self {
        Self { core: core.clone(), events, upstream }
    }

    pub(crate) fn tracked_keys(&self, keys: i64) {
        self.core.gauge(&catalog::TRACKED_KEYS, &[&self.upstream]).add(keys);
    }

    pub(crate) fn redirected(&self, kind: &str) {
        self.core.counter(&catalog::REDIRECTS, &[&self.upstream, kind]).inc();
    }
}

/// Cells of one endpoint on one worker.
pub(crate) struct EndpointMetrics {
    core: CoreMetrics,
    events: EventLog,
    upstream: Arc<str>,
    endpoint: Arc<str>,
    /// The series of its events.
    series: Arc<str>,
    open: [Gauge; LANE_KINDS.len()],
    connects: [Counter; LANE_KINDS.len()],
    connect_duration: Histogram,
    waiters: Gauge,
    acquire_wait: Histogram,
    pinned: Gauge,
    received: Counter,
    written: Counter,
    moves: Counter,
    requests: Counter,
    in_flight: Gauge,
    breaker: Gauge,
    up: Gauge,
    subscriptions: Gauge,
    /// See [`EndpointMetrics::own`].
    own: OnceCell<Rc<dyn Any>>,
}

impl Traffic for EndpointMetrics {
    #[inline]
    fn received(&self, bytes: usize) {
        self.received.add(bytes as u64);
    }

    #[inline]
    fn sent(&self, bytes: usize) {
        self.written.add(bytes as u64);
    }
}

impl EndpointMetrics {
    pub(crate) fn new(of: &UpstreamMetrics, endpoint: &str) -> Self {
        let (core, upstream) = (&of.core, &*of.upstream);
        let own = [upstream, endpoint];
        let open = |kind| core.gauge(&catalog::LANES_OPEN, &[upstream, endpoint, kind]);
        let connects = |kind| core.counter(&catalog::LANE_CONNECTS, &[upstream, endpoint, kind]);
        let up = core.gauge(&catalog::ENDPOINT_UP, &own);
        up.set(1);
        Self {
            open: LANE_KINDS.map(open),
            connects: LANE_KINDS.map(connects),
            connect_duration: core.histogram(&catalog::LANE_CONNECT_DURATION, &own),
            waiters: core.gauge(&catalog::LANE_POOL_WAITERS, &own),
            acquire_wait: core.histogram(&catalog::LANE_POOL_ACQUIRE_WAIT, &own),
            pinned: core.gauge(&catalog::PINNED_SESSIONS, &own),
            received: core.counter(&catalog::UPSTREAM_READ_BYTES, &own),
            written: core.counter(&catalog::UPSTREAM_WRITTEN_BYTES, &own),
            moves: core.counter(&catalog::LANE_MOVES, &own),
            requests: core.counter(&catalog::UPSTREAM_REQUESTS, &own),
            in_flight: core.gauge(&catalog::LANE_REQUESTS_IN_FLIGHT, &own),
            breaker: core.gauge(&catalog::BREAKER_STATE, &own),
            up,
            subscriptions: core.gauge(&catalog::UPSTREAM_SUBSCRIPTIONS, &own),
            core: core.clone(),
            events: of.events.clone(),
            upstream: of.upstream.clone(),
            endpoint: endpoint.into(),
            series: endpoint_of(upstream, endpoint),
            own: OnceCell::new(),
        }
    }

    /// The cells that only the protocol of the upstream has, made once.
    pub(crate) fn own<T: 'static>(&self, make: impl FnOnce(&CoreMetrics, [&str; 2]) -> T) -> Rc<T> {
        let made = self.own.get_or_init(|| Rc::new(make(&self.core, [&self.upstream, &self.endpoint])));
        made.clone().downcast().expect("an upstream has one protocol")
    }

    #[inline]
    pub(crate) fn requests_sent(&self, count: usize) {
        self.requests.add(count as u64);
        self.in_flight.add(count as i64);
    }

    #[inline]
    pub(crate) fn requests_over(&self, count: u64) {
        self.in_flight.add(-(count as i64));
    }

    pub(crate) fn request_failed(&self, reason: &str) {
        self.core.counter(&catalog::UPSTREAM_ERRORS, &[&self.upstream, &self.endpoint, reason]).inc();
    }

    pub(crate) fn lane_opened(&self, kind: LaneKind) -> GaugeGuard {
        self.open[kind as usize].guard()
    }

    /// A connection came from another worker.
    pub(crate) fn lane_moved(&self) {
        self.moves.inc();
    }

    pub(crate) fn connected(&self, kind: LaneKind, took: Duration) {
        self.connects[kind as usize].inc();
        self.connect_duration.record(took.as_nanos() as u64);
    }

    /// Tells the log, once a second per kind of event.
    fn report_change(&self, change: UpstreamChange, reason: &'static str, detail: Option<&str>) {
        let at = turn::now();
        self.events.push(&self.series, change.as_str(), at, |suppressed| {
            let (upstream, endpoint) = (self.upstream.clone(), self.endpoint.clone());
            let detail = detail.map(Into::into);
            LogEvent::Upstream(UpstreamEvent { at, upstream, endpoint, change, reason, detail, suppressed })
        });
    }

    pub(crate) fn connect_failed(&self, reason: &'static str, detail: &str) {
        self.report_change(UpstreamChange::ConnectFailed, reason, Some(detail));
        self.core.counter(&catalog::LANE_CONNECT_FAILURES, &[&self.upstream, &self.endpoint, reason]).inc();
    }

    pub(crate) fn lane_closed(&self, cause: LossCause) {
        if cause != LossCause::Retired {
            self.report_change(UpstreamChange::LaneClosed, cause.name(), None);
        }
        self.core.counter(&catalog::LANE_CLOSES, &[&self.upstream, &self.endpoint, cause.name()]).inc();
    }

    pub(crate) fn violation(&self, violation: &Violation) {
        let labels = ["", violation.reason, violation.culprit.as_str()];
        self.core.counter(&catalog::VIOLATIONS, &labels).inc();
    }

    pub(crate) fn waiters(&self, change: i64) {
        self.waiters.add(change);
    }

    /// One more waits, until the result is dropped.
    pub(crate) fn waiting(&self) -> GaugeGuard {
        self.waiters.guard()
    }

    pub(crate) fn waited(&self, wait: Duration, requests: u64) {
        self.acquire_wait.record_many(wait.as_nanos() as u64, requests);
    }

    pub(crate) fn pinned(&self) {
        self.pinned.inc();
    }

    pub(crate) fn unpinned(&self) {
        self.pinned.dec();
    }

    /// A session was bound to a lane of its own for `reason`.
    pub(crate) fn pinned_for(&self, reason: &str) {
        self.core.counter(&catalog::PINS, &[&self.upstream, &self.endpoint, reason]).inc();
    }

    /// Subscriptions to `names` channels and patterns were lost with their connection, or with the slot of their channel.
    pub(crate) fn subscription_gap(&self, names: usize) {
        let text = format!("{names} channels and patterns");
        self.report_change(UpstreamChange::SubscriptionGap, "lost", Some(&text));
        self.core.counter(&catalog::SUBSCRIPTION_GAPS, &[&self.upstream, &self.endpoint]).inc();
    }

    /// It was not known for a moment which keys change there.
    pub(crate) fn tracking_gap(&self) {
        self.core.counter(&catalog::TRACKING_GAPS, &[&self.upstream, &self.endpoint]).inc();
    }

    /// So many more channels and patterns are subscribed there.
    pub(crate) fn subscriptions(&self, names: i64) {
        self.subscriptions.add(names);
    }

    pub(crate) fn retried(&self, count: usize) {
        self.core.counter(&catalog::RETRIES, &[&self.upstream, &self.endpoint, "unsent"]).add(count as u64);
    }

    pub(crate) fn retried_after(&self, outcome: &str) {
        self.core.counter(&catalog::RETRIES, &[&self.upstream, &self.endpoint, outcome]).inc();
    }

    pub(crate) fn breaker(&self, state: BreakerState) {
        self.breaker.set(state as i64);
    }

    pub(crate) fn breaker_opened(&self) {
        self.report_change(UpstreamChange::BreakerOpened, "failures", None);
        self.core.counter(&catalog::BREAKER_OPENED, &[&self.upstream, &self.endpoint]).inc();
    }

    /// It is left out for so long.
    pub(crate) fn ejected(&self, duration: Duration) {
        self.report_change(UpstreamChange::Ejected, "failures", Some(&format!("for {} s", duration.as_secs_f64())));
        self.core.counter(&catalog::ENDPOINT_EJECTIONS, &[&self.upstream, &self.endpoint]).inc();
    }

    pub(crate) fn probed(&self, is_good: bool) {
        let outcome = if is_good { "ok" } else { "failed" };
        self.core.counter(&catalog::HEALTH_CHECKS, &[&self.upstream, &self.endpoint, outcome]).inc();
    }

    /// The first probe has failed.
    pub(crate) fn unreachable(&self, error: &str) {
        self.report_change(UpstreamChange::Unreachable, "probe", Some(error));
    }

    pub(crate) fn role_changed(&self, is_primary: bool) {
        let change = if is_primary { UpstreamChange::Primary } else { UpstreamChange::Standby };
        self.report_change(change, "probe", None);
    }

    pub(crate) fn health_changed(&self, state: EndpointState, error: Option<&str>) {
        let change = if state == EndpointState::Down { UpstreamChange::Down } else { UpstreamChange::Up };
        self.report_change(change, "probe", error);
        self.up.set(i64::from(state != EndpointState::Down));
        let labels = [&*self.upstream, &*self.endpoint, state.name()];
        self.core.counter(&catalog::ENDPOINT_CHANGES, &labels).inc();
    }
}
