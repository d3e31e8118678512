//! Metrics and registrations of clients, which are summed for the server.

use std::{borrow::Cow, io::Read as _, sync::Arc};

use weir_flags_codec::{
    DocumentError, Timestamp,
    limits::METRICS_BODY_BYTES_MAX,
    metrics::{BulkMetrics, ClientApplication, ClientMetrics, ImpactMetric, SdkFields},
};
use weir_flags_session::{Token, TokenType, metrics::sdk_texts};
use weir_http::filter::{HandlerRequest, WholeResponse};
use weir_http_codec::Known;

use crate::{
    access::Access,
    edge::{Edge, unix_time},
    environment::lock,
    frontend_api::check_json,
    limits::{IMPACT_METRICS_MAX, INSTANCE_BYTES_MAX, INSTANCES_MAX, METRIC_NAME_BYTES_MAX},
    reply,
};

/// The body of a request without its coding.
///
/// # Errors
/// The response: the coding is none that is known, or the body is too long without it.
fn plain_body(request: &HandlerRequest) -> Result<Cow<'_, [u8]>, WholeResponse> {
    check_json(request)?;
    let mut codings =
        request.head.fields.all(Known::ContentEncoding).filter(|coding| !coding.eq_ignore_ascii_case(b"identity"));
    let Some(coding) = codings.next() else { return Ok(Cow::Borrowed(&request.body)) };
    if !coding.eq_ignore_ascii_case(b"gzip") || codings.next().is_some() {
        return Err(reply::error(415, "the content coding is not gzip"));
    }
    let mut plain = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&*request.body).take(METRICS_BODY_BYTES_MAX as u64 + 1);
    decoder.read_to_end(&mut plain).map_err(|_| reply::error(400, "the body is no gzip"))?;
    match plain.len() > METRICS_BODY_BYTES_MAX {
        true => Err(reply::error(413, "the body is too long")),
        false => Ok(Cow::Owned(plain)),
    }
}

/// A body of metrics whose names and other repeated texts are bounded before they are copied.
trait Names {
    /// Bytes of the longest name.
    fn longest(&self) -> usize;

    /// Metrics of applications' own.
    fn impact_metrics(&self) -> usize;
}

impl Names for ClientMetrics {
    fn longest(&self) -> usize {
        let flags = self.bucket.iter().flat_map(|bucket| bucket.toggles.keys()).map(String::len);
        let impact = self.impact_metrics.iter().flatten().map(longest_of_impact);
        flags.chain(impact).chain([self.app_name.len(), longest_of_sdk(&self.sdk)]).max().unwrap_or(0)
    }

    fn impact_metrics(&self) -> usize {
        self.impact_metrics.as_ref().map_or(0, Vec::len)
    }
}

impl Names for BulkMetrics {
    fn longest(&self) -> usize {
        let applications = self.applications.iter().map(Names::longest);
        let sums = self.metrics.iter();
        let sums = sums.map(|it| it.app_name.len().max(it.feature_name.len()).max(longest_of_sdk(&it.sdk)));
        let impact = self.impact_metrics.iter().flatten().map(longest_of_impact);
        applications.chain(sums).chain(impact).max().unwrap_or(0)
    }

    fn impact_metrics(&self) -> usize {
        self.impact_metrics.as_ref().map_or(0, Vec::len)
    }
}

impl Names for ClientApplication {
    fn longest(&self) -> usize {
        self.instance_id.as_ref().map_or(0, String::len).max(self.app_name.len())
    }

    fn impact_metrics(&self) -> usize {
        0
    }
}

/// The longest of a name, a help text, and the names and values of labels: each value of the metric has a copy of its labels.
fn longest_of_impact(metric: &ImpactMetric) -> usize {
    let labels = metric.samples.iter().flat_map(|sample| sample.labels.iter().flatten());
    let labels = labels.map(|(name, value)| name.len().max(value.len()));
    labels.chain([metric.name.len(), metric.help.len()]).max().unwrap_or(0)
}

fn longest_of_sdk(sdk: &SdkFields) -> usize {
    sdk_texts(sdk).map(str::len).max().unwrap_or(0)
}

/// Reads a body, and takes it.
fn take<T>(
    request: &HandlerRequest,
    read: impl FnOnce(&[u8]) -> Result<T, DocumentError>,
    take: impl FnOnce(T) -> Result<(), WholeResponse>,
) -> WholeResponse {
    let body = match plain_body(request) {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    match read(&body) {
        Ok(document) => take(document).err().unwrap_or_else(|| reply::empty(202)),
        Err(error) => reply::error(400, &error.to_string()),
    }
}

/// Refuses names and metrics beyond their bounds.
fn check(metrics: &impl Names) -> Result<(), WholeResponse> {
    check_length(metrics.longest())?;
    match metrics.impact_metrics() > IMPACT_METRICS_MAX {
        true => Err(reply::error(413, "too many metrics")),
        false => Ok(()),
    }
}

/// Refuses a name beyond its bound.
fn check_length(bytes: usize) -> Result<(), WholeResponse> {
    match bytes > METRIC_NAME_BYTES_MAX {
        true => Err(reply::error(400, "a name is too long")),
        false => Ok(()),
    }
}

/// `POST …/metrics`
pub(crate) fn metrics(edge: &Arc<Edge>, access: &Access, request: &HandlerRequest) -> WholeResponse {
    take(request, ClientMetrics::read, |mut metrics| {
        check(&metrics)?;
        register_frontend(edge, &access.token, request, &mut metrics)?;
        lock(&edge.usage).add(&metrics);
        let now = Timestamp::from_unix(unix_time());
        with_sums(edge, access, |sums| sums.add(&access.token, metrics, now));
        Ok(())
    })
}

/// A browser registers with its metrics alone: its SDK names itself in a field of the request.
fn register_frontend(
    edge: &Edge,
    token: &Token,
    request: &HandlerRequest,
    metrics: &mut ClientMetrics,
) -> Result<(), WholeResponse> {
    let Some(sdk) =
        reply::field(&request.head.fields, "unleash-sdk").filter(|_| token.kind() == Some(TokenType::Frontend))
    else {
        return Ok(());
    };
    let instance = reply::field(&request.head.fields, "unleash-connection-id").map(str::to_owned);
    // Each sum of the body gets a copy of the SDK.
    check_length(sdk.len().max(instance.as_ref().map_or(0, String::len)))?;
    metrics.sdk.sdk_version.get_or_insert_with(|| sdk.to_owned());
    metrics.sdk.sdk_type.get_or_insert_with(|| "frontend".to_owned());
    let mut other = serde_json::Map::new();
    other.insert("sdkVersion".to_owned(), sdk.into());
    let application = ClientApplication {
        app_name: metrics.app_name.clone(),
        instance_id: instance,
        interval: 0.into(),
        started: weir_base::time::rfc3339(unix_time().as_secs()).into(),
        strategies: Vec::new(),
        other,
        ..ClientApplication::default()
    };
    lock(&edge.aggregates).register_frontend(token, &edge.identity(), application);
    Ok(())
}

/// `POST /api/client/metrics/bulk`
pub(crate) fn bulk(edge: &Arc<Edge>, access: &Access, request: &HandlerRequest) -> WholeResponse {
    let now = Timestamp::from_unix(unix_time());
    take(request, BulkMetrics::read, |bulk| {
        check(&bulk)?;
        with_sums(edge, access, |sums| sums.add_bulk(&access.token, &edge.identity(), bulk, now));
        Ok(())
    })
}

/// `POST …/register`
pub(crate) fn register(edge: &Arc<Edge>, access: &Access, request: &HandlerRequest) -> WholeResponse {
    let mut response = take(request, ClientApplication::read, |application| {
        check(&application)?;
        with_sums(edge, access, |sums| sums.register(&access.token, &edge.identity(), application));
        Ok(())
    });
    if response.status == 202 {
        response.fields.push(b"x-edge-version", env!("CARGO_PKG_VERSION").as_bytes());
    }
    response
}

/// Adds to the sums. An offline gateway has no server for them, and counts them as dropped.
fn with_sums(edge: &Edge, access: &Access, add: impl FnOnce(&mut weir_flags_session::metrics::Aggregates)) {
    let mut sums = lock(&edge.aggregates);
    add(&mut sums);
    if access.view.is_offline {
        sums.discard();
    }
}

/// `POST /api/client/metrics/edge`: the report of an edge behind this one, for `/internal-backstage/instancedata`.
pub(crate) fn edge_instance(edge: &Arc<Edge>, request: &HandlerRequest) -> WholeResponse {
    let read = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).map_err(DocumentError::from);
    take(request, read, |report| {
        let identifier = report.get("identifier").and_then(serde_json::Value::as_str).map(str::to_owned);
        let identifier = identifier.ok_or_else(|| reply::error(400, "the report has no identifier"))?;
        if report.to_string().len() > INSTANCE_BYTES_MAX {
            return Err(reply::error(413, "the report is too long"));
        }
        let mut instances = lock(&edge.instances);
        if instances.len() < INSTANCES_MAX || instances.contains_key(&identifier) {
            instances.insert(identifier, report);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f6_each_text_that_is_copied_for_many_sums_is_bounded() {
        let (long, short) = ("n".repeat(METRIC_NAME_BYTES_MAX + 1), "n".repeat(METRIC_NAME_BYTES_MAX));
        let client = |members: &str| {
            let text = format!(r#"{{"appName":"a",{members}}}"#);
            check(&ClientMetrics::read(text.as_bytes()).expect("metrics")).is_ok()
        };
        let bulk = |members: &str| {
            let text = format!(r#"{{"applications":[],{members}}}"#);
            check(&BulkMetrics::read(text.as_bytes()).expect("metrics")).is_ok()
        };
        let metric = |help: &str, labels: &str| {
            format!(
                r#""impactMetrics":[{{"name":"n","help":"{help}","type":"gauge","samples":[{{"labels":{labels}}}]}}]"#
            )
        };
        let impact = |labels: &str| metric("h", labels);
        let sum = |member: &str| {
            let usual = r#""featureName":"f","appName":"a","environment":"e","timestamp":"t""#;
            format!(r#""metrics":[{{{usual},{member}}}]"#)
        };
        for (text, is_taken) in [(&long, false), (&short, true)] {
            let flavor = format!(r#""sdkFlavor":"{text}""#);
            assert_eq!((client(&flavor), bulk(&sum(&flavor))), (is_taken, is_taken));
            assert_eq!(client(&metric(text, "{}")), is_taken);
            for labels in [format!(r#"{{"{text}":"v"}}"#), format!(r#"{{"k":"{text}"}}"#)] {
                assert_eq!(client(&impact(&labels)), is_taken);
                assert_eq!(bulk(&(r#""metrics":[],"#.to_owned() + &impact(&labels))), is_taken);
            }
        }
        assert!(check_length(long.len()).is_err() && check_length(short.len()).is_ok());
    }
}
