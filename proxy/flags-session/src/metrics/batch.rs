//! Bodies of `POST /api/client/metrics/bulk` that an upstream takes.

use serde::Serialize;
use weir_flags_codec::metrics::BulkMetrics;

use super::aggregates::Waiting;
use crate::limits::{UPLOAD_BYTES_MAX, UPLOAD_PART_BYTES};

/// One body, and the items in it in case that the upstream does not take them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    environment: Box<str>,
    metrics: BulkMetrics,
}

impl Batch {
    /// The environment whose token the request has.
    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// The body: at most [`UPLOAD_BYTES_MAX`] bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.metrics).unwrap_or_default()
    }

    /// Applications and sums in it, and all items.
    pub fn items(&self) -> usize {
        let BulkMetrics { applications, metrics, impact_metrics, seen_tokens } = &self.metrics;
        let others = impact_metrics.as_ref().map_or(0, Vec::len) + seen_tokens.as_ref().map_or(0, Vec::len);
        applications.len() + metrics.len() + others
    }

    pub(super) fn into_parts(self) -> (Box<str>, BulkMetrics) {
        (self.environment, self.metrics)
    }
}

/// The bytes of a body without items.
const FRAME_BYTES: usize = br#"{"applications":[],"metrics":[],"impactMetrics":[],"seenTokens":[]}"#.len();

/// Bodies under construction.
struct Cutter {
    bodies: Vec<BulkMetrics>,
    bytes: usize,
    body_bytes_max: usize,
    too_large: u64,
}

impl Cutter {
    /// Puts an item into the last body, or into a new one if it is full.
    fn put<T: Serialize>(&mut self, item: T, place: impl FnOnce(&mut BulkMetrics, T)) {
        // With the comma behind it.
        let bytes = serde_json::to_vec(&item).map_or(usize::MAX, |text| text.len() + 1);
        if bytes > UPLOAD_BYTES_MAX - FRAME_BYTES {
            self.too_large += 1;
            return;
        }
        if self.bodies.is_empty() || self.bytes + bytes > self.body_bytes_max {
            self.bodies.push(BulkMetrics::default());
            self.bytes = FRAME_BYTES;
        }
        self.bytes += bytes;
        if let Some(body) = self.bodies.last_mut() {
            place(body, item);
        }
    }
}

/// All that an environment has to send: one body if it is small enough, else several. Applications come first, for the upstream must know one
/// before it takes its metrics. Also the number of items that are too large for any body.
pub(super) fn cut(environment: Box<str>, waiting: Waiting) -> (Vec<Batch>, u64) {
    let cut_by = |body_bytes_max| {
        let mut cutter = Cutter { bodies: Vec::new(), bytes: 0, body_bytes_max, too_large: 0 };
        waiting.applications.values().for_each(|it| cutter.put(it.clone(), |body, it| body.applications.push(it)));
        waiting.metrics(&environment).for_each(|it| cutter.put(it, |body, it| body.metrics.push(it)));
        let impact = waiting.impact.iter().map(|((_, name), it)| it.to_metric(name));
        impact.for_each(|it| cutter.put(it, |body, it| body.impact_metrics.get_or_insert_default().push(it)));
        let tokens = waiting.seen_tokens.iter();
        tokens.for_each(|it| cutter.put(it.clone(), |body, it| body.seen_tokens.get_or_insert_default().push(it)));
        cutter
    };
    let mut cutter = cut_by(UPLOAD_BYTES_MAX);
    if cutter.bodies.len() > 1 {
        cutter = cut_by(UPLOAD_PART_BYTES);
    }
    let batch = |metrics| Batch { environment: environment.clone(), metrics };
    (cutter.bodies.into_iter().map(batch).collect(), cutter.too_large)
}
