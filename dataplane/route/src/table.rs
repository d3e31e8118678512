//! All routes of a listener.
//!
//! The order is the contract of routing (`RouteTable::routes` shows it):
//!
//! 1. host: exact, then longest wildcard, then `*`;
//! 2. path: exact, then regex (longer text first), then prefix (longer first, segments before text);
//! 3. with a method before without;
//! 4. more header conditions;
//! 5. more conditions on the query;
//! 6. lower priority number;
//! 7. conditions on headers, then on the query, by name, then exact, regex, prefix, suffix, contains, present;
//! 8. as declared.
//!
//! **The host is chosen first, and finally.** All routes of one host belong together, as in a virtual host of Envoy or a
//! server of nginx: if none of them takes a request for `a.example.com`, routes of `*.example.com` and `*` are not tried,
//! and the request has no route. Otherwise the author of a route for a wildcard could take requests that a host leaves open.
//! Within the host, a route whose path matches and whose other conditions do not is passed over, and the next is tried.

use std::{collections::HashMap, ops::Range};

use crate::{
    RequestFacts, Route,
    host::{HostMatch, Labels},
    path::PathMatch,
    prefixes::{Builder, Prefixes},
};

/// The routes of a listener, in order. Immutable.
///
/// Every worker should have a clone of its own: a regex keeps scratch memory that users of one clone take turns for.
#[derive(Clone, Debug)]
pub struct RouteTable<T> {
    /// In order of precedence.
    routes: Vec<Route<T>>,
    hosts: Vec<Host>,
    exact: HashMap<Box<[u8]>, usize>,
    /// By suffix, with its dot.
    wildcards: HashMap<Box<[u8]>, Wildcard>,
    any: Option<usize>,
    /// Bytes of the longest suffix: what is longer is not looked up.
    suffix_bytes_max: usize,
}

/// Numbers of hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Wildcard {
    one: Option<usize>,
    many: Option<usize>,
}

/// The routes of one host. Numbers are those of `RouteTable::routes`, so smaller ones go first.
#[derive(Clone, Debug)]
struct Host {
    all: Range<usize>,
    exact: HashMap<Box<[u8]>, Vec<usize>>,
    regexes: Vec<usize>,
    prefixes: Prefixes,
}

impl<T> RouteTable<T> {
    /// Puts the routes in order. `routes` come as declared.
    pub fn new(mut routes: Vec<Route<T>>) -> Self {
        // Stable: what is equal stays as declared.
        routes.sort_by(Route::precedence);
        let mut table = Self {
            routes: Vec::new(),
            hosts: Vec::new(),
            exact: HashMap::new(),
            wildcards: HashMap::new(),
            any: None,
            suffix_bytes_max: 0,
        };
        let mut start = 0;
        for group in routes.chunk_by(|one, other| one.host == other.host) {
            table.add_host(&group[0].host);
            table.hosts.push(Host::new(start, group));
            start += group.len();
        }
        table.routes = routes;
        table
    }

    /// The routes that a change of what is done with their requests may be made to; their order and conditions stay.
    pub fn actions_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.routes.iter_mut().map(|route| (&*route.name, &mut route.action))
    }

    /// Says where the host is that is added next.
    fn add_host(&mut self, host: &HostMatch) {
        let number = self.hosts.len();
        match host {
            HostMatch::Exact(name) => {
                self.exact.insert(name.as_bytes().into(), number);
            }
            HostMatch::Wildcard { suffix, labels } => {
                self.suffix_bytes_max = self.suffix_bytes_max.max(suffix.len());
                let wildcard = self.wildcards.entry(suffix.as_bytes().into()).or_default();
                match labels {
                    Labels::One => wildcard.one = Some(number),
                    Labels::Many => wildcard.many = Some(number),
                }
            }
            HostMatch::Any => self.any = Some(number),
        }
    }

    /// The route of a request: the first in order whose conditions all hold, of the host that matches best.
    pub fn find(&self, facts: &impl RequestFacts) -> Option<&Route<T>> {
        let host = self.host(facts.host())?;
        let path = facts.path();
        let exact = host.exact.get(path).into_iter().flatten().copied();
        let regexes = host.regexes.iter().copied().filter(|&number| self.routes[number].path.matches(path));
        exact
            .chain(regexes)
            .chain(host.prefixes.routes(path))
            .map(|number| &self.routes[number])
            .find(|route| route.check_conditions(facts).is_ok())
    }

    /// All routes in the order in which they are tried.
    pub fn routes(&self) -> &[Route<T>] {
        &self.routes
    }

    /// The routes of the host that matches best, in order; empty if none matches.
    pub fn routes_of_host(&self, host: &[u8]) -> &[Route<T>] {
        self.host(host).map_or(&[], |host| &self.routes[host.all.clone()])
    }

    fn host(&self, name: &[u8]) -> Option<&Host> {
        let number = self.exact.get(name).copied().or_else(|| self.wildcard(name)).or(self.any)?;
        Some(&self.hosts[number])
    }

    fn wildcard(&self, name: &[u8]) -> Option<usize> {
        if self.wildcards.is_empty() {
            return None;
        }
        let first_dot = name.iter().position(|&byte| byte == b'.').filter(|&at| at > 0)?;
        let start = first_dot.max(name.len().saturating_sub(self.suffix_bytes_max));
        let dots = (start..name.len()).filter(|&at| name[at] == b'.');
        dots.filter_map(|at| Some((at, self.wildcards.get(&name[at..])?)))
            .find_map(|(at, wildcard)| wildcard.one.filter(|_| at == first_dot).or(wildcard.many))
    }
}

impl Host {
    /// `routes` are in order; `start` is the number of the first.
    fn new<T>(start: usize, routes: &[Route<T>]) -> Self {
        let mut exact: HashMap<Box<[u8]>, Vec<usize>> = HashMap::new();
        let mut regexes = Vec::new();
        let mut prefixes = Builder::default();
        for (number, route) in (start..).zip(routes) {
            match &route.path {
                PathMatch::Exact(path) => exact.entry(path.as_bytes().into()).or_default().push(number),
                PathMatch::Regex(_) => regexes.push(number),
                PathMatch::Segments(text) => prefixes.add_segments(text, number),
                PathMatch::Text(text) => prefixes.add_text(text, number),
            }
        }
        Self { all: start..start + routes.len(), exact, regexes, prefixes: prefixes.build() }
    }
}
