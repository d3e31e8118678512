//! Counts of evaluations by application and flag, for `feature_toggle_usage_total` of `/internal-backstage/metrics`.

use std::collections::BTreeMap;

use weir_flags_codec::metrics::ClientMetrics;

use crate::limits::USAGE_SERIES_MAX;

/// The application and the flag of counts beyond the bound.
const OTHERS: &str = "other";

/// Evaluations that were on and off, by application and flag.
#[derive(Debug, Default)]
pub(crate) struct Usage(BTreeMap<(String, String), (u64, u64)>);

impl Usage {
    /// Adds the counts of a client.
    pub(crate) fn add(&mut self, metrics: &ClientMetrics) {
        for (flag, counts) in metrics.bucket.iter().flat_map(|bucket| &bucket.toggles) {
            let mut key = (metrics.app_name.clone(), flag.clone());
            if self.0.len() >= USAGE_SERIES_MAX && !self.0.contains_key(&key) {
                key = (OTHERS.to_owned(), OTHERS.to_owned());
            }
            let sum = self.0.entry(key).or_default();
            *sum = (sum.0.saturating_add(counts.yes), sum.1.saturating_add(counts.no));
        }
    }

    /// Application, flag, evaluations that were on, and off.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, u64, u64)> {
        self.0.iter().map(|((application, flag), (yes, no))| (&**application, &**flag, *yes, *no))
    }
}
