//! Keys of `[listener.http]` that a domain or a route overrides, each declared once; and what routes do with requests and
//! responses on their way.

use std::sync::Arc;

use weir_base::ByteSize;
use weir_http::compression::{self, Coding, Compression};
use weir_http::cookies::CookieChange;
use weir_http::retry::RetryCause;
use weir_http::routes::{Action, FieldChange};
use weir_http::settings::{self as http, RetrySettings, Upgrades};
use weir_http_codec::{Known, token};
use weir_route::variables::{Side, Template};

use super::checks::valid;
use super::route::{ChangeKind, CookieSection, FieldSection};
use crate::checks::error_at;
use crate::document::At;
use crate::numbers::Period;
use crate::reader::Reader;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN};
use crate::texts::{Choice, Word};

/// Longest deadline.
pub(super) const DEADLINE_MAX: Period = Period::secs(86_400);

/// Declares the keys in both of their forms: of domains and routes, where absence means that what is outside holds, and of
/// listeners, with a default and a text of their own.
macro_rules! overridable {
    ($(
        $(#[doc = $doc:literal])+
        $presence:ident $key:ident : $ty:ty $(=> $range:expr)?;
        listener $outermost:ident $(= $default:expr)?, $text:literal;
    )+) => {
        section! {
            /// The handling of requests and responses by a domain or a route.
            pub(crate) struct Handling {
                /// Changes to the headers of requests to upstreams, in order.
                tables request_header: FieldSection;
                /// Changes to the headers of responses to clients, in order.
                tables response_header: FieldSection;
                /// Changes to cookies that upstreams set.
                tables cookie: CookieSection;
                $( $(#[doc = $doc])+ $presence $key: $ty $(=> $range)?; )+
            }
        }

        section! {
            /// The same of a listener.
            pub(crate) struct ListenerHandling {
                $( #[doc = $text] $outermost $key: $ty $(= $default)? $(=> $range)?; )+
            }
        }
    };
}

overridable! {
    /// Maximum time from the end of a request to the head of its response.
    optional response_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
    listener default = Period(http::RESPONSE_TIMEOUT),
        "Maximum time from the end of a request to the head of its response. Then the gateway responds with 504.";

    /// Maximum time from the head of a request to the end of its response. Does not apply to WebSockets.
    optional request_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
    listener optional,
        "Maximum time from the head of a request to the end of its response. Then the gateway responds with 504, or aborts a \
         response that has begun. Does not apply to gRPC calls and WebSockets. If absent, there is no limit.";

    /// Maximum pause within a request body.
    optional body_idle_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
    listener default = Period(http::BODY_IDLE_TIMEOUT),
        "Maximum pause within a request body. Applies to routes without a value of their own.";

    /// Minimum rate of a request body in bytes per second. 0 disables the limit.
    optional body_rate_min: u32 => 0..=COUNT_MAX;
    listener default = http::BODY_RATE_MIN as u32,
        "Minimum rate of a request body in bytes per second, from its first byte on, over 10 s in which the gateway waits for \
         data. A slower request gets 408. 0 disables the limit. Does not apply to gRPC calls.";

    /// Size up to which the gateway reads a request body before it connects to an endpoint, so that slow clients occupy no
    /// connection. The rest of a longer body is forwarded as it arrives. 0 forwards bodies from the first byte on, for clients
    /// that need part of the response before they send the rest.
    optional request_buffer_bytes: ByteSize => ByteSize::new(0)..=ByteSize::mib(64);
    listener optional,
        "Size up to which the gateway reads a request body before it connects to an endpoint, so that slow clients occupy no \
         connection. The rest of a longer body is forwarded as it arrives. 0 forwards bodies from the first byte on, for clients \
         that need part of the response before they send the rest. Does not apply to gRPC calls. If absent, 1MiB for HTTP/1.1 \
         upstreams, and 0 for HTTP/2 upstreams. Buffered bodies take at most half of `limits.buffered_bytes`.";

    /// Maximum pause within a response body.
    optional response_idle_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
    listener default = Period(http::RESPONSE_IDLE_TIMEOUT),
        "Maximum pause within a response body; event streams and long polls can be silent for minutes. Applies to routes without \
         a value of their own.";

    /// Compression of responses.
    optional_table compression: CompressionSection;
    listener optional_table,
        "Compression of responses. Applies to routes without a table of their own. If absent, responses are not compressed.";

    /// Retries of failed requests on another endpoint.
    optional_table retry: RetrySection;
    listener table,
        "Retries of failed requests on another endpoint. Applies to routes without a table of their own.";

    /// Maximum size of a request body. A longer body gets 413. 0 disables the limit.
    optional request_body_bytes_max: ByteSize => ByteSize::new(0)..=ByteSize::mib(1 << 20);
    listener optional,
        "Maximum size of a request body. A longer body gets 413. 0 disables the limit. If absent, 1GiB, and no limit for gRPC \
         calls.";

    /// Protocols that client connections may be upgraded to if the upstream agrees: `["websocket"]`, or `[]` for none.
    optional upgrades: Vec<At<Upgrade>>;
    listener optional,
        "Protocols that client connections may be upgraded to if the upstream agrees: `[\"websocket\"]`. Applies to routes without \
         a value of their own. If absent, none.";
}

impl Handling {
    /// Puts what is written into `action`, in place of what it has from outside; mistakes are reported.
    pub(super) fn give(&self, action: &mut Action, path: &str, reader: &mut Reader<'_>) {
        let mut give_fields = |sections: &[FieldSection], key: &str, side: Side, fields: &mut Vec<FieldChange>| {
            let own = sections.iter().filter_map(|section| change(section, path, key, side, reader));
            put_list(own.collect(), fields);
        };
        give_fields(&self.request_header, "request_header", Side::Request, &mut action.request_fields);
        give_fields(&self.response_header, "response_header", Side::Response, &mut action.response_fields);
        put_list(self.cookie.iter().filter_map(cookie).collect(), &mut action.cookies);
        put(&self.response_timeout, &mut action.response_timeout, |timeout| timeout.0);
        put(&self.request_timeout, &mut action.request_timeout, |timeout| timeout.0);
        put(&self.body_idle_timeout, &mut action.body_idle_timeout, |timeout| timeout.0);
        put(&self.response_idle_timeout, &mut action.response_idle_timeout, |timeout| timeout.0);
        put(&self.body_rate_min, &mut action.body_rate_min, |rate| u64::from(*rate));
        put(&self.request_buffer_bytes, &mut action.request_buffer_bytes, |bytes| bytes.bytes());
        put(&self.request_body_bytes_max, &mut action.request_body_bytes_max, |bytes| bytes.bytes());
        put(&self.upgrades, &mut action.upgrades, |list| upgrades(list));
        if let Some(retry) = &self.retry {
            action.retry = Some(Box::new(retry.settings(&format!("{path}.retry"), reader)));
        }
        if let Some(compression) = &self.compression {
            action.compression = Some(compression.settings());
        }
    }
}

/// A value that is written stands in place of the one from outside.
fn put<T, S>(own: &Option<At<T>>, there: &mut Option<S>, settings: impl FnOnce(&T) -> S) {
    if let Some(own) = own {
        *there = Some(settings(&own.value));
    }
}

/// So does a list, as a whole.
fn put_list<T>(own: Vec<T>, there: &mut Vec<T>) {
    if !own.is_empty() {
        *there = own;
    }
}

fn cookie(section: &CookieSection) -> Option<CookieChange> {
    Some(CookieChange {
        name: section.name.as_ref()?.value.0.as_str().into(),
        path: section.path.as_ref().map(|path| path.value.0.as_str().into()),
        domain: section.domain.as_ref().map(|domain| domain.value.0.as_str().into()),
        secure: section.secure.as_ref().map(|secure| secure.value),
        same_site: section.same_site.as_ref().map(|same_site| same_site.value.attribute()),
    })
}

fn change(section: &FieldSection, path: &str, key: &str, side: Side, reader: &mut Reader<'_>) -> Option<FieldChange> {
    let name = section.name.as_ref()?;
    let (name_key, value_key) = (format!("{key}.name"), format!("{key}.value"));
    if !token::is_token(name.value.0.as_bytes()) {
        error_at(name, path, &name_key, "is not a field name", "use letters, digits and hyphens", reader);
        return None;
    }
    if is_framing(&name.value.0) {
        let help = "remove it; to change the host, use rewrite.host";
        error_at(name, path, &name_key, "is a field that only the gateway itself may set", help, reader);
        return None;
    }
    let own: Box<str> = name.value.0.as_str().into();
    match (section.change.value, &section.value) {
        (ChangeKind::Remove, None) => Some(FieldChange::Remove(own)),
        (ChangeKind::Remove, Some(value)) => {
            error_at(value, path, &value_key, "is not needed to remove a field", "remove it", reader);
            None
        }
        (kind, Some(value)) => {
            let template = valid(value, path, &value_key, Template::parse(&value.value.0, side), reader)?;
            Some(match kind {
                ChangeKind::Add => FieldChange::Add(own, template),
                _ => FieldChange::Set(own, template),
            })
        }
        (_, None) => {
            error_at(name, path, &name_key, "has no value", "add value, or change = \"remove\"", reader);
            None
        }
    }
}

/// Fields that only the gateway itself may write.
pub(crate) fn is_framing(name: &str) -> bool {
    matches!(
        Known::of(name.as_bytes()),
        Known::Host
            | Known::ContentLength
            | Known::TransferEncoding
            | Known::Connection
            | Known::Upgrade
            | Known::Te
            | Known::Trailer
            | Known::KeepAlive
            | Known::ProxyConnection
    )
}

/// The upgrades that connections of a listener or a route may request.
pub(super) fn upgrades(written: &[At<Upgrade>]) -> Upgrades {
    Upgrades { websocket: written.iter().any(|upgrade| upgrade.value == Upgrade::WebSocket) }
}

section! {
    /// Retries of failed requests on another endpoint. No request is retried after part of a response was sent to the client.
    pub(crate) struct RetrySection {
        /// Maximum retries. In addition, a request that no server has processed goes once to each other endpoint, and once to
        /// another connection if its own connection drains (GOAWAY), provided that `on` has the failure. A GET, HEAD or OPTIONS
        /// request whose fresh connection ends without a response goes to another endpoint once. 0 disables all of these.
        default attempts: u32 = http::RETRY_ATTEMPTS => 0..=10;
        /// Failures that are retried: `connect_failure` (the request was not sent), `refused_stream` (HTTP/2: the server has not
        /// begun to process the request), `reset` (the connection ended without a response), `timeout`, `gateway_error` (502, 503,
        /// 504), `5xx`. The last four apply only to idempotent requests: GET, HEAD, OPTIONS, PUT, DELETE. If absent,
        /// `connect_failure` and `refused_stream`.
        optional on: Vec<At<RetryOn>>;
        /// Further statuses (400 to 599) that are retried, under the same conditions as `5xx`. A response with Retry-After is not
        /// retried.
        optional statuses: Vec<At<u32>>;
        /// Also retry requests of other methods, although a server may have processed them.
        default non_idempotent: bool = false;
        /// Maximum time from the end of a request to the head of its response, for each attempt except the last. Requires `timeout`
        /// in `on`. If absent, `response_timeout`.
        optional try_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
        /// Maximum size of a request body that is kept for a retry, where `on` or `statuses` may need it. A longer body is not sent
        /// again once a server has received part of it, unless `request_buffer_bytes` covers the whole body. Does not apply to gRPC
        /// calls.
        default body_bytes_max: ByteSize = ByteSize::new(http::RETRY_BODY_BYTES_MAX as u64) => ByteSize::new(0)..=ByteSize::mib(16);
    }
}

section! {
    /// Compression of responses for clients that accept it. Do not compress responses that contain both secrets and input of
    /// others, because their size can reveal the secrets (BREACH). A table of a route replaces that of its domain or listener.
    pub(crate) struct CompressionSection {
        /// `false` on a domain or route disables inherited compression.
        default enabled: bool = true;
        /// `zstd`, `br`, `gzip`, in order of preference. Among the codings that a client weights highest, the first is used. If
        /// absent, all in this order.
        optional codings: Vec<At<Coding>>;
        /// Minimum size of a response to compress. Responses of unknown length are compressed too.
        default bytes_min: ByteSize = ByteSize::new(compression::BYTES_MIN) => ByteSize::new(0)..=ByteSize::mib(1 << 20);
        /// Media types that are compressed. A `*` at the end matches any rest, as in `text/*`. If absent, text, JSON, JavaScript,
        /// XML, WebAssembly and SVG. Event streams are never compressed.
        optional types: Vec<At<Word>>;
    }
}

impl CompressionSection {
    pub(crate) fn settings(&self) -> Arc<Compression> {
        let codings = match &self.codings {
            _ if !self.enabled.value => Vec::new(),
            Some(written) => written.value.iter().map(|coding| coding.value).collect(),
            None => Coding::ALL.to_vec(),
        };
        let types = match &self.types {
            Some(written) => written.value.iter().map(|one| one.value.0.to_ascii_lowercase().into()).collect(),
            None => compression::TYPES.map(Into::into).to_vec(),
        };
        Arc::new(Compression { codings, bytes_min: self.bytes_min.value.bytes(), types })
    }
}

impl RetrySection {
    pub(crate) fn settings(&self, path: &str, reader: &mut Reader<'_>) -> RetrySettings {
        let mut settings = RetrySettings {
            attempts: self.attempts.value,
            non_idempotent: self.non_idempotent.value,
            try_timeout: self.try_timeout.as_ref().map(|timeout| timeout.value.0),
            body_bytes_max: self.body_bytes_max.value.bytes() as usize,
            ..RetrySettings::default()
        };
        if let Some(on) = &self.on {
            settings.on.clear();
            for one in &on.value {
                match one.value {
                    RetryOn::Cause(class) => settings.on.push(class),
                    RetryOn::GatewayError => settings.on_gateway_error = true,
                    RetryOn::Any5xx => settings.on_5xx = true,
                }
            }
        }
        for status in self.statuses.iter().flat_map(|list| &list.value) {
            match u16::try_from(status.value).ok().filter(|status| (400..=599).contains(status)) {
                Some(status) => settings.statuses.push(status),
                None => error_at(
                    status,
                    path,
                    "statuses",
                    "is not an error status",
                    "write statuses from 400 to 599",
                    reader,
                ),
            }
        }
        settings
    }
}

/// A cause of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryOn {
    Cause(RetryCause),
    GatewayError,
    Any5xx,
}

impl Choice for RetryOn {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("connect_failure", Self::Cause(RetryCause::ConnectFailure)),
        ("refused_stream", Self::Cause(RetryCause::RefusedStream)),
        ("reset", Self::Cause(RetryCause::Reset)),
        ("timeout", Self::Cause(RetryCause::Timeout)),
        ("gateway_error", Self::GatewayError),
        ("5xx", Self::Any5xx),
    ];
}

impl Choice for Coding {
    const WORDS: &'static [(&'static str, Self)] = &[("zstd", Self::Zstd), ("br", Self::Brotli), ("gzip", Self::Gzip)];
}

/// The protocols that a connection may change to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    WebSocket,
}

impl Choice for Upgrade {
    const WORDS: &'static [(&'static str, Self)] = &[("websocket", Self::WebSocket)];
}
