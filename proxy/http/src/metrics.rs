//! The cells that one listener writes on one worker.

use std::{cell::RefCell, rc::Rc};

use weir_base::violation::Violation;
use weir_listener::{CoreShare, Durations};
use weir_telemetry::{CoreMetrics, Counter, Gauge, Histogram, catalog, cells::GaugeGuard};
use weir_websocket_codec::Sender;

use crate::response_class::{ByClass, ResponseClass};

/// Methods that have a label of their own; everything else is `other`.
const METHODS: [&str; 7] = ["get", "head", "post", "put", "delete", "patch", "options"];

/// Cells of one listener on one worker.
pub(crate) struct ListenerMetrics {
    core: CoreMetrics,
    listener: String,
    pub(crate) in_flight: Gauge,
    requests: [Counter; METHODS.len() + 1],
    responses: ByClass,
    /// The same by status, as they are met.
    statuses: ByNumber,
    /// The same of gRPC.
    calls: ByNumber,
    pub(crate) durations: Durations,
    tunnels: Gauge,
    /// Frames of clients and of origins.
    frames: [Counter; 2],
}

/// Number of statuses of gRPC: 0 to 16.
const GRPC_STATUSES: u8 = 17;

/// Counters by a number, made as it is met.
#[derive(Default)]
struct ByNumber(RefCell<Vec<(u16, Counter)>>);

impl ByNumber {
    fn inc(&self, number: u16, make: impl FnOnce(&str) -> Counter) {
        let mut known = self.0.borrow_mut();
        match known.iter().find(|(known, _)| *known == number) {
            Some((_, cell)) => cell.inc(),
            None => {
                let cell = make(itoa::Buffer::new().format(number));
                cell.inc();
                known.push((number, cell));
            }
        }
    }
}

impl ListenerMetrics {
    pub(crate) fn new(share: &CoreShare, listener: &str) -> Self {
        let core = &share.metrics;
        let of_method = |method| core.counter(&catalog::REQUESTS_TOTAL, &[listener, method]);
        let [get, head, post, put, delete, patch, options] = METHODS.map(of_method);
        Self {
            in_flight: core.gauge(&catalog::REQUESTS_IN_FLIGHT, &[listener]),
            requests: [get, head, post, put, delete, patch, options, of_method("other")],
            responses: ByClass::new(|class| core.counter(&catalog::HTTP_LISTENER_RESPONSES, &[listener, class])),
            statuses: ByNumber::default(),
            calls: ByNumber::default(),
            tunnels: core.gauge(&catalog::HTTP_TUNNELS_OPEN, &[listener]),
            frames: ["client", "origin"].map(|end| core.counter(&catalog::WEBSOCKET_FRAMES, &[listener, end])),
            durations: Durations::new(share, listener),
            core: core.clone(),
            listener: listener.to_owned(),
        }
    }

    /// A request came in.
    #[inline]
    pub(crate) fn requested(&self, method: &[u8]) {
        let known = METHODS.iter().position(|known| method.eq_ignore_ascii_case(known.as_bytes()));
        self.requests[known.unwrap_or(METHODS.len())].inc();
    }

    /// A response with `status` is over, 0 for one that did not come to its end.
    #[inline]
    pub(crate) fn responded(&self, status: u16, class: ResponseClass) {
        self.responses.inc(class);
        self.statuses.inc(status, |code| self.core.counter(&catalog::HTTP_RESPONSES, &[&self.listener, code]));
    }

    /// A gRPC call ended with this status.
    pub(crate) fn called(&self, status: u8) {
        let status = u16::from(status.min(GRPC_STATUSES));
        self.calls.inc(status, |code| {
            let label = if status < u16::from(GRPC_STATUSES) { code } else { "other" };
            self.core.counter(&catalog::GRPC_RESPONSES, &[&self.listener, label])
        });
    }

    /// A tunnel, until the result is dropped.
    pub(crate) fn tunnel(&self) -> GaugeGuard {
        self.tunnels.guard()
    }

    pub(crate) fn tunnel_frames(&self, sender: Sender, count: u32) {
        self.frames[usize::from(sender == Sender::Server)].add(u64::from(count));
    }

    pub(crate) fn tunnel_closed(&self, reason: &str) {
        self.core.counter(&catalog::HTTP_TUNNELS_CLOSED, &[&self.listener, reason]).inc();
    }

    /// The outcome of a copy of a request.
    pub(crate) fn mirrored(&self, outcome: &str) {
        self.core.counter(&catalog::HTTP_MIRRORED, &[&self.listener, outcome]).inc();
    }

    /// Keys of tokens were fetched.
    pub(crate) fn keys_fetched(&self, outcome: &str) {
        self.core.counter(&catalog::HTTP_JWKS_FETCHES, &[&self.listener, outcome]).inc();
    }

    /// Counts an injected fault.
    pub(crate) fn fault(&self, kind: &str) {
        self.core.counter(&catalog::HTTP_FAULTS, &[&self.listener, kind]).inc();
    }

    /// A deadline ended an exchange.
    pub(crate) fn timed_out(&self, reason: &'static str) {
        self.core.counter(&catalog::HTTP_TIMEOUTS, &[&self.listener, reason]).inc();
    }

    pub(crate) fn shed(&self, reason: &'static str) {
        self.core.counter(&catalog::SHED, &[&self.listener, reason]).inc();
    }

    /// Counts a refusal of a policy.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.core.counter(&catalog::HTTP_DENIED, &[&self.listener, reason]).inc();
        let is_login = ["basic_", "api_key_", "jwt_"].iter().any(|kind| reason.starts_with(kind));
        // A request without credentials is no failed login: a browser sends one before it prompts its user.
        if is_login && !reason.ends_with("_missing") && !matches!(reason, "basic_busy" | "jwt_keys_unavailable") {
            self.core.counter(&catalog::AUTH_FAILURES, &[&self.listener]).inc();
        }
    }

    pub(crate) fn violation(&self, violation: &Violation) {
        let labels = [&*self.listener, violation.reason, violation.culprit.as_str()];
        self.core.counter(&catalog::VIOLATIONS, &labels).inc();
    }
}

/// Routes that have labels of their own; further ones of a listener are counted as `other`. Default 256: seven counters and a
/// histogram each, about 8 KiB of cells per worker.
pub const ROUTE_LABELS_MAX: usize = 256;

/// Cells of one route of a listener on one worker.
pub(crate) struct RouteMetrics {
    responses: ByClass,
    request: Histogram,
}

impl RouteMetrics {
    fn new(core: &CoreMetrics, listener: &str, route: &str) -> Rc<Self> {
        let class = |class| core.counter(&catalog::HTTP_ROUTE_RESPONSES, &[listener, route, class]);
        let responses = ByClass::new(class);
        let request = core.histogram(&catalog::HTTP_ROUTE_DURATION, &[listener, route]);
        Rc::new(Self { responses, request })
    }

    /// The cells of these routes, in their order. None for a listener without routes of its own: its requests are those of the
    /// listener.
    pub(crate) fn all(core: &CoreMetrics, listener: &str, names: &[Box<str>]) -> Vec<Rc<Self>> {
        if names.len() < 2 {
            return Vec::new();
        }
        let own = names.iter().take(ROUTE_LABELS_MAX).map(|name| Self::new(core, listener, name));
        let mut all: Vec<_> = own.collect();
        if names.len() > ROUTE_LABELS_MAX {
            let other = Self::new(core, listener, "other");
            all.resize(names.len(), other);
        }
        all
    }

    /// `nanos`: the duration of the request; `None`: it got no response.
    #[inline]
    pub(crate) fn responded(&self, class: ResponseClass, nanos: Option<u64>) {
        self.responses.inc(class);
        if let Some(nanos) = nanos {
            self.request.record(nanos);
        }
    }
}
