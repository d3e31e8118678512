//! Answer of `/api/v1/workers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One worker: a thread with its own runtime and connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// Number of the worker, from 0.
    pub id: u32,
    /// CPU it is pinned to; absent if pinning was not allowed.
    pub cpu: Option<u32>,
    /// I/O driver in use: `io_uring` or `polling`.
    pub driver: String,
    /// Client connections it owns.
    pub connections: u64,
    /// CPU time of its thread, seconds.
    pub cpu_seconds: f64,
    /// Turns of its loop.
    pub turns: u64,
    /// True if it has not finished a turn for longer than the watchdog allows.
    pub stalled: bool,
    /// Generation of the configuration it works with.
    pub generation: u64,
}

/// Answer of `/api/v1/workers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerList {
    /// Every worker by number.
    pub workers: Vec<WorkerStatus>,
}
