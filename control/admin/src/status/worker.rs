//! Response of `/api/v1/workers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One worker: a thread with its own runtime and connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// Number of the worker, from 0.
    pub id: u32,
    /// CPU to which the worker is pinned; absent if pinning was not allowed.
    pub cpu: Option<u32>,
    /// I/O driver in use: `io_uring` or `polling`.
    pub driver: String,
    /// Client connections of the worker.
    pub connections: u64,
    /// CPU time of the thread in seconds.
    pub cpu_seconds: f64,
    /// Iterations of the event loop.
    pub turns: u64,
    /// True if an iteration of the event loop has taken longer than the watchdog allows.
    pub stalled: bool,
    /// Generation of the configuration that the worker uses.
    pub generation: u64,
}

/// Response of `/api/v1/workers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerList {
    /// Every worker by number.
    pub workers: Vec<WorkerStatus>,
}
