//! A route, and which of two is tried first.

use std::{cmp::Ordering, fmt};

use crate::{
    RequestFacts,
    condition::{Failure, HeaderCondition, Method, QueryCondition, check},
    host::HostMatch,
    path::PathMatch,
};

/// Conditions on a request, and the action for requests that match. All conditions have to hold. A route of several
/// hosts or paths is several routes with one action.
#[derive(Clone, Debug)]
pub struct Route<T> {
    /// For logs, metrics and `routes explain`.
    pub name: Box<str>,
    /// Hosts.
    pub host: HostMatch,
    /// Paths.
    pub path: PathMatch,
    /// Methods; empty: any.
    pub methods: Vec<Method>,
    /// Headers.
    pub headers: Vec<HeaderCondition>,
    /// Pairs of the query.
    pub queries: Vec<QueryCondition>,
    /// Decides between routes that ask equally much: the lower goes first, as in Contour. Default 0.
    pub priority: i32,
    /// The caller's action for a request of this route.
    pub action: T,
}

impl<T> Route<T> {
    /// A route without conditions on method, headers and query.
    pub fn new(name: &str, host: HostMatch, path: PathMatch, action: T) -> Self {
        let (methods, headers, queries) = (Vec::new(), Vec::new(), Vec::new());
        Self { name: name.into(), host, path, methods, headers, queries, priority: 0, action }
    }

    /// Whether the conditions on method, headers and query hold; the first that does not.
    ///
    /// # Errors
    /// That condition.
    pub fn check_conditions(&self, facts: &impl RequestFacts) -> Result<(), Failure<'_>> {
        check(&self.methods, &self.headers, &self.queries, facts)
    }

    /// The same with the path. The host is the table's business.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn check(&self, facts: &impl RequestFacts) -> Result<(), Failure<'_>> {
        if !self.path.matches(facts.path()) {
            return Err(Failure::Path);
        }
        self.check_conditions(facts)
    }

    /// Whether it takes each request that `other` takes, as far as their texts tell. Both are of one host.
    pub(crate) fn takes_all_of(&self, other: &Self) -> bool {
        let takes_method = |method| self.methods.contains(method);
        let methods = self.methods.is_empty() || !other.methods.is_empty() && other.methods.iter().all(takes_method);
        methods
            && self.path.covers(&other.path)
            && self.headers.iter().all(|own| other.headers.iter().any(|its| own.follows_from(its)))
            && self.queries.iter().all(|own| other.queries.iter().any(|its| own.follows_from(its)))
    }

    /// Which of two routes is tried first: the contract of routing, steps 1 to 7. Equal: in the order they were declared.
    pub fn precedence(&self, other: &Self) -> Ordering {
        self.host
            .rank()
            .cmp(&other.host.rank())
            .then_with(|| self.path.rank().cmp(&other.path.rank()))
            .then_with(|| self.methods.is_empty().cmp(&other.methods.is_empty()))
            .then_with(|| other.headers.len().cmp(&self.headers.len()))
            .then_with(|| other.queries.len().cmp(&self.queries.len()))
            .then_with(|| self.priority.cmp(&other.priority))
            .then_with(|| compare_all(&self.headers, &other.headers, HeaderCondition::compare))
            .then_with(|| compare_all(&self.queries, &other.queries, QueryCondition::compare))
    }
}

/// Lists of equal length, the most specific conditions of both first.
fn compare_all<C>(these: &[C], those: &[C], compare: impl Fn(&C, &C) -> Ordering) -> Ordering {
    let (these, those) = (sorted(these, &compare), sorted(those, &compare));
    let pairs = these.iter().zip(&those);
    pairs.map(|(this, that)| compare(this, that)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn sorted<'a, C>(list: &'a [C], compare: &impl Fn(&C, &C) -> Ordering) -> Vec<&'a C> {
    let mut list: Vec<&C> = list.iter().collect();
    list.sort_by(|one, other| compare(one, other));
    list
}

/// One line of a dump.
impl<T> fmt::Display for Route<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: host {}, {}", self.name, self.host, self.path)?;
        if !self.methods.is_empty() {
            let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
            write!(f, ", method {}", methods.join(" or "))?;
        }
        self.headers.iter().try_for_each(|condition| write!(f, ", {condition}"))?;
        self.queries.iter().try_for_each(|condition| write!(f, ", {condition}"))?;
        if self.priority != 0 {
            write!(f, ", priority {}", self.priority)?;
        }
        Ok(())
    }
}
