//! The requests so far.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use weir_flags_codec::metrics::{BulkMetrics, ClientApplication, ClientMetrics, Counts, ImpactMetric};
use weir_http_codec::RequestHead;

/// Applications, impact metrics and tokens that are kept. 100,000: as many as a test of floods sends.
const KEPT_MAX: usize = 100_000;

/// Requests since the start, or since the ledger was cleared.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ledger {
    /// By endpoint and status.
    pub requests: BTreeMap<String, BTreeMap<u16, u64>>,
    /// Header fields of the last request for each endpoint, by their names in small letters: secrets too.
    pub last: BTreeMap<String, BTreeMap<String, String>>,
    /// Batches of `/edge/validate`, and the tokens in them.
    pub validate: Validations,
    /// Counts of evaluations by environment, application and flag.
    pub metrics: BTreeMap<String, BTreeMap<String, BTreeMap<String, Counts>>>,
    /// As they came.
    pub applications: Vec<ClientApplication>,
    /// As they came.
    pub impact_metrics: Vec<ImpactMetric>,
    /// `seenTokens` of bulks.
    pub seen_tokens: Vec<String>,
    /// Bulks of metrics.
    pub bulk: Bulks,
}

/// Batches of tokens to be validated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Validations {
    /// Their number.
    pub batches: u64,
    /// Tokens in all of them.
    pub tokens: u64,
    /// The tokens of the last.
    pub last: Vec<String>,
}

/// Bodies of `/api/client/metrics/bulk`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bulks {
    /// Their number.
    pub bodies: u64,
    /// Bytes of the largest.
    pub bytes_max: u64,
}

impl Ledger {
    /// A request has its reply.
    pub fn note(&mut self, endpoint: &str, status: u16) {
        *self.requests.entry(endpoint.to_owned()).or_default().entry(status).or_default() += 1;
    }

    /// The head of a request.
    pub fn note_head(&mut self, endpoint: &str, head: &RequestHead) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields.iter().map(|field| (text(field.name).to_ascii_lowercase(), text(field.value)));
        self.last.insert(endpoint.to_owned(), fields.collect());
    }

    /// A batch of tokens.
    pub fn note_validation(&mut self, tokens: Vec<String>) {
        self.validate.batches += 1;
        self.validate.tokens += tokens.len() as u64;
        self.validate.last = tokens;
    }

    /// Metrics of one client in an environment.
    pub fn note_metrics(&mut self, environment: &str, metrics: ClientMetrics) {
        for (flag, counts) in metrics.bucket.map(|bucket| bucket.toggles).unwrap_or_default() {
            self.add(environment, &metrics.app_name, &flag, &counts);
        }
        keep(&mut self.impact_metrics, metrics.impact_metrics.unwrap_or_default());
    }

    /// A bulk of so many bytes.
    pub fn note_bulk(&mut self, bulk: BulkMetrics, bytes: usize) {
        self.bulk.bodies += 1;
        self.bulk.bytes_max = self.bulk.bytes_max.max(bytes as u64);
        for metric in bulk.metrics {
            self.add(&metric.environment, &metric.app_name, &metric.feature_name, &metric.counts);
        }
        keep(&mut self.applications, bulk.applications);
        keep(&mut self.impact_metrics, bulk.impact_metrics.unwrap_or_default());
        keep(&mut self.seen_tokens, bulk.seen_tokens.unwrap_or_default());
    }

    /// An application.
    pub fn note_application(&mut self, application: ClientApplication) {
        keep(&mut self.applications, vec![application]);
    }

    fn add(&mut self, environment: &str, application: &str, flag: &str, counts: &Counts) {
        let of_environment = self.metrics.entry(environment.to_owned()).or_default();
        let of_application = of_environment.entry(application.to_owned()).or_default();
        of_application.entry(flag.to_owned()).or_default().add(counts);
    }

    /// As JSON, with the revisions of environments and the number of open streams.
    pub fn to_json(&self, revisions: BTreeMap<&str, u64>, streams: usize) -> Vec<u8> {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(object) = &mut value {
            object.insert("revisions".to_owned(), serde_json::to_value(revisions).unwrap_or_default());
            object.insert("streams".to_owned(), streams.into());
        }
        value.to_string().into_bytes()
    }
}

fn keep<T>(list: &mut Vec<T>, more: Vec<T>) {
    list.extend(more.into_iter().take(KEPT_MAX.saturating_sub(list.len())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_clients_and_of_bulks_are_added_and_shown() {
        let mut ledger = Ledger::default();
        let metrics =
            br#"{"appName":"a","bucket":{"start":"x","stop":"y","toggles":{"f":{"yes":2,"no":1,"variants":{"v":2}}}}}"#;
        ledger.note_metrics("development", ClientMetrics::read(metrics).expect("metrics"));
        let bulk = br#"{"applications":[],"metrics":[{"featureName":"f","appName":"a","environment":"development",
            "timestamp":"2026-01-01T00:00:00Z","yes":3,"no":0,"variants":{"v":1}}],"seenTokens":["t"]}"#;
        ledger.note_bulk(BulkMetrics::read(bulk).expect("a bulk"), bulk.len());
        ledger.note("bulk", 202);
        let shown: Value = serde_json::from_slice(&ledger.to_json(BTreeMap::from([("e", 3)]), 1)).expect("JSON");
        let counts = &shown["metrics"]["development"]["a"]["f"];
        assert_eq!((&counts["yes"], &counts["no"], &counts["variants"]["v"]), (&5.into(), &1.into(), &3.into()));
        assert_eq!((&shown["requests"]["bulk"]["202"], &shown["revisions"]["e"]), (&1.into(), &3.into()));
        assert_eq!((&shown["streams"], &shown["bulk"]["bytes_max"]), (&1.into(), &bulk.len().into()));
    }
}
