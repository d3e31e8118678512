//! Endpoints for operators: `/internal-backstage`.

use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Value, json};
use weir_http::filter::WholeResponse;

use crate::{
    access::Denial,
    edge::{Edge, View},
    environment::lock,
    reply,
    settings::Backstage,
};

/// The response of an endpoint.
pub(crate) async fn respond(edge: &Edge, endpoint: Backstage) -> WholeResponse {
    let view = edge.view();
    match endpoint {
        Backstage::Health => reply::json(200, r#"{"status":"OK"}"#),
        Backstage::Ready => ready(&view),
        Backstage::Metrics => reply::text(200, "text/plain; version=0.0.4", exposition(edge, &view)),
        Backstage::Features => features(view).await,
        Backstage::Tokens => reply::json(200, tokens(edge, &view).to_string()),
        Backstage::MetricsBatch => {
            let waiting = lock(&edge.aggregates).waiting();
            let all = json!({ "applications": waiting.applications, "metrics": waiting.metrics });
            reply::json(200, all.to_string())
        }
        Backstage::InstanceData => {
            let connected: Vec<Value> = lock(&edge.instances).values().cloned().collect();
            let this = json!({
                "identifier": edge.identity().instance_id,
                "appName": edge.identity().app_name,
                "edgeVersion": env!("CARGO_PKG_VERSION"),
                "connectedStreamingClients": edge.streams.load(Ordering::Relaxed),
            });
            reply::json(200, json!({ "this_instance": this, "connected_instances": connected }).to_string())
        }
        Backstage::Info => {
            let info = json!({ "packageName": "weir", "packageVersion": env!("CARGO_PKG_VERSION"), "appName": edge.identity().app_name });
            reply::json(200, info.to_string())
        }
    }
}

/// The flags of all environments, which take milliseconds to write.
async fn features(view: Arc<View>) -> WholeResponse {
    let made = weir_engine::run_blocking(move || view.all_documents()).await;
    made.map_or_else(|_| Denial::NotYet.response(), |all| reply::json(200, all))
}

/// Ready: each environment of a source has flags.
fn ready(view: &View) -> WholeResponse {
    let lacks = |name: &str| !view.environments.contains_key(name);
    let error = match view.is_offline {
        true if lacks("") => Some("the file of flags could not be read"),
        false if view.sources.is_empty() => Some("no token is validated yet"),
        false if view.sources.iter().any(|source| lacks(source.environment().unwrap_or_default())) => {
            Some("flags of an environment are not fetched yet")
        }
        _ => None,
    };
    match error {
        None => reply::json(200, r#"{"status":"READY"}"#),
        Some(error) => reply::json(503, json!({ "error": error, "status": "NOTREADY" }).to_string()),
    }
}

fn tokens(edge: &Edge, view: &View) -> Value {
    let polled = edge.counts.last_polls();
    let refreshes = view.sources.iter().map(|source| {
        let environment = source.environment().unwrap_or_default();
        let last = polled.iter().find(|(name, _)| **name == *environment).map(|(_, time)| time.as_secs());
        json!({
            "token": source.to_string(),
            "environment": environment,
            "projects": source.projects().names().collect::<Vec<_>>(),
            "revision": view.environments.get(environment).map(|one| one.shown_revision()),
            "lastRefreshed": last.map(weir_base::time::rfc3339),
        })
    });
    let standings = view.tokens.valid().map(|token| {
        json!({
            "token": token.to_string(),
            "type": token.kind().map(|kind| kind.as_str()),
            "environment": token.environment(),
            "projects": token.projects().names().collect::<Vec<_>>(),
            "status": "Validated",
        })
    });
    let refreshes: Vec<Value> = refreshes.collect();
    let standings: Vec<Value> = standings.collect();
    json!({
        "tokenRefreshes": refreshes,
        "tokenValidationStatus": standings,
        "invalidTokenCount": view.tokens.invalid_count(),
    })
}

/// Counters in Prometheus's text format, with the names that dashboards of Unleash Edge have.
fn exposition(edge: &Edge, view: &View) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, lines: &mut dyn Iterator<Item = String>| {
        let _ = writeln!(out, "# TYPE {name} {kind}");
        lines.for_each(|line| {
            let _ = writeln!(out, "{name}{line}");
        });
    };
    let responses = edge.counts.responses();
    let mut responses = responses.map(|(endpoint, status, count)| {
        format!("{{url_path=\"{endpoint}\",http_response_status_code=\"{status}\"}} {count}")
    });
    family("http_requests_total", "counter", &mut responses);
    let usage = lock(&edge.usage);
    let mut lines = usage.iter().flat_map(|(application, flag, yes, no)| {
        let (application, flag) = (escaped(application), escaped(flag));
        [("true", yes), ("false", no)].map(|(active, count)| {
            format!("{{appname=\"{application}\",toggle=\"{flag}\",active=\"{active}\"}} {count}")
        })
    });
    family("feature_toggle_usage_total", "counter", &mut lines);
    let invalid = view.tokens.invalid_count();
    let mut statuses = [("Validated", view.tokens.valid().count()), ("Invalid", invalid)]
        .into_iter()
        .map(|(status, count)| format!("{{status=\"{status}\"}} {count}"));
    family("token_status", "gauge", &mut statuses);
    let polled = edge.counts.last_polls();
    let mut polled = polled
        .iter()
        .map(|(environment, time)| format!("{{environment=\"{}\"}} {}", escaped(environment), time.as_millis()));
    family("polling_last_update", "gauge", &mut polled);
    let mut polls = edge.counts.polls().map(|(result, count)| format!("{{result=\"{result}\"}} {count}"));
    family("client_feature_fetch", "counter", &mut polls);
    let bytes = lock(&edge.aggregates).bytes();
    family("metrics_size_in_bytes", "gauge", &mut std::iter::once(format!(" {bytes}")));
    let streams = edge.streams.load(Ordering::Relaxed);
    family("connected_streaming_clients", "gauge", &mut std::iter::once(format!(" {streams}")));
    out
}

/// The value of a label with its escapes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
