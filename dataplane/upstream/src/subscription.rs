//! Subscription lanes: connections on which a server speaks unprompted, to all clients of a worker.
//!
//! The protocol keeps the subscriptions; here such a lane is made, counted and lost like any other.

use std::rc::Rc;

use weir_base::{
    exchange::{LossCause, Refusal},
    violation::Violation,
};
use weir_engine::{Chunk, Cutter, Output, Stream, Traffic as _};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    metrics::{EndpointMetrics, LaneKind},
    protocol::{LaneProtocol, Waiter},
    upstream::Upstream,
};

/// One upstream connection for subscriptions.
pub struct SubscriptionLane {
    stream: Stream,
    metrics: Rc<EndpointMetrics>,
    _open: GaugeGuard,
}

/// The side of a subscription lane on which commands go.
#[derive(Clone)]
pub struct SubscriptionSender {
    output: Output,
    cutter: Cutter,
    metrics: Rc<EndpointMetrics>,
}

impl SubscriptionSender {
    /// Sends commands.
    pub fn send(&self, bytes: &[u8]) {
        self.metrics.sent(bytes.len());
        self.output.append(bytes);
    }

    /// The server does not take what it is sent.
    pub fn is_congested(&self) -> bool {
        self.output.is_congested()
    }

    /// Ends the connection.
    pub fn cut(&self) {
        self.cutter.cut();
    }
}

impl SubscriptionLane {
    /// Its other side.
    pub fn sender(&self) -> SubscriptionSender {
        let (output, cutter) = (self.stream.output.clone(), self.stream.cutter());
        SubscriptionSender { output, cutter, metrics: self.metrics.clone() }
    }

    /// Receives the next bytes of the server; `None` once the connection has ended.
    pub async fn receive(&mut self) -> Option<Chunk> {
        let chunk = self.stream.reader.receive().await.ok().flatten()?;
        self.metrics.received(chunk.len());
        Some(chunk)
    }

    /// Counts a violation of the protocol by the server.
    pub fn violated(&self, violation: &Violation) {
        self.metrics.violation(violation);
    }
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Makes a subscription lane.
    ///
    /// # Errors
    /// No connection could be made just now.
    pub async fn subscription_lane(&self, key: P::Key) -> Result<SubscriptionLane, Refusal> {
        self.listening_lane(key, LaneKind::Subscription).await
    }

    /// Makes a lane of the same kind for tracking: on it a server tells which keys change.
    ///
    /// # Errors
    /// No connection could be made just now.
    pub async fn tracking_lane(&self, key: P::Key) -> Result<SubscriptionLane, Refusal> {
        self.listening_lane(key, LaneKind::Tracking).await
    }

    async fn listening_lane(&self, key: P::Key, kind: LaneKind) -> Result<SubscriptionLane, Refusal> {
        self.may_connect(key)?;
        let (stream, _) = self.open(key, kind).await.map_err(|error| error.refusal)?;
        let metrics = self.metrics(key);
        let open = metrics.lane_opened(kind);
        Ok(SubscriptionLane { stream, metrics, _open: open })
    }

    /// Tracking was without a server for a moment: every client that tracks must drop its cache.
    pub fn count_tracking_gap(&self, key: P::Key) {
        self.metrics(key).tracking_gap();
    }

    /// So many more keys, counted for each client that has read them, are remembered by this worker.
    pub fn add_tracked_keys(&self, keys: i64) {
        self.count_tracked_keys(keys);
    }

    /// A subscription or tracking lane has ended.
    pub fn subscription_lane_lost(&self, key: P::Key, cause: LossCause) {
        self.lane_lost(key, cause, 0);
    }

    /// The pause before attempt number `attempt` to connect again.
    pub fn pause(&self, attempt: u32) -> std::time::Duration {
        self.backoff(attempt)
    }

    /// Subscriptions were without a server for a moment: messages may be lost.
    pub fn count_subscription_gap(&self, key: P::Key, names: usize) {
        self.metrics(key).subscription_gap(names);
    }

    /// So many more channels and patterns are subscribed at the endpoint of `key`.
    pub fn add_subscriptions(&self, key: P::Key, names: i64) {
        self.metrics(key).subscriptions(names);
    }
}
