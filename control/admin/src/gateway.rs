//! The interface of the gateway to the admin server. The binary implements it; the server knows nothing else.

use std::future::Future;
use std::pin::Pin;

use weir_telemetry::Registry;

use crate::problem::Problem;
use crate::status::{
    AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyQuery, AiRequestList, AiRequestQuery, Check, ConnectionQuery,
    ConnectionResponse, DrainStatus, InsightResponse, ListenerStatus, ReloadOutcome, RouteStatus, SlowLogReset,
    UpgradeOutcome, UpstreamStatus, VersionStatus, WorkerStatus,
};

/// A boxed future that a [`Gateway`] method returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The gateway as seen from the admin thread.
///
/// All methods but [`reload`](Self::reload), [`upgrade`](Self::upgrade) and [`order_ai_key`](Self::order_ai_key) run on the admin thread and
/// must return at once: read cells and snapshots, never wait for a worker. Methods that need responses from the workers return a future.
/// Nothing that is returned may hold a secret: the responses leave the process as they are.
pub trait Gateway: Send + Sync + 'static {
    /// Is the process in order, or would only a restart help? Each check by name.
    fn liveness(&self) -> Vec<Check>;

    /// Should traffic be sent here now? False while starting, draining or out of resources.
    fn readiness(&self) -> Vec<Check>;

    /// Has the process finished its start?
    fn startup(&self) -> Vec<Check>;

    /// Version of the program, and the time of its start.
    fn version(&self) -> VersionStatus;

    /// The configuration in force, secrets redacted.
    fn config_json(&self) -> serde_json::Value;

    /// Every listener.
    fn listeners(&self) -> Vec<ListenerStatus>;

    /// Every upstream with its endpoints.
    fn upstreams(&self) -> Vec<UpstreamStatus>;

    /// Every route of HTTP listeners.
    fn routes(&self) -> Vec<RouteStatus>;

    /// Every worker.
    fn workers(&self) -> Vec<WorkerStatus>;

    /// Client connections that match the query, as the workers report them.
    ///
    /// The server sorts by id and cuts to `query.limit`, so each worker may send its own lowest
    /// `query.limit + 1` ids above `query.after`. A worker that does not respond in a second or so goes
    /// into `workers_silent`; the page then holds what the others said.
    fn connections(&self, query: ConnectionQuery) -> BoxFuture<'_, ConnectionResponse>;

    /// The workers' records of their requests: hot keys, big keys, slow requests. A worker that does not
    /// respond in a second or so goes into `workers_silent`.
    fn insight(&self) -> BoxFuture<'_, InsightResponse>;

    /// Empties the slow logs of the workers.
    fn reset_slow_log(&self) -> BoxFuture<'_, SlowLogReset>;

    /// Keys of AI clients: those of the configuration, and those that this API has issued.
    fn ai_keys(&self, query: AiKeyQuery) -> AiKeyList;

    /// Carries out an order about issued keys; what it says is on the disk and in force when this returns. May block: it runs on a
    /// thread of its own, one at a time.
    ///
    /// # Errors
    /// Nothing has changed.
    fn order_ai_key(&self, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem>;

    /// The last requests to language models, the newest first. A worker that does not respond in a second or so goes into
    /// `workers_silent`.
    fn ai_requests(&self, query: AiRequestQuery) -> BoxFuture<'_, AiRequestList>;

    /// Reads the configuration file again and applies it if it is valid. May block: it runs on a thread of its
    /// own, one at a time.
    fn reload(&self) -> ReloadOutcome;

    /// Starts the program again, hands it the sockets and gives the result. May block: it runs on a thread of its own,
    /// one at a time.
    fn upgrade(&self) -> UpgradeOutcome;

    /// Begins to drain, or tells how a drain under way is doing. Returns at once.
    fn drain(&self) -> DrainStatus;

    /// The metrics of the gateway. A scrape reads them, after the server has written those of the process into them.
    fn registry(&self) -> &Registry;
}
