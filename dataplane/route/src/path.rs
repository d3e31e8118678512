//! The condition of a route on the path.

use std::fmt;

use regex::bytes::Regex;
use weir_analysis::http::path::{PathRules, normalise};

use crate::{RouteError, reach, text::whole};

/// The paths of a route. Made by its constructors, which refuse what no normalised path can match.
#[derive(Clone, Debug)]
pub enum PathMatch {
    /// This one.
    Exact(Box<str>),
    /// Those that this regex matches as a whole.
    Regex(Box<PathRegex>),
    /// This one and all below it: `/blog` is `/blog` and `/blog/x`, not `/blogger`. Without a slash at its end, except `/`.
    Segments(Box<str>),
    /// Those that begin with this text.
    Text(Box<str>),
}

/// A regex and its text.
#[derive(Clone, Debug)]
pub struct PathRegex {
    pub(crate) text: Box<str>,
    pub(crate) regex: Regex,
}

impl PathRegex {
    /// Whether it certainly matches every path. Only the usual ways to write such a regex are recognised.
    pub(crate) fn takes_all(&self) -> bool {
        let text = self.text.strip_prefix('^').unwrap_or(&self.text);
        matches!(text.strip_suffix('$').unwrap_or(text), ".*" | "/.*" | ".+" | "(.*)" | "/(.*)")
    }
}

impl PathMatch {
    /// One path. `rules` are those of the listener.
    ///
    /// # Errors
    /// It is no path, or not in the form that normalisation gives.
    pub fn exact(text: &str, rules: &PathRules) -> Result<Self, RouteError> {
        in_form(text, text, rules).map(|()| Self::Exact(text.into()))
    }

    /// All paths that this regex matches from the first byte to the last. Linear time, ASCII classes.
    ///
    /// # Errors
    /// No regex, or over the limits.
    pub fn regex(text: &str) -> Result<Self, RouteError> {
        Ok(Self::Regex(Box::new(PathRegex { regex: whole(text, false)?, text: text.into() })))
    }

    /// A path and all below it. A slash at the end means nothing (Gateway API `PathPrefix`): `/blog/` is `/blog`.
    ///
    /// # Errors
    /// As for [`exact`](Self::exact).
    pub fn segments(text: &str, rules: &PathRules) -> Result<Self, RouteError> {
        in_form(text, text, rules)?;
        let short = text.trim_end_matches('/');
        Ok(Self::Segments(if short.is_empty() { "/" } else { short }.into()))
    }

    /// All paths that begin with `text`, in the middle of a segment, too.
    ///
    /// # Errors
    /// As for [`exact`](Self::exact).
    pub fn text(text: &str, rules: &PathRules) -> Result<Self, RouteError> {
        // Something follows in the last segment: `/.` is the beginning of `/.git`, though no path by itself.
        in_form(&format!("{text}x"), text, rules).map(|()| Self::Text(text.into()))
    }

    /// Whether it matches this normalised path.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(text) => text.as_bytes() == path,
            Self::Regex(regex) => regex.regex.is_match(path),
            Self::Segments(text) => is_below(text, path),
            Self::Text(text) => path.starts_with(text.as_bytes()),
        }
    }

    /// Whether a request can have a path that it matches, under these rules.
    pub fn can_match(&self, rules: &PathRules) -> bool {
        let is_form = |sample: &str| normalise(sample.as_bytes(), rules).is_ok_and(|form| *form == *sample.as_bytes());
        match self {
            Self::Exact(text) | Self::Segments(text) => is_form(text),
            Self::Text(text) => is_form(&format!("{text}x")),
            Self::Regex(regex) => reach::has_path(&regex.text, rules),
        }
    }

    /// Whether it matches each normalised path that `other` matches, as far as their texts tell.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Segments(text) | Self::Text(text), Self::Regex(_)) => &**text == "/",
            (Self::Regex(regex), Self::Regex(other)) => regex.text == other.text || regex.takes_all(),
            (Self::Regex(regex), Self::Segments(_) | Self::Text(_)) => regex.takes_all(),
            (Self::Segments(text), Self::Text(other)) => {
                &**text == "/" || other.strip_prefix(&**text).is_some_and(|rest| rest.starts_with('/'))
            }
            (Self::Exact(text), Self::Exact(other)) => text == other,
            (Self::Exact(_), _) => false,
            (_, Self::Exact(other) | Self::Segments(other) | Self::Text(other)) => self.matches(other.as_bytes()),
        }
    }

    /// A key that two routes of one host share if one of them can cover the other and is tried first: rank puts longer
    /// texts before shorter ones. A regex for all paths covers others, too.
    pub(crate) fn family(&self) -> (u8, &str) {
        match self {
            Self::Exact(text) => (0, text),
            Self::Regex(regex) => (1, &regex.text),
            Self::Segments(text) | Self::Text(text) => (2, text),
        }
    }

    /// The prefix as it was written, if it is one; without slash at its end for segments, except `/`.
    pub fn prefix(&self) -> Option<&str> {
        match self {
            Self::Segments(text) | Self::Text(text) => Some(text),
            Self::Exact(_) | Self::Regex(_) => None,
        }
    }

    /// Sort key of paths (contract of routing, step 2): exact; regex, longer text first; prefix, longer
    /// first, segments before text.
    pub(crate) fn rank(&self) -> (u8, usize, u8) {
        match self {
            Self::Exact(_) => (0, 0, 0),
            Self::Regex(regex) => (1, usize::MAX - regex.text.len(), 0),
            Self::Segments(text) => (2, usize::MAX - text.len(), 0),
            Self::Text(text) => (2, usize::MAX - text.len(), 1),
        }
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => write!(f, "exact `{text}`"),
            Self::Regex(regex) => write!(f, "regex `{}`", regex.text),
            Self::Segments(text) => write!(f, "prefix `{text}`"),
            Self::Text(text) => write!(f, "string prefix `{text}`"),
        }
    }
}

/// Whether `path` is `prefix` or below it.
pub(crate) fn is_below(prefix: &str, path: &[u8]) -> bool {
    match path.strip_prefix(prefix.as_bytes()) {
        Some(rest) => prefix == "/" || matches!(rest, [] | [b'/', ..]),
        None => false,
    }
}

/// `sample` is what requests could have for `text`.
fn in_form(sample: &str, text: &str, rules: &PathRules) -> Result<(), RouteError> {
    let form = normalise(sample.as_bytes(), rules).map_err(|why| RouteError::Path { text: text.to_owned(), why })?;
    if *form == *sample.as_bytes() {
        return Ok(());
    }
    let form = String::from_utf8_lossy(&form);
    let form = &form[..form.len().saturating_sub(sample.len() - text.len())];
    Err(RouteError::PathForm { text: text.to_owned(), form: form.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: fn() -> PathRules = PathRules::default;

    #[test]
    fn a_prefix_ends_at_a_segment_and_a_text_anywhere() {
        let segments = PathMatch::segments("/blog", &RULES()).expect("a prefix");
        let text = PathMatch::text("/blog", &RULES()).expect("a prefix");
        for (path, is_below, begins) in [
            ("/blog", true, true),
            ("/blog/", true, true),
            ("/blog/x", true, true),
            ("/blogger", false, true),
            ("/blo", false, false),
            ("/x/blog", false, false),
        ] {
            assert_eq!(
                (segments.matches(path.as_bytes()), text.matches(path.as_bytes())),
                (is_below, begins),
                "{path}"
            );
        }
        let root = PathMatch::segments("/", &RULES()).expect("a prefix");
        assert!(root.matches(b"/") && root.matches(b"/x"));
    }

    #[test]
    fn a_slash_at_the_end_of_a_prefix_means_nothing() {
        let prefix = PathMatch::segments("/blog/", &RULES()).expect("a prefix");
        assert_eq!(prefix.prefix(), Some("/blog"));
        let exact = PathMatch::exact("/blog/", &RULES()).expect("a path");
        assert!(exact.matches(b"/blog/") && !exact.matches(b"/blog"));
    }

    #[test]
    fn a_regex_matches_the_whole_path() {
        let regex = PathMatch::regex("/v[0-9]+/(a|ab)").expect("a regex");
        assert!(regex.matches(b"/v1/ab") && !regex.matches(b"/v1/abc") && !regex.matches(b"/x/v1/a"));
    }

    #[test]
    fn a_path_covers_those_below_it() {
        let exact = |text| PathMatch::exact(text, &RULES()).expect(text);
        let segments = |text| PathMatch::segments(text, &RULES()).expect(text);
        let text = |text| PathMatch::text(text, &RULES()).expect(text);
        let regex = |text| PathMatch::regex(text).expect(text);
        for (one, other, expected) in [
            (exact("/a"), exact("/a"), true),
            (exact("/a"), segments("/a"), false),
            (segments("/a"), exact("/a/b"), true),
            (segments("/a"), segments("/ab"), false),
            (segments("/a"), text("/a"), false),
            (segments("/a"), text("/a/"), true),
            (segments("/"), text("/"), true),
            (text("/a"), segments("/a"), true),
            (text("/a"), text("/ab"), true),
            (regex("/.*"), segments("/a"), true),
            (regex("/a.*"), segments("/a"), false),
            (regex("/a.*"), exact("/ab"), true),
            (regex("/x"), regex("/x"), true),
            (segments("/"), regex("/x"), true),
        ] {
            assert_eq!(one.covers(&other), expected, "{one} over {other}");
        }
    }

    #[test]
    fn a_path_that_no_request_has_is_refused_with_its_form() {
        for (text, form) in [("/a//b", "/a/b"), ("/%7euser", "/~user"), ("/a/../b", "/b"), ("/%c3", "/%C3")] {
            let expected = RouteError::PathForm { text: text.to_owned(), form: form.to_owned() };
            assert_eq!(PathMatch::exact(text, &RULES()).err(), Some(expected.clone()), "{text}");
            assert_eq!(PathMatch::segments(text, &RULES()).err(), Some(expected.clone()), "{text}");
            assert_eq!(PathMatch::text(text, &RULES()).err(), Some(expected), "{text}");
        }
        for text in ["a", "/a?b", "/%2F", "/..", "/%zz"] {
            assert!(matches!(PathMatch::exact(text, &RULES()), Err(RouteError::Path { .. })), "{text}");
        }
        assert!(PathMatch::text("/.", &RULES()).is_ok(), "the beginning of /.git");
        assert!(PathMatch::exact("/a//b", &PathRules { merge_slashes: false, ..RULES() }).is_ok());
    }
}
