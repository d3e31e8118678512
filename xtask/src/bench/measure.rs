//! What a run came to.

/// What the load generator saw. Latencies in milliseconds; with a pipeline they are those of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Requests that were answered without an error.
    pub(crate) completed: u64,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Median latency.
    pub(crate) p50: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile; `None` if there are too few samples, or the generator does not tell it.
    pub(crate) p999: Option<f64>,
}
