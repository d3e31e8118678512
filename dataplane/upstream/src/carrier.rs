//! Connections that carry several exchanges at once: HTTP/2.

use std::{cell::Cell, future::Future, io, rc::Rc, task::Waker};

use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
};
use weir_engine::Stream;

use crate::{endpoint::Endpoint, exclusive_lane::Open};

/// A connection that carries several exchanges at once. Dropped, it ends once nothing is under way on it.
pub trait Carrier: 'static {
    /// Exchanges that it takes at once, as both ends have agreed by now; 0: none just now. `None`: none any more.
    fn exchanges_max(&self) -> Option<u32>;

    /// Wakes `waker` once [`Carrier::exchanges_max`] is another number than now. A later call replaces an earlier one.
    fn watch(&self, waker: &Waker);

    /// Ends now: exchanges on it fail.
    fn cut(&self);
}

/// Speaks a protocol whose connections carry several exchanges at once.
pub trait Multiplexer: 'static {
    /// The carrier that it makes of a connection.
    type Carrier: Carrier;

    /// Makes a carrier of a fresh connection.
    ///
    /// # Errors
    /// The server does not speak the protocol.
    fn begin(&self, stream: Stream) -> impl Future<Output = io::Result<Self::Carrier>>;
}

/// A protocol whose connections carry one exchange at a time.
pub enum NoMultiplexer {}

impl Multiplexer for NoMultiplexer {
    type Carrier = NoCarrier;

    async fn begin(&self, _: Stream) -> io::Result<NoCarrier> {
        match *self {}
    }
}

/// There is none.
pub enum NoCarrier {}

impl Carrier for NoCarrier {
    fn exchanges_max(&self) -> Option<u32> {
        match *self {}
    }

    fn watch(&self, _: &Waker) {
        match *self {}
    }

    fn cut(&self) {
        match *self {}
    }
}

/// Exchanges in a row without a response in time after which a carrier gets no further ones: what a firewall has forgotten looks so.
const TIMEOUTS_MAX: u32 = 2;

/// A carrier and what is known of it.
pub(crate) struct CarrierEntry<C: Carrier> {
    pub(crate) carrier: C,
    /// Exchanges on it.
    pub(crate) lent: Cell<u32>,
    /// It has served an exchange before.
    pub(crate) has_served: Cell<bool>,
    idle_since: Cell<Time>,
    /// Exchanges in a row that got no response in time.
    timeouts: Cell<u32>,
    cause: Cell<LossCause>,
    endpoint: Rc<Endpoint>,
    open: Open,
}

impl<C: Carrier> CarrierEntry<C> {
    pub(crate) fn new(carrier: C, endpoint: Rc<Endpoint>, open: Open) -> Rc<Self> {
        Rc::new(Self {
            carrier,
            lent: Cell::new(0),
            has_served: Cell::new(false),
            idle_since: Cell::new(turn::now()),
            timeouts: Cell::new(0),
            cause: Cell::new(LossCause::Closed),
            endpoint,
            open,
        })
    }

    /// Since when its connection stands.
    pub(crate) fn open_since(&self) -> Time {
        self.open.since()
    }

    /// It takes another exchange.
    pub(crate) fn has_room(&self) -> bool {
        self.carrier.exchanges_max().is_some_and(|most| self.lent.get() < most)
    }

    /// It takes none any more.
    pub(crate) fn is_over(&self) -> bool {
        self.carrier.exchanges_max().is_none()
    }

    /// Since when it has carried nothing.
    pub(crate) fn idle_since(&self) -> Option<Time> {
        (self.lent.get() == 0).then(|| self.idle_since.get())
    }

    /// An exchange on it is over; true if so many got no response in time that it may lead nowhere any more. `responded`: this one
    /// got one, or got none in time; of one that was given up before, nothing can be said.
    pub(crate) fn left(&self, responded: Option<bool>) -> bool {
        self.lent.set(self.lent.get() - 1);
        self.has_served.set(true);
        self.idle_since.set(turn::now());
        match responded {
            Some(true) => self.timeouts.set(0),
            Some(false) => self.timeouts.set(self.timeouts.get() + 1),
            None => {}
        }
        self.timeouts.get() >= TIMEOUTS_MAX
    }

    /// It is given up by the gateway.
    pub(crate) fn retire(&self) {
        self.cause.set(LossCause::Retired);
    }
}

impl<C: Carrier> Drop for CarrierEntry<C> {
    fn drop(&mut self) {
        self.endpoint.lane_lost(self.cause.get(), 0);
    }
}
