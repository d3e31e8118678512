//! The paths and methods of the API.

use std::borrow::Cow;

use weir_flags_session::{Api, Listing};

use crate::settings::Backstage;

/// An endpoint, with the parts of its path that vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint<'a> {
    /// `/api/client/features`
    Features,
    /// `/api/client/features/{name}`
    Feature(Cow<'a, str>),
    /// `/api/client/delta`
    Delta,
    /// `/api/client/streaming`
    Streaming,
    /// `/api/client/metrics`, and those of the frontend API.
    Metrics(Api),
    /// `/api/client/metrics/bulk`
    BulkMetrics,
    /// `/api/client/metrics/edge`
    EdgeMetrics,
    /// `/api/client/register`, and those of the frontend API.
    Register(Api),
    /// `/api/frontend`, `/api/proxy`, and with `/all`.
    Evaluate(Listing),
    /// `/api/frontend/features/{name}`
    EvaluateOne(Cow<'a, str>),
    /// `/edge/validate`
    Validate,
    /// `/internal-backstage/…`
    Backstage(Backstage),
    /// `/docs/openapi.json`, and the older path.
    OpenApi,
    /// `/docs/openapi`: a page that shows the document.
    OpenApiPage,
    /// `/ofrep/v1/evaluate/flags`
    Ofrep,
    /// `/ofrep/v1/evaluate/flags/{key}`
    OfrepOne(Cow<'a, str>),
}

/// Methods that an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Methods {
    Get,
    Post,
    Both,
}

impl Methods {
    /// The value of `Allow`.
    pub(crate) const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
            Self::Both => "GET, HEAD, POST",
        }
    }

    pub(crate) fn take(self, method: &[u8]) -> bool {
        match method {
            b"GET" | b"HEAD" => self != Self::Post,
            b"POST" => self != Self::Get,
            _ => false,
        }
    }
}

impl<'a> Endpoint<'a> {
    /// The endpoint of a path, behind the base path. Slashes that stand twice or at the end have no meaning.
    pub(crate) fn of(path: &'a str, base_path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        for own in base_path.split('/').filter(|part| !part.is_empty()) {
            if parts.next() != Some(own) {
                return None;
            }
        }
        let mut part = || parts.next().unwrap_or_default();
        let of = [part(), part(), part(), part(), part()];
        if parts.next().is_some() {
            return None;
        }
        Self::of_parts(of)
    }

    fn of_parts(parts: [&'a str; 5]) -> Option<Self> {
        let [first, second, third, fourth, fifth] = parts;
        let rest = [third, fourth, fifth];
        match (first, second) {
            ("api", "client") => Self::of_client(rest),
            ("api", "frontend" | "proxy") => Self::of_frontend(rest, second == "frontend"),
            ("edge", "validate") if rest == ["", "", ""] => Some(Self::Validate),
            ("internal-backstage", word) if rest == ["", "", ""] => Backstage::of(word).map(Self::Backstage),
            ("docs" | "api-doc", "openapi.json") if rest == ["", "", ""] => Some(Self::OpenApi),
            ("docs", "openapi") if rest == ["", "", ""] => Some(Self::OpenApiPage),
            ("ofrep", "v1") => match rest {
                ["evaluate", "flags", ""] => Some(Self::Ofrep),
                ["evaluate", "flags", key] => Some(Self::OfrepOne(decoded(key)?)),
                _ => None,
            },
            _ => None,
        }
    }

    fn of_client(parts: [&'a str; 3]) -> Option<Self> {
        Some(match parts {
            ["features", "", ""] => Self::Features,
            ["features", name, ""] => Self::Feature(decoded(name)?),
            ["delta", "", ""] => Self::Delta,
            ["streaming", "", ""] => Self::Streaming,
            ["metrics", "", ""] => Self::Metrics(Api::Client),
            ["metrics", "bulk", ""] => Self::BulkMetrics,
            ["metrics", "edge", ""] => Self::EdgeMetrics,
            ["register", "", ""] => Self::Register(Api::Client),
            _ => return None,
        })
    }

    fn of_frontend(parts: [&'a str; 3], is_frontend: bool) -> Option<Self> {
        Some(match parts {
            ["", "", ""] => Self::Evaluate(Listing::Enabled),
            ["all", "", ""] => Self::Evaluate(Listing::All),
            ["features", name, ""] if is_frontend && !name.is_empty() => Self::EvaluateOne(decoded(name)?),
            ["client", "metrics", ""] | ["all", "client", "metrics"] => Self::Metrics(Api::Frontend),
            ["client", "register", ""] | ["all", "client", "register"] => Self::Register(Api::Frontend),
            _ => return None,
        })
    }

    /// The methods that it takes.
    pub(crate) const fn methods(&self) -> Methods {
        match self {
            Self::Features | Self::Evaluate(_) | Self::EvaluateOne(_) => Methods::Both,
            Self::Feature(_) | Self::Delta | Self::Streaming | Self::Backstage(_) => Methods::Get,
            Self::OpenApi | Self::OpenApiPage => Methods::Get,
            Self::Metrics(_) | Self::BulkMetrics | Self::EdgeMetrics | Self::Register(_) | Self::Validate => {
                Methods::Post
            }
            Self::Ofrep | Self::OfrepOne(_) => Methods::Post,
        }
    }

    /// The API whose tokens it takes. `None`: it takes none.
    pub(crate) const fn api(&self) -> Option<Api> {
        match self {
            Self::Features | Self::Feature(_) | Self::Delta | Self::Streaming => Some(Api::Client),
            Self::BulkMetrics | Self::EdgeMetrics => Some(Api::Client),
            Self::Metrics(api) | Self::Register(api) => Some(*api),
            Self::Evaluate(_) | Self::EvaluateOne(_) | Self::Ofrep | Self::OfrepOne(_) => Some(Api::Frontend),
            Self::Validate | Self::Backstage(_) | Self::OpenApi | Self::OpenApiPage => None,
        }
    }

    /// Whether its response is made of flags.
    pub(crate) const fn needs_flags(&self) -> bool {
        match self {
            Self::Features | Self::Feature(_) | Self::Delta | Self::Streaming => true,
            Self::Evaluate(_) | Self::EvaluateOne(_) | Self::Ofrep | Self::OfrepOne(_) => true,
            Self::Metrics(_) | Self::BulkMetrics | Self::EdgeMetrics | Self::Register(_) => false,
            Self::Validate | Self::Backstage(_) | Self::OpenApi | Self::OpenApiPage => false,
        }
    }

    /// The word in metrics, by its place in [`Self::NAMES`].
    pub(crate) const fn number(&self) -> usize {
        match self {
            Self::Features => 0,
            Self::Feature(_) => 1,
            Self::Delta => 2,
            Self::Streaming => 3,
            Self::Metrics(_) | Self::BulkMetrics | Self::EdgeMetrics => 4,
            Self::Register(_) => 5,
            Self::Evaluate(_) => 6,
            Self::EvaluateOne(_) => 7,
            Self::Validate => 8,
            Self::Backstage(_) => 9,
            Self::OpenApi | Self::OpenApiPage => 10,
            Self::Ofrep | Self::OfrepOne(_) => 11,
        }
    }

    /// The words of endpoints in metrics. The last one is that of a path without an endpoint.
    pub(crate) const NAMES: [&'static str; 13] = [
        "features",
        "feature",
        "delta",
        "streaming",
        "metrics",
        "register",
        "frontend",
        "frontend_feature",
        "validate",
        "backstage",
        "openapi",
        "ofrep",
        "none",
    ];
}

/// A segment of a path without its escapes. `None`: it is no UTF-8.
fn decoded(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('%') {
        return Some(Cow::Borrowed(segment));
    }
    let (mut out, mut rest) = (Vec::with_capacity(segment.len()), segment.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        rest = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                &behind[2..]
            }
            _ => {
                out.push(first);
                behind
            }
        };
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_endpoints() {
        for (path, endpoint) in [
            ("/api/client/features", Endpoint::Features),
            ("//api//client/features/", Endpoint::Features),
            ("/api/client/features/a%2Fb", Endpoint::Feature("a/b".into())),
            ("/api/frontend", Endpoint::Evaluate(Listing::Enabled)),
            ("/api/proxy/all", Endpoint::Evaluate(Listing::All)),
            ("/api/frontend/features/%C3%A6", Endpoint::EvaluateOne("æ".into())),
            ("/api/frontend/all/client/metrics", Endpoint::Metrics(Api::Frontend)),
            ("/api/client/metrics/bulk", Endpoint::BulkMetrics),
            ("/edge/validate", Endpoint::Validate),
            ("/internal-backstage/ready", Endpoint::Backstage(Backstage::Ready)),
            ("/ofrep/v1/evaluate/flags/x", Endpoint::OfrepOne("x".into())),
        ] {
            assert_eq!(Endpoint::of(path, ""), Some(endpoint), "{path}");
        }
        for path in ["/", "/api", "/api/client", "/api/proxy/features/a", "/api/client/features/a/b", "/x/api/frontend"]
        {
            assert_eq!(Endpoint::of(path, ""), None, "{path}");
        }
        for (path, base_path) in
            [("/edge/api/frontend", "/edge"), ("//edge//api/frontend/", "/edge"), ("/a//b/api/frontend", "/a/b")]
        {
            assert_eq!(Endpoint::of(path, base_path), Some(Endpoint::Evaluate(Listing::Enabled)), "{path}");
        }
        for path in ["/api/frontend", "/edgeapi/frontend"] {
            assert_eq!(Endpoint::of(path, "/edge"), None, "{path}");
        }
    }
}
