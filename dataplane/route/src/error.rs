//! Mistakes in a route. The configuration is to blame; the messages are for who wrote it.

use std::fmt;

use weir_analysis::http::{host::HostError, path::PathError};

/// Why a route cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// No host.
    Host {
        /// As it was written.
        text: String,
        /// Why the host was refused.
        why: HostError,
    },
    /// A host with a port: routes are chosen by name.
    HostPort(String),
    /// A host with a dot at its end.
    HostTrailingDot(String),
    /// `*` anywhere but as the whole first label.
    Wildcard(String),
    /// No path.
    Path {
        /// As it was written.
        text: String,
        /// Why the path was refused.
        why: PathError,
    },
    /// A path that no request can have after normalisation.
    PathForm {
        /// As it was written.
        text: String,
        /// As requests have it.
        form: String,
    },
    /// No regex, or one over the limits.
    Regex {
        /// As it was written.
        text: String,
        /// In the words of the engine.
        why: String,
    },
    /// No method (RFC 9110 9.1).
    Method(String),
    /// No field name (RFC 9110 5.1).
    HeaderName(String),
    /// `missing_as_empty` without a negation, or with a question for presence.
    MissingAsEmpty(String),
    /// A replacement names a group that its regex does not have.
    Group {
        /// The replacement.
        text: String,
        /// The group.
        group: String,
    },
    /// `$` in a replacement without a group behind it.
    Dollar(String),
    /// A replacement or a host that cannot be part of a target.
    Replacement(String),
    /// A prefix rewrite on a route that has no prefix.
    NoPrefix(String),
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { text, why } => write!(f, "`{text}` is no host: {why}"),
            Self::HostPort(text) => write!(f, "`{text}` has a port: routes are chosen by name alone, leave it out"),
            Self::HostTrailingDot(text) => {
                write!(f, "`{text}` ends with a dot: leave it out, and let the listener strip it from requests")
            }
            Self::Wildcard(text) => {
                write!(f, "`{text}`: `*` stands alone or as the whole first label: `*.example.com`")
            }
            Self::Path { text, why } => write!(f, "`{text}` is no path: {why}"),
            Self::PathForm { text, form } => {
                write!(f, "`{text}` matches nothing, because paths are normalised first: write `{form}`")
            }
            Self::Regex { text, why } => write!(f, "`{text}` is no regex: {why}"),
            Self::Method(text) => write!(f, "`{text}` is no method"),
            Self::HeaderName(text) => write!(f, "`{text}` is no header name"),
            Self::MissingAsEmpty(name) => {
                write!(f, "header `{name}`: a missing header counts as empty only where the condition is negated")
            }
            Self::Group { text, group } => write!(f, "`{text}`: the regex has no group `{group}`"),
            Self::Dollar(text) => write!(f, "`{text}`: write `$1` or `${{name}}` for a group, `$$` for a dollar sign"),
            Self::Replacement(text) => write!(f, "`{text}` cannot be part of a target"),
            Self::NoPrefix(path) => write!(f, "a prefix is replaced only on a route with a prefix; this has `{path}`"),
        }
    }
}

impl std::error::Error for RouteError {}
