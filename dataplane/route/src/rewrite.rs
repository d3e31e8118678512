//! Another path or host for the request that is forwarded. The query is the caller's, and stays.
//!
//! The result of a rewrite is normalised like the path of a request: prefix `/img` with replacement `/` would else turn
//! `/img../etc` into `/../etc`, and a captured `..` could become a segment.

use std::{borrow::Cow, fmt};

use regex::bytes::Regex;
use weir_analysis::http::{
    host::{HostError, HostRules, canonical},
    path::{PathError, PathRules, normalise},
};

use crate::{
    RequestFacts, RouteError, condition::is_token, limits::REWRITTEN_PATH_BYTES_MAX, path::PathMatch, text::compile,
};

/// Matches of a regex that are replaced in one path. Default 256. Each is a search of its own over what follows, so
/// without a bound the whole would be quadratic.
pub const REPLACEMENTS_MAX: usize = 256;

/// Why a rewrite made no path. The client is to blame: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteError {
    /// The result is not a valid path.
    Path(PathError),
    /// Over [`REWRITTEN_PATH_BYTES_MAX`] or [`REPLACEMENTS_MAX`].
    TooLong,
    /// A query with a byte that a Location cannot have.
    Query,
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(why) => write!(f, "after the rewrite {why}"),
            Self::TooLong => write!(
                f,
                "the rewritten path has more than {REWRITTEN_PATH_BYTES_MAX} bytes or {REPLACEMENTS_MAX} replacements"
            ),
            Self::Query => f.write_str("the query has a control character, a space or a byte outside of ASCII"),
        }
    }
}

impl std::error::Error for RewriteError {}

impl From<PathError> for RewriteError {
    fn from(why: PathError) -> Self {
        Self::Path(why)
    }
}

/// A rewrite of the path. The result always begins with exactly one `/`.
#[derive(Clone, Debug)]
pub struct PathRewrite {
    kind: Kind,
    rules: PathRules,
}

#[derive(Clone, Debug)]
enum Kind {
    Prefix { prefix: Box<str>, replacement: Box<str> },
    Full(Box<[u8]>),
    Regex { regex: Regex, replacement: Vec<Piece> },
}

/// A part of a replacement.
#[derive(Clone, Debug)]
enum Piece {
    Text(Box<[u8]>),
    Group(usize),
}

impl PathRewrite {
    /// `replacement` takes the place of the prefix that the route asks for; the rest of the path stays. Slashes where they
    /// meet become one: `/foo` by `/` or by nothing turns `/foo/bar` into `/bar` (Gateway API `ReplacePrefixMatch`).
    ///
    /// # Errors
    /// The route has no prefix, or the replacement cannot be the beginning of a path.
    pub fn prefix(matched: &PathMatch, replacement: &str, rules: &PathRules) -> Result<Self, RouteError> {
        let prefix = matched.prefix().ok_or_else(|| RouteError::NoPrefix(matched.to_string()))?;
        // Segments of `/` keep their slash: all of the path follows.
        let prefix = if matches!(matched, PathMatch::Segments(_)) { prefix.trim_end_matches('/') } else { prefix };
        checked(format!("/{replacement}/").into_bytes(), rules)
            .map_err(|_| RouteError::Replacement(replacement.to_owned()))?;
        let kind = Kind::Prefix { prefix: prefix.into(), replacement: replacement.into() };
        Ok(Self { kind, rules: rules.clone() })
    }

    /// `replacement` is the path.
    ///
    /// # Errors
    /// It is none.
    pub fn full(replacement: &str, rules: &PathRules) -> Result<Self, RouteError> {
        let path = checked(with_one_slash(replacement.into()), rules)
            .map_err(|_| RouteError::Replacement(replacement.to_owned()))?;
        Ok(Self { kind: Kind::Full(with_one_slash(path).into()), rules: rules.clone() })
    }

    /// Every match of `pattern`, anywhere in the path, becomes `replacement` (as Envoy and Traefik have it). `$1` and
    /// `${name}` in it are groups, `$$` is a dollar sign. A path without a match stays.
    ///
    /// # Errors
    /// No regex, a group that it does not have, or text that no path has.
    pub fn regex(pattern: &str, replacement: &str, rules: &PathRules) -> Result<Self, RouteError> {
        let regex = compile(pattern, false, pattern)?;
        let replacement = pieces(replacement, &regex)?;
        Ok(Self { kind: Kind::Regex { regex, replacement }, rules: rules.clone() })
    }

    /// The path that is forwarded instead of this normalised one.
    ///
    /// # Errors
    /// The result is not a valid path, or too long.
    pub fn apply<'a>(&'a self, path: &'a [u8]) -> Result<Cow<'a, [u8]>, RewriteError> {
        let made = match &self.kind {
            Kind::Full(path) => return Ok(Cow::Borrowed(path)),
            Kind::Prefix { prefix, replacement } => match path.strip_prefix(prefix.as_bytes()) {
                Some(rest) => replace_prefix(replacement, rest),
                None => return Ok(Cow::Borrowed(path)),
            },
            Kind::Regex { regex, replacement } => match replace_matches(path, regex, replacement)? {
                Some(made) => made,
                None => return Ok(Cow::Borrowed(path)),
            },
        };
        // Twice: where slashes are not merged, `/.//x` becomes `//x`, which in a Location would be a host.
        checked(with_one_slash(made), &self.rules).map(with_one_slash).map(Cow::Owned)
    }
}

fn replace_prefix(replacement: &str, rest: &[u8]) -> Vec<u8> {
    let replacement = if rest.starts_with(b"/") { replacement.trim_end_matches('/') } else { replacement };
    [replacement.as_bytes(), rest].concat()
}

/// `None`: nothing matched.
fn replace_matches(path: &[u8], regex: &Regex, replacement: &[Piece]) -> Result<Option<Vec<u8>>, RewriteError> {
    let mut made: Option<Vec<u8>> = None;
    let mut at = 0;
    for (count, captures) in regex.captures_iter(path).enumerate() {
        let Some(matched) = captures.get(0) else { continue };
        let made = made.get_or_insert_default();
        made.extend_from_slice(&path[at..matched.start()]);
        for piece in replacement {
            match piece {
                Piece::Text(text) => made.extend_from_slice(text),
                // A group that took no part is empty.
                Piece::Group(group) => made.extend(captures.get(*group).map_or(&[][..], |group| group.as_bytes())),
            }
            if made.len() > REWRITTEN_PATH_BYTES_MAX {
                return Err(RewriteError::TooLong);
            }
        }
        at = matched.end();
        if count == REPLACEMENTS_MAX {
            return Err(RewriteError::TooLong);
        }
    }
    Ok(made.map(|mut made| {
        made.extend_from_slice(&path[at..]);
        made
    }))
}

fn with_one_slash(mut path: Vec<u8>) -> Vec<u8> {
    let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
    match slashes {
        0 => path.insert(0, b'/'),
        _ => drop(path.drain(1..slashes)),
    }
    path
}

fn checked(path: Vec<u8>, rules: &PathRules) -> Result<Vec<u8>, RewriteError> {
    if path.len() > REWRITTEN_PATH_BYTES_MAX {
        return Err(RewriteError::TooLong);
    }
    let changed = match normalise(&path, rules)? {
        Cow::Borrowed(form) if form.len() == path.len() => None,
        form => Some(form.into_owned()),
    };
    Ok(changed.unwrap_or(path))
}

/// Reads a replacement. By hand, because the engine would read `$1a` as a group of that name and put nothing there.
fn pieces(replacement: &str, regex: &Regex) -> Result<Vec<Piece>, RouteError> {
    let is_path_text =
        |text: &str| text.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'?' | b'#'));
    if !is_path_text(replacement) {
        return Err(RouteError::Replacement(replacement.to_owned()));
    }
    let mut pieces = Vec::new();
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        let (text, behind) = (&rest[..at], &rest[at + 1..]);
        push_text(&mut pieces, text);
        let digits = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if let Some(behind) = behind.strip_prefix('$') {
            push_text(&mut pieces, "$");
            rest = behind;
        } else if let Some((name, behind)) = behind.strip_prefix('{').and_then(|behind| behind.split_once('}')) {
            pieces.push(Piece::Group(group(name, regex, replacement)?));
            rest = behind;
        } else if digits > 0 {
            pieces.push(Piece::Group(group(&behind[..digits], regex, replacement)?));
            rest = &behind[digits..];
        } else {
            return Err(RouteError::Dollar(replacement.to_owned()));
        }
    }
    push_text(&mut pieces, rest);
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.as_bytes().into()));
    }
}

/// The number of a group, which `name` is or names.
fn group(name: &str, regex: &Regex, replacement: &str) -> Result<usize, RouteError> {
    let number = name.parse().ok().filter(|&number| number < regex.captures_len());
    number
        .or_else(|| regex.capture_names().position(|candidate| candidate == Some(name)))
        .ok_or_else(|| RouteError::Group { text: replacement.to_owned(), group: name.to_owned() })
}

/// Another host for the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRewrite(HostSource);

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostSource {
    Literal(Box<str>),
    /// Lower case.
    Header(Box<str>),
}

impl HostRewrite {
    /// This host, with or without port.
    ///
    /// # Errors
    /// No host.
    pub fn literal(text: &str) -> Result<Self, RouteError> {
        let form = form(text.as_bytes()).map_err(|why| RouteError::Host { text: text.to_owned(), why })?;
        Ok(Self(HostSource::Literal(String::from_utf8_lossy(&form).into())))
    }

    /// The value of this header of the request; a request without it keeps its host.
    ///
    /// # Errors
    /// No field name.
    pub fn from_header(name: &str) -> Result<Self, RouteError> {
        match is_token(name) {
            true => Ok(Self(HostSource::Header(name.to_ascii_lowercase().into()))),
            false => Err(RouteError::HeaderName(name.to_owned())),
        }
    }

    /// The canonical host, with its port if it has one; `None`: it stays as it is.
    ///
    /// # Errors
    /// The header has no host in it (two lines of it make a list, which is none). The client is to blame: 400.
    pub fn apply<'a>(&'a self, facts: &'a impl RequestFacts) -> Result<Option<Cow<'a, [u8]>>, HostError> {
        match &self.0 {
            HostSource::Literal(host) => Ok(Some(Cow::Borrowed(host.as_bytes()))),
            HostSource::Header(name) => facts
                .header(name)
                .map(|value| match value {
                    Cow::Borrowed(value) => form(value),
                    Cow::Owned(value) => form(&value).map(|form| Cow::Owned(form.into_owned())),
                })
                .transpose(),
        }
    }
}

/// The canonical spelling with port.
fn form(text: &[u8]) -> Result<Cow<'_, [u8]>, HostError> {
    let authority = canonical(text, &HostRules::default())?;
    Ok(match (authority.host, authority.port) {
        (Cow::Borrowed(_), Some(_)) => Cow::Borrowed(text),
        (Cow::Owned(host), Some(port)) => Cow::Owned([&*host, format!(":{port}").as_bytes()].concat()),
        (host, None) => host,
    })
}

#[cfg(test)]
mod tests;
