//! Two samples become rows: rates, windowed quantiles, alerts. Pure.

use std::cmp::Ordering;

use weir_admin::status::{
    Breaker, CertificateState, EndpointStatus, Health, ListenerState, ListenerStatus, Quantiles, ResponseClasses,
    RouteStatus, UpstreamStatus, Validity, Verdict, WorkerStatus,
};

use super::client::Sample;
use super::exposition::{ACQUIRE_WAIT, MAX_FDS, OPEN_FDS, OVERHEAD_TIME, REQUEST_TIME, RESIDENT_BYTES};
use super::format;
use super::responses::ResponseRates;
use super::state::{Sort, SortKey};

/// Everything that a frame shows, apart from the state of the connection to the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) totals: Totals,
    pub(super) alerts: Vec<String>,
    pub(super) listeners: Vec<ListenerRow>,
    pub(super) routes: Vec<RouteRow>,
    pub(super) upstreams: Vec<EndpointRow>,
    pub(super) workers: Vec<WorkerRow>,
    pub(super) refusals: Vec<RefusalRow>,
    /// Seconds between the two samples; `None` if there is only one, and so no rates.
    pub(super) window_seconds: Option<f64>,
}

/// The line of sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) connections: u64,
    pub(super) in_flight: u64,
    pub(super) requests_per_second: Option<f64>,
    pub(super) shed_per_second: Option<f64>,
    /// CPU of all workers, 1.0 for one core.
    pub(super) worker_cpu: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) open_fds: Option<f64>,
    pub(super) max_fds: Option<f64>,
}

/// A quantile in seconds and what it covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Time {
    /// Nothing was recorded.
    None,
    /// Value of the window between the two samples.
    Window(f64),
    /// Since the process started, for want of buckets to subtract.
    Lifetime(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListenerRow {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) bind: String,
    pub(super) state: ListenerState,
    pub(super) connections: u64,
    pub(super) in_flight: u64,
    pub(super) accepts_per_second: Option<f64>,
    pub(super) requests_per_second: Option<f64>,
    pub(super) is_http: bool,
    pub(super) responses: Option<ResponseRates>,
    /// Too many responses are errors: in the window, or so the gateway warns.
    pub(super) fails: bool,
    pub(super) shed_per_second: Option<f64>,
    pub(super) received_per_second: Option<f64>,
    pub(super) sent_per_second: Option<f64>,
    pub(super) p50: Time,
    pub(super) p99: Time,
    pub(super) p999: Time,
    pub(super) overhead_p99: Time,
    pub(super) knee: Option<KneeLoad>,
    /// Days until the first of its certificates expires, and how near that is.
    pub(super) certificate: Option<(i64, CertificateState)>,
}

/// The load of a listener as a share of what it carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KneeLoad {
    /// 1.0: at the knee; `None`: not known yet.
    pub(super) share: Option<f64>,
    /// Past `knee_warn`.
    pub(super) is_warned: bool,
    /// At the knee or past it.
    pub(super) is_reached: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteRow {
    pub(super) name: String,
    pub(super) listeners: String,
    pub(super) validity: Validity,
    pub(super) is_online: bool,
    pub(super) requests_per_second: Option<f64>,
    pub(super) responses: Option<ResponseRates>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndpointRow {
    pub(super) upstream: String,
    pub(super) address: String,
    pub(super) health: Health,
    pub(super) breaker: Breaker,
    pub(super) lanes_shared: u64,
    pub(super) lanes_pinned: u64,
    pub(super) waiters: u64,
    pub(super) wait_p99: Time,
    pub(super) in_flight: u64,
    pub(super) requests_per_second: Option<f64>,
    pub(super) responses: Option<ResponseRates>,
    pub(super) failures_per_second: Option<f64>,
    pub(super) connects_per_second: Option<f64>,
    pub(super) last_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkerRow {
    pub(super) id: u32,
    pub(super) cpu: Option<u32>,
    /// Share of one core, 1.0 for all of it.
    pub(super) cpu_share: Option<f64>,
    pub(super) connections: u64,
    pub(super) driver: String,
    pub(super) turns_per_second: Option<f64>,
    pub(super) is_stalled: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RefusalRow {
    pub(super) listener: String,
    /// `request` if shed, `connection` if not admitted.
    pub(super) what: &'static str,
    pub(super) reason: String,
    pub(super) per_second: Option<f64>,
    pub(super) total: u64,
}

impl View {
    /// The rows for these samples.
    pub(super) fn of(current: &Sample, previous: Option<&Sample>, sort: Sort) -> Self {
        let window = previous.map(|previous| Window {
            seconds: current.at.saturating_duration_since(previous.at).as_secs_f64(),
            previous,
        });
        let window = window.filter(|window| window.seconds > 0.0);
        let window = window.as_ref();
        let mut listeners: Vec<ListenerRow> =
            current.listeners.iter().map(|listener| listener_row(listener, current, window)).collect();
        listeners.sort_by(|a, b| compare(a, b, sort));
        let workers: Vec<WorkerRow> = current.workers.iter().map(|worker| worker_row(worker, window)).collect();
        let upstreams =
            current.upstreams.iter().flat_map(|upstream| upstream_rows(upstream, current, window)).collect();
        Self {
            totals: totals(current, &listeners, &workers),
            alerts: alerts(current),
            listeners,
            routes: current.routes.iter().filter_map(|route| route_row(route, window)).collect(),
            upstreams,
            workers,
            refusals: refusals(current, window),
            window_seconds: window.map(|window| window.seconds),
        }
    }
}

/// The sample before, and how long ago that was.
struct Window<'a> {
    previous: &'a Sample,
    seconds: f64,
}

impl Window<'_> {
    /// Growth per second of a counter. One that was not there before has grown from zero.
    fn rate(&self, now: u64, before: Option<u64>) -> f64 {
        now.saturating_sub(before.unwrap_or(0)) as f64 / self.seconds
    }

    /// Responses per second. An endpoint that had none has no counts before.
    fn responses(&self, now: Option<ResponseClasses>, before: Option<ResponseClasses>) -> Option<ResponseRates> {
        now.map(|now| ResponseRates::between(before.unwrap_or_default(), now, self.seconds))
    }

    fn listener(&self, name: &str) -> Option<&ListenerStatus> {
        self.previous.listeners.iter().find(|listener| listener.name == name)
    }
}

/// Quantiles of a histogram over the window, or since the start if there is no window or no histogram.
fn times(
    (family, key): (&'static str, &str),
    shares: &[f64],
    lifetime: &Quantiles,
    current: &Sample,
    window: Option<&Window<'_>>,
) -> Vec<Time> {
    let grown = window.and_then(|window| {
        let now = current.metrics.histogram(family, key)?;
        match window.previous.metrics.histogram(family, key) {
            Some(before) => now.since(before),
            None => Some(now.clone()),
        }
    });
    if let Some(grown) = grown {
        return shares.iter().map(|share| grown.quantile(*share).map_or(Time::None, Time::Window)).collect();
    }
    shares
        .iter()
        .map(|share| {
            let value = match share {
                0.5 => lifetime.p50,
                0.99 => lifetime.p99,
                _ => lifetime.p999,
            };
            value.map_or(Time::None, Time::Lifetime)
        })
        .collect()
}

fn listener_row(listener: &ListenerStatus, current: &Sample, window: Option<&Window<'_>>) -> ListenerRow {
    let before = window.and_then(|window| window.listener(&listener.name));
    let rate = |value: fn(&ListenerStatus) -> u64| window.map(|window| window.rate(value(listener), before.map(value)));
    let responses = window.and_then(|window| {
        window.responses(listener.responses_total, before.and_then(|before| before.responses_total))
    });
    let key = listener.name.as_str();
    let request = times((REQUEST_TIME, key), &[0.5, 0.99, 0.999], &listener.request_seconds, current, window);
    let overhead = times((OVERHEAD_TIME, key), &[0.99], &listener.overhead_seconds, current, window);
    ListenerRow {
        name: listener.name.clone(),
        protocol: listener.protocol.clone(),
        bind: listener.bind.clone(),
        state: listener.state,
        connections: listener.connections_open,
        in_flight: listener.requests_in_flight,
        accepts_per_second: rate(|listener| listener.accepted_total),
        requests_per_second: rate(|listener| listener.requests_total),
        is_http: listener.responses_total.is_some(),
        responses,
        fails: listener.errors.is_some_and(|errors| {
            errors.warned || responses.is_some_and(|responses| responses.fail_from(errors.warn_ratio))
        }),
        shed_per_second: rate(|listener| listener.shed_total.values().sum()),
        received_per_second: rate(|listener| listener.received_bytes_total),
        sent_per_second: rate(|listener| listener.sent_bytes_total),
        p50: request[0],
        p99: request[1],
        p999: request[2],
        overhead_p99: overhead[0],
        knee: listener.knee.as_ref().map(|knee| KneeLoad {
            share: knee.load_ratio,
            is_warned: knee.warned,
            is_reached: knee.reached,
        }),
        certificate: listener.certificates.iter().map(|one| (one.days_left, one.state)).min(),
    }
}

/// A route that is counted by itself, or needs to be seen for another reason.
fn route_row(route: &RouteStatus, window: Option<&Window<'_>>) -> Option<RouteRow> {
    if route.responses_total.is_none() && route.validity == Validity::Valid {
        return None;
    }
    let responses = window.and_then(|window| {
        let before = window.previous.routes.iter().find(|before| before.name == route.name);
        window.responses(route.responses_total, before.and_then(|before| before.responses_total))
    });
    Some(RouteRow {
        name: route.name.clone(),
        listeners: route.listeners.join(" "),
        validity: route.validity,
        is_online: route.online,
        requests_per_second: responses.map(ResponseRates::all),
        responses,
    })
}

fn upstream_rows<'a>(
    upstream: &'a UpstreamStatus,
    current: &Sample,
    window: Option<&'a Window<'a>>,
) -> impl Iterator<Item = EndpointRow> + use<'a> {
    let key = upstream.name.as_str();
    let wait_p99 = times((ACQUIRE_WAIT, key), &[0.99], &upstream.acquire_wait_seconds, current, window)[0];
    upstream.endpoints.iter().map(move |endpoint| {
        let before = window.and_then(|window| {
            let upstreams = &window.previous.upstreams;
            let upstream = upstreams.iter().find(|before| before.name == upstream.name)?;
            upstream.endpoints.iter().find(|before| before.address == endpoint.address)
        });
        let rate =
            |value: fn(&EndpointStatus) -> u64| window.map(|window| window.rate(value(endpoint), before.map(value)));
        EndpointRow {
            upstream: upstream.name.clone(),
            address: endpoint.address.clone(),
            health: endpoint.health,
            breaker: endpoint.breaker,
            lanes_shared: endpoint.lanes_shared,
            lanes_pinned: endpoint.lanes_pinned,
            waiters: endpoint.waiters,
            wait_p99,
            in_flight: endpoint.requests_in_flight,
            requests_per_second: rate(|endpoint| endpoint.requests_total),
            responses: window.and_then(|window| {
                window.responses(endpoint.responses_total, before.and_then(|before| before.responses_total))
            }),
            failures_per_second: rate(|endpoint| endpoint.failures_total),
            connects_per_second: rate(|endpoint| endpoint.connects_total),
            last_error: endpoint.last_error.clone(),
        }
    })
}

fn worker_row(worker: &WorkerStatus, window: Option<&Window<'_>>) -> WorkerRow {
    let before = window.and_then(|window| {
        let workers = &window.previous.workers;
        Some((window, workers.iter().find(|before| before.id == worker.id)?))
    });
    WorkerRow {
        id: worker.id,
        cpu: worker.cpu,
        cpu_share: before.map(|(window, before)| (worker.cpu_seconds - before.cpu_seconds).max(0.0) / window.seconds),
        connections: worker.connections,
        driver: worker.driver.clone(),
        turns_per_second: before.map(|(window, before)| window.rate(worker.turns, Some(before.turns))),
        is_stalled: worker.stalled,
    }
}

/// Sheds and refused connections by listener and reason, the fastest first.
fn refusals(current: &Sample, window: Option<&Window<'_>>) -> Vec<RefusalRow> {
    let mut rows = Vec::new();
    for listener in &current.listeners {
        let before = window.and_then(|window| window.listener(&listener.name));
        let kinds = [
            ("request", &listener.shed_total, before.map(|before| &before.shed_total)),
            ("connection", &listener.refused_total, before.map(|before| &before.refused_total)),
        ];
        for (what, totals, before) in kinds {
            rows.extend(totals.iter().filter(|(_, total)| **total > 0).map(|(reason, total)| RefusalRow {
                listener: listener.name.clone(),
                what,
                reason: reason.clone(),
                per_second:
                    window.map(|window| window.rate(*total, before.and_then(|before| before.get(reason)).copied())),
                total: *total,
            }));
        }
    }
    rows.sort_by(|a, b| {
        let rates = number(b.per_second).total_cmp(&number(a.per_second));
        rates.then(b.total.cmp(&a.total)).then_with(|| a.listener.cmp(&b.listener))
    });
    rows
}

fn totals(current: &Sample, listeners: &[ListenerRow], workers: &[WorkerRow]) -> Totals {
    let sum = |rate: fn(&ListenerRow) -> Option<f64>| listeners.iter().map(rate).sum::<Option<f64>>();
    Totals {
        connections: listeners.iter().map(|row| row.connections).sum(),
        in_flight: listeners.iter().map(|row| row.in_flight).sum(),
        requests_per_second: sum(|row| row.requests_per_second),
        shed_per_second: sum(|row| row.shed_per_second),
        worker_cpu: workers.iter().map(|row| row.cpu_share).sum(),
        resident_bytes: current.metrics.value(RESIDENT_BYTES),
        open_fds: current.metrics.value(OPEN_FDS),
        max_fds: current.metrics.value(MAX_FDS),
    }
}

/// The alerts for an operator, the most urgent first.
fn alerts(current: &Sample) -> Vec<String> {
    let mut alerts = Vec::new();
    for worker in current.workers.iter().filter(|worker| worker.stalled) {
        alerts.push(format!("worker {} is stalled", worker.id));
    }
    for check in &current.readiness.checks {
        if check.status == Verdict::Fail {
            let detail = check.detail.as_deref().unwrap_or("no detail");
            alerts.push(format!("not ready: {}: {detail}", check.name));
        }
    }
    for listener in &current.listeners {
        let Some(knee) = listener.knee.as_ref().filter(|knee| knee.warned || knee.reached) else { continue };
        let Some(share) = knee.load_ratio else { continue };
        let (offered, most) =
            (format::count(share * knee.requests_per_second), format::count(knee.requests_per_second));
        alerts.push(format!("{} at {:.0} % of its knee: {offered} of {most} req/s", listener.name, share * 100.0));
    }
    for listener in &current.listeners {
        let Some(errors) = listener.errors.filter(|errors| errors.warned) else { continue };
        let share = errors.ratio.map_or_else(|| "many".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
        alerts.push(format!("{}: {share} of the responses are errors (5xx or broken off)", listener.name));
    }
    for listener in &current.listeners {
        let ending = listener.certificates.iter().filter(|one| one.state != CertificateState::Valid);
        alerts.extend(ending.map(|one| match one.state {
            CertificateState::Expired => format!("{}: the certificate {} has expired", listener.name, one.name),
            _ => format!("{}: the certificate {} expires in {} days", listener.name, one.name, one.days_left),
        }));
    }
    for upstream in &current.upstreams {
        for endpoint in &upstream.endpoints {
            let what = match (endpoint.health, endpoint.breaker) {
                (Health::Unhealthy, _) => "unhealthy",
                (_, Breaker::Open) => "breaker open",
                _ => continue,
            };
            let (name, address) = (&upstream.name, &endpoint.address);
            let cause = endpoint.last_error.as_deref().unwrap_or("no error recorded");
            alerts.push(format!("{name} {address} {what}: {cause}"));
        }
    }
    alerts
}

fn compare(a: &ListenerRow, b: &ListenerRow, sort: Sort) -> Ordering {
    let order = match sort.key {
        SortKey::Name => Ordering::Equal,
        SortKey::Connections => b.connections.cmp(&a.connections),
        SortKey::Requests => number(b.requests_per_second).total_cmp(&number(a.requests_per_second)),
        SortKey::P99 => b.p99.value().total_cmp(&a.p99.value()),
        SortKey::InFlight => b.in_flight.cmp(&a.in_flight),
        SortKey::Shed => number(b.shed_per_second).total_cmp(&number(a.shed_per_second)),
    };
    let order = order.then_with(|| a.name.cmp(&b.name));
    if sort.is_reversed { order.reverse() } else { order }
}

/// For ordering: what is not known comes last.
fn number(value: Option<f64>) -> f64 {
    value.unwrap_or(-1.0)
}

impl Time {
    fn value(self) -> f64 {
        match self {
            Self::None => -1.0,
            Self::Window(value) | Self::Lifetime(value) => value,
        }
    }
}
