//! An external service decides on requests: it gets the head of each, and its response is the response, or permission to go on.
//!
//! The check has the form of other forward authentication (Traefik's `forwardAuth`, Caddy's `forward_auth`): GET, the fields of the
//! request, and the request line in X-Forwarded-Method and X-Forwarded-Uri.

use std::{rc::Rc, sync::Arc, time::Duration};

use weir_http_codec::{Fields, HeadLimits, Known, RequestHead, ResponseHead, Version, strip_hop_by_hop};

use crate::{
    body::BodyCopy,
    forward::{self, Forwarded},
    local_reply::LocalReply,
    local_response::LocalResponse,
    metrics::ListenerMetrics,
    options::ForwardedFields,
    refusal::Refusal,
    subrequest::{Subrequest, SubrequestError},
    upstream::HttpUpstream,
};

/// Timeout of the whole check. Default 200 ms, as Envoy's `ext_authz`.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// Bytes of the body of a refusal: a page that says where to log in has less.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The service, and the fields of its check and of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtAuth {
    /// The upstream of the service.
    pub upstream: Arc<str>,
    /// The path of the check. `None`: that of the request, with its query.
    pub path: Option<Box<str>>,
    /// The Host of the check. `None`: that of the request.
    pub host: Option<Box<str>>,
    /// Fields of the request that the service is shown. `None`: all.
    pub request_fields: Option<Vec<Box<str>>>,
    /// Fields of a consent that the origin gets, in place of what the client sent under these names.
    pub response_fields: Vec<Box<str>>,
    /// See [`TIMEOUT`].
    pub timeout: Duration,
    /// A request goes on if the check fails.
    pub fails_open: bool,
}

/// Fields that say something about a body or a copy of the client's: the check has neither.
const NOT_SHOWN: [&[u8]; 9] = [
    b"content-length",
    b"content-encoding",
    b"expect",
    b"range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
    b"if-range",
];

/// Fields that only the gateway sets.
const SET_BY_GATEWAY: [&str; 2] = ["x-forwarded-method", "x-forwarded-uri"];

/// Fields in which trusted proxies describe clients.
const FORWARDED: [Known; 4] =
    [Known::XForwardedFor, Known::XForwardedProto, Known::XForwardedHost, Known::XForwardedClientCert];

impl ExtAuth {
    /// Checks a request at `upstream`, the upstream of this name. Returns the fields that the origin gets of a consent. `own` stands in
    /// the response to a request that may not go on.
    ///
    /// # Errors
    /// The response for the client.
    pub(crate) async fn authorize(
        &self,
        metrics: &ListenerMetrics,
        upstream: Option<&Rc<HttpUpstream>>,
        head: &RequestHead,
        (forwarded, client): (ForwardedFields, &Forwarded<'_>),
        own: &Fields,
    ) -> Result<Fields, LocalReply> {
        let Some(check) = self.check(head, forwarded, client) else { return Err(Refusal::HOST.into()) };
        let mut body = BodyCopy::new(BODY_BYTES_MAX);
        let response = match upstream {
            Some(upstream) => {
                let host = self.host.as_deref().map_or(head.authority(), str::as_bytes);
                Subrequest::within(self.timeout, &check, host, b"").send(metrics, upstream, &mut body).await
            }
            None => Err(SubrequestError::Unreachable),
        };
        match response {
            Ok(response) if (200..300).contains(&response.head.status()) => {
                Ok(self.allowed_fields(&response.head.fields))
            }
            Ok(response) if response.head.status() < 500 => {
                metrics.denied("ext_auth_denied");
                // A page that is too long, or not whole, is left out; the no stands.
                let page = body.take().filter(|_| response.is_whole).unwrap_or_default();
                Err(refusal(response.head, page, own))
            }
            // A failure of the service itself is nothing for clients.
            _ if self.fails_open => {
                metrics.denied("ext_auth_open");
                Ok(Fields::new())
            }
            _ => {
                metrics.denied(Refusal::EXT_AUTH_FAILED.reason);
                Err(Refusal::EXT_AUTH_FAILED.into())
            }
        }
    }

    /// The head of the check.
    fn check(&self, head: &RequestHead, forwarded: ForwardedFields, client: &Forwarded<'_>) -> Option<RequestHead> {
        let mut fields = Fields::new();
        for field in head.fields.iter() {
            let is_listed =
                |names: &Vec<Box<str>>| names.iter().any(|name| field.name.eq_ignore_ascii_case(name.as_bytes()));
            let is_shown = self.request_fields.as_ref().is_none_or(is_listed) || FORWARDED.contains(&field.known);
            if is_shown && !NOT_SHOWN.iter().any(|name| field.name.eq_ignore_ascii_case(name)) {
                fields.push(field.name, field.value);
            }
        }
        let own = if head.target() == b"*" { b"/" } else { head.target() };
        let target = self.path.as_deref().map_or(own, str::as_bytes);
        let line = (&b"GET"[..], target, head.authority());
        let limits = HeadLimits::default();
        let mut check = RequestHead::from_parts(Version::Http11, line, fields, true, &limits).ok()?;
        forward::request(&mut check, forwarded, client);
        // In every spelling: many services take `_` for `-`.
        forward::remove_fields(&SET_BY_GATEWAY.map(Into::into), &mut check.fields);
        check.fields.set_named(b"X-Forwarded-Method", head.method());
        check.fields.set_named(b"X-Forwarded-Uri", head.target());
        Some(check)
    }

    /// The fields of a consent that the origin gets.
    fn allowed_fields(&self, response: &Fields) -> Fields {
        let mut allowed = Fields::new();
        for name in &self.response_fields {
            response.all_named(name.as_bytes()).for_each(|value| allowed.push(name.as_bytes(), value));
        }
        allowed
    }

    /// Puts what the service said in place of what the client did.
    pub(crate) fn apply(&self, allowed: &Fields, fields: &mut Fields) {
        for name in &self.response_fields {
            fields.remove_named(name.as_bytes());
        }
        allowed.iter().for_each(|field| fields.push(field.name, field.value));
    }
}

/// The response of the service, for the client.
fn refusal(mut response: ResponseHead, body: Vec<u8>, own: &Fields) -> LocalReply {
    let content_type = response.fields.get(Known::ContentType).unwrap_or_default();
    let denied = LocalResponse::new(response.status(), String::from_utf8_lossy(content_type).as_bytes(), body);
    strip_hop_by_hop(&mut response.fields);
    response.fields.remove(Known::ContentLength);
    response.fields.remove(Known::ContentType);
    let mut fields = response.fields;
    for field in own.iter() {
        match field.known {
            // Both depend on it.
            Known::Vary => fields.push(field.name, field.value),
            _ => fields.set_named(field.name, field.value),
        }
    }
    LocalReply::Response(Box::new(denied.with(&fields)))
}
