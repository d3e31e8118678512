//! State that the listeners of one worker share, whatever their protocol.

use std::{
    any::Any,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use weir_base::permit::{ByteLease, LocalBudget};
use weir_telemetry::{CoreMetrics, EventLog, log::LogWriter};

use crate::{connections::ConnectionTable, timing::StageSample};

/// Sends a message to the listener of that name on that worker, which gets it by [`Service::deliver`](crate::Service::deliver).
/// False: that worker has too many messages to read already, and gets no more.
pub type Post = Rc<dyn Fn(usize, &Arc<str>, Box<dyn Any + Send>) -> bool>;

/// The end of an order: nothing, or why it was not carried out. It may be called on any thread.
pub type OrderEnd = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Orders of an operator to the process, which come by the console of a protocol.
pub trait ProcessOrders: Send + Sync {
    /// Reads the configuration file again, and returns before that is done.
    fn reload(&self, end: OrderEnd);

    /// Begins the drain with which the process ends.
    fn drain(&self);
}

/// The part of the process that carries the orders out. Empty until the process serves.
pub type Orders = Arc<OnceLock<Arc<dyn ProcessOrders>>>;

/// State that the listeners of one worker share.
#[derive(Clone)]
pub struct CoreShare {
    /// The worker.
    pub worker: usize,
    /// All workers.
    pub workers: usize,
    /// Exchanges in flight.
    pub flight: LocalBudget,
    /// TLS handshakes under way.
    pub handshakes: LocalBudget,
    /// Bytes buffered.
    pub bytes: ByteLease,
    /// Its cells.
    pub metrics: CoreMetrics,
    /// Where lines of its access log go.
    pub log: LogWriter,
    /// Where its log events go.
    pub events: EventLog,
    /// All connections of the process.
    pub table: Arc<ConnectionTable>,
    /// How many exchanges have their stages timed one by one.
    pub stage_sample: StageSample,
    /// Sends messages to other workers.
    pub post: Post,
    /// Carries out orders to the process.
    pub orders: Orders,
}

/// How far a drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Not draining.
    Off,
    /// Sessions end in their first quiet moment of [`DRAIN_GAP`].
    Gentle,
    /// Sessions end at the first reply boundary.
    Firm,
}

/// Silence of a client, after its last reply, in which a connection may be closed: a request on its way would be lost.
pub const DRAIN_GAP: Duration = Duration::from_millis(20);
