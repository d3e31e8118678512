//! Which pages of other origins may read responses (Fetch standard, "CORS protocol").

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use weir_http_codec::{Fields, Known, RequestHead, token};

use super::refusal::Refusal;

/// Origins of one policy. Default 1,024; who has more has a pattern.
pub const ORIGINS_MAX: usize = 1_024;

/// Entries of a list of methods or headers. Default 128.
pub const LIST_ENTRIES_MAX: usize = 128;

/// Bytes of a regex as it is written. Default 4 KiB, as for routes.
const REGEX_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a compiled regex, and of the states that are kept of it. Default 1 MiB, as for routes.
const REGEX_PROGRAM_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of an Origin that is looked at: a scheme, a host of 253 bytes and a port have fewer.
const ORIGIN_BYTES_MAX: usize = 512;

const ALLOW_ORIGIN: &[u8] = b"access-control-allow-origin";
const ALLOW_CREDENTIALS: &[u8] = b"access-control-allow-credentials";
const ALLOW_METHODS: &[u8] = b"access-control-allow-methods";
const ALLOW_HEADERS: &[u8] = b"access-control-allow-headers";
const ALLOW_PRIVATE_NETWORK: &[u8] = b"access-control-allow-private-network";
const EXPOSE_HEADERS: &[u8] = b"access-control-expose-headers";
const MAX_AGE: &[u8] = b"access-control-max-age";
const REQUEST_PRIVATE_NETWORK: &[u8] = b"access-control-request-private-network";
/// The fields that decide about the response to a preflight, for caches.
const VARY_PREFLIGHT: &[u8] =
    b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network";

/// Pages that may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginRule {
    /// Every page. Not together with credentials.
    Any,
    /// `https://app.example.com`, or `null`.
    Exact(String),
    /// Those whose whole origin matches this regex. Linear time, ASCII classes.
    Regex(String),
}

/// A policy as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsSettings {
    /// At least one.
    pub origins: Vec<OriginRule>,
    /// Methods beside GET, HEAD and POST, which are always allowed.
    pub methods: Vec<String>,
    /// Request headers that pages may set.
    pub headers: Vec<String>,
    /// Response headers that pages may read.
    pub expose: Vec<String>,
    /// Seconds for which a browser may keep the response to a preflight. `None`: its own default, 5 s.
    pub max_age: Option<u32>,
    /// Pages may send cookies and read the response.
    pub credentials: bool,
    /// Pages of public networks may reach this one in a private network (Private Network Access).
    pub private_network: bool,
}

/// A policy, compiled.
#[derive(Clone, Debug)]
pub struct Cors {
    any: bool,
    exact: Box<[Box<[u8]>]>,
    regexes: Box<[Regex]>,
    methods: Box<[u8]>,
    headers: Box<[u8]>,
    expose: Box<[u8]>,
    max_age: Option<Box<[u8]>>,
    credentials: bool,
    private_network: bool,
}

/// The response to a preflight: status 204 and these fields. It is never forwarded.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// The page has leave. Else the fields give none, and the browser does not send its request.
    pub is_allowed: bool,
    /// Fields of the response.
    pub fields: Fields,
}

impl From<Preflight> for Refusal {
    /// As any other response of the gateway's own.
    fn from(preflight: Preflight) -> Self {
        let reason = if preflight.is_allowed { "cors_preflight" } else { "cors_origin_denied" };
        Self { status: 204, reason, fields: preflight.fields }
    }
}

/// Whether a browser asks if it may send a request: OPTIONS with Origin and Access-Control-Request-Method.
pub fn is_preflight(head: &RequestHead) -> bool {
    head.method() == b"OPTIONS" && head.fields.has(Known::Origin) && head.fields.has(Known::AccessControlRequestMethod)
}

impl Cors {
    /// Compiles a policy.
    ///
    /// # Errors
    /// Settings that cannot work, with the remedy.
    pub fn new(settings: &CorsSettings) -> Result<Self, CorsError> {
        if settings.origins.is_empty() {
            return Err(CorsError::NoOrigins);
        }
        if settings.origins.len() > ORIGINS_MAX {
            return Err(CorsError::TooMany { what: "origins", count: settings.origins.len(), most: ORIGINS_MAX });
        }
        let (mut any, mut exact, mut regexes) = (false, Vec::new(), Vec::new());
        for origin in &settings.origins {
            match origin {
                OriginRule::Any => any = true,
                OriginRule::Exact(text) => exact.push(checked_origin(text)?),
                OriginRule::Regex(text) => regexes.push(whole(text)?),
            }
        }
        let joined = |what, list: &[String]| join(what, list, settings.credentials);
        if any && settings.credentials {
            return Err(CorsError::AnyWithCredentials("origins"));
        }
        exact.sort_unstable();
        Ok(Self {
            any,
            exact: exact.into(),
            regexes: regexes.into(),
            methods: joined("methods", &settings.methods)?,
            headers: joined("headers", &settings.headers)?,
            expose: joined("expose", &settings.expose)?,
            max_age: settings.max_age.map(|seconds| seconds.to_string().into_bytes().into()),
            credentials: settings.credentials,
            private_network: settings.private_network,
        })
    }

    /// The response to `head` if it is a preflight, of an origin with leave or without.
    pub fn preflight(&self, head: &RequestHead) -> Option<Preflight> {
        if !is_preflight(head) {
            return None;
        }
        let mut fields = Fields::new();
        let origin = self.allowed(origin_of(&head.fields));
        if let Some(origin) = origin {
            self.push_leave(origin, &mut fields);
            let mut push = |name: &[u8], value: &[u8]| {
                if !value.is_empty() {
                    fields.push(name, value);
                }
            };
            push(ALLOW_METHODS, &self.methods);
            push(ALLOW_HEADERS, &self.headers);
            push(MAX_AGE, self.max_age.as_deref().unwrap_or_default());
            if self.private_network && head.fields.all_named(REQUEST_PRIVATE_NETWORK).any(|value| value == b"true") {
                push(ALLOW_PRIVATE_NETWORK, b"true");
            }
        }
        fields.add(Known::Vary, VARY_PREFLIGHT);
        Some(Preflight { is_allowed: origin.is_some(), fields })
    }

    /// Replaces the CORS fields of a response by those of this policy. Those of the origin server about other origins are
    /// removed: browsers reject two responses, and the server's permission would be wider than the policy. `request` are the
    /// fields of the request.
    pub fn apply(&self, request: &Fields, response: &mut Fields) {
        for name in [ALLOW_ORIGIN, ALLOW_CREDENTIALS, EXPOSE_HEADERS] {
            response.remove_named(name);
        }
        if let Some(origin) = self.allowed(origin_of(request)) {
            self.push_leave(origin, response);
            if !self.expose.is_empty() {
                response.push(EXPOSE_HEADERS, &self.expose);
            }
        }
        // Also for a request without Origin: its response may be kept, and must not be given to a page.
        if !self.any && !varies_by_origin(response) {
            response.add(Known::Vary, b"Origin");
        }
    }

    /// The allowed origin for the response to a page of this origin, if it has permission.
    fn allowed<'a>(&self, origin: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let origin = origin.filter(|origin| origin.len() <= ORIGIN_BYTES_MAX)?;
        if self.any {
            return Some(b"*");
        }
        let is_exact = self.exact.binary_search_by(|known| (**known).cmp(origin)).is_ok();
        (is_exact || self.regexes.iter().any(|regex| regex.is_match(origin))).then_some(origin)
    }

    fn push_leave(&self, origin: &[u8], fields: &mut Fields) {
        fields.push(ALLOW_ORIGIN, origin);
        if self.credentials {
            fields.push(ALLOW_CREDENTIALS, b"true");
        }
    }
}

/// The Origin of a request; none if there are several, for no browser sends that.
fn origin_of(fields: &Fields) -> Option<&[u8]> {
    let mut lines = fields.all(Known::Origin);
    let first = lines.next().filter(|origin| !origin.is_empty())?;
    lines.next().is_none().then_some(first)
}

fn varies_by_origin(response: &Fields) -> bool {
    let mut names = response.all(Known::Vary).flat_map(token::list);
    names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
}

/// An origin as browsers send it: lower case, no path, no default port (WHATWG HTML, "ASCII serialization of an origin").
fn checked_origin(text: &str) -> Result<Box<[u8]>, CorsError> {
    let error = |why| CorsError::Origin { text: text.chars().take(128).collect(), why };
    if text == "null" {
        return Ok(text.as_bytes().into());
    }
    if text == "*" {
        return Err(error("`*` is the rule for any origin, not an exact one"));
    }
    let Some((scheme, authority)) = text.split_once("://") else {
        return Err(error("it has no scheme: write `https://host`"));
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'#' | b'@' | b',' | b'\\');
    if authority.contains('/') {
        return Err(error("an origin has no path: leave out what begins at the slash"));
    }
    if scheme.is_empty() || authority.is_empty() || text.len() > ORIGIN_BYTES_MAX || !text.bytes().all(is_plain) {
        return Err(error("it is not `scheme://host` or `scheme://host:port`; patterns are written as a regex"));
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(error("browsers send origins in lower case: write it so"));
    }
    let default_port = [("http", ":80"), ("https", ":443")];
    if default_port.iter().any(|(name, port)| scheme == *name && authority.ends_with(port)) {
        return Err(error("browsers leave the default port out: leave it out"));
    }
    Ok(text.as_bytes().into())
}

/// A regex for the whole of an origin.
fn whole(text: &str) -> Result<Regex, CorsError> {
    let error = |why: String| CorsError::Regex { text: text.chars().take(128).collect(), why };
    if text.len() > REGEX_BYTES_MAX {
        return Err(error(format!("it has more than {REGEX_BYTES_MAX} bytes")));
    }
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(REGEX_PROGRAM_BYTES_MAX)
            .dfa_size_limit(REGEX_PROGRAM_BYTES_MAX)
            .build()
            .map_err(|why| error(why.to_string()))
    };
    // Alone first: `a)|(?:b` is no regex, but would be one between parentheses.
    compile(text)?;
    compile(&format!(r"\A(?:{text})\z"))
}

fn join(what: &'static str, list: &[String], credentials: bool) -> Result<Box<[u8]>, CorsError> {
    if list.len() > LIST_ENTRIES_MAX {
        return Err(CorsError::TooMany { what, count: list.len(), most: LIST_ENTRIES_MAX });
    }
    if let Some(bad) = list.iter().find(|entry| !token::is_token(entry.as_bytes())) {
        return Err(CorsError::Name { what, text: bad.chars().take(128).collect() });
    }
    if credentials && list.iter().any(|entry| entry == "*") {
        return Err(CorsError::AnyWithCredentials(what));
    }
    Ok(list.join(", ").into_bytes().into())
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsError {
    /// No origin.
    NoOrigins,
    /// More entries than allowed.
    TooMany {
        /// The list.
        what: &'static str,
        /// Its length.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// An origin that no browser sends.
    Origin {
        /// As it was written.
        text: String,
        /// The reason, with the remedy.
        why: &'static str,
    },
    /// No regex, or over the limits.
    Regex {
        /// As it was written.
        text: String,
        /// In the words of the engine.
        why: String,
    },
    /// No method or header name.
    Name {
        /// In this list.
        what: &'static str,
        /// As it was written.
        text: String,
    },
    /// `*` in this list, and credentials.
    AnyWithCredentials(&'static str),
}

impl fmt::Display for CorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOrigins => f.write_str("cors: no origin is allowed: name one, or leave the policy out"),
            Self::TooMany { what, count, most } => write!(f, "cors: {count} {what}; the most is {most}"),
            Self::Origin { text, why } => write!(f, "cors: `{text}` is no origin: {why}"),
            Self::Regex { text, why } => write!(f, "cors: `{text}` is no regex: {why}"),
            Self::Name { what, text } => write!(f, "cors: `{text}` in {what} is no name"),
            Self::AnyWithCredentials(what) => {
                write!(f, "cors: `*` in {what} does not go with credentials: every page could act as its visitor; ")?;
                f.write_str("name them, or leave credentials out")
            }
        }
    }
}

impl std::error::Error for CorsError {}

#[cfg(test)]
mod tests;
