//! Why a request has the route it has: for `routes explain`, not for the request path.

use std::fmt;

use crate::{RequestFacts, Route, RouteTable, condition::Failure, host::HostMatch};

/// A route that was looked at.
#[derive(Debug)]
pub struct Step<'a, T> {
    /// Which.
    pub route: &'a Route<T>,
    /// The first of its conditions that does not hold; `None`: this is the route of the request.
    pub failure: Option<Failure<'a>>,
}

/// The way to a route.
#[derive(Debug)]
pub struct Explanation<'a, T> {
    /// The host that was chosen. Routes of others were not looked at. `None`: no host matches.
    pub host: Option<&'a HostMatch>,
    /// The routes of that host in order, up to the one that was chosen. Routes that come behind it never had a chance.
    pub steps: Vec<Step<'a, T>>,
}

impl<'a, T> Explanation<'a, T> {
    /// The route of the request: the same as [`RouteTable::find`] gives.
    pub fn chosen(&self) -> Option<&'a Route<T>> {
        self.steps.last().filter(|step| step.failure.is_none()).map(|step| step.route)
    }
}

impl<T> RouteTable<T> {
    /// Which routes are looked at in which order, and why they were passed over. Looks also at those whose path does not
    /// match, which [`find`](Self::find) leaves out.
    pub fn explain(&self, facts: &impl RequestFacts) -> Explanation<'_, T> {
        let routes = self.routes_of_host(facts.host());
        let mut steps = Vec::new();
        for route in routes {
            let failure = route.check(facts).err();
            let is_chosen = failure.is_none();
            steps.push(Step { route, failure });
            if is_chosen {
                break;
            }
        }
        Explanation { host: routes.first().map(|route| &route.host), steps }
    }

    /// The whole order, a line per route.
    pub fn dump(&self) -> String {
        self.routes().iter().enumerate().map(|(number, route)| format!("{:>4}  {route}\n", number + 1)).collect()
    }
}

/// A line per step.
impl<T> fmt::Display for Explanation<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(host) = self.host else { return writeln!(f, "no host matches") };
        writeln!(f, "host {host}: routes of other hosts are not considered")?;
        for Step { route, failure } in &self.steps {
            match failure {
                Some(failure) => writeln!(f, "  no   {route}\n         fails: {failure}")?,
                None => writeln!(f, "  yes  {route}")?,
            }
        }
        if self.chosen().is_none() {
            writeln!(f, "no route of this host takes the request")?;
        }
        Ok(())
    }
}
