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
use weir_engine::{Stream, settings::Address};

use crate::{
    breaker::{Breaker, BreakerState},
    choice::Reach,
    connect::{ConnectError, Connector},
    health::Health,
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    protocol::LaneProtocol,
    settings::UpstreamSettings,
};

/// Lanes lost within this time of each other are one failure of the server.
pub(crate) const LOSSES_AT_ONCE: Duration = Duration::from_millis(100);

/// One server on one worker.
pub(crate) struct Endpoint {
    connector: Connector,
    health: Arc<Health>,
    breaker: RefCell<Breaker>,
    /// When a lost lane was last counted as a failure.
    lost_at: Cell<Option<Time>>,
    /// When a connection could not be made last.
    refused_at: Cell<Time>,
    /// That connection timed out.
    is_silent: Cell<bool>,
    /// Since when connections can be made again, if its breaker was open before.
    back_since: Cell<Option<Time>>,
    /// Somebody looks whether it is back.
    pub(crate) is_tried: Cell<bool>,
    metrics: Rc<EndpointMetrics>,
    /// It is configured, or was in the cluster when that was asked last. Others may be anybody by now.
    pub(crate) is_member: Cell<bool>,
    /// It stands in the zone of this gateway, by its own words.
    pub(crate) is_near: Cell<bool>,
    /// When it is asked for its zone again.
    pub(crate) zone_due: Cell<Time>,
}

impl Endpoint {
    pub(crate) fn new(
        address: &Address,
        settings: &UpstreamSettings,
        health: Arc<Health>,
        metrics: &UpstreamMetrics,
    ) -> io::Result<Self> {
        Ok(Self {
            connector: Connector::new(address.clone(), settings)?,
            health,
            breaker: RefCell::new(Breaker::new(settings.breaker.clone())),
            lost_at: Cell::new(None),
            refused_at: Cell::default(),
            is_silent: Cell::new(false),
            back_since: Cell::new(None),
            is_tried: Cell::new(false),
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
        &self.health
    }

    pub(crate) fn metrics(&self) -> &Rc<EndpointMetrics> {
        &self.metrics
    }

    /// The state of the breaker now.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.borrow().state(turn::now())
    }

    /// Whether an exchange may try to connect. `is_tried`: one tries now. A good health check since the last failure is reason
    /// enough for a trial before the pause is over.
    pub(crate) fn reach(&self, is_tried: bool) -> Reach {
        match self.breaker_state() {
            BreakerState::Closed => Reach::Yes,
            BreakerState::HalfOpen if !is_tried => Reach::Trial,
            BreakerState::Open if !is_tried && self.health.was_good_after(self.refused_at.get()) => Reach::Trial,
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
        self.health.up_since().max(self.back_since.get())
    }

    pub(crate) fn publish_breaker(&self) {
        self.metrics.breaker(self.breaker_state());
    }

    pub(crate) async fn open<P: LaneProtocol>(
        &self,
        protocol: &P,
        key: P::Key,
        kind: LaneKind,
    ) -> Result<(Stream, P::Greeting), ConnectError> {
        let begun = turn::now();
        let opened = self.connector.open(protocol, key).await;
        self.note_opened(kind, begun, opened.as_ref().err(), !P::has_own_greeting(key));
        opened
    }

    /// As [`Endpoint::open`], for a protocol in which the gateway says nothing first.
    pub(crate) async fn connect(&self, kind: LaneKind) -> Result<Stream, ConnectError> {
        let begun = turn::now();
        let opened = self.connector.connect().await;
        self.note_opened(kind, begun, opened.as_ref().err(), true);
        opened
    }

    /// As [`Endpoint::connect`], and then what `begin` makes of the stream, within the same time again.
    pub(crate) async fn connect_and<T>(
        &self,
        kind: LaneKind,
        begin: impl AsyncFnOnce(Stream) -> io::Result<T>,
    ) -> Result<T, ConnectError> {
        let begun = turn::now();
        let opened = self.connector.connect_and(begin).await;
        self.note_opened(kind, begun, opened.as_ref().err(), true);
        opened
    }

    fn note_opened(&self, kind: LaneKind, begun: Time, error: Option<&ConnectError>, is_greeting_ours: bool) {
        match error {
            None => {
                if self.breaker_state() != BreakerState::Closed {
                    self.back_since.set(Some(turn::now()));
                }
                self.breaker.borrow_mut().succeeded();
                self.is_silent.set(false);
                self.metrics.connected(kind, turn::now().since(begun));
            }
            Some(error) => {
                self.metrics.connect_failed(error.reason, &error.text);
                self.refused_at.set(turn::now());
                self.is_silent.set(error.is_timeout());
                if error.refusal != Refusal::Greeting || is_greeting_ours {
                    self.note_failure();
                }
            }
        }
    }

    /// Looks whether it is back: one connection decides whether the breaker closes or opens again.
    pub(crate) async fn try_again<P: LaneProtocol>(&self, protocol: &P, key: P::Key) {
        match self.connector.open(protocol, key).await {
            Ok(_) => self.breaker.borrow_mut().succeeded(),
            Err(error) => {
                self.metrics.connect_failed(error.reason, &error.text);
                self.note_failure();
            }
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
