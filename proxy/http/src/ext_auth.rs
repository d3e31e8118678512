//! Another service decides on requests: it is shown the head of each, and what it answers is the answer, or leave to go on.
//!
//! The request is told as forward authentication is elsewhere (Traefik's `forwardAuth`, Caddy's `forward_auth`): GET, the fields of
//! the request, and the request line in X-Forwarded-Method and X-Forwarded-Uri.

use std::{sync::Arc, time::Duration};

use weir_http_codec::{Fields, HeadLimits, Known, RequestHead, ResponseHead, Version, strip_hop_by_hop};

use crate::{
    connection::Connection,
    exchange::Asked,
    forward, policies,
    refusal::Refusal,
    relay::Copied,
    routes::DirectResponse,
    routing::{Local, own_fields},
    service::Routing,
    settings::HttpListenerSettings,
    subrequest::{Subrequest, Unanswered},
};

/// How long the service may take for all of its answer. Default 200 ms, as Envoy's `ext_authz`.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// Bytes of the body of a refusal: a page that says where to log in has less.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// The service, and what it is told and tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtAuth {
    /// The upstream that is asked.
    pub upstream: Arc<str>,
    /// The path that is asked for. `None`: that of the request, with its query.
    pub path: Option<Box<str>>,
    /// The Host of the check. `None`: that of the request.
    pub host: Option<Box<str>>,
    /// Fields of the request that the service is shown. `None`: all.
    pub request_fields: Option<Vec<Box<str>>>,
    /// Fields of a consent that the origin gets, in place of what the client sent under these names.
    pub response_fields: Vec<Box<str>>,
    /// See [`TIMEOUT`].
    pub timeout: Duration,
    /// A request that could not be judged goes on.
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

/// What only the gateway says.
const TOLD: [&str; 2] = ["x-forwarded-method", "x-forwarded-uri"];

/// What trusted proxies tell of clients.
const FORWARDED: [Known; 4] =
    [Known::XForwardedFor, Known::XForwardedProto, Known::XForwardedHost, Known::XForwardedClientCert];

impl ExtAuth {
    /// Has a request judged. What the origin is told of it, if it may go on.
    ///
    /// # Errors
    /// The answer for the client.
    pub(crate) async fn ask(
        &self,
        connection: &Connection,
        routing: &Routing,
        head: &RequestHead,
        asked: &Asked,
    ) -> Result<Fields, Local> {
        let service = &connection.service;
        let settings = service.http();
        let Some(check) = self.check(connection, head, &settings) else { return Err(Local::Refused(Refusal::HOST)) };
        let mut body = Copied::new(BODY_BYTES_MAX);
        let answer = match routing.upstream(&self.upstream) {
            Some(upstream) => {
                let host = self.host.as_deref().map_or(head.authority(), str::as_bytes);
                let (timeout, limit) = (self.timeout, Some(self.timeout));
                let request =
                    Subrequest { head: &check, host, body: b"", is_head: false, timeout, idle_timeout: timeout, limit };
                request.ask(service, upstream, &mut body).await
            }
            None => Err(Unanswered::Unreachable),
        };
        match answer {
            Ok(answer) if (200..300).contains(&answer.head.status()) => Ok(self.told(&answer.head.fields)),
            Ok(answer) if answer.head.status() < 500 => {
                service.metrics.denied("ext_auth_denied");
                // A page that is too long, or not whole, is left out; the no stands.
                let page = body.take().filter(|_| answer.is_whole).unwrap_or_default();
                Err(refusal(answer.head, page, asked))
            }
            // What the service answers to its own troubles is nothing for clients.
            _ if self.fails_open => {
                service.metrics.denied("ext_auth_open");
                Ok(Fields::new())
            }
            _ => {
                service.metrics.denied(Refusal::EXT_AUTH_FAILED.reason);
                Err(Local::Refused(Refusal::EXT_AUTH_FAILED))
            }
        }
    }

    /// The head of the check.
    fn check(
        &self,
        connection: &Connection,
        head: &RequestHead,
        settings: &HttpListenerSettings,
    ) -> Option<RequestHead> {
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
        forward::request(&mut check, settings.forwarded, &connection.forwarded());
        // In every spelling: many services take `_` for `-`.
        policies::clean(&TOLD.map(Into::into), &mut check.fields);
        check.fields.set_named(b"X-Forwarded-Method", head.method());
        check.fields.set_named(b"X-Forwarded-Uri", head.target());
        Some(check)
    }

    /// What of a consent the origin gets.
    fn told(&self, answered: &Fields) -> Fields {
        let mut told = Fields::new();
        for name in &self.response_fields {
            answered.all_named(name.as_bytes()).for_each(|value| told.push(name.as_bytes(), value));
        }
        told
    }

    /// Puts what the service said in place of what the client did.
    pub(crate) fn tell(&self, told: &Fields, fields: &mut Fields) {
        for name in &self.response_fields {
            fields.remove_named(name.as_bytes());
        }
        told.iter().for_each(|field| fields.push(field.name, field.value));
    }
}

/// What the service answered, for the client.
fn refusal(mut answer: ResponseHead, body: Vec<u8>, asked: &Asked) -> Local {
    let status = answer.status();
    let content_type = answer.fields.get(Known::ContentType).unwrap_or_default();
    let content_type = String::from_utf8_lossy(content_type).into_owned();
    strip_hop_by_hop(&mut answer.fields);
    answer.fields.remove(Known::ContentLength);
    answer.fields.remove(Known::ContentType);
    let mut fields = answer.fields;
    for field in own_fields(asked).iter() {
        match field.known {
            // What both depend on.
            Known::Vary => fields.push(field.name, field.value),
            _ => fields.set_named(field.name, field.value),
        }
    }
    Local::Direct(Arc::new(DirectResponse { status, content_type, body }), fields)
}
