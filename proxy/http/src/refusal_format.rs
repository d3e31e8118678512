//! The form of refusals: an API gives its clients errors of one shape, wherever they come from.

use std::fmt;

use bytes::Bytes;
use weir_http_codec::Fields;

/// Formats the refusals of a listener: of malformed requests, limits, policies, missing routes, and origins that fail. Shared by all
/// workers; called on the worker of the exchange, and must not block. Calls of gRPC keep a form of their own. Connections that
/// are refused before HTTP begins, configured responses, redirects and injected faults have no other form.
pub trait RefusalFormat: fmt::Debug + Send + Sync {
    /// The form of one refusal.
    fn format(&self, facts: &RefusalFacts) -> FormattedRefusal;

    /// The format for requests with this target, if APIs of several shapes share the listener. It is that of refusals before the request
    /// has a filter. `None`: this one.
    fn for_target(&self, _target: &[u8]) -> Option<&'static dyn RefusalFormat> {
        None
    }
}

/// The facts of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalFacts {
    /// The status of the response.
    pub status: u16,
    /// The word of the access log.
    pub reason: &'static str,
    /// A text for the client, without internal names.
    pub text: &'static str,
    /// Seconds of the Retry-After that the response has.
    pub retry_after: Option<u64>,
}

/// The form of a refusal. Fields that the response has without it stay: Date, Allow, Retry-After, those of policies.
#[derive(Clone, Debug)]
pub struct FormattedRefusal {
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// Further fields, except those of the framing. A field takes the place of those that have its name.
    pub fields: Fields,
}
