//! A lane as an exchange has it.

use std::rc::{Rc, Weak};

use weir_base::time::{Time, turn};
use weir_engine::{Account, Stream};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    carrier::{Carrier, CarrierEntry, Multiplexer, NoMultiplexer},
    exclusive::ExclusiveUpstream,
    idle::Remains,
    metrics::EndpointMetrics,
    room::Permit,
};
use weir_base::exchange::LossCause;

/// A connection that is counted as open.
pub(crate) struct Open {
    since: Time,
    _counted: GaugeGuard,
    _permit: Permit<()>,
}

impl Open {
    /// From now on.
    pub(crate) fn new(counted: GaugeGuard, permit: Permit<()>) -> Self {
        Self { since: turn::now(), _counted: counted, _permit: permit }
    }

    /// When it was made.
    pub(crate) fn since(&self) -> Time {
        self.since
    }
}

/// The leased connection, or share of one.
pub(crate) enum LeasedConnection<C: Carrier> {
    /// A whole connection.
    Connection(Stream, Open),
    /// A share of one.
    Shared(Rc<CarrierEntry<C>>),
}

/// The connection of an exchange.
pub enum Link<'a, C> {
    /// A connection of its own.
    Connection(&'a mut Stream),
    /// One that it shares.
    Carrier(&'a C),
}

/// A lane, lent to one exchange. A connection that is not given back is closed.
pub struct ExclusiveLane<M: Multiplexer> {
    /// `None` once it has ended.
    held: Option<LeasedConnection<M::Carrier>>,
    number: usize,
    is_reused: bool,
    cause: LossCause,
    /// The server responded, or did not in time; `None`: it was not waited for.
    responded: Option<bool>,
    metrics: Rc<EndpointMetrics>,
    upstream: Weak<ExclusiveUpstream<M>>,
}

impl<M: Multiplexer> ExclusiveLane<M> {
    pub(crate) fn new(
        held: LeasedConnection<M::Carrier>,
        number: usize,
        is_reused: bool,
        metrics: Rc<EndpointMetrics>,
        upstream: Weak<ExclusiveUpstream<M>>,
    ) -> Self {
        Self { held: Some(held), number, is_reused, cause: LossCause::Closed, responded: None, metrics, upstream }
    }

    /// The connection of the exchange.
    pub fn link(&mut self) -> Link<'_, M::Carrier> {
        // It is taken by `end` only, which ends the lane.
        match self.held.as_mut().expect("a lane has its connection until it ends") {
            LeasedConnection::Connection(stream, _) => Link::Connection(stream),
            LeasedConnection::Shared(carriage) => Link::Carrier(&carriage.carrier),
        }
    }

    /// Charges the bytes that wait on a connection of its own to `account`, until the exchange is over.
    pub fn charge_to(&self, account: Rc<dyn Account>) {
        if let Some(LeasedConnection::Connection(stream, _)) = &self.held {
            stream.output.charge_to(Some(account));
        }
    }

    /// Position of the endpoint in the settings.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Since when its connection stands.
    pub fn open_since(&self) -> Time {
        match &self.held {
            Some(LeasedConnection::Connection(_, open)) => open.since(),
            Some(LeasedConnection::Shared(carriage)) => carriage.open_since(),
            None => turn::now(),
        }
    }

    /// Its connection has served an exchange before: the server may have closed it meanwhile.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// The exchange failed for a fault of the server, which is counted.
    pub fn failed(&mut self, cause: LossCause) {
        self.cause = cause;
        self.responded = Some(cause != LossCause::Timeout);
        self.metrics.request_failed(cause.name());
    }

    /// The server has responded.
    pub fn responded(&mut self) {
        self.responded = Some(true);
    }

    /// The exchange gave up on the server, which has long been silent.
    pub fn did_not_respond(&mut self) {
        self.responded = Some(false);
    }

    /// The connection ends after this exchange as agreed: that is no fault.
    pub fn ends(&mut self) {
        self.cause = LossCause::Retired;
    }

    /// The exchange is over, and so much of it is left on the connection: another may have it, if that is nothing.
    pub fn give_back(mut self, remains: Remains) {
        self.responded();
        self.end(Some(remains));
    }

    fn end(&mut self, remains: Option<Remains>) {
        let Some(held) = self.held.take() else { return };
        if let LeasedConnection::Connection(stream, _) = &held {
            stream.output.charge_to(None);
        }
        match self.upstream.upgrade() {
            Some(upstream) => upstream.returned(self.number, held, remains, self.cause, self.responded),
            None => self.metrics.requests_over(1),
        }
    }
}

impl ExclusiveLane<NoMultiplexer> {
    /// The connection that carries the exchange.
    pub fn stream(&mut self) -> &mut Stream {
        match self.link() {
            Link::Connection(stream) => stream,
            Link::Carrier(none) => match *none {},
        }
    }
}

impl<M: Multiplexer> Drop for ExclusiveLane<M> {
    fn drop(&mut self) {
        self.end(None);
    }
}
