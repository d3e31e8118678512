//! Which requests a route takes: of two routes, whether one takes all or some of the other's, and which is tried first.

use crate::model::{PathMatch, Route};
use crate::paths::{self, Regexes};

/// The host of requests that no other host is for.
pub(crate) const ANY: &str = "*";

pub(crate) fn hosts_of(route: &Route) -> Vec<String> {
    match route.hosts.is_empty() {
        true => vec![ANY.to_owned()],
        false => route.hosts.clone(),
    }
}

pub(crate) fn has_host(route: &Route, host: &str) -> bool {
    match route.hosts.is_empty() {
        true => host == ANY,
        false => route.hosts.iter().any(|own| own == host),
    }
}

/// Sort key of routes, the first one is tried first: path, then methods, headers and the query, as Weir has it.
pub(crate) fn rank(route: &Route) -> (u8, usize, u8, bool, usize, usize) {
    let (kind, text, by_text) = match &route.path {
        PathMatch::Exact(path) => (0, path.as_str(), 0),
        PathMatch::Regex(regex) => (1, regex.as_str(), 0),
        PathMatch::Segments(path) => (2, path.trim_end_matches('/'), 0),
        PathMatch::Prefix(path) => (2, path.as_str(), 1),
        PathMatch::Any => (2, "/", 0),
    };
    // The length of an exact path does not matter: only one of them matches.
    let length = if kind == 0 { 0 } else { text.len().max(1) };
    let count = |kind: &str| route.conditions.iter().filter(|(of, _)| *of == kind).count();
    let conditions = (usize::MAX - count("header"), usize::MAX - count("query"));
    (kind, usize::MAX - length, by_text, route.methods.is_empty(), conditions.0, conditions.1)
}

/// Whether `earlier` takes every request of `later`, on a host of both.
pub(crate) fn covers(earlier: &Route, later: &Route) -> bool {
    let has_no_condition = earlier.conditions.iter().all(|one| later.conditions.contains(one));
    let methods = earlier.methods.is_empty()
        || !later.methods.is_empty() && later.methods.iter().all(|method| earlier.methods.contains(method));
    let path = match (&earlier.path, &later.path) {
        (PathMatch::Any, _) => true,
        (one, other) if one == other => true,
        (PathMatch::Segments(wide), PathMatch::Exact(path) | PathMatch::Segments(path)) => is_below(path, wide),
        (PathMatch::Prefix(wide), PathMatch::Exact(path) | PathMatch::Segments(path) | PathMatch::Prefix(path)) => {
            path.starts_with(wide.as_str())
        }
        _ => false,
    };
    has_no_condition && methods && path
}

fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a request may match both, as far as hosts, paths and methods say.
pub(crate) fn overlap(one: &Route, other: &Route, regexes: &Regexes) -> bool {
    let hosts = hosts_of(one).iter().any(|host| has_host(other, host));
    let methods = one.methods.is_empty()
        || other.methods.is_empty()
        || one.methods.iter().any(|method| other.methods.contains(method));
    hosts && methods && paths_overlap(&one.path, &other.path, regexes)
}

/// The text with which all paths of a match begin.
fn begin_of(path: &PathMatch) -> String {
    match path {
        PathMatch::Any => String::new(),
        PathMatch::Exact(path) | PathMatch::Prefix(path) => path.clone(),
        PathMatch::Segments(path) => path.trim_end_matches('/').to_owned(),
        PathMatch::Regex(regex) => paths::literal_prefix(regex),
    }
}

fn paths_overlap(one: &PathMatch, other: &PathMatch, regexes: &Regexes) -> bool {
    match (one, other) {
        (PathMatch::Any, _) | (_, PathMatch::Any) => true,
        (PathMatch::Regex(regex), PathMatch::Exact(path)) | (PathMatch::Exact(path), PathMatch::Regex(regex)) => {
            regexes.is_whole_match(regex, path)
        }
        (PathMatch::Regex(regex), other) | (other, PathMatch::Regex(regex)) => {
            let (begin, text) = (paths::literal_prefix(regex), begin_of(other));
            begin.starts_with(&text) || text.starts_with(&begin)
        }
        (PathMatch::Exact(a), PathMatch::Exact(b)) => a == b,
        (PathMatch::Exact(path), PathMatch::Segments(wide)) | (PathMatch::Segments(wide), PathMatch::Exact(path)) => {
            is_below(path, wide)
        }
        (PathMatch::Exact(path), PathMatch::Prefix(wide)) | (PathMatch::Prefix(wide), PathMatch::Exact(path)) => {
            path.starts_with(wide.as_str())
        }
        (PathMatch::Prefix(a) | PathMatch::Segments(a), PathMatch::Prefix(b) | PathMatch::Segments(b)) => {
            a.starts_with(b.as_str()) || b.starts_with(a.as_str())
        }
    }
}
