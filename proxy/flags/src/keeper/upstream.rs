//! Requests to the server.

use std::time::Duration;

use bytes::Bytes;
use weir_flags_session::Token;
use weir_http::filter::{FilterRequest, FilterRequestOutcome};
use weir_http_codec::{Fields, HeadLimits, Known, RequestHead, Version};

use super::Desk;
use crate::{
    limits::{REQUEST_TIMEOUT, RESPONSE_BYTES_MAX},
    settings::UpstreamSource,
};

/// The version of the client specification: with it, the server leaves segments out of constraints.
const SPECIFICATION: &[u8] = b"6.1.0";

/// A request before it has the fields that all have.
pub(super) struct Call<'a> {
    pub(super) method: &'static str,
    /// Behind the base path of the server.
    pub(super) path: &'static str,
    /// `None`: the server wants none.
    pub(super) token: Option<&'a Token>,
    /// Name and value.
    pub(super) fields: &'a [(&'a str, &'a str)],
    pub(super) body: Vec<u8>,
    pub(super) timeout: Duration,
    pub(super) response_bytes_max: usize,
}

impl<'a> Call<'a> {
    /// A GET.
    pub(super) const fn get(path: &'static str, token: &'a Token, fields: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            method: "GET",
            path,
            token: Some(token),
            fields,
            body: Vec::new(),
            timeout: REQUEST_TIMEOUT,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }

    /// A POST of JSON.
    pub(super) const fn post(path: &'static str, token: Option<&'a Token>, body: Vec<u8>) -> Self {
        Self {
            method: "POST",
            path,
            token,
            fields: &[],
            body,
            timeout: REQUEST_TIMEOUT,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }
}

impl Desk {
    /// Sends a request. `None`: an operator has configured what no request can have.
    pub(super) async fn send(&self, source: &UpstreamSource, call: Call<'_>) -> Option<FilterRequestOutcome> {
        Some(self.http.send_request(self.request(source, call)?).await)
    }

    /// The request with the fields that all have.
    pub(super) fn request(&self, source: &UpstreamSource, call: Call<'_>) -> Option<FilterRequest> {
        let mut fields = Fields::new();
        if let Some(token) = call.token {
            fields.push(b"authorization", token.secret().expose());
            fields.never_index_last();
        }
        let interval = source.poll_interval.as_millis().to_string();
        let identity = self.edge.identity();
        for (name, value) in [
            ("unleash-appname", &*source.app_name),
            ("unleash-instanceid", &*identity.instance_id),
            ("unleash-connection-id", &self.connection_id),
            ("unleash-interval", &interval),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        fields.push(b"unleash-client-spec", SPECIFICATION);
        fields.push(b"user-agent", concat!("weir/", env!("CARGO_PKG_VERSION")).as_bytes());
        for (name, value) in call.fields {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in &*source.fields {
            fields.set_named(name.as_bytes(), value.expose());
            fields.never_index_last();
        }
        if call.method == "POST" {
            fields.add(Known::ContentType, b"application/json");
        }
        let target = format!("{}{}", source.base_path, call.path);
        let line = (call.method.as_bytes(), target.as_bytes(), source.host.as_bytes());
        let head = RequestHead::from_parts(Version::Http11, line, fields, call.body.is_empty(), &HeadLimits::default());
        let head =
            head.inspect_err(|error| tracing::error!(?error, path = call.path, "no request can be made")).ok()?;
        Some(FilterRequest {
            upstream: source.upstream.clone(),
            endpoint: None,
            host: None,
            head,
            body: Bytes::from(call.body),
            is_repeatable: call.method == "GET",
            timeout: call.timeout,
            response_bytes_max: call.response_bytes_max,
        })
    }
}
