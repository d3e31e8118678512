//! Counts of evaluations, impact metrics and applications, as clients and edges send them and as an upstream takes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{DocumentError, OwnedScalar};

/// The program that sends metrics. Absent fields are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SdkFields {
    /// Name and version of the SDK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sdk_version: Option<String>,
    /// `frontend` or `backend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sdk_type: Option<String>,
    /// Version of the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yggdrasil_version: Option<String>,
    /// The language or its runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_name: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_version: Option<String>,
    /// The library that stands on the SDK, for example an OpenFeature provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sdk_flavor: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sdk_flavor_version: Option<String>,
}

/// Counts of one client: `POST /api/client/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientMetrics {
    /// The application.
    pub app_name: String,
    /// The counts.
    #[serde(default)]
    pub bucket: Option<MetricsBucket>,
    /// Metrics of the application's own.
    #[serde(default)]
    pub impact_metrics: Option<Vec<ImpactMetric>>,
    /// The sender.
    #[serde(flatten)]
    pub sdk: SdkFields,
}

/// Counts of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MetricsBucket {
    /// Its beginning, as [`Timestamp`](crate::Timestamp) reads it.
    #[serde(default)]
    pub start: OwnedScalar,
    /// By the name of the flag.
    pub toggles: BTreeMap<String, Counts>,
}

/// Counts of one flag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Evaluations with the result on.
    pub yes: u64,
    /// Evaluations with the result off.
    pub no: u64,
    /// Evaluations by the name of the variant.
    pub variants: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.yes = self.yes.saturating_add(other.yes);
        self.no = self.no.saturating_add(other.no);
        for (name, count) in &other.variants {
            match self.variants.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*count),
                None => drop(self.variants.insert(name.clone(), *count)),
            }
        }
    }

    /// Whether there was no evaluation. A variant comes with one.
    pub const fn is_zero(&self) -> bool {
        self.yes == 0 && self.no == 0
    }
}

/// Counts of one flag in one application, as edges send them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkMetric {
    /// The flag.
    pub feature_name: String,
    /// The application.
    pub app_name: String,
    /// The environment.
    pub environment: String,
    /// A point within the hour, as [`Timestamp`](crate::Timestamp) reads it.
    pub timestamp: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// The sender.
    #[serde(flatten)]
    pub sdk: SdkFields,
}

/// A program that uses flags: `POST /api/client/register`. Fields of later clients pass as they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientApplication {
    /// The application.
    pub app_name: String,
    /// The edges that it came through, from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_via: Option<Vec<ConnectVia>>,
    /// The environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The projects of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// One process of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Milliseconds between two polls of the client.
    pub interval: Value,
    /// The start of the client.
    pub started: Value,
    /// The strategies that it knows.
    pub strategies: Vec<String>,
    /// `frontend` or `backend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk_type: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An edge that an application came through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectVia {
    /// The name of the edge's program.
    pub app_name: String,
    /// The process of the edge.
    pub instance_id: String,
}

/// A metric of the application's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImpactMetric {
    /// The name.
    pub name: String,
    /// Its description.
    pub help: String,
    /// How values of different times become one.
    #[serde(rename = "type")]
    pub kind: ImpactKind,
    /// Its values.
    pub samples: Vec<ImpactSample>,
}

/// How values of different times become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImpactKind {
    /// Values are added.
    #[default]
    Counter,
    /// The last value counts.
    Gauge,
    /// Counts and sums are added.
    Histogram,
}

/// A value of an impact metric: `value`, or the three fields of a histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImpactSample {
    /// The series of the metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The value of a counter or a gauge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Observations of a histogram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The sum of what was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<f64>,
    /// Observations up to a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<ImpactBucket>>,
}

/// Observations of a histogram up to a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImpactBucket {
    /// The bound: a number, or `+Inf`.
    pub le: Value,
    /// Observations at most as large.
    pub count: u64,
}

/// All metrics of an edge: `POST /api/client/metrics/bulk`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkMetrics {
    /// Applications. An upstream must know one before it takes its metrics.
    pub applications: Vec<ClientApplication>,
    /// Counts.
    pub metrics: Vec<BulkMetric>,
    /// Metrics of applications' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impact_metrics: Option<Vec<ImpactMetric>>,
    /// Tokens that were used: secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_tokens: Option<Vec<String>>,
}

macro_rules! read {
    ($($document:ty),*) => {$(
        impl $document {
            /// Reads a body of at most [`METRICS_BODY_BYTES_MAX`](crate::limits::METRICS_BODY_BYTES_MAX) bytes, which the caller bounds.
            ///
            /// # Errors
            /// It is no JSON, lacks a field, or a field has the wrong type.
            pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
                Ok(serde_json::from_slice(text)?)
            }
        }
    )*};
}

read!(ClientMetrics, ClientApplication, BulkMetrics);
