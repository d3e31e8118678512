//! Tests of contexts, definitions and metrics.

mod contexts;
mod metrics;
