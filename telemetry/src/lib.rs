//! The metric catalog, per-core cells and histograms, Prometheus text, and the sampled log of the data path.
//!
//! A worker writes only cells of its own core, with plain loads and stores; the control thread reads them. Nothing on
//! the request path takes a lock, allocates, or waits.
//!
//! ```
//! use weir_telemetry::{Registry, catalog, prometheus};
//!
//! let registry = Registry::new();
//! let core = registry.core(0); // on the worker's own thread
//! let requests = core.counter(&catalog::REQUESTS_TOTAL, &["cache", "read"]);
//! requests.add(1);
//!
//! let snapshot = registry.read(); // on the control thread
//! assert_eq!(snapshot.counter("weir_requests_total", &[("listener", "cache")]), Some(1));
//! assert!(prometheus::render(&registry.exposed()).contains("weir_requests_total{listener=\"cache\",class=\"read\"} 1"));
//! ```
//!
//! | file | concept |
//! |---|---|
//! | [`access`] | lines of the access log: what they can say, and their forms |
//! | [`catalog`] | every metric, declared once; `docs/METRICS.md` and `/metrics` are made from it |
//! | [`cells`] | [`Registry`], per-core handles: [`Counter`], [`Gauge`] |
//! | [`gen_ai`] | names of OpenTelemetry for requests to language models |
//! | [`histogram`] | log-linear [`Histogram`] over nanoseconds, its snapshot, merge and quantiles |
//! | [`snapshot`] | values that the control thread read: typed queries for the admin API and `weir top` |
//! | [`prometheus`] | text exposition 0.0.4 of a snapshot |
//! | [`sample`] | samplers: once per second per (listener, reason), and a random share |
//! | [`events`] | the sampled events of one worker, and the number of those left out |
//! | [`log`] | typed events and lines from a worker to the log's thread, never blocking the worker |
#![forbid(unsafe_code)]

pub mod access;
pub mod catalog;
pub mod cells;
pub mod events;
pub mod gen_ai;
pub mod histogram;
pub mod log;
pub mod prometheus;
pub mod sample;
pub mod snapshot;

pub use catalog::{Family, Kind, Unit};
pub use cells::{CoreMetrics, Counter, Gauge, GaugeGuard, Level, Registry, SharedCounter, SharedGauge, SharedMetrics};
pub use events::EventLog;
pub use histogram::{Histogram, HistogramSnapshot};
pub use snapshot::Snapshot;
