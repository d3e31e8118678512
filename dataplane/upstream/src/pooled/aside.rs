//! A connection that is logged in as those of a pool, and is in none: no limit of a pool counts it. On it a server speaks to all clients.

use std::{rc::Rc, sync::Arc, time::Duration};

use weir_base::exchange::LossCause;
use weir_engine::Stream;
use weir_telemetry::cells::GaugeGuard;

use super::{AcquireError, LoginTarget, PooledProtocol, PooledUpstream};
use crate::{
    endpoint::Endpoint,
    endpoints::SelectionCriteria,
    metrics::{EndpointMetrics, LaneKind},
};

/// See above. One that is dropped is closed, as by the server.
pub struct AsideConnection<P: PooledProtocol> {
    /// Its bytes.
    pub stream: Stream,
    /// The protocol's state of it.
    pub state: P::State,
    /// The number of its endpoint.
    pub number: usize,
    metrics: Rc<EndpointMetrics>,
    _open: GaugeGuard,
}

impl<P: PooledProtocol> AsideConnection<P> {
    /// Closes it. `Retired`: as agreed, which is no fault.
    pub fn close(self, cause: LossCause) {
        self.metrics.lane_closed(cause);
        if cause == LossCause::Retired && !self.stream.output.is_closed() {
            self.stream.output.append(P::FAREWELL);
            weir_engine::spawn(self.stream.close(FAREWELL_TIMEOUT)).detach();
        }
    }

    /// Messages of a moment are lost, of so many channels.
    pub fn count_gap(&self, channels: usize) {
        self.metrics.listen_gap(channels);
    }
}

impl<P: PooledProtocol> PooledUpstream<P> {
    /// Makes such a connection, to an endpoint as the pool of `key` would choose it.
    ///
    /// # Errors
    /// No endpoint takes connections, can be reached, or accepts the login.
    pub async fn log_in_aside(&self, key: &P::Key) -> Result<AsideConnection<P>, AcquireError> {
        let chosen = self.pool(key).choose(&SelectionCriteria::default());
        let number = chosen.map_err(|refusal| AcquireError { refusal, endpoint: None, words: None })?;
        let endpoint: Rc<Endpoint> = self.context.endpoints.get(number).clone();
        let target = LoginTarget { endpoint: endpoint.clone(), number };
        let login = async |stream: &mut Stream| self.context.protocol.login(stream, &target, key).await;
        match endpoint.log_in(LaneKind::Subscription, P::NEGOTIATES_TLS, login).await {
            Ok((stream, state)) => {
                let metrics = endpoint.metrics().clone();
                stream.count_into(metrics.clone());
                let _open = metrics.lane_opened(LaneKind::Subscription);
                Ok(AsideConnection { stream, state, number, metrics, _open })
            }
            Err((error, words)) => {
                let words: Option<Arc<[u8]>> = words.map(Into::into);
                Err(AcquireError { refusal: error.refusal, endpoint: Some(number), words })
            }
        }
    }

    /// The pause before attempt number `attempt` to make one again.
    pub fn pause_aside(&self, attempt: u32) -> Duration {
        let reconnect = &self.settings().reconnect;
        self.context.rng.borrow_mut().backoff(attempt, reconnect.base, reconnect.max)
    }
}

/// A connection of [`PooledUpstream::connect_aside`] that one client keeps: it is counted until this is dropped.
pub struct OwnConnection {
    metrics: Rc<EndpointMetrics>,
    /// The cause of its end.
    cause: LossCause,
    _open: GaugeGuard,
}

impl OwnConnection {
    /// It ends by this, and not because its client leaves.
    pub fn ends_by(&mut self, cause: LossCause) {
        self.cause = cause;
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        self.metrics.lane_closed(self.cause);
    }
}

impl<P: PooledProtocol> PooledUpstream<P> {
    /// Counts a connection to endpoint number `number` that one client keeps, and its bytes. `took`: the time until it was ready.
    pub fn count_own(&self, number: usize, stream: &Stream, took: Duration) -> OwnConnection {
        let metrics = self.context.endpoints.get(number).metrics().clone();
        stream.count_into(metrics.clone());
        metrics.connected(LaneKind::Pinned, took);
        let _open = metrics.lane_opened(LaneKind::Pinned);
        OwnConnection { metrics, cause: LossCause::Retired, _open }
    }
}

/// How long a connection that closes may take to send its last bytes.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
