//! The condition of a route on the host.

use std::fmt;

use weir_analysis::http::host::{HostRules, canonical};

use crate::RouteError;

/// How many labels the star of a wildcard stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Labels {
    /// Exactly one, as certificates (RFC 6125 6.4.3) and Contour's HTTPProxy have it.
    #[default]
    One,
    /// One or more, as the Gateway API and Envoy have it.
    Many,
}

/// The hosts of a route. Texts are canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// This one.
    Exact(Box<str>),
    /// Those that end with `suffix` and have something before it.
    Wildcard {
        /// With its dot: `.example.com`.
        suffix: Box<str>,
        /// Labels that may stand before it.
        labels: Labels,
    },
    /// Every host that no other route of the table names, and requests without one.
    Any,
}

impl HostMatch {
    /// Reads `example.com`, `[::1]`, `*.example.com` or `*`; case does not matter. `labels` is for wildcards.
    ///
    /// # Errors
    /// A port, a trailing dot, a star elsewhere, or no host at all.
    pub fn parse(text: &str, labels: Labels) -> Result<Self, RouteError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, is_wildcard) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        if name.contains('*') || is_wildcard && name.starts_with('[') {
            return Err(RouteError::Wildcard(text.to_owned()));
        }
        let authority = canonical(name.as_bytes(), &HostRules::default())
            .map_err(|why| RouteError::Host { text: text.to_owned(), why })?;
        if authority.port.is_some() {
            return Err(RouteError::HostPort(text.to_owned()));
        }
        if authority.host.ends_with(b".") {
            return Err(RouteError::HostTrailingDot(text.to_owned()));
        }
        let name = String::from_utf8_lossy(&authority.host);
        Ok(match is_wildcard {
            true => Self::Wildcard { suffix: format!(".{name}").into(), labels },
            false => Self::Exact(name.into()),
        })
    }

    /// Whether it matches this canonical host, regardless of what else is in the table.
    pub fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(name) => name.as_bytes() == host,
            Self::Wildcard { suffix, labels } => match host.strip_suffix(suffix.as_bytes()) {
                None | Some([]) => false,
                Some(before) => *labels == Labels::Many || !before.contains(&b'.'),
            },
            Self::Any => true,
        }
    }

    /// Sort key of hosts; the first match is final: exact, longer suffix, one label, any (contract of routing,
    /// step 1). Names only make the order total.
    pub(crate) fn rank(&self) -> (u8, usize, Labels, &str) {
        match self {
            Self::Exact(name) => (0, 0, Labels::One, name),
            Self::Wildcard { suffix, labels } => (1, usize::MAX - suffix.len(), *labels, suffix),
            Self::Any => (2, 0, Labels::One, ""),
        }
    }
}

impl fmt::Display for HostMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard { suffix, labels: Labels::One } => write!(f, "*{suffix}"),
            Self::Wildcard { suffix, labels: Labels::Many } => write!(f, "*{suffix} (any depth)"),
            Self::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostMatch {
        HostMatch::parse(text, Labels::One).expect(text)
    }

    #[test]
    fn hosts_are_read_in_any_case() {
        assert_eq!(host("*"), HostMatch::Any);
        assert_eq!(host("Example.COM"), HostMatch::Exact("example.com".into()));
        assert_eq!(host("[0::1]"), HostMatch::Exact("[::1]".into()));
        assert_eq!(host("*.Example.com"), HostMatch::Wildcard { suffix: ".example.com".into(), labels: Labels::One });
    }

    #[test]
    fn patterns_that_no_request_could_match_are_refused() {
        for text in ["", "a:80", "a.", "*.", "*a.com", "a.*.com", "*.*.com", "*.[::1]", "a b", "**", "*.a:1"] {
            assert!(HostMatch::parse(text, Labels::One).is_err(), "{text}");
        }
    }

    #[test]
    fn a_star_is_one_label_or_many_but_never_none() {
        let one = host("*.example.com");
        let many = HostMatch::parse("*.example.com", Labels::Many).expect("a wildcard");
        for (name, is_one, is_many) in [
            ("a.example.com", true, true),
            ("a.b.example.com", false, true),
            ("example.com", false, false),
            (".example.com", false, false),
            ("aexample.com", false, false),
        ] {
            assert_eq!((one.matches(name.as_bytes()), many.matches(name.as_bytes())), (is_one, is_many), "{name}");
        }
    }
}
